//! A file of cells: read whole, predicted row by row, and written with more columns.

use std::collections::BTreeMap;

use latput_units::IntoMap;
use latput_units::text::format_count;

use crate::experiment::Experiment;
use crate::files::TABLE_COLUMNS;
use crate::kind::{ExperimentKind, MeasuredColumn};
use crate::predict::FigurePrediction;
use crate::row::{CsvRow, RowError, RowErrorKind};
use crate::system::SystemCatalog;
use crate::table::{CsvTable, TableError};

/// The column with the reason why a row has no prediction.
const ERROR_COLUMN: &str = "prediction_error";
/// Most invalid values in one message.
const NAMED: usize = 8;

/// A reason why a file cannot be predicted.
#[derive(Debug, thiserror::Error)]
pub enum CellsError {
    /// The text is no table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The table is of no known kind.
    #[error("no kind of published file has these columns; {0}")]
    Kind(String),
    /// Rows have invalid values.
    #[error("{}", format_errors(.0))]
    Impossible(Vec<RowError>),
}

fn format_errors(errors: &[RowError]) -> String {
    let mut text: Vec<String> = errors.iter().take(NAMED).map(ToString::to_string).collect();
    if errors.len() > NAMED {
        text.push(format!("and {}", format_count(errors.len() - NAMED, "more row")));
    }
    text.join("\n")
}

/// A file of cells.
#[derive(Clone, Debug)]
pub struct CellFile {
    /// Its rows.
    pub table: CsvTable,
    /// Kind of the published file.
    pub kind: ExperimentKind,
    /// The experiment of each row, or the reason why it has no prediction.
    pub rows: Vec<Result<Experiment, RowError>>,
    /// The number of each row in the file, from 1.
    pub numbers: Vec<usize>,
}

/// The predictions of a row, one per measured column.
pub type RowPrediction = Vec<Option<FigurePrediction>>;

impl CellFile {
    /// Reads a file. An invalid value in any row is an error.
    pub fn read(text: &str, systems: &SystemCatalog) -> Result<Self, CellsError> {
        let table = CsvTable::parse(text)?;
        let kind = ExperimentKind::detect(&table)
            .ok_or_else(|| CellsError::Kind(missing_columns(&table)))?;
        let rows: Vec<Result<Experiment, RowError>> = (0..table.rows.len())
            .map(|idx| Experiment::from_row(kind, &CsvRow::new(&table, idx), systems))
            .collect();
        let impossible = |row: &Result<Experiment, RowError>| {
            row.as_ref().err().filter(|error| error.kind == RowErrorKind::Impossible).cloned()
        };
        let impossible: Vec<RowError> = rows.iter().filter_map(impossible).collect();
        if !impossible.is_empty() {
            return Err(CellsError::Impossible(impossible));
        }
        let numbers = (1..=rows.len()).collect();
        Ok(Self { table, kind, rows, numbers })
    }

    /// Keeps only the rows of these tables (or runs, tests, sections).
    pub fn keep_tables(&mut self, tables: &[String]) {
        let is_named = |idx: usize| {
            let row = CsvRow::new(&self.table, idx);
            TABLE_COLUMNS.iter().any(|column| {
                let text = row.text(column);
                !text.is_empty() && tables.iter().any(|table| table == text)
            })
        };
        let is_kept: Vec<bool> = (0..self.rows.len()).map(is_named).collect();
        self.keep_rows(|place| is_kept[place]);
    }

    /// Keeps only the rows at these places, counted from 0.
    pub fn keep_rows(&mut self, is_kept: impl Fn(usize) -> bool) {
        let kept = |place: &mut usize| {
            *place += 1;
            is_kept(*place - 1)
        };
        let [mut row, mut number, mut line] = [0; 3];
        self.rows.retain(|_| kept(&mut row));
        self.numbers.retain(|_| kept(&mut number));
        self.table.rows.retain(|_| kept(&mut line));
    }

    /// The names of the columns that a prediction of each measured column adds.
    fn added_columns(&self) -> BTreeMap<usize, [String; 3]> {
        let names = |measured: &MeasuredColumn| {
            let name = self.kind.predicted_column(measured);
            [name.clone(), format!("{name}_lo"), format!("{name}_hi")]
        };
        self.kind.measured_columns().iter().map(names).enumerate().into_map()
    }

    /// The rows without the columns of an earlier prediction.
    pub fn without_predictions(&self) -> CsvTable {
        let added = self.added_columns();
        let is_old = |name: &str| {
            name == ERROR_COLUMN || added.values().flatten().any(|column| column == name)
        };
        let kept: Vec<usize> =
            (0..self.table.header.len()).filter(|at| !is_old(&self.table.header[*at])).collect();
        let pick = |row: &Vec<String>| kept.iter().map(|at| row[*at].clone()).collect::<Vec<_>>();
        CsvTable {
            header: pick(&self.table.header),
            rows: self.table.rows.iter().map(pick).collect(),
        }
    }

    /// The rows with their predictions in new columns, which replace those of an earlier
    /// prediction.
    pub fn with_predictions(&self, predictions: &[Option<RowPrediction>]) -> CsvTable {
        assert_eq!(predictions.len(), self.rows.len(), "one prediction for each row");
        let added = self.added_columns();
        let CsvTable { mut header, rows: plain } = self.without_predictions();
        header.extend(added.values().flatten().cloned());
        header.push(ERROR_COLUMN.to_owned());
        let rows = plain.into_iter().zip(&self.rows).zip(predictions);
        let rows = rows.map(|((mut fields, experiment), predicted)| {
            for idx in 0..added.len() {
                let figure = predicted.as_ref().and_then(|row| row.get(idx).copied().flatten());
                let values = figure.map(|it| [it.value, it.low, it.high]);
                fields
                    .extend((0..3).map(|at| values.map_or_else(String::new, |it| format_digits(it[at]))));
            }
            fields.push(match (experiment, predicted) {
                (Err(error), _) => format!("column `{}`: {}", error.column, error.problem),
                (Ok(_), Some(figures)) if figures.iter().all(Option::is_none) => String::from(
                    "nothing arrived in the simulated time of a run: the moderation holds it back too long, or \
                     rings overflow before their interrupt",
                ),
                _ => String::new(),
            });
            fields
        });
        CsvTable { header, rows: rows.collect() }
    }
}

/// The columns that the most similar kind lacks.
fn missing_columns(table: &CsvTable) -> String {
    let lacking = |kind: &ExperimentKind| -> Vec<&str> {
        kind.distinctive_columns()
            .iter()
            .copied()
            .filter(|name| table.column_index(name).is_none())
            .collect()
    };
    let nearest = ExperimentKind::ALL.iter().min_by_key(|kind| lacking(kind).len());
    let nearest = nearest.expect("there are kinds");
    format!(
        "the nearest is {}, which needs the columns {}",
        nearest.name(),
        lacking(nearest).join(", ")
    )
}

/// Formats five significant digits without an exponent.
#[expect(clippy::cast_possible_truncation, reason = "the logarithm of a double is small")]
fn format_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { String::from("0") } else { String::new() };
    }
    let decimals = (4 - value.abs().log10().floor() as i32).clamp(0, 9);
    format!("{value:.*}", usize::try_from(decimals).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: &str =
        "system,driver,driver_version,kernel,first_burst,concurrent,itr_hz,trans_per_s,mark\n";

    #[test]
    fn unpublished_row_is_predicted_with_columns() {
        let text = format!("{CELL}rx1620,e1000,6.0.54,2.6.12,0,1,0,,kept\n");
        let table = predict_table(&text);
        assert_eq!(
            table.header[8..],
            ["mark", "predicted", "predicted_lo", "predicted_hi", ERROR_COLUMN]
        );
        assert_eq!(table.rows[0][8], "kept");
        let rate: f64 = table.rows[0][9].parse().unwrap();
        assert!((12_000.0..20_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn predictions_do_not_look_at_published_values() {
        let row = "rx1620,e1000,6.0.54,2.6.12,4,2,8000";
        let without = predict_table(&format!("{CELL}{row},,\n"));
        let with = predict_table(&format!("{CELL}{row},123,\n"));
        assert_eq!(without.rows[0][9..], with.rows[0][9..]);
    }

    #[test]
    fn unknown_machine_becomes_error_row() {
        let text = format!("{CELL}rx9,e1000,6.0,2.6,0,1,0,,\nrx1620,e1000,6.0,2.6,0,1,0,,\n");
        let table = predict_table(&text);
        assert!(table.rows[0][12].contains("no profile for the machine `rx9`"), "{table:?}");
        assert!(table.rows[0][9].is_empty() && !table.rows[1][9].is_empty(), "{table:?}");
    }

    #[test]
    fn impossible_values_are_named_by_cell() {
        check_error(
            "rx1620,e1000,6.0,2.6,-1,1,0,,",
            "row 1, column `first_burst`: `-1` must be a whole number",
        );
        check_error("rx1620,e1000,6.0,2.6,0,,0,,", "row 1, column `concurrent`: is empty");
        check_error("rx1620,e1000,6.0,2.6,0,1,x,,", "column `itr_hz`: `x` must be");
        check_error(
            "rx1620,e1000,6.0,2.6,0,1,0,NaN,",
            "column `trans_per_s`: `NaN` must be a number",
        );
    }

    #[test]
    fn missing_columns_are_named() {
        let error = CellFile::read(
            "first_burst,concurrent,system\n0,1,x\n",
            &SystemCatalog::load_shipped(),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("needs the columns driver"), "{error}");
    }

    #[track_caller]
    fn check_error(row: &str, message: &str) {
        let error =
            CellFile::read(&format!("{CELL}{row}\n"), &SystemCatalog::load_shipped()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }

    fn predict_table(text: &str) -> CsvTable {
        let file = CellFile::read(text, &SystemCatalog::load_shipped()).unwrap();
        let predict = |row: &Result<Experiment, RowError>| {
            let experiment = row.as_ref().ok()?.clone().shorten_run(0.2);
            Some(crate::predict::predict_figures(&experiment, 2).unwrap())
        };
        let predictions: Vec<_> = file.rows.iter().map(predict).collect();
        file.with_predictions(&predictions)
    }
}
