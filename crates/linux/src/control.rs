//! The connection that carries this session, and the interfaces that carry it.
//!
//! sshd tells its children who is at the other end (`SSH_CONNECTION`, `sshd(8)`). sudo takes that out of the
//! environment, so the processes above this one are asked as well.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::error::Error;
use crate::route::Route;

/// More ancestors than any process has: the end of a chain that is read while it changes.
const ANCESTORS_MAX: usize = 64;
/// More interfaces on top of each other than anybody stacks.
const STACK_MAX: usize = 256;

/// Which interfaces carry the connections that this process is led through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The other ends, as sshd tells them.
    pub peers: BTreeSet<String>,
    /// The interfaces by which they are reached from here, and those beneath them: the ports of a bond or
    /// a bridge, what a VLAN lies on.
    pub interfaces: BTreeSet<String>,
}

impl Control {
    /// Finds them, for the network namespace of the calling thread. None were found where this process is
    /// on no ssh session, or where the session is carried in another namespace.
    pub fn find() -> Result<Self, Error> {
        Self::with_roots(Path::new("/sys"), Path::new("/proc"))
    }

    fn with_roots(sys: &Path, proc: &Path) -> Result<Self, Error> {
        let route = Route::open()?;
        let peers = peers(proc, std::process::id());
        let mut interfaces = BTreeSet::new();
        for peer in &peers {
            // A link-local address comes with its interface: `fe80::1%eth0`.
            if let Some((_, zone)) = peer.split_once('%') {
                interfaces.insert(zone.to_owned());
            } else if let Ok(address) = peer.parse::<IpAddr>() {
                // No way to it from here: the session comes from another namespace.
                interfaces.extend(route.toward(address.to_canonical()).map(|way| way.interface));
            }
        }
        Ok(Self { peers, interfaces: with_those_beneath(sys, interfaces) })
    }
}

/// The other ends that a process and those above it know of.
fn peers(proc: &Path, mut pid: u32) -> BTreeSet<String> {
    let mut peers = BTreeSet::new();
    for _ in 0..ANCESTORS_MAX {
        let folder = proc.join(pid.to_string());
        // A process that may not be read belongs to another user's session, or has just ended.
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        peers.extend(environment.split(|&byte| byte == 0).filter_map(peer_of));
        let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
        match parent_of(&stat) {
            Some(parent) if parent > 0 => pid = parent,
            _ => break,
        }
    }
    peers
}

/// The first word of `SSH_CONNECTION=192.0.2.1 50022 192.0.2.10 22`; `SSH_CLIENT` begins with the same.
fn peer_of(variable: &[u8]) -> Option<String> {
    let value = [&b"SSH_CONNECTION="[..], b"SSH_CLIENT="]
        .iter()
        .find_map(|name| variable.strip_prefix(*name))?;
    let peer = std::str::from_utf8(value).ok()?.split_whitespace().next()?;
    let address = peer.split('%').next()?;
    address.parse::<IpAddr>().is_ok().then(|| peer.to_owned())
}

/// The fourth field of `/proc/PID/stat`; the second is a name in brackets that may hold anything.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Adds the interfaces that these lie on, all the way down (`lower_*` in sysfs).
pub(crate) fn with_those_beneath(sys: &Path, interfaces: BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest: Vec<String> = interfaces.into_iter().collect();
    while let Some(interface) = rest.pop() {
        if interface.contains('/') || found.len() > STACK_MAX || !found.insert(interface.clone()) {
            continue;
        }
        let entries = fs::read_dir(sys.join("class/net").join(&interface)).into_iter().flatten();
        rest.extend(entries.filter_map(|entry| {
            entry.ok()?.file_name().to_str()?.strip_prefix("lower_").map(str::to_owned)
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_end_is_found_above_a_sudo() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 1, "systemd", 0, "");
        process(folder.path(), 40, "sshd", 1, "");
        let ssh = "HOME=/root\0SSH_CONNECTION=192.0.2.1 50022 192.0.2.10 22\0TERM=x\0";
        process(folder.path(), 50, "a) b (sh", 40, ssh);
        process(folder.path(), 60, "sudo", 50, "");
        process(folder.path(), 70, "latput", 60, "SSH_CLIENT=\0SSH_CONNECTION\0LANG=C");
        assert_eq!(peers(folder.path(), 70), ["192.0.2.1".to_owned()].into());
        assert_eq!(peers(folder.path(), 40), BTreeSet::new());
        assert_eq!(peers(folder.path(), 99), BTreeSet::new(), "it has just ended");
    }

    #[test]
    fn loop_of_parents_ends() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7, "x", 7, "SSH_CLIENT=fe80::1%eth0 1 22");
        assert_eq!(peers(folder.path(), 7), ["fe80::1%eth0".to_owned()].into());
    }

    #[test]
    fn invalid_address_is_no_other_end() {
        for value in ["", " ", "nowhere 1 2", "../../x 1", "\u{fffd}"] {
            assert_eq!(peer_of(format!("SSH_CLIENT={value}").as_bytes()), None, "{value:?}");
        }
        assert_eq!(peer_of(b"SSH_CLIENT=\xff\xfe 1"), None);
        assert_eq!(peer_of(b"XSSH_CLIENT=192.0.2.1 1 2"), None);
        assert_eq!(peer_of(b"SSH_CLIENT=192.0.2.1 1 2").as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn carriers_of_vlan_on_bond_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (upper, lower) in [("bond0.5", "bond0"), ("bond0", "eth0"), ("bond0", "eth1")] {
            let path = folder.path().join("class/net").join(upper).join(format!("lower_{lower}"));
            fs::create_dir_all(path).unwrap();
        }
        let carried = with_those_beneath(folder.path(), ["bond0.5".to_owned()].into());
        let names: Vec<&str> = carried.iter().map(String::as_str).collect();
        assert_eq!(names, ["bond0", "bond0.5", "eth0", "eth1"]);
        let outside = with_those_beneath(folder.path(), ["../../..".to_owned()].into());
        assert_eq!(outside, BTreeSet::new());
    }

    fn process(proc: &Path, pid: u32, name: &str, parent: u32, environment: &str) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("environ"), environment).unwrap();
        fs::write(folder.join("stat"), format!("{pid} ({name}) S {parent} 1 1 0")).unwrap();
    }
}
