//! One daemon for a long time through phases drawn at random: it must neither grow nor drift, and leave
//! everything as it was. As the machine drifts too, requests are measured a second time with the daemon stopped.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use latput_stats::order::middle;
use latput_units::SeededRng;
use serde_json::Value;

use super::{
    INTERFACE, LoadPhase, LoadSample, RunningProcess, TrafficLoad, measure_fixed_delay,
    measure_loads, read_status, run_latput, start_daemon, wait_for_rest,
};
use crate::peers::lab::Lab;

/// Phases to draw from: silence, one load, or both.
const PHASES: [&[TrafficLoad]; 6] = [
    &[],
    &[TrafficLoad::Requests],
    &[TrafficLoad::Requests],
    &[TrafficLoad::Bulk],
    &[TrafficLoad::Bulk],
    &[TrafficLoad::Requests, TrafficLoad::Bulk],
];
const PHASE_SECONDS: [u32; 4] = [1, 2, 3, 4];
/// A process that grows by less has not grown: the allocator keeps a page or two.
const GROWTH_BYTES: u64 = 512 * 1024;
/// Shares of the rate without the daemon that differ by more between the first and the last third of the time are a drift.
const DRIFT: f64 = 0.1;

/// Share of the machine that a daemon holds.
#[derive(Clone, Copy, Debug)]
struct ProcessFootprint {
    resident_bytes: u64,
    descriptors: usize,
    threads: usize,
    /// CPU time since its start, in clock ticks.
    ticks: u64,
}

/// A phase of requests under the daemon, and one as long without it.
#[derive(Clone, Copy, Debug)]
struct PairedRates {
    at: Duration,
    rate: f64,
    without: f64,
}

/// Runs the soak and says what it found.
pub(super) fn run(lab: &Lab, binary: &Path, length: Duration, rng: &mut SeededRng) -> Result<()> {
    let knobs = || {
        run_latput(lab, binary, &["show", INTERFACE, "--json"]).map(|text| parse_settings(&text))
    };
    let before = knobs()??;
    let daemon = start_daemon(lab, binary, "standard")?;
    let begun = Instant::now();
    let pid = read_status_number(&read_status(lab, binary)?, "pid")?;
    let mut prints = vec![read_footprint(pid)?];
    let mut turns = Vec::new();
    let mut failed = 0;
    while begun.elapsed() < length {
        let phase = PHASES[rng.next_below(PHASES.len())];
        let seconds = PHASE_SECONDS[rng.next_below(PHASE_SECONDS.len())];
        if phase.is_empty() {
            lab.sleep_interruptible(Duration::from_secs(seconds.into()))?;
        } else {
            let at = begun.elapsed();
            let measured = if phase == [TrafficLoad::Requests] {
                in_turns(lab, binary, &daemon, seconds, rng)
            } else {
                measure_loads(lab, phase, seconds).map(|_| None)
            };
            match measured {
                Ok(rates) => {
                    turns.extend(rates.map(|(rate, without)| PairedRates { at, rate, without }));
                }
                // A load that does not start on a busy machine says nothing of the daemon.
                Err(error) => {
                    failed += 1;
                    println!("a load failed: {error:#}");
                    ensure!(failed * 4 <= prints.len() + 8, "too many loads have failed");
                }
            }
        }
        prints.push(read_footprint(pid)?);
        let status = read_status(lab, binary)?;
        let state = status["state"].as_str().unwrap_or_default();
        ensure!(state == "holding", "after {:?} it is {state}: {status}", begun.elapsed());
        ensure!(read_status_number(&status, "failures")? == 0, "changes have failed: {status}");
    }
    let status = read_status(lab, binary)?;
    drop(daemon); // tells it to end, and waits
    let after = knobs()??;
    check_footprints(&prints, &turns, &status, begun.elapsed())?;
    ensure!(after == before, "the setting is not as before: {before:?} and now {after:?}");
    println!("the setting is as it was before");
    Ok(())
}

/// Requests per second under the daemon, and without it, in random order.
fn in_turns(
    lab: &Lab,
    binary: &Path,
    daemon: &RunningProcess,
    seconds: u32,
    rng: &mut SeededRng,
) -> Result<Option<(f64, f64)>> {
    let rate = |samples: Vec<LoadSample>| samples.first().map(|sample| sample.rate);
    let with = || measure_loads(lab, &[TrafficLoad::Requests], seconds).map(rate);
    let without = || {
        wait_for_rest(lab, binary)?;
        measure_fixed_delay(lab, daemon, 0, LoadPhase::Requests, seconds).map(rate)
    };
    let (rate, without) = if rng.next_below(2) == 0 {
        let without = without()?;
        (with()?, without)
    } else {
        (with()?, without()?)
    };
    Ok(rate.zip(without))
}

fn check_footprints(
    prints: &[ProcessFootprint],
    turns: &[PairedRates],
    status: &Value,
    length: Duration,
) -> Result<()> {
    // The first phases fill buffers and tables.
    let settled = prints.get(prints.len() / 5).context("no footprint")?;
    let (first, last) = (prints.first().context("none")?, prints.last().context("none")?);
    println!(
        "{} phases in {:.0} s: {} decisions, {} changes, {} packets dropped",
        prints.len() - 1,
        length.as_secs_f64(),
        status["decisions"],
        status["changes"],
        status["rx_dropped"]
    );
    let kib = |print: &ProcessFootprint| print.resident_bytes / 1024;
    println!(
        "resident memory {} KiB at the start, {} after a fifth of the time, {} at the end; file descriptors \
         {} to {}; threads {} to {}",
        kib(first),
        kib(settled),
        kib(last),
        first.descriptors,
        last.descriptors,
        first.threads,
        last.threads
    );
    // 100 ticks a second on every Linux (`USER_HZ`).
    let share = last.ticks.saturating_sub(first.ticks) as f64 / length.as_secs_f64();
    println!("{share:.2}% of one CPU");
    let third = length / 3;
    let shares = |is_in: &dyn Fn(Duration) -> bool| {
        let turns = || turns.iter().filter(|turns| is_in(turns.at));
        let rate = middle(turns().map(|turns| turns.rate));
        rate.zip(middle(turns().map(|turns| turns.rate / turns.without)))
    };
    if let (Some((early, of_early)), Some((late, of_late))) =
        (shares(&|at| at < third), shares(&|at| at >= 2 * third))
    {
        println!(
            "requests/s in the first third {early:.0}, {of_early:.3} of what they were seconds apart without the daemon; \
             in the last {late:.0}, {of_late:.3}"
        );
        if (of_late / of_early - 1.0).abs() > DRIFT {
            println!("warning: the shares differ by more than {:.0}%", DRIFT * 100.0);
        }
    }
    let grown = last.resident_bytes.saturating_sub(settled.resident_bytes);
    ensure!(grown < GROWTH_BYTES, "its memory has grown by {grown} bytes");
    ensure!(last.descriptors <= settled.descriptors, "it leaks file descriptors");
    ensure!(last.threads <= settled.threads, "it leaks threads");
    Ok(())
}

fn read_status_number(status: &Value, name: &str) -> Result<u64> {
    status[name].as_u64().with_context(|| format!("the status has no {name}"))
}

/// The knobs of `latput show --json` with their values.
fn parse_settings(text: &str) -> Result<Vec<(Value, Value)>> {
    let mut document: Value = serde_json::from_str(text).context("`latput show --json`")?;
    let knobs = document["knobs"].as_array_mut().context("`latput show --json` has no knobs")?;
    Ok(knobs.iter_mut().map(|knob| (knob["name"].take(), knob["values"].take())).collect())
}

fn read_footprint(pid: u64) -> Result<ProcessFootprint> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    };
    let entries = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        Ok::<_, anyhow::Error>(fs::read_dir(&path).with_context(|| path)?.count())
    };
    let (resident_bytes, ticks) =
        (parse_resident_bytes(&read("status")?)?, parse_cpu_ticks(&read("stat")?)?);
    let (descriptors, threads) = (entries("fd")?, entries("task")?);
    Ok(ProcessFootprint { resident_bytes, descriptors, threads, ticks })
}

/// `VmRSS` of `/proc/PID/status`.
fn parse_resident_bytes(text: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(number.context("no VmRSS in its status")? * 1024)
}

/// User and system time of `/proc/PID/stat`, columns 14 and 15; the name before may hold anything.
fn parse_cpu_ticks(text: &str) -> Result<u64> {
    let (_, columns) = text.rsplit_once(')').context("no name in its stat")?;
    let mut columns =
        columns.split_whitespace().skip(11).map_while(|word| word.parse::<u64>().ok());
    columns.next().zip(columns.next()).map(|(a, b)| a + b).context("no times in its stat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_figures_are_read_despite_name() {
        assert_eq!(parse_resident_bytes("Name:\tx\nVmRSS:\t    1234 kB\n").unwrap(), 1234 * 1024);
        assert!(parse_resident_bytes("VmRSS:\t1234\n").is_err());
        let stat = "7 (a) b c) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20";
        assert_eq!(parse_cpu_ticks(stat).unwrap(), 42);
        assert!(parse_cpu_ticks("7 (a) S 1").is_err());
        let own = read_footprint(u64::from(std::process::id())).unwrap();
        assert!(own.resident_bytes > 0 && own.descriptors > 0 && own.threads > 0);
    }

    #[test]
    fn growth_and_leaks_fail() {
        let at = |resident_bytes, descriptors| ProcessFootprint {
            resident_bytes,
            descriptors,
            threads: 1,
            ticks: 0,
        };
        let check = |last| {
            let settled = at(5 << 20, 8);
            let prints = [at(1 << 20, 8), settled, settled, settled, settled, last];
            check_footprints(&prints, &[], &Value::Null, Duration::from_secs(60))
        };
        check(at(5 << 20, 8)).unwrap();
        assert!(check(at(6 << 20, 8)).unwrap_err().to_string().contains("memory"));
        assert!(check(at(5 << 20, 9)).unwrap_err().to_string().contains("descriptors"));
    }
}
