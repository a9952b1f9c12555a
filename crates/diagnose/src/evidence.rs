//! How two looks differ.

mod traffic;

use std::collections::BTreeMap;

use crate::parse::counters::{
    Counters, MOST_COUNT, parse_driver, parse_interfaces, parse_nstat, parse_number, parse_pairs,
    parse_protocols,
};
use crate::parse::cpus::{CpuTicks, SoftnetRow, parse_softnet, parse_stat};
use crate::parse::interrupts::{InterruptLine, parse_cpu_list, parse_interrupts};
pub use crate::parse::qdiscs::QdiscRow;
use crate::parse::qdiscs::parse_qdiscs;
use crate::parse::settings::{Limits, Settings, parse_limits, parse_settings};
pub use crate::parse::sockets::TcpSocket;
use crate::parse::sockets::parse_sockets;
use crate::snapshot::{Look, Snapshot};
use crate::source::EvidenceSource;
pub use traffic::{LimitedTime, SocketGrowth};
pub(crate) use traffic::{count_connections, percent, share_of};

/// Ticks of `/proc/stat` in a second (`USER_HZ`, 100 on every architecture of today).
const TICKS_PER_S: f64 = 100.0;
/// The shortest time of which shares of CPUs say anything: ten ticks.
const LEAST_WINDOW_S: f64 = 0.1;

/// The longest time between two looks that is believed: a year.
const LONGEST_WINDOW_S: f64 = 366.0 * 86_400.0;

/// Shares of a CPU's time between the looks, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShares {
    /// Programs and the kernel on their behalf.
    pub programs: f64,
    /// Interrupt handlers.
    pub interrupts: f64,
    /// Softirqs, in which packets are received.
    pub softirqs: f64,
    /// Taken by the hypervisor for others.
    pub steal: f64,
    /// Idle, waiting for disks included.
    pub idle: f64,
}

impl CpuShares {
    /// All but idle.
    pub fn busy(&self) -> f64 {
        1.0 - self.idle
    }
}

/// Growth of the backlog's counters of a CPU between the looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftnetGrowth {
    /// Packets taken from interfaces and backlogs.
    pub processed: u64,
    /// Packets for which the backlog had no room.
    pub dropped: u64,
    /// Times that the budget or its time was used up with work left.
    pub squeezed: u64,
    /// Packets that RPS sent here from another CPU.
    pub received_rps: u64,
    /// Packets that the flow limit dropped.
    pub flow_limited: u64,
}

/// Growth of an interrupt's counts between the looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptGrowth {
    /// Its number.
    pub number: u32,
    /// Its handlers' names.
    pub label: String,
    /// Counts by CPU; only those that grew.
    pub counts: BTreeMap<u32, u64>,
    /// The CPUs that may handle it, before and after.
    pub affinity: [Option<Vec<u32>>; 2],
}

impl InterruptGrowth {
    /// Its counts on all CPUs.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Growth of a queue discipline's counters, and its state at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct QdiscGrowth {
    /// As it is at the end.
    pub now: QdiscRow,
    /// Bytes sent between the looks.
    pub bytes: u64,
    /// Bytes that waited at the beginning.
    pub backlog_before: u64,
    /// Packets sent between the looks.
    pub packets: u64,
    /// Packets dropped between the looks.
    pub drops: u64,
    /// Times that its rate or limit stood against a packet.
    pub overlimits: u64,
    /// Packets that the driver gave back.
    pub requeues: u64,
}

/// A snapshot as differences: each part is `None` where either look lacks it, or it cannot be read.
#[derive(Debug)]
pub struct Evidence<'a> {
    snapshot: &'a Snapshot,
    window_s: Option<f64>,
    protocols: Option<Counters>,
    driver: Option<Counters>,
    interface: Option<Counters>,
    cpus: Option<BTreeMap<u32, CpuShares>>,
    softnet: Option<BTreeMap<u32, SoftnetGrowth>>,
    interrupts: Option<Vec<InterruptGrowth>>,
    qdiscs: Option<Vec<QdiscGrowth>>,
    sockets: Option<[Vec<TcpSocket>; 2]>,
    unreadable: Vec<String>,
}

/// Reads counters from a text.
type CounterParser = fn(&str) -> Option<Counters>;

/// Reads a text of both looks. A text that is there and of another form is added to `unreadable`.
struct LookReader<'a> {
    snapshot: &'a Snapshot,
    unreadable: Vec<String>,
}

impl LookReader<'_> {
    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<[T; 2]> {
        let texts = [&self.snapshot.before, &self.snapshot.after].map(|look| look.text(name));
        let [Some(before), Some(after)] = texts else { return None };
        let found = parse(before).zip(parse(after)).map(|(before, after)| [before, after]);
        if found.is_none() && !self.unreadable.iter().any(|known| known == name) {
            self.unreadable.push(name.to_owned());
        }
        found
    }

    /// The first of several texts that both looks have.
    fn read_counters(&mut self, names: &[(&str, CounterParser)]) -> Option<Counters> {
        let mut found: Option<Counters> = None;
        for (name, parse) in names {
            if let Some([before, after]) = self.read(name, parse) {
                found.get_or_insert_default().extend(grown_counters(&before, after));
            }
        }
        found
    }
}

/// Growth of a counter. One that fell was reset, or its device was made anew; one that grew by more than any host counts was
/// edited, or counts backwards: both are `None`.
pub(crate) fn growth_of(then: u64, now: u64) -> Option<u64> {
    now.checked_sub(then).filter(|growth| *growth <= MOST_COUNT)
}

/// Growth of the counters that have one.
fn grown_counters(before: &Counters, after: Counters) -> Counters {
    let grown = |(name, count): (String, u64)| {
        let growth = growth_of(before.get(&name).copied()?, count)?;
        Some((name, growth))
    };
    after.into_iter().filter_map(grown).collect()
}

impl<'a> Evidence<'a> {
    /// Compares the looks of a snapshot.
    pub fn from_snapshot(snapshot: &'a Snapshot) -> Self {
        let mut reader = LookReader { snapshot, unreadable: Vec::new() };
        let interface = snapshot.interface.as_str();
        let window_s = read_window(&mut reader);
        let stat = reader.read("proc/stat", parse_stat);
        let mut protocols = reader.read_counters(&[
            ("proc/net/snmp", parse_protocols),
            ("proc/net/netstat", parse_protocols),
        ]);
        if protocols.is_none() {
            protocols = reader.read_counters(&[("nstat_-az", parse_nstat)]);
        }
        // Lines of a name and a count, as `nstat` has them; UDP over IPv6 is counted there only.
        if let Some(of_ipv6) = reader.read_counters(&[("proc/net/snmp6", parse_nstat)]) {
            protocols.get_or_insert_default().extend(of_ipv6);
        }
        let driver = reader.read_counters(&[(&format!("ethtool_-S_{interface}"), parse_driver)]);
        let softnet = reader.read("proc/net/softnet_stat", parse_softnet);
        let interrupts = reader.read("proc/interrupts", parse_interrupts);
        let qdiscs = reader.read("tc_-s_-j_qdisc", parse_qdiscs);
        let sockets = reader.read("ss_-tin", parse_sockets);
        Self {
            snapshot,
            window_s,
            protocols,
            driver,
            interface: read_interface(snapshot).or_else(|| read_device(&mut reader)),
            cpus: stat.and_then(|[before, after]| compare_ticks(&before, &after)),
            softnet: softnet.map(|[before, after]| compare_softnet(&before, &after)),
            interrupts: interrupts
                .map(|[before, after]| compare_interrupts(snapshot, &before, after)),
            qdiscs: qdiscs.map(|[before, after]| compare_qdiscs(interface, &before, after)),
            sockets,
            unreadable: reader.unreadable,
        }
    }

    /// The interface's name.
    pub fn interface_name(&self) -> &'a str {
        &self.snapshot.interface
    }

    /// Seconds between the looks: of whoever took them, else by `/proc/uptime`, else by the ticks of a CPU.
    pub fn window_s(&self) -> Option<f64> {
        self.window_s
    }

    /// Growth of a counter of the protocols, such as `Udp.SndbufErrors` or `TcpExt.ListenOverflows`.
    pub fn protocol(&self, name: &str) -> Option<u64> {
        self.protocols.as_ref()?.get(name).copied()
    }

    /// Growth of the driver's counters whose names match one of the patterns (`*` stands for any letters), added up;
    /// `None` where no counter matches.
    pub fn driver(&self, patterns: &[&str]) -> Option<u64> {
        let counters = self.driver.as_ref()?;
        let matching = counters
            .iter()
            .filter(|(name, _)| patterns.iter().any(|pattern| matches_pattern(pattern, name)));
        let mut sum = None;
        for (_, count) in matching {
            sum = Some(sum.unwrap_or(0_u64).saturating_add(*count));
        }
        sum
    }

    /// Growth of each of the driver's counters whose name matches the pattern.
    pub fn driver_counters<'b>(
        &'b self,
        pattern: &'b str,
    ) -> impl Iterator<Item = (&'b str, u64)> + 'b {
        let all = self.driver.iter().flatten();
        all.filter(move |(name, _)| matches_pattern(pattern, name))
            .map(|(name, count)| (name.as_str(), *count))
    }

    /// Whether nothing of a source is there.
    pub fn lacks(&self, source: EvidenceSource) -> bool {
        let has_text = |start: &str| self.snapshot.after.texts_below(start).next().is_some();
        match source {
            EvidenceSource::Protocols => self.protocols.is_none(),
            EvidenceSource::Driver => self.driver.is_none(),
            EvidenceSource::Interface => self.interface.is_none(),
            EvidenceSource::Cpus => self.cpus.is_none(),
            EvidenceSource::Softnet => self.softnet.is_none(),
            EvidenceSource::Interrupts => self.interrupts.is_none(),
            EvidenceSource::Settings => {
                ["-c", "-g", "-l", "-k"].iter().all(|option| self.ethtool_text(option).is_none())
            }
            EvidenceSource::Qdiscs => self.qdiscs.is_none(),
            EvidenceSource::Sockets => self.sockets.is_none(),
            EvidenceSource::Conntrack => {
                !has_text("proc/sys/net/netfilter/") && !has_text("proc/net/stat/nf_conntrack")
            }
            EvidenceSource::Quotas => !has_text("sys/fs/cgroup/"),
            EvidenceSource::Power => !has_text("sys/devices/system/cpu/"),
            EvidenceSource::Slot => self.sysfs("device/current_link_speed").is_none(),
        }
    }

    /// Growth of a counter of `/sys/class/net/IFACE/statistics`, such as `rx_packets`.
    pub fn statistic(&self, name: &str) -> Option<u64> {
        self.interface.as_ref()?.get(name).copied()
    }

    /// Shares of the time of each CPU.
    pub fn cpus(&self) -> Option<&BTreeMap<u32, CpuShares>> {
        self.cpus.as_ref()
    }

    /// Growth of each CPU's backlog counters.
    pub fn softnet(&self) -> Option<&BTreeMap<u32, SoftnetGrowth>> {
        self.softnet.as_ref()
    }

    /// Growth of every interrupt's counts.
    pub fn interrupts(&self) -> Option<&[InterruptGrowth]> {
        self.interrupts.as_deref()
    }

    /// Growth of the counts of the interface's interrupts: those that sysfs lists for its device (`device/msi_irqs`), else
    /// those whose label names the interface or its device.
    pub fn own_interrupts(&self) -> Option<Vec<&InterruptGrowth>> {
        let all = self.interrupts()?;
        let start = format!("sys/class/net/{}/device/", self.interface_name());
        let vectors: Vec<u32> = self
            .snapshot
            .after
            .texts_below(&format!("{start}msi_irqs/"))
            .filter_map(|(number, _)| number.parse().ok())
            .collect();
        let slot = self.snapshot.after.text(&format!("{start}uevent"));
        let slot =
            slot.and_then(|text| text.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")));
        let is_own = |line: &&InterruptGrowth| {
            if !vectors.is_empty() {
                return vectors.contains(&line.number);
            }
            slot.is_some_and(|slot| line.label.contains(slot))
                || line
                    .label
                    .split([' ', ',', '-', ':', '@'])
                    .any(|word| word == self.interface_name())
        };
        Some(all.iter().filter(is_own).collect())
    }

    /// A value of `ethtool` with this option (`-c`, `-k`, `-a`), as it was at the end.
    pub fn ethtool(&self, option: &str, name: &str) -> Option<String> {
        self.settings(option)?.remove(name)
    }

    /// The values of `ethtool` with this option, as they were at the end.
    pub fn settings(&self, option: &str) -> Option<Settings> {
        parse_settings(self.ethtool_text(option)?)
    }

    /// The present value and the largest of `ethtool -g` or `-l`, by the name that ethtool prints.
    pub fn limit(&self, option: &str, name: &str) -> Option<(u64, Option<u64>)> {
        let Limits { most, now } = parse_limits(self.ethtool_text(option)?)?;
        let number = |settings: &Settings| settings.get(name)?.parse().ok();
        Some((number(&now)?, number(&most)))
    }

    /// The text of `ethtool` with this option, as it was at the end.
    pub fn ethtool_text(&self, option: &str) -> Option<&'a str> {
        self.snapshot.after.text(&format!("ethtool_{option}_{}", self.interface_name()))
    }

    /// A file of `/sys/class/net/IFACE` at the end, without the space around it.
    pub fn sysfs(&self, attribute: &str) -> Option<&'a str> {
        let name = format!("sys/class/net/{}/{attribute}", self.interface_name());
        self.snapshot.after.text(&name).map(str::trim)
    }

    /// The link's speed in Mbit/s: by sysfs, else by `ethtool IFACE` (`Speed: 25000Mb/s`). Links of guests often have none.
    pub fn link_speed_mbit(&self) -> Option<f64> {
        let by_ethtool = || {
            let text = self.text(&format!("ethtool_{}", self.interface_name()))?;
            let speed = parse_settings(text)?.remove("Speed")?;
            speed.strip_suffix("Mb/s")?.parse().ok()
        };
        let by_sysfs = self.sysfs("speed").and_then(|text| text.parse().ok());
        by_sysfs.or_else(by_ethtool).filter(|speed: &f64| *speed > 0.0)
    }

    /// A file of `/proc/sys` at the end, such as `net/core/rmem_max`.
    pub fn sysctl(&self, name: &str) -> Option<&'a str> {
        self.snapshot.after.text(&format!("proc/sys/{name}")).map(str::trim)
    }

    /// The text of this name at the end.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.snapshot.after.text(name)
    }

    /// The two looks.
    pub fn looks(&self) -> [&'a Look; 2] {
        [&self.snapshot.before, &self.snapshot.after]
    }

    /// Growth of the numbers in a file of lines `name count`, such as `cpu.stat` of a control group.
    pub fn grown_pairs(&self, name: &str) -> Option<BTreeMap<String, u64>> {
        let [before, after] = self.looks().map(|look| look.text(name).and_then(parse_pairs));
        Some(grown_counters(&before?, after?))
    }

    /// Growth of the queue disciplines of the interface.
    pub fn qdiscs(&self) -> Option<&[QdiscGrowth]> {
        self.qdiscs.as_deref()
    }

    /// The texts that are there and cannot be read.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

/// Whether a name has the form of a pattern, in which `*` stands for any letters.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    true
}

fn read_window(reader: &mut LookReader<'_>) -> Option<f64> {
    let parse_uptime = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let told = reader.snapshot.window_s;
    let by_uptime =
        || Some(reader.read("proc/uptime", parse_uptime)?).map(|[one, other]| other - one);
    let window = told.or_else(by_uptime).or_else(|| {
        let [before, after] = reader.read("proc/stat", parse_stat)?;
        let longest = after
            .iter()
            .filter_map(|(cpu, now)| total_ticks(now).checked_sub(total_ticks(before.get(cpu)?)));
        longest.max().map(|ticks| ticks as f64 / TICKS_PER_S)
    });
    window.filter(|window| *window > 0.0 && *window < LONGEST_WINDOW_S)
}

fn read_interface(snapshot: &Snapshot) -> Option<Counters> {
    let start = format!("sys/class/net/{}/statistics/", snapshot.interface);
    let [before, after] = [&snapshot.before, &snapshot.after].map(|look| {
        let counters = look.texts_below(&start);
        counters
            .filter_map(|(name, text)| Some((name.to_owned(), parse_number(text)?)))
            .collect::<Counters>()
    });
    (!before.is_empty() && !after.is_empty()).then(|| grown_counters(&before, after))
}

/// The interface's row of `/proc/net/dev`, where nothing of its folder in sysfs is there.
fn read_device(reader: &mut LookReader<'_>) -> Option<Counters> {
    let name = reader.snapshot.interface.as_str();
    let [before, mut after] = reader.read("proc/net/dev", parse_interfaces)?;
    Some(grown_counters(before.get(name)?, after.remove(name)?))
}

fn total_ticks(ticks: &CpuTicks) -> u64 {
    let CpuTicks { user, nice, system, idle, iowait, irq, softirq, steal } = *ticks;
    user + nice + system + idle + iowait + irq + softirq + steal
}

/// Shares of each CPU that both looks have; `None` if the looks are too near to each other.
fn compare_ticks(
    before: &BTreeMap<u32, CpuTicks>,
    after: &BTreeMap<u32, CpuTicks>,
) -> Option<BTreeMap<u32, CpuShares>> {
    let shares = |(cpu, now): (&u32, &CpuTicks)| {
        let then = before.get(cpu)?;
        let total = total_ticks(now).checked_sub(total_ticks(then))?;
        if total as f64 / TICKS_PER_S < LEAST_WINDOW_S {
            return None;
        }
        // Idle time of a CPU may fall by a tick (proc_stat(5)).
        let share =
            |of: fn(&CpuTicks) -> u64| of(now).saturating_sub(of(then)) as f64 / total as f64;
        let shares = CpuShares {
            programs: share(|ticks| ticks.user + ticks.nice + ticks.system),
            interrupts: share(|ticks| ticks.irq),
            softirqs: share(|ticks| ticks.softirq),
            steal: share(|ticks| ticks.steal),
            idle: share(|ticks| ticks.idle + ticks.iowait),
        };
        Some((*cpu, shares))
    };
    let found: BTreeMap<u32, CpuShares> = after.iter().filter_map(shares).collect();
    (!found.is_empty()).then_some(found)
}

fn compare_softnet(
    before: &BTreeMap<u32, SoftnetRow>,
    after: &BTreeMap<u32, SoftnetRow>,
) -> BTreeMap<u32, SoftnetGrowth> {
    // The kernel prints 32 bits of each.
    let grown = |now: u64, then: u64| now.wrapping_sub(then) & u64::from(u32::MAX);
    let growth = |(cpu, now): (&u32, &SoftnetRow)| {
        let then = before.get(cpu)?;
        let growth = SoftnetGrowth {
            processed: grown(now.processed, then.processed),
            dropped: grown(now.dropped, then.dropped),
            squeezed: grown(now.squeezed, then.squeezed),
            received_rps: grown(now.received_rps, then.received_rps),
            flow_limited: grown(now.flow_limited, then.flow_limited),
        };
        Some((*cpu, growth))
    };
    after.iter().filter_map(growth).collect()
}

fn compare_interrupts(
    snapshot: &Snapshot,
    before: &BTreeMap<u32, InterruptLine>,
    after: BTreeMap<u32, InterruptLine>,
) -> Vec<InterruptGrowth> {
    let affinity_of = |look: &Look, number: u32| {
        let name = |file: &str| format!("proc/irq/{number}/{file}");
        let effective = look.text(&name("effective_affinity_list")).and_then(parse_cpu_list);
        effective
            .filter(|cpus| !cpus.is_empty())
            .or_else(|| look.text(&name("smp_affinity_list")).and_then(parse_cpu_list))
    };
    let growth = |(number, now): (u32, InterruptLine)| {
        let then = before.get(&number)?;
        let grown = |(cpu, count): (u32, u64)| {
            let count = growth_of(*then.counts.get(&cpu)?, count)?;
            (count > 0).then_some((cpu, count))
        };
        Some(InterruptGrowth {
            number,
            label: now.label,
            counts: now.counts.into_iter().filter_map(grown).collect(),
            affinity: [&snapshot.before, &snapshot.after].map(|look| affinity_of(look, number)),
        })
    };
    after.into_iter().filter_map(growth).collect()
}

fn compare_qdiscs(interface: &str, before: &[QdiscRow], after: Vec<QdiscRow>) -> Vec<QdiscGrowth> {
    let key = |qdisc: &QdiscRow| (qdisc.handle.clone(), qdisc.parent.clone(), qdisc.kind.clone());
    let known: BTreeMap<_, &QdiscRow> = before
        .iter()
        .filter(|qdisc| qdisc.dev == interface)
        .map(|qdisc| (key(qdisc), qdisc))
        .collect();
    let growth = |now: QdiscRow| {
        let then = known.get(&key(&now))?;
        Some(QdiscGrowth {
            bytes: growth_of(then.bytes, now.bytes)?,
            backlog_before: then.backlog,
            packets: growth_of(then.packets, now.packets)?,
            drops: growth_of(then.drops, now.drops)?,
            overlimits: now.overlimits.saturating_sub(then.overlimits),
            requeues: now.requeues.saturating_sub(then.requeues),
            now,
        })
    };
    after.into_iter().filter(|qdisc| qdisc.dev == interface).filter_map(growth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot_of(texts: &[(&str, &str, &str)]) -> Snapshot {
        let [mut before, mut after] = [Look::default(), Look::default()];
        for (name, then, now) in texts {
            before.insert(name, (*then).to_owned());
            after.insert(name, (*now).to_owned());
        }
        Snapshot::from_looks(Some("eth0"), before, after).unwrap()
    }

    #[test]
    fn large_counters_that_stand_are_silent() {
        let text = "rx_pause: 132000000\n";
        let snapshot = snapshot_of(&[("ethtool_-S_eth0", text, text)]);
        assert_eq!(Evidence::from_snapshot(&snapshot).driver(&["*pause*"]), Some(0));
    }

    #[test]
    fn reset_counter_is_unseen() {
        let snapshot = snapshot_of(&[("ethtool_-S_eth0", "a: 9\nb: 1\n", "a: 3\nb: 5\n")]);
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!((evidence.driver(&["a"]), evidence.driver(&["b"])), (None, Some(4)));
    }

    #[test]
    fn absurd_counts_are_unseen() {
        let text = |count: u64| format!("a: {count}\nb: {}\n", u64::MAX);
        let qdisc =
            |drops: u64| format!(r#"[{{"kind":"fq","dev":"eth0","root":true,"drops":{drops}}}]"#);
        let snapshot = snapshot_of(&[
            ("ethtool_-S_eth0", &text(0), &text(u64::MAX)),
            ("tc_-s_-j_qdisc", &qdisc(0), &qdisc(u64::MAX)),
        ]);
        let evidence = Evidence::from_snapshot(&snapshot);
        assert_eq!((evidence.driver(&["a"]), evidence.driver(&["b"])), (None, Some(0)));
        assert_eq!(evidence.dropped_by_qdiscs(), Some(0));
    }

    #[test]
    fn link_speed_is_of_sysfs_or_ethtool() {
        let text = "Settings for eth0:\n\tSpeed: 25000Mb/s\n\tDuplex: Full\n";
        let told = |texts: &[(&str, &str, &str)]| {
            Evidence::from_snapshot(&snapshot_of(texts)).link_speed_mbit()
        };
        assert_eq!(told(&[("ethtool_eth0", text, text)]), Some(25_000.0));
        assert_eq!(told(&[("sys/class/net/eth0/speed", "-1\n", "-1\n")]), None);
    }

    #[test]
    fn interface_is_counted_without_sysfs() {
        let text = |packets: u32| format!("eth0: 9 {packets} 0 0 0 0 0 0 9 5 0 0 0 0 0 0\n");
        let snapshot = snapshot_of(&[("proc/net/dev", &text(5), &text(8))]);
        assert_eq!(Evidence::from_snapshot(&snapshot).statistic("rx_packets"), Some(3));
    }

    #[test]
    fn softnet_counters_wrap_at_32_bits() {
        let snapshot =
            snapshot_of(&[("proc/net/softnet_stat", "fffffff0 0 0\n", "00000010 0 0\n")]);
        assert_eq!(Evidence::from_snapshot(&snapshot).softnet().unwrap()[&0].processed, 32);
    }

    #[test]
    fn unreadable_text_is_named() {
        let snapshot = snapshot_of(&[("proc/stat", "cpu0 1 2", "cpu0 1 2")]);
        let evidence = Evidence::from_snapshot(&snapshot);
        assert!(evidence.cpus().is_none());
        assert_eq!(evidence.unreadable(), ["proc/stat"]);
    }

    #[test]
    fn cpu_shares_add_up_to_one() {
        let (then, now) = ("cpu0 0 0 0 0 0 0 0 0\n", "cpu0 10 10 20 30 10 5 10 5\n");
        let snapshot = snapshot_of(&[("proc/stat", then, now)]);
        let evidence = Evidence::from_snapshot(&snapshot);
        let shares = evidence.cpus().unwrap()[&0];
        let CpuShares { programs, interrupts, softirqs, steal, idle } = shares;
        assert!((programs + interrupts + softirqs + steal + idle - 1.0).abs() < 1e-9, "{shares:?}");
        assert!((evidence.window_s().unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("rx_pause", "rx_pause", true),
            ("rx_pause", "rx_pause_ctrl", false),
            ("rx*pause*", "rx_prio0_pause", true),
            ("*_drops", "queue_0_drops", true),
            ("*_drops", "drops_other", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn own_interrupts_go_by_device_or_name() {
        let text =
            "  CPU0\n 1: 5 PCI eth0-TxRx-0\n 2: 5 PCI eth01-TxRx\n 3: 5 PCI virtio1-input.0\n";
        let later = text.replace(": 5", ": 8");
        let mut snapshot = snapshot_of(&[("proc/interrupts", text, &later)]);
        let numbers = |snapshot: &Snapshot| -> Vec<u32> {
            let evidence = Evidence::from_snapshot(snapshot);
            evidence.own_interrupts().unwrap().iter().map(|line| line.number).collect()
        };
        assert_eq!(numbers(&snapshot), [1]);
        snapshot.after.insert("sys/class/net/eth0/device/msi_irqs/3", "msix\n".to_owned());
        assert_eq!(numbers(&snapshot), [3]);
    }
}
