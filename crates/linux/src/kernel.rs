//! The knobs of the real kernel, in one network namespace.
//!
//! Per NAPI where the kernel can set one NAPI instance (`napi-set`, Linux 6.13), else per device
//! through sysfs. The two are not mixed: writing the device's file overwrites every NAPI's own value.
//! `threaded` is always set per device: a NAPI instance that is made anew (whenever GRO or the number
//! of queues changes) takes it over from the device, and would lose it if only the old one had it.

mod failure;

use std::path::Path;

use latput_knobs::{Capability, KernelError, KernelRead, KernelWrite, Knob, Place, Value};
use latput_units::{Bytes, CpuSet, Nanos};

use self::failure::Failure;
use crate::error::Error;
use crate::ethtool::{Ethtool, Features};
use crate::netdev::{Napi, NapiChange, Netdev};
use crate::route::{Link, Route};
use crate::sysfs::Sysfs;

/// `tso` sets these two. Their kin (`tx-tcp-ecn-segmentation`, `tx-tcp-mangleid-segmentation`) follow
/// by themselves: the kernel holds them back while these are off, remembers what was wanted of them,
/// and lets them come back (`netdev_fix_features`, `net/core/dev.c`), so nothing of them is lost.
const TSO_FEATURES: &[&str] = &["tx-tcp-segmentation", "tx-tcp6-segmentation"];

/// The kernel as seen from one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct LinuxKernel {
    route: Route,
    /// `None` on kernels without the family, before 5.6.
    ethtool: Option<Ethtool>,
    /// `None` on kernels without the family, before 6.3.
    netdev: Option<Netdev>,
    sysfs: Sysfs,
}

impl LinuxKernel {
    /// Opens the kernel in the calling thread's network namespace, whose sysfs must be on `/sys`.
    pub fn open() -> Result<Self, Error> {
        Self::with_sysfs(Path::new("/sys"))
    }

    /// The same with sysfs elsewhere.
    pub fn with_sysfs(root: &Path) -> Result<Self, Error> {
        Ok(Self {
            route: Route::open()?,
            ethtool: if_known(Ethtool::open())?,
            netdev: if_known(Netdev::open())?,
            sysfs: Sysfs::new(root),
        })
    }

    fn features(&self, interface: &str) -> Result<Features, Failure> {
        let ethtool = self.ethtool.as_ref().ok_or_else(|| {
            Failure::unsupported(
                "the kernel has no ethtool netlink family (Linux 5.6 or later has)",
            )
        })?;
        Ok(ethtool.features(interface)?)
    }

    /// The NAPI instances with a receive queue, if the kernel can set them one by one; `None` if
    /// values are per device here.
    fn settable_napis(&self, link: &Link) -> Result<Option<Vec<(u32, Napi)>>, Failure> {
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

    fn read_place(&self, link: &Link, knob: Knob) -> Result<Vec<(Place, Value)>, Failure> {
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

    fn write_place(
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
    fn threaded_obstacle(&self, link: &Link) -> Result<Option<String>, Failure> {
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

    fn capability_of(&self, interface: &str, knob: Knob) -> Result<Capability, Failure> {
        let link = self.route.link(interface)?;
        self.read_place(&link, knob)?; // what cannot be read cannot be put back
        let via_sysfs = |attribute: &str| {
            Capability::Settable(format!(
                "{} (per device)",
                self.sysfs.path(interface, attribute).display()
            ))
        };
        Ok(match knob {
            Knob::Mtu | Knob::Txqueuelen => Capability::Settable("rtnetlink".to_owned()),
            Knob::Gro => feature_capability(&self.features(interface)?, "rx-gro"),
            Knob::Gso => feature_capability(&self.features(interface)?, "tx-generic-segmentation"),
            Knob::Tso => {
                let features = self.features(interface)?;
                tso_obstacle(&features).map_or_else(
                    || Capability::Settable("ethtool netlink, features".to_owned()),
                    Capability::ReadOnly,
                )
            }
            Knob::RpsCpus => Capability::Settable(format!(
                "{} (per receive queue)",
                self.sysfs.path(interface, "queues/rx-N/rps_cpus").display()
            )),
            Knob::Threaded => self
                .threaded_obstacle(&link)?
                .map_or_else(|| via_sysfs("threaded"), Capability::ReadOnly),
            Knob::NapiDeferHardIrqs | Knob::GroFlushTimeout => match self.settable_napis(&link)? {
                Some(_) => Capability::Settable("netdev netlink, per NAPI".to_owned()),
                None if knob == Knob::GroFlushTimeout => via_sysfs("gro_flush_timeout"),
                None => via_sysfs("napi_defer_hard_irqs"),
            },
        })
    }
}

impl KernelRead for LinuxKernel {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        let operation = format!("read {}", route_of(knob));
        self.route
            .link(interface)
            .map_err(Failure::from)
            .and_then(|link| self.read_place(&link, knob))
            .map_err(|failure| failure.into_error(interface, knob, operation))
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        let capability = self
            .capability_of(interface, knob)
            .unwrap_or_else(|failure| Capability::Absent(failure.reason));
        match capability {
            Capability::Settable(_) if !crate::Capability::NetAdmin.is_effective() => {
                Capability::ReadOnly("setting it needs CAP_NET_ADMIN: run as root".to_owned())
            }
            other => other,
        }
    }
}

impl KernelWrite for LinuxKernel {
    fn write(
        &mut self,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        let operation = format!("set it to {value} at {place} ({})", route_of(knob));
        self.route
            .link(interface)
            .map_err(Failure::from)
            .and_then(|link| self.write_place(&link, knob, place, value))
            .map_err(|failure| failure.into_error(interface, knob, operation))
    }
}

/// A family that the kernel does not have is `None`; any other failure stays one.
fn if_known<T>(opened: Result<T, Error>) -> Result<Option<T>, Error> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why an interface has no NAPI instance, and the mend.
fn without_napi(link: &Link) -> &'static str {
    if !link.is_up {
        "the interface has no NAPI instance while it is down: bring it up"
    } else if link.kind.as_deref() == Some("veth") {
        "a veth has no NAPI instance while gro is off: switch gro on"
    } else {
        "the driver does not tell which NAPI instance serves which receive queue"
    }
}

/// Through what a knob is reached, for messages.
const fn route_of(knob: Knob) -> &'static str {
    match knob {
        Knob::Mtu => "IFLA_MTU",
        Knob::Txqueuelen => "IFLA_TXQLEN",
        Knob::Gro => "feature rx-gro",
        Knob::Gso => "feature tx-generic-segmentation",
        Knob::Tso => "feature tx-tcp-segmentation and kin",
        Knob::RpsCpus => "sysfs rps_cpus",
        Knob::Threaded => "sysfs threaded",
        Knob::NapiDeferHardIrqs => "netdev defer-hard-irqs",
        Knob::GroFlushTimeout => "netdev gro-flush-timeout",
    }
}

fn changeable_tso(features: &Features) -> impl Iterator<Item = &'static str> {
    TSO_FEATURES
        .iter()
        .copied()
        .filter(|name| features.get(*name).is_some_and(|feature| feature.is_changeable))
}

/// Why one switch cannot set, and later put back, the TSO features; `None` if it can.
fn tso_obstacle(features: &Features) -> Option<String> {
    let mut wanted = changeable_tso(features).map(|name| features[name].is_active);
    let Some(first) = wanted.next() else {
        return Some("the driver cannot change tx-tcp-segmentation".to_owned());
    };
    wanted.any(|on| on != first).then(|| {
        "tx-tcp-segmentation and tx-tcp6-segmentation differ, and one switch could not put that \
         back: make them alike first"
            .to_owned()
    })
}

fn feature_capability(features: &Features, name: &str) -> Capability {
    if features.get(name).is_some_and(|feature| feature.is_changeable) {
        Capability::Settable(format!("ethtool netlink, feature {name}"))
    } else {
        Capability::ReadOnly(format!("the driver cannot change {name}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use latput_knobs::KernelErrorKind;

    use super::*;
    use crate::ethtool::Feature;

    #[test]
    fn without_napi_set_values_are_the_devices_in_sysfs() {
        let (folder, mut kernel) = old_kernel(&[
            ("gro_flush_timeout", "20000\n"),
            ("napi_defer_hard_irqs", "2\n"),
            ("threaded", "0\n"),
            ("queues/rx-0/rps_cpus", "3\n"),
            ("queues/rx-1/rps_cpus", "0\n"),
        ]);
        let device = |value| Ok(vec![(Place::Device, value)]);
        let time = Value::Time(Nanos::from_us(20));
        assert_eq!(kernel.read("lo", Knob::GroFlushTimeout), device(time));
        assert_eq!(kernel.read("lo", Knob::NapiDeferHardIrqs), device(Value::Count(2)));
        assert_eq!(kernel.read("lo", Knob::Threaded), device(Value::Switch(false)));
        let rps = [(0, "0-1"), (1, "none")]
            .map(|(queue, cpus)| (Place::RxQueue(queue), Value::Cpus(cpus.parse().unwrap())));
        assert_eq!(kernel.read("lo", Knob::RpsCpus), Ok(rps.to_vec()));
        let time = Value::Time(Nanos::from_us(500));
        kernel.write("lo", Knob::GroFlushTimeout, Place::Device, &time).unwrap();
        let written = fs::read_to_string(folder.path().join("class/net/lo/gro_flush_timeout"));
        assert_eq!(written.unwrap().trim(), "500000");
        let error = kernel.write("lo", Knob::GroFlushTimeout, Place::Napi(0), &time).unwrap_err();
        assert_eq!(error.kind, KernelErrorKind::Unsupported, "{error}");
    }

    #[test]
    fn what_is_missing_or_damaged_is_told_apart_and_named() {
        check_unreadable(&[], Knob::Gro, KernelErrorKind::Unsupported, "5.6");
        check_unreadable(&[], Knob::Threaded, KernelErrorKind::Unsupported, "lo/threaded");
        check_unreadable(
            &[("threaded", "2")],
            Knob::Threaded,
            KernelErrorKind::Unsupported,
            "busy",
        );
        check_unreadable(
            &[("threaded", "x")],
            Knob::Threaded,
            KernelErrorKind::Malformed,
            "lo/threaded",
        );
        let queue = "queues/rx-0/rps_cpus";
        check_unreadable(&[(queue, "zz")], Knob::RpsCpus, KernelErrorKind::Malformed, queue);
        check_unreadable(
            &[("queues/tx-0/x", "")],
            Knob::RpsCpus,
            KernelErrorKind::Unsupported,
            "queue",
        );
        let (_folder, kernel) = old_kernel(&[]);
        for name in ["nobody-has-this", "../../etc", ""] {
            let error = kernel.read(name, Knob::Mtu).unwrap_err();
            assert_eq!((error.kind, error.knob), (KernelErrorKind::NoInterface, None), "{error}");
        }
    }

    #[test]
    fn unlike_tso_features_are_not_lumped_together() {
        let feature = |is_active| Feature { is_active, is_wanted: is_active, is_changeable: true };
        let features = |v4, v6| -> Features {
            [
                ("tx-tcp-segmentation".to_owned(), feature(v4)),
                ("tx-tcp6-segmentation".to_owned(), feature(v6)),
                ("tx-tcp-mangleid-segmentation".to_owned(), feature(false)),
            ]
            .into()
        };
        assert_eq!(tso_obstacle(&features(true, true)), None);
        assert_eq!(tso_obstacle(&features(false, false)), None);
        assert!(tso_obstacle(&features(true, false)).is_some());
        assert!(tso_obstacle(&Features::new()).is_some());
    }

    /// A kernel with only rtnetlink, and these files as the sysfs of `lo`, which every namespace has.
    fn old_kernel(files: &[(&str, &str)]) -> (tempfile::TempDir, LinuxKernel) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            let path = folder.path().join("class/net/lo").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let route = Route::open().unwrap();
        let sysfs = Sysfs::new(folder.path());
        (folder, LinuxKernel { route, ethtool: None, netdev: None, sysfs })
    }

    #[track_caller]
    fn check_unreadable(files: &[(&str, &str)], knob: Knob, kind: KernelErrorKind, words: &str) {
        let (_folder, kernel) = old_kernel(files);
        let error = kernel.read("lo", knob).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(kernel.capability("lo", knob), Capability::Absent(_)));
    }
}
