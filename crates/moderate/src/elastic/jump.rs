//! A sharp change of the load, seen within a few polls: another load, before a slot is full.

use latput_units::Nanos;

use super::load::Load;
use super::slot::Seen;
use crate::Observation;

/// Polls are put together until they span this long, or the delay that holds.
const PIECE: Nanos = Nanos::from_us(100);
/// A piece is off if its rate is by this much (a factor of 1.8) or by so many times what chance makes of as many packets.
const OFF: f64 = 0.6;
const BY_CHANCE: f64 = 3.0;
/// A run of pieces that are off on the same side is another load if it is this improbable (1 in 160 000), as a logarithm,
const IMPROBABLE: f64 = 12.0;
const FLUTTER_LEAST: f64 = 0.05;
/// if it has at least so many pieces, and lasts this long.
const PIECES: u32 = 3;
const LEAST: Nanos = Nanos::from_us(300);

/// The run of pieces that are off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Run {
    /// When the piece of now began, and what has come since.
    since: Option<Nanos>,
    packets: u32,
    bytes: u64,
    /// Pieces that were off, above or below, and when the first began.
    pieces: u32,
    is_above: bool,
    /// How improbable they are together.
    surprise: f64,
    start: Nanos,
}

impl Run {
    /// Takes in a poll. Whether the load is another one now, by what its rung was `seen` to do.
    pub(super) fn add(
        &mut self,
        observation: &Observation,
        before: Nanos,
        delay: Nanos,
        seen: &Seen,
        load: &mut Load,
    ) -> bool {
        let since = *self.since.get_or_insert(before);
        self.packets = self.packets.saturating_add(observation.rx.packets);
        self.bytes += u64::from(observation.rx.bytes) + u64::from(observation.tx.bytes);
        let span = observation.now.saturating_sub(since);
        if span < PIECE.max(delay) {
            return false;
        }
        let seconds = span.as_secs_f64();
        let off = |count: f64, usual_log: f64| {
            let usual = usual_log.exp() * seconds;
            (count.max(1e-3) / usual.max(1e-3)).ln()
        };
        let packets = f64::from(self.packets).max(seen.packets_log.exp() * seconds);
        let limit = OFF.max(BY_CHANCE / packets.max(1.0).sqrt());
        let by = off(self.bytes as f64, seen.bytes_log);
        let is_off = by.abs() > limit;
        let is_above = by > 0.0;
        load.flutter_by(by);
        (self.since, self.packets, self.bytes) = (None, 0, 0);
        if !is_off {
            self.pieces = 0;
            return false;
        }
        if self.pieces == 0 || is_above != self.is_above {
            (self.pieces, self.is_above, self.start) = (0, is_above, since);
            self.surprise = 0.0;
        }
        self.pieces += 1;
        self.surprise += by.abs() / load.flutter.max(FLUTTER_LEAST);
        let lasted = observation.now.saturating_sub(self.start);
        self.pieces >= PIECES && lasted >= LEAST && self.surprise > IMPROBABLE
    }
}
