//! The far end: `latput agent --stdio`. One host's hands and eyes, led over stdin and stdout.
//!
//! Whatever ends it - the controller's word, a closed line, a signal, its own panic - its traffic
//! stops and every knob it touched goes back first. Only kill -9 skips that, and then the checkpoint
//! on disk lets `latput restore` do it.

use std::io::{BufReader, Read, Write};
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use latput_load::{Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window};
use latput_trial::Workload;

use crate::host::{Host, chain};
use crate::protocol::{
    self, Answer, Failure, FailureKind, Finished, LineError, Open, Request, SCHEMA,
};

/// How often a wait looks at the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Serves one controller until it closes the line, asks to end, or `stop` is raised.
pub fn serve<R>(input: R, mut output: impl Write, stop: &Stop) -> Result<(), LineError>
where
    R: Read + Send + 'static,
{
    let requests = read_requests(input, stop.clone());
    let Some(request) = next(&requests, stop)? else { return Ok(()) };
    let opened = match request {
        Request::Open(open) if open.schema == SCHEMA => Host::open(open),
        Request::Open(Open { version, .. }) => Err(failed(format!(
            "the controller is latput {version} and speaks another schema than {SCHEMA}: install \
             the same version on both"
        ))),
        _ => Err(failed("the first request must be `open`")),
    };
    let mut service = match opened {
        Ok((host, opened)) => {
            protocol::write_line(&mut output, &Answer::Opened(opened))?;
            Service { host, stop, prepared: Prepared::Nothing }
        }
        Err(failure) => return protocol::write_line(&mut output, &Answer::Failed(failure)),
    };
    while let Some(request) = next(&requests, stop)? {
        if matches!(request, Request::Close) {
            let answer = service.host.close().map_or_else(Answer::Failed, |()| Answer::Closed);
            return protocol::write_line(&mut output, &answer);
        }
        let answer = service.answer(request).unwrap_or_else(Answer::Failed);
        protocol::write_line(&mut output, &answer)?;
    }
    Ok(()) // dropping the host puts it back
}

/// Reads requests in a thread of its own, so that a lost controller is noticed in the middle of
/// traffic.
fn read_requests<R>(input: R, stop: Stop) -> Receiver<Result<Request, LineError>>
where
    R: Read + Send + 'static,
{
    let (to, requests) = mpsc::channel();
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let request = protocol::read_line::<Request>(&mut input);
            let is_last = request.is_err() || matches!(request, Ok(Request::Close));
            if request.is_err() {
                stop.raise();
            }
            if to.send(request).is_err() || is_last {
                break;
            }
        }
    });
    requests
}

/// The next request; `None` when there will be none.
fn next(
    requests: &Receiver<Result<Request, LineError>>,
    stop: &Stop,
) -> Result<Option<Request>, LineError> {
    loop {
        match requests.recv_timeout(LOOK_EVERY) {
            Ok(Ok(request)) => return Ok(Some(request)),
            Ok(Err(LineError::Closed)) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) if stop.is_raised() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// An agent with its host.
struct Service<'a> {
    host: Host,
    stop: &'a Stop,
    prepared: Prepared,
}

/// The traffic that waits for `go`.
enum Prepared {
    Nothing,
    Receiver(Box<Reflector>),
    Sender(Box<Generator>),
}

/// What one end of the traffic brought home.
enum Outcome {
    Receiver(ReceiverOutcome),
    Sender(Box<SenderOutcome>),
}

impl Service<'_> {
    fn answer(&mut self, request: Request) -> Result<Answer, Failure> {
        match request {
            Request::Set { setting } => self.host.set(&setting).map(|()| Answer::Set),
            Request::Receive { workload, key } => self.receive(&workload, key),
            Request::Send { workload, key, peer, port } => self.send(&workload, key, (peer, port)),
            Request::Go { at, warmup, duration } => {
                let at = at.unwrap_or_else(latput_load::now);
                let window = Window::starting_after(at, warmup, duration);
                self.go(window.map_err(|error| failed(chain(&error)))?)
            }
            Request::Abort => {
                self.prepared = Prepared::Nothing;
                Ok(Answer::Aborted)
            }
            Request::Open(_) | Request::Close => Err(failed("`open` comes once, and first")),
        }
    }

    fn receive(&mut self, workload: &Workload, key: Key) -> Result<Answer, Failure> {
        self.prepared = Prepared::Nothing; // a port of a trial that never ran is closed first
        let any_port = (self.host.address(), 0).into();
        let reflector = Reflector::open(any_port, key, workload.traffic, self.host.cpus().clone())
            .map_err(|error| traffic_failed(&error))?;
        let port = reflector.port();
        self.prepared = Prepared::Receiver(Box::new(reflector));
        Ok(Answer::Listening { port })
    }

    fn send(
        &mut self,
        workload: &Workload,
        key: Key,
        (peer, port): (IpAddr, u16),
    ) -> Result<Answer, Failure> {
        self.prepared = Prepared::Nothing;
        let cpus = self.host.cpus().clone();
        let (traffic, probe) = (workload.traffic, workload.probe);
        let generator = Generator::connect(peer, port, &key, traffic, probe, cpus)
            .map_err(|error| traffic_failed(&error))?;
        self.prepared = Prepared::Sender(Box::new(generator));
        Ok(Answer::Connected)
    }

    /// Runs the prepared traffic in a thread of its own while this one reads counters.
    fn go(&mut self, window: Window) -> Result<Answer, Failure> {
        let prepared = std::mem::replace(&mut self.prepared, Prepared::Nothing);
        let stop = self.stop;
        let (outcome, observed) = thread::scope(|scope| {
            let traffic = thread::Builder::new()
                .name("traffic".to_owned())
                .spawn_scoped(scope, || prepared.run(window, stop))
                .map_err(|error| failed(format!("cannot start a thread: {error}")))?;
            let observed = self.host.observe(window, stop);
            let outcome = traffic.join().unwrap_or_else(|_| Err(failed("the traffic panicked")));
            Ok::<_, Failure>((outcome, observed))
        })?;
        // The traffic's error says more than the counters': it comes first.
        let outcome = outcome?;
        let (host, drift) = observed?;
        let (sender, receiver) = match outcome {
            Outcome::Sender(sender) => (Some(*sender), None),
            Outcome::Receiver(receiver) => (None, Some(receiver)),
        };
        Ok(Answer::Finished(Box::new(Finished { host, sender, receiver, drift })))
    }
}

impl Prepared {
    fn run(self, window: Window, stop: &Stop) -> Result<Outcome, Failure> {
        match self {
            Self::Nothing => Err(failed("`go` without traffic that was prepared")),
            Self::Receiver(reflector) => {
                reflector.run(window, stop).map(Outcome::Receiver).map_err(|e| traffic_failed(&e))
            }
            Self::Sender(generator) => generator
                .run(window, stop)
                .map(|outcome| Outcome::Sender(Box::new(outcome)))
                .map_err(|e| traffic_failed(&e)),
        }
    }
}

/// What the traffic engine could not do.
fn traffic_failed(error: &latput_load::Error) -> Failure {
    let kind = match error.kind() {
        latput_load::ErrorKind::Permission => FailureKind::Permission,
        _ => FailureKind::Failed,
    };
    Failure { kind, message: chain(error) }
}

/// A failure that left the host unchanged.
pub(crate) fn failed(message: impl Into<String>) -> Failure {
    Failure { kind: FailureKind::Failed, message: message.into() }
}
