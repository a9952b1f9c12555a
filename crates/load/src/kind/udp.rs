//! Datagrams at an offered rate, or as fast as possible. The sender paces them, the receiver counts
//! them.
//!
//! A flow is a pair of connected sockets; each thread has some flows. Each datagram carries the
//! number of the sender's slice, so that loss is exact whatever the clocks of the two ends. The
//! authenticated TCP connection of a flow stays open; its close ends the run.

mod arrivals;
pub(crate) mod batch;
pub(crate) mod pace;

use std::num::NonZeroU64;

use latput_units::{BitsPerSecond, Bytes, Nanos};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use self::arrivals::{FlowArrivals, Received, Stamp};
use self::batch::{Incoming, Outgoing};
use self::pace::{Due, LARGEST_GROUP, Pace};
use crate::clock::{now, sleep_until, timespec};
use crate::datagrams::Flow;
use crate::error::Error;
use crate::limits;
use crate::meter::{Meter, Phase};
use crate::outcome::{DatagramsReceived, DatagramsSent};
use crate::schedule::Share;
use crate::socket::{join_receipts, segment_sends};
use crate::workers::WorkerContext;

/// Messages taken from the kernel at once.
const RECEIVE_BATCH: usize = 32;
/// Messages taken from the kernel at once if each may have 64 KiB of joined datagrams. They fit a
/// core's second-level cache.
const JOINED_BATCH: usize = 8;
/// Large messages of one send call, for a sender without a rate.
const LARGE_SENDS: usize = 2;
/// Size of the largest message that datagrams can be joined to.
const LARGEST_JOINED: usize = 65_535;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// Longest sleep without a check for the end of the run.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);
/// Time without datagrams after the sender's close, after which the receiver stops.
const QUIET: Nanos = Nanos::from_ms(200);

/// The datagrams of one thread and their rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) datagram: Bytes,
    /// Rate over all flows of the thread; `None` for as fast as possible.
    pub(crate) rate: Option<BitsPerSecond>,
    /// Whether the kernel may cut and join datagrams.
    pub(crate) segmentation: bool,
}

/// A thread's share of a rate, by its flows.
pub(crate) fn share_of(rate: BitsPerSecond, share: Share) -> BitsPerSecond {
    let bits = u128::from(rate.get()) * share.connections as u128 / share.of.max(1) as u128;
    BitsPerSecond::new(u64::try_from(bits).unwrap_or(u64::MAX).max(1))
}

/// Sends on `flows` in turn until the meter reports the end. Returns the counts that are the same
/// in every slice.
pub(crate) fn send(
    worker: &WorkerContext<'_>,
    flows: &[Flow<'_>],
    stream: &Stream,
    meter: &mut Meter<'_>,
) -> Result<DatagramsSent, Error> {
    let mut pace = stream.rate.map(|rate| Pace::new(stream.datagram, rate, now()));
    if pace.is_some() {
        sharpen_sleep();
    }
    let mut sender = Sender::new(flows, stream);
    let mut next_look = Nanos::ZERO;
    loop {
        let now = now();
        if meter.phase(now) == Phase::Over {
            break;
        }
        let looks = now >= next_look;
        if looks {
            next_look = now + LONGEST_SLEEP;
        }
        if worker.is_ending() || (looks && worker.peer_closed()) {
            worker.closed(None)?;
            break;
        }
        let skipped_before = pace.as_ref().map_or(0, Pace::skipped);
        let due = pace.as_mut().map(|pace| pace.due(now));
        if meter.counts() {
            meter.tally.skipped += pace.as_ref().map_or(0, Pace::skipped) - skipped_before;
        }
        let count = match due {
            None => sender.burst,
            Some(Due::Send(count)) => usize::try_from(count).expect("at most a group"),
            Some(Due::Wait(until)) => {
                sleep_until(until.min(now + LONGEST_SLEEP));
                continue;
            }
        };
        let taken = match sender.send(count, meter.slice(), now) {
            Ok(taken) => taken as u64,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => 0,
            Err(Errno::MSGSIZE) => return Err(Error::DatagramTooBig { bytes: stream.datagram }),
            Err(errno) => {
                worker.closed(Some(errno))?;
                break;
            }
        };
        if let Some(pace) = &mut pace {
            pace.sent(taken);
        }
        if meter.counts() {
            meter.tally.messages += taken;
        }
        meter.done(now, taken);
    }
    Ok(DatagramsSent {
        sent: 0,
        bytes: stream.datagram,
        offered: stream.rate,
        group: pace.as_ref().map_or(sender.burst as u64, Pace::group),
        cut: sender.batch.per_message() as u64,
        skipped: 0,
    })
}

/// The flows of a sending thread, used in turn.
struct Sender<'a> {
    flows: &'a [Flow<'a>],
    next_sequences: Vec<u64>,
    turn: usize,
    batch: Outgoing,
    /// Datagrams sent at once without a rate.
    burst: usize,
}

impl<'a> Sender<'a> {
    fn new(flows: &'a [Flow<'a>], stream: &Stream) -> Self {
        let datagram = limits::size(stream.datagram);
        let mut most = Outgoing::most_per_message(datagram);
        let size = u16::try_from(datagram).expect("datagrams are checked to be at most 65507 byte");
        let may_cut = stream.segmentation && most > 1;
        if !(may_cut && flows.iter().all(|flow| segment_sends(flow.socket, size))) {
            most = 1;
        }
        let slots =
            usize::try_from(LARGEST_GROUP).expect("a small constant").max(most * LARGE_SENDS);
        let mut batch = Outgoing::new(slots, datagram);
        batch.set_per_message(most);
        Self { flows, next_sequences: vec![0; flows.len()], turn: 0, batch, burst: slots }
    }

    /// Sends `count` datagrams on the next flow. Returns how many the kernel took.
    fn send(&mut self, count: usize, slice: Option<u32>, sent_at: Nanos) -> Result<usize, Errno> {
        let Flow { socket, tag } = self.flows[self.turn];
        let first = self.next_sequences[self.turn];
        for (idx, sequence) in (first..).take(count).enumerate() {
            encode(self.batch.slot_mut(idx), tag, Stamp { sequence, slice, sent_at });
        }
        let taken = match self.batch.send(socket, count) {
            Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP)
                if self.batch.per_message() > 1 =>
            {
                // Some paths (IPsec, old drivers) cannot cut. A datagram that is too large fails
                // again below.
                tracing::info!("the kernel does not cut datagrams on this path");
                for flow in self.flows {
                    segment_sends(flow.socket, 0);
                }
                self.batch.set_per_message(1);
                self.batch.send(socket, count)?
            }
            taken => taken?,
        };
        self.next_sequences[self.turn] += taken as u64;
        self.turn = (self.turn + 1) % self.flows.len();
        Ok(taken)
    }
}

/// Receives on `flows` until the sender closed and no more datagrams come. Returns the counts for
/// each of the sender's slices.
pub(crate) fn receive(
    worker: &WorkerContext<'_>,
    flows: &[Flow<'_>],
    stream: &Stream,
    meter: &mut Meter<'_>,
) -> Result<Vec<DatagramsReceived>, Error> {
    let mut receiver = Receiver::new(flows, stream, worker.window.slice_count())?;
    let mut events = Vec::with_capacity(EVENTS);
    let mut last_arrival = now();
    let mut next_look = Nanos::ZERO;
    loop {
        let before = (receiver.messages, receiver.foreign);
        match &receiver.poll {
            None => receiver.take(0, true)?,
            Some(poll) => {
                match epoll::wait(poll, spare_capacity(&mut events), Some(&timespec(LONGEST_SLEEP)))
                {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(Error::io("wait for datagrams", errno)),
                }
                for event in events.drain(..) {
                    let idx = usize::try_from(event.data.u64()).expect("an index we gave to epoll");
                    receiver.take(idx, false)?;
                }
            }
        }
        let now = now();
        meter.phase(now);
        if meter.counts() {
            meter.tally.foreign += receiver.foreign - before.1;
        }
        let nothing = receiver.messages == before.0;
        if !nothing {
            last_arrival = now;
        }
        if now >= next_look || nothing {
            next_look = now + LONGEST_SLEEP;
            if worker.is_ending() {
                worker.closed(None)?;
                break;
            }
            if worker.peer_closed() {
                worker.closed(None)?;
                if now.saturating_sub(last_arrival) >= QUIET {
                    break;
                }
            }
        }
    }
    Ok(receiver.close())
}

/// The flows of a receiving thread with their arrivals.
struct Receiver<'a> {
    flows: &'a [Flow<'a>],
    arrivals: Vec<FlowArrivals>,
    batch: Incoming,
    size: usize,
    /// `None` for a single flow, which uses blocking calls.
    poll: Option<OwnedFd>,
    /// Counts of each of the sender's slices.
    received: Vec<Received>,
    foreign: u64,
    messages: u64,
}

impl<'a> Receiver<'a> {
    fn new(flows: &'a [Flow<'a>], stream: &Stream, slices: u32) -> Result<Self, Error> {
        let size = limits::size(stream.datagram);
        let joins = stream.segmentation && flows.iter().all(|flow| join_receipts(flow.socket));
        let poll = match flows {
            [_] => None,
            flows => {
                let poll = epoll::create(CreateFlags::CLOEXEC)
                    .map_err(|errno| Error::io("create an epoll instance", errno))?;
                for (idx, flow) in (0..).zip(flows) {
                    epoll::add(&poll, flow.socket, EventData::new_u64(idx), EventFlags::IN)
                        .map_err(|errno| Error::io("watch a UDP socket with epoll", errno))?;
                }
                Some(poll)
            }
        };
        // Without joining, one extra byte reveals a datagram that is too long.
        let batch = if joins {
            Incoming::new(JOINED_BATCH, LARGEST_JOINED)
        } else {
            Incoming::new(RECEIVE_BATCH, size + 1)
        };
        let arrivals = flows.iter().map(|_| FlowArrivals::among(flows.len())).collect();
        Ok(Self {
            flows,
            arrivals,
            batch,
            size,
            poll,
            received: vec![Received::default(); slices as usize],
            foreign: 0,
            messages: 0,
        })
    }

    /// Receives the datagrams of one flow.
    fn take(&mut self, idx: usize, may_wait: bool) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[idx];
        let count = match self.batch.receive(socket, may_wait) {
            Ok(count) => count,
            // The sender's host refuses: its port is closed. The TCP connection reports that.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => 0,
            Err(errno) => return Err(Error::io("receive datagrams", errno)),
        };
        let now = now();
        for datagram in (0..count).flat_map(|idx| self.batch.datagrams(idx)) {
            match decode(datagram, self.size, tag) {
                Some(stamp) => self.arrivals[idx].enter(stamp, now, &mut self.received),
                None => self.foreign += 1,
            }
        }
        self.messages += count as u64;
        Ok(())
    }

    fn close(mut self) -> Vec<DatagramsReceived> {
        for arrivals in &mut self.arrivals {
            arrivals.close(&mut self.received);
        }
        self.received.into_iter().map(Received::counts).collect()
    }
}

/// Parses any bytes as the datagrams of a flow, for the fuzz target.
pub(crate) fn read_any(datagrams: &[(Nanos, &[u8])], size: usize) {
    let mut arrivals = FlowArrivals::among(usize::MAX);
    let mut received = [Received::default(); 2];
    for (at, datagram) in datagrams {
        // Uses the tag of the datagram itself, so that none is refused for its tag.
        let tag = datagram.first_chunk().map_or(0, |tag| u32::from_be_bytes(*tag));
        if let Some(stamp) = decode(datagram, size, tag) {
            arrivals.enter(stamp, *at, &mut received);
        }
    }
    arrivals.close(&mut received);
    for slice in received.map(Received::counts) {
        assert!(slice.received + slice.duplicates <= datagrams.len() as u64);
        assert!(slice.reordered <= slice.received && slice.jitter_ns >= 0.0);
    }
}

/// Makes this thread's sleeps exact. By default the kernel may add 50 us to each to save wake-ups.
pub(crate) fn sharpen_sleep() {
    // If refused, sleeps are a little longer. The pace counts datagrams that are too late.
    let _refused = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Header: tag (4 bytes), number (6), slice from 1, or 0 for none (2), time (6), big-endian. Its 18
/// bytes are the payload of the smallest Ethernet frame with UDP on IPv4. Number and time are cut
/// to their low 48 bits.
fn encode(datagram: &mut [u8], tag: u32, stamp: Stamp) {
    let slice = stamp.slice.and_then(|slice| u16::try_from(slice + 1).ok()).unwrap_or(0);
    datagram[..4].copy_from_slice(&tag.to_be_bytes());
    datagram[4..10].copy_from_slice(&stamp.sequence.to_be_bytes()[2..]);
    datagram[10..12].copy_from_slice(&slice.to_be_bytes());
    datagram[12..18].copy_from_slice(&stamp.sent_at.as_ns().to_be_bytes()[2..]);
}

/// `None` if the datagram does not belong to this run.
fn decode(datagram: &[u8], size: usize, tag: u32) -> Option<Stamp> {
    if datagram.len() != size {
        return None;
    }
    let (its_tag, rest) = datagram.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (slice, rest) = rest.split_first_chunk()?;
    let (sent_at, _) = rest.split_first_chunk()?;
    (u32::from_be_bytes(*its_tag) == tag).then(|| Stamp {
        sequence: from_48_bits(*sequence),
        slice: u32::from(u16::from_be_bytes(*slice)).checked_sub(1),
        sent_at: Nanos::from_ns(from_48_bits(*sent_at)),
    })
}

fn from_48_bits(bytes: [u8; 6]) -> u64 {
    bytes.into_iter().fold(0, |number, byte| (number << 8) | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_the_smallest_datagram() {
        let last = (1 << 48) - 1;
        for (sequence, slice) in [(0, Some(0)), (1, None), (last, Some(999))] {
            let stamp = Stamp { sequence, slice, sent_at: Nanos::from_ns(last - 1) };
            let mut datagram = [0; 18];
            encode(&mut datagram, 0xdead_beef, stamp);
            assert_eq!(decode(&datagram, 18, 0xdead_beef), Some(stamp));
        }
    }

    #[test]
    fn foreign_datagrams_are_ignored() {
        let stamp = Stamp { sequence: 1, slice: Some(0), sent_at: Nanos::ZERO };
        let mut datagram = [0; 20];
        encode(&mut datagram, 7, stamp);
        assert_eq!(decode(&datagram, 20, 8), None);
        assert_eq!(decode(&datagram, 19, 7), None);
        assert_eq!(decode(&datagram[..5], 5, 7), None);
        assert_eq!(decode(&[], 0, 7), None);
    }
}
