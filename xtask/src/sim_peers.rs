//! `cargo xtask bench-sim`: how fast the simulator is, and beside it ns-3 on the same packets.
//!
//! ns-3 comes from `PyPI` into a virtual environment under `target/`; a small C++ program is built against
//! its libraries, so that no Python is in the way. Without a network, pip or a compiler it is left out,
//! and the reason said. Times are CPU time, rounds are interleaved.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use latput_stats::order::middle;

use crate::workspace::{Workspace, capture_output, cargo_command, make_folder, python_programs};

/// The version whose libraries the program is built against.
const NS3: &str = "ns3==3.44.post0";
const PROGRAM: &str = include_str!("sim_peers/ns3.cc");
const LIBRARIES: [&str; 5] = ["applications", "core", "internet", "network", "point-to-point"];
/// Scenarios that both run: the name here and in ns-3's program, and packets of each run here.
const SHARED: [(&str, &str, &str); 3] =
    [("peer-bulk", "bulk", "3e6"), ("peer-rr", "rr", "1e6"), ("peer-both", "both", "3e6")];

/// How often, and how long.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, both simulators run each scenario once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Simulated milliseconds of an ns-3 run.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    ns3_ms: u32,
    /// Only the simulator's own scenarios.
    #[arg(long)]
    alone: bool,
}

/// Runs the scenarios and prints packets per second of CPU time.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let speed = build_speed(workspace)?;
    print!("{}", capture_output(Command::new(&speed).arg("all"))?);
    if options.alone {
        return Ok(());
    }
    let ns3 = match build_ns3(&workspace.target.join("ns3")) {
        Ok(program) => program,
        Err(error) => {
            println!("skipped: no comparison with ns-3: {error:#}");
            return Ok(());
        }
    };
    for (ours, theirs, packets) in SHARED {
        let mut ratios = Vec::new();
        for round in 1..=options.rounds {
            let latput =
                rate_of_latput(&capture_output(Command::new(&speed).args([ours, packets]))?)?;
            let seconds = format!("{}", f64::from(options.ns3_ms) / 1e3);
            let peer = rate_of_ns3(&capture_output(Command::new(&ns3).args([theirs, &seconds]))?)?;
            println!(
                "{theirs} round {round}: latput {latput:.0}, ns-3 {peer:.0} packets/s, {:.0} x",
                latput / peer
            );
            ratios.push(latput / peer);
        }
        println!("{theirs}: median {:.0} x ns-3", middle(ratios).expect("there is a round"));
    }
    Ok(())
}

fn build_speed(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = cargo_command();
    cargo.args(["build", "--quiet", "--release", "-p", "latput-sim", "--example", "speed"]);
    capture_output(cargo.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/examples/speed"))
}

/// The comparison program, built once.
fn build_ns3(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("peer");
    let source = folder.join("ns3.cc");
    if program.is_file() && std::fs::read_to_string(&source).is_ok_and(|text| text == PROGRAM) {
        return Ok(program);
    }
    make_folder(folder)?;
    let venv = folder.join("venv");
    let pip = python_programs(&venv)?.join("pip");
    // The libraries alone: the bindings for Python are not used.
    capture_output(Command::new(&pip).args(["install", "--quiet", "--no-deps", NS3]))?;
    let package = find_package(&venv)?;
    std::fs::write(&source, PROGRAM).context("cannot write the comparison program")?;
    let library = package.join("lib64");
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-std=c++20", "-I"]).arg(package.join("include")).arg(&source);
    compiler.arg("-L").arg(&library).arg(format!("-Wl,-rpath,{}", library.display()));
    compiler.args(["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]);
    for name in LIBRARIES {
        compiler.arg(format!("-l:libns3.44-{name}.so"));
    }
    capture_output(compiler.arg("-o").arg(&program))?;
    Ok(program)
}

fn find_package(venv: &Path) -> Result<PathBuf> {
    let versions = std::fs::read_dir(venv.join("lib")).context("the environment has no lib")?;
    let packages = versions.flatten().map(|entry| entry.path().join("site-packages/ns3"));
    packages.into_iter().find(|path| path.is_dir()).context("pip installed no ns3")
}

/// From `peer-bulk  5.21 Mpackets/s ...`.
fn rate_of_latput(text: &str) -> Result<f64> {
    let rate = text.split_whitespace().nth(1).and_then(|field| field.parse::<f64>().ok());
    Ok(rate.with_context(|| format!("the speed program said `{text}`"))? * 1e6)
}

/// From `PACKETS SECONDS`.
fn rate_of_ns3(text: &str) -> Result<f64> {
    let fields: Vec<f64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [packets, seconds] = fields[..] else { bail!("ns-3's program said `{text}`") };
    ensure!(packets > 0.0 && seconds > 0.0, "ns-3's program said `{text}`");
    Ok(packets / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_are_read_nonsense_is_refused() {
        let line = "peer-bulk      5.21 Mpackets/s    0.6 events/packet";
        assert!((rate_of_latput(line).unwrap() - 5.21e6).abs() < 1.0);
        assert!((rate_of_ns3("100 0.5\n").unwrap() - 200.0).abs() < 1e-9);
        assert!(rate_of_latput("").is_err() && rate_of_ns3("0 1").is_err());
    }
}
