//! A blocking netlink socket: send one request, collect its whole answer. Over it, generic netlink, which finds a family by
//! name and knows which commands it has.
//!
//! A socket belongs for life to the network namespace of the thread that opened it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::message::{Attributes, DONE, ERROR, Messages, Request};
use super::{Malformed, NetlinkError, malformed, uapi};

/// How long one answer may take. The kernel answers in microseconds unless it waits for a lock that a
/// device reset holds.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A dump that changed under our hands is asked for again, this many times in all.
const DUMP_ATTEMPTS: u32 = 5;
/// The longest datagram of a dump (`netlink_dump`, `net/netlink/af_netlink.c`); single messages may be longer.
const USUAL_DATAGRAM_BYTES: usize = 32 << 10;
/// More than this is no answer to any question of ours (10 000 links are about 20 MB).
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// `SOL_NETLINK`, `include/linux/socket.h`.
const SOL_NETLINK: libc::c_int = 270;

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Links, addresses, neighbours.
    Route,
    /// Generic netlink: ethtool and netdev.
    Generic,
    /// Sockets and their state.
    SockDiag,
}

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: Cell<u32>,
    /// The buffer for one datagram.
    buffer: RefCell<Vec<u8>>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open(protocol: Protocol) -> Result<Self, NetlinkError> {
        let failed = |source: io::Error| NetlinkError::Socket {
            request: "open a netlink socket".to_owned(),
            source,
        };
        let fd = bound(protocol, SocketFlags::empty()).map_err(failed)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(TIMEOUT))
            .map_err(|errno| failed(errno.into()))?;
        // Kernels before 4.12 have no extended acknowledgements; then errors come without words.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let _ = set_option(&fd, option, 1);
        }
        let buffer = RefCell::new(vec![0; USUAL_DATAGRAM_BYTES]);
        Ok(Self { fd, sequence: Cell::new(0), buffer })
    }

    /// Sends `request` and returns the payload of every message of its answer.
    pub(crate) fn exchange(&self, request: &Request) -> Result<Vec<Vec<u8>>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(answer) = self.exchange_once(request)? {
                return Ok(answer);
            }
        }
        Err(NetlinkError::Refused {
            request: request.what().to_owned(),
            errno: libc::EINTR,
            text: Some(format!("the objects changed during {DUMP_ATTEMPTS} dumps in a row")),
            offset: None,
        })
    }

    /// Like `exchange` for a request that has exactly one message as its answer.
    pub(crate) fn exchange_for_one(&self, request: &Request) -> Result<Vec<u8>, NetlinkError> {
        let mut answer = self.exchange(request)?;
        match answer.pop() {
            Some(message) if answer.is_empty() => Ok(message),
            _ => Err(malformed_answer(request, malformed("not exactly one message came back"))),
        }
    }

    /// `None` when it must be asked again: the kernel says that a dump is inconsistent, or a datagram was
    /// longer than the buffer, which fits now. What changes something is answered in a few bytes.
    fn exchange_once(&self, request: &Request) -> Result<Option<Vec<Vec<u8>>>, NetlinkError> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.fd, &request.to_bytes(sequence), SendFlags::empty(), &kernel)
            .map_err(|errno| socket_error(request, errno.into()))?;
        let deadline = Instant::now() + TIMEOUT;
        let mut answer = Vec::new();
        let mut answer_bytes = 0;
        let mut is_consistent = true;
        let mut buffer = self.buffer.borrow_mut();
        loop {
            let Some(length) = self.receive(request, &mut buffer)? else { return Ok(None) };
            let datagram = &buffer[..length];
            answer_bytes += length;
            if Instant::now() > deadline || answer_bytes > MAX_ANSWER_BYTES {
                return Err(NetlinkError::Timeout { request: request.what().to_owned() });
            }
            for message in Messages::new(datagram) {
                let message = message.map_err(|source| malformed_answer(request, source))?;
                if message.sequence != sequence {
                    continue; // the late answer to a request that timed out
                }
                is_consistent &= !message.is_dump_interrupted();
                if message.kind != ERROR && message.kind != DONE {
                    answer.push(message.payload.to_vec());
                    continue;
                }
                let outcome =
                    message.outcome().map_err(|source| malformed_answer(request, source))?;
                if outcome.errno != 0 {
                    return Err(NetlinkError::Refused {
                        request: request.what().to_owned(),
                        errno: outcome.errno,
                        text: outcome.text,
                        offset: outcome.offset,
                    });
                }
                return Ok(is_consistent.then_some(answer));
            }
        }
    }

    /// The length of the next datagram from the kernel, which is in `buffer` then; `None` if it was cut off:
    /// then the buffer is as long now.
    fn receive(
        &self,
        request: &Request,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<usize>, NetlinkError> {
        loop {
            let (_, length, sender) = retry_on_interrupt(request, || {
                rustix::net::recvfrom(&self.fd, &mut buffer[..], RecvFlags::TRUNC)
            })?;
            // Any process may send to our port; only port 0 is the kernel.
            let sender = sender.and_then(|address| SocketAddrNetlink::try_from(address).ok());
            if sender.is_none_or(|address| address.pid() != 0) {
                continue;
            }
            if length > MAX_ANSWER_BYTES {
                return Err(malformed_answer(request, malformed("a message of over 256 MiB")));
            }
            if length > buffer.len() {
                buffer.resize(length, 0);
                self.drain();
                return Ok(None);
            }
            return Ok(Some(length));
        }
    }

    /// Throws away the rest of an answer: a dump goes on only as it is read, and while it does another is refused
    /// (`EBUSY`).
    fn drain(&self) {
        let read = || rustix::net::recv(&self.fd, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
        while matches!(read(), Ok(_) | Err(rustix::io::Errno::INTR)) {}
    }
}

fn retry_on_interrupt<T>(
    request: &Request,
    mut receive: impl FnMut() -> rustix::io::Result<T>,
) -> Result<T, NetlinkError> {
    loop {
        match receive() {
            Ok(received) => return Ok(received),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                return Err(NetlinkError::Timeout { request: request.what().to_owned() });
            }
            Err(errno) => return Err(socket_error(request, errno.into())),
        }
    }
}

fn socket_error(request: &Request, source: io::Error) -> NetlinkError {
    NetlinkError::Socket { request: request.what().to_owned(), source }
}

fn malformed_answer(request: &Request, source: Malformed) -> NetlinkError {
    NetlinkError::Malformed { request: request.what().to_owned(), source }
}

/// A bound socket in the calling thread's network namespace.
pub(super) fn bound(protocol: Protocol, flags: SocketFlags) -> io::Result<OwnedFd> {
    let number = match protocol {
        Protocol::Route => None, // NETLINK_ROUTE is protocol 0
        Protocol::Generic => Some(netlink::GENERIC),
        Protocol::SockDiag => Some(netlink::SOCK_DIAG),
    };
    let fd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | flags,
        number,
    )?;
    rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
    Ok(fd)
}

/// Sets one of the socket options of `SOL_NETLINK`, which rustix does not have.
pub(super) fn set_option(fd: &OwnedFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).expect("4 fits");
    // SAFETY: the descriptor is open, and the pointer and length are those of a live c_int.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), SOL_NETLINK, option, (&raw const value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of the family that knows the others (`GENL_ID_CTRL`).
const CONTROLLER: u16 = 16;
/// Length of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// A socket to one generic netlink family.
#[derive(Debug)]
pub(crate) struct Generic {
    socket: Socket,
    family: &'static str,
    known: Family,
}

/// The kernel's description of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Family {
    id: u16,
    commands: Vec<u32>,
    /// Multicast groups: name and number.
    groups: Vec<(String, u32)>,
}

impl Generic {
    /// Opens a socket in the calling thread's namespace and looks the family up. A kernel that does
    /// not have it answers `ENOENT`.
    pub(crate) fn open(family: &'static str) -> Result<Self, NetlinkError> {
        let socket = Socket::open(Protocol::Generic)?;
        let what = format!("find the netlink family `{family}`");
        let request = Request::new(what.clone(), CONTROLLER)
            .header(&[uapi::CTRL_CMD_GETFAMILY, 1, 0, 0])
            .text(uapi::CTRL_ATTR_FAMILY_NAME, family);
        let answer = socket.exchange_for_one(&request)?;
        let known = parse_family(&answer)
            .map_err(|source| NetlinkError::Malformed { request: what, source })?;
        Ok(Self { socket, family, known })
    }

    /// Whether this kernel's family has the command.
    pub(crate) fn has_command(&self, command: u8) -> bool {
        self.known.commands.contains(&u32::from(command))
    }

    /// The number of a multicast group, if this kernel's family has it.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        self.known.groups.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    }

    /// Starts a request of this family.
    pub(crate) fn request(&self, what: impl Into<String>, command: u8) -> Request {
        Request::new(what, self.known.id).header(&[command, 1, 0, 0])
    }

    /// Sends a request and returns the attributes of each message of the answer.
    pub(crate) fn exchange(&self, request: &Request) -> Result<Vec<Vec<u8>>, NetlinkError> {
        let mut answer = self.socket.exchange(request)?;
        for message in &mut answer {
            if message.len() < GENERIC_HEADER {
                return Err(NetlinkError::Malformed {
                    request: format!("{} ({})", request.what(), self.family),
                    source: malformed("a generic header is cut short"),
                });
            }
            message.drain(..GENERIC_HEADER);
        }
        Ok(answer)
    }
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(payload: &[u8]) {
    let _ = parse_family(payload);
}

fn parse_family(payload: &[u8]) -> Result<Family, Malformed> {
    let attributes =
        payload.get(GENERIC_HEADER..).ok_or(malformed("a generic header is cut short"))?;
    let mut family = Family::default();
    let mut has_id = false;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::CTRL_ATTR_FAMILY_ID => {
                family.id = attribute.as_u16()?;
                has_id = true;
            }
            uapi::CTRL_ATTR_OPS => {
                for command in attribute.nested() {
                    if let Some(number) = command?.nested().find_kind(uapi::CTRL_ATTR_OP_ID)? {
                        family.commands.push(number.as_u32()?);
                    }
                }
            }
            uapi::CTRL_ATTR_MCAST_GROUPS => {
                for group in attribute.nested() {
                    let group = group?.nested();
                    let name = group.clone().find_kind(uapi::CTRL_ATTR_MCAST_GRP_NAME)?;
                    if let (Some(name), Some(id)) =
                        (name, group.find_kind(uapi::CTRL_ATTR_MCAST_GRP_ID)?)
                    {
                        family.groups.push((name.as_text().into_owned(), id.as_u32()?));
                    }
                }
            }
            _ => {}
        }
    }
    if has_id { Ok(family) } else { Err(malformed("a family without an id")) }
}

#[cfg(test)]
mod tests {
    use super::super::message::{put, put_nested};
    use super::*;

    #[test]
    fn truncated_datagram_is_requested_again() {
        // `struct ifinfomsg`: 16 bytes. Every namespace has `lo`.
        check(
            Protocol::Route,
            &Request::new("list the links", uapi::RTM_GETLINK).header(&[0; 16]).dump(),
        );
        // Some dozens of families take several datagrams: the dump is not over when the first is cut.
        let families = Request::new("list the families", CONTROLLER);
        check(Protocol::Generic, &families.header(&[uapi::CTRL_CMD_GETFAMILY, 2, 0, 0]).dump());
    }

    #[track_caller]
    fn check(protocol: Protocol, dump: &Request) {
        let socket = Socket::open(protocol).unwrap();
        let whole = socket.exchange(dump).unwrap();
        assert!(!whole.is_empty());
        socket.buffer.replace(vec![0; 8]);
        assert_eq!(socket.exchange(dump).unwrap().len(), whole.len());
        assert!(socket.buffer.borrow().len() > 8);
    }

    #[test]
    fn family_has_an_id_and_commands() {
        let mut payload = vec![1, 2, 0, 0];
        put(&mut payload, uapi::CTRL_ATTR_FAMILY_ID, &33_u16.to_ne_bytes());
        put_nested(&mut payload, uapi::CTRL_ATTR_OPS, |ops| {
            for (idx, command) in [(1, 11_u32), (2, 14)] {
                put_nested(ops, idx, |op| put(op, uapi::CTRL_ATTR_OP_ID, &command.to_ne_bytes()));
            }
        });
        put_nested(&mut payload, uapi::CTRL_ATTR_MCAST_GROUPS, |groups| {
            put_nested(groups, 1, |group| {
                put(group, uapi::CTRL_ATTR_MCAST_GRP_ID, &5_u32.to_ne_bytes());
                put(group, uapi::CTRL_ATTR_MCAST_GRP_NAME, b"monitor\0");
            });
            put_nested(groups, 2, |_| {});
        });
        let groups = vec![("monitor".to_owned(), 5)];
        assert_eq!(parse_family(&payload), Ok(Family { id: 33, commands: vec![11, 14], groups }));
    }

    #[test]
    fn cut_family_answer_is_malformed() {
        assert!(parse_family(&[]).is_err());
        assert!(parse_family(&[1, 2, 0, 0]).is_err());
        assert!(parse_family(&[1, 2, 0, 0, 6, 0, 1, 0, 9]).is_err());
    }
}
