//! The trade-off pictures: which pairs of figures are drawn, and which of them is shown first.

use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;
use serde::Serialize;

use crate::chart::tradeoff::{AxisMetric, draw_tradeoff_chart};
use crate::view::ReportView;

/// Approximate number of marks in all trade-off pictures together. One is drawn for every pair of
/// figures, so this limits the size of files with many settings.
const MOST_MARKS: usize = 1200;

/// Proven differences that are alike within this logarithm, 10%, are taken for the same.
const NEARLY_ALIKE: f64 = 0.1;

/// The trade-off pictures and the choices between them.
#[derive(Debug, Default, Serialize)]
pub(super) struct TradeOffs {
    x: Vec<String>,
    y: Vec<String>,
    pub(super) panels: Vec<TradeOffPanel>,
}

#[derive(Debug, Serialize)]
pub(super) struct TradeOffPanel {
    x: usize,
    y: usize,
    svg: String,
}

/// The first picture, for wide and narrow screens.
pub(super) fn first_trade_off(view: &ReportView<'_>) -> Option<String> {
    let panel = trade_offs(view).panels.into_iter().next()?;
    (!panel.svg.is_empty()).then_some(panel.svg)
}

/// Horizontal axes have rates and costs, vertical axes latencies. The first of each makes the first
/// picture. Empty with one setting: it trades nothing.
pub(super) fn trade_offs(view: &ReportView<'_>) -> TradeOffs {
    if view.measured_settings().len() < 2 {
        return TradeOffs::default();
    }
    let (mut x, mut y) = collect_axis_metrics(view);
    lead_with_largest(view, &mut x, &mut y);
    let most = (MOST_MARKS / view.measured_settings().len()).isqrt().clamp(3, 7);
    x.truncate(most);
    y.truncate(most);
    let panels = y.iter().enumerate().flat_map(|(y_idx, &y)| {
        let panel = move |(x_idx, &x): (usize, &AxisMetric)| TradeOffPanel {
            x: x_idx,
            y: y_idx,
            svg: draw_tradeoff_chart(view, x, y),
        };
        x.iter().enumerate().map(panel)
    });
    let panels = panels.collect();
    let names = |choices: &[AxisMetric]| choices.iter().map(|choice| choice.name(view)).collect();
    TradeOffs { x: names(&x), y: names(&y), panels }
}

/// The figures for the horizontal and the vertical axis: bulk goodput and the tail of a single request first.
fn collect_axis_metrics(view: &ReportView<'_>) -> (Vec<AxisMetric>, Vec<AxisMetric>) {
    let mut x = Vec::new();
    let mut y = Vec::new();
    for (workload, _) in view.measured_workloads() {
        let present = view.workload_metrics(workload);
        let choices = |metrics: &[Metric]| -> Vec<AxisMetric> {
            let known = metrics.iter().filter(|metric| present.contains(metric));
            known.map(|&metric| AxisMetric { workload, metric }).collect()
        };
        let own = |better| -> Vec<Metric> {
            let own = view.custom_metrics(workload).into_iter();
            own.filter(|metric| metric.preferred_direction() == better).collect()
        };
        x.extend(choices(&own(PreferredDirection::Higher)));
        y.extend(choices(&own(PreferredDirection::Lower)));
        x.extend(choices(&[view.rate_metric(workload)]));
        y.extend(choices(&[
            Metric::LatencyNsP99,
            Metric::LatencyNsP50,
            Metric::LatencyNsP999,
            Metric::ProbeNsP99,
            Metric::ProbeNsP50,
            Metric::LossRatio,
            Metric::JitterNs,
            Metric::TcpRttNsP99,
            Metric::TcpRttNsP50,
        ]));
    }
    let is_bulk = |choice: &AxisMetric| view.workload_traffic(choice.workload).is_bulk();
    x.sort_by_key(|choice| !is_bulk(choice));
    for (workload, _) in view.measured_workloads() {
        for metric in [Metric::SutServiceDemandUs, Metric::SutPacketCpuNs] {
            if view.workload_metrics(workload).contains(&metric) {
                x.push(AxisMetric { workload, metric });
            }
        }
    }
    (x, y)
}

/// Moves the pair of figures with the largest proven differences to the front, if any is proven. A pair
/// of different workloads goes first: rate and latency of a closed loop are one figure twice. Of pairs that
/// differ by less than [`NEARLY_ALIKE`] the earlier one leads.
fn lead_with_largest(view: &ReportView<'_>, x: &mut [AxisMetric], y: &mut [AxisMetric]) {
    let pairs = (0..x.len()).flat_map(|across| (0..y.len()).map(move |up| (across, up)));
    let (mut best, mut leading) = (None, None);
    for (across, up) in pairs {
        let sizes = [x[across], y[up]].map(|choice| largest_proven(view, choice));
        let (smaller, both) = (sizes[0].min(sizes[1]), sizes[0] + sizes[1]);
        let are_apart = smaller > 0.0 && x[across].workload != y[up].workload;
        let steps = |size: f64| (size / NEARLY_ALIKE).round();
        let score = (are_apart, steps(smaller), steps(both));
        if both > 0.0 && best.is_none_or(|other| score > other) {
            (best, leading) = (Some(score), Some((across, up)));
        }
    }
    if let Some((across, up)) = leading {
        x[..=across].rotate_right(1);
        y[..=up].rotate_right(1);
    }
}

/// The largest proven difference of a figure from the first setting, as a logarithm; 0 if none is proven.
fn largest_proven(view: &ReportView<'_>, choice: AxisMetric) -> f64 {
    let ratios = view.workload_cells(choice.workload).into_iter();
    let ratios = ratios.filter_map(|cell| cell.against_first.get(&choice.metric));
    let proven = ratios.filter(|ratio| ratio.excludes(1.0)).map(|ratio| ratio.value.ln().abs());
    proven.filter(|size| size.is_finite()).fold(0.0, f64::max)
}
