//! The process where its algebra can be done by hand: two samples of two settings.

use std::collections::BTreeSet;

use super::*;

/// Matern 5/2 at one length, by scikit-learn: `Matern(length_scale=1, nu=2.5)([[0]], [[1]])`.
const AT_ONE_LENGTH: f64 = 0.523_994_108_831_820_3;

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-8
}

fn make_space(levels: &[usize]) -> SearchSpace {
    let axis = |&levels: &usize| SearchAxis {
        levels,
        is_ordered: true,
        apart: None,
        is_disruptive: false,
    };
    SearchSpace::new(levels.iter().map(axis).collect(), BTreeSet::new()).unwrap()
}

fn make_scales(lengths: &[f64]) -> Hyperparameters {
    Hyperparameters {
        alone: 0.3,
        together: 0.4,
        block: 0.1,
        noise: 0.05,
        lengths: lengths.to_vec(),
    }
}

#[test]
fn covariance_combines_axis_correlations() {
    let space = make_space(&[11, 3]);
    let kernel = CovarianceKernel::new(&space, &make_scales(&[0.5, 1.0]));
    assert!(is_near(kernel.variance(), 0.09 + 0.16));
    assert!(is_near(kernel.covariance(&[3, 1], &[3, 1]), 0.25));
    // Half of an axis is one length of the first; all of it one length of the second.
    let there = 0.97 * AT_ONE_LENGTH;
    let expected = 0.045 * (there + 1.0) + 0.16 * there;
    assert!(is_near(kernel.covariance(&[0, 1], &[5, 1]), expected));
    let expected = 0.045 * 2.0 * there + 0.16 * there * there;
    assert!(is_near(kernel.covariance(&[5, 2], &[0, 0]), expected));
}

/// Samples of settings 0 and 5 of a line of 11, with these values.
fn make_samples(values: [f64; 2], blocks: [u32; 2]) -> Vec<RunSample> {
    let sample = |(setting, value, block)| RunSample { setting, block, value };
    [(0, values[0], blocks[0]), (5, values[1], blocks[1])].map(sample).to_vec()
}

fn make_fit<'a>(
    space: &'a SearchSpace,
    samples: &'a [RunSample],
    levels: &'a [Vec<usize>],
    values: &'a [f64],
) -> SurrogateFit<'a> {
    SurrogateFit { space, samples, levels, values, weights: vec![1.0; samples.len()] }
}

#[test]
fn belief_of_two_samples_matches_closed_form() {
    let space = make_space(&[11]);
    for (blocks, shared) in [([0, 1], 0.0), ([2, 2], 0.01)] {
        let samples = make_samples([1.0, 1.4], blocks);
        let levels = vec![vec![0], vec![5]];
        let solved =
            make_fit(&space, &samples, &levels, &[1.0, 1.4]).evaluate_scales(&make_scales(&[0.5]));
        // Variance of a value, and covariance of the two.
        let (own, both) = (0.25, 0.25 * 0.97 * AT_ONE_LENGTH);
        let (k, c) = (own + 0.01 + 0.0025 + NUGGET, both + shared);
        assert!(is_near(solved.mean, 1.2), "by symmetry");
        assert!(is_near(solved.pull[0], -0.2 / (k - c)) && is_near(solved.pull[1], 0.2 / (k - c)));
        let log_determinant = 0.5 * (k * k - c * c).ln();
        let likelihood = -0.2 * 0.2 / (k - c) - log_determinant;
        let prior =
            make_fit(&space, &samples, &levels, &[1.0, 1.4]).log_prior(&make_scales(&[0.5]));
        assert!(is_near(solved.evidence, likelihood + prior));
        let ProcessSolution { factor, pull, mean, kernel, .. } = solved;
        let scales = make_scales(&[0.5]);
        let surrogate = Surrogate { space: &space, levels, mean, scales, kernel, factor, pull };
        let places = [0, 5].map(|setting| surrogate.belief_with_covariance(setting));
        let moved = 0.2 * (own - both) / (k - c);
        assert!(is_near(places[0].belief.mean, 1.2 - moved));
        assert!(is_near(places[1].belief.mean, 1.2 + moved));
        let [sum, difference] = [own + both, own - both].map(|part| part * part);
        let [sum, difference] = [sum / (k + c) / 2.0, difference / (k - c) / 2.0];
        let deviation = (own - sum - difference).sqrt();
        assert!(is_near(places[0].belief.deviation, deviation));
        let covariance = both - sum + difference;
        assert!(is_near(surrogate.covariance(&places[0], &places[1]), covariance));
        // The factor of the joint belief, times itself; a millionth of the variance keeps it positive.
        let (means, joint) = surrogate.joint_belief(&[0, 5]);
        assert!(is_near(means[0], 1.2 - moved) && is_near(means[1], 1.2 + moved));
        let rows = joint.rows();
        let jitter = 1e-6 * own + NUGGET;
        assert!(is_near(dot(&rows[0], &rows[0]), deviation.powi(2) + jitter));
        assert!(is_near(rows[0][0] * rows[1][0], covariance));
        assert!(is_near(surrogate.run_noise(), 0.05));
    }
}

#[test]
fn priors_are_log_normal_around_usual_scales() {
    let space = make_space(&[11]);
    let samples = make_samples([1.0, 1.4], [0, 1]);
    let levels = [vec![0], vec![5]];
    let fit = make_fit(&space, &samples, &levels, &[1.0, 1.4]);
    // The standard deviation of 1.0 and 1.4 is 0.2.
    let usual = Hyperparameters {
        alone: 0.14,
        together: 0.14,
        block: 0.03,
        noise: 0.03,
        lengths: vec![0.8],
    };
    assert!(is_near(fit.log_prior(&usual), 0.0));
    let e = std::f64::consts::E;
    for (at, width) in [(0, 1.0), (1, 1.0), (2, 0.8), (3, 1.0), (4, 1.0_f64)] {
        for factor in [e, 1.0 / e] {
            let mut other = usual.clone();
            *other.scale_mut(at) *= factor;
            assert!(is_near(fit.log_prior(&other), -0.5 / width.powi(2)), "{at}");
        }
    }
    let first = fit.first_scales();
    assert!(is_near(first.alone, 0.14) && is_near(first.together, 0.14));
}

#[test]
fn outlier_has_students_t_weight() {
    let space = make_space(&[11]);
    let samples = make_samples([1.0, 1.4], [0, 1]);
    let levels = [vec![0], vec![5]];
    let mut fit = make_fit(&space, &samples, &levels, &[1.0, 1.4]);
    let scales = make_scales(&[0.5]);
    let mut solved = fit.evaluate_scales(&scales);
    // Residuals of three and of a half standard deviation: 3 / 0.05, and 0.5 / 0.05.
    solved.pull = vec![60.0, -10.0];
    fit.downweight_outliers(&solved, &scales);
    assert!(is_near(fit.weights[0], 5.0 / 13.0) && is_near(fit.weights[1], 1.0));
    // The noise of a run counts by its weight.
    fit.downweight_outliers(&solved, &scales);
    let far = (3.0_f64 * 13.0 / 5.0).powi(2);
    assert!(is_near(fit.weights[0], 5.0 / (4.0 + far)));
    let light = fit.evaluate_scales(&scales);
    let variance = 0.25 + 0.01 + 0.0025 / fit.weights[0] + NUGGET;
    assert!(is_near(light.factor.rows()[0][0], variance.sqrt()));
}

#[test]
fn better_scales_have_more_evidence() {
    let space = make_space(&[11]);
    let samples: Vec<RunSample> = (0..11)
        .map(|setting| RunSample {
            setting,
            block: 0,
            value: 0.02 * (setting as f64 - 5.0).powi(2),
        })
        .collect();
    let levels: Vec<Vec<usize>> = (0..11).map(|level| vec![level]).collect();
    let values: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
    let fit = make_fit(&space, &samples, &levels, &values);
    let first = fit.first_scales();
    let [one, three] = [1, 3]
        .map(|rounds| fit.evaluate_scales(&fit.maximize_evidence(first.clone(), rounds)).evidence);
    let begun = fit.evaluate_scales(&first).evidence;
    assert!(begun + 1.0 < one && one <= three, "{begun} {one} {three}");
    assert_eq!(fit.maximize_evidence(first.clone(), 0), first);
}

#[test]
fn spread_is_without_the_outer_tenths() {
    assert!(is_near(trimmed_deviation(&[1.0, 2.0, 3.0, 4.0]), 1.25_f64.sqrt()));
    // numpy: std of 2..=9 is sqrt(5.25); 0 and 1000 are cut.
    let mut values: Vec<f64> = (2..10).map(f64::from).collect();
    values.extend([1000.0, 0.0]);
    assert!(is_near(trimmed_deviation(&values), 5.25_f64.sqrt()));
}
