//! Facts about a host that a reader needs when its results are read a year later.

use std::fs;
use std::io::ErrorKind::NotFound;
use std::path::Path;

use latput_units::{BitsPerSecond, Bytes};

use crate::ethtool::Ethtool;
use crate::ethtool::ioctl::{DriverInfo, EthtoolIoctl};
use crate::identity::Identity;
use crate::kernel::LinuxKernel;
use crate::netdev::Netdev;
use crate::route::{Link, Route};

/// Longer values are cut: facts go into every report.
const MAX_VALUE_CHARS: usize = 600;

/// Files of one line each, by the name of the fact. Sysctls have their own names.
const FILES: &[(&str, &str)] = &[
    ("kernel", "/proc/sys/kernel/osrelease"),
    ("kernel build", "/proc/sys/kernel/version"),
    ("online cpus", "/sys/devices/system/cpu/online"),
    ("isolated cpus", "/sys/devices/system/cpu/isolated"),
    ("smt", "/sys/devices/system/cpu/smt/active"),
    ("cpu frequency governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("cpu frequency driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
    ("cpu idle driver", "/sys/devices/system/cpu/cpuidle/current_driver"),
    ("cpu idle governor", "/sys/devices/system/cpu/cpuidle/current_governor"),
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("net.core.busy_poll", "/proc/sys/net/core/busy_poll"),
    ("net.core.busy_read", "/proc/sys/net/core/busy_read"),
    ("net.core.default_qdisc", "/proc/sys/net/core/default_qdisc"),
    ("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget"),
    ("net.core.netdev_budget_usecs", "/proc/sys/net/core/netdev_budget_usecs"),
    ("net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog"),
    ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
    ("net.ipv4.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("net.ipv4.tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("net.ipv4.tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
    ("net.ipv4.tcp_sack", "/proc/sys/net/ipv4/tcp_sack"),
    ("net.ipv4.tcp_timestamps", "/proc/sys/net/ipv4/tcp_timestamps"),
];

/// The value of a fact that nobody tells.
pub const UNKNOWN: &str = "unknown";

/// The fact that has the [kind](Identity::kind) of the interface.
pub const INTERFACE_KIND: &str = "interface kind";

/// Parameters of the kernel's command line that bear on latency and CPU time. The rest is left out: people put keys and
/// addresses there, and results are passed on.
const PARAMETERS: &[&str] = &[
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "cpufreq.default_governor",
    "default_hugepagesz",
    "elevator",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "iommu.passthrough",
    "iommu.strict",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "maxcpus",
    "mitigations",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nosmt",
    "nosoftlockup",
    "nr_cpus",
    "pcie_aspm",
    "pcie_aspm.policy",
    "preempt",
    "processor.max_cstate",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "skew_tick",
    "smt",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
    "workqueue.power_efficient",
];

/// Facts of the host and of `interface` in the calling thread's namespace, by name, in the order of
/// reports. What cannot be read says so in its value; nothing is left out silently.
pub fn collect(interface: &str) -> Vec<(String, String)> {
    let mut facts: Vec<(String, String)> =
        FILES.iter().map(|(name, path)| ((*name).to_owned(), line_of(Path::new(path)))).collect();
    let cmdline = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    facts.push(("kernel parameters".to_owned(), parameters(&cmdline)));
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    facts.push(("cpu model".to_owned(), or_unknown(cpu_model(&cpuinfo))));
    facts.push(("memory".to_owned(), or_unknown(field(&meminfo, "MemTotal"))));
    facts.push(("hypervisor".to_owned(), hypervisor(&cpuinfo)));
    facts.push((
        "cpu idle states".to_owned(),
        idle_states(Path::new("/sys/devices/system/cpu/cpu0/cpuidle")),
    ));
    facts.push(("irqbalance".to_owned(), irqbalance()));
    facts.extend(interface_facts(interface));
    for (_, value) in &mut facts {
        shorten(value);
    }
    facts
}

/// The release of the running kernel, as `uname -r` has it.
pub fn kernel_release() -> String {
    line_of(Path::new("/proc/sys/kernel/osrelease"))
}

/// Memory that new work can have without swapping (`MemAvailable`); `None` where the kernel does not say.
pub fn available_memory() -> Option<Bytes> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    kib(&field(&meminfo, "MemAvailable")?)
}

/// `123 kB`, as `/proc/meminfo` has it.
fn kib(text: &str) -> Option<Bytes> {
    let count: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    count.checked_mul(1_024).map(Bytes::new)
}

/// The speed of an interface's link; `None` where it has none, or the driver does not tell
/// (`/sys/class/net/IFACE/speed`, Mbit/s, -1 for unknown).
pub fn link_speed(interface: &str) -> Option<BitsPerSecond> {
    let path = Path::new("/sys/class/net").join(interface).join("speed");
    let mbps: u64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    mbps.checked_mul(1_000_000).map(BitsPerSecond::new)
}

/// The name of an interface's driver; of a virtual one its kind.
pub fn driver(link: &Link) -> String {
    let driver = Path::new("/sys/class/net").join(&link.name).join("device/driver");
    match (&link.kind, fs::read_link(&driver)) {
        (Some(kind), _) => kind.clone(),
        (None, Ok(target)) => {
            target.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
        (None, Err(error)) => unreadable(&error),
    }
}

fn interface_facts(interface: &str) -> Vec<(String, String)> {
    let mut facts = vec![("interface".to_owned(), interface.to_owned())];
    let mut add = |name: &str, value: String| facts.push((name.to_owned(), value));
    let route = Route::open();
    let link = match route.and_then(|route| route.link(interface)) {
        Ok(link) => link,
        Err(error) => {
            add("link", format!("unreadable: {error}"));
            return facts;
        }
    };
    add("driver", driver(&link));
    let kind = Identity::read(interface).and_then(|it| it.kind);
    add(INTERFACE_KIND, or_unknown(kind));
    let speed = link_speed(interface).map(|speed| speed.to_string());
    add("speed", or_unknown(speed));
    match EthtoolIoctl::open().and_then(|ioctl| ioctl.driver(interface)) {
        Ok(DriverInfo { version, firmware, bus, .. }) => {
            add("driver version", or_none(version));
            add("firmware", or_none(firmware));
            add("bus address", or_none(bus));
        }
        Err(error) => add("firmware", format!("unreadable: {error}")),
    }
    let device = Path::new("/sys/class/net").join(interface).join("device");
    add("numa node", line_of(&device.join("numa_node")));
    add("mtu", link.mtu.get().to_string());
    add("rx queues", link.rx_queues.to_string());
    add("tx queues", link.tx_queues.to_string());
    let napis = Netdev::open().and_then(|netdev| netdev.napis(link.index));
    add(
        "napi instances",
        match napis {
            Ok(napis) => napis.len().to_string(),
            Err(error) => format!("unreadable: {error}"),
        },
    );
    let routes = LinuxKernel::open().and_then(|kernel| kernel.interrupt_routes(interface));
    add(
        "interrupts",
        match routes {
            Ok(routes) => routes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Err(error) => error.to_string(),
        },
    );
    add(
        "features on",
        match Ethtool::open().and_then(|ethtool| ethtool.features(interface)) {
            Ok(features) => {
                let active = features.iter().filter(|(_, feature)| feature.is_active);
                active.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
            }
            Err(error) => format!("unreadable: {error}"),
        },
    );
    facts
}

/// The content of a one-line file.
fn line_of(path: &Path) -> String {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => "(empty)".to_owned(),
        Ok(text) => text.trim().replace(['\n', '\t'], " "),
        // Some of these are the machine's, but only the initial namespace shows them.
        Err(error) if error.kind() == NotFound && path.starts_with("/proc/sys/net") => {
            "not visible in this network namespace".to_owned()
        }
        Err(error) => unreadable(&error),
    }
}

fn unreadable(error: &std::io::Error) -> String {
    if error.kind() == NotFound { "not present".to_owned() } else { format!("unreadable: {error}") }
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

fn or_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// CPU names, by the numbers of implementer and part in `/proc/cpuinfo` of aarch64 (`MIDR_EL1`, arch/arm64/include/asm/cputype.h).
const ARM_CPUS: &[(&str, &str, &str)] = &[
    ("0x41", "0xd03", "Cortex-A53"),
    ("0x41", "0xd07", "Cortex-A57"),
    ("0x41", "0xd08", "Cortex-A72"),
    ("0x41", "0xd0b", "Cortex-A76"),
    ("0x41", "0xd0c", "Neoverse N1"),
    ("0x41", "0xd40", "Neoverse V1"),
    ("0x41", "0xd49", "Neoverse N2"),
    ("0x41", "0xd4f", "Neoverse V2"),
    ("0x41", "0xd84", "Neoverse V3"),
    ("0x41", "0xd8e", "Neoverse N3"),
    ("0xc0", "0xac3", "Ampere-1"),
    ("0xc0", "0xac4", "Ampere-1A"),
];

/// The name of the CPU. x86 has it in `/proc/cpuinfo`; aarch64 has numbers there.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    field(cpuinfo, "model name").or_else(|| {
        let number = |name: &str| field(cpuinfo, name);
        let (implementer, part) = (number("CPU implementer")?, number("CPU part")?);
        let known = ARM_CPUS.iter().find(|(by, number, _)| *by == implementer && *number == part);
        let name = known.map_or("ARM", |(.., name)| name);
        let revision = |name: &str| number(name).unwrap_or_else(|| "?".to_owned());
        let (variant, revision) = (revision("CPU variant"), revision("CPU revision"));
        Some(format!("{name} (implementer {implementer}, part {part}, variant {variant}, revision {revision})"))
    })
}

/// Whether the CPU says that it is a guest's (x86 only), and what the firmware calls the machine.
fn hypervisor(cpuinfo: &str) -> String {
    let flags = field(cpuinfo, "flags");
    let is_guest = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let answer = is_guest.map_or(UNKNOWN, |is_guest| if is_guest { "yes" } else { "no" });
    format!("{answer} (product: {})", line_of(Path::new("/sys/class/dmi/id/product_name")))
}

/// The idle states of a CPU with their exit latencies: `POLL 0us, C1 2us (disabled)`.
fn idle_states(folder: &Path) -> String {
    let mut states = Vec::new();
    for idx in 0.. {
        let state = folder.join(format!("state{idx}"));
        if !state.is_dir() {
            break;
        }
        let is_disabled = line_of(&state.join("disable")) == "1";
        states.push(format!(
            "{} {}us{}",
            line_of(&state.join("name")),
            line_of(&state.join("latency")),
            if is_disabled { " (disabled)" } else { "" }
        ));
    }
    if states.is_empty() { "not present".to_owned() } else { states.join(", ") }
}

/// Whether a process called `irqbalance` runs: it moves interrupts while they are measured.
fn irqbalance() -> String {
    let Ok(processes) = fs::read_dir("/proc") else {
        return "unreadable".to_owned();
    };
    let is_running = processes.flatten().any(|process| {
        fs::read_to_string(process.path().join("comm"))
            .is_ok_and(|comm| comm.trim() == "irqbalance")
    });
    if is_running { "running" } else { "not running" }.to_owned()
}

fn shorten(value: &mut String) {
    if let Some((end, _)) = value.char_indices().nth(MAX_VALUE_CHARS) {
        value.truncate(end);
        value.push_str(" ...");
    }
}

fn parameters(cmdline: &str) -> String {
    let name = |word: &str| word.split_once('=').map_or(word, |(name, _)| name).replace('-', "_");
    let words = cmdline.split_whitespace().filter(|word| PARAMETERS.contains(&name(word).as_str()));
    let words = words.collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        "none that matters".to_owned()
    } else {
        words.chars().take(MAX_VALUE_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_keeps_only_what_matters() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1 nohz_full=1-3 token=s3cret isolcpus=1-3 nosmt idle=poll ip=10.0.0.1\n";
        assert_eq!(parameters(line), "nohz_full=1-3 isolcpus=1-3 nosmt idle=poll");
        assert_eq!(parameters("quiet"), "none that matters");
    }

    #[test]
    fn cpu_of_aarch64_is_named_by_its_numbers() {
        let numbers = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n\
            CPU revision\t: 1\n";
        let name = "Neoverse N1 (implementer 0x41, part 0xd0c, variant 0x3, revision 1)";
        assert_eq!(cpu_model(numbers).as_deref(), Some(name));
        let unknown = cpu_model("CPU implementer : 0x48\nCPU part : 0xd01\n").unwrap();
        assert!(unknown.starts_with("ARM (implementer 0x48, part 0xd01"), "{unknown}");
        assert_eq!(cpu_model("model name\t: Xeon\nCPU part : 1\n").as_deref(), Some("Xeon"));
        assert_eq!(cpu_model("cpu : POWER9\n"), None);
    }

    #[test]
    fn absent_interface_has_every_fact() {
        let facts = collect("no-such-iface");
        assert!(facts.len() > FILES.len());
        assert!(
            facts.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()),
            "{facts:?}"
        );
        let link = facts.iter().find(|(name, _)| name == "link").unwrap();
        assert!(link.1.starts_with("unreadable: "), "{link:?}");
    }

    #[test]
    fn absent_and_empty_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("empty"), "\n").unwrap();
        assert_eq!(line_of(&folder.path().join("empty")), "(empty)");
        assert_eq!(line_of(&folder.path().join("missing")), "not present");
        assert!(line_of(folder.path()).starts_with("unreadable: "));
    }

    #[test]
    fn idle_states_come_with_their_latency() {
        let folder = tempfile::tempdir().unwrap();
        for (idx, name, latency, disable) in [(0, "POLL", "0", "0"), (1, "C1", "2", "1")] {
            let state = folder.path().join(format!("state{idx}"));
            fs::create_dir(&state).unwrap();
            fs::write(state.join("name"), name).unwrap();
            fs::write(state.join("latency"), latency).unwrap();
            fs::write(state.join("disable"), disable).unwrap();
        }
        assert_eq!(idle_states(folder.path()), "POLL 0us, C1 2us (disabled)");
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let mut value = "é".repeat(MAX_VALUE_CHARS + 1);
        shorten(&mut value);
        assert!(value.ends_with(" ..."));
    }
}
