//! Figures of the lab's hosts under every setting of a plan, measured.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::RECORDED;
use crate::workspace::{Workspace, capture_output};

/// Plan that is measured.
const PLAN: &str = "data/search/lab.toml";

/// Measures, and writes the table.
pub(super) fn run(workspace: &Workspace, folder: &Path, bench: &Path) -> Result<()> {
    let latput = workspace.build_latput()?;
    let [results, report] = ["lab.db", "lab.json"].map(|name| folder.join(name));
    let _unless_there_is_none = std::fs::remove_file(&results);
    let mut run = Command::new(&latput);
    run.arg("run").arg(workspace.root.join(PLAN)).arg("-o").arg(&results);
    ensure!(run.status().context("cannot start latput")?.success(), "the run has failed");
    let mut told = Command::new(&latput);
    let text = capture_output(told.arg("report").arg(&results).arg("--json"))?;
    std::fs::write(&report, text).context("cannot write the report")?;
    let file = workspace.root.join(RECORDED);
    capture_output(Command::new(bench).args(["recorded", "tabulate"]).arg(&file).arg(&report))?;
    println!("{RECORDED} is what every setting did");
    Ok(())
}
