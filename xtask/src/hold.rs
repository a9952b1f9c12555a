//! `cargo xtask bench-hold`: the daemon on the lab through phases of different load, beside fixed delays;
//! or, with `--soak`, for long through phases drawn at random.
//!
//! In every round each candidate (each fixed delay, and the daemon under each goal) is put in force and runs
//! through all phases, in an order drawn anew. Figures are compared within a round, with those of the fixed
//! delay that is best for this phase in the other rounds; the interval is that of the mean of the ratios.

mod soak;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use latput_units::{Nanos, Rng};
use serde_json::Value;

use crate::awake::stay_awake;
use crate::peers::lab::{Lab, Running, SERVER};
use crate::workspace::Workspace;

/// How often, and how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, every candidate runs through every phase once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Seconds of one phase.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// The order of candidates, or of the phases of a soak.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead of rounds, let one daemon run through random phases for so long: `30m`.
    #[arg(long, value_name = "TIME", value_parser = soak_time)]
    soak: Option<Duration>,
    /// Let no CPU halt meanwhile (a latency of 0 in `/dev/cpu_dma_latency`): in a virtual machine halts are its
    /// hypervisor's.
    #[arg(long)]
    awake: bool,
}

/// `5m`, `90s`.
fn soak_time(text: &str) -> Result<Duration, String> {
    let minutes = text.strip_suffix('m').and_then(|number| number.parse::<u64>().ok());
    let time = match minutes {
        Some(minutes) => Duration::from_secs(minutes.saturating_mul(60)),
        None => text.parse::<Nanos>().map(Nanos::as_duration).map_err(|e| e.to_string())?,
    };
    let bounds = Duration::from_secs(30)..=Duration::from_secs(24 * 3600);
    if bounds.contains(&time) { Ok(time) } else { Err("must be from 30s to 24 hours".to_owned()) }
}

const FIXED_US: [u32; 5] = [0, 20, 50, 100, 200];
const GOALS: [&str; 2] = ["balanced", "cpu"];
const INTERFACE: &str = "lat0";

/// What one program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// One request in flight.
    Requests,
    /// One TCP connection that sends as fast as it can.
    Bulk,
}

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
            Self::Both => "both",
            Self::RequestsAgain => "rr after idle",
        }
    }

    fn loads(self) -> &'static [Load] {
        match self {
            Self::Requests | Self::RequestsAgain => &[Load::Requests],
            Self::Bulk => &[Load::Bulk],
            Self::Both => &[Load::Bulk, Load::Requests],
        }
    }
}

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "rr",
            Self::Bulk => "bulk",
        }
    }

    const fn workload(self) -> &'static str {
        match self {
            Self::Requests => "tcp_rr",
            Self::Bulk => "tcp_stream",
        }
    }

    /// The rate and the tail, by their names in a run's metrics.
    const fn metrics(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Requests => ("transactions_per_s", Some("latency_ns_p99")),
            Self::Bulk => ("throughput_bps", None),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidate {
    Fixed(u32),
    Goal(&'static str),
}

/// What one load came to.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: f64,
    tail: Option<f64>,
    cpu: f64,
}

type Round = BTreeMap<(Candidate, Phase, Load), Sample>;

/// Runs the phases and prints the table; the lab is gone afterwards, whatever happens.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.built()?;
    let _until_the_end = options.awake.then(stay_awake).transpose()?;
    let lab = Lab::up(&binary, &workspace.target)?;
    let mut rng = Rng::from_seed(options.seed);
    if let Some(length) = options.soak {
        return soak::run(&lab, &binary, length, &mut rng);
    }
    let fixed = FIXED_US.iter().map(|us| Candidate::Fixed(*us));
    let mut order: Vec<Candidate> =
        fixed.chain(GOALS.iter().map(|goal| Candidate::Goal(goal))).collect();
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
                let measured = measure(&lab, phase.loads(), options.seconds)
                    .with_context(|| format!("{candidate:?}, {} in round {round}", phase.name()))?;
                let loads = phase.loads().iter().zip(measured);
                samples.extend(loads.map(|(load, sample)| ((*candidate, phase, *load), sample)));
            }
        }
        rounds.push(samples);
        println!("round {round} of {} done", options.rounds);
    }
    order.sort();
    print!("{}", table::compare(&rounds, &order));
    Ok(())
}

/// A daemon that runs while the value lives; for a fixed delay it is set, and there is none.
fn put_in_force(lab: &Lab, binary: &Path, candidate: Candidate) -> Result<Option<Running>> {
    match candidate {
        Candidate::Fixed(us) => {
            let deferrals = if us == 0 { 0 } else { 1000_u32.div_ceil(us).clamp(2, 100) };
            let timeout = format!("gro-flush-timeout={us}us");
            let deferrals = format!("napi-defer-hard-irqs={deferrals}");
            ask(lab, binary, &["set", INTERFACE, &timeout, &deferrals])?;
            Ok(None)
        }
        Candidate::Goal(goal) => start_daemon(lab, binary, goal).map(Some),
    }
}

/// A daemon that has had time to start.
fn start_daemon(lab: &Lab, binary: &Path, goal: &str) -> Result<Running> {
    let binary = binary.display().to_string();
    // Nobody reads its log, and a full pipe would hold it up.
    let command = ["env", "LATPUT_LOG=off", &binary, "moderate", INTERFACE, "--goal", goal];
    let running = lab.start_in(SERVER, &command.map(str::to_owned))?;
    lab.sleep(Duration::from_millis(500))?;
    Ok(running)
}

/// What a short command of latput on the answering host prints.
fn ask(lab: &Lab, binary: &Path, words: &[&str]) -> Result<String> {
    let binary = binary.display().to_string();
    let words = std::iter::once(binary).chain(words.iter().map(|word| (*word).to_owned()));
    let deadline = Instant::now() + Duration::from_secs(20);
    lab.start_in(SERVER, &words.collect::<Vec<_>>())?.finish(&lab.stop, deadline)
}

/// Runs loads at the same time.
fn measure(lab: &Lab, loads: &[Load], seconds: u32) -> Result<Vec<Sample>> {
    let duration = format!("{seconds}s");
    let start = |load: &Load| {
        let testbed = lab.testbed.display().to_string();
        let words = ["measure", &testbed, "--json", "--repetitions", "1..1", "--duration"];
        let words = words.into_iter().chain([&*duration, "--workload", load.workload()]);
        lab.start_latput(&words.map(str::to_owned).collect::<Vec<_>>())
    };
    let running: Vec<Running> = loads.iter().map(start).collect::<Result<_>>()?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds) * 3 + 60);
    let finish =
        |(load, running): (&Load, Running)| sample(*load, &running.finish(&lab.stop, deadline)?);
    loads.iter().zip(running).map(finish).collect()
}

fn sample(load: Load, output: &str) -> Result<Sample> {
    let document: Value = serde_json::from_str(output).context("`latput measure --json`")?;
    let metrics = &document["runs"][0]["metrics"];
    let figure = |name: &str| metrics[name].as_f64().with_context(|| format!("no {name}"));
    let (rate, tail) = load.metrics();
    Ok(Sample {
        rate: figure(rate)?,
        tail: tail.map(figure).transpose()?,
        cpu: figure("sut_cpu_busy_ratio")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_is_minutes_or_seconds() {
        assert_eq!(soak_time("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(soak_time("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "m", "1s", "99999999999999999999m", "-5m", "2000m"] {
            assert!(soak_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_those_of_the_load_and_a_missing_one_is_named() {
        let output = r#"{"runs":[{"metrics":{"transactions_per_s":5e3,"latency_ns_p99":2e5,"sut_cpu_busy_ratio":0.4}}]}"#;
        let found = sample(Load::Requests, output).unwrap();
        assert_eq!((found.rate, found.tail, found.cpu), (5e3, Some(2e5), 0.4));
        let error = sample(Load::Bulk, output).unwrap_err().to_string();
        assert_eq!(error, "no throughput_bps");
        assert!(sample(Load::Bulk, "{}").is_err());
    }
}
