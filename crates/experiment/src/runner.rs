//! Runs a plan on a testbed, trial by trial, each kept durably before the next begins.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use latput_load::{Key, Stop};
use latput_model::Summary;
use latput_trial::observation::{HostObservation, Role};
use latput_trial::results::LabelledSetting;
use latput_trial::{Check, Observation, Plan, Results, Row, Workload};
use latput_units::{Nanos, Rng};

use crate::archive::Archive;
use crate::checks;
use crate::controller::Crew;
use crate::error::Error;
use crate::host::chain;
use crate::protocol::{Answer, Finished, Request};
use crate::testbed::Testbed;

/// Beyond warm-up and window an answer may take this long: drains, joins, a slow control line.
const TRIAL_SLACK: Duration = Duration::from_secs(15);

/// Ends that share this kernel are told an instant to start at, far enough ahead for both to get it.
const START_AHEAD: Nanos = Nanos::from_ms(5);

/// Told how a run goes.
pub trait Progress {
    /// Something a person should know.
    fn remark(&mut self, text: &str);
    /// One more trial is done.
    fn trial(&mut self, done: &TrialDone<'_>);
    /// Nothing more will come.
    fn ended(&mut self);
}

/// Where a run stands.
#[derive(Clone, Debug)]
pub struct TrialDone<'a> {
    /// Finished trials, those of earlier sessions included.
    pub finished: u64,
    /// Trials that are planned so far; grows when intervals are still too wide.
    pub planned: u64,
    /// Estimate from the trials so far.
    pub time_left: Nanos,
    /// The trial that was just done.
    pub what: &'a str,
}

/// What to run, where to, and who may stop it.
#[derive(Debug)]
pub struct Run<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The plan file as it is: a run is resumed only under exactly the same.
    pub plan_text: &'a str,
    /// What runs the trials.
    pub testbed: &'a Testbed,
    /// Set to end after the present moment.
    pub stop: &'a Stop,
}

/// How a run ended. The hosts are as they were before in every case but a stranded error.
#[derive(Debug)]
pub struct Ended {
    /// Every finished trial.
    pub results: Results,
    /// The run's number in the results file.
    pub run: i64,
    /// What ended it before its time.
    pub cause: Option<Error>,
}

/// Runs every trial of a plan that `archive` does not hold yet. An error means that no trial was
/// run.
pub fn run(
    run: &Run<'_>,
    archive: &mut Archive,
    progress: &mut dyn Progress,
) -> Result<Ended, Error> {
    let will_set = run.plan.factors.iter().any(|factor| !factor.levels.is_empty());
    let crew = Crew::start(run.testbed, will_set, run.stop)?;
    let machine: Vec<String> =
        crew.opened().map(|opened| format!("{} {}", opened.facts.host, opened.boot_id)).collect();
    let machine = format!("{}: {}", run.testbed.name, machine.join(", "));
    let (id, results) = if let Some((id, results)) = archive.resumable(run.plan_text, &machine)? {
        let (done, planned) = (results.rows.len(), results.planned_trials);
        progress.remark(&format!("resuming run {id}: {done} of {planned} trials are done"));
        (id, results)
    } else {
        let header = header(run, &crew);
        (archive.begin(run.plan_text, &machine, unix_ms(), &header)?, header)
    };
    let mut session = Session { run, crew, archive, progress, id, results, begun: Instant::now() };
    let cause = session.blocks().err();
    session.end(cause)
}

fn header(run: &Run<'_>, crew: &Crew) -> Results {
    let method = &run.plan.method;
    let mut notes = run.testbed.notes.clone();
    for opened in crew.opened() {
        notes.extend(opened.notes.iter().map(|note| format!("{}: {note}", opened.facts.host)));
    }
    Results {
        name: run.plan.name.clone(),
        goal: run.plan.goal.clone(),
        confidence: method.confidence,
        half_width: method.half_width,
        testbed: run.testbed.name.clone(),
        latput_version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: method.seed.unwrap_or_else(unix_ms),
        hosts: crew.opened().map(|opened| opened.facts.clone()).collect(),
        settings: run.plan.settings(),
        workloads: run.plan.workloads.clone(),
        rows: Vec::new(),
        planned_trials: run.plan.trials_per_block() * u64::from(method.repetitions_min),
        notes,
    }
}

/// A run under way.
struct Session<'a> {
    run: &'a Run<'a>,
    crew: Crew,
    archive: &'a mut Archive,
    progress: &'a mut dyn Progress,
    id: i64,
    results: Results,
    begun: Instant,
}

impl Session<'_> {
    /// Every block of the plan, and more while intervals are too wide and the budget allows.
    fn blocks(&mut self) -> Result<(), Error> {
        let method = self.run.plan.method;
        let every: Vec<usize> = (0..self.results.workloads.len()).collect();
        for block in 0..method.repetitions_min {
            self.block(block, &every)?;
        }
        for block in method.repetitions_min..method.repetitions_max {
            let too_wide = self.workloads_too_wide();
            if too_wide.is_empty() {
                return Ok(());
            }
            if !self.fits_budget(too_wide.len()) {
                let note =
                    "stopped at the time budget, with some intervals wider than was asked for";
                self.results.notes.push(note.to_owned());
                return Ok(());
            }
            self.results.planned_trials = self.results.rows.len() as u64
                + (too_wide.len() * self.results.settings.len()) as u64;
            self.block(block, &too_wide)?;
        }
        Ok(())
    }

    /// One repetition of every setting under the given workloads, in random order.
    fn block(&mut self, block: u32, workloads: &[usize]) -> Result<(), Error> {
        let mut order: Vec<(usize, usize)> = (0..self.results.settings.len())
            .flat_map(|setting| workloads.iter().map(move |workload| (setting, *workload)))
            .collect();
        Rng::split(self.results.seed, u64::from(block)).shuffle(&mut order);
        for (setting, workload) in order {
            let is_done =
                |row: &Row| (row.block, row.setting, row.workload) == (block, setting, workload);
            if self.results.rows.iter().any(is_done) {
                continue;
            }
            let started_unix_ms = unix_ms();
            let observation = self.trial(setting, workload)?;
            let row = Row { block, setting, workload, started_unix_ms, observation };
            self.archive.append(self.id, &self.results, &row)?;
            self.results.rows.push(row);
            self.tell(setting, workload);
        }
        Ok(())
    }

    fn trial(&mut self, setting: usize, workload: usize) -> Result<Observation, Error> {
        let labelled = self.results.settings[setting].clone();
        let workload = self.results.workloads[workload].clone();
        set_hosts(&mut self.crew, &labelled, self.run.stop)?;
        let finished = traffic(&mut self.crew, &workload, self.run)?;
        let boot_ids: Vec<String> =
            self.crew.opened().map(|opened| opened.boot_id.clone()).collect();
        observation(&workload, finished, &boot_ids)
    }

    /// The workloads that have a cell whose interval is wider than was asked for.
    fn workloads_too_wide(&self) -> Vec<usize> {
        let summary = Summary::of(&self.results);
        let mut workloads: Vec<usize> = summary
            .cells
            .iter()
            .filter(|cell| !cell.narrow_enough)
            .map(|cell| cell.workload)
            .collect();
        workloads.sort_unstable();
        workloads.dedup();
        workloads
    }

    fn fits_budget(&self, workloads: usize) -> bool {
        let Some(budget) = self.run.plan.method.budget else { return true };
        let trials = u32::try_from(workloads * self.results.settings.len()).unwrap_or(u32::MAX);
        self.begun.elapsed() + self.trial_time() * trials <= budget.as_duration()
    }

    /// What a trial takes: its traffic, and what the trials of this session took beyond it.
    fn trial_time(&self) -> Duration {
        let method = &self.run.plan.method;
        (method.warmup + method.duration).as_duration() + Duration::from_millis(150)
    }

    fn tell(&mut self, setting: usize, workload: usize) {
        let finished = self.results.rows.len() as u64;
        let planned = self.results.planned_trials.max(finished);
        let left = self.trial_time() * u32::try_from(planned - finished).unwrap_or(u32::MAX);
        let what = format!(
            "{}, {}",
            self.results.workloads[workload].name, self.results.settings[setting].label
        );
        let done = TrialDone { finished, planned, time_left: left.into(), what: &what };
        self.progress.trial(&done);
    }

    /// Puts the hosts back and closes the books. A host that could not be put back is worse than
    /// whatever ended the run.
    fn end(self, cause: Option<Error>) -> Result<Ended, Error> {
        self.progress.ended();
        let cause = match cause {
            None => self.crew.close(self.run.stop).err(),
            // Some agent may be busy or gone. One that could not put its host back is worse than
            // what ended the run.
            Some(cause) => Some(self.crew.abandon().err().unwrap_or(cause)),
        };
        if cause.is_none() {
            self.archive.finish(self.id, &self.results)?;
        }
        match cause {
            Some(cause) if self.results.rows.is_empty() => Err(cause),
            cause => Ok(Ended { results: self.results, run: self.id, cause }),
        }
    }
}

/// Brings every host to its part of a setting.
fn set_hosts(crew: &mut Crew, setting: &LabelledSetting, stop: &Stop) -> Result<(), Error> {
    for agent in crew.agents() {
        let Some(setting) = setting.by_role.get(&agent.spec.role) else { continue };
        match agent.ask(&Request::Set { setting: setting.clone() }, stop)? {
            Answer::Set { .. } => {}
            other => return Err(agent.unexpected(other)),
        }
    }
    Ok(())
}

/// Lets the traffic flow once; both hosts start on one word and keep their own windows.
fn traffic(crew: &mut Crew, workload: &Workload, run: &Run<'_>) -> Result<Vec<Finished>, Error> {
    let stop = run.stop;
    let key = Key::generate().map_err(|error| Error::Traffic {
        workload: workload.name.clone(),
        problem: chain(&error),
    })?;
    let receive = Request::Receive { traffic: workload.traffic, key: key.clone() };
    let sut = crew.of_role(Role::Sut);
    let peer = sut.spec.address;
    let port = match sut.ask(&receive, stop)? {
        Answer::Listening { port } => port,
        other => return Err(sut.unexpected(other)),
    };
    let generator = crew.of_role(Role::Generator);
    let send = Request::Send { traffic: workload.traffic, probe: workload.probe, key, peer, port };
    match generator.ask(&send, stop)? {
        Answer::Connected => {}
        other => return Err(generator.unexpected(other)),
    }
    let method = &run.plan.method;
    let at = crew.shares_this_kernel().then(|| latput_load::now() + START_AHEAD);
    let go = Request::Go { at, warmup: method.warmup, duration: method.duration };
    for agent in crew.agents() {
        agent.send(&go)?;
    }
    let within = (method.warmup + method.duration).as_duration() + TRIAL_SLACK;
    crew.agents()
        .iter_mut()
        .map(|agent| match agent.receive(within, stop)? {
            Answer::Finished(finished) => Ok(*finished),
            other => Err(agent.unexpected(other)),
        })
        .collect()
}

/// Joins what the hosts saw, and checks it.
fn observation(
    workload: &Workload,
    finished: Vec<Finished>,
    boot_ids: &[String],
) -> Result<Observation, Error> {
    let missing = |end: &str| Error::Traffic {
        workload: workload.name.clone(),
        problem: format!("the {end}'s figures are missing"),
    };
    let mut sender = None;
    let mut receiver = None;
    let mut drift = Vec::new();
    let mut hosts: Vec<HostObservation> = Vec::new();
    for mut part in finished {
        sender = sender.or(part.sender.take());
        receiver = receiver.or(part.receiver.take());
        drift.extend(part.drift.iter().map(|change| format!("{}: {change}", part.host.host)));
        hosts.push(part.host);
    }
    let sender = sender.ok_or_else(|| missing("sender"))?;
    let receiver = receiver.ok_or_else(|| missing("receiver"))?;
    let (traffic, probe, mut checks) = latput_load::combine(&sender, &receiver);
    checks.extend(checks::of_trial(&workload.traffic, &traffic, &hosts, boot_ids));
    checks.push(Check {
        name: "knob-drift".to_owned(),
        passed: drift.is_empty(),
        detail: if drift.is_empty() {
            "no knob changed during the trial".to_owned()
        } else {
            drift.join("; ")
        },
    });
    Ok(Observation { traffic, probe, hosts, checks })
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
