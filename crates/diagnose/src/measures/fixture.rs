//! Snapshots for the tests of rules: two looks at eth0, ten seconds apart, in the forms of the kernel and of ethtool.

use std::fmt::Write as _;

use crate::evidence::Evidence;
use crate::finding::{Finding, Judgement, Rule};
use crate::snapshot::{Look, SCHEMA, Snapshot};
use crate::source::EvidenceSource;

/// A count from before the window: large counters that stand say nothing.
const BEFORE: u64 = 132_000_000;
/// Ticks of a CPU in the window.
const TICKS: u64 = 1000;

/// A snapshot in the making.
#[derive(Debug, Default)]
pub(crate) struct Fixture {
    before: Look,
    after: Look,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a text of both looks.
    pub(crate) fn grown(mut self, name: &str, before: &str, after: &str) -> Self {
        self.before.insert(name, before.to_owned());
        self.after.insert(name, after.to_owned());
        self
    }

    /// Adds a text that does not change.
    pub(crate) fn fixed(self, name: &str, text: &str) -> Self {
        self.grown(name, text, text)
    }

    /// Adds a file of `/sys/class/net/eth0`.
    pub(crate) fn sysfs(self, name: &str, text: &str) -> Self {
        self.fixed(&format!("sys/class/net/eth0/{name}"), text)
    }

    /// Adds the driver's counters by their growth.
    pub(crate) fn driver(self, growth: &[(&str, u64)]) -> Self {
        let text = |grown: u64| {
            growth.iter().fold("NIC statistics:\n".to_owned(), |mut text, (name, by)| {
                writeln!(text, "     {name}: {}", BEFORE + by * grown).unwrap();
                text
            })
        };
        self.grown("ethtool_-S_eth0", &text(0), &text(1))
    }

    /// Adds packets and bytes, received and sent.
    pub(crate) fn traffic(self, received: [u64; 2], sent: [u64; 2]) -> Self {
        let names = ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"];
        names.into_iter().zip(received.into_iter().chain(sent)).fold(
            self,
            |made, (name, growth)| {
                let name = format!("sys/class/net/eth0/statistics/{name}");
                made.grown(&name, &format!("{BEFORE}\n"), &format!("{}\n", BEFORE + growth))
            },
        )
    }

    /// Adds the time of each CPU in percent: user, system, interrupts, softirqs, steal; the rest is idle.
    pub(crate) fn cpus(self, shares: &[[u64; 5]]) -> Self {
        let text = |grown: u64| {
            shares.iter().enumerate().fold(String::new(), |mut text, (cpu, percent)| {
                let idle = 100 - percent.iter().sum::<u64>();
                let ticks = |percent: u64| BEFORE + percent * TICKS / 100 * grown;
                let [user, system, irq, softirq, steal] = percent.map(ticks);
                let idle = ticks(idle);
                writeln!(text, "cpu{cpu} {user} 0 {system} {idle} 0 {irq} {softirq} {steal} 0 0")
                    .unwrap();
                text
            })
        };
        self.grown("proc/stat", &text(0), &text(1))
    }

    /// Adds interrupts from number 24 on: label and growth on each CPU.
    pub(crate) fn interrupts(self, lines: &[(&str, &[u64])]) -> Self {
        let text = |grown: u64| {
            let cpus = lines.first().map_or(0, |(_, counts)| counts.len());
            let mut text = String::new();
            for cpu in 0..cpus {
                write!(text, " CPU{cpu}").unwrap();
            }
            text.push('\n');
            for ((label, counts), number) in lines.iter().zip(24..) {
                write!(text, " {number}:").unwrap();
                counts
                    .iter()
                    .for_each(|count| write!(text, " {}", BEFORE + count * grown).unwrap());
                writeln!(text, "  PCI-MSIX-0000:01:00.0 {number}-edge {label}").unwrap();
            }
            text
        };
        self.grown("proc/interrupts", &text(0), &text(1))
    }

    /// Adds the backlog of each CPU by growth: packets, drops, rounds cut short.
    pub(crate) fn softnet(self, rows: &[[u64; 3]]) -> Self {
        let rows =
            rows.iter().map(|[processed, dropped, squeezed]| [*processed, *dropped, *squeezed, 0]);
        self.softnet_with_rps(&rows.collect::<Vec<_>>())
    }

    /// The same with packets that came from other CPUs.
    pub(crate) fn softnet_with_rps(self, rows: &[[u64; 4]]) -> Self {
        let text = |grown: u64| {
            rows.iter().fold(String::new(), |mut text, row| {
                let [processed, dropped, squeezed, rps] = row.map(|by| 5000 + by * grown);
                writeln!(
                    text,
                    "{processed:08x} {dropped:08x} {squeezed:08x} 0 0 0 0 0 0 {rps:08x} 0"
                )
                .unwrap();
                text
            })
        };
        self.grown("proc/net/softnet_stat", &text(0), &text(1))
    }

    /// Adds counters of a protocol by growth.
    pub(crate) fn protocols(self, file: &str, group: &str, growth: &[(&str, u64)]) -> Self {
        let text = |grown: u64| {
            let names: Vec<&str> = growth.iter().map(|(name, _)| *name).collect();
            let counts: Vec<String> =
                growth.iter().map(|(_, by)| (BEFORE + by * grown).to_string()).collect();
            format!("{group}: {}\n{group}: {}\n", names.join(" "), counts.join(" "))
        };
        self.grown(&format!("proc/net/{file}"), &text(0), &text(1))
    }

    pub(crate) fn into_snapshot(self) -> Snapshot {
        Snapshot {
            schema: SCHEMA,
            interface: "eth0".to_owned(),
            window_s: Some(10.0),
            before: self.before,
            after: self.after,
            stages: None,
        }
    }

    pub(crate) fn judge(self, rule: &Rule) -> Judgement {
        let snapshot = self.into_snapshot();
        let evidence = Evidence::from_snapshot(&snapshot);
        (rule.judge)(rule, &evidence)
    }

    /// The finding that the rule must make.
    pub(crate) fn fault(self, rule: &Rule) -> Finding {
        match self.judge(rule) {
            Judgement::Fault(finding) => finding,
            other => panic!("{}: {other:?}", rule.id),
        }
    }

    #[track_caller]
    pub(crate) fn assert_healthy(self, rule: &Rule) {
        assert_eq!(self.judge(rule), Judgement::Healthy, "{}", rule.id);
    }

    #[track_caller]
    pub(crate) fn assert_unseen(self, rule: &Rule, source: EvidenceSource) {
        assert_eq!(self.judge(rule), Judgement::Unseen(source), "{}", rule.id);
    }
}

/// Whether two shares are the same to a thousandth.
pub(crate) fn is_near(share: Option<f64>, expected: f64) -> bool {
    share.is_some_and(|share| (share - expected).abs() < 1e-3)
}
