//! Plans in the simulator: the real binary without root, on no host at all.

use crate::{Place, interrupt_pid, wait_until};

const PLAN: &str = r#"
schema = 1
name = "short"
goal = "minimize latency_ns_p99"
[factors]
"gro-flush-timeout + napi-defer-hard-irqs" = [["0us", 0], ["200us", 100]]
[[workload]]
kind = "tcp_rr"
[[workload]]
kind = "tcp_stream"
probe_hz = 1000
[[workload]]
kind = "udp_stream"
rate = "20Mbps"
[method]
repetitions = { min = 3, max = 4 }
warmup = "5ms"
duration = "50ms"
seed = 7
"#;

#[test]
fn built_in_plan_runs_on_every_system() {
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/built-in.toml");
    let mut plan = std::fs::read_to_string(built_in).unwrap();
    for (long, short) in [
        ("repetitions = { min = 5, max = 30 }", "repetitions = { min = 2, max = 2 }"),
        ("warmup = \"200ms\"", "warmup = \"5ms\""),
        ("duration = \"1s\"", "duration = \"50ms\""),
    ] {
        assert!(plan.contains(long));
        plan = plan.replace(long, short);
    }
    for system in ["server-10g", "rx1620-e1000", "bl25p-tg3"] {
        let place = Place::new();
        place.write("plan.toml", &plan);
        let args = ["run", "plan.toml", "--on", &format!("sim:{system}"), "-o", "kept.db"];
        let ran = place.run_without_root(&args);
        ran.expect(
            0,
            &[&format!("on sim:{system}"), "simulated: no host was measured", "today (0us)"],
        );
        assert_eq!(place.count_trials("kept.db"), 30);
    }
}

#[test]
fn search_confirms_winner_and_resumes() {
    let plan = PLAN
        .replace("goal = \"minimize latency_ns_p99\"", "goal = \"balanced\"")
        .replace("[\"200us\", 100]]", "[\"20us\", 100], [\"200us\", 100], [\"500us\", 100]]\nmtu = [1500, 3000, 9000]\ngro = [\"on\", \"off\"]")
        .replace("[method]", "[method]\ndesign = \"search\"");
    let place = Place::new();
    place.write("plan.toml", &plan);
    let run = ["run", "plan.toml", "--on", "sim:server-10g", "-o"];
    place
        .run(&[&run[..], &["whole.db"]].concat())
        .expect(0, &["Recommended", "searched 24 settings"]);
    // Fewer settings than there are, each with all three workloads.
    let trials = place.count_trials("whole.db");
    assert!(trials % 3 == 0 && trials < 24 * 3 + 2 * 6 * 3, "{trials}");
    let settings = |file: &str| -> Vec<(u32, u32)> {
        let db = rusqlite::Connection::open(place.path(file)).unwrap();
        let mut query = db.prepare("SELECT block, setting FROM trial ORDER BY id").unwrap();
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    // Cut in the middle of a block, the rest is the same.
    place.run(&[&run[..], &["cut.db"]].concat()).expect(0, &[]);
    let db = rusqlite::Connection::open(place.path("cut.db")).unwrap();
    db.execute("UPDATE run SET finished = 0", []).unwrap();
    db.execute("DELETE FROM figure WHERE trial > 26", []).unwrap();
    db.execute("DELETE FROM trial WHERE id > 26", []).unwrap();
    drop(db);
    place.run(&[&run[..], &["cut.db"]].concat()).expect(0, &["Recommended"]);
    let sorted = |mut rows: Vec<(u32, u32)>| {
        rows.sort_unstable();
        rows
    };
    assert_eq!(sorted(settings("cut.db")), sorted(settings("whole.db")));
}

#[test]
fn tune_recommends_from_lab_figures() {
    let place = place_with_plan();
    place.run(&["tune", "plan.toml", "--on", "sim:server-10g"]).expect(0, &["Recommended"]);
    place.write("no-goal.toml", &PLAN.replace("goal = \"minimize latency_ns_p99\"", ""));
    let no_goal = ["tune", "no-goal.toml", "--on", "sim:server-10g", "-o", "other.db"];
    let ran = place.run(&[&no_goal[..], &["--report", "other.html"]].concat());
    ran.expect(
        0,
        &["Nothing is recommended: the plan has no goal", "report other.db --goal latency"],
    );
    let page = std::fs::read_to_string(place.path("latput-report.html")).unwrap();
    for words in ["on sim:server-10g", "no host was measured", "round figures, not measured"] {
        assert!(page.contains(words), "{words}");
    }
    let trials = place.count_trials("latput-results.db");
    let db = rusqlite::Connection::open(place.path("latput-results.db")).unwrap();
    for (metric, share) in [
        ("latency_ns_p99", 1),
        ("transactions_per_s", 1),
        ("throughput_bps", 2),
        ("probe_ns_p99", 1),
        ("loss_ratio", 1),
        ("jitter_ns", 1),
        ("sut_cpu_busy_ratio", 3),
        ("generator_service_demand_us", 3),
        ("sut_polls_per_s", 3),
        ("sut_packets_per_poll", 3),
        ("sut_rx_pps", 3),
    ] {
        let query = "SELECT count(*) FROM figure JOIN trial ON trial = id \
                     WHERE metric = ?1 AND block < 3";
        let count: i64 = db.query_row(query, [metric], |row| row.get(0)).unwrap();
        assert_eq!(count, share * 6, "{metric} in {trials} trials");
    }
    let count = |query: &str| -> i64 { db.query_row(query, [], |row| row.get(0)).unwrap() };
    // A datagram under way at the end of a window has not been lost.
    assert_eq!(count("SELECT count(*) FROM figure WHERE metric = 'loss_ratio' AND value > 0"), 0);
    assert!(
        count("SELECT count(*) FROM trial WHERE observation LIKE '%\"gro-flush-timeout\"%'") > 0
    );
}

#[test]
fn unprivileged_tune_says_nothing_was_measured() {
    let place = place_with_plan();
    let said = "This is a simulation of server-10g, not a measurement";
    place.run_without_root(&["tune", "plan.toml"]).expect(0, &["Recommended", said]);
    let page = std::fs::read_to_string(place.path("latput-report.html")).unwrap();
    assert!(page.contains(said));
}

#[test]
fn long_plan_is_searched_within_ring() {
    let levels: Vec<String> = (1..=9).map(|us| format!(", [\"{us}0us\", 100]")).collect();
    let levels = levels.concat();
    let plan = PLAN
        .replace(", [\"200us\", 100]]", &format!("{levels}, [\"5ms\", 100]]\nmtu = [1500, 9000]"));
    let place = Place::new();
    place.write("plan.toml", &plan);
    // 22 settings x 3 workloads x 3 repetitions of 55 ms.
    let args = ["tune", "plan.toml", "--on", "sim:server-10g", "--budget", "6s"];
    place.run(&args).expect(
        0,
        &[
            "latput searches among them",
            "1 setting is left out: `gro-flush-timeout` of 5ms would overrun the receive ring of",
            "the chance that another setting is over 3% better is",
        ],
    );
    place
        .run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "grid.db"])
        .expect(2, &["mtu=1500", "812744 packets/s", "the ring holds 1024", "Use at most 1259us"]);
    let only_today =
        PLAN.replace("200us", "5ms").replace("[method]", "[method]\ndesign = \"search\"");
    check_refused(
        &only_today,
        "server-10g",
        &["1 of 2 settings is refused", "the ring holds 1024"],
    );
}

#[test]
fn equal_seed_gives_equal_figures() {
    let place = place_with_plan();
    place.write("other.toml", &PLAN.replace("seed = 7", "seed = 8"));
    for (plan, file) in [("plan.toml", "a.db"), ("plan.toml", "b.db"), ("other.toml", "c.db")] {
        place.run(&["run", plan, "--on", "sim:rx1620-e1000", "-o", file]).expect(0, &[]);
    }
    let (first, second, other) =
        (read_trials(&place, "a.db"), read_trials(&place, "b.db"), read_trials(&place, "c.db"));
    assert!(first.len() >= 18);
    assert_eq!(first, second);
    assert_ne!(first, other);
    // A trial has its own seed: repetitions are not copies of each other.
    let of_first_cell = |row: &&Trial| (row.1, row.2) == (0, 0);
    let mut cell: Vec<&str> =
        first.iter().filter(of_first_cell).map(|row| row.3.as_str()).collect();
    cell.dedup();
    assert!(cell.len() >= 3);
}

#[test]
fn cut_file_resumes_to_same_figures() {
    let place = Place::new();
    place.write("plan.toml", &PLAN.replace("seed = 7", "seed = 7\nhalf_width = 0.001"));
    let args = ["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"];
    place.run(&args).expect(0, &["some intervals are wider than 0.1%: up to "]);
    let whole = read_trials(&place, "kept.db");
    assert!(whole.len() > 18, "a block beyond the smallest number is wanted");
    // In the first block, and in one that the stopping rule asked for.
    for kept in [5, whole.len() - 1] {
        let db = rusqlite::Connection::open(place.path("kept.db")).unwrap();
        let cut = format!(
            "DELETE FROM figure WHERE trial > {kept}; DELETE FROM trial WHERE id > {kept}; \
             UPDATE run SET finished = 0;"
        );
        db.execute_batch(&cut).unwrap();
        drop(db);
        place.run(&args).expect(0, &[&format!("resuming run 1: {kept} of")]);
        assert_eq!(read_trials(&place, "kept.db"), whole);
    }
    // Another system is another machine, and a finished run is not resumed.
    place
        .run(&["run", "plan.toml", "--on", "sim:bl25p-tg3", "-o", "kept.db"])
        .expect(0, &["run 2"]);
}

#[test]
fn profile_file_is_simulated_with_costs() {
    let place = place_with_plan();
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/systems/server-10g.toml");
    let profile = std::fs::read_to_string(shipped).unwrap();
    let slower = profile.replace("name = \"server-10g\"", "name = \"mine\"");
    let slower = slower.replace("wake_ns = 900", "wake_ns = 900000");
    assert_ne!(slower, profile.replace("name = \"server-10g\"", "name = \"mine\""));
    place.write("mine.toml", &slower);
    place.run(&["measure", "sim:mine.toml", "--workload", "tcp_rr"]).expect(0, &["on sim:mine"]);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "a.db"]).expect(0, &[]);
    place.run(&["run", "plan.toml", "--on", "sim:./mine.toml", "-o", "b.db"]).expect(0, &[]);
    let latency = |file: &str| median_figure(&place, file, "latency_ns_p50", 0);
    assert!(latency("b.db") > 5.0 * latency("a.db"));
}

#[test]
fn knob_changes_what_it_changes_on_a_host() {
    let place = Place::new();
    let plan = PLAN.replace(
        "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"200us\", 100]]",
        "mtu = [1500, 9000]",
    );
    place.write("plan.toml", &plan);
    place.run(&["run", "plan.toml", "--on", "sim:rx1620-e1000", "-o", "kept.db"]).expect(0, &[]);
    let packets = |setting| median_figure(&place, "kept.db", "sut_rx_pps", setting);
    assert!(packets(0) > 4.0 * packets(1), "{} against {}", packets(0), packets(1));
}

#[test]
fn impossible_simulation_is_refused_before_writing() {
    let factor = "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"200us\", 100]]";
    let with = |other: &str| PLAN.replace(factor, other);
    check_refused(&with("gso = [true, false]"), "server-10g", &["gso is on", "does not model"]);
    check_refused(&with("\"sut.mtu\" = [1500, 9000]"), "server-10g", &["`mtu`", "both hosts"]);
    check_refused(&with("mtu = [1500, 65536]"), "server-10g", &["mtu", "65535"]);
    check_refused(&with("txqueuelen = [10, 100]"), "server-10g", &["`txqueuelen`", "fq_codel"]);
    check_refused(
        &with("\"sut.rps-cpus\" = [\"none\", \"9\"]"),
        "server-10g",
        &["`rps-cpus`", "CPU 9"],
    );
    check_refused(
        &with("gro-flush-timeout = [\"0us\", \"20us\"]"),
        "server-10g",
        &["`gro-flush-timeout` without `napi-defer-hard-irqs`"],
    );
    let fragments = PLAN.replace("rate = \"20Mbps\"", "rate = \"20Mbps\"\ndatagram_bytes = 9000");
    check_refused(&fragments, "server-10g", &["workload `udp_stream", "size is 9000", "1472"]);
    let endless = PLAN.replace("duration = \"50ms\"", "duration = \"3500s\"");
    let endless = endless.replace("rate = \"20Mbps\"", "rate = \"900Gbps\"\ndatagram_bytes = 64");
    check_refused(&endless, "server-10g", &["packets", "shorten"]);
    check_refused(PLAN, "nosuch", &["no such system", "bl25p-tg3", "rx1620-e1000", "server-10g"]);
    check_refused(PLAN, "", &["no such system"]);
    check_refused(PLAN, "./nosuch.toml", &["./nosuch.toml", "No such file"]);
    check_refused(PLAN, "plan.toml", &["plan.toml", "unknown field `factors`"]);
    check_refused(PLAN, "bad.toml", &["bad.toml", "sut.machine.cores is 0, must be 1 to 1024"]);
}

#[test]
fn ctrl_c_ends_a_long_simulation_at_once() {
    let place = Place::new();
    place.write("plan.toml", &PLAN.replace("duration = \"50ms\"", "duration = \"1000s\""));
    let mut child = place.start(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]);
    wait_until("the run to begin", || place.path("kept.db").exists());
    interrupt_pid(child.id());
    wait_until("its end", || child.try_wait().unwrap().is_some());
    let said = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("interrupted"), "{said}");
}

/// Block, setting, workload, and everything that was observed.
type Trial = (i64, i64, i64, String);

/// Every trial of a file's newest run, in the order of the file.
fn read_trials(place: &Place, file: &str) -> Vec<Trial> {
    let db = rusqlite::Connection::open(place.path(file)).unwrap();
    let mut query =
        db.prepare("SELECT block, setting, workload, observation FROM trial ORDER BY id").unwrap();
    let rows = query
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap();
    rows.map(Result::unwrap).collect()
}

/// The median of a figure over the trials of a setting under its heaviest workload.
fn median_figure(place: &Place, file: &str, metric: &str, setting: i64) -> f64 {
    let db = rusqlite::Connection::open(place.path(file)).unwrap();
    let mut query = db
        .prepare(
            "SELECT value FROM figure JOIN trial ON trial = id WHERE metric = ?1 AND setting = ?2 \
             AND workload = (CASE ?1 WHEN 'latency_ns_p50' THEN 0 ELSE 1 END) ORDER BY value",
        )
        .unwrap();
    let values = query.query_map(rusqlite::params![metric, setting], |row| row.get(0)).unwrap();
    let values: Vec<f64> = values.map(Result::unwrap).collect();
    values[values.len() / 2]
}

#[track_caller]
fn check_refused(plan: &str, system: &str, expected: &[&str]) {
    let place = Place::new();
    place.write("plan.toml", plan);
    let shipped = include_str!("../../../../data/systems/server-10g.toml");
    place.write("bad.toml", &shipped.replace("cores = 4", "cores = 0"));
    let on = format!("sim:{system}");
    for command in ["run", "tune"] {
        place.run(&[command, "plan.toml", "--on", &on]).expect(2, expected);
    }
    place.run(&["run", "plan.toml", "--on", &on, "--check"]).expect(2, expected);
    assert!(!place.path("latput-results.db").exists(), "a refused plan leaves no file");
}

fn place_with_plan() -> Place {
    let place = Place::new();
    place.write("plan.toml", PLAN);
    place
}
