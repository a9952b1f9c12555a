//! The check that runs twice a second: the interface's name, link and queues, the CPU, and whether
//! somebody else has set a knob.

use std::collections::BTreeSet;

use latput_knobs::{Knob, Place, Value};
use latput_linux::route::Link;
use latput_linux::{CounterSnapshot, CpuMeter, Namespace};
use latput_units::{IntoSet, Nanos};

use super::{Daemon, HEALTH_INTERVAL, is_no_device, unreadable_error};
use crate::delay_knob;
use crate::error::Error;
use crate::interface_handle::InterfaceHandle;
use crate::serve::socket_path;
use crate::status::{FrontierPoint, State};

/// State that changes when an interface is reconfigured: the kernel makes new NAPIs (down and up, channels, GRO), or
/// the link is lost (a driver's reset).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InterfaceFingerprint {
    pub(super) index: u32,
    pub(super) napis: BTreeSet<u32>,
    pub(super) queues: (u32, u32),
    pub(super) carrier_changes: Option<u64>,
}

/// The counters at the last check.
#[derive(Debug)]
pub(super) struct HealthCheck {
    pub(super) at: Nanos,
    pub(super) snapshot: CounterSnapshot,
    pub(super) cpu: Option<CpuMeter>,
    pub(super) cpu_time: (Nanos, Nanos),
    pub(super) interrupts: Option<u64>,
}

impl Daemon {
    /// Checks what changes seldom.
    pub(super) fn check_health(&mut self, snapshot: CounterSnapshot) -> Result<(), Error> {
        self.notify.send_state("WATCHDOG=1");
        self.take_rates(snapshot);
        let link = self.find_link()?;
        if !link.is_up {
            if matches!(self.status.state, State::Holding) {
                tracing::info!(interface = link.name, "the interface is down: waiting");
                self.status.state = State::Waiting;
            }
            return Ok(());
        }
        self.meter.set_mtu(link.mtu);
        let fingerprint = self.fingerprint_of(&link);
        let was_down = self.status.state == State::Waiting;
        if was_down || fingerprint != self.fingerprint {
            self.fingerprint = fingerprint;
            if matches!(self.status.state, State::Holding | State::Waiting) {
                return self.start_over();
            }
        }
        match self.status.state {
            State::Holding => {
                if let Some(theirs) = self.set_by_others()? {
                    return self.release_knobs(&theirs);
                }
            }
            State::Observing => {
                let read = self.delay_knob.read(self.hand.kernel(), &link.name);
                self.delay =
                    read.map_or(self.delay, |state| delay_knob::delay_in(&self.delay_knob, &state));
                self.status.delay_ns = self.delay.as_ns();
            }
            State::Waiting | State::Released => return Ok(()),
        }
        let busy = self.status.busy_ratio.unwrap_or(0.0);
        let decision = self.governor.observe_cpu(HEALTH_INTERVAL, busy);
        let was_met = self.status.is_budget_met;
        self.status.is_budget_met = self.governor.is_budget_met();
        let frontier = self.governor.frontier().into_iter();
        let point = |(delay, busy_ratio): (Nanos, f64)| FrontierPoint {
            delay_ns: delay.as_ns(),
            busy_ratio,
        };
        self.status.frontier = frontier.map(point).collect();
        let at_most = self.delay >= self.options.goal.most;
        if self.status.is_budget_met == Some(false) && was_met == Some(true) && at_most {
            let interface = &self.status.interface;
            tracing::warn!(
                interface,
                busy,
                "the CPU budget cannot be met: this is the longest delay"
            );
        }
        self.apply_decision(decision)
    }

    /// Rates since the last check.
    fn take_rates(&mut self, snapshot: CounterSnapshot) {
        let seconds = snapshot.at.saturating_sub(self.last_check.at).as_secs_f64().max(1e-3);
        let a = self.last_check.snapshot.interface;
        let b = snapshot.interface;
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        self.status.rx_pps = rate(a.rx_packets, b.rx_packets);
        self.status.tx_pps = rate(a.tx_packets, b.tx_packets);
        self.status.rx_bps = 8.0 * rate(a.rx_bytes, b.rx_bytes);
        self.status.tx_bps = 8.0 * rate(a.tx_bytes, b.tx_bytes);
        let interrupts = self.hand.kernel().interrupt_count(&self.status.interface);
        self.status.interrupts_per_s =
            self.last_check.interrupts.zip(interrupts).map(|(from, to)| rate(from, to));
        let (busy, total) = cpu_time(self.last_check.cpu.as_mut());
        let (busy_before, total_before) = self.last_check.cpu_time;
        let elapsed = total.saturating_sub(total_before).as_secs_f64();
        if elapsed > 0.0 {
            let busy = busy.saturating_sub(busy_before).as_secs_f64();
            self.status.busy_ratio = Some((busy / elapsed).clamp(0.0, 1.0));
        }
        self.last_check.at = snapshot.at;
        self.last_check.snapshot = snapshot;
        self.last_check.interrupts = interrupts;
        self.last_check.cpu_time = (busy, total);
    }

    /// The interface, by its index: it may have been renamed.
    fn find_link(&mut self) -> Result<Link, Error> {
        match self.route.link(&self.status.interface) {
            Ok(link) if link.index == self.fingerprint.index => return Ok(link),
            Ok(_) => {}
            Err(error) if is_no_device(&error) => {}
            Err(error) => return Err(error.into()),
        }
        let renamed =
            self.route.links()?.into_iter().find(|link| link.index == self.fingerprint.index);
        let Some(link) = renamed else { return Err(self.interface_gone_error()) };
        let old = self.status.interface.clone();
        let new = link.name.clone();
        tracing::info!(old, new, "the interface has a new name");
        let namespace = Namespace::current()?.inode()?;
        self.server.rename_socket(socket_path(&self.options.folder, namespace, &new));
        self.status.interface.clone_from(&new);
        Ok(link)
    }

    pub(super) fn interface_gone_error(&self) -> Error {
        Error::Gone { interface: self.status.interface.clone() }
    }

    /// The interface came up again, or has new queues: opens a new session, whose checkpoint holds the
    /// new queues too, and applies the first delay.
    fn start_over(&mut self) -> Result<(), Error> {
        let interface = self.status.interface.clone();
        tracing::info!(interface, "the interface came up or has other queues: starting over");
        let read =
            self.delay_knob.read(self.hand.kernel(), &interface).map_err(unreadable_error)?;
        let theirs: Vec<_> = find_changed_values(&self.written, &read)
            .filter(|(key, value)| !value.is_fresh() && !self.is_known(*key, value))
            .map(|((knob, _), _)| knob)
            .collect();
        if !theirs.is_empty() {
            self.status.state = State::Holding;
            return self.release_knobs(&theirs);
        }
        // A read-only handle stands in while the session is closed and opened anew.
        let hand = std::mem::replace(&mut self.hand, InterfaceHandle::open_read_only()?);
        hand.close()?;
        self.hand = InterfaceHandle::claim(&self.options.folder.join("checkpoints"), &interface)?;
        self.status.ring = delay_knob::read_ring_size(self.hand.kernel(), &interface);
        self.governor = self.new_governor();
        self.status.state = State::Holding;
        self.change_delay(self.governor.wanted_delay(), "started over")
    }

    /// Whether a place holds what it held before latput, or what latput wrote: a new NAPI takes over the
    /// device's value.
    fn is_known(&self, key: (Knob, Place), value: &Value) -> bool {
        let is_ours = |((knob, _), ours): (&(Knob, Place), &Value)| *knob == key.0 && ours == value;
        let is_original = match &self.hand {
            InterfaceHandle::Session(session) => {
                session.checkpoint().undo.0.get(&key) == Some(value)
            }
            InterfaceHandle::ReadOnly(_) => false,
        };
        is_original || self.written.0.iter().any(is_ours)
    }

    /// The knobs that no longer have the value written by latput; `None` if all have it.
    pub(super) fn set_by_others(&self) -> Result<Option<Vec<Knob>>, Error> {
        let interface = &self.status.interface;
        let now = self.delay_knob.read(self.hand.kernel(), interface).map_err(unreadable_error)?;
        let knobs: BTreeSet<Knob> =
            find_changed_values(&self.written, &now).map(|((knob, _), _)| knob).into_set();
        Ok((!knobs.is_empty()).then(|| knobs.into_iter().collect()))
    }

    /// The administrator wins: his values stay, the rest is put back, and latput changes nothing more.
    pub(super) fn release_knobs(&mut self, theirs: &[Knob]) -> Result<(), Error> {
        let interface = self.status.interface.clone();
        let now = self.delay_knob.read(self.hand.kernel(), &interface).map_err(unreadable_error)?;
        for ((knob, place), value) in find_changed_values(&self.written, &now) {
            let ours = self.written.0.get(&(knob, place));
            let ours = ours.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            let what = format!("{knob} ({place}) was {ours} and is now {value}");
            tracing::warn!(
                interface,
                "{what}: another program has set it, so latput releases it; restart latput to take it again"
            );
            self.status.released.push(what);
        }
        let released: BTreeSet<Knob> =
            theirs.iter().flat_map(|knob| self.delay_knob.released_with(*knob)).into_set();
        if let InterfaceHandle::Session(session) = &mut self.hand {
            for knob in released {
                session.give_up(knob)?;
            }
            session.apply(&latput_knobs::Setting::new())?;
        }
        self.status.state = State::Released;
        let state =
            self.delay_knob.read(self.hand.kernel(), &interface).map_err(unreadable_error)?;
        self.delay = delay_knob::delay_in(&self.delay_knob, &state);
        self.status.delay_ns = self.delay.as_ns();
        Ok(())
    }

    pub(super) fn fingerprint_of(&self, link: &Link) -> InterfaceFingerprint {
        let napis = self.netdev.as_ref().and_then(|netdev| netdev.napis(link.index).ok());
        let carrier_changes = self.hand.kernel().carrier_changes(&link.name).ok();
        InterfaceFingerprint::new(
            link,
            napis.map(|napis| napis.iter().map(|napi| napi.id).into_set()),
            carrier_changes,
        )
    }
}

impl InterfaceFingerprint {
    pub(super) fn new(
        link: &Link,
        napis: Option<BTreeSet<u32>>,
        carrier_changes: Option<u64>,
    ) -> Self {
        let queues = (link.rx_queues, link.tx_queues);
        Self { index: link.index, napis: napis.unwrap_or_default(), queues, carrier_changes }
    }
}

/// The places whose value is not the one of before. Places that went away are no difference.
fn find_changed_values<'a>(
    before: &'a latput_knobs::State,
    now: &'a latput_knobs::State,
) -> impl Iterator<Item = ((Knob, Place), &'a Value)> {
    let values = now.0.iter().filter(|(key, value)| before.0.get(key) != Some(value));
    values.map(|(key, value)| (*key, value))
}

/// Busy and total CPU time of the machine since boot.
pub(super) fn cpu_time(meter: Option<&mut CpuMeter>) -> (Nanos, Nanos) {
    let time = meter.and_then(|meter| meter.read().ok()).unwrap_or_default();
    (time.busy(), time.total())
}
