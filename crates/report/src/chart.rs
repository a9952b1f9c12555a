//! Pictures as SVG text, drawn for a wide and for a narrow screen; colours come from the page's style
//! sheet, so that one picture serves light, dark and paper.

pub(crate) mod axis;
pub(crate) mod cdf;
pub(crate) mod cpu;
pub(crate) mod label;
pub(crate) mod parts;
pub(crate) mod predicted;
mod rows;
pub(crate) mod series;
pub(crate) mod svg;
pub(crate) mod tradeoff;

/// The screen that a picture is drawn for. Text keeps its size, so a phone gets its own drawing
/// instead of a shrunken one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChartSize {
    /// A desktop, or paper.
    Wide,
    /// A phone: 360 pixels.
    Narrow,
}

impl ChartSize {
    pub(crate) const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    pub(crate) const fn width(self) -> f64 {
        match self {
            Self::Wide => 620.0,
            Self::Narrow => 350.0,
        }
    }

    /// The class by which the style sheet shows one of the two.
    pub(crate) const fn css_class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// The drawing for each size, one after the other.
pub(crate) fn draw_all_sizes(draw: impl Fn(ChartSize) -> String) -> String {
    ChartSize::ALL.map(draw).concat()
}

/// Colours of the style sheet for settings. Further settings have dashed lines and hollow marks.
const COLOURS: usize = 8;

/// The classes of a setting's marks: its colour, and a handle for highlighting.
pub(crate) fn setting_class(setting: usize) -> String {
    let dashed = if setting / COLOURS % 2 == 1 { " dashed" } else { "" };
    format!("s{} k{}{dashed}", setting, setting % COLOURS)
}
