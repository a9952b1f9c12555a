//! Live traffic of a host that is reached by a real ssh, whose line is cut while another setting is in force: the host puts
//! today's setting back, and what has ended is kept.

use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use latput_testkit::needs;

use crate::live_traffic::RequestTraffic;
use crate::two_hosts::{SshHosts, run_ip};
use crate::{agents_of, descendants_of, interrupt_pid, is_gone, kill_pid, print_note, wait_until};

/// Without a goal or a guard no noise is measured: the first slice is of the other setting, and is half as long as the others.
const PLAN: &str = r#"
schema = 1
name = "live over ssh"
[factors]
"txqueuelen + gro" = [[1234, "off"]]
[[workload]]
kind = "live"
ports = [7000]
slice = "12s"
disruptive = ["gro"]
[method]
beside = true # other tests run
budget = "300s"
repetitions = { min = 2, max = 2 }
"#;
/// Rows of the first block: one of today, one of the other setting.
const FIRST_BLOCK: i64 = 2;

#[needs("root", "/usr/sbin/sshd", "ip", "ethtool")]
#[test]
fn killed_ssh_ends_run_with_todays_setting() {
    let mut run = LiveRun::start(PLAN, FIRST_BLOCK);
    kill_pid(run.ssh_pid());
    run.await_today("a kill of ssh", Duration::from_secs(9));
    let said = run.wait_for_exit(6);
    assert!(said.contains("host `198.18.9.1`: its agent ended"), "{said}");
    assert!(said.contains("2 of 4 trials are kept"), "{said}");
    run.check_all_is_as_it_was();
}

/// The traffic goes on, and nothing tells the host that nobody hears it: only its lease of 10 s can end a slice of 30 s.
#[needs("root", "/usr/sbin/sshd", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn silent_cut_ends_slice_by_lease() {
    let mut run = LiveRun::start(&PLAN.replace("12s", "60s"), 0);
    let requests = run.request_count();
    run_ip(&["address", "del", "198.18.9.254/24", "dev", "hub0"]);
    run.await_today("a cut of the controller's way", Duration::from_secs(20));
    assert!(run.request_count() > requests, "the traffic does not go by the controller");
    run_ip(&["address", "add", "198.18.9.254/24", "dev", "hub0"]);
    // No block had ended.
    let said = run.wait_for_exit(1);
    let reason = "host `198.18.9.1`: its agent put the host back and ended: its controller sent nothing for 10s";
    assert!(said.contains(reason), "{said}");
    run.check_all_is_as_it_was();
}

/// The link is down for the traffic too, and stays down until the run has ended.
#[needs("root", "/usr/sbin/sshd", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn lasting_link_down_names_the_host() {
    let mut run = LiveRun::start(PLAN, FIRST_BLOCK);
    run_ip(&["link", "set", "server", "down"]);
    run.await_today("a link that went down", Duration::from_secs(9));
    wait_until("what is waited for", || run.hosts.read_stderr().contains("second Ctrl-C"));
    while run.child.try_wait().unwrap().is_none() {
        interrupt_pid(run.child.id());
        std::thread::sleep(Duration::from_millis(100));
    }
    let said = run.wait_for_exit(5);
    assert!(said.contains("host `198.18.9.1` may still be changed"), "{said}");
    assert!(said.contains("lab exec ssh://root@198.18.9.1 -- latput restore"), "{said}");
    assert!(said.contains("2 of 4 trials are kept"), "{said}");
    run_ip(&["link", "set", "server", "up"]);
    run.check_all_is_as_it_was();
}

/// A run whose first blocks have ended, with another setting in force.
struct LiveRun {
    hosts: SshHosts,
    traffic: RequestTraffic,
    child: Child,
    /// The host before latput came, as other programs show it.
    before: String,
    /// Processes in the host's namespace.
    sshd: Vec<u32>,
    /// Processes that the run has started here.
    started: Vec<u32>,
    /// Rows of the blocks that have ended.
    rows: i64,
}

impl LiveRun {
    fn start(plan: &str, rows: i64) -> Self {
        let hosts = SshHosts::with_sshds().with_own_boots();
        run_ip(&["netns", "exec", "server", "ethtool", "-K", "eth0", "gro", "on"]);
        let traffic = RequestTraffic::start_between("client", "server", "198.18.9.1");
        hosts.place.write("plan.toml", plan);
        let (before, sshd) = (show_interface(), server_pids());
        let words = ["tune", "plan.toml", "ssh://root@198.18.9.1%eth0", "-o", "kept.db"];
        let mut child = hosts.start(&words);
        let mut is_ended = || child.try_wait().unwrap().is_some();
        wait_until("the blocks before", || {
            hosts.place.count_trials("kept.db") >= rows || is_ended()
        });
        wait_until("the other setting", || queue_length() == "1234" || is_ended());
        assert!(!is_ended(), "{}", hosts.read_stderr());
        for word in ["generic-receive-offload: off", "qlen 1234"] {
            assert!(!before.contains(word));
            wait_until(word, || show_interface().contains(word));
        }
        let started = descendants_of(child.id());
        Self { hosts, traffic, child, before, sshd, started, rows }
    }

    /// The process that holds the line.
    fn ssh_pid(&self) -> u32 {
        let ssh = agents_of(self.child.id());
        assert_eq!(ssh.len(), 1);
        ssh[0]
    }

    fn request_count(&self) -> u64 {
        self.traffic.requests.load(Ordering::Relaxed)
    }

    /// Waits until the host is as it was, which is before the slice ends by itself.
    #[track_caller]
    fn await_today(&self, after: &str, within: Duration) {
        let begun = Instant::now();
        wait_until("today's setting", || {
            queue_length() != "1234" && show_interface() == self.before
        });
        let waited = begun.elapsed();
        print_note(&format!("after {after} today's setting was back in {} ms", waited.as_millis()));
        assert!(waited < within, "the slice may have ended by itself");
    }

    /// Waits for the end with this exit code; returns what was said.
    #[track_caller]
    fn wait_for_exit(&mut self, code: i32) -> String {
        wait_until("the run to end", || self.child.try_wait().unwrap().is_some());
        let said = self.hosts.read_stderr();
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{said}");
        said
    }

    /// The host is as it was, nothing of latput runs there or here, the blocks that ended are kept and the traffic goes on.
    #[track_caller]
    fn check_all_is_as_it_was(&self) {
        wait_until("the end of all that was started here", || {
            self.started.iter().all(|&pid| is_gone(pid))
        });
        // An sshd may still have answered a connection that only tried whether it is there.
        wait_until("the end of all that was started there", || {
            server_pids().iter().all(|pid| self.sshd.contains(pid))
        });
        assert_eq!(show_interface(), self.before);
        let restored = self.hosts.run_ssh(&["latput", "restore"]);
        restored.expect(0, &["nothing to restore"]);
        let requests = self.request_count();
        wait_until("the traffic to go on", || self.request_count() > requests);
        if self.rows == 0 {
            return;
        }
        let report = self.hosts.run(&["report", "kept.db", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&report.out).unwrap();
        let rows = report["runs"].as_array().unwrap();
        assert_eq!(i64::try_from(rows.len()).unwrap(), self.rows, "{report:#}");
        assert!(rows.iter().any(|row| row["setting"] == 1), "{report:#}");
    }
}

impl Drop for LiveRun {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            kill_pid(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// The host's interface as `ip`, `ethtool` and sysfs show it.
fn show_interface() -> String {
    let script = "ip link show eth0 | grep -o 'qlen.*'; ethtool -k eth0; tc qdisc show dev eth0; \
                  cd /sys/class/net/eth0; cat gro_flush_timeout napi_defer_hard_irqs mtu";
    let ran =
        Command::new("ip").args(["netns", "exec", "server", "sh", "-c", script]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

fn queue_length() -> String {
    let path = "/sys/class/net/eth0/tx_queue_len";
    let ran = Command::new("ip").args(["netns", "exec", "server", "cat", path]).output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// Processes in the host's namespace.
fn server_pids() -> Vec<u32> {
    let ran = Command::new("ip").args(["netns", "pids", "server"]).output().unwrap();
    let pids = String::from_utf8(ran.stdout).unwrap();
    pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
