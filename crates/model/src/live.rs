//! Noise of the figures of live traffic, and the differences that can be told in spite of it.
//!
//! A slice of a setting is compared with today's before and after it. Where both are today's, the logarithm of their ratio is
//! noise; its true mean is zero. So its scale is the root of the mean square, with as many degrees of freedom as there are
//! pairs.

use latput_stats::mean::critical_t;

use crate::recommend::smallest::Z_OF_POWER;

/// Fewest pairs of today with itself from which noise is known.
pub const FEWEST: usize = 4;
/// The last pairs, of which the noise is known by themselves too.
pub const RECENT: usize = 12;
/// The chance, each time that a guard is judged, that noise alone breaks it for a setting that is exactly at its limit.
pub const LEVEL: f64 = 0.001;
/// The normal deviate of [`LEVEL`], for what is only counted.
const Z_OF_LEVEL: f64 = 3.090_232;
/// More pairs than any run makes.
const MOST_PAIRS: usize = 1_000_000;

/// Root of the mean square, of all or of the last [`RECENT`], whichever is more: a host may become noisier. `None` with fewer
/// than [`FEWEST`] logarithms, or with one that is not finite.
pub fn noise_scale(noise: &[f64]) -> Option<f64> {
    if noise.len() < FEWEST || !noise.iter().all(|log| log.is_finite()) {
        return None;
    }
    let root = |logs: &[f64]| {
        let squares: f64 = logs.iter().map(|log| log * log).sum();
        (squares / logs.len() as f64).sqrt()
    };
    let recent = &noise[noise.len().saturating_sub(RECENT)..];
    Some(root(noise).max(root(recent)))
}

/// The logarithm of a ratio that noise alone exceeds with the chance [`LEVEL`]; `None` if the noise is not known.
pub fn noise_margin(noise: &[f64]) -> Option<f64> {
    let scale = noise_scale(noise)?; // no pair at all has no Student's t
    Some(critical_t(1.0 - 2.0 * LEVEL, noise.len()) * scale)
}

/// Whether ratios, as logarithms, are proven to be above a limit, all together: at [`LEVEL`], where the noise of each has its
/// own scale. `pairs` is the number of pairs that the scales are known from. The largest ratio counts as the next one: a stutter
/// of the host in one slice, however long, proves nothing. So at least two are needed.
pub fn is_proven_above(logs_and_scales: &[(f64, f64)], limit: f64, pairs: usize) -> bool {
    // A scale that is zero or no number leaves a mean that is no number, and proves nothing either.
    let is_usable = |(log, _): &(f64, f64)| log.is_finite();
    if logs_and_scales.len() < 2 || pairs < FEWEST || !logs_and_scales.iter().all(is_usable) {
        return false;
    }
    let mut logs: Vec<f64> = logs_and_scales.iter().map(|(log, _)| *log).collect();
    logs.sort_unstable_by(f64::total_cmp);
    let most = logs[logs.len() - 2];
    // The weights of the least variance.
    let weights: f64 = logs_and_scales.iter().map(|(_, scale)| scale.powi(-2)).sum();
    let weighed = logs_and_scales.iter().map(|(log, scale)| log.min(most) * scale.powi(-2));
    let mean = weighed.sum::<f64>() / weights;
    mean - limit > critical_t(1.0 - 2.0 * LEVEL, pairs) / weights.sqrt()
}

/// The margin of a ratio of two counts by counting alone, if each event comes by itself (Poisson). Half an event is added
/// to each, as to the logarithms of such ratios, so that none is without a logarithm.
pub fn counting_margin(count: f64, todays: f64) -> f64 {
    Z_OF_LEVEL * (1.0 / (count + 0.5) + 1.0 / (todays + 0.5)).sqrt()
}

/// The pairs after which the half width of a ratio's interval is `half_width`, if each has noise of this scale.
pub fn pairs_for(scale: f64, half_width: f64, confidence: f64) -> usize {
    let wanted = half_width.ln_1p();
    let is_enough =
        |pairs: usize| critical_t(confidence, pairs - 1) * scale / (pairs as f64).sqrt() <= wanted;
    let (mut low, mut high) = (2, 2);
    while high < MOST_PAIRS && !is_enough(high) {
        low = high;
        high *= 2;
    }
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if is_enough(middle) { high = middle } else { low = middle }
    }
    if is_enough(low) { low } else { high.min(MOST_PAIRS) }
}

/// The smallest increase, as a share, that four of five runs with so many pairs prove; `None` with fewer than two.
pub fn smallest_effect(scale: f64, pairs: usize, confidence: f64) -> Option<f64> {
    let degrees_of_freedom = pairs.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let deviates = critical_t(confidence, degrees_of_freedom) + Z_OF_POWER;
    Some((deviates * scale / (pairs as f64).sqrt()).exp_m1())
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    /// Normally distributed noise of this scale.
    fn draw_noise(rng: &mut SeededRng, scale: f64) -> f64 {
        // Irwin and Hall: the sum of twelve uniform draws.
        scale * ((0..12).map(|_| rng.next_uniform()).sum::<f64>() - 6.0)
    }

    #[test]
    fn noise_seldom_exceeds_the_margin() {
        let mut rng = SeededRng::from_seed(7);
        for pairs in [FEWEST, 8, 50] {
            let draws = 40_000;
            let exceeded = (0..draws).filter(|_| {
                let known: Vec<f64> = (0..pairs).map(|_| draw_noise(&mut rng, 0.1)).collect();
                draw_noise(&mut rng, 0.1) > noise_margin(&known).unwrap()
            });
            let share = exceeded.count() as f64 / f64::from(draws);
            assert!((0.0004..0.0018).contains(&share), "{share} with {pairs} pairs");
        }
        assert_eq!(noise_margin(&[]), None);
        assert_eq!(noise_margin(&[0.1; FEWEST - 1]), None);
        assert_eq!(noise_margin(&[f64::NAN; FEWEST]), None);
    }

    #[test]
    fn what_one_slice_cannot_prove_two_can() {
        let limit = 1.05_f64.ln();
        let one = (1.2_f64.ln(), 0.04);
        assert!(!is_proven_above(&[one], limit, 12));
        assert!(is_proven_above(&[one, one], limit, 12));
        assert!(!is_proven_above(&[one, (0.0, 0.04)], limit, 12));
        assert!(!is_proven_above(&[one, one], limit, FEWEST - 1));
        assert!(
            !is_proven_above(&[], limit, 12) && !is_proven_above(&[(f64::NAN, 0.1)], limit, 12)
        );
    }

    #[test]
    fn one_stutter_proves_nothing() {
        let (stutter, quiet) = ((2.0, 0.03), (0.01, 0.03));
        assert!(!is_proven_above(&[stutter], 0.05, 12));
        for slices in 1..20 {
            let mut ratios = vec![quiet; slices];
            ratios.push(stutter);
            assert!(!is_proven_above(&ratios, 0.05, 12), "{slices}");
        }
        assert!(is_proven_above(&[stutter, stutter], 0.05, 12));
    }

    #[test]
    fn recent_pairs_show_a_noisier_host() {
        let before = [0.01; 100];
        let mut noise = before.to_vec();
        noise.extend([0.1; RECENT]);
        assert!((noise_scale(&noise).unwrap() - 0.1).abs() < 1e-12);
        // One that became quieter is known by all: the noise may come back.
        noise.extend([0.0; RECENT]);
        let all = (0.01 * 0.01 * 100.0 + 0.1 * 0.1 * 12.0_f64) / 124.0;
        assert!((noise_scale(&noise).unwrap() - all.sqrt()).abs() < 1e-12);
    }

    /// scipy 1.17: `t.ppf(0.999, 12)`.
    const T_OF_12: f64 = 3.929_633;

    #[test]
    fn ratios_are_weighed_by_noise() {
        // Scales of 0.1 and 0.05 have weights 100 and 400: together a noise of 1 / sqrt(600).
        let limit = 0.02;
        let needed = T_OF_12 / 600.0_f64.sqrt();
        for (beyond, is_proven) in [(1.001, true), (0.999, false)] {
            let mean = limit + beyond * needed;
            // 2/6 x (mean + 0.2) + 4/6 x (mean - 0.1) = mean.
            let ratios = [(mean + 0.2, 0.1), (mean + 0.2, 0.1), (mean - 0.1, 0.05)];
            assert_eq!(is_proven_above(&ratios, limit, 12), is_proven, "{beyond}");
        }
        let far = (9.0, 0.01);
        assert!(is_proven_above(&[far, far], limit, FEWEST));
        for bad in [(f64::INFINITY, 0.01), (9.0, 0.0), (9.0, f64::NAN), (f64::NAN, 0.01)] {
            assert!(!is_proven_above(&[far, far, bad], limit, 12), "{bad:?}");
            assert!(!is_proven_above(&[bad], limit, 12), "{bad:?}");
        }
        assert_eq!(noise_scale(&[3.0, -4.0, 3.0, -4.0]), Some(12.5_f64.sqrt()));
        let margin = noise_margin(&[0.1; 12]).unwrap();
        assert!((margin - 0.1 * T_OF_12).abs() < 1e-6, "{margin}");
    }

    #[test]
    fn few_events_are_no_evidence() {
        // 6 errors where today had 1 in the same time, and 600 where it had 100.
        assert!((6.5_f64 / 1.5).ln() < counting_margin(6.0, 1.0));
        assert!((600.5_f64 / 100.5).ln() > counting_margin(600.0, 100.0));
        assert!(counting_margin(0.0, 0.0).is_finite());
        // The deviate of 0.001 times the root of 1 / 4 + 1 / 12.
        let margin = counting_margin(3.5, 11.5);
        assert!((margin - 3.090_232 * (1.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{margin}");
    }

    #[test]
    fn number_of_pairs_follows_from_the_noise() {
        // t(0.99, n - 1) * 0.05 / sqrt(n) <= ln 1.025: t is near 2.6, so n is near (2.6 * 0.05 / 0.0247)^2 = 28.
        let pairs = pairs_for(0.05, 0.025, 0.99);
        assert!((29..=33).contains(&pairs), "{pairs}");
        // The fewest that are enough, by scipy's `t.ppf`: one fewer is not.
        for (scale, half_width, confidence, fewest) in [
            (0.05, 0.025, 0.99, 32),
            (0.02, 0.025, 0.99, 9),
            (0.01, 0.025, 0.95, 4),
            (0.001, 0.025, 0.95, 2),
            (0.3, 0.05, 0.95, 148),
            (0.08, 0.025, 0.9, 31),
            (0.004, 0.05, 0.95, 2),
            (0.0046, 0.05, 0.95, 2),
        ] {
            assert_eq!(pairs_for(scale, half_width, confidence), fewest, "{scale} {half_width}");
        }
        assert_eq!(pairs_for(0.0, 0.025, 0.99), 2);
        assert_eq!(pairs_for(1e9, 0.025, 0.99), MOST_PAIRS);
        assert!(pairs_for(0.1, 0.025, 0.99) > 3 * pairs);
        let effect = smallest_effect(0.05, pairs, 0.99).unwrap();
        assert!((0.025..0.04).contains(&effect), "{effect}");
        assert_eq!(smallest_effect(0.05, 1, 0.99), None);
        // exp((t.ppf(0.995, 8) + norm.ppf(0.8)) x 0.06 / 3) - 1
        let effect = smallest_effect(0.06, 9, 0.99).unwrap();
        assert!((effect - 0.087_563_824).abs() < 1e-6, "{effect}");
    }
}
