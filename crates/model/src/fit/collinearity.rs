//! Collinearity of the columns of a fit.

use latput_stats::linear::{self, dot};

/// The part of column `j`, 0 to 1 of its length, that no sum of the other columns gives.
pub(super) fn independent_share(columns: &[Vec<f64>], j: usize) -> f64 {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let others = columns.iter().enumerate().filter(|(idx, _)| *idx != j);
    for (_, column) in others {
        let rest = orthogonal_rest(column, &basis);
        // The remainder of a column that the others give is rounding, without direction.
        if vector_length(&rest) > 1e-9 * vector_length(column) {
            basis.push(scale_vector(&rest, 1.0 / vector_length(&rest)));
        }
    }
    let size = vector_length(&columns[j]);
    if size > 0.0 { vector_length(&orthogonal_rest(&columns[j], &basis)) / size } else { 0.0 }
}

/// The column whose direction is nearest to that of column `j`; `None` if there is no other.
pub(super) fn nearest_column(columns: &[Vec<f64>], j: usize) -> Option<usize> {
    let cosine = |k: &usize| {
        dot(&columns[j], &columns[*k]).abs() / vector_length(&columns[*k]).max(f64::MIN_POSITIVE)
    };
    (0..columns.len()).filter(|k| *k != j).max_by(|a, b| cosine(a).total_cmp(&cosine(b)))
}

/// The largest over the smallest singular value of the columns at unit length.
pub(super) fn condition_number(columns: &[Vec<f64>]) -> f64 {
    let unit: Vec<Vec<f64>> =
        columns.iter().map(|column| scale_vector(column, 1.0 / vector_length(column))).collect();
    let gram: Vec<Vec<f64>> =
        unit.iter().map(|a| unit.iter().map(|b| dot(a, b)).collect()).collect();
    let (values, _) = linear::eigen(&gram);
    match (values.first(), values.last()) {
        (Some(largest), Some(least)) => (largest / least.max(0.0)).sqrt(),
        _ => f64::INFINITY,
    }
}

fn orthogonal_rest(column: &[f64], basis: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = column.to_vec();
    // Twice, because rounding leaves a small remainder the first time.
    for direction in basis.iter().chain(basis) {
        let along = dot(&rest, direction);
        rest.iter_mut().zip(direction).for_each(|(rest, unit)| *rest -= along * unit);
    }
    rest
}

fn vector_length(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

fn scale_vector(a: &[f64], factor: f64) -> Vec<f64> {
    a.iter().map(|x| factor * x).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_separation_is_its_angle() {
        let columns = [vec![1.0, 0.0, 0.0], vec![3.0, 4.0, 0.0], vec![0.0, 0.0, 2.0]];
        assert!((independent_share(&columns, 1) - 0.8).abs() < 1e-12);
        assert!((independent_share(&columns, 2) - 1.0).abs() < 1e-12);
        assert_eq!(nearest_column(&columns, 0), Some(1));
        let dependent = [vec![1.0, 2.0], vec![2.0, 4.0], vec![0.0, 1.0]];
        assert!((0..2).all(|j| independent_share(&dependent, j) < 1e-9));
        assert_eq!(
            (independent_share(&[vec![0.0]], 0), nearest_column(&[vec![0.0]], 0)),
            (0.0, None)
        );
        assert!((independent_share(&[vec![0.0, 0.0], vec![3.0, 4.0]], 1) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn unit_of_a_column_does_not_matter() {
        for unit in [1e-12, 1.0, 1e12] {
            let columns = [vec![unit, 0.0, 0.0], vec![0.0, unit, 0.0], vec![3.0, 4.0, 12.0]];
            assert!((independent_share(&columns, 2) - 12.0 / 13.0).abs() < 1e-12, "{unit}");
        }
    }

    #[test]
    fn two_columns_have_condition_of_cosine() {
        // Unit vectors with cosine 0.6: eigenvalues 1.6 and 0.4.
        let found = condition_number(&[vec![10.0, 0.0], vec![3.0, 4.0]]);
        assert!((found - 2.0).abs() < 1e-9, "{found}");
        let dependent = condition_number(&[vec![1.0, 2.0, 0.1], vec![2.0, 4.0, 0.2]]);
        assert!(dependent > 1e7, "{dependent}");
    }
}
