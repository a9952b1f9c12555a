//! A search whose settings another optimiser suggests.
//!
//! latput runs today's setting first, then each block that is suggested, and tells what it saw. When the optimiser is done,
//! the winner is confirmed on fresh runs as in latput's own search. The rows are the only state: after an end in the
//! middle the optimiser is told every block again. Of a block that was cut, the settings that have a row are finished
//! without asking, and the others are forgotten.

use latput_model::search::of_plan::{BlockFigures, NextBlock, PlanSearch};
use latput_runner::Error;
use latput_trial::plan::Factor;
use latput_trial::results::LabelledSetting;
use latput_trial::{Plan, Results, Row};
use latput_units::text::format_count;

use crate::refusal::RefusedSettings;

/// Another optimiser.
pub trait ExternalOptimiser {
    /// Learns the plan. `refused` is the number of its settings that would lose packets.
    fn start_search(&mut self, plan: &Plan, refused: usize) -> Result<(), Error>;
    /// Learns what a block said of one setting.
    fn record_observation(&mut self, one: &SettingObservation<'_>) -> Result<(), Error>;
    /// The settings of the next block, each as one level's index for each factor of the plan; `None` ends the
    /// search.
    fn suggest_settings(&mut self) -> Result<Option<Vec<Vec<usize>>>, Error>;
    /// Learns that a suggested setting is not run.
    fn reject_setting(&mut self, levels: &[usize], why: &str) -> Result<(), Error>;
}

/// Figures of one setting in a block.
#[derive(Debug)]
pub struct SettingObservation<'a> {
    /// The levels' indexes; `None` for today's setting where the plan does not list it.
    pub levels: Option<Vec<usize>>,
    /// Block, cost and limits.
    pub seen: BlockFigures<'a>,
    /// Every row of them.
    pub rows: Vec<&'a Row>,
    /// All results so far.
    pub results: &'a Results,
}

/// The side of the session that asks.
pub(super) struct OptimiserDriver<'a> {
    other: &'a mut dyn ExternalOptimiser,
    plan: &'a Plan,
    listed: Vec<LabelledSetting>,
    refused: &'a RefusedSettings,
    /// The first block that the optimiser was not told yet.
    untold: u32,
    /// Most runs of settings, today's first one included.
    budget: usize,
}

impl<'a> OptimiserDriver<'a> {
    pub(super) fn with_optimiser(
        other: &'a mut dyn ExternalOptimiser,
        plan: &'a Plan,
        refused: &'a RefusedSettings,
        budget: usize,
    ) -> Result<Self, Error> {
        other.start_search(plan, refused.len())?;
        Ok(Self { other, plan, listed: plan.settings(), refused, untold: 0, budget })
    }

    /// The block after those in `results`, of which `begun` are rows already.
    pub(super) fn next(
        &mut self,
        search: &PlanSearch,
        results: &Results,
        begun: &[Row],
    ) -> Result<NextBlock, Error> {
        self.report_blocks(search, results)?;
        if results.confirmed_from.is_some() {
            return Ok(search.next(results, usize::MAX));
        }
        let mut again: Vec<usize> = begun.iter().map(|row| row.setting).collect();
        again.sort_unstable();
        again.dedup();
        if !again.is_empty() {
            let settings = again.iter().filter_map(|idx| results.settings.get(*idx).cloned());
            return Ok(NextBlock::Explore { settings: settings.collect(), leader: None });
        }
        if results.rows.is_empty() {
            let settings = vec![search.today().clone()];
            return Ok(NextBlock::Explore { settings, leader: None });
        }
        let left = self.budget.saturating_sub(results.rows.len() / results.workloads.len().max(1));
        if left == 0 {
            return Ok(search.conclude_search(results, "the budget is used up"));
        }
        loop {
            let Some(suggested) = self.other.suggest_settings()? else {
                return Ok(search.conclude_search(results, "the optimiser is done"));
            };
            let settings = self.accept_settings(suggested, left)?;
            if !settings.is_empty() {
                return Ok(NextBlock::Explore { settings, leader: None });
            }
        }
    }

    /// Tells the whole blocks that were not told yet.
    fn report_blocks(&mut self, search: &PlanSearch, results: &Results) -> Result<(), Error> {
        for seen in search.explored_figures(results, self.untold) {
            let idx = self.listed.iter().position(|set| set.by_role == seen.set.by_role);
            let of_run = |row: &&Row| (row.block, row.setting) == (seen.block, seen.setting);
            let rows = results.rows.iter().filter(of_run).collect();
            self.untold = seen.block + 1;
            let levels = idx.map(|idx| levels_of(&self.plan.factors, idx));
            self.other.record_observation(&SettingObservation { levels, seen, rows, results })?;
        }
        Ok(())
    }

    /// Those of the suggested settings that are run. The optimiser is told why the others are not.
    fn accept_settings(
        &mut self,
        suggested: Vec<Vec<usize>>,
        left: usize,
    ) -> Result<Vec<LabelledSetting>, Error> {
        let mut accepted: Vec<LabelledSetting> = Vec::new();
        for levels in suggested {
            let set = match index_of(&self.plan.factors, &levels) {
                Ok(idx) => match self.refused.get(&idx) {
                    Some(why) => Err(why.clone()),
                    None if accepted.contains(&self.listed[idx]) => {
                        Err("it is in this block already: suggest it in the next one".to_owned())
                    }
                    None if accepted.len() == left => Err("the budget is used up".to_owned()),
                    None => Ok(self.listed[idx].clone()),
                },
                Err(why) => Err(why),
            };
            match set {
                Ok(set) => accepted.push(set),
                Err(why) => self.other.reject_setting(&levels, &why)?,
            }
        }
        Ok(accepted)
    }
}

/// The index in the plan's settings of these levels.
fn index_of(factors: &[Factor], levels: &[usize]) -> Result<usize, String> {
    if levels.len() != factors.len() {
        return Err(format!(
            "it has {}, not one for each factor",
            format_count(levels.len(), "level")
        ));
    }
    factors.iter().zip(levels).try_fold(0, |index, (factor, &level)| {
        let count = factor.levels.len();
        if level >= count {
            let name = factor.name();
            return Err(format!("{name} has no level {level}: they are 0 to {}", count - 1));
        }
        Ok(index * count + level)
    })
}

/// The levels of a setting of the plan, by its index.
fn levels_of(factors: &[Factor], index: usize) -> Vec<usize> {
    let mut rest = index;
    let mut levels: Vec<usize> = factors
        .iter()
        .rev()
        .map(|factor| {
            let level = rest % factor.levels.len();
            rest /= factor.levels.len();
            level
        })
        .collect();
    levels.reverse();
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "schema = 1\nname = \"x\"\n[factors]\nmtu = [1400, 1500, 9000]\ngro = [\"on\", \"off\"]\n\
                        [[workload]]\nkind = \"tcp_rr\"\n";

    #[test]
    fn levels_and_index_are_inverse() {
        let plan = Plan::parse("p.toml", PLAN).unwrap();
        for (idx, set) in plan.settings().iter().enumerate() {
            let levels = levels_of(&plan.factors, idx);
            assert_eq!(index_of(&plan.factors, &levels), Ok(idx));
            let labels: Vec<String> = plan
                .factors
                .iter()
                .zip(&levels)
                .map(|(factor, level)| factor.label(&factor.levels[*level]))
                .collect();
            assert!(labels.iter().all(|label| set.label.contains(label)), "{labels:?} {set:?}");
        }
    }

    #[test]
    fn level_that_is_not_there_is_named() {
        let factors = Plan::parse("p.toml", PLAN).unwrap().factors;
        assert!(index_of(&factors, &[0]).unwrap_err().contains("1 level, not"));
        let too_high = index_of(&factors, &[2, 0]).unwrap_err();
        assert!(too_high.contains("gro has no level 2: they are 0 to 1"), "{too_high}");
    }
}
