//! Samples of a host's counters, and what two of them say about the time between.
//!
//! CPU time is in `counters/cpu.rs`.

mod cpu;
mod idle;
pub(crate) mod parse;
mod protocols;
mod traced;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use latput_knobs::State;
use latput_trial::observation::{
    HostObservation, InterfaceCounters, KernelEvents, NapiObservation, Role,
};
use latput_units::{Clock, CpuSet, Nanos};

use self::cpu::{CpuCounters, CpuSample};
use self::idle::IdleCounters;
use crate::bpf::{NapiTracer, RunTimeCount};
use crate::error::Error;
use crate::lab::known_napi_threads;
use crate::process::{OsClock, cpu_time_of, thread_cpu_time, wall_clock};
use crate::route::Route;

pub use cpu::CpuMeter;
pub use protocols::{ProtocolMeter, Protocols};
pub use traced::Traced;

/// The softirqs that are the network's.
const NET_SOFTIRQS: &[&[u8]] = &[b"NET_RX", b"NET_TX"];

/// A reading that waited longer than this for the CPU was interrupted: 0.05% of a slice's window.
const INTERRUPTED: Nanos = Nanos::from_us(100);
/// Readings until one that was interrupted is taken.
const ATTEMPTS: usize = 4;

/// Reads one host's counters. Belongs to the network namespace of the thread that opened it.
///
/// Files stay open and buffers are kept. The cost of all samples so far is part of every sample. It
/// grows with the number of CPUs times interrupts; on machines with hundreds of CPUs sample only at
/// the ends of a window.
#[derive(Debug)]
pub struct Sampler {
    cpus: CpuSet,
    interface_index: u32,
    route: Route,
    cpu: CpuCounters,
    softirqs: ProcFile,
    interrupts: ProcFile,
    snmp: ProcFile,
    idle: Option<IdleCounters>,
    napi_threads: Vec<u32>,
    tracer: Result<NapiTracer, Error>,
    cost: Nanos,
}

impl Sampler {
    /// Opens the counters of `interface` in the calling thread's namespace, and those of `cpus`, the
    /// host's own. Open it anew after what makes NAPI instances anew (`gro`, queues): the kernel
    /// threads are looked up here.
    pub fn open(interface: &str, cpus: &CpuSet) -> Result<Self, Error> {
        let route = Route::open()?;
        let interface_index = route.link(interface)?.index;
        let mut sampler = Self {
            cpus: cpus.clone(),
            interface_index,
            route,
            cpu: CpuCounters::open(cpus)?,
            softirqs: ProcFile::open("/proc/softirqs")?,
            interrupts: ProcFile::open("/proc/interrupts")?,
            snmp: ProcFile::open(parse::SNMP)?,
            idle: IdleCounters::open(cpus),
            napi_threads: known_napi_threads(interface)?,
            tracer: NapiTracer::load(cpus),
            cost: Nanos::ZERO,
        };
        sampler.start_tracing();
        if sampler.cpu.record_obstacle().is_none() {
            sampler.stop_tracing();
        }
        Ok(sampler)
    }

    /// Why CPU time cannot be traced; `None` when it can.
    pub fn trace_obstacle(&self) -> Option<&Error> {
        self.cpu.obstacle()
    }

    /// Why the kernel's record of idle time cannot be read, so that CPU time is traced in each window; `None` when it can.
    pub fn record_obstacle(&self) -> Option<&Error> {
        self.cpu.record_obstacle()
    }

    /// Attaches what traces CPU time and polls, as far as it can be, until [`Sampler::stop_tracing`]. It slows what it
    /// measures. Where the kernel's record of idle time cannot be read, it is attached from the beginning.
    pub fn start_tracing(&mut self) {
        self.cpu.start_tracing();
        if let Ok(tracer) = &mut self.tracer
            && let Err(error) = tracer.start()
        {
            self.tracer = Err(error);
        }
    }

    /// Detaches it.
    pub fn stop_tracing(&mut self) {
        self.cpu.stop_tracing();
        if let Ok(tracer) = &mut self.tracer {
            tracer.stop();
        }
    }

    /// Looks the NAPI threads up anew, as after what makes NAPI instances anew (`gro`, queues, `threaded`).
    pub fn look_up_threads(&mut self, interface: &str) -> Result<(), Error> {
        self.napi_threads = known_napi_threads(interface)?;
        Ok(())
    }

    /// Lets the kernel count the run time of what traces, from now on. It slows all BPF programs of the machine a little, so it
    /// is for a short span. `None` where nothing traces, or the kernel does not count.
    pub fn count_run_time(&self) -> Option<TracingCost<'_>> {
        self.is_tracing().then(|| TracingCost::start(self)).flatten()
    }

    /// Whether anything is attached.
    pub fn is_tracing(&self) -> bool {
        self.cpu.is_tracing() || self.tracer.as_ref().is_ok_and(NapiTracer::is_running)
    }

    fn run_time(&self) -> Option<Nanos> {
        let of_polls = self.tracer.as_ref().ok().map(NapiTracer::run_time);
        let all = self.cpu.run_time().into_iter().chain(of_polls);
        all.sum::<std::io::Result<Nanos>>().ok()
    }

    /// Why NAPI polls cannot be counted; `None` when they can.
    pub fn napi_obstacle(&self) -> Option<&Error> {
        self.tracer.as_ref().err()
    }

    /// Reads only the interface's counters: cheap enough for ten times a second.
    pub fn snapshot(&mut self) -> Result<CounterSnapshot, Error> {
        let start = thread_cpu_time();
        let interface = self.route.counters(self.interface_index)?;
        let at = OsClock.now();
        self.cost = self.cost + thread_cpu_time().saturating_sub(start);
        Ok(CounterSnapshot { at, interface })
    }

    /// Reads everything once.
    pub fn sample(&mut self) -> Result<Sample, Error> {
        let start = thread_cpu_time();
        let (cpu, interface) = self.sample_at_once()?;
        let at = cpu.at;
        let wall_clock_ahead_ns = wall_clock().saturating_sub_unsigned(at.as_ns());
        let napi = match &self.tracer {
            Ok(tracer) if tracer.is_running() => {
                Some(tracer.read()?.into_iter().map(|(_, counts)| counts).fold(
                    NapiObservation::default(),
                    |sum, counts| NapiObservation {
                        polls: sum.polls + counts.polls,
                        packets: sum.packets + counts.packets,
                        empty_polls: sum.empty_polls + counts.empty_polls,
                    },
                ))
            }
            _ => None,
        };
        let snmp = self.snmp.read()?;
        let tcp = |field| parse::protocol_counter(parse::SNMP, snmp, "Tcp", field);
        let tcp_retransmitted = tcp("RetransSegs")?;
        let tcp_opened = tcp("ActiveOpens")?
            .saturating_add(tcp("PassiveOpens")?)
            .saturating_sub(tcp("AttemptFails")?);
        let udp_receive_buffer_errors =
            parse::protocol_counter(parse::SNMP, snmp, "Udp", "RcvbufErrors")?;
        let softirqs = parse::softirqs(self.softirqs.read()?, NET_SOFTIRQS, &self.cpus)?;
        let segments = tcp("InSegs")?.saturating_add(parse::protocol_counter(
            parse::SNMP,
            snmp,
            "Udp",
            "InDatagrams",
        )?);
        let interrupts = parse::interrupts(self.interrupts.read()?, &self.cpus)?;
        let events = self.read_events(interrupts, segments);
        let threads: Option<Vec<Nanos>> =
            self.napi_threads.iter().map(|&pid| cpu_time_of(pid)).collect();
        let napi_threads_cpu =
            threads.filter(|times| !times.is_empty()).map(|times| times.into_iter().sum());
        self.cost = self.cost + thread_cpu_time().saturating_sub(start);
        Ok(Sample {
            at,
            wall_clock_ahead_ns,
            cpu,
            softirqs,
            interrupts: interrupts.all,
            events,
            interface,
            napi,
            napi_threads_cpu,
            tcp_retransmitted,
            tcp_opened,
            udp_receive_buffer_errors,
            cost: self.cost,
        })
    }

    /// The events beside those that are counted always. Counters that this kernel lacks are absent.
    fn read_events(&self, interrupts: parse::InterruptCounts, segments: u64) -> KernelEvents {
        let idle = self.idle.as_ref().and_then(IdleCounters::read);
        let switches: Option<Vec<(u64, u64)>> =
            self.napi_threads.iter().map(|&pid| context_switches_of(pid)).collect();
        let switches = switches.filter(|all| !all.is_empty()).map(|all| {
            all.iter().fold((0_u64, 0_u64), |sum, of| {
                (sum.0.saturating_add(of.0), sum.1.saturating_add(of.1))
            })
        });
        KernelEvents {
            timer_interrupts: interrupts.timer,
            cpu_interrupts: interrupts.between_cpus,
            segments: Some(segments),
            idle_polls: idle.map(|idle| idle.polls),
            idle_sleeps: idle.map(|idle| idle.sleeps),
            napi_waits: switches.map(|(waits, _)| waits),
            napi_preemptions: switches.map(|(_, preemptions)| preemptions),
        }
    }

    /// Reads the counters that are divided by the window without another process in between: where the host's CPUs are
    /// busy, one could take milliseconds, a hundredth of a short window.
    fn sample_at_once(&mut self) -> Result<(CpuSample, InterfaceCounters), Error> {
        let mut best: Option<(Nanos, CpuSample, InterfaceCounters)> = None;
        for _ in 0..ATTEMPTS {
            let begun = OsClock.now();
            let cpu_begun = thread_cpu_time();
            let sample = (self.cpu.sample()?, self.route.counters(self.interface_index)?);
            let own = thread_cpu_time().saturating_sub(cpu_begun);
            let waited = OsClock.now().saturating_sub(begun).saturating_sub(own);
            if best.as_ref().is_none_or(|(least, ..)| waited < *least) {
                best = Some((waited, sample.0, sample.1));
            }
            if waited <= INTERRUPTED {
                break;
            }
        }
        let (_, cpu, interface) = best.expect("at least one attempt");
        Ok((cpu, interface))
    }
}

/// A span in which the kernel counts the run time of what traces.
#[derive(Debug)]
pub struct TracingCost<'a> {
    sampler: &'a Sampler,
    begun: (Nanos, Nanos),
    _count: RunTimeCount,
}

impl<'a> TracingCost<'a> {
    fn start(sampler: &'a Sampler) -> Option<Self> {
        let count = RunTimeCount::start().ok()?;
        Some(Self { sampler, begun: (OsClock.now(), sampler.run_time()?), _count: count })
    }

    /// Ends the span. Returns the share of a CPU that the programs took.
    pub fn end(self) -> Option<f64> {
        let (at, before) = self.begun;
        let time = self.sampler.run_time()?.saturating_sub(before);
        let span = OsClock.now().saturating_sub(at).as_secs_f64();
        (span > 0.0).then(|| time.as_secs_f64() / span)
    }
}

/// An interface's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// The counters.
    pub interface: InterfaceCounters,
}

/// A host's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// How far the wall clock is ahead of it, nanoseconds.
    pub wall_clock_ahead_ns: i64,
    /// Where the CPUs' time went.
    cpu: CpuSample,
    /// `NET_RX` and `NET_TX` softirq runs on the host's CPUs.
    pub softirqs: u64,
    /// Interrupts on the host's CPUs.
    pub interrupts: u64,
    /// Other events.
    pub events: KernelEvents,
    /// The interface's counters.
    pub interface: InterfaceCounters,
    /// NAPI polls on the host's CPUs; `None` while they are not traced.
    pub napi: Option<NapiObservation>,
    /// CPU time of the NAPI kernel threads; `None` where there are none, or one has ended.
    pub napi_threads_cpu: Option<Nanos>,
    /// TCP segments sent again, whole host.
    pub tcp_retransmitted: u64,
    /// TCP connections opened from either end, without those that came to nothing, whole host.
    pub tcp_opened: u64,
    /// UDP datagrams dropped for want of socket buffer, whole host.
    pub udp_receive_buffer_errors: u64,
    /// CPU time that all samples so far took, this one included.
    pub cost: Nanos,
}

impl Sample {
    /// Differences from this sample to `later`. A counter that went backwards is an error that names it, and never a
    /// huge number.
    pub fn until(
        &self,
        later: &Self,
        host: &str,
        role: Role,
        state: State,
    ) -> Result<HostObservation, Error> {
        let cpu = self.cpu.until(&later.cpu)?;
        let between = |counter: &str, earlier: Nanos, later: Nanos| {
            difference(counter, earlier.as_ns(), later.as_ns()).map(Nanos::from_ns)
        };
        let napi_threads_cpu = match (self.napi_threads_cpu, later.napi_threads_cpu) {
            (Some(first), Some(second)) => {
                Some(between("CPU time of NAPI threads", first, second)?)
            }
            _ => None,
        };
        let napi = match (self.napi, later.napi) {
            (Some(first), Some(second)) => Some(polls_between(&first, &second)?),
            _ => None,
        };
        Ok(HostObservation {
            host: host.to_owned(),
            role,
            window_started_unix_ns: self.at.as_ns().checked_add_signed(self.wall_clock_ahead_ns),
            window: between("CLOCK_MONOTONIC", self.at, later.at)?,
            cpus: cpu.cpus,
            accounting: cpu.accounting,
            other_cpus: cpu.other_cpus,
            machine: cpu.machine,
            napi_threads_cpu,
            sampling_cpu: between("CPU time of sampling", self.cost, later.cost)?,
            tracing_cpu: None,
            napi,
            softirqs: difference("/proc/softirqs: NET_*", self.softirqs, later.softirqs)?,
            interrupts: difference("/proc/interrupts", self.interrupts, later.interrupts)?,
            events: self.events.combine(&later.events, difference)?,
            interface: interface_between(&self.interface, &later.interface)?,
            other_work_cpu: None,
            others: Vec::new(),
            packets_per_interval: Vec::new(),
            tcp_retransmitted: difference(
                "/proc/net/snmp: Tcp RetransSegs",
                self.tcp_retransmitted,
                later.tcp_retransmitted,
            )?,
            udp_receive_buffer_errors: difference(
                "/proc/net/snmp: Udp RcvbufErrors",
                self.udp_receive_buffer_errors,
                later.udp_receive_buffer_errors,
            )?,
            wall_clock_step_ns: later.wall_clock_ahead_ns.saturating_sub(self.wall_clock_ahead_ns),
            state,
            tcp: None,
            tcp_groups: BTreeMap::new(),
        })
    }
}

fn polls_between(
    earlier: &NapiObservation,
    later: &NapiObservation,
) -> Result<NapiObservation, Error> {
    Ok(NapiObservation {
        polls: difference("NAPI polls", earlier.polls, later.polls)?,
        packets: difference("NAPI packets", earlier.packets, later.packets)?,
        empty_polls: difference("empty NAPI polls", earlier.empty_polls, later.empty_polls)?,
    })
}

fn interface_between(
    earlier: &InterfaceCounters,
    later: &InterfaceCounters,
) -> Result<InterfaceCounters, Error> {
    Ok(InterfaceCounters {
        rx_packets: difference("rx_packets", earlier.rx_packets, later.rx_packets)?,
        rx_bytes: difference("rx_bytes", earlier.rx_bytes, later.rx_bytes)?,
        tx_packets: difference("tx_packets", earlier.tx_packets, later.tx_packets)?,
        tx_bytes: difference("tx_bytes", earlier.tx_bytes, later.tx_bytes)?,
        rx_dropped: difference("rx_dropped", earlier.rx_dropped, later.rx_dropped)?,
        tx_dropped: difference("tx_dropped", earlier.tx_dropped, later.tx_dropped)?,
    })
}

fn difference(counter: &str, earlier: u64, later: u64) -> Result<u64, Error> {
    later.checked_sub(earlier).ok_or_else(|| Error::Backwards {
        counter: counter.to_owned(),
        earlier,
        later,
    })
}

/// How often a process or thread waited, and how often it lost its CPU; `None` when there is none such.
fn context_switches_of(pid: u32) -> Option<(u64, u64)> {
    parse::context_switches(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// A `/proc` file that is read again and again into the same buffer.
#[derive(Debug)]
struct ProcFile {
    path: &'static str,
    file: File,
    buffer: Vec<u8>,
}

impl ProcFile {
    fn open(path: &'static str) -> Result<Self, Error> {
        let file =
            File::open(path).map_err(|source| Error::system(format!("open {path}"), source))?;
        Ok(Self { path, file, buffer: vec![0; 16 << 10] })
    }

    /// The whole file as it is now.
    fn read(&mut self) -> Result<&[u8], Error> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(2 * length, 0);
            }
            // A read may end at a record's end before the file does; only an empty one is the end.
            let count = self
                .file
                .read_at(&mut self.buffer[length..], length as u64)
                .map_err(|source| Error::system(format!("read {}", self.path), source))?;
            if count == 0 {
                return Ok(&self.buffer[..length]);
            }
            length += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_make_an_observation() {
        let (earlier, later) = samples();
        let seen = earlier.until(&later, "b", Role::Sut, State::default()).unwrap();
        assert_eq!((seen.host.as_str(), seen.role), ("b", Role::Sut));
        assert_eq!(seen.window, Nanos::from_s(1));
        assert_eq!(
            seen.window_started_unix_ns,
            Some(1_500_000_000),
            "the wall clock is 0.5 s ahead"
        );
        assert_eq!((seen.interface.rx_packets, seen.tcp_retransmitted), (50, 1));
        assert_eq!(seen.napi_threads_cpu, None, "one sample has none");
    }

    #[test]
    fn counter_that_goes_backwards_is_named() {
        check_backwards(|later| later.interface.rx_packets = 0, "rx_packets");
        check_backwards(|later| later.tcp_retransmitted = 0, "RetransSegs");
        check_backwards(|later| later.at = Nanos::ZERO, "CLOCK_MONOTONIC");
    }

    fn samples() -> (Sample, Sample) {
        let sample = |at_s, packets| Sample {
            at: Nanos::from_s(at_s),
            interface: InterfaceCounters { rx_packets: packets, ..InterfaceCounters::default() },
            tcp_retransmitted: at_s,
            wall_clock_ahead_ns: 500_000_000,
            ..Sample::default()
        };
        let mut later = sample(2, 150);
        later.napi_threads_cpu = Some(Nanos::from_ms(1));
        (sample(1, 100), later)
    }

    #[track_caller]
    fn check_backwards(damage: impl FnOnce(&mut Sample), name: &str) {
        let (earlier, mut later) = samples();
        damage(&mut later);
        let error = earlier.until(&later, "b", Role::Sut, State::default()).unwrap_err();
        assert!(matches!(error, Error::Backwards { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}
