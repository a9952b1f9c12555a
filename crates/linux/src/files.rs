//! Files that are written and read for people: results, reports, plans, locks.
//!
//! latput often runs as root in folders that others may write to. A name that is a symbolic link, a pipe or a
//! device is never followed when it is written, and nothing is read without a bound.

mod links;
mod locks;
mod pipe;
pub(crate) mod walk;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    Access, AtFlags, Dir, FileType, Mode, OFlags, accessat, openat, renameat, unlinkat,
};
use rustix::process::getpid;

use self::pipe::InputFile;
use crate::confine::file_user;

/// Most that is read of a plan, a testbed or a profile, bytes.
pub const TEXT_BYTES_MOST: u64 = 16 << 20;

/// Only the owner reads and writes.
pub(crate) const PRIVATE: u32 = 0o600;
/// Permissions of everybody but the owner on a file or a folder.
const OTHERS: u32 = 0o077;
/// Start and end of the name of a file that is not yet complete.
const PART: (&str, &str) = (".latput-", ".part");
/// A younger part may belong to a process that has not locked it yet.
const PART_MIN_AGE: Duration = Duration::from_secs(60);
const STICKY: u32 = 0o1000;
const WORLD_WRITABLE: u32 = 0o002;
const GROUP_WRITABLE: u32 = 0o020;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The problem and its remedy.
    pub problem: String,
    /// Whether it was for want of permission.
    pub permission: bool,
    /// The operating system's words, where it has refused.
    pub(crate) cause: Option<String>,
    /// The operating system's number for it.
    pub(crate) errno: Option<i32>,
}

impl FileError {
    pub(crate) fn new(path: &Path, problem: impl Into<String>) -> Self {
        let (path, problem) = (path.to_owned(), problem.into());
        Self { path, problem, permission: false, cause: None, errno: None }
    }

    pub(crate) fn io(path: &Path, doing: &str, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let permission = error.kind() == io::ErrorKind::PermissionDenied;
        let errno = error.raw_os_error();
        let cause = error.to_string();
        let problem = format!("cannot {doing}: {cause}");
        Self { path: path.to_owned(), problem, permission, cause: Some(cause), errno }
    }
}

/// Refuses a name that [`replace`] would refuse, before the work that leads to it.
pub fn check(path: &Path) -> Result<(), FileError> {
    check_target(path)?;
    let folder = open_folder(path)?;
    accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| FileError::io(folder_of(path), "write to this folder", error))
}

/// Refuses a file that cannot be written where it is, or made.
pub fn check_in_place(path: &Path) -> Result<(), FileError> {
    check(path)?;
    match accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(FileError::io(path, "write", error)),
    }
}

/// Replaces a regular file whole or not at all, or makes it; durable when it returns.
///
/// The bytes go to a new file beside it, which then takes its name. Refused: a name that is something other than
/// a regular file, and for root a folder where anybody may rename (writable by all, not sticky, not root's).
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    replace_with(path, bytes, 0o666)
}

/// The same with a file that only its owner reads and writes.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    replace_with(path, bytes, PRIVATE)
}

/// Owner and permissions of a file that is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The permissions, as `chmod` takes them.
    pub mode: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Of a file of whoever runs latput.
    pub fn ours(mode: u32) -> Self {
        let gid = rustix::process::getegid().as_raw();
        Self { mode, uid: file_user(), gid }
    }
}

fn replace_with(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let name = path.file_name().ok_or_else(|| FileError::new(path, "names no file"))?;
    check_target(path)?;
    let folder = open_folder(path)?;
    replace_in((&folder, name), path, bytes, (mode, None))
}

/// Replaces the file of this name in a folder; `path` is for messages.
pub(crate) fn replace_in(
    (folder, name): (&File, &OsStr),
    path: &Path,
    bytes: &[u8],
    (mode, owner): (u32, Option<Owner>),
) -> Result<(), FileError> {
    let failed = |error: rustix::io::Errno| FileError::io(path, "write", error);
    let (mut file, temporary) = loop {
        let (start, end) = PART;
        let temporary = format!("{start}{}-{:016x}{end}", getpid().as_raw_nonzero(), suffix());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match openat(folder, &temporary, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)) {
            Ok(file) => break (File::from(file), temporary),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
    };
    // The lock keeps `remove_abandoned_parts` of other processes away. Where the file system has no locks,
    // that function cannot lock the file either, and leaves it.
    let _locked = file.try_lock();
    let written = file
        .write_all(bytes)
        .and_then(|()| owner.map_or(Ok(()), |owner| give(&file, owner)))
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(folder, &temporary, folder, name)?))
        .and_then(|()| folder.sync_all());
    written.map_err(|error| {
        let _gone = unlinkat(folder, &temporary, AtFlags::empty());
        FileError::io(path, "write", error)
    })
}

/// Removes the parts of files that processes left in `folder` when they were killed within [`replace`].
///
/// Only regular files of this user go, at least a minute old, that no process has locked. Errors are ignored:
/// an abandoned part takes space and does no other harm.
pub(crate) fn remove_abandoned_parts(folder: &File) {
    let (start, end) = PART;
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_part = name.to_str().is_ok_and(|it| it.starts_with(start) && it.ends_with(end));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let is_part = is_part && entry.file_type() == FileType::RegularFile;
        let opened = is_part.then(|| openat(folder, name, flags, Mode::empty()));
        let Some(Ok(file)) = opened.map(|opened| opened.map(File::from)) else { continue };
        let is_ours_and_old = file.metadata().is_ok_and(|meta| {
            let age = meta.modified().ok().and_then(|modified| modified.elapsed().ok());
            let is_old = age.is_some_and(|age| age >= PART_MIN_AGE);
            meta.is_file() && meta.uid() == file_user() && is_old
        });
        if is_ours_and_old && file.try_lock().is_ok() {
            let _removed = unlinkat(folder, name, AtFlags::empty());
        }
    }
}

fn give(file: &File, owner: Owner) -> io::Result<()> {
    std::os::unix::fs::fchown(file, Some(owner.uid), Some(owner.gid))?;
    file.set_permissions(fs::Permissions::from_mode(owner.mode))
}

/// Makes sure that `path` is a regular file, making an empty one if there is none, so that what opens it by its
/// name makes nothing through a link. Gives its absolute name, without links in its folders, and whether it was made.
pub fn ensure(path: &Path) -> Result<(PathBuf, bool), FileError> {
    let name = path.file_name().ok_or_else(|| FileError::new(path, "names no file"))?;
    check_target(path)?;
    let folder = open_folder(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let is_new = match openat(&folder, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666)) {
        Ok(_) => true,
        Err(rustix::io::Errno::EXIST) => {
            check_target(path)?;
            false
        }
        Err(error) => return Err(FileError::io(path, "make", error)),
    };
    let folder = folder_of(path).canonicalize();
    let folder = folder.map_err(|error| FileError::io(path, "find", error))?;
    Ok((folder.join(name), is_new))
}

/// The bytes of a file (or a pipe), at most `limit` of them.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let source = InputFile::open(path).map_err(|error| FileError::io(path, "read", error))?;
    let size = source.file().metadata();
    let size = size.map_err(|error| FileError::io(path, "read", error))?.len();
    read_limited(path, source, size, limit)
}

/// The bytes of a file that was opened by this name, at most `limit` of them.
pub fn read_open(path: &Path, file: File, limit: u64) -> Result<Vec<u8>, FileError> {
    let size = file.metadata().map_err(|error| FileError::io(path, "read", error))?.len();
    read_limited(path, file, size, limit)
}

fn read_limited(
    path: &Path,
    source: impl Read,
    size: u64,
    limit: u64,
) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    if size <= limit {
        let read = source.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| FileError::io(path, "read", error))?;
    }
    let size = size.max(bytes.len() as u64);
    if size > limit {
        let problem =
            format!("it has {size} bytes or more, and at most {limit} are read: shorten it");
        return Err(FileError::new(path, problem));
    }
    Ok(bytes)
}

/// The text of a file (or a pipe), at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String, FileError> {
    text_of(path, read(path, limit)?)
}

pub(crate) fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, FileError> {
    String::from_utf8(bytes)
        .map_err(|error| FileError::new(path, format!("it is no text: {}", error.utf8_error())))
}

/// The text of a regular file that only this user, root, or a group of the owner's name alone may write.
pub fn read_own_text(path: &Path, limit: u64) -> Result<String, FileError> {
    let failed = |error: io::Error| FileError::io(path, "read", error);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let owner = meta.uid();
    if !meta.is_file() {
        return Err(FileError::new(path, "it is no regular file"));
    }
    if owner != 0 && owner != file_user() {
        return Err(FileError::new(path, format!("it belongs to user {owner}")));
    }
    if may_others_write(&meta) {
        return Err(FileError::new(path, "others may write it"));
    }
    text_of(path, read_open(path, file, limit)?)
}

/// Whether others than its owner may write a file, or make files in a folder.
pub(crate) fn may_others_write(meta: &Metadata) -> bool {
    // Many systems give each user a group of the same number.
    let is_of_group = meta.mode() & GROUP_WRITABLE != 0 && meta.gid() != meta.uid();
    is_of_group || meta.mode() & WORLD_WRITABLE != 0
}

/// Opens a file of latput's state to read it. It is refused as somebody else's work where a link leads to it, or where
/// another user than this one and root owns it or may write it.
pub(crate) fn open_state(path: &Path) -> Result<File, FileError> {
    let failed = |error: io::Error| FileError::io(path, "read", error);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let opened = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => FileError::new(path, "it is a symbolic link"),
        _ => failed(error),
    })?;
    let meta = opened.metadata().map_err(failed)?;
    let problem = match meta.uid() {
        _ if !meta.is_file() => "it is no regular file".to_owned(),
        owner if owner != 0 && owner != file_user() => format!("it belongs to user {owner}"),
        _ if may_others_write(&meta) => "others may write it".to_owned(),
        _ => return Ok(opened),
    };
    Err(FileError::new(path, problem))
}

/// Writes a short text over a file of latput's state, or makes it. It needs no room for a second file.
pub(crate) fn overwrite_state(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(path)?;
    file.set_permissions(fs::Permissions::from_mode(PRIVATE))?;
    file.write_all(text.as_bytes())
}

/// Refuses a folder of latput's state that another user owns, or where he may replace files, or that a link leads to.
pub(crate) fn check_state_folder(path: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::io(path, "look at", error);
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    if !meta.is_dir() {
        return Err(FileError::new(path, "it is no folder"));
    }
    check_owner(path, &meta)?;
    // Files that others add to a sticky folder are theirs, and not believed.
    if may_others_write(&meta) && meta.mode() & STICKY == 0 {
        return Err(FileError::new(path, "others may write in it: `chmod go-w` it"));
    }
    Ok(())
}

/// Makes a folder that only its owner may enter, whatever the umask; durable when it returns. One that is there must
/// be ours, and is closed to others.
pub fn private_folder(path: &Path) -> Result<(), FileError> {
    let failed = |error: io::Error| FileError::io(path, "make this folder", error);
    let missing = path.ancestors().take_while(|folder| !folder.exists()).count();
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    path.ancestors().take(missing).try_for_each(sync_name).map_err(failed)?;
    let meta = fs::metadata(path).map_err(failed)?;
    check_owner(path, &meta)?;
    if meta.mode() & OTHERS != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Whether the disk of a file, or of one that could not be made, has no room for another page.
pub fn is_disk_full(path: &Path) -> bool {
    /// Most free bytes of a full disk: SQLite adds this much at once.
    const ROOM: u64 = 64 << 10;
    let stat = rustix::fs::statvfs(folder_of(path));
    stat.is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < ROOM)
}

/// Has the disk keep the name of a folder that was made: without it a power cut takes the folder and the synced files
/// in it (`fsync(2)`).
fn sync_name(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// A lock that ends with the process that holds it, whatever ends that: flock(2) on a file that nobody else can
/// open. The file goes when it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// The text in the lock whose file is `path`, if a process has it; the lock is not touched. `None` also where that cannot be
    /// told.
    pub(crate) fn holder(path: &Path) -> Option<String> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path).ok()?;
        check_owner(path, &file.metadata().ok()?).ok()?;
        if !locks::is_held(&file).ok()? {
            return None;
        }
        let mut said = String::new();
        (&file).take(80).read_to_string(&mut said).ok()?;
        Some(said.trim().to_owned())
    }

    /// Takes the lock whose file is `path`; gives the text in it where another process has it.
    pub fn take(path: &Path) -> Result<Result<Self, String>, FileError> {
        Self::take_for(path, std::process::id())
    }

    /// The same for another process: its id is the text in the file.
    pub fn take_for(path: &Path, holder: u32) -> Result<Result<Self, String>, FileError> {
        let failed = |error: io::Error| FileError::io(path, "lock", error);
        loop {
            check_target(path)?;
            let mut file = open_lock(path).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            check_owner(path, &meta)?;
            if meta.mode() & OTHERS != 0 {
                // Somebody else may have it open, and a lock on it.
                remove(path).map_err(failed)?;
                continue;
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut said = String::new();
                    let _unsaid = (&file).take(80).read_to_string(&mut said);
                    return Ok(Err(said.trim().to_owned()));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Its last holder may have removed it meanwhile; then it is no lock any more.
            if fs::symlink_metadata(path).is_ok_and(|named| named.ino() == meta.ino()) {
                // The holder's name is a help and no need: a full disk must not keep a host from being put back.
                let _said = file.set_len(0).and_then(|()| writeln!(file, "{holder}"));
                return Ok(Ok(Self { file, path: path.to_owned() }));
            }
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // While it is still locked: who opened it before sees that it is gone.
        let _gone = fs::remove_file(&self.path);
        let _unlocked = self.file.unlock();
    }
}

/// Opens the file of a lock, and makes it. On a read-only file system one that is there does as well.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let made = options.clone().write(true).create(true).truncate(false).mode(PRIVATE).open(path);
    match made {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            options.open(path).map_err(|_| error)
        }
        made => made,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Refuses a name that is there and no regular file.
fn check_target(path: &Path) -> Result<(), FileError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::io(path, "write", error)),
    };
    let kind = meta.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_symlink() {
        let target = fs::read_link(path).unwrap_or_default();
        format!("a symbolic link to {}: name a file itself", target.display())
    } else if kind.is_dir() {
        "a folder: name a file in it".to_owned()
    } else if kind.is_fifo() {
        "a pipe: print to stdout instead, or name a file".to_owned()
    } else {
        "a device or a socket: print to stdout instead, or name a file".to_owned()
    };
    Err(FileError::new(path, format!("not written, for it is {what}")))
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), FileError> {
    let owner = meta.uid();
    let us = file_user();
    if owner == us {
        return Ok(());
    }
    let who = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    let problem = format!("it belongs to {who}, and latput runs as user {us}: run it as {who}");
    Err(FileError { permission: us != 0, ..FileError::new(path, problem) })
}

/// The folder of `path`, refused where root would share it with everybody.
fn open_folder(path: &Path) -> Result<File, FileError> {
    let folder = folder_of(path);
    let opened = links::open_folder(folder)?;
    check_folder(path, &opened)?;
    Ok(opened)
}

/// Refuses the folder of `path` where root would share it with everybody.
pub(crate) fn check_folder(path: &Path, opened: &File) -> Result<(), FileError> {
    let folder = folder_of(path);
    let failed = |error: io::Error| FileError::io(folder, "open this folder", error);
    let meta = opened.metadata().map_err(failed)?;
    let is_shared = meta.mode() & WORLD_WRITABLE != 0 && meta.mode() & STICKY == 0;
    if is_shared && file_user() == 0 && meta.uid() != 0 {
        let problem = "root does not write here, because anybody may replace files in this folder. Name another \
                       folder, or `chmod o-w` (or +t) this one";
        return Err(FileError::new(folder, problem));
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Differs from call to call. It need not be secret: what is there already is never opened.
fn suffix() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn replaced_file_leaves_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        for text in ["first", "second"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let missing = folder.path().join("missing/file");
        for error in [replace(&missing, b"").unwrap_err(), check(&missing).unwrap_err()] {
            assert!(error.to_string().contains("missing: cannot open this folder"), "{error}");
        }
        check_in_place(&path).unwrap();
        check_in_place(&folder.path().join("new")).unwrap();
        // The kernel's own files: nobody makes others there.
        let error = check(Path::new("/proc/sys/new")).unwrap_err();
        assert!(error.to_string().contains("/proc/sys: cannot write to this folder"), "{error}");
    }

    #[test]
    fn only_abandoned_parts_are_removed() {
        use std::time::SystemTime;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let old = SystemTime::now() - 2 * PART_MIN_AGE;
        let make = |name: &str, modified: SystemTime| {
            let file = File::create(at(name)).unwrap();
            file.set_modified(modified).unwrap();
            file
        };
        drop(make(".latput-1-00.part", old));
        let being_written = make(".latput-2-00.part", old);
        being_written.lock().unwrap();
        drop(make(".latput-3-00.part", SystemTime::now()));
        drop(make("7-2.json", old));
        drop(make("other.part", old));
        symlink(at("other.part"), at(".latput-4-00.part")).unwrap();
        let remove = || remove_abandoned_parts(&File::open(folder.path()).unwrap());
        remove();
        let mut kept: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        let expected = [
            ".latput-2-00.part",
            ".latput-3-00.part",
            ".latput-4-00.part",
            "7-2.json",
            "other.part",
        ];
        assert_eq!(kept, expected);
        drop(being_written);
        remove();
        assert!(!at(".latput-2-00.part").exists(), "its writer has ended");
    }

    #[test]
    fn what_was_planted_is_refused_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "kept").unwrap();
        symlink(at("victim"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, said) in [
            ("link", "symbolic link"),
            ("dangling", "symbolic link"),
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("folder", "a folder"),
        ] {
            for refused in [
                replace(&at(name), b"x"),
                ensure(&at(name)).map(drop),
                FileLock::take(&at(name)).map(drop),
            ] {
                let text = refused.unwrap_err().to_string();
                assert!(text.contains(said) && text.contains(name), "{text}");
            }
        }
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "kept");
        assert!(!at("nowhere").exists());
    }

    #[test]
    fn root_shares_no_folder_with_everybody() {
        if file_user() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let set = |mode, owner| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(folder.path(), Some(owner), None).unwrap();
        };
        set(0o777, 65_534);
        let error = replace(&path, b"x").unwrap_err().to_string();
        assert!(error.contains("anybody may replace"), "{error}");
        assert!(ensure(&path).is_err() && !path.exists());
        set(0o1777, 65_534);
        replace(&path, b"x").unwrap();
        set(0o777, 0);
        replace(&path, b"x").unwrap();
    }

    #[test]
    fn more_than_the_bound_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        let error = read(&path, 4).unwrap_err().to_string();
        assert!(error.contains("plan.toml") && error.contains('5') && error.contains('4'));
        // Its size is not known before.
        assert!(read(Path::new("/dev/zero"), 1000).unwrap_err().to_string().contains("1000"));
        fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 5).unwrap_err().to_string().contains("no text"));
    }

    #[test]
    fn lock_is_one_process_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // One that others may open is no lock, whoever holds it.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let stranger = File::open(&path).unwrap();
        stranger.lock().unwrap();
        let lock = FileLock::take(&path).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
        let pid = FileLock::take(&path).unwrap().unwrap_err();
        assert_eq!(pid, std::process::id().to_string());
        drop(lock);
        assert!(!path.exists());
        FileLock::take(&path).unwrap().unwrap();
    }

    #[test]
    fn private_folder_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/of");
        private_folder(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        private_folder(&path).unwrap();
        for folder in [path.as_path(), path.parent().unwrap()] {
            assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
        }
        if file_user() == 0 {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = private_folder(&path).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }
}
