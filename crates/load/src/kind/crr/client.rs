//! The client end of CRR traffic.

use std::net::TcpStream;

use latput_stats::Histogram;
use latput_trial::SocketOptions;
use latput_units::Nanos;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

use super::{CONTROL, Exchange, PIECE_BYTES};
use crate::clock::{self, now};
use crate::dial;
use crate::error::Error;
use crate::hello::Hello;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::socket;
use crate::workers::WorkerContext;

/// Attempts at one transaction. A server with too many unauthenticated connections closes the
/// oldest, which may be one of this client.
const MOST_ATTEMPTS: u32 = 32;

/// Makes transactions until the meter reports the end or the server closes.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    exchange: &Exchange,
    options: &SocketOptions,
    hello: &Hello,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    meter.tally.latency = Some(Histogram::new());
    let poll = Poll::new(worker.run.polling)?;
    for socket in worker.sockets {
        poll.add(socket, CONTROL, EventFlags::IN | EventFlags::RDHUP)?;
    }
    let threads = worker.run.sockets.len();
    let share = |thread: usize| exchange.connections * thread / threads;
    let mut caller = Caller {
        worker,
        exchange,
        options,
        poll,
        request: [&hello.encode()[..], &vec![0; exchange.request]].concat(),
        buffer: vec![0; exchange.response.clamp(1, PIECE_BYTES)],
        calls: Vec::new(),
    };
    for idx in 0..share(worker.thread + 1) - share(worker.thread) {
        let call = caller.connect(idx, now(), 1)?;
        caller.calls.push(call);
    }
    match caller.serve(meter)? {
        End::Over => Ok(()),
        End::Closed(errno) => worker.closed(errno),
    }
}

struct Caller<'a> {
    worker: &'a WorkerContext<'a>,
    exchange: &'a Exchange,
    options: &'a SocketOptions,
    poll: Poll,
    request: Vec<u8>,
    buffer: Vec<u8>,
    calls: Vec<Call>,
}

/// One transaction in progress.
struct Call {
    socket: TcpStream,
    started: Nanos,
    /// Attempts so far.
    attempts: u32,
    sent: usize,
    received: usize,
}

enum End {
    Over,
    Closed(Option<Errno>),
}

impl Caller<'_> {
    fn serve(&mut self, meter: &mut Meter<'_>) -> Result<End, Error> {
        let mut events = poll::events();
        loop {
            self.poll.wait(&mut events, None)?;
            for event in &events {
                let idx = poll::id(event);
                if idx == CONTROL {
                    return Ok(End::Closed(None)); // nothing is ever said on it
                }
                let result = self.serve_transaction(idx);
                let now = now();
                if meter.phase(now) == Phase::Over {
                    return Ok(End::Over);
                }
                let next = match result {
                    Ok(false) => continue,
                    Err(_) if self.is_rejected(idx) => {
                        let Call { started, attempts, .. } = self.calls[idx];
                        self.connect(idx, started, attempts + 1)
                    }
                    Err(errno) => return Ok(End::Closed(errno)),
                    Ok(true) => {
                        meter.received(self.exchange.response, 1);
                        meter.sent(self.exchange.request);
                        meter.round_trips(self.calls[idx].started, now, 1);
                        meter.done(now, 1);
                        self.connect(idx, clock::now(), 1)
                    }
                };
                self.calls[idx] = match next {
                    // The listener closes before the end-of-run message arrives on the control
                    // connection.
                    Err(Error::Refused { .. }) => {
                        return Ok(End::Closed(Some(Errno::CONNREFUSED)));
                    }
                    call => call?,
                };
            }
        }
    }

    /// Whether the server closed connection `idx` without an answer and still serves the run.
    fn is_rejected(&self, idx: usize) -> bool {
        let call = &self.calls[idx];
        call.received == 0
            && call.attempts < MOST_ATTEMPTS
            && !self.worker.is_ending()
            && !self.worker.peer_closed()
    }

    /// Connects for transaction `idx`, which began at `started`. Closes the connection that it
    /// replaces.
    fn connect(&self, idx: usize, started: Nanos, attempts: u32) -> Result<Call, Error> {
        let socket = dial::begin(self.worker.peer, |socket| {
            let nodelay = if self.exchange.nodelay { socket.set_tcp_nodelay(true) } else { Ok(()) };
            nodelay.map_err(|source| Error::io("set TCP_NODELAY", source))?;
            socket::apply(socket, self.options)
        })?;
        // Edge-triggered: one registration reports the connect, the response and the close.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.poll.add(&socket, idx, flags)?;
        Ok(Call { socket, started, attempts, sent: 0, received: 0 })
    }

    /// Sends and receives on transaction `idx` without waiting. Returns whether the transaction is
    /// complete.
    fn serve_transaction(&mut self, idx: usize) -> Result<bool, Option<Errno>> {
        let call = &mut self.calls[idx];
        while call.sent < self.request.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&call.socket, &self.request[call.sent..], flags) {
                Ok(sent) => call.sent += sent,
                Err(Errno::INTR) => {}
                // Not connected yet, or the send buffer is full.
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(false),
                // For a failed connect the socket has the reason.
                Err(errno) => return Err(Some(pending_error(&call.socket).unwrap_or(errno))),
            }
        }
        loop {
            match recv(&call.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) if call.received == self.exchange.response => return Ok(true),
                Ok((0, _)) => return Err(Some(Errno::CONNRESET)),
                Ok((bytes, _)) => call.received += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(Some(errno)),
            }
        }
    }
}

fn pending_error(socket: &TcpStream) -> Option<Errno> {
    let error = SockRef::from(socket).take_error().ok().flatten()?;
    Errno::from_io_error(&error)
}
