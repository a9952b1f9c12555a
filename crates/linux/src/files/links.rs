//! Symbolic links on the way to a folder: those that somebody else may have planted are not followed.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{FileError, may_others_write, walk};
use crate::confine::file_user;

/// Most links on one way (`MAXSYMLINKS`, `include/linux/namei.h`).
const LINKS_MOST: usize = 40;

/// Opens a folder. Symbolic links on the path are followed by the rule of `fs.protected_symlinks`. A link must belong to
/// this user, to root, or to the owner of its folder. In folders where nobody else can make links, any owner is accepted.
pub(super) fn open_folder(path: &Path) -> Result<File, FileError> {
    let failed = |error: io::Error| FileError::io(path, "open this folder", error);
    let mut way = std::path::absolute(path).map_err(failed)?;
    for _ in 0..=LINKS_MOST {
        match open_without_links(&way) {
            Err(Errno::LOOP) => way = follow_first(path, &way)?,
            opened => return opened.map_err(|errno| failed(errno.into())),
        }
    }
    Err(failed(Errno::LOOP.into()))
}

fn open_without_links(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    walk::open(CWD, path, flags, ResolveFlags::NO_SYMLINKS).map(File::from)
}

/// The way with the first link on it replaced by where that leads.
fn follow_first(path: &Path, way: &Path) -> Result<PathBuf, FileError> {
    let failed = |error: io::Error| FileError::io(path, "open this folder", error);
    let mut parts = way.components();
    let mut so_far = PathBuf::new();
    while let Some(part) = parts.next() {
        let link = so_far.join(part);
        let meta = fs::symlink_metadata(&link).map_err(failed)?;
        if meta.is_symlink() {
            let folder = fs::metadata(&so_far).map_err(failed)?;
            if is_planted(&meta, &folder) {
                let problem = format!(
                    "not written, for {} on the way to it is a symbolic link of user {}: name the folder itself",
                    link.display(),
                    meta.uid()
                );
                return Err(FileError::new(path, problem));
            }
            let target = fs::read_link(&link).map_err(failed)?;
            return Ok(so_far.join(target).join(parts.as_path()));
        }
        so_far = link;
    }
    // It was a link a moment ago.
    Ok(so_far)
}

/// Whether a link may be somebody else's trap: he can make links in its folder, which is not his.
fn is_planted(link: &Metadata, folder: &Metadata) -> bool {
    let is_trusted = [0, file_user(), folder.uid()].contains(&link.uid());
    !is_trusted && may_others_write(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::super::{check, ensure, replace};
    use super::*;

    #[test]
    fn planted_link_without_openat2_is_not_followed() {
        walk::without_openat2(planted_link_in_way_is_not_followed);
    }

    #[test]
    fn planted_link_in_way_is_not_followed() {
        if file_user() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for made in ["shared", "private", "victim", "victim/sub"] {
            fs::create_dir(at(made)).unwrap();
        }
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
        let link = |name: &str, to: &Path, owner: u32| {
            symlink(to, at(name)).unwrap();
            lchown(at(name), Some(owner), Some(owner)).unwrap();
        };
        link("shared/his", &at("victim"), 65_534);
        link("shared/ours", Path::new("../victim/sub/.."), 0);
        link("private/his", &at("shared/ours"), 65_534);
        link("shared/loop", &at("shared/loop"), 0);
        let error = replace(&at("shared/his/file"), b"x").unwrap_err().to_string();
        assert!(
            error.contains("shared/his on the way to it is a symbolic link of user 65534"),
            "{error}"
        );
        let error = replace(&at("shared/his/sub/file"), b"x").unwrap_err().to_string();
        assert!(error.contains("user 65534"), "{error}");
        assert!(ensure(&at("shared/his/file")).is_err());
        assert!(check(&at("shared/his/file")).is_err());
        assert_eq!(fs::read_dir(at("victim")).unwrap().count(), 1, "only what was there");
        assert!(replace(&at("shared/loop/file"), b"x").is_err());
        for way in ["shared/ours/a", "private/his/b", "victim/sub/../c"] {
            replace(&at(way), b"x").unwrap();
        }
        let made = at("victim/b");
        assert_eq!(fs::metadata(&made).unwrap().mode() & !0o666 & 0o7777, 0);
        // He owns the folder, so that he has no need of a trap.
        lchown(at("shared"), Some(65_534), None).unwrap();
        replace(&at("shared/his/file"), b"x").unwrap();
    }
}
