//! Black-box tests: the real binary, as its user runs it.
//!
//! Arms whose module starts with `root_` need root (namespaces), and those with `vm_` need QEMU, a kernel
//! and a static latput (`cargo xtask vm`); they say so when they are skipped.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod bad_results;
mod check;
mod command_line;
mod diagnose;
mod disk;
mod exit_codes;
mod export_settings;
mod first_answer;
mod fleet;
mod guest_cards;
mod hostile_files;
mod hostile_names;
mod json;
mod json_errors;
mod keep;
mod keep_beside;
mod keep_forms;
mod keep_irqbalance;
mod keep_outranked;
mod live_traffic;
mod loopback;
mod metrics;
mod model;
mod peers;
mod power_cut;
mod programs;
mod published;
mod quiet;
mod recomputed;
mod reproduce;
mod root_apply;
mod root_bad_luck;
mod root_beside;
mod root_broker;
mod root_check;
mod root_commands;
mod root_confirm;
mod root_diagnose;
mod root_effect;
mod root_fleet;
mod root_fleet_confirm;
mod root_foretold;
mod root_full_disk;
mod root_hosts;
mod root_hung;
mod root_identity;
mod root_keep;
mod root_live;
mod root_live_short;
mod root_live_ssh;
mod root_moderate;
mod root_others;
mod root_published;
mod root_rights;
mod root_runs;
mod root_screen;
mod root_service;
mod root_settings;
mod root_ssh_faults;
mod root_sysfs;
mod root_today;
mod root_tracing;
mod root_tuned;
mod root_two_hosts;
mod root_undo;
mod root_undo_hindered;
mod root_unprivileged;
mod root_uppers;
mod root_watchers;
mod root_whole;
mod screen;
mod search;
mod shards;
mod shared_report;
mod simulated;
mod two_hosts;
mod vm_effects;
mod vm_knobs;
mod vm_moderate;
mod vm_runs;
mod watch;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use latput_testkit::needs_program;

/// The binary that is tested: cargo's, or the one that `LATPUT_TESTED` names, as in CI, whose optimised one costs less time.
pub(crate) fn latput_path() -> &'static str {
    static BINARY: LazyLock<String> = LazyLock::new(|| {
        std::env::var("LATPUT_TESTED").unwrap_or_else(|_| env!("CARGO_BIN_EXE_latput").to_owned())
    });
    &BINARY
}

/// A folder of its own with a state folder of its own, so that tests do not meet.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// Output and exit code of a command that has ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// The binary with arguments, to be started here.
    pub(crate) fn latput_command(&self, args: &[&str]) -> Command {
        self.wrapped_command(&[], args)
    }

    /// The same behind another program, such as `strace`.
    pub(crate) fn wrapped_command(&self, before: &[&str], args: &[&str]) -> Command {
        let mut words = before.to_vec();
        words.push(latput_path());
        words.extend(args);
        // Tests run beside each other: hosts are never quiet, and a trial that other tests disturb would not count.
        let asks = ["tune", "run", "search", "measure"];
        let says = |word: &&str| {
            ["--quiet-within", "--as-it-is", "--beside"].contains(word) || word.starts_with("sim:")
        };
        if let Some(place) = words.iter().position(|word| asks.contains(word))
            && args.iter().find(|word| !word.starts_with('-')) == Some(&words[place])
            && !words.iter().any(says)
        {
            words.insert(place + 1, "--beside");
        }
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(self.folder.path())
            .env("LATPUT_STATE_DIR", self.path("state"))
            .env("COLUMNS", "160")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.latput_command(args).output().unwrap())
    }

    /// The same with a variable of the environment.
    pub(crate) fn run_with(&self, (name, value): (&str, &str), args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.latput_command(args).env(name, value).output().unwrap())
    }

    /// Runs as nobody where the test itself is root.
    pub(crate) fn run_without_root(&self, args: &[&str]) -> CommandOutput {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(self.path(""), mode).unwrap();
        let is_root = self.path("").metadata().unwrap().uid() == 0;
        let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all"];
        let before = if is_root { nobody.as_slice() } else { &[] };
        CommandOutput::from(self.wrapped_command(before, args).output().unwrap())
    }

    /// Starts the binary with its output kept in files.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let to = |name: &str| std::fs::File::create(self.path(name)).unwrap();
        self.latput_command(args).stdout(to("stdout")).stderr(to("stderr")).spawn().unwrap()
    }

    /// The document of a results file.
    pub(crate) fn report_json(&self, file: &str) -> serde_json::Value {
        serde_json::from_str(&self.run(&["report", file, "--json"]).expect(0, &[]).out).unwrap()
    }

    /// Trials that a results file holds; none while there is no readable file.
    pub(crate) fn count_trials(&self, file: &str) -> i64 {
        rusqlite::Connection::open_with_flags(
            self.path(file),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE,
        )
        .and_then(|db| db.query_row("SELECT count(*) FROM trial", [], |row| row.get(0)))
        .unwrap_or(0)
    }
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl CommandOutput {
    /// The command ended with `code`, and what it said holds every one of `words`.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for word in words {
            let said = self.out.contains(word) || self.err.contains(word);
            assert!(said, "`{word}` is missing in {self:#?}");
        }
        self
    }
}

/// Runs a program, which must succeed.
pub(crate) fn run_program(words: &[&str]) {
    let ran = Command::new(words[0]).args(&words[1..]).output().unwrap();
    CommandOutput::from(ran).expect(0, &[]);
}

/// Prints a measured figure, which is worth reading also where the test passes.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One guest at a time, since each takes as many CPUs as it gets. `None` when the calling test must
/// end because something that guests are made of is missing; says so past the harness.
pub(crate) fn guest_turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if let Err(missing) = latput_vm::Guest::check_host() {
        let _ = writeln!(std::io::stderr(), "skipped: needs a guest: {missing}");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until `is_so`; fails the test after three minutes: beside other work a guest alone needs one to boot.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited three minutes for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a process at once, as a crash would.
pub(crate) fn kill_pid(pid: u32) {
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}

/// Asks a process to end, as Ctrl-C does.
pub(crate) fn interrupt_pid(pid: u32) {
    Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
}

/// The broker of a latput that was started with rights.
pub(crate) fn broker_of(pid: u32) -> Option<u32> {
    children_of(pid).into_iter().find(|&child| words_of(child).contains("broker --line"))
}

/// The agents that a latput has started, itself or by its broker, by process id.
pub(crate) fn agents_of(pid: u32) -> Vec<u32> {
    let mut children = children_of(pid);
    children.extend(broker_of(pid).into_iter().flat_map(children_of));
    children.retain(|&child| words_of(child).contains("agent"));
    children
}

/// The command line of a process; empty when there is none such.
pub(crate) fn words_of(pid: u32) -> String {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.replace('\0', " ")
}

/// The processes that a process has started.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse().unwrap()).collect()
}

/// The processes that a process has started, and what those have started.
pub(crate) fn descendants_of(pid: u32) -> Vec<u32> {
    let mut found = children_of(pid);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children_of(pid));
        next += 1;
    }
    found
}

/// Whether there is no such process, or only what its parent has not asked for yet.
pub(crate) fn is_gone(pid: u32) -> bool {
    matches!(&*status_of(pid, "State:"), "" | "Z (zombie)")
}

/// Value behind a name in `/proc/PID/status`, such as `Uid:`; empty when there is no such process.
pub(crate) fn status_of(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Fails the test if a process has a capability, or could get one by running a program.
#[track_caller]
pub(crate) fn assert_no_capability(pid: u32) {
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(status_of(pid, set), "0000000000000000", "{set} of {pid}");
    }
    assert_eq!(status_of(pid, "NoNewPrivs:"), "1");
}

/// Whether latput said that the agent of a host was killed. The two processes of an agent tell of each other's end;
/// which line comes first is open.
pub(crate) fn is_told_of_a_killed_agent(said: &str, host: &str) -> bool {
    ["its agent ended (signal: 9", "its keeper, the process that sets knobs, is lost"]
        .iter()
        .any(|ending| said.contains(&format!("host `{host}`: {ending}")))
}

/// Memory that a process has now, in kB; 0 when there is none such.
pub(crate) fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Network namespaces that a process of this machine is in.
pub(crate) fn namespaces_in_use() -> std::collections::BTreeSet<PathBuf> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("ns/net")).ok())
        .collect()
}
