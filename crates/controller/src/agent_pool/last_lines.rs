//! The bounded output of a process of a `via` command.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::thread;

use latput_protocol::text::replace_control_chars;

/// The last lines of a process's output, each cut to a length.
#[derive(Debug)]
pub(super) struct LastLines {
    lines: VecDeque<Vec<u8>>,
    is_open: bool,
    /// Nothing more can come.
    is_whole: bool,
    most_lines: usize,
    most_bytes: usize,
}

impl LastLines {
    /// Keeps the last lines of `from`, in a thread that ends with it.
    pub(super) fn collect_from(
        mut from: impl Read + Send + 'static,
        most_lines: usize,
        most_bytes: usize,
    ) -> Arc<Mutex<Self>> {
        let lines = Self {
            lines: VecDeque::new(),
            is_open: false,
            is_whole: false,
            most_lines,
            most_bytes,
        };
        let lines = Arc::new(Mutex::new(lines));
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => match kept.lock() {
                        Ok(mut kept) => kept.push(&buffer[..length]),
                        Err(_) => break,
                    },
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if let Ok(mut kept) = kept.lock() {
                kept.is_whole = true;
            }
        });
        lines
    }

    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if !self.is_open {
                self.lines.push_back(Vec::new());
                if self.lines.len() > self.most_lines {
                    self.lines.pop_front();
                }
            }
            self.is_open = !piece.ends_with(b"\n");
            let line = self.lines.back_mut().expect("a line has just begun, or was begun before");
            let room = self.most_bytes.saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    /// The output so far.
    pub(super) fn read_text(lines: &Mutex<Self>) -> String {
        lines.lock().map(|lines| lines.join_lines()).unwrap_or_default()
    }

    /// Whether nothing more can come.
    pub(super) fn is_whole(lines: &Mutex<Self>) -> bool {
        lines.lock().is_ok_and(|lines| lines.is_whole)
    }

    /// The last error of a latput, without the host that it names, and the lines beside it.
    pub(super) fn find_error(lines: &Mutex<Self>) -> Option<(String, String)> {
        let mut lines = lines.lock().ok()?.printable_lines();
        let last = lines.pop()?;
        let error = last.strip_prefix("latput: error: ")?;
        let error = match error.strip_prefix("host `").and_then(|rest| rest.split_once("`: ")) {
            Some((_, error)) => error,
            None => error,
        };
        Some((error.to_owned(), lines.join(" | ")))
    }

    /// All lines in one, without control characters.
    fn join_lines(&self) -> String {
        self.printable_lines().join(" | ")
    }

    fn printable_lines(&self) -> Vec<String> {
        let lines = self
            .lines
            .iter()
            .map(|line| replace_control_chars(String::from_utf8_lossy(line).trim()));
        lines.filter(|line| !line.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_output_is_kept_in_bounds() {
        let mut lines = LastLines {
            lines: VecDeque::new(),
            is_open: false,
            is_whole: false,
            most_lines: 3,
            most_bytes: 10,
        };
        for _ in 0..10_000 {
            lines.push(&[b'x'; 1000]);
        }
        assert!(lines.lines.iter().map(Vec::capacity).sum::<usize>() < 1000);
        assert_eq!(lines.join_lines(), "xxxxxxxxxx");
        lines.push(b"\none\n\ntwo\x1b[2J\r\nthr");
        lines.push(b"ee");
        assert_eq!(lines.join_lines(), "two\u{fffd}[2J | three");
        for _ in 0..10_000 {
            lines.push(b"\n");
        }
        assert_eq!((lines.lines.len(), lines.join_lines()), (3, String::new()));
    }
}
