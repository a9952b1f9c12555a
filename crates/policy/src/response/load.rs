//! The measured load: its rates at each step of the ladder, and how they scatter.

use super::params::Params;
use super::slot::Seen;
use crate::ladder::STEPS;

/// The current load, as measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    /// The rates at each step.
    pub(super) steps: [Step; STEPS],
    /// Standard deviation of a slot's rates, as logarithms: of bytes, and of small packets beside bulk.
    pub(super) scatter: [f64; 2],
    /// Slots that `scatter` was learnt from.
    pub(super) learnt: u32,
    /// Highest rate seen, in packets per second.
    pub(super) peak_pps: f64,
    /// Whether small packets go beside bulk.
    pub(super) has_small_packets: bool,
    /// Whether it is seen in a daemon's samples of many polls.
    pub(super) is_sampled: bool,
    /// Mean requests per second beside bulk; `None` where requests are not counted apart from other small packets.
    pub(super) requests: Option<f64>,
    /// Mean absolute deviation of a piece's rate (a few polls), as a logarithm.
    jitter: f64,
}

/// The rates at one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    /// Means of the logarithms.
    pub(super) seen: Seen,
    pub(super) slots: u32,
    /// Significant loss on the way up to this step, as a logarithm.
    pub(super) spent: f64,
}

impl Load {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            steps: [Step::default(); STEPS],
            scatter: [params.scatter_first; 2],
            learnt: 0,
            peak_pps: 0.0,
            has_small_packets: false,
            is_sampled: false,
            requests: None,
            jitter: params.jitter_first,
        }
    }

    /// Takes in the rate of requests of a slot.
    pub(super) fn take_requests(&mut self, seen: &Seen, params: &Params) {
        let Some(rate) = seen.requests else { return };
        let weight = params.requests_weight.max(1.0 / f64::from(self.learnt.saturating_add(1)));
        let mean = self.requests.get_or_insert(rate);
        *mean += (rate - *mean) * weight;
    }

    /// Takes in the deviation of a piece's rate.
    pub(super) fn jitter_by(&mut self, deviation: f64, params: &Params) {
        self.jitter += (deviation.abs().min(1.0) - self.jitter) * params.jitter_weight;
    }

    /// Negative logarithm of the likelihood of a piece's deviation: that of a Laplace distribution, which has long
    /// tails, with the mean deviation that was learnt.
    pub(super) fn neg_log_likelihood(&self, deviation: f64) -> f64 {
        deviation.abs() / self.jitter
    }

    /// Takes in how far a slot deviates from what was expected.
    pub(super) fn scatter_by(&mut self, seen: &Seen, expected: &Seen, weight: f64) {
        self.learnt = self.learnt.saturating_add(1);
        // The estimate of the first slot is soon outweighed.
        let weight = weight.max(1.0 / f64::from(self.learnt.saturating_add(3)));
        let bytes = Some((seen.bytes_log, expected.bytes_log));
        for (scatter, pair) in
            self.scatter.iter_mut().zip([bytes, seen.small_log.zip(expected.small_log)])
        {
            let Some((seen, expected)) = pair else { continue };
            // Mean absolute deviation x 1.25 is the standard deviation of a normal.
            let deviation = 1.25 * (seen - expected).abs().min(0.5);
            *scatter += (deviation - *scatter) * weight;
        }
    }

    /// Deviation (logarithm) from which a rate is another load's: 0 of bytes, 1 of small packets.
    pub(super) fn limit(&self, which: usize, params: &Params) -> f64 {
        let is_unknown = self.is_sampled && self.learnt < params.learnt_slots;
        let least = if is_unknown { params.jump_log_first } else { params.jump_log };
        least[which].max(5.0 * self.scatter[which])
    }
}

/// Distance of two slots, in limits of the load: over 1 they are of two loads. `packets`: whether packet rates count
/// too, which they do not where packets are merged before they are counted.
pub(super) fn distance(a: &Seen, b: &Seen, load: &Load, packets: bool, params: &Params) -> f64 {
    let mut rates = (a.bytes_log - b.bytes_log).abs();
    if packets {
        rates = rates.max((a.packets_log - b.packets_log).abs());
    }
    let small = match (a.small_log, b.small_log) {
        // Requests come, wait and go: only the bulk beside them tells loads apart.
        _ if a.requests.is_some() => 0.0,
        (Some(a), Some(b)) => (a - b).abs() / load.limit(1, params),
        (None, None) => 0.0,
        _ => params.small_change_distance,
    };
    small.max(rates / load.limit(0, params))
}

impl Step {
    /// Takes in a slot.
    pub(super) fn take(&mut self, new: &Seen, params: &Params) {
        self.slots = self.slots.saturating_add(1);
        let weight = params.slot_weight.max(1.0 / f64::from(self.slots));
        let towards = |mean: &mut f64, new: f64| *mean += (new - *mean) * weight;
        towards(&mut self.seen.bytes_log, new.bytes_log);
        towards(&mut self.seen.packets_log, new.packets_log);
        self.seen.is_bulk = new.is_bulk;
        match (&mut self.seen.small_log, new.small_log) {
            (Some(mean), Some(new)) => towards(mean, new),
            (mean, new) => *mean = new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_the_same_bytes_are_told_apart_by_their_packets() {
        let (load, a) = (
            Load::new(&Params::DEFAULT),
            Seen { bytes_log: 18.0, packets_log: 11.0, ..Seen::default() },
        );
        let b = Seen { packets_log: 11.4, ..a };
        assert!(distance(&a, &b, &load, true, &Params::DEFAULT) > 1.0);
        assert!(distance(&a, &b, &load, false, &Params::DEFAULT) <= 0.0);
    }
}
