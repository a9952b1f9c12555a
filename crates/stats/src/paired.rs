//! Differences between two settings, paired within blocks, as a ratio.
//!
//! Runs of one block share the state of the machine, so their ratio is steadier than either figure.
//! On a logarithmic scale half and double are equally far from 1, and several workloads can be
//! averaged.

use std::collections::BTreeMap;

use latput_units::IntoMap;

use crate::estimate::{Estimate, Method};
use crate::mean::{TTest, are_usable};
use crate::untrimmed::{ENOUGH, MeanTests, RankTest, Untrimmed};

/// The natural logarithm of `other / base`; `None` unless both are finite and above zero.
pub fn log_ratio(base: f64, other: f64) -> Option<f64> {
    let log = (other / base).ln();
    // The ratio of two figures below zero would have one. All others have one that is not finite.
    (base.is_sign_positive() && log.is_finite()).then_some(log)
}

/// The average of the blocks' logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The plain mean: for rates and shares.
    Plain,
    /// The mean without the smallest and largest fifth: for tails, where one run in fifteen is an
    /// outlier. With fewer than six blocks nothing is trimmed: the lost degrees of freedom would
    /// widen the interval more than an outlier does. With fewer than 20 a claim must also be proven
    /// without trimming ([`crate::untrimmed`]).
    Trimmed,
}

/// A trimmed mean leaves out one block at each end for every so many blocks.
const BLOCKS_PER_CUT: usize = 5;
/// Fewest blocks that are trimmed.
const FEWEST_TRIMMED: usize = 6;

impl Average {
    /// The number of values that are left out at each end.
    pub(crate) const fn cut(self, values: usize) -> usize {
        match self {
            Self::Trimmed if values >= FEWEST_TRIMMED => values / BLOCKS_PER_CUT,
            _ => 0,
        }
    }
}

/// The ratio `other / base` of a rate over pairs `(base, other)`: geometric mean, with Student's t
/// interval on the logarithms. `None` without pairs, or if a figure is not above zero (it has no
/// ratio, and leaving it out would bias the result).
pub fn ratio(pairs: &[(f64, f64)], confidence: f64) -> Option<Estimate> {
    let logs: Option<Vec<f64>> =
        pairs.iter().map(|&(base, other)| log_ratio(base, other)).collect();
    ratio_of_logs(&logs?, Average::Plain, confidence)
}

/// Like [`ratio`], from logarithms of ratios, one for each block.
pub fn ratio_of_logs(logs: &[f64], average: Average, confidence: f64) -> Option<Estimate> {
    if !are_usable(logs, confidence) {
        return None;
    }
    if let [only] = logs {
        return Some(Estimate::single(only.exp()));
    }
    Center::from_logs(logs, average)?.ratio(confidence)
}

/// [`Center::p_value`] of logarithms of ratios, one for each block.
pub fn p_value(logs: &[f64], average: Average) -> Option<f64> {
    Center::from_logs(logs, average).map(|center| center.p_value())
}

/// [`Center::p_below`] of logarithms of ratios, one for each block, or of differences.
pub fn p_below(values: &[f64], average: Average) -> Option<f64> {
    Center::from_logs(values, average).map(|center| center.p_below())
}

/// An average of logarithms of ratios, or a sum of such averages, with its standard error: the
/// basis of tests and intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Center {
    /// The average.
    pub log: f64,
    /// Its standard error.
    pub error: f64,
    /// Degrees of freedom of Student's t.
    pub degrees_of_freedom: usize,
    /// Number of blocks.
    pub runs: usize,
    /// The tests that must prove a claim too, where few blocks were trimmed.
    pub untrimmed: Option<Untrimmed>,
}

impl Center {
    /// Averages the logarithms; `None` with fewer than two of them, or with one that is not finite.
    pub fn from_logs(logs: &[f64], average: Average) -> Option<Self> {
        Self::of_sum(&[(0..).zip(logs.iter().copied()).into_map()], average)
    }

    /// The sum of the averages of `parts`, each by block. Each part is trimmed by itself, because
    /// an outlier in one workload does not concern the others. Blocks that only some parts have
    /// count in those. `None` without parts, if one has fewer than two blocks, or with a logarithm
    /// that is not finite.
    ///
    /// Where few blocks are trimmed, a claim also needs a test of all blocks: the t test of the plain
    /// means, or the sign test of the sums over the blocks that all parts have.
    pub fn of_sum(parts: &[BTreeMap<u32, f64>], average: Average) -> Option<Self> {
        let center = Self::of_averages(parts, average)?;
        let are_few_trimmed =
            |part: &BTreeMap<u32, f64>| part.len() < ENOUGH && average.cut(part.len()) > 0;
        if !parts.iter().any(are_few_trimmed) {
            return Some(center);
        }
        let plain = Self::of_averages(parts, Average::Plain)?.student();
        let signs = RankTest::of_signs(sum_common_blocks(parts));
        Some(Self { untrimmed: Some(Untrimmed::new(plain, signs)), ..center })
    }

    /// The trimmed mean's error comes from the winsorized sum of squares ("Less vulnerable
    /// confidence and significance procedures for location based on a single sample", Sankhya A 25,
    /// 1963); without trimming it is the plain mean's. The winsorized values of several parts are
    /// added by block before they are squared, so the error includes the correlation of the parts.
    /// The degrees of freedom are Satterthwaite's for fully correlated variances, which are the
    /// fewest.
    fn of_averages(parts: &[BTreeMap<u32, f64>], average: Average) -> Option<Self> {
        let mut of_blocks: BTreeMap<u32, f64> = BTreeMap::new();
        let mut log = 0.0;
        let mut variances = 0.0;
        let mut by_freedom = 0.0;
        let mut fewest = usize::MAX;
        let mut most = 0;
        for part in parts {
            if part.len() < 2 || !part.values().all(|log| log.is_finite()) {
                return None;
            }
            let cut = average.cut(part.len());
            let mut sorted: Vec<f64> = part.values().copied().collect();
            sorted.sort_by(f64::total_cmp);
            let kept = &sorted[cut..sorted.len() - cut];
            let freedom = kept.len() - 1;
            log += kept.iter().sum::<f64>() / kept.len() as f64;
            let winsorized = |log: &f64| log.clamp(kept[0], kept[freedom]);
            let middle = part.values().map(winsorized).sum::<f64>() / part.len() as f64;
            let scale = ((kept.len() * freedom) as f64).sqrt();
            let mut variance = 0.0;
            for (block, log) in part {
                let off = (winsorized(log) - middle) / scale;
                variance += off * off;
                *of_blocks.entry(*block).or_default() += off;
            }
            variances += variance;
            by_freedom += variance / (freedom as f64).sqrt();
            (fewest, most) = (fewest.min(freedom), most.max(freedom));
        }
        let freedom = (variances / by_freedom).powi(2);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and the number of blocks"
        )]
        let degrees_of_freedom = if freedom.is_finite() {
            ((freedom + 1e-6) as usize).clamp(fewest, most)
        } else {
            fewest
        };
        let error = of_blocks.values().map(|off| off * off).sum::<f64>().sqrt();
        (!parts.is_empty()).then_some(Self {
            log,
            error,
            degrees_of_freedom,
            runs: of_blocks.len(),
            untrimmed: None,
        })
    }

    /// Student's t test of this average alone.
    pub(crate) const fn student(&self) -> TTest {
        TTest { mean: self.log, error: self.error, degrees_of_freedom: self.degrees_of_freedom }
    }

    const fn tests(&self) -> MeanTests<'_> {
        MeanTests { student: self.student(), untrimmed: self.untrimmed.as_ref() }
    }

    /// The ratio `exp(log)` with its interval; `None` unless the confidence is between 0 and 1.
    pub fn ratio(&self, confidence: f64) -> Option<Estimate> {
        if !are_usable(&[self.log, self.error], confidence) {
            return None;
        }
        let (low, high) = self.tests().bounds(confidence);
        Some(Estimate {
            value: self.log.exp(),
            low: low.exp(),
            high: high.exp(),
            confidence,
            method: Method::PairedLogRatio,
            runs: self.runs,
        })
    }

    /// The chance of an average at least this far from zero without a difference (two-sided paired
    /// t test). It is below `1 - confidence` exactly if the interval of [`Self::ratio`] excludes 1.
    pub fn p_value(&self) -> f64 {
        self.tests().p_value()
    }

    /// The chance of an average at least this far below zero if the true one is not below it
    /// (one-sided paired t test). It is below `level` exactly if the interval of [`Self::ratio`] at
    /// the confidence `1 - 2 * level` lies below 1.
    pub fn p_below(&self) -> f64 {
        self.tests().p_below()
    }

    /// Like [`Self::p_below`], for an average above zero.
    pub fn p_above(&self) -> f64 {
        self.tests().p_above()
    }
}

/// The sums of the parts' logarithms in each block that all of them have.
fn sum_common_blocks(parts: &[BTreeMap<u32, f64>]) -> Vec<f64> {
    let [first, others @ ..] = parts else { return Vec::new() };
    let sum = |(block, log): (&u32, &f64)| {
        others.iter().try_fold(*log, |sum, part| Some(sum + part.get(block)?))
    };
    first.iter().filter_map(sum).collect()
}

/// One comparison of several after Holm's correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Corrected {
    /// One minus the level of this comparison: its interval at this confidence excludes 1 exactly
    /// if its p-value is below the level.
    pub confidence: f64,
    /// Whether the difference is proven.
    pub proven: bool,
}

/// Holm's correction (Scandinavian Journal of Statistics 6, 1979): the chance that any comparison
/// without a difference is called proven stays at `1 - confidence`. `None` is a comparison that
/// could not be made; it is not proven, and does not count.
///
/// The smallest of m p-values is compared with `alpha / m`, the next with `alpha / (m - 1)` and so
/// on, up to the first that fails.
pub fn holm(p_values: &[Option<f64>], confidence: f64) -> Vec<Corrected> {
    let alpha = 1.0 - confidence;
    let mut made: Vec<(usize, f64)> =
        p_values.iter().enumerate().filter_map(|(index, p)| Some((index, (*p)?))).collect();
    made.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut corrected = vec![Corrected { confidence, proven: false }; p_values.len()];
    let mut all_proven = true;
    for (rank, &(index, p)) in made.iter().enumerate() {
        let level = alpha / (made.len() - rank) as f64;
        all_proven &= p < level;
        corrected[index] = Corrected { confidence: 1.0 - level, proven: all_proven };
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_coverage, normal};

    #[test]
    fn ratio_is_the_geometric_mean_of_the_pairs() {
        let estimate = ratio(&[(10.0, 20.0), (10.0, 5.0), (7.0, 7.0)], 0.95).unwrap();
        assert!((estimate.value - 1.0).abs() < 1e-12, "{estimate:?}");
        // ln 2 * t(0.975, 2) / sqrt(3): sd of {ln 2, -ln 2, 0} is ln 2.
        let half_width = 4.302_653 * 2_f64.ln() / 3_f64.sqrt();
        assert!((estimate.high.ln() - half_width).abs() < 1e-6, "{estimate:?}");
        assert!((estimate.low.ln() + half_width).abs() < 1e-6, "{estimate:?}");
        assert_eq!((estimate.method, estimate.runs), (Method::PairedLogRatio, 3));
    }

    #[test]
    fn what_has_no_ratio_has_no_estimate() {
        let none = [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for bad in none {
            for other in none.into_iter().chain([1.0]) {
                for pair in [(bad, other), (other, bad)] {
                    assert_eq!(ratio(&[(1.0, 2.0), pair], 0.95), None, "{pair:?}");
                }
            }
        }
        assert_eq!(ratio(&[], 0.95), None);
        assert_eq!(ratio(&[(1.0, 2.0)], 0.95).unwrap(), Estimate::single(2.0));
    }

    #[test]
    fn p_value_and_the_interval_agree() {
        let mut rng = latput_units::SeededRng::from_seed(5);
        for average in [Average::Plain, Average::Trimmed].into_iter().cycle().take(600) {
            let logs: Vec<f64> = (0..7).map(|_| 0.1 + 0.1 * normal(&mut rng)).collect();
            let excludes = ratio_of_logs(&logs, average, 0.95).unwrap().excludes(1.0);
            assert_eq!(p_value(&logs, average).unwrap() < 0.05, excludes, "{logs:?}");
        }
        assert_eq!(p_value(&[0.3], Average::Plain), None);
        assert_eq!(p_value(&[0.3, f64::NAN], Average::Plain), None);
        assert_eq!(p_value(&[0.0, 0.0], Average::Plain), Some(1.0));
        assert_eq!(p_value(&[0.5, 0.5], Average::Trimmed), Some(0.0));
    }

    #[test]
    fn one_sided_p_value_equals_scipys() {
        // scipy 1.17: `ttest_1samp(values, 0, alternative="less")`, of the values and of their negatives.
        let values = [-0.12, -0.05, 0.03, -0.2, -0.08];
        for (sign, expected) in [(1.0, 0.045_864_248_731_334), (-1.0, 0.954_135_751_268_666)] {
            let found = p_below(&values.map(|value| sign * value), Average::Plain).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found} and not {expected}");
        }
        // `t.sf(3, 4)`
        let tail = 0.019_970_984_035_859;
        for (log, p) in [(0.3, tail), (-0.3, 1.0 - tail), (0.0, 0.5)] {
            let center =
                Center { log, error: 0.1, degrees_of_freedom: 4, runs: 5, untrimmed: None };
            assert!((center.p_above() - p).abs() < 1e-9, "{center:?}");
            assert!((center.p_below() - (1.0 - p)).abs() < 1e-9, "{center:?}");
        }
        // Without scatter the sign is all there is.
        assert_eq!(p_below(&[-0.5; 3], Average::Plain), Some(0.0));
        assert_eq!(p_below(&[0.5; 3], Average::Plain), Some(1.0));
        assert_eq!(p_below(&[0.0; 3], Average::Plain), Some(1.0));
        assert_eq!(p_below(&[-0.1], Average::Plain), None);
        assert_eq!(p_below(&[-0.1, f64::NAN], Average::Plain), None);
    }

    #[test]
    fn odd_block_does_not_move_mean() {
        let logs = [2.0_f64, 2.1, 1.9, 2.0, 10.0, 2.0].map(f64::ln);
        let trimmed = ratio_of_logs(&logs, Average::Trimmed, 0.95).unwrap();
        // By hand: kept are ln 2.0 three times and ln 2.1; winsorized that is ln 2.0 four times and
        // ln 2.1 twice, so squares = 6 * 2/3 * 1/3 * (ln 1.05)^2, and t(0.975, 3) = 3.182.
        let value = 2.0 * 1.05_f64.powf(0.25);
        let error = (4.0_f64 / 3.0 / 4.0 / 3.0).sqrt() * 1.05_f64.ln();
        assert!((trimmed.value - value).abs() < 1e-9, "{trimmed:?}");
        assert!(!ratio_of_logs(&logs, Average::Plain, 0.95).unwrap().excludes(1.5));
        let found = Center::from_logs(&logs, Average::Trimmed).unwrap();
        assert!((found.error - error).abs() < 1e-9 && found.degrees_of_freedom == 3, "{found:?}");
        let high = found.student().bounds(0.95).1;
        assert!((high - value.ln() - 3.182_446 * error).abs() < 1e-6, "{found:?}");
        assert_eq!(Center::from_logs(&logs[..1], Average::Plain), None);
        // Two are enough: sd is sqrt(1/2), divided by sqrt(2).
        let found = Center::from_logs(&[0.0, 1.0], Average::Plain).unwrap();
        assert!((found.error - 0.5).abs() < 1e-12 && found.degrees_of_freedom == 1, "{found:?}");
        let five = &logs[1..];
        assert_eq!(
            ratio_of_logs(five, Average::Trimmed, 0.9),
            ratio_of_logs(five, Average::Plain, 0.9)
        );
    }

    #[test]
    fn fifth_is_cut_at_each_end() {
        // scipy 1.17: `trim_mean` and `mstats.winsorize` at 0.2, and `t.ppf` of the six and eight kept.
        let ratios = [1.1, 1.2, 1.3, 1.15, 1.25, 0.6, 2.5, 1.18, 1.22, 3.0, 0.5, 1.17];
        for (blocks, expected) in [
            (8, [1.194_908_15, 1.099_287_22, 1.298_846_62]),
            (12, [1.194_865_73, 1.116_231_25, 1.279_039_72]),
        ] {
            let logs: Vec<f64> = ratios[..blocks].iter().map(|ratio: &f64| ratio.ln()).collect();
            let found = Center::from_logs(&logs, Average::Trimmed).unwrap().student();
            let (low, high) = found.bounds(0.95);
            for (found, expected) in [found.mean, low, high].iter().zip(expected) {
                let found = found.exp();
                assert!((found - expected).abs() < 1e-7, "{blocks}: {found} and not {expected}");
            }
        }
        let logs: Vec<f64> = ratios[..8].iter().map(|ratio: &f64| ratio.ln()).collect();
        let p_value = Center::from_logs(&logs, Average::Trimmed).unwrap().student().p_value();
        assert!((p_value - 0.002_741_171).abs() < 1e-8, "{p_value}");
    }

    #[test]
    fn holm_stops_at_the_first_that_fails() {
        // The family of 5% over four: 1.25%, 1.67%, 2.5%, 5%.
        check(&[Some(0.012), Some(0.016), Some(0.026), Some(0.04)], &[true, true, false, false]);
        check(&[Some(0.04), Some(0.013), Some(0.013), Some(0.013)], &[false; 4]);
        check(&[Some(0.04), Some(0.001), Some(0.02), Some(0.002)], &[true; 4]);
        check(&[None, Some(0.049), None], &[false, true, false]);
        check(&[], &[]);
        // At its level a difference is not yet proven: the interval ends at 1.
        assert!(!holm(&[Some(0.25)], 0.75)[0].proven && holm(&[Some(0.249)], 0.75)[0].proven);
        let confidences = holm(&[Some(0.5), Some(0.001)], 0.95);
        assert!((confidences[1].confidence - 0.975).abs() < 1e-12);
        assert!((confidences[0].confidence - 0.95).abs() < 1e-12);
    }

    #[test]
    fn holm_bounds_chance_of_false_claim() {
        let mut rng = latput_units::SeededRng::from_seed(11);
        let claims = (0..2_000)
            .filter(|_| {
                let p: Vec<Option<f64>> = (0..6)
                    .map(|_| {
                        p_value(
                            &(0..5).map(|_| normal(&mut rng)).collect::<Vec<_>>(),
                            Average::Plain,
                        )
                    })
                    .collect();
                holm(&p, 0.95).iter().any(|comparison| comparison.proven)
            })
            .count();
        assert!((60..=130).contains(&claims), "{claims} of 2000 families at 5%");
    }

    #[test]
    fn paired_ratio_interval_covers() {
        assert_coverage(0.95, 1.3, |rng| {
            let pairs: Vec<(f64, f64)> = (0..6)
                .map(|_| {
                    let block = (0.5 * normal(rng)).exp();
                    (block * (0.05 * normal(rng)).exp(), 1.3 * block * (0.05 * normal(rng)).exp())
                })
                .collect();
            ratio(&pairs, 0.95)
        });
    }

    #[test]
    fn trimmed_ratio_interval_covers_with_outliers() {
        for outliers in [0.0, 1.0 / 15.0] {
            assert_coverage(0.95, 1.3, |rng| {
                let mut run = || {
                    let is_odd = rng.next_uniform() < outliers;
                    let odd = if is_odd { 1.1 + 3.9 * rng.next_uniform() } else { 1.0 };
                    odd * (0.02 * normal(rng)).exp()
                };
                let logs: Vec<f64> = (0..10).map(|_| (1.3 * run() / run()).ln()).collect();
                student_alone(Center::from_logs(&logs, Average::Trimmed)?)
            });
        }
    }

    /// The interval of Student's t alone.
    fn student_alone(center: Center) -> Option<Estimate> {
        Center { untrimmed: None, ..center }.ratio(0.95)
    }

    #[test]
    fn few_pairs_with_outlier_prove_nothing() {
        let pairs: [f64; 7] = [1.30, 1.34, 1.31, 1.36, 1.33, 45.0, 1.29];
        let logs = pairs.map(f64::ln);
        let p_value = p_value(&logs, Average::Trimmed).unwrap();
        // All seven are above 1, which has a chance of 2 in 2^7.
        assert!((p_value - 0.015_625).abs() < 1e-12, "{p_value}");
        let found = ratio_of_logs(&logs, Average::Trimmed, 0.99).unwrap();
        assert!(!found.excludes(1.0) && found.value < 1.4, "{found:?}");
        assert!(ratio_of_logs(&logs, Average::Trimmed, 0.98).unwrap().excludes(1.0));
        // Without the outlier the plain mean proves it too.
        let steady = pairs.map(|pair| pair.min(1.37).ln());
        assert!(ratio_of_logs(&steady, Average::Trimmed, 0.99).unwrap().excludes(1.0));
        // Twenty pairs decide by the trimmed mean.
        let many: Vec<f64> = logs.iter().copied().cycle().take(20).collect();
        assert_eq!(Center::from_logs(&many, Average::Trimmed).unwrap().untrimmed, None);
        assert!(Center::from_logs(&many[..19], Average::Trimmed).unwrap().untrimmed.is_some());
        assert_eq!(Center::from_logs(&logs[..5], Average::Trimmed).unwrap().untrimmed, None);
    }

    #[test]
    fn signs_of_parts_are_those_of_sums() {
        let part =
            |logs: [f64; 7], from: u32| -> BTreeMap<u32, f64> { (from..).zip(logs).collect() };
        let first = part([0.1, 0.2, -0.1, 0.1, 0.2, 0.1, 9.0], 0);
        let second = part([-0.2, 0.2, 0.2, 0.1, -0.1, -0.3, 0.1], 1);
        let sums = sum_common_blocks(&[first.clone(), second.clone()]);
        let expected = [0.0, 0.1, 0.3, 0.3, 0.0, 8.7];
        assert_eq!(sums.len(), expected.len());
        assert!(sums.iter().zip(expected).all(|(sum, expected)| (sum - expected).abs() < 1e-12));
        assert!(Center::of_sum(&[first, second], Average::Trimmed).unwrap().untrimmed.is_some());
    }

    #[test]
    fn no_difference_is_rarely_claimed() {
        type Draw = fn(&mut latput_units::SeededRng) -> f64;
        // Heavy tails, and two likely values: one of a pair waits for the CPU or not.
        let outliers: Draw = |rng| normal(rng) * if rng.next_uniform() < 0.1 { 30.0 } else { 1.0 };
        let waits: Draw = |rng| (rng.next_uniform() - 0.5).signum() + 0.1 * normal(rng);
        for (draw, most) in [(outliers, 0.015), (waits, 0.032)] {
            for pairs in [7, 10, 13] {
                let mut rng = latput_units::SeededRng::from_seed(29);
                let is_claimed = |_: &u32| {
                    let logs: Vec<f64> = (0..pairs).map(|_| draw(&mut rng)).collect();
                    p_value(&logs, Average::Trimmed).unwrap() < 0.01
                };
                let claimed = (0..4_000).filter(is_claimed).count() as f64 / 4_000.0;
                assert!(claimed <= most, "{pairs} pairs: {claimed} at 1%");
            }
        }
    }

    #[test]
    fn sum_of_parts_has_fewest_degrees() {
        let part = |blocks: u32, by: f64| -> BTreeMap<u32, f64> {
            let log = |block: u32| by * f64::from(block * 7 % 11);
            (0..blocks).map(|block| (block, log(block))).collect()
        };
        let of = |parts: &[BTreeMap<u32, f64>]| Center::of_sum(parts, Average::Trimmed).unwrap();
        // Equal parts are one with twice the size; opposite ones leave nothing.
        let (once, twice) = (of(&[part(12, 0.1)]), of(&[part(12, 0.2)]));
        let both = of(&[part(12, 0.1), part(12, 0.1)]);
        assert!((both.log - twice.log).abs() < 1e-12 && (both.error - twice.error).abs() < 1e-12);
        assert_eq!(both.degrees_of_freedom, once.degrees_of_freedom);
        assert!(of(&[part(12, 0.1), part(12, -0.1)]).error < 1e-12);
        // Blocks apart from each other: the squares of the errors add up.
        let later = part(12, 0.1).into_iter().map(|(block, log)| (block + 12, log)).collect();
        let apart = of(&[part(12, 0.1), later]);
        assert!((apart.error / once.error - 2.0_f64.sqrt()).abs() < 1e-12, "{apart:?}");
        assert_eq!((apart.runs, apart.degrees_of_freedom), (24, 7));
        // A part that hardly scatters hardly counts for the degrees of freedom either: 40 blocks keep 24.
        assert_eq!(of(&[part(40, 0.1), part(6, 1e-9)]).degrees_of_freedom, 23);
        assert_eq!(Center::of_sum(&[part(12, 0.1), part(1, 0.1)], Average::Trimmed), None);
        assert_eq!(Center::of_sum(&[], Average::Trimmed), None);
        assert_eq!([0.0, 1.0, 99.0].map(|confidence| once.ratio(confidence)), [None, None, None]);
    }

    #[test]
    fn sum_interval_covers_correlated_parts() {
        for in_common in [0.0, 1.0] {
            for blocks in [[8, 8], [10, 40]] {
                assert_coverage(0.95, 1.3, |rng| {
                    let shared: Vec<f64> = (0..40).map(|_| in_common * normal(rng)).collect();
                    let mut part = |blocks: u32| {
                        let mut log = |block: u32| {
                            let is_odd = rng.next_uniform() < 1.0 / 15.0;
                            let own = normal(rng) * if is_odd { 10.0 } else { 1.0 };
                            1.3_f64.ln() / 2.0 + 0.02 * (own + shared[block as usize])
                        };
                        (0..blocks).map(|block| (block, log(block))).collect()
                    };
                    let parts = blocks.map(&mut part);
                    student_alone(Center::of_sum(&parts, Average::Trimmed)?)
                });
            }
        }
    }

    #[test]
    fn outlier_in_one_part_hides_nothing() {
        let mut rng = latput_units::SeededRng::from_seed(3);
        let mut proven = [0, 0];
        for _ in 0..200 {
            let mut part = || -> BTreeMap<u32, f64> {
                let mut log = || {
                    let odd = if rng.next_uniform() < 0.15 { 3.0 * normal(&mut rng) } else { 0.0 };
                    -0.02 + 0.02 * normal(&mut rng) + odd
                };
                (0..40).map(|block| (block, log())).collect()
            };
            let parts = [part(), part(), part()];
            let sums: Vec<f64> =
                (0..40).map(|block| parts.iter().map(|part| part[&block]).sum()).collect();
            let centers = [
                Center::of_sum(&parts, Average::Trimmed).unwrap(),
                Center::from_logs(&sums, Average::Trimmed).unwrap(),
            ];
            for (count, center) in proven.iter_mut().zip(centers) {
                *count += u32::from(center.p_below() < 0.0025);
            }
        }
        assert!(proven[0] > 190 && proven[1] < 100, "{proven:?} of 200");
    }

    #[track_caller]
    fn check(p_values: &[Option<f64>], proven: &[bool]) {
        let found: Vec<bool> = holm(p_values, 0.95).iter().map(|c| c.proven).collect();
        assert_eq!(found, proven);
    }
}
