//! Network namespaces: made, entered, pinned, and gone with the last process that holds them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::Error;
use crate::process;

/// Where standard tools (`ip netns`) look for pinned namespaces.
pub const PIN_FOLDER: &str = "/run/netns";

/// Folders of the interfaces in sysfs. `/sys` itself is another file system in a container of systemd-nspawn, which mounts
/// the parts of sysfs in it.
const SYSFS_PLACES: [&str; 2] = ["/sys/class/net", "/sys/devices/virtual/net"];

/// `include/uapi/asm-generic/socket.h`.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// A network namespace, held open. An anonymous one is gone when the last holder and the last
/// process in it are gone, however they end.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// A namespace that could not be opened.
#[derive(Debug)]
pub struct Unopened {
    /// Why.
    pub error: Error,
    /// As [`Namespace::current_mark`] of a thread in it; `None` where that is not known.
    pub mark: Option<u64>,
}

impl Namespace {
    /// Makes an empty one. Needs `CAP_SYS_ADMIN`. The calling thread stays where it is.
    pub fn create() -> Result<Self, Error> {
        let failed = |source: io::Error| Error::system("create a network namespace", source);
        // A thread, because a namespace is a thread's: it makes one for itself, hands out the
        // handle, and ends.
        process::run_in_thread(|| {
            // SAFETY: NEWNET shares and unshares no file descriptors.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|errno| failed(errno.into()))?;
            Self::current()
        })?
    }

    /// The calling thread's.
    pub fn current() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens one by its file: `/run/netns/NAME`, `/proc/PID/ns/net`, or what `path` gave.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path)
            .map_err(|source| Error::system(format!("open {}", path.display()), source))?;
        let magic = rustix::fs::fstatfs(&file)
            .map_err(|errno| Error::system(format!("examine {}", path.display()), errno))?
            .f_type;
        // `NSFS_MAGIC`, include/uapi/linux/magic.h. An empty file is what is left of a pin after a
        // reboot or a lost mount.
        if magic != 0x6e73_6673 {
            return Err(Error::Other(format!("{} is not a namespace", path.display())));
        }
        Ok(Self { fd: file.into() })
    }

    /// A path under which other processes can open it for as long as this one lives and holds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()))
    }

    /// Its number: the same namespace has the same, whatever path it was opened by.
    pub fn inode(&self) -> Result<u64, Error> {
        Ok(rustix::fs::fstat(&self.fd)
            .map_err(|errno| Error::system("examine a network namespace", errno))?
            .st_ino)
    }

    /// Returns the number that tells the calling thread's from every other of this boot, also from one that gets its inode number
    /// later: the kernel counts them. `None` before Linux 5.14.
    pub fn current_cookie() -> Option<u64> {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .ok()?;
        let mut cookie = 0_u64;
        let mut length = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of `cookie`.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        (done == 0 && length as usize == size_of::<u64>()).then_some(cookie)
    }

    /// Returns a number that tells the calling thread's namespace from every other also where only a process in it is seen:
    /// that of a file that procfs makes for each namespace, and that everybody may look at.
    pub fn current_mark() -> Option<u64> {
        mark_of(Path::new("/proc/thread-self/net/dev"))
    }

    /// Whether any process is in the network namespace with this inode number, or any file pins it.
    pub fn exists(inode: u64) -> Result<bool, Error> {
        let processes = fs::read_dir("/proc")
            .map_err(|source| Error::system("read /proc", source))?
            .filter_map(|entry| Some(entry.ok()?.path().join("ns/net")));
        let pins = fs::read_dir(PIN_FOLDER)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()));
        // A process that cannot be read has just ended; a file that cannot be read is not a namespace.
        Ok(processes.chain(pins).any(|path| {
            // Follows the link to the namespace itself.
            fs::metadata(&path).is_ok_and(|meta| meta.ino() == inode)
        }))
    }

    /// Every other namespace that a process is in or a file pins, with a name for people, or why it cannot be opened. One
    /// that cannot be opened may be listed several times. Each is opened when its turn comes.
    pub fn others(&self) -> Result<impl Iterator<Item = (String, Result<Self, Unopened>)>, Error> {
        let pins = pins().into_iter().map(|path| (path.display().to_string(), path));
        let pins = pins.map(|(name, path)| match name.strip_prefix("/run/netns/") {
            Some(short) => (short.to_owned(), path),
            None => (name, path),
        });
        let processes = fs::read_dir("/proc")
            .map_err(|source| Error::system("read /proc", source))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .map(|pid| (format!("of process {pid}"), PathBuf::from(format!("/proc/{pid}/ns/net"))));
        let mut seen = BTreeSet::from([self.inode()?]);
        let own = Self::current_mark();
        Ok(pins.chain(processes).filter_map(move |(name, path)| {
            let opened = Self::open(&path).and_then(|other| Ok((other.inode()?, other)));
            match opened {
                Ok((inode, other)) => seen.insert(inode).then_some((name, Ok(other))),
                Err(error) if is_none(&path, &error) => None,
                Err(error) => {
                    let mark = path.ancestors().nth(2).and_then(|it| mark_of(&it.join("net/dev")));
                    (mark.is_none() || mark != own).then(|| (name, Err(Unopened { error, mark })))
                }
            }
        }))
    }

    /// Runs `action` in a new thread whose netlink and sockets are of the namespace; its files stay those of the caller.
    pub fn run_sockets_in<T, F>(&self, action: F) -> Result<T, Error>
    where
        T: Send,
        F: FnOnce() -> T + Send,
    {
        process::run_in_thread(|| {
            let kind = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(self.as_fd(), kind)
                .map_err(|errno| Error::system("enter a network namespace", errno))?;
            Ok(action())
        })?
    }

    /// The handle, for netlink.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another handle on the same namespace.
    pub fn try_clone(&self) -> Result<Self, Error> {
        let fd = self
            .fd
            .try_clone()
            .map_err(|source| Error::system("duplicate a namespace handle", source))?;
        Ok(Self { fd })
    }

    /// Moves the whole calling process into the namespace, with a private mount table and a `/sys`
    /// that shows it, as `ip netns exec` does. Refused when the process has other threads, because
    /// those would stay behind.
    pub fn enter_process(&self) -> Result<(), Error> {
        let mut threads = thread_count()?;
        // A thread that was joined may still be on its way out, on a busy machine for long.
        for _ in 0..5000 {
            if threads == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            threads = thread_count()?;
        }
        if threads != 1 {
            return Err(Error::Other(format!(
                "cannot move a process of {threads} threads into a namespace: enter it before the first is started"
            )));
        }
        self.enter_thread()
    }

    /// Runs `action` in a new thread inside the namespace, where `/sys`, netlink and sockets show it,
    /// and returns what it returned. A panic in it goes on in the caller.
    pub fn run_in<T, F>(&self, action: F) -> Result<T, Error>
    where
        T: Send,
        F: FnOnce() -> T + Send,
    {
        process::run_in_thread(|| {
            self.enter_thread()?;
            Ok(action())
        })?
    }

    /// Gives the calling process a `/sys` of its network namespace where it has that of another, or none, as `ip netns exec`
    /// does: `nsenter --net` and `unshare --net` leave `/sys` as it was, and reads and writes below it would be of another
    /// namespace's interfaces. To be called before a second thread is started. Nothing changes without the right to mount.
    pub fn show_in_sysfs() -> Result<(), Error> {
        // One file system serves each namespace, so that its device tells which namespace a mount shows.
        let Ok(own) = own_sysfs_device() else { return Ok(()) };
        let is_shown = |path| fs::metadata(path).is_ok_and(|it| it.dev() == own);
        if SYSFS_PLACES.into_iter().all(is_shown) {
            return Ok(());
        }
        // SAFETY: as in `enter_thread`.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
            .map_err(|errno| Error::system("get a mount namespace of its own", errno))?;
        // Else the mount would be passed on. Where `/sys` is no mount, it is part of `/`.
        rustix::mount::mount_change("/sys", MountPropagationFlags::PRIVATE)
            .or_else(|_| rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE))
            .map_err(|errno| Error::system("make the mount of /sys private", errno))?;
        mount_sysfs()
    }

    fn enter_thread(&self) -> Result<(), Error> {
        rustix::thread::move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| Error::system("enter a network namespace", errno))?;
        // SAFETY: NEWNS unshares mounts and the working directory, and no file descriptors.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
            .map_err(|errno| Error::system("get a mount namespace of its own", errno))?;
        // Else our mount of /sys would be passed on to the mount table we came from.
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change("/", private)
            .map_err(|errno| Error::system("make the mounts of this thread private", errno))?;
        mount_sysfs()
    }

    /// Gives the namespace a name that outlives the process, where `ip netns` finds it too. Fails if
    /// the name is taken.
    pub fn pin(&self, name: &str) -> Result<PathBuf, Error> {
        let path = pin_path(name)?;
        share_pins()?;
        File::create_new(&path)
            .map_err(|source| Error::system(format!("create {}", path.display()), source))?;
        // Through /proc/self/fd, because a bind mount needs a path.
        let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        rustix::mount::mount_bind(own.as_str(), &path).map_err(|errno| {
            let _ = fs::remove_file(&path);
            Error::system(format!("pin a network namespace at {}", path.display()), errno)
        })?;
        Ok(path)
    }

    /// Removes a pinned name, mounted or not. Says whether there was one.
    pub fn unpin(name: &str) -> Result<bool, Error> {
        let path = pin_path(name)?;
        // EINVAL: not mounted. That is a half-made pin, which goes just the same.
        match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(errno) => {
                return Err(Error::system(format!("unmount {}", path.display()), errno));
            }
        }
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::system(format!("remove {}", path.display()), error)),
        }
    }

    /// The pinned names that start with `prefix`, whole or half-made, in order.
    pub fn pinned(prefix: &str) -> Result<Vec<String>, Error> {
        let folder = match fs::read_dir(PIN_FOLDER) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::system(format!("read {PIN_FOLDER}"), error)),
        };
        let mut names = Vec::new();
        for entry in folder {
            let entry =
                entry.map_err(|source| Error::system(format!("read {PIN_FOLDER}"), source))?;
            if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with(prefix)) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a pinned namespace.
    pub fn open_pinned(name: &str) -> Result<Self, Error> {
        Self::open(&pin_path(name)?)
    }
}

/// Mounts the sysfs of the calling thread's network namespace on `/sys`.
fn mount_sysfs() -> Result<(), Error> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount("sysfs", "/sys", "sysfs", flags, None) {
        // The same is mounted there already (mount(2)): the thread was in the namespace before.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(errno) => Err(Error::system("mount a sysfs of the namespace on /sys", errno)),
    }
}

/// The device number of the sysfs of the calling thread's network namespace. A mount that is attached nowhere tells it
/// (Linux 5.2), with the right to mount.
fn own_sysfs_device() -> Result<u64, rustix::io::Errno> {
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen,
    };
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY;
    let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
    Ok(rustix::fs::fstat(mount)?.st_dev)
}

fn mark_of(file: &Path) -> Option<u64> {
    fs::metadata(file).map(|meta| meta.ino()).ok()
}

/// Whether what could not be opened is no namespace: another file, or that of a process that has ended.
fn is_none(path: &Path, error: &Error) -> bool {
    let has_ended = || path.parent().is_some_and(|folder| !folder.exists());
    matches!(error.errno(), None | Some(libc::ENOENT | libc::ESRCH)) || has_ended()
}

/// The files that pin network namespaces: in the folder of `ip netns`, and where others have mounted one.
fn pins() -> Vec<PathBuf> {
    let named = fs::read_dir(PIN_FOLDER).into_iter().flatten();
    let mut pins: Vec<PathBuf> = named.filter_map(|entry| entry.ok().map(|it| it.path())).collect();
    pins.sort();
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    // proc_pid_mountinfo(5): the root is the fourth field, the place where it is mounted the fifth.
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        root.starts_with("net:[").then(|| PathBuf::from(place))
    };
    pins.extend(mounts.lines().filter_map(of_line));
    pins
}

/// Makes the folder of pins a mount of its own that is shared with other mount namespaces, as `ip netns add` does (`netns_add`
/// in iproute2's ip/ipnetns.c). If it did so only later, pins made before would lie twice, and below its mount could not be
/// removed (EBUSY). Under the same lock as `ip`.
fn share_pins() -> Result<(), Error> {
    fs::create_dir_all(PIN_FOLDER)
        .map_err(|source| Error::system(format!("create {PIN_FOLDER}"), source))?;
    let folder = File::open(PIN_FOLDER)
        .map_err(|source| Error::system(format!("open {PIN_FOLDER}"), source))?;
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| Error::system(format!("lock {PIN_FOLDER}"), errno))?;
    let share = || {
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        rustix::mount::mount_change(PIN_FOLDER, shared)
    };
    match share() {
        // EINVAL: it is no mount yet.
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(PIN_FOLDER, PIN_FOLDER)
                .and_then(|()| share())
                .map_err(|errno| Error::system(format!("mount {PIN_FOLDER} on itself"), errno))
        }
        done => done.map_err(|errno| Error::system(format!("share {PIN_FOLDER}"), errno)),
    }
}

fn thread_count() -> Result<usize, Error> {
    let folder = fs::read_dir("/proc/self/task")
        .map_err(|source| Error::system("read /proc/self/task", source))?;
    Ok(folder.count())
}

fn pin_path(name: &str) -> Result<PathBuf, Error> {
    let is_plain = !name.is_empty()
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if !is_plain {
        let name: String = name.chars().take(40).collect();
        return Err(Error::Other(format!("`{name}` cannot be the name of a namespace")));
    }
    Ok(Path::new(PIN_FOLDER).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_stays_in_its_folder() {
        for name in ["", "..", "a/b", "../x", "a b"] {
            assert!(pin_path(name).is_err(), "{name:?}");
        }
        assert!(pin_path("latput-a").is_ok());
    }

    #[test]
    fn only_unopened_namespaces_are_told() {
        let error = |errno| Error::system("open", io::Error::from_raw_os_error(errno));
        let own = Path::new("/proc/self/ns/net");
        for errno in [libc::EACCES, libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(!is_none(own, &error(errno)), "{errno}");
            assert!(is_none(Path::new("/proc/0/ns/net"), &error(errno)), "{errno}: it has ended");
        }
        assert!(is_none(own, &error(libc::ENOENT)) && is_none(own, &error(libc::ESRCH)));
        let no_namespace = Path::new("/proc/self/status");
        assert!(is_none(no_namespace, &Namespace::open(no_namespace).unwrap_err()));
    }

    #[test]
    fn file_that_is_no_namespace_is_refused() {
        let error = Namespace::open(Path::new("/proc/self/status")).unwrap_err();
        assert!(error.to_string().contains("is not a namespace"), "{error}");
    }
}
