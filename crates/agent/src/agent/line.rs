//! The agent's end of the control line.
//!
//! It has three threads: one reads, one writes (a stopped controller reads nothing, and the pipe is
//! soon full), and one checks the lease. So no controller can keep the agent from putting its host
//! back.

use std::fmt;
use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use latput_load::Stop;
use latput_protocol::control::{self, Answer, LineError, Request};
use latput_units::Nanos;

use crate::lease::KeepaliveLease;

/// Interval at which waits check the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time for writing the last answer.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);

/// The reason why there are no more requests.
#[derive(Debug)]
pub(super) enum LineEnd {
    /// The controller closed the line, or told the agent to end.
    Closed,
    /// A signal told the agent to end.
    Told,
    /// The line failed or is silent.
    Line(LineError),
}

impl fmt::Display for LineEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("its controller closed the line"),
            Self::Told => f.write_str("a signal told it to"),
            Self::Line(error) => write!(f, "its controller sent {error}"),
        }
    }
}

/// A queued message.
enum OutgoingAnswer {
    Line(Vec<u8>),
    /// The last message, and a channel that tells when it is written.
    Last(Vec<u8>, Sender<()>),
}

/// The agent's end of the control line.
pub(super) struct ControllerLine {
    requests: Receiver<Result<Request, LineError>>,
    answers: Sender<OutgoingAnswer>,
    lease: KeepaliveLease,
    stop: Stop,
    /// Whether the window of the last `go` is to end.
    ends_window: Arc<AtomicBool>,
}

impl ControllerLine {
    /// Starts the threads. `stop` is raised when no more requests will come, so that traffic ends.
    pub(super) fn open<R, W>(input: R, output: W, stop: &Stop) -> Self
    where
        R: Read + Send + 'static,
        W: Write + Send + 'static,
    {
        let (request_to, requests) = mpsc::channel();
        let (answers, to_write) = mpsc::channel();
        let lease = KeepaliveLease::new();
        let ends_window = Arc::new(AtomicBool::new(false));
        thread::spawn(move || write(output, &to_write));
        let reader = RequestReader {
            ends_window: Arc::clone(&ends_window),
            to: request_to.clone(),
            answers: answers.clone(),
            lease: lease.clone(),
            stop: stop.clone(),
        };
        thread::spawn(move || reader.read(input));
        let (waited, stopped) = (lease.clone(), stop.clone());
        thread::spawn(move || {
            if let Some(length) = waited.wait_for_expiry() {
                let _ended_already = request_to.send(Err(LineError::Silent(length)));
                stopped.raise();
            }
        });
        Self { requests, answers, lease, stop: stop.clone(), ends_window }
    }

    /// Sets the lease.
    pub(super) fn set_lease(&self, lease: Nanos) {
        self.lease.set_length(lease);
    }

    /// Whether the window of the last `go` is to end.
    pub(super) fn ends_window(&self) -> bool {
        self.ends_window.load(Ordering::Relaxed)
    }

    /// The next request other than a ping; pings are answered already.
    pub(super) fn next(&mut self) -> Result<Request, LineEnd> {
        loop {
            match self.requests.recv_timeout(LOOK_EVERY) {
                Ok(Ok(request)) => return Ok(request),
                Ok(Err(LineError::Closed)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(LineEnd::Closed);
                }
                Ok(Err(error)) => return Err(LineEnd::Line(error)),
                Err(RecvTimeoutError::Timeout) if self.stop.is_raised() => {
                    return Err(LineEnd::Told);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Queues an answer. The reading thread notices a controller that is gone.
    pub(super) fn send_answer(&self, answer: &Answer) {
        let _gone = self.answers.send(OutgoingAnswer::Line(control::encode_line(answer)));
    }

    /// Sends the last answer, and waits up to a second until it is written.
    pub(super) fn send_last_answer(&self, answer: &Answer) {
        let (left, has_left) = mpsc::channel();
        if self.answers.send(OutgoingAnswer::Last(control::encode_line(answer), left)).is_ok() {
            let _gone_or_stopped = has_left.recv_timeout(LAST_WORD_WITHIN);
        }
    }
}

struct RequestReader {
    to: Sender<Result<Request, LineError>>,
    answers: Sender<OutgoingAnswer>,
    lease: KeepaliveLease,
    stop: Stop,
    ends_window: Arc<AtomicBool>,
}

impl RequestReader {
    fn read(self, input: impl Read) {
        let mut input = BufReader::new(input);
        loop {
            let request = control::read_line::<Request>(&mut input);
            self.lease.renew();
            if matches!(request, Ok(Request::Ping)) {
                let _gone =
                    self.answers.send(OutgoingAnswer::Line(control::encode_line(&Answer::Alive)));
                continue;
            }
            match request {
                Ok(Request::EndWindow) => {
                    self.ends_window.store(true, Ordering::Relaxed);
                    continue;
                }
                Ok(Request::Go { .. }) => self.ends_window.store(false, Ordering::Relaxed),
                _ => {}
            }
            let is_broken = request.is_err();
            let is_last = is_broken || matches!(request, Ok(Request::Close));
            if is_last {
                self.lease.end_lease();
            }
            let is_gone = self.to.send(request).is_err();
            if is_broken {
                self.stop.raise(); // after the reason, so that it is known by then
            }
            if is_gone || is_last {
                break;
            }
        }
    }
}

fn write(mut output: impl Write, to_write: &Receiver<OutgoingAnswer>) {
    for outgoing in to_write {
        let (line, is_last) = match outgoing {
            OutgoingAnswer::Line(line) => (line, None),
            OutgoingAnswer::Last(line, left) => (line, Some(left)),
        };
        if output.write_all(&line).and_then(|()| output.flush()).is_err() || is_last.is_some() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Instant;

    use super::*;

    #[test]
    fn silent_controller_ends_the_traffic() {
        let (from, controller) = io::pipe().unwrap();
        let (_never_read, full) = io::pipe().unwrap();
        let stop = Stop::new();
        let mut line = ControllerLine::open(from, full, &stop);
        line.set_lease(Nanos::from_ms(400));
        for _ in 0..100 {
            let left = vec!["x".repeat(10_000)];
            line.send_answer(&Answer::Closed { why: String::new(), left });
        }
        assert!(matches!(line.next(), Err(LineEnd::Line(LineError::Silent(_)))));
        wait_until(|| stop.is_raised());
        let begun = Instant::now();
        line.send_last_answer(&Answer::Alive);
        assert!(begun.elapsed() < 10 * LAST_WORD_WITHIN);
        drop(controller);
    }

    #[test]
    fn pings_are_answered_by_busy_agent() {
        let (from, mut controller) = io::pipe().unwrap();
        let (answers, to) = io::pipe().unwrap();
        let stop = Stop::new();
        let mut line = ControllerLine::open(from, to, &stop);
        line.set_lease(Nanos::from_s(2));
        // For longer than the lease nobody asks for the next request.
        let mut answers = BufReader::new(answers);
        for _ in 0..30 {
            control::write_line(&mut controller, &Request::Ping).unwrap();
            assert_eq!(control::read_line::<Answer>(&mut answers).unwrap(), Answer::Alive);
            thread::sleep(Duration::from_millis(100));
        }
        assert!(!stop.is_raised());
        drop(controller);
        assert!(matches!(line.next(), Err(LineEnd::Closed)));
        wait_until(|| stop.is_raised());
    }

    #[test]
    fn signal_ends_line_and_bad_request_answers() {
        let (from, mut controller) = io::pipe().unwrap();
        let stop = Stop::new();
        let mut line = ControllerLine::open(from, io::sink(), &stop);
        stop.raise();
        assert!(matches!(line.next(), Err(LineEnd::Told)));
        controller.write_all(b"hello\n").unwrap();
        wait_until(|| matches!(line.next(), Err(LineEnd::Line(LineError::Malformed { .. }))));
    }

    #[track_caller]
    fn wait_until(is_so: impl FnMut() -> bool) {
        let (mut is_so, deadline) = (is_so, Instant::now() + Duration::from_secs(30));
        while !is_so() {
            assert!(Instant::now() < deadline, "waited for 30 s");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
