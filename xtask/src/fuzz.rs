//! `cargo xtask fuzz`: libFuzzer over everything that reads strangers' bytes, from the inputs that earlier runs found.
//!
//! The flags are those of cargo-fuzz with `-s none`, which a stable compiler takes. What reaches new code is kept in
//! `fuzz/corpus/TARGET` for the next run, what crashes in `fuzz/artifacts/TARGET`; git knows neither.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::workspace::{Workspace, capture_output, cargo_command, make_folder, run_checked};

const TARGETS: &[&str] = &["control", "data", "documents", "figures", "files", "netlink"];
/// Counters of edges, in every crate; compared values guide it to what a parser wants.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    --cfg fuzzing";
/// Of programs that are to run fast.
const RELEASE_FLAGS: &str = "-Cdebug-assertions -Ccodegen-units=1";
/// Longer inputs are not tried.
const INPUT_BYTES_MOST: u32 = 4096;
/// The same of `figures`, whose examples are outputs of programs.
const OUTPUT_BYTES_MOST: u32 = 16_384;
/// An input that takes longer, or more memory, is a finding.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=1024"];

/// Targets to fuzz, and for how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long, all targets together: `30s`, `10m`, `8h`.
    #[arg(long = "for", value_name = "TIME", default_value = "10m", value_parser = parse_time)]
    time: Duration,
    /// This target only.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// Build fast rather than run fast.
    #[arg(skip)]
    is_brief: bool,
}

impl Options {
    /// The size that CI has time for.
    pub const fn sample() -> Self {
        Self { time: Duration::from_secs(30), target: None, is_brief: true }
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600)];
    let time = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        Some(Duration::from_secs(number.checked_mul(*seconds)?))
    });
    time.filter(|time| !time.is_zero()).ok_or_else(|| format!("`{text}` is no time, such as `10m`"))
}

/// Result of a run of libFuzzer.
#[derive(Clone, Copy, Debug, Default)]
struct FuzzStats {
    executions: u64,
    edges: u64,
    edges_all: u64,
}

/// Builds what [`Options::sample`] runs.
pub fn build_sample(workspace: &Workspace) -> Result<()> {
    build_targets(workspace, &workspace.root.join("fuzz"), true).map(drop)
}

/// Builds the targets, runs each, and prints how much it tried; fails at the first crash.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = workspace.root.join("fuzz");
    let programs = build_targets(workspace, &folder, options.is_brief)?;
    let chosen: Vec<&str> = TARGETS
        .iter()
        .copied()
        .filter(|it| options.target.as_deref().is_none_or(|only| only == *it))
        .collect();
    let seconds = (options.time.as_secs() / chosen.len() as u64).max(1);
    println!("{:<10} {:>12} {:>8} {:>8}", "target", "executions", "edges", "of");
    // One on each CPU.
    let next = AtomicUsize::new(0);
    let work = || -> Result<u64> {
        let mut executions = 0;
        while let Some(target) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ran = run_fuzzer(&folder, &programs.join(target), target, seconds)?;
            println!("{target:<10} {:>12} {:>8} {:>8}", ran.executions, ran.edges, ran.edges_all);
            executions += ran.executions;
        }
        Ok(executions)
    };
    let all = std::thread::scope(|scope| -> Result<u64> {
        let cpus = std::thread::available_parallelism()?.get();
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|it| it.join().expect("a worker does not panic")).sum()
    })?;
    println!("{all} executions, no crash, none slower than 10 s or larger than 1 GiB");
    Ok(())
}

/// The folder of the programs.
fn build_targets(workspace: &Workspace, folder: &Path, is_brief: bool) -> Result<PathBuf> {
    // In brief nothing is optimised, and macros and build scripts are those of the tests.
    let (target, profile, made_in, flags) = if is_brief {
        (workspace.target.clone(), "dev", "debug", FLAGS.to_owned())
    } else {
        let flags = format!("{FLAGS} {RELEASE_FLAGS}");
        (workspace.target.join("fuzz"), "release", "release", flags)
    };
    let host = capture_output(Command::new("rustc").arg("-vV"))?;
    let host =
        host.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut command = cargo_command();
    // A target by name, so that build scripts and macros have no counters.
    command.args(["build", "--quiet", "--locked", "--profile", profile, "--target", host]);
    command.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    command.env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", flags);
    run_checked(&mut command).context("the targets cannot be built")?;
    Ok(target.join(host).join(made_in))
}

fn run_fuzzer(folder: &Path, program: &Path, target: &str, seconds: u64) -> Result<FuzzStats> {
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    for folder in [&corpus, &artifacts] {
        make_folder(folder)?;
    }
    // New inputs go to the first folder; the others are to begin with.
    let is_figures = target == "figures";
    let outputs = folder.with_file_name("crates").join("formats/tests");
    let examples = if is_figures { outputs } else { folder.with_file_name("examples") };
    let bytes_most = if is_figures { OUTPUT_BYTES_MOST } else { INPUT_BYTES_MOST };
    let limits = [
        format!("-max_total_time={seconds}"),
        format!("-max_len={bytes_most}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
    ];
    let mut command = Command::new(program);
    let ran = collect_stats(command.args(&limits).args(LIMITS).arg(&corpus).arg(&examples))?;
    ran.with_context(|| format!("{target}: a crash: its input is in {}", artifacts.display()))
}

/// Last output of the command; `None` if it failed.
fn collect_stats(command: &mut Command) -> Result<Option<FuzzStats>> {
    let output = command.stdout(Stdio::null()).output().context("cannot start the target")?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let tail: Vec<&str> = text.lines().rev().take(30).collect();
        println!("{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        return Ok(None);
    }
    let number =
        |text: Option<&str>| text.and_then(|it| it.split_whitespace().next()?.parse().ok());
    let after = |words: &str| text.rsplit_once(words).map(|(_, rest)| rest);
    // `INFO: Loaded 1 modules   (32047 inline 8-bit counters): ...`
    let edges_all = after("modules   (").and_then(|rest| number(Some(rest))).unwrap_or(0);
    Ok(Some(FuzzStats {
        executions: number(after("stat::number_of_executed_units:")).unwrap_or(0),
        edges: number(after(" cov: ")).unwrap_or(0),
        edges_all,
    }))
}
