//! iperf3 and netperf, whose files `latput import` reads as well.

use latput_trial::Metric;
use latput_trial::figures::{Parser, ProgramFigures, Text};

use super::found::Found;
use crate::parsed::{Problem, Test, Tests};
use crate::read_error::ReadError;

pub(super) fn iperf3(text: &Text) -> Result<ProgramFigures, ReadError> {
    of_test(Parser::Iperf3, crate::iperf3::tests(text.as_str()))
}

pub(super) fn netperf(text: &Text) -> Result<ProgramFigures, ReadError> {
    of_test(Parser::Netperf, crate::netperf::tests(text.as_str()))
}

fn of_test(parser: Parser, tests: Result<Tests, Problem>) -> Result<ProgramFigures, ReadError> {
    let mut tests = tests.map_err(|problem| problem.to_string())?;
    tests.drop_repeated();
    let mut tests = tests.tests;
    if tests.len() > 1 {
        return Err(format!("it has {} tests, where one is needed", tests.len()).into());
    }
    let test: Test = tests.pop().ok_or("it has no test")?.map_err(Problem::into_error)?;
    let traffic = test.workload.traffic;
    let mut found = Found::default();
    for metric in Metric::ALL.iter().filter(|metric| parser.row().gives.contains(&metric.name())) {
        found.may(*metric, metric.value(&traffic, &test.observation))?;
    }
    found.transactions(test.observation.traffic.transactions)?;
    let read = found.finish()?;
    if read.metrics.is_empty() {
        return Err("it has no figures".into());
    }
    Ok(read)
}
