//! Level- or edge-triggered epoll with deadlines in nanoseconds.
#![allow(unsafe_code, reason = "EPIOCSPARAMS has no safe wrapper")]

use latput_trial::workload::EpollBusyPoll;
use latput_units::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};
use rustix::time::Timespec;

use crate::clock::{now, timespec};
use crate::error::Error;

/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Poll(OwnedFd);

/// An empty event list for [`Poll::wait`].
pub(crate) fn events() -> Vec<Event> {
    Vec::with_capacity(EVENTS)
}

/// The id of the socket of an event.
pub(crate) fn id(event: &Event) -> usize {
    usize::try_from(event.data.u64()).expect("an index that we gave to epoll")
}

impl Poll {
    /// Creates an instance that polls the device's queue before it sleeps, if `polling` says so.
    pub(crate) fn new(polling: Option<EpollBusyPoll>) -> Result<Self, Error> {
        let created = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| Error::io("create an epoll instance", errno))?;
        if let Some(polling) = polling {
            set_busy_poll(&created, polling)?;
        }
        Ok(Self(created))
    }

    /// Watches `socket` for `flags`; its events carry `id`.
    pub(crate) fn add(&self, socket: impl AsFd, id: usize, flags: EventFlags) -> Result<(), Error> {
        epoll::add(&self.0, socket, EventData::new_u64(id as u64), flags)
            .map_err(|errno| Error::io("watch a connection with epoll", errno))
    }

    /// Stops watching `socket`.
    pub(crate) fn remove(&self, socket: impl AsFd) -> Result<(), Error> {
        epoll::delete(&self.0, socket)
            .map_err(|errno| Error::io("stop watching a socket with epoll", errno))
    }

    pub(crate) fn modify(
        &self,
        socket: impl AsFd,
        id: usize,
        flags: EventFlags,
    ) -> Result<(), Errno> {
        epoll::modify(&self.0, socket, EventData::new_u64(id as u64), flags)
    }

    /// Waits for events until `until` and stores them in `events`.
    #[inline]
    pub(crate) fn wait(&self, events: &mut Vec<Event>, until: Option<Nanos>) -> Result<(), Error> {
        events.clear();
        let Some(until) = until else { return self.take(events, None) };
        self.take(events, Some(&Timespec::default()))?;
        let left = until.saturating_sub(now());
        if !events.is_empty() || left == Nanos::ZERO {
            return Ok(());
        }
        // epoll_wait(2) counts in milliseconds, ppoll(2) in nanoseconds.
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timespec(left))) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => self.take(events, Some(&Timespec::default())),
            Err(errno) => Err(Error::io("wait for events on connections", errno)),
        }
    }

    #[inline]
    fn take(&self, events: &mut Vec<Event>, timeout: Option<&Timespec>) -> Result<(), Error> {
        match epoll::wait(&self.0, spare_capacity(events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::io("wait for events on connections", errno)),
        }
    }
}

/// `struct epoll_params` of `include/uapi/linux/eventpoll.h` (Linux 6.9).
#[repr(C)]
struct EpollParameters {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    padding: u8,
}

/// `EPIOCSPARAMS`: `_IOW(0x8A, 0x01, struct epoll_params)`.
const SET_PARAMETERS: Opcode = ioctl::opcode::write::<EpollParameters>(0x8a, 1);

fn set_busy_poll(epoll: &OwnedFd, polling: EpollBusyPoll) -> Result<(), Error> {
    let micros = polling.time.as_ns().div_ceil(1000);
    let parameters = EpollParameters {
        busy_poll_usecs: u32::try_from(micros).unwrap_or(u32::MAX),
        busy_poll_budget: polling.budget,
        prefer_busy_poll: u8::from(polling.prefers),
        padding: 0,
    };
    // SAFETY: the opcode is that of this type, which the kernel only reads.
    let setter = unsafe { ioctl::Setter::<SET_PARAMETERS, EpollParameters>::new(parameters) };
    // SAFETY: it sets parameters of an epoll instance, and no memory of ours.
    match unsafe { ioctl::ioctl(epoll, setter) } {
        Ok(()) => Ok(()),
        Err(Errno::NOTTY | Errno::INVAL) => {
            Err(Error::NoOption { option: "epoll_busy_poll (EPIOCSPARAMS, Linux 6.9)" })
        }
        Err(Errno::PERM) => Err(Error::OptionPermission {
            option: "epoll_busy_poll_budget",
            otherwise: ", or use a budget of at most 64",
        }),
        Err(errno) => Err(Error::io("set busy polling of an epoll instance", errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn busy_polling_is_kept_by_the_kernel() {
        let asked = EpollBusyPoll { time: Nanos::from_us(64), budget: 16, prefers: true };
        match Poll::new(Some(asked)) {
            Ok(poll) => {
                const GET: Opcode = ioctl::opcode::read::<EpollParameters>(0x8a, 2);
                // SAFETY: the opcode is that of this type, which the kernel only writes.
                let getter = unsafe { ioctl::Getter::<GET, EpollParameters>::new() };
                // SAFETY: it reads parameters of an epoll instance.
                let kept = unsafe { ioctl::ioctl(&poll.0, getter) }.unwrap();
                let kept = (kept.busy_poll_usecs, kept.busy_poll_budget, kept.prefer_busy_poll);
                assert_eq!(kept, (64, 16, 1));
            }
            Err(error) => assert!(matches!(error, Error::NoOption { .. }), "{error}"),
        }
    }

    #[test]
    fn wait_ends_by_event_or_deadline() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let poll = Poll::new(None).unwrap();
        poll.add(&other, 7, EventFlags::IN).unwrap();
        let mut events = events();
        let until = now() + Nanos::from_us(300);
        while now() < until {
            poll.wait(&mut events, Some(until)).unwrap();
            assert!(events.is_empty());
        }
        one.write_all(b"x").unwrap();
        poll.wait(&mut events, Some(now() + Nanos::from_s(60))).unwrap();
        assert_eq!(events.iter().map(id).collect::<Vec<_>>(), [7]);
        poll.wait(&mut events, None).unwrap();
        assert_eq!(events.len(), 1);
    }
}
