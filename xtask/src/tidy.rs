//! Tidy: the rules of the tree that no compiler checks, each a small function with a test that it
//! catches a violation.

mod arrows;
mod circles;
mod code;
mod documents;
mod licences;
mod names;
mod prose;
mod source;
mod tree;

use std::fmt;

use anyhow::{Result, ensure};

use crate::workspace::Workspace;
use tree::Tree;

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
    let tree = Tree::read(&workspace.root)?;
    for (path, lines) in source::long_files(&tree) {
        println!("note: {path} has {lines} lines (aim for {})", source::AIM_LINES);
    }
    let findings = check(&tree, workspace)?;
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings in {} files", findings.len(), tree.files.len());
    println!("{} files are tidy", tree.files.len());
    Ok(())
}

/// Every violation of every rule, in the order of files.
fn check(tree: &Tree, workspace: &Workspace) -> Result<Vec<Finding>> {
    let mut findings = source::check(tree);
    findings.extend(circles::check(tree));
    findings.extend(names::check(tree));
    findings.extend(prose::check(tree));
    findings.extend(documents::check(tree));
    findings.extend(arrows::check(tree, &workspace.packages));
    findings.extend(licences::check(&workspace.root)?);
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_is_tidy() {
        let workspace = Workspace::find().unwrap();
        let tree = Tree::read(&workspace.root).unwrap();
        let findings = check(&tree, &workspace).unwrap();
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "run `cargo xtask tidy`:\n{}", lines.join("\n"));
    }
}
