//! Joins the counts of this end and of the server to the outcome of a test. Pure.

use std::net::SocketAddr;

use latput_formats::iperf3::process_cpu;
use latput_load::{SenderOutcome, Window};
use latput_trial::Metric;
use latput_trial::observation::{FlowObservation, Role, TrafficObservation};
use latput_trial::workload::Direction;
use latput_units::{Bytes, Nanos};

use super::datagrams::SendCounts;
use super::message::{Iperf3Results, StreamResult};
use crate::error::Error;
use crate::outcome::PeerResult;

/// Joins the halves of a TCP test. Goodput is counted at the receiver: the server's count and time
/// in one direction, this end's in the other.
pub(super) fn join_tcp_results(
    peer: SocketAddr,
    direction: Direction,
    streams: u32,
    seen: &SenderOutcome,
    results: &Iperf3Results,
    window: Window,
) -> Result<PeerResult, Error> {
    let opened = streams as usize * if direction == Direction::Both { 2 } else { 1 };
    if results.streams.len() != opened {
        let problem = format!(
            "it speaks of {} streams where {opened} were opened; tests in both directions came with \
             iperf 3.7",
            results.streams.len()
        );
        return Err(Error::TooOld { peer, problem });
    }
    let to = if direction == Direction::FromSut { 0 } else { streams as usize };
    let (arrived, sent_there) = results.streams.split_at(to);
    let seconds = arrived.iter().map(|stream| stream.seconds).fold(0.0, f64::max);
    let arrived_bytes = arrived.iter().map(|stream| stream.bytes).fold(0, u64::saturating_add);
    let there: Option<u64> = sent_there.iter().map(|stream| stream.retransmits).sum();
    let retransmits = match direction {
        Direction::ToSut => seen.retransmits,
        Direction::FromSut => there,
        Direction::Both => seen.retransmits.zip(there).map(|(a, b)| a.saturating_add(b)),
    };
    let here = window.length();
    let traffic = TrafficObservation {
        sender_window: here,
        receiver_window: if to > 0 { Nanos::from_secs_f64(seconds) } else { here },
        sent_bytes: if to > 0 {
            seen.sent_bytes
        } else {
            sent_there.iter().map(|stream| stream.bytes).fold(0, u64::saturating_add)
        },
        received_bytes: if to > 0 { arrived_bytes } else { seen.received_bytes },
        retransmits,
        sender_cpu: seen.cpu,
        ..TrafficObservation::default()
    };
    let mut outcome = PeerResult { traffic, ..PeerResult::default() };
    if direction == Direction::Both {
        let rate = |bytes: u64, seconds: f64| bytes as f64 * 8.0 / seconds;
        let (there, back) =
            (rate(arrived_bytes, seconds), rate(seen.received_bytes, here.as_secs_f64()));
        outcome.set_metric(Metric::ThroughputBps, there + back);
        outcome.set_metric(Metric::ThroughputToSutBps, there);
        outcome.set_metric(Metric::ThroughputFromSutBps, back);
        outcome.add_check(
            "both-directions",
            arrived_bytes > 0 && seen.received_bytes > 0,
            format!("{:.1} Mbit/s to the peer, {:.1} Mbit/s from it", there / 1e6, back / 1e6),
        );
        outcome.traffic.reverse = Some(FlowObservation {
            sent_bytes: sent_there.iter().map(|stream| stream.bytes).fold(0, u64::saturating_add),
            received_bytes: seen.received_bytes,
        });
    }
    peer_cpu(&mut outcome, results);
    Ok(outcome)
}

/// Joins the halves of a UDP test. The server counts loss by sequence numbers, so datagrams after
/// the last received one are in neither count.
pub(super) fn join_udp_results(
    peer: SocketAddr,
    datagram: Bytes,
    offered_bps: Option<f64>,
    sent: &SendCounts,
    results: &Iperf3Results,
    window: Window,
) -> Result<PeerResult, Error> {
    let streams = &results.streams;
    if streams.len() != sent.of_stream.len() {
        let (spoken, opened) = (streams.len(), sent.of_stream.len());
        let problem = format!("its results speak of {spoken} streams where {opened} were opened");
        return Err(Error::Malformed { peer, program: "iperf3", problem });
    }
    let sum =
        |count: fn(&StreamResult) -> u64| streams.iter().map(count).fold(0, u64::saturating_add);
    let (packets, lost) = (sum(|stream| stream.packets), sum(|stream| stream.lost));
    let all: u64 = sent.of_stream.iter().sum();
    let seconds = streams.iter().map(|stream| stream.seconds).fold(0.0, f64::max);
    let traffic = TrafficObservation {
        sender_window: window.length(),
        receiver_window: Nanos::from_secs_f64(seconds),
        sent_bytes: sent.in_window.saturating_mul(datagram.get()),
        received_bytes: sum(|stream| stream.bytes),
        offered_bps,
        sender_cpu: sent.cpu,
        ..TrafficObservation::default()
    };
    let mut outcome = PeerResult { traffic, ..PeerResult::default() };
    if packets > 0 {
        let jitter_s = streams.iter().map(|stream| stream.jitter_s).sum::<f64>();
        outcome.set_metric(Metric::LossRatio, (lost as f64 / packets as f64).min(1.0));
        outcome.set_metric(Metric::JitterNs, jitter_s * 1e9 / streams.len() as f64);
    } else if all > 0 {
        outcome.set_metric(Metric::LossRatio, 1.0);
    }
    outcome.add_check(
        "udp-arrived",
        packets > 0,
        format!("{all} datagrams were sent; the server missed {lost} of {packets} by number"),
    );
    if let Some(offered) = offered_bps {
        let wanted = offered * window.length().as_secs_f64() / (datagram.get() as f64 * 8.0);
        let detail = format!(
            "{} of {wanted:.0} datagrams offered were sent in the window; {} left out",
            sent.in_window, sent.skipped
        );
        outcome.add_check(
            "offered-rate-kept",
            sent.in_window as f64 + 64.0 >= wanted * 0.99,
            detail,
        );
    }
    peer_cpu(&mut outcome, results);
    Ok(outcome)
}

fn peer_cpu(outcome: &mut PeerResult, results: &Iperf3Results) {
    let Some([total, user, system]) = results.cpu_percent else { return };
    outcome.programs.push(process_cpu(Role::Sut, total, Some(user), Some(system)));
}
