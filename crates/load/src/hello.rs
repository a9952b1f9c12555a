//! The handshake on every data connection. Each end proves the key before the other trusts it.
//!
//! Generator to reflector, in fixed lengths: magic, proof, the generator's UDP port (0 without
//! UDP), the run's tag for datagrams, and the connection's number. Reflector to generator: its own
//! proof, or a close. Each proof is the hash of the message, keyed with the run's key; the key
//! itself is never sent on a data connection. Tag and number occur once in a run, so a recorded
//! answer is not valid again.

use crate::key::{Key, Proof, is_same};

/// Names the protocol and its version.
const MAGIC: [u8; 8] = *b"latput-3";
/// Length of the connection's UDP port, tag and number.
const WORDS: usize = 2 + 4 + 4;
/// Prefix of the reflector's hashed message, so that its proof differs from the generator's.
const REFLECTOR: [u8; 8] = *b"welcome2";
/// Length of the reflector's answer: half a proof.
pub(crate) const ANSWER: usize = Proof::BYTES / 2;

/// The generator's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The generator's UDP port; 0 without datagrams.
    pub(crate) udp_port: u16,
    /// The tag in this run's datagrams.
    pub(crate) tag: u32,
    /// The number of the connection, from 0.
    pub(crate) connection: u32,
    proof: Proof,
    answer: [u8; ANSWER],
}

impl Hello {
    /// Length on the wire.
    pub(crate) const BYTES: usize = MAGIC.len() + Proof::BYTES + WORDS;

    pub(crate) fn new(key: &Key, udp_port: u16, tag: u32, connection: u32) -> Self {
        let words =
            [udp_port.to_be_bytes().as_slice(), &tag.to_be_bytes(), &connection.to_be_bytes()]
                .concat();
        let proof = key.prove(&[&MAGIC[..], &words].concat());
        let answer = *key.prove(&[&REFLECTOR[..], &words].concat()).half();
        Self { udp_port, tag, connection, proof, answer }
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut wire = [0; Self::BYTES];
        wire[..8].copy_from_slice(&MAGIC);
        wire[8..40].copy_from_slice(self.proof.bytes());
        wire[40..42].copy_from_slice(&self.udp_port.to_be_bytes());
        wire[42..46].copy_from_slice(&self.tag.to_be_bytes());
        wire[46..50].copy_from_slice(&self.connection.to_be_bytes());
        wire
    }

    /// The reflector's answer.
    pub(crate) const fn answer(&self) -> &[u8; ANSWER] {
        &self.answer
    }

    /// Whether `answer` proves that the reflector has the key.
    pub(crate) fn is_answered_by(&self, answer: [u8; ANSWER]) -> bool {
        is_same(&self.answer, &answer)
    }

    /// Decodes a hello. `None` for bytes of another protocol or of a sender without the key.
    pub(crate) fn decode(wire: &[u8; Self::BYTES], key: &Key) -> Option<Self> {
        let (magic, rest) = wire.split_first_chunk::<8>()?;
        let (proof, rest) = rest.split_first_chunk()?;
        let (udp_port, rest) = rest.split_first_chunk()?;
        let (tag, rest) = rest.split_first_chunk()?;
        let (connection, _) = rest.split_first_chunk()?;
        let hello = Self::new(
            key,
            u16::from_be_bytes(*udp_port),
            u32::from_be_bytes(*tag),
            u32::from_be_bytes(*connection),
        );
        (*magic == MAGIC && hello.proof == Proof::from_wire(*proof)).then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_is_read_with_its_key() {
        let key = Key::generate().unwrap();
        let hello = Hello::new(&key, 0x1234, 0x5678_9abc, 9);
        assert_eq!(Hello::decode(&hello.encode(), &key), Some(hello));
        assert_eq!(Hello::decode(&hello.encode(), &Key::generate().unwrap()), None);
        assert!(hello.is_answered_by(*hello.answer()));
    }

    #[test]
    fn hello_is_sealed_and_hides_the_key() {
        let key = Key::generate().unwrap();
        let hello = Hello::new(&key, 7, 8, 9);
        let wire = hello.encode();
        for at in 0..wire.len() {
            let mut other = wire;
            other[at] ^= 1;
            assert_eq!(Hello::decode(&other, &key), None, "byte {at}");
        }
        // The proof of one end is not that of the other.
        assert!(!hello.is_answered_by(*hello.proof.half()));
        assert!(!Hello::new(&key, 7, 8, 10).is_answered_by(*hello.answer()));
    }

    #[test]
    fn another_protocol_is_no_hello() {
        let words = b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n.......";
        assert_eq!(Hello::decode(words, &Key::generate().unwrap()), None);
    }
}
