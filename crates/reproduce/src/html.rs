//! The reproduction as one HTML file: predicted over published on log axes, a heatmap of errors for
//! each table, and the mechanism in two sentences. It works offline and without scripts.
//!
//! This module computes the content. The template in `assets` formats it and escapes every text.

mod mechanism;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;

use self::mechanism::find_mechanism;
use crate::delay_mtu::{self, PublishedClaim};
use crate::published::{
    AccuracyTarget, FILES, ReproducedFigure, Reproduction, TableErrors, scale_name,
};

const TEMPLATE: &str = include_str!("../assets/reproduction.html");
const STYLE: &str = include_str!("../assets/reproduction.css");

/// Side and margin of a plot in pixels.
const SIDE: f64 = 420.0;
const MARGIN: f64 = 46.0;

/// The page.
pub fn render_page(reproduction: &Reproduction) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let page = ReproductionPage {
        style: STYLE,
        figures: reproduction.figures.len(),
        targets: reproduction.targets.iter().map(|it| (it, it.label.name())).collect(),
        files: build_file_sections(reproduction),
        claims: &reproduction.claims,
        slides: (delay_mtu::FILE, find_mechanism(delay_mtu::FILE)),
        side: SIDE,
        margin: MARGIN,
    };
    let text = environment.render_str(TEMPLATE, Value::from(Serde(&page)));
    text.expect("the template is part of the program and a test renders every branch of it")
}

#[derive(Debug, Serialize)]
struct ReproductionPage<'a> {
    style: &'static str,
    figures: usize,
    /// Each target with its label as text.
    targets: Vec<(&'a AccuracyTarget, &'static str)>,
    files: Vec<FileSection>,
    claims: &'a [PublishedClaim],
    /// The file that has claims instead of cells, and its mechanism.
    slides: (&'static str, &'static str),
    side: f64,
    margin: f64,
}

/// The section of one file.
#[derive(Debug, Serialize)]
struct FileSection {
    name: &'static str,
    mechanism: &'static str,
    scatter: Option<ScatterPlot>,
    errors: Vec<ErrorRates>,
    strips: Vec<ErrorStrip>,
    columns: Vec<String>,
    rows: Vec<ErrorRow>,
}

fn build_file_sections(reproduction: &Reproduction) -> Vec<FileSection> {
    let file = |&(name, _): &(&'static str, &str)| {
        let figures: Vec<&ReproducedFigure> =
            reproduction.figures.iter().filter(|it| it.file == name).collect();
        let columns = collect_distinct(figures.iter().map(|it| it.column.as_str()));
        let tables = reproduction.tables.iter().filter(|it| it.file == name);
        (!figures.is_empty()).then(|| FileSection {
            name,
            mechanism: find_mechanism(name),
            scatter: ScatterPlot::from_figures(&figures),
            errors: tables.map(ErrorRates::from_errors).collect(),
            strips: build_strips(&figures),
            rows: build_rows(&figures, &columns),
            columns: columns.into_iter().map(str::to_owned).collect(),
        })
    };
    FILES.iter().filter_map(file).collect()
}

/// The distinct items in order of their first occurrence.
fn collect_distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Median and 90th percentile of one table of a file.
#[derive(Debug, Serialize)]
struct ErrorRates {
    table: String,
    scale: String,
    figures: usize,
    median: String,
    p90: String,
}

impl ErrorRates {
    fn from_errors(it: &TableErrors) -> Self {
        let unit = if it.scale == "points" { "points" } else { "%" };
        let shown = |ratio: f64| format!("{:.1} {unit}", 100.0 * ratio);
        Self {
            table: if it.table.is_empty() { "all".to_owned() } else { it.table.clone() },
            scale: it.scale.clone(),
            figures: it.figures,
            median: shown(it.median_error_ratio),
            p90: shown(it.p90_error_ratio),
        }
    }
}

/// Least range of an axis in decades.
const NARROWEST: f64 = 0.5;

/// Predicted over published rates (or times), both on log axes.
#[derive(Debug, Serialize)]
struct ScatterPlot {
    ticks: Vec<PlotMark>,
    dots: Vec<PlotMark>,
}

/// A mark in a plot, in pixels.
#[derive(Debug, Serialize)]
struct PlotMark {
    x: String,
    y: String,
    text: String,
    is_odd: bool,
}

impl ScatterPlot {
    /// `None` if no figure fits log axes.
    fn from_figures(figures: &[&ReproducedFigure]) -> Option<Self> {
        let shown: Vec<&&ReproducedFigure> = figures
            .iter()
            .filter(|it| scale_name(it) == "rate" || scale_name(it) == "time")
            .filter(|it| it.published > 0.0 && it.predicted > 0.0)
            .collect();
        let logs = shown.iter().flat_map(|it| [it.published.log10(), it.predicted.log10()]);
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(l, h), log| (l.min(log), h.max(log)));
        if low > high {
            return None;
        }
        // Equal figures are a point in the middle of a range.
        let margin = (f64::midpoint(NARROWEST, low - high)).max(0.05);
        let (low, high) = (low - margin, high + margin);
        let scaled = |value: f64| (value.log10() - low) / (high - low) * (SIDE - 2.0 * MARGIN);
        let mark = |(x, y): (f64, f64), text: String, is_odd: bool| PlotMark {
            x: format!("{:.1}", MARGIN + scaled(x)),
            y: format!("{:.1}", SIDE - MARGIN - scaled(y)),
            text,
            is_odd,
        };
        let tick = |value: f64| {
            let label = if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") };
            mark((value, value), label, false)
        };
        let dot = |it: &&ReproducedFigure| {
            let tip = format!(
                "{} {} {}: {:.5} published, {:.5} predicted",
                it.table, it.what, it.column, it.published, it.predicted
            );
            mark((it.published, it.predicted), tip, it.anomaly.is_some())
        };
        Some(Self {
            ticks: choose_ticks(low, high).into_iter().map(tick).collect(),
            dots: shown.into_iter().map(dot).collect(),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "decades of doubles are few")]
fn choose_ticks(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let steps: &[f64] = match high - low {
        span if span < 0.7 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        span if span < 2.8 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    (first..=last)
        .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
        .filter(|tick| (low..=high).contains(&tick.log10()))
        .collect()
}

/// Error of full colour, per cent.
const FULL_PERCENT: f64 = 30.0;

/// Red where the prediction is too large, blue where it is too small.
fn error_colour(error_ratio: f64) -> String {
    let percent = 100.0 * error_ratio;
    let strength = (percent.abs() / FULL_PERCENT).min(1.0) * 0.85;
    let colour = if percent > 0.0 { "222,72,48" } else { "46,110,222" };
    format!("rgba({colour},{strength:.2})")
}

/// Signed errors of one column of one table, one square for each cell.
#[derive(Debug, Serialize)]
struct ErrorStrip {
    name: String,
    cells: Vec<ErrorCell>,
}

/// One error.
#[derive(Debug, Serialize)]
struct ErrorCell {
    colour: String,
    text: String,
    is_odd: bool,
}

fn build_strips(figures: &[&ReproducedFigure]) -> Vec<ErrorStrip> {
    let places = collect_distinct(figures.iter().map(|it| (it.table.as_str(), it.column.as_str())));
    // Tables of one row share a strip for each column.
    let alone = places.len() == figures.len();
    let named = |(table, column)| if alone { ("", column) } else { (table, column) };
    let strip = |(table, column): (&str, &str)| {
        let is_in = |it: &&&ReproducedFigure| it.column == column && (alone || it.table == table);
        let cell = |it: &&ReproducedFigure| ErrorCell {
            colour: error_colour(it.error_ratio),
            text: format!("{} {}: {:+.1}%", it.table, it.what, 100.0 * it.error_ratio),
            is_odd: it.anomaly.is_some(),
        };
        ErrorStrip {
            name: format!("{table} {column}"),
            cells: figures.iter().filter(is_in).map(cell).collect(),
        }
    };
    collect_distinct(places.into_iter().map(named)).into_iter().map(strip).collect()
}

/// The errors of one cell of the file, one for each column.
#[derive(Debug, Serialize)]
struct ErrorRow {
    name: String,
    errors: Vec<Option<ErrorCell>>,
}

fn build_rows(figures: &[&ReproducedFigure], columns: &[&str]) -> Vec<ErrorRow> {
    let row = |cells: &[&ReproducedFigure]| {
        let error = |column: &&str| {
            let it = cells.iter().find(|it| it.column == *column)?;
            let text = format!("{:+.1}", 100.0 * it.error_ratio);
            Some(ErrorCell {
                colour: error_colour(it.error_ratio),
                text,
                is_odd: it.anomaly.is_some(),
            })
        };
        ErrorRow {
            name: format!("{} {}", cells[0].table, cells[0].what),
            errors: columns.iter().map(error).collect(),
        }
    };
    figures.chunk_by(|a, b| a.row == b.row).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Label, RowCounts};
    use crate::published::Judged;

    #[test]
    fn every_branch_is_rendered_and_escaped() {
        let judged = || Judged { wanted: hostile_text(), seen: hostile_text(), holds: false };
        let target = |alone: Option<Judged>| AccuracyTarget {
            name: hostile_text(),
            label: Label::HandSet,
            rows: RowCounts::default(),
            wanted: hostile_text(),
            seen: hostile_text(),
            holds: true,
            predicted_alone: alone,
            profiles: Vec::new(),
        };
        let claim = PublishedClaim {
            file: hostile_text(),
            id: hostile_text(),
            kind: hostile_text(),
            claim: hostile_text(),
            wanted: hostile_text(),
            seen: hostile_text(),
            holds: false,
            label: Label::Predicted,
        };
        let errors = TableErrors {
            file: String::from("tcp_stream"),
            table: hostile_text(),
            scale: String::from("points"),
            figures: 1,
            median_error_ratio: 0.1,
            p90_error_ratio: 0.1,
        };
        // The second file has nothing that log axes can show.
        let text = render_page(&Reproduction {
            schema: 1,
            figures: vec![
                make_figure("tcp_stream", 1, 5.0),
                make_figure("tcp_stream", 2, 50.0),
                make_figure("two_concurrent", 1, 0.0),
            ],
            tables: vec![errors],
            claims: vec![claim],
            targets: vec![target(None), target(Some(judged()))],
            profiles: Vec::new(),
        });
        assert!(!text.contains("<b> &") && text.contains("a &lt;b&gt; &amp; &quot;c&quot;"));
        let parts = [
            ("<svg", 1),
            ("<circle class=\"odd\"", 1),
            ("<circle class=\"dot\"", 1),
            ("<i class=\"odd\"", 1),
            ("<td class=\"held\">holds</td>", 2),
            ("<td class=\"missed\">missed</td>", 2),
            ("<td>hand-set</td>", 2),
            ("10.0 points", 2),
        ];
        for (part, count) in parts {
            assert_eq!(text.matches(part).count(), count, "{part}");
        }
    }

    fn hostile_text() -> String {
        String::from("a <b> & \"c\"")
    }

    /// The second row of a file is an anomaly.
    fn make_figure(file: &str, row: usize, published: f64) -> ReproducedFigure {
        ReproducedFigure {
            file: file.to_owned(),
            table: hostile_text(),
            row,
            what: hostile_text(),
            column: String::from("rate_tps"),
            profile: String::new(),
            label: Label::Fitted,
            published,
            predicted: 1.1 * published,
            predicted_lo: published,
            predicted_hi: published,
            error_ratio: 0.1,
            anomaly: (row == 2).then(hostile_text),
        }
    }
}
