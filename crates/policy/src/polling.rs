//! FreeBSD's device polling: how many packets each driver may handle per clock tick, so that user
//! processes keep their share of the CPU.
//!
//! The burst grows by one while polling leaves users their share, shrinks by one when it does not, and by
//! an eighth when a tick was missed. Source: the algorithm described in `sys/kern/kern_poll.c` and
//! polling(4), with the sysctl names `kern.polling.*`.

use latput_units::Nanos;

/// The sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollingSysctls {
    /// Clock ticks per second (`hz`).
    pub hz: u32,
    /// `burst_max`: most packets per tick and driver.
    pub burst_max: u32,
    /// `each_burst`: packets per call of a driver.
    pub each_burst: u32,
    /// `user_frac`: percent of the CPU kept for user processes.
    pub user_frac: u32,
}

impl Default for PollingSysctls {
    fn default() -> Self {
        Self { hz: 1_000, burst_max: 150, each_burst: 5, user_frac: 50 }
    }
}

/// One finished round of polling: what the loop needs to know at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRoundTiming {
    /// From the round's start to its end.
    pub elapsed: Nanos,
    /// Whether another clock tick came before the round was over.
    pub tick_missed: bool,
}

/// The loop's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePolling {
    sysctls: PollingSysctls,
    burst: u32,
}

impl DevicePolling {
    /// As the kernel starts: a burst of 5.
    pub fn new(sysctls: PollingSysctls) -> Self {
        Self { sysctls, burst: 5.min(sysctls.burst_max) }
    }

    /// The sysctls in force.
    pub fn sysctls(&self) -> PollingSysctls {
        self.sysctls
    }

    /// Packets that the next round may handle.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// A round is over: the burst of the next.
    pub fn step(&mut self, round: &PollRoundTiming) -> u32 {
        let elapsed_us = round.elapsed.as_ns() / 1_000;
        let load_percent = elapsed_us.saturating_mul(u64::from(self.sysctls.hz)) / 10_000;
        if load_percent > u64::from(100 - self.sysctls.user_frac.min(100)) {
            self.burst = (self.burst - 1).max(1);
        } else {
            self.burst = (self.burst + 1).min(self.sysctls.burst_max);
        }
        if round.tick_missed {
            self.burst = (self.burst - self.burst / 8).max(1);
        }
        self.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_climbs_by_one_per_tick() {
        check_burst(200, (300, false), 150);
        check_burst(10, (300, false), 15);
    }

    #[test]
    fn it_shrinks_when_users_lose_their_share() {
        // 510 us of a 1000 us tick is 51%, more than the 50% that polling may use.
        check_burst(200, (510, false), 1);
        check_burst(1, (509, false), 6);
    }

    #[test]
    fn missed_tick_costs_an_eighth() {
        let mut polling = DevicePolling::new(PollingSysctls::default());
        polling.burst = 80;
        let round = PollRoundTiming { elapsed: Nanos::from_us(1_100), tick_missed: true };
        assert_eq!(polling.step(&round), 79 - 79 / 8);
    }

    #[track_caller]
    fn check_burst(rounds: u32, (elapsed_us, tick_missed): (u64, bool), expected: u32) {
        let mut polling = DevicePolling::new(PollingSysctls::default());
        for _ in 0..rounds {
            polling.step(&PollRoundTiming { elapsed: Nanos::from_us(elapsed_us), tick_missed });
        }
        assert_eq!(polling.burst(), expected);
    }
}
