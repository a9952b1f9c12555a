//! The daemon on a real interface, in a lab that is up: start, answer, give way, end, crash.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::root_settings::Lab;
use crate::{CommandOutput, Place, kill_pid, latput_path, needs_program, wait_until};

#[needs("root")]
#[test]
fn daemon_holds_answers_and_restores_on_sigterm() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let metrics = format!("unix:{}", place.path("metrics.sock").display());
    let mut daemon = ModerateDaemon::start(&place, &["--goal", "save-cpu", "--metrics", &metrics]);
    let status = daemon.read_status();
    assert_eq!(status["state"], "holding", "{status}");
    assert_eq!(status["delay_ns"], 0, "it starts from the safe side: {status}");
    assert_eq!(status["pid"].as_u64(), Some(u64::from(daemon.child.id())));
    wait_until("decisions", || daemon.read_status()["decisions"].as_u64() > Some(20));
    assert_eq!(daemon.read_status()["changes"], 0, "without traffic nothing is changed");
    if !needs_program("curl") {
        let text = scrape_metrics(&place);
        assert!(text.contains("latput_moderate_delay_seconds{interface=\"lat0\"} 0"), "{text}");
    }
    let second = lab.run_on_b(&["moderate", "lat0"]);
    second.expect(1, &["another latput", "--status"]);
    lab.run_on_b(&["set", "lat0", "mtu=1400"]).expect(1, &["another latput"]);
    daemon.stop_daemon(0);
    assert_eq!(lab.read_knobs(), before);
    assert!(!place.path("metrics.sock").exists());
    lab.run_on_b(&["moderate", "lat0", "--status"]).expect(1, &["no `latput moderate` runs"]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

/// A scraper speaks to a process without rights. Its end is not the daemon's.
#[needs("root", "curl")]
#[test]
fn metrics_are_served_by_a_process_without_rights() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let metrics = format!("unix:{}", place.path("metrics.sock").display());
    let mut daemon = ModerateDaemon::start(&place, &["--goal", "save-cpu", "--metrics", &metrics]);
    let pid = daemon.child.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let server: u32 = children.trim().parse().expect("one process");
    assert!(scrape_metrics(&place).contains("latput_moderate_uptime_seconds"));
    let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    for sets in ["CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(line(sets), "0000000000000000", "{sets}");
    }
    assert_eq!(line("NoNewPrivs:"), "1");
    assert!(!line("Uid:").starts_with('0'), "{status}");
    // Clients that say nothing are not in the way of one that asks.
    let silent: Vec<UnixStream> =
        (0..8).map(|_| UnixStream::connect(place.path("metrics.sock")).unwrap()).collect();
    assert!(scrape_metrics(&place).contains("latput_moderate_uptime_seconds"));
    drop(silent);
    kill_pid(server);
    wait_until("the end of the metrics", || scrape_metrics(&place).is_empty());
    assert_eq!(daemon.read_status()["state"], "holding");
    daemon.stop_daemon(0);
    assert_eq!(lab.read_knobs(), before);
}

/// Answer to curl; empty where nobody answers.
fn scrape_metrics(place: &Place) -> String {
    let curl = Command::new("curl")
        .args(["-sS", "--max-time", "5", "--unix-socket"])
        .arg(place.path("metrics.sock"))
        .arg("http://localhost/metrics")
        .output();
    String::from_utf8(curl.unwrap().stdout).unwrap()
}

#[needs("root")]
#[test]
fn budget_overrun_delays_and_next_start_restores() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    // Traffic takes more than that on any machine, so that the delay stays.
    let daemon = ModerateDaemon::start(&place, &["--cpu-budget", "0.1%"]);
    let mut traffic =
        LabTraffic::start(&place, &["udp_stream", "rate=200Mbps", "datagram_bytes=1000"]);
    wait_until("a delay", || daemon.read_status()["delay_ns"].as_u64() > Some(0));
    let status = daemon.read_status();
    assert!(status["last_change"]["reason"].is_string(), "{status}");
    assert!(daemon.read_log().contains("changed interface=\"lat0\""), "{}", daemon.read_log());
    kill_pid(daemon.child.id());
    drop(daemon);
    traffic.stop_traffic();
    lab.run_on_b(&["restore", "eth9"]).expect(0, &["nothing to restore"]);
    lab.run_on_b(&["restore", "--dry-run"]).expect(0, &["would put back", "gro-flush-timeout"]);
    let mut daemon = ModerateDaemon::start(&place, &["--goal", "no-delay"]);
    assert!(
        daemon.read_log().contains("put back what an earlier latput left"),
        "{}",
        daemon.read_log()
    );
    assert_eq!(lab.read_knobs(), before, "no delay is what there was before");
    daemon.stop_daemon(0);
    assert_eq!(lab.read_knobs(), before);
}

#[needs("root")]
#[test]
fn what_somebody_else_sets_is_released_once() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let mut daemon = ModerateDaemon::start(&place, &["--goal", "standard"]);
    let file = "echo 77000 > /sys/class/net/lat0/gro_flush_timeout";
    place.run(&["lab", "exec", "b", "--", "sh", "-c", file]).expect(0, &[]);
    wait_until("the daemon to see it", || daemon.read_status()["state"] == "released");
    let status = daemon.read_status();
    assert!(status["released"][0].as_str().unwrap().contains("gro-flush-timeout"), "{status}");
    daemon.stop_daemon(0);
    let said = daemon.read_log();
    assert!(said.contains("another program has set it"), "{said}");
    lab.run_on_b(&["show", "lat0", "gro-flush-timeout"]).expect(0, &["77us"]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root", "ip")]
#[test]
fn daemon_survives_link_reset_and_rename() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let mut daemon = ModerateDaemon::start(&place, &["--goal", "standard"]);
    // Past `latput lab exec`, which takes a lab without `lat0` for half a lab.
    let ip = |words: &[&str]| {
        let all = ["-n", "latput-b", "link", "set"];
        assert!(Command::new("ip").args(all).args(words).status().unwrap().success());
    };
    ip(&["lat0", "down"]);
    wait_until("it to wait", || daemon.read_status()["state"] == "waiting");
    ip(&["lat0", "up"]);
    wait_until("it to hold again", || daemon.read_status()["state"] == "holding");
    ip(&["lat0", "down"]);
    ip(&["lat0", "name", "lat7"]);
    ip(&["lat7", "up"]);
    wait_until("it to follow the name", || {
        let ask = ["ip", "netns", "exec", "latput-b"];
        let mut ask = place.wrapped_command(&ask, &["moderate", "lat7", "--status"]);
        // `lab exec` gives the lab a folder of its own.
        ask.env("LATPUT_STATE_DIR", place.path("state").join("lab-up"));
        let answer = CommandOutput::from(ask.output().unwrap());
        answer.code == Some(0) && answer.out.contains("lat7: holding")
    });
    daemon.stop_daemon(0);
    ip(&["lat7", "down"]);
    ip(&["lat7", "name", "lat0"]);
    ip(&["lat0", "up"]);
    // Down and up has made the NAPIs anew: only their values are compared.
    let values = |knobs: &Value| {
        let knobs = knobs.as_array().unwrap().iter();
        knobs.map(|knob| knob["values"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(values(&lab.read_knobs()), values(&before));
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[needs("root")]
#[test]
fn daemon_observes_unchanged_or_refuses() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    lab.run_on_b(&["moderate", "lat0", "--observe", "--for", "300ms"]).expect(0, &["observing"]);
    assert_eq!(lab.read_knobs(), before);
    lab.run_on_b(&["moderate", "lo"]).expect(1, &["no knob that moderates it", "rx-usecs"]);
    lab.run_on_b(&["moderate", "lat9"]).expect(2, &["lat9"]);
    lab.run_on_b(&["moderate", "lat0", "--metrics", "0.0.0.0:9711"])
        .expect(2, &["this machine only"]);
    lab.run_on_b(&["moderate", "lat0", "--goal", "speed"]).expect(2, &["no goal `speed`"]);
    let two = ["moderate", "lat0", "--goal", "save-cpu", "--cpu-budget", "30%"];
    lab.run_on_b(&two).expect(2, &["give one of them"]);
    lab.run_on_b(&["moderate", "lat0", "--cpu-budget", "130%"]).expect(2, &["below 100%"]);
    lab.run_on_b(&["moderate", "lat0", "--max-delay", "1s"]).expect(2, &["must be from"]);
    lab.run_on_b(&["moderate", "lat0", "--status", "--goal", "save-cpu"]).expect(2, &[]);
    assert_eq!(lab.read_knobs(), before);
}

const SCHEMA: &str = include_str!("../../../../docs/schema/moderate.json");
/// A daemon that holds `lat0` of host `b`.
struct ModerateDaemon<'a> {
    place: &'a Place,
    child: Child,
}

impl<'a> ModerateDaemon<'a> {
    /// Returns when it answers.
    fn start(place: &'a Place, options: &[&str]) -> Self {
        let mut words = vec!["lab", "exec", "b", "--", latput_path(), "moderate", "lat0"];
        words.extend(options);
        let daemon = Self { place, child: place.start(&words) };
        wait_until("the daemon to answer", || daemon.query_status().code == Some(0));
        daemon
    }

    fn query_status(&self) -> crate::CommandOutput {
        self.place.run(&[
            "lab",
            "exec",
            "b",
            "--",
            latput_path(),
            "moderate",
            "lat0",
            "--status",
            "--json",
        ])
    }

    fn read_status(&self) -> Value {
        let asked = self.query_status();
        let text = &asked.expect(0, &[]).out;
        crate::json::check_schema(SCHEMA, text);
        serde_json::from_str(text).unwrap()
    }

    /// All it has logged.
    fn read_log(&self) -> String {
        std::fs::read_to_string(self.place.path("stderr")).unwrap()
    }

    /// Asks it to end, as systemd does.
    fn stop_daemon(&mut self, code: i32) {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{}", self.read_log());
    }
}

impl Drop for ModerateDaemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Traffic from host `a` to host `b` that goes on for a minute at most.
struct LabTraffic(Child);

impl LabTraffic {
    fn start(place: &Place, workload: &[&str]) -> Self {
        place.write("lab.toml", &testbed_toml());
        let mut words = vec!["measure", "lab.toml", "--duration", "60s", "--repetitions", "1..1"];
        words.push("--workload");
        words.extend(workload);
        let child =
            place.latput_command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap())
    }

    fn stop_traffic(&mut self) {
        Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for LabTraffic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lab that is up, as hosts that agents are started on.
fn testbed_toml() -> String {
    let binary = latput_path();
    let folder = std::path::Path::new(binary).parent().unwrap().display();
    let host = |name: &str, role: &str, number: u8| {
        format!(
            "[host.{name}]\nrole = \"{role}\"\ninterface = \"lat0\"\naddress = \"198.18.0.{number}\"\n\
             via = [\"{binary}\", \"lab\", \"exec\", \"{name}\", \"--\", \"env\", \"PATH={folder}:/usr/bin:/bin\"]\n"
        )
    };
    format!("schema = 1\n{}{}", host("a", "generator", 1), host("b", "sut", 2))
}
