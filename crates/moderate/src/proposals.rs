//! The changes that an observer would make, told so that a log stays readable.

use latput_units::Nanos;

/// Least time between two lines of an observer.
const LINE_EVERY: Nanos = Nanos::from_s(10);

/// Proposals of an observer so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProposalLog {
    /// The delay that was proposed last.
    last: Option<Nanos>,
    /// The delay of the last line, and its time.
    told: Option<(Nanos, Nanos)>,
}

/// How to treat a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProposalVerdict {
    /// Whether it differs from the one before. Nothing is changed, so the policy repeats itself.
    pub(crate) is_new: bool,
    /// Whether it is worth a line.
    pub(crate) is_told: bool,
}

impl ProposalLog {
    /// Takes in a proposal of `delay` at the time `now`.
    pub(crate) fn add(&mut self, delay: Nanos, now: Nanos) -> ProposalVerdict {
        let is_new = self.last.replace(delay) != Some(delay);
        let is_told = self
            .told
            .is_none_or(|(told, at)| told != delay && now.saturating_sub(at) >= LINE_EVERY);
        if is_told {
            self.told = Some((delay, now));
        }
        ProposalVerdict { is_new, is_told }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proposes these delays in turn, 20 times a second for a minute; the new ones and the lines.
    fn count_proposals(delays: &[u64]) -> (usize, usize) {
        let mut proposals = ProposalLog::default();
        let delays = delays.iter().cycle().take(1200);
        let all: Vec<ProposalVerdict> = (0..)
            .zip(delays)
            .map(|(at, delay)| proposals.add(Nanos::from_us(*delay), Nanos::from_ms(50 * at)))
            .collect();
        let count = |is: fn(&&ProposalVerdict) -> bool| all.iter().filter(is).count();
        (count(|one| one.is_new), count(|one| one.is_told))
    }

    #[test]
    fn proposal_that_repeats_is_told_once() {
        assert_eq!(count_proposals(&[20]), (1, 1));
    }

    #[test]
    fn alternating_proposals_are_seldom_told() {
        let (new, told) = count_proposals(&[20, 50]);
        assert_eq!(new, 1200);
        assert!((2..=6).contains(&told), "{told}");
    }
}
