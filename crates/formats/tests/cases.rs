//! Files and outputs of public reports on which a reader was wrong once, each with what is right.

use std::path::Path;

use latput_formats::program::read;
use latput_formats::{ImportError, ImportFormat, ImportOutcome, import_files};
use latput_trial::Metric;
use latput_trial::figures::{Figures, Output, Parser, ProgramFigures, Text};

fn read_case(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    std::fs::read(folder.join(name)).expect("a case of this folder")
}

fn parse(parser: Parser, name: &str) -> Result<ProgramFigures, String> {
    let text = String::from_utf8(read_case(name)).expect("a case in UTF-8");
    parse_text(parser, &text)
}

fn parse_text(parser: Parser, text: &str) -> Result<ProgramFigures, String> {
    let figures = Figures { parser: Some(parser), ..Figures::default() };
    let output = Output { stdout: Text::from_bytes(text.as_bytes()), ..Output::default() };
    read(&figures, &output).map_err(|error| error.to_string())
}

fn import_cases(format: ImportFormat, names: &[&str]) -> Result<ImportOutcome, ImportError> {
    let files: Vec<(String, Vec<u8>)> =
        names.iter().map(|name| ((*name).to_owned(), read_case(name))).collect();
    import_files(format, &files)
}

/// The value of a metric in the only row.
fn find_value(imported: &ImportOutcome, metric: Metric) -> Option<f64> {
    let [row] = &imported.results.rows[..] else { panic!("{} rows", imported.results.rows.len()) };
    metric.value(&imported.results.workloads[row.workload].traffic, &row.observation)
}

#[track_caller]
fn check_noted(imported: &ImportOutcome, part: &str) {
    let notes = &imported.results.notes;
    assert!(notes.iter().any(|note| note.contains(part)), "{notes:?}");
}

#[test]
fn unanswered_requests_have_no_figures() {
    for (parser, name) in [
        (Parser::Wrk, "wrk-no-request.txt"),
        (Parser::Hey, "hey_fail.txt"),
        (Parser::Oha, "oha_null.txt"),
        (Parser::Memtier, "memtier_nan.txt"),
    ] {
        let error = parse(parser, name).unwrap_err();
        assert!(error.contains("no request was answered;"), "{parser}: {error}");
    }
}

#[test]
fn repeated_test_counts_once() {
    for names in [&["iperf3-twice.json"][..], &["iperf3-twice.json", "iperf3-twice.json"]] {
        let imported = import_cases(ImportFormat::Iperf3, names).unwrap();
        assert_eq!(imported.results.rows.len(), 1);
        check_noted(&imported, "it counts once");
    }
    let figures = parse(Parser::Iperf3, "iperf3-twice.json").unwrap();
    assert!(figures.metrics.contains_key(&Metric::ThroughputBps));
}

#[test]
fn uneven_intervals_are_weighted() {
    let imported = import_cases(ImportFormat::Flent, &["flent-uneven.flent"]).unwrap();
    let mbps = find_value(&imported, Metric::ThroughputBps).unwrap() / 1e6;
    assert!((mbps - 306.7).abs() < 0.1, "{mbps}");
}

#[test]
fn unknown_receiver_has_no_figures() {
    let reverse = import_cases(ImportFormat::Iperf3, &["iperf3-server-reverse.json"]).unwrap();
    assert_eq!(find_value(&reverse, Metric::ThroughputBps), None);
    assert_eq!(reverse.results.rows[0].observation.programs.len(), 1);
    let flood = import_cases(ImportFormat::Flent, &["flent-udp-flood.flent"]).unwrap();
    assert_eq!(find_value(&flood, Metric::ThroughputBps), None);
    check_noted(&flood, "the sender's rate (950 Mbit/s)");
    let nothing = import_cases(ImportFormat::Iperf3, &["iperf3-udp-nothing.json"]).unwrap_err();
    assert!(nothing.to_string().contains("no data arrived: 856 datagrams were sent"), "{nothing}");
}

#[test]
fn last_document_of_series_is_read() {
    let fio = parse(Parser::Fio, "fio-status-interval.txt").unwrap();
    assert!((fio.metrics[&Metric::LatencyNsP99] - 180e3).abs() < 1.0);
    assert!((fio.metrics[&Metric::TransactionsPerS] - 2197.0).abs() < 1.0);
}

#[test]
fn interrupted_test_leaves_the_others() {
    let imported = import_cases(ImportFormat::Iperf3, &["iperf3-one-interrupted.json"]).unwrap();
    assert_eq!((imported.results.rows.len(), imported.left_out.len()), (2, 1));
    assert!(imported.left_out[0].to_string().contains("test 2: the test failed"));
}

#[test]
fn text_around_documents_is_noted() {
    for name in ["iperf3-text-behind.json", "iperf3-text-before.json"] {
        let imported = import_cases(ImportFormat::Iperf3, &[name]).unwrap();
        assert!(find_value(&imported, Metric::ThroughputBps).is_some(), "{name}");
        check_noted(&imported, "outside of the JSON");
    }
}

#[test]
fn byte_order_marks_are_read() {
    for name in ["iperf3-bom.json", "iperf3-utf16.json"] {
        let imported = import_cases(ImportFormat::Iperf3, &[name]).unwrap();
        assert!(find_value(&imported, Metric::ThroughputBps).is_some(), "{name}");
    }
}

#[test]
fn nan_is_absent_with_its_version() {
    // Nothing came: no jitter either.
    let error = import_cases(ImportFormat::Iperf3, &["iperf3-nan.json"]).unwrap_err().to_string();
    let reason = "no data arrived: 0 datagrams were sent; 2 numbers are `nan` or `inf`";
    assert!(error.contains(reason) && error.contains("iperf 3.20 printed it"), "{error}");
    let came = String::from_utf8(read_case("iperf3-nan.json")).unwrap();
    let came = came
        .replace("\"packets\":\t0", "\"packets\": 10")
        .replace("\"packets\": 0", "\"packets\": 10");
    let imported =
        import_files(ImportFormat::Iperf3, &[("came".to_owned(), came.into_bytes())]).unwrap();
    assert_eq!(find_value(&imported, Metric::LossRatio), None);
    check_noted(&imported, "iperf 3.20 printed it");
}

#[test]
fn netperf_crr_is_imported() {
    for name in ["netperf-crr-keyval.txt", "netperf-crr-classic.txt"] {
        let imported = import_cases(ImportFormat::Netperf, &[name]).unwrap();
        assert_eq!(imported.results.workloads[0].traffic.kind(), "tcp_crr", "{name}");
        assert_eq!(find_value(&imported, Metric::TransactionsPerS), Some(4200.1));
    }
}

#[test]
fn netperf_details_are_no_tests() {
    let imported = import_cases(ImportFormat::Netperf, &["netperf-details.txt"]).unwrap();
    assert!(imported.left_out.is_empty(), "{:?}", imported.left_out);
    let kinds = imported.results.workloads.iter().map(|load| load.traffic.kind());
    assert_eq!(kinds.collect::<Vec<_>>(), ["tcp_rr", "tcp_stream", "tcp_crr"]);
}

#[test]
fn netperf_in_bytes_is_read() {
    let imported = import_cases(ImportFormat::Netperf, &["netperf-bytes.txt"]).unwrap();
    let bits = find_value(&imported, Metric::ThroughputBps).unwrap();
    assert!((bits - 492_049_464.55 * 8.0).abs() < 1.0, "{bits}");
}

#[test]
fn cut_netperf_leaves_the_others() {
    let whole = read_case("netperf-rr-all.txt");
    let file = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
    let import = |files: &[(String, Vec<u8>)]| import_files(ImportFormat::Netperf, files);
    import(&[file("whole", &whole)]).unwrap();
    let rate = whole.windows(6).position(|part| part == b"BURST_").unwrap();
    // Within the name of a selector, its value, and the last line.
    for end in [rate + 3, rate + 12, whole.len() - 1] {
        let part = import(&[file("whole", &whole), file("cut", &whole[..end])]).unwrap();
        let said = "cut: line 2: the last line has no end: the file may be cut";
        assert_eq!(part.left_out[0].to_string(), said);
        assert_eq!((part.results.rows.len(), part.left_out.len()), (1, 1));
    }
}

const BOTH_ENDS: [&str; 2] = ["iperf3-reverse-of-server.json", "iperf3-reverse-of-client.json"];

#[test]
fn client_tells_more_in_any_order() {
    let [server, client] = BOTH_ENDS;
    for names in [&[server, client][..], &[client, server], &[server, client, client, server]] {
        let imported = import_cases(ImportFormat::Iperf3, names).unwrap();
        let bits = find_value(&imported, Metric::ThroughputBps).unwrap();
        assert!((bits / 1e9 - 11.1).abs() < 0.01, "{names:?}: {bits}");
        assert!(imported.left_out.is_empty());
        check_noted(&imported, "it counts once");
    }
    // A later import knows the document of the other end.
    let [server, client] =
        BOTH_ENDS.map(|name| import_cases(ImportFormat::Iperf3, &[name]).unwrap());
    let known = latput_formats::known_records(&server.results.notes);
    assert!(matches!(client.records[..], [Some(record)] if known.contains(&record)));
}

#[test]
fn contradicting_documents_of_test_are_refused() {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let client = String::from_utf8(read_case(BOTH_ENDS[1])).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&client).unwrap();
    document["end"]["streams"] = serde_json::json!([]);
    for sum in ["sum_sent", "sum_received"] {
        for key in ["bytes", "bits_per_second"] {
            let half = document["end"][sum][key].as_f64().unwrap() / 2.0;
            document["end"][sum][key] = half.round().into();
        }
    }
    let half = document.to_string();
    let other = client.replace("g3s7ozsnmuljrkwng7ijwwgldcu4p4ytsaeo", &"x".repeat(36));
    let import = |files: &[(String, Vec<u8>)]| import_files(ImportFormat::Iperf3, files);
    import(&[file("half", &half)]).unwrap();
    let [a, b] = [file("a", &client), file("b", &half)];
    for files in [[a.clone(), b.clone()], [b, a]] {
        let all = [&files[..], &[file("other", &other)]].concat();
        let imported = import(&all).unwrap();
        assert_eq!((imported.results.rows.len(), imported.left_out.len()), (1, 1));
        let said = "is the same test with other figures, and which are right cannot be told";
        assert!(imported.left_out[0].to_string().contains(said), "{:?}", imported.left_out);
        assert!(import(&files).unwrap_err().to_string().contains(said));
    }
    // A program that saves JSON again may round the last digits.
    document = serde_json::from_str(&client).unwrap();
    let share = &mut document["end"]["cpu_utilization_percent"]["host_total"];
    *share = ((share.as_f64().unwrap() * 1e9).round() / 1e9).into();
    let twice = import(&[file("a", &client), file("b", &document.to_string())]).unwrap();
    assert_eq!((twice.results.rows.len(), twice.left_out.len()), (1, 0));
}

#[test]
fn interleaved_outputs_are_refused() {
    let error = import_cases(ImportFormat::Netperf, &["netperf-interleaved.txt"]).unwrap_err();
    let said = "line 4: `PROTOCOL` appears again before the first test ended";
    assert!(error.to_string().contains(said), "{error}");
}

#[test]
fn machine_readable_summary_is_read() {
    let k6 = parse(Parser::K6, "k6-machine-readable.json").unwrap();
    assert!((k6.metrics[&Metric::TransactionsPerS] - 100.0).abs() < 1e-6);
    assert!((k6.metrics[&Metric::LatencyNsMean] - 4.2e6).abs() < 1.0);
    assert_eq!((k6.errors, k6.transactions), (Some(10), Some(1000)));
}

#[test]
fn warnings_before_redis_figures_are_passed_over() {
    for name in ["redis_warn.txt", "redis_comma.txt"] {
        let redis = parse(Parser::RedisBenchmark, name).unwrap();
        let rate = redis.metrics[&Metric::TransactionsPerS];
        assert!((rate - 19_920.32).abs() < 1e-6, "{name}: {rate}");
    }
    assert!(parse(Parser::RedisBenchmark, "redis60.txt").is_err());
}

#[test]
fn failed_requests_have_no_share_in_figures() {
    // hey and oha print the rate of all that was tried; k6 counts what got no answer with a time of 0.
    let text = include_str!("program/hey.txt");
    let failed = "Error distribution:\n  [2000]\tdial tcp: connection refused\n";
    let all = parse_text(Parser::Hey, text).unwrap();
    let half = parse_text(Parser::Hey, &[text, failed].concat());
    let half = half.unwrap_err(); // half of the printed rate, and the count of the whole one
    assert!(half.contains("do not give"), "{half}");
    assert!(all.metrics.contains_key(&Metric::TransactionsPerS));
    let k6 = include_str!("program/k6.json");
    let mut document: serde_json::Value = serde_json::from_str(k6).unwrap();
    document["metrics"]["http_req_duration"]["min"] = 0.into();
    document["metrics"]["http_req_failed"]["passes"] = 50.into();
    let answered = &mut document["metrics"]["http_req_duration{expected_response:true}"];
    answered["avg"] = 0.2.into();
    let part = parse_text(Parser::K6, &document.to_string()).unwrap();
    assert_eq!((part.transactions, part.errors), (Some(150), Some(50)));
    assert!((part.metrics[&Metric::TransactionsPerS] - 8_954.752_887_325_747 * 0.75).abs() < 1e-6);
    assert!((part.metrics[&Metric::LatencyNsMean] - 0.2e6).abs() < 1e-6);
    document["metrics"]["http_req_failed"]["passes"] = 200.into();
    let none = parse_text(Parser::K6, &document.to_string()).unwrap_err();
    assert!(none.contains("no request was answered"), "{none}");
}

#[test]
fn own_figures_keep_the_rules() {
    let own = [
        "transactions_per_s=/rate: (.*)/",
        "latency_ns_p99=/p99: (.*)/",
        "latency_ns_max=/max: (.*)/",
    ];
    let figures = Figures::of_options(&[], &own.map(str::to_owned)).unwrap();
    let problem = |text: &str| {
        let output = Output { stdout: Text::from_bytes(text.as_bytes()), ..Output::default() };
        read(&figures, &output).map_err(|error| error.to_string()).unwrap_err()
    };
    assert!(problem("rate: 0\np99: 0\nmax: 0\n").contains("no request was answered"));
    assert!(problem("rate: 9\np99: 7\nmax: 5\n").contains("`latency_ns_p99` (7) is above"));
}

#[test]
fn same_netperf_result_counts_once() {
    let twice = &["netperf-crr-keyval.txt", "netperf-crr-keyval.txt"];
    let imported = import_cases(ImportFormat::Netperf, twice).unwrap();
    assert_eq!(imported.results.rows.len(), 1);
    check_noted(&imported, "it counts once");
}

/// fio's document of jobs, each with its name, start in milliseconds and options. Each does 100 operations in 10 s.
fn fio_document(elapsed: u64, jobs: &[(&str, u64, &str)]) -> serde_json::Value {
    let job = |(name, start, option): &(&str, u64, &str)| {
        let done = 100 * elapsed;
        serde_json::json!({
            "jobname": name, "error": 0, "elapsed": elapsed, "job_start": start,
            "job options": { "name": name, "rw": "read", *option: "1" },
            "read": { "io_bytes": done * 4096, "bw_bytes": 409_600, "iops": 100.0, "total_ios": done,
                "runtime": elapsed * 1000,
                "clat_ns": { "min": 1000, "max": 9000, "mean": 5000.0, "N": done } }
        })
    };
    let jobs: Vec<_> = jobs.iter().map(job).collect();
    serde_json::json!({ "fio version": "fio-3.36", "timestamp": 1000 + elapsed, "jobs": jobs })
}

#[test]
fn jobs_one_after_another_are_refused() {
    let read =
        |jobs: &[(&str, u64, &str)]| parse_text(Parser::Fio, &fio_document(10, jobs).to_string());
    let together = read(&[("a", 1_000_000, "bs"), ("b", 1_000_020, "bs")]).unwrap();
    assert!((together.metrics[&Metric::TransactionsPerS] - 200.0).abs() < 1e-9);
    let said = "job `b` did not run together with job `a`, so their rates have no sum";
    for jobs in [
        [("a", 0, "bs"), ("b", 0, "stonewall")],
        [("a", 0, "bs"), ("b", 0, "wait_for")],
        [("a", 1_000_000, "bs"), ("b", 1_010_000, "bs")],
    ] {
        let error = read(&jobs).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    read(&[("a", 0, "stonewall"), ("a", 0, "stonewall")]).expect("clones of one job");
    // fio 3.33 prints neither a start nor `stonewall`; 20 s of two groups took 21 s or 11 s.
    let mut groups = fio_document(10, &[("a", 0, "bs"), ("b", 0, "bs")]);
    groups["jobs"][1]["groupid"] = 1.into();
    let took = |groups: &mut serde_json::Value, elapsed: u64| {
        groups["jobs"][0]["elapsed"] = elapsed.into();
        parse_text(Parser::Fio, &groups.to_string())
    };
    assert!(took(&mut groups, 21).unwrap_err().contains(said));
    took(&mut groups, 11).expect("`new_group` alone");
}

#[test]
fn different_runs_are_no_series() {
    let first = fio_document(10, &[("a", 0, "bs")]);
    let both = |after: &serde_json::Value| parse_text(Parser::Fio, &format!("{first}\n{after}\n"));
    let series = both(&fio_document(20, &[("a", 0, "bs")])).unwrap();
    assert_eq!(series.transactions, Some(2000), "the last document");
    let mut later = fio_document(20, &[("a", 0, "bs")]);
    later["timestamp"] = 1_120.into();
    let mut shorter = fio_document(10, &[("a", 0, "bs")]);
    shorter["jobs"][0]["elapsed"] = 9.into();
    let mut same_count = first.clone();
    same_count["jobs"][0]["read"]["clat_ns"]["mean"] = 4000.0.into();
    for other in [later, shorter, same_count, fio_document(20, &[("a", 0, "iodepth")])] {
        let error = both(&other).unwrap_err();
        assert!(error.contains("several results that are not a series of one run"), "{error}");
    }
}

#[test]
fn too_many_documents_are_named() {
    let many = format!("{}\n", fio_document(1, &[("a", 0, "bs")])).repeat(10_001);
    let error = parse_text(Parser::Fio, &many).unwrap_err();
    assert!(error.contains("it has 10000 JSON documents or more"), "{error}");
}

#[test]
fn undone_transactions_count_as_errors() {
    let text = include_str!("program/pgbench-rate.txt");
    assert!(text.contains("processed: 200/200"));
    let part = parse_text(Parser::Pgbench, &text.replace("200/200", "150/200")).unwrap();
    assert_eq!((part.transactions, part.errors), (Some(150), Some(50)));
}

#[test]
fn missing_lines_of_replies_are_refused() {
    let said = "it has the times of 19 replies and received 20: lines of it are missing";
    let ping = include_str!("program/ping.txt");
    let fping = include_str!("program/fping.txt");
    for (parser, text, line) in
        [(Parser::Ping, ping, "icmp_seq=7 "), (Parser::Fping, fping, "[7], ")]
    {
        let lines = text.lines().filter(|it| !it.contains(line));
        let cut: Vec<&str> = lines.collect();
        assert_eq!(cut.len() + 1, text.lines().count());
        let error = parse_text(parser, &cut.join("\n")).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let again = ping.lines().find(|line| line.contains("icmp_seq=7 ")).unwrap();
    parse_text(Parser::Ping, &ping.replace(again, &[again, again].join("\n"))).unwrap();
}

#[test]
fn list_of_replies_counts_once() {
    let line = |number: u8| {
        format!("192.0.2.1 : [{number}], 64 bytes, 0.05{number} ms (0.050 avg, 0% loss)\n")
    };
    let text = [line(0), line(1), line(2), "\n192.0.2.1 : 0.050 0.051 0.052\n".to_owned()].concat();
    let read = parse_text(Parser::Fping, &text).unwrap();
    assert_eq!(read.latency.map(|latency| latency.count()), Some(3));
}

#[test]
fn latency_beside_clients_is_compared() {
    let text = include_str!("program/pgbench.txt");
    let said = "2 clients with a latency of 21300000 ns do not give its 9394.31 /s";
    let error = parse_text(Parser::Pgbench, &text.replace("0.213 ms", "21.3 ms")).unwrap_err();
    assert!(error.contains(said), "{error}");
    let measured = text.replace("latency average", "latency stddev = 0.1 ms\nlatency average");
    parse_text(Parser::Pgbench, &measured.replace("0.213 ms", "0.013 ms")).unwrap();
    parse_text(Parser::Pgbench, &measured.replace("0.213 ms", "21.3 ms")).unwrap_err();
    // With failed transactions version 15 divides by them too.
    let failed = text
        .replace("failed transactions: 0", "failed transactions: 9280")
        .replace("latency average = 0.213", "latency average (including failures) = 0.107");
    parse_text(Parser::Pgbench, &failed).unwrap();
    // Before version 14 the latency is of the rate with connection times.
    let rates = "tps = 9390.1 (including connections establishing)\ntps = 19000.5 (excluding connections establishing)";
    let rate = "tps = 9394.309964 (without initial connection time)";
    let old = text.replace(rate, rates).replace("processed: 9280", "processed: 19000");
    parse_text(Parser::Pgbench, &old).unwrap();
}

#[test]
fn contradicting_packet_counts_are_refused() {
    let ping = include_str!("program/ping-q.txt");
    let summary = "20 packets transmitted, 20 received, 0% packet loss";
    assert!(ping.contains(summary));
    for (instead, said) in [
        ("20 packets transmitted, 21 received, 0% packet loss", "21 packets arrived of 20 sent"),
        (
            "20 packets transmitted, 10 received, 0% packet loss",
            "10 of 20 packets arrived, a loss of 50.0%, but it states 0.0%",
        ),
        ("nan packets transmitted, 20 received", "a count of its packets is no number"),
    ] {
        let error = parse_text(Parser::Ping, &ping.replace(summary, instead)).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let duplicates = "20 packets transmitted, 20 received, +3 duplicates, 0% packet loss";
    parse_text(Parser::Ping, &ping.replace(summary, duplicates)).unwrap();
}

#[test]
fn copied_file_counts_once() {
    let text = b"PROTOCOL=TCP\nDIRECTION=Send\nTHROUGHPUT=940.1\nTHROUGHPUT_UNITS=10^6bits/s\n";
    let file = |name: &str| (name.to_owned(), text.to_vec());
    let read = import_files(ImportFormat::Netperf, &[file("a"), file("copy")]).unwrap();
    assert_eq!((read.results.rows.len(), read.records.len()), (1, 1));
    check_noted(&read, "copy: test 1 is there twice; it counts once");
    let known = latput_formats::known_records(&read.results.notes);
    assert!(known.contains(&read.records[0].unwrap()));
}
