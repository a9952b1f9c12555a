//! The reason for a recommendation, in two or three sentences with figures and intervals.

use std::collections::BTreeMap;

use latput_stats::{Estimate, Method};
use latput_trial::Metric;
use latput_trial::metric::Better;

use super::condition::Kept;
use super::{Comparison, Judge, Verdict};
use crate::goal::Bound;
use crate::summary::headline;
use crate::words;

/// More examples than this are not spelled out in one sentence.
const EXAMPLES: usize = 3;

impl Judge<'_> {
    pub(super) fn reason(
        &self,
        kept: &BTreeMap<usize, Vec<Kept<'_>>>,
        verdict: &Verdict,
    ) -> Vec<String> {
        let first_keeps = kept[&0].iter().all(|kept| kept.met);
        let sentences = match *verdict {
            Verdict::Change { to } if first_keeps => {
                [self.better(to), self.keeping(kept, to), self.cost(to)]
            }
            Verdict::Change { to } => {
                [self.mended(kept, to), self.objective_beside(to), self.cost(to)]
            }
            Verdict::Stay { nearest } if first_keeps => {
                [self.nothing_better(nearest), self.ruled_out(kept), String::new()]
            }
            Verdict::Stay { nearest } => {
                [self.nothing_mended(kept, nearest), self.ruled_out(kept), String::new()]
            }
            Verdict::NoneKeeps { nearest } => {
                [self.none_keeps(kept, nearest), String::new(), String::new()]
            }
        };
        sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect()
    }

    fn better(&self, to: usize) -> String {
        let (first, label) = (self.label(0), self.label(to));
        let change = self.objective_change(to);
        format!("With {label} instead of {first}, {change}: {}.", self.objective_figures(to))
    }

    fn nothing_better(&self, nearest: Option<usize>) -> String {
        let first = self.label(0);
        let Some(nearest) = nearest else {
            return format!(
                "Stay with {first}: no other setting that keeps the conditions has figures to compare."
            );
        };
        let nature = if self.objective_ratios()[&nearest].proven {
            "the next best is proven worse"
        } else {
            "the nearest is not proven to differ"
        };
        format!(
            "No setting is proven better than {first}, so stay with it; {nature}: with {}, {}, {}.",
            self.label(nearest),
            self.objective_change(nearest),
            self.objective_figures(nearest),
        )
    }

    /// The first setting's broken conditions, and by how much `to` is better there.
    fn mended(&self, kept: &BTreeMap<usize, Vec<Kept<'_>>>, to: usize) -> String {
        let mended = self.broken_by_first(kept).into_iter().map(|(broken, comparisons)| {
            let value = self.value(to, broken);
            let change = comparison_words(&comparisons[&to]);
            format!("{}; {} has {value}, {change}", self.kept_words(broken), self.label(to))
        });
        format!("{} does not keep the goal's conditions: {}.", self.label(0), listed(mended))
    }

    fn nothing_mended(
        &self,
        kept: &BTreeMap<usize, Vec<Kept<'_>>>,
        nearest: Option<usize>,
    ) -> String {
        let first = self.label(0);
        let broken = self.broken_by_first(kept);
        let words = listed(broken.iter().map(|(broken, _)| self.kept_words(broken)));
        let Some(nearest) = nearest else {
            return format!(
                "{first} does not keep the goal's conditions ({words}), and no setting that does was \
                 measured in full, so stay with it."
            );
        };
        let changes = broken.iter().map(|(broken, comparisons)| {
            format!("{}, {}", self.value(nearest, broken), comparison_words(&comparisons[&nearest]))
        });
        format!(
            "{first} does not keep the goal's conditions by its estimates ({words}), but no setting is \
             proven to do better there, so stay with it: the nearest, {}, has {}.",
            self.label(nearest),
            listed(changes),
        )
    }

    fn objective_beside(&self, to: usize) -> String {
        format!(
            "Of the settings that keep them and are proven better there it has the best objective by its \
             estimates: instead of with {}, {}, {}.",
            self.label(0),
            self.objective_change(to),
            self.objective_figures(to),
        )
    }

    fn keeping(&self, kept: &BTreeMap<usize, Vec<Kept<'_>>>, setting: usize) -> String {
        if self.goal.conditions.is_empty() {
            return String::new();
        }
        if kept[&setting].is_empty() {
            return "No workload has the figures of the goal's conditions.".to_owned();
        }
        let words = kept[&setting].iter().map(|kept| {
            let proof = if kept.proven { "proven" } else { "by the estimate only" };
            format!("{}, {proof}", self.kept_words(kept))
        });
        format!("It keeps the conditions: {}.", listed(words))
    }

    fn ruled_out(&self, kept: &BTreeMap<usize, Vec<Kept<'_>>>) -> String {
        let broken =
            kept.iter().filter(|(setting, _)| **setting != 0).filter_map(|(setting, kept)| {
                let worst = worst(kept)?;
                Some(format!("{} ({})", self.label(*setting), self.kept_words(worst)))
            });
        let words = listed(broken);
        if words.is_empty() { words } else { format!("Conditions rule out {words}.") }
    }

    fn none_keeps(&self, kept: &BTreeMap<usize, Vec<Kept<'_>>>, nearest: usize) -> String {
        let words = worst(&kept[&nearest]).map_or_else(
            || "the objective was not measured".to_owned(),
            |kept| self.kept_words(kept),
        );
        format!(
            "No setting keeps every condition, so stay with {}: the nearest is {} ({words}).",
            self.label(0),
            self.label(nearest),
        )
    }

    /// The largest proven loss in any workload's rate, tail or CPU cost.
    fn cost(&self, to: usize) -> String {
        let workloads = self.results.workloads.iter().enumerate();
        let (figures, logs): (Vec<_>, Vec<_>) = workloads
            .flat_map(|(workload, spec)| {
                let generator = [Metric::GeneratorServiceDemandUs];
                headline(&spec.traffic).into_iter().chain(generator).map(move |m| (workload, m))
            })
            .filter_map(|(workload, metric)| {
                let logs = self.logs(to, workload, metric)?;
                (logs.of_blocks.len() > 1).then_some(((workload, metric), Some(logs)))
            })
            .unzip();
        let loss = |((workload, metric), comparison): (&(usize, Metric), Comparison)| {
            let ratio = comparison.ratio?;
            let log = ratio.value.ln();
            let loss = if metric.better() == Better::Higher { -log } else { log };
            let (change, interval) = (words::change(ratio.value), words::interval(&ratio));
            let words =
                format!("{metric} in {} is {change} ({interval})", self.workload(*workload));
            (loss > 0.0).then_some((comparison.proven, loss, words))
        };
        let losses = figures.iter().zip(self.corrected(logs)).filter_map(loss);
        // Any proven one before all others.
        match losses.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))) {
            Some((true, _, words)) => format!("The largest proven cost: {words}."),
            Some((false, _, words)) => format!(
                "Of {} other comparisons (each workload's rate, p99 and CPU cost) none is proven worse; the \
                 worst by its estimate: {words}.",
                figures.len()
            ),
            None => String::new(),
        }
    }

    /// The objective's change against the first setting: `latency_ns_p99 is 42 % lower (interval ...)`.
    fn objective_change(&self, setting: usize) -> String {
        let names: Vec<String> =
            self.goal.objective.iter().map(|figure| figure.measure.name().to_owned()).collect();
        let cells: usize = self.objective.iter().map(Vec::len).sum();
        let comparison = &self.objective_ratios()[&setting];
        let mean = if cells > names.len() { " (geometric mean over workloads)" } else { "" };
        format!("{}{mean} is {}", names.join(" x "), comparison_words(comparison))
    }

    /// The objective's figures in each workload, beside the first setting's.
    fn objective_figures(&self, setting: usize) -> String {
        let figures = self.objective.iter().flatten().map(|&(workload, metric)| {
            let value = |setting| {
                self.estimate(setting, workload, metric)
                    .map_or_else(|| "nothing".to_owned(), |e| words::quantity(metric, e.value))
            };
            let name = if self.objective.len() > 1 { metric.name() } else { "" };
            let (this, first) = (value(setting), value(0));
            format!("{name} {this} against {first} in {}", self.workload(workload))
                .trim()
                .to_owned()
        });
        listed(figures)
    }

    /// `throughput_bps 8.10 Gbit/s in tcp_stream (9.5 % lower) of at least 8.95 Gbit/s that COND asks for`.
    fn kept_words(&self, kept: &Kept<'_>) -> String {
        let quantity = |value: Option<f64>| {
            value.map_or_else(|| "not measured".to_owned(), |v| words::quantity(kept.metric, v))
        };
        let side = match kept.condition.bound {
            Bound::AtLeast => "of at least",
            Bound::AtMost => "of at most",
        };
        let missed = match (kept.met, kept.value, kept.limit) {
            (false, Some(value), Some(limit)) if limit > 0.0 => {
                format!(" ({})", words::change(value / limit))
            }
            _ => String::new(),
        };
        let (value, limit) = (quantity(kept.value), quantity(kept.limit));
        let (metric, workload) = (kept.metric, self.workload(kept.workload));
        format!(
            "{metric} {value} in {workload}{missed} {side} {limit} that `{}` asks for",
            kept.condition
        )
    }

    fn value(&self, setting: usize, kept: &Kept<'_>) -> String {
        self.estimate(setting, kept.workload, kept.metric)
            .map_or_else(|| "nothing".to_owned(), |e| words::quantity(kept.metric, e.value))
    }

    fn label(&self, setting: usize) -> String {
        format!("`{}`", self.results.settings[setting].label)
    }

    fn workload(&self, workload: usize) -> String {
        format!("`{}`", self.results.workloads[workload].name)
    }
}

/// The condition that is missed by most.
fn worst<'a, 'k>(kept: &'a [Kept<'k>]) -> Option<&'a Kept<'k>> {
    let broken = kept.iter().filter(|kept| !kept.met);
    broken.max_by(|a, b| a.missed_by().total_cmp(&b.missed_by()))
}

fn comparison_words(comparison: &Comparison) -> String {
    let has_interval = |ratio: &&Estimate| ratio.method != Method::Single;
    match &comparison.ratio {
        None => "without a ratio to compare".to_owned(),
        Some(ratio) => {
            let interval = Some(ratio).filter(has_interval).map_or_else(
                || "one block, no interval".to_owned(),
                |ratio| format!("{}, {} blocks", words::interval(ratio), ratio.runs),
            );
            format!("{} ({interval})", words::change(ratio.value))
        }
    }
}

/// The first few of `parts`, and how many more there are.
fn listed(parts: impl Iterator<Item = String>) -> String {
    let mut parts: Vec<String> = parts.collect();
    let more = parts.len().saturating_sub(EXAMPLES);
    parts.truncate(EXAMPLES);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    parts.join("; ")
}
