//! The rules of `latput_formats` in other words: a rule that is missing there would not be missed. The tests of damaged
//! outputs and the fuzz target `figures` judge by them.

use latput_formats::program::read;
use latput_formats::{ImportFormat, import_files};
use latput_stats::Histogram;
use latput_trial::figures::{Figures, Output, Parser, ProgramFigures, Text};
use latput_trial::{Metric, Row, Workload};
use latput_units::{IntoMap, Nanos};

mod told;

use told::IndependentCounts;

/// The reader of an output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FigureReader {
    /// A parser of a program's output.
    Program(Parser),
    /// An importer.
    Import(ImportFormat),
}

/// Figures that a reader made of an output, beside those that a second reader finds in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FigureReading {
    figures: ProgramFigures,
    told: IndependentCounts,
}

impl std::ops::Deref for FigureReading {
    type Target = ProgramFigures;

    fn deref(&self) -> &ProgramFigures {
        &self.figures
    }
}

/// The figures of every test that is read, in the form of a program's.
pub(crate) fn read_all_figures(reader: FigureReader, bytes: &[u8]) -> Vec<FigureReading> {
    let all = read_figures(reader, bytes);
    // Of several tests it would be known of none which one is meant.
    let told = if all.len() == 1 {
        IndependentCounts::new(reader, bytes)
    } else {
        IndependentCounts::default()
    };
    all.into_iter().map(|figures| FigureReading { figures, told: told.clone() }).collect()
}

fn read_figures(reader: FigureReader, bytes: &[u8]) -> Vec<ProgramFigures> {
    match reader {
        FigureReader::Program(parser) => {
            let figures = Figures { parser: Some(parser), ..Figures::default() };
            let output = Output { stdout: Text::from_bytes(bytes), ..Output::default() };
            read(&figures, &output).into_iter().collect()
        }
        FigureReader::Import(format) => {
            let read = import_files(format, &[("file".to_owned(), bytes.to_vec())]);
            let of_run = |read: latput_formats::ImportOutcome| {
                let workload = |row: &Row| read.results.workloads[row.workload].clone();
                let rows = read.results.rows.iter();
                let all = rows.filter(|row| {
                    row.observation.programs.is_empty() || has_figures(row, &workload(row))
                });
                all.map(|row| of_row(row, &workload(row))).collect()
            };
            read.map(of_run).unwrap_or_default()
        }
    }
}

/// A server's document may have nothing but the CPU time of its program.
fn has_figures(row: &Row, workload: &Workload) -> bool {
    !of_row(row, workload).metrics.is_empty()
}

fn of_row(row: &Row, workload: &Workload) -> ProgramFigures {
    let of = &row.observation;
    let known = |metric: &Metric| Some((*metric, metric.value(&workload.traffic, of)?));
    ProgramFigures {
        metrics: Metric::ALL.iter().filter_map(known).into_map(),
        latency: of.traffic.latency.clone(),
        transactions: of.traffic.transactions,
        window: (of.traffic.sender_window.as_ns() > 0).then_some(of.traffic.sender_window),
        ..ProgramFigures::default()
    }
}

fn value_of(read: &ProgramFigures, name: &str) -> Option<f64> {
    let named = read.metrics.iter().find(|(metric, _)| metric.name() == name);
    named.map(|(_, value)| *value)
}

/// The rule that figures break.
pub(crate) fn broken_rule(read: &FigureReading) -> Option<String> {
    broken_by_figures(&read.figures).or_else(|| read.told.broken_by(&read.figures))
}

fn broken_by_figures(read: &ProgramFigures) -> Option<String> {
    let value = |name: &str| value_of(read, name);
    if let Some((metric, value)) =
        read.metrics.iter().find(|(_, value)| !value.is_finite() || **value < 0.0)
    {
        return Some(format!("{metric} is {value}"));
    }
    if read.metrics.is_empty() {
        return Some("nothing is known".to_owned());
    }
    // A user of several CPUs has more than a whole one only as a process, which is no metric.
    let share =
        |(metric, value): &(&Metric, &f64)| metric.name().ends_with("_ratio") && **value > 1.0;
    if let Some((metric, value)) = read.metrics.iter().find(share) {
        return Some(format!("{metric} is {value}"));
    }
    // Nothing done, nothing known.
    let is_zero = |name: &&&str| value(name) == Some(0.0);
    let positive = [
        "transactions_per_s",
        "throughput_bps",
        "throughput_to_sut_bps",
        "throughput_from_sut_bps",
        "messages_per_s",
        "sent_bps",
        "latency_ns_mean",
        "latency_ns_p50",
        "latency_ns_p90",
        "latency_ns_p99",
        "latency_ns_p999",
        "latency_ns_max",
        "probe_ns_mean",
        "probe_ns_max",
    ];
    if let Some(name) = positive.iter().find(is_zero) {
        return Some(format!("{name} is 0"));
    }
    let sizes = |metric: &&Metric| metric.name().starts_with("osu_");
    if let Some(metric) = read.metrics.keys().find(|it| sizes(it) && read.metrics[it] == 0.0) {
        return Some(format!("{metric} is 0"));
    }
    if read.transactions == Some(0) {
        return Some("no transaction".to_owned());
    }
    let others = ["latency_ns_mean", "jitter_ns", "throughput_bps"];
    if value("loss_ratio") == Some(1.0) && others.iter().any(|name| value(name).is_some()) {
        return Some("figures of what was lost".to_owned());
    }
    find_disagreement(read)
}

/// The figures that do not agree.
fn find_disagreement(read: &ProgramFigures) -> Option<String> {
    let value = |name: &str| value_of(read, name);
    let order =
        ["latency_ns_p50", "latency_ns_p90", "latency_ns_p99", "latency_ns_p999", "latency_ns_max"];
    let known: Vec<f64> = order.iter().filter_map(|name| value(name)).collect();
    if !known.windows(2).all(|pair| pair[0] <= pair[1] * 1.021) {
        return Some(format!("percentiles {known:?}"));
    }
    let histogram = read.latency.as_ref();
    let least = histogram.and_then(Histogram::min).map(|ns| ns.as_ns() as f64);
    let most = histogram.and_then(Histogram::max).map(|ns| ns.as_ns() as f64);
    let stated = value("latency_ns_max");
    if let Some(mean) = value("latency_ns_mean") {
        // Times of netperf and hey may be twice the true ones.
        if value("latency_ns_p50").is_some_and(|median| mean * 2.05 < median / 2.0) {
            return Some(format!("mean {mean} below half of the median"));
        }
        if [stated, most].iter().flatten().any(|most| mean > most * 1.021) {
            return Some(format!("mean {mean} above the maximum"));
        }
        if least.is_some_and(|least| mean < least * 0.979) {
            return Some(format!("mean {mean} below the minimum"));
        }
    }
    if most.zip(stated).is_some_and(|(most, stated)| most > stated * 1.021) {
        return Some("a value above the maximum".to_owned());
    }
    if let Some((counted, done)) = histogram.map(Histogram::count).zip(read.transactions)
        && counted as f64 > done as f64 * 1.12
    {
        return Some(format!("{counted} latencies of {done} transactions"));
    }
    let window = read.window.map(Nanos::as_secs_f64).filter(|seconds| *seconds >= 0.1);
    if let Some(((rate, done), seconds)) =
        value("transactions_per_s").zip(read.transactions).zip(window)
    {
        let counted = done as f64 / seconds;
        if done >= 100 && (counted - rate).abs() > 0.12 * counted.max(rate) {
            return Some(format!("{done} in {seconds} s at {rate} /s"));
        }
    }
    None
}
