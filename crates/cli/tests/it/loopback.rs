//! `latput measure loopback`: both ends on this host, without root.

use latput_testkit::needs;

use crate::{CommandOutput, Place, descendants_of, resident_kb, wait_until};

const QUICK: [&str; 8] =
    ["--duration", "200ms", "--warmup", "50ms", "--repetitions", "2..3", "--confidence", "95%"];

#[test]
fn every_workload_kind_is_measured() {
    check_workload(&["tcp_rr"], &["tcp_rr"]);
    check_workload(&["tcp_rr", "burst=16"], &["tcp_rr burst=16"]);
    check_workload(&["tcp_stream"], &["tcp_stream"]);
    check_workload(&["udp_stream", "rate=50Mbps"], &["udp_stream"]);
    check_workload(&["tcp_crr"], &["tcp_crr"]);
    check_workload(&["tcp_maerts"], &["tcp_maerts"]);
    check_workload(&["tcp_bidir", "connections=2"], &["tcp_bidir connections=2"]);
    check_workload(&["udp_rr"], &["udp_rr"]);
    check_workload(&["fetch", "object_bytes=65536"], &["fetch"]);
    check_workload(&["rpc_read"], &["rpc_read", "rate", "latency", "CPU", "trust"]);
}

/// Eight byte kept of each transaction would be a MB and more here.
#[test]
fn memory_does_not_grow_with_transactions() {
    let place = Place::new();
    let words = ["measure", "loopback", "--workload", "tcp_rr", "burst=16", "connections=4"];
    let how_long = ["--duration", "8s", "--warmup", "1s", "--repetitions", "1..1"];
    let mut child = place.start(&[&words[..], &how_long].concat());
    let mut of_ends: Vec<u64> = Vec::new();
    wait_until("the end", || {
        of_ends.push(descendants_of(child.id()).into_iter().map(resident_kb).sum());
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
    // Within the window: what begins and what ends it takes memory of its own.
    let at = |percent: usize| of_ends[of_ends.len() * percent / 100];
    let grown_kb = at(85).saturating_sub(at(50));
    assert!(at(50) > 1000 && grown_kb < 500, "grew by {grown_kb} kB: {of_ends:?}");
}

#[test]
fn width_of_tables_is_that_of_the_environment() {
    let place = Place::new();
    let plan = "schema = 1\nname = \"t\"\n[factors]\nmtu = [1500, 9000]\n[[workload]]\nkind = \"tcp_rr\"\n\
                [method]\nrepetitions = { min = 3, max = 3 }\n";
    place.write("plan.toml", plan);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g"]).expect(0, &[]);
    let longest = |columns: &str| {
        let output = place
            .latput_command(&["report", "latput-results.db"])
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = CommandOutput::from(output).expect(0, &["tcp_rr"]).out.clone();
        let table = text.lines().skip_while(|line| !line.contains("tcp_rr -")).take(5);
        table.map(|line| line.chars().count()).max()
    };
    assert!(longest("60") <= Some(60) && longest("200") > Some(60));
}

/// In a network namespace of its own, where nobody may open ICMP sockets without the capability.
#[needs("root", "setpriv", "ip")]
#[test]
fn echo_without_privilege_is_not_permitted() {
    let place = Place::new();
    let inside = ["unshare", "--net", "sh", "-c", "ip link set lo up; exec \"$@\"", "sh"];
    let args = [&["measure", "loopback", "--workload", "ping"], &QUICK[..]].concat();
    let may = place.wrapped_command(&inside, &args).output().unwrap();
    CommandOutput::from(may).expect(0, &["ping"]);
    let inside = [&inside[..], &["setpriv", "--bounding-set=-net_raw"]].concat();
    let may_not = place.wrapped_command(&inside, &args).output().unwrap();
    CommandOutput::from(may_not).expect(3, &["no permission for ICMP echo", "CAP_NET_RAW"]);
}

#[test]
fn runs_are_saved_only_where_told() {
    let place = Place::new();
    let mut args = vec!["measure", "loopback", "--workload", "tcp_rr"];
    args.extend(QUICK);
    place.run(&args).expect(0, &[]);
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    args.extend(["-o", "kept.db"]);
    place.run(&args).expect(0, &["kept.db"]);
    assert!(place.count_trials("kept.db") >= 2);
    place.run(&["report", "kept.db"]).expect(0, &["tcp_rr"]);
    place.run(&["report", "kept.db", "--list"]).expect(0, &["complete", "measure tcp_rr"]);
    let csv = place.run(&["report", "kept.db", "--format", "csv"]);
    assert!(csv.expect(0, &[]).out.lines().count() >= 3);
    place.run(&["report", "kept.db", "-o", "page.html"]).expect(0, &[]);
    let page = std::fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("</html>"));
}

#[test]
fn intervals_are_told_while_a_run_goes_on() {
    let mut args = vec!["measure", "loopback", "--workload", "tcp_rr", "-i", "100ms"];
    args.extend(["--duration", "600ms", "--repetitions", "1", "--half-width", "2.5%", "-v"]);
    let ran = Place::new().run(&args);
    ran.expect(0, &["WARNING: One trial has no interval: run more.", "within the trial"]);
    let intervals = ran.err.lines().filter(|line| line.contains("p/s in")).count();
    assert!((2..=6).contains(&intervals), "{}", ran.err);
    let too_short = [&args[..5], &["1ms"]].concat();
    Place::new().run(&too_short).expect(2, &["at least 100ms"]);
}

#[track_caller]
fn check_workload(workload: &[&str], expected: &[&str]) {
    let mut args = vec!["measure", "loopback", "--workload"];
    args.extend(workload);
    args.extend(QUICK);
    Place::new().run(&args).expect(0, expected);
}

#[test]
fn error_that_repeats_is_told_once() {
    let place = Place::new();
    let command = "sh -c 'echo $((40+2))xyz >&2; exit 3'";
    let ran = place.run(
        &[
            &["measure", "loopback", "--command", command, "--metric", "app_rate=/([0-9]+)/"],
            &QUICK[4..6],
        ]
        .concat(),
    );
    ran.expect(1, &["42xyz", "the same 3 times"]);
    assert_eq!(ran.err.matches("42xyz").count(), 1, "{}", ran.err);
    // A program that is not there is not tried again.
    let missing = ["--command", "./not-there", "--metric", "app_rate=/([0-9]+)/"];
    let ran = place.run(&[&["measure", "loopback"], &missing[..]].concat());
    ran.expect(1, &["not-there"]);
    assert_eq!(ran.err.matches("No such file").count(), 1, "{}", ran.err);
}
