//! Writing the knobs of an interface.

use latput_knobs::{Knob, Place, Value};
use latput_units::Bytes;

use super::LinuxKernel;
use super::failure::Failure;
use super::features::obstacle;
use super::followers::unlike_threaded;
use super::read::{Reading, queue_attribute, sysctl, to_number, without_napi};
use super::source::{Direction, NapiField, Number, QueueFile, Source, source_of};
use crate::ethtool::parameters::Table;
use crate::netdev::NapiChange;
use crate::route::Link;

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
            (Source::Features(names), Place::Device, Value::Switch(on), _) => {
                self.write_features(reading, knob, names, *on)
            }
            (Source::Number(field), place, _, Some(number)) => {
                self.write_number(name, field, place, number)
            }
            (Source::Profile(attribute), Place::Device, Value::Profile(profile), _) => {
                Ok(self.ethtool()?.set_profile(name, attribute, profile)?)
            }
            (Source::Sysctl(file), Place::Host, _, Some(number)) => {
                Ok(self.proc.write(&sysctl(file), &number.to_string())?)
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

    fn write_features(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
        names: &[&str],
        on: bool,
    ) -> Result<(), Failure> {
        let features = reading.features()?;
        if let Some(reason) = obstacle(&features, names) {
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

    /// Why `threaded` cannot be set for the device as a whole; `None` if it can.
    pub(super) fn threaded_obstacle(&self, link: &Link) -> Result<Option<String>, Failure> {
        let device = self.sysfs.read_number(&link.name, "threaded")?;
        let Some(netdev) = &self.netdev else {
            return Ok(None);
        };
        let napis = netdev.napis(link.index)?;
        if napis.is_empty() {
            // The kernel reads it then, but refuses to set it (`dev_set_threaded`, net/core/dev.c).
            return Ok(Some(without_napi(link).to_owned()));
        }
        Ok(unlike_threaded(&napis, device))
    }
}

impl NapiField {
    fn change(self, number: u64) -> NapiChange {
        match self {
            Self::DeferHardIrqs => NapiChange::DeferHardIrqs(number),
            Self::GroFlushTimeout => NapiChange::GroFlushTimeout(number),
            Self::IrqSuspendTimeout => NapiChange::IrqSuspendTimeout(number),
        }
    }
}

fn narrow(number: u64) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| Failure::refused(format!("{number} does not fit 32 bits")))
}
