//! How often intervals of a ratio hold the truth, by estimator, number of rounds and recording.

#![expect(clippy::cast_possible_truncation, reason = "counts of rounds")]

use latput_stats::mean;
use latput_stats::paired::{Average, Center, ratio_of_logs};
use latput_units::SeededRng;

use crate::noise::{NoiseRecording, STRETCH};
use crate::{SETTINGS, count_draws, format_share};

/// Logarithms of one figure by workload, round and setting.
type Logs = [Vec<Vec<f64>>];
/// The interval of the logarithm of the second setting's ratio to the first's, at a confidence.
type Interval = fn(&Logs, f64) -> (f64, f64);

const ESTIMATORS: [(&str, Interval); 8] = [
    ("trimmed", |logs, confidence| of_library(logs, Average::Trimmed, confidence)),
    ("plain", |logs, confidence| of_library(logs, Average::Plain, confidence)),
    ("by workload", by_workload),
    ("signed ranks", signed_ranks),
    ("ranks by workload", ranks_by_workload),
    ("means of 8", means_of_stretches),
    ("two-way", two_way),
    ("weighted", weighted_rounds),
];

/// The differences of the two settings in one workload.
fn setting_differences(rounds: &[Vec<f64>]) -> Vec<f64> {
    rounds.iter().map(|round| round[1] - round[0]).collect()
}

/// Their means over workloads, round by round, as an objective has them.
fn average_workloads(logs: &Logs) -> Vec<f64> {
    let each: Vec<Vec<f64>> = logs.iter().map(|rounds| setting_differences(rounds)).collect();
    let of_round = |idx: usize| each.iter().map(|one| one[idx]).sum::<f64>() / each.len() as f64;
    (0..each[0].len()).map(of_round).collect()
}

fn of_library(logs: &Logs, average: Average, confidence: f64) -> (f64, f64) {
    of_logs(&average_workloads(logs), average, confidence)
}

fn of_logs(logs: &[f64], average: Average, confidence: f64) -> (f64, f64) {
    let ratio = ratio_of_logs(logs, average, confidence).expect("many rounds");
    (ratio.low.ln(), ratio.high.ln())
}

/// Trimmed in each workload, then averaged.
fn by_workload(logs: &Logs, confidence: f64) -> (f64, f64) {
    let part = |rounds: &Vec<Vec<f64>>| {
        let logs = setting_differences(rounds).into_iter().map(|log| log / logs.len() as f64);
        (0..).zip(logs).collect()
    };
    let parts: Vec<_> = logs.iter().map(part).collect();
    let center = Center::of_sum(&parts, Average::Trimmed).expect("many rounds");
    let ratio = center.ratio(confidence).expect("a confidence");
    (ratio.low.ln(), ratio.high.ln())
}

/// A sum of independent parts `(center, standard error, degrees of freedom)`, after Welch and Satterthwaite.
fn sum_of(parts: &[(f64, f64, f64)], confidence: f64) -> (f64, f64) {
    let center: f64 = parts.iter().map(|part| part.0).sum();
    let squares: f64 = parts.iter().map(|part| part.1.powi(2)).sum();
    let share: f64 = parts.iter().map(|part| part.1.powi(4) / part.2).sum();
    let half = mean::critical_t(confidence, (squares.powi(2) / share) as usize) * squares.sqrt();
    (center - half, center + half)
}

/// Hodges and Lehmann (Annals of Mathematical Statistics 34, 1963): the middle of the Walsh averages, with
/// Wilcoxon's signed ranks behind the interval.
fn signed_ranks(logs: &Logs, confidence: f64) -> (f64, f64) {
    walsh_interval(&average_workloads(logs), confidence)
}

fn walsh_interval(values: &[f64], confidence: f64) -> (f64, f64) {
    let n = values.len() as f64;
    let pairs = values.iter().enumerate();
    let mut averages: Vec<f64> = pairs
        .flat_map(|(idx, a)| values[idx..].iter().map(move |b| f64::midpoint(*a, *b)))
        .collect();
    averages.sort_by(f64::total_cmp);
    let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let z = mean::critical_t(confidence, 1_000_000);
    let cut = (averages.len() as f64 / 2.0 - z * deviation).max(0.0) as usize;
    (averages[cut], averages[averages.len() - 1 - cut])
}

/// The same in each workload, then averaged: half widths as standard errors.
fn ranks_by_workload(logs: &Logs, confidence: f64) -> (f64, f64) {
    let n = logs.len() as f64;
    let ends = logs.iter().map(|rounds| walsh_interval(&setting_differences(rounds), confidence));
    let (center, squares) = ends.fold((0.0, 0.0), |sum, (low, high)| {
        (sum.0 + f64::midpoint(low, high) / n, sum.1 + ((high - low) / 2.0 / n).powi(2))
    });
    (center - squares.sqrt(), center + squares.sqrt())
}

/// Student's t of means over stretches, which may depend on each other less.
fn means_of_stretches(logs: &Logs, confidence: f64) -> (f64, f64) {
    let all = average_workloads(logs);
    let means = all.chunks_exact(STRETCH.min(all.len() / 2));
    let means: Vec<f64> = means.map(|one| one.iter().sum::<f64>() / one.len() as f64).collect();
    of_logs(&means, Average::Plain, confidence)
}

/// Rounds and settings: each setting's residuals from the other settings' median in its round.
fn two_way(logs: &Logs, confidence: f64) -> (f64, f64) {
    let n = logs.len() as f64;
    let parts = logs.iter().flat_map(|rounds| {
        [0, 1].map(|setting| {
            let residual = |round: &Vec<f64>| round[setting] - compute_median(round[2..].to_vec());
            let residuals: Vec<f64> = rounds.iter().map(residual).collect();
            let center = Center::from_logs(&residuals, Average::Trimmed).expect("many rounds");
            let sign = if setting == 1 { 1.0 } else { -1.0 };
            (sign * center.log / n, center.error / n, center.degrees_of_freedom as f64)
        })
    });
    sum_of(&parts.collect::<Vec<_>>(), confidence)
}

/// Rounds count by the inverse square of how far their settings scatter, of which half is the
/// recording's; errors from the weighted squares.
fn weighted_rounds(logs: &Logs, confidence: f64) -> (f64, f64) {
    let n = logs.len() as f64;
    let parts = logs.iter().map(|rounds| {
        let scatter: Vec<f64> = rounds
            .chunks(STRETCH)
            .flat_map(|stretch| {
                let from_middle = stretch.iter().flat_map(|round| {
                    let middle = compute_median(round.clone());
                    round.iter().map(move |log| (log - middle).abs())
                });
                vec![compute_median(from_middle.collect()); stretch.len()]
            })
            .collect();
        let usual = compute_median(scatter.clone());
        let weights: Vec<f64> =
            scatter.iter().map(|one| 1.0 / (one * one + usual * usual)).collect();
        let all: f64 = weights.iter().sum();
        let logs = setting_differences(rounds);
        // Winsorized at three usual deviations of its stretch.
        let most = |idx: usize| 3.0 * 1.4826 * 2.0_f64.sqrt() * scatter[idx];
        let middle = compute_median(logs.clone());
        let logs: Vec<f64> = logs
            .iter()
            .enumerate()
            .map(|(idx, log)| log.clamp(middle - most(idx), middle + most(idx)))
            .collect();
        let center = weights.iter().zip(&logs).map(|(w, log)| w * log).sum::<f64>() / all;
        let squares: f64 =
            weights.iter().zip(&logs).map(|(w, log)| (w * (log - center)).powi(2)).sum();
        let freedom = rounds.len() as f64 - 1.0;
        let error = (squares * (freedom + 1.0) / freedom).sqrt() / all;
        (center / n, error / n, freedom)
    });
    sum_of(&parts.collect::<Vec<_>>(), confidence)
}

fn compute_median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// By their places in [`crate::noise::Figures`].
const FIGURES: [&str; 3] = ["rate", "p99", "demand"];
/// Ratio between the figures of two settings, to be proven.
const EFFECT: f64 = 0.9;

pub(crate) fn print_table(recordings: &[(&str, &Vec<NoiseRecording>)], draws: u64) {
    println!(
        "{:7} {:10} {:3} {:18} {:>18} {:>18} {:>20} {:>18}",
        "figure", "recording", "n", "estimator", "95% holds", "99% holds", "10% proven", "false"
    );
    for (figure, name) in FIGURES.iter().enumerate() {
        for (recording, noise) in recordings {
            for rounds in [20, 40, 80] {
                for (estimator, interval) in &ESTIMATORS {
                    let draw = |rng: &mut SeededRng| -> Vec<Vec<Vec<f64>>> {
                        let each = noise.iter().map(|noise| {
                            let drawn =
                                noise.resample_rounds(SETTINGS.len(), rounds, rng).into_iter();
                            drawn
                                .map(|round| round.iter().map(|run| run[figure].ln()).collect())
                                .collect()
                        });
                        each.collect()
                    };
                    let holds = count_draws(draws, |rng| {
                        let logs = draw(rng);
                        [0.95, 0.99].map(|confidence| {
                            let (low, high) = interval(&logs, confidence);
                            low <= 0.0 && 0.0 <= high
                        })
                    });
                    // Of four settings, at 1 in 100 one-sided: also without an effect.
                    let proves = count_draws(draws, |rng| {
                        let (_, high) = interval(&draw(rng), 0.995);
                        [high < -EFFECT.ln(), high < 0.0]
                    });
                    println!(
                        "{name:7} {recording:10} {rounds:3} {estimator:18} {:>18} {:>18} {:>20} {:>18}",
                        format_share(holds[0], draws),
                        format_share(holds[1], draws),
                        format_share(proves[0], draws),
                        format_share(proves[1], draws)
                    );
                }
            }
        }
    }
}
