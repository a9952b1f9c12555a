//! Faults in the place of kills: system calls of latput and of what it has started that fail for a while.
//!
//! strace gives them the error (`--inject`), from the n-th call of a kind on, for so many calls of each process. A third of the
//! sets ends at once. All other changes are made with `--confirm-within`, and nobody confirms them: when all have ended, the
//! host is as before. Beside it another owner's change of another interface may wait, which stays until its own deadline.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use latput_units::SeededRng;

use super::{KillBench, KillCase, KillVictim, diff_lines, pick_random, wait_for_exit};

/// Kinds of system calls that a change, its watchers, a restore and a confirmation are made of.
const CALLS: &str = "sendto recvfrom,recvmsg openat openat2 read write fsync rename,renameat,renameat2 unlink,unlinkat flock \
    socket mkdir poll,ppoll clone,clone3,vfork pidfd_open getdents64 ioctl execve statx,newfstatat mmap,brk setns \
    bind,setsockopt fchmod,ftruncate sched_setaffinity,sched_setscheduler,setpriority";
/// Those that latput's threads make in each other network namespace. strace counts by thread: a stall of the first few would
/// come once for each namespace of the machine, and the bench has 64.
const CALLS_OF_THREADS: &[&str] =
    &["sendto", "recvfrom,recvmsg", "socket", "mmap,brk", "setns", "bind,setsockopt"];
const ERRORS: &[&str] = &["EIO", "ENOSPC", "ENOMEM", "EMFILE", "EROFS", "EINTR"];
/// Longest series of calls that fail.
const SERIES: &[usize] = &[1, 2, 5, 20, 100];
/// How long the other owner's change waits.
const NEIGHBOUR_WAITS: Duration = Duration::from_secs(15);

/// A fault of a process and those that it starts.
#[derive(Debug)]
struct SyscallFault {
    calls: &'static str,
    /// `error=EIO`, or a stall.
    what: String,
    first: usize,
    last: usize,
}

impl SyscallFault {
    fn from_rng(rng: &mut SeededRng) -> Self {
        let calls: Vec<&str> = CALLS.split(' ').collect();
        let calls = *pick_random(rng, &calls);
        let is_stall = rng.next_below(12) == 0 && !CALLS_OF_THREADS.contains(&calls);
        let within = if rng.next_below(2) == 0 { 12 } else { 150 };
        let first = 1 + rng.next_below(within);
        let what = if is_stall {
            "delay_enter=10s".to_owned()
        } else {
            format!("error={}", pick_random(rng, ERRORS))
        };
        let length = if is_stall { 1 } else { *pick_random(rng, SERIES) };
        Self { calls, what, first, last: first + length - 1 }
    }

    /// The error, or a stall.
    fn name(&self) -> &str {
        self.what.strip_prefix("error=").unwrap_or("stall of 10 s")
    }
}

impl KillBench {
    /// Has a fault hit one party, and compares; gives the fault's name.
    pub(super) fn fault_one(&mut self, case: &KillCase) -> Result<String> {
        let fault = SyscallFault::from_rng(&mut self.rng);
        let result = if case.victim == KillVictim::BesideFault {
            let victims = [
                KillVictim::SetFault,
                KillVictim::RestoreFault,
                KillVictim::ConfirmFault,
                KillVictim::UndoFault,
            ];
            let own = KillCase { victim: *pick_random(&mut self.rng, &victims), ..case.clone() };
            self.fault_beside(&own, &fault).with_context(|| format!("{:?}", own.victim))
        } else {
            self.begin_case(case).and_then(|before| self.inject_fault(case, &fault, before))
        };
        result.with_context(|| format!("{fault:?}"))?;
        Ok(fault.name().to_owned())
    }

    /// Another owner's change of another interface waits meanwhile, and goes back at its deadline.
    fn fault_beside(&mut self, case: &KillCase, fault: &SyscallFault) -> Result<()> {
        let before = self.begin_case(case)?;
        self.pair.add_neighbour()?;
        let neighbour_before = self.pair.look_at_neighbour()?;
        let began = Instant::now();
        let words = ["set", "w0", "mtu=1400", "txqueuelen=700", "gro=off", "--confirm-within"];
        let mut set = self.pair.latput_command(words);
        set.arg(format!("{}s", NEIGHBOUR_WAITS.as_secs())).env("SUDO_USER", "neighbour");
        let set = set.spawn()?;
        ensure!(wait_for_exit(set)? == Some(0), "the other owner's change failed");
        let waiting = self.pair.look_at_neighbour()?;
        ensure!(waiting != neighbour_before, "the other owner's change changed nothing");
        self.inject_fault(case, fault, before)?;
        let now = self.pair.look_at_neighbour()?;
        if began.elapsed() < NEIGHBOUR_WAITS {
            ensure!(
                now == waiting && self.pair.has_neighbour_checkpoint(),
                "the other owner's change did not stay:\n{}",
                diff_lines(&waiting, &now)
            );
            self.count.beside += 1;
        }
        self.pair.settle_all()?;
        ensure!(!self.pair.has_neighbour_checkpoint(), "the other owner's checkpoint is left");
        let after = self.pair.look_at_neighbour()?;
        ensure!(
            after == neighbour_before,
            "the other owner's change did not go back:\n{}",
            diff_lines(&neighbour_before, &after)
        );
        Ok(())
    }

    fn inject_fault(
        &mut self,
        case: &KillCase,
        fault: &SyscallFault,
        before: String,
    ) -> Result<()> {
        let word = match case.victim {
            KillVictim::SetFault if fault.first.is_multiple_of(3) => {
                let code = self.run_faulty(fault, &case.set_arguments(&[]))?;
                if code == Some(0) {
                    self.count.committed += 1;
                    return Ok(());
                }
                return self.restore_and_compare(case, &before);
            }
            KillVictim::SetFault => {
                self.run_faulty(fault, &case.set_arguments(&["--confirm-within", "1s"]))?;
                self.pair.settle()?;
                ensure!(!self.pair.has_checkpoint(), "the watchers left a checkpoint");
                return self.check_unchanged(&before, "without `latput restore`");
            }
            KillVictim::UndoFault => return self.fault_undo(case, fault, &before),
            KillVictim::RestoreFault => "restore",
            _ => "confirm",
        };
        if !self.run_latput(case.set_arguments(&["--confirm-within", "60s"]))? {
            return self.check_refusal(&before);
        }
        self.run_faulty(fault, &[word.to_owned()])?;
        self.restore_and_compare(case, &before)
    }

    /// An undo is whole or not at all; with a deadline it goes forward again.
    fn fault_undo(&mut self, case: &KillCase, fault: &SyscallFault, before: &str) -> Result<()> {
        if !self.run_latput(case.set_arguments(&[]))? {
            return self.check_refusal(before);
        }
        let made = self.pair.read_interfaces()?;
        let waits = case.setting.len().is_multiple_of(2);
        let words = ["undo", "--confirm-within", "1s"].map(str::to_owned);
        let code = self.run_faulty(fault, if waits { &words } else { &words[..1] })?;
        if !waits {
            ensure!(self.run_latput(["restore"])?, "restore");
        }
        self.pair.settle()?;
        ensure!(!self.pair.has_checkpoint(), "a checkpoint of the undo is left");
        let after = self.pair.read_interfaces()?;
        if after == made && (waits || code != Some(0) || made == before) {
            return Ok(());
        }
        ensure!(!waits, "the undo did not go forward again:\n{}", diff_lines(&made, &after));
        self.count.committed += 1;
        self.check_unchanged(before, "by an undo")
    }

    /// Runs latput with the fault to its end; its exit code.
    fn run_faulty(&mut self, fault: &SyscallFault, words: &[String]) -> Result<Option<i32>> {
        let SyscallFault { calls, what, first, last } = fault;
        let code = self.run_in_strace(calls, &format!("{what}:when={first}..{last}"), words)?;
        self.count.in_the_middle += u64::from(code != Some(0));
        Ok(code)
    }
}
