//! A figure over many runs: a table by time, a JSON document, and CSV with a line to a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use comfy_table::Table;
use latput_model::history::{RunFigure, run_figures};
use latput_trial::metric::Scale;
use latput_trial::{Metric, Results, Traffic};
use latput_units::{IntoMap, text::format_utc};
use schemars::JsonSchema;
use serde::Serialize;

use crate::document::{Estimate, convert_estimate};
use crate::export::csv_line;
use crate::format;
use crate::lines::wrap_text;
use crate::plain::render_plain_table;
use crate::printable::make_printable;
use crate::screen::Screen;

/// The version of the document's schema.
const SCHEMA: u32 = 1;

/// The figures of one run and what it ran on.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryRun {
    source: RunSource,
    figures: Vec<HistoryFigure>,
}

/// Where a run is from and what it ran on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunSource {
    /// `FILE#N`, as `report --compare` takes it.
    run: String,
    /// Start, milliseconds since 1970.
    started_unix_ms: u64,
    /// The plan's name.
    name: String,
    /// The testbed.
    testbed: String,
    /// The version of latput that made it.
    latput_version: String,
    /// The hosts.
    hosts: Vec<String>,
    /// The hosts' kernels, each once.
    kernels: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct HistoryFigure {
    setting: String,
    workload: String,
    traffic: Traffic,
    metric: Metric,
    estimate: latput_stats::Estimate,
}

/// Figures over runs, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryDocument {
    /// Version of this schema: 1.
    schema: u32,
    /// The runs, oldest first.
    runs: Vec<RunDocument>,
}

/// One run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunDocument {
    /// Where it is from and what it ran on.
    source: RunSource,
    /// Its figures.
    figures: Vec<FigureDocument>,
}

/// One figure of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FigureDocument {
    /// The setting's label.
    setting: String,
    /// The workload's name.
    workload: String,
    /// The figure's name.
    metric: String,
    /// Its estimate over the run's trials; null if it is no number.
    estimate: Option<Estimate>,
}

impl HistoryRun {
    /// The wanted figures of a run (none: those that a workload is judged by) of the settings and workloads whose
    /// names `is_wanted` takes. `run` is `FILE#N`.
    pub fn new(
        run: String,
        started_unix_ms: u64,
        results: &Results,
        wanted: &[Metric],
        is_wanted: impl Fn(&str, &str) -> bool,
    ) -> Self {
        let figure = |RunFigure { setting, workload, metric, estimate }: RunFigure| {
            let setting = results.settings[setting].label.clone();
            let workload = &results.workloads[workload];
            is_wanted(&setting, &workload.name).then(|| HistoryFigure {
                setting,
                workload: workload.name.clone(),
                traffic: workload.traffic,
                metric,
                estimate,
            })
        };
        let mut kernels: Vec<String> = Vec::new();
        for (_, kernel) in
            results.hosts.iter().flat_map(|host| &host.facts).filter(|(key, _)| key == "kernel")
        {
            if !kernels.contains(kernel) {
                kernels.push(kernel.clone());
            }
        }
        let source = RunSource {
            run,
            started_unix_ms,
            name: results.name.clone(),
            testbed: results.testbed.clone(),
            latput_version: results.latput_version.clone(),
            hosts: results.hosts.iter().map(|host| host.host.clone()).collect(),
            kernels,
        };
        Self {
            source,
            figures: run_figures(results, wanted).into_iter().filter_map(figure).collect(),
        }
    }

    /// Whether it has no figure that was wanted.
    pub const fn is_empty(&self) -> bool {
        self.figures.is_empty()
    }

    fn format_start(&self) -> String {
        format_utc(self.source.started_unix_ms / 1000)
    }

    fn by_series(&self) -> BTreeMap<SeriesKey<'_>, &latput_stats::Estimate> {
        self.figures
            .iter()
            .map(|figure| (SeriesKey::from_figure(figure), &figure.estimate))
            .into_map()
    }
}

/// The name of one figure over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SeriesKey<'a> {
    workload: &'a str,
    setting: &'a str,
    metric: Metric,
}

impl<'a> SeriesKey<'a> {
    fn from_figure(figure: &'a HistoryFigure) -> Self {
        Self { workload: &figure.workload, setting: &figure.setting, metric: figure.metric }
    }

    /// Every series with its traffic, in the order of its first run.
    fn collect_from_runs(runs: &'a [HistoryRun]) -> Vec<(Self, Traffic)> {
        let mut all: Vec<(Self, Traffic)> = Vec::new();
        let mut seen = BTreeSet::new();
        for figure in runs.iter().flat_map(|run| &run.figures) {
            if seen.insert(Self::from_figure(figure)) {
                all.push((Self::from_figure(figure), figure.traffic));
            }
        }
        all
    }
}

/// Sorts the runs by their start, oldest first.
pub fn sort_runs(runs: &mut [HistoryRun]) {
    runs.sort_by(|a, b| {
        (a.source.started_unix_ms, &a.source.run).cmp(&(b.source.started_unix_ms, &b.source.run))
    });
}

/// A table for each figure, with a line to a run.
pub fn render_terminal(runs: &[HistoryRun], screen: Screen) -> String {
    let mut text = String::new();
    let figures: Vec<_> = runs.iter().map(|run| (run, run.by_series())).collect();
    for (series, traffic) in SeriesKey::collect_from_runs(runs) {
        let of_run = |(run, own): &(_, BTreeMap<_, _>)| Some((*run, *own.get(&series)?));
        let found: Vec<(&HistoryRun, &latput_stats::Estimate)> =
            figures.iter().filter_map(of_run).collect();
        let largest = found.iter().map(|(_, it)| it.value.abs()).fold(0.0, f64::max);
        let scale = Scale::choose(series.metric, &traffic, largest);
        let title = format!(
            "{} of {} under {}, {}",
            series.metric.column(),
            series.workload,
            series.setting,
            scale.unit
        );
        text += &wrap_text(&title, "", screen.columns);
        let mut table = Table::new();
        table.set_header(["started (UTC)", "run", "hosts", "kernel", "figure", ""]);
        table.add_rows(found.into_iter().map(|(run, estimate)| {
            let interval = format::interval_behind(estimate, &scale);
            [
                run.format_start().trim_end_matches(" UTC").to_owned(),
                make_printable(&run.source.run),
                make_printable(&run.source.hosts.join(", ")),
                make_printable(&run.source.kernels.join(", ")),
                scale.number(estimate.value),
                interval.trim_start().to_owned(),
            ]
        }));
        let _ = writeln!(text, "{}\n", render_plain_table(table, 4..=4, screen.columns).join("\n"));
    }
    text.trim_end().to_owned() + "\n"
}

/// The document of `latput history --json`.
pub fn build_document(runs: &[HistoryRun]) -> HistoryDocument {
    let figure = |figure: &HistoryFigure| FigureDocument {
        setting: figure.setting.clone(),
        workload: figure.workload.clone(),
        metric: figure.metric.name().to_owned(),
        estimate: convert_estimate(&figure.estimate),
    };
    let run = |run: &HistoryRun| RunDocument {
        source: run.source.clone(),
        figures: run.figures.iter().map(figure).collect(),
    };
    HistoryDocument { schema: SCHEMA, runs: runs.iter().map(run).collect() }
}

/// The JSON Schema (draft 2020-12) of the document.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(HistoryDocument).to_value()
}

/// One line to a run and one column to a figure, as Apache Otava reads series (type `csv`, time column `time`). A figure
/// that a run lacks is an empty field.
pub fn render_csv(runs: &[HistoryRun]) -> String {
    let series = SeriesKey::collect_from_runs(runs);
    let mut header: Vec<String> = ["time", "run", "name", "testbed", "hosts", "kernels", "latput"]
        .map(str::to_owned)
        .to_vec();
    header.extend(series.iter().map(|(series, _)| {
        let SeriesKey { workload, setting, metric } = series;
        format!("{workload}@{setting}/{metric}")
    }));
    let mut text = csv_line(&header);
    for run in runs {
        let source = &run.source;
        let figures = run.by_series();
        let mut fields = vec![
            run.format_start(),
            source.run.clone(),
            source.name.clone(),
            source.testbed.clone(),
            source.hosts.join(" "),
            source.kernels.join(" "),
            source.latput_version.clone(),
        ];
        fields.extend(series.iter().map(|(series, _)| {
            figures.get(series).map_or_else(String::new, |estimate| estimate.value.to_string())
        }));
        text += &csv_line(&fields);
    }
    text
}
