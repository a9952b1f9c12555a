//! iperf3 and netperf, whose files `latput import` reads as well.

use latput_trial::Metric;
use latput_trial::figures::{Parser, ProgramFigures, Text};

use super::found::FigureCollector;
use super::is_coarse;
use crate::parsed::{ParseProblem, ParsedTest, ParsedTests};
use crate::read_error::ReadError;

pub(super) fn read_iperf3(text: &Text) -> Result<ProgramFigures, ReadError> {
    of_test(Parser::Iperf3, crate::iperf3::parse_tests(text.as_str()))
}

pub(super) fn read_netperf(text: &Text) -> Result<ProgramFigures, ReadError> {
    of_test(Parser::Netperf, crate::netperf::parse_tests(text.as_str()))
}

fn of_test(
    parser: Parser,
    tests: Result<ParsedTests, ParseProblem>,
) -> Result<ProgramFigures, ReadError> {
    let mut tests = tests.map_err(|problem| problem.to_string())?;
    tests.drop_repeated();
    let mut tests = tests.tests;
    if tests.len() > 1 {
        return Err(format!("it has {} tests, where one is needed", tests.len()).into());
    }
    let test: ParsedTest =
        tests.pop().ok_or("it has no test")?.map_err(ParseProblem::into_error)?;
    let traffic = test.workload.traffic;
    let mut found = FigureCollector::default();
    if is_coarse(parser) {
        found.mark_coarse();
    }
    for metric in Metric::ALL.iter().filter(|metric| parser.row().gives.contains(&metric.name())) {
        found.add_optional(*metric, metric.value(&traffic, &test.observation))?;
    }
    found.set_transactions(test.observation.traffic.transactions)?;
    let read = found.finish()?;
    if read.metrics.is_empty() {
        return Err("it has no figures".into());
    }
    Ok(read)
}
