//! `cargo xtask bench-command`: compares the rate of a plan's `command` with the rate of latput's own traffic.
//!
//! The commands are netperf's `TCP_RR` and sockperf's ping-pong. latput's workload is `tcp_rr`. One plan has all of them. Each
//! block runs them in random order. CPUs do not halt meanwhile: what waking one up costs is most of a round trip here, and depends on
//! how often anything else wakes it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use latput_stats::paired;
use serde_json::Value;

use crate::awake::stay_awake;
use crate::foreign::ForeignPaths;
use crate::lab_run;
use crate::workspace::Workspace;

const CONFIDENCE: f64 = 0.95;
/// An interval of the ratio of rates that is wider than from this to its inverse shows no agreement.
const CLOSE: f64 = 0.9;

/// How often, how long, and which programs.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Blocks; in each, every program and its counterpart run once.
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(3..=1000))]
    blocks: u32,
    /// Seconds of one run. A program's rate is told from its start on, which takes some 70 ms.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The order of runs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    foreign: ForeignPaths,
    /// Run the lab's processes and NAPI threads under `SCHED_FIFO`, on a machine that has other work.
    #[arg(long)]
    realtime: bool,
    /// This latput instead of one built for it.
    #[arg(long)]
    latput: Option<PathBuf>,
}

/// A foreign program and the workload of latput that is to agree with it.
struct ProgramPair {
    program: &'static str,
    /// Bytes of a request and of its answer.
    bytes: u32,
    server: String,
    command: String,
}

/// A ratio is judged by the rate only: what it costs and its latency are shown beside it.
const RATE: &str = "transactions_per_s";
const SHOWN: [&str; 3] = [RATE, "latency_ns_mean", "sut_service_demand_us"];

/// Runs the plan on the lab and prints the ratios. The exit code tells of a rate that does not agree.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let pairs = find_program_pairs(options);
    ensure!(!pairs.is_empty(), "there is no program to compare with: neither netperf nor sockperf");
    let latput = match &options.latput {
        Some(path) => std::path::absolute(path)?, // it is started elsewhere
        None => workspace.build_latput()?,
    };
    let folder = workspace.target.join("bench-command");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    std::fs::write(folder.join("plan.toml"), render_plan(&pairs, options)?)
        .context("cannot write the plan")?;
    let _unless_there_is_none = std::fs::remove_file(folder.join("results.db"));
    let run = ["run", "plan.toml", "--on", "lab", "-o", "results.db"];
    let _awake = stay_awake()?;
    lab_run::run_latput(&latput, &folder, &run, options.realtime)?;
    let (table, agrees) = compare_rates(&pairs, &read_report(&latput, &folder)?);
    print!("{table}");
    Ok(if agrees { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those whose programs are there; the others are named.
fn find_program_pairs(options: &Options) -> Vec<ProgramPair> {
    // Asked for a latency, netperf takes the time of each transaction, as `tcp_rr` and sockperf do.
    let netperf = options.foreign.find_netperf().map(|(netperf, netserver)| ProgramPair {
        program: "netperf",
        bytes: 1,
        server: format!("{} -D -4 -L {{sut}} -p 12865", netserver.display()),
        command: format!(
            "{} -4 -H {{sut}} -p {{port}} -t TCP_RR -l {{duration_s}} -- -r 1,1 \
             -k THROUGHPUT,THROUGHPUT_UNITS,MEAN_LATENCY",
            netperf.display()
        ),
    });
    let sockperf = options.foreign.find_sockperf().map(|sockperf| ProgramPair {
        program: "sockperf",
        // The least that it sends.
        bytes: 14,
        server: format!("{} server --tcp -i {{sut}} -p 11111", sockperf.display()),
        command: format!(
            "{} ping-pong --tcp -i {{sut}} -p {{port}} -m 14 -t {{duration_s}} --tcp-avoid-nodelay",
            sockperf.display()
        ),
    });
    netperf.into_iter().chain(sockperf).collect()
}

fn render_plan(pairs: &[ProgramPair], options: &Options) -> Result<String> {
    let Options { blocks, seconds, seed, .. } = options;
    let mut plan = "schema = 1\nname = \"a command beside tcp_rr\"\n\n".to_owned();
    for ProgramPair { program, bytes, server, command } in pairs {
        let port = server.rsplit(' ').next().context("a server ends in its port")?;
        let _infallible = write!(
            plan,
            "[[workload]]\nkind = \"tcp_rr\"\nname = \"tcp_rr beside {program}\"\nrequest_bytes = {bytes}\nresponse_bytes = {bytes}\n\n\
             [[workload]]\nkind = \"command\"\nname = \"{program}\"\nserver = {{ command = {server:?}, ready = {{ tcp = {port} }} }}\n\
             command = {command:?}\n\n"
        );
    }
    let _infallible = write!(
        plan,
        "[method]\ndesign = \"blocks\"\nseed = {seed}\nrepetitions = {{ min = {blocks}, max = {blocks} }}\nduration = \"{seconds}s\"\nwarmup = \"200ms\"\n"
    );
    Ok(plan)
}

fn read_report(latput: &Path, folder: &Path) -> Result<Value> {
    let told = Command::new(latput)
        .args(["report", "results.db", "--json"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start latput")?;
    ensure!(told.status.success(), "`latput report` ended with {}", told.status);
    serde_json::from_slice(&told.stdout).context("cannot read the report")
}

/// The table, and whether every rate agrees: the interval of the ratio holds 1, and is no wider than the goal.
fn compare_rates(pairs: &[ProgramPair], report: &Value) -> (String, bool) {
    let mut table = format!(
        "\n{:<10} {:<22} {:>28}  goal: holds 1, within [{CLOSE}, {:.3}]\n",
        "program",
        "figure",
        format!("command/tcp_rr [{:.0}%]", CONFIDENCE * 100.0),
        1.0 / CLOSE
    );
    let mut agrees = true;
    for (idx, pair) in pairs.iter().enumerate() {
        for figure in SHOWN {
            let values = in_blocks(report, 2 * idx, figure);
            if values.is_empty() && figure != RATE {
                continue; // the program does not tell it
            }
            let ratio = paired::ratio(&values, CONFIDENCE);
            let is_held = ratio.as_ref().is_some_and(|it| {
                (it.low..=it.high).contains(&1.0) && it.low >= CLOSE && it.high <= 1.0 / CLOSE
            });
            let text = ratio.map_or_else(
                || "unknown".to_owned(),
                |it| format!("{:.3} [{:.3}, {:.3}] {}", it.value, it.low, it.high, it.runs),
            );
            let verdict = match (figure, is_held) {
                (RATE, true) => "held",
                (RATE, false) => "MISSED",
                _ => "-",
            };
            agrees &= figure != RATE || is_held;
            let _infallible =
                writeln!(table, "{:<10} {figure:<22} {text:>28}  {verdict}", pair.program);
        }
    }
    (table, agrees)
}

/// A figure of a workload and of the next one, by block.
fn in_blocks(report: &Value, workload: usize, figure: &str) -> Vec<(f64, f64)> {
    let runs = report["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let value = |run: &Value| run["metrics"][figure].as_f64();
    let is_of = |run: &&Value, workload: usize| run["workload"].as_u64() == Some(workload as u64);
    let ours = runs.iter().filter(|run| is_of(run, workload));
    let both = ours.filter_map(|ours| {
        let mut same = runs.iter().filter(|run| run["block"] == ours["block"]);
        Some((value(ours)?, value(same.find(|run| is_of(run, workload + 1))?)?))
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_pair() -> ProgramPair {
        ProgramPair {
            program: "p",
            bytes: 1,
            server: "s -p 7".to_owned(),
            command: "c {port}".to_owned(),
        }
    }

    /// Runs of both workloads in blocks of other speed, the command `ratio` times as fast.
    fn example_report(ratios: &[f64]) -> Value {
        let run = |block: usize, workload: u32, rate: f64| serde_json::json!({"block": block, "workload": workload, "metrics": {RATE: rate}});
        let of_block = |(block, ratio): (usize, &f64)| {
            let rate = 100.0 * (block + 1) as f64;
            [run(block, 1, rate * ratio), run(block, 0, rate)]
        };
        let runs: Vec<Value> = ratios.iter().enumerate().flat_map(of_block).collect();
        serde_json::json!({ "runs": runs })
    }

    #[test]
    fn rates_agree_where_a_narrow_interval_holds_1() {
        for (ratios, agrees) in [
            (&[1.01, 0.99, 1.02, 0.98][..], true),
            (&[1.05, 1.05, 1.06, 1.05], false), // another rate
            (&[1.5, 0.5, 1.4, 0.6], false),     // nothing is known
            (&[], false),
        ] {
            let (table, found) = compare_rates(&[example_pair()], &example_report(ratios));
            assert_eq!(found, agrees, "{table}");
        }
    }

    #[test]
    fn plan_names_each_program_with_its_port() {
        let options = Options {
            blocks: 3,
            seconds: 1,
            seed: 1,
            foreign: ForeignPaths::default(),
            realtime: false,
            latput: None,
        };
        let plan: toml::Value =
            toml::from_str(&render_plan(&[example_pair()], &options).unwrap()).unwrap();
        assert_eq!(plan["workload"][1]["server"]["ready"]["tcp"].as_integer(), Some(7));
    }
}
