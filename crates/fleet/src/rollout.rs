//! Rollouts: the wanted values come to a fleet in stages, and go back where a guard breaks.
//!
//! Each host's change is a transaction of its own that waits for its confirmation. A host therefore goes back by itself
//! when this process, or the line to it, is gone. All are confirmed at the end, or none is.

#![warn(clippy::wildcard_enum_match_arm)]

mod change;
mod report;
mod watch;

use std::thread;
use std::time::{Duration, Instant};

use latput_linux::process::unix_ms;
use latput_units::Nanos;
use latput_units::text::format_count;

pub use self::report::{HostReport, RolloutFailure, RolloutReport};
use crate::context::{Error, elapsed_since};
use crate::fleet::{Fleet, HostErrorKind, HostWork};
use crate::guard::{GuardLimits, TimedLook};
use crate::judge::{HostState, JudgedHost, judge_host, undecided_groups};
use crate::outcome::HostOutcome;
use crate::stages::{StageStep, check_steps, plan_stages};
use crate::subprocess::Until;
use crate::unfinished::rollout_name;

/// The least time between the two looks before a change: the rate of faults is taken over it.
const BASELINE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a rollout is to go.
#[derive(Clone, Debug)]
pub struct RolloutOptions {
    /// Hosts of each group with the values after each stage.
    pub steps: Vec<StageStep>,
    /// Every host goes back after this time unless all are well.
    pub confirm_within: Nanos,
    /// How long the hosts must be well after each stage.
    pub soak: Nanos,
    /// The words of the user's guards.
    pub commands: Vec<Vec<String>>,
    /// Bounds of the other guards.
    pub guards: GuardLimits,
    /// Whether links may go down and up.
    pub allow_link_reset: bool,
    /// Whether the hosts only say what they would do.
    pub dry_run: bool,
    /// The options that name the wanted values, as words of a command line.
    pub wanted: String,
}

/// How far a host has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPhase {
    /// It had the wanted values.
    Same,
    /// It is not changed: its outcome, and why.
    LeftOut(HostOutcome, String),
    /// Its stage has not come.
    Planned,
    /// It would refuse its change, and why: a rollout would end there.
    WouldRefuse(String),
    /// It is changed, or may be.
    Changed(Lease),
    /// It keeps its change, as this entry of its journal where that is known.
    Confirmed(Option<u64>),
    /// It is as it was; what is to be said of it.
    PutBack(String),
    /// It went back before it was confirmed.
    WentBack(String),
    /// It was not reached, and goes back by itself.
    GoesBack(String, Lease),
    /// It could not go back, and why.
    Stranded(String),
}

/// The time in which a change must be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    /// Its earliest end, on this host's clock.
    ends_at: Instant,
    /// Its latest end, in milliseconds since 1970.
    back_by_unix_ms: u64,
}

/// How a rollout ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolloutEnded {
    /// Nothing was to be done.
    Nothing,
    /// Nothing was done: it was a dry run.
    Rehearsed,
    /// Every change was confirmed, where that could be.
    Confirmed,
    /// Every change was put back, where that could be, and why.
    Broken(String),
}

/// A host of the fleet with what happened to it.
#[derive(Debug)]
struct RolloutPart {
    phase: HostPhase,
    /// The looks before the change.
    before: Vec<TimedLook>,
    /// The first look after it.
    since: Option<TimedLook>,
}

/// A setting on its way to a fleet.
struct Rollout<'a> {
    fleet: &'a Fleet<'a>,
    options: &'a RolloutOptions,
    /// Name of this rollout in the hosts' checkpoints and journals.
    name: String,
    begun: Instant,
    /// The hosts, in the order of the fleet.
    parts: Vec<RolloutPart>,
    /// The hosts of each stage, by their place.
    stages: Vec<Vec<usize>>,
}

impl RolloutOptions {
    /// The time that a stage may take: its soak, and the looks at its two ends, each with a second try.
    fn stage_within(&self, timeout: Nanos) -> Nanos {
        self.soak.saturating_add(timeout.saturating_mul(4))
    }

    /// Refuses a time to confirm that ends before the stages do: each has its soak and four times `--timeout`.
    fn check_times(&self, stages: usize, timeout: Nanos) -> Result<(), Error> {
        let stages = u64::try_from(stages).unwrap_or(u64::MAX);
        let needed = self.stage_within(timeout).saturating_mul(stages);
        if self.confirm_within >= needed {
            return Ok(());
        }
        let seconds = needed.as_ns().div_ceil(1_000_000_000);
        Err(Error::Usage(format!(
            "{} {} up to {seconds} s. Use `--confirm-within {}min`.",
            format_count(stages, "stage"),
            if stages == 1 { "needs" } else { "need" },
            seconds.div_ceil(60)
        )))
    }
}

/// Brings the wanted values of each host to a fleet, and says what became of every host.
pub fn roll_out(fleet: &Fleet<'_>, options: &RolloutOptions) -> Result<RolloutReport, Error> {
    fleet.require_wishes()?;
    check_steps(&options.steps).map_err(Error::Usage)?;
    let groups: Vec<&str> = fleet.hosts.iter().map(|host| host.group.as_str()).collect();
    let stages = plan_stages(&groups, &options.steps).len();
    options.check_times(stages, fleet.source.timeout)?;
    let mut rollout = Rollout::plan(fleet, options)?;
    let ended = rollout.run_stages();
    Ok(rollout.into_report(ended))
}

impl<'a> Rollout<'a> {
    /// Looks at every host, and divides those that are to be changed into stages.
    fn plan(fleet: &'a Fleet<'a>, options: &'a RolloutOptions) -> Result<Self, Error> {
        let begun = Instant::now();
        let judged = fleet.inspect(None).judged;
        if let Some(problem) = undecided_groups(&judged).first() {
            return Err(Error::Usage(format!("{problem}: name the right one by `driver`")));
        }
        let at = elapsed_since(begun);
        let parts = judged.into_iter().map(|judged| RolloutPart {
            phase: first_phase(&judged),
            before: judged.look.into_iter().map(|look| TimedLook { at, look }).collect(),
            since: None,
        });
        let (parts, stages) = (parts.collect(), Vec::new());
        let mut rollout = Self { fleet, options, name: String::new(), begun, parts, stages };
        let planned: Vec<usize> = rollout.in_phase(|phase| *phase == HostPhase::Planned);
        rollout.name = rollout_name(unix_ms(), std::process::id(), planned.len());
        let groups: Vec<&str> = planned.iter().map(|at| fleet.hosts[*at].group.as_str()).collect();
        let of_planned = |stage: Vec<usize>| stage.into_iter().map(|at| planned[at]).collect();
        rollout.stages = plan_stages(&groups, &options.steps).into_iter().map(of_planned).collect();
        let left_out = rollout.in_phase(|phase| matches!(phase, HostPhase::LeftOut(..))).len();
        let same = rollout.in_phase(|phase| *phase == HostPhase::Same).len();
        fleet.report_remark(&format!(
            "{}: {} to change, {same} as wanted, {left_out} left out",
            rollout.name,
            format_count(planned.len(), "host")
        ));
        Ok(rollout)
    }

    fn is_stopped(&self) -> bool {
        self.fleet.context.stop.is_raised()
    }

    fn until_stop(&self) -> Until<'a> {
        Until::Stop(self.fleet.context.stop)
    }

    /// The end of what changes a host: it is not cut short by the first Ctrl-C.
    fn until_second_stop(&self) -> Until<'a> {
        Until::SecondStop(self.fleet.context.stop)
    }

    fn host_name(&self, at: usize) -> &'a str {
        &self.fleet.hosts[at].name
    }

    fn in_phase(&self, is_meant: impl Fn(&HostPhase) -> bool) -> Vec<usize> {
        (0..self.parts.len()).filter(|at| is_meant(&self.parts[*at].phase)).collect()
    }

    fn changed_hosts(&self) -> Vec<usize> {
        self.in_phase(|phase| matches!(phase, HostPhase::Changed(_)))
    }

    /// Changes stage after stage; confirms all, or puts all back.
    fn run_stages(&mut self) -> RolloutEnded {
        if self.options.dry_run {
            self.rehearse();
            return RolloutEnded::Rehearsed;
        }
        if self.stages.is_empty() && !self.is_stopped() {
            return RolloutEnded::Nothing;
        }
        let changed = (0..self.stages.len()).try_for_each(|number| self.run_stage(number));
        // A stop that nothing else has told of.
        if changed.is_ok() && self.is_stopped() {
            self.put_back();
            return RolloutEnded::Broken(INTERRUPTED.to_owned());
        }
        if let Err(why) = changed.and_then(|()| self.extend_leases()) {
            self.fleet.report_remark(&format!("{why}: every changed host goes back"));
            self.put_back();
            return RolloutEnded::Broken(why);
        }
        self.confirm_all();
        self.record_end();
        RolloutEnded::Confirmed
    }

    /// Records on the hosts that the rollout has come to its end, and which hosts it did not reach.
    fn record_end(&self) {
        let confirmed = self.in_phase(|phase| matches!(phase, HostPhase::Confirmed(_)));
        self.fleet.record_rollout_end(&self.name, &confirmed, &self.missed_hosts());
    }

    /// The names of the hosts that could not be reached, or not in time.
    fn missed_hosts(&self) -> Vec<&'a str> {
        let missed = self.in_phase(HostPhase::is_missed);
        missed.into_iter().map(|at| self.host_name(at)).collect()
    }

    /// One stage: a second look, the change, and the soak. The error is what is broken.
    fn run_stage(&mut self, number: usize) -> Result<(), String> {
        self.has_time()?;
        self.wait_until(Instant::now() + BASELINE)?;
        self.look_again(number)?;
        let stage = self.planned_of(number);
        if stage.is_empty() {
            return Ok(());
        }
        let of = format!("stage {} of {}", number + 1, self.stages.len());
        self.fleet.report_remark(&format!("{of}: {}", format_count(stage.len(), "host")));
        self.set_stage(&stage)?;
        self.watch_hosts()?;
        self.fleet.report_remark(&format!("{of}: all guards held for {}", self.options.soak));
        Ok(())
    }

    fn planned_of(&self, number: usize) -> Vec<usize> {
        let stage = self.stages[number].iter().copied();
        stage.filter(|at| self.parts[*at].phase == HostPhase::Planned).collect()
    }

    /// Whether the time of the first change lasts for another stage.
    fn has_time(&self) -> Result<(), String> {
        let leases = self.parts.iter().filter_map(|part| Some(part.phase.lease()?.ends_at));
        let stage_within = self.options.stage_within(self.fleet.source.timeout);
        let needed = Instant::now() + stage_within.as_duration();
        match leases.min() {
            Some(ends_at) if ends_at < needed => Err(format!(
                "the first host would go back by itself before the next stage ends: give a longer \
                 --confirm-within than {}",
                self.options.confirm_within
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Sleeps; the error is that a stop has come.
    fn wait_until(&self, end: Instant) -> Result<(), String> {
        while !self.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
        Err(INTERRUPTED.to_owned())
    }

    /// Looks at a stage's hosts right before they are changed.
    fn look_again(&mut self, number: usize) -> Result<(), String> {
        let look = |work: &mut HostWork<'_, '_>| work.read_interface(None);
        let stage = self.planned_of(number);
        let answers = self.fleet.for_each(&stage, self.until_stop(), "hosts looked at", look);
        let now = elapsed_since(self.begun);
        for (at, answer) in answers {
            let answer = answer.unwrap_or(Err(HostState::NotAsked));
            let judged = judge_host(&self.fleet.hosts[at], answer);
            if judged.state == HostState::NotAsked {
                return Err(INTERRUPTED.to_owned());
            }
            let part = &mut self.parts[at];
            part.phase = first_phase(&judged);
            part.before.extend(judged.look.map(|look| TimedLook { at: now, look }));
        }
        Ok(())
    }

    /// Asks every host whether it would make the change. Those that have the values by now leave their stages.
    fn rehearse(&mut self) {
        let planned = self.in_phase(|phase| *phase == HostPhase::Planned);
        let set = |work: &mut HostWork<'_, '_>| self.set_values(work).1;
        let results = self.fleet.for_each(&planned, self.until_stop(), "hosts asked", set);
        for (at, result) in results {
            self.parts[at].phase = match result {
                Some(Ok(true)) => continue,
                Some(Ok(false)) => HostPhase::Same,
                Some(Err(error)) if error.kind().is_some() => {
                    HostPhase::WouldRefuse(error.into_words())
                }
                Some(Err(error)) => HostPhase::from_state(&error.into_state()),
                None => HostPhase::from_state(&HostState::NotAsked),
            };
        }
        let would_refuse = self.in_phase(|phase| matches!(phase, HostPhase::WouldRefuse(_)));
        for stage in &mut self.stages {
            stage.retain(|at| {
                matches!(self.parts[*at].phase, HostPhase::Planned | HostPhase::WouldRefuse(_))
            });
        }
        self.stages.retain(|stage| !stage.is_empty());
        if let Some(first) = would_refuse.first() {
            let host = self.host_name(*first);
            self.fleet.report_remark(&format!(
                "{host} would refuse: a rollout would end at its stage, and every changed host would go back"
            ));
        }
    }

    /// Sets the values on hosts. The error is that one refused, or was lost.
    fn set_stage(&mut self, stage: &[usize]) -> Result<(), String> {
        let set = |work: &mut HostWork<'_, '_>| self.set_values(work);
        let results = self.fleet.for_each(stage, self.until_second_stop(), "hosts changed", set);
        let mut problems = Vec::new();
        for (at, result) in results {
            let Some((lease, ended)) = result else { continue }; // it was not begun
            self.parts[at].phase = match ended {
                Ok(true) => HostPhase::Changed(lease),
                Ok(false) => HostPhase::Same,
                Err(error) => {
                    let kind = error.kind();
                    let why = error.into_words();
                    problems.push(format!("{}: {why}", self.host_name(at)));
                    match kind {
                        None => HostPhase::Changed(lease),
                        Some(HostErrorKind::Stranded) => HostPhase::Stranded(why),
                        Some(HostErrorKind::RolledBack | HostErrorKind::Other) => {
                            HostPhase::LeftOut(HostOutcome::Refused, why)
                        }
                    }
                }
            };
        }
        first_of(problems)?;
        if self.is_stopped() { Err(INTERRUPTED.to_owned()) } else { Ok(()) }
    }

    /// Gives every changed host its whole time once more before the first is confirmed: none goes back while the others
    /// are, and one that cannot be reached is found while all can still go back.
    fn extend_leases(&mut self) -> Result<(), String> {
        let until = self.until_second_stop();
        let extend = |work: &mut HostWork<'_, '_>| self.extend_lease(work);
        let what = "hosts ready to be confirmed";
        let results = self.fleet.for_each(&self.changed_hosts(), until, what, extend);
        let mut problems = Vec::new();
        for (at, result) in results {
            let why = match result {
                Some((lease, ended)) => {
                    self.parts[at].phase = HostPhase::Changed(lease);
                    ended.err()
                }
                None => Some("it did not answer".to_owned()),
            };
            problems.extend(why.map(|why| format!("{}: {why}", self.host_name(at))));
        }
        first_of(problems)
    }
}

impl HostPhase {
    /// The phase of a host that is not changed because of its state.
    fn from_state(state: &HostState) -> Self {
        let (outcome, why) = state.left_out();
        Self::LeftOut(outcome, why)
    }

    /// The time in which the host goes back, where that is pending.
    const fn lease(&self) -> Option<Lease> {
        match self {
            Self::Changed(lease) | Self::GoesBack(_, lease) => Some(*lease),
            Self::Same
            | Self::LeftOut(..)
            | Self::Planned
            | Self::WouldRefuse(_)
            | Self::Confirmed(_)
            | Self::PutBack(_)
            | Self::WentBack(_)
            | Self::Stranded(_) => None,
        }
    }

    /// Whether the host was not reached, or not in time.
    const fn is_missed(&self) -> bool {
        match self {
            Self::LeftOut(outcome, _) => outcome.is_unreached(),
            Self::WentBack(_) | Self::GoesBack(..) => true,
            Self::Same
            | Self::Planned
            | Self::WouldRefuse(_)
            | Self::Changed(_)
            | Self::Confirmed(_)
            | Self::PutBack(_)
            | Self::Stranded(_) => false,
        }
    }
}

/// Ending of a rollout that nothing else has ended.
const INTERRUPTED: &str = "interrupted";

/// The first problem, and how many more there are; fine without one.
fn first_of(problems: Vec<String>) -> Result<(), String> {
    match problems.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        [first, more @ ..] => Err(format!("{first} (and {} more)", more.len())),
    }
}

/// Whether a host is to be changed, by a look at it.
fn first_phase(judged: &JudgedHost) -> HostPhase {
    let waiting = judged.look.as_ref().and_then(|found| found.waiting.as_ref());
    match (&judged.state, waiting) {
        (HostState::Same, None) => HostPhase::Same,
        (HostState::Drifted(missing), None) => {
            let unreadable = missing.iter().find(|missing| missing.value.is_none());
            match unreadable {
                Some(_) => HostPhase::LeftOut(HostOutcome::LeftOut, judged.state.explanation()),
                None => HostPhase::Planned,
            }
        }
        (HostState::Same | HostState::Drifted(_), Some(waiting)) => {
            let left = waiting.left_ms.map_or_else(
                || "is under way".to_owned(),
                |ms| format!("waits to be confirmed for another {} s", ms.div_ceil(1000)),
            );
            HostPhase::LeftOut(HostOutcome::LeftOut, format!("a change ({}) {left}", waiting.by))
        }
        (
            HostState::Other(_)
            | HostState::Failed(_)
            | HostState::Unreachable(_)
            | HostState::TimedOut(_)
            | HostState::NotAsked,
            _,
        ) => HostPhase::from_state(&judged.state),
    }
}
