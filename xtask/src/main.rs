//! `cargo xtask`: the checks, the tests and the comparisons of this repository, each one command.

#![expect(clippy::print_stdout, reason = "automation talks to whoever runs it")]
#![expect(clippy::print_stderr, reason = "automation talks to whoever runs it")]
#![expect(unreachable_pub, reason = "`pub` says what a module offers to the others")]

mod ci;
mod diagnose;
mod dist;
mod fuzz;
mod goal;
mod kills;
mod mutants;
mod namespace;
mod peers;
mod policies;
mod power;
mod processes;
mod profiles;
mod programs;
mod python;
mod readers;
mod scale_out;
mod sim_peers;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::workspace::Workspace;

/// Automation of the latput repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Run every check and test in order; stops at the first that fails.
    Ci(ci::Options),
    /// Hold the tree to the rules that no compiler checks.
    Tidy,
    /// Build the static binary and pack it: .deb, .rpm, tarball, container image, checksums, SBOM.
    Dist(dist::Options),
    /// Compare latput's traffic engine with netperf and iperf3 on the lab, interleaved.
    BenchPeers(peers::Options),
    /// Make the calibrated profiles again from the published cells, and hold the accuracy table.
    Profiles(profiles::Options),
    /// Measure the simulator's speed, and ns-3's on the same packets.
    BenchSim(sim_peers::Options),
    /// Compare moderation policies on simulated loads, worst for ours first.
    BenchPolicies(policies::Options),
    /// Count how often the recommendation proves a known effect, on noise recorded from the lab.
    BenchPower(power::Options),
    /// Kill -9 whoever makes, watches or undoes a change, and compare by foreign tools what is left (needs root).
    BenchKills(kills::Options),
    /// Plant faults on the lab, in a guest or in the simulator, and count how often `latput diagnose` names them first (the
    /// first two need root).
    BenchDiagnose(diagnose::Options),
    /// Feed whatever reads strangers' bytes with what libFuzzer makes up.
    Fuzz(fuzz::Options),
    /// Break the code in one place at a time, and count the breaks that no test sees (hours).
    Mutants(mutants::Options),
    /// Make what the guest of the `vm` testbed needs: a static latput and an unpacked kernel package.
    Vm,
}

fn main() -> ExitCode {
    let task = Task::parse();
    match Workspace::from_cargo_metadata().and_then(|workspace| run_task(task, &workspace)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_task(task: Task, workspace: &Workspace) -> Result<ExitCode> {
    match task {
        Task::Ci(options) => return ci::run(workspace, &options),
        Task::Tidy => tidy::run(workspace),
        Task::Dist(options) => dist::run(workspace, &options),
        Task::BenchPeers(options) => peers::run(workspace, &options),
        Task::Profiles(options) => profiles::run(workspace, &options),
        Task::BenchSim(options) => sim_peers::run(workspace, &options),
        Task::BenchPolicies(options) => policies::run(workspace, &options),
        Task::BenchPower(options) => power::run(workspace, &options),
        Task::BenchKills(options) => kills::run(workspace, &options),
        Task::BenchDiagnose(options) => diagnose::run(workspace, &options),
        Task::Fuzz(options) => fuzz::run(workspace, &options),
        Task::Mutants(options) => mutants::run(workspace, &options),
        Task::Vm => vm::run(workspace),
    }?;
    Ok(ExitCode::SUCCESS)
}
