//! The numeric parameters of a workload.

use latput_trial::Workload;
use latput_units::{Bytes, Nanos};

/// The parameters that distinguish workloads of a kind, each with its unit in its name. Other
/// parameters (a congestion control, CPUs) are in the workload's name.
pub(crate) fn collect_parameters(workload: &Workload) -> Vec<(String, u64)> {
    let values = workload.traffic.values().into_iter();
    let of_traffic = values.filter_map(|(field, value)| Some((field.name_with_unit()?, value?)));
    let sockets = &workload.sockets;
    let beside = [
        ("send_buffer_bytes", sockets.send_buffer.map(Bytes::get)),
        ("receive_buffer_bytes", sockets.receive_buffer.map(Bytes::get)),
        ("busy_poll_ns", sockets.busy_poll.map(Nanos::as_ns)),
        ("prefer_busy_poll", sockets.prefer_busy_poll.then_some(1)),
        ("epoll_busy_poll_ns", sockets.epoll_busy_poll.map(|polling| polling.time.as_ns())),
        ("epoll_busy_poll_budget", sockets.epoll_busy_poll.map(|polling| polling.budget.into())),
        (
            "epoll_prefer_busy_poll",
            sockets.epoll_busy_poll.filter(|polling| polling.prefers).map(|_| 1),
        ),
        ("end_count", workload.count),
        ("probe_rate_hz", workload.probe.map(|probe| u64::from(probe.rate_hz))),
    ];
    let beside = beside.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    of_traffic.chain(beside).collect()
}
