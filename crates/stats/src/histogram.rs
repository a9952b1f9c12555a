//! The latency histogram: counts every sample, can be merged, and has a bounded relative error.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use latput_units::Nanos;
use serde::{Deserialize, Serialize};

/// Upper bound of values; larger ones count as this.
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Three significant digits: the relative error of a value is at most 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Counts of durations in buckets of at most 0.1% relative width, 1 ns to 1 h (the crate `hdrhistogram`).
///
/// A histogram that is being recorded has a counter for each bucket, some 260 KB.
/// [`Histogram::pack`] reduces it to a few bytes for each non-empty bucket. Methods that need the
/// counters unpack it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct Histogram(Form);

#[derive(Clone)]
enum Form {
    Counters(Counters),
    Packed(Packed),
}

type Counters = hdrhistogram::Histogram<u64>;

/// The number of samples and, for each non-empty bucket, the distance from the last value and the count,
/// both as LEB128 variable-length integers.
#[derive(Clone, Default)]
struct Packed {
    count: u64,
    buckets: Box<[u8]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram. It takes no memory until a value is recorded.
    pub fn new() -> Self {
        Self(Form::Packed(Packed::default()))
    }

    /// Counts one duration; more than one hour counts as one hour.
    #[inline]
    pub fn record(&mut self, value: Nanos) {
        self.record_n(value, 1);
    }

    /// Counts `count` equal durations.
    #[inline]
    pub fn record_n(&mut self, value: Nanos, count: u64) {
        // hdrhistogram's last buckets reach a little beyond the bound, and only values beyond those
        // are cut to it. Without this cut 80 minutes would count as less than 70.
        self.counters_mut().saturating_record_n(value.as_ns().min(HIGHEST_NS), count);
    }

    /// Adds every count of `other`, as if its samples had been recorded here.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (Form::Packed(ours), Form::Packed(theirs)) => *ours = ours.merged(theirs),
            (_, Form::Packed(theirs)) => theirs.record_in(self.counters_mut()),
            (_, Form::Counters(theirs)) => {
                let added = self.counters_mut().add(theirs);
                added.expect("every histogram here has the same bounds");
            }
        }
    }

    /// Packs the histogram into a few bytes for each non-empty bucket. No figure changes.
    pub fn pack(&mut self) {
        if let Form::Counters(counters) = &self.0 {
            self.0 = Form::Packed(Packed::from_counters(counters));
        }
    }

    /// Returns everything recorded so far, packed, and starts anew with the same memory.
    pub fn take(&mut self) -> Self {
        match &mut self.0 {
            Form::Counters(counters) => {
                let taken = Packed::from_counters(counters);
                counters.reset();
                Self(Form::Packed(taken))
            }
            Form::Packed(packed) => Self(Form::Packed(std::mem::take(packed))),
        }
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        match &self.0 {
            Form::Counters(counters) => counters.len(),
            Form::Packed(packed) => packed.count,
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The smallest value that at least `quantile` (0 to 1) of the samples do not exceed; `None`
    /// without samples.
    pub fn quantile(&self, quantile: f64) -> Option<Nanos> {
        match &self.0 {
            // Without unpacking, because a results file has thousands.
            Form::Packed(packed) if quantile > 0.0 => {
                let rank = (quantile.min(1.0) * packed.count as f64).ceil();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 0 and the number of samples"
                )]
                self.at_rank((rank as u64).max(1))
            }
            _ if self.is_empty() => None,
            _ => Some(Nanos::from_ns(self.counters().value_at_quantile(quantile))),
        }
    }

    /// The value of the `rank`-th smallest sample, counted from 1; `None` outside 1..=count.
    pub fn at_rank(&self, rank: u64) -> Option<Nanos> {
        let mut seen = 0;
        self.buckets().find_map(|(value, count)| {
            seen += count;
            (rank >= 1 && seen >= rank).then_some(value)
        })
    }

    /// The smallest sample, to the bucket's width.
    pub fn min(&self) -> Option<Nanos> {
        let (first, _) = self.buckets().next()?;
        Some(Nanos::from_ns(SHAPE.lowest_equivalent(first.as_ns())))
    }

    /// The largest sample, to the bucket's width.
    pub fn max(&self) -> Option<Nanos> {
        match &self.0 {
            Form::Counters(counters) => {
                (!counters.is_empty()).then(|| Nanos::from_ns(counters.max()))
            }
            Form::Packed(_) => self.buckets().last().map(|(value, _)| value),
        }
    }

    /// The arithmetic mean in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        let all = self.count() as f64;
        let parts = self.middles().map(|(middle_ns, count)| middle_ns * count / all);
        (!self.is_empty()).then(|| parts.sum())
    }

    /// The standard deviation of the samples in nanoseconds (population form, as `mdev` of `ping`).
    pub fn stdev_ns(&self) -> Option<f64> {
        let mean_ns = self.mean_ns()?;
        let squares =
            self.middles().map(|(middle_ns, count)| (middle_ns - mean_ns).powi(2) * count);
        Some((squares.sum::<f64>() / self.count() as f64).sqrt())
    }

    /// The middle of each non-empty bucket in nanoseconds, with its count.
    fn middles(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let buckets = self.buckets();
        buckets.map(|(top, count)| (SHAPE.median_equivalent(top.as_ns()) as f64, count as f64))
    }

    /// The non-empty buckets in ascending order: highest equivalent value and count.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let (counters, packed) = match &self.0 {
            Form::Counters(counters) => (Some(counters), None),
            Form::Packed(packed) => (None, Some(packed)),
        };
        let counters = counters.into_iter().flat_map(buckets_of);
        counters
            .chain(packed.into_iter().flat_map(Packed::iter))
            .map(|(value_ns, count)| (Nanos::from_ns(value_ns), count))
    }

    fn counters(&self) -> Cow<'_, Counters> {
        match &self.0 {
            Form::Counters(counters) => Cow::Borrowed(counters),
            Form::Packed(packed) => Cow::Owned(packed.unpacked()),
        }
    }

    #[inline]
    fn counters_mut(&mut self) -> &mut Counters {
        if let Form::Packed(packed) = &self.0 {
            self.0 = Form::Counters(packed.unpacked());
        }
        match &mut self.0 {
            Form::Counters(counters) => counters,
            Form::Packed(_) => unreachable!("it was unpacked just before"),
        }
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count() && self.buckets().eq(other.buckets())
    }
}

/// An empty histogram that knows the bounds of the buckets.
static SHAPE: LazyLock<Counters> = LazyLock::new(counters);

fn counters() -> Counters {
    let counters = Counters::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS);
    counters.expect("the bounds and digits are constants that hdrhistogram accepts")
}

/// The non-empty buckets in ascending order: highest equivalent value in nanoseconds and count.
fn buckets_of(counters: &Counters) -> impl Iterator<Item = (u64, u64)> + '_ {
    counters.iter_recorded().map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
}

impl Packed {
    fn from_counters(counters: &Counters) -> Self {
        if counters.is_empty() { Self::default() } else { Self::pack(buckets_of(counters)) }
    }

    /// Packs buckets that come in ascending order.
    fn pack(buckets: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut bytes = Vec::new();
        let mut last = 0;
        let mut total = 0;
        for (value_ns, count) in buckets {
            write_varint(&mut bytes, value_ns - last);
            write_varint(&mut bytes, count);
            last = value_ns;
            total += count;
        }
        Self { count: total, buckets: bytes.into_boxed_slice() }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut rest = &self.buckets[..];
        let mut value_ns = 0;
        std::iter::from_fn(move || {
            value_ns += read_varint(&mut rest)?;
            Some((value_ns, read_varint(&mut rest)?))
        })
    }

    fn merged(&self, other: &Self) -> Self {
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        Self::pack(std::iter::from_fn(move || {
            let (our_value, their_value) = match (ours.peek(), theirs.peek()) {
                (Some((ours, _)), Some((theirs, _))) => (*ours, *theirs),
                (None, _) => return theirs.next(),
                (_, None) => return ours.next(),
            };
            match our_value.cmp(&their_value) {
                Ordering::Less => ours.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => {
                    let count = ours.next()?.1 + theirs.next()?.1;
                    Some((our_value, count))
                }
            }
        }))
    }

    fn record_in(&self, counters: &mut Counters) {
        for (value_ns, count) in self.iter() {
            counters.saturating_record_n(value_ns.min(HIGHEST_NS), count);
        }
    }

    #[cold]
    fn unpacked(&self) -> Counters {
        let mut all = counters();
        self.record_in(&mut all);
        all
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

/// The stored form: the packed buckets in base64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encoded {
    unit: String,
    count: u64,
    buckets_base64: String,
}

impl From<Histogram> for Encoded {
    fn from(mut histogram: Histogram) -> Self {
        let Packed { count, buckets } = match histogram.take().0 {
            Form::Packed(packed) => packed,
            Form::Counters(_) => unreachable!("what is taken is packed"),
        };
        Self { unit: "ns".to_owned(), count, buckets_base64: STANDARD_NO_PAD.encode(buckets) }
    }
}

/// The stored histogram is damaged.
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
        let packed = Packed::pack(buckets_in(&bytes)?.into_iter());
        if packed.count != encoded.count {
            return Err(DamagedHistogram("its buckets do not add up to its count"));
        }
        Ok(Self(Form::Packed(packed)))
    }
}

/// The buckets that were stored as `rest`. They are read without counters, because a results file has
/// thousands of histograms.
fn buckets_in(mut rest: &[u8]) -> Result<Vec<(u64, u64)>, DamagedHistogram> {
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    let (mut value, mut total) = (0_u64, 0_u64);
    while !rest.is_empty() {
        let step = read_varint(&mut rest).ok_or(DamagedHistogram("a bucket is cut short"))?;
        let count = read_varint(&mut rest).ok_or(DamagedHistogram("a bucket is cut short"))?;
        value = value.checked_add(step).ok_or(DamagedHistogram("a value overflows"))?;
        if count == 0 || (step == 0 && !buckets.is_empty()) {
            return Err(DamagedHistogram("a bucket is empty or comes twice"));
        }
        if SHAPE.highest_equivalent(value.min(HIGHEST_NS)) != value {
            return Err(DamagedHistogram("a value is not that of a bucket"));
        }
        let sum = total.checked_add(count);
        total = sum.ok_or(DamagedHistogram("the number of samples overflows"))?;
        buckets.push((value, count));
    }
    Ok(buckets)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "7 bits, and one that says whether more follow"
)]
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packed_one_has_the_same_quantiles() {
        let mut rng = latput_units::SeededRng::from_seed(41);
        for samples in [0, 1, 2, 99, 100, 101, 5_000] {
            let mut open = Histogram::new();
            (0..samples).for_each(|_| open.record(Nanos::from_ns(1 + rng.next_u64() % 10_000_000)));
            let mut packed = open.clone();
            packed.pack();
            for quantile in [0.0, 1e-9, 0.01, 0.29, 0.5, 0.57, 0.9, 0.99, 0.999, 1.0, 1.5] {
                let found = packed.quantile(quantile);
                assert_eq!(found, open.quantile(quantile), "{quantile} of {samples}");
            }
            let all = open.counters();
            let known = (samples > 0).then(|| (all.mean(), all.stdev(), all.min()));
            for histogram in [&open, &packed] {
                let found = histogram.mean_ns().zip(histogram.stdev_ns()).zip(histogram.min());
                let found = found.map(|((mean, stdev), min)| (mean, stdev, min.as_ns()));
                assert_eq!(found, known, "of {samples}");
            }
        }
    }

    #[test]
    fn histogram_error_is_within_one_percent() {
        let mut ns = 100_u64;
        while ns <= 60_000_000_000 {
            let mut histogram = Histogram::new();
            histogram.record(Nanos::from_ns(ns));
            let found = histogram.quantile(0.5).unwrap().as_ns();
            assert!(found.abs_diff(ns) * 100 <= ns, "{ns} is kept as {found}");
            ns += 1 + ns / 97;
        }
    }

    #[test]
    fn longer_than_an_hour_still_merges() {
        let mut histogram = recorded(&[1]);
        for minutes in [59, 61, 70, 80, 1_000_000] {
            histogram.record(Nanos::from_s(minutes * 60));
        }
        histogram.record(Nanos::from_ns(u64::MAX));
        let mut merged = recorded(&[5]);
        merged.merge(&histogram);
        assert_eq!(merged.count(), 8);
        let hour = Nanos::from_s(3600).as_ns();
        assert!(merged.max().unwrap().as_ns().abs_diff(hour) * 1000 <= hour);
        assert_eq!(read(&stored(&merged)), Ok(merged));
    }

    #[test]
    fn ranks_and_quantiles_name_the_same_samples() {
        let histogram = recorded(&[10, 20, 20, 30]);
        let at = |rank| histogram.at_rank(rank).map(Nanos::as_ns);
        assert_eq!([at(0), at(1), at(2), at(3)], [None, Some(10), Some(20), Some(20)]);
        assert_eq!([at(4), at(5)], [Some(30), None]);
        assert_eq!(histogram.quantile(0.75), histogram.at_rank(3));
        assert_eq!(histogram.quantile(0.76), histogram.at_rank(4));
    }

    #[test]
    fn empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!((empty.quantile(0.5), empty.min(), empty.max()), (None, None, None));
        assert_eq!((empty.mean_ns(), empty.stdev_ns(), empty.at_rank(1)), (None, None, None));
        assert_eq!(read(&stored(&empty)), Ok(empty));
        let mut emptied = recorded(&[7]);
        emptied.take();
        for quantile in [0.0, 0.5, 1.0] {
            assert_eq!(
                (Histogram::new().quantile(quantile), emptied.quantile(quantile)),
                (None, None)
            );
        }
    }

    #[test]
    fn equality_is_by_bucket_counts() {
        assert_eq!(recorded(&[1, 2]), recorded(&[2, 1]));
        assert_ne!(recorded(&[1, 2]), recorded(&[1, 3]));
        assert_ne!(recorded(&[1, 2]), recorded(&[1, 2, 2]));
        assert_ne!(recorded(&[1]), Histogram::new());
    }

    #[test]
    fn packed_histogram_has_no_counters() {
        let mut histogram = recorded(&[1, 2]);
        assert!(matches!(histogram.0, Form::Counters(_)));
        histogram.pack();
        assert!(matches!(histogram.0, Form::Packed(_)));
    }

    #[test]
    fn damaged_histogram_is_refused() {
        let good = stored(&recorded(&[100, 200]));
        assert!(read(&good).is_ok());
        for (from, to, why) in [
            ("\"ns\"", "\"us\"", "unit is not ns"),
            ("\"count\":2", "\"count\":3", "do not add up"),
            ("ZAFkAQ", "ZAFk", "cut short"),
            ("ZAFkAQ", "Z!FkAQ", "not base64"),
            ("ZAFkAQ", "ZAFkAA", "empty or comes twice"),
            ("ZAFkAQ", "ZAEAAQ", "empty or comes twice"),
            ("ZAFkAQ", "////////////", "cut short"),
            ("}", ",\"more\":1}", "unknown field"),
        ] {
            let damaged = good.replacen(from, to, 1);
            assert_ne!(damaged, good, "the test must change something");
            let error = read(&damaged).expect_err(&damaged);
            assert!(error.contains(why), "{damaged}: {error}");
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        refuse(&[(u64::MAX, 1), (1, 1)], 2, "not that of a bucket");
        refuse(&[(1 << 50, 1)], 1, "not that of a bucket");
        refuse(&[(1_000_000, 1)], 1, "not that of a bucket");
        refuse(&[(1, u64::MAX), (1, 1)], 0, "samples overflows");
        refuse(&[(1, 5), (u64::MAX, 1)], 6, "value overflows");
    }

    #[test]
    fn histogram_that_was_taken_starts_anew() {
        let mut histogram = recorded(&[1, 1000, 1_000_000]);
        let taken = histogram.take();
        assert_eq!((taken.count(), histogram.count()), (3, 0));
        histogram.record(Nanos::from_ns(7));
        assert_eq!(
            (histogram.min(), histogram.max()),
            (recorded(&[7]).min(), recorded(&[7]).max())
        );
        assert_eq!(Histogram::new().take(), Histogram::new());
    }

    proptest! {
        #[test]
        fn packing_changes_no_figure(samples in samples(), more in samples(), q in 0.0..=1.0) {
            let (plain, others) = (recorded(&samples), recorded(&more));
            let mut packed = plain.clone();
            packed.pack();
            prop_assert_eq!(&packed, &plain);
            let figures = |it: &Histogram| {
                (it.min(), it.max(), it.quantile(q), it.at_rank(3), it.mean_ns(), it.stdev_ns())
            };
            prop_assert_eq!(figures(&packed), figures(&plain));
            prop_assert_eq!(stored(&packed), stored(&plain));
            let mut whole = plain;
            whole.merge(&others);
            let mut packed_others = others.clone();
            packed_others.pack();
            for others in [others, packed_others] {
                let mut merged = packed.clone();
                merged.merge(&others);
                prop_assert_eq!(&merged, &whole);
            }
        }

        #[test]
        fn merging_parts_gives_the_whole(samples in samples(), cut in 0_usize..200) {
            let (left, right) = samples.split_at(cut.min(samples.len()));
            let (left, right) = (recorded(left), recorded(right));
            let mut merged = left.clone();
            merged.merge(&right);
            prop_assert_eq!(&merged, &recorded(&samples));
            let mut other_way = right;
            other_way.merge(&left);
            prop_assert_eq!(merged, other_way);
        }

        #[test]
        fn merging_in_any_grouping_gives_the_same(a in samples(), b in samples(), c in samples()) {
            let (a, b, c) = (recorded(&a), recorded(&b), recorded(&c));
            let mut left = a.clone();
            left.merge(&b);
            left.merge(&c);
            let mut tail = b;
            tail.merge(&c);
            let mut right = a;
            right.merge(&tail);
            prop_assert_eq!(left, right);
        }

        #[test]
        fn what_is_stored_is_read_back_equal(samples in samples()) {
            let histogram = recorded(&samples);
            prop_assert_eq!(read(&stored(&histogram)), Ok(histogram));
        }

        #[test]
        fn no_stored_text_is_a_crash(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let buckets = STANDARD_NO_PAD.encode(bytes);
            let _ = read(&format!(r#"{{"unit":"ns","count":1,"buckets_base64":"{buckets}"}}"#));
        }
    }

    /// Durations of every magnitude, in nanoseconds.
    fn samples() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec((0_u32..43, any::<u64>()), 0..200).prop_map(|drawn| {
            drawn.into_iter().map(|(bits, value)| value & ((1 << bits) - 1)).collect()
        })
    }

    fn recorded(samples_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &ns in samples_ns {
            histogram.record(Nanos::from_ns(ns));
        }
        histogram
    }

    fn stored(histogram: &Histogram) -> String {
        serde_json::to_string(histogram).unwrap()
    }

    fn read(text: &str) -> Result<Histogram, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refuse(buckets: &[(u64, u64)], count: u64, why: &str) {
        let mut bytes = Vec::new();
        for &(step, count) in buckets {
            write_varint(&mut bytes, step);
            write_varint(&mut bytes, count);
        }
        let buckets = STANDARD_NO_PAD.encode(bytes);
        let text = format!(r#"{{"unit":"ns","count":{count},"buckets_base64":"{buckets}"}}"#);
        let error = read(&text).expect_err(&text);
        assert!(error.contains(why), "{text}: {error}");
    }
}
