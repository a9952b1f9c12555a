//! The Python package: a wheel, installed into a fresh environment, its types and its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ci::Tally;
use crate::dist::{add_program, find_wheel};
use crate::workspace::{Workspace, capture_output, python_programs, remove_folder, run_checked};

/// Needs of the package's tests, and of its build.
const TOOLS: &str = "maturin>=1.9,<2 pandas>=2 pandas-stubs pyarrow>=15 polars>=1 altair>=5 nbclient>=0.10 ipykernel>=6 \
    distributed>=2024.1 pytest>=8 smac>=2.3,<3 mypy>=1.11";

/// Its crates are half those of the other tests.
const PROFILE: &str = "dev";

/// Builds the wheel, installs it where nothing else of latput is, and tests it against the binary.
pub fn check_package(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let environment = make_environment(workspace)?;
    let package = workspace.root.join("python");
    let program = |name: &str| environment.join("bin").join(name);
    let run = |program: &Path, words: &[&str]| -> Result<()> {
        let mut command = Command::new(program);
        command.args(words).current_dir(&package).env("VIRTUAL_ENV", &environment);
        command.env("LATPUT", workspace.built_latput()?).env("CARGO_TARGET_DIR", &workspace.target);
        run_checked(&mut command).with_context(|| words.join(" "))
    };
    let wheel = build_wheel(workspace)?.display().to_string();
    run(&program("pip"), &["install", "--quiet", "--no-deps", "--force-reinstall", &wheel])?;
    let said = capture_output(Command::new(program("latput")).arg("-V"))?;
    let version = concat!("latput ", env!("CARGO_PKG_VERSION"));
    ensure!(said.trim() == version, "the wheel's latput says {said}");
    tally.passed += 1;
    run(&program("mypy"), &[])?;
    tally.passed += 1;
    run(&program("pytest"), &["-q"])?;
    tally.passed += 1;
    Ok(())
}

/// The wheel that [`check_package`] asks for, with the maturin of [`make_environment`].
pub fn prepare_wheel(workspace: &Workspace) -> Result<()> {
    build_wheel(workspace).map(drop)
}

fn work_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("xtask-python")
}

/// Python and what the tests need; made anew where that changed.
pub fn make_environment(workspace: &Workspace) -> Result<PathBuf> {
    let environment = work_folder(workspace).join("environment");
    let whole = environment.join("latput-tools");
    if std::fs::read_to_string(&whole).is_ok_and(|made_of| made_of == TOOLS) {
        return Ok(environment);
    }
    remove_folder(&environment)?;
    let programs = python_programs(&environment)
        .context("python3 makes no environment; Debian has it in python3-venv")?;
    let mut install = Command::new(programs.join("pip"));
    // Few modules are imported, and Python compiles those by itself.
    install.args(["install", "--quiet", "--no-compile"]).args(TOOLS.split(' '));
    capture_output(&mut install)?;
    std::fs::write(&whole, TOOLS).with_context(|| format!("cannot write {}", whole.display()))?;
    Ok(environment)
}

fn build_wheel(workspace: &Workspace) -> Result<PathBuf> {
    let folder = work_folder(workspace);
    let (environment, wheels) = (folder.join("environment"), folder.join("wheels"));
    let mut maturin = Command::new(environment.join("bin/maturin"));
    maturin.args(["build", "--quiet", "--profile", PROFILE, "--out"]).arg(&wheels);
    maturin.current_dir(workspace.root.join("python")).env("VIRTUAL_ENV", &environment);
    maturin.env("CARGO_TARGET_DIR", &workspace.target);
    capture_output(&mut maturin)?;
    let wheel = find_wheel(&wheels)?;
    // As a release has it, with the binary that the tests ask.
    add_program(&environment.join("bin"), &wheel, &workspace.built_latput()?, 0)?;
    Ok(wheel)
}
