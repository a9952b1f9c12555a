//! The rule as it was before claims went one way, for comparison: trials of 1 s in blocks; a limit is kept by the
//! estimate, against the best estimate; the objective is proven by two-sided t intervals after Holm, of
//! trimmed means for tails and plain ones else.

use latput_stats::paired::{self, Average};
use latput_stats::{mean, order};
use latput_units::SeededRng;

use crate::SETTINGS;
use crate::noise::{Figures, NoiseRecording};
use crate::run::Truth;

/// As many as 200 s had for the four workloads of the plan then.
const BLOCKS: usize = 8;
const CONFIDENCE: f64 = 0.99;
const SHARE_OF_BEST: f64 = 0.95;

/// The figure that a goal is about (its place in [`Figures`]), and the workloads whose rate it limits.
pub(crate) struct OldRuleGoal {
    pub(crate) figure: usize,
    pub(crate) limits_bulk_only: bool,
}

/// The setting that was recommended instead of the first.
pub(crate) fn run(
    noise: &[NoiseRecording],
    truth: &Truth,
    aim: &OldRuleGoal,
    rng: &mut SeededRng,
) -> Option<usize> {
    let drawn: Vec<Vec<Vec<Figures>>> =
        noise.iter().map(|noise| noise.resample_rounds(SETTINGS.len(), BLOCKS, rng)).collect();
    let of = |workload: usize, figure: usize, setting: usize| -> Vec<f64> {
        let factor = truth[setting][figure];
        drawn[workload].iter().map(|block| block[setting][figure] * factor).collect()
    };
    let logs = |workload: usize, figure: usize, setting: usize| -> Vec<f64> {
        let pairs = of(workload, figure, 0).into_iter().zip(of(workload, figure, setting));
        pairs.map(|(base, other)| (other / base).ln()).collect()
    };
    let rate = |workload, setting| {
        mean::mean(&of(workload, 0, setting), CONFIDENCE).expect("eight blocks").value
    };
    let limited: Vec<usize> = (0..noise.len())
        .filter(|&idx| !aim.limits_bulk_only || !noise[idx].workload.traffic.is_transactional())
        .collect();
    let settings = || 0..SETTINGS.len();
    let short = |setting: usize| -> Vec<usize> {
        let best = |workload| settings().map(|one| rate(workload, one)).fold(0.0, f64::max);
        let is_short =
            |workload: &usize| rate(*workload, setting) < SHARE_OF_BEST * best(*workload);
        limited.iter().copied().filter(is_short).collect()
    };
    let average = if aim.figure == 1 { Average::Trimmed } else { Average::Plain };
    let direction = if aim.figure == 0 { 1.0 } else { -1.0 };
    let objective: Vec<Vec<f64>> = (1..SETTINGS.len())
        .map(|setting| {
            let each: Vec<Vec<f64>> =
                (0..noise.len()).map(|idx| logs(idx, aim.figure, setting)).collect();
            let of_block = |block| each.iter().map(|logs| logs[block]).sum::<f64>();
            (0..BLOCKS).map(|block| of_block(block) / noise.len() as f64).collect()
        })
        .collect();
    let score = |setting: &usize| -> f64 {
        let middle = |idx: usize, setting: usize| {
            let values = of(idx, aim.figure, setting);
            let found = match average {
                Average::Trimmed => order::median(&values, CONFIDENCE),
                Average::Plain => mean::mean(&values, CONFIDENCE),
            };
            found.expect("eight blocks").value.ln()
        };
        let logs = (0..noise.len()).map(|idx| middle(idx, *setting) - middle(idx, 0));
        -direction * logs.sum::<f64>()
    };
    let mut keeping: Vec<usize> =
        (1..SETTINGS.len()).filter(|&setting| short(setting).is_empty()).collect();
    keeping.sort_by(|a, b| score(a).total_cmp(&score(b)));
    let broken = short(0);
    if broken.is_empty() {
        let proven = find_proven(&objective, average, direction);
        return keeping.into_iter().find(|setting| proven[setting - 1]);
    }
    let compared = broken
        .iter()
        .flat_map(|&workload| (1..SETTINGS.len()).map(move |setting| (workload, setting)));
    let all: Vec<Vec<f64>> =
        compared.map(|(workload, setting)| logs(workload, 0, setting)).collect();
    let proven = find_proven(&all, Average::Plain, 1.0);
    let others = SETTINGS.len() - 1;
    keeping
        .into_iter()
        .find(|setting| (0..broken.len()).all(|idx| proven[idx * others + setting - 1]))
}

/// Of each comparison whether it is proven to be better.
fn find_proven(all: &[Vec<f64>], average: Average, direction: f64) -> Vec<bool> {
    let p_values: Vec<_> = all.iter().map(|logs| paired::p_value(logs, average)).collect();
    let holm = paired::holm(&p_values, CONFIDENCE);
    let center = |logs: &Vec<f64>| {
        let ratio = paired::ratio_of_logs(logs, average, CONFIDENCE).expect("eight blocks");
        direction * ratio.value.ln()
    };
    holm.iter().zip(all).map(|(one, logs)| one.proven && center(logs) > 0.0).collect()
}
