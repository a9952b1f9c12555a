//! What the two ends of a connection are set to.

use crate::congestion::Rules;
use crate::machine::Congestion;

/// What does not change during a connection; the connections of a load share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpOptions {
    /// Largest payload of one packet.
    pub(crate) mss: u32,
    /// Largest payload handed over at once (more than `mss` with TSO).
    pub(crate) chunk: u32,
    pub(crate) send_buffer: u32,
    /// This end's, and the window that it can offer.
    pub(crate) receive_buffer: u32,
    /// The other end's.
    pub(crate) peer_buffer: u32,
    pub(crate) nodelay: bool,
    /// Acknowledge what was read, not every second segment.
    pub(crate) acks_when_read: bool,
    pub(crate) congestion: Congestion,
}

impl TcpOptions {
    /// What the congestion window must know of the connection.
    #[inline]
    pub(super) fn rules(&self) -> Rules {
        Rules { algorithm: self.congestion, mss: f64::from(self.mss) }
    }
}
