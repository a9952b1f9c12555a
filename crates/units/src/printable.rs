//! Text from outside made safe for a terminal, and words of a command line.
//!
//! Names in results files, plans and testbeds, and messages of other hosts, may contain escape sequences or characters
//! that change the reading order.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::text::quote_word;

/// A text of one line without control and format characters; each is shown as JSON escapes it
/// (`\u001b`).
pub fn make_printable(text: &str) -> String {
    escape_unprintable(text, |_, _| 0).into_owned()
}

/// A word quoted for a shell, in printable characters: those that are not are escaped as bash, zsh and POSIX 2024 read them.
pub fn shell_word(word: &str) -> String {
    if make_printable(word) == word {
        return quote_word(word);
    }
    let escape = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if make_printable(&c.to_string()) != c.to_string() => {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).as_bytes().escape_ascii().to_string()
        }
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escape).collect::<String>())
}

/// Escapes unprintable characters. `kept` returns the number of bytes, from such a character on,
/// that are kept.
pub fn escape_unprintable(text: &str, kept: impl Fn(&str, char) -> usize) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(place) = text[at..].find(is_unprintable) {
        at += place;
        let c = text[at..].chars().next().expect("one was found");
        let keep = kept(&text[at..], c);
        if keep > 0 {
            at += keep;
            continue;
        }
        shown.push_str(&text[copied..at]);
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _infallible = write!(shown, "\\u{unit:04x}");
        }
        at += c.len_utf8();
        copied = at;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[copied..]);
    Cow::Owned(shown)
}

/// Whether a character is a control character (C0, DEL, C1) or one that orders, joins or hides
/// others (Unicode's categories Cf, Zl and Zp).
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}'
            | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}')
}
