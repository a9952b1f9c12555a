//! With `--json` errors and remarks are JSON too: stderr is lines of documents, and the error is the last.

use crate::{CommandOutput, Place, json};

const ERROR: &str = include_str!("../../../../docs/schema/error.json");
const REMARK: &str = include_str!("../../../../docs/schema/remark.json");
const PLAN: &str = include_str!("../../../../docs/schema/plan.json");

/// Wrong input of many commands, with the exit code and a word of the message.
const WRONG: &[(&[&str], i32, &str)] = &[
    (&[], 2, "Usage"),
    (&["colour"], 2, "colour"),
    (&["run"], 2, "PLAN"),
    (&["run", "nowhere.toml"], 2, "nowhere.toml"),
    (&["run", "wrong.toml", "--check"], 2, "did you mean `burst`?"),
    (&["run", "plan.toml", "--on", "vm:foo", "--check"], 2, "foo"),
    (&["run", "plan.toml", "--on", "nofile.toml", "--check"], 2, "nofile.toml"),
    (&["run", "plan.toml", "--on", "sim:server-10g", "-o", "text.db"], 2, "not a results file"),
    (&["tune", "--goal", "minimize p99"], 2, "latency_ns_p99"),
    (&["tune", "--goal", "latncy"], 2, "did you mean `latency`?"),
    (&["tune", "one.toml", "two.toml"], 2, "second plan"),
    (&["measure", "nope0", "--workload", "tcp_rr"], 2, "nope0"),
    (&["measure", "loopback", "--workload", "tcp_rrr"], 2, "did you mean `tcp_rr`?"),
    (&["show", "nope0"], 2, "no interface `nope0`"),
    (&["show", "lo", "mtuu"], 2, "mtu"),
    (&["set", "nope0", "mtu=1500"], 2, "no interface `nope0`"),
    (&["set", "lo", "mtu"], 2, "mtu"),
    (&["set", "lo", "rx-usecs=10us", "--dry-run"], 1, "rx-usecs"),
    (&["confirm"], 1, "no change waits"),
    (&["restore", "--forget", "nothing"], 2, "nothing"),
    (&["undo"], 1, "no change in force"),
    (&["undo", "x"], 2, "x"),
    (&["apply", "nowhere.db"], 2, "nowhere.db"),
    (&["keep", "nope0"], 2, "nope0"),
    (&["moderate", "nope0", "--observe"], 2, "no interface `nope0`"),
    (&["moderate", "lo", "--status"], 1, "lo"),
    (&["export-settings", "nowhere.db", "--format", "systemd-link"], 2, "nowhere.db"),
    (&["report", "nowhere.db"], 2, "nowhere.db"),
    (&["report", "text.db"], 2, "not a results file"),
    (&["report", "--compare", "text.db", "nowhere.db"], 2, "text.db"),
    (&["metrics", "tcp_rrr"], 2, "tcp_rrr"),
    (&["model", "fit", "nowhere.db"], 2, "nowhere.db"),
    (&["explain", "nowhere.db"], 2, "nowhere.db"),
    (&["calibrate", "nowhere.csv"], 2, "nowhere.csv"),
    (&["plan", "nic", "nope0"], 2, "no interface `nope0`"),
    (&["plan", "twin", "eth0"], 2, "eth0"),
    (&["import", "iperf3", "nowhere", "-o", "x.db"], 2, "nowhere"),
    (&["import", "wrk", "nowhere", "-o", "x.db"], 2, "latput measure --command 'wrk ...'"),
    (&["hosts", "nofile.toml"], 2, "nofile.toml"),
    (&["lab", "colour"], 2, "colour"),
    (&["sim", "trace"], 2, "--workload"),
];

#[test]
fn usage_errors_are_json_in_every_command() {
    let place = place_with_files();
    for (args, code, word) in WRONG {
        let ran = place.run(&[args, &["--json"][..]].concat());
        assert_eq!(ran.code, Some(*code), "{args:?}: {ran:#?}");
        assert_eq!(ran.out, "", "{args:?}: nothing is half a result");
        let error = last_error(&ran);
        assert_eq!(error["exit_code"], *code, "{args:?}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(word) && !message.starts_with("error"), "{args:?}: {message}");
    }
}

#[test]
fn remarks_are_json_too() {
    let place = place_with_files();
    let run = ["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db", "--json"];
    let ran = place.run(&run);
    ran.expect(0, &["results: run 1 of kept.db"]);
    serde_json::from_str::<serde_json::Value>(&ran.out).unwrap();
    assert!(ran.err.lines().count() > 1, "{}", ran.err);
    for line in ran.err.lines() {
        json::check_schema(REMARK, line);
    }
}

#[test]
fn plan_in_json_has_its_text() {
    let place = Place::new();
    for which in ["built-in", "twin"] {
        let ran = place.run(&["plan", which, "--json"]);
        json::check_schema(PLAN, &ran.expect(0, &[]).out);
        let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(
            document["toml"].as_str().unwrap().trim(),
            place.run(&["plan", which]).out.trim()
        );
        assert!(document["plan"]["workload"].is_array(), "{document}");
    }
}

/// The error at the end of stderr; the lines before it are remarks.
#[track_caller]
fn last_error(ran: &CommandOutput) -> serde_json::Value {
    let lines: Vec<&str> = ran.err.lines().collect();
    let (last, remarks) = lines.split_last().unwrap();
    for remark in remarks {
        json::check_schema(REMARK, remark);
    }
    json::check_schema(ERROR, last);
    let document: serde_json::Value = serde_json::from_str(last).unwrap();
    document["error"].clone()
}

fn place_with_files() -> Place {
    let place = Place::new();
    let plan = "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n[method]\nrepetitions = { min = 1, max = 1 }\n\
                duration = \"100ms\"\n";
    place.write("plan.toml", plan);
    place.write("one.toml", plan);
    place.write("two.toml", plan);
    place.write("wrong.toml", &plan.replace("\"tcp_rr\"", "\"tcp_rr\"\nbursts = 2"));
    place.write("text.db", "throughput,latency\n1,2\n");
    place
}
