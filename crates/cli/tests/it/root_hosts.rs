//! Four hosts - the system under test, two generators and an observer - as namespaces joined by a
//! bridge; one generator is reached through a real sshd, another has a clock of its own.

use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};

use crate::two_hosts::{make_keys, run_ip, start_sshd};
use crate::{Place, agents_of, is_told_of_a_killed_agent, kill_pid, wait_until};

const PLAN: &str = r#"
schema = 1
name = "four hosts"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["1ms", 100]]
[[workload]]
kind = "tcp_rr"
connections = 4
[[workload]]
kind = "tcp_stream"
connections = 3
probe_hz = 200
[[workload]]
kind = "fetch"
object_bytes = 65536
connections = 5
[method]
design = "blocks"
repetitions = { min = 2, max = 2 }
warmup = "100ms"
duration = "300ms"
"#;
const TRIALS: i64 = 12;
const OTHER_KINDS: &str = r#"
schema = 1
name = "the other kinds"
[[workload]]
kind = "tcp_bidir"
connections = 2
[[workload]]
kind = "udp_rr"
connections = 2
[[workload]]
kind = "rpc_read"
clients = 2
[[workload]]
kind = "ping"
[method]
design = "blocks"
repetitions = { min = 1, max = 1 }
warmup = "100ms"
duration = "300ms"
"#;
const HOSTS: [&str; 4] = ["sut", "load1", "load2", "watch"];
/// The namespace of the bridge.
const HUB: &str = "hub";

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn several_generators_and_an_observer_share_a_plan() {
    let rack = BridgeRack::set_up();
    let before = rack.read_knobs();
    let place = rack.place();
    let ran = place.run(&["run", "plan.toml", "--on", "rack.toml", "-o", "kept.db", "--beside"]);
    let said = ran.expect(0, &["on rack.toml", "12 trials"]).out.split_whitespace();
    let offset = said.skip_while(|word| *word != "clock").nth(2).unwrap();
    let error_s = offset.parse::<f64>().unwrap() - 86_400.0;
    assert!(error_s.abs() < 0.05, "the clock of load1 is a day ahead: {offset} s");
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    assert_eq!(rack.read_knobs(), before);
    let report = place.report_json("kept.db");
    let mut on_schedule = 0;
    for run in report["runs"].as_array().unwrap() {
        let hosts: Vec<&str> =
            run["hosts"].as_array().unwrap().iter().map(|h| h["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, ["load1", "load2", "sut", "watch"], "{run}");
        if was_held_up(run) {
            continue;
        }
        on_schedule += 1;
        let packets = |host: usize| run["hosts"][host]["tx_packets_count"].as_u64().unwrap();
        assert!(packets(0) > 0 && packets(1) > 0, "both generators make traffic: {run}");
        if run["workload"] == 1 {
            // 200 a second for 0.3 s, and next to nothing else; a busy machine leaves some out.
            assert!((20..=90).contains(&packets(3)), "the observer probes: {run}");
            assert!(run["metrics"]["probe_ns_mean"].as_f64().unwrap() > 0.0, "{run}");
        }
        // A busy machine may tell a host too late, and then says so.
        assert!(run.to_string().contains("started-together"), "{run}");
    }
    assert!(on_schedule > 0, "no trial was on schedule");
    check_other_kinds(place);
}

/// Each has traffic from both generators, but echo, which is the observer's.
/// Whether a busy machine held a host up, perhaps for nearly all of its window.
fn was_held_up(run: &serde_json::Value) -> bool {
    let is_late = |check: &serde_json::Value| check["name"] == "on-schedule";
    run["checks_failed"].as_array().unwrap().iter().any(is_late)
}

fn check_other_kinds(place: &Place) {
    place.write("others.toml", OTHER_KINDS);
    let ran = place.run(&["run", "others.toml", "--on", "rack.toml", "-o", "others.db"]);
    ran.expect(0, &["4 trials"]);
    let report = place.report_json("others.db");
    for run in report["runs"].as_array().unwrap().iter().filter(|run| !was_held_up(run)) {
        let packets = |host: usize| run["hosts"][host]["tx_packets_count"].as_u64().unwrap();
        let generators = [packets(0), packets(1)];
        if run["workload"] == 3 {
            assert!(packets(3) > 50 && generators.iter().all(|sent| *sent < 50), "{run}");
        } else {
            assert!(packets(3) < 50 && generators.iter().all(|sent| *sent > 50), "{run}");
        }
    }
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn dead_agent_leaves_all_hosts_restored() {
    let rack = BridgeRack::set_up();
    let before = rack.read_knobs();
    let place = rack.place();
    let mut child = place.start(&["run", "plan.toml", "--on", "rack.toml", "-o", "kept.db"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 2);
    kill_pid(agent_behind(child.id(), "unshare"));
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(6), "{said}");
    assert!(is_told_of_a_killed_agent(&said, "load1"), "{said}");
    assert_eq!(rack.read_knobs(), before);
    let again = place.run(&["run", "plan.toml", "--on", "rack.toml", "-o", "kept.db"]);
    again.expect(0, &["resuming run 1"]);
    assert_eq!(place.count_trials("kept.db"), TRIALS);
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn lost_session_ends_run_and_restores() {
    let rack = BridgeRack::set_up();
    let before = rack.read_knobs();
    let place = rack.place();
    let mut child = place.start(&["run", "plan.toml", "--on", "rack.toml", "-o", "kept.db"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 2);
    kill_pid(agent_behind(child.id(), "ssh"));
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("host `load2`: its agent ended (signal: 9"), "{said}");
    wait_until("the host to put itself back", || rack.read_knobs() == before);
}

/// Four namespaces on a bridge in a fifth, an sshd in one of them, and a testbed file that names them.
/// Dropping it ends sshd.
struct BridgeRack {
    place: Place,
    sshd: Child,
}

impl BridgeRack {
    fn set_up() -> Self {
        isolate();
        let place = Place::new();
        place.write("plan.toml", PLAN);
        std::fs::create_dir("/run/sshd").unwrap(); // sshd refuses to start without it
        run_ip(&["netns", "add", HUB]);
        run_ip(&["-n", HUB, "link", "add", "br0", "type", "bridge"]);
        run_ip(&["-n", HUB, "address", "add", "198.18.7.254/24", "dev", "br0"]);
        run_ip(&["-n", HUB, "link", "set", "br0", "up"]);
        for (idx, host) in HOSTS.into_iter().enumerate() {
            let address = format!("198.18.7.{}/24", idx + 1);
            run_ip(&["netns", "add", host]);
            run_ip(&[
                "-n", HUB, "link", "add", host, "type", "veth", "peer", "eth0", "netns", host,
            ]);
            run_ip(&["-n", HUB, "link", "set", host, "master", "br0", "up"]);
            run_ip(&["-n", host, "address", "add", &address, "dev", "eth0"]);
            run_ip(&["-n", host, "link", "set", "eth0", "up"]);
            run_ip(&["-n", host, "link", "set", "lo", "up"]);
        }
        for host in HOSTS {
            // Without GRO a veth has no NAPI, and so nothing to be deferred.
            let inside = ["ip", "netns", "exec", host];
            let set = place.wrapped_command(&inside, &["set", "eth0", "gro=on"]).output().unwrap();
            assert!(set.status.success(), "{set:?}");
        }
        make_keys(&place, &["198.18.7.3"]);
        let sshd = start_sshd(&place, "load2", "");
        let rack = Self { place, sshd };
        rack.place.write("rack.toml", &rack.testbed_toml());
        wait_until("sshd", || rack.over_ssh().status().is_ok_and(|status| status.success()));
        rack
    }

    const fn place(&self) -> &Place {
        &self.place
    }

    fn testbed_toml(&self) -> String {
        let latput = crate::latput_path();
        let host = |name: &str, idx: u32, role: &str, via: &[String]| {
            format!(
                "[host.{name}]\nrole = \"{role}\"\ninterface = \"eth0\"\n\
                 address = \"198.18.7.{idx}\"\nlatput = \"{latput}\"\nvia = {via:?}\n"
            )
        };
        let inside = |name: &str| ["ip", "netns", "exec", name].map(str::to_owned).to_vec();
        // A day ahead of the others: only a host that is told its own instants starts in time.
        let mut in_tomorrow = inside("load1");
        in_tomorrow.extend(
            ["unshare", "--time", "--monotonic", "86400", "--fork", "--kill-child", "--"]
                .map(str::to_owned),
        );
        let mut over_ssh = self.ssh_words();
        let state = format!("LATPUT_STATE_DIR={}", self.place.path("state-load2").display());
        over_ssh.extend(["env".to_owned(), state]);
        let hosts = [
            host("sut", 1, "sut", &inside("sut")),
            host("load1", 2, "generator", &in_tomorrow),
            host("load2", 3, "generator", &over_ssh),
            host("watch", 4, "observer", &inside("watch")),
        ];
        format!("schema = 1\n{}", hosts.concat())
    }

    /// ssh to the second generator, from the bridge.
    fn ssh_words(&self) -> Vec<String> {
        let config = self.place.path("ssh_config").display().to_string();
        ["ip", "netns", "exec", HUB, "ssh", "-F", &config, "root@198.18.7.3"]
            .map(str::to_owned)
            .to_vec()
    }

    fn over_ssh(&self) -> Command {
        let words = self.ssh_words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("true").stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Every knob of every host.
    fn read_knobs(&self) -> Vec<serde_json::Value> {
        let of = |host: &str| {
            let before = ["ip", "netns", "exec", host];
            let shown =
                self.place.wrapped_command(&before, &["show", "eth0", "--json"]).output().unwrap();
            let mut document: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            document["knobs"].take()
        };
        HOSTS.into_iter().map(of).collect()
    }
}

/// The child of a latput that reaches an agent by `program`.
fn agent_behind(latput: u32, program: &str) -> u32 {
    let children = agents_of(latput);
    let is_it = |pid: &&u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').next() == Some(program)
    };
    *children.iter().find(is_it).unwrap_or_else(|| panic!("{program} among {children:?}"))
}

impl Drop for BridgeRack {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}
