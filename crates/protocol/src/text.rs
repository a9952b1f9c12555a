//! Texts of errors and of other hosts.

use std::fmt::Write as _;

/// An error with its causes, in one line.
pub fn format_error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// A text of another host, without control characters of terminals.
pub fn replace_control_chars(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}
