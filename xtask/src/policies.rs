//! `cargo xtask bench-policies`: moderation policies side by side on simulated loads, and beside them the
//! best fixed delay of each phase. What fixed delays do is simulated once and kept in `target/`.

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, cargo_command, make_folder};

/// Files that the figures of fixed delays and drivers' policies depend on.
const SOURCES: [&str; 3] =
    ["crates/sim/src", "crates/policy/src", "crates/sim/examples/bench_policies/cases.rs"];
/// Of these, the policy that is worked on, which does not count.
const OURS: [&str; 3] =
    ["crates/policy/src/response", "crates/policy/src/response.rs", "crates/policy/src/ladder.rs"];

/// Which loads, and how thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// One seed instead of three, and without the longest loads.
    #[arg(long)]
    quick: bool,
    /// Seeds instead of 1, 2 and 3: `11,12,13`.
    #[arg(long, value_name = "SEEDS")]
    seeds: Option<String>,
    /// Also what each fixed delay comes to on each load, and ours with each seed.
    #[arg(long)]
    frontier: bool,
    /// Print the gain by each constant of our policy, instead of the table: a run without it for each; only these
    /// fields, if some are named: `test_slots,piece_log`.
    #[arg(long, value_name = "FIELDS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    ablate: Option<String>,
    /// Only loads whose label contains one of these: `bulk`, `rr b0`, `every 50ms`, `100G`.
    #[arg(value_name = "WORDS")]
    only: Vec<String>,
}

/// Runs the example of the simulator that holds the loads and prints the table.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut command = cargo_command();
    command.current_dir(&workspace.root).args(["run", "--release", "-q", "-p", "latput-sim"]);
    command.args(["--example", "bench_policies", "--"]).args(&options.only);
    if options.quick {
        command.arg("--quick");
    }
    if options.frontier {
        command.arg("--frontier");
    }
    match options.ablate.as_deref() {
        None => {}
        Some("") => {
            command.arg("--ablate");
        }
        Some(fields) => {
            command.arg(format!("--ablate={fields}"));
        }
    }
    if let Some(seeds) = &options.seeds {
        command.arg(format!("--seeds={seeds}"));
    }
    let folder = workspace.target.join("bench-policies");
    make_folder(&folder)?;
    let known = folder.join(format!("known-{:016x}.txt", workspace.hash_sources(&SOURCES, &OURS)?));
    command.arg(format!("--known={}", known.display()));
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "the benchmark ended with {status}");
    Ok(())
}
