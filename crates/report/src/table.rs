//! The trade-off table, the recommendation and the remarks, for a terminal or a pipe.

mod groups;

use std::fmt::Write;

use comfy_table::{Cell as TableCell, CellAlignment, Table, presets};
use latput_model::{CellSummary, Headline, ResultsSummary};
use latput_trial::metric::{PreferredDirection, Scale};
use latput_trial::{Metric, Results};

use crate::changes;
use crate::effects;
use crate::format;
use crate::lines::{display_width, truncate_text, wrap_hanging, wrap_text};
use crate::next;
use crate::printable::{self, make_printable};
use crate::remarks::{INTERVALS, collect_remarks};
use crate::screen::Screen;
use crate::single;
use crate::view::{ReportView, capitalize_first, cpu_sources, finite_estimate, is_too_wide};

/// One column of figures.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TableColumn {
    workload: usize,
    metric: Metric,
    scale: Scale,
}

/// A table under construction: its columns and their shared settings.
struct TableLayout<'v, 'a> {
    view: &'v ReportView<'a>,
    columns: Vec<TableColumn>,
    screen: Screen,
}

/// A label takes at most this share of a line, in percent,
const LABEL_SHARE: usize = 40;
/// but as many columns.
const NARROWEST_LABEL: usize = 20;

/// Table, recommendation, and a digest of warnings, failed checks and outlier runs.
pub fn render_terminal(results: &Results, summary: &ResultsSummary, screen: Screen) -> String {
    let view = ReportView::new(results, summary);
    let mut text = render_heading(&view, screen);
    if let Some(shortage) = view.describe_shortage() {
        text += &wrap_text(&shortage, "", screen.columns);
        text.push('\n');
    }
    if let Some(cell) = single::only_cell(&view) {
        text += &single::render_figures(&view, cell, screen.columns);
        text.push('\n');
    } else if !view.measured_settings().is_empty() {
        text += &render_tables(&view, screen);
        text += &render_legend(&view, screen);
        text.push('\n');
    }
    text += &groups::render_groups(&view, screen);
    text += &render_recommendation(&view, screen);
    let effects = effects::render_effects(results, screen);
    if !effects.is_empty() {
        text += &render_title(effects::TITLE, screen);
        text += &effects;
        text.push('\n');
    }
    text += &render_warnings(&view, screen);
    text.trim_end().to_owned() + "\n"
}

/// A line for each kind of problem; other outputs have the full lists.
fn render_warnings(view: &ReportView<'_>, screen: Screen) -> String {
    let mut remarks = collect_remarks(view);
    if single::only_cell(view).is_some() {
        remarks.retain(|remark| remark.title != INTERVALS); // it has a block of its own
    }
    if remarks.is_empty() {
        return String::new();
    }
    let mut text = render_title("Warnings", screen);
    for remark in &remarks {
        let line = format!("{}: {}", remark.title, remark.digest);
        text += &wrap_hanging(&line, "  ", "    ", screen.columns);
    }
    if remarks.iter().any(|remark| !remark.full.is_empty()) {
        let hint = "(full lists: the HTML report, or --format markdown)";
        text += &wrap_text(hint, "  ", screen.columns);
    }
    text
}

/// `>` recommended, `*` in the Pareto set, `!` a check failed in this cell.
pub(crate) fn cell_marks(view: &ReportView<'_>, setting: usize, workload: usize) -> String {
    let mut marks = row_marks(view, setting);
    if view.has_failed_check(setting, workload) {
        marks.push('!');
    }
    marks
}

fn row_marks(view: &ReportView<'_>, setting: usize) -> String {
    let mut marks = String::new();
    if view.is_recommended(setting) {
        marks.push('>');
    }
    if view.is_pareto(setting) {
        marks.push('*');
    }
    marks
}

fn render_heading(view: &ReportView<'_>, screen: Screen) -> String {
    let results = view.results;
    if let Some((setting, workload)) = single::only_cell(view) {
        let workload = view.workload_name(workload);
        let setting = view.full_label(setting);
        let trials = format::format_count(results.rows.len(), "trial");
        let line = format!("{workload} on {}, {setting}: {trials}", results.testbed);
        return wrap_text(&line, "", screen.columns) + "\n";
    }
    let line = format!(
        "{} on {}: {}, {}, {}, {}",
        results.name,
        results.testbed,
        format::format_count(results.settings.len(), "setting"),
        format::format_count(results.workloads.len(), "workload"),
        format::format_count(view.count_blocks(), "block"),
        format::format_count(results.rows.len(), "trial"),
    );
    wrap_text(&line, "", screen.columns) + "\n"
}

/// Tables of at most the screen's width, one below the other: workloads stand side by side as far as they fit, and
/// a workload that is too wide alone is continued in the next table. No figure is left out.
fn render_tables(view: &ReportView<'_>, screen: Screen) -> String {
    let layout = |columns| TableLayout { view, columns, screen };
    let fits = |columns: &[TableColumn]| layout(columns.to_vec()).total_width() <= screen.columns;
    let mut tables: Vec<Vec<TableColumn>> = vec![Vec::new()];
    let mut add = |part: &[TableColumn]| {
        let last = tables.last_mut().expect("there is a first table");
        let together = [last.as_slice(), part].concat();
        if last.is_empty() || fits(&together) {
            *last = together;
        } else {
            tables.push(part.to_vec());
        }
    };
    for (workload, _) in view.measured_workloads() {
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

fn workload_columns(view: &ReportView<'_>, idx: usize) -> Vec<TableColumn> {
    view.main_metrics(idx)
        .into_iter()
        .map(|metric| TableColumn { workload: idx, metric, scale: view.choose_scale(idx, metric) })
        .collect()
}

impl TableLayout<'_, '_> {
    /// Columns before the figures: the marks and the setting.
    const BEFORE: usize = 2;

    fn total_width(&self) -> usize {
        let table = self.build_table();
        self.column_widths(&table).iter().sum()
    }

    /// The line of workload names, a rule under each, then the table.
    fn render(&self) -> String {
        let table = self.build_table();
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
            let to_the_end = self.screen.columns.saturating_sub(display_width(&names) + 2);
            let name_room = if is_last { to_the_end.max(room) } else { room };
            let name = self.view.workload_name(workload);
            let name = truncate_text(&name, name_room);
            let fill = rule.repeat(room.saturating_sub(display_width(&name) + 1));
            let _ = write!(names, "  {name} {fill}");
            start = end;
        }
        let mut lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
        let mut text = names.trim_end().to_owned() + "\n";
        text.extend(lines.by_ref().take(self.header_label().len()));
        for setting in self.view.measured_settings() {
            let row: String = lines.by_ref().take(self.label_lines(setting).len()).collect();
            let is_recommended = self.view.is_recommended(setting);
            text += &if is_recommended { bold_lines(&row, self.screen) } else { row };
        }
        text
    }

    /// The lines of a setting's label.
    fn label_lines(&self, setting: usize) -> Vec<String> {
        self.break_label(self.view.short_label(setting))
    }

    /// The lines of the header of labels. It ends beside the units, which are in its second line.
    fn header_label(&self) -> Vec<String> {
        let mut lines = self.break_label(&self.view.knobs);
        if lines.len() < 2 {
            lines.insert(0, String::new());
        }
        lines
    }

    /// A label in lines of its column; a word that is longer is broken.
    fn break_label(&self, label: &str) -> Vec<String> {
        let room = (self.screen.columns * LABEL_SHARE / 100).max(NARROWEST_LABEL);
        break_text(label, room)
    }

    fn column_widths(&self, table: &Table) -> Vec<usize> {
        let contents = table.column_max_content_widths();
        let widths = contents.iter().enumerate().map(|(idx, &content)| {
            let (left, right) = self.column_padding(idx);
            usize::from(left) + usize::from(content) + usize::from(right)
        });
        widths.collect()
    }

    /// The padding of a column; workloads have a gap between them.
    fn column_padding(&self, idx: usize) -> (u16, u16) {
        let Some(figure) = idx.checked_sub(Self::BEFORE) else { return (0, 1) };
        let starts_group =
            figure == 0 || self.columns[figure].workload != self.columns[figure - 1].workload;
        (if starts_group { 2 } else { 1 }, 1)
    }

    fn build_table(&self) -> Table {
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
        for setting in self.view.measured_settings() {
            table.add_row(self.build_row(setting));
        }
        for idx in 0..self.columns.len() + Self::BEFORE {
            if let Some(column) = table.column_mut(idx) {
                column.set_padding(self.column_padding(idx));
            }
        }
        table
    }

    fn build_row(&self, setting: usize) -> Vec<TableCell> {
        let mut row = vec![
            TableCell::new(row_marks(self.view, setting)),
            TableCell::new(self.label_lines(setting).join("\n")),
        ];
        for column in &self.columns {
            let text = self
                .view
                .find_cell(setting, column.workload)
                .map_or_else(|| "-".to_owned(), |measured| self.format_figure(measured, column));
            row.push(TableCell::new(text).set_alignment(CellAlignment::Right));
        }
        row
    }

    /// `45.6 ±0.3~!`: marks have a fixed place even if they are absent, so that figures align.
    fn format_figure(&self, cell: &CellSummary, column: &TableColumn) -> String {
        let Some(estimate) = finite_estimate(cell, column.metric) else { return "-".to_owned() };
        let mut text = column.scale.number(estimate.value);
        text += &format::interval_behind(estimate, &column.scale);
        let bears_marks = self.find_marked_column(column.workload) == Some(column.metric);
        if bears_marks
            && self.has_marked_cell(|cell| is_too_wide(cell, column.metric), column.workload)
        {
            text.push(if is_too_wide(cell, column.metric) { '~' } else { ' ' });
        }
        let has_failed =
            |cell: &CellSummary| self.view.has_failed_check(cell.setting, cell.workload);
        if bears_marks && self.has_marked_cell(has_failed, column.workload) {
            text.push(if has_failed(cell) { '!' } else { ' ' });
        }
        text
    }

    /// The column of a workload that has the marks: its rate, or else the first of which more is better, or the first.
    fn find_marked_column(&self, workload: usize) -> Option<Metric> {
        let of_workload = || self.columns.iter().filter(|column| column.workload == workload);
        let metrics = || of_workload().map(|column| column.metric);
        let rate = self.view.rate_metric(workload);
        let is_high = |metric: &Metric| metric.preferred_direction() == PreferredDirection::Higher;
        metrics()
            .find(|metric| *metric == rate)
            .or_else(|| metrics().find(is_high))
            .or_else(|| metrics().next())
    }

    fn has_marked_cell(&self, marked: impl Fn(&CellSummary) -> bool, workload: usize) -> bool {
        self.view.workload_cells(workload).into_iter().any(marked)
    }
}

/// A text in lines of at most `room` columns. It breaks at spaces, and within words that are longer.
fn break_text(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in wrap_text(text, "", room).lines() {
        let mut line = line.to_owned();
        while display_width(&line) > room {
            let kept = line.char_indices().map(|(at, _)| at).skip(1);
            let end =
                kept.take_while(|end| display_width(&line[..*end]) <= room).last().unwrap_or(1);
            let rest = line.split_off(end);
            lines.push(std::mem::replace(&mut line, rest));
        }
        lines.push(line);
    }
    lines
}

/// Explains the marks that occur.
fn render_legend(view: &ReportView<'_>, screen: Screen) -> String {
    let results = view.results;
    let (mut lead, mut parts) = ("", Vec::new());
    if view.measured_settings().into_iter().any(|setting| view.is_recommended(setting)) {
        parts.push("> recommended".to_owned());
    }
    let has_choice = view.measured_settings().len() > 1; // one setting trades nothing
    if has_choice && view.is_every_setting_pareto() {
        lead = "Every setting is a trade-off: none is best throughout. ";
    } else if has_choice && view.summary.pareto.is_empty() && view.summary.fitness.unfit > 0 {
        lead = "Nothing could be compared: too few trials count. ";
    } else if has_choice && !view.summary.pareto.is_empty() {
        parts.push("* no other setting is better in rate, latency and CPU cost at once".to_owned());
    }
    if view.summary.cells.iter().any(|cell| !cell.narrow_enough()) {
        parts
            .push(format!("~ interval wider than ±{}", format::format_percent(results.half_width)));
    }
    if !view.summary.failed_checks.is_empty() {
        parts.push("! a check failed".to_owned());
    }
    parts.push("round-trip times are medians over trials, other figures are means".to_owned());
    parts.push(format!("± half the {}", view.describe_confidence()));
    if view.shows_lopsided_interval() {
        parts.push("(a to b) the interval itself, where its halves differ".to_owned());
    }
    parts.extend(cpu_sources(view.results).map(|source| {
        format!("CPU and demand (CPU time per transaction or KB) are the SUT's, {source}")
    }));
    parts.extend(view.cost_of_counting());
    wrap_text(&format!("{lead}{}", parts.join("; ")), "", screen.columns)
}

fn render_recommendation(view: &ReportView<'_>, screen: Screen) -> String {
    let (Some(headline), Some((words, label))) = (&view.summary.headline, view.short_answer())
    else {
        return String::new();
    };
    let title = label.map_or_else(|| words.clone(), |label| format!("{words} {label}"));
    let mut text = render_title(&title, screen);
    text += &wrap_text(&format_headline(headline), "  ", screen.columns);
    if let Some(advice) = &view.summary.recommendation {
        text += &wrap_text(&format!("Goal: {}", advice.goal), "  ", screen.columns);
        text += &wrap_text(&advice.reason.join(" "), "  ", screen.columns);
    }
    let commands = view.recommended_commands();
    for command in &commands {
        // Never wrapped, so that it can be copied.
        let _ = writeln!(text, "  on {}:  {}", command.hosts, make_printable(&command.line));
    }
    if view.is_lab() && !commands.is_empty() {
        text += &wrap_text("(IFACE is your interface)", "  ", screen.columns);
    }
    if !commands.is_empty() {
        for line in next::build_next_lines(view.results) {
            let name = format!("{}:", line.name);
            let _ = writeln!(text, "  {name:<7}{}", make_printable(&line.to_text()));
        }
    }
    text += &changes::render_objective_changes(view, screen);
    text.push('\n');
    text
}

/// The headline as a sentence of its own.
pub(crate) fn format_headline(headline: &Headline) -> String {
    format!("{}.", capitalize_first(headline.sentence()))
}

/// A title on lines of its own: bold where the screen shows that. The style is put on last, on lines that are escaped
/// and have their width.
fn render_title(text: &str, screen: Screen) -> String {
    bold_lines(&wrap_text(text, "", screen.columns), screen)
}

fn bold_lines(text: &str, screen: Screen) -> String {
    let (bold, plain) =
        if screen.is_styled { (printable::BOLD, printable::PLAIN) } else { ("", "") };
    text.lines().flat_map(|line| [bold, line, plain, "\n"]).collect()
}
