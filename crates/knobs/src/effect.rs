//! Whether a moderation setting does something: the gaps between polls or interrupts that were counted
//! under load, against those that the setting asks for.
//!
//! What a device accepts and reads back it may still ignore. A setting asks for a *least* gap, so that
//! counts can contradict it (too many), or agree with it where there was traffic enough for more; with
//! less traffic nothing is decided, and that is what is said.
//!
//! Polls are counted by CPU, so that other interfaces' are among them: also their empty ones, which no packet shows. Only
//! polls that handled a packet of this interface contradict its setting. A device that obeys makes at most one in each gap,
//! whether its timer is late or not, so chance cannot make too many.

use std::fmt;

use latput_units::{IntoSet, Nanos};
use serde::Serialize;

use crate::catalogue::Knob;
use crate::setting::State;
use crate::value::{Place, Value};

/// Shorter gaps are not told from the work between them; small values of `rx-usecs` are modes of some
/// drivers besides.
const SHORTEST: Nanos = Nanos::from_us(10);
/// Gaps of the asked length that must fit into the span that was watched.
const GAPS: f64 = 10.0;
/// Packets for each gap; with fewer there may have been none to hold back.
const PACKETS_PER_GAP: f64 = 2.0;
/// A poll that has used up its budget is followed by another at once (`NAPI_POLL_WEIGHT`).
const BUDGET: f64 = 64.0;
/// More than the setting allows by this factor is not a timer's coarseness any more.
const TOO_MANY: f64 = 1.5;
/// Others' polls in a count, as a share of all polled packets, beyond which it does not show a timer.
const OTHERS: f64 = 0.1;

/// Events and packets counted over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How long.
    pub window: Nanos,
    /// The events that start packet handling.
    pub events: Events,
    /// Packets that the interface received.
    pub rx_packets: u64,
    /// Packets that it sent.
    pub tx_packets: u64,
}

/// The events that start packet handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Interrupts of this interface's device.
    Interrupts(u64),
    /// NAPI polls of every interface on the host's CPUs, and the packets that they handled.
    Polls {
        /// The polls, empty ones included.
        polls: u64,
        /// The packets.
        packets: u64,
        /// The polls without a packet.
        empty: u64,
    },
}

/// The verdict of the counts on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectVerdict {
    /// No more than it allows, under traffic that would have made more.
    Agrees,
    /// Far more than it allows.
    Ignored,
    /// Too little was seen to tell.
    Undecided,
}

impl fmt::Display for EffectVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agrees => "agrees",
            Self::Ignored => "ignored by the device",
            Self::Undecided => "undecided",
        })
    }
}

/// A verdict on one knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The knob whose effect was looked for.
    pub knob: Knob,
    /// The verdict.
    pub verdict: EffectVerdict,
    /// The figures, in a sentence.
    pub detail: String,
}

/// The least gap between events that a state asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Claim {
    knob: Knob,
    /// The least gap.
    gap: Nanos,
    /// How many timers may run side by side.
    timers: u64,
    /// Packets after which an event comes before the gap is over; 0: none.
    frames: u64,
}

/// Judges every knob of `state` that asks for a gap. None of them: the state moderates nothing whose
/// effect could be seen this way, or leaves it to the driver.
pub fn judge(state: &State, seen: Seen) -> Vec<Judgement> {
    claims(state).into_iter().map(|claim| claim.judge(seen)).collect()
}

/// While polls are deferred the interrupt stays masked, so that coalescing has no say.
fn claims(state: &State) -> Vec<Claim> {
    match deferral(state) {
        Some(claim) => vec![claim],
        None => coalescing(state).into_iter().collect(),
    }
}

/// After a poll the next one comes when the timer says so, as long as `napi-defer-hard-irqs` lasts.
fn deferral(state: &State) -> Option<Claim> {
    let counted = |place: Place| {
        let napis = values(state, Knob::GroFlushTimeout).any(|(place, _)| is_napi(place));
        is_napi(place) == napis
    };
    let timeouts = values(state, Knob::GroFlushTimeout).filter(|(place, _)| counted(*place));
    let timeouts: Vec<Nanos> = timeouts.filter_map(|(_, value)| time(value)).collect();
    let defers = values(state, Knob::NapiDeferHardIrqs).filter(|(place, _)| counted(*place));
    let mut defers = defers.map(|(_, value)| *value != Value::Count(0)).peekable();
    defers.peek()?;
    if !defers.all(|defers| defers) {
        return None;
    }
    let timers = if values(state, Knob::GroFlushTimeout).any(|(place, _)| is_napi(place)) {
        timeouts.len() as u64
    } else {
        queues(state)
    };
    let gap = timeouts.into_iter().min().filter(|gap| *gap >= SHORTEST)?;
    Some(Claim { knob: Knob::GroFlushTimeout, gap, timers, frames: 0 })
}

/// An interrupt comes when its delay is over, or when so many packets are there.
fn coalescing(state: &State) -> Option<Claim> {
    let is_on = |knob| values(state, knob).any(|(_, value)| *value == Value::Switch(true));
    let least = |knob| values(state, knob).filter_map(|(_, value)| time(value)).min();
    let rx = least(Knob::RxUsecs).filter(|gap| *gap >= SHORTEST)?;
    if is_on(Knob::AdaptiveRx) || is_on(Knob::AdaptiveTx) {
        return None;
    }
    // Completions share the vector, or have one of their own beside it.
    let tx = least(Knob::TxUsecs).unwrap_or(rx);
    if tx < SHORTEST {
        return None;
    }
    let frames = |knob| values(state, knob).filter_map(|(_, value)| count(value)).min();
    let both = [Knob::RxFrames, Knob::TxFrames].map(|knob| frames(knob).unwrap_or(0));
    if both.contains(&1) {
        return None; // every packet interrupts: the delay never comes to it
    }
    let frames = both.into_iter().filter(|frames| *frames > 0).min().unwrap_or(0);
    Some(Claim { knob: Knob::RxUsecs, gap: rx.min(tx), timers: 2 * queues(state), frames })
}

impl Claim {
    fn judge(self, seen: Seen) -> Judgement {
        let seconds = seen.window.as_secs_f64();
        let gaps = seconds / self.gap.as_secs_f64();
        let timed = gaps * self.timers as f64;
        let received = seen.rx_packets as f64;
        let sent = seen.tx_packets as f64;
        // `certain` are those that can only be this interface's. Others may poll without a packet, and once for each of theirs.
        let (events, packets, name, repeated, others, certain) = match seen.events {
            // Completions of what is sent interrupt as well.
            Events::Interrupts(count) => {
                (count as f64, received + sent, "interrupts", 0.0, 0.0, count as f64)
            }
            Events::Polls { polls, packets: polled, empty } => {
                let polled = polled as f64;
                let of_others = (polled - received).max(0.0);
                let certain = polls.saturating_sub(empty) as f64 - of_others;
                let others = of_others / polled.max(1.0);
                (polls as f64, received, "polls", polled / BUDGET, others, certain)
            }
        };
        let by_frames = if self.frames == 0 { 0.0 } else { packets / self.frames as f64 };
        let most = timed + by_frames + repeated;
        // The timer shows by itself, unless the polls may be those of other interfaces.
        let is_seen = packets > 0.0 && others <= OTHERS && events >= timed / 2.0;
        let has_traffic = packets >= timed * PACKETS_PER_GAP || is_seen;
        let (verdict, why) = if gaps < GAPS {
            (EffectVerdict::Undecided, format!("; {:.0} gaps are too few to judge", gaps.floor()))
        } else if certain > most * TOO_MANY {
            (EffectVerdict::Ignored, String::new())
        } else if events > most * TOO_MANY {
            let why = "; they may be polls of other interfaces";
            (EffectVerdict::Undecided, why.to_owned())
        } else if has_traffic {
            (EffectVerdict::Agrees, String::new())
        } else {
            let wanted = timed * PACKETS_PER_GAP / seconds;
            let why =
                format!("; too little traffic to judge: at least {wanted:.0} packets/s are needed");
            (EffectVerdict::Undecided, why)
        };
        let apart = Nanos::from_secs_f64(self.timers as f64 * seconds / events.max(1.0));
        let detail = format!(
            "{:.0} {name}/s for {:.0} packets/s: a gap of {} on each of {} timers, and {} asks for {} (at most \
             {:.0}/s){why}",
            events / seconds,
            packets / seconds,
            Nanos::from_us(apart.as_ns() / 1_000),
            self.timers,
            self.knob,
            self.gap,
            most / seconds,
        );
        Judgement { knob: self.knob, verdict, detail }
    }
}

fn values(state: &State, knob: Knob) -> impl Iterator<Item = (Place, &Value)> {
    let of_knob = state.0.iter().filter(move |((other, _), _)| *other == knob);
    of_knob.map(|((_, place), value)| (*place, value))
}

const fn is_napi(place: Place) -> bool {
    matches!(place, Place::Napi(_))
}

fn time(value: &Value) -> Option<Nanos> {
    if let Value::Time(time) = value { Some(*time) } else { None }
}

fn count(value: &Value) -> Option<u64> {
    if let Value::Count(count) = value { Some(*count) } else { None }
}

/// The receive queues that a state knows of, at least one.
fn queues(state: &State) -> u64 {
    let of = |(_, place): &(Knob, Place)| match place {
        Place::RxQueue(queue) | Place::Napi(queue) => Some(*queue),
        _ => None,
    };
    let queues: std::collections::BTreeSet<u32> = state.0.keys().filter_map(of).into_set();
    (queues.len() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_pace_agrees_with_or_contradicts_timer() {
        let deferred = state(&["gro-flush-timeout=500us", "napi-defer-hard-irqs=100"]);
        check(
            &deferred,
            polls(2_000, 50_000),
            EffectVerdict::Agrees,
            "2000 polls/s for 50000 packets/s",
        );
        // One packet a round trip: the timer shows by itself.
        check(&deferred, polls(1_900, 1_000), EffectVerdict::Agrees, "a gap of 526us");
        check(
            &deferred,
            polls(30_000, 50_000),
            EffectVerdict::Ignored,
            "asks for 500us (at most 2781/s)",
        );
        check(
            &deferred,
            polls(100, 100),
            EffectVerdict::Undecided,
            "at least 4000 packets/s are needed",
        );
        // A million packets are polled 64 at a time.
        check(&deferred, polls(17_000, 1_000_000), EffectVerdict::Agrees, "at most 17625/s");
    }

    #[test]
    fn polls_of_other_interfaces_contradict_nothing() {
        let deferred = state(&["gro-flush-timeout=500us", "napi-defer-hard-irqs=100"]);
        let mixed = seen(Events::Polls { polls: 30_000, packets: 90_000, empty: 0 }, 50_000);
        check(&deferred, mixed, EffectVerdict::Undecided, "polls of other interfaces");
        check(&deferred, polls(1_900, 0), EffectVerdict::Undecided, "too little traffic");
        // Empty ones may be theirs too; each packet of theirs has at most one poll.
        let empty = seen(Events::Polls { polls: 30_000, packets: 50_000, empty: 28_000 }, 50_000);
        check(&deferred, empty, EffectVerdict::Undecided, "may be polls of other interfaces");
        let certain = seen(Events::Polls { polls: 30_000, packets: 60_000, empty: 1_000 }, 50_000);
        check(&deferred, certain, EffectVerdict::Ignored, "asks for 500us");
    }

    #[test]
    fn interrupts_are_judged_by_delay_and_frames() {
        let delayed = state(&["rx-usecs=100us", "tx-usecs=100us", "adaptive-rx=off"]);
        check(&delayed, interrupts(18_000, 80_000), EffectVerdict::Agrees, "at most 20000/s");
        check(&delayed, interrupts(60_000, 80_000), EffectVerdict::Ignored, "a gap of 33us");
        check(&delayed, interrupts(900, 1_000), EffectVerdict::Undecided, "too little traffic");
        let counted = state(&["rx-usecs=100us", "rx-frames=32"]);
        check(&counted, interrupts(40_000, 640_000), EffectVerdict::Agrees, "at most 40000/s");
    }

    #[test]
    fn delays_above_a_hidden_limit_are_ignored() {
        // A device that reads every delay back and uses at most 64us, for both directions together. Delays up to three times its
        // limit still agree: two timers might run, each of them coarse.
        let interrupts = interrupts(15_625, 200_000);
        for asked in ["rx-usecs=200us", "rx-usecs=1ms"] {
            check(&state(&[asked]), interrupts, EffectVerdict::Ignored, "a gap of 128us");
        }
        for asked in ["rx-usecs=64us", "rx-usecs=150us"] {
            check(&state(&[asked]), interrupts, EffectVerdict::Agrees, "15625 interrupts/s");
        }
    }

    #[test]
    fn zero_gap_is_not_judged() {
        for assignments in [
            &["gro-flush-timeout=0us", "napi-defer-hard-irqs=0"][..],
            &["gro-flush-timeout=50us", "napi-defer-hard-irqs=0"],
            &["gro-flush-timeout=50us"],
            &["rx-usecs=3us"],
            &["rx-usecs=100us", "adaptive-rx=on"],
            &["rx-usecs=100us", "rx-frames=1"],
            &["rx-usecs=100us", "tx-usecs=0us"],
            &["mtu=9000"],
        ] {
            let found = judge(&state(assignments), interrupts(1_000_000, 1_000_000));
            assert!(found.is_empty(), "{assignments:?}: {found:?}");
        }
    }

    #[test]
    fn every_napi_has_its_own_timer() {
        let mut state = State::default();
        let mut add = |knob, place, value| state.0.insert((knob, place), value);
        for place in [Place::Napi(0), Place::Napi(1)] {
            add(Knob::GroFlushTimeout, place, Value::Time(Nanos::from_us(200)));
            add(Knob::NapiDeferHardIrqs, place, Value::Count(10));
        }
        add(Knob::GroFlushTimeout, Place::Device, Value::Time(Nanos::ZERO));
        add(Knob::NapiDeferHardIrqs, Place::Device, Value::Count(0));
        check(&state, polls(9_000, 90_000), EffectVerdict::Agrees, "on each of 2 timers");
    }

    #[test]
    fn short_look_decides_nothing() {
        let deferred = state(&["gro-flush-timeout=500ms", "napi-defer-hard-irqs=1"]);
        check(&deferred, polls(900, 90_000), EffectVerdict::Undecided, "2 gaps are too few");
        let none = Seen { window: Nanos::ZERO, ..polls(0, 0) };
        check(&deferred, none, EffectVerdict::Undecided, "too few");
        check(&deferred, polls(u64::MAX, 0), EffectVerdict::Undecided, "too few");
    }

    /// Over one second.
    fn polls(polls: u64, packets: u64) -> Seen {
        seen(Events::Polls { polls, packets, empty: 0 }, packets)
    }

    fn interrupts(interrupts: u64, packets: u64) -> Seen {
        seen(Events::Interrupts(interrupts), packets)
    }

    fn seen(events: Events, rx_packets: u64) -> Seen {
        Seen { window: Nanos::from_s(1), events, rx_packets, tx_packets: 0 }
    }

    fn state(assignments: &[&str]) -> State {
        let parse = |text: &&str| {
            let (knob, value) = crate::parse_assignment(text).unwrap();
            ((knob, Place::Device), value)
        };
        State(assignments.iter().map(parse).collect())
    }

    #[track_caller]
    fn check(state: &State, seen: Seen, verdict: EffectVerdict, words: &str) {
        let found = judge(state, seen);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].verdict, verdict, "{found:?}");
        assert!(found[0].detail.contains(words), "{found:?}");
    }
}
