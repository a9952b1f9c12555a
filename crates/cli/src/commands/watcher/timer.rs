//! A third watcher, which systemd starts: it acts where both others are dead.
//!
//! A transient timer (systemd-run(1)) is owned by process 1, which no kill -9 reaches. It starts a watcher a little after the
//! deadline; where the change was confirmed or put back, that one finds nothing to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use latput_protocol::folders::state_dir;
use latput_units::Nanos;

use super::Args;

/// systemd runs where this folder is (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// Folder of the units that exist until they end (systemd.unit(5)).
const TRANSIENT: &str = "/run/systemd/transient";
/// Time that the watchers have before systemd's acts.
const AFTER_THE_WATCHERS: Nanos = Nanos::from_s(2);
/// Longest wait for systemd; a change does not fail because systemd is slow.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Has systemd start a watcher with `args` after `within`, where it can. The error says why it cannot.
pub(super) fn start(args: &Args, within: Nanos) -> Result<(), String> {
    let program = find_program()?;
    let state = std::path::absolute(state_dir()).map_err(|error| error.to_string())?;
    let late = Args { is_late: true, ..args.clone() };
    let mut command = Command::new("systemd-run");
    command
        .args(["--quiet", "--collect", "--timer-property=AccuracySec=100ms"])
        // A kill -9 of this one too ends nothing.
        .args(["--property=Restart=on-abnormal", "--property=RestartSec=1s"])
        .arg(format!("--unit={}", unit_name(args.index, args.created_unix_ms)))
        .arg("--description=Put back a change of latput that was not confirmed")
        .arg(format!(
            "--on-active={}ms",
            within.saturating_add(AFTER_THE_WATCHERS).as_ns() / 1_000_000
        ))
        .arg(format!("--setenv=LATPUT_STATE_DIR={}", state.display()))
        .arg("--")
        .arg(program)
        .args(late.to_args());
    run_to_completion(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Whether systemd has a timer for the change of this interface that began then. It keeps a transient unit as a file.
pub(super) fn is_set(index: u32, created_unix_ms: u64) -> bool {
    Path::new(TRANSIENT).join(unit_name(index, created_unix_ms) + ".timer").exists()
}

fn unit_name(index: u32, created_unix_ms: u64) -> String {
    format!("latput-watcher-{index}-{created_unix_ms}")
}

/// This program's file, if process 1 is systemd and sees the files and interfaces that this process sees.
fn find_program() -> Result<PathBuf, String> {
    if !Path::new(BOOTED).is_dir() {
        return Err("systemd does not run here".to_owned());
    }
    for kind in ["mnt", "net", "pid"] {
        let of = |process: &str| {
            let path = format!("/proc/{process}/ns/{kind}");
            fs::read_link(&path).map_err(|error| format!("{path}: {error}"))
        };
        if of("1")? != of("self")? {
            return Err(format!("systemd is in another {kind} namespace"));
        }
    }
    let program = fs::read_link("/proc/self/exe").map_err(|error| error.to_string())?;
    if program.is_file() { Ok(program) } else { Err(format!("{} is gone", program.display())) }
}

fn run_to_completion(command: &mut Command) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| format!("systemd-run: {error}"))?;
    let deadline = Instant::now() + ANSWER_WITHIN;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("systemd-run: {status}")),
            None if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            None => {
                let _gone = child.kill();
                let _reaped = child.wait();
                return Err("systemd-run does not answer".to_owned());
            }
        }
    }
}
