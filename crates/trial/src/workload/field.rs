//! One field of a workload: its name, unit, default and range. Plans, `latput measure`, the traffic
//! engine's limits, results and the guide read this row.

use latput_units::{BitsPerSecond, Bytes, Nanos};

/// An unknown, missing or impossible field of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct FieldError {
    /// The field.
    pub field: String,
    /// The problem and the remedy.
    pub problem: String,
}

impl FieldError {
    pub(super) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}

/// The unit of a field's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldUnit {
    /// A count.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds; plans write `50us`.
    Time,
    /// Payload bits per second; plans write `1Gbps`, or `max` for no limit.
    BitRate,
    /// Events per second.
    PerSecond,
    /// 1 for `true`, 0 for `false`.
    Switch,
    /// 1 for `exponential` gaps, 0 for `fixed` ones.
    Distribution,
}

/// How a field's value is divided among several generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each has the whole value.
    Whole,
    /// The parts add up to the value, and none is 0.
    Parts,
    /// The parts add up to the value, but each has at least 1.
    AtLeastOne,
}

/// One field of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in plans and on the command line.
    pub name: &'static str,
    /// The unit of its number.
    pub unit: FieldUnit,
    /// Its default value; `None` means off.
    pub default: Option<u64>,
    /// The smallest value.
    pub least: u64,
    /// The largest value.
    pub most: u64,
    /// The description for people.
    pub about: &'static str,
    /// How it is divided among several generators.
    pub division: Division,
}

impl Field {
    const fn new(
        name: &'static str,
        unit: FieldUnit,
        default: Option<u64>,
        (least, most): (u64, u64),
        about: &'static str,
    ) -> Self {
        Self { name, unit, default, least, most, about, division: Division::Whole }
    }

    pub(super) const fn count(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        about: &'static str,
    ) -> Self {
        Self::new(name, FieldUnit::Count, Some(default), range, about)
    }

    pub(super) const fn bytes(
        name: &'static str,
        default: u64,
        range: (u64, u64),
        about: &'static str,
    ) -> Self {
        Self::new(name, FieldUnit::Bytes, Some(default), range, about)
    }

    pub(super) const fn time(
        name: &'static str,
        default: Nanos,
        (least, most): (Nanos, Nanos),
        about: &'static str,
    ) -> Self {
        let range = (least.as_ns(), most.as_ns());
        Self::new(name, FieldUnit::Time, Some(default.as_ns()), range, about)
    }

    pub(super) const fn per_second(
        name: &'static str,
        default: Option<u64>,
        range: (u64, u64),
        about: &'static str,
    ) -> Self {
        Self::new(name, FieldUnit::PerSecond, default, range, about)
    }

    pub(super) const fn bit_rate(name: &'static str, about: &'static str) -> Self {
        Self::new(name, FieldUnit::BitRate, None, (1, 1_000_000_000_000), about)
    }

    pub(super) const fn switch(name: &'static str, default: bool, about: &'static str) -> Self {
        Self::new(name, FieldUnit::Switch, Some(default as u64), (0, 1), about)
    }

    pub(super) const fn distribution(name: &'static str, about: &'static str) -> Self {
        Self::new(name, FieldUnit::Distribution, Some(1), (0, 1), about)
    }

    /// The same field, off by default.
    pub(super) const fn off_by_default(self) -> Self {
        Self { default: None, ..self }
    }

    pub(super) const fn divided(self, division: Division) -> Self {
        Self { division, ..self }
    }

    /// The name in results and JSON, with its unit; `None` for a field that is no quantity.
    pub fn name_with_unit(&self) -> Option<String> {
        match self.unit {
            FieldUnit::Count => Some(format!("{}_count", self.name)),
            FieldUnit::Time => Some(format!("{}_ns", self.name)),
            FieldUnit::BitRate => Some(format!("{}_bps", self.name)),
            FieldUnit::Bytes | FieldUnit::PerSecond | FieldUnit::Switch => {
                Some(self.name.to_owned())
            }
            FieldUnit::Distribution => None,
        }
    }

    /// The number in `text`; `None` where it switches the field off.
    ///
    /// # Errors
    ///
    /// It is not of the field's unit, or out of its range.
    pub fn parse(&self, text: &str) -> Result<Option<u64>, FieldError> {
        let number = match self.unit {
            FieldUnit::Count | FieldUnit::PerSecond => text.parse().ok(),
            FieldUnit::Bytes => text.parse::<Bytes>().ok().map(Bytes::get),
            FieldUnit::Time => text.parse::<Nanos>().ok().map(Nanos::as_ns),
            FieldUnit::BitRate if text == "max" => return Ok(None),
            FieldUnit::BitRate => text.parse::<BitsPerSecond>().ok().map(BitsPerSecond::get),
            FieldUnit::Switch => match text {
                "true" | "on" | "1" => Some(1),
                "false" | "off" | "0" => Some(0),
                _ => None,
            },
            FieldUnit::Distribution => ["fixed", "exponential"]
                .into_iter()
                .zip(0..)
                .find_map(|(word, number)| (word == text).then_some(number)),
        };
        match number {
            Some(0) if self.default.is_none() => Ok(None),
            Some(number) if (self.least..=self.most).contains(&number) => Ok(Some(number)),
            _ => Err(self.refused(text)),
        }
    }

    /// Refuses a value that is out of range.
    ///
    /// # Errors
    ///
    /// It is below `least` or above `most`.
    pub fn check(&self, value: u64) -> Result<(), FieldError> {
        if (self.least..=self.most).contains(&value) {
            return Ok(());
        }
        Err(self.refused(&value.to_string()))
    }

    fn refused(&self, text: &str) -> FieldError {
        let problem = format!("`{}` must be {}, not `{text}`", self.name, self.range());
        FieldError::new(self.name, problem)
    }

    /// The allowed values, in words.
    pub fn range(&self) -> String {
        let Self { least, most, .. } = *self;
        match self.unit {
            FieldUnit::Count | FieldUnit::Bytes | FieldUnit::PerSecond => {
                format!("a whole number from {least} to {most}")
            }
            FieldUnit::Time => {
                let [least, most] = [least, most].map(Nanos::from_ns);
                format!("a time from {least} to {most}, such as `50us`")
            }
            FieldUnit::BitRate => {
                let [least, most] = [least, most].map(BitsPerSecond::new);
                format!("`max` or a bit rate from {least} to {most}, such as `5Gbps`")
            }
            FieldUnit::Switch => "`true` or `false`".to_owned(),
            FieldUnit::Distribution => "`exponential` or `fixed`".to_owned(),
        }
    }
}
