//! Opens the generator's connections and authenticates them, many at a time: ten thousand take a
//! few hundred round trips instead of twenty thousand.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::{now, timespec};
use crate::error::Error;
use crate::hello::{ANSWER, Hello};

/// Time limit of a connection and its handshake.
pub(crate) const AUTH_TIMEOUT: Nanos = Nanos::from_s(5);
/// Concurrent handshakes. The reflector accepts more unauthenticated connections than this.
const GROUP: usize = 32;

/// Opens a connection to `peer` for each of `hellos`, in their order. `prepare` sets socket options
/// before the connect.
pub(crate) fn dial(
    peer: SocketAddr,
    hellos: &[Hello],
    prepare: impl Fn(&Socket) -> Result<(), Error>,
) -> Result<Vec<TcpStream>, Error> {
    let mut sockets = Vec::with_capacity(hellos.len());
    for group in hellos.chunks(GROUP) {
        let deadline = now() + AUTH_TIMEOUT;
        let first = sockets.len();
        for _ in group {
            sockets.push(begin(peer, &prepare)?);
        }
        let fresh = &sockets[first..];
        serve(fresh, PollFlags::OUT, peer, deadline, |idx| {
            show_key(&fresh[idx], &group[idx], peer).map(|()| true)
        })?;
        let mut answers = vec![PartialAnswer::default(); fresh.len()];
        serve(fresh, PollFlags::IN, peer, deadline, |idx| {
            answers[idx].read(&fresh[idx], &group[idx], peer)
        })?;
        for socket in fresh {
            socket
                .set_nonblocking(false)
                .map_err(|source| Error::io("prepare a connection", source))?;
        }
    }
    Ok(sockets)
}

/// Starts a connect without waiting for it.
pub(crate) fn begin(
    peer: SocketAddr,
    prepare: impl Fn(&Socket) -> Result<(), Error>,
) -> Result<TcpStream, Error> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
        .map_err(|source| Error::io("open a TCP socket", source))?;
    prepare(&socket)?;
    match socket.connect(&peer.into()) {
        Err(source) if source.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
            Err(unreachable(peer, source))
        }
        _ => Ok(socket.into()),
    }
}

/// Calls `serve` for each socket that is ready, in any order, until `serve` has finished all of
/// them. A connection whose SYN was lost does not delay the others, which have one second to prove
/// the key.
fn serve(
    sockets: &[TcpStream],
    flags: PollFlags,
    peer: SocketAddr,
    deadline: Nanos,
    mut serve: impl FnMut(usize) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut waiting: Vec<usize> = (0..sockets.len()).collect();
    while !waiting.is_empty() {
        let left = deadline.saturating_sub(now());
        let mut fds: Vec<PollFd<'_>> =
            waiting.iter().map(|idx| PollFd::new(&sockets[*idx], flags)).collect();
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) if left == Nanos::ZERO => {
                return Err(Error::NoAnswer { peer, waited: AUTH_TIMEOUT });
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("wait for the reflector", errno)),
        }
        let mut still_waiting = Vec::with_capacity(waiting.len());
        for (fd, idx) in fds.iter().zip(&waiting) {
            if fd.revents().is_empty() || !serve(*idx)? {
                still_waiting.push(*idx);
            }
        }
        waiting = still_waiting;
    }
    Ok(())
}

fn show_key(mut socket: &TcpStream, hello: &Hello, peer: SocketAddr) -> Result<(), Error> {
    if let Some(source) =
        socket.take_error().map_err(|source| Error::io("look at a connection", source))?
    {
        return Err(unreachable(peer, source));
    }
    // The send buffer of a fresh connection takes the whole hello.
    socket.write_all(&hello.encode()).map_err(|source| in_handshake(peer, source))
}

/// The part of the reflector's answer received so far.
#[derive(Clone, Copy, Default)]
struct PartialAnswer {
    bytes: [u8; ANSWER],
    filled: usize,
}

impl PartialAnswer {
    /// Reads more of the answer. Returns whether it is complete and proves the key.
    fn read(
        &mut self,
        mut socket: &TcpStream,
        hello: &Hello,
        peer: SocketAddr,
    ) -> Result<bool, Error> {
        match socket.read(&mut self.bytes[self.filled..]) {
            Ok(0) => return Err(Error::NotWelcome { peer }),
            Ok(bytes) => self.filled += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Err(in_handshake(peer, error)),
            },
        }
        match self.filled == ANSWER {
            true if hello.is_answered_by(self.bytes) => Ok(true),
            true => Err(Error::NotReflector { peer }),
            false => Ok(false),
        }
    }
}

fn in_handshake(peer: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => Error::NotWelcome { peer },
        _ => Error::io("show the key to the reflector", source),
    }
}

/// The error for a failed connect to `peer`.
pub(crate) fn unreachable(peer: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused { peer },
        io::ErrorKind::TimedOut => Error::NoAnswer { peer, waited: AUTH_TIMEOUT },
        io::ErrorKind::AddrNotAvailable => Error::NoPortLeft { peer },
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::NoRoute { peer, source }
        }
        _ => Error::io("connect to the reflector", source),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn late_connection_holds_up_no_other() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
        let mut ends: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let late = ends.remove(0);
        for mut end in ends {
            end.write_all(b"x").unwrap();
        }
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            (&late).write_all(b"x").unwrap();
            late
        });
        let peer = listener.local_addr().unwrap();
        let mut served = Vec::new();
        serve(&sockets, PollFlags::IN, peer, now() + AUTH_TIMEOUT, |idx| {
            served.push(idx);
            Ok(true)
        })
        .unwrap();
        assert_eq!(served, [1, 2, 0]);
        writer.join().unwrap();
        let silent =
            serve(&sockets, PollFlags::PRI, peer, now() + Nanos::from_ms(20), |_| Ok(true));
        assert!(matches!(silent, Err(Error::NoAnswer { .. })), "{silent:?}");
    }
}
