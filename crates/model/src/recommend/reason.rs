//! The reason for a recommendation, in two or three sentences with figures and intervals.

use std::collections::BTreeMap;

use latput_stats::contrast::middle;
use latput_stats::{Contrast, Estimate, Method};
use latput_trial::Metric;
use latput_trial::metric::{self, PreferredDirection, Scale};
use latput_units::text::{self, format_count};

use super::ProvenBy;
use super::comparison::correct_comparisons;
use super::condition::LimitCheck;
use super::{CorrectedComparison, GoalJudge, GoalVerdict, TestedClaim};
use crate::goal::{BoundSide, GoalCondition};
use crate::runs::AVERAGE;
use crate::words;

/// Most examples in one sentence.
const EXAMPLES: usize = 2;
/// Most settings that are named; more are counted.
const MOST_NAMED: usize = 6;

impl GoalJudge<'_> {
    pub(super) fn build_reason(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        verdict: &GoalVerdict,
    ) -> Vec<String> {
        let first_keeps = !kept[&0].iter().any(|kept| kept.broken);
        let sentences = match *verdict {
            GoalVerdict::Change { to, by: ProvenBy::Objective } => [
                self.describe_gain(to),
                self.describe_kept_limits(kept, to),
                self.describe_cost(to),
            ],
            GoalVerdict::Change { to, by: ProvenBy::Limit } => [
                self.describe_fixed_limits(kept, to),
                self.objective_beside(to),
                self.describe_cost(to),
            ],
            GoalVerdict::Stay { nearest } if first_keeps => {
                [self.nothing_better(kept, nearest), self.ruled_out(kept), String::new()]
            }
            GoalVerdict::Stay { nearest } => {
                [self.nothing_mended(kept, nearest), self.ruled_out(kept), String::new()]
            }
            GoalVerdict::NoneKeeps { nearest } => {
                [self.none_keeps(kept, nearest), String::new(), String::new()]
            }
        };
        sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect()
    }

    fn describe_gain(&self, to: usize) -> String {
        let first = self.quoted_label(0);
        let label = self.quoted_label(to);
        match self.objective_figures(to).as_str() {
            "" => format!("With {label} instead of {first} {}.", self.objective_change(to)),
            figures => format!("With {label} instead of {first}{figures}."), // the headline has the change
        }
    }

    fn nothing_better(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        nearest: Option<usize>,
    ) -> String {
        let first = self.quoted_label(0);
        let Some(nearest) = nearest else {
            let is_out = |setting: usize| kept[&setting].iter().any(|limit| limit.broken);
            return if self.other_settings().all(is_out) {
                format!("Stay with {first}: no other setting is left.")
            } else {
                format!("Stay with {first}: the settings that are left have no figures to compare.")
            };
        };
        format!("No setting is proven better than {first}. {}", self.describe_closest(nearest))
    }

    /// `Closest: 200us. p99 +4.8%, anywhere from -16 to +31%: no difference shown.`
    fn describe_closest(&self, nearest: usize) -> String {
        let label = &self.labels[nearest];
        let name = self.objective_column();
        let ratios = self.objective_ratios();
        let Some(ratio) = &ratios[&nearest].ratio else {
            return format!("Closest: {label}. No pair of figures to compare.");
        };
        let change = text::signed_change(ratio.value);
        if ratio.method == Method::Single {
            return format!("Closest: {label}. {name} {change} in one block, without an interval.");
        }
        let interval = text::signed_interval(ratio.low, ratio.high);
        if ratio.excludes(1.0) {
            return format!("Closest: {label}. {name} {change}, {interval}: proven worse.");
        }
        format!("Closest: {label}. {name} {change}, anywhere from {interval}: no difference shown.")
    }

    /// The first setting's broken conditions, and the improvement of `to` in each.
    fn describe_fixed_limits(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        to: usize,
    ) -> String {
        let mended = self.broken_by_first(kept).into_iter().map(|(broken, comparisons)| {
            let figures = self.against_first(to, (broken.workload, broken.metric));
            let change = comparison_words(&comparisons[&to]);
            format!(
                "{}. {} has {figures}, {change}",
                self.missed_words(broken),
                self.quoted_label(to)
            )
        });
        format!("{} is {}.", self.quoted_label(0), join_examples(mended))
    }

    fn nothing_mended(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        nearest: Option<usize>,
    ) -> String {
        let first = self.quoted_label(0);
        let broken = self.broken_by_first(kept);
        let words = join_examples(broken.iter().map(|(broken, _)| self.missed_words(broken)));
        let Some(nearest) = nearest else {
            return format!(
                "{first} is {words}. Stay with it: no setting that keeps the limits has all figures."
            );
        };
        let changes = broken.iter().map(|(broken, comparisons)| {
            let figures = self.against_first(nearest, (broken.workload, broken.metric));
            format!("{figures}, {}", comparison_words(&comparisons[&nearest]))
        });
        format!(
            "{first} is proven {words}. Stay with it: no setting is proven to do better. Closest: {}, with {}.",
            self.quoted_label(nearest),
            join_examples(changes),
        )
    }

    fn objective_beside(&self, to: usize) -> String {
        format!("The limit is proven, the objective is not: {}.", self.objective_change(to))
    }

    /// `It keeps COND in tcp_stream (9.56 Gbit/s: 98.2 to 101% of it).` Conditions without proof
    /// are named as not proven.
    fn describe_kept_limits(
        &self,
        kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>,
        setting: usize,
    ) -> String {
        if self.goal.conditions.is_empty() {
            return String::new();
        }
        if kept[&setting].is_empty() {
            return "No workload has the figures of the goal's limits.".to_owned();
        }
        let of_condition = |condition: &GoalCondition, is_proven: bool| {
            let own = kept[&setting].iter().filter(|kept| kept.condition == condition);
            let own = own.filter(|kept| kept.proven == is_proven);
            let words: Vec<String> = own
                .map(|kept| {
                    let (value, workload) =
                        (self.format_value(setting, kept), self.quoted_workload(kept.workload));
                    format!("{workload} ({value}: {})", self.interval_words(kept))
                })
                .collect();
            (!words.is_empty())
                .then(|| format!("`{condition}` in {}", join_examples(words.into_iter())))
        };
        let all = |is_proven| {
            let words = self.goal.conditions.iter().filter_map(|one| of_condition(one, is_proven));
            join_examples(words)
        };
        let proven = Some(all(true)).filter(|words| !words.is_empty());
        let open = Some(all(false)).filter(|words| !words.is_empty());
        let proven = proven.map(|words| format!("It keeps {words}."));
        let open = open.map(|words| format!("It is not proven to keep {words}."));
        proven.into_iter().chain(open).collect::<Vec<_>>().join(" ")
    }

    /// `The limit rules out 50us, 125us and 500us (4.3 to 26.9% short).`
    fn ruled_out(&self, kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>) -> String {
        let others = kept.iter().filter(|(setting, _)| **setting != 0);
        let broken: Vec<(usize, &LimitCheck<'_>)> =
            others.filter_map(|(setting, kept)| Some((*setting, worst_limit(kept)?))).collect();
        let labels: Vec<String> =
            broken.iter().map(|(setting, _)| self.quoted_label(*setting)).collect();
        let labels = match labels.as_slice() {
            [] => return String::new(),
            [only] => only.clone(),
            all if all.len() > MOST_NAMED => format!("{} settings", all.len()),
            [all @ .., last] => format!("{} and {last}", all.join(", ")),
        };
        let limits =
            if self.goal.conditions.len() == 1 { "The limit rules" } else { "The limits rule" };
        format!("{limits} out {labels}{}.", how_far(broken.iter().map(|(_, kept)| *kept)))
    }

    fn none_keeps(&self, kept: &BTreeMap<usize, Vec<LimitCheck<'_>>>, nearest: usize) -> String {
        let words = worst_limit(&kept[&nearest]).map_or_else(
            || "without the objective's figures".to_owned(),
            |kept| self.missed_words(kept),
        );
        format!(
            "Stay with {}: no setting keeps every limit. Closest: {}, {words}.",
            self.quoted_label(0),
            self.quoted_label(nearest),
        )
    }

    /// The largest proven loss in any workload's rate, tail or CPU cost.
    fn describe_cost(&self, to: usize) -> String {
        let workloads = self.results.workloads.iter().enumerate();
        let (figures, logs): (Vec<_>, Vec<_>) = workloads
            .flat_map(|(workload, spec)| {
                let generator = [Metric::GeneratorServiceDemandUs];
                let own = self.runs.custom_metrics(workload);
                let all = spec.traffic.facts().judged.into_iter().chain(generator).chain(own);
                all.map(move |metric| (workload, metric))
            })
            .filter_map(|(workload, metric)| {
                let logs = self.figure_logs(to, workload, metric)?;
                logs.center().is_some().then_some(((workload, metric), Some(logs)))
            })
            .unzip();
        let compared = correct_comparisons(logs, TestedClaim::Differs, self.confidence);
        let loss = |((workload, metric), comparison): (&(usize, Metric), CorrectedComparison)| {
            let ratio = comparison.ratio?;
            let log = ratio.value.ln();
            let loss =
                if metric.preferred_direction() == PreferredDirection::Higher { -log } else { log };
            let change = words::format_change(ratio.value);
            let interval = words::format_interval(&ratio);
            let words =
                format!("{metric} in {} is {change} ({interval})", self.quoted_workload(*workload));
            (loss > 0.0).then_some((comparison.proven, loss, words))
        };
        let losses = figures.iter().zip(compared).filter_map(loss);
        // A proven loss comes before all others.
        match losses.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))) {
            Some((true, _, words)) => format!("Largest proven cost: {words}."),
            Some((false, _, words)) => format!(
                "None of {} (rates, p99, CPU cost) is proven worse. Worst estimate: {words}.",
                format_count(figures.len(), "other figure")
            ),
            None => String::new(),
        }
    }

    /// The objective's change against the first setting: `latency_ns_p99 is 42% lower (interval ...)`.
    pub(super) fn objective_change(&self, setting: usize) -> String {
        let comparison = &self.objective_ratios()[&setting];
        format!("{} is {}", self.objective_name(), comparison_words(comparison))
    }

    /// `latency_ns_p99 (geometric mean over workloads)`.
    pub(super) fn objective_name(&self) -> String {
        let names: Vec<&str> =
            self.goal.objective.iter().map(|figure| figure.measure.name()).collect();
        let cells: usize = self.objective.iter().map(Vec::len).sum();
        let mean = if cells > names.len() { " (geometric mean over workloads)" } else { "" };
        format!("{}{mean}", names.join(" x "))
    }

    /// `: 94.9 us against 109 us in tcp_rr (geometric means of 6 pairs)`: the figures that the ratio is made of, and
    /// with several workloads the ratio of each. Empty for a product, whose parts would need a sentence each.
    fn objective_figures(&self, setting: usize) -> String {
        let [cells] = self.objective.as_slice() else { return String::new() };
        let contrast = |&(workload, metric): &(usize, Metric)| {
            self.runs.contrast_pairs((0, setting), workload, metric, self.confidence)
        };
        let figures = cells.iter().map(|cell| {
            let change =
                contrast(cell).filter(|_| cells.len() > 1).map_or_else(String::new, |it| {
                    format!(", {}", words::format_change(it.ratio().value))
                });
            let figures = self.against_first(setting, *cell);
            format!("{figures} in {}{change}", self.quoted_workload(cell.0))
        });
        let figures = join_examples(figures);
        let of = match cells.as_slice() {
            [only] => contrast(only).map_or_else(String::new, |it| of_pairs(&it)),
            _ => " (geometric means)".to_owned(),
        };
        format!(": {figures}{of}")
    }

    /// `94.9 us against 109 us`: a setting's figure and the first one's, as they are compared.
    fn against_first(&self, setting: usize, (workload, metric): (usize, Metric)) -> String {
        let pairs = self.runs.paired_figures((0, setting), workload, metric).into_values();
        let Some((first, own)) = middle(&pairs.collect::<Vec<_>>(), AVERAGE) else {
            return "no pair of figures".to_owned();
        };
        let scale =
            Scale::choose(metric, &self.results.workloads[workload].traffic, own.max(first));
        let [own, first] = [own, first].map(|value| scale.with_unit(value));
        format!("{own} against {first}")
    }

    /// `10% short of COND (3.91 of 4.34 Gbit/s in tcp_stream)`.
    pub(super) fn missed_words(&self, kept: &LimitCheck<'_>) -> String {
        let quantity = |value: Option<f64>| {
            value.map_or_else(
                || "nothing".to_owned(),
                |v| self.format_quantity(kept.workload, kept.metric, v),
            )
        };
        let value = quantity(kept.value);
        let limit = quantity(kept.limit);
        let missed = missed_ratio(kept).map_or_else(
            || "not known to keep".to_owned(),
            |missed| match kept.condition.bound {
                BoundSide::AtLeast => format!("{} short of", words::format_percent(missed)),
                BoundSide::AtMost => format!("{} over", words::format_percent(missed)),
            },
        );
        let condition = kept.condition;
        let workload = self.quoted_workload(kept.workload);
        format!("{missed} `{condition}` ({value} of {limit} in {workload})")
    }

    fn format_value(&self, setting: usize, kept: &LimitCheck<'_>) -> String {
        self.estimate_figure(setting, kept.workload, kept.metric).map_or_else(
            || "nothing".to_owned(),
            |e| self.format_quantity(kept.workload, kept.metric, e.value),
        )
    }

    fn format_quantity(&self, workload: usize, metric: Metric, value: f64) -> String {
        metric::quantity(metric, &self.results.workloads[workload].traffic, value)
    }

    /// The evidence that a limit is kept: `98.2 to 101% of it`, `58.1 us to 62.3 us`.
    fn interval_words(&self, kept: &LimitCheck<'_>) -> String {
        match &kept.interval {
            Some(ratio) if kept.condition.reference.is_some() => {
                let low = words::format_percent(ratio.low);
                format!(
                    "{} to {} of it",
                    low.trim_end_matches('%'),
                    words::format_percent(ratio.high)
                )
            }
            Some(own) => {
                let [low, high] = [own.low, own.high]
                    .map(|end| self.format_quantity(kept.workload, kept.metric, end));
                format!("{low} to {high}")
            }
            None if kept.proven => "it is the reference".to_owned(),
            None => "no interval".to_owned(),
        }
    }

    pub(super) fn quoted_label(&self, setting: usize) -> String {
        format!("`{}`", self.labels[setting])
    }

    fn quoted_workload(&self, workload: usize) -> String {
        format!("`{}`", self.results.workloads[workload].name)
    }
}

/// ` (geometric means of 6 pairs)`, or `of 6 of 8 pairs` where outliers are left out.
fn of_pairs(contrast: &Contrast) -> String {
    let (used, all) = (contrast.used(), contrast.ratio().runs);
    let left_out = if used == all { String::new() } else { format!("{used} of ") };
    format!(" (geometric means of {left_out}{})", format_count(all, "pair"))
}

/// The condition that is missed by the most.
fn worst_limit<'a, 'k>(kept: &'a [LimitCheck<'k>]) -> Option<&'a LimitCheck<'k>> {
    let broken = kept.iter().filter(|kept| kept.broken);
    broken.max_by(|a, b| a.miss_distance().total_cmp(&b.miss_distance()))
}

/// Distance of a figure on the wrong side, as a share of its limit; `None` if either is unknown.
fn missed_ratio(kept: &LimitCheck<'_>) -> Option<f64> {
    let (value, limit) = kept.value.zip(kept.limit)?;
    (limit > 0.0).then(|| (value / limit - 1.0).abs())
}

/// ` (4.3 to 26.9% short)`; empty where it is unknown or the conditions limit different sides.
fn how_far<'a, 'k: 'a>(broken: impl Iterator<Item = &'a LimitCheck<'k>> + Clone) -> String {
    let side = |bound| match bound {
        BoundSide::AtLeast => "short",
        BoundSide::AtMost => "over",
    };
    let mut sides: Vec<&str> = broken.clone().map(|kept| side(kept.condition.bound)).collect();
    sides.dedup();
    let missed: Option<Vec<f64>> = broken.map(missed_ratio).collect();
    let (Some(missed), [side]) = (missed, sides.as_slice()) else { return String::new() };
    let least = words::format_percent(missed.iter().copied().fold(f64::INFINITY, f64::min));
    let most = words::format_percent(missed.iter().copied().fold(0.0, f64::max));
    if least == most {
        return format!(" ({most} {side})");
    }
    format!(" ({} to {most} {side})", least.trim_end_matches('%'))
}

fn comparison_words(comparison: &CorrectedComparison) -> String {
    let has_interval = |ratio: &&Estimate| ratio.method != Method::Single;
    match &comparison.ratio {
        None => "without a ratio to compare".to_owned(),
        Some(ratio) => {
            let interval = Some(ratio)
                .filter(has_interval)
                .map_or_else(|| "one block, no interval".to_owned(), words::format_interval);
            format!("{} ({interval})", words::format_change(ratio.value))
        }
    }
}

/// The first few of `parts`, and the number of the others.
fn join_examples(parts: impl Iterator<Item = String>) -> String {
    let mut parts: Vec<String> = parts.collect();
    let more = parts.len().saturating_sub(EXAMPLES);
    parts.truncate(EXAMPLES);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests;
