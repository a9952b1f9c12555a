//! The place where text is shown.

/// The output device of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of a line.
    pub columns: usize,
    /// Whether it shows styles; otherwise bold text and rules are left out.
    pub is_styled: bool,
}
