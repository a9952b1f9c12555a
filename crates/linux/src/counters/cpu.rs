//! Where CPU time went, from the best source that this kernel and these privileges give.
//!
//! `/proc/stat` is read always. Its idle time is exact where idle CPUs stop their tick (`NO_HZ_IDLE`, any
//! accounting mode; `get_idle_time`, fs/proc/stat.c), but in steps of 10 ms (`USER_HZ`). Its other fields are
//! counted at ticks (`TICK_CPU_ACCOUNTING`): spells shorter than a tick can go unseen, so the fields can miss
//! 40% of the window. So busy time is what idle time leaves of the window, from the kernel's own record in
//! nanoseconds where BPF can read it. Tracing each switch and interrupt (BPF) tells what it consists of. That slows
//! what is measured, so it is done beside the window (`counters/traced.rs`), and all the time only where the record
//! cannot be read.

use std::fs;

use latput_trial::observation::{CpuAccounting, CpuObservation, CpuSource, CpuTime};
use latput_units::{Clock, CpuSet, Nanos};

use super::{ProcFile, difference, parse};
use crate::bpf::{CpuSpans, CpuTracer, IdleReader, IdleTime};
use crate::error::Error;
use crate::process::OsClock;

/// Idle time and time waiting for a disk may go back a little: the kernel says so of `iowait`
/// (Documentation/filesystems/proc.rst, section 1.7), and a CPU that wakes from idle while it is read
/// is accounted twice for a moment. More than this is an error like any other.
const IDLE_TOLERANCE: Nanos = Nanos::from_ms(50);
/// Comparisons of the kernel's record with `/proc/stat`, of which one must fit: this thread may be held up between the two.
const COMPARISONS: usize = 5;

/// The sources of some CPUs' time, open.
#[derive(Debug)]
pub(super) struct CpuCounters {
    stat: ProcFile,
    tick: Nanos,
    cpus: CpuSet,
    tracer: Result<CpuTracer, Error>,
    record: Result<IdleReader, Error>,
    is_idle_exact: bool,
}

/// CPU times at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CpuSample {
    /// When, on the monotonic clock.
    pub(super) at: Nanos,
    /// The host's CPUs since boot, by ticks.
    ticks: Vec<CpuObservation>,
    /// The machine's other CPUs since boot, by ticks, summed.
    other_cpus: CpuTime,
    /// All CPUs of the machine since boot, by ticks, the kernel's own total.
    machine: CpuTime,
    /// The host's CPUs since the tracer began, while it runs.
    trace: Option<Vec<CpuSpans>>,
    /// The kernel's record of the host's CPUs.
    record: Option<Vec<IdleTime>>,
    is_idle_exact: bool,
}

/// CPU times between two moments, as a [`HostObservation`](latput_trial::observation::HostObservation) has them.
#[derive(Debug)]
pub(super) struct CpuWindow {
    pub(super) cpus: Vec<CpuObservation>,
    pub(super) accounting: CpuAccounting,
    pub(super) other_cpus: CpuTime,
    pub(super) machine: CpuTime,
}

impl CpuCounters {
    pub(super) fn open(cpus: &CpuSet) -> Result<Self, Error> {
        let mut counters = Self {
            stat: ProcFile::open("/proc/stat")?,
            tick: tick(),
            cpus: cpus.clone(),
            tracer: CpuTracer::load(cpus),
            record: IdleReader::open(cpus),
            is_idle_exact: is_idle_exact(),
        };
        if let Err(error) = counters.compare_record() {
            counters.record = Err(error);
        }
        Ok(counters)
    }

    /// Why time cannot be traced; `None` when it can.
    pub(super) fn obstacle(&self) -> Option<&Error> {
        self.tracer.as_ref().err()
    }

    /// Why the kernel's record of idle time cannot be read; `None` when it can.
    pub(super) fn record_obstacle(&self) -> Option<&Error> {
        self.record.as_ref().err()
    }

    /// Starts the tracer, unless there is an obstacle.
    pub(super) fn start_tracing(&mut self) {
        if let Ok(tracer) = &mut self.tracer
            && let Err(error) = tracer.start()
        {
            self.tracer = Err(error);
        }
    }

    /// Stops the tracer.
    pub(super) fn stop_tracing(&mut self) {
        if let Ok(tracer) = &mut self.tracer {
            tracer.stop();
        }
    }

    pub(super) fn is_tracing(&self) -> bool {
        self.tracer.as_ref().is_ok_and(CpuTracer::is_running)
    }

    /// Run time of the tracer's programs, if there is one.
    pub(super) fn run_time(&self) -> Option<std::io::Result<Nanos>> {
        self.tracer.as_ref().ok().map(CpuTracer::run_time)
    }

    /// Fails unless the record says of each CPU what `/proc/stat` says in ticks.
    fn compare_record(&mut self) -> Result<(), Error> {
        let Ok(record) = &self.record else { return Ok(()) };
        let mut apart = Nanos::ZERO;
        for _ in 0..COMPARISONS {
            let mut ticks = Vec::with_capacity(self.cpus.len());
            parse::cpu_times(self.stat.read()?, self.tick, &self.cpus, &mut ticks)?;
            let pairs = ticks.iter().zip(record.read()?);
            apart = pairs
                .map(|(ticks, record)| {
                    let idle = ticks.time.idle.saturating_add(ticks.time.iowait);
                    record.idle.saturating_sub(idle).max(idle.saturating_sub(record.idle))
                })
                .fold(Nanos::ZERO, Nanos::max);
            if apart <= IDLE_TOLERANCE {
                return Ok(());
            }
        }
        Err(Error::Other(format!(
            "the kernel's record of idle time is {} ms away from /proc/stat",
            apart.as_ms_f64()
        )))
    }

    pub(super) fn sample(&mut self) -> Result<CpuSample, Error> {
        let mut ticks = Vec::with_capacity(self.cpus.len());
        let (machine, other_cpus) =
            parse::cpu_times(self.stat.read()?, self.tick, &self.cpus, &mut ticks)?;
        // The clock right after the times: those two make ratios.
        let record = self.record.as_ref().ok().map(IdleReader::read).transpose()?;
        let (at, trace) = match &self.tracer {
            Ok(tracer) if tracer.is_running() => {
                let (at, spans) = tracer.read()?;
                (at, Some(spans))
            }
            _ => (OsClock.now(), None),
        };
        let is_idle_exact = self.is_idle_exact;
        Ok(CpuSample { at, ticks, other_cpus, machine, trace, record, is_idle_exact })
    }
}

impl CpuSample {
    /// Where the time went from this sample to `later`, of the same counters. A time that went backwards is an
    /// error that names it.
    pub(super) fn until(&self, later: &Self) -> Result<CpuWindow, Error> {
        let same_cpus = self.ticks.len() == later.ticks.len()
            && self.ticks.iter().zip(&later.ticks).all(|(first, second)| first.cpu == second.cpu);
        assert!(same_cpus, "samples of two samplers");
        let window =
            Nanos::from_ns(difference("CLOCK_MONOTONIC", self.at.as_ns(), later.at.as_ns())?);
        let mut ticks = Vec::with_capacity(self.ticks.len());
        for (first, second) in self.ticks.iter().zip(&later.ticks) {
            let name = format!("/proc/stat: cpu{}", first.cpu);
            let time = time_between(&name, &first.time, &second.time)?;
            ticks.push(CpuObservation { cpu: first.cpu, time });
        }
        let by_idle: Vec<CpuTime> =
            ticks.iter().map(|cpu| split_by_idle(&cpu.time, window)).collect();
        let busy_by_idle = self.is_idle_exact.then(|| by_idle.iter().map(CpuTime::busy).sum());
        let (source, times) = match (&self.trace, &later.trace) {
            (Some(first), Some(second)) => {
                let spans = first.iter().zip(second).zip(&ticks);
                let times = spans.map(|((first, second), ticks)| {
                    Ok(split_by_trace(&spans_between(first, second)?, &ticks.time))
                });
                (CpuSource::Trace, times.collect::<Result<_, Error>>()?)
            }
            _ => match self.busy_by_record(later)? {
                Some(busy) => {
                    let times = ticks.iter().zip(busy);
                    let times =
                        times.map(|(ticks, busy)| split_by_record(&ticks.time, window, busy));
                    (CpuSource::Record, times.collect())
                }
                None if self.is_idle_exact => (CpuSource::Idle, by_idle),
                None => (CpuSource::Ticks, ticks.iter().map(|cpu| cpu.time).collect()),
            },
        };
        let cpus = ticks.iter().zip(times).map(|(of, time)| CpuObservation { cpu: of.cpu, time });
        Ok(CpuWindow {
            cpus: cpus.collect(),
            accounting: CpuAccounting {
                source,
                ticks: if source == CpuSource::Ticks { Vec::new() } else { ticks },
                busy_by_idle: busy_by_idle
                    .filter(|_| matches!(source, CpuSource::Trace | CpuSource::Record)),
                traced: None,
            },
            other_cpus: time_between("/proc/stat: cpus", &self.other_cpus, &later.other_cpus)?,
            machine: time_between("/proc/stat: cpu", &self.machine, &later.machine)?,
        })
    }
}

impl CpuSample {
    /// By the kernel's record, the time from this sample to `later` in which each CPU was not idle: busy or stolen.
    pub(super) fn busy_by_record(&self, later: &Self) -> Result<Option<Vec<Nanos>>, Error> {
        let (Some(first), Some(second)) = (&self.record, &later.record) else { return Ok(None) };
        let busy = first.iter().zip(second).map(|(first, second)| {
            let window = difference("the kernel's clock", first.at.as_ns(), second.at.as_ns())?;
            // A sleep that lasts may turn out to have ended a moment before the clock was read.
            let idle = second.idle.saturating_sub(first.idle);
            Ok(Nanos::from_ns(window).saturating_sub(idle))
        });
        busy.collect::<Result<_, Error>>().map(Some)
    }

    /// The traced times from this sample to `later`.
    pub(super) fn traced(&self, later: &Self) -> Result<Option<Vec<CpuSpans>>, Error> {
        let (Some(first), Some(second)) = (&self.trace, &later.trace) else { return Ok(None) };
        let spans = first.iter().zip(second).map(|(first, second)| spans_between(first, second));
        spans.collect::<Result<_, Error>>().map(Some)
    }
}

/// The tick of `/proc/stat`.
fn tick() -> Nanos {
    Nanos::from_ns(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Whether an idle CPU's tick stops, so that its idle time is counted by the clock and not by ticks. The kernel
/// tells only root (`.nohz` in `/proc/timer_list`, 0 where ticks are periodic). Unknown counts as yes: with
/// periodic ticks the fields cover the window, and what idle leaves of it is what the ticks say.
fn is_idle_exact() -> bool {
    let Ok(text) = fs::read_to_string("/proc/timer_list") else { return true };
    let mut modes = text.lines().filter_map(|line| line.trim().strip_prefix(".nohz"));
    modes.all(|mode| !mode.trim_start_matches([' ', ':']).starts_with('0'))
}

/// Busy time as what idle and stolen time leave of the window, in the proportion of the ticks.
fn split_by_idle(ticks: &CpuTime, window: Nanos) -> CpuTime {
    let rest = [ticks.idle, ticks.iowait, ticks.steal];
    let busy = rest.into_iter().fold(window, Nanos::saturating_sub);
    let counted = ticks.busy();
    let [user, irq, softirq] =
        [ticks.user, ticks.irq, ticks.softirq].map(|part| scale_share(busy, part, counted));
    let others = [user, irq, softirq].into_iter().fold(Nanos::ZERO, Nanos::saturating_add);
    CpuTime { user, system: busy.saturating_sub(others), irq, softirq, ..*ticks }
}

/// Times of a CPU that was not idle for `busy` of the window, stolen time included; the parts in the proportion of the
/// ticks.
fn split_by_record(ticks: &CpuTime, window: Nanos, busy: Nanos) -> CpuTime {
    let idle = window.saturating_sub(busy);
    let iowait = ticks.iowait.min(idle);
    split_by_idle(&CpuTime { idle: idle.saturating_sub(iowait), iowait, ..*ticks }, window)
}

/// Traced times, with stolen time and what of idle was waiting for a disk from `ticks`. Stolen time passes while
/// the CPU has something to run; it is taken from process time, as far as there is any.
pub(super) fn split_by_trace(spans: &CpuSpans, ticks: &CpuTime) -> CpuTime {
    let steal = ticks.steal.min(spans.process);
    let process = spans.process.saturating_sub(steal);
    let user = scale_share(process, ticks.user, ticks.user.saturating_add(ticks.system));
    let iowait = ticks.iowait.min(spans.idle);
    CpuTime {
        user,
        system: process.saturating_sub(user),
        irq: spans.irq,
        softirq: spans.softirq,
        steal,
        idle: spans.idle.saturating_sub(iowait),
        iowait,
    }
}

/// `amount * part / whole`; none of it where there is no whole.
fn scale_share(amount: Nanos, part: Nanos, whole: Nanos) -> Nanos {
    let product = u128::from(amount.as_ns()) * u128::from(part.as_ns());
    let share = product.checked_div(u128::from(whole.as_ns())).unwrap_or(0);
    Nanos::from_ns(u64::try_from(share).unwrap_or(u64::MAX)).min(amount)
}

fn spans_between(first: &CpuSpans, second: &CpuSpans) -> Result<CpuSpans, Error> {
    let part = |name: &str, first: Nanos, second: Nanos| {
        // An interrupt's time may be taken back from the state below it, a few microseconds.
        if first.saturating_sub(second) <= Nanos::from_ms(1) {
            return Ok(second.saturating_sub(first));
        }
        difference(name, first.as_ns(), second.as_ns()).map(Nanos::from_ns)
    };
    Ok(CpuSpans {
        idle: part("traced idle time", first.idle, second.idle)?,
        process: part("traced process time", first.process, second.process)?,
        softirq: part("traced softirq time", first.softirq, second.softirq)?,
        irq: part("traced irq time", first.irq, second.irq)?,
    })
}

fn time_between(name: &str, earlier: &CpuTime, later: &CpuTime) -> Result<CpuTime, Error> {
    let part = |part: &str, earlier: Nanos, later: Nanos| {
        difference(&format!("{name} {part}"), earlier.as_ns(), later.as_ns()).map(Nanos::from_ns)
    };
    let idle_part = |name: &str, earlier: Nanos, later: Nanos| {
        if earlier.saturating_sub(later) <= IDLE_TOLERANCE {
            Ok(later.saturating_sub(earlier))
        } else {
            part(name, earlier, later)
        }
    };
    Ok(CpuTime {
        user: part("user", earlier.user, later.user)?,
        system: part("system", earlier.system, later.system)?,
        irq: part("irq", earlier.irq, later.irq)?,
        softirq: part("softirq", earlier.softirq, later.softirq)?,
        steal: part("steal", earlier.steal, later.steal)?,
        idle: idle_part("idle", earlier.idle, later.idle)?,
        iowait: idle_part("iowait", earlier.iowait, later.iowait)?,
    })
}

/// Reads the CPU time of the whole machine; cheaper than a [`Sampler`](super::Sampler).
#[derive(Debug)]
pub struct CpuMeter {
    stat: ProcFile,
    tick: Nanos,
    is_idle_exact: bool,
    cpus: u64,
}

impl CpuMeter {
    /// Opens `/proc/stat`.
    pub fn open() -> Result<Self, Error> {
        let cpus = crate::process::online_cpus()?.len() as u64;
        let is_idle_exact = is_idle_exact();
        Ok(Self { stat: ProcFile::open("/proc/stat")?, tick: tick(), is_idle_exact, cpus })
    }

    /// The time of all CPUs: since boot by the kernel's own total, of which the busy parts, where idle time is
    /// exact, are what idle leaves of all the time since boot. Differences of two readings are meant to be used.
    pub fn read(&mut self) -> Result<CpuTime, Error> {
        let none = CpuSet::default();
        let ticks = parse::cpu_times(self.stat.read()?, self.tick, &none, &mut Vec::new())?.0;
        if !self.is_idle_exact {
            return Ok(ticks);
        }
        let all = OsClock.now().as_ns().saturating_mul(self.cpus);
        Ok(split_by_idle(&ticks, Nanos::from_ns(all)))
    }
}

#[cfg(test)]
mod tests {
    use latput_units::CpuId;

    use super::*;

    #[test]
    fn what_ticks_miss_is_busy_all_the_same() {
        let (first, later) = samples();
        let seen = first.until(&later).unwrap();
        assert_eq!(seen.accounting.source, CpuSource::Idle);
        // 1 s, of which 600 ms idle and 20 ms stolen; ticks saw 100 of the other 380 ms.
        let time = seen.cpus[0].time;
        assert_eq!(time.busy(), Nanos::from_ms(380));
        assert_eq!(time.total(), Nanos::from_s(1));
        assert_eq!(time.user, Nanos::from_ms(38), "a tenth, as ticks say");
        assert_eq!(seen.accounting.ticks[0].time.busy(), Nanos::from_ms(100));
    }

    #[test]
    fn traced_spans_are_preferred() {
        let (mut first, mut later) = samples();
        let ms = |idle, process, softirq, irq| {
            let [idle, process, softirq, irq] = [idle, process, softirq, irq].map(Nanos::from_ms);
            Some(vec![CpuSpans { idle, process, softirq, irq }])
        };
        first.trace = ms(100, 50, 7, 3);
        later.trace = ms(710, 370, 60, 20);
        let seen = first.until(&later).unwrap();
        assert_eq!(seen.accounting.source, CpuSource::Trace);
        assert_eq!(seen.accounting.busy_by_idle, Some(Nanos::from_ms(380)));
        let time = seen.cpus[0].time;
        assert_eq!(time.total(), Nanos::from_s(1));
        assert_eq!((time.softirq, time.irq), (Nanos::from_ms(53), Nanos::from_ms(17)));
        assert_eq!(time.user, Nanos::from_ms(30), "a tenth of the process time without steal");
        assert_eq!(time.busy(), Nanos::from_ms(370));
    }

    #[test]
    fn kernels_record_is_the_source_of_totals() {
        let (mut first, mut later) = samples();
        let record = |at_ms, idle_us| {
            Some(vec![IdleTime { at: Nanos::from_ms(at_ms), idle: Nanos::from_us(idle_us) }])
        };
        first.record = record(1_000, 9_000_000);
        later.record = record(2_000, 9_612_345);
        let seen = first.until(&later).unwrap();
        assert_eq!(seen.accounting.source, CpuSource::Record);
        assert_eq!(seen.accounting.busy_by_idle, Some(Nanos::from_ms(380)), "in steps of 10 ms");
        let time = seen.cpus[0].time;
        assert_eq!(time.idle, Nanos::from_us(612_345));
        assert_eq!(time.busy(), Nanos::from_us(1_000_000 - 612_345 - 20_000), "without steal");
        assert_eq!(time.total(), Nanos::from_s(1));
    }

    #[test]
    fn periodic_ticks_are_taken_as_they_are() {
        let (mut first, later) = samples();
        first.is_idle_exact = false;
        let seen = first.until(&later).unwrap();
        assert_eq!(seen.accounting, CpuAccounting::default());
        assert_eq!(seen.cpus[0].time.busy(), Nanos::from_ms(100));
    }

    #[test]
    fn backward_times_are_named_but_idle_may() {
        let (first, later) = samples();
        let check = |damage: fn(&mut CpuTime), name: &str| {
            let mut later = later.clone();
            damage(&mut later.ticks[0].time);
            let error = first.until(&later).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        };
        check(|time| time.user = Nanos::ZERO, "cpu3 user");
        check(|time| time.idle = Nanos::ZERO, "cpu3 idle");
        let mut back = later;
        back.ticks[0].time.idle = first.ticks[0].time.idle.saturating_sub(Nanos::from_ms(20));
        assert_eq!(first.until(&back).unwrap().cpus[0].time.idle, Nanos::ZERO);
    }

    /// A second apart: by ticks 10 ms user, 90 system, 600 idle, 20 stolen.
    fn samples() -> (CpuSample, CpuSample) {
        let time = |user, system, idle, steal| {
            let [user, system, idle, steal] = [user, system, idle, steal].map(Nanos::from_ms);
            CpuTime { user, system, idle, steal, ..CpuTime::default() }
        };
        let sample = |at_s, time| CpuSample {
            at: Nanos::from_s(at_s),
            ticks: vec![CpuObservation { cpu: CpuId(3), time }],
            machine: time,
            is_idle_exact: true,
            ..CpuSample::default()
        };
        (sample(1, time(10, 10, 9_000, 0)), sample(2, time(20, 100, 9_600, 20)))
    }
}
