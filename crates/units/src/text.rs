//! Numbers and shares as people read them: the one place that decides on digits.

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

#[cfg(test)]
mod tests {
    use super::*;

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
