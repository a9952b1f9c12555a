//! Predicted and measured figures: each setting's figure with its interval, and its prediction.

use latput_model::predicted::{PredictedPoint, PredictionColumn};

use super::axis::Axis;
use super::svg::{
    Area, Point, Svg, TITLE_SIZE, TextAnchor, fit_text, max_tick_width, text_width, tick_width,
};
use super::{ChartSize, draw_all_sizes, setting_class};
use crate::format::interval_bounds;
use crate::prediction::format_error;
use crate::view::ReportView;
use latput_trial::metric::Scale;

const FONT_SIZE: f64 = 12.0;
const TOP: f64 = 26.0;

/// The picture of one figure under one workload; empty without data.
pub(crate) fn draw_prediction_chart(view: &ReportView<'_>, column: &PredictionColumn) -> String {
    draw_all_sizes(|size| draw_at_size(view, column, size).unwrap_or_default())
}

fn draw_at_size(
    view: &ReportView<'_>,
    column: &PredictionColumn,
    size: ChartSize,
) -> Option<String> {
    let ends = column.points.iter().flat_map(|cell| {
        let (low, high) =
            interval_bounds(&cell.measured).unwrap_or((cell.measured.value, cell.measured.value));
        [low, high, cell.predicted]
    });
    let axis = Axis::from_zero(ends.clone(), if size == ChartSize::Wide { 5 } else { 4 })?;
    let traffic = &view.workload_traffic(column.workload);
    let scale = Scale::choose(column.metric, traffic, ends.fold(0.0, f64::max));
    let errors: Vec<String> = column.points.iter().map(format_error).collect();
    // On a phone the label is above its marks, not beside them.
    let names =
        column.points.iter().map(|cell| text_width(view.short_label(cell.setting), FONT_SIZE));
    let beside = (names.fold(0.0, f64::max) + 24.0).clamp(110.0, 240.0);
    let (left, row_height) = if size == ChartSize::Wide { (beside, 26.0) } else { (10.0, 40.0) };
    let right = size.width() - (max_tick_width(errors.iter().map(String::as_str)) + 18.0).max(70.0);
    let plot =
        Area { left, top: TOP, right, bottom: TOP + row_height * column.points.len() as f64 };
    let x = |value: f64| plot.left + plot.width() * axis.to_fraction(value);
    let name = column.metric.phrase();
    let title = format!("{}: {name}", view.workload_name(column.workload));
    let mut svg =
        Svg::new(size, plot.bottom + 22.0, &format!("{title}, predicted beside measured"));
    let shown = fit_text(&title, TITLE_SIZE, size.width());
    svg.add_text(Point::new(4.0, 14.0), TextAnchor::Start, "title", &shown);
    let ticks: Vec<(f64, String)> =
        axis.tick_labels(scale.divisor).into_iter().map(|(tick, label)| (x(tick), label)).collect();
    let uprights: Vec<f64> = ticks.iter().map(|(x, _)| *x).collect();
    svg.add_grid(plot, &uprights, &[]);
    let end = Point::new(size.width() - 4.0, plot.bottom + 16.0);
    svg.labels_below(end.y, (0.0, end.x - tick_width(scale.unit) - 6.0), &ticks);
    svg.add_text(end, TextAnchor::End, "tick", scale.unit);
    for (row, (cell, error)) in column.points.iter().zip(&errors).enumerate() {
        let top = plot.top + row_height * row as f64;
        let middle = if size == ChartSize::Wide { top + 13.0 } else { top + 28.0 };
        let tip = format_tip(view, cell, &scale, error);
        svg.add_group(&format!("row {}", setting_class(cell.setting)), &tip, |svg| {
            let mark = if cell.is_fitted { "*" } else { "" };
            let label = format!("{}{mark}", view.short_label(cell.setting));
            let (at, anchor, room) = match size {
                ChartSize::Wide => {
                    (Point::new(left - 8.0, middle + 4.0), TextAnchor::End, left - 12.0)
                }
                ChartSize::Narrow => {
                    (Point::new(4.0, top + 14.0), TextAnchor::Start, size.width() - 8.0)
                }
            };
            svg.add_text(at, anchor, "name", &fit_text(&label, FONT_SIZE, room));
            if let Some((low, high)) = interval_bounds(&cell.measured) {
                svg.add_line(Point::new(x(low), middle), Point::new(x(high), middle), "whisker");
            }
            svg.add_circle(Point::new(x(cell.predicted), middle), 5.0, "dot hollow");
            // Drawn last and smaller, so that it is visible inside the ring if both agree.
            svg.add_circle(Point::new(x(cell.measured.value), middle), 3.0, "dot");
            svg.add_text(
                Point::new(plot.right + 10.0, middle + 4.0),
                TextAnchor::Start,
                "value",
                error,
            );
        });
    }
    Some(svg.finish())
}

fn format_tip(view: &ReportView<'_>, cell: &PredictedPoint, scale: &Scale, error: &str) -> String {
    format!(
        "{}: measured {}, predicted {} ({error})",
        view.full_label(cell.setting),
        scale.with_unit(cell.measured.value),
        scale.with_unit(cell.predicted)
    )
}
