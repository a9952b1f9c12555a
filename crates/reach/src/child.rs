//! A process that this one started: it leads its own process group.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Most time to wait for a killed process. One in a disk wait ends only after it.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// The other ends of a process's pipes: stdin, stdout, stderr; those that are piped.
pub(crate) type Pipes = [Option<OwnedFd>; 3];

/// A process that leads its own group, so that Ctrl-C reaches only the controller, and its children
/// can be killed with it. Dropping it does not kill it.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    child: Child,
    is_over: bool,
}

impl OwnProcess {
    pub(crate) fn start(command: &mut Command) -> io::Result<(Self, Pipes)> {
        let mut child = command.process_group(0).spawn()?;
        let pipes = [
            child.stdin.take().map(OwnedFd::from),
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        ];
        Ok((Self { child, is_over: false }, pipes))
    }

    /// Whether it is no longer of interest, or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over || self.how_it_ended().is_some()
    }

    /// `exit status: 1` or `signal: 9`; `None` while it runs. It is not reaped by this, so its id stays that of its
    /// group.
    pub(crate) fn how_it_ended(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status: {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "it is not known how".to_owned(),
        })
    }

    /// Kills it and its children.
    pub(crate) fn kill(&mut self) {
        if self.is_over {
            return;
        }
        let _gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let deadline = Instant::now() + KILLED_WITHIN;
        while !self.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.leave_running();
    }

    /// Leaves it running; reaps it if it has ended.
    pub(crate) fn leave_running(&mut self) {
        self.is_over = true;
        let _running = self.child.try_wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn children_of_killed_process_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
        let (mut process, [_, out, _]) = OwnProcess::start(&mut command).unwrap();
        let mut pid = String::new();
        let mut out = File::from(out.unwrap());
        let mut byte = [0];
        while out.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            pid.push(byte[0].into());
        }
        assert!(!process.has_ended());
        process.kill();
        assert!(process.has_ended());
        // Its end of the pipe is closed when it has ended.
        assert_eq!(out.read(&mut byte).unwrap(), 0, "{pid}");
    }
}
