//! Plans in a guest with real drivers, and what can befall the guest.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use latput_testkit::needs;

use crate::{
    Place, assert_no_capability, broker_of, children_of, guest_turn, interrupt_pid, is_gone,
    kill_pid, status_of, wait_until,
};

const PLAN: &str = r#"
schema = 1
name = "in a guest"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["20ms", 100]]
[[workload]]
kind = "tcp_rr"
[method]
repetitions = { min = 2, max = 2 }
warmup = "500ms"
duration = "2s"
"#;
const TRIALS: i64 = 4;

#[test]
fn e1000e_plan_counts_polls_and_interrupts() {
    check_driver("vm:e1000e");
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn e1000_plan_counts_polls_and_interrupts() {
    check_driver("vm:e1000");
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn virtio_plan_counts_polls_and_interrupts() {
    check_driver("vm:virtio-net");
}

#[track_caller]
fn check_driver(testbed: &str) {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(PLAN);
    let ran = place.run(&["run", "plan.toml", "--on", testbed, "-o", "kept.db"]);
    ran.expect(0, &[testbed, "emulated"]);
    let report = place.report_json("kept.db");
    let notes = report["notes"].to_string();
    assert!(notes.contains("lone packets made") && notes.contains("a flood of"), "{notes}");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(i64::try_from(runs.len()), Ok(TRIALS));
    let mut latency = [0.0_f64; 2];
    for run in runs {
        let metric = |name: &str| run["metrics"][name].as_f64();
        assert!(metric("sut_polls_per_s").is_some_and(|polls| polls > 0.0), "{run:#}");
        assert!(metric("sut_packets_per_poll").is_some_and(|packets| packets > 0.0), "{run:#}");
        for host in run["hosts"].as_array().unwrap() {
            assert!(host["interrupts_count"].as_u64().is_some_and(|count| count > 0), "{host:#}");
            assert!(host["rx_packets_count"].as_u64().is_some_and(|count| count > 0), "{host:#}");
        }
        let setting = usize::try_from(run["setting"].as_u64().unwrap()).unwrap();
        latency[setting] = latency[setting].max(metric("latency_ns_p50").unwrap());
    }
    // The knob really holds packets back, for 20 ms at each end.
    assert!(latency[1] > 20e6 && latency[1] > latency[0], "{latency:?}");
}

#[test]
fn guest_power_cut_loses_no_trial() {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(&PLAN.replace("{ min = 2, max = 2 }", "{ min = 6, max = 6 }"));
    let run = ["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"];
    let mut child = place.start(&run);
    wait_until("some trials", || has_ended(&mut child) || place.count_trials("kept.db") >= 3);
    send_order(&child, r#"{"execute":"system_reset"}"#);
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("the guest ended") && said.contains("latput: ready"), "{said}");
    let kept = place.count_trials("kept.db");
    assert!((3..12).contains(&kept), "{kept}");
    let before = place.report_json("kept.db");
    place.run(&run).expect(0, &[&format!("resuming run 1: {kept} of 12 trials are done")]);
    let after = place.report_json("kept.db");
    let kept = before["runs"].as_array().unwrap();
    assert_eq!(kept.as_slice(), &after["runs"].as_array().unwrap()[..kept.len()]);
    assert_eq!(place.count_trials("kept.db"), 12);
}

#[test]
fn guest_ends_with_its_latput() {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(PLAN);
    let mut child = place.start(&["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"]);
    wait_until("a trial", || has_ended(&mut child) || place.count_trials("kept.db") >= 1);
    assert!(!has_ended(&mut child), "{:?}", std::fs::read_to_string(place.path("stderr")));
    let qemu = qemu_of(&child);
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until("the guest to end", || !PathBuf::from(format!("/proc/{qemu}/exe")).exists());
}

#[needs("root")]
#[test]
fn guest_reader_and_emulator_are_unprivileged() {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(&PLAN.replace("{ min = 2, max = 2 }", "{ min = 40, max = 40 }"));
    let mut child = place.start(&["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"]);
    wait_until("a trial", || has_ended(&mut child) || place.count_trials("kept.db") >= 1);
    assert!(!has_ended(&mut child), "{:?}", std::fs::read_to_string(place.path("stderr")));
    let broker = broker_of(child.id()).expect("it has rights");
    let qemu = qemu_of(&child);
    let lines: Vec<u32> = children_of(broker).into_iter().filter(|pid| *pid != qemu).collect();
    assert_eq!(lines.len(), 2, "one for each host");
    for pid in [child.id(), qemu].iter().chain(&lines) {
        assert_no_capability(*pid);
        let users = status_of(*pid, "Uid:");
        assert!(!users.split(' ').take(3).any(|user| user == "0"), "{users}");
    }
    interrupt_pid(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(6));
    wait_until("the guest to end", || [qemu, broker].iter().chain(&lines).all(|pid| is_gone(*pid)));
    assert!(!guest_folder_of(broker).exists());

    // A guest's output by hand is read without rights, too.
    let mut child = place.start(&["vm", "exec", "--", "latput", "agent", "--stdio"]);
    wait_until("the guest", || {
        has_ended(&mut child)
            || broker_of(child.id()).is_some_and(|broker| !children_of(broker).is_empty())
    });
    let broker = broker_of(child.id()).expect("it has rights");
    assert_no_capability(child.id());
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until("the guest to end", || is_gone(broker) && !guest_folder_of(broker).exists());
}

#[test]
fn pulled_cable_is_survived() {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(&PLAN.replace("\"2s\"", "\"3s\""));
    let mut child = place.start(&["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"]);
    wait_until("a trial", || has_ended(&mut child) || place.count_trials("kept.db") >= 1);
    thread::sleep(Duration::from_millis(500));
    let link =
        |up: bool| format!(r#"{{"execute":"set_link","arguments":{{"name":"sut","up":{up}}}}}"#);
    send_order(&child, &link(false));
    thread::sleep(Duration::from_millis(300));
    send_order(&child, &link(true));
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.count_trials("kept.db"), TRIALS);
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn clock_step_marks_trial_without_shift() {
    let Some(_turn) = guest_turn() else { return };
    let place = place_with_plan(&PLAN.replace("\"2s\"", "\"4s\""));
    let mut child = place.start(&["run", "plan.toml", "--on", "vm:e1000e", "-o", "kept.db"]);
    wait_until("a trial", || has_ended(&mut child) || place.count_trials("kept.db") >= 1);
    let folder = guest_folder(&child).display().to_string();
    let step = ["vm", "attach", &folder, "--", latput_vm::PROGRAM, "vm", "step-clock", "-3600"];
    // Again and again: it must meet the window of some trial.
    let mut steps = 0;
    while !has_ended(&mut child) {
        steps += u32::from(place.run(&step).code == Some(0));
        thread::sleep(Duration::from_secs(1));
    }
    let code = child.wait().unwrap().code();
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.count_trials("kept.db"), TRIALS);
    let report = place.report_json("kept.db");
    let runs = report["runs"].as_array().unwrap();
    let marked = |run: &&serde_json::Value| {
        let failed = run["checks_failed"].to_string();
        failed.contains("wall-clock-step") && failed.contains("set back by")
    };
    let marked = runs.iter().filter(marked).count();
    crate::print_note(&format!("{steps} steps back marked {marked} of {TRIALS} trials"));
    assert!(marked > 0, "{runs:#?}");
    for run in runs {
        for host in run["hosts"].as_array().unwrap() {
            let window = host["window_ns"].as_f64().unwrap();
            assert!((3.9e9..6e9).contains(&window), "{run:#}");
        }
    }
}

#[test]
fn missing_guest_parts_are_named() {
    let place = place_with_plan(PLAN);
    let run = |testbed: &str, name: &str, value: &str| {
        let words = ["run", "plan.toml", "--on", testbed, "-o", "kept.db"];
        crate::CommandOutput::from(place.latput_command(&words).env(name, value).output().unwrap())
    };
    run("vm:igb", "PATH", "/usr/bin").expect(2, &["vm:igb", "e1000e, e1000, virtio-net"]);
    run("vm:e1000e", "PATH", "/nowhere").expect(1, &["qemu-system-x86_64", "install QEMU"]);
    let Some(_turn) = guest_turn() else { return };
    std::fs::create_dir(place.path("empty")).unwrap();
    let empty = place.path("empty").display().to_string();
    run("vm", "LATPUT_VM_KERNEL", &empty).expect(1, &["holds no kernel", "boot/vmlinuz-VERSION"]);
    let dynamic = env!("CARGO_BIN_EXE_latput");
    run("vm", "LATPUT_VM_BINARY", dynamic).expect(1, &["not static", "cargo xtask vm"]);
    run("vm", "LATPUT_VM_BINARY", "/nowhere").expect(1, &["/nowhere", "No such file"]);
    assert!(!place.path("kept.db").exists() || place.count_trials("kept.db") == 0);
}

#[test]
fn guest_init_refuses_to_run_elsewhere() {
    let place = Place::new();
    place.run(&["vm", "init"]).expect(1, &["first process of a guest"]);
    place.run(&["vm", "attach", "none", "--", "true"]).expect(1, &["there is no guest in none"]);
    place
        .run(&["vm", "exec", "lab", "--", "true"])
        .expect(2, &["`lab` is not a guest", "vm:e1000e"]);
}

fn place_with_plan(plan: &str) -> Place {
    let place = Place::new();
    place.write("plan.toml", plan);
    place
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// The process that has the guest: the broker, where this is root.
fn holder_of(child: &Child) -> u32 {
    broker_of(child.id()).unwrap_or(child.id())
}

/// The QEMU of a latput, by process id.
#[track_caller]
fn qemu_of(child: &Child) -> u32 {
    let holder = holder_of(child).to_string();
    let output = Command::new("pgrep").args(["-P", &holder, "qemu"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().parse().unwrap()
}

/// The folder of the guest that a latput has started.
fn guest_folder(child: &Child) -> PathBuf {
    guest_folder_of(holder_of(child))
}

fn guest_folder_of(holder: u32) -> PathBuf {
    std::env::temp_dir().join(format!("latput-vm-{holder}-0"))
}

/// Gives QEMU's monitor an order.
#[track_caller]
fn send_order(child: &Child, order: &str) {
    let mut stream = UnixStream::connect(guest_folder(child).join("qemu/orders")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    answers.next().unwrap().unwrap();
    for order in [r#"{"execute":"qmp_capabilities"}"#, order] {
        writeln!(stream, "{order}").unwrap();
        let answer = answers.by_ref().map(Result::unwrap).find(|line| !line.contains("event"));
        assert!(answer.as_ref().is_some_and(|line| line.contains("return")), "{order}: {answer:?}");
    }
}
