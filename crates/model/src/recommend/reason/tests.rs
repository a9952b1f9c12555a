//! The sentences of a recommendation, on figures made for them.

use super::*;
use crate::goal::Goal;
use crate::recommend::{recommend_from_runs, recommend_setting};
use crate::runs::RunTable;
use crate::synthetic::{reported_results, rr_workload, stream_workload};

const LATENCY: Metric = Metric::LatencyNsP99;
const RATE: Metric = Metric::ThroughputBps;
const LIMITED: &str = "minimize latency_ns_p99 where throughput_bps >= 9e8";
/// A mean of 1e9 with an error of 4.472e6.
const STEADY: &[f64] = &[0.99e9, 1.01e9, 0.99e9, 1.01e9, 1e9];
const NONE: &[f64] = &[f64::NAN];

/// The sentences on five blocks of bulk.
fn make_reason(goal: &str, latency: &[&[f64]], rate: &[&[f64]]) -> Vec<String> {
    let made = reported_results(&[stream_workload("s")], 5, &[(LATENCY, latency), (RATE, rate)]);
    recommend_from_runs(&made, &RunTable::from_results(&made), &Goal::parse(goal).unwrap())
        .unwrap()
        .reason
}

#[test]
fn proven_setting_tells_figures_and_interval() {
    // t(0.995, 4) = 4.604 errors are 2.06%.
    assert_eq!(
        make_reason(LIMITED, &[&[1e5], &[5e4]], &[STEADY, STEADY]),
        [
            "With `b` instead of `a`: 50.0 us against 100 us in `s` (geometric means of 5 pairs).",
            "It keeps `throughput_bps >= 900000000` in `s` (1.00 Gbit/s: 979 Mbit/s to 1.02 Gbit/s).",
        ]
    );
}

#[test]
fn kept_limit_shows_its_evidence() {
    let of_limit = |limit: &str, rate: &[&[f64]]| {
        let goal = format!("minimize latency_ns_p99 where throughput_bps >= {limit}");
        make_reason(&goal, &[&[1e5], &[5e4]], rate)[1].clone()
    };
    assert_eq!(
        of_limit("0.9 today", &[&[1e9], &[1e9]]),
        "It keeps `throughput_bps >= 0.9 today` in `s` (1.00 Gbit/s: 100 to 100% of it)."
    );
    assert_eq!(
        of_limit("0.9 best", &[&[1e9], &[1.1e9]]),
        "It keeps `throughput_bps >= 0.9 best` in `s` (1.10 Gbit/s: it is the reference)."
    );
    let once = &[1e9, f64::NAN, f64::NAN, f64::NAN, f64::NAN];
    assert_eq!(
        of_limit("9e8", &[&[1e9], once]),
        "It is not proven to keep `throughput_bps >= 900000000` in `s` (1.00 Gbit/s: no interval)."
    );
}

#[test]
fn costs_are_lower_rate_and_more_latency() {
    let cost = |goal: &str, latency: [f64; 2], rate: [f64; 2]| {
        let [a, b] = latency.map(|it| [it]);
        let [c, d] = rate.map(|it| [it]);
        make_reason(goal, &[&a, &b], &[&c, &d]).get(1).cloned().unwrap_or_default()
    };
    // Of two proven figures the first, the latency, is tested at half of 1%, and the other at all of it (Holm).
    assert_eq!(
        cost("minimize latency_ns_p99", [1e5, 5e4], [1e9, 0.9e9]),
        "Largest proven cost: throughput_bps in `s` is 10% lower (interval 10 to 10% lower at 99%)."
    );
    assert_eq!(
        cost("maximize throughput_bps", [5e4, 1e5], [0.9e9, 1e9]),
        "Largest proven cost: latency_ns_p99 in `s` is 2.00 times as high (interval 2.00 to 2.00 times as high \
         at 99.5%)."
    );
    assert_eq!(cost("minimize latency_ns_p99", [1e5, 5e4], [1e9, 1e9]), "");
    assert_eq!(cost("minimize latency_ns_p99", [1e5, 5e4], [0.9e9, 1e9]), "");
}

#[test]
fn each_workload_is_told_with_change() {
    let latency: (Metric, &[&[f64]]) = (LATENCY, &[&[1e5], &[5e4]]);
    let made = reported_results(&[rr_workload("x"), rr_workload("y")], 5, &[latency]);
    let goal = Goal::parse("minimize latency_ns_p99").unwrap();
    assert_eq!(
        recommend_setting(&made, &goal).unwrap().reason,
        [
            "With `b` instead of `a`: 50.0 us against 100 us in `x`, 50% lower; 50.0 us against 100 us in `y`, 50% \
             lower (geometric means)."
        ]
    );
}

#[test]
fn unmended_limit_names_nearest_setting() {
    // With `b` the rate is exp(0.355) = 1.426 times as high, and scatters by 0.55.
    let rates: &[&[f64]] = &[&[1e9], &[0.8e9, 2.4e9, 0.8e9, 2.4e9, 1.6e9]];
    let goal = "minimize latency_ns_p99 where throughput_bps >= 1.2e9";
    let [found] = &make_reason(goal, &[&[1e5], &[5e4]], rates)[..] else { panic!() };
    let start = "`a` is proven 16.7% short of `throughput_bps >= 1200000000` (1.00 Gbit/s of 1.20 Gbit/s in `s`). \
                 Stay with it: no setting is proven to do better. Closest: `b`, with 1.43 Gbit/s \
                 against 1.00 Gbit/s, 42.6% higher (interval ";
    assert!(found.starts_with(start) && found.ends_with(" at 99%)."), "{found}");
    assert_eq!(
        make_reason(goal, &[&[1e5], NONE], rates),
        [
            "`a` is 16.7% short of `throughput_bps >= 1200000000` (1.00 Gbit/s of 1.20 Gbit/s in `s`). Stay \
             with it: no setting that keeps the limits has all figures."
        ]
    );
}

#[test]
fn six_ruled_out_settings_are_named() {
    let ruled_out = |others: usize| {
        let latency = vec![&[1e5][..]; others + 1];
        let mut rates = vec![&[0.8e9][..]; others + 1];
        rates[0] = &[1e9];
        make_reason(LIMITED, &latency, &rates)[1].clone()
    };
    for (others, expected) in [
        (1, "The limit rules out `b` (11.1% short)."),
        (6, "The limit rules out `b`, `c`, `d`, `e`, `f` and `g` (11.1% short)."),
        (7, "The limit rules out 7 settings (11.1% short)."),
        (8, "The limit rules out 8 settings (11.1% short)."),
    ] {
        assert_eq!(ruled_out(others), expected);
    }
}

#[test]
fn zero_limit_has_no_percent() {
    let latency: (Metric, &[&[f64]]) = (LATENCY, &[&[1e5], &[5e4]]);
    let loss: (Metric, &[&[f64]]) = (Metric::LossRatio, &[&[0.0], &[0.01]]);
    let made = reported_results(&[stream_workload("s")], 5, &[latency, loss]);
    let goal = Goal::parse("minimize latency_ns_p99 where loss_ratio <= 0").unwrap();
    let reason = recommend_setting(&made, &goal).unwrap().reason;
    assert_eq!(reason[1], "The limit rules out `b`.");
}

#[test]
fn trimmed_pairs_are_told() {
    for (pairs, expected) in [
        (1, " (geometric means of 1 pair)"),
        (5, " (geometric means of 5 pairs)"),
        (8, " (geometric means of 6 of 8 pairs)"),
    ] {
        let contrast = Contrast::paired(&vec![(1.0, 2.0); pairs], AVERAGE, 0.99).unwrap();
        assert_eq!(of_pairs(&contrast), expected);
    }
}

#[test]
fn two_examples_are_told_and_the_others_counted() {
    let listed = |parts: &[&str]| join_examples(parts.iter().map(|part| (*part).to_owned()));
    assert_eq!(listed(&["x", "y"]), "x; y");
    assert_eq!(listed(&["x", "y", "z", "w"]), "x; y; and 2 more");
}
