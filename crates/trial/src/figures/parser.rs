//! The known programs: how a command is recognised, and what each gives. `latput-formats` reads their outputs.

use std::fmt;
use std::str::FromStr;

use latput_units::{Nanos, spelling};
use serde::{Deserialize, Serialize};

/// The parser of a known program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[expect(missing_docs, reason = "each is described in its row, once")]
pub enum Parser {
    RedisBenchmark,
    Memtier,
    Wrk,
    Wrk2,
    Pgbench,
    Fio,
    Sockperf,
    Netperf,
    Iperf3,
    Ping,
    Hey,
    Oha,
    K6,
    OsuLatency,
    OsuBandwidth,
    Fping,
    Qperf,
    Neper,
    Uperf,
}

/// A row of the table of parsers.
#[derive(Clone, Copy, Debug)]
pub struct ParserRow {
    /// The parser.
    pub parser: Parser,
    /// The name in plans.
    pub name: &'static str,
    /// The file names of its commands.
    pub commands: &'static [&'static str],
    /// The options without which the output cannot be read, in words; empty if there are none.
    pub needs: &'static str,
    /// The metrics of latput's that it gives, in the order of tables.
    pub gives: &'static [&'static str],
    /// The metrics of its own that it gives; `SIZE` stands for a number.
    pub own: &'static [&'static str],
    /// The source of its latency histogram; empty if it gives none.
    pub histogram: &'static str,
    /// Remark on the figures where their names do not tell their meaning.
    pub remark: &'static str,
    /// Time from its start to its first request: counters before that are not of the benchmark.
    pub quiet_start: Nanos,
}

const BASE: ParserRow = ParserRow {
    parser: Parser::Wrk,
    name: "",
    commands: &[],
    needs: "",
    gives: &[],
    own: &[],
    histogram: "",
    remark: "",
    quiet_start: Nanos::ZERO,
};

/// The figures of a program that makes requests.
const SERVER_FIGURES: &[&str] = &[
    "transactions_per_s",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
];
/// The same of a program that prints no percentile above the 99th.
const COARSE_FIGURES: &[&str] = &[
    "transactions_per_s",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_max",
];
/// The figures of a program that sends echo requests.
const PING_FIGURES: &[&str] = &[
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
    "loss_ratio",
];
/// The figures of a program that makes requests and streams.
const TRAFFIC_FIGURES: &[&str] = &[
    "throughput_bps",
    "transactions_per_s",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p90",
    "latency_ns_p99",
    "latency_ns_p999",
    "latency_ns_max",
];

/// The rows, in the order of the type.
const TABLE: &[ParserRow] = &[
    ParserRow {
        parser: Parser::RedisBenchmark,
        name: "redis-benchmark",
        commands: &["redis-benchmark", "valkey-benchmark"],
        needs: "`--csv`, and one test (`-t get`)",
        gives: &[
            "transactions_per_s",
            "latency_ns_mean",
            "latency_ns_p50",
            "latency_ns_p99",
            "latency_ns_max",
        ],
        ..BASE
    },
    ParserRow {
        parser: Parser::Memtier,
        name: "memtier_benchmark",
        commands: &["memtier_benchmark"],
        gives: &[
            "transactions_per_s",
            "latency_ns_mean",
            "latency_ns_p50",
            "latency_ns_p99",
            "latency_ns_p999",
        ],
        remark: "The row `Totals`.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Wrk,
        name: "wrk",
        commands: &["wrk"],
        gives: COARSE_FIGURES,
        own: &["program_errors"],
        remark: "Percentiles with `--latency`. A closed loop: it hides waits between requests.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Wrk2,
        name: "wrk2",
        commands: &["wrk2"],
        gives: SERVER_FIGURES,
        own: &["program_errors"],
        histogram: "the percentile spectrum, with `--latency`",
        remark: "Percentiles with `--latency`, from when a request was due.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Pgbench,
        name: "pgbench",
        commands: &["pgbench"],
        gives: &["transactions_per_s", "latency_ns_mean"],
        own: &["program_errors", "latency_stddev_ns"],
        remark: "The standard deviation with `-R`, `-L` or `-P`.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Fio,
        name: "fio",
        commands: &["fio"],
        needs: "`--output-format=json` or `json+`",
        gives: TRAFFIC_FIGURES,
        own: &["messages_per_s", "sent_bps"],
        histogram: "the bins, with `json+`",
        remark: "All jobs and directions together; completion latency. Percentiles of several need `json+`. A sender of \
                 datagrams (`protocol=udp`) gives its messages and bits.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Sockperf,
        name: "sockperf",
        commands: &["sockperf"],
        gives: SERVER_FIGURES,
        own: &["program_errors", "messages_per_s", "sent_bps"],
        remark: "Round trips: without `--full-rtt` sockperf prints half of them, which is doubled. `tp` gives \
                 the sender's messages and bits.",
        quiet_start: Nanos::from_ms(2100), // by the packets of sockperf 3.7; it ends 0.2 s after the last one
        ..BASE
    },
    ParserRow {
        parser: Parser::Netperf,
        name: "netperf",
        commands: &["netperf"],
        gives: &[
            "throughput_bps",
            "transactions_per_s",
            "latency_ns_mean",
            "latency_ns_p50",
            "latency_ns_p90",
            "latency_ns_p99",
            "latency_ns_max",
        ],
        remark: "What the test and its output selectors (`-o`, `-k`) print.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Iperf3,
        name: "iperf3",
        commands: &["iperf3"],
        needs: "`--json` (`-J`)",
        gives: &["throughput_bps", "loss_ratio", "jitter_ns", "retransmits_per_s"],
        remark: "Loss and jitter of UDP, retransmissions of TCP.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Ping,
        name: "ping",
        commands: &["ping"],
        gives: PING_FIGURES,
        histogram: "the lines of the replies, without `-q`",
        remark: "Percentiles without `-q`.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Hey,
        name: "hey",
        commands: &["hey"],
        gives: COARSE_FIGURES,
        own: &["program_errors"],
        remark: "hey prints times in steps of 100 us.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Oha,
        name: "oha",
        commands: &["oha"],
        needs: "`--output-format json`, or `--json` of older versions",
        gives: SERVER_FIGURES,
        own: &["program_errors"],
        ..BASE
    },
    ParserRow {
        parser: Parser::K6,
        name: "k6",
        commands: &["k6"],
        needs: "`--summary-export=/dev/stdout --quiet`",
        gives: SERVER_FIGURES,
        own: &["program_errors"],
        remark: "`http_req_duration` and `http_reqs`; percentiles that `--summary-trend-stats` asks for.",
        ..BASE
    },
    ParserRow {
        parser: Parser::OsuLatency,
        name: "osu_latency",
        commands: &["osu_latency"],
        own: &["osu_latency_SIZE_bytes"],
        remark: "For each size of message; one way, as OSU defines it.",
        ..BASE
    },
    ParserRow {
        parser: Parser::OsuBandwidth,
        name: "osu_bw",
        commands: &["osu_bw", "osu_bibw"],
        own: &["osu_bw_SIZE_bytes"],
        remark: "For each size of message.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Fping,
        name: "fping",
        commands: &["fping", "fping6"],
        needs: "`-c` or `-C`, and one target",
        gives: PING_FIGURES,
        histogram: "the lines of the replies, without `-q`, or the list of `-C`",
        remark: "Percentiles from the replies.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Qperf,
        name: "qperf",
        commands: &["qperf"],
        needs: "one test (`tcp_lat`)",
        gives: &["throughput_bps", "latency_ns_mean"],
        own: &["sent_bps"],
        remark: "Round trips: qperf prints half of them, which is doubled. Three digits, or those of `-e`.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Neper,
        name: "neper",
        commands: &["tcp_rr", "udp_rr", "tcp_crr", "tcp_stream", "udp_stream"],
        gives: TRAFFIC_FIGURES,
        remark: "Percentiles with `-p 50,90,99,99.9`.",
        ..BASE
    },
    ParserRow {
        parser: Parser::Uperf,
        name: "uperf",
        commands: &["uperf"],
        own: &["uperf_bps", "uperf_ops_per_s"],
        remark: "The longest transaction of the profile; bits sent and received together.",
        ..BASE
    },
];

/// Commands that start another one, which is among their words.
const STARTERS: &[&str] = &[
    "chrt", "env", "ip", "ionice", "mpiexec", "mpirun", "nice", "numactl", "nsenter", "prlimit",
    "setpriv", "srun", "stdbuf", "sudo", "taskset", "time", "timeout",
];

impl Parser {
    /// Every parser, in the order of tables.
    pub const ALL: &[Self] = &{
        let mut all = [Self::Wrk; TABLE.len()];
        let mut idx = 0;
        while idx < all.len() {
            all[idx] = TABLE[idx].parser;
            assert!(all[idx] as usize == idx, "the rows are in the order of the type");
            idx += 1;
        }
        all
    };

    /// Its row.
    pub const fn row(self) -> &'static ParserRow {
        &TABLE[self as usize]
    }

    /// The name in plans.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The parser of a command, by the file name of its program; programs such as `taskset` are
    /// looked through.
    pub fn of_command<S: AsRef<str>>(command: &[S]) -> Option<Self> {
        let file = |word: &S| word.as_ref().rsplit('/').next().unwrap_or_default().to_owned();
        let first = file(command.first()?);
        let of_file =
            |file: &str| Self::ALL.iter().copied().find(|it| it.row().commands.contains(&file));
        if !STARTERS.contains(&first.as_str()) {
            return of_file(&first);
        }
        command.iter().skip(1).find_map(|word| of_file(&file(word)))
    }
}

impl fmt::Display for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no parser's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no parser `{name}`; the parsers are {}{}", names(), self.meant())]
pub struct UnknownParser {
    name: String,
}

impl UnknownParser {
    fn meant(&self) -> String {
        let names = Parser::ALL.iter().map(|parser| parser.name());
        let meant = spelling::nearest_name(&self.name, names);
        meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"))
    }
}

fn names() -> String {
    let names: Vec<&str> = Parser::ALL.iter().map(|parser| parser.name()).collect();
    names.join(", ")
}

impl FromStr for Parser {
    type Err = UnknownParser;
    fn from_str(name: &str) -> Result<Self, UnknownParser> {
        let found = Self::ALL.iter().copied().find(|parser| parser.name() == name);
        found.ok_or_else(|| UnknownParser { name: name.chars().take(60).collect() })
    }
}

impl TryFrom<String> for Parser {
    type Error = UnknownParser;
    fn try_from(name: String) -> Result<Self, UnknownParser> {
        name.parse()
    }
}

impl From<Parser> for String {
    fn from(parser: Parser) -> Self {
        parser.name().to_owned()
    }
}
