//! Namespaces of a bench, and the processes in them.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A network and a mount namespace; they end with this.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes one; `mounts` is a shell script of what it mounts.
    pub fn new(mounts: &str) -> Result<Self> {
        let script = format!("{mounts} && echo ready && exec cat");
        let mut holder = Command::new("unshare");
        holder.args(["-n", "-m", "sh", "-c", &script]).stdin(Stdio::piped());
        let holder = holder.stdout(Stdio::piped()).spawn().context("cannot start unshare")?;
        let mut made = Self { holder };
        let mut line = String::new();
        let out = made.holder.stdout.take().context("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        ensure!(line == "ready\n", "no namespace can be made: run as root");
        Ok(made)
    }

    /// The process that holds it.
    pub fn id(&self) -> u32 {
        self.holder.id()
    }

    /// The words before a command that runs in it.
    pub fn enter_words(&self) -> [String; 5] {
        ["nsenter", "-t", &self.id().to_string(), "-n", "-m"].map(str::to_owned)
    }

    /// A program in it, without input.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [nsenter, words @ ..] = self.enter_words();
        let mut command = Command::new(nsenter);
        command.args(words).arg(program).stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _it_ended = self.holder.kill();
        let _it_ended = self.holder.wait();
    }
}

/// The command of a process; empty once it has ended.
pub fn words_of(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The processes with this state folder of latput, or one in it, in their environment.
pub fn processes_of(state: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_state(*pid, state)).collect()
}

/// Whether a process has this state folder, or one in it, in its environment; one that has ended has none.
pub fn has_state(pid: u32, state: &Path) -> bool {
    let is_meant = |word: &[u8]| {
        let folder = word.strip_prefix(b"LATPUT_STATE_DIR=");
        folder.is_some_and(|folder| Path::new(OsStr::from_bytes(folder)).starts_with(state))
    };
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(is_meant)
}

/// `kill -9`.
pub fn kill_process(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _it_ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
