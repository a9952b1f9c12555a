//! A test with an unmodified iperf3 server, from its cookie to its results.
//!
//! The server leads: one byte on the control connection names each next state. Unexpected states
//! are errors. The protocol has whole seconds of warm-up only.

pub mod message;
pub mod refusal;

mod datagrams;
mod joined;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use latput_load::{PeerTraffic, Stop, Window};
use latput_trial::workload::Direction;
use latput_trial::{Traffic, Workload};
use latput_units::{Bytes, Nanos};

use self::datagrams::UdpStreams;
use self::message::{ControlState, Iperf3Results, OwnStream, TestParameters};
use crate::control::{ControlConnection, PATIENCE, connect_with};
use crate::error::Error;
use crate::outcome::PeerResult;

/// iperf3's port.
pub const PORT: u16 = 5201;

/// The command that listens there.
const COMMAND: &str = "iperf3 -s";
/// Largest accepted results: 128 streams have some 30 KB.
const RESULTS_BYTES: u32 = 256 << 10;
/// Time for a server to read its receive buffers before it ends a test.
const LAST_WORDS: Nanos = Nanos::from_s(15);
/// Further attempts while a server is between two tests, and the interval between attempts: two seconds.
const GREETINGS_MORE: u32 = 10;
const BETWEEN_TESTS: Duration = Duration::from_millis(200);
/// Time after a broken connection in which the server's reason may arrive.
const REASON: Nanos = Nanos::from_ms(300);

/// A test that an iperf3 server is ready for.
#[derive(Debug)]
pub struct Iperf3Session {
    line: ControlConnection,
    flow: TestTraffic,
    message: Bytes,
    warmup: Nanos,
    is_done: bool,
}

#[derive(Debug)]
enum TestTraffic {
    Tcp { traffic_to_peer: PeerTraffic, direction: Direction, streams: u32 },
    Udp { streams: UdpStreams, offered_bps: Option<f64> },
}

impl Iperf3Session {
    /// Negotiates a test with the server and opens its streams.
    pub(crate) fn open(
        peer: SocketAddr,
        workload: &Workload,
        warmup: Nanos,
        duration: Nanos,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let cookie = random_cookie()?;
        let mut line = connect_to_server(peer, &cookie, stop)?;
        let omit = Nanos::from_s(whole_seconds(warmup));
        let parameters = build_parameters(workload, omit, duration);
        send_document(&mut line, &parameters.to_json(), "sending the parameters")?;
        expect_state(&line, ControlState::CreateStreams, PATIENCE)?;
        let flow = TestTraffic::open(peer, workload, &cookie, stop)
            .map_err(|error| explain_failure(&line, error))?;
        expect_state(&line, ControlState::TestStart, PATIENCE)?;
        expect_state(&line, ControlState::TestRunning, PATIENCE)?;
        Ok(Self { line, flow, message: parameters.length, warmup: omit, is_done: false })
    }

    /// The warm-up in whole seconds.
    pub const fn warmup(&self) -> Nanos {
        self.warmup
    }

    /// Runs the traffic until the end of `window`, then gets the server's results.
    pub(crate) fn run(mut self, window: Window, stop: &Stop) -> Result<PeerResult, Error> {
        let seconds = window.length().as_secs_f64();
        let outcome = match &self.flow {
            TestTraffic::Tcp { traffic_to_peer, direction, streams } => {
                let (direction, streams) = (*direction, *streams);
                let seen = traffic_to_peer
                    .bulk(direction, self.message, window, stop)
                    .map_err(|error| explain_failure(&self.line, error.into()))?;
                let sockets = clone_sockets(traffic_to_peer)?;
                let share = |bytes: u64| bytes / u64::from(streams);
                let stream = |bytes| OwnStream { bytes: share(bytes), packets: 0, seconds };
                let mut own = Vec::new();
                if direction != Direction::FromSut {
                    own.extend((0..streams).map(|_| stream(seen.sent_bytes)));
                }
                if direction != Direction::ToSut {
                    own.extend((0..streams).map(|_| stream(seen.received_bytes)));
                }
                let cpu = 100.0 * seen.cpu.as_secs_f64() / seconds;
                let results = self.exchange_results(&own, cpu, &sockets)?;
                joined::join_tcp_results(
                    self.line.peer(),
                    direction,
                    streams,
                    &seen,
                    &results,
                    window,
                )?
            }
            TestTraffic::Udp { streams, offered_bps } => {
                let offered_bps = *offered_bps;
                let sent = streams.run(window, stop).map_err(|e| explain_failure(&self.line, e))?;
                let message = self.message;
                let own: Vec<OwnStream> = sent
                    .of_stream
                    .iter()
                    .map(|&packets| OwnStream { bytes: packets * message.get(), packets, seconds })
                    .collect();
                let cpu = 100.0 * sent.cpu.as_secs_f64() / seconds;
                let results = self.exchange_results(&own, cpu, &[])?;
                joined::join_udp_results(
                    self.line.peer(),
                    message,
                    offered_bps,
                    &sent,
                    &results,
                    window,
                )?
            }
        };
        Ok(outcome)
    }

    /// Ends the test and exchanges results: this end's first, then the server's.
    fn exchange_results(
        &mut self,
        own: &[OwnStream],
        cpu_percent: f64,
        drained: &[TcpStream],
    ) -> Result<Iperf3Results, Error> {
        let line = &mut self.line;
        line.send(&[ControlState::TestEnd.to_byte()], "ending the test")?;
        expect_while_draining(line, ControlState::ExchangeResults, LAST_WORDS, drained)?;
        let results = message::own_results(own, cpu_percent);
        send_document(line, &results, "sending the results")?;
        let bytes = receive_document(line, drained)?;
        let malformed =
            |problem| Error::Malformed { peer: line.peer(), program: "iperf3", problem };
        let results = Iperf3Results::parse(&bytes).map_err(malformed)?;
        expect_while_draining(line, ControlState::DisplayResults, PATIENCE, drained)?;
        line.send(&[ControlState::IperfDone.to_byte()], "ending the test")?;
        self.is_done = true;
        Ok(results)
    }
}

impl Drop for Iperf3Session {
    /// Ends the test at once, since the server runs one at a time.
    fn drop(&mut self) {
        if !self.is_done {
            let _gone =
                self.line.send(&[ControlState::ClientTerminate.to_byte()], "giving up the test");
        }
    }
}

impl TestTraffic {
    fn open(
        peer: SocketAddr,
        workload: &Workload,
        cookie: &[u8],
        stop: &Stop,
    ) -> Result<Self, Error> {
        let sockets = &workload.sockets;
        let cpus = workload.binding.generator.as_ref();
        match workload.traffic {
            Traffic::TcpBulk { direction, connections, threads, .. } => {
                // For both directions the server first accepts the streams on which it receives.
                let ways = if direction == Direction::Both { 2 } else { 1 };
                let sockets = (0..ways * connections)
                    .map(|_| open_tcp_stream(peer, cookie, sockets))
                    .collect::<Result<Vec<TcpStream>, Error>>()?;
                let cpus = cpus.cloned().unwrap_or_default();
                let traffic_to_peer = PeerTraffic::new(sockets, false, threads, cpus)?;
                Ok(Self::Tcp { traffic_to_peer, direction, streams: connections })
            }
            Traffic::UdpStream { datagram_bytes, rate, connections, threads, .. } => {
                let streams = UdpStreams::open(peer, connections, datagram_bytes, sockets, stop)?;
                let offered_bps = rate.map(|rate| rate.get() as f64);
                Ok(Self::Udp { streams: streams.with_rate(rate, threads, cpus), offered_bps })
            }
            _ => unreachable!("support::check lets only bulk and datagram streams through"),
        }
    }
}

fn build_parameters(workload: &Workload, omit: Nanos, duration: Nanos) -> TestParameters<'_> {
    let cpu = workload.binding.sut.as_ref().and_then(|cpus| cpus.iter().next());
    let mut parameters = TestParameters {
        udp: false,
        omit_s: whole_seconds(omit),
        time_s: whole_seconds(duration),
        parallel: 1,
        reverse: false,
        bidirectional: false,
        length: Bytes::new(0),
        bandwidth_bps: 0,
        sockets: &workload.sockets,
        server_cpu: cpu.map(|cpu| cpu.0),
    };
    match workload.traffic {
        Traffic::TcpBulk { direction, message_bytes, connections, .. } => {
            parameters.parallel = connections;
            parameters.length = message_bytes;
            parameters.reverse = direction == Direction::FromSut;
            parameters.bidirectional = direction == Direction::Both;
        }
        Traffic::UdpStream { datagram_bytes, rate, connections, .. } => {
            parameters.udp = true;
            parameters.parallel = connections;
            parameters.length = datagram_bytes;
            parameters.bandwidth_bps =
                rate.map_or(0, |rate| rate.get() / u64::from(connections.max(1)));
        }
        _ => unreachable!("support::check lets only bulk and datagram streams through"),
    }
    parameters
}

/// Opens one TCP stream.
fn open_tcp_stream(
    peer: SocketAddr,
    cookie: &[u8],
    sockets: &latput_trial::workload::SocketOptions,
) -> Result<TcpStream, Error> {
    let mut socket = connect_with(peer, COMMAND, sockets)?;
    std::io::Write::write_all(&mut socket, cookie)
        .map_err(|_| Error::PeerGone { peer, doing: "opening a stream" })?;
    Ok(socket)
}

/// Connects and receives the request for parameters. A server ends a test after its client has, and calls itself busy
/// until then. It then closes its listening socket and opens another, and a connection in between is cut off. Both are
/// tried again.
fn connect_to_server(
    peer: SocketAddr,
    cookie: &[u8],
    stop: &Stop,
) -> Result<ControlConnection, Error> {
    let attempt = || {
        let mut line = ControlConnection::connect(peer, COMMAND, stop)?;
        line.send(cookie, "sending the cookie")?;
        expect_state(&line, ControlState::ParamExchange, PATIENCE)?;
        Ok(line)
    };
    let mut line = attempt();
    for _ in 0..GREETINGS_MORE {
        let Err(Error::PeerGone { .. } | Error::Busy { .. }) = line else { break };
        std::thread::sleep(BETWEEN_TESTS);
        match attempt() {
            // Not listening yet. The first error stays the reported one.
            Err(Error::Refused { .. }) => {}
            other => line = other,
        }
    }
    line
}

fn expect_state(
    line: &ControlConnection,
    wanted: ControlState,
    patience: Nanos,
) -> Result<(), Error> {
    expect_while_draining(line, wanted, patience, &[])
}

/// Waits for a state. States that end a test early are errors.
fn expect_while_draining(
    line: &ControlConnection,
    wanted: ControlState,
    patience: Nanos,
    drained: &[TcpStream],
) -> Result<(), Error> {
    let waiting_for = match wanted {
        ControlState::ParamExchange => "its question for the parameters",
        ControlState::CreateStreams => "its question for the streams",
        ControlState::ExchangeResults | ControlState::DisplayResults => "its results",
        _ => "the start of the test",
    };
    let peer = line.peer();
    let mut byte = [0];
    line.receive(&mut byte, drained, patience, waiting_for)?;
    match ControlState::from_byte(byte[0]) {
        Some(state) if state == wanted => Ok(()),
        Some(ControlState::AccessDenied) => Err(Error::Busy { peer }),
        Some(ControlState::ServerTerminate) => Err(Error::Terminated { peer }),
        Some(ControlState::ServerError) => {
            let (mut code, mut errno) = ([0; 4], [0; 4]);
            line.receive(&mut code, drained, PATIENCE, "its error number")?;
            // A server that wants a password closes the connection without the second number.
            let _absent = line.receive(&mut errno, drained, REASON, "its error number");
            let [code, errno] = [code, errno].map(u32::from_be_bytes);
            Err(Error::Refusal { peer, text: refusal::error_text(code, errno) })
        }
        other => {
            let found = other
                .map_or_else(|| format!("byte {:#04x}", byte[0]), |state| format!("{state:?}"));
            let problem = format!("{found} came instead of {wanted:?}");
            Err(Error::Malformed { peer, program: "iperf3", problem })
        }
    }
}

/// The server's reason for a broken connection, if it sent one, or else `error`.
fn explain_failure(line: &ControlConnection, error: Error) -> Error {
    if !matches!(error, Error::PeerGone { .. } | Error::Traffic(_) | Error::NoAnswer { .. }) {
        return error;
    }
    match expect_state(line, ControlState::ServerTerminate, REASON) {
        Ok(()) => Error::Terminated { peer: line.peer() },
        Err(said @ (Error::Busy { .. } | Error::Refusal { .. } | Error::Terminated { .. })) => said,
        Err(_) => error,
    }
}

fn send_document(
    line: &mut ControlConnection,
    text: &str,
    doing: &'static str,
) -> Result<(), Error> {
    let length = u32::try_from(text.len()).expect("a document of ours has some KB");
    line.send(&[&length.to_be_bytes(), text.as_bytes()].concat(), doing)
}

fn receive_document(line: &ControlConnection, drained: &[TcpStream]) -> Result<Vec<u8>, Error> {
    let mut length = [0; 4];
    line.receive(&mut length, drained, PATIENCE, "its results")?;
    let length = u32::from_be_bytes(length);
    if length > RESULTS_BYTES {
        let problem =
            format!("it announced results of {length} byte; {RESULTS_BYTES} is the limit");
        return Err(Error::Malformed { peer: line.peer(), program: "iperf3", problem });
    }
    let mut bytes = vec![0; length as usize];
    line.receive(&mut bytes, drained, PATIENCE, "its results")?;
    Ok(bytes)
}

/// Copies of the connections, which stay open beside those of the traffic.
pub(crate) fn clone_sockets(traffic_to_peer: &PeerTraffic) -> Result<Vec<TcpStream>, Error> {
    let sockets = traffic_to_peer.sockets().iter().map(TcpStream::try_clone);
    sockets.collect::<Result<_, _>>().map_err(|source| Error::io("keep a connection open", source))
}

/// A random cookie: 36 characters of base 32 and a NUL.
fn random_cookie() -> Result<[u8; 37], Error> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; 37];
    rustix::rand::getrandom(&mut bytes[..36], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::io("draw a random cookie", errno))?;
    for byte in &mut bytes[..36] {
        *byte = ALPHABET[usize::from(*byte % 32)];
    }
    Ok(bytes)
}

const fn whole_seconds(time: Nanos) -> u64 {
    time.as_ns().div_ceil(1_000_000_000)
}
