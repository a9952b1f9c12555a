//! UDP streams to an iperf3 server: the handshake of each, and the paced sender.

use std::net::{SocketAddr, UdpSocket};
use std::panic::resume_unwind;
use std::thread;

use latput_load::{COOL_DOWN, Due, LARGEST_GROUP, Outgoing, Pace, Stop, Window, now};
use latput_trial::workload::SocketOptions;
use latput_units::{BitsPerSecond, Bytes, CpuSet, Nanos};
use rustix::io::Errno;
use socket2::SockRef;

use crate::control::PATIENCE;
use crate::error::Error;
use crate::window_cpu::WindowCpu;

/// A client's first datagram (`UDP_CONNECT_MSG` in little-endian memory).
const KNOCK: [u8; 4] = [0x39, 0x38, 0x37, 0x36];
/// The server's answers: since 3.10 (`UDP_CONNECT_REPLY`), and before.
const ANSWERS: [[u8; 4]; 2] = [[0x36, 0x37, 0x38, 0x39], [0xb1, 0x68, 0xde, 0x3a]];
/// Datagrams of one send call without a rate.
const GROUP: u64 = 32;
/// Longest sleep without a check of the stop flag.
const LONGEST_SLEEP: Nanos = Nanos::from_ms(20);

/// UDP sockets of the accepted streams.
#[derive(Debug)]
pub(crate) struct UdpStreams {
    sockets: Vec<UdpSocket>,
    peer: SocketAddr,
    datagram: usize,
    rate: Option<BitsPerSecond>,
    threads: usize,
    cpus: CpuSet,
}

/// Counts of the senders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendCounts {
    /// Datagrams of each stream in the whole test, in the order of streams.
    pub(crate) of_stream: Vec<u64>,
    /// Datagrams in the window, over all streams.
    pub(crate) in_window: u64,
    /// Datagrams left out because the sender was delayed for too long.
    pub(crate) skipped: u64,
    /// CPU time of the sending threads in the window.
    pub(crate) cpu: Nanos,
}

impl UdpStreams {
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
            sockets.push(open_udp_stream(peer, options, stop)?);
        }
        let datagram = usize::try_from(datagram.get()).expect("a datagram is at most 64 KiB");
        Ok(Self { sockets, peer, datagram, rate: None, threads: 1, cpus: CpuSet::default() })
    }

    /// Sets the rate over all streams, the number of threads and their CPUs.
    pub(crate) fn with_rate(
        self,
        rate: Option<BitsPerSecond>,
        threads: u32,
        cpus: Option<&CpuSet>,
    ) -> Self {
        Self { rate, threads: threads as usize, cpus: cpus.cloned().unwrap_or_default(), ..self }
    }

    /// Sends from now until a cool-down after `window`.
    pub(crate) fn run(&self, window: Window, stop: &Stop) -> Result<SendCounts, Error> {
        let streams = self.sockets.len();
        let parts: Vec<Vec<usize>> = (0..self.threads)
            .map(|part| (part..streams).step_by(self.threads).collect())
            .filter(|part: &Vec<usize>| !part.is_empty())
            .collect();
        let ended: Vec<Result<SendCounts, Error>> = thread::scope(|scope| {
            let threads: Vec<_> = parts
                .iter()
                .map(|part| scope.spawn(move || self.send_streams(part, window, stop)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut sent = SendCounts { of_stream: vec![0; streams], ..SendCounts::default() };
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

    /// Sends on streams `part` in turn, one group at a time.
    fn send_streams(
        &self,
        part: &[usize],
        window: Window,
        stop: &Stop,
    ) -> Result<SendCounts, Error> {
        latput_load::bind_thread(&self.cpus)?;
        let streams = self.sockets.len() as u64;
        // Each stream has its share of the rate, each thread its share of the streams.
        let share = |rate: BitsPerSecond| {
            BitsPerSecond::new((rate.get() * part.len() as u64 / streams).max(1))
        };
        let datagram = Bytes::new(self.datagram as u64);
        let mut pace = self.rate.map(|rate| Pace::new(datagram, share(rate), now()));
        let slots = usize::try_from(LARGEST_GROUP).expect("a small constant");
        let mut batch = Outgoing::new(slots, self.datagram);
        let mut sent = SendCounts { of_stream: vec![0; part.len()], ..SendCounts::default() };
        let mut cpu = WindowCpu::new(window);
        let over = window.end() + COOL_DOWN;
        let mut turn = 0;
        loop {
            let at = now();
            if stop.is_raised() {
                return Err(Error::Stopped);
            }
            cpu.read_at(at);
            if at >= over {
                break;
            }
            let due = match pace.as_mut().map(|pace| pace.due(at)) {
                None => GROUP,
                Some(Due::Send(count)) => count,
                Some(Due::Wait(until)) => {
                    thread::sleep(until.saturating_sub(at).min(LONGEST_SLEEP).as_duration());
                    continue;
                }
            };
            let due = usize::try_from(due).expect("a group is small");
            let count = &mut sent.of_stream[turn];
            for (idx, number) in (*count + 1..).take(due).enumerate() {
                encode(batch.slot_mut(idx), at, number);
            }
            let taken = match batch.send(&self.sockets[part[turn]], due) {
                Ok(taken) => taken as u64,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => 0,
                Err(Errno::CONNREFUSED) => {
                    let doing = "in the middle of the datagrams";
                    return Err(Error::PeerGone { peer: self.peer, doing });
                }
                Err(errno) => return Err(Error::io("send a datagram", errno)),
            };
            *count += taken;
            if let Some(pace) = &mut pace {
                pace.sent(taken);
            }
            if at >= window.start() && at < window.end() {
                sent.in_window += taken;
            }
            turn = (turn + 1) % part.len();
        }
        sent.skipped = pace.map_or(0, |pace| pace.skipped());
        sent.cpu = cpu.cpu_used();
        Ok(sent)
    }
}

/// Opens one stream and waits until the server has it.
fn open_udp_stream(
    peer: SocketAddr,
    options: &SocketOptions,
    stop: &Stop,
) -> Result<UdpSocket, Error> {
    let failed = |source| Error::io("open a UDP socket", source);
    let socket = latput_load::bind_same_family(peer).map_err(failed)?;
    if let Some(bytes) = options.send_buffer {
        let bytes = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
        SockRef::from(&socket).set_send_buffer_size(bytes).map_err(failed)?;
    }
    socket.set_read_timeout(Some(Nanos::from_ms(20).as_duration())).map_err(failed)?;
    // A server that stops must not block a send.
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

/// Writes the head of a datagram: its time (seconds, microseconds) and its 64-bit number, big-endian.
fn encode(datagram: &mut [u8], at: Nanos, number: u64) {
    let seconds = u32::try_from(at.as_ns() / 1_000_000_000).unwrap_or(u32::MAX);
    let micros = u32::try_from(at.as_ns() % 1_000_000_000 / 1_000).expect("below a million");
    datagram[..4].copy_from_slice(&seconds.to_be_bytes());
    datagram[4..8].copy_from_slice(&micros.to_be_bytes());
    datagram[8..16].copy_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_begins_with_its_time_and_number() {
        let mut datagram = [0; 20];
        encode(&mut datagram, Nanos::from_s(7) + Nanos::from_us(5), 258);
        assert_eq!(datagram[..16], [0, 0, 0, 7, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
