//! What a process that has given up its rights can still do, tried in a child of its own.

#![allow(
    unsafe_code,
    reason = "rights are given up by a process with one thread, which is made by fork"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind::{NotFound, PermissionDenied};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::Command;

use latput_linux::confine;
use latput_testkit::needs_root;

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
#[test]
fn without_rights_no_file_of_the_host_is_written_and_nothing_is_run() {
    if needs_root() {
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

#[test]
fn who_keeps_files_reads_all_and_writes_beneath_its_folders_only() {
    if needs_root() {
        return;
    }
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A user's folder, which root enters by CAP_DAC_OVERRIDE.
    let users = own.path().join("users");
    fs::create_dir(&users).unwrap();
    std::os::unix::fs::chown(&users, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&users, fs::Permissions::from_mode(0o700)).unwrap();
    in_a_child(|| {
        confine::keep_files(&[&users]).map_err(|error| error.to_string())?;
        let dac_override = "0000000000000002";
        for name in ["CapPrm:", "CapEff:", "CapBnd:"] {
            if status_line(name) != dac_override {
                return Err(format!("{name} {}", status_line(name)));
            }
        }
        File::open("/etc/shadow").map_err(|error| error.to_string())?;
        let (part, whole) = (users.join("part"), users.join("whole"));
        fs::write(&part, "x").map_err(|error| error.to_string())?;
        fs::rename(&part, &whole).map_err(|error| error.to_string())?;
        if !has_landlock() {
            return Ok(());
        }
        let elsewhere = other.path().join("new").display().to_string();
        let mut create = OpenOptions::new();
        create.write(true).create_new(true).custom_flags(libc::O_CLOEXEC);
        is_denied(&elsewhere, &mut create)?;
        is_denied("/proc/sys/kernel/core_pattern", OpenOptions::new().write(true))
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

#[test]
fn who_keeps_outputs_has_no_capability_and_writes_as_their_owner_and_nowhere_else() {
    if needs_root() {
        return;
    }
    let (own, users, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::chown(users.path(), Some(1234), Some(1234)).unwrap();
    let ours = own.path().join("out");
    let theirs = users.path().join("out");
    let error = |error: std::io::Error| error.to_string();
    for (output, owner) in [(&ours, "0"), (&theirs, "1234")] {
        in_a_child(|| {
            let barriers = confine::keep_outputs(&[output]).map_err(|error| error.to_string())?;
            is_without_rights(owner)?;
            latput_linux::files::replace(output, b"x").map_err(|error| error.to_string())?;
            latput_linux::files::FileLock::take(&output.with_extension("lock"))
                .map_err(|error| error.to_string())?
                .map_err(|holder| format!("locked by {holder}"))?;
            let written = fs::metadata(output).map_err(error)?;
            if std::os::unix::fs::MetadataExt::uid(&written).to_string() != owner {
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

/// Several owners: only root's right over all files reaches both, and Landlock bounds it.
#[test]
fn who_keeps_outputs_of_two_users_keeps_one_capability() {
    if needs_root() {
        return;
    }
    let (own, users) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::chown(users.path(), Some(1234), Some(1234)).unwrap();
    let outputs = [own.path().join("a"), users.path().join("b")];
    in_a_child(|| {
        confine::keep_outputs(&[&outputs[0], &outputs[1]]).map_err(|error| error.to_string())?;
        for name in ["CapPrm:", "CapEff:"] {
            if status_line(name) != "0000000000000002" {
                return Err(format!("{name} {}", status_line(name)));
            }
        }
        for output in &outputs {
            fs::write(output, "x").map_err(|error| error.to_string())?;
        }
        is_denied("/proc/sys/kernel/core_pattern", OpenOptions::new().write(true))
            .or_else(|problem| if has_landlock() { Err(problem) } else { Ok(()) })
    });
}

/// Whether the kernel has Landlock: it then tells its version.
fn has_landlock() -> bool {
    let number = libc::SYS_landlock_create_ruleset;
    // SAFETY: with this flag the kernel reads no attributes.
    unsafe { libc::syscall(number, std::ptr::null::<u8>(), 0_usize, 1_u32) > 0 }
}
