//! The knobs of the real kernel, in one network namespace.
//!
//! Per NAPI where the kernel can set one NAPI instance (`napi-set`, Linux 6.13), else per device
//! through sysfs. The two are not mixed: writing the device's file overwrites every NAPI's own value.
//! `threaded` is always set per device: a NAPI instance that is made anew (whenever GRO or the number
//! of queues changes) takes it over from the device, and would lose it if only the old one had it.

mod failure;
mod features;
mod read;
mod write;

use std::path::Path;

use latput_knobs::{Capability, KernelError, KernelRead, KernelWrite, Knob, Place, Value};

use self::failure::Failure;
use self::features::{feature_capability, tso_obstacle};
use crate::error::Error;
use crate::ethtool::Ethtool;
use crate::netdev::Netdev;
use crate::route::Route;
use crate::sysfs::Sysfs;

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

#[cfg(test)]
mod tests {
    use std::fs;

    use latput_knobs::KernelErrorKind;
    use latput_units::Nanos;

    use super::*;

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
