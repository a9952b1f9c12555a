//! A run of latput on the lab, also on a machine that is busy with something else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Name of the lab's NAPI threads.
const NAPI_THREAD: &str = "napi/lat0";
/// Their priority and that of the traffic under `SCHED_FIFO`.
const PRIORITY: &str = "10";

/// Runs latput with `args` in a folder. `is_realtime`: the lab's processes and NAPI threads go before all other work.
pub fn run_latput(latput: &Path, folder: &Path, args: &[&str], is_realtime: bool) -> Result<()> {
    if !is_realtime {
        return run_checked(
            Command::new(latput).args(args).current_dir(folder).stdout(Stdio::null()),
        );
    }
    let done = AtomicBool::new(false);
    let of_others: BTreeSet<OsString> = napi_threads().collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                napi_threads()
                    .filter(|thread| !of_others.contains(thread))
                    .for_each(raise_priority);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut command = Command::new("chrt");
        command.args(["-f", PRIORITY]).arg(latput).args(args);
        let measured = run_checked(command.current_dir(folder).stdout(Stdio::null()));
        done.store(true, Ordering::Relaxed);
        measured
    })
}

/// The process ids of NAPI threads of labs.
fn napi_threads() -> impl Iterator<Item = OsString> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        name.starts_with(NAPI_THREAD).then(|| process.file_name())
    })
}

/// The kernel starts a NAPI thread without the priority of who asked for it.
fn raise_priority(thread: OsString) {
    let mut command = Command::new("chrt");
    command.args(["-f", "-p", PRIORITY]).arg(thread);
    let _gone_meanwhile = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Runs a command, which must succeed.
pub fn run_checked(command: &mut Command) -> Result<()> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    ensure!(status.success(), "{shown} ended with {status}");
    Ok(())
}
