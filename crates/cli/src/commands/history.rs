//! `latput history`: a figure over runs, hosts and kernels.

use std::path::PathBuf;
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_report::history::{self, HistoryRun};
use latput_results::ResultsDb;
use latput_trial::Metric;
use latput_units::text::format_count;

use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;

/// Show figures over many runs, oldest first.
///
/// Each with its hosts and kernels.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput history nightly.db                                      rate, tail and CPU cost of every run
  latput history *.db --metric latency_ns_p99 --workload tcp_rr  one figure over files
  latput history nightly.db --format csv > series.csv            for Apache Otava (`docs/gate.md`)")]
pub(crate) struct Args {
    /// Results files; all runs of each.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only this metric (`latput metrics` lists them; or one that a plan defined); may be repeated.
    #[arg(long, value_name = "NAME")]
    metric: Vec<String>,
    /// Only workloads with this in their name.
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Only settings with this in their label.
    #[arg(long, value_name = "LABEL")]
    setting: Option<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = HistoryFormat::Table)]
    format: HistoryFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HistoryFormat {
    Table,
    Csv,
    Json,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let has = |part: &Option<String>, name: &str| {
            part.as_ref().is_none_or(|part| name.contains(part.as_str()))
        };
        let is_wanted = |setting: &str, workload: &str| {
            has(&self.setting, setting) && has(&self.workload, workload)
        };
        keep_only_files(&UsedFiles::new(self.files.iter().map(PathBuf::as_path), []))?;
        let mut runs = Vec::new();
        let mut without = 0;
        for file in &self.files {
            let results_db = ResultsDb::open(file)?;
            for run in results_db.list_runs()? {
                let name = format!("{}#{}", file.display(), run.id);
                let results = results_db.load_run(run.id)?;
                // A metric that a plan defined is known from the first run that has it.
                let wanted: Vec<Metric> =
                    self.metric.iter().filter_map(|name| name.parse().ok()).collect();
                let has_none = wanted.is_empty() && !self.metric.is_empty();
                let found =
                    HistoryRun::new(name, run.started_unix_ms, &results, &wanted, is_wanted);
                if has_none || found.is_empty() {
                    without += 1;
                } else {
                    runs.push(found);
                }
            }
        }
        for name in &self.metric {
            name.parse::<Metric>().map_err(|error| CliError::usage(error.to_string()))?;
        }
        if runs.is_empty() {
            let message = "no run has a figure of this metric, workload and setting";
            return Err(CliError::usage(message));
        }
        if without > 0 {
            output::print_remark(&format!(
                "left out: {} without such a figure",
                format_count(without, "run")
            ));
        }
        history::sort_runs(&mut runs);
        match self.format {
            HistoryFormat::Table if context.json => {
                output::print_json(&history::build_document(&runs))?;
            }
            HistoryFormat::Json => output::print_json(&history::build_document(&runs))?,
            HistoryFormat::Csv => output::print_data(&history::render_csv(&runs))?,
            HistoryFormat::Table => {
                output::print_text(&history::render_terminal(&runs, output::stdout_screen()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
