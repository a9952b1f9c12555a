//! Non-negative least squares: the costs that explain a sum best, none of them below zero.

use crate::linear;

/// A gradient below this share of its column's product with the target counts as zero.
const FLAT: f64 = 1e-10;

/// A least squares problem by its products: `columns' * columns`, `columns' * target` and
/// `target' * target`. Its size does not depend on the number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    gram: Vec<Vec<f64>>,
    with_target: Vec<f64>,
    target_squares: f64,
}

/// The best fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// One coefficient for each column, none below zero.
    pub coefficients: Vec<f64>,
    /// The sum of squared residuals.
    pub residual_squares: f64,
}

impl Products {
    /// The products of columns and a target of equal length.
    pub fn new(columns: &[Vec<f64>], target: &[f64]) -> Self {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        Self {
            gram: columns.iter().map(|a| columns.iter().map(|b| dot(a, b)).collect()).collect(),
            with_target: columns.iter().map(|column| dot(column, target)).collect(),
            target_squares: dot(target, target),
        }
    }

    /// The sum of the products of several sets of rows with the same columns; `None` without a set.
    pub fn joined<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut parts = parts.into_iter();
        let mut sum = parts.next()?.clone();
        let add = |to: &mut [f64], from: &[f64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        for part in parts {
            sum.gram.iter_mut().zip(&part.gram).for_each(|(to, from)| add(to, from));
            add(&mut sum.with_target, &part.with_target);
            sum.target_squares += part.target_squares;
        }
        Some(sum)
    }

    /// The problem of some of its columns.
    #[must_use]
    pub fn select(&self, columns: &[usize]) -> Self {
        let row = |a: &usize| columns.iter().map(|b| self.gram[*a][*b]).collect();
        Self {
            gram: columns.iter().map(row).collect(),
            with_target: columns.iter().map(|j| self.with_target[*j]).collect(),
            target_squares: self.target_squares,
        }
    }

    /// The non-negative coefficients with the least squares.
    ///
    /// The active-set method of Lawson and Hanson ("Solving Least Squares Problems", 1974, chapter
    /// 23): columns join one by one, the one with the steepest descent first. A column whose
    /// coefficient would turn negative leaves again. A column that is a sum of others never joins.
    pub fn solve(&self) -> Solution {
        let n = self.with_target.len();
        let mut x = vec![0.0; n];
        let mut active: Vec<usize> = Vec::new();
        let mut dependent = vec![false; n];
        // Each round lowers the residual, so no active set comes twice. The bound guards against
        // rounding.
        for _ in 0..10 * (n + 1) {
            let gradient = self.gradient(&x);
            let steepness = |j: usize| gradient[j] / self.gram[j][j].sqrt();
            let least = FLAT * self.target_squares.sqrt();
            let next = (0..n)
                .filter(|j| !active.contains(j) && !dependent[*j] && steepness(*j) > least)
                .max_by(|a, b| steepness(*a).total_cmp(&steepness(*b)));
            let Some(next) = next else { break };
            active.push(next);
            if !self.descend(&mut x, &mut active) {
                active.retain(|j| *j != next);
                dependent[next] = true;
            }
        }
        let residual_squares = self.residual_squares(&x);
        Solution { coefficients: x, residual_squares }
    }

    /// Moves `x` to the best fit of the columns in `active`, and removes those that would turn
    /// negative. Returns false and does nothing where the columns depend on each other.
    fn descend(&self, x: &mut [f64], active: &mut Vec<usize>) -> bool {
        while !active.is_empty() {
            let part = |a: &usize| active.iter().map(|b| self.gram[*a][*b]).collect();
            let gram: Vec<Vec<f64>> = active.iter().map(part).collect();
            let right: Vec<f64> = active.iter().map(|j| self.with_target[*j]).collect();
            let Some(best) = linear::solve(&gram, &right) else { return false };
            let targets = || active.iter().zip(&best);
            if best.iter().all(|value| *value > 0.0) {
                for (j, value) in targets() {
                    x[*j] = *value;
                }
                return true;
            }
            let blocked = targets().filter(|(_, value)| **value <= 0.0);
            let step = blocked.map(|(j, value)| x[*j] / (x[*j] - value)).fold(1.0, f64::min);
            let leaves =
                |(j, value): (&usize, &f64)| *value <= 0.0 && x[*j] / (x[*j] - value) <= step;
            let leaving: Vec<usize> = targets().filter(|it| leaves(*it)).map(|(j, _)| *j).collect();
            for (j, value) in active.iter().zip(&best) {
                x[*j] += step * (value - x[*j]);
            }
            for j in &leaving {
                x[*j] = 0.0;
            }
            active.retain(|j| !leaving.contains(j));
        }
        true
    }

    fn gradient(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.gram.iter().zip(&self.with_target);
        rows.map(|(row, with)| with - row.iter().zip(x).map(|(g, x)| g * x).sum::<f64>()).collect()
    }

    fn residual_squares(&self, x: &[f64]) -> f64 {
        let gradient = self.gradient(x);
        // target'target - x'(columns'target) - x'(columns'target - gram x)
        let parts = gradient.iter().zip(&self.with_target).zip(x);
        let explained: f64 = parts.map(|((left, with), x)| x * (with + left)).sum();
        (self.target_squares - explained).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn exact_sum_is_taken_apart() {
        check(&[&[1.0, 0.0, 2.0], &[0.0, 3.0, 1.0]], &[2.0, 12.0, 8.0], &[2.0, 4.0], 0.0);
    }

    #[test]
    fn coefficient_that_would_be_negative_is_zero() {
        // Without the bound -1 and 2 leave nothing; with it the second column is left alone.
        check(
            &[&[1.0, 1.0, 0.0], &[1.0, 1.0, 1.0]],
            &[1.0, 1.0, 2.0],
            &[0.0, 4.0 / 3.0],
            2.0 / 3.0,
        );
        // Nothing points along the target, or there is none.
        check(&[&[-1.0, -2.0]], &[1.0, 1.0], &[0.0], 2.0);
        check(&[&[1.0, 2.0], &[1.0, 0.0]], &[0.0, 0.0], &[0.0, 0.0], 0.0);
    }

    #[test]
    fn duplicate_column_does_not_join() {
        let (columns, target) = ([vec![1.0, 2.0], vec![2.0, 4.0]], [3.0, 6.0]);
        let found = Products::new(&columns, &target).solve();
        let sum = found.coefficients[0] + 2.0 * found.coefficients[1];
        assert!((sum - 3.0).abs() < 1e-9 && found.residual_squares < 1e-9, "{found:?}");
        check(&[&[0.0, 0.0], &[1.0, 1.0]], &[2.0, 2.0], &[0.0, 2.0], 0.0);
    }

    #[test]
    fn dependent_column_leaves_others_unchanged() {
        let columns: [&[f64]; 4] = [
            &[1.0, 0.0, 0.0, 0.0],
            &[0.0, 1.0, 0.0, 0.0],
            &[1.0, 1.0, 1e-7, 0.0],
            &[0.0, 0.0, 0.0, 1.0],
        ];
        // They join in this order, and the third is refused.
        check(&columns, &[3.0, 0.5, 1.0, 1e-8], &[3.0, 0.5, 0.0, 1e-8], 1.0);
    }

    #[test]
    fn units_do_not_matter() {
        let (column, target) = ([1.0; 4], [10.0, 20.0, 30.0, 41.0]);
        for (unit, of_target) in [(1.0, 1.0), (1e-9, 1.0), (1e9, 1.0), (1.0, 1e-11), (1.0, 1e11)] {
            let column = column.map(|entry| entry * unit);
            let target = target.map(|entry| entry * of_target);
            let found = Products::new(&[column.to_vec()], &target).solve();
            let coefficient = found.coefficients[0] * unit / of_target;
            assert!((coefficient - 25.25).abs() < 1e-9, "{unit} {of_target}: {found:?}");
        }
    }

    /// The conditions of Karush, Kuhn and Tucker say of any problem whether its solution is the best.
    #[test]
    fn no_step_from_a_solution_leaves_less() {
        let mut rng = SeededRng::from_seed(1);
        for _ in 0..300 {
            let (rows, n) = (3 + rng.next_below(12), 1 + rng.next_below(6));
            let mut draw = || (0..rows).map(|_| rng.next_normal()).collect::<Vec<f64>>();
            let columns: Vec<Vec<f64>> = (0..n).map(|_| draw()).collect();
            let target = draw();
            let problem = Products::new(&columns, &target);
            let found = problem.solve();
            if n > rows {
                continue; // columns depend on one another: any best will do
            }
            for (gradient, x) in
                problem.gradient(&found.coefficients).iter().zip(&found.coefficients)
            {
                assert!(*x >= 0.0 && *gradient < 1e-7, "{problem:?} {found:?}");
                assert!(*x == 0.0 || gradient.abs() < 1e-7, "{problem:?} {found:?}");
            }
        }
    }

    /// On the way to the best fit the first column that comes to zero leaves, and no other: the rest may be positive
    /// without it.
    #[test]
    fn column_that_is_zero_first_leaves() {
        let check = |gram: &[&[f64]], right: &[f64], start: &[f64], end: &[f64]| {
            for unit in [0.01, 1.0] {
                let scaled = |values: &[f64]| values.iter().map(|x| x * unit).collect::<Vec<_>>();
                let problem = Products {
                    gram: gram.iter().map(|row| row.to_vec()).collect(),
                    with_target: scaled(right),
                    target_squares: 0.0,
                };
                let (mut x, mut active) = (scaled(start), (0..start.len()).collect());
                assert!(problem.descend(&mut x, &mut active));
                for (found, wanted) in x.iter().zip(scaled(end)) {
                    assert!((found - wanted).abs() < 1e-9, "{x:?}");
                }
                let positive: Vec<usize> = (0..end.len()).filter(|j| end[*j] > 0.0).collect();
                assert_eq!(active, positive);
            }
        };
        // The best fit is -3, 1, 3, -3. The fourth is zero after half of the way, the first after 4/7. Without the fourth the
        // best fit is 3, 1, 0.
        check(
            &[
                &[1.0, 2.0, 1.0, -1.0],
                &[2.0, 6.0, 2.0, -2.0],
                &[1.0, 2.0, 2.0, 0.0],
                &[-1.0, -2.0, 0.0, 4.0],
            ],
            &[5.0, 12.0, 5.0, -11.0],
            &[4.0, 1.0, 4.0, 3.0],
            &[3.0, 1.0, 0.0, 0.0],
        );
        // -1, 4, 1: after half of the way the others are at 4 and 6. Their best fit is -1, -2, so that the third is zero after
        // 3/4 of that way, the second after 4/5.
        check(
            &[&[100.0, 23.0, -15.0], &[23.0, 10.0, -9.0], &[-15.0, -9.0, 10.0]],
            &[-23.0, 8.0, -11.0],
            &[1.0, 4.0, 11.0],
            &[0.0, 0.8, 0.0],
        );
        // The same by -1, 1, 4, and 2.5 and 4.5: 9/13 and 5/7.
        check(
            &[&[200.0, -34.0, 42.0], &[-34.0, 10.0, -9.0], &[42.0, -9.0, 10.0]],
            &[-66.0, 8.0, -11.0],
            &[1.0, 4.0, 5.0],
            &[0.0, 0.8, 0.0],
        );
    }

    #[test]
    fn joined_rows_are_one_problem() {
        let first = Products::new(&[vec![1.0, 0.0], vec![0.0, 3.0], vec![7.0, 7.0]], &[2.0, 12.0]);
        let second = Products::new(&[vec![2.0], vec![1.0], vec![-5.0]], &[8.0]);
        let joined = Products::joined([&first, &second]).unwrap().select(&[0, 1]);
        let whole = Products::new(&[vec![1.0, 0.0, 2.0], vec![0.0, 3.0, 1.0]], &[2.0, 12.0, 8.0]);
        assert_eq!(joined, whole);
        let found = joined.select(&[1, 0]).solve();
        assert!((found.coefficients[0] - 4.0).abs() < 1e-9, "{found:?}");
        assert!((found.coefficients[1] - 2.0).abs() < 1e-9, "{found:?}");
        assert_eq!(Products::joined([]), None);
    }

    #[track_caller]
    fn check(columns: &[&[f64]], target: &[f64], coefficients: &[f64], squares: f64) {
        let columns: Vec<Vec<f64>> = columns.iter().map(|column| column.to_vec()).collect();
        let found = Products::new(&columns, target).solve();
        for (found, wanted) in found.coefficients.iter().zip(coefficients) {
            assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        }
        assert!((found.residual_squares - squares).abs() < 1e-9, "{found:?}");
    }
}
