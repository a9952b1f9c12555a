//! Tidy: the rules of the tree that no compiler checks, each a small function with a test that it
//! catches a violation.

mod arrows;
mod circles;
mod code;
mod documents;
mod lines;
mod source;
mod tree;

use std::fmt;

use anyhow::{Result, ensure};

use crate::workspace::Workspace;
use tree::SourceTree;

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root.
    pub path: String,
    /// The line from 1, or 0 for the file as a whole.
    pub line: usize,
    /// The fault, and its remedy.
    pub message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks the tree and prints what is wrong; a finding is an error.
pub fn run(workspace: &Workspace) -> Result<()> {
    let tree = SourceTree::read(&workspace.root)?;
    for (path, lines) in source::long_files(&tree) {
        println!("note: {path} has {lines} lines (aim for {})", source::AIM_LINES);
    }
    let findings = check_tree(&tree, workspace);
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings in {} files", findings.len(), tree.files.len());
    println!("{} files are tidy", tree.files.len());
    Ok(())
}

/// Every violation of every rule, in the order of files.
fn check_tree(tree: &SourceTree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = source::check_sources(tree);
    findings.extend(circles::check_circles(tree));
    findings.extend(lines::check_lines(tree));
    findings.extend(documents::check_documents(tree));
    findings.extend(arrows::check_crate_map(tree, &workspace.packages));
    findings.sort();
    findings
}

/// As many findings as expected, each with the words.
#[cfg(test)]
#[track_caller]
fn check_findings(findings: &[Finding], expected: &[&str]) {
    assert_eq!(findings.len(), expected.len(), "{findings:?}");
    for (finding, expected) in findings.iter().zip(expected) {
        assert!(finding.message.contains(expected), "{findings:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_tidy() {
        let workspace = Workspace::from_cargo_metadata().unwrap();
        let tree = SourceTree::read(&workspace.root).unwrap();
        let findings = check_tree(&tree, &workspace);
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "run `cargo xtask tidy`:\n{}", lines.join("\n"));
    }
}
