//! Bulk transfer, and the four workloads with processes bound to CPUs.

use latput_sim::scenario::{Host, Load, TrafficKind, TrafficOptions};
use latput_units::{Bytes, Nanos};

use super::rr::{build_request_load, burst_in_words};
use super::{NetworkExperiment, OTHER, ReportedFigures, SUT, behind_switch, build_hosts};
use crate::row::{CsvRow, RowError};
use crate::system::SystemCatalog;

/// Socket buffers of `-s 128K -S 128K`, doubled by Linux.
const SOCKETS: u32 = 262_144;
/// Headers of IPv4 and TCP with timestamps.
const TCP_HEADERS: u64 = 52;

/// Sets socket buffers. The profile's buffers give the payload share of sockets of [`SOCKETS`];
/// others get the same share.
fn set_sockets(host: &mut Host, receive: u32, send: u32) {
    let usable = |of: Bytes, size: u32| {
        Bytes::new((of.get() * u64::from(size) / u64::from(SOCKETS)).max(2_920))
    };
    host.stack.receive_buffer = usable(host.stack.receive_buffer, receive);
    host.stack.send_buffer = usable(host.stack.send_buffer, send);
}

/// One TCP stream from the measured system to the other.
pub(super) fn build_stream_experiment(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let (machine, profile) = systems.for_row(row)?;
    let message = row.parse_whole("send_msg_bytes", 1..=1 << 24)?.unwrap_or(32_768);
    let receive = row.parse_whole("recv_socket_bytes", 4_096..=1 << 26)?.unwrap_or(SOCKETS);
    let send = row.parse_whole("send_socket_bytes", 4_096..=1 << 26)?.unwrap_or(SOCKETS);
    let mut hosts = build_hosts(row, (machine, profile), true)?;
    for host in &mut hosts {
        set_sockets(host, receive, send);
    }
    let traffic = TrafficKind::Stream { message: Bytes::new(u64::from(message)), connections: 1 };
    // netperf leaves Nagle's algorithm on (`-D` is its option), which matters for messages smaller
    // than a segment.
    let gathers = u64::from(message) < profile.network.mtu.get() - TCP_HEADERS;
    let form = TrafficOptions { gathers, ..TrafficOptions::default() };
    let loads = vec![Load { form, ..Load::new(SUT, OTHER, traffic) }];
    let mut scenario = behind_switch(profile, hosts.into(), loads);
    scenario.warmup = Nanos::from_ms(120);
    Ok(NetworkExperiment { scenario, reading: ReportedFigures::Bytes })
}

/// netperf and netserver each bound to a CPU.
pub(super) fn build_binding_experiment(
    row: &CsvRow<'_>,
    systems: &SystemCatalog,
) -> Result<NetworkExperiment, RowError> {
    let (machine, profile) = systems.for_row(row)?;
    let words = match row.text("workload") {
        "" => row.text("netperf_options"),
        words => words,
    };
    let is_stream = words.contains("TCP_STREAM");
    let is_large = words.contains("32K request") || words.contains("-r 32K");
    let mut hosts = build_hosts(row, (machine, profile), is_stream || is_large)?;
    let core = |column: &str, host: usize| {
        let last = hosts[host].machine.cores - 1;
        row.parse_required_whole(column, 0..=last)
    };
    let (from_core, to_core) = (core("netperf_cpu", SUT)?, core("netserver_cpu", OTHER)?);
    if is_stream || is_large {
        for host in &mut hosts {
            set_sockets(host, SOCKETS, SOCKETS);
        }
    }
    let load = if is_stream {
        let message = Bytes::new(32_768);
        Load::new(SUT, OTHER, TrafficKind::Stream { message, connections: 1 })
    } else if is_large {
        build_request_load(SUT, OTHER, 32_768, burst_in_words(row, words).unwrap_or(6))
    } else {
        let burst = match burst_in_words(row, words) {
            Some(burst) => burst,
            None if words.contains("one transaction") || words.contains("-t TCP_RR") => 0,
            None => {
                let wanted =
                    "must name TCP_STREAM, a `first burst N` or one transaction outstanding";
                return Err(row.field_error("workload", format!("`{words}` {wanted}")));
            }
        };
        build_request_load(SUT, OTHER, 1, burst)
    };
    let load = Load { from_core: Some(from_core), to_core: Some(to_core), ..load };
    let mut scenario = behind_switch(profile, hosts.into(), vec![load]);
    scenario.warmup = Nanos::from_ms(if is_stream || is_large { 120 } else { 30 });
    scenario.duration = Nanos::from_ms(if is_stream || is_large { 120 } else { 250 });
    let reading = if is_stream { ReportedFigures::Bytes } else { ReportedFigures::Transactions };
    Ok(NetworkExperiment { scenario, reading })
}
