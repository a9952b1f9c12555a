//! Refuses settings that would lose packets.

use std::collections::BTreeMap;

use latput_model::search::of_plan::PlanSearch;
use latput_runner::Error;
use latput_trial::Plan;
use latput_trial::overrun::ReceiveSide;
use latput_trial::plan::Design;
use latput_trial::results::LabelledSetting;
use latput_units::{IntoMap, IntoSet};

/// The settings of a plan that are refused, by their index, with the reason.
pub(crate) type RefusedSettings = BTreeMap<usize, String>;

/// The settings of the plan that would overrun a receive ring, each with the arithmetic. A plan with one
/// is refused; a search leaves them out. `today` is what the hosts have, if that is known: it is run in any case.
pub(crate) fn find_refused_settings(
    plan: &Plan,
    sides: &[ReceiveSide],
    today: Option<&LabelledSetting>,
) -> Result<BTreeMap<usize, String>, Error> {
    let settings = plan.settings();
    // The receive side of the system under test comes first.
    let mut sides: Vec<&ReceiveSide> = sides.iter().collect();
    sides.sort_by_key(|side| side.role);
    let overrun = |setting: &LabelledSetting| {
        sides.iter().find_map(|side| side.overrun(setting, &plan.workloads))
    };
    let refused: BTreeMap<usize, String> = settings
        .iter()
        .enumerate()
        .filter(|(_, set)| today != Some(set))
        .filter_map(|(idx, set)| Some((idx, overrun(set)?)))
        .into_map();
    let named = match plan.method.design.unwrap_or_default() {
        Design::Blocks | Design::Slices => refused.first_key_value(),
        // The setting that others are compared with must be run.
        Design::Search if today.is_none() => refused.get_key_value(&0),
        Design::Search => None,
    };
    match named {
        None if plan.method.design == Some(Design::Search) => {
            plan_search(plan, today, &refused).map(|_| refused)
        }
        None => Ok(refused),
        Some((idx, why)) => {
            Err(Error::Overrun { setting: settings[*idx].label.clone(), problem: why.clone() })
        }
    }
}

/// The search of a plan without its refused settings. If too few are left to choose from, the error
/// is the first refusal.
pub(crate) fn plan_search(
    plan: &Plan,
    today: Option<&LabelledSetting>,
    refused: &BTreeMap<usize, String>,
) -> Result<PlanSearch, Error> {
    PlanSearch::new(plan, today, refused.keys().copied().into_set()).map_err(|problem| {
        let first = refused.values().next().map(|why| format!("; the first: {why}"));
        Error::Search { problem: problem + &first.unwrap_or_default() }
    })
}
