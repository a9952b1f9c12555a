//! The lab: two hosts made of network namespaces, joined by a veth pair that behaves like a moderated
//! network card.
//!
//! A veth goes through NAPI only when its receiver has GRO on and its sender makes no oversized
//! packets (TSO and GSO off); then `napi-defer-hard-irqs` and `gro-flush-timeout` hold packets back
//! with a real kernel timer. Threaded NAPI puts each host's receive work on its own CPUs.
//!
//! An anonymous lab lives in file descriptors alone: it is gone with the last process that holds one
//! or runs inside, also after `kill -9`.

use std::net::{IpAddr, Ipv4Addr};

use latput_units::{Bytes, CpuId, CpuSet};

use crate::error::Error;
use crate::ethtool::Ethtool;
use crate::namespace::Namespace;
use crate::netdev::Netdev;
use crate::process::{self, Capability};
use crate::route::{MacAddress, Route, VethEnd};
use crate::sysfs::Sysfs;

/// The interface of both hosts.
pub const INTERFACE: &str = "lat0";
/// The hosts, generator first.
pub const HOST_NAMES: [&str; 2] = ["a", "b"];
/// The prefix of the names of pinned lab namespaces.
pub const PIN_PREFIX: &str = "latput-";
/// Addresses from the block for benchmarks (RFC 2544, appendix C.2.2), which nobody routes.
const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1)), IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2))];
const PREFIX_LENGTH: u8 = 24;
/// Locally administered (second bit of the first byte), fixed so that neighbours can be permanent.
const MACS: [MacAddress; 2] = [[2, 0, 0, 0, 0, 0x0a], [2, 0, 0, 0, 0, 0x0b]];

/// The options of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabOptions {
    /// MTU of both ends.
    pub mtu: Bytes,
    /// The CPUs that the two hosts share out; `None` for all that this process may use.
    pub cpus: Option<CpuSet>,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self { mtu: Bytes::new(1500), cpus: None }
    }
}

/// Two hosts and the wire between them.
#[derive(Debug)]
pub struct Lab {
    /// Makes the load.
    pub a: LabHost,
    /// The system under test.
    pub b: LabHost,
}

/// One host of the lab.
#[derive(Debug)]
pub struct LabHost {
    /// `a` or `b`.
    pub name: &'static str,
    /// Its network namespace.
    pub namespace: Namespace,
    /// Its interface, in that namespace.
    pub interface: &'static str,
    /// Its address.
    pub address: IpAddr,
    /// Its CPUs.
    pub cpus: CpuSet,
}

impl Lab {
    /// Builds an anonymous lab. On failure nothing is left of it.
    pub fn build(options: &LabOptions) -> Result<Self, Error> {
        Capability::SysAdmin.require("building the lab")?;
        Capability::NetAdmin.require("building the lab")?;
        let cpus = match &options.cpus {
            Some(cpus) => cpus.clone(),
            None => process::allowed_cpus()?,
        };
        let lab = Self::from_namespaces([Namespace::create()?, Namespace::create()?], &cpus)?;
        lab.join(options.mtu)?;
        for host in lab.hosts() {
            host.prepare()?;
        }
        for host in lab.hosts() {
            host.pin_napi_threads()?;
        }
        Ok(lab)
    }

    /// Both hosts, generator first.
    pub fn hosts(&self) -> [&LabHost; 2] {
        [&self.a, &self.b]
    }

    /// Names the lab, so that it outlives this process and `ip netns` sees it.
    pub fn pin(&self) -> Result<(), Error> {
        if let Some(name) = Self::pinned_names()?.first() {
            let path = std::path::Path::new(crate::namespace::PIN_FOLDER).join(name);
            return Err(Error::LabExists { path });
        }
        for host in self.hosts() {
            if let Err(error) = host.namespace.pin(&host.pin_name()) {
                // A half-pinned lab is worse than none; what cannot be unpinned `lab down` finds.
                let _ = Self::remove_pinned();
                return Err(error);
            }
        }
        Ok(())
    }

    /// The pinned lab: `None` if there is none, an error if only a part of it is left.
    pub fn open_pinned(options: &LabOptions) -> Result<Option<Self>, Error> {
        let names = Self::pinned_names()?;
        if names.is_empty() {
            return Ok(None);
        }
        let open = |host: &str| Namespace::open_pinned(&format!("{PIN_PREFIX}{host}"));
        let broken = |error: Error| {
            Error::Other(format!(
                "only a part of a lab is left ({}): remove it with `latput lab down`: {error}",
                names.join(", ")
            ))
        };
        let [a, b] = HOST_NAMES;
        let namespaces = [open(a).map_err(broken)?, open(b).map_err(broken)?];
        let cpus = match &options.cpus {
            Some(cpus) => cpus.clone(),
            None => process::allowed_cpus()?,
        };
        let lab = Self::from_namespaces(namespaces, &cpus)?;
        for host in lab.hosts() {
            host.run_in(|| Route::open()?.link(INTERFACE)).and_then(|link| link).map_err(broken)?;
        }
        Ok(Some(lab))
    }

    /// Names of pinned namespaces that belong to a lab, whole or not.
    pub fn pinned_names() -> Result<Vec<String>, Error> {
        let ours =
            |name: &String| HOST_NAMES.iter().any(|host| *name == format!("{PIN_PREFIX}{host}"));
        Ok(Namespace::pinned(PIN_PREFIX)?.into_iter().filter(ours).collect())
    }

    /// Removes what there is of a pinned lab, whole or not, and says which names went. Processes that
    /// still run inside keep their namespace until they end.
    pub fn remove_pinned() -> Result<Vec<String>, Error> {
        let names = Self::pinned_names()?;
        for name in &names {
            Namespace::unpin(name)?;
        }
        Ok(names)
    }

    fn from_namespaces(namespaces: [Namespace; 2], cpus: &CpuSet) -> Result<Self, Error> {
        let [cpus_a, cpus_b] = split(cpus);
        if cpus_a.is_empty() {
            return Err(Error::Other("the lab needs at least one CPU".to_owned()));
        }
        let [namespace_a, namespace_b] = namespaces;
        let host = |idx: usize, namespace, cpus| LabHost {
            name: HOST_NAMES[idx],
            namespace,
            interface: INTERFACE,
            address: ADDRESSES[idx],
            cpus,
        };
        Ok(Self { a: host(0, namespace_a, cpus_a), b: host(1, namespace_b, cpus_b) })
    }

    /// Lays the wire.
    fn join(&self, mtu: Bytes) -> Result<(), Error> {
        let [here, there] = MACS.map(|mac| VethEnd { name: INTERFACE, mac, mtu });
        self.a.run_in(|| Route::open()?.create_veth(here, there, self.b.namespace.as_fd()))?
    }
}

impl LabHost {
    /// Runs `action` in a thread inside the host's namespace.
    pub fn run_in<T, F>(&self, action: F) -> Result<T, Error>
    where
        T: Send,
        F: FnOnce() -> T + Send,
    {
        self.namespace.run_in(action)
    }

    /// Holds the NAPI threads of the host's interface to the host's CPUs and returns how many there
    /// are. To be repeated after everything that makes NAPI instances or their threads anew: `gro`,
    /// `threaded`, queues, down and up.
    pub fn pin_napi_threads(&self) -> Result<usize, Error> {
        self.run_in(|| pin_napi_threads(self.interface, &self.cpus))?
    }

    /// The name of its namespace when it is pinned: `latput-a`.
    pub fn pin_name(&self) -> String {
        format!("{PIN_PREFIX}{}", self.name)
    }

    /// Addresses, offloads and threaded NAPI of one host.
    fn prepare(&self) -> Result<(), Error> {
        let idx = usize::from(self.name == HOST_NAMES[1]);
        self.run_in(|| {
            let route = Route::open()?;
            for interface in ["lo", INTERFACE] {
                route.stop_ipv6_autoconfiguration(interface).or_else(ignore_missing_ipv6)?;
            }
            route.add_address(INTERFACE, ADDRESSES[idx], PREFIX_LENGTH)?;
            let ethtool = Ethtool::open()?;
            ethtool.set_features(INTERFACE, &[("rx-gro", true)])?;
            let sender = [
                ("tx-tcp-segmentation", false),
                ("tx-tcp6-segmentation", false),
                ("tx-generic-segmentation", false),
            ];
            ethtool.set_features(INTERFACE, &sender)?;
            route.set_up("lo")?;
            route.set_up(INTERFACE)?;
            // Only now: the kernel refuses it of a device that has no NAPI instance.
            Sysfs::new(std::path::Path::new("/sys")).write(INTERFACE, "threaded", "1")?;
            // Known beforehand, so that no ARP disturbs a measurement.
            route.add_neighbour(INTERFACE, ADDRESSES[1 - idx], MACS[1 - idx])
        })?
    }
}

/// Holds the NAPI kernel threads of an interface of the calling thread's namespace to `cpus`, and
/// returns how many are known. Before Linux 6.8 none is, and they run on any CPU.
pub fn pin_napi_threads(interface: &str, cpus: &CpuSet) -> Result<usize, Error> {
    let pids = known_napi_threads(interface)?;
    for &pid in &pids {
        process::set_affinity(Some(pid), cpus).map_err(|source| {
            Error::system(
                format!("bind NAPI thread {pid} of {interface} to the CPUs {cpus}"),
                source,
            )
        })?;
    }
    Ok(pids.len())
}

/// Process ids of the NAPI kernel threads of an interface of the calling thread's namespace.
pub fn napi_threads(interface: &str) -> Result<Vec<u32>, Error> {
    let index = Route::open()?.link(interface)?.index;
    let napis = Netdev::open()?.napis(index)?;
    // Netlink gives the ids of the initial pid namespace. Inside another one they may name anything.
    Ok(napis.iter().filter_map(|napi| napi.pid).filter(|&pid| is_napi_thread(pid)).collect())
}

/// The same. None on kernels that cannot tell the threads of a device: without the netdev family (before 6.3) or without NAPI
/// instances in it (before 6.8).
///
/// # Errors
///
/// The kernel tells, and fails.
pub(crate) fn known_napi_threads(interface: &str) -> Result<Vec<u32>, Error> {
    napi_threads(interface).or_else(|error| match error.errno() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Ok(Vec::new()),
        _ => Err(error),
    })
}

fn is_napi_thread(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("napi/"))
}

/// A kernel without IPv6 has nothing to stop.
fn ignore_missing_ipv6(error: Error) -> Result<(), Error> {
    match error.errno() {
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    }
}

/// The first half of the CPUs, rounded down, and the rest. A single CPU goes to both.
pub fn split(cpus: &CpuSet) -> [CpuSet; 2] {
    if cpus.len() < 2 {
        return [cpus.clone(), cpus.clone()];
    }
    let cpus: Vec<CpuId> = cpus.iter().collect();
    let (a, b) = cpus.split_at(cpus.len() / 2);
    [a.iter().copied().collect(), b.iter().copied().collect()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_divided_or_shared() {
        check_split("0-1", "0", "1");
        check_split("0-2", "0", "1-2");
        check_split("1,3,5,7", "1,3", "5,7");
        check_split("4", "4", "4");
        check_split("none", "none", "none");
    }

    #[track_caller]
    fn check_split(cpus: &str, a: &str, b: &str) {
        let split = split(&cpus.parse().unwrap());
        assert_eq!(split.map(|cpus| cpus.to_string()), [a, b]);
    }
}
