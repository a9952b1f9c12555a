//! The traffic of the bench, and what it says of itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::WARMUP;
use crate::peers::lab::{CLIENT, INTERFACE, Lab, RunningProcess, SERVER, SERVER_ADDRESS};

const SCRIPT: &str = include_str!("traffic.py");
/// The client's address: its histogram is served there.
const CLIENT_ADDRESS: &str = "198.18.0.1";
pub(super) const PORT: u16 = 7000;
const METRICS_PORT: u16 = 7001;
/// Polls that find nothing before interrupts are back: never, under this load.
pub(super) const POLLS: u32 = 1000;
/// Where the client tells its figures.
pub(super) const ENDPOINT: &str = "http://198.18.0.1:7001/metrics";
const CONNECTIONS: u32 = 20;
/// The load goes up and down once in this time.
const PERIOD_S: u32 = 60;

/// Requests and answers between the lab's hosts.
pub(super) struct ForeignTraffic<'a> {
    lab: &'a Lab,
    script: String,
    /// Today's deferral of the server's NAPI, microseconds.
    pub(super) today_us: u32,
    _server: RunningProcess,
    _client: RunningProcess,
}

/// Figures of a stretch of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrafficFigures {
    /// 99th percentile of the requests' times, as the client tells it.
    pub(super) p99_ns: f64,
    /// Busy time of the server's CPU for a packet that it took or sent.
    pub(super) packet_cpu_ns: f64,
}

impl<'a> ForeignTraffic<'a> {
    /// Starts it, under today's deferral. The server's packets come by NAPI, whose deferral is what the bench sets: a veth of
    /// the lab has GRO on.
    pub(super) fn start(lab: &'a Lab, rate: u32, today_us: u32) -> Result<Self> {
        let script = lab.scratch.join("traffic.py");
        std::fs::write(&script, SCRIPT)
            .context("cannot write the program that makes the traffic")?;
        let script = script.display().to_string();
        let words = |role: &str, more: &[String]| {
            [&["python3".to_owned(), script.clone(), role.to_owned()][..], more].concat()
        };
        let at = [SERVER_ADDRESS.to_owned(), PORT.to_string()];
        let server = lab.start_in(SERVER, &words("server", &at))?;
        server.wait_until_listening(PORT)?;
        let load = [CONNECTIONS, rate, PERIOD_S].map(|number| number.to_string());
        let metrics = [CLIENT_ADDRESS.to_owned(), METRICS_PORT.to_string()];
        let client =
            lab.start_in(CLIENT, &words("client", &[&at[..], &load, &metrics].concat()))?;
        client.wait_until_listening(METRICS_PORT)?;
        lab.sleep_interruptible(WARMUP)?;
        let traffic = Self { lab, script, today_us, _server: server, _client: client };
        traffic.set_deferral(today_us)?;
        Ok(traffic)
    }

    /// Figures of the next seconds.
    pub(super) fn measure_figures(&self, seconds: u32) -> Result<TrafficFigures> {
        let counts = || {
            let idle = idle_us(&self.lab.server_cpus)?;
            Ok::<_, anyhow::Error>((Instant::now(), idle, self.lab.packets_sent()?))
        };
        let (begun, idle, packets) = counts()?;
        let port = METRICS_PORT.to_string();
        let seconds = seconds.to_string();
        let read = ["python3", &self.script, "read", CLIENT_ADDRESS, &port, &seconds];
        let printed = self.lab.output_of(CLIENT, read)?;
        let (ended, later_idle, later_packets) = counts()?;
        let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
        let [Some(Ok(p99_ns)), Some(Ok(requests))] = [numbers.next(), numbers.next()] else {
            anyhow::bail!("the traffic tells `{}`", printed.trim());
        };
        ensure!(requests > 100.0, "{requests} requests in {seconds} s: the traffic has stopped");
        let busy_us = (ended - begun).as_micros() as f64 - later_idle.saturating_sub(idle) as f64;
        // The server takes what the client sends, and answers each.
        let packet_cpu_ns = 1e3 * busy_us / (2.0 * later_packets.saturating_sub(packets) as f64);
        Ok(TrafficFigures { p99_ns, packet_cpu_ns })
    }

    /// Puts a deferral of the server's NAPI in force.
    pub(super) fn set_deferral(&self, microseconds: u32) -> Result<()> {
        let [latput, timeout, defer] = [
            self.lab.latput_path(),
            format!("gro-flush-timeout={microseconds}us"),
            format!("napi-defer-hard-irqs={POLLS}"),
        ];
        self.lab.output_of(SERVER, [&latput, "set", INTERFACE, &timeout, &defer])?;
        self.lab.sleep_interruptible(Duration::from_millis(300))
    }
}

/// Time that a CPU has spent in its idle states, microseconds.
fn idle_us(cpu: &str) -> Result<u64> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let states = std::fs::read_dir(&folder)
        .with_context(|| format!("{folder}: the bench needs the kernel's idle states"))?;
    let mut total = 0;
    for state in states {
        let path = state?.path().join("time");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        total += text.trim().parse::<u64>().with_context(|| path.display().to_string())?;
    }
    Ok(total)
}
