//! A process of a `via` command: it leads its own process group, and its output is bounded.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::protocol::printable;

/// Most time to wait for a killed process. One in a disk wait ends only after it.
const KILLED_WITHIN: Duration = Duration::from_secs(1);

/// A process that leads its own group, so that Ctrl-C reaches only the controller, and its children
/// can be killed with it. Dropping it does not kill it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    is_over: bool,
}

impl Process {
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        Ok(Self { child: command.process_group(0).spawn()?, is_over: false })
    }

    /// The process itself, for its pipes.
    pub(super) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Whether it has ended. It is not reaped by this, so its id stays that of its group.
    pub(super) fn has_ended(&self) -> bool {
        self.is_over || self.how_it_ended().is_some()
    }

    /// Whether it has ended with exit code 0.
    pub(super) fn has_succeeded(&self) -> bool {
        self.how_it_ended().is_some_and(|how| how == "exit status: 0")
    }

    /// `exit status: 1` or `signal: 9`; `None` while it runs.
    pub(super) fn how_it_ended(&self) -> Option<String> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(Pid::from_child(&self.child)), options).ok().flatten()?;
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => format!("exit status: {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "it is not known how".to_owned(),
        })
    }

    /// Kills it and its children.
    pub(super) fn kill(&mut self) {
        if self.is_over {
            return;
        }
        let _gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let deadline = Instant::now() + KILLED_WITHIN;
        while !self.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        self.leave();
    }

    /// Leaves it running; reaps it if it has ended.
    pub(super) fn leave(&mut self) {
        self.is_over = true;
        let _running = self.child.try_wait();
    }
}

/// The last lines of a process's output, each cut to a length.
#[derive(Debug)]
pub(super) struct LastLines {
    lines: VecDeque<Vec<u8>>,
    is_open: bool,
    /// Nothing more can come.
    is_whole: bool,
    most_lines: usize,
    most_bytes: usize,
}

impl LastLines {
    /// Keeps the last lines of `from`, in a thread that ends with it.
    pub(super) fn of(
        mut from: impl Read + Send + 'static,
        most_lines: usize,
        most_bytes: usize,
    ) -> Arc<Mutex<Self>> {
        let lines = Self {
            lines: VecDeque::new(),
            is_open: false,
            is_whole: false,
            most_lines,
            most_bytes,
        };
        let lines = Arc::new(Mutex::new(lines));
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => match kept.lock() {
                        Ok(mut kept) => kept.push(&buffer[..length]),
                        Err(_) => break,
                    },
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if let Ok(mut kept) = kept.lock() {
                kept.is_whole = true;
            }
        });
        lines
    }

    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if !self.is_open {
                self.lines.push_back(Vec::new());
                if self.lines.len() > self.most_lines {
                    self.lines.pop_front();
                }
            }
            self.is_open = !piece.ends_with(b"\n");
            let line = self.lines.back_mut().expect("a line has just begun, or was begun before");
            let room = self.most_bytes.saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    /// The output so far.
    pub(super) fn said(lines: &Mutex<Self>) -> String {
        lines.lock().map(|lines| lines.joined()).unwrap_or_default()
    }

    /// Whether nothing more can come.
    pub(super) fn is_whole(lines: &Mutex<Self>) -> bool {
        lines.lock().is_ok_and(|lines| lines.is_whole)
    }

    /// What a latput said last for an error, without the host that it names, and what was said beside it.
    pub(super) fn error(lines: &Mutex<Self>) -> Option<(String, String)> {
        let mut lines = lines.lock().ok()?.printable();
        let last = lines.pop()?;
        let error = last.strip_prefix("latput: error: ")?;
        let error = match error.strip_prefix("host `").and_then(|rest| rest.split_once("`: ")) {
            Some((_, error)) => error,
            None => error,
        };
        Some((error.to_owned(), lines.join(" | ")))
    }

    /// All lines in one, without control characters.
    fn joined(&self) -> String {
        self.printable().join(" | ")
    }

    fn printable(&self) -> Vec<String> {
        let lines = self.lines.iter().map(|line| printable(String::from_utf8_lossy(line).trim()));
        lines.filter(|line| !line.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_and_lines_without_number_are_kept_within_bounds() {
        let mut lines = LastLines {
            lines: VecDeque::new(),
            is_open: false,
            is_whole: false,
            most_lines: 3,
            most_bytes: 10,
        };
        for _ in 0..10_000 {
            lines.push(&[b'x'; 1000]);
        }
        assert!(lines.lines.iter().map(Vec::capacity).sum::<usize>() < 1000);
        assert_eq!(lines.joined(), "xxxxxxxxxx");
        lines.push(b"\none\n\ntwo\x1b[2J\r\nthr");
        lines.push(b"ee");
        assert_eq!(lines.joined(), "two\u{fffd}[2J | three");
        for _ in 0..10_000 {
            lines.push(b"\n");
        }
        assert_eq!((lines.lines.len(), lines.joined()), (3, String::new()));
    }

    #[test]
    fn what_a_killed_process_has_started_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; wait"]);
        command.stdout(std::process::Stdio::piped());
        let mut process = Process::start(&mut command).unwrap();
        let mut pid = String::new();
        let mut out = process.child().stdout.take().unwrap();
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
