//! Moderation by mean frame size: igb's ring throttle and FreeBSD's adaptive interrupt moderation.
//!
//! Neither looks at the packet rate: a few small acknowledgements among large frames pull the interval
//! down, whatever the load. Sources: `igb_update_ring_itr` (`drivers/net/ethernet/intel/igb/igb_main.c`)
//! and `em_newitr` (FreeBSD `sys/dev/e1000/if_em.c`, commit 3e501ef89667).

use latput_units::{BitsPerSecond, Nanos};

use crate::{Counts, Decision, Moderation, Observation, change_if_new};

/// igb's start value, in quarter microseconds.
const IGB_START: u32 = 648;
/// 20000 interrupts/s in quarter microseconds, as igb has it.
const IGB_20K: u32 = 196;
/// 4000 interrupts/s in quarter microseconds, as igb has it.
const IGB_4K: u32 = 980;
const GIGABIT: u64 = 1_000_000_000;

/// Driver whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
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
    flavour: Flavour,
    delay: Nanos,
}

impl Aim {
    /// As the driver starts.
    pub fn new(flavour: Flavour) -> Self {
        let delay = match flavour {
            Flavour::Igb | Flavour::IgbConservative => quarter_microseconds(IGB_START),
            Flavour::FreeBsd | Flavour::FreeBsdLowLatency => interval(8_000),
        };
        Self { flavour, delay }
    }

    /// The present value of the register.
    pub fn current(&self) -> Moderation {
        Moderation::delay(self.delay)
    }

    /// One completed poll.
    pub fn step(&mut self, observation: &Observation) -> Decision {
        let before = self.current();
        self.delay = match self.flavour {
            Flavour::Igb => self.igb(observation, 0),
            Flavour::IgbConservative => self.igb(observation, IGB_20K),
            Flavour::FreeBsd => self.free_bsd(observation, 20_000),
            Flavour::FreeBsdLowLatency => self.free_bsd(observation, 70_000),
        };
        change_if_new(before, self.current(), "mean frame size")
    }

    fn igb(&self, observation: &Observation, floor: u32) -> Nanos {
        if is_slower_than_gigabit(observation.link) {
            return quarter_microseconds(IGB_4K);
        }
        scaled_frame(observation).map_or(self.delay, |value| quarter_microseconds(value.max(floor)))
    }

    fn free_bsd(&self, observation: &Observation, most_hz: u32) -> Nanos {
        if is_slower_than_gigabit(observation.link) {
            return interval(4_000);
        }
        scaled_frame(observation)
            .map_or(self.delay, |value| interval((4_000_000 / value).min(most_hz)))
    }
}

fn is_slower_than_gigabit(link: BitsPerSecond) -> bool {
    link.get() < GIGABIT
}

/// The larger mean frame of the two directions with its wire overhead, scaled to a register value;
/// `None` without traffic.
fn scaled_frame(observation: &Observation) -> Option<u32> {
    let mean = |counts: Counts| counts.bytes.checked_div(counts.packets).unwrap_or(0);
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
fn interval(rate_hz: u32) -> Nanos {
    Nanos::from_us(1_000_000 / u64::from(rate_hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_follows_the_larger_mean_frame() {
        // (mean + 24) / 2 or / 3 quarter microseconds, whole microseconds kept.
        check(Flavour::Igb, (1, 60), (0, 0), 10);
        check(Flavour::Igb, (10, 6_000), (0, 0), 52);
        check(Flavour::Igb, (10, 15_140), (10, 600), 192);
        check(Flavour::Igb, (1, 9_000), (0, 0), 375);
        check(Flavour::IgbConservative, (1, 60), (0, 0), 49);
    }

    #[test]
    fn freebsd_caps_rate_without_floor() {
        check(Flavour::FreeBsd, (1, 60), (0, 0), 50);
        check(Flavour::FreeBsdLowLatency, (1, 60), (0, 0), 14);
        check(Flavour::FreeBsd, (10, 90_000), (0, 0), 375);
    }

    #[test]
    fn without_traffic_the_value_stays() {
        check(Flavour::Igb, (0, 0), (0, 0), 162);
        check(Flavour::FreeBsd, (0, 0), (0, 0), 125);
    }

    #[test]
    fn slow_links_get_4000_per_second() {
        let mut policy = Aim::new(Flavour::FreeBsd);
        policy.step(&observation((1, 60), (0, 0), 100_000_000));
        assert_eq!(policy.delay, Nanos::from_us(250));
    }

    #[track_caller]
    fn check(flavour: Flavour, rx: (u32, u32), tx: (u32, u32), expected_us: u64) {
        let mut policy = Aim::new(flavour);
        policy.step(&observation(rx, tx, GIGABIT));
        assert_eq!(policy.delay, Nanos::from_us(expected_us));
    }

    fn observation(rx: (u32, u32), tx: (u32, u32), link_bps: u64) -> Observation {
        Observation {
            rx: Counts { packets: rx.0, bytes: rx.1 },
            tx: Counts { packets: tx.0, bytes: tx.1 },
            link: BitsPerSecond::new(link_bps),
            ..Observation::default()
        }
    }
}
