//! Checks whether a setting would hold packets back until a receive ring is full.
//!
//! While an interrupt or a poll is held back, nothing empties the ring, so the packets that arrive
//! meanwhile must fit. At most the link's rate in packets of the workload's size can arrive, or the
//! workload's offered rate or its packets in flight, if that is less. All of them may fall on one
//! queue.
//!
//! On the wire an Ethernet frame takes its payload, at least 46 byte, and 38 more: header, check
//! sequence, preamble and gap (IEEE 802.3, clauses 3 and 4.4.2).

#![warn(clippy::wildcard_enum_match_arm)]

use latput_knobs::{Knob, Setting, State, Value};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::observation::Role;
use crate::results::LabelledSetting;
use crate::workload::{Direction, Traffic, Workload};

/// Bytes on the wire around a frame's payload, and the least payload.
const AROUND: u64 = 38;
const LEAST_PAYLOAD: u64 = 46;
/// Headers of TCP (with timestamps) and of UDP inside an IPv4 packet.
const TCP: u64 = 52;
const UDP: u64 = 28;
/// The knobs that decide how long a ring must hold packets.
const KNOBS: [Knob; 7] = [
    Knob::Mtu,
    Knob::RxRing,
    Knob::AdaptiveRx,
    Knob::RxUsecs,
    Knob::RxFrames,
    Knob::GroFlushTimeout,
    Knob::NapiDeferHardIrqs,
];

/// The known receive side of a host before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveSide {
    /// The host's name.
    pub host: String,
    /// Its role.
    pub role: Role,
    /// The speed of its link; `None` if the driver does not report it.
    pub link: Option<BitsPerSecond>,
    /// Today's values of the knobs that matter, without those that the interface lacks.
    pub today: Setting,
}

impl ReceiveSide {
    /// From the values read of a host.
    pub fn new(host: String, role: Role, link: Option<BitsPerSecond>, state: &State) -> Self {
        let mut today = Setting::new();
        for ((knob, _), value) in state.0.iter().filter(|((knob, _), _)| KNOBS.contains(knob)) {
            // Of several queues the one with the longest wait.
            let longest = today.entry(*knob).or_insert_with(|| value.clone());
            if *value > *longest {
                *longest = value.clone();
            }
        }
        Self { host, role, link, today }
    }

    /// The reason, with the arithmetic, why `setting` must not be tried under these workloads.
    /// `None` if the ring holds all packets that can arrive, or its size or the link's speed is
    /// unknown.
    pub fn overrun(&self, setting: &LabelledSetting, workloads: &[Workload]) -> Option<String> {
        let link = self.link.filter(|link| link.get() > 0)?;
        let value = |knob| {
            let wanted = setting.by_role.get(&self.role).and_then(|set| set.get(&knob));
            wanted.or_else(|| self.today.get(&knob))
        };
        let count = |knob| match value(knob) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        };
        let ring = count(Knob::RxRing)?;
        let mtu = count(Knob::Mtu).unwrap_or(1_500);
        let (knob, delay) = longest_wait(value, ring)?;
        workloads.iter().find_map(|workload| {
            let arriving = Arriving::from_traffic(&workload.traffic, self.role, link, mtu)?;
            let full = arriving.pps * delay.as_secs_f64();
            let held = arriving.in_flight.map_or(full, |most| full.min(most as f64));
            (held > ring as f64).then(|| {
                let fill = Nanos::from_secs_f64(ring as f64 / arriving.pps);
                let longest = Nanos::from_us(fill.as_ns() / 1_000);
                format!(
                    "`{knob}` of {delay} would overrun the receive ring of {}: `{}` can bring {:.0} packets/s \
                     of {} byte at {link}. That is {held:.0} packets in {delay}, and the ring holds {ring}. \
                     Use at most {longest}, or a larger `{}`",
                    self.host, workload.name, arriving.pps, arriving.frame, Knob::RxRing
                )
            })
        })
    }
}

/// The knob that lets packets wait longest, and its time. Deferred polls come every
/// `gro-flush-timeout`, however often they are deferred. Adaptive moderation chooses its own delay,
/// and `rx-frames` interrupts earlier.
fn longest_wait<'a>(value: impl Fn(Knob) -> Option<&'a Value>, ring: u64) -> Option<(Knob, Nanos)> {
    let time = |knob| match value(knob) {
        Some(Value::Time(time)) => Some((knob, *time)),
        _ => None,
    };
    let is_adaptive = value(Knob::AdaptiveRx) == Some(&Value::Switch(true));
    let is_cut_short =
        matches!(value(Knob::RxFrames), Some(Value::Count(frames)) if (1..=ring).contains(frames));
    let interrupt = time(Knob::RxUsecs).filter(|_| !is_adaptive && !is_cut_short);
    let is_deferred =
        matches!(value(Knob::NapiDeferHardIrqs), Some(Value::Count(count)) if *count > 0);
    let poll = time(Knob::GroFlushTimeout).filter(|_| is_deferred);
    let waits = interrupt.into_iter().chain(poll);
    waits.max_by_key(|(_, delay)| *delay).filter(|(_, delay)| *delay > Nanos::ZERO)
}

/// The highest packet rate that traffic can bring to a host.
struct Arriving {
    pps: f64,
    /// Bytes of a frame with its header and check sequence.
    frame: u64,
    /// Packets that can be in flight at once, if a closed loop limits them.
    in_flight: Option<u64>,
}

impl Arriving {
    fn from_traffic(traffic: &Traffic, to: Role, link: BitsPerSecond, mtu: u64) -> Option<Self> {
        let segment = mtu.saturating_sub(TCP).max(1);
        let segments = |bytes: Bytes| bytes.get().div_ceil(segment).max(1);
        let exchange = |in_flight: u64, request: Bytes, response: Bytes, header: u64| {
            let bytes = if to == Role::Sut { request } else { response };
            let in_flight = in_flight.saturating_mul(segments(bytes));
            Self::at_link_rate(link, bytes.get().saturating_add(header).min(mtu), Some(in_flight))
        };
        // The end that receives no bulk gets acknowledgements, one for two segments (RFC 5681).
        let bulk = |is_to_us: bool, rate: Option<BitsPerSecond>| {
            let most = Self::at_link_rate(link, mtu, None);
            let offered =
                rate.map_or(f64::INFINITY, |rate| rate.get() as f64 / 8.0 / segment as f64);
            let pps = most.pps.min(offered);
            if is_to_us { Self { pps, ..most } } else { Self { pps: pps / 2.0, frame: 70, ..most } }
        };
        Some(match *traffic {
            Traffic::TcpRr {
                request_bytes, response_bytes, burst, connections, arrivals, ..
            } => {
                let in_flight = u64::from(connections) * (u64::from(burst) + 1);
                let closed = exchange(in_flight, request_bytes, response_bytes, TCP);
                closed.paced(arrivals.map(|arrivals| arrivals.rate_per_s))
            }
            Traffic::UdpRr {
                request_bytes, response_bytes, burst, connections, arrivals, ..
            } => {
                let in_flight = u64::from(connections) * (u64::from(burst) + 1);
                let closed = exchange(in_flight, request_bytes, response_bytes, UDP);
                closed.paced(arrivals.map(|arrivals| arrivals.rate_per_s))
            }
            // A transaction also has the packets that open and close its connection.
            Traffic::TcpCrr { request_bytes, response_bytes, connections, .. } => {
                exchange(4 * u64::from(connections), request_bytes, response_bytes, TCP)
            }
            Traffic::TcpBulk { direction, rate, .. } => {
                let other = if to == Role::Sut { Direction::FromSut } else { Direction::ToSut };
                bulk(direction != other, rate)
            }
            Traffic::UdpStream { datagram_bytes, rate, .. } if to == Role::Sut => {
                let packet = datagram_bytes.get().saturating_add(UDP);
                let fragments = packet.div_ceil(mtu.max(1)).max(1) as f64;
                let offered = rate.map_or(f64::INFINITY, |rate| {
                    rate.get() as f64 / 8.0 / datagram_bytes.get().max(1) as f64 * fragments
                });
                let most = Self::at_link_rate(link, packet.min(mtu), None);
                Self { pps: most.pps.min(offered), ..most }
            }
            Traffic::Fetch { .. } => bulk(to == Role::Generator, None),
            Traffic::RpcRead { clients, outstanding, read_bytes, .. } => exchange(
                u64::from(clients) * u64::from(outstanding),
                Bytes::new(128),
                read_bytes,
                TCP,
            ),
            Traffic::Ping { .. } | Traffic::UdpStream { .. } | Traffic::Command | Traffic::Live => {
                return None;
            }
        })
    }

    /// IP packets of the given size, back to back.
    fn at_link_rate(link: BitsPerSecond, packet_bytes: u64, in_flight: Option<u64>) -> Self {
        let payload = packet_bytes.max(LEAST_PAYLOAD);
        let pps = link.get() as f64 / 8.0 / (payload + AROUND) as f64;
        Self { pps, frame: payload + 18, in_flight }
    }

    /// An open loop sends no faster than its requests are due.
    fn paced(self, rate_per_s: Option<u32>) -> Self {
        match rate_per_s {
            None => self,
            Some(rate) => Self { pps: self.pps.min(f64::from(rate)), in_flight: None, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn arithmetic_of_a_refusal_is_shown() {
        // 64-byte frames at 10 Gbit/s are 14.88 million a second: 68 us fill 1024 descriptors.
        let datagrams = Traffic::UdpStream {
            datagram_bytes: Bytes::new(18),
            rate: None,
            connections: 1,
            threads: 1,
            segmentation: true,
        };
        let refusal = refusal(&[(Knob::RxUsecs, time(100))], 10 * GBIT, datagrams).unwrap();
        for part in [
            "`rx-usecs` of 100us",
            "14880952 packets/s of 64 byte",
            "1488 packets in 100us",
            "the ring holds 1024",
            "Use at most 68",
            "`rx-ring`",
        ] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
    }

    #[test]
    fn what_fits_the_ring_may_be_tried() {
        let bulk = Traffic::tcp_stream(Bytes::new(32_768), 1);
        // 812 744 full frames a second at 10 Gbit/s: 1.26 ms fill the ring.
        check(&[(Knob::RxUsecs, time(1_200))], bulk, false);
        check(&[(Knob::RxUsecs, time(1_300))], bulk, true);
        check(&[(Knob::RxUsecs, time(1_300)), (Knob::RxRing, Value::Count(4096))], bulk, false);
        check(
            &[(Knob::RxUsecs, time(1_300)), (Knob::AdaptiveRx, Value::Switch(true))],
            bulk,
            false,
        );
        check(&[(Knob::RxUsecs, time(1_300)), (Knob::RxFrames, Value::Count(64))], bulk, false);
        check(&[(Knob::RxUsecs, time(1_300)), (Knob::Mtu, Value::Count(9000))], bulk, false);
        // Deferral needs both of its knobs.
        check(&[(Knob::GroFlushTimeout, time(2_000))], bulk, false);
        let deferred =
            [(Knob::GroFlushTimeout, time(2_000)), (Knob::NapiDeferHardIrqs, Value::Count(1))];
        check(&deferred, bulk, true);
        // These few are never in flight.
        check(&deferred, Traffic::tcp_rr(16), false);
        check(&deferred, Traffic::tcp_rr(2_000), true);
        let slow = Traffic::udp_stream(Bytes::new(1470), BitsPerSecond::new(GBIT / 10));
        check(&deferred, slow, false);
    }

    #[test]
    fn without_ring_or_speed_nothing_is_refused() {
        let bulk = Traffic::tcp_stream(Bytes::new(32_768), 1);
        let wanted = [(Knob::RxUsecs, time(100_000))];
        assert!(refusal(&wanted, 0, bulk).is_none());
        let mut side = side(10 * GBIT);
        side.today.remove(&Knob::RxRing);
        assert!(side.overrun(&labelled(&wanted), &[Workload::plain("w", bulk)]).is_none());
    }

    #[track_caller]
    fn check(wanted: &[(Knob, Value)], traffic: Traffic, expected: bool) {
        let refusal = refusal(wanted, 10 * GBIT, traffic);
        assert_eq!(refusal.is_some(), expected, "{refusal:?}");
    }

    fn refusal(wanted: &[(Knob, Value)], link: u64, traffic: Traffic) -> Option<String> {
        side(link).overrun(&labelled(wanted), &[Workload::plain("w", traffic)])
    }

    fn labelled(wanted: &[(Knob, Value)]) -> LabelledSetting {
        let setting: Setting = wanted.iter().cloned().collect();
        LabelledSetting { label: String::new(), by_role: BTreeMap::from([(Role::Sut, setting)]) }
    }

    fn side(link: u64) -> ReceiveSide {
        use latput_knobs::Place;
        let state = State(BTreeMap::from([
            ((Knob::RxRing, Place::Device), Value::Count(1024)),
            ((Knob::Tso, Place::Device), Value::Switch(true)),
        ]));
        ReceiveSide::new("server".to_owned(), Role::Sut, Some(BitsPerSecond::new(link)), &state)
    }

    fn time(us: u64) -> Value {
        Value::Time(Nanos::from_us(us))
    }
}
