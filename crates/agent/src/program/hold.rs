//! The two processes that hold a program: the holder makes a PID namespace, and the first process of that starts the program
//! and waits for it.
//!
//! The holder dies with the process that started it, the first process with the holder, and the kernel ends all others of
//! the namespace with its first process. So a SIGKILL of any of them leaves nothing running. The line to the first process
//! is its stdin, a socket: the program comes in, how it went goes out, and its end means SIGTERM for all, and SIGKILL after
//! 2 s. Where no namespace can be had the holder does this itself, as the subreaper of the program's descendants.

use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use latput_linux::contain::{self, Containment};
use latput_linux::process::{self, OsClock};
use latput_load::Stop;
use latput_protocol::control::{read_line_within, write_line};
use latput_protocol::program::{ExitCause, MAX_REQUEST_BYTES, ProgramSpec};
use latput_protocol::text::format_error_chain;
use latput_units::{Clock, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, wait};
use serde::{Deserialize, Serialize};

/// Time between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// Interval at which a signal is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same where a process cannot be waited for with a limit (before Linux 5.3).
const WAIT_EVERY: Duration = Duration::from_millis(5);

/// Why a program could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The kernel refuses.
    #[error("cannot hold a program")]
    Linux(#[from] latput_linux::Error),
    /// A process or a socket cannot be had.
    #[error("cannot hold a program")]
    Io(#[from] io::Error),
}

/// Message of the first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ProgramEvent {
    /// The program runs.
    Started { at: Nanos, contained: bool },
    /// The program has ended, or could not be started.
    Ended { ending: ExitCause, at: Nanos },
}

/// Starts a holder whose line is `line`, and whose outputs are the program's. It ends with this thread.
pub(super) fn start(line: UnixStream) -> io::Result<Child> {
    let mut command = latput_command(&["program", "--hold"]);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(line)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    process::end_with_this_thread(&mut command).spawn()
}

/// This program's own file, which may have no name any more.
fn latput_command(args: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("latput").args(args);
    command
}

/// Holds one program to its end: the main function of the holder, which has one thread so far.
pub fn hold_program(stop: &Stop) -> Result<(), HoldError> {
    match contain::contain_children()? {
        Containment::Subreaper => run_first_process(Containment::Subreaper, stop),
        Containment::Namespace => {
            let mut command = latput_command(&["program", "--first"]);
            let mut first = process::end_with_this_thread(&mut command).spawn()?;
            let running = pidfd_open(Pid::from_child(&first), PidfdFlags::empty()).ok();
            // A process whose children are in another PID namespace can start no thread (`clone(2)`).
            while first.try_wait()?.is_none() {
                if stop.is_raised() {
                    // The first process of a namespace takes no signal but SIGKILL from outside.
                    let _gone = first.kill();
                }
                await_end_or_signal(running.as_ref());
            }
            Ok(())
        }
    }
}

/// Starts the program that the line names, and waits for it: the main function of the first process.
pub fn run_first_process(containment: Containment, stop: &Stop) -> Result<(), HoldError> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let mut said = UnixStream::from(line.try_clone()?);
    let mut line = BufReader::new(UnixStream::from(line));
    let Ok(program) = read_line_within::<ProgramSpec>(&mut line, || MAX_REQUEST_BYTES) else {
        return Ok(()); // whoever started this is gone
    };
    let mut tell = |word: &ProgramEvent| {
        let _gone = write_line(&mut said, word);
    };
    let child = match spawn(&program) {
        Ok(child) => child,
        Err(why) => {
            let ending = ExitCause::NotStarted { why };
            tell(&ProgramEvent::Ended { ending, at: OsClock.now() });
            return Ok(());
        }
    };
    tell(&ProgramEvent::Started {
        at: OsClock.now(),
        contained: containment == Containment::Namespace,
    });
    let pid = Pid::from_child(&child);
    thread::spawn(move || {
        await_end(line);
        end_all(containment, pid);
    });
    let stop = stop.clone();
    thread::spawn(move || {
        while !stop.is_raised() {
            thread::sleep(LOOK_EVERY);
        }
        end_all(containment, pid);
    });
    let ending = wait_for(pid);
    tell(&ProgramEvent::Ended { ending, at: OsClock.now() });
    if containment == Containment::Subreaper {
        kill_rest(pid);
    }
    Ok(()) // the kernel ends what is left in the namespace
}

/// Starts the program: in a session of its own without a terminal, with an empty stdin.
fn spawn(program: &ProgramSpec) -> Result<Child, String> {
    let name = program.words.first().ok_or("no program is named")?;
    let mut command = Command::new(name);
    command.args(&program.words[1..]).envs(&program.environment).stdin(Stdio::null());
    if let Some(folder) = &program.folder {
        if !std::path::Path::new(folder).is_dir() {
            return Err(format!("the folder `{folder}` is not there"));
        }
        command.current_dir(folder);
    }
    if let Some(user) = &program.user {
        let (user_id, group_id) =
            contain::user_ids(user).map_err(|error| format_error_chain(&error))?;
        command.uid(user_id).gid(group_id); // std drops root's other groups
    }
    if let Some(cpus) = &program.cpus {
        process::bind_thread(cpus).map_err(|error| format_error_chain(&error))?;
    }
    process::detach(&mut command);
    process::end_with_this_thread(&mut command);
    command.spawn().map_err(|error| {
        let meant = match error.kind() {
            io::ErrorKind::NotFound => ": install it there, or name it by its path",
            io::ErrorKind::PermissionDenied => ": look at its file's mode and at `user`",
            _ => "",
        };
        format!("cannot run `{name}`: {error}{meant}")
    })
}

/// Returns when the process has ended, a signal has come, or a while has passed. A benchmark has this CPU: it is left alone.
fn await_end_or_signal(running: Option<&OwnedFd>) {
    let Some(running) = running else { return thread::sleep(WAIT_EVERY) };
    let while_left = Timespec::try_from(LOOK_EVERY).expect("a short time");
    let _ended = poll(&mut [PollFd::new(running, PollFlags::IN)], Some(&while_left));
}

/// Returns when the other end closes the line.
fn await_end(mut line: impl Read) {
    let mut buffer = [0; 256];
    loop {
        match line.read(&mut buffer) {
            Ok(length) if length > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// Asks all to end, and kills what does not.
fn end_all(containment: Containment, program: Pid) {
    let signal_all = |signal| match containment {
        Containment::Namespace => contain::signal_namespace(signal),
        Containment::Subreaper => {
            let _gone = rustix::process::kill_process_group(program, signal);
            contain::signal_children(signal);
        }
    };
    signal_all(Signal::TERM);
    thread::sleep(GRACE); // this process ends before, if the program does
    signal_all(Signal::KILL);
}

/// Reaps every child until the program has ended.
fn wait_for(program: Pid) -> ExitCause {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == program => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(status), _) => ExitCause::Exited { status },
                    (None, Some(signal)) => ExitCause::Signalled { signal },
                    (None, None) => ExitCause::Lost,
                };
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCause::Lost,
        }
    }
}

/// Kills what the program has left, generation by generation.
fn kill_rest(program: Pid) {
    let _gone = rustix::process::kill_process_group(program, Signal::KILL);
    loop {
        contain::signal_children(Signal::KILL);
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
}

/// Sends the program to the first process.
pub(super) fn name(line: &mut impl Write, program: &ProgramSpec) -> bool {
    write_line(line, program).is_ok()
}
