//! Faults of the network between a controller and its hosts, which it reaches by a real ssh: each host is put back, and the
//! exit code is that of the table.

use std::fs::File;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use latput_testkit::needs;

use crate::two_hosts::{SshHosts, queue_lengths, run_ip};
use crate::{agents_of, interrupt_pid, kill_pid, wait_until};

/// More trials than any of these tests runs through; each changes both hosts.
const PLAN: &str = r#"
schema = 1
name = "faults"
[factors]
"sut.txqueuelen" = [501]
"generator.txqueuelen" = [502]
[[workload]]
kind = "tcp_rr"
[method]
design = "blocks"
repetitions = { min = 500, max = 500 }
warmup = "50ms"
duration = "500ms"
"#;
const CHANGED: [&str; 2] = ["501", "502"];
/// The lease of these tests is 2 s.
const HALF_A_LEASE: Duration = Duration::from_secs(1);
/// Longer than two trials of today's setting take, one after the other.
const SEVERAL_TRIALS: Duration = Duration::from_secs(4);

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn healed_cut_after_lease_restores_hosts() {
    let mut run = FaultRun::start();
    set_link("server", "down");
    run.wait_until_put_back();
    set_link("server", "up");
    let said = run.end_restored(6);
    assert!(said.contains("host `sut`"), "{said}");
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn lasting_cut_names_lost_host() {
    let mut run = FaultRun::start();
    set_link("server", "down");
    run.wait_until_put_back();
    wait_until("what is waited for", || run.read_stderr().contains("second Ctrl-C"));
    interrupt_pid(run.child.id());
    interrupt_until_it_ends(&mut run.child);
    let said = run.end_restored(5);
    assert!(said.contains("host `sut` may still be changed"), "{said}");
    assert!(said.contains("ssh root@198.18.9.1") && said.contains("restore"), "{said}");
    assert!(!said.contains("host `generator` may"), "{said}");
}

/// Messages from the host are lost, and those to it arrive.
#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn half_open_line_counts_as_cut() {
    let mut run = FaultRun::start();
    run_ip(&["-n", "server", "route", "add", "blackhole", "198.18.9.254/32"]);
    run.wait_until_put_back();
    run_ip(&["-n", "server", "route", "del", "blackhole", "198.18.9.254/32"]);
    run.end_restored(6);
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn delay_within_lease_costs_nothing() {
    let mut run = FaultRun::start();
    let trials = run.count_trials();
    for ssh in agents_of(run.child.id()) {
        send_signal("STOP", ssh);
    }
    thread::sleep(HALF_A_LEASE);
    for ssh in agents_of(run.child.id()) {
        send_signal("CONT", ssh);
    }
    run.wait_for_trials(trials + 2);
    wait_until("both to be changed", || queue_lengths() == CHANGED);
    let ssh = agents_of(run.child.id());
    for ssh in &ssh {
        send_signal("STOP", *ssh);
    }
    run.wait_until_put_back();
    for ssh in ssh {
        send_signal("CONT", ssh);
    }
    run.end_restored(6);
}

/// The network delays each frame for another time, so that frames overtake each other, and sends some twice: answers come
/// late and their parts in another order, and the run loses nothing by it.
#[needs("python3", "ethtool", "root", "/usr/sbin/sshd", "ip")]
#[test]
fn answers_that_overtake_each_other_cost_nothing() {
    let mut run = FaultRun::start();
    let _relay = FrameRelay::start(&run);
    let trials = run.count_trials();
    run.wait_for_trials(trials + 3);
    wait_until("parts that came in another order", || arrived_out_of_order() > 0);
    wait_until("both to be changed", || queue_lengths() == CHANGED);
    interrupt_pid(run.child.id());
    run.end_restored(6);
}

#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn flapping_interface_leaves_nothing_changed() {
    let mut run = FaultRun::start();
    for _ in 0..4 {
        set_link("server", "down");
        thread::sleep(Duration::from_millis(500));
        set_link("server", "up");
        thread::sleep(Duration::from_millis(500));
    }
    interrupt_pid(run.child.id());
    run.end_restored(6);
}

/// Its processes keep the namespace: only its name is gone.
#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
fn unnamed_namespace_is_still_restored() {
    let mut run = FaultRun::start();
    let sshd = Command::new("ip").args(["netns", "pids", "client"]).output().unwrap();
    let sshd = String::from_utf8(sshd.stdout).unwrap();
    let sshd = sshd.split_whitespace().next().unwrap().to_owned();
    let trials = run.count_trials();
    run_ip(&["netns", "del", "client"]);
    run.wait_for_trials(trials + 1);
    interrupt_pid(run.child.id());
    run.end_with(6);
    let shown = Command::new("nsenter")
        .args(["-t", &sshd, "-n", "ip", "link", "show", "eth0"])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("qlen {}", run.before[1])), "{shown}");
}

/// The interface of one host is gone, and with it what was changed: the other host is put back.
#[needs("root", "/usr/sbin/sshd", "ip")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn deleted_interface_ends_run_and_restores_other() {
    let mut run = FaultRun::start();
    run_ip(&["-n", "client", "link", "del", "eth0"]);
    wait_until("the server to be put back", || run.is_put_back("server", 0));
    wait_until("the run to end", || run.child.try_wait().unwrap().is_some());
    let code = run.child.wait().unwrap().code();
    assert!(matches!(code, Some(5 | 6)), "{code:?} {}", run.read_stderr());
    assert!(run.read_stderr().contains("generator"), "{}", run.read_stderr());
}

/// A run under way, which has changed both hosts.
struct FaultRun {
    hosts: SshHosts,
    child: Child,
    before: Vec<String>,
}

impl FaultRun {
    fn start() -> Self {
        let hosts = SshHosts::with_sshds();
        let latput = crate::latput_path();
        let host = |name: &str, role: &str, number: u8| {
            format!(
                "[host.{name}]\nrole = \"{role}\"\ninterface = \"eth0\"\naddress = \"198.18.9.{number}\"\n\
                 latput = \"{latput}\"\nvia = [\"ssh\", \"root@198.18.9.{number}\"]\n"
            )
        };
        let testbed = [host("sut", "sut", 1), host("generator", "generator", 2)].concat();
        hosts.place.write("hosts.toml", &format!("schema = 1\nlease = \"2s\"\n{testbed}"));
        hosts.place.write("plan.toml", PLAN);
        let before = queue_lengths();
        let to = |name: &str| File::create(hosts.place.path(name)).unwrap();
        let mut command =
            hosts.latput_command(&["run", "plan.toml", "--on", "hosts.toml", "-o", "kept.db"]);
        let child = command.stdout(to("stdout")).stderr(to("stderr")).spawn().unwrap();
        wait_until("a trial", || hosts.place.count_trials("kept.db") > 0);
        wait_until("both to be changed", || queue_lengths() == CHANGED);
        Self { hosts, child, before }
    }

    fn count_trials(&self) -> i64 {
        self.hosts.place.count_trials("kept.db")
    }

    /// Waits until the run has made so many trials; it may not end before.
    #[track_caller]
    fn wait_for_trials(&mut self, count: i64) {
        wait_until("the run to go on", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.read_stderr());
            self.count_trials() >= count
        });
    }

    /// Waits until both hosts are as before, and stay so: in every other trial of the run they are for a moment.
    fn wait_until_put_back(&self) {
        let mut since = None;
        wait_until("both hosts to be put back", || {
            let is_put_back = queue_lengths() == self.before;
            since = is_put_back.then(|| since.unwrap_or_else(Instant::now));
            since.is_some_and(|since| since.elapsed() > SEVERAL_TRIALS)
        });
    }

    fn read_stderr(&self) -> String {
        std::fs::read_to_string(self.hosts.place.path("stderr")).unwrap()
    }

    fn is_put_back(&self, host: &str, idx: usize) -> bool {
        let shown = Command::new("ip").args(["-n", host, "link", "show", "eth0"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.contains(&format!("qlen {}", self.before[idx]))
    }

    /// Waits for the end with this exit code; returns what was said.
    #[track_caller]
    fn end_with(&mut self, code: i32) -> String {
        wait_until("the run to end", || self.child.try_wait().unwrap().is_some());
        let said = self.read_stderr();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{said}");
        said
    }

    /// The same, and sees that both hosts are as they were.
    #[track_caller]
    fn end_restored(&mut self, code: i32) -> String {
        let said = self.end_with(code);
        assert_eq!(queue_lengths(), self.before, "{said}");
        said
    }
}

impl Drop for FaultRun {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            for ssh in agents_of(self.child.id()) {
                send_signal("CONT", ssh);
                kill_pid(ssh);
            }
            kill_pid(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// Stands between the server and the bridge, and passes frames on in another order.
struct FrameRelay(Child);

impl FrameRelay {
    fn start(run: &FaultRun) -> Self {
        // It passes on what fits into a frame, with its checksum.
        let plain = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        for host in ["server", "client"] {
            run_checked("ip", &["netns", "exec", host, "ethtool", "-K", "eth0"], &plain);
        }
        run_checked("ethtool", &["-K", "hub0"], &plain);
        run_ip(&["link", "add", "relay0", "type", "veth", "peer", "name", "relay1"]);
        for end in ["relay0", "relay1"] {
            run_checked("ethtool", &["-K", end], &plain);
            run_ip(&["link", "set", end, "promisc", "on", "up"]);
        }
        let to = |name: &str| File::create(run.hosts.place.path(name)).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("reordering_relay.py"), "server", "relay0"]);
        command.stdout(to("relay-stdout")).stderr(to("relay-stderr"));
        let relay = Self(command.spawn().unwrap());
        // The line is cut only for these two commands: Python takes longer to start than a lease lasts on a busy machine.
        let said = || std::fs::read_to_string(run.hosts.place.path("relay-stdout")).unwrap();
        wait_until("the relay to be ready", || said().contains("ready"));
        run_ip(&["link", "set", "server", "nomaster", "promisc", "on"]);
        run_ip(&["link", "set", "relay1", "master", "hub0"]);
        relay
    }
}

impl Drop for FrameRelay {
    fn drop(&mut self) {
        kill_pid(self.0.id());
        let _ended = self.0.wait();
    }
}

#[track_caller]
fn run_checked(program: &str, args: &[&str], more: &[&str]) {
    let ran = Command::new(program).args(args).args(more).output().unwrap();
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Segments that the controller got before an earlier one of their connection (`TCPOFOQueue`).
fn arrived_out_of_order() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(name, _)| *name == "TCPOFOQueue").unwrap().1.parse().unwrap()
}

fn interrupt_until_it_ends(child: &mut Child) {
    wait_until("the run to end", || {
        interrupt_pid(child.id());
        thread::sleep(Duration::from_millis(100));
        child.try_wait().unwrap().is_some()
    });
}

/// The port of a host at the bridge.
fn set_link(host: &str, state: &str) {
    run_ip(&["link", "set", host, state]);
}

fn send_signal(name: &str, pid: u32) {
    // One that has ended needs no signal.
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
}
