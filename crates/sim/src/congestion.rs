//! Congestion control of TCP: Reno (RFC 5681) and CUBIC (RFC 9438).
//!
//! Left out: `HyStart`, pacing.

use crate::agenda::{NEVER, Time};
use crate::machine::CongestionControl;

/// Segments at the start (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;
/// CUBIC's scaling constant and decrease factor (RFC 9438, section 4.1 and 4.6).
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// Constants of a connection, kept apart so that the window itself stays small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CongestionParams {
    pub(crate) algorithm: CongestionControl,
    /// Bytes of a full segment.
    pub(crate) mss: f64,
}

/// The congestion window of one connection, and its state after a loss.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct CongestionWindow {
    /// Bytes that may be in flight.
    size: f64,
    /// Below this the window doubles per round trip.
    threshold: f64,
    cubic: CubicCurve,
}

/// The curve since the last loss.
#[derive(Clone, Copy, Debug)]
struct CubicCurve {
    /// The window before the loss, in segments.
    most: f64,
    /// Start of the curve; [`NEVER`] until the next acknowledgement.
    began: Time,
    /// Seconds from the loss until the curve is back at `most`.
    plateau_s: f64,
    /// The window that Reno would have, in segments.
    friendly: f64,
}

impl CongestionWindow {
    pub(crate) fn new(rules: CongestionParams) -> Self {
        Self {
            size: rules.mss * INITIAL_SEGMENTS,
            threshold: f64::INFINITY,
            cubic: CubicCurve { most: 0.0, began: NEVER, plateau_s: 0.0, friendly: 0.0 },
        }
    }

    /// Bytes that may be in flight.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a float to int cast saturates")]
    pub(crate) fn bytes(&self) -> u64 {
        self.size as u64
    }

    /// Grows the window after `acked` new bytes were acknowledged while `in_flight` were out. An
    /// unused window does not grow (RFC 7661).
    pub(crate) fn grow_on_ack(
        &mut self,
        rules: CongestionParams,
        acked: u64,
        in_flight: u64,
        now: Time,
        round_trip: Time,
    ) {
        let (acked, in_flight) = (acked as f64, in_flight as f64);
        if self.size < self.threshold {
            if self.size < 2.0 * in_flight {
                self.size += acked;
            }
        } else if in_flight + rules.mss >= self.size {
            match rules.algorithm {
                CongestionControl::Reno => self.size += rules.mss * acked / self.size,
                CongestionControl::Cubic => self.grow_cubic(rules.mss, acked, now, round_trip),
            }
        }
    }

    fn grow_cubic(&mut self, mss: f64, acked: f64, now: Time, round_trip: Time) {
        let segments = self.size / mss;
        let cubic = &mut self.cubic;
        if cubic.began == NEVER {
            cubic.most = cubic.most.max(segments);
            cubic.plateau_s = ((cubic.most - segments) / CUBIC_C).cbrt();
            cubic.friendly = segments;
            cubic.began = now;
        }
        cubic.friendly += 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA) * acked / self.size;
        let at_s = (now - cubic.began + round_trip) as f64 / 1e9 - cubic.plateau_s;
        let curve = CUBIC_C * at_s * at_s * at_s + cubic.most;
        let target = curve.clamp(segments, 1.5 * segments);
        let grown = segments + (target - segments) / segments * acked / mss;
        self.size = grown.max(cubic.friendly) * mss;
    }

    /// Reacts to a lost segment. Returns the window in use from now on.
    pub(crate) fn reduce_on_loss(&mut self, rules: CongestionParams, in_flight: u64) {
        let kept = match rules.algorithm {
            CongestionControl::Reno => 0.5 * in_flight as f64,
            CongestionControl::Cubic => CUBIC_BETA * self.size,
        };
        let segments = self.size / rules.mss;
        // Fast convergence: release bandwidth to new flows.
        let shrinking = segments < self.cubic.most;
        self.cubic.most = if shrinking { segments * (1.0 + CUBIC_BETA) / 2.0 } else { segments };
        self.cubic.began = NEVER;
        self.threshold = kept.max(2.0 * rules.mss);
        self.size = self.threshold;
    }

    /// Restarts from one segment after a timeout.
    pub(crate) fn timed_out(&mut self, rules: CongestionParams, in_flight: u64) {
        self.reduce_on_loss(rules, in_flight);
        self.size = rules.mss;
    }

    /// `NewReno`'s artificial inflation during recovery.
    pub(crate) fn inflate(&mut self, rules: CongestionParams, segments: u32) {
        self.size += f64::from(segments) * rules.mss;
    }

    /// `NewReno`'s deflation by what a partial acknowledgement took out of flight.
    pub(crate) fn deflate(&mut self, rules: CongestionParams, acked: u64) {
        self.size = (self.size - acked as f64).max(rules.mss) + rules.mss;
    }

    /// Ends recovery.
    pub(crate) fn end_recovery(&mut self) {
        self.size = self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Time = 10_000_000;
    const RENO: CongestionParams =
        CongestionParams { algorithm: CongestionControl::Reno, mss: 1_000.0 };
    const CUBIC: CongestionParams =
        CongestionParams { algorithm: CongestionControl::Cubic, mss: 1_000.0 };

    #[test]
    fn slow_start_doubles_per_round_trip() {
        let mut window = CongestionWindow::new(RENO);
        for _ in 0..3 {
            let size = window.bytes();
            window.grow_on_ack(RENO, size, size, 0, ROUND_TRIP);
            assert_eq!(window.bytes(), 2 * size);
        }
    }

    #[test]
    fn reno_halves_then_adds_one_segment() {
        let mut window = CongestionWindow::new(RENO);
        window.reduce_on_loss(RENO, 40_000);
        assert_eq!(window.bytes(), 20_000);
        for _ in 0..20 {
            window.grow_on_ack(RENO, 1_000, window.bytes(), 0, ROUND_TRIP);
        }
        assert!((20_950..=21_000).contains(&window.bytes()), "{}", window.bytes());
    }

    #[test]
    fn cubic_regains_window_after_plateau() {
        let mut window = CongestionWindow::new(CUBIC);
        window.size = 1e6;
        window.reduce_on_loss(CUBIC, 1_000_000);
        assert_eq!(window.bytes(), 700_000);
        // cbrt(300 / 0.4) = 9.09 s; one acknowledgement per round trip of 100 ms, long enough for the
        // curve to be above what Reno would have.
        for round in 0..91 {
            let size = window.bytes();
            window.grow_on_ack(CUBIC, size, size, round * 10 * ROUND_TRIP, 10 * ROUND_TRIP);
        }
        assert!((990_000..=1_010_000).contains(&window.bytes()), "{}", window.bytes());
    }

    #[test]
    fn unused_window_does_not_grow() {
        let mut window = CongestionWindow::new(CUBIC);
        window.grow_on_ack(CUBIC, 1_000, 1_000, 0, ROUND_TRIP);
        assert_eq!(window.bytes(), 10_000);
    }
}
