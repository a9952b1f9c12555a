//! Eigenvalues of a small symmetric matrix by Jacobi's rotations.

/// Eigenvalues, largest first, and their unit vectors.
pub(super) fn eigen(matrix: &[Vec<f64>]) -> (Vec<f64>, Vec<Vec<f64>>) {
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
    fn a_known_matrix_has_its_known_eigenvalues() {
        let (values, vectors) =
            eigen(&[vec![2.0, 1.0, 0.0], vec![1.0, 2.0, 0.0], vec![0.0, 0.0, 5.0]]);
        for (value, wanted) in values.iter().zip([5.0, 3.0, 1.0]) {
            assert!((value - wanted).abs() < 1e-12, "{values:?}");
        }
        assert!((vectors[1][0] - vectors[1][1]).abs() < 1e-9, "{vectors:?}");
    }
}
