//! The agent (`latput agent --stdio`): sets the knobs of one host, runs its part of the traffic and
//! reads its counters, on requests over stdin and stdout.
//!
//! Before it ends, it stops its traffic and puts every knob back. That holds when the controller
//! tells it to end, when the line is closed or silent, on a signal and on a panic. Only kill -9
//! skips it. Then the checkpoint is still on disk, and `latput restore` puts the host back.

mod line;
mod look;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::thread;

use latput_knobs::ChangeOutcome;
use latput_linux::CounterSnapshot;
use latput_load::{
    Generator, Key, ProbeOutcome, Prober, Progress, ReceiverOutcome, Reflector, SenderOutcome,
    Stop, Window,
};
use latput_trial::{Probe, Workload};
use latput_units::{CpuSet, Nanos};

use crate::host::{CountedSlice, HostSession, chain};
use crate::interval::HostInterval;
use crate::protocol::{
    Answer, Failure, Finished, HostSlice, LineError, Look, Open, Part, Request, SCHEMA, Turns,
    failed,
};

use self::line::{ControllerLine, LineEnd};

/// The reason why an agent ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The control line failed. The host is as it was.
    #[error("the controller sent {}; the host is as it was", chain(.0))]
    Line(LineError),
    /// The host could not be put back.
    #[error("{}", .0.message)]
    Host(Failure),
}

/// Serves one controller until it closes the line, is silent for the lease, asks to end, or `stop` is raised.
pub fn serve<R, W>(input: R, output: W, stop: &Stop) -> Result<(), Error>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let mut line = ControllerLine::open(input, output, stop);
    let other_version = |version: &str, schema: u32| {
        failed(format!(
            "the controller is latput {version} and speaks schema {schema}, this agent is latput {} \
             and speaks {SCHEMA}: install the same version on both",
            env!("CARGO_PKG_VERSION")
        ))
    };
    let first = loop {
        match line.next() {
            Ok(Request::Look(look)) if look.schema == SCHEMA => {
                let seen = look::look(&look).map(Box::new);
                line.send(&seen.map_or_else(Answer::Failed, Answer::Seen));
            }
            Ok(Request::Clock) => line.send(&Answer::Clock { now: latput_load::now() }),
            other => break other,
        }
    };
    let opened = match first {
        Ok(Request::Open(open)) if open.schema == SCHEMA => {
            line.set_lease(open.lease);
            HostSession::open(open)
        }
        Ok(
            Request::Open(Open { version, schema, .. })
            | Request::Look(Look { version, schema, .. }),
        )
        | Err(LineEnd::Line(LineError::OtherVersion { version, schema })) => {
            Err(other_version(&version, schema))
        }
        Ok(Request::Close) | Err(LineEnd::Closed | LineEnd::Told) => return Ok(()),
        Ok(_) => Err(failed("the first request must be `open`")),
        Err(LineEnd::Line(error)) => return Err(Error::Line(error)),
    };
    let mut service = match opened {
        Ok((host, opened)) => {
            line.send(&Answer::Opened(Box::new(opened)));
            Service { host, stop, prepared: Prepared::default(), has_connected: false }
        }
        Err(failure) => {
            line.end(&Answer::Failed(failure));
            return Ok(());
        }
    };
    let ended = loop {
        match line.next() {
            Ok(Request::Close) => break LineEnd::Closed,
            Ok(request) => {
                let mut tell = |interval| line.send(&Answer::Progress(interval));
                let answer = service.answer(request, &mut tell).unwrap_or_else(Answer::Failed);
                line.send(&answer);
            }
            Err(ended) => break ended,
        }
    };
    match service.host.close() {
        Ok(left) => line.end(&Answer::Closed { why: ended.to_string(), left }),
        Err(failure) => {
            line.end(&Answer::Failed(failure.clone()));
            return Err(Error::Host(failure));
        }
    }
    match ended {
        LineEnd::Line(error) => Err(Error::Line(error)),
        LineEnd::Closed | LineEnd::Told => Ok(()),
    }
}

/// An agent with its host.
struct Service<'a> {
    host: HostSession,
    stop: &'a Stop,
    prepared: Prepared,
    /// Whether this host has connected to the system under test before.
    has_connected: bool,
}

/// Traffic that waits for `go`; empty on a host that only counts.
#[derive(Default)]
struct Prepared {
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
    fn beside(self, hosts: Vec<CountedSlice>) -> Vec<HostSlice> {
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

impl Service<'_> {
    fn answer(
        &mut self,
        request: Request,
        tell: &mut dyn FnMut(HostInterval),
    ) -> Result<Answer, Failure> {
        match request {
            Request::Read { knobs } => Ok(Answer::Values { values: self.host.read(&knobs) }),
            Request::Survey => self.host.survey().map(|nic| Answer::Surveyed(Box::new(nic))),
            Request::Watch { span } => {
                self.host.look(span, self.stop).map(|seen| Answer::Watched(Box::new(seen)))
            }
            Request::Set { setting } => self.host.set(&setting).map(|_| Answer::Set),
            Request::Rehearse { setting } => {
                self.host.rehearse(&setting).map(|()| Answer::Rehearsed)
            }
            Request::Link => self.host.await_link(self.stop).map(|()| Answer::Linked),
            Request::Clock => Ok(Answer::Clock { now: latput_load::now() }),
            Request::Receive { parts } => self.receive(parts),
            Request::Send { workload, key, peer, port } => self.send(&workload, key, (peer, port)),
            Request::Probe { probe, peer } => self.probe(probe, peer),
            Request::Go { at, warmup, duration, interval, turns } => {
                if turns.as_ref().is_some_and(|turns| !turns.is_whole()) {
                    return Err(failed("a slice has no setting"));
                }
                let window = Window::starting_after(at, warmup, duration).and_then(|window| {
                    turns.as_ref().map_or(Ok(window), |turns| window.in_slices(turns.slices))
                });
                let window = window.map_err(|error| failed(chain(&error)))?;
                self.go(window, turns.as_ref(), interval, tell)
            }
            Request::Abort => {
                self.prepared = Prepared::default();
                Ok(Answer::Aborted)
            }
            Request::Open(_) | Request::Look(_) | Request::Ping | Request::Close => {
                Err(failed("`open` comes once, and first"))
            }
        }
    }

    fn receive(&mut self, parts: Vec<Part>) -> Result<Answer, Failure> {
        self.prepared = Prepared::default(); // a port of a trial that never ran is closed first
        let any_port = (self.host.address(), 0).into();
        for Part { workload, key } in parts {
            let cpus = self.host.cpus().clone();
            let reflector = Reflector::open(any_port, key, &workload, cpus)
                .map_err(|error| traffic_failed(&error))?;
            self.prepared.receivers.push(reflector);
        }
        let ports = self.prepared.receivers.iter().map(Reflector::port).collect();
        Ok(Answer::Listening { ports })
    }

    fn send(
        &mut self,
        workload: &Workload,
        key: Key,
        (peer, port): (IpAddr, u16),
    ) -> Result<Answer, Failure> {
        self.prepared = Prepared::default();
        let cpus = self.host.cpus().clone();
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

    fn probe(&mut self, probe: Probe, peer: IpAddr) -> Result<Answer, Failure> {
        self.prepared = Prepared::default();
        let prober = Prober::open(peer, probe).map_err(|error| traffic_failed(&error))?;
        self.prepared.prober = Some(prober);
        Ok(Answer::Probing)
    }

    /// Runs the prepared traffic in other threads while this one reads counters.
    fn go(
        &mut self,
        window: Window,
        turns: Option<&Turns>,
        interval: Option<Nanos>,
        tell: &mut dyn FnMut(HostInterval),
    ) -> Result<Answer, Failure> {
        let late = latput_load::now().saturating_sub(window.start());
        if late >= window.length() {
            return Err(failed(format!(
                "the word to start came {late} after the window had begun, which is {} long: the \
                 control line is too slow",
                window.length()
            )));
        }
        let prepared = std::mem::take(&mut self.prepared);
        let progress = prepared.progress();
        let sent = prepared.sender.as_ref().map(Generator::progress);
        let units = || sent.as_ref().map(Progress::units);
        let stop = self.stop;
        let cpus = self.host.cpus().clone();
        let (outcome, observed) = thread::scope(|scope| {
            let traffic = thread::Builder::new()
                .name("traffic".to_owned())
                .spawn_scoped(scope, || prepared.run(window, &cpus, stop))
                .map_err(|error| failed(format!("cannot start a thread: {error}")))?;
            let mut watch = IntervalReporter::new(window, interval, &units, tell);
            let mut look = |snapshot: &CounterSnapshot| watch.snapshot(snapshot);
            let observed = if let Some(turns) = turns {
                self.host.take_turns(window, turns, stop, &mut look)
            } else {
                let observed = self.host.observe(window, stop, &progress, &mut look);
                observed.map(|(host, drift)| (vec![(host, Nanos::ZERO)], drift))
            };
            let outcome = traffic.join().unwrap_or_else(|_| Err(failed("the traffic panicked")));
            Ok::<_, Failure>((outcome, observed))
        })?;
        // The traffic's error comes first: it tells more than the counters'.
        let outcome = outcome?;
        let (hosts, drift) = observed?;
        let left = self.host.take_left();
        let finished = Finished { slices: outcome.beside(hosts), late, drift, left };
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
    fn snapshot(&mut self, snapshot: &CounterSnapshot) {
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

impl Prepared {
    /// The progress of each part of the traffic.
    fn progress(&self) -> Vec<Progress> {
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
            let receivers = receivers.into_iter().map(joined).collect::<Vec<_>>();
            let probe = probing.map(joined).transpose();
            Ok(TrafficResult {
                sender: sender.map_err(|error| traffic_failed(&error))?,
                receivers: receivers.into_iter().collect::<Result<_, _>>()?,
                probe: probe?,
            })
        })
    }
}

/// The result of a traffic thread.
fn joined<T>(
    thread: thread::ScopedJoinHandle<'_, Result<T, latput_load::Error>>,
) -> Result<T, Failure> {
    let outcome = thread.join().map_err(|_| failed("the traffic panicked"))?;
    outcome.map_err(|error| traffic_failed(&error))
}

/// The failure for an error of the traffic engine.
fn traffic_failed(error: &latput_load::Error) -> Failure {
    let is_permission = error.kind() == latput_load::ErrorKind::Permission;
    Failure {
        outcome: ChangeOutcome::refused(is_permission),
        is_transient: !is_permission && error.is_transient(),
        message: chain(error),
    }
}
