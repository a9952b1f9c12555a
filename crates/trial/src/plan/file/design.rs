//! Conditions of a plan: those of its design, and those without which its knobs do not act.

use latput_knobs::{Knob, Tier, Value};
use latput_units::Nanos;
use latput_units::text::format_count;

use crate::plan::{MAX_SEARCHED, Plan};
use crate::workload::Workload;

/// Refuses suspended interrupts where no workload makes them act: the kernel suspends them while an application polls by epoll and
/// prefers that (`napi_suspend_irqs`, net/core/dev.c, Linux 6.13). Programs and live traffic may do so by themselves.
pub(super) fn check_suspension(plan: &Plan) -> Result<(), String> {
    let suspends = plan.factors.iter().any(|factor| {
        let targets = factor.targets.iter().enumerate();
        let mut places = targets.filter(|(_, target)| target.knob == Knob::IrqSuspendTimeout);
        places.any(|(idx, _)| {
            factor.levels.iter().any(|level| level.get(idx) != Some(&Value::Time(Nanos::ZERO)))
        })
    });
    let acts = |load: &Workload| {
        let polls = load.sockets.epoll_busy_poll.is_some_and(|polling| polling.prefers);
        // The simulator's threads poll by their sockets.
        let polls = polls || load.sockets.prefer_busy_poll;
        polls || load.program.is_some() || load.live.is_some()
    };
    if suspends && !plan.workloads.iter().any(acts) {
        return Err("no workload makes `irq-suspend-timeout` act: add a TCP workload with `epoll_busy_poll = \"64us\"` and \
                    `epoll_prefer_busy_poll = true`, or a command that polls so"
            .to_owned());
    }
    Ok(())
}

/// Refuses slices unless there are several settings and no change of theirs disturbs traffic.
pub(super) fn check_slices(plan: &Plan) -> Result<(), String> {
    if plan.is_cheap_to_change() {
        return Ok(());
    }
    let targets = plan.factors.iter().flat_map(|factor| &factor.targets);
    let mut disturbing = targets.map(|target| target.knob);
    let why = match disturbing.find(|knob| knob.spec().tier != Tier::Hitless) {
        Some(knob) => format!("a change of `{knob}` disturbs traffic"),
        None if plan.combinations() < 2 => "the plan has one setting".to_owned(),
        None if plan.programs().next().is_some() => {
            "a command cannot be cut into slices".to_owned()
        }
        None => "a workload with a `count` has no fixed length".to_owned(),
    };
    Err(format!("slices are not possible: {why}; use `design = \"blocks\"`"))
}

/// Refuses a search without a goal, or without several settings.
pub(super) fn check_search(plan: &Plan) -> Result<(), String> {
    let settings = plan.combinations();
    if plan.goal.is_none() {
        return Err("a search needs a `goal`, such as `goal = \"balanced\"`".to_owned());
    }
    if !(2..=MAX_SEARCHED).contains(&settings) {
        let made = format_count(settings, "setting");
        return Err(format!("the factors make {made}; a search chooses among 2 to {MAX_SEARCHED}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspension_needs_a_workload_that_polls() {
        let plan = |level: &str, workload: &str| {
            let text = format!(
                "schema = 1\n[factors]\n\"irq-suspend-timeout\" = [{level}]\n[[workload]]\n{workload}\n"
            );
            Plan::parse("plan.toml", &text).map(drop).map_err(|error| error.problem)
        };
        let polls = "kind = \"tcp_rr\"\nepoll_busy_poll = \"64us\"\n";
        let refused = plan("\"0us\", \"20ms\"", "kind = \"tcp_rr\"").unwrap_err();
        assert!(refused.contains("epoll_prefer_busy_poll"), "{refused}");
        assert!(plan("\"20ms\"", polls).is_err());
        assert_eq!(plan("\"20ms\"", &format!("{polls}epoll_prefer_busy_poll = true")), Ok(()));
        assert_eq!(plan("\"0us\"", "kind = \"tcp_rr\""), Ok(()));
    }
}
