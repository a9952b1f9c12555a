//! Request and response on UDP with a netserver, whose responses carry no number.
//!
//! A response counts for the oldest request in flight, as in netperf. After a timeout all requests
//! in flight count as lost, since the missing one cannot be identified.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use latput_load::{Stop, Window, now};
use latput_stats::Histogram;
use latput_units::Nanos;

use crate::error::Error;
use crate::window_cpu::WindowCpu;

/// Longest receive without a check of the stop flag.
const TICK: Nanos = Nanos::from_ms(20);
/// Time without a response after which the server counts as gone.
const SILENCE: Nanos = Nanos::from_s(5);

/// Counts of the exchange in its window.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeCounts {
    pub(crate) transactions: u64,
    pub(crate) latency: Histogram,
    pub(crate) lost: u64,
    pub(crate) cpu: Nanos,
}

/// Parameters of the exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RrParameters {
    /// Bytes of a request.
    pub(crate) request: usize,
    /// Bytes of a response.
    pub(crate) response: usize,
    /// Requests in flight.
    pub(crate) in_flight: u32,
    /// Time after which a response counts as lost.
    pub(crate) timeout: Nanos,
}

/// A UDP socket of the peer's family on any port.
pub(crate) fn open(peer: SocketAddr) -> Result<UdpSocket, Error> {
    latput_load::bind_same_family(peer).map_err(|source| Error::io("open a UDP socket", source))
}

/// Keeps `in_flight` requests in flight until the end of `window`, then ends the test at the
/// server.
pub(crate) fn exchange_datagrams(
    socket: &UdpSocket,
    peer: SocketAddr,
    plan: &RrParameters,
    window: Window,
    stop: &Stop,
) -> Result<ExchangeCounts, Error> {
    let RrParameters { request, response, in_flight, timeout } = *plan;
    let failed = |source| Error::io("exchange datagrams with the peer", source);
    socket.connect(peer).map_err(failed)?;
    socket.set_read_timeout(Some(timeout.min(TICK).as_duration())).map_err(failed)?;
    let message = vec![0_u8; request];
    let mut buffer = vec![0_u8; response + 1];
    let mut sent: VecDeque<Nanos> = VecDeque::new();
    let mut seen = ExchangeCounts::default();
    let mut last_answer = now();
    let mut cpu = WindowCpu::new(window);
    loop {
        let at = now();
        cpu.read_at(at);
        if stop.is_raised() {
            return Err(Error::Stopped);
        }
        if at >= window.end() {
            break;
        }
        while sent.len() < in_flight as usize {
            sent.push_back(now());
            match socket.send(&message) {
                Ok(_) => {}
                Err(error) if is_refused(&error) => return Err(peer_gone(peer)),
                Err(error) => return Err(failed(error)),
            }
        }
        match socket.recv(&mut buffer) {
            // An empty datagram ends a test. A server that exits sends one.
            Ok(0) => return Err(peer_gone(peer)),
            Ok(_) => {
                let at = now();
                last_answer = at;
                let Some(start) = sent.pop_front() else { continue };
                if at >= window.start() && at < window.end() {
                    seen.transactions += 1;
                    seen.latency.record(at.saturating_sub(start));
                }
            }
            Err(error) if is_refused(&error) => return Err(peer_gone(peer)),
            Err(error) if is_timeout(&error) => {
                let at = now();
                if at.saturating_sub(last_answer) >= SILENCE.max(timeout.saturating_mul(2)) {
                    return Err(peer_gone(peer));
                }
                let oldest = sent.front().copied().unwrap_or(at);
                if at.saturating_sub(oldest) >= timeout {
                    seen.lost += if at >= window.start() { sent.len() as u64 } else { 0 };
                    sent.clear();
                }
            }
            Err(error) => return Err(failed(error)),
        }
    }
    for _ in 0..3 {
        let _over = socket.send(&[]); // any one of them is enough
    }
    seen.cpu = cpu.cpu_used();
    Ok(seen)
}

const fn peer_gone(peer: SocketAddr) -> Error {
    Error::PeerGone { peer, doing: "in the middle of the datagrams" }
}

fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
