//! Benchmarks of other programs as the workload, in the lab: real servers, real benchmarks, nothing left running.

use std::process::Command;

use latput_testkit::{isolate, needs};

use crate::{Place, agents_of, broker_of, children_of, kill_pid, wait_until, words_of};

const REDIS: &[&str] = &[
    "--server",
    "redis-server --bind {sut} --port 6379 --save '' --protected-mode no",
    "--ready",
    "tcp:6379",
    "--command",
    "redis-benchmark -h {sut} -p {port} -t get -c 8 -n {count} --csv",
];

/// Once, for a short time.
const SHORT: &[&str] = &["--duration", "1s", "--warmup", "0s", "--repetitions", "2..2"];

fn run_measure(place: &Place, own: &[&str]) -> crate::CommandOutput {
    place.run(&[&["measure", "lab", "-v"], SHORT, own].concat())
}

/// Processes in a network namespace that is not this one, with this in their command line.
fn running_processes(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    all.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let elsewhere = std::fs::read_link(entry.path().join("ns/net")).ok()? != own;
        (elsewhere && line.contains(word)).then_some(line)
    })
    .collect()
}

/// The processes that began with the latput of this place: all have its environment.
fn processes_of(place: &Place) -> usize {
    let state = place.path("state").display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    all.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&state)
    })
    .count()
}

#[needs("root", "redis-server")]
#[test]
fn redis_benchmark_is_measured_and_cleaned_up() {
    let place = Place::new();
    let own = [REDIS, &["--count", "5000", "-o", "redis.db", "name=redis get"]].concat();
    let ran = run_measure(&place, &own);
    ran.expect(
        0,
        &[
            "redis get on lab",
            "transactions per second",
            "99th percentile of round-trip time",
            "service demand of the SUT",
        ],
    );
    assert_eq!(place.count_trials("redis.db"), 2);
    let left = running_processes(&place.path("").display().to_string());
    assert_eq!(left, Vec::<String>::new());
    wait_until("the lab to be gone", || processes_of(&place) == 0);
    let json = place.run(&["report", "redis.db", "--json"]);
    let words = ["redis get", "transactions_per_s", "redis-benchmark -h {sut}", "redis-server"];
    json.expect(0, &words);
    // A report to be shown to strangers does not tell what was run.
    let shared = place.run(&["report", "redis.db", "--share", "--json"]);
    assert!(!shared.expect(0, &["redis get"]).out.contains("redis-server"));
}

/// The log is the one of the Java library's own test, which says that 48,761 samples are in it.
#[needs("root")]
#[test]
fn hdr_log_counts_only_if_fresh() {
    let place = Place::new();
    place.write("java", include_str!("../../../formats/tests/program/hdr-java.hlog"));
    let (from, log) = (place.path("java"), place.path("out.hlog"));
    let (from, log) = (from.display(), log.display());
    let plan = |script: &str| {
        format!(
            "schema = 1\nname = \"log\"\n[[workload]]\nkind = \"command\"\nname = \"logs\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\n\
             metrics = {{ histogram = {{ from = {{ file = \"{log}\" }}, unit = \"ns\" }} }}\n\
             [method]\ndesign = \"blocks\"\nrepetitions = {{ min = 2, max = 2 }}\n"
        )
    };
    place.write("plan.toml", &plan(&format!("sleep 0.2; cat {from} > {log}")));
    place.run(&["run", "plan.toml", "--on", "lab", "-o", "log.db"]).expect(0, &["logs"]);
    let report = place.report_json("log.db");
    for run in report["runs"].as_array().unwrap() {
        let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
        // The 99.9th percentile by that library is 1.7459 s, with two digits.
        assert!((metric("latency_ns_p999") / 1.7459e9 - 1.0).abs() < 0.005, "{run:#}");
        assert!((metric("latency_ns_max") / 1.7962e9 - 1.0).abs() < 0.005, "{run:#}");
        // Its intervals cover 62 s.
        assert!((metric("transactions_per_s") / (48_761.0 / 62.0) - 1.0).abs() < 0.02, "{run:#}");
    }
    place.run(&["report", "log.db"]).expect(0, &["99.9th percentile of round-trip time"]);
    place.write("plan.toml", &plan("sleep 0.2"));
    place
        .run(&["run", "plan.toml", "--on", "lab", "-o", "old.db"])
        .expect(1, &["log of HdrHistogram: it is not there", "is older than the program"]);
    place.write("plan.toml", &plan(&format!("echo 1.0,2.0 > {log}")));
    let broken = place.run(&["run", "plan.toml", "--on", "lab", "-o", "broken.db"]);
    broken.expect(1, &["log of HdrHistogram: line 1 is not an interval: `1.0,2.0`"]);
}

#[needs("root", "wrk", "nginx")]
#[test]
fn nginx_is_measured_by_wrk_with_probe() {
    let place = Place::new();
    let folder = place.path("");
    let folder = folder.display();
    place.write("index.html", "hello");
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = paths.map(|it| format!("{it}_temp_path {folder}/{it};\n")).concat();
    place.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {folder}/pid; error_log stderr;\nevents {{}}\n\
             http {{ access_log off; {paths} server {{ listen 80; root {folder}; }} }}\n"
        ),
    );
    let server = format!("nginx -c {folder}/nginx.conf");
    let own = ["--server", &server, "--ready", "tcp:80", "probe_hz=50"];
    let wrk = "wrk -t1 -c4 -d{duration_s} --latency http://{sut}/index.html";
    let ran = run_measure(&place, &[&own[..], &["--command", wrk]].concat());
    ran.expect(
        0,
        &[
            "wrk on lab",
            "transactions per second",
            "99th percentile of round-trip time",
            "ping beside the traffic",
        ],
    );
    assert_eq!(running_processes(&server), Vec::<String>::new());
}

#[needs("root", "redis-server", "redis-benchmark")]
#[test]
fn plan_of_redis_page_runs() {
    check_plan_of_page("redis");
}

#[needs("root", "nginx", "wrk")]
#[test]
fn plan_of_nginx_page_runs() {
    check_plan_of_page("nginx");
}

#[needs("root", "pgbench")]
#[test]
fn plan_of_postgresql_page_runs() {
    check_plan_of_page("postgresql");
}

#[needs("root", "fio")]
#[test]
fn plan_of_fio_page_runs() {
    check_plan_of_page("fio");
}

#[needs("root", "sockperf")]
#[test]
fn plan_of_sockperf_page_runs() {
    check_plan_of_page("sockperf");
}

/// The page's plan, once and for a second, against the real programs.
#[track_caller]
fn check_plan_of_page(page: &str) {
    let path = format!("{}/../../docs/workloads/{page}.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, plan) = text.split_once("```toml\n").unwrap();
    let (plan, _) = plan.split_once("```").unwrap();
    let (plan, _) = plan.split_once("[method]").unwrap();
    let method =
        "[method]\nrepetitions = { min = 1, max = 1 }\nduration = \"1s\"\nwarmup = \"0s\"\n";
    let short = plan
        .replace("count = 500000", "count = 3000")
        .replace(", [\"20us\", 100], [\"50us\", 100]]", "]")
        .replace("rm -rf latput-pg", &format!("cd {POSTGRES_FOLDER}"));
    assert!(short.contains("[\"0us\", 0]]"), "{short}");
    let place = Place::new();
    place.write("plan.toml", &format!("{short}{method}"));
    if page == "postgresql" {
        let mut make = Command::new("install");
        make.args(["-d", "-o", "postgres", POSTGRES_FOLDER]);
        assert!(make.status().unwrap().success());
    }
    let ran = place.run(&["run", "plan.toml", "-o", "r.db"]);
    if page == "postgresql" {
        std::fs::remove_dir_all(POSTGRES_FOLDER).unwrap();
    }
    // On a busy machine a program may finish too few transactions for the figure of its goal.
    let code = if ran.code == Some(6) { 6 } else { 0 };
    ran.expect(code, &["results: run 1"]);
    assert_eq!(place.count_trials("r.db"), 1, "{page}: {ran:?}");
}

/// Where the test's database is; removed after it.
const POSTGRES_FOLDER: &str = "/var/tmp/latput-test-postgresql";

#[needs("root")]
#[test]
fn setup_commands_run_where_planned() {
    let place = Place::new();
    let log = place.path("log");
    let shell = |what: &str| {
        format!(
            "[\"sh\", \"-c\", \"echo {what} $(readlink /proc/self/ns/net) >> {}\"]",
            log.display()
        )
    };
    let command = shell("command").replace("\"]", "; echo value: 3\"]");
    let server = shell("server").replace("\"]", "; exec sleep 1000\"]");
    place.write(
        "plan.toml",
        &format!(
            "schema = 1\n[factors]\n\"sut.txqueuelen\" = [1000, 1001]\n[[workload]]\nkind = \"command\"\non = \"controller\"\n\
             lifetime = \"setting\"\nserver = {{ command = {server} }}\nprepare = {}\ncleanup = {}\ncommand = {command}\n\
             metrics = [{{ name = \"surrounded_value\", regex = 'value: (.*)' }}]\n[method]\nrepetitions = {{ min = 3, max = 3 }}\n\
             warmup = \"0s\"\n",
            shell("prepare"),
            shell("cleanup"),
        ),
    );
    place.run(&["run", "plan.toml", "-o", "r.db"]).expect(0, &["surrounded_value"]);
    let report = place.report_json("r.db");
    let runs = report["runs"].as_array().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    let said = |what: &str| log.lines().filter(|line| line.starts_with(what)).collect::<Vec<_>>();
    for what in ["prepare", "command", "cleanup"] {
        assert_eq!((said(what).len(), runs.len()), (6, 6), "{what}: {log}");
    }
    // The server is another one whenever the setting is.
    let settings = runs.iter().map(|run| run["setting"].as_u64().unwrap()).collect::<Vec<_>>();
    let changes = settings.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(said("server").len(), changes + 1, "{settings:?}: {log}");
    let own = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    assert!(said("prepare").iter().all(|line| line.contains(&own)), "{log}");
    assert!(said("server").iter().all(|line| !line.contains(&own)), "{log}");
}

#[needs("root")]
#[test]
fn tune_judges_a_figure_of_the_users_own() {
    let place = Place::new();
    place.write(
        "plan.toml",
        "schema = 1\n[factors]\ntxqueuelen = [500, 501]\n[[workload]]\nkind = \"tcp_rr\"\n\
         [method]\nbeside = true\nrepetitions = { min = 2, max = 2 }\nduration = \"100ms\"\nwarmup = \"0s\"\n",
    );
    let own = ["--command", "sh -c 'ping -c 5 -i 0.02 {sut} >/dev/null; echo score: 42'"];
    let figure = ["--metric", "score[number,higher]=/score: (\\d+)/", "--goal", "maximize score"];
    let words = [&["tune", "plan.toml", "-o", "own.db"], &own[..], &figure].concat();
    place.run(&words).expect(0, &["score", "own.db"]);
    assert_eq!(place.count_trials("own.db"), 6);
    // Another command is another run, not more of this one.
    let check = [&words[..], &["--check"]].concat();
    place
        .run(&check)
        .expect(0, &["each generator as the user of latput there: sh -c", "ping -c 5"]);
}

#[needs("root")]
#[test]
fn failed_benchmark_ends_run_with_last_lines() {
    let place = Place::new();
    let metric = ["--metric", "rps=/rps: (\\d+)/"];
    let run = |command: &str| run_measure(&place, &[&["--command", command], &metric[..]].concat());
    run("sh -c 'echo first; echo broken >&2; exit 7'").expect(1, &["exit status 7", "broken"]);
    run("sh -c 'kill -9 $$'").expect(1, &["signal 9 ended it"]);
    run("sh -c 'echo rps: no'").expect(1, &["rps"]);
    run("true").expect(1, &["rps", "stdout is empty"]);
    let missing = run("latput-has-no-such-program");
    missing.expect(1, &["`latput-has-no-such-program`", "install it there"]);
    assert!(!missing.err.contains("tried again"), "{missing:?}");
}

/// CPU time of a host is that of its CPUs: a program on another host's would be missed there.
#[needs("root")]
#[test]
fn programs_run_on_the_cpus_of_their_host() {
    let place = Place::new();
    let tell = |name: &str, then: &str| {
        let file = place.path(name);
        let list =
            format!("sed -n s/^Cpus_allowed_list:.//p /proc/self/status > {}", file.display());
        format!("sh -c '{list}; {then}'")
    };
    isolate();
    let _lab = crate::root_settings::Lab::set_up(&place);
    // Unlike `latput lab exec`, which gives a program the CPUs of its host, this leaves it on any.
    let host = |name: &str, role: &str, number: u8| {
        format!(
            "[host.{name}]\nrole = \"{role}\"\ninterface = \"lat0\"\naddress = \"198.18.0.{number}\"\ncpus = \"0\"\n\
             latput = \"{}\"\nvia = [\"ip\", \"netns\", \"exec\", \"latput-{name}\"]\n",
            crate::latput_path()
        )
    };
    let hosts = [host("a", "generator", 1), host("b", "sut", 2)].concat();
    place.write("testbed.toml", &format!("schema = 1\n{hosts}"));
    let (server, command) = (tell("b", "exec sleep 60"), tell("a", "echo rps: 5"));
    let own = ["--server", &server, "--command", &command, "--metric", "rps=/rps: (\\d+)/"];
    place.run(&[&["measure", "testbed.toml"], SHORT, &own].concat()).expect(0, &["rps"]);
    for name in ["a", "b"] {
        assert_eq!(std::fs::read_to_string(place.path(name)).unwrap(), "0\n", "{name}");
    }
}

/// Other work of this machine is in what these measure: CI runs them with nothing beside.
mod alone {
    use super::*;

    /// sockperf sends nothing for its first two seconds: hosts are counted when it sends. Counted from its start, or over
    /// its whole life, they would have no third of the packets.
    #[needs("root", "sockperf")]
    #[test]
    fn hosts_are_counted_while_program_sends() {
        let place = Place::new();
        let server =
            ["--server", "sockperf server --tcp -i {sut} -p 11111", "--ready", "tcp:11111"];
        let command = ["--command", "sockperf ping-pong --tcp -i {sut} -p {port} -t {duration_s}"];
        let own = [&server[..], &command, &["-o", "sockperf.db"]].concat();
        run_measure(&place, &own).expect(0, &["transactions per second"]);
        let report = place.report_json("sockperf.db");
        for run in report["runs"].as_array().unwrap() {
            let of = |name: &str| run["metrics"][name].as_f64().unwrap();
            let packets = of("sut_rx_pps") / of("transactions_per_s");
            // A busy machine lets it begin slowly, and its own figure leaves the first 400 ms out.
            assert!((0.5..1.5).contains(&packets), "{packets} packets to a round trip: {run}");
        }
    }
}

#[needs("root", "redis-server")]
#[test]
fn unready_server_ends_the_run() {
    let place = Place::new();
    // Long enough for the end of a server to be seen within it on a busy machine.
    let metric = ["--metric", "rps=/(\\d+)/", "--command", "sh -c 'sleep 2; echo 1'"];
    let run = |server: &str, ready: &str| {
        run_measure(&place, &[&["--server", server, "--ready", ready], &metric[..]].concat())
    };
    run("sh -c 'echo cannot bind >&2; exit 1'", "tcp:7000")
        .expect(1, &["exit status 1", "cannot bind"]);
    let daemon = run("redis-server --daemonize yes --port 6399 --save ''", "tcp:6399");
    // Its child may listen for a moment before its end is seen. A trial that needs no server passes then, and the end is told
    // when the next one begins.
    assert!(matches!(daemon.code, Some(0 | 1 | 6)), "{daemon:?}");
    for words in ["redis-server", "it ended with exit status 0"] {
        assert!(daemon.err.contains(words), "{daemon:?}");
    }
    wait_until("the daemon to be gone", || running_processes("--port 6399").is_empty());
}

#[needs("root", "redis-server")]
#[test]
fn killed_run_leaves_no_program_or_knob() {
    for victim in ["controller", "agent", "runner"] {
        let place = Place::new();
        place.write(
            "plan.toml",
            "schema = 1\n[factors]\ntxqueuelen = [500, 501]\n[[workload]]\nkind = \"tcp_rr\"\n\
             [method]\nrepetitions = { min = 50, max = 50 }\nduration = \"100ms\"\n",
        );
        let words = [&["tune", "plan.toml", "-o", "r.db"], REDIS, &["--count", "2000"]].concat();
        let mut child = place.start(&words);
        wait_until("a trial", || place.count_trials("r.db") > 0);
        assert!(processes_of(&place) > 5, "controller, agents, keepers, runners and programs");
        let pid = match victim {
            "controller" => child.id(),
            "agent" => agents_of(child.id())[0],
            _ => runner_of(child.id()),
        };
        kill_pid(pid);
        let code = child.wait().unwrap().code();
        assert_eq!(code.is_none(), victim == "controller", "{victim}: {code:?}");
        wait_until("every process of the lab to be gone", || processes_of(&place) == 0);
        if victim != "controller" {
            let said = std::fs::read_to_string(place.path("stderr")).unwrap();
            assert!(code == Some(6) && said.contains("error: host `"), "{victim}: {code:?} {said}");
        }
        let state = place.path("state");
        place.run(&["restore"]).expect(0, &[]);
        assert!(state.exists());
    }
}

/// Another controller that puts the host back in its own agent's place leaves this one's change.
#[needs("root")]
#[test]
fn agents_change_is_of_its_controller() {
    let place = Place::new();
    place.write(
        "plan.toml",
        "schema = 1\n[factors]\ntxqueuelen = [500, 501]\n[[workload]]\nkind = \"tcp_rr\"\n\
         [method]\nrepetitions = { min = 50, max = 50 }\nduration = \"100ms\"\n",
    );
    let mut child = place.start(&["tune", "plan.toml", "-o", "r.db"]);
    let checkpoint = || {
        let mut files = place.path("state/lab/checkpoints").read_dir().ok()?;
        let is_one = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "json");
        let text = std::fs::read(files.find_map(|file| Some(file.ok()?.path()).filter(is_one))?);
        serde_json::from_slice::<serde_json::Value>(&text.ok()?).ok()
    };
    wait_until("a checkpoint", || checkpoint().is_some());
    let maker = checkpoint().unwrap()["by"].take();
    assert_eq!(maker["command"], "agent", "{maker}");
    let controller = maker["run"].as_str().unwrap();
    assert_eq!(controller.len(), 16, "{maker}");
    let restore = |by: &str| {
        let mut restore = place.latput_command(&["restore", &format!("--made-by={by}")]);
        let ran = restore.env("LATPUT_STATE_DIR", place.path("state/lab")).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    for other in ["agent", "agent/0000000000000000"] {
        assert!(restore(other).contains("nothing to restore"), "{other}");
    }
    assert!(!restore(&format!("agent/{controller}")).contains("nothing to restore"));
    kill_pid(child.id());
    child.wait().unwrap();
    wait_until("every process of the lab to be gone", || processes_of(&place) == 0);
    assert!(checkpoint().is_none(), "the host is put back");
}

/// A process that runs programs for a latput.
fn runner_of(pid: u32) -> u32 {
    let mut found = None;
    wait_until("a process that runs programs", || {
        let started_by = broker_of(pid).unwrap_or(pid);
        let is_runner = |child: &u32| words_of(*child).contains("program --stdio");
        found = children_of(started_by).into_iter().find(is_runner);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn simulator_and_peers_refuse_commands() {
    let place = Place::new();
    let own = ["--command", "true", "--metric", "rps=/(\\d+)/"];
    let run = |target: &str| place.run(&[&["measure", target], &own[..]].concat());
    run("sim:server-10g").expect(2, &["a simulated host runs no programs"]);
    run("iperf3://127.0.0.1").expect(2, &["command"]);
}
