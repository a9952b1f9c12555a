//! Values of sysctls that are neither a number nor a switch.

use std::fmt;
use std::str::FromStr;

use latput_units::Bytes;
use serde::{Deserialize, Serialize};

/// Sizes of a buffer of TCP in bytes, as `net.ipv4.tcp_rmem` has them: the smallest, the first, and the largest that the kernel
/// chooses by itself (tcp(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferSizes([u64; 3]);

impl BufferSizes {
    /// The smallest size.
    pub const fn smallest(self) -> u64 {
        self.0[0]
    }

    /// The largest size.
    pub const fn largest(self) -> u64 {
        self.0[2]
    }
}

/// An error that says nothing beyond the kind of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOfThisKind;

impl FromStr for BufferSizes {
    type Err = NotOfThisKind;

    /// Reads `4096 131072 6291456`, also with commas or tabs, and sizes such as `6M`.
    fn from_str(text: &str) -> Result<Self, NotOfThisKind> {
        let parse = |word: &str| word.parse().ok().or_else(|| word.parse().ok().map(Bytes::get));
        let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let sizes: Option<Vec<u64>> = words.map(parse).collect();
        let sizes = sizes.and_then(|sizes| <[u64; 3]>::try_from(sizes).ok());
        sizes.filter(|sizes| sizes.is_sorted()).map(Self).ok_or(NotOfThisKind)
    }
}

impl fmt::Display for BufferSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [smallest, first, largest] = self.0;
        f.pad(&format!("{smallest} {first} {largest}"))
    }
}

/// The name of a part of the kernel, such as a congestion control: at most 15 of `a` to `z`, digits, `_` and `-`
/// (`TCP_CA_NAME_MAX`, `IFNAMSIZ`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleName(String);

impl FromStr for ModuleName {
    type Err = NotOfThisKind;

    fn from_str(text: &str) -> Result<Self, NotOfThisKind> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        let is_name = (1..16).contains(&text.len()) && text.chars().all(is_allowed);
        is_name.then(|| Self(text.to_owned())).ok_or(NotOfThisKind)
    }
}

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_three_and_rise() {
        let sizes: BufferSizes = "4096\t131072\t6291456".parse().unwrap();
        assert_eq!(sizes.to_string(), "4096 131072 6291456");
        assert_eq!("4k,128k,6M".parse(), Ok(sizes));
        for wrong in ["", "4096", "1 2", "1 2 3 4", "3 2 1", "1 2 x", "-1 2 3"] {
            assert_eq!(wrong.parse::<BufferSizes>(), Err(NotOfThisKind), "{wrong}");
        }
    }

    #[test]
    fn names_have_no_path_in_them() {
        assert_eq!("pfifo_fast".parse::<ModuleName>().unwrap().to_string(), "pfifo_fast");
        for wrong in ["", "../x", "a b", "UPPER", "sixteen-letters-"] {
            assert_eq!(wrong.parse::<ModuleName>(), Err(NotOfThisKind), "{wrong}");
        }
    }
}
