//! One setting under one workload, as in `latput measure`: every figure on its own line, with its
//! interval and its confidence.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::Table;
use latput_model::CellSummary;
use latput_stats::{Estimate, order};
use latput_trial::metric::{self, Scale};
use latput_trial::observation::{CpuMethod, CpuTime, HostObservation, Role};
use latput_trial::results::HostFacts;
use latput_trial::{Metric, Observation};

use crate::format;
use crate::lines::display_width;
use crate::plain::render_plain_table;
use crate::printable::make_printable;
use crate::view::{CPU_PARTS, ReportView, cpu_shares, finite_estimate, is_too_wide};

/// The only cell of the results; `None` if there are several.
pub(crate) fn only_cell(view: &ReportView<'_>) -> Option<(usize, usize)> {
    match view.summary.cells.as_slice() {
        [cell] if view.results.settings.len() == 1 && view.results.workloads.len() == 1 => {
            Some((cell.setting, cell.workload))
        }
        _ => None,
    }
}

/// The figures, then CPU time and packets. Figures have short names if lines of `columns` have no
/// room for phrases.
pub(crate) fn render_figures(
    view: &ReportView<'_>,
    (setting, workload): (usize, usize),
    columns: usize,
) -> String {
    let Some(cell) = view.find_cell(setting, workload) else { return String::new() };
    let long = figure_lines(view, cell, Metric::phrase, usize::MAX);
    let fits = long.iter().all(|line| display_width(line) <= columns);
    let short = || figure_lines(view, cell, Metric::column, columns);
    let mut text = if fits { long } else { short() }.join("\n") + "\n\n";
    for role in [Role::Sut, Role::Generator, Role::Observer] {
        for host in view.results.hosts.iter().filter(|host| host.role == role) {
            text += &host_lines(view, (setting, workload), host);
        }
        text += &program_lines(view, role);
    }
    text + &not_narrow_enough(view, cell)
}

/// netperf's warning block: the wanted precision, and the reached one of each figure of the
/// stopping rule.
fn not_narrow_enough(view: &ReportView<'_>, cell: &CellSummary) -> String {
    if cell.narrow_enough() {
        return String::new();
    }
    if cell.runs == 1 {
        let verb = if view.results.other_program().is_some() { "import" } else { "run" };
        return format!("\nWARNING: One trial has no interval: {verb} more.\n");
    }
    let mut text = format!(
        "\nWARNING: ±{} at {} was not reached in {}. Find what varies before you use the figures.\n",
        format::format_percent(view.results.half_width),
        format::format_percent(view.results.confidence),
        format::format_count(cell.runs, "trial"),
    );
    let rate = view.rate_metric(cell.workload);
    for metric in [rate, Metric::SutCpuBusyRatio, Metric::GeneratorCpuBusyRatio] {
        let reached = finite_estimate(cell, metric).and_then(Estimate::half_width_ratio);
        let reached = reached.map_or_else(
            || "no interval".to_owned(),
            |ratio| format!("±{}", format::rough_percent(ratio)),
        );
        let mark = if is_too_wide(cell, metric) { "too wide" } else { "" };
        let line = format!("  {:<36} {reached:>11}  {mark}", metric.phrase());
        text += &(line.trim_end().to_owned() + "\n");
    }
    text
}

/// One line for each figure.
fn figure_lines(
    view: &ReportView<'_>,
    cell: &CellSummary,
    name: fn(Metric) -> &'static str,
    columns: usize,
) -> Vec<String> {
    let traffic = view.workload_traffic(cell.workload);
    let mut table = Table::new();
    for metric in view.workload_metrics(cell.workload) {
        let Some(estimate) = finite_estimate(cell, metric) else { continue };
        let scale = Scale::choose(metric, &traffic, estimate.value);
        // One run tells nothing of others; its percentiles have an interval of its own samples.
        let within = within_run(cell, metric, view.results.confidence);
        let estimate = within.as_ref().unwrap_or(estimate);
        let interval = format::interval_bounds(estimate).map_or_else(String::new, |(low, high)| {
            format!("{} to {}", scale.number(low), scale.number(high))
        });
        let wide = if is_too_wide(cell, metric) { "~" } else { "" };
        table.add_row([
            name(metric).to_owned(),
            scale.number(estimate.value),
            scale.unit.to_owned(),
            format!("{interval}{wide}"),
            if within.is_some() {
                format!("{}, within the trial", format::format_method(estimate))
            } else {
                format::format_method(estimate)
            },
        ]);
    }
    render_plain_table(table, 1..=1, columns)
}

/// The distribution-free interval of a percentile from a run's own samples, if there is only one
/// run.
fn within_run(cell: &CellSummary, metric: Metric, confidence: f64) -> Option<Estimate> {
    let histogram = if metric.is_of_probe() { &cell.probe } else { &cell.latency };
    let histogram = histogram.as_ref().filter(|_| cell.runs == 1)?;
    order::quantile_within(histogram, metric.quantile()?, confidence)
}

/// One host's CPU time by kind, its service demand and its packets, over all runs.
fn host_lines(view: &ReportView<'_>, cell: (usize, usize), facts: &HostFacts) -> String {
    let mut text = String::new();
    let role = facts.role;
    let name = if role == Role::Sut {
        "SUT".to_owned()
    } else if facts.host == role.name() {
        facts.host.clone()
    } else {
        format!("{} {}", role.name(), make_printable(&facts.host))
    };
    let runs = || view.results.rows.iter().map(|row| &row.observation);
    let hosts: Vec<&HostObservation> =
        runs().flat_map(|run| &run.hosts).filter(|host| host.host == facts.host).collect();
    let time: CpuTime = hosts.iter().map(|host| host.cpu()).sum();
    if let Some(shares) = cpu_shares(&time) {
        let parts = CPU_PARTS.iter().zip(shares);
        let parts: Vec<String> =
            parts.map(|(part, share)| format!("{part} {}", format::rough_percent(share))).collect();
        let _ = write!(text, "CPU of the {name}: {}", parts.join(", "));
        let traffic = view.workload_traffic(cell.1);
        let of_host = |run| metric::service_demand_us(&traffic, run, hosts_named(run, &facts.host));
        let demands: Vec<f64> = runs().filter_map(of_host).collect();
        if let Some(demand) = order::median(&demands, 0.5) {
            let metric = Metric::SutServiceDemandUs;
            let figure = metric::quantity(metric, &traffic, demand.value);
            let _ = write!(text, "; service demand {figure}");
        }
        if let Some(ratio) = view.sampling_ratio(&facts.host).filter(|ratio| *ratio > 0.0) {
            let _ = write!(
                text,
                "; latput's counting takes {} of a CPU",
                format::format_percent(ratio)
            );
        }
        text.push('\n');
    }
    let sum = |count: fn(&HostObservation) -> u64| {
        hosts.iter().fold(0_u64, |sum, host| sum.saturating_add(count(host)))
    };
    if !hosts.is_empty() {
        let _ = writeln!(
            text,
            "Packets of the {name}: {} in, {} out; dropped {} in, {} out",
            sum(|host| host.interface.rx_packets),
            sum(|host| host.interface.tx_packets),
            sum(|host| host.interface.rx_dropped),
            sum(|host| host.interface.tx_dropped),
        );
    }
    text
}

/// The CPU time that other programs reported for their end, with their method.
fn program_lines(view: &ReportView<'_>, role: Role) -> String {
    let mut shares: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
    let rows = view.results.rows.iter();
    for told in rows.flat_map(|row| &row.observation.programs).filter(|told| told.role == role) {
        let base = match told.method {
            CpuMethod::Process => "one CPU",
            CpuMethod::Host => "all CPUs",
        };
        let key = (told.program.as_str(), base, told.method.describe());
        shares.entry(key).or_default().push(told.busy_ratio);
    }
    let mut text = String::new();
    for ((program, base, method), shares) in shares {
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let program = make_printable(program);
        let share = format::rough_percent(mean);
        let _ = writeln!(
            text,
            "CPU of the {} as {program} reports it: {share} of {base}; {method}",
            role.name()
        );
    }
    text
}

fn hosts_named<'a>(
    run: &'a Observation,
    name: &'a str,
) -> impl Iterator<Item = &'a HostObservation> {
    run.hosts.iter().filter(move |host| host.host == name)
}
