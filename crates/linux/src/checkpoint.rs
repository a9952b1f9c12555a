//! Checkpoints as files, which a crash of latput does not lose.
//!
//! One file for each namespace and interface, by number, in a folder on a file system that a reboot empties
//! (`/run`), like the settings themselves. A second file beside it is the lock: the kernel drops it
//! when its holder dies. A third tells what became of a change that nobody confirmed. The folder `journal` in it
//! holds the committed changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use latput_knobs::{Checkpoint, CheckpointStore, Context, LinkResets, Maker, Slot, StoreError};
use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::files::{self, FileLock};
use crate::journal::{Journal, of_file, read_checkpoint, store_error};
use crate::namespace::Namespace;
use crate::process;

/// Size of a checkpoint of an interface with many queues, in bytes.
const CHECKPOINT_ROOM: usize = 16 << 10;
/// The user id of a process that no login has started.
const NO_LOGIN: u32 = u32::MAX;
/// Most bytes of a name.
const NAME_BYTES_MOST: usize = 64;

/// Checkpoints in a folder, and the locks that this value holds. Dropping it lets go of the locks and
/// keeps the checkpoints.
#[derive(Debug)]
pub struct FileCheckpoints {
    folder: PathBuf,
    locks: BTreeMap<Slot, SlotClaim>,
}

/// A folder, whatever its name: one that is made anew or mounted over it is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderId {
    device: u64,
    inode: u64,
}

/// A change that nobody confirmed in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateEnding {
    /// The number of its interface.
    pub index: u32,
    /// The name that the interface had.
    pub interface: String,
    /// The outcome of the change: a sentence.
    pub ending: String,
}

/// The right to act on an interface.
#[derive(Debug)]
enum SlotClaim {
    /// Its lock is held.
    Locked(#[expect(dead_code, reason = "it is held")] FileLock),
    /// No lock can be made, by anybody.
    Unlockable,
}

impl FileCheckpoints {
    /// A store in `folder`, which is made when the first interface is claimed.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), locks: BTreeMap::new() }
    }

    /// Whether the folder is gone. An error to look at it is no proof.
    pub fn is_gone(&self) -> bool {
        is_absent(&self.folder)
    }

    /// The folder that is there now; `None` where there is none, or it cannot be looked at.
    pub fn folder(&self) -> Option<FolderId> {
        let found = fs::metadata(&self.folder).ok()?;
        Some(FolderId { device: found.dev(), inode: found.ino() })
    }

    /// The committed changes.
    pub fn journal(&self) -> Journal {
        Journal::new(&self.folder.join("journal"))
    }

    /// The checkpoint kept for an interface, without a claim.
    pub fn kept(&self, slot: Slot) -> Result<Option<Checkpoint>, StoreError> {
        self.read(&self.file(slot, "json"))
    }

    /// Tells whoever comes too late to confirm a change what became of it: `ending` is a sentence. The
    /// next change of the interface makes it old news.
    pub fn tell_late(&self, change: &Checkpoint, ending: &str) -> Result<(), StoreError> {
        let path = self.file(change.slot(), "late");
        let text = format!("{}\n{}\n{ending}\n", change.boot_id, change.interface);
        files::overwrite_state(&path, &text)
            .map_err(|error| store_error(&path, "write the end of", &error))
    }

    /// Forgets what became of a change that nobody confirmed in time.
    pub fn forget_late(&self, slot: Slot) {
        // It may never have been told.
        let _absent = fs::remove_file(self.file(slot, "late"));
    }

    /// Changes of this boot and namespace that nobody confirmed in time, by the number of their interface.
    pub fn told_late(&self, context: &Context) -> Vec<LateEnding> {
        let files = fs::read_dir(&self.folder).into_iter().flatten();
        let mut told: Vec<LateEnding> = files
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let slot: Slot = path.file_stem()?.to_str()?.parse().ok()?;
                let is_told = path.extension().is_some_and(|extension| extension == "late")
                    && slot.namespace == context.namespace;
                let mut text = String::new();
                files::open_state(&path)
                    .ok()
                    .filter(|_| is_told)?
                    .take(4096)
                    .read_to_string(&mut text)
                    .ok()?;
                let (boot_id, rest) = text.split_once('\n')?;
                let (interface, ending) = rest.split_once('\n')?;
                let is_known = boot_id == context.boot_id;
                is_known.then(|| LateEnding {
                    index: slot.index,
                    interface: interface.to_owned(),
                    ending: ending.trim().to_owned(),
                })
            })
            .collect();
        told.sort_by_key(|it| it.index);
        told
    }

    fn file(&self, slot: Slot, extension: &str) -> PathBuf {
        self.folder.join(format!("{slot}.{extension}"))
    }

    fn read(&self, path: &Path) -> Result<Option<Checkpoint>, StoreError> {
        let damaged =
            |reason: String| StoreError::Damaged { path: path.display().to_string(), reason };
        let Some(checkpoint) = read_checkpoint(path)? else { return Ok(None) };
        // A file that was renamed or copied would put back another interface.
        if path != self.file(checkpoint.slot(), "json") {
            let slot = checkpoint.slot();
            return Err(damaged(format!("it is of {slot} and has the name of another")));
        }
        Ok(Some(checkpoint))
    }

    fn lock(&self, slot: Slot, interface: &str) -> Result<SlotClaim, StoreError> {
        let taken =
            FileLock::take(&self.file(slot, "lock")).map_err(|error| of_file(error, "lock"))?;
        taken.map(SlotClaim::Locked).map_err(|holder| locked(interface, &holder))
    }

    /// The same where going back matters more than the lock.
    fn lock_if_possible(&self, slot: Slot, interface: &str) -> Result<SlotClaim, StoreError> {
        // A folder that cannot be made is missing, and its file will fail with the reason.
        let _made = self.make_folder();
        match FileLock::take(&self.file(slot, "lock")) {
            Ok(taken) => taken.map(SlotClaim::Locked).map_err(|holder| locked(interface, &holder)),
            Err(error) if error.errno.is_some_and(is_lasting) => Ok(SlotClaim::Unlockable),
            Err(error) => Err(of_file(error, "lock")),
        }
    }

    fn make_folder(&self) -> Result<(), StoreError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| store_error(&self.folder, "create the folder of", &error))?;
        files::check_state_folder(&self.folder).map_err(|error| of_file(error, "write"))
    }

    /// Makes what was renamed or removed in the folder last.
    fn sync_folder(&self) -> Result<(), StoreError> {
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| store_error(&self.folder, "sync", &error))
    }
}

impl CheckpointStore for FileCheckpoints {
    fn claim(&mut self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        let path = self.file(slot, "json");
        if !self.locks.contains_key(&slot) {
            self.make_folder()?;
            let lock = self.lock(slot, interface)?;
            self.locks.insert(slot, lock);
            if let Ok(folder) = File::open(&self.folder) {
                files::remove_abandoned_parts(&folder);
            }
        }
        self.read(&path)
    }

    fn claim_to_restore(
        &mut self,
        slot: Slot,
        interface: &str,
    ) -> Result<Option<Checkpoint>, StoreError> {
        if !self.locks.contains_key(&slot) {
            let claim = self.lock_if_possible(slot, interface)?;
            self.locks.insert(slot, claim);
        }
        self.read(&self.file(slot, "json"))
    }

    fn save(&mut self, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let slot = checkpoint.slot();
        assert!(self.locks.contains_key(&slot), "saved a checkpoint of {slot} without a claim");
        let path = self.file(slot, "json");
        let begins = is_absent(&path);
        let bytes =
            serde_json::to_vec(checkpoint).expect("a checkpoint has no unserialisable part");
        files::replace_private(&path, &bytes).map_err(|error| of_file(error, "write"))?;
        if begins {
            // The ending of an earlier change is obsolete.
            self.forget_late(slot);
        }
        Ok(())
    }

    fn remove(&mut self, slot: Slot) -> Result<(), StoreError> {
        let lock = match self.locks.remove(&slot) {
            Some(lock) => lock,
            None if is_absent(&self.folder) => return Ok(()),
            None => self.lock(slot, &format!("interface {}", slot.index))?,
        };
        let path = self.file(slot, "json");
        match fs::remove_file(&path) {
            Ok(()) => self.sync_folder()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let error = store_error(&path, "remove", &error);
                self.locks.insert(slot, lock);
                return Err(error);
            }
        }
        Ok(())
    }

    fn archive(&mut self, slot: Slot) -> Result<Option<u64>, StoreError> {
        let path = self.file(slot, "json");
        if is_absent(&path) {
            return self.remove(slot).map(|()| None);
        }
        let lock = match self.locks.remove(&slot) {
            Some(lock) => lock,
            None => self.lock(slot, &format!("interface {}", slot.index))?,
        };
        match self.journal().take_in(&path) {
            Ok(number) => {
                // It is an entry, whether that outlives a power cut or not.
                let _unsynced = self.sync_folder();
                Ok(Some(number))
            }
            Err(error) => {
                self.locks.insert(slot, lock);
                Err(error)
            }
        }
    }

    fn list(&self) -> Result<Vec<Result<Checkpoint, StoreError>>, StoreError> {
        let failed = |error: &io::Error| store_error(&self.folder, "list", error);
        let folder = match fs::read_dir(&self.folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let mut paths = Vec::new();
        for entry in folder {
            let path = entry.map_err(|error| failed(&error))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths.iter().filter_map(|path| self.read(path).transpose()).collect())
    }

    fn peek(&self, slot: Slot, interface: &str) -> Result<Option<Checkpoint>, StoreError> {
        if !self.locks.contains_key(&slot)
            && let Some(holder) = FileLock::holder(&self.file(slot, "lock"))
        {
            return Err(locked(interface, &holder));
        }
        self.kept(slot)
    }

    /// Writes as much as a checkpoint of many queues has to a file without a name, which is gone when it is closed.
    fn check_room(&self) -> Result<(), StoreError> {
        let folder = self.folder.ancestors().find(|folder| folder.exists());
        let Some(folder) = folder else { return Ok(()) };
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let written = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(&[0; CHECKPOINT_ROOM]));
        match written {
            // A file system without such files.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
                Ok(())
            }
            written => written.map_err(|error| store_error(&self.folder, "write", &error)),
        }
    }
}

/// The facts that checkpoints made now, in the calling thread's namespace, are to record. Link resets
/// are refused; the command is still to be named.
pub fn context() -> Result<Context, Error> {
    Ok(Context {
        boot_id: process::boot_id()?,
        namespace: Namespace::current()?.inode()?,
        namespace_cookie: Namespace::current_cookie(),
        pid: std::process::id(),
        now_unix_ms: process::unix_ms(),
        since_boot: process::since_boot(),
        link_resets: LinkResets::Refused,
        by: Maker { command: String::new(), user: caller_name(), run: None },
        undoes: None,
    })
}

fn locked(interface: &str, holder: &str) -> StoreError {
    StoreError::Locked { interface: interface.to_owned(), pid: holder.parse().unwrap_or(0) }
}

/// Whether there is no such file. [`Path::exists`] takes an error for absence.
fn is_absent(path: &Path) -> bool {
    match path.try_exists() {
        Ok(exists) => !exists,
        // A file is in the place of a folder above it.
        Err(error) => error.kind() == io::ErrorKind::NotADirectory,
    }
}

/// Whether a file cannot be made for a reason that holds for everybody and does not end by itself.
const fn is_lasting(errno: i32) -> bool {
    matches!(errno, libc::ENOSPC | libc::EDQUOT | libc::EROFS | libc::EIO | libc::ENOENT)
}

/// Name of the caller of sudo, else of the login, else of the user; its number where it has no name. Told by the
/// environment, and never trusted.
fn caller_name() -> String {
    let called_sudo = std::env::var("SUDO_USER").ok().filter(|name| is_name(name));
    called_sudo.unwrap_or_else(|| {
        let text = fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
        let of_login = text.trim().parse().ok().filter(|&uid: &u32| uid != NO_LOGIN);
        let uid = of_login.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(uid, &users).unwrap_or_else(|| format!("uid {uid}"))
    })
}

/// The name of a user in the text of `/etc/passwd` (passwd(5)).
fn name_of(uid: u32, users: &str) -> Option<String> {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let is_meant = fields.nth(1)?.parse() == Ok(uid);
        (is_meant && is_name(&name)).then_some(name)
    };
    users.lines().find_map(name)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MOST && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use latput_knobs::{Device, Knob, Place, Value};
    use latput_units::Nanos;

    use super::*;

    const SLOT: Slot = Slot { namespace: 7, index: 2 };

    #[test]
    fn saved_checkpoint_is_found_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/yet");
        let mut store = FileCheckpoints::new(&path);
        assert_eq!(store.claim(SLOT, "eth0"), Ok(None));
        store.save(&sample("eth0", 1500)).unwrap();
        store.save(&sample("eth0", 9000)).unwrap();
        drop(store);
        let mut store = FileCheckpoints::new(&path);
        assert_eq!(store.list(), Ok(vec![Ok(sample("eth0", 9000))]));
        assert_eq!(store.claim(SLOT, "eth0"), Ok(Some(sample("eth0", 9000))));
        store.remove(SLOT).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is left");
        assert_eq!(store.claim(SLOT, "eth0"), Ok(None));
        store.remove(SLOT).unwrap();
        store.remove(Slot { index: 8, ..SLOT }).unwrap();
    }

    #[test]
    fn claim_removes_what_a_killed_save_left() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".latput-1-0123456789abcdef.part");
        let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        File::create(&left).unwrap().set_modified(hour_ago).unwrap();
        let mut store = FileCheckpoints::new(folder.path());
        store.claim(SLOT, "eth0").unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn second_owner_is_refused_and_told_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = FileCheckpoints::new(folder.path());
        let mut second = FileCheckpoints::new(folder.path());
        first.claim(SLOT, "eth0").unwrap();
        first.claim(SLOT, "eth0").unwrap();
        let locked = StoreError::Locked { interface: "eth0".to_owned(), pid: std::process::id() };
        assert_eq!(second.peek(SLOT, "eth0"), Err(locked.clone()));
        assert_eq!(
            (first.peek(SLOT, "eth0"), second.peek(Slot { index: 3, ..SLOT }, "eth1")),
            (Ok(None), Ok(None))
        );
        assert_eq!(second.claim(SLOT, "eth0"), Err(locked));
        let error = second.remove(SLOT).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        second.claim(Slot { namespace: 8, ..SLOT }, "eth0").unwrap();
        second.claim(Slot { index: 3, ..SLOT }, "eth1").unwrap();
        first.remove(SLOT).unwrap();
        assert_eq!(second.peek(SLOT, "eth0"), Ok(None));
        second.claim(SLOT, "eth0").unwrap();
    }

    #[test]
    fn damaged_files_are_reported_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileCheckpoints::new(folder.path());
        store.claim(SLOT, "good").unwrap();
        store.save(&sample("good", 1500)).unwrap();
        let whole = fs::read(folder.path().join("7-2.json")).unwrap();
        let files: [(&str, &[u8]); 5] = [
            ("7-3.json", &whole[..whole.len() / 2]),
            ("7-4.json", &whole), // of another interface
            ("7-5.json", b""),
            ("7-6.json", &[0xff; 100]),
            ("readme.json", b"{}"),
        ];
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let listed = store.list().unwrap();
        assert_eq!(listed.iter().filter(|entry| entry.is_ok()).count(), 1);
        assert_eq!(listed.len(), 6);
        for index in 3..=6 {
            let slot = Slot { index, ..SLOT };
            let error = store.peek(slot, "eth1").unwrap_err();
            assert_eq!(store.claim(slot, "eth1"), Err(error.clone()));
            assert!(matches!(error, StoreError::Damaged { .. }), "{index}: {error}");
            assert!(folder.path().join(format!("7-{index}.json")).exists(), "{index}");
        }
    }

    /// Files that another user owns, may write or has planted by a link are neither believed nor written.
    #[test]
    fn strangers_state_is_named_and_left() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut store = FileCheckpoints::new(folder.path());
        store.claim(SLOT, "eth0").unwrap();
        store.save(&sample("eth0", 1500)).unwrap();
        let file = at("7-2.json");
        let check = |problem: &str| {
            let listed = FileCheckpoints::new(folder.path()).list().unwrap();
            let [Err(error @ StoreError::Damaged { .. })] = &listed[..] else {
                panic!("{listed:?}")
            };
            assert!(error.to_string().contains(problem), "{error}");
        };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o606)).unwrap();
        check("others may write it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&file, at("kept")).unwrap();
        symlink(at("kept"), &file).unwrap();
        check("symbolic link");
        // A planted link is no way to another file.
        symlink(at("victim"), at("7-2.late")).unwrap();
        assert!(store.tell_late(&sample("eth0", 1500), "x").is_err() && !at("victim").exists());
        fs::remove_file(at("7-2.late")).unwrap();
        store.tell_late(&sample("eth0", 1500), "x").unwrap();
        assert_eq!(fs::metadata(at("7-2.late")).unwrap().permissions().mode() & 0o777, 0o600);
        drop(store);
        let claim =
            |path: &Path| FileCheckpoints::new(path).claim(Slot { index: 3, ..SLOT }, "eth1");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = claim(folder.path()).unwrap_err().to_string();
        assert!(error.contains("others may write in it"), "{error}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(at("real")).unwrap();
        symlink(at("real"), at("link")).unwrap();
        assert!(claim(&at("link")).unwrap_err().to_string().contains("no folder"));
        if crate::confine::file_user() == 0 {
            fs::remove_file(&file).unwrap();
            fs::rename(at("kept"), &file).unwrap();
            chown(&file, Some(65_534), None).unwrap();
            check("it belongs to user 65534");
            chown(folder.path(), Some(65_534), None).unwrap();
            let error = claim(folder.path()).unwrap_err().to_string();
            assert!(error.contains("it belongs to user 65534"), "{error}");
            chown(folder.path(), Some(0), None).unwrap();
        }
    }

    #[test]
    fn late_caller_is_told_until_next_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileCheckpoints::new(folder.path());
        let change = sample("eth0", 1500);
        let context = |boot_id: &str, namespace| Context {
            boot_id: boot_id.to_owned(),
            namespace,
            namespace_cookie: None,
            pid: 1,
            now_unix_ms: 1,
            since_boot: Nanos::ZERO,
            link_resets: LinkResets::Refused,
            by: Maker::default(),
            undoes: None,
        };
        assert_eq!(store.told_late(&context("b", 7)), []);
        store.claim(SLOT, "eth0").unwrap();
        store.save(&change).unwrap();
        assert_eq!(store.kept(SLOT), Ok(Some(change.clone())));
        store.tell_late(&change, "it was put back").unwrap();
        let (interface, ending) = ("eth0".to_owned(), "it was put back".to_owned());
        let told = [LateEnding { index: SLOT.index, interface, ending }];
        assert_eq!(store.told_late(&context("b", 7)), told);
        assert_eq!(store.told_late(&context("another boot", 7)), []);
        assert_eq!(store.told_late(&context("b", 77)), []);
        fs::write(folder.path().join("7-3.late"), [0xff; 10]).unwrap();
        assert_eq!(store.told_late(&context("b", 7)), told);
        // As a restore does, which keeps what it goes by.
        store.save(&change).unwrap();
        assert_eq!(store.told_late(&context("b", 7)), told);
        store.remove(SLOT).unwrap();
        assert_eq!(store.told_late(&context("b", 7)), told);
        store.claim(SLOT, "eth0").unwrap();
        store.save(&sample("eth0", 9000)).unwrap();
        assert_eq!(store.told_late(&context("b", 7)), []);
    }

    #[test]
    fn unwritable_folder_fails_before_any_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut store = FileCheckpoints::new(&file.path().join("folder"));
        let error = store.claim(SLOT, "eth0").unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        assert!(error.to_string().contains("folder"), "{error}");
    }

    #[test]
    fn unreadable_folder_counts_as_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("loop");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let mut store = FileCheckpoints::new(&path);
        assert!(!store.is_gone() && !path.exists());
        store.remove(SLOT).unwrap_err();
        store.archive(SLOT).unwrap_err();
        let mut store = FileCheckpoints::new(&folder.path().join("none"));
        assert!(store.is_gone());
        store.remove(SLOT).unwrap();
    }

    fn sample(interface: &str, mtu: u64) -> Checkpoint {
        let context = Context {
            boot_id: "b".to_owned(),
            namespace: 7,
            namespace_cookie: None,
            pid: 1,
            now_unix_ms: 1,
            since_boot: Nanos::ZERO,
            link_resets: LinkResets::Refused,
            by: Maker::default(),
            undoes: None,
        };
        let mut checkpoint =
            Checkpoint::new(&context, interface, Device { index: SLOT.index, ..Device::default() });
        checkpoint.undo.0.insert((Knob::Mtu, Place::Device), Value::Count(mtu));
        checkpoint
    }

    #[test]
    fn user_is_named_as_in_the_table() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:1000::/:/bin/sh\n:x:7:7::/:\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(7, users), None);
        assert_eq!(name_of(8, users), None);
    }
}
