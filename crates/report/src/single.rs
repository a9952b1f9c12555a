//! One setting under one workload, as `latput measure` shows it: every figure on its own line, with
//! its interval and how sure that is.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use latput_model::Cell;
use latput_trial::Metric;
use latput_trial::observation::{CpuMethod, HostObservation, Role};

use crate::format;
use crate::view::{CPU_PARTS, View, estimate, is_too_wide};

/// The only cell of the results; `None` where there are several.
pub(crate) fn only_cell(view: &View<'_>) -> Option<(usize, usize)> {
    match view.summary.cells.as_slice() {
        [cell] if view.results.settings.len() == 1 && view.results.workloads.len() == 1 => {
            Some((cell.setting, cell.workload))
        }
        _ => None,
    }
}

/// The figures, then where the CPU time and the packets went. Where lines of `columns` have no room
/// for phrases the figures have their short names.
pub(crate) fn figures(
    view: &View<'_>,
    (setting, workload): (usize, usize),
    columns: usize,
) -> String {
    let Some(cell) = view.cell(setting, workload) else { return String::new() };
    let named = [format::long_name, format::short_name].map(|name| lines(view, cell, name));
    let [long, short] = named;
    let fits = long.iter().all(|line| line.chars().count() <= columns);
    let mut text = if fits { long } else { short }.join("\n") + "\n\n";
    for (role, name) in [(Role::Sut, "SUT"), (Role::Generator, "generator")] {
        text += &host_lines(view, (setting, workload), role, name);
        text += &program_lines(view, role, name);
    }
    text
}

/// One line for each figure.
fn lines(view: &View<'_>, cell: &Cell, name: fn(Metric) -> &'static str) -> Vec<String> {
    let traffic = view.traffic(cell.workload);
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    for metric in view.metrics(cell.workload) {
        let Some(estimate) = estimate(cell, metric) else { continue };
        let scale = format::Scale::of(metric, &traffic, estimate.value);
        let interval = format::interval(estimate).map_or_else(String::new, |(low, high)| {
            format!("{} to {}", scale.number(low), scale.number(high))
        });
        let wide = if is_too_wide(cell, &traffic, metric) { "~" } else { "" };
        table.add_row([
            name(metric).to_owned(),
            scale.number(estimate.value),
            scale.unit.to_owned(),
            format!("{interval}{wide}"),
            format::method(estimate),
        ]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Where one host's CPU time went, and its packets, over all runs.
fn host_lines(view: &View<'_>, cell: (usize, usize), role: Role, name: &str) -> String {
    let mut text = String::new();
    if let Some(shares) = view.cpu_shares(cell.0, cell.1, role) {
        let parts = CPU_PARTS.iter().zip(shares);
        let parts: Vec<String> =
            parts.map(|(part, share)| format!("{part} {}", format::rough_percent(share))).collect();
        let _ = writeln!(text, "CPU of the {name}: {}", parts.join(", "));
    }
    let rows = view.results.rows.iter();
    let hosts: Vec<&HostObservation> =
        rows.flat_map(|row| &row.observation.hosts).filter(|host| host.role == role).collect();
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

/// What other programs said of the CPU time of their end, with what they count.
fn program_lines(view: &View<'_>, role: Role, name: &str) -> String {
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
        let (program, share) = (format::printable(program), format::rough_percent(mean));
        let _ = writeln!(text, "CPU of the {name} as {program} tells: {share} of {base}; {method}");
    }
    text
}
