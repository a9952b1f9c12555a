//! Connections that have not shown the key: their number and their time are bounded.
//!
//! One budget holds for all threads of a reflector, so that strangers cannot take the descriptors that
//! the traffic needs.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};

use latput_units::Nanos;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

/// Connections that may be without the key at once; one more pushes the oldest out.
pub(crate) const MOST: usize = 256;
/// How long a connection may take to show the key.
const PATIENCE: Nanos = Nanos::from_s(1);
/// How long the listener rests where the system has no descriptor or memory for another connection and
/// no stranger holds one.
pub(crate) const REST: Nanos = Nanos::from_ms(10);

/// Connections without the key, oldest first.
#[derive(Debug)]
pub(crate) struct Strangers<T> {
    next: u64,
    all: VecDeque<Stranger<T>>,
}

/// A connection that has not shown the key yet.
#[derive(Debug)]
pub(crate) struct Stranger<T> {
    /// Its number among all that came; later ones have greater numbers.
    pub(crate) number: u64,
    until: Nanos,
    pub(crate) connection: T,
}

impl<T> Strangers<T> {
    pub(crate) fn new() -> Self {
        Self { next: 0, all: VecDeque::new() }
    }

    /// The number of a connection that was accepted `now`. It is not among the others yet.
    pub(crate) fn enter(&mut self, connection: T, now: Nanos) -> Stranger<T> {
        self.next += 1;
        Stranger { number: self.next, until: now + PATIENCE, connection }
    }

    /// Puts a connection among the others, in the order in which they came. Gives the oldest, which is
    /// to be closed, where there are too many.
    pub(crate) fn put(&mut self, stranger: Stranger<T>) -> Option<Stranger<T>> {
        let place = self.all.partition_point(|other| other.number < stranger.number);
        self.all.insert(place, stranger);
        if self.all.len() > MOST { self.all.pop_front() } else { None }
    }

    /// Takes connection `number` out; `None` where it was pushed out before.
    pub(crate) fn take(&mut self, number: u64) -> Option<Stranger<T>> {
        let place = self.all.binary_search_by_key(&number, |stranger| stranger.number).ok()?;
        self.all.remove(place)
    }

    pub(crate) fn take_oldest(&mut self) -> Option<Stranger<T>> {
        self.all.pop_front()
    }

    /// Takes out the oldest if its time has passed.
    pub(crate) fn take_slow(&mut self, now: Nanos) -> Option<Stranger<T>> {
        if self.all.front()?.until <= now { self.take_oldest() } else { None }
    }

    /// When the time of the oldest has passed.
    pub(crate) fn until(&self) -> Option<Nanos> {
        self.all.front().map(|stranger| stranger.until)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stranger<T>> {
        self.all.iter()
    }

    /// Takes all out.
    pub(crate) fn take_all(&mut self) -> VecDeque<Stranger<T>> {
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
    /// There is none.
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
    fn the_oldest_is_pushed_out_also_where_it_was_away_meanwhile() {
        let mut strangers = Strangers::new();
        let mut put = |name: usize| {
            let stranger = strangers.enter(name, Nanos::ZERO);
            strangers.put(stranger).map(|out| out.connection)
        };
        for name in 0..MOST {
            assert_eq!(put(name), None);
        }
        assert_eq!(put(MOST), Some(0));
        let second = strangers.take(2).unwrap();
        assert!(strangers.take(2).is_none());
        let new = strangers.enter(MOST + 1, Nanos::ZERO);
        assert!(strangers.put(new).is_none());
        assert_eq!(strangers.put(second).unwrap().connection, 1);
        assert_eq!(strangers.iter().count(), MOST);
    }

    #[test]
    fn who_shows_nothing_for_a_second_is_slow() {
        let mut strangers = Strangers::new();
        for at in [Nanos::from_ms(5), Nanos::from_ms(7)] {
            let stranger = strangers.enter((), at);
            assert!(strangers.put(stranger).is_none());
        }
        assert_eq!(strangers.until(), Some(Nanos::from_ms(1005)));
        assert!(strangers.take_slow(Nanos::from_ms(1004)).is_none());
        assert!(strangers.take_slow(Nanos::from_ms(1006)).is_some());
        assert!(strangers.take_slow(Nanos::from_ms(1006)).is_none());
    }
}
