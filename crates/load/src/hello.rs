//! The first bytes on every data connection: who is there, shown before anything else is believed.
//!
//! Generator to reflector: magic, key, the generator's UDP port (0 without UDP) the run's tag for
//! datagrams and the connection's number, all of fixed length. Reflector to generator: [`WELCOME`], or it closes.

use crate::key::Key;

/// Names the protocol and its version.
const MAGIC: [u8; 8] = *b"latput-2";
/// The reflector's answer to a good key.
pub(crate) const WELCOME: [u8; 8] = *b"welcome1";

/// What the generator says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The key shown; not yet checked.
    pub(crate) key: [u8; Key::BYTES],
    /// Where the generator's datagrams come from; 0 if there are none.
    pub(crate) udp_port: u16,
    /// Marks this run's datagrams.
    pub(crate) tag: u32,
    /// Which connection of the traffic it is, from 0.
    pub(crate) connection: u32,
}

impl Hello {
    /// Length on the wire.
    pub(crate) const BYTES: usize = MAGIC.len() + Key::BYTES + 2 + 4 + 4;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut wire = [0; Self::BYTES];
        wire[..8].copy_from_slice(&MAGIC);
        wire[8..40].copy_from_slice(&self.key);
        wire[40..42].copy_from_slice(&self.udp_port.to_be_bytes());
        wire[42..46].copy_from_slice(&self.tag.to_be_bytes());
        wire[46..50].copy_from_slice(&self.connection.to_be_bytes());
        wire
    }

    /// `None` if the bytes are not of this protocol.
    pub(crate) fn decode(wire: &[u8; Self::BYTES]) -> Option<Self> {
        let (magic, rest) = wire.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_first_chunk()?;
        let (udp_port, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let (connection, _) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Self {
            key: *key,
            udp_port: u16::from_be_bytes(*udp_port),
            tag: u32::from_be_bytes(*tag),
            connection: u32::from_be_bytes(*connection),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_the_wire() {
        let hello = Hello { key: [7; 32], udp_port: 0x1234, tag: 0x5678_9abc, connection: 9 };
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
    }

    #[test]
    fn another_protocol_is_no_hello() {
        assert_eq!(
            Hello::decode(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n......."),
            None
        );
    }
}
