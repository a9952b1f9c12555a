//! Runs latput on a host that may have none of this version, and takes itself along where it has none.
//!
//! `there.sh` runs at the far end. What is brought lies in a private folder only until it runs: its first act
//! is to remove the file and the folder (`crates/agent/src/brought.rs`), so that nothing is left however it ends. Until then the
//! script removes them, at its end and when the line is cut.

mod binary;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use latput_linux::{ChildSignal, confine};
use latput_protocol::text::{format_error_chain, replace_control_chars};
use latput_units::text::quote_word;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use sha2::{Digest, Sha256};

use self::binary::ProgramCandidates;
use crate::error::Error;
use crate::target::{ReachMethod, Target};

/// Runs at the far end; ends with the definition of `main`.
const SCRIPT: &str = include_str!("bring/there.sh");
/// Begins each line of the script.
const MARK: &str = "latput-there ";
/// Most bytes that login scripts may print before ours begins.
const NOISE_BYTES_MOST: u64 = 64 << 10;
/// How much of the far end's stderr is looked at to say what is wrong.
const ERRORS_BYTES_MOST: usize = 8 << 10;
/// How often to look whether the controller is still there.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Streams of the latput at the far end.
#[derive(Debug)]
pub struct RemoteStreams {
    /// Its stdin.
    pub input: File,
    /// Its stdout.
    pub output: File,
    /// Its stderr, and that of the way there.
    pub errors: File,
}

/// Runs latput with `args` on `target`, and brings it where it is missing: `file`, or this program. Gives the exit
/// code. An agent whose controller goes meanwhile is not started. This process gives up its rights for good before it
/// reads what the far end says; it must have one thread.
pub fn run(
    target: &Target,
    file: Option<&Path>,
    args: &[String],
    ends: RemoteStreams,
) -> Result<u8, Error> {
    let failed = |problem| Error::Agent { host: target.to_string(), problem, permission: false };
    let words = target
        .remote_command(&["sh".to_owned()])
        .expect("a host elsewhere is reached by a command");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let programs = ProgramCandidates::open(file);
    let mut child =
        command.spawn().map_err(|error| failed(format_start_error(target, &words[0], &error)))?;
    let end = give_up_rights(&child).map_err(|error| failed(format_error_chain(&error)))?;
    let errors =
        StderrForwarder::pass_on(child.stderr.take().expect("stderr is piped"), ends.errors);
    let mut line = ScriptLine {
        to: child.stdin.take().expect("stdin is piped"),
        from: BufReader::new(child.stdout.take().expect("stdout is piped")),
    };
    let is_agreed = Arc::new(AtomicBool::new(false));
    if args.first().is_some_and(|arg| arg == "agent") {
        let input = ends.input.try_clone().map_err(|error| failed(error.to_string()))?;
        end_without_controller(end, input, Arc::clone(&is_agreed));
    }
    let agreed = line.negotiate_program(programs, args);
    is_agreed.store(true, Ordering::Relaxed);
    match agreed {
        Ok(()) => {}
        Err(NotThere::Known(problem)) => {
            drop(line); // the script ends, and removes what it has
            let _ended = child.wait();
            return Err(failed(problem));
        }
        Err(NotThere::Ended) => {
            drop(line);
            let status = child.wait().map_err(|error| failed(error.to_string()))?;
            return Err(failed(why_it_ended(target, status, &errors.collect_text())));
        }
    }
    line.pass_on(ends.input, ends.output);
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    Ok(exit_code(status))
}

/// Why no latput runs there.
enum NotThere {
    /// In words.
    Known(String),
    /// The way there has ended.
    Ended,
}

/// The two ends of the way.
struct ScriptLine {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl ScriptLine {
    /// Speaks with the script until latput runs there.
    fn negotiate_program(
        &mut self,
        programs: ProgramCandidates,
        args: &[String],
    ) -> Result<(), NotThere> {
        let args: Vec<String> = args.iter().map(|arg| quote_word(arg)).collect();
        self.write_bytes(format!("{SCRIPT}\nmain {}\n", args.join(" ")).as_bytes())?;
        let host = self.read_reply(&["host"])?.1;
        let mut words = host.split_whitespace();
        let (system, machine) =
            (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if system != "Linux" {
            return Err(NotThere::Known(format!("it runs {system}, and latput needs Linux")));
        }
        if words.collect::<Vec<_>>() == ["latput", env!("CARGO_PKG_VERSION")] {
            return self.write_bytes(b"use 0\n");
        }
        let program = programs.for_machine(machine).map_err(NotThere::Known)?;
        self.write_bytes(format!("bring {}\n", program.len()).as_bytes())?;
        let (word, rest) = self.read_reply(&["ready", "nowhere"])?;
        if word == "nowhere" {
            return Err(NotThere::Known(format!(
                "latput cannot be copied to any folder there:{rest} make room in one of them, or install \
                 latput {} there",
                env!("CARGO_PKG_VERSION")
            )));
        }
        self.write_bytes(&program)?;
        let there = self.read_reply(&["sum"])?.1;
        let there = there.split(' ').next().unwrap_or_default();
        let hash = Sha256::digest(&program);
        let here = hash.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
        if there.is_empty() {
            return Err(NotThere::Known(
                "the copy cannot be checked: there is no sha256sum, openssl or shasum there; install one, or \
                 latput itself"
                    .to_owned(),
            ));
        }
        if there != here {
            return Err(NotThere::Known(format!(
                "the copy is damaged (SHA-256 {there}, not {here}) and was removed: try again"
            )));
        }
        self.write_bytes(b"start\n")
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), NotThere> {
        self.to.write_all(bytes).and_then(|()| self.to.flush()).map_err(|_| NotThere::Ended)
    }

    /// The next line of the script, which must begin with one of `words`. What else is said before is not ours.
    fn read_reply(&mut self, words: &[&str]) -> Result<(String, String), NotThere> {
        let mut from = (&mut self.from).take(NOISE_BYTES_MOST);
        loop {
            let mut line = Vec::new();
            let length = from.read_until(b'\n', &mut line).map_err(|_| NotThere::Ended)?;
            if length == 0 || !line.ends_with(b"\n") {
                return Err(NotThere::Ended);
            }
            let line = replace_control_chars(String::from_utf8_lossy(&line).trim_end());
            let Some(said) = line.strip_prefix(MARK) else { continue };
            let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
            if words.contains(&word) {
                return Ok((word.to_owned(), rest.to_owned()));
            }
            return Err(NotThere::Known(format!(
                "it answered `{said}`, where {words:?} was expected"
            )));
        }
    }

    /// Passes on what each end says until the far one has ended.
    fn pass_on(self, mut input: File, mut output: File) {
        let Self { mut to, mut from } = self;
        thread::spawn(move || io::copy(&mut input, &mut to)); // then `to` is closed
        let _gone = io::copy(&mut from, &mut output);
    }
}

/// Gives up all rights, before the first byte of the far end is read. Gives what then can still end the way there.
fn give_up_rights(way: &Child) -> Result<ChildSignal, latput_linux::Error> {
    let end = ChildSignal::arm(way, Signal::TERM)?;
    confine::give_up_all_but_open_files()?;
    Ok(end)
}

/// Ends the way there when the controller goes before an agent runs: nobody would speak to it.
fn end_without_controller(end: ChildSignal, input: File, is_agreed: Arc<AtomicBool>) {
    thread::spawn(move || {
        while !is_agreed.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(&input, PollFlags::empty())];
            let is_gone = poll(&mut fds, Some(&LOOK_EVERY)).is_ok_and(|count| count > 0);
            if is_gone && !is_agreed.load(Ordering::Relaxed) {
                end.trigger();
                break;
            }
        }
    });
}

/// The stderr of the far end and of the way to it: passed on, and its beginning kept.
struct StderrForwarder {
    kept: Arc<Mutex<Vec<u8>>>,
    thread: thread::JoinHandle<()>,
}

impl StderrForwarder {
    fn pass_on(mut from: impl Read + Send + 'static, mut to: File) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                let _gone = to.write_all(&buffer[..length]);
                if let Ok(mut kept) = keep.lock() {
                    let room = ERRORS_BYTES_MOST - kept.len();
                    kept.extend_from_slice(&buffer[..length.min(room)]);
                }
            }
        });
        Self { kept, thread }
    }

    /// All of it, once the far end has closed it; within a second.
    fn collect_text(self) -> String {
        for _ in 0..100 {
            if self.thread.is_finished() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.kept.lock().map(|kept| String::from_utf8_lossy(&kept).into_owned()).unwrap_or_default()
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn format_start_error(target: &Target, program: &str, error: &io::Error) -> String {
    let mend = match (&target.reach, error.kind()) {
        (ReachMethod::Ssh { .. }, io::ErrorKind::NotFound) => {
            ": install OpenSSH's client here (`openssh-client`)"
        }
        (_, io::ErrorKind::NotFound) => ": it is not installed here",
        _ => "",
    };
    format!("cannot start `{program}`: {error}{mend}")
}

/// Why the way there ended before latput ran, with the remedy where it is known.
fn why_it_ended(target: &Target, status: ExitStatus, said: &str) -> String {
    let name = target.name();
    let ReachMethod::Ssh { destination, port } = &target.reach else {
        let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last = last
            .map_or_else(String::new, |line| format!("; it said: {}", replace_control_chars(line)));
        return format!(
            "`{name}` ended ({status}) before `sh` ran there: it must give the stdin and stdout of a command{last}"
        );
    };
    let login = port.map_or(String::new(), |port| format!("-p {port} ")) + destination;
    let remedies = [
        (
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            format!(
                "the ssh host key has changed. Find out why, then remove the old one: `ssh-keygen -R {name}`"
            ),
        ),
        (
            "Host key verification failed",
            format!(
                "its host key is not known here: run `ssh {login}` once and compare the fingerprint"
            ),
        ),
        (
            "Permission denied",
            format!(
                "ssh needs a password, and latput cannot give one. Install a key (`ssh-copy-id {login}`) or \
                 start an ssh-agent. Test: `ssh -o BatchMode=yes {login} true`"
            ),
        ),
        (
            "Could not resolve hostname",
            "the name does not resolve: check its spelling and `~/.ssh/config`".to_owned(),
        ),
        (
            "Connection refused",
            "no sshd answers there: start it, or name its port (ssh://HOST:PORT)".to_owned(),
        ),
        (
            "timed out",
            "it did not answer within 10 s: check that it is up, and the firewall".to_owned(),
        ),
        (
            "No route to host",
            "there is no route to it: check that it is up, and the routes".to_owned(),
        ),
        ("unreachable", "there is no route to it: check the routes of this host".to_owned()),
    ];
    let known = remedies.into_iter().find(|(sign, _)| said.contains(sign));
    known.map_or_else(
        || format!("ssh ended ({status}) before `sh` ran there: try `ssh {login} sh`"),
        |(_, remedy)| remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_answered_with_the_remedy() {
        let ended = ExitStatus::from_raw(255 << 8);
        for (said, remedy) in [
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                "ssh-keygen -R server",
            ),
            ("Host key verification failed.\r\n", "compare the fingerprint"),
            (
                "root@server: Permission denied (publickey,password).",
                "ssh-copy-id -p 2222 root@server",
            ),
            ("ssh: Could not resolve hostname server: Name or service not known", "spelling"),
            ("ssh: connect to host server port 2222: Connection refused", "ssh://HOST:PORT"),
            ("ssh: connect to host server port 2222: Connection timed out", "10 s"),
            ("something else", "ssh -p 2222 root@server sh"),
        ] {
            let target = Target::parse("ssh://root@server:2222").unwrap();
            let why = why_it_ended(&target, ended, said);
            assert!(why.contains(remedy), "{said}: {why}");
        }
        let sudo = Target::parse("exec:ssh ops@server sudo -n").unwrap();
        let why = why_it_ended(&sudo, ended, "banner\nsudo: a password is required\r\n\n");
        assert!(why.ends_with("; it said: sudo: a password is required"), "{why}");
    }

    #[test]
    fn quoted_word_is_one_shell_word() {
        let word = "it's; $(x) \"y\" \\";
        let out = Command::new("sh")
            .args(["-c", &format!("printf %s {}", quote_word(word))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
    }
}
