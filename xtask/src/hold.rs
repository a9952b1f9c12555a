//! `cargo xtask bench-hold`: the daemon on the lab through phases of different load, beside fixed delays.
//!
//! In every round each candidate (each fixed delay, and the daemon under each goal) is put in force and runs
//! through all phases, in an order drawn anew. A phase's figure of a candidate is compared with that
//! of the fixed delay that is best for this phase, within the same round; what is printed is the
//! median over the rounds, with the range.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use latput_units::Rng;
use serde_json::Value;

use crate::peers::lab::{Lab, Running, SERVER};
use crate::workspace::Workspace;

/// How often, and how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, every candidate runs through every phase once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of one phase.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// The order of candidates.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const FIXED_US: [u32; 5] = [0, 20, 50, 100, 200];
const GOALS: [&str; 2] = ["balanced", "cpu"];
const INTERFACE: &str = "lat0";

/// What flows, one after the other; the first comes again at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Requests,
    Bulk,
    Both,
    RequestsAgain,
}

const PHASES: [Phase; 4] = [Phase::Requests, Phase::Bulk, Phase::Both, Phase::RequestsAgain];

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "rr",
            Self::Bulk => "bulk",
            Self::Both => "bulk + echo",
            Self::RequestsAgain => "rr after idle",
        }
    }

    fn workload(self) -> &'static [&'static str] {
        match self {
            Self::Requests | Self::RequestsAgain => &["tcp_rr"],
            Self::Bulk => &["tcp_stream"],
            Self::Both => &["tcp_stream", "probe_hz=200"],
        }
    }

    /// The rate and the tail, by their names in a run's metrics.
    fn metrics(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Requests | Self::RequestsAgain => ("transactions_per_s", Some("latency_ns_p99")),
            Self::Bulk => ("throughput_bps", None),
            Self::Both => ("throughput_bps", Some("probe_ns_p99")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    Fixed(u32),
    Goal(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    tail: Option<f64>,
    cpu: f64,
}

type Round = BTreeMap<(Candidate, Phase), Sample>;

/// Runs the phases and prints the table; the lab is gone afterwards, whatever happens.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.binary();
    let shown = binary.display();
    ensure!(binary.is_file(), "{shown} is missing; run `cargo xtask ci --only build`");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let lab = Lab::up(&binary, &workspace.target, &stop)?;
    let fixed = FIXED_US.iter().map(|us| Candidate::Fixed(*us));
    let mut order: Vec<Candidate> =
        fixed.chain(GOALS.iter().map(|goal| Candidate::Goal(goal))).collect();
    let mut rng = Rng::from_seed(options.seed);
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        rng.shuffle(&mut order);
        let mut samples = Round::new();
        for candidate in &order {
            let _force = put_in_force(&lab, &binary, *candidate)?;
            for phase in PHASES {
                if phase == Phase::RequestsAgain {
                    lab.sleep(Duration::from_secs(1))?;
                }
                let sample = measure(&lab, phase, options.seconds)
                    .with_context(|| format!("{candidate:?}, {} in round {round}", phase.name()))?;
                samples.insert((*candidate, phase), sample);
            }
        }
        rounds.push(samples);
        println!("round {round} of {} done", options.rounds);
    }
    order.sort();
    show(&rounds, &order);
    Ok(())
}

/// A daemon that runs while the value lives; for a fixed delay it is set, and there is none.
fn put_in_force(lab: &Lab, binary: &Path, candidate: Candidate) -> Result<Option<Running>> {
    let binary = binary.display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match candidate {
        Candidate::Fixed(us) => {
            let timeout = format!("gro-flush-timeout={us}us");
            let deferrals = if us == 0 { 0 } else { 1000_u32.div_ceil(us).clamp(2, 100) };
            let deferrals = format!("napi-defer-hard-irqs={deferrals}");
            let set = words(&[&binary, "set", INTERFACE, &timeout, &deferrals]);
            let deadline = Instant::now() + Duration::from_secs(20);
            lab.start_in(SERVER, &set)?.finish(&lab.stop, deadline)?;
            Ok(None)
        }
        Candidate::Goal(goal) => {
            // Nobody reads its log, and a full pipe would hold it up.
            let quiet = words(&["env", "LATPUT_LOG=off"]);
            let daemon = words(&[&binary, "moderate", INTERFACE, "--goal", goal]);
            let running = lab.start_in(SERVER, &[quiet, daemon].concat())?;
            lab.sleep(Duration::from_millis(500))?;
            Ok(Some(running))
        }
    }
}

fn measure(lab: &Lab, phase: Phase, seconds: u32) -> Result<Sample> {
    let mut words = vec!["measure".to_owned(), lab.testbed.display().to_string()];
    let seconds_text = format!("{seconds}s");
    let more = ["--json", "--repetitions", "1..1", "--duration", &seconds_text, "--workload"];
    words.extend(more.iter().chain(phase.workload()).map(|word| (*word).to_owned()));
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds) * 3 + 60);
    let output = lab.start_latput(&words)?.finish(&lab.stop, deadline)?;
    let document: Value = serde_json::from_str(&output).context("`latput measure --json`")?;
    let metrics = &document["runs"][0]["metrics"];
    let figure = |name: &str| metrics[name].as_f64().with_context(|| format!("no {name}"));
    let (rate, tail) = phase.metrics();
    Ok(Sample {
        rate: figure(rate)?,
        tail: tail.map(figure).transpose()?,
        cpu: figure("sut_cpu_busy_ratio")?,
    })
}

fn show(rounds: &[Round], candidates: &[Candidate]) {
    println!(
        "\nrate and p99 as shares of the best fixed delay's of the same phase and round: median (range)"
    );
    println!("{:<14} {:<14} {:>24} {:>24} {:>8}", "phase", "candidate", "rate", "p99", "cpu");
    for phase in PHASES {
        for candidate in candidates {
            let pairs: Vec<(Sample, Sample)> = rounds
                .iter()
                .filter_map(|round| {
                    let own = round.get(&(*candidate, phase))?;
                    let fixed = FIXED_US.iter();
                    let best = fixed
                        .filter_map(|us| round.get(&(Candidate::Fixed(*us), phase)))
                        .max_by(|a, b| a.rate.total_cmp(&b.rate))?;
                    Some((*own, *best))
                })
                .collect();
            let rate = pairs.iter().map(|(own, best)| own.rate / best.rate);
            let tail = pairs.iter().filter_map(|(own, best)| Some(own.tail? / best.tail?));
            let cpu = pairs.iter().map(|(own, _)| own.cpu);
            let name = match candidate {
                Candidate::Fixed(us) => format!("{us} us"),
                Candidate::Goal(goal) => format!("goal {goal}"),
            };
            let (rate, tail) = (spread(rate.collect()), spread(tail.collect()));
            let cpu = spread(cpu.collect());
            println!("{:<14} {name:<14} {rate:>24} {tail:>24} {cpu:>8.6}", phase.name());
        }
    }
}

/// `median (least..most)`.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(least), Some(median), Some(most)) => format!("{median:.2} ({least:.2}..{most:.2})"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_the_median_and_the_range() {
        assert_eq!(spread(vec![0.9, 1.2, 1.0]), "1.00 (0.90..1.20)");
        assert_eq!(spread(Vec::new()), "-");
    }
}
