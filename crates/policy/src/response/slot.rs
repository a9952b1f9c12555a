//! A slot: some milliseconds of traffic under one delay, and the rates that they show.

use latput_units::Nanos;

use super::params::Params;
use crate::{Observation, SMALL_BYTES};

/// Vectors whose packets are counted apart. With more, some share a count: the busiest rate is then overestimated, and
/// the delay stays shorter. The length of an array, and so no field of [`Params`].
const VECTORS: usize = 16;

/// The traffic since the slot began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slot {
    start: Option<Nanos>,
    /// Polls to come that still belong to the previous delay.
    settling: u32,
    /// Time of pauses.
    paused: Nanos,
    pub(super) polls: u32,
    /// Received and transmitted: all packets and bytes, and the small packets.
    packets: [u64; 2],
    bytes: [u64; 2],
    small: [u64; 2],
    /// Whether the received small packets are requests only.
    are_requests: bool,
    /// Received packets of each vector.
    of_vector: [u64; VECTORS],
    spread: Spread,
}

/// Sums over polls of bytes and of gaps (seconds): they give the standard error of the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spread {
    samples: u32,
    bytes: f64,
    seconds: f64,
    bytes_squared: f64,
    seconds_squared: f64,
    product: f64,
}

/// The load as one slot showed it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Logarithm of bytes per second, both ways.
    pub(super) bytes_log: f64,
    /// Logarithm of small packets per second in the direction of the bulk; `None` without bulk or without them.
    pub(super) small_log: Option<f64>,
    /// Requests per second beside received bulk, where they are counted apart from other small packets.
    pub(super) requests: Option<f64>,
    /// Logarithm of received packets per second.
    pub(super) packets_log: f64,
    /// Received packets per second of the busiest vector.
    pub(super) busiest_pps: f64,
    /// Standard error of `bytes_log`, from the slot alone.
    pub(super) error: f64,
    /// Mostly full frames.
    pub(super) is_bulk: bool,
}

impl Slot {
    /// A slot under a delay that was just set on `vectors` vectors.
    pub(super) fn after_change(vectors: u32, params: &Params) -> Self {
        Self { settling: params.settling_polls.saturating_mul(vectors), ..Self::default() }
    }

    pub(super) fn from(start: Nanos) -> Self {
        Self { start: Some(start), ..Self::default() }
    }

    /// Takes in a poll, or a sample of many. False if it still belongs to the previous delay. `delay` is the one
    /// in force: gaps much longer than it are pauses and do not count, so that a load that comes and goes is judged by
    /// its active time. A daemon's sample shows no gaps: `None`.
    pub(super) fn add(
        &mut self,
        observation: &Observation,
        before: Nanos,
        delay: Option<Nanos>,
        params: &Params,
    ) -> bool {
        let polls = observation.interrupts.max(1);
        if self.settling > 0 {
            if polls < params.slot_polls {
                self.settling = self.settling.saturating_sub(polls);
                if self.settling == 0 {
                    *self = Self::from(observation.now);
                }
                return false;
            }
            *self = Self::from(before);
        }
        self.start.get_or_insert(observation.now);
        self.polls = self.polls.saturating_add(polls);
        self.of_vector[observation.vector as usize % VECTORS] += u64::from(observation.rx.packets);
        self.are_requests = observation.are_requests;
        let small = [observation.rx_small, observation.tx_small];
        for (idx, counts) in [observation.rx, observation.tx].iter().enumerate() {
            self.packets[idx] += u64::from(counts.packets);
            self.bytes[idx] += u64::from(counts.bytes);
            self.small[idx] += u64::from(small[idx]);
        }
        let gap = observation.now.saturating_sub(before);
        let is_pause = |delay: Nanos| gap > params.pause_least.saturating_add(delay);
        if polls < params.slot_polls && delay.is_some_and(is_pause) {
            self.paused = self.paused.saturating_add(gap);
        } else {
            let bytes = f64::from(observation.rx.bytes) + f64::from(observation.tx.bytes);
            self.spread.add(bytes, gap.as_secs_f64());
        }
        true
    }

    /// Duration without pauses.
    pub(super) fn elapsed(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.start.unwrap_or(now)).saturating_sub(self.paused)
    }

    /// Whether it is long enough for a load with this scatter. Rare small packets beside bulk make it longer. A slot
    /// of samples needs packets also after `slot_most`: an empty sample and the next one, with twice the packets, are
    /// one slot.
    pub(super) fn is_full(
        &self,
        now: Nanos,
        scatter: f64,
        is_sampled: bool,
        params: &Params,
    ) -> bool {
        let elapsed = self.elapsed(now);
        let longer = (scatter / params.slot_scatter).powi(2).clamp(1.0, params.slot_longest_ratio);
        let mut units = (self.packets[0] as f64).max(f64::from(self.polls));
        let small = self.small();
        if small > 0 {
            units = units.min(longer * small as f64);
        }
        let enough =
            self.polls >= params.slot_polls && units >= f64::from(params.slot_polls) * longer;
        let late = elapsed.as_secs_f64() >= params.slot_most.as_secs_f64() * longer.sqrt();
        (enough && elapsed >= params.slot_least)
            || (late
                && if is_sampled {
                    self.packets[0] >= u64::from(params.slot_polls)
                } else {
                    self.polls >= 6
                })
    }

    /// The rates; `None` without traffic. `has_small_packets`: whether earlier slots had small packets beside bulk.
    pub(super) fn seen(
        &self,
        now: Nanos,
        has_small_packets: bool,
        params: &Params,
    ) -> Option<Seen> {
        let seconds = self.elapsed(now).as_secs_f64();
        let bytes = self.bytes[0] + self.bytes[1];
        if bytes == 0 || seconds <= 0.0 {
            return None;
        }
        let per_second = |count: u64| (count as f64 / seconds).max(1.0).ln();
        let small = self.small();
        let way = self.way();
        let requests = (self.are_requests && way == 0).then_some(small as f64 / seconds);
        // Requests may wait for a retransmission (200 ms at least): without any the load is still the same.
        let least = if requests.is_some() && has_small_packets {
            0
        } else {
            params.small_seen[usize::from(has_small_packets)]
        };
        let small_log = (small >= u64::from(least)).then(|| per_second(small.max(1)));
        Some(Seen {
            bytes_log: per_second(bytes),
            small_log,
            requests,
            packets_log: per_second(self.packets[0]),
            busiest_pps: self.of_vector.iter().copied().max().unwrap_or(0) as f64 / seconds,
            error: self.error(),
            is_bulk: self.bytes[way] >= params.bulk_frame_bytes * self.packets[way],
        })
    }

    /// The direction of most bytes: 0 received, 1 transmitted.
    fn way(&self) -> usize {
        usize::from(self.bytes[1] > self.bytes[0])
    }

    /// Relative standard error of bytes per second. One sample alone does not show it: then that of a Poisson stream.
    fn error(&self) -> f64 {
        match self.spread.samples {
            0 | 1 => self.by_chance(),
            _ => self.spread.error(),
        }
    }

    /// Relative standard error of a Poisson stream of as many packets.
    pub(super) fn by_chance(&self) -> f64 {
        1.0 / ((self.packets[0] + self.packets[1]).max(1) as f64).sqrt()
    }

    /// Small packets in the direction of the bulk. Those of the other direction are acknowledgements, whose number
    /// falls with delay for other reasons. 0 where small packets are a large part of the bytes, which show them then.
    fn small(&self) -> u64 {
        let way = self.way();
        let at_most = self.small[way] * u64::from(2 * SMALL_BYTES);
        if at_most <= self.bytes[way] { self.small[way] } else { 0 }
    }
}

impl Spread {
    fn add(&mut self, bytes: f64, seconds: f64) {
        self.samples = self.samples.saturating_add(1);
        self.bytes += bytes;
        self.seconds += seconds;
        self.bytes_squared += bytes * bytes;
        self.seconds_squared += seconds * seconds;
        self.product += bytes * seconds;
    }

    /// Relative standard error of bytes per second, by the residuals of a ratio estimator (Cochran, Sampling
    /// Techniques, 2.11). A Poisson stream of n packets has 1 / sqrt(n), however they fall into polls, and a
    /// closed loop nearly none.
    fn error(&self) -> f64 {
        if self.bytes <= 0.0 || self.seconds <= 0.0 {
            return 0.0;
        }
        let rate = self.bytes / self.seconds;
        let residuals =
            self.bytes_squared - 2.0 * rate * self.product + rate * rate * self.seconds_squared;
        residuals.max(0.0).sqrt() / self.bytes
    }
}
