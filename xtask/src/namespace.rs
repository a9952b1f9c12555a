//! Namespaces of a bench.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
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
