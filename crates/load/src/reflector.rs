//! The reflector: the end of the traffic on the system under test.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use latput_trial::{Traffic, Workload};
use latput_units::{Bytes, CpuSet, Nanos};
use socket2::{Domain, Protocol, Socket, Type};

use crate::acceptor::{Acceptor, AuthenticatedConn};
use crate::clock::Window;
use crate::crr;
use crate::datagrams;
use crate::descriptors;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::limits;
use crate::meter::Meter;
use crate::outcome::{DatagramsReceived, ReceiverOutcome, merged};
use crate::ping;
use crate::progress::Progress;
use crate::rpc;
use crate::rr;
use crate::schedule::Share;
use crate::socket;
use crate::stop::Stop;
use crate::stream;
use crate::tally::Tally;
use crate::udp;
use crate::udp_rr;
use crate::unauthenticated;
use crate::workers::{TrafficRun, WorkerContext, run_workers};

/// How long after its window the reflector waits for the generator to close.
const GRACE: Nanos = Nanos::from_s(1);
/// Established connections that wait for accept(2). The kernel allows at most the sysctl
/// net.core.somaxconn (4096 by default).
const BACKLOG: i32 = 4096;

/// Answers requests, receives bulk and sends it. It listens from [`Reflector::open`] until the drop
/// and serves only connections that proved the run's key.
#[derive(Debug)]
pub struct Reflector {
    acceptor: Acceptor,
    key: Key,
    datagrams: Option<UdpSocket>,
    workload: Workload,
    threads: usize,
    cpus: CpuSet,
    progress: Progress,
}

impl Reflector {
    /// Opens the data port at `bind` (port 0: any free one) for the generator of `workload`. `cpus`
    /// are the CPUs that this host may use (`None`: all); the workload may name some of them.
    pub fn open(
        bind: SocketAddr,
        key: Key,
        workload: &Workload,
        cpus: CpuSet,
    ) -> Result<Self, Error> {
        limits::check(workload)?;
        let traffic = workload.traffic;
        let cpus = limits::cpus(cpus, workload.binding.sut.as_ref())?;
        let threads = limits::threads(&traffic);
        let connections = limits::connections(&traffic);
        let unauthenticated = unauthenticated::MAX_UNAUTHENTICATED + threads; // each thread may check one more
        descriptors::provide(limits::descriptors(&traffic) + unauthenticated, threads)?;
        let (listener, datagrams) = match traffic {
            Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => {
                let (listener, datagrams) = listen_on_both(bind, workload)?;
                (listener, Some(datagrams))
            }
            _ => (listen(bind, workload)?, None),
        };
        let hands_over = matches!(traffic, Traffic::TcpCrr { .. });
        let acceptor = Acceptor::open(listener, key.clone(), connections, hands_over)?;
        let (workload, progress) = (workload.clone(), Progress::new(threads, workload.count));
        Ok(Self { acceptor, key, datagrams, workload, threads, cpus, progress })
    }

    /// The data port.
    pub fn port(&self) -> u16 {
        self.acceptor.address().port()
    }

    /// Waits until every connection of the traffic is authenticated.
    pub fn wait_ready(&self, deadline: Nanos) -> Result<(), Error> {
        self.acceptor.wait_full(deadline)
    }

    /// The progress of the traffic; it can be read while the traffic runs.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Serves the traffic until the generator ends it and counts it in `window`. Returns one
    /// outcome per slice, and one for an undivided window.
    pub fn run(mut self, window: Window, stop: &Stop) -> Result<Vec<ReceiverOutcome>, Error> {
        limits::check_window(&self.workload, window)?;
        self.acceptor.wait_full(Nanos::ZERO)?;
        let (sockets, hellos, peer) = in_order(self.acceptor.take_admitted())?;
        let datagrams = match self.datagrams.take() {
            Some(reserved) => {
                datagrams::direct(reserved, &sockets, &hellos, &self.workload.sockets)?
            }
            None => Vec::new(),
        };
        let run = TrafficRun::new(&sockets, peer, window, false, self.progress());
        let deadline = window.end() + GRACE;
        let flow = |(socket, hello): (_, &Hello)| udp::Flow { socket, tag: hello.tag };
        let flows: Vec<udp::Flow<'_>> = datagrams.iter().zip(&hellos).map(flow).collect();
        let guard = crr::Guard::new(
            self.acceptor.listener(),
            &self.key,
            self.acceptor.auth_failures_count(),
        );
        let work = |worker: &WorkerContext<'_>| {
            let flows = flows.get(worker.places.clone()).unwrap_or(&[]);
            self.take_part(worker, &hellos[worker.places.clone()], flows, &guard)
        };
        let parts = run_workers(&self.cpus, &run, self.threads, deadline, stop, work)?;
        let mut slices = merged(parts, ReceiverOutcome::merge);
        // All datagrams may be lost, an open loop may have nothing due, and the kernel answers echo
        // requests. Other traffic without data is no measurement.
        let may_be_silent = limits::may_be_silent(&self.workload.traffic);
        if slices.iter().all(|it| it.received_bytes + it.sent_bytes == 0) && !may_be_silent {
            return Err(Error::Stalled { peer });
        }
        let keeps_connections = limits::keeps_connections(&self.workload.traffic);
        for slice in &mut slices {
            slice.window = run.measured_length();
            slice.retransmits = slice.retransmits.filter(|_| keeps_connections);
            slice.auth_failures = self.acceptor.auth_failures();
        }
        Ok(slices)
    }

    /// Serves one thread's share of the traffic. `hellos` are those of its connections, `flows` its
    /// datagram flows. `guard` authenticates connections that come during the traffic.
    fn take_part(
        &self,
        worker: &WorkerContext<'_>,
        hellos: &[Hello],
        flows: &[udp::Flow<'_>],
        guard: &crr::Guard<'_>,
    ) -> Result<Vec<ReceiverOutcome>, Error> {
        let mut meter = Meter::following(worker, flows);
        match self.workload.traffic {
            Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
                let side = rr::Side {
                    incoming: limits::size(request_bytes),
                    outgoing: limits::size(response_bytes),
                    in_flight: burst + 1,
                    separate: nodelay,
                    leads: false,
                };
                rr::run(worker, &side, &mut meter)?;
            }
            Traffic::TcpCrr { request_bytes, response_bytes, nodelay, connections, .. } => {
                let exchange =
                    crr::Exchange::new(request_bytes, response_bytes, nodelay, connections);
                crr::serve(worker, &exchange, guard, &mut meter)?;
            }
            Traffic::Fetch { object_bytes, .. } => {
                let side = rr::Side {
                    incoming: rr::FETCH_BYTES,
                    outgoing: limits::size(object_bytes),
                    in_flight: 1,
                    separate: true,
                    leads: false,
                };
                rr::run(worker, &side, &mut meter)?;
            }
            Traffic::RpcRead { outstanding, read_bytes, think, .. } => {
                let reads = rpc::Reads { outstanding, bytes: limits::size(read_bytes), think };
                let seed = hellos.first().map_or(0, |hello| hello.tag.into());
                rpc::serve(worker, &reads, seed, &mut meter)?;
            }
            Traffic::TcpBulk { direction, message_bytes, rate, vectored, .. } => {
                let message = limits::size(message_bytes);
                let bulk = stream::Bulk { direction, message, rate, vectored };
                stream::run(worker, &bulk, &mut meter)?;
            }
            Traffic::UdpStream { datagram_bytes, segmentation, .. } => {
                let stream = udp::Stream { datagram: datagram_bytes, rate: None, segmentation };
                let received = udp::receive(worker, flows, &stream, &mut meter)?;
                let slices = meter.finish().into_iter().zip(received);
                return Ok(slices.map(|it| of_datagrams(it, datagram_bytes)).collect());
            }
            Traffic::UdpRr { .. } => {
                let share =
                    Share { thread: 0, connections: flows.len(), of: flows.len(), generator: None };
                let exchange = udp_rr::Exchange::of(&self.workload.traffic, share)
                    .expect("this traffic is one");
                udp_rr::answer(worker, flows, &exchange, &mut meter)?;
            }
            Traffic::Ping { .. } => ping::wait(worker, &mut meter)?,
        }
        let has_requests =
            !matches!(self.workload.traffic, Traffic::TcpBulk { .. } | Traffic::Ping { .. });
        let of_slice = |tally: Tally| ReceiverOutcome {
            requests: has_requests.then_some(tally.messages),
            ..tally.into()
        };
        Ok(meter.finish().into_iter().map(of_slice).collect())
    }
}

/// The figures of one slice of a datagram stream.
fn of_datagrams((tally, received): (Tally, DatagramsReceived), size: Bytes) -> ReceiverOutcome {
    let (dropped_by_kernel, foreign) = (tally.usage.dropped, tally.foreign);
    ReceiverOutcome {
        received_bytes: received.received * size.get(),
        datagrams: Some(DatagramsReceived { dropped_by_kernel, foreign, ..received }),
        foreign: 0,
        ..tally.into()
    }
}

/// The connections in the generator's order, by which its threads divide them.
fn in_order(
    mut connections: Vec<AuthenticatedConn>,
) -> Result<(Vec<TcpStream>, Vec<Hello>, SocketAddr), Error> {
    connections.sort_by_key(|connection| connection.hello.connection);
    let peer = connections.first().expect("a full acceptor let in at least one").peer;
    if !(0..).zip(&connections).all(|(idx, connection)| connection.hello.connection == idx) {
        return Err(Error::MixedConnections { peer });
    }
    let (sockets, hellos) =
        connections.into_iter().map(|connection| (connection.socket, connection.hello)).unzip();
    Ok((sockets, hellos, peer))
}

/// Listens on `bind` with the socket options that accepted connections inherit.
fn listen(bind: SocketAddr, workload: &Workload) -> Result<TcpListener, Error> {
    let socket = Socket::new(Domain::for_address(bind), Type::STREAM, Some(Protocol::TCP))
        .map_err(|source| Error::io("open a TCP socket", source))?;
    socket::prepare(&socket, limits::nodelay(&workload.traffic))?;
    if matches!(workload.traffic, Traffic::TcpBulk { .. }) {
        socket::reset_on_close(&socket)?;
    }
    socket::apply(&socket, &workload.sockets)?;
    socket
        .set_reuse_address(true)
        .and_then(|()| socket.bind(&bind.into()))
        .and_then(|()| socket.listen(BACKLOG))
        .map_err(|source| not_bound(bind, source))?;
    Ok(socket.into())
}

/// A TCP and a UDP socket on the same port.
fn listen_on_both(
    bind: SocketAddr,
    workload: &Workload,
) -> Result<(TcpListener, UdpSocket), Error> {
    /// Most attempts. A free TCP port is rarely in use on UDP.
    const ATTEMPTS: usize = 16;
    let mut attempt = 1;
    loop {
        let listener = listen(bind, workload)?;
        let bound = listener.local_addr().and_then(socket::bind_datagrams);
        match bound {
            Err(source)
                if source.kind() == io::ErrorKind::AddrInUse
                    && bind.port() == 0
                    && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            Err(source) => return Err(not_bound(bind, source)),
            Ok(socket) => return Ok((listener, socket)),
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
