//! Tests of what a plan says of figures, and of reading its own.

use super::*;
use crate::metric::{PreferredDirection, Summary, Unit};
use crate::observation::Observation;

fn plan(text: &str) -> Result<Figures, String> {
    #[derive(Deserialize)]
    struct Workload {
        metrics: Figures,
    }
    let read = toml::from_str::<Workload>(text);
    read.map(|workload| workload.metrics).map_err(|error| error.message().to_owned())
}

fn stdout(text: &str) -> Output {
    Output { stdout: Text::from_bytes(text.as_bytes()), ..Output::default() }
}

fn option(text: &str) -> Result<OwnFigure, OwnFigureError> {
    short::parse(text)
}

fn read(figure: &str, text: &str) -> Result<f64, String> {
    let figures = Figures { own: vec![option(figure).unwrap()], ..Figures::default() };
    let read = figures.read_own(&stdout(text));
    read.map(|read| read.into_values().next().unwrap()).map_err(|error| error.to_string())
}

#[test]
fn plan_says_its_figures_in_each_form() {
    let wrk = plan(r#"metrics = { parser = "wrk" }"#).unwrap();
    assert_eq!((wrk.parser, wrk.own.len()), (Some(Parser::Wrk), 0));
    let own = plan(
        r#"metrics = [
            { name = "figures_a", unit = "per_s", better = "higher", regex = 'Requests/sec:\s+(\S+)' },
            { name = "figures_b", unit = "us", json = "/jobs/0/read/clat_ns/percentile/99.000000", from = "stderr" },
            { name = "figures_c", unit = "MB/s", csv = { column = "rate", row = 2 }, from = { file = "/tmp/out.csv" } },
        ]"#,
    )
    .unwrap();
    assert_eq!(own.files(), ["/tmp/out.csv"]);
    let rows: Vec<_> = own.metrics().map(|metric| (metric.name(), metric.row().unit)).collect();
    assert_eq!(
        rows,
        [
            ("figures_a", Unit::PerS),
            ("figures_b", Unit::Nanoseconds),
            ("figures_c", Unit::BitsPerS)
        ]
    );
    let row = own.own[1].metric.row();
    assert_eq!((row.preferred, row.summary), (PreferredDirection::Lower, Summary::Median));
    let both = plan(
        r#"metrics = { parser = "fio", own = [{ name = "figures_d", csv = { column = "x" } }] }"#,
    );
    assert_eq!(both.unwrap().own.len(), 1);
    let kept = serde_json::to_string(&own).unwrap();
    assert_eq!(serde_json::from_str::<Figures>(&kept).unwrap(), own);
}

#[test]
fn hdr_log_may_stand_beside_figures() {
    let plan = plan(
        r#"metrics = { parser = "wrk", histogram = { from = { file = "/tmp/a.hlog" }, unit = "us", tag = "READ" } }"#,
    );
    let figures = plan.unwrap();
    assert_eq!(figures.files(), ["/tmp/a.hlog"]);
    assert!(!figures.is_empty());
    let kept = serde_json::to_string(&figures).unwrap();
    assert_eq!(serde_json::from_str::<Figures>(&kept).unwrap(), figures);
}

#[test]
fn meaningless_figures_are_refused_with_remedy() {
    for (text, expected) in [
        (r#"metrics = { histogram = { from = "stdout" } }"#, "missing field `unit`"),
        (r#"metrics = { histogram = { unit = "us" } }"#, "missing field `from`"),
        (
            r#"metrics = { histogram = { from = "stdout", unit = "MB/s" } }"#,
            "is not a unit of time",
        ),
        (
            r#"metrics = { histogram = { from = { file = "" }, unit = "us" } }"#,
            "the file `` cannot be used",
        ),
        (
            r#"metrics = { histogram = { from = "stdout", unit = "us", tag = "" } }"#,
            "the tag `` cannot be used",
        ),
        (r#"metrics = { parser = "wrk3" }"#, "did you mean `wrk`"),
        (r#"metrics = { parsers = "wrk" }"#, "unknown field `parsers`"),
        (r#"metrics = "wrk""#, "a table such as { parser"),
        (r#"metrics = [{ name = "figures_e" }]"#, "one of `regex`, `json` and `csv`"),
        (r#"metrics = [{ name = "figures_e", regex = "a(b)", json = "/a" }]"#, "one of `regex`"),
        (r#"metrics = [{ name = "figures_e", regex = "a(b" }]"#, "without closing"),
        (r#"metrics = [{ name = "figures_e", regex = "ab" }]"#, "one group around the value"),
        (r#"metrics = [{ name = "figures_e", regex = "(a)(b)" }]"#, "named `figures_e`"),
        (r#"metrics = [{ name = "figures_e", regex = "(\\w{500}){500}" }]"#, "size limit"),
        (r#"metrics = [{ name = "figures_e", json = "a/b" }]"#, "a pointer begins with `/`"),
        (
            r#"metrics = [{ name = "figures_e", unit = "parsec", json = "/a" }]"#,
            "`parsec` is not a unit",
        ),
        (
            r#"metrics = [{ name = "figures_e", csv = { column = "a", row = 0 } }]"#,
            "counted from 1",
        ),
        (r#"metrics = [{ name = "Figures", json = "/a" }]"#, "cannot be the name of a metric"),
        (r#"metrics = [{ name = "sut_cpu_busy_ratio", json = "/a" }]"#, "counted by latput"),
        (r#"metrics = [{ name = "latency_ns_p99", unit = "bps", json = "/a" }]"#, "is in ns"),
        (r#"metrics = [{ name = "latency_ns_p99", better = "lower", json = "/a" }]"#, "leave out"),
        (
            r#"metrics = [{ name = "figures_f", json = "/a" }, { name = "figures_f", json = "/b" }]"#,
            "there twice",
        ),
    ] {
        let error = plan(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn short_form_says_the_same() {
    let figure = option(r"figures_rps=/Requests\/sec:\s+(\S+)/").unwrap();
    let row = figure.metric.row();
    assert_eq!((row.unit, row.preferred), (Unit::PerS, PreferredDirection::Higher));
    let figure = option("figures_p99[us, higher]@stderr=json:/latency/p99").unwrap();
    assert_eq!(figure.from, Source::Stderr);
    assert_eq!(figure.metric.row().preferred, PreferredDirection::Higher);
    let figure = option("figures_col@/tmp/x.csv=csv:rate:2").unwrap();
    assert_eq!(figure.lookup, Lookup::Csv { column: "rate".to_owned(), row: Some(2) });
    assert_eq!(figure.from, Source::File("/tmp/x.csv".to_owned()));
    for (text, expected) in [
        ("figures_g", "no `=`"),
        ("figures_g=/a(b)", "closing `/`"),
        ("figures_g[us=/a(b)/", "`[` is not closed"),
        ("figures_g[us,ms]=/a(b)/", "two units"),
        ("figures_g=42", "begins with `/`, `json:` or `csv:`"),
    ] {
        let error = option(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn known_program_is_recognised_by_its_command() {
    for (command, parser) in [
        (&["/usr/bin/wrk", "-t2"][..], Some(Parser::Wrk)),
        (&["taskset", "-c", "1", "redis-benchmark"], Some(Parser::RedisBenchmark)),
        (&["mpirun", "-np", "2", "/opt/osu/osu_latency"], Some(Parser::OsuLatency)),
        (&["./my-wrk"], None),
        (&["cat", "wrk"], None),
        (&[], None),
    ] {
        assert_eq!(Parser::of_command(command), parser, "{command:?}");
    }
    for parser in Parser::ALL {
        assert_eq!(parser.name().parse(), Ok(*parser));
        for name in parser.row().gives {
            assert!(Metric::ALL.iter().any(|metric| metric.name() == *name), "{parser}: {name}");
        }
    }
}

#[test]
fn printed_units_are_converted() {
    for (figure, text, expected) in [
        ("figures_t[us]=/t=(\\S+)/", "t=12.5", 12_500.0),
        ("figures_t[us]=/t=(\\S+)/", "t=1.5ms", 1_500_000.0),
        ("figures_t[us]=/t=(\\S+)/", "t=2s", 2e9),
        ("figures_t[us]=/t=(\\S+)/", "t=1e3", 1e6),
        ("figures_k[per_s]=/t=(\\S+)/", "t=12.3k", 12_300.0),
        ("figures_k[per_s]=/t=(\\S+)/", "t=1,234,567.5", 1_234_567.5),
        ("figures_m[MB/s]=/t=(\\S+)/", "t=2", 16e6),
        ("figures_m[MB/s]=/t=(.+)/", "t=1 KiB/s", 8192.0),
        ("figures_q[%]=/t=(\\S+)/", "t=12.5", 0.125),
        ("figures_n[number]=/t=(\\S+)/", "t=3M", 3e6),
        ("figures_n[number]=json:/a/0", "note: x\n{\"a\": [\"7\"]}\nbye", 7.0),
        ("figures_n[number]=csv:b", "\"a\",\"b\"\n\"1\",\"2\"\n\"3\",\"2\"\n", 2.0),
        ("figures_n[number]=csv:b:2", "a,b\r\n1,2\r\n3,4\r\n", 4.0),
        ("figures_n[number]=/^x (\\d+)$/", "\u{1b}[2;35mx 5\u{1b}[0m\ny", 5.0),
    ] {
        let value = read(figure, text).unwrap();
        assert!((value / expected - 1.0).abs() < 1e-12, "{figure} in {text}: {value}");
    }
}

#[test]
fn missing_or_double_figure_shows_last_lines() {
    for (figure, text, expected) in [
        ("figures_t[us]=/t=(\\S+)/", "nothing\nat all\n", "/t=(\\\\S+)/ is not there"),
        ("figures_t[us]=/t=(\\S+)/", "t=nan", "not a finite number"),
        ("figures_t[us]=/t=(\\S+)/", "t=-inf", "not a finite number"),
        ("figures_t[us]=/t=(\\S+)/", "t=1e999", "not a finite number"),
        ("figures_t[us]=/t=(\\S+)/", "t=-1", "at least 0"),
        ("figures_t[us]=/t=(\\S+)/", "t=1\nt=2\n", "several times, with different values"),
        ("figures_t[us]=/t=(\\S+)/", "t=1MB", "not a unit of ns"),
        ("figures_t[us]=/t=(\\S+)/", "t=12,5", "`12,5` has a comma that may be a decimal sign"),
        ("figures_t[us]=/t=(\\S+)/", "t=0,473", "run the program with `LC_ALL=C`"),
        ("figures_q[%]=/t=(\\S+)/", "t=112", "a share is at most 1"),
        ("figures_n[number]=json:/a", "{\"a\": null}", "it is not a number"),
        ("figures_n[number]=json:/a", "{\"b\": 1}", "`/a` is not there"),
        ("figures_n[number]=json:/a", "{\"a\": 1", "its JSON is invalid"),
        ("figures_n[number]=json:/a", "", "stdout is empty; stderr is empty"),
        ("figures_n[number]=csv:b", "a,b\n1,2\n3,4\n", "different values"),
        ("figures_n[number]=csv:b:3", "a,b\n1,2\n", "row 3 of CSV column `b` is not there"),
        ("figures_n[number]=csv:c", "a,b\n1,2\n", "CSV column `c` is not there"),
        ("figures_file@/tmp/x=csv:c", "", "the program did not write `/tmp/x`"),
    ] {
        let error = read(figure, text).unwrap_err();
        assert!(error.contains(expected), "{figure} in {text}: {error}");
        assert!(error.starts_with("figure `figures_"), "{error}");
    }
    assert!(read("figures_t[us]=/t=(\\S+)/", "t=1\nt=1\n").is_ok(), "twice the same");
    let flood = format!("\u{7}{}\n", "x".repeat(1 << 20)).repeat(10);
    let error = read("figures_t[us]=/t=(\\S+)/", &flood).unwrap_err();
    assert!(error.len() < 3_000 && error.contains("bytes of it were not kept"), "{}", error.len());
    assert!(error.chars().all(|letter| letter == '\n' || !letter.is_control()));
}

#[test]
fn cut_makes_no_number_of_two_halves() {
    let text = Text::of_parts(b"a 1\nt=12", 1000, b"34\nb 2\n");
    assert_eq!(text.as_str(), "a 1\nb 2\n");
}

#[test]
fn own_figures_replace_built_in_metric() {
    let figures = Figures {
        own: vec![
            option("transactions_per_s=/rps (\\S+)/").unwrap(),
            option("figures_stored=/rps (\\S+)/").unwrap(),
        ],
        ..Figures::default()
    };
    let metrics = figures.read_own(&stdout("rps 12.5k")).unwrap();
    let mut observation = Observation::default();
    ProgramFigures { metrics, transactions: Some(3), ..ProgramFigures::default() }
        .store(&mut observation);
    assert_eq!(
        observation.reported_metrics[&Metric::TransactionsPerS].to_bits(),
        12_500_f64.to_bits()
    );
    assert_eq!((observation.figures.len(), observation.traffic.transactions), (1, Some(3)));
}
