//! The recipes of docs/scale-out.md: each engine runs the shards of the example plan, and the merge must be one run. Beside
//! them what needs the same tools: the example of docs/optimisers.md, a `DaemonSet`, and alert rules.

use std::process::Command;

use anyhow::{Context, Result};

use crate::ci::Tally;
use crate::workspace::{
    Workspace, capture_output, find_on_path, make_empty_folder, make_folder, python_programs,
};

/// Python packages that the recipes need.
const TOOLS: [&str; 3] = ["snakemake>=8,<10", "kubernetes-validate>=1.29", "optuna>=4,<5"];
/// Runs one recipe.
const SCRIPT: &str = "xtask/src/scale_out/recipes.sh";
/// The run of the whole plan, which the merged ones are compared with.
const WHOLE: &str = "whole";
/// The recipes, and what each needs: programs of Debian, or root.
const RECIPES: &[(&str, &[&str])] = &[
    ("parallel", &["parallel"]),
    ("slurm", &["slurmctld", "slurmd", "sbatch", "sinfo"]),
    ("snakemake", &[]),
    ("kubernetes", &[]),
    ("daemon-set", &["root"]),
    ("alerts", &["promtool"]),
    ("optuna", &[]),
];

/// Runs each recipe in a folder of its own.
pub fn check_recipes(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let folder = workspace.target.join("xtask-scale-out");
    make_empty_folder(&folder)?;
    let bin = folder.join("bin");
    make_folder(&bin)?;
    std::os::unix::fs::symlink(workspace.built_latput()?, bin.join("latput"))?;
    let python = python_programs(&folder.join("environment"))
        .context("python3 makes no environment; Debian has it in python3-venv")?;
    let mut install = Command::new(python.join("pip"));
    capture_output(install.args(["install", "--quiet"]).args(TOOLS))?;
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin, python].into_iter().chain(std::env::split_paths(&others));
    let path = std::env::join_paths(folders).context("a folder of PATH has a colon")?;
    let run = |recipe: &str| {
        let mut command = Command::new("bash");
        command.arg(workspace.root.join(SCRIPT)).arg(recipe);
        capture_output(command.current_dir(&folder).env("PATH", &path))
            .with_context(|| format!("the recipe `{recipe}`"))
    };
    run(WHOLE)?;
    let is_root = rustix::process::geteuid().is_root();
    for &(recipe, needs) in RECIPES {
        let lacks = |name: &&&str| match **name {
            "root" => !is_root,
            name => find_on_path(name).is_none(),
        };
        if let Some(missing) = needs.iter().find(lacks) {
            tally.skip(missing);
        } else {
            run(recipe)?;
            tally.passed += 1;
        }
    }
    Ok(())
}
