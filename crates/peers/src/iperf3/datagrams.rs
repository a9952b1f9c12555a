//! UDP streams to an iperf3 server: the handshake of each, and the paced sender.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::panic::resume_unwind;
use std::thread;

use latput_load::{COOL_DOWN, Stop, Window, now};
use latput_trial::workload::SocketOptions;
use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockRef;

use crate::control::PATIENCE;
use crate::error::Error;

/// What a client sends first (`UDP_CONNECT_MSG` as a little-endian machine has it in memory).
const KNOCK: [u8; 4] = [0x39, 0x38, 0x37, 0x36];
/// What the server answers: since 3.10 (`UDP_CONNECT_REPLY`), and before that.
const ANSWERS: [[u8; 4]; 2] = [[0x36, 0x37, 0x38, 0x39], [0xb1, 0x68, 0xde, 0x3a]];
/// Datagrams in one system call at most.
const GROUP: u64 = 32;
/// What a held-up sender makes up for.
const CATCH_UP: Nanos = Nanos::from_ms(10);
/// The shortest sleep that is worth its wake-up.
const SHORTEST_SLEEP: Nanos = Nanos::from_us(50);

/// UDP sockets that the server has accepted, each a stream.
#[derive(Debug)]
pub(crate) struct Streams {
    sockets: Vec<UdpSocket>,
    peer: SocketAddr,
    datagram: usize,
    rate: Option<BitsPerSecond>,
    threads: usize,
    cpus: CpuSet,
}

/// What the senders did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Datagrams of each stream in all, in the order of streams.
    pub(crate) of_stream: Vec<u64>,
    /// Datagrams in the window, over all streams.
    pub(crate) in_window: u64,
    /// Datagrams that were due and left out because the sender was held up.
    pub(crate) skipped: u64,
    /// CPU time of the sending threads in the window.
    pub(crate) cpu: Nanos,
}

impl Streams {
    /// Opens `count` streams one after another, as the server accepts them.
    pub(crate) fn open(
        peer: SocketAddr,
        count: u32,
        datagram: Bytes,
        options: &SocketOptions,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let mut sockets = Vec::with_capacity(count as usize);
        for _ in 0..count {
            sockets.push(knock(peer, options, stop)?);
        }
        let datagram = usize::try_from(datagram.get()).expect("a datagram is at most 64 KiB");
        Ok(Self { sockets, peer, datagram, rate: None, threads: 1, cpus: CpuSet::default() })
    }

    /// The rate over all streams and who keeps it.
    pub(crate) fn paced(
        self,
        rate: Option<BitsPerSecond>,
        threads: u32,
        cpus: Option<&CpuSet>,
    ) -> Self {
        Self { rate, threads: threads as usize, cpus: cpus.cloned().unwrap_or_default(), ..self }
    }

    /// Sends from now until a cool-down after `window`.
    pub(crate) fn run(&self, window: Window, stop: &Stop) -> Result<Sent, Error> {
        let streams = self.sockets.len();
        let parts: Vec<Vec<usize>> = (0..self.threads)
            .map(|part| (part..streams).step_by(self.threads).collect())
            .filter(|part: &Vec<usize>| !part.is_empty())
            .collect();
        let ended: Vec<Result<Sent, Error>> = thread::scope(|scope| {
            let threads: Vec<_> = parts
                .iter()
                .map(|part| scope.spawn(move || self.send(part, window, stop)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut sent = Sent { of_stream: vec![0; streams], ..Sent::default() };
        for (part, one) in parts.iter().zip(ended) {
            let one = one?;
            for (idx, count) in part.iter().zip(one.of_stream) {
                sent.of_stream[*idx] = count;
            }
            sent.in_window += one.in_window;
            sent.skipped += one.skipped;
            sent.cpu = sent.cpu + one.cpu;
        }
        Ok(sent)
    }

    /// Sends on some of the streams in turn, a group on each.
    fn send(&self, part: &[usize], window: Window, stop: &Stop) -> Result<Sent, Error> {
        latput_load::bind_thread(&self.cpus)?;
        let streams = self.sockets.len() as u64;
        // Each stream has its share of the rate, each thread its share of the streams.
        let share = |rate: BitsPerSecond| rate.get() * part.len() as u64 / streams;
        let bits = self.datagram as u64 * 8;
        let mut pace = DatagramSchedule::new(self.rate.map(share), bits);
        let mut payload = Payload::new(self.datagram);
        let mut sent = Sent { of_stream: vec![0; part.len()], ..Sent::default() };
        let (over, mut turn, mut cpu) = (window.end() + COOL_DOWN, 0, [None; 2]);
        loop {
            let at = now();
            if stop.is_raised() {
                return Err(Error::Stopped);
            }
            let in_window = at >= window.start() && at < window.end();
            for (mark, due) in cpu.iter_mut().zip([window.start(), window.end()]) {
                if mark.is_none() && at >= due {
                    *mark = Some(thread_cpu());
                }
            }
            if at >= over {
                break;
            }
            let due = match pace.due(at) {
                Due::Send(count) => count,
                Due::Sleep(time) => {
                    thread::sleep(time.as_duration());
                    continue;
                }
            };
            let count = &mut sent.of_stream[turn];
            let went = payload.send(&self.sockets[part[turn]], *count + 1, at, due, self.peer)?;
            *count += went;
            pace.sent += went;
            sent.in_window += if in_window { went } else { 0 };
            turn = (turn + 1) % part.len();
        }
        sent.skipped = pace.skipped;
        sent.cpu = match cpu {
            [Some(start), Some(end)] => end.saturating_sub(start),
            _ => Nanos::ZERO,
        };
        Ok(sent)
    }
}

/// Opens one stream and waits until the server has it.
fn knock(peer: SocketAddr, options: &SocketOptions, stop: &Stop) -> Result<UdpSocket, Error> {
    let failed = |source| Error::io("open a UDP socket", source);
    let any = match peer.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
    if let Some(bytes) = options.send_buffer {
        let bytes = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
        SockRef::from(&socket).set_send_buffer_size(bytes).map_err(failed)?;
    }
    socket.set_read_timeout(Some(Nanos::from_ms(20).as_duration())).map_err(failed)?;
    // A server that stops must not hold us in a send.
    socket.set_write_timeout(Some(Nanos::from_ms(50).as_duration())).map_err(failed)?;
    socket.connect(peer).map_err(failed)?;
    socket.send(&KNOCK).map_err(failed)?;
    let waiting_for = "its answer on UDP; a firewall may let only TCP through";
    let deadline = now() + PATIENCE;
    let mut answer = [0_u8; 16];
    loop {
        match socket.recv(&mut answer) {
            Ok(length) if ANSWERS.iter().any(|known| answer[..length] == known[..]) => {
                return Ok(socket);
            }
            Ok(length) => {
                let problem = format!("it answered a UDP stream with {:02x?}", &answer[..length]);
                return Err(Error::Malformed { peer, program: "iperf3", problem });
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                return Err(Error::PeerGone { peer, doing: "opening a UDP stream" });
            }
            Err(_) if stop.is_raised() => return Err(Error::Stopped),
            Err(_) if now() >= deadline => {
                return Err(Error::NoAnswer { peer, waiting_for, waited: PATIENCE });
            }
            Err(_) => {}
        }
    }
}

/// When datagrams are due. Those that a short delay kept back are made up for, those of a long one are
/// left out: after it the sender must not burst at line rate.
#[derive(Debug)]
struct DatagramSchedule {
    bits_per_second: Option<u64>,
    bits: u64,
    start: Option<Nanos>,
    sent: u64,
    skipped: u64,
}

enum Due {
    Send(u64),
    Sleep(Nanos),
}

impl DatagramSchedule {
    const fn new(bits_per_second: Option<u64>, bits: u64) -> Self {
        Self { bits_per_second, bits, start: None, sent: 0, skipped: 0 }
    }

    fn due(&mut self, now: Nanos) -> Due {
        let Some(rate) = self.bits_per_second else { return Due::Send(GROUP) };
        let start = *self.start.get_or_insert(now);
        let owed = (self.in_time(rate, now.saturating_sub(start)) + 1)
            .saturating_sub(self.sent + self.skipped);
        if owed == 0 {
            let next = u128::from(self.sent + self.skipped) * u128::from(self.bits) * 1_000_000_000;
            let next = u64::try_from(next.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX);
            let wait = Nanos::from_ns(next).saturating_sub(now.saturating_sub(start));
            return Due::Sleep(wait.clamp(SHORTEST_SLEEP, Nanos::from_ms(20)));
        }
        let most = self.in_time(rate, CATCH_UP).max(1);
        self.skipped += owed.saturating_sub(most);
        Due::Send(owed.min(most).min(GROUP))
    }

    /// Whole datagrams in a time.
    fn in_time(&self, rate: u64, time: Nanos) -> u64 {
        let count = u128::from(time.as_ns()) * u128::from(rate)
            / (u128::from(self.bits.max(1)) * 1_000_000_000);
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// A group of datagrams to be sent together.
struct Payload(Vec<Vec<u8>>);

impl Payload {
    fn new(datagram: usize) -> Self {
        Self((0..GROUP).map(|_| vec![0; datagram]).collect())
    }

    /// Sends `count` datagrams numbered from `first`; returns how many the kernel took. Each begins
    /// with its time (seconds, microseconds) and its 64-bit number, big-endian.
    fn send(
        &mut self,
        socket: &UdpSocket,
        first: u64,
        at: Nanos,
        count: u64,
        peer: SocketAddr,
    ) -> Result<u64, Error> {
        let seconds = u32::try_from(at.as_ns() / 1_000_000_000).unwrap_or(u32::MAX);
        let micros = u32::try_from(at.as_ns() % 1_000_000_000 / 1_000).expect("below a million");
        let count = usize::try_from(count).expect("a group is small");
        for (number, datagram) in (first..).zip(&mut self.0[..count]) {
            datagram[..4].copy_from_slice(&seconds.to_be_bytes());
            datagram[4..8].copy_from_slice(&micros.to_be_bytes());
            datagram[8..16].copy_from_slice(&number.to_be_bytes());
        }
        let slices: Vec<[IoSlice<'_>; 1]> =
            self.0[..count].iter().map(|datagram| [IoSlice::new(datagram)]).collect();
        let mut controls: Vec<_> =
            slices.iter().map(|_| SendAncillaryBuffer::new(&mut [])).collect();
        let mut headers: Vec<_> = slices
            .iter()
            .zip(&mut controls)
            .map(|(slice, control)| MMsgHdr::new(slice, control))
            .collect();
        match sendmmsg(socket, &mut headers, SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(sent as u64),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(0),
            Err(Errno::CONNREFUSED) => {
                Err(Error::PeerGone { peer, doing: "in the middle of the datagrams" })
            }
            Err(errno) => Err(Error::io("send a datagram", errno)),
        }
    }
}

fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Nanos::from_s(time.tv_sec.cast_unsigned()) + Nanos::from_ns(time.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paced_sender_keeps_its_rate_and_does_not_burst_after_a_stop() {
        // 1000 byte at 8 Mbit/s: a datagram each millisecond.
        let mut pace = DatagramSchedule::new(Some(8_000_000), 8000);
        let mut at = Nanos::from_s(5);
        while at < Nanos::from_s(6) {
            match pace.due(at) {
                Due::Send(count) => pace.sent += count,
                Due::Sleep(time) => at = at + time,
            }
        }
        assert_eq!((pace.sent, pace.skipped), (1000, 0));
        let Due::Send(count) = pace.due(Nanos::from_s(7)) else { panic!("a second is owed") };
        assert_eq!(count, 10, "10 ms are made up for");
        assert!(pace.skipped > 980, "{}", pace.skipped);
    }

    #[test]
    fn a_datagram_begins_with_its_time_and_number() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = receiver.local_addr().unwrap();
        socket.connect(peer).unwrap();
        let mut payload = Payload::new(20);
        let at = Nanos::from_s(7) + Nanos::from_us(5);
        assert_eq!(payload.send(&socket, 258, at, 2, peer).unwrap(), 2);
        let mut bytes = [0; 32];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 20);
        assert_eq!(bytes[..16], [0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
