//! Searches a plan's settings block by block, in one process or in shards of a block.

use latput_linux::process::unix_ms;
use latput_model::search::of_plan::{NextBlock, PlanSearch};
use latput_results::Shard;
use latput_runner::Error;
use latput_runner::trials::TrialRunner;
use latput_trial::Results;
use latput_trial::plan::MAX_TRIALS;
use latput_trial::results::LabelledSetting;
use latput_units::IntoMap;
use latput_units::text::{format_count, is_or_are};

use super::opened::build_today_setting;
use super::suggested::{ExternalOptimiser, OptimiserDriver};
use super::{RunPart, RunSession, search_budget, select_shard_trials, shard_error};
use crate::refusal::{RefusedSettings, plan_search};

/// Chooser of the blocks.
struct BlockChooser<'a> {
    search: PlanSearch,
    /// Another optimiser, if one suggests the settings.
    asking: Option<OptimiserDriver<'a>>,
    /// Runs of settings for exploring.
    budget: usize,
    /// The leader that was told last.
    told: Option<LabelledSetting>,
}

/// The trials of a block, as setting and workload, in the order in which they run.
struct SearchBlock {
    number: u32,
    /// How many trials come before it.
    before: usize,
    order: Vec<(usize, usize)>,
}

impl RunSession<'_> {
    /// Runs the most promising settings block by block, then the winner and today's setting afresh.
    pub(super) fn run_search(
        &mut self,
        runner: &mut dyn TrialRunner,
        refused: &RefusedSettings,
        other: Option<&mut dyn ExternalOptimiser>,
    ) -> Result<(), Error> {
        let other = other.map(|other| -> &mut dyn ExternalOptimiser { other });
        let mut chooser = self.create_chooser(refused, other)?;
        let mut looking = self.plan_interim_analysis(chooser.search.confirmations())?;
        let first = self.results.rows.iter().map(|row| row.block).max().unwrap_or(0);
        let mut stored = self.growing_header_parts();
        for number in first.. {
            let Some(block) = self.next_block(&mut chooser, number)? else { break };
            let left = block.order.iter().filter(|trial| !self.is_done(number, **trial)).count();
            match self.run.part {
                _ if left == 0 => continue,
                RunPart::Nothing => {
                    return Err(Error::SearchGoesOn { block: number, trials: left });
                }
                RunPart::ShardOfBlock(shard, _) => {
                    self.begin_shard(shard, &block)?;
                    return self.run_trials(
                        runner,
                        number,
                        select_shard_trials(shard, 0, block.order),
                    );
                }
                RunPart::Whole | RunPart::Shard(_) => {}
            }
            if stored != self.growing_header_parts() {
                self.db.update_header(self.id, &self.results)?;
                stored = self.growing_header_parts();
            }
            self.run_trials(runner, number, block.order)?;
            if let Some(from) = self.results.confirmed_from
                && let Some(confirmed) = number.checked_sub(from)
                && looking.looks.is_due(confirmed, confirmed + 1)
                && self.check_for_answer(&mut looking, None)
            {
                return Ok(());
            }
        }
        if let RunPart::ShardOfBlock(shard, file) = self.run.part {
            let file = file.display();
            let ends = format!("`latput search` without --shard and with `-o {file}` ends it");
            return Err(shard_error(shard, format!("{file}: the search is complete: {ends}")));
        }
        self.results.planned_trials = self.results.rows.len() as u64;
        Ok(())
    }

    fn create_chooser<'a>(
        &mut self,
        refused: &'a RefusedSettings,
        other: Option<&'a mut dyn ExternalOptimiser>,
    ) -> Result<BlockChooser<'a>, Error>
    where
        Self: 'a,
    {
        let plan = self.run.plan;
        let today = build_today_setting(plan, &self.results.today);
        let search = plan_search(plan, today.as_ref(), refused)?;
        if let Some(why) = refused.values().next() {
            self.add_remark(format!(
                "{} {} left out: {why}",
                format_count(refused.len(), "setting"),
                is_or_are(refused.len())
            ));
        }
        let workloads = self.results.workloads.len();
        let budget = search_budget(plan, &search, self.trial_time());
        let asking = match other {
            None => None,
            Some(other) => {
                // Without a time budget the optimiser decides when it is done.
                let most = usize::try_from(MAX_TRIALS).unwrap_or(usize::MAX) / workloads;
                let budget = plan.method.budget.map_or(most, |_| budget);
                Some(OptimiserDriver::with_optimiser(other, plan, refused, budget)?)
            }
        };
        let most = budget + 2 * search.confirmations() as usize;
        self.results.planned_trials = (most * workloads) as u64;
        Ok(BlockChooser { search, asking, budget, told: None })
    }

    /// The parts of the stored header that grow in a search.
    fn growing_header_parts(&self) -> (usize, Option<u32>) {
        (self.results.settings.len(), self.results.confirmed_from)
    }

    /// The block of this number; `None` ends the search, with a note.
    fn next_block(
        &mut self,
        chooser: &mut BlockChooser<'_>,
        number: u32,
    ) -> Result<Option<SearchBlock>, Error> {
        let BlockChooser { search, asking, budget, told } = chooser;
        // Only whole blocks count: trials of an earlier session must not change this block.
        let before = self.results.rows.partition_point(|row| row.block < number);
        let begun = self.results.rows.split_off(before);
        let next = match asking {
            None => Ok(search.next(&self.results, *budget)),
            Some(asking) => asking.next(search, &self.results, &begun),
        };
        self.results.rows.extend(begun);
        let settings = match next? {
            NextBlock::Done(note) => {
                self.results.notes.push(note);
                return Ok(None);
            }
            NextBlock::Explore { settings, leader } => {
                if let Some(leader) = leader.filter(|now| told.as_ref() != Some(now)) {
                    self.progress.report_remark(&format!("best so far: {}", leader.label));
                    *told = Some(leader);
                }
                settings
            }
            NextBlock::Confirm(settings) => {
                self.results.confirmed_from.get_or_insert(number);
                settings
            }
        };
        let workloads: Vec<usize> = (0..self.results.workloads.len()).collect();
        if asking.is_some() {
            // As if the optimiser were done after this block.
            let confirmations = search.confirmations();
            let runs = match self.results.confirmed_from {
                None => settings.len() + 2 * confirmations as usize,
                Some(from) => settings.len() * confirmations.saturating_sub(number - from) as usize,
            };
            self.results.planned_trials = (before + runs * workloads.len()) as u64;
        }
        let settings: Vec<usize> = settings.into_iter().map(|set| self.index_of(set)).collect();
        let order = self.order_trials(number, &settings, &workloads);
        Ok(Some(SearchBlock { number, before, order }))
    }

    fn index_of(&mut self, setting: LabelledSetting) -> usize {
        let settings = &mut self.results.settings;
        settings.iter().position(|known| *known == setting).unwrap_or_else(|| {
            settings.push(setting);
            settings.len() - 1
        })
    }

    /// Begins or resumes the run of this shard of a block.
    fn begin_shard(&mut self, shard: Shard, block: &SearchBlock) -> Result<(), Error> {
        let numbers = i64::try_from(block.before).unwrap_or(i64::MAX).saturating_add(1)..;
        self.places = block.order.iter().copied().zip(numbers).into_map();
        let text = shard.block_text(self.run.plan_text, block.number);
        if let Some((id, part)) = self.db.find_begun_run(&text, &self.machine)? {
            self.id = id;
            self.results.rows.extend(part.rows);
            return Ok(());
        }
        let header = Results { rows: Vec::new(), ..self.results.clone() };
        self.id = self.db.begin_run(&text, &self.machine, unix_ms(), &header)?;
        Ok(())
    }
}
