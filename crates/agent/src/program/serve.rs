//! The process that runs programs: reads requests, starts a thread for each program, and ends all of them at its own end.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_protocol::control::{LineError, read_line_within, write_line};
use latput_protocol::program::{
    MAX_REQUEST_BYTES, ProgramAnswer, ProgramRequest, SCHEMA, StartRequest,
};

use super::hold::GRACE;
use super::ready;
use super::running::{self, ProgramState};
use crate::lease::KeepaliveLease;

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
pub fn serve_controller<R, W>(input: R, output: W, stop: &Stop) -> Result<(), LineError>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let lease = KeepaliveLease::new();
    let requests = read(input, &lease);
    let mut runner = ProgramService {
        output: Arc::new(Mutex::new(output)),
        programs: BTreeMap::new(),
        is_open: false,
    };
    let ended = loop {
        match requests.recv_timeout(LOOK_EVERY) {
            Ok(Ok(request)) => {
                if !runner.handle_request(request, &lease) {
                    break Ok(());
                }
            }
            Ok(Err(LineError::Closed)) | Err(RecvTimeoutError::Disconnected) => break Ok(()),
            Ok(Err(error)) => break Err(error),
            Err(RecvTimeoutError::Timeout) if stop.is_raised() => break Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    runner.end_programs();
    ended
}

/// Reads requests in a thread, and watches the lease in another.
fn read(
    input: impl Read + Send + 'static,
    lease: &KeepaliveLease,
) -> Receiver<Result<ProgramRequest, LineError>> {
    let (to, requests) = mpsc::channel();
    let (silent_to, waited) = (to.clone(), lease.clone());
    thread::spawn(move || {
        if let Some(length) = waited.wait_for_expiry() {
            let _ended_already = silent_to.send(Err(LineError::Silent(length)));
        }
    });
    let heard = lease.clone();
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let request = read_line_within::<ProgramRequest>(&mut input, || MAX_REQUEST_BYTES);
            heard.renew();
            let is_broken = request.is_err();
            if to.send(request).is_err() || is_broken {
                return heard.end_lease();
            }
        }
    });
    requests
}

struct RunningProgram {
    shared: Arc<ProgramState>,
    thread: JoinHandle<()>,
}

struct ProgramService<W> {
    output: Arc<Mutex<W>>,
    programs: BTreeMap<u32, RunningProgram>,
    is_open: bool,
}

impl<W: Write + Send + 'static> ProgramService<W> {
    /// Whether to go on.
    fn handle_request(&mut self, request: ProgramRequest, lease: &KeepaliveLease) -> bool {
        match request {
            ProgramRequest::Open { schema, .. } if schema == SCHEMA && !self.is_open => {
                self.is_open = true;
                if let ProgramRequest::Open { lease: length, .. } = request {
                    lease.set_length(length);
                }
                let version = env!("CARGO_PKG_VERSION").to_owned();
                write_answer(&self.output, &ProgramAnswer::Opened { schema: SCHEMA, version });
            }
            ProgramRequest::Open { schema, version, .. } => {
                return self.send_failure(format!(
                    "the controller is latput {version} and speaks schema {schema} of programs, this is latput {} and \
                     speaks {SCHEMA}: install the same version on both",
                    env!("CARGO_PKG_VERSION")
                ));
            }
            _ if !self.is_open => {
                return self.send_failure("the first request must be `open`".to_owned());
            }
            ProgramRequest::Start(start) => return self.start(*start),
            ProgramRequest::AwaitReady { id, ready, within } => {
                let Some(program) = self.programs.get(&id) else {
                    return self.send_failure(format!("there is no program {id}"));
                };
                let (shared, output) = (Arc::clone(&program.shared), Arc::clone(&self.output));
                thread::spawn(move || {
                    let answer = match ready::wait_until_ready(&shared, &ready, within) {
                        Ok(()) => ProgramAnswer::Ready { id },
                        Err(why) => ProgramAnswer::NotReady { id, why },
                    };
                    write_answer(&output, &answer);
                });
            }
            ProgramRequest::End { id } => {
                if let Some(program) = self.programs.get(&id) {
                    program.shared.tell_to_end();
                }
            }
            ProgramRequest::Ping => {}
        }
        true
    }

    fn start(&mut self, start: StartRequest) -> bool {
        self.programs.retain(|_, program| !program.thread.is_finished());
        let id = start.id;
        if self.programs.contains_key(&id) || self.programs.len() >= MOST_PROGRAMS {
            return self.send_failure(format!("program {id} runs already, or there are too many"));
        }
        let (shared, output) = (Arc::new(ProgramState::default()), Arc::clone(&self.output));
        let running = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let started = |at, contained| {
                write_answer(&output, &ProgramAnswer::Started { id, at, contained });
            };
            let ended = Box::new(running::run(&start, &running, &started));
            write_answer(&output, &ProgramAnswer::Ended { id, ended });
        });
        self.programs.insert(id, RunningProgram { shared, thread });
        true
    }

    /// Says why it ends.
    fn send_failure(&self, message: String) -> bool {
        write_answer(&self.output, &ProgramAnswer::Failed { message });
        false
    }

    /// Ends all programs. What does not end in time dies with this process.
    fn end_programs(self) {
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

fn write_answer(output: &Mutex<impl Write>, answer: &ProgramAnswer) {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let _gone = write_line(&mut *output, answer);
}
