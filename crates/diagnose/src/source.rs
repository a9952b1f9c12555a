//! Sources of evidence: the files and tools that a look has texts of.

/// Something that a rule reads. What a snapshot lacks is listed as unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvidenceSource {
    /// Counters of the protocols (`/proc/net/snmp`, `/proc/net/netstat`).
    Protocols,
    /// The driver's counters (`ethtool -S`).
    Driver,
    /// The interface's counters (`/sys/class/net/IFACE/statistics`).
    Interface,
    /// Time of the CPUs (`/proc/stat`).
    Cpus,
    /// Packets and drops of each CPU's backlog (`/proc/net/softnet_stat`).
    Softnet,
    /// Counts of interrupts (`/proc/interrupts`).
    Interrupts,
    /// Settings that ethtool prints.
    Settings,
    /// Counters of queue disciplines (`tc -s`).
    Qdiscs,
    /// TCP connections (`ss -tin`).
    Sockets,
    /// Connection tracking (`/proc/sys/net/netfilter`, `/proc/net/stat/nf_conntrack`).
    Conntrack,
    /// CPU quotas of control groups (`cpu.stat`).
    Quotas,
    /// Idle states and frequencies of the CPUs.
    Power,
    /// Link and slot of the card (sysfs).
    Slot,
}

impl EvidenceSource {
    /// The source in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Protocols => "counters of the protocols (/proc/net/snmp, netstat)",
            Self::Driver => "the driver's counters (ethtool -S)",
            Self::Interface => "the interface's counters (sysfs)",
            Self::Cpus => "CPU time (/proc/stat)",
            Self::Softnet => "backlogs (/proc/net/softnet_stat)",
            Self::Interrupts => "interrupts (/proc/interrupts)",
            Self::Settings => "settings (ethtool -c, -g, -l, -k)",
            Self::Qdiscs => "queue disciplines (tc -s)",
            Self::Sockets => "TCP connections (ss -tin)",
            Self::Conntrack => "connection tracking",
            Self::Quotas => "CPU quotas (cpu.stat)",
            Self::Power => "idle states and frequencies",
            Self::Slot => "the card's slot (sysfs)",
        }
    }
}
