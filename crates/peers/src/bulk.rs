//! Bulk TCP over connections that a stock peer's protocol opened: both directions, several threads.

use std::net::TcpStream;
use std::panic::resume_unwind;
use std::thread;

use latput_load::{Driven, ReceiverOutcome, SenderOutcome, Stop, Window};
use latput_units::{Bytes, CpuSet, Nanos};

use crate::error::Error;

/// Connections of one test, by who sends on them.
#[derive(Debug)]
pub(crate) struct Bulk {
    to_peer: Vec<Driven>,
    from_peer: Vec<Driven>,
}

/// What this end saw in its window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Bytes that this end's kernel took.
    pub(crate) sent_bytes: u64,
    /// Bytes that this end's application got.
    pub(crate) received_bytes: u64,
    /// Segments that this end sent again.
    pub(crate) retransmits: Option<u64>,
    /// CPU time of the traffic threads.
    pub(crate) cpu: Nanos,
}

impl Bulk {
    /// Spreads the connections over `threads` for each direction.
    pub(crate) fn new(
        to_peer: Vec<TcpStream>,
        from_peer: Vec<TcpStream>,
        threads: u32,
        cpus: &CpuSet,
    ) -> Result<Self, Error> {
        let spread = |sockets| spread(sockets, threads, false, cpus);
        Ok(Self { to_peer: spread(to_peer)?, from_peer: spread(from_peer)? })
    }

    /// Lets the traffic flow until a cool-down after `window`.
    pub(crate) fn run(&self, message: Bytes, window: Window, stop: &Stop) -> Result<Seen, Error> {
        thread::scope(|scope| {
            let senders: Vec<_> = self
                .to_peer
                .iter()
                .map(|driven| scope.spawn(move || driven.send(message, window, stop)))
                .collect();
            let receivers: Vec<_> = self
                .from_peer
                .iter()
                .map(|driven| scope.spawn(move || driven.receive(window, stop)))
                .collect();
            let sent = join_all(senders);
            let received = join_all(receivers);
            Ok(Seen::of(&sent?, &received?))
        })
    }

    /// All connections.
    pub(crate) fn sockets(&self) -> Result<Vec<TcpStream>, Error> {
        let all = self.to_peer.iter().chain(&self.from_peer).flat_map(Driven::sockets);
        all.map(TcpStream::try_clone)
            .collect::<Result<_, _>>()
            .map_err(|source| Error::io("keep a connection open", source))
    }
}

/// Hands every thread its share of the connections.
pub(crate) fn spread(
    sockets: Vec<TcpStream>,
    threads: u32,
    nodelay: bool,
    cpus: &CpuSet,
) -> Result<Vec<Driven>, Error> {
    let mut shares: Vec<Vec<TcpStream>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
    let count = shares.len();
    for (idx, socket) in sockets.into_iter().enumerate() {
        shares[idx % count].push(socket);
    }
    let filled = shares.into_iter().filter(|share| !share.is_empty());
    filled.map(|share| Ok(Driven::new(share, nodelay, cpus.clone())?)).collect()
}

/// Waits for every thread, and returns the first error only then.
pub(crate) fn join_all<T>(
    threads: Vec<thread::ScopedJoinHandle<'_, Result<T, latput_load::Error>>>,
) -> Result<Vec<T>, Error> {
    let ended: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        .collect();
    ended.into_iter().map(|result| result.map_err(Error::from)).collect()
}

impl Seen {
    fn of(sent: &[SenderOutcome], received: &[ReceiverOutcome]) -> Self {
        let again = sent.iter().map(|one| one.retransmits);
        Self {
            sent_bytes: sent.iter().map(|one| one.sent_bytes).sum(),
            received_bytes: received.iter().map(|one| one.received_bytes).sum(),
            retransmits: again.sum::<Option<u64>>().filter(|_| !sent.is_empty()),
            cpu: sent.iter().map(|one| one.cpu).chain(received.iter().map(|one| one.cpu)).sum(),
        }
    }
}
