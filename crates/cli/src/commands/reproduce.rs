//! `latput reproduce`: simulates published experiments and prints the error of every cell.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_linux::confine::UsedFiles;
use latput_report::plain::render_table;
use latput_reproduce::cells::{CellFile, RowPrediction};
use latput_reproduce::predict::summarize_runs;
use latput_reproduce::published::{
    self, AccuracyTarget, FILES, ReproducedFigure, Reproduction, TableErrors,
};
use latput_reproduce::row::RowErrorKind;
use latput_reproduce::{CsvTable, Experiment, Provenance, SystemCatalog, delay_mtu, html, parts};
use latput_results::Shard;
use latput_sim::{InvalidValue, SystemProfile};
use latput_units::text::format_count;

use crate::commands::run::read_text;
use crate::context::{CliContext, keep_only_files};
use crate::exit::{CliError, ExitReason};
use crate::parallel::JobProgress;
use crate::{output, parallel};

/// Seed of the claims. One run of each cell is enough, because claims rest on whole curves.
const CLAIMS_SEED: u64 = 0;

/// Simulate published experiments, with each error.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput reproduce                                   every published cell
  latput reproduce tcp_rr_aggregate binding_rr_single    these files
  latput reproduce A04 A05                           these tables
  latput reproduce coalescing_mtu                    the claims on receive delay and MTU
  latput reproduce T006 T058                         these claims
  latput reproduce --report reproduce.html           and one HTML file with pictures
  latput reproduce --cells mine.csv -o predicted.csv any cells in the format of a published file
  latput reproduce --cells mine.csv --shard 3/16 -o part3.csv    one of 16 parts, on any machine
  latput reproduce --cells mine.csv --merge part*.csv -o predicted.csv    the bytes of one process

A published figure is printed beside its prediction and never used for it. Predictions come from the profiles
(data/systems) and the simulation. Rows of a machine without a profile have a reason instead of a prediction,
and the exit code is 6.")]
pub(crate) struct Args {
    /// Files or tables of published cells, or claims; by default all.
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
    /// Predict the cells of this file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tables", "report"])]
    cells: Option<PathBuf>,
    /// Write the rows with their predictions to this file instead of stdout.
    #[arg(short, long, value_name = "FILE", requires = "cells")]
    output: Option<PathBuf>,
    /// Predict only every COUNT-th row of the cells, from the NUMBER-th: `3/16`, or counted from 0 `index:2/16`.
    #[arg(long, value_name = "NUMBER/COUNT", requires = "output")]
    shard: Option<Shard>,
    /// Predict nothing: join these files of all shards of the cells.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "cells", conflicts_with_all = ["shard", "tables"])]
    merge: Vec<PathBuf>,
    /// Use this profile instead of the shipped one of its name; may be repeated.
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,
    /// Runs of each cell, each with its own start phases.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(2..=1_000))]
    seeds: u64,
    /// Also write one HTML file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print every cell, not only tables and targets.
    #[arg(short, long)]
    verbose: bool,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let reads = self.cells.iter().chain(&self.merge).chain(&self.profile);
        let outputs = self.output.iter().chain(&self.report);
        keep_only_files(&UsedFiles::new(
            reads.map(PathBuf::as_path),
            outputs.map(PathBuf::as_path),
        ))?;
        let systems = load_systems(&self.profile)?;
        match &self.cells {
            Some(path) => self.predict_file(path, &systems, context),
            None => self.reproduce_tables(&systems, context),
        }
    }

    fn predict_file(
        &self,
        path: &Path,
        systems: &SystemCatalog,
        context: &CliContext,
    ) -> Result<ExitCode, CliError> {
        let shown = path.display();
        let text = read_text(path)?;
        let mut file = CellFile::read(&text, systems)
            .map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
        let table = if self.merge.is_empty() {
            self.predicted_shard(&mut file, systems, context)?
        } else {
            self.merge_shards(&file, systems)?
        };
        if context.json {
            let rows = table.rows.iter().map(|row| {
                let fields = table.header.iter().cloned().zip(row.iter().cloned());
                fields.map(|(name, value)| (name, value.into())).collect::<serde_json::Map<_, _>>()
            });
            let rows: Vec<_> = rows.collect();
            output::print_json(&serde_json::json!({ "schema": 1, "rows": rows }))?;
        }
        match &self.output {
            Some(path) => output::write_file(path, &table.to_csv())?,
            None if !context.json => output::print_data(&table.to_csv())?,
            None => {}
        }
        let mut unknown = 0;
        for error in file.rows.iter().filter_map(|row| row.as_ref().err()) {
            if error.kind == RowErrorKind::UnknownMachine {
                output::print_remark(&format!("{shown}: {error}"));
                unknown += 1;
            }
        }
        Ok(if unknown > 0 { ExitCode::from(ExitReason::Partial as u8) } else { ExitCode::SUCCESS })
    }

    /// The predictions of the file, or of this shard of it, whose rows it then keeps.
    fn predicted_shard(
        &self,
        file: &mut CellFile,
        systems: &SystemCatalog,
        context: &CliContext,
    ) -> Result<CsvTable, CliError> {
        if let Some(shard) = self.shard {
            let count = file.rows.len();
            if u32::try_from(count).is_ok_and(|count| count < shard.count()) {
                let problem = format!(
                    "--shard {shard}: this part has {}: take fewer shards",
                    format_count(count, "row")
                );
                return Err(CliError::usage(problem));
            }
            file.keep_rows(|place| shard.has_trial(place as u64));
        }
        let predictions = predict_rows(&[file], self.seeds, context)?;
        let table = file.with_predictions(&predictions[0]);
        Ok(match self.shard {
            Some(shard) => {
                let made_by = parts::describe_origin(self.seeds, systems);
                parts::mark_part(table, shard.number(), shard.count(), &made_by)
            }
            None => table,
        })
    }

    /// The files of all shards as one.
    fn merge_shards(&self, file: &CellFile, systems: &SystemCatalog) -> Result<CsvTable, CliError> {
        let mut tables = Vec::new();
        for path in &self.merge {
            let shown = path.display().to_string();
            let table = CsvTable::parse(&read_text(path)?)
                .map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
            tables.push((shown, table));
        }
        parts::join_parts(file, &tables, &parts::describe_origin(self.seeds, systems))
            .map_err(|error| CliError::usage(error.to_string()))
    }

    fn reproduce_tables(
        &self,
        systems: &SystemCatalog,
        context: &CliContext,
    ) -> Result<ExitCode, CliError> {
        let mut files = Vec::new();
        for (name, _) in FILES {
            let mut file = published::load_cell_file(name, systems)
                .expect("the name is of the list")
                .map_err(|error| CliError::usage(format!("{name}: {error}")))?;
            if !self.tables.is_empty() && !self.tables.iter().any(|table| table == name) {
                file.keep_tables(&self.tables);
            }
            if !file.rows.is_empty() {
                files.push((name, file));
            }
        }
        let is_whole = |table: &String| table == delay_mtu::FILE;
        let all_claims = self.tables.is_empty() || self.tables.iter().any(is_whole);
        let has_claims = all_claims || self.tables.iter().any(|id| delay_mtu::has_row(id));
        if files.is_empty() && !has_claims {
            let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
            return Err(CliError::usage(format!(
                "there are no published cells or claims of {}. Name {}, {}, their tables such as A04 or \
                 B2_agg, or claims such as T006",
                self.tables.join(", "),
                names.join(", "),
                delay_mtu::FILE
            )));
        }
        let all: Vec<&CellFile> = files.iter().map(|(_, file)| file).collect();
        let predictions = predict_rows(&all, self.seeds, context)?;
        let compared: Vec<_> = files
            .iter()
            .zip(&predictions)
            .map(|((name, file), predicted)| (*name, file, predicted.as_slice()))
            .collect();
        let provenance = Provenance::load_shipped(systems);
        let mut reproduction = published::compare_predictions(&compared, systems, &provenance);
        if has_claims {
            let claims = check_claims(systems, &provenance, context)?;
            reproduction.add_claims(if all_claims { claims } else { self.select_claims(claims)? });
        }
        if let Some(path) = &self.report {
            output::write_file(path, &html::render_page(&reproduction))?;
        }
        if context.json {
            output::print_json(&reproduction)?;
        } else {
            let every_cell = self.verbose || !self.tables.is_empty();
            output::print_text(&in_words(
                &reproduction,
                every_cell,
                output::stdout_screen().columns,
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Args {
    /// The claims that are named. One that is not checked is refused.
    fn select_claims(
        &self,
        mut claims: Vec<delay_mtu::PublishedClaim>,
    ) -> Result<Vec<delay_mtu::PublishedClaim>, CliError> {
        let is_checked = |id: &String| claims.iter().any(|claim| claim.id == *id);
        if let Some(id) = self.tables.iter().find(|id| delay_mtu::has_row(id) && !is_checked(id)) {
            let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
            return Err(CliError::usage(format!(
                "{id} of {} is not a claim that can be checked; those are {}",
                delay_mtu::FILE,
                ids.join(", ")
            )));
        }
        claims.retain(|claim| self.tables.contains(&claim.id));
        Ok(claims)
    }
}

/// The claims on receive delay and MTU, checked on simulated runs.
fn check_claims(
    systems: &SystemCatalog,
    provenance: &Provenance,
    context: &CliContext,
) -> Result<Vec<delay_mtu::PublishedClaim>, CliError> {
    let profile = systems.expect_profile(delay_mtu::PROFILE);
    let cells = delay_mtu::list_cells();
    let seen = simulate_jobs(&cells, context, |cell| cell.run(profile, CLAIMS_SEED))?;
    Ok(delay_mtu::Sweep::from_results(seen).check_claims(profile, provenance))
}

/// The results of all jobs, run in parallel with a progress bar.
fn simulate_jobs<J: Sync, T: Send>(
    jobs: &[J],
    context: &CliContext,
    run: impl Fn(&J) -> Result<T, InvalidValue> + Sync,
) -> Result<Vec<T>, CliError> {
    let progress = JobProgress::new(jobs.len(), "runs");
    let runs = parallel::map(jobs, &context.stop, Some(&progress), run);
    progress.finish_jobs();
    let runs =
        runs.ok_or_else(|| CliError::new(ExitReason::Failed, "stopped; nothing was written"))?;
    let runs: Result<Vec<T>, InvalidValue> = runs.into_iter().collect();
    runs.map_err(|invalid| CliError::usage(format!("a scenario is refused: {invalid}")))
}

/// The shipped profiles, with these replacing those of their names.
pub(crate) fn load_systems(profiles: &[PathBuf]) -> Result<SystemCatalog, CliError> {
    let mut systems = SystemCatalog::load_shipped();
    for path in profiles {
        let shown = path.display();
        let profile: SystemProfile = latput_sim::profile::read_toml(&read_text(path)?)
            .map_err(|error| CliError::usage(format!("{shown}: {error}")))?;
        if profile.schema != latput_sim::profile::SCHEMA {
            let found = profile.schema;
            let wanted = latput_sim::profile::SCHEMA;
            return Err(CliError::usage(format!("{shown}: schema is {found}, must be {wanted}")));
        }
        if systems.find_profile(&profile.name).is_none() {
            let names: Vec<&str> = systems.profile_names().collect();
            let known = names.join(", ");
            let name = &profile.name;
            return Err(CliError::usage(format!(
                "{shown}: no published machine uses a profile `{name}`; the profiles are {known}"
            )));
        }
        systems.replace_profile(profile);
    }
    Ok(systems)
}

/// Predictions of every row of every file, in parallel.
fn predict_rows(
    files: &[&CellFile],
    seeds: u64,
    context: &CliContext,
) -> Result<Vec<Vec<Option<RowPrediction>>>, CliError> {
    let mut jobs: Vec<(&Experiment, u64)> = Vec::new();
    for experiment in files.iter().flat_map(|file| &file.rows).flatten() {
        jobs.extend((0..experiment.run_count(seeds)).map(|seed| (experiment, seed)));
    }
    let runs = simulate_jobs(&jobs, context, |(experiment, seed)| experiment.run(*seed))?;
    let mut rest = runs.as_slice();
    let rows = |file: &&CellFile| {
        let row = |row: &Result<Experiment, _>| {
            let count = usize::try_from(row.as_ref().ok()?.run_count(seeds)).ok()?;
            let (these, others) = rest.split_at(count);
            rest = others;
            Some(summarize_runs(these))
        };
        file.rows.iter().map(row).collect()
    };
    Ok(files.iter().map(rows).collect())
}

fn in_words(reproduction: &Reproduction, every_cell: bool, columns: usize) -> String {
    let mut text = String::new();
    if every_cell && !reproduction.figures.is_empty() {
        let row = |it: &ReproducedFigure| {
            [
                it.table.clone(),
                it.what.clone(),
                it.column.clone(),
                format!("{:.2}", it.published),
                format!("{:.2}", it.predicted),
                format!("{:.2} .. {:.2}", it.predicted_lo, it.predicted_hi),
                format!("{:+.1}%", 100.0 * it.error_ratio),
                it.anomaly.as_ref().map_or(String::new(), |_| "anomaly".to_owned()),
            ]
        };
        let header = ["table", "cell", "column", "published", "predicted", "90% band", "error", ""];
        text +=
            &(render_table(header, reproduction.figures.iter().map(row), 3..=6, columns) + "\n");
    }
    for it in &reproduction.claims {
        let mark = if it.holds { "holds " } else { "MISSED" };
        let _ = writeln!(text, "{mark}  {} {}", it.id, it.claim);
        let _ = writeln!(text, "        simulated: {} (wanted: {})", it.seen, it.wanted);
    }
    if !reproduction.claims.is_empty() {
        text.push('\n');
    }
    let row = |it: &TableErrors| {
        [
            it.file.clone(),
            it.table.clone(),
            it.scale.clone(),
            it.figures.to_string(),
            format!("{:.1}", 100.0 * it.median_error_ratio),
            format!("{:.1}", 100.0 * it.p90_error_ratio),
        ]
    };
    let header = ["file", "table", "of", "figures", "median", "90th"];
    if !reproduction.tables.is_empty() {
        text += "Absolute errors, in % or points\n";
        text += &(render_table(header, reproduction.tables.iter().map(row), 3..=5, columns) + "\n");
    }
    for target in &reproduction.targets {
        append_target(&mut text, target, reproduction);
    }
    text
}

/// A target with its label, its rows and profiles, and the result of its predicted rows alone.
fn append_target(text: &mut String, target: &AccuracyTarget, reproduction: &Reproduction) {
    let AccuracyTarget { name, label, rows, wanted, seen, holds, predicted_alone, profiles } =
        target;
    let mark = |holds: bool| if holds { "holds " } else { "MISSED" };
    let label = label.name();
    let _ = writeln!(text, "{}  {label:<9}  {name}: {seen} (wanted: {wanted})", mark(*holds));
    if let Some(alone) = predicted_alone {
        let seen = &alone.seen;
        let wanted = &alone.wanted;
        let mark = mark(alone.holds);
        let _ =
            writeln!(text, "{mark}             predicted rows alone: {seen} (wanted: {wanted})");
    }
    let _ = writeln!(
        text,
        "                   rows: {} fitted, {} hand-set, {} predicted",
        rows.fitted, rows.hand_set, rows.predicted
    );
    for profile in reproduction.profiles.iter().filter(|it| profiles.contains(&it.profile)) {
        let _ = writeln!(
            text,
            "                   {}: {} fitted to {}, {} by hand",
            profile.profile,
            format_count(profile.free_costs.len(), "free cost"),
            format_count(profile.fitted_rows, "row"),
            format_count(profile.hand_set.len(), "constant")
        );
    }
}
