//! Reasons against values of knobs that can be set, known before the first write.

use std::collections::BTreeMap;
use std::sync::Mutex;

use latput_knobs::qdisc::ParameterValue;
use latput_knobs::{Knob, Qdisc, Value, WritePurpose};
use latput_units::{Bytes, CpuSet};

use super::failure::Failure;
use super::source::{Source, source_of};
use super::{LinuxKernel, MEMORY_MOST};
use crate::error::Error;
use crate::ethtool::Features;
use crate::ethtool::rss::contexts_obstacle;
use crate::namespace::Namespace;
use crate::netlink::NetlinkError;
use crate::route::{Link, Route};

/// Memory of `fq_codel` for each flow (`struct fq_codel_flow` with its backlog).
const FQ_CODEL_FLOW_BYTES: u64 = 72;
/// Memory of `fq` for each bucket (`struct rb_root`).
const FQ_BUCKET_BYTES: u64 = 8;

/// The kernel's objections to queue disciplines by their text; `None` where it has none. Each is tried once.
#[derive(Debug, Default)]
pub(super) struct QdiscTrials(Mutex<BTreeMap<String, Option<String>>>);

impl LinuxKernel {
    /// Returns the reason why `value` must not be set, because it cannot be or because what it would move could not be put
    /// back; `None` if nothing stands against it.
    pub(super) fn obstacle_at(
        &self,
        interface: &str,
        knob: Knob,
        value: &Value,
        purpose: WritePurpose,
    ) -> Result<Option<String>, Failure> {
        match (source_of(knob), value) {
            (Source::Mtu, Value::Count(bytes)) => {
                self.mtu_obstacle(interface, Bytes::new(*bytes), purpose)
            }
            (Source::Qdisc, Value::Qdisc(qdisc)) => {
                Ok(self.root_obstacle(&self.route.link(interface)?, qdisc, purpose))
            }
            (Source::QueueQdisc, Value::Qdisc(qdisc)) => {
                Ok(self.queue_obstacle(&self.route.link(interface)?, qdisc, purpose))
            }
            // A set of receive queues.
            (_, Value::Cpus(queues)) if knob == Knob::XpsRxqs => {
                Ok(queues_obstacle(queues, self.route.link(interface)?.rx_queues))
            }
            (_, Value::Cpus(cpus)) if purpose == WritePurpose::Change => {
                Ok(self.cpus_obstacle(cpus))
            }
            // The driver has them at most (`ethtool_set_rxfh_indir`, net/ethtool/ioctl.c).
            (_, Value::Table(table))
                if table.queues() > u64::from(self.route.link(interface)?.rx_queues) =>
            {
                let queues = table.queues();
                Ok(Some(format!(
                    "it names {queues} receive queues, more than the interface can have"
                )))
            }
            _ if drops_contexts(knob, value) => {
                let contexts = self.ethtool()?.rss_contexts(interface)?;
                Ok(contexts_obstacle(interface, &contexts))
            }
            _ => Ok(None),
        }
    }

    fn root_obstacle(&self, link: &Link, qdisc: &Qdisc, purpose: WritePurpose) -> Option<String> {
        if qdisc.kind() == "mq" && !qdisc.is_default() {
            // `mq_init`, net/sched/sch_mq.c.
            let is_single = link.tx_queues < 2;
            return is_single
                .then(|| "mq needs an interface with several transmit queues".to_owned());
        }
        Route::options_obstacle(qdisc)
            .or_else(|| self.trial_obstacle(link, qdisc, purpose))
            .or_else(|| self.default_obstacle(link, purpose))
    }

    /// Why the kernel would not attach its own queue discipline again as it is now: without a queue it attaches `noqueue`
    /// (`attach_one_default_qdisc`, `net/sched/sch_generic.c`).
    fn default_obstacle(&self, link: &Link, purpose: WritePurpose) -> Option<String> {
        if link.txqueuelen != 0 || purpose == WritePurpose::WayBack {
            return None;
        }
        let root = self.read_root_qdisc(link).ok()?.into_iter().next();
        let Some((_, Value::Qdisc(now))) = root else { return None };
        (now.is_default() && now.kind() != "noqueue").then(|| {
            format!(
                "the kernel would not attach its own {} again with txqueuelen 0: set txqueuelen first",
                now.kind()
            )
        })
    }

    fn queue_obstacle(&self, link: &Link, qdisc: &Qdisc, purpose: WritePurpose) -> Option<String> {
        // `mq_init`, and `qdisc_graft` in net/sched/sch_api.c.
        if !qdisc.is_default() && matches!(qdisc.kind(), "mq" | "noqueue") {
            return Some(format!("only the root can be {}", qdisc.kind()));
        }
        Route::options_obstacle(qdisc)
            .or_else(|| memory_obstacle(qdisc, link.tx_queues))
            .or_else(|| self.trial_obstacle(link, qdisc, purpose))
    }

    /// The kernel's objection to a queue discipline: it lacks the kind, or refuses an option. The kernel tells that only to
    /// somebody who attaches it, so it is attached to the loopback of a network namespace made for it.
    fn trial_obstacle(&self, link: &Link, qdisc: &Qdisc, purpose: WritePurpose) -> Option<String> {
        if qdisc.is_default() || qdisc.is_opaque() || purpose == WritePurpose::WayBack {
            return None;
        }
        let mut tried =
            self.tried_qdiscs.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let asked = tried.entry(qdisc.to_string());
        asked.or_insert_with(|| try_qdisc(qdisc, link.mtu)).clone()
    }

    /// The CPUs that the kernel would leave out, or refuse all for.
    fn cpus_obstacle(&self, cpus: &CpuSet) -> Option<String> {
        let online = self.online_cpus()?;
        let missing: CpuSet = cpus.iter().filter(|cpu| !online.contains(*cpu)).collect();
        (!missing.is_empty()).then(|| format!("CPUs {missing} are not online: {online} are"))
    }
}

/// The receive queues that an interface with so many does not have.
fn queues_obstacle(queues: &CpuSet, count: u32) -> Option<String> {
    let missing: CpuSet = queues.iter().filter(|queue| queue.0 >= count).collect();
    let last = count.saturating_sub(1);
    (!missing.is_empty())
        .then(|| format!("there is no receive queue {missing}: the last is {last}"))
}

/// Returns the kernel's refusal of a queue discipline; `None` where it takes it, or where it cannot be asked.
fn try_qdisc(qdisc: &Qdisc, mtu: Bytes) -> Option<String> {
    let attach = || -> Result<(), Error> {
        let route = Route::open()?;
        // tbf's burst and fq's quantum are judged by it.
        route.set_mtu("lo", mtu)?;
        let index = route.link("lo")?.index;
        route.replace_qdisc(index, None, &qdisc.clone().with_handle(0))
    };
    let tried = Namespace::create().and_then(|namespace| namespace.run_sockets_in(attach)).ok()?;
    match tried {
        Err(Error::Netlink(error @ NetlinkError::Refused { .. })) => match error.errno()? {
            libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP | libc::ERANGE => {
                Some(format!("the kernel does not take `{qdisc}`: {}", error.reason()))
            }
            // It may pass, as want of memory.
            _ => None,
        },
        _ => None,
    }
}

/// Why a queue discipline cannot be set for so many queues: their memory. `None` if it can.
fn memory_obstacle(qdisc: &Qdisc, queues: u32) -> Option<String> {
    let each = match (qdisc.parameter("flows"), qdisc.parameter("buckets")) {
        (Some(ParameterValue::Count(flows)), _) => flows.saturating_mul(FQ_CODEL_FLOW_BYTES),
        (_, Some(ParameterValue::Count(buckets))) => buckets.saturating_mul(FQ_BUCKET_BYTES),
        _ => return None,
    };
    let all = each.saturating_mul(u64::from(queues));
    (all > MEMORY_MOST).then(|| {
        format!(
            "`{qdisc}` on {queues} queues would take {} MiB, and at most {} are allowed",
            all >> 20,
            MEMORY_MOST >> 20
        )
    })
}

/// Whether drivers drop additional RSS contexts with this.
fn drops_contexts(knob: Knob, value: &Value) -> bool {
    match knob {
        Knob::CombinedChannels | Knob::RxChannels | Knob::RssTable => true,
        Knob::RxNtuple => *value == Value::Switch(false),
        _ => false,
    }
}

/// Why one switch cannot set, and later put back, the features that it stands for; `None` if it can.
pub(super) fn features_obstacle(features: &Features, names: &[&str]) -> Option<String> {
    let changeable =
        names.iter().filter_map(|name| features.get(*name)).filter(|f| f.is_changeable);
    let mut states = changeable.map(|feature| feature.is_active);
    let Some(first) = states.next() else {
        return Some(format!("the driver cannot change {}", names[0]));
    };
    states.any(|state| state != first).then(|| {
        format!(
            "{} differ, which one switch could not put back: make them alike first",
            names.join(" and ")
        )
    })
}

/// Why rules that steer flows stand against switching their offload off; `None` without rules. Some drivers delete them with it
/// (`i40e_set_features`, `ice_set_features`), and nothing brings them back.
pub(super) fn rules_obstacle(interface: &str, rules: u32) -> Option<String> {
    (rules > 0).then(|| {
        format!(
            "{rules} flow rules need it, and would be lost: `ethtool -n {interface}` lists them, `ethtool -N {interface} \
             delete N` removes one"
        )
    })
}

/// Why ports stand against switching an offload of the interface above them off; `None` without such ports. The kernel
/// switches it off on each (`netdev_sync_lower_features`), and does not switch it on again.
pub(super) fn ports_obstacle(interface: &str, ports: &[String]) -> Option<String> {
    (!ports.is_empty()).then(|| {
        format!(
            "without it on {interface} the kernel would take it from {} for good: switch it off there first",
            ports.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethtool::Feature;

    #[test]
    fn what_goes_with_an_offload_is_named() {
        assert_eq!(rules_obstacle("eth0", 0), None);
        assert!(rules_obstacle("eth0", 2).unwrap().starts_with("2 flow rules need it"));
        assert_eq!(ports_obstacle("bond0", &[]), None);
        let ports = ["eth0".to_owned(), "eth1".to_owned()];
        assert!(ports_obstacle("bond0", &ports).unwrap().contains("from eth0, eth1 for good"));
    }

    #[test]
    fn unlike_features_are_not_lumped_together() {
        let feature = |is_active| Feature { is_active, is_wanted: is_active, is_changeable: true };
        let features = |v4, v6| -> Features {
            [
                ("tx-tcp-segmentation".to_owned(), feature(v4)),
                ("tx-tcp6-segmentation".to_owned(), feature(v6)),
                ("tx-tcp-mangleid-segmentation".to_owned(), feature(false)),
            ]
            .into()
        };
        let tso = ["tx-tcp-segmentation", "tx-tcp6-segmentation"];
        assert_eq!(features_obstacle(&features(true, true), &tso), None);
        assert_eq!(features_obstacle(&features(false, false), &tso), None);
        assert!(features_obstacle(&features(true, false), &tso).unwrap().contains("differ"));
        assert!(features_obstacle(&Features::new(), &tso).unwrap().contains("cannot change"));
    }
}
