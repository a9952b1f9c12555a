//! Counts and latencies of a load.

use crate::agenda::Time;
use crate::recorder::LatencyRecorder;
use crate::socket::{DatagramBurst, PendingRequest};

/// Counts of one load in the measured window.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadCounters {
    /// Round-trip times of transactions and probes; one-way delay of datagrams from their due time.
    pub(crate) latency: LatencyRecorder,
    /// Round-trip times from the send time, in an open loop.
    pub(crate) raw_latency: Option<Box<LatencyRecorder>>,
    /// Timed-out transactions.
    pub(crate) lost: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Bytes sent toward the generator.
    pub(crate) reverse_sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Bytes received by the generator.
    pub(crate) reverse_received_bytes: u64,
    /// Dropped at a full socket.
    pub(crate) socket_dropped: u64,
    /// Datagrams and echoes both sent and received in the window.
    pub(crate) matched: u64,
    /// Datagrams and echoes of the window that arrived after its end.
    pub(crate) late: u64,
    /// Datagrams and echoes in flight at its end.
    pub(crate) awaited: u64,
    /// RFC 3550, section 6.4.1.
    pub(crate) jitter_ns: f64,
    last_transit: Option<Time>,
}

impl LoadCounters {
    /// An empty tally; with `keeps_raw`, for an open loop.
    pub(crate) fn new(keeps_raw: bool) -> Self {
        Self { raw_latency: keeps_raw.then(Box::default), ..Self::default() }
    }

    /// Counts bytes sent by a process, of the generator or not.
    #[inline]
    pub(crate) fn handed_over(&mut self, is_generator: bool, bytes: u64) {
        self.sent_bytes += bytes;
        if !is_generator {
            self.reverse_sent_bytes += bytes;
        }
    }

    /// Counts bytes received by a process, of the generator or not.
    #[inline]
    pub(crate) fn count_received(&mut self, is_generator: bool, bytes: u64) {
        self.received_bytes += bytes;
        if is_generator {
            self.reverse_received_bytes += bytes;
        }
    }

    /// An empty tally of the same load.
    pub(crate) fn clone_empty(&self) -> Self {
        Self::new(self.raw_latency.is_some())
    }

    /// Counts a complete transaction.
    #[inline]
    pub(crate) fn count_transaction(&mut self, start: PendingRequest, now: Time) {
        self.received += 1;
        self.latency.record(now - start.due, 1);
        if let Some(raw) = &mut self.raw_latency {
            raw.record(now - start.sent, 1);
        }
    }

    /// Counts datagrams or echoes sent at `sent` that arrived in the window or late.
    #[inline]
    pub(crate) fn count_arrival(
        &mut self,
        sent: Time,
        count: u64,
        now: Time,
        (from, to): (Time, Time),
    ) {
        if sent <= from || sent > to {
            return;
        }
        if now <= to {
            self.matched += count;
        } else {
            self.late += count;
        }
    }

    /// Counts datagrams that reached their process.
    pub(crate) fn count_datagrams(
        &mut self,
        datagrams: &DatagramBurst,
        now: Time,
        window: (Time, Time),
    ) {
        if datagrams.gap == 0 || datagrams.count == 1 {
            return self.datagrams_together(datagrams, now, window);
        }
        for idx in 0..u64::from(datagrams.count) {
            let later = idx * u64::from(datagrams.gap);
            let (sent_at, echo) = (datagrams.sent_at + later, datagrams.echo + later);
            let one = DatagramBurst { sent_at, echo, count: 1, ..*datagrams };
            self.datagrams_together(&one, now, window);
        }
    }

    /// Counts datagrams that reached their process one by one in a window from `from` on: the first
    /// at `first`, the others `every` nanoseconds apart.
    pub(crate) fn datagrams_apart(
        &mut self,
        datagrams: &DatagramBurst,
        first: Time,
        every: Time,
        from: Time,
    ) {
        let DatagramBurst { payload, count, gap, .. } = *datagrams;
        let (many, gap) = (u64::from(count), u64::from(gap));
        self.received += many;
        self.received_bytes += many * u64::from(payload);
        self.matched += match from.checked_sub(datagrams.echo) {
            None => many,
            Some(before) => (0..many).filter(|idx| idx * gap > before).count() as u64,
        };
        let mut jitter_ns = self.jitter_ns;
        let mut last = self.last_transit;
        for idx in 0..many {
            let transit = (first + idx * every).saturating_sub(datagrams.sent_at + idx * gap);
            self.latency.record(transit, 1);
            if let Some(last) = last {
                jitter_ns += (transit.abs_diff(last) as f64 - jitter_ns) / 16.0;
            }
            last = Some(transit);
        }
        (self.jitter_ns, self.last_transit) = (jitter_ns, last);
    }

    #[inline]
    fn datagrams_together(&mut self, datagrams: &DatagramBurst, now: Time, window: (Time, Time)) {
        let DatagramBurst { sent_at, echo, payload, count, .. } = *datagrams;
        let transit = now.saturating_sub(sent_at);
        let many = u64::from(count);
        self.received += many;
        self.received_bytes += many * u64::from(payload);
        self.count_arrival(echo, many, now, window);
        self.latency.record(transit, many);
        if let Some(last) = self.last_transit {
            self.jitter_ns += (transit.abs_diff(last) as f64 - self.jitter_ns) / 16.0;
        }
        // All have the transit time of the first.
        if self.jitter_ns > 0.0 {
            for _ in 1..count {
                self.jitter_ns -= self.jitter_ns / 16.0;
            }
        }
        self.last_transit = Some(transit);
    }
}
