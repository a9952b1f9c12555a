//! The measured load: its rates at each step of the ladder, and how they scatter.

use super::params::ResponseParams;
use super::slot::SlotRates;
use crate::ladder::STEPS;

/// The current load, as measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadProfile {
    /// The rates at each step.
    pub(super) steps: [StepRates; STEPS],
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
pub(super) struct StepRates {
    /// Means of the logarithms.
    pub(super) seen: SlotRates,
    pub(super) slots: u32,
    /// Significant loss on the way up to this step, as a logarithm.
    pub(super) spent: f64,
}

impl LoadProfile {
    pub(super) fn new(params: &ResponseParams) -> Self {
        Self {
            steps: [StepRates::default(); STEPS],
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
    pub(super) fn take_requests(&mut self, seen: &SlotRates, params: &ResponseParams) {
        let Some(rate) = seen.requests else { return };
        let weight = params.requests_weight.max(1.0 / f64::from(self.learnt.saturating_add(1)));
        let mean = self.requests.get_or_insert(rate);
        *mean += (rate - *mean) * weight;
    }

    /// Takes in the deviation of a piece's rate.
    pub(super) fn jitter_by(&mut self, deviation: f64, params: &ResponseParams) {
        self.jitter += (deviation.abs().min(1.0) - self.jitter) * params.jitter_weight;
    }

    /// Negative logarithm of the likelihood of a piece's deviation: that of a Laplace distribution, which has long
    /// tails, with the mean deviation that was learnt.
    pub(super) fn neg_log_likelihood(&self, deviation: f64) -> f64 {
        deviation.abs() / self.jitter
    }

    /// Takes in how far a slot deviates from what was expected.
    pub(super) fn scatter_by(&mut self, seen: &SlotRates, expected: &SlotRates, weight: f64) {
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
    pub(super) fn deviation_limit(&self, which: usize, params: &ResponseParams) -> f64 {
        let is_unknown = self.is_sampled && self.learnt < params.learnt_slots;
        let least = if is_unknown { params.jump_log_first } else { params.jump_log };
        least[which].max(5.0 * self.scatter[which])
    }
}

/// Distance of two slots, in limits of the load: over 1 they are of two loads. `packets`: whether packet rates count
/// too, which they do not where packets are merged before they are counted.
pub(super) fn load_distance(
    a: &SlotRates,
    b: &SlotRates,
    load: &LoadProfile,
    packets: bool,
    params: &ResponseParams,
) -> f64 {
    let mut rates = (a.bytes_log - b.bytes_log).abs();
    if packets {
        rates = rates.max((a.packets_log - b.packets_log).abs());
    }
    let small = match (a.small_log, b.small_log) {
        // Requests come, wait and go: only the bulk beside them tells loads apart.
        _ if a.requests.is_some() => 0.0,
        (Some(a), Some(b)) => (a - b).abs() / load.deviation_limit(1, params),
        (None, None) => 0.0,
        _ => params.small_change_distance,
    };
    small.max(rates / load.deviation_limit(0, params))
}

impl StepRates {
    /// Takes in a slot.
    pub(super) fn take(&mut self, new: &SlotRates, params: &ResponseParams) {
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
    fn equal_bytes_differ_by_packets() {
        let (load, a) = (
            LoadProfile::new(&ResponseParams::DEFAULT),
            SlotRates { bytes_log: 18.0, packets_log: 11.0, ..SlotRates::default() },
        );
        let b = SlotRates { packets_log: 11.4, ..a };
        assert!(load_distance(&a, &b, &load, true, &ResponseParams::DEFAULT) > 1.0);
        assert!(load_distance(&a, &b, &load, false, &ResponseParams::DEFAULT) <= 0.0);
    }

    const PARAMS: ResponseParams = ResponseParams::DEFAULT;

    /// Whether two figures are the same but for rounding.
    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn request_rate_follows_by_a_sixteenth() {
        let after = |learnt: u32, rates: &[f64]| {
            let mut load = LoadProfile { learnt, ..LoadProfile::new(&PARAMS) };
            for &rate in rates {
                load.take_requests(
                    &SlotRates { requests: Some(rate), ..SlotRates::default() },
                    &PARAMS,
                );
            }
            load.requests.unwrap()
        };
        assert!(is_near(after(0, &[100.0, 300.0]), 300.0), "nothing is learnt");
        assert!(is_near(after(3, &[100.0, 200.0]), 125.0), "the fourth slot");
        assert!(is_near(after(99, &[100.0, 260.0]), 110.0), "many slots");
        let mut load = LoadProfile::new(&PARAMS);
        load.take_requests(&SlotRates::default(), &PARAMS);
        assert_eq!(load.requests, None, "requests that are not counted are not zero");
    }

    #[test]
    fn jitter_gives_laplace_likelihood() {
        let mut load = LoadProfile::new(&PARAMS);
        assert!(is_near(load.neg_log_likelihood(-0.6), 0.6 / 0.3));
        for idx in 0..50 {
            load.jitter_by(if idx % 2 == 0 { 0.7 } else { -0.7 }, &PARAMS);
        }
        let expected = 0.7 - 0.4 * 0.99_f64.powi(50);
        assert!(is_near(load.neg_log_likelihood(1.4), 1.4 / expected));
        let mut far = LoadProfile::new(&PARAMS);
        far.jitter_by(-9.0, &PARAMS);
        assert!(is_near(far.neg_log_likelihood(1.0), 1.0 / 0.307), "more than 1 counts as 1");
    }

    #[test]
    fn scatter_matches_normal_deviation() {
        let usual = SlotRates { bytes_log: 18.0, ..SlotRates::default() };
        let at = |deviation: f64| SlotRates { bytes_log: 18.0 + deviation, ..usual };
        let mut load = LoadProfile::new(&PARAMS);
        // A quarter towards 0.1, then a fifth.
        load.scatter_by(&at(0.08), &usual, 0.1);
        assert!(is_near(load.scatter[0], 0.0475));
        load.scatter_by(&at(-0.08), &usual, 0.1);
        assert!(is_near(load.scatter[0], 0.058));
        assert!(is_near(load.scatter[1], 0.03), "no small packets were seen");
        assert_eq!(load.learnt, 2);
        // Many slots on: by the weight. A deviation above 0.5 counts as 0.5.
        load.learnt = 100;
        load.scatter = [0.125; 2];
        let small = |log: f64| SlotRates { small_log: Some(log), ..usual };
        load.scatter_by(&small(9.0), &small(7.0), 0.1);
        assert!(is_near(load.scatter[1], 0.125 + 0.5 * 0.1) && is_near(load.scatter[0], 0.1125));
        load.scatter_by(&small(9.0), &usual, 0.1);
        assert!(is_near(load.scatter[1], 0.175), "there is nothing to compare with");
    }

    #[test]
    fn scattered_load_changes_at_five_deviations() {
        let load = |is_sampled, learnt, scatter| LoadProfile {
            scatter,
            learnt,
            is_sampled,
            ..LoadProfile::new(&PARAMS)
        };
        let check = |load: LoadProfile, bytes: f64, small: f64| {
            let found = [0, 1].map(|which| load.deviation_limit(which, &PARAMS));
            assert!(is_near(found[0], bytes) && is_near(found[1], small), "{found:?}");
        };
        check(load(false, 0, [0.03; 2]), 0.18, 0.4);
        check(load(true, 5, [0.03; 2]), 0.7, 2.0);
        check(load(true, 6, [0.03; 2]), 0.18, 0.4);
        check(load(true, 6, [0.1, 0.05]), 0.5, 0.4);
    }

    #[test]
    fn larger_distance_counts_without_requests() {
        let load = LoadProfile::new(&PARAMS);
        let bulk = SlotRates { bytes_log: 18.0, packets_log: 11.0, ..SlotRates::default() };
        let apart = |a: &SlotRates, b: &SlotRates| {
            assert!(is_near(
                load_distance(a, b, &load, true, &PARAMS),
                load_distance(b, a, &load, true, &PARAMS)
            ));
            load_distance(a, b, &load, true, &PARAMS)
        };
        let more = SlotRates { bytes_log: 18.09, ..bulk };
        assert!(is_near(apart(&bulk, &more), 0.5));
        let small = |log: f64, of: &SlotRates| SlotRates { small_log: Some(log), ..*of };
        assert!(is_near(apart(&small(7.0, &bulk), &small(7.3, &bulk)), 0.75));
        assert!(is_near(apart(&small(7.0, &bulk), &small(7.1, &more)), 0.5));
        assert!(is_near(apart(&small(7.0, &bulk), &bulk), 2.0));
        let requests = |log: f64| SlotRates { requests: Some(100.0), ..small(log, &bulk) };
        assert!(is_near(apart(&requests(7.0), &requests(3.0)), 0.0));
    }

    #[test]
    fn step_averages_twelve_slots_then_follows() {
        let mut step = StepRates::default();
        let slot = |value: f64| SlotRates {
            bytes_log: value,
            packets_log: 2.0 * value,
            small_log: (value > 1.5).then_some(3.0 * value),
            is_bulk: value > 1.5,
            ..SlotRates::default()
        };
        for value in 1..=12 {
            step.take(&slot(f64::from(value)), &PARAMS);
        }
        assert!(is_near(step.seen.bytes_log, 6.5) && is_near(step.seen.packets_log, 13.0));
        assert_eq!((step.slots, step.seen.is_bulk), (12, true));
        let small = step.seen.small_log.unwrap();
        step.take(&slot(18.5), &PARAMS);
        assert!(is_near(step.seen.bytes_log, 7.5) && is_near(step.seen.packets_log, 15.0));
        assert!(is_near(step.seen.small_log.unwrap(), small + (55.5 - small) / 12.0));
        step.take(&slot(1.0), &PARAMS);
        assert_eq!((step.seen.small_log, step.seen.is_bulk), (None, false));
    }
}
