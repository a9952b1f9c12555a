//! Properties of a curve over delays: its best, its plateau and the onset of its loss.

/// A figure by delay in units, in order of delays.
pub(super) type Curve = Vec<(u64, f64)>;

/// A rate below this share of the best counts as a loss.
pub(super) const KEPT: f64 = 0.95;
/// A rate of at least this share of the best counts as the best.
pub(super) const BEST: f64 = 0.997;

pub(super) fn max_value(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|point| point.1).fold(0.0, f64::max)
}

pub(super) fn min_value(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|point| point.1).fold(f64::MAX, f64::min)
}

/// The first and last delay with a rate as good as the best.
pub(super) fn find_plateau(curve: &[(u64, f64)]) -> (u64, u64) {
    let mut good =
        curve.iter().filter(|point| point.1 >= BEST * max_value(curve)).map(|point| point.0);
    let first = good.next().unwrap_or(u64::MAX);
    (first, good.next_back().unwrap_or(first))
}

/// The first delay after the best rate with a loss of a twentieth.
pub(super) fn find_loss_onset(curve: &[(u64, f64)]) -> Option<u64> {
    let mut best: f64 = 0.0;
    for (delay, rate) in curve {
        best = best.max(*rate);
        if *rate < KEPT * best && best >= BEST * max_value(curve) {
            return Some(*delay);
        }
    }
    None
}

/// The first delay with a cost within 1% of the least.
pub(super) fn find_cheapest_delay(curve: &[(u64, f64)]) -> u64 {
    let is_least = |point: &&(u64, f64)| point.1 <= 1.01 * min_value(curve);
    curve.iter().find(is_least).map_or(u64::MAX, |point| point.0)
}

pub(super) fn value_at(curve: &[(u64, f64)], delay: u64) -> f64 {
    curve.iter().find(|point| point.0 == delay).expect("a delay of the grid").1
}

pub(super) fn is_near(seen: u64, published: f64) -> bool {
    let seen = seen as f64;
    (published / 2.0..=2.0 * published).contains(&seen)
}

/// Whether a range of delays comes within a factor of two of the published one.
pub(super) fn is_range_near((first, last): (u64, u64), published: f64) -> bool {
    first as f64 <= 2.0 * published && last as f64 >= published / 2.0
}

pub(super) fn never_rises(curve: &[(u64, f64)], slack: f64) -> bool {
    curve.windows(2).all(|pair| pair[1].1 <= pair[0].1 + slack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_follows_best_and_plateau_has_ends() {
        let curve = [(10, 90.0), (20, 99.9), (40, 100.0), (80, 96.0), (160, 90.0)];
        assert_eq!(find_plateau(&curve), (20, 40));
        assert_eq!(find_loss_onset(&curve), Some(160));
        assert_eq!(find_loss_onset(&curve[..4]), None);
        assert!(is_range_near((20, 40), 80.0) && !is_range_near((20, 40), 90.0));
        assert!(is_near(160, 320.0) && !is_near(159, 320.0));
        assert!(never_rises(&[(10, 5.0), (20, 5.2), (40, 4.0)], 0.3));
        assert_eq!(find_cheapest_delay(&[(10, 5.0), (20, 4.03), (40, 4.0)]), 20);
    }
}
