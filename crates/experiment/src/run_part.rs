//! The part of a run that one process runs.

use std::path::Path;

use latput_results::shard::Shard;
use latput_runner::Error;
use latput_trial::Plan;
use latput_trial::plan::Design;

use crate::testbed::{Testbed, TestbedKind};

/// The trials of a run that a process runs.
#[derive(Clone, Copy, Debug, Default)]
pub enum RunPart<'a> {
    /// Every trial.
    #[default]
    Whole,
    /// Each n-th trial of the plan.
    Shard(Shard),
    /// Each n-th trial of the next block of the search in this results file.
    ShardOfBlock(Shard, &'a Path),
    /// None: a search whose next block is known ends with [`Error::SearchGoesOn`].
    Nothing,
}

impl RunPart<'_> {
    /// The text by which the run of this part is found again.
    pub(crate) fn plan_text(self, plan: &Plan, text: &str) -> String {
        match self {
            Self::Shard(shard) => shard.plan_text(plan, text),
            Self::Whole | Self::ShardOfBlock(..) | Self::Nothing => text.to_owned(),
        }
    }

    /// Refuses a plan or a testbed that has no such part.
    pub fn check_part(self, plan: &Plan, testbed: &Testbed) -> Result<(), Error> {
        let (shard, is_of_block) = match self {
            Self::Whole | Self::Nothing => return Ok(()),
            Self::Shard(shard) => (shard, false),
            Self::ShardOfBlock(shard, _) => (shard, true),
        };
        let problem = if !matches!(testbed.kind, TestbedKind::Simulator(_)) {
            "shards on the same hosts would disturb each other: leave out --shard, or simulate with `--on \
             sim:SYSTEM`"
        } else if plan.method.design == Some(Design::Search) && !is_of_block {
            "a search chooses each block from all earlier trials, and a shard does not have them: divide one \
             block at a time (`latput search --shard`), or use `design = \"blocks\"`"
        } else if plan.method.seed.is_none() {
            "without a seed in the plan each shard has another order: add `seed = 1` under `[method]`"
        } else {
            return Ok(());
        };
        Err(shard_error(shard, problem))
    }
}

/// The error that refuses a shard.
pub(crate) fn shard_error(shard: Shard, problem: impl Into<String>) -> Error {
    Error::Shard { shard: shard.to_string(), problem: problem.into() }
}
