//! One build for tests, lints, documentation and the binary that is tested: each crate is compiled once.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::tally::Tally;
use crate::vm;
use crate::workspace::{Workspace, cargo_command};

/// Always of the whole workspace: for one package, features and so every crate would be built anew.
/// No crate has a documentation test (tidy sees to it), so that none is looked for, which takes cargo a second per crate.
pub const ALL_TESTS: &str = "--lib --bins --tests";
/// Lints and documents each crate, and links latput once more, static.
const WRAPPER: &str = "xtask/rustc.sh";

/// `cargo test` of these targets of all crates.
pub fn cargo_test(workspace: &Workspace, targets: &str) -> Command {
    let mut command = cargo_command();
    command.args(["test", "--locked", "--workspace"]).args(targets.split(' '));
    command.current_dir(&workspace.root);
    command.env("RUSTC_WORKSPACE_WRAPPER", workspace.root.join(WRAPPER));
    command
}

/// Builds the tests and the static latput that later steps check and guests run; fetches the guest's kernel.
pub fn build_test_artifacts(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    vm::fetch_kernel(workspace, tally)?;
    tally.run(cargo_test(workspace, "--all-targets").arg("--no-run"))?;
    let (built, to) = (workspace.target.join("debug/deps/latput-static"), workspace.guest_latput());
    ensure!(
        built.is_file(),
        "{} was not linked by {WRAPPER}: run `cargo clean -p latput`",
        built.display()
    );
    fs::copy(&built, &to)
        .with_context(|| format!("cannot copy {} to {}", built.display(), to.display()))?;
    Ok(())
}
