//! One row of a published file: fields by name, and errors that name row, column and mend.

use std::str::FromStr;

use crate::table::CsvTable;

/// A field that cannot be what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}, column `{column}`: {problem}")]
pub struct RowError {
    /// Counted from 1, without the header.
    pub row: usize,
    /// The column.
    pub column: String,
    /// What is wrong, and the remedy.
    pub problem: String,
    /// How bad it is.
    pub kind: RowErrorKind,
}

/// What follows from a [`RowError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowErrorKind {
    /// The value cannot be: the file is refused.
    Impossible,
    /// No profile stands for the machine: the row has no prediction.
    UnknownMachine,
    /// The row is no measurement, or one that nothing simulates: it has no prediction.
    NotSimulated,
}

/// One row.
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

    /// A field without the white space around it; empty if the column is missing.
    pub fn text(&self, column: &str) -> &'a str {
        self.table.column(column).map_or("", |idx| self.table.rows[self.idx][idx].trim())
    }

    /// An error of this row.
    pub fn error(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::Impossible, column, problem)
    }

    /// A row that is no measurement, or one that nothing simulates.
    pub fn not_simulated(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::NotSimulated, column, problem)
    }

    /// A row of a machine that no profile stands for.
    pub fn unknown_machine(&self, column: &str, problem: impl Into<String>) -> RowError {
        self.error_of(RowErrorKind::UnknownMachine, column, problem)
    }

    fn error_of(&self, kind: RowErrorKind, column: &str, problem: impl Into<String>) -> RowError {
        let (row, column, problem) = (self.idx + 1, column.to_owned(), problem.into());
        RowError { row, column, problem, kind }
    }

    /// A whole number in a range; `None` if the field is empty.
    pub fn whole(
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
                Err(self
                    .error(column, format!("`{text}` must be a whole number from {low} to {high}")))
            }
        }
    }

    /// A whole number that must be there.
    pub fn needed(
        &self,
        column: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, RowError> {
        self.whole(column, range)?
            .ok_or_else(|| self.error(column, "is empty; the cell is not defined without it"))
    }

    /// A published figure: empty, or a finite number that is not negative.
    pub fn figure(&self, column: &str) -> Result<Option<f64>, RowError> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
            _ => Err(self.error(
                column,
                format!("`{text}` must be a number that is not negative, or empty"),
            )),
        }
    }
}

/// A whole number as tables write it: a column with gaps comes back from some tools as `20.0`.
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
