//! Units as programs print them, and numbers in them.

use super::number::{Commas, NumberError, is_of_number, read_number};
use crate::metric::Unit;

/// A unit as a plan or a program writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintedUnit {
    /// The spelling.
    pub spelling: &'static str,
    /// The unit of the metric.
    pub unit: Unit,
    /// One of it in the metric's unit.
    pub factor: f64,
}

const fn spelled(spelling: &'static str, unit: Unit, factor: f64) -> PrintedUnit {
    PrintedUnit { spelling, unit, factor }
}

const KIB: f64 = 1024.0;

/// The spellings that plans and outputs may have. Case matters: `Mb` is not `MB`.
pub const SPELLINGS: &[PrintedUnit] = &[
    spelled("ns", Unit::Nanoseconds, 1.0),
    spelled("nsec", Unit::Nanoseconds, 1.0),
    spelled("us", Unit::Nanoseconds, 1e3),
    spelled("usec", Unit::Nanoseconds, 1e3),
    spelled("\u{b5}s", Unit::Nanoseconds, 1e3),
    spelled("\u{3bc}s", Unit::Nanoseconds, 1e3),
    spelled("ms", Unit::Nanoseconds, 1e6),
    spelled("msec", Unit::Nanoseconds, 1e6),
    spelled("s", Unit::Nanoseconds, 1e9),
    spelled("sec", Unit::Nanoseconds, 1e9),
    spelled("secs", Unit::Nanoseconds, 1e9),
    spelled("min", Unit::Nanoseconds, 60e9),
    spelled("per_s", Unit::PerS, 1.0),
    spelled("/s", Unit::PerS, 1.0),
    spelled("/sec", Unit::PerS, 1.0),
    spelled("rps", Unit::PerS, 1.0),
    spelled("tps", Unit::PerS, 1.0),
    spelled("qps", Unit::PerS, 1.0),
    spelled("iops", Unit::PerS, 1.0),
    spelled("k/s", Unit::PerS, 1e3),
    spelled("M/s", Unit::PerS, 1e6),
    spelled("pps", Unit::PacketsPerS, 1.0),
    spelled("kpps", Unit::PacketsPerS, 1e3),
    spelled("Mpps", Unit::PacketsPerS, 1e6),
    spelled("bps", Unit::BitsPerS, 1.0),
    spelled("bit/s", Unit::BitsPerS, 1.0),
    spelled("kbps", Unit::BitsPerS, 1e3),
    spelled("Kbps", Unit::BitsPerS, 1e3),
    spelled("kbit/s", Unit::BitsPerS, 1e3),
    spelled("Kbits/sec", Unit::BitsPerS, 1e3),
    spelled("Mbps", Unit::BitsPerS, 1e6),
    spelled("Mbit/s", Unit::BitsPerS, 1e6),
    spelled("Mbits/sec", Unit::BitsPerS, 1e6),
    spelled("Gbps", Unit::BitsPerS, 1e9),
    spelled("Gbit/s", Unit::BitsPerS, 1e9),
    spelled("Gbits/sec", Unit::BitsPerS, 1e9),
    spelled("B/s", Unit::BitsPerS, 8.0),
    spelled("kB/s", Unit::BitsPerS, 8e3),
    spelled("KB/s", Unit::BitsPerS, 8e3),
    spelled("MB/s", Unit::BitsPerS, 8e6),
    spelled("GB/s", Unit::BitsPerS, 8e9),
    spelled("KiB/s", Unit::BitsPerS, 8.0 * KIB),
    spelled("MiB/s", Unit::BitsPerS, 8.0 * KIB * KIB),
    spelled("GiB/s", Unit::BitsPerS, 8.0 * KIB * KIB * KIB),
    spelled("ratio", Unit::Ratio, 1.0),
    spelled("%", Unit::Ratio, 0.01),
    spelled("percent", Unit::Ratio, 0.01),
    spelled("bytes", Unit::Bytes, 1.0),
    spelled("B", Unit::Bytes, 1.0),
    spelled("kB", Unit::Bytes, 1e3),
    spelled("KB", Unit::Bytes, 1e3),
    spelled("MB", Unit::Bytes, 1e6),
    spelled("GB", Unit::Bytes, 1e9),
    spelled("KiB", Unit::Bytes, KIB),
    spelled("MiB", Unit::Bytes, KIB * KIB),
    spelled("GiB", Unit::Bytes, KIB * KIB * KIB),
    spelled("number", Unit::Number, 1.0),
    spelled("count", Unit::Number, 1.0),
];

/// Multiples that programs write after a number of the given unit: `12.3k`.
const MULTIPLES: &[(&str, f64)] = &[("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];

impl PrintedUnit {
    /// The unit of this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        SPELLINGS.iter().find(|printed| printed.spelling == spelling).copied()
    }

    /// The value of a printed number in the metric's unit. A unit after the number (`1.5ms`) counts
    /// instead of this one, if it is of the same kind; a multiple (`12k`) beside this one.
    ///
    /// The error says what is wrong with the text.
    pub fn read(self, text: &str) -> Result<f64, String> {
        let text = text.trim().trim_matches('"').trim();
        let end = text.find(|letter: char| !is_of_number(letter)).unwrap_or(text.len());
        let (digits, after) = split_number(text, end);
        let number = read_number(digits, Commas::Thousands).map_err(|error| match error {
            NumberError::Form(_) => not_a_number(text),
            NumberError::Comma(_) => error.to_string(),
        })?;
        let after = after.trim_start();
        let factor = if after.is_empty() {
            self.factor
        } else if let Some(printed) = Self::parse(after).filter(|printed| printed.unit == self.unit)
        {
            printed.factor
        } else if let Some((_, multiple)) = MULTIPLES
            .iter()
            .find(|(multiple, _)| *multiple == after && self.unit != Unit::Nanoseconds)
        {
            self.factor * multiple
        } else {
            let after: String = after.escape_debug().take(20).collect();
            return Err(format!(
                "`{after}` after the number is not a unit of {}",
                self.unit.name()
            ));
        };
        self.possible(number * factor)
    }

    /// The value of a number in this unit, if a metric can have it.
    pub fn value(self, number: f64) -> Result<f64, String> {
        self.possible(number * self.factor)
    }

    fn possible(self, value: f64) -> Result<f64, String> {
        if !value.is_finite() {
            return Err(format!("it is {value}, not a finite number"));
        }
        if value < 0.0 {
            return Err(format!("it is {value}, and a figure is at least 0"));
        }
        if value > self.unit.most() {
            return Err(format!("it is {value}, and a share is at most 1"));
        }
        Ok(value)
    }
}

/// Splits before a unit that begins with a letter of numbers: `1e` of `1 events`.
fn split_number(text: &str, end: usize) -> (&str, &str) {
    let (digits, after) = text.split_at(end);
    let kept = digits.trim_end_matches(['e', 'E', '.', ',', '+', '-']);
    if kept.len() < digits.len() && digits[kept.len()..].starts_with(['e', 'E']) {
        return text.split_at(kept.len());
    }
    (digits, after)
}

fn not_a_number(text: &str) -> String {
    let shown: String = text.escape_debug().take(40).collect();
    let lower = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if lower.starts_with("nan") || lower.starts_with("inf") {
        format!("it is `{shown}`, not a finite number")
    } else {
        format!("`{shown}` is not a number")
    }
}
