//! The sockets of a daemon: its status, and the line to the process that serves its metrics.
//!
//! The daemon reads nothing that a client sent. Who connects to the status socket gets the status; the metrics process
//! ([`crate::metrics_server`]) asks with one byte.

use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use latput_linux::process;
use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socketpair};

use crate::error::Error;
use crate::metrics;
use crate::status::Status;

/// The hidden command of latput that serves metrics.
pub const METRICS_SERVER: &str = "metrics-server";
/// A longer status is invalid.
const STATUS_BYTES_MOST: u64 = 1 << 20;

/// Where metrics are given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of the loopback interface.
    Loopback(SocketAddr),
}

impl std::str::FromStr for MetricsAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |problem: &str| Error::MetricsAddress {
            given: text.chars().take(80).collect(),
            problem: problem.to_owned(),
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let is_good = path.starts_with('/') && path.len() < 108;
            return if is_good {
                Ok(Self::Unix(path.into()))
            } else {
                Err(wrong("the path of a socket must be absolute and shorter than 108 bytes"))
            };
        }
        let address: SocketAddr =
            text.parse().map_err(|_| wrong("is not an address with a port"))?;
        if address.ip().is_loopback() {
            Ok(Self::Loopback(address))
        } else {
            Err(wrong("metrics are for this machine only"))
        }
    }
}

/// The socket of the daemon that holds an interface in a namespace.
pub(crate) fn socket_path(folder: &Path, namespace: u64, interface: &str) -> PathBuf {
    // The kernel allows no `/` in names, and the caller has none other.
    folder.join("moderate").join(format!("{namespace}-{interface}.sock"))
}

/// Asks the daemon that holds an interface in the calling thread's namespace how it is.
pub fn request_status(folder: &Path, interface: &str) -> Result<Status, Error> {
    if interface.contains('/') {
        let path = folder.display().to_string();
        return Err(Error::NotHeld { interface: interface.to_owned(), path });
    }
    let namespace = latput_linux::Namespace::current()?.inode()?;
    let path = socket_path(folder, namespace, interface);
    let at = path.display().to_string();
    let failed = |operation: &'static str| {
        let path = at.clone();
        move |source: io::Error| Error::Socket { path, operation, source }
    };
    let stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Err(Error::NotHeld { interface: interface.to_owned(), path: at });
        }
        Err(error) => return Err(failed("connect")(error)),
    };
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(failed("connect"))?;
    let mut text = Vec::new();
    stream.take(STATUS_BYTES_MOST).read_to_end(&mut text).map_err(failed("read the status"))?;
    serde_json::from_slice(&text)
        .map_err(|error| Error::BadStatus { path: at, reason: error.to_string() })
}

/// The sockets of one daemon.
#[derive(Debug)]
pub(crate) struct StatusServer {
    /// The status socket with its path; `None` where nobody can ask.
    status: Option<(OwnedFd, PathBuf)>,
    metrics: Option<MetricsProcess>,
}

/// The process that serves the metrics.
#[derive(Debug)]
struct MetricsProcess {
    child: Child,
    /// It asks with one byte, and gets the text; `None` after its end.
    line: Option<OwnedFd>,
    /// Of a Unix socket: to be removed at the end.
    path: Option<PathBuf>,
}

impl StatusServer {
    /// Binds the sockets; without a `path` none for the status. One that nobody answers at is left over
    /// from a crash, and replaced.
    pub(crate) fn open(
        interface: &str,
        path: Option<PathBuf>,
        metrics: Option<&MetricsAddress>,
    ) -> Result<Self, Error> {
        let status = path.map(|path| bind_status(interface, path)).transpose()?;
        let metrics =
            metrics.map(|address| MetricsProcess::start(interface, address)).transpose()?;
        Ok(Self { status, metrics })
    }

    /// Moves the status socket with the interface's name.
    pub(crate) fn rename_socket(&mut self, new: PathBuf) {
        if let Some((_, path)) = &mut self.status
            && fs::rename(&*path, &new).is_ok()
        {
            *path = new;
        }
    }

    /// Sleeps until somebody asks something, a signal comes or `timeout` is over. Whether there may be
    /// somebody to answer.
    pub(crate) fn wait_for_request(&self, timeout: Nanos) -> bool {
        let status = self.status.as_ref().map(|(socket, _)| socket);
        let line = self.metrics.as_ref().and_then(|metrics| metrics.line.as_ref());
        let mut polled: Vec<PollFd<'_>> = [status, line]
            .into_iter()
            .flatten()
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(Duration::from_nanos(timeout.as_ns()))
            .expect("584 years are seconds enough for a signed word");
        // An interrupted or failed wait is a short one: the caller looks at the clock.
        poll(&mut polled, Some(&timeout)).is_ok_and(|count| count > 0)
    }

    /// Answers whoever asks.
    pub(crate) fn answer_requests(&mut self, status: &Status) {
        while let Some(socket) =
            self.status.as_ref().and_then(|(socket, _)| accept_connection(socket))
        {
            let mut text = serde_json::to_string(status).unwrap_or_default();
            text.push('\n');
            // Bytes that do not fit into the socket's buffer are dropped, without a wait.
            let _ = rustix::io::write(&socket, text.as_bytes());
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.answer(status);
        }
    }
}

impl MetricsProcess {
    /// Listens, and starts the process, which ends with this thread.
    fn start(interface: &str, address: &MetricsAddress) -> Result<Self, Error> {
        let (listener, path) = match address {
            MetricsAddress::Unix(path) => (bind_listener(interface, path)?, Some(path.clone())),
            MetricsAddress::Loopback(address) => {
                let listener = TcpListener::bind(address)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                    .map_err(socket_error(&address.to_string(), "listen"))?;
                (listener.into(), None)
            }
        };
        let start = || -> io::Result<(Child, OwnedFd)> {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (line, its_line) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            let mut command = Command::new("/proc/self/exe");
            command.arg0("latput").arg(METRICS_SERVER);
            command.stdin(Stdio::from(listener)).stdout(Stdio::from(its_line));
            Ok((process::end_with_this_thread(&mut command).spawn()?, line))
        };
        let (child, line) = start().map_err(socket_error("metrics", "start their process"))?;
        Ok(Self { child, line: Some(line), path })
    }

    /// Gives the text to each question. The end of the process is logged, once.
    fn answer(&mut self, status: &Status) {
        let mut question = [0];
        while let Some(line) = &self.line {
            match rustix::io::read(line, &mut question) {
                Ok(1) => {
                    let text = metrics::render_exposition(status);
                    // It asks again only after an answer, so that there is space.
                    let _ = rustix::io::write(line, text.as_bytes());
                }
                Err(Errno::AGAIN) => return,
                _ => {
                    self.line = None;
                    let interface = &status.interface;
                    let ended = self
                        .child
                        .wait()
                        .map_or_else(|error| error.to_string(), |it| it.to_string());
                    tracing::error!(
                        interface,
                        "metrics are no longer served: their process ended ({ended})"
                    );
                }
            }
        }
    }
}

impl Drop for MetricsProcess {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.status {
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_status(interface: &str, path: PathBuf) -> Result<(OwnedFd, PathBuf), Error> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(socket_error(&folder.display().to_string(), "create the folder"))?;
    Ok((bind_listener(interface, &path)?, path))
}

fn accept_connection(listener: impl AsFd) -> Option<OwnedFd> {
    accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).ok()
}

fn bind_listener(interface: &str, path: &Path) -> Result<OwnedFd, Error> {
    if UnixStream::connect(path).is_ok() {
        let interface = interface.to_owned();
        let path = path.display().to_string();
        return Err(Error::AlreadyHeld { interface, path });
    }
    let is_socket = fs::symlink_metadata(path)
        .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
    if is_socket {
        let _ = fs::remove_file(path);
    }
    let listener = UnixListener::bind(path)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(socket_error(&path.display().to_string(), "listen"))?;
    Ok(listener.into())
}

fn socket_error(path: &str, operation: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Socket { path, operation, source }
}
