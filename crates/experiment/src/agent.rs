//! The far end: `latput agent --stdio`. One host's hands and eyes, led over stdin and stdout.
//!
//! Whatever ends it - the controller's word, a closed line, a signal, its own panic - its traffic
//! stops and every knob it touched goes back first. Only kill -9 skips that, and then the checkpoint
//! on disk lets `latput restore` do it.

use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use latput_knobs::{Setting, State};
use latput_linux::{Sampler, process};
use latput_load::{Generator, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window};
use latput_trial::results::HostFacts;
use latput_units::{Clock, CpuSet, Nanos};

use crate::host::Host;
use crate::protocol::{
    self, Answer, Failure, FailureKind, Finished, LineError, Open, Opened, Request, SCHEMA,
};

/// How often a wait looks at the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Counters are read this often in the window.
const SAMPLE_EVERY: Nanos = Nanos::from_ms(100);
/// A data connection must be there this long after it was announced.
const CONNECT_WITHIN: Nanos = Nanos::from_s(5);

/// Serves one controller until it closes the line, asks to end, or `stop` is set.
pub fn serve<R>(input: R, mut output: impl Write, stop: &Stop) -> Result<(), LineError>
where
    R: Read + Send + 'static,
{
    let (requests_to, requests) = mpsc::channel();
    let ended = stop.clone();
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let request = protocol::read_line::<Request>(&mut input);
            let is_last = request.is_err();
            if is_last {
                ended.set(); // a lost controller ends the traffic
            }
            if requests_to.send(request).is_err() || is_last {
                break;
            }
        }
    });
    let Some(request) = next(&requests, stop)? else { return Ok(()) };
    let Request::Open(open) = request else {
        return protocol::write_line(&mut output, &failed("the first request must be `open`"));
    };
    match Host::open(&open) {
        Ok(host) => Service { open, host, stop, traffic: Traffic::None }.run(&requests, output),
        Err(failure) => protocol::write_line(&mut output, &Answer::Failed(failure)),
    }
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
            Err(RecvTimeoutError::Timeout) if stop.is_set() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
