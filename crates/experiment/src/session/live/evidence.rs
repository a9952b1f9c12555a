//! Evidence of a run on live traffic so far: its noise, its settings that are banned, and the time that a change takes.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::FRAC_1_SQRT_2;

use latput_model::live::{is_proven_above, noise_margin, noise_scale};
use latput_protocol::live::{Guard, LiveSeen, TICK, TickSeen};
use latput_trial::live::{BAN_CHECK, GUARD_CHECK};
use latput_trial::{Metric, Observation, Row, Traffic};
use latput_units::{IntoSet, Nanos};

use crate::session::slices::settled_after;

/// Ticks after a change that are looked at for carry-over: 1 s.
const STEPS: usize = 20;
/// From here on carry-over is assumed to be over.
const SETTLED_FROM: usize = 12;
/// A step is settled within this many standard errors of the settled rate.
const STANDARD_ERRORS: f64 = 4.0;
/// Unmeasured time after a change before more is known.
pub(super) const FIRST_CUT: Nanos = Nanos::from_ms(250);
/// A margin that no ratio exceeds: of a tick of which nothing is known.
const NEVER: f64 = 1e9;
/// How many times today's share of stops a setting has that is banned for them.
const FAR_MORE: f64 = 3.0;
/// Most turns that are kept of each kind.
const MOST_TURNS: usize = 200;

/// Evidence so far.
#[derive(Debug)]
pub(super) struct LiveEvidence {
    guards: Vec<Guard>,
    /// For each guard, by tick: logarithms of ratios of today to today.
    noise: Vec<Vec<Vec<f64>>>,
    /// Logarithms of ratios of today to today around it, by metric.
    pub(super) of_metric: BTreeMap<Metric, Vec<f64>>,
    pub(super) banned: BTreeSet<usize>,
    /// For each setting and guard: logarithms of its ratios to today around it, and the scale of their noise.
    against: BTreeMap<(usize, usize), Vec<(f64, f64)>>,
    /// How often each setting broke a guard.
    strikes: BTreeMap<usize, u32>,
    /// How often each setting was tried, and how often the traffic or the application fell silent; 0 is today's.
    stops: BTreeMap<usize, StopCounts>,
    /// Time that each setting was in force.
    pub(super) used: BTreeMap<usize, Nanos>,
    /// The ticks after changes to another setting, and back to today's.
    turns: [Vec<Vec<TickSeen>>; 2],
    pub(super) cut: Nanos,
}

/// Times that a setting was in force, and those in which the traffic or the application fell silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StopCounts {
    pub(super) silent: u32,
    pub(super) all: u32,
}

impl StopCounts {
    fn add(&mut self, is_silent: bool) {
        self.all += 1;
        self.silent += u32::from(is_silent);
    }
}

impl LiveEvidence {
    pub(super) fn from_rows(guards: Vec<Guard>, rows: &[Row]) -> Self {
        let banned = rows.iter().filter(|row| row.observation.has_failed(BAN_CHECK));
        let mut strikes: BTreeMap<usize, u32> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.observation.has_failed(GUARD_CHECK)) {
            *strikes.entry(row.setting).or_default() += 1;
        }
        let mut used: BTreeMap<usize, Nanos> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.setting != 0) {
            let windows = row.observation.hosts.iter().map(|host| host.window);
            let spent = used.entry(row.setting).or_default();
            *spent = windows.fold(*spent, Nanos::saturating_add);
        }
        Self {
            noise: vec![Vec::new(); guards.len()],
            guards,
            of_metric: BTreeMap::new(),
            banned: banned.map(|row| row.setting).into_set(),
            against: BTreeMap::new(),
            strikes,
            stops: BTreeMap::new(),
            used,
            turns: [Vec::new(), Vec::new()],
            cut: FIRST_CUT,
        }
    }

    /// The guards with what is known of their noise.
    pub(super) fn guards_with_margins(&self) -> Vec<Guard> {
        let with_margins = |(guard, noise): (&Guard, &Vec<Vec<f64>>)| {
            // A tick of which less is known than of those before has their margin.
            let mut last = None;
            let known = noise.iter().map(|logs| {
                last = noise_margin(logs).or(last);
                last
            });
            let known: Vec<Option<f64>> = known.collect();
            let is_known = known.iter().any(Option::is_some);
            let margins =
                known.into_iter().filter(|_| is_known).map(|margin| margin.unwrap_or(NEVER));
            Guard { margins: margins.collect(), ..guard.clone() }
        };
        self.guards.iter().zip(&self.noise).map(with_margins).collect()
    }

    /// Learns from a block whose slice was today's (`is_today`) or another's.
    pub(super) fn add_block(&mut self, seen: &LiveSeen, is_today: bool) {
        if is_today {
            self.add_noise(&seen.of_slice);
        }
        self.add_noise(&seen.of_after);
        if !is_today && seen.broken.is_none() {
            for (turns, steps) in self.turns.iter_mut().zip(&seen.steps) {
                if steps.len() >= STEPS && turns.len() < MOST_TURNS {
                    turns.push(steps[..STEPS].to_vec());
                }
            }
        }
    }

    fn add_noise(&mut self, logs: &[Vec<Option<f64>>]) {
        for (noise, logs) in self.noise.iter_mut().zip(logs) {
            noise.resize(noise.len().max(logs.len()), Vec::new());
            for (of_tick, log) in noise.iter_mut().zip(logs) {
                of_tick.extend(log.filter(|log| log.is_finite()));
            }
        }
    }

    /// Adds the ratios of each figure of `one` to that of `other`, both of today.
    pub(super) fn add_pair(&mut self, metrics: &[Metric], one: &Observation, other: &Observation) {
        for metric in metrics {
            if let Some(log) = log_ratio(*metric, one, other) {
                self.of_metric.entry(*metric).or_default().push(log);
            }
        }
    }

    /// Adds what today before a slice of another setting and today after it say of the noise: each is half as long as a slice,
    /// so their ratio has twice the variance of the ratio of a slice to both. Returns the size of each ratio's logarithm as one
    /// of a slice.
    pub(super) fn add_around(
        &mut self,
        before: &Observation,
        after: &Observation,
    ) -> BTreeMap<Metric, f64> {
        let mut apart = BTreeMap::new();
        for (metric, noise) in &mut self.of_metric {
            let Some(log) = log_ratio(*metric, after, before) else { continue };
            let log = log * FRAC_1_SQRT_2;
            noise.push(log);
            apart.insert(*metric, log.abs());
        }
        apart
    }

    /// Adds a whole slice to the evidence against a setting. `part` is its share of the usual length, and `apart` how far today
    /// before it was from today after it: where the host itself has jumped, a slice says little. Returns the guards that are
    /// proven to be broken by all of its slices together.
    pub(super) fn weigh_slice(
        &mut self,
        setting: usize,
        part: f64,
        [other, today]: [&Observation; 2],
        apart: &BTreeMap<Metric, f64>,
    ) -> Vec<usize> {
        let mut proven = Vec::new();
        for (idx, guard) in self.guards.iter().enumerate().filter(|(_, guard)| guard.is_of_today) {
            let Some(noise) = self.of_metric.get(&guard.metric) else { continue };
            let Some(scale) = noise_scale(noise) else { continue };
            let Some(log) = log_ratio(guard.metric, other, today) else { continue };
            let sign = if guard.is_most { 1.0 } else { -1.0 };
            let log = sign * log;
            let against = self.against.entry((setting, idx)).or_default();
            let scale = apart.get(&guard.metric).map_or(scale, |apart| scale.max(*apart));
            against.push((log, scale / part.sqrt())); // a shorter slice has more noise
            if is_proven_above(against, sign * guard.number.ln(), noise.len()) {
                proven.push(idx);
            }
        }
        proven
    }

    /// Counts a slice with a broken guard; whether its setting is banned now.
    pub(super) fn has_struck_out(&mut self, setting: usize, most: u32) -> bool {
        let strikes = self.strikes.entry(setting).or_default();
        *strikes += 1;
        let is_out = *strikes >= most;
        if is_out {
            self.banned.insert(setting);
        }
        is_out
    }

    /// Counts a block in which the traffic or the application fell silent, or did not, under today's setting, and under
    /// another if that was tried.
    pub(super) fn count_stops(&mut self, is_silent_today: bool, other: Option<(usize, bool)>) {
        self.stops.entry(0).or_default().add(is_silent_today);
        if let Some((setting, is_silent)) = other {
            self.stops.entry(setting).or_default().add(is_silent);
        }
    }

    /// The stops of a setting and of today's, if the setting is to be banned for them: two at least, and far more often than
    /// under today's, of which one more is assumed.
    pub(super) fn stops_too_often(&self, setting: usize) -> Option<[StopCounts; 2]> {
        let [own, todays] =
            [setting, 0].map(|setting| self.stops.get(&setting).copied().unwrap_or_default());
        let share = f64::from(own.silent) / f64::from(own.all.max(1));
        let todays_share = f64::from(todays.silent + 1) / f64::from(todays.all + 1);
        (own.silent > 1 && share > FAR_MORE * todays_share).then_some([own, todays])
    }

    /// Makes the cut as long as changes turned out to take. Returns what was found, once there are enough of them.
    pub(super) fn measure_carry_over(&mut self) -> Option<String> {
        let figures: [fn(&TickSeen) -> Option<f64>; 2] =
            [|step| step.rtt_ns, |step| step.busy_ratio];
        let mut longest = None;
        for figure in figures {
            let turns = self.turns.each_ref().map(|turns| {
                let turn =
                    |steps: &Vec<TickSeen>| steps.iter().map(figure).collect::<Option<Vec<f64>>>();
                turns.iter().filter_map(turn).collect::<Vec<Vec<f64>>>()
            });
            if turns.iter().any(|turns| turns.len() < 3) {
                continue;
            }
            let [there, back] = turns.each_ref().map(|turns| turns.iter().collect::<Vec<_>>());
            let settled = settled_after([&there, &back], SETTLED_FROM, STANDARD_ERRORS);
            longest = longest.max(Some(settled.unwrap_or(usize::MAX)));
        }
        let changes = self.turns[0].len();
        let longest = longest?;
        let least = FIRST_CUT.as_ms_f64();
        if longest == usize::MAX {
            let looked_at = TICK.as_ms_f64() * SETTLED_FROM as f64;
            self.cut = self.cut.max(TICK.saturating_mul(SETTLED_FROM as u64));
            return Some(format!(
                "the traffic had not settled {looked_at:.0} ms after {changes} changes. {looked_at:.0} ms are \
                 cut: carry-over may remain"
            ));
        }
        let found = TICK.saturating_mul(longest as u64);
        self.cut = FIRST_CUT.max(found);
        Some(format!(
            "after {changes} changes the traffic is settled {:.0} ms later; {:.0} ms are cut (at least {least:.0} ms)",
            found.as_ms_f64(),
            self.cut.as_ms_f64()
        ))
    }
}

/// The logarithm of the ratio of a figure of two observations; `None` without one that is finite and that counts.
fn log_ratio(metric: Metric, one: &Observation, other: &Observation) -> Option<f64> {
    let counted =
        |it: &Observation| metric.value(&Traffic::Live, it).filter(|_| !it.voids_figure(metric));
    Some((counted(one)? / counted(other)?).ln()).filter(|log| log.is_finite())
}

#[cfg(test)]
mod tests {
    use latput_trial::Check;
    use latput_trial::check::CONNECTIONS_SEEN;
    use latput_trial::observation::{HostObservation, TcpObservation};

    use super::*;

    fn no_evidence() -> LiveEvidence {
        LiveEvidence::from_rows(vec![Guard::parse("tcp_rtt_ns_p99 <= 1.2 today").unwrap()], &[])
    }

    #[test]
    fn margins_appear_early_without_gap() {
        let mut evidence = no_evidence();
        assert!(evidence.guards_with_margins()[0].margins.is_empty());
        for block in 0..8 {
            let sign = if block % 2 == 0 { 0.1 } else { -0.1 };
            // The last tick is seldom reached, and the first had no figure.
            let last = (block == 0).then_some(sign);
            evidence.add_noise(&[vec![None, Some(sign), Some(sign / 2.0), last]]);
        }
        let margins = &evidence.guards_with_margins()[0].margins;
        assert_eq!(margins.len(), 4);
        assert!(margins[0] >= NEVER, "nothing is known of the first tick: {margins:?}");
        assert!(NEVER > margins[1] && margins[1] > margins[2], "{margins:?}");
        assert!((margins[3] - margins[2]).abs() < 1e-12, "{margins:?}");
    }

    #[test]
    fn void_figure_is_no_evidence() {
        let tcp = TcpObservation { readings: 1, acked_bytes: 100, ..TcpObservation::default() };
        let window = Nanos::from_s(1);
        let host = HostObservation { window, tcp: Some(tcp), ..HostObservation::default() };
        let sound = Observation { hosts: vec![host], ..Observation::default() };
        let check =
            Check { name: CONNECTIONS_SEEN.to_owned(), passed: false, detail: String::new() };
        let void = Observation { checks: vec![check], ..sound.clone() };
        assert_eq!(log_ratio(Metric::TcpThroughputBps, &sound, &sound), Some(0.0));
        assert_eq!(log_ratio(Metric::TcpThroughputBps, &sound, &void), None);
    }

    #[test]
    fn stops_beyond_todays_ban_a_setting() {
        let mut evidence = no_evidence();
        (0..12).for_each(|_| evidence.count_stops(false, None));
        evidence.count_stops(false, Some((1, true)));
        assert_eq!(evidence.stops_too_often(1), None, "once is no proof");
        evidence.count_stops(false, Some((1, true)));
        let [own, todays] = evidence.stops_too_often(1).unwrap();
        assert_eq!((own.silent, own.all, todays.silent, todays.all), (2, 2, 0, 14));
        // The same now and then, as an application does on a host that is busy.
        for slice in 0..40 {
            evidence.count_stops(slice % 9 == 0, Some((2, slice % 15 == 0)));
        }
        assert_eq!(evidence.stops_too_often(2), None);
    }

    #[test]
    fn cut_is_as_long_as_changes_take() {
        let mut evidence = no_evidence();
        assert_eq!(evidence.measure_carry_over(), None);
        let turn = |after: usize| -> Vec<TickSeen> {
            let step = |tick: usize| TickSeen {
                rtt_ns: Some(if tick < after { 200.0 } else { 100.0 }),
                busy_ratio: Some(0.5),
            };
            (0..STEPS).map(step).collect()
        };
        for _ in 0..4 {
            evidence.turns[0].push(turn(8));
            evidence.turns[1].push(turn(2));
        }
        let found = evidence.measure_carry_over().unwrap();
        assert!(found.contains("after 4 changes") && found.contains("settled 400 ms"), "{found}");
        assert_eq!(evidence.cut, Nanos::from_ms(400));
        evidence.turns[0].iter_mut().for_each(|steps| *steps = turn(15));
        assert!(evidence.measure_carry_over().unwrap().contains("not settled"));
    }
}
