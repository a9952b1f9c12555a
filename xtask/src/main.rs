//! `cargo xtask`: the checks, the tests and the comparisons of this repository, each one command.

#![expect(clippy::print_stdout, reason = "automation talks to whoever runs it")]
#![expect(clippy::print_stderr, reason = "automation talks to whoever runs it")]
#![expect(unreachable_pub, reason = "`pub` says what a module offers to the others")]

mod awake;
mod busy;
mod ci;
mod command_bench;
mod dist;
mod fleet;
mod foreign;
mod fuzz;
mod goal;
mod kills;
mod lab_run;
mod live;
mod moderate;
mod mutants;
mod observer;
mod peers;
mod policies;
mod power;
mod profiles;
mod programs;
mod python;
mod readers;
mod scale_bench;
mod scale_out;
mod search_peers;
mod sim_peers;
mod tidy;
mod twin;
mod vm;
mod wire;
mod workspace;

use std::process::ExitCode;

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
    /// Compare netperf and sockperf as a plan's `command` with `tcp_rr` on the lab (by hand: needs root and an idle machine).
    BenchCommand(command_bench::Options),
    /// Make the calibrated profiles again from the published cells, and hold the accuracy table.
    Profiles(profiles::Options),
    /// Measure the simulator's speed, and ns-3's on the same packets.
    BenchSim(sim_peers::Options),
    /// Run the daemon on the lab through phases of load, beside fixed delays (by hand: needs root and time).
    BenchModerate(moderate::Options),
    /// Compare moderation policies on simulated loads, worst for ours first.
    BenchPolicies(policies::Options),
    /// Count how often the recommendation proves a known effect, on noise recorded from the lab.
    BenchPower(power::Options),
    /// Compare busy time with bpftrace's for every kind of workload on the lab (by hand: needs root and an idle machine).
    BenchCpu(busy::Options),
    /// Compare rate and demand with and without latput's own tracing (by hand: needs root and an idle machine).
    BenchObserver(observer::Options),
    /// Compare round trips and the counters of slices with tcpdump's on the lab (by hand: needs root and an idle machine).
    BenchWire(wire::Options),
    /// Count how few trials the search needs on simulated hosts, beside random search, Optuna's TPE and SMAC3.
    BenchSearch(search_peers::Options),
    /// Measure sweeps of simulations over Dask: overhead, growth with workers, memory.
    BenchScale(scale_bench::Options),
    /// Measure the lab, calibrate a twin on a quarter of the cells and hold its predictions beside the others
    /// (by hand: needs root and an idle machine).
    BenchTwin(twin::Options),
    /// Kill -9 whoever makes, watches or undoes a change, and compare by foreign tools what is left (needs root).
    BenchKills(kills::Options),
    /// Tune on traffic that latput knows nothing of: false alarms, and how soon harm is banned (by hand: needs root and time).
    BenchLive(live::Options),
    /// Read and set a rack of namespaces of which some are dead, slow or lie; a broken guard and a killed controller (needs root).
    BenchFleet(fleet::Options),
    /// Feed whatever reads strangers' bytes with what libFuzzer makes up.
    Fuzz(fuzz::Options),
    /// Break the code in one place at a time, and count the breaks that no test sees (hours).
    Mutants(mutants::Options),
    /// Make what the guest of the `vm` testbed needs: a static latput and an unpacked kernel package.
    Vm,
}

fn main() -> ExitCode {
    let task = Task::parse();
    let done = Workspace::from_cargo_metadata().and_then(|workspace| match task {
        Task::Ci(options) => ci::run(&workspace, &options),
        Task::Tidy => tidy::run(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Dist(options) => dist::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchPeers(options) => peers::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchCommand(options) => command_bench::run(&workspace, &options),
        Task::Profiles(options) => profiles::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchSim(options) => sim_peers::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchModerate(options) => {
            moderate::run(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::BenchPolicies(options) => {
            policies::run(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::BenchPower(options) => power::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchObserver(options) => {
            observer::run(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::BenchCpu(options) => busy::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchWire(options) => wire::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchSearch(options) => {
            search_peers::run(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::BenchScale(options) => {
            scale_bench::run(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::BenchTwin(options) => twin::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchKills(options) => options
            .latput
            .clone()
            .map_or_else(|| workspace.build_latput(), Ok)
            .and_then(|latput| kills::run(&workspace, &latput, &options))
            .map(|()| ExitCode::SUCCESS),
        Task::BenchLive(options) => live::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::BenchFleet(options) => options
            .latput
            .clone()
            .map_or_else(|| workspace.build_latput(), Ok)
            .and_then(|latput| fleet::run(&workspace, &latput, &options))
            .map(|()| ExitCode::SUCCESS),
        Task::Fuzz(options) => fuzz::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Mutants(options) => mutants::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Vm => vm::run(&workspace).map(|()| ExitCode::SUCCESS),
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
