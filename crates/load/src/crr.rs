//! Connect, request, response, close: a connection to each transaction.
//!
//! A transaction is from just before connect(2) until the client has seen the server's end of the
//! connection. **The server closes first**, as HTTP servers do: `TIME_WAIT` then stays with the
//! server, where it binds no local port and a new connection may take its place (RFC 6191), and the
//! client's port is free at once; the other way round a client could open some 470 connections a second
//! (28 232 ports of `ip_local_port_range`, a minute each). No `SO_LINGER` is set: nothing is reset, and
//! the whole of TCP's closing is measured.
//!
//! The key is shown at the head of each request and no welcome is awaited, so that a transaction has the
//! packets that it would have without a key: 50 byte more of payload in the request are all.

mod client;
mod server;

use latput_units::Bytes;

pub(crate) use self::client::run as call;
pub(crate) use self::server::{Guard, run as serve};

use crate::limits;

/// Largest read from a socket, and most that is handed to the kernel at once.
const PIECE_BYTES: usize = 128 * 1024;
/// The thread's own connection, whose end is the end of the run.
const CONTROL: usize = usize::MAX >> 1;

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Sizes of request and response, without the key.
    pub(crate) request: usize,
    pub(crate) response: usize,
    pub(crate) nodelay: bool,
    /// Transactions under way at the same time, over all threads.
    pub(crate) connections: usize,
}

impl Exchange {
    pub(crate) fn new(request: Bytes, response: Bytes, nodelay: bool, connections: u32) -> Self {
        let (request, response) = (limits::size(request), limits::size(response));
        Self { request, response, nodelay, connections: connections as usize }
    }
}
