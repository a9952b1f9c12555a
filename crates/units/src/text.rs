//! Numbers, shares, dates and words of a command as people read them: the one place that decides on digits and quotes.

use std::fmt::Display;

use crate::CpuSet;

/// Three significant digits, no exponent: `0.012`, `1.23`, `45.6`, `789`, `12346`. `n/a` where it is
/// no number.
pub fn format_number(value: f64) -> String {
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
    let decimals = count_decimals(value);
    format!("{value:.decimals$}")
}

/// Decimals for three significant digits, at most 3. The limits are where rounding would add a digit:
/// 9.996 is 10.0, not 10.00.
pub fn count_decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    }
}

/// Reads a share as flags and plans write it: `30%` and `2.5%` are 0.3 and 0.025. `None` for anything else, also for a
/// number without its sign ([`bare_share`] has its readings).
pub fn parse_percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    plain_number(number).map(|it| it / 100.0)
}

/// The shares that a number without `%` may mean: `5` is 5% or 500%, `0.05` is 0.05% or 5%. `None` for text that is not
/// a plain number.
pub fn bare_share(text: &str) -> Option<[f64; 2]> {
    let number = plain_number(text.trim())?;
    Some([number / 100.0, number])
}

/// Refuses a number without `%` where a share is wanted: both readings, and how to write one.
pub fn refuse_bare_share(text: &str) -> Option<String> {
    let [percent, whole] = bare_share(text)?.map(written_share);
    Some(format!("`{}` may mean {percent} or {whole}: write one of them", text.trim()))
}

/// A share as flags and plans write it: `5%`, `2.5%`.
pub fn written_share(share: f64) -> String {
    format!("{}%", (share * 1e10).round() / 1e8)
}

fn plain_number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|char| char.is_ascii_digit() || char == '.');
    text.parse::<f64>().ok().filter(|number| is_plain && number.is_finite())
}

/// A share as per cent, with two decimals, or four where it would be 0 or 100% else: `99%`, `2.5%`,
/// `99.9975%`.
pub fn format_percent(share: f64) -> String {
    let percent = share * 100.0;
    let margin = percent.abs().min((100.0 - percent).abs());
    let decimals = if margin < 0.01 { 4 } else { 2 };
    let text = format!("{percent:.decimals$}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The largest factor that is written out: larger ones tell no more than that they are large.
pub const LARGEST_FACTOR: f64 = 1000.0;

/// A ratio as a factor: `x3.10`, and `over x1000` for what is not known better.
pub fn format_factor(ratio: f64) -> String {
    if ratio > LARGEST_FACTOR {
        "over x1000".to_owned()
    } else {
        format!("x{}", format_number(ratio))
    }
}

/// A ratio as a change with its sign and two digits: `-41%`, `+4.8%`, and `x3.10` for large ones.
pub fn signed_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    if ratio >= 3.0 {
        format_factor(ratio)
    } else if percent.abs() < 0.05 {
        "0%".to_owned()
    } else if percent.abs() < 9.95 {
        format!("{percent:+.1}%")
    } else {
        format!("{percent:+.0}%")
    }
}

/// The interval of a ratio as changes: `-16 to +31%`, `+80% to x3.10`.
pub fn signed_interval(low: f64, high: f64) -> String {
    let (low, high) = (signed_change(low), signed_change(high));
    let low = if high.ends_with('%') { low.trim_end_matches('%') } else { &low };
    format!("{low} to {high}")
}

/// A number with its noun, of which it is the count: `1 trial`, `3 trials`, `2 queries`. Every message that counts uses it.
pub fn format_count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {noun}");
    }
    format!("{number} {}", plural_of(noun))
}

/// The verb of so many: `1 of 20 trials is out`, `2 of 20 trials are out`.
pub fn is_or_are<N: PartialEq + From<u8>>(number: N) -> &'static str {
    if number == N::from(1) { "is" } else { "are" }
}

fn plural_of(noun: &str) -> String {
    let ends_in = |endings: &[&str]| endings.iter().any(|ending| noun.ends_with(ending));
    match noun.strip_suffix('y') {
        Some(stem) if !ends_in(&["ay", "ey", "oy", "uy"]) => format!("{stem}ies"),
        _ if ends_in(&["s", "x", "ch", "sh"]) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// A share of a CPU: `12.6% of a CPU`, `half a CPU`, and of more than one `1.8 CPUs`.
pub fn format_cpu_share(share: f64) -> String {
    if (0.475..0.525).contains(&share) {
        return "half a CPU".to_owned();
    }
    if is_several_cpus(share) {
        return format!("{share:.1} CPUs");
    }
    format!("{} of a CPU", percent_of_cpu(share))
}

/// A share of a CPU that was used on these CPUs: `31% of CPU 1`, `31% of a CPU (CPUs 0-1)`, `1.7 CPUs (CPUs 0-1)`. No CPU
/// is said to have given more than all of its time.
pub fn format_share_on_cpus(share: f64, cpus: &CpuSet) -> String {
    match cpus.len() {
        1 if !is_several_cpus(share) => format!("{} of CPU {cpus}", percent_of_cpu(share)),
        0 | 1 => format_cpu_share(share),
        _ => format!("{} (CPUs {cpus})", format_cpu_share(share)),
    }
}

/// A little more than all of a CPU is that of one whose time was read a moment later.
fn is_several_cpus(share: f64) -> bool {
    share >= 1.05
}

fn percent_of_cpu(share: f64) -> String {
    format_percent((share.min(1.0) * 1000.0).round() / 1000.0)
}

/// A word of a command line, quoted where a shell would read it otherwise.
pub fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@=,/+".contains(c);
    // zsh puts the path of a command in the place of `=command`.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A time in seconds since 1970 as `2026-11-24 02:30:00 UTC`.
///
/// The civil date is that of the proleptic Gregorian calendar, by the days of its 400-year cycle.
pub fn format_utc(seconds: u64) -> String {
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
    fn time_is_written_as_date_writes_it() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_795_487_400, "2026-11-24 02:30:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(format_utc(seconds), text);
        }
    }

    #[test]
    fn numbers_have_three_significant_digits() {
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
            assert_eq!(format_number(value), text, "{value}");
        }
    }

    #[test]
    fn share_has_its_sign_or_two_readings() {
        for (text, share) in [("30%", 0.3), (concat!("2.5", " %"), 0.025), (" 0% ", 0.0)] {
            assert!(
                parse_percent(text).is_some_and(|found| (found - share).abs() < 1e-12),
                "{text}"
            );
            assert_eq!(refuse_bare_share(text), None, "{text}");
        }
        for text in ["30", "0.3", "%", "", "-1%", "1e3%", "NaN%", "2,5%"] {
            assert_eq!(parse_percent(text), None, "{text}");
        }
        let said = |text| refuse_bare_share(text).unwrap();
        assert_eq!(said("5"), "`5` may mean 5% or 500%: write one of them");
        assert_eq!(said("0.05"), "`0.05` may mean 0.05% or 5%: write one of them");
        assert_eq!(refuse_bare_share("many"), None);
        assert_eq!([0.05, 0.025, 0.999, 5.0].map(written_share), ["5%", "2.5%", "99.9%", "500%"]);
    }

    #[test]
    fn only_one_has_no_plural() {
        let said = |number: usize, noun: &str| format_count(number, noun);
        assert_eq!([0, 1, 2].map(|it| said(it, "trial")), ["0 trials", "1 trial", "2 trials"]);
        let nouns = ["more block", "process", "query", "day", "switch"].map(|noun| said(3, noun));
        assert_eq!(nouns, ["3 more blocks", "3 processes", "3 queries", "3 days", "3 switches"]);
        assert_eq!(format_count(1_u64, "CPU") + " " + &format_count(2.0, "CPU"), "1 CPU 2 CPUs");
        assert_eq!([0, 1, 2].map(is_or_are::<u32>), ["are", "is", "are"]);
    }

    #[test]
    fn cpu_never_gives_more_than_itself() {
        let texts = [0.126, 0.4, 0.506, 1.02, 1.8].map(format_cpu_share);
        assert_eq!(
            texts,
            ["12.6% of a CPU", "40% of a CPU", "half a CPU", "100% of a CPU", "1.8 CPUs"]
        );
        for (share, cpus, text) in [
            (0.31, "1", "31% of CPU 1"),
            (1.02, "1", "100% of CPU 1"),
            (0.31, "0-1", "31% of a CPU (CPUs 0-1)"),
            (1.74, "0-1", "1.7 CPUs (CPUs 0-1)"),
            // Where its threads were is only known now and then.
            (1.74, "1", "1.7 CPUs"),
        ] {
            assert_eq!(format_share_on_cpus(share, &cpus.parse().unwrap()), text);
        }
        assert_eq!(format_share_on_cpus(0.31, &CpuSet::new()), "31% of a CPU");
    }

    #[test]
    fn shares_keep_apart_from_none_and_all() {
        let shares = [0.99, 0.9687, 0.025, 0.999_975, 0.0, 1.0, 1.4];
        let texts = ["99%", "96.87%", "2.5%", "99.9975%", "0%", "100%", "140%"];
        assert_eq!(shares.map(format_percent), texts);
    }

    #[test]
    fn signed_changes_have_two_digits() {
        let texts = [0.588, 0.84, 1.0004, 1.048, 1.308, 16.9].map(signed_change);
        assert_eq!(texts, ["-41%", "-16%", "0%", "+4.8%", "+31%", "x16.9"]);
        assert_eq!(signed_interval(0.84, 1.308), "-16 to +31%");
        assert_eq!(signed_interval(1.8, 3.1), "+80% to x3.10");
        assert_eq!(signed_interval(0.2, 1.4e20), "-80% to over x1000");
    }
}
