//! Counts of one traffic thread in one slice. All kinds of traffic share them, so that slices begin
//! and end at the same instants for all.

use latput_stats::Histogram;
use latput_trial::observation::ContextSwitches;
use latput_units::Nanos;

use crate::outcome::{DatagramsExchanged, ReceiverOutcome, ScheduleKept, SenderOutcome};

/// The counts of one slice; a window without slices is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Messages received in whole; at the sender of a datagram stream, datagrams sent.
    pub(crate) messages: u64,
    /// Round-trip times, at the end that measures them.
    pub(crate) latency: Option<Histogram>,
    /// Round-trip times from the send time, in an open loop.
    pub(crate) latency_raw: Option<Histogram>,
    /// How far the schedule was kept, in an open loop.
    pub(crate) schedule: Option<ScheduleKept>,
    /// Counts of datagram requests and responses.
    pub(crate) exchange: Option<DatagramsExchanged>,
    /// Datagrams that a sender left out.
    pub(crate) skipped: u64,
    /// Datagrams that were not of this run.
    pub(crate) foreign: u64,
    pub(crate) usage: Usage,
}

/// Resource use of the thread and its sockets in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Nanos,
    pub(crate) switches: Option<ContextSwitches>,
    pub(crate) retransmits: Option<u64>,
    /// Datagrams that the kernel dropped at a full socket buffer.
    pub(crate) dropped: Option<u64>,
}

impl Tally {
    /// Takes the counts and starts again at zero. Packs the histograms, since a window may have
    /// hundreds of slices.
    pub(crate) fn take(&mut self) -> Self {
        let latency = self.latency.as_mut().map(Histogram::take);
        let latency_raw = self.latency_raw.as_mut().map(Histogram::take);
        let anew = Self {
            latency: self.latency.take(),
            latency_raw: self.latency_raw.take(),
            schedule: self.schedule.map(|_| ScheduleKept::default()),
            exchange: self.exchange.map(|_| DatagramsExchanged::default()),
            ..Self::default()
        };
        Self { latency, latency_raw, ..std::mem::replace(self, anew) }
    }
}

impl From<Tally> for SenderOutcome {
    /// Leaves out the parts of single kinds of traffic and the window's length.
    fn from(tally: Tally) -> Self {
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            transactions: tally.latency.is_some().then_some(tally.messages),
            latency: tally.latency,
            latency_raw: tally.latency_raw,
            schedule: tally.schedule,
            exchange: tally.exchange,
            cpu: tally.usage.cpu,
            busiest_cpu: tally.usage.cpu,
            switches: tally.usage.switches,
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}

impl From<Tally> for ReceiverOutcome {
    /// Leaves out the parts of single kinds of traffic and the window's length.
    fn from(tally: Tally) -> Self {
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            foreign: tally.foreign,
            cpu: tally.usage.cpu,
            switches: tally.usage.switches,
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}
