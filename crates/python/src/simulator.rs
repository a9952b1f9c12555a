//! The simulator in this process, and how long work is waited for.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use latput_experiment::session::{self, RunProgress, TrialDone};
use latput_experiment::simulator::Simulator;
use latput_experiment::{RunPart, Testbed};
use latput_load::Stop;
use latput_results::ResultsDb;
use latput_runner::Error;
use latput_runner::trials::{IntervalCounts, TrialProgress};
use latput_trial::Results;
use pyo3::prelude::*;

use crate::{LatputError, NativeRun, Plan, to_py_error};

/// How often a signal is looked for while something is computed.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Where a plan is simulated, and where its trials go.
pub(crate) struct SimulationPlace {
    /// A profile's name or file,
    pub(crate) system: String,
    /// or its text, which goes before.
    pub(crate) profile: Option<String>,
    /// A results file that resumes; without one the run is in memory.
    pub(crate) output: Option<PathBuf>,
}

impl SimulationPlace {
    /// The testbed and the results file of a plan.
    pub(crate) fn open(&self, plan: &latput_trial::Plan) -> Result<(Testbed, ResultsDb), Error> {
        let testbed = match &self.profile {
            Some(text) => Testbed::from_simulator(Simulator::of_profile(text)?, plan)?,
            None => Testbed::from_system(&self.system, plan)?,
        };
        let db = self
            .output
            .as_ref()
            .map_or_else(ResultsDb::in_memory, |path| ResultsDb::create(path))?;
        Ok((testbed, db))
    }
}

/// A plan with another seed. Another seed is another run, which must not resume the plan's own.
pub(crate) fn with_seed(plan: &Plan, seed: Option<u64>) -> (latput_trial::Plan, String) {
    let Plan { text, mut plan } = plan.clone();
    plan.method.seed = seed.or(plan.method.seed);
    let text = seed.map_or_else(|| text.clone(), |seed| format!("{text}\n# seed {seed}\n"));
    (plan, text)
}

/// Simulates a plan, packet by packet, on every core. `system` is a profile's name or file, `profile` the text of one that
/// goes before it, `output` a results file that resumes; without one the run is in memory. Ctrl-C ends it.
#[pyfunction]
#[pyo3(signature = (plan, system, seed = None, output = None, profile = None))]
pub(crate) fn simulate(
    py: Python<'_>,
    plan: &Plan,
    system: String,
    seed: Option<u64>,
    output: Option<PathBuf>,
    profile: Option<String>,
) -> PyResult<NativeRun> {
    let (plan, text) = with_seed(plan, seed);
    let place = SimulationPlace { system, profile, output };
    let ended = run_interruptibly(py, &Stop::new(), move |stop| {
        run_simulation(&plan, &text, &place, stop)
    })?;
    Ok(NativeRun { results: std::sync::Arc::new(ended.map_err(to_py_error)?) })
}

/// Runs `work` on a thread of its own without the interpreter's lock, and returns its result. The calling thread looks
/// for Ctrl-C, which raises `stop`.
pub(crate) fn run_interruptibly<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce(&Stop) -> T + Send + 'static,
) -> PyResult<T> {
    let stopped = stop.clone();
    let working = thread::spawn(move || work(&stopped));
    while !working.is_finished() {
        py.detach(|| thread::sleep(LOOK_EVERY));
        if let Err(interrupted) = py.check_signals() {
            stop.raise();
            let _ended_early = py.detach(|| working.join());
            return Err(interrupted);
        }
    }
    working.join().map_err(|_| LatputError::new_err("the simulator failed"))
}

fn run_simulation(
    plan: &latput_trial::Plan,
    text: &str,
    place: &SimulationPlace,
    stop: &Stop,
) -> Result<Results, Error> {
    let (testbed, mut db) = place.open(plan)?;
    let run = session::RunInputs {
        plan,
        plan_text: text,
        testbed: &testbed,
        part: RunPart::Whole,
        quiet: session::QuietPolicy::Anyhow,
        interval: None,
        stop,
    };
    let ended = session::run(&run, &mut db, &mut SilentProgress)?;
    match ended.cause {
        Some(cause) => Err(cause),
        None => Ok(ended.results),
    }
}

/// Nobody watches.
pub(crate) struct SilentProgress;

impl TrialProgress for SilentProgress {
    fn report_remark(&mut self, _: &str) {}
    fn report_interval(&mut self, _: &IntervalCounts) {}
}

impl RunProgress for SilentProgress {
    fn report_trial(&mut self, _: &TrialDone<'_>) {}
    fn report_end(&mut self) {}
}
