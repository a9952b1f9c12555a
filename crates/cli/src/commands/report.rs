//! `latput report`: tables and pictures of a results file.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_experiment::Archive;
use latput_model::Summary;
use latput_report::{csv, flent, html, json, markdown, terminal};
use latput_trial::Results;

use crate::commands::run;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// How the name of a flent data file ends.
const FLENT: &str = ".flent.gz";

/// Tables and pictures of a results file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput report latput-results.db                          the tables, here
  latput report latput-results.db -o report.html           one HTML file that works offline
  latput report latput-results.db --format csv > runs.csv  one line per trial
  latput report latput-results.db -o up.flent.gz           a data file for flent (`docs/peers.md`)
  latput report latput-results.db --goal cpu               the same trials, judged for least CPU")]
pub(crate) struct Args {
    /// The results file.
    file: PathBuf,
    /// Which run of the file; without it the newest.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// List the runs of the file.
    #[arg(long, conflicts_with_all = ["run", "output", "format", "goal"])]
    list: bool,
    /// What to write; without it `html` where -o names an .html file, `flent` where it names a
    /// .flent.gz file, and `table` otherwise.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Judge by another goal than the run's.
    #[arg(long)]
    goal: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Table,
    Html,
    Csv,
    Json,
    Markdown,
    Flent,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let archive = Archive::open(&self.file)?;
        if self.list {
            return list(context, &archive);
        }
        let id = self.run.map_or_else(|| archive.newest(), Ok)?;
        let mut results = archive.load(id)?;
        if let Some(goal) = self.goal {
            run::check_goal("--goal", &goal, &results.workloads)?;
            results.goal = Some(goal);
        }
        let summary = Summary::of(&results);
        let is_html = |path: &PathBuf| path.extension().is_some_and(|end| end == "html");
        let format = self.format.unwrap_or_else(|| match &self.output {
            _ if context.json => Format::Json,
            Some(path) if is_html(path) => Format::Html,
            Some(path) if path.to_string_lossy().ends_with(FLENT) => Format::Flent,
            _ => Format::Table,
        });
        let screen = if self.output.is_none() { output::screen() } else { output::PLAIN };
        let text = match format {
            Format::Table => terminal(&results, &summary, screen),
            Format::Html => html(&results, &summary),
            Format::Csv => csv(&results),
            Format::Json => json(&results, &summary),
            Format::Markdown => markdown(&results, &summary),
            Format::Flent => return write_flent(&results, self.output.as_deref()),
        };
        match &self.output {
            Some(path) => write_file(path, &text)?,
            None => output::print(&text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(context: &Context, archive: &Archive) -> Result<ExitCode, Failure> {
    let runs = archive.runs()?;
    if context.json {
        let runs: Vec<_> = runs
            .iter()
            .map(|run| {
                serde_json::json!({
                    "run": run.id,
                    "name": run.name,
                    "started_unix_ms": run.started_unix_ms,
                    "trials": run.trials,
                    "finished": run.finished,
                })
            })
            .collect();
        output::print_json(&serde_json::json!({ "schema": 1, "runs": runs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for run in runs {
        let state = if run.finished { "complete" } else { "unfinished" };
        let _ = writeln!(text, "{:>4}  {} trials, {state}: {}", run.id, run.trials, run.name);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The tables, or the JSON document, to stdout.
pub(crate) fn print(
    context: &Context,
    results: &Results,
    summary: &Summary,
) -> Result<(), Failure> {
    let text = if context.json {
        json(results, summary)
    } else {
        terminal(results, summary, output::screen())
    };
    output::print(&text)
}

/// The report as one HTML file.
pub(crate) fn write_html(path: &Path, results: &Results, summary: &Summary) -> Result<(), Failure> {
    write_file(path, &html(results, summary))
}

/// One data file, or as many as there are settings under workloads, numbered.
fn write_flent(results: &Results, output: Option<&Path>) -> Result<ExitCode, Failure> {
    let path = output.ok_or_else(|| {
        Failure::usage(format!("--format flent needs -o with a name that ends in {FLENT}"))
    })?;
    let name = path.to_string_lossy();
    let stem = name.strip_suffix(FLENT).ok_or_else(|| {
        Failure::usage(format!("{name}: flent opens only files whose names end in {FLENT}"))
    })?;
    let files = flent(results).map_err(Failure::usage)?;
    if files.is_empty() {
        return Err(Failure::new(Code::Failed, "the run has no finished trial to write"));
    }
    for (number, file) in (1..).zip(&files) {
        let one = files.len() == 1;
        let path = if one { path.to_owned() } else { format!("{stem}-{number}{FLENT}").into() };
        write_bytes(&path, &latput_peers::gzip::pack(&file.text))?;
        output::remark(&format!("{}: {}", path.display(), file.title));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    write_bytes(path, text.as_bytes())
}

/// Replaces a file whole or not at all, so that a full disk leaves no half report.
fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let written = std::fs::File::create(&part)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&part, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&part);
        Failure::new(Code::Failed, format!("cannot write {}: {error}", path.display()))
    })
}
