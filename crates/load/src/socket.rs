//! Socket options and calls that `std`, `socket2` and `rustix` lack.
#![allow(
    unsafe_code,
    reason = "TCP_INFO, SO_MEMINFO, IP_MTU_DISCOVER and UDP_SEGMENT have no safe wrapper"
)]

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use latput_trial::SocketOptions;
use latput_units::Bytes;
use libc::{c_int, socklen_t};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::error::Error;
use crate::rights::{self, PrivilegedOption, write_option};

/// Time without an acknowledgement after which a connection counts as lost.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Longest blocking call on a datagram socket. The thread then checks for the end of the run.
const DATAGRAM_WAIT: Duration = Duration::from_millis(20);
/// Requested size of a datagram socket's buffers: 5 ms of 10 Gbit/s, in the kernel's accounting.
const DATAGRAM_BUFFER_BYTES: u32 = 16 << 20;
/// `SO_MEMINFO` of `include/uapi/asm-generic/socket.h`, which libc lacks.
const SO_MEMINFO: c_int = 55;

/// Sets the options of every data connection: `TCP_NODELAY` if wanted, and a timeout for a host
/// that disappears.
pub(crate) fn prepare(socket: &impl AsFd, nodelay: bool) -> Result<(), Error> {
    let keepalive = TcpKeepalive::new()
        .with_time(UNACKNOWLEDGED)
        .with_interval(Duration::from_secs(1))
        .with_retries(3);
    let options = SockRef::from(socket);
    options
        .set_tcp_nodelay(nodelay)
        .and_then(|()| options.set_tcp_user_timeout(Some(UNACKNOWLEDGED)))
        .and_then(|()| options.set_tcp_keepalive(&keepalive))
        .map_err(|source| Error::io("set the options of a TCP connection", source))
}

/// Makes a close reset the connection, for an end that leaves bulk unread. A shutdown would
/// announce a zero window, and the sender would wait for its timeout.
pub(crate) fn reset_on_close(socket: &impl AsFd) -> Result<(), Error> {
    SockRef::from(socket)
        .set_linger(Some(Duration::ZERO))
        .map_err(|source| Error::io("set SO_LINGER on a connection", source))
}

/// Sets the workload's socket options before connect or listen, since TCP's window scale follows
/// from the receive buffer. Accepted connections inherit the options.
pub(crate) fn apply(socket: &impl AsFd, options: &SocketOptions) -> Result<(), Error> {
    let fd = socket.as_fd();
    if let Some(asked) = options.send_buffer {
        let names = (libc::SO_SNDBUF, "SO_SNDBUF", "net.core.wmem_max");
        buffer(fd, asked, PrivilegedOption::SendBuffer, names)?;
    }
    if let Some(asked) = options.receive_buffer {
        let names = (libc::SO_RCVBUF, "SO_RCVBUF", "net.core.rmem_max");
        buffer(fd, asked, PrivilegedOption::ReceiveBuffer, names)?;
    }
    if let Some(name) = &options.congestion {
        congestion(fd, name)?;
    }
    if let Some(time) = options.busy_poll {
        let micros = u32::try_from(time.as_ns().div_ceil(1000)).unwrap_or(u32::MAX);
        let otherwise = ", or raise the sysctl net.core.busy_read to as much";
        set_permitted(fd, &PrivilegedOption::BusyPoll(micros), ("SO_BUSY_POLL", otherwise))?;
    }
    if options.prefer_busy_poll {
        let option = PrivilegedOption::PreferBusyPoll;
        set_permitted(fd, &option, ("SO_PREFER_BUSY_POLL", ""))?;
    }
    Ok(())
}

/// Sets a buffer size. The kernel silently limits the size and doubles what it grants (socket(7)).
fn buffer(
    fd: BorrowedFd<'_>,
    asked: Bytes,
    forced: impl Fn(u32) -> PrivilegedOption,
    (plain, option, sysctl): (c_int, &'static str, &'static str),
) -> Result<(), Error> {
    let failed = |source| Error::io("set the size of a socket's buffers", source);
    let bytes = c_int::try_from(asked.get()).unwrap_or(c_int::MAX);
    let raw = fd.as_raw_fd();
    let granted = || read_words::<1>(raw, libc::SOL_SOCKET, plain, 0).unwrap_or(u64::MAX) / 2;
    write_option(raw, libc::SOL_SOCKET, plain, bytes).map_err(failed)?;
    if granted() < asked.get() {
        // Without the right the smaller size stays, and is reported.
        let _refused = rights::set_with_rights(fd, &forced(bytes.unsigned_abs()));
    }
    if granted() < asked.get() {
        let granted = Bytes::new(granted());
        return Err(Error::BufferTooLarge { option, asked, granted, sysctl });
    }
    Ok(())
}

fn congestion(fd: BorrowedFd<'_>, name: &str) -> Result<(), Error> {
    rights::set_with_rights(fd, &PrivilegedOption::Congestion(name.to_owned())).map_err(|source| {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::INVAL) => {
                Error::NoCongestionControl { name: name.to_owned() }
            }
            Some(Errno::PERM) => Error::OptionPermission {
                option: "this TCP congestion control",
                otherwise: ", or add it to the sysctl net.ipv4.tcp_allowed_congestion_control",
            },
            _ => Error::io("set a socket's congestion control", source),
        }
    })
}

fn set_permitted(
    fd: BorrowedFd<'_>,
    option: &PrivilegedOption,
    (name, otherwise): (&'static str, &'static str),
) -> Result<(), Error> {
    rights::set_with_rights(fd, option).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::PERM) => Error::OptionPermission { option: name, otherwise },
        Some(Errno::NOPROTOOPT) => Error::NoOption { option: name },
        _ => Error::io("set a socket's busy polling", source),
    })
}

/// Sets the options of a datagram socket: large buffers, calls with a timeout, and no
/// fragmentation, so that each datagram is one packet or an error.
pub(crate) fn prepare_datagrams(socket: &UdpSocket) -> Result<(), Error> {
    use rustix::net::sockopt;
    let failed = |source| Error::io("set the options of a UDP socket", source);
    // Only CAP_NET_ADMIN may exceed net.core.rmem_max. Drops at a small buffer are reported.
    rights::set_with_rights(
        socket.as_fd(),
        &PrivilegedOption::ReceiveBuffer(DATAGRAM_BUFFER_BYTES),
    )
    .or_else(|_| {
        let bytes = DATAGRAM_BUFFER_BYTES as usize;
        Ok(sockopt::set_socket_recv_buffer_size(socket, bytes)?)
    })
    .map_err(failed)?;
    socket.set_read_timeout(Some(DATAGRAM_WAIT)).map_err(failed)?;
    socket.set_write_timeout(Some(DATAGRAM_WAIT)).map_err(failed)?;
    let (level, name, value) = if socket.local_addr().map_err(failed)?.is_ipv6() {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    };
    write_option(socket.as_raw_fd(), level, name, value).map_err(failed)
}

/// A UDP socket at `address` that shares the port with other sockets of this process and user. Each
/// is then connected to its own peer, so that the kernel separates the flows.
pub(crate) fn bind_datagrams(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Lets the kernel cut each send into datagrams of `bytes` (`UDP_SEGMENT`, Linux 4.18). Returns
/// whether it can.
pub(crate) fn segment_sends(socket: &UdpSocket, bytes: u16) -> bool {
    let (level, name) = (libc::SOL_UDP, libc::UDP_SEGMENT);
    write_option(socket.as_raw_fd(), level, name, bytes.into()).is_ok()
}

/// Lets the kernel join received datagrams of one flow and size (`UDP_GRO`, Linux 5.0). Returns
/// whether it can.
pub(crate) fn join_receipts(socket: &UdpSocket) -> bool {
    write_option(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
}

/// TCP segments that this end retransmitted since the connection was opened; `None` if the kernel
/// has no count.
///
/// `tcpi_total_retrans` is at byte 100 of `struct tcp_info` (`include/uapi/linux/tcp.h`), which
/// only grows at its end. The size of libc's struct varies between C libraries, so the length that
/// the kernel returns decides whether the field exists.
pub(crate) fn retransmits(socket: &TcpStream) -> Option<u64> {
    read_words::<26>(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, 25)
}

/// Datagrams that the kernel dropped at a full buffer since the socket was opened; `None` if the
/// kernel has no count.
pub(crate) fn dropped_datagrams(socket: &UdpSocket) -> Option<u64> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    read_words::<9>(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, DROPS)
}

/// Word `idx` of a socket option made of 32-bit words.
fn read_words<const N: usize>(socket: RawFd, level: c_int, name: c_int, idx: usize) -> Option<u64> {
    let mut words = [0_u32; N];
    let mut length = socklen_t::try_from(size_of_val(&words)).ok()?;
    // SAFETY: the kernel writes at most `length` bytes, the size of `words`, into plain integers.
    let answer = unsafe {
        libc::getsockopt(socket, level, name, words.as_mut_ptr().cast(), &raw mut length)
    };
    let filled = usize::try_from(length).ok()? / size_of::<u32>();
    (answer == 0).then(|| words.get(..filled)?.get(idx).copied().map(u64::from))?
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use latput_units::Nanos;

    use super::*;

    #[test]
    fn fresh_connection_has_sent_nothing_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&socket, true).unwrap();
        assert_eq!(retransmits(&socket), Some(0));
        assert!(socket.nodelay().unwrap());
    }

    #[test]
    fn options_are_set_or_refused_by_name() {
        let socket = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let buffers = SocketOptions {
            send_buffer: Some(Bytes::new(100_000)),
            receive_buffer: Some(Bytes::new(65_536)),
            congestion: Some("reno".to_owned()),
            ..SocketOptions::default()
        };
        let listener = socket();
        apply(&listener, &buffers).unwrap();
        let options = SockRef::from(&listener);
        assert_eq!(options.send_buffer_size().unwrap(), 200_000);
        assert_eq!(options.recv_buffer_size().unwrap(), 131_072);
        let unknown =
            SocketOptions { congestion: Some("nosuch".to_owned()), ..SocketOptions::default() };
        let error = apply(&socket(), &unknown).unwrap_err();
        assert!(matches!(error, Error::NoCongestionControl { .. }), "{error}");
        let polls = SocketOptions {
            busy_poll: Some(Nanos::from_us(50)),
            prefer_busy_poll: true,
            ..SocketOptions::default()
        };
        match apply(&socket(), &polls) {
            Ok(()) => {}
            Err(error) => assert!(
                matches!(error, Error::OptionPermission { .. } | Error::NoOption { .. }),
                "{error}"
            ),
        }
    }

    #[test]
    fn missing_kernel_word_is_absent() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVBUF);
        assert!(read_words::<4>(socket.as_raw_fd(), level, name, 0) > Some(0));
        assert_eq!(read_words::<4>(socket.as_raw_fd(), level, name, 1), None);
        assert_eq!(read_words::<4>(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, 0), None);
    }

    #[test]
    fn datagram_larger_than_the_mtu_is_refused() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        prepare_datagrams(&socket).unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        // Loopback's MTU is 65536: with its headers this is one byte too long for it in every case.
        assert_eq!(socket.send(&vec![0; 65_508]).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    }
}
