//! The end that accepts. All threads take from one listener.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use latput_units::Nanos;
use rustix::event::epoll::{Event, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use super::{CONTROL, Exchange, PIECE_BYTES};
use crate::clock::now;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::supervise::Link;

/// The listener among what is watched.
const LISTENER: usize = CONTROL - 1;
/// How long a connection may take to show the key.
const PATIENCE: Nanos = Nanos::from_s(1);
/// How often those that take longer are looked for.
const ROUND: Nanos = Nanos::from_ms(100);
/// Connections taken from the kernel in one go, so that a flood cannot keep us from those who are in.
const ACCEPT: usize = 64;
/// A client's next connection may come before its last is seen to be over.
const SPARE: usize = 64;

/// Who may come in, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    pub(crate) listener: &'a TcpListener,
    pub(crate) key: &'a Key,
    pub(crate) wrong_keys: &'a AtomicU64,
}

/// Answers requests until the client closes its control connection.
pub(crate) fn run(
    link: &Link<'_>,
    exchange: &Exchange,
    guard: Guard<'_>,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let poll = Poll::new()?;
    for socket in link.sockets {
        poll.add(socket, CONTROL, EventFlags::IN | EventFlags::RDHUP)?;
    }
    // Exclusive: one thread wakes for one connection.
    poll.add(guard.listener, LISTENER, EventFlags::IN | EventFlags::EXCLUSIVE)?;
    let mut server = Server {
        exchange,
        guard,
        poll,
        visits: Vec::new(),
        free: Vec::new(),
        most: 2 * exchange.connections + SPARE,
        buffer: vec![0; PIECE_BYTES],
        response: vec![0; exchange.response.min(PIECE_BYTES)],
    };
    match server.serve(meter)? {
        End::Over => Ok(()),
        End::Closed => link.closed(None),
    }
}

struct Server<'a> {
    exchange: &'a Exchange,
    guard: Guard<'a>,
    poll: Poll,
    visits: Vec<Option<Visit>>,
    free: Vec<usize>,
    most: usize,
    buffer: Vec<u8>,
    response: Vec<u8>,
}

/// A connection.
struct Visit {
    socket: OwnedFd,
    shown: [u8; Hello::BYTES],
    is_known: bool,
    received: usize,
    sent: usize,
    until: Nanos,
}

/// What came of a turn of a visit.
enum Turn {
    Wait,
    Done,
    /// The client went away in the middle.
    Gone,
    WrongKey,
}

enum End {
    Over,
    Closed,
}

impl Server<'_> {
    fn serve(&mut self, meter: &mut Meter<'_>) -> Result<End, Error> {
        let mut events = poll::events();
        let mut next_round = now() + ROUND;
        loop {
            self.poll.wait(&mut events, Some(next_round))?;
            let now = now();
            if meter.phase(now) == Phase::Over {
                return Ok(End::Over);
            }
            if self.take(&events, now, meter)? {
                return Ok(End::Closed);
            }
            if now >= next_round {
                next_round = now + ROUND;
                self.turn_away_the_slow(now);
            }
        }
    }

    /// Whether the control connection ended.
    fn take(&mut self, events: &[Event], now: Nanos, meter: &mut Meter<'_>) -> Result<bool, Error> {
        for event in events {
            match poll::id(event) {
                CONTROL => return Ok(true),
                LISTENER => self.accept(now, meter)?,
                idx => {
                    self.turn_is_over(idx, meter);
                }
            }
        }
        Ok(false)
    }

    fn accept(&mut self, now: Nanos, meter: &mut Meter<'_>) -> Result<(), Error> {
        for _ in 0..ACCEPT {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = match accept_with(self.guard.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(Error::io("accept a connection on the data port", errno)),
            };
            if self.visits.len() - self.free.len() >= self.most {
                self.guard.wrong_keys.fetch_add(1, Ordering::Relaxed);
                continue; // more than the test has
            }
            let visit = Visit {
                socket,
                shown: [0; Hello::BYTES],
                is_known: false,
                received: 0,
                sent: 0,
                until: now + PATIENCE,
            };
            let idx = self.free.pop().unwrap_or_else(|| {
                self.visits.push(None);
                self.visits.len() - 1
            });
            self.visits[idx] = Some(visit);
            // Under load the request is there already and nothing need be watched.
            if !self.turn_is_over(idx, meter) {
                let visit = self.visits[idx].as_ref().expect("it was not over");
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                self.poll.add(&visit.socket, idx, flags)?;
            }
        }
        Ok(())
    }

    /// Does what can be done on visit `idx`, and closes it when that was all.
    fn turn_is_over(&mut self, idx: usize, meter: &mut Meter<'_>) -> bool {
        let Some(visit) = &mut self.visits[idx] else { return true };
        let turn = visit.go_on(self.exchange, self.guard.key, &mut self.buffer, &self.response);
        match turn {
            Turn::Wait => return false,
            Turn::Done => {
                meter.received(self.exchange.request, 1);
                meter.sent(self.exchange.response);
            }
            Turn::Gone => {}
            Turn::WrongKey => {
                self.guard.wrong_keys.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.close(idx);
        true
    }

    fn turn_away_the_slow(&mut self, now: Nanos) {
        for idx in 0..self.visits.len() {
            let is_slow = |visit: &Visit| !visit.is_known && now >= visit.until;
            if self.visits[idx].as_ref().is_some_and(is_slow) {
                self.guard.wrong_keys.fetch_add(1, Ordering::Relaxed);
                self.close(idx);
            }
        }
    }

    fn close(&mut self, idx: usize) {
        self.visits[idx] = None;
        self.free.push(idx);
    }
}

impl Visit {
    fn go_on(
        &mut self,
        exchange: &Exchange,
        key: &Key,
        buffer: &mut [u8],
        response: &[u8],
    ) -> Turn {
        let whole = Hello::BYTES + exchange.request;
        while self.received < whole {
            let bytes = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                // At the end of the traffic the client leaves before it says anything.
                Ok((0, _)) if self.is_known || self.received == 0 => return Turn::Gone,
                Ok((0, _)) => return Turn::WrongKey,
                Ok((bytes, _)) => bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Turn::Wait,
                Err(_) => return Turn::Gone,
            };
            if !self.is_known {
                let room = &mut self.shown[self.received.min(Hello::BYTES)..];
                let part = room.len().min(bytes);
                room[..part].copy_from_slice(&buffer[..part]);
            }
            self.received += bytes;
            if !self.is_known && self.received >= Hello::BYTES {
                match Hello::decode(&self.shown) {
                    Some(hello) if key.matches(&hello.key) => self.is_known = true,
                    _ => return Turn::WrongKey,
                }
            }
        }
        while self.sent < exchange.response {
            let piece = &response[..response.len().min(exchange.response - self.sent)];
            match send(&self.socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Turn::Wait,
                Err(_) => return Turn::Gone,
            }
        }
        Turn::Done
    }
}
