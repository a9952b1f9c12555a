//! The end of the traffic on the system under test.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use latput_trial::Traffic;
use latput_units::{CpuSet, Nanos};

use crate::clock::Window;
use crate::door::{Door, Guest};
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::limits;
use crate::meter::{Meter, Usage};
use crate::outcome::ReceiverOutcome;
use crate::rr;
use crate::socket;
use crate::stop::Stop;
use crate::stream;
use crate::supervise::{Link, supervise};
use crate::udp;

/// How long after its window the reflector waits for the generator to close.
const GRACE: Nanos = Nanos::from_s(1);

/// Answers requests and receives bulk. It listens from [`Reflector::open`] until it is dropped, and
/// talks only to connections that showed the run's key.
#[derive(Debug)]
pub struct Reflector {
    door: Door,
    datagrams: Option<UdpSocket>,
    traffic: Traffic,
    cpus: CpuSet,
}

impl Reflector {
    /// Opens the data port at `bind` (port 0: any free one) for the generator of `traffic`; the traffic
    /// thread will be held to `cpus`, if there are any.
    pub fn open(bind: SocketAddr, key: Key, traffic: Traffic, cpus: CpuSet) -> Result<Self, Error> {
        limits::check(&traffic)?;
        let (listener, datagrams) = match traffic {
            Traffic::UdpStream { .. } => {
                let (listener, datagrams) = bind_both(bind)?;
                (listener, Some(datagrams))
            }
            _ => (TcpListener::bind(bind).map_err(|source| not_bound(bind, source))?, None),
        };
        let door = Door::open(listener, key, limits::connections(&traffic))?;
        Ok(Self { door, datagrams, traffic, cpus })
    }

    /// The port that the generator connects to.
    pub fn port(&self) -> u16 {
        self.door.address().port()
    }

    /// Waits until every connection of the traffic is there and has shown the key.
    pub fn wait_ready(&self, deadline: Nanos) -> Result<(), Error> {
        self.door.wait_full(deadline)
    }

    /// Takes part in the traffic until the generator ends it, and counts what came in `window`.
    pub fn run(self, window: Window, stop: &Stop) -> Result<ReceiverOutcome, Error> {
        self.door.wait_full(Nanos::ZERO)?;
        let guests = self.door.take_guests();
        let Guest { peer, hello, .. } = *guests.first().expect("a full door let in at least one");
        let sockets: Vec<TcpStream> = guests.into_iter().map(|guest| guest.socket).collect();
        let link = Link::new(&sockets, peer, window);
        let deadline = window.end() + GRACE;
        let work = || self.receive(&link, &hello);
        let (received, usage) = supervise(&self.cpus, &link, deadline, stop, work)?;
        // Of datagrams, all may be lost; on TCP that is no measurement.
        if received.received_bytes == 0 && received.datagrams.is_none() {
            return Err(Error::Stalled { peer });
        }
        Ok(ReceiverOutcome {
            window: window.length(),
            retransmits: usage.retransmits.filter(|_| received.datagrams.is_none()),
            cpu: usage.cpu,
            wrong_keys: self.door.wrong_keys(),
            ..received
        })
    }

    fn receive(&self, link: &Link<'_>, hello: &Hello) -> Result<(ReceiverOutcome, Usage), Error> {
        let mut meter = Meter::following(link);
        let mut outcome = ReceiverOutcome::default();
        match self.traffic {
            Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
                prepare(link, nodelay)?;
                let side = rr::Side {
                    incoming: limits::size(request_bytes),
                    outgoing: limits::size(response_bytes),
                    in_flight: burst + 1,
                    separate: nodelay,
                    leads: false,
                };
                let tally = rr::run(link, &side, &mut meter)?;
                outcome.received_bytes = tally.received_bytes;
                outcome.requests = Some(tally.messages);
            }
            Traffic::TcpBulk { .. } => {
                prepare(link, false)?;
                outcome.received_bytes = stream::receive_all(link, &mut meter)?;
            }
            Traffic::UdpStream { datagram_bytes, rate: Some(rate), .. } => {
                prepare(link, true)?;
                let socket = self.datagrams.as_ref().expect("opened for datagram traffic");
                // From here on the kernel takes datagrams only from whom the key was shown by.
                socket::prepare_datagrams(socket)?;
                socket.connect(SocketAddr::new(link.peer.ip(), hello.udp_port)).map_err(
                    |source| Error::io("direct the UDP socket to the generator", source),
                )?;
                let flow = udp::Flow { datagram: datagram_bytes, rate, tag: hello.tag };
                let received = udp::receive(link, socket, &flow, &mut meter)?;
                outcome.received_bytes = received.received * datagram_bytes.get();
                outcome.datagrams = Some(received);
            }
            _ => unreachable!("refused by `limits::check`"),
        }
        Ok((outcome, meter.finish()))
    }
}

/// A TCP and a UDP socket on the same port.
fn bind_both(bind: SocketAddr) -> Result<(TcpListener, UdpSocket), Error> {
    /// A free TCP port whose number is taken on UDP is rare; so many in a row are a misconfiguration.
    const ATTEMPTS: usize = 16;
    let mut attempt = 1;
    loop {
        let bound = TcpListener::bind(bind).and_then(|listener| {
            let socket = UdpSocket::bind(listener.local_addr()?)?;
            Ok((listener, socket))
        });
        match bound {
            Err(source)
                if source.kind() == io::ErrorKind::AddrInUse
                    && bind.port() == 0
                    && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            bound => return bound.map_err(|source| not_bound(bind, source)),
        }
    }
}

fn not_bound(address: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortInUse { address },
        io::ErrorKind::AddrNotAvailable => Error::AddressNotHere { address },
        _ => Error::io("listen on the data port", source),
    }
}

fn prepare(link: &Link<'_>, nodelay: bool) -> Result<(), Error> {
    link.sockets.iter().try_for_each(|socket| socket::prepare(socket, nodelay))
}
