//! `cargo xtask bench-peers`: latput's traffic engine against the programs that people use today, between
//! the same two namespaces, in one interleaved run.
//!
//! In every round each program runs each workload once, in an order drawn anew, so that whatever
//! else the machine does falls on all alike. Rates are compared within a round. A program that is not
//! there is skipped, with a line that says so.

mod cpu;
pub mod lab;
mod nginx;
mod program;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use latput_units::SeededRng;

use crate::workspace::{Workspace, find_on_path};
use lab::{Lab, RunningProcess};
use program::{PeerProgram, PeerWorkload, ProgramKind};
use table::PeerSample;

/// Peers may fail in so many runs, less one.
const FAILURES_MAX: u32 = 10;

/// How often, how long, and which programs.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, every program runs every workload once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Seconds of one run.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The order of runs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// netperf, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    netperf: Option<PathBuf>,
    /// netserver, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    netserver: Option<PathBuf>,
    /// sockperf, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    sockperf: Option<PathBuf>,
    /// iperf3, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    iperf3: Option<PathBuf>,
    /// neper's `tcp_rr`, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    neper: Option<PathBuf>,
    /// wrk, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    wrk: Option<PathBuf>,
    /// nginx, if it is not the one on PATH.
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// Let Linux put several small sends into one segment. latput never does with `nodelay`; netperf then
    /// sends 0.4 segments for each transaction of a burst, which is another workload.
    #[arg(long)]
    autocorking: bool,
    /// Compare in this workload only; may be given more than once.
    #[arg(long, value_name = "WORKLOAD", value_parser = parse_load)]
    only: Vec<PeerWorkload>,
}

fn parse_load(name: &str) -> Result<PeerWorkload, String> {
    let names: Vec<&str> = PeerWorkload::all().map(|load| load.name).collect();
    let found = PeerWorkload::all().find(|load| load.name == name);
    found.ok_or_else(|| format!("there are {}", names.join(", ")))
}

/// Runs the comparison and prints it; the lab and the servers are gone afterwards, whatever happens.
///
/// # Errors
///
/// A program fails too often; or the goal at depth 1 is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.build_latput()?;
    let programs = find_programs(options);
    ensure!(programs.len() > 1, "there is nothing to compare latput with");

    let lab = Lab::up(&binary, &workspace.target)?;
    lab.set_autocorking(options.autocorking)?;
    let _servers = start_servers(&lab, &programs, options)?;
    println!(
        "{} rounds of {} s, seed {}; client on CPU {}, server on CPU {}",
        options.rounds, options.seconds, options.seed, lab.client_cpus, lab.server_cpus
    );
    let samples = run_rounds(&lab, &programs, options)?;
    print!("{}", table::render_table(&samples));
    table::check_goal(&samples)
}

/// latput, and every other program that is there; the missing are named.
fn find_programs(options: &Options) -> Vec<PeerProgram> {
    let Options { netperf, netserver, sockperf, iperf3, neper, wrk, nginx, .. } = options;
    if neper.is_none() {
        println!("skipped: neper: name its tcp_rr with --neper");
    }
    let ends = [
        (ProgramKind::Netperf, ("netperf", netperf), ("netserver", netserver)),
        (ProgramKind::Iperf3, ("iperf3", iperf3), ("iperf3", iperf3)),
        (ProgramKind::Sockperf, ("sockperf", sockperf), ("sockperf", sockperf)),
        (ProgramKind::Neper, ("tcp_rr", neper), ("tcp_rr", neper)),
        (ProgramKind::Wrk, ("wrk", wrk), ("nginx", nginx)),
    ];
    let ends = ends.into_iter().filter(|(kind, ..)| *kind != ProgramKind::Neper || neper.is_some());
    let others = ends.filter_map(|(kind, client, server)| {
        let find = |(name, named): (&str, &Option<PathBuf>)| find_program(name, named.as_deref());
        let client = find(client)?;
        Some(PeerProgram { kind, client, server: Some(find(server)?) })
    });
    let ours = PeerProgram { kind: ProgramKind::Latput, client: PathBuf::new(), server: None };
    std::iter::once(ours).chain(others).collect()
}

/// The program named by the user, or else the one on PATH; absolute, since it is started elsewhere. A missing one is named.
fn find_program(name: &str, named: Option<&Path>) -> Option<PathBuf> {
    let found = match named {
        Some(named) => std::fs::canonicalize(named).ok(),
        None => find_on_path(name),
    };
    if found.is_none() {
        let place = named.map_or_else(|| "on PATH".into(), |named| named.display().to_string());
        println!("skipped: {name} is not there ({place})");
    }
    found
}

/// Those that serve one run after the other.
fn start_servers(
    lab: &Lab,
    programs: &[PeerProgram],
    options: &Options,
) -> Result<Vec<RunningProcess>> {
    let mut servers = Vec::new();
    for program in programs.iter().filter(|program| !program.kind.has_a_server_per_run()) {
        if let Some(load) = select_loads(options).find(|load| program.kind.supports_load(*load)) {
            servers.extend(program.start_server(lab, load, options.seconds)?);
        }
    }
    Ok(servers)
}

/// The workloads that are compared.
fn select_loads(options: &Options) -> impl Iterator<Item = PeerWorkload> {
    PeerWorkload::all().filter(|load| options.only.is_empty() || options.only.contains(load))
}

fn run_rounds(lab: &Lab, programs: &[PeerProgram], options: &Options) -> Result<Vec<PeerSample>> {
    let mut runs: Vec<(&PeerProgram, PeerWorkload)> = programs
        .iter()
        .flat_map(|one| select_loads(options).map(move |load| (one, load)))
        .filter(|(one, load)| one.kind.supports_load(*load))
        .collect();
    ensure!(
        runs.iter().any(|(one, _)| one.kind != ProgramKind::Latput),
        "there is nothing to compare latput with in these workloads"
    );
    let mut rng = SeededRng::from_seed(options.seed);
    let mut samples = Vec::new();
    let mut failures = 0;
    for round in 1..=options.rounds {
        rng.shuffle(&mut runs);
        for (program, load) in &runs {
            let name = || format!("{} {} in round {round}", program.kind, load.label);
            match measure_run(lab, program, *load, options.seconds) {
                Ok(sample) => samples.push(PeerSample { round, ..sample }),
                // A run that hangs or ends early costs its round, and not what the others have shown.
                Err(error) if !lab.is_stopped() => {
                    failures += 1;
                    ensure!(
                        failures < FAILURES_MAX,
                        "too many runs failed, {} last: {error:#}",
                        name()
                    );
                    println!("left out: {}: {error:#}", name());
                }
                Err(error) => return Err(error.context(name())),
            }
        }
        println!("round {round} of {} done", options.rounds);
    }
    Ok(samples)
}

/// One run. CPU time is read in the middle half of it, when no program is setting up or leaving.
fn measure_run(
    lab: &Lab,
    program: &PeerProgram,
    load: PeerWorkload,
    seconds: u32,
) -> Result<PeerSample> {
    let length = Duration::from_secs(u64::from(seconds));
    let started = Instant::now();
    let per_run = program.kind.has_a_server_per_run();
    let server = if per_run { program.start_server(lab, load, seconds)? } else { None };
    let client = program.start_client(lab, load, seconds)?;
    lab.sleep_interruptible(program.kind.setup_time() + length / 4)?;
    let before = cpu::busy_time()?;
    let packets = lab.packets_sent()?;
    let window = Instant::now();
    lab.sleep_interruptible(length / 2)?;
    let packets = lab.packets_sent()?.saturating_sub(packets);
    let busy = cpu::busy_time()?.saturating_sub(before);
    let window = window.elapsed();
    let output =
        client.wait_for_output(&lab.stop, started + length * 3 + Duration::from_secs(30))?;
    drop(server);
    let told = program.kind.read(load, &output)?;
    let rate = told.rate;
    ensure!(rate > 0.0, "no traffic flowed");
    let units = window.as_secs_f64() * load.units_per_s(rate);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 packets in a run")]
    let packets = packets as f64 / units;
    Ok(PeerSample {
        round: 0,
        program: program.kind,
        load,
        rate,
        cpu_us: busy.as_secs_f64() * 1e6 / units,
        packets,
        loss_ratio: told.loss_ratio,
    })
}
