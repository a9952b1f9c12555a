//! Compares two sets of runs: before and after, two settings, or two hosts.
//!
//! Runs of the same block of the same results, or of the same plan in the same order, are compared
//! in pairs, others as two groups. Holm's correction holds over all figures: the chance of any
//! false claim stays at the wanted level.

mod origin;

use std::collections::BTreeMap;

use latput_stats::{Contrast, Estimate, contrast, paired, unpaired};
use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Results};
use latput_units::IntoMap;

pub use self::origin::OriginDifference;
pub(crate) use self::origin::differences_of_hosts;
use crate::fitness::RunFitness;
use crate::runs::{AVERAGE, RunTable};

/// The compared figures, beside the plan's own: rate, latency and CPU cost.
const COMPARED: &[Metric] = &[
    Metric::ThroughputBps,
    Metric::TransactionsPerS,
    Metric::LatencyNsP50,
    Metric::LatencyNsP99,
    Metric::ProbeNsP50,
    Metric::ProbeNsP99,
    Metric::LossRatio,
    Metric::SutCpuBusyRatio,
    Metric::GeneratorCpuBusyRatio,
    Metric::SutServiceDemandUs,
    Metric::GeneratorServiceDemandUs,
    Metric::SutPacketCpuNs,
    Metric::TcpRttNsP50,
    Metric::TcpRttNsP99,
    Metric::TcpThroughputBps,
];

/// Options of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareMethod {
    /// Confidence that no claim is false, such as 0.99.
    pub confidence: f64,
    /// Differences below this share, such as 0.02, do not matter. 0: every difference matters, and nothing that has
    /// an interval is called equivalent.
    pub smallest_effect: f64,
}

/// Unless another is asked for: repeated runs of one kernel on one machine often differ by as much.
pub const SMALLEST_EFFECT: f64 = 0.01;

/// All comparisons of two sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Label of the base setting.
    pub base: String,
    /// Label of the other setting.
    pub other: String,
    /// Whether runs were compared in pairs.
    pub paired: bool,
    /// Options of the comparison.
    pub method: CompareMethod,
    /// The reason why there is no figure, as a sentence without its end; `None` where there are some.
    pub obstacle: Option<String>,
    /// The figures, by workload in the order of the base.
    pub figures: Vec<FigureComparison>,
    /// Parts that could not be compared, and values in which settings of one label differ, in sentences.
    pub remarks: Vec<String>,
    /// Differences between the two sides' runs besides their settings; empty for two settings of one run.
    pub origin: Vec<OriginDifference>,
}

/// The comparison of one figure in one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureComparison {
    /// The workload's name.
    pub workload: String,
    /// The workload's index in the results of the base.
    pub workload_idx: usize,
    /// The figure.
    pub metric: Metric,
    /// Estimate of the base over its runs, as in the report of the base alone.
    pub base: Estimate,
    /// Estimate of the other side over its runs.
    pub other: Estimate,
    /// The base's figure and the other side's as they are compared: the ratio is made of them.
    pub compared: (f64, f64),
    /// `other / base` with its interval at Holm's level; `None` where a figure is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large where there is none, not corrected.
    pub p_value: Option<f64>,
    /// The conclusion.
    pub verdict: ComparisonVerdict,
    /// The largest loss, as a share of the base, that is not ruled out at the method's confidence: 0.02 if the other side
    /// may be worse by 2%. One-sided and not corrected: who claims that no figure lost much needs every one of the
    /// claims, each at the whole level (Berger, Technometrics 24, 1982). [`f64::MAX`] if nothing bounds it, `None`
    /// with too few runs.
    pub largest_loss: Option<f64>,
}

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// The other side is proven better, by the smallest effect or more.
    Better,
    /// The other side is proven worse, by the smallest effect or more.
    Worse,
    /// Any difference is smaller than the smallest effect that matters.
    Equivalent,
    /// No difference of the smallest effect or more is proven.
    NoDifferenceShown,
    /// There are too few runs: two of each are the least.
    NotJudged,
}

impl ComparisonVerdict {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equivalent => "equivalent",
            Self::NoDifferenceShown => "no difference shown",
            Self::NotJudged => "not judged",
        }
    }
}

/// Compares settings of `other` with settings of `base`, each pair given by its indices, in each workload that has the
/// same name and traffic in both. The correction is over all figures of all pairs together.
pub fn compare_settings(
    base: &Results,
    other: &Results,
    settings: &[(usize, usize)],
    method: CompareMethod,
) -> Vec<Comparison> {
    compare_figures(base, other, settings, COMPARED, method)
}

/// Like [`compare_settings`], with these figures beside the plan's own.
pub(crate) fn compare_figures(
    base: &Results,
    other: &Results,
    settings: &[(usize, usize)],
    figures: &[Metric],
    method: CompareMethod,
) -> Vec<Comparison> {
    let (base_runs, other_runs) = (RunTable::from_results(base), RunTable::from_results(other));
    let (workloads, mut remarks) = same_workloads(base, other);
    remarks.splice(0..0, [base_runs.remarks.clone(), other_runs.remarks.clone()].concat());
    remarks.dedup();
    let mut drafts: Vec<DraftComparison> = Vec::new();
    for (pair, &(of_base, of_other)) in settings.iter().enumerate() {
        let is_paired = are_paired((base, of_base), (other, of_other));
        for &(workload, other_workload) in &workloads {
            let is_judged =
                |metric: &Metric| metric.preferred_direction() != PreferredDirection::Neither;
            let own = base_runs.custom_metrics(workload).into_iter().filter(is_judged);
            for metric in figures.iter().copied().chain(own) {
                drafts.extend(DraftComparison::new(
                    pair,
                    (&base_runs, of_base, workload),
                    (&other_runs, of_other, other_workload),
                    metric,
                    is_paired,
                ));
            }
        }
    }
    let label = |results: &Results, setting: usize| {
        let found = results.settings.get(setting);
        found.map_or_else(|| "unknown setting".to_owned(), |set| set.label.clone())
    };
    let origin = origin::find_differences(base, other);
    let mut comparisons: Vec<Comparison> = settings
        .iter()
        .map(|&(of_base, of_other)| Comparison {
            base: label(base, of_base),
            other: label(other, of_other),
            paired: are_paired((base, of_base), (other, of_other)),
            method,
            obstacle: None,
            figures: Vec::new(),
            remarks: remarks
                .iter()
                .cloned()
                .chain(origin::values((base, of_base), (other, of_other)))
                .collect(),
            origin: origin.clone(),
        })
        .collect();
    let p_values: Vec<Option<f64>> = drafts.iter().map(DraftComparison::p_value).collect();
    let levels = paired::holm(&p_values, method.confidence);
    for ((draft, p_value), level) in drafts.into_iter().zip(p_values).zip(levels) {
        let figure = draft.judge_figure(base, p_value, level, method);
        comparisons[draft.pair].figures.extend(figure);
    }
    for (comparison, &(of_base, of_other)) in comparisons.iter_mut().zip(settings) {
        if comparison.figures.is_empty() {
            let has_common_workload = !workloads.is_empty();
            let why = find_obstacle((base, of_base), (other, of_other), has_common_workload);
            comparison.obstacle = Some(why);
        }
    }
    comparisons
}

/// The reason why no figure of two settings can be compared.
fn find_obstacle(
    base: (&Results, usize),
    other: (&Results, usize),
    has_common_workload: bool,
) -> String {
    let side_without_trials = |(side, (results, setting)): (&str, (&Results, usize))| {
        let fitness = RunFitness::from_results(results);
        let (unfit, runs) = fitness.by_setting.get(&setting).copied()?;
        let why = fitness.describe_unfit().filter(|_| unfit == runs)?;
        let label = &results.settings.get(setting)?.label;
        Some(format!(
            "no trial of `{label}` in the {side} counts ({why}). Measure on quiet hosts, or with `--beside`"
        ))
    };
    if !has_common_workload {
        return "no workload is in both files".to_owned();
    }
    [("first", base), ("second", other)]
        .into_iter()
        .find_map(side_without_trials)
        .unwrap_or_else(|| "no setting has two trials on each side that count".to_owned())
}

/// The workloads that both have, by their indices, and a remark on each other one.
fn same_workloads(base: &Results, other: &Results) -> (Vec<(usize, usize)>, Vec<String>) {
    let place = |results: &Results, wanted: &latput_trial::Workload| {
        let same =
            |w: &latput_trial::Workload| (&w.name, &w.traffic) == (&wanted.name, &wanted.traffic);
        results.workloads.iter().position(same)
    };
    let (mut both, mut remarks) = (Vec::new(), Vec::new());
    for (idx, workload) in base.workloads.iter().enumerate() {
        match place(other, workload) {
            Some(other_idx) => both.push((idx, other_idx)),
            None => remarks.push(format!("only the first has workload `{}`", workload.name)),
        }
    }
    let only_second = other.workloads.iter().filter(|workload| place(base, workload).is_none());
    remarks.extend(only_second.map(|w| format!("only the second has workload `{}`", w.name)));
    (both, remarks)
}

/// Whether runs can be paired: two settings of one run share each block's state of the machine, and
/// two runs of one plan with the same seed had the same trials in the same order. The order of imported files means nothing.
fn are_paired(base: (&Results, usize), other: (&Results, usize)) -> bool {
    let (a, b) = (base.0, other.0);
    let is_one_run = std::ptr::eq(a, b);
    let is_one_order = a.other_program().is_none()
        && a.seed == b.seed
        && a.settings == b.settings
        && a.workloads == b.workloads
        && base.1 == other.1;
    is_one_run || is_one_order
}

/// A comparison before Holm's correction.
struct DraftComparison<'a> {
    pair: usize,
    metric: Metric,
    base: (&'a RunTable<'a>, usize, usize),
    other: (&'a RunTable<'a>, usize, usize),
    figures: FigureSamples,
}

/// The runs' figures behind a comparison: of the base, and of the other side.
enum FigureSamples {
    /// Those of each block that both have.
    Pairs(Vec<(f64, f64)>),
    /// Those of all runs.
    Groups(Vec<f64>, Vec<f64>),
}

impl<'a> DraftComparison<'a> {
    /// `None` where a side lacks the figure, or no block has both.
    fn new(
        pair: usize,
        base: (&'a RunTable<'a>, usize, usize),
        other: (&'a RunTable<'a>, usize, usize),
        metric: Metric,
        is_paired: bool,
    ) -> Option<Self> {
        let of = |(runs, setting, workload): (&RunTable<'_>, usize, usize)| {
            let figures = runs.figures(setting, workload, metric);
            (!figures.is_empty()).then_some(figures)
        };
        let (of_base, of_other) = (of(base)?, of(other)?);
        let figures = if is_paired {
            let others: BTreeMap<u32, f64> = of_other.into_map();
            let pairs = of_base.into_iter();
            let pairs: Vec<(f64, f64)> =
                pairs.filter_map(|(block, base)| Some((base, *others.get(&block)?))).collect();
            if pairs.is_empty() {
                return None;
            }
            FigureSamples::Pairs(pairs)
        } else {
            let values = |figures: Vec<(u32, f64)>| figures.into_iter().map(|(_, v)| v).collect();
            FigureSamples::Groups(values(of_base), values(of_other))
        };
        Some(Self { pair, metric, base, other, figures })
    }

    /// Where a figure is 0 there is no ratio, and the differences are tested.
    fn p_value(&self) -> Option<f64> {
        match &self.figures {
            FigureSamples::Pairs(pairs) => {
                let logs: Option<Vec<f64>> =
                    pairs.iter().map(|&(base, other)| paired::log_ratio(base, other)).collect();
                let differences = || pairs.iter().map(|(base, other)| other - base).collect();
                paired::p_value(&logs.unwrap_or_else(differences), AVERAGE)
            }
            FigureSamples::Groups(base, other) => unpaired::p_value(base, other, AVERAGE)
                .or_else(|| unpaired::p_value_of_means(base, other, AVERAGE)),
        }
    }

    fn compute_contrast(&self, confidence: f64) -> Option<Contrast> {
        match &self.figures {
            FigureSamples::Pairs(pairs) => Contrast::paired(pairs, AVERAGE, confidence),
            FigureSamples::Groups(base, other) => {
                Contrast::of_groups(base, other, AVERAGE, confidence)
            }
        }
    }

    /// The figures as they are compared.
    fn compared_figures(&self, contrast: Option<&Contrast>) -> Option<(f64, f64)> {
        match (contrast, &self.figures) {
            (Some(contrast), _) => Some((contrast.base(), contrast.other())),
            (None, FigureSamples::Pairs(pairs)) => contrast::middle(pairs, AVERAGE),
            (None, FigureSamples::Groups(base, other)) => {
                Some((contrast::mean(base, AVERAGE)?, contrast::mean(other, AVERAGE)?))
            }
        }
    }

    fn judge_figure(
        &self,
        results: &Results,
        p_value: Option<f64>,
        level: paired::Corrected,
        method: CompareMethod,
    ) -> Option<FigureComparison> {
        let estimate = |(runs, setting, workload): (&RunTable<'_>, usize, usize)| {
            runs.estimate_figure(setting, workload, self.metric, method.confidence)
        };
        let contrast = self.compute_contrast(level.confidence);
        let compared = self.compared_figures(contrast.as_ref())?;
        let ratio = contrast.map(|contrast| contrast.ratio().clone());
        let verdict = match (&ratio, p_value) {
            (_, None) => ComparisonVerdict::NotJudged,
            (Some(ratio), _) => {
                judge_ratio(self.metric, ratio, level.proven, method.smallest_effect)
            }
            (None, Some(_)) => verdict_from_zero(self.metric, compared, level.proven),
        };
        let workload_idx = self.base.2;
        let largest_loss = p_value.map(|_| self.largest_loss(method.confidence, verdict));
        Some(FigureComparison {
            workload: results.workloads[workload_idx].name.clone(),
            workload_idx,
            metric: self.metric,
            base: estimate(self.base)?,
            other: estimate(self.other)?,
            compared,
            ratio,
            p_value,
            verdict,
            largest_loss,
        })
    }

    /// The worse end of the interval of twice the error, which is one-sided at `confidence`. Figures of 0 have no ratio.
    fn largest_loss(&self, confidence: f64, verdict: ComparisonVerdict) -> f64 {
        let Some(contrast) = self.compute_contrast(2.0 * confidence - 1.0) else {
            let is_bounded =
                matches!(verdict, ComparisonVerdict::Equivalent | ComparisonVerdict::Better);
            return if is_bounded { 0.0 } else { f64::MAX };
        };
        let ratio = contrast.ratio();
        let worse = match self.metric.preferred_direction() {
            PreferredDirection::Higher => 1.0 / ratio.low,
            PreferredDirection::Lower | PreferredDirection::Neither => ratio.high,
        };
        // As in the verdicts, 2% worse is 1/1.02 of what should be high.
        if worse.is_finite() { (worse - 1.0).max(0.0) } else { f64::MAX }
    }
}

/// Judges a ratio. A proven difference whose whole interval is below the smallest effect counts as
/// equivalence; one whose estimate is below it shows nothing of interest.
fn judge_ratio(
    metric: Metric,
    ratio: &Estimate,
    proven: bool,
    smallest_effect: f64,
) -> ComparisonVerdict {
    // The same distance up and down on the logarithmic scale: 2% is 1/1.02 to 1.02.
    let is_below =
        |ratio: f64| ratio > 1.0 / (1.0 + smallest_effect) && ratio < 1.0 + smallest_effect;
    if is_below(ratio.low) && is_below(ratio.high) {
        ComparisonVerdict::Equivalent
    } else if !proven || is_below(ratio.value) {
        ComparisonVerdict::NoDifferenceShown
    } else {
        judge_direction(metric, ratio.value > 1.0)
    }
}

/// Judges figures of which some are 0, such as the loss of runs without any. They have no ratio, so that every proven
/// difference is of interest.
fn verdict_from_zero(metric: Metric, (base, other): (f64, f64), proven: bool) -> ComparisonVerdict {
    match proven {
        true => judge_direction(metric, other > base),
        false if base == 0.0 && other == 0.0 => ComparisonVerdict::Equivalent,
        false => ComparisonVerdict::NoDifferenceShown,
    }
}

fn judge_direction(metric: Metric, is_higher: bool) -> ComparisonVerdict {
    match metric.preferred_direction() {
        PreferredDirection::Higher if is_higher => ComparisonVerdict::Better,
        PreferredDirection::Lower if !is_higher => ComparisonVerdict::Better,
        PreferredDirection::Higher | PreferredDirection::Lower | PreferredDirection::Neither => {
            ComparisonVerdict::Worse
        }
    }
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;
    use crate::synthetic::{
        SyntheticFigures as Made, build_results, noise_factor, own_metric, rr_workload,
        stream_workload,
    };

    #[test]
    fn settings_of_one_run_compare_in_pairs() {
        let results = make_results(3, 8, |setting| [1.0, 1.3][setting]);
        let found = compare_pair(&results, 0, &results, 1, make_method(0.02));
        assert!(found.paired && found.remarks.is_empty(), "{found:?}");
        let figure = find_figure(&found, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, ComparisonVerdict::Better);
        let ratio = figure.ratio.as_ref().unwrap();
        assert!(ratio.low < 1.3 && 1.3 < ratio.high, "{ratio:?}");
        assert!(ratio.confidence > 0.99, "many comparisons need more: {ratio:?}");
        let (base, other) = figure.compared;
        assert!(
            (base / 1e6 - 1.0).abs() < 0.01 && (other / 1.3e6 - 1.0).abs() < 0.01,
            "{base} {other}"
        );
        let back = compare_pair(&results, 1, &results, 0, make_method(0.0));
        assert_eq!(
            self::find_figure(&back, "rr", Metric::TransactionsPerS).verdict,
            ComparisonVerdict::Worse
        );
    }

    #[test]
    fn runs_of_other_plans_compare_as_groups() {
        let (first, second) = (make_results(3, 8, |_| 1.0), make_results(4, 12, |_| 1.0));
        let second = Results { seed: first.seed + 1, ..second };
        let found = compare_pair(&first, 0, &second, 0, make_method(0.05));
        assert!(!found.paired);
        let figure = find_figure(&found, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, ComparisonVerdict::Equivalent, "{figure:?}");
        let unsure = compare_pair(&first, 0, &second, 0, make_method(0.0));
        let figure = self::find_figure(&unsure, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, ComparisonVerdict::NoDifferenceShown);
    }

    #[test]
    fn narrow_interval_is_equivalence() {
        // 2% is from 1 / 1.02 = 0.9804 to 1.02. The estimate alone says nothing.
        check_verdict((1.0, 0.985, 1.015), false, ComparisonVerdict::Equivalent);
        check_verdict((1.01, 1.005, 1.015), true, ComparisonVerdict::Equivalent);
        check_verdict((1.0, 0.9, 1.1), false, ComparisonVerdict::NoDifferenceShown);
        check_verdict((1.0, 0.985, 1.021), false, ComparisonVerdict::NoDifferenceShown);
        check_verdict((1.0, 0.98, 1.015), false, ComparisonVerdict::NoDifferenceShown);
        check_verdict((1.025, 1.005, 1.045), true, ComparisonVerdict::Better);
        check_verdict((0.975, 0.955, 0.995), true, ComparisonVerdict::Worse);
        // Proven, and less than what matters: no claim either way.
        check_verdict((1.015, 1.005, 1.025), true, ComparisonVerdict::NoDifferenceShown);
        check_verdict((0.985, 0.975, 0.995), true, ComparisonVerdict::NoDifferenceShown);
        // Just as large as the smallest effect is not below it.
        check_verdict((1.0, 1.0 / 1.02, 1.015), false, ComparisonVerdict::NoDifferenceShown);
        check_verdict((1.0, 0.985, 1.02), false, ComparisonVerdict::NoDifferenceShown);
    }

    #[test]
    fn noisy_equal_runs_are_not_equivalent() {
        let mut rng = SeededRng::from_seed(5);
        let results = build_results(&["off", "on"], &[rr_workload("rr")], 30, |_, _| Made {
            rate: 1e6 * noise_factor(&mut rng, 0.05),
            ..Made::default()
        });
        let found = compare_pair(&results, 0, &results, 1, make_method(0.02));
        let figure = find_figure(&found, "rr", Metric::TransactionsPerS);
        let ratio = figure.ratio.as_ref().unwrap();
        assert!((1.0 / 1.02..1.02).contains(&ratio.value), "the test does not test: {ratio:?}");
        assert!(ratio.low < 1.0 / 1.02 || ratio.high > 1.02, "the test does not test: {ratio:?}");
        assert_eq!(figure.verdict, ComparisonVerdict::NoDifferenceShown);
    }

    #[test]
    fn same_plan_and_seed_compare_in_pairs() {
        let (before, after) = (make_results(3, 6, |_| 1.0), make_results(9, 6, |_| 1.1));
        let found = compare_pair(&before, 0, &after, 0, make_method(0.0));
        assert!(found.paired);
        assert_eq!(
            find_figure(&found, "rr", Metric::TransactionsPerS).verdict,
            ComparisonVerdict::Better
        );
    }

    #[test]
    fn imported_runs_are_compared_whatever_their_order() {
        let imported = |seed: u64, rate: f64| Results {
            testbed: Results::testbed_of_program("iperf3"),
            ..make_results(seed, 6, |_| rate)
        };
        let (before, after) = (imported(3, 1.0), imported(9, 1.1));
        let mut turned = after.clone();
        for row in &mut turned.rows {
            row.block = 5 - row.block;
        }
        let found = compare_pair(&before, 0, &after, 0, make_method(0.0));
        assert!(!found.paired);
        let ratios = |found: &Comparison| {
            let figure = find_figure(found, "rr", Metric::TransactionsPerS);
            figure
                .ratio
                .as_ref()
                .map(|ratio| [ratio.value, ratio.low, ratio.high].map(|it| (it * 1e9).round()))
        };
        assert_eq!(ratios(&found), ratios(&compare_pair(&before, 0, &turned, 0, make_method(0.0))));
    }

    #[test]
    fn unshared_and_unjudged_parts_are_named() {
        let (first, mut second) = (make_results(3, 1, |_| 1.0), make_results(4, 1, |_| 1.0));
        second.workloads[1].name = "another".to_owned();
        let found = compare_pair(&first, 0, &second, 0, make_method(0.0));
        assert_eq!(
            found.remarks,
            ["only the first has workload `stream`", "only the second has workload `another`"]
        );
        assert!(found.figures.iter().all(|figure| figure.verdict == ComparisonVerdict::NotJudged));
        assert!(compare_pair(&first, 99, &second, 0, make_method(0.0)).figures.is_empty());
    }

    #[test]
    fn equal_runs_seldom_claim_a_difference() {
        let claims = (0..120_u64)
            .filter(|seed| {
                let results = make_results(1000 + seed, 6, |_| 1.0);
                let method = CompareMethod { confidence: 0.95, smallest_effect: 0.0 };
                let found = compare_pair(&results, 0, &results, 1, method);
                let is_claim = |figure: &FigureComparison| {
                    matches!(figure.verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse)
                };
                found.figures.iter().any(is_claim)
            })
            .count();
        // 5% of 120 is 6; with 8 correlated figures and no correction it would be near 40.
        assert!(claims <= 14, "{claims} of 120 families at 5%");
    }

    #[test]
    fn new_loss_is_worse_zero_loss_equivalent() {
        let judged = |before: f64, after: f64, proven: bool| {
            verdict_from_zero(Metric::LossRatio, (before, after), proven)
        };
        assert_eq!(judged(0.0, 0.01, true), ComparisonVerdict::Worse);
        assert_eq!(judged(0.01, 0.0, true), ComparisonVerdict::Better);
        assert_eq!(judged(0.0, 0.01, false), ComparisonVerdict::NoDifferenceShown);
        assert_eq!(judged(0.0, 0.0, false), ComparisonVerdict::Equivalent);
        let pairs = vec![(0.0, 0.01), (0.0, 0.012), (0.0, 0.011), (0.0, 0.01)];
        let (base, other) = pairs.iter().copied().unzip();
        let made = make_results(3, 1, |_| 1.0);
        let runs = RunTable::from_results(&made);
        for figures in [FigureSamples::Pairs(pairs), FigureSamples::Groups(base, other)] {
            let cell = (&runs, 0, 0);
            let draft = DraftComparison {
                pair: 0,
                metric: Metric::LossRatio,
                base: cell,
                other: cell,
                figures,
            };
            assert!(draft.p_value().unwrap() < 0.01);
            let (before, after) =
                draft.compared_figures(draft.compute_contrast(0.99).as_ref()).unwrap();
            assert!(before == 0.0 && after > 0.009, "{before} {after}");
        }
    }

    /// Of a rate's ratio `(value, low, high)` with a smallest effect of 2%.
    #[track_caller]
    fn check_verdict(
        (value, low, high): (f64, f64, f64),
        proven: bool,
        expected: ComparisonVerdict,
    ) {
        let method = latput_stats::Method::PairedLogRatio;
        let ratio = Estimate { value, low, high, confidence: 0.99, method, runs: 8 };
        let found = judge_ratio(Metric::TransactionsPerS, &ratio, proven, 0.02);
        assert_eq!(found, expected, "{ratio:?}");
    }

    const fn make_method(smallest_effect: f64) -> CompareMethod {
        CompareMethod { confidence: 0.99, smallest_effect }
    }

    fn compare_pair(
        base: &Results,
        of_base: usize,
        other: &Results,
        of_other: usize,
        method: CompareMethod,
    ) -> Comparison {
        compare_settings(base, other, &[(of_base, of_other)], method).remove(0)
    }

    #[track_caller]
    fn find_figure<'a>(
        found: &'a Comparison,
        workload: &str,
        metric: Metric,
    ) -> &'a FigureComparison {
        let is_it =
            |figure: &&FigureComparison| figure.workload == workload && figure.metric == metric;
        found.figures.iter().find(is_it).unwrap_or_else(|| panic!("{found:#?}"))
    }

    /// Two settings under two workloads, with 1% of noise and a rate by setting.
    fn make_results(seed: u64, blocks: u32, rate: impl Fn(usize) -> f64) -> Results {
        let mut rng = SeededRng::from_seed(seed);
        build_results(
            &["off", "on"],
            &[rr_workload("rr"), stream_workload("stream")],
            blocks,
            |setting, _| Made {
                rate: 1e6 * rate(setting) * noise_factor(&mut rng, 0.01),
                p99_us: Some(50.0 * noise_factor(&mut rng, 0.01)),
                service_demand_us: 2.0 * noise_factor(&mut rng, 0.01),
            },
        )
    }

    #[test]
    fn missing_comparison_names_its_cause() {
        let first = make_results(3, 3, |_| 1.0);
        let mut second = make_results(4, 3, |_| 1.0);
        let why = |first: &Results, second: &Results| {
            compare_pair(first, 0, second, 0, make_method(0.02)).obstacle
        };
        assert_eq!(why(&first, &second), None);
        for row in second.rows.iter_mut().filter(|row| row.setting == 0) {
            let name = latput_trial::check::OTHER_WORK.to_owned();
            row.observation.checks.push(latput_trial::Check {
                name,
                passed: false,
                detail: String::new(),
            });
        }
        let cause = why(&first, &second).unwrap();
        assert!(cause.starts_with("no trial of `off` in the second counts (6 of 12"), "{cause}");
        assert!(cause.contains("other programs used the hosts' CPUs"), "{cause}");
        second.rows.clear();
        let cause = why(&first, &second).unwrap();
        assert_eq!(cause, "no setting has two trials on each side that count");
        second.workloads.clear();
        assert_eq!(why(&first, &second).unwrap(), "no workload is in both files");
    }

    #[test]
    fn custom_metrics_with_better_side_are_compared() {
        use latput_trial::metric::Summary;
        let own = |name, better| own_metric(name, better, Summary::Mean);
        let judged = own("compare_judged", PreferredDirection::Higher);
        let shown = own("compare_shown", PreferredDirection::Neither);
        let mut made = make_results(3, 3, |_| 1.0);
        for row in &mut made.rows {
            let value = [10.0, 20.0][row.setting];
            row.observation.figures = BTreeMap::from([(judged, value), (shown, value)]);
        }
        let found = compare_pair(&made, 0, &made, 1, make_method(0.02));
        let own = found.figures.iter().filter(|it| matches!(it.metric, Metric::Custom(_)));
        let own: Vec<_> = own.map(|it| (&*it.workload, it.metric, it.verdict.name())).collect();
        let judged = Metric::Custom(judged);
        assert_eq!(own, [("rr", judged, "better"), ("stream", judged, "better")]);
    }

    #[test]
    fn equal_losses_do_not_differ() {
        let made = make_results(3, 1, |_| 1.0);
        let runs = RunTable::from_results(&made);
        let figures = FigureSamples::Pairs(vec![(0.0, 0.0), (0.02, 0.02), (0.01, 0.01)]);
        let cell = (&runs, 0, 0);
        let draft = DraftComparison {
            pair: 0,
            metric: Metric::LossRatio,
            base: cell,
            other: cell,
            figures,
        };
        assert_eq!(draft.p_value(), Some(1.0));
    }

    #[test]
    fn each_verdict_has_its_words() {
        use ComparisonVerdict::{Better, Equivalent, NoDifferenceShown, NotJudged, Worse};
        let words =
            [Better, Worse, Equivalent, NoDifferenceShown, NotJudged].map(ComparisonVerdict::name);
        assert_eq!(words, ["better", "worse", "equivalent", "no difference shown", "not judged"]);
    }
}
