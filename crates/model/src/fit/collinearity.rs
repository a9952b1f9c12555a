//! Collinearity of the columns of a fit.

use latput_stats::linear::{self, dot};

/// The columns that have at least `least` of their length, 0 to 1, apart from all sums of the ones before them, by index. An
/// empty column has none.
pub(super) fn independent_columns(columns: &[Vec<f64>], least: f64) -> Vec<usize> {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    let mut found = Vec::new();
    for (idx, column) in columns.iter().enumerate() {
        let mut rest = column.clone();
        // Twice, because rounding leaves a small remainder the first time.
        for unit in basis.iter().chain(&basis) {
            let along = dot(&rest, unit);
            rest.iter_mut().zip(unit).for_each(|(rest, unit)| *rest -= along * unit);
        }
        let (own, length) = (vector_length(&rest), vector_length(column));
        if length > 0.0 && own >= least * length {
            basis.push(rest.iter().map(|x| x / own).collect());
            found.push(idx);
        }
    }
    found
}

/// Which of `others` points in the direction nearest to that of `column`, by its index; `None` if there is none.
pub(super) fn nearest_column(column: &[f64], others: &[&[f64]]) -> Option<usize> {
    let cosine = |k: &usize| {
        dot(column, others[*k]).abs() / vector_length(others[*k]).max(f64::MIN_POSITIVE)
    };
    (0..others.len()).max_by(|a, b| cosine(a).total_cmp(&cosine(b)))
}

/// The largest over the smallest singular value of the columns at unit length.
pub(super) fn condition_number(columns: &[&[f64]]) -> f64 {
    let unit: Vec<Vec<f64>> = columns
        .iter()
        .map(|column| {
            let length = vector_length(column);
            column.iter().map(|x| x / length).collect()
        })
        .collect();
    let gram: Vec<Vec<f64>> =
        unit.iter().map(|a| unit.iter().map(|b| dot(a, b)).collect()).collect();
    let (values, _) = linear::eigen(&gram);
    match (values.first(), values.last()) {
        (Some(largest), Some(least)) => (largest / least.max(0.0)).sqrt(),
        _ => f64::INFINITY,
    }
}

fn vector_length(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_near_those_before_are_left_out() {
        let near = vec![3e-6, 4e-6, 0.2e-6];
        let columns =
            [vec![1.0, 0.0, 0.0], vec![0.0; 3], vec![300.0, 400.0, 0.0], near, vec![0.0, 1.0, 1.0]];
        assert_eq!(independent_columns(&columns, 0.1), [0, 2, 4]);
        assert_eq!(independent_columns(&columns, 0.01), [0, 2, 3]);
        assert_eq!(independent_columns(&[], 0.1), [0; 0]);
    }

    #[test]
    fn nearest_column_ignores_lengths() {
        let others: [&[f64]; 2] = [&[3.0, 4.0, 0.0], &[0.0, 0.0, 200.0]];
        assert_eq!(nearest_column(&[1.0, 0.0, 0.5], &others), Some(0));
        assert_eq!(nearest_column(&[0.1, 0.0, 0.5], &others), Some(1));
        assert_eq!(nearest_column(&[1.0], &[]), None);
    }

    #[test]
    fn two_columns_have_condition_of_cosine() {
        // Unit vectors with cosine 0.6: eigenvalues 1.6 and 0.4.
        let found = condition_number(&[&[10.0, 0.0], &[3.0, 4.0]]);
        assert!((found - 2.0).abs() < 1e-9, "{found}");
        let dependent = condition_number(&[&[1.0, 2.0, 0.1], &[2.0, 4.0, 0.2]]);
        assert!(dependent > 1e7, "{dependent}");
    }
}
