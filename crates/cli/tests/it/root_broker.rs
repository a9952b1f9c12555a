//! A run with rights is two processes: what the one that reads hosts' answers can do, and what is left when either is killed.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::Child;

use latput_testkit::{isolate, needs_root};

use crate::{
    Place, agents_of, assert_no_capability, broker_of, descendants_of, interrupt, kill,
    namespaces_in_use, status_of, wait_until,
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

/// A run on the lab that has begun its trials.
struct Run {
    place: Place,
    child: Child,
    broker: u32,
    others: Vec<u32>,
    /// The namespaces of its lab.
    lab: BTreeSet<PathBuf>,
}

impl Run {
    fn start(place: Place, args: &[&str]) -> Self {
        place.write("plan.toml", PLAN);
        let child = place.start(args);
        wait_until("the first trial", || place.trials("out.db") > 0);
        let broker = broker_of(child.id()).expect("it has rights");
        let others = descendants_of(child.id());
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let namespace = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let lab = others.iter().filter_map(namespace).filter(|of| *of != own).collect();
        Self { place, child, broker, others, lab }
    }

    /// Waits until it and all that it started have ended; its exit code and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let is_gone = |pid: &u32| matches!(&*status_of(*pid, "State:"), "" | "Z (zombie)");
        wait_until("every process to end", || self.others.iter().all(is_gone));
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

#[test]
fn who_reads_the_agents_answers_has_no_rights_and_nobody_else_reads_them() {
    if needs_root() {
        return;
    }
    isolate();
    for args in [["run", "plan.toml", "-o", "out.db"], ["tune", "plan.toml", "-o", "out.db"]] {
        let run = Run::start(Place::new(), &args);
        let controller = run.child.id();
        assert_no_capability(controller);
        assert_eq!(status_of(controller, "CapBnd:"), "0000000000000000");
        let users = status_of(controller, "Uid:");
        assert!(!users.split(' ').take(3).any(|user| user == "0"), "{users}");
        let agents = agents_of(controller);
        assert_eq!(agents.len(), 2);
        for agent in agents {
            let line = std::fs::read_link(format!("/proc/{agent}/fd/1")).unwrap();
            assert!(lines_of(controller).contains(&line));
            assert!(!lines_of(run.broker).contains(&line));
        }
        interrupt(controller);
        let (code, said) = run.end();
        assert_eq!(code, Some(6), "{said}");
        assert!(said.contains("interrupted"), "{said}");
    }
}

#[test]
fn when_either_process_of_a_run_is_killed_nothing_is_left() {
    if needs_root() {
        return;
    }
    isolate();
    let args = ["run", "plan.toml", "-o", "out.db"];
    let run = Run::start(Place::new(), &args);
    kill(run.child.id());
    assert_eq!(run.end().0, None);

    let run = Run::start(Place::new(), &args);
    kill(run.broker);
    let (code, said) = run.end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("the process that holds the rights of this run has ended"), "{said}");
}

#[test]
fn root_in_a_users_folder_needs_no_capability_and_what_it_makes_is_the_users() {
    if needs_root() {
        return;
    }
    isolate();
    let place = Place::new();
    chown(place.path(""), Some(1234), Some(1234)).unwrap();
    let run = Run::start(place, &["run", "plan.toml", "-o", "out.db"]);
    assert_no_capability(run.child.id());
    assert_eq!(run.place.path("out.db").metadata().unwrap().uid(), 1234);
    interrupt(run.child.id());
    let (code, said) = run.end();
    assert_eq!(code, Some(6), "{said}");
}
