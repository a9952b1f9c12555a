//! Changes and shares in words: `12.5% lower`, `5.30 times as high`.

use latput_stats::Estimate;
use latput_units::text::{self, format_number};

/// A ratio as a change.
pub(crate) fn format_change(ratio: f64) -> String {
    if ratio > text::LARGEST_FACTOR {
        "over 1000 times as high".to_owned()
    } else if ratio >= 2.0 {
        format!("{} times as high", format_number(ratio))
    } else if ratio >= 1.0 {
        format!("{} higher", format_percent(ratio - 1.0))
    } else {
        format!("{} lower", format_percent(1.0 - ratio))
    }
}

/// A paired ratio's interval: `interval 4.2% lower to 1.1% higher at 99%`, and where both ends are
/// on one side `interval 16.3 to 7.3% lower at 99%`.
pub(crate) fn format_interval(ratio: &Estimate) -> String {
    let (low, high) = (format_change(ratio.low), format_change(ratio.high));
    let shared = ["% lower", "% higher", " times as high"];
    let said_once = shared.iter().find(|end| low.ends_with(**end) && high.ends_with(**end));
    let low = said_once.and_then(|end| low.strip_suffix(end)).unwrap_or(&low);
    format!("interval {low} to {high} at {}", text::format_percent(ratio.confidence))
}

/// A share as a percentage, with enough decimals to tell it from 0 and from 100%.
pub(crate) fn format_percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = match percent.abs().min((100.0 - percent).abs()) {
        margin if margin >= 0.995 => 1,
        margin if margin >= 0.01 => 2,
        _ => 4,
    };
    let text = format!("{percent:.decimals$}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_confidences_keep_the_digits_that_matter() {
        let texts = [
            format_change(0.58),
            format_change(1.001),
            format_change(1.5),
            format_change(5.302),
            format_change(1e9),
        ];
        let expected = [
            "42% lower",
            "0.1% higher",
            "50% higher",
            "5.30 times as high",
            "over 1000 times as high",
        ];
        assert_eq!(texts, expected);
        let shares = [0.99, 0.9975, 0.999_975, 0.025, 0.0, 1.0, 1.4];
        let expected = ["99%", "99.75%", "99.9975%", "2.5%", "0%", "100%", "140%"];
        assert_eq!(shares.map(format_percent), expected);
    }

    #[test]
    fn interval_says_its_side_once() {
        let said = |low, high| {
            let method = latput_stats::Method::PairedLogRatio;
            format_interval(&Estimate { value: low, low, high, confidence: 0.995, method, runs: 6 })
        };
        assert_eq!(said(0.837, 0.927), "interval 16.3 to 7.3% lower at 99.5%");
        assert_eq!(said(0.651, 2.1), "interval 34.9% lower to 2.10 times as high at 99.5%");
        assert_eq!(said(3.0, 4.0), "interval 3.00 to 4.00 times as high at 99.5%");
    }
}
