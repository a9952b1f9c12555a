//! A signal that is armed while this process may send it, and is sent after it has given its rights up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, getpid};

use crate::error::Error;

/// `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// A signal to a child. The kernel sends it when there is something in a pipe, with the rights that this process had
/// when it asked for that (`sigio_perm`, `fs/fcntl.c`). It goes to that process, not to a later one of its number.
#[derive(Debug)]
pub struct ChildSignal {
    // Closed first: the end of the other one is something in the pipe, too.
    _watched: OwnedFd,
    trigger: OwnedFd,
}

impl ChildSignal {
    /// Arms `signal` for a child that is not reaped.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn arm(child: &Child, signal: Signal) -> Result<Self, Error> {
        let failed = |errno| Error::system("arm a signal", errno);
        let (watched, trigger) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
        let pid = libc::pid_t::try_from(child.id())
            .map_err(|_| Error::Other("no process has this id".to_owned()))?;
        arm_signal_at_event(watched.as_fd(), pid, signal)?;
        Ok(Self { _watched: watched, trigger })
    }

    /// Sends it. A second time nothing is sent.
    pub fn trigger(&self) {
        let _sent = rustix::io::write(&self.trigger, b"x");
    }
}

/// Has the kernel continue this process when the last process that holds the other end of a pipe has ended: also if this
/// one was stopped and cannot look.
///
/// # Errors
///
/// The system's.
pub fn arm_continue_on_hangup(end: impl AsFd) -> Result<(), Error> {
    arm_signal_at_event(end.as_fd(), getpid().as_raw_pid(), Signal::CONT)
}

/// Whether nobody holds the reading end of a pipe any more.
pub fn has_no_reader(writing_end: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&writing_end, PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    ready.is_ok_and(|count| count > 0) && fds[0].revents().contains(PollFlags::ERR)
}

/// Has the kernel send a signal to a process when something happens at this end of a pipe.
fn arm_signal_at_event(
    watched: BorrowedFd<'_>,
    pid: libc::pid_t,
    signal: Signal,
) -> Result<(), Error> {
    let number = watched.as_raw_fd();
    let set = |command, value: libc::c_int| {
        // SAFETY: the call takes three numbers, and the pipe is open for as long as this is borrowed.
        if unsafe { libc::fcntl(number, command, value) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(Error::Other(format!("cannot arm a signal: {error}")))
    };
    set(F_SETSIG, signal.as_raw())?;
    set(libc::F_SETOWN, pid)?;
    set(libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn child_gets_the_signal_when_it_is_sent() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let armed = ChildSignal::arm(&child, Signal::TERM).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        armed.trigger();
        armed.trigger();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        armed.trigger(); // nobody is there
    }

    #[test]
    fn nothing_is_sent_when_it_is_dropped() {
        let mut child = Command::new("sleep").arg("0.2").spawn().unwrap();
        drop(ChildSignal::arm(&child, Signal::TERM).unwrap());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    #[test]
    fn end_of_all_readers_is_noticed() {
        let start = |stdin| Command::new("sleep").arg("100").stdin(stdin).spawn().unwrap();
        let mut first = start(Stdio::piped());
        let end = first.stdin.take().unwrap();
        arm_continue_on_hangup(&end).unwrap();
        assert!(!has_no_reader(&end));
        first.kill().unwrap();
        first.wait().unwrap();
        // A process that another test starts just now holds the pipe until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !has_no_reader(&end) {
            assert!(Instant::now() < deadline, "a pipe without readers was not noticed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
