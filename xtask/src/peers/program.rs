//! The programs that are compared: how each is asked for a workload, and how its answer reads.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::{CLIENT, Lab, Running, SERVER_ADDRESS};

/// A program with its two ends.
#[derive(Clone, Debug)]
pub struct Program {
    /// Which.
    pub kind: Kind,
    /// Its sending end.
    pub client: PathBuf,
    /// Its answering end, where that is started beforehand.
    pub server: Option<PathBuf>,
}

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Ours.
    Latput,
    /// <https://github.com/HewlettPackard/netperf>
    Netperf,
    /// <https://github.com/esnet/iperf>
    Iperf3,
}

/// A workload that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// One byte each way, one transaction in flight.
    Rr,
    /// The same, with 16 more in flight.
    RrBurst,
    /// Bulk in sends of 32 KB.
    Stream,
}

/// One run of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// What.
    pub load: Load,
    /// How long.
    pub seconds: u32,
}

impl Load {
    /// All of them, in the order of tables.
    pub const ALL: &[Self] = &[Self::Rr, Self::RrBurst, Self::Stream];

    /// The unit of the rate, and the unit of work whose CPU cost is told.
    pub const fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::Rr | Self::RrBurst => ("1/s", "us/transaction"),
            Self::Stream => ("bit/s", "us/KB"),
        }
    }

    /// Units of work per second at a rate: transactions, or KB of 1024 byte.
    pub fn units_per_s(self, rate: f64) -> f64 {
        match self {
            Self::Rr | Self::RrBurst => rate,
            Self::Stream => rate / 8.0 / 1024.0,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rr => "tcp_rr",
            Self::RrBurst => "tcp_rr burst 16",
            Self::Stream => "tcp_stream 32 KB",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Latput => "latput",
            Self::Netperf => "netperf",
            Self::Iperf3 => "iperf3",
        })
    }
}

impl Kind {
    /// Whether the program has the workload.
    pub fn can(self, load: Load) -> bool {
        self != Self::Iperf3 || load == Load::Stream
    }

    /// Where its server listens.
    pub const fn port(self) -> u16 {
        match self {
            Self::Latput => 0,
            Self::Netperf => 12_865,
            Self::Iperf3 => 5_201,
        }
    }

    /// About how long it takes from start to the first byte of the measured traffic.
    pub const fn setup_time(self) -> Duration {
        match self {
            Self::Latput => Duration::from_millis(300),
            Self::Netperf | Self::Iperf3 => Duration::from_millis(50),
        }
    }

    /// The rate in what the program printed: transactions or bits per second.
    pub fn read_rate(self, load: Load, output: &str) -> Result<f64> {
        let rate = match self {
            Self::Latput => read_latput(load, output),
            Self::Netperf => read_netperf(load, output),
            Self::Iperf3 => read_iperf3(output),
        };
        let start: String = output.chars().take(400).collect();
        rate.with_context(|| format!("cannot find the rate in the output of {self}: {start}"))
    }
}

impl Program {
    /// What to start in the lab beforehand.
    pub fn server_command(&self) -> Option<Vec<String>> {
        let server = self.server.as_ref()?.display().to_string();
        let port = self.kind.port().to_string();
        let arguments: &[&str] = match self.kind {
            Kind::Latput => return None,
            Kind::Netperf => &["-D", "-4", "-L", SERVER_ADDRESS, "-p", &port],
            Kind::Iperf3 => &["-s", "-4", "-B", SERVER_ADDRESS, "-p", &port],
        };
        Some(std::iter::once(server).chain(arguments.iter().map(|&one| one.to_owned())).collect())
    }

    /// Starts one run.
    pub fn start_client(&self, lab: &Lab, bench: Bench) -> Result<Running> {
        if self.kind == Kind::Latput {
            let testbed = lab.testbed.display().to_string();
            return lab.start_latput(&latput_arguments(&testbed, bench));
        }
        let mut command = vec![self.client.display().to_string()];
        let port = self.kind.port();
        command.extend(match self.kind {
            Kind::Netperf => netperf_arguments(port, bench),
            Kind::Iperf3 | Kind::Latput => iperf3_arguments(port, bench),
        });
        lab.start_in(CLIENT, &command)
    }
}

/// The one place that knows latput's command line.
fn latput_arguments(testbed: &str, bench: Bench) -> Vec<String> {
    let (kind, field) = match bench.load {
        Load::Rr => ("tcp_rr", "burst=0"),
        Load::RrBurst => ("tcp_rr", "burst=16"),
        Load::Stream => ("tcp_stream", "message_bytes=32768"),
    };
    let duration = format!("{}s", bench.seconds);
    ["measure", testbed, "--workload", kind, field, "--duration", &duration]
        .into_iter()
        .chain(["--warmup", "200ms", "--repetitions", "1..1", "--json"])
        .map(str::to_owned)
        .collect()
}

fn read_latput(load: Load, output: &str) -> Option<f64> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    let metric = match load {
        Load::Rr | Load::RrBurst => "transactions_per_s",
        Load::Stream => "throughput_bps",
    };
    document["runs"][0]["metrics"][metric].as_f64()
}

/// `-D` sets `TCP_NODELAY` at both ends, as latput does; `-b 16` is 16 more requests in flight.
fn netperf_arguments(port: u16, bench: Bench) -> Vec<String> {
    let test = match bench.load {
        Load::Rr => "-t TCP_RR -- -r 1,1 -D",
        Load::RrBurst => "-t TCP_RR -- -r 1,1 -D -b 16",
        Load::Stream => "-t TCP_STREAM -f m -- -m 32768",
    };
    let seconds = bench.seconds;
    let line = format!("-H {SERVER_ADDRESS} -4 -p {port} -l {seconds} -P 0 {test} -o THROUGHPUT");
    line.split(' ').map(str::to_owned).collect()
}

fn read_netperf(load: Load, output: &str) -> Option<f64> {
    let line = output.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let rate: f64 = line.parse().ok()?;
    Some(if load == Load::Stream { rate * 1e6 } else { rate })
}

fn iperf3_arguments(port: u16, bench: Bench) -> Vec<String> {
    let seconds = bench.seconds;
    let line = format!("-c {SERVER_ADDRESS} -4 -p {port} -t {seconds} -l 32K -J");
    line.split(' ').map(str::to_owned).collect()
}

/// What the receiver got.
fn read_iperf3(output: &str) -> Option<f64> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    document["end"]["sum_received"]["bits_per_second"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_in_what_each_program_prints() {
        let ours = r#"{"runs": [{"metrics": {"transactions_per_s": 5.5, "throughput_bps": 44}}]}"#;
        check_rate(Kind::Latput, Load::Rr, ours, 5.5);
        check_rate(Kind::Latput, Load::Stream, ours, 44.0);
        check_rate(Kind::Netperf, Load::RrBurst, "70787.12\n", 70_787.12);
        check_rate(Kind::Netperf, Load::Stream, "\n9412.5 \n", 9.4125e9);
        let theirs = r#"{"end": {"sum_received": {"bits_per_second": 1.6e10}}}"#;
        check_rate(Kind::Iperf3, Load::Stream, theirs, 1.6e10);
    }

    #[test]
    fn what_cannot_be_read_is_shown() {
        for kind in [Kind::Latput, Kind::Netperf, Kind::Iperf3] {
            let error = kind.read_rate(Load::Stream, "cannot connect").unwrap_err().to_string();
            assert!(error.contains("cannot connect"), "{error}");
        }
    }

    #[track_caller]
    fn check_rate(kind: Kind, load: Load, output: &str, expected: f64) {
        let rate = kind.read_rate(load, output).unwrap();
        assert!((rate / expected - 1.0).abs() < 1e-9, "{rate}");
    }
}
