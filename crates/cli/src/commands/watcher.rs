//! The process that puts a change back unless somebody confirms it in time.
//!
//! It is latput itself, started before the first write in a session of its own, so that neither kill -9
//! nor the end of the ssh session reaches it. Everything it acts on is in the checkpoint: a change that
//! was cut short goes back as soon as its maker is gone, a whole one at the end of its time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use latput_experiment::host::{chain, checkpoints_dir, state_dir};
use latput_knobs::transaction::{self, Restored};
use latput_knobs::{self as knobs, Checkpoint, CheckpointStore, StoreError};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, process};
use latput_load::Stop;
use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::context::Context;
use crate::exit::{Code, Failure};

/// How often it looks whether the change has been confirmed, and whether it is told to end.
const LOOK_EVERY: Nanos = Nanos::from_ms(500);
/// So many times, that long apart, it tries to put back what the kernel refuses.
const ATTEMPTS: u32 = 60;
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);
/// What it says when it is ready; anything else is why it is not.
const READY: &str = "ready";

/// Puts a change back unless it is confirmed; started by `latput set`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    interface: String,
    /// The process that makes the change.
    #[arg(long)]
    pid: u32,
    /// When it began to, in milliseconds since 1970.
    #[arg(long)]
    created_unix_ms: u64,
}

/// A watcher that was started, as its starter holds it. It takes the change for finished, whole or not,
/// when this is dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    _process: Child,
}

impl Watcher {
    /// Starts a watcher for a change of `interface` that has not begun.
    pub(crate) fn start(origin: &knobs::Context, interface: &str) -> Result<Self, Failure> {
        let failed = |problem: String| {
            let message = format!("cannot start what would put the change back: {problem}");
            Failure::new(Code::Failed, message)
        };
        let state = std::path::absolute(state_dir()).map_err(|error| failed(error.to_string()))?;
        // The file may have been replaced or deleted since this process began.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["watcher", interface])
            .args(["--pid", &origin.pid.to_string()])
            .args(["--created-unix-ms", &origin.now_unix_ms.to_string()])
            .env("LATPUT_STATE_DIR", state)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child =
            process::detach(&mut command).spawn().map_err(|error| failed(error.to_string()))?;
        let said = child.stdout.take().map(BufReader::new).and_then(|out| out.lines().next());
        match said {
            Some(Ok(line)) if line == READY => Ok(Self { _process: child }),
            Some(Ok(line)) => Err(failed(line)),
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Err(failed("it ended at once".to_owned())),
        }
    }
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, Failure> {
        let opened = checkpoint::context().and_then(|origin| Ok((origin, LinuxKernel::open()?)));
        let (origin, mut kernel) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                say(&chain(&error))?;
                return Err(error.into());
            }
        };
        let maker =
            knobs::Context { pid: self.pid, now_unix_ms: self.created_unix_ms, ..origin.clone() };
        let change = Checkpoint::new(&maker, &self.interface);
        say(READY)?;
        wait_for_maker()?;
        // What it holds of the lock ends with the store, so that a confirmation is never kept waiting.
        let store = || FileCheckpoints::new(&checkpoints_dir());
        if wait(&store(), &change, &context.stop) {
            for attempt in 1..=ATTEMPTS {
                if put_back(&mut kernel, &mut store(), &origin, &change, attempt) {
                    break;
                }
                std::thread::sleep(ATTEMPT_EVERY);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One line to the starter, which may be gone.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    Ok(writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush())?)
}

/// Waits until the maker of the change holds the other end of stdin no longer: it is done, or dead.
fn wait_for_maker() -> Result<(), Failure> {
    let stdin = std::io::stdin();
    let look_every = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&look_every)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) if fds[0].revents().contains(PollFlags::HUP) => return Ok(()),
            Ok(_) => drop(stdin.lock().read_line(&mut String::new())?), // it says nothing
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        }
    }
}

/// Waits until the change must go back: it is half done, its time is over, or this process was told to
/// end, after which nobody would watch. Gives false when it is gone, confirmed or put back.
fn wait(store: &FileCheckpoints, change: &Checkpoint, stop: &Stop) -> bool {
    loop {
        let kept = match store.kept(change.namespace, &change.interface) {
            Ok(Some(kept)) if kept.is_of_the_change(change) => kept,
            Ok(_) => return false,
            Err(error) => {
                let _ = store.tell_late(change, &format!("it could not be put back: {error}"));
                return false;
            }
        };
        let left = kept.confirm_by.unwrap_or_default().saturating_sub(process::since_boot());
        if left == Nanos::ZERO || stop.is_raised() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY).as_duration());
    }
}

/// Puts the change back, if it is still there; says whether that is settled.
fn put_back(
    kernel: &mut LinuxKernel,
    store: &mut FileCheckpoints,
    origin: &knobs::Context,
    change: &Checkpoint,
    attempt: u32,
) -> bool {
    let kept = match store.claim(change.namespace, &change.interface) {
        Ok(Some(kept)) if kept.is_of_the_change(change) => kept,
        // Somebody confirms it or puts it back at this moment.
        Err(StoreError::Locked { .. }) => return false,
        Ok(_) | Err(_) => return true,
    };
    let why = match kept.confirm_by {
        None => "the change was not finished",
        Some(by) if by <= process::since_boot() => "no confirmation came in time",
        Some(_) => "what watched the time was told to end",
    };
    // Before the values change, so that nobody who sees them back is not told.
    let _ = store.tell_late(&kept, &format!("{why}, and everything was put back"));
    let ending = match transaction::restore(kernel, &mut *store, origin, &kept) {
        Ok(Restored::InterfaceGone { .. }) => format!("{why}, and the interface is gone"),
        Ok(Restored::Done { others, .. }) if !others.is_empty() => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            format!("{why}, and everything was put back but what stays: {}", others.join("; "))
        }
        Ok(_) => return true,
        Err(error) => {
            format!("{why}, and attempt {attempt} to put it back failed: {}", chain(&error))
        }
    };
    let _ = store.tell_late(&kept, &ending);
    store.kept(change.namespace, &change.interface).is_ok_and(|kept| kept.is_none())
}
