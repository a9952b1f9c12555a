//! The other watcher, which is started again when it dies.

use std::io::stdin;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};

use latput_units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::Args;

/// The other watcher.
pub(super) struct PeerWatcher {
    /// `None` if it is dead.
    process: Option<OwnedFd>,
    /// The child process, if this watcher started it.
    child: Option<Child>,
    /// Whether it is started again when it is dead.
    is_wanted: bool,
}

impl PeerWatcher {
    /// Starts the other watcher.
    pub(super) fn start(args: &Args) -> Result<Self, String> {
        let args = Args { peer: Some(std::process::id()), ..args.clone() };
        let child = args.start(Stdio::inherit())?;
        // It has not been reaped, so no other process has its id.
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.map_err(|errno| format!("pidfd_open: {errno}"))?;
        Ok(Self { process: Some(process), child: Some(child), is_wanted: true })
    }

    /// The watcher that started this one, if it is still alive.
    pub(super) fn from_parent(pid: u32) -> Self {
        let is_above = |above: &Pid| u32::try_from(above.as_raw_pid()) == Ok(pid);
        let process = getppid()
            .filter(is_above)
            .and_then(|above| pidfd_open(above, PidfdFlags::empty()).ok())
            // It was alive when it was opened: the parent of this process is unchanged.
            .filter(|_| getppid().as_ref().is_some_and(is_above));
        Self { process, child: None, is_wanted: true }
    }

    /// No other watcher: process 1 owns this one's timer.
    pub(super) const fn none() -> Self {
        Self { process: None, child: None, is_wanted: false }
    }

    /// Starts it again if it is dead. After a failure the next call tries again.
    pub(super) fn restart_if_dead(&mut self, args: &Args) {
        let lives = self.process.as_ref().is_some_and(|process| !wait_for(&[process], Nanos::ZERO));
        if lives || !self.is_wanted {
            return;
        }
        if let Some(mut child) = self.child.take() {
            let _ended = child.wait();
        }
        self.process = None;
        if let Ok(started) = Self::start(args) {
            *self = started;
        }
    }

    /// Waits at most `time`; less if the other dies or, with `counts`, the maker is done.
    pub(super) fn wait_at_most(&self, time: Nanos, counts: bool) {
        let stdin = stdin();
        match (&self.process, counts) {
            (Some(process), true) => drop(wait_for(&[process.as_fd(), stdin.as_fd()], time)),
            (Some(process), false) => drop(wait_for(&[process], time)),
            (None, _) => std::thread::sleep(time.as_duration()),
        }
    }
}

/// Waits until a process has ended, or the other end of a pipe was closed. Returns false after
/// `time`.
pub(super) fn wait_for(ends: &[impl AsFd], time: Nanos) -> bool {
    let (seconds, nanos) = (time.as_ns() / 1_000_000_000, time.as_ns() % 1_000_000_000);
    let timeout = Timespec {
        tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(nanos).unwrap_or(0),
    };
    let mut fds: Vec<PollFd<'_>> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
