//! The figures that programs print: one parser to a program, and the plan's own figures.
//!
//! A parser gives latput's metrics where the meaning is the same, and metrics of its own elsewhere.
//! [`Parser::row`] says which, and a test compares.

mod fio;
mod found;
mod fping;
mod hdr;
mod hey;
mod k6;
mod memtier;
mod neper;
mod oha;
mod osu;
mod pgbench;
mod ping;
mod qperf;
mod redis;
mod shared;
mod sockperf;
mod uperf;
mod wrk;

use crate::read_error::ReadError;
use crate::rules::{StatedFigures, TestFigures};
use latput_trial::figures::{Figures, FiguresError, Output, Parser, ProgramFigures, Source, Text};

/// Reads everything that `figures` asks for. Where several give one metric, the plan's own counts, then the log of
/// `HdrHistogram`.
///
/// Fails where a figure is missing, not finite or ambiguous.
pub fn read(figures: &Figures, output: &Output) -> Result<ProgramFigures, FiguresError> {
    let mut read = match figures.parser {
        None => ProgramFigures::default(),
        // Its summary is on standard error.
        Some(Parser::Fping) => parse(Parser::Fping, &output.both())
            .map_err(|problem| parser_error(Parser::Fping, &problem, output))?,
        Some(parser) => parse(parser, &output.stdout)
            .map_err(|problem| parser_error(parser, &problem, output))?,
    };
    if let Some(log) = &figures.histogram {
        let error =
            |problem: String| FiguresError::new("log of HdrHistogram", problem, output, &log.from);
        let text = output.text(&log.from).ok_or_else(|| error("it is not there".to_owned()))?;
        let logged = hdr::read(log, text).map_err(|problem| error(problem.to_string()))?;
        read.metrics.extend(logged.metrics);
        read.latency = logged.latency;
        read.transactions = read.transactions.or(logged.transactions);
        read.window = read.window.or(logged.window);
    }
    read.metrics.extend(figures.read_own(output)?);
    // A plan's own figures and those of a log keep the rules too.
    let is_coarse = figures.parser.is_some_and(is_coarse);
    let beside = StatedFigures { is_coarse, ..StatedFigures::default() };
    let claims = TestFigures {
        beside: Some(&beside),
        transactions: read.transactions,
        ..TestFigures::new(&read.metrics)
    };
    claims.check_all().map_err(|problem| {
        FiguresError::new("figures", problem.to_string(), output, &Source::Stdout)
    })?;
    Ok(read)
}

fn parse(parser: Parser, text: &Text) -> Result<ProgramFigures, ReadError> {
    let read = match parser {
        Parser::RedisBenchmark => redis::read,
        Parser::Memtier => memtier::read,
        Parser::Wrk | Parser::Wrk2 => wrk::read,
        Parser::Pgbench => pgbench::read,
        Parser::Fio => fio::read,
        Parser::Sockperf => sockperf::read,
        Parser::Netperf => shared::read_netperf,
        Parser::Iperf3 => shared::read_iperf3,
        Parser::Ping => ping::read,
        Parser::Hey => hey::read,
        Parser::Oha => oha::read,
        Parser::K6 => k6::read,
        Parser::OsuLatency => osu::read_latency,
        Parser::OsuBandwidth => osu::read_bandwidth,
        Parser::Fping => fping::read,
        Parser::Qperf => qperf::read,
        Parser::Neper => neper::read,
        Parser::Uperf => uperf::read,
    };
    read(text)
}

/// Whether the times of a program are in steps or bins as wide as themselves.
const fn is_coarse(parser: Parser) -> bool {
    matches!(parser, Parser::Hey | Parser::Netperf)
}

fn parser_error(parser: Parser, problem: &ReadError, output: &Output) -> FiguresError {
    let needs = parser.row().needs;
    let remedy = if needs.is_empty() || !matches!(problem, ReadError::Form(_)) {
        String::new()
    } else {
        format!(" (it needs {needs})")
    };
    let problem = format!("{problem}{remedy}");
    FiguresError::new(format!("output of {parser}"), problem, output, &Source::Stdout)
}
