//! The knobs of the real kernel, in one network namespace.
//!
//! Per NAPI where the kernel can set one NAPI instance (`napi-set`, Linux 6.13), and per device through sysfs. Many
//! drivers make their NAPIs anew when the interface goes down and up, and those take the device's value. Writing the device's
//! file overwrites every NAPI's own value, so that it is written first.
//! `threaded` is always set per device: a NAPI instance that is made anew (whenever GRO or the number
//! of queues changes) takes it over from the device, and would lose it if only the old one had it.

mod device;
mod elsewhere;
mod failure;
mod followers;
mod load_time;
mod obstacle;
mod qdisc;
mod source;
mod values;
mod whereabouts;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use latput_knobs::{
    Capability, Device, KernelError, KernelErrorKind, KernelRead, KernelWrite, Knob, Limits, Named,
    Place, State, Tier, Value, Whereabouts, WritePermit, WritePurpose,
};

use latput_trial::nic::{Nic, NicKnob};
use latput_units::{CpuSet, IntoMap, IntoSet};
use rustix::io::Errno;

pub use self::device::InterruptRoute;
use self::failure::Failure;
use self::obstacle::{QdiscTrials, features_obstacle, ports_obstacle, rules_obstacle};
use self::source::{Number, Source, source_of};
use self::values::{Reading, Values, queue_attribute, sysctl_path};
use self::whereabouts::Departures;
use crate::error::Error;
use crate::ethtool::Ethtool;
use crate::ethtool::ioctl::EthtoolIoctl;
use crate::ethtool::parameters::{Table, Width};
use crate::identity::Identity;
use crate::netdev::Netdev;
use crate::netlink::uapi;
use crate::route::Route;
use crate::sysfs::{Files, Sysfs};

/// The kernel as seen from one network namespace: that of the thread that opened it.
#[derive(Debug)]
pub struct LinuxKernel {
    route: Route,
    departures: Departures,
    /// `None` on kernels without the family, before 5.6.
    ethtool: Option<Ethtool>,
    /// `None` on kernels without the family, before 6.3.
    netdev: Option<Netdev>,
    ioctl: EthtoolIoctl,
    sysfs: Sysfs,
    proc: Files,
    /// The folders of modprobe.d(5), the first before the others.
    modprobe: Vec<Files>,
    /// The kernel's objections to queue disciplines that were tried.
    tried_qdiscs: QdiscTrials,
}

impl LinuxKernel {
    /// Opens the kernel in the calling thread's network namespace, whose sysfs must be on `/sys`.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            route: Route::open()?,
            departures: Departures::open()?,
            ethtool: if_known(Ethtool::open())?,
            netdev: if_known(Netdev::open())?,
            ioctl: EthtoolIoctl::open()?,
            sysfs: Sysfs::new(Path::new("/sys")),
            proc: Files::new(Path::new("/proc")),
            modprobe: load_time::MODPROBE_FOLDERS.map(|it| Files::new(Path::new(it))).into(),
            tried_qdiscs: QdiscTrials::default(),
        })
    }

    /// The name of the interface that has this name or alternative name; `None` where there is none.
    pub fn resolve_name(&self, name: &str) -> Option<String> {
        // The kernel's limit of alternative names (`ALTIFNAMSIZ`) less the terminating zero.
        let is_name = (1..=127).contains(&name.len()) && !name.contains(['/', '\0']);
        is_name.then(|| Some(self.route.link_by_any_name(name).ok()?.name)).flatten()
    }

    /// The name of the interface with this number; `None` where there is none.
    pub fn name_of_number(&self, index: u32) -> Option<String> {
        Some(self.route.link_numbered(index).ok()?.name)
    }

    /// The words for a place, with the names of what it has only numbers of.
    pub fn place_words(&self, knob: Knob, place: Place) -> String {
        let words = match (place, source_of(knob)) {
            (Place::Linked(index), _) => {
                self.name_of_number(index).map(|name| format!("interface {name}"))
            }
            (Place::LinkedIpv6(index), _) => {
                self.name_of_number(index).map(|name| format!("IPv6 of interface {name}"))
            }
            (Place::Wanted(nth), Source::Features(names)) => {
                names.get(nth as usize).map(|name| format!("{name}, as wanted"))
            }
            _ => None,
        };
        words.unwrap_or_else(|| place.to_string())
    }

    /// Every knob that an interface has, with its values. Knobs that it does not have, and those that
    /// cannot be read, are absent. Asks the kernel for each table once.
    pub fn read_all(&self, interface: &str) -> State {
        let reading = Reading::new(self, interface);
        let values = Knob::ALL.iter().filter_map(|knob| Some((*knob, reading.read(*knob).ok()?)));
        let places = values.flat_map(|(knob, values)| {
            values.into_iter().map(move |(place, value)| ((knob, place), value))
        });
        State(places.into_map())
    }

    /// Every knob with its values or why there are none, whether it can be set, and its limits; asks
    /// the kernel for each table once.
    pub fn survey(&self, interface: &str) -> Vec<Surveyed> {
        let reading = Reading::new(self, interface);
        let survey = |&knob: &Knob| Surveyed {
            knob,
            values: read_through(&reading, knob),
            capability: self.capability_through(&reading, knob),
            limits: limits_of(&reading, knob).unwrap_or_default(),
        };
        Knob::ALL.iter().map(survey).collect()
    }

    /// The interface with all its knobs, and what it stands on; `cpus` are those of its host.
    pub fn nic(&self, interface: &str, cpus: &CpuSet) -> Result<Nic, Error> {
        let link = self.route.link(interface)?;
        let knob = |surveyed: Surveyed| {
            let Surveyed { knob, values, capability, limits } = surveyed;
            let obstacle = match (&values, capability) {
                (Err(error), _) => Some(error.reason.clone()),
                (Ok(_), Capability::Settable(_)) => None,
                (Ok(_), Capability::ReadOnly(why) | Capability::Absent(why)) => Some(why),
            };
            let values = values.unwrap_or_default();
            let places = values.len();
            let distinct: BTreeSet<Value> = values.into_iter().map(|(_, value)| value).into_set();
            NicKnob {
                knob,
                values: distinct.into_iter().collect(),
                places,
                obstacle,
                range: knob.spec().range_within(limits),
                resets_link: self.resets_link(interface, knob),
            }
        };
        Ok(Nic {
            interface: interface.to_owned(),
            driver: link
                .kind
                .or_else(|| Identity::read(interface)?.driver)
                .unwrap_or_else(|| "unknown driver".to_owned()),
            lower: self.sysfs.lower(interface),
            physical_function: self.sysfs.physical_function(interface),
            cpus: cpus.clone(),
            knobs: self.survey(interface).into_iter().map(knob).collect(),
        })
    }

    fn write_through(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        self.write_place(reading, knob, place, value).map_err(|failure| {
            let what = format!("set it to {value} at {place} ({})", knob.spec().lives);
            failure.into_error(reading.name, Some(knob), what)
        })
    }

    fn ethtool(&self) -> Result<&Ethtool, Failure> {
        self.ethtool.as_ref().ok_or_else(|| {
            Failure::unsupported(
                "the kernel has no ethtool netlink family (Linux 5.6 or later has)",
            )
        })
    }

    fn capability_through(&self, reading: &Reading<'_>, knob: Knob) -> Capability {
        self.capability_of(reading, knob)
            .unwrap_or_else(|failure| Capability::Absent(failure.reason))
    }

    fn capability_of(&self, reading: &Reading<'_>, knob: Knob) -> Result<Capability, Failure> {
        let spec = knob.spec();
        let read = reading.read(knob);
        if spec.tier == Tier::Reload && self.hides_parameters(reading.name) {
            let reason = "the driver reads it when it is loaded".to_owned();
            return Ok(Capability::ReadOnly(read.err().map_or(reason, |failure| failure.reason)));
        }
        let values = read?; // what cannot be read cannot be put back
        let via = |through: String| Capability::Settable(through);
        let unless = |obstacle: Option<String>, through: String| {
            obstacle.map_or_else(|| via(through), Capability::ReadOnly)
        };
        let capability = match source_of(knob) {
            Source::Features(names) => {
                let is_on = values.iter().any(|(_, value)| *value == Value::Switch(true));
                let obstacle = features_obstacle(&*reading.features()?, names);
                let lost = || if is_on { self.lost_without(reading.name, knob) } else { None };
                unless(obstacle.or_else(lost), format!("ethtool netlink, feature {}", names[0]))
            }
            Source::Queue(file) => {
                let attribute = queue_attribute(file, 0);
                let path = self.sysfs.path(reading.name, &attribute.replacen("-0/", "-N/", 1));
                let obstacle = read_only_obstacle(
                    &self.sysfs.files,
                    &self.sysfs.path(reading.name, &attribute),
                );
                unless(obstacle, format!("{} (per queue)", path.display()))
            }
            Source::Sysctl => {
                let path = self.proc.path(&sysctl_path(knob));
                let obstacle = read_only_obstacle(&self.proc, &path);
                let obstacle = obstacle.or_else(|| shared_obstacle(&path, knob));
                // Those of IPv4 belong to a network namespace, others to the first one.
                let is_of_namespace =
                    knob.sysctl().is_some_and(|name| name.starts_with("net.ipv4."));
                let reach = if is_of_namespace { "of this network namespace" } else { "host-wide" };
                unless(obstacle, format!("{} ({reach})", path.display()))
            }
            Source::Threaded => {
                let path = self.sysfs.path(reading.name, "threaded");
                let obstacle = self.threaded_obstacle(&*reading.link()?)?;
                let obstacle = obstacle.or_else(|| read_only_obstacle(&self.sysfs.files, &path));
                unless(obstacle, format!("{} (per device)", path.display()))
            }
            Source::Napi(field) => match (reading.napis(), field.sysfs_name()) {
                (Ok(None), Some(file)) => {
                    via(format!("{} (per device)", self.sysfs.path(reading.name, file).display()))
                }
                (Ok(_), _) => via("netdev netlink, per NAPI".to_owned()),
                (Err(failure), _) => Capability::ReadOnly(failure.reason),
            },
            Source::Qdisc => {
                unless(self.qdisc_obstacle(&*reading.link()?, true)?, spec.lives.to_owned())
            }
            Source::QueueQdisc => {
                unless(self.qdisc_obstacle(&*reading.link()?, false)?, spec.lives.to_owned())
            }
            Source::Number(number) if matches!(knob, Knob::TxPush | Knob::RxPush) => {
                unless(self.push_obstacle(reading, number)?, spec.lives.to_owned())
            }
            Source::LoadTime => {
                Capability::ReadOnly("the driver reads it when it is loaded".to_owned())
            }
            _ => via(spec.lives.to_owned()),
        };
        let remakes_threads = knob == Knob::Threaded || spec.resets.contains(&Knob::Threaded);
        if remakes_threads && matches!(capability, Capability::Settable(_)) {
            let obstacle = self.threads_obstacle(&*reading.link()?)?;
            return Ok(obstacle.map_or(capability, Capability::ReadOnly));
        }
        Ok(capability)
    }

    /// Reason against switching off an offload that is on: settings that would be lost for good. `None` if there are none.
    fn lost_without(&self, interface: &str, knob: Knob) -> Option<String> {
        match knob {
            Knob::RxNtuple => match self.ioctl.flow_rules(interface) {
                Ok(rules) => rules_obstacle(interface, rules),
                Err(error) => {
                    Some(format!("it cannot be told whether flow rules need it: {error}"))
                }
            },
            Knob::Lro => {
                let Source::Features(names) = source_of(knob) else { return None };
                // A port that cannot be asked may have it.
                let has_it = |port: &String| {
                    let features = self.ethtool().and_then(|it| Ok(it.features(port)?));
                    features.map_or_else(
                        |failure| failure.kind != KernelErrorKind::NoInterface,
                        |features| {
                            let is_active =
                                |name: &&str| features.get(*name).is_some_and(|it| it.is_active);
                            names.iter().any(is_active)
                        },
                    )
                };
                let mut ports = self.sysfs.lower(interface);
                ports.retain(has_it);
                ports_obstacle(interface, &ports)
            }
            _ => None,
        }
    }

    /// Why a driver cannot push descriptors; `None` if it can. The kernel reports the flags of every driver, and tells which
    /// has them only to somebody who sets them. This request cannot succeed: it asks for more descriptors than any ring has,
    /// which the kernel refuses before it calls the driver, and after it has looked for the flag (`ethnl_set_rings`, Linux 5.6
    /// to 6.18).
    fn push_obstacle(
        &self,
        reading: &Reading<'_>,
        number: Number,
    ) -> Result<Option<String>, Failure> {
        let Some(now) = reading.table(number.table)?.number(number.attribute) else {
            return Ok(None);
        };
        let field = (number.attribute, number.width);
        let too_many = ((uapi::ETHTOOL_A_RINGS_RX, Width::U32), u64::from(u32::MAX));
        let asked = [(field, now), too_many];
        match self.ethtool()?.set_parameters(reading.name, number.table, &asked) {
            Err(error) if error.errno() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                Ok(Some(Failure::from(error).reason))
            }
            _ => Ok(None),
        }
    }

    fn resolve_at(
        &self,
        interface: &str,
        knob: Knob,
        place: Place,
        named: Named,
    ) -> Result<Value, Failure> {
        match (named, place) {
            (Named::Hint, Place::Interrupt(rank)) => self.affinity_hint(interface, rank),
            (Named::Max, _) => {
                let max = limits_of(&Reading::new(self, interface), knob)?.max;
                max.map(Value::Count).ok_or_else(|| {
                    Failure::unsupported("the driver does not tell the largest value")
                })
            }
            _ => Err(Failure::unsupported(format!("there is no {named} at {place}"))),
        }
    }
}

/// A file that nobody can write to, as in a container with a read-only `/sys`.
fn read_only_obstacle(files: &Files, path: &Path) -> Option<String> {
    let is_read_only = files.is_read_only(&path.display().to_string());
    is_read_only.then(|| format!("{} is read-only here", path.display()))
}

/// Whether nobody may write the sysctl: other network namespaces than the first may only read what all of them share
/// (`net/core/sysctl_net_core.c`).
fn shared_obstacle(path: &Path, knob: Knob) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o222 == 0).then(|| {
        format!(
            "{} is that of all network namespaces: set it in the first one",
            knob.sysctl().unwrap_or_default()
        )
    })
}

fn read_through(reading: &Reading<'_>, knob: Knob) -> Result<Values, KernelError> {
    reading.read(knob).map_err(|failure| {
        failure.into_error(reading.name, Some(knob), format!("read {}", knob.spec().lives))
    })
}

/// Most memory that one knob may have the kernel take for all queues of an interface, bytes.
const MEMORY_MOST: u64 = 1 << 30;
/// Memory of `pfifo_fast` for each packet of its length: a pointer in each of three bands.
const PFIFO_FAST_BYTES: u64 = 24;
/// Memory of RPS for each flow (`struct rps_dev_flow`).
const RPS_FLOW_BYTES: u64 = 16;
const RPS_FLOW_CNT: &str = "rps_flow_cnt";

/// The largest number of which each queue takes so many bytes.
fn limits_per_queue(queues: u32, bytes: u64) -> Limits {
    Limits { min: None, max: Some(MEMORY_MOST / bytes / u64::from(queues.max(1))) }
}

fn limits_of(reading: &Reading<'_>, knob: Knob) -> Result<Limits, Failure> {
    Ok(match source_of(knob) {
        Source::Mtu => {
            let (min, max) = reading.link()?.mtu_range;
            Limits { min: Some(min.get()), max: max.map(latput_units::Bytes::get) }
        }
        Source::Txqueuelen => limits_per_queue(reading.link()?.tx_queues, PFIFO_FAST_BYTES),
        // The device cuts what is sent, up to its own limit (`netif_set_tso_max_size`).
        Source::JoinedSize(uapi::IFLA_GSO_MAX_SIZE | uapi::IFLA_GSO_IPV4_MAX_SIZE) => {
            let max = reading.link()?.joined_sizes.get(&uapi::IFLA_TSO_MAX_SIZE).copied();
            Limits { min: None, max: max.map(u64::from) }
        }
        Source::Queue(file) if file.name == RPS_FLOW_CNT => {
            limits_per_queue(reading.link()?.rx_queues, RPS_FLOW_BYTES)
        }
        Source::Number(number) => {
            let max = match number.max {
                Some(attribute) => reading.table(number.table)?.number(attribute),
                None => None,
            };
            Limits { min: None, max }
        }
        _ => Limits::default(),
    })
}

/// The known facts about one knob of an interface.
#[derive(Clone, Debug)]
pub struct Surveyed {
    /// The knob.
    pub knob: Knob,
    /// Its values, or why there are none.
    pub values: Result<Vec<(Place, Value)>, KernelError>,
    /// Whether it can be set here, and through what.
    pub capability: Capability,
    /// The limits of the interface.
    pub limits: Limits,
}

impl Surveyed {
    /// Whether the interface, driver or kernel does not have it at all.
    pub fn is_absent(&self) -> bool {
        let is_unsupported = |error: &KernelError| error.kind == KernelErrorKind::Unsupported;
        self.values.as_ref().is_err_and(is_unsupported)
            && matches!(self.capability, Capability::Absent(_))
    }
}

impl KernelRead for LinuxKernel {
    fn read(&self, interface: &str, knob: Knob) -> Result<Vec<(Place, Value)>, KernelError> {
        read_through(&Reading::new(self, interface), knob)
    }

    fn read_many(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        let reading = Reading::new(self, interface);
        knobs.iter().map(|knob| read_through(&reading, *knob)).collect()
    }

    fn read_followers(
        &self,
        interface: &str,
        knobs: &[Knob],
    ) -> Vec<Result<Vec<(Place, Value)>, KernelError>> {
        let reading = Reading::new(self, interface);
        let followers = |knob: &Knob| match self.followers_of(&reading, *knob) {
            // The knob itself says that there is no interface, or no such knob.
            Err(failure)
                if matches!(
                    failure.kind,
                    KernelErrorKind::NoInterface | KernelErrorKind::Unsupported
                ) =>
            {
                Ok(Values::new())
            }
            found => found.map_err(|failure| {
                failure.into_error(interface, Some(*knob), "read what follows it".to_owned())
            }),
        };
        knobs.iter().map(followers).collect()
    }

    fn is_up(&self, interface: &str) -> bool {
        self.route.link(interface).is_ok_and(|link| link.is_up)
    }

    fn capability(&self, interface: &str, knob: Knob) -> Capability {
        self.capability_through(&Reading::new(self, interface), knob)
    }

    fn obstacle_to(
        &self,
        interface: &str,
        knob: Knob,
        value: &Value,
        purpose: WritePurpose,
    ) -> Result<Option<String>, KernelError> {
        self.obstacle_at(interface, knob, value, purpose).map_err(|failure| {
            let what = format!("tell what {value} would move");
            failure.into_error(interface, Some(knob), what)
        })
    }

    fn thread_obstacle(&self) -> Option<String> {
        self.new_threads_obstacle()
    }

    fn limits(&self, interface: &str, knob: Knob) -> Limits {
        limits_of(&Reading::new(self, interface), knob).unwrap_or_default()
    }

    fn resolve(
        &self,
        interface: &str,
        knob: Knob,
        place: Place,
        named: Named,
    ) -> Result<Value, KernelError> {
        self.resolve_at(interface, knob, place, named).map_err(|failure| {
            failure.into_error(interface, Some(knob), format!("find what `{named}` is at {place}"))
        })
    }

    fn resets_link(&self, interface: &str, knob: Knob) -> bool {
        let has_hardware = self.sysfs.path(interface, "device").exists();
        has_hardware && knob.spec().resets_link
    }

    fn is_fresh(&self, interface: &str, knob: Knob, place: Place, value: &Value) -> bool {
        if let (Place::Interrupt(rank), Value::Cpus(cpus)) = (place, value) {
            return self.is_fresh_affinity(interface, rank, cpus);
        }
        let is_map = matches!(knob, Knob::XpsCpus | Knob::XpsRxqs | Knob::RpsCpus);
        let is_default = matches!(value, Value::Qdisc(qdisc) if qdisc.is_default());
        value.is_fresh() || is_default || is_map && *value == Value::Cpus(CpuSet::new())
    }

    fn set_with(&self, knob: Knob) -> Vec<Knob> {
        let Some(table) = table_of(knob) else { return Vec::new() };
        Knob::ALL.iter().copied().filter(|knob| table_of(*knob) == Some(table)).collect()
    }

    fn device(&self, interface: &str) -> Result<Device, KernelError> {
        let what = || "find out which device it is".to_owned();
        self.device_of(interface).map_err(|failure| failure.into_error(interface, None, what()))
    }

    fn find(&self, device: &Device) -> Result<Whereabouts, KernelError> {
        let (name, what) = (format!("interface {}", device.index), "find it again".to_owned());
        self.whereabouts(device).map_err(|failure| failure.into_error(&name, None, what))
    }
}

impl KernelWrite for LinuxKernel {
    fn write(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), KernelError> {
        self.write_through(&Reading::new(self, interface), knob, place, value)
    }

    /// `sfc` starts with a delay of each direction that it refuses to take again: its channels are shared.
    fn rewrite(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        knob: Knob,
    ) -> Result<(), KernelError> {
        if table_of(knob) != Some(Table::Coalesce) {
            return Ok(());
        }
        match self.ioctl.rewrite_coalescing(interface).map_err(Failure::from) {
            // The old way of asking names more than some drivers can set; what they cannot, netlink will say.
            Err(failure) if failure.kind == KernelErrorKind::Unsupported => Ok(()),
            written => written.map_err(|failure| {
                let what = "write the present values again, so that they could not be put back";
                failure.into_error(interface, Some(knob), what.to_owned())
            }),
        }
    }

    fn write_together(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        values: &[(Knob, Value)],
    ) -> Result<(), KernelError> {
        let knob = values.first().map(|(knob, _)| *knob);
        let table = knob.and_then(table_of);
        let written = match table {
            Some(table) => self.write_numbers(interface, table, values),
            None => Err(Failure::unsupported("each is set alone")),
        };
        written.map_err(|failure| {
            let words: Vec<String> =
                values.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
            failure.into_error(interface, knob, format!("write {} together", words.join(" ")))
        })
    }

    /// Where a knob has many places (NAPIs, queues) one look at the interface serves all of them: writing
    /// one makes none of the others anew.
    fn write_many(
        &mut self,
        _permit: &WritePermit,
        interface: &str,
        knob: Knob,
        values: &[(Place, Value)],
        done: &mut usize,
    ) -> Result<(), KernelError> {
        let reading = Reading::new(self, interface);
        for (place, value) in values {
            self.write_through(&reading, knob, *place, value)?;
            *done += 1;
        }
        Ok(())
    }
}

/// The table of ethtool that a knob is a number of.
const fn table_of(knob: Knob) -> Option<Table> {
    match source_of(knob) {
        Source::Number(number) => Some(number.table),
        _ => None,
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

#[cfg(test)]
mod tests {
    use std::fs;

    use latput_knobs::KernelErrorKind;
    use latput_units::Nanos;

    use super::*;

    #[test]
    fn values_come_from_sysfs_without_napi_set() {
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
        latput_testkit::write(&mut kernel, "lo", Knob::GroFlushTimeout, Place::Device, &time)
            .unwrap();
        let written = fs::read_to_string(folder.path().join("class/net/lo/gro_flush_timeout"));
        assert_eq!(written.unwrap().trim(), "500000");
        let error =
            latput_testkit::write(&mut kernel, "lo", Knob::GroFlushTimeout, Place::Napi(0), &time)
                .unwrap_err();
        assert_eq!(error.kind, KernelErrorKind::Unsupported, "{error}");
    }

    #[test]
    fn missing_and_damaged_files_differ() {
        check_unreadable(&[], Knob::Gro, KernelErrorKind::Unsupported, "5.6");
        let others = [("address", "")];
        check_unreadable(&others, Knob::Threaded, KernelErrorKind::Unsupported, "lo/threaded");
        check_unreadable(&[], Knob::Threaded, KernelErrorKind::Malformed, "does not show lo");
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
    fn knobs_of_one_table_are_set_together() {
        let (_folder, mut kernel) = old_kernel(&[]);
        let delays = kernel.set_with(Knob::RxUsecs);
        assert!(
            [Knob::RxUsecs, Knob::TxUsecs, Knob::AdaptiveRx].iter().all(|it| delays.contains(it))
        );
        assert!(!delays.contains(&Knob::RxRing) && !delays.contains(&Knob::RxProfile));
        assert_eq!(kernel.set_with(Knob::RxChannels).len(), 3);
        assert_eq!(kernel.set_with(Knob::Mtu), []);
        let table =
            [(Knob::RxUsecs, Value::Time(Nanos::from_us(9))), (Knob::RxRing, Value::Count(64))];
        let failure = kernel.write_numbers("lo", Table::Coalesce, &table).unwrap_err();
        assert!(failure.reason.contains("rx-ring=64"), "{}", failure.reason);
        let kernel: &mut dyn KernelWrite = &mut kernel;
        assert_eq!(kernel.set_with(Knob::PauseRx).len(), 3, "through a reference too");
    }

    #[test]
    fn memory_of_all_queues_is_bounded() {
        assert_eq!(limits_per_queue(1, PFIFO_FAST_BYTES).max, Some(44_739_242));
        assert_eq!(limits_per_queue(128, PFIFO_FAST_BYTES).max, Some(349_525));
        assert_eq!(limits_per_queue(128, RPS_FLOW_BYTES).max, Some(1 << 19));
        assert_eq!(limits_per_queue(0, RPS_FLOW_BYTES).max, Some(1 << 26));
    }

    /// A kernel with only rtnetlink, and these files as the sysfs of `lo`, which every namespace has.
    pub(super) fn old_kernel(files: &[(&str, &str)]) -> (tempfile::TempDir, LinuxKernel) {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in files {
            let path = folder.path().join("class/net/lo").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let route = Route::open().unwrap();
        let sysfs = Sysfs::new(folder.path());
        let proc = Files::new(folder.path());
        let ioctl = EthtoolIoctl::open().unwrap();
        let modprobe = vec![Files::new(&folder.path().join("modprobe.d"))];
        let kernel = LinuxKernel {
            route,
            departures: Departures::open().unwrap(),
            ethtool: None,
            netdev: None,
            ioctl,
            sysfs,
            proc,
            modprobe,
            tried_qdiscs: QdiscTrials::default(),
        };
        (folder, kernel)
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
