//! The adaptive throttle of ixgbe: each ring aims at a number of packets per interrupt, and the
//! vector takes the shorter of its receive and transmit ring's wishes.
//!
//! Source: `ixgbe_update_itr` and `ixgbe_set_itr` (out-of-tree driver 6.3.4, `src/ixgbe_main.c`), and
//! the patches that lower the longest interval and clamp the stored value.

use latput_units::{BitsPerSecond, Nanos};

use crate::{Decision, Moderation, QueueObservation, TrafficCounts, change_if_new};

const STEP_US: u32 = 2;
const SHORTEST_US: u32 = 10;
/// Set in a stored interval while the ring is in latency mode.
const LATENCY: u32 = 0x80;
/// The sample of a ring that was idle longer than this says nothing (one tick at HZ=250).
const STALE: Nanos = Nanos::from_ms(4);

/// Which code base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IxgbeVersion {
    /// The out-of-tree driver: at most 84 us, and the stored byte is clamped.
    OutOfTree,
    /// Linux before the two fixes: at most 126 us, and the stored byte wraps, so that a long interval
    /// loses or fakes the latency flag.
    Mainline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingState {
    /// Microseconds, with [`LATENCY`] as a flag.
    interval: u32,
    fresh_until: Nanos,
}

/// The throttle of one vector with a receive and a transmit ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ixgbe {
    version: IxgbeVersion,
    rx: RingState,
    tx: RingState,
    /// Microseconds.
    vector: u32,
}

impl Ixgbe {
    /// As the driver starts: both rings in latency mode at the shortest interval.
    pub const fn new(version: IxgbeVersion) -> Self {
        let ring = RingState { interval: SHORTEST_US | LATENCY, fresh_until: Nanos::ZERO };
        Self { version, rx: ring, tx: ring, vector: SHORTEST_US }
    }

    /// The present value of the register.
    pub fn current_moderation(&self) -> Moderation {
        Moderation::from_delay(Nanos::from_us(u64::from(self.vector)))
    }

    /// One completed poll.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        let before = self.current_moderation();
        let rx = self.wanted_interval(self.rx, observation.rx, observation, true);
        let tx = self.wanted_interval(self.tx, observation.tx, observation, false);
        self.rx = self.store_interval(rx, observation.now);
        self.tx = self.store_interval(tx, observation.now);
        self.vector = self.rx.interval.min(self.tx.interval) & 0x7e;
        change_if_new(before, self.current_moderation(), "packets per interrupt")
    }

    fn longest_us(&self) -> u32 {
        match self.version {
            IxgbeVersion::OutOfTree => 84,
            IxgbeVersion::Mainline => 126,
        }
    }

    fn store_interval(&self, interval: u32, now: Nanos) -> RingState {
        let interval = match self.version {
            IxgbeVersion::OutOfTree => interval.min(255),
            IxgbeVersion::Mainline => interval & 0xff,
        };
        RingState { interval, fresh_until: now + STALE }
    }

    /// The interval that a ring asks for after a sample.
    fn wanted_interval(
        &self,
        ring: RingState,
        counts: TrafficCounts,
        observation: &QueueObservation,
        is_rx: bool,
    ) -> u32 {
        let TrafficCounts { packets, bytes } = counts;
        if observation.now > ring.fresh_until {
            return SHORTEST_US | LATENCY;
        }
        if is_rx && packets > 0 && packets < 24 && bytes < 12_112 {
            // Few and small: aim at eight times the data in the next interval.
            let size = ((bytes + packets * 24) * 2).clamp(2_560, 12_800);
            return limited_shrink(LATENCY + scale_by_speed(size, observation.link), ring.interval);
        }
        match packets {
            0..48 => {
                let longer = (self.vector + STEP_US).min(self.longest_us());
                longer | if packets < 8 { LATENCY } else { ring.interval & LATENCY }
            }
            48..96 => self.vector,
            96..256 => (self.vector / 2).max(SHORTEST_US),
            _ => {
                let wish = scale_by_speed(scaled_size(bytes / packets), observation.link);
                limited_shrink(wish, ring.interval)
            }
        }
    }
}

/// In latency mode an interval may shrink by one step at a time only.
fn limited_shrink(wish: u32, stored: u32) -> u32 {
    if wish & LATENCY != 0 && wish < stored { stored - STEP_US } else { wish }
}

/// A piecewise linear fit of `170 * (size + 24) / (size + 640)`, in 1/256.
fn scaled_size(size: u32) -> u32 {
    match size {
        0..=60 => 5_120,
        61..=316 => size * 40 + 2_720,
        317..=1_084 => size * 15 + 11_452,
        1_085..=1_980 => size * 5 + 22_420,
        _ => 32_256,
    }
}

fn scale_by_speed(size: u32, link: BitsPerSecond) -> u32 {
    let divisor = match link.get() {
        10_000_000 | 1_000_000_000 | 2_500_000_000 => 128,
        _ => 512,
    };
    size.div_ceil(divisor) * STEP_US
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_GIGABIT: u64 = 10_000_000_000;

    #[test]
    fn sizes_meet_at_the_joints_of_the_fit() {
        for (size, expected) in [
            (60, 5_120),
            (61, 5_160),
            (316, 15_360),
            (317, 16_207),
            (1_084, 27_712),
            (1_980, 32_320),
            (9_000, 32_256),
        ] {
            assert_eq!(scaled_size(size), expected, "{size}");
        }
    }

    #[test]
    fn full_ring_follows_the_frame_size() {
        // ceil(29990 / 512) * 2 = 118 us at 10 Gbit/s for 1514-byte frames.
        check_interval(&[(300, 300 * 1_514)], TEN_GIGABIT, IxgbeVersion::OutOfTree, 118);
    }

    #[test]
    fn packets_above_96_halve_the_interval() {
        check_interval(
            &[(300, 300 * 1_514), (60, 60 * 1_514)],
            TEN_GIGABIT,
            IxgbeVersion::OutOfTree,
            118,
        );
        check_interval(
            &[(300, 300 * 1_514), (100, 100 * 1_514)],
            TEN_GIGABIT,
            IxgbeVersion::OutOfTree,
            58,
        );
    }

    #[test]
    fn few_packets_lengthen_to_version_limit() {
        let start = (300, 300 * 1_514);
        let few = (40, 40 * 1_514);
        check_interval(&[start, few], TEN_GIGABIT, IxgbeVersion::OutOfTree, 84);
        check_interval(&[start, few], TEN_GIGABIT, IxgbeVersion::Mainline, 120);
        check_interval(&[start, few, few, few, few, few], TEN_GIGABIT, IxgbeVersion::Mainline, 126);
    }

    #[test]
    fn gigabit_interval_wraps_in_mainline_only() {
        // 12800 / 128 * 2 = 200, plus the flag 0x80 = 328, which does not fit a byte.
        let sample = [(20, 12_000)];
        check_interval(&sample, 1_000_000_000, IxgbeVersion::OutOfTree, 0xff & 0x7e);
        check_interval(&sample, 1_000_000_000, IxgbeVersion::Mainline, 0x148 & 0x7e);
    }

    #[test]
    fn stale_ring_starts_again() {
        let mut policy = Ixgbe::new(IxgbeVersion::OutOfTree);
        policy.vector = 84;
        policy.step(&QueueObservation { now: Nanos::from_s(1), ..QueueObservation::default() });
        assert_eq!(policy.vector, SHORTEST_US);
    }

    /// Feeds receive samples, the transmit ring asking for the longest there is, and checks the end.
    #[track_caller]
    fn check_interval(
        samples: &[(u32, u32)],
        link_bps: u64,
        version: IxgbeVersion,
        expected_us: u32,
    ) {
        let mut policy = Ixgbe::new(version);
        for &(packets, bytes) in samples {
            policy.tx.interval = 0x7e;
            let rx = policy.wanted_interval(
                policy.rx,
                TrafficCounts { packets, bytes },
                &make_observation(link_bps),
                true,
            );
            policy.rx = policy.store_interval(rx, Nanos::ZERO);
            policy.vector = policy.rx.interval & 0x7e;
        }
        assert_eq!(policy.vector, expected_us);
    }

    fn make_observation(link_bps: u64) -> QueueObservation {
        QueueObservation { link: BitsPerSecond::new(link_bps), ..QueueObservation::default() }
    }
}
