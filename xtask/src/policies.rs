//! `cargo xtask bench-policies`: moderation policies side by side on simulated loads, and beside them the
//! best fixed delay of each phase. What fixed delays do is simulated once and kept in `target/`.

use std::process::Command;

use anyhow::Result;

use crate::workspace::{Workspace, capture_output, cargo_command, make_folder, run_checked};

/// A sum of the files that the figures of fixed delays and drivers' policies depend on. Of these, the policy that is worked
/// on does not count.
const SUM_OF_SOURCES: &str = "find crates/sim/src crates/policy/src crates/sim/examples/bench_policies/cases.rs -type f \
    -not -path 'crates/policy/src/response*' -not -path crates/policy/src/ladder.rs | sort | xargs cat | sha256sum";

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
    command.args(options.quick.then_some("--quick"));
    command.args(options.frontier.then_some("--frontier"));
    command.args(options.ablate.iter().map(|fields| match fields.as_str() {
        "" => "--ablate".to_owned(),
        fields => format!("--ablate={fields}"),
    }));
    command.args(options.seeds.iter().map(|seeds| format!("--seeds={seeds}")));
    let folder = workspace.target.join("bench-policies");
    make_folder(&folder)?;
    let mut sum = Command::new("sh");
    let sum = capture_output(sum.args(["-c", SUM_OF_SOURCES]).current_dir(&workspace.root))?;
    let known = folder.join(format!("known-{}.txt", &sum[..16]));
    command.arg(format!("--known={}", known.display()));
    run_checked(&mut command)
}
