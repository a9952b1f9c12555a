//! The guest's serial console, which QEMU writes to a file: what it says, and how it ends.

use std::fs;
use std::path::Path;

use crate::config::{FAILED, READY};

/// The last lines that an error shows.
const LINES: usize = 8;

/// Whether process 1 has said that everything is in place.
pub(crate) fn is_ready(path: &Path) -> bool {
    read(path).lines().any(|line| line.starts_with(READY))
}

/// Why process 1 gave up, if it did.
pub(crate) fn failure(path: &Path) -> Option<String> {
    let text = read(path);
    let line = text.lines().find_map(|line| line.strip_prefix(FAILED))?;
    Some(line.trim().to_owned())
}

/// Its last lines, for an error.
pub(crate) fn end(path: &Path) -> String {
    let text = read(path);
    let lines = text.lines().map(printable).filter(|line| !line.is_empty());
    let lines: Vec<String> = lines.collect();
    match lines.as_slice() {
        [] => "nothing at all".to_owned(),
        lines => lines[lines.len().saturating_sub(LINES)..].join(" | "),
    }
}

/// Without the escape sequences of firmware.
fn printable(line: &str) -> String {
    line.trim().chars().filter(|c| !c.is_control()).take(200).collect()
}

/// An absent console has said nothing.
fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_console_is_its_last_lines() {
        let lines: Vec<String> = (0..20).map(|idx| format!("line {idx}\r")).collect();
        check(&lines.join("\n"), "line 12 | line 13 | line 14");
        check("\u{1b}cBooting\r\n\r\n", "cBooting");
        check("", "nothing at all");
    }

    #[test]
    fn a_console_tells_whether_the_guest_is_ready_or_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        assert!(!is_ready(&path) && failure(&path).is_none());
        fs::write(&path, "[    0.1] hello\nlatput: error: no eth0\n").unwrap();
        assert_eq!(failure(&path).unwrap(), "no eth0");
        fs::write(&path, "[    0.1] hello\nlatput: ready after 3 s\n").unwrap();
        assert!(is_ready(&path));
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        fs::write(&path, text).unwrap();
        let end = end(&path);
        assert!(end.starts_with(expected), "{end}");
    }
}
