//! The ladder of delays that policies of ours walk, and what bounds it.

use latput_units::Nanos;

/// Rungs at most: no delay, and ten doublings of the least.
pub(crate) const RUNGS: usize = 12;

/// The longest delay that is ever worth trying: what is held back longer is a timeout.
pub const GREATEST: Nanos = Nanos::from_us(4096);

/// What a policy must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
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

impl Default for Bounds {
    /// 4 us to 100 us, 2 %, 256 descriptors, one vector.
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

impl Bounds {
    /// The delay of a rung: none, the least, and then each twice the one below, up to the longest.
    pub(crate) fn delay(&self, rung: usize) -> Nanos {
        let delay = match rung {
            0 => Nanos::ZERO,
            _ => self.least.saturating_mul(1 << (rung - 1)),
        };
        delay.min(self.most)
    }

    /// The highest rung at a rate of packets per second: the longest delay, or what half of the ring
    /// absorbs.
    pub(crate) fn highest(&self, peak_pps: f64) -> usize {
        let absorbed = self.absorbed(peak_pps);
        let allowed = |rung: &usize| {
            let within = *rung == 0 || self.delay(rung - 1) < self.most;
            within && self.delay(*rung) <= absorbed
        };
        (0..RUNGS).take_while(allowed).last().unwrap_or(0)
    }

    /// How long half of the ring lasts at a rate of packets per second.
    pub fn absorbed(&self, peak_pps: f64) -> Nanos {
        if peak_pps > 0.0 {
            Nanos::from_secs_f64((f64::from(self.ring) / 2.0 / peak_pps).min(3600.0))
        } else {
            Nanos::from_s(3600)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_double_up_to_the_longest() {
        let bounds = Bounds { least: Nanos::from_us(10), ..Bounds::default() };
        let delays: Vec<u64> = (0..=5).map(|rung| bounds.delay(rung).as_ns() / 1000).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 100]);
        assert_eq!(bounds.highest(0.0), 5);
    }

    #[test]
    fn half_of_the_ring_holds_what_comes_during_the_delay() {
        let bounds = Bounds::default();
        for pps in [1e4, 1e6, 3e6, 14.88e6, 1e9] {
            let delay = bounds.delay(bounds.highest(pps));
            assert!(pps * delay.as_secs_f64() <= 128.0, "{pps}: {delay}");
        }
    }
}
