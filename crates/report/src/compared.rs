//! The words of one comparison of two figures, for every table of them.

use latput_model::Comparison;
use latput_model::compare::FigureComparison;
use latput_trial::Results;
use latput_trial::metric::Scale;

use crate::format;

/// The rules of all comparisons; empty where nothing is judged.
pub(crate) fn describe_method(comparisons: &[Comparison]) -> String {
    let Some(Comparison { method, .. }) = comparisons.first() else { return String::new() };
    let figures = comparisons.iter().flat_map(|comparison| &comparison.figures);
    let judged = figures.filter(|figure| figure.p_value.is_some()).count();
    if judged == 0 {
        return String::new();
    }
    let effect = if method.smallest_effect > 0.0 {
        format!(
            "; differences below {} are ignored",
            format::format_percent(method.smallest_effect)
        )
    } else {
        String::new()
    };
    format!(
        "{} confidence over all {} together (Holm){effect}; from six pairs or trials on, the smallest and the largest \
         fifth are left out as outliers",
        format::format_percent(method.confidence),
        format::format_count(judged, "comparison"),
    )
}

/// The texts of one figure: name, base, other, change, interval and verdict. The change is made of both figures.
pub(crate) fn format_figure_row(figure: &FigureComparison, results: &Results) -> [String; 6] {
    let any = latput_trial::Traffic::tcp_rr(0);
    let traffic = results.workloads.get(figure.workload_idx).map_or(any, |w| w.traffic);
    let (base, other) = figure.compared;
    let scale = Scale::choose(figure.metric, &traffic, base.abs().max(other.abs()));
    let ratio = figure.ratio.as_ref();
    [
        figure.metric.column().to_owned(),
        scale.with_unit(base),
        scale.with_unit(other),
        ratio.map_or_else(|| "n/a".to_owned(), |ratio| format::format_change(ratio.value)),
        ratio.and_then(format::change_interval).unwrap_or_default(),
        figure.verdict.name().to_owned(),
    ]
}
