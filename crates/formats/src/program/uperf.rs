//! uperf's progress: the transaction of its profile that took longest. The line `Total` has connects and waits in its time.

use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{FigureCollector, leading_number, number_in_units, whole_number};
use crate::read_error::ReadError;

/// Units of rates in bits per second.
const RATES: &[(&str, f64)] = &[("Gb/s", 1e9), ("Mb/s", 1e6), ("Kb/s", 1e3), ("b/s", 1.0)];
/// The unit of the other figures of a line.
const OPERATIONS: &[(&str, f64)] = &[("op/s", 1.0)];

/// One line of progress.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TxnLine {
    seconds: f64,
    bits_per_s: f64,
    operations_per_s: f64,
}

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let mut longest: Option<TxnLine> = None;
    for line in text.as_str().lines().filter(|line| line.starts_with("Txn")) {
        let Some((_, figures)) = line.split_once(" / ") else { continue };
        let progress = parse_progress(figures)?.ok_or("a line `Txn` has another form")?;
        if longest.is_none_or(|known| progress.seconds >= known.seconds) {
            longest = Some(progress);
        }
    }
    let longest =
        longest.ok_or("no transaction is there: it needs its progress, without -q or -R")?;
    let mut found = FigureCollector::default();
    let better = PreferredDirection::Higher;
    found.set_window(Some(longest.seconds))?;
    // Sent and received together, by the master's own count.
    found.add_custom("uperf_bps", Unit::BitsPerS, better, Some(longest.bits_per_s))?;
    found.add_custom("uperf_ops_per_s", Unit::PerS, better, Some(longest.operations_per_s))?;
    let master = text.as_str().lines().rev().find(|line| line.starts_with("master "));
    let errors =
        master.and_then(|line| line.split_whitespace().last()).map_or(Ok(None), leading_number)?;
    let errors = errors.ok_or("the line `master` is not there: the run was cut short")?;
    if errors > 0.0 {
        return Err(ReadError::Failed(format!("{errors} of its operations failed")));
    }
    found.finish()
}

/// Reads `2.20(s) =   124.46Mb/s      243078op/s`.
fn parse_progress(figures: &str) -> Result<Option<TxnLine>, ReadError> {
    let Some((seconds, rest)) = figures.split_once("(s) =") else { return Ok(None) };
    let mut words = rest.split_whitespace();
    let [rate, operations] = [words.next(), words.next()].map(Option::unwrap_or_default);
    // Nothing moved: a 0 has no unit.
    let nothing = whole_number(rate)?.filter(|rate| *rate == 0.0);
    let bits_per_s = nothing.or(number_in_units(rate, RATES)?);
    let all =
        bits_per_s.zip(number_in_units(operations, OPERATIONS)?).zip(whole_number(seconds.trim())?);
    Ok(all.map(|((bits_per_s, operations_per_s), seconds)| TxnLine {
        seconds,
        bits_per_s,
        operations_per_s,
    }))
}
