//! `latput fleet` without root: this host's loopback as a fleet, and inventories that cannot be meant.

use latput_testkit::needs;

use crate::Place;

/// In the simulator the second is proven better.
pub(crate) const PLAN: &str = r#"
schema = 1
name = "two"
goal = "maximize throughput_bps"
[factors]
mtu = [1500, 9000]
[[workload]]
kind = "tcp_stream"
[method]
repetitions = { min = 5, max = 5 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;

#[test]
fn this_host_is_a_fleet_of_one() {
    let place = Place::new();
    place.write(
        "inventory.toml",
        "schema = 1\n[group.own]\nhosts = ['lo']\nsettings = { mtu = 65536 }\n",
    );
    place.run(&["fleet", "verify"]).expect(0, &["own: 1 host: 1 same"]);
    place.run(&["fleet", "verify", "mtu=1500"]).expect(8, &["lo: mtu is 65536, wanted 1500"]);
    place.run(&["fleet", "show", "mtu"]).expect(0, &["65536", "own: 1 host: 1 read"]);
    place.run(&["fleet", "drift"]).expect(0, &["own: nothing to compare, 1 of 1 host was read"]);
    let listed = ["fleet", "verify", "--hosts-from", "echo lo", "mtu=65536"];
    place.run(&listed).expect(0, &["hosts: 1 host: 1 same"]);
    let rehearsed = ["fleet", "apply", "mtu=65536", "--dry-run", "--json"];
    place.run(&rehearsed).expect(0, &["\"ended\": \"dry-run\"", "\"outcome\": \"same\""]);
}

/// Every command that asks hosts, with the field of its JSON that has the reason.
const HOST_COMMANDS: &[(&[&str], &str)] = &[
    (&["show", "mtu"], "why"),
    (&["verify"], "why"),
    (&["verify", "--kept"], "why"),
    (&["drift", "mtu"], "why"),
    (&["apply", "--dry-run"], "why"),
    (&["apply"], "why"),
    (&["undo", "--dry-run"], "why"),
    (&["undo"], "why"),
    (&["undo", "fleet-1"], "why"),
    (&["finish", "--confirm"], "why"),
    (&["finish", "--back"], "why"),
    (&["keep", "--dry-run"], "why"),
    (&["keep"], "why"),
    (&["log"], "problem"),
];

#[test]
fn dead_host_has_one_outcome_everywhere() {
    let place = Place::new();
    place.write(
        "inventory.toml",
        "schema = 1\n[group.own]\nhosts = [{ name = \"dead\", target = \"exec:false\" }]\ninterface = \"eth0\"\n\
         settings = { mtu = 1400 }\n",
    );
    let mut sentence = None;
    for (args, why) in HOST_COMMANDS {
        let args = [&["fleet"], *args].concat();
        let ran = place.run(&[&args[..], &["--json"]].concat());
        ran.expect(6, &[]);
        let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let host = &found["hosts"][0];
        let outcome = host.get("outcome").or_else(|| host.get("state"));
        assert_eq!(outcome.unwrap(), "unreachable", "{args:?}: {found}");
        let why = host[*why].as_str().unwrap();
        assert_eq!(why, sentence.get_or_insert_with(|| why.to_owned()), "{args:?}");
        place.run(&args).expect(6, &["unreachable", why]);
    }
    assert!(sentence.unwrap().contains("`false` ended"));
}

#[test]
fn bad_inventory_is_refused_with_remedy() {
    let place = Place::new();
    place.write("bad.toml", "schema = 1\n[group.a]\nhosts = ['ssh://a']\n");
    place.write("json.json", "[1]");
    let two =
        "schema = 1\n[group.a]\nhosts = ['ssh://a%e', 'ssh://b%e']\nsettings = { mtu = 1400 }\n";
    place.write("two.toml", two);
    place.write("twice.toml", "schema = 1\n[group.a]\nhosts = ['ssh://a%e']\n[group.b]\nhosts = ['ssh://a%e']\nsettings = { mtu = 1400 }\n");
    for (args, words) in [
        (&["verify"][..], &["inventory.toml", "--inventory", "--hosts-from"][..]),
        (&["verify", "-i", "bad.toml", "mtu=1"], &["mtu: `1` is too small"]),
        (&["verify", "-i", "bad.toml", "mtu=1400"], &["no interface is named", "--interface eth0"]),
        (&["verify", "-i", "bad.toml", "--interface", "e"], &["no wanted values for a"]),
        (&["verify", "-i", "bad.toml", "--group", "b"], &["no host is in group b"]),
        (&["verify", "-i", "json.json"], &["not what `ansible-inventory --list` prints"]),
        (&["verify", "-i", "twice.toml"], &["the same host and interface", "different settings"]),
        (&["verify", "--hosts-from", "false"], &["`false` ended with 1"]),
        (&["verify", "--hosts-from", "no-such-program"], &["cannot start `no-such-program`"]),
        (&["verify", "--hosts-from", "echo"], &["names no host"]),
        (&["verify", "--hosts-from", "a | b"], &["--hosts-from `a | b`"]),
        (&["show", "mut"], &["mtu"]),
        (&["apply", "--canary", "0"], &["a number of hosts, a share such as 10%"]),
        (
            &["apply", "-i", "two.toml", "--soak", "5min"],
            &["2 stages need up to", "Use `--confirm-within"],
        ),
        (&["apply", "--guard", ""], &["--guard ``: it names no program"]),
        (&["apply", "--guard", "nosuchprogram {host}"], &["no program `nosuchprogram`"]),
        (&["apply", "--guard", "sh -c {hst}"], &["did you mean `{host}`?"]),
        (&["verify", "--parallel", "0"], &["from 1 to 200"]),
    ] {
        place.run(&[&["fleet"], args].concat()).expect(2, words);
    }
}

#[test]
fn unproven_results_and_unknown_settings_are_refused() {
    let place = Place::new();
    place.write("same.toml", &PLAN.replace("9000", "1499"));
    place.run(&["run", "same.toml", "--on", "sim:server-10g", "-o", "same.db"]).expect(0, &[]);
    let verify = |words: &[&str]| {
        place.run(&[&["fleet", "verify", "--hosts-from", "echo lo"], words].concat())
    };
    let same = ["--from", "same.db"];
    verify(&same).expect(2, &["no setting is proven better", "with --setting: mtu=1500, mtu=1499"]);
    verify(&[&same[..], &["--setting", "7us"]].concat()).expect(2, &["7us", "the settings are"]);
    verify(&[&same[..], &["--setting", "1499"]].concat()).expect(8, &["wanted 1499"]);
    verify(&[&same[..], &["mtu=1400"]].concat()).expect(2, &["cannot be used with"]);
    verify(&["--from", "none.db"]).expect(2, &["none.db"]);
    verify(&["--setting", "1499", "mtu=1400"]).expect(2, &["cannot be used with"]);
    verify(&["--setting", "1499"]).expect(2, &["--from"]);
}

#[test]
fn winner_of_some_pairs_is_unstable() {
    let place = Place::new();
    for (number, profile) in
        ["server-10g", "server-10g", "server-10g", "hs22-ixgbe"].iter().enumerate()
    {
        let plan = PLAN.replace("seed = 7", &format!("seed = {number}"));
        place.write("plan.toml", &plan);
        let results = format!("pair{number}.db");
        place
            .run(&["run", "plan.toml", "--on", &format!("sim:{profile}"), "-o", &results])
            .expect(0, &[]);
    }
    let pairs = |words: &[&str]| place.run(&[&["fleet", "pairs"], words].concat());
    pairs(&["pair0.db", "pair1.db", "pair2.db"])
        .expect(0, &["stable     mtu=9000: proven better on every pair", "set `mtu=9000`"]);
    let ran = pairs(&["pair0.db", "pair1.db", "pair3.db", "--json"]);
    ran.expect(1, &[]);
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let schema = include_str!("../../../../docs/schema/fleet-pairs.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&found), "{found}");
    assert_eq!(found["settings"][0]["verdict"], "unstable", "{found}");
    assert_eq!(found["recommended"], serde_json::Value::Null);
    pairs(&["pair0.db", "pair1.db"]).expect(0, &["two pairs say little"]);
    pairs(&["pair0.db", "pair0.db"]).expect(2, &["given twice"]);
    pairs(&["pair0.db", "none.db"]).expect(2, &["none.db"]);
}

const PAIRS: [&str; 3] =
    ["netns://no-s1,netns://no-c1", "netns://no-s2,netns://no-c2", "netns://no-s3,netns://no-c3"];

#[test]
fn unconfirmable_pairs_are_refused_with_remedy() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.write("same.toml", &PLAN.replace("9000", "1499"));
    place.write("no-goal.toml", &PLAN.replace("goal = \"maximize throughput_bps\"", ""));
    for (plan, results) in
        [("plan.toml", "a.db"), ("same.toml", "same.db"), ("no-goal.toml", "no.db")]
    {
        place.run(&["run", plan, "--on", "sim:server-10g", "-o", results]).expect(0, &[]);
    }
    place.write("hosts.toml", "schema = 1\n[group.a]\nhosts = ['ssh://a']\n");
    place.write("odd.toml", "schema = 1\n[group.a]\npairs = [['ssh://a']]\n");
    place.write(
        "two.toml",
        "schema = 1\n[group.a]\npairs = [['ssh://a', 'ssh://b'], ['ssh://c', 'ssh://d']]\n",
    );
    let words = |results: &'static str, more: &[&'static str]| {
        [&["fleet", "confirm", results], &PAIRS[..], more].concat()
    };
    for (args, code, said) in [
        (vec!["fleet", "confirm"], 2, &["RESULTS"][..]),
        (vec!["fleet", "confirm", "a.db"], 2, &["0 pairs of hosts", "HOST,HOST"]),
        (vec!["fleet", "confirm", "a.db", PAIRS[0], PAIRS[1]], 2, &["2 pairs", "fleet pairs"]),
        (vec!["fleet", "confirm", "a.db", PAIRS[0], PAIRS[1], PAIRS[0]], 2, &["given twice"]),
        (vec!["fleet", "confirm", "a.db", PAIRS[0], PAIRS[1], "lab"], 2, &["`lab` is not a pair"]),
        (vec!["fleet", "confirm", "a.db", "-i", "hosts.toml"], 2, &["hosts.toml", "pairs = [["]),
        (vec!["fleet", "confirm", "a.db", "-i", "odd.toml"], 2, &["odd.toml", "write two"]),
        (vec!["fleet", "confirm", "a.db", "-i", "two.toml"], 2, &["2 pairs"]),
        (vec!["fleet", "confirm", "a.db", "-i", "two.toml", "--group", "b"], 2, &["no such group"]),
        (vec!["fleet", "confirm", "a.db", "-i", "none.toml"], 2, &["none.toml"]),
        (words("a.db", &["-i", "two.toml"]), 2, &["cannot be used with"]),
        (words("none.db", &[]), 2, &["none.db"]),
        (words("plan.toml", &[]), 2, &["plan.toml", "not a results file"]),
        (words("same.db", &[]), 2, &["no setting is proven better", "--setting"]),
        (words("no.db", &[]), 2, &["no goal"]),
        (words("no.db", &["--setting", "9000"]), 2, &["no.db", "no goal"]),
        (words("a.db", &["--setting", "1500"]), 2, &["the setting of comparison"]),
        (words("a.db", &["--setting", "7us"]), 2, &["7us", "the settings are"]),
        (words("a.db", &["--repetitions", "0"]), 2, &["--repetitions"]),
        (words("a.db", &["-o", "plan.toml"]), 2, &["plan.toml", "cannot make the folder", "-o"]),
        (words("a.db", &["-o", "none/x"]), 2, &["none/x", "cannot make the folder"]),
    ] {
        place.run(&args).expect(code, said);
        assert!(!place.path("latput-pairs").exists(), "{args:?}");
    }
}

#[test]
fn unreachable_pairs_are_named_without_decision() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"]).expect(0, &[]);
    let args = [&["fleet", "confirm", "a.db"], &PAIRS[..]].concat();
    let ran = place.run(&args);
    ran.expect(6, &["no verdict: 3 of 3 pairs are missing", "run the command again"]);
    for pair in PAIRS {
        assert!(ran.out.contains(&format!("{pair}: failed: ")), "{ran:#?}");
    }
    let ran = place.run(&[&args[..], &["--json"]].concat());
    ran.expect(6, &[]);
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let schema = include_str!("../../../../docs/schema/fleet-confirm.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&found), "{found}");
    assert_eq!(found["verdict"], serde_json::Value::Null);
    assert_eq!(found["pairs"][2]["pair"], PAIRS[2]);
    assert_eq!(found["pairs"][2]["outcome"], "failed");
}

/// Ansible itself lists the hosts before the fault, and warns.
#[needs("ansible-inventory")]
#[test]
fn broken_ansible_inventory_is_refused_with_line() {
    let place = Place::new();
    let local = "own ansible_connection=local latput_interface=lo";
    place.write("hosts.ini", &format!("{local}\n[web]\nweb1 ansible_port=9 ; trailing\n"));
    let fault = "hosts.ini:3: Expected key=value host variable assignment";
    for words in [&["verify"][..], &["apply", "--dry-run"]] {
        let ran = place.run(&[&["fleet"], words, &["-i", "hosts.ini", "mtu=65536"]].concat());
        ran.expect(2, &[fault]);
    }
    place.write("hosts.ini", &format!("{local}\n"));
    place.run(&["fleet", "verify", "-i", "hosts.ini", "mtu=65536"]).expect(0, &["1 same"]);
}
