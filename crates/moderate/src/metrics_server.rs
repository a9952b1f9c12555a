//! The process that serves a daemon's metrics: just enough HTTP to be scraped.
//!
//! It gives up every right before it accepts the first client. Everything is non-blocking and bounded: a client that is
//! slow or silent is dropped after a second, and a longer request is answered as it is.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use latput_linux::confine::{self, Barriers};
use latput_linux::process::OsClock;
use latput_units::{Clock, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::error::Error;

const CLIENTS_MOST: usize = 16;
const REQUEST_BYTES_MOST: usize = 4096;
const PATIENCE: Nanos = Nanos::from_s(1);
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// The daemon answers between two samples, of which one may be a change of a slow device.
const ANSWER_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// A longer text is cut; the exposition has some 3 KB.
const TEXT_BYTES_MOST: usize = 64 << 10;

/// Gives up all rights, and serves until the daemon ends. `listener` accepts the clients; the daemon answers at `line`.
pub fn serve_metrics(listener: impl AsFd, line: impl AsFd) -> Result<(), Error> {
    let barriers: Barriers = confine::give_up_all()?;
    if !barriers.close_files() {
        tracing::warn!(
            "the metrics' process may write files: this kernel has no Landlock, and it cannot change its user"
        );
    }
    let (listener, line) = (listener.as_fd(), line.as_fd());
    let mut clients = Vec::new();
    while !has_ended(line) {
        wait_for_input(listener, line, &clients);
        let now = OsClock.now();
        while let Ok(socket) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            if clients.len() < CLIENTS_MOST {
                let until = now.saturating_add(PATIENCE);
                clients.push(MetricsClient { socket, request: Vec::new(), until });
            }
        }
        clients.retain_mut(|client| now < client.until && client.is_asking(line));
    }
    Ok(())
}

/// Sleeps until a client or the daemon says something, or a client may have been silent for too long.
fn wait_for_input(listener: BorrowedFd<'_>, line: BorrowedFd<'_>, clients: &[MetricsClient]) {
    let sockets =
        [listener, line].into_iter().chain(clients.iter().map(|client| client.socket.as_fd()));
    let mut polled: Vec<PollFd<'_>> =
        sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)).collect();
    let timeout = (!clients.is_empty()).then_some(&LOOK_EVERY);
    // An interrupted wait is a short one.
    let _ready = poll(&mut polled, timeout);
}

/// Whether the daemon is gone: it says nothing unasked.
fn has_ended(line: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    !matches!(rustix::io::read(line, &mut byte), Err(Errno::AGAIN | Errno::INTR))
}

/// The daemon's metrics; `None` if it does not answer in time.
fn request_metrics(line: BorrowedFd<'_>) -> Option<String> {
    rustix::io::write(line, b"?").ok()?;
    let mut polled = [PollFd::from_borrowed_fd(line, PollFlags::IN)];
    poll(&mut polled, Some(&ANSWER_WITHIN)).ok().filter(|&count| count > 0)?;
    let mut text = vec![0; TEXT_BYTES_MOST];
    let count = rustix::io::read(line, &mut text).ok()?;
    text.truncate(count);
    String::from_utf8(text).ok()
}

#[derive(Debug)]
struct MetricsClient {
    socket: OwnedFd,
    request: Vec<u8>,
    until: Nanos,
}

impl MetricsClient {
    /// Reads what there is; answers a whole request. Whether more is to come.
    fn is_asking(&mut self, line: BorrowedFd<'_>) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.request.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
            let is_whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
            if is_whole || self.request.len() > REQUEST_BYTES_MOST {
                let text = build_response(&self.request, &|| request_metrics(line));
                let _ = rustix::io::write(&self.socket, text.as_bytes());
                return false;
            }
        }
    }
}

/// The answer to one HTTP request. `metrics` gives the daemon's, if it answers.
fn build_response(request: &[u8], metrics: &dyn Fn() -> Option<String>) -> String {
    let line = request.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let (code, body) = match (method, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics" | "/") => match metrics() {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "the daemon does not answer\n".to_owned()),
        },
        ("GET", _) => ("404 Not Found", "only /metrics is here\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_sent_is_answered() {
        check_response(b"GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200");
        check_response(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200");
        check_response(b"GET /etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404");
        check_response(b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405");
        check_response(b"", "HTTP/1.1 405");
        check_response(&[0xff; 300], "HTTP/1.1 405");
    }

    #[test]
    fn silent_daemon_is_no_empty_page() {
        let text = build_response(b"GET / HTTP/1.1\r\n\r\n", &|| None);
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    }

    #[track_caller]
    fn check_response(request: &[u8], start: &str) {
        let text = build_response(request, &|| Some("latput_moderate_up 1\n".to_owned()));
        assert!(text.starts_with(start), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    }
}
