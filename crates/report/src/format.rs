//! Intervals, changes and counts as text. `latput_units::text` chooses digits,
//! `latput_trial::metric` units.

use latput_stats::{Estimate, Method};
use latput_trial::metric::Scale;
use latput_units::text::count_decimals;
pub use latput_units::text::{format_count, format_factor, format_number, format_percent};

/// Halves of an interval that differ by more than this share of the figure are not told as one number.
const LOPSIDED: f64 = 0.2;

/// Whether the halves of the interval differ so much that `±` would mislead. An interval that was cut at 0 has equal
/// halves.
pub fn is_lopsided(estimate: &Estimate) -> bool {
    interval_bounds(estimate).is_some_and(|(low, high)| {
        let difference = (high - estimate.value) - (estimate.value - low);
        low != 0.0 && difference.abs() > LOPSIDED * estimate.value.abs()
    })
}

/// The interval in `scale`, behind its figure: ` ±0.3`, half its width with the decimals of the figure, or ` (3 to 172)`
/// where it is lopsided. Empty where there is no interval.
pub fn interval_behind(estimate: &Estimate, scale: &Scale) -> String {
    let Some((low, high)) = interval_bounds(estimate) else { return String::new() };
    if is_lopsided(estimate) {
        return format!(" ({} to {})", scale.number(low), scale.number(high));
    }
    let half = estimate.half_width() / scale.divisor;
    let decimals = count_decimals(estimate.value / scale.divisor);
    let text = format!("{half:.decimals$}");
    let is_lost = half > 0.0 && text.chars().all(|c| c == '0' || c == '.');
    format!(" ±{}", if is_lost { format_number(half) } else { text })
}

/// The interval; `None` for a single run or ends that are no numbers.
pub fn interval_bounds(estimate: &Estimate) -> Option<(f64, f64)> {
    let known = estimate.method != Method::Single
        && estimate.low.is_finite()
        && estimate.high.is_finite()
        && estimate.low <= estimate.high;
    known.then_some((estimate.low, estimate.high))
}

/// Ratios from this on are factors, since percentages would be hard to read.
const FACTOR_FROM: f64 = 3.0;

/// A ratio as a change: `-41.2%`, `+3.10%`, and `x16.9` for large ones.
pub fn format_change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "n/a".to_owned();
    }
    if ratio >= FACTOR_FROM {
        return format_factor(ratio);
    }
    let percent = (ratio - 1.0) * 100.0;
    let text = if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") };
    format!("{text}%")
}

/// Confidence and method of an interval: `96.87% interval, order statistics of 6 trials`.
pub fn interval_kind(estimate: &Estimate) -> String {
    match method_name(estimate.method) {
        Some(name) => {
            let trials = format_count(estimate.runs, "trial");
            format!("{} interval, {name} of {trials}", format_percent(estimate.confidence))
        }
        None => "one trial, no interval".to_owned(),
    }
}

/// Confidence and method without the number of runs: `96.87%, order statistics`.
pub fn format_method(estimate: &Estimate) -> String {
    match method_name(estimate.method) {
        Some(name) => format!("{}, {name}", format_percent(estimate.confidence)),
        None => "one trial, no interval".to_owned(),
    }
}

fn method_name(method: Method) -> Option<&'static str> {
    match method {
        Method::StudentT => Some("Student's t"),
        Method::OrderStatistic => Some("order statistics"),
        Method::PairedLogRatio => Some("Student's t on paired logarithms"),
        Method::WelchLogRatio => Some("Welch's t on logarithms"),
        Method::Single => None,
    }
}

/// The interval of a ratio, in the form of its change: `-43.0 to -39.4%`, `x15.1 to x18.2`, or
/// `-94.6% to x64.4` if only one end is a percentage.
pub fn change_interval(estimate: &Estimate) -> Option<String> {
    let (low, high) = interval_bounds(estimate)?;
    if estimate.value >= FACTOR_FROM {
        return Some(format!("{} to {}", format_factor(low), format_factor(high)));
    }
    if high >= FACTOR_FROM {
        return Some(format!("{} to {}", format_change(low), format_change(high)));
    }
    let percent = |ratio: f64| {
        let percent = (ratio - 1.0) * 100.0;
        if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") }
    };
    Some(format!("{} to {}%", percent(low), percent(high)))
}

/// A share as a percentage with three significant digits: `117%`, `4.63%`.
pub fn rough_percent(ratio: f64) -> String {
    format!("{}%", format_number(ratio * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lopsided_interval_is_printed_itself() {
        let scale = Scale::of_time(2e7);
        assert_eq!(scale.unit, "ms");
        let method = Method::OrderStatistic;
        let behind = |value, low, high| {
            let estimate = Estimate { value, low, high, confidence: 0.99, method, runs: 8 };
            interval_behind(&estimate, &scale)
        };
        assert_eq!(behind(14.4e6, 3.0e6, 172.0e6), " (3.00 to 172)");
        assert_eq!(behind(14.4e6, 13.4e6, 15.6e6), " ±1.1");
        // The halves differ by 18% and by 21% of the figure.
        assert_eq!(behind(10.0e6, 9.0e6, 12.8e6), " ±1.9");
        assert_eq!(behind(10.0e6, 9.0e6, 13.1e6), " (9.00 to 13.1)");
        assert_eq!(behind(10.0e6, 6.9e6, 11.0e6), " (6.90 to 11.0)");
        assert_eq!(behind(4.0e6, 0.0, 40.0e6), " ±36.00", "cut at 0");
        assert_eq!(interval_behind(&Estimate::single(1e6), &scale), "");
    }

    #[test]
    fn ratios_are_said_as_changes() {
        for (ratio, text) in [
            (0.588, "-41.2%"),
            (1.031, "+3.1%"),
            (1.0001, "0.0%"),
            (16.9, "x16.9"),
            (1.4e20, "over x1000"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(format_change(ratio), text);
        }
        let ends = |value, low, high| {
            let method = Method::PairedLogRatio;
            change_interval(&Estimate { value, low, high, confidence: 0.99, method, runs: 6 })
        };
        assert_eq!(ends(0.588, 0.57, 0.606).unwrap(), "-43.0 to -39.4%");
        assert_eq!(ends(3.1, 2.9, 3.3).unwrap(), "x2.90 to x3.30");
        assert_eq!(ends(1.9, 0.054, 64.4).unwrap(), "-94.6% to x64.4");
        assert_eq!(ends(0.9, f64::NAN, 1.0), None);
    }
}
