//! Faults in the place of kills: system calls of latput and of what it has started that fail for a while.
//!
//! strace gives them the error (`--inject`), from the n-th call of a kind on, for so many calls of each process. A change is made with
//! `--confirm-within`, and nobody confirms it: when all have ended, the host is as before.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use latput_units::Rng;

use super::{Bench, Case, Count, Victim, finish, pick};

/// Kinds of system calls that a change, its watchers, a restore and a confirmation are made of.
const CALLS: &[&str] = &[
    "sendto",
    "recvfrom,recvmsg",
    "openat",
    "openat2",
    "read",
    "write",
    "fsync",
    "rename,renameat,renameat2",
    "unlink,unlinkat",
    "flock",
    "socket",
    "mkdir",
    "poll,ppoll",
    "clone,clone3,vfork",
    "pidfd_open",
    "getdents64",
    "ioctl",
    "execve",
    "statx,newfstatat",
];
const ERRORS: &[&str] = &["EIO", "ENOSPC", "ENOMEM", "EMFILE", "EROFS", "EINTR"];
/// Longest series of calls that fail.
const SERIES: &[usize] = &[1, 2, 5, 20, 100];

/// A fault of a process and those that it starts.
#[derive(Debug)]
struct Fault {
    calls: &'static str,
    /// `error=EIO`, or a stall.
    what: String,
    first: usize,
    last: usize,
}

impl Fault {
    fn draw(rng: &mut Rng) -> Self {
        let calls = *pick(rng, CALLS);
        let is_stall = rng.below(12) == 0;
        let within = if rng.below(2) == 0 { 12 } else { 150 };
        let first = 1 + rng.below(within);
        let what = if is_stall {
            "delay_enter=10s".to_owned()
        } else {
            format!("error={}", pick(rng, ERRORS))
        };
        let length = if is_stall { 1 } else { *pick(rng, SERIES) };
        Self { calls, what, first, last: first + length - 1 }
    }

    /// strace before a command.
    fn before(&self, bench: &Bench) -> Command {
        let Self { calls, what, first, last } = self;
        let mut command = bench.pair.program(0, Path::new("strace"));
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        command.args(["-e", &format!("inject={calls}:{what}:when={first}..{last}")]);
        command.arg(bench.latput());
        command
    }
}

impl Bench {
    /// Has a fault hit one party, and compares.
    pub(super) fn fault_one(&self, case: &Case, rng: &mut Rng, count: &mut Count) -> Result<()> {
        let fault = Fault::draw(rng);
        self.fault(case, &fault, before_of(self, case)?, count)
            .with_context(|| format!("{fault:?}"))
    }

    fn fault(&self, case: &Case, fault: &Fault, before: String, count: &mut Count) -> Result<()> {
        let word = match case.victim {
            Victim::SetFault => {
                let mut set = fault.before(self);
                let set = set.args(case.set(&["--confirm-within", "1s"]));
                let code = finish(set.spawn().context("cannot start strace")?)?;
                count.in_the_middle += u64::from(code != Some(0));
                self.pair.settle()?;
                ensure!(!self.pair.has_checkpoint(), "the watchers left a checkpoint");
                return self.same(&before, "without `latput restore`");
            }
            Victim::RestoreFault => "restore",
            _ => "confirm",
        };
        if !self.whole(&case.set(&["--confirm-within", "60s"]))? {
            count.refused += 1;
            return self.same(&before, "after a refusal");
        }
        let mut command = fault.before(self);
        let code = finish(command.arg(word).spawn().context("cannot start strace")?)?;
        count.in_the_middle += u64::from(code != Some(0));
        self.check(case, &before, count)
    }
}

fn before_of(bench: &Bench, case: &Case) -> Result<String> {
    bench.pair.new_pair(case.baseline)?;
    bench.pair.look()
}
