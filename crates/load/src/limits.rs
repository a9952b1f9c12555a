//! The traffic that the engine can make; everything else is refused before a socket is opened.

use std::ops::RangeInclusive;

use latput_trial::{Direction, Probe, Traffic};
use latput_units::Bytes;

use crate::error::Error;

/// Largest message on TCP.
const LARGEST_MESSAGE: u64 = 16 << 20;

/// Refuses traffic that cannot be made. The bounds also keep a plan from taking all memory.
pub(crate) fn check(traffic: &Traffic) -> Result<(), Error> {
    const CONNECTIONS: (&str, &str) = ("the number of connections", "1 to 1000");
    const NOT_YET: &str = "a closed tcp_rr, a tcp_stream or a paced udp_stream on one thread";
    const MESSAGE: &str = "1B to 16MiB";
    match *traffic {
        Traffic::TcpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads: 1,
            arrivals: None,
            ..
        } => {
            within(request_bytes.get(), 1..=LARGEST_MESSAGE, ("request_bytes", MESSAGE))?;
            within(response_bytes.get(), 1..=LARGEST_MESSAGE, ("response_bytes", MESSAGE))?;
            within(burst.into(), 0..=65_535, ("burst", "0 to 65535"))?;
            within(connections.into(), 1..=1000, CONNECTIONS)
        }
        Traffic::TcpBulk {
            direction: Direction::ToSut,
            message_bytes,
            connections,
            threads: 1,
            rate: None,
        } => {
            within(message_bytes.get(), 1..=LARGEST_MESSAGE, ("message_bytes", MESSAGE))?;
            within(connections.into(), 1..=1000, CONNECTIONS)
        }
        Traffic::UdpStream {
            datagram_bytes, rate: Some(rate), connections: 1, threads: 1, ..
        } => {
            // 65507 = 65535 - 20 (IPv4 header) - 8 (UDP header).
            let datagram = ("datagram_bytes", "18B (sequence number and time) to 65507B");
            within(datagram_bytes.get(), 18..=65_507, datagram)?;
            within(rate.get(), 1..=1_000_000_000_000, ("rate", "1bps to 1000Gbps"))
        }
        _ => Err(Error::BadTraffic { what: "the traffic", allowed: NOT_YET }),
    }
}

/// Refuses a probe that cannot be sent.
pub(crate) fn check_probe(probe: Probe) -> Result<(), Error> {
    within(probe.rate_hz.into(), 1..=10_000, ("the probe's rate_hz", "1 to 10000"))
}

/// How many TCP connections the traffic has; a datagram load has one, to show the key on.
pub(crate) fn connections(traffic: &Traffic) -> usize {
    match *traffic {
        Traffic::TcpRr { connections, .. } | Traffic::TcpBulk { connections, .. } => {
            connections as usize
        }
        _ => 1,
    }
}

/// The size of a message on TCP, refused where none can be so large.
pub(crate) fn message(bytes: Bytes) -> Result<usize, Error> {
    within(bytes.get(), 1..=LARGEST_MESSAGE, ("the size of a message", "1B to 16MiB"))?;
    Ok(size(bytes))
}

/// A size that [`check`] let through.
pub(crate) fn size(bytes: Bytes) -> usize {
    usize::try_from(bytes.get()).expect("sizes are checked to be at most 16 MiB")
}

fn within(
    value: u64,
    range: RangeInclusive<u64>,
    (what, allowed): (&'static str, &'static str),
) -> Result<(), Error> {
    if range.contains(&value) { Ok(()) } else { Err(Error::BadTraffic { what, allowed }) }
}

#[cfg(test)]
mod tests {
    use latput_units::BitsPerSecond;

    use super::*;

    #[test]
    fn traffic_of_every_kind_is_bounded() {
        check_rr(1, 1, 0, 1, None);
        check_rr(1 << 24, 1 << 24, 65_535, 1000, None);
        check_rr(0, 1, 0, 1, Some("request_bytes"));
        check_rr(1, u64::MAX, 0, 1, Some("response_bytes"));
        check_rr(1, 1, u32::MAX, 1, Some("burst"));
        check_rr(1, 1, 0, 0, Some("the number of connections"));
        check_udp(18, 1, None);
        check_udp(17, 1, Some("datagram_bytes"));
        check_udp(65_508, 1, Some("datagram_bytes"));
        check_udp(1470, 0, Some("rate"));
        let stream = Traffic::tcp_stream(Bytes::new(0), 1);
        check_refused(stream, Some("message_bytes"));
    }

    #[track_caller]
    fn check_rr(request: u64, response: u64, burst: u32, connections: u32, bad: Option<&str>) {
        let traffic = Traffic::TcpRr {
            request_bytes: Bytes::new(request),
            response_bytes: Bytes::new(response),
            burst,
            connections,
            nodelay: true,
            threads: 1,
            arrivals: None,
        };
        check_refused(traffic, bad);
    }

    #[track_caller]
    fn check_udp(bytes: u64, rate: u64, bad: Option<&str>) {
        let datagram_bytes = Bytes::new(bytes);
        check_refused(Traffic::udp_stream(datagram_bytes, BitsPerSecond::new(rate)), bad);
    }

    #[track_caller]
    fn check_refused(traffic: Traffic, bad: Option<&str>) {
        match (check(&traffic), bad) {
            (Ok(()), None) => {}
            (Err(Error::BadTraffic { what, .. }), Some(bad)) => assert_eq!(what, bad),
            (result, _) => panic!("{traffic:?}: {result:?}"),
        }
    }
}
