//! The one user who may use all files of a command, found by trying.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use latput_units::IntoSet;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::{change_user, keep_none, leave_groups};
use crate::error::Error;
use crate::process;

/// The files of a command that reads what others may have written.
#[derive(Clone, Debug, Default)]
pub struct UsedFiles<'a> {
    /// Files to read.
    pub reads: Vec<&'a Path>,
    /// Files to write.
    pub outputs: Vec<&'a Path>,
}

impl<'a> UsedFiles<'a> {
    /// The files, and no others.
    pub fn new(
        reads: impl IntoIterator<Item = &'a Path>,
        outputs: impl IntoIterator<Item = &'a Path>,
    ) -> Self {
        Self { reads: reads.into_iter().collect(), outputs: outputs.into_iter().collect() }
    }

    /// The folders of all, also of those that the names are links to. `SQLite` may write beside a file that is only read.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        self.outputs.iter().chain(&self.reads).flat_map(|file| folders_of(file)).into_set()
    }

    /// Needed accesses: the path, and how. A file that is not there is left out: opening it gives the error.
    fn needs(&self) -> Vec<(PathBuf, Access)> {
        let reads = self.reads.iter().map(|file| (file.to_path_buf(), Access::READ_OK));
        let written = self.outputs.iter().flat_map(|file| {
            let folders = folders_of(file).into_iter().filter(|folder| folder.is_dir());
            let folders = folders.map(|folder| (folder, Access::WRITE_OK | Access::EXEC_OK));
            folders.chain([(file.to_path_buf(), Access::WRITE_OK)])
        });
        reads.chain(written).filter(|(path, _)| path.exists()).collect()
    }

    /// The users and groups to whom the files belong, and their folders, most wanted first; at last user 0.
    fn owners(&self) -> Vec<(u32, u32)> {
        let mut owners = Vec::new();
        for files in [&self.outputs, &self.reads] {
            let own = files.iter().map(|file| file.to_path_buf());
            let folders = files.iter().flat_map(|file| folders_of(file));
            for meta in own.chain(folders).filter_map(|path| fs::metadata(path).ok()) {
                let owner = (meta.uid(), meta.gid());
                if !owners.contains(&owner) {
                    owners.push(owner);
                }
            }
        }
        if !owners.iter().any(|(user, _)| *user == 0) {
            owners.push((0, 0));
        }
        owners
    }

    /// The user and group with whose rights, and without a capability, all can be used. The process must be allowed to
    /// become any user.
    ///
    /// # Errors
    ///
    /// No one user may use all; or the system's.
    pub(super) fn user(&self) -> Result<(u32, u32), Error> {
        let needs = self.needs();
        let mut refusals = Vec::new();
        let owners = self.owners();
        for &owner in &owners {
            match refused_to(owner, &needs)? {
                None => return Ok(owner),
                Some(path) if owners.len() == 1 => {
                    return Err(Error::FileOfOneUser { user: owner.0, path });
                }
                Some(path) => {
                    refusals.push(format!("user {} may not use {}", owner.0, path.display()));
                }
            }
        }
        Err(Error::FilesOfSeveralUsers { refusals: refusals.join(", ") })
    }
}

/// The folder of a file, and that of the file that its name is a link to.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let folder = |file: &Path| match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    // A name may be a link's: the file beside which SQLite writes is elsewhere.
    let real = file.canonicalize().ok().map(|file| folder(&file));
    std::iter::once(folder(file)).chain(real).collect()
}

/// The first path that this user may not use so, if there is one. A thread of its own becomes that user.
fn refused_to(
    (user, group): (u32, u32),
    needs: &[(PathBuf, Access)],
) -> Result<Option<PathBuf>, Error> {
    let failed = |errno| Error::system(format!("try the files as user {user}"), errno);
    let attempt = || {
        leave_groups().map_err(failed)?;
        match change_user(user, group) {
            // Not in the map of this user namespace: nobody can be this user.
            Err(Errno::INVAL) => return Ok(needs.first().map(|(path, _)| path.clone())),
            other => other.map_err(failed)?,
        }
        keep_none()?;
        let refused = needs.iter().find(|(path, how)| access(path, *how) == Err(Errno::ACCESS));
        Ok(refused.map(|(path, _)| path.clone()))
    };
    process::run_in_thread(attempt)?
}
