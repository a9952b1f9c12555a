//! Needs of a test on the machine: root's rights and programs of others.

#[path = "../../needs/src/missing.rs"]
mod missing;

use std::io::{self, Write};
use std::thread;

/// Whether one of these is missing, as the attribute [`needs`](crate::needs) names them. It says so on standard error, past the test
/// harness, so that a skipped test is never taken for a passed one.
pub fn lacks_any(needs: &[&str]) -> bool {
    let missing: Vec<&str> =
        needs.iter().copied().filter(|need| missing::is_missing(need)).collect();
    if !missing.is_empty() {
        let name = thread::current().name().unwrap_or("test").to_owned();
        // A closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "{name}: skipped: needs {}", missing.join(", "));
    }
    !missing.is_empty()
}

/// Whether a part of the calling test must be left out because a program is not installed; says so.
pub fn needs_program(name: &str) -> bool {
    lacks_any(&[name])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn root_is_the_owner_of_the_process() {
        let owner = fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(missing::is_missing("root"), owner != 0);
    }

    #[test]
    fn program_is_found_by_name_or_path() {
        let names = ["sh", "/bin/sh", "no-such-program", "/bin/no-such-program", "/bin"];
        assert_eq!(names.map(missing::is_missing), [false, false, true, true, true]);
    }
}
