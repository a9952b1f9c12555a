//! The programs that are compared: how each is started, and how its answer reads.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::lab::{CLIENT, Lab, RunningProcess, SERVER, SERVER_ADDRESS};
use super::load::{PeerWorkload, WorkUnit, split_words};

/// A program with its two ends.
#[derive(Clone, Debug)]
pub struct PeerProgram {
    /// Which.
    pub kind: ProgramKind,
    /// Its sending end.
    pub client: PathBuf,
    /// Its answering end.
    pub server: Option<PathBuf>,
}

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// One run of a workload.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRun {
    /// Its load.
    pub load: PeerWorkload,
    /// How long.
    pub seconds: u32,
}

/// Figures of a program for one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRate {
    /// Transactions, datagrams or bits per second.
    pub rate: f64,
    /// Share of datagrams that were lost.
    pub loss_ratio: Option<f64>,
}

impl fmt::Display for ProgramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Latput => "latput",
            Self::Netperf => "netperf",
            Self::Iperf3 => "iperf3",
            Self::Sockperf => "sockperf",
            Self::Neper => "neper",
            Self::Wrk => "wrk+nginx",
        })
    }
}

impl ProgramKind {
    /// All of them, ours first.
    pub const ALL: &[Self] =
        &[Self::Latput, Self::Netperf, Self::Iperf3, Self::Sockperf, Self::Neper, Self::Wrk];

    /// The peers of latput that have the workload too, in the sense that is compared.
    const fn for_load(load: PeerWorkload) -> &'static [Self] {
        match load {
            PeerWorkload::Rr => &[Self::Netperf, Self::Sockperf],
            PeerWorkload::Burst16 | PeerWorkload::Burst128 => &[Self::Netperf],
            PeerWorkload::Rr100 | PeerWorkload::Rr1000 => &[Self::Neper],
            PeerWorkload::Stream => &[Self::Netperf, Self::Iperf3],
            PeerWorkload::Stream8 | PeerWorkload::Udp | PeerWorkload::UdpUncut => &[Self::Iperf3],
            PeerWorkload::Fetch => &[Self::Wrk],
        }
    }

    /// Whether the program is compared in the workload.
    pub fn supports_load(self, load: PeerWorkload) -> bool {
        self == Self::Latput || Self::for_load(load).contains(&self)
    }

    /// Where its server listens.
    pub const fn server_port(self) -> u16 {
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
    /// Starts its server in the lab and waits until it listens; none where there is none. `scratch` is a
    /// folder for its files.
    pub fn start_server(
        &self,
        lab: &Lab,
        bench: ProgramRun,
        scratch: &Path,
    ) -> Result<Option<RunningProcess>> {
        let Some(server) = &self.server else { return Ok(None) };
        let port = self.kind.server_port();
        let line = match self.kind {
            ProgramKind::Latput => return Ok(None),
            ProgramKind::Netperf => format!("-D -4 -L {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Iperf3 => format!("-s -4 -B {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Sockperf => format!("server --tcp -i {SERVER_ADDRESS} -p {port}"),
            ProgramKind::Neper => {
                format!(
                    "-F {} -l {} -C {port} --nolog",
                    bench.load.connection_count(),
                    bench.seconds
                )
            }
            ProgramKind::Wrk => {
                let folder = super::nginx::prepare_nginx(scratch, port)?;
                format!("-p {0} -c {0}/nginx.conf -e stderr", folder.display())
            }
        };
        let mut command = vec![server.display().to_string()];
        command.extend(split_words(&line));
        let running = lab.start_in(SERVER, &command)?;
        running.wait_until_listening(port)?;
        Ok(Some(running))
    }

    /// Starts one run.
    pub fn start_client(&self, lab: &Lab, bench: ProgramRun) -> Result<RunningProcess> {
        let ProgramRun { load, seconds } = bench;
        let port = self.kind.server_port();
        let arguments = match self.kind {
            ProgramKind::Latput => {
                let testbed = lab.testbed.display().to_string();
                return lab.start_latput(&latput_arguments(&testbed, bench));
            }
            ProgramKind::Netperf => load.for_netperf(port, seconds),
            ProgramKind::Iperf3 => load.for_iperf3(port, seconds),
            // 14 byte is the least that it sends.
            ProgramKind::Sockperf => split_words(&format!(
                "ping-pong --tcp -i {SERVER_ADDRESS} -p {port} -m 14 -t {seconds} --tcp-avoid-nodelay"
            )),
            ProgramKind::Neper => split_words(&format!(
                "-c -H {SERVER_ADDRESS} -C {port} -F {} -l {seconds} --nolog",
                load.connection_count()
            )),
            ProgramKind::Wrk => split_words(&format!(
                "-t 1 -c {} -d {seconds}s http://{SERVER_ADDRESS}:{port}/object",
                load.connection_count()
            )),
        };
        let mut command = vec![self.client.display().to_string()];
        command.extend(arguments);
        lab.start_in(CLIENT, &command)
    }
}

/// The one place that knows latput's command line.
fn latput_arguments(testbed: &str, bench: ProgramRun) -> Vec<String> {
    let duration = format!("{}s", bench.seconds);
    let mut arguments = split_words("measure");
    arguments.push(testbed.to_owned());
    arguments.push("--workload".to_owned());
    arguments.extend(bench.load.for_latput());
    arguments.extend(split_words("--warmup 200ms --repetitions 1..1 --json --duration"));
    arguments.push(duration);
    arguments
}

fn read_latput(load: PeerWorkload, output: &str) -> Option<MeasuredRate> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    let metrics = &document["runs"][0]["metrics"];
    let rate = match load.work_unit() {
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
    Some(rate_without_loss(if load.work_unit() == WorkUnit::Bulk { rate * 1e6 } else { rate }))
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
    use super::*;

    #[test]
    fn rate_is_read_from_each_program() {
        let ours = r#"{"runs": [{"metrics": {"transactions_per_s": 5.5, "throughput_bps": 44}}]}"#;
        check_rate(ProgramKind::Latput, PeerWorkload::Rr, ours, 5.5);
        check_rate(ProgramKind::Latput, PeerWorkload::Stream, ours, 44.0);
        check_rate(ProgramKind::Netperf, PeerWorkload::Burst16, "70787.12\n", 70_787.12);
        check_rate(ProgramKind::Netperf, PeerWorkload::Stream, "\n9412.5 \n", 9.4125e9);
        let theirs = r#"{"end": {"sum_received": {"bits_per_second": 1.6e10}}}"#;
        check_rate(ProgramKind::Iperf3, PeerWorkload::Stream8, theirs, 1.6e10);
        let line = "sockperf: [Total Run] RunTime=9.0 sec; SentMessages=1; ReceivedMessages=1\n\
            sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=14771; ReceivedMessages=11000\n";
        check_rate(ProgramKind::Sockperf, PeerWorkload::Rr, line, 20_000.0);
        check_rate(
            ProgramKind::Neper,
            PeerWorkload::Rr100,
            "local_throughput=1\nthroughput=12354.01\n",
            12_354.01,
        );
        check_rate(
            ProgramKind::Wrk,
            PeerWorkload::Fetch,
            "Requests/sec: 9\nTransfer/sec:      1.50GB\n",
            1.5 * 8.0 * 1024f64.powi(3),
        );
    }

    #[test]
    fn datagrams_are_counted_with_their_loss() {
        let theirs =
            r#"{"end": {"sum_received": {"bits_per_second": 11760000, "lost_percent": 25}}}"#;
        let told = ProgramKind::Iperf3.read(PeerWorkload::Udp, theirs).unwrap();
        assert_eq!(told, MeasuredRate { rate: 1000.0, loss_ratio: Some(0.25) });
        let ours = r#"{"runs": [{"metrics": {"throughput_bps": 11760000, "loss_ratio": 0.5}}]}"#;
        let told = ProgramKind::Latput.read(PeerWorkload::UdpUncut, ours).unwrap();
        assert_eq!(told, MeasuredRate { rate: 1000.0, loss_ratio: Some(0.5) });
    }

    #[test]
    fn what_cannot_be_read_is_shown() {
        for kind in ProgramKind::ALL {
            let error = kind.read(PeerWorkload::Stream, "cannot connect").unwrap_err().to_string();
            assert!(error.contains("cannot connect"), "{error}");
        }
    }

    #[test]
    fn every_load_has_somebody_to_compare_with() {
        for load in PeerWorkload::ALL {
            assert!(!ProgramKind::for_load(*load).is_empty());
            assert!(ProgramKind::Latput.supports_load(*load));
        }
    }

    #[track_caller]
    fn check_rate(kind: ProgramKind, load: PeerWorkload, output: &str, expected: f64) {
        let rate = kind.read(load, output).unwrap().rate;
        assert!((rate / expected - 1.0).abs() < 1e-9, "{rate}");
    }
}
