//! Readings of the host's TCP connections, added up over a window.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::{TcpConnection, TcpMeter};
use latput_trial::live::{GroupBy, Live, TcpGroup};
use latput_trial::observation::TcpObservation;
use latput_units::{IntoMap, Nanos};

use super::groups::{Groups, Payloads};
use super::moved::Moved;
use super::samples::Samples;

/// Most connections of a reading that count. Of more the first are enough for any percentile.
const MOST_CONNECTIONS: usize = 20_000;

/// What is known of the connections from one block to the next.
#[derive(Debug, Default)]
pub(super) struct Known {
    payloads: Payloads,
    /// No round-trip sample is taken before: the block before has spent what may be.
    samples_from: Option<Nanos>,
}

/// Reads connections, and tells what happened between two readings.
#[derive(Debug)]
pub(super) struct Connections<'a> {
    meter: TcpMeter,
    samples: Samples,
    watch: &'a Live,
    /// The last reading, by the kernel's number; `None` before the first.
    last: Option<BTreeMap<u64, TcpConnection>>,
    /// Those that are told apart.
    groups: Option<Groups>,
}

impl<'a> Connections<'a> {
    /// `known` is of the blocks before; [`Self::into_known`] gives it back. `notes` gets what cannot be seen.
    pub(super) fn open(
        watch: &'a Live,
        known: Known,
        notes: &mut Vec<String>,
    ) -> Result<Self, latput_linux::Error> {
        let meter = TcpMeter::open()?;
        let samples = Samples::open(watch.samples_cpu, known.samples_from, notes);
        let listening = match watch.by {
            Some(GroupBy::Port) => meter.listening_ports()?,
            _ => BTreeSet::new(),
        };
        let groups = watch.by.map(|by| Groups::new(by, listening, known.payloads));
        Ok(Self { meter, samples, watch, last: None, groups })
    }

    /// What happened since the last reading. The first tells nothing: what was before it is not known.
    pub(super) fn read(
        &mut self,
        notes: &mut Vec<String>,
    ) -> Result<TcpObservation, latput_linux::Error> {
        let found = self.meter.connections()?;
        let samples = self.samples.take(notes);
        Ok(self.since_last(found, &samples))
    }

    /// CPU time that tracing samples has taken so far.
    pub(super) const fn tracing_cost(&self) -> Nanos {
        self.samples.cost()
    }

    /// What happened in each group since the last call.
    pub(super) fn take_groups(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        self.groups.as_mut().map(Groups::take).unwrap_or_default()
    }

    pub(super) fn into_known(self) -> Known {
        let samples_from = self.samples.paused_until();
        Known { payloads: self.groups.map(Groups::into_payloads).unwrap_or_default(), samples_from }
    }

    fn since_last(
        &mut self,
        found: Vec<TcpConnection>,
        samples: &[(u64, Nanos)],
    ) -> TcpObservation {
        let counts = |one: &TcpConnection| {
            !one.local.0.is_loopback()
                && self.watch.counts([one.local.1, one.remote.1], one.remote.0)
        };
        let now = found.into_iter().filter(counts).take(MOST_CONNECTIONS);
        let now: BTreeMap<u64, TcpConnection> = now.map(|one| (one.cookie, one)).into_map();
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
        for (cookie, sample) in samples {
            let Some(one) = self.last.as_ref().and_then(|now| now.get(cookie)) else { continue };
            seen.rtt_samples.record(*sample);
            if let Some(groups) = &mut self.groups {
                groups.add_sample(one, *sample);
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
        let mut connections = Connections::open(&live, Known::default(), &mut Vec::new()).unwrap();
        let samples = [(1, 230), (2, 5), (9, 7)].map(|(cookie, us)| (cookie, Nanos::from_us(us)));
        let mut read = |found| connections.since_last(found, &samples);
        let one = |acked| {
            vec![connection(1, "10.0.0.1", acked, 200), connection(2, "127.0.0.1", acked, 1)]
        };
        assert_eq!(read(one(1_000)), TcpObservation::default());
        let seen = read(one(1_500));
        assert_eq!((seen.connections, seen.acked_bytes, seen.retransmitted), (1, 500, 5));
        assert_eq!((seen.rtt.count(), seen.min_rtt), (1, Some(Nanos::from_us(100))));
        // That of the loopback, and that of a connection which is not there, do not count.
        assert_eq!(
            (seen.rtt_samples.count(), seen.rtt_samples.max().map(|most| most.as_us_f64().round())),
            (1, Some(230.0))
        );
        let idle = read(one(1_500));
        assert_eq!((idle.rtt.count(), idle.readings), (0, 1));
        let backwards = read(one(10));
        assert_eq!((backwards.acked_bytes, backwards.retransmitted), (0, 0));
        let new = read(vec![connection(3, "10.0.0.1", 70, 9)]);
        assert_eq!(new.acked_bytes, 70, "it began since");
    }
}
