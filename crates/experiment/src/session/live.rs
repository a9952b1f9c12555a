//! Settings on live traffic: each takes a short turn between two of today's, while everything else goes on.
//!
//! A block is today, another setting, today ([`latput_protocol::live`]). Its two rows, one of today's and one of the other setting, are
//! a pair of the results, so that a load that drifts is in both. The noise is measured first, on blocks that are today's
//! throughout. From it follow when a guard is broken and how many blocks a comparison needs.

mod evidence;
#[cfg(test)]
mod tests;
mod time;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use latput_linux::process::unix_ms;
use latput_load::Stop;
use latput_model::live::{FEWEST, noise_scale, pairs_for, smallest_effect};
use latput_model::{EliminatedSetting, Goal, find_eliminated, objective_ratio};
use latput_protocol::live::{Guard, GuardBreach, LiveBlock, LiveSeen};
use latput_runner::Error;
use latput_runner::checks::{self, HostPart};
use latput_runner::trials::LiveRunner;
use latput_trial::live::{BAN_CHECK, BrokenGuard, GUARD_CHECK, Live, LiveSlice};
use latput_trial::metric::quantity;
use latput_trial::observation::{HostObservation, Role, TrafficObservation};
use latput_trial::{Check, Metric, Observation, Row, Traffic};
use latput_units::text::format_count;
use latput_units::{Nanos, SeededRng};

use self::evidence::LiveEvidence;
pub(super) use self::time::{RunTime, block_length, compute_budget, noise_blocks};
use super::{RunSession, TrialRunner};

/// A setting's first slice is this part of the others, because nothing is known of it.
const FIRST_SLICE: u64 = 2;
/// The traffic may be gone, or too much, for so long before a run ends.
const WAIT_AT_MOST: Duration = Duration::from_secs(120);
/// Time until a block is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Interval at which a wait looks for the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The only workload.
const WORKLOAD: usize = 0;

/// The state of a run on live traffic.
struct LiveRun<'r> {
    runner: &'r mut dyn LiveRunner,
    live: Live,
    evidence: LiveEvidence,
    goal: Option<Goal>,
    boot_id: String,
    /// Since when no block could be run.
    waiting_since: Option<Instant>,
}

/// Outcome of a block.
enum BlockOutcome {
    /// Its rows are stored.
    Kept,
    /// There was nothing to compare, and it may be tried again.
    Lost,
}

impl RunSession<'_> {
    /// Runs blocks on live traffic until every setting is decided, or time is up.
    pub(super) fn run_live(&mut self, runner: &mut dyn TrialRunner) -> Result<(), Error> {
        let runner = runner.live_runner().ok_or(Error::NoLiveTraffic)?;
        let live = self.run.plan.live().ok_or(Error::NoLiveTraffic)?.clone();
        let guards = live.guards.iter().map(|text| Guard::parse(text));
        let guards: Vec<Guard> = guards
            .collect::<Result<_, String>>()
            .map_err(|problem| Error::LiveTraffic { problem })?;
        let goal = self.results.goal.as_deref().and_then(|goal| Goal::parse_kept(goal).ok());
        let boot_id = runner.boot_id();
        let evidence = LiveEvidence::from_rows(guards, &self.results.rows);
        self.run_time = Some(RunTime::new(self.run.plan, &live));
        let run = &mut LiveRun { runner, live, evidence, goal, boot_id, waiting_since: None };
        self.measure_noise(run)?;
        if run.live.observe {
            if run.evidence.of_metric.values().all(|noise| noise_scale(noise).is_none()) {
                self.add_remark(format!(
                    "too few blocks to tell how much figures vary: {} of at least {FEWEST}. Use a longer --budget",
                    self.results.rows.len()
                ));
            }
            self.results.planned_trials = self.results.rows.len() as u64;
            return Ok(());
        }
        self.compare_settings(run)?;
        self.results.planned_trials = self.results.rows.len() as u64;
        Ok(())
    }

    /// Measures the noise of today, and tells what it means.
    fn measure_noise(&mut self, run: &mut LiveRun<'_>) -> Result<(), Error> {
        let is_needed = run.goal.is_some()
            || run.evidence.guards_with_margins().iter().any(|guard| guard.is_of_today);
        let blocks = noise_blocks(self.run.plan, &run.live);
        let blocks = blocks * u32::from(is_needed || run.live.observe);
        let measured = run.live.slice;
        for _ in 0..blocks {
            if !self.has_time_for(measured, run.evidence.cut) {
                break;
            }
            self.live_block(run, 0, measured)?;
        }
        let block = block_length(&run.live);
        for (metric, noise) in run.evidence.of_metric.clone() {
            let Some(scale) = noise_scale(&noise) else { continue };
            if run.live.observe {
                // The report is of nothing else: it tells these.
                let told = describe_provable_effects(
                    metric,
                    (scale, noise.len()),
                    block,
                    self.results.confidence,
                );
                self.results.notes.push(told);
            } else if metrics_of(run.goal.as_ref()).first() == Some(&metric) {
                let (half_width, confidence) = (self.results.half_width, self.results.confidence);
                let pairs = pairs_for(scale, half_width, confidence);
                self.add_remark(format!(
                    "two slices of today's setting differ by {:.1}% in {metric} (root mean square of {}). A ratio within \
                     {:.1}% takes about {} of each setting, {:.0} min",
                    100.0 * scale,
                    format_count(noise.len(), "block"),
                    100.0 * half_width,
                    format_count(pairs, "block"),
                    pairs as f64 * block.as_secs_f64() / 60.0
                ));
            }
        }
        Ok(())
    }

    /// Compares the settings with today's, in rounds of random order.
    fn compare_settings(&mut self, run: &mut LiveRun<'_>) -> Result<(), Error> {
        let others: Vec<usize> = (1..self.results.settings.len()).collect();
        let mut dropped: Vec<usize> = Vec::new();
        for round in 0_u64.. {
            let mut alive: Vec<usize> = others
                .iter()
                .copied()
                .filter(|setting| {
                    !dropped.contains(setting) && !run.evidence.banned.contains(setting)
                })
                .filter(|setting| !self.is_decided(run, *setting))
                .collect();
            if alive.is_empty() {
                return Ok(());
            }
            SeededRng::from_seed_and_index(self.results.seed, round).shuffle(&mut alive);
            for setting in alive {
                let is_new = !self.results.rows.iter().any(|row| row.setting == setting);
                let part = if is_new { FIRST_SLICE } else { 1 };
                let slice = Nanos::from_ns(run.live.slice.as_ns() / part);
                if !self.has_time_for(slice, run.evidence.cut) {
                    self.add_remark(format!(
                        "the budget of {} is used up",
                        compute_budget(self.run.plan)
                    ));
                    return Ok(());
                }
                self.live_block(run, setting, slice)?;
            }
            if let Some(found) = run.evidence.measure_carry_over().filter(|_| round < 3) {
                self.add_remark(found);
            }
            self.drop_worse(
                run,
                &mut dropped,
                0.5_f64.powi(i32::try_from(round + 1).unwrap_or(99)),
            );
        }
        Ok(())
    }

    /// Whether a setting needs no more blocks.
    fn is_decided(&mut self, run: &LiveRun<'_>, setting: usize) -> bool {
        let method = &self.run.plan.method;
        let blocks = self.results.rows.iter().filter(|row| row.setting == setting).count();
        let spent = run.evidence.used.get(&setting).copied().unwrap_or_default();
        if let Some(most) = run.live.most_per_setting
            && spent.saturating_add(run.live.slice) > most
        {
            let label = &self.results.settings[setting].label;
            let told = format!("`{label}` has had its {most} of `most_per_setting`");
            if !self.results.notes.contains(&told) {
                self.add_remark(told); // this is asked before every round
            }
            return true;
        }
        if blocks < method.repetitions_min as usize {
            return false;
        }
        match &run.goal {
            None => blocks >= method.repetitions_max as usize,
            Some(goal) => {
                let ratio = objective_ratio(&self.results, goal, setting);
                let width = ratio.and_then(|ratio| ratio.half_width_ratio());
                width.is_some_and(|width| width <= self.results.half_width)
            }
        }
    }

    /// Drops settings that are proven to be worse. The shares of the rounds add up to one.
    fn drop_worse(&mut self, run: &LiveRun<'_>, dropped: &mut Vec<usize>, share: f64) {
        let Some(goal) = &run.goal else { return };
        for EliminatedSetting { setting, why } in
            find_eliminated(&self.results, goal, share).unwrap_or_default()
        {
            if !dropped.contains(&setting) && !run.evidence.banned.contains(&setting) {
                dropped.push(setting);
                let label = &self.results.settings[setting].label;
                self.add_remark(format!("`{label}` has no further slices: {why}"));
            }
        }
    }

    /// Runs a block until there is something to compare; setting 0 is a block of today alone.
    fn live_block(
        &mut self,
        run: &mut LiveRun<'_>,
        setting: usize,
        measured: Nanos,
    ) -> Result<(), Error> {
        self.await_hours(run)?;
        loop {
            if let BlockOutcome::Kept = self.try_block(run, setting, measured)? {
                run.waiting_since = None;
                return sleep_unless_stopped(run.live.pause.as_duration(), self.run.stop);
            }
            let waited = run.waiting_since.get_or_insert_with(Instant::now).elapsed();
            let has_time = self.has_time_for(measured, run.evidence.cut);
            if !has_time && !self.results.rows.is_empty() {
                return Ok(());
            }
            if waited > WAIT_AT_MOST || !has_time {
                return Err(Error::LiveTraffic {
                    problem: format!(
                        "nothing could be {} for {} s. Today's setting is in force: run the same command again when \
                         the traffic is as usual",
                        if run.live.observe { "observed" } else { "compared" },
                        waited.as_secs().max(1)
                    ),
                });
            }
            if run.evidence.banned.contains(&setting) {
                return Ok(());
            }
            sleep_unless_stopped(TRY_AGAIN, self.run.stop)?;
        }
    }

    /// Waits until a block fits into the plan's hours. Today's setting is in force.
    fn await_hours(&mut self, run: &mut LiveRun<'_>) -> Result<(), Error> {
        let Some(hours) = run.live.hours else { return Ok(()) };
        let begun = Instant::now();
        let is_in = || hours.have(unix_ms(), block_length(&run.live));
        if !is_in() {
            self.progress.report_remark(&format!(
                "outside of the hours {hours}: today's setting is in force, and latput waits"
            ));
        }
        while !is_in() {
            sleep_unless_stopped(TRY_AGAIN, self.run.stop)?;
        }
        self.leave_out(begun.elapsed());
        Ok(())
    }

    fn try_block(
        &mut self,
        run: &mut LiveRun<'_>,
        setting: usize,
        measured: Nanos,
    ) -> Result<BlockOutcome, Error> {
        let number = self.results.rows.iter().map(|row| row.block + 1).max().unwrap_or(0);
        let of_sut = self.results.settings[setting].by_role.get(&Role::Sut);
        let is_today = setting == 0;
        let block = LiveBlock {
            at: Nanos::ZERO,
            setting: of_sut.filter(|_| !is_today).cloned().unwrap_or_default(),
            measured,
            cut: run.evidence.cut,
            watch: run.live.clone(),
            guards: run.evidence.guards_with_margins(),
            told_on: None,
        };
        let started_unix_ms = unix_ms();
        let seen = run.runner.run_block(block, self.run.stop)?;
        for note in seen.notes.iter().chain(&seen.left) {
            if !self.results.notes.contains(note) {
                self.add_remark(note.clone());
            }
        }
        if let Some(slice) = seen.slice.as_ref().filter(|_| !is_today) {
            let used = run.evidence.used.entry(setting).or_default();
            *used = used.saturating_add(slice.window);
        }
        let mut other = seen.slice.clone().map(|host| observe_slice(run, host, &seen));
        if let Some(why) = &seen.refused {
            run.evidence.banned.insert(setting);
            let label = &self.results.settings[setting].label;
            self.add_remark(format!("`{label}` is banned because it cannot be set here: {why}"));
            return Ok(BlockOutcome::Lost);
        }
        let is_silent = !is_today && seen.ended.is_some() && seen.after.is_none();
        let tried = seen.slice.as_ref().filter(|_| !is_today).map(|_| (setting, is_silent));
        run.evidence.count_stops(seen.is_silent_today, tried);
        if let Some(why) = &seen.ended {
            let Some(why) = self.ban_silent(run, tried, why) else { return Ok(BlockOutcome::Lost) };
            if let Some(other) = &mut other {
                other.checks.push(build_ban_check(&why));
            }
        }
        run.evidence.add_block(&seen, is_today);
        let today = build_observation(run, join_today(&seen, is_today), &seen.todays_figures);
        if is_today {
            learn_noise(run, &seen);
        } else if let (Some(broken), Some(other)) = (&seen.broken, &mut other) {
            other.checks.extend(self.count_strike(run, setting, broken));
        }
        if let Some(other) = other.as_mut().filter(|_| !is_today) {
            // A slice that was ended early has only today's before it.
            let half = if seen.after.is_some() { 1.0 } else { 0.5 };
            let seconds: f64 = other.hosts.iter().map(|host| host.window.as_secs_f64()).sum();
            let part = half * seconds / run.live.slice.as_secs_f64();
            let apart = learn_around(run, &seen);
            let proven = run.evidence.weigh_slice(setting, part, [other, &today], &apart);
            other.checks.extend(self.ban_proven(run, setting, &proven));
        }
        let row = |setting: usize, observation: Observation| Row {
            block: number,
            setting,
            workload: WORKLOAD,
            started_unix_ms,
            observation,
        };
        self.store_row(row(0, today))?;
        if let Some(other) = other.filter(|_| !is_today) {
            self.store_row(row(setting, with_ban(other)))?;
        }
        Ok(BlockOutcome::Kept)
    }

    /// Tells why a block was lost. If its setting is banned because the traffic or the application falls silent under it: why.
    fn ban_silent(
        &mut self,
        run: &mut LiveRun<'_>,
        tried: Option<(usize, bool)>,
        why: &str,
    ) -> Option<String> {
        let silent = tried.filter(|(_, is_silent)| *is_silent).map(|(setting, _)| setting);
        let label = silent.map(|setting| self.results.settings[setting].label.clone());
        if let (Some(setting), Some(label)) = (silent, &label)
            && let Some([own, todays]) = run.evidence.stops_too_often(setting)
        {
            run.evidence.banned.insert(setting);
            let said = format!(
                "{why}, in {} of its {}, and in {} of {} under today's setting",
                own.silent,
                format_count(own.all, "slice"),
                todays.silent,
                format_count(todays.all, "block")
            );
            self.add_remark(format!("`{label}` is banned: {said}"));
            return Some(said);
        }
        if run.waiting_since.is_none() {
            let place = label.map_or_else(String::new, |label| format!(" in a slice of `{label}`"));
            self.progress.report_remark(&format!(
                "{why}{place}: today's setting is in force, and the block is tried again"
            ));
        }
        None
    }

    /// Bans a setting of which all slices together break a guard. Returns the failed check.
    fn ban_proven(
        &mut self,
        run: &mut LiveRun<'_>,
        setting: usize,
        proven: &[usize],
    ) -> Option<Check> {
        let guards = run.evidence.guards_with_margins();
        let guard = &guards.get(*proven.first()?)?.text;
        if !run.evidence.banned.insert(setting) {
            return None;
        }
        let why = format!("its slices together are proven to break the guard `{guard}`");
        self.add_remark(format!("`{}` is banned: {why}", self.results.settings[setting].label));
        Some(build_ban_check(&why))
    }

    /// Counts a broken guard. Returns the failed check if that bans the setting.
    fn count_strike(
        &mut self,
        run: &mut LiveRun<'_>,
        setting: usize,
        broken: &GuardBreach,
    ) -> Option<Check> {
        let label = self.results.settings[setting].label.clone();
        let said = in_words(broken, &run.evidence.guards_with_margins());
        if run.evidence.has_struck_out(setting, run.live.strikes) {
            self.add_remark(format!("`{label}` is banned: {said}"));
            return Some(build_ban_check(&said));
        }
        self.add_remark(format!("`{label}`: {said}; it is banned if that happens again"));
        None
    }
}

/// Adds the ratios of today's slice to today around it.
fn learn_noise(run: &mut LiveRun<'_>, seen: &LiveSeen) {
    let Some(slice) = seen.slice.clone() else { return };
    let mut metrics = metrics_of(run.goal.as_ref());
    metrics.extend(run.evidence.guards_with_margins().iter().map(|guard| guard.metric));
    metrics.extend([
        Metric::TcpRttNsP99,
        Metric::TcpRttSampleNsP99,
        Metric::TcpThroughputBps,
        Metric::SutPacketCpuNs,
        Metric::SutCpuBusyRatio,
    ]);
    metrics.extend(seen.figures.keys().copied().map(Metric::Custom));
    metrics.sort_unstable();
    metrics.dedup();
    let slice = build_observation(run, slice, &seen.figures);
    let around = build_observation(run, join_today(seen, false), &seen.todays_figures);
    run.evidence.add_pair(&metrics, &slice, &around);
}

/// Learns the noise from today's setting before and after the slice of another one.
fn learn_around(run: &mut LiveRun<'_>, seen: &LiveSeen) -> BTreeMap<Metric, f64> {
    let Some(after) = seen.after.clone() else { return BTreeMap::new() };
    let before = build_observation(run, seen.before.clone(), &seen.figures_before);
    let after = build_observation(run, after, &seen.figures_after);
    run.evidence.add_around(&before, &after)
}

/// The figures that a goal reads.
fn metrics_of(goal: Option<&Goal>) -> Vec<Metric> {
    let Some(goal) = goal else { return Vec::new() };
    let conditions = goal.conditions.iter().map(|condition| &condition.figure);
    let figures = goal.objective.iter().chain(conditions);
    figures.map(|figure| figure.measure.metric_for(&Traffic::Live)).collect()
}

/// Today's counts around the slice; with the slice if that was today's as well.
fn join_today(seen: &LiveSeen, with_slice: bool) -> HostObservation {
    let slice = seen.slice.as_ref().filter(|_| with_slice);
    let others = slice.into_iter().chain(&seen.after);
    others.fold(seen.before.clone(), HostObservation::joined)
}

/// The observation of another setting's slice.
fn observe_slice(run: &LiveRun<'_>, host: HostObservation, seen: &LiveSeen) -> Observation {
    let guards = run.evidence.guards_with_margins();
    let mut observation = build_observation(run, host, &seen.figures);
    observation.checks.extend(of_changes(seen, run.evidence.cut));
    observation.checks.push(guard_check(seen, &guards));
    observation.live = Some(slice_of(seen, run.evidence.cut, &guards));
    observation
}

fn build_observation(
    run: &LiveRun<'_>,
    host: HostObservation,
    figures: &BTreeMap<latput_trial::metric::CustomMetric, f64>,
) -> Observation {
    let part = HostPart { boot_id: &run.boot_id, traffic_cpu: Nanos::ZERO };
    let (flow, hosts) = (TrafficObservation::default(), vec![host]);
    let checks = checks::of_trial(&Traffic::Live, &flow, &hosts, &[part]);
    Observation { hosts, checks, figures: figures.clone(), ..Observation::default() }
}

fn of_changes(seen: &LiveSeen, cut: Nanos) -> [Check; 2] {
    let [change, back] = seen.changes;
    let in_cut = Check {
        name: "changed-in-cut".to_owned(),
        passed: change.max(back) <= cut,
        detail: format!(
            "changing the setting took {:.1} ms, and back {:.1} ms, of the {:.0} ms that are cut",
            change.as_ms_f64(),
            back.as_ms_f64(),
            cut.as_ms_f64()
        ),
    };
    [in_cut, checks::knob_drift(&seen.drift)]
}

/// Says in the slice itself why its setting is banned, if a check does.
fn with_ban(mut observation: Observation) -> Observation {
    let banned = observation.checks.iter().find(|check| check.name == BAN_CHECK);
    let banned = banned.map(|check| check.detail.clone());
    observation.live = observation.live.map(|live| LiveSlice { banned, ..live });
    observation
}

/// The changes of a block's slice, and the guard that ended it.
fn slice_of(seen: &LiveSeen, cut: Nanos, guards: &[Guard]) -> LiveSlice {
    let [change, change_back] = seen.changes;
    let broken = seen.broken.as_ref().map(|broken| BrokenGuard {
        guard: guards.get(broken.guard).map_or_else(String::new, |guard| guard.text.clone()),
        value: broken.value,
        today: broken.today,
        after: broken.after,
        until_back: broken.until_back,
    });
    LiveSlice { change, change_back, cut, broken, banned: None }
}

fn guard_check(seen: &LiveSeen, guards: &[Guard]) -> Check {
    let detail = match &seen.broken {
        None => "no guard was broken".to_owned(),
        Some(broken) => in_words(broken, guards),
    };
    Check { name: GUARD_CHECK.to_owned(), passed: seen.broken.is_none(), detail }
}

/// The failed check of a slice after which its setting is banned.
fn build_ban_check(why: &str) -> Check {
    Check { name: BAN_CHECK.to_owned(), passed: false, detail: why.to_owned() }
}

fn in_words(broken: &GuardBreach, guards: &[Guard]) -> String {
    let Some(guard) = guards.get(broken.guard) else { return "a guard was broken".to_owned() };
    let figure = |value: f64| quantity(guard.metric, &Traffic::Live, value);
    let today =
        broken.today.map_or(String::new(), |today| format!(" against today's {}", figure(today)));
    format!(
        "the guard `{}` was broken {:.0} ms after the change ({}{today}); today's setting was back {:.1} ms \
         later",
        guard.text,
        broken.after.as_ms_f64(),
        figure(broken.value),
        broken.until_back.as_ms_f64()
    )
}

/// Differences of a figure that could be proven in 1, 10 and 60 minutes of blocks of this length.
fn describe_provable_effects(
    metric: Metric,
    (scale, blocks): (f64, usize),
    block: Nanos,
    confidence: f64,
) -> String {
    let effect = |minutes: u32| {
        let pairs = f64::from(minutes) * 60.0 / block.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number of pairs, far below 2^53"
        )]
        let effect = smallest_effect(scale, pairs as usize, confidence);
        effect.map_or("nothing".to_owned(), |effect| format!("{:.1}%", 100.0 * effect))
    };
    format!(
        "{metric}: two slices of today's setting differ by {:.1}% ({}). Smallest provable difference: {} in \
         1 min, {} in 10 min, {} in 60 min",
        100.0 * scale,
        format_count(blocks, "block"),
        effect(1),
        effect(10),
        effect(60)
    )
}

/// Waits, unless the run is stopped.
fn sleep_unless_stopped(time: Duration, stop: &Stop) -> Result<(), Error> {
    let until = Instant::now() + time;
    loop {
        if stop.is_raised() {
            return Err(Error::Interrupted);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}
