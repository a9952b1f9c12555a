//! Readings of the host's TCP connections, added up over a window.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::{TcpConnection, TcpMeter};
use latput_trial::live::{GroupBy, Live, TcpGroup};
use latput_trial::observation::TcpObservation;

use super::groups::{Groups, Payloads};
use super::moved::Moved;

/// Most connections of a reading that count. Of more the first are enough for any percentile.
const MOST_CONNECTIONS: usize = 20_000;

/// Reads connections, and tells what happened between two readings.
#[derive(Debug)]
pub(super) struct Connections<'a> {
    meter: TcpMeter,
    watch: &'a Live,
    /// The last reading, by the kernel's number; `None` before the first.
    last: Option<BTreeMap<u64, TcpConnection>>,
    /// Those that are told apart.
    groups: Option<Groups>,
}

impl<'a> Connections<'a> {
    /// `payloads` is what is known of groups; [`Self::into_payloads`] gives it back.
    pub(super) fn open(watch: &'a Live, payloads: Payloads) -> Result<Self, latput_linux::Error> {
        let meter = TcpMeter::open()?;
        let listening = match watch.by {
            Some(GroupBy::Port) => meter.listening_ports()?,
            _ => BTreeSet::new(),
        };
        let groups = watch.by.map(|by| Groups::new(by, listening, payloads));
        Ok(Self { meter, watch, last: None, groups })
    }

    /// What happened since the last reading. The first tells nothing: what was before it is not known.
    pub(super) fn read(&mut self) -> Result<TcpObservation, latput_linux::Error> {
        let found = self.meter.connections()?;
        Ok(self.since_last(found))
    }

    /// What happened in each group since the last call.
    pub(super) fn take_groups(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        self.groups.as_mut().map(Groups::take).unwrap_or_default()
    }

    pub(super) fn into_payloads(self) -> Payloads {
        self.groups.map(Groups::into_payloads).unwrap_or_default()
    }

    fn since_last(&mut self, found: Vec<TcpConnection>) -> TcpObservation {
        let counts = |one: &TcpConnection| {
            !one.local.0.is_loopback()
                && self.watch.counts([one.local.1, one.remote.1], one.remote.0)
        };
        let now = found.into_iter().filter(counts).take(MOST_CONNECTIONS);
        let now: BTreeMap<u64, TcpConnection> = now.map(|one| (one.cookie, one)).collect();
        let last = self.last.replace(now);
        let now = self.last.iter().flat_map(BTreeMap::values);
        let Some(last) = last else {
            if let Some(groups) = &mut self.groups {
                groups.choose(now);
            }
            return TcpObservation::default();
        };
        let mut seen = TcpObservation { readings: 1, ..TcpObservation::default() };
        for one in now {
            seen.connections += 1;
            let moved = Moved::of(one, last.get(&one.cookie));
            moved.add_to(&mut seen, one);
            if moved.has_sample {
                seen.rtt_deviation.record(one.rtt_deviation);
            }
            if let Some(groups) = &mut self.groups {
                groups.add(one, &moved);
            }
        }
        if let Some(groups) = &mut self.groups {
            groups.end_reading();
        }
        seen
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
        let mut connections = Connections::open(&live, Payloads::default()).unwrap();
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
