//! `cargo xtask bench-twin`: how well a twin of the lab predicts the lab.
//!
//! The built-in plan runs live, and a paced load beside it. A twin is calibrated on a quarter of its cells and predicts the others; then
//! both stand side by side, with errors and ranks.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::awake::stay_awake;
use crate::lab_run::{self, run_checked};
use crate::workspace::Workspace;

/// Five of the twenty cells: a request alone and bulk, held back and not, and many requests at once.
const FITTED: [&str; 5] =
    ["tcp_rr@0us", "tcp_rr@50us", "tcp_rr burst=16@0us", "tcp_stream@0us", "tcp_stream@50us"];

/// How long.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask bench-twin                   two minutes on an idle machine, as root
  cargo xtask bench-twin --realtime        on a busy one: the lab goes before all other work
  cargo xtask bench-twin --awake           in a virtual machine, whose halts are its hypervisor's
  cargo xtask bench-twin --awake --congestion cubic     as the twin has it, where the host's is BBR")]
pub struct Options {
    /// Runs of each cell.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=100))]
    repetitions: u32,
    /// Length of a run in milliseconds.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    duration_ms: u32,
    /// Run the lab's processes and NAPI threads under `SCHED_FIFO`.
    #[arg(long)]
    realtime: bool,
    /// Let no CPU halt meanwhile (a latency of 0 in `/dev/cpu_dma_latency`), as hosts of low latency have it.
    #[arg(long)]
    awake: bool,
    /// Congestion control of the TCP cells, where it is not to be the host's: a twin has `cubic`.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// This latput instead of one built for it.
    #[arg(long)]
    latput: Option<PathBuf>,
}

/// Measures, calibrates, predicts and prints both.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = match &options.latput {
        Some(path) => path.clone(),
        None => workspace.build_latput()?,
    };
    let folder = workspace.target.join("bench-twin");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let plan = render_plan(workspace, options)?;
    std::fs::write(folder.join("plan.toml"), plan).context("cannot write the plan")?;
    for old in ["live.db", "simulated.db"] {
        let _unless_there_is_none = std::fs::remove_file(folder.join(old));
    }
    let awake = options.awake.then(stay_awake).transpose()?;
    let run = ["run", "plan.toml", "--on", "lab", "-o", "live.db"];
    lab_run::run_latput(&latput, &folder, &run, options.realtime)?;
    drop(awake);
    let mut model = Command::new(&latput);
    model.args(["model", "twin", "live.db", "--name", "lab", "-o", "lab.toml"]);
    let fitted = name_fitted_cells(options);
    model.args(fitted.iter().flat_map(|cell| ["--cell", cell]));
    run_checked(model.current_dir(&folder))?;
    let simulate = ["run", "plan.toml", "--on", "sim:./lab.toml", "-o", "simulated.db"];
    let quiet = Stdio::null();
    run_checked(Command::new(&latput).args(simulate).current_dir(&folder).stdout(quiet))?;
    let mut report = Command::new(&latput);
    report.args(["report", "live.db", "--predicted", "simulated.db"]);
    report.args(fitted.iter().flat_map(|cell| ["--fitted", cell]));
    run_checked(report.current_dir(&folder))
}

/// The names of the fitted cells, whose congestion control is part of them.
fn name_fitted_cells(options: &Options) -> [String; FITTED.len()] {
    let of_tcp = options.congestion.as_ref().map(|name| format!(" congestion={name}@"));
    FITTED.map(|cell| cell.replace('@', of_tcp.as_deref().unwrap_or("@")))
}

/// A load that the built-in plan has not: its rate is given, so its cells say how well CPU time is predicted.
const PACED: &str =
    "[[workload]]\nkind = \"udp_stream\"\ndatagram_bytes = 1470\nrate = \"200Mbps\"\n\n";

/// The built-in plan and [`PACED`], with as many and as long runs as are asked for.
fn render_plan(workspace: &Workspace, options: &Options) -> Result<String> {
    let file = workspace.root.join("examples/built-in.toml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let (cells, _) = text.split_once("[method]").context("the built-in plan has no [method]")?;
    let Options { repetitions, duration_ms, .. } = options;
    let cells = match &options.congestion {
        Some(name) => {
            cells.replace("kind = \"tcp_", &format!("congestion = \"{name}\"\nkind = \"tcp_"))
        }
        None => cells.to_owned(),
    };
    Ok(format!(
        "{cells}{PACED}[method]\ndesign = \"blocks\"\nrepetitions = {{ min = {repetitions}, max = {repetitions} }}\n\
         warmup = \"100ms\"\nduration = \"{duration_ms}ms\"\nconfidence = 0.95\nhalf_width = 0.05\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_cells_are_a_quarter() {
        let workspace = Workspace::from_cargo_metadata().unwrap();
        let options = Options {
            repetitions: 2,
            duration_ms: 100,
            realtime: false,
            awake: false,
            congestion: Some(String::from("cubic")),
            latput: None,
        };
        assert_eq!(name_fitted_cells(&options)[2], "tcp_rr burst=16 congestion=cubic@0us");
        let plan = render_plan(&workspace, &options).unwrap();
        let settings = plan.matches("us\", ").count();
        let workloads = plan.matches("[[workload]]").count();
        assert_eq!((settings, workloads), (5, 4), "{plan}");
        assert_eq!(plan.matches("congestion = \"cubic\"").count(), 3, "{plan}");
        assert!(4 * FITTED.len() <= settings * workloads);
        for cell in FITTED {
            let (_, setting) = cell.split_once('@').unwrap();
            assert!(plan.contains(&format!("[\"{setting}\",")), "{cell}");
        }
    }
}
