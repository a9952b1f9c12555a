//! Runs the commands that come over the virtio ports, one at a time on each.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::{PORT_PREFIX, PORTS};
use crate::error::Error;
use crate::frame::{CommandExit, Frame, PIECE};

/// How often ports without a command are looked at. A port that nobody is connected to cannot be
/// waited for: it polls as hung up, at once.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A command whose user is gone has this long to end by itself.
const END_WITHIN: Duration = Duration::from_secs(15);

/// Serves the ports; returns only when there are none.
pub(super) fn serve_ports() -> Result<(), Error> {
    let mut idle = open_ports()?;
    let (give_back, given_back) = mpsc::channel();
    loop {
        thread::sleep(LOOK_EVERY);
        idle.extend(given_back.try_iter());
        for port in take_called(&mut idle)? {
            let give_back = give_back.clone();
            thread::spawn(move || serve_one(port, &give_back));
        }
    }
}

fn open_ports() -> Result<Vec<File>, Error> {
    let folder = "/sys/class/virtio-ports";
    let begun = Instant::now();
    loop {
        let mut ports = Vec::new();
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.starts_with(PORT_PREFIX) {
                ports.push(PathBuf::from("/dev").join(entry.file_name()));
            }
        }
        if ports.len() == PORTS {
            let open = |path: PathBuf| {
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                opened.map_err(|source| Error::io(format!("open {}", path.display()), source))
            };
            return ports.into_iter().map(open).collect();
        }
        if begun.elapsed() > END_WITHIN {
            return Err(Error::Line(format!("{} of {PORTS} ports in {folder}", ports.len())));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Takes the ports that somebody is connected to and has sent something on.
fn take_called(idle: &mut Vec<File>) -> Result<Vec<File>, Error> {
    let mut polled: Vec<PollFd<'_>> =
        idle.iter().map(|port| PollFd::new(port, PollFlags::IN)).collect();
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
        .map_err(|errno| Error::io("poll the ports", errno))?;
    let is_called = |polled: &PollFd<'_>| {
        let events = polled.revents();
        events.contains(PollFlags::IN) && !events.contains(PollFlags::HUP)
    };
    let called: Vec<bool> = polled.iter().map(is_called).collect();
    let mut called = called.into_iter();
    let (taken, kept) = std::mem::take(idle).into_iter().partition(|_| called.next() == Some(true));
    *idle = kept;
    Ok(taken)
}

/// Runs one command, and those that follow on its heels. The port is given back when its user has
/// gone.
fn serve_one(mut port: File, give_back: &Sender<File>) {
    let Ok(answers) = port.try_clone() else { return };
    let answers = Mutex::new(answers);
    let mut next = Frame::read(&mut port).ok().flatten();
    while let Some(Frame::Run(words)) = next {
        next = match start(&words) {
            Ok(child) => run(child, &mut port, &answers),
            Err(problem) => {
                send_frame(&answers, &Frame::Ended(CommandExit::Failed(problem)));
                handle_frames(&mut port, None, None)
            }
        };
    }
    let _ = give_back.send(port);
}

fn start(words: &[String]) -> Result<Child, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("no command".to_owned());
    };
    let started = Command::new(program)
        .args(arguments)
        .env("PATH", "/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    started.map_err(|error| format!("cannot run `{program}`: {error}"))
}

/// Passes everything on until the command has ended and its user is gone. Returns what the next user
/// says, where one came too soon for the guest to see that the other had gone.
fn run(mut child: Child, port: &mut File, answers: &Mutex<File>) -> Option<Frame> {
    let stdin = child.stdin.take().expect("stdin is piped");
    let stdout = child.stdout.take().expect("stdout is piped");
    let stderr = child.stderr.take().expect("stderr is piped");
    let child = Mutex::new(child);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::scope(|scope| {
                scope.spawn(|| pass_on(stdout, answers, Frame::Output));
                scope.spawn(|| pass_on(stderr, answers, Frame::Errors));
            });
            // Both its streams are closed: it has ended, or is about to.
            let ended = wait_for_exit(&child);
            send_frame(answers, &Frame::Ended(ended));
        });
        let next = handle_frames(port, Some(stdin), Some(&child));
        stop_command(&child);
        next
    })
}

/// Does what the user of a command says, until there is none or another one wants something else.
fn handle_frames(
    port: &mut File,
    mut stdin: Option<ChildStdin>,
    child: Option<&Mutex<Child>>,
) -> Option<Frame> {
    loop {
        match Frame::read(port).ok().flatten()? {
            // A command that has ended reads nothing more.
            Frame::Input(bytes) => {
                if stdin.as_mut().is_some_and(|stdin| stdin.write_all(&bytes).is_err()) {
                    stdin = None;
                }
            }
            Frame::EndOfInput => stdin = None,
            Frame::Kill => child.into_iter().for_each(kill_command),
            other => return Some(other),
        }
    }
}

/// Gives a command that nobody listens to any more the time to end in order.
fn stop_command(child: &Mutex<Child>) {
    let begun = Instant::now();
    while begun.elapsed() < END_WITHIN {
        if !matches!(lock(child).try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
    kill_command(child);
}

fn kill_command(child: &Mutex<Child>) {
    // Fails only where it has ended already.
    let _ = lock(child).kill();
}

/// In steps, so that it can be killed meanwhile.
fn wait_for_exit(child: &Mutex<Child>) -> CommandExit {
    loop {
        match lock(child).try_wait() {
            Ok(Some(status)) => {
                return match (status.code(), status.signal()) {
                    (Some(code), _) => CommandExit::Code(code),
                    (None, signal) => CommandExit::Signal(signal.unwrap_or_default()),
                };
            }
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return CommandExit::Failed(error.to_string()),
        }
    }
}

fn pass_on(mut from: impl Read, answers: &Mutex<File>, frame: fn(Vec<u8>) -> Frame) {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(length @ 1..) => send_frame(answers, &frame(buffer[..length].to_vec())),
            _ => return,
        }
    }
}

fn send_frame(answers: &Mutex<File>, frame: &Frame) {
    let mut to = answers.lock().unwrap_or_else(PoisonError::into_inner);
    // Its user may be gone, which `handle_frames` sees.
    let _ = frame.write(&mut *to);
}

fn lock(child: &Mutex<Child>) -> std::sync::MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}
