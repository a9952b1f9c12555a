//! Words of a command line, split and joined as a shell does, without its expansions.

/// A command line that cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A quote is not closed.
    #[error("a quote (`{0}`) is not closed")]
    Open(char),
    /// It ends in a backslash.
    #[error("it ends in a backslash")]
    Backslash,
    /// It has no word.
    #[error("it names no program")]
    Empty,
    /// A shell would do something with it.
    #[error(
        "no shell reads it, and `{0}` needs one: quote it if it is meant as it is, or name a shell: sh -c '...'"
    )]
    Shell(char),
}

/// Splits a command line at its spaces. Quotes and backslashes work as in a POSIX shell (XCU, 2.2).
///
/// # Errors
///
/// An open quote, no word, or a character outside quotes that a shell would act on.
pub fn split(line: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(SplitError::Open('\''))? {
                        '\'' => break,
                        other => word.push(other),
                    }
                }
            }
            '"' => quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => {
                let next = chars.next().ok_or(SplitError::Backslash)?;
                if next != '\n' {
                    word.get_or_insert_default().push(next);
                }
            }
            '|' | '&' | ';' | '<' | '>' | '$' | '`' => return Err(SplitError::Shell(c)),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if words.first().is_none_or(String::is_empty) { Err(SplitError::Empty) } else { Ok(words) }
}

/// The rest of a word in double quotes.
fn quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), SplitError> {
    loop {
        match chars.next().ok_or(SplitError::Open('"'))? {
            '"' => return Ok(()),
            '\\' => match chars.next().ok_or(SplitError::Open('"'))? {
                '\n' => {}
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            c @ ('$' | '`') => return Err(SplitError::Shell(c)),
            other => word.push(other),
        }
    }
}

/// The words in one line, which [`split`] splits again.
pub(super) fn join(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%{}".contains(c);
    let each = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        for (line, expected) in [
            ("wrk -t2 http://{sut}/", &["wrk", "-t2", "http://{sut}/"][..]),
            ("  a\t b \n", &["a", "b"]),
            ("sh -c 'a | b'", &["sh", "-c", "a | b"]),
            ("a '' b", &["a", "", "b"]),
            ("a \"x \\\"y\\\" \\n\"", &["a", "x \"y\" \\n"]),
            ("a\\ b c'd'\"e\"", &["a b", "cde"]),
        ] {
            assert_eq!(split(line).unwrap(), expected, "{line}");
            assert_eq!(split(&join(&split(line).unwrap())).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn shell_syntax_is_refused() {
        assert_eq!(split("a | b"), Err(SplitError::Shell('|')));
        assert_eq!(split("a \"$HOME\""), Err(SplitError::Shell('$')));
        assert_eq!(split("a 'b"), Err(SplitError::Open('\'')));
        assert_eq!(split("a \"b\\"), Err(SplitError::Open('"')));
        assert_eq!(split("a \\"), Err(SplitError::Backslash));
        assert_eq!(split(" "), Err(SplitError::Empty));
        assert_eq!(split("'' a"), Err(SplitError::Empty));
    }
}
