//! Where the time goes: for each setting a bar of the parts of a transaction's time, or of a kilobyte's.

use latput_model::explain::CellExplanation;
use latput_model::stage::PathStage;
use latput_trial::metric::Scale;

use super::axis::Axis;
use super::rows::RowLayout;
use super::svg::{Area, Point, Svg, TextAnchor};
use super::{ChartSize, draw_all_sizes};
use crate::view::ReportView;

/// Height of the bar below for what runs beside, in pixels.
const BESIDE_HEIGHT: f64 = 3.0;

/// The bars of one workload, for those of `cells` that are its; empty where none has a time.
pub(crate) fn draw_parts_chart(
    view: &ReportView<'_>,
    cells: &[CellExplanation],
    workload: usize,
) -> String {
    let mut own: Vec<(&CellExplanation, f64)> = cells
        .iter()
        .filter(|cell| cell.workload == workload)
        .filter_map(|cell| Some((cell, cell.whole_ns?)))
        .collect();
    own.sort_by_key(|(cell, _)| cell.setting);
    draw_all_sizes(|size| draw_parts(view, &own, workload, size).unwrap_or_default())
}

fn draw_parts(
    view: &ReportView<'_>,
    cells: &[(&CellExplanation, f64)],
    workload: usize,
    size: ChartSize,
) -> Option<String> {
    let longest = cells.iter().map(|(cell, whole)| whole.max(cell.beside_ns));
    let axis = Axis::from_zero(longest.clone(), if size == ChartSize::Wide { 5 } else { 4 })?;
    let scale = Scale::of_time(longest.fold(0.0, f64::max));
    let values: Vec<String> = cells.iter().map(|(_, whole)| scale.number(*whole)).collect();
    let settings: Vec<usize> = cells.iter().map(|(cell, _)| cell.setting).collect();
    let rows = RowLayout::new(view, size, &settings, vec![""], &values);
    let title = format!("{}: parts of the time", view.workload_name(workload));
    let mut svg = Svg::new(size, rows.height(), &title);
    rows.draw_frame(&mut svg, &title, &axis, scale.divisor, scale.unit);
    for (row, ((cell, whole), value)) in cells.iter().zip(&values).enumerate() {
        svg.add_group(&format!("row s{}", cell.setting), "", |svg| {
            rows.draw_label(svg, view, row, cell.setting);
            let middle = rows.line_middle(row, 0);
            let setting = view.full_label(cell.setting);
            let mut bar = |class: &str, (from, to): (f64, f64), (top, bottom): (f64, f64)| {
                let (left, right) = (rows.x_position(&axis, from), rows.x_position(&axis, to));
                let area = Area { left, top: middle + top, right, bottom: middle + bottom };
                let tip = format!("{setting}: {class} {}", scale.with_unit(to - from));
                svg.add_rect(area, class, &tip);
            };
            let mut sum = 0.0;
            for part in &cell.parts {
                bar(part.stage.name(), (sum, sum + part.ns), (-5.5, 5.5));
                sum += part.ns;
            }
            if cell.beside_ns > 0.0 {
                bar("beside", (0.0, cell.beside_ns), (6.5, 6.5 + BESIDE_HEIGHT));
            }
            let end = rows.x_position(&axis, whole.max(cell.beside_ns));
            let at = Point::new(end + 6.0, middle + 4.0);
            svg.add_text(at, TextAnchor::Start, "value", value);
        });
    }
    Some(svg.finish())
}

/// The names of the stages that some of `cells` has, for the legend.
pub(crate) fn list_stages(cells: &[CellExplanation]) -> Vec<&'static str> {
    let has = |stage: &PathStage| {
        cells.iter().any(|cell| cell.parts.iter().any(|part| part.stage == *stage))
    };
    let stages = PathStage::ALL.into_iter().filter(has).map(PathStage::name);
    let has_beside = cells.iter().any(|cell| cell.beside_ns > 0.0);
    stages.chain(has_beside.then_some("beside")).collect()
}
