//! Text made safe for a terminal, with this crate's own styles, and for Markdown.

use std::borrow::Cow;

use latput_units::printable::escape_unprintable;
pub use latput_units::printable::make_printable;

/// The terminal styles of this crate: bold, which is readable on every background, and reset.
pub(crate) const BOLD: &str = "\u{1b}[1m";
pub(crate) const PLAIN: &str = "\u{1b}[0m";

/// Like [`make_printable`], for text of many lines: tabs and ends of lines stay, and with `keeps_paint`
/// also the terminal styles of this crate.
pub fn printable_lines(text: &str, keeps_paint: bool) -> Cow<'_, str> {
    escape_unprintable(text, |rest, c| match c {
        '\n' | '\t' => 1,
        '\r' if rest.starts_with("\r\n") => 1,
        '\u{1b}' if keeps_paint => {
            let paint = [BOLD, PLAIN].into_iter().find(|paint| rest.starts_with(paint));
            paint.map_or(0, str::len)
        }
        _ => 0,
    })
}

/// Text escaped for Markdown, inside and outside of a table.
pub(crate) fn markdown_escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in make_printable(text).chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        let lines = |text| printable_lines(text, false).into_owned();
        for (text, shown) in [
            ("a\u{1b}[31mb", r"a\u001b[31mb"),
            ("\u{9b}2J", r"\u009b2J"),
            ("\u{7f}", r"\u007f"),
            ("x\u{202e}y", r"x\u202ey"),
            ("x\u{e0041}", r"x\udb40\udc41"),
            ("x\ry", r"x\u000dy"),
            ("µs ±5%, ─", "µs ±5%, ─"),
        ] {
            assert_eq!(lines(text), shown);
            assert_eq!(make_printable(text), shown);
        }
        assert_eq!(lines("a\tb\r\nc\n"), "a\tb\r\nc\n");
        assert_eq!(make_printable("a\tb\n"), r"a\u0009b\u000a");
    }

    #[test]
    fn only_own_paint_reaches_terminal() {
        let text = "\u{1b}[1mx\u{1b}[0m\u{1b}[8m";
        assert_eq!(printable_lines(text, true), "\u{1b}[1mx\u{1b}[0m\\u001b[8m");
        assert!(!printable_lines(text, false).contains('\u{1b}'));
    }

    #[test]
    fn json_still_means_the_same() {
        let text = "\u{202e}\u{e0041}\u{85}\u{7f}\n";
        let json = serde_json::to_string(text).unwrap();
        let shown = printable_lines(&json, false);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
