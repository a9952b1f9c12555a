//! The control connection to a third-party peer. Every wait has a deadline and checks the stop
//! flag. Every received length is limited before it is used.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use latput_load::{PrivilegedOption, Stop, now, set_with_rights};
use latput_trial::workload::SocketOptions;
use latput_units::{Bytes, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;

/// Longest connect, and longest step of a dialogue.
pub(crate) const PATIENCE: Nanos = Nanos::from_s(5);
/// Interval of the checks of the stop flag.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A control connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    socket: TcpStream,
    peer: SocketAddr,
    stop: Stop,
}

impl ControlConnection {
    /// Connects. `command` is the program that should listen, for error texts.
    pub(crate) fn connect(
        peer: SocketAddr,
        command: &'static str,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let socket = connect_tcp(peer, command)?;
        socket
            .set_nodelay(true)
            .and_then(|()| socket.set_write_timeout(Some(PATIENCE.as_duration())))
            .map_err(|source| Error::io("set the options of the control connection", source))?;
        Ok(Self { socket, peer, stop: stop.clone() })
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends all of a message.
    pub(crate) fn send(&mut self, bytes: &[u8], doing: &'static str) -> Result<(), Error> {
        self.socket.write_all(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::NoAnswer { peer: self.peer, waiting_for: doing, waited: PATIENCE }
            }
            _ if is_gone(&source) => Error::PeerGone { peer: self.peer, doing },
            _ => Error::io("send on the control connection", source),
        })
    }

    /// Fills `bytes` within `patience`. Meanwhile discards data from `drained`, so that a peer that
    /// blocks in its last send can continue.
    pub(crate) fn receive(
        &self,
        bytes: &mut [u8],
        drained: &[TcpStream],
        patience: Nanos,
        waiting_for: &'static str,
    ) -> Result<(), Error> {
        let deadline = now() + patience;
        let mut filled = 0;
        let mut open: Vec<&TcpStream> = drained.iter().collect();
        while filled < bytes.len() {
            if self.stop.is_raised() {
                return Err(Error::Stopped);
            }
            if now() >= deadline {
                return Err(Error::NoAnswer { peer: self.peer, waiting_for, waited: patience });
            }
            let mut watched = vec![PollFd::new(&self.socket, PollFlags::IN)];
            watched.extend(open.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)));
            match poll(&mut watched, Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io("wait for the control connection", errno)),
            }
            let ready: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
            drop(watched);
            let mut others = ready[1..].iter();
            open.retain(|socket| !*others.next().unwrap_or(&false) || is_open_after_drain(socket));
            if ready[0] {
                match recv(&self.socket, &mut bytes[filled..], RecvFlags::DONTWAIT) {
                    Ok((0, _)) => {
                        return Err(Error::PeerGone { peer: self.peer, doing: waiting_for });
                    }
                    Ok((count, _)) => filled += count,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(errno) if is_gone(&errno.into()) => {
                        return Err(Error::PeerGone { peer: self.peer, doing: waiting_for });
                    }
                    Err(errno) => return Err(Error::io("read the control connection", errno)),
                }
            }
        }
        Ok(())
    }
}

/// Opens a TCP connection.
pub(crate) fn connect_tcp(peer: SocketAddr, command: &'static str) -> Result<TcpStream, Error> {
    connect_with(peer, command, &SocketOptions::default())
}

/// Opens a TCP connection. Sets the workload's socket options before the connect, so that the
/// receive buffer limits the window.
pub(crate) fn connect_with(
    peer: SocketAddr,
    command: &'static str,
    options: &SocketOptions,
) -> Result<TcpStream, Error> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, Some(Protocol::TCP))
        .map_err(|source| Error::io("open a TCP socket", source))?;
    let size = |bytes: Bytes| usize::try_from(bytes.get()).unwrap_or(usize::MAX);
    let failed = |source| Error::io("set the buffer size of a TCP socket", source);
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(size(bytes)).map_err(failed)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(size(bytes)).map_err(failed)?;
    }
    if let Some(name) = &options.congestion {
        let option = PrivilegedOption::Congestion(name.clone());
        set_with_rights(socket.as_fd(), &option).map_err(|source| {
            Error::io("set the congestion control (is its kernel module there?)", source)
        })?;
    }
    socket.connect_timeout(&peer.into(), PATIENCE.as_duration()).map_err(|source| match source
        .kind()
    {
        io::ErrorKind::ConnectionRefused => Error::Refused { peer, command },
        io::ErrorKind::TimedOut => {
            Error::NoAnswer { peer, waiting_for: "connecting", waited: PATIENCE }
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::NoRoute { peer, source }
        }
        _ => Error::io("connect to the peer", source),
    })?;
    Ok(socket.into())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted
    )
}

/// Discards received data. Returns whether more may come.
fn is_open_after_drain(socket: &TcpStream) -> bool {
    let mut scrap = [0_u8; 16 << 10];
    // Few reads at a time, so that a fast sender does not delay the control connection.
    for _ in 0..64 {
        match recv(socket, &mut scrap[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
    }
    true
}
