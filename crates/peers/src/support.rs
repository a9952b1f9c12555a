//! Workloads and options that each third-party program supports. Others are refused with a remedy
//! before a connection is opened.

use latput_trial::{Traffic, Workload};
use latput_units::CpuSet;

use crate::error::Error;
use crate::program::PeerProgram;

/// Most streams of iperf3 (`MAX_STREAMS` in `src/iperf.h`).
const IPERF3_STREAMS: u32 = 128;
/// Most connections of a netperf test, each with a netserver process.
const NETSERVER_PROCESSES: u32 = 64;
/// Smallest datagram of iperf3: its header has two times and a 64-bit number.
const IPERF3_DATAGRAM: u64 = 16;
/// Most threads at this end.
const THREADS: u32 = 64;

/// Refuses a workload that the program does not support.
pub(crate) fn check_workload(program: PeerProgram, workload: &Workload) -> Result<(), Error> {
    let refused = |problem: String| Err(Error::Unsupported { program: program.name(), problem });
    if let Err(problem) = check_traffic(program, &workload.traffic) {
        return refused(problem);
    }
    if workload.probe.is_some() {
        return refused("no probe goes beside it: leave out probe_hz".to_owned());
    }
    if workload.count.is_some() {
        return refused("it is ended by time and not by a count: use --duration".to_owned());
    }
    let sockets = &workload.sockets;
    if sockets.busy_poll.is_some() || sockets.prefer_busy_poll || sockets.epoll_busy_poll.is_some()
    {
        return refused("it has no busy polling: leave out busy_poll".to_owned());
    }
    if program == PeerProgram::Iperf3 && sockets.send_buffer != sockets.receive_buffer {
        let problem = "it has one size for both socket buffers: give send_buffer_bytes and receive_buffer_bytes the same value";
        return refused(problem.to_owned());
    }
    if sockets.congestion.as_ref().is_some_and(|name| name.is_empty() || name.len() > 15) {
        return refused("the name of a congestion control has 1 to 15 bytes".to_owned());
    }
    let several = |cpus: &CpuSet| cpus.iter().count() != 1;
    if workload.binding.sut.as_ref().is_some_and(several) {
        return refused("it can be bound to one CPU only".to_owned());
    }
    Ok(())
}

fn check_traffic(program: PeerProgram, traffic: &Traffic) -> Result<(), String> {
    match (program, *traffic) {
        (PeerProgram::Iperf3, Traffic::TcpBulk { connections, threads, rate, .. }) => {
            if rate.is_some() {
                return Err("a TCP rate is not kept by it: leave out rate".to_owned());
            }
            check_counts(connections, IPERF3_STREAMS, threads)
        }
        (PeerProgram::Iperf3, Traffic::UdpStream { datagram_bytes, connections, threads, .. }) => {
            if datagram_bytes.get() < IPERF3_DATAGRAM {
                return Err(format!("a datagram has at least {IPERF3_DATAGRAM} byte"));
            }
            check_counts(connections, IPERF3_STREAMS, threads)
        }
        (PeerProgram::Netperf, Traffic::TcpRr { connections, threads, arrivals: None, .. }) => {
            check_counts(connections, NETSERVER_PROCESSES, threads)
        }
        (
            PeerProgram::Netperf,
            Traffic::TcpBulk {
                direction:
                    latput_trial::workload::Direction::ToSut
                    | latput_trial::workload::Direction::FromSut,
                connections,
                threads,
                rate: None,
                ..
            },
        ) => check_counts(connections, NETSERVER_PROCESSES, threads),
        (
            PeerProgram::Netperf,
            Traffic::UdpRr { connections: 1, threads: 1, arrivals: None, .. },
        ) => Ok(()),
        (PeerProgram::Netperf, Traffic::UdpRr { .. }) => Err(
            "udp_rr has one socket and a closed loop there: leave out connections, threads and \
                 arrivals"
                .to_owned(),
        ),
        (PeerProgram::Iperf3, _) => Err(format!(
            "it has no {}: it does tcp_stream, tcp_maerts, tcp_bidir (without rate) and udp_stream",
            traffic.kind()
        )),
        (PeerProgram::Netperf, _) => Err(format!(
            "no such {} is made with it: tcp_rr and udp_rr (closed loop), tcp_stream and tcp_maerts \
             (without rate) are",
            traffic.kind()
        )),
    }
}

fn check_counts(connections: u32, limit: u32, threads: u32) -> Result<(), String> {
    if !(1..=limit).contains(&connections) {
        return Err(format!("connections must be from 1 to {limit}, not {connections}"));
    }
    if !(1..=THREADS.min(connections)).contains(&threads) {
        return Err(format!("threads must be from 1 to the number of connections, not {threads}"));
    }
    Ok(())
}
