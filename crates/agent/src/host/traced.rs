//! When CPU time is traced: beside the windows, and by one end at a time. Where it must be traced in the windows too, what
//! that costs is counted there instead.
//!
//! Tracing slows what is measured. So it is done in a short span before a window, in the same traffic under the same
//! setting, and what busy time consists of there is taken for the window.

use std::collections::BTreeMap;

use latput_linux::{Traced, process, traces_in_turns};
use latput_load::{SliceLayout, Stop};
use latput_protocol::control::{Failure, SettingTurns, TRACED_ROUNDS, TURN, make_failure};
use latput_protocol::text::format_error_chain;
use latput_trial::observation::{HostObservation, Role};
use latput_units::{Clock, Nanos};

use super::{GLANCE_EVERY, HostSession, sleep_until};

/// Longest span before a window.
const LONGEST_TURN: Nanos = Nanos::from_ms(60);
/// Time to detach what traces, and to reach the pace without it.
const DETACH: Nanos = Nanos::from_ms(6);
/// Time between the spans of two ends, which may be on one kernel. That kernel waits for a grace period of RCU, 8 to 16 ms,
/// in two cases: a link is attached soon after another was detached, or one is detached while another is left
/// (`tracepoint_add_func` and `tracepoint_remove_func`, kernel/tracepoint.c). The wait reaches into the traffic behind it.
const APART: Nanos = Nanos::from_ms(40);
/// Time of traffic before the spans of a window.
const SETTLE: Nanos = Nanos::from_ms(50);

impl HostSession {
    /// Traces before a window that starts at `start`, if there is time for it.
    pub(super) fn trace_before_window(
        &mut self,
        start: Nanos,
        length: Nanos,
        stop: &Stop,
    ) -> Result<Option<Traced>, Failure> {
        let left = start.saturating_sub(process::OsClock.now());
        let Some(turn) = compute_turn_length(left, length) else { return Ok(None) };
        let after = if self.is_first() { turn + APART } else { Nanos::ZERO };
        let end = start.saturating_sub(after);
        self.trace_span(end.saturating_sub(turn), end, stop)
    }

    /// Whether this end traces before the others do.
    pub(super) fn is_first(&self) -> bool {
        self.open.role == Role::Sut
    }

    /// Traces in the end of a slice's long cut.
    pub(super) fn trace_before_slice(
        &mut self,
        start: Nanos,
        stop: &Stop,
    ) -> Result<Option<Traced>, Failure> {
        self.trace_span(start.saturating_sub(TURN), start, stop)
    }

    /// Traces from now on, for as long as before a slice.
    pub(super) fn trace_now(&mut self, stop: &Stop) -> Result<Option<Traced>, Failure> {
        let now = process::OsClock.now();
        self.trace_span(now, now + TURN, stop)
    }

    /// `None` where it cannot be traced, needs not be, or took too long to begin.
    fn trace_span(
        &mut self,
        from: Nanos,
        to: Nanos,
        stop: &Stop,
    ) -> Result<Option<Traced>, Failure> {
        let sampler = &mut self.sampler;
        if sampler.trace_obstacle().is_some() {
            return Ok(None);
        }
        if sampler.record_obstacle().is_some() {
            return Ok(self.cost_of_tracing(from, to, stop).map(Traced::of_cost));
        }
        sleep_until(from, GLANCE_EVERY, || stop.is_raised());
        sampler.start_tracing();
        let last_at = to.saturating_sub(DETACH);
        let traced = sampler.sample().and_then(|first| {
            if first.at + DETACH > last_at {
                return Ok(None);
            }
            sleep_until(last_at, GLANCE_EVERY, || stop.is_raised());
            Traced::between(&first, &sampler.sample()?)
        });
        sampler.stop_tracing();
        traced.map_err(|error| make_failure(format_error_chain(&error)))
    }

    /// Measures the cost of tracing that also runs in the windows, as a share of a CPU. `None` if the kernel does not count
    /// it, or if there was no time.
    fn cost_of_tracing(&self, from: Nanos, to: Nanos, stop: &Stop) -> Option<f64> {
        sleep_until(from, GLANCE_EVERY, || stop.is_raised());
        let last_at = to.saturating_sub(DETACH);
        if process::OsClock.now() + DETACH > last_at {
            return None;
        }
        let count = self.sampler.count_run_time()?;
        sleep_until(last_at, GLANCE_EVERY, || stop.is_raised());
        count.end()
    }
}

/// The traced spans before the slices of a stint.
pub(super) struct TracedSpans {
    slices: SliceLayout,
    /// The slices of a round: each setting has one.
    settings: u32,
    /// Whether this end has the first of two rounds with spans, or the second.
    is_first: bool,
    /// Of each setting: its span stands for all its slices, so that their totals have one definition.
    by_setting: Vec<Option<Traced>>,
    /// Of the slices that have one, where slices with and without one take turns, to be compared.
    by_slice: Option<BTreeMap<u32, Traced>>,
}

impl TracedSpans {
    pub(super) fn new(turns: &SettingTurns, is_first: bool) -> Self {
        Self {
            slices: turns.slices,
            settings: u32::try_from(turns.settings.len()).unwrap_or(u32::MAX).max(1),
            is_first,
            by_setting: vec![None; turns.settings.len()],
            by_slice: traces_in_turns().then(BTreeMap::new),
        }
    }

    /// Whether to trace before a slice: once for each setting, and never in the same cut as another end.
    pub(super) fn is_wanted(&self, slice: u32, setting: usize) -> bool {
        let round = slice / self.settings;
        let is_own = match (&self.by_slice, self.is_first) {
            // With, without, without, with: what drifts evenly is in both alike.
            (Some(_), true) => round.is_multiple_of(4),
            (Some(_), false) => round % 4 == 3,
            (None, is_first) => {
                round.is_multiple_of(TRACED_ROUNDS) == is_first
                    && self.by_setting[setting].is_none()
            }
        };
        is_own && slice < self.slices.long_cuts
    }

    pub(super) fn store_span(&mut self, slice: u32, setting: usize, span: Option<Traced>) {
        match (&mut self.by_slice, span) {
            (Some(by_slice), Some(span)) => drop(by_slice.insert(slice, span)),
            (Some(_), None) => {}
            (None, span) => self.by_setting[setting] = span,
        }
    }

    /// Divides each slice as its setting's span was; `order` has the settings of the slices. Slices that are to be compared
    /// are marked only.
    pub(super) fn divide_slices(&self, seen: &mut [HostObservation], order: &[usize]) {
        for ((idx, slice), &setting) in (0..).zip(seen).zip(order) {
            match &self.by_slice {
                Some(by_slice) => {
                    if let Some(span) = by_slice.get(&idx) {
                        span.mark(slice);
                    }
                }
                None => {
                    if let Some(span) = &self.by_setting[setting] {
                        span.divide(slice);
                    }
                }
            }
        }
    }
}

/// Length of each of the two turns before a window of `length` that begins in `left`: a tenth of it, if there is time.
fn compute_turn_length(left: Nanos, length: Nanos) -> Option<Nanos> {
    let wanted = Nanos::from_ns(length.as_ns() / 20).clamp(TURN, LONGEST_TURN);
    let room = left.saturating_sub(SETTLE + APART);
    let turn = wanted.min(Nanos::from_ns(room.as_ns() / 2));
    (turn >= TURN).then_some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_fit_into_the_warmup() {
        let turn = |left, length| compute_turn_length(Nanos::from_ms(left), Nanos::from_ms(length));
        assert_eq!(turn(500, 1_000), Some(Nanos::from_ms(50)));
        assert_eq!(turn(500, 60_000), Some(LONGEST_TURN));
        assert_eq!(turn(500, 100), Some(TURN), "no shorter than is worth it");
        assert_eq!(turn(140, 1_000), Some(Nanos::from_ms(25)));
        assert_eq!(turn(100, 1_000), None, "there is no time");
    }
}
