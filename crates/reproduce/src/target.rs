//! Accuracy targets of the predictions of published figures.
//!
//! A target is checked on all of its rows, and again on the rows that determined no number of their
//! profile.

use std::collections::{BTreeMap, BTreeSet};

use latput_calibrate::ErrorSummary;
use latput_units::{IntoMap, IntoSet};

use crate::delay_mtu::{self, PublishedClaim};
use crate::figure::{AccuracyTarget, Judged, ReproducedFigure, scale_name};
use crate::label::{Label, RowCounts};

/// Figures of a target, without anomalies.
type TargetFigures<'a> = [&'a ReproducedFigure];

/// Every target of these figures.
pub fn build_targets(figures: &[ReproducedFigure]) -> Vec<AccuracyTarget> {
    let mut targets = build_rate_and_cpu_targets(figures);
    targets.extend(build_bsd_targets(figures));
    targets.extend(build_matrix_targets(figures));
    targets.extend(build_suspension_targets(figures));
    targets.into_iter().flatten().collect()
}

fn build_rate_and_cpu_targets(figures: &[ReproducedFigure]) -> Vec<Option<AccuracyTarget>> {
    let rr = |figure: &ReproducedFigure| {
        figure.file.starts_with("tcp_rr_") || figure.file.starts_with("binding_rr_")
    };
    let is_bulk = |figure: &ReproducedFigure| figure.file.contains("tcp_stream");
    let is_large = |figure: &ReproducedFigure| figure.file.contains("32k_bidir");
    let scale = |figure: &ReproducedFigure, name: &str| scale_name(figure) == name;
    vec![
        build_target(
            "request/response rates",
            figures,
            &|it| rr(it) && !is_large(it) && scale(it, "rate"),
            &|picked| judge_relative_errors(picked, (0.04, 0.10)),
        ),
        build_target(
            "CPU of request/response and bulk runs",
            figures,
            &|it| (rr(it) || is_bulk(it)) && scale(it, "cpu"),
            &|picked| judge_relative_errors(picked, (0.08, 0.20)),
        ),
        build_target(
            "bulk and 32 KB rates",
            figures,
            &|it| (is_bulk(it) || is_large(it)) && scale(it, "rate"),
            &|picked| judge_relative_errors(picked, (0.02, 0.05)),
        ),
    ]
}

fn build_bsd_targets(figures: &[ReproducedFigure]) -> Vec<Option<AccuracyTarget>> {
    let polling = |it: &ReproducedFigure| it.file == "device_polling";
    let is_server = |it: &ReproducedFigure| it.what.contains("role server");
    let is_rate = |it: &ReproducedFigure| it.column == "throughput_mbit_s";
    vec![
        build_target(
            "ping by moderation frequency inside the 5-95% band",
            figures,
            &|it| it.what.contains("round trip time"),
            &judge_bands,
        ),
        build_target(
            "idle CPU by moderation frequency",
            figures,
            &|it| it.what.contains("CPU idle"),
            &|picked| judge_points(picked, 3.0),
        ),
        build_target(
            "UDP delivered, polling on and off",
            figures,
            &|it| polling(it) && it.table == "udp_uni" && is_server(it) && is_rate(it),
            &|picked| judge_largest_error(picked, 0.10),
        ),
        build_target(
            "UDP loss, polling on and off",
            figures,
            &|it| polling(it) && is_server(it) && it.column == "loss_pct",
            &|picked| judge_points(picked, 6.0),
        ),
        build_target(
            "TCP rates, polling on and off",
            figures,
            &|it| polling(it) && it.table != "udp_uni" && is_rate(it),
            &|picked| judge_largest_error(picked, 0.20),
        ),
        build_target(
            "interrupt share of the server's CPU",
            figures,
            &|it| polling(it) && is_server(it) && it.column == "cpu_interrupt_pct",
            &|picked| judge_points(picked, 10.0),
        ),
    ]
}

fn build_matrix_targets(figures: &[ReproducedFigure]) -> Vec<Option<AccuracyTarget>> {
    let rate = |it: &ReproducedFigure| it.column == "bw_kbytes_s";
    let ping = |it: &ReproducedFigure| it.column == "ping_avg_ms";
    // Gbit/s from `sar`'s thousands of bytes, and milliseconds.
    let rates = |picked: &TargetFigures<'_>| {
        judge_classes(picked, |it| it * 1_024.0 * 8e-9, [4.0, 5.0, 9.0, f64::MAX])
    };
    let pings =
        |picked: &TargetFigures<'_>| judge_classes(picked, |it| it, [3.0, 10.0, 40.0, 60.0]);
    vec![
        build_target("classes of the fq_codel matrix: rate", figures, &rate, &rates),
        build_target("classes of the fq_codel matrix: mean ping", figures, &ping, &pings),
        build_target(
            "rank correlation of the fq_codel matrix: rate",
            figures,
            &rate,
            &judge_rank_correlation,
        ),
        build_target(
            "rank correlation of the fq_codel matrix: mean ping",
            figures,
            &ping,
            &judge_rank_correlation,
        ),
    ]
}

fn build_suspension_targets(figures: &[ReproducedFigure]) -> Vec<Option<AccuracyTarget>> {
    let is_of = |it: &ReproducedFigure, column: &str, is_closed_loop: bool| {
        it.column == column
            && it.file == "irq_suspension"
            && it.what.ends_with(" max") == is_closed_loop
    };
    let within = |name: &str, column: &str, is_closed_loop: bool, limit: f64, unit: &str| {
        build_target(name, figures, &|it| is_of(it, column, is_closed_loop), &|picked| {
            judge_median(picked, limit, unit)
        })
    };
    let order = |name: &str, column: &str| {
        build_target(
            name,
            figures,
            &|it| is_of(it, column, true) || is_of(it, column, false),
            &judge_order,
        )
    };
    vec![
        within("IRQ suspension: rate in a closed loop", "transactions_per_s", true, 0.03, "%"),
        within("IRQ suspension: median latency", "latency_us_p50", false, 0.15, "%"),
        within("IRQ suspension: 99th percentile", "latency_us_p99", false, 0.25, "%"),
        within("IRQ suspension: CPU", "cpu_pct", false, 0.04, " points"),
        within("IRQ suspension: interrupts", "interrupts_per_s", false, 0.20, "%"),
        order("IRQ suspension: order of cases by 99th percentile", "latency_us_p99"),
        order("IRQ suspension: order of cases by CPU", "cpu_pct"),
    ]
}

/// The targets of claims, by kind.
pub fn build_claim_targets(claims: &[PublishedClaim]) -> Vec<AccuracyTarget> {
    let kinds = [
        ("order", "receive delay x MTU: orders and rates"),
        ("onset", "receive delay x MTU: onsets within a factor of two"),
        ("cost", "receive delay x MTU: cost model within 15%"),
    ];
    let target = |(kind, name): (&str, &str)| {
        let of_kind: Vec<&PublishedClaim> =
            claims.iter().filter(|claim| claim.kind == kind).collect();
        let rows = RowCounts::from_labels(of_kind.iter().map(|claim| claim.label));
        let profiles = vec![String::from(delay_mtu::PROFILE)];
        build_labelled_target(
            name,
            &of_kind,
            |claim| claim.label,
            rows,
            profiles,
            |claims| {
                let (all, held) = (claims.len(), claims.iter().filter(|claim| claim.holds).count());
                (all > 0).then(|| Judged {
                    wanted: format!("{all} of {all} claims"),
                    seen: format!("{held} of {all}"),
                    holds: held == all,
                })
            },
        )
    };
    kinds.into_iter().filter_map(target).collect()
}

/// A target on the figures that `pick` accepts, without anomalies.
fn build_target(
    name: &str,
    figures: &[ReproducedFigure],
    pick: &dyn Fn(&ReproducedFigure) -> bool,
    judge: &dyn Fn(&TargetFigures<'_>) -> Option<Judged>,
) -> Option<AccuracyTarget> {
    let picked = figures.iter().filter(|it| it.anomaly.is_none() && pick(it));
    let picked: Vec<&ReproducedFigure> = picked.collect();
    let rows: BTreeMap<(&str, usize), Label> =
        picked.iter().map(|it| ((it.file.as_str(), it.row), it.label)).into_map();
    let profiles: BTreeSet<&str> = picked.iter().map(|it| it.profile.as_str()).into_set();
    let profiles = profiles.into_iter().map(str::to_owned).collect();
    build_labelled_target(
        name,
        &picked,
        |it| it.label,
        RowCounts::from_labels(rows.into_values()),
        profiles,
        judge,
    )
}

/// A target on `items`, with `rows` by origin; `None` without items.
fn build_labelled_target<'a, T>(
    name: &str,
    items: &[&'a T],
    label: impl Fn(&T) -> Label,
    rows: RowCounts,
    profiles: Vec<String>,
    judge: impl Fn(&[&'a T]) -> Option<Judged>,
) -> Option<AccuracyTarget> {
    let Judged { wanted, seen, holds } = judge(items)?;
    let predicted: Vec<&T> =
        items.iter().copied().filter(|item| label(item) == Label::Predicted).collect();
    let is_mixed = !predicted.is_empty() && predicted.len() < items.len();
    Some(AccuracyTarget {
        name: name.to_owned(),
        label: rows.common_label(),
        rows,
        wanted,
        seen,
        holds,
        predicted_alone: if is_mixed { judge(&predicted) } else { None },
        profiles,
    })
}

fn summarize_errors(figures: &TargetFigures<'_>) -> Option<(ErrorSummary, f64)> {
    let errors: Vec<f64> = figures.iter().map(|it| it.error_ratio.abs()).collect();
    let largest = errors.iter().copied().fold(0.0, f64::max);
    Some((ErrorSummary::from_errors(errors)?, largest))
}

fn judge_relative_errors(figures: &TargetFigures<'_>, (median, p90): (f64, f64)) -> Option<Judged> {
    let (seen, _) = summarize_errors(figures)?;
    Some(Judged {
        wanted: format!("{:.0}% / {:.0}%", 100.0 * median, 100.0 * p90),
        seen: format!("{:.1}% / {:.1}% of {}", 100.0 * seen.median, 100.0 * seen.p90, seen.count),
        holds: seen.median <= median && seen.p90 <= p90,
    })
}

fn judge_largest_error(figures: &TargetFigures<'_>, limit: f64) -> Option<Judged> {
    let (_, largest) = summarize_errors(figures)?;
    Some(Judged {
        wanted: format!("within {:.0}%", 100.0 * limit),
        seen: format!("largest error {:.1}%", 100.0 * largest),
        holds: largest <= limit,
    })
}

fn judge_median(figures: &TargetFigures<'_>, limit: f64, unit: &str) -> Option<Judged> {
    let (seen, _) = summarize_errors(figures)?;
    Some(Judged {
        wanted: format!("median within {:.0}{unit}", 100.0 * limit),
        seen: format!("{:.1}{unit} of {}", 100.0 * seen.median, seen.count),
        holds: seen.median <= limit,
    })
}

/// Pairs of rows of one load that differ by more than a tenth: nine of ten must have the right order.
fn judge_order(figures: &TargetFigures<'_>) -> Option<Judged> {
    let (mut all, mut right) = (0, 0);
    for (idx, one) in figures.iter().enumerate() {
        for other in figures[..idx].iter().filter(|other| other.what == one.what) {
            let [low, high] =
                [one.published.min(other.published), one.published.max(other.published)];
            if high > 1.1 * low {
                all += 1;
                let is_above = one.published > other.published;
                right += usize::from(is_above == (one.predicted > other.predicted));
            }
        }
    }
    (all > 0).then(|| Judged {
        wanted: String::from("90% of pairs"),
        seen: format!("{right} of {all}"),
        holds: 10 * right >= 9 * all,
    })
}

fn judge_points(figures: &TargetFigures<'_>, points: f64) -> Option<Judged> {
    let (_, largest) = summarize_errors(figures)?;
    Some(Judged {
        wanted: format!("within {points:.0} points"),
        seen: format!("largest difference {:.1} points", 100.0 * largest),
        holds: 100.0 * largest <= points,
    })
}

fn judge_bands(figures: &TargetFigures<'_>) -> Option<Judged> {
    let is_inside = |it: &&&ReproducedFigure| {
        // Hosts without moderation have almost no range, so half a microsecond is added.
        let slack = 0.02 * it.published;
        (it.predicted_lo - slack..=it.predicted_hi + slack).contains(&it.published)
    };
    let (all, inside) = (figures.len(), figures.iter().filter(is_inside).count());
    (all > 0).then(|| Judged {
        wanted: format!("{all} of {all}"),
        seen: format!("{inside} of {all}"),
        holds: inside == all,
    })
}

/// Classifies figures into three classes with gaps, by the ends of each: below the first, from the
/// second to the third, above the last. A published figure in a gap has the gap as its class.
fn judge_classes(
    figures: &TargetFigures<'_>,
    scale: impl Fn(f64) -> f64,
    ends: [f64; 4],
) -> Option<Judged> {
    let class = |value: f64| ends.iter().filter(|end| scale(value) >= **end).count();
    let is_wrong = |it: &&&ReproducedFigure| class(it.published) != class(it.predicted);
    let wrong: Vec<&str> = figures.iter().filter(is_wrong).map(|it| it.table.as_str()).collect();
    let (all, right) = (figures.len(), figures.len() - wrong.len());
    let named =
        if wrong.is_empty() { String::new() } else { format!(", not {}", wrong.join(", ")) };
    (all > 0).then(|| Judged {
        wanted: format!("{all} of {all}"),
        seen: format!("{right} of {all}{named}"),
        holds: right == all,
    })
}

/// Spearman's rank correlation of predicted and published; ties share their mean rank.
fn judge_rank_correlation(figures: &TargetFigures<'_>) -> Option<Judged> {
    if figures.len() < 3 {
        return None;
    }
    let published = rank_values(figures.iter().map(|it| it.published));
    let predicted = rank_values(figures.iter().map(|it| it.predicted));
    let seen = pearson_correlation(&published, &predicted);
    Some(Judged {
        wanted: String::from("at least 0.8"),
        seen: format!("{seen:.2} of {}", figures.len()),
        holds: seen >= 0.8,
    })
}

/// Values within a thousandth are ties, since the text prints them equally.
fn rank_values(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let rank = |value: &f64| {
        let slack = 1e-3 * value.abs();
        let below = values.iter().filter(|other| **other < value - slack).count();
        let equal = values.iter().filter(|other| (**other - value).abs() <= slack).count();
        below as f64 + f64::midpoint(equal as f64, 1.0)
    };
    values.iter().map(rank).collect()
}

fn pearson_correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| {
        a.iter().zip(b).map(|(a, b)| f(a - mean_a, b - mean_b)).sum::<f64>()
    };
    let scale = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if scale > 0.0 { sum(&|a, b| a * b) / scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_only_pairs_that_differ() {
        let figure = |what: &str, published: f64, predicted: f64| ReproducedFigure {
            file: String::new(),
            table: String::new(),
            row: 1,
            what: what.to_owned(),
            column: String::new(),
            profile: String::new(),
            label: Label::Predicted,
            published,
            predicted,
            predicted_lo: predicted,
            predicted_hi: predicted,
            error_ratio: 0.0,
            anomaly: None,
        };
        // Of one load: 100 and 105 are alike; 100 and 200 are in order; 105 and 200 are not.
        let rows = [
            figure("1", 100.0, 1.0),
            figure("1", 105.0, 3.0),
            figure("1", 200.0, 2.0),
            figure("2", 900.0, 0.0),
        ];
        let judged = judge_order(&rows.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((judged.seen.as_str(), judged.holds), ("1 of 2", false));
    }

    #[test]
    fn ranks_share_ties() {
        assert_eq!(rank_values([3.0, 1.0, 3.001, 9.0].into_iter()), [2.5, 1.0, 2.5, 4.0]);
        // One swap of neighbours among four: 1 - 6 * 2 / (4 * 15).
        assert!(
            (pearson_correlation(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 3.0, 4.0]) - 0.8).abs() < 1e-12
        );
        assert!(pearson_correlation(&[1.0, 1.0], &[1.0, 2.0]).abs() < 1e-12);
    }
}
