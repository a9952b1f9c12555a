//! What one traffic thread counts in one slice of the window. Every kind of traffic counts in the same
//! place, so that a boundary between slices is the same for all.

use latput_stats::Histogram;
use latput_units::Nanos;

use crate::outcome::{DatagramsExchanged, ReceiverOutcome, ScheduleKept, SenderOutcome};

/// The counts of one slice; a window without slices is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Messages that came in whole; at the sender of a datagram stream, the datagrams that it sent.
    pub(crate) messages: u64,
    /// Round trips, at the end that measures them.
    pub(crate) latency: Option<Histogram>,
    /// Of an open loop, the same from when a request was really sent.
    pub(crate) latency_raw: Option<Histogram>,
    /// Of an open loop.
    pub(crate) schedule: Option<ScheduleKept>,
    /// Of requests and responses in datagrams.
    pub(crate) exchange: Option<DatagramsExchanged>,
    /// Datagrams that a sender left out.
    pub(crate) skipped: u64,
    /// Datagrams that were not of this run.
    pub(crate) foreign: u64,
    pub(crate) usage: Usage,
}

/// What the thread and its sockets used between the ends of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Nanos,
    pub(crate) retransmits: Option<u64>,
    /// Datagrams that the kernel dropped because a socket's buffer was full.
    pub(crate) dropped: Option<u64>,
}

impl Tally {
    /// Takes out what was counted and starts anew at nothing. The histograms taken out are packed: a
    /// window may have hundreds of slices.
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
    /// Without what only some kinds have, and without the window's length.
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
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}

impl From<Tally> for ReceiverOutcome {
    /// Without what only some kinds have, and without the window's length.
    fn from(tally: Tally) -> Self {
        Self {
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            foreign: tally.foreign,
            cpu: tally.usage.cpu,
            retransmits: tally.usage.retransmits,
            ..Self::default()
        }
    }
}
