//! Real outputs with damaged figures: whatever is read of them keeps the rules of `latput_formats`, for every parser and
//! importer. `figure_rules` has the rules once more; the fuzz target `figures` uses it too.

mod figure_rules;

use std::path::Path;

use latput_formats::ImportFormat;
use latput_trial::figures::Parser;
use proptest::prelude::*;

use figure_rules::{FigureReader, FigureReading, broken_rule, read_all_figures};

/// The files of `tests`, and the reader of each.
const OUTPUTS: &[(FigureReader, &str)] = &[
    (FigureReader::Program(Parser::RedisBenchmark), "program/redis-benchmark-csv.txt"),
    (FigureReader::Program(Parser::Memtier), "program/memtier.txt"),
    (FigureReader::Program(Parser::Wrk), "program/wrk-errors.txt"),
    (FigureReader::Program(Parser::Wrk2), "program/wrk2.txt"),
    (FigureReader::Program(Parser::Pgbench), "program/pgbench-rate.txt"),
    (FigureReader::Program(Parser::Fio), "program/fio-plus.json"),
    (FigureReader::Program(Parser::Fio), "program/fio-jobs.json"),
    (FigureReader::Program(Parser::Sockperf), "program/sockperf.txt"),
    (FigureReader::Program(Parser::Sockperf), "program/sockperf-tp.txt"),
    (FigureReader::Program(Parser::Netperf), "program/netperf.txt"),
    (FigureReader::Program(Parser::Netperf), "cases/netperf-crr-keyval.txt"),
    (FigureReader::Program(Parser::Iperf3), "program/iperf3.json"),
    (FigureReader::Program(Parser::Iperf3), "program/iperf3-udp.json"),
    (FigureReader::Program(Parser::Ping), "program/ping.txt"),
    (FigureReader::Program(Parser::Ping), "program/ping-q.txt"),
    (FigureReader::Program(Parser::Hey), "program/hey-404.txt"),
    (FigureReader::Program(Parser::Oha), "program/oha.json"),
    (FigureReader::Program(Parser::K6), "program/k6.json"),
    (FigureReader::Program(Parser::K6), "cases/k6-machine-readable.json"),
    (FigureReader::Program(Parser::OsuLatency), "program/osu_latency.txt"),
    (FigureReader::Program(Parser::OsuBandwidth), "program/osu_bw.txt"),
    (FigureReader::Program(Parser::Fping), "program/fping.txt"),
    (FigureReader::Program(Parser::Fping), "program/fping-count.txt"),
    (FigureReader::Program(Parser::Qperf), "program/qperf.txt"),
    (FigureReader::Program(Parser::Qperf), "program/qperf-bw.txt"),
    (FigureReader::Program(Parser::Neper), "program/neper-rr.txt"),
    (FigureReader::Program(Parser::Neper), "program/neper-stream.txt"),
    (FigureReader::Program(Parser::Uperf), "program/uperf.txt"),
    (FigureReader::Import(ImportFormat::Iperf3), "program/iperf3.json"),
    (FigureReader::Import(ImportFormat::Iperf3), "program/iperf3-udp.json"),
    (FigureReader::Import(ImportFormat::Iperf3), "cases/iperf3-server-reverse.json"),
    (FigureReader::Import(ImportFormat::Netperf), "program/netperf.txt"),
    (FigureReader::Import(ImportFormat::Netperf), "cases/netperf-crr-keyval.txt"),
    (FigureReader::Import(ImportFormat::Netperf), "cases/netperf-crr-classic.txt"),
    (FigureReader::Import(ImportFormat::Netperf), "cases/netperf-rr-keyval.txt"),
    (FigureReader::Import(ImportFormat::Netperf), "cases/netperf-udp-stream.txt"),
    (FigureReader::Import(ImportFormat::Netperf), "cases/netperf-bytes.txt"),
    (FigureReader::Import(ImportFormat::Flent), "cases/flent-uneven.flent"),
    (FigureReader::Import(ImportFormat::Flent), "cases/flent-udp-flood.flent"),
];

fn text_of(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    std::fs::read_to_string(path).expect("a file of this folder")
}

/// Spans of the numbers of a text.
fn find_numbers(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut start = None;
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        match (letter.is_ascii_digit() || letter == '.', start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                spans.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    spans
}

/// Replacements of a number.
fn damage_number(number: &str, damage: usize) -> String {
    let scaled = |factor: f64| match number.parse::<f64>() {
        Ok(value) if number.contains('.') => format!("{:.3}", value * factor),
        Ok(value) => format!("{:.0}", value * factor),
        Err(_) => number.to_owned(),
    };
    match damage {
        0 => "0".to_owned(),
        1 => "0.00".to_owned(),
        2 => "nan".to_owned(),
        3 => "-nan".to_owned(),
        4 => "inf".to_owned(),
        5 => "-1".to_owned(),
        6 => "1e999".to_owned(),
        7 => scaled(1000.0),
        8 => scaled(0.001),
        9 => scaled(2.0),
        10 => scaled(0.5),
        11 => "1e30".to_owned(),
        _ => String::new(),
    }
}

#[test]
fn undamaged_outputs_break_no_rule() {
    for (reader, name) in OUTPUTS {
        let read = read_all_figures(*reader, text_of(name).as_bytes());
        assert_eq!(read.len(), 1, "{name}");
        assert_eq!(broken_rule(&read[0]), None, "{name}: {:?}", read[0].metrics);
    }
}

/// Every number with decimals of every text, with a comma instead of the point.
#[test]
fn decimal_comma_changes_no_figure() {
    for (reader, name) in
        OUTPUTS.iter().filter(|(_, name)| !name.contains(".json") && !name.contains(".flent"))
    {
        let text = text_of(name);
        let plain = read_all_figures(*reader, text.as_bytes());
        for (start, end) in find_numbers(&text) {
            let comma = text[start..end].replacen('.', ",", 1);
            let changed = [&text[..start], &comma, &text[end..]].concat();
            let read = read_all_figures(*reader, changed.as_bytes());
            let is_known = |of: &FigureReading| {
                of.metrics.iter().all(|(metric, value)| plain[0].metrics.get(metric) == Some(value))
            };
            assert!(read.iter().all(is_known), "{name}: {comma}: {read:?}");
        }
    }
}

/// Every number of every output, with each damage.
#[test]
fn one_damaged_figure_breaks_no_rule() {
    let mut broken: Vec<String> = Vec::new();
    for (reader, name) in OUTPUTS {
        let text = text_of(name);
        for (start, end) in find_numbers(&text) {
            for damage in 0..13 {
                let number = &text[start..end];
                let hostile =
                    [&text[..start], &damage_number(number, damage), &text[end..]].concat();
                for read in read_all_figures(*reader, hostile.as_bytes()) {
                    let line = text[..start].rsplit('\n').next().unwrap_or_default();
                    let why = broken_rule(&read);
                    broken.extend(why.map(|why| {
                        format!(
                            "{reader:?} {name}: {line}[{number} -> {}]: {why}",
                            damage_number(number, damage)
                        )
                    }));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    /// Several damaged figures, and lines that are missing or stand there twice.
    #[test]
    fn damaged_outputs_break_no_rule(
        at in proptest::sample::select(OUTPUTS),
        damages in proptest::collection::vec((0.0..1.0_f64, 0usize..13), 1..5),
        lines in proptest::collection::vec((0.0..1.0_f64, proptest::bool::ANY), 0..3),
    ) {
        let mut text = text_of(at.1);
        for (place, damage) in damages {
            let spans = find_numbers(&text);
            if spans.is_empty() { continue }
            let (start, end) = spans[index(place, spans.len())];
            let instead = damage_number(&text[start..end], damage);
            text.replace_range(start..end, &instead);
        }
        let mut all: Vec<&str> = text.split_inclusive('\n').collect();
        for (place, is_twice) in lines {
            if all.is_empty() { continue }
            let idx = index(place, all.len());
            if is_twice { all.insert(idx, all[idx]) } else { all.remove(idx); }
        }
        let hostile = all.concat();
        for read in read_all_figures(at.0, hostile.as_bytes()) {
            let why = broken_rule(&read);
            prop_assert!(why.is_none(), "{} of\n{hostile}\n{:?}", why.unwrap_or_default(), read.metrics);
        }
    }

    /// The encoding of a file changes nothing.
    #[test]
    fn encodings_give_the_same_figures(at in proptest::sample::select(OUTPUTS)) {
        let text = text_of(at.1);
        let plain = read_all_figures(at.0, text.as_bytes());
        let marked = ["\u{feff}", &text].concat();
        let utf16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let windows = text.replace('\n', "\r\n");
        for bytes in [marked.as_bytes(), &utf16, windows.as_bytes()] {
            prop_assert_eq!(&read_all_figures(at.0, bytes), &plain);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a share of a length")]
fn index(place: f64, length: usize) -> usize {
    ((place * length as f64) as usize).min(length - 1)
}
