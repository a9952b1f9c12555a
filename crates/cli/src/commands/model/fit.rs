//! `latput model fit`: fits the CPU time of each event that the kernel counts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_model::fit::{CostModel, CostObstacle, FittedTerm};
use latput_model::fit_cost_models;
use latput_report::explained::{ExplainError, FitDocument, select_workloads};
use latput_results::ResultsDb;
use latput_trial::Results;
use latput_trial::metric::Scale;
use latput_units::text::format_count;

use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::output;
use crate::precision::parse_percent_flag;

/// The method of intervals, for people and for documents.
const INTERVALS: &str = "bootstrap of whole settings, with Student's t";
/// Confidence of the intervals. That of a run is for many comparisons at once.
const CONFIDENCE: f64 = 0.95;
/// Number of cells that are listed with their errors.
const WORST: usize = 3;

/// Fit the CPU time of each event that the kernel counts to the rows of a results file: interrupts,
/// packets, segments, bytes, polls, wake-ups. CPU time = sum of cost x count, no cost below zero.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput model fit latput-results.db                        every host of the newest run
  latput model fit kept.db --workload tcp_stream            of one workload: others have other costs
  latput model fit kept.db --confidence 95% --json

Cross-validation chooses the events: settings are left out in turn, and an event stays in the model only if it
predicts the CPU time of the settings left out better. The cost of one that is left out is in those that it
moves with, and the knobs that would tell them apart are named. A cell (a setting under a workload on a host)
counts once, by the medians of its runs. Hosts that share a kernel are fitted together. The errors are those
of settings that the costs do not know.")]
pub(crate) struct Args {
    /// The results file.
    file: PathBuf,
    /// Run number in the file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// Only workloads with this in their name; may be repeated.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Confidence of the intervals, such as `99%`; by default 95%.
    #[arg(long, value_name = "PERCENT")]
    confidence: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        keep_only_files(&UsedFiles::new([self.file.as_path()], []))?;
        let results_db = ResultsDb::open(&self.file)?;
        let results = results_db.load_chosen(self.run)?;
        let wanted = select_workloads(&results, &self.workload)
            .map_err(|error| explain_error(&self.file, &error))?;
        let confidence = match &self.confidence {
            Some(text) => parse_percent_flag("--confidence", text, 50.0, 99.99)?,
            None => CONFIDENCE,
        };
        let models = fit_cost_models(&results, |workload| wanted[workload], confidence)
            .map_err(|error| explain_error(&self.file, &error.into()))?;
        if context.json {
            output::print_json(&FitDocument::new(&results, &models, INTERVALS))?;
        } else {
            output::print_text(&in_words(&results, &models))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The error with the option or the file that is at fault.
pub(crate) fn explain_error(file: &Path, error: &ExplainError) -> CliError {
    CliError::usage(match error {
        ExplainError::Workload { .. } | ExplainError::Setting { .. } => format!("--{error}"),
        ExplainError::Fit(_) => format!("{}: {error}", file.display()),
    })
}

fn in_words(results: &Results, models: &[CostModel]) -> String {
    let mut text = String::new();
    for model in models {
        let hosts: Vec<String> =
            model.hosts.iter().map(|of| format!("{} ({})", of.host, of.role.name())).collect();
        let _ = writeln!(
            text,
            "{}: {}, intervals at {}%",
            hosts.join(", "),
            format_count(model.cells, "cell"),
            (model.confidence * 1e4).round() / 100.0
        );
        let (known, unknown): (Vec<&FittedTerm>, Vec<&FittedTerm>) =
            model.terms.iter().partition(|fitted| fitted.finding.is_ok());
        for fitted in known.into_iter().chain(unknown) {
            let _ = writeln!(text, "  {:<16} {}", fitted.term.name(), describe_term(fitted));
        }
        let _ = writeln!(text, "  {}", describe_errors(model));
        append_worst_cells(&mut text, results, model);
        text.push('\n');
    }
    let _ = writeln!(text, "Intervals: {INTERVALS}.");
    text
}

/// The errors of settings that were left out, or the reason why they say nothing.
fn describe_errors(model: &CostModel) -> String {
    let (Some(median), Some(p90), Some(condition)) =
        (model.error_quantile(0.5), model.error_quantile(0.9), model.condition_number)
    else {
        return "no cost is known, so that there is nothing to judge".to_owned();
    };
    if model.is_explained_by_background() {
        return "every cell used the same CPU time, as where the CPUs are always busy. So the costs cannot be judged: measure at \
                a lower rate"
            .to_owned();
    }
    format!(
        "settings left out: off by at most {:.1}% in half of the cells, {:.1}% in nine of ten; condition number {condition:.1}",
        100.0 * median,
        100.0 * p90
    )
}

/// The cells with the largest errors, if those are large.
fn append_worst_cells(text: &mut String, results: &Results, model: &CostModel) {
    let mut cells = model.errors.clone();
    cells.sort_by(|a, b| b.error_ratio.abs().total_cmp(&a.error_ratio.abs()));
    for cell in cells.iter().take(WORST).filter(|cell| cell.error_ratio.abs() > 0.1) {
        let host = model.hosts.get(cell.host).map_or("", |of| of.host.as_str());
        let _ = writeln!(
            text,
            "    {:+.0}% for {} under {} on {host}",
            100.0 * cell.error_ratio,
            results.workloads[cell.workload].name,
            results.settings[cell.setting].label
        );
    }
}

/// A term's cost, or the reason for its absence and the factor to vary.
fn describe_term(fitted: &FittedTerm) -> String {
    let refusal = match &fitted.finding {
        Ok(cost) => {
            let scale = Scale::of_time(if cost.ns > 0.0 { cost.ns } else { cost.ns_high });
            let (low, high) = fitted.term.plausible_ns();
            let doubt = if cost.is_plausible(fitted.term) {
                String::new()
            } else {
                format!(
                    "; implausible: expected {} to {}",
                    scale.with_unit(low),
                    scale.with_unit(high)
                )
            };
            return format!(
                "{} each, {} to {}; {:.0}% of the CPU time{doubt}",
                scale.with_unit(cost.ns),
                scale.number(cost.ns_low),
                scale.number(cost.ns_high),
                100.0 * cost.share
            );
        }
        Err(refusal) => refusal,
    };
    let why = match refusal.why {
        CostObstacle::NotCounted => "not counted here".to_owned(),
        CostObstacle::TooRare => "too few to matter".to_owned(),
        CostObstacle::TooFewCells => "unknown: too few cells, any cost would fit".to_owned(),
        CostObstacle::MovesWith(other) => format!("in the cost of {}", other.plural()),
        CostObstacle::Uncertain => "unknown: no term predicts the CPU time".to_owned(),
    };
    if refusal.vary.is_empty() { why } else { format!("{why}. To tell, vary {}", refusal.vary) }
}
