//! Reading the knobs of an interface.

use latput_knobs::{Knob, Place, Value};
use latput_units::{CpuSet, Nanos};

use super::LinuxKernel;
use super::failure::Failure;
use super::features::TSO_FEATURES;
use crate::error::Error;
use crate::ethtool::Features;
use crate::netdev::Napi;
use crate::route::Link;

impl LinuxKernel {
    pub(super) fn features(&self, interface: &str) -> Result<Features, Failure> {
        let ethtool = self.ethtool.as_ref().ok_or_else(|| {
            Failure::unsupported(
                "the kernel has no ethtool netlink family (Linux 5.6 or later has)",
            )
        })?;
        Ok(ethtool.features(interface)?)
    }

    /// The NAPI instances with a receive queue, if the kernel can set them one by one; `None` if
    /// values are per device here.
    pub(super) fn settable_napis(&self, link: &Link) -> Result<Option<Vec<(u32, Napi)>>, Failure> {
        let Some(netdev) = self.netdev.as_ref().filter(|netdev| netdev.can_set_napi()) else {
            return Ok(None);
        };
        let napis: Vec<_> = netdev
            .napis(link.index)?
            .into_iter()
            .filter_map(|napi| Some((napi.rx_queue?, napi)))
            .collect();
        if napis.is_empty() {
            return Err(Failure::unsupported(without_napi(link)));
        }
        Ok(Some(napis))
    }

    fn read_napi_knob(
        &self,
        link: &Link,
        attribute: &str,
        value_of: impl Fn(&Napi) -> Option<Value>,
        value_from_sysfs: impl Fn(u64) -> Value,
    ) -> Result<Vec<(Place, Value)>, Failure> {
        let Some(napis) = self.settable_napis(link)? else {
            let number = self.sysfs.read_number(&link.name, attribute)?;
            return Ok(vec![(Place::Device, value_from_sysfs(number))]);
        };
        napis
            .iter()
            .map(|(queue, napi)| {
                let value = value_of(napi).ok_or_else(|| {
                    Failure::malformed(format!("NAPI {} comes without {attribute}", napi.id))
                })?;
                Ok((Place::Napi(*queue), value))
            })
            .collect()
    }

    fn read_feature(&self, interface: &str, name: &str) -> Result<Vec<(Place, Value)>, Failure> {
        let features = self.features(interface)?;
        let feature = features
            .get(name)
            .ok_or_else(|| Failure::unsupported(format!("the kernel knows no feature {name}")))?;
        Ok(vec![(Place::Device, Value::Switch(feature.is_active))])
    }

    pub(super) fn read_place(
        &self,
        link: &Link,
        knob: Knob,
    ) -> Result<Vec<(Place, Value)>, Failure> {
        let name = &link.name;
        match knob {
            Knob::Mtu => Ok(vec![(Place::Device, Value::Count(link.mtu.get()))]),
            Knob::Txqueuelen => Ok(vec![(Place::Device, Value::Count(u64::from(link.txqueuelen)))]),
            Knob::Gro => self.read_feature(name, "rx-gro"),
            Knob::Gso => self.read_feature(name, "tx-generic-segmentation"),
            Knob::Tso => {
                let features = self.features(name)?;
                let is_on = TSO_FEATURES
                    .iter()
                    .any(|name| features.get(*name).is_some_and(|feature| feature.is_active));
                Ok(vec![(Place::Device, Value::Switch(is_on))])
            }
            Knob::RpsCpus => self.read_rps(name),
            Knob::Threaded => match self.sysfs.read_number(name, "threaded")? {
                0 => Ok(vec![(Place::Device, Value::Switch(false))]),
                1 => Ok(vec![(Place::Device, Value::Switch(true))]),
                other => Err(Failure::unsupported(format!(
                    "threaded is {other} (busy polling), which latput neither sets nor puts back"
                ))),
            },
            Knob::NapiDeferHardIrqs => self.read_napi_knob(
                link,
                "napi_defer_hard_irqs",
                |napi| napi.defer_hard_irqs.map(Value::Count),
                Value::Count,
            ),
            Knob::GroFlushTimeout => self.read_napi_knob(
                link,
                "gro_flush_timeout",
                |napi| napi.gro_flush_timeout.map(Value::Time),
                |ns| Value::Time(Nanos::from_ns(ns)),
            ),
        }
    }

    fn read_rps(&self, interface: &str) -> Result<Vec<(Place, Value)>, Failure> {
        let queues = self.sysfs.rx_queues(interface)?;
        if queues.is_empty() {
            return Err(Failure::unsupported("the interface has no receive queue"));
        }
        queues
            .into_iter()
            .map(|queue| {
                let attribute = format!("queues/rx-{queue}/rps_cpus");
                let text = self.sysfs.read(interface, &attribute)?;
                let cpus = CpuSet::from_hex_mask(&text).map_err(|_| {
                    let path = self.sysfs.path(interface, &attribute);
                    Error::parse(path.display().to_string(), "a CPU mask", &text)
                })?;
                Ok((Place::RxQueue(queue), Value::Cpus(cpus)))
            })
            .collect()
    }
}

/// Why an interface has no NAPI instance, and the mend.
pub(super) fn without_napi(link: &Link) -> &'static str {
    if !link.is_up {
        "the interface has no NAPI instance while it is down: bring it up"
    } else if link.kind.as_deref() == Some("veth") {
        "a veth has no NAPI instance while gro is off: switch gro on"
    } else {
        "the driver does not tell which NAPI instance serves which receive queue"
    }
}
