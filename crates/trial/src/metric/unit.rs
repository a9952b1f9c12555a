//! The units of metrics, and how people read them.

use serde::{Deserialize, Serialize};

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Bits per second.
    #[serde(rename = "bps")]
    BitsPerS,
    /// Events per second.
    #[serde(rename = "per_s")]
    PerS,
    /// Packets per second.
    #[serde(rename = "pps")]
    PacketsPerS,
    /// Work per second: transactions, or bits of goodput where the workload has no transactions.
    #[serde(rename = "work_per_s")]
    WorkPerS,
    /// A share, 0 to 1.
    #[serde(rename = "ratio")]
    Ratio,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Microseconds per transaction, or per KB (1024 byte) where the workload has no transactions.
    #[serde(rename = "us_per_work")]
    MicrosecondsPerWork,
    /// Packets per poll.
    #[serde(rename = "packets_per_poll")]
    PacketsPerPoll,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// A plain number.
    #[serde(rename = "number")]
    Number,
}

/// A unit for printing: its divisor and its name.
pub(super) type UnitStep = (f64, &'static str);

pub(super) const BITS: &[UnitStep] =
    &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")];
const RATES: &[UnitStep] = &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")];
const BYTES: &[UnitStep] = &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")];
const NUMBERS: &[UnitStep] = &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")];
pub(super) const TIMES: &[UnitStep] = &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

impl Unit {
    /// Every unit.
    pub const ALL: &[Self] = &[
        Self::BitsPerS,
        Self::PerS,
        Self::PacketsPerS,
        Self::WorkPerS,
        Self::Ratio,
        Self::Nanoseconds,
        Self::MicrosecondsPerWork,
        Self::PacketsPerPoll,
        Self::Bytes,
        Self::Number,
    ];

    /// The unit of values in files, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BitsPerS => "bit/s",
            Self::PerS => "1/s",
            Self::PacketsPerS => "packet/s",
            Self::WorkPerS => "transaction/s or bit/s",
            Self::Ratio => "share of 1",
            Self::Nanoseconds => "ns",
            Self::MicrosecondsPerWork => "us/transaction or us/KB",
            Self::PacketsPerPoll => "packet/poll",
            Self::Bytes => "byte",
            Self::Number => "number",
        }
    }

    /// The suffix of the names of metrics with this unit.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::BitsPerS => "_bps",
            Self::PerS | Self::WorkPerS => "_per_s",
            Self::PacketsPerS => "_pps",
            Self::Ratio => "_ratio",
            Self::Nanoseconds => "_ns",
            Self::MicrosecondsPerWork => "_us",
            Self::PacketsPerPoll => "_packets_per_poll",
            Self::Bytes => "_bytes",
            Self::Number => "",
        }
    }

    /// The largest possible value.
    pub const fn most(self) -> f64 {
        if matches!(self, Self::Ratio) { 1.0 } else { f64::INFINITY }
    }

    /// Whether a figure of a program can have it. The others are quotients of what latput counts.
    pub const fn is_of_programs(self) -> bool {
        !matches!(self, Self::WorkPerS | Self::MicrosecondsPerWork | Self::PacketsPerPoll)
    }

    /// The printed units, smallest first. Work is transactions or bits.
    pub(super) const fn steps(self, is_transactional: bool) -> &'static [UnitStep] {
        match (self, is_transactional) {
            (Self::BitsPerS, _) | (Self::WorkPerS, false) => BITS,
            (Self::PerS | Self::PacketsPerS, _) | (Self::WorkPerS, true) => RATES,
            (Self::Ratio, _) => &[(0.01, "%")],
            (Self::Nanoseconds, _) => TIMES,
            (Self::MicrosecondsPerWork, true) => &[(1.0, "us/tr")],
            (Self::MicrosecondsPerWork, false) => &[(1.0, "us/KB")],
            (Self::PacketsPerPoll, _) => &[(1.0, "")],
            (Self::Bytes, _) => BYTES,
            (Self::Number, _) => NUMBERS,
        }
    }
}
