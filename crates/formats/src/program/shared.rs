//! iperf3 and netperf, whose files `latput import` reads as well.

use latput_trial::Metric;
use latput_trial::figures::{Parser, ProgramFigures, Text};

use super::found::Found;
use crate::parsed::{Problem, Test};

pub(super) fn iperf3(text: &Text) -> Result<ProgramFigures, String> {
    // What stands before and after the document is no JSON.
    let document = text.json()?;
    let bytes = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
    of_test(Parser::Iperf3, crate::iperf3::tests(&bytes))
}

pub(super) fn netperf(text: &Text) -> Result<ProgramFigures, String> {
    of_test(Parser::Netperf, crate::netperf::tests(text.as_str().as_bytes()))
}

fn of_test(parser: Parser, tests: Result<Vec<Test>, Problem>) -> Result<ProgramFigures, String> {
    let tests = tests.map_err(|problem| format!("{}{}", problem.place, problem.text))?;
    let [test] = &tests[..] else {
        return Err(format!("it has {} tests, where one is needed", tests.len()));
    };
    let traffic = test.workload.traffic;
    let mut found = Found::default();
    for metric in Metric::ALL.iter().filter(|metric| parser.row().gives.contains(&metric.name())) {
        found.may(*metric, metric.value(&traffic, &test.observation))?;
    }
    let mut read = found.finish();
    if read.metrics.is_empty() {
        return Err("it has no figures".to_owned());
    }
    read.transactions = test.observation.traffic.transactions;
    Ok(read)
}
