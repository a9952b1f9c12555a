//! Rust text reduced to what a word search may trust: comments, strings and tests become blanks.

/// Blanks comments and the insides of string and character literals; every line stays where it was.
pub fn mask_non_code(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(char) = rest.chars().next() {
        let skip = match char {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment_len(rest),
            '"' => quoted_len(rest, '"'),
            '\'' => char_literal_len(rest),
            'r' if !is_word(before) || matches!(before, 'b' | 'c') => raw_string_len(rest),
            _ => 0,
        };
        let (taken, behind) = rest.split_at(skip.max(char.len_utf8()));
        masked.extend(taken.chars().map(|it| if skip == 0 { it } else { blank(it) }));
        (before, rest) = (char, behind);
    }
    masked
}

/// Blanks every item under `#[cfg(test)]`; `masked` must come from [`mask_non_code`].
pub fn without_tests(masked: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut product = String::with_capacity(masked.len());
    let mut rest = masked;
    while let Some(start) = rest.find(MARK) {
        product.push_str(&rest[..start]);
        let end = start + MARK.len() + item_len(&rest[start + MARK.len()..]);
        product.extend(rest[start..end].chars().map(blank));
        rest = &rest[end..];
    }
    product.push_str(rest);
    product
}

/// Whether `char` may be part of a Rust word.
pub fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The byte offsets at which `word` stands as a word of its own; a path such as `std::fs` counts too.
pub fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        let last_is_word = word.chars().next_back().is_some_and(is_word);
        let first_is_word = word.chars().next().is_some_and(is_word);
        let longer = first_is_word && before.is_some_and(is_word)
            || last_is_word && after.is_some_and(is_word);
        !longer
    })
}

/// Whether `word` stands in `code` as a word of its own.
pub fn has_word(code: &str, word: &str) -> bool {
    find_word(code, word).next().is_some()
}

/// Length of the item at the start of `text`: to its `;` or to the end of its braces.
fn item_len(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn block_comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        at += match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => {
                depth += 1;
                2
            }
            Some(b"*/") if depth <= 1 => return at + 2,
            Some(b"*/") => {
                depth -= 1;
                2
            }
            _ => 1,
        };
    }
    text.len()
}

/// Length of a literal that opens and closes with `quote` and escapes with a backslash.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, char) in text.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return at + char.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Length of a character literal, or 0 where the quote opens a lifetime.
fn char_literal_len(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_len(text, '\''),
        (Some(char), Some('\'')) => char.len_utf8() + 2,
        _ => 0,
    }
}

/// Length of a raw string that starts at an `r`, or 0 where the `r` is something else.
fn raw_string_len(text: &str) -> usize {
    let hashes = text[1..].chars().take_while(|&char| char == '#').count();
    if !text[1 + hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let body = 2 + hashes;
    text[body..].find(&end).map_or(text.len(), |at| body + at + end.len())
}

fn blank(char: char) -> char {
    if char == '\n' { '\n' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_become_blanks() {
        for (text, kept, lost) in [
            ("let a = 1; // std::fs\nlet b;", "let b;", "std::fs"),
            ("/* a /* std::fs */ b */ real", "real", "std::fs"),
            ("/* never closed std::fs", "", "std::fs"),
            ("let a = \"std::fs \\\" //\"; real", "real", "std::fs"),
            ("let a = r#\"std::fs \" \"#; real", "real", "std::fs"),
            ("let a = br\"std::fs\"; real", "real", "std::fs"),
            ("let quote = '\"'; std::real(\"std::fs\")", "std::real(", "std::fs"),
            ("let quote = '\\''; real<'a>(\"std::fs\")", "real<'a>(", "std::fs"),
            ("for r in 0..1 { real } // std::fs", "for r in 0..1 { real }", "std::fs"),
        ] {
            let masked = mask_non_code(text);
            assert!(masked.contains(kept), "{text:?} became {masked:?}");
            assert!(!masked.contains(lost), "{text:?} became {masked:?}");
            assert_eq!(masked.lines().count(), text.lines().count());
        }
    }

    #[test]
    fn tests_become_blanks_and_what_follows_stays() {
        let code = "real();\n#[cfg(test)]\nmod tests { fn a() { b() } }\nkept();\n";
        let product = without_tests(code);
        assert!(product.contains("real()") && product.contains("kept()"), "{product}");
        assert!(!product.contains("b()"), "{product}");
        assert_eq!(without_tests("#[cfg(test)]\nmod tests;\nkept").trim(), "kept");
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(find_word("std::fs::read; std::fsx; xstd::fs", "std::fs").count(), 1);
        assert_eq!(find_word("eprintln!(); println!()", "println!").count(), 1);
    }
}
