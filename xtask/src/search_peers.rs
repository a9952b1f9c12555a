//! `cargo xtask bench-search`: how few trials latput's search needs, beside random search and Optuna's TPE.
//!
//! Hosts are simulated once under every setting, so that the best is known; then every method gets
//! the same hosts, noise and budget. Optuna comes from `PyPI` into a virtual environment under `target/`;
//! without it TPE is left out, and the reason said.

mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, cargo, output, python_programs};

/// The version that is compared with.
const OPTUNA: &str = "optuna==5.0.0";
const PROGRAM: &str = include_str!("search_peers/tpe.py");
/// What the tables depend on.
const SOURCES: [&str; 4] =
    ["crates/sim/src", "crates/policy/src", "data/systems", "crates/model/examples/bench_search"];
/// and what of it they do not: a policy that no host here has, and how methods are run.
const OTHERS: [&str; 5] = [
    "crates/policy/src/response",
    "crates/policy/src/response.rs",
    "crates/policy/src/ladder.rs",
    "crates/model/examples/bench_search/main.rs",
    "crates/model/examples/bench_search/trials.rs",
];

/// How often.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench-search                   5 searches of each of 90 cases by each method
  cargo xtask bench-search --seeds 20 --alone
  cargo xtask bench-search --held-out        36 cases that the search was not shaped on

The first run simulates every setting of every host (minutes); later ones read them from target/.")]
pub struct Options {
    /// Searches of each case by each method.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Without Optuna.
    #[arg(long)]
    alone: bool,
    /// One search of each case, without Optuna.
    #[arg(long, conflicts_with_all = ["seeds", "alone"])]
    quick: bool,
    /// Other hosts and traffic than those that the search was shaped on.
    #[arg(long)]
    held_out: bool,
}

/// Searches by every method, and prints how many trials each took.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench-search");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the tables")?;
    let bench = build(workspace)?;
    let fingerprint = workspace.fingerprint(&SOURCES, &OTHERS)?;
    let tables = folder.join(format!("tables-{fingerprint:016x}.jsonl"));
    let set = if options.held_out { "held-out" } else { "known" };
    let ask = |what: &str| {
        let mut command = Command::new(&bench);
        command.args([set, what]).arg(&tables).stderr(Stdio::inherit());
        command
    };
    output(&mut ask("tabulate"))?;
    let seeds = if options.quick { 1 } else { options.seeds }.to_string();
    let mut lines = output(ask("run").arg(&seeds))?;
    let described = output(&mut ask("cases"))?;
    if !options.alone && !options.quick {
        match python(&folder) {
            Ok(python) => lines += &tpe(&python, &folder, &described, &seeds)?,
            Err(error) => println!("skipped: no comparison with Optuna: {error:#}"),
        }
    }
    print!("{}", table::compare(&lines, &described)?);
    Ok(())
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "-p",
        "latput-model",
        "--example",
        "bench_search",
    ]);
    // Counts of trials are compared and no times: linking need not be thorough.
    output(cargo.env("CARGO_PROFILE_RELEASE_LTO", "off").current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/examples/bench_search"))
}

/// A Python with Optuna, installed once.
fn python(folder: &Path) -> Result<PathBuf> {
    let programs = python_programs(&folder.join("venv"))?;
    output(Command::new(programs.join("pip")).args(["install", "--quiet", OPTUNA]))?;
    Ok(programs.join("python"))
}

/// On every core: a study is one thread.
fn tpe(python: &Path, folder: &Path, described: &str, seeds: &str) -> Result<String> {
    let (program, cases) = (folder.join("tpe.py"), folder.join("cases.json"));
    std::fs::write(&program, PROGRAM).context("cannot write the peer's program")?;
    std::fs::write(&cases, described).context("cannot write the cases")?;
    let parts = std::thread::available_parallelism().map_or(1, usize::from);
    let start = |part: usize| {
        let mut command = Command::new(python);
        command.arg(&program).arg(&cases).arg(seeds);
        command.args([part.to_string(), parts.to_string()]);
        command.env("OMP_NUM_THREADS", "1");
        command.stdout(Stdio::piped()).spawn().context("cannot start Python")
    };
    let running: Vec<_> = (0..parts).map(start).collect::<Result<_>>()?;
    let mut lines = String::new();
    for child in running {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "Optuna's program failed");
        lines += &String::from_utf8(output.stdout).context("Optuna's program printed no text")?;
    }
    Ok(lines)
}
