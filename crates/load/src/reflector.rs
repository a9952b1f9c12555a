//! The reflector: the end of the traffic on the system under test.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use latput_trial::Workload;
use latput_units::{CpuSet, Nanos};
use socket2::{Domain, Protocol, Socket, Type};

use crate::acceptor::{Acceptor, AuthenticatedConn};
use crate::clock::Window;
use crate::datagrams;
use crate::datagrams::Flow;
use crate::descriptors;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::Key;
use crate::kind::{self, crr};
use crate::limits;
use crate::outcome::{ReceiverOutcome, merged};
use crate::socket;
use crate::stop::Stop;
use crate::unauthenticated;
use crate::workers::{Progress, TrafficRun, WorkerContext, run_workers};

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
        let threads = kind::count_threads(&traffic);
        let connections = kind::count_connections(&traffic);
        let unauthenticated = unauthenticated::MAX_UNAUTHENTICATED + threads; // each thread may check one more
        descriptors::provide(kind::count_descriptors(&traffic) + unauthenticated, threads)?;
        let (listener, datagrams) = if kind::count_flows(&traffic) > 0 {
            let (listener, datagrams) = listen_on_both(bind, workload)?;
            (listener, Some(datagrams))
        } else {
            (listen(bind, workload)?, None)
        };
        let hands_over = kind::connects_during_traffic(&traffic);
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
            Some(reserved) => datagrams::open_reflector_sockets(
                reserved,
                &sockets,
                &hellos,
                &self.workload.sockets,
            )?,
            None => Vec::new(),
        };
        let run = TrafficRun::new(&sockets, peer, window, false, self.progress())
            .with_polling(self.workload.sockets.epoll_busy_poll);
        let deadline = window.end() + GRACE;
        let flow = |(socket, hello): (_, &Hello)| Flow { socket, tag: hello.tag };
        let flows: Vec<Flow<'_>> = datagrams.iter().zip(&hellos).map(flow).collect();
        let guard = crr::AuthState::new(
            self.acceptor.listener(),
            &self.key,
            self.acceptor.auth_failures_count(),
        );
        let work = |worker: &WorkerContext<'_>| {
            let thread = kind::FollowingThread {
                traffic: &self.workload.traffic,
                hellos: &hellos[worker.places.clone()],
                flows: flows.get(worker.places.clone()).unwrap_or(&[]),
                guard: &guard,
            };
            kind::follow(worker, &thread)
        };
        let parts = run_workers(&self.cpus, &run, self.threads, deadline, stop, work)?;
        let mut slices = merged(parts, ReceiverOutcome::merge);
        // All datagrams may be lost, an open loop may have nothing due, and the kernel answers echo
        // requests. Other traffic without data is no measurement.
        // A count may be reached with what the buffers held before this end ran; the generator tells
        // if it was not reached.
        let may_be_silent =
            kind::may_be_silent(&self.workload.traffic) || self.workload.count.is_some();
        if slices.iter().all(|it| it.received_bytes + it.sent_bytes == 0) && !may_be_silent {
            return Err(Error::Stalled { peer });
        }
        let keeps_connections = kind::keeps_connections(&self.workload.traffic);
        for (idx, slice) in (0..).zip(&mut slices) {
            slice.window = run.measured_length(idx);
            slice.retransmits = slice.retransmits.filter(|_| keeps_connections);
            slice.auth_failures = self.acceptor.auth_failures();
        }
        Ok(slices)
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
    socket::prepare(&socket, kind::uses_nodelay(&workload.traffic))?;
    if kind::is_bulk(&workload.traffic) {
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

#[cfg(test)]
mod tests;
