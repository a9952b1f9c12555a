//! Durations, sizes and rates, and the one place that reads and writes them as text.
//!
//! Sizes and rates may be written as iperf3, tc and netperf write them: `64k`, `1G`, `1mbit`, and without a unit
//! in bytes or bits per second. A time has its unit (`50us`), because one whose unit must be guessed is how a host
//! gets 50 ms instead of 50 us; where all peers mean seconds, [`Nanos::from_text_or_seconds`] reads `10` too.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A text that is not a quantity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {wanted}")]
pub struct ParseQuantityError {
    /// The text that was read.
    pub text: String,
    /// The expected form, with an example.
    pub wanted: &'static str,
}

/// A span of time, or a time since a clock's start, in whole nanoseconds (up to 584 years).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// From microseconds; saturates after 584 years.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// From milliseconds; saturates after 584 years.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// From whole seconds; saturates after 584 years.
    pub const fn from_s(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Reads a time with its unit, or a number of seconds as iperf3's `-t` and netperf's `-l` take it: `10`, `0.5`.
    ///
    /// # Errors
    ///
    /// The text is neither.
    pub fn from_text_or_seconds(text: &str) -> Result<Self, ParseQuantityError> {
        let seconds = parse_scaled(text, &[("", 1e9)]).map(Self);
        seconds.map_or_else(|| text.parse(), Ok)
    }

    /// From seconds as a float; negative and NaN give zero, too large saturates.
    #[expect(clippy::cast_possible_truncation, reason = "float to int saturates, as wanted here")]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9).round() as u64)
    }

    /// In nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// In microseconds, with the fraction.
    pub fn as_us_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In milliseconds, with the fraction.
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds, with the fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// As the standard library's duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// Both times together; saturates after 584 years.
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self` times `factor`; saturates.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self(self.0 - earlier.0)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

impl From<Duration> for Nanos {
    /// Saturates after 584 years.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    /// The largest unit that leaves a whole number, as the files have it: `50us`, `1500ns`, `2s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0 => (1, "us"),
            ns if ns % 1_000_000_000 == 0 => (1_000_000_000, "s"),
            ns if ns % 1_000_000 == 0 => (1_000_000, "ms"),
            ns if ns % 1_000 == 0 => (1_000, "us"),
            _ => (1, "ns"),
        };
        f.pad(&format!("{}{unit}", self.0 / divisor))
    }
}

impl FromStr for Nanos {
    type Err = ParseQuantityError;

    /// Reads `0`, `500ns`, `50us`, `1.5ms`, `2s`, `3min`, `1h`, and tc(8)'s `usec`, `msec` and `sec`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: &[(&str, f64)] = &[
            ("ns", 1.0),
            ("us", 1e3),
            ("µs", 1e3),
            ("usec", 1e3),
            ("ms", 1e6),
            ("msec", 1e6),
            ("s", 1e9),
            ("sec", 1e9),
            ("min", 60e9),
            ("h", 3600e9),
        ];
        parse_scaled(text, UNITS).map(Self).ok_or_else(|| {
            parse_error(text, "duration with its unit, such as `50us`, `1.5ms` or `2s`")
        })
    }
}

/// A size in bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// From a number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}B", self.0))
    }
}

impl FromStr for Bytes {
    type Err = ParseQuantityError;

    /// Reads `1470`, `1470B`, `32KiB`, `64kB`, `1MiB`, `1MB`, `1GiB`, `1GB`. A letter alone is a power of 1024, as in
    /// iperf3 and tc: `64k`, `64K`, `1M`, `1g`. (netperf's small letters are powers of 1000.)
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: &[(&str, f64)] = &[
            ("", 1.0),
            ("k", 1024.0),
            ("K", 1024.0),
            ("m", 1_048_576.0),
            ("M", 1_048_576.0),
            ("g", 1_073_741_824.0),
            ("G", 1_073_741_824.0),
            ("B", 1.0),
            ("kB", 1e3),
            ("KiB", 1024.0),
            ("MB", 1e6),
            ("MiB", 1_048_576.0),
            ("GB", 1e9),
            ("GiB", 1_073_741_824.0),
        ];
        parse_scaled(text, UNITS)
            .map(Self)
            .ok_or_else(|| parse_error(text, "size in bytes, such as `1470`, `64k` or `32KiB`"))
    }
}

/// A data rate in bits per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct BitsPerSecond(u64);

impl BitsPerSecond {
    /// From a number of bits per second.
    pub const fn new(bits_per_second: u64) -> Self {
        Self(bits_per_second)
    }

    /// The number of bits per second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (divisor, unit) = match self.0 {
            0 => (1, "bps"),
            bps if bps % 1_000_000_000 == 0 => (1_000_000_000, "Gbps"),
            bps if bps % 1_000_000 == 0 => (1_000_000, "Mbps"),
            bps if bps % 1_000 == 0 => (1_000, "kbps"),
            _ => (1, "bps"),
        };
        f.pad(&format!("{}{unit}", self.0 / divisor))
    }
}

impl FromStr for BitsPerSecond {
    type Err = ParseQuantityError;

    /// Reads `9600`, `9600bps`, `64kbps`, `500Mbps`, `2.5Gbit/s`. A letter alone is a power of 1000, as in iperf3:
    /// `1G`; so are tc's `kbit`, `mbit` and `gbit`. (tc's `mbps` are megabytes per second, and refused here.)
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: &[(&str, f64)] = &[
            ("", 1.0),
            ("k", 1e3),
            ("K", 1e3),
            ("m", 1e6),
            ("M", 1e6),
            ("g", 1e9),
            ("G", 1e9),
            ("bit", 1.0),
            ("kbit", 1e3),
            ("mbit", 1e6),
            ("Mbit", 1e6),
            ("gbit", 1e9),
            ("Gbit", 1e9),
            ("bit/s", 1.0),
            ("bps", 1.0),
            ("kbps", 1e3),
            ("Mbps", 1e6),
            ("Gbps", 1e9),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
        ];
        parse_scaled(text, UNITS)
            .map(Self)
            .ok_or_else(|| parse_error(text, "bit rate, such as `1G`, `500Mbps` or `2.5Gbit/s`"))
    }
}

fn parse_error(text: &str, wanted: &'static str) -> ParseQuantityError {
    ParseQuantityError { text: text.chars().take(80).collect(), wanted }
}

/// `number unit` to a whole number of base units; `None` for anything that is not exactly that, is
/// negative, does not fit, or would be rounded to another value than the text says.
#[expect(clippy::cast_possible_truncation, reason = "range and fraction are checked just before")]
fn parse_scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let split = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    let number: f64 = number.replace('_', "").parse().ok()?;
    let scaled = number * scale;
    let whole = scaled.round();
    let representable = scaled.is_finite() && whole < 9.0e18 && (scaled - whole).abs() < 1e-6;
    representable.then_some(whole as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        check_parsed::<Nanos>("50us", Some(50_000));
        check_parsed::<Nanos>("1.5 ms", Some(1_500_000));
        check_parsed::<Nanos>("1_000ns", Some(1_000));
        check_parsed::<Nanos>("0", Some(0));
        check_parsed::<Nanos>("3min", Some(180_000_000_000));
    }

    #[test]
    fn unitless_number_is_refused() {
        for text in ["50", "50parsec", "-1us", "us", "", "1e99s", "0.5ns", "9999999999h", "5 0us"] {
            check_parsed::<Nanos>(text, None);
        }
        check_parsed::<BitsPerSecond>("50us", None);
        check_parsed::<BitsPerSecond>("100mbps", None);
        check_parsed::<Bytes>("50Mbps", None);
        for text in ["", ".", "_", "-1", "k", "1kk", "1 000", "0.5"] {
            check_parsed::<Bytes>(text, None);
        }
    }

    #[test]
    fn quantities_parse_as_other_tools_write_them() {
        check_parsed::<Bytes>("1470", Some(1470));
        check_parsed::<Bytes>("64k", Some(65_536));
        check_parsed::<Bytes>("1M", Some(1_048_576));
        check_parsed::<BitsPerSecond>("1000000", Some(1_000_000));
        check_parsed::<BitsPerSecond>("1G", Some(1_000_000_000));
        check_parsed::<BitsPerSecond>("100mbit", Some(100_000_000));
        check_parsed::<Nanos>("5msec", Some(5_000_000));
        let seconds = |text| Nanos::from_text_or_seconds(text).ok().map(Nanos::as_ns);
        assert_eq!(seconds("10"), Some(10_000_000_000));
        assert_eq!(seconds("0.5"), Some(500_000_000));
        assert_eq!(seconds("50us"), Some(50_000));
        assert_eq!(seconds("1e9"), None);
        assert_eq!(seconds("99999999999"), None);
    }

    #[test]
    fn decimal_and_binary_sizes_differ() {
        check_parsed::<Bytes>("32KiB", Some(32_768));
        check_parsed::<Bytes>("32kB", Some(32_000));
        check_parsed::<BitsPerSecond>("2.5Gbps", Some(2_500_000_000));
        check_parsed::<BitsPerSecond>("500Mbit/s", Some(500_000_000));
    }

    #[test]
    fn what_is_written_is_read_back_equal() {
        for ns in [0, 1, 999, 1_000, 1_500, 20_000, 1_000_000, 60_000_000_000] {
            let nanos = Nanos::from_ns(ns);
            assert_eq!(nanos.to_string().parse::<Nanos>(), Ok(nanos));
            let rate = BitsPerSecond::new(ns);
            assert_eq!(rate.to_string().parse::<BitsPerSecond>(), Ok(rate));
        }
    }

    #[track_caller]
    fn check_parsed<T: FromStr + BaseUnits>(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<T>().ok().map(BaseUnits::to_base_units), expected, "{text}");
    }

    trait BaseUnits {
        fn to_base_units(self) -> u64;
    }
    impl BaseUnits for Nanos {
        fn to_base_units(self) -> u64 {
            self.as_ns()
        }
    }
    impl BaseUnits for Bytes {
        fn to_base_units(self) -> u64 {
            self.get()
        }
    }
    impl BaseUnits for BitsPerSecond {
        fn to_base_units(self) -> u64 {
            self.get()
        }
    }
}
