//! The secret key of a run, which both ends of a data connection must prove.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::error::Error;

/// A random 256-bit key, one per run. It is sent on the agents' control channel only. `Debug` does
/// not print it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key([u8; Self::BYTES]);

impl Key {
    /// Size of a key.
    pub(crate) const BYTES: usize = 32;

    /// A new key from the operating system's random generator.
    pub fn generate() -> Result<Self, Error> {
        random().map(Self)
    }

    /// The HMAC-SHA-256 of `words` (RFC 2104), which proves the key.
    pub(crate) fn prove(&self, words: &[u8]) -> Proof {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        Proof(mac.chain_update(words).finalize().into_bytes().into())
    }
}

/// A proof of the key. Comparisons take constant time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof([u8; Self::BYTES]);

impl Proof {
    /// Size on the wire.
    pub(crate) const BYTES: usize = 32;

    pub(crate) const fn from_wire(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The first half of the proof.
    pub(crate) fn half(&self) -> &[u8; Self::BYTES / 2] {
        self.0.first_chunk().expect("it is longer")
    }
}

impl PartialEq for Proof {
    fn eq(&self, other: &Self) -> bool {
        is_same(&self.0, &other.0)
    }
}

impl Eq for Proof {}

/// Compares in constant time.
pub(crate) fn is_same<const N: usize>(first: &[u8; N], second: &[u8; N]) -> bool {
    let pairs = first.iter().zip(second);
    pairs.fold(0, |acc, (a, b)| black_box(acc | (a ^ b))) == 0
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
        key.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
    }
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io("read random bytes", errno))?;
    // getrandom(2) never returns less than asked for up to 256 bytes.
    assert_eq!(filled, N, "getrandom(2) returned too little");
    Ok(bytes)
}

/// A text that is no key. The error does not repeat the text, which may be a mistyped key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is 64 hexadecimal digits")]
pub struct BadKey;

impl TryFrom<String> for Key {
    type Error = BadKey;
    fn try_from(text: String) -> Result<Self, BadKey> {
        text.parse()
    }
}

impl FromStr for Key {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        let digits: Vec<u8> = text
            .chars()
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()).ok_or(BadKey))
            .collect::<Result<_, _>>()?;
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| (pair[0] << 4) | pair[pair.len() - 1]).collect();
        if digits.len() != 2 * Self::BYTES {
            return Err(BadKey);
        }
        bytes.try_into().map(Self).map_err(|_| BadKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_survives_its_text() {
        let key = Key::generate().unwrap();
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text.len(), 66);
        let read: Key = serde_json::from_str(&text).unwrap();
        assert_eq!(key.prove(b"x"), read.prove(b"x"));
    }

    #[test]
    fn proof_depends_on_key_and_words() {
        let key = Key::generate().unwrap();
        let proof = key.prove(b"words");
        assert_ne!(proof, Key::generate().unwrap().prove(b"words"));
        assert_ne!(proof, key.prove(b"other words"));
        for bit in 0..256 {
            let mut other = *proof.bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(proof, Proof::from_wire(other), "bit {bit}");
        }
    }

    /// Test cases 1 and 2 of RFC 4231. Their keys are shorter, and HMAC fills keys with zeros.
    #[test]
    fn proof_is_the_keyed_hash_that_others_make() {
        check(&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b");
        check(b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c7");
    }

    #[track_caller]
    fn check(start: &[u8], words: &[u8], half: &str) {
        let mut key = [0; Key::BYTES];
        key[..start.len()].copy_from_slice(start);
        let proof = String::from(Key(*Key(key).prove(words).bytes()));
        assert!(proof.starts_with(half), "{proof}");
    }

    #[test]
    fn bad_key_is_refused_without_echo() {
        let short = "ab".repeat(31);
        let long = "ab".repeat(33);
        let odd = "a".repeat(63);
        let words = "zz".repeat(32);
        for text in ["", &short, &long, &odd, &words] {
            let refusal = text.parse::<Key>().unwrap_err().to_string();
            assert!(text.is_empty() || !refusal.contains(text), "{refusal}");
        }
    }

    #[test]
    fn debug_does_not_print_the_key() {
        let key = Key::generate().unwrap();
        let hex = String::from(key.clone());
        assert!(!format!("{key:?}").contains(&hex[..8]));
    }
}
