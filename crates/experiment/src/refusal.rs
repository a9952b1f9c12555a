//! Settings that a plan names and no host should be given.

use std::collections::BTreeMap;

use latput_model::search::of_plan::PlanSearch;
use latput_trial::Plan;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Design;
use latput_trial::results::LabelledSetting;

use crate::error::Error;

/// The settings that would overrun a receive ring, each with the arithmetic. A plan that names
/// one is refused; a search goes without.
pub(crate) fn refusals(
    plan: &Plan,
    sides: &[ReceiveSide],
) -> Result<BTreeMap<usize, String>, Error> {
    let settings = plan.settings();
    // What the system under test receives says more than what comes back.
    let mut sides: Vec<&ReceiveSide> = sides.iter().collect();
    sides.sort_by_key(|side| side.role);
    let overrun = |setting: &LabelledSetting| {
        sides.iter().find_map(|side| side.overrun(setting, &plan.workloads))
    };
    let refused: BTreeMap<usize, String> =
        settings.iter().enumerate().filter_map(|(idx, set)| Some((idx, overrun(set)?))).collect();
    let named = match plan.method.design.unwrap_or_default() {
        Design::Blocks | Design::Slices => refused.first_key_value(),
        // The setting that all others are compared to must be run.
        Design::Search => refused.get_key_value(&0),
    };
    match named {
        None if plan.method.design == Some(Design::Search) => {
            plan_search(plan, &refused).map(|_| refused)
        }
        None => Ok(refused),
        Some((idx, why)) => {
            Err(Error::Overrun { setting: settings[*idx].label.clone(), problem: why.clone() })
        }
    }
}

/// The search of a plan without what is refused; where that leaves nothing to choose from, the first
/// refusal says why.
pub(crate) fn plan_search(
    plan: &Plan,
    refused: &BTreeMap<usize, String>,
) -> Result<PlanSearch, Error> {
    PlanSearch::new(plan, refused.keys().copied().collect()).map_err(|problem| {
        let first = refused.values().next().map(|why| format!("; the first: {why}"));
        Error::Search { problem: problem + &first.unwrap_or_default() }
    })
}
