//! Warnings for readers, in one line for each kind of problem, with the full list behind it.

use std::collections::{BTreeMap, BTreeSet};

use latput_model::summary::{FailedCheck, OutlierRun};
use latput_model::{CellSummary, SmallestEffect};
use latput_stats::Estimate;
use latput_trial::metric::Scale;
use latput_trial::{Finding, Metric};
use latput_units::IntoSet;

use crate::view::{ReportView, finite_estimate};
use crate::{failed, format};

/// The warning about one kind of problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Its subject: `interval`, a check's name, `outliers`, `warning`, `note`.
    pub(crate) title: String,
    /// The number of cases, and the worst of them.
    pub(crate) digest: String,
    /// The full list; empty where the digest is complete.
    pub(crate) full: Vec<String>,
}

/// The title of the remark on intervals that are too wide.
pub(crate) const INTERVALS: &str = "intervals";
/// Outlier runs that a digest names.
const WORST_OUTLIERS: usize = 2;

/// All remarks on the results, most severe first.
pub(crate) fn collect_remarks(view: &ReportView<'_>) -> Vec<Remark> {
    let plain = |title: &str, line: &String| Remark {
        title: title.to_owned(),
        digest: line.clone(),
        full: Vec::new(),
    };
    let mut remarks: Vec<Remark> =
        view.summary.warnings.iter().map(|line| plain("warning", line)).collect();
    remarks.extend(fitness_remarks(view));
    remarks.extend(too_wide(view));
    remarks.extend(failed_checks(view));
    remarks.extend(outlier_remark(view));
    let found = |finding: &Finding| plain(&finding.name, &finding.sentence());
    remarks.extend(view.results.findings.iter().map(found));
    remarks.extend(view.results.notes_to_show().map(|line| plain("note", line)));
    remarks
}

/// Slices and trials that are out of the comparisons, by setting, and the conditions of the answer.
fn fitness_remarks(view: &ReportView<'_>) -> Vec<Remark> {
    let fitness = &view.summary.fitness;
    let labels: Vec<String> = (0..view.results.settings.len())
        .map(|setting| view.short_label(setting).to_owned())
        .collect();
    let beside = fitness.beside_in_words().map(|digest| Remark {
        title: "other work".to_owned(),
        digest,
        full: Vec::new(),
    });
    let out = fitness.describe_unfit().map(|digest| Remark {
        title: "disturbed".to_owned(),
        digest,
        full: fitness.by_setting_in_words(&labels).into_iter().collect(),
    });
    beside.into_iter().chain(out).collect()
}

/// The remark on wide intervals: with a judged goal the smallest effects that the run could have
/// proven, else netperf's warning for all cells at once: the wanted width, and the widest that was
/// reached.
fn too_wide(view: &ReportView<'_>) -> Option<Remark> {
    let cells = &view.summary.cells;
    let wide: Vec<&CellSummary> = cells.iter().filter(|cell| !cell.narrow_enough()).collect();
    let rate = |cell: &CellSummary| {
        let metric = view.rate_metric(cell.workload);
        Some((metric, finite_estimate(cell, metric)?.half_width_ratio()?))
    };
    let widest = wide.iter().filter_map(|cell| Some((cell, rate(cell)?)));
    let widest = widest.max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
    if wide.is_empty() {
        return None;
    }
    if let Some(remark) = smallest_effect(view) {
        return Some(remark);
    }
    let cpu = |cell, metric| half_width_words(finite_estimate(cell, metric));
    let worst = widest.map_or_else(
        || "none of them has an interval".to_owned(),
        |(cell, (metric, half_width))| {
            format!(
                "the widest, {}: {} ±{}, CPU of the SUT {}, of the generator {}",
                format_cell(view, cell.setting, cell.workload),
                metric.column(),
                format::rough_percent(half_width),
                cpu(cell, Metric::SutCpuBusyRatio),
                cpu(cell, Metric::GeneratorCpuBusyRatio),
            )
        },
    );
    let digest = format!(
        "{} of {} are not within ±{} at {}; {worst}",
        wide.len(),
        format::format_count(cells.len(), "cell"),
        format::format_percent(view.results.half_width),
        format::format_percent(view.results.confidence),
    );
    Some(Remark { title: INTERVALS.to_owned(), digest, full: view.summary.too_wide.clone() })
}

/// The objective's smallest effect, or the largest of the limits'; behind it all of them, each with its value for
/// four times the time.
fn smallest_effect(view: &ReportView<'_>) -> Option<Remark> {
    let all = &view.summary.recommendation.as_ref()?.smallest;
    let (limits, objective): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.limit.is_some());
    let size = |one: &&&SmallestEffect| one.ratio.ln().abs();
    let worst = limits.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
    let told = objective.first().copied().or(worst.copied())?;
    let digest = format!(
        "This run could detect {} changes of {} or more.",
        changed_figure(told),
        format_effect(told.ratio)
    );
    let line = |one: &SmallestEffect| {
        let base = one.limit.as_ref().map_or_else(
            || "from the first setting".to_owned(),
            |limit| format!("beyond the limit `{limit}`"),
        );
        format!(
            "{}: a run like this proves a difference of {} {base} with a chance of 80%. Four times the blocks \
             prove {}.",
            describe_figures(view, one),
            format_effect(one.ratio),
            format_effect(one.ratio_in_four_times),
        )
    };
    let full = all.iter().map(line).collect();
    Some(Remark { title: "smallest effect".to_owned(), digest, full })
}

/// `p99`; `objective` if it is made of several metrics.
fn changed_figure(one: &SmallestEffect) -> &'static str {
    let metrics: BTreeSet<Metric> = one.figures.iter().map(|(_, metric)| *metric).into_set();
    let only = metrics.first().filter(|_| metrics.len() == 1);
    only.map_or("objective", |metric| metric.column())
}

/// `p99 of tcp_rr`, `p99 of 2 workloads`; `objective` if it is made of several metrics.
fn describe_figures(view: &ReportView<'_>, one: &SmallestEffect) -> String {
    let metrics: BTreeSet<Metric> = one.figures.iter().map(|(_, metric)| *metric).into_set();
    let Some(metric) = metrics.first().filter(|_| metrics.len() == 1) else {
        return "objective".to_owned();
    };
    let workloads = match one.figures.as_slice() {
        [(workload, _)] => view.workload_name(*workload),
        several => format!("{} workloads", several.len()),
    };
    format!("{} of {workloads}", metric.column())
}

/// Whether a ratio is too far from 1 for a percentage.
fn is_factor(ratio: f64) -> bool {
    !(0.1..=10.0).contains(&ratio)
}

/// `12%`, from a ratio of 0.88 or of 1.12. Changes above a factor of 10 have no percentage.
fn format_effect(ratio: f64) -> String {
    let percent = (ratio - 1.0).abs() * 100.0;
    match percent {
        _ if is_factor(ratio) => "a factor of 10".to_owned(),
        ..0.005 => "0.01%".to_owned(), // of the simulator, which has no noise
        ..0.995 => format!("{percent:.2}%"),
        ..9.95 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

fn half_width_words(estimate: Option<&Estimate>) -> String {
    let ratio = estimate.and_then(Estimate::half_width_ratio);
    ratio.map_or_else(|| "unknown".to_owned(), |ratio| format!("±{}", format::rough_percent(ratio)))
}

/// One remark for each check that failed; behind it each cell in which it failed.
fn failed_checks(view: &ReportView<'_>) -> Vec<Remark> {
    let mut by_name: BTreeMap<&str, Vec<&FailedCheck>> = BTreeMap::new();
    for check in &view.summary.failed_checks {
        by_name.entry(&check.name).or_default().push(check);
    }
    let remark = |(name, checks): (&str, Vec<&FailedCheck>)| {
        let digest = failed::describe_failures(view, &checks)?;
        let line = |check: &FailedCheck| {
            let place = format_cell(view, check.setting, check.workload);
            format!("{place} ({}): {}", format::format_count(check.runs, "trial"), check.detail)
        };
        let mut full: Vec<String> = checks.iter().map(|check| line(check)).collect();
        if full.len() == 1 {
            full.clear();
        }
        Some(Remark { title: name.to_owned(), digest, full })
    };
    by_name.into_iter().filter_map(remark).collect()
}

/// The number of outlier runs, and the farthest of them.
fn outlier_remark(view: &ReportView<'_>) -> Option<Remark> {
    let outliers = &view.summary.outliers;
    let runs: BTreeSet<(usize, usize, u32)> =
        outliers.iter().map(|o| (o.setting, o.workload, o.block)).into_set();
    let distance = |outlier: &OutlierRun| {
        let log = (outlier.value / outlier.median).ln().abs();
        if log.is_nan() { 0.0 } else { log }
    };
    let line = |outlier: &OutlierRun| {
        let traffic = view.workload_traffic(outlier.workload);
        let scale = Scale::choose(outlier.metric, &traffic, outlier.value.max(outlier.median));
        format!(
            "{}, block {}: {} {}, median of its cell {}",
            format_cell(view, outlier.setting, outlier.workload),
            outlier.block,
            outlier.metric.column(),
            scale.with_unit(outlier.value),
            scale.with_unit(outlier.median),
        )
    };
    if outliers.is_empty() {
        return None;
    }
    let mut farthest: Vec<&OutlierRun> = outliers.iter().collect();
    farthest.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    // An outlier in one figure is often one in others, so each run is named once.
    let mut named = BTreeSet::new();
    farthest.retain(|o| named.insert((o.setting, o.workload, o.block)));
    farthest.truncate(WORST_OUTLIERS);
    let farthest: Vec<String> = farthest.into_iter().map(line).collect();
    let digest = format!(
        "{} of {} are far from the others of their cell. Farthest: {}",
        runs.len(),
        format::format_count(view.results.rows.len(), "trial"),
        farthest.join("; ")
    );
    Some(Remark { title: "outliers".to_owned(), digest, full: outliers.iter().map(line).collect() })
}

fn format_cell(view: &ReportView<'_>, setting: usize, workload: usize) -> String {
    format!("{}, {}", view.short_label(setting), view.workload_name(workload))
}
