//! The plan that compares the winner of a run with today's setting on other pairs of hosts.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting, Value};
use latput_trial::Results;
use latput_trial::observation::Role;
use latput_trial::plan::{Design, Factor, KnobOnRole, Method, OnUnsupported, Plan};
use latput_units::IntoSet;

use crate::search::of_plan::FEWEST_CONFIRMATIONS;

/// The plan of a run with one of its settings alone: today's values are its first setting on any host. It has as many
/// repetitions as a search confirms its winner with, or the plan's if they are more; no budget, and no leave to reset links.
///
/// # Errors
///
/// Why the setting cannot be compared, with the remedy.
pub fn confirming_plan(plan: &Plan, results: &Results, setting: usize) -> Result<Plan, String> {
    let runs_programs = results.workloads.iter().any(|load| load.program.is_some());
    if runs_programs || plan.runs_programs() {
        let why = "it measured a command, and a results file does not hold commands: run its plan on each pair \
                   (`latput run`), then `latput fleet pairs`";
        return Err(why.to_owned());
    }
    if plan.live().is_some() || results.workloads.iter().any(|load| load.live.is_some()) {
        return Err("it measured live traffic, which has no pair of hosts".to_owned());
    }
    if results.goal.is_none() {
        return Err(
            "it has no goal, so no setting can be better: give the plan a `goal`".to_owned()
        );
    }
    let is_kept =
        |known: &Plan| results.workloads.iter().all(|load| known.workloads.contains(load));
    if !is_kept(plan) || results.workloads.is_empty() {
        return Err("its workloads differ from those of its plan".to_owned());
    }
    let labelled = results.settings.get(setting).ok_or("it has no such setting")?;
    if setting == 0 {
        let why = "is the setting of comparison: name another with --setting";
        return Err(format!("setting `{}` {why}", labelled.label));
    }
    let factors = build_factors(&labelled.by_role);
    if factors.is_empty() {
        return Err(format!("setting `{}` changes no knob", labelled.label));
    }
    let mut reduced = Plan {
        name: plan.name.clone(),
        goal: results.goal.clone(),
        factors,
        workloads: results.workloads.clone(),
        method: reduce_method(plan, results)?,
    };
    let in_turns = plan.method.design.is_none_or(|design| design == Design::Slices);
    let design = if in_turns && reduced.may_take_turns() { Design::Slices } else { Design::Blocks };
    reduced.method.design = Some(design);
    Ok(reduced)
}

fn reduce_method(plan: &Plan, results: &Results) -> Result<Method, String> {
    let (confidence, half_width) = (results.confidence, results.half_width);
    if !(confidence > 0.0 && confidence < 1.0 && half_width > 0.0 && half_width < 1.0) {
        return Err("its confidence or its half width is invalid".to_owned());
    }
    let repetitions_min = plan.method.repetitions_min.max(FEWEST_CONFIRMATIONS);
    Ok(Method {
        on_unsupported: OnUnsupported::Refuse,
        repetitions_min,
        repetitions_max: plan.method.repetitions_max.max(repetitions_min),
        confidence,
        half_width,
        budget: None,
        allow_link_reset: false,
        ..plan.method
    })
}

/// A factor of one level for each knob; one for both roles where they have the same value.
fn build_factors(by_role: &BTreeMap<Role, Setting>) -> Vec<Factor> {
    let knobs: BTreeSet<Knob> = by_role.values().flat_map(BTreeMap::keys).copied().into_set();
    let of = |role, knob: Knob| by_role.get(&role).and_then(|set| set.get(&knob));
    let one = |role, knob, value: &Value| Factor {
        targets: vec![KnobOnRole { role, knob }],
        levels: vec![vec![value.clone()]],
    };
    let mut factors = Vec::new();
    for knob in knobs {
        let roles = [Role::Sut, Role::Generator];
        match roles.map(|role| of(role, knob)) {
            [Some(value), Some(other)] if value == other => factors.push(one(None, knob, value)),
            values => {
                let each = roles.into_iter().zip(values);
                factors
                    .extend(each.filter_map(|(role, value)| Some(one(Some(role), knob, value?))));
            }
        }
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{SyntheticFigures, build_results, rr_workload};

    const PLAN: &str = r#"
        schema = 1
        goal = "maximize transactions_per_s"
        [factors]
        "sut.txqueuelen" = [100, 200]
        mtu = [1400, 1500]
        [[workload]]
        kind = "tcp_rr"
        [method]
        repetitions = { min = 3, max = 4 }
        budget = "10s"
        allow_link_reset = true
        on_unsupported = "skip"
    "#;

    /// The plan and a run of it, without trials.
    fn run(text: &str) -> (Plan, Results) {
        let plan = Plan::parse("plan.toml", text).unwrap();
        let settings = plan.settings();
        let labels: Vec<&str> = settings.iter().map(|it| it.label.as_str()).collect();
        let mut found =
            build_results(&labels, &[rr_workload("rr")], 1, |_, _| SyntheticFigures::default());
        found.goal = plan.goal.clone();
        found.workloads = plan.workloads.clone();
        found.settings = settings;
        (found.confidence, found.half_width) = (0.95, 0.07);
        (plan, found)
    }

    #[test]
    fn one_setting_remains_with_fresh_runs() {
        let (plan, found) = run(PLAN);
        assert_eq!(found.settings[3].label, "mtu=1500 sut.txqueuelen=200");
        let reduced = confirming_plan(&plan, &found, 3).unwrap();
        let settings = reduced.settings();
        assert_eq!((settings.len(), &settings[0].by_role), (1, &found.settings[3].by_role));
        let method = reduced.method;
        assert_eq!((method.repetitions_min, method.repetitions_max), (6, 6));
        assert_eq!((method.budget, method.allow_link_reset), (None, false));
        let of_results = [(method.confidence, 0.95), (method.half_width, 0.07)];
        assert!(of_results.iter().all(|(found, kept)| (found - kept).abs() < 1e-12), "{method:?}");
        assert_eq!(method.on_unsupported, OnUnsupported::Refuse, "whatever the plan says");
        assert_eq!((method.design, reduced.goal), (Some(Design::Blocks), plan.goal.clone()));
        let more = PLAN.replace("min = 3, max = 4", "min = 8, max = 20");
        let (plan, found) = run(&more);
        let method = confirming_plan(&plan, &found, 1).unwrap().method;
        assert_eq!((method.repetitions_min, method.repetitions_max), (8, 20));
    }

    #[test]
    fn alternating_settings_do_unless_planned_apart() {
        let cheap = PLAN
            .replace("mtu = [1400, 1500]", "")
            .replace("\"sut.txqueuelen\"", "gro-flush-timeout");
        let cheap = cheap.replace("[100, 200]", "[\"0us\", \"20us\"]");
        for (design, expected) in [
            ("", Design::Slices),
            ("design = \"slices\"", Design::Slices),
            ("design = \"blocks\"", Design::Blocks),
            ("design = \"search\"", Design::Blocks),
        ] {
            let (plan, found) = run(&format!("{cheap}\n{design}"));
            let reduced = confirming_plan(&plan, &found, 1).unwrap();
            assert_eq!(reduced.method.design, Some(expected), "{design}");
        }
    }

    #[test]
    fn incomparable_pairs_are_refused_with_reason() {
        let (plan, good) = run(PLAN);
        let refused = |plan: &Plan, found: &Results, setting, words: &str| {
            let why = confirming_plan(plan, found, setting).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        refused(&plan, &good, 0, "the setting of comparison");
        refused(&plan, &good, 9, "no such setting");
        refused(&plan, &Results { goal: None, ..good.clone() }, 1, "no goal");
        refused(
            &plan,
            &Results { workloads: vec![rr_workload("other")], ..good.clone() },
            1,
            "workloads",
        );
        refused(&plan, &Results { workloads: Vec::new(), ..good.clone() }, 1, "workloads");
        for confidence in [0.0, 1.0, f64::NAN] {
            refused(&plan, &Results { confidence, ..good.clone() }, 1, "invalid");
        }
        let mut empty = good.clone();
        empty.settings[1].by_role.clear();
        refused(&plan, &empty, 1, "changes no knob");
        let program = "schema = 1\ngoal = \"latency\"\n[factors]\nmtu = [1400, 1500]\n[[workload]]\nkind = \"command\"\n\
                       command = \"redis-benchmark -t get --csv\"\n";
        let (plan, found) = run(program);
        refused(&plan, &found, 1, "it measured a command");
    }
}
