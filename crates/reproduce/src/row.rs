//! One row of a published file: fields by name, and errors that name row, column and remedy.

use std::str::FromStr;

use crate::table::CsvTable;

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}, column `{column}`: {problem}")]
pub struct RowError {
    /// Row number from 1, without the header.
    pub row: usize,
    /// The column.
    pub column: String,
    /// The problem and its remedy.
    pub problem: String,
    /// The effect of the error.
    pub kind: RowErrorKind,
}

/// The effect of a [`RowError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowErrorKind {
    /// The value is invalid: the file is refused.
    Impossible,
    /// No profile exists for the machine: the row has no prediction.
    UnknownMachine,
    /// The row is no measurement or cannot be simulated: it has no prediction.
    NotSimulated,
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub struct CsvRow<'a> {
    table: &'a CsvTable,
    idx: usize,
}

impl<'a> CsvRow<'a> {
    /// The row with this index.
    pub fn new(table: &'a CsvTable, idx: usize) -> Self {
        Self { table, idx }
    }

    /// A trimmed field; empty if the column is missing.
    pub fn text(&self, column: &str) -> &'a str {
        self.table.column_index(column).map_or("", |idx| self.table.rows[self.idx][idx].trim())
    }

    /// An error of this row.
    pub fn field_error(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::Impossible, column, problem)
    }

    /// The error of a row that is no measurement or cannot be simulated.
    pub fn not_simulated(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::NotSimulated, column, problem)
    }

    /// The error of a row whose machine has no profile.
    pub fn unknown_machine(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::UnknownMachine, column, problem)
    }

    fn error_of(&self, kind: RowErrorKind, column: &str, problem: impl Into<String>) -> RowError {
        let (row, column, problem) = (self.idx + 1, column.to_owned(), problem.into());
        RowError { row, column, problem, kind }
    }

    /// A whole number in a range; `None` if the field is empty.
    pub fn parse_whole(
        &self,
        column: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<u32>, RowError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match whole_number(text) {
            Some(value) if range.contains(&value) => Ok(Some(value)),
            _ => {
                let (low, high) = range.into_inner();
                Err(self.field_error(
                    column,
                    format!("`{text}` must be a whole number from {low} to {high}"),
                ))
            }
        }
    }

    /// A required whole number.
    pub fn parse_required_whole(
        &self,
        column: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, RowError> {
        self.parse_whole(column, range)?
            .ok_or_else(|| self.field_error(column, "is empty; the cell is not defined without it"))
    }

    /// A published figure: finite and not negative; `None` if empty.
    pub fn parse_figure(&self, column: &str) -> Result<Option<f64>, RowError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
            _ => Err(self.field_error(
                column,
                format!("`{text}` must be a number that is not negative, or empty"),
            )),
        }
    }
}

/// Parses a whole number. Some tools write columns with gaps as `20.0`.
pub(crate) fn whole_number<T: FromStr>(text: &str) -> Option<T> {
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|digit| digit == b'0') => whole,
        _ => text,
    };
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_may_have_zeros_behind_a_point() {
        for (text, number) in [("20", Some(20)), ("20.0", Some(20)), ("0.", Some(0))] {
            assert_eq!(whole_number::<u64>(text), number, "{text}");
        }
        for text in ["", ".0", "20.5", "2e1", "-1", "1.0.0", "18446744073709551616"] {
            assert_eq!(whole_number::<u64>(text), None, "{text}");
        }
    }
}
