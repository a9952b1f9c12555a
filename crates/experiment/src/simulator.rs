//! The simulator as a testbed: trials are simulated packet by packet, on every core of this
//! machine.
//!
//! The figures depend only on the plan, its seed and the profile: each trial has its own seed, and
//! trials are reported in the plan's order, independent of threads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use latput_knobs::Knob;
use latput_linux::files;
use latput_load::Stop;
use latput_runner::trials::{PlanPart, Trial, TrialProgress, TrialRunner};
use latput_runner::{Error, checks};
use latput_sim::look::LookTexts;
use latput_sim::trace::PacketTrace;
use latput_sim::validate::InvalidValue;
use latput_sim::{Scenario, SystemProfile, facts};
use latput_trial::observation::Role;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Method;
use latput_trial::results::{HostFacts, LabelledSetting};
use latput_trial::{HostToday, Observation, Plan, Surroundings, Traffic, Workload};
use latput_units::text::format_count;
use latput_units::{Bytes, Nanos};

use crate::refusal::find_refused_settings;

/// A small workload that shows whether a setting can be simulated.
const PING: Traffic = Traffic::Ping { rate_hz: 10, payload_bytes: Bytes::new(56) };

/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A simulated system under test and its generator.
#[derive(Clone, Debug)]
pub struct Simulator {
    /// The profile's name or file, as given.
    from: String,
    profile: Arc<SystemProfile>,
}

impl Simulator {
    /// A shipped profile.
    pub const EXAMPLE: &str = latput_reach::held_lab::EXAMPLE_SYSTEM;

    /// The simulator of a system: the name of a shipped profile, or the path of one.
    pub fn for_system(system: &str) -> Result<Self, Error> {
        let profile = Arc::new(load_profile(system)?);
        Ok(Self { from: system.to_owned(), profile })
    }

    /// The simulator of a profile that is in no file, from its text.
    pub fn of_profile(text: &str) -> Result<Self, Error> {
        let profile = SystemProfile::parse(text).map_err(|error| Error::Simulator {
            testbed: "sim".to_owned(),
            problem: error.to_string(),
        })?;
        Ok(Self { from: profile.name.clone(), profile: Arc::new(profile) })
    }

    /// The testbed's name in results: `sim:SYSTEM`.
    pub fn name(&self) -> String {
        format!("sim:{}", self.profile.name)
    }

    /// Refuses a plan with a knob, value or workload that cannot be simulated, or that needs more
    /// memory than this machine has free. The error names the first.
    pub fn check_plan(&self, plan: &Plan) -> Result<(), Error> {
        let free = latput_linux::facts::available_memory();
        for set in plan.settings() {
            for load in &plan.workloads {
                let scenario = self.build_scenario(&set, load, &plan.method, 0)?;
                self.check_memory(&scenario, load, free)?;
            }
        }
        let today = self.values(&plan.knobs());
        let first = plan.settings_from(&today).into_iter().next().filter(|_| !today.is_empty());
        find_refused_settings(plan, &facts::receive_sides(&self.profile), first.as_ref()).map(drop)
    }

    /// The profile's values of these knobs.
    fn values(&self, knobs: &BTreeSet<Knob>) -> Vec<HostToday> {
        if knobs.is_empty() {
            return Vec::new();
        }
        let mut today = facts::list_current_values(&self.profile);
        for host in &mut today {
            host.values.0.retain(|(knob, _), _| knobs.contains(knob));
        }
        today
    }

    /// Whether the parallel runs of this scenario fit `free` memory.
    fn check_memory(
        &self,
        scenario: &Scenario,
        load: &Workload,
        free: Option<Bytes>,
    ) -> Result<(), Error> {
        let demand_bytes = scenario.estimate_demand().memory_bytes * at_once() as f64;
        match free {
            Some(free) if demand_bytes > free.get() as f64 => Err(Error::Simulator {
                testbed: self.name(),
                problem: format!(
                    "{} of workload `{}` at once: about {:.0} MB of memory are needed, and this \
                     machine has {:.0} MB free: take fewer connections or smaller rings",
                    format_count(at_once(), "run"),
                    load.name,
                    demand_bytes / 1e6,
                    free.get() as f64 / 1e6
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The scenario of one trial.
    fn build_scenario(
        &self,
        set: &LabelledSetting,
        load: &Workload,
        method: &Method,
        seed: u64,
    ) -> Result<Scenario, Error> {
        let refused = |problem: String| Error::Simulator { testbed: self.name(), problem };
        let mut profile = (*self.profile).clone();
        profile.apply_settings(&set.by_role).map_err(|error| refused(error.to_string()))?;
        let impossible = |invalid: InvalidValue| {
            let (load, set) = (&load.name, &set.label);
            let why = describe_invalid(&invalid);
            refused(format!("workload `{load}` cannot be simulated under `{set}`: {why}"))
        };
        let mut scenario =
            profile.build_scenario(load, seed, method.duration).map_err(impossible)?;
        scenario.warmup = method.warmup;
        scenario.check().map_err(impossible)?;
        Ok(scenario)
    }

    fn simulate_trial(&self, trial: &Trial, method: &Method) -> Result<Observation, Error> {
        let scenario = self.build_scenario(&trial.set, &trial.load, method, trial.seed)?;
        let outcome = latput_sim::run(&scenario).map_err(|invalid| Error::Simulator {
            testbed: self.name(),
            problem: format!("workload `{}`: {invalid}", trial.load.name),
        })?;
        let mut observation = outcome.build_observation(&scenario, 0);
        if !trial.load.traffic.flows_back() {
            observation.traffic.reverse = None;
        }
        let flow = &observation.traffic;
        let checks = checks::check_packets(&trial.load.traffic, flow, &observation.hosts);
        observation.checks.extend(checks);
        Ok(observation)
    }
}

/// A trial with a trace of every packet: `system` under a setting, for a duration after a warm-up.
pub fn trace_trial(
    system: &str,
    set: &LabelledSetting,
    load: &Workload,
    method: &Method,
    seed: u64,
) -> Result<PacketTrace, Error> {
    let simulator = Simulator::for_system(system)?;
    let scenario = simulator.build_scenario(set, load, method, seed)?;
    latput_sim::trace::record_trace(&scenario).map_err(|invalid| Error::Simulator {
        testbed: simulator.name(),
        problem: describe_invalid(&invalid),
    })
}

/// Two looks at a host of a trial, at the beginning and the end of its window, and the time between them: the generator
/// or the system under test.
pub fn look_at_trial(
    system: &str,
    set: &LabelledSetting,
    load: &Workload,
    method: &Method,
    seed: u64,
    role: Role,
) -> Result<([LookTexts; 2], Nanos), Error> {
    let simulator = Simulator::for_system(system)?;
    let scenario = simulator.build_scenario(set, load, method, seed)?;
    let refused = |problem: String| Error::Simulator { testbed: simulator.name(), problem };
    let outcome =
        latput_sim::run(&scenario).map_err(|invalid| refused(describe_invalid(&invalid)))?;
    let host = scenario.hosts.iter().position(|host| host.role == role);
    let host = host.ok_or_else(|| refused(format!("it has no {}", role.name())))?;
    Ok((outcome.build_looks(&scenario, host), outcome.window))
}

/// Runs the trials of a plan in the simulator.
#[derive(Debug)]
pub(crate) struct SimulatedTrials {
    simulator: Simulator,
    /// The trials that are simulated ahead.
    ahead: Option<TrialsAhead>,
}

impl SimulatedTrials {
    pub(crate) const fn new(simulator: Simulator) -> Self {
        Self { simulator, ahead: None }
    }
}

impl TrialRunner for SimulatedTrials {
    fn host_facts(&self) -> Vec<HostFacts> {
        facts::describe_hosts(&self.simulator.from, &self.simulator.profile)
    }

    /// The whole profile: a changed cost begins a new run.
    fn machine_id(&self) -> String {
        serde_json::to_string(&*self.simulator.profile).unwrap_or_else(|error| error.to_string())
    }

    fn notes(&self) -> Vec<String> {
        vec![format!(
            "simulated: no host was measured. The costs of {}: {}",
            self.simulator.profile.name, self.simulator.profile.source
        )]
    }

    fn receive_sides(&self) -> Vec<ReceiveSide> {
        facts::receive_sides(&self.simulator.profile)
    }

    fn is_simulated(&self) -> bool {
        true
    }

    /// The profile's values.
    fn read_knob_values(
        &mut self,
        knobs: &BTreeSet<Knob>,
        _: &Stop,
    ) -> Result<Vec<HostToday>, Error> {
        Ok(self.simulator.values(knobs))
    }

    fn watch_surroundings(&mut self, _: Nanos, _: &Stop) -> Result<Vec<Surroundings>, Error> {
        Ok(Vec::new())
    }

    /// Begins to simulate the trials on every core.
    fn expect_trials(&mut self, trials: &[Trial], method: &Method) {
        self.ahead = Some(TrialsAhead::begin(&self.simulator, trials, method));
    }

    fn measure_trial(
        &mut self,
        trial: &Trial,
        method: &Method,
        stop: &Stop,
        _: &mut dyn TrialProgress,
    ) -> Result<Observation, Error> {
        match &mut self.ahead {
            Some(ahead) => ahead.await_next(stop),
            None => self.simulator.simulate_trial(trial, method),
        }
    }

    fn explain_unsupported(
        &mut self,
        wanted: PlanPart<'_>,
        method: &Method,
        _: &Stop,
    ) -> Result<Option<String>, Error> {
        let as_it_is =
            LabelledSetting { label: String::from("as it is"), by_role: BTreeMap::new() };
        let found = match wanted {
            PlanPart::Setting(by_role) | PlanPart::Rehearsed(by_role) => {
                let set = LabelledSetting { by_role: by_role.clone(), ..as_it_is };
                self.simulator.build_scenario(&set, &Workload::plain("ping", PING), method, 0)
            }
            PlanPart::Load(load) => self.simulator.build_scenario(&as_it_is, load, method, 0),
        };
        match found {
            Ok(_) => Ok(None),
            Err(Error::Simulator { problem, .. }) => Ok(Some(problem)),
            Err(other) => Err(other),
        }
    }

    fn close(self: Box<Self>, _: &Stop, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        Ok(())
    }

    fn abort_run(self: Box<Self>, cause: Error, _: &Stop, _: &mut dyn FnMut(&str)) -> Error {
        cause
    }
}

/// The profile of a system: the name of a shipped one, or the path of a file.
fn load_profile(system: &str) -> Result<SystemProfile, Error> {
    if let Some(shipped) = SystemProfile::find_shipped(system) {
        return Ok(shipped);
    }
    let is_path = system.contains('/') || Path::new(system).extension().is_some();
    if !is_path {
        let names: Vec<&str> = SystemProfile::shipped_names().collect();
        return Err(Error::Simulator {
            testbed: format!("sim:{system}"),
            problem: format!(
                "there is no such system; the systems are {}; or name a profile, as in sim:./mine.toml",
                names.join(", ")
            ),
        });
    }
    let error = |problem: String| Error::Simulator { testbed: system.to_owned(), problem };
    let text = files::read_text(Path::new(system), files::TEXT_BYTES_MOST)
        .map_err(|e| error(e.problem))?;
    SystemProfile::parse(&text).map_err(|e| error(e.to_string()))
}

/// Number of trials that run in parallel.
fn at_once() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Trials that threads simulate, and their results in the order of the trials.
#[derive(Debug)]
struct TrialsAhead {
    results: Receiver<NumberedResult>,
    /// Results that came before their turn.
    early: BTreeMap<usize, Result<Observation, Error>>,
    /// The number of the next trial.
    due: usize,
}

impl TrialsAhead {
    fn begin(simulator: &Simulator, trials: &[Trial], method: &Method) -> Self {
        let queue = Arc::new(TrialQueue {
            simulator: simulator.clone(),
            method: *method,
            trials: trials.to_vec(),
            next: AtomicUsize::new(0),
        });
        let (to, results) = mpsc::channel();
        for _ in 0..at_once().min(trials.len()) {
            let queue = Arc::clone(&queue);
            let to = to.clone();
            // Not joined: a stopped thread may be far from the end of its trial, and leaves nothing
            // behind.
            thread::spawn(move || queue.run_worker(&to));
        }
        Self { results, early: BTreeMap::new(), due: 0 }
    }

    /// Waits for the next trial's result.
    fn await_next(&mut self, stop: &Stop) -> Result<Observation, Error> {
        loop {
            if stop.is_raised() {
                return Err(Error::Interrupted);
            }
            if let Some(result) = self.early.remove(&self.due) {
                self.due += 1;
                return result;
            }
            match self.results.recv_timeout(LOOK_EVERY) {
                Ok((number, result)) => {
                    self.early.insert(number, result);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::SimulatorDied),
            }
        }
    }
}

/// The result of a trial, with its number.
type NumberedResult = (usize, Result<Observation, Error>);

/// Trials that threads take in turn.
struct TrialQueue {
    simulator: Simulator,
    method: Method,
    trials: Vec<Trial>,
    next: AtomicUsize,
}

impl TrialQueue {
    /// Runs trials until none is left, or the receiver is gone.
    fn run_worker(&self, to: &Sender<NumberedResult>) {
        loop {
            let idx = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = self.trials.get(idx) else { return };
            let result = self.simulator.simulate_trial(trial, &self.method);
            if to.send((idx, result)).is_err() {
                return;
            }
        }
    }
}

/// The error in the words of plans, where a trial has one workload and the probe beside it.
fn describe_invalid(invalid: &InvalidValue) -> String {
    let InvalidValue { key, found, wanted } = invalid;
    let key = key.strip_prefix("load.0.").unwrap_or(key);
    format!("its {key} is {found}, must be {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_keeps_the_name_asked_for() {
        for name in SystemProfile::shipped_names() {
            assert_eq!(Simulator::for_system(name).unwrap().name(), format!("sim:{name}"));
        }
        assert!(SystemProfile::find_shipped(Simulator::EXAMPLE).is_some());
    }

    #[test]
    fn run_beyond_free_memory_is_refused() {
        let simulator = Simulator::for_system(Simulator::EXAMPLE).unwrap();
        let load = Workload::plain(String::from("many"), Traffic::tcp_stream(Bytes::new(1), 9_000));
        let profile = simulator.profile.build_scenario(&load, 1, latput_units::Nanos::from_ms(1));
        let scenario = profile.unwrap();
        assert!(simulator.check_memory(&scenario, &load, Some(Bytes::new(u64::MAX))).is_ok());
        assert!(simulator.check_memory(&scenario, &load, None).is_ok());
        let refused = simulator.check_memory(&scenario, &load, Some(Bytes::new(10_000_000)));
        let refusal = refused.unwrap_err().to_string();
        assert!(refusal.contains("workload `many`") && refusal.contains("10 MB free"), "{refusal}");
    }
}
