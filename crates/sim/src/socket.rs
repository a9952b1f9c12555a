//! Sockets: their queues, protocols and requests in flight.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::tcp::TcpEndpoint;

/// The protocol of a socket.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum SocketProtocol {
    /// Datagrams that wait for the process.
    Datagrams(DatagramQueue),
    Tcp(TcpEndpoint),
}

/// Datagrams waiting in a socket.
#[derive(Debug)]
pub(crate) struct DatagramQueue {
    waiting: Fifo<DatagramBurst>,
    len: u32,
    limit: u32,
}

/// Equal datagrams with their send times and size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DatagramBurst {
    pub(crate) sent_at: Time,
    /// Of responses: send time of the request.
    pub(crate) echo: Time,
    pub(crate) payload: u32,
    pub(crate) count: u32,
    /// Gap between two in nanoseconds; 0 if they were sent together.
    pub(crate) gap: u32,
}

impl DatagramQueue {
    pub(crate) fn new(limit: u32) -> Self {
        Self { waiting: Fifo::with_capacity(16), len: 0, limit }
    }

    /// Number of waiting datagrams.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Payload of the first waiting datagram.
    #[inline]
    pub(crate) fn first_payload(&self) -> Option<u32> {
        self.waiting.front().map(|first| first.payload)
    }

    /// Stores the packets of a burst that have room. Returns how many.
    #[inline]
    pub(crate) fn push_burst(&mut self, frame: &Frame) -> u32 {
        let count = frame.count().min(self.limit - self.len);
        if count == 0 {
            return 0;
        }
        self.len += count;
        match self.waiting.back_mut() {
            Some(last) if last.is_followed_by(frame) => last.count += count,
            _ => {
                let Frame { sent_at, echo, payload, .. } = *frame;
                self.waiting.push(DatagramBurst {
                    sent_at,
                    echo,
                    payload,
                    count,
                    gap: frame.gap(),
                });
            }
        }
        count
    }

    /// Removes the first equal datagrams, at most `most`.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Option<DatagramBurst> {
        let first = self.waiting.front_mut()?;
        if first.count <= most {
            self.len -= first.count;
            return self.waiting.pop();
        }
        self.len -= most;
        let taken = DatagramBurst { count: most, ..*first };
        let later = u64::from(most) * u64::from(first.gap);
        first.count -= most;
        (first.sent_at, first.echo) = (first.sent_at + later, first.echo + later);
        Some(taken)
    }
}

impl DatagramBurst {
    /// Whether a burst continues these datagrams.
    #[inline]
    fn is_followed_by(&self, burst: &Frame) -> bool {
        let later = u64::from(self.count) * u64::from(self.gap);
        self.payload == burst.payload
            && self.gap == burst.gap()
            && self.sent_at + later == burst.sent_at
            && self.echo + later == burst.echo
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingRequest {
    /// Due time of the request.
    pub(crate) due: Time,
    /// Send time of the request.
    pub(crate) sent: Time,
}

/// The state of a socket's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Open from the start to the end of the run.
    Lasting,
    /// One connection per transaction: none now.
    Closed,
    /// The client has sent the first segment.
    Connecting,
    /// Open for the current transaction.
    Open,
}

/// A socket: one cache line, followed by those of its protocol. The index of its peer differs in
/// the last bit.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SocketEnd {
    pub(crate) host: u32,
    pub(crate) load: u32,
    /// The owning process; `None` if the kernel answers.
    pub(crate) task: Option<u32>,
    /// The core to which RPS steers its packets.
    pub(crate) rps_core: Option<u32>,
    /// The NIC queue of its packets.
    pub(crate) queue: u32,
    /// Bytes read of an incomplete message.
    pub(crate) consumed: u32,
    /// Of a client: requests to send without a response before. Of a server: answers that are due.
    pub(crate) owed: u32,
    /// Whether it is on the generator's side of its load.
    pub(crate) is_generator: bool,
    /// Whether it is in its process's list of ready sockets.
    pub(crate) is_ready: bool,
    /// The state of its connection.
    pub(crate) link: ConnectionState,
    /// Its earliest entry in the host's timers.
    pub(crate) timer_at: Time,
    /// State of requests and responses, kept apart from streams.
    pub(crate) exchange: LazyExchange,
    pub(crate) protocol: SocketProtocol,
}

/// The requests and responses of a socket.
#[derive(Debug)]
pub(crate) struct ExchangeState {
    /// Of a client: requests in flight.
    pub(crate) starts: Fifo<PendingRequest>,
    /// Requests without an answer that wait for their timeout.
    pub(crate) missing: Fifo<PendingRequest>,
    /// Of a server: requests being answered, now or after thinking.
    pub(crate) answering: Fifo<PendingRequest>,
    pub(crate) thinking: Vec<(Time, PendingRequest)>,
    /// The number of the current connection.
    pub(crate) connection: u64,
    /// Start of the current connection.
    pub(crate) connect_at: Time,
    /// Time of the next check for lost transactions; [`NEVER`] if nothing is in flight.
    pub(crate) lost_at: Time,
    /// Timeout of a transaction; 0 for none.
    pub(crate) timeout: Time,
}

/// An [`ExchangeState`] that is allocated at its first use.
#[derive(Debug, Default)]
pub(crate) struct LazyExchange(OnceCell<Box<ExchangeState>>);

impl Deref for LazyExchange {
    type Target = ExchangeState;

    #[inline]
    fn deref(&self) -> &ExchangeState {
        self.0.get_or_init(|| Box::new(ExchangeState::new()))
    }
}

impl DerefMut for LazyExchange {
    #[inline]
    fn deref_mut(&mut self) -> &mut ExchangeState {
        self.0.get_or_init(|| Box::new(ExchangeState::new()));
        self.0.get_mut().expect("it was made just now")
    }
}

impl ExchangeState {
    fn new() -> Self {
        Self {
            starts: Fifo::empty(),
            missing: Fifo::empty(),
            answering: Fifo::empty(),
            thinking: Vec::new(),
            connection: 0,
            connect_at: 0,
            lost_at: NEVER,
            timeout: 0,
        }
    }

    /// Removes the datagram request sent at this time. Earlier unanswered ones count as missing.
    pub(crate) fn take_start(&mut self, sent: Time) -> Option<PendingRequest> {
        while let Some(start) = self.starts.front()
            && start.sent <= sent
        {
            let start = self.starts.pop()?;
            if start.sent == sent {
                return Some(start);
            }
            self.missing.push(start);
        }
        None
    }
}

impl SocketEnd {
    /// Bytes that can be read at once; for datagrams, of whole messages.
    pub(crate) fn readable_bytes(&self) -> u64 {
        match &self.protocol {
            SocketProtocol::Datagrams(inbox) => {
                inbox.first_payload().map_or(0, |payload| u64::from(payload.max(1)))
            }
            SocketProtocol::Tcp(tcp) => tcp.readable_bytes(),
        }
    }

    /// Reads each of its cache lines.
    #[inline]
    pub(crate) fn touch_cache_lines(&self) -> u64 {
        match &self.protocol {
            SocketProtocol::Datagrams(_) => self.timer_at,
            SocketProtocol::Tcp(tcp) => self.timer_at ^ tcp.touch_cache_lines(),
        }
    }

    pub(crate) fn new(host: usize, load: usize, queue: usize, protocol: SocketProtocol) -> Self {
        Self {
            host: id(host),
            load: id(load),
            task: None,
            rps_core: None,
            queue: id(queue),
            protocol,
            is_generator: false,
            is_ready: false,
            consumed: 0,
            owed: 0,
            link: ConnectionState::Lasting,
            timer_at: NEVER,
            exchange: LazyExchange::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_stays_small() {
        // With ten thousand streams the caches hold only so many; each part begins with a line of its own.
        assert_eq!(size_of::<SocketEnd>(), 256);
        assert_eq!(size_of::<TcpEndpoint>(), 192);
        assert_eq!(std::mem::offset_of!(SocketEnd, protocol), 56);
    }
}
