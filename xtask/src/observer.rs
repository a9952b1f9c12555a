//! `cargo xtask bench-observer`: how much latput's own measuring slows what it measures.
//!
//! Slices of one run with and without a traced span before them take turns (`LATPUT_BPF=turns`): each is compared with its
//! neighbour of the same setting, in the same connections. Demand is by the kernel's record of idle time in both. The two
//! settings of a run differ in nothing that traffic meets.
//!
//! A run as users make it has a span before the first round of each stint only, and a stint of the built-in plan has four
//! rounds or more. So its figures move by a quarter at most of what a slice behind a span does. The goal is for the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use latput_stats::paired::Average;
use latput_stats::{Contrast, Estimate};
use serde_json::Value;

use crate::goal::GoalVerdict;
use crate::workspace::Workspace;

/// The largest part of a run's slices that have a span before them: one of the fewest rounds of a stint.
const TRACED_SHARE: f64 = 0.25;
/// How far rate and demand of a run may be from those without BPF.
const GOAL: f64 = 0.01;
const CONFIDENCE: f64 = 0.95;
/// The names of the two network namespaces that stand for two hosts, and of their interfaces.
const HOSTS: [&str; 2] = ["latobs-a", "latobs-b"];
const INTERFACES: [&str; 2] = ["latobs0", "latobs1"];

const WORKLOADS: &[(&str, &str)] = &[
    ("rr", "kind = \"tcp_rr\""),
    ("burst128", "kind = \"tcp_rr\"\nburst = 128"),
    ("stream", "kind = \"tcp_stream\""),
    ("udp", "kind = \"udp_stream\""),
];

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum TestbedKind {
    /// The two namespaces that latput makes.
    Lab,
    /// Two processes of one host, over its loopback interface.
    Loopback,
    /// Two namespaces as two hosts.
    Hosts,
}

impl TestbedKind {
    const ALL: [Self; 3] = [Self::Lab, Self::Loopback, Self::Hosts];

    /// Two levels of a knob that are alike: a timer without deferred interrupts, the length of a queue that `lo` lacks.
    const fn factor(self) -> &'static str {
        match self {
            Self::Lab | Self::Hosts => "\"gro-flush-timeout\" = [\"0us\", \"1us\"]",
            Self::Loopback => "\"sut.txqueuelen\" = [1000, 1001]",
        }
    }
}

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Windows of each of two settings.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    rounds: u32,
    /// Seconds of the slices that make up a window.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The order of slices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Workloads, by name: rr, burst128, stream, udp. All of them if not given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Places. All of them if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    on: Vec<TestbedKind>,
    /// Keep CPUs from idle states: in a virtual machine the hypervisor's halts are most of the noise.
    #[arg(long)]
    awake: bool,
    /// Measure this latput, in the place of one built from this tree.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Rate, and demand of either end.
type Figures = [f64; 3];
const FIGURES: [&str; 3] = ["rate", "demand of generator", "demand of SUT"];
/// Pairs of slices by place and workload.
type Cells = BTreeMap<(TestbedKind, usize), Vec<SlicePair>>;

/// Figures of two neighbours.
#[derive(Clone, Copy, Debug)]
struct SlicePair {
    untraced: Figures,
    /// With a traced span before the slice.
    traced: Figures,
}

/// Measures, prints the table, fails where a goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let bench = ObserverBench::new(workspace, options)?;
    let wanted = |place: &TestbedKind| options.on.is_empty() || options.on.contains(place);
    let places: Vec<TestbedKind> = TestbedKind::ALL.into_iter().filter(wanted).collect();
    let _hosts = NamespacePair::create_pair()?;
    let _awake = options.awake.then(keep_cpus_awake).transpose()?;
    let named = |idx: &usize| {
        options.only.is_empty() || options.only.iter().any(|name| name == WORKLOADS[*idx].0)
    };
    let workloads: Vec<usize> = (0..WORKLOADS.len()).filter(named).collect();
    ensure!(!workloads.is_empty(), "there is no workload of these names");
    let mut cells = Cells::new();
    let measured = bench.measure_cells(&places, &workloads, options, &mut cells);
    // An error in one place leaves the figures of the others.
    let (table, missed) = render_table(&cells);
    println!("{table}");
    measured?;
    ensure!(missed == 0, "{missed} goals are missed");
    Ok(())
}

struct ObserverBench {
    latput: PathBuf,
    folder: PathBuf,
}

impl ObserverBench {
    fn new(workspace: &Workspace, options: &Options) -> Result<Self> {
        let latput = workspace.given_latput(options.binary.as_deref())?;
        let folder = workspace.target.join("bench-observer");
        std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
        for place in TestbedKind::ALL {
            std::fs::write(folder.join(testbed_of(place)), render_testbed(&latput, place))
                .context("cannot write a testbed")?;
        }
        Ok(Self { latput, folder })
    }

    fn measure_cells(
        &self,
        places: &[TestbedKind],
        workloads: &[usize],
        options: &Options,
        cells: &mut Cells,
    ) -> Result<()> {
        for &place in places {
            for &workload in workloads {
                let seen = self.run_slices(place, workload, options)?;
                println!("{}: {} compared", cell_name(place, workload), seen.len());
                cells.insert((place, workload), seen);
            }
        }
        Ok(())
    }

    /// The pairs of slices of one run.
    fn run_slices(
        &self,
        place: TestbedKind,
        workload: usize,
        options: &Options,
    ) -> Result<Vec<SlicePair>> {
        let _unless_there_is_none = std::fs::remove_file(self.folder.join("results.db"));
        std::fs::write(self.folder.join("plan.toml"), render_plan(place, workload, options))
            .context("cannot write the plan")?;
        let on = testbed_of(place);
        self.run_latput(&["run", "plan.toml", "--on", on, "-o", "results.db", "--as-it-is"])?;
        let document = self.run_latput(&["report", "results.db", "--format", "json"])?;
        pair_slices(&serde_json::from_str(&document).context("the report is no JSON")?)
    }

    fn run_latput(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.latput);
        command.args(args).env("LATPUT_BPF", "turns").current_dir(&self.folder);
        let output = command.stdin(Stdio::null()).output().context("cannot start latput")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "latput {args:?} ended with {}: {told}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn render_plan(place: TestbedKind, workload: usize, options: &Options) -> String {
    let Options { rounds, seconds, seed, .. } = options;
    format!(
        "schema = 1\nname = \"observer\"\n[factors]\n{}\n[[workload]]\n{}\n[method]\ndesign = \"slices\"\n\
         repetitions = {{ min = {rounds}, max = {rounds} }}\nseed = {seed}\nwarmup = \"300ms\"\n\
         duration = \"{seconds}s\"\n",
        place.factor(),
        WORKLOADS[workload].1
    )
}

/// The neighbours among the slices of each setting of which one had a traced span before it, and the other had none. No
/// slice is in two pairs.
fn pair_slices(document: &Value) -> Result<Vec<SlicePair>> {
    let runs = document["runs"].as_array().context("the report has no runs")?;
    let mut by_setting: BTreeMap<u64, BTreeMap<u64, (bool, Figures)>> = BTreeMap::new();
    for run in runs {
        let number = |name: &str| run[name].as_u64().context("a run without its place");
        let slices = by_setting.entry(number("setting")?).or_default();
        if let Some(figures) = figures_of_slice(run) {
            slices.insert(number("block")?, (is_traced(run), figures));
        }
    }
    let mut found = Vec::new();
    for slices in by_setting.values() {
        let mut slices = slices.iter().peekable();
        while let Some((block, &(first_traced, figures))) = slices.next() {
            let is_pair =
                |next: &&(&u64, &(bool, Figures))| *next.0 == block + 1 && next.1.0 != first_traced;
            if let Some(&(_, &(_, others))) = slices.peek().filter(is_pair) {
                let (traced, untraced) =
                    if first_traced { (figures, others) } else { (others, figures) };
                found.push(SlicePair { untraced, traced });
                slices.next();
            }
        }
    }
    ensure!(!found.is_empty(), "no slice had a span before it, or all had");
    Ok(found)
}

/// Whether either end was traced before a slice.
fn is_traced(run: &Value) -> bool {
    let hosts = run["hosts"].as_array();
    hosts.iter().copied().flatten().any(|host| host["traced_beside_ns"].is_u64())
}

fn figures_of_slice(run: &Value) -> Option<Figures> {
    let metrics = &run["metrics"];
    let rate = metrics["transactions_per_s"].as_f64().or(metrics["throughput_bps"].as_f64())?;
    let demand = |end: &str| metrics[format!("{end}_service_demand_us")].as_f64();
    let found = [rate, demand("generator")?, demand("sut")?];
    found.iter().all(|figure| *figure > 0.0).then_some(found)
}

fn cell_name(place: TestbedKind, workload: usize) -> String {
    format!("{:<10} {:<10}", format!("{place:?}").to_lowercase(), WORKLOADS[workload].0)
}

const fn testbed_of(place: TestbedKind) -> &'static str {
    match place {
        TestbedKind::Lab => "lab",
        TestbedKind::Loopback => "loopback.toml",
        TestbedKind::Hosts => "hosts.toml",
    }
}

fn render_testbed(latput: &Path, place: TestbedKind) -> String {
    let mut text = "schema = 1\n".to_owned();
    for (idx, role) in ["generator", "sut"].into_iter().enumerate() {
        let (host, interface, address) = match place {
            TestbedKind::Loopback => (HOSTS[0], "lo", "127.0.0.1".to_owned()),
            TestbedKind::Lab | TestbedKind::Hosts => {
                (HOSTS[idx], INTERFACES[idx], format!("198.19.77.{}", idx + 1))
            }
        };
        let _ = writeln!(
            text,
            "[host.{role}]\nrole = \"{role}\"\nvia = [\"ip\", \"netns\", \"exec\", \"{host}\"]\n\
             latput = \"{}\"\ninterface = \"{interface}\"\naddress = \"{address}\"\ncpus = \"{idx}\"",
            latput.display()
        );
    }
    text
}

/// Keeps CPUs from idle states that take time to leave for as long as the file is open
/// (`Documentation/power/pm_qos_interface.rst` of the kernel); in microseconds.
fn keep_cpus_awake() -> Result<File> {
    const PATH: &str = "/dev/cpu_dma_latency";
    let mut file =
        File::options().write(true).open(PATH).with_context(|| format!("cannot open {PATH}"))?;
    file.write_all(&0_i32.to_ne_bytes()).with_context(|| format!("cannot write to {PATH}"))?;
    Ok(file)
}

/// Two network namespaces that a pair of interfaces joins; removed when dropped.
struct NamespacePair;

impl NamespacePair {
    fn create_pair() -> Result<Self> {
        let made = Self;
        for host in HOSTS {
            run_ip(&["netns", "add", host])?;
            run_ip(&["-n", host, "link", "set", "lo", "up"])?;
        }
        let [first, second] = INTERFACES;
        run_ip(&[
            "link", "add", first, "netns", HOSTS[0], "type", "veth", "peer", second, "netns",
            HOSTS[1],
        ])?;
        for ((host, interface), idx) in HOSTS.into_iter().zip(INTERFACES).zip(1..) {
            let address = format!("198.19.77.{idx}/24");
            run_ip(&["-n", host, "address", "add", &address, "dev", interface])?;
            run_ip(&["-n", host, "link", "set", interface, "up"])?;
            // A veth has NAPI instances, and so timers, only with GRO.
            run_ip(&["netns", "exec", host, "ethtool", "-K", interface, "gro", "on"])?;
        }
        Ok(made)
    }
}

impl Drop for NamespacePair {
    fn drop(&mut self) {
        for host in HOSTS {
            let _gone_already = run_ip(&["netns", "delete", host]);
        }
    }
}

fn run_ip(args: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(args).status().context("cannot start ip(8)")?;
    ensure!(status.success(), "ip {args:?} ended with {status}");
    Ok(())
}

/// The table, and how many goals are missed.
fn render_table(cells: &Cells) -> (String, u32) {
    let mut text = format!(
        "{:<10} {:<10} {:<20} {:>22} {:>22}   goal: within {:.0}%\n",
        "place",
        "workload",
        "figure",
        "behind a span",
        "in a run",
        GOAL * 100.0
    );
    let (mut missed, mut open) = (0, 0);
    for ((place, workload), pairs) in cells {
        for (idx, figure) in FIGURES.iter().enumerate() {
            let pairs: Vec<(f64, f64)> =
                pairs.iter().map(|pair| (pair.untraced[idx], pair.traced[idx])).collect();
            let contrast = Contrast::paired(&pairs, Average::Trimmed, CONFIDENCE);
            let behind_span = contrast.as_ref().map(Contrast::ratio);
            let in_run = behind_span.map(scale_to_run);
            let verdict = in_run.as_ref().map_or(GoalVerdict::Open, judge_ratio);
            missed += u32::from(verdict == GoalVerdict::Missed);
            open += u32::from(verdict == GoalVerdict::Open);
            let _ = writeln!(
                text,
                "{} {figure:<20} {:>22} {:>22}   {}",
                cell_name(*place, *workload),
                format_ratio(behind_span),
                format_ratio(in_run.as_ref()),
                verdict.describe("rounds")
            );
        }
    }
    let _ = writeln!(
        text,
        "missed: the interval at {:.0}% lies beyond the goal: {missed}; open: it reaches beyond it, more rounds would \
         tell: {open}",
        CONFIDENCE * 100.0
    );
    (text, missed)
}

/// The ratio of a run of which only a part of the slices has a span before it.
fn scale_to_run(ratio: &Estimate) -> Estimate {
    let scale = |ratio: f64| 1.0 + (ratio - 1.0) * TRACED_SHARE;
    let (value, low, high) = (scale(ratio.value), scale(ratio.low), scale(ratio.high));
    Estimate { value, low, high, ..ratio.clone() }
}

fn judge_ratio(ratio: &Estimate) -> GoalVerdict {
    GoalVerdict::of_interval((ratio.low, ratio.high), &(1.0 - GOAL..=1.0 + GOAL))
}

fn format_ratio(ratio: Option<&Estimate>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |it| format!("{:.3} [{:.3}, {:.3}]", it.value, it.low, it.high),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn goal_is_missed_where_the_interval_lies_beyond() {
        let cells = |traced: f64, noise: f64| {
            let pair = |idx: u32| {
                let own = 1.0 + noise * (f64::from(idx) - 4.5);
                let figures = |factor: f64| [1000.0 * factor, 20.0 * factor, 30.0 * factor];
                SlicePair { untraced: figures(1.0), traced: figures(traced * own) }
            };
            Cells::from([((TestbedKind::Lab, 0), (0..10).map(pair).collect())])
        };
        assert_eq!(render_table(&cells(1.0, 1e-4)).1, 0);
        assert_eq!(render_table(&cells(0.94, 1e-4)).1, 3, "all three figures");
        let (text, missed) = render_table(&cells(0.97, 0.05));
        assert!(missed == 0 && text.contains("open: too few rounds"), "{text}");
    }

    #[test]
    fn neighbours_of_one_setting_are_paired() {
        let run = |setting: u64, block: u64, is_traced: bool, rate: f64| {
            let traced = is_traced.then_some(16_000_000_u64);
            json!({ "setting": setting, "block": block, "hosts": [{ "traced_beside_ns": traced }],
                "metrics": { "transactions_per_s": rate, "generator_service_demand_us": 2.0, "sut_service_demand_us": 3.0 } })
        };
        let traced = [true, false, false, true, true, false];
        let blocks = (0..).zip(traced).map(|(block, it)| run(0, block, it, 10.0 + block as f64));
        // The third of the other setting is missing, so its second has no neighbour that differs.
        let others = [run(1, 0, true, 1.0), run(1, 1, true, 1.0), run(1, 3, false, 1.0)];
        let document = json!({ "runs": blocks.chain(others).collect::<Vec<_>>() });
        let found = pair_slices(&document).unwrap();
        let rates: Vec<(f64, f64)> =
            found.iter().map(|it| (it.untraced[0], it.traced[0])).collect();
        assert_eq!(rates, [(11.0, 10.0), (12.0, 13.0), (15.0, 14.0)]);
        assert!(pair_slices(&json!({ "runs": [run(0, 0, true, 1.0)] })).is_err());
    }
}
