//! `latput fleet confirm` on three pairs of namespaces: what is decided, kept, resumed and put back.

use std::path::PathBuf;
use std::process::{Child, Command};

use latput_testkit::{isolate, needs};
use serde_json::Value;

use crate::two_hosts::{run_ip, write_script};
use crate::{
    CommandOutput, Place, agents_of, assert_no_capability, broker_of, descendants_of, is_gone,
    kill_pid, wait_until,
};

/// The kernel paces what the generator sends to a fifth or a fiftieth of what any host can, so that its load does not count.
const PLAN: &str = r#"
schema = 1
name = "paced"
goal = "maximize throughput_bps"
[factors]
"generator.qdisc" = ["tbf rate=4Mbps burst=65536B limit=131072B", "tbf rate=16Mbps burst=65536B limit=131072B"]
[[workload]]
kind = "tcp_stream"
message_bytes = 4096
[method]
beside = true # other tests run
repetitions = { min = 6, max = 6 }
warmup = "150ms"
duration = "350ms"
confidence = 0.999
half_width = "50%"
"#;
const LABEL: &str = "generator.qdisc=tbf rate=16Mbps";
const PAIRS: [&str; 3] =
    ["netns://s1,netns://c1", "netns://s2,netns://c2", "netns://s3,netns://c3"];
/// The discipline that `tc` shows on the generators when nothing was changed.
const SLOW: &str = "rate 4Mbit";

/// Three pairs of hosts, and results that recommend the faster pace.
struct HostPairs {
    place: Place,
}

impl HostPairs {
    fn set_up() -> Self {
        isolate();
        for number in 1..=3 {
            let [sut, generator] = ["s", "c"].map(|kind| format!("{kind}{number}"));
            run_ip(&["netns", "add", &sut]);
            run_ip(&["netns", "add", &generator]);
            let veth = ["type", "veth", "peer", "name", "eth0", "netns", &generator];
            run_ip(&[&["link", "add", "eth0", "netns", &sut][..], &veth].concat());
            for (host, end) in [(&sut, 1), (&generator, 2)] {
                let address = format!("198.18.{number}.{end}/24");
                run_ip(&["-n", host, "address", "add", &address, "dev", "eth0"]);
                run_ip(&["-n", host, "link", "set", "eth0", "up"]);
            }
            set_rate(&generator, "4mbit");
        }
        let place = Place::new();
        place.write("plan.toml", PLAN);
        std::fs::create_dir(place.path("bin")).unwrap();
        let latput = crate::latput_path();
        std::os::unix::fs::symlink(latput, place.path("bin/latput")).unwrap();
        let pairs = Self { place };
        let run = ["run", "plan.toml", "--on", PAIRS[0], "-o", "a.db"];
        pairs.run(&run).expect(0, &[LABEL]);
        pairs
    }

    fn latput_command(&self, args: &[&str]) -> Command {
        let bin = self.place.path("bin").display().to_string();
        let mut command = self.place.latput_command(args);
        command.env("PATH", format!("{bin}:/usr/sbin:/usr/bin:/sbin:/bin"));
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.latput_command(args).output().unwrap())
    }

    fn run_confirm(&self, pairs: [&str; 3], more: &[&str]) -> CommandOutput {
        self.run(&[&["fleet", "confirm", "a.db"][..], &pairs, more].concat())
    }

    fn start(&self, more: &[&str]) -> Child {
        let to = |name: &str| std::fs::File::create(self.place.path(name)).unwrap();
        let args = [&["fleet", "confirm", "a.db"][..], &PAIRS, more].concat();
        self.latput_command(&args).stdout(to("stdout")).stderr(to("stderr")).spawn().unwrap()
    }

    fn trials_of(&self, number: usize) -> i64 {
        self.place.count_trials(&file_of(number))
    }
}

/// The results file of a pair, counted from 1.
fn file_of(number: usize) -> String {
    format!("latput-pairs/netns_s{number},netns_c{number}.db")
}

#[track_caller]
fn run_in_host(host: &str, shell: &str) -> String {
    let ran = Command::new("ip").args(["netns", "exec", host, "sh", "-c", shell]).output().unwrap();
    let ran = CommandOutput::from(ran);
    ran.expect(0, &[]);
    ran.out.trim().to_owned()
}

fn set_rate(host: &str, rate: &str) {
    run_in_host(
        host,
        &format!("tc qdisc replace dev eth0 root tbf rate {rate} burst 64kb limit 128kb"),
    );
}

fn is_as_before() -> bool {
    ["c1", "c2", "c3"].iter().all(|host| run_in_host(host, "tc qdisc show dev eth0").contains(SLOW))
}

fn parse_document(text: &str) -> Value {
    let document: Value = serde_json::from_str(text).unwrap();
    let schema = include_str!("../../../../docs/schema/fleet-confirm.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document), "{document}");
    document
}

#[needs("root", "ip", "tc")]
#[test]
fn shared_winner_is_confirmed_once() {
    let pairs = HostPairs::set_up();
    let ran = pairs.run_confirm(PAIRS, &["--check"]);
    ran.expect(0, &["netns://s2,netns://c2: ready", "3 of 3 pairs are to be measured"]);
    assert!(!pairs.place.path("latput-pairs").exists());
    let ran = pairs.run_confirm(PAIRS, &[]);
    ran.expect(0, &["confirmed: proven better on every pair", LABEL]);
    assert!(is_as_before());
    let trials = [1, 2, 3].map(|number| pairs.trials_of(number));
    assert!(trials.iter().all(|count| *count >= 12), "{trials:?}");
    // The same command measures nothing, and neither does one that names the pairs by an inventory.
    pairs.run_confirm(PAIRS, &["--check"]).expect(0, &["confirmed", "measured earlier"]);
    let ran = pairs.run_confirm(PAIRS, &["--json"]);
    let found = parse_document(&ran.expect(0, &[]).out);
    assert_eq!(found["verdict"], "confirmed", "{found}");
    for pair in found["pairs"].as_array().unwrap() {
        assert_eq!(pair["outcome"], "done");
        // The kernel's rates are one to four.
        let ratio = pair["ratio"]["ratio"].as_f64().unwrap();
        assert!((3.0..5.0).contains(&ratio), "{pair}");
    }
    let listed = PAIRS.map(|pair| format!("[\"{}\"]", pair.replace(',', "\", \"")));
    let text = format!("schema = 1\n[group.all]\npairs = [{}]\n", listed.join(", "));
    pairs.place.write("inventory.toml", &text);
    let ran = pairs.run(&["fleet", "confirm", "a.db", "-i", "inventory.toml"]);
    ran.expect(0, &["measured earlier", "confirmed"]);
    assert_eq!([1, 2, 3].map(|number| pairs.trials_of(number)), trials);
    // `fleet pairs` says the same of the same files.
    let files: Vec<String> = (1..=3).map(file_of).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let ran = pairs.run(&[&["fleet", "pairs"], &files[..]].concat());
    ran.expect(0, &["set `generator.qdisc=tbf rate=16Mbps"]);
}

#[needs("root", "ip", "tc")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn killed_confirm_restores_hosts_and_resumes() {
    let pairs = HostPairs::set_up();
    let more = ["--repetitions", "12..12"];
    let mut child = pairs.start(&more);
    wait_until("the second pair to have trials", || pairs.trials_of(2) > 0);
    // The reader of hosts' answers and results has no rights; the broker does not have the lines to agents.
    assert_no_capability(child.id());
    assert!(broker_of(child.id()).is_some());
    assert!(!agents_of(child.id()).is_empty());
    let others = descendants_of(child.id());
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until("all that it started to end", || others.iter().all(|pid| is_gone(*pid)));
    wait_until("the hosts to be as they were", is_as_before);
    let (first, begun) = (pairs.trials_of(1), pairs.trials_of(2));
    assert!(begun > 0 && pairs.trials_of(3) == 0);
    let ran = pairs.run_confirm(PAIRS, &more);
    ran.expect(0, &["s1,netns://c1: measured earlier", "resuming run 1", "confirmed"]);
    assert_eq!(pairs.trials_of(1), first);
    assert!(pairs.trials_of(2) > begun);
    assert!(is_as_before());
}

#[needs("root", "ip", "tc")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn unreachable_pair_is_measured_later() {
    let pairs = HostPairs::set_up();
    let way: PathBuf = pairs.place.path("way");
    write_script(&way, "echo gone >&2; exit 1");
    let third = format!("exec:{},netns://c3", way.display());
    let words = [PAIRS[0], PAIRS[1], &third];
    let ran = pairs.run_confirm(words, &["--json"]);
    let found = parse_document(&ran.expect(6, &[]).out);
    assert_eq!(
        (&found["verdict"], &found["pairs"][2]["outcome"]),
        (&Value::Null, &"failed".into())
    );
    assert_eq!(found["pairs"][0]["outcome"], "done", "{found}");
    assert!(found["pairs"][2]["why"].as_str().unwrap().contains("gone"), "{found}");
    let kept = pairs.trials_of(1);
    write_script(&way, "exec ip netns exec s3 \"$@\"");
    pairs.run_confirm(words, &[]).expect(0, &["measured earlier", "confirmed"]);
    assert_eq!(pairs.trials_of(1), kept);
    assert!(is_as_before());
}

#[needs("root", "ip", "tc")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn unlike_pairs_are_named_before_measuring() {
    let pairs = HostPairs::set_up();
    set_rate("c2", "5mbit");
    set_rate("c3", "16mbit");
    let ran = pairs.run_confirm(PAIRS, &[]);
    ran.expect(6, &["values of today differ", "generator.qdisc=tbf rate=5Mbps"]);
    ran.expect(6, &["it has the setting already", "no verdict: 2 of 3 pairs are missing"]);
    assert_eq!([2, 3].map(|number| pairs.trials_of(number)), [0, 0]);
    // A host under another name.
    for (host, address) in [("s2", "198.18.1.77/24"), ("c1", "198.18.2.77/24")] {
        run_ip(&["-n", host, "address", "add", address, "dev", "eth0"]);
    }
    let other = "netns://s2,exec:ip netns exec c1";
    let ran = pairs.run_confirm([PAIRS[0], other, PAIRS[2]], &["-o", "other"]);
    ran.expect(6, &["have a host in common"]);
}

#[needs("root", "ip", "tc")]
#[test]
fn foreign_results_run_no_program() {
    let pairs = HostPairs::set_up();
    let plan = PLAN.replace(
        "kind = \"tcp_stream\"",
        "kind = \"command\"\ncommand = \"sh -c 'sleep 0.05; echo 5'\"\n\
         metrics = { own = [{ name = \"n\", regex = '([0-9]+)', better = \"higher\" }] }",
    );
    let plan =
        plan.replace("maximize throughput_bps", "maximize n").replace("message_bytes = 4096", "");
    pairs.place.write("command.toml", &plan);
    let ran = pairs.run(&["run", "command.toml", "--on", PAIRS[0], "-o", "command.db"]);
    ran.expect(0, &[]);
    let args = [&["fleet", "confirm", "command.db", "--setting", "16Mbps"][..], &PAIRS].concat();
    pairs.run(&args).expect(2, &["it measured a command", "then `latput fleet pairs`"]);
}
