//! A test thread apart from the machine, so that tests which need a lab of the same name may run at once.

use std::fs;
use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

/// `IFF_UP` and `IFF_LOOPBACK` of `include/uapi/linux/if.h`: the loopback interface with nothing but itself.
const LOOPBACK_UP: &str = "0x9";

/// Gives the calling thread, and every process and thread that it starts from now on, a network namespace and a
/// mount namespace of its own. The loopback interface is up; `/sys` shows the new network namespace; `/run` is
/// empty, and with it go the names of `ip netns`, the default state folder of latput and its locks.
///
/// There is no way back: libtest runs each test in a thread of its own, and what was made here ends with the last
/// process inside. Threads that were there before stay where they are, and so `/proc/self` shows the old
/// namespaces; `/proc/thread-self` shows the new ones. Not apart are process ids, CPUs, `/tmp`, and what the kernel
/// counts for the whole machine.
///
/// # Panics
///
/// Where the kernel refuses it: a test that calls this carries `#[needs("root")]`.
pub fn isolate() {
    if let Err(error) = own_namespaces() {
        panic!("no namespaces for this test, which needs CAP_SYS_ADMIN: {error}");
    }
}

fn own_namespaces() -> io::Result<()> {
    // Deprecated because `FILES` would part the thread from file descriptors of others, which it does not ask for.
    #[allow(
        deprecated,
        reason = "the one that replaces it is unsafe, and this crate has no unsafe code"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET)?;
    // Else our mounts would be passed on to the machine's.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("sysfs", "/sys", "sysfs", flags | MountFlags::NOEXEC, None)?;
    mount("tmpfs", "/run", "tmpfs", flags, Some(c"mode=755"))?;
    fs::write("/sys/class/net/lo/flags", LOOPBACK_UP)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::UdpSocket;
    use std::process::Command;

    use super::*;
    use crate::needs;

    /// Two at once make the same name, which they could not do outside.
    #[needs("root")]
    #[test]
    fn threads_have_isolated_equal_names() {
        let outside = names("/run");
        let both = std::sync::Barrier::new(2);
        let inside = || {
            isolate();
            assert_eq!(names("/run"), BTreeSet::new());
            assert_eq!(names("/sys/class/net"), BTreeSet::from(["lo".to_owned()]));
            fs::create_dir("/run/netns").unwrap();
            both.wait();
            // A process that is started here is here, too.
            let seen = Command::new("ls").arg("/run").output().unwrap();
            assert_eq!(String::from_utf8(seen.stdout).unwrap(), "netns\n");
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
            both.wait();
            fs::read_link("/proc/thread-self/ns/net").unwrap()
        };
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(inside), scope.spawn(inside)].map(|thread| thread.join().unwrap())
        });
        assert_ne!(one, other);
        assert_eq!(names("/run"), outside);
    }

    fn names(folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}
