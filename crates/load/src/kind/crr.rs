//! Connect, request, response, close: one connection per transaction.
//!
//! A transaction lasts from just before connect(2) until the client sees the server's end of the
//! connection. **The server closes first**, as HTTP servers do. `TIME_WAIT` then stays at the
//! server, where it binds no local port and a new connection may replace it (RFC 6191). The
//! client's port is free at once. If the client closed first, it could open some 470 connections a
//! second (28 232 ports of `ip_local_port_range`, a minute each). No `SO_LINGER` is set, so nothing
//! is reset and TCP's whole close is measured.
//!
//! Each request begins with the proof of the key, and no answer to the proof is awaited. A
//! transaction therefore has the same packets as without a key, with 50 bytes more in the request.

mod client;
mod server;

use latput_units::Bytes;

pub(crate) use self::client::run as call;
pub(crate) use self::server::{AuthState, run as serve};

use crate::limits;

/// Largest read from a socket, and largest write to it.
const PIECE_BYTES: usize = 128 * 1024;
/// The id of the thread's control connection. The run ends when it closes.
const CONTROL: usize = usize::MAX >> 1;

/// Sizes and options of the transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Size of a request in bytes, without the proof of the key.
    pub(crate) request: usize,
    pub(crate) response: usize,
    pub(crate) nodelay: bool,
    /// Concurrent transactions over all threads.
    pub(crate) connections: usize,
}

impl Exchange {
    pub(crate) fn new(request: Bytes, response: Bytes, nodelay: bool, connections: u32) -> Self {
        let (request, response) = (limits::size(request), limits::size(response));
        Self { request, response, nodelay, connections: connections as usize }
    }
}
