//! Other programs on the lab's CPUs: they take an answer away, or are a part of the case.

use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};

use crate::Place;

const PLAN: &str = r#"
schema = 1
name = "beside"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["50us", 100]]
[[workload]]
kind = "tcp_rr"
[method]
design = "slices"
repetitions = { min = 2, max = 2 }
duration = "500ms"
budget = "60s"
"#;
/// A shell under a name of its own.
const NAME: &str = "burner";

/// A program on the last CPU, which is the system under test's. It ends with this, or else by itself.
struct CpuBurner(Child);

impl CpuBurner {
    fn start(place: &Place) -> Self {
        std::fs::copy("/bin/sh", place.path(NAME)).unwrap();
        let program = place.path(NAME).display().to_string();
        let cpus = latput_linux::process::allowed_cpus().unwrap();
        let cpu = cpus.iter().last().unwrap().to_string();
        let words = ["120", "taskset", "-c", &cpu, &program, "-c", "while :; do :; done"];
        let mut command = Command::new("timeout");
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for CpuBurner {
    /// `timeout` hands SIGTERM on to what it started.
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _reaped = self.0.wait();
    }
}

#[needs("root", "taskset")]
#[test]
fn busy_hosts_give_no_answer_with_names() {
    isolate();
    let place = Place::new();
    place.write("plan.toml", PLAN);
    let _burner = CpuBurner::start(&place);
    let ran = place.run(&["run", "plan.toml", "--as-it-is", "-o", "busy.db"]);
    ran.expect(6, &["No answer: the hosts were not quiet", NAME, "waiting up to"]);
    let report = place.report_json("busy.db");
    let headline = &report["headline"];
    assert_eq!((&headline["kind"], &headline["disturbed"]), (&"no_answer".into(), &true.into()));
    let (unfit, runs) = (&report["fitness"]["unfit_runs"], &report["fitness"]["runs"]);
    assert!(2 * unfit.as_u64().unwrap() > runs.as_u64().unwrap(), "{}", report["fitness"]);
    let commands = report["recommendation"]["commands"].as_array();
    assert!(commands.is_none_or(Vec::is_empty), "{commands:?}");
    let applied = place.run(&["apply", "busy.db"]);
    applied.expect(6, &["the run has no answer, and nothing was changed", "--setting"]);
    assert!(applied.out.is_empty(), "{applied:?}");
}

#[needs("root", "taskset")]
#[test]
fn declared_load_is_named_in_answer() {
    isolate();
    let place = Place::new();
    place.write("plan.toml", PLAN);
    let _burner = CpuBurner::start(&place);
    let ran = place.run(&["run", "plan.toml", "--beside", "-o", "beside.db"]);
    ran.expect(0, &["of other work on", NAME, "switches/s"]);
    let report = place.report_json("beside.db");
    assert_eq!(report["fitness"]["unfit_runs"], 0, "{}", report["fitness"]);
    let condition = report["headline"]["condition"].as_str().unwrap();
    assert!(condition.starts_with("beside ") && condition.contains(" on b"), "{condition}");
}

/// The benchmark and what it starts is no other work, though it keeps a CPU busy.
#[needs("root", "taskset")]
#[test]
fn load_beside_a_command_is_named() {
    const OWN: &str = "own-benchmark";
    isolate();
    let place = Place::new();
    place.write(
        "plan.toml",
        "schema = 1\n[factors]\ntxqueuelen = [500, 501]\n[[workload]]\nkind = \"tcp_rr\"\n\
         [method]\nrepetitions = { min = 2, max = 2 }\n",
    );
    std::fs::copy("/bin/sh", place.path(OWN)).unwrap();
    let own = place.path(OWN).display().to_string();
    let [started, first] = ["started.sh", "first.sh"].map(|file| place.path(file));
    place.write("started.sh", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done");
    place.write("first.sh", &format!("{own} {}; echo score: 42", started.display()));
    let command = format!("{own} {}", first.display());
    let _burner = CpuBurner::start(&place);
    let tune = ["tune", "plan.toml", "--beside", "-o", "own.db", "--command", &command];
    let figure = ["--metric", "score[number,higher]=/score: (\\d+)/", "--goal", "maximize score"];
    place.run(&[&tune[..], &figure].concat()).expect(0, &["of other work on", NAME]);
    let report = place.report_json("own.db");
    let condition = report["headline"]["condition"].as_str().unwrap();
    assert!(condition.starts_with("beside ") && condition.contains(" on b"), "{condition}");
    let others = report["fitness"]["others"].as_array().unwrap();
    let is_named = |name: &str| others.iter().any(|other| other["name"] == name);
    assert!(is_named(NAME) && !is_named(OWN), "{others:?}");
}
