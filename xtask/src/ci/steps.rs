//! The steps of `cargo xtask ci`, in the order they run: what is quick to fail comes first.

use std::process::Command;

use anyhow::{Result, ensure};

use super::build::{ALL_TESTS, build_test_artifacts, cargo_test};
use super::documents::{check_examples, check_snippets};
use super::printed::check_printed;
use super::tally::Tally;
use crate::workspace::{Workspace, cargo_command, make_empty_folder};
use crate::{
    diagnose, dist, fuzz, kills, profiles, programs, python, readers, scale_out, tidy, vm,
};

/// Work of a step; it counts its tests as it goes. A step that counts none is one.
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

/// Steps that run one after the other.
#[derive(Clone, Copy, Debug)]
pub struct StepLane {
    /// The steps.
    pub steps: &'static [Step],
    /// Whether it gets CPU time that others leave idle only: for steps that only compute. Of no effect in a group's first
    /// lane, which runs in this process and is shown as it runs.
    pub has_lowest_priority: bool,
}

/// Lanes that run at the same time. Several lanes are for steps that leave CPUs idle.
pub type StepGroup = &'static [StepLane];

pub const fn step(name: &'static str, about: &'static str, run: Run) -> Step {
    Step { name, about, run }
}

pub const fn lane(steps: &'static [Step]) -> StepLane {
    StepLane { steps, has_lowest_priority: false }
}

/// Steps of CI.
pub const GROUPS: &[StepGroup] = &[
    &[lane(&[
        step("fmt", "the layout of Rust files", |workspace, tally| {
            run_cargo(workspace, tally, "fmt --all --check -- --color never")
        }),
        step("tidy", "rules that no compiler checks", |workspace, _| tidy::run(workspace)),
        step(
            "deny",
            "licences, bans and sources of other crates (no advisories: they need the network)",
            check_dependencies,
        ),
        step(
            "build",
            "all tests, linted and documented; the static binary; what a guest is made of",
            build_test_artifacts,
        ),
        step("alone", "tests that measure, one after the other", |workspace, tally| {
            run_tests(workspace, tally, "::alone::", TestLength::Short)
        }),
    ])],
    &[
        lane(&[
            step("guest", "the tests of the vm testbed, in a guest", |workspace, tally| {
                run_tests(workspace, tally, "vm_", TestLength::Short)
            }),
            step("uppers", "undo on a kernel with bonds, teams and RSS, in a guest", test_uppers),
            step("test", "the tests of every crate but the long ones", |workspace, tally| {
                run_tests(workspace, tally, ALL_BUT_GUESTS, TestLength::Short)
            }),
        ]),
        StepLane {
            steps: &[
                step("prepare", "what the steps fuzz, dist and python are made of", prepare),
                step(
                    "accuracy",
                    "the published figures: no demand that held is lost",
                    |workspace, _| profiles::check_accuracy(workspace, &workspace.built_latput()?),
                ),
                step(
                    "planted",
                    "faults planted in the simulator, and healthy loads, as diagnose judges them",
                    |workspace, _| diagnose::check_simulated(workspace),
                ),
            ],
            has_lowest_priority: true,
        },
    ],
    &[lane(&[
        step(
            "fuzz",
            "half a minute of made-up bytes for all that strangers send",
            |workspace, _| fuzz::run(workspace, &fuzz::Options::sample()),
        ),
        step("kills", "kill -9 of whoever changes, watches or undoes", kills::run_sample),
        step("dist", "packages, the same bytes twice, in a clean root", dist::check_packages),
        step("examples", "each example, checked by the binary", check_examples),
        step("printed", "commands of help and documents, run as printed", check_printed),
        step("snippets", "what documents show, checked by the binary", check_snippets),
    ])],
    &[
        lane(&[step(
            "python",
            "the Python package, installed from its wheel, against the binary",
            python::check_package,
        )]),
        lane(&[step(
            "scale-out",
            "shards by four engines; a search by Optuna; a DaemonSet; alerts",
            scale_out::check_recipes,
        )]),
        lane(&[step("browser", "the report of a short tune, in a browser", check_browser_report)]),
    ],
];

/// Steps that take too long for CI: `cargo xtask ci --full` runs them after all others.
pub const SLOW: &[StepGroup] = &[&[lane(&[
    step("long", "the tests that take long", |workspace, tally| {
        run_tests(workspace, tally, ALL_BUT_GUESTS, TestLength::Long)
    }),
    step("long-guest", "the same in a guest", |workspace, tally| {
        run_tests(workspace, tally, "vm_", TestLength::Long)
    }),
    step(
        "programs",
        "what latput reads of programs of others, against another reader",
        programs::check_programs,
    ),
    step(
        "readers",
        "the readers of what latput writes, as Debian 13 and the next have them",
        readers::check_readers,
    ),
    // It is the code of the step `build`, optimised once more for three minutes: no test asks for it.
    step("release", "the binary as a checkout builds it", |workspace, tally| {
        run_cargo(workspace, tally, "build --locked --release --package latput")
    }),
    step("shipped", "the static binary of the packages", dist::build_release_binary),
    step(
        "aarch64",
        "the packages for aarch64, and the tests of what only computes, emulated",
        dist::check_aarch64,
    ),
    step(
        "oldest",
        "the static binary on the oldest kernel that is claimed, in a guest",
        vm::check_oldest_kernel,
    ),
    step("power", "the chance to prove a known effect on recorded noise", |workspace, tally| {
        run_cargo(workspace, tally, "xtask bench-power")
    }),
    step("profiles", "each calibrated profile, made again", |workspace, tally| {
        run_cargo(workspace, tally, "xtask profiles --check")
    }),
    step("mutants", "breaks of the code that no test sees", |workspace, tally| {
        run_cargo(workspace, tally, "xtask mutants")
    }),
])]];

/// Cargo at the root of the repository, with the words of `line`.
fn run_cargo(workspace: &Workspace, tally: &mut Tally, line: &str) -> Result<()> {
    tally.run(cargo_command().args(line.split(' ')).current_dir(&workspace.root))
}

fn check_dependencies(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let version = cargo_command().args(["deny", "--version"]).output();
    if !version.is_ok_and(|it| it.status.success()) {
        tally.skip("cargo-deny");
        return Ok(());
    }
    run_cargo(workspace, tally, "deny --locked check licenses bans sources")
}

/// Tests of the undo on the guest's kernel, which has more kinds of interfaces and cards than a machine's may have.
fn test_uppers(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let programs = ["busybox", "depmod", "modprobe", "qemu-system-x86_64", "unshare"];
    if tally.skips_without(&programs) {
        return Ok(());
    }
    let skipped = tally.skipped.len();
    let mut cargo = cargo_test(workspace, "--test it");
    let script = workspace.root.join("xtask/guest.sh");
    let runner = format!("target.\"cfg(all())\".runner='{}'", script.display());
    cargo.env("LATPUT_TESTED", workspace.built_latput()?).env("LATPUT_HAS_UPPERS", "1");
    cargo.args(["--config", &runner]);
    tally.run_tests(&mut cargo, "root_uppers:: guest_cards:: --test-threads=2")?;
    ensure!(tally.skipped.len() == skipped, "the guest has all that these tests need");
    Ok(())
}

/// Each of those steps makes it where it is not there. First what takes no cargo: another cargo, which begins a step in
/// front, would wait for it.
fn prepare(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    dist::prepare_clean_root(workspace, tally)?;
    python::make_environment(workspace)?;
    fuzz::build_sample(workspace)?;
    python::prepare_wheel(workspace)
}

/// A long test has `#[ignore = "long: ..."]`: CI leaves it out, and `--full` runs it.
#[derive(Clone, Copy)]
enum TestLength {
    Short,
    Long,
}

/// A test of the lab waits for most of its time: for a trial, a deadline, a process that ends.
const TEST_THREADS_PER_CPU: usize = 3;
/// More failed tests than this are no accident, and not run again.
const FEW: usize = 5;
/// The tests that may run several at a time.
const ALL_BUT_GUESTS: &str = "--skip vm_effects:: --skip vm_knobs:: --skip vm_moderate:: --skip vm_runs:: \
    --skip guest_cards:: --skip ::alone:: --skip _of_another_test";

/// Runs the tests of a filter. But for [`ALL_BUT_GUESTS`] they are of the command line, with nothing beside them.
///
/// A machine that stops for a second breaks a test that measures. A few that failed are run once more,
/// alone; if they pass then, the step passes, and CI counts them.
fn run_tests(
    workspace: &Workspace,
    tally: &mut Tally,
    filter: &str,
    length: TestLength,
) -> Result<()> {
    let (targets, threads) = if filter == ALL_BUT_GUESTS {
        (ALL_TESTS, TEST_THREADS_PER_CPU * std::thread::available_parallelism()?.get())
    } else {
        ("--test it", 1)
    };
    // Tests of the command line take the static binary, whose hot crates are optimised.
    let latput = workspace.built_latput()?;
    let run = |tally: &mut Tally, targets: &str, how: &str| {
        let mut cargo = cargo_test(workspace, targets);
        let length = if matches!(length, TestLength::Long) { " --ignored" } else { "" };
        tally.run_tests(cargo.env("LATPUT_TESTED", &latput), &format!("{how}{length}"))
    };
    // Only with `--no-fail-fast` does cargo list the programs that failed, to be run once more.
    let targets = format!("{targets} --no-fail-fast");
    let how = format!("{filter} --test-threads={threads}");
    let Err(error) = run(tally, &targets, &how) else { return Ok(()) };
    let failures = &tally.failures;
    if failures.is_empty() || failures.len() != tally.failed || failures.len() > FEW {
        return Err(error);
    }
    println!("\nonce more, alone:");
    let names: Vec<&str> = failures.iter().map(|it| it.name.as_str()).collect();
    let how = format!("--test-threads=1 --exact {}", names.join(" "));
    let mut alone = Tally::default();
    for target in &tally.failed_targets {
        run(&mut alone, target, &how)?;
    }
    ensure!(alone.passed >= tally.failed, "not all of them were found again");
    tally.passed += tally.failed;
    tally.failed = 0;
    tally.unsteady.append(&mut tally.failures);
    Ok(())
}

fn check_browser_report(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(&["chromium", "chromedriver"]) {
        return Ok(());
    }
    let folder = workspace.target.join("xtask-browser");
    make_empty_folder(&folder)?;
    let plan = workspace.root.join("xtask/short-plan.toml");
    // CI has steps beside this one.
    let mut tune = Command::new(workspace.built_latput()?);
    tally.run(tune.args(["tune", "--beside"]).arg(plan).current_dir(&folder))?;
    let report = folder.join("latput-report.html");
    let script = workspace.root.join("crates/report/tests/browser.py");
    tally.run(Command::new("python3").arg(script).arg(report).arg(&folder))?;
    println!("its pictures are in {}", folder.display());
    Ok(())
}
