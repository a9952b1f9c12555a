//! TCP connections that have ended: the kernel tells of each socket when it is destroyed, with its last `struct tcp_info`.
//!
//! With it, connections that live and end between two readings are known too. `ss --events` hears the same groups
//! (`sock_diag_broadcast_destroy`, `net/core/sock_diag.c`, Linux 4.4). It needs no rights.

use super::{FAMILIES, SOCK_DIAG_BY_FAMILY, TcpConnection, connection};
use crate::error::Error;
use crate::netlink::Protocol;
use crate::netlink::message::Message;
use crate::netlink::notices::Notices;

/// `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`, `include/uapi/linux/sock_diag.h`.
const GROUPS: [u32; 2] = [1, 3];
/// Room for the notices between two readings. The kernel doubles it, and a notice takes 0.7 to 1.3 KB: 13,000 fit. Without
/// `CAP_NET_ADMIN` the kernel gives less (`net.core.rmem_max`).
const BUFFER_BYTES: usize = 8 << 20;
/// Most notices of a call.
const MOST: usize = 100_000;

/// Hears of connections that end. Belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct EndedConnections(Notices);

/// The connections that have ended since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionEnds {
    /// The connections, in the order of their ends, with their last figures.
    pub connections: Vec<TcpConnection>,
    /// Whether there were more than there was room for.
    pub were_lost: bool,
}

impl EndedConnections {
    /// Hears of all that end in the calling thread's network namespace from now on.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Notices::open_with_room(Protocol::SockDiag, &GROUPS, BUFFER_BYTES)?))
    }

    /// Those since the last call.
    ///
    /// # Errors
    ///
    /// The socket cannot be read.
    pub fn take(&self) -> Result<ConnectionEnds, Error> {
        let mut ended = ConnectionEnds::default();
        let is_rest = self.0.read(MOST, |notice| match notice.map(ended_connection) {
            Some(Ok(connection)) => ended.connections.extend(connection),
            Some(Err(NotUnderstood)) | None => ended.were_lost = true,
        })?;
        ended.were_lost |= is_rest;
        Ok(ended)
    }
}

/// A notice that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotUnderstood;

/// The connection of a notice; `None` if its socket had none.
fn ended_connection(notice: &Message<'_>) -> Result<Option<TcpConnection>, NotUnderstood> {
    if notice.kind != SOCK_DIAG_BY_FAMILY {
        return Ok(None);
    }
    let family = notice.payload.first();
    let known = FAMILIES.iter().find(|(known, _)| Some(known) == family).ok_or(NotUnderstood)?;
    let found = connection(notice.payload, known.1).map_err(|_| NotUnderstood)?;
    // A listening socket, and one that was never connected, has no other end.
    Ok(found.filter(|one| one.remote.1 != 0))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::super::tests::message;
    use super::*;

    fn of_v4() -> Vec<u8> {
        let mut payload = message(232);
        payload[0] = FAMILIES[0].0;
        payload
    }

    fn read(kind: u16, payload: &[u8]) -> Result<Option<TcpConnection>, NotUnderstood> {
        ended_connection(&Message { kind, flags: 0, sequence: 0, payload })
    }

    #[test]
    fn notice_has_the_last_figures() {
        let mut payload = of_v4();
        let ended = read(SOCK_DIAG_BY_FAMILY, &payload).unwrap().unwrap();
        assert_eq!((ended.local.1, ended.remote.1, ended.retransmitted), (443, 50_000, 7));
        payload[6..8].fill(0);
        assert_eq!(read(SOCK_DIAG_BY_FAMILY, &payload), Ok(None), "it had no other end");
    }

    #[test]
    fn notice_of_another_kind_is_skipped() {
        assert_eq!(read(SOCK_DIAG_BY_FAMILY + 1, &of_v4()), Ok(None));
    }

    #[test]
    fn broken_notice_is_not_understood() {
        let mut payload = of_v4();
        assert_eq!(read(SOCK_DIAG_BY_FAMILY, &payload[..70]), Err(NotUnderstood));
        payload[0] = 77;
        assert_eq!(read(SOCK_DIAG_BY_FAMILY, &payload), Err(NotUnderstood));
        assert_eq!(read(SOCK_DIAG_BY_FAMILY, &[]), Err(NotUnderstood));
    }

    #[test]
    fn lost_ends_are_told() {
        let few = EndedConnections(
            Notices::open_with_room(Protocol::SockDiag, &GROUPS, 4096).expect("it needs no rights"),
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..200 {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            drop((near, listener.accept().unwrap()));
        }
        let begun = Instant::now();
        let mut ended = few.take().unwrap();
        while !ended.were_lost && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
            ended = few.take().unwrap();
        }
        assert!(ended.were_lost && ended.connections.len() < 200, "{}", ended.connections.len());
    }
}
