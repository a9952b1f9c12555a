//! The process that runs programs: reads requests, starts a thread for each program, and ends all of them at its own end.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latput_load::Stop;

use super::hold::GRACE;
use super::message::{Answer, MAX_REQUEST_BYTES, Request, SCHEMA, Start};
use super::ready;
use super::running::{self, Shared};
use crate::lease::Lease;
use crate::protocol::{LineError, read_line_within, write_line};

/// Interval at which the stop flag is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Most time for programs to end beyond their grace.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Most programs at the same time.
const MOST_PROGRAMS: usize = 64;

/// Serves one controller until it closes the line, is silent for the lease, sends what is no request, or `stop` is raised.
/// Then all programs are ended.
///
/// # Errors
///
/// The line failed; no program is left.
pub fn serve<R, W>(input: R, output: W, stop: &Stop) -> Result<(), LineError>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let lease = Lease::new();
    let requests = read(input, &lease);
    let mut runner =
        Runner { output: Arc::new(Mutex::new(output)), programs: BTreeMap::new(), is_open: false };
    let ended = loop {
        match requests.recv_timeout(LOOK_EVERY) {
            Ok(Ok(request)) => {
                if !runner.answer(request, &lease) {
                    break Ok(());
                }
            }
            Ok(Err(LineError::Closed)) | Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Ok(Err(error)) => break Err(error),
            Err(RecvTimeoutError::Timeout) if stop.is_raised() => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    runner.end();
    ended
}

/// Reads requests in a thread, and watches the lease in another.
fn read(input: impl Read + Send + 'static, lease: &Lease) -> Receiver<Result<Request, LineError>> {
    let (to, requests) = mpsc::channel();
    let (silent_to, waited) = (to.clone(), lease.clone());
    thread::spawn(move || {
        if let Some(length) = waited.outlived() {
            let _ended_already = silent_to.send(Err(LineError::Silent(length)));
        }
    });
    let heard = lease.clone();
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let request = read_line_within::<Request>(&mut input, || MAX_REQUEST_BYTES);
            heard.hear();
            let is_broken = request.is_err();
            if to.send(request).is_err() || is_broken {
                return heard.end();
            }
        }
    });
    requests
}

struct Program {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Runner<W> {
    output: Arc<Mutex<W>>,
    programs: BTreeMap<u32, Program>,
    is_open: bool,
}

impl<W: Write + Send + 'static> Runner<W> {
    /// Whether to go on.
    fn answer(&mut self, request: Request, lease: &Lease) -> bool {
        match request {
            Request::Open { schema, .. } if schema == SCHEMA && !self.is_open => {
                self.is_open = true;
                if let Request::Open { lease: length, .. } = request {
                    lease.set_length(length);
                }
                let version = env!("CARGO_PKG_VERSION").to_owned();
                tell(&self.output, &Answer::Opened { schema: SCHEMA, version });
            }
            Request::Open { schema, version, .. } => {
                return self.fail(format!(
                    "the controller is latput {version} and speaks schema {schema} of programs, this is latput {} and \
                     speaks {SCHEMA}: install the same version on both",
                    env!("CARGO_PKG_VERSION")
                ));
            }
            _ if !self.is_open => return self.fail("the first request must be `open`".to_owned()),
            Request::Start(start) => return self.start(*start),
            Request::AwaitReady { id, ready, within } => {
                let Some(program) = self.programs.get(&id) else {
                    return self.fail(format!("there is no program {id}"));
                };
                let (shared, output) = (Arc::clone(&program.shared), Arc::clone(&self.output));
                thread::spawn(move || {
                    let answer = match ready::wait(&shared, &ready, within) {
                        Ok(()) => Answer::Ready { id },
                        Err(why) => Answer::NotReady { id, why },
                    };
                    tell(&output, &answer);
                });
            }
            Request::End { id } => {
                if let Some(program) = self.programs.get(&id) {
                    program.shared.tell_to_end();
                }
            }
            Request::Ping => {}
        }
        true
    }

    fn start(&mut self, start: Start) -> bool {
        self.programs.retain(|_, program| !program.thread.is_finished());
        let id = start.id;
        if self.programs.contains_key(&id) || self.programs.len() >= MOST_PROGRAMS {
            return self.fail(format!("program {id} runs already, or there are too many"));
        }
        let (shared, output) = (Arc::new(Shared::default()), Arc::clone(&self.output));
        let running = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let started = |at, contained| tell(&output, &Answer::Started { id, at, contained });
            let ended = Box::new(running::run(&start, &running, &started));
            tell(&output, &Answer::Ended { id, ended });
        });
        self.programs.insert(id, Program { shared, thread });
        true
    }

    /// Says why it ends.
    fn fail(&self, message: String) -> bool {
        tell(&self.output, &Answer::Failed { message });
        false
    }

    /// Ends all programs. What does not end in time dies with this process.
    fn end(self) {
        for program in self.programs.values() {
            program.shared.tell_to_end();
        }
        let deadline = Instant::now() + GRACE + END_WITHIN;
        while self.programs.values().any(|program| !program.shared.is_over())
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tell(output: &Mutex<impl Write>, answer: &Answer) {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let _gone = write_line(&mut *output, answer);
}
