//! Resources that a workload needs: connections, threads, descriptors and CPUs. A workload out of
//! range is refused before a socket is opened. The ranges are those of the fields in
//! `latput-trial`.

use latput_trial::workload::PROBE_HZ;
use latput_trial::{Direction, Probe, Traffic, Workload};
use latput_units::{Bytes, CpuSet};

use crate::clock::Window;
use crate::error::Error;

/// Refuses a workload that is out of range. The ranges also bound the memory of a plan.
pub(crate) fn check(workload: &Workload) -> Result<(), Error> {
    workload.probe.map_or(Ok(()), check_probe)?;
    Ok(workload.traffic.check()?)
}

/// Refuses slices for a workload that ends after a count.
pub(crate) fn check_window(workload: &Workload, window: Window) -> Result<(), Error> {
    if workload.count.is_some() && window.slices().is_some() {
        return Err(Error::CountInSlices);
    }
    Ok(())
}

/// Refuses a probe that is out of range.
pub(crate) fn check_probe(probe: Probe) -> Result<(), Error> {
    Ok(PROBE_HZ.check(probe.rate_hz.into())?)
}

/// Whether a trial may be valid although the reflector received no data.
pub(crate) fn may_be_silent(traffic: &Traffic) -> bool {
    match traffic {
        Traffic::UdpStream { .. } | Traffic::Ping { .. } => true,
        _ => traffic.arrivals().is_some(),
    }
}

/// Number of datagram flows, each with a socket at both ends.
pub(crate) fn flows(traffic: &Traffic) -> usize {
    match traffic {
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => connections(traffic),
        _ => 0,
    }
}

/// Number of TCP connections that authenticate before the traffic starts: those of the traffic
/// itself, one per datagram flow, and one per thread that opens connections during the traffic.
/// There is at least one; its close ends the run.
pub(crate) fn connections(traffic: &Traffic) -> usize {
    match traffic {
        Traffic::TcpCrr { .. } => threads(traffic),
        Traffic::TcpBulk { direction: Direction::Both, .. } => 2 * streams(traffic),
        _ => streams(traffic),
    }
}

/// Number of streams of requests, bulk or datagrams.
fn streams(traffic: &Traffic) -> usize {
    let named = traffic.value("connections").or_else(|| traffic.value("clients"));
    named.map_or(1, as_size)
}

fn as_size(value: u64) -> usize {
    usize::try_from(value).expect("the field's range is within the address space")
}

/// Whether `TCP_NODELAY` is set. It is, unless the workload switches it off, so that Nagle's
/// algorithm delays no request or response.
pub(crate) fn nodelay(traffic: &Traffic) -> bool {
    match traffic.value("nodelay") {
        Some(nodelay) => nodelay != 0,
        None => !matches!(traffic, Traffic::TcpBulk { .. } | Traffic::Ping { .. }),
    }
}

/// Whether the traffic uses the authenticated connections, so that their retransmissions are the
/// traffic's.
pub(crate) fn keeps_connections(traffic: &Traffic) -> bool {
    matches!(
        traffic,
        Traffic::TcpRr { .. }
            | Traffic::TcpBulk { .. }
            | Traffic::Fetch { .. }
            | Traffic::RpcRead { .. }
    )
}

/// Number of connections that one end may have open at once.
pub(crate) fn descriptors(traffic: &Traffic) -> usize {
    match traffic {
        // A client's next connection may come before the end of its last one is seen.
        Traffic::TcpCrr { .. } => 2 * streams(traffic) + threads(traffic),
        // Each flow has a UDP socket beside its TCP connection.
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => 2 * connections(traffic),
        _ => connections(traffic),
    }
}

/// Number of threads at each end, at most one per connection.
pub(crate) fn threads(traffic: &Traffic) -> usize {
    let asked = traffic.value("threads").or_else(|| traffic.value("clients"));
    let connections = match traffic {
        Traffic::TcpCrr { .. } => streams(traffic),
        _ => connections(traffic),
    };
    asked.map_or(1, as_size).min(connections).max(1)
}

/// The CPUs of an end: those that the workload names, or else all of `host`. An empty set means
/// every CPU.
pub(crate) fn cpus(host: CpuSet, binding: Option<&CpuSet>) -> Result<CpuSet, Error> {
    match binding {
        None => Ok(host),
        Some(asked) if host.is_empty() || asked.is_subset(&host) => Ok(asked.clone()),
        Some(asked) => Err(Error::NotItsCpus { asked: asked.clone(), host }),
    }
}

/// A size that [`check`] accepted, in bytes.
pub(crate) fn size(bytes: Bytes) -> usize {
    usize::try_from(bytes.get()).expect("sizes are checked to be at most 16 MiB")
}

#[cfg(test)]
mod tests {
    use latput_units::BitsPerSecond;

    use super::*;

    #[test]
    fn traffic_and_probes_out_of_range_are_refused_by_field() {
        let check = |traffic, probe: Option<u32>| {
            let probe = probe.map(|rate_hz| Probe { rate_hz });
            check(&Workload { probe, ..Workload::plain("test", traffic) })
        };
        let datagrams =
            |bytes| Traffic::udp_stream(Bytes::new(bytes), BitsPerSecond::new(1_000_000));
        assert!(check(datagrams(18), Some(10_000)).is_ok());
        let too_short = check(datagrams(17), None).unwrap_err().to_string();
        assert!(
            too_short.contains("`datagram_bytes` must be a whole number from 18"),
            "{too_short}"
        );
        let too_fast = check(datagrams(18), Some(10_001)).unwrap_err().to_string();
        assert!(too_fast.contains("`probe_hz`"), "{too_fast}");
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
}
