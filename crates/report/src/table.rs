//! The trade-off table, the recommendation and the remarks, for a terminal or a pipe.

mod groups;

use std::fmt::Write;

use comfy_table::{Cell as TableCell, CellAlignment, Table, presets};
use latput_model::{Cell, Headline, Summary};
use latput_trial::metric::Scale;
use latput_trial::{Metric, Results};

use crate::changes;
use crate::effects;
use crate::format;
use crate::lines::{cut, hanging, width, wrapped};
use crate::next;
use crate::printable::{self, printable};
use crate::remarks::{INTERVALS, remarks};
use crate::screen::Screen;
use crate::single;
use crate::view::{View, capitalised, cpu_sources, estimate, is_too_wide};

/// One column of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Column {
    workload: usize,
    metric: Metric,
    scale: Scale,
}

/// A table under construction: its columns and their shared settings.
struct Layout<'v, 'a> {
    view: &'v View<'a>,
    columns: Vec<Column>,
    screen: Screen,
}

/// A label takes at most this share of a line, in percent,
const LABEL_SHARE: usize = 40;
/// but as many columns.
const NARROWEST_LABEL: usize = 20;

/// Table, recommendation, and a digest of warnings, failed checks and outlier runs.
pub fn terminal(results: &Results, summary: &Summary, screen: Screen) -> String {
    let view = View::new(results, summary);
    let mut text = heading(&view, screen);
    if let Some(shortage) = view.shortage() {
        text += &wrapped(&shortage, "", screen.columns);
        text.push('\n');
    }
    if let Some(cell) = single::only_cell(&view) {
        text += &single::figures(&view, cell, screen.columns);
        text.push('\n');
    } else if !view.settings().is_empty() {
        text += &tables(&view, screen);
        text += &legend(&view, screen);
        text.push('\n');
    }
    text += &groups::section(&view, screen);
    text += &recommendation(&view, screen);
    let effects = effects::section(results, screen);
    if !effects.is_empty() {
        text += &painted(effects::TITLE, screen);
        text += &effects;
        text.push('\n');
    }
    text += &warnings(&view, screen);
    text.trim_end().to_owned() + "\n"
}

/// A line for each kind of problem; other outputs have the full lists.
fn warnings(view: &View<'_>, screen: Screen) -> String {
    let mut remarks = remarks(view);
    if single::only_cell(view).is_some() {
        remarks.retain(|remark| remark.title != INTERVALS); // it has a block of its own
    }
    if remarks.is_empty() {
        return String::new();
    }
    let mut text = painted("Warnings", screen);
    for remark in &remarks {
        let line = format!("{}: {}", remark.title, remark.digest);
        text += &hanging(&line, "  ", "    ", screen.columns);
    }
    if remarks.iter().any(|remark| !remark.full.is_empty()) {
        let hint = "(full lists: the HTML report, or --format markdown)";
        text += &wrapped(hint, "  ", screen.columns);
    }
    text
}

/// `>` recommended, `*` in the Pareto set, `!` a check failed in this cell.
pub(crate) fn marks(view: &View<'_>, setting: usize, workload: usize) -> String {
    let mut marks = row_marks(view, setting);
    if view.has_failed_check(setting, workload) {
        marks.push('!');
    }
    marks
}

fn row_marks(view: &View<'_>, setting: usize) -> String {
    let mut marks = String::new();
    if view.is_recommended(setting) {
        marks.push('>');
    }
    if view.is_pareto(setting) {
        marks.push('*');
    }
    marks
}

fn heading(view: &View<'_>, screen: Screen) -> String {
    let results = view.results;
    if let Some((setting, workload)) = single::only_cell(view) {
        let workload = view.workload_name(workload);
        let setting = view.full_label(setting);
        let runs = format::count(results.rows.len(), "run");
        let line = format!("{workload} on {}, {setting}: {runs}", results.testbed);
        return wrapped(&line, "", screen.columns) + "\n";
    }
    let line = format!(
        "{} on {}: {}, {}, {}, {}",
        results.name,
        results.testbed,
        format::count(results.settings.len(), "setting"),
        format::count(results.workloads.len(), "workload"),
        format::count(view.blocks(), "block"),
        format::count(results.rows.len(), "trial"),
    );
    wrapped(&line, "", screen.columns) + "\n"
}

/// Tables of at most the screen's width, one below the other: workloads stand side by side as far as they fit, and
/// a workload that is too wide alone is continued in the next table. No figure is left out.
fn tables(view: &View<'_>, screen: Screen) -> String {
    let layout = |columns| Layout { view, columns, screen };
    let fits = |columns: &[Column]| layout(columns.to_vec()).width() <= screen.columns;
    let mut tables: Vec<Vec<Column>> = vec![Vec::new()];
    let mut add = |part: &[Column]| {
        let last = tables.last_mut().expect("there is a first table");
        let together = [last.as_slice(), part].concat();
        if last.is_empty() || fits(&together) {
            *last = together;
        } else {
            tables.push(part.to_vec());
        }
    };
    for (workload, _) in view.workloads() {
        let columns = workload_columns(view, workload);
        if fits(&columns) {
            add(&columns);
        } else {
            for column in &columns {
                add(std::slice::from_ref(column));
            }
        }
    }
    tables.retain(|columns| !columns.is_empty());
    tables.into_iter().map(|columns| layout(columns).render() + "\n").collect()
}

fn workload_columns(view: &View<'_>, idx: usize) -> Vec<Column> {
    view.main_metrics(idx)
        .into_iter()
        .map(|metric| Column { workload: idx, metric, scale: view.scale(idx, metric) })
        .collect()
}

impl Layout<'_, '_> {
    /// Columns before the figures: the marks and the setting.
    const BEFORE: usize = 2;

    fn width(&self) -> usize {
        let table = self.table();
        self.column_widths(&table).iter().sum()
    }

    /// The line of workload names, a rule under each, then the table.
    fn render(&self) -> String {
        let table = self.table();
        let widths = self.column_widths(&table);
        let rule = if self.screen.is_styled { "─" } else { "-" };
        let mut names = " ".repeat(widths.iter().take(Self::BEFORE).sum());
        let mut start = 0;
        while start < self.columns.len() {
            let workload = self.columns[start].workload;
            let end = self.columns[start..]
                .iter()
                .position(|column| column.workload != workload)
                .map_or(self.columns.len(), |len| start + len);
            let span: usize = widths[Self::BEFORE + start..Self::BEFORE + end].iter().sum();
            let room = span.saturating_sub(2);
            // Behind the last name nothing begins.
            let is_last = end == self.columns.len();
            let to_the_end = self.screen.columns.saturating_sub(width(&names) + 2);
            let name_room = if is_last { to_the_end.max(room) } else { room };
            let name = self.view.workload_name(workload);
            let name = cut(&name, name_room);
            let fill = rule.repeat(room.saturating_sub(width(&name) + 1));
            let _ = write!(names, "  {name} {fill}");
            start = end;
        }
        let mut lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
        let mut text = names.trim_end().to_owned() + "\n";
        text.extend(lines.by_ref().take(self.header_label().len()));
        for setting in self.view.settings() {
            let row: String = lines.by_ref().take(self.label(setting).len()).collect();
            let is_recommended = self.view.is_recommended(setting);
            text += &if is_recommended { bold_lines(&row, self.screen) } else { row };
        }
        text
    }

    /// The lines of a setting's label.
    fn label(&self, setting: usize) -> Vec<String> {
        self.broken(self.view.label(setting))
    }

    /// The lines of the header of labels. It ends beside the units, which are in its second line.
    fn header_label(&self) -> Vec<String> {
        let mut lines = self.broken(&self.view.knobs);
        if lines.len() < 2 {
            lines.insert(0, String::new());
        }
        lines
    }

    /// A label in lines of its column; a word that is longer is broken.
    fn broken(&self, label: &str) -> Vec<String> {
        let room = (self.screen.columns * LABEL_SHARE / 100).max(NARROWEST_LABEL);
        broken(label, room)
    }

    fn column_widths(&self, table: &Table) -> Vec<usize> {
        let contents = table.column_max_content_widths();
        let widths = contents.iter().enumerate().map(|(idx, &content)| {
            let (left, right) = self.padding(idx);
            usize::from(left) + usize::from(content) + usize::from(right)
        });
        widths.collect()
    }

    /// The padding of a column; workloads have a gap between them.
    fn padding(&self, idx: usize) -> (u16, u16) {
        let Some(figure) = idx.checked_sub(Self::BEFORE) else { return (0, 1) };
        let starts_group =
            figure == 0 || self.columns[figure].workload != self.columns[figure - 1].workload;
        (if starts_group { 2 } else { 1 }, 1)
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let label = self.header_label();
        let above = "\n".repeat(label.len().saturating_sub(2));
        let mut header = vec![TableCell::new(""), TableCell::new(label.join("\n"))];
        header.extend(self.columns.iter().map(|column| {
            let name = column.metric.column();
            TableCell::new(format!("{above}{name}\n{}", column.scale.unit))
                .set_alignment(CellAlignment::Right)
        }));
        table.set_header(header);
        for setting in self.view.settings() {
            table.add_row(self.row(setting));
        }
        for idx in 0..self.columns.len() + Self::BEFORE {
            if let Some(column) = table.column_mut(idx) {
                column.set_padding(self.padding(idx));
            }
        }
        table
    }

    fn row(&self, setting: usize) -> Vec<TableCell> {
        let mut row = vec![
            TableCell::new(row_marks(self.view, setting)),
            TableCell::new(self.label(setting).join("\n")),
        ];
        for column in &self.columns {
            let text = self
                .view
                .cell(setting, column.workload)
                .map_or_else(|| "-".to_owned(), |measured| self.figure(measured, column));
            row.push(TableCell::new(text).set_alignment(CellAlignment::Right));
        }
        row
    }

    /// `45.6 ±0.3~!`: marks have a fixed place even if they are absent, so that figures align.
    fn figure(&self, cell: &Cell, column: &Column) -> String {
        let Some(estimate) = estimate(cell, column.metric) else { return "-".to_owned() };
        let mut text = column.scale.number(estimate.value);
        if let Some(half) = format::half_width(estimate, &column.scale) {
            let _ = write!(text, " ±{half}");
        }
        let is_first = self.is_first_of_group(column);
        if is_first && self.any(|cell| is_too_wide(cell, column.metric), column.workload) {
            text.push(if is_too_wide(cell, column.metric) { '~' } else { ' ' });
        }
        let has_failed = |cell: &Cell| self.view.has_failed_check(cell.setting, cell.workload);
        if is_first && self.any(has_failed, column.workload) {
            text.push(if has_failed(cell) { '!' } else { ' ' });
        }
        text
    }

    fn is_first_of_group(&self, column: &Column) -> bool {
        let first = self.columns.iter().find(|other| other.workload == column.workload);
        first.is_some_and(|first| first.metric == column.metric)
    }

    fn any(&self, marked: impl Fn(&Cell) -> bool, workload: usize) -> bool {
        self.view.cells(workload).into_iter().any(marked)
    }
}

/// A text in lines of at most `room` columns. It breaks at spaces, and within words that are longer.
fn broken(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in wrapped(text, "", room).lines() {
        let mut line = line.to_owned();
        while width(&line) > room {
            let kept = line.char_indices().map(|(at, _)| at).skip(1);
            let end = kept.take_while(|end| width(&line[..*end]) <= room).last().unwrap_or(1);
            let rest = line.split_off(end);
            lines.push(std::mem::replace(&mut line, rest));
        }
        lines.push(line);
    }
    lines
}

/// Explains the marks that occur.
fn legend(view: &View<'_>, screen: Screen) -> String {
    let results = view.results;
    let (mut lead, mut parts) = ("", Vec::new());
    if view.settings().into_iter().any(|setting| view.is_recommended(setting)) {
        parts.push("> recommended".to_owned());
    }
    let has_choice = view.settings().len() > 1; // one setting trades nothing
    if has_choice && view.is_every_setting_pareto() {
        lead = "Every setting is a trade-off: none is best throughout. ";
    } else if has_choice && !view.summary.pareto.is_empty() {
        parts.push("* no other setting is better in rate, latency and CPU cost at once".to_owned());
    }
    if view.summary.cells.iter().any(|cell| !cell.narrow_enough()) {
        parts.push(format!("~ interval wider than ±{}", format::percent(results.half_width)));
    }
    if !view.summary.failed_checks.is_empty() {
        parts.push("! a check failed".to_owned());
    }
    parts.push("round-trip times are medians over trials, other figures are means".to_owned());
    parts.push(format!("± half the {}", view.confidence()));
    parts.extend(cpu_sources(view.results).map(|source| {
        format!("CPU and demand (CPU time per transaction or KB) are the SUT's, {source}")
    }));
    parts.extend(view.cost_of_counting());
    wrapped(&format!("{lead}{}", parts.join("; ")), "", screen.columns)
}

fn recommendation(view: &View<'_>, screen: Screen) -> String {
    let (Some(headline), Some((words, label))) = (&view.summary.headline, view.verdict()) else {
        return String::new();
    };
    let title = label.map_or_else(|| words.clone(), |label| format!("{words} {label}"));
    let mut text = painted(&title, screen);
    text += &wrapped(&sentence(headline), "  ", screen.columns);
    if let Some(advice) = &view.summary.recommendation {
        text += &wrapped(&format!("Goal: {}", advice.goal), "  ", screen.columns);
        text += &wrapped(&advice.reason.join(" "), "  ", screen.columns);
    }
    let commands = view.recommended_commands();
    for command in &commands {
        // Never wrapped, so that it can be copied.
        let _ = writeln!(text, "  on {}:  {}", command.hosts, printable(&command.line));
    }
    if view.is_lab() && !commands.is_empty() {
        text += &wrapped("(IFACE is your interface)", "  ", screen.columns);
    }
    if !commands.is_empty() {
        for line in next::lines(view.results) {
            let name = format!("{}:", line.name);
            let _ = writeln!(text, "  {name:<7}{}", printable(&line.text()));
        }
    }
    text += &changes::section(view, screen);
    text.push('\n');
    text
}

/// The headline as a sentence of its own.
pub(crate) fn sentence(headline: &Headline) -> String {
    format!("{}.", capitalised(headline.sentence()))
}

/// A title on lines of its own: bold where the screen shows that. The style is put on last, on lines that are escaped
/// and have their width.
fn painted(text: &str, screen: Screen) -> String {
    bold_lines(&wrapped(text, "", screen.columns), screen)
}

fn bold_lines(text: &str, screen: Screen) -> String {
    let (bold, plain) =
        if screen.is_styled { (printable::BOLD, printable::PLAIN) } else { ("", "") };
    text.lines().flat_map(|line| [bold, line, plain, "\n"]).collect()
}
