//! Twins: simulator profiles that are calibrated on the rows of a run.

use std::sync::Arc;

use latput_calibrate::{SimulationJob, Twin, TwinError, calibrate_twin};
use latput_experiment::parallel;
use latput_load::Stop;
use latput_trial::Results;
use pyo3::prelude::*;

use crate::LatputError;
use crate::simulator::run_interruptibly;

/// Name, unit, value, lower and upper end of the 90% interval.
type Cost = (String, &'static str, f64, f64, f64);

/// A calibrated profile, with what is known of its costs.
#[pyclass(frozen, module = "latput")]
#[derive(Debug)]
pub(crate) struct NativeTwin {
    profile: String,
    twin: Twin,
}

impl NativeTwin {
    /// Calibrates a profile called `name` on every core. Ctrl-C ends it.
    pub(crate) fn calibrate(
        py: Python<'_>,
        results: &Arc<Results>,
        name: String,
    ) -> PyResult<Self> {
        let results = Arc::clone(results);
        let found =
            run_interruptibly(py, &Stop::new(), move |stop| calibrated(&results, &name, stop))?;
        let twin = found.map_err(|error| LatputError::new_err(error.to_string()))?;
        let profile = twin.to_toml().map_err(|error| LatputError::new_err(error.to_string()))?;
        Ok(Self { profile, twin })
    }
}

fn calibrated(results: &Results, name: &str, stop: &Stop) -> Result<Twin, TwinError> {
    let run = |jobs: &[SimulationJob]| {
        parallel::map(jobs, stop, || {}, SimulationJob::run)
            .unwrap_or_else(|| vec![None; jobs.len()])
    };
    calibrate_twin(results, name, &run, &mut |_| {})
}

#[pymethods]
impl NativeTwin {
    /// The text of the profile's file.
    #[getter]
    fn profile(&self) -> &str {
        &self.profile
    }

    /// Each fitted cost.
    #[getter]
    fn costs(&self) -> Vec<Cost> {
        let cost = |it: &latput_calibrate::FittedCost| {
            (it.parameter.to_string(), it.parameter.unit(), it.value, it.low, it.high)
        };
        self.twin.costs.iter().map(cost).collect()
    }

    /// Of the rates of the rows themselves: number, median and 90th percentile of the relative error.
    #[getter]
    fn errors(&self) -> Option<(usize, f64, f64)> {
        self.twin.in_sample.map(|it| (it.count, it.median, it.p90))
    }
}
