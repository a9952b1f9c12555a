//! The result of a fit: costs with intervals, fixed combinations of costs, and errors of
//! predictions.

use latput_stats::order::quantile_of_sorted;

use crate::parameter::Parameter;

/// A fitted cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedCost {
    /// The cost.
    pub parameter: Parameter,
    /// Its value, in the parameter's unit.
    pub value: f64,
    /// Lower end of its 90% interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl FittedCost {
    /// The cost as a comment line of a profile file.
    pub fn to_comment(&self) -> String {
        let Self { parameter, value, low, high } = self;
        let unit = parameter.unit();
        format!("#   {parameter:<11} {value:>9.2} {unit:<7} {low:.2} to {high:.2}\n")
    }
}

/// A product of powers of costs.
#[derive(Clone, Debug, PartialEq)]
pub struct CostCombination {
    /// Relative standard deviation with which the figures fix it.
    pub deviation_ratio: f64,
    /// Exponents, in the order of the costs.
    pub weights: Vec<f64>,
}

/// Summary of absolute relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorSummary {
    /// Number of figures.
    pub count: usize,
    /// Median, ratio.
    pub median: f64,
    /// 90th percentile, ratio.
    pub p90: f64,
}

impl ErrorSummary {
    /// Summarises relative errors of any sign; `None` without any.
    pub fn from_errors(errors: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut absolute: Vec<f64> = errors.into_iter().map(f64::abs).collect();
        absolute.sort_by(f64::total_cmp);
        let at = |quantile| quantile_of_sorted(&absolute, quantile);
        Some(Self { count: absolute.len(), median: at(0.5)?, p90: at(0.9)? })
    }
}
