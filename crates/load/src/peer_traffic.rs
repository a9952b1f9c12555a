//! Traffic on TCP connections to a third-party peer, such as an iperf3 server.
//!
//! The caller opens the connections, speaks the peer's protocol, and tells the peer when to begin
//! and to end. The traffic loops are latput's own. Only the stop flag and a deadline close a
//! connection, since the peer may send its results after the traffic.

use std::net::{SocketAddr, TcpStream};

use latput_trial::workload::Direction;
use latput_units::{Bytes, CpuSet};

use crate::clock::{COOL_DOWN, OVERTIME, Window};
use crate::error::Error;
use crate::kind::rr;
use crate::kind::stream::{self, Bulk};
use crate::limits;
use crate::meter::{Meter, Tally};
use crate::outcome::SenderOutcome;
use crate::socket;
use crate::stop::Stop;
use crate::workers::{Progress, TrafficRun, WorkerContext, run_workers};

/// Open connections to one far end.
#[derive(Debug)]
pub struct PeerTraffic {
    sockets: Vec<TcpStream>,
    peer: SocketAddr,
    threads: usize,
    cpus: CpuSet,
}

/// Request and response, as [`PeerTraffic::exchange`] makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Size of a request.
    pub request: Bytes,
    /// Size of a response.
    pub response: Bytes,
    /// Requests in flight on each connection, beside the first.
    pub burst: u32,
    /// Whether each request leaves as a segment of its own.
    pub separate: bool,
}

impl PeerTraffic {
    /// Takes over `sockets`, at least one, and divides them among `threads` threads on `cpus`. An
    /// empty set means any CPU.
    pub fn new(
        sockets: Vec<TcpStream>,
        nodelay: bool,
        threads: u32,
        cpus: CpuSet,
    ) -> Result<Self, Error> {
        let first = sockets.first().expect("the caller opened at least one connection");
        let peer = first
            .peer_addr()
            .map_err(|source| Error::io("read the address of a connection's far end", source))?;
        for socket in &sockets {
            socket::prepare(socket, nodelay)?;
        }
        let threads = (threads as usize).clamp(1, sockets.len());
        Ok(Self { sockets, peer, threads, cpus })
    }

    /// The connections, for the peer's protocol after the traffic.
    pub fn sockets(&self) -> &[TcpStream] {
        &self.sockets
    }

    /// Exchanges requests and responses until a cool-down after `window`.
    pub fn exchange(
        &self,
        exchange: Exchange,
        window: Window,
        stop: &Stop,
    ) -> Result<SenderOutcome, Error> {
        let side = rr::Side {
            incoming: limits::size(exchange.response),
            outgoing: limits::size(exchange.request),
            in_flight: exchange.burst + 1,
            separate: exchange.separate,
            leads: true,
        };
        self.drive(window, stop, |worker| {
            let mut meter = Meter::leading(worker);
            rr::run(worker, &side, &mut meter)?;
            Ok(meter.finish())
        })
    }

    /// Sends or receives bulk until a cool-down after `window`. For both directions the first half
    /// of the connections sends.
    pub fn bulk(
        &self,
        direction: Direction,
        message: Bytes,
        window: Window,
        stop: &Stop,
    ) -> Result<SenderOutcome, Error> {
        let bulk = Bulk { direction, message: limits::size(message), rate: None, vectored: false };
        self.drive(window, stop, |worker| {
            let mut meter = Meter::leading(worker);
            stream::run(worker, &bulk, &mut meter)?;
            Ok(meter.finish())
        })
    }

    fn drive(
        &self,
        window: Window,
        stop: &Stop,
        work: impl Fn(&WorkerContext<'_>) -> Result<Vec<Tally>, Error> + Sync,
    ) -> Result<SenderOutcome, Error> {
        if window.slices().is_some() {
            return Err(Error::ForeignSlices);
        }
        let progress = Progress::new(self.threads, None);
        let run = TrafficRun::new(&self.sockets, self.peer, window, true, progress);
        let deadline = window.end() + COOL_DOWN + OVERTIME;
        let parts = run_workers(&self.cpus, &run, self.threads, deadline, stop, work)?;
        let mut parts = parts.into_iter().flatten().map(SenderOutcome::from);
        let mut outcome = parts.next().expect("there is at least one thread");
        parts.for_each(|part| outcome.merge(part));
        Ok(SenderOutcome { window: window.length(), ..outcome })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use latput_units::Nanos;

    use super::*;

    #[test]
    fn foreign_echo_is_exchanged_with() {
        let peer_traffic = connect(|mut socket| {
            let mut byte = [0];
            while matches!(socket.read(&mut byte), Ok(1)) && socket.write_all(&byte).is_ok() {}
        });
        let byte = Bytes::new(1);
        let exchange = Exchange { request: byte, response: byte, burst: 0, separate: true };
        let outcome = peer_traffic.exchange(exchange, window(), &Stop::new()).unwrap();
        assert!(outcome.transactions > Some(0));
        assert_eq!(outcome.latency.map(|latency| latency.count()), outcome.transactions);
    }

    #[test]
    fn foreign_traffic_is_counted_until_it_leaves() {
        let peer_traffic = connect(|mut socket| while socket.write_all(&[0; 1000]).is_ok() {});
        assert!(
            peer_traffic
                .bulk(Direction::FromSut, Bytes::new(1), window(), &Stop::new())
                .unwrap()
                .received_bytes
                > 0
        );
        let peer_traffic = connect(drop);
        let error = peer_traffic
            .bulk(Direction::FromSut, Bytes::new(1), window(), &Stop::new())
            .unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    }

    fn window() -> Window {
        Window::starting_in(Nanos::from_ms(100), Nanos::from_s(1)).unwrap()
    }

    fn connect(far_end: impl FnOnce(TcpStream) + Send + 'static) -> PeerTraffic {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::spawn(move || far_end(listener.accept().unwrap().0));
        PeerTraffic::new(vec![socket], true, 1, CpuSet::default()).unwrap()
    }
}
