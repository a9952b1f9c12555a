//! The agent of one host: talks to the controller over stdin and stdout, and runs its part of the traffic.
//!
//! It has no rights. What is about the host, the knobs and the counters, its keeper does ([`crate::keeper`]), which started
//! it. Before it ends, it stops its traffic and lets the keeper put every knob back. That holds when the controller tells
//! it to end, when the line is closed or silent, and on a signal. Where it is killed or hangs, the keeper does so by
//! itself. Only kill -9 of the keeper skips it. Then the checkpoint is still on disk, and `latput restore` puts the
//! host back.

mod line;
mod live;
mod peer;

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::thread;

use latput_knobs::ChangeOutcome;
use latput_linux::confine::{self, Barriers};
use latput_linux::{CounterSnapshot, process};
use latput_load::{
    Generator, Key, ProbeOutcome, Prober, Progress, ReceiverOutcome, Reflector, SenderOutcome,
    Stop, Window, use_rights_of,
};
use latput_protocol::control::{
    AgentInfo, Answer, EarlyEnd, Failure, GeneratorPart, HostInterval, HostSlice, HostTrialResult,
    InspectRequest, LineError, OpenRequest, Request, SCHEMA, make_failure,
};
use latput_protocol::text::format_error_chain;
use latput_trial::observation::HostObservation;
use latput_trial::{Probe, Workload};
use latput_units::{CpuSet, Nanos};

use crate::keeper;
use crate::keeper::rights::KeeperClient;
use crate::keeper_line::{CountRequest, KeeperLine, WindowCounts};

use self::line::{ControllerLine, LineEnd};
use self::live::ApplicationScraper;

/// The reason why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It could not give up its rights, or has no keeper.
    #[error("cannot begin without rights")]
    Rights(#[from] latput_linux::Error),
    /// Its keeper cannot be talked to.
    #[error("cannot talk to the keeper")]
    Keeper(#[source] io::Error),
    /// The control line failed. The host is as it was.
    #[error("the controller sent {}; the host was not changed", format_error_chain(.0))]
    Line(LineError),
    /// The host could not be put back.
    #[error("{}", .0.message)]
    Host(Failure),
}

/// Gives up all rights. Then serves one controller until it closes the line, is silent for the lease, asks to end, or
/// `stop` is raised. `kept` are the sockets to the keeper: its line and its rights.
pub fn serve_controller<R, W>(
    input: R,
    output: W,
    kept: [RawFd; 2],
    stop: &Stop,
) -> Result<(), AgentError>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let barriers = confine::give_up_all()?;
    let [link, rights] = kept;
    let (link, rights) = (process::take_over(link)?, process::take_over(rights)?);
    let rights = KeeperClient::new(rights).map_err(AgentError::Keeper)?;
    use_rights_of(Box::new(rights.clone()));
    let mut keeper = KeeperLine::open(link, stop).map_err(AgentError::Keeper)?;
    let mut line = ControllerLine::open(input, output, stop);
    let Some(opened) = open(&mut line, &mut keeper)? else { return Ok(()) };
    let mut service = match opened {
        Ok((address, mut opened)) => {
            opened.notes.extend(describe_missing_barrier(barriers));
            let cpus = opened.cpus.clone();
            let cpus_at_start = process::allowed_cpus().unwrap_or_else(|_| cpus.clone());
            let _noted_by_the_keeper = process::bind_thread(&cpus);
            line.send_answer(&Answer::Opened(Box::new(opened)));
            AgentService {
                keeper,
                address,
                cpus,
                cpus_at_start,
                stop,
                prepared: PreparedTraffic::default(),
                has_connected: false,
                application: ApplicationScraper::new(rights),
            }
        }
        Err(failure) => {
            line.send_last_answer(&Answer::Failed(failure));
            return Ok(());
        }
    };
    let ended = service.serve_requests(&mut line)?;
    match service.keeper.close() {
        Ok(left) => line.send_last_answer(&Answer::Closed { why: ended.to_string(), left }),
        Err(failure) => {
            line.send_last_answer(&Answer::Failed(failure.clone()));
            return Err(AgentError::Host(failure));
        }
    }
    match ended {
        LineEnd::Line(error) => Err(AgentError::Line(error)),
        LineEnd::Closed | LineEnd::Told => Ok(()),
    }
}

/// The address and the facts of the host that the controller opens, or why it cannot be; `None` if the controller ended
/// before.
type OpenedHost = Option<Result<(IpAddr, AgentInfo), Failure>>;

/// Answers what comes before `open`, and opens the host.
fn open(line: &mut ControllerLine, keeper: &mut KeeperLine) -> Result<OpenedHost, AgentError> {
    let other_version = |version: &str, schema: u32| {
        Some(Err(make_failure(format!(
            "the controller is latput {version} and speaks schema {schema}, this agent is latput {} \
             and speaks {SCHEMA}: install the same version on both",
            env!("CARGO_PKG_VERSION")
        ))))
    };
    let first = loop {
        match line.next() {
            Ok(Request::Look(look)) if look.schema == SCHEMA => {
                let seen = keeper.send_request(Request::Look(look));
                line.send_answer(&seen.unwrap_or_else(Answer::Failed));
            }
            Ok(request @ Request::Record { .. }) => {
                let recorded = keeper.send_request(request);
                line.send_answer(&recorded.unwrap_or_else(Answer::Failed));
            }
            Ok(Request::Clock) => line.send_answer(&Answer::Clock { now: latput_load::now() }),
            other => break other,
        }
    };
    Ok(match first {
        Ok(Request::Open(open)) if open.schema == SCHEMA => {
            line.set_lease(open.lease);
            keeper.set_lease(open.lease);
            let address = open.address;
            Some(match keeper.send_request(Request::Open(open)) {
                Ok(Answer::Opened(opened)) => Ok((address, *opened)),
                Ok(_) => Err(make_failure("the keeper has not opened the host")),
                Err(failure) => Err(failure),
            })
        }
        Ok(
            Request::Open(OpenRequest { version, schema, .. })
            | Request::Look(InspectRequest { version, schema, .. }),
        )
        | Err(LineEnd::Line(LineError::OtherVersion { version, schema })) => {
            other_version(&version, schema)
        }
        Ok(Request::Close) | Err(LineEnd::Closed | LineEnd::Told) => None,
        Ok(_) => Some(Err(make_failure("the first request must be `open`"))),
        Err(LineEnd::Line(error)) => return Err(AgentError::Line(error)),
    })
}

/// The barrier that is weaker here than elsewhere, in words.
fn describe_missing_barrier(barriers: Barriers) -> Option<String> {
    let remark = "the kernel has no Landlock. The process that makes the traffic has no capability, but can \
                  read files of user 0";
    (!barriers.close_files()).then(|| remark.to_owned())
}

/// An agent with an open host.
struct AgentService<'a> {
    keeper: KeeperLine,
    /// The address that the data ports are bound to.
    address: IpAddr,
    cpus: CpuSet,
    /// The CPUs that this process was started on, by `taskset` for example.
    cpus_at_start: CpuSet,
    stop: &'a Stop,
    prepared: PreparedTraffic,
    /// Whether this host has connected to the system under test before.
    has_connected: bool,
    /// The application under live traffic.
    application: ApplicationScraper,
}

/// Traffic that waits for `go`; empty on a host that only counts.
#[derive(Default)]
struct PreparedTraffic {
    receivers: Vec<Reflector>,
    sender: Option<Generator>,
    prober: Option<Prober>,
}

/// The counts of one host's traffic, each part slice by slice.
struct TrafficResult {
    receivers: Vec<Vec<ReceiverOutcome>>,
    sender: Option<Vec<SenderOutcome>>,
    probe: Option<Vec<ProbeOutcome>>,
}

impl TrafficResult {
    /// Joins the counts of the traffic with those of the host, slice by slice.
    fn join_host_slices(self, hosts: Vec<(HostObservation, Nanos)>) -> Vec<HostSlice> {
        let mut sender = self.sender.map(Vec::into_iter);
        let mut probe = self.probe.map(Vec::into_iter);
        let mut receivers: Vec<_> = self.receivers.into_iter().map(Vec::into_iter).collect();
        let slice = |(host, change)| HostSlice {
            host,
            change,
            sender: sender.as_mut().and_then(Iterator::next),
            receivers: receivers.iter_mut().filter_map(Iterator::next).collect(),
            probe: probe.as_mut().and_then(Iterator::next),
        };
        hosts.into_iter().map(slice).collect()
    }
}

impl AgentService<'_> {
    /// Answers requests until there are no more; the reason why. The error is a keeper that is lost.
    fn serve_requests(&mut self, line: &mut ControllerLine) -> Result<LineEnd, AgentError> {
        loop {
            match line.next() {
                Ok(Request::Close) => return Ok(LineEnd::Closed),
                Ok(request) => {
                    let answer = self.handle_request(request, line);
                    if let Some(failure) = self.keeper.connection_failure() {
                        line.send_last_answer(&Answer::Failed(failure.clone()));
                        return Err(AgentError::Host(failure.clone()));
                    }
                    if answer.is_err() && self.stop.is_raised() {
                        // An interrupted read does not know by whom.
                        return Ok(line.next().err().unwrap_or(LineEnd::Closed));
                    }
                    line.send_answer(&answer.unwrap_or_else(Answer::Failed));
                }
                Err(ended) => return Ok(ended),
            }
        }
    }

    fn handle_request(
        &mut self,
        request: Request,
        line: &ControllerLine,
    ) -> Result<Answer, Failure> {
        match request {
            Request::Read { .. }
            | Request::Survey
            | Request::Watch { .. }
            | Request::Set { .. }
            | Request::Rehearse { .. }
            | Request::Link => self.keeper.send_request(request),
            Request::Clock => Ok(Answer::Clock { now: latput_load::now() }),
            Request::Receive { parts } => self.open_receivers(parts),
            Request::Send { workload, key, peer, port } => {
                self.connect_sender(&workload, key, (peer, port))
            }
            Request::Probe { probe, peer } => self.open_prober(probe, peer),
            Request::Go { at, warmup, duration, interval, turns, early_end } => {
                // Of traffic that is not latput's, the controller tells the end.
                let is_of_programs = early_end != EarlyEnd::Never;
                let wanted =
                    CountRequest { at, warmup, duration, turns, early_end, is_of_programs };
                self.run_window(keeper::build_window(&wanted)?, wanted, interval, line)
            }
            Request::Peer(trial) => self.run_peer_trial(&trial),
            Request::Live(block) => self.run_live_block(*block),
            Request::Abort => {
                self.prepared = PreparedTraffic::default();
                Ok(Answer::Aborted)
            }
            Request::Open(_)
            | Request::Look(_)
            | Request::Record { .. }
            | Request::Ping
            | Request::EndWindow
            | Request::Close => Err(make_failure("`open` comes once, and first")),
        }
    }

    fn open_receivers(&mut self, parts: Vec<GeneratorPart>) -> Result<Answer, Failure> {
        self.prepared = PreparedTraffic::default(); // a port of a trial that never ran is closed first
        let any_port = (self.address, 0).into();
        for GeneratorPart { workload, key } in parts {
            let cpus = self.cpus.clone();
            let reflector = Reflector::open(any_port, key, &workload, cpus)
                .map_err(|error| traffic_failed(&error))?;
            self.prepared.receivers.push(reflector);
        }
        let ports = self.prepared.receivers.iter().map(Reflector::port).collect();
        Ok(Answer::Listening { ports })
    }

    fn connect_sender(
        &mut self,
        workload: &Workload,
        key: Key,
        (peer, port): (IpAddr, u16),
    ) -> Result<Answer, Failure> {
        self.prepared = PreparedTraffic::default();
        let cpus = self.cpus.clone();
        let generator = Generator::connect(peer, port, &key, workload, cpus);
        let generator = generator.map_err(|error| self.connect_failed(&error))?;
        self.has_connected = true;
        self.prepared.sender = Some(generator);
        Ok(Answer::Connected)
    }

    /// The failure to connect. It is transient if the far end answered before, as after a link was
    /// down.
    fn connect_failed(&self, error: &latput_load::Error) -> Failure {
        let failure = traffic_failed(error);
        if self.has_connected && matches!(error, latput_load::Error::NoAnswer { .. }) {
            return Failure { is_transient: true, ..failure };
        }
        failure
    }

    fn open_prober(&mut self, probe: Probe, peer: IpAddr) -> Result<Answer, Failure> {
        self.prepared = PreparedTraffic::default();
        let prober = Prober::open(peer, probe).map_err(|error| traffic_failed(&error))?;
        self.prepared.prober = Some(prober);
        Ok(Answer::Probing)
    }

    /// Runs the prepared traffic in other threads while the keeper reads counters.
    fn run_window(
        &mut self,
        window: Window,
        wanted: CountRequest,
        interval: Option<Nanos>,
        line: &ControllerLine,
    ) -> Result<Answer, Failure> {
        let late = latput_load::now().saturating_sub(window.start());
        if late >= window.length() {
            return Err(make_failure(format!(
                "the order to start came {late} after the start of the window of {}: the control connection is \
                 too slow",
                window.length()
            )));
        }
        let prepared = std::mem::take(&mut self.prepared);
        let progress = prepared.collect_progress();
        let sent = prepared.sender.as_ref().map(Generator::progress);
        let units = || sent.as_ref().map(Progress::units);
        let stop = self.stop;
        let cpus = self.cpus.clone();
        let (outcome, counted) = thread::scope(|scope| {
            let traffic = thread::Builder::new()
                .name("traffic".to_owned())
                .spawn_scoped(scope, || prepared.run(window, &cpus, stop))
                .map_err(|error| make_failure(format!("cannot start a thread: {error}")))?;
            let mut tell = |interval| line.send_answer(&Answer::Progress(interval));
            let mut watch = IntervalReporter::new(window, interval, &units, &mut tell);
            let mut look = |snapshot: &CounterSnapshot| watch.record_snapshot(snapshot);
            let is_told = wanted.early_end != EarlyEnd::Never;
            let has_count = || progress.iter().any(|part| part.goal().is_some());
            let early_end =
                if !is_told && has_count() { EarlyEnd::AtCount } else { wanted.early_end };
            let is_over = || {
                if is_told {
                    line.ends_window()
                } else {
                    progress.iter().all(|part| part.ended_early().is_some())
                }
            };
            let counted =
                self.keeper.count_window(CountRequest { early_end, ..wanted }, &is_over, &mut look);
            let outcome =
                traffic.join().unwrap_or_else(|_| Err(make_failure("the traffic panicked")));
            Ok::<_, Failure>((outcome, counted))
        })?;
        // The traffic's error comes first: it tells more than the counters'.
        let outcome = outcome?;
        let WindowCounts { slices, drift, held_back, left } = counted?;
        let slices = outcome.join_host_slices(slices);
        let finished = HostTrialResult { slices, late, drift, held_back, left };
        Ok(Answer::Finished(Box::new(finished)))
    }
}

/// Turns snapshots of the counters into reports on intervals.
struct IntervalReporter<'a> {
    window: Window,
    interval: Option<Nanos>,
    units: &'a dyn Fn() -> Option<u64>,
    tell: &'a mut dyn FnMut(HostInterval),
    number: u32,
    /// Start of the interval: time, units, packets in and out.
    since: Option<(Nanos, Option<u64>, u64, u64)>,
}

impl<'a> IntervalReporter<'a> {
    fn new(
        window: Window,
        interval: Option<Nanos>,
        units: &'a dyn Fn() -> Option<u64>,
        tell: &'a mut dyn FnMut(HostInterval),
    ) -> Self {
        Self { window, interval, units, tell, number: 0, since: None }
    }

    /// Takes a snapshot; an interval ends with the first one after its time.
    fn record_snapshot(&mut self, snapshot: &CounterSnapshot) {
        let Some(interval) = self.interval else { return };
        let now = latput_load::now();
        let (rx, tx) = (snapshot.interface.rx_packets, snapshot.interface.tx_packets);
        let units = (self.units)();
        let here = (now, units, rx, tx);
        let &mut (began, units_before, rx_before, tx_before) = self.since.get_or_insert(here);
        // Half a snapshot early is nearer than half a snapshot late.
        let due = self.window.start() + interval.saturating_mul(u64::from(self.number) + 1);
        if now + Nanos::from_ms(50) < due || now == began {
            return;
        }
        (self.tell)(HostInterval {
            number: self.number,
            end: now.saturating_sub(self.window.start()),
            length: now.saturating_sub(began),
            units: units.map(|units| units.saturating_sub(units_before.unwrap_or(0))),
            rx_packets: rx.saturating_sub(rx_before),
            tx_packets: tx.saturating_sub(tx_before),
        });
        self.since = Some(here);
        self.number += 1;
    }
}

impl PreparedTraffic {
    /// The progress of each part of the traffic.
    fn collect_progress(&self) -> Vec<Progress> {
        let receivers = self.receivers.iter().map(Reflector::progress);
        receivers.chain(self.sender.iter().map(Generator::progress)).collect()
    }

    /// Runs each part in its own thread; returns the first error.
    fn run(self, window: Window, cpus: &CpuSet, stop: &Stop) -> Result<TrafficResult, Failure> {
        let Self { receivers, sender, prober } = self;
        thread::scope(|scope| {
            let receivers: Vec<_> = receivers
                .into_iter()
                .map(|reflector| scope.spawn(move || reflector.run(window, stop)))
                .collect();
            let probing = prober
                .map(|prober| scope.spawn(move || prober.run(window, cpus, || stop.is_raised())));
            let sender = sender.map(|generator| generator.run(window, stop)).transpose();
            let receivers = receivers.into_iter().map(join_traffic_thread).collect::<Vec<_>>();
            let probe = probing.map(join_traffic_thread).transpose();
            Ok(TrafficResult {
                sender: sender.map_err(|error| traffic_failed(&error))?,
                receivers: receivers.into_iter().collect::<Result<_, _>>()?,
                probe: probe?,
            })
        })
    }
}

/// The result of a traffic thread.
fn join_traffic_thread<T>(
    thread: thread::ScopedJoinHandle<'_, Result<T, latput_load::Error>>,
) -> Result<T, Failure> {
    let outcome = thread.join().map_err(|_| make_failure("the traffic panicked"))?;
    outcome.map_err(|error| traffic_failed(&error))
}

/// The failure for an error of the traffic engine.
fn traffic_failed(error: &latput_load::Error) -> Failure {
    let is_permission = error.kind() == latput_load::ErrorKind::Permission;
    Failure {
        outcome: ChangeOutcome::refused(is_permission),
        is_transient: !is_permission && error.is_transient(),
        message: format_error_chain(error),
    }
}
