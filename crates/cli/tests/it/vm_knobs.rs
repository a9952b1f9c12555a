//! Every knob against the real drivers of a guest: set, read back, put back, also after a crash.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use latput_knobs::{Setting, parse_assignment};
use latput_protocol::control::{Answer, ControllerId, LinkReset, OpenRequest, Request, SCHEMA};
use latput_trial::observation::Role;
use latput_units::Nanos;
use latput_vm::{
    CommandEvent, CommandExit, CommandOutput, ENDPOINTS, Guest, GuestCommand, GuestEndpoint,
    GuestSpec,
};

use crate::{guest_turn, print_note, vm_effects, wait_until};

/// Kills of an agent, at points spread over the time that its writes take.
const KILLS: u32 = 10;
/// No test needs a guest for longer.
const GUEST_MOST: Duration = Duration::from_secs(900);
/// The cards are hardware to their drivers.
const ALLOW: &str = "--allow-link-reset";

/// A case that needs a guest that is up. It leaves the guest as it was, which is checked.
type Case = (&'static str, fn(&Guest));

#[test]
fn guest_with_e1000e_shows_every_knob() {
    check_in_one_guest(
        "e1000e",
        &[
            ("every knob is set, read back and put back", check_knobs),
            ("after kill -9 between any two writes restore puts everything back", check_kills),
            ("a change that resets the link is refused until it is allowed", check_link_reset),
            ("RPS takes packets to the CPU that it names", check_rps),
            ("interrupts come to the CPU that smp-affinity names", vm_effects::check_affinity),
        ],
    );
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn guest_with_e1000_shows_every_knob() {
    check_in_one_guest(
        "e1000",
        &[
            ("every knob is set, read back and put back", check_knobs),
            ("what a driver was loaded with is shown for each card", vm_effects::check_loaded_with),
        ],
    );
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn guest_with_virtio_net_shows_every_knob() {
    check_in_one_guest("virtio-net", &[("every knob is set, read back and put back", check_knobs)]);
}

/// A boot takes longer than most cases. After one that fails the others have a new guest.
#[track_caller]
fn check_in_one_guest(driver: &str, cases: &[Case]) {
    let Some(_turn) = guest_turn() else { return };
    let mut guest = start(driver);
    let before = read_settings(&guest);
    let mut failed = Vec::new();
    for (name, case) in cases {
        print_note(&format!("{driver}: {name}"));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            case(&guest);
            wait_until("the guest to be as it was", || read_settings(&guest) == before);
        }));
        if ran.is_err() {
            failed.push(*name);
            guest = start(driver);
        }
    }
    assert!(failed.is_empty(), "{driver}: {failed:#?}");
}

/// The knobs of both cards with their values; a reload of the driver numbers its NAPIs anew.
fn read_settings(guest: &Guest) -> Vec<String> {
    let of = |host: GuestEndpoint| {
        let shown = latput_on(guest, host, &["show", host.interface, "--json"]);
        let document: serde_json::Value = serde_json::from_str(&shown.stdout_text()).unwrap();
        let knobs = document["knobs"].as_array().unwrap().iter();
        let text = |knob: &serde_json::Value| {
            let values = knob["values"].as_array().unwrap().iter();
            let values: Vec<String> = values.map(|value| value["value"].to_string()).collect();
            format!("{} {} {}", host.name, knob["name"], values.join(" "))
        };
        knobs.map(text).collect::<Vec<_>>()
    };
    ENDPOINTS.into_iter().flat_map(of).collect()
}

/// Sets each knob that can be set to another value than it has. What the driver refuses must be
/// refused with the kernel's words and change nothing.
fn check_knobs(guest: &Guest) {
    let before = show_knobs(guest);
    let mut refused = BTreeMap::new();
    let mut set = Vec::new();
    for (knob, value) in settable_knobs(&before) {
        for other in other_values(&value) {
            let assignment = format!("{knob}={other}");
            let ran = latput_on_sut(guest, &["set", ENDPOINTS[0].interface, &assignment, ALLOW]);
            if !ran.is_success() {
                assert_eq!(
                    show_knobs(guest),
                    before,
                    "{assignment} was refused and changed something"
                );
                refused.insert(assignment, ran.error_text());
                continue;
            }
            let now = settable_knobs(&show_knobs(guest));
            // `set` has read it back within the knob's rounding: `rps-flow-cnt=10` becomes 16.
            assert!(!now.contains(&(knob.clone(), value.clone())), "{assignment}: {now:?}");
            let back = format!("{knob}={value}");
            let ran = latput_on_sut(guest, &["set", ENDPOINTS[0].interface, &back, ALLOW]);
            assert!(ran.is_success(), "{back}: {}", ran.error_text());
            wait_until_back(guest, &before, &assignment);
            set.push(knob.clone());
            break;
        }
    }
    let knobs: Vec<String> = settable_knobs(&before).into_iter().map(|(knob, _)| knob).collect();
    print_note(&format!("set and put back {set:?}; refused {refused:#?}"));
    assert!(set.len() * 2 > knobs.len(), "{set:?} of {knobs:?}; {refused:#?}");
    for (assignment, words) in refused {
        let name = assignment.split('=').next().unwrap();
        assert!(words.contains(name), "{assignment}: {words}");
    }
}

fn check_kills(guest: &Guest) {
    let before = show_knobs(guest);
    let mut cut = 0;
    // An agent that nobody kills tells how long its writes take.
    let (mut agent, begun) = agent_that_sets(guest);
    assert_eq!(read_answer(&mut agent), Answer::Set);
    let whole = begun.elapsed();
    assert_ne!(show_knobs(guest), before);
    drop(agent); // its stdin closes: it puts back what it set, in order
    wait_until_back(guest, &before, "the agent's end");
    for kill in 0..KILLS {
        let (mut agent, begun) = agent_that_sets(guest);
        thread::sleep((whole * kill / (KILLS - 1)).saturating_sub(begun.elapsed()));
        agent.kill().unwrap();
        while !matches!(agent.receive_event().unwrap(), CommandEvent::Ended(CommandExit::Signal(9)))
        {
        }
        let changed = show_knobs(guest) != before;
        let restored = latput_on_sut(guest, &["restore"]);
        assert!(restored.is_success(), "{}", restored.error_text());
        let said = restored.stdout_text();
        assert_eq!(show_knobs(guest), before, "kill {kill}: {said}");
        cut += u32::from(changed && said.contains("put back"));
    }
    print_note(&format!("{cut} of {KILLS} kills left something to put back, over {whole:?}"));
    assert!(cut > 0, "no kill met an agent between its writes");
}

fn check_link_reset(guest: &Guest) {
    let before = show_knobs(guest);
    let sut = ENDPOINTS[0].interface;
    let refused = latput_on_sut(guest, &["set", sut, "rx-ring=512", "rps-cpus=0"]);
    assert!(
        refused.error_text().contains("rx-ring takes the link down"),
        "{}",
        refused.error_text()
    );
    assert!(refused.error_text().contains(ALLOW));
    assert_eq!(show_knobs(guest), before);
    let ring = value_of(guest, "rx-ring");
    for assignment in ["rx-ring=512", &format!("rx-ring={ring}")] {
        let allowed = latput_on_sut(guest, &["set", sut, assignment, ALLOW]);
        assert!(allowed.is_success(), "{}", allowed.error_text());
    }
}

fn check_rps(guest: &Guest) {
    let cpus = value_of(guest, "rps-cpus");
    let moved_without = packets_moved_to_cpu_0(guest);
    set_knob(guest, "rps-cpus=0");
    let moved_with = packets_moved_to_cpu_0(guest);
    set_knob(guest, &format!("rps-cpus={cpus}"));
    // The probe sends 20 lone packets and a flood.
    assert!(moved_without == 0 && moved_with > 20, "{moved_without} and {moved_with}");
}

/// Packets that CPU 0 was handed by another while the probe sends its own.
fn packets_moved_to_cpu_0(guest: &Guest) -> u64 {
    let count = || {
        let text = latput_on_sut(guest, &["vm", "read", "/proc/net/softnet_stat"]).stdout_text();
        // The tenth column, in hexadecimal: `received_rps` (`softnet_seq_show`, net/core/net-procfs.c).
        let word = text.lines().next().unwrap().split(' ').nth(9).unwrap().to_owned();
        u64::from_str_radix(&word, 16).unwrap()
    };
    let before = count();
    assert!(latput_on_sut(guest, &["vm", "probe"]).is_success());
    count() - before
}

pub(crate) fn start(driver: &str) -> Guest {
    let guest = Guest::start(driver.parse::<GuestSpec>().unwrap(), &|| false).unwrap();
    let (pid, folder) = (guest.pid(), guest.folder().display().to_string());
    // A guest that hangs keeps nobody waiting: whoever waits is told that it is gone.
    thread::spawn(move || {
        thread::sleep(GUEST_MOST);
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&folder) {
            crate::kill_pid(pid);
        }
    });
    guest
}

/// An agent that has just been told to set many knobs, and when.
fn agent_that_sets(guest: &Guest) -> (GuestCommand, Instant) {
    let sut = ENDPOINTS[0];
    let words = [sut.exec_words(), vec!["latput".into(), "agent".into(), "--stdio".into()]];
    let mut agent = GuestCommand::open(guest.folder(), &words.concat()).unwrap();
    let mut ask = |request: &Request| {
        agent
            .write_input(format!("{}\n", serde_json::to_string(request).unwrap()).as_bytes())
            .unwrap();
    };
    ask(&Request::Open(OpenRequest {
        schema: SCHEMA,
        version: "test".to_owned(),
        controller: ControllerId::of_this_process(),
        host: sut.name.to_owned(),
        role: Role::Sut,
        interface: sut.interface.to_owned(),
        address: sut.address,
        cpus: None,
        binds_napi_threads: false,
        will_set: true,
        link_reset: LinkReset::Allowed,
        lease: Nanos::from_s(600),
    }));
    assert!(matches!(read_answer(&mut agent), Answer::Opened(_)));
    let mut setting = Setting::new();
    for assignment in [
        "mtu=1400",
        "txqueuelen=500",
        "gro=off",
        "gso=off",
        "tso=off",
        "rps-cpus=0-1",
        "napi-defer-hard-irqs=7",
        "gro-flush-timeout=30us",
    ] {
        let (knob, value) = parse_assignment(assignment).unwrap();
        setting.insert(knob, value);
    }
    let begun = Instant::now();
    let line = format!("{}\n", serde_json::to_string(&Request::Set { setting }).unwrap());
    agent.write_input(line.as_bytes()).unwrap();
    (agent, begun)
}

#[track_caller]
fn read_answer(agent: &mut GuestCommand) -> Answer {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        match agent.receive_event().unwrap() {
            CommandEvent::Output(bytes) => line.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    serde_json::from_slice(&line).unwrap()
}

#[track_caller]
fn wait_until_back(guest: &Guest, before: &str, after: &str) {
    // A card that was reset tells its flow control again once its link is up.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let now = show_knobs(guest);
        if now == before {
            return;
        }
        if Instant::now() > deadline {
            let lines = before.lines().zip(now.lines()).filter(|(before, now)| before != now);
            panic!("after {after} not as before: {:#?}", lines.collect::<Vec<_>>());
        }
    }
}

/// Output of `latput show` on the knobs of the system under test, byte for byte. (The facts beside them have the CPU
/// that the kernel delivers an interrupt to at the moment, which is no setting.)
#[track_caller]
fn show_knobs(guest: &Guest) -> String {
    let shown = latput_on_sut(guest, &["show", ENDPOINTS[0].interface, "--json"]);
    assert!(shown.is_success(), "{}", shown.error_text());
    let document: serde_json::Value = serde_json::from_str(&shown.stdout_text()).unwrap();
    serde_json::to_string_pretty(&serde_json::json!({ "knobs": document["knobs"] })).unwrap()
}

/// Sets a knob of the system under test.
#[track_caller]
pub(crate) fn set_knob(guest: &Guest, assignment: &str) {
    let set = latput_on_sut(guest, &["set", ENDPOINTS[0].interface, assignment]);
    assert!(set.is_success(), "{assignment}: {}", set.error_text());
}

/// The one value of a knob of the system under test.
#[track_caller]
pub(crate) fn value_of(guest: &Guest, knob: &str) -> String {
    let values = settable_knobs(&show_knobs(guest));
    values.into_iter().find(|(name, _)| name == knob).unwrap().1
}

/// Knobs that can be set and have one value, with it.
fn settable_knobs(shown: &str) -> Vec<(String, String)> {
    let document: serde_json::Value = serde_json::from_str(shown).unwrap();
    let knobs = document["knobs"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    knobs
        .iter()
        .filter(|knob| knob["settable"] == true)
        .filter_map(|knob| {
            let values = knob["values"].as_array().unwrap();
            let first = &values.first()?["value"];
            let is_one = values.iter().all(|value| value["value"] == *first);
            is_one.then(|| (text(&knob["name"]), text(first)))
        })
        .collect()
}

/// Values of the same form, near and far: a driver may take only some of them.
fn other_values(value: &str) -> Vec<String> {
    if let Some(other) = [("on", "off"), ("off", "on"), ("none", "0")]
        .into_iter()
        .find_map(|(this, other)| (this == value).then_some(other))
    {
        return vec![other.to_owned()];
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    match number.parse::<u64>() {
        Ok(0) => ["10", "1", "100"].map(|number| format!("{number}{unit}")).to_vec(),
        Ok(number) => [number / 2, number * 2, number - 1, number + 1, 0]
            .map(|number| format!("{number}{unit}"))
            .to_vec(),
        Err(_) => Vec::new(),
    }
}

/// On the system under test.
pub(crate) fn latput_on_sut(guest: &Guest, arguments: &[&str]) -> CommandOutput {
    latput_on(guest, ENDPOINTS[0], arguments)
}

pub(crate) fn latput_on(guest: &Guest, host: GuestEndpoint, arguments: &[&str]) -> CommandOutput {
    let words = arguments.iter().map(|&word| word.to_owned());
    let words = host.exec_words().into_iter().chain(["latput".to_owned()]).chain(words);
    let words: Vec<String> = words.collect();
    GuestCommand::open(guest.folder(), &words).unwrap().collect_output().unwrap()
}
