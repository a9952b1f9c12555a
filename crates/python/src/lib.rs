//! The extension module of the Python package: plans, runs and the simulator, as the command line has them.
//!
//! It holds no logic of its own. A run is given out as the documents of `latput report`; `python/src/latput` makes frames of
//! them. The interpreter's lock is released while anything is computed.

mod search;
mod simulator;
mod twin;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use latput_model::{Goal, ResultsSummary};
use latput_protocol::text::format_error_chain;
use latput_report::explained::{ExplainError, RunExplanation};
use latput_report::format::format_count;
use latput_report::{
    Screen, render_csv, render_html, render_json, render_markdown, render_picture, render_terminal,
};
use latput_results::ResultsDb;
use latput_runner::Error;
use latput_trial::Results;
use pyo3::exceptions::{PyException, PyIndexError};
use pyo3::prelude::*;

use self::search::NativeSearch;
use self::twin::NativeTwin;

pyo3::create_exception!(
    latput,
    LatputError,
    PyException,
    "What latput refuses, in the words of its command line."
);
pyo3::create_exception!(latput, PlanError, LatputError, "A plan that is wrong.");

/// An experiment: settings, workloads and how often.
#[pyclass(frozen, module = "latput")]
#[derive(Clone, Debug)]
struct Plan {
    text: String,
    plan: latput_trial::Plan,
}

#[pymethods]
impl Plan {
    /// Reads a plan from TOML; `name` stands in errors for the file.
    #[new]
    #[pyo3(signature = (text, name = "plan"))]
    fn new(text: String, name: &str) -> PyResult<Self> {
        let plan = latput_trial::Plan::parse(name, &text)
            .map_err(|error| PlanError::new_err(error.to_string()))?;
        Ok(Self { text, plan })
    }

    /// The name in the plan.
    #[getter]
    fn name(&self) -> &str {
        &self.plan.name
    }

    /// The goal, if it has one.
    #[getter]
    fn goal(&self) -> Option<&str> {
        self.plan.goal.as_deref()
    }

    /// The settings' labels, the first one first.
    #[getter]
    fn settings(&self) -> Vec<String> {
        self.plan.settings().iter().map(|setting| setting.label.clone()).collect()
    }

    /// The workloads' names.
    #[getter]
    fn workloads(&self) -> Vec<String> {
        self.plan.workloads.iter().map(|workload| workload.name.clone()).collect()
    }

    /// The plan as TOML, as it was given.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        let Self { plan, .. } = self;
        let settings = format_count(plan.settings().len(), "setting");
        let workloads = format_count(plan.workloads.len(), "workload");
        format!("<latput.Plan {:?}: {settings}, {workloads}>", plan.name)
    }
}

/// One run with its trials. What is computed from them is made when it is asked for.
#[pyclass(frozen, module = "latput")]
#[derive(Debug)]
struct NativeRun {
    results: Arc<Results>,
}

#[pymethods]
impl NativeRun {
    /// The document of `latput report --format json`.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| render_json(&self.results, &ResultsSummary::from_results(&self.results)))
    }

    /// The rows of `latput report --format csv`.
    fn csv(&self, py: Python<'_>) -> String {
        py.detach(|| render_csv(&self.results))
    }

    /// The page of `latput report -o report.html`.
    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| render_html(&self.results, &ResultsSummary::from_results(&self.results), None))
    }

    /// The first trade-off of that page, as an SVG image.
    fn picture(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| render_picture(&self.results, &ResultsSummary::from_results(&self.results)))
    }

    /// The tables of `latput report`.
    #[pyo3(signature = (columns = 100))]
    fn text(&self, py: Python<'_>, columns: usize) -> String {
        let screen = Screen { columns, is_styled: false };
        py.detach(|| {
            render_terminal(&self.results, &ResultsSummary::from_results(&self.results), screen)
        })
    }

    /// The tables of `latput report --format markdown`.
    fn markdown(&self, py: Python<'_>) -> String {
        py.detach(|| render_markdown(&self.results, &ResultsSummary::from_results(&self.results)))
    }

    /// The JSON and the words of `latput explain`.
    #[pyo3(signature = (workloads, setting = None, columns = 100))]
    fn explain(
        &self,
        py: Python<'_>,
        workloads: Vec<String>,
        setting: Option<String>,
        columns: usize,
    ) -> PyResult<(String, String)> {
        let explained = || {
            let explained = RunExplanation::new(&self.results, &workloads, setting.as_deref())?;
            Ok((serde_json::to_string(&explained.to_document()), explained.to_text(columns)))
        };
        let (json, words) = py
            .detach(explained)
            .map_err(|error: ExplainError| LatputError::new_err(error.to_string()))?;
        Ok((json.map_err(|error| LatputError::new_err(error.to_string()))?, words))
    }

    /// The profile of `latput model twin`, with what is known of its costs.
    fn twin(&self, py: Python<'_>, name: String) -> PyResult<NativeTwin> {
        NativeTwin::calibrate(py, &self.results, name)
    }

    /// The same run, judged by another goal.
    fn with_goal(&self, goal: &str) -> PyResult<Self> {
        let parsed = Goal::parse(goal).map_err(|error| LatputError::new_err(error.to_string()))?;
        let figures = parsed.objective.iter().chain(parsed.conditions.iter().map(|it| &it.figure));
        for figure in figures {
            if figure.cells_in(&self.results.workloads).is_empty() {
                let names = self.results.workloads.iter().map(|it| it.name.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                let problem = format!("no workload matches `{figure}`; the workloads are {names}");
                return Err(LatputError::new_err(problem));
            }
        }
        let results = Results { goal: Some(goal.to_owned()), ..Results::clone(&self.results) };
        Ok(Self { results: Arc::new(results) })
    }

    /// Writes the run to a new results file, which every command of latput reads.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| save_results(&self.results, &path)).map_err(refused_file)
    }

    /// The run as bytes, for another process of the same version.
    fn to_bytes(&self, py: Python<'_>) -> Vec<u8> {
        py.detach(|| self.results.to_json())
    }

    /// A run from bytes of `to_bytes`.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Self> {
        let results = py
            .detach(|| Results::from_json(&bytes))
            .map_err(|error| LatputError::new_err(format!("these bytes are no run: {error}")))?;
        Ok(Self { results: Arc::new(results) })
    }

    /// Round-trip times of a trial: the largest duration of each bucket in nanoseconds, and the counts; `None` where the
    /// workload has none. With `probe`, those of the probe beside the traffic.
    #[pyo3(signature = (trial, probe = false))]
    fn histogram(&self, trial: usize, probe: bool) -> PyResult<Option<(Vec<u64>, Vec<u64>)>> {
        let row = self.results.rows.get(trial).ok_or_else(|| {
            let count = self.results.rows.len();
            PyIndexError::new_err(format!("trial {trial}: the run has {count}, from 0"))
        })?;
        let observed = &row.observation;
        let histogram = if probe {
            observed.probe.as_ref().map(|probe| &probe.rtt)
        } else {
            observed.traffic.latency.as_ref()
        };
        Ok(histogram.map(|it| it.buckets().map(|(upper, count)| (upper.as_ns(), count)).unzip()))
    }
}

/// Number, name, start in milliseconds since 1970, trials, whether it ended.
type RunLine = (i64, String, u64, u64, bool);

/// The runs of a results file.
#[pyfunction]
fn runs(py: Python<'_>, path: PathBuf) -> PyResult<Vec<RunLine>> {
    let runs = py.detach(|| ResultsDb::open(&path)?.list_runs()).map_err(refused_file)?;
    let run = |it: latput_results::results_db::RunSummary| {
        (it.id, it.name, it.started_unix_ms, it.trials, it.finished)
    };
    Ok(runs.into_iter().map(run).collect())
}

/// Loads a run of a results file; the newest without a number.
#[pyfunction]
#[pyo3(signature = (path, run = None))]
fn load(py: Python<'_>, path: PathBuf, run: Option<i64>) -> PyResult<NativeRun> {
    let results = py.detach(|| ResultsDb::open(&path)?.load_chosen(run)).map_err(refused_file)?;
    Ok(NativeRun { results: Arc::new(results) })
}

fn save_results(results: &Results, path: &Path) -> Result<(), latput_results::Error> {
    let mut db = ResultsDb::create(path)?;
    let started = results.rows.iter().map(|row| row.started_unix_ms).min().unwrap_or(0);
    let run = db.begin_run("", "", started, results)?;
    for row in &results.rows {
        db.append_trial(run, results, row)?;
    }
    db.finish_run(run, results)?;
    db.checkpoint_log()
}

fn refused_file(error: latput_results::Error) -> PyErr {
    to_py_error(error.into())
}

fn to_py_error(error: Error) -> PyErr {
    let text = format_error_chain(&error);
    match error {
        Error::Plan(_) => PlanError::new_err(text),
        _ => LatputError::new_err(text),
    }
}

/// Compiled parts of the package `latput`.
#[pymodule]
fn latput_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("LatputError", module.py().get_type::<LatputError>())?;
    module.add("PlanError", module.py().get_type::<PlanError>())?;
    module.add_class::<Plan>()?;
    module.add_class::<NativeRun>()?;
    module.add_class::<NativeSearch>()?;
    module.add_class::<NativeTwin>()?;
    module.add_function(wrap_pyfunction!(runs, module)?)?;
    module.add_function(wrap_pyfunction!(load, module)?)?;
    module.add_function(wrap_pyfunction!(simulator::simulate, module)?)
}
