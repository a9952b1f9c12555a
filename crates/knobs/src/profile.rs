//! The points between which the kernel's adaptive moderation (DIM) moves.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// More points than any kernel has (`NET_DIM_PARAMS_NUM_PROFILES` is 5).
const POINTS_MAX: usize = 16;

/// The points of one direction, from the shortest delay to the longest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Profile(Vec<ModerationPoint>);

/// One point. What a driver does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModerationPoint {
    /// Delay.
    pub delay: Option<Nanos>,
    /// Packets that raise the interrupt before the delay is over.
    pub packets: Option<u32>,
    /// Completions that do.
    pub completions: Option<u32>,
}

impl Profile {
    /// From points; `None` for none and for too many.
    pub fn new(points: Vec<ModerationPoint>) -> Option<Self> {
        (1..=POINTS_MAX).contains(&points.len()).then_some(Self(points))
    }

    /// The points.
    pub fn points(&self) -> &[ModerationPoint] {
        &self.0
    }
}

impl fmt::Display for Profile {
    /// `1,256 8,256`: microseconds, packets and, where the driver has them, completions; `n` for what
    /// it does not have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<u64>| number.map_or_else(|| "n".to_owned(), |n| n.to_string());
        let point = |point: &ModerationPoint| {
            let delay = number(point.delay.map(|delay| delay.as_ns() / 1_000));
            let mut text = format!("{delay},{}", number(point.packets.map(u64::from)));
            if let Some(completions) = point.completions {
                let _ = write!(text, ",{completions}");
            }
            text
        };
        f.pad(&self.0.iter().map(point).collect::<Vec<_>>().join(" "))
    }
}

/// A text that is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a moderation profile: give points USECS,PACKETS such as `1,256 8,256 64,256`")]
pub struct ModerationProfileError;

impl FromStr for Profile {
    type Err = ModerationProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| match text {
            "n" => Ok(None),
            text => text
                .parse::<u16>()
                .map(|number| Some(u32::from(number)))
                .map_err(|_| ModerationProfileError),
        };
        let mut points = Vec::new();
        for point in text.split_whitespace() {
            let parts = point.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            let (delay, packets, completions) = match parts.as_slice() {
                [delay, packets] => (*delay, *packets, None),
                [delay, packets, completions] => (*delay, *packets, *completions),
                _ => return Err(ModerationProfileError),
            };
            let delay = delay.map(|us| Nanos::from_us(u64::from(us)));
            points.push(ModerationPoint { delay, packets, completions });
        }
        Self::new(points).ok_or(ModerationProfileError)
    }
}

impl TryFrom<String> for Profile {
    type Error = ModerationProfileError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> Self {
        profile.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_round_trip() {
        for text in ["1,256 8,256 64,256 128,256 256,256", "1,n 2,n", "1,2,3", "n,1"] {
            assert_eq!(text.parse::<Profile>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn texts_that_are_no_profile_are_refused() {
        for text in ["", "1", "1,2,3,4", "1,x", "-1,2", "70000,1", "1,,2", &"1,1 ".repeat(17)] {
            assert!(text.parse::<Profile>().is_err(), "{text}");
        }
    }
}
