//! One run of 200 s as `latput tune` has it: stints of the workloads in turn, losers dropped after each cycle,
//! no more stints of a workload whose intervals are narrow. What the library decides in a run it decides here.

use std::collections::BTreeSet;

use latput_model::{Goal, find_eliminated, recommend_setting, too_wide};
use latput_trial::{Results, Row};
use latput_units::SeededRng;

use crate::SETTINGS;
use crate::noise::NoiseRecording;
use crate::synthetic::{self, SyntheticFigures, build_observation};

/// Of the built-in plan, in seconds: the time for stints, without some 5 s in which carry-over is measured.
const BUDGET_S: f64 = 195.0;
const SLICE_S: f64 = 0.25;
const STINT_SLICES: usize = 40;
/// Warming up, connecting, and what else a stint costs.
const OVERHEAD_S: f64 = 0.35;
/// Rounds that have the measured time of the plan's 5 to 30 trials of 1 s.
const LEAST_ROUNDS: u32 = 23;
const MOST_ROUNDS: u32 = 134;

/// Factors on each setting's rate, tail and demand.
pub(crate) type Truth = [[f64; 3]; SETTINGS.len()];

/// How a run ended.
pub(crate) struct TuneOutcome {
    /// The setting that is proven better than the first.
    pub(crate) change: Option<usize>,
    pub(crate) dropped: BTreeSet<usize>,
}

pub(crate) fn run(
    noise: &[NoiseRecording],
    truth: &Truth,
    goal: &Goal,
    rng: &mut SeededRng,
) -> TuneOutcome {
    let workloads: Vec<_> = noise.iter().map(|noise| noise.workload.clone()).collect();
    // Reading tails is what most of the time would go to.
    let has_tail = goal.text.contains("_p99");
    let mut results =
        synthetic::build_results(&SETTINGS, &workloads, 0, |_, _| SyntheticFigures::default());
    let mut dropped = BTreeSet::new();
    let mut rounds = vec![0_u32; noise.len()];
    let mut elapsed_s = 0.0;
    loop {
        let before = rounds.clone();
        let wide = too_wide(&results);
        let wants = |&workload: &usize| {
            let done = rounds[workload];
            done < LEAST_ROUNDS || done < MOST_ROUNDS && wide.contains(&workload)
        };
        let mut wanted: Vec<usize> = (0..noise.len()).filter(wants).collect();
        rng.shuffle(&mut wanted);
        for &workload in &wanted {
            let alive: Vec<usize> =
                (0..SETTINGS.len()).filter(|setting| !dropped.contains(setting)).collect();
            let count = STINT_SLICES / alive.len();
            elapsed_s += (count * alive.len()) as f64 * SLICE_S + OVERHEAD_S;
            if elapsed_s > BUDGET_S {
                return judge_results(&results, goal, dropped);
            }
            for round in noise[workload].resample_rounds(alive.len(), count, rng) {
                for (&setting, figures) in alive.iter().zip(&round) {
                    let [rate, tail, demand] = truth[setting];
                    let figures = SyntheticFigures {
                        rate: figures[0] * rate,
                        p99_us: has_tail.then_some(figures[1] * tail / 1e3),
                        service_demand_us: figures[2] * demand,
                    };
                    results.rows.push(Row {
                        block: rounds[workload],
                        setting,
                        workload,
                        started_unix_ms: 0,
                        observation: build_observation(&workloads[workload], figures),
                    });
                }
                rounds[workload] += 1;
            }
        }
        let seen = |rounds: &[u32]| rounds.iter().copied().max().unwrap_or(0).min(MOST_ROUNDS);
        let share = f64::from(seen(&rounds) - seen(&before)) / f64::from(MOST_ROUNDS);
        let losers = find_eliminated(&results, goal, share).expect("every workload has runs");
        dropped.extend(losers.into_iter().map(|loser| loser.setting));
        if wanted.is_empty() || dropped.len() + 1 == SETTINGS.len() {
            return judge_results(&results, goal, dropped);
        }
    }
}

fn judge_results(results: &Results, goal: &Goal, dropped: BTreeSet<usize>) -> TuneOutcome {
    let advice = recommend_setting(results, goal).expect("every workload has runs");
    TuneOutcome { change: advice.is_proven().then_some(advice.setting), dropped }
}
