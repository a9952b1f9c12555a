//! Whether a setting keeps a goal's conditions, and how sure that is.

use std::collections::BTreeMap;

use latput_stats::{Estimate, Method};
use latput_trial::Metric;
use latput_trial::metric::Better;

use super::Judge;
use crate::goal::{Bound, Condition, Reference};

/// One condition on one setting in one workload.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    pub(super) condition: &'a Condition,
    pub(super) workload: usize,
    pub(super) metric: Metric,
    /// The setting's figure; `None` if it was not measured.
    pub(super) value: Option<f64>,
    /// What it must keep, in the metric's unit; `None` if the reference was not measured.
    pub(super) limit: Option<f64>,
    /// Whether the figure keeps it.
    pub(super) met: bool,
    /// Whether its interval proves that.
    pub(super) proven: bool,
    /// The interval that this rests on: of the figure's ratio to the reference's, or of the figure
    /// where the limit stands for itself. `None` where there is no interval, or the setting is itself
    /// the reference.
    pub(super) interval: Option<Estimate>,
}

impl Kept<'_> {
    /// How far the figure is on the wrong side of its limit, as the logarithm of a ratio; 0 if it is
    /// on the right one.
    pub(super) fn missed_by(&self) -> f64 {
        match (self.met, self.value, self.limit) {
            (true, ..) => 0.0,
            (false, Some(value), Some(limit)) if value > 0.0 && limit > 0.0 => {
                (value / limit).ln().abs()
            }
            _ => f64::INFINITY,
        }
    }
}

impl<'a> Judge<'a> {
    /// Every setting with every condition in every workload that has its figure. A condition on a
    /// named workload that nobody measured is an error; one on all workloads is empty then.
    pub(super) fn kept(&self) -> Result<BTreeMap<usize, Vec<Kept<'a>>>, String> {
        let settings = 0..self.results.settings.len();
        let mut kept: BTreeMap<usize, Vec<Kept>> =
            settings.clone().map(|setting| (setting, Vec::new())).collect();
        for condition in &self.goal.conditions {
            let mut cells = condition.figure.of(&self.results.workloads);
            let measured = |setting, (workload, metric)| {
                !self.runs.figures(setting, workload, metric).is_empty()
            };
            cells.retain(|&cell| settings.clone().any(|setting| measured(setting, cell)));
            if cells.is_empty() && condition.figure.workload.is_some() {
                return Err(format!("no run has {}", condition.figure));
            }
            for (workload, metric) in cells {
                let reference = self.reference(condition, workload, metric);
                for (&setting, kept) in &mut kept {
                    kept.push(self.judge(condition, (workload, metric), setting, reference));
                }
            }
        }
        Ok(kept)
    }

    /// The setting that a condition's number is a share of.
    fn reference(&self, condition: &Condition, workload: usize, metric: Metric) -> Option<usize> {
        let value = |setting| Some(self.estimate(setting, workload, metric)?.value);
        match condition.reference? {
            Reference::First => Some(0),
            Reference::Best => {
                let cost =
                    |value: f64| if metric.better() == Better::Higher { -value } else { value };
                let settings = 0..self.results.settings.len();
                let costs = settings.filter_map(|setting| Some((setting, cost(value(setting)?))));
                costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(setting, _)| setting)
            }
        }
    }

    fn judge(
        &self,
        condition: &'a Condition,
        (workload, metric): (usize, Metric),
        setting: usize,
        reference: Option<usize>,
    ) -> Kept<'a> {
        let estimate = |setting| self.estimate(setting, workload, metric);
        let keeps = |figure: f64, limit: f64| match condition.bound {
            Bound::AtLeast => figure >= limit,
            Bound::AtMost => figure <= limit,
        };
        let number = condition.number;
        let value = estimate(setting).map(|estimate| estimate.value);
        let limit = match condition.reference {
            None => Some(number),
            Some(_) => reference.and_then(estimate).map(|reference| reference.value * number),
        };
        let met = value.zip(limit).is_some_and(|(value, limit)| keeps(value, limit));
        let interval = match reference {
            Some(reference) if reference == setting => None,
            Some(reference) => {
                self.runs.ratio((reference, setting), workload, metric, self.results.confidence)
            }
            None => estimate(setting),
        };
        let interval = interval.filter(|interval| interval.method != Method::Single);
        let is_reference = reference == Some(setting);
        let end_keeps = interval.as_ref().is_some_and(|interval| match condition.bound {
            Bound::AtLeast => keeps(interval.low, number),
            Bound::AtMost => keeps(interval.high, number),
        });
        let proven = met && if is_reference { keeps(1.0, number) } else { end_keeps };
        Kept { condition, workload, metric, value, limit, met, proven, interval }
    }
}
