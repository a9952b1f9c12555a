//! Detects another load by a sharp change of the rate within a few polls, long before a slot is full.

use latput_units::Nanos;

use super::load::LoadProfile;
use super::params::ResponseParams;
use super::slot::SlotRates;
use crate::QueueObservation;

/// The expected behaviour of a load.
#[derive(Debug)]
pub(super) struct ExpectedLoad {
    /// The delay in force.
    pub(super) delay: Nanos,
    /// The load's behaviour under it.
    pub(super) seen: SlotRates,
}

/// A piece is a few polls taken together. A run of pieces that deviate in the same direction is a jump.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RateJump {
    /// When the current piece began, and its traffic.
    since: Option<Nanos>,
    packets: u32,
    bytes: u64,
    /// How many pieces in a row deviate, in which direction, and their negative log likelihood.
    pieces: u32,
    is_above: bool,
    neg_log_likelihood: f64,
}

impl RateJump {
    /// Takes in a poll; the previous one was at `before`. True if it is another load.
    pub(super) fn add(
        &mut self,
        observation: &QueueObservation,
        before: Nanos,
        expected: &ExpectedLoad,
        load: &mut LoadProfile,
        params: &ResponseParams,
    ) -> bool {
        let span = observation.now.saturating_sub(*self.since.get_or_insert(before));
        self.packets = self.packets.saturating_add(observation.rx.packets);
        self.bytes += u64::from(observation.rx.bytes) + u64::from(observation.tx.bytes);
        if span < params.piece_least.max(expected.delay) {
            return false;
        }
        let seconds = span.as_secs_f64();
        let deviation = (self.bytes.max(1) as f64 / seconds).ln() - expected.seen.bytes_log;
        let packets = f64::from(self.packets).max(expected.seen.packets_log.exp() * seconds);
        let deviates =
            deviation.abs() > params.piece_log.max(params.piece_errors / packets.max(1.0).sqrt());
        let is_above = deviation > 0.0;
        let run = std::mem::take(self);
        if deviates {
            let before = if is_above == run.is_above { run } else { Self::default() };
            self.is_above = is_above;
            self.pieces = before.pieces + 1;
            self.neg_log_likelihood =
                before.neg_log_likelihood + load.neg_log_likelihood(deviation);
        }
        load.jitter_by(deviation, params);
        self.pieces >= params.jump_pieces && self.neg_log_likelihood > params.jump_neg_log
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrafficCounts;

    /// Feeds pieces at rates in percent of the usual; the indices of those at which a jump was detected.
    fn detect_jumps(
        run: &mut RateJump,
        load: &mut LoadProfile,
        rates: impl IntoIterator<Item = u32>,
    ) -> Vec<usize> {
        let delay = Nanos::from_us(256);
        let usual_bytes = 150_000;
        let seconds = delay.as_secs_f64();
        let usual = SlotRates {
            bytes_log: (f64::from(usual_bytes) / seconds).ln(),
            packets_log: (f64::from(usual_bytes / 1500) / seconds).ln(),
            ..SlotRates::default()
        };
        let expected = ExpectedLoad { delay, seen: usual };
        let mut found = Vec::new();
        for (idx, rate) in rates.into_iter().enumerate() {
            let bytes = usual_bytes / 100 * rate;
            // Both directions count.
            let rx = TrafficCounts { packets: bytes / 1500, bytes: bytes / 2 };
            let tx = TrafficCounts { packets: 0, bytes: bytes - bytes / 2 };
            let observation =
                QueueObservation { now: delay, rx, tx, ..QueueObservation::default() };
            if run.add(&observation, Nanos::ZERO, &expected, load, &ResponseParams::DEFAULT) {
                found.push(idx);
                *run = RateJump::default();
            }
        }
        found
    }

    #[test]
    fn jump_takes_three_pieces() {
        let mut run = RateJump::default();
        let mut load = LoadProfile::new(&ResponseParams::DEFAULT);
        let steady = (0..200).map(|idx| if idx % 2 == 0 { 80 } else { 120 });
        assert!(detect_jumps(&mut run, &mut load, steady).is_empty());
        assert!(detect_jumps(&mut run, &mut load, [10, 10, 100, 500, 500, 10, 10, 100]).is_empty());
        assert_eq!(detect_jumps(&mut run, &mut load, [10, 10, 10]), [2]);
        assert_eq!(detect_jumps(&mut run, &mut load, [100, 500, 500, 500]), [3]);
    }

    #[test]
    fn usual_bursts_are_no_jump() {
        let mut run = RateJump::default();
        let mut load = LoadProfile::new(&ResponseParams::DEFAULT);
        let bursts = |count: usize| (0..count).map(|idx| if idx % 8 < 4 { 30 } else { 190 });
        detect_jumps(&mut run, &mut load, bursts(400));
        assert!(detect_jumps(&mut run, &mut load, bursts(400)).is_empty());
        assert_eq!(detect_jumps(&mut run, &mut load, [1; 5]).len(), 1);
    }
}
