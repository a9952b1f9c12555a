//! The end of the traffic on the system under test.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use latput_trial::Traffic;
use latput_units::{CpuSet, Nanos};

use crate::clock::Window;
use crate::door::Door;
use crate::error::Error;
use crate::key::Key;
use crate::limits;
use crate::meter::{Meter, Usage};
use crate::outcome::ReceiverOutcome;
use crate::rr;
use crate::socket;
use crate::stop::Stop;
use crate::stream;
use crate::supervise::{Link, supervise};

/// How long after its window the reflector waits for the generator to close.
const GRACE: Nanos = Nanos::from_s(1);

/// Answers requests and receives bulk. It listens from [`Reflector::open`] until it is dropped, and
/// talks only to connections that showed the run's key.
#[derive(Debug)]
pub struct Reflector {
    door: Door,
    traffic: Traffic,
    cpus: CpuSet,
}

impl Reflector {
    /// Opens the data port at `bind` (port 0: any free one) for the generator of `traffic`; the traffic
    /// thread will be held to `cpus`, if there are any.
    pub fn open(bind: SocketAddr, key: Key, traffic: Traffic, cpus: CpuSet) -> Result<Self, Error> {
        limits::check(&traffic)?;
        let listener = TcpListener::bind(bind).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::PortInUse { address: bind },
            io::ErrorKind::AddrNotAvailable => Error::AddressNotHere { address: bind },
            _ => Error::io("listen on the data port", source),
        })?;
        let door = Door::open(listener, key, limits::connections(&traffic))?;
        Ok(Self { door, traffic, cpus })
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
        let peer = guests.first().expect("the door was full, of at least one").peer;
        let sockets: Vec<TcpStream> = guests.into_iter().map(|guest| guest.socket).collect();
        let link = Link::new(&sockets, peer, window);
        let deadline = window.end() + GRACE;
        let work = || self.receive(&link);
        let (received, usage) = supervise(&self.cpus, &link, deadline, stop, work)?;
        if received.received_bytes == 0 {
            return Err(Error::Stalled { peer });
        }
        Ok(ReceiverOutcome {
            window: window.length(),
            retransmits: usage.retransmits,
            cpu: usage.cpu,
            wrong_keys: self.door.wrong_keys(),
            ..received
        })
    }

    fn receive(&self, link: &Link<'_>) -> Result<(ReceiverOutcome, Usage), Error> {
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
            Traffic::TcpStream { .. } => {
                prepare(link, false)?;
                outcome.received_bytes = stream::receive_all(link, &mut meter)?;
            }
            Traffic::UdpStream { .. } => {
                return Err(Error::BadTraffic { what: "kind", allowed: "tcp_rr or tcp_stream" });
            }
        }
        Ok((outcome, meter.finish()))
    }
}

fn prepare(link: &Link<'_>, nodelay: bool) -> Result<(), Error> {
    link.sockets.iter().try_for_each(|socket| socket::prepare(socket, nodelay))
}
