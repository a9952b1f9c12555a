//! The loop that holds an interface: sample, decide, change, and give way.

mod look;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use latput_knobs::{ApplyError, ChangeOutcome, Restored};
use latput_linux::netdev::Netdev;
use latput_linux::route::Route;
use latput_linux::{Capability, CpuMeter, Glance, Namespace, OsClock, ProtocolMeter, Protocols};
use latput_policy::Decision;
use latput_units::{Clock, Nanos};

use look::{Look, Shape, cpu_time};

use crate::error::Error;
use crate::goal::Goal;
use crate::governor::Governor;
use crate::hand::Hand;
use crate::lever::{self, Lever};
use crate::meter::{Meter, Sample};
use crate::notify::Notify;
use crate::pace::{next_due, timed};
use crate::serve::{MetricsAddress, Server, socket_path};
use crate::status::{Change, SCHEMA, State, Status};

/// How often the rest is looked at: the interface's name and queues, its knobs, the CPU.
const LOOK_EVERY: Nanos = Nanos::from_ms(500);
/// A sample this many times as long as it should be was interrupted (suspend, a stopped process): it
/// says nothing of the load.
const LATE: u64 = 10;
/// A delay on trial is looked at after this part of a sample: where each delay is waited for, that is seen by then.
const EARLY: u64 = 5;
/// Changes that may fail in a row.
const FAILURES_MOST: u32 = 5;

/// What to hold, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface.
    pub interface: String,
    /// What it is to be held at.
    pub goal: Goal,
    /// Time between two samples.
    pub every: Nanos,
    /// Only say what would be done.
    pub observe: bool,
    /// The folder of latput's state: checkpoints and sockets.
    pub folder: PathBuf,
    /// Where metrics are given out.
    pub metrics: Option<MetricsAddress>,
    /// End after this long; `None` for when told to.
    pub length: Option<Nanos>,
}

/// One interface that is held.
#[derive(Debug)]
pub struct Hold {
    options: Options,
    route: Route,
    /// `None` on kernels without the family.
    netdev: Option<Netdev>,
    hand: Hand,
    lever: Lever,
    governor: Governor,
    meter: Meter,
    /// `None` where they cannot be read.
    protocols: Option<ProtocolMeter>,
    server: Server,
    notify: Notify,
    shape: Shape,
    /// What the knobs held after our last write.
    written: latput_knobs::State,
    delay: Nanos,
    has_begun_trial: bool,
    failures_in_row: u32,
    status: Status,
    since: Nanos,
    look: Look,
}

impl Hold {
    /// Holds an interface until `should_stop`, and puts it back. What the options ask for is refused
    /// before anything is touched if it cannot be had.
    pub fn run(options: Options, should_stop: &dyn Fn() -> bool) -> Result<Status, Error> {
        let mut hold = Self::open(options)?;
        hold.notify.say("READY=1");
        let ended = hold.go_on(should_stop);
        hold.notify.say("STOPPING=1");
        let (hand, status) = (hold.hand, hold.status);
        let interface = status.interface.clone();
        // The sockets go first: whoever asks now would be told of what is no more.
        drop(hold.server);
        let closed = hand.close();
        match (ended, closed) {
            // What is left behind matters most.
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
                        tracing::warn!(interface, "it stays: {other}");
                    }
                }
                Ok(status)
            }
        }
    }

    fn open(options: Options) -> Result<Self, Error> {
        let route = Route::open()?;
        let link = route.link(&options.interface)?;
        let interface = options.interface.as_str();
        let checkpoints = options.folder.join("checkpoints");
        if !options.observe {
            Capability::NetAdmin.require("moderating an interface")?;
        }
        let mut hand =
            if options.observe { Hand::look()? } else { Hand::claim(&checkpoints, interface)? };
        let netdev = Netdev::open().ok();
        let levers = Lever::find(hand.kernel(), interface)?;
        let (lever, governor) = take_hold(&mut hand, &options, levers)?;
        let path = socket_path(&options.folder, Namespace::current()?.inode()?, interface);
        let server = Server::open(interface, path, options.metrics.as_ref())?;
        let glance = glance(&route, link.index, options.every)?;
        let now = glance.at;
        let mut cpu = CpuMeter::open().ok();
        let mut protocols = ProtocolMeter::open().ok();
        let cpu_time = cpu_time(cpu.as_mut());
        let interrupts = hand.kernel().interrupt_count(interface);
        let written = lever.read(hand.kernel(), interface).map_err(unread)?;
        let delay = lever::delay_in(&lever, &written);
        let status = first_status(&options, &lever, lever::ring(hand.kernel(), interface), delay);
        let mut hold = Self {
            shape: Shape::of(&link, None, None),
            route,
            netdev,
            hand,
            lever,
            governor,
            meter: Meter::new(glance, protocols.as_mut().and_then(|it| it.read().ok()), link.mtu),
            protocols,
            server,
            notify: Notify::from_environment(),
            written,
            delay,
            has_begun_trial: false,
            failures_in_row: 0,
            status,
            since: now,
            look: Look { at: now, glance, cpu, cpu_time, interrupts },
            options,
        };
        hold.shape = hold.shape_of(&link);
        let (interface, goal) = (&hold.status.interface, &hold.status.goal);
        let (state, knobs) = (hold.status.state.name(), hold.status.knobs.join(", "));
        tracing::info!(interface, state, knobs, goal, "started");
        Ok(hold)
    }

    fn go_on(&mut self, should_stop: &dyn Fn() -> bool) -> Result<(), Error> {
        let mut due = OsClock.now() + self.options.every;
        let mut is_asked = false;
        while !should_stop() {
            let now = OsClock.now();
            self.status.uptime_s = now.saturating_sub(self.since).as_secs_f64();
            if is_asked {
                let status = &self.status;
                self.server.answer(now, &|| status.clone());
            }
            if now >= due {
                self.tick()?;
                let after = OsClock.now();
                due = if std::mem::take(&mut self.has_begun_trial) {
                    after + Nanos::from_ns(self.options.every.as_ns() / EARLY)
                } else {
                    next_due(due, after, self.options.every)
                };
                let length = self.options.length;
                if length.is_some_and(|length| after.saturating_sub(self.since) >= length) {
                    return Ok(());
                }
            }
            is_asked = self.server.wait(due.saturating_sub(OsClock.now()));
        }
        Ok(())
    }

    /// One sample and what follows from it.
    fn tick(&mut self) -> Result<(), Error> {
        let glance = match self.glance() {
            Ok(glance) => glance,
            Err(error) if is_no_device(&error) => return Err(self.gone()),
            Err(error) => return Err(error.into()),
        };
        let protocols = self.protocols(&glance);
        let sample = self.meter.advance(glance, protocols, self.delay);
        if glance.at.saturating_sub(self.look.at) >= LOOK_EVERY {
            self.look_around(glance)?;
        }
        let Some(sample) = sample else { return Ok(()) };
        self.status.rx_dropped += sample.dropped;
        let is_late = sample.elapsed > self.options.every.saturating_mul(LATE);
        if is_late || !matches!(self.status.state, State::Holding | State::Observing) {
            return Ok(());
        }
        self.decide(&sample)
    }

    fn decide(&mut self, sample: &Sample) -> Result<(), Error> {
        self.status.decisions += 1;
        let decision = self.governor.sample(sample);
        self.follow(decision)
    }

    fn follow(&mut self, decision: Decision) -> Result<(), Error> {
        let Decision::Change { target, reason } = decision else { return Ok(()) };
        if target.delay == self.delay {
            return Ok(());
        }
        if self.status.state == State::Observing {
            self.would_change(target.delay, reason);
            return Ok(());
        }
        let link = self.route.link(&self.status.interface);
        if !link.is_ok_and(|link| link.is_up && self.shape_of(&link) == self.shape) {
            // Not quite the interface of before: the next look finds out what it is.
            return Ok(());
        }
        if let Some(theirs) = self.set_by_others()? {
            return self.let_go(&theirs);
        }
        self.change(target.delay, reason)
    }

    fn change(&mut self, to: Nanos, reason: &str) -> Result<(), Error> {
        let interface = self.status.interface.clone();
        match self.hand.apply(&self.lever.setting(to)) {
            Ok(mut found) => {
                let ours = self.lever.knobs();
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
                if self.failures_in_row >= FAILURES_MOST {
                    let (times, last) = (self.failures_in_row, error.to_string());
                    return Err(Error::KeepsFailing { interface, times, last });
                }
                // It is as before, and the policy must not think otherwise.
                let read = self.lever.read(self.hand.kernel(), &interface);
                self.written = read.unwrap_or_else(|_| std::mem::take(&mut self.written));
                self.governor = self.new_governor();
                return Ok(());
            }
        }
        self.failures_in_row = 0;
        let from = std::mem::replace(&mut self.delay, to);
        let knob = self.lever.main().name();
        tracing::info!(interface, knob, from = %from, to = %to, why = reason, "changed");
        self.record(from, to, reason);
        self.status.delay_ns = to.as_ns();
        self.has_begun_trial = self.governor.is_on_trial();
        self.rebase()?;
        Ok(())
    }

    /// A policy that knows nothing yet.
    fn new_governor(&self) -> Governor {
        Governor::new(&self.options.goal, self.lever.least(), self.status.ring)
    }

    fn glance(&self) -> Result<Glance, latput_linux::Error> {
        glance(&self.route, self.shape.index, self.options.every)
    }

    /// What the protocols have counted, if there is traffic to be told apart by it.
    fn protocols(&mut self, glance: &Glance) -> Option<Protocols> {
        let meter = self.protocols.as_mut().filter(|_| self.meter.is_worth_a_look(glance))?;
        meter.read().ok()
    }

    /// What another delay did before the change is no part of the next sample.
    fn rebase(&mut self) -> Result<(), Error> {
        let glance = self.glance()?;
        let protocols = self.protocols(&glance);
        self.meter.rebase(glance, protocols);
        self.governor.changed(glance.at);
        Ok(())
    }

    /// Without acting, the answer of the load to a delay stays unknown: only the first step of a walk can
    /// be told.
    fn would_change(&mut self, to: Nanos, reason: &str) {
        let (interface, knob) = (&self.status.interface, self.lever.main().name());
        tracing::info!(interface, knob, from = %self.delay, to = %to, why = reason, "would change");
        self.record(self.delay, to, reason);
        self.governor = self.new_governor();
    }

    fn record(&mut self, from: Nanos, to: Nanos, reason: &str) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.status.changes += 1;
        self.status.last_change = Some(Change {
            unix_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            from_ns: from.as_ns(),
            to_ns: to.as_ns(),
            reason: reason.to_owned(),
        });
    }
}

/// Brings the interface to the policy's first delay, by the first lever that its driver takes.
fn take_hold(
    hand: &mut Hand,
    options: &Options,
    levers: Vec<Lever>,
) -> Result<(Lever, Governor), Error> {
    let interface = &options.interface;
    let mut refused = None;
    for lever in levers {
        let (most, least) = (options.goal.most, lever.least());
        if most > Nanos::ZERO && most < least {
            let (interface, knob) = (interface.clone(), lever.main().name());
            refused = Some(Error::TooShort { interface, most, knob, least });
            continue;
        }
        let ring = lever::ring(hand.kernel(), interface);
        let governor = Governor::new(&options.goal, least, ring);
        match hand.apply(&lever.setting(governor.delay())) {
            Ok(_) => return Ok((lever, governor)),
            Err(error) if error.outcome() == ChangeOutcome::Stranded => {
                return Err(error.into());
            }
            Err(error) => {
                // Drivers show coalescing that they cannot set (virtio-net without the feature).
                let knob = lever.main().name();
                tracing::info!(interface, knob, %error, "not taken");
                refused = refused.or(Some(error.into()));
            }
        }
    }
    Err(refused.expect("there is a lever, or `find` would have failed"))
}

fn first_status(options: &Options, lever: &Lever, ring: u32, delay: Nanos) -> Status {
    Status {
        schema: SCHEMA,
        interface: options.interface.clone(),
        pid: std::process::id(),
        state: if options.observe { State::Observing } else { State::Holding },
        goal: options.goal.text.clone(),
        knobs: lever.knobs().iter().map(|knob| knob.name().to_owned()).collect(),
        delay_ns: delay.as_ns(),
        delay_ns_most: options.goal.most.as_ns(),
        ring,
        uptime_s: 0.0,
        decisions: 0,
        changes: 0,
        failures: 0,
        last_change: None,
        rx_pps: 0.0,
        rx_bps: 0.0,
        tx_pps: 0.0,
        tx_bps: 0.0,
        rx_dropped: 0,
        interrupts_per_s: None,
        busy_ratio: None,
        is_budget_met: None,
        frontier: Vec::new(),
        let_go: Vec::new(),
    }
}

fn glance(route: &Route, index: u32, every: Nanos) -> Result<Glance, latput_linux::Error> {
    let (at, interface) = timed(&OsClock, every, || route.counters(index))?;
    Ok(Glance { at, interface })
}

fn is_no_device(error: &latput_linux::Error) -> bool {
    // ENODEV
    error.errno() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

fn unread(error: latput_knobs::KernelError) -> Error {
    Error::Unreadable(error)
}
