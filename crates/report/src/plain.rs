//! Tables without rules, for the space between sentences.

use std::ops::RangeInclusive;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use crate::lines::{display_width, wrap_hanging};

/// Columns between two columns of a table.
const GAP: u16 = 2;
/// A column of text with fewer columns cannot be read.
const NARROWEST: u16 = 14;

/// A table of texts for lines of `columns`. The table's columns `right` are right-aligned.
pub fn render_table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    right: RangeInclusive<usize>,
    columns: usize,
) -> String {
    let mut table = Table::new();
    table.set_header(header);
    table.add_rows(rows);
    render_plain_table(table, right, columns).join("\n") + "\n"
}

/// A table without rules and trailing spaces. The columns `right` are right-aligned and never broken. Where the table
/// is wider than `columns`, its other columns are; where that is not enough, each row is a list.
pub(crate) fn render_plain_table(
    mut table: Table,
    right: RangeInclusive<usize>,
    columns: usize,
) -> Vec<String> {
    table.load_style(presets::NOTHING);
    let widths = table.column_max_content_widths();
    let last = widths.len().saturating_sub(1);
    for (idx, column) in table.column_iter_mut().enumerate() {
        if right.contains(&idx) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, if idx == last { 0 } else { GAP }));
    }
    let sum = |width: &dyn Fn(usize) -> u16| -> usize {
        (0..widths.len()).map(|idx| usize::from(width(idx)) + usize::from(GAP)).sum::<usize>()
            - usize::from(GAP)
    };
    if widths.is_empty() || sum(&|idx| widths[idx]) <= columns {
        return collect_lines(&table);
    }
    let is_fixed = |idx: usize| right.contains(&idx) || widths[idx] <= NARROWEST;
    let least = |idx: usize| if is_fixed(idx) { widths[idx] } else { NARROWEST };
    if sum(&least) > columns {
        return render_as_lists(&table, columns);
    }
    for (idx, column) in table.column_iter_mut().enumerate() {
        if is_fixed(idx) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
    collect_lines(&table)
}

fn collect_lines(table: &Table) -> Vec<String> {
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Each row as a list of its cells behind the header's names.
fn render_as_lists(table: &Table, columns: usize) -> Vec<String> {
    let texts = |row: &comfy_table::Row| -> Vec<String> {
        row.cell_iter().map(|cell| cell.content().replace('\n', " ")).collect()
    };
    let names = table.header().map(texts).unwrap_or_default();
    let name_width = names.iter().skip(1).map(|name| display_width(name)).max().unwrap_or(0);
    let title = names.first().filter(|title| !title.is_empty());
    let title = title.map_or_else(String::new, |title| wrap_hanging(title, "", "  ", columns));
    let mut lines: Vec<String> = title.lines().map(str::to_owned).collect();
    for row in table.row_iter() {
        for (idx, cell) in texts(row).into_iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            let name = names.get(idx).map_or("", String::as_str);
            let text = if idx == 0 {
                wrap_hanging(&cell, "", "  ", columns)
            } else {
                let fill = " ".repeat(name_width.saturating_sub(display_width(name)));
                let indent = " ".repeat(name_width + 4);
                let first = format!("  {name}{fill} ");
                let first = if name.is_empty() { &indent } else { &first };
                wrap_hanging(&cell, first, &indent, columns)
            };
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_by_breaking_its_texts() {
        let rows = || [["a name of several words".to_owned(), "1.25".to_owned()]];
        let of = |columns| render_table(["name", "figure"], rows(), 1..=1, columns);
        assert_eq!(of(40), "name                     figure\na name of several words    1.25\n");
        assert_eq!(of(24), "name           figure\na name of        1.25\nseveral words\n");
        assert_eq!(of(14), "name\na name of\n  several\n  words\n  figure  1.25\n");
    }

    #[test]
    fn wide_characters_count_as_two() {
        let rows = [["漢字".to_owned(), "1".to_owned()], ["ab".to_owned(), "2".to_owned()]];
        assert_eq!(render_table(["", "n"], rows, 1..=1, 40), "      n\n漢字  1\nab    2\n");
    }
}
