//! The way from a program that tells its figures to the agent of its host: datagrams to a Unix socket without a file.
//!
//! The agent binds the socket and only reads. The process that runs the program sends each of its snapshots, and never waits.
//! Every datagram begins with a secret of the run, since everybody on the host may send to such a socket. Both ends
//! vanish with their processes.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use latput_linux::process::OsClock;
use latput_load::Key;
use latput_units::{Clock, Nanos};
use serde::{Deserialize, Serialize};

/// Most bytes of a snapshot: what a datagram of a Unix socket has room for by default (`unix(7)`, `wmem_default`).
const MOST_BYTES: usize = 128 << 10;
/// A snapshot that is older does not count: the program hangs.
const FRESH_FOR: Nanos = Nanos::from_s(2);
/// Dropped bytes after which it is told again that a snapshot is too long.
const TELL_EVERY: usize = 16 << 20;
/// The last line of a snapshot in `OpenMetrics`.
const END: &[u8] = b"# EOF";
/// Digits of the secret that name the socket.
const NAME_DIGITS: usize = 16;

/// The secret of a line, in hexadecimal digits. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FigureLine(String);

/// Latest figures of a program, and their time.
type Latest = Option<(Nanos, Result<String, String>)>;

impl std::fmt::Debug for FigureLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FigureLine(..)")
    }
}

impl FigureLine {
    /// A line with a new secret.
    pub fn generate() -> Result<Self, latput_load::Error> {
        Key::generate().map(|key| Self(key.into()))
    }

    fn socket_address(&self) -> io::Result<SocketAddr> {
        let name = self.0.get(..NAME_DIGITS).ok_or(io::ErrorKind::InvalidInput)?;
        SocketAddr::from_abstract_name(format!("latput-figures-{name}"))
    }
}

/// The end of the process that runs the program.
#[derive(Debug)]
pub struct FigureSender {
    socket: UnixDatagram,
    line: FigureLine,
    to: SocketAddr,
    snapshot: SnapshotBuffer,
}

impl FigureSender {
    /// Opens the end that sends to this line.
    pub fn open(line: &FigureLine) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let to = line.socket_address()?;
        Ok(Self { socket, line: line.clone(), to, snapshot: SnapshotBuffer::default() })
    }

    /// Sends every snapshot that these bytes end.
    pub fn push(&mut self, bytes: &[u8]) {
        for snapshot in self.snapshot.push(bytes) {
            self.send_snapshot(&snapshot);
        }
    }

    /// The program writes no more.
    pub fn send_last_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.send_snapshot(&snapshot);
        }
    }

    fn send_snapshot(&self, snapshot: &Result<String, String>) {
        let (sign, text) = match snapshot {
            Ok(text) => ('+', text),
            Err(why) => ('-', why),
        };
        let datagram = format!("{}{sign}{text}", self.line.0);
        // Nobody reads between blocks of a run: the next snapshot counts.
        let _unread = self.socket.send_to_addr(datagram.as_bytes(), &self.to);
    }
}

/// The bytes since the last end of a snapshot.
#[derive(Debug, Default)]
struct SnapshotBuffer {
    text: Vec<u8>,
    /// Bytes that there was no room for.
    dropped: usize,
    /// The start of the line that has begun: as much as tells whether it ends the snapshot.
    line: Vec<u8>,
}

impl SnapshotBuffer {
    /// Adds bytes. Returns the snapshots that end in them: at an empty line, or at `# EOF` (`OpenMetrics`).
    fn push(&mut self, bytes: &[u8]) -> Vec<Result<String, String>> {
        let mut ended = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = (END.len() + 2).saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            if self.dropped == 0 && self.text.len() + part.len() <= MOST_BYTES {
                self.text.extend_from_slice(part);
            } else {
                // A flood has no end: it is told while it lasts.
                let before = self.dropped;
                self.dropped = before.saturating_add(part.len());
                let is_due = before == 0 || before / TELL_EVERY != self.dropped / TELL_EVERY;
                ended.extend(is_due.then(too_long));
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if line.trim_ascii().is_empty() || line.trim_ascii_end() == END {
                    ended.extend(self.take());
                }
            }
        }
        ended
    }

    /// Takes the figures; `None` if there are none.
    fn take(&mut self) -> Option<Result<String, String>> {
        let Self { text, dropped, .. } = std::mem::take(self);
        if dropped > 0 {
            return Some(too_long());
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        (!text.trim().is_empty()).then_some(Ok(text))
    }
}

fn too_long() -> Result<String, String> {
    Err(format!("it printed more than {MOST_BYTES} bytes at a time"))
}

/// The agent's end.
#[derive(Debug)]
pub struct FigureInbox {
    /// The line.
    pub line: FigureLine,
    latest: Arc<Mutex<Latest>>,
}

impl FigureInbox {
    /// Binds the socket, and reads it in a thread until the process ends.
    pub fn open(line: &FigureLine) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&line.socket_address()?)?;
        let latest = Arc::new(Mutex::new(None));
        let (kept, secret) = (Arc::clone(&latest), line.0.clone());
        let read = move || receive_snapshots(&socket, &secret, &kept);
        thread::Builder::new().name("figures".to_owned()).spawn(read)?;
        Ok(Self { line: line.clone(), latest })
    }

    /// The last snapshot, and when it came.
    ///
    /// # Errors
    ///
    /// Why there is none that counts.
    pub fn latest_snapshot(&self) -> Result<(Nanos, String), String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (at, told) = latest.ok_or_else(|| {
            "it has printed no figures: it must print them repeatedly, each time with an empty line after them"
                .to_owned()
        })?;
        let age = OsClock.now().saturating_sub(at);
        if age > FRESH_FOR {
            return Err(format!("it has printed no figures for more than {FRESH_FOR}"));
        }
        told.map(|text| (at, text))
    }
}

fn receive_snapshots(socket: &UnixDatagram, secret: &str, latest: &Mutex<Latest>) {
    let mut buffer = vec![0; secret.len() + 1 + MOST_BYTES];
    loop {
        let length = match socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let Some(told) = text.strip_prefix(secret) else { continue };
        let told = match (told.strip_prefix('+'), told.strip_prefix('-')) {
            (Some(text), _) => Ok(text.to_owned()),
            (_, Some(why)) => Err(why.to_owned()),
            _ => continue,
        };
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some((OsClock.now(), told));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn push_bytes(snapshot: &mut SnapshotBuffer, bytes: &[u8]) -> Vec<String> {
        snapshot
            .push(bytes)
            .into_iter()
            .map(|it| it.unwrap_or_else(|why| format!("!{why}")))
            .collect()
    }

    #[test]
    fn snapshot_ends_at_empty_line_or_eof() {
        let mut one = SnapshotBuffer::default();
        assert_eq!(push_bytes(&mut one, b"a 1\nb 2"), [""; 0]);
        assert_eq!(push_bytes(&mut one, b"\n\na 3\r\n\r\n\n\n"), ["a 1\nb 2\n\n", "a 3\r\n\r\n"]);
        assert_eq!(push_bytes(&mut one, b"a 4\n# EOF\n"), ["a 4\n# EOF\n"]);
        assert_eq!(push_bytes(&mut one, b"\xff\x00 5\n\n"), ["\u{fffd}\0 5\n\n"]);
        assert_eq!(push_bytes(&mut one, b"a 6"), [""; 0]);
        assert_eq!(one.take(), Some(Ok("a 6".to_owned())), "the program ended");
        assert_eq!(one.take(), None);
    }

    #[test]
    fn flood_takes_a_bounded_space_and_is_told() {
        let mut one = SnapshotBuffer::default();
        let mut told = Vec::new();
        for _ in 0..4_000 {
            told.extend(push_bytes(&mut one, &[b'x'; 9_999]));
            told.extend(push_bytes(&mut one, b"\n# EOF and more\n"));
        }
        assert!(one.text.capacity() <= 2 * MOST_BYTES);
        assert_eq!(told.len(), 3, "at first, and each 16 MiB of 38");
        assert!(push_bytes(&mut one, b"\n\n")[0].contains("more than 131072 bytes"));
        assert_eq!(push_bytes(&mut one, b"a 1\n\n"), ["a 1\n\n"], "the next one is whole again");
    }

    #[test]
    fn snapshots_arrive_and_strangers_are_not_heard() {
        let line = FigureLine::generate().unwrap();
        let inbox = FigureInbox::open(&line).unwrap();
        assert!(inbox.latest_snapshot().unwrap_err().contains("printed no figures"));
        assert!(FigureInbox::open(&line).is_err(), "the name is taken");
        let stranger = UnixDatagram::unbound().unwrap();
        stranger.send_to_addr(b"+evil 1", &line.socket_address().unwrap()).unwrap();
        let mut sender = FigureSender::open(&line).unwrap();
        let await_latest = |wanted: &str| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while inbox.latest_snapshot().map_or_else(|why| why, |(_, text)| text) != wanted {
                assert!(Instant::now() < deadline, "{:?}", inbox.latest_snapshot());
                thread::sleep(Duration::from_millis(1));
            }
        };
        sender.push(b"a 1\n\n");
        await_latest("a 1\n\n");
        // The longest one that is allowed fits a datagram.
        let long = "y".repeat(MOST_BYTES - 2) + "\n\n";
        sender.push(long.as_bytes());
        await_latest(&long);
        // Nobody reads any more: nothing waits, nothing fails.
        sender.push(b"a 2");
        sender.send_last_snapshot();
        await_latest("a 2");
    }
}
