//! The secret that a connection must show before a data port talks to it.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A random 256-bit key, one per run. It travels over the agents' control channel and is shown once on
/// every data connection; `Debug` does not print it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key([u8; Self::BYTES]);

impl Key {
    /// Size of a key.
    pub(crate) const BYTES: usize = 32;

    /// A fresh key from the operating system's generator.
    pub fn generate() -> Result<Self, Error> {
        random().map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Whether `shown` is this key; takes the same time wherever they differ.
    pub(crate) fn matches(&self, shown: &[u8; Self::BYTES]) -> bool {
        let difference = self.0.iter().zip(shown).fold(0, |acc, (a, b)| black_box(acc | (a ^ b)));
        difference == 0
    }
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

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io("read random bytes", errno))?;
    // getrandom(2) never returns less than asked for up to 256 bytes.
    assert_eq!(filled, N, "getrandom(2) returned too little");
    Ok(bytes)
}

/// A text that is not a key. The text itself is not repeated: it may be one, slightly wrong.
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
    fn a_key_survives_its_text() {
        let key = Key::generate().unwrap();
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(text.len(), 66);
        let read: Key = serde_json::from_str(&text).unwrap();
        assert!(key.matches(read.bytes()));
    }

    #[test]
    fn keys_differ_and_only_the_same_one_matches() {
        let key = Key::generate().unwrap();
        assert!(!key.matches(Key::generate().unwrap().bytes()));
        for bit in 0..256 {
            let mut other = *key.bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.matches(&other), "bit {bit}");
        }
    }

    #[test]
    fn what_is_not_a_key_is_refused_without_repeating_it() {
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
