//! Hosts whose agent, way or controller stops without ending: three namespaces on a bridge, each changed by
//! the plan, and looked at by `ip` and `ethtool`.

use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use latput_testkit::{isolate, needs};

use crate::two_hosts::run_ip;
use crate::{Place, agents_of, interrupt_pid, kill_pid, resident_kb, wait_until};

/// More trials than any of these tests runs through.
const PLAN: &str = r#"
schema = 1
name = "hung"
[factors]
"sut.mtu" = [1400]
"generator.mtu" = [1300]
[[workload]]
kind = "tcp_rr"
connections = 2
[method]
design = "blocks"
repetitions = { min = 200, max = 200 }
warmup = "50ms"
duration = "2s"
"#;
const HOSTS: [&str; 3] = ["sut", "load1", "load2"];
/// The namespace of the bridge.
const HUB: &str = "hub";
/// Of the tests' testbeds.
const LEASE: Duration = Duration::from_secs(2);
/// Longest time that latput waits for an agent, and then for `latput restore`, each.
const WITHIN: Duration = Duration::from_secs(15);

#[needs("root", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn hung_agent_delays_no_other_host() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let mut run = hosts.start();
    let begun = Instant::now();
    stop_agent("load1");
    wait_until("the others to be put back", || {
        let now = show_interfaces();
        now[0] == before[0] && now[2] == before[2]
    });
    assert_ne!(show_interfaces()[1], before[1], "an agent that hangs cannot put its host back");
    assert!(run.is_running(), "the run waits for the third host");
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("host `load1`: its agent") && said.contains("nothing for 2s"), "{said}");
    assert!(said.contains("running `latput restore` on load1"), "{said}");
    assert_eq!(show_interfaces(), before);
    // It hangs for the lease and a third, is waited for, and restored.
    assert!(
        begun.elapsed() < 2 * LEASE + WITHIN + Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

/// The far end of `via` answers a restore without end, or not at all.
#[needs("root", "ip", "ethtool")]
#[test]
fn endless_restore_is_abandoned_and_named() {
    let hosts = HungHosts::set_up("case \"$*\" in *restore*) yes answers-without-end >&2;; esac");
    let before = show_interfaces();
    let mut run = hosts.start();
    let begun = Instant::now();
    for host in ["load1", "load2"] {
        stop_agent(host);
    }
    wait_until("`latput restore`", || run.read_stderr().contains("running `latput restore`"));
    let mut most_kb = 0;
    while run.is_running() {
        most_kb = most_kb.max(resident_kb(run.child.id()));
        thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed();
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(5), "{said}");
    for host in ["load1", "load2"] {
        assert!(said.contains(&format!("host `{host}` may still be changed")), "{said}");
        let command = hosts.command_line(host, "restore");
        assert!(said.contains(&format!("run `{command}`")), "{command}: {said}");
    }
    assert!(said.len() < 200_000, "{} bytes", said.len());
    // Both at the same time: one after the other they would take 15 s more of each.
    assert!(took < 2 * LEASE + 2 * WITHIN + Duration::from_secs(12), "{took:?}");
    assert!(most_kb < 200_000, "{most_kb} kB");
    assert_eq!(show_interfaces()[0], before[0]);
    assert!(processes_with("answers-without-end").is_empty());
    for host in ["load1", "load2"] {
        hosts.run_latput(host, &["restore"]);
    }
    assert_eq!(show_interfaces(), before);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn second_signal_tells_what_is_left() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let mut run = hosts.start();
    stop_agent("load1");
    interrupt_pid(run.child.id());
    wait_until("what is waited for", || run.read_stderr().contains("second Ctrl-C"));
    assert!(run.is_running());
    let begun = Instant::now();
    interrupt_pid(run.child.id());
    let (code, said) = run.wait_for_end();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("interrupted; host `load1` may still be changed"), "{said}");
    let command = hosts.command_line("load1", "restore");
    assert!(said.contains(&format!("run `{command}`")), "{said}");
    assert!(!said.contains("host `load2`") && !said.contains("host `sut`"), "{said}");
    let now = show_interfaces();
    assert_eq!((&now[0], &now[2]), (&before[0], &before[2]));
    for pid in processes_in("load1") {
        send_signal("CONT", pid);
    }
    wait_until("the third host to be put back", || show_interfaces() == before);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn stopped_controller_loses_hosts_and_resumes() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let mut run = hosts.start();
    send_signal("STOP", run.child.id());
    wait_until("the hosts to be put back", || show_interfaces() == before);
    wait_until("the agents to end", || agents_of(run.child.id()).iter().all(|pid| is_zombie(*pid)));
    let kept = hosts.place.count_trials("kept.db");
    send_signal("CONT", run.child.id());
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("its agent put the host back and ended"), "{said}");
    assert!(said.contains("its controller sent nothing for 2s"), "{said}");
    assert!(said.contains("run the same command again to resume"), "{said}");
    assert!(hosts.place.count_trials("kept.db") >= kept && kept >= 1);
    assert_eq!(show_interfaces(), before);
    let mut again = hosts.start();
    assert!(again.read_stderr().contains("resuming run 1"), "{}", again.read_stderr());
    interrupt_pid(again.child.id());
    assert_eq!(again.wait_for_end().0, Some(6));
    assert_eq!(show_interfaces(), before);
}

/// Trials of several leases each, in which the controller has nothing to say but pings, and nothing is lost.
#[needs("root", "ip", "ethtool")]
#[test]
fn controller_that_only_waits_keeps_its_hosts() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let plan = PLAN.replace("\"2s\"", "\"5s\"").replace("min = 200, max = 200", "min = 1, max = 1");
    hosts.place.write("plan.toml", &plan);
    hosts.place.run(&["run", "plan.toml", "--on", "hosts.toml"]).expect(0, &["2 trials"]);
    assert_eq!(show_interfaces(), before);
}

/// The process that reads what the controller and the traffic send has no rights, and the one that has them notices
/// when it hangs.
#[needs("root", "ip", "ethtool")]
#[test]
fn hung_agent_is_lost_to_its_keeper() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let mut run = hosts.start();
    for host in HOSTS {
        let AgentPids { keeper, agent } = AgentPids::find(host);
        for sets in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(read_status(agent, sets), "0000000000000000", "{host} {sets}");
        }
        assert_eq!(read_status(agent, "NoNewPrivs:"), "1");
        assert_eq!(read_status(agent, "Groups:"), "");
        assert_ne!(read_status(agent, "Uid:").split(' ').next(), Some("0"));
        assert_eq!(read_status(keeper, "Uid:"), "0 0 0 0");
    }
    send_signal("STOP", AgentPids::find("load1").agent);
    wait_until("its keeper to put the host back", || show_interfaces()[1] == before[1]);
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("host `load1`: its agent"), "{said}");
    assert_eq!(show_interfaces(), before);
    assert!(processes_in("load1").is_empty());
}

#[needs("root", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn hung_keeper_is_told_and_host_restored() {
    let hosts = HungHosts::set_up("");
    let before = show_interfaces();
    let mut run = hosts.start();
    send_signal("STOP", AgentPids::find("load1").keeper);
    let (code, said) = run.wait_for_end();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("its keeper") && said.contains("nothing for 2s"), "{said}");
    assert!(said.contains("running `latput restore` on load1"), "{said}");
    assert_eq!(show_interfaces(), before);
}

/// Three namespaces on a bridge in a fourth, and a testbed file that names them.
struct HungHosts {
    place: Place,
}

impl HungHosts {
    /// `before` is what a shell does on the way to the generators.
    fn set_up(before: &str) -> Self {
        isolate();
        let hosts = Self { place: Place::new() };
        run_ip(&["netns", "add", HUB]);
        run_ip(&["-n", HUB, "link", "add", "br0", "type", "bridge"]);
        run_ip(&["-n", HUB, "link", "set", "br0", "up"]);
        for (idx, host) in HOSTS.into_iter().enumerate() {
            let address = format!("198.18.8.{}/24", idx + 1);
            run_ip(&["netns", "add", host]);
            run_ip(&[
                "-n", HUB, "link", "add", host, "type", "veth", "peer", "eth0", "netns", host,
            ]);
            run_ip(&["-n", HUB, "link", "set", host, "master", "br0", "up"]);
            run_ip(&["-n", host, "address", "add", &address, "dev", "eth0"]);
            run_ip(&["-n", host, "link", "set", "eth0", "up"]);
            let way = format!("{before}\nexec ip netns exec {host} \"$@\"\n");
            hosts.place.write(host, if host == "sut" { "exec \"$@\"\n" } else { &way });
        }
        hosts.place.write("plan.toml", PLAN);
        hosts.place.write("hosts.toml", &hosts.testbed_toml());
        hosts
    }

    fn via_words(&self, host: &str) -> Vec<String> {
        let script = self.place.path(host).display().to_string();
        let inside = ["ip", "netns", "exec", "sut"].map(str::to_owned);
        let before = if host == "sut" { inside.to_vec() } else { Vec::new() };
        [&["sh".to_owned(), script][..], &before].concat()
    }

    /// The command line that runs latput there.
    fn command_line(&self, host: &str, args: &str) -> String {
        format!("{} {} {args}", self.via_words(host).join(" "), crate::latput_path())
    }

    fn testbed_toml(&self) -> String {
        let latput = crate::latput_path();
        let host = |(idx, name): (usize, &str)| {
            let role = if name == "sut" { "sut" } else { "generator" };
            format!(
                "[host.{name}]\nrole = \"{role}\"\ninterface = \"eth0\"\naddress = \"198.18.8.{}\"\n\
                 latput = \"{latput}\"\nvia = {:?}\n",
                idx + 1,
                self.via_words(name)
            )
        };
        let hosts: String = HOSTS.into_iter().enumerate().map(host).collect();
        format!("schema = 1\nlease = \"{}s\"\n{hosts}", LEASE.as_secs())
    }

    /// Runs latput on a host, whatever is on the way of the testbed.
    fn run_latput(&self, host: &str, args: &[&str]) {
        let ran =
            self.place.wrapped_command(&["ip", "netns", "exec", host], args).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }

    /// Starts the plan, and waits until a trial is kept and one that changes every host has just begun: today's
    /// values take turns with the plan's.
    fn start(&self) -> RunningPlan<'_> {
        let before = self.place.count_trials("kept.db");
        let child = self.place.start(&["run", "plan.toml", "--on", "hosts.toml", "-o", "kept.db"]);
        wait_until("a trial", || self.place.count_trials("kept.db") > before);
        let is_changed = || {
            let changed = [" mtu 1400 ", " mtu 1300 ", " mtu 1300 "];
            show_interfaces().iter().zip(changed).all(|(seen, changed)| seen.contains(changed))
        };
        wait_until("today's values", || !is_changed());
        wait_until("the plan's values", is_changed);
        RunningPlan { hosts: self, child }
    }
}

/// A run under way. Dropping it ends it and its agents.
struct RunningPlan<'a> {
    hosts: &'a HungHosts,
    child: Child,
}

impl RunningPlan<'_> {
    fn read_stderr(&self) -> String {
        std::fs::read_to_string(self.hosts.place.path("stderr")).unwrap()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn wait_for_end(&mut self) -> (Option<i32>, String) {
        wait_until("the run to end", || self.child.try_wait().unwrap().is_some());
        (self.child.wait().unwrap().code(), self.read_stderr())
    }
}

impl Drop for RunningPlan<'_> {
    fn drop(&mut self) {
        if self.is_running() {
            for agent in agents_of(self.child.id()) {
                kill_pid(agent);
            }
            kill_pid(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// The interface of each host as the kernel shows it.
fn show_interfaces() -> Vec<String> {
    let of = |host: &str| {
        let said = |program: &str, args: &[&str]| {
            let words = [&["netns", "exec", host, program][..], args].concat();
            let ran = Command::new("ip").args(words).output().unwrap();
            String::from_utf8(ran.stdout).unwrap()
        };
        let link = said("ip", &["-o", "link", "show", "eth0"]);
        assert!(link.contains(" mtu "), "{link}");
        format!("{link}{}", said("ethtool", &["-k", "eth0"]))
    };
    HOSTS.into_iter().map(of).collect()
}

/// Stops both processes of a host's agent.
fn stop_agent(host: &str) {
    let AgentPids { keeper, agent } = AgentPids::find(host);
    send_signal("STOP", keeper);
    send_signal("STOP", agent);
}

/// The two processes of a host's agent.
struct AgentPids {
    /// Has the rights.
    keeper: u32,
    /// Talks to the controller, and makes the traffic.
    agent: u32,
}

impl AgentPids {
    fn find(host: &str) -> Self {
        let [one, other] = processes_in(host)[..] else {
            panic!("two processes in {host}: {:?}", processes_in(host))
        };
        let is_kept = |pid: u32| words_of(pid).iter().any(|word| word == "--kept");
        assert_ne!(is_kept(one), is_kept(other));
        if is_kept(one) {
            Self { keeper: other, agent: one }
        } else {
            Self { keeper: one, agent: other }
        }
    }
}

fn processes_in(host: &str) -> Vec<u32> {
    let inside = Command::new("ip").args(["netns", "pids", host]).output().unwrap();
    let inside = String::from_utf8(inside.stdout).unwrap();
    inside.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn words_of(pid: u32) -> Vec<String> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split('\0').map(str::to_owned).collect()
}

/// A line of `/proc/PID/status`.
fn read_status(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn send_signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

fn is_zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| status.contains("State:\tZ"))
}

/// The processes that have this word in their command line.
fn processes_with(word: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| words_of(*pid).iter().any(|part| part == word)).collect()
}
