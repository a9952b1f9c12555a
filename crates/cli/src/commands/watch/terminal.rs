//! The terminal of a screen: its modes, which are put back on every way out, and what is written to it.
//!
//! `ratatui-core` draws cells; these are the few sequences that put them on a terminal (ADR 024).

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::Modifier;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// The second screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// The cursor, and the screen that was there.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";
/// Columns and rows of a terminal that does not tell them.
const USUAL: Size = Size { width: 80, height: 24 };

/// A terminal in the mode of a screen: keys come one by one and are not shown. Dropped, it is as it was; after a panic too,
/// before the panic's message.
pub(super) struct ScreenMode {
    saved: Arc<SavedMode>,
}

/// The mode before, and whether it is to be put back.
struct SavedMode {
    modes: Termios,
    is_changed: AtomicBool,
}

impl ScreenMode {
    /// Saves the mode of stdin, and begins.
    pub(super) fn enter() -> io::Result<Self> {
        let modes = tcgetattr(io::stdin())?;
        let saved = Arc::new(SavedMode { modes, is_changed: AtomicBool::new(false) });
        let (known, before) = (Arc::clone(&saved), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            known.put_back();
            before(panic);
        }));
        let mode = Self { saved };
        mode.begin()?;
        Ok(mode)
    }

    /// Begins, also again after a stop.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut modes = self.saved.modes.clone();
        // Keys for signals (Ctrl-C, Ctrl-Z) stay what they are.
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        self.saved.is_changed.store(true, Ordering::SeqCst);
        tcsetattr(io::stdin(), OptionalActions::Drain, &modes)?;
        write_now(ENTER)
    }

    /// Puts the terminal back until [`Self::begin`].
    pub(super) fn end(&self) {
        self.saved.put_back();
    }
}

impl Drop for ScreenMode {
    fn drop(&mut self) {
        self.end();
    }
}

impl SavedMode {
    /// Once only: the second time, a terminal would move its cursor.
    fn put_back(&self) {
        if self.is_changed.swap(false, Ordering::SeqCst) {
            // A terminal that is gone needs nothing.
            let _is_told = write_now(LEAVE);
            let _is_set = tcsetattr(io::stdin(), OptionalActions::Drain, &self.modes);
        }
    }
}

fn write_now(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes cells to stdout as text and bold text, in the terminal's own colours.
#[derive(Debug, Default)]
pub(super) struct AnsiBackend {
    /// Text and sequences that are not written yet.
    text: String,
    cursor: Position,
}

impl AnsiBackend {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn move_to(&mut self, position: Position) {
        use std::fmt::Write as _;
        // Rows and columns of the sequence begin at 1.
        let (row, column) = (u32::from(position.y) + 1, u32::from(position.x) + 1);
        let _written = write!(self.text, "\x1b[{row};{column}H");
        self.cursor = position;
    }
}

impl Backend for AnsiBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut is_bold = false;
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.move_to(Position { x, y });
            }
            // Behind a wide character comes another move.
            next = cell.symbol().is_ascii().then_some((x.saturating_add(1), y));
            if cell.modifier.contains(Modifier::BOLD) != is_bold {
                is_bold = !is_bold;
                self.text.push_str(if is_bold { BOLD } else { PLAIN });
            }
            self.text.push_str(cell.symbol());
        }
        if is_bold {
            self.text.push_str(PLAIN);
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.move_to(position.into());
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.text.push_str(match clear_type {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        });
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        let window = tcgetwinsize(io::stdout())?;
        let is_told = window.ws_col > 0 && window.ws_row > 0;
        Ok(if is_told { Size::new(window.ws_col, window.ws_row) } else { USUAL })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        write_now(&std::mem::take(&mut self.text))
    }
}
