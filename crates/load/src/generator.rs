//! The end of the traffic that makes the load.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use latput_trial::{Probe, Traffic};
use latput_units::{CpuSet, Nanos};

use crate::clock::{COOL_DOWN, OVERTIME, Window};
use crate::error::Error;
use crate::hello::{Hello, WELCOME};
use crate::key::{Key, random};
use crate::limits;
use crate::meter::{Meter, Usage};
use crate::outcome::SenderOutcome;
use crate::probe::Prober;
use crate::rr;
use crate::socket;
use crate::stop::Stop;
use crate::stream;
use crate::supervise::{Link, supervise};
use crate::udp;

/// How long a connection and its welcome may take.
const PATIENCE: Nanos = Nanos::from_s(5);

/// Makes the load. Its connections stand from [`Generator::connect`] until it is dropped.
#[derive(Debug)]
pub struct Generator {
    sockets: Vec<TcpStream>,
    datagrams: Option<UdpSocket>,
    tag: u32,
    prober: Option<Prober>,
    peer: SocketAddr,
    traffic: Traffic,
    cpus: CpuSet,
}

impl Generator {
    /// Connects to the reflector at `peer` and shows the key, and opens what `probe` needs; the threads
    /// will be held to `cpus`, if there are any.
    pub fn connect(
        peer: IpAddr,
        port: u16,
        key: &Key,
        traffic: Traffic,
        probe: Option<Probe>,
        cpus: CpuSet,
    ) -> Result<Self, Error> {
        limits::check(&traffic)?;
        probe.map_or(Ok(()), limits::check_probe)?;
        let prober = probe.map(|probe| Prober::open(peer, probe)).transpose()?;
        let peer = SocketAddr::new(peer, port);
        let datagrams = match traffic {
            Traffic::UdpStream { .. } => Some(open_datagrams(peer)?),
            _ => None,
        };
        let udp_port = match &datagrams {
            Some(socket) => socket
                .local_addr()
                .map_err(|source| Error::io("read the port of the UDP socket", source))?
                .port(),
            None => 0,
        };
        let tag = u32::from_ne_bytes(random()?);
        let hello = Hello { key: *key.bytes(), udp_port, tag }.encode();
        let nodelay = matches!(traffic, Traffic::TcpRr { nodelay: true, .. });
        let mut sockets = Vec::with_capacity(limits::connections(&traffic));
        for _ in 0..limits::connections(&traffic) {
            let socket = introduce(peer, &hello)?;
            socket::prepare(&socket, nodelay)?;
            sockets.push(socket);
        }
        Ok(Self { sockets, datagrams, tag, prober, peer, traffic, cpus })
    }

    /// Makes the load from now until a cool-down after `window`, and counts what happened in it.
    pub fn run(self, window: Window, stop: &Stop) -> Result<SenderOutcome, Error> {
        let failed = AtomicBool::new(false);
        let is_ending = || stop.is_raised() || failed.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let probing = self.prober.as_ref().map(|prober| {
                thread::Builder::new()
                    .name("latput-probe".to_owned())
                    .spawn_scoped(scope, || prober.run(window, &self.cpus, is_ending))
                    .map_err(|source| Error::io("start the probe's thread", source))
            });
            let probing = probing.transpose()?;
            let traffic = self.run_traffic(window, stop);
            failed.store(traffic.is_err(), Ordering::Relaxed);
            let probe =
                probing.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            let traffic = traffic?;
            Ok(SenderOutcome { window: window.length(), probe: probe.transpose()?, ..traffic })
        })
    }

    fn run_traffic(&self, window: Window, stop: &Stop) -> Result<SenderOutcome, Error> {
        let link = Link::new(&self.sockets, self.peer, window);
        let deadline = window.end() + COOL_DOWN + OVERTIME;
        let work = || self.send(&link);
        let (sent, usage) = supervise(&self.cpus, &link, deadline, stop, work)?;
        // The reflector need not wait for the probe.
        for socket in &self.sockets {
            let _gone = socket.shutdown(Shutdown::Both);
        }
        // At a low offered rate no datagram may be due in the window; TCP always has something to send.
        let nothing = sent.sent_bytes == 0 || sent.transactions == Some(0);
        if nothing && sent.datagrams.is_none() {
            return Err(Error::Stalled { peer: self.peer });
        }
        let retransmits = usage.retransmits.filter(|_| sent.datagrams.is_none());
        Ok(SenderOutcome { retransmits, cpu: usage.cpu, ..sent })
    }

    fn send(&self, link: &Link<'_>) -> Result<(SenderOutcome, Usage), Error> {
        let mut meter = Meter::leading(link);
        let mut outcome = SenderOutcome::default();
        match self.traffic {
            Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
                let side = rr::Side {
                    incoming: limits::size(response_bytes),
                    outgoing: limits::size(request_bytes),
                    in_flight: burst + 1,
                    separate: nodelay,
                    leads: true,
                };
                let tally = rr::run(link, &side, &mut meter)?;
                outcome.sent_bytes = tally.sent_bytes;
                outcome.transactions = Some(tally.messages);
                outcome.latency = tally.latency;
            }
            Traffic::TcpBulk { message_bytes, .. } => {
                outcome.sent_bytes =
                    stream::send_all(link, limits::size(message_bytes), &mut meter)?;
            }
            Traffic::UdpStream { datagram_bytes, rate: Some(rate), .. } => {
                let socket = self.datagrams.as_ref().expect("opened for datagram traffic");
                let flow = udp::Flow { datagram: datagram_bytes, rate, tag: self.tag };
                let sent = udp::send(link, socket, &flow, &mut meter)?;
                outcome.sent_bytes = sent.sent * datagram_bytes.get();
                outcome.datagrams = Some(sent);
            }
            _ => unreachable!("refused by `limits::check`"),
        }
        Ok((outcome, meter.finish()))
    }
}

/// A UDP socket toward the reflector.
fn open_datagrams(peer: SocketAddr) -> Result<UdpSocket, Error> {
    let any = match peer.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket =
        UdpSocket::bind((any, 0)).map_err(|source| Error::io("open a UDP socket", source))?;
    socket::prepare_datagrams(&socket)?;
    socket.connect(peer).map_err(|source| unreachable(peer, source))?;
    Ok(socket)
}

/// Opens one connection and shows the key on it.
fn introduce(peer: SocketAddr, hello: &[u8]) -> Result<TcpStream, Error> {
    let mut socket = TcpStream::connect_timeout(&peer, PATIENCE.as_duration())
        .map_err(|source| unreachable(peer, source))?;
    socket
        .set_read_timeout(Some(PATIENCE.as_duration()))
        .map_err(|source| Error::io("set the timeout of a handshake", source))?;
    let mut answer = WELCOME;
    answer.fill(0);
    socket.write_all(hello).and_then(|()| socket.read_exact(&mut answer)).map_err(|source| {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::NoAnswer { peer, waited: PATIENCE }
            }
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Error::NotWelcome { peer },
            _ => Error::io("show the key to the reflector", source),
        }
    })?;
    if answer != WELCOME {
        return Err(Error::NotReflector { peer });
    }
    socket
        .set_read_timeout(None)
        .map_err(|source| Error::io("set the timeout of a connection", source))?;
    Ok(socket)
}

fn unreachable(peer: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused { peer },
        io::ErrorKind::TimedOut => Error::NoAnswer { peer, waited: PATIENCE },
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::NoRoute { peer, source }
        }
        _ => Error::io("connect to the reflector", source),
    }
}
