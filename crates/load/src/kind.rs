//! The engine's side of each kind of traffic: one arm in each `match` of this file, and a loop in a module below it.
//!
//! The kinds themselves, with their fields, ranges and facts, are declared in `latput-trial`.

#![warn(clippy::wildcard_enum_match_arm)]

pub(crate) mod crr;
pub(crate) mod open_loop;
pub(crate) mod ping;
pub(crate) mod rpc;
pub(crate) mod rr;
pub(crate) mod stream;
pub(crate) mod udp;
pub(crate) mod udp_rr;

use std::net::IpAddr;

use latput_trial::workload::{PayloadFlow, Shape};
use latput_trial::{Traffic, Workload};
use latput_units::Bytes;

use crate::datagrams::Flow;
use crate::error::Error;
use crate::hello::Hello;
use crate::limits::size;
use crate::meter::{Meter, Tally};
use crate::outcome::{DatagramsReceived, DatagramsSent, ReceiverOutcome, SenderOutcome};
use crate::probe::Prober;
use crate::schedule::Share;
use crate::workers::WorkerContext;

/// One thread of the generator.
#[derive(Debug)]
pub(crate) struct LeadingThread<'a> {
    pub(crate) workload: &'a Workload,
    /// The thread's part of the load.
    pub(crate) share: Share,
    /// The hello of new connections, without their numbers.
    pub(crate) hello: &'a Hello,
    /// The thread's flows of datagrams.
    pub(crate) flows: Vec<Flow<'a>>,
    /// The prober of a `ping` workload.
    pub(crate) pinger: Option<&'a Prober>,
}

/// One thread of the reflector.
#[derive(Debug)]
pub(crate) struct FollowingThread<'a> {
    pub(crate) traffic: &'a Traffic,
    /// The hellos of the thread's connections.
    pub(crate) hellos: &'a [Hello],
    /// The thread's flows of datagrams.
    pub(crate) flows: &'a [Flow<'a>],
    /// Authenticates connections that come during the traffic.
    pub(crate) guard: &'a crr::AuthState<'a>,
}

/// Makes one thread's share of the load until the window is over.
pub(crate) fn lead(
    worker: &WorkerContext<'_>,
    thread: &LeadingThread<'_>,
) -> Result<Vec<SenderOutcome>, Error> {
    let mut meter = Meter::leading(worker);
    match thread.workload.traffic {
        Traffic::TcpRr {
            request_bytes, response_bytes, nodelay, arrivals: Some(arrivals), ..
        } => {
            let exchange = open_loop::Exchange {
                request: size(request_bytes),
                response: size(response_bytes),
                separate: nodelay,
                arrivals,
                share: thread.share,
            };
            open_loop::ask(worker, &exchange, &mut meter)?;
        }
        Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
            let side = rr::Side {
                incoming: size(response_bytes),
                outgoing: size(request_bytes),
                in_flight: burst + 1,
                separate: nodelay,
                leads: true,
            };
            rr::run(worker, &side, &mut meter)?;
        }
        Traffic::TcpCrr { request_bytes, response_bytes, nodelay, connections, .. } => {
            let exchange = crr::Exchange::new(request_bytes, response_bytes, nodelay, connections);
            let options = &thread.workload.sockets;
            crr::call(worker, &exchange, options, thread.hello, &mut meter)?;
        }
        Traffic::Fetch { object_bytes, .. } => {
            let side = rr::Side {
                incoming: size(object_bytes),
                outgoing: rr::FETCH_BYTES,
                in_flight: 1,
                separate: true,
                leads: true,
            };
            rr::run(worker, &side, &mut meter)?;
        }
        Traffic::RpcRead { outstanding, read_bytes, think, .. } => {
            let reads = rpc::ReadParameters { outstanding, bytes: size(read_bytes), think };
            rpc::call(worker, &reads, &mut meter)?;
        }
        Traffic::TcpBulk { direction, message_bytes, rate, vectored, .. } => {
            let message = size(message_bytes);
            let bulk = stream::Bulk { direction, message, rate, vectored };
            stream::run(worker, &bulk, &mut meter)?;
        }
        Traffic::UdpStream { datagram_bytes, rate, segmentation, .. } => {
            let rate = rate.map(|rate| udp::share_of(rate, thread.share));
            let stream = udp::Stream { datagram: datagram_bytes, rate, segmentation };
            return send_datagrams(worker, thread, &stream, meter);
        }
        Traffic::UdpRr { .. } => {
            let exchange = udp_rr::Exchange::from_traffic(&thread.workload.traffic, thread.share)
                .expect("this traffic is one");
            udp_rr::ask(worker, &thread.flows, &exchange, &mut meter)?;
        }
        Traffic::Ping { payload_bytes, .. } => {
            return send_echoes(worker, thread, payload_bytes, meter);
        }
        Traffic::Command | Traffic::Live => return Err(Error::NotOurs),
    }
    Ok(meter.finish().into_iter().map(SenderOutcome::from).collect())
}

fn send_datagrams(
    worker: &WorkerContext<'_>,
    thread: &LeadingThread<'_>,
    stream: &udp::Stream,
    mut meter: Meter<'_>,
) -> Result<Vec<SenderOutcome>, Error> {
    let same = udp::send(worker, &thread.flows, stream, &mut meter)?;
    let of_slice = |tally: Tally| {
        let (sent, skipped) = (tally.messages, tally.skipped);
        SenderOutcome {
            sent_bytes: sent * stream.datagram.get(),
            datagrams: Some(DatagramsSent { sent, skipped, ..same }),
            ..tally.into()
        }
    };
    Ok(meter.finish().into_iter().map(of_slice).collect())
}

fn send_echoes(
    worker: &WorkerContext<'_>,
    thread: &LeadingThread<'_>,
    payload: Bytes,
    mut meter: Meter<'_>,
) -> Result<Vec<SenderOutcome>, Error> {
    let pinger = thread.pinger.expect("opened for this traffic");
    let probes = ping::ask(worker, pinger, &mut meter)?;
    let slices = meter.finish().into_iter().zip(probes);
    let of_slice = |(tally, probe): (Tally, _)| ping::outcome(probe, payload, tally.into());
    Ok(slices.map(of_slice).collect())
}

/// Serves one thread's share of the traffic until the generator ends it.
pub(crate) fn follow(
    worker: &WorkerContext<'_>,
    thread: &FollowingThread<'_>,
) -> Result<Vec<ReceiverOutcome>, Error> {
    let mut meter = Meter::following(worker, thread.flows);
    match *thread.traffic {
        Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } => {
            let side = rr::Side {
                incoming: size(request_bytes),
                outgoing: size(response_bytes),
                in_flight: burst + 1,
                separate: nodelay,
                leads: false,
            };
            rr::run(worker, &side, &mut meter)?;
        }
        Traffic::TcpCrr { request_bytes, response_bytes, nodelay, connections, .. } => {
            let exchange = crr::Exchange::new(request_bytes, response_bytes, nodelay, connections);
            crr::serve(worker, &exchange, thread.guard, &mut meter)?;
        }
        Traffic::Fetch { object_bytes, .. } => {
            let side = rr::Side {
                incoming: rr::FETCH_BYTES,
                outgoing: size(object_bytes),
                in_flight: 1,
                separate: true,
                leads: false,
            };
            rr::run(worker, &side, &mut meter)?;
        }
        Traffic::RpcRead { outstanding, read_bytes, think, .. } => {
            let reads = rpc::ReadParameters { outstanding, bytes: size(read_bytes), think };
            let seed = thread.hellos.first().map_or(0, |hello| hello.tag.into());
            rpc::serve(worker, &reads, seed, &mut meter)?;
        }
        Traffic::TcpBulk { direction, message_bytes, rate, vectored, .. } => {
            let message = size(message_bytes);
            let bulk = stream::Bulk { direction, message, rate, vectored };
            stream::run(worker, &bulk, &mut meter)?;
        }
        Traffic::UdpStream { datagram_bytes, segmentation, .. } => {
            let stream = udp::Stream { datagram: datagram_bytes, rate: None, segmentation };
            let received = udp::receive(worker, thread.flows, &stream, &mut meter)?;
            let slices = meter.finish().into_iter().zip(received);
            return Ok(slices.map(|it| build_datagram_outcome(it, datagram_bytes)).collect());
        }
        Traffic::UdpRr { .. } => {
            let share = Share {
                thread: 0,
                connections: thread.flows.len(),
                of: thread.flows.len(),
                generator: None,
            };
            let exchange =
                udp_rr::Exchange::from_traffic(thread.traffic, share).expect("this traffic is one");
            udp_rr::answer(worker, thread.flows, &exchange, &mut meter)?;
        }
        Traffic::Ping { .. } => ping::wait(worker, &mut meter)?,
        Traffic::Command | Traffic::Live => return Err(Error::NotOurs),
    }
    let has_requests = takes_requests(thread.traffic);
    let of_slice = |tally: Tally| ReceiverOutcome {
        requests: has_requests.then_some(tally.messages),
        ..tally.into()
    };
    Ok(meter.finish().into_iter().map(of_slice).collect())
}

/// The figures of one slice of a datagram stream.
fn build_datagram_outcome(
    (tally, received): (Tally, DatagramsReceived),
    size: Bytes,
) -> ReceiverOutcome {
    let (dropped_by_kernel, foreign) = (tally.usage.dropped, tally.foreign);
    ReceiverOutcome {
        received_bytes: received.received * size.get(),
        datagrams: Some(DatagramsReceived { dropped_by_kernel, foreign, ..received }),
        foreign: 0,
        ..tally.into()
    }
}

/// The sockets of a kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketUse {
    /// Requests and responses go over the authenticated connections.
    Requests,
    /// Bulk goes over the authenticated connections without a pause.
    Bulk,
    /// Each transaction has a connection, which is opened and authenticated during the traffic.
    Connects,
    /// Datagrams go over flows, each with a UDP socket beside its authenticated connection.
    Flows,
    /// The prober sends all of it.
    Echoes {
        /// Echo requests per second.
        rate_hz: u32,
        /// Payload of a request.
        payload: Bytes,
    },
    /// latput has none.
    Foreign,
}

const fn socket_use(traffic: &Traffic) -> SocketUse {
    match *traffic {
        Traffic::TcpRr { .. } | Traffic::Fetch { .. } | Traffic::RpcRead { .. } => {
            SocketUse::Requests
        }
        Traffic::TcpBulk { .. } => SocketUse::Bulk,
        Traffic::TcpCrr { .. } => SocketUse::Connects,
        Traffic::UdpStream { .. } | Traffic::UdpRr { .. } => SocketUse::Flows,
        Traffic::Ping { rate_hz, payload_bytes: payload } => SocketUse::Echoes { rate_hz, payload },
        Traffic::Command | Traffic::Live => SocketUse::Foreign,
    }
}

/// The prober of a `ping` workload, which is the traffic itself.
pub(crate) fn open_ping_prober(peer: IpAddr, traffic: &Traffic) -> Result<Option<Prober>, Error> {
    match socket_use(traffic) {
        SocketUse::Echoes { rate_hz, payload } => {
            Prober::with_payload(peer, rate_hz, payload).map(Some)
        }
        SocketUse::Requests
        | SocketUse::Bulk
        | SocketUse::Connects
        | SocketUse::Flows
        | SocketUse::Foreign => Ok(None),
    }
}

/// Whether connections are opened and authenticated during the traffic.
pub(crate) fn connects_during_traffic(traffic: &Traffic) -> bool {
    socket_use(traffic) == SocketUse::Connects
}

/// Whether either end may still have unsent data when the window ends, so that its connections are reset.
pub(crate) fn is_bulk(traffic: &Traffic) -> bool {
    socket_use(traffic) == SocketUse::Bulk
}

/// Whether the reflector gets requests over its sockets.
fn takes_requests(traffic: &Traffic) -> bool {
    match socket_use(traffic) {
        SocketUse::Requests | SocketUse::Connects | SocketUse::Flows => true,
        SocketUse::Bulk | SocketUse::Echoes { .. } | SocketUse::Foreign => false,
    }
}

/// Whether a trial may be valid although the reflector received no data.
pub(crate) fn may_be_silent(traffic: &Traffic) -> bool {
    let may_be_lost = traffic.facts().shape == Shape::Datagrams || traffic.is_echo();
    may_be_lost || traffic.arrivals().is_some()
}

/// Number of datagram flows, each with a socket at both ends.
pub(crate) fn count_flows(traffic: &Traffic) -> usize {
    if socket_use(traffic) == SocketUse::Flows { count_connections(traffic) } else { 0 }
}

/// Number of TCP connections that authenticate before the traffic starts: those of the traffic
/// itself, one per datagram flow, and one per thread that opens connections during the traffic.
/// There is at least one; its close ends the run.
pub(crate) fn count_connections(traffic: &Traffic) -> usize {
    match socket_use(traffic) {
        SocketUse::Connects => count_threads(traffic),
        SocketUse::Bulk if traffic.facts().payload == PayloadFlow::Both => {
            2 * count_streams(traffic)
        }
        SocketUse::Requests
        | SocketUse::Bulk
        | SocketUse::Flows
        | SocketUse::Echoes { .. }
        | SocketUse::Foreign => count_streams(traffic),
    }
}

/// Number of streams of requests, bulk or datagrams.
fn count_streams(traffic: &Traffic) -> usize {
    let named = traffic.value("connections").or_else(|| traffic.value("clients"));
    named.map_or(1, as_size)
}

fn as_size(value: u64) -> usize {
    usize::try_from(value).expect("the field's range is within the address space")
}

/// Whether `TCP_NODELAY` is set. It is, unless the workload switches it off, so that Nagle's
/// algorithm delays no request or response.
pub(crate) fn uses_nodelay(traffic: &Traffic) -> bool {
    traffic.value("nodelay").map_or_else(|| takes_requests(traffic), |nodelay| nodelay != 0)
}

/// Whether the traffic uses the authenticated connections, so that their retransmissions are the
/// traffic's.
pub(crate) fn keeps_connections(traffic: &Traffic) -> bool {
    matches!(socket_use(traffic), SocketUse::Requests | SocketUse::Bulk)
}

/// Number of connections that one end may have open at once.
pub(crate) fn count_descriptors(traffic: &Traffic) -> usize {
    match socket_use(traffic) {
        // A client's next connection may come before the end of its last one is seen.
        SocketUse::Connects => 2 * count_streams(traffic) + count_threads(traffic),
        // Each flow has a UDP socket beside its TCP connection.
        SocketUse::Flows => 2 * count_connections(traffic),
        SocketUse::Requests | SocketUse::Bulk | SocketUse::Echoes { .. } | SocketUse::Foreign => {
            count_connections(traffic)
        }
    }
}

/// Number of threads at each end, at most one per connection.
pub(crate) fn count_threads(traffic: &Traffic) -> usize {
    let asked = traffic.value("threads").or_else(|| traffic.value("clients"));
    let is_per_transaction = socket_use(traffic) == SocketUse::Connects;
    let connections =
        if is_per_transaction { count_streams(traffic) } else { count_connections(traffic) };
    asked.map_or(1, as_size).min(connections).max(1)
}

#[cfg(test)]
mod tests {
    use latput_trial::Direction;

    use super::*;

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
        assert_eq!(count_threads(&many(8, 3, Direction::ToSut)), 3);
        assert_eq!(count_threads(&many(2, 3, Direction::ToSut)), 2);
        assert_eq!(count_threads(&many(2, 9, Direction::Both)), 4);
    }
}
