//! `latput model fit`: fits the costs of a byte, a packet, an interrupt and a poll.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_model::fit::{CostModel, CostObstacle, FittedTerm};
use latput_model::{CostTerm, fit_cost_models};
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
const INTERVALS: &str = "profile of the residual squares with Student's t over cells";
/// Number of cells that are listed with their errors.
const WORST: usize = 3;

/// Fit the costs of a byte, a packet, an interrupt and a poll on each host to the rows of a results
/// file: CPU time = a bytes + b packets + g interrupts (+ polls + background), no cost below zero.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput model fit latput-results.db                        every host of the newest run
  latput model fit kept.db --workload tcp_stream            of one workload: others have other costs
  latput model fit kept.db --confidence 95% --json

A cost that the rows do not determine is refused, and the knobs to vary are named: message sizes or `mtu`
separate bytes from packets, `rx-usecs` separates packets from interrupts, `gro-flush-timeout` with
`napi-defer-hard-irqs` separates interrupts from polls. A cell (a setting under a workload) counts once, by
the medians of its runs. The costs hold for the workloads of the plan: the cost of a packet or an interrupt
includes the work that comes with it, such as system calls and wake-ups.")]
pub(crate) struct Args {
    /// The results file.
    file: PathBuf,
    /// Run number in the file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// Only workloads with this in their name; may be repeated.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Confidence of the intervals, such as `95%`; by default that of the run.
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
            None => results.confidence,
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
        let _ = writeln!(
            text,
            "{} ({}): {}, intervals at {}%",
            model.host,
            model.role.name(),
            format_count(model.cells, "cell"),
            (model.confidence * 1e4).round() / 100.0
        );
        for fitted in &model.terms {
            let _ = writeln!(
                text,
                "  {:<15} {}",
                format!("per {}", fitted.term.unit()),
                describe_term(fitted)
            );
        }
        let _ = writeln!(text, "  fit: {}", describe_errors(model));
        append_worst_cells(&mut text, results, model);
        text.push('\n');
    }
    let _ = writeln!(text, "Intervals: {INTERVALS}.");
    text
}

/// The errors of the fit, or the reason why they say nothing.
fn describe_errors(model: &CostModel) -> String {
    let (Some(median), Some(p90), Some(condition)) =
        (model.error_quantile(0.5), model.error_quantile(0.9), model.condition_number)
    else {
        return "it has as many parameters as cells, so that nothing is left to judge it by"
            .to_owned();
    };
    if model.is_explained_by_seconds() {
        return "every cell used the same CPU time, as where the CPUs are always busy. So it cannot be judged, and the \
                costs say nothing: measure at a lower rate"
            .to_owned();
    }
    format!(
        "off by at most {:.1}% in half of the cells, {:.1}% in nine of ten; condition number {condition:.1}",
        100.0 * median,
        100.0 * p90
    )
}

/// The cells with the largest errors, if those are large.
fn append_worst_cells(text: &mut String, results: &Results, model: &CostModel) {
    let mut cells = model.errors.clone();
    cells.sort_by(|a, b| b.error_ratio.abs().total_cmp(&a.error_ratio.abs()));
    for cell in cells.iter().take(WORST).filter(|cell| cell.error_ratio.abs() > 0.1) {
        let _ = writeln!(
            text,
            "    {:+.0}% for {} under {}",
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
            return format!(
                "{}, {} to {}; {:.0}% of the CPU time",
                scale.with_unit(cost.ns),
                scale.number(cost.ns_low),
                scale.number(cost.ns_high),
                100.0 * cost.share
            );
        }
        Err(refusal) => refusal,
    };
    let why = match refusal.why {
        CostObstacle::NotCounted => "this host does not count them".to_owned(),
        CostObstacle::NeverHappened => "there were none".to_owned(),
        CostObstacle::TooFewCells => "too few cells: any cost would fit".to_owned(),
        CostObstacle::MovesWith(other)
            if fitted.term == CostTerm::Poll || fitted.term == CostTerm::Background =>
        {
            format!("they vary with the {}, whose cost includes them", other.plural())
        }
        CostObstacle::MovesWith(other) => format!("cannot be told from {}", other.plural()),
        CostObstacle::Uncertain => {
            "varies too little apart from the others for this noise".to_owned()
        }
    };
    if refusal.vary.is_empty() {
        format!("unknown: {why}")
    } else {
        format!("unknown: {why}. Vary {}", refusal.vary)
    }
}
