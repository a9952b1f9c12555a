//! Small symmetric matrices: equations by Cholesky's method, eigenvalues by Jacobi's rotations.

/// A pivot smaller than this share of its diagonal entry is zero but for rounding.
const SINGULAR: f64 = 1e-12;

/// The solution of `matrix * x = right` for a symmetric, positive definite `matrix`; `None` where it is
/// singular but for rounding.
pub fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let n = right.len();
    let mut lower = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let dot: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
            let rest = matrix[row][column] - dot;
            lower[row][column] = if row == column {
                if rest.is_nan() || rest <= SINGULAR * matrix[row][row] {
                    return None;
                }
                rest.sqrt()
            } else {
                rest / lower[column][column]
            };
        }
    }
    let mut x = right.to_vec();
    for row in 0..n {
        let dot: f64 = (0..row).map(|k| lower[row][k] * x[k]).sum();
        x[row] = (x[row] - dot) / lower[row][row];
    }
    for row in (0..n).rev() {
        let dot: f64 = (row + 1..n).map(|k| lower[k][row] * x[k]).sum();
        x[row] = (x[row] - dot) / lower[row][row];
    }
    Some(x)
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
    fn known_equations_are_solved_and_singular_ones_refused() {
        let x = solve(&[vec![4.0, 2.0], vec![2.0, 3.0]], &[2.0, 5.0]).unwrap();
        assert!((x[0] + 0.5).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12, "{x:?}");
        assert_eq!(solve(&[vec![1.0, 2.0], vec![2.0, 4.0]], &[1.0, 2.0]), None);
        assert_eq!(solve(&[vec![f64::NAN]], &[1.0]), None);
        assert_eq!(solve(&[], &[]), Some(Vec::new()));
    }

    #[test]
    fn a_known_matrix_has_its_known_eigenvalues() {
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
