//! Which terms the fit takes, what it says of the others, and how far off it is at settings left out.

use latput_units::SeededRng;

use super::super::cells::TermCounts;
use super::*;

const TERMS: [CostTerm; 3] = [CostTerm::Interrupt, CostTerm::PacketReceived, CostTerm::Poll];
/// Nanoseconds of each.
const COSTS: [f64; 3] = [4_000.0, 900.0, 0.0];

fn make_cell(setting: usize, counts: [f64; 3], busy: f64) -> CellFigures {
    let mut all: TermCounts = [None; CostTerm::ALL.len()];
    for (term, count) in TERMS.into_iter().zip(counts) {
        all[term as usize] = Some(count);
    }
    CellFigures { host: 0, setting, workload: 0, busy, counts: all }
}

/// A cell for each setting, with counts that scatter and so much noise in the CPU time.
fn scattered_cells(settings: usize, noise: f64, seed: u64) -> Vec<CellFigures> {
    let mut rng = SeededRng::from_seed(seed);
    let mut make = |setting| {
        let counts = [1e4, 5e4, 3e3].map(|count: f64| count * rng.next_normal().exp());
        let exact: f64 = counts.iter().zip(COSTS).map(|(count, cost)| count * cost).sum();
        make_cell(setting, counts, exact * (noise * rng.next_normal()).exp())
    };
    (0..settings).map(&mut make).collect()
}

fn find_term(fitted: &FitResult, term: CostTerm) -> &Result<TermCost, CostObstacle> {
    &fitted.terms.iter().find(|(of, _)| *of == term).unwrap().1
}

#[test]
fn exact_costs_are_found_without_useless_terms() {
    for settings in [8, 25] {
        let cells = scattered_cells(settings, 0.0, 1);
        let fitted = fit_costs(&cells, 0.95);
        for (term, cost) in TERMS.into_iter().zip(COSTS).take(2) {
            let found = find_term(&fitted, term).as_ref().unwrap();
            assert!((found.ns / cost - 1.0).abs() < 1e-6, "{term:?} {found:?}");
            assert!(found.ns_high - found.ns_low < 1e-3 * cost, "{term:?} {found:?}");
        }
        assert!(matches!(find_term(&fitted, CostTerm::Poll), Err(CostObstacle::MovesWith(_))));
        assert_eq!(*find_term(&fitted, CostTerm::Segment), Err(CostObstacle::NotCounted));
        assert_eq!(fitted.errors.len(), settings);
        assert!(fitted.errors.iter().all(|cell| cell.error_ratio.abs() < 1e-6));
    }
}

#[test]
fn first_of_equal_terms_is_taken() {
    let mut cells = scattered_cells(10, 0.02, 2);
    for cell in &mut cells {
        cell.counts[CostTerm::Poll as usize] = cell.counts[CostTerm::Interrupt as usize];
    }
    let fitted = fit_costs(&cells, 0.95);
    assert!(find_term(&fitted, CostTerm::Interrupt).is_ok());
    let poll = Err(CostObstacle::MovesWith(CostTerm::Interrupt));
    assert_eq!(*find_term(&fitted, CostTerm::Poll), poll);
}

#[test]
fn intervals_hold_the_costs_as_often_as_stated() {
    let mut held = 0;
    let seeds = 60;
    for seed in 0..seeds {
        let fitted = fit_costs(&scattered_cells(12, 0.05, seed), 0.9);
        for (term, cost) in TERMS.into_iter().zip(COSTS).take(2) {
            let holds = |of: &TermCost| of.ns_low <= cost && cost <= of.ns_high;
            held += u32::from(find_term(&fitted, term).as_ref().is_ok_and(holds));
        }
    }
    assert!(held >= 98, "{held} of 120 at 90%");
}

#[test]
fn odd_setting_is_missed_by_its_own_error() {
    let mut cells = scattered_cells(10, 0.0, 3);
    cells[4].busy *= 2.0;
    let fitted = fit_costs(&cells, 0.95);
    let odd = fitted.errors.iter().find(|cell| cell.setting == 4).unwrap();
    // It is not in its own fit.
    assert!((odd.error_ratio + 0.5).abs() < 1e-6, "{odd:?}");
}

#[test]
fn two_cells_are_too_few_to_leave_out() {
    let fitted = fit_costs(&scattered_cells(2, 0.0, 4), 0.95);
    assert_eq!(*find_term(&fitted, CostTerm::Interrupt), Err(CostObstacle::TooFewCells));
    assert!(fitted.errors.is_empty() && fitted.condition_number.is_none());
    // Of one setting with many workloads the workloads are left out.
    let mut cells = scattered_cells(8, 0.0, 4);
    for (workload, cell) in cells.iter_mut().enumerate() {
        (cell.setting, cell.workload) = (0, workload);
    }
    assert_eq!(fit_costs(&cells, 0.95).errors.len(), 8);
}

#[test]
fn term_that_hardly_happens_has_no_cost() {
    for count in [0.0, 3.0] {
        let mut cells = scattered_cells(6, 0.02, 5);
        for cell in &mut cells {
            cell.counts[CostTerm::Poll as usize] = Some(count * (1 + cell.setting % 3) as f64);
        }
        let fitted = fit_costs(&cells, 0.95);
        assert_eq!(*find_term(&fitted, CostTerm::Poll), Err(CostObstacle::TooRare));
    }
}
