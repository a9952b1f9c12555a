//! A comparison as CSV: a line for each figure of each workload under each pair of settings.

use latput_model::Comparison;
use latput_model::compare::FigureComparison;

use super::csv_line;
use crate::format;

const HEADER: [&str; 14] = [
    "base",
    "other",
    "workload",
    "metric",
    "base_compared",
    "other_compared",
    "ratio",
    "ratio_low",
    "ratio_high",
    "ratio_confidence",
    "p_value",
    "largest_loss_ratio",
    "paired",
    "verdict",
];

/// The comparisons in the format of RFC 4180, with a header. Figures are in the unit that their name ends in. A field is
/// empty where there is no such number.
pub fn comparison_csv(comparisons: &[Comparison]) -> String {
    let mut text = csv_line(&HEADER.map(str::to_owned));
    for comparison in comparisons {
        for figure in &comparison.figures {
            text += &csv_line(&figure_fields(comparison, figure));
        }
    }
    text
}

fn figure_fields(comparison: &Comparison, figure: &FigureComparison) -> [String; 14] {
    let number = |value: Option<f64>| {
        value.filter(|value| value.is_finite()).map_or_else(String::new, |it| it.to_string())
    };
    let ratio = figure.ratio.as_ref();
    let interval = ratio.and_then(format::interval_bounds);
    [
        comparison.base.clone(),
        comparison.other.clone(),
        figure.workload.clone(),
        figure.metric.name().to_owned(),
        number(Some(figure.compared.0)),
        number(Some(figure.compared.1)),
        number(ratio.map(|ratio| ratio.value)),
        number(interval.map(|(low, _)| low)),
        number(interval.map(|(_, high)| high)),
        number(interval.and(ratio).map(|ratio| ratio.confidence)),
        number(figure.p_value),
        number(figure.largest_loss.filter(|loss| *loss < f64::MAX)),
        comparison.paired.to_string(),
        figure.verdict.name().to_owned(),
    ]
}
