//! Bulk on TCP in one or both directions. Senders send without pause or at a rate, receivers count.

mod pace;

use std::io::IoSlice;
use std::net::TcpStream;

use latput_trial::Direction;
use latput_units::BitsPerSecond;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};

use self::pace::Pace;
use crate::clock::now;
use crate::error::Error;
use crate::kind::udp::sharpen_sleep;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::workers::WorkerContext;

/// Size of a read: four default sends, which fit a core's second-level cache.
const READ_BYTES: usize = 128 * 1024;

/// Rounds over the ready connections before epoll is called again. With few connections one epoll
/// call per message costs several per cent of the rate. Other connections wait for this many
/// messages at most.
const TURNS: u32 = 8;

/// Messages of one vectored send. Their packets leave as one burst, which wakes the far end's NAPI
/// once.
const VECTOR: usize = 8;

/// The bulk traffic of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    pub(crate) direction: Direction,
    /// Size of one send.
    pub(crate) message: usize,
    /// Payload rate of all connections in one direction.
    pub(crate) rate: Option<BitsPerSecond>,
    /// Whether a thread with several connections sends several messages in one call.
    pub(crate) vectored: bool,
}

/// Moves bulk on this thread's connections until the meter reports the end or the other end closes.
/// For both directions the first half of the connections leads to the system under test.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    bulk: &Bulk,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let half = worker.run.sockets.len() / 2;
    let sends = |place: usize| match bulk.direction {
        Direction::ToSut => worker.run.leads,
        Direction::FromSut => !worker.run.leads,
        Direction::Both => (place < half) == worker.run.leads,
    };
    let senders = worker.places.clone().filter(|place| sends(*place)).count();
    let all_senders = (0..worker.run.sockets.len()).filter(|place| sends(*place)).count();
    let pace = bulk.rate.filter(|_| senders > 0).map(|rate| {
        sharpen_sleep();
        let share = senders as f64 / all_senders as f64;
        Pace::new(rate, share, bulk.message, now())
    });
    let mut mover = Mover {
        worker,
        meter,
        message: vec![0; if senders > 0 { bulk.message } else { 0 }],
        buffer: vec![0; if senders < worker.sockets.len() { READ_BYTES } else { 0 }],
        vector: if bulk.vectored { VECTOR } else { 1 },
        unit: bulk.message as u64,
        part_of_unit: 0,
    };
    let end = match (worker.sockets, pace) {
        ([socket], None) => mover.without_pause(socket, senders == 1),
        (sockets, pace) => {
            let roles: Vec<bool> = worker.places.clone().map(sends).collect();
            mover.take_turns(sockets, &roles, pace)?
        }
    };
    match end {
        End::Over => Ok(()),
        End::Closed(errno) => worker.closed(errno),
    }
}

/// The state of one thread.
struct Mover<'a, 'm> {
    worker: &'a WorkerContext<'a>,
    meter: &'a mut Meter<'m>,
    message: Vec<u8>,
    buffer: Vec<u8>,
    /// Messages of one send call.
    vector: usize,
    /// Bytes of a counted unit, and received bytes of the next one.
    unit: u64,
    part_of_unit: u64,
}

/// The reason for the end of the traffic.
enum End {
    Over,
    Closed(Option<Errno>),
}

impl Mover<'_, '_> {
    /// Serves one connection with blocking calls.
    fn without_pause(&mut self, socket: &TcpStream, sends: bool) -> End {
        loop {
            let end = if sends {
                self.send(socket, usize::MAX, SendFlags::empty()).map(drop)
            } else {
                self.receive(socket, RecvFlags::empty()).map(drop)
            };
            if let Err(end) = end {
                return end;
            }
        }
    }

    /// Serves many connections, or one with a rate: one send or read on each ready connection in
    /// turn, while the kernel completes them.
    fn take_turns(
        &mut self,
        sockets: &[TcpStream],
        sends: &[bool],
        mut pace: Option<Pace>,
    ) -> Result<End, Error> {
        let poll = Poll::new(self.worker.run.polling)?;
        for (idx, socket) in sockets.iter().enumerate() {
            let flags = match (sends[idx], &pace) {
                (true, None) => EventFlags::OUT,
                (true, Some(_)) => EventFlags::RDHUP, // sent to when it is due, whatever is ready
                (false, _) => EventFlags::IN,
            };
            poll.add(socket, idx, flags)?;
        }
        let senders: Vec<&TcpStream> =
            sockets.iter().zip(sends).filter(|(_, sends)| **sends).map(|(it, _)| it).collect();
        // Due messages do not wait for reads.
        let turns = if pace.is_some() { 1 } else { TURNS };
        let mut events = poll::events();
        let mut next = 0;
        loop {
            let until = match pace.as_mut().map(|pace| self.send_due(pace, &senders, &mut next)) {
                Some(Err(end)) => return Ok(end),
                Some(Ok(())) => pace.as_ref().map(Pace::next_due),
                None => None,
            };
            poll.wait(&mut events, until)?;
            if pace.is_some() && events.iter().any(|event| sends[poll::id(event)]) {
                return Ok(End::Closed(None)); // nothing but its end is reported of a paced sender
            }
            for _ in 0..turns {
                let mut still_ready = 0;
                for place in 0..events.len() {
                    let idx = poll::id(&events[place]);
                    match self.turn(&sockets[idx], sends[idx]) {
                        Err(end) => return Ok(end),
                        Ok(false) => {}
                        Ok(true) => {
                            events.swap(still_ready, place);
                            still_ready += 1;
                        }
                    }
                }
                events.truncate(still_ready);
            }
        }
    }

    /// Makes one send or read. Returns whether the kernel completed it.
    #[inline]
    fn turn(&mut self, socket: &TcpStream, sends: bool) -> Result<bool, End> {
        if sends {
            return self.send_several(socket);
        }
        let got = self.receive(socket, RecvFlags::DONTWAIT)?;
        Ok(got == self.buffer.len())
    }

    /// Sends several messages in one call. Returns whether the kernel took them all.
    #[inline]
    fn send_several(&mut self, socket: &TcpStream) -> Result<bool, End> {
        let messages = [IoSlice::new(&self.message); VECTOR];
        let messages = &messages[..self.vector];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(socket, messages, &mut SendAncillaryBuffer::default(), flags);
        let all = self.vector * self.message.len();
        Ok(self.count_sent(sent)? == all)
    }

    /// Sends the due messages on the connections in turn.
    fn send_due(
        &mut self,
        pace: &mut Pace,
        senders: &[&TcpStream],
        next: &mut usize,
    ) -> Result<(), End> {
        let now = now();
        if self.meter.phase(now) == Phase::Over {
            return Err(End::Over);
        }
        let mut full = 0;
        while full < senders.len() {
            let owed = pace.owed(now);
            if owed == 0 {
                return Ok(());
            }
            let socket = senders[*next % senders.len()];
            *next += 1;
            match self.send(socket, owed, SendFlags::DONTWAIT)? {
                0 => full += 1,
                sent => pace.sent(sent),
            }
        }
        pace.held_up(now);
        Ok(())
    }

    /// Sends a message, or `most` bytes of it. Returns how many the kernel took.
    #[inline]
    fn send(&mut self, socket: &TcpStream, most: usize, flags: SendFlags) -> Result<usize, End> {
        let message = &self.message[..self.message.len().min(most)];
        let sent = send(socket, message, flags | SendFlags::NOSIGNAL);
        self.count_sent(sent)
    }

    #[inline]
    fn count_sent(&mut self, sent: Result<usize, Errno>) -> Result<usize, End> {
        match sent {
            Ok(bytes) => self.count(bytes, true).map(|()| bytes),
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(errno) => Err(End::Closed(Some(errno))),
        }
    }

    /// Reads once. Returns the number of bytes.
    #[inline]
    fn receive(&mut self, socket: &TcpStream, flags: RecvFlags) -> Result<usize, End> {
        match recv(socket, &mut self.buffer[..], flags) {
            Ok((0, _)) => Err(End::Closed(None)),
            Ok((bytes, _)) => self.count(bytes, false).map(|()| bytes),
            Err(Errno::INTR | Errno::AGAIN) => Ok(0),
            Err(errno) => Err(End::Closed(Some(errno))),
        }
    }

    #[inline]
    fn count(&mut self, bytes: usize, sent: bool) -> Result<(), End> {
        let now = now();
        match self.meter.phase(now) {
            Phase::Over => return Err(End::Over),
            Phase::WarmUp | Phase::CoolDown => return Ok(()),
            Phase::Cut | Phase::Window => {}
        }
        if sent {
            self.meter.sent(bytes);
        } else {
            self.meter.received(bytes, 0);
        }
        if self.worker.run.leads {
            self.part_of_unit += bytes as u64;
            self.meter.done(now, self.part_of_unit / self.unit);
            self.part_of_unit %= self.unit;
        }
        Ok(())
    }
}
