//! Plans on the lab, and everything that can befall a run.

use std::process::Command;
use std::time::Duration;

use latput_testkit::{isolate, needs};

use crate::root_settings::Lab;
use crate::{
    Place, agents_of, interrupt_pid, is_told_of_a_killed_agent, kill_pid, namespaces_in_use,
    wait_until,
};

const PLAN: &str = r#"
schema = 1
name = "short"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["20ms", 100]]
[[workload]]
kind = "tcp_rr"
[[workload]]
kind = "tcp_stream"
probe_hz = 200
[[workload]]
kind = "udp_stream"
rate = "20Mbps"
[method]
beside = true # other tests run
design = "blocks"
repetitions = { min = 3, max = 3 }
warmup = "200ms"
duration = "500ms" # longer than TCP's shortest retransmission timeout: one lost packet is no standstill
"#;
const TRIALS: i64 = 18;

#[needs("root")]
#[test]
fn tune_recommends_and_restores_the_machine() {
    isolate();
    let place = place_with_plan();
    let ran = place.run(&["tune", "plan.toml"]);
    ran.expect(0, &["today (0us)", "gro-flush-timeout", "latput-report.html"]);
    assert!(!ran.out.contains("latput set"), "nobody is told to set what is there: {ran:#?}");
    assert_eq!(place.count_trials("latput-results.db"), TRIALS);
    let page = std::fs::read_to_string(place.path("latput-report.html")).unwrap();
    assert!(page.contains("gro-flush-timeout=20ms"));
    crate::recomputed::check_report(&place, "latput-results.db");
    let db = rusqlite::Connection::open(place.path("latput-results.db")).unwrap();
    let count = |metric: &str| -> i64 {
        let query = "SELECT count(*) FROM figure WHERE metric = ?1";
        db.query_row(query, [metric], |row| row.get(0)).unwrap()
    };
    // Each of these is in every trial that its workload has it in.
    for (metric, trials) in [
        ("latency_ns_p99", 6),
        ("transactions_per_s", 6),
        ("throughput_bps", 12),
        ("probe_ns_p99", 6),
        ("loss_ratio", 6),
        ("jitter_ns", 6),
        ("reordered_ratio", 6),
        ("sut_cpu_busy_ratio", 18),
        ("generator_service_demand_us", 18),
        ("sut_rx_pps", 18),
    ] {
        assert_eq!(count(metric), trials, "{metric}");
    }
    // Polls are counted in a traced span of the warm-up, which other tests may hold up.
    for metric in ["sut_polls_per_s", "sut_packets_per_poll"] {
        assert!((1..=TRIALS).contains(&count(metric)), "{metric}: {}", count(metric));
    }
    // The knob really holds packets back: a round trip waits for two timers.
    let latency = |setting: u32| -> f64 {
        let query = "SELECT min(value) FROM figure JOIN trial ON trial = id \
                     WHERE metric = 'latency_ns_p50' AND setting = ?1";
        db.query_row(query, [setting], |row| row.get(0)).unwrap()
    };
    assert!(latency(1) > 2.0 * latency(0), "{} against {}", latency(1), latency(0));
}

/// Cheap knobs, and nothing said of the design.
#[needs("root")]
#[test]
fn settings_alternate_in_slices() {
    isolate();
    isolate();
    let place = Place::new();
    let (head, _) = PLAN.split_once("[[workload]]").unwrap();
    let method =
        "[method]\nrepetitions = { min = 2, max = 2 }\nduration = \"1s\"\nwarmup = \"100ms\"\n";
    let plan = format!("{head}[[workload]]\nkind = \"tcp_rr\"\n{method}").replace("20ms", "1ms");
    place.write("plan.toml", &plan);
    let ran = place.run(&["tune", "plan.toml", "--beside"]);
    ran.expect(0, &["settings alternate in slices of", "today (0us)"]);
    let db = rusqlite::Connection::open(place.path("latput-results.db")).unwrap();
    let one = |query: &str| -> f64 { db.query_row(query, [], |row| row.get(0)).unwrap() };
    let count = |query: &str| -> i64 { db.query_row(query, [], |row| row.get(0)).unwrap() };
    let rounds = count("SELECT max(block) + 1 FROM trial");
    assert!(rounds >= 2, "{rounds}: a noisy machine has longer slices and fewer rounds");
    let twice =
        "SELECT count(*) FROM (SELECT 1 FROM trial GROUP BY block, setting HAVING count(*) > 1)";
    assert_eq!(count(twice), 0, "each setting has one slice in each round");
    assert_eq!(count("SELECT count(*) FROM trial WHERE setting = 0"), rounds);
    // Each slice has its own setting, its own counts and its own CPU time.
    let median = |setting: u32| {
        one(&format!(
            "SELECT value FROM figure JOIN trial ON trial = id WHERE metric = 'latency_ns_p50' AND \
             setting = {setting} ORDER BY value LIMIT 1 OFFSET (SELECT count(*) / 2 FROM trial WHERE \
             setting = {setting})"
        ))
    };
    // The second waits for a timer of a millisecond, at either end.
    assert!(median(1) > median(0) + 5e5, "{} against {}", median(1), median(0));
    let cpu = "SELECT count(*) FROM figure WHERE metric = 'sut_cpu_busy_ratio' AND value > 0";
    assert!(count(cpu) >= rounds, "each slice has CPU time");
}

#[needs("root")]
#[test]
fn killed_run_resumes_at_next_trial() {
    isolate();
    let place = place_with_plan();
    let mut child = place.start(&["run", "plan.toml", "-o", "kept.db"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 4);
    let namespaces = namespaces_of_agents(child.id());
    assert_eq!(namespaces.len(), 2);
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until_gone(&namespaces);
    let kept = place.count_trials("kept.db");
    assert!((4..TRIALS).contains(&kept), "{kept}");
    place.run(&["run", "plan.toml", "-o", "kept.db"]).expect(0, &["resuming run 1", "short"]);
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    let list = place.run(&["report", "kept.db", "--list"]);
    assert_eq!(list.expect(0, &["18 trials, complete"]).out.lines().count(), 1);
    // A finished run is not resumed: the same command adds another.
    place.run(&["run", "plan.toml", "-o", "kept.db"]).expect(0, &["run 2"]);
}

#[needs("root")]
#[test]
fn killed_agent_keeps_finished_trials() {
    isolate();
    let place = place_with_plan();
    let mut child = place.start(&["run", "plan.toml", "-o", "kept.db"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 2);
    let namespaces = namespaces_of_agents(child.id());
    kill_pid(agents_of(child.id())[0]);
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(6), "{said}");
    assert!(["a", "b"].iter().any(|host| is_told_of_a_killed_agent(&said, host)), "{said}");
    assert!(said.contains("run the same command again"), "{said}");
    assert!(place.count_trials("kept.db") >= 2);
    wait_until_gone(&namespaces);
    place.run(&["run", "plan.toml", "-o", "kept.db"]).expect(0, &["resuming"]);
    assert_eq!(place.count_trials("kept.db"), TRIALS);
}

#[needs("root")]
#[test]
fn interrupt_keeps_finished_trials() {
    isolate();
    let place = place_with_plan();
    let mut child = place.start(&["tune", "plan.toml"]);
    wait_until("some trials", || place.count_trials("latput-results.db") >= 2);
    let namespaces = namespaces_of_agents(child.id());
    interrupt_pid(child.id());
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    wait_until_gone(&namespaces);
    assert!((2..TRIALS).contains(&place.count_trials("latput-results.db")));
}

#[needs("root")]
#[test]
fn second_latput_on_lab_is_refused() {
    isolate();
    let place = place_with_plan();
    let mut child = place.start(&["run", "plan.toml", "-o", "kept.db"]);
    wait_until("a trial", || place.count_trials("kept.db") >= 1);
    let pid = child.id().to_string();
    place.run(&["run", "plan.toml", "-o", "other.db"]).expect(1, &["another latput", &pid]);
    let measure = ["measure", "loopback", "--workload", "tcp_rr", "-o", "kept.db"];
    place.run(&measure).expect(1, &["another latput is writing", "kept.db"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(place.count_trials("kept.db"), TRIALS);
}

#[needs("root")]
#[test]
fn full_disk_loses_no_finished_trial() {
    isolate();
    let place = place_with_plan();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=400k", "none"])
        .arg(&disk)
        .status()
        .unwrap();
    assert!(mounted.success());
    let full = place.run(&["run", "plan.toml", "-o", "disk/kept.db"]);
    let kept = place.count_trials("disk/kept.db");
    let resized =
        Command::new("mount").args(["-o", "remount,size=20m"]).arg(&disk).status().unwrap();
    let resumed = place.run(&["run", "plan.toml", "-o", "disk/kept.db"]);
    let all = place.count_trials("disk/kept.db");
    Command::new("umount").arg(&disk).status().unwrap();
    full.expect(6, &["disk is full", "kept.db"]);
    assert!(kept > 0 && kept < TRIALS, "{kept}");
    assert!(resized.success());
    resumed.expect(0, &["resuming"]);
    assert_eq!(all, TRIALS);
}

#[needs("root")]
#[test]
fn refused_knob_ends_run_before_start() {
    isolate();
    let place = Place::new();
    let plan =
        PLAN.replace("[[\"0us\", 0], [\"20ms\", 100]]", "[[\"0us\", 0]]\nrps-cpus = [\"8000\"]");
    place.write("plan.toml", &plan);
    let ran = place.run(&["run", "plan.toml", "-o", "kept.db"]);
    ran.expect(2, &["`a`: lat0: rps-cpus cannot be set here: CPUs 8000 are not online"]);
    assert!(!place.path("kept.db").exists());
}

/// The kernel rounds the number of flows up to a power of two.
#[needs("root")]
#[test]
fn level_that_reads_as_another_is_skipped() {
    isolate();
    let place = Place::new();
    let plan = PLAN
        .replace(
            "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"20ms\", 100]]",
            "rps-flow-cnt = [0, 64, 60]",
        )
        .replace("beside = true", "on_unsupported = \"skip\"\nbeside = true")
        .replace("min = 3, max = 3", "min = 1, max = 1");
    place.write("plan.toml", &plan);
    let ran = place.run(&["run", "plan.toml", "-o", "kept.db"]);
    let words = "skipped: `rps-flow-cnt=60`: the host keeps 64, the same as with `rps-flow-cnt=64`";
    assert!(ran.err.contains(words), "{ran:#?}");
    assert_eq!(place.count_trials("kept.db"), 2 * 3, "{ran:#?}");
    place.run(&["report", "kept.db"]).expect(0, &[words]);
}

#[needs("root")]
#[test]
fn state_folder_is_empty_after_a_run() {
    isolate();
    let place = place_with_plan();
    place.run(&["measure", "lab", "--workload", "tcp_rr", "--repetitions", "1"]).expect(0, &[]);
    let left: Vec<_> = std::fs::read_dir(place.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The same path that ssh takes: a testbed file whose hosts are reached by a command.
#[needs("root")]
#[test]
fn testbed_hosts_are_reached_by_command() {
    isolate();
    let place = place_with_testbed();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let ran = place.run(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db"]);
    ran.expect(0, &["on testbed.toml", "gro-flush-timeout"]);
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    assert_eq!(lab.read_knobs(), before);
}

/// Addresses of the family that the lab does not give.
#[needs("root", "ip", "sysctl")]
#[test]
fn every_kind_of_traffic_flows_over_ipv6() {
    isolate();
    let place = Place::new();
    let _lab = Lab::set_up(&place);
    let hosts = [("a", "generator", "fd00:77::1"), ("b", "sut", "fd00:77::2")];
    let mut testbed = "schema = 1\n".to_owned();
    for (name, role, address) in hosts {
        let script = format!(
            "sysctl -q net.ipv6.conf.lat0.disable_ipv6=0 && ip addr add {address}/64 dev lat0 nodad"
        );
        place.run(&["lab", "exec", name, "--", "sh", "-c", &script]).expect(0, &[]);
        testbed += &host_toml(name, role, address, "/usr/bin/env", crate::latput_path());
    }
    place.write("testbed.toml", &testbed);
    let kinds = [
        "tcp_rr",
        "tcp_crr",
        "tcp_stream",
        "tcp_maerts",
        "tcp_bidir",
        "fetch",
        "rpc_read",
        "udp_stream",
        "udp_rr",
        "ping",
    ];
    let workloads = kinds.map(|kind| format!("[[workload]]\nkind = \"{kind}\"\nprobe_hz = 100\n"));
    let workloads = workloads.concat().replace("\"ping\"\nprobe_hz = 100", "\"ping\"");
    let method = "[method]\ndesign = \"blocks\"\nrepetitions = { min = 2, max = 2 }\nwarmup = \"50ms\"\n\
                  duration = \"500ms\"\n";
    place.write(
        "plan.toml",
        &format!(
            "schema = 1\nname = \"IPv6\"\n[factors]\ntxqueuelen = [1000]\n{workloads}{method}"
        ),
    );
    let ran = place.run(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db"]);
    ran.expect(0, &["IPv6 on testbed.toml"]);
    assert_eq!(usize::try_from(place.count_trials("kept.db")).unwrap(), 2 * kinds.len());
}

/// Buffers beyond the sysctls, busy polling and raw ICMP: the process that makes the traffic has no right to any.
#[needs("root")]
#[test]
fn keeper_grants_what_traffic_lacks() {
    isolate();
    let place = Place::new();
    for kind in ["tcp_rr", "tcp_crr", "udp_rr"] {
        let workload = [
            &["measure", "lab", "--workload", kind, "name=rights", "probe_hz=100"][..],
            &["send_buffer_bytes=4000000", "receive_buffer_bytes=8000000"],
            &["busy_poll=50us", "prefer_busy_poll=on"],
            &["--duration", "100ms", "--repetitions", "1..1"],
        ];
        place.run(&workload.concat()).expect(0, &["rate"]);
    }
}

/// The far end's link is down for a second from the moment it is told to start its first trial.
#[needs("root", "ip")]
#[test]
fn broken_traffic_is_retried_and_noted() {
    isolate();
    let place = place_with_testbed();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let (latput, marker) = (crate::latput_path(), place.path("pulled"));
    let script = format!(
        "#!/bin/sh\nwhile IFS= read -r line; do\ncase \"$line\" in '{{\"go\":'*)\n\
         if [ ! -e '{marker}' ]; then touch '{marker}'; ip link set lat0 down; \
         (sleep 1; ip link set lat0 up) & fi;;\nesac\nprintf '%s\\n' \"$line\"\n\
         done | '{latput}' \"$@\"\n",
        marker = marker.display()
    );
    place.write("agent.sh", &script);
    write_testbed(&place, "/bin/sh", &place.path("agent.sh").display().to_string());
    let ran = place.run(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db"]);
    ran.expect(0, &["in block 0 was lost and tried again: host `"]);
    assert!(marker.exists());
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    assert_eq!(lab.read_knobs(), before);
    let report = place.run(&["report", "kept.db"]);
    report.expect(0, &["was lost and tried again"]);
}

/// Two of them somebody changes: one that the plan sets, and one that nobody has a say in but him.
#[needs("root", "ip")]
#[test]
fn administrator_wins_over_a_run() {
    isolate();
    let place = place_with_testbed();
    let plan = PLAN.replace("[factors]", "[factors]\ntxqueuelen = [500]");
    place.write("plan.toml", &plan);
    let lab = Lab::set_up(&place);
    let somebody = |words: &[&str]| {
        let ran = place.run(&[&["lab", "exec", "b", "--"], words].concat());
        ran.expect(0, &[]);
    };
    let mut child =
        place.start(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db", "--beside"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 2);
    // A setting of the plan has just begun; today's take turns with them.
    let is_set = || lab.read_knobs().to_string().contains("\"500\"");
    wait_until("today's setting", || !is_set());
    wait_until("a setting of the plan", is_set);
    somebody(&["ip", "link", "set", "lat0", "txqueuelen", "77", "mtu", "1499"]);
    wait_until("the end", || child.try_wait().unwrap().is_some());
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    // Trials of a knob that is somebody else's compare nothing, so there may be no answer.
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 6)), "{said}");
    let told = "b: another program changed txqueuelen (device) from 500 to 77";
    assert_eq!(said.matches(told).count(), 1, "{said}");
    let now = lab.read_knobs().to_string();
    assert!(now.contains("\"1499\"") && now.contains("\"77\""), "{now}");
    assert!(!now.contains("20ms"), "the rest is put back: {now}");
    // The trial in which it happened and all after it are marked.
    let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
    let marked = "SELECT count(*) FROM trial WHERE observation LIKE '%txqueuelen was changed by another program%'";
    let marked: i64 = db.query_row(marked, [], |row| row.get(0)).unwrap();
    let trials = place.count_trials("kept.db");
    assert!((trials / 2..trials).contains(&marked), "{marked} of {trials}");
}

/// Where sysfs is read-only, as in a container, only the NAPIs have the value, and a veth makes them anew.
#[needs("root", "ip", "unshare")]
#[test]
fn value_lost_with_the_link_is_set_again() {
    isolate();
    let place = place_with_testbed();
    let mount = "mount -o bind,remount,ro /sys && exec \"$0\" \"$@\"";
    let agent =
        format!("#!/bin/sh\nexec unshare -m sh -c '{mount}' '{}' \"$@\"\n", crate::latput_path());
    place.write("agent.sh", &agent);
    write_testbed(&place, "/bin/sh", &place.path("agent.sh").display().to_string());
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let mut child =
        place.start(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db", "--beside"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 2);
    // A trial may end between the look and the link's going down.
    let flap = format!(
        "'{}' show lat0 gro-flush-timeout | grep -q 20ms && {{ ip link set lat0 down; ip link set lat0 up; }}",
        crate::latput_path()
    );
    let told = "gro-flush-timeout (napi of rx-0) fell from 20ms to 0us when the link went down and up: it is set again";
    wait_until("a value that is lost", || {
        lab.b_sh(&flap);
        std::thread::sleep(Duration::from_secs(1));
        std::fs::read_to_string(place.path("stderr")).unwrap().contains(told)
    });
    wait_until("it to be set again", || lab.read_knobs().to_string().contains("\"20ms\""));
    wait_until("the end", || child.try_wait().unwrap().is_some());
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 6)), "{said}");
    assert!(!said.contains("by somebody else"), "{said}");
    let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
    let marked = "SELECT count(*) FROM trial WHERE observation LIKE '%is somebody else%'";
    assert_eq!(db.query_row(marked, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    let values = |knobs: &serde_json::Value| {
        let knobs = knobs.as_array().unwrap().iter();
        knobs.map(|knob| knob["values"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(values(&lab.read_knobs()), values(&before));
}

#[needs("root")]
#[test]
fn restore_follows_a_killed_agent() {
    isolate();
    let place = place_with_testbed();
    let lab = Lab::set_up(&place);
    let before = lab.read_knobs();
    let mut child = place.start(&["run", "plan.toml", "--on", "testbed.toml", "-o", "kept.db"]);
    wait_until("some trials", || place.count_trials("kept.db") >= 4);
    for agent in agents_of(child.id()) {
        kill_pid(agent);
    }
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert_eq!(lab.read_knobs(), before);
}

/// A place with the plan, and with a testbed file of the lab that is up.
fn place_with_testbed() -> Place {
    let place = place_with_plan();
    write_testbed(&place, "/usr/bin/env", crate::latput_path());
    place
}

/// A testbed file of the lab, whose far end is what `before` makes of `program`.
fn write_testbed(place: &Place, before: &str, program: &str) {
    let hosts = [
        host_toml("a", "generator", "198.18.0.1", "/usr/bin/env", crate::latput_path()),
        host_toml("b", "sut", "198.18.0.2", before, program),
    ];
    place.write("testbed.toml", &format!("schema = 1\n{}", hosts.concat()));
}

/// A host of the lab in a testbed file.
fn host_toml(name: &str, role: &str, address: &str, before: &str, program: &str) -> String {
    let latput = crate::latput_path();
    format!(
        "[host.{name}]\nrole = \"{role}\"\ninterface = \"lat0\"\naddress = \"{address}\"\n\
         latput = \"{program}\"\n\
         via = [\"{latput}\", \"lab\", \"exec\", \"{name}\", \"--\", \"{before}\"]\n"
    )
}

fn place_with_plan() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place
}

/// Waits until no process is in any of these namespaces.
#[track_caller]
fn wait_until_gone(namespaces: &[std::path::PathBuf]) {
    wait_until("the agents to end", || {
        let in_use = namespaces_in_use();
        namespaces.iter().all(|namespace| !in_use.contains(namespace))
    });
}

/// The namespaces that the agents of a latput are in.
fn namespaces_of_agents(pid: u32) -> Vec<std::path::PathBuf> {
    wait_until("two agents", || agents_of(pid).len() == 2);
    std::thread::sleep(Duration::from_millis(1));
    agents_of(pid)
        .iter()
        .filter_map(|agent| std::fs::read_link(format!("/proc/{agent}/ns/net")).ok())
        .collect()
}
