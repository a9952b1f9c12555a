//! `latput tune --live`: traffic that latput does not know of goes on while settings take turns.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use latput_linux::Namespace;
use latput_testkit::{isolate, needs};

use crate::live_traffic::{GONE, HUGE, METRICS_PORT, RequestTraffic, SLOW};
use crate::root_settings::Lab;
use crate::{Place, agents_of, kill_pid, print_note, wait_until};

/// Address of host `b`, which has the live traffic.
const B: &str = "198.18.0.2";
const HOST: &str = "netns://latput-b%lat0";
/// Delays what arrives by 20 ms, which no guard on round trips can overlook.
const HARMFUL: &str =
    "\"gro-flush-timeout + napi-defer-hard-irqs\" = [[\"0us\", 0], [\"20ms\", 1000]]";

fn plan_toml(factors: &str, goal: &str, workload: &str) -> String {
    format!(
        "schema = 1\nname = \"live\"\n{goal}\n[factors]\n{factors}\n[[workload]]\nkind = \"live\"\n\
         disruptive = [\"gro-flush-timeout\", \"napi-defer-hard-irqs\"]\n{workload}\n[method]\nbeside = true\nbudget = \"60s\"\n\
         repetitions = {{ min = 3, max = 3 }}\n"
    )
}

/// The queue length that host `b` has in force.
fn queue_length() -> u64 {
    let b = Namespace::open_pinned("latput-b").unwrap();
    let text = b.run_in(|| std::fs::read_to_string("/sys/class/net/lat0/tx_queue_len").unwrap());
    text.unwrap().trim().parse().unwrap()
}

/// A lab whose host `b` takes packets in polls that can be deferred, with a plan and live traffic.
fn lab_with<'a>(place: &'a Place, plan: &str) -> (Lab<'a>, RequestTraffic) {
    let lab = Lab::set_up(place);
    lab.run_on_b(&["set", "lat0", "gro=on"]).expect(0, &[]);
    place.write("plan.toml", plan);
    (lab, RequestTraffic::start_between("latput-a", "latput-b", B))
}

fn tune_words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["tune", "plan.toml", HOST, "-o", "live.db", "--report", "live.html"], more].concat()
}

#[needs("root")]
#[test]
fn observe_sets_nothing_and_tells_power() {
    isolate();
    let place = Place::new();
    let plan = plan_toml(HARMFUL, "", "slice = \"200ms\"");
    // A session that is opened for reading only would refuse to try a level out.
    let plan = plan.replace("[method]", "[method]\non_unsupported = \"skip\"");
    let (lab, traffic) = lab_with(&place, &plan);
    let before = lab.read_knobs();
    let guard = ["--live", "--guard", "tcp_rtt_ns_p99 <= 2 today", "--check"];
    let checked = place.run(&tune_words(&guard));
    checked.expect(
        0,
        &["2 settings", "about 15 s to 60 s", "guards: tcp_rtt_ns_p99", "nothing was set"],
    );
    assert_eq!(lab.read_knobs(), before);
    // A slice each would tell nothing of any setting.
    let short = place.run(&tune_words(&["--live", "--budget", "2s"]));
    short.expect(2, &["needs at least 3s", "`--budget 3s`"]);
    place
        .run(&tune_words(&["--live", "--budget", "2s", "--check"]))
        .expect(2, &["needs at least 3s"]);
    let goal = ["--goal", "minimize tcp_rtt_ns_p50"];
    let ran =
        place.run(&tune_words(&[&["--live", "--observe", "--port", "7000"], &goal[..]].concat()));
    ran.expect(0, &["Observed only"]);
    assert!(!ran.out.contains("Recommended") && !ran.err.contains("No answer"), "{ran:#?}");
    let report = place.report_json("live.db");
    assert!(report["headline"].is_null() && report["recommendation"].is_null(), "{report:#}");
    ran.expect(
        0,
        &[
            "tcp_rtt_ns_p99: two slices of today's setting differ by",
            "Smallest provable difference: ",
            "20 trials",
        ],
    );
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(said.matches("tcp_rtt_ns_p99: two slices").count(), 1, "{said}");
    // Samples are of the whole machine: beside tests that load it there may be too many to trace.
    let has_too_many = ran.err.contains("are traced part of the time");
    if Path::new("/sys/kernel/btf/vmlinux").exists() && !has_too_many {
        ran.expect(0, &["tcp_rtt_sample_ns_p99: two slices of today's setting differ by"]);
    }
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        let hosts = || report["runs"].as_array().unwrap().iter().map(|run| &run["hosts"][0]);
        let sum = |name: &str| hosts().map(|host| host[name].as_f64().unwrap()).sum::<f64>();
        let share = sum("tracing_cpu_ns") / sum("window_ns");
        print_note(&format!("samples took {:.2}% of a CPU", 100.0 * share));
        assert!(share > 0.0, "what samples take is counted");
    }
    assert_eq!(lab.read_knobs(), before);
    assert!(
        place
            .path("state")
            .join("checkpoints")
            .read_dir()
            .is_ok_and(|mut all| all.next().is_none())
    );
    drop(traffic);
}

#[needs("root", "setpriv")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn unprivileged_observe_answers_without_setting() {
    isolate();
    let place = Place::new();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o777)).unwrap();
    let (lab, traffic) = lab_with(&place, &plan_toml(HARMFUL, "", "slice = \"200ms\""));
    let before = told_by_sysfs(&lab);
    assert!(before.contains("gro_flush_timeout:0"), "{before}");
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all"];
    for words in [&["lat0"][..], &["plan.toml", "lat0"]] {
        let tune = [&["tune"], words, &["--live", "--slice", "200ms", "-o", "nobody.db"]].concat();
        let ran = lab.b_behind(&nobody, &[&tune[..], &["--observe", "--port", "7000"]].concat());
        let answers = [
            "tcp_rtt_ns_p99: two slices of today's setting differ by",
            "Smallest provable \
             difference: ",
        ];
        ran.expect(0, &answers);
        // A figure that would need more rights is named with its need.
        ran.expect(
            0,
            &["CAP_NET_ADMIN is missing: no knob", "CAP_BPF and CAP_PERFMON are missing"],
        );
        assert_eq!(told_by_sysfs(&lab), before);
        lab.b_behind(&nobody, &tune).expect(3, &["CAP_NET_ADMIN"]);
        assert_eq!(told_by_sysfs(&lab), before);
    }
    assert_eq!(told_by_sysfs(&lab), before);
    drop(traffic);
}

/// Every value of sysfs that a knob could be, by `grep`.
fn told_by_sysfs(lab: &Lab<'_>) -> String {
    let script = "cd /sys/class/net/lat0 && grep -r . mtu tx_queue_len gro_flush_timeout napi_defer_hard_irqs threaded \
                  queues/*/[rx]ps_* queues/*/byte_queue_limits/limit_*; ip link show lat0; tc qdisc show dev lat0";
    lab.b_sh(script)
}

/// Other traffic of this machine is in what these measure: CI runs them with nothing beside.
mod alone {
    use super::*;

    #[needs("root")]
    #[test]
    fn harmful_setting_is_reverted_and_banned() {
        isolate();
        let place = Place::new();
        // The goal itself likes the delay, so that nothing but the guard speaks against it.
        let goal = "goal = \"minimize sut_cpu_busy_ratio\"";
        let guard = "guard = [\"tcp_rtt_ns_p99 <= 1.5 today\"]\nports = [7000]\nslice = \"800ms\"";
        let (lab, traffic) = lab_with(&place, &plan_toml(HARMFUL, goal, guard));
        let before = lab.read_knobs();
        let ran = place.run(&tune_words(&[]));
        ran.expect(0, &["it is banned if that happens again", "is banned: ", "breaking a guard"]);
        assert_eq!(lab.read_knobs(), before);
        drop(traffic);
        let report = place.report_json("live.db");
        assert_eq!(report["headline"]["kind"], "stay");
        let harmed =
            report["runs"].as_array().unwrap().iter().filter(|run| run["setting"] == 1).count();
        // Two, unless other work on this machine hides the delay from slices.
        assert!((2..=12).contains(&harmed), "{harmed} slices: {}", ran.err);
        let back_ms = ran.err.lines().filter(|line| line.contains("was back ")).map(|line| {
            let (_, rest) = line.rsplit_once("was back ").unwrap();
            rest.split(' ').next().unwrap().parse::<f64>().unwrap()
        });
        for ms in back_ms {
            print_note(&format!("from the reading to today's values: {ms} ms"));
            // 100 ms is what is promised on a host that is not overloaded, as this one may be.
            assert!(ms < 2_000.0, "{ms}");
        }
    }
}

#[needs("root")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn ineffective_setting_is_reported_as_such() {
    isolate();
    let place = Place::new();
    let goal = "goal = \"minimize tcp_rtt_ns_p50\"";
    let (lab, traffic) = lab_with(
        &place,
        &plan_toml("txqueuelen = [1000, 1001]", goal, "slice = \"200ms\"\nports = [7000]"),
    );
    let words = tune_words(&["--live", "--by", "port", "--budget", "15s"]);
    let ran = place.run(&words);
    ran.expect(0, &["two slices of today's setting differ by", "By port, under today's setting"]);
    let report = place.report_json("live.db");
    assert_ne!(report["headline"]["kind"], "set");
    // The host listens on the port, and there is no other traffic.
    let groups = &report["tcp_groups"];
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups:#}");
    assert_eq!(groups["groups"][0]["group"], "local:7000");
    assert_eq!(groups["groups"][0]["connections_count"], 4);
    for compared in groups["comparisons"].as_array().unwrap() {
        assert!(
            !["better", "worse"].contains(&compared["verdict"].as_str().unwrap()),
            "{groups:#}"
        );
    }
    for run in report["runs"].as_array().unwrap() {
        let (all, port) = (&run["metrics"], &run["tcp_groups"]["local:7000"]["metrics"]);
        for figure in
            ["tcp_rtt_ns_p50", "tcp_rtt_ns_p99", "tcp_rtt_sample_ns_p99", "tcp_throughput_bps"]
        {
            assert_eq!(all[figure], port[figure], "{run:#}");
        }
    }
    // The same run again is resumed: nothing of it is lost.
    place.run(&words).expect(0, &["run 2 of live.db"]);
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    drop(traffic);
}

#[needs("root")]
#[test]
fn killed_process_restores_todays_setting() {
    isolate();
    let place = Place::new();
    // Without a goal or a guard no noise is measured: the first slice is of the other setting, and lasts 15 s.
    let plan = plan_toml("txqueuelen = [1000, 1234]", "", "slice = \"60s\"");
    let (lab, traffic) = lab_with(&place, &plan.replace("60s\"\nrep", "500s\"\nrep"));
    for (number, who) in ["the controller", "the keeper", "the agent"].iter().enumerate() {
        let file = format!("{number}.db");
        let mut latput =
            place.start(&["tune", "plan.toml", HOST, "-o", &file, "--report", "live.html"]);
        wait_until("the other setting", || queue_length() == 1234 || has_ended(&mut latput));
        assert!(
            !has_ended(&mut latput),
            "{}",
            std::fs::read_to_string(place.path("stderr")).unwrap()
        );
        kill_pid(process_of(who, latput.id()));
        let killed = std::time::Instant::now();
        wait_until("today's setting", || queue_length() == 1000);
        let waited = killed.elapsed();
        print_note(&format!(
            "after kill -9 of {who} today's setting was back in {} ms",
            waited.as_millis()
        ));
        assert!(waited < Duration::from_secs(14), "{who}: the slice may have ended by itself");
        let _status = latput.wait().unwrap();
        lab.run_on_b(&["restore"]).expect(0, &[]);
        assert_eq!(queue_length(), 1000);
    }
    drop(traffic);
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// The process of a role: latput itself, its keeper, or the agent that the keeper has started.
fn process_of(who: &str, latput: u32) -> u32 {
    let first = |pid: u32| *agents_of(pid).first().expect("it has started an agent");
    match who {
        "the controller" => latput,
        "the keeper" => first(latput),
        _ => first(first(latput)),
    }
}

#[needs("root")]
#[test]
fn traffic_that_stops_is_waited_for() {
    isolate();
    let place = Place::new();
    let plan = plan_toml(
        "txqueuelen = [1000, 1001]",
        "",
        "slice = \"200ms\"\nports = [7000]\nby = \"peer\"",
    );
    let (_lab, traffic) = lab_with(&place, &plan);
    traffic.pause.store(true, Ordering::Relaxed);
    let mut latput = place.start(&tune_words(&[]));
    let said = || std::fs::read_to_string(place.path("stderr")).unwrap();
    wait_until("that the traffic is missed", || {
        said().contains("the block is tried again") || has_ended(&mut latput)
    });
    traffic.pause.store(false, Ordering::Relaxed);
    let status = latput.wait().unwrap();
    assert!(status.success(), "{}", said());
    assert!(said().contains("no packet was received or sent"), "{}", said());
    place
        .run(&["report", "live.db"])
        .expect(0, &["By peer, under", "198.18.0.1 ", "against today"]);
    drop(traffic);
}

#[needs("root")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn application_figures_follow_their_source() {
    isolate();
    let place = Place::new();
    let endpoint = format!(
        "slice = \"600ms\"\nendpoint = \"http://{B}:{METRICS_PORT}/metrics\"\n\
         metrics = {{ live_requests_per_s = \"counter requests_total\" }}"
    );
    let (_lab, traffic) = lab_with(&place, &plan_toml("txqueuelen = [1000, 1001]", "", &endpoint));
    place.run(&tune_words(&[])).expect(0, &["live_requests_per_s"]);
    for (mode, file, said) in [
        (HUGE, "huge.db", "more than"),
        (SLOW, "slow.db", "no answer within 500 ms"),
        (GONE, "gone.db", "refused"),
    ] {
        traffic.endpoint.store(mode, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(800)); // the answer under way
        let ran = place.run(&["tune", "plan.toml", HOST, "-o", file, "--report", "live.html"]);
        ran.expect(0, &["endpoint http://198.18.0.2:7001/metrics", said]);
        assert!(!ran.out.contains("live_requests_per_s "), "{ran:#?}");
    }
    drop(traffic);
}

#[needs("root")]
#[test]
fn application_figures_come_by_file_and_statsd() {
    isolate();
    let place = Place::new();
    // latput opens the file as a user that owns nothing.
    let folder = place.path("application");
    std::fs::create_dir(&folder).unwrap();
    for open in [&place.path(""), &folder] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (file, socket) = (folder.join("figures.json"), folder.join("statsd.sock"));
    let workload = |endpoint: &str, source: &str| {
        let metrics = format!("metrics = {{ live_told_per_s = \"{source}\" }}");
        let more = format!("slice = \"600ms\"\nendpoint = \"{endpoint}\"\n{metrics}");
        plan_toml("txqueuelen = [1000, 1001]", "", &more)
    };
    let by_file = workload(&format!("file://{}", file.display()), "counter json:/requests");
    let (_lab, mut traffic) = lab_with(&place, &by_file);
    traffic.publish_requests({
        let (file, part) = (file.clone(), folder.join("part"));
        move |requests| {
            std::fs::write(&part, format!("{{\"requests\": {requests}}}")).unwrap();
            std::fs::rename(&part, &file).unwrap();
        }
    });
    place.run(&tune_words(&[])).expect(0, &["live_told_per_s"]);
    let sender = UnixDatagram::unbound().unwrap();
    traffic.publish_requests({
        let (socket, mut last) = (socket.clone(), None);
        move |requests| {
            let new = requests - last.replace(requests).unwrap_or(requests);
            // There is no socket until latput has made one.
            let _unread = sender.send_to(format!("app.requests:{new}|c").as_bytes(), &socket);
        }
    });
    let by_statsd = format!("statsd://{}", socket.display());
    place.write("plan.toml", &workload(&by_statsd, "counter app.requests"));
    let by_statsd = ["tune", "plan.toml", HOST, "-o", "statsd.db", "--report", "live.html"];
    place.run(&by_statsd).expect(0, &["live_told_per_s"]);
    assert!(!socket.exists(), "latput takes its socket away");
    let told = |file: &str| {
        let report = place.run(&["report", file, "--json"]).expect(0, &[]).out.clone();
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        report["cells"][0]["metrics"]["live_told_per_s"]["value"].as_f64().unwrap()
    };
    // Four connections of up to 200 requests per second.
    for file in ["live.db", "statsd.db"] {
        assert!((1.0..=900.0).contains(&told(file)), "{file}: {}", told(file));
    }
    // A file that only root may read is not read for a plan.
    std::fs::write(folder.join("secret"), "{\"requests\": 1}").unwrap();
    let only_root = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.join("secret"), only_root).unwrap();
    let secret = format!("file://{}", folder.join("secret").display());
    place.write("plan.toml", &workload(&secret, "counter json:/requests"));
    place
        .run(&["tune", "plan.toml", HOST, "-o", "secret.db", "--report", "live.html"])
        .expect(0, &["everybody must be able to read it"]);
    drop(traffic);
}

/// A plan whose figures a shell's command tells.
fn told_by(script: &str) -> String {
    let figures = "{ live_cmd_per_s = \"counter requests_total\", live_cmd_uid = \"gauge uid\" }";
    let endpoint = format!("endpoint = \"\"\"exec:sh -c '{script}'\"\"\"\nmetrics = {figures}");
    plan_toml("txqueuelen = [1000, 1001]", "", &format!("slice = \"400ms\"\n{endpoint}"))
}

/// Whether a process of this machine has this word.
fn is_running(word: &str) -> bool {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let words = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    words.into_iter().any(|words| words.split(|byte| *byte == 0).any(|it| it == word.as_bytes()))
}

#[needs("root")]
#[test]
#[ignore = "long: `cargo xtask ci --full` runs it"]
fn application_figures_come_from_a_command() {
    isolate();
    let place = Place::new();
    let counts = "i=0; while :; do i=$((i+100)); echo requests_total $i; echo uid $(id -u); echo; sleep 0.1; done";
    let (_lab, traffic) = lab_with(&place, &told_by(counts));
    place
        .run(&["run", "plan.toml", "--check=plan"])
        .expect(0, &["runs on the host as nobody", "sh -c 'i=0"]);
    let ran = place.run(&tune_words(&[]));
    ran.expect(0, &["live_cmd_per_s"]);
    assert!(!ran.err.contains("endpoint"), "it is heard from the first block on: {ran:#?}");
    let report = place.report_json("live.db");
    let value = |name: &str| report["cells"][0]["metrics"][name]["value"].as_f64().unwrap();
    // Ten times 100 in a second, unless this machine is busy.
    assert!((50.0..=1_500.0).contains(&value("live_cmd_per_s")), "{}", value("live_cmd_per_s"));
    assert!((value("live_cmd_uid") - 65_534.0).abs() < 0.5, "{}", value("live_cmd_uid"));
    for (number, (script, said)) in [
        (
            "for i in 1 2 3; do echo requests_total $i; echo; sleep 0.2; done; exec sleep 98765.1",
            "it has printed no figures for more than 2s",
        ),
        ("exec sleep 98765.2", "it has printed no figures:"),
        ("exec yes", "more than 131072 bytes"),
        ("echo oh >&2; exit 3", "exit status 3; its stderr ends in: oh; it is started again"),
    ]
    .into_iter()
    .enumerate()
    {
        place.write("plan.toml", &told_by(script));
        let file = format!("{number}.db");
        let ran = place.run(&["tune", "plan.toml", HOST, "-o", &file, "--report", "live.html"]);
        ran.expect(0, &["endpoint exec:", said]);
        assert!(number == 0 || !ran.out.contains("live_cmd_per_s "), "{ran:#?}");
    }
    assert!(!is_running("98765.1") && !is_running("98765.2"));
    place.write("plan.toml", &told_by("x").replace("exec:sh", "exec:/no/such"));
    let missing = ["tune", "plan.toml", HOST, "-o", "missing.db", "--report", "live.html"];
    place.run(&missing).expect(1, &["cannot run `/no/such`"]);
    // Whoever is killed: the command goes with the run.
    place.write("plan.toml", &told_by("exec sleep 98765.3"));
    let killed = ["tune", "plan.toml", HOST, "-o", "killed.db", "--report", "live.html"];
    let mut latput = place.start(&killed);
    wait_until("the command", || is_running("98765.3") || has_ended(&mut latput));
    assert!(!has_ended(&mut latput));
    kill_pid(latput.id());
    let _status = latput.wait().unwrap();
    wait_until("the end of the command", || !is_running("98765.3"));
    drop(traffic);
}

#[needs("root")]
#[test]
fn run_waits_outside_its_hours() {
    isolate();
    let place = Place::new();
    let minutes = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let hour = |later: u64| (minutes.as_secs() / 3600 + later) % 24;
    let hours = format!("slice = \"200ms\"\nhours = \"{:02}:00-{:02}:00 UTC\"", hour(10), hour(12));
    let (lab, traffic) = lab_with(&place, &plan_toml("txqueuelen = [1000, 1234]", "", &hours));
    let before = lab.read_knobs();
    let checked = place.run(&["run", "plan.toml", "--check=plan"]);
    checked.expect(0, &["s to 60 s", "it waits, and its time stops", "no guard"]);
    let mut latput = place.start(&tune_words(&[]));
    let said = || std::fs::read_to_string(place.path("stderr")).unwrap();
    wait_until("that it waits", || {
        said().contains("outside of the hours") || has_ended(&mut latput)
    });
    assert_eq!(lab.read_knobs(), before);
    let pid = rustix::process::Pid::from_child(&latput);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!latput.wait().unwrap().success(), "{}", said());
    lab.run_on_b(&["restore"]).expect(0, &["nothing to restore"]);
    drop(traffic);
}

#[test]
fn impossible_live_plan_is_refused_first() {
    let place = Place::new();
    place.write("plan.toml", &plan_toml(HARMFUL, "", ""));
    place.write("ring.toml", &plan_toml("rx-ring = [256, 512]", "", ""));
    place.write("rr.toml", "schema = 1\n[[workload]]\nkind = \"tcp_rr\"\n");
    for (args, said) in [
        (&["tune", "plan.toml", "--on", "lab"][..], "is that of one host"),
        (&["tune", "plan.toml", "--on", "sim:server-10g"], "is that of one host"),
        (&["tune", "ring.toml", HOST], "disruptive = [\"rx-ring\"]"),
        (&["tune", "rr.toml", HOST, "--guard", "tcp_rtt_ns_p99 <= 1"], "--live"),
        (&["tune", "rr.toml", HOST, "--live", "--command", "ping {sut}"], "two workloads"),
        (&["tune", "plan.toml", HOST, "--live", "--guard", "tcp_rtt <= 1"], "no metric"),
        (&["tune", "plan.toml", HOST, "--live", "--guard", "latency_ns_p99 <= 1ms"], "has no"),
        (
            &[
                "tune",
                "plan.toml",
                HOST,
                "--live",
                "--endpoint",
                "http://app/",
                "--figure",
                "a=gauge b",
            ],
            "IP address",
        ),
        (&["run", "plan.toml", "--on", "sim:server-10g"], "is that of one host"),
    ] {
        place.run(args).expect(2, &[said]);
    }
}
