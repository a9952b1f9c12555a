//! A file or folder that is opened through no symbolic link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use rustix::io::Errno;

/// Opens a file by `openat2(2)`; before Linux 5.6, and in containers that do not know it, folder by folder, through no link at
/// all. A link on the way is `ELOOP`.
pub(crate) fn open(
    within: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    loop {
        match openat2(within, path, flags, Mode::empty(), how) {
            // Somebody renames on the way.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS | Errno::PERM) => return walk(within, path, flags),
            opened => return opened,
        }
    }
}

fn walk(within: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let within = folder.as_ref().map_or(within, AsFd::as_fd);
        let flags = match parts.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        let name = part.as_os_str();
        let opened = openat(within, name, flags | OFlags::NOFOLLOW, Mode::empty());
        // With O_DIRECTORY a link is ENOTDIR.
        let opened =
            opened.map_err(|errno| match statat(within, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(meta)
                    if errno == Errno::NOTDIR
                        && FileType::from_raw_mode(meta.st_mode) == FileType::Symlink =>
                {
                    Errno::LOOP
                }
                _ => errno,
            });
        folder = Some(opened?);
    }
    folder.ok_or(Errno::INVAL)
}

/// Runs a test in a thread for which the kernel has no `openat2`.
#[cfg(test)]
pub(crate) fn without_openat2(test: fn()) {
    let inside = move || {
        forbid_openat2();
        let how = ResolveFlags::NO_SYMLINKS;
        let found = openat2(rustix::fs::CWD, "/", OFlags::PATH, Mode::empty(), how);
        assert_eq!(found.unwrap_err(), Errno::NOSYS, "the test does not test");
        test();
    };
    if let Err(panic) = std::thread::spawn(inside).join() {
        std::panic::resume_unwind(panic);
    }
}

/// The calling thread's calls of `openat2` fail with `ENOSYS`.
#[cfg(test)]
fn forbid_openat2() {
    let statement = |code: u32, jumps: (u8, u8), k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: jumps.0,
        jf: jumps.1,
        k,
    };
    let number = u32::try_from(libc::SYS_openat2).unwrap();
    let error = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut filter = [
        // The number is the first field of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), number),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), error),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the arguments are numbers; it concerns this thread only.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    // SAFETY: the program and its four statements outlive the call, which copies them.
    let done =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
