//! Stock programs at the far end, and the files of other programs.

use std::process::{Command, Stdio};

use latput_testkit::needs;

use crate::{
    Place, assert_no_capability, descendants_of, interrupt_pid, is_gone, json, kill_pid,
    needs_program, status_of, wait_until,
};

const IPERF3: &str = r#"{"start":{"connecting_to":{"host":"192.0.2.7"},"version":"iperf 3.12",
    "timestamp":{"timesecs":1795304069},"test_start":{"protocol":"TCP","num_streams":1,"blksize":131072,
    "reverse":0}},"end":{"streams":[{}],"sum_sent":{"seconds":2.0,"bytes":2000000000,"retransmits":0},
    "sum_received":{"seconds":2.0,"bytes":2000000000},
    "cpu_utilization_percent":{"host_total":53.7,"remote_total":51.8}}}"#;
const BOTH_WAYS: &str = r#"schema = 1
name = "both ways"
[[workload]]
kind = "tcp_bidir"
[method]
repetitions = { min = 2, max = 2 }
warmup = "5ms"
duration = "100ms"
"#;
const NETPERF: &str = "PROTOCOL=TCP\nDIRECTION=Send|Recv\nTRANSACTION_RATE=18983.7\nREQUEST_SIZE=1\n\
    RESPONSE_SIZE=1\nP99_LATENCY=550\nREMOTE_CPU_UTIL=25.0\nREMOTE_SD=26.3\nSD_UNITS=usec/Tran\n";

#[test]
fn unmeasurable_target_has_message_and_code() {
    let place = Place::new();
    let measure = |target: &str, rest: &[&str]| {
        place.run(&[&["measure", target, "--workload"], rest].concat())
    };
    measure("iperf3://127.0.0.1:1", &["tcp_stream"])
        .expect(1, &["127.0.0.1:1", "start `iperf3 -s`"]);
    measure("netperf://127.0.0.1:1", &["tcp_rr"]).expect(1, &["start `netserver`"]);
    measure("iperf3://127.0.0.1:1", &["tcp_rr"]).expect(2, &["iperf3", "no tcp_rr"]);
    measure("netperf://127.0.0.1:1", &["tcp_bidir"]).expect(2, &["tcp_bidir"]);
    measure("iperf3://[::1", &["tcp_stream"]).expect(2, &["`]` is missing"]);
    measure("iperf3://127.0.0.1:1", &["tcp_stream", "probe_hz=10"])
        .expect(2, &["leave out probe_hz"]);
}

#[needs("iperf3")]
#[test]
fn unmodified_iperf3_server_is_measured() {
    let place = Place::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
    let mut server = command.stdout(Stdio::null()).spawn().unwrap();
    let url = format!("iperf3://127.0.0.1:{port}");
    let args = ["measure", &url, "--workload", "tcp_maerts", "--repetitions", "2", "--duration"];
    let args = [&args[..], &["1s", "--warmup", "0", "-v", "-o", "stock.db"]].concat();
    let mut ran = place.run(&args);
    for _ in 0..50 {
        if ran.code == Some(0) || !ran.err.contains("refuses the connection") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100)); // it does not listen yet
        ran = place.run(&args);
    }
    let ended = server.kill().and_then(|()| server.wait());
    ran.expect(
        0,
        &["goodput at the receiver", "as iperf3 reports it", "not comparable", "is on this host"],
    );
    ended.unwrap();
    place.run(&["report", "stock.db", "--json"]).expect(0, &["\"method\":\"its own process only"]);
}

/// An iperf3 server; ended with the test.
struct IperfServer(std::process::Child, u16);

impl IperfServer {
    fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-B", "127.0.0.1", "-p", &port.to_string()]);
        let server = Self(command.stdout(Stdio::null()).spawn().unwrap(), port);
        let listens = format!("0100007F:{port:04X} 00000000:0000 0A");
        wait_until("iperf3 to listen", || {
            std::fs::read_to_string("/proc/net/tcp").unwrap().contains(&listens)
        });
        server
    }

    /// The inodes of the sockets at the other ends of its connections.
    fn client_sockets(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let to_it = format!("0100007F:{:04X}", self.1);
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.get(2) == Some(&to_it.as_str()) && row[3] == "01");
        rows.filter(|row| row[9] != "0").map(|row| format!("socket:[{}]", row[9])).collect()
    }
}

impl Drop for IperfServer {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Whether a process has one of these sockets open.
fn has_socket(pid: u32, sockets: &[String]) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.into_iter().any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

#[needs("iperf3")]
#[test]
fn peer_client_has_no_rights() {
    let server = IperfServer::start();
    let place = Place::new();
    let url = format!("iperf3://127.0.0.1:{}", server.1);
    let args = ["measure", &url, "--workload", "tcp_stream", "--duration", "60s", "-o", "long.db"];
    let begin = || {
        let run = place.start(&args);
        let mut ends = (Vec::new(), 0);
        wait_until("the traffic", || {
            let sockets = server.client_sockets();
            let all = [vec![run.id()], descendants_of(run.id())].concat();
            let holders: Vec<u32> =
                all.into_iter().filter(|&pid| has_socket(pid, &sockets)).collect();
            let has_one = sockets.len() >= 2 && holders.len() == 1;
            ends = (descendants_of(run.id()), holders.first().copied().unwrap_or(0));
            has_one
        });
        (run, ends)
    };
    let all_gone = |pids: &[u32]| {
        wait_until("every process to end", || {
            server.client_sockets().is_empty() && pids.iter().all(|pid| is_gone(*pid))
        });
    };
    let said = || std::fs::read_to_string(place.path("stderr")).unwrap();

    let (mut run, (others, speaker)) = begin();
    assert_ne!(speaker, run.id());
    assert_no_capability(speaker);
    assert!(!status_of(speaker, "Uid:").split(' ').any(|user| user == "0"));
    kill_pid(speaker);
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert!(said().contains("host `generator`"), "{}", said());
    all_gone(&others);

    let (mut run, (others, _)) = begin();
    interrupt_pid(run.id());
    assert_eq!(run.wait().unwrap().code(), Some(1));
    assert!(said().contains("interrupted"), "{}", said());
    all_gone(&others);

    let (mut run, (others, _)) = begin();
    kill_pid(run.id());
    run.wait().unwrap();
    all_gone(&others);
}

#[test]
fn files_of_other_programs_become_results() {
    let place = Place::new();
    place.write("a.json", IPERF3);
    place.write("b.json", &IPERF3.replace("1795304069", "1795304169"));
    place
        .run(&["import", "iperf3", "a.json", "b.json", "-o", "old.db"])
        .expect(0, &["8.00", "Gbit/s", "2 trials", "as iperf3 reports it", "run 1 of old.db"]);
    // Sorted by the time of the tests, which was before this one.
    let history = ["history", "old.db", "--metric", "throughput_bps"];
    place.run(&history).expect(0, &["2026-11-21 23:34:29"]);
    assert!(!place.run(&["report", "old.db"]).out.contains("simulated host"));
    place.write("rr.txt", NETPERF);
    place
        .run(&["import", "netperf", "rr.txt", "-o", "old.db"])
        .expect(0, &["19.0", "550", "26.3", "run 2 of old.db"]);
    place.run(&["report", "old.db", "--run", "1"]).expect(0, &["8.00", "Gbit/s"]);
    place.run(&["report", "old.db", "--run", "7"]).expect(2, &["no run 7: its newest is 2"]);
    let csv = place.run(&["report", "old.db", "--run", "2", "--format", "csv"]);
    csv.expect(0, &["550000"]);
    assert!(csv.out.contains(",,"), "what was not told is empty: {}", csv.out);
}

#[test]
fn bad_import_is_named_and_keeps_nothing() {
    let place = Place::new();
    place.write("good.json", IPERF3);
    place.write("cut.json", &IPERF3[..200]);
    place.write("empty.txt", "\n");
    let import = |program: &str, file: &str| {
        place.run(&["import", program, "good.json", file, "-o", "never.db"])
    };
    place
        .run(&["import", "iperf3", "missing", "-o", "never.db"])
        .expect(2, &["missing: cannot read: No such file"]);
    import("netperf", "good.json").expect(2, &["good.json: no test of netperf is in it"]);
    import("flent", "good.json").expect(2, &["good.json: version: there is none"]);
    assert!(!place.path("never.db").exists());
}

/// Each error names what the file is and the command that reads it.
#[test]
fn wrong_file_is_named_with_its_command() {
    let place = Place::new();
    place.write("good.json", IPERF3);
    place.write("text.txt", "[ ID] Interval           Transfer     Bitrate\n");
    place.run(&["import", "iperf3", "good.json", "-o", "kept.db"]).expect(0, &[]);
    place.run(&["report", "kept.db", "--share", "-o", "out.html"]).expect(0, &[]);
    place.run(&["report", "kept.db", "-o", "all.flent"]).expect(0, &[]);
    let files = std::fs::read_dir(place.path("all.flent")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let data = names.into_iter().find(|name| name.ends_with(".flent.gz")).unwrap();
    let data = format!("all.flent/{data}");
    let of_data = format!("`latput import flent {data} -o RESULTS`");
    for (args, said) in [
        (&["history", &data][..], of_data.as_str()),
        (
            &["import", "iperf3", "text.txt", "-o", "x.db"][..],
            "iperf3's text output: latput reads its JSON: run `iperf3 --json`",
        ),
        (&["import", "good.json", "-o", "x.db"], "`latput import iperf3 good.json -o RESULTS`"),
        (
            &["import", "netperf", "good.json", "-o", "x.db"],
            "`latput import iperf3 good.json -o RESULTS`",
        ),
        (&["import", "kept.db", "-o", "x.db"], "a results file: `latput report kept.db`"),
        (
            &["import", "all.flent", "-o", "x.db"],
            "`latput import flent all.flent/*.flent.gz -o RESULTS`",
        ),
        (
            &["import", "flent", "all.flent/", "-o", "x.db"],
            "`latput import flent all.flent/*.flent.gz -o RESULTS`",
        ),
        (&["import", "iperf3", ".", "-o", "x.db"], "`latput import iperf3 ./* -o RESULTS`"),
        (&["report", "out.html"], "a report of latput: `latput import out.html -o RESULTS`"),
        (
            &["report", "--compare", "kept.db", "good.json"],
            "`latput import iperf3 good.json -o RESULTS`",
        ),
    ] {
        place.run(args).expect(2, &[said]);
    }
    assert!(!place.path("never.db").exists());
}

#[test]
fn import_of_partly_broken_files_is_partial() {
    let place = Place::new();
    place.write("good.json", IPERF3);
    place.write("cut.json", &IPERF3[..200]);
    place.write("empty.txt", "\n");
    let files = ["good.json", "cut.json", "missing", "empty.txt"];
    place.run(&[&["import", "iperf3"], &files[..], &["-o", "part.db"]].concat()).expect(
        6,
        &[
            "not imported: missing: cannot read: No such file",
            "not imported: cut.json: test 1: it ends too early",
            "not imported: empty.txt: it is empty",
            "run 1 of part.db",
        ],
    );
    place
        .run(&["import", "iperf3", "good.json", "-o", "part.db"])
        .expect(0, &["1 tests are in part.db already"]);
}

#[test]
fn tests_imported_before_are_not_added_again() {
    let place = Place::new();
    // Figures with all their digits, some of which JSON gives back with another last one.
    let files: Vec<String> = (1..=40).map(|number| format!("{number}.json")).collect();
    for (number, file) in (1..).zip(&files) {
        let text = IPERF3.replace("1795304069", &(1_795_304_069 + number).to_string());
        let share = 30.0 * f64::from(number).sin().abs();
        let text = text.replace("53.7", &share.to_string());
        place.write(file, &text.replace("51.8", &(share * 1.7).to_string()));
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let import = [&["import", "iperf3", "-o", "many.db"], files.as_slice()].concat();
    place.run(&import).expect(0, &["run 1 of many.db"]);
    place.run(&import).expect(0, &["40 tests are in many.db already"]);
}

/// A few figures could be of two tests; the record of a file is of one.
#[test]
fn netperf_record_is_imported_once() {
    let place = Place::new();
    let few = "PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=941.4\nTHROUGHPUT_UNITS=10^6bits/s\nSEND_SIZE=16384\n";
    place.write("one.txt", few);
    place.write("copy.txt", few);
    place.write("other.txt", &format!("{few}LSS_SIZE=4\n"));
    let import =
        |files: &[&str]| place.run(&[&["import", "netperf", "-o", "few.db"], files].concat());
    import(&["one.txt", "copy.txt"])
        .expect(0, &["copy.txt: test 1 is there twice; it counts once"]);
    import(&["copy.txt"]).expect(0, &["1 tests are in few.db already"]);
    import(&["other.txt"]).expect(0, &["run 2 of few.db"]);
    import(&["other.txt", "one.txt"]).expect(0, &["2 tests are in few.db already"]);
    let udp = NETPERF.replace("PROTOCOL=TCP", "PROTOCOL=UDP");
    place.write("udp.txt", &udp);
    place.run(&["import", "netperf", "udp.txt", "-o", "udp.db"]).expect(0, &["request_bytes=1"]);
}

/// Both ends write of one test; iperf3's cookie tells it.
#[test]
fn other_end_of_test_counts_once() {
    let place = Place::new();
    let cookie = format!("\"cookie\":\"{}\",\"version\"", "c".repeat(36));
    let client = IPERF3.replace("\"version\"", &cookie);
    place.write("client.json", &client);
    place.write(
        "server.json",
        &client.replace("\"connecting_to\"", "\"accepted_connection\"").replace("4069", "4070"),
    );
    let import = |file: &str| place.run(&["import", "iperf3", file, "-o", "ends.db"]);
    import("client.json").expect(0, &["8.00", "run 1 of ends.db"]);
    import("client.json").expect(0, &["1 tests are in ends.db already"]);
    import("server.json")
        .expect(0, &["1 tests are in ends.db already", "1 of them have other figures in ends.db"]);
}

#[test]
fn flent_file_survives_a_round_trip() {
    let place = Place::new();
    place.write("a.json", IPERF3);
    place.run(&["import", "iperf3", "a.json", "-o", "old.db"]).expect(0, &[]);
    place.run(&["report", "old.db", "--format", "flent"]).expect(2, &["needs -o", ".flent.gz"]);
    place.run(&["report", "old.db", "-o", "up.flent.gz"]).expect(0, &["up.flent.gz: tcp_stream"]);
    place.run(&["import", "flent", "up.flent.gz", "-o", "back.db"]).expect(0, &["8.00", "Gbit/s"]);
    place.write("both.toml", BOTH_WAYS);
    place
        .run(&["run", "both.toml", "--on", "sim:server-10g", "-o", "both.db"])
        .expect(0, &["goodput towards the SUT"]);
    place.run(&["report", "both.db", "-o", "both.flent.gz"]).expect(0, &["tcp_bidir"]);
    place
        .run(&["import", "flent", "both.flent.gz", "-o", "2.db"])
        .expect(0, &["goodput away from the SUT"]);
    let shown = |file: &str| {
        let mut flent = Command::new("flent");
        let output = flent.args(["-i", file, "-f", "summary"]).current_dir(place.path("")).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    if needs_program("flent") {
        return;
    }
    let (up, both) = (shown("up.flent.gz"), shown("both.flent.gz"));
    let series = up.lines().find(|line| line.contains("TCP upload::1")).unwrap_or_default();
    assert!(series.contains("8000.00") && series.contains("Mbits/s"), "{up}");
    assert!(up.contains("Summary of tcp_nup test run"), "{up}");
    assert!(both.contains("Summary of tcp_bidirectional test run"), "{both}");
    for name in ["TCP upload", "TCP download"] {
        let row = both.lines().find(|line| line.contains(name)).unwrap_or_default();
        assert!(row.contains("Mbits/s"), "{name}: {both}");
    }
}

#[test]
fn flent_folder_has_manifest_and_every_setting() {
    let place = Place::new();
    let plan = BOTH_WAYS.replace(
        "[[workload]]",
        "[factors]\nrx-usecs = [0, 50]\n[[workload]]\nkind = \"tcp_rr\"\n[[workload]]",
    );
    place.write("plan.toml", &plan);
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    let remedy = ["the run has 4 such pairs", "`-o all.flent` makes a folder"];
    place.run(&["report", "kept.db", "-o", "all.flent.gz"]).expect(2, &remedy);
    assert!(!place.path("all.flent").exists() && !place.path("all.flent.gz").exists());
    for _again in 0..2 {
        place
            .run(&["report", "kept.db", "-o", "all.flent"])
            .expect(0, &["all.flent", "manifest.json"]);
    }
    let manifest = std::fs::read_to_string(place.path("all.flent/manifest.json")).unwrap();
    json::check_schema(include_str!("../../../../docs/schema/flent-manifest.json"), &manifest);
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let files = manifest["files"].as_array().unwrap();
    assert_eq!(files.len(), 4, "{manifest}");
    for file in files {
        let text = |key: &str| file[key].as_str().unwrap();
        let path = place.path("all.flent").join(text("file"));
        assert!(path.is_file(), "{file}");
        if needs_program("flent") {
            continue;
        }
        let output = Command::new("flent").arg("-i").arg(&path).args(["-f", "summary"]).output();
        let said = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        let title = format!("Title: '{}, {}'", text("workload"), text("setting"));
        for words in [format!("Summary of {} test run", text("flent_test")), title] {
            assert!(said.contains(&words), "{file}: {said}");
        }
    }
}

/// Every setting, workload and run of a file comes back from flent's files as it was.
#[test]
fn flent_files_of_several_settings_come_back() {
    let place = Place::new();
    let plan = BOTH_WAYS.replace(
        "[[workload]]",
        "[factors]\nrx-usecs = [0, 50]\n[[workload]]\nkind = \"tcp_rr\"\n[[workload]]\nkind = \"udp_rr\"\n[[workload]]",
    );
    place.write("plan.toml", &plan);
    let cells = |file: &str| -> Vec<(String, String, u64, [Option<f64>; 3])> {
        let said = place.run(&["report", file, "--json"]);
        let document: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let cells = document["cells"].as_array().unwrap().iter().map(|cell| {
            let figure = |name: &str| cell["metrics"][name]["value"].as_f64();
            let figures = ["latency_ns_p50", "latency_ns_p99", "throughput_bps"].map(figure);
            let name = |list: &str, key: &str, name: &str| {
                let idx = usize::try_from(cell[key].as_u64().unwrap()).unwrap();
                document[list][idx][name].as_str().unwrap().to_owned()
            };
            let workload = name("workloads", "workload", "name");
            let setting = name("settings", "setting", "label");
            (workload, setting, cell["runs_count"].as_u64().unwrap(), figures)
        });
        cells.collect()
    };
    place.run(&["run", "plan.toml", "--on", "sim:server-10g", "-o", "kept.db"]).expect(0, &[]);
    place.run(&["report", "kept.db", "-o", "all.flent"]).expect(0, &[]);
    let folder = std::fs::read_dir(place.path("all.flent")).unwrap();
    let mut files: Vec<String> = folder
        .map(|entry| format!("all.flent/{}", entry.unwrap().file_name().to_str().unwrap()))
        .filter(|name| name.ends_with(".flent.gz"))
        .collect();
    files.sort();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let import = [&["import", "flent"], &files[..], &["-o", "back.db"]].concat();
    place.run(&import).expect(0, &[]);
    let (before, after) = (cells("kept.db"), cells("back.db"));
    assert_eq!(before.len(), 6, "{before:?}");
    for (workload, setting, trials, figures) in before {
        let is_same = |cell: &&(String, String, u64, [Option<f64>; 3])| {
            cell.0 == workload && cell.1 == setting && cell.2 == trials
        };
        let back =
            after.iter().find(is_same).unwrap_or_else(|| panic!("{workload} {setting}: {after:?}"));
        for (was, is) in figures.into_iter().zip(back.3).filter(|(was, _)| was.is_some()) {
            let (was, is) = (was.unwrap(), is.unwrap());
            assert!((was - is).abs() <= 0.02 * was, "{workload} {setting}: {was} is {is}");
        }
    }
    place.run(&import).expect(0, &["are in back.db already"]);
}
