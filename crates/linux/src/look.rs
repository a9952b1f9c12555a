//! A look at a host: the texts of the kernel's files and of tools' outputs on which a diagnosis rests.
//!
//! Names are those of a support ticket's folder: `proc/stat` for a file, `ethtool_-S_eth0` for a command. A file or a
//! program that is missing is left out, and so is what this user may not read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::lab::napi_threads;

/// The texts of a look, by name.
pub type LookTexts = BTreeMap<String, String>;

/// The most bytes of one text.
const LARGEST_TEXT: u64 = 16 << 20;
/// How long a program may take. `ethtool` waits for drivers that answer late.
const LONGEST_RUN: Duration = Duration::from_secs(5);
/// Control groups are looked at to this depth below the root of their tree,
const DEEPEST_GROUP: usize = 5;
/// and no more than these.
const MOST_GROUPS: usize = 2000;
/// Files with the quota of a control group, of versions 2 and 1, and how they begin where there is none.
const QUOTAS: [(&str, &str); 2] = [("cpu.max", "max"), ("cpu.cfs_quota_us", "-")];

/// Files of the whole host.
const HOST_FILES: [&str; 12] = [
    "proc/stat",
    "proc/uptime",
    "proc/interrupts",
    "proc/softirqs",
    "proc/net/softnet_stat",
    "proc/net/snmp",
    "proc/net/snmp6",
    "proc/net/netstat",
    "proc/net/sockstat",
    "proc/net/stat/nf_conntrack",
    "proc/pressure/cpu",
    "proc/sys/kernel/osrelease",
];

/// Folders of settings of the host, with the beginnings of the names that count there: findings name them, and a second
/// tuner moves them.
const SYSCTLS: [(&str, &[&str]); 5] = [
    ("net/core", &[""]),
    ("net/ipv4", &["tcp_", "udp_", "ip_forward"]),
    ("net/ipv6/conf/all", &["forwarding"]),
    ("net/netfilter", &["nf_conntrack_count", "nf_conntrack_max"]),
    ("kernel", &["numa_balancing"]),
];

/// Beginnings of the names of processes whose work is packets, or which move settings.
const WORKERS: [&str; 5] = ["napi/", "ksoftirqd/", "irqbalance", "bpftune", "tuned"];

/// Files of a CPU's frequency.
const FREQUENCIES: [&str; 5] = [
    "scaling_governor",
    "scaling_cur_freq",
    "scaling_max_freq",
    "cpuinfo_max_freq",
    "base_frequency",
];
/// The free vectors of each CPU, where debugfs is mounted.
const VECTORS: &str = "sys/kernel/debug/irq/domains/VECTOR";

/// Options of ethtool that print counters and settings. The first look needs the counters only.
const COUNTERS: &str = "-S";
const SETTINGS: [&str; 6] = ["-c", "-g", "-l", "-k", "-x", "-a"];

/// Looks at this host and one of its interfaces.
pub fn read_look(interface: &str) -> LookTexts {
    let mut look = HostLook::new();
    look.read_counters(interface);
    look.read_settings(interface);
    look.texts
}

/// Looks at the counters in files of the kernel only. No program is started, so that it costs little.
pub fn read_counter_files(interface: &str) -> LookTexts {
    let mut look = HostLook::new();
    look.read_counter_files(interface);
    look.texts
}

struct HostLook {
    root: PathBuf,
    texts: LookTexts,
}

impl HostLook {
    fn new() -> Self {
        Self { root: PathBuf::from("/"), texts: LookTexts::new() }
    }

    fn read_counter_files(&mut self, interface: &str) {
        for file in HOST_FILES {
            self.read_file(file);
        }
        self.read_folder(&format!("sys/class/net/{interface}/statistics"));
    }

    /// Reads what counts, in little time: the two looks shall differ by the window and nothing else.
    fn read_counters(&mut self, interface: &str) {
        self.read_counter_files(interface);
        self.run(&["ethtool", COUNTERS, interface], &format!("ethtool_{COUNTERS}_{interface}"));
        self.run(&["tc", "-s", "-j", "qdisc"], "tc_-s_-j_qdisc");
        self.run(&["ss", "-tin"], "ss_-tin");
        self.run(&["ss", "-tln"], "ss_-tln");
        self.read_idle_states();
        self.read_groups();
        self.read_workers(interface);
    }

    /// Names and times of the processes that work on packets. An interface of another network namespace may have the same
    /// name, and its threads, too: where the kernel tells the interface's own threads, only those are read.
    fn read_workers(&mut self, interface: &str) {
        let own = napi_threads(interface).ok();
        let is_foreign = |pid: &str, name: &str| {
            let is_own = |own: &Vec<u32>| pid.parse().is_ok_and(|pid| own.contains(&pid));
            name.starts_with("napi/") && own.as_ref().is_some_and(|own| !is_own(own))
        };
        let is_number = |name: &&String| name.bytes().all(|byte| byte.is_ascii_digit());
        for pid in self.list("proc").iter().filter(is_number) {
            let name = fs::read_to_string(self.root.join("proc").join(pid).join("comm"));
            let is_worker = |name: &String| WORKERS.iter().any(|start| name.starts_with(start));
            if name.is_ok_and(|name| is_worker(&name) && !is_foreign(pid, &name)) {
                self.read_file(&format!("proc/{pid}/comm"));
                self.read_file(&format!("proc/{pid}/schedstat"));
            }
        }
    }

    fn read_settings(&mut self, interface: &str) {
        for (folder, starts) in SYSCTLS {
            let folder = format!("proc/sys/{folder}");
            let names = self.list(&folder);
            // Keys of hashes and of TCP Fast Open are secrets.
            let wanted = |name: &&String| {
                starts.iter().any(|start| name.starts_with(start)) && !name.ends_with("_key")
            };
            for name in names.iter().filter(wanted) {
                self.read_file(&format!("{folder}/{name}"));
            }
        }
        for option in SETTINGS {
            self.run(&["ethtool", option, interface], &format!("ethtool_{option}_{interface}"));
        }
        self.run(&["ethtool", interface], &format!("ethtool_{interface}"));
        let own = format!("sys/class/net/{interface}");
        for folder in ["", "/bonding", "/brport", "/device"] {
            self.read_folder(&format!("{own}{folder}"));
        }
        for queue in self.list(&format!("{own}/queues")) {
            self.read_folder(&format!("{own}/queues/{queue}"));
            self.read_folder(&format!("{own}/queues/{queue}/byte_queue_limits"));
        }
        for node in self.list("sys/devices/system/node") {
            self.read_file(&format!("sys/devices/system/node/{node}/cpulist"));
        }
        self.read_vectors(&own);
        self.read_file(VECTORS);
    }

    /// The numbers of the device's vectors, and the CPUs that may handle them.
    fn read_vectors(&mut self, own: &str) {
        let folder = [format!("{own}/device/msi_irqs"), format!("{own}/device/../msi_irqs")]
            .into_iter()
            .find(|folder| self.root.join(folder).is_dir());
        let listed = folder.map(|folder| self.list(&folder)).unwrap_or_default();
        for number in listed {
            self.texts.insert(format!("{own}/device/msi_irqs/{number}"), String::new());
            for file in ["smp_affinity_list", "effective_affinity_list"] {
                self.read_file(&format!("proc/irq/{number}/{file}"));
            }
        }
    }

    fn read_idle_states(&mut self) {
        let cpus = self.list("sys/devices/system/cpu");
        let is_cpu = |name: &&String| {
            name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok())
        };
        for cpu in cpus.iter().filter(is_cpu) {
            let folder = format!("sys/devices/system/cpu/{cpu}");
            for file in FREQUENCIES {
                self.read_file(&format!("{folder}/cpufreq/{file}"));
            }
            for state in self.list(&format!("{folder}/cpuidle")) {
                for file in ["name", "usage", "time", "latency", "disable"] {
                    self.read_file(&format!("{folder}/cpuidle/{state}/{file}"));
                }
            }
        }
    }

    /// `cpu.stat` of the control groups that have a quota.
    fn read_groups(&mut self) {
        let mut folders = vec![("sys/fs/cgroup".to_owned(), 0)];
        let mut seen = 0;
        while let Some((folder, depth)) = folders.pop() {
            seen += 1;
            if seen > MOST_GROUPS {
                return;
            }
            for (file, unlimited) in QUOTAS {
                let quota = fs::read_to_string(self.root.join(&folder).join(file));
                if quota.is_ok_and(|quota| !quota.starts_with(unlimited)) {
                    self.read_file(&format!("{folder}/cpu.stat"));
                    self.read_file(&format!("{folder}/{file}"));
                }
            }
            if depth < DEEPEST_GROUP {
                let below = self.list_folders(&folder);
                folders
                    .extend(below.into_iter().map(|name| (format!("{folder}/{name}"), depth + 1)));
            }
        }
    }

    /// Adds a file's text; one that is no text, or that cannot be read, is left out.
    fn read_file(&mut self, name: &str) {
        let Ok(file) = fs::File::open(self.root.join(name)) else { return };
        let mut text = String::new();
        if file.take(LARGEST_TEXT).read_to_string(&mut text).is_ok() {
            self.texts.insert(name.to_owned(), text);
        }
    }

    /// Adds the files of a folder, not those of the folders below.
    fn read_folder(&mut self, folder: &str) {
        for name in self.list(folder) {
            let name = format!("{folder}/{name}").replace("//", "/");
            if self.root.join(&name).is_file() {
                self.read_file(&name);
            }
        }
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(folder)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn list_folders(&self, folder: &str) -> Vec<String> {
        let is_folder = |name: &String| {
            let path: &Path = &self.root.join(folder).join(name);
            path.symlink_metadata().is_ok_and(|it| it.is_dir())
        };
        self.list(folder).into_iter().filter(is_folder).collect()
    }

    /// Adds the output of a program; of one that is missing, fails or does not end nothing.
    fn run(&mut self, words: &[&str], name: &str) {
        if let Some(text) = run_program(words) {
            self.texts.insert(name.to_owned(), text);
        }
    }
}

/// The output of a program that ends well within [`LONGEST_RUN`].
fn run_program(words: &[&str]) -> Option<String> {
    let (program, args) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let output = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.take(LARGEST_TEXT).read_to_string(&mut text);
        // Nobody listens to a program that was late.
        let _late = sender.send(read.map(|_| text).ok());
    });
    let text = receiver.recv_timeout(LONGEST_RUN).ok().flatten();
    if text.is_none() {
        let _ended_already = child.kill();
    }
    let status = child.wait().ok()?;
    text.filter(|_| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_has_the_hosts_counters() {
        let look = read_look("lo");
        for name in ["proc/stat", "proc/net/snmp", "sys/class/net/lo/statistics/rx_packets"] {
            assert!(look.contains_key(name), "{name}");
        }
        let is_secret = |name: &&String| name.ends_with("_key");
        assert_eq!(look.keys().find(is_secret), None);
    }

    #[test]
    fn quotas_of_both_versions_are_read() {
        let root = tempfile::tempdir().unwrap();
        let groups = root.path().join("sys/fs/cgroup");
        for (group, file, quota) in [
            ("two/held", "cpu.max", "15000 100000\n"),
            ("two/free", "cpu.max", "max 100000\n"),
            ("cpu/held", "cpu.cfs_quota_us", "15000\n"),
            ("cpu/free", "cpu.cfs_quota_us", "-1\n"),
        ] {
            fs::create_dir_all(groups.join(group)).unwrap();
            fs::write(groups.join(group).join(file), quota).unwrap();
            fs::write(groups.join(group).join("cpu.stat"), "nr_periods 5\n").unwrap();
        }
        let mut look = HostLook { root: root.path().to_owned(), texts: LookTexts::new() };
        look.read_groups();
        let read: Vec<&String> =
            look.texts.keys().filter(|name| name.ends_with("cpu.stat")).collect();
        assert_eq!(read, ["sys/fs/cgroup/cpu/held/cpu.stat", "sys/fs/cgroup/two/held/cpu.stat"]);
    }

    #[test]
    fn missing_or_failing_program_is_left_out() {
        assert_eq!(run_program(&["latput-no-such-program"]), None);
        assert_eq!(run_program(&["false"]), None);
        assert_eq!(run_program(&["echo", "here"]).as_deref(), Some("here\n"));
    }
}
