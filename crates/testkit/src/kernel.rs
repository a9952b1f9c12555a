//! A kernel in memory, with the faults that real ones have.

use std::collections::BTreeMap;

use latput_knobs::{
    Capability, Device, KernelError, KernelErrorKind, KernelRead, KernelWrite, Knob, Limits, Named,
    Place, Scope, State, Tier, Value, Whereabouts, WritePermit, WritePurpose,
};
use latput_units::{CpuId, Nanos};

use crate::fuse::Fuse;
use crate::interface::{FakeInterface, QUEUES_MAX};

/// The largest MTU that any interface of the fake takes.
pub const MTU_MAX: u64 = 9000;

/// Interfaces with knobs, a record of every write, and faults on demand.
#[derive(Clone, Debug)]
pub struct FakeKernel {
    interfaces: BTreeMap<String, FakeInterface>,
    /// Which device each of them is.
    devices: BTreeMap<String, Device>,
    /// The last number that was given.
    last_index: u32,
    /// Those that were deleted, by number, and not moved away.
    deleted: Vec<u32>,
    /// The host's part, which stays whatever becomes of the interfaces.
    host: FakeInterface,
    faults: Vec<PlannedFault>,
    written: Vec<(Knob, Place, Value)>,
    writes_tried: u64,
    fuse: Fuse,
}

/// The faults of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Writes fail.
    Refuse(KernelErrorKind),
    /// Writes are accepted and forgotten.
    Ignore,
    /// Numbers are rounded down to a multiple.
    Round(u64),
    /// The present values are refused where they are written again.
    RefusePresent,
    /// Reads fail.
    Unreadable(KernelErrorKind),
    /// It says that it cannot be set.
    ReadOnly,
    /// Any value would move what could not be put back.
    MovesOthers,
    /// It cannot be told what a value would move.
    MovesUntold(KernelErrorKind),
    /// The whole interface goes away instead of the write.
    Vanish,
    /// The interface is called `renamed0` before the write.
    Rename,
}

#[derive(Clone, Copy, Debug)]
struct PlannedFault {
    /// `None`: any knob.
    knob: Option<Knob>,
    fault: Fault,
    /// The tries of writing (counted from 0) during which it is there.
    first: u64,
    last: u64,
}

impl FakeKernel {
    /// A kernel with one interface.
    pub fn with_interface(name: &str, interface: FakeInterface) -> Self {
        let mut kernel = Self {
            interfaces: BTreeMap::new(),
            devices: BTreeMap::new(),
            last_index: 1,
            deleted: Vec::new(),
            host: FakeInterface::host(),
            faults: Vec::new(),
            written: Vec::new(),
            writes_tried: 0,
            fuse: Fuse::default(),
        };
        kernel.add(name, interface);
        kernel
    }

    /// Adds, or replaces, an interface: a virtual one, with the next number from 2.
    pub fn add(&mut self, name: &str, interface: FakeInterface) {
        self.last_index += 1;
        let index = self.last_index;
        let kind = Some("fake".to_owned());
        self.add_device(name, interface, Device { index, kind, ..Device::default() });
    }

    /// The interface has other queues, or another driver's habits, and is the same device.
    pub fn rebuild(&mut self, name: &str, interface: FakeInterface) {
        assert!(self.interfaces.insert(name.to_owned(), interface).is_some(), "{name} is there");
    }

    /// Adds, or replaces, an interface that is this device.
    pub fn add_device(&mut self, name: &str, interface: FakeInterface, device: Device) {
        self.vanish(name);
        self.interfaces.insert(name.to_owned(), interface);
        self.devices.insert(name.to_owned(), device);
    }

    /// The interface is deleted.
    pub fn vanish(&mut self, name: &str) {
        self.interfaces.remove(name);
        self.deleted.extend(self.devices.remove(name).map(|device| device.index));
    }

    /// The interface goes to another namespace, or is deleted while nobody listens.
    pub fn move_away(&mut self, name: &str) -> Option<(FakeInterface, Device)> {
        self.interfaces.remove(name).zip(self.devices.remove(name))
    }

    /// The interface takes another name.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some((interface, device)) = self.move_away(from) {
            self.add_device(to, interface, device);
        }
    }

    /// Every value of an interface, read without faults; empty when there is no such interface.
    pub fn state(&self, name: &str) -> State {
        let mut state = self.interfaces.get(name).map(FakeInterface::state).unwrap_or_default();
        if !state.0.is_empty() {
            state.0.extend(self.host.state().0);
        }
        state
    }

    /// A value of the host's own.
    pub fn host_value(&self, knob: Knob) -> Option<Value> {
        self.host.read(knob).pop().map(|(_, value)| value)
    }

    /// Where a knob is, if it is anywhere.
    fn find_holder(&self, name: &str, knob: Knob) -> Option<&FakeInterface> {
        match knob.spec().scope {
            Scope::Host => Some(&self.host),
            Scope::Interface => self.interfaces.get(name),
        }
    }

    fn home_of_mut(&mut self, name: &str, knob: Knob) -> Option<&mut FakeInterface> {
        match knob.spec().scope {
            Scope::Host => Some(&mut self.host),
            Scope::Interface => self.interfaces.get_mut(name),
        }
    }

    /// Somebody else sets a value. Nothing happens when there is no such place.
    pub fn set_from_outside(&mut self, name: &str, knob: Knob, place: Place, value: Value) {
        if let Some(interface) = self.home_of_mut(name, knob)
            && interface.has(knob, place)
        {
            interface.set_as_allowed(knob, place, &value);
        }
    }

    /// From now on, the interface takes only equal delays of both directions.
    pub fn share_channels(&mut self, name: &str) {
        let interface = self.interfaces.get_mut(name).expect("the interface is there");
        interface.share_channels(true);
    }

    /// From now on, this goes wrong with `knob`.
    pub fn inject_fault(&mut self, knob: Knob, fault: Fault) {
        self.inject_fault_between(Some(knob), fault, self.writes_tried, u64::MAX);
    }

    /// After `writes` more tries of writing anything, this goes wrong with `knob`, for good.
    pub fn inject_fault_after(&mut self, writes: u64, knob: Knob, fault: Fault) {
        self.inject_fault_between(Some(knob), fault, self.writes_tried + writes, u64::MAX);
    }

    /// The one write that comes after `writes` more goes wrong, whatever it writes.
    pub fn inject_fault_once(&mut self, writes: u64, fault: Fault) {
        let at = self.writes_tried + writes;
        self.inject_fault_between(None, fault, at, at);
    }

    /// Nothing goes wrong any more.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// The writes, in order; with those that were ignored or rounded, without those that were refused.
    pub fn written(&self) -> &[(Knob, Place, Value)] {
        &self.written
    }

    /// The fuse that kills this kernel's user; give it to the store too.
    pub fn fuse(&self) -> Fuse {
        self.fuse.clone()
    }

    fn inject_fault_between(&mut self, knob: Option<Knob>, fault: Fault, first: u64, last: u64) {
        self.faults.push(PlannedFault { knob, fault, first, last });
    }

    fn faults_of(&self, knob: Knob) -> impl Iterator<Item = Fault> + use<'_> {
        let now = self.writes_tried;
        self.faults
            .iter()
            .filter(move |planned| planned.knob.is_none_or(|k| k == knob))
            .filter(move |planned| (planned.first..=planned.last).contains(&now))
            .map(|planned| planned.fault)
    }

    fn check_alive(&self, interface: &str, knob: Knob) -> Result<(), KernelError> {
        self.fuse.check_alive().map_err(|_| error(interface, knob, "read", KernelErrorKind::Busy))
    }
}

impl KernelRead for FakeKernel {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        self.check_alive(interface, knob)?;
        let values = self
            .find_holder(interface, knob)
            .ok_or_else(|| error(interface, knob, "read", KernelErrorKind::NoInterface))?
            .read(knob);
        for fault in self.faults_of(knob) {
            if let Fault::Unreadable(kind) = fault {
                return Err(error(interface, knob, "read", kind));
            }
        }
        if values.is_empty() {
            return Err(error(interface, knob, "read", KernelErrorKind::Unsupported));
        }
        Ok(values)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        match self.read(interface, knob) {
            Err(error) => Capability::Absent(error.reason),
            Ok(_) if knob.spec().tier == Tier::Reload => {
                Capability::ReadOnly("the driver reads it when it is loaded".to_owned())
            }
            Ok(_) if self.faults_of(knob).any(|fault| fault == Fault::ReadOnly) => {
                Capability::ReadOnly("this driver has no way to set it".to_owned())
            }
            Ok(_) => Capability::Settable("a fake".to_owned()),
        }
    }

    fn obstacle_to(
        &self,
        interface: &str,
        knob: Knob,
        _: &Value,
        _: WritePurpose,
    ) -> Result<Option<String>, KernelError> {
        for fault in self.faults_of(knob) {
            match fault {
                Fault::MovesOthers => return Ok(Some("it would move others".to_owned())),
                Fault::MovesUntold(kind) => return Err(error(interface, knob, "look", kind)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn limits(&self, _: &str, knob: Knob) -> Limits {
        match knob {
            Knob::Mtu => Limits { min: None, max: Some(MTU_MAX) },
            Knob::CombinedChannels => Limits { min: Some(1), max: Some(QUEUES_MAX) },
            Knob::RxRing | Knob::TxRing => Limits { min: None, max: Some(4096) },
            _ => Limits::default(),
        }
    }

    fn resolve(
        &self,
        interface: &str,
        knob: Knob,
        _: Place,
        named: Named,
    ) -> Result<Value, KernelError> {
        let known = match named {
            Named::Hint => Some(Value::Cpus([CpuId(1)].into_iter().collect())),
            Named::Max => self.limits(interface, knob).max.map(Value::Count),
        };
        known.ok_or_else(|| error(interface, knob, "resolve", KernelErrorKind::Unsupported))
    }

    fn is_fresh(&self, _: &str, _: Knob, place: Place, value: &Value) -> bool {
        // The CPUs of its interrupts are all four when the driver asks for them.
        let all = || (0..4).map(CpuId).collect();
        let is_new = matches!(place, Place::Interrupt(_)) && *value == Value::Cpus(all());
        is_new || value.is_fresh()
    }

    fn set_with(&self, knob: Knob) -> Vec<Knob> {
        let delays = [Knob::RxUsecs, Knob::TxUsecs];
        if delays.contains(&knob) { delays.to_vec() } else { Vec::new() }
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        let missing = || error(interface, Knob::Mtu, "read", KernelErrorKind::NoInterface);
        self.devices.get(interface).cloned().ok_or_else(missing)
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        self.check_alive("", Knob::Mtu)?;
        let found = self.devices.iter().find(|(_, found)| found.is(device));
        Ok(match found {
            Some((name, _)) => Whereabouts::Here(name.clone()),
            None if self.deleted.contains(&device.index) => Whereabouts::Deleted,
            None => Whereabouts::Unknown,
        })
    }
}

impl KernelWrite for FakeKernel {
    fn rewrite(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        knob: Knob,
    ) -> Result<(), KernelError> {
        let is_delay = !self.set_with(knob).is_empty();
        let is_refused = |it: &FakeInterface| is_delay && !it.accepts_own_delays();
        if self.faults_of(knob).any(|fault| fault == Fault::RefusePresent)
            || self.interfaces.get(interface).is_some_and(is_refused)
        {
            return Err(error(interface, knob, "rewrite", KernelErrorKind::Refused));
        }
        Ok(())
    }

    fn write_together(
        &mut self,
        permit: &WritePermit,
        interface: &str,
        values: &[(Knob, Value)],
    ) -> Result<(), KernelError> {
        let mut after = self.clone();
        let shares = after.interfaces.get_mut(interface).is_some_and(|it| it.share_channels(false));
        let mut write = |(knob, value): &(Knob, Value)| {
            after.write(permit, interface, *knob, Place::Device, value)
        };
        let written = values.iter().try_for_each(&mut write);
        self.writes_tried = after.writes_tried;
        written?;
        if let Some(it) = after.interfaces.get_mut(interface) {
            it.share_channels(shares);
            if !it.accepts_own_delays() {
                return Err(error(interface, values[0].0, "write", KernelErrorKind::Refused));
            }
        }
        *self = after;
        Ok(())
    }

    fn write(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        let refuse = |kind| error(interface, knob, "write", kind);
        self.fuse.step().map_err(|_| refuse(KernelErrorKind::Busy))?;
        let faults: Vec<Fault> = self.faults_of(knob).collect();
        self.writes_tried += 1;
        if faults.contains(&Fault::Vanish) {
            self.vanish(interface);
        }
        if faults.contains(&Fault::Rename) {
            self.rename(interface, "renamed0");
        }
        let limits = self.limits(interface, knob);
        let Some(target) = self.home_of_mut(interface, knob) else {
            return Err(refuse(KernelErrorKind::NoInterface));
        };
        if !target.has(knob, place) {
            return Err(refuse(KernelErrorKind::Unsupported));
        }
        if limits.max.is_some_and(|max| *value > Value::Count(max)) || target.refuses(knob, value) {
            return Err(refuse(KernelErrorKind::Refused));
        }
        let mut taken = value.clone();
        for fault in &faults {
            match *fault {
                Fault::Refuse(kind) => return Err(refuse(kind)),
                Fault::Round(step) => taken = rounded(taken, step),
                Fault::Ignore
                | Fault::RefusePresent
                | Fault::Unreadable(_)
                | Fault::ReadOnly
                | Fault::Vanish
                | Fault::MovesOthers
                | Fault::MovesUntold(_)
                | Fault::Rename => {}
            }
        }
        if !faults.contains(&Fault::Ignore) {
            target.set(knob, place, taken);
        }
        self.written.push((knob, place, value.clone()));
        Ok(())
    }
}

fn rounded(value: Value, step: u64) -> Value {
    match value {
        Value::Count(count) => Value::Count(count / step * step),
        Value::Time(time) => Value::Time(Nanos::from_ns(time.as_ns() / step * step)),
        value => value,
    }
}

fn error(interface: &str, knob: Knob, operation: &str, kind: KernelErrorKind) -> KernelError {
    let (errno, reason) = match kind {
        KernelErrorKind::Unsupported => (Some(95), "operation not supported"),
        KernelErrorKind::Refused => (Some(22), "invalid argument"),
        KernelErrorKind::Permission => (Some(1), "operation not permitted"),
        KernelErrorKind::NoInterface => (Some(19), "no such device"),
        KernelErrorKind::Busy => (Some(16), "device or resource busy"),
        KernelErrorKind::Malformed => (None, "the answer ends in the middle"),
    };
    KernelError {
        interface: interface.to_owned(),
        knob: Some(knob),
        operation: format!("{operation} it in the fake kernel"),
        kind,
        errno,
        reason: reason.to_owned(),
    }
}
