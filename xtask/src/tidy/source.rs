//! Rules of Rust files: their shape, what pure crates may not touch, who prints and who writes.

use super::Finding;
use super::code::{find_word, line_of};
use super::tree::{SourceFile, SourceTree};

/// Lines that a file should stay within.
pub const AIM_LINES: usize = 400;
/// Lines that a file must stay within.
const MOST_LINES: usize = 800;

/// The crates that may hold `unsafe`.
const UNSAFE_CRATES: &[&str] = &["linux", "load"];
/// The crates that may print: `cli` speaks to people, `xtask` and `testkit` to us, the build script of `needs` to cargo.
const PRINTING_CRATES: &[&str] = &["cli", "needs", "testkit", "xtask"];
/// The standard library's doors to the world, closed to pure crates. The last word of a path is also
/// looked for in `use std::{...}`.
const WORLDLY: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
];
const PRINTING: &[&str] =
    &["print!", "println!", "eprint!", "eprintln!", "dbg!", "io::stdout", "io::stderr"];

/// Every violation of these rules.
pub fn check_sources(tree: &SourceTree) -> Vec<Finding> {
    let rules: &[fn(&SourceFile) -> Vec<Finding>] = &[
        opens_with_its_purpose,
        is_not_too_long,
        pure_crates_do_not_touch_the_world,
        unsafe_stays_in_its_crates,
        only_the_edge_prints,
        iteration_order_is_fixed,
        has_no_documentation_test,
        ignored_tests_are_run_by_somebody,
    ];
    let rust = tree.files.iter().filter(|file| file.is(&["rs"]));
    rust.flat_map(|file| rules.iter().flat_map(move |rule| rule(file))).collect()
}

/// Files that are longer than they should be, with their lines.
pub fn long_files(tree: &SourceTree) -> Vec<(&str, usize)> {
    let rust = tree.files.iter().filter(|file| file.is(&["rs"]));
    let lengths = rust.map(|file| (file.path.as_str(), file.text.lines().count()));
    lengths.filter(|&(_, lines)| lines > AIM_LINES).collect()
}

fn opens_with_its_purpose(file: &SourceFile) -> Vec<Finding> {
    if file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 1, "must open with `//!` and say what the file is for")]
}

fn is_not_too_long(file: &SourceFile) -> Vec<Finding> {
    let lines = file.text.lines().count();
    if lines <= MOST_LINES {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 0, format!("{lines} lines; split it (at most {MOST_LINES})"))]
}

fn pure_crates_do_not_touch_the_world(file: &SourceFile) -> Vec<Finding> {
    let pure = file.crate_folder().is_some_and(|folder| super::arrows::PURE.contains(&folder));
    if !pure {
        return Vec::new();
    }
    let code = file.product_code();
    let mut findings = find_all(file, &code, WORLDLY, |word| {
        format!("`{word}` in a pure crate; take the value as an argument")
    });
    for at in find_word(&code, "use std::") {
        let Some(group) = code[at..].strip_prefix("use std::{") else { continue };
        let group = group.split(';').next().unwrap_or_default();
        let doors = WORLDLY.iter().filter_map(|path| path.strip_prefix("std::"));
        for door in doors.filter(|door| find_word(group, door).next().is_some()) {
            let message = format!("`std::{door}` in a pure crate; take the value as an argument");
            findings.push(Finding::new(&file.path, line_of(&code, at), message));
        }
    }
    findings
}

fn unsafe_stays_in_its_crates(file: &SourceFile) -> Vec<Finding> {
    if file.crate_folder().is_some_and(|folder| UNSAFE_CRATES.contains(&folder)) {
        return Vec::new();
    }
    find_all(file, &super::code::mask_non_code(&file.text), &["unsafe"], |_| {
        format!("`unsafe` belongs in {} only", UNSAFE_CRATES.join(" and "))
    })
}

fn only_the_edge_prints(file: &SourceFile) -> Vec<Finding> {
    if file.crate_folder().is_some_and(|folder| PRINTING_CRATES.contains(&folder)) {
        return Vec::new();
    }
    find_all(file, &file.product_code(), PRINTING, |word| {
        format!("`{word}` in a library; return the text, or use `tracing`")
    })
}

/// Clippy's `disallowed_types` misses the fully qualified path in an expression.
fn iteration_order_is_fixed(file: &SourceFile) -> Vec<Finding> {
    find_all(file, &file.product_code(), &["HashMap", "HashSet"], |word| {
        format!("`{word}` has no fixed order; use `BTree{}`", &word["Hash".len()..])
    })
}

/// `cargo xtask ci` runs none: cargo takes a second per crate to look for them.
fn has_no_documentation_test(file: &SourceFile) -> Vec<Finding> {
    let mut is_fenced = false;
    let mut findings = Vec::new();
    for (idx, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let fence = comment.and_then(|comment| comment.trim_start().strip_prefix("```"));
        is_fenced = comment.is_some() && (is_fenced != fence.is_some());
        if let Some(language) = fence.filter(|_| is_fenced)
            && !["c", "text"].contains(&language.trim())
        {
            let message = "code in documentation is not tested; write a test, or name the block `text` or `c`";
            findings.push(Finding::new(&file.path, idx + 1, message));
        }
    }
    findings
}

/// `cargo xtask ci --full` runs the long tests of the command line. Others start a test of this ending.
fn ignored_tests_are_run_by_somebody(file: &SourceFile) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().map(str::trim_start).collect();
    let mut findings = Vec::new();
    for (idx, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with(IGNORE)) {
        let is_long = line[IGNORE.len()..].starts_with(" = \"long: ")
            && file.path.starts_with("crates/cli/tests/it/");
        let is_helper = lines[idx + 1..].first().is_some_and(|it| it.contains("_of_another_test("));
        if !is_long && !is_helper {
            let message = "an ignored test is `long: ...` and in crates/cli/tests/it, or its name ends in `_of_another_test`";
            findings.push(Finding::new(&file.path, idx + 1, message));
        }
    }
    findings
}

const IGNORE: &str = concat!("#[", "ignore");

fn find_all(
    file: &SourceFile,
    code: &str,
    words: &[&str],
    message: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for word in words {
        for at in find_word(code, word) {
            findings.push(Finding::new(&file.path, line_of(code, at), message(word)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

    #[test]
    fn file_must_open_with_its_purpose() {
        check_one("crates/cli/src/a.rs", "use a;\n", &["must open with"]);
        check_one("crates/cli/src/a.rs", "//!\n", &["must open with"]);
    }

    #[test]
    fn file_must_not_be_too_long() {
        check_one("crates/cli/src/a.rs", &"//! A.\n".repeat(800), &[]);
        check_one("crates/cli/src/a.rs", &"//! A.\n".repeat(801), &["801 lines"]);
        let text = "//! A.\n".repeat(401);
        assert_eq!(long_files(&tree_of(&[("a.rs", &text)])), [("a.rs", 401)]);
    }

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
        check_one("crates/stats/src/a.rs", group, &["`std::thread` in a pure crate"]);
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
    fn documentation_holds_no_test() {
        let text = "//! ```text\n//! a\n//! ```\nfn a() {}\n";
        check_one("crates/cli/src/a.rs", text, &[]);
        let code = "//! A.\n/// ```\n/// a();\n/// ```\nfn a() {}\n/// ```rust\n";
        check_one("crates/cli/src/a.rs", code, &["is not tested"; 2]);
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

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        let findings = check_sources(&tree_of(&[(path, text)]));
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.message.contains(expected), "{findings:?}");
        }
    }
}
