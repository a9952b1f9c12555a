//! `latput report`: tables and pictures of a results file.

mod flent_files;
mod format;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_model::{Goal, PredictionReport, ResultsSummary, ShortLabels, compare_prediction};
use latput_report::{
    html_with_trials, prediction, redact_results, render_csv, render_html, render_json,
    render_markdown, render_terminal,
};
use latput_results::ResultsDb;
use latput_trial::today::TODAY;
use latput_trial::{Results, Workload};
use latput_units::text::{format_count, format_utc};

use self::format::ReportFormat;
use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;

mod compare;

/// Tables and pictures of a results file.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput report latput-results.db                          the tables, here
  latput report latput-results.db -o report.html           one HTML file that works offline
  latput report latput-results.db --share -o out.html      the same without names and addresses, to be
                                                           imported elsewhere
  latput report latput-results.db --format csv > runs.csv  one line per trial
  latput report latput-results.db -o up.flent              data file for flent (`docs/peers.md`)
  latput report latput-results.db --goal cpu               the same trials, judged for least CPU
  latput report --compare before.db after.db               what changed, with intervals and verdicts
  latput report --compare kept.db#1 kept.db#2              two runs of one file
  latput report kept.db --compare 0us 50us                 two settings of one run
  latput report --compare before.db#1:50us after.db:50us   one setting, of a run of each file
  latput report --compare before.db after.db --fail-on worse:2% --format junit -o gate.xml
  latput report live.db --predicted simulated.db --fitted tcp_rr@0us -o report.html")]
pub(crate) struct Args {
    /// The results file.
    #[arg(required_unless_present = "compare")]
    file: Option<PathBuf>,
    /// Run number in the file; by default the newest run.
    #[arg(long, value_name = "N", requires = "file")]
    run: Option<i64>,
    /// Compare two settings of FILE (by label or a unique part of it), or without FILE two results
    /// files, each optionally with `#N` for its run N and `:SETTING` for one of its settings.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["list", "goal"])]
    compare: Vec<String>,
    /// Smaller differences are never called better or worse. A figure whose whole interval is below this is called
    /// equivalent. By default 1%.
    #[arg(long, value_name = "PERCENT", requires = "compare", conflicts_with = "fail_on")]
    smallest_effect: Option<String>,
    /// End with exit code 7 if B is proven worse than A in any figure (`worse`, or `worse:2%` for another smallest
    /// effect), or unless every figure rules out a loss of 2% (`unproven:2%`). With nothing to judge the exit code is
    /// 1.
    #[arg(long, value_name = "worse|unproven[:PERCENT]", requires = "compare", value_parser = compare::fail_on)]
    fail_on: Option<compare::FailOn>,
    /// List the runs of the file.
    #[arg(long, conflicts_with_all = ["run", "output", "format", "goal"])]
    list: bool,
    /// Output format; by default that of the suffix of -o (.txt, .html, .csv, .json, .md, .flent.gz), and
    /// `table` without -o.
    #[arg(long, value_enum)]
    format: Option<ReportFormat>,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave out names of hosts, interfaces and people, addresses and paths. An HTML file then holds every trial, and
    /// `latput import` reads it.
    #[arg(long, requires = "file", conflicts_with_all = ["compare", "list", "predicted"])]
    share: bool,
    /// Judge by this goal instead of the run's.
    #[arg(long)]
    goal: Option<String>,
    /// Show this file's predictions beside each figure, with errors and rank correlation: the
    /// results of the same plan on a simulated twin.
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with_all = ["compare", "list"])]
    predicted: Option<String>,
    /// A cell that the twin was calibrated on, such as `tcp_rr@50us`; it counts in no error. May be
    /// repeated.
    #[arg(long, value_name = "WORKLOAD@SETTING", requires = "predicted")]
    fitted: Vec<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let sides = self.compare.iter().map(|name| compare::side_of(name).0);
        let predicted = self.predicted.iter().map(String::as_str);
        let named = sides.chain(predicted).map(|name| file_of(name).0);
        let reads = self.file.as_deref().into_iter().chain(named);
        keep_only_files(&UsedFiles::new(reads, self.output.as_deref()))?;
        if let [first, second] = self.compare.as_slice() {
            return compare::run(&self, context, [first, second]);
        }
        let format = format::choose_format(self.format, self.output.as_deref(), context.json)?;
        let results_db = ResultsDb::open(self.file.as_deref().unwrap_or(Path::new("")))?;
        if self.list {
            return list_runs(context, &results_db);
        }
        let mut results = results_db.load_chosen(self.run)?;
        if let Some(goal) = &self.goal {
            check_goal("--goal", goal, &results.workloads)?;
            results.goal = Some(goal.clone());
        }
        if self.share {
            results = redact_results(&results);
        }
        let summary = ResultsSummary::from_results(&results);
        let screen =
            if self.output.is_none() { output::stdout_screen() } else { output::file_screen() };
        let predicted = self.load_prediction(&results)?;
        let text = match (format, &predicted) {
            (ReportFormat::Html, _) if self.share => html_with_trials(&results, &summary),
            (ReportFormat::Html, _) => render_html(&results, &summary, predicted.as_ref()),
            (ReportFormat::Table, Some(found)) => {
                prediction::render_terminal(found, &results, screen)
            }
            (ReportFormat::Json, Some(found)) => prediction::render_json(found, &results),
            (_, Some(_)) => {
                return Err(CliError::usage("--predicted writes `table`, `html` or `json`"));
            }
            (ReportFormat::Table, None) => render_terminal(&results, &summary, screen),
            (ReportFormat::Csv, None) => render_csv(&results),
            (ReportFormat::Json, None) => render_json(&results, &summary),
            (ReportFormat::Markdown, None) => render_markdown(&results, &summary),
            (ReportFormat::Junit | ReportFormat::Ktap, None) => {
                return Err(CliError::usage("`junit` and `ktap` are formats of --compare"));
            }
            (ReportFormat::Flent, None) => {
                return flent_files::write(&results, self.output.as_deref());
            }
        };
        self.write(&text, format)
    }

    /// The predictions of `--predicted` for these results.
    fn load_prediction(&self, results: &Results) -> Result<Option<PredictionReport>, CliError> {
        let Some(file) = &self.predicted else { return Ok(None) };
        let simulated = load_results(file)?;
        let fitted = cells_of(results, "--fitted", &self.fitted)?;
        let found = compare_prediction(results, &simulated, &fitted);
        if found.columns.is_empty() {
            let message =
                "--predicted: the two files have no cell in common; run the same plan on the twin";
            return Err(CliError::usage(message));
        }
        Ok(Some(found))
    }

    fn write(&self, text: &str, format: ReportFormat) -> Result<ExitCode, CliError> {
        match &self.output {
            Some(path) => output::write_file(path, text)?,
            None if format == ReportFormat::Table => output::print_text(text)?,
            None => output::print_data(text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The file and the run that `FILE` or `FILE#N` names.
pub(super) fn file_of(name: &str) -> (&Path, Option<i64>) {
    let number = name.rsplit_once('#').and_then(|(file, id)| Some((file, id.parse::<i64>().ok()?)));
    match number {
        Some((file, id)) if !Path::new(name).exists() => (Path::new(file), Some(id)),
        _ => (Path::new(name), None),
    }
}

/// The run named by `FILE` or `FILE#N`.
pub(crate) fn load_results(name: &str) -> Result<Results, CliError> {
    let (file, id) = file_of(name);
    Ok(ResultsDb::open(file)?.load_chosen(id)?)
}

/// Today's setting, the one with this label (whole or as tables have it), or the only one whose label contains it.
pub(crate) fn setting_of(results: &Results, name: &str) -> Result<usize, CliError> {
    if name == TODAY && !results.today.is_empty() {
        return Ok(0);
    }
    let labels = || results.settings.iter().map(|setting| setting.label.as_str());
    let parts = |label: &str| label.split([' ', '=']).any(|part| part == name);
    let short = ShortLabels::from_results(results).labels;
    let whole = labels().position(|label| label == name);
    let exact = whole.or_else(|| short.iter().position(|label| label == name));
    let partly: Vec<usize> =
        labels().enumerate().filter(|(_, l)| parts(l)).map(|(i, _)| i).collect();
    match (exact, partly.as_slice()) {
        (Some(setting), _) => Ok(setting),
        (None, [setting]) => Ok(*setting),
        _ => {
            let all: Vec<&str> = labels().collect();
            let found = if partly.is_empty() { "no setting is" } else { "several settings are" };
            let message = format!("{found} `{name}`; the settings are: {}", all.join(", "));
            Err(CliError::usage(message))
        }
    }
}

/// The cells named by `WORKLOAD@SETTING`, by setting and workload.
pub(crate) fn cells_of(
    results: &Results,
    option: &str,
    names: &[String],
) -> Result<BTreeSet<(usize, usize)>, CliError> {
    let cell = |name: &String| {
        let refused = |problem: String| CliError::usage(format!("{option} {name}: {problem}"));
        let (load, label) =
            name.rsplit_once('@').ok_or_else(|| refused("write WORKLOAD@SETTING".to_owned()))?;
        let workload =
            results.workloads.iter().position(|it| it.name == load).ok_or_else(|| {
                let all: Vec<&str> = results.workloads.iter().map(|it| it.name.as_str()).collect();
                refused(format!(
                    "there is no workload `{load}`; the workloads are: {}",
                    all.join(", ")
                ))
            })?;
        Ok((setting_of(results, label)?, workload))
    };
    names.iter().map(cell).collect()
}

fn list_runs(context: &CliContext, results_db: &ResultsDb) -> Result<ExitCode, CliError> {
    let runs = results_db.list_runs()?;
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
        let began = format_utc(run.started_unix_ms / 1000);
        let trials = format_count(run.trials, "trial");
        let _ = writeln!(text, "{:>4}  {began}  {trials}, {state}: {}", run.id, run.name);
    }
    output::print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the tables, or the JSON document, to stdout.
pub(crate) fn print_report(
    context: &CliContext,
    results: &Results,
    summary: &ResultsSummary,
) -> Result<(), CliError> {
    if context.json {
        return output::print_data(&render_json(results, summary));
    }
    output::print_text(&render_terminal(results, summary, output::stdout_screen()))
}

/// Writes the report as one HTML file.
pub(crate) fn write_html(
    path: &Path,
    results: &Results,
    summary: &ResultsSummary,
) -> Result<(), CliError> {
    output::write_file(path, &render_html(results, summary, None))
}

/// Refuses a goal that cannot be read or names a missing workload.
pub(crate) fn check_goal(from: &str, goal: &str, workloads: &[Workload]) -> Result<(), CliError> {
    let goal = Goal::parse(goal).map_err(|error| CliError::usage(format!("{from}: {error}")))?;
    let figures = goal.objective.iter().chain(goal.conditions.iter().map(|bound| &bound.figure));
    for figure in figures {
        if figure.cells_in(workloads).is_empty() {
            let names: Vec<&str> = workloads.iter().map(|load| load.name.as_str()).collect();
            let message = format!(
                "{from}: no workload matches `{figure}`; the workloads are {}",
                names.join(", ")
            );
            return Err(CliError::usage(message));
        }
    }
    Ok(())
}
