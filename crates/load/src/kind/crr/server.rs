//! The server end of CRR traffic. All threads accept from one listener.

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

/// The epoll id of the listener.
const LISTENER: usize = CONTROL - 1;
/// The first epoll id of unauthenticated connections.
const FIRST_UNAUTHENTICATED: usize = 1 << (usize::BITS - 2);
/// Interval of the search for expired unauthenticated connections.
const SEARCH_INTERVAL: Nanos = Nanos::from_ms(100);
/// Connections accepted in a row. The limit leaves time for established connections during a flood.
const ACCEPT_BATCH: usize = 64;
/// Events watched on a connection. Registration also reports events that happened before.
const EDGES: EventFlags = EventFlags::IN.union(EventFlags::OUT).union(EventFlags::ET);
/// Spare places: a client's next connection may come before the end of its last one is seen.
const SPARE: usize = 64;

/// Authentication state shared by all threads of a reflector.
#[derive(Debug)]
pub(crate) struct AuthState<'a> {
    listener: &'a TcpListener,
    key: &'a Key,
    auth_failures: &'a AtomicU64,
    /// Connections without a proof. A connection that proves the key at once is never among them.
    unauthenticated: Mutex<UnauthenticatedConns<CrrConn>>,
}

impl<'a> AuthState<'a> {
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

    fn unauthenticated(&self) -> MutexGuard<'_, UnauthenticatedConns<CrrConn>> {
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
    guard: &AuthState<'_>,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let poll = Poll::new(worker.run.polling)?;
    for socket in worker.sockets {
        poll.add(socket, CONTROL, EventFlags::IN | EventFlags::RDHUP)?;
    }
    // Exclusive: one thread wakes for one connection.
    watch_listener(&poll, guard)?;
    let mut server = Server {
        exchange,
        guard,
        poll,
        paused_until: None,
        conns: Vec::new(),
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

fn watch_listener(poll: &Poll, guard: &AuthState<'_>) -> Result<(), Error> {
    poll.add(guard.listener, LISTENER, EventFlags::IN | EventFlags::EXCLUSIVE)
}

struct Server<'a> {
    exchange: &'a Exchange,
    guard: &'a AuthState<'a>,
    poll: Poll,
    /// When the listener is watched again; `None` while it is watched.
    paused_until: Option<Nanos>,
    /// Authenticated connections.
    conns: Vec<Option<CrrConn>>,
    free: Vec<usize>,
    most: usize,
    buffer: Vec<u8>,
    response: Vec<u8>,
}

/// One connection with its transaction.
#[derive(Debug)]
struct CrrConn {
    socket: OwnedFd,
    shown: [u8; Hello::BYTES],
    is_authenticated: bool,
    received: usize,
    sent: usize,
}

/// The state of a connection after its socket was served.
enum ConnState {
    Wait,
    Done,
    /// The client closed in the middle of the transaction.
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
        let mut next_search = now() + SEARCH_INTERVAL;
        loop {
            let until = self.paused_until.map_or(next_search, |until| until.min(next_search));
            self.poll.wait(&mut events, Some(until))?;
            let now = now();
            if meter.phase(now) == Phase::Over {
                return Ok(End::Over);
            }
            if self.handle_events(&events, now, meter)? {
                return Ok(End::Closed);
            }
            if now >= next_search {
                next_search = now + SEARCH_INTERVAL;
                while let Some(slow) = { self.guard.unauthenticated().take_expired(now) } {
                    self.guard.count_wrong_key();
                    drop(slow);
                }
            }
            if self.paused_until.is_some_and(|until| now >= until) {
                self.paused_until = None;
                watch_listener(&self.poll, self.guard)?;
            }
        }
    }

    /// Handles events. Returns whether the control connection ended.
    fn handle_events(
        &mut self,
        events: &[Event],
        now: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<bool, Error> {
        for event in events {
            match poll::id(event) {
                CONTROL => return Ok(true),
                LISTENER => self.accept(now, meter)?,
                id if id >= FIRST_UNAUTHENTICATED => {
                    self.serve_pending_conn((id - FIRST_UNAUTHENTICATED) as u64, meter)?;
                }
                idx => self.serve_conn(idx, meter),
            }
        }
        Ok(false)
    }

    fn accept(&mut self, now: Nanos, meter: &mut Meter<'_>) -> Result<(), Error> {
        for _ in 0..ACCEPT_BATCH {
            let accepted = accept(self.guard.listener);
            match accepted.map_err(|e| Error::io("accept a connection on the data port", e))? {
                Accepted::Connection(socket, _) => self.admit(socket, now, meter)?,
                Accepted::Gone => {}
                Accepted::None => return Ok(()),
                Accepted::NoRoom => return self.make_room(now),
            }
        }
        Ok(())
    }

    /// Closes the oldest unauthenticated connection to free its descriptor. If there is none, stops
    /// watching the listener for [`ACCEPT_PAUSE`], so that it does not keep the thread awake.
    fn make_room(&mut self, now: Nanos) -> Result<(), Error> {
        let oldest = self.guard.unauthenticated().take_oldest();
        if oldest.is_some() {
            self.guard.count_wrong_key();
        } else if self.paused_until.is_none() {
            self.poll.remove(self.guard.listener)?;
            self.paused_until = Some(now + ACCEPT_PAUSE);
        }
        Ok(())
    }

    fn admit(&mut self, socket: OwnedFd, now: Nanos, meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut conn = CrrConn {
            socket,
            shown: [0; Hello::BYTES],
            is_authenticated: false,
            received: 0,
            sent: 0,
        };
        // Under load the request has arrived already and the connection needs no registration.
        if self.serve_and_check_over(&mut conn, meter) {
            return Ok(());
        }
        if conn.is_authenticated {
            return self.register_conn(conn);
        }
        let conn = self.guard.unauthenticated().enter(conn, now);
        self.poll.add(&conn.connection.socket, id_of(conn.number), EDGES)?;
        self.store_pending_conn(conn, meter)
    }

    /// Serves unauthenticated connection `number`.
    fn serve_pending_conn(&mut self, number: u64, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Some(mut conn) = self.guard.unauthenticated().take(number) else { return Ok(()) };
        if self.serve_and_check_over(&mut conn.connection, meter) {
            return Ok(());
        }
        if !conn.connection.is_authenticated {
            return self.store_pending_conn(conn, meter);
        }
        self.poll.remove(&conn.connection.socket)?;
        self.register_conn(conn.connection)
    }

    /// Stores an unauthenticated connection. If there are too many, serves the oldest once more
    /// (its own thread may be late), then closes it if it still lacks a proof.
    fn store_pending_conn(
        &mut self,
        conn: UnauthenticatedConn<CrrConn>,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        let oldest = self.guard.unauthenticated().put(conn);
        let Some(mut conn) = oldest.map(|oldest| oldest.connection) else { return Ok(()) };
        if self.serve_and_check_over(&mut conn, meter) {
            return Ok(());
        }
        if conn.is_authenticated {
            return self.register_conn(conn);
        }
        self.guard.count_wrong_key();
        Ok(())
    }

    /// Registers an authenticated connection.
    fn register_conn(&mut self, conn: CrrConn) -> Result<(), Error> {
        let Some(idx) = self.take_free_index() else { return Ok(()) };
        self.poll.add(&conn.socket, idx, EDGES)?;
        self.conns[idx] = Some(conn);
        Ok(())
    }

    /// A free index for an authenticated connection; `None` if there are more than the workload
    /// has.
    fn take_free_index(&mut self) -> Option<usize> {
        if let Some(idx) = self.free.pop() {
            return Some(idx);
        }
        if self.conns.len() >= self.most {
            self.guard.count_wrong_key();
            return None;
        }
        self.conns.push(None);
        Some(self.conns.len() - 1)
    }

    /// Serves connection `idx` and closes it once its transaction is over.
    fn serve_conn(&mut self, idx: usize, meter: &mut Meter<'_>) {
        let Some(mut conn) = self.conns[idx].take() else { return };
        if self.serve_and_check_over(&mut conn, meter) {
            self.free.push(idx);
        } else {
            self.conns[idx] = Some(conn);
        }
    }

    /// Serves a connection. Returns whether its transaction is over.
    fn serve_and_check_over(&mut self, conn: &mut CrrConn, meter: &mut Meter<'_>) -> bool {
        match conn.serve(self.exchange, self.guard.key, &mut self.buffer, &self.response) {
            ConnState::Wait => return false,
            ConnState::Done => {
                meter.received(self.exchange.request, 1);
                meter.sent(self.exchange.response);
            }
            ConnState::Gone => {}
            ConnState::WrongKey => self.guard.count_wrong_key(),
        }
        true
    }
}

fn id_of(conn: u64) -> usize {
    FIRST_UNAUTHENTICATED
        + usize::try_from(conn).expect("an end sees fewer connections than addresses")
}

impl CrrConn {
    fn serve(
        &mut self,
        exchange: &Exchange,
        key: &Key,
        buffer: &mut [u8],
        response: &[u8],
    ) -> ConnState {
        let whole = Hello::BYTES + exchange.request;
        while self.received < whole {
            let bytes = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                // At the end of the traffic the client closes without a request.
                Ok((0, _)) if self.is_authenticated || self.received == 0 => {
                    return ConnState::Gone;
                }
                Ok((0, _)) => return ConnState::WrongKey,
                Ok((bytes, _)) => bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return ConnState::Wait,
                Err(_) => return ConnState::Gone,
            };
            if !self.is_authenticated {
                let room = &mut self.shown[self.received.min(Hello::BYTES)..];
                let part = room.len().min(bytes);
                room[..part].copy_from_slice(&buffer[..part]);
            }
            self.received += bytes;
            if !self.is_authenticated && self.received >= Hello::BYTES {
                if Hello::decode(&self.shown, key).is_none() {
                    return ConnState::WrongKey;
                }
                self.is_authenticated = true;
            }
        }
        while self.sent < exchange.response {
            let piece = &response[..response.len().min(exchange.response - self.sent)];
            match send(&self.socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return ConnState::Wait,
                Err(_) => return ConnState::Gone,
            }
        }
        ConnState::Done
    }
}
