//! Rules of single lines: white space, unfinished work, words that only we use, paths and hosts that mean nothing to
//! anybody else, and what pure crates and libraries may not call.

use std::iter;

use super::Finding;
use super::arrows::is_pure;
use super::code::has_word;
use super::tree::{SourceFile, SourceTree};

/// Files that are kept as their authors made them.
const KEPT_AS_MADE: &[&str] =
    &["Cargo.lock", "fuzz/Cargo.lock", "xtask/nmstate/Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

/// The crates that may hold `unsafe`.
const UNSAFE_CRATES: &[&str] = &["linux", "load"];
/// The crates that may print: `cli` speaks to people, `xtask` and `testkit` to us.
const PRINTING_CRATES: &[&str] = &["cli", "needs", "testkit", "xtask"];
const PRINTING: &str = "print! println! eprint! eprintln! dbg! io::stdout io::stderr";
/// The standard library's doors to the world, closed to pure crates. A group could hide one.
const WORLDLY: &str =
    "std::env std::fs std::net std::process std::thread Instant::now SystemTime::now std::{";
/// Clippy's `disallowed_types` misses the fully qualified path in an expression.
const UNORDERED: &str = "HashMap HashSet";

// The words below are in two parts, or this file would break its own rules.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
const FOLDERS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
const HOSTS: [&str; 4] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
];
/// Words that only we use, with the plain word.
const OUR_OWN_WORDS: [(&str, &str); 5] = [
    (concat!("gone on", " with"), "resumed"),
    (concat!("every so", " much"), "each interval"),
    (concat!("is", " none"), "is invalid"),
    (concat!("brought", " home"), "reported"),
    (concat!("the", " mend"), "the remedy"),
];
/// A comment opens with a verb or a noun phrase, never with a question whose answer is the item below.
const RIDDLES: [&str; 5] = ["What", "Whose", "Who", "That", "So"];
const IGNORE: &str = concat!("#[", "ignore");

/// A line, and those around it.
struct Line<'a> {
    file: &'a SourceFile,
    text: &'a str,
    /// Its Rust, without comments and literals.
    code: &'a str,
    /// The same of the product.
    product: &'a str,
    before: &'a str,
    after: &'a str,
}

/// The message on a line that breaks a rule.
type LineRule = fn(&Line<'_>) -> Option<String>;

const RULES: &[LineRule] = &[
    white_space_is_plain,
    nothing_is_left_to_do,
    paths_mean_something_elsewhere,
    shares_are_written_one_way,
    comments_name_their_subject,
    words_are_plain,
    pure_crates_do_not_touch_the_world,
    unsafe_stays_in_its_crates,
    only_the_edge_prints,
    iteration_order_is_fixed,
    ignored_tests_are_run_by_somebody,
];

/// Every violation of these rules.
pub fn check_lines(tree: &SourceTree) -> Vec<Finding> {
    let is_ours = |file: &&SourceFile| {
        // Files that others wrote and we only ship.
        let is_shipped = file.path.contains("/vendor/") || file.path.ends_with(".min.js");
        !is_shipped && !KEPT_AS_MADE.contains(&file.path.as_str())
    };
    tree.files.iter().filter(is_ours).flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text: Vec<&str> = file.text.split('\n').collect();
    let code = file.code.split('\n').chain(iter::repeat(""));
    let product = file.product.split('\n').chain(iter::repeat(""));
    for (idx, (code, product)) in (0..text.len()).zip(code.zip(product)) {
        let before = idx.checked_sub(1).map_or("", |idx| text[idx]);
        let after = text.get(idx + 1).copied().unwrap_or_default();
        let line = Line { file, text: text[idx], code, product, before, after };
        let said = RULES.iter().filter_map(|rule| rule(&line));
        findings.extend(said.map(|said| Finding::new(&file.path, idx + 1, said)));
    }
    if is_formatted(file) && text.last().is_some_and(|last| !last.is_empty()) {
        findings.push(Finding::new(&file.path, 0, "no line break at the end of the file"));
    }
    findings
}

fn is_formatted(file: &SourceFile) -> bool {
    file.is(&["rs", "toml", "md"])
}

fn white_space_is_plain(line: &Line<'_>) -> Option<String> {
    let said = if line.text.contains('\t') {
        "tab; use spaces"
    } else if line.text.ends_with(char::is_whitespace) {
        "white space at the end of the line"
    } else {
        return None;
    };
    is_formatted(line.file).then(|| said.to_owned())
}

fn nothing_is_left_to_do(line: &Line<'_>) -> Option<String> {
    let mark = UNFINISHED.iter().find(|mark| line.text.contains(**mark))?;
    Some(format!("`{mark}`; do it, or open an issue"))
}

fn paths_mean_something_elsewhere(line: &Line<'_>) -> Option<String> {
    // Absolute, and not the rest of a longer path.
    let inside = |char: char| char.is_alphanumeric() || "._-/}>".contains(char);
    let starts_here = |folder: &str| {
        line.text.match_indices(folder).any(|(at, _)| !line.text[..at].ends_with(inside))
    };
    if let Some(folder) = FOLDERS.iter().find(|folder| starts_here(folder)) {
        return Some(format!("`{folder}` is a path of one machine"));
    }
    let host = HOSTS.iter().find(|host| line.text.contains(**host))?;
    Some(format!("`{host}` names a package registry"))
}

/// `5%`, as flags and plans take it, in all that may be printed: texts and comments of Rust (its help is made of some of
/// them), templates and scripts of the report.
fn shares_are_written_one_way(line: &Line<'_>) -> Option<String> {
    if !line.file.is(&["rs", "html", "js"]) {
        return None;
    }
    let is_split = |at: usize| {
        let ends_a_number = line.text[..at].ends_with(|c: char| c.is_ascii_digit() || c == '}');
        // A word begins behind the sign, or a tag of a template ends.
        let behind = line.text[at + 2..].chars().next();
        let is_other = behind.is_some_and(|char| char.is_alphanumeric() || char == '}');
        // The mask leaves the sign where it is an operator.
        let sign = line.text[..=at].chars().count();
        ends_a_number && !is_other && line.code.chars().nth(sign) != Some('%')
    };
    let is_wrong = line.text.match_indices(" %").any(|(at, _)| is_split(at));
    is_wrong.then(|| "a share is written `5%`, without a space".to_owned())
}

fn comments_name_their_subject(line: &Line<'_>) -> Option<String> {
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    let text = line.text.trim_start().trim_start_matches(['/', '!']);
    let first = text.split_whitespace().next().unwrap_or_default();
    let opens = line.file.is(&["rs"]) && is_comment(line.text) && !is_comment(line.before);
    (opens && RIDDLES.contains(&first)).then(|| {
        "a comment opens with a verb or a noun phrase, not with `What`, `Whose`, `Who`, `That` or `So`"
            .to_owned()
    })
}

fn words_are_plain(line: &Line<'_>) -> Option<String> {
    if !line.file.is(&["md", "rs"]) || line.file.path.starts_with("docs/journal/") {
        return None;
    }
    // "There is ..." is anybody's English.
    let text = line.text.replace(concat!("there is", " none"), "").to_lowercase();
    let (ours, plain) = OUR_OWN_WORDS.iter().find(|(ours, _)| text.contains(ours))?;
    Some(format!("`{ours}` is our own English; say for example `{plain}`"))
}

fn pure_crates_do_not_touch_the_world(line: &Line<'_>) -> Option<String> {
    let word = find_any(line.product, WORLDLY).filter(|_| line.is_in(is_pure))?;
    Some(format!("`{word}` in a pure crate; take the value as an argument"))
}

fn unsafe_stays_in_its_crates(line: &Line<'_>) -> Option<String> {
    let is_wrong = has_word(line.code, "unsafe") && !line.is_in(|it| UNSAFE_CRATES.contains(&it));
    is_wrong.then(|| format!("`unsafe` belongs in {} only", UNSAFE_CRATES.join(" and ")))
}

fn only_the_edge_prints(line: &Line<'_>) -> Option<String> {
    let word = find_any(line.product, PRINTING)?;
    // A build script speaks to cargo so.
    let may_print = line.is_in(|folder| PRINTING_CRATES.contains(&folder))
        || line.file.path.ends_with("/build.rs");
    (!may_print).then(|| format!("`{word}` in a library; return the text, or use `tracing`"))
}

fn iteration_order_is_fixed(line: &Line<'_>) -> Option<String> {
    let word = find_any(line.product, UNORDERED)?;
    Some(format!("`{word}` has no fixed order; use `BTree{}`", &word["Hash".len()..]))
}

/// `cargo xtask ci --full` runs the long tests of the command line. Others start a test of this ending.
fn ignored_tests_are_run_by_somebody(line: &Line<'_>) -> Option<String> {
    let rest = line.text.trim_start().strip_prefix(IGNORE)?;
    let is_long =
        rest.starts_with(" = \"long: ") && line.file.path.starts_with("crates/cli/tests/it/");
    let is_run = is_long || line.after.contains("_of_another_test(");
    let said = "an ignored test is `long: ...` and in crates/cli/tests/it, or its name ends in `_of_another_test`";
    (line.file.is(&["rs"]) && !is_run).then(|| said.to_owned())
}

impl Line<'_> {
    /// Whether its crate, by the folder, is meant.
    fn is_in(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.file.crate_folder().is_some_and(is_meant)
    }
}

/// The first of `words` that stands in `code`.
fn find_any(code: &str, words: &'static str) -> Option<&'static str> {
    words.split(' ').find(|word| has_word(code, word))
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

    #[test]
    fn pure_crates_must_not_touch_the_world() {
        let read = "//! A.\nfn a() { std::fs::read(b); }\n";
        check_one("crates/model/src/a.rs", read, &["`std::fs` in a pure crate"]);
        check_one("crates/linux/src/a.rs", read, &[]);
        check_one("crates/model/tests/a.rs", read, &[]);
        check_one("crates/model/examples/a.rs", read, &[]);
        let now = "//! A.\nfn a() -> Instant { Instant::now() }\n";
        check_one("crates/units/src/a.rs", now, &["`Instant::now` in a pure crate"]);
        let group = "//! A.\nuse std::{fmt, thread};\n";
        check_one("crates/stats/src/a.rs", group, &["`std::{` in a pure crate"]);
        let in_test = "//! A.\n#[cfg(test)]\nmod tests { fn a() { std::env::vars(); } }\n";
        check_one("crates/stats/src/a.rs", in_test, &[]);
        check_one("crates/stats/src/a.rs", "//! A.\n// std::fs is not for us\n", &[]);
    }

    #[test]
    fn unsafe_must_stay_in_its_crates() {
        let code = "//! A.\nfn a() { unsafe { b() } }\n";
        check_one("crates/knobs/src/a.rs", code, &["`unsafe` belongs in linux and load"]);
        check_one("crates/linux/src/a.rs", code, &[]);
        check_one("crates/knobs/src/a.rs", "//! A.\n#![deny(unsafe_code)]\n", &[]);
    }

    #[test]
    fn libraries_must_not_print() {
        let code = "//! A.\nfn a() { eprintln!(\"b\") }\n";
        check_one("crates/load/src/a.rs", code, &["`eprintln!` in a library"]);
        check_one("crates/cli/src/a.rs", code, &[]);
        let stream = "//! A.\nfn a() { std::io::stdout().flush() }\n";
        check_one("crates/experiment/src/a.rs", stream, &["`io::stdout` in a library"]);
    }

    #[test]
    fn order_of_iteration_must_be_fixed() {
        let code = "//! A.\nfn a() { std::collections::HashMap::new() }\n";
        check_one("crates/cli/src/a.rs", code, &["use `BTreeMap`"]);
    }

    #[test]
    fn ignored_test_must_be_run_by_somebody() {
        let long = format!("//! A.\n#[test]\n{IGNORE} = \"long: b\"]\nfn a() {{}}\n");
        check_one("crates/cli/tests/it/a.rs", &long, &[]);
        check_one("crates/load/tests/a.rs", &long, &["an ignored test"]);
        let bare = format!("//! A.\n#[test]\n    {IGNORE}]\nfn a() {{}}\n");
        check_one("crates/cli/tests/it/a.rs", &bare, &["an ignored test"]);
        check_one("crates/load/tests/a.rs", &bare.replace(" a(", " a_of_another_test("), &[]);
    }

    #[test]
    fn white_space_must_be_plain() {
        check_one("a.md", "# A\n\nb \n", &["end of the line"]);
        check_one("a.toml", "\ta = 1\n", &["tab"]);
        check_one("a.rs", "//! A.\r\n", &["end of the line"]);
        check_one("a.rs", "//! A.", &["no line break"]);
        check_one("a.txt", "recorded \tas it was", &[]);
    }

    #[test]
    fn nothing_may_be_left_to_do() {
        check_one("a.py", concat!("# TO", "DO: later\n"), &["open an issue"]);
        check_one("a.rs", concat!("// FIX", "ME\n"), &["open an issue"]);
    }

    #[test]
    fn paths_and_hosts_must_mean_something_elsewhere() {
        check_one("a.py", concat!("x = '/wo", "rk/a'\n"), &["path of one machine"]);
        check_one("a.sh", concat!("cp a /ro", "ot/b\n"), &["path of one machine"]);
        check_one("a.sh", concat!("cp a base/ro", "ot/b\n"), &[]);
        check_one("a.md", concat!("# see crates", ".io\n"), &["package registry"]);
        check_one("Cargo.lock", concat!("source = crates", ".io-index\n"), &[]);
    }

    #[test]
    fn shares_must_have_their_sign_behind_them() {
        check_one("a.rs", concat!("//! A.\nlet a = \"5", " %\";\n"), &["written `5%`"]);
        check_one("a.rs", concat!("//! A.\n/// Ü: {:.1}", " % of it.\n"), &["written `5%`"]);
        check_one("a.html", concat!("<p>30", " %</p>\n"), &["written `5%`"]);
        check_one("a.rs", "//! A.\nlet a = \"ü 5%\" + 60_000% 7;\n", &[]);
        check_one("a.rs", "//! A.\nlet a = \"dev 4 %k\";\n", &[]);
        check_one("a.html", "{% if a > 2 %}\n", &[]);
    }

    #[test]
    fn comments_must_name_their_subject() {
        check_one("a.rs", "//! A.\n\n/// What it is.\nconst A: u8 = 1;\n", &["noun phrase"]);
        check_one("a.rs", "//! That of all.\n", &["noun phrase"]);
        check_one("a.rs", "//! A.\n//! What follows is a second line.\n", &[]);
        check_one("a.rs", "//! A.\n\n/// Whatever it is.\nconst A: u8 = 1;\n", &[]);
    }

    #[test]
    fn words_must_be_plain() {
        let said = concat!("# A\nname line and the", " mend\n");
        check_one("a.md", said, &["`the remedy`"]);
        check_one("docs/journal/a.md", said, &[]);
        check_one("a.md", concat!("# A\nif there is", " none\n"), &[]);
        check_one("a.rs", said, &["`the remedy`"]);
    }

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        super::super::check_findings(&check_lines(&tree_of(&[(path, text)])), expected);
    }
}
