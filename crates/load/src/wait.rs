//! Waiting for many sockets until an instant that is exact to microseconds, where `epoll_wait(2)`
//! itself counts milliseconds.

use std::os::fd::AsFd;
use std::vec::Drain;

use latput_units::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::clock::{now, timespec};
use crate::error::Error;

/// Events taken from the kernel at once.
const EVENTS: usize = 256;
/// From here on milliseconds are exact enough: who waits looks again when it wakes.
const COARSE: Nanos = Nanos::from_ms(5);

/// Sockets that are watched, each by a number.
pub(crate) struct Waiter {
    poll: OwnedFd,
    events: Vec<Event>,
}

impl Waiter {
    /// Watches `sockets` for something to read; their numbers count from 0.
    pub(crate) fn reading(sockets: impl IntoIterator<Item = impl AsFd>) -> Result<Self, Error> {
        let poll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| Error::io("create an epoll instance", errno))?;
        for (number, socket) in (0..).zip(sockets) {
            epoll::add(&poll, socket, EventData::new_u64(number), EventFlags::IN)
                .map_err(|errno| Error::io("watch a socket with epoll", errno))?;
        }
        Ok(Self { poll, events: Vec::with_capacity(EVENTS) })
    }

    /// From now on also tells, or no longer tells, when `socket` takes bytes again.
    pub(crate) fn set_writing(
        &self,
        socket: impl AsFd,
        number: u64,
        wanted: bool,
    ) -> Result<(), Errno> {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(&self.poll, socket, EventData::new_u64(number), flags)
    }

    /// Waits until something is ready, or at most until `until`; it may return earlier with nothing.
    pub(crate) fn wait(&mut self, until: Nanos) -> Result<Drain<'_, Event>, Error> {
        let left = until.saturating_sub(now());
        let coarse =
            if left >= COARSE { Nanos::from_ms(left.as_ns() / 1_000_000) } else { Nanos::ZERO };
        self.take(coarse)?;
        if self.events.is_empty() && left > Nanos::ZERO && left < COARSE {
            let mut fds = [PollFd::new(&self.poll, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => self.take(Nanos::ZERO)?,
                Err(errno) => return Err(Error::io("wait for sockets", errno)),
            }
        }
        Ok(self.events.drain(..))
    }

    fn take(&mut self, timeout: Nanos) -> Result<(), Error> {
        match epoll::wait(&self.poll, spare_capacity(&mut self.events), Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::io("wait for events on sockets", errno)),
        }
    }
}

/// The number of the socket that `event` is about.
pub(crate) fn number(event: &Event) -> usize {
    usize::try_from(event.data.u64()).expect("an index that we gave to epoll")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn a_wait_ends_at_its_time_or_with_what_came() {
        let sockets = [(); 3].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let mut waiter = Waiter::reading(&sockets).unwrap();
        for wait in [Nanos::ZERO, Nanos::from_us(300), Nanos::from_ms(7)] {
            let until = now() + wait;
            while now() < until {
                assert_eq!(waiter.wait(until).unwrap().count(), 0);
            }
        }
        sockets[0].send_to(&[1], sockets[2].local_addr().unwrap()).unwrap();
        let ready: Vec<usize> =
            waiter.wait(now() + Nanos::from_s(10)).unwrap().map(|event| number(&event)).collect();
        assert_eq!(ready, [2]);
    }
}
