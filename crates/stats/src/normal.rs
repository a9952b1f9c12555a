//! The standard normal distribution.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// The chance that a standard normal value is below `z`.
pub fn cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// The density at `z`.
pub fn pdf(z: f64) -> f64 {
    Normal::standard().pdf(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        assert!((cdf(0.0) - 0.5).abs() < 1e-12);
        assert!((cdf(1.959_963_985) - 0.975).abs() < 1e-9);
        assert!((pdf(0.0) - 0.398_942_280).abs() < 1e-9);
    }
}
