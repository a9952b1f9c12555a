//! Text in lines of a screen's width. Widths are the columns that a terminal needs, not numbers of characters.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::printable::{BOLD, PLAIN, make_printable};

/// The mark of a text that is cut.
const CUT: char = '…';
/// The end of a line in which a shell's command goes on with the next.
const GOES_ON: &str = " \\";

/// The columns that a terminal needs for a text of one line. The styles of this crate need none.
pub fn display_width(text: &str) -> usize {
    if text.contains('\u{1b}') {
        return UnicodeWidthStr::width(text.replace(BOLD, "").replace(PLAIN, "").as_str());
    }
    UnicodeWidthStr::width(text)
}

/// A text of one line, cut to `columns` with a mark where it has more.
pub fn truncate_text(text: &str, columns: usize) -> Cow<'_, str> {
    if display_width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    let mut taken = 1; // the mark
    for char in text.chars() {
        taken += char.width().unwrap_or(0);
        if taken > columns {
            break;
        }
        kept.push(char);
    }
    kept.truncate(kept.trim_end().len());
    kept.push(CUT);
    Cow::Owned(kept)
}

/// Breaks at spaces; a word that is too long for any line stays whole, and so does a command in backticks that fits
/// a line.
pub fn wrap_text(text: &str, indent: &str, columns: usize) -> String {
    wrap_hanging(text, indent, indent, columns)
}

/// Like [`wrap_text`], with another indent from the second line on.
pub fn wrap_hanging(text: &str, first: &str, indent: &str, columns: usize) -> String {
    wrap_pieces(
        &split_words_and_commands(
            &make_printable(text),
            columns.saturating_sub(display_width(indent)),
        ),
        first,
        indent,
        columns,
    )
}

/// Folds the lines that are too long for the screen, for the last step before a terminal. What stands in front of a gap
/// of two spaces is a column of its own. A line that is a command goes on behind `\`, so that it can be copied.
pub fn fold_lines(text: &str, columns: usize) -> Cow<'_, str> {
    if text.split('\n').all(|line| display_width(line) <= columns) {
        return Cow::Borrowed(text);
    }
    let lines: Vec<Cow<'_, str>> = text
        .split('\n')
        .map(|line| {
            if display_width(line) <= columns {
                Cow::Borrowed(line)
            } else {
                fold_line(line, columns)
            }
        })
        .collect();
    Cow::Owned(lines.join("\n"))
}

fn fold_line(line: &str, columns: usize) -> Cow<'_, str> {
    if let Some(inner) = line.strip_prefix(BOLD).and_then(|rest| rest.strip_suffix(PLAIN)) {
        let painted = fold_lines(inner, columns).replace('\n', &format!("{PLAIN}\n{BOLD}"));
        return Cow::Owned(format!("{BOLD}{painted}{PLAIN}"));
    }
    if line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let (first, hang) = measure_first_column(line, columns);
    let rest = &line[first..];
    let indent = " ".repeat(hang);
    let room = columns.saturating_sub(hang);
    let pieces = if is_command(rest) {
        split_command_words(rest)
    } else {
        split_words_and_commands(rest, room)
    };
    // The space before the next word is part of a gap, but not of an indent.
    let is_indent = line[..first].trim().is_empty();
    let before = if is_indent { &line[..first] } else { line[..first].trim_end_matches(' ') };
    let gap = " ".repeat(if is_indent { 0 } else { first - before.len() - 1 });
    let text = wrap_pieces(&pieces, &format!("{before}{gap}"), &indent, columns);
    Cow::Owned(text.trim_end_matches('\n').to_owned())
}

/// The length of the first column with the gap behind it, and the column at which further lines begin.
fn measure_first_column(line: &str, columns: usize) -> (usize, usize) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let gap = line[indent..].find("  ").map(|at| {
        let gap = &line[indent + at..];
        indent + at + gap.len() - gap.trim_start_matches(' ').len()
    });
    match gap {
        Some(end) if display_width(&line[..end]) <= columns / 2 => {
            (end, display_width(&line[..end]))
        }
        _ => (indent, indent + 2),
    }
}

/// Whether a text is a command to be typed.
fn is_command(text: &str) -> bool {
    ["latput ", "sudo ", "ssh "].iter().any(|program| text.starts_with(program))
}

/// A word, or several that stay on one line.
struct TextPiece<'a> {
    text: &'a str,
    /// Whether it goes on with the command of the piece before.
    continues: bool,
}

/// Words and commands in backticks, which are one piece if they fit into `room`.
fn split_words_and_commands(text: &str, room: usize) -> Vec<TextPiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text.trim_start_matches(' ');
    while !rest.is_empty() {
        let word = rest.split(' ').next().unwrap_or(rest);
        let is_open = word.matches('`').count() % 2 == 1;
        let span = is_open.then(|| find_span_end(rest, word.len())).flatten();
        let end = match span {
            Some(end) if display_width(&rest[..end]) <= room => {
                pieces.push(TextPiece { text: &rest[..end], continues: false });
                end
            }
            Some(end) => {
                let words = rest[..end].split(' ').filter(|word| !word.is_empty());
                pieces.extend(
                    words.enumerate().map(|(idx, text)| TextPiece { text, continues: idx > 0 }),
                );
                end
            }
            None => {
                pieces.push(TextPiece { text: word, continues: false });
                word.len()
            }
        };
        rest = rest[end..].trim_start_matches(' ');
    }
    pieces
}

/// The end of the word with the closing backtick, behind `from`.
fn find_span_end(text: &str, from: usize) -> Option<usize> {
    let close = from + text[from..].find('`')?;
    Some(text[close..].find(' ').map_or(text.len(), |space| close + space))
}

/// The words of a shell's command; quotes keep words together.
fn split_command_words(text: &str) -> Vec<TextPiece<'_>> {
    let mut pieces = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, char) in text.char_indices() {
        match (char, quote) {
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if char == open => quote = None,
            (' ', None) => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    let words = pieces.into_iter().filter(|word| !word.is_empty());
    words.enumerate().map(|(idx, text)| TextPiece { text, continues: idx > 0 }).collect()
}

fn wrap_pieces(pieces: &[TextPiece<'_>], first: &str, indent: &str, columns: usize) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    for (idx, piece) in pieces.iter().enumerate() {
        let goes_on = pieces.get(idx + 1).is_some_and(|next| next.continues);
        let room = if goes_on { columns.saturating_sub(GOES_ON.len()) } else { columns };
        let is_start = line.trim().is_empty();
        if !is_start && display_width(&line) + 1 + display_width(piece.text) > room {
            lines += line.trim_end();
            lines += if piece.continues { " \\\n" } else { "\n" };
            indent.clone_into(&mut line);
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        line += piece.text;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_breaks_at_display_columns() {
        check_wrapped("aaa bbb ccc", 7, "aaa bbb\nccc\n");
        check_wrapped("漢字 漢字 a", 6, "漢字\n漢字 a\n");
        check_wrapped("see `latput undo 7` now", 16, "see\n`latput undo 7`\nnow\n");
        check_wrapped("see `latput set eth0 a=1 b=2`.", 18, "see `latput set \\\neth0 a=1 b=2`.\n");
        check_wrapped("a ` b", 3, "a `\nb\n");
        check_wrapped("x", 0, "x\n");
    }

    #[test]
    fn long_line_keeps_its_first_column() {
        let long = "  mtu       a b c d e f g h";
        assert_eq!(fold_lines(long, 24), "  mtu       a b c d e f\n            g h");
        assert_eq!(fold_lines("one two three\nx", 8), "one two\n  three\nx");
        assert_eq!(fold_lines("  one two three", 10), "  one two\n    three");
        assert_eq!(fold_lines("fits", 8), "fits");
    }

    #[test]
    fn folded_command_can_be_copied() {
        let line = "keep:  latput keep eth0 'a b c' mtu=9000";
        let text = fold_lines(line, 26);
        assert_eq!(text, "keep:  latput keep eth0 \\\n       'a b c' mtu=9000");
        assert!(text.lines().all(|line| display_width(line) <= 26));
    }

    #[test]
    fn paint_has_no_width() {
        let painted = format!("{BOLD}one two{PLAIN}");
        assert_eq!(display_width(&painted), 7);
        assert_eq!(fold_lines(&painted, 7), painted);
        assert_eq!(fold_lines(&painted, 4), format!("{BOLD}one{PLAIN}\n{BOLD}  two{PLAIN}"));
    }

    #[test]
    fn cut_text_has_a_mark() {
        assert_eq!(truncate_text("abcdef", 6), "abcdef");
        assert_eq!(truncate_text("abcdef", 4), "abc…");
        assert_eq!(truncate_text("漢字漢", 4), "漢…");
    }

    #[track_caller]
    fn check_wrapped(text: &str, columns: usize, expected: &str) {
        assert_eq!(wrap_text(text, "", columns), expected);
    }
}
