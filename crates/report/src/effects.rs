//! Whether the settings of a plan without a goal matter: each figure's change against the first setting.

use std::fmt::Write as _;

use comfy_table::Table;
use latput_model::compare::{CompareMethod, FigureComparison, SMALLEST_EFFECT, Verdict};
use latput_model::{Comparison, compare};
use latput_trial::Results;

use crate::compared::{method, row};
use crate::comparison::by_workload;
use crate::format;
use crate::lines::wrapped;
use crate::plain::plain;
use crate::printable::printable;
use crate::screen::Screen;

/// The title of the section.
pub(crate) const TITLE: &str = "Does it matter?";
/// Most settings with a table of every figure. The others have their sentence.
const MOST_TABLES: usize = 3;
/// An interval that reaches this far tells nothing of use.
const FAR: f64 = 1.0;

/// Every other setting compared with the first; none with a goal, whose answer says it, or without other settings.
pub(crate) fn effects(results: &Results) -> Vec<Comparison> {
    if results.goal.is_some() || results.rows.is_empty() {
        return Vec::new();
    }
    let pairs: Vec<(usize, usize)> = (1..results.settings.len()).map(|other| (0, other)).collect();
    let method = CompareMethod { confidence: results.confidence, smallest_effect: SMALLEST_EFFECT };
    let found = compare(results, results, &pairs, method);
    found.into_iter().filter(|comparison| !comparison.figures.is_empty()).collect()
}

/// The section of a terminal's report; empty where there is nothing to tell.
pub(crate) fn section(results: &Results, screen: Screen) -> String {
    let found = effects(results);
    let mut text = String::new();
    for comparison in &found {
        text += &wrapped(&sentence(comparison), "  ", screen.columns);
    }
    if text.is_empty() {
        return text;
    }
    text += &wrapped(&format!("{}.", method(&found)), "  ", screen.columns);
    for comparison in found.iter().take(MOST_TABLES) {
        for (workload, figures) in by_workload(comparison) {
            let mut table = Table::new();
            let name = printable(&format!("{workload}, {}", comparison.other));
            table.set_header([name.as_str(), "first", "second", "change", "interval", ""]);
            table.add_rows(figures.into_iter().map(|figure| row(figure, results)));
            let _ = write!(text, "\n{}\n", plain(table, 1..=4, screen.columns).join("\n"));
        }
    }
    text
}

/// `gro=off instead of gro=on changes tcp_rr p99 by -12.1% (-15.0 to -9.1%). Any other change is below 3.2%.`
pub(crate) fn sentence(comparison: &Comparison) -> String {
    let is_changed =
        |figure: &&FigureComparison| matches!(figure.verdict, Verdict::Better | Verdict::Worse);
    let figures = &comparison.figures;
    let changes: Vec<String> = figures.iter().filter(is_changed).map(change).collect();
    let others = figures.iter().filter(|figure| !is_changed(figure));
    let judged: Vec<f64> =
        others.filter(|it| it.verdict != Verdict::NotJudged).map(reach).collect();
    let farthest = judged.iter().copied().fold(0.0, f64::max);
    let which = if changes.is_empty() { "Any change" } else { "Any other change" };
    let bound = match (judged.is_empty(), farthest) {
        (true, _) if changes.is_empty() => " Too few runs to judge any figure.".to_owned(),
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
fn change(figure: &FigureComparison) -> String {
    let name = format!("{} {}", figure.workload, figure.metric.column());
    let Some(ratio) = &figure.ratio else { return format!("{name} from or to 0") };
    let interval = format::change_interval(ratio);
    let interval = interval.map_or_else(String::new, |interval| format!(" ({interval})"));
    format!("{name} by {}{interval}", format::change(ratio.value))
}

/// How far from no change the interval reaches, as a share. Figures of 0 in all runs have not changed.
fn reach(figure: &FigureComparison) -> f64 {
    match &figure.ratio {
        Some(ratio) => {
            let far = (ratio.high - 1.0).max(1.0 - ratio.low);
            if far.is_finite() { far } else { f64::INFINITY }
        }
        None if figure.verdict == Verdict::Equivalent => 0.0,
        None => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use latput_stats::{Estimate, Method};
    use latput_trial::Metric;

    use super::*;

    fn figure(verdict: Verdict, ratio: Option<[f64; 3]>) -> FigureComparison {
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
            p_value: (verdict != Verdict::NotJudged).then_some(0.5),
            ratio,
            verdict,
            largest_loss: None,
        }
    }

    fn said(figures: Vec<FigureComparison>) -> String {
        sentence(&Comparison {
            base: "gro=on".to_owned(),
            other: "gro=off".to_owned(),
            paired: true,
            method: CompareMethod { confidence: 0.99, smallest_effect: 0.01 },
            figures,
            remarks: Vec::new(),
            origin: Vec::new(),
        })
    }

    #[test]
    fn changes_are_told_and_bounded() {
        let same = figure(Verdict::NoDifferenceShown, Some([0.99, 1.0, 1.032]));
        let worse = figure(Verdict::Worse, Some([1.2, 1.3, 1.4]));
        assert_eq!(
            said(vec![worse, same.clone()]),
            "gro=off instead of gro=on changes tcp_rr p99 by +30.0% (+20.0 to +40.0%). Any other change is below \
             3.20%."
        );
        assert_eq!(
            said(vec![same.clone()]),
            "gro=off instead of gro=on shows no difference. Any change is below 3.20%."
        );
        let wide = figure(Verdict::NoDifferenceShown, Some([0.5, 1.0, 2.5]));
        assert!(said(vec![same, wide]).ends_with("some figures are too noisy to tell."));
        let few = said(vec![figure(Verdict::NotJudged, None)]);
        assert!(few.ends_with("Too few runs to judge any figure."), "{few}");
    }
}
