//! Tells systemd that the daemon is ready, alive, or stopping (`sd_notify(3)`).

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket that systemd gave, if it started us.
#[derive(Debug)]
pub(crate) struct SystemdNotifier(Option<(UnixDatagram, SocketAddr)>);

impl SystemdNotifier {
    /// From `NOTIFY_SOCKET`: a path, or an abstract name after `@`.
    pub(crate) fn from_environment() -> Self {
        Self::from_socket_name(std::env::var_os("NOTIFY_SOCKET"))
    }

    fn from_socket_name(name: Option<OsString>) -> Self {
        let address = name.and_then(|name| match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest).ok(),
            _ => SocketAddr::from_pathname(&name).ok(),
        });
        Self(address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))))
    }

    /// Sends one state, such as `READY=1`. Whether it arrives is systemd's concern: it has its own
    /// timeouts.
    pub(crate) fn send_state(&self, state: &str) {
        if let Self(Some((socket, address))) = self {
            let _ = socket.send_to_addr(state.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_reach_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        SystemdNotifier::from_socket_name(Some(path.into_os_string())).send_state("READY=1");
        let mut buffer = [0; 64];
        let length = systemd.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
    }

    #[test]
    fn without_systemd_nothing_happens() {
        SystemdNotifier::from_socket_name(None).send_state("READY=1");
        SystemdNotifier::from_socket_name(Some("/nowhere/at/all".into())).send_state("READY=1");
        SystemdNotifier::from_socket_name(Some("".into())).send_state("READY=1");
    }
}
