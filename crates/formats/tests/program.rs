//! Outputs of real programs, and what their parsers read in them.

use latput_formats::program::read;
use latput_trial::Metric;
use latput_trial::figures::{Figures, Output, Parser, ProgramFigures, Text};
use proptest::prelude::*;

/// The fixtures that parsers read without an error.
const READABLE: &[(Parser, &str)] = &[
    (Parser::RedisBenchmark, include_str!("program/redis-benchmark-csv.txt")),
    (Parser::Memtier, include_str!("program/memtier.txt")),
    (Parser::Wrk, include_str!("program/wrk.txt")),
    (Parser::Wrk, include_str!("program/wrk-latency.txt")),
    (Parser::Wrk, include_str!("program/wrk-errors.txt")),
    (Parser::Wrk2, include_str!("program/wrk2.txt")),
    (Parser::Pgbench, include_str!("program/pgbench.txt")),
    (Parser::Pgbench, include_str!("program/pgbench-rate.txt")),
    (Parser::Fio, include_str!("program/fio.json")),
    (Parser::Fio, include_str!("program/fio-plus.json")),
    (Parser::Fio, include_str!("program/fio-jobs.json")),
    (Parser::Sockperf, include_str!("program/sockperf.txt")),
    (Parser::Sockperf, include_str!("program/sockperf-rtt.txt")),
    (Parser::Sockperf, include_str!("program/sockperf-tp.txt")),
    (Parser::Netperf, include_str!("program/netperf.txt")),
    (Parser::Iperf3, include_str!("program/iperf3.json")),
    (Parser::Iperf3, include_str!("program/iperf3-udp.json")),
    (Parser::Ping, include_str!("program/ping.txt")),
    (Parser::Ping, include_str!("program/ping-q.txt")),
    (Parser::Hey, include_str!("program/hey.txt")),
    (Parser::Hey, include_str!("program/hey-404.txt")),
    (Parser::Oha, include_str!("program/oha.json")),
    (Parser::K6, include_str!("program/k6.json")),
    (Parser::OsuLatency, include_str!("program/osu_latency.txt")),
    (Parser::OsuLatency, include_str!("program/osu_latency7.txt")),
    (Parser::OsuBandwidth, include_str!("program/osu_bw.txt")),
    (Parser::Fping, include_str!("program/fping.txt")),
    (Parser::Fping, include_str!("program/fping-q.txt")),
    (Parser::Fping, include_str!("program/fping-count.txt")),
    (Parser::Qperf, include_str!("program/qperf.txt")),
    (Parser::Qperf, include_str!("program/qperf-bw.txt")),
    (Parser::Qperf, include_str!("program/qperf-udp.txt")),
    (Parser::Neper, include_str!("program/neper-rr.txt")),
    (Parser::Neper, include_str!("program/neper-stream.txt")),
    (Parser::Uperf, include_str!("program/uperf.txt")),
];

fn parse(parser: Parser, text: &str) -> Result<ProgramFigures, String> {
    let figures = Figures { parser: Some(parser), ..Figures::default() };
    let output = Output { stdout: Text::from_bytes(text.as_bytes()), ..Output::default() };
    read(&figures, &output).map_err(|error| error.to_string())
}

#[track_caller]
fn check_figures(parser: Parser, text: &str, expected: &[(&str, f64)]) -> ProgramFigures {
    let read = parse(parser, text).expect("a readable output");
    let names: Vec<&str> = read.metrics.keys().map(|metric| metric.name()).collect();
    for (name, value) in expected {
        let metric: Metric = name.parse().expect("a metric");
        let found = *read.metrics.get(&metric).unwrap_or_else(|| panic!("{name} in {names:?}"));
        assert!((found - value).abs() <= value.abs() * 1e-9, "{parser}: {name} is {found}");
    }
    assert_eq!(names.len(), expected.len(), "{parser}: {names:?}");
    read
}

#[test]
fn request_programs() {
    check_figures(
        Parser::RedisBenchmark,
        include_str!("program/redis-benchmark-csv.txt"),
        &[
            ("transactions_per_s", 54_945.05),
            ("latency_ns_mean", 117e3),
            ("latency_ns_p50", 111e3),
            ("latency_ns_p99", 215e3),
            ("latency_ns_max", 3_031e3),
        ],
    );
    check_figures(
        Parser::Memtier,
        include_str!("program/memtier.txt"),
        &[
            ("transactions_per_s", 78_391.78),
            ("latency_ns_mean", 1_012_590.0),
            ("latency_ns_p50", 807e3),
            ("latency_ns_p99", 5_567e3),
            ("latency_ns_p999", 12_671e3),
        ],
    );
    let bench = check_figures(
        Parser::Pgbench,
        include_str!("program/pgbench-rate.txt"),
        &[
            ("transactions_per_s", 487.910_790),
            ("latency_ns_mean", 995e3),
            ("latency_stddev_ns", 1_689e3),
            ("program_errors", 0.0),
        ],
    );
    assert_eq!((bench.transactions, bench.errors), (Some(200), Some(0)));
    let osu = [
        ("osu_latency_0_bytes", 1270.0),
        ("osu_latency_1_bytes", 1250.0),
        ("osu_latency_8_bytes", 1250.0),
        ("osu_latency_1024_bytes", 2770.0),
        ("osu_latency_65536_bytes", 26_640.0),
    ];
    check_after_reading(Parser::OsuLatency, include_str!("program/osu_latency.txt"), &osu);
    let osu = [("osu_bw_268435456_bytes", 12_254.16 * 8e6)];
    check_after_reading(Parser::OsuBandwidth, include_str!("program/osu_bw.txt"), &osu);
}

/// For metrics that are known once a parser has read them.
#[track_caller]
fn check_after_reading(parser: Parser, text: &str, expected: &[(&str, f64)]) {
    parse(parser, text).expect("a readable output");
    check_figures(parser, text, expected);
}

#[test]
fn web_programs() {
    parse(Parser::Wrk, include_str!("program/wrk.txt")).unwrap();
    let wrk = check_figures(
        Parser::Wrk,
        include_str!("program/wrk-errors.txt"),
        &[
            ("transactions_per_s", 23_241.04),
            ("latency_ns_mean", 3.07e6),
            ("latency_ns_p50", 95e3),
            ("latency_ns_p90", 3.35e6),
            ("latency_ns_p99", 72.79e6),
            ("latency_ns_max", 88.62e6),
            ("program_errors", 25_612.0),
        ],
    );
    assert_eq!((wrk.transactions, wrk.errors), (Some(25_612), Some(25_612)));
    assert_eq!(wrk.window.map(latput_units::Nanos::as_ns), Some(1_100_000_000));
    let wrk2 = check_figures(
        Parser::Wrk2,
        include_str!("program/wrk2.txt"),
        &[
            ("transactions_per_s", 2000.28),
            ("latency_ns_mean", 6.60e6),
            ("latency_ns_p50", 6.67e6),
            ("latency_ns_p90", 9.14e6),
            ("latency_ns_p99", 11.18e6),
            ("latency_ns_p999", 12.30e6),
            ("latency_ns_max", 12.50e6),
            ("program_errors", 0.0),
        ],
    );
    let histogram = wrk2.latency.unwrap();
    assert_eq!(histogram.count(), 39_500);
    let median = histogram.quantile(0.5).unwrap().as_ns() as f64;
    assert!((median / 6.671e6 - 1.0).abs() < 0.001, "{median}");
}

#[test]
fn web_programs_with_errors_of_their_own() {
    parse(Parser::Hey, include_str!("program/hey.txt")).unwrap();
    let hey = check_figures(
        Parser::Hey,
        include_str!("program/hey-404.txt"),
        &[
            ("transactions_per_s", 10_164.384_5),
            ("latency_ns_mean", 400e3),
            ("latency_ns_p50", 200e3),
            ("latency_ns_p90", 500e3),
            ("latency_ns_p99", 2.7e6),
            ("latency_ns_max", 2.7e6),
            ("program_errors", 100.0),
        ],
    );
    assert_eq!((hey.transactions, hey.errors), (Some(100), Some(100)));
    let oha = check_figures(
        Parser::Oha,
        include_str!("program/oha.json"),
        &[
            ("transactions_per_s", 7_205.726_530_194_245),
            ("latency_ns_mean", 1_378_558.866_611_206_4),
            ("latency_ns_p50", 635e3),
            ("latency_ns_p90", 1_105_292.0),
            ("latency_ns_p99", 31_008_791.0),
            ("latency_ns_p999", 62_437_375.0),
            ("latency_ns_max", 577_411_167.0),
            ("program_errors", 0.0),
        ],
    );
    assert_eq!(oha.transactions, Some(21_636));
    let k6 = check_figures(
        Parser::K6,
        include_str!("program/k6.json"),
        &[
            ("transactions_per_s", 8_954.752_887_325_747),
            ("latency_ns_mean", 169_281.45),
            ("latency_ns_p50", 122_802.5),
            ("latency_ns_p90", 308_892.9),
            ("latency_ns_p99", 914_816.229_999_991_7),
            ("latency_ns_p999", 1_953_710.170_000_002_8),
            ("latency_ns_max", 1_987_176.0),
            ("program_errors", 0.0),
        ],
    );
    assert_eq!(k6.transactions, Some(200));
}

#[test]
fn network_and_storage_programs() {
    parse(Parser::Sockperf, include_str!("program/sockperf-tp.txt")).unwrap();
    let half = check_figures(
        Parser::Sockperf,
        include_str!("program/sockperf.txt"),
        &[
            ("transactions_per_s", 36_731.0 / 0.55),
            ("latency_ns_mean", 14_956.0),
            ("latency_ns_p50", 13_528.0),
            ("latency_ns_p90", 14_350.0),
            ("latency_ns_p99", 18_606.0),
            ("latency_ns_p999", 80_858.0),
            ("latency_ns_max", 5_078_090.0),
            ("program_errors", 0.0),
        ],
    );
    assert_eq!(half.transactions, Some(36_731));
    let whole = parse(Parser::Sockperf, include_str!("program/sockperf-rtt.txt")).unwrap();
    assert!((whole.metrics[&Metric::LatencyNsMean] - 15_399.0).abs() < 1e-6, "not doubled");
    check_figures(
        Parser::Sockperf,
        include_str!("program/sockperf-tp.txt"),
        &[("messages_per_s", 516_247.0), ("sent_bps", 6.893 * 1024.0 * 1024.0 * 8.0)],
    );
    check_figures(
        Parser::Netperf,
        include_str!("program/netperf.txt"),
        &[("transactions_per_s", 22_596.51)],
    );
    let ping = parse(Parser::Ping, include_str!("program/ping.txt")).unwrap();
    assert_eq!(ping.latency.map(|histogram| histogram.count()), Some(20));
    let median = ping.metrics[&Metric::LatencyNsP50];
    assert!((median / 38e3 - 1.0).abs() < 0.001, "{median}");
    check_figures(
        Parser::Ping,
        include_str!("program/ping-q.txt"),
        &[("latency_ns_mean", 38e3), ("latency_ns_max", 45e3), ("loss_ratio", 0.0)],
    );
    check_figures(
        Parser::Iperf3,
        include_str!("program/iperf3.json"),
        &[
            ("throughput_bps", 1_605_632_000.0 * 8.0 / 1.003_544),
            ("retransmits_per_s", 4.0 / 1.003_438),
        ],
    );
    let udp = parse(Parser::Iperf3, include_str!("program/iperf3-udp.json")).unwrap();
    assert!(udp.metrics.contains_key(&Metric::JitterNs), "{udp:?}");
    let fio = check_figures(
        Parser::Fio,
        include_str!("program/fio.json"),
        &[
            ("throughput_bps", 4_194_304_000.0 * 8.0),
            ("transactions_per_s", 1_024_000.0),
            ("latency_ns_mean", 37.816_406),
            ("latency_ns_p50", 30.0),
            ("latency_ns_p90", 30.0),
            ("latency_ns_p99", 31.0),
            ("latency_ns_p999", 91.0),
            ("latency_ns_max", 9835.0),
        ],
    );
    assert_eq!((fio.transactions, fio.latency), (Some(1024), None));
    let bins = parse(Parser::Fio, include_str!("program/fio-plus.json")).unwrap();
    assert_eq!(bins.latency.map(|histogram| histogram.count()), Some(982 + 1066));
    assert_eq!(bins.metrics[&Metric::LatencyNsP50].to_bits(), 30_f64.to_bits());
    let jobs = parse(Parser::Fio, include_str!("program/fio-jobs.json")).unwrap();
    let has = |metric| jobs.metrics.contains_key(&metric);
    let why = "percentiles of several parts cannot be averaged";
    assert!(has(Metric::LatencyNsMean) && !has(Metric::LatencyNsP99), "{why}");
}

/// The expected values are read in the raw outputs by awk.
#[test]
fn programs_between_two_hosts() {
    check_figures(
        Parser::Fping,
        include_str!("program/fping-q.txt"),
        &[("latency_ns_mean", 44e3), ("latency_ns_max", 51e3), ("loss_ratio", 0.0)],
    );
    let fping = parse(Parser::Fping, include_str!("program/fping.txt")).unwrap();
    assert_eq!(fping.latency.map(|histogram| histogram.count()), Some(20));
    assert!((fping.metrics[&Metric::LatencyNsMean] - 52e3).abs() < 1.0);
    let listed = include_str!("program/fping-count.txt").replace("0.055", "-");
    let listed = parse(Parser::Fping, &listed).unwrap();
    assert!((listed.metrics[&Metric::LossRatio] - 0.2).abs() < 1e-9);
    assert!((listed.metrics[&Metric::LatencyNsMean] / 40_500.0 - 1.0).abs() < 0.001);
    check_figures(
        Parser::Qperf,
        include_str!("program/qperf.txt"),
        &[("latency_ns_mean", 73_400.0)],
    );
    let bw = [("throughput_bps", 13.12e9)];
    check_figures(Parser::Qperf, include_str!("program/qperf-bw.txt"), &bw);
    check_figures(
        Parser::Qperf,
        include_str!("program/qperf-udp.txt"),
        &[("throughput_bps", 24.8e9), ("sent_bps", 25.36e9)],
    );
    let neper = check_figures(
        Parser::Neper,
        include_str!("program/neper-rr.txt"),
        &[
            ("transactions_per_s", 35_660.90),
            ("latency_ns_mean", 56_361.0),
            ("latency_ns_p50", 54_390.0),
            ("latency_ns_p90", 69_110.0),
            ("latency_ns_p99", 89_590.0),
            ("latency_ns_p999", 129_270.0),
            ("latency_ns_max", 2_820_259.0),
        ],
    );
    assert_eq!(neper.transactions, Some(28_336));
    // Both ends tell the same of one test.
    for text in
        [include_str!("program/neper-stream.txt"), include_str!("program/neper-stream-server.txt")]
    {
        check_figures(Parser::Neper, text, &[("throughput_bps", 18_376_725_786.0)]);
    }
    check_after_reading(
        Parser::Uperf,
        include_str!("program/uperf.txt"),
        &[("uperf_bps", 124.46e6), ("uperf_ops_per_s", 243_078.0)],
    );
}

#[test]
fn output_without_answer_is_quoted() {
    for (parser, text, expected) in [
        (Parser::RedisBenchmark, include_str!("program/redis-benchmark-two.txt"), "2 tests"),
        (Parser::RedisBenchmark, "GET: 100 requests", "needs `--csv`"),
        (Parser::Wrk, include_str!("program/wrk-refused.txt"), "unable to connect"),
        (Parser::Hey, include_str!("program/hey-refused.txt"), "no request was answered"),
        (Parser::Oha, include_str!("program/oha-none.json"), "no request was answered"),
        (
            Parser::Ping,
            "3 packets transmitted, 0 received, 100% packet loss",
            "no echo was answered",
        ),
        (
            Parser::Iperf3,
            r#"{"error": "unable to connect to server"}"#,
            "unable to connect to server",
        ),
        (Parser::Iperf3, "[  5]   0.00-1.00   sec", "needs `--json`"),
        (Parser::Fio, r#"{"jobs": [{"jobname": "j", "error": 5}]}"#, "job `j` ended with error 5"),
        (Parser::Fio, r#"{"jobs": []}"#, "no job completed"),
        (Parser::Netperf, "establish control: are you sure there is a netserver", "netserver"),
        (Parser::K6, "", "stdout is empty; stderr is empty"),
        (Parser::OsuLatency, "# OSU MPI Latency Test v7.5", "the head `# Size"),
        (Parser::Fping, "192.0.2.1 : xmt/rcv/%loss = 3/0/100%", "no echo was answered"),
        (Parser::Fping, "192.0.2.1 : - - -", "no echo was answered"),
        (
            Parser::Fping,
            concat!(include_str!("program/fping-q.txt"), include_str!("program/fping-q.txt")),
            "2 targets, where one is needed",
        ),
        (Parser::Qperf, include_str!("program/qperf-several.txt"), "4 tests, where one is needed"),
        (Parser::Qperf, "tcp_lat:\n192.0.2.1: failed to connect\n", "`latency` or `bw` is not"),
        (Parser::Qperf, "tcp_lat:\n    latency  =  36.7\n", "has no unit that qperf prints"),
        (Parser::Neper, "num_flows=1\ntotal_run_time=1\n", "`remote_throughput=` is not there"),
        (Parser::Neper, "local_throughput=0\nremote_throughput=0\n", "no data arrived"),
        (Parser::Uperf, "Error connecting to 192.0.2.1\n", "no transaction is there"),
    ] {
        let error = parse(parser, text).unwrap_err();
        assert!(error.contains(expected), "{parser}: {error}");
        assert!(error.starts_with(&format!("output of {parser}: ")), "{error}");
    }
    let twice = "Requests/sec: 1\nRequests/sec: 2\n";
    assert!(parse(Parser::Wrk, twice).unwrap_err().contains("different values"));
    let not_a_number = include_str!("program/wrk.txt").replace("33755.88", "nan");
    assert!(parse(Parser::Wrk, &not_a_number).unwrap_err().contains("which is impossible"));
}

#[test]
fn unclear_comma_is_refused_with_remedy() {
    let wrk = include_str!("program/wrk.txt");
    let redis = include_str!("program/redis-benchmark-csv.txt");
    let sockperf = include_str!("program/sockperf.txt");
    let pgbench = include_str!("program/pgbench.txt");
    let memtier = include_str!("program/memtier.txt");
    let (qperf, bw) = (include_str!("program/qperf.txt"), include_str!("program/qperf-bw.txt"));
    for (parser, text, from, to) in [
        (Parser::Wrk, wrk, "33755.88", "33755,88"),
        (Parser::Wrk, wrk, "33755.88", "33,755"),
        (Parser::Wrk, wrk, "284.22us", "284,22us"),
        (Parser::Wrk, wrk, "in 1.10s", "in 1,10s"),
        (Parser::RedisBenchmark, redis, "0.117", "0,117"),
        (Parser::RedisBenchmark, redis, "54945.05", "54,945"),
        (Parser::Sockperf, sockperf, "RunTime=0.550", "RunTime=0,550"),
        (Parser::Sockperf, sockperf, "   9.303", "   9,303"),
        (Parser::Pgbench, pgbench, "0.213 ms", "0,213 ms"),
        (Parser::Pgbench, pgbench, "9394.309964", "9394,309964"),
        (Parser::Memtier, memtier, "78391.78", "78391,78"),
        (Parser::Memtier, memtier, "5.56700", "5,56700"),
        (Parser::Ping, include_str!("program/ping.txt"), "time=0.147", "time=0,147"),
        (Parser::Ping, include_str!("program/ping-q.txt"), "0.012/0.038", "0,012/0,038"),
        (Parser::Fping, include_str!("program/fping.txt"), ", 0.", ", 0,"),
        (Parser::Fping, include_str!("program/fping-count.txt"), "0.055", "0,055"),
        (Parser::Hey, include_str!("program/hey.txt"), "14996.8306", "14996,8306"),
        (Parser::Neper, include_str!("program/neper-rr.txt"), "35660.90", "35660,90"),
        (Parser::OsuLatency, include_str!("program/osu_latency.txt"), "26.64", "26,64"),
        (Parser::Uperf, include_str!("program/uperf.txt"), "124.46Mb", "124,46Mb"),
        (Parser::Qperf, qperf, "36.7 us", "36,7 us"),
        (Parser::Qperf, bw, "1.64 GB/sec", "1,64 GB/sec"),
        (Parser::Netperf, include_str!("program/netperf.txt"), "22596.51", "22596,51"),
    ] {
        assert!(text.contains(from), "{parser}: {from}");
        let error = parse(parser, &text.replace(from, to)).unwrap_err();
        let comma = "has a comma that may be a decimal sign: run the program with `LC_ALL=C`;";
        assert!(error.contains(comma), "{parser}: {error}");
    }
}

#[test]
fn clear_thousands_change_no_figure() {
    let (redis, qperf) =
        (include_str!("program/redis-benchmark-csv.txt"), include_str!("program/qperf.txt"));
    for (parser, text, from, to) in [
        (Parser::Wrk, include_str!("program/wrk.txt"), "33755.88", "33,755.88"),
        (Parser::RedisBenchmark, redis, "54945.05", "54,945.05"),
        (Parser::Pgbench, include_str!("program/pgbench.txt"), "9394.309964", "9,394.309964"),
        (Parser::Hey, include_str!("program/hey.txt"), "14996.8306", "14,996.8306"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(text, changed, "{parser}");
        assert_eq!(parse(parser, &changed), parse(parser, text), "{parser}");
    }
    let grouped = [("latency_ns_mean", 2.0 * 1_234e3)];
    check_figures(Parser::Qperf, &qperf.replace("36.7 us", "1,234 us"), &grouped);
}

#[test]
fn table_of_parsers_says_what_they_give() {
    for parser in Parser::ALL {
        let row = parser.row();
        let read: Vec<ProgramFigures> = READABLE
            .iter()
            .filter(|(of, _)| of == parser)
            .map(|(_, text)| parse(*parser, text).unwrap())
            .collect();
        let given = |name: &str| read.iter().any(|it| it.metrics.keys().any(|m| m.name() == name));
        for metric in read.iter().flat_map(|read| read.metrics.keys()) {
            let name = metric.name();
            let general: String =
                name.split('_').map(generalize_part).collect::<Vec<_>>().join("_");
            let own = row.own.contains(&name) || row.own.contains(&general.as_str());
            let is_told =
                if matches!(metric, Metric::Custom(_)) { own } else { row.gives.contains(&name) };
            assert!(is_told, "{parser} gives {name}, which its row does not say");
        }
        // The fixtures of netperf have no selectors.
        for name in row.gives.iter().filter(|_| *parser != Parser::Netperf) {
            assert!(given(name), "no fixture of {parser} gives {name}");
        }
        let has_histogram = read.iter().any(|read| read.latency.is_some());
        assert_eq!(has_histogram, !row.histogram.is_empty(), "{parser}");
    }
}

fn generalize_part(part: &str) -> &str {
    if part.bytes().all(|byte| byte.is_ascii_digit()) { "SIZE" } else { part }
}

proptest! {
    /// Neither text of strangers nor a damaged output ends in a panic, and what is read is finite.
    #[test]
    fn hostile_outputs_are_read_or_refused(
        at in proptest::sample::select(READABLE),
        parser in proptest::sample::select(Parser::ALL),
        cuts in proptest::collection::vec((0.0..1.0_f64, 0usize..40, "[0-9a-zA-Z.:,%\\[\\]{}\"/=\\-\n\u{1b} ]{0,12}"), 0..6),
    ) {
        let mut text = at.1.as_bytes().to_vec();
        for (place, length, instead) in cuts {
            #[expect(clippy::cast_possible_truncation, reason = "a share of the length")]
            let start = (place * text.len() as f64) as usize;
            let end = (start + length).min(text.len());
            text.splice(start..end, instead.into_bytes());
        }
        for parser in [at.0, parser] {
            let figures = Figures { parser: Some(parser), ..Figures::default() };
            let output = Output { stdout: Text::from_bytes(&text), ..Output::default() };
            match read(&figures, &output) {
                Ok(read) => prop_assert!(read.metrics.values().all(|it| it.is_finite() && *it >= 0.0)),
                Err(error) => prop_assert!(error.to_string().len() < 4_000),
            }
        }
    }
}
