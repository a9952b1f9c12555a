//! Costs and intervals of small problems in closed form, and which of two terms stays.

use latput_units::Rng;

use super::*;

/// Cells of one second of CPU time with these counts, in the order of [`Term::ALL`]; an empty list is not counted.
fn cells(counts: [&[f64]; 5]) -> Vec<CellFigures> {
    let cells = counts.iter().map(|column| column.len()).max().unwrap();
    let of = |cell: usize| counts.map(|column| column.get(cell).copied());
    let cell = |cell| CellFigures { setting: cell, workload: 0, busy: 1.0, counts: of(cell) };
    (0..cells).map(cell).collect()
}

fn finding(fitted: &Fitted, term: Term) -> &Result<Cost, Why> {
    &fitted.terms.iter().find(|(it, _)| *it == term).unwrap().1
}

fn cost(fitted: &Fitted, term: Term) -> Cost {
    *finding(fitted, term).as_ref().unwrap()
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() < 1e-8, "{found} and not {wanted}");
}

/// A line through zero: `sum x / sum x^2`, and Student's t times the root of the residual variance over `sum x^2`.
fn line(counts: &[f64], t: f64) -> (f64, f64) {
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
        let found = cost(&fitted(&cells([&counts, &[], &[], &[], &[]]), 0.95), Term::Byte);
        let (wanted, half_width) = line(&counts, T[1]);
        near(found.ns, wanted);
        near(found.ns_low, wanted - half_width);
        near(found.ns_high, wanted + half_width);
        near(found.share, wanted * 5.0 * unit);
    }
}

#[test]
fn interval_of_cost_ends_at_zero() {
    for unit in [1e-9, 1.0, 1e9] {
        // Two cells: the half width is 2.5 costs.
        let counts = [4.0, 6.0].map(|count| count * unit);
        let columns = vec![counts.to_vec()];
        let problem = Problem::new(vec![Term::Byte], columns, 2, 0.95);
        let (wanted, half_width) = line(&counts, T[0]);
        let (low, high) = problem.interval(0);
        assert!(low == 0.0 && half_width > 2.0 * wanted, "{low}");
        near(high, wanted + half_width);
    }
    // At this confidence Student's t is infinite.
    let problem = Problem::new(vec![Term::Byte], vec![vec![4.0, 6.0]], 2, 1.0 - f64::EPSILON / 4.0);
    assert!(problem.interval(0).1 > 1e5 * problem.costs[0]);
}

#[test]
fn cost_is_known_by_size_or_share() {
    for unit in [1e-9, 1.0, 1e9] {
        let of = |counts: [f64; 4]| {
            let counts = counts.map(|count| count * unit);
            finding(&fitted(&cells([&counts, &[], &[], &[], &[]]), 0.95), Term::Byte).is_ok()
        };
        // The widths are 0.95 and 1.04 costs, and almost the whole time.
        assert!(of([3.18, 5.0, 6.82, 5.0]) && !of([3.0, 5.0, 7.0, 5.0]), "{unit}");
        // Packets take an eighth of the time, give or take 0.096, and 0.176, give or take 0.129.
        let bytes = [10.0, 9.8, 10.1, 9.9, 10.2, 9.7, 10.0, 9.9];
        for (scatter, is_known) in [(4.0, true), (6.0, false)] {
            let bytes = bytes.map(|count| 10.0 + scatter * (count - 10.0));
            let packets = [2.0, 3.0, 1.0, 2.0, 1.0, 2.0, 2.0, 3.0].map(|count| count * unit);
            let made = fitted(&cells([&bytes, &packets, &[], &[], &[]]), 0.95);
            let found = finding(&made, Term::Packet);
            assert_eq!(found.is_ok(), is_known, "{scatter} {unit}: {found:?}");
            if let Ok(Cost { ns, ns_low, ns_high, .. }) = found {
                assert!(ns_high - ns_low > 1.2 * ns, "{found:?}");
            }
        }
    }
}

/// Eight cells in which a count scatters so much (logarithm) beside the CPU time.
fn scattered(rng: &mut Rng, scatter: f64) -> Vec<f64> {
    (0..8).map(|_| (scatter * rng.normal()).exp()).collect()
}

/// The squares that a column leaves by itself.
fn left_by(column: &[f64]) -> f64 {
    let squares: f64 = column.iter().map(|x| x * x).sum();
    column.len() as f64 - column.iter().sum::<f64>().powi(2) / squares
}

#[test]
fn weaker_of_polls_and_interrupts_leaves() {
    let mut rng = Rng::from_seed(1);
    let mut seen = [0; 4];
    for _ in 0..200 {
        let (one, other) = (scattered(&mut rng, 0.05), scattered(&mut rng, 0.05));
        for extra in [Term::Poll, Term::Background] {
            let terms = vec![Term::Interrupt, extra];
            let problem = Problem::new(terms, vec![one.clone(), other.clone()], 8, 0.99);
            if problem.finding(1) != Err(Why::Uncertain) {
                continue;
            }
            let mut counts: [&[f64]; 5] = [&[]; 5];
            (counts[Term::Interrupt as usize], counts[extra as usize]) = (&one, &other);
            let made = fitted(&cells(counts), 0.99);
            let is_better = left_by(&other) < left_by(&one);
            let (stays, leaves) = match extra {
                Term::Poll if is_better => (extra, Term::Interrupt),
                _ => (Term::Interrupt, extra),
            };
            assert!(finding(&made, stays).is_ok(), "{extra:?} {one:?} {other:?}");
            assert_eq!(*finding(&made, leaves), Err(Why::Uncertain), "{one:?} {other:?}");
            seen[2 * usize::from(extra == Term::Poll) + usize::from(is_better)] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen >= 10), "{seen:?}");
}

#[test]
fn polls_or_interrupts_leave_by_explanation() {
    let mut rng = Rng::from_seed(2);
    for _ in 0..50 {
        let interrupts = scattered(&mut rng, 0.05);
        let polls: Vec<f64> =
            interrupts.iter().zip(scattered(&mut rng, 0.005)).map(|(a, b)| a * b).collect();
        let made = fitted(&cells([&[], &[], &interrupts, &polls, &[]]), 0.99);
        assert_eq!(*finding(&made, Term::Poll), Err(Why::MovesWith(Term::Interrupt)));
        assert!(finding(&made, Term::Interrupt).is_ok());
    }
}
