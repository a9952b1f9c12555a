//! `cargo xtask bench-search`: how few trials latput's search needs, beside random search and Optuna's TPE.
//!
//! Hosts are simulated once under every setting, so that the best is known; then every method gets
//! the same hosts, noise and budget. Other optimisers come from `PyPI` into a virtual environment under `target/`;
//! without it they are left out, and the reason said. One set of cases is recorded from the lab.

mod record;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, capture_output, cargo_command, python_programs};

/// The versions that are compared with.
const OPTUNA: &str = "optuna==5.0.0";
/// Figures of every setting of the lab: `bench-search --record` writes it.
const RECORDED: &str = "data/search/lab.jsonl";
const PROGRAM: &str = include_str!("search_peers/others.py");
/// Files that the tables depend on.
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
  cargo xtask bench-search --with smac,ax --every 11 --seeds 2   SMAC3 and Ax too, on every eleventh case
  cargo xtask bench-search --recorded --with smac,ax    on the lab's table
  cargo xtask bench-search --record          measures that table anew: needs root and some ten quiet minutes

The first run simulates every setting of every host (minutes); later ones read them from target/.")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
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
    /// These too.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["alone", "quick"])]
    with: Vec<Optimiser>,
    /// The others search only every N-th case.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_case_step)]
    every: u32,
    /// Other hosts and traffic than those that the search was shaped on.
    #[arg(long)]
    held_out: bool,
    /// The hosts of the lab, as they were recorded.
    #[arg(long, conflicts_with = "held_out")]
    recorded: bool,
    /// Record the lab under every setting, and stop.
    #[arg(long, exclusive = true)]
    record: bool,
}

/// An optimiser that takes seconds for each search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Optimiser {
    /// SMAC3: random forests.
    Smac,
    /// Ax with `BoTorch`: Gaussian processes. Installing it takes 6 GB, and a trial some two seconds.
    Ax,
}

impl Optimiser {
    /// As the program of the others has it, and the package with its version.
    const fn name_and_package(self) -> (&'static str, &'static str) {
        match self {
            Self::Smac => ("smac", "smac==2.4.1"),
            Self::Ax => ("ax", "ax-platform==1.3.1"),
        }
    }
}

/// Cases come three goals to a workload, and four or six workloads to a host: with 9 all others would have one goal.
fn parse_case_step(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(count @ 1..=100) if count == 1 || (count % 2 != 0 && count % 3 != 0) => Ok(count),
        _ => Err("give 1, or a number up to 100 that neither 2 nor 3 divides, such as 11: others leave goals or workloads out".to_owned()),
    }
}

/// Searches by every method, and prints how many trials each took.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench-search");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the tables")?;
    let bench = build_bench(workspace)?;
    if options.record {
        return record::run(workspace, &folder, &bench);
    }
    let fingerprint = workspace.hash_sources(&SOURCES, &OTHERS)?;
    let (set, tables) = match (options.recorded, options.held_out) {
        (true, _) => ("recorded", workspace.root.join(RECORDED)),
        (_, held_out) => {
            let set = if held_out { "held-out" } else { "known" };
            (set, folder.join(format!("tables-{fingerprint:016x}.jsonl")))
        }
    };
    let ask = |what: &str| {
        let mut command = Command::new(&bench);
        command.args([set, what]).arg(&tables).stderr(Stdio::inherit());
        command
    };
    if !options.recorded {
        capture_output(&mut ask("tabulate"))?;
    }
    let seeds = if options.quick { 1 } else { options.seeds }.to_string();
    let mut lines = capture_output(ask("run").arg(&seeds))?;
    let described = capture_output(&mut ask("cases"))?;
    if !options.alone && !options.quick {
        let others = OptimiserRunner { folder: &folder, seeds: &seeds, options };
        match others.install_optimisers() {
            Ok(python) => lines += &others.run(&python, &described)?,
            Err(error) => println!("skipped: no comparison with other optimisers: {error:#}"),
        }
    }
    print!("{}", table::render_table(&lines, &described)?);
    Ok(())
}

fn build_bench(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = cargo_command();
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
    capture_output(cargo.env("CARGO_PROFILE_RELEASE_LTO", "off").current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/examples/bench_search"))
}

/// The other optimisers.
struct OptimiserRunner<'a> {
    folder: &'a Path,
    seeds: &'a str,
    options: &'a Options,
}

impl OptimiserRunner<'_> {
    /// A Python with them, installed once.
    fn install_optimisers(&self) -> Result<PathBuf> {
        let programs = python_programs(&self.folder.join("venv"))?;
        let mut pip = Command::new(programs.join("pip"));
        pip.args(["install", "--quiet", OPTUNA]);
        capture_output(pip.args(self.options.with.iter().map(|it| it.name_and_package().1)))?;
        Ok(programs.join("python"))
    }

    /// Their searches, on every core: a search is one thread.
    fn run(&self, python: &Path, described: &str) -> Result<String> {
        let (program, cases) = (self.folder.join("others.py"), self.folder.join("cases.json"));
        std::fs::write(&program, PROGRAM).context("cannot write the others' program")?;
        let every: Vec<serde_json::Value> =
            serde_json::from_str(described).context("the cases cannot be read")?;
        let some: Vec<_> = every.into_iter().step_by(self.options.every as usize).collect();
        std::fs::write(&cases, serde_json::to_string(&some)?).context("cannot write the cases")?;
        let parts = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |part: usize| {
            let mut command = Command::new(python);
            command.arg(&program).arg(&cases).arg(self.seeds);
            command.args([part.to_string(), parts.to_string(), "tpe".to_owned()]);
            command.args(self.options.with.iter().map(|it| it.name_and_package().0));
            command.env("OMP_NUM_THREADS", "1");
            command.stdout(Stdio::piped()).spawn().context("cannot start Python")
        };
        let running: Vec<_> = (0..parts).map(start).collect::<Result<_>>()?;
        let mut lines = String::new();
        for child in running {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "the others' program failed");
            lines += &String::from_utf8(output.stdout).context("it printed no text")?;
        }
        Ok(lines)
    }
}
