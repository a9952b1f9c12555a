//! Everything one trial measured.
//!
//! Absent is not zero: what a workload does not have, or a host cannot tell, is `None`.

use std::collections::BTreeMap;

use latput_knobs::State;
use latput_stats::Histogram;
use latput_units::{CpuId, Nanos};
use serde::{Deserialize, Serialize};

use crate::metric::Metric;
use crate::workload::{Direction, Traffic};

/// What one trial measured, over the measurement window after the warm-up was cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// What the traffic did.
    pub traffic: TrafficObservation,
    /// What the probe beside it saw.
    pub probe: Option<ProbeObservation>,
    /// Each host, in the order of the testbed.
    pub hosts: Vec<HostObservation>,
    /// The checks on this trial, passed and failed.
    pub checks: Vec<Check>,
    /// Figures as another program gave them, without the counts behind them: each stands for the one
    /// that latput would compute from its own.
    #[serde(rename = "given", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reported_metrics: BTreeMap<Metric, f64>,
    /// What other programs said of the CPU time of their end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramCpu>,
}

impl Observation {
    /// Whether the check of this name was made and failed.
    pub fn has_failed(&self, check: &str) -> bool {
        self.checks.iter().any(|made| made.name == check && !made.passed)
    }
}

/// What a program that is not latput said of the CPU time of its end: shown with its method, and never
/// compared with a figure of another method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramCpu {
    /// The end.
    pub role: Role,
    /// `iperf3`, `netserver`.
    pub program: String,
    /// What was counted.
    pub method: CpuMethod,
    /// Busy share: of one CPU for a process (above 1 with several threads), of all CPUs for a host.
    pub busy_ratio: f64,
    /// The part in user code, of the same base.
    pub user_ratio: Option<f64>,
    /// The part in the kernel, of the same base.
    pub system_ratio: Option<f64>,
}

/// What a program counts as its CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuMethod {
    /// The program's own process (`getrusage`): the network's soft interrupts are not in it.
    Process,
    /// The whole host, from `/proc/stat`, waiting for disks counted as busy (netperf).
    Host,
}

impl CpuMethod {
    /// In words, for tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Process => "its own process only (getrusage), not comparable",
            Self::Host => "whole host, iowait counted as busy",
        }
    }
}

/// What the load generator and the reflector counted in their windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficObservation {
    /// Length of the generator's window.
    pub sender_window: Nanos,
    /// Length of the receiver's window (each end has its own clock).
    pub receiver_window: Nanos,
    /// Payload bytes that the sender handed to its kernel.
    pub sent_bytes: u64,
    /// Payload bytes that the receiving application got: goodput.
    pub received_bytes: u64,
    /// The other way, from the system under test to the generator, where bulk flows that way.
    #[serde(default)]
    pub reverse: Option<FlowObservation>,
    /// Completed request/response transactions; objects of a `fetch`.
    pub transactions: Option<u64>,
    /// Round-trip time of every transaction; of an open loop, from when its request was due
    /// (corrected: a stall counts for every request that it held up).
    pub latency: Option<Histogram>,
    /// Of an open loop, the round-trip times from when each request was really sent.
    #[serde(default)]
    pub latency_raw: Option<Histogram>,
    /// Datagram bookkeeping at the receiver.
    pub datagrams: Option<DatagramObservation>,
    /// TCP segments that the connections sent again (`tcpi_total_retrans`, both ends).
    pub retransmits: Option<u64>,
    /// The offered rate (each way), where the workload has one.
    pub offered_bps: Option<f64>,
    /// Requests per second that were due, of an open loop.
    #[serde(default)]
    pub offered_per_s: Option<f64>,
    /// CPU time of the traffic threads themselves, sender's end.
    pub sender_cpu: Nanos,
    /// CPU time of the traffic threads themselves, receiver's end.
    pub receiver_cpu: Nanos,
    /// Share of its window that the busiest traffic thread was on a CPU, sender's end.
    #[serde(default)]
    pub busiest_ratio: Option<f64>,
}

/// One way of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowObservation {
    /// Payload bytes that the sending end handed to its kernel, in its window.
    pub sent_bytes: u64,
    /// Payload bytes that the receiving application got, in its window.
    pub received_bytes: u64,
}

impl TrafficObservation {
    /// Payload bits per second that receiving applications got, both ways together; requests for
    /// objects are not payload. `None` where no time passed.
    pub fn goodput_bps(&self, traffic: &Traffic) -> Option<f64> {
        let reverse = match &self.reverse {
            Some(reverse) => bits_per_s(reverse.received_bytes, self.sender_window)?,
            None => 0.0,
        };
        match traffic {
            Traffic::Fetch { .. } => Some(reverse),
            _ => Some(reverse + bits_per_s(self.received_bytes, self.receiver_window)?),
        }
    }

    /// Of bulk both ways, payload bits per second that the system under test got, and the generators.
    pub fn goodput_each_way_bps(&self, traffic: &Traffic) -> Option<(f64, f64)> {
        let both = matches!(traffic, Traffic::TcpBulk { direction: Direction::Both, .. });
        let reverse = self.reverse.filter(|_| both)?;
        let to_sut = bits_per_s(self.received_bytes, self.receiver_window)?;
        Some((to_sut, bits_per_s(reverse.received_bytes, self.sender_window)?))
    }
}

fn bits_per_s(bytes: u64, window: Nanos) -> Option<f64> {
    let seconds = window.as_secs_f64();
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

/// Datagrams by sequence number, at the receiver; of `udp_rr`, requests and their responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramObservation {
    /// Sent in the window.
    pub sent: u64,
    /// Of those, received at least once.
    pub received: u64,
    /// Sent in the window and never received.
    pub lost: u64,
    /// Received after a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Received again.
    pub duplicates: u64,
    /// Responses that came after their request had counted as lost.
    #[serde(default)]
    pub late: u64,
    /// Interarrival jitter at the end of the window (RFC 3550, section 6.4.1), in nanoseconds.
    pub jitter_ns: f64,
}

/// ICMP echo beside the traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeObservation {
    /// Echo requests sent in the window.
    pub sent: u64,
    /// Of those, answered.
    pub received: u64,
    /// Round-trip times; min, mean, max and mdev follow from it.
    pub rtt: Histogram,
}

/// What one host's kernel counted in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostObservation {
    /// The host's name in the testbed.
    pub host: String,
    /// What it was in this trial.
    pub role: Role,
    /// Length of the window.
    pub window: Nanos,
    /// The CPUs that are this host's, each on its own, by the best source there was (`accounting`).
    pub cpus: Vec<CpuObservation>,
    /// Where their times come from, and what other sources said of them.
    #[serde(default)]
    pub accounting: CpuAccounting,
    /// The machine's CPUs that are not this host's, summed from their own lines.
    pub other_cpus: CpuTime,
    /// The machine that the host runs on, from the kernel's own total line: the whole that the parts
    /// of co-located hosts must add up to.
    pub machine: CpuTime,
    /// CPU time of this host's NAPI kernel threads, where it has such.
    pub napi_threads_cpu: Option<Nanos>,
    /// CPU time that latput's counter sampling took on this host.
    pub sampling_cpu: Nanos,
    /// NAPI polls on this host's CPUs, where the kernel lets us see them.
    pub napi: Option<NapiObservation>,
    /// `NET_RX` and `NET_TX` softirq runs on this host's CPUs.
    pub softirqs: u64,
    /// Hardware interrupts on this host's CPUs.
    pub interrupts: u64,
    /// The measured interface's counters.
    pub interface: InterfaceCounters,
    /// Its packets, in and out, in each tenth of a second of the window: whether the load was steady.
    #[serde(default)]
    pub packets_per_interval: Vec<u64>,
    /// TCP segments sent again, whole host (`RetransSegs`).
    pub tcp_retransmitted: u64,
    /// UDP datagrams dropped for want of socket buffer (`RcvbufErrors`).
    pub udp_receive_buffer_errors: u64,
    /// How far the host's wall clock went ahead of its monotonic one in the window, nanoseconds: what
    /// somebody set it by, or, below 0.05 % of the window, NTP's correction (`adjtimex(2)`).
    #[serde(default)]
    pub wall_clock_step_ns: i64,
    /// The knobs as read before the trial.
    pub state: State,
}

/// A host's part in a trial.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The system under test.
    #[default]
    Sut,
    /// Makes the load.
    Generator,
    /// Only watches.
    Observer,
}

impl Role {
    /// The name in testbed files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sut => "sut",
            Self::Generator => "generator",
            Self::Observer => "observer",
        }
    }
}

/// One CPU in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuObservation {
    /// Which.
    pub cpu: CpuId,
    /// Where its time went.
    pub time: CpuTime,
}

/// What busy time is counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSource {
    /// Every switch of tasks and every interrupt, traced: exact to the microsecond. User against system
    /// within process time by the ticks' proportion.
    Trace,
    /// What the kernel's exact idle time leaves of the window, in steps of 10 ms; the parts by the ticks'
    /// proportion.
    Idle,
    /// A timer that looks 100 to 1000 times a second what runs (`/proc/stat`): busy spells shorter than
    /// its tick can go unseen. All rows of before the source was recorded.
    #[default]
    Ticks,
    /// A simulated host, whose times are known.
    Simulated,
}

impl CpuSource {
    /// The name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Idle => "idle",
            Self::Ticks => "ticks",
            Self::Simulated => "simulated",
        }
    }
}

/// How a host's CPU time was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAccounting {
    /// The source of `cpus`.
    pub source: CpuSource,
    /// The same CPUs in the same window by the ticks of `/proc/stat`; empty where those are the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<CpuObservation>,
    /// Busy time of all of them by exact idle time, in steps of 10 ms a CPU; `None` where that is the source or
    /// there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_by_idle: Option<Nanos>,
}

/// Where CPU time went, as `/proc/stat` splits it. `guest` is already inside `user` there and is not
/// counted again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// User code, `nice` included.
    pub user: Nanos,
    /// Kernel code in process context, kernel threads (threaded NAPI) included.
    pub system: Nanos,
    /// Hardware interrupts.
    pub irq: Nanos,
    /// Soft interrupts.
    pub softirq: Nanos,
    /// Taken by the hypervisor.
    pub steal: Nanos,
    /// Idle.
    pub idle: Nanos,
    /// Idle while a disk request was under way.
    pub iowait: Nanos,
}

impl CpuTime {
    /// Busy = total - idle - iowait - steal: user + system + irq + softirq. Time that the hypervisor
    /// took is neither the host's work nor its rest.
    pub fn busy(&self) -> Nanos {
        [self.system, self.irq, self.softirq].into_iter().fold(self.user, Nanos::saturating_add)
    }

    /// Everything, idle and stolen time included.
    pub fn total(&self) -> Nanos {
        [self.steal, self.idle, self.iowait].into_iter().fold(self.busy(), Nanos::saturating_add)
    }
}

impl std::ops::Add for CpuTime {
    type Output = Self;

    /// Saturates: a results file may hold any number.
    fn add(self, other: Self) -> Self {
        Self {
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
            irq: self.irq.saturating_add(other.irq),
            softirq: self.softirq.saturating_add(other.softirq),
            steal: self.steal.saturating_add(other.steal),
            idle: self.idle.saturating_add(other.idle),
            iowait: self.iowait.saturating_add(other.iowait),
        }
    }
}

impl std::iter::Sum for CpuTime {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), std::ops::Add::add)
    }
}

impl HostObservation {
    /// The time of all of the host's CPUs together.
    pub fn cpu(&self) -> CpuTime {
        self.cpus.iter().map(|cpu| cpu.time).sum()
    }

    /// The same by the ticks of `/proc/stat`.
    pub fn cpu_by_ticks(&self) -> CpuTime {
        let own =
            if self.accounting.ticks.is_empty() { &self.cpus } else { &self.accounting.ticks };
        own.iter().map(|cpu| cpu.time).sum()
    }

    /// Busy share of the host's CPUs, 0 to 1; `None` if no CPU time passed.
    pub fn busy_ratio(&self) -> Option<f64> {
        let time = self.cpu();
        let total = time.total().as_secs_f64();
        (total > 0.0).then(|| time.busy().as_secs_f64() / total)
    }
}

/// NAPI polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiObservation {
    /// Polls.
    pub polls: u64,
    /// Packets that they handled.
    pub packets: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
}

/// One interface's counters over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Packets in.
    pub rx_packets: u64,
    /// Bytes in.
    pub rx_bytes: u64,
    /// Packets out.
    pub tx_packets: u64,
    /// Bytes out.
    pub tx_bytes: u64,
    /// Dropped on the way in.
    pub rx_dropped: u64,
    /// Dropped on the way out.
    pub tx_dropped: u64,
}

/// One check on a trial. A trial that fails one is marked, never dropped silently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked: `packets-per-transaction`, `cpu-parts-add-up`, `steal`.
    pub name: String,
    /// Whether it held.
    pub passed: bool,
    /// The figures, in a sentence.
    pub detail: String,
}
