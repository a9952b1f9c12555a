//! Connections that have not proved the key yet. Their number and their time are bounded.
//!
//! All threads of a reflector share one budget, so that such connections cannot take the descriptors
//! that the traffic needs.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};

use latput_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

/// Unauthenticated connections at the same time, at most. One more closes the oldest.
pub(crate) const MAX_UNAUTHENTICATED: usize = 256;
/// How long a connection may take to prove the key.
const AUTH_TIMEOUT: Nanos = Nanos::from_s(1);
/// How long nothing is accepted where the system has no descriptor or memory for another connection,
/// and no unauthenticated connection can be closed for it.
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
    /// Its number among all that came; later ones have greater numbers.
    pub(crate) number: u64,
    until: Nanos,
    pub(crate) connection: T,
}

impl<T> UnauthenticatedConns<T> {
    pub(crate) fn new() -> Self {
        Self { next: 0, all: VecDeque::new() }
    }

    /// The number of a connection that was accepted `now`. It is not among the others yet.
    pub(crate) fn enter(&mut self, connection: T, now: Nanos) -> UnauthenticatedConn<T> {
        self.next += 1;
        UnauthenticatedConn { number: self.next, until: now + AUTH_TIMEOUT, connection }
    }

    /// Puts a connection among the others, in the order in which they came. Gives the oldest, which is
    /// to be closed, where there are too many.
    pub(crate) fn put(&mut self, conn: UnauthenticatedConn<T>) -> Option<UnauthenticatedConn<T>> {
        let place = self.all.partition_point(|other| other.number < conn.number);
        self.all.insert(place, conn);
        if self.all.len() > MAX_UNAUTHENTICATED { self.all.pop_front() } else { None }
    }

    /// Takes connection `number` out; `None` where it was pushed out before.
    pub(crate) fn take(&mut self, number: u64) -> Option<UnauthenticatedConn<T>> {
        let place = self.all.binary_search_by_key(&number, |conn| conn.number).ok()?;
        self.all.remove(place)
    }

    pub(crate) fn take_oldest(&mut self) -> Option<UnauthenticatedConn<T>> {
        self.all.pop_front()
    }

    /// Takes out the oldest if its time has passed.
    pub(crate) fn take_expired(&mut self, now: Nanos) -> Option<UnauthenticatedConn<T>> {
        if self.all.front()?.until <= now { self.take_oldest() } else { None }
    }

    /// When the time of the oldest has passed.
    pub(crate) fn until(&self) -> Option<Nanos> {
        self.all.front().map(|conn| conn.until)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &UnauthenticatedConn<T>> {
        self.all.iter()
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> VecDeque<UnauthenticatedConn<T>> {
        std::mem::take(&mut self.all)
    }
}

/// What a listener gave.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A connection, nonblocking.
    Connection(OwnedFd, Option<SocketAddr>),
    /// There was one, and it is gone.
    Gone,
    /// No connection waits.
    None,
    /// No descriptor or no memory is left for it. It waits in the kernel.
    NoRoom,
}

/// Accepts one connection. What an outsider can cause is no error.
pub(crate) fn accept(listener: &TcpListener) -> Result<Accepted, Errno> {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            Ok(Accepted::Connection(socket, peer))
        }
        Err(Errno::AGAIN) => Ok(Accepted::None),
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => Ok(Accepted::NoRoom),
        // accept(2) passes errors of the new connection on.
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
    fn the_oldest_is_pushed_out_even_if_it_was_taken_and_put_back() {
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
    fn a_connection_that_proves_nothing_for_a_second_expires() {
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
