//! Due times of open-loop requests. They do not depend on responses. Pure.

use std::net::IpAddr;

use latput_trial::{Arrivals, Distribution};
use latput_units::{Nanos, SeededRng};

/// Seed of the gaps. Every trial has the same gaps, so that settings are compared under the same
/// load.
const SEED: u64 = 0x006c_6174_7075_7421;

/// One thread's part of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The number of the thread, from 0.
    pub(crate) thread: usize,
    /// Connections of the thread.
    pub(crate) connections: usize,
    /// Connections of all threads.
    pub(crate) of: usize,
    /// The address of this generator. Each of several generators has its own gaps.
    pub(crate) generator: Option<IpAddr>,
}

/// The requests of one thread, in the order of their due times. A delay does not move later ones.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    start: Nanos,
    /// Mean gap of the thread's requests in nanoseconds.
    gap_ns: f64,
    /// Due time of the next request in nanoseconds after the start.
    next_ns: f64,
    /// Draws random gaps; `None` for even gaps.
    rng: Option<SeededRng>,
}

impl Schedule {
    /// The schedule from `start` on. Threads with even gaps alternate.
    pub(crate) fn new(arrivals: Arrivals, share: Share, start: Nanos) -> Self {
        let gap_over_all_ns = 1e9 / f64::from(arrivals.rate_per_s.max(1));
        let gap_ns = gap_over_all_ns * share.of as f64 / share.connections.max(1) as f64;
        match arrivals.gaps {
            Distribution::Fixed => {
                let next_ns = gap_over_all_ns * share.thread as f64;
                Self { start, gap_ns, next_ns, rng: None }
            }
            Distribution::Exponential => {
                let rng = Some(SeededRng::from_seed_and_index(
                    SEED ^ salt(share.generator),
                    share.thread as u64,
                ));
                let mut schedule = Self { start, gap_ns, next_ns: 0.0, rng };
                schedule.advance();
                schedule
            }
        }
    }

    /// Due time of the next request.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        // Doubles represent whole nanoseconds exactly up to 100 days.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        self.start.saturating_add(Nanos::from_ns(self.next_ns as u64))
    }

    /// Takes the next request if it is due before `instant`. Returns its due time.
    #[inline]
    pub(crate) fn take_before(&mut self, instant: Nanos) -> Option<Nanos> {
        let due = self.next();
        (due < instant).then(|| {
            self.advance();
            due
        })
    }

    fn advance(&mut self) {
        self.next_ns += match &mut self.rng {
            None => self.gap_ns,
            // The inverse of the exponential distribution; 1 - u is never 0.
            Some(rng) => -(1.0 - rng.next_uniform()).ln() * self.gap_ns,
        };
    }
}

/// The bytes of an address, combined into a seed.
fn salt(generator: Option<IpAddr>) -> u64 {
    let bytes = match generator {
        Some(IpAddr::V4(address)) => u128::from(address.to_bits()),
        Some(IpAddr::V6(address)) => address.to_bits(),
        None => 0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    let folded = (bytes >> 64) as u64 ^ bytes as u64;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_gaps_are_even_over_threads() {
        let mut due: Vec<u64> = (0..4)
            .flat_map(|thread| times(Distribution::Fixed, 1000, share(thread, 2, 8), 1))
            .collect();
        due.sort_unstable();
        let even: Vec<u64> = (0..1000).map(|number| number * 1_000_000).collect();
        assert_eq!(due, even);
    }

    #[test]
    fn exponential_gaps_have_their_mean_and_spread() {
        let due = times(Distribution::Exponential, 20_000, share(0, 1, 1), 10);
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let beyond = gaps.iter().filter(|gap| **gap > 2.0 * mean).count() as f64;
        assert!((mean / 50_000.0 - 1.0).abs() < 0.02, "{mean}");
        // e^-2 of them are longer than twice the mean.
        assert!((beyond / gaps.len() as f64 - 0.1353).abs() < 0.01, "{beyond}");
    }

    #[test]
    fn thread_times_repeat_and_differ() {
        let of = |thread| times(Distribution::Exponential, 1000, share(thread, 1, 2), 1);
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        let from =
            |last| Share { generator: Some(IpAddr::from([198, 18, 0, last])), ..share(0, 1, 1) };
        let of = |last| times(Distribution::Exponential, 1000, from(last), 1);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn unequal_threads_add_up_to_rate() {
        let count: usize = [(0, 3), (1, 4), (2, 3)]
            .map(|(thread, mine)| times(Distribution::Fixed, 10_000, share(thread, mine, 10), 1))
            .iter()
            .map(Vec::len)
            .sum();
        assert!((9_998..=10_002).contains(&count), "{count}");
    }

    #[test]
    fn request_is_never_early() {
        let arrivals = Arrivals { rate_per_s: 1000, gaps: Distribution::Fixed };
        let mut schedule = Schedule::new(arrivals, share(0, 1, 1), Nanos::from_s(1));
        assert_eq!(schedule.take_before(Nanos::from_s(1)), None);
        assert_eq!(schedule.take_before(Nanos::from_s(2)), Some(Nanos::from_s(1)));
        assert_eq!(schedule.next(), Nanos::from_ms(1001));
    }

    fn share(thread: usize, connections: usize, of: usize) -> Share {
        Share { thread, connections, of, generator: None }
    }

    fn times(gaps: Distribution, rate_per_s: u32, share: Share, seconds: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(Arrivals { rate_per_s, gaps }, share, Nanos::ZERO);
        std::iter::from_fn(|| schedule.take_before(Nanos::from_s(seconds)))
            .map(Nanos::as_ns)
            .collect()
    }
}
