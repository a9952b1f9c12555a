//! Costs and intervals of small problems in closed form, and which of two terms stays.

use latput_units::SeededRng;

use super::*;

/// Cells of one second of CPU time with these counts, in the order of [`CostTerm::ALL`]; an empty list is not counted.
fn make_cells(counts: [&[f64]; 5]) -> Vec<CellFigures> {
    let cells = counts.iter().map(|column| column.len()).max().unwrap();
    let of = |cell: usize| counts.map(|column| column.get(cell).copied());
    let cell = |cell| CellFigures { setting: cell, workload: 0, busy: 1.0, counts: of(cell) };
    (0..cells).map(cell).collect()
}

fn term_finding(fitted: &FitResult, term: CostTerm) -> &Result<TermCost, CostObstacle> {
    &fitted.terms.iter().find(|(it, _)| *it == term).unwrap().1
}

fn term_cost(fitted: &FitResult, term: CostTerm) -> TermCost {
    *term_finding(fitted, term).as_ref().unwrap()
}

#[track_caller]
fn assert_near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 1e-8, "{found} and not {wanted}");
}

/// A line through zero: `sum x / sum x^2`, and Student's t times the root of the residual variance over `sum x^2`.
fn line_through_zero(counts: &[f64], t: f64) -> (f64, f64) {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|x| x * x).sum();
    let cells = counts.len() as f64;
    let variance = (cells - sum * sum / squares) / (cells - 1.0);
    (sum / squares, t * (variance / squares).sqrt())
}

/// t(0.975) of one and of three degrees of freedom, and t(0.95) of one.
const T: [f64; 3] = [12.706_204_736_432_1, 3.182_446_305_284_26, 6.313_751_514_675_04];

#[test]
fn cost_interval_is_students_t() {
    for unit in [1e-9, 1.0, 1e9] {
        let counts = [4.0, 5.0, 6.0, 5.0].map(|count| count * unit);
        let found =
            term_cost(&fit_costs(&make_cells([&counts, &[], &[], &[], &[]]), 0.95), CostTerm::Byte);
        let (wanted, half_width) = line_through_zero(&counts, T[1]);
        assert_near(found.ns, wanted);
        assert_near(found.ns_low, wanted - half_width);
        assert_near(found.ns_high, wanted + half_width);
        assert_near(found.share, wanted * 5.0 * unit);
    }
}

#[test]
fn interval_of_cost_ends_at_zero() {
    for unit in [1e-9, 1.0, 1e9] {
        // Two cells: the half width is 2.5 costs.
        let counts = [4.0, 6.0].map(|count| count * unit);
        let columns = vec![counts.to_vec()];
        let problem = FitProblem::new(vec![CostTerm::Byte], columns, 2, 0.95);
        let (wanted, half_width) = line_through_zero(&counts, T[0]);
        let (low, high) = problem.cost_interval(0);
        assert!(low == 0.0 && half_width > 2.0 * wanted, "{low}");
        assert_near(high, wanted + half_width);
    }
    // At this confidence Student's t is infinite.
    let problem =
        FitProblem::new(vec![CostTerm::Byte], vec![vec![4.0, 6.0]], 2, 1.0 - f64::EPSILON / 4.0);
    assert!(problem.cost_interval(0).1 > 1e5 * problem.costs[0]);
}

#[test]
fn cost_is_known_by_size_or_share() {
    for unit in [1e-9, 1.0, 1e9] {
        let of = |counts: [f64; 4]| {
            let counts = counts.map(|count| count * unit);
            term_finding(
                &fit_costs(&make_cells([&counts, &[], &[], &[], &[]]), 0.95),
                CostTerm::Byte,
            )
            .is_ok()
        };
        // The widths are 0.95 and 1.04 costs, and almost the whole time.
        assert!(of([3.18, 5.0, 6.82, 5.0]) && !of([3.0, 5.0, 7.0, 5.0]), "{unit}");
        // Packets take an eighth of the time, give or take 0.096, and 0.176, give or take 0.129.
        let bytes = [10.0, 9.8, 10.1, 9.9, 10.2, 9.7, 10.0, 9.9];
        for (scatter, is_known) in [(4.0, true), (6.0, false)] {
            let bytes = bytes.map(|count| 10.0 + scatter * (count - 10.0));
            let packets = [2.0, 3.0, 1.0, 2.0, 1.0, 2.0, 2.0, 3.0].map(|count| count * unit);
            let made = fit_costs(&make_cells([&bytes, &packets, &[], &[], &[]]), 0.95);
            let found = term_finding(&made, CostTerm::Packet);
            assert_eq!(found.is_ok(), is_known, "{scatter} {unit}: {found:?}");
            if let Ok(TermCost { ns, ns_low, ns_high, .. }) = found {
                assert!(ns_high - ns_low > 1.2 * ns, "{found:?}");
            }
        }
    }
}

/// Eight cells in which a count scatters so much (logarithm) beside the CPU time.
fn scattered_counts(rng: &mut SeededRng, scatter: f64) -> Vec<f64> {
    (0..8).map(|_| (scatter * rng.next_normal()).exp()).collect()
}

/// The squares that a column leaves by itself.
fn left_by(column: &[f64]) -> f64 {
    let squares: f64 = column.iter().map(|x| x * x).sum();
    column.len() as f64 - column.iter().sum::<f64>().powi(2) / squares
}

#[test]
fn weaker_of_polls_and_interrupts_leaves() {
    let mut rng = SeededRng::from_seed(1);
    let mut seen = [0; 4];
    for _ in 0..200 {
        let (one, other) = (scattered_counts(&mut rng, 0.05), scattered_counts(&mut rng, 0.05));
        for extra in [CostTerm::Poll, CostTerm::Background] {
            let terms = vec![CostTerm::Interrupt, extra];
            let problem = FitProblem::new(terms, vec![one.clone(), other.clone()], 8, 0.99);
            if problem.find_cost(1) != Err(CostObstacle::Uncertain) {
                continue;
            }
            let mut counts: [&[f64]; 5] = [&[]; 5];
            (counts[CostTerm::Interrupt as usize], counts[extra as usize]) = (&one, &other);
            let made = fit_costs(&make_cells(counts), 0.99);
            let is_better = left_by(&other) < left_by(&one);
            let (stays, leaves) = match extra {
                CostTerm::Poll if is_better => (extra, CostTerm::Interrupt),
                _ => (CostTerm::Interrupt, extra),
            };
            assert!(term_finding(&made, stays).is_ok(), "{extra:?} {one:?} {other:?}");
            assert_eq!(
                *term_finding(&made, leaves),
                Err(CostObstacle::Uncertain),
                "{one:?} {other:?}"
            );
            seen[2 * usize::from(extra == CostTerm::Poll) + usize::from(is_better)] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen >= 10), "{seen:?}");
}

#[test]
fn polls_or_interrupts_leave_by_explanation() {
    let mut rng = SeededRng::from_seed(2);
    for _ in 0..50 {
        let interrupts = scattered_counts(&mut rng, 0.05);
        let polls: Vec<f64> =
            interrupts.iter().zip(scattered_counts(&mut rng, 0.005)).map(|(a, b)| a * b).collect();
        let made = fit_costs(&make_cells([&[], &[], &interrupts, &polls, &[]]), 0.99);
        assert_eq!(
            *term_finding(&made, CostTerm::Poll),
            Err(CostObstacle::MovesWith(CostTerm::Interrupt))
        );
        assert!(term_finding(&made, CostTerm::Interrupt).is_ok());
    }
}
