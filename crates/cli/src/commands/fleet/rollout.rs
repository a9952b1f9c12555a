//! `latput fleet apply`: brings the wanted values to a fleet in stages, and back where a guard breaks.
//!
//! Each host's change is a transaction of its own that waits for its confirmation, so that a host goes back by itself
//! when this process, or the line to it, is gone. All are confirmed at the end, or none is.

mod change;
mod ending;
mod watch;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use latput_fleet::guard::TimedLook;
use latput_fleet::judge::{HostState, JudgedHost, find_differences, undecided_groups};
use latput_fleet::rollouts::rollout_name;
use latput_fleet::{GuardLimits, HostAnswer, StageStep, judge_hosts, plan_stages};
use latput_linux::confine::UsedFiles;
use latput_linux::process::unix_ms;
use latput_load::Stop;
use latput_units::Nanos;

use self::change::{HostChange, SettingEnded};
use super::crew::{self, HostSlot};
use super::hosts::{Fleet, FleetArgs, FleetMember, FleetRights, InPlace, StopCondition};
use super::wanted::WantedArgs;
use super::{finish, guard_command, look, table};
use crate::commands::change as local_change;
use crate::context::CliContext;
use crate::exit::CliError;
use crate::output;

/// The least time between the two looks before a change: the rate of faults is taken over it.
const BASELINE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Set the wanted values in stages, watch the hosts, and put all back where a guard breaks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet apply -i inventory.toml --dry-run
  latput fleet apply -i inventory.toml --canary 1 --then 10% --then all --confirm-within 6min --soak 30s
  latput fleet apply -i inventory.toml --from latput-results.db
      what a run recommends, in the place of the inventory's settings
  latput fleet apply -i inventory.toml --guard 'curl -fsS -m 5 http://{host}/health'

Each stage counts the hosts of a group, those of earlier stages included. After each stage all changed hosts
must be well for --soak: reachable, interface up, carrier as before, values in force, errors and drops as
before, every --guard with exit code 0. When all are well at the end, the change is confirmed on every host.
Otherwise, and on Ctrl-C, every host goes back (exit code 4). A host that cannot be reached then goes back by
itself at the end of --confirm-within, and is named (exit code 5).

Hosts that cannot be used are left out and named (exit code 6). The same command later changes the hosts that
are not as wanted.")]
pub(super) struct Args {
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// The first stage: a number of hosts of each group, or a share such as 10%.
    #[arg(long, value_name = "HOSTS", default_value = "1")]
    canary: StageStep,
    /// A later stage: the number of hosts of each group with the values after it. May be repeated [default: all].
    #[arg(long, value_name = "HOSTS")]
    then: Vec<StageStep>,
    /// Put every host back after this time (1s to 24h) unless all are well.
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = local_change::confirm_within)]
    confirm_within: Nanos,
    /// How long the hosts must be well after each stage (0s to 24h).
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_soak)]
    soak: Nanos,
    /// A command that is run here for each changed host and must exit with 0: `{host}`, `{interface}` and `{target}`
    /// are those of the host. No shell reads it. May be repeated.
    #[arg(long, value_name = "COMMAND")]
    guard: Vec<String>,
    /// Errors and drops of an interface that are allowed in addition to the earlier rate, in packets a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    new_faults_most: u64,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    /// Look at the hosts, and print the stages and what would be changed.
    #[arg(long)]
    dry_run: bool,
}

fn parse_soak(text: &str) -> Result<Nanos, String> {
    let time = Nanos::from_text_or_seconds(text).map_err(|error| error.to_string())?;
    let is_meant = time <= Nanos::from_s(24 * 3600);
    is_meant.then_some(time).ok_or_else(|| "must be 0s to 24h".to_owned())
}

/// How far a host has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPhase {
    /// It had the wanted values.
    Same,
    /// It is of no use, and why.
    LeftOut(String),
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
    /// It was not reached, and goes back by itself.
    GoesBack(String, Lease),
    /// It could not go back, and why.
    Stranded(String),
}

/// The time in which a change must be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    /// Its earliest end, on this host's clock.
    ends_at: Instant,
    /// Its latest end, in milliseconds since 1970.
    back_by_unix_ms: u64,
}

/// A host with what happened to it.
#[derive(Debug)]
pub(super) struct RolloutHost {
    member: FleetMember,
    phase: HostPhase,
    /// The looks before the change.
    before: Vec<TimedLook>,
    /// The first look after it.
    since: Option<TimedLook>,
}

/// How the whole ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RolloutEnded {
    /// Nothing was to be done.
    Nothing,
    /// Nothing was done: it was a dry run.
    Rehearsed,
    /// Every change was confirmed, where that could be.
    Confirmed,
    /// Every change was put back, where that could be, and why.
    Broken(String),
}

/// A setting on its way to a fleet.
pub(super) struct Rollout<'a> {
    args: &'a Args,
    context: &'a CliContext,
    fleet: Fleet,
    /// Name of this rollout in the hosts' checkpoints and journals.
    name: String,
    guards: GuardLimits,
    /// The words of each guard.
    commands: Vec<Vec<String>>,
    begun: Instant,
    parts: Vec<RolloutHost>,
    stages: Vec<Vec<usize>>,
}

impl Args {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let commands: Vec<_> = self
            .guard
            .iter()
            .map(|line| guard_command::words_of(line))
            .collect::<Result<_, _>>()?;
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), []);
        let rights = FleetRights { changes: !self.dry_run, guards: &commands, files };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        fleet.must_want()?;
        let groups: Vec<&str> = fleet.members.iter().map(|it| it.host.group.as_str()).collect();
        self.check_times(plan_stages(&groups, &self.stage_steps()).len())?;
        let mut rollout = Rollout::new(&self, context, fleet, commands);
        rollout.plan_stages()?;
        let ended = rollout.run_stages();
        rollout.print_outcomes(&ended)
    }

    fn stage_steps(&self) -> Vec<StageStep> {
        let then = if self.then.is_empty() { [StageStep::All].as_slice() } else { &self.then };
        std::iter::once(self.canary).chain(then.iter().copied()).collect()
    }

    /// The time that a stage may take: its soak, and the looks at its two ends, each with a second try.
    fn stage_within(&self) -> Nanos {
        self.soak.saturating_add(self.fleet.timeout().saturating_mul(4))
    }

    /// Refuses a time to confirm that ends before the stages do: each has its soak and four times `--timeout`.
    fn check_times(&self, stages: usize) -> Result<(), CliError> {
        let stages = u64::try_from(stages).unwrap_or(u64::MAX);
        let needed = self.stage_within().saturating_mul(stages);
        if self.confirm_within >= needed {
            return Ok(());
        }
        let seconds = needed.as_ns().div_ceil(1_000_000_000);
        Err(CliError::usage(format!(
            "{stages} stages need up to {seconds} s. Use `--confirm-within {}min`.",
            seconds.div_ceil(60)
        )))
    }
}

impl<'a> Rollout<'a> {
    fn new(
        args: &'a Args,
        context: &'a CliContext,
        fleet: Fleet,
        commands: Vec<Vec<String>>,
    ) -> Self {
        let guards = GuardLimits { faults_most_pps: args.new_faults_most };
        Self {
            args,
            context,
            fleet,
            name: String::new(),
            guards,
            commands,
            begun: Instant::now(),
            parts: Vec::new(),
            stages: Vec::new(),
        }
    }

    fn stop(&self) -> &'a Stop {
        &self.context.stop
    }

    fn elapsed_time(&self) -> Nanos {
        Nanos::from_ns(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Looks at every host, and divides those that are to be changed into stages.
    fn plan_stages(&mut self) -> Result<(), CliError> {
        let answers = look::inspect_all(&self.fleet, None, self.context);
        let hosts = self.fleet.hosts();
        let judged = judge_hosts(&hosts, answers);
        finish::warn_open_rollouts(&self.args.fleet, &judged);
        if let Some(problem) = undecided_groups(&judged).first() {
            return Err(CliError::usage(format!("{problem}: name the right one by `driver`")));
        }
        let now = self.elapsed_time();
        let parts = self.fleet.members.iter().zip(judged).map(|(member, judged)| {
            let phase = first_phase(&judged);
            let before = judged.look.into_iter().map(|look| TimedLook { at: now, look }).collect();
            RolloutHost { member: member.clone(), phase, before, since: None }
        });
        self.parts = parts.collect();
        let planned: Vec<usize> = self.in_phase(|phase| *phase == HostPhase::Planned);
        self.name = rollout_name(unix_ms(), std::process::id(), planned.len());
        let groups: Vec<&str> =
            planned.iter().map(|idx| self.parts[*idx].member.host.group.as_str()).collect();
        let of_planned = |stage: Vec<usize>| stage.into_iter().map(|at| planned[at]).collect();
        self.stages =
            plan_stages(&groups, &self.args.stage_steps()).into_iter().map(of_planned).collect();
        let left_out = self.in_phase(|phase| matches!(phase, HostPhase::LeftOut(_))).len();
        let same = self.in_phase(|phase| *phase == HostPhase::Same).len();
        output::print_remark(&format!(
            "latput: {}: {} to change, {same} as wanted, {left_out} left out",
            self.name,
            table::hosts_in_words(planned.len())
        ));
        Ok(())
    }

    fn in_phase(&self, is_meant: impl Fn(&HostPhase) -> bool) -> Vec<usize> {
        (0..self.parts.len()).filter(|idx| is_meant(&self.parts[*idx].phase)).collect()
    }

    fn changed_hosts(&self) -> Vec<usize> {
        self.in_phase(|phase| matches!(phase, HostPhase::Changed(_)))
    }

    /// Changes stage after stage; confirms all, or puts all back.
    fn run_stages(&mut self) -> RolloutEnded {
        if self.args.dry_run {
            self.dry_run_hosts();
            return RolloutEnded::Rehearsed;
        }
        if self.stages.is_empty() && !self.stop().is_raised() {
            return RolloutEnded::Nothing;
        }
        for number in 0..self.stages.len() {
            if let Err(why) = self.run_stage(number) {
                output::print_remark(&format!("latput: {why}: every changed host goes back"));
                self.put_back();
                return RolloutEnded::Broken(why);
            }
        }
        if self.stop().is_raised() {
            self.put_back();
            return RolloutEnded::Broken(INTERRUPTED.to_owned());
        }
        if let Err(why) = self.extend_leases() {
            output::print_remark(&format!("latput: {why}: every changed host goes back"));
            self.put_back();
            return RolloutEnded::Broken(why);
        }
        self.confirm_all();
        RolloutEnded::Confirmed
    }

    /// One stage: a second look, the change, and the soak. The error is what is broken.
    fn run_stage(&mut self, number: usize) -> Result<(), String> {
        self.has_time()?;
        self.wait_until(Instant::now() + BASELINE)?;
        self.look_again(number)?;
        let stage = self.stage_of(number, &HostPhase::Planned);
        if stage.is_empty() {
            return Ok(());
        }
        let of = format!("stage {} of {}", number + 1, self.stages.len());
        output::print_remark(&format!("latput: {of}: {}", table::hosts_in_words(stage.len())));
        self.set_stage(&stage)?;
        self.watch_hosts()?;
        output::print_remark(&format!("latput: {of}: all guards held for {}", self.args.soak));
        Ok(())
    }

    fn stage_of(&self, number: usize, phase: &HostPhase) -> Vec<usize> {
        let stage = self.stages[number].iter().copied();
        stage.filter(|idx| self.parts[*idx].phase == *phase).collect()
    }

    /// Whether the time of the first change lasts for another stage.
    fn has_time(&self) -> Result<(), String> {
        let leases = self.parts.iter().filter_map(|part| match part.phase {
            HostPhase::Changed(lease) => Some(lease.ends_at),
            _ => None,
        });
        let needed = Instant::now() + self.args.stage_within().as_duration();
        match leases.min() {
            Some(ends_at) if ends_at < needed => Err(format!(
                "the first host would go back by itself before the next stage ends: give a longer \
                 --confirm-within than {}",
                self.args.confirm_within
            )),
            _ => Ok(()),
        }
    }

    /// Sleeps; the error is that a stop has come.
    fn wait_until(&self, end: Instant) -> Result<(), String> {
        while !self.stop().is_raised() {
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
        let stage = self.stage_of(number, &HostPhase::Planned);
        let answers = self.for_each_host(
            &stage,
            StopCondition::Stop(self.stop()),
            "hosts looked at",
            |part, waiting| look::inspect_host(&self.fleet, &part.member, None, waiting),
        );
        let now = self.elapsed_time();
        for (idx, answer) in answers {
            let answer = answer.unwrap_or(HostAnswer::NotAsked);
            let part = &mut self.parts[idx];
            let judged = judge_hosts(std::slice::from_ref(&part.member.host), vec![answer]);
            let [judged] = judged.try_into().map_err(|_| "one host has one state".to_owned())?;
            if judged.state == HostState::NotAsked {
                return Err(INTERRUPTED.to_owned());
            }
            part.phase = first_phase(&judged);
            part.before.extend(judged.look.map(|look| TimedLook { at: now, look }));
        }
        Ok(())
    }

    /// The change of a host, or only its words.
    fn host_change(&self, dry_run: bool) -> HostChange<'_> {
        HostChange {
            fleet: &self.fleet,
            made_by: &self.name,
            within: self.args.confirm_within,
            allow_link_reset: self.args.allow_link_reset,
            dry_run,
        }
    }

    /// Asks every host whether it would make the change. Those that have the values by now leave their stages.
    fn dry_run_hosts(&mut self) {
        let planned = self.in_phase(|phase| *phase == HostPhase::Planned);
        let change = self.host_change(true);
        let until = StopCondition::Stop(self.stop());
        let results = self.for_each_host(&planned, until, "hosts asked", |part, waiting| {
            change.set_values(&part.member, waiting).1
        });
        for (idx, result) in results {
            self.parts[idx].phase = match result {
                Some(SettingEnded::Done) => continue,
                Some(SettingEnded::Nothing) => HostPhase::Same,
                Some(
                    SettingEnded::Refused(why)
                    | SettingEnded::Stranded(why)
                    | SettingEnded::Lost(why),
                ) => HostPhase::WouldRefuse(why),
                None => HostPhase::LeftOut("it was not asked".to_owned()),
            };
        }
        let would_refuse = self.in_phase(|phase| matches!(phase, HostPhase::WouldRefuse(_)));
        for stage in &mut self.stages {
            stage.retain(|idx| {
                matches!(self.parts[*idx].phase, HostPhase::Planned | HostPhase::WouldRefuse(_))
            });
        }
        self.stages.retain(|stage| !stage.is_empty());
        if let Some(first) = would_refuse.first() {
            let host = &self.parts[*first].member.host.name;
            output::print_remark(&format!(
                "latput: {host} would refuse: a rollout would end at its stage, and every changed host would go back"
            ));
        }
    }

    /// Sets the values on hosts. The error is that one refused, or was lost.
    fn set_stage(&mut self, stage: &[usize]) -> Result<(), String> {
        let setting = self.host_change(false);
        let results = self.for_each_host(
            stage,
            StopCondition::SecondStop(self.stop()),
            "hosts changed",
            |part, waiting| setting.set_values(&part.member, waiting),
        );
        let mut problems = Vec::new();
        for (idx, result) in results {
            let Some((lease, result)) = result else { continue }; // it was not begun
            let RolloutHost { member, phase, .. } = &mut self.parts[idx];
            match result {
                SettingEnded::Done => *phase = HostPhase::Changed(lease),
                SettingEnded::Nothing => *phase = HostPhase::Same,
                SettingEnded::Refused(why) => {
                    problems.push(format!("{}: {why}", member.host.name));
                    *phase = HostPhase::LeftOut(why);
                }
                SettingEnded::Stranded(why) => {
                    problems.push(format!("{}: {why}", member.host.name));
                    *phase = HostPhase::Stranded(why);
                }
                SettingEnded::Lost(why) => {
                    problems.push(format!("{}: {why}", member.host.name));
                    *phase = HostPhase::Changed(lease);
                }
            }
        }
        first_of(problems)?;
        if self.stop().is_raised() { Err(INTERRUPTED.to_owned()) } else { Ok(()) }
    }

    /// Gives every changed host its whole time once more before the first is confirmed: none goes back while the others
    /// are, and one that cannot be reached is found while all can still go back.
    fn extend_leases(&mut self) -> Result<(), String> {
        let changed = self.changed_hosts();
        let results = self.for_each_host(
            &changed,
            StopCondition::SecondStop(self.stop()),
            "hosts ready to be confirmed",
            |part, waiting| self.prepare_one(part, waiting),
        );
        let mut problems = Vec::new();
        for (idx, result) in results {
            let RolloutHost { member, phase, .. } = &mut self.parts[idx];
            let Some((lease, result)) = result else {
                problems.push(format!("{}: it did not answer", member.host.name));
                continue;
            };
            *phase = HostPhase::Changed(lease);
            problems.extend(result.err().map(|why| format!("{}: {why}", member.host.name)));
        }
        first_of(problems)
    }

    /// Does `job` for parts side by side; a part that was not begun has no result.
    fn for_each_host<R: Send>(
        &self,
        which: &[usize],
        until: StopCondition<'_>,
        what: &str,
        job: impl Fn(&RolloutHost, &mut InPlace<'_, '_>) -> R + Sync,
    ) -> Vec<(usize, Option<R>)> {
        let is_over = || until.is_over();
        let one = |idx: &usize, place: &mut HostSlot<'_>| {
            job(&self.parts[*idx], &mut InPlace { place, until })
        };
        let results = crew::side_by_side(which, self.fleet.parallel, is_over, what, one);
        which.iter().copied().zip(results).collect()
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
                Some(_) => HostPhase::LeftOut(judged.state.explanation()),
                None => HostPhase::Planned,
            }
        }
        (HostState::Same | HostState::Drifted(_), Some(waiting)) => {
            let left = waiting.left_ms.map_or_else(
                || "is under way".to_owned(),
                |ms| format!("waits to be confirmed for another {} s", ms.div_ceil(1000)),
            );
            HostPhase::LeftOut(format!("a change ({}) {left}", waiting.by))
        }
        (state, _) => HostPhase::LeftOut(format!("{}: {}", state.name(), state.explanation())),
    }
}
