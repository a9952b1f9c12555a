//! Findings of a run on its hosts before the first trial: today's values, the knobs of the NIC, and disturbances.
//! Values are set and read by `ip`.

use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};
use latput_trial::Plan;

use crate::root_settings::Lab;
use crate::{Place, interrupt_pid, print_note, wait_until};

const PLAN: &str = r#"
schema = 1
name = "queue lengths"
goal = "latency"
[factors]
txqueuelen = [1000, 2000]
[[workload]]
kind = "tcp_rr"
[method]
beside = true # other tests run
design = "blocks"
repetitions = { min = 2, max = 2 }
warmup = "50ms"
duration = "200ms"
"#;

#[needs("root", "ip")]
#[test]
fn todays_values_are_first_and_restored() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    place.write("hosts.toml", &testbed_toml());
    place.write("plan.toml", PLAN);
    // Lengths of hosts `a` and `b`, the settings, and what tables call the first.
    check_todays_values(
        &place,
        &lab,
        [700, 700],
        &["today", "txqueuelen=1000", "txqueuelen=2000"],
        "today (700)",
    );
    check_todays_values(
        &place,
        &lab,
        [300, 700],
        &["today", "txqueuelen=1000", "txqueuelen=2000"],
        "today ",
    );
    check_todays_values(
        &place,
        &lab,
        [2000, 2000],
        &["txqueuelen=2000", "txqueuelen=1000"],
        "today (2000)",
    );
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
}

#[track_caller]
fn check_todays_values(
    place: &Place,
    lab: &Lab<'_>,
    lengths: [u64; 2],
    labels: &[&str],
    first: &str,
) {
    for (host, length) in ["a", "b"].iter().zip(lengths) {
        let words = ["ip", "link", "set", "lat0", "txqueuelen", &length.to_string()];
        place.run(&[&["lab", "exec", host, "--"], &words[..]].concat()).expect(0, &[]);
    }
    let before = lab.read_knobs();
    let file = format!("{}-{}.db", lengths[0], lengths[1]);
    let ran = place.run(&["run", "plan.toml", "--on", "hosts.toml", "-o", &file]);
    ran.expect(0, &[first]);
    assert_eq!(lab.read_knobs(), before, "{lengths:?}");
    let shown = place.run(&["lab", "exec", "b", "--", "ip", "link", "show", "lat0"]);
    shown.expect(0, &[&format!("qlen {}", lengths[1])]);
    let report: serde_json::Value =
        serde_json::from_str(&place.run(&["report", &file, "--json"]).expect(0, &[]).out).unwrap();
    let settings = report["settings"].as_array().unwrap();
    let found: Vec<&str> = settings.iter().map(|set| set["label"].as_str().unwrap()).collect();
    assert_eq!(found, labels, "{lengths:?}");
    assert!(settings[0]["today"] == true && settings[1]["today"] == false, "{settings:?}");
    for (role, length) in ["generator", "sut"].iter().zip(lengths) {
        assert_eq!(settings[0]["by_role"][role]["txqueuelen"], length.to_string(), "{settings:?}");
    }
    // The kernel's values in the trials of the first setting, on each host.
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * labels.len(), "each setting is run once in a block");
    for run in runs.iter().filter(|run| run["setting"] == 0) {
        for (host, length) in ["generator", "sut"].iter().zip(lengths) {
            let hosts = run["hosts"].as_array().unwrap();
            let host = hosts.iter().find(|known| known["role"] == *host).unwrap();
            let knobs = host["knobs"].as_array().unwrap();
            let knob = knobs.iter().find(|knob| knob["knob"] == "txqueuelen").unwrap();
            assert_eq!(knob["value"], length.to_string(), "{run}");
        }
    }
    let headline = report["headline"]["kind"].as_str().unwrap();
    assert!(["set", "stay", "no_answer"].contains(&headline), "{headline}");
}

#[needs("root", "ip")]
#[test]
fn changed_hosts_do_not_resume_a_run() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    place.write("hosts.toml", &testbed_toml());
    place.write("plan.toml", &PLAN.replace("= 2 }", "= 40 }").replace("min = 2", "min = 40"));
    let words = ["run", "plan.toml", "--on", "hosts.toml", "-o", "kept.db"];
    let cut_short = || {
        let trials = place.count_trials("kept.db");
        let mut child = place.start(&words);
        wait_until("a trial", || place.count_trials("kept.db") > trials);
        interrupt_pid(child.id());
        child.wait().unwrap();
        std::fs::read_to_string(place.path("stderr")).unwrap()
    };
    cut_short();
    let said = cut_short();
    assert!(said.contains("resuming run 1"), "{said}");
    lab.run_on_b(&["set", "lat0", "txqueuelen=800"]).expect(0, &[]);
    let said = cut_short();
    let why = "run 1 is not resumed: the hosts' values have changed since it began (b: txqueuelen (device) was";
    assert!(said.contains(why) && said.contains("is 800"), "{said}");
}

#[needs("root")]
#[test]
fn tune_makes_and_saves_nic_plan() {
    isolate();
    let place = Place::new();
    let lab = Lab::set_up(&place);
    place.write("hosts.toml", &testbed_toml());
    let before = lab.read_knobs();
    let mut child = place.start(&["tune", "--on", "hosts.toml"]);
    wait_until("a trial", || place.count_trials("latput-results.db") > 0);
    interrupt_pid(child.id());
    child.wait().unwrap();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("plan: latput-plan-lat0.toml, made for lat0 (veth)"), "{said}");
    assert_eq!(lab.read_knobs(), before);
    let text = std::fs::read_to_string(place.path("latput-plan-lat0.toml")).unwrap();
    assert_eq!(lab.run_on_b(&["plan", "nic", "lat0"]).expect(0, &[]).out, text);
    for knob in ["gro-flush-timeout + sut.napi-defer-hard-irqs", "sut.tso", "sut.threaded"] {
        assert!(text.contains(knob), "{knob}: {text}");
    }
}

#[needs("root", "ip")]
#[test]
fn each_interface_kind_has_a_plan() {
    isolate();
    let place = Place::new();
    let add = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        Command::new("ip")
            .args([&["link", "add"], &words[..]].concat())
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(add("v0 type veth peer name v1"));
    let up = Command::new("ip").args(["link", "set", "v0", "up"]).status().unwrap();
    assert!(up.success());
    let mut made = vec!["v0"];
    for (name, words) in [
        ("d0", "d0 type dummy"),
        ("i0", "i0 type ifb"),
        ("br0", "br0 type bridge"),
        ("v0.5", "link v0 name v0.5 type vlan id 5"),
        ("b0", "b0 type bond"),
    ] {
        if add(words) {
            made.push(name);
        } else {
            print_note(&format!("this kernel makes no `{words}`"));
        }
    }
    for name in &made {
        let ran = place.run(&["plan", "nic", name]);
        if ran.code == Some(1) {
            ran.expect(1, &["has nothing that a plan could vary"]);
            continue;
        }
        let plan = Plan::parse("nic.toml", &ran.expect(0, &[]).out).unwrap();
        assert!((2..=1000).contains(&plan.settings().len()), "{name}");
        if *name == "v0.5" {
            ran.expect(0, &["v0.5 (vlan) is on top of v0", "`latput plan nic v0`"]);
        }
    }
    place.run(&["plan", "nic"]).expect(2, &["IFACE"]);
    place.run(&["plan", "nic", "nope"]).expect(2, &["there is no interface `nope`"]);
    place.run(&["plan", "twin", "v0"]).expect(2, &["only `latput plan nic`"]);
}

/// The busy loop takes a CPU. The tuner is a `sleep` under another name: it is found by the name alone, as a
/// real one is.
#[needs("root")]
#[test]
fn other_load_and_tuner_are_told() {
    isolate();
    let place = Place::new();
    let _lab = Lab::set_up(&place);
    place.write("hosts.toml", &testbed_toml());
    place.write("plan.toml", PLAN);
    std::os::unix::fs::symlink("/bin/sleep", place.path("irqbalance")).unwrap();
    let started = |mut command: Command| ChildGuard(command.stdout(Stdio::null()).spawn().unwrap());
    let mut tuner = Command::new(place.path("irqbalance"));
    tuner.arg("300");
    let tuner = started(tuner);
    let mut busy = Command::new("sh");
    busy.args(["-c", "while :; do :; done"]);
    let _busy = started(busy);
    let ran = place.run(&["run", "plan.toml", "--on", "hosts.toml", "-o", "kept.db"]);
    let pid = format!("irqbalance (pid {}) runs", tuner.0.id());
    ran.expect(0, &["other load: ", "busy before any traffic", "interrupts move: ", &pid]);
    let report = place.report_json("kept.db");
    let findings = report["findings"].as_array().unwrap();
    for name in ["other load", "interrupts move"] {
        let finding = findings.iter().find(|finding| finding["name"] == name);
        assert!(
            finding.is_some_and(|found| found["remedy"].as_str().unwrap().len() > 5),
            "{findings:?}"
        );
    }
}

/// A process that ends with its test.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The lab as two hosts of the user's own.
fn testbed_toml() -> String {
    let latput = crate::latput_path();
    let host = |name: &str, role: &str, address: &str| {
        format!(
            "[host.{name}]\nrole = \"{role}\"\ninterface = \"lat0\"\naddress = \"{address}\"\n\
             latput = \"{latput}\"\nvia = [\"{latput}\", \"lab\", \"exec\", \"{name}\", \"--\"]\n"
        )
    };
    let hosts = [host("a", "generator", "198.18.0.1"), host("b", "sut", "198.18.0.2")];
    format!("schema = 1\n{}", hosts.concat())
}
