//! The data of the page's template, section by section.

use std::collections::BTreeSet;

use latput_model::Prediction;
use latput_trial::metric::PreferredDirection;
use latput_trial::observation::Role;
use latput_trial::{Metric, Results};
use latput_units::IntoSet;
use serde::Serialize;

use super::head::Head;
use super::tables::{self, Table};
use crate::chart::cdf::{Line, cdf};
use crate::chart::cpu;
use crate::chart::series::series;
use crate::chart::tradeoff::{Choice, tradeoff};
use crate::printable::printable;
use crate::remarks::{Remark, remarks};
use crate::table::sentence;
use crate::view::{CPU_PARTS, SetCommand, View, cpu_sources, rate_metric};
use crate::{chart, format, next, prediction};

/// Approximate number of marks in all trade-off pictures together. One is drawn for every pair of
/// figures, so this limits the size of files with many settings.
const MOST_MARKS: usize = 1200;

#[derive(Debug, Serialize)]
pub(crate) struct Page {
    title: String,
    subtitle: String,
    head: Head,
    shortage: Option<String>,
    answer: Option<RecommendationPanel>,
    knobs: String,
    legend: Vec<LegendEntry>,
    tradeoff: Tradeoff,
    cpu: Vec<CpuPanel>,
    cpu_parts: [&'static str; 5],
    cdfs: Vec<String>,
    series: Vec<String>,
    predicted: Option<Predicted>,
    figures: Vec<Table>,
    differences: Vec<Table>,
    first: String,
    confidence: String,
    intervals: String,
    half_width: String,
    marks: Marks,
    remarks: Vec<FoldedRemark>,
    settings: Vec<NamedList>,
    read_back: Vec<NamedList>,
    hosts: Vec<NamedList>,
    workloads: Vec<NamedList>,
    method: Vec<(String, String)>,
    definitions: Vec<(String, String, String)>,
}

/// The marks that occur in the tables; only these are explained.
#[derive(Debug, Serialize)]
struct Marks {
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
    sentence: Vec<(bool, String)>,
    goal: Option<String>,
    /// Sentences as pieces, each with whether it is code (between backticks).
    reason: Vec<Vec<(bool, String)>>,
    commands: Vec<(String, String)>,
    is_lab: bool,
    next: Vec<next::NextLine>,
}

#[derive(Debug, Serialize)]
struct LegendEntry {
    class: String,
    setting: usize,
    label: String,
    recommended: bool,
    first: bool,
}

/// The trade-off pictures and the choices between them.
#[derive(Debug, Serialize)]
struct Tradeoff {
    x: Vec<String>,
    y: Vec<String>,
    panels: Vec<Panel>,
}

#[derive(Debug, Serialize)]
struct Panel {
    x: usize,
    y: usize,
    svg: String,
}

#[derive(Debug, Serialize)]
struct CpuPanel {
    busy: String,
    service_demand: String,
}

/// The prediction of these results.
#[derive(Debug, Serialize)]
struct Predicted {
    by: String,
    conclusion: Vec<String>,
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
    digest: Vec<(bool, String)>,
    full: Vec<Vec<(bool, String)>>,
}

/// A list of names and values with a title.
#[derive(Debug, Serialize)]
struct NamedList {
    title: String,
    rows: Vec<(String, String)>,
}

impl Page {
    pub(crate) fn new(view: &View<'_>, predicted: Option<&Prediction>) -> Self {
        let results = view.results;
        let workloads: Vec<usize> = view.workloads().map(|(idx, _)| idx).collect();
        Self {
            title: printable(&results.name),
            subtitle: format!(
                "{}, {}, {}, {}",
                format::count(results.settings.len(), "setting"),
                format::count(results.workloads.len(), "workload"),
                format::count(view.blocks(), "block"),
                format::count(results.rows.len(), "trial"),
            ),
            head: Head::new(results),
            shortage: view.shortage(),
            answer: answer(view),
            knobs: view.knobs.clone(),
            legend: legend(view),
            tradeoff: trade_offs(view),
            cpu: workloads
                .iter()
                .map(|&idx| CpuPanel {
                    busy: cpu::busy(view, idx),
                    service_demand: cpu::service_demand(view, idx),
                })
                .filter(|panel| !panel.busy.is_empty() || !panel.service_demand.is_empty())
                .collect(),
            cpu_parts: CPU_PARTS,
            cdfs: workloads.iter().flat_map(|&idx| cdfs(view, idx)).collect(),
            series: workloads
                .iter()
                .map(|&idx| series(view, idx))
                .filter(|picture| !picture.is_empty())
                .collect(),
            predicted: predicted.map(|predicted| of_prediction(view, predicted)),
            figures: workloads.iter().map(|&idx| tables::figures(view, idx)).collect(),
            differences: workloads
                .iter()
                .filter_map(|&idx| tables::differences(view, idx))
                .collect(),
            first: view.full_label(0),
            confidence: format::percent(results.confidence),
            intervals: view.confidence(),
            half_width: format::percent(results.half_width),
            marks: Marks {
                pareto: view.settings().into_iter().any(|setting| view.is_pareto(setting)),
                wide: view.summary.cells.iter().any(|cell| !cell.narrow_enough()),
                failed: !view.summary.failed_checks.is_empty(),
            },
            remarks: remarks(view).into_iter().map(folded).collect(),
            settings: settings(view),
            read_back: read_back(view),
            hosts: hosts(view),
            workloads: workloads_in_full(view),
            method: method(view),
            definitions: definitions(view, &workloads),
        }
    }
}

fn answer(view: &View<'_>) -> Option<RecommendationPanel> {
    let advice = view.summary.recommendation.as_ref();
    let headline = view.summary.headline.as_ref()?;
    let (words, setting) = view.verdict()?;
    let command = |SetCommand { hosts, line }| (hosts, line);
    let commands: Vec<_> = view.recommended_commands().into_iter().map(command).collect();
    let next = if commands.is_empty() { Vec::new() } else { next::lines(view.results) };
    Some(RecommendationPanel {
        words,
        setting,
        sentence: code_and_prose(&sentence(headline)),
        goal: advice.map(|advice| advice.goal.clone()),
        reason: advice
            .iter()
            .flat_map(|advice| &advice.reason)
            .map(|sentence| code_and_prose(sentence))
            .collect(),
        commands,
        is_lab: view.is_lab(),
        next,
    })
}

fn of_prediction(view: &View<'_>, predicted: &Prediction) -> Predicted {
    let panel = |column| PredictedPanel {
        svg: chart::predicted::predicted(view, column),
        ranks: prediction::ranked(column),
    };
    Predicted {
        by: printable(&predicted.by),
        conclusion: prediction::conclusion(predicted),
        panels: predicted.columns.iter().map(panel).filter(|panel| !panel.svg.is_empty()).collect(),
    }
}

fn folded(remark: Remark) -> FoldedRemark {
    FoldedRemark {
        title: remark.title,
        digest: code_and_prose(&remark.digest),
        full: remark.full.iter().map(|line| code_and_prose(line)).collect(),
    }
}

/// Splits a text at backticks; every other piece is code.
fn code_and_prose(text: &str) -> Vec<(bool, String)> {
    text.split('`').enumerate().map(|(idx, piece)| (idx % 2 == 1, piece.to_owned())).collect()
}

fn legend(view: &View<'_>) -> Vec<LegendEntry> {
    let entry = |setting| LegendEntry {
        class: crate::chart::setting_class(setting),
        setting,
        label: view.label(setting).to_owned(),
        recommended: view.is_recommended(setting),
        first: setting == 0,
    };
    view.settings().into_iter().map(entry).collect()
}

/// The first picture, for wide and narrow screens.
pub(super) fn first_trade_off(view: &View<'_>) -> Option<String> {
    let panel = trade_offs(view).panels.into_iter().next()?;
    (!panel.svg.is_empty()).then_some(panel.svg)
}

/// Horizontal axes have rates and costs, vertical axes latencies. The first of each makes the first
/// picture: bulk goodput against the tail of a single request.
fn trade_offs(view: &View<'_>) -> Tradeoff {
    let mut x = Vec::new();
    let mut y = Vec::new();
    for (workload, described) in view.workloads() {
        let present = view.metrics(workload);
        let choices = |metrics: &[Metric]| -> Vec<Choice> {
            let known = metrics.iter().filter(|metric| present.contains(metric));
            known.map(|&metric| Choice { workload, metric }).collect()
        };
        let own = |better| -> Vec<Metric> {
            let own = view.custom_metrics(workload).into_iter();
            own.filter(|metric| metric.preferred_direction() == better).collect()
        };
        x.extend(choices(&own(PreferredDirection::Higher)));
        y.extend(choices(&own(PreferredDirection::Lower)));
        x.extend(choices(&[rate_metric(&described.traffic)]));
        y.extend(choices(&[
            Metric::LatencyNsP99,
            Metric::LatencyNsP50,
            Metric::LatencyNsP999,
            Metric::ProbeNsP99,
            Metric::ProbeNsP50,
            Metric::LossRatio,
            Metric::JitterNs,
            Metric::TcpRttNsP99,
            Metric::TcpRttNsP50,
        ]));
    }
    let is_bulk = |choice: &Choice| view.traffic(choice.workload).is_bulk();
    x.sort_by_key(|choice| !is_bulk(choice));
    for (workload, _) in view.workloads() {
        for metric in [Metric::SutServiceDemandUs, Metric::SutPacketCpuNs] {
            if view.metrics(workload).contains(&metric) {
                x.push(Choice { workload, metric });
            }
        }
    }
    let most = (MOST_MARKS / view.settings().len().max(1)).isqrt().clamp(3, 7);
    x.truncate(most);
    y.truncate(most);
    let panels = y.iter().enumerate().flat_map(|(y_idx, &y)| {
        let panel = move |(x_idx, &x): (usize, &Choice)| Panel {
            x: x_idx,
            y: y_idx,
            svg: tradeoff(view, x, y),
        };
        x.iter().enumerate().map(panel)
    });
    let panels = panels.collect();
    let names = |choices: &[Choice]| choices.iter().map(|choice| choice.name(view)).collect();
    Tradeoff { x: names(&x), y: names(&y), panels }
}

fn cdfs(view: &View<'_>, workload: usize) -> Vec<String> {
    let cells = view.cells(workload);
    let name = view.workload_name(workload);
    let latency: Vec<Line<'_>> = cells
        .iter()
        .filter_map(|cell| Some(Line { setting: cell.setting, times: cell.latency.as_ref()? }))
        .collect();
    let probe: Vec<Line<'_>> = cells
        .iter()
        .filter_map(|cell| Some(Line { setting: cell.setting, times: cell.probe.as_ref()? }))
        .collect();
    let pictures = [
        cdf(view, &format!("{name}: transactions not longer than"), &latency),
        cdf(view, &format!("{name}: pings not longer than"), &probe),
    ];
    pictures.into_iter().filter(|picture| !picture.is_empty()).collect()
}

fn settings(view: &View<'_>) -> Vec<NamedList> {
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
fn read_back(view: &View<'_>) -> Vec<NamedList> {
    let mut lists = Vec::new();
    for setting in view.settings() {
        let Some(row) = view.results.rows.iter().find(|row| row.setting == setting) else {
            continue;
        };
        for host in &row.observation.hosts {
            let state = host.state.0.iter();
            let rows: Vec<(String, String)> = state
                .map(|((knob, place), value)| (format!("{knob} ({place})"), value.to_string()))
                .collect();
            if !rows.is_empty() {
                let title = format!("{}: {}", view.full_label(setting), printable(&host.host));
                lists.push(NamedList { title, rows });
            }
        }
    }
    lists
}

fn hosts(view: &View<'_>) -> Vec<NamedList> {
    let hosts = view.results.hosts.iter();
    hosts
        .map(|host| {
            let mut rows = vec![("interface".to_owned(), host.interface.clone())];
            rows.extend(host.facts.iter().cloned());
            NamedList { title: format!("{} ({})", printable(&host.host), host.role.name()), rows }
        })
        .collect()
}

fn workloads_in_full(view: &View<'_>) -> Vec<NamedList> {
    let workloads = view.results.workloads.iter();
    workloads
        .map(|workload| {
            let parameters = crate::document::parameters(workload).into_iter();
            let mut rows = vec![("kind".to_owned(), workload.traffic.kind().to_owned())];
            rows.extend(parameters.map(|(name, value)| (name, value.to_string())));
            NamedList { title: printable(&workload.name), rows }
        })
        .collect()
}

fn method(view: &View<'_>) -> Vec<(String, String)> {
    let results = view.results;
    let mut lines = vec![
        (
            "Order",
            format!(
                "{} of {} planned trials in {}, the order within each drawn from seed {}",
                results.rows.len(),
                results.planned_trials,
                format::count(view.blocks(), "block"),
                results.seed
            ),
        ),
        (
            "Intervals",
            format!(
                "{} confidence; means with Student's t, percentiles as medians over runs with \
                 order-statistic intervals, never averaged; wanted ±{} of a rate",
                format::percent(results.confidence),
                format::percent(results.half_width)
            ),
        ),
    ];
    lines.extend(meanings(results));
    if view.shares_kernel() {
        lines.push((
            "Hosts on one kernel",
            "each host is held to its own CPUs, so its CPU time is that of those CPUs; the parts are \
             checked against the machine's total in every trial (check cpu-parts-add-up)"
                .to_owned(),
        ));
    }
    for host in &results.hosts {
        let role = match host.role {
            Role::Sut => "SUT",
            Role::Generator => "generator",
            Role::Observer => "observer",
        };
        if let Some(ratio) = view.sampling_ratio(&host.host) {
            let text = format!(
                "{} of one CPU on {} ({role})",
                format::percent(ratio),
                printable(&host.host)
            );
            lines.push(("Cost of sampling", text));
        }
    }
    lines.push(("latput", printable(&results.latput_version)));
    lines.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Explanations of the figures.
fn meanings(results: &Results) -> [(&'static str, String); 4] {
    [
        (
            "Differences",
            "ratios to the first setting, paired within blocks, interval on their logarithms"
                .to_owned(),
        ),
        (
            "Busy CPU",
            format!(
                "user + system + irq + softirq of all CPUs of a host, {}; time that the hypervisor took \
                 is not in it; kernel threads are in system",
                cpu_sources(results)
            ),
        ),
        (
            "Service demand",
            "busy CPU time of the whole host per transaction, or per KB (1024 byte) of goodput; \
             netperf's own figure, from clock ticks, is `sut_netperf_demand_us`"
                .to_owned(),
        ),
        (
            "Latency",
            "every transaction of the measurement window, after the warm-up was cut, in a histogram \
             whose buckets are at most 0.1 % wide"
                .to_owned(),
        ),
    ]
}

fn definitions(view: &View<'_>, workloads: &[usize]) -> Vec<(String, String, String)> {
    let used: BTreeSet<Metric> = workloads.iter().flat_map(|&idx| view.metrics(idx)).into_set();
    let row = |metric: Metric| {
        let short = metric.column().to_owned();
        (short, metric.name().to_owned(), metric.row().definition.to_owned())
    };
    used.into_iter().map(row).collect()
}
