//! Moderation by mean frame size: igb's ring throttle and FreeBSD's adaptive interrupt moderation.
//!
//! Neither looks at the packet rate: a few small acknowledgements among large frames pull the interval
//! down, whatever the load. Sources: `igb_update_ring_itr` (`drivers/net/ethernet/intel/igb/igb_main.c`)
//! and `em_newitr` (FreeBSD `sys/dev/e1000/if_em.c`, commit 3e501ef89667).

use latput_units::{BitsPerSecond, Nanos};

use crate::{Decision, Moderation, QueueObservation, TrafficCounts, change_if_new};

/// igb's start value, in quarter microseconds.
const IGB_START: u32 = 648;
/// 20000 interrupts/s in quarter microseconds, as igb has it.
const IGB_20K: u32 = 196;
/// 4000 interrupts/s in quarter microseconds, as igb has it.
const IGB_4K: u32 = 980;
const GIGABIT: u64 = 1_000_000_000;

/// Driver whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AimVariant {
    /// Linux igb with `rx-usecs 1`.
    Igb,
    /// Linux igb with `rx-usecs 3`: never faster than 20000/s.
    IgbConservative,
    /// FreeBSD `enable_aim=1`: at most 20000/s.
    FreeBsd,
    /// FreeBSD `enable_aim=2`: at most 70000/s.
    FreeBsdLowLatency,
}

/// The throttle of one vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aim {
    flavour: AimVariant,
    delay: Nanos,
}

impl Aim {
    /// As the driver starts.
    pub fn new(flavour: AimVariant) -> Self {
        let delay = match flavour {
            AimVariant::Igb | AimVariant::IgbConservative => quarter_microseconds(IGB_START),
            AimVariant::FreeBsd | AimVariant::FreeBsdLowLatency => interval_for_rate(8_000),
        };
        Self { flavour, delay }
    }

    /// The present value of the register.
    pub fn current_moderation(&self) -> Moderation {
        Moderation::from_delay(self.delay)
    }

    /// One completed poll.
    pub fn step(&mut self, observation: &QueueObservation) -> Decision {
        let before = self.current_moderation();
        self.delay = match self.flavour {
            AimVariant::Igb => self.igb(observation, 0),
            AimVariant::IgbConservative => self.igb(observation, IGB_20K),
            AimVariant::FreeBsd => self.free_bsd(observation, 20_000),
            AimVariant::FreeBsdLowLatency => self.free_bsd(observation, 70_000),
        };
        change_if_new(before, self.current_moderation(), "mean frame size")
    }

    fn igb(&self, observation: &QueueObservation, floor: u32) -> Nanos {
        if is_slower_than_gigabit(observation.link) {
            return quarter_microseconds(IGB_4K);
        }
        scaled_frame(observation).map_or(self.delay, |value| quarter_microseconds(value.max(floor)))
    }

    fn free_bsd(&self, observation: &QueueObservation, most_hz: u32) -> Nanos {
        if is_slower_than_gigabit(observation.link) {
            return interval_for_rate(4_000);
        }
        scaled_frame(observation)
            .map_or(self.delay, |value| interval_for_rate((4_000_000 / value).min(most_hz)))
    }
}

fn is_slower_than_gigabit(link: BitsPerSecond) -> bool {
    link.get() < GIGABIT
}

/// The larger mean frame of the two directions with its wire overhead, scaled to a register value;
/// `None` without traffic.
fn scaled_frame(observation: &QueueObservation) -> Option<u32> {
    let mean = |counts: TrafficCounts| counts.bytes.checked_div(counts.packets).unwrap_or(0);
    let mean = mean(observation.rx).max(mean(observation.tx));
    let frame = (mean + 24).min(3_000);
    let scaled = if frame > 300 && frame < 1_200 { frame / 3 } else { frame / 2 };
    (mean > 0).then_some(scaled)
}

/// The register's low two bits are not there: whole microseconds remain.
fn quarter_microseconds(value: u32) -> Nanos {
    Nanos::from_us(u64::from(value / 4))
}

/// The register counts whole microseconds between interrupts.
fn interval_for_rate(rate_hz: u32) -> Nanos {
    Nanos::from_us(1_000_000 / u64::from(rate_hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_follows_the_larger_mean_frame() {
        // (mean + 24) / 2 or / 3 quarter microseconds, whole microseconds kept.
        check_interval(AimVariant::Igb, (1, 60), (0, 0), 10);
        check_interval(AimVariant::Igb, (10, 6_000), (0, 0), 52);
        check_interval(AimVariant::Igb, (10, 15_140), (10, 600), 192);
        check_interval(AimVariant::Igb, (1, 9_000), (0, 0), 375);
        check_interval(AimVariant::IgbConservative, (1, 60), (0, 0), 49);
    }

    #[test]
    fn freebsd_caps_rate_without_floor() {
        check_interval(AimVariant::FreeBsd, (1, 60), (0, 0), 50);
        check_interval(AimVariant::FreeBsdLowLatency, (1, 60), (0, 0), 14);
        check_interval(AimVariant::FreeBsd, (10, 90_000), (0, 0), 375);
    }

    #[test]
    fn without_traffic_the_value_stays() {
        check_interval(AimVariant::Igb, (0, 0), (0, 0), 162);
        check_interval(AimVariant::FreeBsd, (0, 0), (0, 0), 125);
    }

    #[test]
    fn slow_links_get_4000_per_second() {
        let mut policy = Aim::new(AimVariant::FreeBsd);
        policy.step(&make_observation((1, 60), (0, 0), 100_000_000));
        assert_eq!(policy.delay, Nanos::from_us(250));
    }

    #[track_caller]
    fn check_interval(flavour: AimVariant, rx: (u32, u32), tx: (u32, u32), expected_us: u64) {
        let mut policy = Aim::new(flavour);
        policy.step(&make_observation(rx, tx, GIGABIT));
        assert_eq!(policy.delay, Nanos::from_us(expected_us));
    }

    fn make_observation(rx: (u32, u32), tx: (u32, u32), link_bps: u64) -> QueueObservation {
        QueueObservation {
            rx: TrafficCounts { packets: rx.0, bytes: rx.1 },
            tx: TrafficCounts { packets: tx.0, bytes: tx.1 },
            link: BitsPerSecond::new(link_bps),
            ..QueueObservation::default()
        }
    }
}
