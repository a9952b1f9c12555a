//! Bulk on TCP: the sender sends without pause, the receiver counts what it got.

use std::net::TcpStream;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::clock::now;
use crate::error::Error;
use crate::meter::{Meter, Phase};
use crate::supervise::Link;

/// Size of a read: four of the default sends, and still inside a core's second-level cache.
const READ_BYTES: usize = 128 * 1024;
/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// Sends messages of `message_bytes` until the meter says that it is over. Returns the bytes that the
/// kernel took in the window.
pub(crate) fn send_all(
    link: &Link<'_>,
    message_bytes: usize,
    meter: &mut Meter<'_>,
) -> Result<u64, Error> {
    let message = vec![0_u8; message_bytes];
    pump(link, EventFlags::OUT, meter, |socket, nonblocking| {
        let flags = if nonblocking { SendFlags::DONTWAIT } else { SendFlags::empty() };
        send(socket, &message, flags | SendFlags::NOSIGNAL)
    })
}

/// Receives until the other end closes. Returns the bytes that came in the window.
pub(crate) fn receive_all(link: &Link<'_>, meter: &mut Meter<'_>) -> Result<u64, Error> {
    let mut buffer = vec![0_u8; READ_BYTES];
    pump(link, EventFlags::IN, meter, |socket, nonblocking| {
        let flags = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        recv(socket, &mut buffer[..], flags).map(|(bytes, _)| bytes)
    })
}

/// Calls `transfer` on the connections for as long as there is traffic: blocking on a single one, else
/// on those that are ready.
fn pump(
    link: &Link<'_>,
    ready: EventFlags,
    meter: &mut Meter<'_>,
    mut transfer: impl FnMut(&TcpStream, bool) -> Result<usize, Errno>,
) -> Result<u64, Error> {
    let mut total = 0;
    // `Some` ends the traffic.
    let mut once = |socket: &TcpStream, nonblocking: bool| -> Option<Result<(), Error>> {
        let bytes = match transfer(socket, nonblocking) {
            Ok(0) => return Some(link.closed(None)),
            Ok(bytes) => bytes,
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(errno) => return Some(link.closed(Some(errno))),
        };
        match meter.phase(now()) {
            Phase::Window => total += bytes as u64,
            Phase::WarmUp | Phase::CoolDown => {}
            Phase::Over => return Some(Ok(())),
        }
        None
    };
    let end = match link.sockets {
        [socket] => loop {
            if let Some(end) = once(socket, false) {
                break end;
            }
        },
        sockets => take_turns(sockets, ready, |socket| once(socket, true))?,
    };
    end.map(|()| total)
}

fn take_turns<T>(
    sockets: &[TcpStream],
    ready: EventFlags,
    mut once: impl FnMut(&TcpStream) -> Option<T>,
) -> Result<T, Error> {
    let poll = epoll::create(CreateFlags::CLOEXEC)
        .map_err(|errno| Error::io("create an epoll instance", errno))?;
    for (idx, socket) in (0..).zip(sockets) {
        epoll::add(&poll, socket, EventData::new_u64(idx), ready)
            .map_err(|errno| Error::io("watch a connection with epoll", errno))?;
    }
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("wait for events on connections", errno)),
        }
        for event in events.drain(..) {
            let idx = usize::try_from(event.data.u64()).expect("an index we gave to epoll");
            if let Some(end) = once(&sockets[idx]) {
                return Ok(end);
            }
        }
    }
}
