//! The agent's host: its knobs in one session that is put back at the end, and its counters.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use latput_knobs::transaction::{Change, ErrorKind, Session};
use latput_knobs::{Knob, Setting, State};
use latput_linux::{FileCheckpoints, Glance, LinuxKernel, Sampler, checkpoint, lab, process};
use latput_load::{Progress, Stop, Window};
use latput_trial::observation::HostObservation;
use latput_trial::overrun::ReceiveSide;
use latput_trial::results::HostFacts;
use latput_units::{Clock, CpuSet, Nanos};

use crate::agent::failed;
use crate::protocol::{Failure, FailureKind, Open, Opened, SCHEMA};

/// The interface's counters are read this often in the window; everything else at its two ends.
const GLANCE_EVERY: Nanos = Nanos::from_ms(100);

/// How often a window whose end a count may bring forward is looked after.
const COUNT_LOOK_EVERY: Nanos = Nanos::from_ms(5);

/// Where checkpoints and locks are kept, unless `LATPUT_STATE_DIR` names another folder.
const STATE_DIR: &str = "/run/latput";

/// The folder of checkpoints and locks.
pub fn state_dir() -> PathBuf {
    std::env::var_os("LATPUT_STATE_DIR").map_or_else(|| PathBuf::from(STATE_DIR), PathBuf::from)
}

/// The folder of checkpoints.
pub fn checkpoints_dir() -> PathBuf {
    state_dir().join("checkpoints")
}

/// The host that an agent is for.
#[derive(Debug)]
pub(crate) struct Host {
    open: Open,
    cpus: CpuSet,
    kernel: LinuxKernel,
    sampler: Sampler,
    session: Option<Session<LinuxKernel, FileCheckpoints>>,
}

impl Host {
    /// Looks at the host, and claims its interface if knobs will be set.
    pub(crate) fn open(open: Open) -> Result<(Self, Opened), Failure> {
        let broken = |error: latput_linux::Error| Failure {
            kind: if error.is_permission() { FailureKind::Permission } else { FailureKind::Failed },
            message: chain(&error),
        };
        let cpus = match &open.cpus {
            Some(cpus) => cpus.clone(),
            None => process::allowed_cpus().map_err(broken)?,
        };
        let mut notes = Vec::new();
        if let Err(error) = process::bind_thread(&cpus) {
            notes.push(format!("not bound to CPUs {cpus}: {}", chain(&error)));
        }
        let sampler = Sampler::open(&open.interface, &cpus).map_err(broken)?;
        if let Some(obstacle) = sampler.napi_obstacle() {
            notes.push(format!("no NAPI poll counts: {}", chain(obstacle)));
        }
        let facts = HostFacts {
            host: open.host.clone(),
            role: open.role,
            interface: open.interface.clone(),
            facts: latput_linux::facts::collect(&open.interface),
        };
        let session = if open.will_set { Some(claim(&open.interface)?) } else { None };
        let boot_id = process::boot_id().map_err(broken)?;
        let kernel = LinuxKernel::open().map_err(broken)?;
        let receive = ReceiveSide::new(
            open.host.clone(),
            open.role,
            latput_linux::facts::link_speed(&open.interface),
            &kernel.read_all(&open.interface),
        );
        let opened = Opened {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            clock: clock_id(&boot_id),
            boot_id,
            cpus: cpus.clone(),
            facts,
            receive,
            notes,
        };
        Ok((Self { open, cpus, kernel, sampler, session }, opened))
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.open.address
    }

    pub(crate) const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Brings the interface to a setting.
    pub(crate) fn set(&mut self, setting: &Setting) -> Result<(), Failure> {
        let interface = &self.open.interface;
        let broken = |error: latput_linux::Error| failed(chain(&error));
        if let Some(session) = &mut self.session {
            let applied = session
                .apply(setting)
                .map_err(|error| Failure { kind: kind_of(error.kind()), message: chain(&error) })?;
            let makes_threads = |change: &Change| {
                change.knob == Knob::Threaded || change.knob.spec().resets.contains(&Knob::Threaded)
            };
            if applied.changes.iter().any(makes_threads) {
                self.sampler = Sampler::open(interface, &self.cpus).map_err(broken)?;
            }
            if self.open.binds_napi_threads {
                lab::pin_napi_threads(interface, &self.cpus).map_err(broken)?;
            }
        } else if !setting.is_empty() {
            return Err(failed("the session was opened for reading only"));
        }
        Ok(())
    }

    /// Counts over the window, and which knobs changed meanwhile. The window is over early when
    /// the `traffic` of this host has counted what it was to count. `watch` sees each glance at the
    /// interface's counters, the first at the window's start and the last at its end.
    pub(crate) fn observe(
        &mut self,
        window: Window,
        stop: &Stop,
        traffic: &[Progress],
        watch: &mut dyn FnMut(&Glance),
    ) -> Result<(HostObservation, Vec<String>), Failure> {
        let before = self.kernel.read_all(&self.open.interface);
        let broken = |error: latput_linux::Error| failed(chain(&error));
        let counts = traffic.iter().any(|part| part.goal().is_some());
        let piece = if counts { COUNT_LOOK_EVERY } else { GLANCE_EVERY };
        let is_over = || {
            let is_done = counts && traffic.iter().all(|part| part.ended_early().is_some());
            is_done || stop.is_raised()
        };
        sleep_until(window.start(), GLANCE_EVERY, || stop.is_raised());
        let first = self.sampler.sample().map_err(broken)?;
        watch(&self.sampler.glance().map_err(broken)?);
        let mut glances = Vec::new();
        let mut at = window.start() + GLANCE_EVERY;
        while at < window.end() && !is_over() {
            sleep_until(at, piece, is_over);
            let glance = self.sampler.glance().map_err(broken)?;
            watch(&glance);
            glances.push(glance);
            at = at + GLANCE_EVERY;
        }
        sleep_until(window.end(), piece, is_over);
        let last = self.sampler.sample().map_err(broken)?;
        watch(&self.sampler.glance().map_err(broken)?);
        if stop.is_raised() {
            return Err(failed("interrupted"));
        }
        let drift = differences(&before, &self.kernel.read_all(&self.open.interface));
        let mut observation =
            first.until(&last, &self.open.host, self.open.role, before).map_err(broken)?;
        observation.packets_per_interval = packets_per_interval(&glances);
        Ok((observation, drift))
    }

    /// Puts every knob back.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let Some(session) = self.session else { return Ok(()) };
        session
            .close()
            .map(drop)
            .map_err(|error| Failure { kind: kind_of(error.kind()), message: chain(&error) })
    }
}

fn claim(interface: &str) -> Result<Session<LinuxKernel, FileCheckpoints>, Failure> {
    let broken = |error: latput_linux::Error| failed(chain(&error));
    let kernel = LinuxKernel::open().map_err(broken)?;
    let store = FileCheckpoints::new(&checkpoints_dir());
    let origin = checkpoint::context().map_err(broken)?;
    Session::open(kernel, store, &origin, interface)
        .map_err(|error| Failure { kind: kind_of(error.kind()), message: chain(&error) })
}

const fn kind_of(kind: ErrorKind) -> FailureKind {
    match kind {
        ErrorKind::Unchanged => FailureKind::Failed,
        ErrorKind::Permission => FailureKind::Permission,
        ErrorKind::RolledBack => FailureKind::RolledBack,
        ErrorKind::Stranded => FailureKind::Stranded,
    }
}

/// Which `CLOCK_MONOTONIC` this process reads: that of its kernel, moved by its time namespace
/// (see time namespaces, `time_namespaces(7)`); a kernel without such namespaces has one clock for all.
pub(crate) fn clock_id(boot_id: &str) -> String {
    let namespace = std::fs::read_link("/proc/self/ns/time");
    let namespace = namespace.map_or_else(|_| String::new(), |link| link.display().to_string());
    format!("{boot_id} {namespace}").trim_end().to_owned()
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// Packets in and out between each two glances.
fn packets_per_interval(glances: &[Glance]) -> Vec<u64> {
    let packets = |glance: &Glance| glance.interface.rx_packets + glance.interface.tx_packets;
    glances.windows(2).map(|pair| packets(&pair[1]).saturating_sub(packets(&pair[0]))).collect()
}

fn differences(before: &State, after: &State) -> Vec<String> {
    let mut changes = Vec::new();
    for (key, value) in &before.0 {
        let (knob, place) = key;
        match after.0.get(key) {
            Some(now) if now == value => {}
            Some(now) => changes.push(format!("{knob} ({place}) went from {value} to {now}")),
            None => changes.push(format!("{knob} ({place}) went away")),
        }
    }
    changes
}

/// Sleeps in pieces of at most `piece`, so that it is seen when `is_over`.
fn sleep_until(instant: Nanos, piece: Nanos, is_over: impl Fn() -> bool) {
    while !is_over() {
        let left = instant.saturating_sub(process::OsClock.now());
        if left == Nanos::ZERO {
            return;
        }
        std::thread::sleep(left.min(piece).as_duration());
    }
}
