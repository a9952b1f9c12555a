//! Calibration on published cells: the choice of cells, their prediction, and the plans of fits.
//!
//! `latput-calibrate` searches. Residuals are logarithms of predicted over published.

use std::fmt::Write as _;

pub mod parts;
mod plan;
mod validate;

use latput_calibrate::{
    CostCombination, CostSearch, ErrorSummary, FittedCost, FixedParameter, OTHER_SEED,
    SearchEffort, SearchPoint, WeightedResidual,
};
use latput_sim::SystemProfile;
use latput_units::IntoSet;
use latput_units::text::format_count;

pub use self::plan::{FitPlan, PlanError};
pub use self::validate::{FitHeldOut, HeldOut, HeldOutSplit, PartOfFits, errors_held_out};
use crate::anomaly::AnomalyList;
use crate::experiment::{Experiment, SimulatedFigure};
use crate::files::{scale_of, table_of};
use crate::kind::{ErrorScale, ExperimentKind, MeasuredColumn};
use crate::row::{CsvRow, RowError, RowErrorKind};
use crate::setting::ModerationSetting;
use crate::system::SystemCatalog;
use crate::table::CsvTable;

/// CPU figures count half as much as rates.
const CPU_WEIGHT: f64 = 0.5;
/// Share of the offered load from which an open loop is met.
const MET_RATIO: f64 = 0.98;
/// Weight of the prior. Costs of similar machines are known.
const PRIOR_WEIGHT: f64 = 0.02;
/// Distance of the seeds of two runs of a cell, larger than that between cells and searches.
const RUN_APART: u64 = 1_000_000;
/// Most free costs of a fit with usable intervals.
const MOST_FREE: usize = 9;

/// Explains differing clocks of a profile.
const CLOCKS: &str = "\
# clock_ppm is set by hand: no crystal is so far off. Throttles at both ends slide through all phases in tens of
# milliseconds, as real ones do in the minutes of a published run.
";

/// A reason why no fit is possible.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A row with an invalid value.
    #[error("{file}: {error}")]
    Row {
        /// The file.
        file: String,
        /// The error of the row.
        error: RowError,
    },
    /// The file has cells of no known kind.
    #[error("{0}: no kind of published file has these columns")]
    Kind(String),
    /// The files have too few figures for the free parameters.
    #[error(
        "`{profile}` has {}, and for {} there must be at least {}; add cells or fix costs",
        format_count(*cells, "published figure"), format_count(*free, "free cost"), 2 * free
    )]
    TooFew {
        /// The profile.
        profile: String,
        /// Number of figures.
        cells: usize,
        /// Number of free costs.
        free: usize,
    },
    /// The plan uses a parameter that its profile lacks.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The files have no rows.
    #[error("the files have no rows")]
    Empty,
    /// The files have cells of several machines.
    #[error(
        "{file}: row {row}, column `system`: is of `{found}`, the rows before are of `{wanted}`; choose one with --system"
    )]
    Mixed {
        /// The file.
        file: String,
        /// The row.
        row: usize,
        /// Its profile.
        found: String,
        /// The profile of the first row.
        wanted: String,
    },
}

/// A published cell of one machine.
#[derive(Clone, Debug)]
struct PublishedCell {
    kind: ExperimentKind,
    table: usize,
    row: usize,
    group: String,
    setting: String,
    published: Vec<(usize, f64, f64)>,
}

/// Cells of one machine.
#[derive(Clone, Debug)]
pub struct PublishedCells {
    tables: Vec<CsvTable>,
    cells: Vec<PublishedCell>,
    /// Number of cells left out as anomalies.
    pub anomalies: usize,
}

/// Runs experiments with their seeds, in any order or in parallel.
pub type RunAll<'a> = &'a dyn Fn(&[(Experiment, u64)]) -> Vec<Vec<Option<SimulatedFigure>>>;

impl PublishedCells {
    /// The cells of `profile` in files, given as names with tables.
    pub fn from_tables(
        files: Vec<(String, CsvTable)>,
        profile: &str,
        systems: &SystemCatalog,
    ) -> Result<Self, CalibrateError> {
        let anomalies = AnomalyList::load_shipped();
        let mut this = Self { tables: Vec::new(), cells: Vec::new(), anomalies: 0 };
        for (file, table) in files {
            let kind =
                ExperimentKind::detect(&table).ok_or_else(|| CalibrateError::Kind(file.clone()))?;
            let at_row = |error| CalibrateError::Row { file: file.clone(), error };
            for idx in 0..table.rows.len() {
                let row = CsvRow::new(&table, idx);
                if systems.profile_of(kind, &row).map_err(at_row)? != profile {
                    continue;
                }
                let published = read_published_figures(kind, &row).map_err(at_row)?;
                if published.is_empty() || is_arithmetic(kind, &row, systems) {
                    continue;
                }
                if anomalies.find_for_row(&row).is_some() {
                    this.anomalies += 1;
                    continue;
                }
                let group = match table_of(&row) {
                    "" => kind.name(),
                    table => table,
                }
                .to_owned();
                let setting = format_setting(&row).map_err(at_row)?;
                let table = this.tables.len();
                this.cells.push(PublishedCell { kind, table, row: idx, group, setting, published });
            }
            this.tables.push(table);
        }
        Ok(this)
    }

    /// The profile of all rows of these files.
    pub fn find_common_profile(
        files: &[(String, CsvTable)],
        systems: &SystemCatalog,
    ) -> Result<String, CalibrateError> {
        let mut wanted: Option<String> = None;
        for (file, table) in files {
            let kind =
                ExperimentKind::detect(table).ok_or_else(|| CalibrateError::Kind(file.clone()))?;
            for idx in 0..table.rows.len() {
                let row = CsvRow::new(table, idx);
                let found = systems
                    .profile_of(kind, &row)
                    .map_err(|error| CalibrateError::Row { file: file.clone(), error })?;
                let wanted = wanted.get_or_insert_with(|| found.to_owned());
                if wanted != found {
                    let (found, wanted) = (found.to_owned(), wanted.clone());
                    return Err(CalibrateError::Mixed {
                        file: file.clone(),
                        row: idx + 1,
                        found,
                        wanted,
                    });
                }
            }
        }
        wanted.ok_or(CalibrateError::Empty)
    }

    /// Number of published figures.
    pub fn count_figures(&self) -> usize {
        self.cells.iter().map(|cell| cell.published.len()).sum()
    }

    /// The cells that `plan` asks for.
    pub(crate) fn asked_by(&self, plan: &FitPlan) -> Self {
        self.select_cells(|_, cell| plan.only.is_empty() || plan.only.contains(&cell.group))
    }

    /// The row numbers of the cells in their files, from 1.
    pub(crate) fn row_numbers(&self) -> impl Iterator<Item = usize> {
        self.cells.iter().map(|cell| cell.row + 1)
    }

    /// The table, run, test, section or row name of each cell.
    #[cfg(test)]
    fn group_names(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().map(|cell| cell.group.as_str())
    }

    fn setting_names(&self) -> Vec<&str> {
        let settings: std::collections::BTreeSet<&str> =
            self.cells.iter().map(|cell| cell.setting.as_str()).into_set();
        settings.into_iter().collect()
    }

    fn select_cells(&self, keep: impl Fn(usize, &PublishedCell) -> bool) -> Self {
        let cells = self.cells.iter().enumerate().filter(|(idx, cell)| keep(*idx, cell));
        Self {
            tables: self.tables.clone(),
            cells: cells.map(|(_, cell)| cell.clone()).collect(),
            anomalies: 0,
        }
    }
}

/// Whether the text computes the row instead of reporting a run.
fn is_arithmetic(kind: ExperimentKind, row: &CsvRow<'_>, systems: &SystemCatalog) -> bool {
    let error = Experiment::from_row(kind, row, systems).err();
    error.is_some_and(|error| error.kind == RowErrorKind::NotSimulated)
}

/// The figures of a row: index, value and weight. Utilisation and service demand are one figure.
fn read_published_figures(
    kind: ExperimentKind,
    row: &CsvRow<'_>,
) -> Result<Vec<(usize, f64, f64)>, RowError> {
    let mut figures = Vec::new();
    for (idx, measured) in kind.measured_columns().iter().enumerate() {
        if kind == ExperimentKind::IrqSuspension {
            let weight = weigh_server_figure(row, measured.column)?;
            let value = row.parse_figure(measured.column)?.filter(|value| *value > 0.0);
            figures.extend(weight.zip(value).map(|(weight, value)| (idx, value, weight)));
            continue;
        }
        let weight = match scale_of(kind, measured.scale, row) {
            ErrorScale::Time if kind == ExperimentKind::DevicePolling => continue,
            // The least and the largest of many pings are single events.
            ErrorScale::Time
                if kind == ExperimentKind::FqCodel && measured.column != "ping_avg_ms" =>
            {
                continue;
            }
            ErrorScale::Rate | ErrorScale::Time | ErrorScale::Count => 1.0,
            ErrorScale::Cpu
                if measured.column.starts_with("util") && kind != ExperimentKind::TwoConcurrent =>
            {
                continue;
            }
            ErrorScale::Cpu => CPU_WEIGHT,
            ErrorScale::Points
                if kind == ExperimentKind::PingIdle || is_fitted_share(row, measured.column) =>
            {
                1.0
            }
            ErrorScale::Points => continue,
        };
        if let Some(value) = row.parse_figure(measured.column)?.filter(|value| *value > 0.0) {
            figures.push((idx, value, weight));
        }
    }
    Ok(figures)
}

/// The weight of a figure of a key-value server.
///
/// In a closed loop the rate tells all: its CPUs are busy, and its latency is the number of connections over the rate. An
/// open loop that is not met is left out. Some of its queues are in overload and some are not, which depends on what came
/// before the run.
fn weigh_server_figure(row: &CsvRow<'_>, column: &str) -> Result<Option<f64>, RowError> {
    let rate = row.parse_figure("transactions_per_s")?.unwrap_or(0.0);
    let offered = row.text("offered_per_s").parse::<f64>().ok();
    if offered.is_some_and(|offered| rate < MET_RATIO * offered) {
        return Ok(None);
    }
    Ok(match (column, offered.is_none()) {
        ("transactions_per_s", true) => Some(4.0),
        ("cpu_pct", false) => Some(2.0),
        ("latency_us_p50", false) => Some(1.0),
        ("transactions_per_s" | "latency_us_p99" | "interrupts_per_s", false) => Some(0.5),
        _ => None,
    })
}

/// Whether a share of CPU time or of datagrams is fitted. The text describes one side only; the
/// split of time outside interrupts depends on the names of `top`.
fn is_fitted_share(row: &CsvRow<'_>, column: &str) -> bool {
    row.text("role") == "server" && ["loss_pct", "cpu_interrupt_pct"].contains(&column)
}

fn format_setting(row: &CsvRow<'_>) -> Result<String, RowError> {
    if !row.text("case").is_empty() {
        return Ok(format!("case {}", row.text("case")));
    }
    let moderation = ModerationSetting::from_row(row)?;
    Ok(match (moderation.throttle, moderation.rx_delay) {
        (_, Some(delay)) => {
            format!("rx {delay}, {} frames", moderation.rx_frames.unwrap_or(0))
        }
        (Some(throttle), _) => format!("{throttle:?}"),
        (None, None) => format!("default {}", row.text("driver_version")),
    })
}

/// A fit with its errors.
#[derive(Clone, Debug)]
pub struct FitResult {
    /// The profile with the fitted costs.
    pub profile: SystemProfile,
    /// The system in a few words.
    pub about: String,
    /// The fixed costs.
    pub fixed: Vec<FixedParameter>,
    /// Each fitted cost with a 90% interval.
    pub costs: Vec<FittedCost>,
    /// Combinations of log costs, best known first, with relative standard deviations and weights.
    pub combinations: Vec<CostCombination>,
    /// Objective, lower is better.
    pub objective: f64,
    /// In-sample errors by table, and over all (the last).
    pub in_sample: Vec<(String, ErrorSummary)>,
    /// Fits without parts of the cells, if validation was requested.
    pub validation: Vec<FitHeldOut>,
}

impl FitResult {
    /// The text of a file for `data/systems`.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let about = &self.about;
        let mut text = format!(
            "# {about}\n# Made by `latput calibrate` with its plan in data/calibration.toml; what is neither fitted nor \
             fixed was in the\n# profile before. Fitted, with 90% intervals:\n"
        );
        text.extend(self.costs.iter().map(FittedCost::to_comment));
        if !self.fixed.is_empty() {
            text.push_str("# Fixed:\n");
        }
        for FixedParameter { parameter, value } in &self.fixed {
            let _ = writeln!(text, "#   {parameter:<11} {value:>9.2} {}", parameter.unit());
        }
        if self.profile.sut.machine.clock_ppm != 0 {
            text.push_str(CLOCKS);
        }
        Ok(text + &toml::to_string(&self.profile)?)
    }
}

/// A fit in progress.
#[derive(Clone, Copy)]
struct CellFit<'a> {
    systems: &'a SystemCatalog,
    base: &'a SystemProfile,
    plan: &'a FitPlan,
    run_all: RunAll<'a>,
}

/// Fits `plan`'s costs to `cells`. With `validate`, also fits without parts of them, as far as the fits are of that
/// part. `said` receives progress texts.
pub fn calibrate_profile(
    plan: &FitPlan,
    cells: &PublishedCells,
    systems: &SystemCatalog,
    validate: Option<PartOfFits>,
    run_all: RunAll<'_>,
    said: &mut dyn FnMut(String),
) -> Result<FitResult, CalibrateError> {
    let cells = &cells.asked_by(plan);
    let free = plan.free.len();
    if cells.count_figures() < 2 * free {
        let (profile, cells) = (plan.profile.clone(), cells.count_figures());
        return Err(CalibrateError::TooFew { profile, cells, free });
    }
    plan.check_profile(systems.expect_profile(&plan.profile))?;
    let fit = CellFit { systems, base: systems.expect_profile(&plan.profile), plan, run_all };
    let found = fit.find_best(cells, None, plan.effort, said);
    let profile = fit.with_search(cells, |search| search.build_profile(&found.at));
    let residuals = fit.compute_residuals(&profile, cells, OTHER_SEED, 1.0);
    let whole: Vec<WeightedResidual> =
        residuals.iter().flatten().map(|residual| residual.weighed).collect();
    let (costs, combinations) =
        fit.with_search(cells, |search| search.estimate_uncertainty(&found.at, &whole));
    let validation =
        validate.map_or_else(Vec::new, |part| fit.validate_folds(cells, &found.at, part, said));
    Ok(FitResult {
        about: plan.about.clone(),
        fixed: plan.fixed.clone(),
        in_sample: summarize_by_group(cells, &residuals),
        objective: found.value,
        profile,
        costs,
        combinations,
        validation,
    })
}

/// One figure of a cell with its prediction.
#[derive(Clone, Copy, Debug)]
struct Residual {
    column: &'static str,
    scale: ErrorScale,
    published: f64,
    predicted: f64,
    weighed: WeightedResidual,
}

impl Residual {
    fn error_ratio(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// The residuals of every cell.
type Residuals = Vec<Vec<Residual>>;

impl CellFit<'_> {
    /// Runs a search over the residuals of `cells`.
    fn with_search<R>(&self, cells: &PublishedCells, run: impl FnOnce(&CostSearch<'_>) -> R) -> R {
        let residuals =
            |profile: &SystemProfile, seed: u64, effort: f64| -> Vec<WeightedResidual> {
                let residuals = self.compute_residuals(profile, cells, seed, effort);
                residuals.into_iter().flatten().map(|residual| residual.weighed).collect()
            };
        run(&CostSearch {
            base: self.base,
            fixed: &self.plan.fixed,
            free: &self.plan.free,
            generators: self.plan.generators,
            residuals: &residuals,
            prior_weight: PRIOR_WEIGHT,
        })
    }

    fn compute_residuals(
        &self,
        profile: &SystemProfile,
        cells: &PublishedCells,
        seed: u64,
        effort: f64,
    ) -> Residuals {
        let mut systems = self.systems.clone();
        systems.replace_profile(profile.clone());
        let runs = self.plan.runs;
        let jobs: Vec<(Experiment, u64)> = cells
            .cells
            .iter()
            .flat_map(|cell| {
                let row = CsvRow::new(&cells.tables[cell.table], cell.row);
                let experiment = Experiment::from_row(cell.kind, &row, &systems)
                    .expect("rows were read once when the cells were collected");
                let experiment = experiment.shorten_run(effort);
                // Each cell has its own start phases, so that the cells together cover them.
                let seed = seed * 1_000 + cell.row as u64;
                (0..runs).map(move |run| (experiment.clone(), seed + run * RUN_APART))
            })
            .collect();
        let figures = (self.run_all)(&jobs);
        let of_cells = figures.chunks(usize::try_from(runs).unwrap_or(usize::MAX));
        let residuals = cells.cells.iter().zip(of_cells).map(|(cell, runs)| {
            let row = CsvRow::new(&cells.tables[cell.table], cell.row);
            let residual = |&(idx, published, weight): &(usize, f64, f64)| {
                let of_run = |figures: &Vec<Option<SimulatedFigure>>| {
                    figures.get(idx).copied().flatten().map_or(0.0, |figure| figure.value)
                };
                let predicted = runs.iter().map(of_run).sum::<f64>() / runs.len() as f64;
                let MeasuredColumn { column, scale } = cell.kind.measured_columns()[idx];
                let scale = scale_of(cell.kind, scale, &row);
                let weighed = match scale {
                    ErrorScale::Points => {
                        WeightedResidual::from_percentages(predicted, published, weight)
                    }
                    _ => WeightedResidual::new(predicted, published, weight),
                };
                Residual { column, scale, published, predicted, weighed }
            };
            cell.published.iter().map(residual).collect()
        });
        residuals.collect()
    }

    fn find_best(
        &self,
        cells: &PublishedCells,
        only: Option<&[f64]>,
        effort: SearchEffort,
        said: &mut dyn FnMut(String),
    ) -> SearchPoint {
        self.with_search(cells, |search| search.find_optimum(only, effort, said))
    }
}

fn summarize_by_group(
    cells: &PublishedCells,
    residuals: &Residuals,
) -> Vec<(String, ErrorSummary)> {
    let mut groups = std::collections::BTreeMap::<String, Vec<f64>>::new();
    for (cell, residuals) in cells.cells.iter().zip(residuals) {
        for residual in residuals {
            let (part, error) = match residual.scale {
                ErrorScale::Cpu => ("CPU", residual.error_ratio()),
                ErrorScale::Points => ("points", (residual.predicted - residual.published) / 100.0),
                ErrorScale::Count => ("counts", residual.error_ratio()),
                ErrorScale::Rate | ErrorScale::Time => ("rate", residual.error_ratio()),
            };
            groups.entry(format!("{} {part}", cell.group)).or_default().push(error);
            groups.entry(format!("~ all {part}")).or_default().push(error);
        }
    }
    groups
        .into_iter()
        .filter_map(|(name, errors)| Some((name, ErrorSummary::from_errors(errors)?)))
        .collect()
}
