//! The end of the traffic that makes the load.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use latput_trial::{Probe, Traffic};
use latput_units::{CpuSet, Nanos};

use crate::clock::{COOL_DOWN, Window};
use crate::error::Error;
use crate::hello::{Hello, WELCOME};
use crate::key::Key;
use crate::limits;
use crate::meter::{Meter, Usage};
use crate::outcome::SenderOutcome;
use crate::rr;
use crate::socket;
use crate::stop::Stop;
use crate::stream;
use crate::supervise::{Link, supervise};

/// How long a connection and its welcome may take.
const PATIENCE: Nanos = Nanos::from_s(5);
/// When traffic that hangs in a blocked call is ended after its time.
const OVERTIME: Nanos = Nanos::from_ms(20);

/// Makes the load. Its connections stand from [`Generator::connect`] until it is dropped.
#[derive(Debug)]
pub struct Generator {
    sockets: Vec<TcpStream>,
    peer: SocketAddr,
    traffic: Traffic,
    cpus: CpuSet,
}

impl Generator {
    /// Connects to the reflector at `peer` and shows the key; the traffic thread will be held to
    /// `cpus`, if there are any.
    pub fn connect(
        peer: IpAddr,
        port: u16,
        key: &Key,
        traffic: Traffic,
        probe: Option<Probe>,
        cpus: CpuSet,
    ) -> Result<Self, Error> {
        limits::check(&traffic)?;
        probe.as_ref().map_or(Ok(()), limits::check_probe)?;
        let peer = SocketAddr::new(peer, port);
        let hello = Hello { key: *key.bytes(), udp_port: 0, tag: 0 }.encode();
        let nodelay = matches!(traffic, Traffic::TcpRr { nodelay: true, .. });
        let mut sockets = Vec::with_capacity(limits::connections(&traffic));
        for _ in 0..limits::connections(&traffic) {
            let socket = introduce(peer, &hello)?;
            socket::prepare(&socket, nodelay)?;
            sockets.push(socket);
        }
        Ok(Self { sockets, peer, traffic, cpus })
    }

    /// Makes the load from now until a cool-down after `window`, and counts what happened in it.
    pub fn run(self, window: Window, stop: &Stop) -> Result<SenderOutcome, Error> {
        let link = Link::new(&self.sockets, self.peer, window);
        let deadline = window.end() + COOL_DOWN + OVERTIME;
        let work = || self.send(&link);
        let (sent, usage) = supervise(&self.cpus, &link, deadline, stop, work)?;
        if sent.sent_bytes == 0 || sent.transactions == Some(0) {
            return Err(Error::Stalled { peer: self.peer });
        }
        Ok(SenderOutcome {
            window: window.length(),
            retransmits: usage.retransmits,
            cpu: usage.cpu,
            ..sent
        })
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
            Traffic::TcpStream { message_bytes, .. } => {
                outcome.sent_bytes =
                    stream::send_all(link, limits::size(message_bytes), &mut meter)?;
            }
            Traffic::UdpStream { .. } => {
                return Err(Error::BadTraffic { what: "kind", allowed: "tcp_rr or tcp_stream" });
            }
        }
        Ok((outcome, meter.finish()))
    }
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
