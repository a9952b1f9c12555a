//! Reads as of NFS: each client keeps reads outstanding, the server thinks about each by itself and
//! answers in whatever order it is done.
//!
//! A call and the head of its reply are of 128 byte, about what a READ call of NFS version 3 and its reply
//! take beside the data (RFC 1813, section 3.3.6, on RFC 5531 with `AUTH_SYS`); both begin with the call's
//! number, as RPC's transaction id does. The data follows the head.

mod client;
mod server;

pub(crate) use self::client::run as call;
pub(crate) use self::server::run as serve;

use latput_trial::Think;

/// Size of a call, and of the head of a reply.
pub(crate) const HEAD_BYTES: usize = 128;
/// Largest read from a socket.
const RECEIVE_BYTES: usize = 128 * 1024;

/// What clients ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Reads that a client keeps outstanding.
    pub(crate) outstanding: u32,
    /// Data of one read.
    pub(crate) bytes: usize,
    /// How long the server thinks about each.
    pub(crate) think: Think,
}

impl Reads {
    /// Size of a whole reply.
    const fn reply_bytes(&self) -> usize {
        HEAD_BYTES + self.bytes
    }
}

/// Cuts a stream into messages and tells the number at the head of each.
#[derive(Debug, Default)]
struct Framing {
    number: [u8; 4],
    /// Bytes of the message under way.
    filled: usize,
}

impl Framing {
    /// Takes `bytes`, of messages that are `length` long; calls `whole` with the number of each that
    /// they complete.
    fn take(&mut self, mut bytes: &[u8], length: usize, mut whole: impl FnMut(u32)) {
        while !bytes.is_empty() {
            let taken = bytes.len().min(length - self.filled);
            if let Some(number) = self.number.get_mut(self.filled..) {
                let start = number.len().min(taken);
                number[..start].copy_from_slice(&bytes[..start]);
            }
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == length {
                self.filled = 0;
                whole(u32::from_be_bytes(self.number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_however_the_stream_is_cut() {
        let stream: Vec<u8> = [7_u32, 0x0102_0304]
            .iter()
            .flat_map(|n| [n.to_be_bytes(), [0xff; 4]].concat())
            .collect();
        for piece in 1..=stream.len() {
            let mut framing = Framing::default();
            let mut numbers = Vec::new();
            for bytes in stream.chunks(piece) {
                framing.take(bytes, 8, |number| numbers.push(number));
            }
            assert_eq!(numbers, [7, 0x0102_0304], "in pieces of {piece}");
        }
    }
}
