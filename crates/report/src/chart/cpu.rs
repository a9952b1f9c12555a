//! CPU by setting: the busy time of both hosts by kind, and the service demand.

use latput_model::CellSummary;
use latput_stats::Estimate;
use latput_trial::Metric;
use latput_trial::metric::Scale;
use latput_trial::observation::Role;

use super::axis::Axis;
use super::rows::RowLayout;
use super::svg::{Area, Point, Svg, TextAnchor};
use super::{ChartSize, draw_all_sizes, setting_class};
use crate::format::{self, interval_bounds};
use crate::view::{CPU_PARTS, ReportView, finite_estimate};

const ROLES: [(Role, &str); 2] = [(Role::Sut, "SUT"), (Role::Generator, "gen")];
const DEMANDS: [Metric; 2] = [Metric::SutServiceDemandUs, Metric::GeneratorServiceDemandUs];

/// Busy share of both hosts' CPUs, by kind; empty if unknown.
pub(crate) fn draw_busy_chart(view: &ReportView<'_>, workload: usize) -> String {
    draw_all_sizes(|size| draw_busy(view, workload, size).unwrap_or_default())
}

/// Service demand of both hosts with intervals; empty if unknown.
pub(crate) fn service_demand(view: &ReportView<'_>, workload: usize) -> String {
    draw_all_sizes(|size| draw_service_demand(view, workload, size).unwrap_or_default())
}

/// A row for each cell with a line for each of the hosts, as indices of [`ROLES`].
fn layout_rows(
    view: &ReportView<'_>,
    size: ChartSize,
    cells: &[&CellSummary],
    hosts: &[usize],
    values: &[String],
) -> RowLayout {
    let settings: Vec<usize> = cells.iter().map(|cell| cell.setting).collect();
    let lines = hosts.iter().map(|host| ROLES[*host].1).collect();
    RowLayout::new(view, size, &settings, lines, values)
}

fn draw_busy(view: &ReportView<'_>, workload: usize, size: ChartSize) -> Option<String> {
    let cells = view.workload_cells(workload);
    let shares = |setting: usize, role: Role| view.cpu_shares(setting, workload, role);
    let total = |shares: &[f64; 5]| shares.iter().sum::<f64>();
    let all = cells
        .iter()
        .flat_map(|cell| ROLES.map(|(role, _)| shares(cell.setting, role)))
        .flatten()
        .map(|shares| total(&shares));
    let axis = Axis::from_zero(all, if size == ChartSize::Wide { 5 } else { 4 })?;
    let is_known = |host: &usize| {
        let of = |cell: &&CellSummary| shares(cell.setting, ROLES[*host].0);
        cells.iter().filter_map(of).any(|shares| total(&shares) > 0.0)
    };
    let hosts: Vec<usize> = (0..ROLES.len()).filter(is_known).collect();
    if hosts.is_empty() {
        return None;
    }
    let rows = layout_rows(view, size, &cells, &hosts, &[]);
    let title = format!("{}: busy CPU", view.workload_name(workload));
    let mut svg = Svg::new(size, rows.height(), &title);
    rows.draw_frame(&mut svg, &title, &axis, 0.01, "% of CPUs");
    for (row, cell) in cells.iter().enumerate() {
        svg.add_group(&format!("row s{}", cell.setting), "", |svg| {
            rows.draw_label(svg, view, row, cell.setting);
            for (line, &host) in hosts.iter().enumerate() {
                let (role, name) = ROLES[host];
                let middle = rows.line_middle(row, line);
                let Some(parts) = shares(cell.setting, role) else {
                    let at = Point::new(rows.plot.left + 4.0, middle + 4.0);
                    svg.add_text(at, TextAnchor::Start, "small", "unknown");
                    continue;
                };
                let mut sum = 0.0;
                for (part, share) in CPU_PARTS.iter().zip(parts) {
                    let (left, right) =
                        (rows.x_position(&axis, sum), rows.x_position(&axis, sum + share));
                    sum += share;
                    let area = Area { left, top: middle - 5.5, right, bottom: middle + 5.5 };
                    let tip = format!(
                        "{}, {name}: {part} {}",
                        view.full_label(cell.setting),
                        format::format_percent(share)
                    );
                    svg.add_rect(area, part, &tip);
                }
                let at = Point::new(rows.x_position(&axis, sum) + 6.0, middle + 4.0);
                let text = format!("{}%", format::format_number(sum * 100.0));
                svg.add_text(at, TextAnchor::Start, "value", &text);
            }
        });
    }
    Some(svg.finish())
}

fn draw_service_demand(view: &ReportView<'_>, workload: usize, size: ChartSize) -> Option<String> {
    let cells = view.workload_cells(workload);
    let known = cells.iter().flat_map(|cell| DEMANDS.map(|metric| finite_estimate(cell, metric)));
    let ends = known
        .flatten()
        .flat_map(|e| [e.value, interval_bounds(e).map_or(e.value, |(_, high)| high)]);
    let axis = Axis::from_zero(ends, if size == ChartSize::Wide { 5 } else { 4 })?;
    let scale = view.choose_scale(workload, DEMANDS[0]);
    let values = |cell: &&CellSummary| {
        DEMANDS.map(|metric| Some(demand_text(finite_estimate(cell, metric)?, &scale)))
    };
    let values: Vec<String> = cells.iter().flat_map(values).flatten().collect();
    let is_known = |host: &usize| {
        let of =
            |cell: &&CellSummary| finite_estimate(cell, DEMANDS[*host]).map(|demand| demand.value);
        cells.iter().filter_map(of).any(|demand| demand > 0.0)
    };
    let hosts: Vec<usize> = (0..DEMANDS.len()).filter(is_known).collect();
    if hosts.is_empty() {
        return None;
    }
    let rows = layout_rows(view, size, &cells, &hosts, &values);
    let title = format!("{}: service demand", view.workload_name(workload));
    let mut svg = Svg::new(size, rows.height(), &title);
    rows.draw_frame(&mut svg, &title, &axis, scale.divisor, scale.unit);
    for (row, cell) in cells.iter().enumerate() {
        let tip = demand_tip(view, cell, &scale);
        svg.add_group(&format!("row {}", setting_class(cell.setting)), &tip, |svg| {
            rows.draw_label(svg, view, row, cell.setting);
            for (line, &host) in hosts.iter().enumerate() {
                let middle = rows.line_middle(row, line);
                let Some(estimate) = finite_estimate(cell, DEMANDS[host]) else { continue };
                let x = rows.x_position(&axis, estimate.value);
                let mut right = x + 4.0;
                if let Some((low, high)) = interval_bounds(estimate) {
                    let (from, to) = (rows.x_position(&axis, low), rows.x_position(&axis, high));
                    svg.add_line(Point::new(from, middle), Point::new(to, middle), "whisker");
                    right = right.max(to);
                }
                let class = if host == 0 { "dot" } else { "dot hollow" };
                svg.add_circle(Point::new(x, middle), 4.0, class);
                let text = demand_text(estimate, &scale);
                svg.add_text(
                    Point::new(right + 5.0, middle + 4.0),
                    TextAnchor::Start,
                    "value",
                    &text,
                );
            }
        });
    }
    Some(svg.finish())
}

/// `12.3 ±0.4`.
fn demand_text(estimate: &Estimate, scale: &Scale) -> String {
    scale.number(estimate.value) + &format::interval_behind(estimate, scale)
}

fn demand_tip(view: &ReportView<'_>, cell: &CellSummary, scale: &Scale) -> String {
    let figures = DEMANDS.into_iter().filter_map(|metric| {
        let estimate = finite_estimate(cell, metric)?;
        let ends = interval_bounds(estimate).map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", scale.number(low), scale.number(high))
        });
        Some(format!("{} {}{ends}", metric.phrase(), scale.with_unit(estimate.value)))
    });
    let figures: Vec<String> = figures.collect();
    format!("{}: {}", view.full_label(cell.setting), figures.join(", "))
}
