//! `cargo xtask bench-moderate`: the daemon on the lab through phases of different load, beside fixed delays;
//! or, with `--soak`, for long through phases drawn at random.
//!
//! In every round a daemon under each goal lives through all phases. In each phase it has a turn, and each fixed delay has
//! one while the daemon is stopped (`SIGSTOP`), in an order drawn anew: turns that are compared are seconds apart, so that
//! a machine that is slower for some minutes is so for both. What counts of a turn begins after a second. The daemon's
//! figures are compared with those of the fixed delay that is best for this phase in the other rounds; the interval is
//! that of the mean of the ratios.

mod soak;
mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use latput_units::{Nanos, SeededRng};
use serde_json::Value;

use crate::awake::stay_awake;
use crate::peers::lab::{Lab, RunningProcess, SERVER};
use crate::workspace::Workspace;

/// How often, and how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, a daemon under each goal goes through every phase once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Seconds of a turn; in each phase the daemon and each fixed delay have one.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// The order of turns, or of the phases of a soak.
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
const GOALS: [&str; 2] = ["standard", "save-cpu"];
const INTERFACE: &str = "lat0";
/// Traffic before what counts of a turn: the daemon finds out about a new load in half a second, which would be the p99 of
/// a short turn, and of a long one is nothing.
const WARMUP: &str = "1s";
const DEFERRAL: [&str; 2] =
    ["/sys/class/net/lat0/gro_flush_timeout", "/sys/class/net/lat0/napi_defer_hard_irqs"];

/// Load of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrafficLoad {
    /// One request in flight.
    Requests,
    /// One TCP connection that sends as fast as it can.
    Bulk,
}

/// Loads, one after the other; the first comes again at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoadPhase {
    Requests,
    Bulk,
    Both,
    RequestsAgain,
}

const PHASES: [LoadPhase; 4] =
    [LoadPhase::Requests, LoadPhase::Bulk, LoadPhase::Both, LoadPhase::RequestsAgain];

impl LoadPhase {
    const fn name(self) -> &'static str {
        match self {
            Self::Requests => "rr",
            Self::Bulk => "bulk",
            Self::Both => "both",
            Self::RequestsAgain => "rr after idle",
        }
    }

    fn loads(self) -> &'static [TrafficLoad] {
        match self {
            Self::Requests | Self::RequestsAgain => &[TrafficLoad::Requests],
            Self::Bulk => &[TrafficLoad::Bulk],
            Self::Both => &[TrafficLoad::Bulk, TrafficLoad::Requests],
        }
    }
}

impl TrafficLoad {
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
    const fn metric_names(self) -> (&'static str, Option<&'static str>) {
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

/// Figures of one load.
#[derive(Clone, Copy, Debug)]
struct LoadSample {
    rate: f64,
    tail: Option<f64>,
    cpu: f64,
}

type Round = BTreeMap<(Candidate, LoadPhase, TrafficLoad), LoadSample>;

/// Runs the phases and prints the table; the lab is gone afterwards, whatever happens.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.build_latput()?;
    let _until_the_end = options.awake.then(stay_awake).transpose()?;
    let lab = Lab::up(&binary, &workspace.target)?;
    let mut rng = SeededRng::from_seed(options.seed);
    if let Some(length) = options.soak {
        return soak::run(&lab, &binary, length, &mut rng);
    }
    let mut rounds: BTreeMap<&str, Vec<Round>> = BTreeMap::new();
    for round in 1..=options.rounds {
        for goal in GOALS {
            let samples = live_through(&lab, &binary, goal, options.seconds, &mut rng)
                .with_context(|| format!("goal {goal} in round {round}"))?;
            rounds.entry(goal).or_default().push(samples);
        }
        println!("round {round} of {} done", options.rounds);
    }
    for (goal, rounds) in &rounds {
        print!("{}", table::render_table(rounds, &list_candidates(goal)));
    }
    Ok(())
}

/// Each fixed delay, and the daemon.
fn list_candidates(goal: &'static str) -> Vec<Candidate> {
    let fixed = FIXED_US.iter().map(|us| Candidate::Fixed(*us));
    fixed.chain([Candidate::Goal(goal)]).collect()
}

/// One daemon's life through all phases, and the fixed delays beside it.
fn live_through(
    lab: &Lab,
    binary: &Path,
    goal: &'static str,
    seconds: u32,
    rng: &mut SeededRng,
) -> Result<Round> {
    let daemon = start_daemon(lab, binary, goal)?;
    let mut samples = Round::new();
    for phase in PHASES {
        if phase == LoadPhase::RequestsAgain {
            lab.sleep_interruptible(Duration::from_secs(1))?;
        }
        let mut turns = list_candidates(goal);
        rng.shuffle(&mut turns);
        for candidate in turns {
            let measured = match candidate {
                Candidate::Goal(_) => measure_loads(lab, phase.loads(), seconds),
                Candidate::Fixed(us) => {
                    wait_for_rest(lab, binary)?;
                    measure_fixed_delay(lab, &daemon, us, phase, seconds)
                }
            };
            let measured = measured.with_context(|| format!("{candidate:?}, {}", phase.name()))?;
            let loads = phase.loads().iter().zip(measured);
            samples.extend(loads.map(|(load, sample)| ((candidate, phase, *load), sample)));
        }
    }
    wait_for_rest(lab, binary)?;
    Ok(samples)
}

/// Waits until the daemon has seen that nothing flows and holds no delay, which is what it is to find again: other values
/// it would take for an administrator's.
fn wait_for_rest(lab: &Lab, binary: &Path) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let status = read_status(lab, binary)?;
        ensure!(status["state"] == "holding", "the daemon does not hold any more: {status}");
        if status["delay_ns"] == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the daemon keeps a delay without traffic: {status}");
        lab.sleep_interruptible(Duration::from_millis(50))?;
    }
}

fn read_status(lab: &Lab, binary: &Path) -> Result<Value> {
    let text = run_latput(lab, binary, &["moderate", INTERFACE, "--status", "--json"])?;
    serde_json::from_str(&text).context("`latput moderate --status --json`")
}

/// Figures of a phase under a fixed delay while the daemon is stopped, which finds no delay again.
fn measure_fixed_delay(
    lab: &Lab,
    daemon: &RunningProcess,
    us: u32,
    phase: LoadPhase,
    seconds: u32,
) -> Result<Vec<LoadSample>> {
    let _until_the_end = daemon.pause();
    let deferrals = if us == 0 { 0 } else { 1000_u32.div_ceil(us).clamp(2, 100) };
    set_deferral(lab, [u64::from(us) * 1000, deferrals.into()])?;
    let measured = measure_loads(lab, phase.loads(), seconds);
    set_deferral(lab, [0, 0])?;
    measured
}

/// Sets `gro_flush_timeout` in nanoseconds and `napi_defer_hard_irqs` of the answering host, the device's and with them each
/// NAPI's. latput itself would refuse to set what its daemon holds.
fn set_deferral(lab: &Lab, values: [u64; 2]) -> Result<()> {
    let [timeout, deferrals] = DEFERRAL;
    let [ns, polls] = values;
    let script =
        format!("echo {ns} > {timeout}; echo {polls} > {deferrals}; cat {timeout} {deferrals}");
    let read = lab.output_of(SERVER, ["sh", "-ec", &script])?;
    let is_set = read.split_whitespace().eq([ns.to_string(), polls.to_string()]);
    ensure!(is_set, "the interface does not take {values:?}: {read}");
    Ok(())
}

/// A daemon that has had time to start.
fn start_daemon(lab: &Lab, binary: &Path, goal: &str) -> Result<RunningProcess> {
    let binary = binary.display().to_string();
    // Nobody reads its log, and a full pipe would hold it up.
    let command = ["env", "LATPUT_LOG=off", &binary, "moderate", INTERFACE, "--goal", goal];
    let running = lab.start_in(SERVER, &command.map(str::to_owned))?;
    lab.sleep_interruptible(Duration::from_millis(500))?;
    Ok(running)
}

/// Output of a short latput command on the answering host.
fn run_latput(lab: &Lab, binary: &Path, words: &[&str]) -> Result<String> {
    let binary = binary.display().to_string();
    let words = std::iter::once(binary).chain(words.iter().map(|word| (*word).to_owned()));
    let deadline = Instant::now() + Duration::from_secs(20);
    lab.start_in(SERVER, &words.collect::<Vec<_>>())?.wait_for_output(&lab.stop, deadline)
}

/// Runs loads at the same time.
fn measure_loads(lab: &Lab, loads: &[TrafficLoad], seconds: u32) -> Result<Vec<LoadSample>> {
    let duration = format!("{seconds}s");
    let start = |load: &TrafficLoad| {
        let testbed = lab.testbed.display().to_string();
        let words = ["measure", &testbed, "--json", "--repetitions", "1..1", "--warmup", WARMUP];
        let words = words.into_iter().chain(["--duration", &*duration]);
        let words = words.chain(["--workload", load.workload()]);
        lab.start_latput(&words.map(str::to_owned).collect::<Vec<_>>())
    };
    let running: Vec<RunningProcess> = loads.iter().map(start).collect::<Result<_>>()?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(seconds) * 3 + 60);
    let finish = |(load, running): (&TrafficLoad, RunningProcess)| {
        parse_sample(*load, &running.wait_for_output(&lab.stop, deadline)?)
    };
    loads.iter().zip(running).map(finish).collect()
}

fn parse_sample(load: TrafficLoad, output: &str) -> Result<LoadSample> {
    let document: Value = serde_json::from_str(output).context("`latput measure --json`")?;
    let metrics = &document["runs"][0]["metrics"];
    let figure = |name: &str| metrics[name].as_f64().with_context(|| format!("no {name}"));
    let (rate, tail) = load.metric_names();
    Ok(LoadSample {
        rate: figure(rate)?,
        tail: tail.map(figure).transpose()?,
        cpu: figure("sut_cpu_busy_ratio")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_is_minutes_or_seconds() {
        assert_eq!(soak_time("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(soak_time("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "m", "1s", "99999999999999999999m", "-5m", "2000m"] {
            assert!(soak_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_load_figure_is_named() {
        let output = r#"{"runs":[{"metrics":{"transactions_per_s":5e3,"latency_ns_p99":2e5,"sut_cpu_busy_ratio":0.4}}]}"#;
        let found = parse_sample(TrafficLoad::Requests, output).unwrap();
        assert_eq!((found.rate, found.tail, found.cpu), (5e3, Some(2e5), 0.4));
        let error = parse_sample(TrafficLoad::Bulk, output).unwrap_err().to_string();
        assert_eq!(error, "no throughput_bps");
        assert!(parse_sample(TrafficLoad::Bulk, "{}").is_err());
    }
}
