//! Rules of documents: titles, links, indexes, the length of guides, and plain words.

use super::Finding;
use super::tree::{SourceFile, SourceTree};

/// A guide of more words is refused: the rest is a design page's, or another guide's.
const GUIDE_WORDS: usize = 1500;

/// Longest line of prose, in characters. Rows of tables and code have the length that they need.
const LINE_CHARS: usize = 160;

/// The folders whose README lists every page of theirs.
const INDEXED: &[&str] = &["docs", "docs/adr", "docs/journal"];

/// Every violation of these rules.
pub fn check_documents(tree: &SourceTree) -> Vec<Finding> {
    let documents = || tree.files.iter().filter(|file| file.is(&["md"]));
    let mut findings: Vec<Finding> = documents()
        .flat_map(|file| {
            let by_file = [
                has_a_title(file),
                is_short(file),
                lines_are_short(file),
                links_lead_somewhere(tree, file),
            ];
            by_file.into_iter().flatten()
        })
        .collect();
    findings.extend(INDEXED.iter().flat_map(|folder| is_indexed(tree, folder)));
    findings
}

fn has_a_title(file: &SourceFile) -> Vec<Finding> {
    if file.text.starts_with("# ") || is_a_template(file) {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 1, "must open with a title: `# ...`")]
}

/// GitHub puts these into a text that somebody else writes.
fn is_a_template(file: &SourceFile) -> bool {
    file.path.starts_with(".github/")
}

/// A guide is read from top to bottom; what stands between two HTML comments is generated and looked up.
fn is_short(file: &SourceFile) -> Vec<Finding> {
    if folder_of(&file.path) != "docs" {
        return Vec::new();
    }
    let mut is_generated = false;
    let mut words = 0;
    for line in file.text.lines() {
        if line.starts_with("<!--") {
            is_generated = !is_generated;
        } else if !is_generated {
            words += line.split_whitespace().count();
        }
    }
    if words <= GUIDE_WORDS {
        return Vec::new();
    }
    let message = format!(
        "a guide of {words} words, at most {GUIDE_WORDS}: how it works belongs in docs/design"
    );
    vec![Finding::new(&file.path, 0, message)]
}

/// A diff shows the changed sentence where lines are short.
fn lines_are_short(file: &SourceFile) -> Vec<Finding> {
    let mut is_code = false;
    let lines = file.text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_prose = !is_code && !is_fence && !line.starts_with('|');
        is_prose && line.chars().count() > LINE_CHARS
    });
    let message = |idx: usize| {
        Finding::new(&file.path, idx + 1, format!("over {LINE_CHARS} characters: break the line"))
    };
    lines.map(|(idx, _)| message(idx)).collect()
}

/// Each page of a folder stands in its README.
fn is_indexed(tree: &SourceTree, folder: &str) -> Vec<Finding> {
    let path = format!("{folder}/README.md");
    let Some(index) = tree.find_file(&path) else { return Vec::new() };
    let pages = tree
        .files
        .iter()
        .filter(|file| file.is(&["md"]) && folder_of(&file.path) == folder && file.path != path);
    let is_absent = |file: &&SourceFile| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        !index.text.contains(&format!("]({name})"))
    };
    let absent = pages.filter(is_absent);
    absent.map(|file| Finding::new(&path, 0, format!("lacks a link to {}", file.path))).collect()
}

/// A link to a file of ours, or to a heading in one, must lead to one.
fn links_lead_somewhere(tree: &SourceTree, file: &SourceFile) -> Vec<Finding> {
    let lost = |line: &str| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let mut ours = targets.filter(|one| !one.contains("://"));
        ours.find(|target| !leads_somewhere(tree, file, target)).map(str::to_owned)
    };
    let lines = (1..).zip(file.text.lines());
    let lost = lines.filter_map(|(line, text)| Some((line, lost(text)?)));
    lost.map(|(line, target)| {
        Finding::new(&file.path, line, format!("the link to `{target}` leads nowhere"))
    })
    .collect()
}

fn leads_somewhere(tree: &SourceTree, file: &SourceFile, target: &str) -> bool {
    let (page, heading) = target.split_once('#').map_or((target, None), |(a, b)| (a, Some(b)));
    let page =
        if page.is_empty() { Some(file.path.clone()) } else { resolve_link(&file.path, page) };
    let Some(page) = page else { return false };
    let folder = format!("{page}/");
    match (tree.find_file(&page), heading) {
        (Some(file), Some(heading)) => list_headings(&file.text).any(|one| one == heading),
        (Some(_), None) => true,
        (None, _) => tree.files.iter().any(|file| file.path.starts_with(&folder)),
    }
}

/// Where `target` leads from the file at `from`; `None` out of the tree.
fn resolve_link(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "" | "." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The headings of a document as GitHub makes anchors of them.
fn list_headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    })
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::super::tree::tree_of;
    use super::*;

    #[test]
    fn documents_must_have_a_title() {
        check_one("a.md", "Hello\n", &["title"]);
        check_one("a.md", "## Hello\n", &["title"]);
        check_one("a.md", "# Hello\n", &[]);
        check_one(".github/pull_request_template.md", "Why:\n", &[]);
    }

    #[test]
    fn guides_must_be_short() {
        let long = format!("# A\n{}\n", "word\n".repeat(GUIDE_WORDS));
        check_one("docs/a.md", &long, &["a guide of 1502 words"]);
        check_one("docs/design/a.md", &long, &[]);
        let rows = "| row |\n".repeat(GUIDE_WORDS);
        check_one("docs/a.md", &format!("# A\n<!-- made -->\n{rows}<!-- end -->\n"), &[]);
    }

    #[test]
    fn lines_of_prose_must_be_short() {
        let long = "word ".repeat(33).trim_end().to_owned();
        check_one("a.md", &format!("# A\n{long}\n"), &["over 160 characters"]);
        check_one("a.md", &format!("# A\n```\n{long}\n```\n| {long} |\n"), &[]);
    }

    #[test]
    fn pages_must_be_in_their_index() {
        let tree = |index| tree_of(&[("docs/adr/README.md", index), ("docs/adr/a.md", "# A\n")]);
        assert!(check_documents(&tree("# I\n[a](a.md)\n")).is_empty());
        assert!(
            check_documents(&tree("# I\n"))[0].message.contains("lacks a link to docs/adr/a.md")
        );
    }

    #[test]
    fn links_must_lead_somewhere() {
        let documents =
            |text| tree_of(&[("README.md", "# A\n## To `b`: c, d\n"), ("docs/x/a.md", text)]);
        let check = |text| check_documents(&documents(text));
        let good =
            "# A [b](../../README.md#to-b-c-d) [d](a.md) [e](https://f.g#h) [j](..) [k](#k)\n# K\n";
        assert!(check(good).is_empty(), "{:?}", check(good));
        assert!(check("# A [b](b.md)\n")[0].message.contains("`b.md` leads nowhere"));
        assert_eq!(check("# A [b](../../README.md#e)\n").len(), 1);
        assert_eq!(check("# A [b](../../../README.md)\n").len(), 1);
    }

    #[track_caller]
    fn check_one(path: &str, text: &str, expected: &[&str]) {
        super::super::check_findings(&check_documents(&tree_of(&[(path, text)])), expected);
    }
}
