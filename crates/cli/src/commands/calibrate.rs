//! `latput calibrate`: fits a profile's few costs to cells.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use latput_calibrate::{CostCombination, ErrorSummary, FittedCost};
use latput_linux::confine::UsedFiles;
use latput_report::plain::render_table;
use latput_reproduce::calibrate::parts::{self, ValidationPart};
use latput_reproduce::calibrate::{
    FitHeldOut, FitPlan, FitResult, HeldOut, PartOfFits, PublishedCells, calibrate_profile,
    errors_held_out,
};
use latput_reproduce::{CsvTable, SystemCatalog};
use latput_results::Shard;

use crate::commands::reproduce::load_systems;
use crate::commands::run::read_text;
use crate::context::{CliContext, keep_only_files};
use crate::exit::CliError;
use crate::{output, parallel};

/// Number of printed figures, those with the largest held-out errors.
const WORST: usize = 10;

/// Fit a system's profile to published cells.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput calibrate --cells tcp_rr_aggregate.csv --system rx1620-e1000 -o rx1620-e1000.toml
  latput calibrate --cells a.csv --cells b.csv --validate -o profile.toml
  latput calibrate --cells a.csv --validate --shard 3/8 -o part3.toml    one of 8 processes
  latput calibrate --cells a.csv --merge part*.toml -o profile.toml      as one process with --validate

Costs that the cells do not determine stay near their start values (data/calibration.toml). Their intervals
are printed, and the combinations that are determined. Cells in data/anomalies.toml are left out.")]
pub(crate) struct Args {
    /// Files of cells, in the format of the published files.
    #[arg(long, value_name = "FILE", required = true)]
    cells: Vec<PathBuf>,
    /// The profile; needed when the cells are of several machines.
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Take the plan (which costs are free, where searches begin) from this file, in the form of data/calibration.toml.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Start from this profile instead of the shipped one.
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,
    /// Also fit without parts of the cells, choose `steal_after_ns` without them too, and print the
    /// errors there. It takes many times as long.
    #[arg(long)]
    validate: bool,
    /// Make only every N-th of the fits without parts of the cells, and write them to -o for --merge.
    #[arg(long, value_name = "K/N", requires = "validate")]
    shard: Option<Shard>,
    /// Join these files of all shards: the answer is that of one process with --validate.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "validate")]
    merge: Vec<PathBuf>,
    /// Write each held-out figure and its prediction to this file (JSON).
    #[arg(long, value_name = "FILE", conflicts_with = "shard")]
    held_out: Option<PathBuf>,
    /// The former name of `--held-out`.
    #[arg(long, hide = true, value_parser = |_: &str| Err::<PathBuf, _>("the flag is called --held-out now"))]
    left_out: Option<PathBuf>,
    /// Write the profile to this file; with --shard the fits.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Cells, profile and plan of a fit.
struct FitInputs {
    plan: FitPlan,
    cells: PublishedCells,
    systems: SystemCatalog,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        if self.held_out.is_some() && !self.validate && self.merge.is_empty() {
            return Err(CliError::usage("--held-out needs --validate or --merge"));
        }
        let reads = self.cells.iter().chain(&self.plan).chain(&self.profile).chain(&self.merge);
        let outputs = self.held_out.iter().chain([&self.output]);
        keep_only_files(&UsedFiles::new(
            reads.map(PathBuf::as_path),
            outputs.map(PathBuf::as_path),
        ))?;
        let given = self.read_inputs()?;
        let FitInputs { plan, cells, systems } = &given;
        if let Some(shard) = self.shard {
            let fits = parts::fits_count(plan, cells);
            if shard.count() as usize > fits {
                let problem = format!("--shard {shard}: there are {fits} fits: take fewer shards");
                return Err(CliError::usage(problem));
            }
        }
        let joined = self.merge_shards(&given)?;
        let part = self.shard.map_or(PartOfFits::WHOLE, |shard| PartOfFits {
            number: shard.number(),
            count: shard.count(),
        });
        let stop = &context.stop;
        let run_all = |jobs: &[_]| {
            let run = |(experiment, seed): &(latput_reproduce::Experiment, u64)| {
                experiment.run(*seed).unwrap_or_default()
            };
            parallel::map(jobs, stop, None, run).unwrap_or_else(|| vec![Vec::new(); jobs.len()])
        };
        let said = &mut |text: String| output::print_remark(&text);
        let validate = self.validate.then_some(part);
        let mut fit = calibrate_profile(plan, cells, systems, validate, &run_all, said)
            .map_err(|error| CliError::usage(error.to_string()))?;
        if stop.is_raised() {
            return Err(CliError::new(
                crate::exit::ExitReason::Failed,
                "stopped; nothing was written",
            ));
        }
        if self.shard.is_some() {
            let made_by = parts::made_by(plan, cells, systems);
            let written = ValidationPart::new(made_by, part, fit.validation);
            let text =
                toml::to_string(&written).map_err(|error| CliError::usage(error.to_string()))?;
            output::write_file(&self.output, &text)?;
        } else {
            fit.validation.extend(joined);
            self.write(&fit, cells.anomalies)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the files and options.
    fn read_inputs(&self) -> Result<FitInputs, CliError> {
        let systems = load_systems(&self.profile)?;
        let mut files = Vec::new();
        for path in &self.cells {
            let shown = path.display().to_string();
            let table = CsvTable::parse(&read_text(path)?)
                .map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
            files.push((shown, table));
        }
        let name = match &self.system {
            Some(name) => name.clone(),
            None => PublishedCells::find_common_profile(&files, &systems)
                .map_err(|error| CliError::usage(error.to_string()))?,
        };
        let plans = match &self.plan {
            Some(path) => FitPlan::parse(&path.display().to_string(), &read_text(path)?),
            None => FitPlan::load_shipped(),
        };
        let plans = plans.map_err(|error| CliError::usage(error.to_string()))?;
        let known = plans.iter().map(|plan| plan.profile.as_str()).collect::<Vec<_>>().join(", ");
        let plan = plans.into_iter().find(|plan| plan.profile == name).ok_or_else(|| {
            CliError::usage(format!(
                "--system {name}: there is no such profile to fit; the profiles are {known}"
            ))
        })?;
        let cells = PublishedCells::from_tables(files, &name, &systems)
            .map_err(|error| CliError::usage(error.to_string()))?;
        Ok(FitInputs { plan, cells, systems })
    }

    /// Writes the profile and what was held out, and prints the fit.
    fn write(&self, fit: &FitResult, anomalies: usize) -> Result<(), CliError> {
        let told = in_words(fit, anomalies);
        let profile = fit.to_toml().map_err(|error| CliError::usage(error.to_string()))?;
        if let Some(path) = &self.held_out {
            let figures = serde_json::to_string_pretty(&held_out(fit).collect::<Vec<_>>())
                .map_err(|error| CliError::usage(error.to_string()))?;
            output::write_file(path, &(figures + "\n"))?;
        }
        output::write_file(&self.output, &profile)?;
        output::print_text(&told)
    }

    /// The fits of all shards; none without --merge.
    fn merge_shards(&self, given: &FitInputs) -> Result<Vec<FitHeldOut>, CliError> {
        if self.merge.is_empty() {
            return Ok(Vec::new());
        }
        let read = |path: &PathBuf| {
            let shown = path.display().to_string();
            let part = latput_sim::profile::read_toml(&read_text(path)?).map_err(|error| {
                CliError::usage(format!("{shown}: no file of --shard: {error}"))
            })?;
            Ok((shown, part))
        };
        let read = self.merge.iter().map(read).collect::<Result<Vec<_>, CliError>>()?;
        parts::join_parts(&given.plan, &given.cells, &given.systems, &read)
            .map_err(|error| CliError::usage(error.to_string()))
    }
}

/// The figures that fits left out.
fn held_out(fit: &FitResult) -> impl Iterator<Item = &HeldOut> {
    fit.validation.iter().flat_map(|fit| &fit.figures)
}

fn in_words(fit: &FitResult, anomalies: usize) -> String {
    let mut text = render_costs(&fit.costs);
    text.push_str(&render_combinations(&fit.combinations, &fit.costs));
    let _ = writeln!(
        text,
        "\nabsolute errors, median and 90th percentile ({anomalies} anomalies left out)"
    );
    append_error_table(&mut text, fit);
    text
}

/// Each fitted cost with its interval, one a line.
pub(crate) fn render_costs(costs: &[FittedCost]) -> String {
    let mut text = String::new();
    for cost in costs {
        let unit = cost.parameter.unit();
        let _ = writeln!(
            text,
            "{:<12} {:>10.2} {unit:<7} 90% {:.2} to {:.2}",
            cost.parameter, cost.value, cost.low, cost.high
        );
    }
    text
}

/// The products of costs that the cells determine.
pub(crate) fn render_combinations(
    combinations: &[CostCombination],
    costs: &[FittedCost],
) -> String {
    let mut text = String::from("\ncombinations of costs (as powers), best known first\n");
    for combination in combinations {
        let known = if combination.deviation_ratio < 0.1 { "identified" } else { "not identified" };
        let deviation = 100.0 * combination.deviation_ratio;
        let _ = write!(text, "+-{deviation:>5.1}% {known:<15}");
        for (weight, cost) in combination.weights.iter().zip(costs) {
            if weight.abs() > 0.25 {
                let _ = write!(text, " {}^{weight:.1}", cost.parameter);
            }
        }
        text.push('\n');
    }
    text
}

fn append_error_table(text: &mut String, fit: &FitResult) {
    let row = |name: String, errors: &ErrorSummary| {
        [
            name,
            errors.count.to_string(),
            format!("{:.1}%", 100.0 * errors.median),
            format!("{:.1}%", 100.0 * errors.p90),
        ]
    };
    let in_sample = fit.in_sample.iter();
    let mut rows: Vec<_> = in_sample
        .map(|(table, errors)| row(table.trim_start_matches("~ ").to_owned(), errors))
        .collect();
    rows.extend(
        errors_held_out(held_out(fit))
            .iter()
            .map(|(name, errors)| row(format!("held out: {name}"), errors)),
    );
    let header = ["table", "figures", "median", "90th"];
    text.push_str(&render_table(header, rows, 1..=3, output::stdout_screen().columns));
    let mut worst: Vec<&HeldOut> = held_out(fit).collect();
    worst.sort_by(|a, b| b.error_ratio().abs().total_cmp(&a.error_ratio().abs()));
    for figure in worst.iter().take(WORST) {
        let HeldOut { what, column, published, predicted, .. } = figure;
        let error = 100.0 * figure.error_ratio();
        let _ = writeln!(
            text,
            "  {error:+.0}%  {what}, {column}: {published}, predicted {predicted:.4}"
        );
    }
}
