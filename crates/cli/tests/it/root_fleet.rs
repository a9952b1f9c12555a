//! `latput fleet` on namespaces as hosts: some are dead, silent, slow, hostile, or not what the inventory says. What is
//! there is told by `ip` and `ethtool`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::two_hosts::{run_ip, write_script};
use crate::{
    CommandOutput, Place, assert_no_capability, broker_of, interrupt_pid, is_gone, kill_pid,
    status_of, wait_until,
};

const FLEET: &str = include_str!("../../../../docs/schema/fleet.json");
const APPLY: &str = include_str!("../../../../docs/schema/fleet-apply.json");
const FLEET_DONE: &str = include_str!("../../../../docs/schema/fleet-done.json");
const FLEET_LOG: &str = include_str!("../../../../docs/schema/fleet-log.json");
/// Txqueuelen of a veth when it is made.
const BEFORE: &str = "1000";

/// Namespaces `h1`, `h2` and so on, each with an interface `eth0`.
struct FleetRack {
    place: Place,
    hosts: usize,
}

impl FleetRack {
    fn set_up(hosts: usize) -> Self {
        isolate();
        let place = Place::new();
        for host in 1..=hosts {
            let (host, port) = (format!("h{host}"), format!("p{host}"));
            run_ip(&["netns", "add", &host]);
            run_ip(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host]);
            run_ip(&["link", "set", &port, "up"]);
            run_ip(&["-n", &host, "link", "set", "eth0", "up"]);
        }
        fs::create_dir(place.path("bin")).unwrap();
        let latput = crate::latput_path();
        std::os::unix::fs::symlink(latput, place.path("bin/latput")).unwrap();
        let rack = Self { place, hosts };
        rack.write_inventory("");
        rack
    }

    /// Writes the inventory: the namespaces, and more hosts.
    fn write_inventory(&self, more: &str) {
        let words: Vec<String> =
            (1..=self.hosts).map(|host| format!("\"netns://h{host}\"")).collect();
        let words = words.join(", ");
        let text = format!(
            "schema = 1\n[group.web]\nhosts = [{words}, {more}]\ninterface = \"eth0\"\n\
             settings = {{ txqueuelen = 700, gro = \"on\" }}\n"
        );
        self.place.write("inventory.toml", &text);
    }

    /// A program, for `exec:` or a guard.
    fn write_script(&self, name: &str, body: &str) -> String {
        let path = self.place.path(name);
        write_script(&path, body);
        path.display().to_string()
    }

    fn fleet_command(&self, args: &[&str]) -> Command {
        let bin = self.place.path("bin").display().to_string();
        let mut command = self.place.latput_command(&[&["fleet"], args].concat());
        command.env("PATH", format!("{bin}:/usr/sbin:/usr/bin:/sbin:/bin"));
        command
    }

    fn run_fleet(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.fleet_command(args).output().unwrap())
    }

    fn start(&self, args: &[&str]) -> Child {
        let to = |name: &str| fs::File::create(self.place.path(name)).unwrap();
        self.fleet_command(args).stdout(to("stdout")).stderr(to("stderr")).spawn().unwrap()
    }

    fn read_file(&self, name: &str) -> String {
        fs::read_to_string(self.place.path(name)).unwrap()
    }

    /// Txqueuelen of every host, as `ip` says it.
    fn queue_lengths(&self) -> Vec<String> {
        (1..=self.hosts).map(|host| length_of(&format!("h{host}"))).collect()
    }

    fn all_are(&self, length: &str) -> bool {
        self.queue_lengths().iter().all(|found| found == length)
    }

    fn has_checkpoint(&self) -> bool {
        let folder: PathBuf = self.place.path("state/checkpoints");
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        names.into_iter().any(|path| path.extension().is_some_and(|ends| ends == "json"))
    }
}

fn length_of(host: &str) -> String {
    let ran = Command::new("ip").args(["-n", host, "-o", "link", "show", "eth0"]).output().unwrap();
    let said = CommandOutput::from(ran).out;
    let mut words = said.split_whitespace().skip_while(|word| *word != "qlen");
    words.nth(1).unwrap_or("nothing").trim_end_matches('\\').to_owned()
}

fn gro_of(host: &str) -> String {
    let args = ["netns", "exec", host, "ethtool", "-k", "eth0"];
    let said = CommandOutput::from(Command::new("ip").args(args).output().unwrap()).out;
    let line = said.lines().find_map(|line| line.strip_prefix("generic-receive-offload: "));
    line.unwrap_or("nothing").to_owned()
}

#[track_caller]
fn parse_document(schema: &str, text: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    document
}

/// A field of every host, by name.
fn by_host(document: &Value, field: &str) -> BTreeMap<String, String> {
    let hosts = document["hosts"].as_array().unwrap().iter();
    let text = |host: &Value, field: &str| host[field].as_str().unwrap().to_owned();
    hosts.map(|host| (text(host, "name"), text(host, field))).collect()
}

#[needs("root", "ip", "ethtool")]
#[test]
fn faulty_hosts_are_named_without_delay() {
    let rack = FleetRack::set_up(6);
    run_ip(&["-n", "h3", "link", "set", "eth0", "name", "ens1"]);
    run_ip(&["-n", "h4", "link", "delete", "eth0"]);
    run_ip(&["-n", "h4", "link", "add", "eth0", "type", "bridge"]);
    for host in ["h1", "h5"] {
        run_ip(&["-n", host, "link", "set", "eth0", "txqueuelen", "700"]);
        run_ip(&["netns", "exec", host, "ethtool", "-K", "eth0", "gro", "on"]);
    }
    let slow = rack.write_script("slow", "sleep 2; exec ip netns exec h5 \"$@\"");
    let answer = r#"{"schema":1,"version":"0.1.0","boot_id":"b","network_namespace":1,"others":[],"interface":{"name":"eth9","index":2,"driver":"veth","is_up":true,"has_carrier":true,"faults":0,"knobs":[],"waiting":null}}"#;
    let there = format!("echo latput-there host Linux x86_64 latput {}", env!("CARGO_PKG_VERSION"));
    let liar = rack.write_script("liar", &format!("{there}; cat >/dev/null; echo '{answer}'"));
    // It is given words of its own, which `sleep` would not take.
    let silent = rack.write_script("silent", "exec sleep 1000");
    let endless = rack.write_script("endless", &format!("{there}; exec yes '{{'"));
    rack.write_inventory(&format!(
        "{{ name = \"dead\", target = \"exec:false\" }}, {{ name = \"silent\", target = \"exec:{silent}\" }}, \
         {{ name = \"slow\", target = \"exec:{slow}\" }}, {{ name = \"liar\", target = \"exec:{liar}\" }}, \
         {{ name = \"endless\", target = \"exec:{endless}\" }}, \"netns://gone\", \"netns://h1\""
    ));
    let args = ["verify", "--timeout", "10s", "--parallel", "2", "--prometheus", "fleet.prom"];
    let ran = rack.run_fleet(&args);
    ran.expect(
        8,
        &["`h1` of group `web` is listed twice", "txqueuelen is 1000, wanted 700", "gro is off"],
    );
    let ran = rack.run_fleet(&[&args[..], &["--json"]].concat());
    let found = parse_document(FLEET, &ran.expect(8, &[]).out);
    let states = by_host(&found, "state");
    let why = by_host(&found, "why");
    for (host, state, words) in [
        ("h1", "same", ""),
        ("h2", "drifted", "gro is off, wanted on"),
        ("h3", "other", "it has no interface eth0; it has lo, ens1"),
        ("h4", "other", "its driver is bridge, and most of its group have veth"),
        ("h5", "same", ""),
        ("dead", "unreachable", "`false` ended"),
        ("silent", "timed-out", "within 10s"),
        // The slow one is h5 by another way.
        ("slow", "other", "is the same host as h5"),
        ("liar", "failed", "asked for eth0 and answered for eth9"),
        ("endless", "failed", "is too long"),
        ("gone", "unreachable", "gone"),
    ] {
        assert_eq!(states[host], state, "{host}: {}", why[host]);
        assert!(why[host].contains(words), "{host}: {}", why[host]);
    }
    assert_eq!(states.len(), 12);
    let metrics = rack.read_file("fleet.prom");
    for line in [
        "latput_fleet_hosts{group=\"web\",state=\"same\"} 2",
        "latput_fleet_hosts{group=\"web\",state=\"other\"} 3",
        "latput_fleet_host_state{group=\"web\",host=\"dead\",interface=\"eth0\",state=\"unreachable\"} 1",
        "latput_fleet_knob_drifted{group=\"web\",host=\"h2\",interface=\"eth0\",knob=\"gro\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[needs("root", "ip", "ethtool")]
#[test]
fn interrupted_fleet_names_the_rest() {
    let rack = FleetRack::set_up(2);
    let mark = rack.place.path("asked");
    let silent = rack.write_script("silent", &format!("touch {}; exec sleep 1000", mark.display()));
    rack.write_inventory(&format!("{{ name = \"silent\", target = \"exec:{silent}\" }}"));
    // One place, so that the hosts come one after another; the silent one is the last.
    let args = ["verify", "txqueuelen=1000", "--parallel", "1", "--timeout", "1h", "--json"];
    let mut child = rack.start(&args);
    wait_until("the silent host to be asked", || mark.exists());
    interrupt_pid(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(6), "{}", rack.read_file("stderr"));
    let states = by_host(&parse_document(FLEET, &rack.read_file("stdout")), "state");
    assert_eq!(states.values().collect::<Vec<_>>(), ["same", "same", "not-asked"]);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn differing_twins_are_found_without_wish() {
    let rack = FleetRack::set_up(4);
    rack.run_fleet(&["drift"]).expect(0, &["the hosts of each group are alike"]);
    run_ip(&["-n", "h3", "link", "set", "eth0", "txqueuelen", "123"]);
    let ran = rack.run_fleet(&["drift", "--json"]);
    let found = parse_document(FLEET, &ran.expect(8, &[]).out);
    let expected = serde_json::json!([{ "group": "web", "knob": "txqueuelen", "values": [
        { "value": "1000", "hosts": ["h1", "h2", "h4"] }, { "value": "123", "hosts": ["h3"] },
    ] }]);
    assert_eq!(found["values"], expected);
    rack.run_fleet(&["show", "txqueuelen"]).expect(0, &["123", "h1 h2 h4", "web: 4 hosts: 4 read"]);
    run_ip(&["-n", "h3", "link", "set", "eth0", "txqueuelen", "1000"]);
    rack.write_inventory("{ name = \"dead\", target = \"exec:false\" }");
    let ran = rack.run_fleet(&["drift"]);
    ran.expect(6, &["web: 4 hosts are alike, 1 host not compared", "unreachable  dead"]);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn staged_setting_stays_and_resumes() {
    let rack = FleetRack::set_up(6);
    rack.write_inventory("{ name = \"dead\", target = \"exec:false\" }");
    let args = ["apply", "--canary", "1", "--then", "50%", "--then", "all", "--soak", "0s"];
    let rehearsed = rack.run_fleet(&[&args[..], &["--dry-run"]].concat());
    rehearsed
        .expect(6, &["stage 1: h1\nstage 2: h2 h3\nstage 3: h4 h5 h6", "would-change 6 hosts"]);
    // A veth without GRO has no NAPI instance.
    let refused = rack.run_fleet(&["apply", "gro-flush-timeout=50us", "--dry-run"]);
    refused.expect(6, &["h1 would refuse: a rollout would end", "would-refuse 6 hosts"]);
    assert!(rack.all_are(BEFORE), "a dry run changes nothing");
    let ran = rack.run_fleet(&[&args[..], &["--json"]].concat());
    let found = parse_document(APPLY, &ran.expect(6, &["stage 2 of 3: 2 hosts"]).out);
    let outcomes = by_host(&found, "outcome");
    assert_eq!(found["ended"], "confirmed");
    assert_eq!((outcomes["h1"].as_str(), outcomes["dead"].as_str()), ("confirmed", "unreachable"));
    assert!(rack.all_are("700"), "{:?}", rack.queue_lengths());
    assert_eq!(gro_of("h6"), "on");
    assert!(!rack.has_checkpoint(), "nothing waits");
    // Each host has an entry of its journal, by which it goes back alone.
    let number = found["hosts"][5]["journal"].as_u64().unwrap().to_string();
    let undo = ["lab", "exec", "netns://h6", "--", crate::latput_path(), "undo", &number];
    rack.place.run(&undo).expect(0, &["undid eth0"]);
    assert_eq!((length_of("h6").as_str(), gro_of("h6").as_str()), (BEFORE, "off"));
    rack.write_inventory("");
    rack.run_fleet(&args).expect(0, &["1 host to change, 5 as wanted", "confirmed    1 host"]);
    rack.run_fleet(&args).expect(0, &["0 hosts to change, 6 as wanted"]);
    assert!(rack.all_are("700"));
}

#[needs("root", "ip", "ethtool")]
#[test]
fn rollout_is_listed_kept_and_taken_back() {
    let rack = FleetRack::set_up(3);
    rack.write_inventory("{ name = \"dead\", target = \"exec:false\" }");
    rack.run_fleet(&["undo"]).expect(6, &["h1 eth0: no rollout is in force there", "unreachable"]);
    rack.run_fleet(&["keep", "--dry-run"])
        .expect(6, &["left-out     3 hosts", "gro is off, wanted on", "unreachable  1 host"]);
    let ran = rack.run_fleet(&["apply", "--soak", "0s"]);
    ran.expect(6, &["undo:  latput fleet undo fleet-", "keep:  a network namespace has no"]);
    ran.expect(
        6,
        &["ended; 1 host was not reached: dead. Run the same `latput fleet apply` again"],
    );
    assert!(rack.all_are("700"), "{:?}", rack.queue_lengths());
    let undo = ran.out.lines().find_map(|line| line.strip_prefix("undo:  latput fleet undo "));
    let rollout = undo.unwrap().split(' ').next().unwrap().to_owned();
    let by = format!("{rollout} by ");
    rack.run_fleet(&["log"]).expect(
        6,
        &[
            "h1 eth0\n  ",
            &by,
            ": in-force",
            "txqueuelen (device): 1000 -> 700",
            "dead eth0\n  unreachable: ",
            "ended; 1 host was not reached: dead. Run the same",
        ],
    );
    let log = parse_document(FLEET_LOG, &rack.run_fleet(&["log", "--json"]).expect(6, &[]).out);
    assert_eq!(log["hosts"][0]["entries"][0]["command"], rollout);
    let refused = ["refused      3 hosts", "network namespace without files of its own"];
    rack.run_fleet(&["keep", "--dry-run"]).expect(6, &refused);
    // Each host would do what `latput keep` does there; this test's hosts have one folder of files from here on.
    crate::root_keep::hide_folders();
    rack.run_fleet(&["keep", "--dry-run"])
        .expect(6, &["would-write  3 hosts", "10-latput-eth0.link"]);
    rack.run_fleet(&["undo", "fleet-none"]).expect(6, &["unchanged    3 hosts"]);
    rack.run_fleet(&["verify", "--kept"])
        .expect(6, &["nothing-kept 3 hosts", "unreachable  1 host"]);
    // One host has gone on by itself, another in part.
    run_ip(&["-n", "h2", "link", "set", "eth0", "txqueuelen", "650"]);
    run_ip(&["netns", "exec", "h2", "ethtool", "-K", "eth0", "gro", "off"]);
    run_ip(&["-n", "h3", "link", "set", "eth0", "txqueuelen", "640"]);
    rack.run_fleet(&["undo", "--dry-run"])
        .expect(6, &[&rollout, "would-undo   2 hosts", "unreachable  1 host"]);
    assert_eq!(length_of("h1"), "700", "a dry run changes nothing");
    let undone = rack.run_fleet(&["undo", "--json"]);
    let undone = parse_document(FLEET_DONE, &undone.expect(6, &[]).out);
    assert_eq!(undone["rollout"], rollout);
    let outcomes = by_host(&undone, "outcome");
    let outcome = |host: &str| outcomes[host].as_str();
    assert_eq!(
        ["h1", "h2", "h3", "dead"].map(outcome),
        ["undone", "unchanged", "in-part", "unreachable"]
    );
    let stays = "txqueuelen (device) stays 640: somebody else set it after 700";
    assert_eq!(by_host(&undone, "why")["h3"], stays);
    assert_eq!(["h1", "h2", "h3"].map(length_of), [BEFORE, "650", "640"]);
    rack.write_inventory("");
    rack.run_fleet(&["undo"]).expect(1, &["no rollout is in force"]);
    rack.run_fleet(&["undo", "fleet-none"]).expect(2, &["no host has a change of fleet-none"]);
}

/// Checks that the process that reads the answers has no capability, while a host is silent.
#[track_caller]
fn check_has_no_rights(rack: &FleetRack, args: &[&str], reached: &std::path::Path) {
    let _ = fs::remove_file(reached);
    let times = ["--timeout", "1min", "--confirm-within", "1h"];
    let times = if args[0] == "apply" { &times[..] } else { &times[..2] };
    let mut child = rack.start(&[args, times].concat());
    wait_until("a host to be asked", || reached.exists());
    assert_no_capability(child.id());
    assert_eq!(status_of(child.id(), "CapBnd:"), "0000000000000000");
    let users = status_of(child.id(), "Uid:");
    assert!(!users.split(' ').take(3).any(|user| user == "0"), "{users}");
    let broker = broker_of(child.id()).expect("it has rights");
    interrupt_pid(child.id());
    assert!(child.wait().unwrap().code().is_some(), "{}", rack.read_file("stderr"));
    wait_until("the broker to end", || is_gone(broker));
    assert!(!rack.has_checkpoint(), "nothing waits");
}

#[needs("root", "ip", "ethtool")]
#[test]
fn fleet_reader_is_unprivileged_with_guards() {
    let rack = FleetRack::set_up(2);
    let mark = rack.place.path("asked");
    let silent = rack.write_script("silent", &format!("touch {}; exec sleep 1000", mark.display()));
    rack.write_inventory(&format!("{{ name = \"silent\", target = \"exec:{silent}\" }}"));
    for action in ["show", "drift", "verify", "apply"] {
        check_has_no_rights(&rack, &[action], &mark);
    }
    // A file of a folder that is another user's, which no right is needed for.
    fs::create_dir(rack.place.path("metrics")).unwrap();
    std::os::unix::fs::chown(rack.place.path("metrics"), Some(1234), Some(1234)).unwrap();
    let file = ["verify", "--prometheus", "metrics/fleet.prom"];
    check_has_no_rights(&rack, &file, &mark);
    // While a guard runs, with the rights of the user.
    rack.write_inventory("");
    let guard = format!("[ $(id -u) = 0 ] && touch {}; exec sleep 1000", mark.display());
    let guard = format!("{} {{host}}", rack.write_script("guard", &guard));
    let apply = ["apply", "--soak", "0s", "--guard", &guard];
    check_has_no_rights(&rack, &apply, &mark);
    assert!(rack.all_are(BEFORE), "{:?}", rack.queue_lengths());
}

/// Runs an apply whose guard script breaks something while `h1` is changed, and expects that all go back.
#[track_caller]
fn check_goes_back(rack: &FleetRack, guard: &str, broken: &str) {
    let guard = rack.write_script("guard", guard);
    let guard = format!("{guard} {{host}} {{interface}}");
    let args = ["apply", "--canary", "2", "--then", "all", "--soak", "1s", "--guard", &guard];
    let ran = rack.run_fleet(&[&args[..], &["--json"]].concat());
    let found = parse_document(APPLY, &ran.expect(4, &[broken]).out);
    assert_eq!(found["ended"], "put-back");
    assert!(found["broken"].as_str().unwrap().contains(broken), "{found}");
    let outcomes = by_host(&found, "outcome");
    assert!(outcomes.values().any(|outcome| outcome == "put-back"), "{outcomes:?}");
    let wrong = |outcome: &&String| !["put-back", "unchanged"].contains(&outcome.as_str());
    assert_eq!(outcomes.values().find(wrong), None, "{outcomes:?}");
    assert!(!rack.has_checkpoint(), "nothing waits");
}

#[needs("root", "ip", "ethtool")]
#[test]
fn broken_guard_restores_every_stage() {
    let rack = FleetRack::set_up(5);
    // In the second stage, when all are changed.
    check_goes_back(&rack, "[ $1 != h4 ] || { echo no pages; exit 3; }", "h4: the guard");
    assert!(rack.all_are(BEFORE), "{:?}", rack.queue_lengths());
    assert!((1..=5).all(|host| gro_of(&format!("h{host}")) == "off"));
    check_goes_back(&rack, "no-such-program-at-all", "not found");
    assert!(rack.all_are(BEFORE), "{:?}", rack.queue_lengths());
    let down = "[ $1 != h4 ] || ip -n h2 link set $2 down";
    check_goes_back(&rack, down, "h2: eth0 is down, and was up before");
    assert!(rack.all_are(BEFORE), "{:?}", rack.queue_lengths());
    run_ip(&["-n", "h2", "link", "set", "eth0", "up"]);
    let cut = "[ $1 != h4 ] || ip link set p3 down";
    check_goes_back(&rack, cut, "h3: eth0 has no carrier, and had one before");
    assert!(rack.all_are(BEFORE), "{:?}", rack.queue_lengths());
    run_ip(&["link", "set", "p3", "up"]);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn foreign_value_breaks_guard_and_stays() {
    let rack = FleetRack::set_up(3);
    let other = "[ $1 != h3 ] || ip -n h1 link set $2 txqueuelen 55";
    check_goes_back(&rack, other, "h1: the setting is no longer in force: txqueuelen is 55");
    assert_eq!(rack.queue_lengths(), ["55", BEFORE, BEFORE]);
    assert_eq!(gro_of("h1"), "off");
}

#[needs("root", "ip", "ethtool")]
#[test]
fn host_that_refuses_stops_the_others() {
    let rack = FleetRack::set_up(4);
    // A veth takes an MTU of at most 65535.
    let args = ["apply", "txqueuelen=501", "mtu=65536", "--soak", "0s"];
    let ran = rack.run_fleet(&args);
    assert!([1, 4].contains(&ran.code.unwrap()), "{ran:?}");
    ran.expect(ran.code.unwrap(), &["h1: "]);
    assert!(!rack.has_checkpoint() && rack.all_are(BEFORE));
    let mtu = Command::new("ip").args(["-n", "h1", "link", "show", "eth0"]).output().unwrap();
    assert!(CommandOutput::from(mtu).out.contains("mtu 1500"));
}

#[needs("root", "ip", "ethtool")]
#[test]
fn second_fleet_names_first_and_stops() {
    let rack = FleetRack::set_up(3);
    let first = ["apply", "--canary", "all", "--soak", "5min", "--confirm-within", "1h"];
    let mut first = rack.start(&first);
    wait_until("all to be changed", || rack.all_are("700"));
    wait_until("the guards to be watched", || rack.read_file("stderr").contains("stage 1 of 1"));
    let second = rack.run_fleet(&["apply", "txqueuelen=600", "--soak", "0s"]);
    second
        .expect(6, &["0 hosts to change", "left-out", "a change (fleet-", "waits to be confirmed"]);
    assert!(rack.all_are("700"));
    // A restore of the second's name would leave the first's change alone.
    let restore = ["lab", "exec", "netns://h1", "--", crate::latput_path(), "restore"];
    let other = [&restore[..], &["eth0", "--made-by=fleet-other"]].concat();
    rack.place.run(&other).expect(0, &["nothing to restore"]);
    assert!(rack.all_are("700"));
    interrupt_pid(first.id());
    assert_eq!(first.wait().unwrap().code(), Some(4), "{}", rack.read_file("stderr"));
    assert!(rack.read_file("stderr").contains("interrupted: 3 hosts put back"));
    assert!(rack.all_are(BEFORE) && !rack.has_checkpoint());
}

#[needs("root", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn killed_controller_leaves_hosts_that_go_back() {
    let rack = FleetRack::set_up(3);
    let args = ["apply", "--canary", "all", "--soak", "20s", "--timeout", "10s"];
    let mut child = rack.start(&[&args[..], &["--confirm-within", "2min"]].concat());
    wait_until("all to be changed", || rack.all_are("700"));
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until("all to go back", || rack.all_are(BEFORE) && !rack.has_checkpoint());
    assert_eq!(gro_of("h2"), "off");
}

#[needs("root", "ip", "ethtool")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn lost_host_is_named_with_deadline() {
    let rack = FleetRack::set_up(3);
    let cut = rack.place.path("cut");
    let way = rack.write_script(
        "way",
        &format!("[ ! -e {} ] && exec ip netns exec h3 \"$@\"", cut.display()),
    );
    rack.place.write(
        "lost.toml",
        &format!(
            "schema = 1\n[group.web]\nhosts = [\"netns://h1\", \"netns://h2\", {{ name = \"far\", target = \
             \"exec:{way}\" }}]\ninterface = \"eth0\"\nsettings = {{ txqueuelen = 700 }}\n"
        ),
    );
    let guard = rack.write_script("guard", &format!("[ $1 != h1 ] || touch {}", cut.display()));
    let guard = format!("{guard} {{host}}");
    let args = ["apply", "-i", "lost.toml", "--canary", "all", "--soak", "1s", "--timeout", "10s"];
    let more = ["--confirm-within", "90s", "--guard", &guard, "--json"];
    let ran = rack.run_fleet(&[&args[..], &more].concat());
    ran.expect(5, &["far: unreachable", "2 hosts put back"]);
    let found = parse_document(APPLY, &ran.out);
    let outcomes = by_host(&found, "outcome");
    let expected = ["goes-back", "put-back", "put-back"];
    assert_eq!(outcomes.values().collect::<Vec<_>>(), expected);
    assert!(by_host(&found, "why")["far"].contains("it goes back by itself by 20"), "{found}");
    assert!(found["hosts"][2]["back_by_unix_ms"].as_u64().is_some());
    let error = ran.err.lines().last().unwrap();
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["left"][0]["what"], "far", "{error}");
    assert_eq!(rack.queue_lengths()[..2], [BEFORE, BEFORE]);
    wait_until("the lost host to go back", || rack.all_are(BEFORE) && !rack.has_checkpoint());
}

#[needs("root", "ip", "ethtool")]
#[test]
fn second_interrupt_ends_the_wait() {
    let rack = FleetRack::set_up(2);
    let cut = rack.place.path("cut");
    let way =
        format!("[ ! -e {0} ] || exec sleep 1000; exec ip netns exec h2 \"$@\"", cut.display());
    let way = rack.write_script("way", &way);
    rack.place.write(
        "lost.toml",
        &format!(
            "schema = 1\n[group.web]\nhosts = [\"netns://h1\", {{ name = \"far\", target = \"exec:{way}\" }}]\n\
             interface = \"eth0\"\nsettings = {{ txqueuelen = 700 }}\n"
        ),
    );
    let args =
        ["apply", "-i", "lost.toml", "--canary", "all", "--soak", "2min", "--timeout", "1min"];
    let mut child = rack.start(&[&args[..], &["--confirm-within", "15min"]].concat());
    wait_until("both to be changed", || rack.all_are("700"));
    fs::write(&cut, "").unwrap();
    interrupt_pid(child.id());
    wait_until("the first to go back", || length_of("h1") == BEFORE);
    interrupt_pid(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(5), "{}", rack.read_file("stderr"));
    let said = rack.read_file("stdout");
    assert!(
        said.contains("far eth0: the wait for it was cut short; it goes back by itself by"),
        "{said}"
    );
    fs::remove_file(&cut).unwrap();
    let restore = ["lab", "exec", "netns://h2", "--", crate::latput_path(), "restore"];
    rack.place.run(&restore).expect(0, &["put back eth0"]);
    assert!(rack.all_are(BEFORE));
}

/// The second host hangs where it is to confirm, and then the controller is killed.
#[needs("root", "ip", "ethtool")]
#[test]
fn rollout_cut_short_is_named_and_finished() {
    let rack = FleetRack::set_up(2);
    let inventory = |way: &str| {
        let text = format!(
            "schema = 1\n[group.web]\nhosts = [\"netns://h1\", {{ name = \"far\", target = \"exec:{way}\" }}]\n\
             interface = \"eth0\"\nsettings = {{ txqueuelen = 700 }}\n"
        );
        rack.place.write("far.toml", &text);
    };
    let fleet = |args: &[&str]| rack.run_fleet(&[args, &["-i", "far.toml"]].concat());
    inventory("true");
    fleet(&["finish"]).expect(2, &["--confirm", "--back"]);
    for way in ["--confirm", "--back"] {
        // Files of its own for each: what hangs of the other may go on late.
        let at = |name: &str| rack.place.path(&format!("{name}{way}"));
        let (asked, hold, far) = (at("asked"), at("hold"), at("far"));
        fs::create_dir(&far).unwrap();
        rack.write_script(
            &format!("far{way}/latput"),
            &format!(
                "case \"$*\" in *--extend*) ;; 'confirm eth0'*) touch {asked}; while [ -e {hold} ]; do sleep 0.1; \
                 done;; esac; exec {latput} \"$@\"",
                asked = asked.display(),
                hold = hold.display(),
                latput = crate::latput_path()
            ),
        );
        let far_first = format!("PATH={}:$PATH exec ip netns exec h2 \"$@\"", far.display());
        let to_far = rack.write_script(&format!("way{way}"), &far_first);
        inventory(&to_far);
        fleet(&["finish", "--back"]).expect(1, &["no rollout is under way or cut short"]);
        fs::write(&hold, "").unwrap();
        let args =
            ["apply", "-i", "far.toml", "--canary", "all", "--soak", "0s", "--parallel", "1"];
        let mut child = rack.start(&[&args[..], &["--confirm-within", "15min"]].concat());
        wait_until("the second host to be asked", || asked.exists());
        kill_pid(child.id());
        child.wait().unwrap();
        let named = ["cut short: confirmed on h1; waits on far, and goes back in", way];
        fleet(&["verify"]).expect(0, &named);
        fleet(&["log"]).expect(0, &named);
        // Without an answer of the second it is not known whether it waits, keeps it or went back.
        inventory("false");
        let silent = ["may have been cut short: confirmed on h1; not known of far, which did not"];
        fleet(&["log"]).expect(6, &silent);
        inventory(&to_far);
        assert!(rack.has_checkpoint());
        if way == "--confirm" {
            fleet(&["finish", way, "--timeout", "3s"])
                .expect(6, &["cut short", "far eth0", "did not answer"]);
            fs::remove_file(&hold).unwrap();
            let ran = fleet(&["finish", way, "--json"]);
            // One of those that hung may have confirmed it.
            if ran.code == Some(0) {
                let outcomes = by_host(&parse_document(FLEET_DONE, &ran.out), "outcome");
                assert_eq!(outcomes.values().collect::<Vec<_>>(), ["confirmed", "confirmed"]);
            }
            wait_until("both to be confirmed", || !rack.has_checkpoint());
            assert!(rack.all_are("700"));
            fleet(&["undo"]).expect(0, &["undone       2 hosts"]);
        } else {
            fleet(&["finish", way]).expect(0, &["put-back     1 host", "undone       1 host"]);
            fs::remove_file(&hold).unwrap();
        }
        let ran = fleet(&["verify"]);
        ran.expect(8, &["2 drifted"]);
        assert!(!ran.err.contains("cut short"), "{ran:#?}");
        assert!(rack.all_are(BEFORE) && !rack.has_checkpoint());
    }
}

#[needs("root", "ip", "ethtool")]
#[test]
fn split_rollout_names_both_kinds_of_host() {
    let rack = FleetRack::set_up(3);
    let set = |host: &str, more: &[&str]| {
        let (at, made_by) = (format!("netns://{host}"), "--made-by=fleet-7");
        let set = [
            "lab",
            "exec",
            &at,
            "--",
            crate::latput_path(),
            "set",
            "eth0",
            "txqueuelen=700",
            made_by,
        ];
        rack.place.run(&[&set[..], more].concat()).expect(0, &["changed"]);
    };
    set("h1", &[]);
    let h1 = ["lab", "exec", "netns://h1", "--", crate::latput_path()];
    let of_other = ["undo", "1", "--of-fleet", "--made-by=fleet-8"];
    rack.place.run(&[&h1[..], &of_other].concat()).expect(1, &["change 1 is not undone: it is of"]);
    set("h2", &["--confirm-within", "1s"]);
    set("h3", &["--confirm-within", "15min"]);
    wait_until("the second host to go back", || length_of("h2") == BEFORE);
    let named = "rollout fleet-7 is under way or was cut short: confirmed on h1; waits on h3";
    wait_until("it to be in the journal", || {
        rack.run_fleet(&["show", "mtu"]).err.contains("back on h2")
    });
    rack.run_fleet(&["drift", "txqueuelen"]).expect(8, &[named]);
    let ran = rack.run_fleet(&["finish", "fleet-7", "--confirm"]);
    ran.expect(6, &["confirmed    2 hosts", "h2 eth0: it went back before: `latput fleet apply`"]);
    assert_eq!(rack.queue_lengths(), ["700", BEFORE, "700"]);
    let ended = "rollout fleet-7 ended; 1 host was not reached: h2. Run the same `latput fleet apply` again";
    rack.run_fleet(&["verify"]).expect(8, &[ended]);
    rack.run_fleet(&["finish", "--back"]).expect(1, &["no rollout is under way or cut short"]);
    rack.run_fleet(&["undo", "fleet-7"])
        .expect(0, &["undone       2 hosts", "unchanged    1 host"]);
    assert!(rack.all_are(BEFORE) && !rack.has_checkpoint());
    rack.run_fleet(&["finish", "--back"]).expect(1, &["no rollout"]);
}

#[needs("ansible-inventory", "root", "ip", "ethtool")]
#[test]
fn ansible_hosts_are_read_by_ansible() {
    let rack = FleetRack::set_up(3);
    rack.place.write(
        "hosts.ini",
        "[web]\nweb1 latput_target=netns://h1\nweb2 latput_target=netns://h2\n[db]\ndb1 latput_target=netns://h3\n\
         [web:vars]\nlatput_interface=eth0\nlatput_settings={'txqueuelen': 1000}\n[db:vars]\nlatput_interface=eth0\n",
    );
    rack.place.write(
        "hosts.yaml",
        "all:\n  children:\n    web:\n      vars: { latput_interface: eth0, latput_settings: { txqueuelen: 1000, gro: \
         false } }\n      hosts:\n        web1: { latput_target: 'netns://h1' }\n",
    );
    rack.run_fleet(&["verify", "-i", "hosts.ini", "--group", "web"])
        .expect(0, &["web: 2 hosts: 2 same"]);
    rack.run_fleet(&["verify", "-i", "hosts.ini"])
        .expect(2, &["no wanted values for db1", "group `db`"]);
    rack.run_fleet(&["verify", "-i", "hosts.ini", "txqueuelen=1"])
        .expect(8, &["db1 eth0: txqueuelen is"]);
    rack.run_fleet(&["verify", "-i", "hosts.yaml"]).expect(0, &["web: 1 host: 1 same"]);
    let listing = Command::new("ansible-inventory")
        .args(["-i", "hosts.ini", "--list"])
        .current_dir(rack.place.path(""))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    fs::write(rack.place.path("hosts.json"), listing.stdout).unwrap();
    rack.run_fleet(&["verify", "-i", "hosts.json", "--group", "web"]).expect(0, &["2 same"]);
}

#[needs("root", "ip", "ethtool")]
#[test]
fn what_a_run_recommends_is_verified_and_set() {
    let rack = FleetRack::set_up(3);
    rack.place.write("plan.toml", crate::fleet::PLAN);
    rack.place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "r.db"]).expect(0, &[]);
    let of =
        |action: &str, more: &[&str]| rack.run_fleet(&[&[action, "--from", "r.db"], more].concat());
    of("verify", &[]).expect(
        8,
        &["the wanted values are setting `mtu=9000`", "mtu is 1500, wanted 9000", "3 drifted"],
    );
    of("apply", &["--soak", "0s"])
        .expect(0, &["r.db is a simulation (`sim:server-10g`): no host", "confirmed    3 hosts"]);
    for host in ["h1", "h2", "h3"] {
        let args = ["-n", host, "-o", "link", "show", "eth0"];
        let said = CommandOutput::from(Command::new("ip").args(args).output().unwrap()).out;
        assert!(said.contains(" mtu 9000 "), "{host}: {said}");
    }
    assert!(rack.all_are(BEFORE), "the inventory's settings are not those of the results");
    of("verify", &[]).expect(0, &["3 same"]);
    of("verify", &["--setting", "1500"]).expect(8, &["mtu is 9000, wanted 1500"]);
}
