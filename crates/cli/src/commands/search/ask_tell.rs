//! Another optimiser at the other end of stdin and stdout.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use latput_experiment::ask_tell::{LONGEST_LINE, OptimiserLine, SearchSaid};
use latput_load::Stop;
use latput_runner::Error;

use crate::output;

/// How often the stop flag is looked at while nothing is said.
const LOOK: Duration = Duration::from_millis(50);

/// Lines to stdout, and from stdin.
pub(super) struct StdioLine<'a> {
    lines: Receiver<io::Result<Vec<u8>>>,
    stop: &'a Stop,
}

impl<'a> StdioLine<'a> {
    /// Begins to listen. The thread ends with stdin or with the process, because a read cannot be stopped.
    pub(super) fn new(stop: &'a Stop) -> Self {
        let (said, lines) = sync_channel(1);
        thread::spawn(move || {
            let mut input = BufReader::new(io::stdin());
            loop {
                let mut line = Vec::new();
                let read = input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
                let is_last = !matches!(read, Ok(1..)) || line.len() as u64 > LONGEST_LINE;
                if said.send(read.map(|_| line)).is_err() || is_last {
                    return;
                }
            }
        });
        Self { lines, stop }
    }
}

impl OptimiserLine for StdioLine<'_> {
    fn send_line(&mut self, said: &SearchSaid) -> Result<(), Error> {
        let line =
            serde_json::to_string(said).map_err(|error| optimiser_error(error.to_string()))?;
        output::print_data(&(line + "\n"))
            .map_err(|error| optimiser_error(format!("cannot be told: {}", error.message())))
    }

    fn receive_line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if self.stop.is_raised() {
                return Err(Error::Interrupted);
            }
            match self.lines.recv_timeout(LOOK) {
                Ok(Ok(line)) if line.is_empty() => return Ok(None),
                Ok(Ok(line)) => return Ok(Some(line)),
                Ok(Err(error)) => return Err(optimiser_error(format!("cannot be read: {error}"))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

fn optimiser_error(problem: String) -> Error {
    Error::Optimiser { problem }
}
