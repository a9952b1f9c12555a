//! Time series: every trial of a workload at its time, one strip to a figure.
//!
//! A trial, or a slice of one, is a dash from its start to its end. Spans without this workload are
//! left blank: other workloads ran there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use latput_trial::metric::Scale;
use latput_trial::observation::{HostObservation, Role};
use latput_trial::{Metric, Row};

use super::axis::Axis;
use super::svg::{
    Area, PlotAttributes, Point, Svg, TITLE_SIZE, TextAnchor, fit_text, format_coordinate,
};
use super::{ChartSize, draw_all_sizes, setting_class};
use crate::view::ReportView;

/// Height of a strip, with the gap to the next one.
const STRIP: f64 = 92.0;
/// The part of it above its plot, for its title.
const STRIP_TITLE: f64 = 22.0;
/// Trials of a workload from which marks have whole coordinates, and those that would hide each other are left out.
const THINNED_FROM: usize = 2_000;
/// A pause of this many milliseconds between two trials of a workload ends a span.
const PAUSE_MS: u64 = 1_500;

/// A figure of one trial over time.
#[derive(Clone, Copy, PartialEq)]
enum SeriesFigure {
    Metric(Metric),
    /// Hardware interrupts of the system under test: where a kernel does not show its polls.
    Interrupts,
}

/// One trial in the picture: when it ran in milliseconds from the first trial of the run, and its
/// figures.
struct TrialMark<'a> {
    row: &'a Row,
    from_ms: u64,
    to_ms: u64,
}

/// The picture for wide and narrow screens; empty without the times of at least two trials.
pub(crate) fn draw_series_chart(view: &ReportView<'_>, workload: usize) -> String {
    draw_all_sizes(|size| draw_at_size(view, workload, size).unwrap_or_default())
}

fn draw_at_size(view: &ReportView<'_>, workload: usize, size: ChartSize) -> Option<String> {
    let marks = collect_marks(view, workload);
    let first = view.results.rows.iter().map(|row| row.started_unix_ms).min()?;
    let end_ms =
        view.results.rows.iter().map(|row| trial_end_ms(row).saturating_sub(first)).max()?;
    if marks.len() < 2 || first == 0 || end_ms == 0 {
        return None;
    }
    let strips: Vec<(SeriesFigure, Vec<(usize, f64)>)> = select_figures(view, workload)
        .into_iter()
        .map(|figure| (figure, values(view, workload, figure, &marks)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let title = format!("{}: every trial over time", view.workload_name(workload));
    let bottom = 24.0 + STRIP * strips.len() as f64;
    let plot = Area { left: 58.0, top: 24.0, right: size.width() - 14.0, bottom };
    let (divisor, unit) = if end_ms < 600_000 { (1e3, "s") } else { (60e3, "min") };
    let axis = Axis::with_exact_range(
        0.0,
        end_ms as f64 / divisor,
        if size == ChartSize::Wide { 8 } else { 4 },
    );
    let x = |ms: u64| plot.left + plot.width() * axis.to_fraction(ms as f64 / divisor);

    let mut svg = Svg::new(size, bottom + 40.0, &title);
    svg.set_plot(&PlotAttributes { area: plot, x: axis.format_for_script(1.0, unit), y: None });
    svg.add_text(
        Point::new(4.0, 14.0),
        TextAnchor::Start,
        "title",
        &fit_text(&title, TITLE_SIZE, plot.right),
    );
    draw_spans(&mut svg, plot, &marks, x);
    let place = |(tick, label)| (plot.left + plot.width() * axis.to_fraction(tick), label);
    let labels: Vec<(f64, String)> = axis.tick_labels(1.0).into_iter().map(place).collect();
    let uprights: Vec<f64> = labels.iter().map(|(x, _)| *x).collect();
    svg.add_grid(plot, &uprights, &[]);
    svg.labels_below(bottom + 16.0, (plot.left - 20.0, plot.right + 12.0), &labels);
    let name = format!("time since the first trial [{unit}]");
    svg.add_text(Point::new(plot.right, bottom + 34.0), TextAnchor::End, "title", &name);
    let mut paths: BTreeMap<usize, String> = BTreeMap::new();
    for (idx, (figure, values)) in strips.iter().enumerate() {
        let top = plot.top + STRIP * idx as f64 + STRIP_TITLE;
        let strip = Area { top, bottom: top + STRIP - STRIP_TITLE - 8.0, ..plot };
        let axis = draw_strip(&mut svg, view, workload, *figure, values, strip)?;
        let y = |value: f64| strip.bottom - strip.height() * axis.to_fraction(value);
        append_dashes(&mut paths, &marks, values, x, &y);
    }
    for (setting, path) in paths {
        let tip = view.full_label(setting);
        svg.add_group(&setting_class(setting), &tip, |svg| svg.add_path(&path, "trials"));
    }
    Some(svg.finish())
}

/// The title and the axis of one strip.
fn draw_strip(
    svg: &mut Svg,
    view: &ReportView<'_>,
    workload: usize,
    figure: SeriesFigure,
    values: &[(usize, f64)],
    strip: Area,
) -> Option<Axis> {
    let largest = values.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let (name, scale) = match figure {
        SeriesFigure::Metric(metric) => {
            (metric.phrase(), Scale::choose(metric, &view.workload_traffic(workload), largest))
        }
        SeriesFigure::Interrupts => {
            let like = Metric::SutPollsPerS; // interrupts are counted in the same unit
            (
                "interrupts of the SUT",
                Scale::choose(like, &view.workload_traffic(workload), largest),
            )
        }
    };
    let axis = Axis::from_values(values.iter().map(|(_, value)| *value), 2)?;
    let y = |value: f64| strip.bottom - strip.height() * axis.to_fraction(value);
    let unit = if scale.unit.is_empty() { String::new() } else { format!(" [{}]", scale.unit) };
    let title = fit_text(&format!("{name}{unit}"), 11.0, strip.width());
    svg.add_text(Point::new(strip.left, strip.top - 5.0), TextAnchor::Start, "small", &title);
    let ticks = axis.tick_labels(scale.divisor);
    let levels: Vec<f64> = ticks.iter().map(|(tick, _)| y(*tick)).collect();
    svg.add_grid(strip, &[], &levels);
    for ((_, label), level) in ticks.iter().zip(levels) {
        svg.add_text(Point::new(strip.left - 7.0, level + 4.0), TextAnchor::End, "tick y", label);
    }
    Some(axis)
}

/// Adds a dash for each value to the path of its setting.
fn append_dashes(
    paths: &mut BTreeMap<usize, String>,
    marks: &[TrialMark<'_>],
    values: &[(usize, f64)],
    x: impl Fn(u64) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
    let is_thinned = marks.len() >= THINNED_FROM;
    let mut drawn = BTreeSet::new();
    for (idx, value) in values {
        let mark = &marks[*idx];
        let (mut left, mut level) = (x(mark.from_ms), y(*value));
        let mut length = x(mark.to_ms) - left;
        if is_thinned {
            [left, level, length] = [left, level, length.max(1.0)].map(f64::round);
            if !drawn.insert((mark.row.setting, left.to_bits(), level.to_bits())) {
                continue;
            }
        }
        let path = paths.entry(mark.row.setting).or_default();
        let length = format_coordinate(length);
        let _infallible =
            write!(path, "M{} {}h{length}", format_coordinate(left), format_coordinate(level));
    }
}

/// The trials of the workload, in the order in which they ran.
fn collect_marks<'a>(view: &ReportView<'a>, workload: usize) -> Vec<TrialMark<'a>> {
    let rows = &view.results.rows;
    let first = rows.iter().map(|row| row.started_unix_ms).min().unwrap_or(0);
    let is_meant =
        |row: &&Row| row.workload == workload && row.setting < view.results.settings.len();
    let mark = |row: &'a Row| TrialMark {
        row,
        from_ms: row.started_unix_ms - first,
        to_ms: trial_end_ms(row).saturating_sub(first),
    };
    rows.iter().filter(is_meant).map(mark).collect()
}

fn trial_end_ms(row: &Row) -> u64 {
    let traffic = &row.observation.traffic;
    let window = traffic.sender_window.max(traffic.receiver_window);
    row.started_unix_ms.saturating_add(window.as_ns() / 1_000_000)
}

/// Shades the spans of time in which the workload ran.
fn draw_spans(svg: &mut Svg, plot: Area, marks: &[TrialMark<'_>], x: impl Fn(u64) -> f64) {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for mark in marks {
        match spans.last_mut() {
            Some((_, to)) if mark.from_ms <= to.saturating_add(PAUSE_MS) => {
                *to = mark.to_ms.max(*to);
            }
            _ => spans.push((mark.from_ms, mark.to_ms)),
        }
    }
    let mut path = String::new();
    for (from, to) in spans {
        let (left, right) = (x(from), x(to));
        let [left, top, width, bottom] =
            [left, plot.top, (right - left).max(1.0), plot.bottom].map(format_coordinate);
        let _infallible = write!(path, "M{left} {top}h{width}V{bottom}H{left}Z");
    }
    svg.add_path(&path, "span");
}

/// The figures of a workload's strips: the plan's own, rate, latency, CPU, interrupts or polls, delay.
fn select_figures(view: &ReportView<'_>, workload: usize) -> Vec<SeriesFigure> {
    let present = view.workload_metrics(workload);
    let wanted = [
        view.rate_metric(workload),
        Metric::LatencyNsP99,
        Metric::ProbeNsP99,
        Metric::TcpRttNsP99,
        Metric::JitterNs,
        Metric::SutCpuBusyRatio,
        Metric::SutPollsPerS,
    ];
    let wanted = wanted.into_iter().filter(|it| present.contains(it));
    let all = view.custom_metrics(workload).into_iter().chain(wanted);
    let mut figures: Vec<SeriesFigure> = all.map(SeriesFigure::Metric).collect();
    if !present.contains(&Metric::SutPollsPerS) {
        figures.push(SeriesFigure::Interrupts);
    }
    figures
}

/// The values of a figure with the index of their trial; none if it is 0 in all.
fn values(
    view: &ReportView<'_>,
    workload: usize,
    figure: SeriesFigure,
    marks: &[TrialMark<'_>],
) -> Vec<(usize, f64)> {
    let traffic = view.workload_traffic(workload);
    let value = |row: &Row| match figure {
        SeriesFigure::Metric(metric) => metric.value(&traffic, &row.observation),
        SeriesFigure::Interrupts => {
            let is_sut = |host: &&HostObservation| host.role == Role::Sut;
            let sut = row.observation.hosts.iter().find(is_sut)?;
            Some(sut.interrupts as f64 / sut.window.as_secs_f64())
        }
    };
    let known = marks.iter().enumerate().filter_map(|(idx, mark)| Some((idx, value(mark.row)?)));
    let known: Vec<_> = known.filter(|(_, value)| value.is_finite()).collect();
    if known.iter().all(|(_, value)| *value == 0.0) { Vec::new() } else { known }
}
