//! Trials and time of a plan. `--check`, the progress of a run and the test of its budget count here.
//!
//! A trial is one row of the results. In a design of slices each slice is a trial.

use std::collections::BTreeMap;

use latput_model::live::FEWEST;
use latput_model::search::of_plan::PlanSearch;
use latput_protocol::live::Guard;
use latput_runner::Error;
use latput_trial::Plan;
use latput_trial::live::Live;
use latput_trial::plan::Design;
use latput_units::Nanos;

use super::{search_budget, slices, trial_time};
use crate::refusal::plan_search;

/// Trials and time of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRuns {
    /// Number of settings that are run.
    pub settings: u64,
    /// The fewest and the most trials within the budget.
    pub trials: (u64, u64),
    /// About the shortest and the longest time within the budget.
    pub time: (Nanos, Nanos),
    /// The shortest budget with which the run can answer anything.
    pub least_budget: Nanos,
}

impl PlannedRuns {
    /// Of a plan on hosts, before any of them is asked.
    pub fn of_plan(plan: &Plan) -> Result<Self, Error> {
        let usual = if plan.is_cheap_to_change() { Design::Slices } else { Design::Blocks };
        let design = plan.method.design.unwrap_or(usual);
        let settings = plan.combinations();
        if let Some(live) = plan.live() {
            // With today's, which may be none of the plan's.
            return Ok(Self::of_live(plan, live, usize::try_from(settings).unwrap_or(usize::MAX)));
        }
        if design != Design::Search {
            return Ok(Self::of_grid(plan, design, settings, false));
        }
        let search = plan_search(plan, None, &BTreeMap::new())?;
        Ok(Self::of_search(plan, &search, settings, false))
    }

    /// Of a plan whose settings are all run: so many, with today's.
    pub fn of_grid(plan: &Plan, design: Design, settings: u64, is_simulated: bool) -> Self {
        if design == Design::Slices {
            return Self::of_slices(plan, settings);
        }
        let method = &plan.method;
        let block = settings.saturating_mul(plan.workloads.len() as u64);
        let each: Nanos = trial_time(plan, is_simulated).into();
        let trials = |blocks: u32| block.saturating_mul(blocks.into());
        let (fewest, most) = (trials(method.repetitions_min), trials(method.repetitions_max));
        let shortest = each.saturating_mul(fewest);
        let of_budget = |budget: Nanos| budget.as_ns() / each.as_ns().max(1);
        let most = method.budget.map_or(most, |it| most.min(of_budget(it)).max(fewest));
        Self {
            settings,
            trials: (fewest, most),
            time: (shortest, each.saturating_mul(most)),
            least_budget: shortest,
        }
    }

    fn of_slices(plan: &Plan, settings: u64) -> Self {
        let method = &plan.method;
        let workloads = plan.workloads.len() as u64;
        let time =
            |rounds: u32| slices::estimate_rounds_time(rounds, (settings, workloads), method);
        let trials = |rounds: u32| u64::from(rounds).saturating_mul(settings * workloads);
        let (fewest, most) = slices::compute_round_limits(method);
        let least_budget = time(slices::LEAST_ROUNDS.min(most));
        // The rounds that the budget has room for, by halving.
        let within = |rounds: u32| {
            let Some(budget) = method.budget.filter(|budget| time(rounds) > *budget) else {
                return rounds;
            };
            let (mut low, mut high) = (0, rounds);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if time(middle) <= budget { low = middle } else { high = middle }
            }
            low
        };
        let (fewest, most) = (within(fewest), within(most));
        Self {
            settings,
            trials: (trials(fewest), trials(most)),
            time: (time(fewest), time(most)),
            least_budget,
        }
    }

    /// Of a search among so many settings.
    pub(super) fn of_search(
        plan: &Plan,
        search: &PlanSearch,
        settings: u64,
        is_simulated: bool,
    ) -> Self {
        let workloads = plan.workloads.len() as u64;
        let each: Nanos = trial_time(plan, is_simulated).into();
        let confirmed = 2 * u64::from(search.confirmations());
        let explored = search_budget(plan, search, each.as_duration()) as u64;
        let trials = (confirmed * workloads, (explored + confirmed) * workloads);
        let least = (confirmed + search.fewest_budget() as u64) * workloads;
        Self {
            settings,
            trials,
            time: (each.saturating_mul(trials.0), each.saturating_mul(trials.1)),
            least_budget: each.saturating_mul(least),
        }
    }

    /// Of a plan on live traffic with so many settings, with today's. The longest time is until its budget is used up.
    pub fn of_live(plan: &Plan, live: &Live, settings: usize) -> Self {
        let block = super::live::block_length(live);
        let noise = u64::from(super::live::noise_blocks(plan, live));
        if live.observe {
            let time = block.saturating_mul(noise);
            let least_budget = block.saturating_mul(FEWEST as u64);
            return Self { settings: 1, trials: (noise, noise), time: (time, time), least_budget };
        }
        let needs_noise = plan.goal.is_some()
            || live.guards.iter().any(|text| Guard::parse(text).is_ok_and(|it| it.is_of_today));
        // Blocks of today's setting alone tell the noise.
        let noise = if needs_noise { noise } else { 0 };
        let others = settings.saturating_sub(1) as u64;
        // Every setting has its fewest blocks, after those that tell the noise.
        let pairs = others.saturating_mul(plan.method.repetitions_min.into());
        let shortest = block.saturating_mul(noise + pairs);
        let longest = super::live::compute_budget(plan).max(shortest);
        let blocks_in = |time: Nanos| time.as_ns() / block.as_ns().max(1);
        Self {
            settings: settings as u64,
            trials: (noise + 2 * pairs, noise + 2 * blocks_in(longest).saturating_sub(noise)),
            time: (shortest, longest),
            least_budget: shortest,
        }
    }

    /// Whether the budget of a plan has room for an answer.
    pub fn fits_budget(&self, plan: &Plan) -> bool {
        plan.method.budget.is_none_or(|budget| self.least_budget <= budget)
    }

    /// Refuses a budget without room for an answer, with the least that would do.
    pub fn check_budget(&self, plan: &Plan) -> Result<(), Error> {
        match plan.method.budget {
            Some(budget) if !self.fits_budget(plan) => Err(Error::Budget {
                budget,
                least: Nanos::from_s(self.least_budget.as_ns().div_ceil(1_000_000_000)),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_plan(method: &str) -> Plan {
        let text = format!(
            "schema = 1\n[factors]\ngro-flush-timeout = [\"0us\", \"20us\"]\n[[workload]]\nkind = \"tcp_rr\"\n\
             [[workload]]\nkind = \"tcp_stream\"\n[method]\nwarmup = \"200ms\"\nduration = \"1s\"\n\
             repetitions = {{ min = 5, max = 10 }}\n{method}\n"
        );
        Plan::parse("plan.toml", &text).unwrap()
    }

    #[test]
    fn slices_count_one_trial_each() {
        let runs = PlannedRuns::of_grid(&make_plan(""), Design::Slices, 2, false);
        // 5 and 10 s in slices of 225 ms, of two settings and two workloads.
        assert_eq!(runs.trials, (23 * 4, 45 * 4));
        let seconds = [runs.time.0, runs.time.1].map(Nanos::as_secs_f64);
        assert!(seconds[0] > 23.0 && seconds[0] < 40.0 && seconds[1] > 45.0, "{seconds:?}");
    }

    #[test]
    fn budget_limits_both_counts() {
        let long = PlannedRuns::of_grid(&make_plan("budget = \"1h\""), Design::Slices, 2, false);
        let short = PlannedRuns::of_grid(&make_plan("budget = \"20s\""), Design::Slices, 2, false);
        assert!(short.trials.0 < long.trials.0 && short.trials.1 == short.trials.0, "{short:?}");
        assert!(short.time.1 <= Nanos::from_s(20), "{short:?}");
        let blocks = PlannedRuns::of_grid(&make_plan("budget = \"30s\""), Design::Blocks, 2, true);
        // Trials of 1.2 s: five blocks of four take 24 s, and one more fits.
        assert_eq!(blocks.trials, (20, 25));
        assert_eq!(blocks.least_budget, Nanos::from_s(24));
    }

    #[test]
    fn observing_keeps_to_its_budget() {
        let runs = |budget: &str| {
            let text = format!(
                "schema = 1\n[[workload]]\nkind = \"live\"\nobserve = true\n[method]\nbudget = \"{budget}\"\n"
            );
            let plan = Plan::parse("plan.toml", &text).unwrap();
            let runs = PlannedRuns::of_live(&plan, plan.live().unwrap(), 1);
            (runs, runs.check_budget(&plan))
        };
        let (of_25s, checked) = runs("25s");
        assert!(checked.is_ok() && of_25s.trials == (5, 5) && of_25s.settings == 1, "{of_25s:?}");
        assert!(of_25s.time.1 <= Nanos::from_s(25), "{of_25s:?}");
        let refused = runs("10s").1.unwrap_err();
        assert!(refused.to_string().contains("`--budget 19s`"), "{refused}");
        assert_eq!(runs("1h").0.trials, (20, 20));
    }

    #[test]
    fn short_budget_is_refused_with_the_least() {
        let plan = make_plan("budget = \"10s\"");
        for design in [Design::Blocks, Design::Slices] {
            let runs = PlannedRuns::of_grid(&plan, design, 2, false);
            let error = runs.check_budget(&plan).unwrap_err();
            let Error::Budget { least, .. } = &error else { panic!("{error}") };
            let mut enough = plan.clone();
            enough.method.budget = Some(*least);
            let runs = PlannedRuns::of_grid(&enough, design, 2, false);
            assert!(runs.check_budget(&enough).is_ok() && runs.trials.0 > 0, "{error}: {runs:?}");
            assert!(error.to_string().contains(&format!("`--budget {least}`")), "{error}");
        }
    }
}
