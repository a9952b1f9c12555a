//! Snapshots of files: a recorded one, a folder, or two copies.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use latput_diagnose::{Snapshot, folder, snapshot};
use latput_linux::confine::UsedFiles;

use crate::context::keep_only_files;
use crate::exit::CliError;

/// Folders below those of a snapshot's two looks.
const DEEPEST: usize = 16;

/// Reads the snapshot of a file or a folder, or of two. The rights of this process are given up before.
pub(super) fn read_snapshot(
    path: &Path,
    second: Option<&Path>,
    interface: Option<&str>,
) -> Result<Snapshot, CliError> {
    let paths: Vec<&Path> = std::iter::once(path).chain(second).collect();
    keep_only_files(&UsedFiles::new(paths.iter().copied(), []))?;
    if paths.len() == 1 && path.is_file() {
        return Snapshot::parse(&read_text(path, snapshot::LARGEST_DOCUMENT)?)
            .map_err(|error| refuse(path, &error.to_string()));
    }
    let mut texts = Vec::new();
    for (path, look) in paths.iter().zip(["before", "after"]) {
        let start = if second.is_some() { PathBuf::from(look) } else { PathBuf::new() };
        if path.is_dir() {
            read_folder(path, &start, 0, &mut texts)?;
        } else {
            let name = path.file_name().unwrap_or_default();
            let text = read_text(path, snapshot::LARGEST_TEXT)?;
            texts.push((start.join(name).display().to_string(), text));
        }
    }
    folder::read_folder(texts, interface).map_err(|error| refuse(path, &error.to_string()))
}

fn refuse(path: &Path, problem: &str) -> CliError {
    CliError::usage(format!("{}: {problem}", path.display()))
}

/// The text of a file; bytes that are none are replaced.
fn read_text(path: &Path, most: usize) -> Result<String, CliError> {
    let problem = |error: std::io::Error| refuse(path, &error.to_string());
    let file = fs::File::open(path).map_err(problem)?;
    if !file.metadata().map_err(problem)?.is_file() {
        return Err(refuse(path, "this is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(problem)?;
    if bytes.len() > most {
        return Err(refuse(path, &format!("it has more than {most} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a folder's files with their paths below it. Links are not followed.
fn read_folder(
    folder: &Path,
    start: &Path,
    depth: usize,
    texts: &mut Vec<(String, String)>,
) -> Result<(), CliError> {
    let problem = |error: std::io::Error| refuse(folder, &error.to_string());
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let (kind, name) = (entry.file_type().map_err(problem)?, start.join(entry.file_name()));
        if kind.is_dir() && depth < DEEPEST {
            read_folder(&entry.path(), &name, depth + 1, texts)?;
        } else if kind.is_file() {
            // A ticket's folder has logs and pictures too: a file that is too large is passed over.
            if entry.metadata().map_err(problem)?.len() > snapshot::LARGEST_TEXT as u64 {
                continue;
            }
            let text = read_text(&entry.path(), snapshot::LARGEST_TEXT)?;
            texts.push((name.display().to_string(), text));
        }
    }
    Ok(())
}
