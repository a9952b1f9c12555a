//! Nelder and Mead's downhill simplex (1965), with the step factors of that paper.

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) at: Vec<f64>,
    pub(crate) value: f64,
}

/// Searches from `start` with a first simplex of edge `step`, for about `evaluations` evaluations.
pub(super) fn minimise(
    start: &[f64],
    step: f64,
    evaluations: usize,
    mut f: impl FnMut(&[f64]) -> f64,
) -> Found {
    let n = start.len();
    let mut points: Vec<(Vec<f64>, f64)> = Vec::with_capacity(n + 1);
    points.push((start.to_vec(), f(start)));
    for axis in 0..n {
        let mut at = start.to_vec();
        at[axis] += if axis % 2 == 0 { step } else { -step };
        let value = f(&at);
        points.push((at, value));
    }
    let mut used = n + 1;
    while used < evaluations {
        points.sort_by(|a, b| a.1.total_cmp(&b.1));
        let worst = points[n].clone();
        let centre: Vec<f64> = (0..n)
            .map(|axis| points[..n].iter().map(|point| point.0[axis]).sum::<f64>() / n as f64)
            .collect();
        let along = |factor: f64| -> Vec<f64> {
            centre.iter().zip(&worst.0).map(|(c, w)| c + factor * (c - w)).collect()
        };
        let mut tried = |at: Vec<f64>| {
            used += 1;
            let value = f(&at);
            (at, value)
        };
        let reflected = tried(along(1.0));
        let next = if reflected.1 < points[0].1 {
            let expanded = tried(along(2.0));
            if expanded.1 < reflected.1 { expanded } else { reflected }
        } else if reflected.1 < points[n - 1].1 {
            reflected
        } else {
            let towards = if reflected.1 < worst.1 { 0.5 } else { -0.5 };
            let contracted = tried(along(towards));
            if contracted.1 < worst.1.min(reflected.1) {
                contracted
            } else {
                let best = points[0].0.clone();
                for point in &mut points[1..] {
                    let at = best.iter().zip(&point.0).map(|(b, p)| (b + p) / 2.0).collect();
                    *point = tried(at);
                }
                continue;
            }
        };
        points[n] = next;
    }
    let (at, value) =
        points.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("a simplex has points");
    Found { at, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottom_of_a_bent_valley_is_found() {
        let rosenbrock = |x: &[f64]| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2);
        let found = minimise(&[-1.2, 1.0], 0.5, 400, rosenbrock);
        assert!(found.value < 1e-6, "{found:?}");
    }
}
