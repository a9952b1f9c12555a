//! A small SVG writer: every text is escaped, every coordinate has one decimal.

use std::fmt::Write;

use super::ChartSize;

/// Mean width of a character of the page's sans-serif font, as a share of its size.
const CHARACTER_WIDTH: f64 = 0.56;

/// Font size by which the width of titles is estimated: 13 in the style sheet, where they are bold.
pub(crate) const TITLE_SIZE: f64 = 15.5;
/// Font size of axis labels, as of the style sheet's `.tick`.
const TICK_SIZE: f64 = 11.0;
/// Width of a digit as a share of the font size, in the widest of the page's fonts. Digits are
/// wider than the mean character, and must stay inside the picture.
const DIGIT_WIDTH: f64 = 0.64;
/// Least gap between labels of one axis.
const TICK_GAP: f64 = 6.0;

/// An SVG picture under construction.
#[derive(Debug)]
pub(crate) struct Svg {
    size: ChartSize,
    height: f64,
    title: String,
    /// Attributes that the script needs for cross-hair and zoom; empty for a picture without.
    plot: String,
    body: String,
}

/// The plot of a picture, for cross-hair and zoom.
#[derive(Clone, Debug)]
pub(crate) struct PlotAttributes {
    pub(crate) area: Area,
    /// The axes as [`Axis::format_for_script`](super::axis::Axis::format_for_script) says; without a vertical one there
    /// are strips.
    pub(crate) x: String,
    pub(crate) y: Option<String>,
}

/// The alignment of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextAnchor {
    Start,
    Middle,
    End,
}

/// A point of a picture, from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// A rectangle of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Point {
    pub(crate) const fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }
}

impl Area {
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }
}

impl Svg {
    /// `title` is for screen readers.
    pub(crate) fn new(size: ChartSize, height: f64, title: &str) -> Self {
        Self { size, height, title: title.to_owned(), plot: String::new(), body: String::new() }
    }

    /// Makes the picture one that can be zoomed.
    pub(crate) fn set_plot(&mut self, plot: &PlotAttributes) {
        let Area { left, top, right, bottom } = plot.area;
        let area = [left, top, right, bottom].map(format_coordinate).join(" ");
        let y = plot
            .y
            .as_ref()
            .map_or_else(String::new, |y| format!(" data-y=\"{}\"", escape_markup(y)));
        let x = escape_markup(&plot.x);
        self.plot = format!(" data-plot=\"{area}\" data-x=\"{x}\"{y}");
    }

    pub(crate) fn add_text(&mut self, at: Point, anchor: TextAnchor, class: &str, text: &str) {
        let anchor = match anchor {
            TextAnchor::Start => "",
            TextAnchor::Middle => " text-anchor=\"middle\"",
            TextAnchor::End => " text-anchor=\"end\"",
        };
        let x = format_coordinate(at.x);
        let y = format_coordinate(at.y);
        let text = escape_markup(text);
        let _ =
            write!(self.body, "<text x=\"{x}\" y=\"{y}\"{anchor} class=\"{class}\">{text}</text>");
    }

    pub(crate) fn add_line(&mut self, from: Point, to: Point, class: &str) {
        let [x1, y1, x2, y2] = [from.x, from.y, to.x, to.y].map(format_coordinate);
        let _ = write!(
            self.body,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" class=\"{class}\"/>"
        );
    }

    /// `tip` is shown when the pointer is on it.
    pub(crate) fn add_rect(&mut self, area: Area, class: &str, tip: &str) {
        let [x, y, width, height] =
            [area.left, area.top, area.width().max(0.0), area.height()].map(format_coordinate);
        let tip = self.tip_element(tip);
        let _ = write!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" class=\"{class}\">{tip}</rect>"
        );
    }

    pub(crate) fn add_circle(&mut self, at: Point, radius: f64, class: &str) {
        let [x, y, radius] = [at.x, at.y, radius].map(format_coordinate);
        let _ =
            write!(self.body, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" class=\"{class}\"/>");
    }

    /// Fine lines across `plot`: vertical ones at `xs`, horizontal ones at `ys`.
    pub(crate) fn add_grid(&mut self, plot: Area, xs: &[f64], ys: &[f64]) {
        let c = format_coordinate;
        let (top, bottom) = (c(plot.top), c(plot.bottom));
        let upright: Vec<String> =
            xs.iter().map(|x| format!("M{} {top}V{bottom}", c(*x))).collect();
        let (left, right) = (c(plot.left), c(plot.right));
        let level: Vec<String> = ys.iter().map(|y| format!("M{left} {}H{right}", c(*y))).collect();
        for (lines, class) in [(upright, "grid-line x"), (level, "grid-line y")] {
            if !lines.is_empty() {
                self.add_path(&lines.concat(), class);
            }
        }
    }

    /// The labels under an axis, each below its `x` and inside `from..to`. A label that would touch
    /// its neighbour is left out; its grid line stays.
    pub(crate) fn labels_below(
        &mut self,
        y: f64,
        (from, to): (f64, f64),
        labels: &[(f64, String)],
    ) {
        let mut taken = f64::NEG_INFINITY;
        for (x, label) in labels {
            let half = tick_width(label) / 2.0;
            let x = x.clamp(from + half, (to - half).max(from + half));
            if x - half < taken || x + half > to {
                continue;
            }
            taken = x + half + TICK_GAP;
            self.add_text(Point::new(x, y), TextAnchor::Middle, "tick x", label);
        }
    }

    pub(crate) fn add_path(&mut self, data: &str, class: &str) {
        let _ = write!(self.body, "<path d=\"{data}\" class=\"{class}\"/>");
    }

    pub(crate) fn add_polyline(&mut self, points: &[Point], class: &str) {
        let points: Vec<String> = points
            .iter()
            .map(|point| format!("{},{}", format_coordinate(point.x), format_coordinate(point.y)))
            .collect();
        let _ = write!(self.body, "<polyline points=\"{}\" class=\"{class}\"/>", points.join(" "));
    }

    /// Groups the elements of `draw` for highlighting. `tip` is shown when the pointer is on any of
    /// them, and may be empty.
    pub(crate) fn add_group(&mut self, class: &str, tip: &str, draw: impl FnOnce(&mut Self)) {
        let tip = self.tip_element(tip);
        let _ = write!(self.body, "<g class=\"{class}\">{tip}");
        draw(self);
        self.body += "</g>";
    }

    /// No pointer rests on a phone or on paper, so the narrow drawing has no tips.
    fn tip_element(&self, tip: &str) -> String {
        if tip.is_empty() || self.size == ChartSize::Narrow {
            return String::new();
        }
        format!("<title>{}</title>", escape_markup(tip))
    }

    pub(crate) fn finish(self) -> String {
        let (width, height) = (self.size.width(), self.height);
        let class = self.size.css_class();
        let title = escape_markup(&self.title);
        format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\"{}>{}</svg>",
            self.plot, self.body
        )
    }
}

/// Estimated width of a text in the page's font.
pub(crate) fn text_width(text: &str, font_size: f64) -> f64 {
    text.chars().count() as f64 * font_size * CHARACTER_WIDTH
}

/// Estimated width of a label of an axis.
pub(crate) fn tick_width(label: &str) -> f64 {
    label.chars().count() as f64 * TICK_SIZE * DIGIT_WIDTH
}

/// Width of the widest of some labels of an axis.
pub(crate) fn max_tick_width<'a>(labels: impl Iterator<Item = &'a str>) -> f64 {
    labels.map(tick_width).fold(0.0, f64::max)
}

/// A text cut to a width, with an ellipsis if it was cut.
pub(crate) fn fit_text(text: &str, font_size: f64, width: f64) -> String {
    if text_width(text, font_size) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if text_width(&kept, font_size) + 2.0 * font_size * CHARACTER_WIDTH > width {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// A number with at most one decimal.
pub(crate) fn format_coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Text escaped for XML and HTML, inside elements and quoted attributes.
pub(crate) fn escape_markup(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_tips_cannot_leave_their_element() {
        let mut svg = Svg::new(ChartSize::Wide, 10.0, "\"><script>");
        svg.add_text(
            Point::new(1.0, 2.0),
            TextAnchor::Start,
            "t",
            "</text><script>alert(1)</script>",
        );
        svg.add_group("g", "</title><script>", |_| ());
        let text = svg.finish();
        assert!(!text.contains("<script"), "{text}");
    }

    #[test]
    fn long_text_is_cut_to_its_width() {
        assert_eq!(fit_text("short", 12.0, 100.0), "short");
        let cut = fit_text("a rather long label", 12.0, 60.0);
        assert!(cut.ends_with('…') && text_width(&cut, 12.0) <= 60.0, "{cut}");
        assert_eq!(fit_text("abc", 12.0, 1.0), "…");
    }

    #[test]
    fn labels_of_an_axis_stay_inside_and_apart() {
        let mut svg = Svg::new(ChartSize::Narrow, 10.0, "");
        let label = |x: f64, text: &str| (x, text.to_owned());
        let labels = [label(5.0, "1"), label(8.0, "hidden"), label(199.0, "100000")];
        svg.labels_below(9.0, (0.0, 200.0), &labels);
        let text = svg.finish();
        assert!(text.contains(">1<") && !text.contains("hidden"), "{text}");
        assert!(text.contains("x=\"178.9\"") && text.contains("100000"), "{text}");
        let mut svg = Svg::new(ChartSize::Narrow, 10.0, "");
        svg.labels_below(9.0, (0.0, 10.0), &[label(5.0, "far too wide")]);
        assert!(!svg.finish().contains("wide<"));
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(format_coordinate(12.0), "12");
        assert_eq!(format_coordinate(12.34), "12.3");
    }
}
