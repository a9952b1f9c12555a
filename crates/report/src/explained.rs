//! The JSON of `latput model fit` and `latput explain`.

mod cells;
mod words;

use std::collections::BTreeMap;

use latput_model::explain::{CellExplanation, TimePart};
use latput_model::fit::{CostModel, CostObstacle, FittedTerm};
use latput_trial::Results;
use schemars::JsonSchema;
use serde::Serialize;

pub use self::cells::{ExplainError, RunExplanation, select_workloads};
use self::words::in_words;

/// The CPU cost model of every host of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FitDocument {
    /// Version of this document's schema: 1.
    pub schema: u32,
    /// The plan's name.
    pub name: String,
    /// The testbed.
    pub testbed: String,
    /// Confidence of the intervals, such as 0.99.
    pub confidence: f64,
    /// The method of the intervals.
    pub intervals: String,
    /// The cost model of each host.
    pub hosts: Vec<HostModel>,
}

/// The cost model of one host.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostModel {
    /// The host's name.
    pub host: String,
    /// `sut`, `generator` or `observer`.
    pub role: String,
    /// Number of settings under workloads in the fit.
    pub cells: usize,
    /// Condition number of the fit's columns at unit length; null without a fit.
    pub condition_number: Option<f64>,
    /// Absolute relative error of the fitted CPU time, median over the cells; null without a fit.
    pub error_ratio_median: Option<f64>,
    /// 90th percentile of the absolute relative error.
    pub error_ratio_p90: Option<f64>,
    /// Every term.
    pub terms: Vec<TermModel>,
    /// Every cell with the relative error of its fitted CPU time.
    pub errors: Vec<CellError>,
}

/// One term with its cost or refusal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TermModel {
    /// `byte`, `packet`, `interrupt`, `poll` or `background`.
    pub term: String,
    /// The unit of `cost_ns`: `byte`, `packet`, `interrupt`, `poll`, `second`.
    pub unit: String,
    /// CPU time of one unit; null if unknown.
    pub cost_ns: Option<f64>,
    /// Lower end of its interval.
    pub cost_ns_low: Option<f64>,
    /// Upper end of its interval.
    pub cost_ns_high: Option<f64>,
    /// Its share of the CPU time, median over the cells.
    pub share_ratio: Option<f64>,
    /// The reason why there is no cost: `not_counted`, `never_happened`, `too_few_cells`,
    /// `moves_with`, `uncertain`; null with a cost.
    pub refused: Option<String>,
    /// The term that it moves with.
    pub moves_with: Option<String>,
    /// The factor that a plan must vary to determine it; null with a cost, or if no plan helps.
    pub vary: Option<String>,
}

/// The error of the fit for one setting under one workload.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// The setting's label.
    pub setting: String,
    /// The workload's name.
    pub workload: String,
    /// Fitted over measured CPU time, minus 1.
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
            hosts: models.iter().map(|model| HostModel::new(results, model)).collect(),
        }
    }
}

impl HostModel {
    fn new(results: &Results, model: &CostModel) -> Self {
        Self {
            host: model.host.clone(),
            role: model.role.name().to_owned(),
            cells: model.cells,
            condition_number: model.condition_number.filter(|number| number.is_finite()),
            error_ratio_median: model.error_quantile(0.5),
            error_ratio_p90: model.error_quantile(0.9),
            terms: model.terms.iter().map(TermModel::from_term).collect(),
            errors: model
                .errors
                .iter()
                .map(|cell| CellError {
                    setting: results.settings[cell.setting].label.clone(),
                    workload: results.workloads[cell.workload].name.clone(),
                    error_ratio: cell.error_ratio,
                })
                .collect(),
        }
    }
}

impl TermModel {
    fn from_term(fitted: &FittedTerm) -> Self {
        let cost = fitted.finding.as_ref().ok();
        let refusal = fitted.finding.as_ref().err();
        Self {
            term: fitted.term.name().to_owned(),
            unit: fitted.term.unit().to_owned(),
            cost_ns: cost.map(|cost| cost.ns),
            cost_ns_low: cost.map(|cost| cost.ns_low),
            cost_ns_high: cost.map(|cost| cost.ns_high),
            share_ratio: cost.map(|cost| cost.share),
            refused: refusal.map(|refusal| reason_name(refusal.why).to_owned()),
            moves_with: refusal.and_then(|refusal| match refusal.why {
                CostObstacle::MovesWith(term) => Some(term.name().to_owned()),
                CostObstacle::NotCounted
                | CostObstacle::NeverHappened
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
        CostObstacle::NeverHappened => "never_happened",
        CostObstacle::TooFewCells => "too_few_cells",
        CostObstacle::MovesWith(_) => "moves_with",
        CostObstacle::Uncertain => "uncertain",
    }
}

/// The split of time and CPU under each setting of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainDocument {
    /// Version of this document's schema: 1.
    pub schema: u32,
    /// The plan's name.
    pub name: String,
    /// The testbed.
    pub testbed: String,
    /// The cost models of the system under test by kind of workload.
    pub models: Vec<KindModel>,
    /// Each setting under each workload.
    pub cells: Vec<ExplainedCell>,
}

/// The cost model of the system under test under one kind of workload.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindModel {
    /// `tcp_rr`, `tcp_stream`.
    pub kind: String,
    /// The model.
    pub model: HostModel,
}

/// The parts of one setting's figures under one workload.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedCell {
    /// The setting's label.
    pub setting: String,
    /// The workload's name.
    pub workload: String,
    /// Mean round trip; null if the workload has none.
    pub round_trip_ns: Option<f64>,
    /// Parts of the round trip: `timer`, `queueing`, `cpu`, `rest`; empty without one.
    pub time: Vec<ExplainedPart>,
    /// CPU time of the system under test per second.
    pub busy_ns_per_s: f64,
    /// Utilisation of its busiest CPU.
    pub busiest_cpu_ratio: Option<f64>,
    /// Parts of the CPU time, in nanoseconds per second, by term.
    pub cpu: Vec<ExplainedPart>,
    /// Terms whose costs are in the unexplained part, because the plan does not tell them apart.
    pub not_told_apart: Vec<String>,
    /// The unexplained part of the CPU time.
    pub unexplained_ratio: f64,
}

/// A part, or the reason why it is unknown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainedPart {
    /// Name of the part.
    pub part: String,
    /// Its amount; null if unknown.
    pub amount_ns: Option<f64>,
    /// Lower end of its interval.
    pub amount_ns_low: Option<f64>,
    /// Upper end of its interval.
    pub amount_ns_high: Option<f64>,
    /// Confidence of the interval.
    pub confidence: Option<f64>,
    /// The reason why there is none, or why it is unknown and what the plan lacks.
    pub why: Option<String>,
}

impl ExplainDocument {
    fn new(
        results: &Results,
        models: &BTreeMap<&str, CostModel>,
        cells: &[CellExplanation],
    ) -> Self {
        let model = |(kind, model): (&&str, &CostModel)| KindModel {
            kind: (*kind).to_owned(),
            model: HostModel::new(results, model),
        };
        Self {
            schema: 1,
            name: results.name.clone(),
            testbed: results.testbed.clone(),
            models: models.iter().map(model).collect(),
            cells: cells.iter().map(|cell| ExplainedCell::new(results, cell)).collect(),
        }
    }
}

impl ExplainedCell {
    fn new(results: &Results, cell: &CellExplanation) -> Self {
        Self {
            setting: results.settings[cell.setting].label.clone(),
            workload: results.workloads[cell.workload].name.clone(),
            round_trip_ns: cell.round_trip_ns,
            time: cell
                .time
                .iter()
                .map(|(stage, amount)| convert_part(stage.name(), amount))
                .collect(),
            busy_ns_per_s: cell.busy_ns_per_s,
            busiest_cpu_ratio: cell.busiest_cpu_ratio,
            cpu: cell.cpu.iter().map(|(term, amount)| convert_part(term.name(), amount)).collect(),
            not_told_apart: cell.not_told_apart.iter().map(|term| term.name().to_owned()).collect(),
            unexplained_ratio: cell.unexplained_ratio,
        }
    }
}

fn convert_part(name: &str, amount: &TimePart) -> ExplainedPart {
    let mut part = ExplainedPart {
        part: name.to_owned(),
        amount_ns: None,
        amount_ns_low: None,
        amount_ns_high: None,
        confidence: None,
        why: None,
    };
    match amount {
        TimePart::Known { ns, ns_low, ns_high, confidence } => {
            part.amount_ns = Some(*ns);
            part.amount_ns_low = Some(*ns_low);
            part.amount_ns_high = Some(*ns_high);
            part.confidence = Some(*confidence);
        }
        TimePart::None(why) => {
            part.amount_ns = Some(0.0);
            part.why = Some((*why).to_owned());
        }
        TimePart::Unknown(why) => part.why = Some((*why).to_owned()),
    }
    part
}
