//! The seam between a run and its testbed: the trait that runs trials, and the events it reports.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use latput_knobs::Setting;
use latput_load::Stop;
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{Observation, Workload};
use latput_units::Nanos;

use crate::error::Error;
use crate::interval::Interval;

/// A part of a plan that a testbed may not support.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// One level of a factor; it is tried out.
    Setting(&'a BTreeMap<Role, Setting>),
    /// A workload.
    Load(&'a Workload),
}

/// Runs trials: agents on hosts, or the simulator. Dropping it puts everything back.
pub(crate) trait TrialRunner {
    /// The facts of each host, in the order of every observation.
    fn hosts(&self) -> Vec<HostFacts>;

    /// Identifies the hosts: a run is only resumed where this is the same.
    fn machine(&self) -> String;

    /// Remarks that belong to every result of this runner.
    fn notes(&self) -> Vec<String>;

    /// The receive sides of the hosts, where they are known; an unknown one refuses nothing.
    fn receive_sides(&self) -> Vec<ReceiveSide> {
        Vec::new()
    }

    /// Whether time is simulated: trials then take the simulated time of the method.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Runs trials. `tell` gets the trials in this order, each as soon as it and all before it are over,
    /// and the intervals of the running one.
    fn trials(
        &mut self,
        todo: Vec<Trial>,
        method: &Method,
        stop: &Stop,
        tell: &mut dyn FnMut(TrialEvent) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Runs slices; `None` where settings cannot take turns while traffic flows.
    fn slices(&mut self) -> Option<&mut dyn SliceRunner> {
        None
    }

    /// Why this testbed does not support a part of a plan; `None` where it does. A knob that was tried may
    /// keep its level.
    fn unsupported(
        &mut self,
        wanted: Wanted<'_>,
        method: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error>;

    /// Puts everything back after the last trial. `tell` gets remarks for people; a second raise of `stop`
    /// ends the wait.
    fn close(self: Box<Self>, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<(), Error>;

    /// Puts everything back in any state of the trials. Gives `cause`, or the worse error of that.
    fn abandon(self: Box<Self>, cause: Error, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Error;
}

/// Runs settings that take turns while the traffic of one workload flows.
pub(crate) trait SliceRunner {
    /// Runs a stint; gives an observation for each of its slices, in their order.
    fn stint(
        &mut self,
        stint: &Stint,
        method: &Method,
        stop: &Stop,
        tell: &mut Tell<'_>,
    ) -> Result<Vec<Observation>, Error>;
}

/// Slices in a row, in the same connections.
#[derive(Clone, Debug)]
pub(crate) struct Stint {
    /// One for each slice, in their order, all of one workload.
    pub trials: Vec<Trial>,
    /// Length of each slice, its cut included.
    pub length: Nanos,
    /// The part at the head of each that is not measured.
    pub cut: Nanos,
}

impl Stint {
    /// How long its traffic is measured, cuts included.
    pub(crate) fn window(&self) -> Nanos {
        self.length.saturating_mul(self.trials.len() as u64)
    }
}

/// One trial to be run, or one slice.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Which repetition of the whole plan, from 0.
    pub block: u32,
    /// Index of the setting in the plan's.
    pub setting: usize,
    /// Index of the workload in the plan's.
    pub workload: usize,
    /// The setting.
    pub set: LabelledSetting,
    /// The workload.
    pub load: Workload,
    /// The seed of the trial's random draws; it does not depend on the order of trials.
    pub seed: u64,
}

/// What a runner of trials reports.
#[derive(Debug)]
pub(crate) enum TrialEvent {
    /// A trial is over.
    Done(Box<Done>),
    /// The traffic of a trial broke; nothing of it is kept.
    Aborted(Box<Aborted>),
    /// An interval of the running trial; it is not stored.
    Interval(Interval),
    /// A remark for people.
    Remark(String),
}

/// A trial that was run.
#[derive(Debug)]
pub(crate) struct Done {
    /// The trial.
    pub trial: Trial,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// What it measured.
    pub observation: Observation,
}

/// A trial whose traffic broke while every host stayed ready for the next.
#[derive(Debug)]
pub(crate) struct Aborted {
    /// The trial.
    pub trial: Trial,
    /// The cause.
    pub error: Error,
    /// Whether it is not tried again.
    pub given_up: bool,
}

/// Attempts at a trial whose traffic breaks.
const ATTEMPTS: u32 = 3;

/// One trial, tried again while its traffic breaks. `attempt` brings the hosts to its setting and measures.
pub(crate) fn run_trial(
    trial: Trial,
    tell: &mut Tell<'_>,
    attempt: &mut dyn FnMut(&Trial, &mut Tell<'_>) -> Result<Observation, Error>,
) -> Result<(), Error> {
    for tried in 1..=ATTEMPTS {
        let started_unix_ms = unix_ms();
        match attempt(&trial, tell) {
            Ok(observation) => {
                return tell(TrialEvent::Done(Box::new(Done {
                    trial,
                    started_unix_ms,
                    observation,
                })));
            }
            Err(error) if error.is_transient() => {
                let given_up = tried == ATTEMPTS;
                tell(TrialEvent::Aborted(Box::new(Aborted {
                    trial: trial.clone(),
                    error,
                    given_up,
                })))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Runs a stint once.
type RunStint<'a> = dyn FnMut(&Stint, &mut Tell<'_>) -> Result<Vec<Observation>, Error> + 'a;

/// A stint, tried again while its traffic breaks. Tells of each slice.
pub(crate) fn run_stint(
    stint: Stint,
    tell: &mut Tell<'_>,
    attempt: &mut RunStint<'_>,
) -> Result<(), Error> {
    for tried in 1..=ATTEMPTS {
        let started_unix_ms = unix_ms();
        match attempt(&stint, tell) {
            Ok(observations) => {
                let length_ms = stint.length.as_ns() / 1_000_000;
                for (at, (trial, observation)) in
                    (0..).zip(stint.trials.into_iter().zip(observations))
                {
                    let started_unix_ms = started_unix_ms + at * length_ms;
                    tell(TrialEvent::Done(Box::new(Done { trial, started_unix_ms, observation })))?;
                }
                return Ok(());
            }
            Err(error) if error.is_transient() => {
                let given_up = tried == ATTEMPTS;
                let first = stint.trials.first().expect("a stint has slices");
                tell(TrialEvent::Aborted(Box::new(Aborted {
                    trial: first.clone(),
                    error,
                    given_up,
                })))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives events; an error from it ends the run.
pub(crate) type Tell<'a> = dyn FnMut(TrialEvent) -> Result<(), Error> + 'a;

/// Now, milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
