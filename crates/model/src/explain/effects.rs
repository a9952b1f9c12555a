//! Savings of a change of a knob, by the cost model.

use std::collections::BTreeMap;

use latput_stats::order;
use latput_trial::observation::Role;
use latput_trial::{Results, Traffic};

use crate::fit::{CellFigures, CostModel, CostTerm, TermCost, collect_host_cells};

/// The predicted effect of a knob on the CPU time of the system under test: with half as many of what it makes fewer.
#[derive(Clone, Debug, PartialEq)]
pub struct KnobEffect {
    /// Index into the workloads.
    pub workload: usize,
    /// The event that there would be half as many of.
    pub term: CostTerm,
    /// The change, in words.
    pub change: &'static str,
    /// CPU time saved, as a share: median over settings.
    pub saved_ratio: f64,
    /// Lower end of its interval.
    pub saved_ratio_low: f64,
    /// Upper end of its interval.
    pub saved_ratio_high: f64,
}

/// Half as many save at most this share.
const MOST_SAVED: f64 = 0.5;
/// A change that saves less is no news.
const LEAST_SAVED: f64 = 0.01;

/// Whether a workload has fewer of an event under another setting. One request in flight needs its interrupt, and a small
/// request its packet.
fn can_be_fewer(traffic: &Traffic, term: CostTerm) -> bool {
    let is_single = traffic.with_one_request().as_ref() == Some(traffic);
    let is_packet = matches!(term, CostTerm::PacketReceived | CostTerm::PacketSent);
    !(is_single || is_packet && traffic.is_transactional())
}

/// The effects that a model of the system under test predicts, by workload. Empty where no model predicts settings that
/// were left out of it.
pub fn predict_effects(results: &Results, models: &[CostModel]) -> Vec<KnobEffect> {
    let mut cells: BTreeMap<usize, Vec<(CellFigures, &CostModel)>> = BTreeMap::new();
    for (host, figures) in collect_host_cells(results) {
        let of_host = |model: &&CostModel| model.hosts.contains(&host) && model.is_predictive();
        if let (Role::Sut, Some(model)) = (host.role, models.iter().find(of_host)) {
            cells.entry(figures.workload).or_default().push((figures, model));
        }
    }
    let mut effects = Vec::new();
    for (workload, cells) in cells {
        for term in CostTerm::ALL {
            let can_be_fewer = can_be_fewer(&results.workloads[workload].traffic, term);
            let Some(change) = term.moved_by().filter(|_| can_be_fewer) else { continue };
            let saved = |cost: fn(&TermCost) -> f64| {
                let shares = cells.iter().filter_map(|(figures, model)| {
                    let count = figures.counts[term as usize]?;
                    Some(cost(&model.cost(term)?) * count / figures.busy)
                });
                Some((0.5 * order::middle(shares)?).clamp(0.0, MOST_SAVED))
            };
            let known = saved(|cost| cost.ns).zip(saved(|cost| cost.ns_low));
            let Some(((saved_ratio, saved_ratio_low), saved_ratio_high)) =
                known.zip(saved(|cost| cost.ns_high))
            else {
                continue;
            };
            if saved_ratio < LEAST_SAVED {
                continue;
            }
            effects.push(KnobEffect {
                workload,
                term,
                change,
                saved_ratio,
                saved_ratio_low,
                saved_ratio_high,
            });
        }
    }
    effects
}
