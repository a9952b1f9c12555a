//! Programs of others between two namespaces: what latput reads of their outputs, against another reader.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ci::Tally;
use crate::workspace::{Workspace, cargo_command, make_empty_folder, remove_folder, run_checked};

/// The other reader; its modules are beside it.
const JUDGE: &str = "xtask/src/programs/judge.py";
const OK: &str = "ok: ";
/// nmstate's library, which Debian does not have: its workspace, and the program in its target folder.
const NMSTATE: &str = "xtask/nmstate/Cargo.toml";
const NMSTATE_BUILT: &str = "nmstate/debug/latput-nmstate";
/// The programs of other versions of Debian that `.ci/run` unpacks, in the target folder.
const UNPACKED: &str = "programs-of-debian";

/// Runs each program, good and broken, and compares the figures.
pub fn check_programs(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(&[]) {
        return Ok(());
    }
    let folder = workspace.target.join("xtask-programs");
    make_empty_folder(&folder)?;
    let mut build = cargo_command();
    build.args(["build", "--quiet", "--locked", "--manifest-path"]);
    build.arg(workspace.root.join(NMSTATE));
    build.env("CARGO_TARGET_DIR", workspace.target.join("nmstate"));
    run_checked(&mut build).context("nmstate cannot be built")?;
    let output = Command::new("python3")
        // Without compiled modules in the source tree.
        .arg("-B")
        .arg(workspace.root.join(JUDGE))
        .args([&workspace.built_latput()?, &folder, &workspace.target.join(NMSTATE_BUILT)])
        .arg(workspace.target.join(UNPACKED))
        .output()
        .context("python3 cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines() {
        println!("{line}");
        tally.passed += usize::from(line.starts_with(OK));
        if line.starts_with("skipped: ") {
            tally.record_line(line);
        }
    }
    remove_folder(&folder)?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "latput and the judge read different figures: {problem}");
    Ok(())
}
