//! Decisions of a plan's search by its rows, and its end.

use latput_knobs::{Knob, Setting};
use latput_units::Nanos;

use super::*;
use crate::goal::LimitReference;
use crate::synthetic::{SyntheticFigures, build_results, rr_workload};

const QUEUES: &str = "txqueuelen = [0, 10, 20, 30]\nmtu = [1500, 9000]";
const LATENCY: &str = "minimize latency_ns_p99";

fn make_plan(goal: &str, factors: &str) -> Plan {
    let text = format!(
        "schema = 1\ngoal = \"{goal}\"\n[factors]\n{factors}\n[[workload]]\nkind = \"tcp_rr\"\n[method]\ndesign = \"search\""
    );
    Plan::parse("test", &text).unwrap()
}

fn make_search(plan: &Plan) -> PlanSearch {
    PlanSearch::new(plan, None, BTreeSet::new()).unwrap()
}

/// Blocks of the plan's first settings, each with a 99th percentile in microseconds; 0 is no figure.
fn make_results(plan: &Plan, p99_us: &[f64], blocks: u32) -> Results {
    let listed = plan.settings();
    let labels: Vec<&str> =
        listed[..p99_us.len()].iter().map(|setting| setting.label.as_str()).collect();
    let mut made =
        build_results(&labels, &[rr_workload("one")], blocks, |setting, _| SyntheticFigures {
            rate: 1e5 * (1 + setting) as f64,
            p99_us: Some(p99_us[setting]).filter(|us| *us > 0.0),
            service_demand_us: 2.0,
        });
    made.settings = listed[..p99_us.len()].to_vec();
    made
}

#[track_caller]
fn check_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.02, "{found} instead of {expected}");
}

#[test]
fn default_budget_is_share_of_settings() {
    // Two axes and 3, and two blocks of 4.
    assert_eq!(make_search(&make_plan(LATENCY, QUEUES)).usual_budget(), 13);
    // 15% of 20 x 11 settings.
    let count = |levels: u64| (1..=levels).map(|it| (1500 * it).to_string()).collect::<Vec<_>>();
    let (lengths, mtus) = (count(20).join(","), count(11).join(","));
    let large =
        make_search(&make_plan(LATENCY, &format!("txqueuelen = [{lengths}]\nmtu = [{mtus}]")));
    assert_eq!(large.usual_budget(), 33);
    assert_eq!(large.confirmations(), FEWEST_CONFIRMATIONS);
}

#[test]
fn file_tells_where_confirmation_begins() {
    let plan = make_plan(LATENCY, QUEUES);
    let search = make_search(&plan);
    let mut made = make_results(&plan, &[40.0, 40.0, 40.0, 20.0], 1);
    assert!(matches!(search.next(&made, 50), NextBlock::Explore { leader: Some(_), .. }));
    made.confirmed_from = Some(2);
    assert!(matches!(search.next(&made, 50), NextBlock::Explore { .. }));
    made.confirmed_from = Some(1);
    let both = [0, 3].map(|at| made.settings[at].clone()).to_vec();
    assert_eq!(search.next(&made, 50), NextBlock::Confirm(both.clone()), "today's and the winner");
    assert_eq!(search.conclude_search(&made, "it is late"), NextBlock::Confirm(both));
    assert_eq!(search.best_setting(&made), Some(&made.settings[3]));
}

#[test]
fn runs_without_the_goals_figure_are_not_repeated() {
    let plan = make_plan(LATENCY, QUEUES);
    let next = make_search(&plan).next(&make_results(&plan, &[0.0; 4], 1), 50);
    let NextBlock::Done(why) = next else { panic!("{next:?}") };
    assert_eq!(why, "no trial that counts has the goal's figures");
    // Nor until the end of time where few have it: two attempts for each run of the budget.
    let few = make_results(&plan, &[20.0, 40.0, 0.0, 0.0], 1);
    assert!(matches!(make_search(&plan).next(&few, 3), NextBlock::Explore { .. }));
    let next = make_search(&plan).next(&few, 2);
    assert!(
        matches!(&next, NextBlock::Done(why) if why.starts_with("the budget is used up, and today's")),
        "{next:?}"
    );
}

#[test]
fn end_with_todays_setting_says_why() {
    let plan = make_plan(LATENCY, QUEUES);
    let made = make_results(&plan, &[20.0, 40.0, 40.0, 40.0], 2);
    for (why, start) in
        [("it is late", "it is late, and today's setting is the best"), ("", "today's setting")]
    {
        let next = make_search(&plan).conclude_search(&made, why);
        let NextBlock::Done(text) = next else { panic!("{next:?}") };
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn what_a_limit_refers_to_is_confirmed_once() {
    // Rates rise with the setting's index; the last is the reference.
    for (share, confirmed) in [("0.5", vec![0, 1, 2]), ("0.9", vec![0, 2])] {
        let goal = format!("{LATENCY} where transactions_per_s >= {share} best");
        let plan = make_plan(&goal, QUEUES);
        let made = make_results(&plan, &[40.0, 10.0, 20.0], 6);
        let confirmed = confirmed.into_iter().map(|at: usize| made.settings[at].clone()).collect();
        assert_eq!(
            make_search(&plan).conclude_search(&made, ""),
            NextBlock::Confirm(confirmed),
            "{share}"
        );
    }
}

#[test]
fn block_record_has_cost_and_limit_distance() {
    let plan = make_plan(&format!("{LATENCY} where transactions_per_s >= 0.5 today"), QUEUES);
    let mut made = make_results(&plan, &[10.0, 20.0, 0.0], 3);
    // In block 1 the second setting takes four times as long.
    let slow = made.rows.iter().position(|row| (row.block, row.setting) == (1, 1)).unwrap();
    made.rows[slow].observation = crate::synthetic::build_observation(
        &rr_workload("one"),
        SyntheticFigures { rate: 1e5, p99_us: Some(80.0), service_demand_us: 2.0 },
    );
    made.confirmed_from = Some(2);
    let search = make_search(&plan);
    let seen = search.explored_figures(&made, 0);
    let at: Vec<(u32, usize)> = seen.iter().map(|it| (it.block, it.setting)).collect();
    assert_eq!(at, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], "but not the fresh block");
    for (it, cost_ns) in seen.iter().zip([10e3, 20e3, 0.0, 10e3, 80e3, 0.0_f64]) {
        assert_eq!(it.set, &made.settings[it.setting]);
        if cost_ns > 0.0 {
            check_near(it.cost_log.unwrap(), cost_ns.ln());
        } else {
            assert_eq!((it.cost_log, it.excesses_log.len()), (None, 0));
        }
    }
    // Half of today's 100,000 per second, against 100,000 and against 200,000.
    check_near(seen[0].excesses_log[0], 0.5_f64.ln());
    check_near(seen[1].excesses_log[0], 0.25_f64.ln());
    assert_eq!(search.explored_figures(&made, 1).len(), 3);
}

#[test]
fn cost_is_mean_over_workloads() {
    let plan = make_plan(LATENCY, QUEUES);
    let p99_us = [10.0, 40.0];
    let made =
        build_results(&["a", "b"], &[rr_workload("one"), rr_workload("two")], 1, |_, workload| {
            SyntheticFigures { rate: 1e5, p99_us: Some(p99_us[workload]), service_demand_us: 2.0 }
        });
    let cost = |goal: &str| {
        let mut search = make_search(&plan);
        search.goal = Goal::parse(goal).unwrap();
        let figure = |(workload, metric): &(usize, Metric)| match metric {
            Metric::LatencyNsP99 => Some((1e3 * p99_us[*workload]).ln()),
            Metric::TransactionsPerS => (*workload == 1).then_some(3.0),
            _ => None,
        };
        search.log_cost(&made, &figure)
    };
    // The root of 10 x 40 is 20.
    check_near(cost(LATENCY).unwrap(), 20e3_f64.ln());
    check_near(cost("maximize transactions_per_s").unwrap(), -3.0);
    check_near(cost("minimize latency_ns_p99 * transactions_per_s").unwrap(), 20e3_f64.ln() + 3.0);
    assert_eq!(cost("minimize sut_service_demand_us"), None);
}

#[test]
fn limit_applies_to_workloads_with_figure() {
    let goal = "minimize latency_ns_p99 where transactions_per_s >= 0.5 today";
    let search = make_search(&make_plan(goal, QUEUES));
    let rates = [1e5, 0.0, 2e5];
    let made =
        build_results(&["a"], &["one", "two", "three"].map(rr_workload), 1, |_, workload| {
            SyntheticFigures { rate: rates[workload], ..SyntheticFigures::default() }
        });
    let limits = search.resolve_limits(&made);
    let cells: Vec<(usize, Metric)> = limits.iter().map(|(_, cell)| *cell).collect();
    assert_eq!(cells, [(0, Metric::TransactionsPerS), (2, Metric::TransactionsPerS)]);
    check_near(limits[0].0.number_log, 0.5_f64.ln());
    assert_eq!(limits[0].0.reference, Some(LimitReference::Today));
}

#[test]
fn todays_own_level_stands_in_its_order() {
    let plan = make_plan(LATENCY, QUEUES);
    let queue_of = |sut: u64, generator: u64| {
        let set = |queue: u64| {
            let values = [(Knob::Mtu, 1500), (Knob::Txqueuelen, queue)];
            Setting::from(values.map(|(knob, value)| (knob, Value::Count(value))))
        };
        let by_role = [(Role::Sut, set(sut)), (Role::Generator, set(generator))];
        let today = LabelledSetting { label: "today".to_owned(), by_role: by_role.into() };
        let search = PlanSearch::new(&plan, Some(&today), BTreeSet::new()).unwrap();
        let axis = search.space.axes().iter().position(|axis| axis.levels == 5).unwrap();
        (search.space.levels(search.today)[axis], search.space.axes()[axis].apart)
    };
    assert_eq!(queue_of(15, 15), (2, Some(0)));
    assert_eq!(queue_of(40, 40), (4, Some(0)));
    // 0 at one end only is not the plan's 0, which comes behind it.
    assert_eq!(queue_of(0, 10), (0, Some(1)));
    assert_eq!(queue_of(10, 15), (1, Some(0)), "before the plan's 10");
}

#[test]
fn times_and_switches_are_ordered() {
    let axis_of = |factor: &str| make_search(&make_plan(LATENCY, factor)).space.axes()[0];
    let delay = axis_of("rx-usecs = [\"0us\", \"20us\", \"50us\"]");
    assert_eq!((delay.is_ordered, delay.apart), (true, Some(0)));
    let mixed = axis_of("rx-usecs = [\"20us\", \"0us\", \"50us\"]");
    assert_eq!((mixed.is_ordered, mixed.apart), (false, None));
    assert_eq!(numeric_value(&Value::Switch(true)), Some(1));
    assert_eq!(numeric_value(&Value::Time(Nanos::from_us(3))), Some(3000));
    let qdisc = axis_of("qdisc = [\"fq\", \"fq_codel\"]");
    assert!(!qdisc.is_disruptive && !qdisc.is_ordered, "milliseconds: {qdisc:?}");
    assert!(axis_of("mtu = [1500, 9000]").is_disruptive);
}

#[test]
fn open_improvement_is_told_in_percent() {
    let leader = |keeps_limits, references: &[usize]| SearchLeader {
        setting: 0,
        doubt: 0.04,
        regret_log: [0.02, 1.01_f64.ln(), 1.05_f64.ln()],
        keeps_limits,
        references: references.to_vec(),
    };
    let plain =
        "the chance that another setting is over 3% better is 4%; none is over 5.0% better, at 95%";
    assert_eq!(describe_regret(&leader(1.0, &[])), plain);
    let kept =
        |percent| format!("{plain}; the winner keeps the limits with a chance of {percent}%");
    assert_eq!(describe_regret(&leader(0.6, &[])), kept(60));
    assert_eq!(describe_regret(&leader(1.0, &[2])), kept(100));
}
