//! Notifications from the kernel: the messages of multicast groups.
//!
//! Notices are hints to look, and no more: the kernel drops them when a reader is slow, and not every
//! change has one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SocketFlags};

use super::NetlinkError;
use super::message::{Message, Messages};
use super::socket::{self, Protocol};

/// `RTNLGRP_LINK`, `include/uapi/linux/rtnetlink.h`.
pub(crate) const LINK_GROUP: u32 = 1;
/// Longer than a notice of one object; of what is cut off, the beginning is enough.
const BUFFER_BYTES: usize = 32 << 10;
/// So many datagrams at a time, that a flood of notices keeps nobody from his work.
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

    /// Reads what has come, and says whether any of it `concerns` the reader. Notices that were lost or
    /// cannot be understood might have.
    pub(crate) fn drain(
        &self,
        mut concerns: impl FnMut(&Message<'_>) -> bool,
    ) -> Result<bool, NetlinkError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut any = false;
        for _ in 0..DRAIN_MAX {
            match rustix::net::recvfrom(&self.0, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length, sender)) => {
                    let sender = sender.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if sender.is_some_and(|from| from.pid() == 0) {
                        any |= Messages::new(&buffer[..length])
                            .any(|message| message.map_or(true, |message| concerns(&message)));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(any),
                Err(rustix::io::Errno::NOBUFS) => any = true,
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
