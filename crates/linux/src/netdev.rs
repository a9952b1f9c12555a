//! NAPI instances and their settings, over the netdev generic netlink family.
//!
//! Semantics: `Documentation/netlink/specs/netdev.yaml`.

use latput_units::Nanos;

use crate::error::Error;
use crate::netlink::{Attributes, Generic, Malformed, NetlinkError, malformed, uapi};

/// One NAPI instance. What this kernel does not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Napi {
    /// The kernel's number; changes whenever queues are recreated.
    pub id: u32,
    /// The lowest receive queue that it serves; `None` if it serves none.
    pub rx_queue: Option<u32>,
    /// Process id of its kernel thread, where it is threaded.
    pub pid: Option<u32>,
    /// `defer-hard-irqs`, a number of polls.
    pub defer_hard_irqs: Option<u64>,
    /// `gro-flush-timeout`.
    pub gro_flush_timeout: Option<Nanos>,
    /// `irq-suspend-timeout`.
    pub irq_suspend_timeout: Option<Nanos>,
    /// Its interrupt, where the driver tells.
    pub irq: Option<u32>,
    /// `threaded`: 0 off, 1 on, 2 busy polling.
    pub threaded: Option<u64>,
}

/// A setting of a NAPI instance to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NapiChange {
    /// `defer-hard-irqs`, a number of polls.
    DeferHardIrqs(u64),
    /// `gro-flush-timeout`, in nanoseconds.
    GroFlushTimeout(u64),
    /// `irq-suspend-timeout`, in nanoseconds.
    IrqSuspendTimeout(u64),
    /// `threaded`.
    Threaded(bool),
}

/// A socket to the netdev family: acts in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netdev(Generic);

impl Netdev {
    /// Opens the socket. Kernels before 6.8 have no NAPI in the family.
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Generic::open("netdev")?))
    }

    /// Whether NAPI settings can be changed one by one (Linux 6.13).
    pub fn can_set_napi(&self) -> bool {
        self.0.has_command(uapi::NETDEV_CMD_NAPI_SET)
    }

    /// The NAPI instances of an interface in ascending order of receive queue; those without one
    /// last. Empty while the interface is down, and on a veth while GRO is off.
    pub fn napis(&self, interface_index: u32) -> Result<Vec<Napi>, Error> {
        let what = format!("list the NAPI instances of interface {interface_index}");
        let request = self
            .0
            .request(what.clone(), uapi::NETDEV_CMD_NAPI_GET)
            .dump()
            .u32(uapi::NETDEV_A_NAPI_IFINDEX, interface_index);
        let at = |source| NetlinkError::Malformed { request: what.clone(), source };
        let mut napis = Vec::new();
        for message in self.0.exchange(&request)? {
            napis.push(parse_napi(&message).map_err(at)?);
        }
        assign_rx_queues(&mut napis, &self.rx_queues(interface_index)?);
        Ok(napis)
    }

    /// Changes one setting of one NAPI instance.
    pub(crate) fn set_napi(&self, id: u32, change: NapiChange) -> Result<(), Error> {
        let (name, attribute, value) = match change {
            NapiChange::DeferHardIrqs(polls) => {
                ("defer-hard-irqs", uapi::NETDEV_A_NAPI_DEFER_HARD_IRQS, polls)
            }
            NapiChange::GroFlushTimeout(ns) => {
                ("gro-flush-timeout", uapi::NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, ns)
            }
            NapiChange::IrqSuspendTimeout(ns) => {
                ("irq-suspend-timeout", uapi::NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT, ns)
            }
            NapiChange::Threaded(on) => ("threaded", uapi::NETDEV_A_NAPI_THREADED, u64::from(on)),
        };
        let request = self
            .0
            .request(format!("set {name} of NAPI {id} to {value}"), uapi::NETDEV_CMD_NAPI_SET)
            .u32(uapi::NETDEV_A_NAPI_ID, id);
        // `defer-hard-irqs` and `threaded` are declared u32 and refuse eight bytes; a value that does
        // not fit is sent long so that the kernel and not a truncation decides.
        self.0.exchange(&request.uint(attribute, value))?;
        Ok(())
    }

    fn rx_queues(&self, interface_index: u32) -> Result<Vec<RxQueue>, Error> {
        let what = format!("list the queues of interface {interface_index}");
        let request = self
            .0
            .request(what.clone(), uapi::NETDEV_CMD_QUEUE_GET)
            .dump()
            .u32(uapi::NETDEV_A_QUEUE_IFINDEX, interface_index);
        let mut queues = Vec::new();
        for message in self.0.exchange(&request)? {
            let queue = parse_rx_queue(&message)
                .map_err(|source| NetlinkError::Malformed { request: what.clone(), source })?;
            queues.extend(queue);
        }
        Ok(queues)
    }
}

/// A receive queue and the NAPI instance that serves it, if the driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RxQueue {
    number: u32,
    napi: Option<u32>,
}

/// Fills in the receive queue of each instance and sorts by it.
///
/// Some drivers, veth among them, do not tell the kernel which queue an instance serves. Where there
/// are just as many instances as receive queues, they are matched in order: ids are given out in
/// ascending order, and drivers make the instances in the order of the queues.
fn assign_rx_queues(napis: &mut [Napi], queues: &[RxQueue]) {
    napis.sort_by_key(|napi| napi.id);
    if queues.iter().all(|queue| queue.napi.is_none()) {
        if napis.len() == queues.len() {
            let mut numbers: Vec<u32> = queues.iter().map(|queue| queue.number).collect();
            numbers.sort_unstable();
            for (napi, number) in napis.iter_mut().zip(numbers) {
                napi.rx_queue = Some(number);
            }
        }
        return;
    }
    for napi in napis.iter_mut() {
        let served = queues.iter().filter(|queue| queue.napi == Some(napi.id));
        napi.rx_queue = served.map(|queue| queue.number).min();
    }
    napis.sort_by_key(|napi| (napi.rx_queue.is_none(), napi.rx_queue, napi.id));
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(attributes: &[u8]) {
    let _ = (parse_napi(attributes), parse_rx_queue(attributes));
}

fn parse_napi(attributes: &[u8]) -> Result<Napi, Malformed> {
    let mut napi = Napi::default();
    let mut id = None;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NETDEV_A_NAPI_ID => id = Some(attribute.as_u32()?),
            uapi::NETDEV_A_NAPI_PID => napi.pid = Some(attribute.as_u32()?),
            uapi::NETDEV_A_NAPI_DEFER_HARD_IRQS => {
                napi.defer_hard_irqs = Some(attribute.as_uint()?);
            }
            uapi::NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT => {
                napi.gro_flush_timeout = Some(Nanos::from_ns(attribute.as_uint()?));
            }
            uapi::NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT => {
                napi.irq_suspend_timeout = Some(Nanos::from_ns(attribute.as_uint()?));
            }
            uapi::NETDEV_A_NAPI_IRQ => napi.irq = Some(attribute.as_u32()?),
            uapi::NETDEV_A_NAPI_THREADED => napi.threaded = Some(attribute.as_uint()?),
            _ => {}
        }
    }
    napi.id = id.ok_or(malformed("a NAPI instance without an id"))?;
    Ok(napi)
}

/// `None` for a transmit queue.
fn parse_rx_queue(attributes: &[u8]) -> Result<Option<RxQueue>, Malformed> {
    let mut number = None;
    let mut kind = None;
    let mut napi = None;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::NETDEV_A_QUEUE_ID => number = Some(attribute.as_u32()?),
            uapi::NETDEV_A_QUEUE_TYPE => kind = Some(attribute.as_u32()?),
            uapi::NETDEV_A_QUEUE_NAPI_ID => napi = Some(attribute.as_u32()?),
            _ => {}
        }
    }
    let number = number.ok_or(malformed("a queue without a number"))?;
    let kind = kind.ok_or(malformed("a queue without a type"))?;
    Ok((kind == uapi::NETDEV_QUEUE_TYPE_RX).then_some(RxQueue { number, napi }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::put;

    #[test]
    fn napi_keeps_missing_apart_from_zero() {
        let mut bytes = Vec::new();
        put(&mut bytes, uapi::NETDEV_A_NAPI_ID, &260_u32.to_ne_bytes());
        put(&mut bytes, uapi::NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT, &50_000_u32.to_ne_bytes());
        let napi = parse_napi(&bytes).unwrap();
        assert_eq!(napi.gro_flush_timeout, Some(Nanos::from_us(50)));
        assert_eq!((napi.id, napi.defer_hard_irqs, napi.pid), (260, None, None));
        assert!(parse_napi(&[]).is_err());
    }

    #[test]
    fn only_receive_queues_count() {
        let served = RxQueue { number: 3, napi: Some(9) };
        check_queue(
            &[
                (uapi::NETDEV_A_QUEUE_ID, 3),
                (uapi::NETDEV_A_QUEUE_TYPE, 0),
                (uapi::NETDEV_A_QUEUE_NAPI_ID, 9),
            ],
            Ok(Some(served)),
        );
        let alone = RxQueue { number: 3, napi: None };
        check_queue(
            &[(uapi::NETDEV_A_QUEUE_ID, 3), (uapi::NETDEV_A_QUEUE_TYPE, 0)],
            Ok(Some(alone)),
        );
        check_queue(
            &[
                (uapi::NETDEV_A_QUEUE_ID, 3),
                (uapi::NETDEV_A_QUEUE_TYPE, 1),
                (uapi::NETDEV_A_QUEUE_NAPI_ID, 9),
            ],
            Ok(None),
        );
        check_queue(&[(uapi::NETDEV_A_QUEUE_ID, 3)], Err(malformed("a queue without a type")));
    }

    #[test]
    fn instances_are_known_by_lowest_queue() {
        check_assignment(&[9, 8], &[(0, Some(8)), (1, Some(9))], &[(8, Some(0)), (9, Some(1))]);
        check_assignment(&[9, 8], &[(1, None), (0, None)], &[(8, Some(0)), (9, Some(1))]);
        check_assignment(&[9, 8], &[(0, None)], &[(8, None), (9, None)]);
        check_assignment(&[5, 6], &[(3, Some(6)), (2, Some(6))], &[(6, Some(2)), (5, None)]);
        check_assignment(&[], &[(0, None)], &[]);
    }

    #[track_caller]
    fn check_assignment(
        napis: &[u32],
        queues: &[(u32, Option<u32>)],
        expected: &[(u32, Option<u32>)],
    ) {
        let mut napis: Vec<Napi> = napis.iter().map(|&id| Napi { id, ..Napi::default() }).collect();
        let queues: Vec<RxQueue> =
            queues.iter().map(|&(number, napi)| RxQueue { number, napi }).collect();
        assign_rx_queues(&mut napis, &queues);
        let assigned: Vec<_> = napis.iter().map(|napi| (napi.id, napi.rx_queue)).collect();
        assert_eq!(assigned, expected);
    }

    #[track_caller]
    fn check_queue(attributes: &[(u16, u32)], expected: Result<Option<RxQueue>, Malformed>) {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            put(&mut bytes, *kind, &value.to_ne_bytes());
        }
        assert_eq!(parse_rx_queue(&bytes), expected);
    }
}
