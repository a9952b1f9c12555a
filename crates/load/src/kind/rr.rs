//! Request and response on TCP, and fetched objects: the loop of both ends.
//!
//! Both ends do the same: read the available bytes, count the messages that they complete, and
//! answer each with one message. The generator begins with its messages in flight and measures. The
//! reflector begins with none.

mod blocking;
mod epoll;

use std::collections::VecDeque;

use latput_stats::Histogram;
use latput_units::Nanos;
use rustix::net::SendFlags;

use crate::error::Error;
use crate::meter::Meter;
use crate::workers::WorkerContext;

/// Size of a request of `fetch`, about that of a small HTTP GET.
pub(crate) const FETCH_BYTES: usize = 128;
/// Most messages of one send call.
const SEND_BATCH: usize = 64;
/// Most bytes of a larger message in one send call.
const CHUNK_BYTES: usize = 1 << 20;
/// Largest read.
const READ_BYTES: usize = 128 * 1024;
/// Memory of a small segment in a receive buffer beside its payload (`skb->truesize`), rounded up.
const SEGMENT_OVERHEAD: usize = 2048;
/// Bytes that always fit the receive buffer of a fresh connection (`net.ipv4.tcp_rmem` starts at
/// 128 KB).
const ALWAYS_BUFFERED: usize = 64 * 1024;

/// The exchange from the view of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// Size of a received message.
    pub(crate) incoming: usize,
    /// Size of a sent message.
    pub(crate) outgoing: usize,
    /// Messages in flight on each connection.
    pub(crate) in_flight: u32,
    /// Whether each message leaves as a segment of its own.
    pub(crate) separate: bool,
    /// Whether this end sends first and measures.
    pub(crate) leads: bool,
}

/// Exchanges messages until the meter reports the end or the other end closes.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    side: &Side,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    meter.tally.latency = side.leads.then(Histogram::new);
    match worker.sockets {
        [socket] if side.never_fills_buffers() && worker.run.polling.is_none() => {
            blocking::run(worker, socket, side, meter)
        }
        sockets => epoll::run(worker, sockets, side, meter),
    }
}

impl Side {
    /// Whether a blocking send can never wait for a peer that itself waits in a send. With one
    /// message in flight the peer always reads, and a few small ones fit its receive buffer.
    fn never_fills_buffers(&self) -> bool {
        let largest = self.incoming.max(self.outgoing) + SEGMENT_OVERHEAD;
        let in_one_send = self.outgoing <= CHUNK_BYTES;
        in_one_send && self.in_flight == 1
            || largest.saturating_mul(self.in_flight as usize) <= ALWAYS_BUFFERED
    }

    /// Flags of a send. `MSG_EOR` keeps the kernel from appending the next message to this one's
    /// segment, even if it could not send at once (congestion window, autocorking).
    fn send_flags(&self) -> SendFlags {
        if self.separate { SendFlags::NOSIGNAL | SendFlags::EOR } else { SendFlags::NOSIGNAL }
    }

    fn read_buffer(&self) -> Vec<u8> {
        let in_flight = self.incoming.saturating_mul(self.in_flight as usize);
        vec![0; in_flight.clamp(1, READ_BYTES)]
    }

    /// The number of messages that `bytes` more complete. `partial` keeps the remaining bytes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a read is at most 128 KiB")]
    fn completed(&self, partial: &mut usize, bytes: usize) -> u32 {
        *partial += bytes;
        let messages = *partial / self.incoming;
        *partial %= self.incoming;
        messages as u32
    }

    fn first_messages(&self) -> u32 {
        if self.leads { self.in_flight } else { 0 }
    }
}

/// The messages in flight on one connection, oldest first. TCP keeps order, so the first response
/// belongs to the first request. Messages that were sent together share an entry.
#[derive(Debug, Default)]
struct InFlight(VecDeque<(Nanos, u32)>);

impl InFlight {
    fn sent(&mut self, at: Nanos, messages: u32) {
        self.0.push_back((at, messages));
    }

    /// Removes the oldest `messages` and counts their round trips, which ended at `now`.
    #[inline]
    fn answered(&mut self, now: Nanos, mut messages: u32, meter: &mut Meter<'_>) {
        while messages > 0 {
            // Extra responses of the peer are no round trips.
            let Some((at, waiting)) = self.0.front_mut() else { return };
            let answered = messages.min(*waiting);
            meter.round_trips(*at, now, u64::from(answered));
            messages -= answered;
            *waiting -= answered;
            if *waiting == 0 {
                self.0.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Window;
    use crate::workers::{Progress, TrafficRun};

    #[test]
    fn responses_belong_to_the_oldest_requests() {
        let latency = measured(|in_flight, meter, at| {
            in_flight.sent(at(100), 3);
            in_flight.sent(at(200), 1);
            in_flight.answered(at(150), 2, meter);
            in_flight.answered(at(300), 2, meter);
        });
        let counts: Vec<(u64, u64)> =
            latency.buckets().map(|(value, count)| (value.as_ns(), count)).collect();
        assert_eq!(counts, [(50, 2), (100, 1), (200, 1)]);
    }

    #[test]
    fn unrequested_response_is_no_round_trip() {
        let latency = measured(|in_flight, meter, at| {
            in_flight.sent(at(1), 1);
            in_flight.answered(at(2), 1000, meter);
        });
        assert_eq!(latency.count(), 1);
    }

    /// Latencies that a meter records in its window; `work` gets the window's times by nanosecond.
    fn measured(
        work: impl FnOnce(&mut InFlight, &mut Meter<'_>, &dyn Fn(u64) -> Nanos),
    ) -> Histogram {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_s(1)).unwrap();
        let (peer, progress) = (([127, 0, 0, 1], 1).into(), Progress::new(1, None));
        let run = TrafficRun::new(&[], peer, window, true, progress);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.tally.latency = Some(Histogram::new());
        meter.phase(window.start());
        work(&mut InFlight::default(), &mut meter, &|ns| window.start() + Nanos::from_ns(ns));
        meter.finish().remove(0).latency.unwrap()
    }

    #[test]
    fn only_large_exchanges_may_block() {
        check_blocking(1, 1, 1, true);
        check_blocking(1, 1, 17, true);
        check_blocking(1 << 24, 1 << 20, 1, true);
        check_blocking(1, 1 << 40, 1, false);
        check_blocking(32 * 1024, 32 * 1024, 7, false);
        check_blocking(1, 1, 1000, false);
        check_blocking(1, 65_536, 2, false);
    }

    #[track_caller]
    fn check_blocking(incoming: usize, outgoing: usize, in_flight: u32, blocks: bool) {
        let side = Side { incoming, outgoing, in_flight, separate: true, leads: true };
        assert_eq!(side.never_fills_buffers(), blocks);
    }
}
