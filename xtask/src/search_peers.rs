//! `cargo xtask bench-search`: how few trials latput's search needs, beside random search and Optuna's TPE.
//!
//! Hosts are simulated once under every setting, so that the best is known; then every method gets
//! the same hosts, noise and budget. Optuna comes from `PyPI` into a virtual environment under `target/`;
//! without it TPE is left out, and the reason said.

mod table;

use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, cargo, output, python_programs};

/// The version that is compared with.
const OPTUNA: &str = "optuna==5.0.0";
const PROGRAM: &str = include_str!("search_peers/tpe.py");
/// What the tables depend on.
const SOURCES: [&str; 4] =
    ["crates/sim/src", "crates/moderate/src", "data/systems", "crates/model/examples/bench_search"];

/// How often.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench-search                   5 searches of each of 90 cases by each method
  cargo xtask bench-search --seeds 20 --alone

The first run simulates every setting of every host (minutes); later ones read them from target/.")]
pub struct Options {
    /// Searches of each case by each method.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Without Optuna.
    #[arg(long)]
    alone: bool,
}

/// Searches by every method, and prints how many trials each took.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.target.join("bench-search");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the tables")?;
    let bench = build(workspace)?;
    let tables = folder.join(format!("tables-{:016x}.jsonl", fingerprint(&workspace.root)?));
    let status = Command::new(&bench).arg("tabulate").arg(&tables).status()?;
    ensure!(status.success(), "the hosts could not be simulated");
    let seeds = options.seeds.to_string();
    let mut lines = output(Command::new(&bench).arg("run").arg(&tables).arg(&seeds))?;
    let described = output(Command::new(&bench).arg("cases").arg(&tables))?;
    if !options.alone {
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

/// Of everything that the tables are computed from.
fn fingerprint(root: &Path) -> Result<u64> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(&std::fs::read(&file).with_context(|| format!("{}", file.display()))?);
    }
    Ok(hasher.finish())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        // How methods are run changes no table.
        let is_of_methods = ["main.rs", "trials.rs"].iter().any(|name| path.ends_with(name));
        if path.is_dir() {
            collect(&path, files)?;
        } else if !is_of_methods || !folder.ends_with("bench_search") {
            files.push(path);
        }
    }
    Ok(())
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
