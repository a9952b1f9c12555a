//! Reads like those of NFS: each client keeps reads outstanding. The server delays each read on its
//! own and answers in the order of completion.
//!
//! A call and the header of its reply have 128 bytes each, about as many as a READ call of NFS
//! version 3 and its reply without data (RFC 1813, section 3.3.6, on RFC 5531 with `AUTH_SYS`).
//! Both begin with the number of the call, like RPC's transaction id. The data follows the header.

mod client;
mod server;

pub(crate) use self::client::run as call;
pub(crate) use self::server::run as serve;

use latput_trial::Think;

/// Size of a call, and of the header of a reply.
pub(crate) const HEAD_BYTES: usize = 128;
/// Largest read from a socket.
const RECEIVE_BYTES: usize = 128 * 1024;

/// The reads of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadParameters {
    /// Reads that a client keeps outstanding.
    pub(crate) outstanding: u32,
    /// Data of one read.
    pub(crate) bytes: usize,
    /// Delay of the server before each reply.
    pub(crate) think: Think,
}

impl ReadParameters {
    /// Size of a whole reply.
    const fn reply_bytes(&self) -> usize {
        HEAD_BYTES + self.bytes
    }
}

/// Divides a stream into messages and reads the number at the start of each.
#[derive(Debug, Default)]
struct MessageSplitter {
    number: [u8; 4],
    /// Received bytes of an incomplete message.
    filled: usize,
}

impl MessageSplitter {
    /// Takes `bytes` of messages with `length` bytes each. Calls `whole` with the number of each
    /// completed message.
    fn feed(&mut self, mut bytes: &[u8], length: usize, mut whole: impl FnMut(u32)) {
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
    fn messages_are_found_in_any_cut() {
        let stream: Vec<u8> = [7_u32, 0x0102_0304]
            .iter()
            .flat_map(|n| [n.to_be_bytes(), [0xff; 4]].concat())
            .collect();
        for piece in 1..=stream.len() {
            let mut framing = MessageSplitter::default();
            let mut numbers = Vec::new();
            for bytes in stream.chunks(piece) {
                framing.feed(bytes, 8, |number| numbers.push(number));
            }
            assert_eq!(numbers, [7, 0x0102_0304], "in pieces of {piece}");
        }
    }
}
