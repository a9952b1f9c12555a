//! Operations that a process which has given up its rights can still do, tried in a child of its own.

#![allow(
    unsafe_code,
    reason = "rights are given up by a process with one thread, which is made by fork"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use latput_linux::confine::{self, UsedFiles};
use latput_testkit::needs;
use tempfile::TempDir;

/// Runs `work` in a forked child; the test fails if that panics or returns what is wrong.
fn in_a_child(work: impl FnOnce() -> Result<(), String>) {
    // SAFETY: the child runs `work`, which takes no lock that another thread may hold, and ends without returning.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let problem = match done {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some("it panicked".to_owned()),
        };
        if let Some(problem) = &problem {
            let _ = writeln!(std::io::stderr(), "in the child: {problem}");
        }
        // SAFETY: ends this process only.
        unsafe { libc::_exit(i32::from(problem.is_some())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child says why");
}

/// Runs the calling test in a process with no other test, unless it is in one: a child that is forked beside other
/// threads may wait for ever for a lock that one of them held. `true`: it ran there, and passed.
fn has_run_apart() -> bool {
    const APART: &str = "LATPUT_TEST_APART";
    if std::env::var_os(APART).is_some() {
        return false;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let mut again = Command::new(std::env::current_exe().unwrap());
    let ran = again
        .args(["--exact", &name, "--include-ignored", "--nocapture"])
        .env(APART, "1")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    true
}

/// A file that this kernel does not have tells nothing.
fn is_denied(path: &str, options: &mut OpenOptions) -> Result<(), String> {
    match options.open(path) {
        Err(error) if matches!(error.kind(), PermissionDenied | NotFound) => Ok(()),
        other => Err(format!("{path}: {other:?}")),
    }
}

fn status_line(name: &str) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().to_owned()
}

/// The files are user 0's: what is tried is written by root without any capability.
#[needs("root")]
#[test]
fn unprivileged_process_writes_and_runs_nothing() {
    if has_run_apart() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let open_to_all = folder.path().join("open");
    fs::write(&open_to_all, "").unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o666)).unwrap();
    let open_to_all = open_to_all.display().to_string();
    let new = folder.path().join("new").display().to_string();
    in_a_child(|| {
        let barriers = confine::give_up_all().map_err(|error| error.to_string())?;
        if !barriers.is_other_user {
            return Err(format!("{barriers:?}"));
        }
        for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            if status_line(name) != "0000000000000000" {
                return Err(format!("{name} {}", status_line(name)));
            }
        }
        if status_line("NoNewPrivs:") != "1" || !status_line("Groups:").is_empty() {
            return Err("new privileges or groups".to_owned());
        }
        let mut write = OpenOptions::new();
        write.write(true);
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/net/ipv4/tcp_rmem",
            "/sys/kernel/uevent_helper",
            "/sys/power/state",
            "/sys/kernel/profiling",
            "/etc/passwd",
        ] {
            is_denied(path, &mut write)?;
        }
        is_denied("/etc/shadow", OpenOptions::new().read(true))?;
        if barriers.has_landlock {
            is_denied(&open_to_all, &mut write)?;
            is_denied(&new, OpenOptions::new().write(true).create_new(true))?;
            is_denied("/etc/passwd", OpenOptions::new().read(true))?;
        }
        match (barriers.has_landlock, Command::new("/bin/true").status()) {
            (true, Ok(status)) => Err(format!("a program ran: {status}")),
            _ => Ok(()),
        }
    });
}

/// No set of capabilities, another user than 0 but for files, and no way back.
fn is_without_rights(owner: &str) -> Result<(), String> {
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        if status_line(name) != "0000000000000000" {
            return Err(format!("{name} {}", status_line(name)));
        }
    }
    let users: Vec<String> = status_line("Uid:").split_whitespace().map(str::to_owned).collect();
    if users[..3].contains(&"0".to_owned()) || users[3] != owner {
        return Err(format!("users {users:?}"));
    }
    // SAFETY: the call takes a number.
    let to_root = unsafe { libc::setuid(0) };
    // SAFETY: the call takes numbers; signal 0 only asks whether one may be sent.
    let to_init = unsafe { libc::kill(1, 0) };
    if to_root == 0 || to_init == 0 {
        return Err("it becomes root, or may signal its processes".to_owned());
    }
    Ok(())
}

/// A folder of this user, who is not root.
fn folder_of(user: u32, mode: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(user), Some(user)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    folder
}

/// A file of this user, who is not root.
fn file_of(user: u32, mode: u32, path: &Path) -> PathBuf {
    fs::write(path, "read me").unwrap();
    chown(path, Some(user), Some(user)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_owned()
}

#[needs("root")]
#[test]
fn file_user_writes_as_owner_only() {
    if has_run_apart() {
        return;
    }
    let (own, users) = (tempfile::tempdir().unwrap(), folder_of(1234, 0o700));
    let other = tempfile::tempdir().unwrap();
    let ours = own.path().join("out");
    let theirs = users.path().join("out");
    let error = |error: std::io::Error| error.to_string();
    for (output, owner) in [(&ours, "0"), (&theirs, "1234")] {
        in_a_child(|| {
            let files = UsedFiles::new([], [output.as_path()]);
            let barriers = confine::keep_files(&files).map_err(|error| error.to_string())?;
            is_without_rights(owner)?;
            latput_linux::files::replace(output, b"x").map_err(|error| error.to_string())?;
            latput_linux::files::FileLock::take(&output.with_extension("lock"))
                .map_err(|error| error.to_string())?
                .map_err(|holder| format!("locked by {holder}"))?;
            let written = fs::metadata(output).map_err(error)?;
            if written.uid().to_string() != owner {
                return Err("the output has another owner".to_owned());
            }
            if !barriers.has_landlock {
                return Ok(());
            }
            let mut write = OpenOptions::new();
            write.write(true);
            for path in ["/proc/sys/kernel/core_pattern", "/sys/power/state", "/etc/passwd"] {
                is_denied(path, &mut write)?;
            }
            let elsewhere = other.path().join("new").display().to_string();
            is_denied(&elsewhere, OpenOptions::new().write(true).create_new(true))?;
            match Command::new("/bin/true").status() {
                Ok(status) => Err(format!("a program ran: {status}")),
                Err(_) => Ok(()),
            }
        });
    }
}

/// The user of a command on files is whoever may use all of them; user 0 may not enter another's folder without a
/// capability.
#[needs("root")]
#[test]
fn file_user_may_use_all_files() {
    if has_run_apart() {
        return;
    }
    let (roots, users) = (tempfile::tempdir().unwrap(), folder_of(1234, 0o700));
    let open = folder_of(1234, 0o755);
    let private = file_of(1234, 0o600, &users.path().join("private"));
    let public = file_of(1234, 0o644, &open.path().join("public"));
    let of_root_in_theirs = file_of(0, 0o644, &users.path().join("of-root"));
    let output = roots.path().join("out");
    let missing = users.path().join("none");
    for (reads, outputs, owner) in [
        (vec![&private], vec![], "1234"),
        (vec![&of_root_in_theirs], vec![], "1234"),
        (vec![&public], vec![&output], "0"),
        (vec![&public, &private], vec![&private], "1234"),
        (vec![&missing], vec![], "1234"),
        (vec![], vec![], "0"),
    ] {
        in_a_child(|| {
            let files = UsedFiles::new(
                reads.iter().map(|path| path.as_path()),
                outputs.iter().map(|path| path.as_path()),
            );
            confine::keep_files(&files).map_err(|error| error.to_string())?;
            is_without_rights(owner)?;
            for path in reads.iter().filter(|path| path.exists()) {
                fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Ok(())
        });
    }
}

#[needs("root")]
#[test]
fn files_without_common_user_are_refused() {
    if has_run_apart() {
        return;
    }
    let (roots, users) = (tempfile::tempdir().unwrap(), folder_of(1234, 0o700));
    let private = file_of(1234, 0o600, &users.path().join("private"));
    let output = roots.path().join("out");
    in_a_child(|| {
        let files = UsedFiles::new([private.as_path()], [output.as_path()]);
        let error = confine::keep_files(&files).err().ok_or("it is not refused")?.to_string();
        let by_root = format!("user 0 may not use {}", private.display());
        let by_user = format!("user 1234 may not use {}", roots.path().display());
        if !error.contains(&by_root) || !error.contains(&by_user) || !error.contains("Copy") {
            return Err(error);
        }
        fs::read(&private).map_err(|error| format!("root's own rights are lost: {error}"))?;
        Ok(())
    });
}
