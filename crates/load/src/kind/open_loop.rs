//! Open-loop requests on TCP: each leaves at its due time, whether or not responses came.
//!
//! A closed loop waits for a slow response before it sends the next request, so it does not measure
//! the requests that it delayed (coordinated omission). Here every request keeps its due time. A
//! request that leaves late counts from its due time.

use std::collections::VecDeque;
use std::net::TcpStream;

use latput_trial::Arrivals;
use latput_units::Nanos;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::clock::now;
use crate::error::Error;
use crate::kind::udp::sharpen_sleep;
use crate::meter::{Meter, Phase};
use crate::poll;
use crate::schedule::{Schedule, Share};
use crate::wait::Waiter;
use crate::workers::WorkerContext;

/// Largest read.
const READ_BYTES: usize = 128 * 1024;
/// Requests sent before responses are read again.
const GROUP: usize = 64;
/// Longest wait without a check of the trial's phase.
const LONGEST_WAIT: Nanos = Nanos::from_ms(20);

/// The exchange of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: usize,
    pub(crate) response: usize,
    /// Whether each request leaves as a segment of its own.
    pub(crate) separate: bool,
    pub(crate) arrivals: Arrivals,
    pub(crate) share: Share,
}

/// Sends requests until the meter reports the end or the other end closes.
pub(crate) fn ask(
    worker: &WorkerContext<'_>,
    exchange: &Exchange,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    sharpen_sleep();
    meter.measure_open_loop();
    let message = vec![0_u8; exchange.request];
    let eor = if exchange.separate { SendFlags::EOR } else { SendFlags::empty() };
    let mut client = Client {
        exchange,
        message: &message,
        flags: eor | SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        connections: worker.sockets.iter().map(Connection::new).collect(),
        changed: Vec::new(),
        turn: 0,
        buffer: vec![0; READ_BYTES],
    };
    let mut waiter = Waiter::reading(worker.sockets, worker.run.polling)?;
    let mut schedule = Schedule::new(exchange.arrivals, exchange.share, now());
    loop {
        let until = if client.all_blocked() { now() + LONGEST_WAIT } else { schedule.next() };
        let mut ready = waiter.wait(until.min(now() + LONGEST_WAIT))?;
        let ended = ready.try_for_each(|event| client.turn(poll::id(&event), event.flags, meter));
        drop(ready);
        let now = now();
        let phase = meter.phase(now);
        let ended = ended.and_then(|()| client.send_due(&mut schedule, now, meter));
        let ended = ended.and_then(|()| client.watch_blocked(&waiter));
        match ended {
            Ok(()) if phase == Phase::Over => break,
            Ok(()) => {}
            Err(errno) => {
                worker.closed(errno)?;
                break;
            }
        }
    }
    meter.close_schedule(schedule);
    Ok(())
}

/// The requesting end of one thread.
struct Client<'a> {
    exchange: &'a Exchange,
    message: &'a [u8],
    flags: SendFlags,
    connections: Vec<Connection<'a>>,
    /// Connections whose blocked state changed since epoll was last updated.
    changed: Vec<usize>,
    turn: usize,
    buffer: Vec<u8>,
}

/// One connection. TCP keeps order, so the first response belongs to the first request.
struct Connection<'a> {
    socket: &'a TcpStream,
    /// Due time and send time of each request in flight.
    in_flight: VecDeque<(Nanos, Nanos)>,
    /// Received bytes of an incomplete response.
    partial_in: usize,
    /// Sent bytes of an incomplete request; 0 without one.
    partial_out: usize,
    /// Whether the send buffer is full. Epoll reports when it has room.
    blocked: bool,
    watched: bool,
}

/// The reason for the end of a connection: its error, or `None` for the end of file.
type Closed = Option<Errno>;

impl Client<'_> {
    /// Serves a ready connection: reads responses and continues blocked sends.
    fn turn(
        &mut self,
        idx: usize,
        events: EventFlags,
        meter: &mut Meter<'_>,
    ) -> Result<(), Closed> {
        if events.contains(EventFlags::OUT) {
            meter.phase(now());
            self.go_on(idx, meter)?;
        }
        if events == EventFlags::OUT {
            return Ok(());
        }
        let connection = &mut self.connections[idx];
        let bytes = match recv(connection.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(None),
            Ok((bytes, _)) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(Some(errno)),
        };
        let now = now();
        meter.phase(now);
        connection.partial_in += bytes;
        let responses = connection.partial_in / self.exchange.response;
        connection.partial_in %= self.exchange.response;
        meter.done(now, responses as u64);
        for _ in 0..responses {
            // Extra responses of the peer are no round trips.
            let Some((due, sent_at)) = connection.in_flight.pop_front() else { break };
            meter.received(0, 1);
            meter.open_round_trip(due, sent_at, now);
        }
        meter.received(bytes, 0);
        Ok(())
    }

    /// Sends the requests due by `now` on the connections in turn. Skips connections with a full
    /// send buffer; their requests stay due.
    fn send_due(
        &mut self,
        schedule: &mut Schedule,
        now: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<(), Closed> {
        let mut passed_over = 0;
        for _ in 0..GROUP {
            while passed_over < self.connections.len() && self.connections[self.turn].blocked {
                self.turn = (self.turn + 1) % self.connections.len();
                passed_over += 1;
            }
            if passed_over == self.connections.len() || schedule.next() >= now {
                break;
            }
            let sent_at = crate::clock::now();
            if self.push(self.turn, meter)? == 0 {
                continue; // it is blocked now
            }
            if let Some(due) = schedule.take_before(now) {
                meter.enter_scheduled(due, sent_at);
                self.connections[self.turn].in_flight.push_back((due, sent_at));
            }
            self.turn = (self.turn + 1) % self.connections.len();
            passed_over = 0;
        }
        Ok(())
    }

    /// Continues an incomplete request, then unblocks the connection.
    fn go_on(&mut self, idx: usize, meter: &mut Meter<'_>) -> Result<(), Closed> {
        self.connections[idx].blocked = false;
        self.changed.push(idx);
        if self.connections[idx].partial_out > 0 {
            self.push(idx, meter)?;
        }
        Ok(())
    }

    /// Sends the rest of a request. Returns how many bytes the kernel took.
    fn push(&mut self, idx: usize, meter: &mut Meter<'_>) -> Result<usize, Closed> {
        let connection = &mut self.connections[idx];
        let rest = &self.message[connection.partial_out..];
        let sent = match send(connection.socket, rest, self.flags) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(Some(errno)),
        };
        connection.blocked = sent < rest.len();
        if connection.blocked {
            self.changed.push(idx);
        }
        connection.partial_out = (connection.partial_out + sent) % self.message.len();
        meter.sent(sent);
        Ok(sent)
    }

    fn all_blocked(&self) -> bool {
        self.connections.iter().all(|connection| connection.blocked)
    }

    /// Updates epoll for connections whose blocked state changed.
    fn watch_blocked(&mut self, waiter: &Waiter) -> Result<(), Closed> {
        for idx in self.changed.drain(..) {
            let connection = &mut self.connections[idx];
            if connection.blocked != connection.watched {
                connection.watched = connection.blocked;
                waiter.set_writing(connection.socket, idx, connection.blocked)?;
            }
        }
        Ok(())
    }
}

impl<'a> Connection<'a> {
    fn new(socket: &'a TcpStream) -> Self {
        Self {
            socket,
            in_flight: VecDeque::new(),
            partial_in: 0,
            partial_out: 0,
            blocked: false,
            watched: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;
    use std::time::Duration;

    use latput_stats::Histogram;
    use latput_trial::Distribution;

    use super::*;
    use crate::clock::Window;
    use crate::kind::rr;
    use crate::meter::Tally;
    use crate::workers::{Progress, TrafficRun};

    const STALL: Duration = Duration::from_millis(50);
    const RATE: u32 = 2000;

    /// 100 requests are due while the peer stands still; four in five of them wait longer than 10 ms.
    /// A closed loop asks once meanwhile and sees one slow answer.
    #[test]
    fn stall_counts_for_every_due_request() {
        let share = Share { thread: 0, connections: 1, of: 1, generator: None };
        let arrivals = Arrivals { rate_per_s: RATE, gaps: Distribution::Fixed };
        let exchange = Exchange { request: 1, response: 1, separate: true, arrivals, share };
        let asked = with_stalling_peer(|worker, meter| ask(worker, &exchange, meter));
        let (latency, latency_raw) = (asked.latency.unwrap(), asked.latency_raw.unwrap());
        let slow = slower_than_10_ms(&latency);
        // A busy machine makes it more, never fewer.
        assert!(slow >= 70, "{slow} of {}", asked.messages);
        assert!(slow >= slower_than_10_ms(&latency_raw));
        // 400 ms, and one may be under way at each end.
        let schedule = asked.schedule.unwrap();
        assert_eq!(schedule.due, 800);
        assert!(schedule.sent + schedule.backlog >= 799, "{schedule:?}");
        assert_eq!(latency.count(), asked.messages);

        let side = rr::Side { incoming: 1, outgoing: 1, in_flight: 1, separate: true, leads: true };
        let closed = with_stalling_peer(|worker, meter| rr::run(worker, &side, meter));
        assert!((1..=slow / 4).contains(&slower_than_10_ms(&closed.latency.unwrap())));
    }

    /// The peer reads nothing until the window is over: the buffers fill, and what could not be sent
    /// stays due.
    #[test]
    fn requests_beyond_buffers_are_the_backlog() {
        let share = Share { thread: 0, connections: 1, of: 1, generator: None };
        let arrivals = Arrivals { rate_per_s: RATE, gaps: Distribution::Fixed };
        let request = 1 << 16;
        let exchange = Exchange { request, response: 1, separate: true, arrivals, share };
        let asked = run(
            |mut socket| {
                thread::sleep(Duration::from_millis(600));
                while socket.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
            },
            |worker, meter| ask(worker, &exchange, meter),
        );
        let schedule = asked.schedule.unwrap();
        assert_eq!((schedule.due, asked.messages), (800, 0));
        assert!(schedule.sent < 700 && schedule.backlog >= 100, "{schedule:?}");
    }

    fn slower_than_10_ms(latency: &Histogram) -> u64 {
        let slow = latency.buckets().filter(|(value, _)| *value > Nanos::from_ms(10));
        slow.map(|(_, count)| count).sum()
    }

    /// Answers each byte with one, and stands still once, in the middle of the window.
    fn with_stalling_peer(
        work: impl FnOnce(&WorkerContext<'_>, &mut Meter<'_>) -> Result<(), Error>,
    ) -> Tally {
        let peer = |mut socket: TcpStream| {
            let stall_at = now() + Nanos::from_ms(250);
            let mut stalled = false;
            let mut buffer = [0; 4096];
            loop {
                let Ok(bytes @ 1..) = socket.read(&mut buffer) else { return };
                if !stalled && now() >= stall_at {
                    stalled = true;
                    thread::sleep(STALL);
                }
                if socket.write_all(&buffer[..bytes]).is_err() {
                    return;
                }
            }
        };
        run(peer, work)
    }

    /// Runs `work` for a window of 400 ms, 50 ms from now, against `peer`.
    fn run(
        peer: impl FnOnce(TcpStream) + Send,
        work: impl FnOnce(&WorkerContext<'_>, &mut Meter<'_>) -> Result<(), Error>,
    ) -> Tally {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = [TcpStream::connect(address).unwrap()];
        sockets[0].set_nodelay(true).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let window = Window::starting_in(Nanos::from_ms(50), Nanos::from_ms(400)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| peer(socket));
            let progress = Progress::new(1, None);
            let run = TrafficRun::new(&sockets, address, window, true, progress);
            let worker = run.thread(0, 1);
            let mut meter = Meter::leading(&worker);
            work(&worker, &mut meter).unwrap();
            sockets[0].shutdown(std::net::Shutdown::Both).unwrap();
            meter.finish().remove(0)
        })
    }
}
