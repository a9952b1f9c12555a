//! The rules that the figures of every program keep, whatever its format.
//!
//! A figure that contradicts another is no figure: which of the two is wrong cannot be told. A program that completed
//! nothing has no latency, no share and no rate. The rules are applied once, behind all parsers and importers.

use std::collections::BTreeMap;

use latput_stats::Histogram;
use latput_trial::check::FEW_OBSERVATIONS;
use latput_trial::{Check, Metric, Observation};

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
/// Percentiles with the share of observations that are no longer.
const SHARES: &[(Metric, f64)] = &[
    (Metric::LatencyNsP50, 0.5),
    (Metric::LatencyNsP90, 0.9),
    (Metric::LatencyNsP99, 0.99),
    (Metric::LatencyNsP999, 0.999),
];
/// Observations of a program that does not tell their number, at least.
const UNTOLD_COUNT: f64 = 100.0;
/// The rates of which one above 0 says that anything was done.
const RATES: &[(Metric, &str)] = &[
    (Metric::TransactionsPerS, "no request was answered"),
    (Metric::ThroughputBps, "no data arrived"),
    (Metric::ThroughputToSutBps, "no data arrived at the system under test"),
    (Metric::ThroughputFromSutBps, "no data arrived from the system under test"),
];
/// Share by which figures may contradict each other: programs keep percentiles in bins of up to 1%.
pub(crate) const BIN: f64 = 0.02;
/// The same of programs with coarse times: netperf has ten bins to a decade, hey prints steps of 100 us.
const COARSE: f64 = 1.0;
/// Difference of two losses that say the same: programs print whole percents.
const PERCENT: f64 = 0.0101;
/// Figures of what was done, which are never 0.
const POSITIVE: &[Metric] = &[
    Metric::LatencyNsMean,
    Metric::LatencyNsP50,
    Metric::LatencyNsP90,
    Metric::LatencyNsP99,
    Metric::LatencyNsP999,
    Metric::LatencyNsMax,
    Metric::ProbeNsMean,
    Metric::ProbeNsMax,
];
/// Figures that only what arrived has.
const OF_ARRIVED: &[Metric] = &[Metric::LatencyNsMean, Metric::ThroughputBps, Metric::JitterNs];
/// Share by which bytes, a time and a rate may differ: programs print times in steps of 10 ms, and begin to count at
/// other moments than the clock.
pub(crate) const COUNTING: f64 = 0.1;
/// Figures with so many significant digits together are not the same in two tests by chance.
const TELLING_DIGITS: usize = 10;
/// Counts and times below these are too coarse to compare a rate with.
const COMPARABLE_COUNT: u64 = 100;
pub(crate) const COMPARABLE_SECONDS: f64 = 0.1;
/// Bytes of a full segment at least: hosts reckon with 536 where they know nothing of the path (RFC 9293, 3.7.1).
const LEAST_SEGMENT: u64 = 536;
/// Times that Linux sends one segment again before it gives up (`tcp_retries2`).
const MOST_REPEATS: u64 = 15;

/// Something that was sent, and what of it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryCounts {
    /// The word for it: `packets`.
    pub(crate) counted: &'static str,
    pub(crate) sent: f64,
    pub(crate) arrived: f64,
    /// The share that the program says was lost.
    pub(crate) stated_loss: Option<f64>,
    /// Share by which more may have arrived, as of ends that do not begin to count at one moment.
    pub(crate) slack: f64,
}

impl DeliveryCounts {
    /// Packets without a stated loss.
    pub(crate) const fn from_packets(sent: f64, arrived: f64) -> Self {
        Self { counted: "packets", sent, arrived, stated_loss: None, slack: 0.0 }
    }

    /// The share that was lost.
    pub(crate) fn loss_ratio(&self) -> f64 {
        (1.0 - self.arrived / self.sent).max(0.0)
    }

    /// Refuses more than was sent, and a stated loss that the counts do not give.
    pub(crate) fn check_delivery(&self) -> Result<(), ReadError> {
        let Self { counted, sent, arrived, stated_loss, slack } = *self;
        if !sent.is_finite() || !arrived.is_finite() {
            return Err(format!("a count of its {counted} is no number").into());
        }
        if arrived < 0.0 {
            let lost = sent - arrived;
            return Err(ReadError::Contradiction(format!(
                "{lost:.0} {counted} were lost of {sent:.0} sent, which is impossible"
            )));
        }
        if arrived > sent * (1.0 + slack) {
            return Err(ReadError::Contradiction(format!(
                "{arrived:.0} {counted} arrived of {sent:.0} sent, which is impossible"
            )));
        }
        let loss = self.loss_ratio();
        match stated_loss.filter(|stated| sent > 0.0 && (stated - loss).abs() > PERCENT) {
            Some(stated) => Err(ReadError::Contradiction(format!(
                "{arrived:.0} of {sent:.0} {counted} arrived, a loss of {:.1}%, but it states {:.1}%",
                loss * 100.0,
                stated * 100.0
            ))),
            None => Ok(()),
        }
    }
}

/// Figures that a program states beside its metrics, and that the rules compare with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatedFigures {
    /// The shortest latency, in nanoseconds.
    pub(crate) least_ns: Option<f64>,
    /// Whether percentiles may be up to twice the true ones.
    pub(crate) is_coarse: bool,
    /// Requests that were under way at once, at most.
    pub(crate) outstanding: Option<f64>,
    /// Counts of what was sent and arrived.
    pub(crate) arrivals: Vec<DeliveryCounts>,
}

/// The figures of one test, as the rules read them; what is not known is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestFigures<'a> {
    /// Figures by metric.
    pub(crate) metrics: &'a BTreeMap<Metric, f64>,
    /// Figures without a metric of their own.
    pub(crate) beside: Option<&'a StatedFigures>,
    /// Completed transactions.
    pub(crate) transactions: Option<u64>,
    /// How long the program measured, in seconds.
    pub(crate) seconds: Option<f64>,
    /// The distribution of latency.
    pub(crate) latency: Option<&'a Histogram>,
}

impl<'a> TestFigures<'a> {
    /// The figures alone.
    pub(crate) const fn new(metrics: &'a BTreeMap<Metric, f64>) -> Self {
        Self { metrics, beside: None, transactions: None, seconds: None, latency: None }
    }

    /// Refuses figures that say nothing, or contradict each other.
    pub(crate) fn check_all(&self) -> Result<(), ReadError> {
        self.check_anything_done()?;
        self.check_arrivals()?;
        self.check_upper_bounds()?;
        self.check_percentile_order()?;
        self.check_mean_bounds()?;
        self.check_mean_against_percentiles()?;
        self.check_nonzero_figures()?;
        self.check_min_latency()?;
        self.check_rate_against_count()?;
        self.check_requests_in_flight()?;
        self.check_histogram()
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

    fn check_arrivals(&self) -> Result<(), ReadError> {
        let arrivals = self.beside.map_or(&[][..], |beside| &beside.arrivals);
        arrivals.iter().try_for_each(DeliveryCounts::check_delivery)
    }

    /// A share of a whole is no more than it.
    fn check_upper_bounds(&self) -> Result<(), ReadError> {
        let most = |metric: Metric| metric.row().unit.most();
        match self.metrics.iter().find(|(metric, value)| **value > most(**metric)) {
            Some((metric, value)) => Err(ReadError::Contradiction(format!(
                "`{metric}` is {value:.4}, above its largest possible value ({})",
                most(*metric)
            ))),
            None => Ok(()),
        }
    }

    /// Compares the mean with the percentiles: half of the observations take the median or longer, so the mean is at least
    /// half of it. Nor is it above the mean of the longest that each share can be.
    fn check_mean_against_percentiles(&self) -> Result<(), ReadError> {
        let Some(mean) = self.get(Metric::LatencyNsMean) else { return Ok(()) };
        let bin = if self.beside.is_some_and(|beside| beside.is_coarse) { COARSE } else { BIN };
        let known = || SHARES.iter().filter_map(|(of, share)| Some((*of, *share, self.get(*of)?)));
        let is_below =
            |(_, share, value): &(Metric, f64, f64)| mean * (1.0 + bin) < (1.0 - share) * value;
        if let Some((metric, share, value)) = known().find(is_below) {
            let part = format!("{:.3}", 1.0 - share);
            let part = part.trim_end_matches('0');
            return Err(ReadError::Contradiction(format!(
                "`latency_ns_mean` ({mean:.0}) is below {part} times `{metric}` ({value:.0}), which is impossible"
            )));
        }
        let Some(most) = self.get(Metric::LatencyNsMax) else { return Ok(()) };
        let steps = known().chain([(Metric::LatencyNsMax, 1.0, most)]);
        let (longest, _) = steps.fold((0.0, 0.0), |(sum, before), (_, share, value)| {
            (sum + (share - before) * value, share)
        });
        // Programs differ in the observation that they take for a percentile.
        let one = most / self.transactions.map_or(UNTOLD_COUNT, |done| done as f64);
        if mean <= (longest + one) * (1.0 + bin) {
            return Ok(());
        }
        Err(ReadError::Contradiction(format!(
            "`latency_ns_mean` ({mean:.0}) is above the mean that its percentiles allow ({longest:.0})"
        )))
    }

    /// Compares the shortest latency with all others.
    fn check_min_latency(&self) -> Result<(), ReadError> {
        let Some(least) = self.beside.and_then(|beside| beside.least_ns) else { return Ok(()) };
        let others = [Metric::LatencyNsMean].into_iter().chain(ASCENDING[0].iter().copied());
        let mut known = others.filter_map(|metric| Some((metric, self.get(metric)?)));
        match known.find(|(_, value)| *value < least * (1.0 - BIN)) {
            Some((metric, value)) => {
                Err(contradiction_error(metric, value, "below", "the minimum", least))
            }
            None => Ok(()),
        }
    }

    fn check_nonzero_figures(&self) -> Result<(), ReadError> {
        if let Some(zero) = POSITIVE.iter().find(|metric| self.get(**metric) == Some(0.0)) {
            let problem = format!("`{zero}` is 0, and no request takes no time");
            return Err(ReadError::Contradiction(problem));
        }
        let arrived = OF_ARRIVED.iter().find_map(|metric| Some((*metric, self.get(*metric)?)));
        match arrived.filter(|_| self.get(Metric::LossRatio) == Some(1.0)) {
            Some((metric, value)) => {
                Err(contradiction_error(metric, value, "beside", Metric::LossRatio.name(), 1.0))
            }
            None => Ok(()),
        }
    }

    /// Compares the rate with the count and the time.
    fn check_rate_against_count(&self) -> Result<(), ReadError> {
        let known = self.transactions.zip(self.seconds).zip(self.get(Metric::TransactionsPerS));
        let Some(((done, seconds), rate)) = known else { return Ok(()) };
        let counted = done as f64 / seconds;
        if done < COMPARABLE_COUNT || seconds < COMPARABLE_SECONDS || is_near(counted, rate) {
            return Ok(());
        }
        Err(ReadError::Contradiction(format!(
            "its {done} transactions in {seconds:.3} s do not give its {rate:.2} /s"
        )))
    }

    /// Compares rate and mean latency with the requests that can be under way at once (Little's law). A sender that waits
    /// between its requests has fewer.
    fn check_requests_in_flight(&self) -> Result<(), ReadError> {
        let most = self.beside.and_then(|beside| beside.outstanding);
        let known = self.get(Metric::TransactionsPerS).zip(self.get(Metric::LatencyNsMean));
        let Some((most, (rate, mean))) = most.zip(known) else { return Ok(()) };
        let needed = rate * mean / 1e9;
        if needed <= most * (1.0 + COUNTING) {
            return Ok(());
        }
        Err(ReadError::Contradiction(format!(
            "its {rate:.2} /s with a latency of {mean:.0} ns need {needed:.1} requests at once, and it had {most:.0}"
        )))
    }

    /// Compares the distribution with the other figures.
    fn check_histogram(&self) -> Result<(), ReadError> {
        let Some(latency) = self.latency else { return Ok(()) };
        if let Some(done) = self.transactions
            && latency.count() as f64 > done as f64 * (1.0 + COUNTING)
        {
            let count = latency.count();
            return Err(ReadError::Contradiction(format!(
                "it has {count} latencies of {done} transactions"
            )));
        }
        let [least, most] = [latency.min(), latency.max()].map(|ns| ns.map(|ns| ns.as_ns() as f64));
        let all = "its distribution of latency";
        for metric in [Metric::LatencyNsMean, Metric::LatencyNsMax] {
            let Some(((value, least), most)) = self.get(metric).zip(least).zip(most) else {
                continue;
            };
            if value < least * (1.0 - BIN) {
                return Err(contradiction_error(metric, value, "below", all, least));
            }
            let is_wrong = if metric == Metric::LatencyNsMax {
                value < most * (1.0 - BIN)
            } else {
                value > most * (1.0 + BIN)
            };
            if is_wrong {
                let how = if value < most { "below" } else { "above" };
                return Err(contradiction_error(metric, value, how, all, most));
            }
        }
        Ok(())
    }

    fn check_percentile_order(&self) -> Result<(), ReadError> {
        for chain in ASCENDING {
            let known = chain.iter().filter_map(|metric| Some((*metric, self.get(*metric)?)));
            let known: Vec<(Metric, f64)> = known.collect();
            for pair in known.windows(2) {
                let [(small, less), (large, more)] = [pair[0], pair[1]];
                if less > more * (1.0 + BIN) {
                    return Err(contradiction_error(small, less, "above", large.name(), more));
                }
            }
        }
        Ok(())
    }

    fn check_mean_bounds(&self) -> Result<(), ReadError> {
        for (mean, least, most) in MEANS {
            let Some(value) = self.get(*mean) else { continue };
            if let Some(most_value) = self.get(*most).filter(|most| value > most * (1.0 + BIN)) {
                return Err(contradiction_error(*mean, value, "above", most.name(), most_value));
            }
            let least = least.and_then(|least| self.get(least));
            if let Some(least) = least.filter(|least| value < least * (1.0 - BIN)) {
                return Err(contradiction_error(*mean, value, "below", "the minimum", least));
            }
            let zero = ASCENDING[0].iter().find(|metric| self.get(**metric) == Some(0.0));
            if let Some(zero) = zero.filter(|_| *mean == Metric::LatencyNsMean && value > 0.0) {
                return Err(contradiction_error(*zero, 0.0, "beside", mean.name(), value));
            }
        }
        Ok(())
    }
}

/// Whether two observations are of one test by their content. Two tests may well have the same few figures: without the
/// same time or the same record of a file it takes enough digits.
pub fn is_same_content(one: &Observation, other: &Observation, is_identified: bool) -> bool {
    let digits: usize = one.reported_metrics.values().copied().map(significant_digits).sum();
    (is_identified || digits >= TELLING_DIGITS) && one == other
}

fn significant_digits(value: f64) -> usize {
    let shown = format!("{value}").replace('.', "");
    shown.trim_matches('0').len()
}

/// The check that marks percentiles of too few observations; `None` where there is none of them.
pub fn check_observation_count(
    metrics: &BTreeMap<Metric, f64>,
    observation: &Observation,
) -> Option<Check> {
    let too_few = |metric: &Metric| {
        let done = observation.observations_of(*metric)?;
        let needed = metric.needed_observations().filter(|needed| done < *needed)?;
        Some((done, format!("`{metric}` needs {needed}")))
    };
    let few: Vec<(u64, String)> = metrics.keys().filter_map(too_few).collect();
    let (done, _) = few.first()?;
    let names: Vec<&str> = few.iter().map(|(_, name)| name.as_str()).collect();
    Some(Check {
        name: FEW_OBSERVATIONS.to_owned(),
        passed: false,
        detail: format!("{done} observations are too few; {}", names.join(", ")),
    })
}

fn contradiction_error(
    one: Metric,
    value: f64,
    how: &str,
    other: &str,
    other_value: f64,
) -> ReadError {
    ReadError::Contradiction(format!(
        "`{one}` ({value:.0}) is {how} `{other}` ({other_value:.0}), which is impossible"
    ))
}

/// Whether a count and a rate say the same.
pub(crate) fn is_near(counted: f64, rate: f64) -> bool {
    (counted - rate).abs() <= COUNTING * counted.max(rate)
}

/// Compares a rate and the mean latency of clients that each wait for one answer (Little's law). The rate may be that of
/// answers alone, or with failed ones.
pub(crate) fn check_closed_loop_latency(
    clients: f64,
    rates: [f64; 2],
    latency_ns: f64,
    step_ns: f64,
) -> Result<(), ReadError> {
    let expected = rates.map(|rate| clients / rate * 1e9);
    let least = expected[0].min(expected[1]) * (1.0 - COUNTING) - step_ns;
    let most = expected[0].max(expected[1]) * (1.0 + COUNTING) + step_ns;
    if !(least..=most).contains(&latency_ns) && expected.iter().all(|it| it.is_finite()) {
        return Err(ReadError::Contradiction(format!(
            "{clients:.0} clients with a latency of {latency_ns:.0} ns do not give its {:.2} /s",
            rates[0]
        )));
    }
    Ok(())
}

/// Compares a printed rate with the bytes and the time beside it.
pub(crate) fn check_rate_against_bytes(
    bytes: f64,
    seconds: f64,
    bits_per_s: f64,
) -> Result<(), ReadError> {
    let counted = bytes * 8.0 / seconds;
    if seconds <= 0.0 || is_near(counted, bits_per_s) {
        return Ok(());
    }
    Err(ReadError::Contradiction(format!(
        "its {bytes:.0} bytes in {seconds:.3} s do not give its {bits_per_s:.0} bit/s"
    )))
}

/// Refuses more retransmissions than the segments that the bytes can have had, and the last one of each connection again and
/// again. A segment has at least the smallest of `sizes` that is known, as a send of fewer bytes is one.
pub(crate) fn check_retransmits(
    retransmits: u64,
    bytes: u64,
    sizes: impl IntoIterator<Item = u64>,
    connections: u64,
) -> Result<(), ReadError> {
    let segment = sizes.into_iter().filter(|size| *size > 0).fold(LEAST_SEGMENT, u64::min);
    let repeats = connections.saturating_mul(MOST_REPEATS);
    if bytes == 0 || retransmits <= bytes.div_ceil(segment).saturating_add(repeats) {
        return Ok(());
    }
    Err(ReadError::Contradiction(format!(
        "its {retransmits} retransmissions are more than the packets of its {bytes} bytes"
    )))
}

#[cfg(test)]
mod tests {
    use latput_units::{IntoMap, Nanos};

    use super::*;

    fn check_figures(
        metrics: &[(Metric, f64)],
        transactions: Option<u64>,
    ) -> Result<(), ReadError> {
        let metrics = metrics.iter().copied().collect();
        let beside = StatedFigures { least_ns: Some(10e3), ..StatedFigures::default() };
        TestFigures { beside: Some(&beside), transactions, ..TestFigures::new(&metrics) }
            .check_all()
    }

    #[track_caller]
    fn check_refused(metrics: &[(Metric, f64)], transactions: Option<u64>, part: &str) {
        let error = check_figures(metrics, transactions).unwrap_err().to_string();
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
        check_figures(&metrics, Some(1000)).unwrap();
        check_figures(&metrics, None).unwrap();
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
        check_refused(
            &[(max, 5e3)],
            None,
            "`latency_ns_max` (5000) is below `the minimum` (10000)",
        );
        check_refused(&[(mean, 50e3), (p99, 0.0)], None, "`latency_ns_p99` (0) is beside");
        assert!(
            check_rate_against_bytes(1e6, 1.0, 8e6).is_ok()
                && check_rate_against_bytes(1e6, 1.0, 9e6).is_err()
        );
    }

    #[test]
    fn mean_beyond_percentiles_is_refused() {
        let (p50, p90, p99, max) = (
            Metric::LatencyNsP50,
            Metric::LatencyNsP90,
            Metric::LatencyNsP99,
            Metric::LatencyNsMax,
        );
        let below = |part: &str| format!("is below {part} times `latency_ns_p");
        let above = "is above the mean that its percentiles allow";
        for (mean, others, is_coarse, said) in [
            (26e3, &[(p50, 50e3)][..], false, None),
            (20e3, &[(p50, 50e3)], false, Some(below("0.5"))),
            (20e3, &[(p50, 50e3)], true, None),
            (12e3, &[(p50, 50e3)], true, Some(below("0.5"))),
            (20e3, &[(p50, 19e3), (p90, 300e3)], false, Some(below("0.1"))),
            (20e3, &[(p99, 3e6)], false, Some(below("0.01"))),
            (20e3, &[(p50, 19e3), (p90, 150e3), (p99, 1e6)], false, None),
            // 0.5 * 10 + 0.4 * 20 + 0.1 * 100, and 1 for one observation of 100
            (22e3, &[(p50, 10e3), (p90, 20e3), (max, 100e3)], false, None),
            (26e3, &[(p50, 10e3), (p90, 20e3), (max, 100e3)], false, Some(above.to_owned())),
            (26e3, &[(p50, 10e3), (p90, 20e3), (max, 100e3)], true, None),
            (90e3, &[(p50, 10e3), (p90, 20e3)], false, None),
        ] {
            let metrics = others.iter().copied().chain([(Metric::LatencyNsMean, mean)]).into_map();
            let beside = StatedFigures { is_coarse, ..StatedFigures::default() };
            let figures = TestFigures { beside: Some(&beside), ..TestFigures::new(&metrics) };
            let error = figures.check_all().err().map(|error| error.to_string());
            let is_as_said = match (&error, &said) {
                (Some(error), Some(said)) => error.contains(said),
                (None, None) => true,
                _ => false,
            };
            assert!(is_as_said, "{mean} with {others:?}: {error:?}");
        }
    }

    #[test]
    fn latency_of_waiting_clients_is_theirs() {
        for (latency_ns, is_right) in
            [(1e6, true), (1.09e6, true), (0.55e6, true), (0.4e6, false), (2e6, false)]
        {
            let read = check_closed_loop_latency(8.0, [8e3, 16e3], latency_ns, 500.0);
            assert_eq!(read.is_ok(), is_right, "{latency_ns}: {read:?}");
        }
        check_closed_loop_latency(8.0, [0.0, 0.0], 1e6, 500.0).unwrap();
    }

    #[test]
    fn rate_beyond_outstanding_requests_is_refused() {
        for (rate, outstanding, is_possible) in [
            (14_330.0, 1.0, true),
            (15_700.0, 1.0, true),
            (16_000.0, 1.0, false),
            (1e6, 100.0, true),
        ] {
            let metrics =
                [(Metric::TransactionsPerS, rate), (Metric::LatencyNsMean, 69.6e3)].into();
            let beside =
                StatedFigures { outstanding: Some(outstanding), ..StatedFigures::default() };
            let figures = TestFigures { beside: Some(&beside), ..TestFigures::new(&metrics) };
            let read = figures.check_all();
            assert_eq!(read.is_ok(), is_possible, "{rate}: {read:?}");
        }
    }

    #[test]
    fn more_than_the_whole_is_refused() {
        let packets = DeliveryCounts::from_packets;
        let metrics = BTreeMap::new();
        let refused = |arrival: DeliveryCounts| {
            let beside = StatedFigures { arrivals: vec![arrival], ..StatedFigures::default() };
            let read =
                TestFigures { beside: Some(&beside), ..TestFigures::new(&metrics) }.check_all();
            read.map_err(|error| error.to_string()).unwrap_err()
        };
        assert!(refused(packets(100.0, 101.0)).contains("101 packets arrived of 100 sent"));
        assert!(refused(packets(100.0, -150.0)).contains("250 packets were lost of 100 sent"));
        let stated = DeliveryCounts { stated_loss: Some(0.05), ..packets(100.0, 50.0) };
        let said = refused(stated);
        assert!(said.contains("50 of 100 packets arrived, a loss of 50.0%, but it states 5.0%"));
        assert_eq!(refused(packets(f64::NAN, 1.0)), "a count of its packets is no number");
        let rounded = DeliveryCounts { stated_loss: Some(0.66), ..packets(3.0, 1.0) };
        assert!(rounded.check_delivery().is_ok() && packets(100.0, 100.0).check_delivery().is_ok());
        let share = [(Metric::SutCpuBusyRatio, 43.5)];
        check_refused(&share, None, "`sut_cpu_busy_ratio` is 43.5000, above");
    }

    #[test]
    fn counts_and_distribution_agree_with_figures() {
        let mut latency = Histogram::new();
        latency.record_n(Nanos::from_ns(50_000), 1000);
        let refused = |metric: Metric, value: f64| {
            let metrics = [(metric, value)].into();
            let (transactions, seconds) = (Some(900), Some(1.0));
            let claims =
                TestFigures { transactions, seconds, latency: None, ..TestFigures::new(&metrics) };
            let claims = match metric {
                Metric::TransactionsPerS => claims,
                _ => TestFigures { transactions: None, latency: Some(&latency), ..claims },
            };
            claims.check_all().map_err(|error| error.to_string()).unwrap_err()
        };
        let rate = refused(Metric::TransactionsPerS, 9000.0);
        assert_eq!(rate, "its 900 transactions in 1.000 s do not give its 9000.00 /s");
        for (metric, value) in [
            (Metric::LatencyNsMean, 40e3),
            (Metric::LatencyNsMean, 60e3),
            (Metric::LatencyNsMax, 40e3),
        ] {
            assert!(refused(metric, value).contains("its distribution of latency"));
        }
        let metrics = BTreeMap::new();
        let many = TestFigures {
            transactions: Some(800),
            latency: Some(&latency),
            ..TestFigures::new(&metrics)
        };
        assert!(many.check_all().unwrap_err().to_string().contains("1000 latencies of 800"));
    }

    #[test]
    fn test_without_operations_has_no_figures() {
        check_refused(&[(Metric::LatencyNsP99, 50e3)], Some(0), "no request was answered");
        check_refused(&[(Metric::TransactionsPerS, 0.0)], None, "no request was answered");
        check_refused(&[(Metric::ThroughputBps, 0.0)], None, "no data arrived");
        check_refused(&[(Metric::ThroughputFromSutBps, 0.0)], None, "no data arrived from");
        check_refused(&[(Metric::LatencyNsMax, 0.0)], None, "no request takes no time");
        let lost = [(Metric::LossRatio, 1.0), (Metric::JitterNs, 5.0)];
        check_refused(&lost, None, "`jitter_ns` (5) is beside `loss_ratio`");
    }

    #[test]
    fn same_content_needs_identity_or_many_digits() {
        let observation = |figures: &[f64]| {
            let metrics = [Metric::TransactionsPerS, Metric::LatencyNsMean, Metric::LatencyNsP50];
            let reported = metrics.into_iter().zip(figures.iter().copied());
            Observation { reported_metrics: reported.into_map(), ..Observation::default() }
        };
        let (one, other) = (observation(&[940.1, 52.57]), observation(&[18983.7, 52.57, 51.9]));
        assert!(!is_same_content(&one, &one, false) && is_same_content(&one, &one, true));
        assert!(is_same_content(&other, &other, false) && !is_same_content(&one, &other, true));
    }

    #[test]
    fn percentiles_of_few_observations_are_marked() {
        let metrics = [(Metric::LatencyNsP99, 1e3), (Metric::LatencyNsP999, 1e3)].into();
        let few = |transactions| {
            let mut observation = Observation::default();
            observation.traffic.transactions = Some(transactions);
            check_observation_count(&metrics, &observation).map(|it| it.detail)
        };
        assert!(few(99).unwrap().contains("`latency_ns_p99` needs 100"));
        assert_eq!(few(100).unwrap(), "100 observations are too few; `latency_ns_p999` needs 1000");
        assert_eq!(few(1000), None);
    }
}
