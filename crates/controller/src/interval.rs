//! The counts of each interval of a running trial: for progress output, not for results.
//!
//! Every agent sends a line for each interval of the window. The lines of one interval are joined
//! once all hosts have sent theirs.

use std::collections::VecDeque;

use latput_protocol::control::HostInterval;
use latput_runner::trials::IntervalCounts;
use latput_trial::Traffic;

/// Most open intervals. If a host lags further behind, the oldest is closed without it.
const MOST_OPEN: usize = 16;

/// Joins the hosts' lines by interval.
#[derive(Debug)]
pub(crate) struct IntervalJoiner {
    hosts: Vec<String>,
    unit_bytes: Option<u64>,
    /// The number of the first open interval.
    first: u32,
    open: VecDeque<Vec<Option<HostInterval>>>,
}

impl IntervalJoiner {
    pub(crate) fn new(hosts: Vec<String>, traffic: &Traffic) -> Self {
        Self { hosts, unit_bytes: traffic.unit_bytes(), first: 0, open: VecDeque::new() }
    }

    /// Adds a host's line; returns every interval that this completes. A line that is out of order
    /// or far off is ignored.
    pub(crate) fn add_interval(&mut self, host: usize, line: HostInterval) -> Vec<IntervalCounts> {
        let Some(idx) = line.number.checked_sub(self.first).map(|idx| idx as usize) else {
            return Vec::new();
        };
        if idx >= 2 * MOST_OPEN || host >= self.hosts.len() {
            return Vec::new();
        }
        while self.open.len() <= idx {
            self.open.push_back(vec![None; self.hosts.len()]);
        }
        self.open[idx][host] = Some(line);
        let mut complete = Vec::new();
        while let Some(lines) = self.open.front()
            && (lines.iter().all(Option::is_some) || self.open.len() > MOST_OPEN)
        {
            complete.extend(self.join_interval(lines));
            self.open.pop_front();
            self.first += 1;
        }
        complete
    }

    fn join_interval(&self, lines: &[Option<HostInterval>]) -> Option<IntervalCounts> {
        let end = lines.iter().flatten().map(|line| line.end).max()?;
        let per_s =
            |count: u64, line: &HostInterval| count as f64 / line.length.as_secs_f64().max(1e-9);
        let units = lines.iter().flatten();
        let units_per_s = units.map(|line| per_s(line.units.unwrap_or(0), line)).sum::<f64>();
        let hosts = self.hosts.iter().zip(lines);
        let packets_per_s = hosts.filter_map(|(host, line)| {
            let line = line.as_ref()?;
            Some((host.clone(), per_s(line.rx_packets, line), per_s(line.tx_packets, line)))
        });
        Some(IntervalCounts {
            end,
            units_per_s,
            bits_per_s: self.unit_bytes.map(|bytes| units_per_s * bytes as f64 * 8.0),
            packets_per_s: packets_per_s.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Bytes;

    use latput_units::Nanos;

    use super::*;

    #[test]
    fn interval_is_told_once_all_agree() {
        let mut joiner = make_joiner(2);
        assert_eq!(joiner.add_interval(0, make_host_interval(0, Some(10))), []);
        assert_eq!(joiner.add_interval(0, make_host_interval(1, Some(20))), []);
        let told = joiner.add_interval(1, make_host_interval(0, Some(5)));
        assert_eq!(told.len(), 1);
        // Half a second each: 15 units are 30 a second.
        assert!((told[0].units_per_s - 30.0).abs() < 1e-9, "{told:?}");
        assert_eq!(told[0].bits_per_s, Some(30.0 * 8000.0));
        assert_eq!(told[0].packets_per_s[1], ("h1".to_owned(), 200.0, 400.0));
        assert_eq!(joiner.add_interval(1, make_host_interval(1, None)).len(), 1);
    }

    #[test]
    fn lagging_host_holds_up_nothing() {
        let mut joiner = make_joiner(2);
        let told: usize = (0..100)
            .map(|number| joiner.add_interval(0, make_host_interval(number, Some(1))).len())
            .sum();
        assert_eq!(told, 100 - MOST_OPEN);
        assert_eq!(joiner.add_interval(1, make_host_interval(0, Some(1))), []);
        assert_eq!(joiner.add_interval(1, make_host_interval(u32::MAX, Some(1))), []);
        assert_eq!(joiner.add_interval(7, make_host_interval(90, Some(1))), []);
        assert!(joiner.open.len() <= 2 * MOST_OPEN);
    }

    fn make_joiner(hosts: usize) -> IntervalJoiner {
        let names = (0..hosts).map(|idx| format!("h{idx}")).collect();
        IntervalJoiner::new(names, &Traffic::tcp_stream(Bytes::new(1000), 1))
    }

    fn make_host_interval(number: u32, units: Option<u64>) -> HostInterval {
        let length = Nanos::from_ms(500);
        let end = length.saturating_mul(u64::from(number) + 1);
        HostInterval { number, end, length, units, rx_packets: 100, tx_packets: 200 }
    }
}
