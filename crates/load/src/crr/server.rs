//! The end that accepts. All threads take from one listener.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use latput_units::Nanos;
use rustix::event::epoll::{Event, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{CONTROL, Exchange, PIECE_BYTES};
use crate::clock::now;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::unauthenticated::{
    ACCEPT_PAUSE, Accepted, UnauthenticatedConn, UnauthenticatedConns, accept,
};
use crate::workers::WorkerContext;

/// The listener among what is watched.
const LISTENER: usize = CONTROL - 1;
/// Among what is watched, connections that have not shown the key begin here.
const STRANGERS: usize = 1 << (usize::BITS - 2);
/// How often connections that take too long to show the key are looked for.
const ROUND: Nanos = Nanos::from_ms(100);
/// Connections taken from the kernel in one go, so that a flood cannot keep us from those who are in.
const ACCEPT_BATCH: usize = 64;
/// What is watched of a connection. Adding it tells also of what was there before.
const EDGES: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::ET);
/// A client's next connection may come before its last is seen to be over.
const SPARE: usize = 64;

/// Who may come in, and how: the same for all threads of a reflector.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    listener: &'a TcpListener,
    key: &'a Key,
    auth_failures: &'a AtomicU64,
    /// Whoever shows the key at once is never among them.
    unauthenticated: Mutex<UnauthenticatedConns<Visit>>,
}

impl<'a> Guard<'a> {
    pub(crate) fn new(
        listener: &'a TcpListener,
        key: &'a Key,
        auth_failures: &'a AtomicU64,
    ) -> Self {
        Self {
            listener,
            key,
            auth_failures,
            unauthenticated: Mutex::new(UnauthenticatedConns::new()),
        }
    }

    fn unauthenticated(&self) -> MutexGuard<'_, UnauthenticatedConns<Visit>> {
        self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_wrong_key(&self) {
        self.auth_failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers requests until the client closes its control connection.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    exchange: &Exchange,
    guard: &Guard<'_>,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let poll = Poll::new()?;
    for socket in worker.sockets {
        poll.add(socket, CONTROL, EventFlags::IN | EventFlags::RDHUP)?;
    }
    // Exclusive: one thread wakes for one connection.
    watch_listener(&poll, guard)?;
    let mut server = Server {
        exchange,
        guard,
        poll,
        rests_until: None,
        visits: Vec::new(),
        free: Vec::new(),
        most: 2 * exchange.connections + SPARE,
        buffer: vec![0; PIECE_BYTES],
        response: vec![0; exchange.response.min(PIECE_BYTES)],
    };
    match server.serve(meter)? {
        End::Over => Ok(()),
        End::Closed => worker.closed(None),
    }
}

fn watch_listener(poll: &Poll, guard: &Guard<'_>) -> Result<(), Error> {
    poll.add(guard.listener, LISTENER, EventFlags::IN | EventFlags::EXCLUSIVE)
}

struct Server<'a> {
    exchange: &'a Exchange,
    guard: &'a Guard<'a>,
    poll: Poll,
    /// Until when the listener is not watched.
    rests_until: Option<Nanos>,
    /// Connections that showed the key.
    visits: Vec<Option<Visit>>,
    free: Vec<usize>,
    most: usize,
    buffer: Vec<u8>,
    response: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
struct Visit {
    socket: OwnedFd,
    shown: [u8; Hello::BYTES],
    is_known: bool,
    received: usize,
    sent: usize,
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
            let until = self.rests_until.map_or(next_round, |until| until.min(next_round));
            self.poll.wait(&mut events, Some(until))?;
            let now = now();
            if meter.phase(now) == Phase::Over {
                return Ok(End::Over);
            }
            if self.take(&events, now, meter)? {
                return Ok(End::Closed);
            }
            if now >= next_round {
                next_round = now + ROUND;
                while let Some(slow) = { self.guard.unauthenticated().take_expired(now) } {
                    self.guard.count_wrong_key();
                    drop(slow);
                }
            }
            if self.rests_until.is_some_and(|until| now >= until) {
                self.rests_until = None;
                watch_listener(&self.poll, self.guard)?;
            }
        }
    }

    /// Whether the control connection ended.
    fn take(&mut self, events: &[Event], now: Nanos, meter: &mut Meter<'_>) -> Result<bool, Error> {
        for event in events {
            match poll::id(event) {
                CONTROL => return Ok(true),
                LISTENER => self.accept(now, meter)?,
                id if id >= STRANGERS => self.look_at((id - STRANGERS) as u64, meter)?,
                idx => self.go_on_with(idx, meter),
            }
        }
        Ok(false)
    }

    fn accept(&mut self, now: Nanos, meter: &mut Meter<'_>) -> Result<(), Error> {
        for _ in 0..ACCEPT_BATCH {
            let accepted = accept(self.guard.listener);
            match accepted.map_err(|e| Error::io("accept a connection on the data port", e))? {
                Accepted::Connection(socket, _) => self.welcome(socket, now, meter)?,
                Accepted::Gone => {}
                Accepted::None => return Ok(()),
                Accepted::NoRoom => return self.make_room(now),
            }
        }
        Ok(())
    }

    /// Gives a conn's descriptor to who waits in the kernel. Where there is no conn, leaves the
    /// listener alone for a moment, so that it does not keep the thread awake.
    fn make_room(&mut self, now: Nanos) -> Result<(), Error> {
        let oldest = self.guard.unauthenticated().take_oldest();
        if oldest.is_some() {
            self.guard.count_wrong_key();
        } else if self.rests_until.is_none() {
            self.poll.remove(self.guard.listener)?;
            self.rests_until = Some(now + ACCEPT_PAUSE);
        }
        Ok(())
    }

    fn welcome(&mut self, socket: OwnedFd, now: Nanos, meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut visit =
            Visit { socket, shown: [0; Hello::BYTES], is_known: false, received: 0, sent: 0 };
        // Under load the request is there already and nothing need be watched.
        if self.turn_is_over(&mut visit, meter) {
            return Ok(());
        }
        if visit.is_known {
            return self.keep(visit);
        }
        let conn = self.guard.unauthenticated().enter(visit, now);
        self.poll.add(&conn.connection.socket, id_of(conn.number), EDGES)?;
        self.put(conn, meter)
    }

    /// Does what can be done on the connection of conn `number`.
    fn look_at(&mut self, number: u64, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Some(mut conn) = self.guard.unauthenticated().take(number) else { return Ok(()) };
        if self.turn_is_over(&mut conn.connection, meter) {
            return Ok(());
        }
        if !conn.connection.is_known {
            return self.put(conn, meter);
        }
        self.poll.remove(&conn.connection.socket)?;
        self.keep(conn.connection)
    }

    /// Puts a connection among those without the key, and turns the oldest away where there are too
    /// many: unless it has shown the key by now, for its own thread may be late.
    fn put(
        &mut self,
        conn: UnauthenticatedConn<Visit>,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        let oldest = self.guard.unauthenticated().put(conn);
        let Some(mut visit) = oldest.map(|oldest| oldest.connection) else { return Ok(()) };
        if self.turn_is_over(&mut visit, meter) {
            return Ok(());
        }
        if visit.is_known {
            return self.keep(visit);
        }
        self.guard.count_wrong_key();
        Ok(())
    }

    /// Watches a connection that showed the key.
    fn keep(&mut self, visit: Visit) -> Result<(), Error> {
        let Some(idx) = self.place() else { return Ok(()) };
        self.poll.add(&visit.socket, idx, EDGES)?;
        self.visits[idx] = Some(visit);
        Ok(())
    }

    /// A free place among those that showed the key; `None` where there are more than the test has.
    fn place(&mut self) -> Option<usize> {
        if let Some(idx) = self.free.pop() {
            return Some(idx);
        }
        if self.visits.len() >= self.most {
            self.guard.count_wrong_key();
            return None;
        }
        self.visits.push(None);
        Some(self.visits.len() - 1)
    }

    /// Does what can be done on visit `idx`, and closes it when that was all.
    fn go_on_with(&mut self, idx: usize, meter: &mut Meter<'_>) {
        let Some(mut visit) = self.visits[idx].take() else { return };
        if self.turn_is_over(&mut visit, meter) {
            self.free.push(idx);
        } else {
            self.visits[idx] = Some(visit);
        }
    }

    /// Does what can be done on `visit`; whether that was all.
    fn turn_is_over(&mut self, visit: &mut Visit, meter: &mut Meter<'_>) -> bool {
        match visit.go_on(self.exchange, self.guard.key, &mut self.buffer, &self.response) {
            Turn::Wait => return false,
            Turn::Done => {
                meter.received(self.exchange.request, 1);
                meter.sent(self.exchange.response);
            }
            Turn::Gone => {}
            Turn::WrongKey => self.guard.count_wrong_key(),
        }
        true
    }
}

fn id_of(conn: u64) -> usize {
    STRANGERS + usize::try_from(conn).expect("an end sees fewer connections than addresses")
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
                if Hello::decode(&self.shown, key).is_none() {
                    return Turn::WrongKey;
                }
                self.is_known = true;
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
