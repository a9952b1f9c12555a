//! A slot: some milliseconds of traffic under one delay, and the rates that they show.

use latput_units::Nanos;

use super::params::ResponseParams;
use crate::{QueueObservation, SMALL_BYTES};

/// Vectors whose packets are counted apart. With more, some share a count: the busiest rate is then overestimated, and
/// the delay stays shorter. The length of an array, and so no field of [`ResponseParams`].
const VECTORS: usize = 16;

/// The traffic since the slot began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrafficSlot {
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
    spread: RateErrorSums,
}

/// Sums over polls of bytes and of gaps (seconds): they give the standard error of the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RateErrorSums {
    samples: u32,
    bytes: f64,
    seconds: f64,
    bytes_squared: f64,
    seconds_squared: f64,
    product: f64,
}

/// The load as one slot showed it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlotRates {
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

impl TrafficSlot {
    /// A slot under a delay that was just set on `vectors` vectors.
    pub(super) fn after_change(vectors: u32, params: &ResponseParams) -> Self {
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
        observation: &QueueObservation,
        before: Nanos,
        delay: Option<Nanos>,
        params: &ResponseParams,
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
        params: &ResponseParams,
    ) -> bool {
        let elapsed = self.elapsed(now);
        let longer = (scatter / params.slot_scatter).powi(2).clamp(1.0, params.slot_longest_ratio);
        let mut units = (self.packets[0] as f64).max(f64::from(self.polls));
        let small = self.count_small_packets();
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
    pub(super) fn measure_rates(
        &self,
        now: Nanos,
        has_small_packets: bool,
        params: &ResponseParams,
    ) -> Option<SlotRates> {
        let seconds = self.elapsed(now).as_secs_f64();
        let bytes = self.bytes[0] + self.bytes[1];
        if bytes == 0 || seconds <= 0.0 {
            return None;
        }
        let per_second = |count: u64| (count as f64 / seconds).max(1.0).ln();
        let small = self.count_small_packets();
        let way = self.bulk_direction();
        let requests = (self.are_requests && way == 0).then_some(small as f64 / seconds);
        // Requests may wait for a retransmission (200 ms at least): without any the load is still the same.
        let least = if requests.is_some() && has_small_packets {
            0
        } else {
            params.small_seen[usize::from(has_small_packets)]
        };
        let small_log = (small >= u64::from(least)).then(|| per_second(small.max(1)));
        Some(SlotRates {
            bytes_log: per_second(bytes),
            small_log,
            requests,
            packets_log: per_second(self.packets[0]),
            busiest_pps: self.of_vector.iter().copied().max().unwrap_or(0) as f64 / seconds,
            error: self.rate_error(),
            is_bulk: self.bytes[way] >= params.bulk_frame_bytes * self.packets[way],
        })
    }

    /// The direction of most bytes: 0 received, 1 transmitted.
    fn bulk_direction(&self) -> usize {
        usize::from(self.bytes[1] > self.bytes[0])
    }

    /// Relative standard error of bytes per second. One sample alone does not show it: then that of a Poisson stream.
    fn rate_error(&self) -> f64 {
        match self.spread.samples {
            0 | 1 => self.poisson_error(),
            _ => self.spread.error(),
        }
    }

    /// Relative standard error of a Poisson stream of as many packets.
    pub(super) fn poisson_error(&self) -> f64 {
        1.0 / ((self.packets[0] + self.packets[1]).max(1) as f64).sqrt()
    }

    /// Small packets in the direction of the bulk. Those of the other direction are acknowledgements, whose number
    /// falls with delay for other reasons. 0 where small packets are a large part of the bytes, which show them then.
    fn count_small_packets(&self) -> u64 {
        let way = self.bulk_direction();
        let at_most = self.small[way] * u64::from(2 * SMALL_BYTES);
        if at_most <= self.bytes[way] { self.small[way] } else { 0 }
    }
}

impl RateErrorSums {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrafficCounts;

    const PARAMS: ResponseParams = ResponseParams::DEFAULT;

    fn poll(now_us: u64, packets: u32, bytes: u32) -> QueueObservation {
        let rx = TrafficCounts { packets, bytes };
        QueueObservation {
            now: Nanos::from_us(now_us),
            rx,
            interrupts: 1,
            ..QueueObservation::default()
        }
    }

    /// A slot of polls each `gap_us` after the one before, from zero.
    fn slot_of(polls: u32, gap_us: u64, packets: u32, bytes: u32) -> (TrafficSlot, Nanos) {
        let mut slot = TrafficSlot::from(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for _ in 0..polls {
            let before = now;
            now = now + Nanos::from_us(gap_us);
            let observation = poll(now.as_ns() / 1000, packets, bytes);
            assert!(slot.add(&observation, before, Some(Nanos::ZERO), &PARAMS));
        }
        (slot, now)
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn rate_error_is_of_its_residuals() {
        let mut spread = RateErrorSums::default();
        for (bytes, seconds) in [(100.0, 1.0), (300.0, 2.0), (200.0, 1.0)] {
            spread.add(bytes, seconds);
        }
        // 150 a second: the residuals are -50, 0 and 50.
        assert!(is_near(spread.error(), 5000.0_f64.sqrt() / 600.0));
        assert_eq!(spread.samples, 3);
        let mut even = RateErrorSums::default();
        (0..9).for_each(|_| even.add(100.0, 0.5));
        assert!(is_near(even.error(), 0.0), "a closed loop has none");
        let [mut no_bytes, mut no_time] = [RateErrorSums::default(); 2];
        no_bytes.add(0.0, 1.0);
        no_time.add(1.0, 0.0);
        assert!(is_near(no_bytes.error(), 0.0) && is_near(no_time.error(), 0.0));
    }

    #[test]
    fn one_sample_has_poisson_error() {
        let mut slot = TrafficSlot::from(Nanos::ZERO);
        let tx = TrafficCounts { packets: 75, bytes: 100 };
        let sample = QueueObservation { tx, interrupts: 500, ..poll(50_000, 25, 100) };
        slot.add(&sample, Nanos::ZERO, None, &PARAMS);
        let seen = slot.measure_rates(sample.now, false, &PARAMS).unwrap();
        assert!(is_near(seen.error, 0.1));
        slot.add(
            &QueueObservation { now: Nanos::from_ms(100), ..sample },
            sample.now,
            None,
            &PARAMS,
        );
        let seen = slot.measure_rates(Nanos::from_ms(100), false, &PARAMS).unwrap();
        assert!(seen.error < 1e-6, "two equal samples have none");
        assert!(is_near(TrafficSlot::default().poisson_error(), 1.0), "no packet counts as one");
    }

    #[test]
    fn poll_has_what_went_both_ways() {
        // 150 byte each, whichever way: a rate without scatter.
        let mut slot = TrafficSlot::from(Nanos::ZERO);
        for (idx, (rx, tx)) in [(100, 50), (50, 100), (100, 50)].into_iter().enumerate() {
            let before = Nanos::from_us(10 * idx as u64);
            let tx = TrafficCounts { packets: 1, bytes: tx };
            let both = QueueObservation { tx, ..poll(10 * (idx as u64 + 1), 1, rx) };
            slot.add(&both, before, Some(Nanos::ZERO), &PARAMS);
        }
        let seen = slot.measure_rates(Nanos::from_us(30), false, &PARAMS).unwrap();
        assert!(seen.error < 1e-6, "{}", seen.error);
    }

    #[test]
    fn rates_are_logarithms_per_second() {
        // 30 polls of 4 packets and 800 byte, each 100 us: 3 ms.
        let (mut slot, now) = slot_of(30, 100, 4, 800);
        let seen = slot.measure_rates(now, false, &PARAMS).unwrap();
        assert!(is_near(seen.bytes_log, 8e6_f64.ln()) && is_near(seen.packets_log, 4e4_f64.ln()));
        assert!(is_near(seen.busiest_pps, 4e4) && !seen.is_bulk && seen.small_log.is_none());
        // Sent bytes count too, and another vector's packets are its own.
        let tx = TrafficCounts { packets: 1, bytes: 96_000 };
        let other = QueueObservation { tx, vector: 17, ..poll(6_000, 60, 0) };
        slot.add(&other, Nanos::from_us(5_000), Some(Nanos::ZERO), &PARAMS);
        let seen = slot.measure_rates(other.now, false, &PARAMS).unwrap();
        assert!(is_near(seen.bytes_log, (120_000.0_f64 / 6e-3).ln()));
        assert!(is_near(seen.packets_log, 3e4_f64.ln()) && is_near(seen.busiest_pps, 2e4));
        assert!(seen.is_bulk, "what is sent here is bulk");
        assert_eq!(slot.measure_rates(Nanos::ZERO, false, &PARAMS), None, "no time");
        assert_eq!(
            TrafficSlot::from(Nanos::ZERO).measure_rates(now, false, &PARAMS),
            None,
            "no traffic"
        );
    }

    #[test]
    fn traffic_of_1024_byte_frames_is_bulk() {
        for (bytes, is_bulk) in [(4 * 1024, true), (4 * 1024 - 1, false)] {
            let (slot, now) = slot_of(30, 100, 4, bytes);
            assert_eq!(
                slot.measure_rates(now, false, &PARAMS).unwrap().is_bulk,
                is_bulk,
                "{bytes}"
            );
        }
    }

    #[test]
    fn small_packets_count_between_four_and_twelve() {
        let small_log = |small: u32, had: bool, are_requests: bool| {
            let mut slot = TrafficSlot::from(Nanos::ZERO);
            let bulk =
                QueueObservation { rx_small: small, are_requests, ..poll(1_000, 1000, 1_500_000) };
            slot.add(&bulk, Nanos::ZERO, Some(Nanos::ZERO), &PARAMS);
            let seen = slot.measure_rates(bulk.now, had, &PARAMS).unwrap();
            (seen.small_log.map(|log| (log.exp() / 1e3).round()), seen.requests)
        };
        assert_eq!(small_log(11, false, false), (None, None));
        assert_eq!(small_log(12, false, false), (Some(12.0), None));
        assert_eq!(small_log(3, true, false), (None, None));
        assert_eq!(small_log(4, true, false), (Some(4.0), None));
        // Requests may wait: none at all is still the same load, and counts as one.
        assert_eq!(small_log(0, true, true), (Some(1.0), Some(0.0)));
        assert_eq!(small_log(11, false, true), (None, Some(11e3)));
    }

    #[test]
    fn small_packets_share_bulk_direction() {
        let small = |rx_bytes: u32, tx_bytes: u32, rx_small: u32, tx_small: u32| {
            let tx = TrafficCounts { packets: 1, bytes: tx_bytes };
            let mut slot = TrafficSlot::from(Nanos::ZERO);
            let both = QueueObservation { tx, rx_small, tx_small, ..poll(1_000, 1, rx_bytes) };
            slot.add(&both, Nanos::ZERO, Some(Nanos::ZERO), &PARAMS);
            slot.count_small_packets()
        };
        assert_eq!(small(512 * 20, 100, 20, 7), 20);
        assert_eq!(small(512 * 20 - 1, 100, 20, 7), 0, "they are most of it");
        assert_eq!(small(100, 512 * 7, 20, 7), 7);
        assert_eq!(small(512 * 20, 512 * 20, 20, 7), 20, "received first");
    }

    #[test]
    fn polls_of_the_delay_before_do_not_count() {
        let mut slot = TrafficSlot::after_change(2, &PARAMS);
        for idx in 1..=6 {
            let now = 10 * idx;
            let counts =
                slot.add(&poll(now, 9, 900), Nanos::from_us(now - 10), Some(Nanos::ZERO), &PARAMS);
            assert!(!counts, "three polls of each of two vectors");
        }
        assert_eq!(slot, TrafficSlot::from(Nanos::from_us(60)));
        assert!(slot.add(&poll(70, 9, 900), Nanos::from_us(60), Some(Nanos::ZERO), &PARAMS));
        assert_eq!((slot.polls, slot.elapsed(Nanos::from_us(70))), (1, Nanos::from_us(10)));
        // A sample of many polls counts from its beginning.
        let mut slot = TrafficSlot::after_change(1, &PARAMS);
        let sample = QueueObservation { interrupts: 24, ..poll(50_000, 900, 90_000) };
        assert!(slot.add(&sample, Nanos::ZERO, None, &PARAMS));
        assert_eq!(slot.elapsed(sample.now), Nanos::from_ms(50));
        let mut slot = TrafficSlot::after_change(8, &PARAMS);
        let few = QueueObservation { interrupts: 23, ..sample };
        assert!(!slot.add(&few, Nanos::ZERO, None, &PARAMS));
        assert!(!slot.add(&QueueObservation { interrupts: 1, ..few }, Nanos::ZERO, None, &PARAMS));
        assert!(slot.add(&QueueObservation { interrupts: 1, ..few }, Nanos::ZERO, None, &PARAMS));
    }

    #[test]
    fn gap_beyond_delay_is_a_pause() {
        let elapsed_us = |gap_us: u64, delay: Option<Nanos>, interrupts: u32| {
            let mut slot = TrafficSlot::from(Nanos::ZERO);
            let late = QueueObservation { interrupts, ..poll(gap_us, 1, 100) };
            slot.add(&late, Nanos::ZERO, delay, &PARAMS);
            let is_spread = slot.spread.samples == 1;
            assert_eq!(is_spread, slot.paused == Nanos::ZERO);
            slot.elapsed(late.now).as_ns() / 1000
        };
        let delay = Some(Nanos::from_us(100));
        assert_eq!(elapsed_us(2_100, delay, 1), 2_100);
        assert_eq!(elapsed_us(2_101, delay, 1), 0);
        assert_eq!(elapsed_us(9_000, delay, 24), 9_000, "a sample");
        assert_eq!(elapsed_us(9_000, None, 1), 9_000);
    }

    #[test]
    fn slot_fills_by_polls_packets_and_time() {
        let is_full = |polls: u32, gap_us: u64, scatter: f64| {
            let (slot, now) = slot_of(polls, gap_us, 1, 100);
            slot.is_full(now, scatter, false, &PARAMS)
        };
        assert!(is_full(24, 25, 0.0) && !is_full(23, 30, 0.0), "24 polls");
        assert!(!is_full(24, 24, 0.0), "600 us");
        // Twice the scatter takes four times the packets.
        assert!(is_full(96, 25, 0.04) && !is_full(95, 25, 0.04));
        assert!(is_full(192, 25, 9.0) && !is_full(191, 25, 9.0), "eight times at most");
        // Few polls count after 6 ms; twice that where the scatter is twice as large.
        assert!(is_full(6, 1_000, 0.0) && !is_full(5, 1_200, 0.0) && !is_full(6, 999, 0.0));
        assert!(is_full(6, 2_000, 0.04) && !is_full(6, 1_999, 0.04));
    }

    #[test]
    fn few_polls_fill_a_slot_with_packets() {
        let slot = |polls: u32, packets: u32| {
            let mut slot = TrafficSlot::from(Nanos::ZERO);
            let sample =
                QueueObservation { interrupts: polls, ..poll(50_000, packets, 100 * packets) };
            slot.add(&sample, Nanos::ZERO, None, &PARAMS);
            slot
        };
        let at = Nanos::from_ms(50);
        // Four times the packets are wanted: packets count where they are more than polls.
        let full =
            |slot: TrafficSlot, now, is_sampled| slot.is_full(now, 0.04, is_sampled, &PARAMS);
        assert!(full(slot(24, 96), Nanos::from_us(600), false));
        assert!(!full(slot(24, 95), Nanos::from_us(600), false));
        assert!(full(slot(2, 24), at, true) && !full(slot(2, 23), at, true));
        assert!(!full(slot(2, 24), at, false));
    }

    #[test]
    fn rare_small_packets_make_a_slot_longer() {
        let is_full = |small: u32| {
            let mut slot = TrafficSlot::from(Nanos::ZERO);
            let bulk = QueueObservation {
                interrupts: 100,
                rx_small: small,
                ..poll(1_000, 1000, 1_500_000)
            };
            slot.add(&bulk, Nanos::ZERO, None, &PARAMS);
            // Four times as long: 96 packets, or 24 small ones.
            slot.is_full(bulk.now, 0.04, true, &PARAMS)
        };
        assert!(is_full(24) && !is_full(23) && is_full(0));
    }
}
