//! The processes that put a change back unless it is confirmed in time.
//!
//! Two processes watch. Both are latput itself. They start before the first write, each in its own
//! session, so neither kill -9 of the maker nor the end of the ssh session reaches them. Each
//! starts the other again when it dies. They act on the checkpoint: an incomplete change is put
//! back as soon as its maker is gone, a complete one at the end of its time. A maker that is not
//! done by then, because it hangs or was stopped, is killed first, so that it never writes again.
//!
//! When both are killed at once, the kernel continues the maker, stopped or not, and that puts back what it has made.
//! Where systemd runs, a timer of its own starts a third one after the deadline.
//!
//! None of them gives up. A checkpoint that cannot be read now, a lock that cannot be taken and a value that the kernel
//! refuses are tried again: each second for a minute, then each half minute until it is done (`deadline.rs`).
//!
//! What they need is theirs before the first write: the sockets to the kernel, its log, and their memory with the program's
//! code, which a root file system behind the changed interface could not give any more. The outcome is told in the room that
//! the checkpoint leaves. The kernel refuses root no descriptor for want of files (`alloc_empty_file`).

mod deadline;
mod peer;
mod timer;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use latput_knobs::transaction::ApplyError;
use latput_knobs::{self as knobs, Checkpoint, Device, KernelErrorKind, KernelRead};
use latput_linux::{LinuxKernel, arm_continue_on_hangup, checkpoint, has_no_reader, process};
use latput_protocol::folders::state_dir;
use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGURG;

use self::deadline::{ConfirmDeadline, WatchEnds};
use self::peer::{PeerWatcher, wait_for};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};

/// Most time for a maker to put the change back itself if it is told to end together with its
/// watchers.
const MAKER_WITHIN: Nanos = Nanos::from_s(5);
/// The kernel's out-of-memory killer never takes a process with this score (`proc_pid_oom_score_adj(5)`).
const NEVER_KILLED: &str = "-1000";
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
    /// When that process was started, in clock ticks since the boot: with its id it names one process.
    #[arg(long, default_value_t = 0)]
    pid_start: u64,
    /// Start of the change, in milliseconds since 1970.
    #[arg(long)]
    created_unix_ms: u64,
    /// Deadline of the change, in nanoseconds since the boot.
    #[arg(long)]
    by_ns: u64,
    /// The watcher that has started this one; without it, this one starts another.
    #[arg(long)]
    peer: Option<u32>,
    /// Set by systemd's timer: both watchers should be done, and may be dead.
    #[arg(long = "late")]
    is_late: bool,
}

/// Tells the watchers of a change that it was confirmed or put back. They find that out from the checkpoint that is gone,
/// but where its whole folder is gone they could not tell.
pub(crate) fn tell_settled(change: &Checkpoint) {
    for process in watchers_of(change) {
        let _gone = pidfd_send_signal(process, Signal::URG);
    }
}

/// Whether somebody puts a change back at its deadline: a process, or a timer of systemd. Processes of another container
/// are not seen.
pub(crate) fn is_watched(change: &Checkpoint) -> bool {
    watchers_of(change).next().is_some()
        || timer::is_set(change.device.index, change.created_unix_ms)
}

/// Finds the processes that watch a change, by their command lines.
fn watchers_of(change: &Checkpoint) -> impl Iterator<Item = OwnedFd> {
    let words = [
        "watcher".to_owned(),
        format!("--index={}", change.device.index),
        format!("--pid={}", change.pid),
        format!("--created-unix-ms={}", change.created_unix_ms),
    ];
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).filter_map(move |pid| {
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).ok()?;
        let said: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.iter().all(|word| said.contains(&word.as_bytes())).then_some(process)
    })
}

/// The running watchers. When this is dropped, they treat the change as finished, complete or not.
#[derive(Debug)]
pub(crate) struct Watcher {
    process: Child,
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
        let device = kernel.device(interface).map_err(|error| match error.kind {
            KernelErrorKind::NoInterface => {
                ApplyError::NoInterface { interface: interface.to_owned() }.into()
            }
            _ => CliError { code: ExitReason::Failed, error: error.into() },
        })?;
        let args = Args {
            interface: interface.to_owned(),
            index: device.index,
            pid: origin.pid,
            pid_start: process::start_time(origin.pid).unwrap_or(0),
            created_unix_ms: origin.now_unix_ms,
            by_ns: process::since_boot().saturating_add(within).as_ns(),
            peer: None,
            is_late: false,
        };
        let started = args.start(Stdio::piped()).map_err(|problem| {
            let message =
                format!("cannot start the process that would put the change back: {problem}");
            CliError::new(ExitReason::Failed, message)
        })?;
        if let Some(pipe) = &started.stdin
            && let Err(error) = arm_continue_on_hangup(pipe)
        {
            tracing::debug!(
                "stopped, this process would not notice that its watchers end: {error}"
            );
        }
        if let Err(why) = timer::start(&args, within) {
            tracing::debug!("no timer of systemd watches this change: {why}");
        }
        Ok(Self { process: started })
    }

    /// Whether one of the watchers is alive. The other starts it again when it dies, so that then both were killed.
    pub(crate) fn is_alive(&self) -> bool {
        !self.process.stdin.as_ref().is_some_and(has_no_reader)
    }
}

impl Args {
    /// The words that start a watcher with these arguments.
    fn to_args(&self) -> Vec<String> {
        let mut words = vec![
            "watcher".to_owned(),
            format!("--index={}", self.index),
            format!("--pid={}", self.pid),
            format!("--pid-start={}", self.pid_start),
            format!("--created-unix-ms={}", self.created_unix_ms),
            format!("--by-ns={}", self.by_ns),
        ];
        words.extend(self.peer.map(|pid| format!("--peer={pid}")));
        words.extend(self.is_late.then(|| "--late".to_owned()));
        // The name may begin with `-`.
        words.extend(["--".to_owned(), self.interface.clone()]);
        words
    }

    /// Starts a watcher with these arguments, and waits until it is ready.
    fn start(&self, stdin: Stdio) -> Result<Child, String> {
        let state = std::path::absolute(state_dir()).map_err(|error| error.to_string())?;
        // The binary may have been replaced or deleted since this process began.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(self.to_args())
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

    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let watch = match self.create_deadline(context) {
            Ok(watch) => watch,
            Err(failure) => {
                send_line(&format!("{:#}", failure.error));
                return Err(failure);
            }
        };
        send_line(READY);
        watch.run();
        Ok(ExitCode::SUCCESS)
    }

    fn create_deadline(self, context: &CliContext) -> Result<ConfirmDeadline<'_>, CliError> {
        // Without the right to, it is as likely to be killed as any other process.
        let _unprotected = std::fs::write("/proc/self/oom_score_adj", NEVER_KILLED);
        let origin = checkpoint::context()?;
        let kernel = LinuxKernel::open()?;
        let maker =
            knobs::Context { pid: self.pid, now_unix_ms: self.created_unix_ms, ..origin.clone() };
        let device = Device { index: self.index, ..Device::default() };
        let is_settled = Arc::default();
        signal_hook::flag::register(SIGURG, Arc::clone(&is_settled))?;
        // From now on its deletion is noticed, so that nobody waits for an interface that is no more.
        let _gone_already = kernel.device(&self.interface);
        let change = Checkpoint::new(&maker, &self.interface, device);
        let maker = if self.is_late {
            ChangeMaker::of_start(self.pid, self.pid_start)
        } else {
            ChangeMaker::from_pid(self.pid)?
        };
        let peer = match self.peer {
            _ if self.is_late => PeerWatcher::none(),
            Some(pid) => PeerWatcher::from_parent(pid),
            None => PeerWatcher::start(&self)
                .map_err(|problem| CliError::new(ExitReason::Failed, problem))?,
        };
        let ends = WatchEnds { stop: &context.stop, is_settled };
        // Without the right to, its pages may have to be read from a disk.
        let _unlocked = mlockall(MlockAllFlags::CURRENT);
        Ok(ConfirmDeadline::new(self, (change, maker, peer), ends, (origin, kernel)))
    }
}

/// Sends one line to the starter. Errors are ignored: if the starter is gone, this process matters
/// all the more.
fn send_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _gone = writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush());
}

/// The process that makes the change. It alone holds the other end of this process's stdin, and
/// closes it when it is done.
struct ChangeMaker {
    /// `None` if it had ended before.
    process: Option<OwnedFd>,
    /// Whether it was given the other end; a timer of systemd has none to give.
    has_pipe: bool,
}

impl ChangeMaker {
    /// Finds the maker. While it holds the pipe it is alive, so no other process has its id.
    fn from_pid(pid: u32) -> Result<Self, CliError> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| CliError::usage("--pid is not a process id"))?;
        let process = pidfd_open(pid, PidfdFlags::empty());
        if hung_up() {
            return Ok(Self { process: None, has_pipe: true });
        }
        let process = process.map_err(|errno| {
            CliError::new(ExitReason::Failed, format!("pidfd_open (Linux 5.3 and later): {errno}"))
        })?;
        Ok(Self { process: Some(process), has_pipe: true })
    }

    /// The process of this id that was started then, if it is still there: stopped, it never makes its change.
    fn of_start(pid: u32, start: u64) -> Self {
        let is_it = || process::start_time(pid) == Some(start);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { process: process.filter(|_| is_it()), has_pipe: false }
    }

    /// Whether it is done, or dead.
    fn is_done(&self) -> bool {
        let has_ended = |process| wait_for(&[process], Nanos::ZERO);
        if self.has_pipe { hung_up() } else { self.process.as_ref().is_none_or(has_ended) }
    }

    /// Kills it unless it is done; returns whether it did.
    fn kill_if_running(&self) -> bool {
        let Some(process) = self.process.as_ref().filter(|_| !self.is_done()) else {
            return false;
        };
        let _gone = pidfd_send_signal(process, Signal::KILL);
        wait_for(&[process], MAKER_WITHIN); // with it its lock goes
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
