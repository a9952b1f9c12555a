//! Sockets: what waits in them, what they speak, and which requests of theirs are in flight.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use crate::agenda::{NEVER, Time};
use crate::casts::id;
use crate::fifo::Fifo;
use crate::frame::Frame;
use crate::tcp::Tcp;

/// What a socket speaks.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum Protocol {
    /// Datagrams wait for the process.
    Datagrams(Inbox),
    Tcp(Tcp),
}

/// Datagrams that wait in a socket.
#[derive(Debug)]
pub(crate) struct Inbox {
    waiting: Fifo<Datagrams>,
    len: u32,
    limit: u32,
}

/// Datagrams that are alike: when they were sent, and how large each is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) sent_at: Time,
    /// Of a response: when its request was sent.
    pub(crate) echo: Time,
    pub(crate) payload: u32,
    pub(crate) count: u32,
    /// From one to the next, in nanoseconds; 0: they were sent together.
    pub(crate) gap: u32,
}

impl Inbox {
    pub(crate) fn new(limit: u32) -> Self {
        Self { waiting: Fifo::with_capacity(16), len: 0, limit }
    }

    /// How many wait.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Payload of the first that waits.
    #[inline]
    pub(crate) fn first_payload(&self) -> Option<u32> {
        self.waiting.front().map(|first| first.payload)
    }

    /// Puts as many packets of a burst into the socket as there is room for; gives how many.
    #[inline]
    pub(crate) fn put(&mut self, frame: &Frame) -> u32 {
        let count = frame.count().min(self.limit - self.len);
        if count == 0 {
            return 0;
        }
        self.len += count;
        match self.waiting.back_mut() {
            Some(last) if last.is_followed_by(frame) => last.count += count,
            _ => {
                let Frame { sent_at, echo, payload, .. } = *frame;
                self.waiting.push(Datagrams { sent_at, echo, payload, count, gap: frame.gap() });
            }
        }
        count
    }

    /// The first ones that are alike, at most `most`.
    #[inline]
    pub(crate) fn take(&mut self, most: u32) -> Option<Datagrams> {
        let first = self.waiting.front_mut()?;
        if first.count <= most {
            self.len -= first.count;
            return self.waiting.pop();
        }
        self.len -= most;
        let taken = Datagrams { count: most, ..*first };
        let later = u64::from(most) * u64::from(first.gap);
        first.count -= most;
        (first.sent_at, first.echo) = (first.sent_at + later, first.echo + later);
        Some(taken)
    }
}

impl Datagrams {
    /// Whether a burst goes on with datagrams as these are.
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
pub(crate) struct Start {
    /// When it was to be sent.
    pub(crate) due: Time,
    /// When it was.
    pub(crate) sent: Time,
}

/// How the connection of a socket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Open from the start to the end of the run.
    Lasting,
    /// A connection to each transaction: none now.
    Closed,
    /// Asked for.
    Connecting,
    /// For the transaction under way.
    Open,
}

/// A socket: a cache line, and those of its protocol behind it. Its peer is the one with the last bit of the
/// index flipped.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SocketEnd {
    pub(crate) host: u32,
    pub(crate) load: u32,
    /// The process that owns it; `None` if the kernel itself answers.
    pub(crate) task: Option<u32>,
    /// The core that RPS steers its packets to.
    pub(crate) rps_core: Option<u32>,
    /// The NIC queue that its packets arrive on and leave by.
    pub(crate) queue: u32,
    /// Bytes read of the message under way.
    pub(crate) consumed: u32,
    /// Of a client, requests to send without a response before; of a server, answers whose time has come.
    pub(crate) owed: u32,
    /// Whether it is at the generator's side of its load.
    pub(crate) is_generator: bool,
    /// In its process's list of ready sockets.
    pub(crate) is_ready: bool,
    /// How its connection stands.
    pub(crate) link: Link,
    /// Its earliest entry in the host's timers.
    pub(crate) timer_at: Time,
    /// What only requests and responses need, out of the way of streams.
    pub(crate) exchange: Exchanges,
    pub(crate) protocol: Protocol,
}

/// The requests and responses of a socket.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Of a client: requests in flight.
    pub(crate) starts: Fifo<Start>,
    /// Requests whose answer never came and that wait for their timeout.
    pub(crate) missing: Fifo<Start>,
    /// Of a server: requests that it answers now, or when it has thought.
    pub(crate) answering: Fifo<Start>,
    pub(crate) thinking: Vec<(Time, Start)>,
    /// The number of the connection under way.
    pub(crate) connection: u64,
    /// When it was begun.
    pub(crate) connect_at: Time,
    /// When a lost transaction is looked for; [`NEVER`] if nothing is in flight.
    pub(crate) lost_at: Time,
    /// How long a transaction may take; 0: it is waited for.
    pub(crate) timeout: Time,
}

/// The same, made when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(OnceCell<Box<Exchange>>);

impl Deref for Exchanges {
    type Target = Exchange;

    #[inline]
    fn deref(&self) -> &Exchange {
        self.0.get_or_init(|| Box::new(Exchange::new()))
    }
}

impl DerefMut for Exchanges {
    #[inline]
    fn deref_mut(&mut self) -> &mut Exchange {
        self.0.get_or_init(|| Box::new(Exchange::new()));
        self.0.get_mut().expect("it was made just now")
    }
}

impl Exchange {
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

    /// The datagram request that was sent at this time; earlier ones without an answer are missing.
    pub(crate) fn take_start(&mut self, sent: Time) -> Option<Start> {
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
    /// Bytes (or, of datagrams, whole messages' bytes) that can be read at once.
    pub(crate) fn readable(&self) -> u64 {
        match &self.protocol {
            Protocol::Datagrams(inbox) => {
                inbox.first_payload().map_or(0, |payload| u64::from(payload.max(1)))
            }
            Protocol::Tcp(tcp) => tcp.readable(),
        }
    }

    /// Something of each cache line of it.
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        match &self.protocol {
            Protocol::Datagrams(_) => self.timer_at,
            Protocol::Tcp(tcp) => self.timer_at ^ tcp.fetch(),
        }
    }

    pub(crate) fn new(host: usize, load: usize, queue: usize, protocol: Protocol) -> Self {
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
            link: Link::Lasting,
            timer_at: NEVER,
            exchange: Exchanges::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stays_small() {
        // With ten thousand streams the caches hold only so many; each part begins with a line of its own.
        assert_eq!(size_of::<SocketEnd>(), 256);
        assert_eq!(size_of::<Tcp>(), 192);
        assert_eq!(std::mem::offset_of!(SocketEnd, protocol), 56);
    }
}
