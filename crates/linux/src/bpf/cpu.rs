//! Where each CPU's time goes, to the nanosecond, by BPF programs on the tracepoints of the idle loop, the
//! soft interrupts and the hard ones, and on each switch of tasks.
//!
//! Each event closes the span before it and adds it to the counter of the state that the CPU was in:
//! three bits, process (or idle), soft interrupt, hard interrupt. So an interrupt within a soft interrupt
//! within a process is told apart, and every nanosecond is in one counter.
//!
//! Idle is sleep and the idle task's way into it, nearly as in the kernel's own idle time
//! (`tick_nohz_start_idle` and `tick_nohz_stop_idle`, kernel/time/tick-sched.c): a virtual machine takes 9 us to
//! stop its tick, and that is no traffic's work. What follows a sleep, such as starting the tick again, is busy
//! time. So is a switch to the idle task and back without a sleep; the kernel counts about half of that as idle.
//! Soft interrupts that `ksoftirqd` runs are soft interrupts; a NAPI thread is a process.

use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;

use latput_units::{Clock, CpuSet, Nanos};

use super::code::{
    ADD, AND, AND_IMMEDIATE, ATOMIC, ATOMIC_ADD, ATOMIC_EXCHANGE, CALL, EXIT, JUMP_IF_EQUAL,
    JUMP_IF_NOT_EQUAL, KTIME_GET_NS, LOAD, MOVE, MOVE_IMMEDIATE, OR, OR_IMMEDIATE, SHIFT_LEFT,
    SHIFT_RIGHT, SHIFT_RIGHT_SIGNED, SUBTRACT, instruction, look_up,
};
use super::map::PerCpuMap;
use super::{btf, check_layout, load_program, open_tracepoint, require, run_time};
use crate::error::Error;
use crate::process::{self, OsClock, bind_thread};

/// Words in one CPU's slot: `now << 3 | state`, nanoseconds in each of the states.
const WORDS: usize = 1 + STATES;
const STATES: usize = 8;
/// Bits of the state.
const PROCESS: i32 = 1;
const SOFTIRQ: i32 = 2;
const IRQ: i32 = 4;
const STATE_BITS: i32 = 3;

/// Pairs of tracepoints around a hard interrupt: a device's, and those of the CPU itself, which x86 and
/// ARM trace under names of their own. A kernel without the latter has other pairs or none.
const IRQS: &[[&str; 2]] = &[
    ["irq_handler_entry", "irq_handler_exit"],
    ["local_timer_entry", "local_timer_exit"],
    ["reschedule_entry", "reschedule_exit"],
    ["call_function_single_entry", "call_function_single_exit"],
    ["call_function_entry", "call_function_exit"],
    ["ipi_entry", "ipi_exit"],
];

/// Reads of the map before a slot that changes all the time is given up.
const READS: usize = 100;

/// Time of one CPU since the tracer was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuSpans {
    pub(crate) idle: Nanos,
    pub(crate) process: Nanos,
    pub(crate) softirq: Nanos,
    pub(crate) irq: Nanos,
}

/// Counters of where the time of some CPUs goes. They run from [`CpuTracer::start`] to [`CpuTracer::stop`]; the programs
/// are loaded all the time, which costs nothing.
#[derive(Debug)]
pub(crate) struct CpuTracer {
    map: PerCpuMap<WORDS>,
    programs: Programs,
    /// The programs' links to tracepoints; none while it does not run.
    links: Vec<OwnedFd>,
    cpus: CpuSet,
    started: Nanos,
    clock: KernelClock,
}

impl CpuTracer {
    /// Prepares to count on `cpus`. Fails where the process may not, or the kernel cannot (before 5.12, or with
    /// `PREEMPT_RT`, where soft interrupts are preempted).
    pub(crate) fn load(cpus: &CpuSet) -> Result<Self, Error> {
        require("tracing CPU time")?;
        if Path::new("/sys/kernel/realtime").exists() {
            return Err(Error::Other("soft interrupts are preempted on this kernel".into()));
        }
        // `(void *, unsigned int state, unsigned int cpu)`
        check_layout("trace of CPU time", |bytes| btf::check_pointers(bytes, "cpu_idle", &[]))?;
        let map = PerCpuMap::create("CPU time")?;
        let programs = Programs::load(map.as_raw_fd())?;
        let (clock, started) = (KernelClock::open()?, Nanos::ZERO);
        Ok(Self { map, programs, links: Vec::new(), cpus: cpus.clone(), started, clock })
    }

    /// Starts counting from zero. Events of other CPUs return at once.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        self.stop();
        self.started = self.clock.convert(OsClock.now());
        let busy = self.started.as_ns() << STATE_BITS | u64::from(PROCESS.unsigned_abs());
        let slot = |cpu| {
            let word = if self.cpus.contains(cpu) { busy } else { 0 };
            std::array::from_fn(|idx| if idx == 0 { word } else { 0 })
        };
        let written = self.map.write(slot);
        written.map_err(|source| Error::system("write the BPF map of CPU time", source))?;
        self.links = self.programs.attach()?;
        self.wake_all()
    }

    /// Ends counting: nothing is attached any more.
    pub(crate) fn stop(&mut self) {
        self.links.clear();
    }

    /// Whether it counts.
    pub(crate) fn is_running(&self) -> bool {
        !self.links.is_empty()
    }

    /// Run time of its programs, as far as the kernel counted it.
    pub(crate) fn run_time(&self) -> std::io::Result<Nanos> {
        self.programs.all().into_iter().map(run_time).sum()
    }

    /// Wakes each CPU once: one that has slept since before the programs were attached counts as busy.
    fn wake_all(&self) -> Result<(), Error> {
        let visit = || -> Result<(), Error> {
            for cpu in self.cpus.iter() {
                bind_thread(&std::iter::once(cpu).collect())?;
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
            Ok(())
        };
        process::run_in_thread(visit)?
    }

    /// The instant, and the times from the start until then of each CPU in ascending order, its running span
    /// included.
    pub(crate) fn read(&self) -> Result<(Nanos, Vec<CpuSpans>), Error> {
        let failed = |source| Error::system("read the BPF map of CPU time", source);
        for _ in 0..READS {
            let slots = self.map.read().map_err(failed)?;
            let now = OsClock.now();
            let own = slots.filter(|(cpu, _)| self.cpus.contains(*cpu));
            let spans = own.map(|(_, slot)| spans(&slot, self.started, self.clock.convert(now)));
            if let Some(spans) = spans.collect() {
                return Ok((now, spans));
            }
        }
        Err(Error::Other("the BPF map of CPU time does not hold still to be read".into()))
    }
}

/// The clock that BPF programs read (`bpf_ktime_get_ns`): the kernel's, which no time namespace moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KernelClock {
    /// How far `CLOCK_MONOTONIC` of this process is ahead of it, nanoseconds.
    ahead_ns: i128,
}

impl KernelClock {
    const FILE: &str = "/proc/self/timens_offsets";

    /// Without time namespaces (before Linux 5.6) the two are one.
    fn open() -> Result<Self, Error> {
        match std::fs::read_to_string(Self::FILE) {
            Ok(text) => Self::parse(&text)
                .ok_or_else(|| Error::parse(Self::FILE, "the offset of `monotonic`", &text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::system(format!("read {}", Self::FILE), error)),
        }
    }

    /// `CLOCK SECONDS NANOSECONDS` (see `time_namespaces(7)`); kernels write the clock as a name, or as 1.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().map(str::split_whitespace);
        let mut words = line.into_iter().find_map(|mut words| {
            matches!(words.next(), Some("monotonic" | "1")).then_some(words)
        })?;
        let (seconds, ns): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { ahead_ns: i128::from(seconds) * 1_000_000_000 + i128::from(ns) })
    }

    /// The kernel clock's time at an instant of this process's clock.
    fn convert(self, instant: Nanos) -> Nanos {
        let kernel = i128::from(instant.as_ns()) - self.ahead_ns;
        Nanos::from_ns(u64::try_from(kernel.max(0)).unwrap_or(u64::MAX))
    }
}

/// `None` where the slot was read while it was written: then its counters are not all the time until its
/// last event.
fn spans(slot: &[u64; WORDS], started: Nanos, now: Nanos) -> Option<CpuSpans> {
    let state = (slot[0] & 7) as usize;
    let last = slot[0] >> STATE_BITS;
    let mut states: [u64; STATES] = std::array::from_fn(|idx| slot[1 + idx]);
    let counted = states.iter().fold(0_u64, |sum, part| sum.wrapping_add(*part));
    if started.as_ns().wrapping_add(counted) != last {
        return None;
    }
    states[state] = states[state].wrapping_add(now.as_ns().saturating_sub(last));
    let [idle, process, softirq, softirq_too, irq @ ..] = states;
    Some(CpuSpans {
        idle: Nanos::from_ns(idle),
        process: Nanos::from_ns(process),
        softirq: Nanos::from_ns(softirq.wrapping_add(softirq_too)),
        irq: Nanos::from_ns(irq.iter().fold(0, |sum: u64, part| sum.wrapping_add(*part))),
    })
}

/// The programs, of which some are for several tracepoints.
#[derive(Debug)]
struct Programs {
    irq_entry: OwnedFd,
    irq_exit: OwnedFd,
    softirq_entry: OwnedFd,
    softirq_exit: OwnedFd,
    idle: OwnedFd,
    switch: OwnedFd,
}

impl Programs {
    fn load(map: RawFd) -> Result<Self, Error> {
        let load = |program: &[u64]| {
            load_program(program)
                .map_err(|source| Error::system("load a BPF program that counts CPU time", source))
        };
        Ok(Self {
            // An interrupt ends a sleep: what follows it is busy time, until the CPU is asleep again.
            irq_entry: load(&flag(map, IRQ | PROCESS, true))?,
            irq_exit: load(&flag(map, IRQ, false))?,
            softirq_entry: load(&flag(map, SOFTIRQ, true))?,
            softirq_exit: load(&flag(map, SOFTIRQ, false))?,
            idle: load(&idle(map))?,
            switch: load(&switch(map))?,
        })
    }

    const fn all(&self) -> [&OwnedFd; 6] {
        [
            &self.irq_entry,
            &self.irq_exit,
            &self.softirq_entry,
            &self.softirq_exit,
            &self.idle,
            &self.switch,
        ]
    }

    fn attach(&self) -> Result<Vec<OwnedFd>, Error> {
        let attach = |name: &str, program: &OwnedFd| {
            open_tracepoint(name, program)
                .map_err(|source| Error::system(format!("attach to the tracepoint {name}"), source))
        };
        let mut links = Vec::new();
        // Ends before beginnings: what begins before all is attached is ended all the same.
        for (idx, [entry, exit]) in IRQS.iter().enumerate() {
            match attach(exit, &self.irq_exit) {
                Ok(link) => links.push(link),
                Err(error) if idx > 0 && error.errno() == Some(libc::ENOENT) => continue,
                Err(error) => return Err(error),
            }
            links.push(attach(entry, &self.irq_entry)?);
        }
        links.push(attach("softirq_exit", &self.softirq_exit)?);
        links.push(attach("softirq_entry", &self.softirq_entry)?);
        links.push(attach("sched_switch", &self.switch)?);
        links.push(attach("cpu_idle", &self.idle)?);
        Ok(links)
    }
}

/// Sets or clears bits of the state. In C:
///
/// ```c
/// __u32 key = 0;
/// struct slot *slot = bpf_map_lookup_elem(&map, &key);
/// if (!slot || !slot->word) return 0;
/// __u64 now = bpf_ktime_get_ns();
/// __u64 old = xchg(&slot->word, now << 3 | (slot->word & 7 | bits));  // or & ~bits
/// atomic_add(&slot->ns[old & 7], now - (old >> 3));
/// return 0;
/// ```
///
/// An interrupt may come between any two of these: it puts the state back, the exchange then gives its
/// time, and what is added (below zero, then) makes the sum right.
fn flag(map: RawFd, bits: i32, is_set: bool) -> Vec<u64> {
    let change = if is_set {
        instruction(OR_IMMEDIATE, 1, 0, 0, bits)
    } else {
        instruction(AND_IMMEDIATE, 1, 0, 0, !bits & 7)
    };
    let body = [
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(LOAD, 1, 7, 0, 0),
        instruction(AND_IMMEDIATE, 1, 0, 0, 7),
        change,
        instruction(MOVE_IMMEDIATE, 3, 0, 0, 7),
    ];
    framed(map, &[body.to_vec(), exchange()].concat())
}

/// Another task: the state stays, its span is closed. So the span that a CPU's falling asleep closes is the
/// idle loop's.
fn switch(map: RawFd) -> Vec<u64> {
    let body = [
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(LOAD, 1, 7, 0, 0),
        instruction(AND_IMMEDIATE, 1, 0, 0, 7),
        instruction(MOVE_IMMEDIATE, 3, 0, 0, 7),
    ];
    framed(map, &[body.to_vec(), exchange()].concat())
}

/// A CPU that goes to sleep, or wakes. Before the exchange, which then takes the state from it, in C:
///
/// ```c
/// state = (int)ctx[0] == -1 ? PROCESS : 0;  // PWR_EVENT_EXIT, include/trace/events/power.h
/// ```
///
/// Before a sleep, process time was the idle loop's: it counts as idle.
fn idle(map: RawFd) -> Vec<u64> {
    let body = [
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(LOAD, 2, 6, 0, 0),
        instruction(SHIFT_LEFT, 2, 0, 0, 32),
        instruction(SHIFT_RIGHT_SIGNED, 2, 0, 0, 32),
        instruction(MOVE_IMMEDIATE, 1, 0, 0, 0),
        instruction(JUMP_IF_NOT_EQUAL, 2, 0, 1, -1),
        instruction(MOVE_IMMEDIATE, 1, 0, 0, PROCESS),
        instruction(MOVE, 3, 1, 0, 0),
        instruction(OR_IMMEDIATE, 3, 0, 0, 7 & !PROCESS),
    ];
    framed(map, &[body.to_vec(), exchange()].concat())
}

/// With the time in r0, the new state in r1, and in r3 the bits of the old state that count for the span before.
fn exchange() -> Vec<u64> {
    vec![
        instruction(MOVE, 2, 0, 0, 0),
        instruction(SHIFT_LEFT, 2, 0, 0, STATE_BITS),
        instruction(OR, 1, 2, 0, 0),
        instruction(ATOMIC, 7, 1, 0, ATOMIC_EXCHANGE), // r1 = the old word
        instruction(MOVE, 2, 1, 0, 0),
        instruction(SHIFT_RIGHT, 2, 0, 0, STATE_BITS),
        instruction(SUBTRACT, 0, 2, 0, 0),
        instruction(AND, 1, 3, 0, 0),
        instruction(SHIFT_LEFT, 1, 0, 0, 3),
        instruction(ADD, 7, 1, 0, 0),
        instruction(ATOMIC, 7, 0, 8, ATOMIC_ADD),
    ]
}

/// `body` with the context in r6 and the slot in r7, where the CPU is one of those that are counted.
fn framed(map: RawFd, body: &[u64]) -> Vec<u64> {
    let skip = i16::try_from(body.len()).expect("a short program");
    let found = [
        instruction(JUMP_IF_EQUAL, 0, 0, skip + 3, 0),
        instruction(MOVE, 7, 0, 0, 0),
        instruction(LOAD, 1, 7, 0, 0),
        instruction(JUMP_IF_EQUAL, 1, 0, skip, 0),
    ];
    let tail = [instruction(MOVE_IMMEDIATE, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)];
    [&[instruction(MOVE, 6, 1, 0, 0)][..], &look_up(map), &found, body, &tail].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_namespace_does_not_shift_traces() {
        let day = KernelClock::parse("monotonic       86400    5\nboottime  0 0\n").unwrap();
        assert_eq!(day.convert(Nanos::from_s(86_401)), Nanos::from_ns(999_999_995));
        let behind = KernelClock::parse("1 -10 0\n7 0 0\n").unwrap();
        assert_eq!(behind.convert(Nanos::from_s(5)), Nanos::from_s(15));
        assert_eq!(day.convert(Nanos::from_s(1)), Nanos::ZERO);
        for damaged in ["", "monotonic", "monotonic x 0", "boottime 0 0", "monotonic 1"] {
            assert_eq!(KernelClock::parse(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn running_span_belongs_to_the_state_of_now() {
        let slot = slot(1_000, 3, [100, 200, 30, 40, 5, 6, 7, 112]);
        let seen = spans(&slot, Nanos::from_ns(500), Nanos::from_ns(1_010)).unwrap();
        assert_eq!(seen.idle.as_ns(), 100);
        assert_eq!(seen.process.as_ns(), 200);
        assert_eq!(seen.softirq.as_ns(), 30 + 40 + 10);
        assert_eq!(seen.irq.as_ns(), 130);
    }

    #[test]
    fn torn_slot_is_read_again() {
        let slot = slot(1_000, 0, [100, 200, 0, 0, 0, 0, 0, 0]);
        assert_eq!(spans(&slot, Nanos::from_ns(500), Nanos::from_ns(1_010)), None);
        // An interrupt during the exchange: its time was taken from the state below it.
        let slot = self::slot(1_000, 1, [100, 50_u64.wrapping_neg(), 0, 0, 0, 450, 0, 0]);
        assert!(spans(&slot, Nanos::from_ns(500), Nanos::from_ns(1_100)).is_some());
    }

    fn slot(last: u64, state: u64, states: [u64; STATES]) -> [u64; WORDS] {
        std::array::from_fn(|idx| match idx {
            0 => last << STATE_BITS | state,
            _ => states[idx - 1],
        })
    }
}
