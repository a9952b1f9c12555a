//! Rules of Rust files: their shape, and names. A type that many crates call the same is not known by its name, and a long
//! test's name is no sentence.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::code::is_word;
use super::tree::{SourceFile, SourceTree};

/// Lines that a file should stay within.
pub const AIM_LINES: usize = 400;
/// Lines that a file must stay within.
const MOST_LINES: usize = 800;
/// Most crates with a type of the same name.
const MOST_CRATES: usize = 2;
/// Most words in the name of a test: its subject, the condition and the result.
const MOST_WORDS: usize = 8;
/// Names that every crate may have.
const COMMON: &[&str] = &["Error", "Result"];
/// The words before the name of a type.
const KEYWORDS: &[&str] = &["struct ", "enum ", "trait ", "type ", "union "];

/// Every violation of these rules.
pub fn check_sources(tree: &SourceTree) -> Vec<Finding> {
    let rust = || tree.files.iter().filter(|file| file.is(&["rs"]));
    let mut findings: Vec<Finding> = rust().flat_map(check_shape).collect();
    findings.extend(rust().flat_map(has_no_documentation_test));
    findings.extend(rust().flat_map(test_names_are_short));
    findings.extend(types_of_many_crates(tree));
    findings
}

/// Files that are longer than they should be, with their lines.
pub fn long_files(tree: &SourceTree) -> Vec<(&str, usize)> {
    let rust = tree.files.iter().filter(|file| file.is(&["rs"]));
    let lengths = rust.map(|file| (file.path.as_str(), file.text.lines().count()));
    lengths.filter(|&(_, lines)| lines > AIM_LINES).collect()
}

fn check_shape(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//! ") {
        let message = "must open with `//!` and say what the file is for";
        findings.push(Finding::new(&file.path, 1, message));
    }
    let lines = file.text.lines().count();
    if lines > MOST_LINES {
        let message = format!("{lines} lines; split it (at most {MOST_LINES})");
        findings.push(Finding::new(&file.path, 0, message));
    }
    findings
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

/// The types whose name stands in too many crates.
fn types_of_many_crates(tree: &SourceTree) -> Vec<Finding> {
    let mut types = BTreeMap::<&str, Vec<(&str, &str, usize)>>::new();
    for file in tree.files.iter().filter(|file| file.path.starts_with("crates/")) {
        let Some(folder) = file.crate_folder() else { continue };
        for (line, code) in (1..).zip(file.product.lines()) {
            if let Some(name) = type_name(code) {
                types.entry(name).or_default().push((folder, file.path.as_str(), line));
            }
        }
    }
    let mut findings = Vec::new();
    for (name, places) in types {
        let crates: BTreeSet<&str> = places.iter().map(|&(folder, ..)| folder).collect();
        if crates.len() > MOST_CRATES && !COMMON.contains(&name) {
            let list = crates.iter().copied().collect::<Vec<_>>().join(", ");
            let message = format!(
                "`{name}` is a type of {} crates (at most {MOST_CRATES}): {list}; give it a specific name",
                crates.len()
            );
            let finding = |(_, path, line)| Finding::new(path, line, message.as_str());
            findings.extend(places.into_iter().map(finding));
        }
    }
    findings
}

/// The type that a line declares outside of functions and modules.
fn type_name(line: &str) -> Option<&str> {
    let item = line.strip_prefix("pub").map_or(line, |rest| {
        let within = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        within.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let rest = KEYWORDS.iter().find_map(|keyword| item.strip_prefix(keyword))?;
    rest.split(|char| !is_word(char)).next()
}

fn test_names_are_short(file: &SourceFile) -> Vec<Finding> {
    let mut is_test = false;
    let mut findings = Vec::new();
    for (idx, line) in file.code.lines().map(str::trim).enumerate() {
        let Some(rest) = line.strip_prefix("fn ") else {
            is_test |= line == "#[test]";
            continue;
        };
        let name = rest.split(|char| !is_word(char)).next().unwrap_or_default();
        let words = name.split('_').count();
        if std::mem::take(&mut is_test) && words > MOST_WORDS {
            let message = format!("the name of this test has {words} words (at most {MOST_WORDS})");
            findings.push(Finding::new(&file.path, idx + 1, message));
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
    fn documentation_holds_no_test() {
        let text = "//! ```text\n//! a\n//! ```\nfn a() {}\n";
        check_one("crates/cli/src/a.rs", text, &[]);
        let code = "//! A.\n/// ```\n/// a();\n/// ```\nfn a() {}\n/// ```rust\n";
        check_one("crates/cli/src/a.rs", code, &["is not tested"; 2]);
    }

    #[test]
    fn type_name_is_in_two_crates_at_most() {
        let [a, b, c] = ["crates/a/src/a.rs", "crates/b/src/a.rs", "crates/c/src/a.rs"];
        let tests = "#[cfg(test)]\nmod tests {\nstruct Step;\n}\n";
        let cases = [
            ("pub struct Step;", "enum Step {}", "pub(crate) type Step = u8;", 3),
            ("pub struct Step<'a>(&'a u8);", "trait Step {}", "pub(in crate::a) union Step {}", 3),
            ("pub struct Step;", "enum Step {}", "struct Steps;", 0),
            ("pub struct Step;", "enum Step {}", "// struct Step;", 0),
            ("pub struct Step;", "enum Step {}", tests, 0),
            ("pub struct Step;", "enum Step {}", "trait A {\n    type Step;\n}", 0),
            ("pub enum Error {}", "pub enum Error {}", "pub struct Error;", 0),
        ];
        for (first, second, third, count) in cases {
            let findings = types_of_many_crates(&tree_of(&[(a, first), (b, second), (c, third)]));
            assert_eq!(findings.len(), count, "{first} {second} {third}: {findings:?}");
            assert!(findings.iter().all(|it| it.message.contains("3 crates (at most 2): a, b, c")));
        }
        let one_crate =
            [(a, "struct Step;"), ("crates/a/src/b.rs", "struct Step;"), (b, "struct Step;")];
        assert_eq!(types_of_many_crates(&tree_of(&one_crate)), []);
    }

    #[test]
    fn long_name_of_a_test_is_found() {
        let long = "a_b_c_d_e_f_g_h_i";
        let file = |attribute: &str, name: &str| format!("{attribute}\n    fn {name}() {{}}\n");
        let findings =
            |text: &str| test_names_are_short(&tree_of(&[("crates/a/tests/a.rs", text)]).files[0]);
        let found = findings(&file("#[test]\n    #[ignore]", long));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("9 words (at most 8)") && found[0].line == 3);
        assert_eq!(findings(&file("#[test]", &long[2..])), []);
        assert_eq!(findings(&file("#[inline]", long)), []);
    }

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        super::super::check_findings(&check_sources(&tree_of(&[(path, text)])), expected);
    }
}
