//! The JSON document of a comparison: all pairs of settings of one command.

use latput_model::Comparison;
use latput_model::compare::{CompareMethod, FigureComparison, OriginDifference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Estimate, convert_estimate};

/// The version of the document's schema.
pub const SCHEMA: u32 = 2;

/// The differences between two sets of runs, with their confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonDocument {
    /// Version of this schema: 2.
    pub schema: u32,
    /// Confidence that no claim of the document is false, such as 0.99.
    pub confidence: f64,
    /// Differences below this share do not matter; 0: every difference matters.
    pub smallest_effect_ratio: f64,
    /// Differences between the two runs besides their settings: day, latput, testbed, hosts, kernels, NICs.
    pub origin: Vec<OriginDocument>,
    /// Each pair of settings: one, or every setting that both runs have.
    pub comparisons: Vec<PairDocument>,
}

/// The comparison of two settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairDocument {
    /// Label of the base setting.
    pub base: String,
    /// Label of the other setting.
    pub other: String,
    /// Whether runs were compared in pairs: of one block, or of one plan run twice in one order.
    pub paired: bool,
    /// Every figure of every workload that both sides have.
    pub figures: Vec<FigureDocument>,
    /// Parts that could not be compared, and values in which settings of one label differ.
    pub remarks: Vec<String>,
}

/// One thing besides the settings that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OriginDocument {
    /// `date`, `latput`, `testbed` or `hosts`; or a fact of a host, such as `kernel of sut`.
    pub what: String,
    /// Its value in the first run.
    pub first: String,
    /// Its value in the second.
    pub second: String,
}

/// The comparison of one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FigureDocument {
    /// The workload's name.
    pub workload: String,
    /// The figure's name.
    pub metric: String,
    /// Estimate of the base over its runs, as in the report of the base alone.
    pub base: Option<Estimate>,
    /// Estimate of the other side over its runs.
    pub other: Option<Estimate>,
    /// The base's figure as it is compared: the geometric mean of the runs that the ratio is made of.
    pub base_compared: f64,
    /// The other side's figure as it is compared.
    pub other_compared: f64,
    /// `other_compared / base_compared`, with its interval at the level of Holm's correction over all comparisons
    /// of the document; `null` where a figure is 0.
    pub ratio: Option<Estimate>,
    /// The chance of a difference at least this large without a true one, not corrected.
    pub p_value: Option<f64>,
    /// The largest loss, as a share, that is not ruled out at the confidence, one-sided and not corrected: 0.02 if a loss
    /// of 2% may hide. `null` with too few runs, or where nothing bounds it.
    #[serde(default)]
    pub largest_loss_ratio: Option<f64>,
    /// `better`, `worse`, `equivalent`, `no difference shown` or `not judged`.
    pub verdict: String,
}

impl ComparisonDocument {
    /// The document of these comparisons, which were made by `method`.
    pub fn new(comparisons: &[Comparison], method: CompareMethod) -> Self {
        let origin = |it: &OriginDifference| OriginDocument {
            what: it.what.clone(),
            first: it.first.clone(),
            second: it.second.clone(),
        };
        // The origin is of the runs: every comparison has the same.
        let origins = comparisons.first().map_or(&[][..], |first| &first.origin);
        Self {
            schema: SCHEMA,
            confidence: method.confidence,
            smallest_effect_ratio: method.smallest_effect,
            origin: origins.iter().map(origin).collect(),
            comparisons: comparisons.iter().map(convert_pair).collect(),
        }
    }

    /// The JSON Schema (draft 2020-12) of the document, for `docs/` and for tests.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}

fn convert_pair(comparison: &Comparison) -> PairDocument {
    PairDocument {
        base: comparison.base.clone(),
        other: comparison.other.clone(),
        paired: comparison.paired,
        figures: comparison.figures.iter().map(convert_figure).collect(),
        remarks: comparison.remarks.clone(),
    }
}

fn convert_figure(figure: &FigureComparison) -> FigureDocument {
    FigureDocument {
        workload: figure.workload.clone(),
        metric: figure.metric.name().to_owned(),
        base: convert_estimate(&figure.base),
        other: convert_estimate(&figure.other),
        base_compared: figure.compared.0,
        other_compared: figure.compared.1,
        ratio: figure.ratio.as_ref().and_then(convert_estimate),
        p_value: figure.p_value,
        largest_loss_ratio: figure.largest_loss.filter(|loss| *loss < f64::MAX),
        verdict: figure.verdict.name().to_owned(),
    }
}

/// The JSON document of all comparisons of a command, with a line feed at its end.
pub fn comparison_json(comparisons: &[Comparison], method: CompareMethod) -> String {
    let text = serde_json::to_string(&ComparisonDocument::new(comparisons, method));
    text.expect("a document has text keys and finite numbers only, so it always serialises") + "\n"
}
