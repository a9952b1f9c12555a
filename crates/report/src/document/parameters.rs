//! What tells a workload from another of its kind, as numbers.

use latput_trial::{Arrivals, Traffic, Workload};

/// What tells a workload from another of its kind, each with its unit in its name. What is no number
/// (a congestion control, CPUs) is in the workload's name.
pub(crate) fn parameters(workload: &Workload) -> Vec<(&'static str, u64)> {
    let sockets = &workload.sockets;
    let mut parameters = of_traffic(&workload.traffic);
    parameters.extend(sockets.send_buffer.map(|size| ("send_buffer_bytes", size.get())));
    parameters.extend(sockets.receive_buffer.map(|size| ("receive_buffer_bytes", size.get())));
    parameters.extend(sockets.busy_poll.map(|time| ("busy_poll_ns", time.as_ns())));
    parameters.extend(sockets.prefer_busy_poll.then_some(("prefer_busy_poll", 1)));
    parameters.extend(workload.count.map(|count| ("end_count", count)));
    parameters.extend(workload.probe.map(|probe| ("probe_rate_hz", u64::from(probe.rate_hz))));
    parameters
}

#[expect(clippy::too_many_lines, reason = "a table: one arm to a kind")]
fn of_traffic(traffic: &Traffic) -> Vec<(&'static str, u64)> {
    match *traffic {
        Traffic::TcpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            nodelay,
            arrivals,
        } => [
            ("request_bytes", request_bytes.get()),
            ("response_bytes", response_bytes.get()),
            ("burst_count", u64::from(burst)),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
            ("nodelay", u64::from(nodelay)),
        ]
        .into_iter()
        .chain(offered(arrivals))
        .collect(),
        Traffic::TcpCrr { request_bytes, response_bytes, connections, threads, nodelay } => vec![
            ("request_bytes", request_bytes.get()),
            ("response_bytes", response_bytes.get()),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
            ("nodelay", u64::from(nodelay)),
        ],
        Traffic::TcpBulk { direction: _, message_bytes, connections, threads, rate, vectored } => [
            ("message_bytes", message_bytes.get()),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
            ("vectored", u64::from(vectored)),
        ]
        .into_iter()
        .chain(rate.map(|rate| ("rate_bps", rate.get())))
        .collect(),
        Traffic::UdpStream { datagram_bytes, rate, connections, threads, segmentation } => [
            ("datagram_bytes", datagram_bytes.get()),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
            ("segmentation", u64::from(segmentation)),
        ]
        .into_iter()
        .chain(rate.map(|rate| ("rate_bps", rate.get())))
        .collect(),
        Traffic::UdpRr {
            request_bytes,
            response_bytes,
            burst,
            connections,
            threads,
            timeout,
            arrivals,
        } => [
            ("request_bytes", request_bytes.get()),
            ("response_bytes", response_bytes.get()),
            ("burst_count", u64::from(burst)),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
            ("timeout_ns", timeout.as_ns()),
        ]
        .into_iter()
        .chain(offered(arrivals))
        .collect(),
        Traffic::Fetch { object_bytes, connections, threads } => vec![
            ("object_bytes", object_bytes.get()),
            ("connections_count", u64::from(connections)),
            ("threads_count", u64::from(threads)),
        ],
        Traffic::RpcRead { clients, outstanding, read_bytes, think } => vec![
            ("clients_count", u64::from(clients)),
            ("outstanding_count", u64::from(outstanding)),
            ("read_bytes", read_bytes.get()),
            ("think_ns", think.mean.as_ns()),
        ],
        Traffic::Ping { rate_hz, payload_bytes } => {
            vec![("rate_hz", u64::from(rate_hz)), ("payload_bytes", payload_bytes.get())]
        }
    }
}

/// The offered rate of an open loop.
fn offered(arrivals: Option<Arrivals>) -> Option<(&'static str, u64)> {
    arrivals.map(|arrivals| ("rate_per_s", u64::from(arrivals.rate_per_s)))
}
