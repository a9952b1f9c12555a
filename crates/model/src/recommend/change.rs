//! The change of the objective under each setting, as the answer weighs it.

use std::collections::{BTreeMap, BTreeSet};

use latput_stats::Estimate;
use latput_trial::Metric;
use latput_units::IntoSet;

use super::condition::LimitCheck;
use super::{CorrectedComparison, GoalJudge, banned_settings};

/// How the objective of one setting compares with the first setting's.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveChange {
    /// Index into the settings.
    pub setting: usize,
    /// The ratio to the first setting's in each workload of the objective, by the workload's index: the geometric mean
    /// over the blocks that have both. Their geometric mean is the value of `ratio`.
    pub by_workload: BTreeMap<usize, f64>,
    /// The ratio that decides, over all workloads, with the interval at the confidence of the decision; `None` where no
    /// block has both settings, or a figure was 0.
    pub ratio: Option<Estimate>,
    /// Verdict on the setting.
    pub verdict: SettingVerdict,
}

/// Verdict of the runs on a setting, beside the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingVerdict {
    /// Live traffic broke a guard under it.
    Banned,
    /// The objective is proven better.
    Better,
    /// The objective is proven worse.
    Worse,
    /// It is proven short of a limit of the goal.
    ShortOfLimit,
    /// It lacks a figure of the objective or of a limit.
    Unmeasured,
    /// Neither better nor worse is proven.
    Open,
}

impl SettingVerdict {
    /// The verdict in words, as tables and JSON have it.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Banned => "banned for breaking a guard",
            Self::Better => "proven better",
            Self::Worse => "proven worse",
            Self::ShortOfLimit => "proven short of a limit of the goal",
            Self::Unmeasured => "figures are missing",
            Self::Open => "no difference shown",
        }
    }

    /// Whether the setting cannot be the answer, whatever noise hides.
    pub(super) const fn is_out(self) -> bool {
        matches!(self, Self::Banned | Self::Worse | Self::ShortOfLimit)
    }
}

impl GoalJudge<'_> {
    /// The change of every setting but the first, in their order.
    pub(super) fn objective_changes(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
    ) -> Vec<ObjectiveChange> {
        let ratios = self.objective_ratios();
        let banned = banned_settings(self.results);
        let change = |setting: usize| {
            let comparison = ratios.get(&setting);
            ObjectiveChange {
                setting,
                by_workload: self.ratios_by_workload(setting),
                ratio: comparison.and_then(|comparison| comparison.ratio.clone()),
                verdict: if banned.contains(&setting) {
                    SettingVerdict::Banned
                } else {
                    setting_verdict(comparison, &kept[&setting])
                },
            }
        };
        self.other_settings().map(change).collect()
    }

    /// Empty where a figure was 0.
    fn ratios_by_workload(&self, setting: usize) -> BTreeMap<usize, f64> {
        let workloads: BTreeSet<usize> =
            self.objective.iter().flatten().map(|(workload, _)| *workload).into_set();
        let Some(logs) = self.objective_logs(0, setting) else { return BTreeMap::new() };
        let ratios = workloads.into_iter().zip(logs.workload_ratios());
        ratios.filter_map(|(workload, ratio)| Some((workload, ratio?))).collect()
    }

    /// The objective as tables name it: `p99`, or the goal's names where it is made of several figures.
    pub(super) fn objective_column(&self) -> String {
        let metrics: BTreeSet<Metric> =
            self.objective.iter().flatten().map(|(_, metric)| *metric).into_set();
        match (self.objective.as_slice(), metrics.first()) {
            ([_], Some(metric)) if metrics.len() == 1 => metric.column().to_owned(),
            _ => self.objective_name(),
        }
    }
}

/// Verdict on a setting that is not banned.
fn setting_verdict(
    comparison: Option<&CorrectedComparison>,
    limits: &[LimitCheck<'_>],
) -> SettingVerdict {
    let ratio = comparison.and_then(|comparison| comparison.ratio.as_ref());
    let is_proven = comparison.is_some_and(|comparison| comparison.proven);
    if !is_proven && ratio.is_some_and(|ratio| ratio.excludes(1.0)) {
        SettingVerdict::Worse
    } else if limits.iter().any(|limit| limit.broken && limit.value.is_some()) {
        SettingVerdict::ShortOfLimit
    } else if ratio.is_none() || limits.iter().any(|limit| limit.broken) {
        SettingVerdict::Unmeasured
    } else if is_proven {
        SettingVerdict::Better
    } else {
        SettingVerdict::Open
    }
}
