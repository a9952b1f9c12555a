//! The JSON document of `tune`, `run` and `report`, schema 2: results and summary under stable
//! names.
//!
//! Every name ends in its unit (`_ns`, `_bps`, `_ratio`, `_us`). Times are integers in nanoseconds
//! or floats of a mean. A ratio is 0 to 1, or in `against_first_ratio` this setting's figure over
//! the first setting's. Absent or `null` is unknown, never 0. Later versions add fields; a change
//! of meaning makes a new `schema`.

mod groups;
mod parameters;
mod recommendation;
mod run;

use std::collections::BTreeMap;

use latput_model::{CellSummary, DisturbingProcess, Headline, ResultsSummary, RunFitness};
use latput_stats as stats;
use latput_trial::metric::CustomMetric;
use latput_trial::results::LabelledSetting;
use latput_trial::{Metric, Results};
use latput_units::IntoMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::format::interval_bounds;
use crate::view::ReportView;
pub use groups::{GroupComparison, GroupDocument, GroupsDocument, RunGroup};
pub(crate) use parameters::collect_parameters;
use recommendation::build_recommendation;
pub use recommendation::{NextStep, ObjectiveChange, Recommendation, SmallestEffect};
use run::run;

/// The version of the document's schema.
pub const SCHEMA: u32 = 2;

/// Results and their summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Document")]
pub struct Document<R = Vec<RunDocument>> {
    /// Version of this schema: 2.
    pub schema: u32,
    /// Version of latput that measured.
    pub latput_version: String,
    /// The plan's name.
    pub name: String,
    /// `lab`, or the testbed file's name.
    pub testbed: String,
    /// The goal, as in the plan.
    pub goal: Option<String>,
    /// Wanted confidence of intervals, such as 0.99; `null` if the file has no number there.
    pub confidence: Option<f64>,
    /// Wanted half width of the interval of a rate, as a share of it; `null` if the file has no
    /// number there.
    pub half_width_ratio: Option<f64>,
    /// Seed of the order of trials, as text, because many JSON readers keep only 53 bits of a
    /// number.
    pub seed: String,
    /// Fewest planned trials.
    pub planned_trials_count: u64,
    /// The hosts.
    pub hosts: Vec<HostDocument>,
    /// The settings, referred to by index. Others are compared with the first.
    pub settings: Vec<Setting>,
    /// The workloads, referred to by index.
    pub workloads: Vec<Workload>,
    /// The metrics that the plan defines, by name; absent if there are none. `latput metrics` describes the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan_metrics: Vec<PlanMetric>,
    /// The finished trials in the order in which they ran.
    pub runs: R,
    /// Every setting under every workload.
    pub cells: Vec<CellDocument>,
    /// Live traffic by port or by peer; absent if it was not told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_groups: Option<GroupsDocument>,
    /// Settings that no other beats on rate, latency and CPU cost at once, by index.
    pub pareto_settings: Vec<usize>,
    /// The answer to the goal; `null` without a goal.
    #[serde(default)]
    pub headline: Option<HeadlineDocument>,
    /// How many runs count, and what disturbed the others.
    pub fitness: FitnessDocument,
    /// The recommended setting.
    pub recommendation: Option<Recommendation>,
    /// Runs far from their cell's others.
    pub outliers: Vec<Outlier>,
    /// Checks that failed.
    pub failed_checks: Vec<FailedCheck>,
    /// Intervals wider than wanted, and parts of the results that could not be used.
    pub warnings: Vec<String>,
    /// Remarks of the run.
    pub notes: Vec<String>,
    /// Disturbances that could reach the trials, as found on the hosts before the first.
    #[serde(default)]
    pub findings: Vec<FindingDocument>,
}

/// The answer of a run to its goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadlineDocument {
    /// `set`: change to the recommended setting; `stay`: nothing better was found, and probably would have
    /// been; `no_answer`: the run can say neither.
    pub kind: String,
    /// The answer in a sentence.
    pub sentence: String,
    /// Whether there is no answer because of what disturbed the trials.
    #[serde(default)]
    pub disturbed: bool,
    /// Other work that the answer includes, such as `beside 30% of other work on b`; absent if it holds on quiet hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// How many runs count in comparisons, and what disturbed the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FitnessDocument {
    /// Number of runs.
    pub runs: usize,
    /// Those that do not count.
    pub unfit_runs: usize,
    /// The two in a sentence with the causes; `null` if every run counts.
    pub sentence: Option<String>,
    /// Of each setting that ran, by index.
    pub by_setting: Vec<SettingFitness>,
    /// Other processes on the hosts' CPUs, busiest first.
    pub others: Vec<OtherProcessDocument>,
}

/// How many runs of a setting count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingFitness {
    /// Index into the settings.
    pub setting: usize,
    /// Number of its runs.
    pub runs: usize,
    /// Those that do not count.
    pub unfit_runs: usize,
}

/// A process that ran beside the trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtherProcessDocument {
    /// The host.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Its share of a CPU in the trials in which it was seen.
    pub cpu_ratio: Option<f64>,
    /// The host's CPUs that it ran on, such as `0-3`.
    pub cpus: String,
    /// Times that it gave up or lost a CPU, per second.
    pub switches_per_s: Option<f64>,
}

/// Something on a host that could disturb the trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindingDocument {
    /// Its name, such as `other load`.
    pub name: String,
    /// Names of the hosts in the testbed.
    pub hosts: Vec<String>,
    /// The observation, in words.
    pub seen: String,
    /// Its effect on the trials.
    pub meaning: String,
    /// How to mend it.
    pub remedy: String,
}

/// The facts of a host that a reader needs to judge its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostDocument {
    /// Name in the testbed.
    pub host: String,
    /// `sut`, `generator` or `observer`.
    pub role: String,
    /// The measured interface.
    pub interface: String,
    /// Kernel, driver, CPU model and so on, in the order in which they were read.
    pub facts: Vec<Fact>,
}

/// One fact of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Its name.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// One setting of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Name in tables.
    pub label: String,
    /// Whether it has the values that the hosts had before the run.
    #[serde(default)]
    pub today: bool,
    /// By role, then by knob in the kernel's spelling: the value with its unit.
    pub by_role: BTreeMap<String, BTreeMap<String, String>>,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name in tables.
    pub name: String,
    /// Kind of traffic, such as `tcp_rr`.
    pub kind: String,
    /// Sizes, connections, burst and rates, each with its unit in its name; switches are 0 or 1.
    pub parameters: BTreeMap<String, u64>,
    /// Of a `command`: the benchmark's words as a shell would take them.
    pub command: Option<String>,
    /// The words of its server, if it has one.
    pub server: Option<String>,
}

/// One finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDocument {
    /// Repetition of the plan; differences are paired within a block.
    pub block: u32,
    /// Index into `settings`.
    pub setting: usize,
    /// Index into `workloads`.
    pub workload: usize,
    /// Start, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Every figure of this run by its name.
    pub metrics: BTreeMap<String, f64>,
    /// This run's percentiles with the distribution-free interval of its own samples. It treats
    /// them as independent, and tells nothing of other runs.
    pub percentiles_within_run: BTreeMap<String, Estimate>,
    /// Counts of each host's kernel.
    pub hosts: Vec<RunHost>,
    /// Names of the passed checks.
    pub checks_passed: Vec<String>,
    /// The failed checks, with their figures.
    pub checks_failed: Vec<RunCheck>,
    /// Names of those of `metrics` that another program reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics_given: Vec<String>,
    /// CPU time that other programs reported for their end, each by its own method.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<RunProgram>,
    /// Of a slice of live traffic with a setting that is not today's: its changes, and what ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<RunLive>,
    /// Of live traffic that is told apart: the groups of its connections, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp_groups: BTreeMap<String, RunGroup>,
}

/// A slice of live traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunLive {
    /// Duration of the change to the setting.
    pub change_ns: u64,
    /// Duration of the change back to today's.
    pub change_back_ns: u64,
    /// Unmeasured time after each change: it grows if carry-over is found to take longer.
    pub cut_ns: u64,
    /// The guard that was broken; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard_broken: Option<RunGuard>,
    /// Why the setting is banned from this run on; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub banned: Option<String>,
}

/// A guard that was broken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunGuard {
    /// The guard, as in the plan.
    pub guard: String,
    /// The figure that broke it.
    pub value: f64,
    /// Today's, just before.
    pub today: Option<f64>,
    /// How long the setting had been in force.
    pub after_ns: u64,
    /// From the reading that broke it until today's values were read back.
    pub until_back_ns: u64,
}

/// The CPU time that another program reported for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunProgram {
    /// `sut` or `generator`.
    pub role: String,
    /// `iperf3`, `netserver`.
    pub program: String,
    /// Its method, in words.
    pub method: String,
    /// Busy share: of one CPU for a process, of all CPUs for a host.
    pub busy_ratio: f64,
}

/// One host in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunHost {
    /// Name in the testbed.
    pub host: String,
    /// `sut`, `generator` or `observer`.
    pub role: String,
    /// Start of the window on the host's own wall clock, nanoseconds since 1970.
    pub window_started_unix_ns: Option<u64>,
    /// Length of the window.
    pub window_ns: u64,
    /// Source of CPU times: `record`, `trace`, `idle`, `ticks` (which can miss busy spells) or `simulated`.
    pub cpu_source: String,
    /// Share of the host's CPUs by part: user, system, irq, softirq, steal.
    pub cpu_ratio: BTreeMap<String, f64>,
    /// CPU time of this host per transaction, or per KB (1024 byte) of goodput.
    pub service_demand_us: Option<f64>,
    /// CPU time of latput's own counter sampling.
    pub sampling_cpu_ns: u64,
    /// CPU time of tracing in the window; null where nothing was traced in it, or the kernel does not count.
    pub tracing_cpu_ns: Option<u64>,
    /// Length of the span beside the window in which CPU time was traced, by which `cpu_ratio` is divided; null where there was
    /// none.
    #[serde(default)]
    pub traced_beside_ns: Option<u64>,
    /// Packets in.
    pub rx_packets_count: u64,
    /// Packets out.
    pub tx_packets_count: u64,
    /// Dropped on the way in.
    pub rx_dropped_count: u64,
    /// Dropped on the way out.
    pub tx_dropped_count: u64,
    /// `NET_RX` and `NET_TX` softirq runs.
    pub softirqs_count: u64,
    /// Hardware interrupts.
    pub interrupts_count: u64,
    /// The knobs as read before the trial.
    pub knobs: Vec<KnobReading>,
}

/// One knob as read back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnobReading {
    /// The kernel's name.
    pub knob: String,
    /// `device`, or the knob's queue.
    pub place: String,
    /// The value with its unit.
    pub value: String,
}

/// A check that failed in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCheck {
    /// Name of the check.
    pub name: String,
    /// Its figures.
    pub detail: String,
}

/// One setting under one workload, over all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellDocument {
    /// Index into `settings`.
    pub setting: usize,
    /// Index into `workloads`.
    pub workload: usize,
    /// Number of runs.
    pub runs_count: usize,
    /// Each figure with its interval.
    pub metrics: BTreeMap<String, Estimate>,
    /// Each figure over the first setting's, paired within blocks.
    pub against_first_ratio: BTreeMap<String, Estimate>,
    /// Whether the intervals of the rate and of the CPU utilisation of both ends are as narrow as
    /// wanted.
    pub narrow_enough: bool,
    /// Round-trip times of all runs, merged.
    pub latency_histogram: Option<Histogram>,
    /// Round-trip times of the probe in all runs, merged.
    pub probe_histogram: Option<Histogram>,
}

/// A figure and its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Lower end; `null` for a single run.
    pub low: Option<f64>,
    /// Upper end; `null` for a single run.
    pub high: Option<f64>,
    /// The actual confidence of the interval; `null` if unknown.
    pub confidence: Option<f64>,
    /// `student_t`, `order_statistic`, `paired_log_ratio`, `welch_log_ratio` or `single`.
    pub method: String,
    /// Number of independent values.
    pub runs_count: usize,
}

/// Counts of durations. `upper_ns[i]` is the largest duration of bucket `i`; buckets are at most
/// 0.1% wide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Upper ends of the non-empty buckets, ascending.
    pub upper_ns: Vec<u64>,
    /// Number of durations in each bucket.
    pub count: Vec<u64>,
}

/// A metric that the plan defines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanMetric {
    /// Its name in `metrics`.
    pub name: String,
    /// The unit of its values.
    pub unit: String,
    /// `higher`, `lower` or `neither`: which is better.
    pub better: String,
    /// `mean` or `median` over runs.
    pub summarised: String,
}

/// A metric in one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricOfWorkload {
    /// Index into `workloads`.
    pub workload: usize,
    /// The metric's name.
    pub metric: String,
}

/// A run far from its cell's others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outlier {
    /// Index into `settings`.
    pub setting: usize,
    /// Index into `workloads`.
    pub workload: usize,
    /// The run's block.
    pub block: u32,
    /// The outlying figure.
    pub metric: String,
    /// Its value in this run; `null` if it is no number.
    pub value: Option<f64>,
    /// The median of the cell's runs; `null` if it is no number.
    pub median: Option<f64>,
}

/// Checks of one name that failed in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailedCheck {
    /// Index into `settings`.
    pub setting: usize,
    /// Index into `workloads`.
    pub workload: usize,
    /// The check's name.
    pub name: String,
    /// Number of runs in which it failed.
    pub runs_count: usize,
    /// Detail of the first failure.
    pub detail: String,
}

/// The trials of results, each converted when it is written: thousands at once would fill the
/// memory.
#[derive(Debug)]
pub(crate) struct LazyRuns<'a>(&'a Results);

impl Serialize for LazyRuns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows.iter().map(|row| run(self.0, row)))
    }
}

impl<'a> Document<LazyRuns<'a>> {
    /// The document of these results, for one serialisation.
    pub(crate) fn with_lazy_runs(results: &'a Results, summary: &ResultsSummary) -> Self {
        Self::with_runs(results, summary, LazyRuns(results))
    }
}

impl Document {
    /// The document of these results.
    pub fn new(results: &Results, summary: &ResultsSummary) -> Self {
        let runs = results.rows.iter().map(|row| run(results, row)).collect();
        Self::with_runs(results, summary, runs)
    }

    /// The JSON Schema (draft 2020-12) of the document, for `docs/` and for tests.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

impl<R> Document<R> {
    fn with_runs(results: &Results, summary: &ResultsSummary, runs: R) -> Self {
        let view = ReportView::new(results, summary);
        Self {
            schema: SCHEMA,
            latput_version: results.latput_version.clone(),
            name: results.name.clone(),
            testbed: results.testbed.clone(),
            goal: results.goal.clone(),
            confidence: finite_or_none(results.confidence),
            half_width_ratio: finite_or_none(results.half_width),
            seed: results.seed.to_string(),
            planned_trials_count: results.planned_trials,
            hosts: results.hosts.iter().map(convert_host).collect(),
            settings: (0..)
                .zip(&results.settings)
                .map(|one| convert_setting(results, one))
                .collect(),
            workloads: results.workloads.iter().map(convert_workload).collect(),
            plan_metrics: results.custom_metrics().into_iter().map(plan_metric).collect(),
            runs,
            cells: summary.cells.iter().map(convert_cell).collect(),
            tcp_groups: GroupsDocument::from_results(results),
            pareto_settings: summary.pareto.clone(),
            headline: summary.headline.as_ref().map(|headline| HeadlineDocument {
                kind: headline.kind().to_owned(),
                sentence: headline.sentence().to_owned(),
                disturbed: matches!(headline, Headline::NotQuiet(_)),
                condition: summary.fitness.condition.clone(),
            }),
            fitness: convert_fitness(&summary.fitness),
            recommendation: build_recommendation(&view),
            outliers: summary.outliers.iter().map(convert_outlier).collect(),
            failed_checks: summary.failed_checks.iter().map(failed_check).collect(),
            warnings: [&*summary.too_wide, &*summary.warnings].concat(),
            notes: results.notes.clone(),
            findings: results.findings.iter().map(convert_finding).collect(),
        }
    }
}

fn convert_host(facts: &latput_trial::results::HostFacts) -> HostDocument {
    let fact = |(key, value): &(String, String)| Fact { key: key.clone(), value: value.clone() };
    HostDocument {
        host: facts.host.clone(),
        role: facts.role.name().to_owned(),
        interface: facts.interface.clone(),
        facts: facts.facts.iter().map(fact).collect(),
    }
}

fn convert_setting(results: &Results, (idx, setting): (usize, &LabelledSetting)) -> Setting {
    let values = |setting: &latput_knobs::Setting| {
        setting.iter().map(|(knob, value)| (knob.to_string(), value.to_string())).into_map()
    };
    let by_role = setting.by_role.iter();
    Setting {
        label: setting.label.clone(),
        today: idx == 0 && !results.today.is_empty(),
        by_role: by_role.map(|(role, knobs)| (role.name().to_owned(), values(knobs))).into_map(),
    }
}

fn convert_fitness(fitness: &RunFitness) -> FitnessDocument {
    let of_setting = |(setting, (unfit_runs, runs)): (&usize, &(usize, usize))| SettingFitness {
        setting: *setting,
        runs: *runs,
        unfit_runs: *unfit_runs,
    };
    let other = |one: &DisturbingProcess| OtherProcessDocument {
        host: one.host.clone(),
        name: one.name.clone(),
        cpu_ratio: finite_or_none(one.cpu_ratio),
        cpus: one.cpus.to_string(),
        switches_per_s: finite_or_none(one.switches_per_s),
    };
    FitnessDocument {
        runs: fitness.runs,
        unfit_runs: fitness.unfit,
        sentence: fitness.describe_unfit(),
        by_setting: fitness.by_setting.iter().map(of_setting).collect(),
        others: fitness.disturbers.iter().map(other).collect(),
    }
}

fn convert_finding(finding: &latput_trial::Finding) -> FindingDocument {
    let latput_trial::Finding { name, hosts, seen, meaning, remedy } = finding.clone();
    FindingDocument { name, hosts, seen, meaning, remedy }
}

fn convert_workload(workload: &latput_trial::Workload) -> Workload {
    let program = workload.program.as_ref();
    Workload {
        command: program.map(|program| program.command.in_words()),
        server: program.and_then(|program| Some(program.server.as_ref()?.command.in_words())),
        name: workload.name.clone(),
        kind: workload.traffic.kind().to_owned(),
        parameters: collect_parameters(workload).into_map(),
    }
}

fn convert_cell(cell: &CellSummary) -> CellDocument {
    let estimates = |estimates: &BTreeMap<Metric, stats::Estimate>| {
        let known = estimates.iter();
        known
            .filter_map(|(metric, e)| Some((metric.name().to_owned(), convert_estimate(e)?)))
            .into_map()
    };
    CellDocument {
        setting: cell.setting,
        workload: cell.workload,
        runs_count: cell.runs,
        metrics: estimates(&cell.metrics),
        against_first_ratio: estimates(&cell.against_first),
        narrow_enough: cell.narrow_enough(),
        latency_histogram: cell.latency.as_ref().map(convert_histogram),
        probe_histogram: cell.probe.as_ref().map(convert_histogram),
    }
}

/// An estimate in JSON; `None` if the figure is no number.
pub(crate) fn convert_estimate(estimate: &stats::Estimate) -> Option<Estimate> {
    let method = match estimate.method {
        stats::Method::StudentT => "student_t",
        stats::Method::OrderStatistic => "order_statistic",
        stats::Method::PairedLogRatio => "paired_log_ratio",
        stats::Method::WelchLogRatio => "welch_log_ratio",
        stats::Method::Single => "single",
    };
    let ends = interval_bounds(estimate);
    estimate.value.is_finite().then(|| Estimate {
        value: estimate.value,
        low: ends.map(|(low, _)| low),
        high: ends.map(|(_, high)| high),
        confidence: finite_or_none(estimate.confidence),
        method: method.to_owned(),
        runs_count: estimate.runs,
    })
}

fn convert_histogram(histogram: &stats::Histogram) -> Histogram {
    let (upper_ns, count) =
        histogram.buckets().map(|(upper, count)| (upper.as_ns(), count)).unzip();
    Histogram { upper_ns, count }
}

fn plan_metric(metric: CustomMetric) -> PlanMetric {
    let row = metric.row();
    PlanMetric {
        name: row.name.to_owned(),
        unit: row.unit.name().to_owned(),
        better: row.preferred.name().to_owned(),
        summarised: row.summary.name().to_owned(),
    }
}

fn convert_outlier(outlier: &latput_model::summary::OutlierRun) -> Outlier {
    Outlier {
        setting: outlier.setting,
        workload: outlier.workload,
        block: outlier.block,
        metric: outlier.metric.name().to_owned(),
        value: finite_or_none(outlier.value),
        median: finite_or_none(outlier.median),
    }
}

fn failed_check(check: &latput_model::summary::FailedCheck) -> FailedCheck {
    FailedCheck {
        setting: check.setting,
        workload: check.workload,
        name: check.name.clone(),
        runs_count: check.runs,
        detail: check.detail.clone(),
    }
}

/// A number in JSON, which has no NaN and no infinity. Such values are absent, because 0 would be a
/// claim.
fn finite_or_none(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
