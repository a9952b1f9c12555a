//! Waits for readable sockets until an instant: [`Poll`] with its list of events.

use std::os::fd::AsFd;
use std::vec::Drain;

use latput_trial::workload::EpollBusyPoll;
use latput_units::Nanos;
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::poll::{self, Poll};

/// Watched sockets, each with a number ([`poll::id`] of its events).
pub(crate) struct Waiter {
    poll: Poll,
    events: Vec<Event>,
}

impl Waiter {
    /// Watches `sockets` for reading. Their numbers count from 0.
    pub(crate) fn reading(
        sockets: impl IntoIterator<Item = impl AsFd>,
        polling: Option<EpollBusyPoll>,
    ) -> Result<Self, Error> {
        let poll = Poll::new(polling)?;
        for (number, socket) in sockets.into_iter().enumerate() {
            poll.add(socket, number, EventFlags::IN)?;
        }
        Ok(Self { poll, events: poll::events() })
    }

    /// Starts or stops to watch `socket` for writing as well.
    pub(crate) fn set_writing(
        &self,
        socket: impl AsFd,
        number: usize,
        wanted: bool,
    ) -> Result<(), Errno> {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        self.poll.modify(socket, number, flags)
    }

    /// Waits until a socket is ready, at most until `until`. It may return early without events.
    pub(crate) fn wait(&mut self, until: Nanos) -> Result<Drain<'_, Event>, Error> {
        self.poll.wait(&mut self.events, Some(until))?;
        Ok(self.events.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::clock::now;

    #[test]
    fn wait_ends_on_time_or_input() {
        let sockets = [(); 3].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let mut waiter = Waiter::reading(&sockets, None).unwrap();
        for wait in [Nanos::ZERO, Nanos::from_us(300), Nanos::from_ms(7)] {
            let until = now() + wait;
            while now() < until {
                assert_eq!(waiter.wait(until).unwrap().count(), 0);
            }
        }
        sockets[0].send_to(&[1], sockets[2].local_addr().unwrap()).unwrap();
        let ready: Vec<usize> =
            waiter.wait(now() + Nanos::from_s(10)).unwrap().map(|event| poll::id(&event)).collect();
        assert_eq!(ready, [2]);
    }
}
