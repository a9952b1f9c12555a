//! Parse errors of a file in the words of the file instead of those of the program that reads it.

/// The line of a byte of `text`, counted from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The problem that a parser found in `text` from byte `at` on. `wanted` says of keys what they take where the parser's
/// own word for it would name a type of the program.
///
/// The parser's words are those of serde, also with the path of the key behind (``in `method.seed` ``).
pub fn problem_of(problem: &str, text: &str, at: Option<usize>, wanted: &[(&str, &str)]) -> String {
    let (problem, path) = match problem.trim_end().rsplit_once("\nin `") {
        Some((problem, path)) => (problem, path.strip_suffix('`')),
        None => (problem, None),
    };
    let key = path.and_then(|path| path.rsplit('.').next()).or_else(|| key_before(text, at?));
    let name = path.or(key);
    let of_key = key.and_then(|key| wanted.iter().find(|(known, _)| *known == key));
    if let Some((found, known)) = unknown_word(problem) {
        let name = name.map_or_else(String::new, |name| format!("`{name}` "));
        return format!("{name}must be {known}, not {found}");
    }
    let (found, takes) = match split_mismatch(problem) {
        Some(mismatch) => mismatch,
        None if problem.starts_with("data did not match any variant") => ("", "something else"),
        None => return path.map_or(problem.to_owned(), |path| format!("`{path}`: {problem}")),
    };
    let takes = of_key.map_or_else(|| value_in_words(takes), |(_, takes)| (*takes).to_owned());
    let found = found_in_words(found);
    match name {
        Some(name) => format!("`{name}` must be {takes}{found}"),
        None => format!("must be {takes}{found}"),
    }
}

/// A word that a key does not take, and those that it takes.
fn unknown_word(problem: &str) -> Option<(&str, &str)> {
    problem.strip_prefix("unknown variant ")?.split_once(", expected ")
}

/// The value found and the value expected, of an error that names both.
fn split_mismatch(problem: &str) -> Option<(&str, &str)> {
    let starts = ["invalid type: ", "invalid value: ", "invalid length "];
    let rest = starts.iter().find_map(|start| problem.strip_prefix(start))?;
    let found = rest.rsplit_once(", expected ")?;
    Some(if problem.starts_with("invalid length") { ("", found.1) } else { found })
}

/// The key whose value holds byte `at`, or whose table begins there.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?.trim_start();
    if let Some(header) = line.strip_prefix('[') {
        return Some(header.trim_start_matches('[').split(']').next()?.rsplit('.').next()?.trim());
    }
    // A value of several lines belongs to the last key before it.
    let (key, _) = before.rsplit_once('=')?;
    let key = key.trim_end().rsplit(|c: char| c.is_whitespace() || "{,".contains(c)).next()?;
    let key = key.trim_matches(['"', '\'']);
    (!key.is_empty()).then_some(key)
}

fn value_in_words(wanted: &str) -> String {
    let types =
        ["struct ", "enum ", "tuple struct ", "internally tagged enum ", "adjacently tagged enum "];
    let is_struct = types.iter().any(|start| wanted.starts_with(start));
    match wanted {
        "a string" | "str" | "string" | "string only" | "variant identifier" => {
            "a text in quotes".to_owned()
        }
        "a map" | "map" => "a table".to_owned(),
        "a sequence" | "sequence" => "a list".to_owned(),
        "a boolean" | "bool" => "true or false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "string or table" => "a text in quotes or a table".to_owned(),
        _ if is_struct => "a table".to_owned(),
        _ => {
            let counts = ["an array of length ", "a tuple of size "];
            match counts.iter().find_map(|start| wanted.strip_prefix(start)) {
                Some(count) => format!("a list of {count} values"),
                None => wanted.to_owned(),
            }
        }
    }
}

/// `, not 5`; empty where it is not known.
fn found_in_words(found: &str) -> String {
    let text = match found {
        "" | "unit variant" => return String::new(),
        "sequence" => "a list",
        "map" => "a table",
        _ => {
            let kinds = ["integer `", "floating point `", "boolean `", "character `"];
            let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)?.strip_suffix('`'));
            value.or_else(|| found.strip_prefix("string ")).unwrap_or(found)
        }
    };
    format!(", not {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_value_is_told_with_key() {
        let text =
            "a = 1\nmethod = { min = \"x\", max = 3 }\nlist = [\n  1,\n  true ]\n[[table]]\n";
        let at = |part: &str| Some(text.find(part).unwrap());
        for (problem, at, expected) in [
            (
                "invalid type: integer `1`, expected a string",
                at("1"),
                "`a` must be a text in quotes, not 1",
            ),
            (
                "invalid type: string \"x\", expected u32",
                at("\"x\""),
                "`min` must be a whole number from 0, not \"x\"",
            ),
            (
                "invalid type: map, expected struct Method",
                at("{ min"),
                "`method` must be its own words, not a table",
            ),
            (
                "invalid type: boolean `true`, expected f64",
                at("true"),
                "`list` must be a number, not true",
            ),
            (
                "invalid type: map, expected a sequence",
                at("[[table"),
                "`table` must be a list, not a table",
            ),
            (
                "data did not match any variant of untagged enum Goal",
                at("{ min"),
                "`method` must be its own words",
            ),
            ("invalid length 1, expected an array of length 2", None, "must be a list of 2 values"),
            (
                "invalid type: sequence, expected a bit rate\nin `a.b`\n",
                None,
                "`a.b` must be a bit rate, not a list",
            ),
            ("missing field `seed`\nin `a.b`\n", None, "`a.b`: missing field `seed`"),
            ("missing field `seed`", at("1"), "missing field `seed`"),
            (
                "unknown variant `x`, expected one of `sut`, `generator`\nin `host.role`\n",
                None,
                "`host.role` must be one of `sut`, `generator`, not `x`",
            ),
        ] {
            assert_eq!(problem_of(problem, text, at, &[("method", "its own words")]), expected);
        }
        assert_eq!([0, 6, 7].map(|at| line_of(text, at)), [1, 2, 2]);
    }
}
