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
use super::svg::{Anchor, Area, Plot, Point, Svg, TITLE_SIZE, coordinate, fitted};
use super::{Size, both, setting_class};
use crate::view::{View, rate_metric};

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
enum Figure {
    Metric(Metric),
    /// Hardware interrupts of the system under test: where a kernel does not show its polls.
    Interrupts,
}

/// One trial in the picture: when it ran in milliseconds from the first trial of the run, and its
/// figures.
struct Mark<'a> {
    row: &'a Row,
    from_ms: u64,
    to_ms: u64,
}

/// The picture for wide and narrow screens; empty without the times of at least two trials.
pub(crate) fn series(view: &View<'_>, workload: usize) -> String {
    both(|size| draw(view, workload, size).unwrap_or_default())
}

fn draw(view: &View<'_>, workload: usize, size: Size) -> Option<String> {
    let marks = marks(view, workload);
    let first = view.results.rows.iter().map(|row| row.started_unix_ms).min()?;
    let end_ms = view.results.rows.iter().map(|row| end(row).saturating_sub(first)).max()?;
    if marks.len() < 2 || first == 0 || end_ms == 0 {
        return None;
    }
    let strips: Vec<(Figure, Vec<(usize, f64)>)> = figures(view, workload)
        .into_iter()
        .map(|figure| (figure, values(view, workload, figure, &marks)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let title = format!("{}: every trial over time", view.workload_name(workload));
    let bottom = 24.0 + STRIP * strips.len() as f64;
    let plot = Area { left: 58.0, top: 24.0, right: size.width() - 14.0, bottom };
    let (divisor, unit) = if end_ms < 600_000 { (1e3, "s") } else { (60e3, "min") };
    let axis = Axis::spanning(0.0, end_ms as f64 / divisor, if size == Size::Wide { 8 } else { 4 });
    let x = |ms: u64| plot.left + plot.width() * axis.at(ms as f64 / divisor);

    let mut svg = Svg::new(size, bottom + 40.0, &title);
    svg.plot(&Plot { area: plot, x: axis.described(1.0, unit), y: None });
    svg.text(
        Point::new(4.0, 14.0),
        Anchor::Start,
        "title",
        &fitted(&title, TITLE_SIZE, plot.right),
    );
    draw_spans(&mut svg, plot, &marks, x);
    let place = |(tick, label)| (plot.left + plot.width() * axis.at(tick), label);
    let labels: Vec<(f64, String)> = axis.labels(1.0).into_iter().map(place).collect();
    let uprights: Vec<f64> = labels.iter().map(|(x, _)| *x).collect();
    svg.grid(plot, &uprights, &[]);
    svg.labels_below(bottom + 16.0, (plot.left - 20.0, plot.right + 12.0), &labels);
    let name = format!("time since the first trial [{unit}]");
    svg.text(Point::new(plot.right, bottom + 34.0), Anchor::End, "title", &name);
    let mut paths: BTreeMap<usize, String> = BTreeMap::new();
    for (idx, (figure, values)) in strips.iter().enumerate() {
        let top = plot.top + STRIP * idx as f64 + STRIP_TITLE;
        let strip = Area { top, bottom: top + STRIP - STRIP_TITLE - 8.0, ..plot };
        let axis = draw_strip(&mut svg, view, workload, *figure, values, strip)?;
        let y = |value: f64| strip.bottom - strip.height() * axis.at(value);
        dashes(&mut paths, &marks, values, x, &y);
    }
    for (setting, path) in paths {
        let tip = view.full_label(setting);
        svg.group(&setting_class(setting), &tip, |svg| svg.path(&path, "trials"));
    }
    Some(svg.finish())
}

/// The title and the axis of one strip.
fn draw_strip(
    svg: &mut Svg,
    view: &View<'_>,
    workload: usize,
    figure: Figure,
    values: &[(usize, f64)],
    strip: Area,
) -> Option<Axis> {
    let largest = values.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
    let (name, scale) = match figure {
        Figure::Metric(metric) => {
            (metric.phrase(), Scale::choose(metric, &view.traffic(workload), largest))
        }
        Figure::Interrupts => {
            let like = Metric::SutPollsPerS; // interrupts are counted in the same unit
            ("interrupts of the SUT", Scale::choose(like, &view.traffic(workload), largest))
        }
    };
    let axis = Axis::holding(values.iter().map(|(_, value)| *value), 2)?;
    let y = |value: f64| strip.bottom - strip.height() * axis.at(value);
    let unit = if scale.unit.is_empty() { String::new() } else { format!(" [{}]", scale.unit) };
    let title = fitted(&format!("{name}{unit}"), 11.0, strip.width());
    svg.text(Point::new(strip.left, strip.top - 5.0), Anchor::Start, "small", &title);
    let ticks = axis.labels(scale.divisor);
    let levels: Vec<f64> = ticks.iter().map(|(tick, _)| y(*tick)).collect();
    svg.grid(strip, &[], &levels);
    for ((_, label), level) in ticks.iter().zip(levels) {
        svg.text(Point::new(strip.left - 7.0, level + 4.0), Anchor::End, "tick y", label);
    }
    Some(axis)
}

/// Adds a dash for each value to the path of its setting.
fn dashes(
    paths: &mut BTreeMap<usize, String>,
    marks: &[Mark<'_>],
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
        let length = coordinate(length);
        let _infallible = write!(path, "M{} {}h{length}", coordinate(left), coordinate(level));
    }
}

/// The trials of the workload, in the order in which they ran.
fn marks<'a>(view: &View<'a>, workload: usize) -> Vec<Mark<'a>> {
    let rows = &view.results.rows;
    let first = rows.iter().map(|row| row.started_unix_ms).min().unwrap_or(0);
    let is_meant =
        |row: &&Row| row.workload == workload && row.setting < view.results.settings.len();
    let mark = |row: &'a Row| Mark {
        row,
        from_ms: row.started_unix_ms - first,
        to_ms: end(row).saturating_sub(first),
    };
    rows.iter().filter(is_meant).map(mark).collect()
}

fn end(row: &Row) -> u64 {
    let traffic = &row.observation.traffic;
    let window = traffic.sender_window.max(traffic.receiver_window);
    row.started_unix_ms.saturating_add(window.as_ns() / 1_000_000)
}

/// Shades the spans of time in which the workload ran.
fn draw_spans(svg: &mut Svg, plot: Area, marks: &[Mark<'_>], x: impl Fn(u64) -> f64) {
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
            [left, plot.top, (right - left).max(1.0), plot.bottom].map(coordinate);
        let _infallible = write!(path, "M{left} {top}h{width}V{bottom}H{left}Z");
    }
    svg.path(&path, "span");
}

/// The figures of a workload's strips: the plan's own, rate, latency, CPU, interrupts or polls, delay.
fn figures(view: &View<'_>, workload: usize) -> Vec<Figure> {
    let present = view.metrics(workload);
    let wanted = [
        rate_metric(&view.traffic(workload)),
        Metric::LatencyNsP99,
        Metric::ProbeNsP99,
        Metric::TcpRttNsP99,
        Metric::JitterNs,
        Metric::SutCpuBusyRatio,
        Metric::SutPollsPerS,
    ];
    let wanted = wanted.into_iter().filter(|it| present.contains(it));
    let all = view.custom_metrics(workload).into_iter().chain(wanted);
    let mut figures: Vec<Figure> = all.map(Figure::Metric).collect();
    if !present.contains(&Metric::SutPollsPerS) {
        figures.push(Figure::Interrupts);
    }
    figures
}

/// The values of a figure with the index of their trial; none if it is 0 in all.
fn values(
    view: &View<'_>,
    workload: usize,
    figure: Figure,
    marks: &[Mark<'_>],
) -> Vec<(usize, f64)> {
    let traffic = view.traffic(workload);
    let value = |row: &Row| match figure {
        Figure::Metric(metric) => metric.value(&traffic, &row.observation),
        Figure::Interrupts => {
            let is_sut = |host: &&HostObservation| host.role == Role::Sut;
            let sut = row.observation.hosts.iter().find(is_sut)?;
            Some(sut.interrupts as f64 / sut.window.as_secs_f64())
        }
    };
    let known = marks.iter().enumerate().filter_map(|(idx, mark)| Some((idx, value(mark.row)?)));
    let known: Vec<_> = known.filter(|(_, value)| value.is_finite()).collect();
    if known.iter().all(|(_, value)| *value == 0.0) { Vec::new() } else { known }
}
