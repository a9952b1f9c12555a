//! Reading and writing the values of knobs: an arm of each for every source in `source.rs`.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use latput_knobs::{KernelErrorKind, Knob, Place, QueueTable, Scope, Value, ValueKind};
use latput_units::{Bytes, CpuSet};

use super::LinuxKernel;
use super::failure::Failure;
use super::obstacle::features_obstacle;
use super::source::{Direction, NapiField, Number, QueueFile, Source, source_of};
use crate::error::Error;
use crate::ethtool::Features;
use crate::ethtool::parameters::{Parameters, Table};
use crate::netdev::{Napi, NapiChange};
use crate::route::Link;

/// The NAPI instances with a receive queue, where the kernel can set them one by one.
type Napis = Option<Rc<Vec<(u32, Napi)>>>;
/// The places of a knob with their values.
pub(super) type Values = Vec<(Place, Value)>;

/// One look at an interface: whatever serves several knobs is asked for once.
#[derive(Debug)]
pub(super) struct Reading<'k> {
    pub(super) kernel: &'k LinuxKernel,
    pub(super) name: &'k str,
    link: OnceCell<Result<Rc<Link>, Failure>>,
    features: OnceCell<Result<Rc<Features>, Failure>>,
    tables: RefCell<BTreeMap<Table, Result<Rc<Parameters>, Failure>>>,
    napis: OnceCell<Result<Napis, Failure>>,
}

impl<'k> Reading<'k> {
    pub(super) fn new(kernel: &'k LinuxKernel, name: &'k str) -> Self {
        Self {
            kernel,
            name,
            link: OnceCell::new(),
            features: OnceCell::new(),
            tables: RefCell::default(),
            napis: OnceCell::new(),
        }
    }

    pub(super) fn link(&self) -> Result<Rc<Link>, Failure> {
        let find = || Ok(Rc::new(self.kernel.route.link(self.name)?));
        self.link.get_or_init(find).clone()
    }

    pub(super) fn features(&self) -> Result<Rc<Features>, Failure> {
        let find = || Ok(Rc::new(self.kernel.ethtool()?.features(self.name)?));
        self.features.get_or_init(find).clone()
    }

    pub(super) fn table(&self, table: Table) -> Result<Rc<Parameters>, Failure> {
        if let Some(known) = self.tables.borrow().get(&table) {
            return known.clone();
        }
        let found = self.kernel.ethtool().and_then(|ethtool| {
            Ok(Rc::new(ethtool.parameters(self.name, table).map_err(Failure::from)?))
        });
        self.tables.borrow_mut().insert(table, found.clone());
        found
    }

    /// `None` if values are per device here.
    pub(super) fn napis(&self) -> Result<Napis, Failure> {
        let find = || {
            let Some(netdev) = self.kernel.netdev.as_ref().filter(|netdev| netdev.can_set_napi())
            else {
                return Ok(None);
            };
            let link = self.link()?;
            let napis: Vec<_> = netdev
                .napis(link.index)?
                .into_iter()
                .filter_map(|napi| Some((napi.rx_queue?, napi)))
                .collect();
            if napis.is_empty() {
                return Err(Failure::unsupported(without_napi(&link)));
            }
            Ok(Some(Rc::new(napis)))
        };
        self.napis.get_or_init(find).clone()
    }

    /// Every place of a knob with its value.
    pub(super) fn read(&self, knob: Knob) -> Result<Values, Failure> {
        if knob.spec().scope == Scope::Interface {
            self.link()?; // a name that no interface has is said as such
        }
        let device = |value| Ok(vec![(Place::Device, value)]);
        match source_of(knob) {
            Source::Mtu => device(Value::Count(self.link()?.mtu.get())),
            Source::Txqueuelen => device(Value::Count(self.link()?.txqueuelen.into())),
            Source::JoinedSize(attribute) => match self.link()?.joined_sizes.get(&attribute) {
                Some(bytes) => device(Value::Count((*bytes).into())),
                None => Err(Failure::unsupported(
                    "the kernel has no such size (BIG TCP: Linux 5.19, for IPv4 6.3)",
                )),
            },
            Source::Features(names) => device(Value::Switch(self.is_on(names)?)),
            Source::Number(number) => self.read_number(knob, number),
            Source::Profile(attribute) => {
                let table = self.table(Table::Coalesce)?;
                let profile = table.profile(attribute).cloned();
                device(Value::Profile(profile.ok_or_else(|| {
                    Failure::unsupported("the driver has no moderation profiles (Linux 6.11)")
                })?))
            }
            Source::Sysctl => Ok(vec![(Place::Host, self.kernel.read_sysctl(knob)?)]),
            Source::Queue(file) => self.read_queues(knob, file),
            Source::Qdisc => self.kernel.read_root_qdisc(&*self.link()?),
            Source::QueueQdisc => self.kernel.read_queue_qdiscs(&*self.link()?),
            Source::RssTable => {
                let entries = self.kernel.ioctl.rss_table(self.name)?;
                if entries.is_empty() {
                    return Err(Failure::unsupported("the NIC has no RSS table"));
                }
                device(Value::Table(QueueTable::from_entries(&entries)))
            }
            Source::Affinity => self.kernel.read_affinity(self.name),
            Source::Threaded => match self.kernel.sysfs.read_number(self.name, "threaded")? {
                0 => device(Value::Switch(false)),
                1 => device(Value::Switch(true)),
                other => Err(Failure::unsupported(format!(
                    "threaded is {other} (busy polling), which latput neither sets nor puts back"
                ))),
            },
            Source::Napi(field) => self.read_napi(knob, field),
            Source::LoadTime => {
                let name = knob.module_parameter().expect("a test holds the two tables together");
                let number = self.kernel.load_time_parameter(self.name, name)?;
                device(Value::Count(number))
            }
        }
    }

    /// Whether any of the features is on; not having any of them is an error.
    fn is_on(&self, names: &[&str]) -> Result<bool, Failure> {
        let features = self.features()?;
        let mut known = names.iter().filter_map(|name| features.get(*name)).peekable();
        if known.peek().is_none() {
            return Err(Failure::unsupported(format!("the kernel knows no feature {}", names[0])));
        }
        Ok(known.any(|feature| feature.is_active))
    }

    fn read_number(&self, knob: Knob, number: Number) -> Result<Values, Failure> {
        let table = self.table(number.table)?;
        let value = table.number(number.attribute).ok_or_else(|| {
            Failure::unsupported(format!("the driver has none in its {}", number.table.name()))
        })?;
        let mut values = vec![(Place::Device, from_number(knob, value))];
        let Some((field, direction)) = number.per_queue else { return Ok(values) };
        // While the driver adapts, a queue's value is what it has come to, and not a setting.
        if table.number(direction.adaptive()).is_some_and(|on| on != 0) {
            return Ok(values);
        }
        let queues = self.kernel.sysfs.queues(self.name, direction.prefix()).unwrap_or_default();
        let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        if count > 1
            && let Ok(rows) = self.kernel.ioctl.queue_coalescing(self.name, field, count)
        {
            let places = (0..count).map(|queue| match direction {
                Direction::Rx => Place::RxQueue(queue),
                Direction::Tx => Place::TxQueue(queue),
            });
            let rows = rows.into_iter().map(|value| from_number(knob, value.into()));
            values.extend(places.zip(rows));
        }
        Ok(values)
    }

    fn read_queues(&self, knob: Knob, file: QueueFile) -> Result<Values, Failure> {
        let sysfs = &self.kernel.sysfs;
        let queues = sysfs.queues(self.name, file.direction.prefix())?;
        if queues.is_empty() {
            return Err(Failure::unsupported("the interface has no such queue"));
        }
        let read = |queue| {
            let attribute = queue_attribute(file, queue);
            let value = if knob.spec().kind == ValueKind::Cpus {
                let text = sysfs.read(self.name, &attribute)?;
                Value::Cpus(CpuSet::from_hex_mask(&text).map_err(|_| {
                    let path = sysfs.path(self.name, &attribute);
                    Error::parse(path.display().to_string(), "a CPU mask", &text)
                })?)
            } else {
                from_number(knob, sysfs.read_number(self.name, &attribute)?)
            };
            Ok((queue_place(file.direction, queue), value))
        };
        queues.into_iter().map(read).collect()
    }

    /// The device's value, which NAPIs that are made anew take, and then that of each NAPI.
    fn read_napi(&self, knob: Knob, field: NapiField) -> Result<Values, Failure> {
        let napis = match self.napis() {
            Ok(Some(napis)) => Ok(napis),
            Ok(None) => {
                let attribute = field.sysfs_name().ok_or_else(|| {
                    Failure::unsupported("this kernel has no irq-suspend-timeout (Linux 6.13)")
                })?;
                let number = self.kernel.sysfs.read_number(self.name, attribute)?;
                return Ok(vec![(Place::Device, from_number(knob, number))]);
            }
            Err(failure) => Err(failure),
        };
        let mut values = Values::new();
        if let Some(attribute) = self.napi_default(field) {
            let number = self.kernel.sysfs.read_number(self.name, attribute)?;
            values.push((Place::Device, from_number(knob, number)));
        }
        let napis = match napis {
            // The value for new NAPIs is there without any.
            Err(failure) if failure.kind == KernelErrorKind::Unsupported && !values.is_empty() => {
                return Ok(values);
            }
            napis => napis?,
        };
        for (queue, napi) in napis.iter() {
            let value = match field {
                NapiField::DeferHardIrqs => napi.defer_hard_irqs.map(Value::Count),
                NapiField::GroFlushTimeout => napi.gro_flush_timeout.map(Value::Time),
                NapiField::IrqSuspendTimeout => napi.irq_suspend_timeout.map(Value::Time),
            };
            let value = value.ok_or_else(|| {
                Failure::malformed(format!("NAPI {} comes without {knob}", napi.id))
            })?;
            values.push((Place::Napi(*queue), value));
        }
        Ok(values)
    }

    /// The device's file of a value that each NAPI has too; `None` where there is none, or where this process could
    /// set the NAPIs and not the file, as in a container whose sysfs is read-only.
    fn napi_default(&self, field: NapiField) -> Option<&'static str> {
        let attribute = field.sysfs_name()?;
        self.kernel.sysfs.may_be_set(self.name, attribute).then_some(attribute)
    }
}

impl LinuxKernel {
    pub(super) fn write_place(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), Failure> {
        let name = reading.name;
        if place != Place::Host {
            reading.link()?; // a name that no interface has is said as such
        }
        if place.is_follower() {
            return self.write_follower(reading, knob, place, value);
        }
        let number = to_number(knob, value);
        match (source_of(knob), place, value, number) {
            (Source::Mtu, Place::Device, Value::Count(bytes), _) => {
                narrow(*bytes)?;
                Ok(self.route.set_mtu(name, Bytes::new(*bytes))?)
            }
            (Source::Txqueuelen, Place::Device, Value::Count(packets), _) => {
                Ok(self.route.set_txqueuelen(name, narrow(*packets)?)?)
            }
            (Source::JoinedSize(attribute), Place::Device, Value::Count(bytes), _) => {
                Ok(self.route.set_joined_size(name, attribute, narrow(*bytes)?)?)
            }
            (Source::Features(names), Place::Device, Value::Switch(on), _) => {
                self.write_features(reading, knob, names, *on)
            }
            (Source::Number(field), place, _, Some(number)) => {
                self.write_number(name, field, place, number)
            }
            (Source::Profile(attribute), Place::Device, Value::Profile(profile), _) => {
                Ok(self.ethtool()?.set_profile(name, attribute, profile)?)
            }
            (Source::Sysctl, Place::Host, _, number) => {
                let text = number.map_or_else(|| value.to_string(), |number| number.to_string());
                self.proc.write(&sysctl_path(knob), &text).map_err(|error| {
                    let mut failure = Failure::from(error);
                    if knob.spec().kind == ValueKind::Module && failure.errno == Some(libc::ENOENT)
                    {
                        failure.reason = self.describe_unknown_module(knob, &text);
                    }
                    failure
                })
            }
            (Source::Queue(file), place, value, number) => {
                self.write_queue(name, file, place, value, number)
            }
            (Source::Qdisc, Place::Device, Value::Qdisc(qdisc), _) => {
                self.write_root_qdisc(&*reading.link()?, qdisc)
            }
            (Source::QueueQdisc, Place::TxQueue(queue), Value::Qdisc(qdisc), _) => {
                self.write_queue_qdisc(&*reading.link()?, queue, qdisc)
            }
            (Source::RssTable, Place::Device, Value::Table(table), _) => {
                let length = self.ioctl.rss_table(name)?.len();
                Ok(self.ioctl.set_rss_table(name, &table.entries(length))?)
            }
            (Source::Affinity, Place::Interrupt(rank), Value::Cpus(cpus), _) => {
                self.write_affinity(name, rank, cpus)
            }
            (Source::Threaded, Place::Device, Value::Switch(on), _) => {
                if let Some(reason) = self.threaded_obstacle(&*reading.link()?)? {
                    return Err(Failure::unsupported(reason));
                }
                Ok(self.sysfs.write(name, "threaded", if *on { "1" } else { "0" })?)
            }
            (Source::Napi(field), place, _, Some(number)) => {
                self.write_napi(reading, field, place, number)
            }
            (Source::LoadTime, ..) => Err(Failure::unsupported(
                "the driver reads it when it is loaded, and latput does not load drivers",
            )),
            _ => Err(Failure::refused(format!("{value} at {place} is not what {knob} takes"))),
        }
    }

    /// Tells that the kernel has no module of this name, and which it has where it tells.
    fn describe_unknown_module(&self, knob: Knob, name: &str) -> String {
        let others = match knob {
            Knob::TcpCongestionControl => {
                self.proc.read("sys/net/ipv4/tcp_available_congestion_control").ok()
            }
            _ => None,
        };
        match others {
            Some(others) => format!(
                "the kernel has no `{name}`: take one of {}, or load its module (modprobe tcp_{name})",
                others.trim()
            ),
            None => format!("the kernel has no `{name}`: load its module (modprobe sch_{name})"),
        }
    }

    fn read_sysctl(&self, knob: Knob) -> Result<Value, Failure> {
        let text = self.proc.read(&sysctl_path(knob)).map_err(|error| {
            let mut failure = Failure::from(error);
            if failure.errno == Some(libc::ENOENT) {
                failure.reason = format!(
                    "{} is the host's and not visible in this network namespace, or the kernel lacks it: \
                     look in the first namespace",
                    knob.sysctl().unwrap_or_default()
                );
            }
            failure
        })?;
        let text = text.trim();
        let value = match knob.spec().kind {
            ValueKind::Sizes => text.parse().ok().map(Value::Sizes),
            ValueKind::Module => text.parse().ok().map(Value::Module),
            ValueKind::Count | ValueKind::Time | ValueKind::Switch => {
                text.parse().ok().map(|number| from_number(knob, number))
            }
            ValueKind::Cpus | ValueKind::Qdisc | ValueKind::Table | ValueKind::Profile => None,
        };
        value.ok_or_else(|| {
            Failure::unsupported(format!("latput could not put the kernel's value `{text}` back"))
        })
    }

    fn write_features(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
        names: &[&str],
        on: bool,
    ) -> Result<(), Failure> {
        let features = reading.features()?;
        if let Some(reason) = features_obstacle(&features, names) {
            return Err(Failure::unsupported(reason));
        }
        // Also on the way back: rules may have come since.
        if !on && let Some(reason) = self.lost_without(reading.name, knob) {
            return Err(Failure::unsupported(reason));
        }
        let changeable = names
            .iter()
            .filter(|name| features.get(**name).is_some_and(|feature| feature.is_changeable));
        let wanted: Vec<(&str, bool)> = changeable.map(|name| (*name, on)).collect();
        Ok(self.ethtool()?.set_features(reading.name, &wanted)?)
    }

    fn write_number(
        &self,
        name: &str,
        field: Number,
        place: Place,
        number: u64,
    ) -> Result<(), Failure> {
        let narrow_number = narrow(number)?;
        let ethtool = self.ethtool()?;
        match (place, field.per_queue) {
            (Place::Device, _) => {
                let numbers = [((field.attribute, field.width), number)];
                Ok(ethtool.set_parameters(name, field.table, &numbers)?)
            }
            (Place::RxQueue(queue), Some((of_queue, Direction::Rx)))
            | (Place::TxQueue(queue), Some((of_queue, Direction::Tx))) => {
                Ok(self.ioctl.set_queue_coalescing(name, of_queue, queue, narrow_number)?)
            }
            _ => Err(Failure::refused(format!("there is no value of it at {place}"))),
        }
    }

    /// Writes values of one of ethtool's tables by one request.
    pub(super) fn write_numbers(
        &self,
        name: &str,
        table: Table,
        values: &[(Knob, Value)],
    ) -> Result<(), Failure> {
        let number =
            |(knob, value): &(Knob, Value)| match (source_of(*knob), to_number(*knob, value)) {
                (Source::Number(field), Some(number)) if field.table == table => {
                    Ok(((field.attribute, field.width), number))
                }
                _ => Err(Failure::refused(format!("{knob}={value} is not set with the others"))),
            };
        let numbers: Vec<_> = values.iter().map(number).collect::<Result<_, _>>()?;
        Ok(self.ethtool()?.set_parameters(name, table, &numbers)?)
    }

    fn write_queue(
        &self,
        name: &str,
        file: QueueFile,
        place: Place,
        value: &Value,
        number: Option<u64>,
    ) -> Result<(), Failure> {
        let ((Place::RxQueue(queue), Direction::Rx) | (Place::TxQueue(queue), Direction::Tx)) =
            (place, file.direction)
        else {
            return Err(Failure::refused(format!("there is no value of it at {place}")));
        };
        let text = match (value, number) {
            (Value::Cpus(cpus), _) => cpus.to_hex_mask(),
            (_, Some(number)) => number.to_string(),
            _ => return Err(Failure::refused(format!("{value} is not what it takes"))),
        };
        Ok(self.sysfs.write(name, &queue_attribute(file, queue), &text)?)
    }

    fn write_napi(
        &self,
        reading: &Reading<'_>,
        field: NapiField,
        place: Place,
        number: u64,
    ) -> Result<(), Failure> {
        match (place, field.sysfs_name()) {
            (Place::Napi(queue), _) => {
                let napis = reading.napis()?.ok_or_else(|| {
                    Failure::unsupported(
                        "this kernel sets NAPI values per device only (before Linux 6.13)",
                    )
                })?;
                let napi = napis.iter().find(|(number, _)| *number == queue);
                let (_, napi) = napi.ok_or_else(|| {
                    Failure::unsupported(format!("no NAPI instance serves receive queue {queue}"))
                })?;
                let netdev = self.netdev.as_ref().expect("the instances were listed through it");
                Ok(netdev.set_napi(napi.id, field.change(number))?)
            }
            // It overwrites the value of every NAPI, so that the transaction writes it first.
            (Place::Device, Some(attribute)) => {
                Ok(self.sysfs.write(reading.name, attribute, &number.to_string())?)
            }
            _ => Err(Failure::refused(format!("there is no value of it at {place}"))),
        }
    }
}

impl NapiField {
    /// The device's file, where there is one.
    pub(super) const fn sysfs_name(self) -> Option<&'static str> {
        match self {
            Self::DeferHardIrqs => Some("napi_defer_hard_irqs"),
            Self::GroFlushTimeout => Some("gro_flush_timeout"),
            Self::IrqSuspendTimeout => None,
        }
    }

    fn change(self, number: u64) -> NapiChange {
        match self {
            Self::DeferHardIrqs => NapiChange::DeferHardIrqs(number),
            Self::GroFlushTimeout => NapiChange::GroFlushTimeout(number),
            Self::IrqSuspendTimeout => NapiChange::IrqSuspendTimeout(number),
        }
    }
}

/// The path of a knob's sysctl under `/proc`.
pub(super) fn sysctl_path(knob: Knob) -> String {
    format!("sys/{}", knob.sysctl().unwrap_or_default().replace('.', "/"))
}

/// The file of one queue, under the interface's folder.
pub(super) fn queue_attribute(file: QueueFile, queue: u32) -> String {
    format!("queues/{}{queue}/{}", file.direction.prefix(), file.name)
}

fn queue_place(direction: Direction, queue: u32) -> Place {
    match direction {
        Direction::Rx => Place::RxQueue(queue),
        Direction::Tx => Place::TxQueue(queue),
    }
}

/// A number of the kernel's as a value of the knob.
fn from_number(knob: Knob, number: u64) -> Value {
    let spec = knob.spec();
    match spec.kind {
        ValueKind::Time => Value::Time(spec.time_unit().saturating_mul(number)),
        ValueKind::Switch => Value::Switch(number != 0),
        _ => Value::Count(number),
    }
}

/// A value of the knob as the kernel's number; `None` for values that are none.
fn to_number(knob: Knob, value: &Value) -> Option<u64> {
    match value {
        Value::Count(count) => Some(*count),
        Value::Time(time) => Some(time.as_ns() / knob.spec().time_unit().as_ns()),
        Value::Switch(on) => Some(u64::from(*on)),
        _ => None,
    }
}

/// A number of 32 bits.
fn narrow(number: u64) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| Failure::refused(format!("{number} does not fit 32 bits")))
}

/// Why an interface has no NAPI instance, and the remedy.
pub(super) fn without_napi(link: &Link) -> &'static str {
    if !link.is_up {
        "the interface has no NAPI instance while it is down: bring it up"
    } else if link.kind.as_deref() == Some("veth") {
        "a veth has no NAPI instance while gro is off: switch gro on"
    } else {
        "the driver does not tell which NAPI instance serves which receive queue"
    }
}

#[cfg(test)]
mod tests {
    use latput_units::Nanos;

    use super::*;

    #[test]
    fn numbers_are_in_the_unit_of_the_knob() {
        let us50 = Value::Time(Nanos::from_us(50));
        assert_eq!(from_number(Knob::RxUsecs, 50), us50);
        assert_eq!(from_number(Knob::GroFlushTimeout, 50_000), us50);
        assert_eq!(to_number(Knob::RxUsecs, &us50), Some(50));
        assert_eq!(to_number(Knob::GroFlushTimeout, &us50), Some(50_000));
        assert_eq!(to_number(Knob::AdaptiveRx, &Value::Switch(true)), Some(1));
        assert_eq!(to_number(Knob::RpsCpus, &Value::Cpus(CpuSet::new())), None);
    }
}
