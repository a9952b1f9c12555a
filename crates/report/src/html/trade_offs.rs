//! The trade-off pictures: which pairs of figures are drawn, and which of them is shown first.

use latput_trial::Metric;
use latput_trial::metric::PreferredDirection;
use serde::Serialize;

use crate::chart::tradeoff::{Choice, tradeoff};
use crate::view::{View, rate_metric};

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
    pub(super) panels: Vec<Panel>,
}

#[derive(Debug, Serialize)]
pub(super) struct Panel {
    x: usize,
    y: usize,
    svg: String,
}

/// The first picture, for wide and narrow screens.
pub(super) fn first_trade_off(view: &View<'_>) -> Option<String> {
    let panel = trade_offs(view).panels.into_iter().next()?;
    (!panel.svg.is_empty()).then_some(panel.svg)
}

/// Horizontal axes have rates and costs, vertical axes latencies. The first of each makes the first
/// picture. Empty with one setting: it trades nothing.
pub(super) fn trade_offs(view: &View<'_>) -> TradeOffs {
    if view.settings().len() < 2 {
        return TradeOffs::default();
    }
    let (mut x, mut y) = choices(view);
    lead_with_largest(view, &mut x, &mut y);
    let most = (MOST_MARKS / view.settings().len()).isqrt().clamp(3, 7);
    x.truncate(most);
    y.truncate(most);
    let panels = y.iter().enumerate().flat_map(|(y_idx, &y)| {
        let panel = move |(x_idx, &x): (usize, &Choice)| Panel {
            x: x_idx,
            y: y_idx,
            svg: tradeoff(view, x, y),
        };
        x.iter().enumerate().map(panel)
    });
    let panels = panels.collect();
    let names = |choices: &[Choice]| choices.iter().map(|choice| choice.name(view)).collect();
    TradeOffs { x: names(&x), y: names(&y), panels }
}

/// The figures for the horizontal and the vertical axis: bulk goodput and the tail of a single request first.
fn choices(view: &View<'_>) -> (Vec<Choice>, Vec<Choice>) {
    let mut x = Vec::new();
    let mut y = Vec::new();
    for (workload, described) in view.workloads() {
        let present = view.metrics(workload);
        let choices = |metrics: &[Metric]| -> Vec<Choice> {
            let known = metrics.iter().filter(|metric| present.contains(metric));
            known.map(|&metric| Choice { workload, metric }).collect()
        };
        let own = |better| -> Vec<Metric> {
            let own = view.custom_metrics(workload).into_iter();
            own.filter(|metric| metric.preferred_direction() == better).collect()
        };
        x.extend(choices(&own(PreferredDirection::Higher)));
        y.extend(choices(&own(PreferredDirection::Lower)));
        x.extend(choices(&[rate_metric(&described.traffic)]));
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
    let is_bulk = |choice: &Choice| view.traffic(choice.workload).is_bulk();
    x.sort_by_key(|choice| !is_bulk(choice));
    for (workload, _) in view.workloads() {
        for metric in [Metric::SutServiceDemandUs, Metric::SutPacketCpuNs] {
            if view.metrics(workload).contains(&metric) {
                x.push(Choice { workload, metric });
            }
        }
    }
    (x, y)
}

/// Moves the pair of figures with the largest proven differences to the front, if any is proven. A pair
/// of different workloads goes first: rate and latency of a closed loop are one figure twice. Of pairs that
/// differ by less than [`NEARLY_ALIKE`] the earlier one leads.
fn lead_with_largest(view: &View<'_>, x: &mut [Choice], y: &mut [Choice]) {
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
fn largest_proven(view: &View<'_>, choice: Choice) -> f64 {
    let ratios = view.cells(choice.workload).into_iter();
    let ratios = ratios.filter_map(|cell| cell.against_first.get(&choice.metric));
    let proven = ratios.filter(|ratio| ratio.excludes(1.0)).map(|ratio| ratio.value.ln().abs());
    proven.filter(|size| size.is_finite()).fold(0.0, f64::max)
}
