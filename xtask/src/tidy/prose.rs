//! Rules of every text file: white space, unfinished work, and paths and hosts that mean nothing to
//! anybody else.

use super::Finding;
use super::code::mask_non_code;
use super::tree::{SourceFile, SourceTree};

/// Files that are kept as their authors made them.
const KEPT_AS_MADE: &[&str] =
    &["Cargo.lock", "fuzz/Cargo.lock", "xtask/nmstate/Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

/// Every violation of these rules.
pub fn check_prose(tree: &SourceTree) -> Vec<Finding> {
    let rules: &[fn(&SourceFile) -> Vec<Finding>] = &[
        white_space_is_plain,
        nothing_is_left_to_do,
        paths_mean_something_elsewhere,
        shares_are_written_one_way,
        comments_name_their_subject,
    ];
    let ours = tree.files.iter().filter(|file| !is_kept_as_made(file));
    ours.flat_map(|file| rules.iter().flat_map(move |rule| rule(file))).collect()
}

/// Lock files, licences, and what others wrote and we only ship.
fn is_kept_as_made(file: &SourceFile) -> bool {
    KEPT_AS_MADE.contains(&file.path.as_str())
        || file.path.contains("/vendor/")
        || file.path.ends_with(".min.js")
}

fn white_space_is_plain(file: &SourceFile) -> Vec<Finding> {
    if !file.is(&["rs", "toml", "md"]) {
        return Vec::new();
    }
    let mut findings = by_line(file, |line| {
        if line.contains('\t') {
            Some("tab; use spaces".to_owned())
        } else if line.ends_with(char::is_whitespace) {
            Some("white space at the end of the line".to_owned())
        } else {
            None
        }
    });
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::new(&file.path, 0, "no line break at the end of the file"));
    }
    findings
}

fn nothing_is_left_to_do(file: &SourceFile) -> Vec<Finding> {
    // In two parts, or this file would break its own rule.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    by_line(file, |line| {
        let mark = marks.iter().find(|mark| line.contains(**mark))?;
        Some(format!("`{mark}`; do it, or open an issue"))
    })
}

fn paths_mean_something_elsewhere(file: &SourceFile) -> Vec<Finding> {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let hosts = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("pythonhosted", ".org"),
        concat!("npmjs", ".org"),
    ];
    by_line(file, |line| {
        let folder = folders
            .iter()
            .find(|folder| line.match_indices(**folder).any(|(at, _)| starts_a_path(&line[..at])));
        let host = hosts.iter().find(|host| line.contains(**host));
        match (folder, host) {
            (Some(folder), _) => Some(format!("`{folder}` is a path of one machine")),
            (_, Some(host)) => Some(format!("`{host}` names a package registry")),
            _ => None,
        }
    })
}

/// `5%`, as flags and plans take it, in all that may be printed: texts and comments of Rust (its help is made of some of
/// them), templates and scripts of the report.
fn shares_are_written_one_way(file: &SourceFile) -> Vec<Finding> {
    if !file.is(&["rs", "html", "js"]) {
        return Vec::new();
    }
    // The mask leaves the sign where it is an operator.
    let code = if file.is(&["rs"]) { mask_non_code(&file.text) } else { String::new() };
    let code: Vec<char> = code.chars().collect();
    let chars: Vec<char> = file.text.chars().collect();
    let is_split = |at: &usize| {
        let ends_a_number = chars[*at].is_ascii_digit() || chars[*at] == '}';
        // A word begins behind the sign, or a tag of a template ends.
        let is_other = chars.get(at + 3).is_some_and(|char| char.is_alphanumeric() || *char == '}');
        ends_a_number && !is_other && chars[at + 1..].starts_with(&[' ', '%'])
    };
    let split = (0..chars.len()).filter(is_split).filter(|at| code.get(at + 2) != Some(&'%'));
    let line = |at: usize| chars[..at].iter().filter(|char| **char == '\n').count() + 1;
    split
        .map(|at| Finding::new(&file.path, line(at), "a share is written `5%`, without a space"))
        .collect()
}

/// A comment opens with a verb or a noun phrase, never with a question whose answer is the item below.
fn comments_name_their_subject(file: &SourceFile) -> Vec<Finding> {
    const RIDDLES: [&str; 5] = ["What", "Whose", "Who", "That", "So"];
    if !file.is(&["rs"]) {
        return Vec::new();
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let is_comment = |line: &str| line.starts_with("//");
    let opens = |idx: &usize| {
        let before = idx.checked_sub(1).map_or("", |idx| lines[idx]);
        let text = lines[*idx].trim_start_matches(['/', '!']);
        let first = text.split_whitespace().next().unwrap_or_default();
        is_comment(lines[*idx]) && !is_comment(before) && RIDDLES.contains(&first)
    };
    let message = "a comment opens with a verb or a noun phrase, not with `What`, `Whose`, `Who`, `That` or `So`";
    (0..lines.len()).filter(opens).map(|idx| Finding::new(&file.path, idx + 1, message)).collect()
}

/// Whether what follows `before` is absolute and not the rest of a longer path.
fn starts_a_path(before: &str) -> bool {
    let inside = |char: char| char.is_alphanumeric() || "._-/}>".contains(char);
    !before.ends_with(inside)
}

/// A finding for each line of which `rule` has something to say.
pub fn by_line(file: &SourceFile, rule: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let lines = file.text.split('\n').enumerate();
    lines
        .filter_map(|(idx, line)| rule(line).map(|said| Finding::new(&file.path, idx + 1, said)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

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

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        let findings = check_prose(&tree_of(&[(path, text)]));
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.message.contains(expected), "{findings:?}");
        }
    }
}
