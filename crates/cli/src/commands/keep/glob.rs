//! Patterns of names in files of other programs, as fnmatch(3) of glibc takes them without flags.

/// Whether the whole of `name` is like `pattern`: `*`, `?`, `[a-c]`, `[!a-c]`, `[^a-c]`, `[[:digit:]]` and `\`.
pub(in crate::commands) fn is_like(name: &str, pattern: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    let pattern: Vec<char> = pattern.chars().collect();
    let (mut at, mut from) = (0, 0);
    // Where the last `*` stands, and how much it takes: more, if what is behind does not fit.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(from) == Some(&'*') {
            star = Some((from + 1, at));
            from += 1;
            continue;
        }
        let fits = match (name.get(at), pattern.get(from)) {
            (None, None) => return true,
            (None, Some(_)) => return false,
            (Some(_), None) => None,
            (Some(letter), Some(_)) => match_one(*letter, &pattern[from..]),
        };
        if let Some(length) = fits {
            (at, from) = (at + 1, from + length);
        } else if let Some((behind, taken)) = star {
            star = Some((behind, taken + 1));
            (at, from) = (taken + 1, behind);
        } else {
            return false;
        }
    }
}

/// The length of the pattern's first part, other than `*`, where it takes this letter.
fn match_one(letter: char, pattern: &[char]) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => match in_brackets(letter, rest) {
            Some((is_in, length)) => is_in.then_some(length + 1),
            // Without its end it is a letter.
            None => (letter == '[').then_some(1),
        },
        ['\\', escaped, ..] => (letter == *escaped).then_some(2),
        [wanted, ..] => (letter == *wanted).then_some(1),
        [] => None,
    }
}

/// Whether a letter is among those in brackets, and the length up to their end; `None` where they have none.
fn in_brackets(letter: char, rest: &[char]) -> Option<(bool, usize)> {
    let is_negated = matches!(rest.first(), Some('!' | '^'));
    let start = usize::from(is_negated);
    let (mut at, mut found) = (start, false);
    while at == start || rest.get(at) != Some(&']') {
        if let Some((is_in, length)) = named_class(letter, &rest[at..]) {
            found |= is_in;
            at += length;
            continue;
        }
        let (low, length) = parse_bound(&rest[at..])?;
        at += length;
        let is_range = rest.get(at) == Some(&'-') && rest.get(at + 1).is_some_and(|it| *it != ']');
        let high = if is_range {
            let (high, length) = parse_bound(&rest[at + 1..])?;
            at += length + 1;
            high
        } else {
            low
        };
        found |= (low..=high).contains(&letter);
    }
    Some((found != is_negated, at + 1))
}

/// A letter in brackets, which `\` may stand before.
const fn parse_bound(rest: &[char]) -> Option<(char, usize)> {
    match rest {
        ['\\', letter, ..] => Some((*letter, 2)),
        [letter, ..] => Some((*letter, 1)),
        [] => None,
    }
}

/// Whether a letter is of the class `[:NAME:]` that stands first, and the length of that.
fn named_class(letter: char, rest: &[char]) -> Option<(bool, usize)> {
    let rest = rest.strip_prefix(&['[', ':'])?;
    let length = rest.windows(2).position(|pair| pair == [':', ']'])?;
    let name: String = rest[..length].iter().collect();
    let is_of: fn(&char) -> bool = match name.as_str() {
        "alnum" => char::is_ascii_alphanumeric,
        "alpha" => char::is_ascii_alphabetic,
        "blank" => |it| [' ', '\t'].contains(it),
        "cntrl" => char::is_ascii_control,
        "digit" => char::is_ascii_digit,
        "graph" => char::is_ascii_graphic,
        "lower" => char::is_ascii_lowercase,
        "print" => |it| it.is_ascii_graphic() || *it == ' ',
        "punct" => char::is_ascii_punctuation,
        "space" => |it| it.is_ascii_whitespace() || *it == '\u{b}',
        "upper" => char::is_ascii_uppercase,
        "xdigit" => char::is_ascii_hexdigit,
        _ => return None,
    };
    Some((is_of(&letter), length + 4))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::strategy::{Strategy as _, ValueTree as _};

    use super::is_like;

    #[test]
    fn patterns_take_classes_and_stars() {
        for (name, pattern, expected) in [
            ("eth7", "eth[0-9]", true),
            ("eth7", "eth[!0-6]", true),
            ("eth7", "eth[^7]", false),
            ("eth7", "[[:alpha:]]th[[:digit:]x]", true),
            ("eth]", "eth[]7]", true),
            ("eth-", "eth[7-]", true),
            ("eth[", "eth[", true),
            ("eth[7", "eth[7", true),
            ("eth7", "eth[7", false),
            ("eth*", r"eth\*", true),
            ("eth7", r"eth\*", false),
            ("eno1np0", "en*[0-9]np?", true),
            ("", "*", true),
            ("", "?", false),
        ] {
            assert_eq!(is_like(name, pattern), expected, "{name} {pattern}");
        }
    }

    /// The answers of the C library, by Python's ctypes.
    const FNMATCH: &str = "import ctypes, os, sys\nc = ctypes.CDLL(None)\nwords = sys.stdin.buffer.read().split(b'\\n')\n\
        print(''.join('01'[c.fnmatch(p, n, 0) == 0] for n, p in zip(words[::2], words[1::2])))";

    #[test]
    fn answers_are_those_of_the_c_library() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let cases = (
            "[ab17\\-\\]\\[]{0,5}",
            "([ab17*?!^\\]\\[\\-\\\\]|\\[:digit:\\]|\\[!?a-b[17]\\]){0,6}",
        );
        let mut pairs: Vec<(String, String)> = Vec::new();
        for _ in 0..20_000 {
            pairs.push(cases.new_tree(&mut runner).unwrap().current());
        }
        let folder = tempfile::tempdir().unwrap();
        let lines = pairs.iter().map(|(name, pattern)| format!("{name}\n{pattern}\n"));
        std::fs::write(folder.path().join("words"), lines.collect::<String>()).unwrap();
        let words = std::fs::File::open(folder.path().join("words")).unwrap();
        let Ok(ran) = Command::new("python3").args(["-c", FNMATCH]).stdin(words).output() else {
            return;
        };
        let said = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(said.trim().len(), pairs.len());
        for ((name, pattern), theirs) in pairs.iter().zip(said.chars()) {
            assert_eq!(is_like(name, pattern), theirs == '1', "{name:?} {pattern:?}");
        }
    }
}
