//! Options of a connection's two ends.

use crate::congestion::CongestionParams;
use crate::machine::CongestionControl;

/// Constants of a connection, shared by the connections of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpOptions {
    /// Largest payload of one packet.
    pub(crate) mss: u32,
    /// Largest payload handed over at once (more than `mss` with TSO).
    pub(crate) chunk: u32,
    pub(crate) send_buffer: u32,
    /// This end's receive buffer, which limits its window.
    pub(crate) receive_buffer: u32,
    /// The other end's receive buffer.
    pub(crate) peer_buffer: u32,
    pub(crate) nodelay: bool,
    /// Acknowledge on reads instead of every second segment.
    pub(crate) acks_when_read: bool,
    pub(crate) congestion: CongestionControl,
}

impl TcpOptions {
    /// The constants of the congestion window.
    #[inline]
    pub(super) fn congestion_params(&self) -> CongestionParams {
        CongestionParams { algorithm: self.congestion, mss: f64::from(self.mss) }
    }
}
