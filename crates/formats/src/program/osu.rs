//! OSU micro-benchmarks between two processes: a figure for each size of message.

use latput_trial::figures::{ProgramFigures, Text};
use latput_trial::metric::{PreferredDirection, Unit};

use super::found::{FigureCollector, US, to_count, whole_number};
use crate::read_error::ReadError;

/// OSU's megabyte is a million bytes.
const MEGABYTE_BITS: f64 = 8e6;
/// The most sizes of one run.
const MOST_SIZES: usize = 40;

/// `osu_latency`: microseconds, one way.
pub(super) fn read_latency(text: &Text) -> Result<ProgramFigures, ReadError> {
    let (unit, better) = (Unit::Nanoseconds, PreferredDirection::Lower);
    read_sizes(text, ["Latency", "(us)"], "osu_latency", unit, better, US)
}

/// `osu_bw`, `osu_bibw`: megabytes per second.
pub(super) fn read_bandwidth(text: &Text) -> Result<ProgramFigures, ReadError> {
    let (unit, better) = (Unit::BitsPerS, PreferredDirection::Higher);
    read_sizes(text, ["Bandwidth", "(MB/s)"], "osu_bw", unit, better, MEGABYTE_BITS)
}

fn read_sizes(
    text: &Text,
    title: [&str; 2],
    name: &str,
    unit: Unit,
    better: PreferredDirection,
    factor: f64,
) -> Result<ProgramFigures, ReadError> {
    // # Size          Latency (us)
    let is_head =
        |line: &&str| line.starts_with("# Size") && title.iter().all(|word| line.contains(word));
    let mut lines = text.as_str().lines().skip_while(|line| !is_head(line));
    lines
        .next()
        .ok_or_else(|| format!("the head `# Size ... {}` is not there", title.join(" ")))?;
    let mut found = FigureCollector::default();
    let mut known = 0;
    for line in lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<Option<f64>> =
            line.split_whitespace().take(2).map(whole_number).collect::<Result<_, _>>()?;
        let [Some(size), Some(value)] = words[..] else { break };
        let size = to_count(size).ok_or("the size of a message is not a whole number")?;
        if value == 0.0 {
            let problem = format!("the figure of {size} bytes is 0: nothing was done");
            return Err(ReadError::Failed(problem));
        }
        found.add_custom(&format!("{name}_{size}_bytes"), unit, better, Some(value * factor))?;
        known += 1;
        if known > MOST_SIZES {
            return Err(format!("it has more than {MOST_SIZES} sizes of messages").into());
        }
    }
    if known == 0 { Err("it has no line with a size and a figure".into()) } else { found.finish() }
}
