//! Landlock (`landlock(7)`, Linux 5.13): rules on files that a process sets for itself and can never lift.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::Error;

// include/uapi/linux/landlock.h
const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;
/// The first version that has scopes.
const VERSION_OF_SCOPES: i64 = 6;

/// `LANDLOCK_ACCESS_FS_*`: its bit and the version that began it.
const EXECUTE: (u64, i64) = (1 << 0, 1);
const READS: &[(u64, i64)] = &[(1 << 2, 1), (1 << 3, 1)];
/// To write, truncate, remove and move files, and to make folders, files and links. Not to make devices, sockets and pipes.
const WRITES: &[(u64, i64)] = &[
    (1 << 1, 1),
    (1 << 4, 1),
    (1 << 5, 1),
    (1 << 7, 1),
    (1 << 8, 1),
    (1 << 12, 1),
    (1 << 13, 2),
    (1 << 14, 3),
];
/// To make devices, sockets and pipes.
const SPECIALS: &[(u64, i64)] = &[(1 << 6, 1), (1 << 9, 1), (1 << 10, 1), (1 << 11, 1)];
/// Ioctls of devices.
const DEVICE_IOCTL: (u64, i64) = (1 << 15, 5);

/// Kinds of access to files.
#[derive(Clone, Debug)]
pub(super) struct Access(Vec<(u64, i64)>);

impl Access {
    pub(super) fn execute() -> Self {
        Self(vec![EXECUTE])
    }

    pub(super) fn device_ioctl() -> Self {
        Self(vec![DEVICE_IOCTL])
    }

    pub(super) fn reads() -> Self {
        Self(READS.to_vec())
    }

    pub(super) fn writes() -> Self {
        Self(WRITES.to_vec())
    }

    pub(super) fn specials() -> Self {
        Self(SPECIALS.to_vec())
    }

    pub(super) fn all() -> Self {
        Self([&[EXECUTE, DEVICE_IOCTL], READS, WRITES, SPECIALS].concat())
    }

    pub(super) fn and(&self, other: Self) -> Self {
        Self([self.0.clone(), other.0].concat())
    }

    /// The bits that this version of Landlock has.
    fn bits(&self, version: i64) -> u64 {
        let known = self.0.iter().filter(|(_, since)| *since <= version);
        known.fold(0, |bits, (bit, _)| bits | bit)
    }
}

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent: i32,
}

/// Denied accesses, and the folders beneath which some of them are allowed.
#[derive(Debug)]
pub(super) struct Ruleset {
    denied: Access,
    allowed: Vec<(PathBuf, Access)>,
}

impl Ruleset {
    pub(super) fn new(denied: Access) -> Self {
        Self { denied, allowed: Vec::new() }
    }

    /// Allows this beneath a folder. One that cannot be opened allows nothing.
    pub(super) fn allow(mut self, folder: &Path, access: Access) -> Self {
        self.allowed.push((folder.to_owned(), access));
        self
    }

    /// Puts it in force for this thread; returns whether the kernel has Landlock. Needs `no_new_privs`.
    pub(super) fn enforce(self) -> Result<bool, Error> {
        let failed = |source| Error::system("close files to this process with Landlock", source);
        let Some(version) = version() else { return Ok(false) };
        let handled = self.denied.bits(version);
        let ruleset = create(handled, version).map_err(failed)?;
        for (folder, access) in &self.allowed {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) else { continue };
            allow(&ruleset, &folder.into(), access.bits(version) & handled).map_err(failed)?;
        }
        // SAFETY: the call takes a descriptor and a number.
        check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
            .map_err(failed)?;
        Ok(true)
    }
}

/// The kernel's version of Landlock; `None` without it.
pub(crate) fn version() -> Option<i64> {
    let none = std::ptr::null::<RulesetAttributes>();
    let number = libc::SYS_landlock_create_ruleset;
    // SAFETY: with this flag the kernel reads no attributes.
    let version = unsafe { libc::syscall(number, none, 0_usize, CREATE_RULESET_VERSION) };
    (version > 0).then_some(version)
}

fn create(handled_access_fs: u64, version: i64) -> io::Result<OwnedFd> {
    let has_scopes = version >= VERSION_OF_SCOPES;
    let scoped = if has_scopes { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 };
    let attributes = RulesetAttributes { handled_access_fs, handled_access_net: 0, scoped };
    // An older kernel takes a shorter struct.
    let size = if has_scopes { size_of::<RulesetAttributes>() } else { size_of::<u64>() };
    let number = libc::SYS_landlock_create_ruleset;
    // SAFETY: the attributes are alive and at least `size` bytes.
    let fd = check(unsafe { libc::syscall(number, &raw const attributes, size, 0) })?;
    let fd = i32::try_from(fd).expect("descriptors are small");
    // SAFETY: the call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn allow(ruleset: &OwnedFd, folder: &File, allowed_access: u64) -> io::Result<()> {
    let rule = PathBeneath { allowed_access, parent: folder.as_raw_fd() };
    let number = libc::SYS_landlock_add_rule;
    // SAFETY: the rule is alive; its layout is the kernel's.
    check(unsafe {
        libc::syscall(number, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)
    })
    .map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
