//! Predicted and measured figures: each setting's figure with its interval, and its prediction.

use latput_model::predicted::{Column, PredictedPoint};

use super::axis::Axis;
use super::svg::{Anchor, Area, Point, Svg, TITLE_SIZE, fitted, text_width, tick_width, widest};
use super::{Size, both, setting_class};
use crate::format::interval;
use crate::prediction::error;
use crate::view::View;
use latput_trial::metric::Scale;

const FONT_SIZE: f64 = 12.0;
const TOP: f64 = 26.0;

/// The picture of one figure under one workload; empty without data.
pub(crate) fn predicted(view: &View<'_>, column: &Column) -> String {
    both(|size| draw(view, column, size).unwrap_or_default())
}

fn draw(view: &View<'_>, column: &Column, size: Size) -> Option<String> {
    let ends = column.points.iter().flat_map(|cell| {
        let (low, high) =
            interval(&cell.measured).unwrap_or((cell.measured.value, cell.measured.value));
        [low, high, cell.predicted]
    });
    let axis = Axis::from_zero(ends.clone(), if size == Size::Wide { 5 } else { 4 })?;
    let traffic = &view.traffic(column.workload);
    let scale = Scale::choose(column.metric, traffic, ends.fold(0.0, f64::max));
    let errors: Vec<String> = column.points.iter().map(error).collect();
    // On a phone the label is above its marks, not beside them.
    let names = column.points.iter().map(|cell| text_width(view.label(cell.setting), FONT_SIZE));
    let beside = (names.fold(0.0, f64::max) + 24.0).clamp(110.0, 240.0);
    let (left, row_height) = if size == Size::Wide { (beside, 26.0) } else { (10.0, 40.0) };
    let right = size.width() - (widest(errors.iter().map(String::as_str)) + 18.0).max(70.0);
    let plot =
        Area { left, top: TOP, right, bottom: TOP + row_height * column.points.len() as f64 };
    let x = |value: f64| plot.left + plot.width() * axis.at(value);
    let name = column.metric.phrase();
    let title = format!("{}: {name}", view.workload_name(column.workload));
    let mut svg =
        Svg::new(size, plot.bottom + 22.0, &format!("{title}, predicted beside measured"));
    let shown = fitted(&title, TITLE_SIZE, size.width());
    svg.text(Point::new(4.0, 14.0), Anchor::Start, "title", &shown);
    let ticks: Vec<(f64, String)> =
        axis.labels(scale.divisor).into_iter().map(|(tick, label)| (x(tick), label)).collect();
    let uprights: Vec<f64> = ticks.iter().map(|(x, _)| *x).collect();
    svg.grid(plot, &uprights, &[]);
    let end = Point::new(size.width() - 4.0, plot.bottom + 16.0);
    svg.labels_below(end.y, (0.0, end.x - tick_width(scale.unit) - 6.0), &ticks);
    svg.text(end, Anchor::End, "tick", scale.unit);
    for (row, (cell, error)) in column.points.iter().zip(&errors).enumerate() {
        let top = plot.top + row_height * row as f64;
        let middle = if size == Size::Wide { top + 13.0 } else { top + 28.0 };
        let tip = tip(view, cell, &scale, error);
        svg.group(&format!("row {}", setting_class(cell.setting)), &tip, |svg| {
            let mark = if cell.is_fitted { "*" } else { "" };
            let label = format!("{}{mark}", view.label(cell.setting));
            let (at, anchor, room) = match size {
                Size::Wide => (Point::new(left - 8.0, middle + 4.0), Anchor::End, left - 12.0),
                Size::Narrow => (Point::new(4.0, top + 14.0), Anchor::Start, size.width() - 8.0),
            };
            svg.text(at, anchor, "name", &fitted(&label, FONT_SIZE, room));
            if let Some((low, high)) = interval(&cell.measured) {
                svg.line(Point::new(x(low), middle), Point::new(x(high), middle), "whisker");
            }
            svg.circle(Point::new(x(cell.predicted), middle), 5.0, "dot hollow");
            // Drawn last and smaller, so that it is visible inside the ring if both agree.
            svg.circle(Point::new(x(cell.measured.value), middle), 3.0, "dot");
            svg.text(Point::new(plot.right + 10.0, middle + 4.0), Anchor::Start, "value", error);
        });
    }
    Some(svg.finish())
}

fn tip(view: &View<'_>, cell: &PredictedPoint, scale: &Scale, error: &str) -> String {
    format!(
        "{}: measured {}, predicted {} ({error})",
        view.full_label(cell.setting),
        scale.with_unit(cell.measured.value),
        scale.with_unit(cell.predicted)
    )
}
