//! Hours of the day, in which settings may be tried.

use core::fmt;

use latput_units::Nanos;
use serde::{Deserialize, Serialize};

const MINUTES: u64 = 24 * 60;
/// The least time between the two ends: the longest block fits several times.
const LEAST_MINUTES: u64 = 10;

/// From one minute of the day until another, UTC; over midnight if the second is the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hours {
    from: u64,
    until: u64,
}

impl Hours {
    /// Reads `22:00-06:00 UTC`. The zone is written, because hosts, people and summer time differ in theirs.
    ///
    /// # Errors
    ///
    /// The problem and the remedy.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.escape_debug().take(80).collect();
            format!("`{shown}` is not a range of hours: write `22:00-06:00 UTC`")
        };
        let hours = text.trim().strip_suffix("UTC").ok_or_else(wrong)?;
        let (from, until) = hours.trim().split_once('-').ok_or_else(wrong)?;
        let [Some(from), Some(until)] = [from, until].map(minute) else { return Err(wrong()) };
        let hours = Self { from, until };
        if hours.length() < LEAST_MINUTES {
            return Err(format!("`hours` are at least {LEAST_MINUTES} min long"));
        }
        Ok(hours)
    }

    /// Whether now, and so much longer, is within them.
    pub fn have(self, unix_ms: u64, longer: Nanos) -> bool {
        let since = (unix_ms / 60_000 + MINUTES - self.from) % MINUTES;
        let since_ms = since * 60_000 + unix_ms % 60_000;
        let length_ms = self.length() * 60_000;
        since_ms.saturating_add(longer.as_ns().div_ceil(1_000_000)) <= length_ms
    }

    fn length(self) -> u64 {
        (self.until + MINUTES - self.from) % MINUTES
    }
}

/// `HH:MM` as a minute of the day.
fn minute(text: &str) -> Option<u64> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok())?
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(60 * hours + minutes)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [from, until] = [self.from, self.until].map(|at| (at / 60, at % 60));
        write!(f, "{:02}:{:02}-{:02}:{:02} UTC", from.0, from.1, until.0, until.1)
    }
}

impl TryFrom<String> for Hours {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> Self {
        hours.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time of some day.
    fn at(hours: u64, minutes: u64) -> u64 {
        ((20_000 * 24 + hours) * 60 + minutes) * 60_000
    }

    #[test]
    fn hours_may_pass_midnight() {
        let night = Hours::parse("22:00-06:00 UTC").unwrap();
        let minute = Nanos::from_s(60);
        for (time, is_in) in [
            (at(22, 0), true),
            (at(23, 59), true),
            (at(0, 0), true),
            (at(5, 59), true),
            (at(5, 59) + 1, false),
            (at(6, 0), false),
            (at(12, 0), false),
            (at(21, 59), false),
        ] {
            assert_eq!(night.have(time, minute), is_in, "{time}");
        }
        assert!(night.have(at(22, 0), Nanos::from_s(8 * 3600)));
        assert!(!night.have(at(22, 0), Nanos::from_s(8 * 3600 + 1)));
        let noon = Hours::parse("11:30-12:30UTC").unwrap();
        assert!(noon.have(at(12, 0), minute) && !noon.have(at(11, 29), minute));
        assert_eq!(noon.to_string(), "11:30-12:30 UTC");
    }

    #[test]
    fn what_are_no_hours_is_refused() {
        for text in [
            "22:00-06:00",
            "22-06 UTC",
            "24:00-06:00 UTC",
            "22:60-06:00 UTC",
            "+2:00-06:00 UTC",
            "22:00 UTC",
            "",
            "UTC",
        ] {
            assert!(Hours::parse(text).unwrap_err().contains("22:00-06:00 UTC"), "{text}");
        }
        for text in ["22:00-22:00 UTC", "22:00-22:09 UTC"] {
            assert!(Hours::parse(text).unwrap_err().contains("10 min"), "{text}");
        }
    }
}
