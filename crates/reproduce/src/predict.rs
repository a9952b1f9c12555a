//! Predictions with a range: summarises several seeds of one experiment.

use crate::experiment::{Experiment, SimulatedFigure};

/// A predicted figure with the range of nine in ten runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigurePrediction {
    /// Mean over the seeds.
    pub value: f64,
    /// Lower end of the 90% range over seeds and start phases.
    pub low: f64,
    /// Upper end of the range.
    pub high: f64,
}

/// Two-sided 90% quantile of Student's t for 1 to 30 degrees of freedom.
const T90: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];

/// Summarises the runs of one experiment under several seeds. Returns one prediction per measured
/// column, `None` for a column that the row does not measure.
pub fn summarize_runs(runs: &[Vec<Option<SimulatedFigure>>]) -> Vec<Option<FigurePrediction>> {
    let columns = runs.first().map_or(0, Vec::len);
    (0..columns).map(|column| summarize_figure(runs.iter().map(|run| run[column]))).collect()
}

/// Runs an experiment with seeds 0 to `seeds` in sequence.
pub fn predict_figures(
    experiment: &Experiment,
    seeds: u64,
) -> Result<Vec<Option<FigurePrediction>>, latput_sim::InvalidValue> {
    let runs: Result<Vec<_>, _> =
        (0..experiment.run_count(seeds)).map(|seed| experiment.run(seed)).collect();
    Ok(summarize_runs(&runs?))
}

fn summarize_figure(
    figures: impl Iterator<Item = Option<SimulatedFigure>>,
) -> Option<FigurePrediction> {
    let figures: Vec<SimulatedFigure> = figures.collect::<Option<Vec<SimulatedFigure>>>()?;
    let count = figures.len() as f64;
    let mean_of =
        |part: &dyn Fn(&SimulatedFigure) -> f64| figures.iter().map(part).sum::<f64>() / count;
    let mean = mean_of(&|figure| figure.value);
    if figures.iter().all(|figure| figure.within.is_some()) {
        let end = |pick: fn((f64, f64)) -> f64| {
            mean_of(&|figure| figure.within.map_or(figure.value, pick))
        };
        return Some(FigurePrediction {
            value: mean,
            low: end(|ends| ends.0),
            high: end(|ends| ends.1),
        });
    }
    let Some(freedom) = figures.len().checked_sub(2) else {
        return Some(FigurePrediction { value: mean, low: mean, high: mean });
    };
    let squares = figures.iter().map(|figure| (figure.value - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (count - 1.0)).sqrt();
    let half = T90[freedom.min(T90.len() - 1)] * deviation * (1.0 + 1.0 / count).sqrt();
    Some(FigurePrediction { value: mean, low: (mean - half).max(0.0), high: mean + half })
}
