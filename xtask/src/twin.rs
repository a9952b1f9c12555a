//! `cargo xtask bench-twin`: how well a twin of the lab predicts the lab.
//!
//! The built-in plan runs live, and a paced load beside it. A twin is calibrated on a quarter of its cells and predicts the others; then
//! both stand side by side, with errors and ranks.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::awake::stay_awake;
use crate::workspace::Workspace;

/// Five of the twenty cells: a request alone and bulk, held back and not, and many requests at once.
const FITTED: [&str; 5] =
    ["tcp_rr@0us", "tcp_rr@50us", "tcp_rr burst=16@0us", "tcp_stream@0us", "tcp_stream@50us"];
/// What the lab's NAPI threads are called.
const NAPI_THREAD: &str = "napi/lat0";
/// Their priority and that of the traffic, with `--realtime`.
const PRIORITY: &str = "10";

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
    let plan = plan(workspace, options)?;
    std::fs::write(folder.join("plan.toml"), plan).context("cannot write the plan")?;
    for old in ["live.db", "simulated.db"] {
        let _unless_there_is_none = std::fs::remove_file(folder.join(old));
    }
    let awake = options.awake.then(stay_awake).transpose()?;
    measure(&latput, &folder, options.realtime)?;
    drop(awake);
    let mut model = Command::new(&latput);
    model.args(["model", "twin", "live.db", "--name", "lab", "-o", "lab.toml"]);
    let fitted = fitted(options);
    model.args(fitted.iter().flat_map(|cell| ["--cell", cell]));
    succeed(model.current_dir(&folder))?;
    let simulate = ["run", "plan.toml", "--on", "sim:./lab.toml", "-o", "simulated.db"];
    let quiet = Stdio::null();
    succeed(Command::new(&latput).args(simulate).current_dir(&folder).stdout(quiet))?;
    let mut report = Command::new(&latput);
    report.args(["report", "live.db", "--predicted", "simulated.db"]);
    report.args(fitted.iter().flat_map(|cell| ["--fitted", cell]));
    succeed(report.current_dir(&folder))
}

/// The names of the fitted cells, whose congestion control is part of them.
fn fitted(options: &Options) -> [String; FITTED.len()] {
    let of_tcp = options.congestion.as_ref().map(|name| format!(" congestion={name}@"));
    FITTED.map(|cell| cell.replace('@', of_tcp.as_deref().unwrap_or("@")))
}

/// A load that the built-in plan has not: its rate is given, so its cells say how well CPU time is predicted.
const PACED: &str =
    "[[workload]]\nkind = \"udp_stream\"\ndatagram_bytes = 1470\nrate = \"200Mbps\"\n\n";

/// The built-in plan and [`PACED`], with as many and as long runs as are asked for.
fn plan(workspace: &Workspace, options: &Options) -> Result<String> {
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

fn measure(latput: &Path, folder: &Path, realtime: bool) -> Result<()> {
    let run = ["run", "plan.toml", "--on", "lab", "-o", "live.db"];
    if !realtime {
        return succeed(Command::new(latput).args(run).current_dir(folder).stdout(Stdio::null()));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                raise_napi_threads();
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let mut command = Command::new("chrt");
        command.args(["-f", PRIORITY]).arg(latput).args(run);
        let measured = succeed(command.current_dir(folder).stdout(Stdio::null()));
        done.store(true, Ordering::Relaxed);
        measured
    })
}

/// The kernel starts a NAPI thread without the priority of who asked for it.
fn raise_napi_threads() {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        if name.starts_with(NAPI_THREAD) {
            let mut command = Command::new("chrt");
            command.args(["-f", "-p", PRIORITY]).arg(process.file_name());
            let _gone_meanwhile = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    ensure!(status.success(), "{shown} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fitted_cells_are_a_quarter_of_those_of_the_built_in_plan() {
        let workspace = Workspace::find().unwrap();
        let options = Options {
            repetitions: 2,
            duration_ms: 100,
            realtime: false,
            awake: false,
            congestion: Some(String::from("cubic")),
            latput: None,
        };
        assert_eq!(fitted(&options)[2], "tcp_rr burst=16 congestion=cubic@0us");
        let plan = plan(&workspace, &options).unwrap();
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
