//! Queue disciplines over rtnetlink.
//!
//! Layouts: `include/uapi/linux/{rtnetlink,pkt_sched}.h`. How a request is understood:
//! `tc_modify_qdisc` in `net/sched/sch_api.c`.

mod options;

use latput_knobs::Qdisc;

use super::Route;
use crate::error::Error;
use crate::netlink::{Attributes, Malformed, NetlinkError, Request, malformed, uapi};

/// The parent of the root.
const ROOT: u32 = 0xffff_ffff;
/// The parent of the disciplines of received packets, `ingress` and `clsact`.
const INGRESS: u32 = 0xffff_fff1;
/// The bits of a handle that name the discipline; those below name one of its classes.
const MAJOR: u32 = 0xffff_0000;
/// `TCA_STATS_RATE_EST` (`include/uapi/linux/gen_stats.h`).
const RATE_ESTIMATE: u16 = 2;
/// Length of `struct tcmsg`.
const HEADER: usize = 20;

/// A queue discipline in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The interface's number.
    pub interface: u32,
    /// Its handle; 0 where the kernel attached it itself.
    pub handle: u32,
    /// The class that it hangs on, or the root.
    pub parent: u32,
    /// The queue discipline.
    pub qdisc: Qdisc,
}

impl Attached {
    /// Whether it is the root of what is sent.
    pub const fn is_root(&self) -> bool {
        self.parent == ROOT
    }

    /// The transmit queue that it serves, if it hangs on `mq`, whose classes count them from 1.
    pub fn queue_under(&self, root: &Self) -> Option<u32> {
        if self.is_root() || self.parent == INGRESS || self.parent & MAJOR != root.handle {
            return None;
        }
        (self.parent & !MAJOR).checked_sub(1)
    }
}

impl Route {
    /// The queue disciplines of an interface, without those of received packets. Empty on one that has
    /// never been up.
    pub fn qdiscs(&self, interface_index: u32) -> Result<Vec<Attached>, Error> {
        let request = Request::new(
            format!("list the queue disciplines of interface {interface_index}"),
            uapi::RTM_GETQDISC,
        )
        .dump()
        .header(&header(interface_index, 0, 0))
        .bytes(uapi::TCA_DUMP_INVISIBLE, &[]);
        let mut attached = Vec::new();
        for payload in self.0.exchange(&request)? {
            let parsed = parse_qdisc(&payload).map_err(|source| NetlinkError::Malformed {
                request: request.what().to_owned(),
                source,
            })?;
            // Older kernels list those of all interfaces.
            if parsed.interface == interface_index && parsed.parent != INGRESS {
                attached.push(parsed);
            }
        }
        Ok(attached)
    }

    /// Whether filters hang on a queue discipline: they go with it.
    pub fn has_filters(&self, interface_index: u32, handle: u32) -> Result<bool, Error> {
        let request = Request::new(
            format!("list the filters of interface {interface_index}"),
            uapi::RTM_GETTFILTER,
        )
        .dump()
        .header(&header(interface_index, 0, handle));
        match self.0.exchange(&request) {
            Ok(filters) => Ok(!filters.is_empty()),
            // A kernel without classifiers.
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Attaches a new queue discipline in the place of the one that is there: at the root, or at the
    /// class `parent` of `mq`. Packets that the old one held are dropped. It has the handle that `qdisc`
    /// names, unless another discipline has that.
    pub(crate) fn replace_qdisc(
        &self,
        interface_index: u32,
        parent: Option<u32>,
        qdisc: &Qdisc,
    ) -> Result<(), Error> {
        let parent = parent.unwrap_or(ROOT);
        let mut attached = self.qdiscs(interface_index)?;
        let free = free_handle(&attached);
        // All others go with the root.
        attached.retain(|other| parent != ROOT && other.parent != parent);
        let wanted = qdisc.handle().map(|major| u32::from(major) << 16);
        let is_free = |handle: &u32| attached.iter().all(|other| other.handle != *handle);
        let handle = wanted.filter(is_free).unwrap_or(free);
        let request = replacement(interface_index, handle, parent, qdisc)?;
        self.0.exchange(&request)?;
        Ok(())
    }

    /// Why the kernel's options cannot hold a queue discipline's; `None` if they can.
    pub(crate) fn options_obstacle(qdisc: &Qdisc) -> Option<String> {
        if qdisc.is_default() { None } else { options::encode(qdisc).err() }
    }

    /// Removes the root, upon which the kernel attaches its default.
    pub(crate) fn delete_root_qdisc(&self, interface_index: u32) -> Result<(), Error> {
        let request = Request::new(
            format!("remove the root queue discipline of interface {interface_index}"),
            uapi::RTM_DELQDISC,
        )
        .header(&header(interface_index, 0, ROOT));
        self.0.exchange(&request)?;
        Ok(())
    }
}

/// A handle that none of them has, below those that the kernel gives out (0x8000 and up).
fn free_handle(taken: &[Attached]) -> u32 {
    let mut handles = (0x7000_u32..0x8000).map(|major| major << 16);
    let is_taken = |handle: &u32| taken.iter().any(|attached| attached.handle == *handle);
    handles.find(|handle| !is_taken(handle)).unwrap_or(0)
}

/// With a handle of its own: without, the kernel changes the old discipline in place where its kind is
/// the same, and that keeps parameters which are not named.
fn replacement(
    interface_index: u32,
    handle: u32,
    parent: u32,
    qdisc: &Qdisc,
) -> Result<Request, Error> {
    let options = options::encode(qdisc).map_err(Error::Other)?;
    let mut request =
        Request::new(format!("attach {qdisc} to interface {interface_index}"), uapi::RTM_NEWQDISC)
            .create_or_replace()
            .header(&header(interface_index, handle, parent))
            .text(uapi::TCA_KIND, qdisc.kind());
    if let Some(options) = options {
        request = request.bytes(uapi::TCA_OPTIONS, &options);
    }
    Ok(request)
}

/// `struct tcmsg`.
fn header(interface_index: u32, handle: u32, parent: u32) -> Vec<u8> {
    let words = [0, interface_index, handle, parent, 0];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(payload: &[u8]) {
    let _ = parse_qdisc(payload);
}

fn parse_qdisc(payload: &[u8]) -> Result<Attached, Malformed> {
    let short = malformed("a queue discipline's header is cut short");
    let (head, attributes) = payload.split_at_checked(HEADER).ok_or(short)?;
    let (words, _) = head.as_chunks::<4>();
    let [_, interface, handle, parent, _] = words else { return Err(short) };
    let [interface, handle, parent] = [*interface, *handle, *parent].map(u32::from_ne_bytes);
    let mut kind = None;
    let mut options = &[][..];
    let mut is_opaque = false;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::TCA_KIND => kind = Some(attribute.as_text()),
            uapi::TCA_OPTIONS => options = attribute.payload,
            uapi::TCA_STATS
            | uapi::TCA_XSTATS
            | uapi::TCA_FCNT
            | uapi::TCA_PAD
            | uapi::TCA_DUMP_INVISIBLE
            | uapi::TCA_CHAIN
            | uapi::TCA_HW_OFFLOAD
            | uapi::TCA_EXT_WARN_MSG => {}
            // A rate estimator is seen by what it has counted.
            uapi::TCA_STATS2 => {
                let estimate = attribute.nested().find_kind(RATE_ESTIMATE)?;
                is_opaque |= estimate.is_some();
            }
            // A size table, a block that is shared, and what a later kernel has.
            _ => is_opaque |= !attribute.payload.is_empty(),
        }
    }
    let kind = kind.ok_or(malformed("a queue discipline without a kind"))?;
    let qdisc = options::decode(&kind, options)?;
    let qdisc = if is_opaque { qdisc.into_opaque() } else { qdisc };
    let qdisc = match u16::try_from(handle >> 16).unwrap_or(0) {
        0 => qdisc.into_default(),
        major => qdisc.with_handle(major),
    };
    Ok(Attached { interface, handle, parent, qdisc })
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::super::super::netlink::message::put;
    use super::*;

    #[test]
    fn discipline_is_read_with_its_place() {
        let mut payload = header(7, 0x8001_0000, ROOT);
        put(&mut payload, uapi::TCA_KIND, b"pfifo\0");
        put(&mut payload, uapi::TCA_OPTIONS, &100_u32.to_ne_bytes());
        let root = parse_qdisc(&payload).unwrap();
        assert!(root.is_root() && root.queue_under(&root).is_none());
        assert_eq!(root.qdisc.to_string(), "pfifo limit=100");
        let mut payload = header(7, 0, 0x8001_0003);
        put(&mut payload, uapi::TCA_KIND, b"cake\0");
        let child = parse_qdisc(&payload).unwrap();
        assert_eq!(child.queue_under(&root), Some(2));
        assert_eq!(child.qdisc.to_string(), "default other:cake");
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn replacement_has_the_golden_bytes() {
        let taken = parse_qdisc(&{
            let mut payload = header(7, 0x7000_0000, ROOT);
            put(&mut payload, uapi::TCA_KIND, b"mq\0");
            payload
        });
        let handle = free_handle(&[taken.unwrap()]);
        let request = replacement(7, handle, ROOT, &"pfifo limit=100".parse().unwrap()).unwrap();
        #[rustfmt::skip]
        let golden = [
            56, 0, 0, 0, 36, 0, 5, 5, 1, 0, 0, 0, 0, 0, 0, 0, // new, request, ack, create|replace
            0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0x70, 255, 255, 255, 255, 0, 0, 0, 0,
            10, 0, 1, 0, b'p', b'f', b'i', b'f', b'o', 0, 0, 0,
            8, 0, 2, 0, 100, 0, 0, 0,
        ];
        assert_eq!(request.to_bytes(1), golden);
    }

    #[test]
    fn truncated_and_random_answers_never_panic() {
        let kinds = ["fq_codel", "fq", "tbf", "netem", "pfifo", "codel", "mq"];
        let mut rng = SeededRng::from_seed(5);
        for kind in kinds {
            for length in 0..160_usize {
                let options: Vec<u8> =
                    (0..length).map(|_| u8::try_from(rng.next_below(24)).unwrap()).collect();
                let mut payload = header(1, 0, ROOT);
                put(&mut payload, uapi::TCA_KIND, &[kind.as_bytes(), b"\0"].concat());
                put(&mut payload, uapi::TCA_OPTIONS, &options);
                parse_any(&payload);
                parse_any(&payload[..payload.len() - length.min(payload.len())]);
            }
        }
    }
}
