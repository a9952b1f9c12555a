//! Two figures and the ratio that is made of them.
//!
//! A report that prints a ratio beside figures of another estimator contradicts itself. So the figures come with the
//! ratio: they are the geometric means of the runs that it is made of, and `other / base` is exactly the ratio.

use crate::estimate::Estimate;
use crate::paired::{self, Average};
use crate::unpaired;

/// Two figures of one estimator, and their ratio with its interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    base: f64,
    other: f64,
    ratio: Estimate,
    used: usize,
}

impl Contrast {
    /// The ratio over pairs `(base, other)`. The figures are the geometric means of the pairs that the average
    /// keeps. `None` without pairs, or where a figure is not above zero.
    pub fn paired(pairs: &[(f64, f64)], average: Average, confidence: f64) -> Option<Self> {
        let logs: Option<Vec<f64>> =
            pairs.iter().map(|&(base, other)| paired::log_ratio(base, other)).collect();
        let logs = logs?;
        let ratio = paired::ratio_of_logs(&logs, average, confidence)?;
        let kept = kept(&logs, average);
        let base = geometric_mean(kept.iter().map(|&pair| pairs[pair].0));
        Some(Self { base, other: base * ratio.value, used: kept.len(), ratio })
    }

    /// The ratio of two groups of runs. The figures are their geometric means, each of the runs that the average
    /// keeps. `None` if a group is empty, or a figure is not above zero.
    pub fn of_groups(
        base: &[f64],
        other: &[f64],
        average: Average,
        confidence: f64,
    ) -> Option<Self> {
        let ratio = unpaired::ratio(base, other, average, confidence)?;
        let is_trimmed = base.len() > 1 && other.len() > 1;
        let average = if is_trimmed { average } else { Average::Plain };
        let kept = kept(base, average);
        let used = kept.len() + other.len() - 2 * average.cut(other.len());
        let base = geometric_mean(kept.into_iter().map(|run| base[run]));
        Some(Self { base, other: base * ratio.value, used, ratio })
    }

    /// The first figure.
    pub const fn base(&self) -> f64 {
        self.base
    }

    /// The second figure.
    pub const fn other(&self) -> f64 {
        self.other
    }

    /// The second over the first, with its interval.
    pub const fn ratio(&self) -> &Estimate {
        &self.ratio
    }

    /// Number of pairs, or of runs of both groups, that the figures are made of. The average leaves out the others.
    pub const fn used(&self) -> usize {
        self.used
    }
}

/// The first and the second figure of pairs: those of [`Contrast::paired`], and where a figure is not above zero the
/// arithmetic means of the pairs that are kept by their differences. `None` without pairs.
pub fn middle(pairs: &[(f64, f64)], average: Average) -> Option<(f64, f64)> {
    if let Some(found) = Contrast::paired(pairs, average, 0.5) {
        return Some((found.base, found.other));
    }
    let differences: Vec<f64> = pairs.iter().map(|(base, other)| other - base).collect();
    let kept = kept(&differences, average);
    let mean = |of: fn(&(f64, f64)) -> f64| {
        kept.iter().map(|&pair| of(&pairs[pair])).sum::<f64>() / kept.len() as f64
    };
    (!kept.is_empty()).then(|| (mean(|pair| pair.0), mean(|pair| pair.1)))
}

/// The (trimmed) arithmetic mean; `None` without values.
pub fn mean(values: &[f64], average: Average) -> Option<f64> {
    let kept = kept(values, average);
    let sum: f64 = kept.iter().map(|&value| values[value]).sum();
    (!kept.is_empty()).then_some(sum / kept.len() as f64)
}

/// The indices of the values that a (trimmed) mean keeps.
fn kept(values: &[f64], average: Average) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let cut = average.cut(values.len());
    order[cut..values.len() - cut].to_vec()
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::testing::normal;

    #[test]
    fn ratio_is_that_of_the_figures_beside_it() {
        let mut rng = SeededRng::from_seed(3);
        for runs in (1..40).chain(1..40) {
            let mut draw = |middle: f64| middle * (0.5 * normal(&mut rng)).exp();
            let pairs: Vec<(f64, f64)> = (0..runs).map(|_| (draw(50.0), draw(80.0))).collect();
            let (base, other): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            for average in [Average::Plain, Average::Trimmed] {
                let of_pairs = Contrast::paired(&pairs, average, 0.99).unwrap();
                let of_groups = Contrast::of_groups(&base, &other, average, 0.99).unwrap();
                let kept = kept(&pairs.iter().map(|(a, b)| b / a).collect::<Vec<_>>(), average);
                check(&of_pairs, &base, &other, kept.iter().map(|&pair| other[pair]).collect());
                let kept = super::kept(&other, average);
                check(&of_groups, &base, &other, kept.iter().map(|&run| other[run]).collect());
            }
        }
    }

    #[track_caller]
    fn check(found: &Contrast, base: &[f64], other: &[f64], of_other: Vec<f64>) {
        let ratio = found.other() / found.base();
        assert!((ratio / found.ratio().value - 1.0).abs() < 1e-12, "{found:?}");
        // The second figure is a mean of its own runs too, not only the first one times the ratio.
        let mean = geometric_mean(of_other.into_iter());
        assert!((found.other() / mean - 1.0).abs() < 1e-9, "{found:?} {mean}");
        for (figure, runs) in [(found.base(), base), (found.other(), other)] {
            let ends = runs.iter().fold((f64::MAX, 0.0_f64), |(l, h), v| (l.min(*v), h.max(*v)));
            assert!(figure >= ends.0 * 0.999 && figure <= ends.1 * 1.001, "{found:?} {ends:?}");
        }
    }

    #[test]
    fn group_tails_are_trimmed_with_enough_runs() {
        // The trimmed mean of ten leaves out two at each end, that of six one.
        let ten = [1e9, 2.0, 2.0, 2.0, 2.0, 8.0, 8.0, 8.0, 8.0, 1e-9];
        let six = [3.0, 1e9, 3.0, 12.0, 12.0, 1e-9];
        let found = Contrast::of_groups(&ten, &six, Average::Trimmed, 0.9).unwrap();
        assert_eq!(found.used(), 6 + 4);
        assert!((found.base() / 4.0 - 1.0).abs() < 1e-12, "{found:?}");
        assert!((found.other() / 6.0 - 1.0).abs() < 1e-12, "{found:?}");
        // One run has no scatter to be trimmed by: all runs of the other group count.
        let three = [1.0, 10.0, 100.0, 1e3, 1e4, 1e12];
        let mean = 10_f64.powf(22.0 / 6.0);
        for (base, other) in [(&three[..], &[5.0][..]), (&[5.0], &three)] {
            let found = Contrast::of_groups(base, other, Average::Trimmed, 0.9).unwrap();
            assert_eq!((found.used(), found.ratio().confidence), (7, 0.0));
            let (of_base, of_other) = if base.len() == 1 { (5.0, mean) } else { (mean, 5.0) };
            assert!((found.base() / of_base - 1.0).abs() < 1e-12, "{found:?}");
            assert!((found.other() / of_other - 1.0).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn pairs_count_that_the_average_keeps() {
        let pairs = [(1.0, 2.0); 10];
        let used = |average| Contrast::paired(&pairs, average, 0.9).unwrap().used();
        assert_eq!((used(Average::Plain), used(Average::Trimmed)), (10, 6));
    }

    #[test]
    fn zero_pairs_are_kept_by_difference() {
        // Differences 1, 2, 3, 4, 5 and 90, of figures whose sums and ratios have other orders.
        let pairs =
            [(0.0, 1.0), (50.0, 52.0), (20.0, 23.0), (7.0, 11.0), (30.0, 35.0), (1.0, 91.0)];
        let (base, other) = middle(&pairs, Average::Trimmed).unwrap();
        assert!((base - 107.0 / 4.0).abs() < 1e-12 && (other - 121.0 / 4.0).abs() < 1e-12);
    }

    #[test]
    fn mean_leaves_out_what_the_average_cuts() {
        let values = [9.0, 1.0, 2.0, 3.0, 4.0, -100.0];
        assert_eq!(mean(&values, Average::Trimmed), Some(2.5));
        assert_eq!(mean(&values, Average::Plain), Some(-81.0 / 6.0));
        assert_eq!(mean(&[], Average::Plain), None);
    }

    #[test]
    fn zero_figure_has_middle_without_ratio() {
        assert_eq!(Contrast::paired(&[(0.0, 1.0), (1.0, 2.0)], Average::Plain, 0.99), None);
        assert_eq!(middle(&[(0.0, 1.0), (1.0, 4.0)], Average::Plain), Some((0.5, 2.5)));
        assert_eq!(middle(&[], Average::Trimmed), None);
        assert_eq!(Contrast::of_groups(&[], &[1.0], Average::Plain, 0.99), None);
    }
}
