//! `latput merge`: joins the results files of shards.

use std::path::PathBuf;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_results::results_db::{self, MergeInputs, MergeOutcome};
use latput_units::text::format_count;

use crate::context::{CliContext, keep_only_files};
use crate::document::merge::MergeDocument;
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Join the results files of shards to that of one run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput merge part*.db -o all.db              all shards of `latput run --shard`
  latput merge part*.db -o all.db --partial    those that are finished; the report names the rest
  latput report all.db --format csv            the same bytes as of one run
  latput merge part*.db -o search.db           one block of a search, onto the blocks before it

If the plan may need more repetitions, `latput run` without --shard and with `-o all.db` adds them.")]
pub(crate) struct Args {
    /// The results files of the shards, in any order.
    #[arg(required = true, value_name = "FILE")]
    parts: Vec<PathBuf>,
    /// The results file to make. One of the same run is replaced.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Join what there is where shards are missing, unfinished or unreadable. The exit code is then 6.
    #[arg(long)]
    partial: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let parts = self.parts.iter().map(PathBuf::as_path);
        keep_only_files(&UsedFiles::new(parts, [self.output.as_path()]))?;
        let Self { parts, output, partial } = &self;
        let merge = MergeInputs { parts, output, partial: *partial, stop: &context.stop };
        let MergeOutcome { trials, planned, missing, may_go_on, block } =
            results_db::merge_shards(&merge)?;
        for what in &missing {
            output::print_remark(&format!("latput: missing: {what}"));
        }
        let file = output.display();
        if let Some(block) = block {
            output::print_remark(&format!(
                "latput: block {block} of the search is complete: `latput search` with --no-trials and `-o \
                 {file}` says whether there is another"
            ));
        } else if may_go_on && missing.is_empty() {
            output::print_remark(&format!(
                "latput: the plan may need more repetitions: run `latput run` without --shard and with `-o \
                 {file}`"
            ));
        }
        output::print_remark(&format!(
            "results: {trials} of {} in {file}",
            format_count(planned, "trial")
        ));
        let is_partial = !missing.is_empty();
        if context.json {
            output::print_json(&MergeDocument {
                schema: 1,
                file: output.display().to_string(),
                trials,
                planned_trials: planned,
                missing,
                may_go_on,
            })?;
        }
        Ok(if is_partial { ExitCode::from(ExitReason::Partial) } else { ExitCode::SUCCESS })
    }
}
