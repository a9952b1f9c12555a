//! Readings of the host's TCP connections, added up over a window.

use std::collections::BTreeMap;

use latput_linux::{TcpConnection, TcpMeter};
use latput_trial::live::Live;
use latput_trial::observation::TcpObservation;

/// Most connections of a reading that count. Of more the first are enough for any percentile.
const MOST_CONNECTIONS: usize = 20_000;

/// Reads connections, and tells what happened between two readings.
#[derive(Debug)]
pub(super) struct Connections<'a> {
    meter: TcpMeter,
    watch: &'a Live,
    /// The last reading, by the kernel's number; `None` before the first.
    last: Option<BTreeMap<u64, TcpConnection>>,
}

impl<'a> Connections<'a> {
    pub(super) fn open(watch: &'a Live) -> Result<Self, latput_linux::Error> {
        Ok(Self { meter: TcpMeter::open()?, watch, last: None })
    }

    /// What happened since the last reading. The first tells nothing: what was before it is not known.
    pub(super) fn read(&mut self) -> Result<TcpObservation, latput_linux::Error> {
        let found = self.meter.connections()?;
        Ok(self.since_last(found))
    }

    fn since_last(&mut self, found: Vec<TcpConnection>) -> TcpObservation {
        let counts = |one: &TcpConnection| {
            !one.local.0.is_loopback()
                && self.watch.counts([one.local.1, one.remote.1], one.remote.0)
        };
        let now = found.into_iter().filter(counts).take(MOST_CONNECTIONS);
        let now: BTreeMap<u64, TcpConnection> = now.map(|one| (one.cookie, one)).collect();
        let Some(last) = self.last.replace(now) else { return TcpObservation::default() };
        let now = self.last.iter().flat_map(BTreeMap::values);
        let mut seen = TcpObservation { readings: 1, ..TcpObservation::default() };
        for one in now {
            seen.connections += 1;
            add(&mut seen, one, last.get(&one.cookie));
        }
        seen
    }
}

/// Adds a connection that had these counts before, or none if it is new.
fn add(seen: &mut TcpObservation, one: &TcpConnection, before: Option<&TcpConnection>) {
    let grown = |of: fn(&TcpConnection) -> Option<u64>| {
        let (now, then) = (of(one)?, before.map_or(Some(0), of)?);
        Some(now.saturating_sub(then))
    };
    let acked = grown(|it| it.acked_bytes);
    let received = grown(|it| it.received_bytes);
    seen.acked_bytes = seen.acked_bytes.saturating_add(acked.unwrap_or(0));
    seen.received_bytes = seen.received_bytes.saturating_add(received.unwrap_or(0));
    let repeated = grown(|it| Some(it.retransmitted.into())).unwrap_or(0);
    seen.retransmitted = seen.retransmitted.saturating_add(repeated);
    // A connection that moved nothing has the round-trip time of an earlier setting.
    let has_moved = acked.is_none_or(|bytes| bytes > 0) || received.is_some_and(|bytes| bytes > 0);
    if !has_moved || one.rtt.as_ns() == 0 {
        return;
    }
    seen.rtt.record(one.rtt);
    seen.rtt_deviation.record(one.rtt_deviation);
    seen.min_rtt = seen.min_rtt.into_iter().chain(one.min_rtt).min();
    if let Some(rate) = one.delivery_bytes_per_s.filter(|rate| *rate > 0) {
        seen.delivery_bytes_per_s_sum = seen.delivery_bytes_per_s_sum.saturating_add(rate);
        seen.deliveries += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use latput_units::Nanos;

    use super::*;

    fn connection(cookie: u64, local: &str, acked: u64, rtt_us: u64) -> TcpConnection {
        TcpConnection {
            cookie,
            local: (local.parse::<IpAddr>().unwrap(), 443),
            remote: ("10.0.0.2".parse().unwrap(), 50_000),
            rtt: Nanos::from_us(rtt_us),
            rtt_deviation: Nanos::from_us(10),
            min_rtt: Some(Nanos::from_us(rtt_us / 2)),
            retransmitted: u32::try_from(acked / 100).unwrap(),
            acked_bytes: Some(acked),
            received_bytes: Some(0),
            delivery_bytes_per_s: Some(1000),
        }
    }

    #[test]
    fn what_moved_between_readings_counts_and_a_reset_counter_is_nothing() {
        let live = Live::default();
        let mut connections = Connections::open(&live).unwrap();
        let one = |acked| {
            vec![connection(1, "10.0.0.1", acked, 200), connection(2, "127.0.0.1", acked, 1)]
        };
        assert_eq!(connections.since_last(one(1_000)), TcpObservation::default());
        let seen = connections.since_last(one(1_500));
        assert_eq!((seen.connections, seen.acked_bytes, seen.retransmitted), (1, 500, 5));
        assert_eq!((seen.rtt.count(), seen.min_rtt), (1, Some(Nanos::from_us(100))));
        let idle = connections.since_last(one(1_500));
        assert_eq!((idle.rtt.count(), idle.readings), (0, 1));
        let backwards = connections.since_last(one(10));
        assert_eq!((backwards.acked_bytes, backwards.retransmitted), (0, 0));
        let new = connections.since_last(vec![connection(3, "10.0.0.1", 70, 9)]);
        assert_eq!(new.acked_bytes, 70, "it began since");
    }
}
