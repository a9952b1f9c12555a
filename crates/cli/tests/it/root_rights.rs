//! Rights of root's commands once they have read a file that others may have written, and that the list of them is
//! whole.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;

use latput_testkit::{isolate, needs};
use rustix::io::ioctl_fionbio;

use crate::{Place, children_of, is_gone, kill_pid, status_of, wait_until};

const LIST: &str = include_str!("../../../../docs/design/rights.md");
const NONE: &str = "0000000000000000";

/// Starts a command whose stdout and stderr take nothing, so that it waits where it has something to say, and gives what
/// it then holds: its permitted capabilities, and the user that it is.
#[track_caller]
fn read_rights(place: &Place, args: &[&str]) -> (String, String) {
    let (from, mut to) = std::io::pipe().unwrap();
    ioctl_fionbio(&to, true).unwrap();
    while to.write(&[b'x'; 4096]).is_ok() {}
    while to.write(b"x").is_ok() {}
    ioctl_fionbio(&to, false).unwrap();
    let errors = to.try_clone().unwrap();
    let mut child = place.latput_command(args).stdout(to).stderr(errors).spawn().unwrap();
    let pid = child.id();
    let waits = || status_of(pid, "State:").starts_with('S') && is_in_pipe_write(pid);
    wait_until(&format!("{args:?} to have something to say"), waits);
    let held = status_of(pid, "CapPrm:");
    assert_eq!(status_of(pid, "CapEff:"), held);
    let users = status_of(pid, "Uid:");
    let user = users.split_whitespace().next().unwrap().to_owned();
    assert_eq!(status_of(pid, "CapInh:"), NONE);
    let others = children_of(pid);
    kill_pid(pid);
    child.wait().unwrap();
    drop(from);
    wait_until("its broker to end", || others.iter().all(|pid| is_gone(*pid)));
    (held, user)
}

/// Nothing is held, by a user who is not root.
#[track_caller]
fn holds_nothing(place: &Place, args: &[&str]) {
    let (held, user) = read_rights(place, args);
    assert_eq!(held, NONE, "{args:?}");
    assert_ne!(user, "0", "{args:?}");
}

#[needs("root")]
#[test]
fn keep_reads_results_in_another_process() {
    isolate();
    let place = Place::new();
    place.write("plan.toml", crate::fleet::PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"]).expect(0, &[]);
    // The reader waits for nobody: it is held where it says something, as the others are.
    holds_nothing(&place, &["read-setting", "a.db", "--interface", "lo"]);
    let traced = place.path("trace");
    let trace = ["strace", "-f", "-e", "trace=openat,capset,execve", "-o"];
    let latput = place.latput_command(&[]).get_program().to_owned();
    let mut command = Command::new(trace[0]);
    command.args(&trace[1..]).arg(&traced).arg(latput).current_dir(place.path("."));
    command.args(["keep", "a.db", "--interface", "lo", "--root", ".", "--dry-run"]);
    let ran = crate::CommandOutput::from(command.output().unwrap());
    ran.expect(0, &["setting `"]);
    let trace = std::fs::read_to_string(traced).unwrap();
    let first = trace.split_whitespace().next().unwrap();
    let opens: Vec<&str> = trace.lines().filter(|line| line.contains("a.db\"")).collect();
    assert!(opens.iter().any(|line| line.contains("openat")), "{trace}");
    for line in opens.iter().filter(|line| line.contains("openat")) {
        assert!(!line.starts_with(first), "the process with rights opens it: {line}");
    }
}

/// Whether a process is in a call of write(2) to its stdout or stderr.
fn is_in_pipe_write(pid: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let mut words = call.split(' ');
    let number = if cfg!(target_arch = "x86_64") { "1" } else { "64" };
    words.next() == Some(number) && matches!(words.next(), Some("0x1" | "0x2"))
}

#[needs("root")]
#[test]
fn reader_of_foreign_file_holds_nothing() {
    isolate();
    let place = Place::new();
    place.write("plan.toml", crate::fleet::PLAN);
    let run = ["run", "plan.toml", "--on", "sim:server-10g", "-o"];
    for file in ["a.db", "b.db"] {
        place.run(&[&run[..], &[file]].concat()).expect(0, &[]);
    }
    place.run(&["report", "a.db", "--share", "--format", "html", "-o", "a.html"]).expect(0, &[]);
    place.write("cells.csv", crate::reproduce::TWO_CELLS);
    let own = status_of(std::process::id(), "CapPrm:");
    assert_eq!(read_rights(&place, &["metrics"]), (own, "0".to_owned()), "it is root's");
    let pairs = ["netns://a,netns://b", "netns://c,netns://d", "netns://e,netns://f"];
    for args in [
        &["report", "a.db"][..],
        &["report", "--compare", "a.db", "b.db"],
        &["history", "a.db"],
        &["explain", "a.db"],
        &["model", "fit", "a.db"],
        &["model", "twin", "a.db", "-o", "twin.toml"],
        &["export-settings", "a.db", "--format", "ethtool", "--interface", "lo"],
        &["fleet", "pairs", "a.db", "b.db"],
        &["merge", "a.db", "b.db", "-o", "all.db"],
        &["import", "a.html", "-o", "b.db"],
        &["reproduce", "--cells", "cells.csv", "--seeds", "2"],
        &["run", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"],
        &["search", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"],
        &["apply", "a.db"],
        &["fleet", "verify", "--from", "a.db", "--hosts-from", "echo lo"],
        &["fleet", "confirm", "a.db", pairs[0], pairs[1], pairs[2]],
    ] {
        holds_nothing(&place, args);
    }
}

#[test]
fn rights_table_names_every_command() {
    let help = Command::new(crate::latput_path()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let groups = help.lines().skip_while(|line| *line != "Find a setting:");
    let listed = groups.take_while(|line| *line != "Options:").filter_map(|line| {
        let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
        line.split(' ').next().map(str::to_owned)
    });
    let listed: BTreeSet<String> = listed.filter(|name| name != "help").collect();
    let told = LIST.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let told: Vec<String> = told.map(str::to_owned).collect();
    assert!(listed.len() > 30, "{listed:?}");
    assert_eq!(told.iter().cloned().collect::<BTreeSet<_>>(), listed);
    assert_eq!(told.len(), listed.len(), "each once");
}
