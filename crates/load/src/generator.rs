//! The generator: the end that makes the load.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use latput_trial::{Traffic, Workload};
use latput_units::CpuSet;

use crate::clock::{COOL_DOWN, OVERTIME, Window};
use crate::crr;
use crate::datagrams;
use crate::descriptors;
use crate::dial::dial;
use crate::error::Error;
use crate::hello::Hello;
use crate::key::{Key, random};
use crate::limits;
use crate::meter::Meter;
use crate::open_loop;
use crate::outcome::{DatagramsSent, SenderOutcome, merged};
use crate::ping;
use crate::probe::Prober;
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
use crate::workers::{TrafficRun, WorkerContext, run_workers};

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
        let threads = limits::threads(&traffic);
        let connections = limits::connections(&traffic);
        descriptors::provide(limits::descriptors(&traffic), threads)?;
        let prober = workload.probe.map(|probe| Prober::open(peer, probe)).transpose()?;
        let pinger = match traffic {
            Traffic::Ping { rate_hz, payload_bytes } => {
                Some(Prober::with_payload(peer, rate_hz, payload_bytes)?)
            }
            _ => None,
        };
        let peer = SocketAddr::new(peer, port);
        let datagrams = datagrams::open(peer, limits::flows(&traffic), &workload.sockets)?;
        let tag = u32::from_ne_bytes(random()?);
        let hellos = hellos(key, tag, connections, &datagrams)?;
        let nodelay = limits::nodelay(&traffic);
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
        let run = TrafficRun::new(&self.sockets, self.peer, window, true, self.progress());
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
        let keeps_connections = limits::keeps_connections(&self.workload.traffic);
        for slice in &mut slices {
            slice.window = run.measured_length();
            slice.retransmits = slice.retransmits.filter(|_| keeps_connections);
        }
        Ok(slices)
    }

    /// Whether no data arrived although some was due.
    fn is_silent(&self, slice: &SenderOutcome) -> bool {
        // At a low offered rate nothing may be due in the window.
        let nothing_due = slice.schedule.is_some_and(|schedule| schedule.due == 0);
        let bytes = match self.workload.traffic {
            Traffic::TcpBulk { .. } => slice.sent_bytes + slice.received_bytes,
            _ => slice.received_bytes,
        };
        bytes == 0 && !nothing_due && slice.datagrams.is_none()
    }

    /// Runs one thread's share of the traffic.
    fn take_part(&self, worker: &WorkerContext<'_>) -> Result<Vec<SenderOutcome>, Error> {
        let mut meter = Meter::leading(worker);
        match self.workload.traffic {
            Traffic::TcpRr {
                request_bytes,
                response_bytes,
                nodelay,
                arrivals: Some(arrivals),
                ..
            } => {
                let exchange = open_loop::Exchange {
                    request: limits::size(request_bytes),
                    response: limits::size(response_bytes),
                    separate: nodelay,
                    arrivals,
                    share: self.share(worker),
                };
                open_loop::ask(worker, &exchange, &mut meter)?;
            }
            Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
                let side = rr::Side {
                    incoming: limits::size(response_bytes),
                    outgoing: limits::size(request_bytes),
                    in_flight: burst + 1,
                    separate: nodelay,
                    leads: true,
                };
                rr::run(worker, &side, &mut meter)?;
            }
            Traffic::TcpCrr { request_bytes, response_bytes, nodelay, connections, .. } => {
                let exchange =
                    crr::Exchange::new(request_bytes, response_bytes, nodelay, connections);
                let options = &self.workload.sockets;
                crr::call(worker, &exchange, options, &self.hello, &mut meter)?;
            }
            Traffic::Fetch { object_bytes, .. } => {
                let side = rr::Side {
                    incoming: limits::size(object_bytes),
                    outgoing: rr::FETCH_BYTES,
                    in_flight: 1,
                    separate: true,
                    leads: true,
                };
                rr::run(worker, &side, &mut meter)?;
            }
            Traffic::RpcRead { outstanding, read_bytes, think, .. } => {
                let reads = rpc::Reads { outstanding, bytes: limits::size(read_bytes), think };
                rpc::call(worker, &reads, &mut meter)?;
            }
            Traffic::TcpBulk { direction, message_bytes, rate, vectored, .. } => {
                let message = limits::size(message_bytes);
                let bulk = stream::Bulk { direction, message, rate, vectored };
                stream::run(worker, &bulk, &mut meter)?;
            }
            _ => return self.take_datagram_part(worker, meter),
        }
        Ok(meter.finish().into_iter().map(SenderOutcome::from).collect())
    }

    /// Runs one thread's share of datagram traffic.
    fn take_datagram_part(
        &self,
        worker: &WorkerContext<'_>,
        mut meter: Meter<'_>,
    ) -> Result<Vec<SenderOutcome>, Error> {
        match self.workload.traffic {
            Traffic::UdpStream { datagram_bytes, rate, segmentation, .. } => {
                let rate = rate.map(|rate| udp::share_of(rate, self.share(worker)));
                let stream = udp::Stream { datagram: datagram_bytes, rate, segmentation };
                let same = udp::send(worker, &self.flows(worker), &stream, &mut meter)?;
                let of_slice = |tally: Tally| {
                    let (sent, skipped) = (tally.messages, tally.skipped);
                    SenderOutcome {
                        sent_bytes: sent * datagram_bytes.get(),
                        datagrams: Some(DatagramsSent { sent, skipped, ..same }),
                        ..tally.into()
                    }
                };
                Ok(meter.finish().into_iter().map(of_slice).collect())
            }
            Traffic::Ping { payload_bytes, .. } => {
                let pinger = self.pinger.as_ref().expect("opened for this traffic");
                let probes = ping::ask(worker, pinger, &mut meter)?;
                let slices = meter.finish().into_iter().zip(probes);
                let of_slice =
                    |(tally, probe): (Tally, _)| ping::outcome(probe, payload_bytes, tally.into());
                Ok(slices.map(of_slice).collect())
            }
            ref traffic => {
                let exchange = udp_rr::Exchange::of(traffic, self.share(worker))
                    .expect("no other kind is called for");
                udp_rr::ask(worker, &self.flows(worker), &exchange, &mut meter)?;
                Ok(meter.finish().into_iter().map(SenderOutcome::from).collect())
            }
        }
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
    fn flows(&self, worker: &WorkerContext<'_>) -> Vec<udp::Flow<'_>> {
        datagrams::flows(
            &self.datagrams[worker.places.clone()],
            worker.places.start,
            self.hello.tag,
        )
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
            let udp_port = datagrams::port(datagrams.get(idx))?;
            let tag = datagrams::tag_of(tag, idx);
            Ok(Hello::new(key, udp_port, tag, connection))
        })
        .collect()
}
