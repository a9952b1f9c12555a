//! What is asked of the predictions of published figures, each demand with a name.

use crate::calibrate::Errors;
use crate::delay_mtu::Claim;
use crate::published::{ReproducedFigure, Target, scale_name};

/// Every demand that these figures can answer.
#[expect(clippy::too_many_lines, reason = "a list of demands")]
pub fn all(figures: &[ReproducedFigure]) -> Vec<Target> {
    let rr = |figure: &ReproducedFigure| {
        figure.file.starts_with("tcp_rr_") || figure.file.starts_with("binding_rr_")
    };
    let is_bulk = |figure: &ReproducedFigure| figure.file.contains("tcp_stream");
    let is_large = |figure: &ReproducedFigure| figure.file.contains("32k_bidir");
    let scale = |figure: &ReproducedFigure, name: &str| scale_name(figure) == name;
    let mut targets = Vec::new();
    targets.extend(relative("request/response rates, in sample", figures, (0.04, 0.10), |it| {
        rr(it) && !is_large(it) && scale(it, "rate")
    }));
    targets.extend(relative(
        "CPU of request/response and bulk runs",
        figures,
        (0.08, 0.20),
        |it| (rr(it) || is_bulk(it)) && scale(it, "cpu"),
    ));
    targets.extend(relative("bulk and 32 KB rates", figures, (0.02, 0.05), |it| {
        (is_bulk(it) || is_large(it)) && scale(it, "rate")
    }));
    let ping: Vec<_> = figures.iter().filter(|it| it.what.contains("round trip time")).collect();
    if !ping.is_empty() {
        let inside = ping
            .iter()
            .filter(|it| {
                // A pair of hosts without moderation has next to no spread: half a microsecond is as printed.
                let slack = 0.02 * it.published;
                (it.predicted_lo - slack..=it.predicted_hi + slack).contains(&it.published)
            })
            .count();
        targets.push(Target {
            name: String::from("ping by moderation frequency inside the 5-95 % band"),
            wanted: format!("{} of {}", ping.len(), ping.len()),
            seen: format!("{inside} of {}", ping.len()),
            holds: inside == ping.len(),
        });
    }
    targets.extend(within("idle CPU by moderation frequency", figures, 3.0, |it| {
        it.what.contains("CPU idle")
    }));
    let polling = |it: &ReproducedFigure| it.file == "device_polling";
    let is_server = |it: &ReproducedFigure| it.what.contains("role server");
    targets.extend(most("UDP delivered, polling on and off", figures, 0.10, |it| {
        polling(it) && it.table == "udp_uni" && is_server(it) && it.column == "throughput_mbit_s"
    }));
    targets.extend(within("UDP loss, polling on and off", figures, 6.0, |it| {
        polling(it) && is_server(it) && it.column == "loss_pct"
    }));
    targets.extend(most("TCP rates, polling on and off", figures, 0.20, |it| {
        polling(it) && it.table != "udp_uni" && it.column == "throughput_mbit_s"
    }));
    targets.extend(within("interrupt share of the server's CPU", figures, 10.0, |it| {
        polling(it) && is_server(it) && it.column == "cpu_interrupt_pct"
    }));
    targets.extend(classes(
        "classes of the fq_codel matrix: rate",
        figures,
        "bw_kbytes_s",
        |it| it * 1_024.0 * 8e-9,
        [4.0, 5.0, 9.0, f64::MAX],
    ));
    targets.extend(classes(
        "classes of the fq_codel matrix: mean ping",
        figures,
        "ping_avg_ms",
        |it| it,
        [3.0, 10.0, 40.0, 60.0],
    ));
    targets.extend(ranks("rank correlation of the fq_codel matrix: rate", figures, "bw_kbytes_s"));
    targets.extend(ranks(
        "rank correlation of the fq_codel matrix: mean ping",
        figures,
        "ping_avg_ms",
    ));
    targets
}

/// What is asked of claims, by their kind.
pub fn of_claims(claims: &[Claim]) -> Vec<Target> {
    let kinds = [
        ("order", "receive delay x MTU: orders and rates"),
        ("onset", "receive delay x MTU: onsets within a factor of two"),
        ("cost", "receive delay x MTU: cost model within 15 %"),
    ];
    let target = |(kind, name): (&str, &str)| {
        let of_kind = || claims.iter().filter(|claim| claim.kind == kind);
        let (all, held) = (of_kind().count(), of_kind().filter(|claim| claim.holds).count());
        (all > 0).then(|| Target {
            name: name.to_owned(),
            wanted: format!("{all} of {all} claims"),
            seen: format!("{held} of {all}"),
            holds: held == all,
        })
    };
    kinds.into_iter().filter_map(target).collect()
}

type Pick<'a> = &'a dyn Fn(&ReproducedFigure) -> bool;

fn errors(figures: &[ReproducedFigure], pick: Pick<'_>) -> Option<(Errors, f64)> {
    let picked = figures.iter().filter(|it| it.anomaly.is_none() && pick(it));
    let errors: Vec<f64> = picked.map(|it| it.error_ratio.abs()).collect();
    let largest = errors.iter().copied().fold(0.0, f64::max);
    Some((Errors::of(errors)?, largest))
}

fn relative(
    name: &str,
    figures: &[ReproducedFigure],
    (median, p90): (f64, f64),
    pick: impl Fn(&ReproducedFigure) -> bool,
) -> Option<Target> {
    let (seen, _) = errors(figures, &pick)?;
    Some(Target {
        name: name.to_owned(),
        wanted: format!("{:.0} % / {:.0} %", 100.0 * median, 100.0 * p90),
        seen: format!("{:.1} % / {:.1} % of {}", 100.0 * seen.median, 100.0 * seen.p90, seen.count),
        holds: seen.median <= median && seen.p90 <= p90,
    })
}

fn most(
    name: &str,
    figures: &[ReproducedFigure],
    limit: f64,
    pick: impl Fn(&ReproducedFigure) -> bool,
) -> Option<Target> {
    let (_, largest) = errors(figures, &pick)?;
    Some(Target {
        name: name.to_owned(),
        wanted: format!("within {:.0} %", 100.0 * limit),
        seen: format!("largest error {:.1} %", 100.0 * largest),
        holds: largest <= limit,
    })
}

fn within(
    name: &str,
    figures: &[ReproducedFigure],
    points: f64,
    pick: impl Fn(&ReproducedFigure) -> bool,
) -> Option<Target> {
    let (_, largest) = errors(figures, &pick)?;
    Some(Target {
        name: name.to_owned(),
        wanted: format!("within {points:.0} points"),
        seen: format!("largest difference {:.1} points", 100.0 * largest),
        holds: 100.0 * largest <= points,
    })
}

/// Three classes with gaps between them, by the ends of each: below the first, from the second to the third, above
/// the last. A published figure in a gap has that gap for its class.
fn classes(
    name: &str,
    figures: &[ReproducedFigure],
    column: &str,
    scale: impl Fn(f64) -> f64,
    ends: [f64; 4],
) -> Option<Target> {
    let rows: Vec<_> =
        figures.iter().filter(|it| it.column == column && it.anomaly.is_none()).collect();
    let class = |value: f64| ends.iter().filter(|end| scale(value) >= **end).count();
    let is_right = |it: &&&ReproducedFigure| class(it.published) == class(it.predicted);
    let right = rows.iter().filter(is_right).count();
    let wrong: Vec<&str> =
        rows.iter().filter(|it| !is_right(it)).map(|it| it.table.as_str()).collect();
    let wrong =
        if wrong.is_empty() { String::new() } else { format!(", not {}", wrong.join(", ")) };
    (!rows.is_empty()).then(|| Target {
        name: name.to_owned(),
        wanted: format!("{} of {}", rows.len(), rows.len()),
        seen: format!("{right} of {}{wrong}", rows.len()),
        holds: right == rows.len(),
    })
}

/// Spearman's rank correlation of predicted and published; ties share their mean rank.
fn ranks(name: &str, figures: &[ReproducedFigure], column: &str) -> Option<Target> {
    let rows: Vec<_> =
        figures.iter().filter(|it| it.column == column && it.anomaly.is_none()).collect();
    if rows.len() < 3 {
        return None;
    }
    let published = ranked(rows.iter().map(|it| it.published));
    let predicted = ranked(rows.iter().map(|it| it.predicted));
    let seen = correlation(&published, &predicted);
    Some(Target {
        name: name.to_owned(),
        wanted: String::from("at least 0.8"),
        seen: format!("{seen:.2} of {}", rows.len()),
        holds: seen >= 0.8,
    })
}

/// Values within a thousandth of each other are ties: the text prints them alike.
fn ranked(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let rank = |value: &f64| {
        let slack = 1e-3 * value.abs();
        let below = values.iter().filter(|other| **other < value - slack).count();
        let equal = values.iter().filter(|other| (**other - value).abs() <= slack).count();
        below as f64 + f64::midpoint(equal as f64, 1.0)
    };
    values.iter().map(rank).collect()
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
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
    fn ranks_share_ties_and_correlate_as_by_hand() {
        assert_eq!(ranked([3.0, 1.0, 3.001, 9.0].into_iter()), [2.5, 1.0, 2.5, 4.0]);
        // One swap of neighbours among four: 1 - 6 * 2 / (4 * 15).
        assert!((correlation(&[1.0, 2.0, 3.0, 4.0], &[2.0, 1.0, 3.0, 4.0]) - 0.8).abs() < 1e-12);
        assert!(correlation(&[1.0, 1.0], &[1.0, 2.0]).abs() < 1e-12);
    }
}
