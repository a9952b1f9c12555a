//! Causes that held a host's CPUs or its traffic back: quotas of control groups, and the heat of a CPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use latput_units::CpuSet;
use latput_units::text::format_count;

/// The folder of CPUs in sysfs.
const CPUS: &str = "/sys/devices/system/cpu";
/// Where control groups are, as systemd and containers have them.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Counts of being held back at an instant, each by what it says in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Throttles(BTreeMap<String, u64>);

impl Throttles {
    /// Reads the counts of this process's control groups and of `cpus`. What a kernel lacks is left out.
    pub fn read(cpus: &CpuSet) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut counts = BTreeMap::new();
        for folder in groups(Path::new(CGROUPS), &own) {
            if let Some(count) = throttled(&folder) {
                let words = format!("the CPU quota of {} throttled it", folder.display());
                counts.insert(words, count);
            }
        }
        for cpu in cpus.iter() {
            for (kind, whose) in [("core", "its"), ("package", "the package's")] {
                let path = format!("{CPUS}/cpu{cpu}/thermal_throttle/{kind}_throttle_count");
                if let Some(count) = number(Path::new(&path)) {
                    counts.insert(format!("CPU {cpu} was slowed by {whose} heat"), count);
                }
            }
        }
        Self(counts)
    }

    /// Causes between this instant and a later one, in sentences.
    pub fn until(&self, later: &Self) -> Vec<String> {
        let grown = |(words, now): (&String, &u64)| {
            let times = now.saturating_sub(*self.0.get(words)?);
            (times > 0).then(|| format!("{words} {}", format_count(times, "time")))
        };
        later.0.iter().filter_map(grown).collect()
    }
}

/// The folders of a process's control groups and of all above them: of version 2, and of version 1's `cpu`.
fn groups(root: &Path, own: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let root = match kinds {
            "" => root.to_owned(),
            kinds if kinds.split(',').any(|kind| kind == "cpu") => root.join("cpu"),
            _ => continue,
        };
        let mut folder = root.join(path.trim_start_matches('/'));
        loop {
            folders.push(folder.clone());
            if folder == root || !folder.pop() {
                break;
            }
        }
    }
    folders
}

/// How often a group's quota was used up.
fn throttled(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.trim().parse().ok()
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_groups_may_throttle_too() {
        let folders = |own: &str| groups(Path::new("/g"), own);
        let expected = ["/g/a/b", "/g/a", "/g"].map(PathBuf::from);
        assert_eq!(folders("0::/a/b\n"), expected);
        let expected = ["/g/cpu/a", "/g/cpu"].map(PathBuf::from);
        assert_eq!(folders("4:memory:/x\n3:cpu,cpuacct:/a\n2:cpuset:/y\n"), expected);
        assert_eq!(folders("what it never says"), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_what_grew_is_told() {
        let root = tempfile::tempdir().unwrap();
        let write = |count| {
            let text = format!("usage_usec 5\nnr_throttled {count}\nthrottled_usec 9\n");
            fs::write(root.path().join("cpu.stat"), text).unwrap();
        };
        write(3);
        let read =
            || Throttles(BTreeMap::from([("quota".to_owned(), throttled(root.path()).unwrap())]));
        let before = read();
        assert_eq!(before.until(&read()), Vec::<String>::new());
        write(5);
        assert_eq!(before.until(&read()), ["quota 2 times"]);
        assert_eq!(Throttles::default().until(&read()), Vec::<String>::new(), "it is new");
    }
}
