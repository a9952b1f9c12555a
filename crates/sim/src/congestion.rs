//! How much TCP may have in flight: Reno (RFC 5681) and CUBIC (RFC 9438).
//!
//! Left out: `HyStart`, pacing.

use crate::agenda::Time;
use crate::machine::Congestion;

/// Segments at the start (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// CUBIC's scaling constant and decrease factor (RFC 9438, section 4.1 and 4.6).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// The window of one connection, with what a loss leads to at its end.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Window {
    /// Bytes that may be in flight.
    size: f64,
    /// Below this the window doubles per round trip.
    threshold: f64,
    mss: f64,
    cubic: Cubic,
    algorithm: Congestion,
}

/// The curve since the last loss.
#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    /// The window before the loss, in segments.
    most: f64,
    began: Option<Time>,
    /// Seconds from the loss until the curve is back at `most`.
    plateau_s: f64,
    /// What Reno would have by now, in segments.
    friendly: f64,
}

impl Window {
    pub(crate) fn new(algorithm: Congestion, mss: u32) -> Self {
        Self {
            size: f64::from(mss * INITIAL_SEGMENTS),
            threshold: f64::INFINITY,
            mss: f64::from(mss),
            cubic: Cubic::default(),
            algorithm,
        }
    }

    /// Bytes that may be in flight.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a float to int cast saturates")]
    pub(crate) fn bytes(&self) -> u64 {
        self.size as u64
    }

    /// `acked` new bytes were acknowledged while `in_flight` were out. A window that was not used does not
    /// grow (RFC 7661).
    pub(crate) fn acked(&mut self, acked: u64, in_flight: u64, now: Time, round_trip: Time) {
        let (acked, in_flight) = (acked as f64, in_flight as f64);
        if self.size < self.threshold {
            if self.size < 2.0 * in_flight {
                self.size += acked;
            }
        } else if in_flight + self.mss >= self.size {
            match self.algorithm {
                Congestion::Reno => self.size += self.mss * acked / self.size,
                Congestion::Cubic => self.grow_cubic(acked, now, round_trip),
            }
        }
    }

    fn grow_cubic(&mut self, acked: f64, now: Time, round_trip: Time) {
        let segments = self.size / self.mss;
        let cubic = &mut self.cubic;
        let began = *cubic.began.get_or_insert_with(|| {
            cubic.most = cubic.most.max(segments);
            cubic.plateau_s = ((cubic.most - segments) / CUBIC_C).cbrt();
            cubic.friendly = segments;
            now
        });
        cubic.friendly += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) * acked / self.size;
        let at_s = (now - began + round_trip) as f64 / 1e9 - cubic.plateau_s;
        let curve = CUBIC_C * at_s * at_s * at_s + cubic.most;
        let target = curve.clamp(segments, 1.5 * segments);
        let grown = segments + (target - segments) / segments * acked / self.mss;
        self.size = grown.max(cubic.friendly) * self.mss;
    }

    /// A segment was lost: gives the window to go on with.
    pub(crate) fn lost(&mut self, in_flight: u64) {
        let kept = match self.algorithm {
            Congestion::Reno => 0.5 * in_flight as f64,
            Congestion::Cubic => CUBIC_BETA * self.size,
        };
        let segments = self.size / self.mss;
        // Fast convergence: give way to newcomers.
        let shrinking = segments < self.cubic.most;
        self.cubic.most = if shrinking { segments * (1.0 + CUBIC_BETA) / 2.0 } else { segments };
        self.cubic.began = None;
        self.threshold = kept.max(2.0 * self.mss);
        self.size = self.threshold;
    }

    /// Nothing came back in time: start again from one segment.
    pub(crate) fn timed_out(&mut self, in_flight: u64) {
        self.lost(in_flight);
        self.size = self.mss;
    }

    /// `NewReno`'s artificial inflation during recovery.
    pub(crate) fn inflate(&mut self, segments: u32) {
        self.size += f64::from(segments) * self.mss;
    }

    /// `NewReno`'s deflation by what a partial acknowledgement took out of flight.
    pub(crate) fn deflate(&mut self, acked: u64) {
        self.size = (self.size - acked as f64).max(self.mss) + self.mss;
    }

    /// Recovery is over.
    pub(crate) fn recovered(&mut self) {
        self.size = self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Time = 10_000_000;

    #[test]
    fn slow_start_doubles_per_round_trip() {
        let mut window = Window::new(Congestion::Reno, 1_000);
        for _ in 0..3 {
            let size = window.bytes();
            window.acked(size, size, 0, ROUND_TRIP);
            assert_eq!(window.bytes(), 2 * size);
        }
    }

    #[test]
    fn reno_halves_and_then_adds_one_segment_per_round_trip() {
        let mut window = Window::new(Congestion::Reno, 1_000);
        window.lost(40_000);
        assert_eq!(window.bytes(), 20_000);
        for _ in 0..20 {
            window.acked(1_000, window.bytes(), 0, ROUND_TRIP);
        }
        assert!((20_950..=21_000).contains(&window.bytes()), "{}", window.bytes());
    }

    #[test]
    fn cubic_is_back_at_its_old_window_after_the_plateau_time() {
        let mut window = Window::new(Congestion::Cubic, 1_000);
        window.size = 1e6;
        window.lost(1_000_000);
        assert_eq!(window.bytes(), 700_000);
        // cbrt(300 / 0.4) = 9.09 s; one acknowledgement per round trip of 100 ms, long enough for the
        // curve to be above what Reno would have.
        for round in 0..91 {
            let size = window.bytes();
            window.acked(size, size, round * 10 * ROUND_TRIP, 10 * ROUND_TRIP);
        }
        assert!((990_000..=1_010_000).contains(&window.bytes()), "{}", window.bytes());
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = Window::new(Congestion::Cubic, 1_000);
        window.acked(1_000, 1_000, 0, ROUND_TRIP);
        assert_eq!(window.bytes(), 10_000);
    }
}
