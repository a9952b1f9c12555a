//! Due times of bulk at a rate.

use latput_units::{BitsPerSecond, Nanos};

/// Time that a delayed sender makes up for (and at least two messages). Bytes due beyond it are
/// left out and show as a rate below the offered one.
const CATCH_UP_NS: f64 = 10e6;
/// Retry interval of a sender with full socket buffers.
const RETRY: Nanos = Nanos::from_us(500);

/// A schedule of messages at even intervals. Bytes are due when their message is due.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_ns: f64,
    message: f64,
    start: Nanos,
    /// Bytes sent or left out since the start.
    settled: f64,
    retry_at: Nanos,
}

impl Pace {
    /// The schedule of `share` of `rate`, in messages of `message` bytes, from `start` on.
    pub(super) fn new(rate: BitsPerSecond, share: f64, message: usize, start: Nanos) -> Self {
        let bytes_per_ns = rate.get() as f64 * share / 8e9;
        Self { bytes_per_ns, message: message as f64, start, settled: 0.0, retry_at: Nanos::ZERO }
    }

    /// Bytes due at `now` and not sent.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small, not negative"
    )]
    pub(super) fn owed(&mut self, now: Nanos) -> usize {
        let passed = now.saturating_sub(self.start).as_ns() as f64;
        let due = ((passed * self.bytes_per_ns / self.message).floor() + 1.0) * self.message;
        let most = (CATCH_UP_NS * self.bytes_per_ns).max(2.0 * self.message);
        self.settled = self.settled.max(due - most);
        (due - self.settled).max(0.0).round() as usize
    }

    /// Counts `bytes` as sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.settled += bytes as f64;
    }

    /// Notes that the socket buffers were full at `now`.
    pub(super) fn held_up(&mut self, now: Nanos) {
        self.retry_at = now + RETRY;
    }

    /// When to call [`Self::owed`] again.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within a day")]
    pub(super) fn next_due(&self) -> Nanos {
        let at = (self.settled / self.message).ceil() * self.message / self.bytes_per_ns;
        // One nanosecond later, because of rounding.
        (self.start + Nanos::from_ns(at as u64 + 1)).max(self.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_on_time_keeps_the_rate() {
        // 8 Mbit/s: a byte each microsecond, a message of 1000 each millisecond.
        let mut pace = Pace::new(BitsPerSecond::new(16_000_000), 0.5, 1000, Nanos::ZERO);
        let mut total = 0;
        let mut now = Nanos::ZERO;
        while now < Nanos::from_ms(100) {
            while let owed @ 1.. = pace.owed(now) {
                let taken = owed.min(300);
                pace.sent(taken);
                total += taken;
            }
            assert!(pace.next_due() > now, "{now}");
            now = pace.next_due();
        }
        assert_eq!(total, 100_000);
    }

    #[test]
    fn delayed_sender_makes_up_little() {
        let mut pace = Pace::new(BitsPerSecond::new(8_000_000), 1.0, 1000, Nanos::ZERO);
        assert_eq!(pace.owed(Nanos::from_s(9)), 10_000);
        pace.held_up(Nanos::from_s(9));
        assert_eq!(pace.next_due(), Nanos::from_s(9) + RETRY);
    }
}
