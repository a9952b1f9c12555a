//! The answering end. It answers every request of the run to the authenticated address, and nothing
//! else.

use rustix::io::Errno;

use super::{BATCH, Exchange, HEADER, LONGEST_WAIT, decode, encode};
use crate::clock::now;
use crate::datagrams::Flow;
use crate::error::Error;
use crate::kind::udp::batch::{Incoming, Outgoing};
use crate::meter::{Meter, Phase};
use crate::poll;
use crate::wait::Waiter;
use crate::workers::WorkerContext;

/// Answers on `flows` until the other end closes.
pub(crate) fn answer(
    worker: &WorkerContext<'_>,
    flows: &[Flow<'_>],
    exchange: &Exchange,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    const _: () = assert!(HEADER <= 32, "the smallest message has room for it");
    let mut server = Server {
        flows,
        incoming: Incoming::new(BATCH, exchange.request + 1),
        outgoing: Outgoing::new(BATCH, exchange.response),
        request: exchange.request,
        response: exchange.response,
    };
    let mut waiter = match flows {
        [_] => None,
        flows => Some(Waiter::reading(flows.iter().map(|flow| flow.socket), None)?),
    };
    let mut next_look = now() + LONGEST_WAIT;
    loop {
        match &mut waiter {
            None => server.turn(0, true, meter)?,
            Some(waiter) => {
                for event in waiter.wait(now() + LONGEST_WAIT)? {
                    server.turn(poll::id(&event), false, meter)?;
                }
            }
        }
        let now = now();
        // The window's counters are read even if nothing arrives.
        meter.phase(now);
        if now >= next_look {
            next_look = now + LONGEST_WAIT;
            if worker.is_ending() || worker.peer_closed() {
                worker.closed(None)?;
                return Ok(());
            }
        }
    }
}

struct Server<'a> {
    flows: &'a [Flow<'a>],
    incoming: Incoming,
    outgoing: Outgoing,
    request: usize,
    response: usize,
}

impl Server<'_> {
    /// Receives the requests of one flow and answers them.
    fn turn(&mut self, flow: usize, may_wait: bool, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[flow];
        let count = match self.incoming.receive(socket, may_wait) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => return Ok(()),
            Err(errno) => return Err(Error::io("receive requests", errno)),
        };
        let mut answers: u32 = 0;
        let mut foreign = 0;
        for request in (0..count).flat_map(|idx| self.incoming.datagrams(idx)) {
            match decode(request, self.request, tag) {
                Some(number) => {
                    encode(self.outgoing.slot_mut(answers as usize), tag, number);
                    answers += 1;
                }
                None => foreign += 1,
            }
        }
        if answers > 0 {
            match self.outgoing.send(socket, answers as usize) {
                // A response that cannot be sent is lost. The other end counts it.
                Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::CONNREFUSED) => {}
                Err(Errno::MSGSIZE) => {
                    let bytes = latput_units::Bytes::new(self.outgoing.slot_mut(0).len() as u64);
                    return Err(Error::DatagramTooBig { bytes });
                }
                Err(errno) => return Err(Error::io("send responses", errno)),
            }
        }
        if meter.phase(now()) == Phase::Window {
            meter.tally.foreign += foreign;
        }
        meter.received(answers as usize * self.request, answers);
        meter.sent(answers as usize * self.response);
        Ok(())
    }
}
