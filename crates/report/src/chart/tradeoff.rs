//! The trade-off picture: one figure against another, an interval ellipse around each setting, and
//! a line through the settings that no other beats (after the ellipsis plots of flent).

use latput_model::CellSummary;
use latput_stats::Estimate;
use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;

use super::axis::Axis;
use super::label::{LabelPlacer, LabelSpec};
use super::svg::{
    Area, PlotAttributes, Point, Svg, TITLE_SIZE, TextAnchor, fit_text, format_coordinate,
    max_tick_width, text_width,
};
use super::{ChartSize, draw_all_sizes, setting_class};
use crate::format::{interval_bounds, rough_percent};
use crate::view::{ReportView, finite_estimate};

/// The figure of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisMetric {
    pub(crate) workload: usize,
    pub(crate) metric: Metric,
}

/// One setting in the picture.
struct SettingMark<'a> {
    setting: usize,
    x: &'a Estimate,
    y: &'a Estimate,
}

/// An axis whose ends differ by less than this share says so: what looks far apart is not.
const MAGNIFIED_BELOW: f64 = 0.05;

/// Distance of a hint below its title.
const HINT_LINE: f64 = 15.0;

/// Most settings with names beside their points; the legend has them all.
const MOST_NAMES: usize = 24;

impl AxisMetric {
    /// `tcp_rr: p99`.
    pub(crate) fn name(self, view: &ReportView<'_>) -> String {
        format!("{}: {}", view.workload_name(self.workload), self.metric.column())
    }

    fn axis_title(self, view: &ReportView<'_>) -> String {
        let unit = view.choose_scale(self.workload, self.metric).unit;
        let unit = if unit.is_empty() { String::new() } else { format!(" [{unit}]") };
        format!("{}: {}{unit}", view.workload_name(self.workload), self.metric.column())
    }
}

/// The picture for wide and narrow screens; empty if no setting has both figures.
pub(crate) fn draw_tradeoff_chart(view: &ReportView<'_>, x: AxisMetric, y: AxisMetric) -> String {
    let marks = collect_marks(view, x, y);
    draw_all_sizes(|size| draw_at_size(view, x, y, &marks, size).unwrap_or_default())
}

fn collect_marks<'a>(view: &ReportView<'a>, x: AxisMetric, y: AxisMetric) -> Vec<SettingMark<'a>> {
    let figure = |setting, choice: AxisMetric| -> Option<&'a Estimate> {
        let cell: &'a CellSummary = view.find_cell(setting, choice.workload)?;
        finite_estimate(cell, choice.metric)
    };
    let settings = view.measured_settings().into_iter();
    settings
        .filter_map(|setting| {
            Some(SettingMark { setting, x: figure(setting, x)?, y: figure(setting, y)? })
        })
        .collect()
}

fn draw_at_size(
    view: &ReportView<'_>,
    x: AxisMetric,
    y: AxisMetric,
    marks: &[SettingMark<'_>],
    size: ChartSize,
) -> Option<String> {
    let height = if size == ChartSize::Wide { 410.0 } else { 370.0 };
    let ends = |estimate: &Estimate| {
        let (low, high) = interval_bounds(estimate).unwrap_or((estimate.value, estimate.value));
        [low, estimate.value, high]
    };
    let ticks = if size == ChartSize::Wide { 6 } else { 4 };
    let x_axis = Axis::from_values(marks.iter().flat_map(|mark| ends(mark.x)), ticks)?;
    let y_axis = Axis::from_values(marks.iter().flat_map(|mark| ends(mark.y)), 6)?;
    let labels = y_axis.tick_labels(scale_divisor(view, y));
    let left = (max_tick_width(labels.iter().map(|(_, label)| label.as_str())) + 11.0).max(52.0);
    let plot = Area { left, top: 50.0, right: size.width() - 14.0, bottom: height - 58.0 };
    let title = format!("{} against {}", y.axis_title(view), x.axis_title(view));
    let mut svg = Svg::new(size, height, &title);
    let at = |x: f64, y: f64| {
        Point::new(
            plot.left + plot.width() * x_axis.to_fraction(x),
            plot.bottom - plot.height() * y_axis.to_fraction(y),
        )
    };
    let described = |choice: AxisMetric, axis: &Axis| {
        let scale = view.choose_scale(choice.workload, choice.metric);
        axis.format_for_script(scale.divisor, scale.unit)
    };
    svg.set_plot(&PlotAttributes {
        area: plot,
        x: described(x, &x_axis),
        y: Some(described(y, &y_axis)),
    });
    draw_frame(&mut svg, view, plot, (x, &x_axis), (y, &y_axis));
    let frontier: Vec<Point> = find_pareto_frontier(marks, x.metric, y.metric)
        .iter()
        .map(|mark| at(mark.x.value, mark.y.value))
        .collect();
    if frontier.len() > 1 {
        svg.add_polyline(&frontier, "frontier");
    }
    let mut labels = LabelPlacer::new(Area { top: plot.top - 8.0, ..plot });
    for mark in marks {
        let radius = if view.is_recommended(mark.setting) { 11.0 } else { 6.0 };
        labels.avoid_mark(at(mark.x.value, mark.y.value), radius);
    }
    // Below all marks and names.
    for mark in marks {
        draw_ellipse(&mut svg, mark, &format_tip(view, mark, x, y), at);
    }
    // The recommended setting is placed first, so that it always has a name.
    let mut order: Vec<&SettingMark<'_>> = marks.iter().collect();
    order.sort_by_key(|mark| !view.is_recommended(mark.setting));
    for mark in order {
        let tip = format_tip(view, mark, x, y);
        let centre = at(mark.x.value, mark.y.value);
        svg.add_group(&setting_class(mark.setting), &tip, |svg| {
            svg.add_circle(centre, 3.5, "dot");
            if view.is_recommended(mark.setting) {
                svg.add_circle(centre, 9.0, "ring");
            }
            if marks.len() <= MOST_NAMES {
                let (class, gap) = if view.is_recommended(mark.setting) {
                    ("name chosen", 15.0)
                } else {
                    ("name", 9.0)
                };
                labels.place_label(
                    svg,
                    centre,
                    LabelSpec { text: view.short_label(mark.setting), class, gap },
                );
            }
        });
    }
    Some(svg.finish())
}

/// The ellipse of both intervals of a setting.
fn draw_ellipse(svg: &mut Svg, mark: &SettingMark<'_>, tip: &str, at: impl Fn(f64, f64) -> Point) {
    let (Some(across), Some(up)) = (interval_bounds(mark.x), interval_bounds(mark.y)) else {
        return;
    };
    let centre = at(mark.x.value, mark.y.value);
    let ellipse = ellipse_path(centre, at(across.0, up.0), at(across.1, up.1));
    svg.add_group(&setting_class(mark.setting), tip, |svg| svg.add_path(&ellipse, "ellipse"));
}

fn draw_frame(
    svg: &mut Svg,
    view: &ReportView<'_>,
    plot: Area,
    x: (AxisMetric, &Axis),
    y: (AxisMetric, &Axis),
) {
    let (x_ticks, y_ticks) =
        (x.1.tick_labels(scale_divisor(view, x.0)), y.1.tick_labels(scale_divisor(view, y.0)));
    let left = |tick: f64| plot.left + plot.width() * x.1.to_fraction(tick);
    let top = |tick: f64| plot.bottom - plot.height() * y.1.to_fraction(tick);
    let lefts: Vec<f64> = x_ticks.iter().map(|(tick, _)| left(*tick)).collect();
    let tops: Vec<f64> = y_ticks.iter().map(|(tick, _)| top(*tick)).collect();
    svg.add_grid(plot, &lefts, &tops);
    let x_labels: Vec<(f64, String)> =
        lefts.into_iter().zip(x_ticks.into_iter().map(|(_, label)| label)).collect();
    svg.labels_below(plot.bottom + 16.0, (plot.left - 20.0, plot.right + 12.0), &x_labels);
    for ((_, label), top) in y_ticks.iter().zip(tops) {
        svg.add_text(Point::new(plot.left - 7.0, top + 4.0), TextAnchor::End, "tick y", label);
    }
    let room = plot.right - 4.0;
    let title = y.0.axis_title(view) + &magnification_note(y.1);
    draw_title(
        svg,
        (Point::new(4.0, 16.0), TextAnchor::Start),
        &title,
        &direction_hint(y.0.metric, '↓', '↑'),
        room,
    );
    let title = x.0.axis_title(view) + &magnification_note(x.1);
    let at = Point::new(plot.right, plot.bottom + 36.0);
    draw_title(svg, (at, TextAnchor::End), &title, &direction_hint(x.0.metric, '←', '→'), room);
}

/// Writes the title of an axis with its hint: in one line, or the hint below where there is no room.
fn draw_title(
    svg: &mut Svg,
    (at, anchor): (Point, TextAnchor),
    title: &str,
    hint: &str,
    room: f64,
) {
    let whole = format!("{title} {hint}");
    if text_width(&whole, TITLE_SIZE) <= room {
        return svg.add_text(at, anchor, "title", whole.trim_end());
    }
    svg.add_text(at, anchor, "title", &fit_text(title, TITLE_SIZE, room));
    svg.add_text(Point::new(at.x, at.y + HINT_LINE), anchor, "small", hint);
}

/// Remark of an axis that shows differences of a few per cent over its whole length; empty for others.
fn magnification_note(axis: &Axis) -> String {
    let span = axis.span_ratio();
    if span >= MAGNIFIED_BELOW {
        return String::new();
    }
    format!(", all within {}", rough_percent(span))
}

fn scale_divisor(view: &ReportView<'_>, choice: AxisMetric) -> f64 {
    view.choose_scale(choice.workload, choice.metric).divisor
}

/// The better direction of an axis; empty where neither is better.
fn direction_hint(metric: Metric, lower: char, higher: char) -> String {
    match metric.preferred_direction() {
        PreferredDirection::Higher => format!("{higher} more is better"),
        PreferredDirection::Lower => format!("{lower} less is better"),
        PreferredDirection::Neither => String::new(),
    }
}

/// An ellipse of four quarters, because the ends of an interval may differ in their distance from
/// the figure.
fn ellipse_path(centre: Point, low: Point, high: Point) -> String {
    let c = format_coordinate;
    let (left, right) = (centre.x - low.x, high.x - centre.x);
    let (down, up) = (low.y - centre.y, centre.y - high.y);
    format!(
        "M{} {}A{} {} 0 0 0 {} {}A{} {} 0 0 0 {} {}A{} {} 0 0 0 {} {}A{} {} 0 0 0 {} {}Z",
        c(high.x),
        c(centre.y),
        c(right),
        c(up),
        c(centre.x),
        c(high.y),
        c(left),
        c(up),
        c(low.x),
        c(centre.y),
        c(left),
        c(down),
        c(centre.x),
        c(low.y),
        c(right),
        c(down),
        c(high.x),
        c(centre.y),
    )
}

/// The marks that no other beats in both figures, from left to right; none if a figure has no
/// better direction.
fn find_pareto_frontier<'m, 'a>(
    marks: &'m [SettingMark<'a>],
    x: Metric,
    y: Metric,
) -> Vec<&'m SettingMark<'a>> {
    let gain = |metric: Metric, value: f64| match metric.preferred_direction() {
        PreferredDirection::Higher => Some(value),
        PreferredDirection::Lower => Some(-value),
        PreferredDirection::Neither => None,
    };
    let gains = |mark: &SettingMark<'_>| Some((gain(x, mark.x.value)?, gain(y, mark.y.value)?));
    let is_beaten = |mark: &SettingMark<'_>| {
        let Some(own) = gains(mark) else { return true };
        marks.iter().filter_map(gains).any(|other| {
            other.0 >= own.0 && other.1 >= own.1 && (other.0 > own.0 || other.1 > own.1)
        })
    };
    let mut front: Vec<&SettingMark<'_>> = marks.iter().filter(|mark| !is_beaten(mark)).collect();
    front.sort_by(|a, b| a.x.value.total_cmp(&b.x.value));
    front
}

fn format_tip(
    view: &ReportView<'_>,
    mark: &SettingMark<'_>,
    x: AxisMetric,
    y: AxisMetric,
) -> String {
    let figure = |choice: AxisMetric, estimate: &Estimate| {
        let scale = view.choose_scale(choice.workload, choice.metric);
        let ends = interval_bounds(estimate).map_or_else(String::new, |(low, high)| {
            format!(" ({} to {})", scale.number(low), scale.number(high))
        });
        let name = choice.metric.phrase();
        format!(
            "{}, {name}: {}{ends}",
            view.workload_name(choice.workload),
            scale.with_unit(estimate.value)
        )
    };
    format!("{} · {} · {}", view.full_label(mark.setting), figure(x, mark.x), figure(y, mark.y))
}
