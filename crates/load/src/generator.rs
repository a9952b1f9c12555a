//! The generator: the end that makes the load.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use latput_trial::Workload;
use latput_units::CpuSet;

use crate::clock::{COOL_DOWN, OVERTIME, Window};
use crate::datagrams;
use crate::datagrams::Flow;
use crate::descriptors;
use crate::dial::dial;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::{Key, random};
use crate::kind;
use crate::limits;
use crate::outcome::{SenderOutcome, merged};
use crate::probe::Prober;
use crate::schedule::Share;
use crate::socket;
use crate::stop::Stop;
use crate::workers::{Progress, TrafficRun, WorkerContext, run_workers};

/// The generator of a trial. Its connections stay open from [`Generator::connect`] until the drop.
#[derive(Debug)]
pub struct Generator {
    sockets: Vec<TcpStream>,
    /// For each connection of a datagram workload, the socket of its flow.
    datagrams: Vec<UdpSocket>,
    /// The hello of every connection, without its number and port.
    hello: Hello,
    /// Sends the probe beside the traffic.
    prober: Option<Prober>,
    /// Sends ICMP echo that is itself the traffic.
    pinger: Option<Prober>,
    peer: SocketAddr,
    workload: Workload,
    threads: usize,
    cpus: CpuSet,
    progress: Progress,
}

impl Generator {
    /// Connects to the reflector at `peer`, authenticates every connection, and opens the sockets
    /// of the workload's probe. `cpus` are the CPUs that this host may use (`None`: all); the
    /// workload may name some of them.
    pub fn connect(
        peer: IpAddr,
        port: u16,
        key: &Key,
        workload: &Workload,
        cpus: CpuSet,
    ) -> Result<Self, Error> {
        limits::check(workload)?;
        let traffic = workload.traffic;
        let cpus = limits::cpus(cpus, workload.binding.generator.as_ref())?;
        let threads = kind::count_threads(&traffic);
        let connections = kind::count_connections(&traffic);
        descriptors::provide(kind::count_descriptors(&traffic), threads)?;
        let prober = workload.probe.map(|probe| Prober::open(peer, probe)).transpose()?;
        let pinger = kind::open_ping_prober(peer, &traffic)?;
        let peer = SocketAddr::new(peer, port);
        let datagrams = datagrams::open_generator_sockets(
            peer,
            kind::count_flows(&traffic),
            &workload.sockets,
        )?;
        let tag = u32::from_ne_bytes(random()?);
        let hellos = hellos(key, tag, connections, &datagrams)?;
        let nodelay = kind::uses_nodelay(&traffic);
        let sockets = dial(peer, &hellos, |socket| {
            socket::prepare(socket, nodelay)?;
            if traffic.flows_back() {
                socket::reset_on_close(socket)?;
            }
            socket::apply(socket, &workload.sockets)
        })?;
        let progress = Progress::new(threads, workload.count);
        let workload = workload.clone();
        let hello = hellos.first().copied().expect("there is at least one connection");
        Ok(Self {
            sockets,
            datagrams,
            hello,
            prober,
            pinger,
            peer,
            workload,
            threads,
            cpus,
            progress,
        })
    }

    /// The progress of the traffic; it can be read while the traffic runs.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Makes the load from now until a cool-down after `window`. Returns one outcome per slice, and
    /// one for an undivided window.
    pub fn run(self, window: Window, stop: &Stop) -> Result<Vec<SenderOutcome>, Error> {
        limits::check_window(&self.workload, window)?;
        let ended = AtomicBool::new(false);
        let is_ending = || stop.is_raised() || ended.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let probing = self.prober.as_ref().map(|prober| {
                thread::Builder::new()
                    .name("latput-probe".to_owned())
                    .spawn_scoped(scope, || prober.run(window, &self.cpus, is_ending))
                    .map_err(|source| Error::io("start the probe's thread", source))
            });
            let probing = probing.transpose()?;
            let traffic = self.run_traffic(window, stop);
            ended.store(traffic.is_err(), Ordering::Relaxed);
            let probe =
                probing.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            let mut slices = traffic?;
            for (slice, probe) in slices.iter_mut().zip(probe.transpose()?.into_iter().flatten()) {
                slice.probe = Some(probe);
            }
            Ok(slices)
        })
    }

    fn run_traffic(&self, window: Window, stop: &Stop) -> Result<Vec<SenderOutcome>, Error> {
        let run = TrafficRun::new(&self.sockets, self.peer, window, true, self.progress())
            .with_polling(self.workload.sockets.epoll_busy_poll);
        let deadline = window.end() + COOL_DOWN + OVERTIME;
        let work = |worker: &WorkerContext<'_>| self.take_part(worker);
        let parts = run_workers(&self.cpus, &run, self.threads, deadline, stop, work)?;
        // Closes the connections first: the reflector need not wait for the probe.
        for socket in &self.sockets {
            let _gone = socket.shutdown(Shutdown::Both);
        }
        let mut slices = merged(parts, SenderOutcome::merge);
        if slices.iter().all(|slice| self.is_silent(slice)) {
            return Err(Error::Stalled { peer: self.peer });
        }
        let keeps_connections = kind::keeps_connections(&self.workload.traffic);
        for (idx, slice) in (0..).zip(&mut slices) {
            slice.window = run.measured_length(idx);
            slice.retransmits = slice.retransmits.filter(|_| keeps_connections);
        }
        Ok(slices)
    }

    /// Whether no data arrived although some was due.
    fn is_silent(&self, slice: &SenderOutcome) -> bool {
        // At a low offered rate nothing may be due in the window.
        let nothing_due = slice.schedule.is_some_and(|schedule| schedule.due == 0);
        let sent = if kind::is_bulk(&self.workload.traffic) { slice.sent_bytes } else { 0 };
        let bytes = sent + slice.received_bytes;
        bytes == 0 && !nothing_due && slice.datagrams.is_none()
    }

    /// Runs one thread's share of the traffic.
    fn take_part(&self, worker: &WorkerContext<'_>) -> Result<Vec<SenderOutcome>, Error> {
        let thread = kind::LeadingThread {
            workload: &self.workload,
            share: self.share(worker),
            hello: &self.hello,
            flows: self.flows(worker),
            pinger: self.pinger.as_ref(),
        };
        kind::lead(worker, &thread)
    }

    /// The local address of the connections, which identifies the generator in every trial.
    fn address(&self) -> Option<IpAddr> {
        self.sockets.first()?.local_addr().ok().map(|address| address.ip())
    }

    /// One thread's share of the connections.
    fn share(&self, worker: &WorkerContext<'_>) -> Share {
        let (connections, of) = (worker.places.len(), self.sockets.len());
        Share { thread: worker.thread, connections, of, generator: self.address() }
    }

    /// The datagram flows of one thread.
    fn flows(&self, worker: &WorkerContext<'_>) -> Vec<Flow<'_>> {
        // Only workloads of datagrams have these sockets.
        let sockets = self.datagrams.get(worker.places.clone()).unwrap_or_default();
        datagrams::build_flows(sockets, worker.places.start, self.hello.tag)
    }
}

/// The hellos of `connections`, with the port of the datagrams if there are any.
fn hellos(
    key: &Key,
    tag: u32,
    connections: usize,
    datagrams: &[UdpSocket],
) -> Result<Vec<Hello>, Error> {
    (0..connections)
        .zip(0..)
        .map(|(idx, connection)| {
            let udp_port = datagrams::local_port(datagrams.get(idx))?;
            let tag = datagrams::flow_tag(tag, idx);
            Ok(Hello::new(key, udp_port, tag, connection))
        })
        .collect()
}
