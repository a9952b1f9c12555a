//! Tests of data that grow, each time that they are looked at.

use crate::normal;

/// Steps of the integral over a joint chance, and how far above the limit it goes.
const STEPS: u32 = 160;
const REACH: f64 = 8.0;
/// Halvings of the range in which the limit lies.
const HALVINGS: u32 = 44;
/// A limit, in standard deviations, above every one that is asked for.
const HIGHEST: f64 = 40.0;

/// The chance of error that each look may have, so that all looks together err with a chance of at most `error` (0 to 1).
/// `sizes` are the numbers of observations at the looks, ascending. Without a second look it is `error` itself.
///
/// Each look is a two-sided test of the mean of all observations so far. Hunter's bound limits the chance that any look errs:
/// add the chances of all looks, and subtract the joint chance of each two neighbours ("An upper bound for the probability
/// of a union", Journal of Applied Probability 13, 1976). Joint chances are those of normal data. There, looks at m and n
/// observations have a correlation of √(m/n). A test below counts how often t tests err at this level.
pub fn look_error(sizes: &[u32], error: f64) -> f64 {
    if sizes.len() < 2 {
        return error;
    }
    let correlations: Vec<f64> =
        sizes.windows(2).map(|pair| (f64::from(pair[0]) / f64::from(pair[1])).sqrt()).collect();
    let union = |limit: f64| {
        let joint = correlations.iter().map(|&correlation| joint_error(limit, correlation));
        sizes.len() as f64 * two_sided(limit) - joint.sum::<f64>()
    };
    let (mut low, mut high) = (0.0, HIGHEST);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if union(middle) > error { low = middle } else { high = middle }
    }
    two_sided(high)
}

/// The chance that a standard normal value is farther than `limit` from 0.
fn two_sided(limit: f64) -> f64 {
    2.0 * normal::cdf(-limit)
}

/// The chance that two standard normal values of this correlation (0 to 1) are both beyond `limit`, on the same side.
///
/// Simpson's rule over the first: given `x`, the second is normal about `correlation * x`.
fn joint_error(limit: f64, correlation: f64) -> f64 {
    let spread = correlation.mul_add(-correlation, 1.0).max(0.0).sqrt();
    if spread == 0.0 {
        return two_sided(limit);
    }
    let step = REACH / f64::from(STEPS);
    let sum: f64 = (0..=STEPS)
        .map(|idx| {
            let x = f64::from(idx).mul_add(step, limit);
            let weight = match idx {
                0 | STEPS => 1.0,
                odd if odd % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * normal::pdf(x) * normal::cdf(correlation.mul_add(x, -limit) / spread)
        })
        .sum();
    2.0 * sum * step / 3.0
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;
    use statrs::distribution::{ContinuousCDF, StudentsT};

    use super::*;
    use crate::testing::normal as draw;

    const LOOKS: [u32; 7] = [4, 6, 9, 13, 19, 28, 42];

    #[test]
    fn single_look_has_the_whole_error() {
        assert!((look_error(&[7], 0.01) - 0.01).abs() < 1e-15);
        assert!((look_error(&[], 0.05) - 0.05).abs() < 1e-15);
        assert!((look_error(&[9, 9], 0.05) - 0.05).abs() < 1e-9, "the same data twice");
    }

    #[test]
    fn two_looks_have_the_published_level() {
        // Pocock's constants for two looks at equal distances are 2.178 at 5% and 2.772 at 1% (Jennison and Turnbull, "Group
        // Sequential Methods", 1999, table 2.1): with two looks the bound is exact.
        for (error, constant) in [(0.05, 2.178), (0.01, 2.772)] {
            let level = look_error(&[10, 20], error);
            assert!((level / two_sided(constant) - 1.0).abs() < 0.005, "{level} at {error}");
        }
    }

    #[test]
    fn ten_looks_stay_below_the_exact_level() {
        // The same table for ten looks: 2.555 and 3.117.
        let sizes: Vec<u32> = (1..=10).collect();
        for (error, constant) in [(0.05, 2.555), (0.01, 3.117)] {
            let level = look_error(&sizes, error);
            assert!(level < two_sided(constant) && level > error / 10.0, "{level} at {error}");
        }
    }

    #[test]
    fn t_tests_of_all_looks_err_rarely() {
        let error = 0.05;
        let level = look_error(&LOOKS, error);
        let limits = LOOKS.map(|size| {
            let t = StudentsT::new(0.0, 1.0, f64::from(size - 1)).unwrap();
            t.inverse_cdf(1.0 - level / 2.0)
        });
        let mut rng = SeededRng::from_seed(3);
        let draws = 20_000;
        let errs = |rng: &mut SeededRng| {
            let data: Vec<f64> = (0..LOOKS[LOOKS.len() - 1]).map(|_| draw(rng)).collect();
            LOOKS.iter().zip(limits).any(|(&size, limit)| {
                let seen = &data[..size as usize];
                let count = f64::from(size);
                let mean = seen.iter().sum::<f64>() / count;
                let squares: f64 = seen.iter().map(|it| (it - mean).powi(2)).sum();
                mean.abs() > limit * (squares / (count - 1.0) / count).sqrt()
            })
        };
        let wrong = (0..draws).filter(|_| errs(&mut rng)).count() as f64;
        // Three standard deviations of a binomial count.
        let most = error * f64::from(draws) + 3.0 * (error * f64::from(draws)).sqrt();
        assert!(wrong <= most, "{wrong} of {draws} at {error}");
        assert!(wrong > most / 2.0, "{wrong} of {draws}: the level gives errors away");
    }
}
