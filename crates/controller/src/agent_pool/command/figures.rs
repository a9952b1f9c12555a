//! Figures of the benchmark, read in its output and joined over the hosts that ran it.

use std::collections::BTreeMap;

use latput_protocol::program::{KeptOutput, ProgramOutcome};
use latput_runner::Error;
use latput_trial::Metric;
use latput_trial::figures::{Output, ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};
use latput_trial::observation::{Check, Observation};
use latput_trial::program::Program;
use latput_units::IntoMap;
use latput_units::text::format_count;

/// Reads the figures of each host.
pub(super) fn read(
    program: &Program,
    ended: &[(String, ProgramOutcome)],
) -> Result<Vec<ProgramFigures>, Error> {
    ended
        .iter()
        .map(|(host, ended)| {
            let files = ended.files.iter();
            let output = Output {
                stdout: build_text(&ended.stdout),
                stderr: build_text(&ended.stderr),
                files: files
                    .filter_map(|(path, kept)| {
                        Some((path.clone(), build_text(kept.as_ref().ok()?)))
                    })
                    .into_map(),
            };
            latput_formats::program::read(&program.figures, &output).map_err(|error| {
                let unread = ended.files.values().filter_map(|kept| kept.as_ref().err());
                let why: Vec<String> =
                    std::iter::once(error.to_string()).chain(unread.cloned()).collect();
                Error::Program {
                    host: host.clone(),
                    problem: format!("`{}`: {}", program.command.in_words(), why.join("; ")),
                    is_transient: true,
                }
            })
        })
        .collect()
}

fn build_text(kept: &KeptOutput) -> Text {
    Text::of_parts(kept.head.as_bytes(), kept.dropped, kept.tail.as_bytes())
}

/// Joins the figures of all hosts and puts them into the observation.
pub(super) fn store_figures(
    parts: Vec<ProgramFigures>,
    ended: &[(String, ProgramOutcome)],
    observation: &mut Observation,
) {
    let longest = ended.iter().map(|(_, ended)| ended.ended.saturating_sub(ended.began)).max();
    let Some(all) = parts.into_iter().reduce(merge_figures) else { return };
    let window = all.window.or(longest).unwrap_or_default();
    let by_rate = all.metrics.get(&Metric::TransactionsPerS).copied();
    observation.traffic.sender_window = window;
    observation.traffic.receiver_window = window;
    observation.checks.extend(all.errors.map(program_errors));
    let metrics = all.metrics.clone();
    all.store(observation);
    // By the program's own count: only that tells of how many a percentile is.
    observation.checks.extend(latput_formats::check_observation_count(&metrics, observation));
    // Service demand is per transaction of the time in which CPU time was counted.
    if let Some(rate) = by_rate {
        observation.traffic.transactions = Some(round_count(rate * window.as_secs_f64()));
    }
}

/// Whether the benchmark's own requests went well: fast errors are no rate.
fn program_errors(errors: u64) -> Check {
    Check {
        name: "program-errors".to_owned(),
        passed: errors == 0,
        detail: format!("the benchmark reported {}", format_count(errors, "failed request")),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a count beyond 64 bits becomes the largest")]
fn round_count(count: f64) -> u64 {
    count.round().max(0.0) as u64
}

/// Rates add up and histograms merge. Of other figures the worse one counts, since percentiles have no mean.
fn merge_figures(mut a: ProgramFigures, b: ProgramFigures) -> ProgramFigures {
    let mut metrics: BTreeMap<Metric, f64> = BTreeMap::new();
    for (metric, one) in a.metrics {
        // A figure that one host lacks is not known of all.
        let Some(other) = b.metrics.get(&metric).copied() else { continue };
        let row = metric.row();
        let is_rate = matches!(row.unit, Unit::BitsPerS | Unit::PerS | Unit::PacketsPerS);
        let value = match row.preferred {
            _ if is_rate => one + other,
            PreferredDirection::Higher => one.min(other),
            _ => one.max(other),
        };
        metrics.insert(metric, value);
    }
    if let (Some(all), Some(more)) = (&mut a.latency, &b.latency) {
        all.merge(more);
    }
    ProgramFigures {
        metrics,
        latency: a.latency.filter(|_| b.latency.is_some()),
        transactions: a.transactions.zip(b.transactions).map(|(a, b)| a.saturating_add(b)),
        errors: a.errors.zip(b.errors).map(|(a, b)| a.saturating_add(b)),
        window: a.window.zip(b.window).map(|(a, b)| a.max(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_judged_by_the_programs_count() {
        let counted = |transactions| ProgramFigures {
            metrics: [(Metric::TransactionsPerS, 40_000.0), (Metric::LatencyNsP99, 5.0)].into(),
            transactions,
            window: Some(latput_units::Nanos::from_s(1)),
            ..ProgramFigures::default()
        };
        for (count, is_marked) in [(Some(50), true), (Some(40_000), false), (None, false)] {
            let mut observation = Observation::default();
            store_figures(vec![counted(count)], &[], &mut observation);
            let words: Vec<&str> = observation.checks.iter().map(|it| &*it.detail).collect();
            let is_named = words.iter().any(|detail| detail.contains("50"));
            assert_eq!((is_named, words.len()), (is_marked, usize::from(is_marked)), "{words:?}");
            // Service demand is by the rate.
            assert_eq!(observation.traffic.transactions, Some(40_000));
        }
    }

    #[test]
    fn host_rates_add_up_worst_percentile_counts() {
        let part = |rate: f64, p99: f64| ProgramFigures {
            metrics: [(Metric::TransactionsPerS, rate), (Metric::LatencyNsP99, p99)].into(),
            transactions: Some(10),
            ..ProgramFigures::default()
        };
        let mut all = merge_figures(part(100.0, 5.0), part(50.0, 9.0));
        assert!((all.metrics[&Metric::TransactionsPerS] - 150.0).abs() < 1e-9);
        assert!((all.metrics[&Metric::LatencyNsP99] - 9.0).abs() < 1e-9);
        assert_eq!(all.transactions, Some(20));
        all.metrics.insert(Metric::LatencyNsP50, 1.0);
        assert!(!merge_figures(all, part(1.0, 1.0)).metrics.contains_key(&Metric::LatencyNsP50));
    }
}
