//! Tables that say which receive queue a hash value goes to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More entries than any NIC has.
const ENTRIES_MAX: usize = 8192;

/// An RSS indirection table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum QueueTable {
    /// The first so many queues in turn, as drivers start: `equal 4`.
    Equal(u32),
    /// Each entry's queue; a device's table is as long as the device has it, and a shorter list is
    /// repeated.
    List(Vec<u32>),
}

impl QueueTable {
    /// The table of a device, by its pattern where it has one.
    pub fn from_entries(entries: &[u32]) -> Self {
        let queues = entries.iter().max().map_or(0, |highest| highest.saturating_add(1));
        let in_turn = |(idx, queue): (usize, &u32)| {
            u32::try_from(idx).is_ok_and(|idx| idx % queues == *queue)
        };
        if queues > 0 && entries.iter().enumerate().all(in_turn) {
            Self::Equal(queues)
        } else {
            Self::List(entries.to_vec())
        }
    }

    /// Returns the number of queues that a device needs for it: one more than the highest that it names.
    pub fn queues(&self) -> u64 {
        match self {
            Self::Equal(queues) => u64::from(*queues),
            Self::List(queues) => queues.iter().max().map_or(0, |highest| u64::from(*highest) + 1),
        }
    }

    /// The entries of a device's table of this length.
    pub fn entries(&self, length: usize) -> Vec<u32> {
        match self {
            Self::Equal(queues) => (0..*queues).cycle().take(length).collect(),
            Self::List(queues) => queues.iter().copied().cycle().take(length).collect(),
        }
    }
}

impl fmt::Display for QueueTable {
    /// `equal 4`, or runs: `0x64 1x64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal(queues) => f.pad(&format!("equal {queues}")),
            Self::List(queues) => {
                let runs = queues.chunk_by(|a, b| a == b);
                let text: Vec<String> =
                    runs.map(|run| format!("{}x{}", run[0], run.len())).collect();
                f.pad(&text.join(" "))
            }
        }
    }
}

/// A text that is no table of queues.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a table of queues: give `equal 4`, or each queue with its count: `0x64 1x64`")]
pub struct TableError;

impl FromStr for QueueTable {
    type Err = TableError;

    /// Reads `equal 4`, `0x64 1x64` or `0 1 2 3`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse::<u32>().map_err(|_| TableError);
        if let Some(queues) = text.trim().strip_prefix("equal ") {
            let queues = number(queues.trim())?;
            return if queues > 0 { Ok(Self::Equal(queues)) } else { Err(TableError) };
        }
        let mut entries = Vec::new();
        for run in text.split([' ', ',']).filter(|run| !run.is_empty()) {
            let (queue, times) = run.split_once('x').unwrap_or((run, "1"));
            let times = usize::try_from(number(times)?).map_err(|_| TableError)?;
            if times == 0 || times > ENTRIES_MAX || entries.len() + times > ENTRIES_MAX {
                return Err(TableError);
            }
            entries.extend(std::iter::repeat_n(number(queue)?, times));
        }
        if entries.is_empty() { Err(TableError) } else { Ok(Self::List(entries)) }
    }
}

impl TryFrom<String> for QueueTable {
    type Error = TableError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<QueueTable> for String {
    fn from(table: QueueTable) -> Self {
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_known_by_its_pattern() {
        check(&[0, 1, 2, 3, 0, 1, 2, 3], "equal 4");
        check(&[0, 0], "equal 1");
        check(&[0, 0, 1, 1], "0x2 1x2");
        check(&[5], "5x1");
        check(&[1, u32::MAX], "1x1 4294967295x1");
    }

    #[test]
    fn texts_that_are_no_table_are_refused() {
        for text in ["", "equal", "equal 0", "equal -1", "equal x", "0x0", "0x9999999", "1;2", "x"]
        {
            assert!(text.parse::<QueueTable>().is_err(), "{text}");
        }
    }

    #[track_caller]
    fn check(entries: &[u32], text: &str) {
        let table = QueueTable::from_entries(entries);
        assert_eq!(table.to_string(), text);
        assert_eq!(text.parse(), Ok(table.clone()));
        assert_eq!(table.entries(entries.len()), entries);
    }
}
