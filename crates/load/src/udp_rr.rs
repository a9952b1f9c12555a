//! Request and response on UDP that survives loss: each request has a number, a response that does not
//! come in time counts as lost and the next request goes.
//!
//! Closed loop: every flow keeps its requests in flight. Open loop: requests leave when they are due,
//! on the flows in turn. A request that the host could not send counts as lost, like any other.

mod books;
mod server;

use latput_stats::Histogram;
use latput_trial::{Arrivals, Traffic};
use latput_units::Nanos;
use rustix::io::Errno;

use self::books::{Books, Meaning, Request};
pub(crate) use self::server::answer;
use crate::clock::now;
use crate::error::Error;
use crate::limits;
use crate::meter::{Meter, Phase};
use crate::outcome::{DatagramsExchanged, ScheduleKept, SenderOutcome};
use crate::poll;
use crate::schedule::{Schedule, Share};
use crate::supervise::Link;
use crate::udp::batch::{Incoming, Outgoing};
use crate::udp::{Flow, sharpen_sleep};
use crate::wait::Waiter;

/// Datagrams handed to or taken from the kernel at once.
const BATCH: usize = 32;
/// Longest wait without a look whether the run should end; also how long a blocking receive may take.
const LONGEST_WAIT: Nanos = Nanos::from_ms(20);
/// What a message starts with: its flow's tag and its number.
pub(crate) const HEADER: usize = 4 + 8;

/// The exchange of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: usize,
    pub(crate) response: usize,
    /// Requests in flight on each flow, of a closed loop.
    pub(crate) in_flight: u32,
    pub(crate) timeout: Nanos,
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) share: Share,
}

impl Exchange {
    /// That of `traffic`, if it is one, for a thread with `share` of it.
    pub(crate) fn of(traffic: &Traffic, share: Share) -> Option<Self> {
        let Traffic::UdpRr { request_bytes, response_bytes, burst, timeout, arrivals, .. } =
            *traffic
        else {
            return None;
        };
        Some(Self {
            request: limits::size(request_bytes),
            response: limits::size(response_bytes),
            in_flight: burst + 1,
            timeout,
            arrivals,
            share,
        })
    }
}

/// What the end that asks saw in the window.
#[derive(Clone, Debug, Default)]
struct Asked {
    exchange: DatagramsExchanged,
    /// Responses that came in time.
    transactions: u64,
    latency: Histogram,
    /// Of an open loop.
    latency_raw: Option<Histogram>,
    schedule: Option<ScheduleKept>,
}

/// Asks on `flows` until the meter says that it is over.
pub(crate) fn ask(
    link: &Link<'_>,
    flows: &[Flow<'_>],
    exchange: &Exchange,
    meter: &mut Meter<'_>,
) -> Result<SenderOutcome, Error> {
    let mut client = Client::new(link, flows, exchange)?;
    if exchange.arrivals.is_some() {
        sharpen_sleep();
    }
    let started = now();
    let phase = meter.phase(started);
    let mut schedule =
        exchange.arrivals.map(|arrivals| Schedule::new(arrivals, exchange.share, started));
    if schedule.is_none() {
        client.owed.fill(exchange.in_flight);
        client.owes = true;
        client.pay_all(phase)?;
    }
    let mut next_look = Nanos::ZERO;
    loop {
        if client.waiter.is_none() {
            client.receive(0, true, meter)?;
        } else {
            client.wait(schedule.as_ref(), meter)?;
        }
        let now = now();
        let phase = meter.phase(now);
        if phase == Phase::Over {
            break;
        }
        let looks = now >= next_look;
        if looks {
            next_look = now + LONGEST_WAIT;
        }
        if link.is_ending() || (looks && link.peer_closed()) {
            link.closed(None)?;
            break;
        }
        client.expire(now);
        match &mut schedule {
            None => client.pay_all(phase)?,
            Some(schedule) => client.send_due(schedule, now, phase)?,
        }
    }
    let asked = client.close(schedule);
    Ok(SenderOutcome {
        sent_bytes: asked.exchange.sent * exchange.request as u64,
        received_bytes: asked.transactions * exchange.response as u64,
        transactions: Some(asked.transactions),
        latency: Some(asked.latency),
        latency_raw: asked.latency_raw,
        schedule: asked.schedule,
        exchange: Some(asked.exchange),
        ..SenderOutcome::default()
    })
}

/// The asking end of one thread.
struct Client<'a> {
    link: &'a Link<'a>,
    flows: &'a [Flow<'a>],
    books: Books,
    /// Requests that each flow has to send, of a closed loop.
    owed: Vec<u32>,
    /// Some flow owes one.
    owes: bool,
    turn: usize,
    outgoing: Outgoing,
    incoming: Incoming,
    response: usize,
    /// `None` for a closed loop on one flow, which blocks.
    waiter: Option<Waiter>,
    asked: Asked,
}

impl<'a> Client<'a> {
    fn new(link: &'a Link<'a>, flows: &'a [Flow<'a>], exchange: &Exchange) -> Result<Self, Error> {
        let waiter = match flows {
            [flow] if exchange.arrivals.is_none() => {
                // A loss is seen when the receive comes back.
                let wait = exchange.timeout.min(LONGEST_WAIT).as_duration();
                flow.socket
                    .set_read_timeout(Some(wait))
                    .map_err(|source| Error::io("set the timeout of a UDP socket", source))?;
                None
            }
            flows => Some(Waiter::reading(flows.iter().map(|flow| flow.socket))?),
        };
        let open = exchange.arrivals.is_some();
        let in_flight = if open { BATCH } else { exchange.in_flight as usize };
        let slots = in_flight.clamp(1, BATCH);
        let asked = Asked {
            latency_raw: open.then(Histogram::new),
            schedule: open.then(ScheduleKept::default),
            ..Asked::default()
        };
        Ok(Self {
            link,
            flows,
            books: Books::new(exchange.timeout),
            owed: vec![0; flows.len()],
            owes: false,
            turn: 0,
            outgoing: Outgoing::new(slots, exchange.request),
            incoming: Incoming::new(slots, exchange.response + 1),
            response: exchange.response,
            waiter,
            asked,
        })
    }

    /// Waits for responses, the next request or the next loss, and takes what came.
    fn wait(&mut self, schedule: Option<&Schedule>, meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut until = now() + LONGEST_WAIT;
        for instant in [schedule.map(Schedule::next), self.books.next_expiry()] {
            until = until.min(instant.unwrap_or(until));
        }
        let Some(mut waiter) = self.waiter.take() else { return Ok(()) };
        for event in waiter.wait(until)? {
            self.receive(poll::id(&event), false, meter)?;
        }
        self.waiter = Some(waiter);
        Ok(())
    }

    /// Takes the responses of one flow; in a closed loop each lets a request go, at once.
    fn receive(&mut self, flow: usize, may_wait: bool, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[flow];
        let count = match self.incoming.receive(socket, may_wait) {
            Ok(count) => count,
            // A refusal is the peer's host saying that its port is closed; the connection tells.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => return Ok(()),
            Err(errno) => return Err(Error::io("receive responses", errno)),
        };
        let now = now();
        let phase = meter.phase(now);
        let mut answers: u32 = 0;
        for idx in 0..count {
            for response in self.incoming.datagrams(idx) {
                let Some(number) = decode(response, self.response, tag) else {
                    self.asked.exchange.foreign += 1;
                    continue;
                };
                let id = u32::try_from(flow).expect("connections are counted in 32 bits");
                let meaning = self.books.answered(number, id);
                answers += u32::from(matches!(meaning, Meaning::Answer(_)));
                self.asked.enter(meaning, now, phase);
            }
        }
        meter.done(now, answers.into());
        if self.asked.schedule.is_none() && answers > 0 && phase != Phase::Over {
            self.owed[flow] += answers;
            self.pay(flow, phase)?;
        }
        Ok(())
    }

    /// Sends what the flows owe.
    fn pay_all(&mut self, phase: Phase) -> Result<(), Error> {
        if std::mem::take(&mut self.owes) {
            for flow in 0..self.flows.len() {
                self.pay(flow, phase)?;
            }
        }
        Ok(())
    }

    fn pay(&mut self, flow: usize, phase: Phase) -> Result<(), Error> {
        while self.owed[flow] > 0 {
            let group = self.owed[flow].min(u32::try_from(BATCH).expect("a small constant"));
            self.owed[flow] -= group;
            let now = now();
            let due = [now; BATCH];
            self.send(flow, &due[..group as usize], now, phase)?;
        }
        Ok(())
    }

    /// Sends what is due by `now`; what takes long to send makes the next ones late, which shows.
    fn send_due(&mut self, schedule: &mut Schedule, now: Nanos, phase: Phase) -> Result<(), Error> {
        // A bound, so that responses are read meanwhile.
        for _ in 0..BATCH {
            let Some(due) = schedule.take_before(now) else { break };
            let flow = self.turn;
            self.turn = (self.turn + 1) % self.flows.len();
            let sent_at = crate::clock::now();
            if let Some(kept) = &mut self.asked.schedule {
                kept.enter(self.link.window, due, sent_at);
            }
            self.send(flow, &[due], sent_at, phase)?;
        }
        Ok(())
    }

    /// Sends one request for each of `due` on a flow.
    fn send(
        &mut self,
        flow: usize,
        due: &[Nanos],
        sent_at: Nanos,
        phase: Phase,
    ) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[flow];
        let in_window = phase == Phase::Window;
        let id = u32::try_from(flow).expect("connections are counted in 32 bits");
        for (slot, &due) in due.iter().enumerate() {
            encode(self.outgoing.slot_mut(slot), tag, self.books.next());
            let forgotten = self.books.enter(Request { flow: id, in_window, due, sent_at });
            self.lose(forgotten);
        }
        self.asked.exchange.sent += if in_window { due.len() as u64 } else { 0 };
        match self.outgoing.send(socket, due.len()) {
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR | Errno::CONNREFUSED) => Ok(()),
            Err(Errno::MSGSIZE) => {
                let bytes = latput_units::Bytes::new(self.outgoing.slot_mut(0).len() as u64);
                Err(Error::DatagramTooBig { bytes })
            }
            Err(errno) => self.link.closed(Some(errno)),
        }
    }

    /// Gives up what has waited too long.
    fn expire(&mut self, now: Nanos) {
        while let Some(request) = self.books.expire(now) {
            self.lose(Some(request));
        }
    }

    fn lose(&mut self, request: Option<Request>) {
        let Some(request) = request else { return };
        self.asked.exchange.lost += u64::from(request.in_window);
        if self.asked.schedule.is_none() {
            self.owed[request.flow as usize] += 1;
            self.owes = true;
        }
    }

    /// What was sent in the window and is not answered by now has waited for the whole cool-down.
    fn close(mut self, schedule: Option<Schedule>) -> Asked {
        while let Some(request) = self.books.expire(Nanos::from_ns(u64::MAX)) {
            self.lose(Some(request));
        }
        if let (Some(kept), Some(schedule)) = (&mut self.asked.schedule, schedule) {
            kept.close(self.link.window_so_far(), schedule);
        }
        self.asked
    }
}

impl Asked {
    fn enter(&mut self, meaning: Meaning, now: Nanos, phase: Phase) {
        match meaning {
            Meaning::Answer(request) => {
                self.exchange.answered += u64::from(request.in_window);
                if phase == Phase::Window {
                    self.transactions += 1;
                    self.latency.record(now.saturating_sub(request.due));
                    if let Some(raw) = &mut self.latency_raw {
                        raw.record(now.saturating_sub(request.sent_at));
                    }
                }
            }
            Meaning::Late(request) => self.exchange.late += u64::from(request.in_window),
            Meaning::Duplicate(request) => self.exchange.duplicates += u64::from(request.in_window),
            Meaning::Unknown => self.exchange.late += u64::from(phase == Phase::Window),
        }
    }
}

/// Reads anything as responses to requests of which some were sent, for the fuzz target.
pub(crate) fn read_any(responses: &[(Nanos, &[u8])], size: usize) {
    let mut books = Books::new(Nanos::from_us(10));
    let mut asked = Asked::default();
    for (at, response) in responses {
        let due = *at;
        books.enter(Request { flow: 0, in_window: true, due, sent_at: due });
        let tag = response.first_chunk().map_or(0, |tag| u32::from_be_bytes(*tag));
        if let Some(number) = decode(response, size, tag) {
            asked.enter(books.answered(number, 0), *at, Phase::Window);
        }
        while books.expire(*at).is_some() {}
    }
    assert!(asked.exchange.answered <= responses.len() as u64);
}

fn encode(message: &mut [u8], tag: u32, number: u64) {
    message[..4].copy_from_slice(&tag.to_be_bytes());
    message[4..HEADER].copy_from_slice(&number.to_be_bytes());
}

/// The number of a message of `size` bytes; `None` if it is not of this flow.
fn decode(message: &[u8], size: usize, tag: u32) -> Option<u64> {
    if message.len() != size {
        return None;
    }
    let (its_tag, rest) = message.split_first_chunk()?;
    let (number, _) = rest.split_first_chunk()?;
    (u32::from_be_bytes(*its_tag) == tag).then(|| u64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_its_flow_and_number() {
        let mut message = [0xff; HEADER + 3];
        encode(&mut message, 7, u64::MAX - 1);
        assert_eq!(decode(&message, message.len(), 7), Some(u64::MAX - 1));
        assert_eq!(decode(&message, message.len(), 8), None);
        assert_eq!(decode(&message, message.len() + 1, 7), None);
        assert_eq!(decode(&message[..HEADER - 1], HEADER - 1, 7), None);
        assert_eq!(decode(&[], 0, 7), None);
    }

    #[test]
    fn latency_is_from_the_due_time_and_raw_from_the_send() {
        let mut asked = Asked { latency_raw: Some(Histogram::new()), ..Asked::default() };
        let (due, sent_at) = (Nanos::from_us(100), Nanos::from_us(150));
        let request = Request { flow: 0, in_window: true, due, sent_at };
        asked.enter(Meaning::Answer(request), Nanos::from_us(160), Phase::Window);
        asked.enter(Meaning::Answer(request), Nanos::from_us(160), Phase::CoolDown);
        asked.enter(Meaning::Late(request), Nanos::from_us(900), Phase::Window);
        let raw = asked.latency_raw.unwrap();
        assert_eq!((asked.latency.count(), raw.count()), (1, 1));
        assert!(asked.latency.max() >= Some(Nanos::from_us(60)));
        assert!(raw.max() < Some(Nanos::from_us(11)));
        assert_eq!((asked.exchange.answered, asked.exchange.late), (2, 1));
    }
}
