//! Request and response on UDP with loss. Each request has a number. A request without a response
//! in time counts as lost, and the next request follows.
//!
//! Closed loop: every flow keeps its requests in flight. Open loop: requests leave at their due
//! times on the flows in turn. A request that the host could not send counts as lost.

mod in_flight;
mod server;

use latput_stats::Histogram;
use latput_trial::{Arrivals, Traffic};
use latput_units::Nanos;
use rustix::io::Errno;

use self::in_flight::{InFlightRequest, InFlightTable, Meaning};
pub(crate) use self::server::answer;
use crate::clock::now;
use crate::datagrams::Flow;
use crate::error::Error;
use crate::kind::udp::batch::{Incoming, Outgoing};
use crate::kind::udp::sharpen_sleep;
use crate::limits;
use crate::meter::{Meter, Phase};
use crate::outcome::DatagramsExchanged;
use crate::poll;
use crate::schedule::{Schedule, Share};
use crate::wait::Waiter;
use crate::workers::WorkerContext;

/// Datagrams sent or received at once.
const BATCH: usize = 32;
/// Longest wait without a check for the end of the run, and longest blocking receive.
const LONGEST_WAIT: Nanos = Nanos::from_ms(20);
/// Length of a message's header: the tag of its flow and its number.
pub(crate) const HEADER: usize = 4 + 8;

/// The exchange of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: usize,
    pub(crate) response: usize,
    /// Requests in flight on each flow, in a closed loop.
    pub(crate) in_flight: u32,
    pub(crate) timeout: Nanos,
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) share: Share,
}

impl Exchange {
    /// The exchange of a thread with `share` of `traffic`; `None` for other traffic.
    pub(crate) fn from_traffic(traffic: &Traffic, share: Share) -> Option<Self> {
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

/// Sends requests on `flows` until the meter reports the end.
pub(crate) fn ask(
    worker: &WorkerContext<'_>,
    flows: &[Flow<'_>],
    exchange: &Exchange,
    meter: &mut Meter<'_>,
) -> Result<(), Error> {
    let mut client = Client::new(worker, flows, exchange)?;
    meter.tally.latency = Some(Histogram::new());
    if exchange.arrivals.is_some() {
        sharpen_sleep();
        meter.measure_open_loop();
    }
    meter.tally.exchange = Some(DatagramsExchanged::default());
    let started = now();
    meter.phase(started);
    let mut schedule =
        exchange.arrivals.map(|arrivals| Schedule::new(arrivals, exchange.share, started));
    if schedule.is_none() {
        client.owed.fill(exchange.in_flight);
        client.owes = true;
        client.pay_all(meter)?;
    }
    let mut next_look = Nanos::ZERO;
    loop {
        if client.waiter.is_none() {
            client.receive(0, true, meter)?;
        } else {
            client.wait(schedule.as_ref(), meter)?;
        }
        let now = now();
        if meter.phase(now) == Phase::Over {
            break;
        }
        let looks = now >= next_look;
        if looks {
            next_look = now + LONGEST_WAIT;
        }
        if worker.is_ending() || (looks && worker.peer_closed()) {
            worker.closed(None)?;
            break;
        }
        client.expire(now, meter);
        match &mut schedule {
            None => client.pay_all(meter)?,
            Some(schedule) => client.send_due(schedule, now, meter)?,
        }
    }
    // Requests of the window that are still unanswered have waited for the whole cool-down.
    client.expire(Nanos::from_ns(u64::MAX), meter);
    if let Some(schedule) = schedule {
        meter.close_schedule(schedule);
    }
    Ok(())
}

/// The requesting end of one thread.
struct Client<'a> {
    worker: &'a WorkerContext<'a>,
    flows: &'a [Flow<'a>],
    in_flight: InFlightTable,
    /// Requests that each flow has to send, in a closed loop.
    owed: Vec<u32>,
    /// Whether any flow has requests to send.
    owes: bool,
    turn: usize,
    outgoing: Outgoing,
    incoming: Incoming,
    request: usize,
    response: usize,
    /// `None` for a closed loop on one flow, which uses blocking calls.
    waiter: Option<Waiter>,
    /// Whether this is an open loop.
    open: bool,
}

impl<'a> Client<'a> {
    fn new(
        worker: &'a WorkerContext<'a>,
        flows: &'a [Flow<'a>],
        exchange: &Exchange,
    ) -> Result<Self, Error> {
        let waiter = match flows {
            [flow] if exchange.arrivals.is_none() => {
                // The receive timeout bounds how late a loss is seen.
                let wait = exchange.timeout.min(LONGEST_WAIT).as_duration();
                flow.socket
                    .set_read_timeout(Some(wait))
                    .map_err(|source| Error::io("set the timeout of a UDP socket", source))?;
                None
            }
            flows => Some(Waiter::reading(flows.iter().map(|flow| flow.socket), None)?),
        };
        let open = exchange.arrivals.is_some();
        let in_flight = if open { BATCH } else { exchange.in_flight as usize };
        let slots = in_flight.clamp(1, BATCH);
        Ok(Self {
            worker,
            flows,
            in_flight: InFlightTable::new(exchange.timeout),
            owed: vec![0; flows.len()],
            owes: false,
            turn: 0,
            outgoing: Outgoing::new(slots, exchange.request),
            incoming: Incoming::new(slots, exchange.response + 1),
            request: exchange.request,
            response: exchange.response,
            waiter,
            open,
        })
    }

    /// Waits for responses, the next due time or the next loss, and receives.
    fn wait(&mut self, schedule: Option<&Schedule>, meter: &mut Meter<'_>) -> Result<(), Error> {
        let mut until = now() + LONGEST_WAIT;
        for instant in [schedule.map(Schedule::next), self.in_flight.next_expiry()] {
            until = until.min(instant.unwrap_or(until));
        }
        let Some(mut waiter) = self.waiter.take() else { return Ok(()) };
        for event in waiter.wait(until)? {
            self.receive(poll::id(&event), false, meter)?;
        }
        self.waiter = Some(waiter);
        Ok(())
    }

    /// Receives the responses of one flow. In a closed loop each response triggers a request at
    /// once.
    fn receive(&mut self, flow: usize, may_wait: bool, meter: &mut Meter<'_>) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[flow];
        let count = match self.incoming.receive(socket, may_wait) {
            Ok(count) => count,
            // The peer's host refuses: its port is closed. The TCP connection reports that.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => return Ok(()),
            Err(errno) => return Err(Error::io("receive responses", errno)),
        };
        let now = now();
        let phase = meter.phase(now);
        let mut foreign = 0;
        let mut answers: u32 = 0;
        for idx in 0..count {
            for response in self.incoming.datagrams(idx) {
                let Some(number) = decode(response, self.response, tag) else {
                    foreign += 1;
                    continue;
                };
                let id = u32::try_from(flow).expect("connections are counted in 32 bits");
                let meaning = self.in_flight.answered(number, id);
                answers += u32::from(matches!(meaning, Meaning::Answer(_)));
                enter(meaning, now, self.response, meter);
            }
        }
        if let Some(exchange) = &mut meter.tally.exchange {
            exchange.foreign += foreign;
        }
        meter.done(now, answers.into());
        if !self.open && answers > 0 && phase != Phase::Over {
            self.owed[flow] += answers;
            self.pay(flow, meter)?;
        }
        Ok(())
    }

    /// Sends the requests that the flows have to send.
    fn pay_all(&mut self, meter: &mut Meter<'_>) -> Result<(), Error> {
        if std::mem::take(&mut self.owes) {
            for flow in 0..self.flows.len() {
                self.pay(flow, meter)?;
            }
        }
        Ok(())
    }

    fn pay(&mut self, flow: usize, meter: &mut Meter<'_>) -> Result<(), Error> {
        while self.owed[flow] > 0 {
            let group = self.owed[flow].min(u32::try_from(BATCH).expect("a small constant"));
            self.owed[flow] -= group;
            let now = now();
            let due = [now; BATCH];
            self.send(flow, &due[..group as usize], now, meter)?;
        }
        Ok(())
    }

    /// Sends the requests due by `now`. A slow send makes later requests late, which is measured.
    fn send_due(
        &mut self,
        schedule: &mut Schedule,
        now: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        // The bound lets responses be read in between.
        for _ in 0..BATCH {
            let Some(due) = schedule.take_before(now) else { break };
            let flow = self.turn;
            self.turn = (self.turn + 1) % self.flows.len();
            let sent_at = crate::clock::now();
            meter.enter_scheduled(due, sent_at);
            self.send(flow, &[due], sent_at, meter)?;
        }
        Ok(())
    }

    /// Sends one request for each of `due` on a flow.
    fn send(
        &mut self,
        flow: usize,
        due: &[Nanos],
        sent_at: Nanos,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[flow];
        let slice = meter.slice();
        let id = u32::try_from(flow).expect("connections are counted in 32 bits");
        for (slot, &due) in due.iter().enumerate() {
            encode(self.outgoing.slot_mut(slot), tag, self.in_flight.next());
            let forgotten = self.in_flight.enter(InFlightRequest { flow: id, slice, due, sent_at });
            self.lose(forgotten, meter);
        }
        if let Some(exchange) = exchange_counts_mut(meter, slice) {
            exchange.sent += due.len() as u64;
        }
        meter.sent(due.len() * self.request);
        match self.outgoing.send(socket, due.len()) {
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR | Errno::CONNREFUSED) => Ok(()),
            Err(Errno::MSGSIZE) => {
                let bytes = latput_units::Bytes::new(self.outgoing.slot_mut(0).len() as u64);
                Err(Error::DatagramTooBig { bytes })
            }
            Err(errno) => self.worker.closed(Some(errno)),
        }
    }

    /// Counts requests that waited too long as lost.
    fn expire(&mut self, now: Nanos, meter: &mut Meter<'_>) {
        while let Some(request) = self.in_flight.expire(now) {
            self.lose(Some(request), meter);
        }
    }

    fn lose(&mut self, request: Option<InFlightRequest>, meter: &mut Meter<'_>) {
        let Some(request) = request else { return };
        if let Some(exchange) = exchange_counts_mut(meter, request.slice) {
            exchange.lost += 1;
        }
        if !self.open {
            self.owed[request.flow as usize] += 1;
            self.owes = true;
        }
    }
}

/// The counts of the requests sent in `slice`.
fn exchange_counts_mut<'m>(
    meter: &'m mut Meter<'_>,
    slice: Option<u32>,
) -> Option<&'m mut DatagramsExchanged> {
    meter.of_slice(slice)?.exchange.as_mut()
}

/// Counts a response of `bytes` received at `now`. Its request counts in the slice of the send, its
/// time and bytes in the slice of the receipt.
fn enter(meaning: Meaning, now: Nanos, bytes: usize, meter: &mut Meter<'_>) {
    let sent_in = match meaning {
        Meaning::Answer(it) | Meaning::Late(it) | Meaning::Duplicate(it) => it.slice,
        Meaning::Unknown => meter.slice(),
    };
    if let Some(exchange) = exchange_counts_mut(meter, sent_in) {
        let count = match meaning {
            Meaning::Answer(_) => &mut exchange.answered,
            Meaning::Late(_) | Meaning::Unknown => &mut exchange.late,
            Meaning::Duplicate(_) => &mut exchange.duplicates,
        };
        *count += 1;
    }
    if let Meaning::Answer(InFlightRequest { due, sent_at, .. }) = meaning {
        meter.received(bytes, 1);
        meter.open_round_trip(due, sent_at, now);
    }
}

/// Parses any bytes as responses, after some requests were sent, for the fuzz target.
pub(crate) fn read_any(responses: &[(Nanos, &[u8])], size: usize) {
    let mut in_flight = InFlightTable::new(Nanos::from_us(10));
    let mut answered = 0;
    for (at, response) in responses {
        let due = *at;
        in_flight.enter(InFlightRequest { flow: 0, slice: Some(0), due, sent_at: due });
        let tag = response.first_chunk().map_or(0, |tag| u32::from_be_bytes(*tag));
        if let Some(number) = decode(response, size, tag) {
            answered += u32::from(matches!(in_flight.answered(number, 0), Meaning::Answer(_)));
        }
        while in_flight.expire(*at).is_some() {}
    }
    assert!(answered as usize <= responses.len());
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
    use crate::clock::Window;
    use crate::workers::{Progress, TrafficRun};

    #[test]
    fn message_names_its_flow_and_number() {
        let mut message = [0xff; HEADER + 3];
        encode(&mut message, 7, u64::MAX - 1);
        assert_eq!(decode(&message, message.len(), 7), Some(u64::MAX - 1));
        assert_eq!(decode(&message, message.len(), 8), None);
        assert_eq!(decode(&message, message.len() + 1, 7), None);
        assert_eq!(decode(&message[..HEADER - 1], HEADER - 1, 7), None);
        assert_eq!(decode(&[], 0, 7), None);
    }

    #[test]
    fn latency_counts_from_the_due_time() {
        let window = Window::starting_in(Nanos::ZERO, Nanos::from_ms(1)).unwrap();
        let (peer, progress) = (([127, 0, 0, 1], 1).into(), Progress::new(1, None));
        let run = TrafficRun::new(&[], peer, window, true, progress);
        let worker = run.thread(0, 1);
        let mut meter = Meter::leading(&worker);
        meter.measure_open_loop();
        meter.tally.exchange = Some(DatagramsExchanged::default());
        let at = |us| window.start() + Nanos::from_us(us);
        let request = InFlightRequest { flow: 0, slice: Some(0), due: at(100), sent_at: at(150) };
        for (meaning, us) in [
            (Meaning::Answer(request), 160),
            (Meaning::Late(request), 900),
            (Meaning::Answer(request), 1001), // the cool-down
        ] {
            meter.phase(at(us));
            enter(meaning, at(us), 1, &mut meter);
        }
        let asked = meter.finish().remove(0);
        let (latency, raw) = (asked.latency.unwrap(), asked.latency_raw.unwrap());
        assert_eq!((latency.count(), raw.count(), asked.messages), (1, 1, 1));
        assert!(latency.max() >= Some(Nanos::from_us(60)));
        assert!(raw.max() < Some(Nanos::from_us(11)));
        let exchange = asked.exchange.unwrap();
        assert_eq!((exchange.answered, exchange.late), (2, 1));
    }
}
