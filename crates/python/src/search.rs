//! A search that another optimiser in this interpreter drives, by the lines of `latput search --ask-tell`.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use latput_experiment::RunPart;
use latput_experiment::ask_tell::{AskTell, OptimiserLine, SearchSaid, convert_to_search};
use latput_experiment::session::{self, RunOutcome};
use latput_load::Stop;
use latput_runner::Error;
use pyo3::prelude::*;

use crate::simulator::{LOOK_EVERY, SilentProgress, SimulationPlace, with_seed};
use crate::{LatputError, NativeRun, Plan, to_py_error};

/// Lines that may wait for the interpreter.
const WAITING: usize = 64;

/// A search that has begun, on a thread of its own.
#[pyclass(frozen, module = "latput")]
#[derive(Debug)]
pub(crate) struct NativeSearch {
    stop: Stop,
    said: Mutex<Receiver<String>>,
    answers: SyncSender<Vec<u8>>,
    state: Mutex<SearchThread>,
}

#[derive(Debug)]
enum SearchThread {
    Working(JoinHandle<Result<RunOutcome, Error>>),
    /// The run, once it was asked for or not.
    Ended(Option<NativeRun>),
}

#[pymethods]
impl NativeSearch {
    /// Begins a search. The arguments are those of `simulate`.
    #[new]
    #[pyo3(signature = (plan, system, seed = None, output = None, profile = None))]
    fn start(
        plan: &Plan,
        system: String,
        seed: Option<u64>,
        output: Option<PathBuf>,
        profile: Option<String>,
    ) -> Self {
        let stop = Stop::new();
        let (to, said) = sync_channel(WAITING);
        let (answers, from) = sync_channel(1);
        let line = SearchChannels { said: to, answers: from, stop: stop.clone() };
        let (plan, text) = with_seed(plan, seed);
        let place = SimulationPlace { system, profile, output };
        let working = thread::spawn(move || run_search(plan, &text, &place, line));
        Self {
            stop,
            said: Mutex::new(said),
            answers,
            state: Mutex::new(SearchThread::Working(working)),
        }
    }

    /// The next line of latput; `None` when the search has ended. Ctrl-C stops it.
    fn read(&self, py: Python<'_>) -> PyResult<Option<String>> {
        loop {
            let heard = py.detach(|| {
                self.said.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK_EVERY)
            });
            match heard {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return self.join(py).map(|()| None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            py.check_signals().inspect_err(|_| self.stop.raise())?;
        }
    }

    /// Answers with a line.
    fn answer(&self, py: Python<'_>, line: Vec<u8>) -> PyResult<()> {
        if py.detach(|| self.answers.send(line)).is_err() {
            self.join(py)?;
            return Err(LatputError::new_err("the search has ended"));
        }
        Ok(())
    }

    /// The run, of a search that has ended. It can be had once.
    fn run(&self) -> PyResult<NativeRun> {
        let run = match &mut *self.state() {
            SearchThread::Ended(run) => run.take(),
            SearchThread::Working(_) => None,
        };
        run.ok_or_else(|| LatputError::new_err("the search has not ended"))
    }

    /// Stops the search; what was simulated is kept.
    fn close(&self, py: Python<'_>) {
        self.stop.raise();
        let _stopped = self.join(py);
    }
}

impl NativeSearch {
    fn state(&self) -> MutexGuard<'_, SearchThread> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the thread, and keeps the run or tells why there is none.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        let ended_before = std::mem::replace(&mut *self.state(), SearchThread::Ended(None));
        let SearchThread::Working(working) = ended_before else {
            *self.state() = ended_before;
            return Ok(());
        };
        // The state is not locked now: whoever holds the interpreter's lock may ask for it.
        let ended = py.detach(|| working.join());
        let ended =
            ended.map_err(|_| LatputError::new_err("the search failed"))?.map_err(to_py_error)?;
        if let Some(cause) = ended.cause {
            return Err(to_py_error(cause));
        }
        *self.state() = SearchThread::Ended(Some(NativeRun { results: Arc::new(ended.results) }));
        Ok(())
    }
}

impl Drop for NativeSearch {
    fn drop(&mut self) {
        self.stop.raise();
    }
}

/// The thread of a search.
fn run_search(
    plan: latput_trial::Plan,
    text: &str,
    place: &SimulationPlace,
    line: SearchChannels,
) -> Result<RunOutcome, Error> {
    let (plan, text) = convert_to_search(plan, text);
    let (testbed, mut db) = place.open(&plan)?;
    let stop = line.stop.clone();
    let run = session::RunInputs {
        plan: &plan,
        plan_text: &text,
        testbed: &testbed,
        part: RunPart::Whole,
        quiet: session::QuietPolicy::Anyhow,
        interval: None,
        stop: &stop,
    };
    let mut other = AskTell::new(line);
    let ended = session::run_suggested(&run, &mut db, &mut SilentProgress, Some(&mut other))?;
    let file = place.output.as_ref().map_or_else(String::new, |path| path.display().to_string());
    other.finish_search(&ended, file)?;
    Ok(ended)
}

/// The thread's ends of the channels.
struct SearchChannels {
    said: SyncSender<String>,
    answers: Receiver<Vec<u8>>,
    stop: Stop,
}

impl OptimiserLine for SearchChannels {
    fn send_line(&mut self, said: &SearchSaid) -> Result<(), Error> {
        let mut line = serde_json::to_string(said)
            .map_err(|error| Error::Optimiser { problem: error.to_string() })?;
        // Whoever closes the search does not read any more.
        while !self.stop.is_raised() {
            line = match self.said.try_send(line) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(line)) => line,
                Err(TrySendError::Disconnected(_)) => break,
            };
            thread::sleep(LOOK_EVERY);
        }
        Err(Error::Interrupted)
    }

    fn receive_line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            if self.stop.is_raised() {
                return Err(Error::Interrupted);
            }
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}
