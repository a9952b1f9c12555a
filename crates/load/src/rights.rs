//! Operations of the traffic that need a capability: some socket options, and the echo socket.
//!
//! A process without capabilities lets another one do it, which takes the socket over a Unix socket: [`use_rights_of`].
#![allow(unsafe_code, reason = "SO_BUSY_POLL and its kind have no safe wrapper")]

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use libc::{c_int, socklen_t};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Most bytes of a socket's buffer; more than any workload may ask for.
const MAX_BUFFER_BYTES: u32 = 1 << 30;
/// Longest name of a congestion control (`TCP_CA_NAME_MAX` of the kernel, without its NUL).
const MAX_CONGESTION_NAME: usize = 15;

/// The rights that this process uses in place of its own.
static RIGHTS: OnceLock<Box<dyn Rights>> = OnceLock::new();

/// Somebody who has the capabilities.
pub trait Rights: Send + Sync + Debug {
    /// Sets an option of a socket.
    fn set(&self, socket: BorrowedFd<'_>, option: &PrivilegedOption) -> io::Result<()>;
    /// Opens what [`open_echo_socket`] opens.
    fn open_echo_socket(&self, peer: IpAddr) -> io::Result<OwnedFd>;
}

/// Lets this process use somebody's rights where its own do not suffice. Only the first call counts.
pub fn use_rights_of(somebody: Box<dyn Rights>) {
    let _first = RIGHTS.set(somebody);
}

/// A socket option that needs a capability, at least beyond the limits of the host's sysctls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivilegedOption {
    /// `SO_SNDBUFFORCE`, in bytes.
    SendBuffer(u32),
    /// `SO_RCVBUFFORCE`, in bytes.
    ReceiveBuffer(u32),
    /// `SO_BUSY_POLL`, in microseconds.
    BusyPoll(u32),
    /// `SO_PREFER_BUSY_POLL`.
    PreferBusyPoll,
    /// `TCP_CONGESTION`.
    Congestion(String),
}

impl PrivilegedOption {
    /// Sets it with the rights of this process.
    pub fn set(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let number = |number: u32| c_int::try_from(number).unwrap_or(c_int::MAX);
        let (name, value) = match self {
            Self::SendBuffer(bytes) => {
                (libc::SO_SNDBUFFORCE, number(*bytes.min(&MAX_BUFFER_BYTES)))
            }
            Self::ReceiveBuffer(bytes) => {
                (libc::SO_RCVBUFFORCE, number(*bytes.min(&MAX_BUFFER_BYTES)))
            }
            Self::BusyPoll(micros) => (libc::SO_BUSY_POLL, number(*micros)),
            Self::PreferBusyPoll => (libc::SO_PREFER_BUSY_POLL, 1),
            Self::Congestion(name) => return set_congestion(socket, name),
        };
        write_option(socket.as_raw_fd(), libc::SOL_SOCKET, name, value)
    }
}

fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // The kernel loads the module of a name that it does not know.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.len() > MAX_CONGESTION_NAME || !name.bytes().all(is_plain) {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    Ok(rustix::net::sockopt::set_tcp_congestion(socket, name)?)
}

/// Sets an option with the rights of this process, or else with those of somebody.
pub fn set_with_rights(socket: BorrowedFd<'_>, option: &PrivilegedOption) -> io::Result<()> {
    match (option.set(socket), RIGHTS.get()) {
        (Err(error), Some(rights)) if error.kind() == io::ErrorKind::PermissionDenied => {
            rights.set(socket, option)
        }
        (set, _) => set,
    }
}

/// An ICMP echo socket that is connected to `peer`, opened with the rights of this process. A datagram socket needs no
/// capability where `net.ipv4.ping_group_range` allows it; a raw one needs `CAP_NET_RAW`.
pub fn open_echo_socket(peer: IpAddr) -> io::Result<Socket> {
    let (domain, protocol) = match peer {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(protocol))
        .or_else(|_| Socket::new(domain, Type::RAW, Some(protocol)))?;
    socket.connect(&SockAddr::from(SocketAddr::new(peer, 0)))?;
    Ok(socket)
}

/// The same, or else with the rights of somebody.
pub(crate) fn echo_socket(peer: IpAddr) -> io::Result<Socket> {
    match (open_echo_socket(peer), RIGHTS.get()) {
        (Err(error), Some(rights)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(rights.open_echo_socket(peer)?.into())
        }
        (opened, _) => opened,
    }
}

pub(crate) fn write_option(
    socket: RawFd,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    let length = socklen_t::try_from(size_of_val(&value)).expect("an int has a few bytes");
    // SAFETY: the kernel reads `length` bytes, the size of `value`, which lives until the call returns.
    let answer =
        unsafe { libc::setsockopt(socket, level, name, (&raw const value).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn unknown_congestion_control_never_reaches_kernel() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for name in ["reno/../x", "a-name-of-16-byte", "re no"] {
            let set = PrivilegedOption::Congestion(name.to_owned()).set(socket.as_fd());
            assert_eq!(set.unwrap_err().raw_os_error(), Some(libc::ENOENT), "{name}");
        }
        PrivilegedOption::Congestion("reno".to_owned()).set(socket.as_fd()).unwrap();
    }
}
