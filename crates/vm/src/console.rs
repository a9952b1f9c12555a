//! The guest's serial console, which QEMU writes to a file: what it says, and how it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::config::{FAILED, READY};

/// The last lines that an error shows.
const LINES: usize = 8;
/// Most bytes that are read of either end of it. A boot says a few hundred.
const BYTES_MOST: u64 = 64 << 10;

/// The console output of a guest.
#[derive(Debug)]
pub(crate) struct SerialConsole(File);

impl SerialConsole {
    /// Makes the file. It is read by this handle: QEMU could put another file in the place of the name.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        File::options().read(true).write(true).create_new(true).open(path).map(Self)
    }

    /// Whether process 1 has said that everything is in place.
    pub(crate) fn is_ready(&self) -> bool {
        self.start().lines().any(|line| line.starts_with(READY))
    }

    /// Why process 1 gave up, if it did.
    pub(crate) fn failure_reason(&self) -> Option<String> {
        let text = self.start();
        let line = text.lines().find_map(|line| line.strip_prefix(FAILED))?;
        Some(strip_control_chars(line))
    }

    /// Its last lines, for an error.
    pub(crate) fn last_lines(&self) -> String {
        let length = self.0.metadata().map_or(0, |metadata| metadata.len());
        let text = self.read(length.saturating_sub(BYTES_MOST));
        let lines = text.lines().map(strip_control_chars).filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.collect();
        match lines.as_slice() {
            [] => "nothing at all".to_owned(),
            lines => lines[lines.len().saturating_sub(LINES)..].join(" | "),
        }
    }

    fn start(&self) -> String {
        self.read(0)
    }

    /// From this byte on. A console that cannot be read has said nothing.
    fn read(&self, from: u64) -> String {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = self.0.read_at(&mut buffer, from + bytes.len() as u64) {
            bytes.extend_from_slice(&buffer[..length]);
            if bytes.len() as u64 >= BYTES_MOST {
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Without the escape sequences of firmware.
fn strip_control_chars(line: &str) -> String {
    line.trim().chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn end_of_a_console_is_its_last_lines() {
        let lines: Vec<String> = (0..20).map(|idx| format!("line {idx}\r")).collect();
        check_last_lines(&lines.join("\n"), "line 12 | line 13 | line 14");
        check_last_lines("\u{1b}cBooting\r\n\r\n", "cBooting");
        check_last_lines("", "nothing at all");
        check_last_lines(&format!("{}\nlast", "a line\n".repeat(1 << 20)), "a line | a line");
    }

    #[test]
    fn console_tells_ready_or_failed() {
        let console = console_with("[    0.1] hello\n");
        assert!(!console.is_ready() && console.failure_reason().is_none());
        let console = console_with("[    0.1] hello\nlatput: error: no \u{1b}eth0\n");
        assert_eq!(console.failure_reason().unwrap(), "no eth0");
        assert!(console_with("[    0.1] hello\nlatput: ready after 3 s\n").is_ready());
    }

    #[test]
    fn replaced_console_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let console = SerialConsole::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert_eq!(console.last_lines(), "nothing at all");
        assert!(SerialConsole::create(&path).is_err());
    }

    fn console_with(text: &str) -> SerialConsole {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let console = SerialConsole::create(&path).unwrap();
        fs::write(&path, text).unwrap();
        console
    }

    #[track_caller]
    fn check_last_lines(text: &str, expected: &str) {
        let end = console_with(text).last_lines();
        assert!(end.starts_with(expected), "{end}");
    }
}
