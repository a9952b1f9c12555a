//! Whether averages that were measured in several places are of one figure.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::paired::Center;

/// The error of a place without scatter, as a share of the largest: far below it, and large enough to be divided by.
const EXACT: f64 = 1e-6;

/// How far averages of the same thing, each with its own error, lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Their average with the inverse squares of their errors as weights; of exact ones that differ the plain one.
    pub log: f64,
    /// The chance that they lie at least so far apart if all are of one figure.
    pub p_value: f64,
    /// The share of their scatter that is not explained by their errors, 0 to 1: Higgins' and Thompson's I^2
    /// ("Quantifying heterogeneity in a meta-analysis", Statistics in Medicine 21, 2002).
    pub inconsistency: f64,
}

impl Agreement {
    /// Compares averages; `None` with fewer than two, or with one that is not finite.
    ///
    /// The statistic is Cochran's Q ("The combination of estimates from different experiments", Biometrics 10, 1954): the
    /// sum of squared distances from their weighted average, in units of their errors. The errors come from a few
    /// blocks each, so Q has no chi-squared distribution: with five blocks at each of three places it would call one
    /// figure several in 13% of the cases where 5% are meant. Its p-value is Welch's ("On the comparison of several mean
    /// values: an alternative approach", Biometrika 38, 1951), which is made for that.
    pub fn from_centers(centers: &[Center]) -> Option<Self> {
        let is_usable = |it: &Center| it.log.is_finite() && it.error.is_finite() && it.error >= 0.0;
        if centers.len() < 2 || !centers.iter().all(is_usable) {
            return None;
        }
        let count = centers.len() as f64;
        let plain = centers.iter().map(|it| it.log).sum::<f64>() / count;
        let mut exact = centers.iter().filter(|it| it.error == 0.0);
        let errors = || centers.iter().map(|it| it.error);
        let largest = errors().fold(0.0, f64::max);
        if let Some(first) = exact.next() {
            let is_one = exact.all(|it| (it.log - first.log).abs() < 1e-12);
            // No scatter, as in the simulator, is proof.
            if !is_one || largest == 0.0 {
                let (p_value, inconsistency) = if is_one { (1.0, 0.0) } else { (0.0, 1.0) };
                return Some(Self { log: plain, p_value, inconsistency });
            }
        }
        // An exact place, such as one whose link is paced, is held against the errors of the others.
        let weights: Vec<f64> = errors().map(|error| error.max(EXACT * largest).powi(-2)).collect();
        let sum: f64 = weights.iter().sum();
        let weighted = || centers.iter().zip(&weights);
        let log = weighted().map(|(it, weight)| it.log * weight).sum::<f64>() / sum;
        let q: f64 = weighted().map(|(it, weight)| weight * (it.log - log).powi(2)).sum();
        let uncertainty: f64 = weighted()
            .map(|(it, weight)| (1.0 - weight / sum).powi(2) / it.degrees_of_freedom as f64)
            .sum();
        let spread = count * count - 1.0;
        let f = q / (count - 1.0) / (1.0 + 2.0 * (count - 2.0) / spread * uncertainty);
        let below = spread / (3.0 * uncertainty);
        let p_value = FisherSnedecor::new(count - 1.0, below).ok()?.sf(f);
        // Q may be zero: then it is minus infinity, less than none.
        let inconsistency = (1.0 - (count - 1.0) / q).max(0.0);
        Some(Self { log, p_value, inconsistency })
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::paired::Average;
    use crate::testing::normal;

    fn center(log: f64, error: f64, degrees_of_freedom: usize) -> Center {
        Center { log, error, degrees_of_freedom, runs: degrees_of_freedom + 1, untrimmed: None }
    }

    /// The average of blocks at a place whose scatter is `noise`.
    fn measured(truth: f64, noise: f64, blocks: usize, rng: &mut SeededRng) -> Center {
        let logs: Vec<f64> = (0..blocks).map(|_| truth + noise * normal(rng)).collect();
        Center::from_logs(&logs, Average::Plain).unwrap()
    }

    /// The share of 2000 comparisons of three places that call them different at 5%.
    fn alarms(truths: [f64; 3], blocks: usize) -> f64 {
        const DRAWS: u64 = 2_000;
        let is_alarm = |index: &u64| {
            let mut rng = SeededRng::from_seed_and_index(0xa9_2ee, *index);
            let places = [(truths[0], 0.02), (truths[1], 0.05), (truths[2], 0.03)];
            let centers = places.map(|(truth, noise)| measured(truth, noise, blocks, &mut rng));
            Agreement::from_centers(&centers).unwrap().p_value < 0.05
        };
        (0..DRAWS).filter(is_alarm).count() as f64 / DRAWS as f64
    }

    #[test]
    fn places_differ_as_often_as_stated() {
        for blocks in [5, 10, 30] {
            let share = alarms([-0.1; 3], blocks);
            assert!((0.03..=0.07).contains(&share), "{blocks} blocks: {share}");
        }
    }

    #[test]
    fn place_that_turns_gain_is_seen() {
        assert!(alarms([-0.1, -0.1, 0.1], 5) > 0.8, "{}", alarms([-0.1, -0.1, 0.1], 5));
        assert!(alarms([-0.1, -0.1, 0.1], 10) > 0.99);
    }

    #[test]
    fn two_places_use_welchs_t_test() {
        let found =
            Agreement::from_centers(&[center(0.0, 0.01, 4), center(0.03, 0.02, 8)]).unwrap();
        // Weights 10000 and 2500: the average is 0.006, Q = 0.36 + 1.44 = 1.8.
        assert!((found.log - 0.006).abs() < 1e-12, "{found:?}");
        assert!((found.inconsistency - (1.0 - 1.0 / 1.8)).abs() < 1e-9, "{found:?}");
        // t^2 = 1.8 with 25e-8 / (1e-8 / 4 + 16e-8 / 8) = 11.11 degrees of freedom: two-sided 0.2067.
        assert!((found.p_value - 0.2067).abs() < 5e-4, "{found:?}");
    }

    #[test]
    fn any_difference_counts_without_scatter() {
        let exact = |log| center(log, 0.0, 4);
        let p = |centers: &[_]| Agreement::from_centers(centers).unwrap().p_value;
        assert!((p(&[exact(0.1), exact(0.1)]) - 1.0).abs() < 1e-12);
        assert!(p(&[exact(0.1), exact(0.2), center(0.2, 0.1, 4)]).abs() < 1e-12);
        // Beside a place with scatter it is Student's t of that: 1 with 4 degrees of freedom, two-sided 0.3739 by its closed form.
        assert!((p(&[exact(0.1), center(0.2, 0.1, 4)]) - 0.3739).abs() < 1e-4);
        assert!(p(&[exact(0.1), center(0.6, 0.01, 4), center(0.1, 0.01, 4)]) < 1e-3);
        let log =
            Agreement::from_centers(&[exact(0.1), exact(0.1), center(0.4, 0.1, 4)]).unwrap().log;
        assert!((log - 0.1).abs() < 1e-9, "{log}");
        let same = Agreement::from_centers(&[0.1; 3].map(|log| center(log, 0.1, 4))).unwrap();
        assert!(same.inconsistency <= 0.0 && (same.p_value - 1.0).abs() < 1e-12, "{same:?}");
        assert_eq!(Agreement::from_centers(&[exact(0.1)]), None);
        assert_eq!(Agreement::from_centers(&[exact(0.1), exact(f64::NAN)]), None);
        assert_eq!(Agreement::from_centers(&[exact(0.1), center(0.1, f64::INFINITY, 4)]), None);
    }
}
