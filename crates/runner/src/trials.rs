//! The interface between a run and its testbed: the traits that run trials.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting};
use latput_load::Stop;
use latput_protocol::live::{LiveBlock, LiveSeen};
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{HostToday, Observation, Row, Surroundings, Workload};
use latput_units::Nanos;

use crate::error::Error;

/// A part of a plan that a testbed may not support.
#[derive(Clone, Copy, Debug)]
pub enum PlanPart<'a> {
    /// One level of a factor, which is tried out.
    Setting(&'a BTreeMap<Role, Setting>),
    /// A setting, of which only is asked whether it could be set.
    Rehearsed(&'a BTreeMap<Role, Setting>),
    /// A workload.
    Load(&'a Workload),
}

/// Runs trials: agents on hosts, or the simulator. Dropping it puts everything back.
pub trait TrialRunner {
    /// The facts of each host, in the order of each observation.
    fn host_facts(&self) -> Vec<HostFacts>;

    /// Identity of the hosts: a run is only resumed if this is the same.
    fn machine_id(&self) -> String;

    /// Remarks for every result of this runner.
    fn notes(&self) -> Vec<String>;

    /// The known receive sides of the hosts; an unknown one refuses nothing.
    fn receive_sides(&self) -> Vec<ReceiveSide> {
        Vec::new()
    }

    /// Whether time is simulated.
    fn is_simulated(&self) -> bool {
        false
    }

    /// The hosts' values of these knobs; empty if they are not known. No trial has changed one yet.
    fn read_knob_values(
        &mut self,
        knobs: &BTreeSet<Knob>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error>;

    /// Watches the hosts without traffic and tells what could disturb trials; empty if time is simulated.
    fn watch_surroundings(&mut self, span: Nanos, stop: &Stop) -> Result<Vec<Surroundings>, Error>;

    /// Learns the next trials, in the order in which [`measure_trial`](Self::measure_trial) will be called. A testbed that
    /// can run several at once begins them.
    fn expect_trials(&mut self, trials: &[Trial], method: &Method) {
        let _ = (trials, method);
    }

    /// Applies the setting of a trial and measures it, once. A transient error leaves every host ready for the next attempt.
    fn measure_trial(
        &mut self,
        trial: &Trial,
        method: &Method,
        stop: &Stop,
        progress: &mut dyn TrialProgress,
    ) -> Result<Observation, Error>;

    /// The runner of slices; `None` if settings cannot take turns while traffic flows.
    fn slice_runner(&mut self) -> Option<&mut dyn SliceRunner> {
        None
    }

    /// The runner of blocks on live traffic; `None` where there is none.
    fn live_runner(&mut self) -> Option<&mut dyn LiveRunner> {
        None
    }

    /// The reason why this testbed does not support a part of a plan; `None` if it does. A knob
    /// that was tried may keep its level.
    fn explain_unsupported(
        &mut self,
        wanted: PlanPart<'_>,
        method: &Method,
        stop: &Stop,
    ) -> Result<Option<String>, Error>;

    /// The hosts' values of the knobs of a setting that has just been tried ([`PlanPart::Setting`]), as far as they can be read; empty
    /// where nothing is set.
    fn read_tried_values(
        &mut self,
        by_role: &BTreeMap<Role, Setting>,
        stop: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        let _ = (by_role, stop);
        Ok(Vec::new())
    }

    /// Puts everything back after the last trial. `tell` receives remarks for people; a second
    /// raise of `stop` ends the wait.
    fn close(self: Box<Self>, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Result<(), Error>;

    /// Puts everything back in any state of the trials. Returns `cause`, or a worse error.
    fn abort_run(self: Box<Self>, cause: Error, stop: &Stop, tell: &mut dyn FnMut(&str)) -> Error;
}

/// Runs settings that take turns while the traffic of one workload flows.
pub trait SliceRunner {
    /// Runs a stint once; returns an observation for each of its slices, in their order.
    fn measure_stint(
        &mut self,
        stint: &Stint,
        method: &Method,
        stop: &Stop,
        progress: &mut dyn TrialProgress,
    ) -> Result<Vec<Observation>, Error>;
}

/// Runs blocks on traffic that is not latput's.
pub trait LiveRunner {
    /// Runs a block, which begins at once, on the system under test. Today's setting is in force before and after, also where
    /// the block fails.
    fn run_block(&mut self, block: LiveBlock, stop: &Stop) -> Result<LiveSeen, Error>;

    /// The kernel's boot id of the host.
    fn boot_id(&mut self) -> String;
}

/// Consecutive slices on the same connections.
#[derive(Clone, Debug)]
pub struct Stint {
    /// One trial for each slice, in their order, all with the same workload.
    pub trials: Vec<Trial>,
    /// Length of each slice, with its cut.
    pub length: Nanos,
    /// Unmeasured part at the start of each slice.
    pub cut: Nanos,
}

impl Stint {
    /// Length of the measured traffic, with cuts.
    pub fn window_length(&self) -> Nanos {
        self.length.saturating_mul(self.trials.len() as u64)
    }
}

/// One trial, or one slice.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Repetition of the whole plan, from 0.
    pub block: u32,
    /// Index of the setting in the plan.
    pub setting: usize,
    /// Index of the workload in the plan.
    pub workload: usize,
    /// The setting.
    pub set: LabelledSetting,
    /// The workload.
    pub load: Workload,
    /// Seed of the trial's random draws; it does not depend on the order of trials.
    pub seed: u64,
}

/// Receives the progress of a trial; nothing of it is stored.
pub trait TrialProgress {
    /// The counts of the running trial in an interval.
    fn report_interval(&mut self, interval: &IntervalCounts);
    /// A remark for people.
    fn report_remark(&mut self, text: &str);
}

/// The counts of all hosts in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalCounts {
    /// Its end, after the start of the window.
    pub end: Nanos,
    /// Units of work per second, of all generators.
    pub units_per_s: f64,
    /// Goodput, for traffic that is counted in bytes.
    pub bits_per_s: Option<f64>,
    /// Packets in and out per second, by host in the order of the testbed.
    pub packets_per_s: Vec<(String, f64, f64)>,
}

impl Trial {
    /// The row of its observation.
    #[must_use]
    pub fn to_row(&self, started_unix_ms: u64, observation: Observation) -> Row {
        let Self { block, setting, workload, .. } = *self;
        Row { block, setting, workload, started_unix_ms, observation }
    }
}
