//! `latput import`: converts reports and other programs' files to a results file.

use std::cell::LazyCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_formats::{
    FileKind, ImportError, ImportFormat, ImportOutcome, LARGEST, TestRecord, import_files,
    is_same_content, known_records,
};
use latput_linux::confine::UsedFiles;
use latput_linux::files::{self, FileError};
use latput_linux::process::unix_ms;
use latput_model::ResultsSummary;
use latput_report::{LARGEST_REPORT, read_report, shell_word};
use latput_results::ResultsDb;
use latput_trial::figures::Parser;
use latput_trial::results::LabelledSetting;
use latput_trial::{Observation, Results, Row};

use crate::commands::report;
use crate::context::{CliContext, keep_only_files};
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Convert a report or another program's files to results.
///
/// It reads files of iperf3, netperf and flent.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput import report.html -o other.db                 a report of `latput report` or `tune`
  latput import iperf3 run1.json run2.json -o old.db    iperf3 --json, or --json-stream
  latput import netperf rr.txt -o old.db                netperf -k, -o, or classic output
  latput import flent upload.flent.gz -o old.db         a flent data file
  latput report old.db --list                           the runs: each import adds one
  latput history old.db                                 the figures of all of them
  latput report old.db --run 1                          one of them; without --run the newest

The trials of a report keep their figures and are marked as imported: `latput apply` asks for --on. Each test
of another program is one run. Tests of the same kind and sizes are repetitions of one workload. Data that a
file lacks is absent in the results. A test that cannot be read is named and left out (exit code 6).
`docs/peers.md` lists the figures.")]
pub(crate) struct Args {
    /// A report; or the program that wrote the files (`iperf3`, `netperf` or `flent`), then the files.
    #[arg(required = true, value_names = ["REPORT|PROGRAM", "FILES"])]
    words: Vec<PathBuf>,
    /// The results file; the run is added to it.
    #[arg(short, long, value_name = "RESULTS")]
    output: PathBuf,
}

/// The programs whose files are imported.
const FORMATS: [ImportFormat; 3] =
    [ImportFormat::Iperf3, ImportFormat::Netperf, ImportFormat::Flent];

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let reads = self.words.iter().map(PathBuf::as_path);
        keep_only_files(&UsedFiles::new(reads, [self.output.as_path()]))?;
        let ImportOutcome { mut results, records, left_out } = self.read()?;
        for error in &left_out {
            output::print_remark(&format!("not imported: {error}"));
        }
        let mut results_db = ResultsDb::create(&self.output)?;
        let known = drop_known(&mut results, &records, &results_db)?;
        let file = self.output.display();
        if known.dropped > 0 {
            output::print_remark(&format!(
                "{} tests are in {file} already and are not added again",
                known.dropped
            ));
        }
        if known.differing > 0 {
            output::print_remark(&format!(
                "{} of them have other figures in {file}, as of the other end; those there stay",
                known.differing
            ));
        }
        if !results.rows.is_empty() {
            let run = store_results(&results, &mut results_db)?;
            report::print_report(context, &results, &ResultsSummary::from_results(&results))?;
            output::print_remark(&format!("results: run {run} of {}", self.output.display()));
        }
        Ok(if left_out.is_empty() { ExitReason::Done } else { ExitReason::Partial }.into())
    }

    fn read(&self) -> Result<ImportOutcome, CliError> {
        let is_meant = |format: &ImportFormat| self.words[0] == Path::new(format.name());
        let format = FORMATS.into_iter().find(is_meant);
        if format.is_none()
            && let Some(parser) = parser_of(&self.words[0])
        {
            return Err(CliError::usage(format!(
                "latput reads the output of {parser} only of runs that it has started: `latput measure --command \
                 '{parser} ...'` (docs/commands.md). `import` takes {}",
                FORMATS.map(ImportFormat::name).join(", "),
                parser = parser.name()
            )));
        }
        match (format, self.words.as_slice()) {
            (Some(format), [_, files @ ..]) if !files.is_empty() => of_programs(format, files),
            (Some(format), _) => {
                Err(CliError::usage(format!("name the files that {} wrote", format.name())))
            }
            (None, [report]) => {
                let results = of_report(report)?;
                Ok(ImportOutcome { results, records: Vec::new(), left_out: Vec::new() })
            }
            (None, _) => {
                let names = FORMATS.map(ImportFormat::name).join(", ");
                let message = format!("name one report, or a program ({names}) and its files");
                Err(CliError::usage(message))
            }
        }
    }
}

/// The program of this name whose output a plan reads, if there is no file of that name.
fn parser_of(word: &Path) -> Option<Parser> {
    word.to_str().filter(|_| !word.exists())?.parse().ok()
}

fn of_programs(format: ImportFormat, files: &[PathBuf]) -> Result<ImportOutcome, CliError> {
    let mut contents: Vec<(String, Vec<u8>)> = Vec::new();
    let mut unread = Vec::new();
    for path in files {
        check_no_folder(path, format.name())?;
        let file = path.display().to_string();
        match files::read(path, LARGEST as u64) {
            Ok(bytes) => contents.push((file, bytes)),
            Err(FileError { problem, .. }) => {
                unread.push(ImportError { file, place: String::new(), problem });
            }
        }
    }
    if let (true, Some(error)) = (contents.is_empty(), unread.first()) {
        return Err(CliError::usage(error.to_string()));
    }
    let mut outcome = import_files(format, &contents).map_err(|error| {
        let bytes = contents.iter().find(|(name, _)| *name == error.file).map(|(_, bytes)| bytes);
        let is_other = |kind: &FileKind| !kind.is_of(format);
        let kind = bytes.and_then(|bytes| FileKind::detect(bytes)).filter(is_other);
        let hint = kind
            .map_or_else(String::new, |kind| format!("; {}", kind.suggest_command(&error.file)));
        CliError::usage(format!("{error}{hint}"))
    })?;
    outcome.leave_out(unread);
    Ok(outcome)
}

fn of_report(path: &Path) -> Result<Results, CliError> {
    check_no_folder(path, "PROGRAM")?;
    let bytes = files::read(path, LARGEST_REPORT as u64)
        .map_err(|error| CliError::usage(error.to_string()))?;
    read_report(&bytes).map_err(|error| {
        let name = path.display().to_string();
        let is_other = |kind: &FileKind| *kind != FileKind::Report;
        let kind = FileKind::detect(&bytes).filter(is_other);
        let why = kind.map_or_else(|| error.to_string(), |kind| kind.suggest_command(&name));
        CliError::usage(format!("{name}: {why}"))
    })
}

/// Refuses a folder in the place of a file of `program`: its files are to be named.
fn check_no_folder(path: &Path, program: &str) -> Result<(), CliError> {
    if path.is_dir() {
        let folder = path.display().to_string();
        // As `latput report -o X.flent` makes it.
        let is_flent = path.extension().is_some_and(|end| end == "flent");
        let (program, files) = match program {
            "flent" => (program, "*.flent.gz"),
            _ if is_flent => ("flent", "*.flent.gz"),
            _ => (program, "*"),
        };
        let word = shell_word(folder.trim_end_matches('/'));
        return Err(CliError::usage(format!(
            "{folder} is a folder: name its files, as in `latput import {program} {word}/{files} -o RESULTS`"
        )));
    }
    Ok(())
}

/// Tests that a results file has already.
#[derive(Clone, Copy, Debug, Default)]
struct KnownTests {
    dropped: usize,
    /// Dropped tests that have other figures there.
    differing: usize,
}

/// Drops the rows of tests that an earlier import into the file has. A test with neither a time nor a known record may be
/// another one with the same few figures ([`is_same_content`]). One with the name of an earlier one is that test, whichever
/// end wrote of it.
fn drop_known(
    results: &mut Results,
    records: &[Option<TestRecord>],
    results_db: &ResultsDb,
) -> Result<KnownTests, CliError> {
    let mut tests = KnownTests::default();
    let mut rows: Vec<(Row, Option<TestRecord>)> = std::mem::take(&mut results.rows)
        .into_iter()
        .zip(records.iter().copied().chain(std::iter::repeat(None)))
        .collect();
    for run in results_db.list_runs()? {
        let earlier = results_db.load_run(run.id)?;
        if earlier.testbed != results.testbed {
            continue;
        }
        let known = known_records(&earlier.notes);
        let label = |settings: &[LabelledSetting], row: &Row| {
            settings.get(row.setting).map(|setting| setting.label.clone())
        };
        rows.retain(|(row, record)| {
            let kept = LazyCell::new(|| as_kept(&row.observation));
            let is_recorded = record.is_some_and(|record| known.contains(&record));
            let is_identified = row.started_unix_ms > 0 || is_recorded;
            let is_there = earlier.rows.iter().any(|other| {
                other.started_unix_ms == row.started_unix_ms
                    && is_same_content(&other.observation, &kept, is_identified)
                    && earlier.workloads.get(other.workload) == results.workloads.get(row.workload)
                    && label(&earlier.settings, other) == label(&results.settings, row)
            });
            let is_named = is_recorded && matches!(record, Some(TestRecord::Name(_)));
            tests.dropped += usize::from(is_there || is_named);
            tests.differing += usize::from(is_named && !is_there);
            !is_there && !is_named
        });
    }
    results.rows = rows.into_iter().map(|(row, _)| row).collect();
    results.planned_trials = results.rows.len() as u64;
    Ok(tests)
}

/// The observation as a results file gives it back: its JSON is read with an error in the last binary digit of some
/// figures.
fn as_kept(observation: &Observation) -> Observation {
    let text = serde_json::to_string(observation);
    text.and_then(|text| serde_json::from_str(&text)).unwrap_or_else(|_| observation.clone())
}

/// Stores the results as a finished run; returns its number.
fn store_results(results: &Results, results_db: &mut ResultsDb) -> Result<i64, CliError> {
    let header = Results { rows: Vec::new(), ..results.clone() };
    // The time of the tests, by which `latput history` sorts; not all files tell it.
    let times = results.rows.iter().map(|row| row.started_unix_ms).filter(|time| *time > 0);
    let started = times.min().unwrap_or_else(unix_ms);
    let run = results_db.begin_run(&results.name, &results.testbed, started, &header)?;
    for row in &results.rows {
        results_db.append_trial(run, &header, row)?;
    }
    results_db.finish_run(run, &header)?;
    results_db.checkpoint_log()?;
    Ok(run)
}
