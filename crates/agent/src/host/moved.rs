//! Changes of a TCP connection between two readings.

use latput_linux::TcpConnection;
use latput_trial::observation::TcpObservation;

/// Whether a connection is there in a reading, or has ended since the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Open,
    Ended,
}

/// Changes of a connection between two readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionDelta {
    pub(super) acked_bytes: u64,
    pub(super) received_bytes: u64,
    retransmitted: u64,
    /// Whether its round-trip time is of this while: one that moved nothing has that of an earlier setting.
    pub(super) has_sample: bool,
}

impl ConnectionDelta {
    /// Of a connection that had these counts before, or none if it is new.
    pub(super) fn from_readings(one: &TcpConnection, before: Option<&TcpConnection>) -> Self {
        let grown = |of: fn(&TcpConnection) -> Option<u64>| {
            let (now, then) = (of(one)?, before.map_or(Some(0), of)?);
            Some(now.saturating_sub(then))
        };
        let acked = grown(|it| it.acked_bytes);
        let received = grown(|it| it.received_bytes);
        let has_moved =
            acked.is_none_or(|bytes| bytes > 0) || received.is_some_and(|bytes| bytes > 0);
        Self {
            acked_bytes: acked.unwrap_or(0),
            received_bytes: received.unwrap_or(0),
            retransmitted: grown(|it| Some(it.retransmitted.into())).unwrap_or(0),
            has_sample: has_moved && one.rtt.as_ns() != 0,
        }
    }

    /// Adds it to what was seen of several, without the deviation of its round-trip time.
    pub(super) fn add_to(&self, seen: &mut TcpObservation, one: &TcpConnection) {
        seen.acked_bytes = seen.acked_bytes.saturating_add(self.acked_bytes);
        seen.received_bytes = seen.received_bytes.saturating_add(self.received_bytes);
        seen.retransmitted = seen.retransmitted.saturating_add(self.retransmitted);
        if !self.has_sample {
            return;
        }
        seen.rtt.record(one.rtt);
        seen.min_rtt = seen.min_rtt.into_iter().chain(one.min_rtt).min();
        if let Some(rate) = one.delivery_bytes_per_s.filter(|rate| *rate > 0) {
            seen.delivery_bytes_per_s_sum = seen.delivery_bytes_per_s_sum.saturating_add(rate);
            seen.deliveries += 1;
        }
    }
}

/// All payload of a connection's life.
pub(super) fn total_payload(one: &TcpConnection) -> u64 {
    let parts = [one.acked_bytes, one.received_bytes].map(Option::unwrap_or_default);
    parts[0].saturating_add(parts[1])
}
