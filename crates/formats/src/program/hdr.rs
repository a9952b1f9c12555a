//! Logs of `HdrHistogram` (`.hlog`): the intervals of a run, each with its distribution in the compressed form V2.
//!
//! The form is that of `Histogram.encodeIntoCompressedByteBuffer` of <https://github.com/HdrHistogram/HdrHistogram>: base64 of zlib of
//! a header and of counts, zeros as their number. It is read here, because a log is a stranger's: the crate's own reader takes
//! up to 4 GiB of memory for a length in the header.

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use latput_stats::Histogram;
use latput_trial::Metric;
use latput_trial::figures::{HistogramLog, ProgramFigures, Source, Text};
use latput_units::{IntoSet, Nanos};

use super::found::FigureCollector;
use crate::read_error::ReadError;

/// The first bytes of a compressed distribution and of what is in it; the second digit from the right is a size of words.
const COMPRESSED: u32 = 0x1c84_9304;
const PLAIN: u32 = 0x1c84_9303;
const WORD_SIZE: u32 = 0xf0;
/// Every distribution begins so in base64, whatever its version.
const START: &str = "HIST";
/// The most bytes of all distributions of a log, unpacked.
const MOST_BYTES: u64 = 64 << 20;
/// The most samples of a log: below 2^53, as all counts of programs.
const MOST_SAMPLES: u64 = 1 << 53;
/// Tags in an error.
const SHOWN_TAGS: usize = 10;

/// A line of a log.
struct LogInterval<'t> {
    tag: Option<&'t str>,
    begin_s: f64,
    length_s: f64,
    distribution: &'t str,
}

/// Reads a log as one distribution, with its mean, percentiles and maximum.
pub(super) fn read(log: &HistogramLog, text: &Text) -> Result<ProgramFigures, ReadError> {
    if text.is_cut() {
        return Err("it is too large: let the program write fewer intervals".into());
    }
    let intervals = parse_intervals(text, matches!(log.from, Source::File(_)))?;
    let chosen = of_tag(intervals, log.tag.as_deref())?;
    let mut left = MOST_BYTES;
    let mut histogram = Histogram::new();
    let mut samples = 0_u64;
    for (line, interval) in &chosen {
        let mut record = |value: u64, count: u64| {
            samples = samples.checked_add(count).filter(|all| *all <= MOST_SAMPLES)?;
            histogram.record_n(Nanos::from_ns(in_ns(value, log.unit.factor)), count);
            Some(())
        };
        let plain = decompress_distribution(interval.distribution, &mut left);
        let read = plain.and_then(|plain| decode_counts(&plain, &mut record));
        read.map_err(|problem| format!("line {line}: {problem}"))?;
    }
    if histogram.is_empty() {
        return Err(ReadError::Failed("its distributions are empty".to_owned()));
    }
    let mut found = FigureCollector::default();
    found.add_required(Metric::LatencyNsMean, histogram.mean_ns(), "the mean")?;
    let max = histogram.max().map(|max| max.as_ns() as f64);
    found.add_required(Metric::LatencyNsMax, max, "the maximum")?;
    found.set_transactions(Some(histogram.count()))?;
    found.set_window(measured_s(&chosen))?;
    found.add_histogram(histogram);
    found.finish()
}

/// From the start of the first interval to the end of the last, in seconds.
fn measured_s(intervals: &[(usize, LogInterval<'_>)]) -> Option<f64> {
    let begin = intervals.iter().map(|(_, it)| it.begin_s).reduce(f64::min)?;
    let end = intervals.iter().map(|(_, it)| it.begin_s + it.length_s).reduce(f64::max)?;
    Some(end - begin)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not below 0; a time beyond 64 bits becomes the longest"
)]
fn in_ns(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).round() as u64
}

/// The intervals with their lines. A file has nothing else; on a stream a program says other things too.
fn parse_intervals(text: &Text, is_file: bool) -> Result<Vec<(usize, LogInterval<'_>)>, String> {
    let mut found = Vec::new();
    for (idx, line) in text.as_str().lines().enumerate() {
        let line = line.trim();
        let is_other = line.is_empty() || line.starts_with(['#', '"']);
        match LogInterval::parse(line) {
            _ if is_other => {}
            Some(interval) => found.push((idx + 1, interval)),
            None if is_file => {
                let line: String = line.escape_debug().take(40).collect();
                return Err(format!("line {} is not an interval: `{line}`", idx + 1));
            }
            None => {}
        }
    }
    if found.is_empty() { Err("it has no interval".to_owned()) } else { Ok(found) }
}

impl<'t> LogInterval<'t> {
    /// `Tag=A,0.127,1.007,2.769,HISTFAAA...`; the tag may be missing.
    fn parse(line: &'t str) -> Option<Self> {
        let (tag, rest) = match line.strip_prefix("Tag=").map(|rest| rest.split_once(',')) {
            None => (None, line),
            Some(both) => both.map(|(tag, rest)| (Some(tag), rest))?,
        };
        let fields: Vec<&str> = rest.splitn(5, ',').map(str::trim).collect();
        let [begin, length, _max, distribution] = fields[..] else { return None };
        let seconds = |field: &str| field.parse().ok().filter(|it: &f64| it.is_finite());
        let (begin_s, length_s) = (seconds(begin)?, seconds(length)?);
        let is_one = length_s >= 0.0 && distribution.starts_with(START);
        is_one.then_some(Self { tag, begin_s, length_s, distribution })
    }
}

/// The intervals of this tag, or of the only one.
fn of_tag<'t>(
    mut intervals: Vec<(usize, LogInterval<'t>)>,
    tag: Option<&str>,
) -> Result<Vec<(usize, LogInterval<'t>)>, String> {
    let tags: BTreeSet<Option<&str>> = intervals.iter().map(|(_, it)| it.tag).into_set();
    let names = || {
        let name = |tag: Option<&str>| {
            tag.map_or_else(
                || "none".to_owned(),
                |tag| format!("`{}`", tag.escape_debug().take(40).collect::<String>()),
            )
        };
        tags.iter().copied().take(SHOWN_TAGS).map(name).collect::<Vec<_>>().join(", ")
    };
    match tag {
        None if tags.len() > 1 => {
            Err(format!("it has distributions of several tags ({}): name one by `tag`", names()))
        }
        None => Ok(intervals),
        Some(tag) => {
            intervals.retain(|(_, interval)| interval.tag == Some(tag));
            if intervals.is_empty() {
                return Err(format!(
                    "it has no distribution of the tag `{tag}`; there are: {}",
                    names()
                ));
            }
            Ok(intervals)
        }
    }
}

/// Unpacks a compressed distribution of at most `left` bytes, and takes its size from `left`.
fn decompress_distribution(distribution: &str, left: &mut u64) -> Result<Vec<u8>, String> {
    let packed = STANDARD.decode(distribution).map_err(|error| format!("no base64: {error}"))?;
    let mut rest = ByteReader(&packed);
    let cookie = rest.read_u32()?;
    if cookie & !WORD_SIZE != COMPRESSED {
        return Err(format!(
            "a distribution of the form {cookie:#x}: only the compressed form V2 of whole numbers can be read"
        ));
    }
    let length = rest.read_u32()?;
    let packed = rest.take(length)?;
    let mut plain = Vec::new();
    let read = ZlibDecoder::new(packed).take(*left + 1).read_to_end(&mut plain);
    read.map_err(|error| format!("no zlib: {error}"))?;
    *left = left
        .checked_sub(plain.len() as u64)
        .ok_or_else(|| format!("all distributions have more than {MOST_BYTES} bytes unpacked"))?;
    Ok(plain)
}

/// Calls `record` with each value and its count. It tells of too many.
fn decode_counts(
    plain: &[u8],
    record: &mut impl FnMut(u64, u64) -> Option<()>,
) -> Result<(), String> {
    let mut rest = ByteReader(plain);
    let cookie = rest.read_u32()?;
    let length = rest.read_u32()?;
    let offset = rest.read_u32()?;
    let digits = rest.read_u32()?;
    let lowest = rest.read_u64()?;
    let _highest = rest.read_u64()?;
    let ratio = f64::from_bits(rest.read_u64()?);
    #[expect(clippy::float_cmp, reason = "it is written as 1 or means another form")]
    let is_plain = cookie & !WORD_SIZE == PLAIN && offset == 0 && ratio == 1.0;
    if !is_plain {
        return Err("a distribution of shifted or of fractional values".to_owned());
    }
    let shape =
        BucketLayout::new(lowest, digits).ok_or("a distribution of impossible precision")?;
    let mut rest = ByteReader(rest.take(length)?);
    let mut index = 0_u64;
    while !rest.0.is_empty() {
        let number = rest.zig_zag()?;
        if number < 0 {
            index = index.saturating_add(number.unsigned_abs());
            continue;
        }
        if number > 0 {
            let value = shape.bucket_middle(index).ok_or("a count beyond the largest value")?;
            record(value, number.unsigned_abs()).ok_or("more samples than can be counted")?;
        }
        index = index.saturating_add(1);
    }
    Ok(())
}

/// Which values share a count (`AbstractHistogram.init`).
struct BucketLayout {
    /// Binary digits of values that are not told apart at all.
    unit_bits: u32,
    /// Of the number of counts for each doubling of a value.
    half_bits: u32,
}

impl BucketLayout {
    /// Of the lowest value that is told from 0, and of significant decimal digits.
    fn new(lowest: u64, digits: u32) -> Option<Self> {
        if digits > 5 {
            return None;
        }
        let largest_single = 2 * 10_u64.pow(digits);
        let half_bits = largest_single.next_power_of_two().trailing_zeros() - 1;
        let unit_bits = lowest.checked_ilog2()?;
        (unit_bits + half_bits + 1 < u64::BITS).then_some(Self { unit_bits, half_bits })
    }

    /// The middle of the values of a count; `None` beyond 64 bits.
    fn bucket_middle(&self, index: u64) -> Option<u64> {
        let half = 1 << self.half_bits;
        let doublings = (index >> self.half_bits).saturating_sub(1);
        let step = if index < 2 * half { index } else { index % half + half };
        let bits = u32::try_from(doublings).ok()?.checked_add(self.unit_bits)?;
        // A step is below 2^(half_bits + 1).
        if bits + self.half_bits + 1 > u64::BITS {
            return None;
        }
        Some((step << bits) + ((1 << bits) >> 1))
    }
}

/// Bytes yet to be read, in network order.
struct ByteReader<'b>(&'b [u8]);

impl<'b> ByteReader<'b> {
    fn take(&mut self, length: u32) -> Result<&'b [u8], String> {
        let cut = self.0.split_at_checked(length as usize);
        let (taken, rest) = cut.ok_or("a distribution that is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn read_u32(&mut self) -> Result<u32, String> {
        Ok(self.take(4)?.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
    }

    fn read_u64(&mut self) -> Result<u64, String> {
        Ok(self.take(8)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    /// A signed number in 1 to 9 bytes, the last of which has all of its 8 digits (LEB128-64b9B, zigzag).
    fn zig_zag(&mut self) -> Result<i64, String> {
        let mut number = 0_u64;
        for idx in 0..9 {
            let byte = self.take(1)?[0];
            let is_last = idx == 8 || byte & 0x80 == 0;
            let bits = if idx == 8 { byte } else { byte & 0x7f };
            number |= u64::from(bits) << (7 * idx);
            if is_last {
                break;
            }
        }
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests;
