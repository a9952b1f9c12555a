//! Programs as the workload, at the process that runs them: whatever a program does and whoever is killed, nothing of it is
//! left running.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{children_of, kill_pid, wait_until};

/// `latput program --stdio`, with this test as its controller.
struct ProgramRunner {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl ProgramRunner {
    fn start() -> Self {
        let mut child = Command::new(crate::latput_path())
            .args(["program", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut runner = Self { child, input, output };
        runner.send_request(
            &json!({"open": {"schema": 3, "version": "test", "lease": 60_000_000_000_u64}}),
        );
        assert_ne!(runner.read_answer()["opened"], Value::Null);
        runner
    }

    fn send_request(&mut self, request: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{request}").unwrap();
    }

    fn read_answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Starts a program; `more` replaces fields of the request.
    fn start_program(&mut self, words: &[&str], more: &Value) {
        let program =
            json!({"words": words, "environment": {}, "folder": null, "user": null, "cpus": null});
        let mut start = json!({"id": 1, "at": null, "program": program, "timeout": null, "files": [],
                               "keep": 4096, "free_port": null});
        for (name, value) in more.as_object().unwrap() {
            start[name] = value.clone();
        }
        self.send_request(&json!({"start": start}));
    }

    /// The end of the program.
    fn wait_for_end(&mut self) -> Value {
        loop {
            let ended = &self.read_answer()["ended"];
            if !ended.is_null() {
                return ended["ended"].clone();
            }
        }
    }

    fn run(words: &[&str], more: &Value) -> Value {
        let mut runner = Self::start();
        runner.start_program(words, more);
        runner.wait_for_end()
    }

    /// Waits until the program runs.
    fn wait_for_start(&mut self) {
        let answer = self.read_answer();
        assert!(answer["started"].is_object(), "{answer}");
    }

    fn is_ready(&mut self, ready: &Value, within_ms: u64) -> Value {
        let wait = json!({"id": 1, "ready": ready, "within": within_ms * 1_000_000});
        self.send_request(&json!({"await_ready": wait}));
        loop {
            let answer = self.read_answer();
            if answer["started"].is_null() && answer["ended"].is_null() {
                return answer;
            }
        }
    }
}

impl Drop for ProgramRunner {
    fn drop(&mut self) {
        self.input = None;
        let _ended = self.child.wait();
    }
}

/// An argument of `sleep` that no other process has.
fn unique_argument() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("86400.{}{number:03}", std::process::id())
}

/// The processes that have this argument, with their names.
fn find_processes(argument: &str) -> Vec<(u32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(argument).then_some((pid, line))
    })
    .collect()
}

/// A shell's script that forks away, leaves the session twice and ignores SIGTERM. The words stand in `sleep`'s argument.
fn stubborn_script(argument: &str) -> String {
    format!(
        "trap '' TERM; setsid sh -c \"trap '' TERM; sleep {argument} & wait\" & (setsid sh -c '(sleep {argument} &)' &); \
         sleep {argument}"
    )
}

#[test]
fn stubborn_program_is_killed_after_timeout() {
    let argument = unique_argument();
    let mut runner = ProgramRunner::start();
    runner.start_program(
        &["sh", "-c", &stubborn_script(&argument)],
        &json!({"timeout": 1_000_000_000_u64}),
    );
    runner.wait_for_start();
    wait_until("all of its processes", || find_processes(&argument).len() >= 4);
    let begun = Instant::now();
    let ended = runner.wait_for_end();
    assert_eq!(ended["ending"]["timed_out"]["timeout"], 1_000_000_000_u64, "{ended}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(find_processes(&argument), []);
}

#[test]
fn what_a_program_leaves_behind_ends_with_it() {
    let argument = unique_argument();
    let script =
        format!("(setsid sleep {argument} >/dev/null 2>&1 &); setsid sleep {argument} & exit 3");
    let ended = ProgramRunner::run(&["sh", "-c", &script], &json!({}));
    assert_eq!(ended["ending"]["exited"]["status"], 3, "{ended}");
    assert_eq!(find_processes(&argument), []);
}

#[test]
fn killed_holder_leaves_no_program() {
    for victim in ["program --stdio", "program --hold", "program --first", "sleep"] {
        let argument = unique_argument();
        let mut runner = ProgramRunner::start();
        runner.start_program(&["sh", "-c", &stubborn_script(&argument)], &json!({}));
        runner.wait_for_start();
        wait_until("all of its processes", || find_processes(&argument).len() >= 4);
        let top = runner.child.id();
        let holder = child_of(top);
        let first = child_of(holder);
        match victim {
            "program --stdio" => kill_pid(top),
            "program --hold" => kill_pid(holder),
            "program --first" => kill_pid(first),
            _ => kill_pid(child_of(first)), // the program itself
        }
        wait_until(victim, || find_processes(&argument).is_empty());
        drop(runner);
        for pid in [holder, first] {
            wait_until("its holders to end", || {
                !std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists()
            });
        }
    }
}

/// The one child of a process.
fn child_of(pid: u32) -> u32 {
    let mut found = None;
    wait_until("a child", || {
        found = children_of(pid).first().copied();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn end_of_the_line_ends_everything() {
    let argument = unique_argument();
    let mut runner = ProgramRunner::start();
    runner.start_program(&["sh", "-c", &stubborn_script(&argument)], &json!({}));
    runner.wait_for_start();
    wait_until("all of its processes", || find_processes(&argument).len() >= 4);
    runner.input = None;
    assert!(runner.child.wait().unwrap().success());
    assert_eq!(find_processes(&argument), []);
}

#[test]
fn flood_of_a_gigabyte_takes_no_memory() {
    let mut runner = ProgramRunner::start();
    runner.start_program(&["head", "-c", "1000000000", "/dev/zero"], &json!({"keep": 2 << 20}));
    let ended = runner.wait_for_end();
    assert_eq!(ended["ending"]["exited"]["status"], 0, "{}", ended["ending"]);
    assert_eq!(ended["stdout"]["dropped"], 1_000_000_000_u64 - (2 << 20));
    let status = std::fs::read_to_string(format!("/proc/{}/status", runner.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < 150_000, "{peak_kb} kB");
}

#[test]
fn program_has_no_terminal_and_an_empty_stdin() {
    let ended = ProgramRunner::run(&["sh", "-c", "cat; tty; : < /dev/tty"], &json!({}));
    assert_eq!(ended["stdout"]["head"], "not a tty\n", "{ended}");
    assert!(ended["stderr"]["head"].as_str().unwrap().contains("/dev/tty"), "{ended}");
    assert_ne!(ended["ending"]["exited"]["status"], 0);
}

#[test]
fn signals_silence_and_missing_programs_differ() {
    let ended = ProgramRunner::run(&["sh", "-c", "kill -SEGV $$"], &json!({}));
    assert_eq!(ended["ending"]["signalled"]["signal"], 11, "{ended}");
    let ended = ProgramRunner::run(&["true"], &json!({}));
    assert_eq!(
        (&ended["ending"]["exited"]["status"], &ended["stdout"]["head"]),
        (&json!(0), &json!(""))
    );
    let ended = ProgramRunner::run(&["latput-has-no-such-program"], &json!({}));
    let why = ended["ending"]["not_started"]["why"].as_str().unwrap();
    assert!(why.contains("`latput-has-no-such-program`") && why.contains("install it"), "{why}");
    let program = json!({"words": ["true"], "environment": {}, "folder": "/nowhere", "user": null, "cpus": null});
    let ended = ProgramRunner::run(&[], &json!({"program": program}));
    let why = ended["ending"]["not_started"]["why"].as_str().unwrap();
    assert!(why.contains("the folder `/nowhere`"), "{why}");
}

#[test]
fn taken_port_is_reported_before_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let argument = unique_argument();
    let ended =
        ProgramRunner::run(&["sleep", &argument], &json!({"free_port": ["127.0.0.1", port]}));
    let why = ended["ending"]["not_started"]["why"].as_str().unwrap();
    assert!(why.contains(&format!("another program listens on port {port} of 127.0.0.1")), "{why}");
    assert_eq!(find_processes(&argument), []);
}

#[test]
fn server_readiness_is_by_output_or_command() {
    let argument = unique_argument();
    let script = format!("sleep 0.2; echo 'listening now'; exec sleep {argument}");
    let ready = |what: &Value, within_ms: u64| {
        let mut runner = ProgramRunner::start();
        runner.start_program(&["sh", "-c", &script], &json!({}));
        runner.is_ready(what, within_ms)
    };
    let spec = |words: &[&str]| json!({"command": {"words": words, "environment": {}, "folder": null, "user": null, "cpus": null}});
    assert_eq!(
        ready(&json!({"output": {"regex": "^listening"}}), 30_000),
        json!({"ready": {"id": 1}})
    );
    assert_eq!(ready(&spec(&["true"]), 30_000), json!({"ready": {"id": 1}}));
    let never = ready(&json!({"output": {"regex": "^never"}}), 300);
    assert!(
        never["not_ready"]["why"].as_str().unwrap().contains("has not said `^never` after 300ms"),
        "{never}"
    );
    let never = ready(&spec(&["sh", "-c", "echo no >&2; exit 4"]), 300);
    assert!(never["not_ready"]["why"].as_str().unwrap().contains("exit status 4 no"), "{never}");
    let never = ready(&json!({"tcp": {"address": "127.0.0.1", "port": 1}}), 300);
    assert!(never["not_ready"]["why"].as_str().unwrap().contains("port 1 after"), "{never}");
    let mut runner = ProgramRunner::start();
    runner.start_program(&["true"], &json!({}));
    let ended = runner.is_ready(&json!({"output": {"regex": "x"}}), 60_000);
    assert!(
        ended["not_ready"]["why"].as_str().unwrap().contains("ended before it was ready"),
        "{ended}"
    );
    assert_eq!(find_processes(&argument), []);
}
