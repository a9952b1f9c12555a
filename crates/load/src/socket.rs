//! The socket options and calls that neither `std`, `socket2` nor `rustix` has.
#![allow(unsafe_code, reason = "getsockopt(TCP_INFO) has no safe wrapper")]

use std::mem::{offset_of, size_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::error::Error;

/// How long a connection may go unacknowledged before it counts as lost.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Sets what every data connection has: prompt small segments if wanted, and an end to waiting when
/// the other host vanishes without a word.
pub(crate) fn prepare(socket: &TcpStream, nodelay: bool) -> Result<(), Error> {
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

/// Segments that this end of the connection sent again since it was opened; `None` where the kernel
/// does not tell.
pub(crate) fn retransmits(socket: &TcpStream) -> Option<u64> {
    let mut info = TcpInfo::default();
    let mut length = libc::socklen_t::try_from(size_of::<TcpInfo>()).ok()?;
    // SAFETY: `info` is plain integers, `length` is its size, and the kernel writes no more than that.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (answer == 0).then(|| info.total_retrans(usize::try_from(length).ok()?)).flatten()
}

/// The head of the kernel's `struct tcp_info` (`include/uapi/linux/tcp.h`), which only grows at its
/// tail. libc's own has another size with every C library, so the length that the kernel returns
/// decides which fields are there.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct TcpInfo {
    states_and_options: [u8; 8],
    timers_to_reordering: [u32; 21],
    receiver_rtt_and_space: [u32; 2],
    total_retrans: u32,
}

impl TcpInfo {
    fn total_retrans(&self, length: usize) -> Option<u64> {
        let end = offset_of!(Self, total_retrans) + size_of::<u32>();
        (length >= end).then_some(u64::from(self.total_retrans))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn a_fresh_connection_has_sent_nothing_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&socket, true).unwrap();
        assert_eq!(retransmits(&socket), Some(0));
        assert!(socket.nodelay().unwrap());
    }

    #[test]
    fn the_counter_lies_where_the_kernel_has_it() {
        // struct tcp_info: 8 bytes, 23 words from tcpi_rto to tcpi_rcv_space, then tcpi_total_retrans.
        assert_eq!(offset_of!(TcpInfo, total_retrans), 8 + 23 * 4);
    }

    #[test]
    fn a_kernel_that_returns_less_does_not_tell() {
        let info = TcpInfo { total_retrans: 7, ..TcpInfo::default() };
        assert_eq!(info.total_retrans(104), Some(7));
        assert_eq!(info.total_retrans(103), None);
    }
}
