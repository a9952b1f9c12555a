//! Programs that read what `latput keep` and `export-settings` write, in the versions of other Debians.
//!
//! The tests that a reader judges run once more in a root of each. Its C library is newer than the one that the tests
//! were linked with, so they run there as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::ci::{Tally, cargo_test};
use crate::dist::make_debian;
use crate::workspace::{Workspace, capture_output, make_folder};

const PROGRAMS: &[&str] = &["chroot", "debootstrap", "unshare"];
/// Debian 13, and the one after it.
const SUITES: &[&str] = &["trixie", "forky"];
/// A root is made anew when this changes.
const VERSION: u32 = 3;
/// The readers, and what the tests judge by.
const PACKAGES: &str = "ansible-core cloud-init dbus-daemon ethtool iproute2 irqbalance netplan.io network-manager procps \
    strace systemd tuned udev";
/// Names of the tests that a reader judges.
const TESTS: &[&str] =
    &["export_settings", "keep::", "keep_forms::", "keep_irqbalance::", "root_keep", "root_tuned"];

/// Installs `$2...` in the root `$1`; no package may start a daemon there.
const INSTALL: &str = include_str!("readers/install.sh");
/// Runs `$3...` in the root `$1`, which has the workspace `$2` at the same place. Tests make namespaces, which a process in a
/// chroot may not.
const ENTER: &str = include_str!("readers/enter.sh");

/// Runs the tests with the readers of the other Debians.
pub fn check_readers(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(PROGRAMS) {
        return Ok(());
    }
    let folder = workspace.target.join("readers");
    make_folder(&folder)?;
    let enter = folder.join("enter");
    fs::write(&enter, ENTER).with_context(|| format!("cannot write {}", enter.display()))?;
    for suite in SUITES {
        let root = make_root(&folder, suite)?;
        run_tests(workspace, (&enter, &root), tally)
            .with_context(|| format!("readers of {suite}"))?;
    }
    Ok(())
}

/// Runs the tests in a root, which a script enters.
fn run_tests(
    workspace: &Workspace,
    (enter, root): (&Path, &Path),
    tally: &mut Tally,
) -> Result<()> {
    let unshare = ["unshare", "--mount", "sh"].map(Path::new);
    let runner = [&unshare[..], &[enter, root, &workspace.root]].concat();
    // A list of JSON is one of TOML.
    let runner = serde_json::to_string(&runner)?;
    let mut cargo = cargo_test(workspace, "--test it");
    cargo.arg("--config").arg(format!("target.'cfg(all())'.runner={runner}"));
    cargo.env("LATPUT_TESTED", workspace.built_latput()?);
    tally.run_tests(&mut cargo, &format!("--test-threads=2 {}", TESTS.join(" ")))
}

/// The root of a Debian with its readers, made once.
fn make_root(folder: &Path, suite: &str) -> Result<PathBuf> {
    make_debian(folder.join(format!("{suite}-{VERSION}")), Some(suite), None, |root| {
        let mut install = Command::new("unshare");
        install.args(["--mount", "sh", "-c", INSTALL, "install"]).arg(root);
        install.args(PACKAGES.split(' '));
        capture_output(&mut install).map(drop)
    })
}
