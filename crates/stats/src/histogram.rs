//! The latency histogram: every sample counted, mergeable, with a bounded relative error.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// Largest value kept apart; larger ones are counted as this (and `max` says so).
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Three significant digits: a value is off by at most 0.1 % of itself.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Counts of durations in buckets of at most 0.1 % relative width, 1 ns to 1 h (HdrHistogram).
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS);
        Self(counts.expect("the bounds and digits are constants that hdrhistogram accepts"))
    }

    /// Counts one duration; beyond one hour it is counted as one hour.
    pub fn record(&mut self, value: Nanos) {
        self.0.saturating_record(value.as_ns());
    }

    /// Counts `count` equal durations.
    pub fn record_n(&mut self, value: Nanos, count: u64) {
        self.0.saturating_record_n(value.as_ns(), count);
    }

    /// Adds every count of `other`: the same as if its samples had been recorded here.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("every histogram here has the same bounds");
    }

    /// How many samples.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest value that at least `quantile` (0 to 1) of the samples do not exceed; `None`
    /// without samples.
    pub fn quantile(&self, quantile: f64) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos::from_ns(self.0.value_at_quantile(quantile)))
    }

    /// The value of the `rank`-th smallest sample, counted from 1; `None` outside 1..=count.
    pub fn at_rank(&self, rank: u64) -> Option<Nanos> {
        let mut seen = 0;
        self.0.iter_recorded().find_map(|bucket| {
            seen += bucket.count_at_value();
            (rank >= 1 && seen >= rank).then(|| Nanos::from_ns(bucket.value_iterated_to()))
        })
    }

    /// The smallest sample, to the bucket's width.
    pub fn min(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos::from_ns(self.0.min()))
    }

    /// The largest sample, to the bucket's width.
    pub fn max(&self) -> Option<Nanos> {
        (!self.is_empty()).then(|| Nanos::from_ns(self.0.max()))
    }

    /// The arithmetic mean in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.mean())
    }

    /// The standard deviation in nanoseconds (of the samples themselves, as `ping` prints `mdev`).
    pub fn stdev_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.0.stdev())
    }

    /// The non-empty buckets in ascending order: highest equivalent value and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        self.0
            .iter_recorded()
            .map(|bucket| (Nanos::from_ns(bucket.value_iterated_to()), bucket.count_at_value()))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

/// The stored form: per non-empty bucket the distance from the last value and the count, both as
/// LEB128 variable-length integers, in base64. A few bytes a bucket.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    unit: String,
    count: u64,
    buckets_base64: String,
}

impl From<Histogram> for Encoded {
    fn from(histogram: Histogram) -> Self {
        let mut bytes = Vec::new();
        let mut last = 0;
        for (value, count) in histogram.buckets() {
            write_varint(&mut bytes, value.as_ns() - last);
            write_varint(&mut bytes, count);
            last = value.as_ns();
        }
        Self {
            unit: "ns".to_owned(),
            count: histogram.count(),
            buckets_base64: STANDARD_NO_PAD.encode(bytes),
        }
    }
}

/// A stored histogram that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged histogram: {0}")]
pub struct DamagedHistogram(&'static str);

impl TryFrom<Encoded> for Histogram {
    type Error = DamagedHistogram;

    fn try_from(encoded: Encoded) -> Result<Self, Self::Error> {
        if encoded.unit != "ns" {
            return Err(DamagedHistogram("its unit is not ns"));
        }
        let bytes = STANDARD_NO_PAD
            .decode(&encoded.buckets_base64)
            .map_err(|_| DamagedHistogram("its buckets are not base64"))?;
        let mut rest = bytes.as_slice();
        let mut histogram = Self::new();
        let mut value = 0_u64;
        while !rest.is_empty() {
            let step = read_varint(&mut rest).ok_or(DamagedHistogram("a bucket is cut short"))?;
            let count = read_varint(&mut rest).ok_or(DamagedHistogram("a bucket is cut short"))?;
            value = value.checked_add(step).ok_or(DamagedHistogram("a value overflows"))?;
            histogram
                .count()
                .checked_add(count)
                .ok_or(DamagedHistogram("the number of samples overflows"))?;
            histogram.record_n(Nanos::from_ns(value), count);
        }
        if histogram.count() != encoded.count {
            return Err(DamagedHistogram("its buckets do not add up to its count"));
        }
        Ok(histogram)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked to 7 bits")]
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
