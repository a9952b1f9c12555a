//! The processes that put a change back unless it is confirmed in time.
//!
//! Two processes watch. Both are latput itself. They start before the first write, each in its own
//! session, so neither kill -9 of the maker nor the end of the ssh session reaches them. Each
//! starts the other again when it dies. They act on the checkpoint: an incomplete change is put
//! back as soon as its maker is gone, a complete one at the end of its time. A maker that is not
//! done by then, because it hangs or was stopped, is killed first, so that it never writes again.
//!
//! Where systemd runs, a timer of its own starts a third one after the deadline.

mod peer;
mod timer;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use latput_experiment::host::{chain, checkpoints_dir, state_dir};
use latput_knobs::transaction::{self, Restored};
use latput_knobs::{self as knobs, Checkpoint, CheckpointStore, Device, KernelRead, StoreError};
use latput_linux::{FileCheckpoints, LinuxKernel, checkpoint, process};
use latput_load::Stop;
use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use self::peer::Peer;
use crate::context::Context;
use crate::exit::{CliError, Code};

/// Interval at which a watcher checks for the confirmation and for a stop.
const LOOK_EVERY: Nanos = Nanos::from_ms(500);
/// Most time for a maker to put the change back itself if it is told to end together with its
/// watchers.
const MAKER_WITHIN: Nanos = Nanos::from_s(5);
/// Number of attempts to put back values that the kernel refuses.
const ATTEMPTS: u32 = 60;
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);
/// A watcher's message when it is ready; any other text is an error.
const READY: &str = "ready";

/// Put a change back unless it is confirmed; started by `latput set`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    interface: String,
    /// The interface's index; its name may change before a watcher is started again.
    #[arg(long)]
    index: u32,
    /// The process that makes the change.
    #[arg(long)]
    pid: u32,
    /// Start of the change, in milliseconds since 1970.
    #[arg(long)]
    created_unix_ms: u64,
    /// Deadline of the change, in nanoseconds since the boot.
    #[arg(long)]
    by_ns: u64,
    /// The watcher that has started this one; without it, this one starts another.
    #[arg(long)]
    peer: Option<u32>,
    /// Set by systemd's timer: the maker and both watchers are done or dead.
    #[arg(long = "late")]
    is_late: bool,
}

/// The running watchers. When this is dropped, they treat the change as finished, complete or not.
#[derive(Debug)]
pub(crate) struct Watcher {
    _process: Child,
}

impl Watcher {
    /// Starts the watchers for a change of `interface` that has not begun, with `within` as its
    /// longest duration.
    pub(crate) fn start(
        kernel: &LinuxKernel,
        origin: &knobs::Context,
        interface: &str,
        within: Nanos,
    ) -> Result<Self, CliError> {
        let device = kernel
            .device(interface)
            .map_err(|error| CliError { code: Code::Failed, error: error.into() })?;
        let args = Args {
            interface: interface.to_owned(),
            index: device.index,
            pid: origin.pid,
            created_unix_ms: origin.now_unix_ms,
            by_ns: process::since_boot().saturating_add(within).as_ns(),
            peer: None,
            is_late: false,
        };
        let started = args.start(Stdio::piped()).map_err(|problem| {
            let message = format!("cannot start what would put the change back: {problem}");
            CliError::new(Code::Failed, message)
        })?;
        if let Err(why) = timer::start(&args, within) {
            tracing::debug!("no timer of systemd watches this change: {why}");
        }
        Ok(Self { _process: started })
    }
}

impl Args {
    /// The words that start a watcher with these arguments.
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            "watcher".to_owned(),
            self.interface.clone(),
            format!("--index={}", self.index),
            format!("--pid={}", self.pid),
            format!("--created-unix-ms={}", self.created_unix_ms),
            format!("--by-ns={}", self.by_ns),
        ];
        words.extend(self.peer.map(|pid| format!("--peer={pid}")));
        words.extend(self.is_late.then(|| "--late".to_owned()));
        words
    }

    /// Starts a watcher with these arguments, and waits until it is ready.
    fn start(&self, stdin: Stdio) -> Result<Child, String> {
        let state = std::path::absolute(state_dir()).map_err(|error| error.to_string())?;
        // The binary may have been replaced or deleted since this process began.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(self.words())
            .env("LATPUT_STATE_DIR", state)
            .current_dir("/")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = process::detach(&mut command).spawn().map_err(|error| error.to_string())?;
        let said = child.stdout.take().map(BufReader::new).and_then(|out| out.lines().next());
        let problem = match said {
            Some(Ok(line)) if line == READY => return Ok(child),
            Some(Ok(line)) => line,
            Some(Err(error)) => error.to_string(),
            None => "it ended at once".to_owned(),
        };
        let _ended_already = child.wait();
        Err(problem)
    }

    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let watch = match self.watch(context) {
            Ok(watch) => watch,
            Err(failure) => {
                say(&format!("{:#}", failure.error));
                return Err(failure);
            }
        };
        say(READY);
        watch.run();
        Ok(ExitCode::SUCCESS)
    }

    fn watch(self, context: &Context) -> Result<ConfirmDeadline<'_>, CliError> {
        let origin = checkpoint::context()?;
        let kernel = LinuxKernel::open()?;
        let maker =
            knobs::Context { pid: self.pid, now_unix_ms: self.created_unix_ms, ..origin.clone() };
        let device = Device { index: self.index, ..Device::default() };
        Ok(ConfirmDeadline {
            change: Checkpoint::new(&maker, &self.interface, device),
            maker: if self.is_late { Maker::gone() } else { Maker::find(self.pid)? },
            by: Nanos::from_ns(self.by_ns),
            end_by: None,
            peer: match self.peer {
                _ if self.is_late => Peer::none(),
                Some(pid) => Peer::above(pid),
                None => {
                    Peer::start(&self).map_err(|problem| CliError::new(Code::Failed, problem))?
                }
            },
            args: self,
            stop: &context.stop,
            origin,
            kernel,
        })
    }
}

/// Sends one line to the starter. Errors are ignored: if the starter is gone, this process matters
/// all the more.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush());
}

/// The process that makes the change. It alone holds the other end of this process's stdin, and
/// closes it when it is done.
struct Maker {
    /// `None` if it had ended before.
    process: Option<OwnedFd>,
    /// Whether it was given the other end; a timer of systemd has none to give.
    has_pipe: bool,
}

impl Maker {
    /// Finds the maker. While it holds the pipe it is alive, so no other process has its id.
    fn find(pid: u32) -> Result<Self, CliError> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| CliError::usage("--pid is no process id"))?;
        let process = pidfd_open(pid, PidfdFlags::empty());
        if hung_up() {
            return Ok(Self { process: None, has_pipe: true });
        }
        let process = process.map_err(|errno| {
            CliError::new(Code::Failed, format!("pidfd_open (Linux 5.3 and later): {errno}"))
        })?;
        Ok(Self { process: Some(process), has_pipe: true })
    }

    /// One that is done or dead, for sure.
    const fn gone() -> Self {
        Self { process: None, has_pipe: false }
    }

    /// Whether it is done, or dead.
    fn is_done(&self) -> bool {
        !self.has_pipe || hung_up()
    }

    /// Kills it unless it is done; returns whether it did.
    fn end(&self) -> bool {
        let Some(process) = self.process.as_ref().filter(|_| !self.is_done()) else {
            return false;
        };
        let _gone = pidfd_send_signal(process, Signal::KILL);
        peer::wait_for(&[process], MAKER_WITHIN); // with it its lock goes
        true
    }
}

/// Whether the other end of stdin is closed.
fn hung_up() -> bool {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&at_once));
    ready.is_ok_and(|count| count > 0) && fds[0].revents().contains(PollFlags::HUP)
}

/// A watcher at work.
struct ConfirmDeadline<'a> {
    args: Args,
    /// The checkpoint of the change.
    change: Checkpoint,
    maker: Maker,
    /// Deadline of the maker.
    by: Nanos,
    /// End of the wait for the maker after this process was told to end.
    end_by: Option<Nanos>,
    peer: Peer,
    stop: &'a Stop,
    origin: knobs::Context,
    kernel: LinuxKernel,
}

impl ConfirmDeadline<'_> {
    fn run(mut self) {
        // The store's lock ends with the store, so that a confirmation never waits for it.
        let store = || FileCheckpoints::new(&checkpoints_dir());
        while let Some(left) = self.time_left(&store()) {
            if left == Nanos::ZERO {
                return self.put_back(&store);
            }
            self.peer.keep(&self.args);
            self.peer.wait(left.min(LOOK_EVERY), !self.maker.is_done());
        }
    }

    /// Time left for the change to be made or confirmed. `None` once it was confirmed, put back, or
    /// never made.
    fn time_left(&mut self, store: &FileCheckpoints) -> Option<Nanos> {
        // Checked before the store, which is final once the maker is done.
        let is_done = self.maker.is_done();
        let now = process::since_boot();
        let kept = match store.kept(self.change.slot()) {
            Ok(kept) => kept.filter(|kept| kept.is_of_the_change(&self.change)),
            Err(error) if is_done => {
                let _ =
                    store.tell_late(&self.change, &format!("it could not be put back: {error}"));
                return None;
            }
            Err(_) => None,
        };
        let by = match kept {
            None if is_done => return None,
            Some(Checkpoint { confirm_by: Some(by), .. }) => by,
            // The change is incomplete.
            Some(_) if is_done => Nanos::ZERO,
            _ => self.by,
        };
        if self.stop.is_raised() {
            let end_by = if is_done { now } else { now.saturating_add(MAKER_WITHIN) };
            self.end_by = Some(self.end_by.map_or(end_by, |known| known.min(end_by)));
        }
        let by = self.end_by.map_or(by, |end_by| by.min(end_by));
        Some(by.saturating_sub(now))
    }

    fn put_back(&mut self, store: &dyn Fn() -> FileCheckpoints) {
        let is_ended = self.maker.end();
        for attempt in 1..=ATTEMPTS {
            if self.attempt(&mut store(), is_ended, attempt) {
                break;
            }
            std::thread::sleep(ATTEMPT_EVERY);
        }
    }

    /// Puts the change back, if it still exists; returns whether that is settled.
    fn attempt(&mut self, store: &mut FileCheckpoints, is_ended: bool, attempt: u32) -> bool {
        let Self { change, kernel, origin, .. } = self;
        let kept = match store.claim(change.slot(), &change.interface) {
            Ok(Some(kept)) if kept.is_of_the_change(change) => kept,
            // Somebody confirms it or puts it back right now, or its maker has not ended yet.
            Err(StoreError::Locked { .. }) => return false,
            Ok(None) => {
                let _ = store.remove(change.slot()); // the lock's file
                return true;
            }
            Ok(_) | Err(_) => return true,
        };
        let why = match kept.confirm_by {
            None if is_ended => "the change was not finished in time, so that its maker was ended",
            None => "the change was not finished",
            Some(by) if by <= process::since_boot() => "no confirmation came in time",
            Some(_) => "what watched the time was told to end",
        };
        // Noted before the values change, so that it is known to anyone who sees them.
        let _ = store.tell_late(&kept, &format!("{why}, and everything was put back"));
        let ending = match transaction::restore(kernel, &mut *store, origin, &kept) {
            Ok(Restored::InterfaceGone) => format!("{why}, and the interface was deleted"),
            Ok(Restored::Done { others, .. }) if !others.is_empty() => {
                log_ending(store, &kept, why);
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                format!("{why}, and everything was put back but what stays: {}", others.join("; "))
            }
            Ok(_) => {
                log_ending(store, &kept, why);
                return true;
            }
            Err(error) => {
                format!("{why}, and attempt {attempt} to put it back failed: {}", chain(&error))
            }
        };
        let _ = store.tell_late(&kept, &ending);
        store.kept(change.slot()).is_ok_and(|kept| kept.is_none())
    }
}

/// Keeps a change that was put back in the journal. Without room for it, [`FileCheckpoints::tell_late`] has told.
fn log_ending(store: &FileCheckpoints, change: &Checkpoint, why: &str) {
    let ended = Checkpoint { went_back: Some(why.to_owned()), ..change.clone() };
    let _ = store.journal().add(&ended);
}
