//! `cargo xtask bench-observer`: how much latput's own measuring slows what it measures.
//!
//! On the lab and on two hosts, slices of one run with and without a traced span before them take turns
//! (`LATPUT_BPF=turns`): each is compared with its neighbour of the same setting, in the same connections. Demand is by the
//! kernel's record of idle time in both.
//!
//! On loopback no setting can take turns. There a trial runs in three ways: without BPF programs (`LATPUT_BPF=off`), as
//! latput measures today, and with CPU time traced in the window (`LATPUT_BPF=window`). Each round has an order of its own.
//! Demand is netperf's, by the ticks of `/proc/stat`: all three have it by the same clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use latput_stats::paired::Average;
use latput_stats::{Contrast, Estimate};
use latput_units::SeededRng;
use serde_json::Value;

use crate::goal::{GoalVerdict, format_estimate};
use crate::kills::pair::VethPair;
use crate::workspace::{Workspace, capture_output, make_folder};

/// How far rate and demand may be from those without BPF.
const GOAL: f64 = 0.01;
const CONFIDENCE: f64 = 0.95;
const WORKLOADS: &[(&str, &str)] = &[
    ("rr", "kind = \"tcp_rr\""),
    ("burst128", "kind = \"tcp_rr\"\nburst = 128"),
    ("stream", "kind = \"tcp_stream\""),
    ("udp", "kind = \"udp_stream\""),
];

/// Programs that are attached while a trial runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TracingMode {
    /// Nothing.
    Off,
    /// As latput attaches them: nothing in the window.
    Beside,
    /// The tracer, in the window too.
    Window,
}

impl TracingMode {
    const ALL: [Self; 3] = [Self::Off, Self::Beside, Self::Window];

    const fn env_value(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Beside => "on",
            Self::Window => "window",
        }
    }
}

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum TestbedKind {
    /// The two namespaces that latput makes.
    Lab,
    /// One host, two processes.
    Loopback,
    /// Two namespaces as two hosts.
    Hosts,
}

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds; in each, every trial runs once in each way. Of slices, as many windows for each of two settings.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    rounds: u32,
    /// Seconds of one window, or of slices that make up one.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The order of trials.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Workloads, by name: rr, burst128, stream, udp. All of them if not given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Places. All of them if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    on: Vec<TestbedKind>,
    /// Measure this latput, in the place of one built from this tree.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Rate, and demand of either end.
type Figures = [f64; 3];
const FIGURES: [&str; 3] = ["rate", "demand of generator", "demand of SUT"];
/// Figures by place and workload, round by round, in each way.
type Cells = BTreeMap<(TestbedKind, usize), Rounds>;
/// Figures to be compared with each other, round by round.
type Rounds = Vec<BTreeMap<TracingMode, Figures>>;

/// Measures, prints the table, fails where a goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = workspace.given_latput(options.binary.as_deref())?;
    let folder = workspace.target.join("bench-observer");
    make_folder(&folder)?;
    let places = [TestbedKind::Lab, TestbedKind::Loopback, TestbedKind::Hosts];
    let wanted = |place: &TestbedKind| options.on.is_empty() || options.on.contains(place);
    let places: Vec<TestbedKind> = places.into_iter().filter(wanted).collect();
    let _hosts = if places.contains(&TestbedKind::Hosts) {
        let pair = VethPair::open(&latput, &folder)?;
        pair.new_pair("true")?;
        // A veth has NAPI instances, and so timers, only with GRO.
        pair.run_script(1, "ethtool -K v0 gro on")?;
        let testbed = pair.render_testbed(["generator", "sut"], true);
        std::fs::write(folder.join("hosts.toml"), testbed).context("cannot write the testbed")?;
        Some(pair)
    } else {
        None
    };
    let bench = ObserverBench { latput, folder };
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
    fn measure_cells(
        &self,
        places: &[TestbedKind],
        workloads: &[usize],
        options: &Options,
        cells: &mut Cells,
    ) -> Result<()> {
        let mut rng = SeededRng::from_seed(options.seed);
        for &place in places {
            for &workload in workloads {
                let seen = if place == TestbedKind::Loopback {
                    self.run_trials(workload, options, &mut rng)?
                } else {
                    self.run_slices(place, workload, options)?
                };
                println!("{}: {} compared", cell_name(place, workload), seen.len());
                cells.insert((place, workload), seen);
            }
        }
        Ok(())
    }

    /// Every round of a workload on loopback.
    fn run_trials(
        &self,
        workload: usize,
        options: &Options,
        rng: &mut SeededRng,
    ) -> Result<Rounds> {
        let mut rounds = Rounds::new();
        for _ in 0..options.rounds {
            let mut ways = TracingMode::ALL;
            rng.shuffle(&mut ways);
            let mut seen = BTreeMap::new();
            for way in ways {
                seen.insert(way, self.run_trial(workload, way, options.seconds)?);
            }
            rounds.push(seen);
        }
        Ok(rounds)
    }

    fn run_trial(&self, workload: usize, way: TracingMode, seconds: u32) -> Result<Figures> {
        let method = "design = \"blocks\"\nrepetitions = { min = 1, max = 1 }";
        let plan = render_plan("", workload, method, seconds);
        let report = self.run(TestbedKind::Loopback, &plan, way.env_value())?;
        figures_of(&report["runs"][0], "netperf_demand_us").context("the report has not all figures")
    }

    /// The pairs of slices of one run. A timer without deferred interrupts does nothing, so both settings are alike.
    fn run_slices(&self, place: TestbedKind, workload: usize, options: &Options) -> Result<Rounds> {
        let factors = "[factors]\n\"gro-flush-timeout\" = [\"0us\", \"1us\"]\n";
        let rounds = options.rounds;
        let method =
            format!("design = \"slices\"\nrepetitions = {{ min = {rounds}, max = {rounds} }}");
        let plan = render_plan(factors, workload, &method, options.seconds);
        pair_slices(&self.run(place, &plan, "turns")?)
    }

    /// Runs a plan; the document of its results.
    fn run(&self, place: TestbedKind, plan: &str, switch: &str) -> Result<Value> {
        let _unless_there_is_none = std::fs::remove_file(self.folder.join("results.db"));
        std::fs::write(self.folder.join("plan.toml"), plan).context("cannot write the plan")?;
        let on = match place {
            TestbedKind::Lab => "lab",
            TestbedKind::Loopback => "loopback",
            TestbedKind::Hosts => "hosts.toml",
        };
        let latput = |args: &[&str]| {
            let mut command = Command::new(&self.latput);
            command.args(args).env("LATPUT_BPF", switch).current_dir(&self.folder);
            capture_output(command.stdin(Stdio::null()))
        };
        latput(&["run", "plan.toml", "--on", on, "-o", "results.db", "--as-it-is"])?;
        let document = latput(&["report", "results.db", "--format", "json"])?;
        serde_json::from_str(&document).context("the report is no JSON")
    }
}

fn render_plan(factors: &str, workload: usize, method: &str, seconds: u32) -> String {
    format!(
        "schema = 1\nname = \"observer\"\n{factors}[[workload]]\n{}\n[method]\n{method}\nwarmup = \"300ms\"\n\
         duration = \"{seconds}s\"\n",
        WORKLOADS[workload].1
    )
}

/// The neighbours among the slices of each setting of which one had a traced span before it, and the other had none. No
/// slice is in two pairs.
fn pair_slices(document: &Value) -> Result<Rounds> {
    let runs = document["runs"].as_array().context("the report has no runs")?;
    let mut by_setting: BTreeMap<u64, BTreeMap<u64, (TracingMode, Figures)>> = BTreeMap::new();
    for run in runs {
        let number = |name: &str| run[name].as_u64().context("a run without its place");
        let slices = by_setting.entry(number("setting")?).or_default();
        if let Some(figures) = figures_of(run, "service_demand_us") {
            slices.insert(number("block")?, (read_tracing_mode(run), figures));
        }
    }
    let mut found = Rounds::new();
    for slices in by_setting.values() {
        let mut slices = slices.iter().peekable();
        while let Some((block, (way, figures))) = slices.next() {
            let is_pair =
                |next: &&(&u64, &(TracingMode, Figures))| *next.0 == block + 1 && next.1.0 != *way;
            if let Some((_, (other, others))) = slices.peek().filter(is_pair) {
                found.push(BTreeMap::from([(*way, *figures), (*other, *others)]));
                slices.next();
            }
        }
    }
    ensure!(!found.is_empty(), "no slice had a span before it, or all had");
    Ok(found)
}

/// Whether either end was traced before a slice.
fn read_tracing_mode(run: &Value) -> TracingMode {
    let hosts = run["hosts"].as_array();
    let is_traced = hosts.iter().copied().flatten().any(|host| host["traced_beside_ns"].is_u64());
    if is_traced { TracingMode::Beside } else { TracingMode::Off }
}

/// Rate and demand of a trial or a slice, where it has all.
fn figures_of(run: &Value, demand: &str) -> Option<Figures> {
    let metric = |name: &str| run["metrics"][name].as_f64();
    let rate = metric("transactions_per_s").or_else(|| metric("throughput_bps"))?;
    let [generator, sut] = ["generator", "sut"].map(|end| metric(&format!("{end}_{demand}")));
    let found = [rate, generator?, sut?];
    found.iter().all(|figure| *figure > 0.0).then_some(found)
}

fn cell_name(place: TestbedKind, workload: usize) -> String {
    format!("{:<10} {:<10}", format!("{place:?}").to_lowercase(), WORKLOADS[workload].0)
}

/// The table, and how many goals are missed.
fn render_table(cells: &Cells) -> (String, u32) {
    let mut text = format!(
        "{:<10} {:<10} {:<20} {:>26} {:>26}   goal: beside within {:.0}% of without\n",
        "place",
        "workload",
        "figure",
        "beside / without",
        "in the window / without",
        GOAL * 100.0
    );
    let (mut missed, mut open) = (0, 0);
    for ((place, workload), rounds) in cells {
        for (idx, figure) in FIGURES.iter().enumerate() {
            let ratio = |way| {
                let pair = |seen: &BTreeMap<TracingMode, Figures>| {
                    Some((seen.get(&TracingMode::Off)?[idx], seen.get(&way)?[idx]))
                };
                let pairs: Vec<(f64, f64)> = rounds.iter().filter_map(pair).collect();
                Some(Contrast::paired(&pairs, Average::Trimmed, CONFIDENCE)?.ratio().clone())
            };
            let [beside, window] = [TracingMode::Beside, TracingMode::Window].map(ratio);
            let verdict = beside.as_ref().map_or(GoalVerdict::Open, judge_ratio);
            missed += u32::from(verdict == GoalVerdict::Missed);
            open += u32::from(verdict == GoalVerdict::Open);
            let _ = writeln!(
                text,
                "{} {figure:<20} {:>26} {:>26}   {verdict:?}",
                cell_name(*place, *workload),
                beside.map_or_else(|| "-".to_owned(), format_estimate),
                window.map_or_else(|| "-".to_owned(), format_estimate)
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

fn judge_ratio(ratio: &Estimate) -> GoalVerdict {
    GoalVerdict::of_interval((ratio.low, ratio.high), &(1.0 - GOAL..=1.0 + GOAL))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn goal_is_missed_where_the_interval_lies_beyond() {
        let cells = |beside: f64, noise: f64| {
            let round = |idx: u32| {
                let own = 1.0 + noise * (f64::from(idx) - 4.5);
                let figures = |factor: f64| [1000.0 * factor, 20.0 * factor, 30.0 * factor];
                BTreeMap::from([
                    (TracingMode::Off, figures(1.0)),
                    (TracingMode::Beside, figures(beside * own)),
                    (TracingMode::Window, figures(0.85)),
                ])
            };
            Cells::from([((TestbedKind::Lab, 0), (0..10).map(round).collect())])
        };
        assert_eq!(render_table(&cells(1.0, 1e-4)).1, 0);
        assert_eq!(render_table(&cells(0.97, 1e-4)).1, 3, "all three figures");
        let (text, missed) = render_table(&cells(0.99, 0.02));
        assert!(missed == 0 && text.contains("Open") && text.contains("0.850"), "{text}");
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
        let rates: Vec<(f64, f64)> = found
            .iter()
            .map(|it| (it[&TracingMode::Off][0], it[&TracingMode::Beside][0]))
            .collect();
        assert_eq!(rates, [(11.0, 10.0), (12.0, 13.0), (15.0, 14.0)]);
        assert!(pair_slices(&json!({ "runs": [run(0, 0, true, 1.0)] })).is_err());
    }

    #[test]
    fn figures_are_read_from_a_run() {
        let run = json!({ "metrics": { "throughput_bps": 5e9, "transactions_per_s": null,
            "sut_netperf_demand_us": 3.5, "generator_netperf_demand_us": 4.5 } });
        let seen = figures_of(&run, "netperf_demand_us").unwrap();
        let near = [5e9, 4.5, 3.5].iter().zip(seen).all(|(one, other)| (one - other).abs() < 1e-6);
        assert!(near, "{seen:?}");
        assert_eq!(figures_of(&run, "service_demand_us"), None);
    }
}
