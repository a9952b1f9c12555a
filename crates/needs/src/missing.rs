//! Needs of tests. The attribute looks when the test is built; `latput-testkit` looks when it runs, with this same file.

use std::{env, fs};

/// Whether it is missing: `root` stands for root's rights, and all else for a program, by its name in `PATH` or its path.
pub(crate) fn is_missing(need: &str) -> bool {
    if need == "root" {
        return effective_uid() != Some(0);
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    // A path of its own replaces the folder that it is joined to.
    !env::split_paths(&path).any(|folder| folder.join(need).is_file())
}

/// The second number of `Uid:` in `/proc/self/status` (proc(5)).
fn effective_uid() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}
