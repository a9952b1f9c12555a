//! Files below a folder that stands for `/`: the host's own, or an image that a stranger made.
//!
//! A name is resolved from the folder on, and never out of it (`openat2(2)`, Linux 5.6; before, one folder after the
//! other). What is written, and what is to be written over, is reached through no symbolic link.

use std::ffi::{CString, OsStr};
use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fgetxattr, flistxattr,
    fsetxattr, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::files::{self, FileError, Owner, walk};

/// A folder that stands for `/`.
#[derive(Debug)]
pub struct RootFolder {
    path: PathBuf,
    folder: File,
}

/// Most bytes of the names of a file's extended attributes, and of the value of one (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const ATTRIBUTE_BYTES_MOST: usize = 64 << 10;

/// Opens a file of this folder, if it is there and regular.
fn open_beside(folder: &File, name: &OsStr) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// Reads a file's extended attributes: a security label, access lists, those of users.
fn read_attributes(file: &File) -> Vec<(CString, Vec<u8>)> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MOST];
    let Ok(length) = flistxattr(file, &mut names[..]) else { return Vec::new() };
    let mut value = vec![0; ATTRIBUTE_BYTES_MOST];
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let read = names.filter_map(|name| {
        let name = CString::new(name).ok()?;
        let length = fgetxattr(file, &name, &mut value[..]).ok()?;
        Some((name, value[..length].to_vec()))
    });
    read.collect()
}

/// Programs that read UTF-8 pass over it.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl RootFolder {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let folder = File::open(path).map_err(|error| FileError::io(path, "open", error))?;
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Its own name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is that of the running system, and not of an image.
    pub fn is_running_system(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The name, seen from outside, of a file that has this name below.
    pub fn below(&self, name: &str) -> PathBuf {
        self.path.join(name.trim_start_matches('/'))
    }

    /// The text of a regular file with its owner; `None` if there is none.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<(String, Owner)>, FileError> {
        let path = self.below(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match self.open_below(name, flags, ResolveFlags::NO_SYMLINKS) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(refused(&path, "read", errno)),
        };
        let meta = file.metadata().map_err(|error| FileError::io(&path, "look at", error))?;
        if !meta.is_file() {
            let problem = "it is no regular file, and latput writes to no other";
            return Err(FileError::new(&path, problem));
        }
        let owner = Owner { mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() };
        let text = files::text_of(&path, files::read_open(&path, file, limit)?)?;
        Ok(Some((text, owner)))
    }

    /// The text of a file of somebody without its byte order mark, also through links that stay below; `None` where it cannot be
    /// read.
    pub fn look_at(&self, name: &str, limit: u64) -> Option<String> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(self.open_below(name, flags, ResolveFlags::NO_MAGICLINKS).ok()?);
        let path = self.below(name);
        let bytes = file.metadata().ok()?.is_file().then(|| files::read_open(&path, file, limit));
        let text = files::text_of(&path, bytes?.ok()?).ok()?;
        Some(text.strip_prefix(BYTE_ORDER_MARK).map(str::to_owned).unwrap_or(text))
    }

    /// The names in a folder, sorted; none if there is no such folder.
    pub fn entries(&self, name: &str) -> Result<Vec<String>, FileError> {
        let failed = |errno| refused(&self.below(name), "list", errno);
        match self.open_folder(name) {
            Ok(folder) => list_names(folder).map_err(failed),
            Err(Errno::NOENT) => Ok(Vec::new()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// The names in a folder of somebody, sorted, also through links that stay below; none where it cannot be read.
    pub fn look_in(&self, name: &str) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = self.open_below(name, flags, ResolveFlags::NO_MAGICLINKS);
        folder.and_then(list_names).unwrap_or_default()
    }

    /// Takes the lock of the folder, which ends with this value; whether no other has it. A file system without locks gives
    /// it to everybody.
    pub fn lock(&self) -> bool {
        !matches!(self.folder.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Whether there is something of this name.
    pub fn has(&self, name: &str) -> bool {
        let found =
            self.open_below(name, OFlags::PATH | OFlags::NOFOLLOW, ResolveFlags::NO_SYMLINKS);
        !matches!(found, Err(Errno::NOENT))
    }

    /// Makes one folder with these permissions, unless it is there: then it stays as it is. Durable when it returns. Whether it
    /// was made.
    pub fn make_folder(&self, name: &str, mode: u32) -> Result<bool, FileError> {
        let path = self.below(name);
        let failed = |errno| refused(&path, "make this folder", errno);
        let (parent, last) = self.parent(name).map_err(failed)?;
        match mkdirat(&parent, last, Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => return self.open_folder(name).map(|_| false).map_err(failed),
            made => made.map_err(failed)?,
        }
        let made = File::from(self.open_folder(name).map_err(failed)?);
        made.set_permissions(Permissions::from_mode(mode))
            .and_then(|()| parent.sync_all())
            .map(|()| true)
            .map_err(|error| FileError::io(&path, "make this folder", error))
    }

    /// Removes a folder that is empty; whether it was.
    pub fn remove_folder(&self, name: &str) -> bool {
        let removed = |(parent, last): (File, &OsStr)| unlinkat(parent, last, AtFlags::REMOVEDIR);
        self.parent(name).and_then(removed).is_ok()
    }

    /// Replaces a regular file whole or not at all, or makes it, with an owner and permissions whatever the umask;
    /// durable when it returns. No file gets a right to be executed, or more.
    pub fn install(&self, name: &str, bytes: &[u8], owner: Owner) -> Result<(), FileError> {
        self.replace(name, bytes, Owner { mode: owner.mode & 0o666, ..owner })
    }

    /// Does the same with a script that everybody may run and this process owns. Its text must be of this program.
    pub fn install_script(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.replace(name, bytes, Owner::ours(0o755))
    }

    fn replace(&self, name: &str, bytes: &[u8], owner: Owner) -> Result<(), FileError> {
        let path = self.below(name);
        let (parent, last) = self.target(name, "write")?;
        files::check_folder(&path, &parent)?;
        files::remove_abandoned_parts(&parent);
        let before =
            open_beside(&parent, last).map_or_else(Vec::new, |file| read_attributes(&file));
        files::replace_in((&parent, last), &path, bytes, (files::PRIVATE, Some(owner)))?;
        if let Some(file) = open_beside(&parent, last).filter(|_| !before.is_empty()) {
            for (name, value) in before {
                // One that this file system or these rights do not allow is lost.
                let _ = fsetxattr(&file, name, &value, XattrFlags::empty());
            }
        }
        Ok(())
    }

    /// Removes a regular file.
    pub fn uninstall(&self, name: &str) -> Result<(), FileError> {
        let path = self.below(name);
        let (parent, last) = self.target(name, "remove")?;
        files::remove_abandoned_parts(&parent);
        match unlinkat(&parent, last, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(refused(&path, "remove", errno)),
        }
        parent.sync_all().map_err(|error| FileError::io(&path, "remove", error))
    }

    /// The folder and the last name of a file that is regular, or is not there.
    fn target<'n>(&self, name: &'n str, doing: &str) -> Result<(File, &'n OsStr), FileError> {
        let path = self.below(name);
        let (parent, last) = self.parent(name).map_err(|errno| refused(&path, doing, errno))?;
        match statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {}
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(refused(&path, doing, Errno::LOOP)),
            Err(errno) => return Err(refused(&path, doing, errno)),
        }
        Ok((parent, last))
    }

    fn parent<'n>(&self, name: &'n str) -> Result<(File, &'n OsStr), Errno> {
        let path = Path::new(name);
        let last = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().and_then(Path::to_str).ok_or(Errno::INVAL)?;
        Ok((File::from(self.open_folder(parent)?), last))
    }

    fn open_folder(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.open_below(name, OFlags::RDONLY | OFlags::DIRECTORY, ResolveFlags::NO_SYMLINKS)
    }

    fn open_below(&self, name: &str, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
        let parts: Vec<Component<'_>> = Path::new(name).components().collect();
        if parts.contains(&Component::ParentDir) {
            return Err(Errno::INVAL);
        }
        let relative: PathBuf = parts.into_iter().filter(|it| *it != Component::RootDir).collect();
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { &relative };
        walk::open(self.folder.as_fd(), relative, flags, ResolveFlags::IN_ROOT | how)
    }
}

/// The names in an open folder, sorted.
fn list_names(folder: OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
    }
    names.retain(|name| name != "." && name != "..");
    names.sort();
    Ok(names)
}

fn refused(path: &Path, doing: &str, errno: Errno) -> FileError {
    match errno {
        Errno::LOOP | Errno::NOTDIR => FileError::new(
            path,
            "neither read nor written, for it is no regular file, or a symbolic link is on the way to it",
        ),
        Errno::INVAL => {
            FileError::new(path, "neither read nor written, for its name is no plain one")
        }
        errno => FileError::io(path, doing, io::Error::from(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A folder with an image in it, and a secret beside the image.
    fn image() -> (tempfile::TempDir, RootFolder) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("image/etc")).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        let root = RootFolder::open(&folder.path().join("image")).unwrap();
        (folder, root)
    }

    #[test]
    fn extended_attributes_outlive_new_text() {
        let (folder, root) = image();
        root.install("/etc/file", b"text", Owner::ours(0o600)).unwrap();
        let open = || File::open(folder.path().join("image/etc/file")).unwrap();
        if fsetxattr(open(), c"user.note", b"mine", XattrFlags::empty()).is_err() {
            return; // this file system has none
        }
        root.install("/etc/file", b"other", Owner::ours(0o600)).unwrap();
        assert_eq!(read_attributes(&open()), [(c"user.note".to_owned(), b"mine".to_vec())]);
    }

    #[test]
    fn files_are_installed_read_and_removed() {
        let (folder, root) = image();
        root.make_folder("/etc/new", 0o755).unwrap();
        root.make_folder("/etc/new", 0o700).unwrap();
        let owner = Owner { mode: 0o6775, ..Owner::ours(0) };
        root.install("/etc/new/file", b"text", owner).unwrap();
        let (text, owner) = root.read("/etc/new/file", 10).unwrap().unwrap();
        assert_eq!((text.as_str(), owner.mode), ("text", 0o664), "never more than read and write");
        let made = fs::metadata(folder.path().join("image/etc/new")).unwrap();
        assert_eq!(made.mode() & 0o777, 0o755, "one that is there stays as it is");
        assert_eq!(root.entries("/etc").unwrap(), ["new"]);
        assert!(!root.remove_folder("/etc/new"));
        let left = File::create(folder.path().join("image/etc/new/.latput-1-00.part")).unwrap();
        left.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        drop(left);
        root.uninstall("/etc/new/file").unwrap();
        assert!(root.remove_folder("/etc/new") && !root.has("/etc/new") && root.has("/etc"));
        assert_eq!(root.read("/etc/new/file", 10).unwrap(), None);
        assert!(root.entries("/nothing").unwrap().is_empty());
    }

    #[test]
    fn nothing_outside_is_reached_by_any_name() {
        let (folder, root) = image();
        let within = |name: &str| folder.path().join("image").join(name);
        symlink(folder.path(), within("out")).unwrap();
        symlink("../../../../../../../../..", within("up")).unwrap();
        symlink(folder.path().join("secret"), within("etc/link")).unwrap();
        for name in ["/out/secret", "/../secret", "/etc/../../secret", "/etc/link"] {
            assert!(root.read(name, 10).is_err(), "{name}");
            assert!(root.install(name, b"x", Owner::ours(0o644)).is_err(), "{name}");
            assert!(root.uninstall(name).is_err(), "{name}");
            assert_eq!(root.look_at(name, 10), None, "{name}");
        }
        assert!(root.look_in("/out").is_empty());
        let up = format!("/up{}", folder.path().join("secret").display());
        assert_eq!(root.look_at(&up, 10), None);
        assert!(root.make_folder("/out/folder", 0o755).is_err());
        assert!(root.make_folder("/out", 0o755).is_err());
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "secret");
    }

    #[test]
    fn folder_behind_link_is_looked_in() {
        let (folder, root) = image();
        symlink("/etc", folder.path().join("image/other")).unwrap();
        fs::write(folder.path().join("image/etc/own"), "").unwrap();
        assert_eq!(root.look_in("/other"), ["own"]);
        assert!(root.entries("/other").is_err());
    }

    #[test]
    fn rules_hold_without_openat2() {
        walk::without_openat2(nothing_outside_is_reached_by_any_name);
        walk::without_openat2(files_are_installed_read_and_removed);
    }
}
