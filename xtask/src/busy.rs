//! `cargo xtask bench-cpu`: latput's busy time beside that of bpftrace, for every kind of workload on the lab.
//!
//! bpftrace counts by a script of its own (`busy/busy.bt`) that shares neither code nor state with latput. Each trial
//! is cut out of its record by the clock: traffic is steady, so the middle of a trial stands for the whole. A goal
//! is missed where a host's busy time differs by more than 3%, or where service demand puts two settings
//! that differ by more than that into the other order. Medians of the trials are compared: bpftrace loses an event now and
//! then, and has said that a CPU was busy for 160% of a trial.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use latput_stats::order::middle;

use crate::peers::lab::Lab;
use crate::workspace::Workspace;

const SCRIPT: &str = include_str!("busy/busy.bt");
/// How far the two may be apart, of bpftrace's.
const GOAL: f64 = 0.03;
/// How often bpftrace prints.
const STEP: Duration = Duration::from_millis(50);
const WARMUP: Duration = Duration::from_millis(500);
const TRIAL: Duration = Duration::from_secs(3);
/// Left out at the start of a trial: connecting, and the coarse clock of its start.
const EDGE: Duration = Duration::from_millis(200);
/// Stretch of a trial that is compared.
const MIDDLE: Duration = Duration::from_millis(2600);

/// Every kind of workload, as a plan has it.
const WORKLOADS: &[&str] = &[
    r#"kind = "tcp_rr""#,
    "kind = \"tcp_rr\"\nburst = 16",
    "kind = \"tcp_rr\"\nrate_per_s = 3000",
    r#"kind = "tcp_crr""#,
    r#"kind = "tcp_stream""#,
    r#"kind = "tcp_maerts""#,
    r#"kind = "tcp_bidir""#,
    r#"kind = "fetch""#,
    r#"kind = "rpc_read""#,
    r#"kind = "udp_stream""#,
    "kind = \"udp_stream\"\nrate = \"200Mbps\"",
    r#"kind = "udp_rr""#,
    r#"kind = "ping""#,
];

/// Delays of the receive side, from none: what ticks get wrong depends on them.
const SETTINGS: &str = r#"[["0us", 0], ["20us", 100], ["100us", 100]]"#;

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Trials of each cell.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    repetitions: u32,
}

/// Measures by both, prints the table, fails where a goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = workspace.build_latput()?;
    let folder = workspace.target.join("bench-cpu");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let plan = folder.join("plan.toml");
    std::fs::write(&plan, plan_text(options.repetitions)).context("cannot write the plan")?;
    let lab = Lab::up(&latput, &folder)?;
    let cpus = [&lab.client_cpus, &lab.server_cpus].map(|list| list.parse::<usize>());
    let [Ok(client), Ok(server)] = cpus else { bail!("each host of the lab needs one CPU") };
    let record = BpftraceRecorder::start([client, server])?;
    let results = folder.join("results.db");
    let _unless_there_is_none = std::fs::remove_file(&results);
    let words = |words: [&str; 6]| words.map(str::to_owned);
    let [plan, testbed, results] =
        [plan, lab.testbed.clone(), results].map(|path| path.display().to_string());
    let minutes = Duration::from_secs(3600);
    let deadline = std::time::Instant::now() + minutes;
    lab.start_latput(&words(["run", &plan, "--on", &testbed, "-o", &results]))?
        .wait_for_output(&lab.stop, deadline)?;
    let samples = record.stop_recording()?;
    let csv = lab
        .start_latput(&["report", &results, "--format", "csv"].map(str::to_owned))?
        .wait_for_output(&lab.stop, deadline)?;
    let cells = collect_cells(&csv, &samples)?;
    let (table, missed) = render_table(&cells);
    println!("{table}");
    ensure!(missed == 0, "{missed} goals are missed");
    Ok(())
}

fn plan_text(repetitions: u32) -> String {
    let mut text = format!(
        "schema = 1\nname = \"busy time\"\n[factors]\n\"gro-flush-timeout + napi-defer-hard-irqs\" = {SETTINGS}\n"
    );
    for workload in WORKLOADS {
        let _ = writeln!(text, "[[workload]]\n{workload}");
    }
    let _ = writeln!(
        text,
        "[method]\ndesign = \"blocks\"\nrepetitions = {{ min = {repetitions}, max = {repetitions} }}\n\
         warmup = \"{}ms\"\nduration = \"{}s\"",
        WARMUP.as_millis(),
        TRIAL.as_secs()
    );
    text
}

/// Busy time since the start of two CPUs, at an instant of the monotonic clock; nanoseconds.
#[derive(Clone, Copy, Debug)]
struct BusySample {
    at: u64,
    busy: [u64; 2],
}

/// bpftrace, running.
#[derive(Debug)]
struct BpftraceRecorder {
    child: std::process::Child,
    output: std::thread::JoinHandle<std::io::Result<String>>,
}

impl BpftraceRecorder {
    fn start([client, server]: [usize; 2]) -> Result<Self> {
        let busy = |cpu| format!("@busy[{cpu}] + (@since[{cpu}] ? nsecs - @since[{cpu}] : 0)");
        let script = format!(
            "{SCRIPT}\ninterval:ms:{} {{ printf(\"%llu %llu %llu\\n\", nsecs, {}, {}); }}",
            STEP.as_millis(),
            busy(client),
            busy(server)
        );
        // bpftrace looks tracepoints up in tracefs; a mount of its own leaves the host's as it is.
        let mount = "mount -t tracefs none /sys/kernel/tracing && exec bpftrace -B line -e \"$0\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", mount, &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start unshare(1) and bpftrace(8)")?;
        let mut pipe = child.stdout.take().context("bpftrace has no output")?;
        let output = std::thread::spawn(move || std::io::read_to_string(&mut pipe));
        std::thread::sleep(Duration::from_secs(3));
        if let Some(status) = child.try_wait()? {
            bail!("bpftrace ended with {status}: is it installed, is tracing allowed?");
        }
        Ok(Self { child, output })
    }

    fn stop_recording(mut self) -> Result<Vec<BusySample>> {
        self.child.kill().context("cannot end bpftrace")?;
        self.child.wait().context("cannot wait for bpftrace")?;
        let text = self.output.join().ok().context("a reader ended early")??;
        let samples: Vec<BusySample> = text.lines().filter_map(parse_sample).collect();
        ensure!(!samples.is_empty(), "bpftrace printed no sample");
        Ok(samples)
    }
}

fn parse_sample(line: &str) -> Option<BusySample> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
    let [at, client, server] = numbers?[..] else { return None };
    Some(BusySample { at, busy: [client, server] })
}

/// Counts of both in one trial; shares of the window.
#[derive(Clone, Copy, Debug)]
struct BusyTrial {
    /// Of the generator and the system under test.
    latput: [f64; 2],
    bpftrace: [f64; 2],
    /// Of the system under test, by latput: busy time for each unit of work.
    demand: f64,
}

/// Trials by workload and setting.
type Cells = BTreeMap<(String, String), Vec<BusyTrial>>;

/// The median over trials, of which each cell has some.
fn median_of(trials: &[BusyTrial], of: impl Fn(&BusyTrial) -> f64) -> f64 {
    middle(trials.iter().map(of)).unwrap_or(f64::NAN)
}

fn collect_cells(csv: &str, samples: &[BusySample]) -> Result<Cells> {
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().context("the report is empty")?.split(',').collect();
    let ahead = realtime_ahead()?;
    let mut cells = Cells::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |name: &str| {
            let idx = head.iter().position(|it| *it == name)?;
            fields.get(idx).copied()
        };
        let text = |name: &str| field(name).with_context(|| format!("the report has no {name}"));
        let number =
            |name: &str| text(name)?.parse::<f64>().with_context(|| format!("{name} in `{line}`"));
        let started = Duration::from_secs_f64(number("started_unix_ms")? / 1e3)
            .checked_sub(ahead)
            .context("a trial began before the machine")?;
        let from = started + WARMUP + EDGE;
        let seen = busy_between(samples, from, from + MIDDLE)
            .with_context(|| format!("bpftrace has no record of `{line}`"))?;
        let of = |host| number(&format!("{host}_cpu_busy_ratio"));
        let trial = BusyTrial {
            latput: [of("generator")?, of("sut")?],
            bpftrace: seen,
            demand: number("sut_service_demand_us").unwrap_or(f64::NAN),
        };
        let cell = (text("workload")?.to_owned(), text("setting")?.to_owned());
        cells.entry(cell).or_default().push(trial);
    }
    Ok(cells)
}

/// How far the wall clock is ahead of the monotonic one.
fn realtime_ahead() -> Result<Duration> {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let monotonic = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Ok(wall.saturating_sub(Duration::try_from(monotonic)?))
}

/// Shares of the time between two instants of the monotonic clock.
fn busy_between(samples: &[BusySample], from: Duration, until: Duration) -> Option<[f64; 2]> {
    let at = |instant: Duration| {
        let idx = samples.partition_point(|sample| u128::from(sample.at) < instant.as_nanos());
        samples.get(idx)
    };
    let (first, last) = (at(from)?, at(until)?);
    let window = last.at.checked_sub(first.at).filter(|window| *window > 0)? as f64;
    Some(std::array::from_fn(|idx| last.busy[idx].saturating_sub(first.busy[idx]) as f64 / window))
}

/// The table, and how many goals are missed.
fn render_table(cells: &Cells) -> (String, u32) {
    let mut text = format!(
        "{:<24} {:<24} {:>28} {:>28}   goal: within {:.0}%\n",
        "workload",
        "setting",
        "generator latput/bpftrace",
        "SUT latput/bpftrace",
        GOAL * 100.0
    );
    let mut missed = 0;
    let mut impossible = 0;
    for ((workload, setting), trials) in cells {
        let _ = write!(text, "{workload:<24} {setting:<24}");
        for idx in 0..2 {
            impossible += trials.iter().filter(|it| it.bpftrace[idx] > 1.0 + GOAL).count();
            let ours = median_of(trials, |it| it.latput[idx]);
            let theirs = median_of(trials, |it| it.bpftrace[idx]);
            let ratio = median_of(trials, |it| it.latput[idx] / it.bpftrace[idx]);
            let miss = (ratio - 1.0).abs() > GOAL;
            missed += u32::from(miss);
            let mark = if miss { '!' } else { ' ' };
            let _ =
                write!(text, " {:>8.2} {:>7.2}% {ratio:>7.3}{mark}", ours * 100.0, theirs * 100.0);
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "bpftrace said that a CPU was busy for more than a whole trial: {impossible} times"
    );
    let swaps = find_order_swaps(cells);
    let _ = writeln!(
        text,
        "order of settings by service demand: {} pairs differ; goal: 0",
        swaps.len()
    );
    for swap in &swaps {
        let _ = writeln!(text, "  {swap}");
    }
    (text, missed + u32::try_from(swaps.len()).unwrap_or(u32::MAX))
}

/// Pairs of settings that the two put into different orders by the SUT's service demand, though they are further
/// apart than the goal.
fn find_order_swaps(cells: &Cells) -> Vec<String> {
    let mut swaps = Vec::new();
    for ((workload, first), one) in cells {
        let others = cells.range((workload.clone(), first.clone())..).skip(1);
        for ((_, second), other) in others.take_while(|((of, _), _)| of == workload) {
            let demands = [one, other].map(|trials| {
                let by_bpftrace = |it: &BusyTrial| it.demand * it.bpftrace[1] / it.latput[1];
                [median_of(trials, |it| it.demand), median_of(trials, by_bpftrace)]
            });
            let [ours, theirs] = [0, 1].map(|idx| (demands[1][idx] / demands[0][idx]).ln());
            if ours * theirs < 0.0 && ours.abs().max(theirs.abs()) > GOAL {
                swaps.push(format!("{workload}: {first} and {second}"));
            }
        }
    }
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_of_trial_is_cut_out() {
        let samples: Vec<BusySample> = (0..=100_u64)
            .map(|idx| BusySample {
                at: idx * 50_000_000,
                busy: [idx * 25_000_000, idx * 5_000_000],
            })
            .collect();
        let second = Duration::from_secs(1);
        let seen = busy_between(&samples, second, 3 * second).unwrap();
        assert!((seen[0] - 0.5).abs() < 1e-9 && (seen[1] - 0.1).abs() < 1e-9, "{seen:?}");
        assert_eq!(busy_between(&samples, second, 9 * second), None, "the record is shorter");
        assert!(parse_sample("Attaching 9 probes...").is_none());
    }

    #[test]
    fn wrong_busy_time_misses_the_goal() {
        let cell = |latput, bpftrace, demand| {
            let trial =
                |bpftrace| BusyTrial { latput: [0.5, latput], bpftrace: [0.5, bpftrace], demand };
            vec![trial(bpftrace), trial(1.6), trial(bpftrace)]
        };
        let name = |setting: &str| ("tcp_rr".to_owned(), setting.to_owned());
        let good = Cells::from([
            (name("0us"), cell(0.5, 0.5, 30.0)),
            (name("9us"), cell(0.4, 0.405, 40.0)),
        ]);
        let (text, missed) = render_table(&good);
        assert!(missed == 0 && text.contains("more than a whole trial: 2 times"), "{text}");
        assert!((median_of(&cell(0.4, 0.5, 1.0)[..2], |it| it.bpftrace[1]) - 1.05).abs() < 1e-9);
        let off = Cells::from([(name("0us"), cell(0.5, 0.6, 30.0))]);
        assert_eq!(render_table(&off).1, 1);
        let swapped =
            Cells::from([(name("0us"), cell(0.5, 0.6, 30.0)), (name("9us"), cell(0.5, 0.5, 31.5))]);
        assert_eq!(render_table(&swapped).1, 2, "one is off, and 36 stands against 31.5");
    }
}
