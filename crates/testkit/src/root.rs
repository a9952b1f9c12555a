//! Tests that only root can run.

use std::fs;
use std::io::{self, Write};
use std::process::Command;

/// Whether the calling test must end because it needs root and is not run by it; says so on standard
/// error, past the test harness, so that a skipped test is never taken for a passed one.
pub fn needs_root() -> bool {
    let is_root = effective_uid() == Some(0);
    if !is_root {
        let name = std::thread::current().name().unwrap_or("test").to_owned();
        // A closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "{name}: skipped: needs root");
    }
    !is_root
}

/// Whether the calling test must end because a program is not installed; says so as [`needs_root`] does.
pub fn needs_program(name: &str) -> bool {
    let is_there = Command::new(name).arg("--version").output().is_ok();
    if !is_there {
        let _ = writeln!(io::stderr(), "skipped: needs {name}");
    }
    !is_there
}

/// The second number of `Uid:` in `/proc/self/status` (proc(5)).
fn effective_uid() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn effective_user_is_the_owner_of_the_process() {
        let owner = fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(effective_uid(), Some(owner));
        assert_eq!(needs_root(), owner != 0);
    }
}
