//! Gives up rights of this process for good, before it reads what strangers wrote.
//!
//! Capabilities are not all that user 0 has: it owns the files of sysfs and `/proc/sys`, and may write them without any.
//! So a process that needs nothing of the host becomes another user, and Landlock closes the files to it.

mod file_user;
pub(crate) mod landlock;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid, geteuid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

pub use self::file_user::UsedFiles;
use self::landlock::{Access, Ruleset};
use crate::error::Error;
use crate::process;

/// A user that owns nothing and is nobody's: from the range that systemd's table of users leaves unused
/// (<https://systemd.io/UIDS-GIDS>). User 65534 would be shared with other programs, which could end the process.
const NOBODYS: u32 = 2_147_445_857;
/// Another such user, for controllers: their agents on this host cannot end or trace them.
const CONTROLLERS: u32 = NOBODYS + 1;
/// Another, for who passes on what another host says: agents on this host cannot end or trace it.
const RELAYS: u32 = NOBODYS + 2;
/// Another, for emulators: what breaks out of a guest has no rights on its host.
const EMULATORS: u32 = NOBODYS + 3;
/// `nobody`, for user namespaces that map no other.
const NOBODY: u32 = 65_534;

/// Barriers between a process without capabilities and the host's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barriers {
    /// It is not user 0.
    pub is_other_user: bool,
    /// Landlock is in force: no file can be written, made or run.
    pub has_landlock: bool,
}

impl Barriers {
    /// Whether files of user 0 cannot be written.
    pub const fn close_files(self) -> bool {
        self.is_other_user || self.has_landlock
    }
}

/// Gives up every capability and the user, and closes all files to this process. It ends with the process that started it. To be
/// called before another thread is started.
pub fn give_up_all() -> Result<Barriers, Error> {
    let barriers = give_up_all_as(NOBODYS)?;
    // The change of the user has cleared it.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| Error::system("follow the end of the process that started this", errno))?;
    Ok(barriers)
}

/// The same for a process that only passes on what its open files say. It ends with them.
pub fn give_up_all_but_open_files() -> Result<Barriers, Error> {
    give_up_all_as(RELAYS)
}

fn give_up_all_as(user: u32) -> Result<Barriers, Error> {
    require_one_thread()?;
    let is_root = geteuid().is_root();
    set_no_new_privs(true).map_err(|errno| Error::system("set no_new_privs", errno))?;
    // Reads of /proc stay: a thread counts its open files.
    let has_landlock =
        Ruleset::new(Access::all()).allow(Path::new("/proc"), Access::reads()).enforce()?;
    drop_from_bounding_set()?;
    if is_root {
        become_nobody(user)?;
    }
    keep_none()?;
    Ok(Barriers { is_other_user: !geteuid().is_root(), has_landlock })
}

/// The user, with a group of the same number, that an emulator is started as: it owns nothing. `None` where this
/// process may not choose another user.
pub fn emulators_user() -> Option<u32> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::CHOWN;
    let may = own_capabilities().is_ok_and(|sets| sets.effective.contains(needed));
    (may && geteuid().is_root()).then_some(EMULATORS)
}

/// Opens a regular file to be read, with the rights of a user that owns nothing: what is not readable for everybody is refused,
/// whoever asks. Only a thread of its own gives up its rights.
///
/// # Errors
///
/// The system's; `InvalidInput` if it is no regular file.
pub fn open_as_nobody(path: &Path) -> std::io::Result<OwnedFd> {
    let open = || {
        let refused = |error: Error| std::io::Error::other(error.to_string());
        if geteuid().is_root() {
            become_nobody(NOBODYS).map_err(refused)?;
        }
        keep_none().map_err(refused)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    };
    process::run_in_thread(open).map_err(std::io::Error::other)?
}

/// Whether this process has a capability, or may take one.
pub fn has_capabilities() -> bool {
    own_capabilities().is_ok_and(|sets| !(sets.permitted | sets.effective).is_empty())
}

/// Keeps of this process's rights only those of one user to files. It writes nothing but `files` and what lies beside them. It
/// runs no program, and signals no other process. To be called before another thread is started, and before the first
/// byte of a stranger is read.
///
/// User 0 becomes another user for all but files. For files it becomes one who may use all of them without a
/// capability: the owner of the outputs if possible.
///
/// # Errors
///
/// No one user may use all files; or the system's.
pub fn keep_files(files: &UsedFiles<'_>) -> Result<Barriers, Error> {
    require_one_thread()?;
    set_no_new_privs(true).map_err(|errno| Error::system("set no_new_privs", errno))?;
    let user = if geteuid().is_root() && may_change_user()? { Some(files.user()?) } else { None };
    let denied = Access::writes().and(Access::specials()).and(Access::execute());
    let ruleset = Ruleset::new(denied.and(Access::device_ioctl()));
    let folders = files.folders();
    let ruleset =
        folders.iter().fold(ruleset, |ruleset, folder| ruleset.allow(folder, Access::writes()));
    let has_landlock = ruleset.enforce()?;
    drop_from_bounding_set()?;
    if let Some(user) = user {
        become_controller(user)?;
    }
    keep_none()?;
    Ok(Barriers { is_other_user: !geteuid().is_root(), has_landlock })
}

/// The user whose files the calling thread makes and may write. It differs from the effective user after
/// [`keep_files`].
pub(crate) fn file_user() -> u32 {
    // SAFETY: the call takes a number. This one is no user, so nothing is changed and the one in force is returned.
    let user = unsafe { libc::setfsuid(u32::MAX) };
    u32::try_from(user).unwrap_or_else(|_| geteuid().as_raw())
}

/// The calls below change one thread, and those that it starts later.
fn require_one_thread() -> Result<(), Error> {
    // Without /proc nobody can tell.
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads == 1 {
        return Ok(());
    }
    Err(Error::Other(format!("rights are given up by one thread, and there are {threads}")))
}

/// Empties the bounding set, where the process may.
fn drop_from_bounding_set() -> Result<(), Error> {
    let sets = own_capabilities()?;
    if !sets.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(()); // with no_new_privs no program gives a capability anyway
    }
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            Err(Errno::INVAL) => break, // the kernel has no more
            Err(errno) => {
                return Err(Error::system("drop a capability from the bounding set", errno));
            }
        }
    }
    Ok(())
}

/// Becomes this user that owns nothing.
fn become_nobody(user: u32) -> Result<(), Error> {
    if !may_change_user()? {
        return Ok(());
    }
    let failed = |errno| Error::system("become a user without rights", errno);
    leave_groups().map_err(failed)?;
    for number in [user, NOBODY] {
        match change_user(number, number) {
            Ok(()) => return Ok(()),
            Err(Errno::INVAL) => {} // not in the map of this user namespace
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}

/// Becomes a user that owns nothing, and for files this one. The process must be allowed to become any user.
fn become_controller((user, group): (u32, u32)) -> Result<(), Error> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let failed = |errno| Error::system("become a user without rights", errno);
    leave_groups().map_err(failed)?;
    set_keep_capabilities(true).map_err(failed)?;
    for number in [CONTROLLERS, NOBODY] {
        let (other_user, other_group) = (Uid::from_raw(number), Gid::from_raw(number));
        if set_thread_res_gid(other_group, other_group, other_group).is_err() {
            continue; // not in the map of this user namespace
        }
        // SAFETY: the call takes a number.
        unsafe { libc::setfsgid(group) };
        set_thread_res_uid(other_user, other_user, other_user).map_err(failed)?;
        let sets = own_capabilities()?;
        let effective = sets.permitted & needed;
        set_capabilities(None, CapabilitySets { effective, ..sets }).map_err(failed)?;
        // SAFETY: the call takes a number.
        unsafe { libc::setfsuid(user) };
        if file_user() != user {
            return Err(Error::Other(format!("files cannot be those of user {user}")));
        }
        break;
    }
    set_keep_capabilities(false).map_err(failed)
}

/// Whether this thread may become any user.
fn may_change_user() -> Result<bool, Error> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    Ok(own_capabilities()?.effective.contains(needed))
}

/// Makes the calling thread this user in every way. `INVAL`: the user namespace does not map it.
fn change_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

/// Leaves all groups. A user namespace may deny that; then they stay.
fn leave_groups() -> Result<(), Errno> {
    match set_thread_groups(&[]) {
        Err(Errno::PERM) => Ok(()),
        left => left,
    }
}

/// Gives up all capabilities, and sees that they are gone.
fn keep_none() -> Result<(), Error> {
    let failed = |errno| Error::system("give up capabilities", errno);
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    clear_ambient_capability_set().map_err(failed)?;
    set_capabilities(None, sets).map_err(failed)?;
    let left = own_capabilities()?;
    if left == sets {
        return Ok(());
    }
    Err(Error::Other(format!("capabilities are left that were given up: {left:?}")))
}

fn own_capabilities() -> Result<CapabilitySets, Error> {
    capabilities(None)
        .map_err(|errno| Error::system("read the capabilities of this process", errno))
}
