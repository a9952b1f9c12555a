//! The generator's way in: opens its connections and shows the key on each, many at a time, so that ten
//! thousand take a few hundred round trips and not twenty thousand.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::clock::{now, timespec};
use crate::error::Error;
use crate::hello::{Hello, WELCOME};

/// How long a connection and its welcome may take.
pub(crate) const PATIENCE: Nanos = Nanos::from_s(5);
/// Connections that show the key at the same time: fewer than the reflector holds unproven.
const GROUP: usize = 32;

/// Opens a connection to `peer` for each of `hellos`, in their order; `prepare` sets options before it
/// connects.
pub(crate) fn dial(
    peer: SocketAddr,
    hellos: &[Hello],
    prepare: impl Fn(&Socket) -> Result<(), Error>,
) -> Result<Vec<TcpStream>, Error> {
    let mut sockets = Vec::with_capacity(hellos.len());
    for group in hellos.chunks(GROUP) {
        let deadline = now() + PATIENCE;
        let first = sockets.len();
        for _ in group {
            sockets.push(begin(peer, &prepare)?);
        }
        for (socket, hello) in sockets[first..].iter().zip(group) {
            show_key(socket, hello, peer, deadline)?;
        }
        for socket in &sockets[first..] {
            read_welcome(socket, peer, deadline)?;
            socket
                .set_nonblocking(false)
                .map_err(|source| Error::io("prepare a connection", source))?;
        }
    }
    Ok(sockets)
}

/// Starts to connect.
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

fn show_key(
    mut socket: &TcpStream,
    hello: &Hello,
    peer: SocketAddr,
    deadline: Nanos,
) -> Result<(), Error> {
    wait_for(socket, PollFlags::OUT, peer, deadline)?;
    if let Some(source) =
        socket.take_error().map_err(|source| Error::io("look at a connection", source))?
    {
        return Err(unreachable(peer, source));
    }
    // A fresh connection's send buffer takes a hello whole.
    socket.write_all(&hello.encode()).map_err(|source| in_handshake(peer, source))
}

fn read_welcome(mut socket: &TcpStream, peer: SocketAddr, deadline: Nanos) -> Result<(), Error> {
    let mut answer = [0; WELCOME.len()];
    let mut filled = 0;
    while filled < answer.len() {
        wait_for(socket, PollFlags::IN, peer, deadline)?;
        match socket.read(&mut answer[filled..]) {
            Ok(0) => return Err(Error::NotWelcome { peer }),
            Ok(bytes) => filled += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => return Err(in_handshake(peer, error)),
            },
        }
    }
    if answer == WELCOME { Ok(()) } else { Err(Error::NotReflector { peer }) }
}

fn wait_for(
    socket: &TcpStream,
    flags: PollFlags,
    peer: SocketAddr,
    deadline: Nanos,
) -> Result<(), Error> {
    loop {
        let left = deadline.saturating_sub(now());
        match poll(&mut [PollFd::new(socket, flags)], Some(&timespec(left))) {
            Ok(0) if left == Nanos::ZERO => {
                return Err(Error::NoAnswer { peer, waited: PATIENCE });
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Error::io("wait for the reflector", errno)),
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

/// What it means that `peer` cannot be connected to.
pub(crate) fn unreachable(peer: SocketAddr, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused { peer },
        io::ErrorKind::TimedOut => Error::NoAnswer { peer, waited: PATIENCE },
        io::ErrorKind::AddrNotAvailable => Error::NoPortLeft { peer },
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::NoRoute { peer, source }
        }
        _ => Error::io("connect to the reflector", source),
    }
}
