//! The server. Delayed calls wait in a heap, so that the delay of one call does not delay another.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::TcpStream;

use latput_trial::{Distribution, Think};
use latput_units::{Nanos, SeededRng};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{HEAD_BYTES, MessageSplitter, RECEIVE_BYTES, ReadParameters};
use crate::clock::now;
use crate::error::Error;
use crate::kind::udp::sharpen_sleep;
use crate::meter::{Meter, Phase};
use crate::poll::{self, Poll};
use crate::workers::WorkerContext;

/// Answers calls until the clients close. `seed` seeds the random delays.
pub(crate) fn run(
    worker: &WorkerContext<'_>,
    reads: &ReadParameters,
    seed: u64,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    sharpen_sleep();
    let poll = Poll::new(worker.run.polling)?;
    for (idx, socket) in worker.sockets.iter().enumerate() {
        poll.add(socket, idx, EventFlags::IN)?;
    }
    let mut server = Server {
        reads,
        poll,
        clients: worker.sockets.iter().map(Client::new).collect(),
        thoughts: BinaryHeap::new(),
        rng: SeededRng::from_seed_and_index(seed, worker.thread as u64),
        buffer: vec![0; RECEIVE_BYTES],
        reply: vec![0; reads.reply_bytes()],
    };
    match server.serve(meter)? {
        End::Over => Ok(()),
        End::Closed(errno) => worker.closed(errno),
    }
}

struct Server<'a> {
    reads: &'a ReadParameters,
    poll: Poll,
    clients: Vec<Client<'a>>,
    /// Delayed calls: time of the reply, connection and number.
    thoughts: BinaryHeap<Reverse<(Nanos, usize, u32)>>,
    rng: SeededRng,
    buffer: Vec<u8>,
    reply: Vec<u8>,
}

struct Client<'a> {
    socket: &'a TcpStream,
    framing: MessageSplitter,
    /// Calls without a reply so far.
    open: u32,
    /// Numbers of the replies that are due, and the sent bytes of the first.
    ready: VecDeque<u32>,
    sent: usize,
    waits_to_write: bool,
}

enum End {
    Over,
    Closed(Option<Errno>),
}

impl Server<'_> {
    fn serve(&mut self, meter: &mut Meter<'_>) -> Result<End, Error> {
        let mut events = poll::events();
        loop {
            let until = self.thoughts.peek().map(|Reverse((due, ..))| *due);
            self.poll.wait(&mut events, until)?;
            let now = now();
            if meter.phase(now) == Phase::Over {
                return Ok(End::Over);
            }
            for event in &events {
                if let Err(end) = self.serve_client(poll::id(event), event.flags, now, meter) {
                    return Ok(end);
                }
            }
            while let Some(&Reverse((due, idx, number))) = self.thoughts.peek()
                && due <= now
            {
                self.thoughts.pop();
                self.clients[idx].ready.push_back(number);
                if let Err(errno) = self.reply(idx, meter) {
                    return Ok(End::Closed(Some(errno)));
                }
            }
        }
    }

    fn serve_client(
        &mut self,
        idx: usize,
        flags: EventFlags,
        now: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<(), End> {
        if flags != EventFlags::OUT {
            self.read(idx, now, meter)?;
        }
        self.reply(idx, meter).map_err(|errno| End::Closed(Some(errno)))
    }

    /// Reads calls.
    fn read(&mut self, idx: usize, now: Nanos, meter: &mut Meter<'_>) -> Result<(), End> {
        let client = &mut self.clients[idx];
        let bytes = match recv(client.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(End::Closed(None)),
            Ok((bytes, _)) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(End::Closed(Some(errno))),
        };
        let (think, rng, thoughts) = (self.reads.think, &mut self.rng, &mut self.thoughts);
        let mut calls = 0;
        let Client { framing, ready, .. } = client;
        framing.feed(&self.buffer[..bytes], HEAD_BYTES, |number| {
            calls += 1;
            match thinking_time(think, rng) {
                Nanos::ZERO => ready.push_back(number),
                time => thoughts.push(Reverse((now + time, idx, number))),
            }
        });
        client.open += calls;
        meter.received(bytes, calls);
        if client.open > self.reads.outstanding {
            return Err(End::Closed(Some(Errno::CONNRESET))); // asks for more than was agreed
        }
        Ok(())
    }

    /// Sends the replies that are due, as far as the socket buffer has room.
    fn reply(&mut self, idx: usize, meter: &mut Meter<'_>) -> Result<(), Errno> {
        let client = &mut self.clients[idx];
        while let Some(number) = client.ready.front() {
            self.reply[..4].copy_from_slice(&number.to_be_bytes());
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(client.socket, &self.reply[client.sent..], flags) {
                Ok(sent) => {
                    meter.sent(sent);
                    client.sent += sent;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
            if client.sent == self.reply.len() {
                client.sent = 0;
                client.open = client.open.saturating_sub(1);
                client.ready.pop_front();
            }
        }
        let waits_to_write = !client.ready.is_empty();
        if waits_to_write != client.waits_to_write {
            client.waits_to_write = waits_to_write;
            let also = if waits_to_write { EventFlags::OUT } else { EventFlags::empty() };
            self.poll.modify(client.socket, idx, EventFlags::IN | also)?;
        }
        Ok(())
    }
}

impl<'a> Client<'a> {
    fn new(socket: &'a TcpStream) -> Self {
        let (framing, ready) = (MessageSplitter::default(), VecDeque::new());
        Self { socket, framing, open: 0, ready, sent: 0, waits_to_write: false }
    }
}

/// The delay of one call.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
fn thinking_time(think: Think, rng: &mut SeededRng) -> Nanos {
    match think.distribution {
        Distribution::Fixed => think.mean,
        // The inverse of the exponential distribution; 1 - u is never 0.
        Distribution::Exponential => {
            Nanos::from_ns((-(1.0 - rng.next_uniform()).ln() * think.mean.as_ns() as f64) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thought_takes_its_mean() {
        let mut rng = SeededRng::from_seed(1);
        let mut mean = |distribution| {
            let think = Think { mean: Nanos::from_us(50), distribution };
            let total: u64 = (0..20_000).map(|_| thinking_time(think, &mut rng).as_ns()).sum();
            total / 20_000
        };
        assert_eq!(mean(Distribution::Fixed), 50_000);
        // The mean of 20000 draws has a standard error of 0.7%.
        assert!(mean(Distribution::Exponential).abs_diff(50_000) < 2_000);
    }
}
