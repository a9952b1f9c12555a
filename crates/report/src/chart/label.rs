//! Places names beside points so that no two texts overlap.

use super::svg::{Area, Point, Svg, TextAnchor, text_width};

/// Font size of names in pictures, as of the style sheet's `.name`.
const FONT_SIZE: f64 = 12.0;

/// Places taken in one picture.
#[derive(Debug)]
pub(crate) struct LabelPlacer {
    room: Area,
    marks: Vec<Area>,
    names: Vec<Area>,
    /// The lines to names, as small areas.
    leaders: Vec<Area>,
}

/// A place for a name.
struct LabelPosition {
    /// Where its text begins.
    start: Point,
    area: Area,
    /// The end of the line to it, where it is not beside its point.
    leader: Option<Point>,
}

/// A name to be placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelSpec<'a> {
    pub(crate) text: &'a str,
    pub(crate) class: &'a str,
    /// Least distance from the named point.
    pub(crate) gap: f64,
}

impl LabelPlacer {
    /// Labels stay inside `room`.
    pub(crate) fn new(room: Area) -> Self {
        Self { room, marks: Vec::new(), names: Vec::new(), leaders: Vec::new() }
    }

    /// Keeps labels away from a mark of this radius.
    pub(crate) fn avoid_mark(&mut self, at: Point, radius: f64) {
        self.marks.push(area_around(at, radius));
    }

    /// Writes `text` as near to `at` as there is room, at least `gap` pixels away, with a fine line
    /// to it if it is not beside it. Returns false and writes nothing if there is no room.
    pub(crate) fn place_label(&mut self, svg: &mut Svg, at: Point, name: LabelSpec<'_>) -> bool {
        let spot =
            self.find_position(at, name, true).or_else(|| self.find_position(at, name, false));
        let Some(LabelPosition { start, area, leader }) = spot else { return false };
        if let Some(end) = leader {
            svg.add_line(at, end, "leader");
            self.leaders.extend(sample_segment(at, end));
        }
        svg.add_text(start, TextAnchor::Start, name.class, name.text);
        self.names.push(area);
        true
    }

    /// The nearest place for a name; a `clear` one has no line through it, and its line goes through no name.
    fn find_position(
        &self,
        at: Point,
        LabelSpec { text, gap, .. }: LabelSpec<'_>,
        clear: bool,
    ) -> Option<LabelPosition> {
        let width = text_width(text, FONT_SIZE);
        for distance in DISTANCES.map(|more| gap + more) {
            let between = if distance > gap + LEADER_FROM { &SIDES_BETWEEN[..] } else { &[] };
            for &(side_x, side_y) in SIDES.iter().chain(between) {
                let start = Point::new(
                    at.x + side_x * distance - (1.0 - side_x) / 2.0 * width,
                    at.y + side_y * (distance + if side_x == 0.0 { 3.0 } else { 0.0 }) + 4.0,
                );
                let area = Area {
                    left: start.x - 2.0,
                    top: start.y - FONT_SIZE + 1.0,
                    right: start.x + width + 2.0,
                    bottom: start.y + 3.0,
                };
                let end = Point::new(
                    at.x.clamp(area.left, area.right),
                    at.y.clamp(area.top, area.bottom),
                );
                let leader = (distance > gap + LEADER_FROM).then_some(end);
                let crosses = |end: Point| has_overlap(&self.names, &sample_segment(at, end));
                let is_clear = !has_overlap(&self.leaders, &[area]) && !leader.is_some_and(crosses);
                if self.is_free(&area) && (is_clear || !clear) {
                    return Some(LabelPosition { start, area, leader });
                }
            }
        }
        None
    }

    fn is_free(&self, area: &Area) -> bool {
        let area = std::slice::from_ref(area);
        self.room.contains(&area[0])
            && !has_overlap(&self.marks, area)
            && !has_overlap(&self.names, area)
    }

    /// Writes `text` beside a line at `at`, to the right or the left. Returns false without room.
    pub(crate) fn place_beside(&mut self, svg: &mut Svg, at: Point, text: &str) -> bool {
        let width = text_width(text, FONT_SIZE);
        for (left, baseline) in [(at.x + 6.0, at.y + 10.0), (at.x - 6.0 - width, at.y - 2.0)] {
            let area = Area {
                left: left - 2.0,
                top: baseline - FONT_SIZE + 2.0,
                right: left + width + 2.0,
                bottom: baseline + 3.0,
            };
            if self.is_free(&area) {
                svg.add_text(Point::new(left, baseline), TextAnchor::Start, "name", text);
                self.names.push(area);
                return true;
            }
        }
        false
    }
}

/// Distances beyond the least one that are tried, nearest first.
const DISTANCES: [f64; 10] = [0.0, 7.0, 17.0, 31.0, 49.0, 70.0, 95.0, 125.0, 160.0, 200.0];

/// A name that is farther away than this has a line to its point.
const LEADER_FROM: f64 = 10.0;

/// Sides between those of [`SIDES`], for names with a line.
const SIDES_BETWEEN: [(f64, f64); 8] = [
    (1.0, -0.5),
    (1.0, 0.5),
    (-1.0, -0.5),
    (-1.0, 0.5),
    (0.5, -1.0),
    (-0.5, -1.0),
    (0.5, 1.0),
    (-0.5, 1.0),
];

/// Sides of a point for a label, best first: right, left, above, below, then the corners.
const SIDES: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (1.0, -1.0),
    (1.0, 1.0),
    (-1.0, -1.0),
    (-1.0, 1.0),
];

/// A line as small areas, a few pixels apart.
fn sample_segment(from: Point, to: Point) -> Vec<Area> {
    const EVERY: f64 = 3.0;
    let length = (to.x - from.x).hypot(to.y - from.y);
    let count = (length / EVERY).ceil().max(1.0);
    let mut steps = Vec::new();
    let mut idx = 1.0;
    while idx < count {
        let share = idx / count;
        let at = Point::new(from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share);
        steps.push(area_around(at, 1.0));
        idx += 1.0;
    }
    steps
}

/// Whether any of `areas` overlaps any of `others`.
fn has_overlap(areas: &[Area], others: &[Area]) -> bool {
    areas.iter().any(|area| others.iter().any(|other| area.overlaps(other)))
}

fn area_around(at: Point, radius: f64) -> Area {
    Area { left: at.x - radius, top: at.y - radius, right: at.x + radius, bottom: at.y + radius }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::ChartSize;

    #[test]
    fn labels_of_the_same_point_do_not_overlap() {
        let room = Area { left: 0.0, top: 0.0, right: 400.0, bottom: 300.0 };
        let mut labels = LabelPlacer::new(room);
        let mut svg = Svg::new(ChartSize::Wide, 300.0, "");
        let at = Point::new(200.0, 150.0);
        labels.avoid_mark(at, 5.0);
        let name = LabelSpec { text: "500us", class: "name", gap: 9.0 };
        for _ in 0..12 {
            assert!(labels.place_label(&mut svg, at, name));
        }
        check_apart(&labels);
    }

    #[test]
    fn twelve_points_in_a_corner_all_have_names() {
        for width in [ChartSize::Wide.width(), ChartSize::Narrow.width()] {
            let room = Area { left: 52.0, top: 40.0, right: width - 14.0, bottom: 290.0 };
            let mut labels = LabelPlacer::new(room);
            let mut svg = Svg::new(ChartSize::Wide, 340.0, "");
            let at = |idx: usize| {
                let (column, row) = ((idx % 3) as f64, (idx / 3) as f64);
                Point::new(room.right - 20.0 * column, room.bottom - 18.0 * row)
            };
            (0..12).for_each(|idx| labels.avoid_mark(at(idx), 6.0));
            for idx in 0..12 {
                let name = LabelSpec { text: "9000, 200us", class: "name", gap: 9.0 };
                assert!(labels.place_label(&mut svg, at(idx), name), "{idx} at {width} px");
            }
            check_apart(&labels);
        }
    }

    #[track_caller]
    fn check_apart(labels: &LabelPlacer) {
        for (idx, area) in labels.names.iter().enumerate() {
            assert!(labels.room.contains(area));
            assert!(labels.names[idx + 1..].iter().all(|other| !area.overlaps(other)));
        }
    }

    #[test]
    fn label_without_room_is_left_out() {
        let room = Area { left: 0.0, top: 0.0, right: 20.0, bottom: 20.0 };
        let mut svg = Svg::new(ChartSize::Wide, 20.0, "");
        let name = LabelSpec { text: "a long name", class: "name", gap: 9.0 };
        assert!(!LabelPlacer::new(room).place_label(&mut svg, Point::new(10.0, 10.0), name));
    }
}
