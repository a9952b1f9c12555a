//! Writing the knobs of an interface.

use latput_knobs::{Knob, Place, Value};
use latput_units::Bytes;

use super::LinuxKernel;
use super::failure::Failure;
use super::features::{changeable_tso, tso_obstacle};
use super::read::without_napi;
use crate::netdev::NapiChange;
use crate::route::Link;

impl LinuxKernel {
    pub(super) fn write_place(
        &self,
        link: &Link,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), Failure> {
        let name = &link.name;
        match (knob, place, value) {
            (Knob::Mtu, Place::Device, Value::Count(bytes)) => {
                if u32::try_from(*bytes).is_err() {
                    return Err(Failure::refused("more bytes than fit 32 bits"));
                }
                Ok(self.route.set_mtu(name, Bytes::new(*bytes))?)
            }
            (Knob::Txqueuelen, Place::Device, Value::Count(packets)) => {
                let packets = u32::try_from(*packets)
                    .map_err(|_| Failure::refused("more packets than fit 32 bits"))?;
                Ok(self.route.set_txqueuelen(name, packets)?)
            }
            (Knob::Gro, Place::Device, Value::Switch(on)) => {
                self.write_features(name, &["rx-gro"], *on)
            }
            (Knob::Gso, Place::Device, Value::Switch(on)) => {
                self.write_features(name, &["tx-generic-segmentation"], *on)
            }
            (Knob::Tso, Place::Device, Value::Switch(on)) => self.write_tso(name, *on),
            (Knob::RpsCpus, Place::RxQueue(queue), Value::Cpus(cpus)) => {
                let attribute = format!("queues/rx-{queue}/rps_cpus");
                Ok(self.sysfs.write(name, &attribute, &cpus.to_hex_mask())?)
            }
            (Knob::Threaded, Place::Device, Value::Switch(on)) => {
                if let Some(reason) = self.threaded_obstacle(link)? {
                    return Err(Failure::unsupported(reason));
                }
                Ok(self.sysfs.write(name, "threaded", if *on { "1" } else { "0" })?)
            }
            (Knob::NapiDeferHardIrqs, Place::Device, Value::Count(polls)) => {
                self.refuse_device_write_over_napis(link)?;
                Ok(self.sysfs.write(name, "napi_defer_hard_irqs", &polls.to_string())?)
            }
            (Knob::GroFlushTimeout, Place::Device, Value::Time(time)) => {
                self.refuse_device_write_over_napis(link)?;
                Ok(self.sysfs.write(name, "gro_flush_timeout", &time.as_ns().to_string())?)
            }
            (Knob::NapiDeferHardIrqs, Place::Napi(queue), Value::Count(polls)) => {
                self.write_napi(link, queue, NapiChange::DeferHardIrqs(*polls))
            }
            (Knob::GroFlushTimeout, Place::Napi(queue), Value::Time(time)) => {
                self.write_napi(link, queue, NapiChange::GroFlushTimeout(*time))
            }
            _ => Err(Failure::refused(format!("{value} at {place} is not what {knob} takes"))),
        }
    }

    fn write_features(&self, interface: &str, names: &[&str], on: bool) -> Result<(), Failure> {
        let features = self.features(interface)?;
        let mut wanted = Vec::new();
        for name in names {
            let feature = features.get(*name).copied().unwrap_or_default();
            if feature.is_changeable {
                wanted.push((*name, on));
            } else if feature.is_active != on {
                return Err(Failure::unsupported(format!("the driver cannot change {name}")));
            }
        }
        if !wanted.is_empty() {
            let ethtool = self.ethtool.as_ref().expect("features were read through it");
            ethtool.set_features(interface, &wanted)?;
        }
        Ok(())
    }

    fn write_tso(&self, interface: &str, on: bool) -> Result<(), Failure> {
        let features = self.features(interface)?;
        if let Some(reason) = tso_obstacle(&features) {
            return Err(Failure::unsupported(reason));
        }
        let names: Vec<&str> = changeable_tso(&features).collect();
        self.write_features(interface, &names, on)
    }

    fn write_napi(&self, link: &Link, queue: u32, change: NapiChange) -> Result<(), Failure> {
        let napis = self.settable_napis(link)?.ok_or_else(|| {
            Failure::unsupported("this kernel sets NAPI values per device only (before Linux 6.13)")
        })?;
        let id =
            napis.iter().find(|(number, _)| *number == queue).map(|(_, napi)| napi.id).ok_or_else(
                || Failure::unsupported(format!("no NAPI instance serves receive queue {queue}")),
            )?;
        let netdev = self.netdev.as_ref().expect("the instances were listed through it");
        Ok(netdev.set_napi(id, change)?)
    }

    /// Writing the device's file would overwrite values that a reader of ours saw per NAPI.
    fn refuse_device_write_over_napis(&self, link: &Link) -> Result<(), Failure> {
        match self.settable_napis(link)? {
            None => Ok(()),
            Some(_) => Err(Failure::refused(
                "this kernel has the value per NAPI, and writing the device's overwrites all of them",
            )),
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
        let differs =
            napis.iter().any(|napi| napi.threaded.is_some_and(|threaded| threaded != device));
        Ok(differs.then(|| {
            "single NAPI instances have a `threaded` of their own, which setting the device's would \
             overwrite: make them alike first"
                .to_owned()
        }))
    }
}
