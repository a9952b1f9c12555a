//! The second judgement of a trimmed mean of few values, by tests that leave no value out.
//!
//! Trimming leaves out the values that show that the others are not normal. In seven pairs of which one is 45 times off, the
//! five that are left may lie so close together that Student's t is sure at 99%. A sign test of all seven never is: that all
//! have the same sign has a chance of 1.6%. So with few values a trimmed mean proves only what the plain mean proves too, or
//! a rank test that is exact for any distribution. ADR 023 has the figures.

use crate::mean::TTest;

/// A trimmed mean of so many values decides alone.
pub const ENOUGH: usize = 20;

/// The tests that leave no value out.
#[derive(Clone, Debug, PartialEq)]
pub struct Untrimmed {
    plain: TTest,
    ranks: RankTest,
}

impl Untrimmed {
    pub(crate) const fn new(plain: TTest, ranks: RankTest) -> Self {
        Self { plain, ranks }
    }

    /// The standard error of the plain mean, and its degrees of freedom.
    pub const fn plain_error(&self) -> (f64, usize) {
        (self.plain.error, self.plain.degrees_of_freedom)
    }

    /// The interval of the rank test at this confidence; infinite where the values are too few for it.
    pub fn rank_bounds(&self, confidence: f64) -> (f64, f64) {
        self.ranks.bounds(confidence)
    }

    fn p_below(&self) -> f64 {
        self.plain.p_below().min(self.ranks.p_below())
    }

    fn p_above(&self) -> f64 {
        self.plain.p_above().min(self.ranks.p_above())
    }

    /// The nearer bound of both tests on each side.
    fn bounds(&self, confidence: f64) -> (f64, f64) {
        let (plain, ranks) = (self.plain.bounds(confidence), self.ranks.bounds(confidence));
        (plain.0.max(ranks.0), plain.1.min(ranks.1))
    }
}

/// The tests of a mean: Student's t, and where few values were trimmed those of all values. Both must prove a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanTests<'a> {
    pub(crate) student: TTest,
    pub(crate) untrimmed: Option<&'a Untrimmed>,
}

impl MeanTests<'_> {
    /// The chance of a mean at least this far from zero without a difference (two-sided).
    pub(crate) fn p_value(&self) -> f64 {
        match self.untrimmed {
            None => self.student.p_value(),
            Some(_) => (2.0 * self.p_below().min(self.p_above())).min(1.0),
        }
    }

    pub(crate) fn p_below(&self) -> f64 {
        let own = self.student.p_below();
        self.untrimmed.map_or(own, |all| own.max(all.p_below()))
    }

    pub(crate) fn p_above(&self) -> f64 {
        let own = self.student.p_above();
        self.untrimmed.map_or(own, |all| own.max(all.p_above()))
    }

    /// The interval, which excludes 0 exactly where the p-value is below one minus the confidence.
    pub(crate) fn bounds(&self, confidence: f64) -> (f64, f64) {
        let (low, high) = self.student.bounds(confidence);
        let Some(all) = self.untrimmed else { return (low, high) };
        let (lowest, highest) = all.bounds(confidence);
        (low.min(lowest), high.max(highest))
    }
}

/// A test by the number of values above zero, whose distribution without a difference is known exactly.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankTest {
    /// Ascending.
    values: Vec<f64>,
    /// The chance that at most so many values are above zero, by their number from none to all.
    chances: Vec<f64>,
}

impl RankTest {
    /// The sign test: each value is as often above zero as below.
    pub(crate) fn of_signs(values: Vec<f64>) -> Self {
        let mut ways = vec![1.0];
        for _ in &values {
            let carried = ways.iter().copied().chain([0.0]);
            let shifted = [0.0].into_iter().chain(ways.iter().copied());
            ways = carried.zip(shifted).map(|(a, b)| a + b).collect();
        }
        Self::new(values, &ways)
    }

    /// The rank sum test of two groups: all differences `other - base` (Mann and Whitney, "On a test of whether one of two
    /// random variables is stochastically larger than the other", Annals of Mathematical Statistics 18, 1947).
    pub(crate) fn of_groups(base: &[f64], other: &[f64]) -> Self {
        let differences = other.iter().flat_map(|other| base.iter().map(move |base| other - base));
        let differences: Vec<f64> = differences.collect();
        // The coefficients of the Gaussian binomial, factor by factor.
        let mut ways = vec![0.0; differences.len() + 1];
        ways[0] = 1.0;
        for size in 1..=base.len() {
            for above in (other.len() + size..ways.len()).rev() {
                ways[above] -= ways[above - other.len() - size];
            }
            for above in size..ways.len() {
                ways[above] += ways[above - size];
            }
        }
        Self::new(differences, &ways)
    }

    /// `ways` says how many of all orders have so many values above zero.
    fn new(mut values: Vec<f64>, ways: &[f64]) -> Self {
        values.sort_by(f64::total_cmp);
        let total: f64 = ways.iter().sum();
        let mut below = 0.0;
        let chances = ways.iter().map(|ways| {
            below += ways;
            below / total
        });
        Self { chances: chances.collect(), values }
    }

    /// A value of zero speaks against both claims.
    fn p_below(&self) -> f64 {
        self.chances[self.values.iter().filter(|value| **value >= 0.0).count()]
    }

    fn p_above(&self) -> f64 {
        self.chances[self.values.iter().filter(|value| **value <= 0.0).count()]
    }

    fn bounds(&self, confidence: f64) -> (f64, f64) {
        // One claim may have so many values against it.
        let allowed =
            self.chances.iter().filter(|chance| 2.0 * **chance < 1.0 - confidence).count();
        match allowed.checked_sub(1) {
            Some(against) if against < self.values.len() => {
                (self.values[against], self.values[self.values.len() - 1 - against])
            }
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        let of_signs = RankTest::of_signs(vec![1.0; 10]);
        assert_eq!(of_signs.chances.len(), 11);
        assert!((of_signs.chances[0] - 1.0 / 1024.0).abs() < 1e-15);
        assert!((of_signs.chances[2] - 56.0 / 1024.0).abs() < 1e-15);
        // Mann and Whitney, table I, sizes 3 and 4: U of 0 to 3 have 1, 2, 4 and 7 of 35 orders.
        let of_groups = RankTest::of_groups(&[0.0; 3], &[1.0; 4]);
        for (above, ways) in [1.0, 2.0, 4.0, 7.0].into_iter().enumerate() {
            assert!((of_groups.chances[above] - ways / 35.0).abs() < 1e-12, "{above}");
        }
        assert!((of_groups.chances[12] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn too_few_values_have_no_bounds() {
        let signs = RankTest::of_signs(vec![3.0, 1.0, 2.0, 5.0, 4.0]);
        assert_eq!(signs.bounds(0.93), (1.0, 5.0), "2 / 2^5 is 6.25%");
        assert_eq!(signs.bounds(0.95), (f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(signs.bounds(0.5), (2.0, 4.0), "12 / 2^5 is 37.5%");
        let none = RankTest::of_signs(Vec::new());
        assert_eq!(none.bounds(0.5), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(none.p_below() >= 1.0 && none.p_above() >= 1.0);
    }

    #[test]
    fn zero_speaks_against_both_claims() {
        let signs = RankTest::of_signs(vec![0.0, 1.0, 1.0, 1.0]);
        assert!((signs.p_above() - 5.0 / 16.0).abs() < 1e-12);
        assert!(signs.p_below() >= 1.0);
    }
}
