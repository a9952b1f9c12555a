//! One block on live traffic: today, another setting, today. What the controller asks for, what the host answers, and the rule
//! by which a guard is broken.

use latput_knobs::Setting;
use latput_model::goal::{BoundSide, GoalCondition, GoalMeasure, LimitReference};
use latput_model::live::counting_margin;
use latput_trial::Metric;
use latput_trial::live::Live;
use latput_trial::metric::{CustomMetric, Unit, by_name};
use latput_trial::observation::HostObservation;
use latput_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::figure_line::FigureLine;

/// Interval at which figures are read and guards are judged.
pub const TICK: Nanos = Nanos::from_ms(50);
/// Ticks after a change before a guard is judged: 200 ms.
const FEWEST_TICKS: usize = 4;
/// Most blocks' length, from the start to the end.
const LONGEST: Nanos = Nanos::from_s(600);

/// A block to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveBlock {
    /// Start on this host's own `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// The other setting; empty for a block that is today's throughout.
    pub setting: Setting,
    /// Measured time of the other setting, and of today's before and after it together.
    pub measured: Nanos,
    /// Unmeasured time after each change.
    pub cut: Nanos,
    /// Traffic that counts.
    pub watch: Live,
    /// Guards that end the slice of the other setting.
    pub guards: Vec<Guard>,
    /// The line on which a command tells its figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_on: Option<FigureLine>,
}

/// A window of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpan {
    /// When its setting is put in force.
    pub from: Nanos,
    /// When it is measured from.
    pub measured_from: Nanos,
    /// Its end.
    pub to: Nanos,
}

impl LiveBlock {
    /// Today, the other setting, today. Today's halves lie around the other's middle, so that a steady drift cancels out.
    pub fn spans(&self) -> [BlockSpan; 3] {
        let half = Nanos::from_ns(self.measured.as_ns() / 2);
        let span = |from: Nanos, cut: Nanos, length: Nanos| {
            let measured_from = from.saturating_add(cut);
            BlockSpan { from, measured_from, to: measured_from.saturating_add(length) }
        };
        let before = span(self.at, Nanos::ZERO, half);
        let slice = span(before.to, self.cut, self.measured);
        [before, slice, span(slice.to, self.cut, half)]
    }

    /// Length from the start to the end.
    pub fn length(&self) -> Nanos {
        self.spans()[2].to.saturating_sub(self.at)
    }

    /// Whether a host can run it.
    pub fn is_possible(&self) -> bool {
        self.watch.check().is_ok() && self.measured > Nanos::ZERO && self.length() <= LONGEST
    }
}

/// A limit that is judged again and again while a setting is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// The limit as the user wrote it.
    pub text: String,
    /// The limited figure.
    pub metric: Metric,
    /// Whether the figure may be at most the limit, or at least.
    pub is_most: bool,
    /// The limit, in the metric's unit or as a share of today's.
    pub number: f64,
    /// Whether it is a share of today's, from just before the slice.
    pub is_of_today: bool,
    /// Part of the logarithm of the ratio to today's that noise alone adds, after 1, 2, 3 ... ticks: the last stands
    /// for all later. Empty while that is not known; then a limit that is a share of today's is not judged.
    pub margins: Vec<f64>,
}

/// A figure, and the time that it is of.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimedFigure {
    /// The figure; `None` if there is none.
    pub value: Option<f64>,
    /// Length of the time, seconds.
    pub seconds: f64,
}

/// Judgement of a guard on a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardVerdict {
    /// The logarithm of the figure over today's, positive where worse; `None` without both.
    pub log: Option<f64>,
    /// Whether the guard is broken.
    pub is_broken: bool,
}

impl Guard {
    /// Reads a guard.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let limit: GoalCondition =
            text.parse().map_err(|error| format!("guard `{text}`: {error}"))?;
        let GoalMeasure::Metric(metric) = limit.figure.measure else {
            return Err(format!(
                "guard `{text}`: name a metric; `latput metrics` lists those of `live`"
            ));
        };
        if !metric.is_reported_by(latput_trial::Traffic::Live.descriptor()) {
            return Err(format!(
                "guard `{text}`: live traffic has no `{metric}`; `latput metrics` lists what it has"
            ));
        }
        let is_of_today = match limit.reference {
            None => false,
            Some(LimitReference::Today) => true,
            Some(LimitReference::Best) => {
                return Err(format!(
                    "guard `{text}`: a guard compares with `today`, not with `best`"
                ));
            }
        };
        let is_most = limit.bound == BoundSide::AtMost;
        let number = limit.number;
        if is_of_today && (number <= 0.0 || is_most != (number >= 1.0)) {
            return Err(format!(
                "guard `{text}`: today's setting would always break it, or never: write `<=` with 1 or more, \
                 `>=` with less"
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            metric,
            is_most,
            number,
            is_of_today,
            margins: Vec::new(),
        })
    }

    /// Judges the figure since the change, `tick` ticks after it (from 0), against today's before it.
    pub fn judge_figure(
        &self,
        tick: usize,
        figure: TimedFigure,
        today: TimedFigure,
    ) -> GuardVerdict {
        let ratio = self.log_ratio(figure, today);
        let is_early = tick + 1 < FEWEST_TICKS;
        let is_broken = if self.is_of_today {
            let known = self.margins.get(tick).or(self.margins.last());
            let limit = self.signed_difference(self.number.ln());
            match (ratio, known) {
                (Some((log, counting)), Some(margin)) => log - limit > margin.hypot(counting),
                _ => false,
            }
        } else {
            figure.value.is_some_and(|value| self.signed_difference(value - self.number) > 0.0)
        };
        GuardVerdict { log: ratio.map(|(log, _)| log), is_broken: is_broken && !is_early }
    }

    /// Positive where it is worse than nothing.
    fn signed_difference(&self, difference: f64) -> f64 {
        if self.is_most { difference } else { -difference }
    }

    /// The logarithm of the ratio to today's, positive where worse, and the margin of what is only counted.
    fn log_ratio(&self, figure: TimedFigure, today: TimedFigure) -> Option<(f64, f64)> {
        let (value, todays) = (figure.value?, today.value?);
        if self.metric.row().unit == Unit::PerS {
            let [count, counted] = [(value, figure), (todays, today)].map(|(v, f)| v * f.seconds);
            let rate = |count: f64, seconds: f64| ((count + 0.5) / seconds).ln();
            let log = rate(count, figure.seconds) - rate(counted, today.seconds);
            return Some((self.signed_difference(log), counting_margin(count, counted)))
                .filter(|(log, margin)| log.is_finite() && margin.is_finite());
        }
        let log = (value / todays).ln();
        log.is_finite().then(|| (self.signed_difference(log), 0.0))
    }
}

/// Puts a value at its tick; ticks before it that were left out, because a reading took long, have none.
pub fn put_at(values: &mut Vec<Option<f64>>, tick: usize, value: Option<f64>) {
    /// A block has fewer ticks.
    const MOST: usize = 20_000;
    if tick < MOST {
        values.resize(values.len().max(tick + 1), None);
        values[tick] = value;
    }
}

/// Course of a block. Today's setting is in force again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveSeen {
    /// Today, before the other setting.
    pub before: HostObservation,
    /// The other setting; `None` if it was not put in force.
    pub slice: Option<HostObservation>,
    /// Today again; `None` if the slice was ended early.
    pub after: Option<HostObservation>,
    /// For each guard: today's figure before, and the logarithms of the ratios to it, tick by tick, in the slice.
    pub of_slice: Vec<Vec<Option<f64>>>,
    /// The same after the slice, when today is in force again.
    pub of_after: Vec<Vec<Option<f64>>>,
    /// Ticks after the change, and after the change back: for carry-over.
    pub steps: [Vec<TickSeen>; 2],
    /// Duration of the change, and of the change back.
    pub changes: [Nanos; 2],
    /// When today's setting was in force again, on the host's own clock.
    pub back_at: Nanos,
    /// The guard that was broken.
    pub broken: Option<GuardBreach>,
    /// Whether the traffic or the application fell silent under today's setting.
    pub is_silent_today: bool,
    /// Why the driver or the kernel would not have the other setting. All is as it was.
    pub refused: Option<String>,
    /// Why the other setting was not put in force, or its slice ended early without a broken guard.
    pub ended: Option<String>,
    /// The application's figures under today's setting.
    #[serde(with = "by_name")]
    pub todays_figures: BTreeMap<CustomMetric, f64>,
    /// Those of them before the other setting,
    #[serde(with = "by_name")]
    pub figures_before: BTreeMap<CustomMetric, f64>,
    /// and after it.
    #[serde(with = "by_name")]
    pub figures_after: BTreeMap<CustomMetric, f64>,
    /// The application's figures under the other setting.
    #[serde(with = "by_name")]
    pub figures: BTreeMap<CustomMetric, f64>,
    /// Readings that failed, in sentences.
    pub notes: Vec<String>,
    /// Knobs that changed during the block, in sentences.
    pub drift: Vec<String>,
    /// Knobs that were left to somebody else since the last report, in sentences.
    pub left: Vec<String>,
}

impl LiveSeen {
    /// A block with the observation before the other setting, and nothing more yet.
    pub fn of_today(before: HostObservation, guards: usize) -> Self {
        Self {
            before,
            slice: None,
            after: None,
            of_slice: vec![Vec::new(); guards],
            of_after: vec![Vec::new(); guards],
            steps: [Vec::new(), Vec::new()],
            changes: [Nanos::ZERO; 2],
            back_at: Nanos::ZERO,
            broken: None,
            is_silent_today: false,
            refused: None,
            ended: None,
            todays_figures: BTreeMap::new(),
            figures_before: BTreeMap::new(),
            figures_after: BTreeMap::new(),
            figures: BTreeMap::new(),
            notes: Vec::new(),
            drift: Vec::new(),
            left: Vec::new(),
        }
    }
}

/// A broken guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardBreach {
    /// Its index.
    pub guard: usize,
    /// The figure that broke it.
    pub value: f64,
    /// Today's, just before.
    pub today: Option<f64>,
    /// How long the setting had been in force.
    pub after: Nanos,
    /// From the reading that broke it until today's values were read back.
    pub until_back: Nanos,
}

/// Observation of one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TickSeen {
    /// Mean round-trip time of the connections, nanoseconds.
    pub rtt_ns: Option<f64>,
    /// Busy share of the CPUs.
    pub busy_ratio: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_figure(value: f64) -> TimedFigure {
        TimedFigure { value: Some(value), seconds: 1.0 }
    }

    #[test]
    fn todays_halves_surround_the_slice() {
        let block = LiveBlock {
            at: Nanos::from_s(10),
            setting: Setting::default(),
            measured: Nanos::from_s(2),
            cut: Nanos::from_ms(300),
            watch: Live::default(),
            guards: Vec::new(),
            told_on: None,
        };
        let [before, slice, after] = block.spans();
        let middle = |span: BlockSpan| span.measured_from.as_ns().midpoint(span.to.as_ns());
        assert_eq!(middle(before).midpoint(middle(after)), middle(slice));
        assert_eq!(block.length(), Nanos::from_ms(4_600));
        assert!(block.is_possible());
        assert!(!LiveBlock { measured: Nanos::from_s(9_999), ..block }.is_possible());
    }

    #[test]
    fn broken_share_needs_known_noise() {
        let mut guard = Guard::parse("tcp_rtt_ns_p99 <= 1.2 today").unwrap();
        let broken = |guard: &Guard, tick, value| {
            guard.judge_figure(tick, make_figure(value), make_figure(100.0)).is_broken
        };
        assert!(!broken(&guard, 9, 900.0), "the noise is not known");
        guard.margins = vec![2.0, 1.0, 1.0, 1.0, 0.1];
        assert!(!broken(&guard, 2, 9000.0), "too early");
        assert!(broken(&guard, 3, 400.0) && !broken(&guard, 3, 300.0));
        // ln 1.2 + 0.1: 1.326 times today.
        assert!(broken(&guard, 99, 133.0) && !broken(&guard, 99, 132.0));
        let none = TimedFigure::default();
        assert_eq!(
            guard.judge_figure(9, none, make_figure(1.0)),
            GuardVerdict { log: None, is_broken: false }
        );
        assert!(!guard.judge_figure(9, make_figure(1.0), make_figure(0.0)).is_broken);
    }

    #[test]
    fn lower_limit_and_absolute_limit_are_judged() {
        let mut guard = Guard::parse("tcp_throughput_bps >= 0.9 today").unwrap();
        guard.margins = vec![0.0];
        assert!(guard.judge_figure(9, make_figure(89.0), make_figure(100.0)).is_broken);
        assert!(!guard.judge_figure(9, make_figure(900.0), make_figure(100.0)).is_broken);
        let guard = Guard::parse("sut_cpu_busy_ratio <= 0.9").unwrap();
        assert!(guard.judge_figure(9, make_figure(0.91), TimedFigure::default()).is_broken);
        assert!(!guard.judge_figure(9, make_figure(0.9), TimedFigure::default()).is_broken);
    }

    #[test]
    fn rare_events_break_no_limit() {
        let mut guard = Guard::parse("tcp_retransmits_per_s <= 1.05 today").unwrap();
        guard.margins = vec![0.01];
        let judge =
            |count: f64, today: f64| guard.judge_figure(9, make_figure(count), make_figure(today));
        assert!(!judge(1.0, 0.0).is_broken && !judge(5.0, 0.0).is_broken);
        assert!(judge(500.0, 100.0).is_broken);
        assert!(judge(0.0, 0.0).log.is_some(), "nothing happened, as before");
    }

    #[test]
    fn guards_that_cannot_be_judged_are_refused() {
        for (text, why) in [
            ("tcp_rtt_ns_p99 <= 1.2 best", "not with `best`"),
            ("rate >= 0.9 today", "name a metric"),
            ("latency_ns_p99 <= 1ms", "has no `latency_ns_p99`"),
            ("tcp_rtt_ns_p99 <= 0.9 today", "today's setting"),
            ("tcp_throughput_bps >= 1.1 today", "today's setting"),
            ("tcp_rtt_ns_p99 < 1", "guard `tcp_rtt_ns_p99 < 1`"),
        ] {
            let error = Guard::parse(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
