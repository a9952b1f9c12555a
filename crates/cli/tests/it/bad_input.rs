//! Everything a person or a disk can get wrong: the error names the thing and the mend, and nothing
//! is touched.

use crate::Place;

#[test]
fn a_plan_that_cannot_be_run_is_refused_by_file_and_line() {
    check_plan("colour = 1", &["plan.toml:3:", "colour"]);
    check_plan("[[workload]]\nkind = \"tcp_rr\"\nbursts = 2", &["plan.toml:5:", "bursts"]);
    check_plan(
        "[factors]\n\"gro-flush-timeout\" = [\"50 apples\"]\n[[workload]]\nkind = \"tcp_rr\"",
        &["plan.toml:4:", "50us"],
    );
    check_plan(
        "[factors]\nmtu = []\n[[workload]]\nkind = \"tcp_rr\"",
        &["plan.toml:4:", "no level"],
    );
    check_plan(
        "[factors]\ntxqueuelen = [1]\n[[workload]]\nkind = \"tcp_rr\"\n[method]\n\
         repetitions = { min = 5, max = 1000000000 }",
        &["1000000000 trials", "fewer"],
    );
    check_plan("goal = \"minimize latncy\"\n[[workload]]\nkind = \"tcp_rr\"", &["latncy"]);
    check_plan(
        "goal = \"minimize latency_ns_p99 of udp_rr\"\n[[workload]]\nkind = \"tcp_rr\"",
        &["no workload is meant", "tcp_rr"],
    );
}

#[test]
fn a_missing_plan_a_wrong_flag_and_a_wrong_testbed_are_usage_errors() {
    let place = Place::new();
    place.run(&["run", "nowhere.toml"]).expect(2, &["nowhere.toml"]);
    place.run(&["run", "--colour"]).expect(2, &["--colour"]);
    place.run(&["tune", "--goal", "fast"]).expect(2, &["fast"]);
    place.write("rack.toml", "schema = 1\n[host.one]\nrole = \"sut\"\n");
    place
        .run(&["measure", "rack.toml", "--workload", "tcp_rr"])
        .expect(2, &["rack.toml", "interface"]);
    place.run(&["measure", "loopback", "--workload", "tcp_fly"]).expect(2, &["tcp_fly", "tcp_rr"]);
    place.run(&["measure", "loopback", "--workload", "tcp_rr", "burst"]).expect(2, &["burst=16"]);
}

#[test]
fn an_unknown_knob_value_or_interface_is_refused_and_the_nearest_is_named() {
    let place = Place::new();
    place.run(&["set", "lo", "gro-flush-timeuot=50us"]).expect(2, &["gro-flush-timeout"]);
    place.run(&["set", "lo", "gro-flush-timeout=50"]).expect(2, &["50us"]);
    place.run(&["set", "lo", "mtu"]).expect(2, &["mtu"]);
    place.run(&["set", "lo", "mtu=1500", "mtu=1400"]).expect(2, &["given twice"]);
    place.run(&["show", "nosuch0"]).expect(2, &["nosuch0"]);
}

#[test]
fn a_results_file_that_is_none_is_refused_by_name() {
    let place = Place::new();
    place.run(&["report", "nowhere.db"]).expect(1, &["nowhere.db"]);
    place.write("text.db", "throughput,latency\n1,2\n");
    place.run(&["report", "text.db"]).expect(1, &["text.db", "not a results file"]);
    place.write("plan.toml", "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n");
    place.run(&["run", "plan.toml", "-o", "text.db"]).expect(1, &["text.db", "not a results file"]);
    assert_eq!(std::fs::read_to_string(place.path("text.db")).unwrap().len(), 23);
    place.run(&["run", "plan.toml", "-o", "no/such/folder.db"]).expect(1, &["folder"]);
}

#[test]
fn help_tells_of_every_command_and_exit_code() {
    let place = Place::new();
    let help = place.run(&["--help"]);
    let words = ["tune", "run", "measure", "show", "set", "restore", "report", "lab", "stranded"];
    help.expect(0, &words);
    for command in words[..8].iter().filter(|command| **command != "lab") {
        place.run(&[command, "--help"]).expect(0, &["Examples:"]);
    }
}

/// Without privileges nothing of the lab can be made, and that is said before anything is tried.
#[test]
fn tune_without_root_says_what_it_needs() {
    let place = Place::new();
    place.run_without_root(&["tune"]).expect(3, &["root", "--on sim:server-10g"]);
}

/// `text` follows two lines of a good plan.
#[track_caller]
fn check_plan(text: &str, expected: &[&str]) {
    let place = Place::new();
    place.write("plan.toml", &format!("schema = 1\nname = \"test\"\n{text}\n"));
    place.run(&["run", "plan.toml", "--check"]).expect(2, expected);
    place.run(&["run", "plan.toml"]).expect(2, expected);
    assert!(!place.path("latput-results.db").exists(), "nothing may be written for a wrong plan");
}
