//! The journal: the committed changes of a host, one file each, by number.
//!
//! A commit renames the checkpoint's file into this folder. That is one step, so that a `kill -9` leaves either the
//! checkpoint or the entry. The file's name is the entry's number; a rename never replaces an entry, so that two
//! commits at once get two numbers. The folder lies with the checkpoints, and ends with the boot as they do.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use latput_knobs::{Checkpoint, StoreError};
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use rustix::io::Errno;

use crate::files::{self, FileError};

/// Entries that are kept; the oldest goes when another comes.
const ENTRIES_MOST: usize = 1000;
/// Most bytes of the names of hosts that a rollout has not reached.
const MISSED_BYTES_MOST: u64 = 1 << 20;
/// No entry has this number or a higher one: nobody makes so many changes, and numbers must not overflow.
const MOST_NUMBERED: u64 = 1 << 53;
/// A file that is longer is no checkpoint of ours (thousands of queues make some 100 kB).
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The folder of committed changes.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
}

/// One entry: its number and the change, or why its file cannot be read.
pub type NumberedChange = (u64, Result<Checkpoint, StoreError>);

impl Journal {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Every entry, the newest first. One that cannot be read hides no other. Files with other names are none.
    pub fn entries(&self) -> Result<Vec<NumberedChange>, StoreError> {
        let mut numbers = self.numbers()?;
        numbers.reverse();
        let read = |number| Some((number, read_checkpoint(&self.file(number)).transpose()?));
        Ok(numbers.into_iter().filter_map(read).collect())
    }

    /// Makes the checkpoint in the file `from` the newest entry, and gives its number.
    pub(crate) fn take_in(&self, from: &Path) -> Result<u64, StoreError> {
        let failed = |error: &io::Error| store_error(&self.folder, "keep the journal of", error);
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(&error));
            }
            _ => {}
        }
        let numbers = self.numbers()?;
        let mut number = numbers.last().map_or(1, |newest| newest + 1);
        while !move_to(from, &self.file(number)).map_err(|error| failed(&error.into()))? {
            number += 1;
        }
        // It is an entry, whether that outlives a power cut or not.
        let _unsynced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        let too_many = (numbers.len() + 1).saturating_sub(ENTRIES_MOST);
        for old in numbers.into_iter().take(too_many) {
            // Another commit may have removed it already.
            let _gone = fs::remove_file(self.file(old));
            let _none = fs::remove_file(self.rollout_file(old));
        }
        Ok(number)
    }

    /// Adds a change that was put back, so that its reader learns that it was made.
    pub fn add(&self, change: &Checkpoint) -> Result<u64, StoreError> {
        let folder = self.folder.parent().unwrap_or(&self.folder);
        let made = folder.join(format!("{}-{}.ended", change.slot(), std::process::id()));
        let bytes = serde_json::to_vec(change).expect("a checkpoint has no unserialisable part");
        files::replace_private(&made, &bytes).map_err(|error| of_file(error, "write"))?;
        let number = self.take_in(&made);
        if number.is_err() {
            let _left = fs::remove_file(&made);
        }
        number
    }

    /// Records beside an entry that its rollout has ended, and the hosts that were not reached.
    pub fn record_rollout_end(&self, number: u64, missed: &[String]) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(missed).expect("names have no unserialisable part");
        files::replace_private(&self.rollout_file(number), &bytes)
            .map_err(|error| of_file(error, "write"))
    }

    /// The hosts that the rollout of an entry has not reached; `None` if no end is recorded that can be read.
    pub fn rollout_end(&self, number: u64) -> Option<Vec<String>> {
        let bytes = files::read(&self.rollout_file(number), MISSED_BYTES_MOST).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The numbers of the entries, ascending.
    fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let failed = |error: &io::Error| store_error(&self.folder, "list the journal of", error);
        let folder = match fs::read_dir(&self.folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut numbers = Vec::new();
        for entry in folder {
            let name = entry.map_err(|error| failed(&error))?.file_name();
            let number: Option<u64> =
                name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            // Nobody makes so many changes: a file of that name is somebody else's.
            numbers.extend(number.filter(|number| *number < MOST_NUMBERED));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn file(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.json"))
    }

    fn rollout_file(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.rollout"))
    }
}

/// Renames a file; `false` if there is one with the new name.
fn move_to(from: &Path, to: &Path) -> Result<bool, Errno> {
    let moved = match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot promise it.
        Err(Errno::INVAL | Errno::NOSYS) => match to.try_exists() {
            Ok(false) => renameat(CWD, from, CWD, to),
            Ok(true) => Err(Errno::EXIST),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        },
        moved => moved,
    };
    match moved {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A checkpoint in a file; `None` if there is no such file.
pub(crate) fn read_checkpoint(path: &Path) -> Result<Option<Checkpoint>, StoreError> {
    let damaged = |reason: String| StoreError::Damaged { path: path.display().to_string(), reason };
    let file = match files::open_state(path) {
        Ok(file) => file,
        Err(error) if matches!(error.errno, Some(libc::ENOENT | libc::ENOTDIR)) => {
            return Ok(None);
        }
        Err(error) if error.errno.is_none() => return Err(damaged(error.problem)),
        Err(error) => return Err(of_file(error, "read")),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| store_error(path, "read", &error))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(damaged("it is longer than 16 MiB".to_owned()));
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(error.to_string()))
}

/// The error of a file that an operation of the store has failed on.
pub(crate) fn store_error(path: &Path, operation: &'static str, error: &io::Error) -> StoreError {
    refused(path, operation, error.to_string(), error.kind() == io::ErrorKind::PermissionDenied)
}

/// As [`store_error`], of a file of latput's state.
pub(crate) fn of_file(error: FileError, operation: &'static str) -> StoreError {
    let reason = error.cause.unwrap_or(error.problem);
    refused(&error.path, operation, reason, error.permission)
}

fn refused(
    path: &Path,
    operation: &'static str,
    reason: String,
    is_permission: bool,
) -> StoreError {
    let path = path.display().to_string();
    if is_permission {
        StoreError::Permission { path, operation, reason }
    } else {
        StoreError::Io { path, operation, reason }
    }
}
