//! Small symmetric matrices: equations by Cholesky's method, eigenvalues by Jacobi's rotations.

/// A pivot below this share of its diagonal entry counts as zero.
const SINGULAR: f64 = 1e-12;

/// The least pivot of a matrix that would be positive definite without rounding.
const LEAST_PIVOT: f64 = 1e-12;

/// The lower triangle L of Cholesky's method, row by row. L L' is a symmetric, positive definite
/// matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Cholesky(Vec<Vec<f64>>);

impl Cholesky {
    /// Decomposes the matrix whose entries `entry` gives by row and column. `None` where it is
    /// singular up to rounding.
    pub fn decompose(size: usize, entry: impl Fn(usize, usize) -> f64) -> Option<Self> {
        let is_sound = |rest: f64, diagonal: f64| !rest.is_nan() && rest > SINGULAR * diagonal;
        Self::with(size, entry, |rest, diagonal| is_sound(rest, diagonal).then_some(rest))
    }

    /// Decomposes a matrix that is positive definite up to rounding, such as a covariance: pivots
    /// have a least value.
    pub fn forced(size: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let found = Self::with(size, entry, |rest, _| Some(rest.max(LEAST_PIVOT)));
        found.expect("no pivot is refused")
    }

    fn with(
        size: usize,
        entry: impl Fn(usize, usize) -> f64,
        pivot: impl Fn(f64, f64) -> Option<f64>,
    ) -> Option<Self> {
        let mut lower: Vec<Vec<f64>> = Vec::with_capacity(size);
        for i in 0..size {
            let mut row = Vec::with_capacity(i + 1);
            for (j, other) in lower.iter().enumerate() {
                let value = (entry(i, j) - dot(&row, &other[..j])) / other[j];
                row.push(value);
            }
            let diagonal = entry(i, i);
            row.push(pivot(diagonal - dot(&row, &row), diagonal)?.sqrt());
            lower.push(row);
        }
        Some(Self(lower))
    }

    /// The rows of L, each up to the diagonal.
    pub fn rows(&self) -> &[Vec<f64>] {
        &self.0
    }

    /// Solves L x = `right`.
    pub fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut solved: Vec<f64> = Vec::with_capacity(right.len());
        for (row, value) in self.0.iter().zip(right) {
            let (pivot, before) = row.split_last().expect("a row ends in its pivot");
            solved.push((value - dot(before, &solved)) / pivot);
        }
        solved
    }

    /// Solves L' x = `right`.
    pub fn backward(&self, right: &[f64]) -> Vec<f64> {
        let mut solved = right.to_vec();
        for (i, row) in self.0.iter().enumerate().rev() {
            let value = solved[i] / row[i];
            solved[i] = value;
            for (j, entry) in row[..i].iter().enumerate() {
                solved[j] -= entry * value;
            }
        }
        solved
    }
}

/// Solves `matrix * x = right` for a symmetric, positive definite `matrix`. `None` where it is
/// singular up to rounding.
pub fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let factor = Cholesky::decompose(right.len(), |row, column| matrix[row][column])?;
    Some(factor.backward(&factor.forward(right)))
}

/// The dot product of two vectors.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Eigenvalues, largest first, and their unit vectors.
pub fn eigen(matrix: &[Vec<f64>]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = matrix.len();
    let mut a = matrix.to_vec();
    let mut v: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _ in 0..100 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j].powi(2)).sum();
        if off < 1e-20 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, p, q);
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| a[*j][*j].total_cmp(&a[*i][*i]));
    let vector = |k: &usize| (0..n).map(|i| v[i][*k]).collect();
    (order.iter().map(|k| a[*k][*k]).collect(), order.iter().map(vector).collect())
}

#[expect(clippy::many_single_char_names, reason = "as the method is written")]
#[expect(clippy::needless_range_loop, reason = "two rows at once")]
fn rotate(a: &mut [Vec<f64>], v: &mut [Vec<f64>], p: usize, q: usize) {
    if a[p][q].abs() < 1e-300 {
        return;
    }
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    for row in a.iter_mut().chain(v.iter_mut()) {
        let (x, y) = (row[p], row[q]);
        (row[p], row[q]) = (c * x - s * y, s * x + c * y);
    }
    for k in 0..a.len() {
        let (x, y) = (a[p][k], a[q][k]);
        (a[p][k], a[q][k]) = (c * x - s * y, s * x + c * y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved_or_singular() {
        let x = solve(&[vec![4.0, 2.0], vec![2.0, 3.0]], &[2.0, 5.0]).unwrap();
        assert!((x[0] + 0.5).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12, "{x:?}");
        assert_eq!(solve(&[vec![1.0, 2.0], vec![2.0, 4.0]], &[1.0, 2.0]), None);
        assert_eq!(solve(&[vec![f64::NAN]], &[1.0]), None);
        assert_eq!(solve(&[], &[]), Some(Vec::new()));
        assert_eq!(solve(&[vec![0.0]], &[1.0]), None);
        // Small is not singular.
        assert_eq!(solve(&[vec![1e-9]], &[2e-9]), Some(vec![2.0]));
    }

    #[test]
    fn known_matrix_has_its_known_factor() {
        let factor = Cholesky::decompose(2, |i, j| [[4.0, 2.0], [2.0, 3.0]][i][j]).unwrap();
        assert_eq!(factor.rows(), [vec![2.0], vec![1.0, 2_f64.sqrt()]]);
    }

    #[test]
    fn factors_undo_each_other() {
        let entry = |i: usize, j: usize| {
            1.0 / (1.0 + i.abs_diff(j) as f64) + if i == j { 0.5 } else { 0.0 }
        };
        let factor = Cholesky::decompose(5, entry).unwrap();
        let right = [1.0, -2.0, 3.0, 0.5, 4.0];
        let solved = factor.backward(&factor.forward(&right));
        for (i, wanted) in right.iter().enumerate() {
            let sum: f64 = solved.iter().enumerate().map(|(j, x)| entry(i, j) * x).sum();
            assert!((sum - wanted).abs() < 1e-9, "{sum} {wanted}");
        }
    }

    #[test]
    fn known_matrix_has_its_known_eigenvalues() {
        let (values, vectors) =
            eigen(&[vec![2.0, 1.0, 0.0], vec![1.0, 2.0, 0.0], vec![0.0, 0.0, 5.0]]);
        for (value, wanted) in values.iter().zip([5.0, 3.0, 1.0]) {
            assert!((value - wanted).abs() < 1e-12, "{values:?}");
        }
        assert!((vectors[1][0] - vectors[1][1]).abs() < 1e-9, "{vectors:?}");
        // By hand: 2 +- 1 with equal entries, and one that nothing is tied to.
        check_eigen(&[[2.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 2.0]], &[3.0, 2.0, 1.0]);
        check_eigen(&[[1.0, 0.0], [0.0, 4.0]], &[4.0, 1.0]);
    }

    #[test]
    fn any_matrix_has_the_eigenvalues_of_numpy() {
        // numpy 2.4: `linalg.eigvalsh`.
        check_eigen(
            &[
                [4.0, 1.0, -2.0, 0.5],
                [1.0, 3.0, 0.25, -1.0],
                [-2.0, 0.25, 1.0, 2.0],
                [0.5, -1.0, 2.0, 6.0],
            ],
            &[
                6.955_646_410_899_128,
                5.043_766_795_450_065,
                2.844_639_589_951_365,
                -0.844_052_796_300_557_8,
            ],
        );
    }

    /// And each vector has the length 1 and is only stretched, by its value.
    #[track_caller]
    fn check_eigen<const N: usize>(matrix: &[[f64; N]; N], expected: &[f64; N]) {
        let rows: Vec<Vec<f64>> = matrix.iter().map(|row| row.to_vec()).collect();
        let (values, vectors) = eigen(&rows);
        for ((value, vector), expected) in values.iter().zip(&vectors).zip(expected) {
            assert!((value - expected).abs() < 1e-9, "{values:?}");
            let length: f64 = vector.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-9, "{vector:?}");
            for (row, x) in matrix.iter().zip(vector) {
                let image: f64 = row.iter().zip(vector).map(|(a, x)| a * x).sum();
                assert!((image - value * x).abs() < 1e-8, "{vector:?}");
            }
        }
    }

    #[test]
    fn three_equations_have_the_solution_of_numpy() {
        // numpy 2.4: `linalg.solve`.
        let matrix = [vec![4.0, 1.0, -0.5], vec![1.0, 3.0, 0.25], vec![-0.5, 0.25, 2.0]];
        let found = solve(&matrix, &[1.0, -2.0, 3.0]).unwrap();
        let expected = [0.743_975_903_614_457_8, -1.066_265_060_240_963_8, 1.819_277_108_433_734_7];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} and not {expected}");
        }
    }
}
