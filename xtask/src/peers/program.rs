//! The programs and workloads that are compared: how each is started, and how its answer reads.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::{CLIENT, Lab, RunningProcess, SERVER, SERVER_ADDRESS};
use super::nginx::prepare_nginx;

/// Payload of a datagram.
const DATAGRAM_BYTES: f64 = 1470.0;

/// The workloads. The columns are the name on the command line, the name in the table, and latput's kind and fields. Peers
/// that have the workload follow, with their words for it. netperf's `-D` sets `TCP_NODELAY` at both ends, as latput
/// does; `-b 16` is 16 more requests in flight. iperf3's `-b 0` is no limit, which datagrams have otherwise.
const WORKLOADS: &str = "\
rr        | tcp_rr            | tcp_rr burst=0   | netperf -t TCP_RR -- -r 1,1 -D | sockperf
burst16   | tcp_rr burst 16   | tcp_rr burst=16  | netperf -t TCP_RR -- -r 1,1 -D -b 16
burst128  | tcp_rr burst 128  | tcp_rr burst=128 | netperf -t TCP_RR -- -r 1,1 -D -b 128
rr100     | tcp_rr 100 conn   | tcp_rr connections=100  | neper
rr1000    | tcp_rr 1000 conn  | tcp_rr connections=1000 | neper
stream    | tcp_stream 32 KB  | tcp_stream message_bytes=32768 | netperf -t TCP_STREAM -f m -- -m 32768 | iperf3 -l 32K
stream8   | tcp_stream 8 conn | tcp_stream message_bytes=32768 connections=8 | iperf3 -l 32K -P 8
udp       | udp_stream 1470   | udp_stream datagram_bytes=1470 rate=max | iperf3 -u -b 0 -l 1470
udp-uncut | udp_stream uncut  | udp_stream datagram_bytes=1470 rate=max segmentation=false | iperf3 -u -b 0 -l 1470
fetch     | fetch 1000 conn   | fetch connections=1000 object_bytes=1000000 | wrk+nginx";

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Ours.
    Latput,
    /// <https://github.com/HewlettPackard/netperf>
    Netperf,
    /// <https://github.com/esnet/iperf>
    Iperf3,
    /// <https://github.com/Mellanox/sockperf>
    Sockperf,
    /// <https://github.com/google/neper>
    Neper,
    /// <https://github.com/wg/wrk>, with nginx as its server.
    Wrk,
}

/// Unit of a workload's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkUnit {
    /// Requests and responses.
    Transactions,
    /// Bytes in order.
    Bulk,
    /// Datagrams that came.
    Datagrams,
}

/// A workload that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWorkload {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its name in the table.
    pub label: &'static str,
    latput: &'static str,
    peers: &'static str,
}

/// A program with its two ends.
#[derive(Clone, Debug)]
pub struct PeerProgram {
    /// The program.
    pub kind: ProgramKind,
    /// Its sending end.
    pub client: PathBuf,
    /// Its answering end.
    pub server: Option<PathBuf>,
}

/// Figures of a program for one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRate {
    /// Transactions, datagrams or bits per second.
    pub rate: f64,
    /// Share of datagrams that were lost.
    pub loss_ratio: Option<f64>,
}

impl PeerWorkload {
    /// All of them, in the order of tables.
    pub fn all() -> impl Iterator<Item = Self> {
        WORKLOADS.lines().map(|line| {
            let mut cells = line.splitn(4, '|').map(str::trim);
            let mut cell = || cells.next().unwrap_or_default();
            Self { name: cell(), label: cell(), latput: cell(), peers: cell() }
        })
    }

    /// Unit of its work.
    pub fn unit(self) -> WorkUnit {
        match self.latput.split(' ').next() {
            Some("tcp_rr") => WorkUnit::Transactions,
            Some("udp_stream") => WorkUnit::Datagrams,
            _ => WorkUnit::Bulk,
        }
    }

    /// The unit of the rate, and the unit of work whose CPU cost is told.
    pub fn unit_labels(self) -> (&'static str, &'static str) {
        match self.unit() {
            WorkUnit::Transactions => ("1/s", "us/transaction"),
            WorkUnit::Bulk => ("bit/s", "us/KB"),
            WorkUnit::Datagrams => ("pkt/s", "us/packet"),
        }
    }

    /// Units of work per second at a rate: transactions, datagrams, or KB of 1024 byte.
    pub fn units_per_s(self, rate: f64) -> f64 {
        if self.unit() == WorkUnit::Bulk { rate / 8.0 / 1024.0 } else { rate }
    }

    /// The rate that goodput in bit/s is.
    fn rate_of_goodput(self, bps: f64) -> f64 {
        if self.unit() == WorkUnit::Datagrams { bps / 8.0 / DATAGRAM_BYTES } else { bps }
    }

    /// How many connections it has.
    fn connections(self) -> &'static str {
        let given = self.latput.split(' ').find_map(|word| word.strip_prefix("connections="));
        given.unwrap_or("1")
    }

    /// The words that ask a peer for it; `None` if the peer has it not.
    fn peer_words(self, kind: ProgramKind) -> Option<&'static str> {
        self.peers.split('|').find_map(|cell| cell.trim().strip_prefix(kind.name()))
    }
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ProgramKind {
    /// All of them, ours first.
    pub const ALL: &[Self] =
        &[Self::Latput, Self::Netperf, Self::Iperf3, Self::Sockperf, Self::Neper, Self::Wrk];

    const fn name(self) -> &'static str {
        match self {
            Self::Latput => "latput",
            Self::Netperf => "netperf",
            Self::Iperf3 => "iperf3",
            Self::Sockperf => "sockperf",
            Self::Neper => "neper",
            Self::Wrk => "wrk+nginx",
        }
    }

    /// Whether the program is compared in the workload.
    pub fn supports_load(self, load: PeerWorkload) -> bool {
        self == Self::Latput || load.peer_words(self).is_some()
    }

    /// Where its server listens.
    const fn server_port(self) -> u16 {
        match self {
            Self::Latput => 0,
            Self::Netperf => 12_865,
            Self::Iperf3 => 5_201,
            Self::Sockperf => 11_111,
            Self::Neper => 12_866,
            Self::Wrk => 8_080,
        }
    }

    /// Whether each run has a server of its own: neper's serves one run only, and iperf3's is busy for ever
    /// with a client that has hung.
    pub const fn has_a_server_per_run(self) -> bool {
        matches!(self, Self::Neper | Self::Iperf3)
    }

    /// About how long it takes from start to the first byte of the measured traffic.
    pub const fn setup_time(self) -> Duration {
        match self {
            Self::Latput => Duration::from_millis(300),
            // It sleeps for two seconds, then warms up.
            Self::Sockperf => Duration::from_millis(2100),
            _ => Duration::from_millis(50),
        }
    }

    /// Reads the figures that the program printed.
    pub fn read(self, load: PeerWorkload, output: &str) -> Result<MeasuredRate> {
        let told = match self {
            Self::Latput => read_latput(load, output),
            Self::Netperf => read_netperf(load, output),
            Self::Iperf3 => read_iperf3(load, output),
            Self::Sockperf => read_sockperf(output),
            Self::Neper => read_neper(output),
            Self::Wrk => read_wrk(output),
        };
        let start: String = output.chars().take(400).collect();
        told.with_context(|| format!("cannot find the rate in the output of {self}: {start}"))
    }
}

impl PeerProgram {
    /// Starts its server in the lab and waits until it listens; none where there is none.
    pub fn start_server(
        &self,
        lab: &Lab,
        load: PeerWorkload,
        seconds: u32,
    ) -> Result<Option<RunningProcess>> {
        let Some(server) = &self.server else { return Ok(None) };
        let port = self.kind.server_port();
        let line = match self.kind {
            ProgramKind::Latput => return Ok(None),
            ProgramKind::Netperf => format!("-D -4 -L {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Iperf3 => format!("-s -4 -B {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Sockperf => format!("server --tcp -i {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Neper => {
                format!("-F {} -l {seconds} -C {port} --nolog", load.connections())
            }
            ProgramKind::Wrk => {
                let folder = prepare_nginx(&lab.scratch, port)?;
                format!("-p {0} -c {0}/nginx.conf -e stderr", folder.display())
            }
        };
        let running = lab.start_in(SERVER, command_words(server, &line))?;
        running.wait_until_listening(port)?;
        Ok(Some(running))
    }

    /// Starts one run.
    pub fn start_client(
        &self,
        lab: &Lab,
        load: PeerWorkload,
        seconds: u32,
    ) -> Result<RunningProcess> {
        let (port, to) = (self.kind.server_port(), SERVER_ADDRESS);
        let (test, flows) = (load.peer_words(self.kind).unwrap_or_default(), load.connections());
        let line = match self.kind {
            ProgramKind::Latput => {
                let line = format!(
                    "--workload {} --warmup 200ms --repetitions 1..1 --json --duration {seconds}s",
                    load.latput
                );
                let words = command_words(&lab.testbed, &line);
                return lab.start_latput(std::iter::once(OsStr::new("measure")).chain(words));
            }
            ProgramKind::Netperf => {
                format!("-H {to} -4 -p {port} -l {seconds} -P 0 {test} -o THROUGHPUT")
            }
            ProgramKind::Iperf3 => format!("-c {to} -4 -p {port} -t {seconds} {test} -J"),
            // 14 byte is the least that it sends.
            ProgramKind::Sockperf => {
                format!("ping-pong --tcp -i {to} -p {port} -m 14 -t {seconds} --tcp-avoid-nodelay")
            }
            ProgramKind::Neper => {
                format!("-c -H {to} -C {port} -F {flows} -l {seconds} --nolog")
            }
            ProgramKind::Wrk => format!("-t 1 -c {flows} -d {seconds}s http://{to}:{port}/object"),
        };
        lab.start_in(CLIENT, command_words(&self.client, &line))
    }
}

/// A path and the words of a line without quotes.
fn command_words<'a>(first: &'a Path, line: &'a str) -> impl Iterator<Item = &'a OsStr> {
    std::iter::once(first.as_os_str()).chain(line.split_whitespace().map(OsStr::new))
}

fn read_latput(load: PeerWorkload, output: &str) -> Option<MeasuredRate> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    let metrics = &document["runs"][0]["metrics"];
    let rate = match load.unit() {
        WorkUnit::Transactions => metrics["transactions_per_s"].as_f64()?,
        WorkUnit::Bulk | WorkUnit::Datagrams => {
            load.rate_of_goodput(metrics["throughput_bps"].as_f64()?)
        }
    };
    Some(MeasuredRate { rate, loss_ratio: metrics["loss_ratio"].as_f64() })
}

fn read_netperf(load: PeerWorkload, output: &str) -> Option<MeasuredRate> {
    let line = output.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let rate: f64 = line.parse().ok()?;
    Some(rate_without_loss(if load.unit() == WorkUnit::Bulk { rate * 1e6 } else { rate }))
}

/// Reads the receiver's figures.
fn read_iperf3(load: PeerWorkload, output: &str) -> Option<MeasuredRate> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    let received = &document["end"]["sum_received"];
    let bps = received["bits_per_second"].as_f64()?;
    let loss_ratio = received["lost_percent"].as_f64().map(|percent| percent / 100.0);
    Some(MeasuredRate { rate: load.rate_of_goodput(bps), loss_ratio })
}

/// `sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=14771; ReceivedMessages=14771`
fn read_sockperf(output: &str) -> Option<MeasuredRate> {
    let line = output.lines().find(|line| line.contains("[Valid Duration]"))?;
    let field = |name: &str| {
        let rest = line.split_once(name)?.1.trim_start_matches('=');
        rest.split([' ', ';']).next()?.parse::<f64>().ok()
    };
    Some(rate_without_loss(
        field("ReceivedMessages")? / field("RunTime").filter(|time| *time > 0.0)?,
    ))
}

/// `throughput=12354.01`
fn read_neper(output: &str) -> Option<MeasuredRate> {
    let rate = output.lines().find_map(|line| line.strip_prefix("throughput="))?;
    rate.trim().parse().ok().map(rate_without_loss)
}

/// `Transfer/sec:      1.23GB`, in powers of 1024.
fn read_wrk(output: &str) -> Option<MeasuredRate> {
    let text = output.lines().find_map(|line| line.trim().strip_prefix("Transfer/sec:"))?.trim();
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(digits);
    let scale: f64 = match unit {
        "B" => 1.0,
        "KB" => 1024.0,
        "MB" => 1_048_576.0,
        "GB" => 1_073_741_824.0,
        _ => return None,
    };
    Some(rate_without_loss(number.trim().parse::<f64>().ok()? * scale * 8.0))
}

fn rate_without_loss(rate: f64) -> MeasuredRate {
    MeasuredRate { rate, loss_ratio: None }
}

#[cfg(test)]
mod tests {
    use super::super::nginx::OBJECT_BYTES;
    use super::*;

    fn named(name: &str) -> PeerWorkload {
        PeerWorkload::all().find(|load| load.name == name).unwrap()
    }

    #[test]
    fn rate_is_read_from_each_program() {
        let ours = r#"{"runs": [{"metrics": {"transactions_per_s": 5.5, "throughput_bps": 44}}]}"#;
        check_rate(ProgramKind::Latput, "rr", ours, 5.5);
        check_rate(ProgramKind::Latput, "stream", ours, 44.0);
        check_rate(ProgramKind::Netperf, "burst16", "70787.12\n", 70_787.12);
        check_rate(ProgramKind::Netperf, "stream", "\n9412.5 \n", 9.4125e9);
        let theirs = r#"{"end": {"sum_received": {"bits_per_second": 1.6e10}}}"#;
        check_rate(ProgramKind::Iperf3, "stream8", theirs, 1.6e10);
        let line = "sockperf: [Total Run] RunTime=9.0 sec; SentMessages=1; ReceivedMessages=1\n\
            sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=14771; ReceivedMessages=11000\n";
        check_rate(ProgramKind::Sockperf, "rr", line, 20_000.0);
        check_rate(
            ProgramKind::Neper,
            "rr100",
            "local_throughput=1\nthroughput=12354.01\n",
            12_354.01,
        );
        check_rate(
            ProgramKind::Wrk,
            "fetch",
            "Requests/sec: 9\nTransfer/sec:      1.50GB\n",
            1.5 * 8.0 * 1024f64.powi(3),
        );
    }

    #[test]
    fn datagrams_are_counted_with_their_loss() {
        let theirs =
            r#"{"end": {"sum_received": {"bits_per_second": 11760000, "lost_percent": 25}}}"#;
        let told = ProgramKind::Iperf3.read(named("udp"), theirs).unwrap();
        assert_eq!(told, MeasuredRate { rate: 1000.0, loss_ratio: Some(0.25) });
        let ours = r#"{"runs": [{"metrics": {"throughput_bps": 11760000, "loss_ratio": 0.5}}]}"#;
        let told = ProgramKind::Latput.read(named("udp-uncut"), ours).unwrap();
        assert_eq!(told, MeasuredRate { rate: 1000.0, loss_ratio: Some(0.5) });
    }

    #[test]
    fn what_cannot_be_read_is_shown() {
        for kind in ProgramKind::ALL {
            let error = kind.read(named("stream"), "cannot connect").unwrap_err().to_string();
            assert!(error.contains("cannot connect"), "{error}");
        }
    }

    #[test]
    fn every_load_has_somebody_to_compare_with() {
        for load in PeerWorkload::all() {
            assert!(ProgramKind::ALL[1..].iter().any(|kind| kind.supports_load(load)), "{load:?}");
            assert!(ProgramKind::Latput.supports_load(load));
        }
        assert_eq!(named("rr1000").connections(), "1000");
        assert_eq!(named("stream8").peer_words(ProgramKind::Iperf3), Some(" -l 32K -P 8"));
        assert!(named("fetch").latput.ends_with(&format!("object_bytes={OBJECT_BYTES}")));
    }

    #[track_caller]
    fn check_rate(kind: ProgramKind, load: &str, output: &str, expected: f64) {
        let rate = kind.read(named(load), output).unwrap().rate;
        assert!((rate / expected - 1.0).abs() < 1e-9, "{rate}");
    }
}
