//! Whether latput's state lies where every latput finds it that can change the same interfaces.
//!
//! A container with the host's network and files of its own has another `/run`: neither its locks nor its checkpoints are
//! seen outside of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::confine;

/// The process namespace that the kernel starts with (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`).
const FIRST_PROCESSES: &str = "pid:[4026531836]";
/// The network namespace that the kernel starts with has a number of its own since Linux 6.18 (`NET_NS_INIT_INO`), and one of
/// the first that are given out before. Those that are made later have larger ones.
const LAST_OF_BOOT: u64 = 0xf000_0000 + 255;

/// Whether a state folder is this container's own although the network is not, so that a latput outside does not see it.
/// A folder of which this is unknown counts as the host's.
pub fn is_hidden(folder: &Path) -> bool {
    let namespace = |process: &str, kind: &str| {
        fs::read_link(format!("/proc/{process}/ns/{kind}")).ok().map(PathBuf::into_os_string)
    };
    let network = namespace("thread-self", "net");
    let Ok(folder) = std::path::absolute(folder) else { return false };
    if network.is_some() && namespace("1", "net") == network {
        let theirs = locate_folder(&Path::new("/proc/1/root").join(below_root(&folder)));
        if let (Some(ours), Some(theirs)) = (locate_folder(&folder), theirs)
            && ours != theirs
        {
            return true;
        }
    }
    let is_container = namespace("self", "pid").is_some_and(|it| it != FIRST_PROCESSES);
    let number = network.and_then(|it| parse_namespace_number(it.to_str()?));
    let has_hosts_network = number.is_some_and(|number| number <= LAST_OF_BOOT);
    if !is_container || !has_hosts_network {
        return false;
    }
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    !is_part_of_another(&mounts, &folder)
}

/// Whether this process is in a network namespace without configuration of its own: its network is not that of process 1,
/// and its `/etc` is, as in `ip netns exec`. The files there configure interfaces of another network. A container has files
/// of its own. Who has no rights is told no: it cannot write the files either.
pub fn is_without_own_files() -> bool {
    // procfs makes a file for each network namespace, which everybody may look at.
    let network = |process: &str| read_inode(&format!("/proc/{process}/net/dev"));
    let is_other = |ours: Option<_>, theirs: Option<_>| Some(ours? != theirs?);
    if is_other(network("thread-self"), network("1")) != Some(true) || !confine::has_capabilities()
    {
        return false;
    }
    let has_own =
        is_other(read_inode("/etc"), read_inode("/proc/1/root/etc")).unwrap_or_else(|| {
            // Process 1 may have more rights than this one: then a mount tells.
            let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
            find_innermost_mount(&mounts, Path::new("/etc")).is_some_and(|(depth, _)| depth > 1)
        });
    !has_own
}

fn read_inode(path: &str) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The number of a namespace in what its link says: `net:[4026531833]`.
fn parse_namespace_number(link: &str) -> Option<u64> {
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

fn below_root(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::RootDir).collect()
}

/// The file system and the number of a folder, or of the nearest one above that is there.
fn locate_folder(folder: &Path) -> Option<(u64, u64, usize)> {
    folder.ancestors().enumerate().find_map(|(above, folder)| {
        let meta = fs::metadata(folder).ok()?;
        Some((meta.dev(), meta.ino(), above))
    })
}

/// Whether a folder lies in a mount that shows a part of a file system, as of a folder of the host: in
/// `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`) its root is not that of the file system.
fn is_part_of_another(mounts: &str, folder: &Path) -> bool {
    find_innermost_mount(mounts, folder).is_some_and(|(_, root)| root != "/")
}

/// The mount that a folder lies in: the depth of its place, and its root in the file system.
fn find_innermost_mount(mounts: &str, folder: &Path) -> Option<(usize, String)> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?.to_owned(), PathBuf::from(fields.next()?));
        folder.starts_with(&point).then_some((point.components().count(), root))
    };
    // Of several at one place, the last hides the others.
    mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_folder_in_container_is_recognised() {
        let alone = "1 0 0:50 / / rw - overlay overlay rw\n2 1 0:51 / /run rw - tmpfs tmpfs rw\n";
        let hosts = format!("{alone}3 2 0:22 /latput /run/latput rw master:5 - tmpfs tmpfs rw\n");
        let folder = Path::new("/run/latput/checkpoints");
        assert!(!is_part_of_another(alone, folder));
        assert!(is_part_of_another(&hosts, folder));
        assert!(!is_part_of_another(&hosts, Path::new("/run/latputs")));
        assert!(!is_part_of_another("", folder));
        let depth = |mounts: &str, folder: &str| {
            find_innermost_mount(mounts, Path::new(folder)).map(|it| it.0)
        };
        assert_eq!(depth(alone, "/etc"), Some(1));
        assert_eq!(depth("1 0 0:1 / / rw\n2 1 0:2 / /etc rw\n", "/etc"), Some(2));
        assert_eq!(parse_namespace_number("net:[4026531833]"), Some(4_026_531_833));
        assert_eq!(parse_namespace_number("net"), None);
    }
}
