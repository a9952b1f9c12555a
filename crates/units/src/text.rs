//! Numbers, shares and dates as people read them: the one place that decides on digits.

/// Three significant digits, no exponent: `0.012`, `1.23`, `45.6`, `789`, `12346`. `n/a` where it is
/// no number.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size < 0.0005 {
        return if value < 0.0 { ">-0.001" } else { "<0.001" }.to_owned();
    }
    let decimals = decimals(value);
    format!("{value:.decimals$}")
}

/// Decimals for three significant digits, at most 3. The limits are where rounding would add a digit:
/// 9.996 is 10.0, not 10.00.
pub fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    }
}

/// Reads a percentage as a share of 1: `30%`, `2.5 %` or `30` are 0.3, 0.025 and 0.3. `None` for anything else.
pub fn parse_percent(text: &str) -> Option<f64> {
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number).trim_end();
    let is_plain = number.chars().all(|char| char.is_ascii_digit() || char == '.');
    number
        .parse::<f64>()
        .ok()
        .filter(|percent| is_plain && percent.is_finite())
        .map(|it| it / 100.0)
}

/// A share as per cent, with two decimals, or four where it would be 0 or 100 % else: `99 %`, `2.5 %`,
/// `99.9975 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let margin = percent.abs().min((100.0 - percent).abs());
    let decimals = if margin < 0.01 { 4 } else { 2 };
    let text = format!("{percent:.decimals$}");
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A time in seconds since 1970 as `2026-11-24 02:30:00 UTC`.
///
/// The civil date is that of the proleptic Gregorian calendar, by the days of its 400-year cycle.
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01: a year that begins in March has its leap day last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @SECONDS '+%F %T UTC'` writes them.
    #[test]
    fn a_time_is_written_as_date_writes_it() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_795_487_400, "2026-11-24 02:30:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn numbers_have_three_significant_digits_and_no_exponent() {
        for (value, text) in [
            (0.0, "0"),
            (0.0001, "<0.001"),
            (-0.0001, ">-0.001"),
            (0.0123, "0.012"),
            (0.9996, "1.00"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (45.67, "45.7"),
            (99.96, "100"),
            (-789.4, "-789"),
            (12_345.6, "12346"),
            (f64::NAN, "n/a"),
            (f64::INFINITY, "n/a"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn shares_keep_apart_from_none_and_all() {
        let shares = [0.99, 0.9687, 0.025, 0.999_975, 0.0, 1.0, 1.4];
        let texts = ["99 %", "96.87 %", "2.5 %", "99.9975 %", "0 %", "100 %", "140 %"];
        assert_eq!(shares.map(percent), texts);
    }
}
