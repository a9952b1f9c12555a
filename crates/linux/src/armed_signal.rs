//! A signal that is armed while this process may send it, and is sent after it has given its rights up.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::error::Error;

/// `include/uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// A signal to a child. The kernel sends it when there is something in a pipe, with the rights that this process had
/// when it asked for that (`sigio_perm`, `fs/fcntl.c`). It goes to that process, not to a later one of its number.
#[derive(Debug)]
pub struct ArmedSignal {
    // Closed first: the end of the other one is something in the pipe, too.
    _watched: OwnedFd,
    trigger: OwnedFd,
}

impl ArmedSignal {
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
        set(libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC)?;
        Ok(Self { _watched: watched, trigger })
    }

    /// Sends it. A second time nothing is sent.
    pub fn send(&self) {
        let _sent = rustix::io::write(&self.trigger, b"x");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_gets_the_signal_when_it_is_sent() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let armed = ArmedSignal::arm(&child, Signal::TERM).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        armed.send();
        armed.send();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        armed.send(); // nobody is there
    }

    #[test]
    fn nothing_is_sent_when_it_is_dropped() {
        let mut child = Command::new("sleep").arg("0.2").spawn().unwrap();
        drop(ArmedSignal::arm(&child, Signal::TERM).unwrap());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
