//! Names: a type that many crates call the same is not known by its name, and a test's name is no sentence.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::code::{is_word, line_of, mask_non_code};
use super::tree::SourceTree;

/// Most crates with a type of the same name.
const MOST_CRATES: usize = 2;
/// Most words in the name of a test: its subject, the condition and the result.
const MOST_WORDS: usize = 8;
/// Names that every crate may have.
const COMMON: &[&str] = &["Error", "Result"];
/// The words before the name of a type.
const KEYWORDS: &[&str] = &["struct ", "enum ", "trait ", "type ", "union "];

/// The types whose name stands in too many crates, and the tests whose name is too long.
pub fn check_names(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = types_of_many_crates(tree);
    let rust = tree.files.iter().filter(|file| file.is(&["rs"]));
    findings.extend(rust.flat_map(|file| long_test_names(&file.path, &mask_non_code(&file.text))));
    findings
}

fn types_of_many_crates(tree: &SourceTree) -> Vec<Finding> {
    let mut types = BTreeMap::<String, Vec<(&str, &str, usize)>>::new();
    let rust =
        tree.files.iter().filter(|file| file.is(&["rs"]) && file.path.starts_with("crates/"));
    for file in rust {
        let Some(folder) = file.crate_folder() else { continue };
        let code = file.product_code();
        for (at, name) in type_names(&code) {
            let place = (folder, file.path.as_str(), line_of(&code, at));
            types.entry(name.to_owned()).or_default().push(place);
        }
    }
    let mut findings = Vec::new();
    for (name, places) in types {
        let crates: BTreeSet<&str> = places.iter().map(|&(folder, ..)| folder).collect();
        if crates.len() > MOST_CRATES && !COMMON.contains(&name.as_str()) {
            let crates: Vec<&str> = crates.into_iter().collect();
            let message = format!(
                "`{name}` is a type of {} crates (at most {MOST_CRATES}): {}; give it a specific name",
                crates.len(),
                crates.join(", ")
            );
            let finding = |(_, path, line)| Finding::new(path, line, message.as_str());
            findings.extend(places.into_iter().map(finding));
        }
    }
    findings
}

fn long_test_names(path: &str, code: &str) -> Vec<Finding> {
    let mut is_test = false;
    let mut findings = Vec::new();
    for (idx, line) in code.lines().map(str::trim).enumerate() {
        let Some(rest) = line.strip_prefix("fn ") else {
            is_test |= line == "#[test]";
            continue;
        };
        let name = rest.split(|char| !is_word(char)).next().unwrap_or_default();
        let words = name.split('_').count();
        if std::mem::take(&mut is_test) && words > MOST_WORDS {
            let message = format!("the name of this test has {words} words (at most {MOST_WORDS})");
            findings.push(Finding::new(path, idx + 1, message));
        }
    }
    findings
}

/// The types that `code` declares outside of functions and modules, each with its byte offset.
fn type_names(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    code.split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        let item = line.strip_prefix("pub").map_or(line, |rest| {
            let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            rest.map_or(&line["pub".len()..], |(_, rest)| rest).trim_start()
        });
        let rest = KEYWORDS.iter().find_map(|keyword| item.strip_prefix(keyword))?;
        let end = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
        Some((at, &rest[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

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
            let findings = check_names(&tree_of(&[(a, first), (b, second), (c, third)]));
            assert_eq!(findings.len(), count, "{first} {second} {third}: {findings:?}");
            assert!(findings.iter().all(|it| it.message.contains("3 crates (at most 2): a, b, c")));
        }
        let one_crate =
            [(a, "struct Step;"), ("crates/a/src/b.rs", "struct Step;"), (b, "struct Step;")];
        assert_eq!(check_names(&tree_of(&one_crate)), []);
    }

    #[test]
    fn long_name_of_a_test_is_found() {
        let long = "a_b_c_d_e_f_g_h_i";
        let file = |attribute: &str, name: &str| format!("{attribute}\n    fn {name}() {{}}\n");
        let findings = |text: &str| check_names(&tree_of(&[("crates/a/tests/a.rs", text)]));
        let found = findings(&file("#[test]\n    #[ignore]", long));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("9 words (at most 8)") && found[0].line == 3);
        assert_eq!(findings(&file("#[test]", &long[2..])), []);
        assert_eq!(findings(&file("#[inline]", long)), []);
    }
}
