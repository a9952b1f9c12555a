//! hey: its summary, in seconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};

use super::found::{
    FigureCollector, S, leading_number, number_after_label, parse_measurement, text_after_label,
    to_count,
};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut found = FigureCollector::default();
    found.mark_coarse();
    let rate = number_after_label(text, "Requests/sec:")?;
    let answers = parse_distribution(text, "Status code distribution:")?;
    let (good, bad): (Vec<_>, Vec<_>) =
        answers.iter().partition(|(code, _)| (200..400).contains(code));
    let sum = |answers: &[&(u64, u64)]| answers.iter().map(|(_, count)| count).sum::<u64>();
    let broken = parse_distribution(text, "Error distribution:")?;
    let broken: u64 = broken.iter().map(|(count, _)| count).sum();
    found.add_answered_rate(rate, sum(&good) + sum(&bad), broken, "`Requests/sec:`")?;
    found.set_errors(Some(sum(&bad) + broken))?;
    let seconds = |label: &str| -> Result<Option<f64>, ReadError> {
        text_after_label(text, label)?.map(|rest| parse_measurement(rest, "secs")).transpose()
    };
    found.set_min_latency(seconds("Fastest:")?.map(|s| s * S));
    found.add_required(Metric::LatencyNsMean, seconds("Average:")?.map(|s| s * S), "`Average:`")?;
    found.add_required(Metric::LatencyNsMax, seconds("Slowest:")?.map(|s| s * S), "`Slowest:`")?;
    found.set_window(seconds("Total:")?)?;
    for line in text.as_str().lines() {
        // `99% in 0.0014 secs`; some versions print the sign twice.
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [percent, "in", value, "secs"] = words[..] {
            let known = leading_number(percent)?.zip(leading_number(value)?);
            let (percent, seconds) = known.ok_or("a percentile is not a number")?;
            found.add_percentile(percent, seconds * S)?;
        }
    }
    found.finish()
}

/// The lines `[200] 2000 responses` under a title: both numbers, the second 0 where there is none.
fn parse_distribution(text: &Text, title: &str) -> Result<Vec<(u64, u64)>, ReadError> {
    let lines = text.as_str().lines().skip_while(|line| line.trim() != title).skip(1);
    let pair = |line: &str| {
        let (first, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
        let second = leading_number(rest).map(|it| it.and_then(to_count).unwrap_or(0));
        // More would be no output of hey, and sums could overflow.
        let first: u64 = first.parse().ok().filter(|it| *it < 1 << 40)?;
        Some(second.map(|second| (first, second.min(1 << 40))))
    };
    lines.map_while(pair).take(1000).collect()
}
