//! The screen: which part stands where.

use latput_report::lines::wrap_text;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Frame;

use super::rows::{
    ScreenRow, foot_row, head_row, list_cpus, list_findings, list_help, list_interrupts,
    list_stages, list_summary,
};
use super::state::WatchState;

/// The smallest screen.
const LEAST_COLUMNS: u16 = 60;
const LEAST_ROWS: u16 = 20;
/// From this width on, tables stand beside the findings.
const TWO_COLUMNS: u16 = 100;
/// Columns of the tables there.
const TABLE_COLUMNS: u16 = 48;
/// Columns between.
const GAP: u16 = 2;
/// The least rows of the findings where tables are below them.
const LEAST_FINDINGS: usize = 6;

/// Draws the state.
pub(super) fn render(frame: &mut Frame<'_>, state: &WatchState, is_styled: bool) {
    let area = frame.area();
    let mut painter = Painter { buffer: frame.buffer_mut(), is_styled };
    if area.width < LEAST_COLUMNS || area.height < LEAST_ROWS {
        return painter.put_refusal(area);
    }
    painter.put_rows(Rect { height: 1, ..area }, &[head_row(state)]);
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    painter.put_rows(foot, &[foot_row(state)]);
    let body = Rect { y: area.y + 1, height: area.height - 2, ..area };
    if state.shows_help {
        painter.put_rows(body, &list_help());
    } else if area.width < TWO_COLUMNS {
        painter.put_one_column(body, state);
    } else {
        painter.put_two_columns(body, state);
    }
}

/// Puts rows of text on a buffer.
struct Painter<'a> {
    buffer: &'a mut Buffer,
    is_styled: bool,
}

impl Painter<'_> {
    /// Puts rows at the top of an area; those that have no room there are left out.
    fn put_rows(&mut self, area: Rect, rows: &[ScreenRow]) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        for (y, row) in (area.y..area.bottom()).zip(rows) {
            let style = if row.is_bold && self.is_styled { bold } else { Style::new() };
            self.buffer.set_stringn(area.x, y, &row.text, usize::from(area.width), style);
        }
    }

    fn put_refusal(&mut self, area: Rect) {
        let text = format!(
            "latput watch needs {LEAST_COLUMNS} columns and {LEAST_ROWS} rows; this window has {} and {}. q quits",
            area.width, area.height
        );
        let lines = wrap_text(&text, "", usize::from(area.width));
        let plain = |line: &str| ScreenRow { text: line.to_owned(), is_bold: false };
        let rows: Vec<ScreenRow> = lines.lines().map(plain).collect();
        self.put_rows(area, &rows);
    }

    /// Summary, tables as far as there is room, findings.
    fn put_one_column(&mut self, body: Rect, state: &WatchState) {
        let columns = usize::from(body.width);
        let mut rows = list_summary(state, columns);
        let rest = usize::from(body.height).saturating_sub(rows.len());
        let findings = list_findings(state, columns, rest);
        let for_tables = rest.saturating_sub(findings.len().min(LEAST_FINDINGS.max(rest / 2)));
        let tables = list_tables(state, columns, for_tables);
        let room = rest.saturating_sub(tables.len());
        rows.extend(tables);
        rows.extend(list_findings(state, columns, room));
        self.put_rows(body, &rows);
    }

    /// Summary and findings, and the tables to the right.
    fn put_two_columns(&mut self, body: Rect, state: &WatchState) {
        let left = Rect { width: body.width - TABLE_COLUMNS - GAP, ..body };
        let right = Rect { x: left.right() + GAP, width: TABLE_COLUMNS, ..body };
        let columns = usize::from(left.width);
        let mut rows = list_summary(state, columns);
        let room = usize::from(body.height).saturating_sub(rows.len());
        rows.extend(list_findings(state, columns, room));
        self.put_rows(left, &rows);
        let tables = list_tables(state, usize::from(right.width), usize::from(right.height));
        self.put_rows(right, &tables);
    }
}

/// The tables of stages, CPUs and interrupts. The stages get what the others leave, and a third of the rows at least; so do
/// the CPUs and interrupts among each other, with half of the rest.
fn list_tables(state: &WatchState, columns: usize, most: usize) -> Vec<ScreenRow> {
    let figures = &state.figures;
    let interrupts = list_interrupts(figures, columns, most).len();
    let cpus = list_cpus(figures, columns, most).len();
    let for_stages = most.saturating_sub((interrupts + cpus).min(most - most / 3));
    let stages = list_stages(&state.stages, columns, for_stages);
    let rest = most - stages.len();
    let for_cpus = rest.saturating_sub(interrupts.min(rest / 2));
    let mut rows = list_cpus(figures, columns, for_cpus);
    rows.extend(list_interrupts(figures, columns, rest - rows.len()));
    rows.extend(stages);
    rows
}

#[cfg(test)]
mod tests {
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;

    use super::super::keys::Key;
    use super::super::state::WatchState;
    use super::super::state::fixture::lossy_state;
    use super::*;

    /// The rows of a screen, without the blanks at their ends.
    fn draw(state: &WatchState, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| render(frame, state, true)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..rows).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn every_width_shows_every_part() {
        for (columns, rows) in [(60, 20), (80, 24), (100, 30), (160, 50)] {
            let screen = draw(&lossy_state(4), columns, rows);
            let all = screen.join("\n");
            for part in [
                "latput watch eth0 every 1 s",
                "in          20.0 kp/s 240.0 Mbit/s",
                "delay       250 us round trip",
                "drops       socket 3.0 k/s",
                "CPU         user 20%, system 20%,",
                "packets each",
                " CPU  user   sys",
                "findings",
                ">",
                "q quit",
            ] {
                assert!(all.contains(part), "{part} at {columns}:\n{all}");
            }
        }
    }

    #[test]
    fn wide_screen_has_tables_beside_findings() {
        let screen = draw(&lossy_state(4), 160, 40);
        assert!(screen[1].starts_with("in  ") && screen[1].contains(" CPU  user"), "{screen:#?}");
        let is_stage = |row: &String| row.contains("wakeup ") && row.contains(" 13.3us");
        assert!(screen.iter().any(is_stage), "{screen:#?}");
        let narrow = draw(&lossy_state(4), 80, 40);
        assert!(!narrow[1].contains(" CPU  user"), "{narrow:#?}");
    }

    #[test]
    fn small_window_says_what_it_needs() {
        for (columns, rows) in [(59, 24), (80, 19), (20, 5), (1, 1)] {
            let all = draw(&lossy_state(2), columns, rows).join(" ");
            assert!(columns < 20 || all.contains("latput watch needs"), "{all}");
            assert!(!all.contains("findings"), "{all}");
        }
    }

    #[test]
    fn many_cpus_leave_room_for_findings() {
        let state = lossy_state(64);
        for (columns, rows) in [(60, 20), (100, 24)] {
            let all = draw(&state, columns, rows).join("\n");
            assert!(all.contains(" CPU  user") && all.contains("findings"), "{all}");
            assert!(all.contains(state.findings[0].found.finding.id), "{all}");
        }
        let all = draw(&state, 100, 24).join("\n");
        assert!(all.contains("56 less busy") && all.contains("with lower rates"), "{all}");
    }

    #[test]
    fn state_of_the_watch_is_on_top() {
        let mut state = WatchState::new("eth0", "1 s");
        assert_eq!(draw(&state, 80, 24)[0], "latput watch eth0 every 1 s, first window");
        state.apply_key(Key::Char('p'));
        assert_eq!(draw(&state, 80, 24)[0], "latput watch eth0 every 1 s, paused");
        state.apply_key(Key::Char('p'));
        state.show_gone();
        assert_eq!(draw(&state, 80, 24)[0], "latput watch eth0 went away: waiting for it");
        state.apply_key(Key::Char('?'));
        assert!(draw(&state, 60, 20).join("\n").contains("pin the selected finding"));
        state.message = Some("recorded: \u{1b}[2J".to_owned());
        assert_eq!(draw(&state, 60, 20)[19], "recorded: \\u001b[2J");
    }

    #[test]
    fn screen_has_bold_text_and_no_colour() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        for is_styled in [true, false] {
            terminal.draw(|frame| render(frame, &lossy_state(2), is_styled)).unwrap();
            let cells = terminal.backend().buffer().content();
            assert!(cells.iter().all(|cell| cell.fg == ratatui_core::style::Color::Reset));
            let is_bold = |cell: &ratatui_core::buffer::Cell| cell.modifier == Modifier::BOLD;
            assert_eq!(cells.iter().any(is_bold), is_styled);
        }
    }
}
