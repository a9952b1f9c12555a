//! The JSON of `latput model fit` and `latput explain`.

mod cells;
mod words;

use latput_model::explain::{CellExplanation, ExplainedPart, KnobEffect};
use latput_model::fit::{CostModel, CostObstacle, FittedTerm};
use latput_trial::Results;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::cells::{ExplainError, RunExplanation, select_workloads};

/// The CPU cost models of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FitDocument {
    /// Version of this document's schema: 1.
    pub schema: u32,
    /// The plan's name.
    pub name: String,
    /// The testbed.
    pub testbed: String,
    /// Confidence of the intervals, such as 0.95.
    pub confidence: f64,
    /// The method of the intervals.
    pub intervals: String,
    /// The cost model of each kernel.
    pub models: Vec<KernelModel>,
}

/// The cost model of the hosts of one kernel.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelModel {
    /// The hosts.
    pub hosts: Vec<FittedHost>,
    /// Number of settings under workloads on hosts in the fit.
    pub cells: usize,
    /// Condition number of the fit's columns at unit length; null without a fit.
    pub condition_number: Option<f64>,
    /// Absolute relative error of the CPU time of settings that were left out, median over the cells; null without a fit.
    pub error_ratio_median: Option<f64>,
    /// 90th percentile of the absolute relative error.
    pub error_ratio_p90: Option<f64>,
    /// Whether these errors are small enough for predictions.
    pub is_predictive: bool,
    /// Every term.
    pub terms: Vec<TermModel>,
    /// Every cell with the relative error of its CPU time, as predicted without its setting.
    pub errors: Vec<CellError>,
}

/// A host of a cost model.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedHost {
    /// The host's name.
    pub host: String,
    /// `sut`, `generator` or `observer`.
    pub role: String,
}

/// One term with its cost or refusal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TermModel {
    /// The event: `interrupt`, `packet_received`, `segment`, `poll` and so on.
    pub term: String,
    /// The unit of `cost_ns`: `byte`, `packet`, `interrupt`, `second` and so on.
    pub unit: String,
    /// The stage of a packet's way that it belongs to: `interrupt`, `poll`, `protocol`, `wakeup`, `read`, `send`,
    /// `background`.
    pub stage: String,
    /// CPU time of one unit; null if the model does without it.
    pub cost_ns: Option<f64>,
    /// Lower end of its interval.
    pub cost_ns_low: Option<f64>,
    /// Upper end of its interval.
    pub cost_ns_high: Option<f64>,
    /// The least that is plausible.
    pub plausible_ns_low: f64,
    /// The most that is plausible.
    pub plausible_ns_high: f64,
    /// Its share of the CPU time, median over the cells.
    pub share_ratio: Option<f64>,
    /// The reason why there is no cost: `not_counted`, `too_rare`, `too_few_cells`,
    /// `moves_with`, `uncertain`; null with a cost.
    pub refused: Option<String>,
    /// The term that it moves with.
    pub moves_with: Option<String>,
    /// The factor that a plan must vary to determine it; null with a cost, or if no plan helps.
    pub vary: Option<String>,
}

/// The error of the fit for one setting under one workload on one host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// The host's name.
    pub host: String,
    /// The setting's label.
    pub setting: String,
    /// The workload's name.
    pub workload: String,
    /// Predicted over measured CPU time, minus 1.
    pub error_ratio: f64,
}

impl FitDocument {
    /// The document of these models.
    pub fn new(results: &Results, models: &[CostModel], intervals: &str) -> Self {
        Self {
            schema: 1,
            name: results.name.clone(),
            testbed: results.testbed.clone(),
            confidence: models.first().map_or(results.confidence, |model| model.confidence),
            intervals: intervals.to_owned(),
            models: models.iter().map(|model| KernelModel::new(results, model)).collect(),
        }
    }
}

impl KernelModel {
    fn new(results: &Results, model: &CostModel) -> Self {
        let host = |host: usize| model.hosts.get(host).map_or("", |of| of.host.as_str());
        let hosts = model
            .hosts
            .iter()
            .map(|of| FittedHost { host: of.host.clone(), role: of.role.name().to_owned() });
        let errors = model.errors.iter().map(|cell| CellError {
            host: host(cell.host).to_owned(),
            setting: results.settings[cell.setting].label.clone(),
            workload: results.workloads[cell.workload].name.clone(),
            error_ratio: cell.error_ratio,
        });
        Self {
            hosts: hosts.collect(),
            cells: model.cells,
            condition_number: model.condition_number.filter(|number| number.is_finite()),
            error_ratio_median: model.error_quantile(0.5),
            error_ratio_p90: model.error_quantile(0.9),
            is_predictive: model.is_predictive(),
            terms: model.terms.iter().map(TermModel::from_term).collect(),
            errors: errors.collect(),
        }
    }
}

impl TermModel {
    fn from_term(fitted: &FittedTerm) -> Self {
        let cost = fitted.finding.as_ref().ok();
        let refusal = fitted.finding.as_ref().err();
        let (plausible_ns_low, plausible_ns_high) = fitted.term.plausible_ns();
        Self {
            term: fitted.term.name().to_owned(),
            unit: fitted.term.unit().to_owned(),
            stage: fitted.term.stage().name().to_owned(),
            cost_ns: cost.map(|cost| cost.ns),
            cost_ns_low: cost.map(|cost| cost.ns_low),
            cost_ns_high: cost.map(|cost| cost.ns_high),
            plausible_ns_low,
            plausible_ns_high,
            share_ratio: cost.map(|cost| cost.share),
            refused: refusal.map(|refusal| reason_name(refusal.why).to_owned()),
            moves_with: refusal.and_then(|refusal| match refusal.why {
                CostObstacle::MovesWith(term) => Some(term.name().to_owned()),
                CostObstacle::NotCounted
                | CostObstacle::TooRare
                | CostObstacle::TooFewCells
                | CostObstacle::Uncertain => None,
            }),
            vary: refusal.map(|refusal| refusal.vary.clone()).filter(|vary| !vary.is_empty()),
        }
    }
}

const fn reason_name(why: CostObstacle) -> &'static str {
    match why {
        CostObstacle::NotCounted => "not_counted",
        CostObstacle::TooRare => "too_rare",
        CostObstacle::TooFewCells => "too_few_cells",
        CostObstacle::MovesWith(_) => "moves_with",
        CostObstacle::Uncertain => "uncertain",
    }
}

/// The split of time under each setting of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainDocument {
    /// Version of this document's schema: 1.
    pub schema: u32,
    /// The plan's name.
    pub name: String,
    /// The testbed.
    pub testbed: String,
    /// The cost model of each kernel.
    pub models: Vec<KernelModel>,
    /// Each setting under each workload.
    pub cells: Vec<ExplainedCell>,
    /// Savings of changes of knobs; empty where no model predicts settings that were left out of it.
    pub effects: Vec<PredictedEffect>,
}

/// The parts of one setting's time under one workload.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedCell {
    /// The setting's label.
    pub setting: String,
    /// The workload's name.
    pub workload: String,
    /// The unit of work: `transaction`, of which the time is the mean round trip, or `kilobyte` (1024 bytes of payload), of
    /// which it is the inverse of the goodput.
    pub unit: String,
    /// The time of one unit; null if nothing was transferred.
    pub whole_ns: Option<f64>,
    /// Its parts, which add up to it.
    pub parts: Vec<PartOfTime>,
    /// CPU time of both ends for one unit that does not fit into the whole, at least: it runs beside.
    pub beside_ns: f64,
    /// CPU time of the system under test for one unit; null if it is unknown.
    pub sut_cpu_ns: Option<f64>,
    /// CPU time of the generators for one unit; null if it is unknown.
    pub generator_cpu_ns: Option<f64>,
    /// Utilisation of the busiest CPU of the system under test.
    pub busiest_cpu_ratio: Option<f64>,
    /// Whether other work ran on the CPUs in most trials, so that their CPU time says nothing.
    pub is_shared: bool,
    /// Parts that are not told apart, each with the reason.
    pub missing: Vec<String>,
}

/// A part of the time of one unit of work.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartOfTime {
    /// The stage: `moderation`, `queueing`, `interrupt`, `poll`, `protocol`, `wakeup`, `read`, `send`, `background`, `cpu`
    /// (not divided), `rest`.
    pub stage: String,
    /// Its time.
    pub time_ns: f64,
    /// Lower end of its interval; null without one.
    pub time_ns_low: Option<f64>,
    /// Upper end of its interval.
    pub time_ns_high: Option<f64>,
    /// Confidence of the interval; 0 for one trial.
    pub confidence: Option<f64>,
    /// Where it comes from: `measured`, `compared` (with another setting or workload), `modelled` (measured CPU time,
    /// divided by the cost model) or `remainder`.
    pub basis: String,
}

/// The predicted effect of a knob on the CPU time of the system under test.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictedEffect {
    /// The workload's name.
    pub workload: String,
    /// The event that there would be half as many of.
    pub half_as_many: String,
    /// The change that does it, in words.
    pub change: String,
    /// CPU time saved, median over settings.
    pub saved_ratio: f64,
    /// Lower end of its interval.
    pub saved_ratio_low: f64,
    /// Upper end of its interval.
    pub saved_ratio_high: f64,
}

impl ExplainDocument {
    fn new(
        results: &Results,
        models: &[CostModel],
        cells: &[CellExplanation],
        effects: &[KnobEffect],
    ) -> Self {
        Self {
            schema: 1,
            name: results.name.clone(),
            testbed: results.testbed.clone(),
            models: models.iter().map(|model| KernelModel::new(results, model)).collect(),
            cells: cells.iter().map(|cell| ExplainedCell::new(results, cell)).collect(),
            effects: effects.iter().map(|effect| PredictedEffect::new(results, effect)).collect(),
        }
    }
}

impl ExplainedCell {
    fn new(results: &Results, cell: &CellExplanation) -> Self {
        Self {
            setting: results.settings[cell.setting].label.clone(),
            workload: results.workloads[cell.workload].name.clone(),
            unit: cell.unit.name().to_owned(),
            whole_ns: cell.whole_ns,
            parts: cell.parts.iter().map(PartOfTime::new).collect(),
            beside_ns: cell.beside_ns,
            sut_cpu_ns: cell.sut_cpu_ns,
            generator_cpu_ns: cell.generator_cpu_ns,
            busiest_cpu_ratio: cell.busiest_cpu_ratio,
            is_shared: cell.is_shared,
            missing: cell.missing.iter().map(|why| (*why).to_owned()).collect(),
        }
    }
}

impl PartOfTime {
    fn new(part: &ExplainedPart) -> Self {
        Self {
            stage: part.stage.name().to_owned(),
            time_ns: part.ns,
            time_ns_low: part.interval.map(|it| it.ns_low),
            time_ns_high: part.interval.map(|it| it.ns_high),
            confidence: part.interval.map(|it| it.confidence),
            basis: part.basis.name().to_owned(),
        }
    }
}

impl PredictedEffect {
    fn new(results: &Results, effect: &KnobEffect) -> Self {
        Self {
            workload: results.workloads[effect.workload].name.clone(),
            half_as_many: effect.term.plural().to_owned(),
            change: effect.change.to_owned(),
            saved_ratio: effect.saved_ratio,
            saved_ratio_low: effect.saved_ratio_low,
            saved_ratio_high: effect.saved_ratio_high,
        }
    }
}
