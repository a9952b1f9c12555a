//! The processes of a run: stopped for moments, or held to a quota of CPU time.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Pid;

use crate::processes::{read_process_parents, to_pid, words_of};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// The period of a quota, as the kernel has it by default.
const PERIOD_US: u32 = 100_000;

/// The process and all that it started, as far as their parents live.
fn find_descendants(of: u32) -> Vec<u32> {
    let parents = read_process_parents();
    let mut found = vec![of];
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        looked_at += 1;
    }
    found
}

/// The agents among the processes of a run.
pub(super) fn find_agents(run: u32) -> Vec<Pid> {
    let is_agent = |pid: &u32| words_of(*pid).iter().any(|word| word == "agent");
    find_descendants(run).into_iter().filter(is_agent).filter_map(to_pid).collect()
}

/// A cgroup with a limit on CPU time; its processes go back when the value is dropped.
#[derive(Debug)]
pub(super) struct CpuQuota {
    folder: PathBuf,
    back: PathBuf,
}

impl CpuQuota {
    pub(super) fn is_possible() -> bool {
        Self::find_cgroup().is_some()
    }

    /// The parent of the new cgroup, and whether it is of version 2.
    fn find_cgroup() -> Option<(PathBuf, bool)> {
        let (two, one) = (PathBuf::from(CGROUP_ROOT), Path::new(CGROUP_ROOT).join("cpu"));
        let controllers = fs::read_to_string(two.join("cgroup.subtree_control"));
        if controllers.is_ok_and(|list| list.split_whitespace().any(|name| name == "cpu")) {
            return Some((two, true));
        }
        one.join("cpu.cfs_quota_us").is_file().then_some((one, false))
    }

    /// Holds all processes of a run to `percent` of one CPU.
    pub(super) fn new(run: u32, percent: u32) -> Result<Self> {
        let (parent, is_two) =
            Self::find_cgroup().context("there is no cgroup with a CPU controller")?;
        let folder = parent.join(format!("latput-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let quota = Self { folder, back: parent };
        let quota_us = PERIOD_US / 100 * percent;
        if is_two {
            quota.write("cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
        } else {
            quota.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            quota.write("cpu.cfs_quota_us", &quota_us.to_string())?;
        }
        for pid in find_descendants(run) {
            let _gone_already = quota.write("cgroup.procs", &pid.to_string());
        }
        Ok(quota)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let inside = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _gone_already = fs::write(self.back.join("cgroup.procs"), pid);
        }
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("error: {} is left: {error}; remove it by hand", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn descendants_are_found_through_their_parents() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60; wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while find_descendants(shell.id()).len() < 3 && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = find_descendants(shell.id());
        for pid in &found[1..] {
            crate::processes::kill_process(*pid);
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(!found.contains(&std::process::id()));
    }
}
