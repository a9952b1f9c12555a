//! The one place that turns figures into text: units that people read, three significant digits.

use latput_stats::{Estimate, Method};
use latput_trial::{Metric, Traffic};

/// A metric's name as tables have it, short enough for a column.
pub fn short_name(metric: Metric) -> &'static str {
    match metric {
        Metric::ThroughputBps => "goodput",
        Metric::ThroughputToSutBps => "to SUT",
        Metric::ThroughputFromSutBps => "from SUT",
        Metric::TransactionsPerS => "trans",
        Metric::LatencyNsMean => "mean",
        Metric::LatencyNsP50 => "p50",
        Metric::LatencyNsP90 => "p90",
        Metric::LatencyNsP99 => "p99",
        Metric::LatencyNsP999 => "p99.9",
        Metric::LatencyNsMax => "max",
        Metric::LatencyRawNsP50 => "raw p50",
        Metric::LatencyRawNsP99 => "raw p99",
        Metric::ProbeNsMin => "ping min",
        Metric::ProbeNsMean => "ping avg",
        Metric::ProbeNsP99 => "ping p99",
        Metric::ProbeNsMax => "ping max",
        Metric::ProbeNsMdev => "ping mdev",
        Metric::ProbeLossRatio => "ping loss",
        Metric::LossRatio => "loss",
        Metric::ReorderedRatio => "reorder",
        Metric::JitterNs => "jitter",
        Metric::RetransmitsPerS => "retrans",
        Metric::SutCpuBusyRatio => "CPU",
        Metric::GeneratorCpuBusyRatio => "gen CPU",
        Metric::SutServiceDemandUs => "demand",
        Metric::GeneratorServiceDemandUs => "gen demand",
        Metric::SutNetperfDemandUs => "netperf demand",
        Metric::GeneratorNetperfDemandUs => "gen netperf demand",
        Metric::GeneratorCeilingPerS => "gen ceiling",
        Metric::SutPollsPerS => "polls",
        Metric::SutPacketsPerPoll => "pkts/poll",
        Metric::SutRxPps => "packets in",
        Metric::SutTxPps => "packets out",
    }
}

/// A metric in a phrase, for axis titles, tool tips and the list of definitions.
pub fn long_name(metric: Metric) -> &'static str {
    match metric {
        Metric::ThroughputBps => "goodput at the receiver",
        Metric::ThroughputToSutBps => "goodput towards the SUT",
        Metric::ThroughputFromSutBps => "goodput away from the SUT",
        Metric::TransactionsPerS => "transactions per second",
        Metric::LatencyNsMean => "mean round-trip time",
        Metric::LatencyNsP50 => "median round-trip time",
        Metric::LatencyNsP90 => "90th percentile of round-trip time",
        Metric::LatencyNsP99 => "99th percentile of round-trip time",
        Metric::LatencyNsP999 => "99.9th percentile of round-trip time",
        Metric::LatencyNsMax => "longest round-trip time",
        Metric::LatencyRawNsP50 => "round-trip time from the actual send, median",
        Metric::LatencyRawNsP99 => "round-trip time from the actual send that 99 % do not exceed",
        Metric::ProbeNsMin => "shortest ping beside the traffic",
        Metric::ProbeNsMean => "mean ping beside the traffic",
        Metric::ProbeNsP99 => "99th percentile of ping beside the traffic",
        Metric::ProbeNsMax => "longest ping beside the traffic",
        Metric::ProbeNsMdev => "standard deviation of ping beside the traffic",
        Metric::ProbeLossRatio => "pings without an answer",
        Metric::LossRatio => "datagrams lost",
        Metric::ReorderedRatio => "datagrams out of order",
        Metric::JitterNs => "interarrival jitter (RFC 3550)",
        Metric::RetransmitsPerS => "TCP segments sent again per second",
        Metric::SutCpuBusyRatio => "busy share of the SUT's CPUs",
        Metric::GeneratorCpuBusyRatio => "busy share of the generator's CPUs",
        Metric::SutServiceDemandUs => "service demand of the SUT",
        Metric::GeneratorServiceDemandUs => "service demand of the generator",
        Metric::SutNetperfDemandUs => "service demand of the SUT as netperf counts it, by ticks",
        Metric::GeneratorNetperfDemandUs => {
            "service demand of the generator as netperf counts it, by ticks"
        }
        Metric::GeneratorCeilingPerS => "what the generator could do at most, at this cost",
        Metric::SutPollsPerS => "NAPI polls per second on the SUT",
        Metric::SutPacketsPerPoll => "packets per NAPI poll on the SUT",
        Metric::SutRxPps => "packets in per second on the SUT",
        Metric::SutTxPps => "packets out per second on the SUT",
    }
}

/// The unit in which the figures of one column, axis or sentence are printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// A figure in the metric's own unit over this is a figure in `unit`.
    pub divisor: f64,
    /// `us`, `Gbit/s`, `%`, `k/s`; empty for a plain number.
    pub unit: &'static str,
}

impl Scale {
    /// The unit for a column whose largest figure is `largest`, so that it has at most four digits
    /// before the point. `traffic` tells what one unit of work is.
    pub fn of(metric: Metric, traffic: &Traffic, largest: f64) -> Self {
        let bits: &[(f64, &'static str)] =
            &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")];
        let steps: &[(f64, &'static str)] = match metric {
            Metric::ThroughputBps | Metric::ThroughputToSutBps | Metric::ThroughputFromSutBps => {
                bits
            }
            Metric::GeneratorCeilingPerS if !traffic.is_transactional() => bits,
            Metric::TransactionsPerS
            | Metric::GeneratorCeilingPerS
            | Metric::RetransmitsPerS
            | Metric::SutPollsPerS
            | Metric::SutRxPps
            | Metric::SutTxPps => &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")],
            Metric::ProbeLossRatio
            | Metric::LossRatio
            | Metric::ReorderedRatio
            | Metric::SutCpuBusyRatio
            | Metric::GeneratorCpuBusyRatio => &[(0.01, "%")],
            Metric::SutServiceDemandUs
            | Metric::GeneratorServiceDemandUs
            | Metric::SutNetperfDemandUs
            | Metric::GeneratorNetperfDemandUs => {
                if traffic.is_transactional() {
                    &[(1.0, "us/tr")]
                } else {
                    &[(1.0, "us/KB")]
                }
            }
            Metric::SutPacketsPerPoll => &[(1.0, "")],
            _ => &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")],
        };
        // Bits per second read best just above 1, times and counts up to 9999.
        let limit = if steps == bits { 1.0 } else { 10.0 };
        let mut chosen = steps[0];
        for &(divisor, unit) in steps {
            // Nanoseconds are below the precision of the figures: microseconds from 1 us on.
            let enough = if unit == "us" { 1.0 } else { limit };
            if largest.abs() >= divisor * enough {
                chosen = (divisor, unit);
            }
        }
        Self { divisor: chosen.0, unit: chosen.1 }
    }

    /// The figure in this unit, without it.
    pub fn number(&self, figure: f64) -> String {
        number(figure / self.divisor)
    }

    /// The figure with its unit: `12.3 us`.
    pub fn with_unit(&self, figure: f64) -> String {
        format!("{} {}", self.number(figure), self.unit).trim_end().to_owned()
    }
}

/// A single figure with the unit that suits it best.
pub fn figure(metric: Metric, traffic: &Traffic, figure: f64) -> String {
    Scale::of(metric, traffic, figure).with_unit(figure)
}

/// Three significant digits, no exponent: `0.012`, `1.23`, `45.6`, `789`, `12346`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size < 0.0005 {
        return if value < 0.0 { ">-0.001" } else { "<0.001" }.to_owned();
    }
    let decimals = decimals(value);
    format!("{value:.decimals$}")
}

/// Decimals for three significant digits. The limits are where rounding would add a digit: 9.996 is
/// 10.0, not 10.00.
fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    }
}

/// Half the interval's width in `scale`, for `45.6 ±0.3`, with the decimals of the figure; `None`
/// where there is no interval.
pub fn half_width(estimate: &Estimate, scale: &Scale) -> Option<String> {
    let (low, high) = interval(estimate)?;
    let half = (high - low) / 2.0 / scale.divisor;
    let decimals = decimals(estimate.value / scale.divisor);
    let text = format!("{half:.decimals$}");
    let is_lost = half > 0.0 && text.chars().all(|c| c == '0' || c == '.');
    Some(if is_lost { number(half) } else { text })
}

/// The interval; `None` for a single run or ends that are no numbers.
pub fn interval(estimate: &Estimate) -> Option<(f64, f64)> {
    let known = estimate.method != Method::Single
        && estimate.low.is_finite()
        && estimate.high.is_finite()
        && estimate.low <= estimate.high;
    known.then_some((estimate.low, estimate.high))
}

/// From this ratio on per cents stop to be readable.
const FACTOR_FROM: f64 = 3.0;

/// A ratio as people say it: `-41.2 %`, `+3.10 %`, and `x16.9` where per cents stop to be readable.
pub fn change(ratio: f64) -> String {
    if !ratio.is_finite() {
        return "n/a".to_owned();
    }
    if ratio >= FACTOR_FROM {
        return format!("x{}", number(ratio));
    }
    let percent = (ratio - 1.0) * 100.0;
    let text = if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") };
    format!("{text} %")
}

/// How sure an interval is, and of what kind: `96.87 % interval, order statistics of 6 runs`.
pub fn interval_kind(estimate: &Estimate) -> String {
    match method_name(estimate.method) {
        Some(name) => {
            let runs = count(estimate.runs, "run");
            format!("{} interval, {name} of {runs}", percent(estimate.confidence))
        }
        None => "one run, no interval".to_owned(),
    }
}

/// The same where the number of runs is known: `96.87 %, order statistics`.
pub fn method(estimate: &Estimate) -> String {
    match method_name(estimate.method) {
        Some(name) => format!("{}, {name}", percent(estimate.confidence)),
        None => "one run, no interval".to_owned(),
    }
}

fn method_name(method: Method) -> Option<&'static str> {
    match method {
        Method::StudentT => Some("Student's t"),
        Method::OrderStatistic => Some("order statistics"),
        Method::PairedLogRatio => Some("Student's t on paired logarithms"),
        Method::WelchLogRatio => Some("Welch's t on logarithms"),
        Method::Single => None,
    }
}

/// The interval of a ratio, in the way its figure is said: `-43.0 to -39.4 %`, `x15.1 to x18.2`, and
/// where per cents serve only one end `-94.6 % to x64.4`.
pub fn change_interval(estimate: &Estimate) -> Option<String> {
    let (low, high) = interval(estimate)?;
    if estimate.value >= FACTOR_FROM {
        return Some(format!("x{} to x{}", number(low), number(high)));
    }
    if high >= FACTOR_FROM {
        return Some(format!("{} to {}", change(low), change(high)));
    }
    let percent = |ratio: f64| {
        let percent = (ratio - 1.0) * 100.0;
        if percent.abs() < 0.05 { "0.0".to_owned() } else { format!("{percent:+.1}") }
    };
    Some(format!("{} to {} %", percent(low), percent(high)))
}

/// A share as per cent: `99 %`, `2.5 %`.
pub fn percent(ratio: f64) -> String {
    let text = format!("{:.2}", ratio * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} %")
}

/// A share as per cent with three significant digits: `117 %`, `4.63 %`.
pub fn rough_percent(ratio: f64) -> String {
    format!("{} %", number(ratio * 100.0))
}

/// `1 run`, `3 runs`.
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use latput_units::{BitsPerSecond, Bytes};

    use super::*;

    #[test]
    fn numbers_have_three_significant_digits_and_no_exponent() {
        for (value, text) in [
            (0.0, "0"),
            (0.0001, "<0.001"),
            (-0.0001, ">-0.001"),
            (0.0123, "0.012"),
            (0.9996, "1.00"),
            (1.234, "1.23"),
            (9.996, "10.0"),
            (45.67, "45.7"),
            (99.96, "100"),
            (-789.4, "-789"),
            (12_345.6, "12346"),
            (f64::NAN, "n/a"),
            (f64::INFINITY, "n/a"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn figures_take_the_unit_that_people_read() {
        let rr = Traffic::tcp_rr(0);
        let udp = Traffic::udp_stream(Bytes::new(1470), BitsPerSecond::new(1_000_000));
        check(Metric::LatencyNsP99, &rr, 850.0, "850 ns");
        check(Metric::LatencyNsP99, &rr, 11_234.0, "11.2 us");
        check(Metric::LatencyNsP99, &rr, 1_015_000.0, "1015 us");
        check(Metric::LatencyNsMax, &rr, 25e6, "25.0 ms");
        check(Metric::LatencyNsMax, &rr, 0.0, "0 ns");
        check(Metric::TransactionsPerS, &rr, 987.0, "987 /s");
        check(Metric::TransactionsPerS, &rr, 45_230.0, "45.2 k/s");
        check(Metric::TransactionsPerS, &rr, 12_345_678.0, "12.3 M/s");
        check(Metric::ThroughputBps, &udp, 9.41e9, "9.41 Gbit/s");
        check(Metric::ThroughputBps, &udp, 500e6, "500 Mbit/s");
        check(Metric::LossRatio, &udp, 0.0123, "1.23 %");
        check(Metric::SutCpuBusyRatio, &udp, 1.0, "100 %");
        check(Metric::SutServiceDemandUs, &rr, 12.34, "12.3 us/tr");
        check(Metric::SutServiceDemandUs, &udp, 0.4, "0.400 us/KB");
        check(Metric::SutPacketsPerPoll, &udp, 3.5, "3.50");
    }

    #[test]
    fn ratios_are_said_as_changes() {
        for (ratio, text) in [
            (0.588, "-41.2 %"),
            (1.031, "+3.1 %"),
            (1.0001, "0.0 %"),
            (16.9, "x16.9"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(change(ratio), text);
        }
        let ends = |value, low, high| {
            let method = Method::PairedLogRatio;
            change_interval(&Estimate { value, low, high, confidence: 0.99, method, runs: 6 })
        };
        assert_eq!(ends(0.588, 0.57, 0.606).unwrap(), "-43.0 to -39.4 %");
        assert_eq!(ends(3.1, 2.9, 3.3).unwrap(), "x2.90 to x3.30");
        assert_eq!(ends(1.9, 0.054, 64.4).unwrap(), "-94.6 % to x64.4");
        assert_eq!(ends(0.9, f64::NAN, 1.0), None);
        assert_eq!(percent(0.99), "99 %");
        assert_eq!(percent(0.025), "2.5 %");
    }

    #[track_caller]
    fn check(metric: Metric, traffic: &Traffic, value: f64, text: &str) {
        assert_eq!(figure(metric, traffic, value), text);
    }
}
