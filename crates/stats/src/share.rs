//! A share of draws that were counted.

/// Of the standard normal distribution: 2.5% lie above it.
const Z: f64 = 1.959_963_985;

/// The 95% interval of a share, of which `count` of `draws` are evidence (Wilson, J. Am. Stat. Assoc. 22,
/// 1927): from 0 to 1, and all of that without draws.
pub fn wilson(count: u64, draws: u64) -> (f64, f64) {
    if draws == 0 {
        return (0.0, 1.0);
    }
    let n = draws as f64;
    let share = count as f64 / n;
    let center = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (((center - half) / scale).max(0.0), ((center + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_statsmodels() {
        // proportion_confint(count, nobs, method="wilson")
        check(2, 60, (0.009_189_319, 0.113_637_743));
        check(15, 62, (0.152_458_962, 0.361_525_075));
        check(5, 10, (0.236_593_091, 0.763_406_909));
    }

    #[test]
    fn none_and_all_are_at_an_end() {
        // z^2 / (n + z^2)
        let rest = Z * Z / (60.0 + Z * Z);
        check(0, 60, (0.0, rest));
        check(60, 60, (1.0 - rest, 1.0));
        check(0, 0, (0.0, 1.0));
    }

    fn check(count: u64, draws: u64, wanted: (f64, f64)) {
        let found = wilson(count, draws);
        let is_near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-6;
        assert!(is_near(found.0, wanted.0) && is_near(found.1, wanted.1), "{found:?}");
    }
}
