//! Notifications from the kernel: the messages of multicast groups.
//!
//! Notices are hints to look, and no more: the kernel drops them when a reader is slow, and not every
//! change has one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{RecvFlags, SocketFlags};

use super::NetlinkError;
use super::message::{Message, Messages};
use super::socket::{self, Protocol};

/// `RTNLGRP_LINK`, `include/uapi/linux/rtnetlink.h`.
pub(crate) const LINK_GROUP: u32 = 1;
/// Longer than a notice of one object; of what is cut off, the beginning is enough.
const BUFFER_BYTES: usize = 32 << 10;
/// Most datagrams of one reading: a flood of notices must keep nobody from his work.
const DRAIN_MAX: usize = 1000;
/// `NETLINK_ADD_MEMBERSHIP`, `include/uapi/linux/netlink.h`.
const ADD_MEMBERSHIP: libc::c_int = 1;

/// A socket that hears the notices of some groups; reading it never waits.
#[derive(Debug)]
pub(crate) struct Notices(OwnedFd);

impl Notices {
    /// Hears `groups` of the calling thread's network namespace.
    pub(crate) fn open(protocol: Protocol, groups: &[u32]) -> Result<Self, NetlinkError> {
        let failed = |source: io::Error| NetlinkError::Socket {
            request: "listen for netlink notices".to_owned(),
            source,
        };
        let fd = socket::bound(protocol, SocketFlags::NONBLOCK).map_err(failed)?;
        for &group in groups {
            socket::set_option(&fd, ADD_MEMBERSHIP, group.cast_signed()).map_err(failed)?;
        }
        Ok(Self(fd))
    }

    /// As [`Self::open`], with room for so many bytes of notices, or as many as this process may have.
    pub(crate) fn open_with_room(
        protocol: Protocol,
        groups: &[u32],
        bytes: usize,
    ) -> Result<Self, NetlinkError> {
        let notices = Self::open(protocol, groups)?;
        if set_socket_recv_buffer_size_force(&notices.0, bytes).is_err() {
            let _as_it_is = set_socket_recv_buffer_size(&notices.0, bytes);
        }
        Ok(notices)
    }

    /// Reads what has come, and says whether any of it `concerns` the reader. Notices that were lost or
    /// cannot be understood might have.
    pub(crate) fn drain(
        &self,
        mut concerns: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<bool, NetlinkError> {
        let mut any = false;
        let is_rest = self.read(DRAIN_MAX, |notice| any |= notice.is_none_or(&mut concerns))?;
        Ok(any || is_rest)
    }

    /// Reads what has come: each notice, and `None` where some were lost or one cannot be understood. Returns whether there
    /// may be more, after so many datagrams.
    pub(crate) fn read(
        &self,
        most: usize,
        mut hear: impl FnMut(Option<&Message<'_>>),
    ) -> Result<bool, NetlinkError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for _ in 0..most {
            match rustix::net::recvfrom(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length, sender)) => {
                    let sender = sender.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if sender.is_some_and(|from| from.pid() == 0) {
                        Messages::new(&buffer[..length])
                            .for_each(|message| hear(message.as_ref().ok()));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(false),
                Err(rustix::io::Errno::NOBUFS) => hear(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    return Err(NetlinkError::Socket {
                        request: "read netlink notices".to_owned(),
                        source: errno.into(),
                    });
                }
            }
        }
        Ok(true)
    }

    /// Readable when a notice has come.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
