//! flent's data files: JSON in gzip, with a series of values for each figure.

mod own;
mod read;
mod series;
mod write;

use latput_units::text;
pub(crate) use read::parse_tests;
pub use write::{FlentFile, write};

/// The series of the ping that latput reads and writes.
const PING: &str = "Ping (ms) ICMP";

/// Parses `2026-11-21T23:34:29.123456Z` (always UTC) to milliseconds since 1970.
fn unix_ms(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let in_range = (1970..=2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    if !in_range {
        return None;
    }
    // Days since 1970-01-01 of a proleptic Gregorian date, counted in years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    u64::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()?.checked_mul(1000)
}

/// Formats milliseconds since 1970 as flent does: `2026-11-21T23:34:29.123000Z`.
fn format_utc(unix_ms: u64) -> String {
    let second = text::format_utc(unix_ms / 1000).replace(' ', "T").replace("TUTC", "");
    format!("{second}.{:06}Z", unix_ms % 1000 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(format_utc(1_709_208_000_123), "2024-02-29T12:00:00.123000Z");
        assert_eq!(
            unix_ms("2024-02-29T12:00:00.123000Z"),
            Some(1_709_208_000_000),
            "whole seconds"
        );
        assert_eq!(format_utc(1_795_304_069_000), "2026-11-21T23:34:29.000000Z");
        assert!(format_utc(u64::MAX).ends_with('Z'), "a damaged file may hold any time");
    }
}
