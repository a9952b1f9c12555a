//! Everything a person or a disk can get wrong: the error names the thing and the remedy, and nothing
//! is touched.

use std::io::Write;

use crate::{CommandOutput, Place, resident_kb, wait_until};

#[test]
fn impossible_plan_is_refused_by_line() {
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
    check_plan(
        "[[workload]]\nkind = \"tcp_rr\"\n[method]\nallow_link_reset = \"eth0\"",
        &["plan.toml:6:", "`allow_link_reset` must be true or false"],
    );
    check_plan("goal = \"minimize latncy\"\n[[workload]]\nkind = \"tcp_rr\"", &["latncy"]);
    check_plan(
        "goal = \"minimize latency_ns_p99 of udp_rr\"\n[[workload]]\nkind = \"tcp_rr\"",
        &["no workload matches", "tcp_rr"],
    );
}

#[test]
fn missing_plan_is_usage_error() {
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
fn precision_flags_are_checked() {
    let place = Place::new();
    let measure = ["measure", "loopback", "--workload", "tcp_rr"];
    let with = |flag: &str, value: &str| place.run(&[&measure[..], &[flag, value]].concat());
    with("--half-width", "60%").expect(2, &["--half-width", "0.1% to 50%", "60%"]);
    with("--confidence", "99").expect(2, &["--confidence", "99% or 9900%"]);
    with("--half-width", "0.05").expect(2, &["--half-width", "0.05% or 5%"]);
    with("--repetitions", "5..3").expect(2, &["--repetitions", "MIN <= MAX"]);
    with("--interval", "5ms").expect(2, &["at least 100ms"]);
    for time in ["0s", "999ms", "25h"] {
        place
            .run(&["set", "lo", "mtu=9000", "--confirm-within", time])
            .expect(2, &["--confirm-within", "1s to 24h"]);
    }
    place.run(&["set", "lo", "mtu=9000", "--confirm-within", "60x"]).expect(2, &["unit", "2s"]);
    place.run(&["report", "--smallest-effect", "2%", "kept.db"]).expect(2, &["--compare"]);
    place.run(&["report", "--compare", "one.db"]).expect(2, &["--compare"]);
}

#[test]
fn session_link_needs_naming_twice() {
    let place = Place::new();
    let twice = "--allow-link-reset=eth9";
    place.run(&["set", "lo", "mtu=9000", twice]).expect(2, &["must repeat", "lo"]);
    // A card of this machine, which is only asked: nothing here may touch it.
    let Some((card, mtu)) = a_card() else { return };
    let change = format!("mtu={}", mtu - 4);
    let dry = |flags: &[&str], peer: &str| {
        let mut command =
            place.latput_command(&[&["set", &card, &change, "--dry-run"], flags].concat());
        command.env_remove("SSH_CLIENT").env("SSH_CONNECTION", format!("{peer} 50022 ::1 22"));
        CommandOutput::from(command.output().unwrap())
    };
    let elsewhere = "127.0.0.1";
    dry(&[], elsewhere)
        .expect(1, &["would change", "mtu takes the link down", "`--allow-link-reset`"]);
    dry(&["--allow-link-reset"], elsewhere).expect(0, &["would change"]);
    let here = format!("fe80::1%{card}");
    let named = format!("--allow-link-reset={card}");
    dry(&[], &here).expect(1, &["carries your connection", &named]);
    dry(&["--allow-link-reset"], &here).expect(1, &["name the interface again", &named]);
    dry(&[&named], &here).expect(0, &["would change"]);
    // sudo takes the variable out of the environment of latput, and not of those above it.
    let line = format!(
        "env -u SSH_CONNECTION {} set {card} {change} --dry-run --allow-link-reset",
        crate::latput_path()
    );
    let mut above = std::process::Command::new("sh");
    above.args(["-c", &format!("{line}; exit $?")]);
    above.env_remove("SSH_CLIENT").env("SSH_CONNECTION", format!("{here} 50022 ::1 22"));
    CommandOutput::from(above.output().unwrap()).expect(1, &["name the interface again", &named]);
}

/// An interface of this machine with hardware beneath it, and its MTU; says so where there is none.
fn a_card() -> Option<(String, u64)> {
    let names = std::fs::read_dir("/sys/class/net").ok()?;
    let card = names.flatten().find(|entry| entry.path().join("device").exists());
    let Some(card) = card else {
        let _ = writeln!(std::io::stderr(), "skipped: needs an interface with hardware");
        return None;
    };
    let mtu = std::fs::read_to_string(card.path().join("mtu")).ok()?.trim().parse().ok()?;
    Some((card.file_name().to_str()?.to_owned(), mtu))
}

#[test]
fn confirmation_of_nothing_says_so() {
    let place = Place::new();
    place.run(&["confirm"]).expect(1, &["no change waits to be confirmed"]);
    place.run(&["confirm", "lo"]).expect(1, &["no change of lo waits"]);
    place.run(&["confirm", "../../etc"]).expect(1, &["no change of ../../etc waits"]);
}

#[test]
fn bad_agent_is_named_with_remedy() {
    let same = "install the same version on both";
    check_agent(
        r#"echo '{"opened":{"schema":99,"version":"9.9","new":[1]}}'; cat"#,
        &["host `far`", "latput 9.9", "speaks schema 99", same],
    );
    check_agent("echo 'Welcome to far!'; cat", &["host `far`", "Welcome to far!", "not a message"]);
    let too_long = ["host `far`", "a line of more than 1048576 bytes"];
    check_agent(r"head -c 2000000 /dev/zero | tr '\0' x; cat", &too_long);
    check_agent(r#"echo '"set"'; cat"#, &["sent `Set` at the wrong time"]);
    check_agent(
        r#"echo '{"closed":{"why":"told to","left":[]}}'; cat"#,
        &["host `far`", "put the host back and ended: told to"],
    );
    // An agent whose answer to a trial is garbled on its way.
    check_agent(
        r#""$0" "$@" | sed -u 's/^{"finished":/{"finishd":/'"#,
        &["host `far`", "not a message of schema", "unknown variant `finishd`"],
    );
    check_agent(
        "echo 'ssh: Could not resolve hostname far' >&2; exit 255",
        &["host `far`", "exit status: 255", "it said: ssh: Could not resolve hostname far"],
    );
    check_agent(
        r#"exec 3>&1; printf '{"opened"'; exec cat >/dev/null"#,
        &["host `far`", "did not answer for 10s"],
    );
}

#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn endless_output_of_far_end_is_bounded() {
    // As fast as a pipe takes it; without a bound it is more than a GB in a few seconds.
    check_memory("head -c 1000000000 /dev/zero | tr '\\0' x >&2; exit 3", "host `far`");
    check_memory("yes '\"set\"'", "sent `Set` at the wrong time");
    check_memory("yes '\"alive\"'", "did not answer within 15 s");
}

/// A far end that is this shell script is told so, in little memory.
#[track_caller]
fn check_memory(script: &str, expected: &str) {
    let place = Place::new();
    place.write("rack.toml", &testbed_with_script(script));
    let mut child = place.start(&["measure", "rack.toml", "--workload", "tcp_rr"]);
    let mut most_kb = 0;
    wait_until("the end", || {
        most_kb = most_kb.max(resident_kb(child.id()));
        child.try_wait().unwrap().is_some()
    });
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("host `far`") && said.contains(expected), "{said}");
    assert!(said.len() < 10_000, "{} bytes", said.len());
    assert!((1..200_000).contains(&most_kb), "{most_kb} kB");
}

#[test]
fn agent_tells_a_controller_of_another_version_so() {
    let place = Place::new();
    place.write("open", "{\"open\":{\"schema\":99,\"version\":\"9.9\",\"new\":1}}\n");
    let from = std::fs::File::open(place.path("open")).unwrap();
    let ran = place.latput_command(&["agent", "--stdio"]).stdin(from).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(said.contains("\"failed\"") && said.contains("latput 9.9"), "{said}");
}

#[test]
fn unresolved_host_is_a_usage_error() {
    let place = Place::new();
    place.write("rack.toml", &testbed_with_script("cat").replace("127.0.0.2", "no where"));
    place
        .run(&["measure", "rack.toml", "--workload", "tcp_rr"])
        .expect(2, &["rack.toml", "host `far`", "`no where`", "does not resolve"]);
}

/// A measurement with a far end that is this shell script.
#[track_caller]
fn check_agent(script: &str, expected: &[&str]) {
    let place = Place::new();
    place.write("rack.toml", &testbed_with_script(script));
    place.run(&["measure", "rack.toml", "--workload", "tcp_rr"]).expect(1, expected);
}

fn testbed_with_script(script: &str) -> String {
    format!(
        "schema = 1\n[host.far]\nrole = \"sut\"\ninterface = \"lo\"\naddress = \"127.0.0.2\"\n\
         latput = \"{}\"\nvia = [\"sh\", \"-c\", '''\n{script}''']\n[host.near]\nrole = \"generator\"\n\
         interface = \"lo\"\naddress = \"127.0.0.1\"\n",
        crate::latput_path()
    )
}

#[test]
fn unknown_word_is_refused_with_nearest() {
    let place = Place::new();
    place.run(&["set", "lo", "gro-flush-timeuot=50us"]).expect(2, &["gro-flush-timeout"]);
    place.run(&["set", "lo", "gro-flush-timeout=50"]).expect(2, &["50us"]);
    place.run(&["set", "lo", "mtu"]).expect(2, &["mtu"]);
    place.run(&["set", "lo", "mtu=1500", "mtu=1400"]).expect(2, &["given twice"]);
    place.run(&["show", "nosuch0"]).expect(2, &["nosuch0"]);
}

#[test]
fn bad_results_file_is_refused_by_name() {
    let place = Place::new();
    place.run(&["report", "nowhere.db"]).expect(2, &["nowhere.db"]);
    place.write("text.db", "throughput,latency\n1,2\n");
    place.run(&["report", "text.db"]).expect(2, &["text.db", "not a results file"]);
    place.write("plan.toml", "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n");
    place.run(&["run", "plan.toml", "-o", "text.db"]).expect(2, &["text.db", "not a results file"]);
    assert_eq!(std::fs::read_to_string(place.path("text.db")).unwrap().len(), 23);
    place.run(&["run", "plan.toml", "-o", "no/such/folder.db"]).expect(1, &["folder"]);
}

#[test]
fn help_lists_every_command_and_exit_code() {
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
    place.run_without_root(&["tune", "--on", "lab"]).expect(3, &["root", "--on sim:server-10g"]);
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
