//! `cargo xtask mutants`: breaks the code in one place at a time (cargo-mutants, <https://mutants.rs>), runs
//! the tests of its crate, and counts the breaks that no test sees.
//!
//! `.cargo/mutants.toml` says what is broken, `xtask/mutants.toml` which survivors are accepted and why.

mod judge;
mod sample;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::workspace::{Workspace, capture_output, cargo_command, folder_of};
use judge::{AcceptedSurvivors, MutantOutcome, PackageVerdict};

/// Draws of each property test, and where they begin: a survivor of one run is one of the next.
const PROPERTY_TESTS: [(&str, &str); 2] = [("PROPTEST_CASES", "64"), ("PROPTEST_RNG_SEED", "1")];

/// Their names are one argument of a command, for which Linux has 128 KiB.
const MOST_DRAWN: i64 = 500;

/// Which of them.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask mutants                               all of them: hours
  cargo xtask mutants --package latput-stats
  cargo xtask mutants --package latput-model --shard 0/20
  cargo xtask mutants --package latput-model --sample 150 --seed 7

A sample says how large the share of survivors is in the whole package: its interval of 95% is Wilson's.

Logs and diffs of each mutant are in target/mutants/<package>/mutants.out.")]
pub struct Options {
    /// Every N-th mutant of each package, from K, which counts from 0: a sample of all its files.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// A random choice of this many mutants of each package.
    #[arg(long, value_name = "N", conflicts_with = "shard", value_parser = clap::value_parser!(u32).range(1..=MOST_DRAWN))]
    sample: Option<u32>,
    /// Another seed draws another sample.
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
    /// This package only; may be given more than once.
    #[arg(long, value_name = "PACKAGE")]
    package: Vec<String>,
}

/// One break of the code, as cargo-mutants lists it.
#[derive(Clone, Debug, Deserialize)]
struct ListedMutant {
    name: String,
    package: String,
}

impl Options {
    /// The sample of a package's `mutants`, if one is wanted.
    fn sample_mutants<'a>(&self, mutants: &'a [String]) -> Option<Vec<&'a str>> {
        let names: Vec<&str> = mutants.iter().map(String::as_str).collect();
        Some(sample::draw_sample(&names, self.sample? as usize, self.seed))
    }

    /// The arguments of cargo-mutants that choose among a package's mutants.
    fn selection_arguments(&self, drawn: Option<&[&str]>) -> Vec<String> {
        if let Some(drawn) = drawn {
            return vec![format!("--re={}", sample::build_pattern(drawn))];
        }
        let part = |shard| [format!("--shard={shard}"), "--sharding=round-robin".to_owned()];
        self.shard.as_ref().into_iter().flat_map(part).collect()
    }
}

/// Runs the chosen ones; an error where too many survive, or a line of the accepted is out of date.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    install_cargo_mutants()?;
    let text = std::fs::read_to_string(workspace.root.join("xtask/mutants.toml"))
        .context("cannot read xtask/mutants.toml")?;
    let accepted = AcceptedSurvivors::parse(&text)?;
    let listed = list_mutants(workspace)?;
    accepted.check_listed(listed.values().flatten().map(|name| judge::without_place(name)))?;
    let mut packages: Vec<&String> = listed.keys().collect();
    for name in &options.package {
        ensure!(
            listed.contains_key(name),
            "no mutants of `{name}` are in scope; the packages are {packages:?}"
        );
    }
    packages.retain(|name| options.package.is_empty() || options.package.contains(name));
    let mut verdicts = Vec::new();
    for package in packages {
        let started = Instant::now();
        let mutants = &listed[package];
        let drawn = options.sample_mutants(mutants);
        let mut outcomes =
            test_mutants(workspace, package, &options.selection_arguments(drawn.as_deref()))?;
        // cargo-mutants 27.1 runs each mutant that deletes a field, whatever `--re` says.
        outcomes.retain(|it| drawn.as_ref().is_none_or(|drawn| drawn.contains(&&*it.name)));
        let outcomes: Vec<MutantOutcome> =
            outcomes.into_iter().map(MutantOutcome::without_place).collect();
        let names: Vec<String> = mutants.iter().map(|name| judge::without_place(name)).collect();
        let verdict = PackageVerdict::new(package, &outcomes, &names, &accepted);
        println!("{verdict}  {:.0} s", started.elapsed().as_secs_f64());
        verdicts.push(verdict);
    }
    println!("\n{}", judge::HEADER);
    for verdict in &verdicts {
        println!("{verdict}");
    }
    if options.sample.is_some() {
        println!(
            "\nOf each package's viable mutants, those of the sample that survive and are not accepted:"
        );
        for verdict in &verdicts {
            println!("{}", verdict.format_share());
        }
    }
    let mut is_good = true;
    for verdict in &verdicts {
        for line in verdict.list_complaints() {
            println!("{line}");
        }
        is_good &= verdict.is_good();
    }
    ensure!(is_good, "mutants survive that are not accepted, or accepted ones do not");
    Ok(())
}

/// A debug build takes half as long, and most of the time goes to the compiler and the tests.
fn install_cargo_mutants() -> Result<()> {
    let there = cargo_command().args(["mutants", "--version"]).output();
    if there.is_ok_and(|it| it.status.success()) {
        return Ok(());
    }
    let status = cargo_command().args(["install", "--locked", "--debug", "cargo-mutants"]).status();
    ensure!(status.is_ok_and(|it| it.success()), "cannot install cargo-mutants");
    Ok(())
}

/// The names of all mutants in scope, by package.
fn list_mutants(workspace: &Workspace) -> Result<BTreeMap<String, Vec<String>>> {
    let line = ["mutants", "--list", "--json", "--workspace"];
    let text = capture_output(cargo_command().args(line).current_dir(&workspace.root))?;
    let mutants: Vec<ListedMutant> = serde_json::from_str(&text).context("cannot read the list")?;
    let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mutant in mutants {
        listed.entry(mutant.package).or_default().push(mutant.name);
    }
    Ok(listed)
}

/// Tests a package's mutants, one at a time: tests that measure time share the machine with nothing.
fn test_mutants(
    workspace: &Workspace,
    package: &str,
    choice: &[String],
) -> Result<Vec<MutantOutcome>> {
    let folder = workspace.target.join("mutants");
    let out = folder.join(package);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut command = cargo_command();
    command.args(["mutants", "--jobs", "1", "--package", package, "--output"]).arg(&out);
    command.args(choice);
    // Integration tests take the library, which the unit tests alone do without: half of the compiler's time. `--tests`
    // would build examples too.
    let tests = workspace.root.join("crates").join(folder_of(package)).join("tests");
    command.args(tests.is_dir().then_some("--cargo-test-arg=--test=*"));
    // The dependencies are built once, and not for each copy of the tree.
    command.env("CARGO_TARGET_DIR", folder.join("build")).envs(PROPERTY_TESTS);
    let status =
        command.current_dir(&workspace.root).status().context("cannot start cargo-mutants")?;
    match status.code() {
        // All are seen; some survive; some time out.
        Some(0 | 2 | 3) => read(&out.join("mutants.out/outcomes.json")),
        Some(4) => bail!("the tests of {package} fail without a mutant"),
        _ => bail!("cargo-mutants ended with {status}"),
    }
}

fn read(path: &Path) -> Result<Vec<MutantOutcome>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    MutantOutcome::parse(&text).with_context(|| format!("cannot read {}", path.display()))
}
