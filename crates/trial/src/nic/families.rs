//! The factors that a plan for an interface may have: which knobs move together, and around which values.

use latput_knobs::{Knob, Value};
use latput_units::{CpuSet, Nanos};

use super::Nic;

/// Knobs that move together, with the reason to vary them.
pub(super) struct Family {
    /// The first must be settable. Of the others those are used that are.
    pub(super) knobs: &'static [Knob],
    /// Why it is in the plan, in one line.
    pub(super) why: &'static str,
    /// The levels of the knobs that are settable, in that order; the first is today's. Fewer than two are no
    /// factor.
    pub(super) levels: fn(&Nic, &[Knob]) -> Vec<Vec<Value>>,
}

/// Every family, the most telling first.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        knobs: &[Knob::RxUsecs, Knob::AdaptiveRx, Knob::RxFrames],
        why: "how long a received packet may wait for its interrupt: latency against CPU time",
        levels: moderation,
    },
    Family {
        knobs: &[Knob::RxFrames, Knob::AdaptiveRx],
        why: "how many received packets may wait for their interrupt: latency against CPU time; the driver has no delay",
        levels: frames,
    },
    Family {
        knobs: &[Knob::GroFlushTimeout, Knob::NapiDeferHardIrqs],
        why: "polls by a timer instead of interrupts; the timer does nothing without deferred interrupts",
        levels: deferral,
    },
    Family {
        knobs: &[Knob::Gro, Knob::Lro],
        why: "packets joined before the stack: less CPU time for bulk, nothing for single packets",
        levels: joining,
    },
    Family {
        knobs: &[Knob::Tso],
        why: "large packets cut by the NIC: less CPU time for bulk, longer bursts",
        levels: toggled,
    },
    Family {
        knobs: &[Knob::Threaded],
        why: "polls in threads, which the scheduler may move to idle CPUs",
        levels: toggled,
    },
    Family {
        knobs: &[Knob::RpsCpus],
        why: "there are more CPUs than receive queues: others may take over received packets",
        levels: spread,
    },
    Family {
        knobs: &[Knob::SmpAffinity],
        why: "one interrupt, several CPUs: where it is served",
        levels: affinity,
    },
    Family {
        knobs: &[Knob::RxRing],
        why: "packets that may wait for the host: drops against memory and cache",
        levels: ring,
    },
    Family {
        knobs: &[Knob::TxUsecs, Knob::AdaptiveTx, Knob::TxFrames],
        why: "how long a sent packet may wait for its completion interrupt",
        levels: moderation,
    },
    Family {
        knobs: &[Knob::TxFrames, Knob::AdaptiveTx],
        why: "how many sent packets may wait for their completion interrupt; the driver has no delay",
        levels: frames,
    },
    Family {
        knobs: &[Knob::TxRing],
        why: "packets that may wait for the NIC: drops against latency of the queue",
        levels: ring,
    },
];

/// Below this, delays are modes of some drivers (e1000e and igb: 1, 3 and 4).
const SHORTEST_DELAY: Nanos = Nanos::from_us(10);
/// Longer delays than this cost more latency than any workload of the plan bears.
const LONGEST_DELAY: Nanos = Nanos::from_us(500);
/// Delays beside today's, where today's is off or a mode.
const USUAL_DELAYS: [Nanos; 2] = [Nanos::from_us(20), Nanos::from_us(100)];
/// Numbers of packets beside today's, where today each packet interrupts.
const USUAL_FRAMES: [u64; 2] = [8, 32];
/// The factor between a level and today's value.
const STEP: u64 = 4;
/// The smallest ring that is worth a trial.
const SMALLEST_RING: u64 = 64;
/// Polls that may find nothing before interrupts return: the value of the kernel's documentation
/// (`Documentation/networking/napi.rst`) is 2, and a timer that is meant to rule needs many.
const DEFERRALS: u64 = 100;
/// Timers of deferred polls.
const TIMERS: [Nanos; 3] = [Nanos::from_us(20), Nanos::from_us(50), Nanos::from_us(125)];

/// Today, then what adaptive moderation is not today, then fixed delays.
fn moderation(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let today = today(nic, knobs);
    let Some(Value::Time(delay)) = today.first() else { return Vec::new() };
    let is_frames = |knob: &Knob| matches!(knob, Knob::RxFrames | Knob::TxFrames);
    let level = |delay: Nanos, adaptive: bool| -> Vec<Value> {
        let value = |(knob, today): (&Knob, &Value)| match today {
            Value::Time(_) => Value::Time(delay),
            Value::Switch(_) => Value::Switch(adaptive),
            // Some drivers refuse neither delay nor frames: each packet interrupts.
            Value::Count(_) if is_frames(knob) && delay == Nanos::ZERO => Value::Count(1),
            other => other.clone(),
        };
        knobs.iter().zip(&today).map(value).collect()
    };
    let is_adaptive = today.contains(&Value::Switch(true));
    let mut levels = vec![today.clone()];
    if today.iter().any(|value| matches!(value, Value::Switch(_))) {
        levels.push(level(*delay, !is_adaptive));
    }
    let mut delays = vec![Nanos::ZERO];
    delays.extend(around(*delay));
    levels.extend(delays.into_iter().map(|delay| level(delay, false)));
    distinct(levels)
}

/// Today's number of packets, then what adaptive moderation is not today, then an interrupt for each packet, a quarter and
/// four times of today. Only where no delay moves with it, as `moderation` has it.
fn frames(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let delay = if knobs.contains(&Knob::RxFrames) { Knob::RxUsecs } else { Knob::TxUsecs };
    let today = today(nic, knobs);
    let (None, Some(Value::Count(now))) = (nic.settable(delay), today.first()) else {
        return Vec::new();
    };
    let level = |count: u64, adaptive: bool| -> Vec<Value> {
        let value = |today: &Value| match today {
            Value::Switch(_) => Value::Switch(adaptive),
            _ => Value::Count(count),
        };
        today.iter().map(value).collect()
    };
    let mut levels = vec![today.clone()];
    if let Some(Value::Switch(is_adaptive)) = today.get(1) {
        levels.push(level(*now, !is_adaptive));
    }
    let near = [now / STEP, now.saturating_mul(STEP)];
    let counts = if *now > 1 { near } else { USUAL_FRAMES };
    levels.extend([1].into_iter().chain(counts).filter(|it| *it > 0).map(|it| level(it, false)));
    distinct(levels)
}

/// A shorter and a longer delay in whole microseconds.
fn around(delay: Nanos) -> Vec<Nanos> {
    if delay < SHORTEST_DELAY {
        return USUAL_DELAYS.to_vec();
    }
    let us = delay.as_ns() / 1_000;
    let near = [Nanos::from_us(us / STEP), Nanos::from_us(us.saturating_mul(STEP))];
    near.into_iter().filter(|delay| (SHORTEST_DELAY..=LONGEST_DELAY).contains(delay)).collect()
}

fn deferral(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let today = today(nic, knobs);
    let (Some(Value::Time(timer)), 2) = (today.first(), knobs.len()) else { return Vec::new() };
    let level = |timer: Nanos, count: u64| vec![Value::Time(timer), Value::Count(count)];
    let mut levels = vec![today.clone(), level(Nanos::ZERO, 0)];
    let timers = if *timer < SHORTEST_DELAY { TIMERS.to_vec() } else { around(*timer) };
    levels.extend(timers.into_iter().map(|timer| level(timer, DEFERRALS)));
    distinct(levels)
}

/// GRO and LRO: each on alone, and neither.
fn joining(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let mut levels = vec![today(nic, knobs)];
    levels.extend(
        match knobs {
            [_] => vec![vec![true], vec![false]],
            _ => vec![vec![true, false], vec![false, true], vec![false, false]],
        }
        .into_iter()
        .map(|level| level.into_iter().map(Value::Switch).collect()),
    );
    distinct(levels)
}

fn toggled(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    match today(nic, knobs).as_slice() {
        [Value::Switch(on)] => [*on, !on].map(|on| vec![Value::Switch(on)]).to_vec(),
        _ => Vec::new(),
    }
}

/// A quarter and four times of today's descriptors, or the most that there are.
fn ring(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let Some(knob) = nic.settable(knobs[0]) else { return Vec::new() };
    let Ok(Value::Count(now)) = knob.today() else { return Vec::new() };
    let less = (now / STEP).max(SMALLEST_RING).max(knob.range.0).min(*now);
    let more = now.saturating_mul(STEP).min(knob.range.1).max(*now);
    distinct([*now, less, more].map(|count| vec![Value::Count(count)]).to_vec())
}

/// Today's CPUs, all, and none.
fn spread(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let Some(knob) = nic.settable(knobs[0]) else { return Vec::new() };
    if nic.cpus.len() <= knob.places {
        return Vec::new();
    }
    let mut levels = vec![today(nic, knobs)];
    levels.extend([CpuSet::default(), nic.cpus.clone()].map(|cpus| vec![Value::Cpus(cpus)]));
    distinct(levels)
}

/// Today's CPUs of the only interrupt, the first and the last of the host.
fn affinity(nic: &Nic, knobs: &[Knob]) -> Vec<Vec<Value>> {
    let Some(knob) = nic.settable(knobs[0]) else { return Vec::new() };
    if knob.places != 1 || nic.cpus.len() < 2 {
        return Vec::new();
    }
    let ends = nic.cpus.iter().next().into_iter().chain(nic.cpus.iter().last());
    let mut levels = vec![today(nic, knobs)];
    levels.extend(ends.map(|cpu| vec![Value::Cpus([cpu].into_iter().collect())]));
    distinct(levels)
}

fn today(nic: &Nic, knobs: &[Knob]) -> Vec<Value> {
    knobs.iter().filter_map(|knob| nic.today(*knob)).collect()
}

/// The levels without repetitions, the first of each kept.
fn distinct(levels: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let mut kept: Vec<Vec<Value>> = Vec::new();
    for level in levels {
        if !kept.contains(&level) {
            kept.push(level);
        }
    }
    kept
}
