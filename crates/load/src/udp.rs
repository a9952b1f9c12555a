//! Datagrams at an offered rate: the sender keeps the pace, the receiver keeps the books.
//!
//! Each datagram says whether it was sent in the sender's window, so that loss is exact whatever the
//! clocks of the two ends. The TCP connection that showed the key stays open beside it: its end is the
//! end of the run.

mod arrivals;
mod pace;

use std::net::UdpSocket;
use std::num::NonZeroU64;

use latput_units::{BitsPerSecond, Bytes, Nanos};
use rustix::io::Errno;

use self::arrivals::{Arrivals, Stamp};
use self::pace::{Due, LARGEST_GROUP, Pace};
use crate::clock::{now, sleep_until};
use crate::error::Error;
use crate::limits;
use crate::meter::{Meter, Phase};
use crate::outcome::{DatagramsReceived, DatagramsSent};
use crate::socket::{Batch, dropped_datagrams};
use crate::supervise::Link;

/// Datagrams taken from the kernel at once.
const RECEIVE_BATCH: usize = 32;
/// Longest sleep without a look whether the run should end.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);
/// How long after the sender closed nothing may come before the receiver believes that nothing will.
const QUIET: Nanos = Nanos::from_ms(200);
/// The top bit of the 48-bit number says that a datagram was sent in the window.
const IN_WINDOW: u64 = 1 << 47;

/// What is sent, and how fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) datagram: Bytes,
    pub(crate) rate: BitsPerSecond,
    /// Tells this run's datagrams from others.
    pub(crate) tag: u32,
}

/// Sends `flow` until the meter says that it is over.
pub(crate) fn send(
    link: &Link<'_>,
    socket: &UdpSocket,
    flow: &Flow,
    meter: &mut Meter<'_>,
) -> Result<DatagramsSent, Error> {
    sharpen_sleep();
    let mut pace = Pace::new(flow.datagram, flow.rate, now());
    let slots = usize::try_from(LARGEST_GROUP).expect("a small constant");
    let mut batch = Batch::new(slots, limits::size(flow.datagram));
    let mut next_sequence = 0;
    let mut sent = 0;
    let mut skipped_before = 0;
    let mut skipped_after = None;
    let mut next_look = Nanos::ZERO;
    loop {
        let now = now();
        let phase = meter.phase(now);
        match phase {
            Phase::WarmUp => skipped_before = pace.skipped(),
            Phase::Window => {}
            Phase::CoolDown | Phase::Over => {
                skipped_after.get_or_insert(pace.skipped());
            }
        }
        if phase == Phase::Over {
            break;
        }
        if now >= next_look {
            next_look = now + LONGEST_SLEEP;
            if link.is_ending() || link.peer_closed() {
                link.closed(None)?;
                break;
            }
        }
        let count = match pace.due(now) {
            Due::Send(count) => count,
            Due::Wait(until) => {
                sleep_until(until.min(now + LONGEST_SLEEP));
                continue;
            }
        };
        let in_window = phase == Phase::Window;
        for (idx, sequence) in (next_sequence..next_sequence + count).enumerate() {
            encode(batch.slot_mut(idx), flow.tag, Stamp { sequence, in_window, sent_at: now });
        }
        let count = usize::try_from(count).expect("at most a group");
        let taken = match batch.send(socket, count) {
            Ok(taken) => taken as u64,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(Errno::MSGSIZE) => return Err(Error::DatagramTooBig { bytes: flow.datagram }),
            Err(errno) => {
                link.closed(Some(errno))?;
                break;
            }
        };
        next_sequence += taken;
        pace.sent(taken);
        sent += if in_window { taken } else { 0 };
    }
    Ok(DatagramsSent {
        sent,
        bytes: flow.datagram,
        offered: flow.rate,
        group: pace.group(),
        skipped: skipped_after.unwrap_or(pace.skipped()).saturating_sub(skipped_before),
    })
}

/// Receives `flow` until the sender closed and nothing more comes.
pub(crate) fn receive(
    link: &Link<'_>,
    socket: &UdpSocket,
    flow: &Flow,
    meter: &mut Meter<'_>,
) -> Result<DatagramsReceived, Error> {
    let size = limits::size(flow.datagram);
    // One byte more, so that a longer datagram is seen to be another's.
    let mut batch = Batch::new(RECEIVE_BATCH, size + 1);
    let mut arrivals = Arrivals::new();
    let mut foreign = 0;
    let mut dropped_before = None;
    let mut last_arrival = now();
    let mut next_look = Nanos::ZERO;
    loop {
        let count = match batch.receive(socket) {
            Ok(count) => count,
            // A refusal is the sender's host saying that its port is closed; the connection tells.
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => 0,
            Err(errno) => return Err(Error::io("receive datagrams", errno)),
        };
        let now = now();
        if meter.phase(now) == Phase::WarmUp || dropped_before.is_none() {
            dropped_before = dropped_datagrams(socket);
        }
        for idx in 0..count {
            match decode(batch.received(idx), size, flow.tag) {
                Some(stamp) => {
                    arrivals.enter(stamp, now);
                    last_arrival = now;
                }
                None => foreign += 1,
            }
        }
        if now >= next_look || count == 0 {
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
    let dropped = dropped_datagrams(socket).zip(dropped_before);
    Ok(DatagramsReceived {
        received: arrivals.received,
        duplicates: arrivals.duplicates,
        reordered: arrivals.reordered,
        jitter_ns: arrivals.jitter_ns,
        dropped_by_kernel: dropped.map(|(after, before)| after.saturating_sub(before)),
        foreign,
    })
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
