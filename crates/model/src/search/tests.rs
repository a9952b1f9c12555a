//! The search on synthetic systems whose optimum is known, with noise as observed on hosts.

mod decisions;

use super::space::SearchAxis;
use super::*;

/// A system: the logarithm of its cost, and of the one figure that is bounded.
struct TestSystem {
    space: SearchSpace,
    /// Standard deviation of a run's cost.
    noise: f64,
    cost: fn(&[f64]) -> f64,
    figure: fn(&[f64]) -> f64,
}

#[test]
fn valley_is_found_in_a_seventh() {
    let system =
        TestSystem { space: make_grid(&[8, 6, 5]), noise: NOISE, cost: bowl_cost, figure: |_| 0.0 };
    // 240 settings; all of them, once each, is 240 runs.
    check_search(&system, &[], 36);
}

#[test]
fn narrow_valley_at_an_edge_is_found() {
    let system =
        TestSystem { space: make_grid(&[12, 10]), noise: NOISE, cost: edge_cost, figure: |_| 0.0 };
    // Three settings of 120 are within 3%.
    check_search(&system, &[], 36);
}

#[test]
fn limit_that_rules_out_the_cheapest_is_kept() {
    // Cost falls along the first axis, and so does the rate that must keep 95% of the best.
    let system = TestSystem {
        space: make_grid(&[10, 6]),
        noise: NOISE,
        cost: |x| -x[0] + 0.3 * (x[1] - 0.4).powi(2),
        figure: |x| -0.3 * x[0].powi(2),
    };
    let limit = SearchLimit {
        bound: BoundSide::AtLeast,
        number_log: 0.95_f64.ln(),
        reference: Some(LimitReference::Best),
    };
    check_search(&system, &[limit], 30);
    // The figure that the limit is a share of is known as well, to be run beside the winner.
    let (leader, _) = run(&system, &[limit], 3, 30);
    let best = axis_positions(&system.space, leader.references[0]);
    assert!(best[0] <= 0.25, "{best:?}");
}

#[test]
fn where_nothing_matters_it_stops_early() {
    let system =
        TestSystem { space: make_grid(&[8, 6, 5]), noise: NOISE, cost: |_| 1.0, figure: |_| 0.0 };
    let mut runs: Vec<usize> = (0..15).map(|seed| run(&system, &[], seed, 240).1).collect();
    runs.sort_unstable();
    assert!(runs[7] <= 60, "{runs:?}");
}

#[test]
fn flat_search_ends_before_its_budget() {
    let settled = |cost: fn(&[f64]) -> f64| {
        let system =
            TestSystem { space: make_grid(&[8, 6, 5]), noise: 0.12, cost, figure: |_| 0.0 };
        (0..9).map(|seed| run(&system, &[], seed, 240)).collect::<Vec<(SearchLeader, usize)>>()
    };
    let nothing = settled(|_| 1.0);
    let mut runs: Vec<usize> = nothing.iter().map(|(_, runs)| *runs).collect();
    runs.sort_unstable();
    assert!(runs[4] <= 120, "{runs:?}");
    // A fifth to be gained from today's corner is found all the same.
    let gained = settled(|x| 0.22 * (1.0 - x[0]));
    let found = gained.iter().filter(|(leader, _)| leader.setting / 30 >= 5).count();
    assert!(found >= 8, "{gained:?}");
}

#[test]
fn budget_is_kept_and_the_leader_told() {
    let system =
        TestSystem { space: make_grid(&[8, 6, 5]), noise: NOISE, cost: bowl_cost, figure: |_| 0.0 };
    let (leader, runs) = run(&system, &[], 1, 10);
    assert!(runs <= 10, "{runs}");
    assert!(leader.doubt > 0.0 && leader.regret_log[1] <= leader.regret_log[2], "{leader:?}");
}

#[test]
fn runs_without_figures_are_left_out() {
    let mut search = Search::new(make_grid(&[4, 4]), 0, Vec::new(), make_options(1, 50));
    assert_eq!(search.leader(), None);
    let SearchStep::Try { settings: first, .. } = search.next_step() else { panic!() };
    search.record_runs(first.iter().map(|&setting| SearchRun {
        setting,
        block: 0,
        cost_log: f64::NAN,
        figures_log: Vec::new(),
    }));
    assert_eq!(search.run_count(), 0);
    assert!(matches!(search.next_step(), SearchStep::Try { .. }));
}

#[test]
fn last_block_takes_the_remaining_budget() {
    let mut search = Search::new(make_grid(&[6, 6]), 0, Vec::new(), make_options(3, 18));
    let mut rng = SeededRng::from_seed(5);
    let mut blocks = Vec::new();
    while let SearchStep::Try { settings, leader } = search.next_step() {
        if leader.is_some() {
            blocks.push(settings.len());
        }
        let cost = |setting: usize| {
            bowl_cost(&[axis_positions(&search.space, setting), vec![0.5]].concat())
        };
        let tried: Vec<SearchRun> = settings
            .iter()
            .map(|&setting| SearchRun {
                setting,
                block: 0,
                cost_log: noisy_cost(cost(setting), NOISE, &mut rng),
                figures_log: Vec::new(),
            })
            .collect();
        search.record_runs(tried);
    }
    assert_eq!(search.run_count(), 18);
    // Blocks of 4 until fewer are left.
    let (last, full) = blocks.split_last().unwrap();
    assert!(full.iter().all(|size| *size == 4) && (1..=4).contains(last), "{blocks:?}");
}

/// The closed form of the expected improvement (Jones, Schonlau and Welch 1998, equation 15), times what a run would tell.
#[test]
fn promise_is_improvement_times_news() {
    let space = make_grid(&[2, 2]);
    let samples = [(0, 0.0), (1, 0.3), (2, 0.1), (3, 0.2)].map(|(setting, value)| RunSample {
        setting,
        block: 0,
        value,
    });
    let fit = Surrogate::fit_samples(&space, &samples, None);
    let candidate = |mean, deviation| {
        let mut place = fit.belief_with_covariance(0);
        place.belief = Belief { mean, deviation };
        Candidate { setting: 0, place, keeps: 0.5, weight: 1.0 }
    };
    let check = |(mean, deviation, best, is_within, noise): (f64, f64, f64, bool, f64),
                 expected: f64| {
        let promise = candidate(mean, deviation).compute_promise(best, is_within, noise);
        assert!((promise - expected).abs() < 1e-6, "{promise} instead of {expected}");
    };
    let pdf_of_0 = 0.398_942_280;
    // 1 - 1 / sqrt(1 + 1)
    let news = 0.292_893_219;
    check((0.0, 1.0, 0.0, true, 1.0), 0.5 * pdf_of_0 * news);
    // z = 2: 2 x 0.977249868 + 0.053990967, of half the deviation.
    check((-1.0, 0.5, 0.0, true, 0.0), 0.5 * 0.5 * (2.0 * 0.977_249_868 + 0.053_990_967));
    check((-1.0, 0.5, 0.0, false, 0.0), 0.5);
    // 1 - 1.5 / sqrt(4 + 2.25)
    check((0.0, 2.0, 0.0, false, 1.5), 0.5 * 0.4);
}

/// A run of one setting lowers the doubt about another as conditioning a normal does (Rasmussen and Williams 2006, equation A.6).
#[test]
fn chosen_setting_informs_correlated_ones() {
    let mut search = Search::new(make_grid(&[5, 5]), 0, Vec::new(), make_options(1, 50));
    let mut rng = SeededRng::from_seed(2);
    search.record_runs((0..12).map(|run| SearchRun {
        setting: 2 * run,
        block: 0,
        cost_log: 0.1 * (run as f64) + 0.05 * rng.next_normal(),
        figures_log: Vec::new(),
    }));
    let view = SearchBelief::new(&search);
    let candidate = |setting| Candidate {
        setting,
        place: view.cost.belief_with_covariance(setting),
        keeps: 1.0,
        weight: 1.0,
    };
    let (chosen, mut left) = (candidate(7), vec![candidate(8), candidate(24)]);
    let noise = view.cost.run_noise();
    let own = chosen.place.belief.deviation.powi(2);
    let expected: Vec<f64> = left
        .iter()
        .map(|other| {
            let shared = view.cost.covariance(&chosen.place, &other.place);
            (other.place.belief.deviation.powi(2) - shared * shared / (own + noise * noise)).sqrt()
        })
        .collect();
    let before: Vec<f64> = left.iter().map(|other| other.place.belief.deviation).collect();
    view.discount_correlated(&chosen, &mut left);
    for ((other, expected), before) in left.iter().zip(expected).zip(before) {
        let deviation = other.place.belief.deviation;
        assert!(
            (deviation - expected).abs() < 1e-12 && deviation <= before,
            "{deviation} {expected}"
        );
    }
    assert!(left[0].place.belief.deviation < 0.999 * view.cost.belief(8).deviation);
}

#[test]
fn doubt_is_a_chance() {
    let doubt_of = |apart: f64, runs: usize| {
        let mut search = Search::new(make_grid(&[2]), 0, Vec::new(), make_options(1, 200));
        let mut rng = SeededRng::from_seed(3);
        search.record_runs((0..runs).map(|run| SearchRun {
            setting: run % 2,
            block: u32::try_from(run / 2).unwrap(),
            cost_log: apart * (run % 2) as f64 + 0.1 * rng.next_normal(),
            figures_log: Vec::new(),
        }));
        let view = SearchBelief::new(&search);
        (view.leading_setting(), view.estimate_doubt(view.leading_setting(), 0.03, &mut rng).0)
    };
    let (leader, sure) = doubt_of(0.5, 80);
    assert!(leader == 0 && sure < 0.001, "{sure}");
    // Known to 0.07 = 0.1 / sqrt(2) each, where an effect is 3%.
    let (_, open) = doubt_of(0.0, 4);
    assert!((0.01..=1.0).contains(&open), "{open}");
}

fn bowl_cost(x: &[f64]) -> f64 {
    0.8 * (x[0] - 0.6).powi(2)
        + 0.5 * (x[1] - 0.3).powi(2)
        + 0.3 * (x[0] - 0.6) * (x[2] - 0.5)
        + 0.4 * (x[2] - 0.5).powi(2)
}

/// Like a delay that costs nothing up to a point and much from there on.
fn edge_cost(x: &[f64]) -> f64 {
    -0.5 * x[0] + 4.0 * (x[0] - 0.8).max(0.0) + 0.2 * x[1]
}

fn make_grid(levels: &[usize]) -> SearchSpace {
    let axis = |&levels: &usize| SearchAxis {
        levels,
        is_ordered: true,
        apart: None,
        is_disruptive: false,
    };
    SearchSpace::new(levels.iter().map(axis).collect(), BTreeSet::new()).unwrap()
}

fn make_options(seed: u64, budget: usize) -> SearchOptions {
    SearchOptions { seed, block: 4, budget, smallest_effect: 0.03, least_gain: 0.1, doubt: 0.05 }
}

fn axis_positions(space: &SearchSpace, setting: usize) -> Vec<f64> {
    let scale = |(level, axis): (usize, &SearchAxis)| level as f64 / (axis.levels - 1) as f64;
    space.levels(setting).into_iter().zip(space.axes()).map(scale).collect()
}

/// Usual standard deviation of a run's cost.
const NOISE: f64 = 0.02;

/// The cost of a run; one in fifteen is 1.1 to 5 times as costly.
fn noisy_cost(value: f64, noise: f64, rng: &mut SeededRng) -> f64 {
    let odd = if rng.next_uniform() < 1.0 / 15.0 {
        (1.1 + 3.9 * rng.next_uniform().powi(3)).ln()
    } else {
        0.0
    };
    value + noise * rng.next_normal() + odd
}

fn run(
    system: &TestSystem,
    limits: &[SearchLimit],
    seed: u64,
    budget: usize,
) -> (SearchLeader, usize) {
    let mut search =
        Search::new(system.space.clone(), 0, limits.to_vec(), make_options(seed, budget));
    let mut rng = SeededRng::from_seed_and_index(seed, 1);
    let mut block = 0;
    while let SearchStep::Try { settings, .. } = search.next_step() {
        let drift = 0.03 * rng.next_normal();
        let tried: Vec<SearchRun> = settings
            .into_iter()
            .map(|setting| {
                let x = axis_positions(&system.space, setting);
                SearchRun {
                    setting,
                    block,
                    cost_log: noisy_cost((system.cost)(&x), system.noise, &mut rng) + drift,
                    figures_log: limits
                        .iter()
                        .map(|_| (system.figure)(&x) + 0.01 * rng.next_normal())
                        .collect(),
                }
            })
            .collect();
        search.record_runs(tried);
        block += 1;
    }
    (search.leader().unwrap(), search.run_count())
}

/// Over seeds, the median of runs until it settles is at most `most`, and the leader's true cost is
/// within 3% of the best that keeps the limits in most of them.
#[track_caller]
fn check_search(system: &TestSystem, limits: &[SearchLimit], most: usize) {
    const SEEDS: u64 = 15;
    let best_figure = system
        .space
        .allowed_settings()
        .map(|s| (system.figure)(&axis_positions(&system.space, s)))
        .fold(f64::NEG_INFINITY, f64::max);
    let slack = 0.01;
    let keeps = |setting| {
        limits.iter().all(|limit| {
            (system.figure)(&axis_positions(&system.space, setting))
                >= best_figure + limit.number_log - slack
        })
    };
    let true_cost = |setting| (system.cost)(&axis_positions(&system.space, setting));
    let strict = |setting: &usize| {
        limits.iter().all(|limit| {
            (system.figure)(&axis_positions(&system.space, *setting))
                >= best_figure + limit.number_log
        })
    };
    let best =
        system.space.allowed_settings().filter(strict).map(true_cost).fold(f64::INFINITY, f64::min);
    let mut counts = Vec::new();
    let mut near = 0;
    for seed in 0..SEEDS {
        let (leader, runs) = run(system, limits, seed, most);
        counts.push(runs);
        near += u64::from(keeps(leader.setting) && true_cost(leader.setting) <= best + 0.03);
    }
    counts.sort_unstable();
    assert!(near * 5 >= SEEDS * 4, "{near} of {SEEDS} near the optimum, runs {counts:?}");
}
