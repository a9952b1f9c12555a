//! `latput model twin`: makes a simulator profile of a host pair from a few of its rows.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_calibrate::{SimulationJob, Twin, TwinError, calibrate_twin};
use latput_linux::confine::UsedFiles;
use latput_results::ResultsDb;
use latput_trial::Row;
use latput_units::text::format_count;

use crate::commands::calibrate::{render_combinations, render_costs};
use crate::commands::report::cells_of;
use crate::context::{CliContext, keep_only_files};
use crate::exit::{CliError, ExitReason};
use crate::{output, parallel};

/// Largest median error of a twin's rates on its own rows; worse twins are refused.
const POOR: f64 = 0.15;

/// Calibrate a simulator profile on a few rows that were measured on a host pair, so that
/// `--on sim:PROFILE.toml` predicts any plan there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput plan twin > twin.toml && latput run twin.toml -o twin.db    the rows that it needs
  latput model twin twin.db -o lab.toml
  latput run examples/built-in.toml --on sim:./lab.toml              then predicts any plan
  latput model twin kept.db --cell tcp_rr@0us --cell tcp_rr@50us --cell tcp_stream@0us -o lab.toml

Costs that the rows do not determine stay near those of a generic profile. Their intervals are printed, and
the combinations that are determined. Before you trust a prediction, check it on a few cells that were not in
the rows.")]
pub(crate) struct Args {
    /// The results file.
    file: PathBuf,
    /// Run number in the file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// Only the rows of this cell, such as `tcp_rr@50us`: a workload's name and a setting's label
    /// or a part of it. May be repeated.
    #[arg(long, value_name = "WORKLOAD@SETTING")]
    cell: Vec<String>,
    /// The name of the profile.
    #[arg(long, value_name = "NAME", default_value = "twin")]
    name: String,
    /// Write the profile to this file.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        keep_only_files(&UsedFiles::new([self.file.as_path()], [self.output.as_path()]))?;
        let results_db = ResultsDb::open(&self.file)?;
        let mut results = results_db.load_chosen(self.run)?;
        let wanted = cells_of(&results, "--cell", &self.cell)?;
        if !wanted.is_empty() {
            results.rows.retain(|row| wanted.contains(&(row.setting, row.workload)));
        }
        let is_marked = |row: &&Row| row.observation.checks.iter().any(|check| !check.passed);
        let marked = results.rows.iter().filter(is_marked).count();
        if marked > 0 {
            output::print_remark(&format!(
                "{marked} of {} failed a check (`latput report` says which). A twin of a disturbed host \
                 predicts little",
                format_count(results.rows.len(), "trial")
            ));
        }
        let stop = &context.stop;
        let run = |jobs: &[SimulationJob]| {
            parallel::map(jobs, stop, None, SimulationJob::run)
                .unwrap_or_else(|| vec![None; jobs.len()])
        };
        let said = &mut |text: String| output::print_remark(&text);
        let found = calibrate_twin(&results, &self.name, &run, said);
        if stop.is_raised() {
            return Err(CliError::new(ExitReason::Failed, "stopped; nothing was written"));
        }
        let found = found.map_err(|error| {
            CliError::usage(match error {
                TwinError::Name => format!("--name: {error}"),
                _ => format!("{}: {error}", self.file.display()),
            })
        })?;
        let profile = found.to_toml().map_err(|error| CliError::usage(error.to_string()))?;
        output::write_file(&self.output, &profile)?;
        output::print_text(&in_words(&found, &self.output.display().to_string()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn in_words(found: &Twin, file: &str) -> String {
    let mut text = render_costs(&found.costs);
    text.push_str(&render_combinations(&found.combinations, &found.costs));
    if let Some(errors) = found.in_sample {
        let _ = writeln!(
            text,
            "\nrates of the rows themselves: {} within {:.1}% (median) and {:.1}% (90th percentile)",
            format_count(errors.count, "figure"),
            100.0 * errors.median,
            100.0 * errors.p90
        );
    }
    if found.in_sample.is_some_and(|errors| errors.median > POOR) {
        text.push_str(
            "It does not describe these rows: they are too noisy, or the simulator lacks something that \
             happens there.\n",
        );
    }
    let _ = writeln!(text, "predict a plan: latput run PLAN --on sim:{file}");
    text
}
