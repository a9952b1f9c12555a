//! Planted looks for the tests of rules.

use crate::evidence::Evidence;
use crate::finding::{EvidenceValue, Finding, Judgement, Rule};
use crate::snapshot::{Look, Snapshot};

/// The head of `ss -tin`.
pub(crate) const SS_HEAD: &str =
    "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n";

/// Two looks that a test fills with texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlantedLooks {
    looks: [Look; 2],
}

impl PlantedLooks {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a text of both looks.
    pub(crate) fn text(mut self, name: &str, before: &str, after: &str) -> Self {
        self.looks[0].insert(name, before.to_owned());
        self.looks[1].insert(name, after.to_owned());
        self
    }

    /// Adds a text that does not change.
    pub(crate) fn same(self, name: &str, text: &str) -> Self {
        self.text(name, text, text)
    }

    /// Adds the window.
    pub(crate) fn seconds(self, window: u32) -> Self {
        self.text("proc/uptime", "1000.00 500.00\n", &format!("{}.00 500.00\n", 1000 + window))
    }

    /// Adds connections as `ss -tin` has them, without their head.
    pub(crate) fn sockets(self, before: &str, after: &str) -> Self {
        self.text("ss_-tin", &format!("{SS_HEAD}{before}"), &format!("{SS_HEAD}{after}"))
    }

    /// Adds counters of TCP to `/proc/net/snmp`.
    pub(crate) fn tcp(self, counters: &[(&str, u64, u64)]) -> Self {
        self.counters("proc/net/snmp", "Tcp", counters)
    }

    /// Adds counters of UDP to `/proc/net/snmp`.
    pub(crate) fn udp(self, counters: &[(&str, u64, u64)]) -> Self {
        self.counters("proc/net/snmp", "Udp", counters)
    }

    /// Adds counters of IP to `/proc/net/snmp`.
    pub(crate) fn ip(self, counters: &[(&str, u64, u64)]) -> Self {
        self.counters("proc/net/snmp", "Ip", counters)
    }

    /// Adds counters to `/proc/net/netstat`.
    pub(crate) fn tcp_ext(self, counters: &[(&str, u64, u64)]) -> Self {
        self.counters("proc/net/netstat", "TcpExt", counters)
    }

    fn counters(mut self, file: &str, group: &str, counters: &[(&str, u64, u64)]) -> Self {
        let names: Vec<&str> = counters.iter().map(|(name, ..)| *name).collect();
        for (idx, look) in self.looks.iter_mut().enumerate() {
            let values = counters.iter().map(|(_, then, now)| if idx == 0 { then } else { now });
            let values: Vec<String> = values.map(u64::to_string).collect();
            let before = look.text(file).unwrap_or_default();
            let text =
                format!("{before}{group}: {}\n{group}: {}\n", names.join(" "), values.join(" "));
            look.insert(file, text);
        }
        self
    }

    /// The snapshot of `eth0`.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let [before, after] = self.looks.clone();
        Snapshot::from_looks(Some("eth0"), before, after).unwrap()
    }

    /// The judgement of a rule.
    pub(crate) fn judge(&self, rule: &Rule) -> Judgement {
        let snapshot = self.snapshot();
        (rule.judge)(rule, &Evidence::from_snapshot(&snapshot))
    }

    /// The finding of a rule that must find one.
    pub(crate) fn find(&self, rule: &Rule) -> Finding {
        match self.judge(rule) {
            Judgement::Fault(finding) => finding,
            other => panic!("{} says {other:?}", rule.id),
        }
    }
}

/// A figure of a finding.
pub(crate) fn number(finding: &Finding, name: &str) -> f64 {
    match finding.evidence.get(name) {
        Some(EvidenceValue::Number(number)) => *number,
        other => panic!("{name} of {} is {other:?}", finding.id),
    }
}
