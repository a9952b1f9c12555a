//! The rights of a keeper over its agent's sockets and files: a few socket options, echo sockets to one address, files that
//! everybody may read, and a socket that an application sends statsd to.
//!
//! Sockets go over a Unix socket with the question or the answer (`SCM_RIGHTS`).

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use latput_linux::confine;
use latput_load::{PrivilegedOption, Rights, open_echo_socket};
use latput_protocol::passing::{receive_message, send_message};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use super::statsd::SocketFile;

/// Most bytes of a question or an answer.
const MAX_BYTES: usize = 8192;
/// Most time of an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Rights that are wanted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum PrivilegedRequest {
    /// Set this on the socket that comes with it.
    Option(PrivilegedOption),
    /// Open an echo socket.
    EchoSocket(IpAddr),
    /// Open a file that everybody may read.
    File(String),
    /// Make a socket for statsd. There is one at a time.
    Statsd(String),
}

/// The error number, or 0.
#[derive(Debug, Serialize, Deserialize)]
struct PrivilegedReply {
    errno: i32,
}

/// Serves an agent until it ends.
pub(super) fn serve_privileged_requests(end: &OwnedFd) {
    let mut statsd = None;
    while let Ok((wanted, mut sockets)) = receive_message::<PrivilegedRequest>(end, MAX_BYTES) {
        let given = match (wanted, sockets.pop()) {
            (PrivilegedRequest::Option(option), Some(socket)) => {
                option.set(socket.as_fd()).map(|()| None)
            }
            (PrivilegedRequest::EchoSocket(peer), None) => {
                open_echo_socket(peer).map(|socket| Some(OwnedFd::from(socket)))
            }
            (PrivilegedRequest::File(path), None) => {
                confine::open_as_nobody(Path::new(&path)).map(Some)
            }
            (PrivilegedRequest::Statsd(path), None) => {
                drop(statsd.take());
                SocketFile::bind(&path).map(|(socket, file)| {
                    statsd = Some(file);
                    Some(socket)
                })
            }
            _ => Err(io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error())),
        };
        let (errno, socket) = match given {
            Ok(socket) => (0, socket),
            Err(error) => {
                let unknown = match error.kind() {
                    io::ErrorKind::InvalidInput => rustix::io::Errno::INVAL,
                    io::ErrorKind::AlreadyExists => rustix::io::Errno::EXIST,
                    _ => rustix::io::Errno::IO,
                };
                (error.raw_os_error().unwrap_or(unknown.raw_os_error()), None)
            }
        };
        if send_message(
            end,
            &PrivilegedReply { errno },
            &socket.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        )
        .is_err()
        {
            return;
        }
    }
}

/// An agent's end.
#[derive(Clone, Debug)]
pub(crate) struct KeeperClient(Arc<Mutex<OwnedFd>>);

impl KeeperClient {
    pub(crate) fn new(end: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&end, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Self(Arc::new(Mutex::new(end))))
    }

    /// A regular file that everybody may read.
    pub(crate) fn open_file(&self, path: &str) -> io::Result<File> {
        let file = self.send_request(&PrivilegedRequest::File(path.to_owned()), None)?;
        file.map(File::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// A socket at this path that everybody may send to. It is gone when this agent is.
    pub(crate) fn open_statsd(&self, path: &str) -> io::Result<UnixDatagram> {
        let socket = self.send_request(&PrivilegedRequest::Statsd(path.to_owned()), None)?;
        socket.map(UnixDatagram::from).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn send_request(
        &self,
        wanted: &PrivilegedRequest,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<Option<OwnedFd>> {
        let end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        send_message(&end, wanted, &socket.into_iter().collect::<Vec<_>>())?;
        match receive_message(&end, MAX_BYTES)? {
            (PrivilegedReply { errno: 0 }, mut sockets) => Ok(sockets.pop()),
            (PrivilegedReply { errno }, _) => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Rights for KeeperClient {
    fn set(&self, socket: BorrowedFd<'_>, option: &PrivilegedOption) -> io::Result<()> {
        self.send_request(&PrivilegedRequest::Option(option.clone()), Some(socket)).map(drop)
    }

    fn open_echo_socket(&self, peer: IpAddr) -> io::Result<OwnedFd> {
        let socket = self.send_request(&PrivilegedRequest::EchoSocket(peer), None)?;
        socket.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn option_is_set_on_agents_socket_only() {
        let (keepers, agents) = latput_protocol::passing::create_socket_pair().unwrap();
        let serving = thread::spawn(move || serve_privileged_requests(&keepers));
        let rights = KeeperClient::new(agents).unwrap();
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let congestion = PrivilegedOption::Congestion("reno".to_owned());
        rights.set(socket.as_fd(), &congestion).unwrap();
        let unknown = PrivilegedOption::Congestion("no/such".to_owned());
        let refused = rights.set(socket.as_fd(), &unknown).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOENT.raw_os_error()));
        // An option without a socket, and a socket without an option.
        assert!(rights.send_request(&PrivilegedRequest::Option(congestion), None).is_err());
        let echo = PrivilegedRequest::EchoSocket(Ipv4Addr::LOCALHOST.into());
        assert!(rights.send_request(&echo, Some(socket.as_fd())).is_err());
        drop(rights);
        serving.join().unwrap();
    }

    #[test]
    fn readable_files_open_and_socket_is_removed() {
        use std::io::Read as _;
        use std::os::unix::fs::PermissionsExt as _;
        let (keepers, agents) = latput_protocol::passing::create_socket_pair().unwrap();
        let serving = thread::spawn(move || serve_privileged_requests(&keepers));
        let rights = KeeperClient::new(agents).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("figures");
        let name = path.to_str().unwrap();
        std::fs::write(&path, "queue 3").unwrap();
        let mut text = String::new();
        rights.open_file(name).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "queue 3");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if rustix::process::geteuid().is_root() {
            let refused = rights.open_file(name).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "root's own file");
        }
        assert!(rights.open_file(folder.path().to_str().unwrap()).is_err(), "a folder");
        assert!(rights.open_file("/dev/zero").is_err(), "a device");
        assert!(rights.open_file("/no/such").is_err());
        let socket = folder.path().join("app.sock");
        let _reading = rights.open_statsd(socket.to_str().unwrap()).unwrap();
        assert!(socket.exists());
        drop(rights);
        serving.join().unwrap();
        assert!(!socket.exists());
    }

    #[test]
    fn what_is_no_question_ends_the_service() {
        let (keepers, agents) = latput_protocol::passing::create_socket_pair().unwrap();
        let serving = thread::spawn(move || serve_privileged_requests(&keepers));
        send_message(&agents, &"give me a shell", &[]).unwrap();
        serving.join().unwrap();
    }
}
