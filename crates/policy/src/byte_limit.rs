//! Byte queue limits (BQL): how many bytes a driver may have in its transmit ring, found from when the
//! ring runs dry and how much of it was never needed.
//!
//! Starvation is judged per completion event, so a longer transmit delay makes a larger limit. Source:
//! the algorithm described in `lib/dynamic_queue_limits.c` and `include/linux/dynamic_queue_limits.h`.

use latput_units::{Bytes, Nanos};

/// How long a surplus must have been there before the limit shrinks.
const HOLD: Nanos = Nanos::from_ms(1_000);

/// One completion: what the device finished since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionEvent {
    /// Bytes finished.
    pub bytes: Bytes,
    /// The time now.
    pub now: Nanos,
}

/// The limit of one transmit queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteLimit {
    limit: u64,
    least: u64,
    most: u64,
    queued: u64,
    completed: u64,
    last_queued: u64,
    previous_queued: u64,
    previous_over: u64,
    previous_last_queued: u64,
    lowest_slack: u64,
    slack_since: Nanos,
}

impl ByteLimit {
    /// A limit that may move between `least` and `most` (sysfs `limit_min` and `limit_max`).
    pub fn new(least: Bytes, most: Bytes) -> Self {
        Self {
            limit: least.get(),
            least: least.get(),
            most: most.get(),
            queued: 0,
            completed: 0,
            last_queued: 0,
            previous_queued: 0,
            previous_over: 0,
            previous_last_queued: 0,
            lowest_slack: u64::MAX,
            slack_since: Nanos::ZERO,
        }
    }

    /// The limit now.
    pub fn limit(&self) -> Bytes {
        Bytes::new(self.limit)
    }

    /// Bytes in the ring.
    pub fn in_flight(&self) -> Bytes {
        Bytes::new(self.queued - self.completed)
    }

    /// Whether the stack may hand over another packet. One packet may exceed the limit.
    pub fn is_open(&self) -> bool {
        self.queued - self.completed <= self.limit
    }

    /// The stack handed over a packet.
    pub fn record_queued(&mut self, bytes: Bytes) {
        self.queued += bytes.get();
        self.last_queued = bytes.get();
    }

    /// The device finished some: the limit from now on.
    pub fn step(&mut self, completion: &CompletionEvent) -> Bytes {
        let finished = completion.bytes.get();
        let completed = self.completed + finished;
        assert!(completed <= self.queued, "more bytes completed than were queued");
        let mut over = (self.queued - self.completed).saturating_sub(self.limit);
        let in_flight = self.queued - completed;
        let was_in_flight = self.previous_queued > self.completed;
        let all_previous_done = completed >= self.previous_queued;
        let starved = (over > 0 && in_flight == 0) || (self.previous_over > 0 && all_previous_done);

        let mut limit = self.limit;
        if starved {
            limit += completed.saturating_sub(self.previous_queued) + self.previous_over;
            self.restart_slack(completion.now);
        } else if in_flight > 0 && was_in_flight && !all_previous_done {
            self.lowest_slack = self.lowest_slack.min(self.compute_slack(finished));
            if completion.now > self.slack_since + HOLD {
                limit = limit.saturating_sub(self.lowest_slack);
                self.restart_slack(completion.now);
            }
        }
        limit = limit.clamp(self.least, self.most);
        if limit != self.limit {
            self.limit = limit;
            over = 0;
        }
        self.previous_over = over;
        self.previous_last_queued = self.last_queued;
        self.completed = completed;
        self.previous_queued = self.queued;
        self.limit()
    }

    /// Bytes that could have been missing without the ring running dry.
    fn compute_slack(&self, finished: u64) -> u64 {
        let unneeded = (self.limit + self.previous_over).saturating_sub(2 * finished);
        let last_packet = match self.previous_over {
            0 => 0,
            over => self.previous_last_queued.saturating_sub(over),
        };
        unneeded.max(last_packet)
    }

    fn restart_slack(&mut self, now: Nanos) {
        self.slack_since = now;
        self.lowest_slack = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::new(1_500);

    #[test]
    fn starved_ring_raises_the_limit() {
        // The device finishes everything that it has every round, at most 30 kB; the stack always
        // has more to send. What keeps it busy is a limit of about two rounds.
        let limit = run(30_000, 200, Nanos::from_us(240)).limit().get();
        assert!((30_000..=75_000).contains(&limit), "{limit}");
    }

    #[test]
    fn surplus_is_given_back_only_after_a_second() {
        let mut queue = ByteLimit::new(Bytes::new(0), Bytes::new(1_000_000));
        queue.limit = 500_000;
        let before = drive_queue(&mut queue, 30_000, 1_000, Nanos::from_us(240), Nanos::ZERO);
        assert_eq!(before.get(), 500_000, "within 0.24 s");
        let after =
            drive_queue(&mut queue, 30_000, 5_000, Nanos::from_us(240), Nanos::from_ms(240));
        assert!(after.get() < 150_000, "{after}");
    }

    #[test]
    fn limit_stays_inside_its_bounds() {
        let mut queue = ByteLimit::new(Bytes::new(3_028), Bytes::new(3_028));
        assert_eq!(
            drive_queue(&mut queue, 30_000, 500, Nanos::from_us(240), Nanos::ZERO).get(),
            3_028
        );
    }

    fn run(per_round: u64, rounds: u64, spacing: Nanos) -> ByteLimit {
        let mut queue = ByteLimit::new(Bytes::new(0), Bytes::new(1_000_000));
        drive_queue(&mut queue, per_round, rounds, spacing, Nanos::ZERO);
        queue
    }

    /// Fills the ring as far as allowed, then completes up to `per_round` bytes, again and again.
    fn drive_queue(
        queue: &mut ByteLimit,
        per_round: u64,
        rounds: u64,
        spacing: Nanos,
        from: Nanos,
    ) -> Bytes {
        for round in 0..rounds {
            while queue.is_open() {
                queue.record_queued(PACKET);
            }
            let bytes = Bytes::new(queue.in_flight().get().min(per_round));
            queue.step(&CompletionEvent { bytes, now: from + spacing.saturating_mul(round) });
        }
        queue.limit()
    }
}
