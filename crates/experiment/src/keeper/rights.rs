//! The rights of a keeper over its agent's sockets: a few socket options, and echo sockets to one address.
//!
//! Sockets go over a Unix socket with the question or the answer (`SCM_RIGHTS`).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use latput_load::{PrivilegedOption, Rights, open_echo_socket};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use crate::passing::{receive, send};

/// Most bytes of a question or an answer.
const MAX_BYTES: usize = 512;
/// Most time of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What is wanted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Wanted {
    /// Set this on the socket that comes with it.
    Option(PrivilegedOption),
    /// Open an echo socket.
    EchoSocket(IpAddr),
}

/// The error number, or 0.
#[derive(Debug, Serialize, Deserialize)]
struct Given {
    errno: i32,
}

/// Serves an agent until it ends.
pub(super) fn serve(end: &OwnedFd) {
    while let Ok((wanted, mut sockets)) = receive::<Wanted>(end, MAX_BYTES) {
        let given = match (wanted, sockets.pop()) {
            (Wanted::Option(option), Some(socket)) => option.set(socket.as_fd()).map(|()| None),
            (Wanted::EchoSocket(peer), None) => {
                open_echo_socket(peer).map(|socket| Some(OwnedFd::from(socket)))
            }
            _ => Err(io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error())),
        };
        let (errno, socket) = match given {
            Ok(socket) => (0, socket),
            Err(error) => {
                let unknown = rustix::io::Errno::IO.raw_os_error();
                (error.raw_os_error().unwrap_or(unknown), None)
            }
        };
        if send(end, &Given { errno }, &socket.iter().map(AsFd::as_fd).collect::<Vec<_>>()).is_err()
        {
            return;
        }
    }
}

/// An agent's end.
#[derive(Debug)]
pub(crate) struct KeepersRights(Mutex<OwnedFd>);

impl KeepersRights {
    pub(crate) fn new(end: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&end, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self(Mutex::new(end)))
    }

    fn ask(&self, wanted: &Wanted, socket: Option<BorrowedFd<'_>>) -> io::Result<Option<OwnedFd>> {
        let end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send(&end, wanted, &socket.into_iter().collect::<Vec<_>>())?;
        match receive(&end, MAX_BYTES)? {
            (Given { errno: 0 }, mut sockets) => Ok(sockets.pop()),
            (Given { errno }, _) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Rights for KeepersRights {
    fn set(&self, socket: BorrowedFd<'_>, option: &PrivilegedOption) -> io::Result<()> {
        self.ask(&Wanted::Option(option.clone()), Some(socket)).map(drop)
    }

    fn open_echo_socket(&self, peer: IpAddr) -> io::Result<OwnedFd> {
        let socket = self.ask(&Wanted::EchoSocket(peer), None)?;
        socket.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn an_option_is_set_on_the_agents_socket_and_nothing_else_is_done() {
        let (keepers, agents) = crate::passing::pair().unwrap();
        let serving = thread::spawn(move || serve(&keepers));
        let rights = KeepersRights::new(agents).unwrap();
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let congestion = PrivilegedOption::Congestion("reno".to_owned());
        rights.set(socket.as_fd(), &congestion).unwrap();
        let unknown = PrivilegedOption::Congestion("no/such".to_owned());
        let refused = rights.set(socket.as_fd(), &unknown).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));
        // An option without a socket, and a socket without an option.
        assert!(rights.ask(&Wanted::Option(congestion), None).is_err());
        let echo = Wanted::EchoSocket(Ipv4Addr::LOCALHOST.into());
        assert!(rights.ask(&echo, Some(socket.as_fd())).is_err());
        drop(rights);
        serving.join().unwrap();
    }

    #[test]
    fn what_is_no_question_ends_the_service() {
        let (keepers, agents) = crate::passing::pair().unwrap();
        let serving = thread::spawn(move || serve(&keepers));
        send(&agents, &"give me a shell", &[]).unwrap();
        serving.join().unwrap();
    }
}
