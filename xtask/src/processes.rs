//! Processes of the machine: what they run, who started them, and whose they are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal};

/// The command of a process; empty once it has ended.
pub fn words_of(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The processes with this state folder of latput, or one in it, in their environment.
pub fn processes_of(state: &Path) -> Vec<u32> {
    list_pids().filter(|pid| has_state(*pid, state)).collect()
}

/// Whether a process has this state folder, or one in it, in its environment; one that has ended has none.
pub fn has_state(pid: u32, state: &Path) -> bool {
    let is_meant = |word: &[u8]| {
        let folder = word.strip_prefix(b"LATPUT_STATE_DIR=");
        folder.is_some_and(|folder| Path::new(OsStr::from_bytes(folder)).starts_with(state))
    };
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(is_meant)
}

/// `kill -9`; it may have ended by itself meanwhile.
pub fn kill_process(pid: u32) {
    let _gone = to_pid(pid).map(|pid| rustix::process::kill_process(pid, Signal::KILL));
}

/// A process id, as system calls take it.
pub fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Every process that has not ended, and its parent (`proc_pid_stat(5)`).
pub fn read_process_parents() -> Vec<(u32, u32)> {
    let pids = list_pids();
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse_parent(&stat)?))
    })
    .collect()
}

fn list_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent in `/proc/PID/stat`, behind a name that may have spaces and brackets; none of one that has ended.
fn parse_parent(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    (fields.next()? != "Z").then_some(())?;
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_read_behind_any_name() {
        assert_eq!(parse_parent("7 (a) b) S 4 7 7"), Some(4));
        assert_eq!(parse_parent("7 (a) Z 4 7 7"), None);
        assert_eq!(parse_parent(""), None);
    }
}
