//! The daemon's loop: sample, decide, change, and release what an administrator sets.

mod health;

use std::path::PathBuf;

use latput_knobs::{ApplyError, ChangeOutcome, Restored};
use latput_linux::netdev::Netdev;
use latput_linux::process::unix_ms;
use latput_linux::route::Route;
use latput_linux::{
    Capability, CounterSnapshot, CpuMeter, Namespace, OsClock, ProtocolMeter, Protocols,
};
use latput_policy::Decision;
use latput_units::{Clock, Nanos};

use health::{HealthCheck, InterfaceFingerprint, cpu_time};

use crate::delay_knob::{self, DelayKnob};
use crate::error::Error;
use crate::goal::Goal;
use crate::governor::Governor;
use crate::interface_handle::InterfaceHandle;
use crate::meter::{MeterSample, TrafficMeter};
use crate::notify::SystemdNotifier;
use crate::proposals::{ProposalLog, ProposalVerdict};
use crate::sampling::{next_due, time_reading};
use crate::serve::{MetricsAddress, StatusServer, socket_path};
use crate::status::{Change, SCHEMA, State, Status};

/// Time between two checks of what changes seldom: the interface's name and queues, its knobs, the CPU.
const HEALTH_INTERVAL: Nanos = Nanos::from_ms(500);
/// A sample this many times too long was interrupted (suspend, a stopped process), and is dropped.
const LATE_FACTOR: u64 = 10;
/// The first sample of a delay on trial is this many times shorter: harm to request/response shows by then.
const TRIAL_SAMPLE_DIVISOR: u64 = 5;
/// Failed changes in a row that end the daemon.
const MAX_FAILURES_IN_A_ROW: u32 = 5;

/// The interface to moderate, and the options of the moderation.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The interface.
    pub interface: String,
    /// The goal.
    pub goal: Goal,
    /// Time between two samples.
    pub every: Nanos,
    /// Only report what it would change.
    pub observe: bool,
    /// The folder of latput's state: checkpoints and sockets.
    pub folder: PathBuf,
    /// Where metrics are served.
    pub metrics: Option<MetricsAddress>,
    /// End after this long; `None`: when told to.
    pub length: Option<Nanos>,
}

/// One moderated interface.
#[derive(Debug)]
pub struct Daemon {
    options: DaemonOptions,
    route: Route,
    /// `None` on kernels without the family.
    netdev: Option<Netdev>,
    hand: InterfaceHandle,
    delay_knob: DelayKnob,
    governor: Governor,
    meter: TrafficMeter,
    /// `None` where they cannot be read.
    protocols: Option<ProtocolMeter>,
    server: StatusServer,
    notify: SystemdNotifier,
    fingerprint: InterfaceFingerprint,
    /// The values of the knobs after our last write.
    written: latput_knobs::State,
    delay: Nanos,
    has_begun_trial: bool,
    failures_in_row: u32,
    proposals: ProposalLog,
    status: Status,
    since: Nanos,
    last_check: HealthCheck,
}

impl Daemon {
    /// Moderates an interface until `should_stop`, and puts it back. Options that it cannot fulfil are
    /// refused before anything is changed.
    pub fn run(options: DaemonOptions, should_stop: &dyn Fn() -> bool) -> Result<Status, Error> {
        let mut hold = Self::open(options)?;
        hold.notify.send_state("READY=1");
        let ended = hold.run_loop(should_stop);
        hold.notify.send_state("STOPPING=1");
        let hand = hold.hand;
        let status = hold.status;
        let interface = status.interface.clone();
        // The sockets close first, so that nobody is told of a state that has ended.
        drop(hold.server);
        let closed = hand.close();
        match (ended, closed) {
            // An interface that is not put back matters most.
            (Err(first), Err(error)) => {
                tracing::error!(interface, "{first}");
                Err(error)
            }
            (_, Err(error)) | (Err(error), Ok(_)) => Err(error),
            (Ok(()), Ok(restored)) => {
                if let Restored::Done { changes, others, .. } = restored {
                    for change in changes {
                        tracing::info!(interface, "put back: {change}");
                    }
                    for other in others {
                        tracing::warn!(interface, "left as it is: {other}");
                    }
                }
                Ok(status)
            }
        }
    }

    fn open(options: DaemonOptions) -> Result<Self, Error> {
        let route = Route::open()?;
        let link = route.link(&options.interface)?;
        let interface = options.interface.as_str();
        let checkpoints = options.folder.join("checkpoints");
        if !options.observe {
            Capability::NetAdmin.require("moderating an interface")?;
        }
        let mut hand = if options.observe {
            InterfaceHandle::open_read_only()?
        } else {
            InterfaceHandle::claim(&checkpoints, interface)?
        };
        let netdev = Netdev::open().ok();
        let candidates = DelayKnob::find_settable(hand.kernel(), interface)?;
        let (delay_knob, governor) = take_over(&mut hand, &options, candidates)?;
        let server = open_server(&options)?;
        let snapshot = read_snapshot(&route, link.index, options.every)?;
        let now = snapshot.at;
        let mut cpu = CpuMeter::open().ok();
        let mut protocols = ProtocolMeter::open().ok();
        let cpu_time = cpu_time(cpu.as_mut());
        let interrupts = hand.kernel().interrupt_count(interface);
        let written = delay_knob.read(hand.kernel(), interface).map_err(unreadable_error)?;
        let delay = delay_knob::delay_in(&delay_knob, &written);
        let status = first_status(
            &options,
            &delay_knob,
            delay_knob::read_ring_size(hand.kernel(), interface),
            delay,
        );
        let mut hold = Self {
            fingerprint: InterfaceFingerprint::new(&link, None, None),
            route,
            netdev,
            hand,
            delay_knob,
            governor,
            meter: TrafficMeter::new(
                snapshot,
                protocols.as_mut().and_then(|it| it.read().ok()),
                link.mtu,
            ),
            protocols,
            server,
            notify: SystemdNotifier::from_environment(),
            written,
            delay,
            has_begun_trial: false,
            failures_in_row: 0,
            proposals: ProposalLog::default(),
            status,
            since: now,
            last_check: HealthCheck { at: now, snapshot, cpu, cpu_time, interrupts },
            options,
        };
        hold.fingerprint = hold.fingerprint_of(&link);
        let interface = &hold.status.interface;
        let goal = &hold.status.goal;
        let (state, knobs) = (hold.status.state.name(), hold.status.knobs.join(", "));
        tracing::info!(interface, state, knobs, goal, "started");
        Ok(hold)
    }

    fn run_loop(&mut self, should_stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let mut due = OsClock.now() + self.options.every;
        let mut is_asked = false;
        while !should_stop() {
            let now = OsClock.now();
            self.status.uptime_s = now.saturating_sub(self.since).as_secs_f64();
            if is_asked {
                self.server.answer_requests(&self.status);
            }
            if now >= due {
                self.run_sample_cycle()?;
                let after = OsClock.now();
                due = if std::mem::take(&mut self.has_begun_trial) {
                    after + Nanos::from_ns(self.options.every.as_ns() / TRIAL_SAMPLE_DIVISOR)
                } else {
                    next_due(due, after, self.options.every)
                };
                let length = self.options.length;
                if length.is_some_and(|length| after.saturating_sub(self.since) >= length) {
                    return Ok(());
                }
            }
            is_asked = self.server.wait_for_request(due.saturating_sub(OsClock.now()));
        }
        Ok(())
    }

    /// Takes one sample and acts on it.
    fn run_sample_cycle(&mut self) -> Result<(), Error> {
        let snapshot = match self.read_snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) if is_no_device(&error) => return Err(self.interface_gone_error()),
            Err(error) => return Err(error.into()),
        };
        let protocols = self.read_protocols(&snapshot);
        let sample = self.meter.take_sample(snapshot, protocols, self.delay);
        if snapshot.at.saturating_sub(self.last_check.at) >= HEALTH_INTERVAL {
            self.check_health(snapshot)?;
        }
        let Some(sample) = sample else { return Ok(()) };
        self.status.rx_dropped += sample.dropped;
        let is_late = sample.elapsed > self.options.every.saturating_mul(LATE_FACTOR);
        if is_late || !matches!(self.status.state, State::Holding | State::Observing) {
            return Ok(());
        }
        self.handle_sample(&sample)
    }

    fn handle_sample(&mut self, sample: &MeterSample) -> Result<(), Error> {
        self.status.decisions += 1;
        let decision = self.governor.observe_sample(sample);
        self.apply_decision(decision)
    }

    fn apply_decision(&mut self, decision: Decision) -> Result<(), Error> {
        let Decision::Change { target, reason } = decision else { return Ok(()) };
        if target.delay == self.delay {
            return Ok(());
        }
        if self.status.state == State::Observing {
            self.report_proposal(target.delay, reason);
            return Ok(());
        }
        let link = self.route.link(&self.status.interface);
        if !link.is_ok_and(|link| link.is_up && self.fingerprint_of(&link) == self.fingerprint) {
            // The interface has changed: the next check finds out how.
            return Ok(());
        }
        if let Some(theirs) = self.set_by_others()? {
            return self.release_knobs(&theirs);
        }
        self.change_delay(target.delay, reason)
    }

    fn change_delay(&mut self, to: Nanos, reason: &str) -> Result<(), Error> {
        let interface = self.status.interface.clone();
        match self.hand.apply_setting(&self.delay_knob.setting_for(to)) {
            Ok(mut found) => {
                let ours = self.delay_knob.knobs();
                found.0.retain(|(knob, _), _| ours.contains(knob));
                self.written = found;
            }
            Err(error @ (ApplyError::Stranded { .. } | ApplyError::Checkpoint(_))) => {
                return Err(error.into());
            }
            Err(error) => {
                self.status.failures += 1;
                self.failures_in_row += 1;
                tracing::warn!(interface, to = %to, %error, "a change failed");
                if self.failures_in_row >= MAX_FAILURES_IN_A_ROW {
                    let times = self.failures_in_row;
                    let last = error.to_string();
                    return Err(Error::KeepsFailing { interface, times, last });
                }
                // The old delay is in force again: the policy starts anew from it.
                let read = self.delay_knob.read(self.hand.kernel(), &interface);
                self.written = read.unwrap_or_else(|_| std::mem::take(&mut self.written));
                self.governor = self.new_governor();
                return Ok(());
            }
        }
        self.failures_in_row = 0;
        let from = std::mem::replace(&mut self.delay, to);
        let knob = self.delay_knob.main().name();
        tracing::info!(interface, knob, from = %from, to = %to, why = reason, "changed");
        self.record_change(from, to, reason);
        self.status.delay_ns = to.as_ns();
        self.has_begun_trial = self.governor.is_on_trial();
        self.restart_sample()?;
        Ok(())
    }

    /// A policy without memory.
    fn new_governor(&self) -> Governor {
        Governor::new(&self.options.goal, self.delay_knob.min_delay(), self.status.ring)
    }

    fn read_snapshot(&self) -> Result<CounterSnapshot, latput_linux::Error> {
        read_snapshot(&self.route, self.fingerprint.index, self.options.every)
    }

    /// The protocols' counters, if there is enough traffic to tell requests from bulk.
    fn read_protocols(&mut self, snapshot: &CounterSnapshot) -> Option<Protocols> {
        let meter = self.protocols.as_mut().filter(|_| self.meter.is_worth_a_look(snapshot))?;
        meter.read().ok()
    }

    /// Starts the next sample here: what came before belongs to another delay.
    fn restart_sample(&mut self) -> Result<(), Error> {
        let snapshot = self.read_snapshot()?;
        let protocols = self.read_protocols(&snapshot);
        self.meter.rebase(snapshot, protocols);
        self.governor.mark_change(snapshot.at);
        Ok(())
    }

    /// Reports a change without making it. The load's response stays unknown, so only the first step of a
    /// search can be reported.
    fn report_proposal(&mut self, to: Nanos, reason: &str) {
        let interface = &self.status.interface;
        let knob = self.delay_knob.main().name();
        let ProposalVerdict { is_new, is_told } = self.proposals.add(to, OsClock.now());
        if is_told {
            tracing::info!(interface, knob, from = %self.delay, to = %to, why = reason, "would change");
        }
        if is_new {
            self.status.proposals += 1;
            self.status.last_proposal = Some(change_now(self.delay, to, reason));
        }
        self.governor = self.new_governor();
    }

    fn record_change(&mut self, from: Nanos, to: Nanos, reason: &str) {
        self.status.changes += 1;
        self.status.last_change = Some(change_now(from, to, reason));
    }
}

fn change_now(from: Nanos, to: Nanos, reason: &str) -> Change {
    Change {
        unix_ms: unix_ms(),
        from_ns: from.as_ns(),
        to_ns: to.as_ns(),
        reason: reason.to_owned(),
    }
}

/// Brings the interface to the policy's first delay, by the first knob that its driver accepts.
fn take_over(
    hand: &mut InterfaceHandle,
    options: &DaemonOptions,
    candidates: Vec<DelayKnob>,
) -> Result<(DelayKnob, Governor), Error> {
    let interface = &options.interface;
    let mut refused = None;
    for delay_knob in candidates {
        let most = options.goal.most;
        let least = delay_knob.min_delay();
        if most > Nanos::ZERO && most < least {
            let interface = interface.clone();
            let knob = delay_knob.main().name();
            refused = Some(Error::TooShort { interface, most, knob, least });
            continue;
        }
        let ring = delay_knob::read_ring_size(hand.kernel(), interface);
        let governor = Governor::new(&options.goal, least, ring);
        match hand.apply_setting(&delay_knob.setting_for(governor.wanted_delay())) {
            Ok(_) => return Ok((delay_knob, governor)),
            Err(error) if error.outcome() == ChangeOutcome::Stranded => {
                return Err(error.into());
            }
            Err(error) => {
                // Some drivers show coalescing that they cannot set (virtio-net without the feature).
                let knob = delay_knob.main().name();
                tracing::info!(interface, knob, %error, "not accepted");
                refused = refused.or(Some(error.into()));
            }
        }
    }
    Err(refused.expect("`find` gives at least one knob"))
}

/// Opens the sockets. Who only observes may be somebody who cannot make the one for the status.
fn open_server(options: &DaemonOptions) -> Result<StatusServer, Error> {
    let DaemonOptions { interface, folder, metrics, .. } = options;
    let path = socket_path(folder, Namespace::current()?.inode()?, interface);
    match StatusServer::open(interface, Some(path), metrics.as_ref()) {
        Err(error) if options.observe && error.outcome() == ChangeOutcome::refused(true) => {
            tracing::warn!(interface, "--status cannot ask this observer: {error}");
            StatusServer::open(interface, None, metrics.as_ref())
        }
        server => server,
    }
}

fn first_status(
    options: &DaemonOptions,
    delay_knob: &DelayKnob,
    ring: u32,
    delay: Nanos,
) -> Status {
    Status {
        schema: SCHEMA,
        interface: options.interface.clone(),
        pid: std::process::id(),
        state: if options.observe { State::Observing } else { State::Holding },
        goal: options.goal.text.clone(),
        knobs: delay_knob.knobs().iter().map(|knob| knob.name().to_owned()).collect(),
        delay_ns: delay.as_ns(),
        max_delay_ns: options.goal.most.as_ns(),
        ring,
        uptime_s: 0.0,
        decisions: 0,
        changes: 0,
        proposals: 0,
        failures: 0,
        last_change: None,
        last_proposal: None,
        rx_pps: 0.0,
        rx_bps: 0.0,
        tx_pps: 0.0,
        tx_bps: 0.0,
        rx_dropped: 0,
        interrupts_per_s: None,
        busy_ratio: None,
        is_budget_met: None,
        frontier: Vec::new(),
        released: Vec::new(),
    }
}

fn read_snapshot(
    route: &Route,
    index: u32,
    every: Nanos,
) -> Result<CounterSnapshot, latput_linux::Error> {
    let (at, interface) = time_reading(&OsClock, every, || route.counters(index))?;
    Ok(CounterSnapshot { at, interface })
}

fn is_no_device(error: &latput_linux::Error) -> bool {
    // ENODEV
    error.errno() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn unreadable_error(error: latput_knobs::KernelError) -> Error {
    Error::Unreadable(error)
}
