//! The files that the rules look at: what git tracks or would add, read into memory.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::code;
use crate::workspace::capture_output;

/// Of a file. A larger one was built, and stays in every clone's history.
const BYTES_MOST: usize = 1 << 20;

/// The text files of the repository.
#[derive(Clone, Debug, Default)]
pub struct SourceTree {
    /// In ascending order of path.
    pub files: Vec<SourceFile>,
}

/// One text file.
#[derive(Clone, Debug, Default)]
pub struct SourceFile {
    /// From the root, with forward slashes.
    pub path: String,
    /// Its whole text.
    pub text: String,
    /// Its Rust: comments and literals blanked out, lines where they were.
    pub code: String,
    /// The same of what is compiled into the product: tests are blanked out too.
    pub product: String,
}

impl SourceTree {
    /// Reads every text file that git tracks or would add; files that are not UTF-8 are left out.
    pub fn read(root: &Path) -> Result<Self> {
        let mut git = Command::new("git");
        // A clone made by another user is still ours to read.
        git.arg("-C").arg(root).arg("-c").arg(format!("safe.directory={}", root.display()));
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let names = capture_output(&mut git).context("git knows the files of the repository")?;
        let mut files = Vec::new();
        for path in names.split_terminator('\0') {
            let bytes = match std::fs::read(root.join(path)) {
                Ok(bytes) => bytes,
                // Deleted but not yet committed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            };
            ensure!(
                bytes.len() <= BYTES_MOST,
                "{path} has {} bytes, at most {BYTES_MOST}: what is built is not kept; add it to .gitignore",
                bytes.len()
            );
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile::new(path, text));
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// The file at `path`.
    pub fn find_file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl SourceFile {
    fn new(path: &str, text: String) -> Self {
        let mut file = Self { path: path.to_owned(), text, ..Self::default() };
        if file.is(&["rs"]) {
            file.code = code::mask_non_code(&file.text);
        }
        if !file.is_for_development() {
            file.product = code::without_tests(&file.code);
        }
        file
    }

    /// Whether the name ends in one of `extensions`.
    pub fn is(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// The folder below `crates/` (or `xtask`) that the file belongs to.
    pub fn crate_folder(&self) -> Option<&str> {
        if self.path.starts_with("xtask/") {
            return Some("xtask");
        }
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether nothing of the file ends up in the product: tests, benches and examples.
    fn is_for_development(&self) -> bool {
        let mut parts = self.path.split('/').rev();
        let name = parts.next().unwrap_or_default();
        name == "tests.rs" || parts.any(|folder| ["tests", "benches", "examples"].contains(&folder))
    }
}

#[cfg(test)]
pub fn tree_of(files: &[(&str, &str)]) -> SourceTree {
    let file = |(path, text): &(&str, &str)| SourceFile::new(path, (*text).to_owned());
    SourceTree { files: files.iter().map(file).collect() }
}
