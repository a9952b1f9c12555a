//! Datagrams at an offered rate, or as fast as they go: the sender keeps the pace, the receiver keeps
//! the books.
//!
//! A flow is a pair of sockets, each connected to the other; a thread has some of them. Each datagram
//! says whether it was sent in the sender's window, so that loss is exact whatever the clocks of the
//! two ends. The TCP connection that showed the key for a flow stays open beside it: its end is the
//! end of the run.

mod arrivals;
pub(crate) mod batch;
mod pace;

use std::net::UdpSocket;
use std::num::NonZeroU64;

use latput_units::{BitsPerSecond, Bytes, Nanos};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use self::arrivals::{Arrivals, Stamp};
use self::batch::{Incoming, Outgoing};
use self::pace::{Due, LARGEST_GROUP, Pace};
use crate::clock::{now, sleep_until, timespec};
use crate::error::Error;
use crate::limits;
use crate::meter::{Meter, Phase};
use crate::outcome::{DatagramsReceived, DatagramsSent};
use crate::schedule::Share;
use crate::socket::{dropped_datagrams, join_receipts, segment_sends};
use crate::supervise::Link;

/// Messages taken from the kernel at once.
const RECEIVE_BATCH: usize = 32;
/// The same where a message may be 64 KiB of joined datagrams: what stays in a core's second-level cache.
const JOINED_BATCH: usize = 8;
/// Large sends handed to the kernel at once, of a sender without a rate.
const LARGE_SENDS: usize = 2;
/// Size of the largest message that datagrams can be joined to.
const LARGEST_JOINED: usize = 65_535;
/// Events taken from the kernel at once.
const EVENTS: usize = 64;
/// Longest sleep without a look whether the run should end.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);
/// How long after the sender closed nothing may come before the receiver believes that nothing will.
const QUIET: Nanos = Nanos::from_ms(200);
/// The top bit of the 48-bit number says that a datagram was sent in the window.
const IN_WINDOW: u64 = 1 << 47;

/// One flow's socket at this end, connected to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    pub(crate) socket: &'a UdpSocket,
    /// Tells this flow's datagrams of this run from others.
    pub(crate) tag: u32,
}

/// What is sent on the flows of a thread, and how fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) datagram: Bytes,
    /// Over all flows of the thread; `None`: as fast as it goes.
    pub(crate) rate: Option<BitsPerSecond>,
    /// Whether the kernel may cut and join datagrams.
    pub(crate) segmentation: bool,
}

/// A thread's share of a rate, by its flows.
pub(crate) fn share_of(rate: BitsPerSecond, share: Share) -> BitsPerSecond {
    let bits = u128::from(rate.get()) * share.connections as u128 / share.of.max(1) as u128;
    BitsPerSecond::new(u64::try_from(bits).unwrap_or(u64::MAX).max(1))
}

/// Sends on `flows` in turn until the meter says that it is over.
pub(crate) fn send(
    link: &Link<'_>,
    flows: &[Flow<'_>],
    stream: &Stream,
    meter: &mut Meter<'_>,
) -> Result<DatagramsSent, Error> {
    let mut pace = stream.rate.map(|rate| Pace::new(stream.datagram, rate, now()));
    if pace.is_some() {
        sharpen_sleep();
    }
    let mut sender = Sender::new(flows, stream);
    let mut sent = 0;
    let mut skipped_before = 0;
    let mut skipped_after = None;
    let mut next_look = Nanos::ZERO;
    loop {
        let now = now();
        let phase = meter.phase(now);
        let skipped = pace.as_ref().map_or(0, Pace::skipped);
        match phase {
            Phase::WarmUp => skipped_before = skipped,
            Phase::Window => {}
            Phase::CoolDown | Phase::Over => {
                skipped_after.get_or_insert(skipped);
            }
        }
        if phase == Phase::Over {
            break;
        }
        let looks = now >= next_look;
        if looks {
            next_look = now + LONGEST_SLEEP;
        }
        if link.is_ending() || (looks && link.peer_closed()) {
            link.closed(None)?;
            break;
        }
        let count = match pace.as_mut().map(|pace| pace.due(now)) {
            None => sender.burst,
            Some(Due::Send(count)) => usize::try_from(count).expect("at most a group"),
            Some(Due::Wait(until)) => {
                sleep_until(until.min(now + LONGEST_SLEEP));
                continue;
            }
        };
        let in_window = phase == Phase::Window;
        let taken = match sender.send(count, in_window, now) {
            Ok(taken) => taken as u64,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => 0,
            Err(Errno::MSGSIZE) => return Err(Error::DatagramTooBig { bytes: stream.datagram }),
            Err(errno) => {
                link.closed(Some(errno))?;
                break;
            }
        };
        if let Some(pace) = &mut pace {
            pace.sent(taken);
        }
        sent += if in_window { taken } else { 0 };
        meter.done(now, taken);
    }
    let skipped = skipped_after.unwrap_or(pace.as_ref().map_or(0, Pace::skipped));
    Ok(DatagramsSent {
        sent,
        bytes: stream.datagram,
        offered: stream.rate,
        group: pace.as_ref().map_or(sender.burst as u64, Pace::group),
        cut: sender.batch.per_message() as u64,
        skipped: skipped.saturating_sub(skipped_before),
    })
}

/// The flows of a sending thread, which take turns.
struct Sender<'a> {
    flows: &'a [Flow<'a>],
    next_sequences: Vec<u64>,
    turn: usize,
    batch: Outgoing,
    /// Datagrams in a turn without a pace.
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

    /// Sends `count` datagrams on the flow whose turn it is; returns how many the kernel took.
    fn send(&mut self, count: usize, in_window: bool, sent_at: Nanos) -> Result<usize, Errno> {
        let Flow { socket, tag } = self.flows[self.turn];
        let first = self.next_sequences[self.turn];
        for (idx, sequence) in (first..).take(count).enumerate() {
            encode(self.batch.slot_mut(idx), tag, Stamp { sequence, in_window, sent_at });
        }
        let taken = match self.batch.send(socket, count) {
            Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::OPNOTSUPP)
                if self.batch.per_message() > 1 =>
            {
                // Some paths (IPsec, old drivers) cannot cut; a datagram too large says so again.
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

/// Receives on `flows` until the sender closed and nothing more comes.
pub(crate) fn receive(
    link: &Link<'_>,
    flows: &[Flow<'_>],
    stream: &Stream,
    meter: &mut Meter<'_>,
) -> Result<DatagramsReceived, Error> {
    let mut receiver = Receiver::new(flows, stream)?;
    let mut events = Vec::with_capacity(EVENTS);
    let mut last_arrival = now();
    let mut next_look = Nanos::ZERO;
    loop {
        let before = receiver.messages;
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
        if meter.phase(now) != Phase::WarmUp {
            receiver.mark();
        }
        let nothing = receiver.messages == before;
        if !nothing {
            last_arrival = now;
        }
        if now >= next_look || nothing {
            next_look = now + LONGEST_SLEEP;
            if link.is_ending() {
                link.closed(None)?;
                break;
            }
            if link.peer_closed() {
                link.closed(None)?;
                if now.saturating_sub(last_arrival) >= QUIET {
                    break;
                }
            }
        }
    }
    Ok(receiver.close())
}

/// The flows of a receiving thread, with their books.
struct Receiver<'a> {
    flows: &'a [Flow<'a>],
    books: Vec<Arrivals>,
    batch: Incoming,
    size: usize,
    /// `None` for a single flow, which blocks.
    poll: Option<OwnedFd>,
    /// Whether the window has begun, and what the kernel had dropped by then.
    marked: bool,
    dropped_before: Option<u64>,
    foreign: u64,
    messages: u64,
}

impl<'a> Receiver<'a> {
    fn new(flows: &'a [Flow<'a>], stream: &Stream) -> Result<Self, Error> {
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
        // Without joining, one byte more, so that a longer datagram is seen to be another's.
        let batch = if joins {
            Incoming::new(JOINED_BATCH, LARGEST_JOINED)
        } else {
            Incoming::new(RECEIVE_BATCH, size + 1)
        };
        let books = flows.iter().map(|_| Arrivals::among(flows.len())).collect();
        Ok(Self {
            flows,
            books,
            batch,
            size,
            poll,
            marked: false,
            dropped_before: None,
            foreign: 0,
            messages: 0,
        })
    }

    /// Enters what one flow has.
    fn take(&mut self, idx: usize, may_wait: bool) -> Result<(), Error> {
        let Flow { socket, tag } = self.flows[idx];
        let count = match self.batch.receive(socket, may_wait) {
            Ok(count) => count,
            // A refusal is the sender's host saying that its port is closed; the connection tells.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => 0,
            Err(errno) => return Err(Error::io("receive datagrams", errno)),
        };
        let now = now();
        for datagram in (0..count).flat_map(|idx| self.batch.datagrams(idx)) {
            match decode(datagram, self.size, tag) {
                Some(stamp) => self.books[idx].enter(stamp, now),
                None => self.foreign += 1,
            }
        }
        self.messages += count as u64;
        Ok(())
    }

    /// What the kernel dropped before this instant is not of the window; nor is what came to the wrong
    /// socket before all flows had theirs.
    fn mark(&mut self) {
        if !self.marked {
            self.marked = true;
            self.dropped_before = self.dropped();
            self.foreign = 0;
        }
    }

    fn dropped(&self) -> Option<u64> {
        self.flows.iter().map(|flow| dropped_datagrams(flow.socket)).sum()
    }

    fn close(self) -> DatagramsReceived {
        let dropped = self.dropped().zip(self.dropped_before);
        let mut received = DatagramsReceived {
            dropped_by_kernel: dropped.map(|(after, before)| after.saturating_sub(before)),
            foreign: self.foreign,
            ..DatagramsReceived::default()
        };
        for books in &self.books {
            received.add(&DatagramsReceived {
                received: books.received,
                duplicates: books.duplicates,
                reordered: books.reordered,
                jitter_ns: books.jitter_ns,
                dropped_by_kernel: Some(0),
                foreign: 0,
            });
        }
        received
    }
}

/// Reads anything as the datagrams of a flow, for the fuzz target.
pub(crate) fn read_any(datagrams: &[(Nanos, &[u8])], size: usize) {
    let mut books = Arrivals::among(usize::MAX);
    for (at, datagram) in datagrams {
        // The tag that it names: nothing is turned away that could be ours.
        let tag = datagram.first_chunk().map_or(0, |tag| u32::from_be_bytes(*tag));
        if let Some(stamp) = decode(datagram, size, tag) {
            books.enter(stamp, *at);
        }
    }
    assert!(books.received + books.duplicates <= datagrams.len() as u64);
    assert!(books.reordered <= books.received && books.jitter_ns >= 0.0);
}

/// Lets this thread's sleeps end when they should: the kernel may otherwise add 50 us to each to save
/// wake-ups.
pub(crate) fn sharpen_sleep() {
    // Where it is not allowed, sleeps are a little longer; the pace says if they are too long.
    let _refused = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Tag (4 byte), window flag and number (6), time (8), big-endian: 18 byte, the payload of the smallest
/// Ethernet frame that carries UDP on IPv4.
fn encode(datagram: &mut [u8], tag: u32, stamp: Stamp) {
    let flag = if stamp.in_window { IN_WINDOW } else { 0 };
    let number = flag | (stamp.sequence % IN_WINDOW);
    datagram[..4].copy_from_slice(&tag.to_be_bytes());
    datagram[4..10].copy_from_slice(&number.to_be_bytes()[2..]);
    datagram[10..18].copy_from_slice(&stamp.sent_at.as_ns().to_be_bytes());
}

/// `None` if the datagram is not of this run.
fn decode(datagram: &[u8], size: usize, tag: u32) -> Option<Stamp> {
    if datagram.len() != size {
        return None;
    }
    let (its_tag, rest) = datagram.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk::<6>()?;
    let (sent_at, _) = rest.split_first_chunk()?;
    if u32::from_be_bytes(*its_tag) != tag {
        return None;
    }
    let number = number.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
    Some(Stamp {
        sequence: number % IN_WINDOW,
        in_window: number & IN_WINDOW != 0,
        sent_at: Nanos::from_ns(u64::from_be_bytes(*sent_at)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_the_smallest_datagram() {
        for (sequence, in_window) in [(0, true), (1, false), (IN_WINDOW - 1, true)] {
            let stamp = Stamp { sequence, in_window, sent_at: Nanos::from_ns(u64::MAX - 1) };
            let mut datagram = [0; 18];
            encode(&mut datagram, 0xdead_beef, stamp);
            assert_eq!(decode(&datagram, 18, 0xdead_beef), Some(stamp));
        }
    }

    #[test]
    fn datagrams_of_another_run_or_size_are_not_ours() {
        let stamp = Stamp { sequence: 1, in_window: true, sent_at: Nanos::ZERO };
        let mut datagram = [0; 20];
        encode(&mut datagram, 7, stamp);
        assert_eq!(decode(&datagram, 20, 8), None);
        assert_eq!(decode(&datagram, 19, 7), None);
        assert_eq!(decode(&datagram[..5], 5, 7), None);
        assert_eq!(decode(&[], 0, 7), None);
    }
}
