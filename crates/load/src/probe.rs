//! Latency under load: ICMP echo at even intervals beside the traffic.
//!
//! Requests leave on schedule, whether or not answers came. A slow answer therefore does not hide
//! later ones that would also have been slow (no coordinated omission).

mod icmp;
mod stamp;

use std::io;
use std::net::IpAddr;

use latput_trial::Probe;
use latput_units::{Bytes, CpuSet, Nanos};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use socket2::{Socket, Type};

use self::icmp::{Echo, Version};
use crate::clock::{Window, now, timespec};
use crate::error::Error;
use crate::key::random;
use crate::kind::udp::sharpen_sleep;
use crate::limits;
use crate::outcome::ProbeOutcome;
use crate::rights;
use crate::workers::bind_to;

/// Longest wait for answers after the window.
const DRAIN: Nanos = Nanos::from_s(1);
/// Shortest wait for answers. In between, the wait is this many times the longest round trip so
/// far.
const SHORTEST_DRAIN: Nanos = Nanos::from_ms(100);
const DRAIN_ROUND_TRIPS: u64 = 8;
/// Longest wait without a check for the end of the run.
const LONGEST_WAIT: Nanos = Nanos::from_ms(20);
/// Payload of an echo request beside traffic, as of ping(8).
const PROBE_PAYLOAD: Bytes = Bytes::new(56);
/// Requests that a delayed prober makes up for. It leaves out and counts the others.
const CATCH_UP: u64 = 10;

/// An open ICMP echo socket.
#[derive(Debug)]
pub struct Prober {
    socket: Socket,
    version: Version,
    with_ip_header: bool,
    tag: u64,
    interval: Nanos,
    /// Bytes of a message with its header.
    bytes: usize,
}

impl Prober {
    /// Opens an echo socket toward `peer`.
    pub fn open(peer: IpAddr, probe: Probe) -> Result<Self, Error> {
        limits::check_probe(probe)?;
        Self::with_payload(peer, probe.rate_hz, PROBE_PAYLOAD)
    }

    /// Opens an echo socket toward `peer` for `rate_hz` requests a second with `payload` bytes
    /// each.
    pub(crate) fn with_payload(peer: IpAddr, rate_hz: u32, payload: Bytes) -> Result<Self, Error> {
        let version = if peer.is_ipv4() { Version::V4 } else { Version::V6 };
        let failed = |source| Error::io("open an ICMP socket", source);
        let socket = rights::echo_socket(peer).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::ProbePermission { source },
            _ => failed(source),
        })?;
        let is_raw = socket.r#type().map_err(failed)? == Type::RAW;
        stamp::enable(&socket);
        Ok(Self {
            socket,
            version,
            with_ip_header: is_raw && version == Version::V4,
            tag: u64::from_ne_bytes(random()?),
            interval: Nanos::from_ns(1_000_000_000 / u64::from(rate_hz)),
            bytes: icmp::HEADER + limits::size(payload),
        })
    }

    /// Sends requests in `window` and receives answers for a while after it, on the calling thread.
    /// Ends early when `is_ending` returns true. Each request counts in the slice in which it was
    /// sent. Returns one outcome per slice, and one for an undivided window.
    pub fn run(
        &self,
        window: Window,
        cpus: &CpuSet,
        is_ending: impl Fn() -> bool,
    ) -> Result<Vec<ProbeOutcome>, Error> {
        bind_to(cpus)?;
        sharpen_sleep();
        let mut echoes = EchoTable::new(window, self.interval);
        let mut due = window.start();
        loop {
            if is_ending() {
                return Err(Error::Stopped);
            }
            let now = now();
            if due < window.end() && now >= due {
                let left_out = self.left_out(due, now.min(window.end()));
                echoes.enter_skipped(due, left_out);
                self.send(&mut echoes, due)?;
                due = due + self.interval.saturating_mul(left_out + 1);
                continue;
            }
            let drained = window.end() + echoes.drain();
            let over = echoes.received == echoes.sent || now >= drained;
            if due >= window.end() && over {
                return Ok(echoes.close());
            }
            let until = if due < window.end() { due } else { drained };
            let wait = until.saturating_sub(now).min(LONGEST_WAIT);
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(wait))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => self.receive(&mut echoes)?,
                Err(errno) => return Err(Error::io("wait for ICMP echo replies", errno)),
            }
        }
    }

    /// Number of requests to leave out, of those due from `due` until before `until`.
    fn left_out(&self, due: Nanos, until: Nanos) -> u64 {
        until.saturating_sub(due).as_ns().div_ceil(self.interval.as_ns()).saturating_sub(CATCH_UP)
    }

    fn send(&self, echoes: &mut EchoTable, due: Nanos) -> Result<(), Error> {
        let sequence = echoes.sent;
        let request = icmp::request(self.version, Echo { tag: self.tag, sequence }, self.bytes);
        echoes.enter_sent(due, now());
        match send(&self.socket, &request, SendFlags::DONTWAIT) {
            // A request that the host could not send counts as sent and lost.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(()),
            Err(errno) if is_from_the_path(errno) => Ok(()),
            Err(Errno::MSGSIZE) => {
                let payload = self.bytes - icmp::HEADER;
                Err(Error::DatagramTooBig { bytes: Bytes::new(payload as u64) })
            }
            Err(errno) => Err(Error::io("send an ICMP echo request", errno)),
        }
    }

    fn receive(&self, echoes: &mut EchoTable) -> Result<(), Error> {
        // Only the identifying part of a reply is read.
        let mut packet = [0; icmp::LARGEST_IP_HEADER + icmp::SMALLEST];
        loop {
            let (bytes, stamp) = match stamp::receive(&self.socket, &mut packet) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) if is_from_the_path(errno) => continue,
                Err(errno) => return Err(Error::io("receive an ICMP echo reply", errno)),
            };
            let now = now();
            match icmp::parse_reply(self.version, &packet[..bytes], self.with_ip_header) {
                Some(echo) if echo.tag == self.tag => {
                    echoes.enter_received(echo.sequence, now, stamp);
                }
                _ => {}
            }
        }
    }
}

/// Parses any bytes as an echo reply, for the fuzz target.
pub(crate) fn read_any(packet: &[u8]) {
    for version in [Version::V4, Version::V6] {
        for with_ip_header in [false, true] {
            let _ = icmp::parse_reply(version, packet, with_ip_header);
        }
    }
}

/// Whether an ICMP error message of the path caused the error. The request is then lost.
fn is_from_the_path(errno: Errno) -> bool {
    matches!(errno, Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::CONNREFUSED | Errno::HOSTDOWN)
}

/// One unanswered request.
#[derive(Clone, Copy)]
struct Asked {
    sequence: u64,
    sent_at: Nanos,
    /// The slice in which it counts.
    slice: Option<u32>,
}

/// Send times and fates of requests.
struct EchoTable {
    sent: u64,
    received: u64,
    /// Interval between two requests.
    interval: Nanos,
    window: Window,
    /// Counts of each slice.
    slices: Vec<ProbeOutcome>,
    /// Slices below this number are final.
    packed: usize,
    longest: Option<Nanos>,
    /// Unanswered requests by their number modulo the length.
    unanswered: Vec<Option<Asked>>,
}

impl EchoTable {
    fn new(window: Window, interval: Nanos) -> Self {
        // Answers count for as long as the longest drain.
        let slots = DRAIN.as_ns() / interval.as_ns().max(1) + 1;
        Self {
            sent: 0,
            received: 0,
            interval,
            window,
            slices: vec![ProbeOutcome::default(); window.slice_count() as usize],
            packed: 0,
            longest: None,
            unanswered: vec![None; usize::try_from(slots).expect("at most 10000 a second")],
        }
    }

    /// Counts a request in the slice in which it was due. A request delayed into the next slice
    /// counts nowhere, since another setting was in force.
    fn enter_sent(&mut self, due: Nanos, sent_at: Nanos) {
        let (slot, sent_in) = (self.slot(self.sent), self.window.number_at(sent_at));
        let is_last = sent_in == self.window.slice_count();
        let slice = self.window.slice_at(due).filter(|slice| is_last || *slice == sent_in);
        self.unanswered[slot] = Some(Asked { sequence: self.sent, sent_at, slice });
        self.sent += 1;
        if let Some(slice) = self.slice_mut(slice) {
            slice.sent += 1;
        }
        self.pack_before(sent_at);
    }

    /// Counts `count` requests from `due` on as left out.
    fn enter_skipped(&mut self, due: Nanos, count: u64) {
        for number in 0..count {
            let due = due + self.interval.saturating_mul(number);
            if let Some(slice) = self.slice_mut(self.window.slice_at(due)) {
                slice.skipped += 1;
            }
        }
    }

    fn slice_mut(&mut self, slice: Option<u32>) -> Option<&mut ProbeOutcome> {
        self.slices.get_mut(slice? as usize)
    }

    /// Packs the histograms of slices that are final at `now`.
    fn pack_before(&mut self, now: Nanos) {
        let over = self.window.number_at(now.saturating_sub(DRAIN)) as usize;
        while self.packed < over {
            self.slices[self.packed].rtt.pack();
            self.packed += 1;
        }
    }

    /// Counts an answer once, and only to a request of ours. It arrived at `stamp` of the realtime
    /// clock if the kernel stamped it, and was read at `at`.
    fn enter_received(&mut self, sequence: u64, at: Nanos, stamp: Option<Nanos>) {
        let slot = self.slot(sequence);
        let asked = self.unanswered[slot].take_if(|asked| asked.sequence == sequence);
        if let Some(Asked { sent_at, slice, .. }) = asked {
            self.received += 1;
            let stamped = stamp.and_then(|stamp| stamp::instant(stamp, sent_at));
            let round_trip = stamped.unwrap_or(at).saturating_sub(sent_at);
            self.longest = self.longest.max(Some(round_trip));
            if let Some(slice) = self.slice_mut(slice) {
                slice.received += 1;
                slice.stamped += u64::from(stamped.is_some());
                slice.rtt.record(round_trip);
            }
        }
    }

    /// How long to wait for answers after the window on this path.
    fn drain(&self) -> Nanos {
        let longest = self.longest.unwrap_or(DRAIN);
        longest.saturating_mul(DRAIN_ROUND_TRIPS).clamp(SHORTEST_DRAIN, DRAIN)
    }

    fn slot(&self, sequence: u64) -> usize {
        let slots = self.unanswered.len() as u64;
        usize::try_from(sequence % slots).expect("below the number of slots")
    }

    fn close(mut self) -> Vec<ProbeOutcome> {
        if self.slices.len() > 1 {
            self.slices.iter_mut().for_each(|slice| slice.rtt.pack());
        }
        self.slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::SliceLayout;

    #[test]
    fn answer_counts_once_if_asked_for() {
        let mut echoes = EchoTable::new(window(), Nanos::from_ms(100));
        let at = |us| window().start() + Nanos::from_us(us);
        echoes.enter_sent(at(10), at(10));
        echoes.enter_sent(at(20), at(20));
        for (sequence, time) in [(1, 50), (1, 60), (2, 70), (u64::MAX, 80)] {
            echoes.enter_received(sequence, at(time), None);
        }
        let outcome = echoes.close().remove(0);
        assert_eq!((outcome.sent, outcome.received), (2, 1));
        assert_eq!(outcome.rtt.count(), 1);
        let us = Nanos::from_us;
        assert!(outcome.rtt.max() >= Some(us(30)) && outcome.rtt.max() < Some(us(31)));
    }

    #[test]
    fn drain_follows_the_round_trips_between_its_limits() {
        for (round_trip_ms, drain_ms) in [(1, 100.0), (50, 400.0), (300, 1000.0)] {
            let mut echoes = EchoTable::new(window(), Nanos::from_ms(1000));
            echoes.enter_sent(window().start(), window().start());
            assert_eq!(echoes.drain(), DRAIN, "nothing is known of the path yet");
            echoes.enter_received(0, window().start() + Nanos::from_ms(round_trip_ms), None);
            let off = echoes.drain().as_ms_f64() / drain_ms;
            assert!((0.99..1.01).contains(&off), "{off}");
        }
    }

    #[test]
    fn answer_later_than_the_drain_is_a_loss() {
        let mut echoes = EchoTable::new(window(), Nanos::from_ms(500));
        for time in 0..5 {
            echoes.enter_sent(Nanos::from_ms(500 * time), Nanos::from_ms(500 * time));
        }
        echoes.enter_received(0, Nanos::from_s(3), None);
        echoes.enter_received(4, Nanos::from_s(3), None);
        assert_eq!(echoes.received, 1);
    }

    #[test]
    fn request_counts_in_its_sending_slice() {
        let ms = Nanos::from_ms;
        let slices = SliceLayout::new(ms(100), ms(10), 3);
        let window = window().in_slices(slices).unwrap();
        let mut echoes = EchoTable::new(window, ms(20));
        let at = |time| window.start() + ms(time);
        // In the first cut, the first slice, the second cut and the third slice.
        for time in [5, 95, 105, 250] {
            echoes.enter_sent(at(time), at(time));
        }
        echoes.enter_sent(at(99), at(112)); // held up until the next slice
        echoes.enter_skipped(at(190), 3); // 190, 210 and 230
        for (sequence, time) in [(0, 20), (1, 120), (3, 330)] {
            echoes.enter_received(sequence, at(time), None);
        }
        let outcomes = echoes.close();
        let counts: Vec<_> =
            outcomes.iter().map(|it| (it.sent, it.received, it.skipped, it.rtt.count())).collect();
        assert_eq!(counts, [(1, 1, 0, 1), (0, 0, 1, 0), (1, 1, 2, 1)]);
        let max = outcomes[0].rtt.max().unwrap();
        assert!(max >= ms(25) && max < ms(26), "{max}");
    }

    fn window() -> Window {
        Window::starting_after(Nanos::from_s(1), Nanos::ZERO, Nanos::from_s(10)).unwrap()
    }
}
