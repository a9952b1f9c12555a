//! The ladder of delays that our policies search, and its bounds.

use latput_units::Nanos;

/// Rungs at most: no delay, and ten doublings of the least.
pub(crate) const STEPS: usize = 12;

/// The longest delay worth a test; a longer one is a timeout.
pub const GREATEST: Nanos = Nanos::from_us(4096);

/// The limits of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayBounds {
    /// The shortest delay that is not none. Many Intel drivers take values of `rx-usecs` below 10 for
    /// modes.
    pub least: Nanos,
    /// The longest delay, whatever the load.
    pub most: Nanos,
    /// The share of the best rate that may be given up for fewer interrupts.
    pub loss_ratio: f64,
    /// Receive descriptors of the queue; half of them must hold what comes during the delay.
    pub ring: u32,
    /// Vectors whose polls the policy is told of one by one; after a change each has some that still belong
    /// to the delay before. 1 also where samples are of the whole interface.
    pub vectors: u32,
}

impl Default for DelayBounds {
    /// 4 us to 100 us, 2%, 256 descriptors, one vector.
    fn default() -> Self {
        Self {
            least: Nanos::from_us(4),
            most: Nanos::from_us(100),
            loss_ratio: 0.02,
            ring: 256,
            vectors: 1,
        }
    }
}

impl DelayBounds {
    /// The delay of a step: none, the least, and then each twice the one below, up to the longest.
    pub(crate) fn step_delay(&self, step: usize) -> Nanos {
        let delay = match step {
            0 => Nanos::ZERO,
            _ => self.least.saturating_mul(1 << (step - 1)),
        };
        delay.min(self.most)
    }

    /// The highest step at a rate of packets per second: the longest delay, or what half of the ring
    /// absorbs.
    pub(crate) fn highest_step(&self, peak_pps: f64) -> usize {
        let absorbed = self.half_ring_duration(peak_pps);
        let allowed = |step: &usize| {
            let within = *step == 0 || self.step_delay(step - 1) < self.most;
            within && self.step_delay(*step) <= absorbed
        };
        (0..STEPS).take_while(allowed).last().unwrap_or(0)
    }

    /// The highest step of a ladder whose longest delay is what [`within`](Self::capped_delay) allows, and not only
    /// the last doubling below it.
    pub(crate) fn highest_capped_step(&self, peak_pps: f64) -> usize {
        let longest = self.longest_delay(peak_pps);
        if longest < self.least.min(self.most) {
            return 0;
        }
        let is_worth_it = |step: &usize| {
            *step < 2 || self.step_delay(step - 1).saturating_mul(5) <= longest.saturating_mul(4)
        };
        (0..STEPS).take_while(is_worth_it).last().unwrap_or(0)
    }

    /// The delay of a step at a rate of packets per second.
    pub(crate) fn capped_delay(&self, step: usize, peak_pps: f64) -> Nanos {
        self.step_delay(step).min(self.longest_delay(peak_pps))
    }

    /// The longest delay that the owner and half of the ring allow. The ring's part goes by eighths of a doubling: the
    /// highest rate seen grows a little now and then, and a step's delay should seldom change.
    fn longest_delay(&self, peak_pps: f64) -> Nanos {
        let absorbed = self.half_ring_duration(peak_pps).as_secs_f64();
        let step = (absorbed.log2() * 8.0).floor() / 8.0;
        self.most.min(Nanos::from_secs_f64(step.exp2()))
    }

    /// How long half of the ring lasts at a rate of packets per second.
    pub fn half_ring_duration(&self, peak_pps: f64) -> Nanos {
        // No packets at all: for ever, which is cut too.
        Nanos::from_secs_f64((f64::from(self.ring) / 2.0 / peak_pps).min(3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_double_up_to_the_longest() {
        let bounds = DelayBounds { least: Nanos::from_us(10), ..DelayBounds::default() };
        let delays: Vec<u64> = (0..=5).map(|step| bounds.step_delay(step).as_ns() / 1000).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 100]);
        assert_eq!((bounds.highest_step(0.0), bounds.highest_capped_step(0.0)), (5, 5));
    }

    #[test]
    fn longest_delay_may_be_a_rung() {
        let check = |pps: f64, step: usize, least_us: f64, most_us: f64| {
            let bounds = DelayBounds { most: Nanos::from_us(256), ..DelayBounds::default() };
            let delay = bounds.capped_delay(bounds.highest_capped_step(pps), pps).as_us_f64();
            assert_eq!(bounds.highest_capped_step(pps), step, "{pps}");
            assert!((least_us..=most_us).contains(&delay), "{pps}: {delay}");
        };
        check(0.0, 7, 256.0, 256.0);
        check(520e3, 7, 225.0, 246.2); // half of the ring lasts 246 us
        check(850e3, 6, 128.0, 128.0); // 151 us
        check(20e6, 2, 5.8, 6.4);
        check(30e6, 1, 4.0, 4.0); // 4.3 us
        check(40e6, 0, 0.0, 0.0); // 3.2 us
    }

    #[test]
    fn least_allowed_delay_is_one_rung() {
        let bounds = DelayBounds { most: Nanos::from_us(4), ..DelayBounds::default() };
        assert_eq!((bounds.highest_step(0.0), bounds.highest_capped_step(0.0)), (1, 1));
        assert_eq!(bounds.capped_delay(1, 0.0), Nanos::from_us(4));
    }

    #[test]
    fn ring_without_packets_lasts_an_hour_at_most() {
        assert_eq!(DelayBounds::default().half_ring_duration(0.0), Nanos::from_s(3600));
        assert_eq!(DelayBounds::default().half_ring_duration(1e-9), Nanos::from_s(3600));
        assert_eq!(DelayBounds::default().half_ring_duration(128.0), Nanos::from_s(1));
    }

    #[test]
    fn half_ring_holds_the_delay() {
        let bounds = DelayBounds::default();
        for pps in [1e4, 1e6, 3e6, 14.88e6, 1e9] {
            for delay in [
                bounds.step_delay(bounds.highest_step(pps)),
                bounds.capped_delay(bounds.highest_capped_step(pps), pps),
            ] {
                assert!(pps * delay.as_secs_f64() <= 128.0, "{pps}: {delay}");
            }
        }
    }
}
