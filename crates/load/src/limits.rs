//! The traffic that the engine can make; everything else is refused before a socket is opened.

use std::ops::RangeInclusive;

use latput_trial::{Arrivals, Direction, Probe, Traffic, Workload};
use latput_units::{BitsPerSecond, Bytes, CpuSet};

use crate::clock::Window;
use crate::error::Error;

/// Largest message on TCP.
const LARGEST_MESSAGE: u64 = 16 << 20;

/// Largest payload of a datagram: 65535 - 20 (IPv4 header) - 8 (UDP, or ICMP, header).
const LARGEST_DATAGRAM: u64 = 65_507;
/// Most connections of one test.
const MOST_CONNECTIONS: u64 = 10_000;
/// Most threads at one end.
const MOST_THREADS: u64 = 256;

/// Refuses a workload that cannot be made. The bounds also keep a plan from taking all memory.
pub(crate) fn check(workload: &Workload) -> Result<(), Error> {
    const MESSAGE: &str = "1B to 16MiB";
    let message = |bytes: Bytes, what| within(bytes.get(), 1..=LARGEST_MESSAGE, (what, MESSAGE));
    workload.probe.map_or(Ok(()), check_probe)?;
    match workload.traffic {
        Traffic::TcpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            arrivals,
            ..
        } => {
            arrivals.map_or(Ok(()), check_arrivals)?;
            message(request_bytes, "request_bytes")?;
            message(response_bytes, "response_bytes")?;
            within(burst.into(), 0..=65_535, ("burst", "0 to 65535"))?;
            spread(connections, threads)
        }
        Traffic::TcpCrr { request_bytes, response_bytes, connections, threads, .. } => {
            message(request_bytes, "request_bytes")?;
            message(response_bytes, "response_bytes")?;
            spread(connections, threads)
        }
        Traffic::TcpBulk { message_bytes, connections, threads, rate, .. } => {
            message(message_bytes, "message_bytes")?;
            let rate = rate.map_or(1, BitsPerSecond::get);
            within(rate, 1..=1_000_000_000_000, ("rate", "1bps to 1000Gbps"))?;
            spread(connections, threads)
        }
        Traffic::Fetch { object_bytes, connections, threads } => {
            let object = ("object_bytes", "1B to 1TiB");
            within(object_bytes.get(), 1..=1 << 40, object)?;
            spread(connections, threads)
        }
        Traffic::RpcRead { clients, outstanding, read_bytes, think } => {
            message(read_bytes, "read_bytes")?;
            within(clients.into(), 1..=MOST_THREADS, ("the number of clients", "1 to 256"))?;
            within(outstanding.into(), 1..=1024, ("outstanding", "1 to 1024"))?;
            within(think.mean.as_ns(), 0..=1_000_000_000, ("think", "0s to 1s"))
        }
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } | Traffic::Ping { .. } => {
            check_datagrams(&workload.traffic)
        }
    }
}

/// Refuses a window with slices for a workload that ends when it has counted enough.
pub(crate) fn check_window(workload: &Workload, window: Window) -> Result<(), Error> {
    if workload.count.is_some() && window.slices().is_some() {
        return Err(Error::CountInSlices);
    }
    Ok(())
}

fn spread(connections: u32, threads: u32) -> Result<(), Error> {
    let of_connections = ("the number of connections", "1 to 10000");
    within(connections.into(), 1..=MOST_CONNECTIONS, of_connections)?;
    within(threads.into(), 1..=MOST_THREADS, ("the number of threads", "1 to 256"))
}

/// The same of the kinds that are not made of connections.
fn check_datagrams(traffic: &Traffic) -> Result<(), Error> {
    match *traffic {
        Traffic::UdpStream { datagram_bytes, rate, connections, threads, .. } => {
            let datagram = ("datagram_bytes", "18B (sequence number and time) to 65507B");
            within(datagram_bytes.get(), 18..=LARGEST_DATAGRAM, datagram)?;
            let rate = rate.map_or(1, BitsPerSecond::get);
            within(rate, 1..=1_000_000_000_000, ("rate", "1bps to 1000Gbps"))?;
            spread(connections, threads)
        }
        Traffic::UdpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            timeout,
            arrivals,
        } => {
            for (bytes, what) in
                [(request_bytes, "request_bytes"), (response_bytes, "response_bytes")]
            {
                within(bytes.get(), 32..=LARGEST_DATAGRAM, (what, "32B to 65507B"))?;
            }
            within(burst.into(), 0..=1023, ("burst", "0 to 1023"))?;
            within(timeout.as_ns(), 1_000_000..=10_000_000_000, ("timeout", "1ms to 10s"))?;
            arrivals.map_or(Ok(()), check_arrivals)?;
            spread(connections, threads)
        }
        Traffic::Ping { rate_hz, payload_bytes } => {
            within(rate_hz.into(), 1..=10_000, ("rate_hz", "1 to 10000"))?;
            let payload = ("payload_bytes", "16B (what tells an echo from others) to 65507B");
            within(payload_bytes.get(), 16..=LARGEST_DATAGRAM, payload)
        }
        _ => Ok(()),
    }
}

/// Refuses a probe that cannot be sent.
pub(crate) fn check_probe(probe: Probe) -> Result<(), Error> {
    within(probe.rate_hz.into(), 1..=10_000, ("the probe's rate_hz", "1 to 10000"))
}

/// Refuses an open loop that never sends.
fn check_arrivals(arrivals: Arrivals) -> Result<(), Error> {
    within(arrivals.rate_per_s.into(), 1..=100_000_000, ("rate_per_s", "1 to 100000000"))
}

/// Whether a trial in which nothing came to the reflector's application may be sound.
pub(crate) fn may_be_silent(traffic: &Traffic) -> bool {
    match traffic {
        Traffic::UdpStream { .. } | Traffic::Ping { .. } => true,
        Traffic::TcpRr { arrivals, .. } | Traffic::UdpRr { arrivals, .. } => arrivals.is_some(),
        _ => false,
    }
}

/// How many flows of datagrams there are, each with a socket at both ends.
pub(crate) fn flows(traffic: &Traffic) -> usize {
    match traffic {
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => connections(traffic),
        _ => 0,
    }
}

/// How many TCP connections show the key before the traffic starts: those of the traffic itself, one for
/// each flow of datagrams, one for each thread that opens its connections as it goes; one at least, whose
/// end is the end of the run.
pub(crate) fn connections(traffic: &Traffic) -> usize {
    match *traffic {
        Traffic::TcpBulk { connections, direction, .. } => {
            let ways = if direction == Direction::Both { 2 } else { 1 };
            ways * connections as usize
        }
        Traffic::TcpRr { connections, .. }
        | Traffic::UdpStream { connections, .. }
        | Traffic::UdpRr { connections, .. }
        | Traffic::Fetch { connections, .. } => connections as usize,
        Traffic::RpcRead { clients, .. } => clients as usize,
        Traffic::TcpCrr { .. } => threads(traffic),
        Traffic::Ping { .. } => 1,
    }
}

/// Whether `TCP_NODELAY` is set: nothing that waits for an answer should wait for Nagle's algorithm,
/// unless the workload says so.
pub(crate) fn nodelay(traffic: &Traffic) -> bool {
    match *traffic {
        Traffic::TcpRr { nodelay, .. } | Traffic::TcpCrr { nodelay, .. } => nodelay,
        Traffic::RpcRead { .. }
        | Traffic::Fetch { .. }
        | Traffic::UdpStream { .. }
        | Traffic::UdpRr { .. } => true,
        Traffic::TcpBulk { .. } | Traffic::Ping { .. } => false,
    }
}

/// Whether bulk flows from the system under test to the generator.
pub(crate) fn flows_back(traffic: &Traffic) -> bool {
    match traffic {
        Traffic::TcpBulk { direction, .. } => *direction != Direction::ToSut,
        Traffic::Fetch { .. } | Traffic::RpcRead { .. } => true,
        _ => false,
    }
}

/// Whether the traffic flows on the connections that showed the key, so that what they sent again is
/// what it sent again.
pub(crate) fn keeps_connections(traffic: &Traffic) -> bool {
    matches!(
        traffic,
        Traffic::TcpRr { .. }
            | Traffic::TcpBulk { .. }
            | Traffic::Fetch { .. }
            | Traffic::RpcRead { .. }
    )
}

/// How many connections with the key an end may have open at once.
pub(crate) fn descriptors(traffic: &Traffic) -> usize {
    match *traffic {
        // A client's next connection may come before its last is seen to be over.
        Traffic::TcpCrr { connections, .. } => 2 * connections as usize + threads(traffic),
        // Each flow has a socket beside the connection that shows the key.
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => 2 * connections(traffic),
        _ => connections(traffic),
    }
}

/// How many threads each end has: no more than there are connections for.
pub(crate) fn threads(traffic: &Traffic) -> usize {
    let (threads, connections) = match *traffic {
        Traffic::TcpCrr { threads, connections, .. } => (threads, connections as usize),
        Traffic::TcpRr { threads, .. }
        | Traffic::TcpBulk { threads, .. }
        | Traffic::UdpStream { threads, .. }
        | Traffic::UdpRr { threads, .. }
        | Traffic::Fetch { threads, .. } => (threads, connections(traffic)),
        Traffic::RpcRead { clients, .. } => (clients, clients as usize),
        Traffic::Ping { .. } => (1, 1),
    };
    (threads as usize).min(connections).max(1)
}

/// The CPUs of an end: those that the workload binds it to, or else all that are the host's. An empty
/// set of the host's CPUs is all there are.
pub(crate) fn cpus(host: CpuSet, binding: Option<&CpuSet>) -> Result<CpuSet, Error> {
    match binding {
        None => Ok(host),
        Some(asked) if host.is_empty() || asked.is_subset(&host) => Ok(asked.clone()),
        Some(asked) => Err(Error::NotItsCpus { asked: asked.clone(), host }),
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
    use latput_trial::{Distribution, Think};
    use latput_units::Nanos;

    use super::*;

    #[test]
    fn traffic_of_every_kind_is_bounded() {
        check_rr(1, 1, 0, 1, None);
        check_rr(1 << 24, 1 << 24, 65_535, 10_000, None);
        check_rr(1, 1, 0, 10_001, Some("the number of connections"));
        check_rr(0, 1, 0, 1, Some("request_bytes"));
        check_rr(1, u64::MAX, 0, 1, Some("response_bytes"));
        check_rr(1, 1, u32::MAX, 1, Some("burst"));
        check_rr(1, 1, 0, 0, Some("the number of connections"));
        check_udp(18, 1, None);
        check_udp(17, 1, Some("datagram_bytes"));
        check_udp(65_508, 1, Some("datagram_bytes"));
        check_udp(1470, 0, Some("rate"));
        check_refused(Traffic::tcp_stream(Bytes::new(0), 1), Some("message_bytes"));
        let fetch = |object_bytes, threads| Traffic::Fetch {
            object_bytes: Bytes::new(object_bytes),
            connections: 10_000,
            threads,
        };
        check_refused(fetch(1 << 40, 256), None);
        check_refused(fetch(0, 1), Some("object_bytes"));
        check_refused(fetch(1, 257), Some("the number of threads"));
        let read = |outstanding, mean| Traffic::RpcRead {
            clients: 3,
            outstanding,
            read_bytes: Bytes::new(32_768),
            think: Think { mean, distribution: Distribution::Fixed },
        };
        check_refused(read(1024, Nanos::from_s(1)), None);
        check_refused(read(0, Nanos::ZERO), Some("outstanding"));
        check_refused(read(1, Nanos::from_s(2)), Some("think"));
    }

    #[test]
    fn there_are_no_more_threads_than_connections() {
        let many = |connections, threads, direction| Traffic::TcpBulk {
            direction,
            message_bytes: Bytes::new(1),
            connections,
            threads,
            rate: None,
            vectored: true,
        };
        assert_eq!(threads(&many(8, 3, Direction::ToSut)), 3);
        assert_eq!(threads(&many(2, 3, Direction::ToSut)), 2);
        assert_eq!(threads(&many(2, 9, Direction::Both)), 4);
    }

    #[test]
    fn an_end_is_bound_within_its_host() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(cpus(set("0-3"), None).unwrap(), set("0-3"));
        assert_eq!(cpus(set("0-3"), Some(&set("1,3"))).unwrap(), set("1,3"));
        assert_eq!(cpus(CpuSet::new(), Some(&set("7"))).unwrap(), set("7"));
        let error = cpus(set("0-1"), Some(&set("1-2"))).unwrap_err();
        assert!(matches!(error, Error::NotItsCpus { .. }), "{error}");
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
        match (check(&Workload::plain("test", traffic)), bad) {
            (Ok(()), None) => {}
            (Err(Error::BadTraffic { what, .. }), Some(bad)) => assert_eq!(what, bad),
            (result, _) => panic!("{traffic:?}: {result:?}"),
        }
    }
}
