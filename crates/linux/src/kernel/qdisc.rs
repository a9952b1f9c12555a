//! The queue disciplines of an interface as two knobs: the root, and those of the queues under `mq`.

use latput_knobs::{Place, Qdisc, Value};

use super::LinuxKernel;
use super::failure::Failure;
use super::read::Values;
use crate::route::Link;
use crate::route::qdisc::Attached;

impl LinuxKernel {
    pub(super) fn read_root_qdisc(&self, link: &Link) -> Result<Values, Failure> {
        let all = self.route.qdiscs(link.index)?;
        let root = root_of(&all)?;
        let mut qdisc = root.qdisc.clone();
        let is_mq = qdisc.kind() == "mq";
        // A change of any other root would lose its classes and filters.
        let has_children = !is_mq && all.iter().any(|other| other.queue_under(root).is_some());
        if has_children && root.handle != 0 && !has_own_children(&all, root)
            || self.route.has_filters(link.index, root.handle)?
        {
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
        let mut values: Values = all
            .iter()
            .filter_map(|other| {
                let queue = other.queue_under(root)?;
                Some((Place::TxQueue(queue), Value::Qdisc(other.qdisc.clone())))
            })
            .collect();
        values.sort_by_key(|(place, _)| *place);
        if values.is_empty() {
            return Err(Failure::unsupported("the kernel lists no queue discipline under mq"));
        }
        Ok(values)
    }

    pub(super) fn write_root_qdisc(&self, link: &Link, qdisc: &Qdisc) -> Result<(), Failure> {
        if !qdisc.is_default() {
            return Ok(self.route.replace_qdisc(link.index, None, qdisc)?);
        }
        let all = self.route.qdiscs(link.index)?;
        if root_of(&all)?.handle == 0 {
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
            // Removing it would leave the queue without any, and what is sent there would be dropped. A new
            // mq has the kernel's own under it; those of the other queues are put back after this.
            self.route.delete_root_qdisc(link.index)?;
            return Ok(self.route.replace_qdisc(link.index, None, &root.qdisc)?);
        }
        Ok(self.route.replace_qdisc(link.index, Some(child.parent), qdisc)?)
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
        let all = self.route.qdiscs(link.index)?;
        let is_unreachable = !is_root && root_of(&all)?.handle == 0;
        Ok(is_unreachable.then(|| {
            "the kernel's own mq has no handle to reach its queues by: set qdisc=mq first"
                .to_owned()
        }))
    }
}

/// tbf makes itself a plain queue (`fifo_create_dflt`), without a handle. What somebody attached has one.
fn has_own_children(all: &[Attached], root: &Attached) -> bool {
    let mut children = all.iter().filter(|other| other.queue_under(root).is_some());
    children.all(|child| child.handle == 0)
}

fn root_of(all: &[Attached]) -> Result<&Attached, Failure> {
    all.iter().find(|attached| attached.is_root()).ok_or_else(|| {
        Failure::unsupported(
            "no queue discipline is attached, as on an interface that has never been up",
        )
    })
}
