//! `--check`: whether a run would start, without a trial.

use crate::{Place, json};

const CHECK: &str = include_str!("../../../../docs/schema/check.json");
const PLAN: &str = "schema = 1\n[factors]\nmtu = [1500, 9000]\n[[workload]]\nkind = \"tcp_rr\"\n";

#[test]
fn check_counts_trials_and_runs_none() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    let on = ["run", "plan.toml", "--on", "sim:server-10g", "--check"];
    place.run(&on).expect(0, &["2 settings x 1 workload", "10 to 60", "simulated", "can start"]);
    let ran = place.run(&[&on[..], &["--json"]].concat());
    json::check_schema(CHECK, &ran.expect(0, &[]).out);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["trials_min"], &document["trials_max"]), (&10.into(), &60.into()));
    assert_eq!(document["duration_ns_min"], 22_000_000_000_u64);
    place
        .run(&["tune", "plan.toml", "--on", "sim:server-10g", "--check"])
        .expect(0, &["can start"]);
    place.run(&["run", "plan.toml", "--check=plan"]).expect(0, &["10 to 60", "only the plan"]);
    for file in ["latput-results.db", "latput-report.html"] {
        assert!(!place.path(file).exists(), "{file}");
    }
}

#[test]
fn tune_takes_testbed_without_on() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    for words in [&["sim:server-10g"][..], &["plan.toml", "sim:server-10g"]] {
        let words = [&["tune"], words, &["--check"]].concat();
        place.run(&words).expect(0, &["can start"]);
    }
    place.run(&["tune", "sim:nosuch", "--check"]).expect(2, &["nosuch"]);
    place.run(&["tune", "lab", "--on", "sim:server-10g"]).expect(2, &["both say where trials run"]);
    place
        .run(&["tune", "nohost"])
        .expect(2, &["nohost: there is no plan file", "ssh://", "sim list"]);
}

#[test]
fn check_fails_where_the_run_would() {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    let check = |on: &str| place.run(&["run", "plan.toml", "--on", on, "--check"]);
    check("vm:foo").expect(2, &["foo"]);
    check("sim:nosuch").expect(2, &["nosuch"]);
    check("nofile.toml").expect(2, &["nofile.toml"]);
    place.write("gone.toml", &testbed_toml("[\"/nowhere/ssh\"]"));
    check("gone.toml").expect(1, &["host `far`", "/nowhere/ssh"]);
    place.write("old.toml", &testbed_toml("[\"sh\", \"-c\", \"echo hello; cat\"]"));
    check("old.toml").expect(1, &["host `far`", "hello"]);
    place.write("text.db", "no database");
    let on = ["run", "plan.toml", "--on", "sim:server-10g", "--check"];
    place.run(&[&on[..], &["-o", "text.db"]].concat()).expect(2, &["text.db"]);
    place.run(&[&on[..], &["-o", "no/such/folder.db"]].concat()).expect(1, &["no/such"]);
    place.write("plan.toml", &PLAN.replace("mtu = [1500, 9000]", "tx-push = [\"on\", \"off\"]"));
    place.run(&on).expect(2, &["tx-push"]);
}

fn testbed_toml(via: &str) -> String {
    format!(
        "schema = 1\n[host.far]\nrole = \"sut\"\ninterface = \"lo\"\naddress = \"127.0.0.2\"\nvia = {via}\n\
         [host.near]\nrole = \"generator\"\ninterface = \"lo\"\naddress = \"127.0.0.1\"\n"
    )
}
