//! The measurements of one trial.
//!
//! Absent is not zero: a figure that the workload lacks or the host cannot measure is `None`.

#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;

use latput_knobs::State;
use latput_stats::Histogram;
use latput_units::{CpuId, CpuSet, Nanos};
use serde::{Deserialize, Serialize};

mod join;

use crate::live::{LiveSlice, TcpGroup};
use crate::metric::{CustomMetric, Metric};
use crate::workload::{PayloadFlow, Traffic};

/// The measurements of one trial, over the measurement window without the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Counts of the traffic.
    pub traffic: TrafficObservation,
    /// Round trips of the probe beside it.
    pub probe: Option<ProbeObservation>,
    /// Counts of each host, in the order of the testbed.
    pub hosts: Vec<HostObservation>,
    /// The checks on this trial, passed and failed.
    pub checks: Vec<Check>,
    /// Figures that another program reported without the counts behind them. Each replaces the
    /// figure that latput would compute from its own counts.
    #[serde(rename = "given", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reported_metrics: BTreeMap<Metric, f64>,
    /// Figures of the plan's own metrics, each finite. In files each has its definition beside it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "crate::metric::by_name")]
    pub figures: BTreeMap<CustomMetric, f64>,
    /// CPU time that other programs reported for their end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramCpu>,
    /// Of a slice of live traffic with a setting that is not today's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveSlice>,
}

impl Observation {
    /// Every metric that it can have: the built-in ones, then those of its own figures by name.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> + '_ {
        let own = self.figures.keys().copied().map(Metric::Custom);
        Metric::ALL.iter().copied().chain(own)
    }

    /// Whether the check of this name ran and failed.
    pub fn has_failed(&self, check: &str) -> bool {
        self.checks.iter().any(|made| made.name == check && !made.passed)
    }
}

/// The CPU time that another program reported for its end. It is shown with its method, and never
/// compared with a figure of another method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramCpu {
    /// The end's role.
    pub role: Role,
    /// `iperf3`, `netserver`.
    pub program: String,
    /// The counted CPU time.
    pub method: CpuMethod,
    /// Busy share: of one CPU for a process (above 1 with several threads), of all CPUs for a host.
    pub busy_ratio: f64,
    /// Share of user code, of the same base.
    pub user_ratio: Option<f64>,
    /// Share of the kernel, of the same base.
    pub system_ratio: Option<f64>,
}

/// The CPU time that a program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuMethod {
    /// The program's own process (`getrusage`), without the network's soft interrupts.
    Process,
    /// The whole host, from `/proc/stat`, with waits for disks counted as busy (netperf).
    Host,
}

impl CpuMethod {
    /// The description in tables.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Process => "its own process only (getrusage), not comparable",
            Self::Host => "whole host, iowait counted as busy",
        }
    }
}

/// Counts of the load generator and the reflector in their windows.
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
    /// The flow from the system under test to the generator, where bulk flows that way.
    #[serde(default)]
    pub reverse: Option<FlowObservation>,
    /// Completed request/response transactions; objects of a `fetch`.
    pub transactions: Option<u64>,
    /// Round-trip time of every transaction. In an open loop it starts when the request was due
    /// (corrected: a stall counts for each request that it held up).
    pub latency: Option<Histogram>,
    /// Round-trip times of an open loop from when each request was sent.
    #[serde(default)]
    pub latency_raw: Option<Histogram>,
    /// Datagram bookkeeping at the receiver.
    pub datagrams: Option<DatagramObservation>,
    /// TCP segments that the connections sent again (`tcpi_total_retrans`, both ends).
    pub retransmits: Option<u64>,
    /// The offered rate (each way), where the workload has one.
    pub offered_bps: Option<f64>,
    /// Requests per second that were due in an open loop.
    #[serde(default)]
    pub offered_per_s: Option<f64>,
    /// CPU time of the traffic threads, sender's end.
    pub sender_cpu: Nanos,
    /// CPU time of the traffic threads, receiver's end.
    pub receiver_cpu: Nanos,
    /// Context switches of the traffic threads, sender's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_switches: Option<ContextSwitches>,
    /// Context switches of the traffic threads, receiver's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_switches: Option<ContextSwitches>,
    /// Share of its window that the busiest traffic thread was on a CPU, sender's end.
    #[serde(default)]
    pub busiest_ratio: Option<f64>,
}

/// Context switches of some threads (`getrusage(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextSwitches {
    /// Times that they waited: each ends in a wake-up.
    pub waits: u64,
    /// Times that they lost their CPU to others.
    pub preemptions: u64,
}

impl ContextSwitches {
    /// Those of both.
    #[must_use]
    pub const fn joined(self, other: Self) -> Self {
        Self {
            waits: self.waits.saturating_add(other.waits),
            preemptions: self.preemptions.saturating_add(other.preemptions),
        }
    }

    /// Those since an earlier count.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            waits: self.waits.saturating_sub(earlier.waits),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }
}

/// One direction of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowObservation {
    /// Payload bytes that the sending end handed to its kernel, in its window.
    pub sent_bytes: u64,
    /// Payload bytes that the receiving application got, in its window.
    pub received_bytes: u64,
}

impl TrafficObservation {
    /// Payload bits per second that receiving applications got, both directions together. Requests
    /// for objects are not payload. `None` where no time passed.
    pub fn goodput_bps(&self, traffic: &Traffic) -> Option<f64> {
        let reverse = match &self.reverse {
            Some(reverse) => bits_per_s(reverse.received_bytes, self.sender_window)?,
            None => 0.0,
        };
        match traffic.facts().payload {
            PayloadFlow::OnRequest => Some(reverse),
            PayloadFlow::ToSut | PayloadFlow::FromSut | PayloadFlow::Both => {
                Some(reverse + bits_per_s(self.received_bytes, self.receiver_window)?)
            }
        }
    }

    /// For bulk in both directions, the payload bits per second that the system under test got, and
    /// those that the generators got.
    pub fn goodput_each_way_bps(&self, traffic: &Traffic) -> Option<(f64, f64)> {
        let is_both = traffic.facts().payload == PayloadFlow::Both;
        let reverse = self.reverse.filter(|_| is_both)?;
        let to_sut = bits_per_s(self.received_bytes, self.receiver_window)?;
        Some((to_sut, bits_per_s(reverse.received_bytes, self.sender_window)?))
    }
}

fn bits_per_s(bytes: u64, window: Nanos) -> Option<f64> {
    let seconds = window.as_secs_f64();
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / seconds)
}

/// Datagrams by sequence number, at the receiver; for `udp_rr`, requests and their responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramObservation {
    /// Sent in the window.
    pub sent: u64,
    /// Sent in the window and received at least once.
    pub received: u64,
    /// Sent in the window and never received.
    pub lost: u64,
    /// Received after a later one (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Received more than once.
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
    /// Requests that were answered.
    pub received: u64,
    /// Round-trip times; min, mean, max and mdev follow from it.
    pub rtt: Histogram,
}

/// Counts of one host's kernel in the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostObservation {
    /// The host's name in the testbed.
    pub host: String,
    /// Its role in this trial.
    pub role: Role,
    /// Start of the window on the host's own wall clock, in nanoseconds since 1970: to find the window
    /// in a capture or a log of that host. `None` in a simulated host, and in rows of before it was
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_started_unix_ns: Option<u64>,
    /// Length of the window.
    pub window: Nanos,
    /// This host's CPUs, each with the best source of CPU time there was (`accounting`).
    pub cpus: Vec<CpuObservation>,
    /// The source of the CPU times, and the figures of other sources.
    #[serde(default)]
    pub accounting: CpuAccounting,
    /// The sum of the machine's other CPUs, from their own lines.
    pub other_cpus: CpuTime,
    /// The machine that the host runs on, from the kernel's total line: the parts of co-located
    /// hosts must add up to it.
    pub machine: CpuTime,
    /// CPU time of this host's NAPI kernel threads, if it has any.
    pub napi_threads_cpu: Option<Nanos>,
    /// CPU time that latput's counter sampling took on this host.
    pub sampling_cpu: Nanos,
    /// CPU time that tracing took in the window: of its BPF programs as the kernel counts it, and of reading what they saw.
    /// `None` where nothing was traced in the window, or the kernel does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing_cpu: Option<Nanos>,
    /// CPU time of processes on the host's CPUs that are not part of the trial; `None` where they cannot be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_work_cpu: Option<Nanos>,
    /// The busiest of those processes. For slices they are in the last slice of a stint, and are of the whole stint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherProcess>,
    /// NAPI polls on this host's CPUs, if the kernel shows them.
    pub napi: Option<NapiObservation>,
    /// `NET_RX` and `NET_TX` softirq runs on this host's CPUs.
    pub softirqs: u64,
    /// Hardware interrupts on this host's CPUs.
    pub interrupts: u64,
    /// Events of the kernel that take CPU time, beside interrupts, polls and packets.
    #[serde(default, skip_serializing_if = "KernelEvents::is_empty")]
    pub events: KernelEvents,
    /// The measured interface's counters.
    pub interface: InterfaceCounters,
    /// Packets of the interface, in and out, in each tenth of a second of the window. They show
    /// whether the load was steady.
    #[serde(default)]
    pub packets_per_interval: Vec<u64>,
    /// TCP segments sent again, whole host (`RetransSegs`).
    pub tcp_retransmitted: u64,
    /// UDP datagrams dropped for want of socket buffer (`RcvbufErrors`).
    pub udp_receive_buffer_errors: u64,
    /// Advance of the host's wall clock over its monotonic one in the window, in nanoseconds: a
    /// change by somebody or, below 0.05% of the window, NTP's correction (`adjtimex(2)`).
    #[serde(default)]
    pub wall_clock_step_ns: i64,
    /// The knobs as read before the trial.
    pub state: State,
    /// The kernel's view of the host's TCP connections, where live traffic is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpObservation>,
    /// The same of the busiest ports or peers, and of the other connections, where live traffic is told apart by them. The
    /// deviations of the round-trip times are not kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp_groups: BTreeMap<TcpGroup, TcpObservation>,
}

/// Figures of the kernel on TCP connections (`sock_diag(7)`), read again and again in the window, and of each at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpObservation {
    /// How often they were read.
    pub readings: u64,
    /// Most connections of a reading.
    pub connections: u64,
    /// The smoothed round-trip time of each connection that had moved data since the reading before (`tcpi_rtt`).
    pub rtt: Histogram,
    /// Its mean deviation (`tcpi_rttvar`).
    pub rtt_deviation: Histogram,
    /// Each round-trip sample of each connection, to 1 us; empty where they could not be traced.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub rtt_samples: Histogram,
    /// Shortest round trip that any connection has had (`tcpi_min_rtt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<Nanos>,
    /// Segments sent again between readings.
    pub retransmitted: u64,
    /// Payload acknowledged by the other ends between readings.
    pub acked_bytes: u64,
    /// Payload received between readings.
    pub received_bytes: u64,
    /// Delivery rates of the connections (`tcpi_delivery_rate`), bytes per second, and their number: for a mean.
    pub delivery_bytes_per_s_sum: u64,
    /// Number of the rates in the sum.
    pub deliveries: u64,
    /// Connections that ended between readings. They are in the other figures. `None` where the kernel does not tell of ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Connections of the whole host that were seen for the first time, also those that do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seen: u64,
    /// Connections that the kernel opened meanwhile (`ActiveOpens` and `PassiveOpens` without `AttemptFails`): some were
    /// missed where these are more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub opened: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
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
    /// It makes the load.
    Generator,
    /// It only sends the probe.
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

/// A process beside the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherProcess {
    /// Its name, from `/proc/PID/comm`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// CPU time of its threads and of its finished children, as a share of one CPU.
    pub cpu_ratio: f64,
    /// The host's CPUs that its threads were last on; all that it may use where these are too few for its time.
    pub cpus: CpuSet,
    /// Times that its threads gave up or lost a CPU, per second of its life.
    pub switches_per_s: f64,
}

/// One CPU in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuObservation {
    /// The CPU.
    pub cpu: CpuId,
    /// Its time by kind.
    pub time: CpuTime,
}

/// The source of busy time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSource {
    /// Traced switches of tasks and interrupts, exact to the microsecond. Process time is split
    /// into user and system in proportion to the ticks.
    Trace,
    /// The window minus the kernel's own record of idle time, in nanoseconds. Where a span beside the window was traced
    /// ([`CpuAccounting::traced`]), the parts are as there, else in proportion to the ticks.
    Record,
    /// The window minus the kernel's exact idle time, in steps of 10 ms; the parts in proportion to
    /// the ticks.
    Idle,
    /// A timer that samples 100 to 1000 times a second (`/proc/stat`). Busy spells shorter than its
    /// tick can be missed. Rows from before the source was recorded have this one.
    #[default]
    Ticks,
    /// A simulated host with known times.
    Simulated,
}

impl CpuSource {
    /// The name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Record => "record",
            Self::Idle => "idle",
            Self::Ticks => "ticks",
            Self::Simulated => "simulated",
        }
    }
}

/// The method of counting a host's CPU time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAccounting {
    /// The source of `cpus`.
    pub source: CpuSource,
    /// The same CPUs in the same window by the ticks of `/proc/stat`; empty if ticks are the
    /// source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<CpuObservation>,
    /// Busy time of all CPUs by exact idle time, in steps of 10 ms a CPU; `None` if that is the
    /// source or is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_by_idle: Option<Nanos>,
    /// Length of the span beside the window in which CPU time and polls were traced: the parts of `cpus` and the polls
    /// are in its proportion. `None` if there was none, or the window itself was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced: Option<Nanos>,
}

/// CPU time as `/proc/stat` splits it. `user` includes `guest`, which is not counted again.
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
    /// Stolen by the hypervisor.
    pub steal: Nanos,
    /// Idle.
    pub idle: Nanos,
    /// Idle while a disk request was under way.
    pub iowait: Nanos,
}

impl CpuTime {
    /// Busy = total - idle - iowait - steal: user + system + irq + softirq. Stolen time is neither
    /// busy nor idle.
    pub fn busy(&self) -> Nanos {
        [self.system, self.irq, self.softirq].into_iter().fold(self.user, Nanos::saturating_add)
    }

    /// All time, including idle and stolen time.
    pub fn total(&self) -> Nanos {
        [self.steal, self.idle, self.iowait].into_iter().fold(self.busy(), Nanos::saturating_add)
    }
}

impl std::ops::Add for CpuTime {
    type Output = Self;

    /// Saturates, because a results file may hold any number.
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
    /// The system under test, of which only connections are known: some of those that `host` saw in its window.
    #[must_use]
    pub fn of_connections(host: &Self, seen: &TcpObservation) -> Self {
        Self { role: Role::Sut, window: host.window, tcp: Some(seen.clone()), ..Self::default() }
    }

    /// The time of all of the host's CPUs together.
    pub fn cpu(&self) -> CpuTime {
        self.cpus.iter().map(|cpu| cpu.time).sum()
    }

    /// The CPU time of all of the host's CPUs by the ticks of `/proc/stat`.
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

/// Events that the kernel counts on a host, each `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelEvents {
    /// Expiries of the timers of the host's CPUs: a part of its interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer_interrupts: Option<u64>,
    /// Interrupts that the host's CPUs got from other CPUs, such as for wake-ups: a part of its interrupts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_interrupts: Option<u64>,
    /// TCP segments and UDP datagrams that the protocols received, those that GRO merged as one (`Tcp InSegs`,
    /// `Udp InDatagrams`), in the network namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u64>,
    /// Times that the host's CPUs entered an idle state in which they poll for work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_polls: Option<u64>,
    /// Times that they entered one in which they sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_sleeps: Option<u64>,
    /// Times that the NAPI threads waited for work: each ends in a wake-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_waits: Option<u64>,
    /// Times that the NAPI threads lost their CPU to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub napi_preemptions: Option<u64>,
}

impl KernelEvents {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Combines each count with that of `other`. A count that one of them lacks is absent.
    ///
    /// # Errors
    ///
    /// The error of `combine`, which gets the name of the count.
    pub fn combine<E>(
        &self,
        other: &Self,
        mut combine: impl FnMut(&'static str, u64, u64) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let mut both = |name, one: Option<u64>, two: Option<u64>| {
            one.zip(two).map(|(one, two)| combine(name, one, two)).transpose()
        };
        Ok(Self {
            timer_interrupts: both(
                "timer interrupts",
                self.timer_interrupts,
                other.timer_interrupts,
            )?,
            cpu_interrupts: both(
                "interrupts between CPUs",
                self.cpu_interrupts,
                other.cpu_interrupts,
            )?,
            segments: both("segments received", self.segments, other.segments)?,
            idle_polls: both(
                "entries into polling idle states",
                self.idle_polls,
                other.idle_polls,
            )?,
            idle_sleeps: both("entries into idle states", self.idle_sleeps, other.idle_sleeps)?,
            napi_waits: both("waits of NAPI threads", self.napi_waits, other.napi_waits)?,
            napi_preemptions: both(
                "preemptions of NAPI threads",
                self.napi_preemptions,
                other.napi_preemptions,
            )?,
        })
    }
}

/// NAPI polls and their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NapiObservation {
    /// Number of polls.
    pub polls: u64,
    /// Packets that the polls handled.
    pub packets: u64,
    /// Polls without a packet.
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

/// One check on a trial. A trial that fails one is marked. [`crate::check::CHECKS`] says what that voids; what is out is
/// told with the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check: `packets-per-transaction`, `cpu-parts-add-up`, `steal`.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// The figures, in a sentence.
    pub detail: String,
}
