//! The rules that the figures of every program keep, whatever its format.
//!
//! A figure that contradicts another is no figure: which of the two is wrong cannot be told. A program that completed
//! nothing has no latency, no share and no rate. The rules are applied once, behind all parsers and importers.

use std::collections::BTreeMap;

use latput_trial::check::FEW_OBSERVATIONS;
use latput_trial::{Check, Metric};

use crate::read_error::ReadError;

/// Figures that grow in this order.
const ASCENDING: &[&[Metric]] = &[
    &[
        Metric::LatencyNsP50,
        Metric::LatencyNsP90,
        Metric::LatencyNsP99,
        Metric::LatencyNsP999,
        Metric::LatencyNsMax,
    ],
    &[Metric::ProbeNsMin, Metric::ProbeNsP99, Metric::ProbeNsMax],
];
/// A mean, and its minimum where it is a metric, and its maximum.
const MEANS: &[(Metric, Option<Metric>, Metric)] = &[
    (Metric::LatencyNsMean, None, Metric::LatencyNsMax),
    (Metric::ProbeNsMean, Some(Metric::ProbeNsMin), Metric::ProbeNsMax),
];
/// The rates of which one above 0 says that anything was done.
const RATES: &[(Metric, &str)] = &[
    (Metric::TransactionsPerS, "no request was answered"),
    (Metric::ThroughputBps, "no data arrived"),
];
/// Share by which figures may contradict each other: programs keep percentiles in bins of up to 1%.
const BIN: f64 = 0.02;
/// Share by which bytes, a time and a rate may differ: programs print times in steps of 10 ms, and begin to count at
/// other moments than the clock.
const COUNTING: f64 = 0.1;

/// The figures of one test, as the rules read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims<'a> {
    /// Figures by metric.
    pub(crate) metrics: &'a BTreeMap<Metric, f64>,
    /// The shortest latency, which has no metric of its own, in nanoseconds.
    pub(crate) least_ns: Option<f64>,
    /// Completed transactions.
    pub(crate) transactions: Option<u64>,
}

impl Claims<'_> {
    /// Refuses figures that say nothing, or contradict each other.
    pub(crate) fn check(&self) -> Result<(), ReadError> {
        self.check_anything_done()?;
        self.check_order()?;
        self.check_means()
    }

    fn get(&self, metric: Metric) -> Option<f64> {
        self.metrics.get(&metric).copied()
    }

    fn check_anything_done(&self) -> Result<(), ReadError> {
        if self.transactions == Some(0) {
            return Err(ReadError::nothing_done());
        }
        let nothing = RATES.iter().find(|(rate, _)| self.get(*rate) == Some(0.0));
        nothing.map_or(Ok(()), |(_, said)| Err(ReadError::Failed((*said).to_owned())))
    }

    fn check_order(&self) -> Result<(), ReadError> {
        for chain in ASCENDING {
            let known = chain.iter().filter_map(|metric| Some((*metric, self.get(*metric)?)));
            let known: Vec<(Metric, f64)> = known.collect();
            for pair in known.windows(2) {
                let [(small, less), (large, more)] = [pair[0], pair[1]];
                if less > more * (1.0 + BIN) {
                    return Err(contradiction(small, less, "above", large.name(), more));
                }
            }
        }
        Ok(())
    }

    fn check_means(&self) -> Result<(), ReadError> {
        for (mean, least, most) in MEANS {
            let Some(value) = self.get(*mean) else { continue };
            if let Some(most_value) = self.get(*most).filter(|most| value > most * (1.0 + BIN)) {
                return Err(contradiction(*mean, value, "above", most.name(), most_value));
            }
            let least = least.map_or(self.least_ns, |least| self.get(least));
            if let Some(least) = least.filter(|least| value < least * (1.0 - BIN)) {
                return Err(contradiction(*mean, value, "below", "the minimum", least));
            }
            let zero = ASCENDING[0].iter().find(|metric| self.get(**metric) == Some(0.0));
            if let Some(zero) = zero.filter(|_| *mean == Metric::LatencyNsMean && value > 0.0) {
                return Err(contradiction(*zero, 0.0, "beside", mean.name(), value));
            }
        }
        let first = self.get(Metric::LatencyNsP50);
        if let Some((first, least)) =
            first.zip(self.least_ns).filter(|(first, least)| *first < least * (1.0 - BIN))
        {
            return Err(contradiction(Metric::LatencyNsP50, first, "below", "the minimum", least));
        }
        Ok(())
    }
}

/// The check that marks percentiles of too few observations; `None` where there is none of them.
pub fn few_observations(
    metrics: &BTreeMap<Metric, f64>,
    transactions: Option<u64>,
) -> Option<Check> {
    let done = transactions?;
    let too_few = |metric: &Metric| {
        let needed = metric.needed_observations().filter(|needed| done < *needed)?;
        Some(format!("`{metric}` needs {needed}"))
    };
    let names: Vec<String> = metrics.keys().filter_map(too_few).collect();
    (!names.is_empty()).then(|| Check {
        name: FEW_OBSERVATIONS.to_owned(),
        passed: false,
        detail: format!("{done} transactions are too few; {}", names.join(", ")),
    })
}

fn contradiction(one: Metric, value: f64, how: &str, other: &str, other_value: f64) -> ReadError {
    ReadError::Contradiction(format!(
        "`{one}` ({value:.0}) is {how} `{other}` ({other_value:.0}), which is impossible"
    ))
}

/// Compares a printed rate with the bytes and the time beside it.
pub(crate) fn check_bytes(bytes: f64, seconds: f64, bits_per_s: f64) -> Result<(), ReadError> {
    let counted = bytes * 8.0 / seconds;
    if seconds <= 0.0 || (counted - bits_per_s).abs() <= COUNTING * counted.max(bits_per_s) {
        return Ok(());
    }
    Err(ReadError::Contradiction(format!(
        "its {bytes:.0} bytes in {seconds:.3} s do not give its {bits_per_s:.0} bit/s"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(metrics: &[(Metric, f64)], transactions: Option<u64>) -> Result<(), ReadError> {
        let metrics = metrics.iter().copied().collect();
        Claims { metrics: &metrics, least_ns: Some(10e3), transactions }.check()
    }

    #[track_caller]
    fn check_refused(metrics: &[(Metric, f64)], transactions: Option<u64>, part: &str) {
        let error = check(metrics, transactions).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn agreeing_figures_pass() {
        let metrics = [
            (Metric::TransactionsPerS, 1000.0),
            (Metric::LatencyNsP50, 50e3),
            (Metric::LatencyNsP99, 101e3),
            (Metric::LatencyNsMax, 100e3),
            (Metric::LatencyNsMean, 52e3),
        ];
        check(&metrics, Some(1000)).unwrap();
        check(&metrics, None).unwrap();
    }

    #[test]
    fn contradictions_name_both_figures() {
        let (p50, p99, max) = (Metric::LatencyNsP50, Metric::LatencyNsP99, Metric::LatencyNsMax);
        let mean = Metric::LatencyNsMean;
        check_refused(
            &[(p50, 70e3), (p99, 50e3)],
            None,
            "`latency_ns_p50` (70000) is above `latency_ns_p99`",
        );
        check_refused(&[(p50, 70e3), (max, 50e3)], None, "above `latency_ns_max`");
        check_refused(&[(mean, 70e3), (max, 50e3)], None, "above `latency_ns_max`");
        check_refused(&[(mean, 5e3)], None, "below `the minimum`");
        check_refused(&[(p50, 5e3)], None, "below `the minimum`");
        check_refused(&[(mean, 50e3), (p99, 0.0)], None, "`latency_ns_p99` (0) is beside");
        assert!(check_bytes(1e6, 1.0, 8e6).is_ok() && check_bytes(1e6, 1.0, 9e6).is_err());
    }

    #[test]
    fn test_without_operations_has_no_figures() {
        check_refused(&[(Metric::LatencyNsP99, 50e3)], Some(0), "no request was answered");
        check_refused(&[(Metric::TransactionsPerS, 0.0)], None, "no request was answered");
        check_refused(&[(Metric::ThroughputBps, 0.0)], None, "no data arrived");
    }

    #[test]
    fn percentiles_of_few_observations_are_marked() {
        let metrics = [(Metric::LatencyNsP99, 1e3), (Metric::LatencyNsP999, 1e3)].into();
        let few = |transactions| few_observations(&metrics, Some(transactions)).map(|it| it.detail);
        assert!(few(99).unwrap().contains("`latency_ns_p99` needs 100"));
        assert_eq!(few(100).unwrap(), "100 transactions are too few; `latency_ns_p999` needs 1000");
        assert_eq!(few(1000), None);
    }
}
