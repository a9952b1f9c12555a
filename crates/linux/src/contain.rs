//! Containment of programs: it ends a program together with everything that it has started.
//!
//! A PID namespace does: when its first process ends, however that ends, the kernel ends all others in it, also those that
//! left the process group or ignore SIGTERM (`pid_namespaces(7)`). Where none can be had, a child subreaper finds what was
//! left by its parents.

use std::fs;
use std::io;

use rustix::process::{Pid, Signal, getgid, getuid, kill_process, set_child_subreaper};
use rustix::thread::UnshareFlags;

use crate::error::Error;

/// Means that ends a program's descendants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// A PID namespace: nothing outlives its first process.
    Namespace,
    /// A subreaper: what leaves the process group may outlive a SIGKILL of it.
    Subreaper,
}

/// Puts the children that this process starts from now on into a PID namespace, or makes it their subreaper. Without
/// `CAP_SYS_ADMIN` the namespace belongs to a new user namespace, which only a process with one thread can enter.
///
/// # Errors
///
/// Neither is to be had.
pub fn contain_children() -> Result<Containment, Error> {
    if unshare(UnshareFlags::NEWPID).is_ok() || in_user_namespace().is_ok() {
        return Ok(Containment::Namespace);
    }
    set_child_subreaper(Pid::from_raw(1)) // any id but none switches it on
        .map_err(|errno| Error::system("become the reaper of a program's descendants", errno))?;
    Ok(Containment::Subreaper)
}

fn in_user_namespace() -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
    // Without these the ids are those of nobody, and files cannot be opened (`user_namespaces(7)`).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: these flags share and unshare no file descriptors.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Signals every other process of this PID namespace.
///
/// # Panics
///
/// This process is not the namespace's first one.
pub fn signal_namespace(signal: Signal) {
    assert_eq!(std::process::id(), 1, "only the first process of a namespace may signal all");
    // SAFETY: the call takes two numbers. -1 means every process that this one may signal, which are those of its
    // namespace.
    let _none_is_left = unsafe { libc::kill(-1, signal.as_raw()) };
}

/// Signals every child of this process: those that it started, and those that a subreaper inherited.
pub fn signal_children(signal: Signal) {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    for child in
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    {
        if let Some(pid) = child.parse().ok().and_then(Pid::from_raw) {
            let _gone = kill_process(pid, signal);
        }
    }
}

/// The user and group ids of a user that is named or numbered, from `/etc/passwd`.
///
/// # Errors
///
/// The file cannot be read, or has no such user.
pub fn user_ids(user: &str) -> Result<(u32, u32), Error> {
    const FILE: &str = "/etc/passwd";
    let text =
        fs::read_to_string(FILE).map_err(|source| Error::system(format!("read {FILE}"), source))?;
    ids_in(&text, user).ok_or_else(|| Error::Other(format!("there is no user `{user}` in {FILE}")))
}

/// `name:password:uid:gid:...` (`passwd(5)`).
fn ids_in(text: &str, user: &str) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields[..] else { return None };
        if name != user && uid != user {
            return None;
        }
        Some((uid.parse().ok()?, gid.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_name_or_number() {
        let text = "root:x:0:0:root:/root:/bin/sh\nbroken\nnobody:x:65534:65533::/:/bin/false\n";
        assert_eq!(ids_in(text, "nobody"), Some((65534, 65533)));
        assert_eq!(ids_in(text, "65534"), Some((65534, 65533)));
        assert_eq!(ids_in(text, "root"), Some((0, 0)));
        assert_eq!(ids_in(text, "somebody"), None);
        assert_eq!(ids_in(text, "broken"), None);
    }

    #[test]
    #[should_panic(expected = "only the first process")]
    fn nobody_signals_the_whole_machine() {
        signal_namespace(Signal::CONT);
    }
}
