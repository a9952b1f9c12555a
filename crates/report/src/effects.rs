//! Whether the settings of a plan without a goal matter: each figure's change against the first setting.

use std::fmt::Write as _;

use comfy_table::Table;
use latput_model::Comparison;
use latput_model::compare::{CompareMethod, ComparisonVerdict, FigureComparison, SMALLEST_EFFECT};
use latput_trial::Results;

use crate::compared::{describe_method, format_figure_row};
use crate::comparison::group_by_workload;
use crate::format;
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::printable::make_printable;
use crate::screen::Screen;

/// The title of the section.
pub(crate) const TITLE: &str = "Does it matter?";
/// Most settings with a table of every figure. The others have their sentence.
const MOST_TABLES: usize = 3;
/// An interval that reaches this far tells nothing of use.
const FAR: f64 = 1.0;

/// Every other setting compared with the first; none with a goal, whose answer says it, or without other settings.
pub(crate) fn compare_settings(results: &Results) -> Vec<Comparison> {
    if results.goal.is_some() || results.rows.is_empty() {
        return Vec::new();
    }
    let pairs: Vec<(usize, usize)> = (1..results.settings.len()).map(|other| (0, other)).collect();
    let method = CompareMethod { confidence: results.confidence, smallest_effect: SMALLEST_EFFECT };
    let found = latput_model::compare_settings(results, results, &pairs, method);
    found.into_iter().filter(|comparison| !comparison.figures.is_empty()).collect()
}

/// The section of a terminal's report; empty where there is nothing to tell.
pub(crate) fn render_effects(results: &Results, screen: Screen) -> String {
    let found = compare_settings(results);
    let mut text = String::new();
    for comparison in &found {
        text += &wrap_text(&describe_comparison(comparison), "  ", screen.columns);
    }
    if text.is_empty() {
        return text;
    }
    text += &wrap_text(&format!("{}.", describe_method(&found)), "  ", screen.columns);
    for comparison in found.iter().take(MOST_TABLES) {
        for (workload, figures) in group_by_workload(comparison) {
            let mut table = Table::new();
            let name = make_printable(&format!("{workload}, {}", comparison.other));
            table.set_header([name.as_str(), "first", "second", "change", "interval", ""]);
            table.add_rows(figures.into_iter().map(|figure| format_figure_row(figure, results)));
            let _ =
                write!(text, "\n{}\n", render_plain_table(table, 1..=4, screen.columns).join("\n"));
        }
    }
    text
}

/// `gro=off instead of gro=on changes tcp_rr p99 by -12.1% (-15.0 to -9.1%). Any other change is below 3.2%.`
pub(crate) fn describe_comparison(comparison: &Comparison) -> String {
    let is_changed = |figure: &&FigureComparison| {
        matches!(figure.verdict, ComparisonVerdict::Better | ComparisonVerdict::Worse)
    };
    let figures = &comparison.figures;
    let changes: Vec<String> = figures.iter().filter(is_changed).map(describe_change).collect();
    let others = figures.iter().filter(|figure| !is_changed(figure));
    let judged: Vec<f64> =
        others.filter(|it| it.verdict != ComparisonVerdict::NotJudged).map(max_deviation).collect();
    let farthest = judged.iter().copied().fold(0.0, f64::max);
    let which = if changes.is_empty() { "Any change" } else { "Any other change" };
    let bound = match (judged.is_empty(), farthest) {
        (true, _) if changes.is_empty() => " Too few trials to judge any figure.".to_owned(),
        (true, _) => String::new(),
        (false, far) if far >= FAR => {
            format!(" {which} may be large: some figures are too noisy to tell.")
        }
        (false, far) => format!(" {which} is below {}.", format::rough_percent(far)),
    };
    let changed = if changes.is_empty() {
        "shows no difference.".to_owned()
    } else {
        format!("changes {}.", changes.join(", "))
    };
    format!("{} instead of {} {changed}{bound}", comparison.other, comparison.base)
}

/// `tcp_rr p99 by -12.1% (-15.0 to -9.1%)`.
fn describe_change(figure: &FigureComparison) -> String {
    let name = format!("{} {}", figure.workload, figure.metric.column());
    let Some(ratio) = &figure.ratio else { return format!("{name} from or to 0") };
    let interval = format::change_interval(ratio);
    let interval = interval.map_or_else(String::new, |interval| format!(" ({interval})"));
    format!("{name} by {}{interval}", format::format_change(ratio.value))
}

/// How far from no change the interval reaches, as a share. Figures of 0 in all runs have not changed.
fn max_deviation(figure: &FigureComparison) -> f64 {
    match &figure.ratio {
        Some(ratio) => {
            let far = (ratio.high - 1.0).max(1.0 - ratio.low);
            if far.is_finite() { far } else { f64::INFINITY }
        }
        None if figure.verdict == ComparisonVerdict::Equivalent => 0.0,
        None => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use latput_stats::{Estimate, Method};
    use latput_trial::Metric;

    use super::*;

    fn make_figure(verdict: ComparisonVerdict, ratio: Option<[f64; 3]>) -> FigureComparison {
        let ratio = ratio.map(|[low, value, high]| Estimate {
            value,
            low,
            high,
            confidence: 0.99,
            method: Method::PairedLogRatio,
            runs: 6,
        });
        FigureComparison {
            workload: "tcp_rr".to_owned(),
            workload_idx: 0,
            metric: Metric::LatencyNsP99,
            base: Estimate::single(1.0),
            other: Estimate::single(1.0),
            compared: (1.0, 1.0),
            p_value: (verdict != ComparisonVerdict::NotJudged).then_some(0.5),
            ratio,
            verdict,
            largest_loss: None,
        }
    }

    fn describe_figures(figures: Vec<FigureComparison>) -> String {
        describe_comparison(&Comparison {
            base: "gro=on".to_owned(),
            other: "gro=off".to_owned(),
            paired: true,
            method: CompareMethod { confidence: 0.99, smallest_effect: 0.01 },
            obstacle: None,
            figures,
            remarks: Vec::new(),
            origin: Vec::new(),
        })
    }

    #[test]
    fn changes_are_told_and_bounded() {
        let same = make_figure(ComparisonVerdict::NoDifferenceShown, Some([0.99, 1.0, 1.032]));
        let worse = make_figure(ComparisonVerdict::Worse, Some([1.2, 1.3, 1.4]));
        assert_eq!(
            describe_figures(vec![worse, same.clone()]),
            "gro=off instead of gro=on changes tcp_rr p99 by +30.0% (+20.0 to +40.0%). Any other change is below \
             3.20%."
        );
        assert_eq!(
            describe_figures(vec![same.clone()]),
            "gro=off instead of gro=on shows no difference. Any change is below 3.20%."
        );
        let wide = make_figure(ComparisonVerdict::NoDifferenceShown, Some([0.5, 1.0, 2.5]));
        assert!(
            describe_figures(vec![same, wide]).ends_with("some figures are too noisy to tell.")
        );
        let few = describe_figures(vec![make_figure(ComparisonVerdict::NotJudged, None)]);
        assert!(few.ends_with("Too few trials to judge any figure."), "{few}");
    }
}
