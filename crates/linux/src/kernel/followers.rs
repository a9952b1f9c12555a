//! The values that a write moves along, so that going back can write them again.
//!
//! A lower MTU is passed on to VLANs, macvlans and ipvlans on top (`vlan_device_event`, `macvlan_device_event`,
//! `ipvlan_adjust_mtu`), to the ports of a bond (`bond_change_mtu`), and to IPv6 (`addrconf_notify`); nothing raises
//! them again. A feature that cannot come on now is still wanted. A NAPI thread that is made anew has neither the CPUs nor
//! the policy of the old one.

use std::collections::BTreeSet;

use latput_knobs::value::MTU_OF_INTERFACE;
use latput_knobs::{Knob, Place, ThreadSchedule, Value, WritePurpose};
use latput_units::{Bytes, IntoSet};

use super::LinuxKernel;
use super::device::numbers_in;
use super::failure::Failure;
use super::source::{Source, source_of};
use super::values::{Reading, Values, without_napi};
use crate::netdev::Napi;
use crate::process;
use crate::route::{Link, RouteMtu};

/// The process that makes all kernel threads, and gives them its CPUs.
const KTHREADD: u32 = 2;
/// Longest name of a thread (`TASK_COMM_LEN` less the terminating zero).
const COMM_BYTES: usize = 15;
/// Policies that [`process::set_schedule`] gives back.
const KEPT_POLICIES: [i32; 5] =
    [libc::SCHED_OTHER, libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_BATCH, libc::SCHED_IDLE];

impl LinuxKernel {
    /// The followers of one knob.
    pub(super) fn followers_of(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
    ) -> Result<Values, Failure> {
        match source_of(knob) {
            Source::Mtu => self.mtu_followers(&*reading.link()?),
            Source::Features(names) => {
                let Ok(features) = reading.features() else { return Ok(Values::new()) };
                let wanted = (0..).zip(names.iter()).filter_map(|(nth, name)| {
                    let feature = features.get(*name).filter(|feature| feature.is_changeable)?;
                    Some((Place::Wanted(nth), Value::Switch(feature.is_wanted)))
                });
                Ok(wanted.collect())
            }
            Source::Threaded => Ok(self.threads_of(&*reading.link()?)),
            _ => Ok(Values::new()),
        }
    }

    /// Writes one of them.
    pub(super) fn write_follower(
        &self,
        reading: &Reading<'_>,
        knob: Knob,
        place: Place,
        value: &Value,
    ) -> Result<(), Failure> {
        match (source_of(knob), place, value) {
            (Source::Mtu, Place::Linked(index), Value::Count(bytes)) => {
                let name = self.route.link_numbered(index)?.name;
                Ok(self.route.set_mtu(&name, Bytes::new(*bytes))?)
            }
            (Source::Mtu, Place::Ipv6, Value::Count(bytes)) => {
                Ok(self.proc.write(&ipv6_mtu(reading.name), &bytes.to_string())?)
            }
            (Source::Mtu, Place::LinkedIpv6(index), Value::Count(bytes)) => {
                let Link { name, mtu, .. } = self.route.link_numbered(index)?;
                let bytes = if *bytes == MTU_OF_INTERFACE { mtu.get() } else { *bytes };
                Ok(self.proc.write(&ipv6_mtu(&name), &bytes.to_string())?)
            }
            (Source::Features(names), Place::Wanted(nth), Value::Switch(on)) => {
                let name = names.get(nth as usize).ok_or_else(|| {
                    Failure::refused(format!("{knob} stands for no such feature"))
                })?;
                Ok(self.ethtool()?.want_features(reading.name, &[(name, *on)])?)
            }
            (Source::Threaded, Place::Thread(queue), Value::Cpus(cpus)) => {
                let thread = self.thread_of(&*reading.link()?, queue)?;
                process::set_affinity(Some(thread), cpus).map_err(|error| {
                    crate::error::Error::system("bind a NAPI thread", error).into()
                })
            }
            (Source::Threaded, Place::ThreadPolicy(queue), Value::Count(number)) => {
                let thread = self.thread_of(&*reading.link()?, queue)?;
                let schedule = ThreadSchedule::from_number(*number)
                    .ok_or_else(|| Failure::refused(format!("{number} stands for no policy")))?;
                Ok(process::set_schedule(thread, schedule)?)
            }
            _ => Err(Failure::refused(format!("{value} at {place} is not what {knob} takes"))),
        }
    }

    fn mtu_followers(&self, link: &Link) -> Result<Values, Failure> {
        let mut values = Values::new();
        let of_ipv6 = |name: &str| match self.proc.read_number(&ipv6_mtu(name)) {
            Ok(mtu) => Ok(Some(Value::Count(mtu))),
            // It has no IPv6.
            Err(error) if error.errno() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(Failure::from(error)),
        };
        let linked = self.linked_to(link)?;
        // A bridge goes back with its ports, and never again once its own MTU is written (`br_change_mtu`).
        let held = linked.iter().filter(|it| !is_bridge(it));
        values.extend(held.map(|it| (Place::Linked(it.index), Value::Count(it.mtu.get()))));
        values.extend(of_ipv6(&link.name)?.map(|mtu| (Place::Ipv6, mtu)));
        for it in &linked {
            let own = of_ipv6(&it.name)?.map(|mtu| match mtu {
                Value::Count(mtu) if is_bridge(it) && mtu == it.mtu.get() => {
                    Value::Count(MTU_OF_INTERFACE)
                }
                mtu => mtu,
            });
            values.extend(own.map(|mtu| (Place::LinkedIpv6(it.index), mtu)));
        }
        Ok(values)
    }

    /// The first MTU of IPv6 that would move and could not be written again: its file is on a file system that is read-only, as in
    /// a container. One that is the interface's goes back with it.
    pub(super) fn ipv6_obstacle(&self, link: &Link, linked: &[Link], mtu: Bytes) -> Option<String> {
        let is_lost = |one: &&Link| {
            let file = ipv6_mtu(&one.name);
            let of_ipv6 = self.proc.read_number(&file).ok().map(Bytes::new);
            let moves = one.index == link.index || one.mtu > mtu;
            of_ipv6.is_some_and(|own| moves && own != one.mtu) && self.proc.is_read_only(&file)
        };
        let lost = std::iter::once(link).chain(linked).find(is_lost)?;
        Some(format!(
            "the kernel would set the MTU of IPv6 on {} too, and latput could not put that back: {} is read-only here",
            lost.name,
            self.proc.path(&ipv6_mtu(&lost.name)).display()
        ))
    }

    /// Why an MTU cannot be set: it would change the MTU of IPv6 routes for good (`fib6_nh_mtu_change`, `net/ipv6/route.c`).
    /// `None` if it changes none.
    pub(super) fn route_obstacle(
        &self,
        link: &Link,
        linked: &[Link],
        mtu: Bytes,
        purpose: WritePurpose,
    ) -> Result<Option<String>, Failure> {
        let moved = linked.iter().filter(|upper| upper.mtu > mtu).chain([link]);
        let moved: Vec<(&Link, Bytes)> = moved
            .map(|link| {
                let of_ipv6 = self.proc.read_number(&ipv6_mtu(&link.name));
                (link, of_ipv6.map_or(link.mtu, Bytes::new))
            })
            .collect();
        // The MTU that the kernel would set a route to, now or when the link goes back.
        let lost_to = |route: &RouteMtu| {
            moved.iter().find_map(|(link, of_ipv6)| {
                if route.is_locked || !route.interfaces.contains(&link.index) {
                    return None;
                }
                let follows = route.mtu > mtu || route.mtu == *of_ipv6 && route.mtu != mtu;
                // One that has just the new MTU goes up with it again.
                let follows_back = purpose == WritePurpose::Change
                    && (route.mtu > link.mtu || route.mtu == mtu && route.mtu != link.mtu);
                match (follows && route.mtu != link.mtu, follows_back) {
                    (true, _) => Some(mtu),
                    (false, true) => Some(link.mtu),
                    (false, false) => None,
                }
            })
        };
        let routes = self.route.ipv6_route_mtus()?;
        let with_mtu = |route| Some((route, lost_to(route)?));
        let lost: Vec<(&RouteMtu, Bytes)> = routes.iter().filter_map(with_mtu).collect();
        Ok(lost.first().map(|(RouteMtu { destination, mtu: own, .. }, mtu)| {
            let (own, more) = (own.get(), lost.len() - 1);
            let more = if more == 0 { String::new() } else { format!(" (and of {more} more)") };
            format!(
                "the kernel would set the mtu {own} of the IPv6 route to {destination}{more} to {} too, and latput could not \
                 put that back: give the route `mtu lock {own}` first",
                mtu.get()
            )
        }))
    }

    /// The interfaces of this namespace that lie on one, or on one of those, and the ports of a bond, by number.
    pub(super) fn linked_to(&self, link: &Link) -> Result<Vec<Link>, Failure> {
        let mut others = self.route.links()?;
        let mut found: BTreeSet<u32> = [link.index].into();
        let is_bond = |index: u32, others: &[Link]| {
            let has_kind = |it: &Link| matches!(it.kind.as_deref(), Some("bond" | "team"));
            others.iter().any(|it| it.index == index && has_kind(it))
        };
        loop {
            let lies_on = |it: &&Link| {
                // A veth names its other end so.
                let is_on =
                    |lower: u32| it.kind.as_deref() != Some("veth") && found.contains(&lower);
                let is_port = |master: u32| is_bond(master, &others) && found.contains(&master);
                it.lower.is_some_and(is_on) || it.master.is_some_and(is_port)
            };
            let more: BTreeSet<u32> = others.iter().filter(lies_on).map(|it| it.index).into_set();
            let masters = others.iter().filter(|it| found.contains(&it.index));
            let masters: Vec<u32> = masters.filter_map(|it| it.master).collect();
            let before = found.len();
            found.extend(more.into_iter().chain(masters));
            if found.len() == before {
                break;
            }
        }
        others.retain(|it| it.index != link.index && found.contains(&it.index));
        others.sort_by_key(|it| it.index);
        Ok(others)
    }

    /// The CPUs and the policy of the NAPI threads; none where they cannot be seen, as in a process namespace.
    fn threads_of(&self, link: &Link) -> Values {
        let threads: Vec<(u32, u32)> = self.threads(link);
        let cpus = threads.iter().filter_map(|&(queue, pid)| {
            Some((Place::Thread(queue), Value::Cpus(process::affinity_of(pid)?)))
        });
        let policies = threads.iter().filter_map(|&(queue, pid)| {
            let number = process::schedule_of(pid)?.to_number();
            Some((Place::ThreadPolicy(queue), Value::Count(number)))
        });
        cpus.chain(policies).collect()
    }

    /// The threads that poll, by receive queue.
    fn threads(&self, link: &Link) -> Vec<(u32, u32)> {
        let napis = self.netdev.as_ref().and_then(|netdev| netdev.napis(link.index).ok());
        let is_napi_thread = |pid: u32| {
            let name = self.proc.read(&format!("{pid}/comm")).unwrap_or_default();
            name.starts_with("napi/")
        };
        let threads =
            napis.into_iter().flatten().filter_map(|napi| Some((napi.rx_queue?, napi.pid?)));
        let mut threads: Vec<(u32, u32)> =
            threads.filter(|(_, pid)| is_napi_thread(*pid)).collect();
        threads.sort_unstable();
        threads
    }

    /// Why the NAPI threads of a link cannot be made anew: instances have their own `threaded`, which the new ones would not
    /// get, or not all threads are seen, so that the new ones would not get their CPUs and policies. `None` if they can, or if
    /// there are none.
    pub(super) fn threads_obstacle(&self, link: &Link) -> Result<Option<String>, Failure> {
        let napis = match &self.netdev {
            Some(netdev) => netdev.napis(link.index)?,
            None => Vec::new(),
        };
        let is_on = |number: &u64| *number != 0;
        let device = self.sysfs.read_number(&link.name, "threaded").ok();
        if let Some(obstacle) = device.and_then(|device| unlike_threaded(&napis, device)) {
            return Ok(Some(obstacle));
        }
        let own = napis.iter().filter_map(|napi| napi.threaded);
        if !device.into_iter().chain(own).any(|number| is_on(&number)) {
            return Ok(None);
        }
        let threads = napis.iter().filter(|napi| napi.threaded.as_ref().is_none_or(is_on)).count();
        if self.netdev.is_some() && threads == 0 {
            return Ok(None);
        }
        let seen = self.threads(link);
        let is_other = |schedule: ThreadSchedule| !KEPT_POLICIES.contains(&schedule.policy);
        let other = seen.iter().find(|(_, pid)| process::schedule_of(*pid).is_some_and(is_other));
        if let Some((queue, pid)) = other {
            return Ok(Some(format!(
                "its NAPI threads would be made anew, and the one of rx-{queue} (pid {pid}) has a scheduling policy that \
                 latput cannot give to the new one, such as SCHED_DEADLINE"
            )));
        }
        let is_seen = |(_, pid): &(u32, u32)| {
            process::schedule_of(*pid).is_some() && process::affinity_of(*pid).is_some()
        };
        if threads > 0 && seen.len() >= threads && seen.iter().all(is_seen) {
            let are_as_made = seen.iter().all(|(_, pid)| is_as_made(*pid));
            return Ok(self.new_threads_obstacle().filter(|_| !are_as_made));
        }
        // Without the family of netlink (before Linux 6.8) their names tell them.
        let named = self.threads_named(link);
        if !named.is_empty() && named.into_iter().all(is_as_made) {
            return Ok(None);
        }
        Ok(Some(self.new_threads_obstacle().unwrap_or_else(|| {
            "its NAPI threads would be made anew, and latput does not see the CPUs and policies of all of them to give \
             them to the new ones"
                .to_owned()
        })))
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

    /// Why this process cannot give new NAPI threads the CPUs and policies of the old ones: it does not see them, or may not
    /// change them. `None` if it can.
    pub(super) fn new_threads_obstacle(&self) -> Option<String> {
        let sees_kernel_threads =
            self.proc.read(&format!("{KTHREADD}/comm")).is_ok_and(|name| name == "kthreadd");
        let anew = "its NAPI threads would be made anew";
        if !sees_kernel_threads {
            return Some(format!(
                "{anew}, and latput does not see them here to give the new ones the CPUs and policies of the old. Run latput \
                 in the host's process namespace (`docker run --pid=host`)"
            ));
        }
        let needed = process::Capability::SysNice;
        (!needed.is_effective()).then(|| {
            format!(
                "{anew}, and their CPUs and policies need {} to be given to the new ones",
                needed.name()
            )
        })
    }

    /// The threads that are called after a link: `napi/eth0-513`.
    fn threads_named(&self, link: &Link) -> Vec<u32> {
        let mut name = format!("napi/{}-", link.name);
        name.truncate(COMM_BYTES);
        let is_named = |pid: &u32| {
            let comm = self.proc.read(&format!("{pid}/comm")).unwrap_or_default();
            comm.starts_with(&name)
        };
        numbers_in(&self.proc.path("")).into_iter().filter(is_named).collect()
    }

    fn thread_of(&self, link: &Link, queue: u32) -> Result<u32, Failure> {
        let threads = self.threads(link);
        let found = threads.iter().find(|(of, _)| *of == queue).map(|(_, pid)| *pid);
        found.ok_or_else(|| Failure::unsupported(format!("no thread polls for rx-{queue}")))
    }
}

/// Reason why NAPI instances that have their own `threaded` stand against a change that gives them all the device's; `None` if
/// they are alike. Linux 6.17 sets it for single instances (`napi-set` of the netdev family).
fn unlike_threaded(napis: &[Napi], device: u64) -> Option<String> {
    let differs = |napi: &Napi| napi.threaded.is_some_and(|threaded| threaded != device);
    napis.iter().any(differs).then(|| {
        "some NAPI instances have their own `threaded` value, which would be lost. Make them alike first".to_owned()
    })
}

/// Whether a kernel thread has the CPUs and the policy that it was made with.
fn is_as_made(pid: u32) -> bool {
    let made = ThreadSchedule { policy: libc::SCHED_OTHER, priority: 0, nice: 0 };
    process::schedule_of(pid) == Some(made)
        && process::affinity_of(pid)
            .is_some_and(|cpus| process::affinity_of(KTHREADD) == Some(cpus))
}

pub(super) fn is_bridge(link: &Link) -> bool {
    link.kind.as_deref() == Some("bridge")
}

fn ipv6_mtu(name: &str) -> String {
    format!("sys/net/ipv6/conf/{name}/mtu")
}
