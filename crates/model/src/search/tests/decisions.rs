//! Decisions of the search, each at its boundary.

use super::*;

#[test]
fn first_block_shows_each_axis_once() {
    // Axes of one level vary nothing; there may be fewer settings, or less budget.
    for (levels, budget, size) in
        [(&[4, 3, 1][..], 50, 4), (&[5], 50, 3), (&[2], 50, 2), (&[4, 3, 2], 3, 3)]
    {
        let today = make_grid(levels).allowed_settings().last().unwrap();
        let mut search = Search::new(make_grid(levels), today, Vec::new(), make_options(1, budget));
        let SearchStep::Try { settings, leader } = search.next_step() else { panic!("it stops") };
        assert_eq!((settings[0], settings.len(), leader), (today, size, None), "{levels:?}");
        assert_eq!(settings.iter().collect::<BTreeSet<_>>().len(), size);
    }
}

#[test]
fn search_ends_with_its_budget() {
    let after = |runs: usize| {
        let mut search = Search::new(make_grid(&[9]), 0, Vec::new(), make_options(1, 10));
        search.record_runs((0..runs).map(|run| make_run(run, 0, 0.3 * run as f64, &[])));
        search.next_step()
    };
    assert_eq!(after(10), SearchStep::Stop(StopReason::Budget));
    for (runs, room) in [(5, 4), (6, 4), (7, 3), (9, 1)] {
        let SearchStep::Try { settings, leader } = after(runs) else { panic!("it stops") };
        assert_eq!((settings.len(), leader.is_some()), (room, true), "after {runs} runs");
    }
}

#[test]
fn leader_needs_its_runs_however_small_the_doubt() {
    let with = |runs: usize, doubt: f64| {
        let options = SearchOptions { doubt, ..make_options(1, 50) };
        let mut search = Search::new(make_grid(&[2]), 0, Vec::new(), options);
        search.record_runs((0..8).map(|run| make_run(1, run, 1.0, &[])));
        search.record_runs((0..runs).map(|run| make_run(0, u32::try_from(run).unwrap(), 0.0, &[])));
        search.next_step() == SearchStep::Stop(StopReason::Settled)
    };
    assert!(!with(RUNS_OF_LEADER - 1, 1.1) && with(RUNS_OF_LEADER, 1.1));
    assert!(!with(RUNS_OF_LEADER, 0.0), "no doubt is below 0");
}

#[test]
fn runs_without_all_figures_are_left_out() {
    let mut search = Search::new(make_grid(&[3]), 0, vec![TODAY], make_options(1, 50));
    search.record_runs([
        make_run(0, 0, f64::NAN, &[0.0]),
        make_run(0, 0, 0.0, &[]),
        make_run(0, 0, 0.0, &[f64::INFINITY]),
        make_run(1, 0, 0.0, &[0.0]),
    ]);
    assert_eq!((search.run_count(), search.best_setting(), search.leader()), (1, None, None));
    search.record_runs([make_run(1, 1, 0.0, &[0.0])]);
    assert_eq!((search.run_count(), search.best_setting()), (2, Some(1)));
}

/// At least 0.9 of today's.
const TODAY: SearchLimit = SearchLimit {
    bound: BoundSide::AtLeast,
    number_log: -0.1,
    reference: Some(LimitReference::Today),
};

#[test]
fn run_breaks_limit_by_reference_mean() {
    let limits = vec![
        TODAY,
        SearchLimit { reference: Some(LimitReference::Best), ..TODAY },
        SearchLimit { reference: None, number_log: 2.0, ..TODAY },
        SearchLimit {
            bound: BoundSide::AtMost,
            reference: Some(LimitReference::Best),
            number_log: 0.1,
        },
        SearchLimit { bound: BoundSide::AtMost, reference: None, number_log: 3.0 },
    ];
    let mut search = Search::new(make_grid(&[3]), 1, limits, make_options(1, 50));
    let run = make_run(2, 0, 0.0, &[0.5; 5]);
    // Without today's figure nothing is known to be broken by it.
    search.record_runs([make_run(0, 0, 0.0, &[1.0; 5])]);
    let found = search.limit_excesses(&run);
    check_near(&found, &[0.0, -0.1 + 1.0 - 0.5, 1.5, 0.5 - 1.1, 0.5 - 3.0]);
    // Today's mean is 1.5, and the means of setting 0 are 2.
    search.record_runs([
        make_run(1, 0, 0.0, &[1.0; 5]),
        make_run(1, 1, 0.0, &[2.0; 5]),
        make_run(0, 1, 0.0, &[3.0; 5]),
    ]);
    let found = search.limit_excesses(&run);
    check_near(&found, &[-0.1 + 1.5 - 0.5, -0.1 + 2.0 - 0.5, 1.5, 0.5 - 1.6, 0.5 - 3.0]);
    // Now today's is 4 and the highest.
    search.record_runs([make_run(1, 2, 0.0, &[9.0; 5])]);
    let found = search.limit_excesses(&run);
    check_near(&found, &[-0.1 + 4.0 - 0.5, -0.1 + 4.0 - 0.5, 1.5, 0.5 - 2.1, 0.5 - 3.0]);
}

#[test]
fn limits_decide_who_leads() {
    // Setting 0 is the cheapest, and each next one costs more and has more of the figure.
    let leader = |limit: SearchLimit| {
        let mut search = Search::new(make_grid(&[4]), 1, vec![limit], make_options(1, 200));
        for block in 0..20 {
            let step = |setting: usize| setting as f64;
            search.record_runs((0..4).map(|it| make_run(it, block, step(it), &[step(it)])));
        }
        search.leader().unwrap()
    };
    let at = |bound, number_log, reference| SearchLimit { bound, number_log, reference };
    for (limit, setting) in [
        (at(BoundSide::AtLeast, 1.5, None), 2),
        (at(BoundSide::AtLeast, -0.5, Some(LimitReference::Today)), 1),
        (at(BoundSide::AtLeast, -0.5, Some(LimitReference::Best)), 3),
        (at(BoundSide::AtMost, 1.5, None), 0),
        (at(BoundSide::AtMost, -0.5, Some(LimitReference::Today)), 0),
        (at(BoundSide::AtMost, 0.5, Some(LimitReference::Best)), 0),
    ] {
        let found = leader(limit);
        assert_eq!(found.setting, setting, "{limit:?}");
        assert!(found.keeps_limits > 0.99 && found.doubt < 0.01, "{limit:?} {found:?}");
        let is_of_best = limit.reference == Some(LimitReference::Best);
        let best = if limit.bound == BoundSide::AtLeast { 3 } else { 0 };
        assert_eq!(found.references, if is_of_best { vec![best] } else { vec![] });
    }
    // None keeps it: the nearest leads.
    let found = leader(at(BoundSide::AtLeast, 9.0, None));
    assert!(found.setting == 3 && found.keeps_limits < 0.01, "{found:?}");
}

#[test]
fn leader_that_is_known_has_no_regret() {
    let mut search = Search::new(make_grid(&[2]), 0, Vec::new(), make_options(1, 400));
    let mut rng = SeededRng::from_seed(5);
    for block in 0..30 {
        let mut cost = |setting: usize| setting as f64 + 0.01 * rng.next_normal();
        let costs = [cost(0), cost(1)];
        search.record_runs([0, 1].map(|setting| make_run(setting, block, costs[setting], &[])));
    }
    let known = search.leader().unwrap();
    assert_eq!((known.setting, known.regret_log, known.doubt), (0, [0.0; 3], 0.0));
    // Where each effect counts, one of zero does not.
    search.options.smallest_effect = 0.0;
    assert!(search.leader().unwrap().doubt <= 0.0);
}

/// Settings without an order, more than are compared with the leader, and one block for each list of runs.
fn make_search(
    limits: Vec<SearchLimit>,
    runs: impl Fn(usize) -> Option<(f64, Vec<f64>)>,
) -> Search {
    let axis =
        SearchAxis { levels: RIVALS + 20, is_ordered: false, apart: None, is_disruptive: false };
    let space = SearchSpace::new(vec![axis], BTreeSet::new()).unwrap();
    let mut search = Search::new(space, 0, limits, make_options(1, 500));
    for block in 0..2 {
        search.record_runs((0..RIVALS + 20).filter_map(|setting| {
            let (cost_log, figures_log) = runs(setting)?;
            Some(SearchRun { setting, block, cost_log, figures_log })
        }));
    }
    search
}

#[test]
fn unknown_rivals_precede_worse_ones() {
    // The first costs 2; the next 45 cost 2.1 to 3, as is known; 14 were not tried.
    let known = RIVALS + 5;
    let search = make_search(Vec::new(), |setting| {
        let more = 0.1 + 0.9 * (setting * 7 % known) as f64 / known as f64;
        (setting <= known).then(|| (2.0 + if setting == 0 { 0.0 } else { more }, Vec::new()))
    });
    let leader = search.leader().unwrap();
    assert!(leader.setting == 0 && leader.doubt > 0.05, "{leader:?}");
}

#[test]
fn what_breaks_a_limit_is_no_rival() {
    // The first RIVALS + 5 cost less and break it; the others scatter, so that any of them may be the cheapest.
    let limit = SearchLimit { bound: BoundSide::AtLeast, number_log: 0.0, reference: None };
    let breaks = |setting: usize| setting < RIVALS + 5;
    let search = make_search(vec![limit], |setting| {
        let cost = if breaks(setting) { 0.0 } else { 1.0 + 0.05 * (setting % 3) as f64 };
        Some((cost, vec![if breaks(setting) { -3.0 } else { 3.0 }]))
    });
    let view = SearchBelief::new(&search);
    let leader = view.leading_setting();
    assert!(
        !breaks(leader) && view.keep_probability(0) < 1e-6 && view.keep_probability(leader) > 0.99
    );
    let (doubt, [_, _, high]) = view.estimate_doubt(leader, 0.03, &mut SeededRng::from_seed(1));
    assert!(high > 0.0, "{doubt} {high}");
}

#[test]
fn disruptive_setting_needs_more_promise() {
    let axis =
        |is_disruptive| SearchAxis { levels: 2, is_ordered: true, apart: None, is_disruptive };
    let space = SearchSpace::new(vec![axis(false), axis(true)], BTreeSet::new()).unwrap();
    let search = {
        let mut search = Search::new(space, 0, Vec::new(), make_options(1, 50));
        search.record_runs((0..4).map(|block| make_run(0, block, 0.0, &[])));
        search
    };
    let view = SearchBelief::new(&search);
    let disrupted: Vec<bool> = (0..4).map(|setting| view.is_disruptive(setting, 0)).collect();
    let levels: Vec<Vec<usize>> = (0..4).map(|setting| search.space.levels(setting)).collect();
    for (is_disrupted, levels) in disrupted.iter().zip(&levels) {
        assert_eq!(*is_disrupted, levels[1] == 1, "{levels:?}");
    }
    // Three settings are unknown alike: the one that disrupts nothing comes first.
    let block = view.choose_block(0, 3, &mut SeededRng::from_seed(1));
    assert_eq!(search.space.levels(block[0]), [1, 0], "{block:?}");
    // It is known to be bad: now more than twice its promise is left.
    let mut search = search.clone();
    let bad = levels.iter().position(|levels| *levels == [1, 0]).unwrap();
    search.record_runs((0..4).map(|block| make_run(bad, block, 3.0, &[])));
    let block = SearchBelief::new(&search).choose_block(0, 1, &mut SeededRng::from_seed(1));
    assert_eq!(search.space.levels(block[0])[1], 1, "{block:?}");
}

fn make_run(setting: usize, block: u32, cost_log: f64, figures_log: &[f64]) -> SearchRun {
    SearchRun { setting, block, cost_log, figures_log: figures_log.to_vec() }
}

#[track_caller]
fn check_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (one, other) in found.iter().zip(expected) {
        assert!((one - other).abs() < 1e-12, "{found:?} {expected:?}");
    }
}

#[test]
fn two_runs_suffice_for_a_leader() {
    let mut search = Search::new(make_grid(&[5]), 0, vec![TODAY], make_options(1, 50));
    search.record_runs([make_run(0, 0, 0.0, &[0.0]), make_run(4, 0, 0.3, &[0.0])]);
    assert_eq!(search.leader().map(|leader| leader.setting), Some(0));
    search.record_runs([make_run(2, 0, 0.2, &[0.0])]);
    assert!(matches!(search.next_step(), SearchStep::Try { leader: Some(_), .. }));
    // The next fits begin with what this one found, of the cost and of each limit.
    assert_eq!(search.scales.len(), 2);
}

#[test]
fn regret_ends_hold_most_draws() {
    let mut search = Search::new(make_grid(&[2]), 0, Vec::new(), make_options(1, 50));
    search.record_runs(
        [(0, 0.0), (0, 0.4), (1, 0.1), (1, 0.35)].map(|(it, cost)| make_run(it, 0, cost, &[])),
    );
    let leader = search.leader().unwrap();
    let [median, low, high] = leader.regret_log;
    let effect = 1.03_f64.ln();
    // Two settings that are known alike: more than one draw in twenty has the other ahead, and not all.
    assert!((0.06..0.49).contains(&leader.doubt), "{leader:?}");
    assert!(low.abs() < 1e-12 && median < effect && high > effect, "{leader:?}");
}
