//! Predictions with their band: several seeds of one experiment, summarised.

use crate::experiment::Experiment;

/// A predicted figure and where nine in ten runs like it lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Mean over the seeds.
    pub value: f64,
    /// Lower end of the 90 % band over seeds and start phases.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Two-sided 90 % quantile of Student's t for 1 to 30 degrees of freedom.
const T90: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];

/// Runs an experiment with `seeds` seeds; one prediction per measured column, `None` where a row does
/// not measure it.
pub fn predict(
    experiment: &Experiment,
    seeds: u32,
) -> Result<Vec<Option<Prediction>>, latput_sim::Invalid> {
    let mut runs = Vec::new();
    for seed in 0..seeds.max(2) {
        runs.push(experiment.run(u64::from(seed))?);
    }
    let columns = runs[0].len();
    Ok((0..columns).map(|column| summarise(runs.iter().map(|run| run[column]))).collect())
}

fn summarise(values: impl Iterator<Item = Option<f64>>) -> Option<Prediction> {
    let values: Vec<f64> = values.collect::<Option<Vec<f64>>>()?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = T90[(values.len() - 2).min(T90.len() - 1)];
    let half = t * variance.sqrt() * (1.0 + 1.0 / count).sqrt();
    Some(Prediction { value: mean, low: (mean - half).max(0.0), high: mean + half })
}
