//! The Python package with the program in it: one file for `pip install latput`, `pipx run latput` and `uvx latput`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::ReleaseInfo;
use crate::workspace::{capture_output, make_empty_folder, python_programs};

/// Programs that build it. zig links against the oldest C library that the tag promises, for any processor.
const BUILDERS: &str = "maturin>=1.9,<2 ziglang>=0.13,<0.17";
/// The oldest C library that Rust's own code runs on (glibc 2.17). maturin compares the symbols with it, and fails.
const COMPATIBILITY: &str = "manylinux_2_17";
/// The extension is optimised as the binary of a checkout is.
const PROFILE: &str = "release";
const ADD_PROGRAM: &str = include_str!("add_program.py");

/// Makes `latput-VERSION-cp310-abi3-manylinux_2_17_ARCH.manylinux2014_ARCH.whl`.
pub fn make_wheel(release: &ReleaseInfo, parts: &Path) -> Result<PathBuf> {
    let workspace = release.workspace;
    let environment = workspace.target.join("xtask-wheel");
    let programs = python_programs(&environment)?;
    let mut install = Command::new(programs.join("pip"));
    capture_output(install.args(["install", "--quiet"]).args(BUILDERS.split(' ')))?;
    let wheels = parts.join("wheels");
    make_empty_folder(&wheels)?;
    let mut maturin = Command::new(programs.join("maturin"));
    maturin.args(["build", "--quiet", "--locked", "--strip", "--zig", "--profile", PROFILE]);
    maturin.args(["--compatibility", COMPATIBILITY, "--target", &release.processor().triple()]);
    maturin.arg("--out").arg(&wheels).current_dir(workspace.root.join("python"));
    maturin.env("VIRTUAL_ENV", &environment).env("CARGO_TARGET_DIR", &workspace.target);
    release.toolchain.choose_rustc(&mut maturin);
    capture_output(&mut maturin)?;
    let made = find_wheel(&wheels)?;
    add_program(&programs, &made, &release.binary, release.commit.epoch)?;
    let wheel = release.out.join(made.file_name().context("a wheel has a name")?);
    std::fs::rename(&made, &wheel)?;
    Ok(wheel)
}

/// The only wheel in a folder.
pub fn find_wheel(folder: &Path) -> Result<PathBuf> {
    let mut made = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    made.find(|path| path.extension().is_some_and(|it| it == "whl"))
        .context("maturin has made no wheel")
}

/// Puts a binary into a wheel, by the Python in `programs`. All files get the time `epoch`.
pub fn add_program(programs: &Path, wheel: &Path, binary: &Path, epoch: u64) -> Result<()> {
    let mut add = Command::new(programs.join("python"));
    add.args(["-c", ADD_PROGRAM]).args([wheel, binary]).arg(epoch.to_string());
    capture_output(&mut add).map(drop)
}
