//! The one formatter of a metric's values: `25.1 us`, `9.42 Gbit/s`, `45.2 k/s`.

use latput_units::text::format_number;

use super::Metric;
use super::unit::{BITS, TIMES, UnitStep};
use crate::workload::Traffic;

/// The unit in which the figures of one column, axis or sentence are printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Divisor from the metric's own unit to `unit`.
    pub divisor: f64,
    /// `us`, `Gbit/s`, `%`, `k/s`; empty for a plain number.
    pub unit: &'static str,
}

impl Scale {
    /// The unit for a column whose largest figure is `largest`, with at most four digits before the
    /// point. `traffic` decides the unit of work.
    pub fn choose(metric: Metric, traffic: &Traffic, largest: f64) -> Self {
        Self::of_steps(metric.row().unit.steps(traffic.is_transactional()), largest)
    }

    /// The unit for times up to `largest_ns`.
    pub fn of_time(largest_ns: f64) -> Self {
        Self::of_steps(TIMES, largest_ns)
    }

    fn of_steps(steps: &[UnitStep], largest: f64) -> Self {
        // Bits per second use the largest unit above 1, times and counts allow up to 9999.
        let limit = if steps == BITS { 1.0 } else { 10.0 };
        let mut chosen = steps[0];
        for &(divisor, unit) in steps {
            // Nanoseconds are below the precision of the figures, so microseconds start at 1 us.
            let enough = if unit == "us" { 1.0 } else { limit };
            // A figure that would be printed with one digit more takes the larger unit: 999.6 Mbit/s is 1.00 Gbit/s.
            if largest.abs() >= divisor * enough - chosen.0 / 2.0 {
                chosen = (divisor, unit);
            }
        }
        Self { divisor: chosen.0, unit: chosen.1 }
    }

    /// The figure in this unit, without the unit's name.
    pub fn number(&self, figure: f64) -> String {
        format_number(figure / self.divisor)
    }

    /// The figure with its unit: `12.3 us`, `5.00%`.
    pub fn with_unit(&self, figure: f64) -> String {
        self.add_unit(&self.number(figure))
    }

    /// A figure that is text already, with its unit behind it: a space before all but the sign of a share.
    pub fn add_unit(&self, figure: &str) -> String {
        match self.unit {
            "" => figure.to_owned(),
            "%" => format!("{figure}%"),
            unit => format!("{figure} {unit}"),
        }
    }
}

/// A single figure in its most readable unit.
pub fn quantity(metric: Metric, traffic: &Traffic, figure: f64) -> String {
    Scale::choose(metric, traffic, figure).with_unit(figure)
}

#[cfg(test)]
mod tests {
    use latput_units::{BitsPerSecond, Bytes};
    use proptest::prelude::*;

    use super::*;
    use crate::metric::Unit;

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
        check(Metric::TransactionsPerS, &rr, 41_234.0, "41.2 k/s");
        check(Metric::TransactionsPerS, &rr, 12_345_678.0, "12.3 M/s");
        check(Metric::GeneratorMaxPerS, &rr, 41_234.0, "41.2 k/s");
        check(Metric::GeneratorMaxPerS, &udp, 9.41e9, "9.41 Gbit/s");
        check(Metric::ThroughputBps, &udp, 9.41e9, "9.41 Gbit/s");
        check(Metric::ThroughputBps, &udp, 500e6, "500 Mbit/s");
        check(Metric::ThroughputBps, &udp, 999_499_999.0, "999 Mbit/s");
        check(Metric::ThroughputBps, &udp, 999_999_999.9, "1.00 Gbit/s");
        check(Metric::LatencyNsP99, &rr, 999.4, "999 ns");
        check(Metric::LatencyNsP99, &rr, 999.6, "1.00 us");
        check(Metric::LatencyNsP99, &rr, 9_999_400.0, "9999 us");
        check(Metric::LatencyNsP99, &rr, 9_999_600.0, "10.0 ms");
        check(Metric::LossRatio, &udp, 0.0123, "1.23%");
        check(Metric::SutCpuBusyRatio, &udp, 1.0, "100%");
        check(Metric::SutServiceDemandUs, &rr, 12.34, "12.3 us/tr");
        check(Metric::SutServiceDemandUs, &udp, 0.4, "0.400 us/KB");
        check(Metric::SutPacketsPerPoll, &udp, 3.5, "3.50");
        check(Metric::SutRxPps, &udp, 12.34, "12.3 /s");
    }

    proptest! {
        #[test]
        fn printed_quantity_round_trips_within_precision(
            unit in proptest::sample::select(Unit::ALL),
            is_transactional: bool,
            exponent in -9.0..14.0_f64,
        ) {
            let value = 10_f64.powf(exponent).min(unit.most());
            let text = Scale::of_steps(unit.steps(is_transactional), value).with_unit(value);
            let (low, high) = read_back(unit, is_transactional, &text);
            let slack = value * 1e-9;
            prop_assert!((low - slack..=high + slack).contains(&value), "{value} as {text}");
            // Three digits: half of the last is at most 0.5%, unless the figure is below 0.1 of the unit.
            let smallest = 0.1 * unit.steps(is_transactional)[0].0;
            prop_assert!(value < smallest || high - low <= value * 0.0101, "{value} as {text}");
        }
    }

    /// The least and the largest value, in the unit of files, that are printed like this.
    fn read_back(unit: Unit, is_transactional: bool, text: &str) -> (f64, f64) {
        let share = text.strip_suffix('%').map(|digits| (digits, "%"));
        let (digits, name) = share.or_else(|| text.split_once(' ')).unwrap_or((text, ""));
        let mut steps = unit.steps(is_transactional).iter();
        let step = steps.find(|step| step.1 == name).expect("a unit of it");
        if let Some(below) = digits.strip_prefix('<') {
            return (0.0, below.parse::<f64>().unwrap() * step.0);
        }
        let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
        let half = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
        let number: f64 = digits.parse().unwrap();
        ((number - half) * step.0, (number + half) * step.0)
    }

    #[track_caller]
    fn check(metric: Metric, traffic: &Traffic, value: f64, text: &str) {
        assert_eq!(quantity(metric, traffic, value), text);
    }
}
