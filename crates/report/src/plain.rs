//! Tables without rules, for the space between sentences.

use std::ops::RangeInclusive;

use comfy_table::{CellAlignment, Table, presets};

/// A table without rules and trailing spaces. The columns `right` are right-aligned.
pub(crate) fn plain(mut table: Table, right: RangeInclusive<usize>) -> Vec<String> {
    table.load_style(presets::NOTHING).force_no_tty();
    for column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}
