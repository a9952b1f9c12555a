//! neper's `tcp_rr`, `udp_rr`, `tcp_crr`, `tcp_stream` and `udp_stream`: lines of `KEY=VALUE`, times in seconds.

use latput_trial::Metric;
use latput_trial::figures::{ProgramFigures, Text};

use super::found::{FigureCollector, S, number_after_label, to_count};
use crate::read_error::ReadError;

pub(super) fn read(text: &Text) -> Result<ProgramFigures, ReadError> {
    let value = |key: &str| number_after_label(text, &format!("{key}="));
    let mut found = FigureCollector::default();
    let Some(transactions) = value("num_transactions")? else {
        // Each end counts what it read itself and is told what the other one read; both are received.
        let read = value("local_throughput")?.zip(value("remote_throughput")?);
        let read = read.map(|(here, there)| here + there);
        found.add_required(
            Metric::ThroughputBps,
            read,
            "`local_throughput=` and `remote_throughput=`",
        )?;
        return found.finish();
    };
    found.set_transactions(to_count(transactions))?;
    // The slope of its samples. Its count and time have the start in them, so they are not compared.
    let rate = value("throughput")?;
    found.add_required(Metric::TransactionsPerS, rate, "`throughput=`")?;
    if let Some((rate, told)) = rate.zip(value("local_throughput")?)
        && (rate - told).abs() > 1.0
    {
        return Err(ReadError::Contradiction(format!(
            "its throughput {rate} is not its local_throughput {told}"
        )));
    }
    let seconds = |key: &str| -> Result<Option<f64>, ReadError> { Ok(value(key)?.map(|s| s * S)) };
    found.set_min_latency(seconds("latency_min")?);
    found.add_required(Metric::LatencyNsMean, seconds("latency_mean")?, "`latency_mean=`")?;
    found.add_required(Metric::LatencyNsMax, seconds("latency_max")?, "`latency_max=`")?;
    for (name, percent) in [("50", 50.0), ("90", 90.0), ("99", 99.0), ("99.9", 99.9)] {
        if let Some(ns) = seconds(&format!("latency_p{name}"))? {
            found.add_percentile(percent, ns)?;
        }
    }
    found.finish()
}
