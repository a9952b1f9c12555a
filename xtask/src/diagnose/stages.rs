//! `cargo xtask bench-diagnose --stages`: the sum of the waits by stage against the round trip that the program measured.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::TRAFFIC;
use crate::peers::lab::{CLIENT, INTERFACE, Lab, RunningProcess, SERVER, SERVER_ADDRESS};

const REQUESTS: &str = include_str!("stages.py");
/// How far the sum may be from the round trip.
const WITHIN: f64 = 0.1;
/// Seconds of each snapshot; the requests begin before and end after it.
const WINDOW_S: u32 = 5;
const LOAD_S: u32 = 9;
const LOAD_WITHIN: Duration = Duration::from_secs(60);
/// Stages in the way, each with those of which a packet passes one.
const PATH: [(&str, &[&str]); 8] = [
    ("softirq", &["softirq", "napi-thread"]),
    ("napi-thread", &["softirq", "napi-thread"]),
    ("poll", &["poll"]),
    ("protocol", &["protocol"]),
    ("wakeup", &["wakeup", "socket"]),
    ("read", &["wakeup", "socket"]),
    ("socket", &["wakeup", "socket"]),
    ("qdisc", &["qdisc"]),
];
const PROGRAM: (&str, &[&str]) = ("application", &["application"]);

/// A load of requests.
#[derive(Clone, Copy, Debug)]
struct Load {
    name: &'static str,
    /// `tcp` or `udp`.
    kind: &'static str,
    connections: u32,
    answer_size: u32,
    pause_s: f64,
    /// Time that the server computes for each request.
    busy_s: f64,
    /// The moderation of both hosts, in nanoseconds.
    flush_ns: u32,
    has_bulk: bool,
}

const BASE: Load = Load {
    name: "requests, one at a time",
    kind: "tcp",
    connections: 1,
    answer_size: 64,
    pause_s: 0.0,
    busy_s: 0.0,
    flush_ns: 0,
    has_bulk: false,
};
const LOADS: [Load; 8] = [
    BASE,
    Load { name: "8 connections", connections: 8, ..BASE },
    Load { name: "large answers", answer_size: 16_384, ..BASE },
    Load { name: "requests over UDP", kind: "udp", ..BASE },
    Load { name: "moderation of 200 us", flush_ns: 200_000, ..BASE },
    Load { name: "busy server", busy_s: 0.000_3, ..BASE },
    Load { name: "requests beside bulk", has_bulk: true, ..BASE },
    Load { name: "paced requests", pause_s: 0.002, ..BASE },
];

/// Runs the loads, and prints a line for each.
///
/// # Errors
///
/// The goal is missed, or the lab cannot be made.
pub(super) fn compare_loads(binary: &Path, scratch: &Path) -> Result<()> {
    for (name, text) in [("stages.py", REQUESTS), ("traffic.py", TRAFFIC)] {
        std::fs::write(scratch.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let mut missed = 0_u32;
    for load in &LOADS {
        let (sum_ns, measured_ns) = run_load(load, binary, scratch)?;
        let difference = sum_ns / measured_ns - 1.0;
        let is_met = difference.abs() <= WITHIN;
        missed += u32::from(!is_met);
        println!(
            "{:<26} stages {:>9.1} us  program {:>9.1} us  {:>+6.1}%  wanted within {:.0}%: {}",
            load.name,
            sum_ns / 1e3,
            measured_ns / 1e3,
            100.0 * difference,
            100.0 * WITHIN,
            if is_met { "met" } else { "missed" }
        );
    }
    ensure!(missed == 0, "the goal is missed in {missed} of {} loads", LOADS.len());
    Ok(())
}

/// The sum of the stages of both hosts, and the mean round trip.
fn run_load(load: &Load, binary: &Path, scratch: &Path) -> Result<(f64, f64)> {
    let lab = Lab::up(binary, scratch)?;
    let deadline = Instant::now() + LOAD_WITHIN;
    let flush = format!("echo {} > /sys/class/net/{INTERFACE}/gro_flush_timeout", load.flush_ns);
    for host in [CLIENT, SERVER] {
        lab.output_of(host, ["sh", "-c", flush.as_str()])?;
    }
    let start = |host: &str, line: String| lab.start_in(host, ["sh", "-c", line.as_str()]);
    let folder = scratch.display();
    let Load { kind, connections, answer_size, pause_s, busy_s, .. } = *load;
    let _server =
        start(SERVER, format!("exec python3 {folder}/stages.py serve {answer_size} {busy_s}"))?;
    let mut beside: Vec<RunningProcess> = Vec::new();
    if load.has_bulk {
        beside.push(start(SERVER, format!("exec python3 {folder}/traffic.py sink"))?);
        lab.sleep_interruptible(Duration::from_millis(500))?;
        let line = format!("exec python3 {folder}/traffic.py bulk {SERVER_ADDRESS} 1 0");
        beside.push(start(CLIENT, line)?);
    }
    lab.sleep_interruptible(Duration::from_millis(500))?;
    let asked = format!("{SERVER_ADDRESS} {kind} {connections} {answer_size} {pause_s} {LOAD_S}");
    let client = start(CLIENT, format!("exec python3 {folder}/stages.py ask {asked}"))?;
    lab.sleep_interruptible(Duration::from_secs(1))?;
    let latput = lab.latput_path();
    let window = format!("{WINDOW_S}s");
    let words = [latput.as_str(), "diagnose", INTERFACE, "--for", &window, "--json"];
    let [here, there] = [lab.start_in(CLIENT, words)?, lab.start_in(SERVER, words)?];
    let here = here.wait_for_output(&lab.stop, deadline)?;
    let there = there.wait_for_output(&lab.stop, deadline)?;
    let measured = client.wait_for_output(&lab.stop, deadline)?;
    let measured_ns: f64 = measured.trim().parse().context("the program printed no time")?;
    let on_path = sum_stages(&here, &PATH)? + sum_stages(&there, &PATH)?;
    Ok((on_path + sum_stages(&there, &[PROGRAM])?, measured_ns))
}

/// The sum of the mean waits of a diagnosis, weighted by how many packets pass each stage.
fn sum_stages(document: &str, wanted: &[(&str, &[&str])]) -> Result<f64> {
    let document: Value = serde_json::from_str(document).context("the diagnosis is no JSON")?;
    let stages = document["stages"].as_array().context("there are no stages")?;
    ensure!(!stages.is_empty(), "nothing was traced: {}", document["unseen"]);
    let figure = |name: &str, key: &str| {
        let row = stages.iter().find(|row| row["stage"].as_str() == Some(name));
        row.and_then(|row| row[key].as_f64()).unwrap_or(0.0)
    };
    let weigh = |(name, alternatives): &(&str, &[&str])| {
        let passed: f64 = alternatives.iter().map(|it| figure(it, "count")).sum();
        if passed > 0.0 { figure(name, "mean_ns") * figure(name, "count") / passed } else { 0.0 }
    };
    Ok(wanted.iter().map(weigh).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_are_weighted_by_their_counts() {
        let document = r#"{"stages": [
            {"stage": "wakeup", "count": 3, "mean_ns": 4000.0},
            {"stage": "read", "count": 3, "mean_ns": 1000.0},
            {"stage": "socket", "count": 1, "mean_ns": 8000.0},
            {"stage": "ring", "count": 4, "mean_ns": 1e9}]}"#;
        let sum_ns = sum_stages(document, &PATH).unwrap();
        assert!((sum_ns - (3000.0 + 750.0 + 2000.0)).abs() < 1e-6, "{sum_ns}");
        assert!(sum_stages(r#"{"stages": [], "unseen": ["no right"]}"#, &PATH).is_err());
    }
}
