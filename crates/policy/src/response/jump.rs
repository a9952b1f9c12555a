//! A sharp change of the rate, seen within a few polls: another load, long before a slot is full.

use latput_units::Nanos;

use super::load::Load;
use super::slot::Seen;
use crate::Observation;

/// Polls are taken together until they span this long, and the delay that holds.
const PIECE: Nanos = Nanos::from_us(100);
/// A piece is off if its rate is by this much (a factor of 1.8) and by so many times what as many packets are by chance.
const OFF: f64 = 0.6;
const BY_CHANCE: f64 = 3.0;
/// So many pieces in a row that are off on one side, and together are as improbable as exp(-12), are another load's.
const PIECES: u32 = 3;
const IMPROBABLE: f64 = 12.0;

/// Pieces in a row that were off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RateJump {
    /// When the piece of now began, and what has come since.
    since: Option<Nanos>,
    packets: u32,
    bytes: u64,
    /// How many were off, on which side, and the logarithm of how improbable that is.
    pieces: u32,
    is_above: bool,
    neg_log_likelihood: f64,
}

impl RateJump {
    /// Takes in a poll, whose predecessor was at `before`, under a `delay` with which `usual` is expected of the load.
    /// Whether it is another load now.
    pub(super) fn add(
        &mut self,
        observation: &Observation,
        before: Nanos,
        delay: Nanos,
        usual: &Seen,
        load: &mut Load,
    ) -> bool {
        let span = observation.now.saturating_sub(*self.since.get_or_insert(before));
        self.packets = self.packets.saturating_add(observation.rx.packets);
        self.bytes += u64::from(observation.rx.bytes) + u64::from(observation.tx.bytes);
        if span < PIECE.max(delay) {
            return false;
        }
        let seconds = span.as_secs_f64();
        let off = (self.bytes.max(1) as f64 / seconds).ln() - usual.bytes_log;
        let packets = f64::from(self.packets).max(usual.packets_log.exp() * seconds);
        let is_off = off.abs() > OFF.max(BY_CHANCE / packets.max(1.0).sqrt());
        let is_above = off > 0.0;
        let run = std::mem::take(self);
        if is_off {
            let before = if is_above == run.is_above { run } else { Self::default() };
            self.is_above = is_above;
            self.pieces = before.pieces + 1;
            self.neg_log_likelihood = before.neg_log_likelihood + load.neg_log_likelihood(off);
        }
        load.jitter_by(off);
        self.pieces >= PIECES && self.neg_log_likelihood > IMPROBABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counts;

    /// Feeds one piece after the other, at rates in percent of the usual; those with which another load was seen.
    fn alarms(
        run: &mut RateJump,
        load: &mut Load,
        rates: impl IntoIterator<Item = u32>,
    ) -> Vec<usize> {
        let delay = Nanos::from_us(256);
        let (usual_bytes, seconds) = (150_000, delay.as_secs_f64());
        let usual = Seen {
            bytes_log: (f64::from(usual_bytes) / seconds).ln(),
            packets_log: (f64::from(usual_bytes / 1500) / seconds).ln(),
            ..Seen::default()
        };
        let mut found = Vec::new();
        for (idx, rate) in rates.into_iter().enumerate() {
            let bytes = usual_bytes / 100 * rate;
            let rx = Counts { packets: bytes / 1500, bytes };
            let observation = Observation { now: delay, rx, ..Observation::default() };
            if run.add(&observation, Nanos::ZERO, delay, &usual, load) {
                found.push(idx);
                *run = RateJump::default();
            }
        }
        found
    }

    #[test]
    fn three_polls_show_another_load_and_two_do_not() {
        let (mut run, mut load) = (RateJump::default(), Load::new());
        let steady = (0..200).map(|idx| if idx % 2 == 0 { 80 } else { 120 });
        assert!(alarms(&mut run, &mut load, steady).is_empty());
        assert!(alarms(&mut run, &mut load, [10, 10, 100, 500, 500, 10, 10, 100]).is_empty());
        assert_eq!(alarms(&mut run, &mut load, [10, 10, 10]), [2]);
        assert_eq!(alarms(&mut run, &mut load, [100, 500, 500, 500]), [3]);
    }

    #[test]
    fn bursts_that_a_load_always_had_are_no_news() {
        let (mut run, mut load) = (RateJump::default(), Load::new());
        let bursts = |count: usize| (0..count).map(|idx| if idx % 8 < 4 { 30 } else { 190 });
        alarms(&mut run, &mut load, bursts(400));
        assert!(alarms(&mut run, &mut load, bursts(400)).is_empty());
        assert_eq!(alarms(&mut run, &mut load, [1; 5]).len(), 1);
    }
}
