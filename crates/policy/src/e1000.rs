//! The dynamic interrupt throttle of the e1000 and e1000e drivers: traffic is classed after each
//! interrupt as lowest latency, low latency or bulk, and each class has an interrupt rate.
//!
//! Source: the decision table of `e1000_update_itr` and `e1000_set_itr`
//! (`drivers/net/ethernet/intel/e1000/e1000_main.c`) and the drivers' documentation of
//! `InterruptThrottleRate`.

use latput_units::{BitsPerSecond, Nanos};

use crate::{Decision, Moderation, QueueObservation, TrafficCounts, change_if_new};

/// Interrupts per second of each class, slowest reaction last.
const RATES_HZ: [u32; 3] = [70_000, 20_000, 4_000];
/// The unit of the throttle register (82540 and later).
const REGISTER_NS: u64 = 256;
/// How often the driver's watchdog runs; mode 4 decides there.
const WATCHDOG: Nanos = Nanos::from_s(2);
const GIGABIT: BitsPerSecond = BitsPerSecond::new(1_000_000_000);

/// The values of `InterruptThrottleRate` that mean an algorithm rather than a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleMode {
    /// 1: all three classes.
    Dynamic,
    /// 3: never the lowest latency class; the drivers' default.
    Conservative,
    /// 4: by how one-sided the traffic of the last two seconds was.
    Simplified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrafficClass {
    Lowest,
    Low,
    Bulk,
}

/// The throttle of one adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct E1000 {
    mode: ThrottleMode,
    rx: TrafficClass,
    tx: TrafficClass,
    rate_hz: u32,
    watchdog_at: Nanos,
    received: u64,
    sent: u64,
}

impl E1000 {
    /// As the driver starts: 20000 interrupts/s, both directions in the low latency class.
    pub const fn new(mode: ThrottleMode) -> Self {
        Self {
            mode,
            rx: TrafficClass::Low,
            tx: TrafficClass::Low,
            rate_hz: 20_000,
            watchdog_at: WATCHDOG,
            received: 0,
            sent: 0,
        }
    }

    /// As a hiccup during bulk traffic leaves it: in the bulk class, which a gigabit stream then never leaves,
    /// while small packets leave it at once. From the start it would stay in the low latency class: four
    /// frames in 50 us are too few bytes for bulk.
    pub const fn after_bulk(mode: ThrottleMode) -> Self {
        Self {
            rx: TrafficClass::Bulk,
            tx: TrafficClass::Bulk,
            rate_hz: RATES_HZ[TrafficClass::Bulk as usize],
            ..Self::new(mode)
        }
    }

    /// As connections being made leave it, a packet at a time: in the fastest class of its mode, which small
    /// packets then never leave (four of them are less than 512 bytes).
    pub const fn after_single_packets(mode: ThrottleMode) -> Self {
        match mode {
            ThrottleMode::Dynamic => Self {
                rx: TrafficClass::Lowest,
                tx: TrafficClass::Lowest,
                rate_hz: RATES_HZ[TrafficClass::Lowest as usize],
                ..Self::new(mode)
            },
            ThrottleMode::Conservative | ThrottleMode::Simplified => Self::new(mode),
        }
    }

    /// The present value of the register.
    pub fn current_moderation(&self) -> Moderation {
        Moderation::from_delay(throttle_interval(self.rate_hz))
    }

    /// One completed poll.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        let before = self.current_moderation();
        let reason = match self.mode {
            ThrottleMode::Simplified => self.step_simplified(observation),
            ThrottleMode::Dynamic | ThrottleMode::Conservative => self.step_by_class(observation),
        };
        change_if_new(before, self.current_moderation(), reason)
    }

    fn step_by_class(&mut self, observation: &QueueObservation) -> &'static str {
        if observation.link != GIGABIT {
            // Slower links have no use for the fast classes.
            self.rate_hz = 4_000;
            return "the link is not at 1 Gbit/s";
        }
        self.rx = self.limit_class(classify_traffic(self.rx, observation.rx));
        self.tx = self.limit_class(classify_traffic(self.tx, observation.tx));
        let class = self.rx.max(self.tx);
        let wanted = RATES_HZ[class as usize];
        // The rate drops at once and rises in steps, so that one small sample does not end batching.
        self.rate_hz =
            if wanted > self.rate_hz { (self.rate_hz + wanted / 4).min(wanted) } else { wanted };
        match class {
            TrafficClass::Lowest => "lowest latency class",
            TrafficClass::Low => "low latency class",
            TrafficClass::Bulk => "bulk class",
        }
    }

    fn limit_class(&self, class: TrafficClass) -> TrafficClass {
        if self.mode == ThrottleMode::Conservative { class.max(TrafficClass::Low) } else { class }
    }

    fn step_simplified(&mut self, observation: &QueueObservation) -> &'static str {
        self.received += u64::from(observation.rx.bytes);
        self.sent += u64::from(observation.tx.bytes);
        if observation.now >= self.watchdog_at {
            let total = (self.sent + self.received) / 10_000;
            let difference = self.sent.abs_diff(self.received) / 10_000;
            let rate = match total {
                0 => 8_000,
                total => difference * 6_000 / total + 2_000,
            };
            self.rate_hz = u32::try_from(rate).unwrap_or(8_000);
            self.watchdog_at = observation.now + WATCHDOG;
            (self.sent, self.received) = (0, 0);
        }
        "share of the busier direction"
    }
}

/// The interval that `InterruptThrottleRate = rate` really gives: the register counts 256 ns units and
/// the division rounds down, so 8000/s becomes 124.928 us.
pub fn throttle_interval(rate_hz: u32) -> Nanos {
    match rate_hz {
        0 => Nanos::ZERO,
        rate => Nanos::from_ns(1_000_000_000 / (u64::from(rate) * REGISTER_NS) * REGISTER_NS),
    }
}

fn classify_traffic(
    class: TrafficClass,
    TrafficCounts { packets, bytes }: TrafficCounts,
) -> TrafficClass {
    if packets == 0 {
        return class;
    }
    let mean = bytes / packets;
    match class {
        TrafficClass::Lowest if mean > 8_000 => TrafficClass::Bulk,
        TrafficClass::Lowest if packets < 5 && bytes > 512 => TrafficClass::Low,
        TrafficClass::Low if bytes > 10_000 => match () {
            () if mean > 8_000 || packets < 10 || mean > 1_200 => TrafficClass::Bulk,
            () if packets > 35 => TrafficClass::Lowest,
            () => TrafficClass::Low,
        },
        TrafficClass::Low if mean > 2_000 => TrafficClass::Bulk,
        TrafficClass::Low if packets <= 2 && bytes < 512 => TrafficClass::Lowest,
        TrafficClass::Bulk if bytes > 25_000 && packets > 35 => TrafficClass::Low,
        TrafficClass::Bulk if bytes < 6_000 => TrafficClass::Low,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_rounds_rates_to_its_unit() {
        for (rate_hz, interval_ns) in
            [(0, 0), (8_000, 124_928), (70_000, 14_080), (20_000, 49_920), (4_000, 249_856)]
        {
            assert_eq!(throttle_interval(rate_hz), Nanos::from_ns(interval_ns), "{rate_hz}");
        }
    }

    #[test]
    fn classes_follow_the_drivers_table() {
        use TrafficClass::{Bulk, Low, Lowest};
        for (class, packets, bytes, expected) in [
            (Lowest, 1, 9_000, Bulk),
            (Lowest, 4, 600, Low),
            (Lowest, 5, 600, Lowest),
            (Low, 9, 10_001, Bulk),
            (Low, 10, 13_000, Bulk),
            (Low, 36, 10_001, Lowest),
            (Low, 20, 10_001, Low),
            (Low, 4, 9_000, Bulk),
            (Low, 2, 511, Lowest),
            (Low, 3, 511, Low),
            (Bulk, 36, 25_001, Low),
            (Bulk, 35, 25_001, Bulk),
            (Bulk, 4, 5_999, Low),
            (Bulk, 4, 6_000, Bulk),
            (Bulk, 0, 0, Bulk),
        ] {
            assert_eq!(
                classify_traffic(class, TrafficCounts { packets, bytes }),
                expected,
                "{class:?} {packets}"
            );
        }
    }

    #[test]
    fn small_requests_ramp_up_and_bulk_drops() {
        let small = TrafficCounts { packets: 1, bytes: 67 };
        let bulk = TrafficCounts { packets: 20, bytes: 30_000 };
        check_rates(ThrottleMode::Dynamic, &[(small, 37_500), (small, 55_000), (small, 70_000)]);
        check_rates(
            ThrottleMode::Conservative,
            &[(small, 20_000), (bulk, 4_000), (small, 9_000), (small, 14_000)],
        );
    }

    #[test]
    fn slow_link_gets_the_bulk_rate() {
        let mut policy = E1000::new(ThrottleMode::Dynamic);
        let observation = QueueObservation {
            link: BitsPerSecond::new(100_000_000),
            ..QueueObservation::default()
        };
        policy.step(&observation);
        assert_eq!(policy.rate_hz, 4_000);
    }

    #[test]
    fn mode_four_uses_2000_and_8000() {
        for (rx, tx, expected) in [
            (1_000_000, 1_000_000, 2_000),
            (0, 2_000_000, 8_000),
            (500_000, 1_500_000, 5_000),
            (0, 0, 8_000),
        ] {
            let mut policy = E1000::new(ThrottleMode::Simplified);
            policy.step(&QueueObservation {
                now: Nanos::from_s(2),
                rx: TrafficCounts { packets: 1, bytes: rx },
                tx: TrafficCounts { packets: 1, bytes: tx },
                ..QueueObservation::default()
            });
            assert_eq!(policy.rate_hz, expected, "{rx} {tx}");
        }
    }

    /// Feeds the counts in both directions and checks the rate after each.
    #[track_caller]
    fn check_rates(mode: ThrottleMode, steps: &[(TrafficCounts, u32)]) {
        let mut policy = E1000::new(mode);
        for (idx, (counts, rate_hz)) in steps.iter().enumerate() {
            let observation = QueueObservation {
                rx: *counts,
                tx: *counts,
                link: GIGABIT,
                ..QueueObservation::default()
            };
            policy.step(&observation);
            assert_eq!(policy.rate_hz, *rate_hz, "step {idx}");
        }
    }
}
