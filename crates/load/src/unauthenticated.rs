//! Connections that have not proved the key yet. Their number and their time are limited.
//!
//! All threads of a reflector share one limit, so that such connections cannot use up the
//! descriptors of the traffic.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};

use latput_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

/// Most unauthenticated connections at the same time. One more closes the oldest.
pub(crate) const MAX_UNAUTHENTICATED: usize = 256;
/// How long a connection may take to prove the key.
const AUTH_TIMEOUT: Nanos = Nanos::from_s(1);
/// Pause of accepting when the system has no descriptor or memory for another connection and no
/// unauthenticated connection can be closed for it.
pub(crate) const ACCEPT_PAUSE: Nanos = Nanos::from_ms(10);

/// Unauthenticated connections, oldest first.
#[derive(Debug)]
pub(crate) struct UnauthenticatedConns<T> {
    next: u64,
    all: VecDeque<UnauthenticatedConn<T>>,
}

/// A connection that has not proved the key yet.
#[derive(Debug)]
pub(crate) struct UnauthenticatedConn<T> {
    /// The number of the connection, in the order of acceptance.
    pub(crate) number: u64,
    until: Nanos,
    pub(crate) connection: T,
}

impl<T> UnauthenticatedConns<T> {
    pub(crate) fn new() -> Self {
        Self { next: 0, all: VecDeque::new() }
    }

    /// Numbers a connection accepted at `now`. It is not stored yet.
    pub(crate) fn enter(&mut self, connection: T, now: Nanos) -> UnauthenticatedConn<T> {
        self.next += 1;
        UnauthenticatedConn { number: self.next, until: now + AUTH_TIMEOUT, connection }
    }

    /// Stores a connection in the order of acceptance. Returns the oldest, which must be closed, if
    /// there are too many.
    pub(crate) fn put(&mut self, conn: UnauthenticatedConn<T>) -> Option<UnauthenticatedConn<T>> {
        let place = self.all.partition_point(|other| other.number < conn.number);
        self.all.insert(place, conn);
        if self.all.len() > MAX_UNAUTHENTICATED { self.all.pop_front() } else { None }
    }

    /// Removes connection `number`; `None` if it was pushed out before.
    pub(crate) fn take(&mut self, number: u64) -> Option<UnauthenticatedConn<T>> {
        let place = self.all.binary_search_by_key(&number, |conn| conn.number).ok()?;
        self.all.remove(place)
    }

    pub(crate) fn take_oldest(&mut self) -> Option<UnauthenticatedConn<T>> {
        self.all.pop_front()
    }

    /// Removes the oldest connection if it has expired.
    pub(crate) fn take_expired(&mut self, now: Nanos) -> Option<UnauthenticatedConn<T>> {
        if self.all.front()?.until <= now { self.take_oldest() } else { None }
    }

    /// When the oldest connection expires.
    pub(crate) fn until(&self) -> Option<Nanos> {
        self.all.front().map(|conn| conn.until)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnauthenticatedConn<T>> {
        self.all.iter()
    }

    /// Removes all connections.
    pub(crate) fn take_all(&mut self) -> VecDeque<UnauthenticatedConn<T>> {
        std::mem::take(&mut self.all)
    }
}

/// The result of an accept.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection, nonblocking.
    Connection(OwnedFd, Option<SocketAddr>),
    /// The connection was closed before the accept.
    Gone,
    /// No connection is waiting.
    None,
    /// The system has no descriptor or memory for the connection, which waits in the kernel.
    NoRoom,
}

/// Accepts one connection. Failures that a remote host can cause are no errors.
pub(crate) fn accept(listener: &TcpListener) -> Result<Accepted, Errno> {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            Ok(Accepted::Connection(socket, peer))
        }
        Err(Errno::AGAIN) => Ok(Accepted::None),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => Ok(Accepted::NoRoom),
        // accept(2) also returns pending errors of the new connection.
        Err(
            Errno::INTR
            | Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::TIMEDOUT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::PROTO
            | Errno::PERM,
        ) => Ok(Accepted::Gone),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_connection_is_pushed_out() {
        let mut unauthenticated = UnauthenticatedConns::new();
        let mut put = |name: usize| {
            let conn = unauthenticated.enter(name, Nanos::ZERO);
            unauthenticated.put(conn).map(|out| out.connection)
        };
        for name in 0..MAX_UNAUTHENTICATED {
            assert_eq!(put(name), None);
        }
        assert_eq!(put(MAX_UNAUTHENTICATED), Some(0));
        let second = unauthenticated.take(2).unwrap();
        assert!(unauthenticated.take(2).is_none());
        let new = unauthenticated.enter(MAX_UNAUTHENTICATED + 1, Nanos::ZERO);
        assert!(unauthenticated.put(new).is_none());
        assert_eq!(unauthenticated.put(second).unwrap().connection, 1);
        assert_eq!(unauthenticated.iter().count(), MAX_UNAUTHENTICATED);
    }

    #[test]
    fn connection_that_proves_nothing_for_a_second_expires() {
        let mut unauthenticated = UnauthenticatedConns::new();
        for at in [Nanos::from_ms(5), Nanos::from_ms(7)] {
            let conn = unauthenticated.enter((), at);
            assert!(unauthenticated.put(conn).is_none());
        }
        assert_eq!(unauthenticated.until(), Some(Nanos::from_ms(1005)));
        assert!(unauthenticated.take_expired(Nanos::from_ms(1004)).is_none());
        assert!(unauthenticated.take_expired(Nanos::from_ms(1006)).is_some());
        assert!(unauthenticated.take_expired(Nanos::from_ms(1006)).is_none());
    }
}
