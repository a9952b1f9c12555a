//! Shared by this crate's tests: normal deviates and the check of an interval's coverage.

use latput_units::SeededRng;

use crate::estimate::Estimate;

/// A standard normal deviate (Box and Muller 1958).
pub(crate) fn normal(rng: &mut SeededRng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_uniform()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_uniform()).cos()
}

/// The share of 2000 estimates from fixed seeds whose intervals hold `truth`.
#[track_caller]
pub(crate) fn coverage(
    truth: f64,
    mut draw: impl FnMut(&mut SeededRng) -> Option<Estimate>,
) -> f64 {
    const DRAWS: u64 = 2_000;
    let held = (0..DRAWS)
        .filter(|&index| {
            let estimate = draw(&mut SeededRng::from_seed_and_index(0x1a7_9072, index))
                .expect("the draw is usable");
            !estimate.excludes(truth)
        })
        .count();
    held as f64 / DRAWS as f64
}

/// Checks that the share of intervals that hold `truth` is `confidence` to within 2%.
#[track_caller]
pub(crate) fn assert_coverage(
    confidence: f64,
    truth: f64,
    draw: impl FnMut(&mut SeededRng) -> Option<Estimate>,
) {
    let share = coverage(truth, draw);
    assert!((share - confidence).abs() <= 0.02, "{share} of the intervals hold the truth");
}
