//! Readings of the host's TCP connections, added up over a window.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::{ConnectionEnds, EndedConnections, TcpConnection, TcpMeter, process};
use latput_protocol::text::format_error_chain;
use latput_trial::live::{GroupBy, Live, TcpGroup};
use latput_trial::observation::TcpObservation;
use latput_units::{Clock, IntoMap, IntoSet, Nanos};

use super::groups::{ConnectionDelta, ConnectionGroups, ConnectionState, PayloadTotals};
use super::samples::RttSampler;

const LOST: &str = "more TCP connections ended between two readings than latput could hear of";

/// Connections that are known from one block to the next.
#[derive(Debug, Default)]
pub(super) struct KnownConnections {
    payloads: PayloadTotals,
    /// No round-trip sample is taken before: the block before has spent what may be.
    samples_from: Option<Nanos>,
}

/// Reads connections, and tells what happened between two readings.
#[derive(Debug)]
pub(super) struct ConnectionReader<'a> {
    meter: TcpMeter,
    /// Tells of those that end between two readings; `None` where the kernel does not.
    endings: Option<EndedConnections>,
    samples: RttSampler,
    watch: &'a Live,
    /// `None` before the first reading.
    last: Option<LastReading>,
    /// Those that are told apart.
    groups: Option<ConnectionGroups>,
}

/// A reading.
#[derive(Debug, Default)]
struct TcpReading {
    at: Nanos,
    found: Vec<TcpConnection>,
    /// Those that have ended since the reading before.
    ended: ConnectionEnds,
    samples: Vec<(u64, Nanos)>,
}

/// State that the readings so far leave behind.
#[derive(Debug)]
struct LastReading {
    /// When the first reading was.
    first_at: Nanos,
    /// Each connection as it was seen last, by the kernel's number: also one that is closed, of which no end was told yet.
    known: BTreeMap<u64, TcpConnection>,
}

impl<'a> ConnectionReader<'a> {
    /// `known` is of the blocks before; [`Self::into_known`] gives it back. `notes` gets what cannot be seen.
    pub(super) fn open(
        watch: &'a Live,
        known: KnownConnections,
        notes: &mut Vec<String>,
    ) -> Result<Self, latput_linux::Error> {
        let meter = TcpMeter::open()?;
        // Before the first reading, so that none is missed.
        let endings = EndedConnections::open()
            .map_err(|error| {
                notes.push(format!(
                    "TCP connections that end within {} are not counted: {}",
                    latput_protocol::live::TICK,
                    format_error_chain(&error)
                ));
            })
            .ok();
        let samples = RttSampler::open(watch.samples_cpu, known.samples_from, notes);
        let listening = match watch.by {
            Some(GroupBy::Port) => meter.listening_ports()?,
            _ => BTreeSet::new(),
        };
        let groups = watch.by.map(|by| ConnectionGroups::new(by, listening, known.payloads));
        Ok(Self { meter, endings, samples, watch, last: None, groups })
    }

    /// Reads the changes since the last reading. The first tells nothing: the time before it is not known.
    pub(super) fn read(
        &mut self,
        notes: &mut Vec<String>,
    ) -> Result<TcpObservation, latput_linux::Error> {
        // In this order: a connection that has a sample is found, or has ended, and one that ends meanwhile is in both.
        let samples = self.samples.take(notes);
        let found = self.meter.connections()?;
        let at = process::OsClock.now();
        let ended = self.endings.as_ref().map(EndedConnections::take).transpose()?;
        let ended = ended.unwrap_or_default();
        if ended.were_lost && !notes.iter().any(|note| note == LOST) {
            notes.push(LOST.to_owned());
        }
        Ok(self.since_last(TcpReading { at, found, ended, samples }))
    }

    /// CPU time that tracing samples has taken so far.
    pub(super) const fn tracing_cost(&self) -> Nanos {
        self.samples.cpu_cost()
    }

    /// Takes the changes of each group since the last call.
    pub(super) fn take_groups(&mut self) -> BTreeMap<TcpGroup, TcpObservation> {
        self.groups.as_mut().map(ConnectionGroups::take).unwrap_or_default()
    }

    pub(super) fn into_known(self) -> KnownConnections {
        let samples_from = self.samples.paused_until();
        KnownConnections {
            payloads: self.groups.map(ConnectionGroups::into_payloads).unwrap_or_default(),
            samples_from,
        }
    }

    fn since_last(&mut self, reading: TcpReading) -> TcpObservation {
        let TcpReading { at, found, ended, samples } = reading;
        let tells_ends = self.endings.is_some();
        let is_whole = tells_ends && !ended.were_lost;
        let ended = ended.connections;
        let Some(LastReading { first_at, mut known }) = self.last.take() else {
            self.record_first_reading(at, found, &ended);
            return TcpObservation::default();
        };
        let mut seen = TcpObservation {
            readings: 1,
            ended: tells_ends.then_some(0),
            ..TcpObservation::default()
        };
        let open: Option<BTreeSet<u64>> =
            (!is_whole).then(|| found.iter().map(|one| one.cookie).into_set());
        for one in found {
            let before = known.insert(one.cookie, one);
            self.add(&mut seen, &one, before.as_ref(), ConnectionState::Open);
        }
        for one in &ended {
            let before = known.insert(one.cookie, *one);
            // One that was closed before the first reading is in none, and what it moved was before.
            if before.is_some() || at.saturating_sub(one.idle) >= first_at {
                self.add(&mut seen, one, before.as_ref(), ConnectionState::Ended);
            }
        }
        for (cookie, sample) in samples {
            let Some(one) = known.get(&cookie).filter(|one| is_watched(self.watch, one)) else {
                continue;
            };
            seen.rtt_samples.record(sample);
            if let Some(groups) = &mut self.groups {
                groups.add_sample(one, sample);
            }
        }
        for one in &ended {
            known.remove(&one.cookie);
        }
        if let Some(open) = open {
            known.retain(|cookie, _| open.contains(cookie));
        }
        if let Some(groups) = &mut self.groups {
            groups.end_reading(tells_ends);
        }
        self.last = Some(LastReading { first_at, known });
        seen
    }

    /// Takes note of the connections of the first reading.
    fn record_first_reading(
        &mut self,
        first_at: Nanos,
        found: Vec<TcpConnection>,
        ended: &[TcpConnection],
    ) {
        let mut known: BTreeMap<u64, TcpConnection> =
            found.into_iter().map(|one| (one.cookie, one)).into_map();
        for one in ended {
            known.remove(&one.cookie);
        }
        if let Some(groups) = &mut self.groups {
            groups.choose_groups(known.values().filter(|one| is_watched(self.watch, one)));
        }
        self.last = Some(LastReading { first_at, known });
    }

    /// Adds what a connection did since it was seen last.
    fn add(
        &mut self,
        seen: &mut TcpObservation,
        one: &TcpConnection,
        before: Option<&TcpConnection>,
        is: ConnectionState,
    ) {
        seen.seen += u64::from(before.is_none());
        if !is_watched(self.watch, one) {
            return;
        }
        match is {
            ConnectionState::Open => seen.connections += 1,
            ConnectionState::Ended => *seen.ended.get_or_insert(0) += 1,
        }
        let moved = ConnectionDelta::from_readings(one, before);
        moved.add_to(seen, one);
        if moved.has_sample {
            seen.rtt_deviation.record(one.rtt_deviation);
        }
        if let Some(groups) = &mut self.groups {
            groups.add(one, &moved, is);
        }
    }
}

/// Whether a connection is part of what is watched.
fn is_watched(watch: &Live, one: &TcpConnection) -> bool {
    !one.local.0.is_loopback() && watch.counts([one.local.1, one.remote.1], one.remote.0)
}

#[cfg(test)]
mod tests;
