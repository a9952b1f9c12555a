//! One checkpoint in a file, and what is said of a file that cannot be used.

use std::io::{self, Read};
use std::path::Path;

use latput_knobs::{Checkpoint, StoreError};

use crate::files::{self, FileError};

/// A file that is longer is no checkpoint of ours (thousands of queues make some 100 kB).
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A checkpoint in a file; `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Checkpoint>, StoreError> {
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

pub(crate) fn store_error(path: &Path, operation: &'static str, error: &io::Error) -> StoreError {
    refused(path, operation, error.to_string(), error.kind() == io::ErrorKind::PermissionDenied)
}

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
