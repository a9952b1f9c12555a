//! The steps of `cargo xtask ci`, in the order they run: what is quick to fail comes first.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::{self, ALL_TESTS, cargo_test};
use super::documents;
use super::printed;
use super::tally::Tally;
use crate::dist;
use crate::fleet;
use crate::fuzz;
use crate::kills;
use crate::profiles;
use crate::programs;
use crate::python;
use crate::readers;
use crate::scale_out;
use crate::tidy;
use crate::vm;
use crate::workspace::{Workspace, cargo_command, missing_for_root};

/// Work of a step; it counts its tests as it goes.
pub type Run = fn(&Workspace, &mut Tally) -> Result<()>;

/// One named check.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// As `--only` takes it.
    pub name: &'static str,
    /// In a few words.
    pub about: &'static str,
    /// Its work.
    pub run: Run,
}

impl Step {
    pub const fn new(name: &'static str, about: &'static str, run: Run) -> Self {
        Self { name, about, run }
    }
}

/// Steps that run one after the other.
#[derive(Clone, Copy, Debug)]
pub struct StepLane {
    /// The steps.
    pub steps: &'static [Step],
    /// Of no effect in a group's first lane, which runs in this process and is shown as it runs.
    pub priority: LanePriority,
}

/// How much CPU time a lane gets beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanePriority {
    /// Its share.
    Usual,
    /// CPU time that others leave idle: for steps that only compute.
    Lowest,
}

impl StepLane {
    pub const fn new(steps: &'static [Step]) -> Self {
        Self { steps, priority: LanePriority::Usual }
    }

    const fn with_lowest_priority(steps: &'static [Step]) -> Self {
        Self { steps, priority: LanePriority::Lowest }
    }
}

/// Lanes that run at the same time. Several lanes are for steps that leave CPUs idle.
#[derive(Clone, Copy, Debug)]
pub struct StepGroup {
    /// The lanes.
    pub lanes: &'static [StepLane],
}

impl StepGroup {
    /// All of its steps.
    pub fn steps(&self) -> impl Iterator<Item = &'static Step> {
        self.lanes.iter().flat_map(|lane| lane.steps)
    }
}

/// Steps of CI.
pub const GROUPS: &[StepGroup] = &[
    StepGroup {
        lanes: &[StepLane::new(&[
            Step::new("fmt", "the layout of Rust files", fmt),
            Step::new("tidy", "rules that no compiler checks", check_tidy),
            Step::new(
                "build",
                "all tests, linted and documented; the static binary; what a guest is made of",
                build::build_test_artifacts,
            ),
            Step::new("alone", "tests that measure, one after the other", run_serial_tests),
        ])],
    },
    StepGroup {
        lanes: &[
            StepLane::new(&[
                Step::new("guest", "the tests of the vm testbed, in a guest", run_guest_tests),
                Step::new(
                    "uppers",
                    "undo on a kernel with bonds, teams and RSS, in a guest",
                    run_upper_device_tests,
                ),
                Step::new("test", "the tests of every crate but the long ones", run_short_tests),
            ]),
            StepLane::with_lowest_priority(&[
                Step::new(
                    "prepare",
                    "what the steps fuzz, dist and python are made of",
                    prepare_artifacts,
                ),
                Step::new(
                    "accuracy",
                    "the published figures: no demand that held is lost",
                    check_accuracy,
                ),
            ]),
        ],
    },
    StepGroup {
        lanes: &[StepLane::new(&[
            Step::new(
                "fuzz",
                "half a minute of made-up bytes for all that strangers send",
                run_fuzz_sample,
            ),
            Step::new("kills", "kill -9 of whoever changes, watches or undoes", run_kills_sample),
            Step::new(
                "dist",
                "packages, the same bytes twice, in a clean root",
                dist::check_packages,
            ),
            Step::new("examples", "each example, checked by the binary", check_examples),
            Step::new(
                "printed",
                "commands of help and documents, run as printed",
                check_printed_commands,
            ),
            Step::new("snippets", "what documents show, checked by the binary", check_snippets),
        ])],
    },
    StepGroup {
        lanes: &[
            StepLane::new(&[Step::new(
                "python",
                "the Python package, installed from its wheel, against the binary",
                python::check_package,
            )]),
            StepLane::new(&[Step::new(
                "scale-out",
                "shards by four engines; a search by Optuna; a DaemonSet; alerts",
                scale_out::check_recipes,
            )]),
            StepLane::new(&[Step::new(
                "browser",
                "the report of a short tune, in a browser",
                check_browser_report,
            )]),
        ],
    },
];

/// Steps that take too long for CI: `cargo xtask ci --full` runs them after all others.
pub const SLOW: &[StepGroup] = &[StepGroup {
    lanes: &[StepLane::new(&[
        Step::new(
            "deny",
            "licences, bans and sources of other crates (no advisories: they need the network)",
            check_dependencies,
        ),
        Step::new("long", "the tests that take long", long_tests),
        Step::new("long-guest", "the same in a guest", long_guest),
        Step::new(
            "programs",
            "what latput reads of programs of others, against another reader",
            check_programs,
        ),
        Step::new(
            "readers",
            "the readers of what latput writes, as Debian 13 and the next have them",
            readers::check_readers,
        ),
        Step::new("fleet", "24 hosts, some dead, slow or lying", run_fleet_sample),
        Step::new("release", "the binary as a checkout builds it", build_release),
        Step::new("shipped", "the static binary of the packages", dist::build_release_binary),
        Step::new(
            "oldest",
            "the static binary on the oldest kernel that is claimed, in a guest",
            vm::check_oldest_kernel,
        ),
        Step::new("power", "the chance to prove a known effect on recorded noise", run_power_bench),
        Step::new("profiles", "each calibrated profile, made again", check_profiles),
        Step::new("mutants", "breaks of the code that no test sees", run_mutants),
    ])],
}];

fn fmt(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(&mut cargo_line(workspace, "fmt --all --check -- --color never"))
}

fn check_tidy(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    tidy::run(workspace)
}

/// A sample of `bench-kills`.
fn run_kills_sample(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    as_root(tally, "kills", || {
        let latput = workspace.built_latput()?;
        kills::run(workspace, &latput, &kills::Options::sample())?;
        kills::run(workspace, &latput, &kills::Options::sample_of_faults())
    })
}

/// Real programs between two namespaces, good and broken runs.
fn check_programs(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        tally.record_line("skipped: programs: needs root");
        return Ok(());
    }
    programs::check_programs(workspace, tally)
}

/// A small `bench-fleet`.
fn run_fleet_sample(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    as_root(tally, "fleet", || {
        fleet::run(workspace, &workspace.built_latput()?, &fleet::Options::sample())
    })
}

/// Whether a step must end because it needs root or one of these programs; says so.
fn is_skipped(tally: &mut Tally, programs: &[&'static str]) -> bool {
    let Some(missing) = missing_for_root(programs) else { return false };
    let line = format!("skipped: needs {missing}");
    println!("{line}");
    tally.record_line(&line);
    true
}

/// Runs a bench that needs root, or says that it is skipped.
fn as_root(tally: &mut Tally, name: &str, bench: impl FnOnce() -> Result<()>) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        tally.record_line(&format!("skipped: {name}: needs root"));
        return Ok(());
    }
    bench()?;
    tally.passed += 1;
    Ok(())
}

fn run_fuzz_sample(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    fuzz::run(workspace, &fuzz::Options::sample())?;
    tally.passed += 1;
    Ok(())
}

fn check_dependencies(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let version = cargo_line(workspace, "deny --version").output();
    let present = version.is_ok_and(|it| it.status.success());
    ensure!(present, "cargo-deny is missing; install it with `cargo install --locked cargo-deny`");
    tally.run(&mut cargo_line(workspace, "deny check licenses bans sources"))
}

/// It is the code of the step `build`, optimised once more for three minutes: no test asks for it.
fn build_release(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(&mut cargo_line(workspace, "build --locked --release --package latput"))
}

fn run_short_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    TestSelection::in_parallel(TestLength::Short)?.run(workspace, tally)
}

fn long_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    TestSelection::in_parallel(TestLength::Long)?.run(workspace, tally)
}

fn run_serial_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    TestSelection::one_by_one("::alone::", TestLength::Short).run(workspace, tally)
}

fn run_guest_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    TestSelection::one_by_one("vm_", TestLength::Short).run(workspace, tally)
}

/// Tests of the undo on the guest's kernel, which has more kinds of interfaces and cards than a machine's may have.
fn run_upper_device_tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if is_skipped(tally, &["busybox", "depmod", "modprobe", "qemu-system-x86_64", "unshare"]) {
        return Ok(());
    }
    let skipped = tally.skipped.len();
    let mut cargo = cargo_test(workspace, "--test it");
    let script = workspace.root.join("xtask/guest.sh");
    let runner = format!("target.\"cfg(all())\".runner='{}'", script.display());
    cargo.env("LATPUT_TESTED", workspace.built_latput()?).env("LATPUT_HAS_UPPERS", "1");
    cargo.args(["--config", &runner]);
    tally.run_tests(cargo, "root_uppers:: guest_cards:: --test-threads=2")?;
    ensure!(tally.skipped.len() == skipped, "the guest has all that these tests need");
    Ok(())
}

/// Each of those steps makes it where it is not there. First what takes no cargo: another cargo, which begins a step in
/// front, would wait for it.
fn prepare_artifacts(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    dist::prepare_clean_root(workspace, tally)?;
    python::make_environment(workspace)?;
    fuzz::build_sample(workspace)?;
    python::prepare_wheel(workspace)
}

fn long_guest(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    TestSelection::one_by_one("vm_", TestLength::Long).run(workspace, tally)
}

/// Which tests cargo runs, and how.
struct TestSelection {
    targets: &'static str,
    /// As libtest takes it.
    filter: &'static str,
    threads: usize,
    length: TestLength,
}

/// A long test has `#[ignore = "long: ..."]`: CI leaves it out, and `--full` runs it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestLength {
    Short,
    Long,
}

/// A test of the lab waits for most of its time: for a trial, a deadline, a process that ends.
const TEST_THREADS_PER_CPU: usize = 3;

impl TestSelection {
    /// Several at a time.
    fn in_parallel(length: TestLength) -> Result<Self> {
        let threads = TEST_THREADS_PER_CPU * std::thread::available_parallelism()?.get();
        let filter = "--skip vm_effects:: --skip vm_knobs:: --skip vm_moderate:: --skip vm_runs:: --skip guest_cards:: --skip ::alone:: --skip _of_another_test";
        Ok(Self { targets: ALL_TESTS, filter, threads, length })
    }

    /// Tests of the command line with nothing beside them.
    fn one_by_one(filter: &'static str, length: TestLength) -> Self {
        Self { targets: "--test it", filter, threads: 1, length }
    }

    /// A machine that stops for a second breaks a test that measures. A few that failed are run once more,
    /// alone; if they pass then, the step passes, and CI counts them.
    fn run(&self, workspace: &Workspace, tally: &mut Tally) -> Result<()> {
        // Only with `--no-fail-fast` does cargo list the programs that failed, to be run once more.
        let targets = format!("{} --no-fail-fast", self.targets);
        let how = format!("{} --test-threads={}", self.filter, self.threads);
        let Err(error) = self.run_some(workspace, tally, &targets, &how) else { return Ok(()) };
        let failures = &tally.failures;
        if failures.is_empty() || failures.len() != tally.failed || failures.len() > FEW {
            return Err(error);
        }
        println!("\nonce more, alone:");
        let names: Vec<&str> = failures.iter().map(|it| it.name.as_str()).collect();
        let how = format!("--test-threads=1 --exact {}", names.join(" "));
        let mut alone = Tally::default();
        for target in &tally.failed_targets {
            self.run_some(workspace, &mut alone, target, &how)?;
        }
        ensure!(alone.passed >= tally.failed, "not all of them were found again");
        tally.passed += tally.failed;
        tally.failed = 0;
        tally.unsteady.append(&mut tally.failures);
        Ok(())
    }

    /// The command line's tests take the static binary, whose hot crates are optimised.
    fn run_some(
        &self,
        workspace: &Workspace,
        tally: &mut Tally,
        targets: &str,
        how: &str,
    ) -> Result<()> {
        let mut cargo = cargo_test(workspace, targets);
        cargo.env("LATPUT_TESTED", workspace.built_latput()?);
        let length = if self.length == TestLength::Long { " --ignored" } else { "" };
        tally.run_tests(cargo, &format!("{how}{length}"))
    }
}

/// More failed tests than this are no accident, and not run again.
const FEW: usize = 5;

fn check_accuracy(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    profiles::check_accuracy(workspace, &workspace.built_latput()?)?;
    tally.passed += 1;
    Ok(())
}

fn check_examples(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    documents::check_examples(&workspace.root, &workspace.built_latput()?, tally)
}

fn check_snippets(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    documents::check_snippets(&workspace.root, &workspace.built_latput()?, tally)
}

fn check_printed_commands(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    printed::check_printed(&workspace.root, &workspace.built_latput()?, tally)
}

fn check_browser_report(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if is_skipped(tally, &["chromium", "chromedriver"]) {
        return Ok(());
    }
    let binary = workspace.built_latput()?;
    let folder = workspace.target.join("xtask-browser");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let plan = workspace.root.join("xtask/short-plan.toml");
    // CI has steps beside this one.
    let tune = ["tune", "--beside"];
    tally.run(Command::new(&binary).args(tune).arg(plan).current_dir(&folder))?;
    let report = folder.join("latput-report.html");
    let script = workspace.root.join("crates/report/tests/browser.py");
    tally.run(Command::new("python3").arg(script).arg(report).arg(&folder))?;
    tally.passed += 1;
    println!("its pictures are in {}", folder.display());
    Ok(())
}

fn run_power_bench(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(&mut cargo_line(workspace, "xtask bench-power"))
}

fn check_profiles(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(&mut cargo_line(workspace, "xtask profiles --check"))
}

fn run_mutants(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(&mut cargo_line(workspace, "xtask mutants"))
}

/// Cargo at the root of the repository, with the words of `line`.
fn cargo_line(workspace: &Workspace, line: &str) -> Command {
    let mut command = cargo_command();
    command.args(line.split(' ')).current_dir(&workspace.root);
    command
}
