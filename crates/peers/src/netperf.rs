//! A test with an unmodified netserver (netperf 2.7.0 or later), including its host's CPU time.
//!
//! Each connection has a netserver process and a control connection of its own. The server counts
//! from its answer until the data connection ends, so its figures include the warm-up.

pub mod wire;

mod datagrams;

use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};

use latput_load::{COOL_DOWN, Exchange, PeerTraffic, SenderOutcome, Stop, Window};
use latput_trial::observation::{CpuMethod, ProgramCpu, Role, TrafficObservation};
use latput_trial::workload::Direction;
use latput_trial::{Metric, Traffic, Workload};
use latput_units::{Bytes, Nanos};

use self::datagrams::{ExchangeCounts, RrParameters};
use self::wire::{
    ControlRequest, DataDirection, MESSAGE_BYTES, MessageError, NetperfResults, SetupResponse,
};
use crate::control::{ControlConnection, PATIENCE, connect_with};
use crate::error::Error;
use crate::iperf3::clone_sockets;
use crate::outcome::PeerResult;

/// netserver's port.
pub const PORT: u16 = 12_865;

/// The command that listens there.
const COMMAND: &str = "netserver";
/// Extra time of the server's timer (`PAD_TIME`), unless the server only sends.
const PAD: Nanos = Nanos::from_s(4);
/// Part of the server's time that opening many connections may take.
const OPENING: Nanos = Nanos::from_s(1);

/// A test that netservers are ready for.
#[derive(Debug)]
pub struct NetperfSession {
    lines: Vec<ControlConnection>,
    data: DataChannel,
    traffic: Traffic,
    /// Time from the opening of the session until the servers' own timers end.
    server_time: Nanos,
    warmup: Nanos,
    measures_cpu: bool,
}

#[derive(Debug)]
enum DataChannel {
    Streams(PeerTraffic),
    Datagrams(UdpSocket, SocketAddr),
}

impl NetperfSession {
    /// Requests a test and opens its data connections.
    pub(crate) fn open(
        peer: SocketAddr,
        workload: &Workload,
        warmup: Nanos,
        duration: Nanos,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let traffic = workload.traffic;
        let server_time = warmup + duration + COOL_DOWN + OPENING;
        let server_time = Nanos::from_s(server_time.as_ns().div_ceil(1_000_000_000));
        let datagrams = match traffic {
            Traffic::UdpRr { .. } => Some(datagrams::open(peer)?),
            _ => None,
        };
        let port = match &datagrams {
            Some(socket) => {
                let address = socket.local_addr();
                address.map_err(|source| Error::io("read the port of a socket", source))?.port()
            }
            None => 0,
        };
        let message = build_request(workload, server_time, peer, port).encode();
        let mut lines = Vec::new();
        let mut sockets = Vec::new();
        let mut measures_cpu = false;
        let mut data_peer = peer;
        for _ in 0..connection_count(&traffic) {
            let mut line = ControlConnection::connect(peer, COMMAND, stop)?;
            line.send(&message, "asking for the test")?;
            let answer = receive_message(&line, PATIENCE, "its answer")?;
            let ready =
                SetupResponse::parse(&answer).map_err(|wrong| message_error(peer, wrong))?;
            measures_cpu = ready.measures_cpu;
            data_peer.set_port(ready.data_port);
            if datagrams.is_none() {
                sockets.push(connect_with(data_peer, COMMAND, &workload.sockets)?);
            }
            lines.push(line);
        }
        let cpus = workload.binding.generator.clone().unwrap_or_default();
        let data = match (traffic, datagrams) {
            (_, Some(socket)) => DataChannel::Datagrams(socket, data_peer),
            (Traffic::TcpBulk { threads, .. } | Traffic::TcpRr { threads, .. }, None) => {
                let nodelay = matches!(traffic, Traffic::TcpRr { nodelay: true, .. });
                DataChannel::Streams(PeerTraffic::new(sockets, nodelay, threads, cpus)?)
            }
            _ => unreachable!("support::check lets only these workloads through"),
        };
        Ok(Self { lines, data, traffic, server_time, warmup, measures_cpu })
    }

    /// The requested warm-up.
    pub const fn warmup(&self) -> Nanos {
        self.warmup
    }

    /// Runs the traffic until the end of `window`, then gets the servers' results.
    pub(crate) fn run(self, window: Window, stop: &Stop) -> Result<PeerResult, Error> {
        let mut outcome = PeerResult::default();
        let sockets = match (&self.data, self.traffic) {
            (
                DataChannel::Streams(traffic_to_peer),
                Traffic::TcpBulk { direction, message_bytes, .. },
            ) => {
                let seen = traffic_to_peer.bulk(direction, message_bytes, window, stop)?;
                outcome.traffic = build_bulk_observation(direction, &seen, window);
                clone_sockets(traffic_to_peer)?
            }
            (DataChannel::Streams(traffic_to_peer), traffic) => {
                let exchanged = run_exchange(traffic_to_peer, &traffic, window, stop)?;
                outcome.traffic = build_exchange_observation(exchanged, window);
                clone_sockets(traffic_to_peer)?
            }
            (DataChannel::Datagrams(socket, peer), traffic) => {
                let seen = udp_rr(socket, *peer, &traffic, window, stop)?;
                fill_datagram_outcome(&mut outcome, &seen, window);
                Vec::new()
            }
        };
        let sends_on =
            matches!(self.traffic, Traffic::TcpBulk { direction: Direction::FromSut, .. });
        for socket in sockets.iter().filter(|_| !sends_on) {
            let _gone = socket.shutdown(Shutdown::Write); // the end of a test, to netserver
        }
        let patience = self.server_time + PAD + PATIENCE;
        let results = self
            .lines
            .iter()
            .map(|line| {
                let bytes = receive_while_draining(line, &sockets, patience, "its results")?;
                NetperfResults::parse(&bytes).map_err(|wrong| message_error(line.peer(), wrong))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        self.join(&mut outcome, &results);
        Ok(outcome)
    }

    /// Adds the servers' figures.
    fn join(&self, outcome: &mut PeerResult, results: &[NetperfResults]) {
        let sum = |count: fn(&NetperfResults) -> u64| results.iter().map(count).sum::<u64>();
        let elapsed_s = results.iter().map(|one| one.elapsed_s).fold(0.0, f64::max);
        let again = results.iter().map(|one| one.retransmits.map(u64::from)).sum::<Option<u64>>();
        let traffic = &mut outcome.traffic;
        let units = match self.traffic {
            Traffic::TcpBulk { direction: Direction::FromSut, .. } => {
                traffic.sender_window = Nanos::from_secs_f64(elapsed_s);
                traffic.sent_bytes = sum(|one| one.bytes_sent);
                traffic.retransmits = again;
                traffic.sent_bytes as f64 / 1024.0
            }
            Traffic::TcpBulk { .. } => {
                traffic.receiver_window = Nanos::from_secs_f64(elapsed_s);
                traffic.received_bytes = sum(|one| one.bytes_received);
                traffic.received_bytes as f64 / 1024.0
            }
            _ => {
                traffic.receiver_window = Nanos::from_secs_f64(elapsed_s);
                traffic.received_bytes = sum(|one| one.bytes_received);
                if matches!(self.traffic, Traffic::TcpRr { .. }) {
                    traffic.retransmits = traffic.retransmits.zip(again).map(|(a, b)| a + b);
                }
                sum(|one| one.transactions.into()) as f64
            }
        };
        // Each process measured the whole host. The longest measurement has the most clock ticks.
        let longest = results.iter().max_by(|a, b| a.elapsed_s.total_cmp(&b.elapsed_s));
        let Some(cpu) = longest.and_then(|one| one.cpu).filter(|_| self.measures_cpu) else {
            outcome.add_check("peer-cpu", false, "netserver measured no CPU time".to_owned());
            return;
        };
        outcome.set_metric(Metric::SutCpuBusyRatio, cpu.util / 100.0);
        if let Some(demand) = cpu.service_demand_us(units, elapsed_s) {
            outcome.set_metric(Metric::SutServiceDemandUs, demand);
        }
        outcome.add_check(
            "peer-cpu",
            true,
            format!(
                "netserver counted {elapsed_s:.2} s with the warm-up: {:.1}% of {} CPUs (user {:.1}, \
                 system {:.1}, irq {:.1}, softirq {:.1}, iowait {:.1}%)",
                cpu.util, cpu.cpus, cpu.user, cpu.system, cpu.irq, cpu.softirq, cpu.iowait
            ),
        );
        outcome.programs.push(ProgramCpu {
            role: Role::Sut,
            program: "netserver".to_owned(),
            method: CpuMethod::Host,
            busy_ratio: cpu.util / 100.0,
            user_ratio: Some(cpu.user / 100.0),
            system_ratio: Some(cpu.system / 100.0),
        });
    }
}

fn build_request(
    workload: &Workload,
    time: Nanos,
    peer: SocketAddr,
    our_port: u16,
) -> ControlRequest<'_> {
    let small = |bytes: Bytes| u32::try_from(bytes.get()).unwrap_or(u32::MAX >> 1);
    let sockets = &workload.sockets;
    let cpu = workload.binding.sut.as_ref().and_then(|cpus| cpus.iter().next());
    let mut request = ControlRequest {
        udp: false,
        flow: DataDirection::Answers,
        request_bytes: 0,
        response_bytes: 0,
        send_bytes: 0,
        length_s: u32::try_from(time.as_ns() / 1_000_000_000).unwrap_or(u32::MAX >> 1),
        nodelay: false,
        send_buffer: sockets.send_buffer.map(small),
        receive_buffer: sockets.receive_buffer.map(small),
        congestion: sockets.congestion.as_deref().unwrap_or(""),
        cpu: cpu.map(|cpu| cpu.0),
        ipv6: peer.is_ipv6(),
        our_port,
    };
    match workload.traffic {
        Traffic::TcpRr { request_bytes, response_bytes, nodelay, .. } => {
            request.request_bytes = small(request_bytes);
            request.response_bytes = small(response_bytes);
            request.nodelay = nodelay;
        }
        Traffic::UdpRr { request_bytes, response_bytes, .. } => {
            request.udp = true;
            request.request_bytes = small(request_bytes);
            request.response_bytes = small(response_bytes);
        }
        Traffic::TcpBulk { direction, message_bytes, .. } => {
            request.flow = if direction == Direction::FromSut {
                DataDirection::Sends
            } else {
                DataDirection::Receives
            };
            request.send_bytes = small(message_bytes);
        }
        _ => unreachable!("support::check lets only these workloads through"),
    }
    request
}

const fn connection_count(traffic: &Traffic) -> u32 {
    match traffic {
        Traffic::TcpRr { connections, .. } | Traffic::TcpBulk { connections, .. } => *connections,
        _ => 1,
    }
}

fn receive_message(
    line: &ControlConnection,
    patience: Nanos,
    waiting_for: &'static str,
) -> Result<[u8; MESSAGE_BYTES], Error> {
    receive_while_draining(line, &[], patience, waiting_for)
}

fn receive_while_draining(
    line: &ControlConnection,
    drained: &[TcpStream],
    patience: Nanos,
    waiting_for: &'static str,
) -> Result<[u8; MESSAGE_BYTES], Error> {
    /// Size of messages of netperf 2.5.0 and older.
    const OLD_BYTES: usize = 256;
    let mut bytes = [0; MESSAGE_BYTES];
    line.receive(&mut bytes[..OLD_BYTES], drained, patience, waiting_for)?;
    match line.receive(&mut bytes[OLD_BYTES..], drained, PATIENCE, waiting_for) {
        Err(Error::NoAnswer { peer, .. } | Error::PeerGone { peer, .. }) => {
            let problem = format!(
                "its messages have {OLD_BYTES} byte or a little more where those of netserver 2.7.0 \
                 have {MESSAGE_BYTES}"
            );
            Err(Error::TooOld { peer, problem })
        }
        other => other.map(|()| bytes),
    }
}

fn message_error(peer: SocketAddr, wrong: MessageError) -> Error {
    match wrong {
        MessageError::Errno(errno) => {
            let errno = i32::try_from(errno).unwrap_or(0);
            let text = format!("it failed: {}", std::io::Error::from_raw_os_error(errno));
            Error::Refusal { peer, text }
        }
        MessageError::Foreign(problem) => Error::Malformed { peer, program: "netperf", problem },
    }
}

fn run_exchange(
    traffic_to_peer: &PeerTraffic,
    traffic: &Traffic,
    window: Window,
    stop: &Stop,
) -> Result<SenderOutcome, Error> {
    let Traffic::TcpRr { request_bytes, response_bytes, burst, nodelay, .. } = *traffic else {
        unreachable!("connections are opened for bulk and for tcp_rr")
    };
    let exchange =
        Exchange { request: request_bytes, response: response_bytes, burst, separate: nodelay };
    Ok(traffic_to_peer.exchange(exchange, window, stop)?)
}

fn udp_rr(
    socket: &UdpSocket,
    peer: SocketAddr,
    traffic: &Traffic,
    window: Window,
    stop: &Stop,
) -> Result<ExchangeCounts, Error> {
    let Traffic::UdpRr { request_bytes, response_bytes, burst, timeout, .. } = *traffic else {
        unreachable!("a datagram socket is opened for udp_rr")
    };
    let size = |bytes: Bytes| usize::try_from(bytes.get()).unwrap_or(65_507).min(65_507);
    let plan = RrParameters {
        request: size(request_bytes),
        response: size(response_bytes),
        in_flight: burst.saturating_add(1),
        timeout,
    };
    datagrams::exchange_datagrams(socket, peer, &plan, window, stop)
}

fn build_bulk_observation(
    direction: Direction,
    seen: &SenderOutcome,
    window: Window,
) -> TrafficObservation {
    let from_peer = direction == Direction::FromSut;
    TrafficObservation {
        sender_window: window.length(),
        receiver_window: window.length(),
        sent_bytes: seen.sent_bytes,
        received_bytes: seen.received_bytes,
        retransmits: seen.retransmits.filter(|_| !from_peer),
        sender_cpu: seen.cpu,
        ..TrafficObservation::default()
    }
}

fn build_exchange_observation(exchanged: SenderOutcome, window: Window) -> TrafficObservation {
    TrafficObservation {
        sender_window: window.length(),
        sent_bytes: exchanged.sent_bytes,
        transactions: exchanged.transactions,
        latency: exchanged.latency,
        retransmits: exchanged.retransmits,
        sender_cpu: exchanged.cpu,
        ..TrafficObservation::default()
    }
}

fn fill_datagram_outcome(outcome: &mut PeerResult, seen: &ExchangeCounts, window: Window) {
    outcome.traffic = TrafficObservation {
        sender_window: window.length(),
        transactions: Some(seen.transactions),
        latency: Some(seen.latency.clone()),
        sender_cpu: seen.cpu,
        ..TrafficObservation::default()
    };
    let all = seen.transactions + seen.lost;
    if all > 0 {
        outcome.set_metric(Metric::LossRatio, seen.lost as f64 / all as f64);
    }
    outcome.add_check(
        "responses-belong",
        seen.lost == 0,
        format!(
            "{} requests were given up; a later response counts as another request's",
            seen.lost
        ),
    );
}
