//! How often CPUs go idle, from the kernel's idle states (`cpuidle`).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use latput_units::CpuSet;

/// The most files that are kept open. A host with more CPUs and states counts no idle entries.
const MOST_FILES: usize = 128;

/// The counters of the idle states of some CPUs, open.
#[derive(Debug)]
pub(super) struct IdleCounters(Vec<StateFile>);

/// The count of one state of one CPU.
#[derive(Debug)]
struct StateFile {
    file: File,
    /// In the state `POLL` the CPU looks for work, and in all others it sleeps.
    is_polling: bool,
}

/// Entries into idle states since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IdleEntries {
    /// Into the state in which a CPU polls.
    pub(super) polls: u64,
    /// Into those in which it sleeps.
    pub(super) sleeps: u64,
}

impl IdleCounters {
    /// Opens the counters; `None` where the kernel has no idle states, or too many.
    pub(super) fn open(cpus: &CpuSet) -> Option<Self> {
        Self::open_in(Path::new("/sys/devices/system/cpu"), cpus)
    }

    fn open_in(root: &Path, cpus: &CpuSet) -> Option<Self> {
        let mut files = Vec::new();
        for cpu in cpus.iter() {
            for state in 0_usize.. {
                let folder = root.join(format!("cpu{cpu}/cpuidle/state{state}"));
                let Ok(name) = fs::read_to_string(folder.join("name")) else { break };
                let file = File::open(folder.join("usage")).ok()?;
                files.push(StateFile { file, is_polling: name.trim() == "POLL" });
                if files.len() > MOST_FILES {
                    return None;
                }
            }
        }
        (!files.is_empty()).then_some(Self(files))
    }

    /// The entries of all CPUs; `None` where one cannot be read.
    pub(super) fn read(&self) -> Option<IdleEntries> {
        let mut entries = IdleEntries::default();
        for state in &self.0 {
            let mut buffer = [0; 24];
            let length = state.file.read_at(&mut buffer, 0).ok()?;
            let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
            let count: u64 = text.trim().parse().ok()?;
            let sum = if state.is_polling { &mut entries.polls } else { &mut entries.sleeps };
            *sum = sum.saturating_add(count);
        }
        Some(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_summed_by_kind_of_state() {
        let root = tempfile::tempdir().unwrap();
        let write = |cpu: u32, state: u32, name: &str, usage: &str| {
            let folder = root.path().join(format!("cpu{cpu}/cpuidle/state{state}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("name"), name).unwrap();
            fs::write(folder.join("usage"), usage).unwrap();
        };
        for cpu in 0..3 {
            write(cpu, 0, "POLL\n", "100\n");
            write(cpu, 1, "C1\n", "20\n");
            write(cpu, 2, "C6\n", "3\n");
        }
        let open = |cpus: &str| IdleCounters::open_in(root.path(), &cpus.parse().unwrap());
        let counters = open("0-1").unwrap();
        assert_eq!(counters.read(), Some(IdleEntries { polls: 200, sleeps: 46 }));
        write(1, 2, "C6\n", "?\n");
        assert_eq!(counters.read(), None);
        assert!(open("7").is_none(), "no such CPU");
    }
}
