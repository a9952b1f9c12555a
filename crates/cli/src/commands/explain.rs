//! `latput explain`: where time and CPU go under each setting.

use std::path::PathBuf;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_report::explained::RunExplanation;
use latput_results::ResultsDb;
use latput_trial::Row;
use latput_units::text::format_count;

use crate::commands::model::fit::explain_error;
use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;

/// Explain where time and CPU go under each setting.
///
/// One table: the time of a transaction, or of 1024 bytes, by stage. Also predicts the effect of
/// changing a knob.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput explain latput-results.db
  latput explain kept.db --workload tcp_rr --setting 50us
  latput explain kept.db --json

The parts add up to the time. The wait for moderation and the wait behind other requests come from settings
that differ only in their delay and workloads that differ only in their requests in flight; where the plan
lacks such runs, they are named. CPU time is measured, and divided by the costs of `latput model fit`. What of
it does not fit into the time runs beside it.")]
pub(crate) struct Args {
    /// The results file.
    file: PathBuf,
    /// Run number in the file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// Only workloads with this in their name; may be repeated.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Only settings with this in their label.
    #[arg(long, value_name = "LABEL")]
    setting: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        keep_only_files(&UsedFiles::new([self.file.as_path()], []))?;
        let results_db = ResultsDb::open(&self.file)?;
        let results = results_db.load_chosen(self.run)?;
        let is_shared = |row: &&Row| row.observation.has_failed("other-work");
        let shared = results.rows.iter().filter(is_shared).count();
        if shared > 0 {
            output::print_remark(&format!(
                "other programs ran on the CPUs in {shared} of {} (check `other-work`): the CPU time includes \
                 them",
                format_count(results.rows.len(), "trial")
            ));
        }
        let explained = RunExplanation::new(&results, &self.workload, self.setting.as_deref())
            .map_err(|error| explain_error(&self.file, &error))?;
        if context.json {
            output::print_json(&explained.to_document())?;
        } else {
            output::print_text(&explained.to_text(output::stdout_screen().columns))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
