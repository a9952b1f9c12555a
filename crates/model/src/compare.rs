//! Compares two sets of runs: before and after, two settings, or two hosts.
//!
//! Runs of the same block of the same results, or of the same plan in the same order, are compared
//! in pairs, others as two groups. Holm's correction holds over all figures: the chance of any
//! false claim stays at the wanted level.

use latput_stats::{Estimate, paired, unpaired};
use latput_trial::metric::PreferredDirection;
use latput_trial::{Metric, Results};

use crate::runs::{AVERAGE, Runs};

/// The compared figures: rate, latency and CPU cost.
const COMPARED: &[Metric] = &[
    Metric::ThroughputBps,
    Metric::TransactionsPerS,
    Metric::LatencyNsP50,
    Metric::LatencyNsP99,
    Metric::ProbeNsMean,
    Metric::ProbeNsP99,
    Metric::LossRatio,
    Metric::SutCpuBusyRatio,
    Metric::GeneratorCpuBusyRatio,
    Metric::SutServiceDemandUs,
    Metric::GeneratorServiceDemandUs,
];

/// One setting of one run of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The run.
    pub results: &'a Results,
    /// Index into its settings.
    pub setting: usize,
}

impl Side<'_> {
    fn label(&self) -> &str {
        self.results.settings.get(self.setting).map_or("unknown setting", |set| &set.label)
    }
}

/// Options of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompareMethod {
    /// Confidence that no claim is false, such as 0.99.
    pub confidence: f64,
    /// Differences below this share, such as 0.02, do not matter. `None`: every difference matters,
    /// and nothing is called equivalent.
    pub smallest_effect: Option<f64>,
}

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
    /// The figures, by workload in the order of the base.
    pub figures: Vec<FigureComparison>,
    /// Parts that could not be compared, in sentences.
    pub remarks: Vec<String>,
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
    /// Estimate of the base over its runs.
    pub base: Estimate,
    /// Estimate of the other side over its runs.
    pub other: Estimate,
    /// `other / base` with its interval at Holm's level; `None` where a figure is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large where there is none, not corrected.
    pub p_value: Option<f64>,
    /// The conclusion.
    pub verdict: Verdict,
}

/// The conclusion of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The other side is proven better.
    Better,
    /// The other side is proven worse.
    Worse,
    /// Any difference is smaller than the smallest effect that matters.
    Equivalent,
    /// No difference is proven.
    NoDifferenceShown,
    /// A figure is 0 or there are too few runs.
    NotJudged,
}

impl Verdict {
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

/// Compares `other` with `base` in each workload that has the same name and traffic in both.
pub fn compare(base: Side<'_>, other: Side<'_>, method: CompareMethod) -> Comparison {
    let paired = are_paired(base, other);
    let (base_runs, other_runs) = (Runs::of(base.results), Runs::of(other.results));
    let mut remarks = [base_runs.remarks.clone(), other_runs.remarks.clone()].concat();
    remarks.dedup();
    let mut drafts: Vec<Draft> = Vec::new();
    for (idx, workload) in base.results.workloads.iter().enumerate() {
        let same = |w: &&latput_trial::Workload| {
            (&w.name, &w.traffic) == (&workload.name, &workload.traffic)
        };
        let others = other.results.workloads.iter();
        let Some(other_idx) = others.clone().position(|w| same(&w)) else {
            remarks.push(format!("only the first has workload `{}`", workload.name));
            continue;
        };
        for &metric in COMPARED {
            drafts.extend(Draft::of(
                (&base_runs, base.setting, idx),
                (&other_runs, other.setting, other_idx),
                metric,
                paired,
            ));
        }
    }
    for workload in &other.results.workloads {
        if !base
            .results
            .workloads
            .iter()
            .any(|w| w.name == workload.name && w.traffic == workload.traffic)
        {
            remarks.push(format!("only the second has workload `{}`", workload.name));
        }
    }
    let p_values: Vec<Option<f64>> = drafts.iter().map(Draft::p_value).collect();
    let levels = paired::holm(&p_values, method.confidence);
    let figures = drafts.into_iter().zip(p_values).zip(levels);
    let figures = figures.filter_map(|((draft, p_value), level)| {
        let ratio = draft.ratio(level.confidence);
        let proven = level.proven && ratio.is_some();
        Some(FigureComparison {
            workload: base.results.workloads[draft.base.2].name.clone(),
            workload_idx: draft.base.2,
            metric: draft.metric,
            base: draft.base.0.estimate(
                draft.base.1,
                draft.base.2,
                draft.metric,
                method.confidence,
            )?,
            other: draft.other.0.estimate(
                draft.other.1,
                draft.other.2,
                draft.metric,
                method.confidence,
            )?,
            verdict: verdict(draft.metric, ratio.as_ref(), proven, method.smallest_effect),
            ratio,
            p_value,
        })
    });
    Comparison {
        base: base.label().to_owned(),
        other: other.label().to_owned(),
        paired,
        method,
        figures: figures.collect(),
        remarks,
    }
}

/// Whether runs can be paired: two settings of one run share each block's state of the machine, and
/// two runs of one plan with the same seed had the same trials in the same order.
fn are_paired(base: Side<'_>, other: Side<'_>) -> bool {
    let (a, b) = (base.results, other.results);
    let is_one_run = std::ptr::eq(a, b);
    let is_one_order = a.seed == b.seed
        && a.settings == b.settings
        && a.workloads == b.workloads
        && base.setting == other.setting;
    is_one_run || is_one_order
}

/// A comparison before Holm's correction.
struct Draft<'a> {
    metric: Metric,
    base: (&'a Runs<'a>, usize, usize),
    other: (&'a Runs<'a>, usize, usize),
    figures: Figures,
}

/// The runs' figures behind a comparison.
enum Figures {
    /// Logarithms of the ratio by block; `None` where a figure is 0.
    Pairs(Option<Vec<f64>>),
    /// Figures of the base and of the other side.
    Groups(Vec<f64>, Vec<f64>),
}

impl<'a> Draft<'a> {
    /// `None` where a side lacks the figure.
    fn of(
        base: (&'a Runs<'a>, usize, usize),
        other: (&'a Runs<'a>, usize, usize),
        metric: Metric,
        is_paired: bool,
    ) -> Option<Self> {
        let of = |(runs, setting, workload): (&Runs<'_>, usize, usize)| {
            let figures = runs.figures(setting, workload, metric);
            (!figures.is_empty()).then_some(figures)
        };
        let (of_base, of_other) = (of(base)?, of(other)?);
        let figures = if is_paired {
            let pairs = of_base.iter().filter_map(|(block, base)| {
                let (_, other) = of_other.iter().find(|(other, _)| other == block)?;
                Some((*base, *other))
            });
            let logs = pairs.map(|(base, other)| paired::log_ratio(base, other)).collect();
            Figures::Pairs(logs)
        } else {
            let values = |figures: Vec<(u32, f64)>| figures.into_iter().map(|(_, v)| v).collect();
            Figures::Groups(values(of_base), values(of_other))
        };
        Some(Self { metric, base, other, figures })
    }

    fn p_value(&self) -> Option<f64> {
        match &self.figures {
            Figures::Pairs(logs) => paired::p_value(logs.as_ref()?, AVERAGE),
            Figures::Groups(base, other) => unpaired::p_value(base, other, AVERAGE),
        }
    }

    fn ratio(&self, confidence: f64) -> Option<Estimate> {
        match &self.figures {
            Figures::Pairs(logs) => paired::ratio_of_logs(logs.as_ref()?, AVERAGE, confidence),
            Figures::Groups(base, other) => unpaired::ratio(base, other, AVERAGE, confidence),
        }
    }
}

/// Judges a ratio. A proven difference whose whole interval is below the smallest effect counts as
/// equivalence.
fn verdict(
    metric: Metric,
    ratio: Option<&Estimate>,
    proven: bool,
    smallest_effect: Option<f64>,
) -> Verdict {
    let Some(ratio) = ratio.filter(|ratio| ratio.method != latput_stats::Method::Single) else {
        return Verdict::NotJudged;
    };
    // The same distance up and down on the logarithmic scale: 2 % is 1/1.02 to 1.02.
    let is_equivalent = smallest_effect
        .is_some_and(|effect| ratio.low > 1.0 / (1.0 + effect) && ratio.high < 1.0 + effect);
    let is_higher = ratio.value > 1.0;
    match metric.preferred_direction() {
        _ if is_equivalent => Verdict::Equivalent,
        _ if !proven => Verdict::NoDifferenceShown,
        PreferredDirection::Higher if is_higher => Verdict::Better,
        PreferredDirection::Lower if !is_higher => Verdict::Better,
        _ => Verdict::Worse,
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Rng;

    use super::*;
    use crate::synthetic::{Figures as Made, noise, results, rr, stream};

    #[test]
    fn two_settings_of_one_run_are_compared_in_pairs() {
        let results = made(3, 8, |setting| [1.0, 1.3][setting]);
        let found = compare(side(&results, 0), side(&results, 1), method(Some(0.02)));
        assert!(found.paired && found.remarks.is_empty(), "{found:?}");
        let figure = figure(&found, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, Verdict::Better);
        let ratio = figure.ratio.as_ref().unwrap();
        assert!(ratio.low < 1.3 && 1.3 < ratio.high, "{ratio:?}");
        assert!(ratio.confidence > 0.99, "many comparisons need more: {ratio:?}");
        let back = compare(side(&results, 1), side(&results, 0), method(None));
        assert_eq!(self::figure(&back, "rr", Metric::TransactionsPerS).verdict, Verdict::Worse);
    }

    #[test]
    fn runs_of_other_plans_are_compared_as_groups() {
        let (first, second) = (made(3, 8, |_| 1.0), made(4, 12, |_| 1.0));
        let second = Results { seed: first.seed + 1, ..second };
        let found = compare(side(&first, 0), side(&second, 0), method(Some(0.05)));
        assert!(!found.paired);
        let figure = figure(&found, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, Verdict::Equivalent, "{figure:?}");
        let unsure = compare(side(&first, 0), side(&second, 0), method(None));
        let figure = self::figure(&unsure, "rr", Metric::TransactionsPerS);
        assert_eq!(figure.verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn only_an_interval_that_lies_within_the_smallest_effect_is_equivalence() {
        // 2 % is from 1 / 1.02 = 0.9804 to 1.02. The estimate alone says nothing.
        check_verdict((1.0, 0.985, 1.015), false, Verdict::Equivalent);
        check_verdict((1.01, 1.005, 1.015), true, Verdict::Equivalent);
        check_verdict((1.0, 0.9, 1.1), false, Verdict::NoDifferenceShown);
        check_verdict((1.0, 0.985, 1.021), false, Verdict::NoDifferenceShown);
        check_verdict((1.0, 0.98, 1.015), false, Verdict::NoDifferenceShown);
        check_verdict((1.015, 1.005, 1.025), true, Verdict::Better);
        check_verdict((0.985, 0.975, 0.995), true, Verdict::Worse);
    }

    #[test]
    fn noisy_runs_of_one_rate_are_not_called_equivalent() {
        let mut rng = Rng::from_seed(5);
        let results = results(&["off", "on"], &[rr("rr")], 30, |_, _| Made {
            rate: 1e6 * noise(&mut rng, 0.05),
            ..Made::default()
        });
        let found = compare(side(&results, 0), side(&results, 1), method(Some(0.02)));
        let figure = figure(&found, "rr", Metric::TransactionsPerS);
        let ratio = figure.ratio.as_ref().unwrap();
        assert!((1.0 / 1.02..1.02).contains(&ratio.value), "the test does not test: {ratio:?}");
        assert!(ratio.low < 1.0 / 1.02 || ratio.high > 1.02, "the test does not test: {ratio:?}");
        assert_eq!(figure.verdict, Verdict::NoDifferenceShown);
    }

    #[test]
    fn the_same_plan_and_seed_run_twice_is_compared_in_pairs() {
        let (before, after) = (made(3, 6, |_| 1.0), made(9, 6, |_| 1.1));
        let found = compare(side(&before, 0), side(&after, 0), method(None));
        assert!(found.paired);
        assert_eq!(figure(&found, "rr", Metric::TransactionsPerS).verdict, Verdict::Better);
    }

    #[test]
    fn what_only_one_has_and_what_cannot_be_judged_is_said() {
        let (first, mut second) = (made(3, 1, |_| 1.0), made(4, 1, |_| 1.0));
        second.workloads[1].name = "another".to_owned();
        let found = compare(side(&first, 0), side(&second, 0), method(None));
        assert_eq!(
            found.remarks,
            ["only the first has workload `stream`", "only the second has workload `another`"]
        );
        assert!(found.figures.iter().all(|figure| figure.verdict == Verdict::NotJudged));
        let damaged = Side { results: &first, setting: 99 };
        assert!(compare(damaged, side(&second, 0), method(None)).figures.is_empty());
    }

    #[test]
    fn where_nothing_differs_hardly_any_comparison_claims_it() {
        let claims = (0..120_u64)
            .filter(|seed| {
                let results = made(1000 + seed, 6, |_| 1.0);
                let found = compare(
                    side(&results, 0),
                    side(&results, 1),
                    CompareMethod { confidence: 0.95, smallest_effect: None },
                );
                let is_claim = |figure: &FigureComparison| {
                    matches!(figure.verdict, Verdict::Better | Verdict::Worse)
                };
                found.figures.iter().any(is_claim)
            })
            .count();
        // 5 % of 120 is 6; with 8 correlated figures and no correction it would be near 40.
        assert!(claims <= 14, "{claims} of 120 families at 5 %");
    }

    /// Of a rate's ratio `(value, low, high)` with a smallest effect of 2 %.
    #[track_caller]
    fn check_verdict((value, low, high): (f64, f64, f64), proven: bool, expected: Verdict) {
        let method = latput_stats::Method::PairedLogRatio;
        let ratio = Estimate { value, low, high, confidence: 0.99, method, runs: 8 };
        let found = verdict(Metric::TransactionsPerS, Some(&ratio), proven, Some(0.02));
        assert_eq!(found, expected, "{ratio:?}");
    }

    const fn method(smallest_effect: Option<f64>) -> CompareMethod {
        CompareMethod { confidence: 0.99, smallest_effect }
    }

    const fn side(results: &Results, setting: usize) -> Side<'_> {
        Side { results, setting }
    }

    #[track_caller]
    fn figure<'a>(found: &'a Comparison, workload: &str, metric: Metric) -> &'a FigureComparison {
        let is_it =
            |figure: &&FigureComparison| figure.workload == workload && figure.metric == metric;
        found.figures.iter().find(is_it).unwrap_or_else(|| panic!("{found:#?}"))
    }

    /// Two settings under two workloads, with 1 % of noise and a rate by setting.
    fn made(seed: u64, blocks: u32, rate: impl Fn(usize) -> f64) -> Results {
        let mut rng = Rng::from_seed(seed);
        results(&["off", "on"], &[rr("rr"), stream("stream")], blocks, |setting, _| Made {
            rate: 1e6 * rate(setting) * noise(&mut rng, 0.01),
            p99_us: Some(50.0 * noise(&mut rng, 0.01)),
            service_demand_us: 2.0 * noise(&mut rng, 0.01),
        })
    }
}
