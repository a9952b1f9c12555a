//! The start and the end of an output of any length, in bounded memory.

use std::collections::VecDeque;
use std::io::{self, Read};

use latput_protocol::program::KeptOutput;

/// Keeps the first and the last bytes of an output.
#[derive(Debug)]
pub(super) struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Most bytes of each.
    most: usize,
    total: u64,
}

impl OutputBuffer {
    /// Keeps at most `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), most: most / 2, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.most - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.most)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.most);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Bytes that have come.
    pub(super) const fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Reads to the end of `from`.
    pub(super) fn read(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 65_536];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => self.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The kept output as text. Bytes that are no UTF-8, and control characters other than line breaks and tabs, are
    /// replaced.
    pub(super) fn to_kept_output(&self) -> KeptOutput {
        let dropped = self.total - (self.head.len() + self.tail.len()) as u64;
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if dropped == 0 {
            let head = replace_control_chars(&[self.head.as_slice(), &tail].concat());
            return KeptOutput { head, dropped, tail: String::new() };
        }
        KeptOutput {
            head: replace_control_chars(&self.head),
            dropped,
            tail: replace_control_chars(&tail),
        }
    }
}

fn replace_control_chars(bytes: &[u8]) -> String {
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    String::from_utf8_lossy(bytes).replace(is_bad, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use latput_protocol::program::{MAX_ANSWER_BYTES, MOST_KEPT, MOST_OUTPUTS};

    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut keeper = OutputBuffer::new(10);
        keeper.push(b"abc");
        keeper.push(b"defghij");
        let kept = keeper.to_kept_output();
        assert_eq!((kept.head.as_str(), kept.dropped, kept.tail.as_str()), ("abcdefghij", 0, ""));
    }

    #[test]
    fn flood_keeps_start_and_end() {
        let mut keeper = OutputBuffer::new(1000);
        keeper.push(b"first\n");
        for _ in 0..10_000 {
            keeper.push(&[b'x'; 999]);
        }
        keeper.push(b"\nlast");
        let kept = keeper.to_kept_output();
        assert!(kept.head.starts_with("first\nx") && kept.tail.ends_with("x\nlast"));
        assert_eq!(kept.dropped, 6 + 9_990_000 + 5 - 1000);
        assert!(keeper.head.capacity() + keeper.tail.capacity() < 5000);
        assert!(kept.last_lines().ends_with(" | last"), "{}", kept.last_lines());
    }

    #[test]
    fn binary_output_stays_within_message() {
        for byte in [0, 0x1b, 0xff, b'"'] {
            let mut keeper = OutputBuffer::new(MOST_KEPT);
            keeper.push(&vec![byte; MOST_KEPT]);
            let length = serde_json::to_vec(&keeper.to_kept_output()).unwrap().len();
            assert!(MOST_OUTPUTS * length < MAX_ANSWER_BYTES, "{byte}: {length}");
        }
    }
}
