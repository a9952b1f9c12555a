//! A run with rights is two processes: what the one that reads hosts' answers can do, and what is left when either is killed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use latput_testkit::{isolate, needs};

use crate::two_hosts::write_script;
use crate::{
    Place, agents_of, assert_no_capability, broker_of, descendants_of, interrupt_pid, is_gone,
    kill_pid, namespaces_in_use, status_of, wait_until, words_of,
};

const PLAN: &str = r#"
schema = 1
name = "long"
[factors]
txqueuelen = [500]
[[workload]]
kind = "tcp_rr"
[method]
design = "blocks"
repetitions = { min = 200, max = 200 }
warmup = "10ms"
duration = "1s"
"#;

const NONE: &str = "0000000000000000";

/// A run on the lab that has begun its trials.
struct LabRun {
    place: Place,
    child: Child,
    broker: u32,
    others: Vec<u32>,
    /// The namespaces of its lab.
    lab: BTreeSet<PathBuf>,
}

impl LabRun {
    fn start(place: Place, args: &[&str]) -> Self {
        place.write("plan.toml", PLAN);
        let child = place.start(args);
        wait_until("the first trial", || place.count_trials("out.db") > 0);
        let broker = broker_of(child.id()).expect("it has rights");
        let others = descendants_of(child.id());
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let namespace = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let lab = others.iter().filter_map(namespace).filter(|of| *of != own).collect();
        Self { place, child, broker, others, lab }
    }

    /// Waits until it and all that it started have ended; its exit code and what it said.
    fn wait_for_end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        wait_until("every process to end", || self.others.iter().all(|pid| is_gone(*pid)));
        wait_until("the lab to go", || namespaces_in_use().is_disjoint(&self.lab));
        (code, std::fs::read_to_string(self.place.path("stderr")).unwrap())
    }
}

/// The pipes and sockets that a process has open.
fn lines_of(pid: u32) -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().contains(":[")).collect()
}

#[needs("root")]
#[test]
fn agent_reader_is_unprivileged_and_alone() {
    isolate();
    for args in [["run", "plan.toml", "-o", "out.db"], ["tune", "plan.toml", "-o", "out.db"]] {
        let run = LabRun::start(Place::new(), &args);
        let controller = run.child.id();
        assert_no_capability(controller);
        assert_eq!(status_of(controller, "CapBnd:"), NONE);
        let users = status_of(controller, "Uid:");
        assert!(!users.split(' ').take(3).any(|user| user == "0"), "{users}");
        let agents = agents_of(controller);
        assert_eq!(agents.len(), 2);
        for agent in agents {
            let line = std::fs::read_link(format!("/proc/{agent}/fd/1")).unwrap();
            assert!(lines_of(controller).contains(&line));
            assert!(!lines_of(run.broker).contains(&line));
        }
        interrupt_pid(controller);
        let (code, said) = run.wait_for_end();
        assert_eq!(code, Some(6), "{said}");
        assert!(said.contains("interrupted"), "{said}");
    }
}

#[needs("root")]
#[test]
fn killed_run_leaves_no_process() {
    isolate();
    let args = ["run", "plan.toml", "-o", "out.db"];
    let run = LabRun::start(Place::new(), &args);
    kill_pid(run.child.id());
    assert_eq!(run.wait_for_end().0, None);

    let run = LabRun::start(Place::new(), &args);
    kill_pid(run.broker);
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("the process that holds the rights of this run has ended"), "{said}");
}

#[needs("root")]
#[test]
fn root_in_user_folder_needs_no_capability() {
    isolate();
    let place = Place::new();
    chown(place.path(""), Some(1234), Some(1234)).unwrap();
    let run = LabRun::start(place, &["run", "plan.toml", "-o", "out.db"]);
    assert_no_capability(run.child.id());
    assert_eq!(run.place.path("out.db").metadata().unwrap().uid(), 1234);
    interrupt_pid(run.child.id());
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
}

#[needs("root")]
#[test]
fn deploy_process_is_unprivileged_and_ends_alone() {
    isolate();
    let place = Place::new();
    let mark = place.path("pid");
    write_script(&place.path("silent"), &format!("echo $$ > {}; exec sleep 1000", mark.display()));
    let way = format!("exec:{}", place.path("silent").display());
    let mut command =
        place.latput_command(&["lab", "exec", &way, "--", "latput", "agent", "--stdio"]);
    let stderr = fs::File::create(place.path("stderr")).unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().unwrap();
    let silent = || fs::read_to_string(&mark).ok()?.trim().parse::<u32>().ok();
    wait_until("the way to be started", || silent().is_some());
    let silent = silent().unwrap();
    wait_until("the rights to go", || status_of(child.id(), "CapEff:") == NONE);
    wait_until("all to go", || status_of(child.id(), "CapPrm:") == NONE);
    assert_no_capability(child.id());
    let users = status_of(child.id(), "Uid:");
    assert!(!users.split(' ').any(|user| user == "0"), "{users}");
    // It may no longer signal a process of root, and the way ends with the controller all the same.
    assert_eq!(status_of(silent, "Uid:").split(' ').next(), Some("0"));
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(is_gone(silent));
    let said = fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("ended (signal: 15"), "{said}");
}

#[needs("root")]
#[test]
fn started_agent_lives_until_controller_ends() {
    isolate();
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(crate::latput_path(), place.path("bin/latput")).unwrap();
    let way = format!("exec:env PATH={}:/usr/bin:/bin", place.path("bin").display());
    let mut command =
        place.latput_command(&["lab", "exec", &way, "--", "latput", "agent", "--stdio"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let confined = || {
        let mut others = descendants_of(child.id()).into_iter();
        others.find(|pid| words_of(*pid).contains("agent") && status_of(*pid, "CapPrm:") == NONE)
    };
    wait_until("the agent to have no rights", || confined().is_some());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it goes on");
    assert_eq!(status_of(child.id(), "CapPrm:"), NONE);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
