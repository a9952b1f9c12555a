//! What a load did: counts and latencies.

use crate::agenda::Time;
use crate::recorder::Recorder;
use crate::socket::{Datagrams, Start};

/// What one load did in the measured window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Round trips of transactions and probes; one-way delay of datagrams, from when they were due.
    pub(crate) latency: Recorder,
    /// Open loops: round trips from when requests were really sent.
    pub(crate) raw_latency: Option<Box<Recorder>>,
    /// Transactions given up.
    pub(crate) lost: u64,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Of those, towards the generator.
    pub(crate) reverse_sent_bytes: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Of those, by the generator.
    pub(crate) reverse_received_bytes: u64,
    /// Dropped at a full socket.
    pub(crate) socket_dropped: u64,
    /// Datagrams and echoes received that were sent in the window too.
    pub(crate) matched: u64,
    /// Datagrams and echoes of the window that arrived after its end.
    pub(crate) late: u64,
    /// How many were under way then.
    pub(crate) awaited: u64,
    /// RFC 3550, section 6.4.1.
    pub(crate) jitter_ns: f64,
    last_transit: Option<Time>,
}

impl Tally {
    /// Nothing yet; with `keeps_raw`, of an open loop.
    pub(crate) fn new(keeps_raw: bool) -> Self {
        Self { raw_latency: keeps_raw.then(Box::default), ..Self::default() }
    }

    /// A process handed over so much; of a generator, or not.
    #[inline]
    pub(crate) fn handed_over(&mut self, is_generator: bool, bytes: u64) {
        self.sent_bytes += bytes;
        if !is_generator {
            self.reverse_sent_bytes += bytes;
        }
    }

    /// A process got so much; of a generator, or not.
    #[inline]
    pub(crate) fn got(&mut self, is_generator: bool, bytes: u64) {
        self.received_bytes += bytes;
        if is_generator {
            self.reverse_received_bytes += bytes;
        }
    }

    /// Nothing yet, of the same load.
    pub(crate) fn cleared(&self) -> Self {
        Self::new(self.raw_latency.is_some())
    }

    /// A transaction is complete.
    #[inline]
    pub(crate) fn transaction(&mut self, start: Start, now: Time) {
        self.received += 1;
        self.latency.record(now - start.due, 1);
        if let Some(raw) = &mut self.raw_latency {
            raw.record(now - start.sent, 1);
        }
    }

    /// Datagrams or echoes that left the process at `sent` have arrived: in their window, or late.
    #[inline]
    pub(crate) fn arrived(&mut self, sent: Time, count: u64, now: Time, (from, to): (Time, Time)) {
        if sent <= from || sent > to {
            return;
        }
        if now <= to {
            self.matched += count;
        } else {
            self.late += count;
        }
    }

    /// Datagrams reached their process.
    pub(crate) fn datagrams(&mut self, datagrams: &Datagrams, now: Time, window: (Time, Time)) {
        if datagrams.gap == 0 || datagrams.count == 1 {
            return self.datagrams_together(datagrams, now, window);
        }
        for idx in 0..u64::from(datagrams.count) {
            let later = idx * u64::from(datagrams.gap);
            let (sent_at, echo) = (datagrams.sent_at + later, datagrams.echo + later);
            let one = Datagrams { sent_at, echo, count: 1, ..*datagrams };
            self.datagrams_together(&one, now, window);
        }
    }

    /// Datagrams that reached their process one by one in a window that began at `from`: the first at `first`,
    /// each `every` after the one before it.
    pub(crate) fn datagrams_apart(
        &mut self,
        datagrams: &Datagrams,
        first: Time,
        every: Time,
        from: Time,
    ) {
        let Datagrams { payload, count, gap, .. } = *datagrams;
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
    fn datagrams_together(&mut self, datagrams: &Datagrams, now: Time, window: (Time, Time)) {
        let Datagrams { sent_at, echo, payload, count, .. } = *datagrams;
        let transit = now.saturating_sub(sent_at);
        let many = u64::from(count);
        self.received += many;
        self.received_bytes += many * u64::from(payload);
        self.arrived(echo, many, now, window);
        self.latency.record(transit, many);
        if let Some(last) = self.last_transit {
            self.jitter_ns += (transit.abs_diff(last) as f64 - self.jitter_ns) / 16.0;
        }
        // The others were under way for as long as the first.
        if self.jitter_ns > 0.0 {
            for _ in 1..count {
                self.jitter_ns -= self.jitter_ns / 16.0;
            }
        }
        self.last_transit = Some(transit);
    }
}
