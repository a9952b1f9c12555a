//! Runs one command, bounded in time and in its output, and kills it with its children.

use std::fs::File;
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::Stop;
use latput_reach::broker::process::Started;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;

use crate::look::ANSWER_BYTES_MOST;

/// How much of stderr is kept, from its end.
const ERRORS_BYTES_MOST: usize = 8 << 10;
/// Interval of looking for the end of the time and for a stop.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long output is waited for after the command has ended: a child of it may hold the pipes.
const REST_WITHIN: Duration = Duration::from_millis(200);
/// Passes that read all that a pipe holds (64 KiB, pipe(7)), and find it empty.
const REST_PASSES: usize = (64 << 10) / READ_BYTES + 1;
/// Most that one pass reads of a pipe.
const READ_BYTES: usize = 16 << 10;
/// How often to ask whether a command has ended. Its end mostly closes the pipes, and a broker has many to tell of.
const OPEN_LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same once its pipes are closed.
const CLOSED_LOOK_EVERY: Duration = Duration::from_millis(1);

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
pub enum SubprocessEnding {
    /// By itself.
    Ended {
        /// Its exit code; `None` after a signal.
        code: Option<i32>,
        /// Bytes of stdout.
        out: Vec<u8>,
        /// The end of what it wrote to stderr.
        err: String,
    },
    /// It was killed at the end of its time.
    TimedOut,
    /// It was killed because it wrote too much.
    TooLong,
    /// It was killed because nobody wants the answer any more.
    Stopped,
}

/// `ended with 3`, `ended by a signal`.
pub(crate) fn ended_in_words(code: Option<i32>) -> String {
    code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("ended with {code}"))
}

/// A caller that waits for a command.
pub trait WaitObserver {
    /// Whether the answer is not wanted any more.
    fn is_over(&self) -> bool;
    /// Called again and again with the time that has passed.
    fn goes_on(&mut self, waited: Duration);
}

/// A caller that waits for a command until a stop comes.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// After the first Ctrl-C.
    Stop(&'a Stop),
    /// After the second: what changes a host is not cut short by the first.
    SecondStop(&'a Stop),
}

impl WaitObserver for Until<'_> {
    fn is_over(&self) -> bool {
        match self {
            Self::Stop(stop) => stop.is_raised(),
            Self::SecondStop(stop) => stop.is_raised_again(),
        }
    }

    fn goes_on(&mut self, _: Duration) {}
}

/// The last line that says something, without latput's own beginning.
pub(crate) fn last_line(said: &str) -> String {
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or("it printed nothing").trim_start_matches("latput: error: ");
    latput_report::make_printable(line)
}

/// Starts a command, gives it `input`, and waits for what it says. It is in a process group of its own, so that Ctrl-C
/// does not reach it.
pub fn run_with_timeout(
    start: impl FnOnce() -> io::Result<Started>,
    input: &[u8],
    within: Duration,
    waiting: &mut dyn WaitObserver,
) -> io::Result<SubprocessEnding> {
    let begun = Instant::now();
    let (mut process, pipes) = start()?;
    let mut pipes = ChildPipes::new(pipes, input);
    let mut rest: Option<PipeDrain> = None;
    let mut looked_at = begun;
    let problem = loop {
        let waited = begun.elapsed();
        if waiting.is_over() {
            break Some(SubprocessEnding::Stopped);
        }
        if waited > within {
            break Some(SubprocessEnding::TimedOut);
        }
        waiting.goes_on(waited);
        if !pipes.pass_on() {
            break Some(SubprocessEnding::TooLong);
        }
        if rest.as_mut().is_some_and(|rest| rest.is_read(pipes.are_closed())) {
            break None;
        }
        let look_every = if pipes.are_closed() { CLOSED_LOOK_EVERY } else { OPEN_LOOK_EVERY };
        if rest.is_none() && looked_at.elapsed() >= look_every {
            looked_at = Instant::now();
            // A busy broker takes its time to answer, and the command writes meanwhile.
            rest = process.has_ended().then(PipeDrain::from_now);
        }
    };
    let code = process.exit_code();
    process.kill(); // and what it has left behind
    let ChildPipes { out, err, .. } = pipes;
    let err = String::from_utf8_lossy(&err).into_owned();
    Ok(problem.unwrap_or(SubprocessEnding::Ended { code, out, err }))
}

/// Output that is still to be read once a command has ended.
struct PipeDrain {
    since: Instant,
    passes: usize,
}

impl PipeDrain {
    fn from_now() -> Self {
        Self { since: Instant::now(), passes: 0 }
    }

    /// Asked after each pass. All that the command wrote is read, however late its end was seen.
    fn is_read(&mut self, are_closed: bool) -> bool {
        self.passes += 1;
        are_closed || self.passes >= REST_PASSES && self.since.elapsed() > REST_WITHIN
    }
}

/// The near ends of a process's pipes.
struct ChildPipes<'a> {
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    input: &'a [u8],
    out: Vec<u8>,
    err: Vec<u8>,
}

impl<'a> ChildPipes<'a> {
    fn new([stdin, stdout, stderr]: [File; 3], input: &'a [u8]) -> Self {
        // A pipe can be made so; if not, the time of a write is bounded by the process's life.
        for pipe in [&stdin, &stdout, &stderr] {
            let _ = ioctl_fionbio(pipe, true);
        }
        Self {
            stdin: Some(stdin).filter(|_| !input.is_empty()),
            stdout: Some(stdout),
            stderr: Some(stderr),
            input,
            out: Vec::new(),
            err: Vec::new(),
        }
    }

    fn are_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// Waits for a while, writes and reads what can be; returns false if too much was read.
    fn pass_on(&mut self) -> bool {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        fds.extend(self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        fds.extend(self.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        fds.extend(self.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        if fds.is_empty() {
            thread::sleep(Duration::from_millis(1));
        } else {
            let _ready = poll(&mut fds, Some(&LOOK_EVERY));
        }
        self.write();
        read(&mut self.stdout, &mut self.out);
        read(&mut self.stderr, &mut self.err);
        if let Some(start) = self.err.len().checked_sub(ERRORS_BYTES_MOST) {
            self.err.drain(..start);
        }
        self.out.len() <= ANSWER_BYTES_MOST
    }

    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(self.input) {
            Ok(written) => self.input = &self.input[written..],
            Err(error) if is_for_now(&error) => {}
            Err(_) => self.input = &[], // a command that ends at once does not read it
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Reads once; forgets the pipe at its end.
fn read(pipe: &mut Option<File>, to: &mut Vec<u8>) {
    let Some(from) = pipe else { return };
    let mut buffer = [0; READ_BYTES];
    match from.read(&mut buffer) {
        Ok(0) => *pipe = None,
        Ok(length) => to.extend_from_slice(&buffer[..length]),
        Err(error) if is_for_now(&error) => {}
        Err(_) => *pipe = None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use latput_reach::broker::process::HostProcess;

    use super::*;

    struct CountingObserver {
        is_over: bool,
        calls: usize,
    }

    impl WaitObserver for CountingObserver {
        fn is_over(&self) -> bool {
            self.is_over && self.calls > 2
        }

        fn goes_on(&mut self, _: Duration) {
            self.calls += 1;
        }
    }

    fn run(script: &str, input: &str, within: Duration, is_over: bool) -> SubprocessEnding {
        let mut command = Command::new("sh");
        let mut patient = CountingObserver { is_over, calls: 0 };
        let start = || HostProcess::start_here(command.args(["-c", script]));
        run_with_timeout(start, input.as_bytes(), within, &mut patient).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn command_is_given_its_input_and_answers() {
        let input = "x".repeat(200_000);
        let ending = run("cat; echo no >&2; exit 3", &input, LONG, false);
        let expected =
            SubprocessEnding::Ended { code: Some(3), out: input.into(), err: "no\n".to_owned() };
        assert!(ending == expected);
        // A child that does not read is no reason to wait.
        let ending = run("exit 0", &"x".repeat(200_000), LONG, false);
        assert_eq!(
            ending,
            SubprocessEnding::Ended { code: Some(0), out: Vec::new(), err: String::new() }
        );
    }

    #[test]
    fn command_output_is_read_after_its_end() {
        let long_ago = Instant::now().checked_sub(LONG).unwrap();
        let mut held = PipeDrain { since: long_ago, passes: 0 };
        assert_eq!((1..REST_PASSES).filter(|_| held.is_read(false)).count(), 0);
        assert!(held.is_read(false), "a child holds the pipes");
        assert!(!PipeDrain::from_now().is_read(false));
        assert!(PipeDrain::from_now().is_read(true));
        // As much as a pipe holds, from a child that ends it all at once.
        let ending = run("head -c 65536 /dev/zero; sleep 100 & exit 0", "", LONG, false);
        let SubprocessEnding::Ended { code: Some(0), out, .. } = ending else {
            panic!("{ending:?}")
        };
        assert_eq!(out.len(), 65_536);
    }

    #[test]
    fn command_ends_with_its_children() {
        let begun = Instant::now();
        assert_eq!(
            run("sleep 100", "", Duration::from_millis(50), false),
            SubprocessEnding::TimedOut
        );
        assert_eq!(run("sleep 100 & wait", "", LONG, true), SubprocessEnding::Stopped);
        assert_eq!(run("yes", "", LONG, false), SubprocessEnding::TooLong);
        // A child in the background holds the pipes.
        let ending = run("sleep 100 & echo done", "", LONG, false);
        assert_eq!(
            ending,
            SubprocessEnding::Ended { code: Some(0), out: "done\n".into(), err: String::new() }
        );
        let ending = run("yes e >&2 & sleep 0.1; kill $!; exit 1", "", LONG, false);
        let SubprocessEnding::Ended { code: Some(1), err, .. } = ending else {
            panic!("{ending:?}")
        };
        assert!(err.len() <= ERRORS_BYTES_MOST, "{}", err.len());
        assert!(begun.elapsed() < LONG, "nothing was waited for");
    }

    #[test]
    fn last_line_tells_why() {
        assert_eq!(last_line("a\nlatput: error: b\n\n"), "b");
        assert_eq!(last_line(" \n"), "it printed nothing");
    }

    #[test]
    fn program_that_is_not_there_is_an_error() {
        let mut patient = CountingObserver { is_over: false, calls: 0 };
        let start = || HostProcess::start_here(&mut Command::new("no-such-program"));
        let ending = run_with_timeout(start, b"", LONG, &mut patient);
        assert_eq!(ending.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
