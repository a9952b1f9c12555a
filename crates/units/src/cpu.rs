//! CPU numbers and sets of them, in the kernel's two spellings: lists (`0-3,8`) and hexadecimal
//! masks (`ff,00000001`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::collect::IntoSet;

use serde::{Deserialize, Serialize};

use crate::ParseQuantityError;

/// The largest CPU number accepted anywhere (`CONFIG_NR_CPUS` is at most 8192 on x86-64).
pub const MAX_CPU: u32 = 8191;

/// One logical CPU, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of logical CPUs; may be empty (an RPS mask of 0 switches RPS off).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<CpuId>);

impl CpuSet {
    /// No CPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is one of them.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether every CPU of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Reads a sysfs mask: 32-bit groups in hexadecimal, the most significant first, with commas.
    pub fn from_hex_mask(text: &str) -> Result<Self, ParseQuantityError> {
        let bad = || ParseQuantityError {
            text: text.chars().take(80).collect(),
            wanted: "hexadecimal CPU mask, such as `3` or `ff,00000001`",
        };
        let digits = text.trim().trim_start_matches("0x");
        let groups: Vec<&str> = digits.split(',').collect();
        let mut cpus = BTreeSet::new();
        for (group_idx, group) in groups.iter().rev().enumerate() {
            // A mask written in one piece may be longer than a group; only then is it the only one.
            if group.is_empty() || (groups.len() > 1 && group.len() > 8) || group.len() > 2048 {
                return Err(bad());
            }
            for (digit_idx, digit) in group.chars().rev().enumerate() {
                let digit = digit.to_digit(16).ok_or_else(bad)?;
                for bit in (0..4_u32).filter(|bit| digit & (1 << bit) != 0) {
                    let base = u32::try_from(group_idx * 32 + digit_idx * 4).map_err(|_| bad())?;
                    if base + bit > MAX_CPU {
                        return Err(bad());
                    }
                    cpus.insert(CpuId(base + bit));
                }
            }
        }
        Ok(Self(cpus))
    }

    /// Writes a sysfs mask: `0`, `3`, `1,00000000`.
    pub fn to_hex_mask(&self) -> String {
        let highest_group = self.0.last().map_or(0, |cpu| cpu.0 / 32);
        let group = |idx: u32| {
            self.0
                .iter()
                .filter(|cpu| cpu.0 / 32 == idx)
                .fold(0_u32, |mask, cpu| mask | 1 << (cpu.0 % 32))
        };
        let lower_groups = (0..highest_group).rev().map(|idx| format!(",{:08x}", group(idx)));
        format!("{:x}{}", group(highest_group), lower_groups.collect::<String>())
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_set())
    }
}

impl fmt::Display for CpuSet {
    /// The kernel's list: `0-3,8`; `none` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.pad("none");
        }
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for CpuId(cpu) in self.iter() {
            match ranges.last_mut() {
                Some((_, end)) if *end + 1 == cpu => *end = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let text: Vec<String> = ranges
            .iter()
            .map(
                |&(start, end)| {
                    if start == end { start.to_string() } else { format!("{start}-{end}") }
                },
            )
            .collect();
        f.pad(&text.join(","))
    }
}

impl FromStr for CpuSet {
    type Err = ParseQuantityError;

    /// Reads the kernel's list: `0-3,8`, `5`, `none` or the empty text.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseQuantityError {
            text: text.chars().take(80).collect(),
            wanted: "list of CPUs, such as `0-3,8` or `none`",
        };
        let mut cpus = BTreeSet::new();
        let text = text.trim();
        if text.is_empty() || text == "none" {
            return Ok(Self(cpus));
        }
        for range in text.split(',') {
            let (start, end) = range.split_once('-').unwrap_or((range, range));
            let start: u32 = start.trim().parse().map_err(|_| bad())?;
            let end: u32 = end.trim().parse().map_err(|_| bad())?;
            if start > end || end > MAX_CPU {
                return Err(bad());
            }
            cpus.extend((start..=end).map(CpuId));
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = ParseQuantityError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for text in ["none", "0", "0-3,8", "1,3,5-7", "31-33"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn masks_round_trip_and_agree_with_lists() {
        check_mask("0", "none");
        check_mask("3", "0-1");
        check_mask("1,00000000", "32");
        check_mask("ff,00000001", "0,32-39");
    }

    #[test]
    fn impossible_lists_and_masks_are_refused() {
        for text in ["3-1", "a", "1,,2", "0-99999", "-1"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
        for text in ["", "g", "1,,2", "123456789,0"] {
            assert!(CpuSet::from_hex_mask(text).is_err(), "{text}");
        }
    }

    #[track_caller]
    fn check_mask(mask: &str, list: &str) {
        let cpus = CpuSet::from_hex_mask(mask).unwrap();
        assert_eq!(cpus.to_string(), list);
        assert_eq!(cpus.to_hex_mask(), mask);
    }
}
