//! Mean round trips: of ping and of latput's `ping` workload, each over that of its own packets on the wire.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use latput_stats::{Estimate, paired};
use serde::Deserialize;

use super::capture::{CapturedPacket, PacketCapture};
use crate::peers::lab::{CLIENT, Lab, SERVER_ADDRESS};

/// How far latput's ratio may be from ping's.
const GOAL: f64 = 0.05;
const CONFIDENCE: f64 = 0.95;
const PER_SECOND: u32 = 200;
const WARMUP: Duration = Duration::from_millis(200);
const WINDOW: Duration = Duration::from_millis(2800);
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The mean that each program printed, over the mean on the wire; one of each pair of runs.
#[derive(Debug)]
pub struct PingRatios {
    /// Of ping, and of latput.
    ratios: Vec<(f64, f64)>,
}

/// Runs both in turns.
pub fn measure_pings(lab: &Lab, pairs: u32) -> Result<PingRatios> {
    let mut ratios = Vec::new();
    for _ in 0..pairs {
        let whole = Duration::ZERO..Duration::MAX;
        let (ping_us, packets) = run_with_capture(lab, ping_us)?;
        let ping = ping_us / wire_us(&packets, whole).context("ping has no packets")?;
        let (latput_us, packets) = run_with_capture(lab, latput_us)?;
        let window = WARMUP..WARMUP + WINDOW;
        let latput = latput_us / wire_us(&packets, window).context("latput has no packets")?;
        ratios.push((ping, latput));
    }
    Ok(PingRatios { ratios })
}

/// Output of a program, and the packets on the generator's interface meanwhile.
fn run_with_capture(
    lab: &Lab,
    program: fn(&Lab) -> Result<f64>,
) -> Result<(f64, Vec<CapturedPacket>)> {
    let capture = PacketCapture::start(lab, CLIENT)?;
    let mean_us = program(lab)?;
    Ok((mean_us, capture.stop_capture(lab)?))
}

fn ping_us(lab: &Lab) -> Result<f64> {
    let gap = 1.0 / f64::from(PER_SECOND);
    let count = (WARMUP + WINDOW).as_millis() * u128::from(PER_SECOND) / 1000;
    let command = format!("ping -q -i {gap} -c {count} {SERVER_ADDRESS}");
    let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let said =
        lab.start_in(CLIENT, &command)?.wait_for_output(&lab.stop, Instant::now() + ENDS_WITHIN)?;
    mean_of_ping(&said).with_context(|| format!("ping printed no mean: {said}"))
}

/// The mean in `rtt min/avg/max/mdev = 0.047/0.087/1.216/0.051 ms`, in microseconds.
fn mean_of_ping(said: &str) -> Option<f64> {
    let figures = said.lines().find_map(|line| line.strip_prefix("rtt ")?.split_once(" = "))?.1;
    Some(figures.split('/').nth(1)?.parse::<f64>().ok()? * 1e3)
}

fn latput_us(lab: &Lab) -> Result<f64> {
    #[derive(Deserialize)]
    struct PingReport {
        runs: Vec<PingRun>,
    }
    #[derive(Deserialize)]
    struct PingRun {
        metrics: PingMetrics,
    }
    #[derive(Deserialize)]
    struct PingMetrics {
        latency_ns_mean: f64,
    }
    let command = format!(
        "--json measure {} --workload ping rate_hz={PER_SECOND} --warmup {}ms --duration {}ms --repetitions 1..1",
        lab.testbed.display(),
        WARMUP.as_millis(),
        WINDOW.as_millis()
    );
    let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let text =
        lab.start_latput(&command)?.wait_for_output(&lab.stop, Instant::now() + ENDS_WITHIN)?;
    let document: PingReport = serde_json::from_str(&text).context("cannot read latput's JSON")?;
    let [PingRun { metrics }] = &document.runs[..] else { anyhow::bail!("not one run: {text}") };
    Ok(metrics.latency_ns_mean / 1e3)
}

/// The mean time from request to reply on the wire, of requests in a span that begins with the first of them.
fn wire_us(packets: &[CapturedPacket], span: std::ops::Range<Duration>) -> Option<f64> {
    let mut sent = BTreeMap::new();
    let mut first = None;
    let (mut sum, mut count) = (0_u64, 0_u32);
    for packet in packets {
        let Some(echo) = packet.text.strip_prefix("ICMP echo ") else { continue };
        if let Some(of) = echo.strip_prefix("request, ") {
            let first = *first.get_or_insert(packet.at_us);
            let into = Duration::from_micros(packet.at_us.saturating_sub(first));
            sent.extend(span.contains(&into).then(|| (of.to_owned(), packet.at_us)));
        } else if let Some(at_us) = echo.strip_prefix("reply, ").and_then(|of| sent.remove(of)) {
            sum += packet.at_us.saturating_sub(at_us);
            count += 1;
        }
    }
    (count > 0).then(|| sum as f64 / f64::from(count))
}

impl PingRatios {
    /// Whether latput is as near to its wire as ping is.
    pub fn is_good(&self) -> bool {
        self.compute_ratio().is_some_and(|ratio| (ratio.value - 1.0).abs() <= GOAL)
    }

    /// latput's ratio over ping's.
    fn compute_ratio(&self) -> Option<Estimate> {
        paired::ratio(&self.ratios, CONFIDENCE)
    }
}

impl fmt::Display for PingRatios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.ratios.len();
        let mean =
            |of: fn(&(f64, f64)) -> f64| self.ratios.iter().map(of).sum::<f64>() / count as f64;
        writeln!(f, "mean round trip over the wire's, {count} pairs of runs")?;
        writeln!(f, "  ping        {:.3}", mean(|pair| pair.0))?;
        writeln!(f, "  latput      {:.3}", mean(|pair| pair.1))?;
        let Some(Estimate { value, low, high, .. }) = self.compute_ratio() else {
            return write!(f, "  latput/ping: a mean is zero");
        };
        let mark = if self.is_good() { "" } else { " !" };
        write!(
            f,
            "  latput/ping {value:.3} [{low:.3}, {high:.3}]   goal: within {:.0}%{mark}",
            GOAL * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_matches_request_within_span() {
        let packet = |at_us, text: &str| CapturedPacket {
            at_us,
            from_sut: text.contains("reply"),
            text: format!("ICMP echo {text}, length 64"),
        };
        let packets = [
            packet(1_000, "request, id 7, seq 1"),
            packet(1_900, "reply, id 7, seq 1"), // of the warm-up
            packet(6_000, "request, id 7, seq 2"),
            packet(6_010, "request, id 7, seq 3"),
            packet(6_050, "reply, id 7, seq 3"),
            packet(6_080, "reply, id 7, seq 2"),
            packet(6_090, "reply, id 8, seq 2"), // of another program
            packet(9_000, "request, id 7, seq 4"),
            packet(9_900, "reply, id 7, seq 4"), // after the window
        ];
        let millis = Duration::from_millis;
        assert_eq!(wire_us(&packets, millis(2)..millis(8)), Some(60.0));
        assert_eq!(wire_us(&packets, millis(20)..millis(30)), None);
    }

    #[test]
    fn mean_of_ping_is_its_second_figure() {
        let said = "600 packets transmitted, 600 received, 0% packet loss, time 3001ms\n\
            rtt min/avg/max/mdev = 0.047/0.088/1.216/0.051 ms\n";
        assert!((mean_of_ping(said).unwrap() - 88.0).abs() < 1e-9);
        assert_eq!(mean_of_ping("600 packets transmitted"), None);
    }

    #[test]
    fn goal_compares_two_ratios_to_wire() {
        let near = PingRatios { ratios: vec![(1.15, 1.18), (1.16, 1.17)] };
        assert!(near.is_good(), "{near}");
        let far = PingRatios { ratios: vec![(1.00, 1.10), (1.02, 1.12)] };
        assert!(!far.is_good() && far.to_string().ends_with('!'), "{far}");
    }
}
