//! The step `aarch64`: the packages of the other processor, and tests that need no kernel of it, by an emulator.

use std::process::Command;

use anyhow::{Result, ensure};

use super::toolchain::{Processor, Toolchain};
use super::{Commit, QUICKEST, ReleaseInfo, binary, packages_folder};
use crate::ci::Tally;
use crate::workspace::{Workspace, capture_output, cargo_command};

/// Crates whose tests run under the emulator: those that only compute. qemu-user has the kernel of this machine, and knows
/// neither generic netlink nor bpf(2).
const EMULATED: &[&str] = &[
    "latput-units",
    "latput-stats",
    "latput-knobs",
    "latput-trial",
    "latput-policy",
    "latput-sim",
    "latput-model",
    "latput-formats",
    "latput-diagnose",
];
/// Commands that the binary must run: words, and what it prints.
const COMMANDS: &[(&str, &str)] =
    &[("--version", "aarch64"), ("--help", "export-settings"), ("reproduce --help", "published")];

/// Builds, packs and tries what aarch64 gets.
pub fn check_aarch64(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let toolchain = Toolchain::find(workspace, Processor::Aarch64)?;
    let commit = Commit::read(workspace)?;
    let program = binary::build_static_binary(workspace, &toolchain, &commit, tally)?;
    let out = packages_folder(workspace).join(Processor::Aarch64.kernel_name());
    let release = ReleaseInfo::new(workspace, (toolchain, commit), &program, &out, QUICKEST);
    println!("{} files for aarch64", release.make_packages(false)?.len());
    for (words, printed) in COMMANDS {
        let said = capture_output(release.run_binary().args(words.split(' ')))?;
        ensure!(said.contains(printed), "latput {words} does not print `{printed}`:\n{said}");
        tally.passed += 1;
    }
    run_emulated_tests(workspace, &release.toolchain, tally)?;
    // Tests that need a kernel of aarch64 get one.
    tally.run(Command::new(workspace.root.join(".ci/aarch64-guest")).arg(&program))?;
    tally.passed += 1;
    Ok(())
}

fn run_emulated_tests(
    workspace: &Workspace,
    toolchain: &Toolchain,
    tally: &mut Tally,
) -> Result<()> {
    let triple = toolchain.processor.triple();
    let mut test = cargo_command();
    test.args(["test", "--locked", "--lib", "--tests", "--target", &triple]);
    for package in EMULATED {
        test.args(["--package", package]);
    }
    toolchain.configure_cargo(&mut test);
    let static_link = ["-Ctarget-feature=+crt-static".to_owned()];
    let flags: Vec<String> = static_link.into_iter().chain(toolchain.link_flags()).collect();
    test.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    tally.run(test.current_dir(&workspace.root))
}
