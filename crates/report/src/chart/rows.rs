//! The layout of pictures with a row for each setting.

use super::ChartSize;
use super::axis::Axis;
use super::svg::{
    Area, Point, Svg, TITLE_SIZE, TextAnchor, fit_text, max_tick_width, text_width, tick_width,
};
use crate::view::ReportView;

const FONT_SIZE: f64 = 12.0;

/// The layout of a picture of rows: a setting for each row, some lines in it.
pub(super) struct RowLayout {
    size: ChartSize,
    pub(super) plot: Area,
    row_height: f64,
    /// The names of the lines of a row; empty names are not written.
    lines: Vec<&'static str>,
}

impl RowLayout {
    /// Height of one line of a row, in pixels.
    const LINE: f64 = 15.0;

    /// `values` are the texts right of bars and whiskers.
    pub(super) fn new(
        view: &ReportView<'_>,
        size: ChartSize,
        settings: &[usize],
        lines: Vec<&'static str>,
        values: &[String],
    ) -> Self {
        let names = settings.iter().map(|it| text_width(view.short_label(*it), FONT_SIZE));
        let lines_height = Self::LINE * lines.len() as f64;
        // On a phone the label is above its bars, not beside them.
        let (left, row_height) = match size {
            ChartSize::Wide => {
                ((names.fold(0.0, f64::max) + 46.0).clamp(90.0, 240.0), 10.0 + lines_height)
            }
            ChartSize::Narrow => (34.0, 26.0 + lines_height),
        };
        let bottom = 26.0 + row_height * settings.len() as f64;
        let values = max_tick_width(values.iter().map(String::as_str));
        let right = size.width() - (values + 14.0).max(88.0);
        let plot = Area { left, top: 26.0, right, bottom };
        Self { size, plot, row_height, lines }
    }

    pub(super) fn height(&self) -> f64 {
        self.plot.bottom + 22.0
    }

    /// The middle of one line.
    pub(super) fn line_middle(&self, row: usize, line: usize) -> f64 {
        let before = if self.size == ChartSize::Wide { 12.5 } else { 26.0 };
        self.plot.top + self.row_height * row as f64 + before + Self::LINE * line as f64
    }

    pub(super) fn x_position(&self, axis: &Axis, value: f64) -> f64 {
        self.plot.left + self.plot.width() * axis.to_fraction(value)
    }

    pub(super) fn draw_frame(
        &self,
        svg: &mut Svg,
        title: &str,
        axis: &Axis,
        divisor: f64,
        unit: &str,
    ) {
        let title = fit_text(title, TITLE_SIZE, self.size.width());
        svg.add_text(Point::new(4.0, 14.0), TextAnchor::Start, "title", &title);
        let ticks = axis.tick_labels(divisor);
        let uprights: Vec<f64> =
            ticks.iter().map(|(tick, _)| self.x_position(axis, *tick)).collect();
        svg.add_grid(self.plot, &uprights, &[]);
        let labels: Vec<(f64, String)> =
            uprights.into_iter().zip(ticks.into_iter().map(|(_, label)| label)).collect();
        let end = Point::new(self.size.width() - 4.0, self.plot.bottom + 16.0);
        let room = (0.0, end.x - tick_width(unit) - 6.0);
        svg.labels_below(end.y, room, &labels);
        svg.add_text(end, TextAnchor::End, "tick", unit);
    }

    pub(super) fn draw_label(
        &self,
        svg: &mut Svg,
        view: &ReportView<'_>,
        row: usize,
        setting: usize,
    ) {
        let class = if view.is_recommended(setting) { "name chosen" } else { "name" };
        let top = self.plot.top + self.row_height * row as f64;
        if self.size == ChartSize::Wide {
            let text = fit_text(view.short_label(setting), FONT_SIZE, self.plot.left - 40.0);
            let middle = top + self.row_height / 2.0;
            svg.add_text(
                Point::new(self.plot.left - 34.0, middle + 4.0),
                TextAnchor::End,
                class,
                &text,
            );
        } else {
            let text = fit_text(view.short_label(setting), FONT_SIZE, self.size.width() - 8.0);
            svg.add_text(Point::new(4.0, top + 14.0), TextAnchor::Start, class, &text);
        }
        for (line, name) in self.lines.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let at = Point::new(self.plot.left - 6.0, self.line_middle(row, line) + 4.0);
            svg.add_text(at, TextAnchor::End, "small", name);
        }
    }
}
