//! The queue disciplines of an interface as two knobs: the root, and those of the queues under `mq`.

use latput_knobs::{Place, Qdisc, Value};

use super::LinuxKernel;
use super::failure::Failure;
use super::values::Values;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::route::Link;
use crate::route::qdisc::Attached;

/// Disciplines that administrators make the default of new interfaces.
const DEFAULTS: [&str; 3] = ["pfifo_fast", "fq_codel", "fq"];

impl LinuxKernel {
    pub(super) fn read_root_qdisc(&self, link: &Link) -> Result<Values, Failure> {
        let all = self.route.qdiscs(link.index)?;
        if all.is_empty() && !link.is_up {
            // The kernel attaches its own when the interface comes up (`dev_activate`).
            return Ok(vec![(Place::Device, Value::Qdisc(Qdisc::any_default()))]);
        }
        let root = root_of(&all)?;
        let mut qdisc = root.qdisc.clone();
        let is_mq = qdisc.kind() == "mq";
        // A change of any other root would lose its classes and filters; of mq those of its children.
        let has_more = if is_mq {
            let mut children = all.iter().filter(|other| other.queue_under(root).is_some());
            children.try_fold(false, |has, child| {
                let is_opaque = child.handle != 0 && child.qdisc.is_opaque();
                Ok::<_, Failure>(has || is_opaque || self.has_more(link, &all, child)?)
            })?
        } else {
            false
        };
        let is_lost = !is_mq && has_own_children(&all, root) || has_more;
        if is_lost || self.route.has_filters(link.index, root.handle)? {
            qdisc = qdisc.into_opaque();
        }
        Ok(vec![(Place::Device, Value::Qdisc(qdisc))])
    }

    pub(super) fn read_queue_qdiscs(&self, link: &Link) -> Result<Values, Failure> {
        let all = self.route.qdiscs(link.index)?;
        let root = root_of(&all)?;
        if root.qdisc.kind() != "mq" {
            return Err(Failure::unsupported("the root queue discipline is not mq: set qdisc=mq"));
        }
        let mut values = Values::new();
        for child in &all {
            let Some(queue) = child.queue_under(root) else { continue };
            let mut qdisc = child.qdisc.clone();
            if self.has_more(link, &all, child)? {
                qdisc = qdisc.into_opaque();
            }
            values.push((Place::TxQueue(queue), Value::Qdisc(qdisc)));
        }
        values.sort_by_key(|(place, _)| *place);
        if values.is_empty() {
            return Err(Failure::unsupported("the kernel lists no queue discipline under mq"));
        }
        Ok(values)
    }

    /// Whether something hangs on a discipline under mq that would go with it.
    fn has_more(&self, link: &Link, all: &[Attached], child: &Attached) -> Result<bool, Failure> {
        if child.handle == 0 {
            return Ok(false);
        }
        if has_own_children(all, child) {
            return Ok(true);
        }
        // Of those that latput can set only this one takes filters.
        Ok(child.qdisc.kind() == "fq_codel" && self.route.has_filters(link.index, child.handle)?)
    }

    pub(super) fn write_root_qdisc(&self, link: &Link, qdisc: &Qdisc) -> Result<(), Failure> {
        if !qdisc.is_default() {
            return Ok(self.route.replace_qdisc(link.index, None, qdisc)?);
        }
        let all = self.route.qdiscs(link.index)?;
        if all.is_empty() || root_of(&all)?.handle == 0 {
            return Ok(());
        }
        Ok(self.route.delete_root_qdisc(link.index)?)
    }

    pub(super) fn write_queue_qdisc(
        &self,
        link: &Link,
        queue: u32,
        qdisc: &Qdisc,
    ) -> Result<(), Failure> {
        let all = self.route.qdiscs(link.index)?;
        let root = root_of(&all)?;
        let child = all.iter().find(|other| other.queue_under(root) == Some(queue));
        let child = child.ok_or_else(|| {
            Failure::unsupported(format!("mq has no transmit queue {queue} here"))
        })?;
        if root.handle == 0 {
            return Err(Failure::refused(
                "the kernel's own mq has no handle to reach its queues by: set qdisc=mq too",
            ));
        }
        if qdisc.kind().is_empty() {
            return Err(Failure::refused(
                "only the root has a default: name the discipline, or set qdisc=default",
            ));
        }
        if qdisc.is_default() {
            if child.handle == 0 {
                return Ok(());
            }
            let others: Vec<&Attached> = all
                .iter()
                .filter(|other| other.queue_under(root).is_some_and(|of| of != queue))
                .filter(|other| other.handle != 0)
                .collect();
            for other in &others {
                if other.qdisc.is_opaque() || self.has_more(link, &all, other)? {
                    let message = format!("`{}` of another queue would be lost", other.qdisc);
                    return Err(Failure::refused(message));
                }
            }
            // Removing it would leave the queue without any, and what is sent there would be dropped. A new
            // mq has the kernel's own under it. It takes the place of the old one under another handle first: under the same
            // one the kernel would change nothing.
            let in_between = root.qdisc.clone().with_handle(0);
            self.route.replace_qdisc(link.index, None, &in_between)?;
            self.route.replace_qdisc(link.index, None, &root.qdisc)?;
            for other in others {
                self.route.replace_qdisc(link.index, Some(other.parent), &other.qdisc)?;
            }
            return Ok(());
        }
        Ok(self.route.replace_qdisc(link.index, Some(child.parent), qdisc)?)
    }

    /// The discipline that the kernel gives to new interfaces. The sysctl is the first network namespace's, and shown there
    /// alone (`net/core/sysctl_net_core.c`).
    fn default_qdisc(&self) -> Result<String, Error> {
        let proc = &self.proc;
        let read = || Ok(proc.read("sys/net/core/default_qdisc")?.trim().to_owned());
        read().or_else(|_| Namespace::open(&proc.path("1/ns/net"))?.run_sockets_in(read)?)
    }

    /// Why the root, or those under it, cannot be set; `None` if they can.
    pub(super) fn qdisc_obstacle(
        &self,
        link: &Link,
        is_root: bool,
    ) -> Result<Option<String>, Failure> {
        let values =
            if is_root { self.read_root_qdisc(link)? } else { self.read_queue_qdiscs(link)? };
        let is_opaque = |value: &Value| matches!(value, Value::Qdisc(qdisc) if qdisc.is_opaque());
        if let Some((_, value)) = values.iter().find(|(_, value)| is_opaque(value)) {
            return Ok(Some(format!(
                "`{value}` has classes, filters or options that latput could not put back"
            )));
        }
        let kernels_own = values.iter().filter_map(|(_, value)| match value {
            Value::Qdisc(qdisc) if qdisc.is_default() && DEFAULTS.contains(&qdisc.kind()) => {
                Some(qdisc)
            }
            _ => None,
        });
        let kernels_own: Vec<&Qdisc> = kernels_own.collect();
        if !kernels_own.is_empty()
            && let Ok(now) = self.default_qdisc()
            && let Some(other) = kernels_own.into_iter().find(|qdisc| qdisc.kind() != now)
        {
            return Ok(Some(format!(
                "`{other}` could not be put back, for the default is {now} now (net.core.default_qdisc)"
            )));
        }
        let all = self.route.qdiscs(link.index)?;
        let is_unreachable = !is_root && root_of(&all)?.handle == 0;
        Ok(is_unreachable.then(|| {
            "the kernel's own mq has no handle to reach its queues by: set qdisc=mq first"
                .to_owned()
        }))
    }
}

/// Whether somebody has attached disciplines to one: those have a handle. tbf makes itself a plain queue without one
/// (`fifo_create_dflt`).
fn has_own_children(all: &[Attached], above: &Attached) -> bool {
    above.handle != 0
        && all.iter().any(|other| other.handle != 0 && other.queue_under(above).is_some())
}

fn root_of(all: &[Attached]) -> Result<&Attached, Failure> {
    all.iter().find(|attached| attached.is_root()).ok_or_else(|| {
        Failure::unsupported("no queue discipline is attached, as on an interface that is down")
    })
}
