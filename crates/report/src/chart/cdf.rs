//! Latency distributions: one line for each setting, with time on a logarithmic axis and the share
//! of samples on a logit axis, which shows the body and the tail equally well.

use latput_stats::Histogram;
use latput_units::Nanos;

use super::axis::Axis;
use super::label::{LabelPlacer, LabelSpec};
use super::svg::{Area, PlotAttributes, Point, Svg, TITLE_SIZE, TextAnchor, fit_text};
use super::{ChartSize, draw_all_sizes, setting_class};
use crate::view::ReportView;

/// The shares with a line and a label.
const SHARES: [(f64, &str); 7] = [
    (0.01, "1%"),
    (0.1, "10%"),
    (0.5, "50%"),
    (0.9, "90%"),
    (0.99, "99%"),
    (0.999, "99.9%"),
    (0.9999, "99.99%"),
];

/// Positions of a line's name, best first: where lines are far apart.
const NAME_SHARES: [f64; 8] = [0.5, 0.75, 0.3, 0.9, 0.1, 0.97, 0.03, 0.6];

/// Most curves with lines to names that have no room beside them; the legend has them all.
const MOST_LED: usize = 13;

/// The axis is in seconds if its longest time is at least this.
const SECONDS_FROM_NS: f64 = 5e9;

/// Least distance of neighbouring points in pixels; others are dropped.
const RESOLUTION: f64 = 2.0;

/// The times of one setting.
pub(crate) struct CdfLine<'a> {
    pub(crate) setting: usize,
    pub(crate) times: &'a Histogram,
}

/// The picture for wide and narrow screens; empty without samples.
pub(crate) fn draw_cdf_chart(view: &ReportView<'_>, title: &str, lines: &[CdfLine<'_>]) -> String {
    draw_all_sizes(|size| draw_at_size(view, title, lines, size).unwrap_or_default())
}

fn draw_at_size(
    view: &ReportView<'_>,
    title: &str,
    lines: &[CdfLine<'_>],
    size: ChartSize,
) -> Option<String> {
    let height = 340.0;
    let plot = Area { left: 58.0, top: 30.0, right: size.width() - 14.0, bottom: height - 42.0 };
    let most = lines.iter().map(|line| line.times.count()).max()?;
    let shares: Vec<(f64, &str)> =
        SHARES.into_iter().filter(|(share, _)| (1.0 - share) * most as f64 >= 1.0).collect();
    let top_share = shares.last()?.0;
    let quantiles = |share: f64| lines.iter().filter_map(move |line| line.times.quantile(share));
    let low = quantiles(SHARES[0].0).min()?.as_ns().max(1) as f64;
    let high = (quantiles(top_share).max()?.as_ns() as f64).max(low * 1.2);
    let axis = Axis::with_log_scale(low, high, if size == ChartSize::Wide { 7 } else { 5 });
    let (bottom, top) = (logit(SHARES[0].0), logit(top_share));
    let at = |time: Nanos, share: f64| {
        Point::new(
            plot.left + plot.width() * axis.to_fraction(time.as_ns() as f64),
            plot.bottom - plot.height() * (logit(share) - bottom) / (top - bottom),
        )
    };

    let mut svg = Svg::new(size, height, title);
    let levels: Vec<f64> = shares.iter().map(|(share, _)| at(Nanos::ZERO, *share).y).collect();
    let (divisor, unit) = if high < SECONDS_FROM_NS { (1e3, "us") } else { (1e9, "s") };
    let y = format!("logit {} {top_share} 0.01%", SHARES[0].0);
    svg.set_plot(&PlotAttributes {
        area: plot,
        x: axis.format_for_script(divisor, unit),
        y: Some(y),
    });
    let ticks = axis.tick_labels(divisor);
    let uprights: Vec<f64> =
        ticks.iter().map(|(tick, _)| plot.left + plot.width() * axis.to_fraction(*tick)).collect();
    svg.add_grid(plot, &uprights, &levels);
    for ((_, label), y) in shares.iter().zip(levels) {
        svg.add_text(Point::new(plot.left - 7.0, y + 4.0), TextAnchor::End, "tick y", label);
    }
    let labels: Vec<(f64, String)> =
        uprights.into_iter().zip(ticks.into_iter().map(|(_, label)| label)).collect();
    svg.labels_below(plot.bottom + 16.0, (plot.left, size.width()), &labels);
    svg.add_text(
        Point::new(4.0, 16.0),
        TextAnchor::Start,
        "title",
        &fit_text(title, TITLE_SIZE, size.width()),
    );
    let title = format!("round-trip time [{unit}], logarithmic");
    svg.add_text(Point::new(plot.right, plot.bottom + 36.0), TextAnchor::End, "title", &title);

    let drawn: Vec<Vec<Point>> =
        lines.iter().map(|line| build_curve_points(line.times, top_share, at)).collect();
    let mut labels = LabelPlacer::new(plot);
    for point in drawn.iter().flatten() {
        labels.avoid_mark(*point, 1.0);
    }
    // The recommended line is placed first, so that it always has a name.
    let mut order: Vec<(&CdfLine<'_>, &Vec<Point>)> = lines.iter().zip(&drawn).collect();
    order.sort_by_key(|(line, _)| !view.is_recommended(line.setting));
    for (line, points) in order {
        let tip = view.full_label(line.setting);
        svg.add_group(&setting_class(line.setting), &tip, |svg| {
            svg.add_polyline(
                points,
                if view.is_recommended(line.setting) { "line chosen" } else { "line" },
            );
            let places: Vec<Point> = NAME_SHARES
                .into_iter()
                .filter(|share| *share <= top_share)
                .filter_map(|share| Some(at(line.times.quantile(share)?, share)))
                .collect();
            let is_led = size == ChartSize::Wide && lines.len() <= MOST_LED;
            name_curve(svg, &mut labels, view.short_label(line.setting), &places, is_led);
        });
    }
    Some(svg.finish())
}

/// Writes a curve's name beside one of its places, or, if it may be led there, farther away with a line.
fn name_curve(svg: &mut Svg, labels: &mut LabelPlacer, text: &str, places: &[Point], is_led: bool) {
    if places.iter().any(|beside| labels.place_beside(svg, *beside, text)) || !is_led {
        return;
    }
    let name = LabelSpec { text, class: "name", gap: 9.0 };
    let _is_named = places.iter().any(|at| labels.place_label(svg, *at, name));
}

/// The distribution's steps as a line, without points that are too close to distinguish.
fn build_curve_points(
    times: &Histogram,
    top_share: f64,
    at: impl Fn(Nanos, f64) -> Point,
) -> Vec<Point> {
    let total = times.count() as f64;
    let mut points: Vec<Point> = Vec::new();
    let mut seen = 0;
    let mut last = None;
    for (time, count) in times.buckets() {
        seen += count;
        let share = seen as f64 / total;
        if share < SHARES[0].0 {
            continue;
        }
        let point = at(time, share.min(top_share));
        let is_apart = points.last().is_none_or(|last: &Point| {
            (last.x - point.x).abs() + (last.y - point.y).abs() >= RESOLUTION
        });
        last = Some(point);
        if is_apart {
            points.push(point);
        }
        if share >= top_share {
            break;
        }
    }
    if let (Some(end), Some(kept)) = (last, points.last())
        && end != *kept
    {
        points.push(end);
    }
    points
}

fn logit(share: f64) -> f64 {
    (share / (1.0 - share)).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rises_and_stays_short() {
        let mut times = Histogram::new();
        for ns in (1_000..200_000).step_by(7) {
            times.record(Nanos::from_ns(ns));
        }
        let at = |time: Nanos, share: f64| Point::new(time.as_us_f64(), -share * 300.0);
        let points = build_curve_points(&times, 0.9999, at);
        assert!((50..=320).contains(&points.len()), "{} points", points.len());
        assert!(points.windows(2).all(|pair| pair[0].x <= pair[1].x && pair[0].y >= pair[1].y));
    }
}
