//! `cargo xtask bench-live`: what `latput tune --live` makes of traffic that it does not know of, on a lab that is up.
//!
//! `live/traffic.py` makes the traffic: an open loop whose rate drifts by a factor of two. The bench counts three things:
//!
//! - runs that call a setting like today's different, or ban it;
//! - slices until a longer tail is banned. NAPI's deferral makes it: packets wait for up to a known time;
//! - the time that a setting with a broken guard stays in force.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::peers::lab::Lab;
use crate::workspace::Workspace;

const SCRIPT: &str = include_str!("live/traffic.py");
const ADDRESS: &str = "198.18.0.2";
const PORT: u16 = 7000;
/// The host with the live traffic, as latput names it.
const HOST: &str = "netns://latput-b%lat0";
/// Most time of one run.
const RUN_WITHIN: Duration = Duration::from_secs(600);

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Runs with a setting like today's.
    #[arg(long, default_value_t = 20)]
    same: u32,
    /// Runs with a longer tail.
    #[arg(long, default_value_t = 5)]
    worse: u32,
    /// How much longer that tail is, of today's, in percent.
    #[arg(long, default_value_t = 20)]
    percent: u32,
    /// Length of a slice: `500ms`.
    #[arg(long, default_value = "1s")]
    slice: String,
    /// Most time of each run, beside the measuring of the noise.
    #[arg(long, default_value = "1min")]
    budget: String,
    /// Requests per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
}

/// What one run came to.
struct Run {
    /// `set`, `stay` or `no_answer`.
    headline: String,
    /// Runs of the other setting, and those in which a guard was broken.
    slices: usize,
    broken: usize,
    is_banned: bool,
    /// From a reading that broke a guard until today's values were read back, milliseconds.
    back_ms: Vec<f64>,
}

/// Runs the bench and prints the table.
///
/// # Errors
///
/// 5 % of the runs call a setting like today's different, or a longer tail is not banned within two slices.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = workspace.build_latput()?;
    let folder = workspace.target.join("bench-live");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let script = folder.join("traffic.py");
    std::fs::write(&script, SCRIPT).context("cannot write the program that makes the traffic")?;
    let lab = Lab::up(&latput, &folder)?;
    let words = |role: &str, more: &[String]| {
        let words = ["python3".to_owned(), script.display().to_string(), role.to_owned()];
        [&words[..], &[ADDRESS.to_owned(), PORT.to_string()], more].concat()
    };
    let server = lab.start_in("b", &words("server", &[]))?;
    server.wait_until_listening(PORT)?;
    let load = ["20".to_owned(), options.rate.to_string(), "60".to_owned()];
    let _client = lab.start_in("a", &words("client", &load))?;
    lab.sleep(Duration::from_secs(2))?;
    let bench = Bench { lab: &lab, folder, options };
    let today_ns = bench.todays_tail()?;
    println!("today's tcp_rtt_ns_p99: {:.0} us, at {} requests/s", today_ns / 1e3, options.rate);
    let same = bench.runs(options.same, "txqueuelen = [1000, 1001]")?;
    // One end defers: a packet waits for nothing to the whole time, and smoothed round trips for half of it.
    let delay = 2.0 * today_ns * f64::from(options.percent) / 100.0;
    let deferral = format!("[\"0us\", 0], [\"{:.0}us\", 1000]", delay / 1e3);
    let deferral = format!("\"gro-flush-timeout + napi-defer-hard-irqs\" = [{deferral}]");
    let worse = bench.runs(options.worse, &deferral)?;
    println!(
        "\n{:<34} {:>5} {:>10} {:>7} {:>14} {:>12}",
        "setting", "runs", "different", "banned", "guards broken", "back within"
    );
    row("like today's", &same);
    row(&format!("tail {} % longer ({:.0} us deferral)", options.percent, delay / 1e3), &worse);
    let late = worse.iter().filter(|run| !run.is_banned || run.slices > 2).count();
    println!("\nnot banned within two slices: {late} of {} (goal: 0)", worse.len());
    let different = same.iter().filter(|run| run.headline == "set" || run.is_banned).count();
    ensure!(
        different * 20 < same.len().max(1),
        "{different} of {} runs called the same setting different",
        same.len()
    );
    ensure!(
        late == 0,
        "{late} of {} runs did not ban the longer tail within two slices",
        worse.len()
    );
    Ok(())
}

fn row(name: &str, runs: &[Run]) {
    let different = runs.iter().filter(|run| run.headline == "set").count();
    let banned = runs.iter().filter(|run| run.is_banned).count();
    let slices: usize = runs.iter().map(|run| run.slices).sum();
    let broken: usize = runs.iter().map(|run| run.broken).sum();
    let back = runs.iter().flat_map(|run| &run.back_ms).copied().fold(0.0, f64::max);
    let broken = format!("{broken} of {slices}");
    println!(
        "{name:<34} {:>5} {different:>10} {banned:>7} {broken:>14} {back:>9.1} ms",
        runs.len()
    );
}

struct Bench<'a> {
    lab: &'a Lab,
    folder: PathBuf,
    options: &'a Options,
}

impl Bench<'_> {
    /// Today's tail, as `--observe` tells it.
    fn todays_tail(&self) -> Result<f64> {
        let report = self.tuned("txqueuelen = [1000, 1001]", "observe = true")?;
        let estimate = &report["cells"][0]["metrics"]["tcp_rtt_ns_p99"]["value"];
        estimate.as_f64().context("the observed results have no tcp_rtt_ns_p99")
    }

    fn runs(&self, count: u32, factor: &str) -> Result<Vec<Run>> {
        let run = |number: u32| {
            let run = read(&self.tuned(factor, "")?);
            println!(
                "{}/{count} {factor}: {}, {} slices, {} broken",
                number + 1,
                run.headline,
                run.slices,
                run.broken
            );
            Ok(run)
        };
        (0..count).map(run).collect()
    }

    /// Tunes, and gives the report's JSON.
    fn tuned(&self, factor: &str, more: &str) -> Result<Value> {
        let text = format!(
            "schema = 1\ngoal = \"minimize tcp_rtt_ns_p50\"\n[factors]\n{factor}\n[[workload]]\nkind = \"live\"\nports = [{PORT}]\n\
             guard = [\"tcp_rtt_ns_p99 <= 1.05 today\"]\ndisruptive = [\"gro-flush-timeout\", \"napi-defer-hard-irqs\"]\nslice = \"{}\"\n{more}\n[method]\n\
             budget = \"{}\"\nhalf_width = 0.05\n",
            self.options.slice, self.options.budget
        );
        let [plan, results, page] =
            ["plan.toml", "results.db", "report.html"].map(|name| self.folder.join(name));
        std::fs::write(&plan, text).context("cannot write the plan")?;
        let _unless_there_is_none = std::fs::remove_file(&results);
        let [plan, results, page] = [plan, results, page].map(|path| path.display().to_string());
        let deadline = Instant::now() + RUN_WITHIN;
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let tune = words(&["tune", &plan, HOST, "-o", &results, "--report", &page]);
        self.lab.start_latput(&tune)?.finish(&self.lab.stop, deadline)?;
        let report = self.lab.start_latput(&words(&["report", &results, "--json"]))?;
        serde_json::from_str(&report.finish(&self.lab.stop, deadline)?)
            .context("the report is no JSON")
    }
}

fn read(report: &Value) -> Run {
    let empty = Vec::new();
    let runs = report["runs"].as_array().unwrap_or(&empty);
    let others: Vec<&Value> = runs.iter().filter(|run| run["setting"] == 1).collect();
    let failed = |name: &str| -> Vec<&str> {
        let checks = others.iter().flat_map(|run| run["checks"].as_array().into_iter().flatten());
        let failed = checks.filter(|check| check["name"] == name && check["passed"] == false);
        failed.filter_map(|check| check["detail"].as_str()).collect()
    };
    let guards = failed("guard");
    let back = |detail: &&str| detail.rsplit_once("was back ")?.1.split(' ').next()?.parse().ok();
    Run {
        headline: report["headline"]["kind"].as_str().unwrap_or_default().to_owned(),
        slices: others.len(),
        broken: guards.len(),
        is_banned: !failed("banned").is_empty(),
        back_ms: guards.iter().filter_map(back).collect(),
    }
}
