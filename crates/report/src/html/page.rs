//! The data of the page's template, section by section.

use std::collections::BTreeSet;

use latput_model::PredictionReport;
use latput_trial::Metric;
use latput_units::IntoSet;
use serde::Serialize;

use super::head::PageHead;
use super::method::build_method_section;
use super::prose::{Pieces, code_and_prose};
use super::tables::{self, HtmlTable};
use super::trade_offs::{TradeOffs, trade_offs};
use crate::changes::{ObjectiveChanges, collect_objective_changes};
use crate::chart::cdf::{CdfLine, draw_cdf_chart};
use crate::chart::cpu;
use crate::chart::parts::{draw_parts_chart, list_stages};
use crate::chart::series::draw_series_chart;
use crate::explained::RunExplanation;
use crate::printable::make_printable;
use crate::remarks::{Remark, collect_remarks};
use crate::table::format_headline;
use crate::view::{CPU_PARTS, ReportView, SetCommand};
use crate::{chart, format, next, prediction};

#[derive(Debug, Serialize)]
pub(crate) struct ReportPage {
    title: String,
    subtitle: String,
    head: PageHead,
    shortage: Option<Pieces>,
    answer: Option<RecommendationPanel>,
    knobs: String,
    /// The sections of the page, each with the place of its heading.
    contents: Vec<(&'static str, &'static str)>,
    legend: Vec<LegendEntry>,
    tradeoff: TradeOffs,
    time: TimeParts,
    cpu: Vec<CpuPanel>,
    cpu_parts: [&'static str; 5],
    cdfs: Vec<String>,
    series: Vec<String>,
    predicted: Option<PredictionSection>,
    figures: Vec<HtmlTable>,
    differences: Vec<HtmlTable>,
    first: String,
    confidence: String,
    intervals: String,
    half_width: String,
    marks: TableMarks,
    remarks: Vec<FoldedRemark>,
    settings: Vec<NamedList>,
    read_back: Vec<NamedList>,
    hosts: Vec<NamedList>,
    workloads: Vec<NamedList>,
    method: Vec<(&'static str, Pieces)>,
    definitions: Vec<(&'static str, &'static str, Pieces)>,
}

/// The marks that occur in the tables; only these are explained.
#[derive(Debug, Serialize)]
struct TableMarks {
    pareto: bool,
    wide: bool,
    failed: bool,
}

/// The recommendation.
#[derive(Debug, Serialize)]
struct RecommendationPanel {
    words: String,
    setting: Option<String>,
    /// The headline, in pieces like `reason`.
    sentence: Pieces,
    goal: Option<Pieces>,
    reason: Vec<Pieces>,
    changes: Option<ObjectiveChangeTable>,
    commands: Vec<(String, String)>,
    is_lab: bool,
    next: Vec<NextStep>,
}

/// The change of the objective under each setting.
#[derive(Debug, Serialize)]
struct ObjectiveChangeTable {
    caption: Pieces,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A line under the recommendation.
#[derive(Debug, Serialize)]
struct NextStep {
    name: &'static str,
    command: Option<String>,
    note: Option<Pieces>,
}

#[derive(Debug, Serialize)]
struct LegendEntry {
    class: String,
    setting: usize,
    label: String,
    recommended: bool,
    first: bool,
}

/// The parts of the time, by workload.
#[derive(Debug, Default, Serialize)]
struct TimeParts {
    stages: Vec<&'static str>,
    panels: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CpuPanel {
    busy: String,
    service_demand: String,
}

/// The prediction of these results.
#[derive(Debug, Serialize)]
struct PredictionSection {
    by: String,
    conclusion: Vec<Pieces>,
    panels: Vec<PredictedPanel>,
}

#[derive(Debug, Serialize)]
struct PredictedPanel {
    svg: String,
    ranks: Option<String>,
}

/// One kind of problem, with its folded list.
#[derive(Debug, Serialize)]
struct FoldedRemark {
    title: String,
    digest: Pieces,
    full: Vec<Pieces>,
}

/// A list of names and values with a title.
#[derive(Debug, Serialize)]
struct NamedList {
    title: String,
    rows: Vec<(String, String)>,
}

impl ReportPage {
    pub(crate) fn new(view: &ReportView<'_>, predicted: Option<&PredictionReport>) -> Self {
        let results = view.results;
        let workloads: Vec<usize> = view.measured_workloads().map(|(idx, _)| idx).collect();
        let mut page = Self {
            title: make_printable(&results.name),
            subtitle: format!(
                "{}, {}, {}, {}",
                format::format_count(results.settings.len(), "setting"),
                format::format_count(results.workloads.len(), "workload"),
                format::format_count(view.count_blocks(), "block"),
                format::format_count(results.rows.len(), "trial"),
            ),
            head: PageHead::new(results),
            shortage: view.describe_shortage().map(|text| code_and_prose(&text)),
            answer: build_recommendation_panel(view),
            knobs: view.knobs.clone(),
            contents: Vec::new(),
            legend: build_legend(view),
            tradeoff: trade_offs(view),
            time: collect_time_parts(view, &workloads),
            cpu: workloads
                .iter()
                .map(|&idx| CpuPanel {
                    busy: cpu::draw_busy_chart(view, idx),
                    service_demand: cpu::service_demand(view, idx),
                })
                .filter(|panel| !panel.busy.is_empty() || !panel.service_demand.is_empty())
                .collect(),
            cpu_parts: CPU_PARTS,
            cdfs: workloads.iter().flat_map(|&idx| draw_cdfs(view, idx)).collect(),
            series: workloads
                .iter()
                .map(|&idx| draw_series_chart(view, idx))
                .filter(|picture| !picture.is_empty())
                .collect(),
            predicted: predicted.map(|predicted| build_prediction_section(view, predicted)),
            figures: workloads.iter().map(|&idx| tables::build_figures_table(view, idx)).collect(),
            differences: workloads
                .iter()
                .filter_map(|&idx| tables::build_differences_table(view, idx))
                .collect(),
            first: view.full_label(0),
            confidence: format::format_percent(results.confidence),
            intervals: view.describe_confidence(),
            half_width: format::format_percent(results.half_width),
            marks: TableMarks {
                pareto: view.measured_settings().into_iter().any(|setting| view.is_pareto(setting)),
                wide: view.summary.cells.iter().any(|cell| !cell.narrow_enough()),
                failed: !view.summary.failed_checks.is_empty(),
            },
            remarks: collect_remarks(view).into_iter().map(fold_remark).collect(),
            settings: list_settings(view),
            read_back: list_read_back_values(view),
            hosts: list_hosts(view),
            workloads: list_workloads(view),
            method: build_method_section(view),
            definitions: list_definitions(view, &workloads),
        };
        page.contents = page.list_sections();
        page
    }

    /// The sections that are not empty, in their order.
    fn list_sections(&self) -> Vec<(&'static str, &'static str)> {
        let sections = [
            (!self.figures.is_empty(), "figures", "Figures"),
            (!self.differences.is_empty(), "differences", "Differences"),
            (!self.tradeoff.panels.is_empty(), "trade-off", "Trade-off"),
            (!self.cdfs.is_empty(), "latency", "Latency"),
            (!self.time.panels.is_empty(), "time", "Where the time goes"),
            (!self.cpu.is_empty(), "cpu", "CPU"),
            (!self.series.is_empty(), "over-time", "Over time"),
            (self.predicted.is_some(), "predicted", "Predicted beside measured"),
            (!self.remarks.is_empty(), "warnings", "Warnings"),
            (true, "method", "How it was measured"),
        ];
        let present = sections.into_iter().filter(|(is_present, ..)| *is_present);
        present.map(|(_, place, title)| (place, title)).collect()
    }
}

/// The parts of the time under each workload; none where no CPU time was counted.
fn collect_time_parts(view: &ReportView<'_>, workloads: &[usize]) -> TimeParts {
    let Ok(explained) = RunExplanation::new(view.results, &[], None) else {
        return TimeParts::default();
    };
    let panels = workloads.iter().map(|&idx| draw_parts_chart(view, &explained.cells, idx));
    TimeParts {
        stages: list_stages(&explained.cells),
        panels: panels.filter(|panel| !panel.is_empty()).collect(),
    }
}

fn build_recommendation_panel(view: &ReportView<'_>) -> Option<RecommendationPanel> {
    let advice = view.summary.recommendation.as_ref();
    let headline = view.summary.headline.as_ref()?;
    let (words, setting) = view.short_answer()?;
    let command = |SetCommand { hosts, line }| (hosts, line);
    let commands: Vec<_> = view.recommended_commands().into_iter().map(command).collect();
    let next = if commands.is_empty() { Vec::new() } else { next::build_next_lines(view.results) };
    let step = |line: next::NextLine| NextStep {
        name: line.name,
        command: line.command,
        note: line.note.map(code_and_prose),
    };
    Some(RecommendationPanel {
        words,
        setting,
        sentence: code_and_prose(&format_headline(headline)),
        goal: advice.map(|advice| code_and_prose(&advice.goal)),
        reason: advice
            .iter()
            .flat_map(|advice| &advice.reason)
            .map(|sentence| code_and_prose(sentence))
            .collect(),
        changes: collect_objective_changes(view).map(build_change_table),
        commands,
        is_lab: view.is_lab(),
        next: next.into_iter().map(step).collect(),
    })
}

fn build_change_table(changes: ObjectiveChanges) -> ObjectiveChangeTable {
    let ObjectiveChanges { caption, header, rows } = changes;
    ObjectiveChangeTable { caption: code_and_prose(&caption), header, rows }
}

fn build_prediction_section(
    view: &ReportView<'_>,
    predicted: &PredictionReport,
) -> PredictionSection {
    let panel = |column| PredictedPanel {
        svg: chart::predicted::draw_prediction_chart(view, column),
        ranks: prediction::format_rank(column),
    };
    PredictionSection {
        by: make_printable(&predicted.by),
        conclusion: prediction::summarize_prediction(predicted)
            .iter()
            .map(|line| code_and_prose(line))
            .collect(),
        panels: predicted.columns.iter().map(panel).filter(|panel| !panel.svg.is_empty()).collect(),
    }
}

fn fold_remark(remark: Remark) -> FoldedRemark {
    FoldedRemark {
        title: remark.title,
        digest: code_and_prose(&remark.digest),
        full: remark.full.iter().map(|line| code_and_prose(line)).collect(),
    }
}

/// The key of the colours; empty with one setting.
fn build_legend(view: &ReportView<'_>) -> Vec<LegendEntry> {
    let settings = view.measured_settings();
    if settings.len() < 2 {
        return Vec::new();
    }
    let entry = |setting| LegendEntry {
        class: crate::chart::setting_class(setting),
        setting,
        label: view.short_label(setting).to_owned(),
        recommended: view.is_recommended(setting),
        first: setting == 0,
    };
    settings.into_iter().map(entry).collect()
}

fn draw_cdfs(view: &ReportView<'_>, workload: usize) -> Vec<String> {
    let cells = view.workload_cells(workload);
    let name = view.workload_name(workload);
    let latency: Vec<CdfLine<'_>> = cells
        .iter()
        .filter_map(|cell| Some(CdfLine { setting: cell.setting, times: cell.latency.as_ref()? }))
        .collect();
    let probe: Vec<CdfLine<'_>> = cells
        .iter()
        .filter_map(|cell| Some(CdfLine { setting: cell.setting, times: cell.probe.as_ref()? }))
        .collect();
    let pictures = [
        draw_cdf_chart(view, &format!("{name}: transactions not longer than"), &latency),
        draw_cdf_chart(view, &format!("{name}: pings not longer than"), &probe),
    ];
    pictures.into_iter().filter(|picture| !picture.is_empty()).collect()
}

fn list_settings(view: &ReportView<'_>) -> Vec<NamedList> {
    let values = |setting: &latput_trial::results::LabelledSetting| {
        let by_role = setting.by_role.iter();
        by_role
            .flat_map(|(role, knobs)| {
                knobs
                    .iter()
                    .map(|(knob, value)| (format!("{}: {knob}", role.name()), value.to_string()))
            })
            .collect()
    };
    let settings = view.results.settings.iter().enumerate();
    settings
        .map(|(idx, setting)| NamedList { title: view.full_label(idx), rows: values(setting) })
        .collect()
}

/// The knobs of each host as read before the first run of each setting.
fn list_read_back_values(view: &ReportView<'_>) -> Vec<NamedList> {
    let mut lists = Vec::new();
    for setting in view.measured_settings() {
        let Some(row) = view.results.rows.iter().find(|row| row.setting == setting) else {
            continue;
        };
        for host in &row.observation.hosts {
            let state = host.state.0.iter();
            let rows: Vec<(String, String)> = state
                .map(|((knob, place), value)| (format!("{knob} ({place})"), value.to_string()))
                .collect();
            if !rows.is_empty() {
                let title = format!("{}: {}", view.full_label(setting), make_printable(&host.host));
                lists.push(NamedList { title, rows });
            }
        }
    }
    lists
}

fn list_hosts(view: &ReportView<'_>) -> Vec<NamedList> {
    let hosts = view.results.hosts.iter();
    hosts
        .map(|host| {
            let mut rows = vec![("interface".to_owned(), host.interface.clone())];
            rows.extend(host.facts.iter().cloned());
            NamedList {
                title: format!("{} ({})", make_printable(&host.host), host.role.name()),
                rows,
            }
        })
        .collect()
}

fn list_workloads(view: &ReportView<'_>) -> Vec<NamedList> {
    let workloads = view.results.workloads.iter();
    workloads
        .map(|workload| {
            let parameters = crate::document::collect_parameters(workload).into_iter();
            let mut rows = vec![("kind".to_owned(), workload.traffic.kind().to_owned())];
            rows.extend(parameters.map(|(name, value)| (name, value.to_string())));
            NamedList { title: make_printable(&workload.name), rows }
        })
        .collect()
}

fn list_definitions(
    view: &ReportView<'_>,
    workloads: &[usize],
) -> Vec<(&'static str, &'static str, Pieces)> {
    let used: BTreeSet<Metric> =
        workloads.iter().flat_map(|&idx| view.workload_metrics(idx)).into_set();
    let row =
        |metric: Metric| (metric.column(), metric.name(), code_and_prose(metric.row().definition));
    used.into_iter().map(row).collect()
}
