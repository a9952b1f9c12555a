//! `latput import`: converts other programs' files to a results file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use latput_experiment::ResultsDb;
use latput_formats::{ImportFormat, LARGEST, import};
use latput_linux::files;
use latput_model::Summary;
use latput_trial::Results;

use crate::commands::report;
use crate::context::{Context, keep_only_files};
use crate::exit::CliError;
use crate::output;

/// Convert files of iperf3, netperf or flent to a results file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput import iperf3 run1.json run2.json -o old.db    iperf3 --json, or --json-stream
  latput import netperf rr.txt -o old.db                netperf -k, -o, or classic output
  latput import flent upload.flent.gz -o old.db         a flent data file
  latput report old.db                                  what is in it

Each test is one run; tests of the same kind and sizes are repetitions of one workload. What a file does
not say is absent in the results. `docs/peers.md` says which figure becomes which.")]
pub(crate) struct Args {
    /// The program that wrote the files.
    #[arg(value_enum)]
    program: ImportedProgram,
    /// The files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The results file; the run is added to it.
    #[arg(short, long, value_name = "RESULTS")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImportedProgram {
    Iperf3,
    Netperf,
    Flent,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        keep_only_files([self.output.as_path()])?;
        let format = match self.program {
            ImportedProgram::Iperf3 => ImportFormat::Iperf3,
            ImportedProgram::Netperf => ImportFormat::Netperf,
            ImportedProgram::Flent => ImportFormat::Flent,
        };
        let files = self
            .files
            .iter()
            .map(|path| {
                let bytes = files::read(path, LARGEST as u64);
                let bytes = bytes.map_err(|error| CliError::usage(error.to_string()))?;
                Ok((path.display().to_string(), bytes))
            })
            .collect::<Result<Vec<_>, CliError>>()?;
        let results = import(format, &files).map_err(|error| CliError::usage(error.to_string()))?;
        let run = keep(&results, &self.output)?;
        report::print(context, &results, &Summary::of(&results))?;
        output::remark(&format!("results: run {run} of {}", self.output.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Stores the results as a finished run; returns its number.
fn keep(results: &Results, output: &Path) -> Result<i64, CliError> {
    let mut results_db = ResultsDb::create(output)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let header = Results { rows: Vec::new(), ..results.clone() };
    let run = results_db.begin(&results.name, &results.testbed, now, &header)?;
    for row in &results.rows {
        results_db.append(run, &header, row)?;
    }
    results_db.finish(run, &header)?;
    Ok(run)
}
