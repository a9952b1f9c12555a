//! `cargo xtask bench-live`: what `latput tune --live` makes of traffic that it does not know of, on a lab that is up.
//!
//! `live/traffic.py` makes the traffic: an open loop whose rate drifts by a factor of two, and which serves a histogram of its
//! requests' times as a user's program would. The goals:
//!
//! - a setting like today's is called different in fewer than 5% of comparisons;
//! - a setting with a tail a fifth longer is banned within two slices;
//! - a setting that saves a tenth of the CPU time of a packet is found and proven.
//!
//! The settings of the last two defer NAPI. The bench finds by how much, from the application's own figure and from the time
//! that the CPU's idle states leave, neither of which latput has a part in.

mod deferral;
mod traffic;
mod tuned;

use std::cmp::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::deferral::{Deferral, DeferralSweep, OutsideFigure, slice_for_tail};
use self::traffic::ForeignTraffic;
use self::tuned::{TunedSetting, Tuner};
use crate::peers::lab::Lab;
use crate::workspace::Workspace;

/// How thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The kinds of setting to try.
    #[arg(long, value_delimiter = ',', default_value = "worse,saving,same")]
    only: Vec<SettingKind>,
    /// Comparisons of a setting like today's.
    #[arg(long, default_value_t = 30)]
    same: u32,
    /// Of them in one run.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=40))]
    same_in_run: u32,
    /// Slices of those.
    #[arg(long, default_value = "300ms")]
    same_slice: String,
    /// Settings with a longer tail.
    #[arg(long, default_value_t = 4)]
    worse: u32,
    /// How much longer that tail is, of today's, in percent.
    #[arg(long, default_value_t = 20)]
    percent: u32,
    /// Slices of those, in seconds; as long as the noise wants it by default.
    #[arg(long)]
    slice_s: Option<f64>,
    /// Settings that save CPU time.
    #[arg(long, default_value_t = 2)]
    saving: u32,
    /// How much of today's, in percent.
    #[arg(long, default_value_t = 10)]
    saved_percent: u32,
    /// The deferral with the longer tail, if it is known: it is measured, and not looked for.
    #[arg(long)]
    worse_us: Option<u32>,
    /// The deferral that saves CPU time, if it is known.
    #[arg(long)]
    saving_us: Option<u32>,
    /// Today's deferral of the server's NAPI, in microseconds. It is most of a request's time, so that the machine's own noise
    /// is a small part of the tail.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    today_us: u32,
    /// Requests per second, on average.
    #[arg(long, default_value_t = 2000)]
    rate: u32,
}

/// A kind of setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SettingKind {
    /// A longer tail, by the application's own figure.
    Worse,
    /// The same on the host that asks, by the kernel's round-trip times.
    Asking,
    /// Less CPU time.
    Saving,
    /// As today's.
    Same,
}

/// The goal of each run.
const GOAL: &str = "minimize sut_packet_cpu_ns";
/// The guard of runs that know the application's figure, and of those that do not.
const BY_APPLICATION: &str = "request_ns_p99 <= 1.05 today";
const BY_KERNEL: &str = "tcp_rtt_ns_p99 <= 1.05 today";
/// Slices of the runs about CPU time.
const SAVING_SLICE: &str = "2s";

/// Runs the bench and prints the table.
///
/// # Errors
///
/// A goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let latput = workspace.build_latput()?;
    let folder = workspace.target.join("bench-live");
    std::fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let lab = Lab::up(&latput, &folder)?;
    let traffic = ForeignTraffic::start(&lab, options.rate, options.today_us)?;
    let tuner = Tuner { lab: &lab, folder };
    let mut bench =
        LiveBench { options, traffic, tuner, sweep: None, table: FindingsTable::default() };
    for case in &options.only {
        match case {
            SettingKind::Worse | SettingKind::Asking => bench.longer_tails(*case)?,
            SettingKind::Saving => bench.check_savings()?,
            SettingKind::Same => bench.likes_of_today()?,
        }
    }
    bench.table.print_table()
}

struct LiveBench<'a> {
    options: &'a Options,
    traffic: ForeignTraffic<'a>,
    tuner: Tuner<'a>,
    sweep: Option<DeferralSweep>,
    table: FindingsTable,
}

impl LiveBench<'_> {
    /// The deferral that makes a figure so many times today's.
    fn find_deferral(
        &mut self,
        figure: OutsideFigure,
        ratio: f64,
        known_us: Option<u32>,
    ) -> Result<Deferral> {
        if let Some(microseconds) = known_us {
            return Deferral::from_measurement(&self.traffic, figure, microseconds);
        }
        if self.sweep.is_none() {
            self.sweep = Some(DeferralSweep::run(&self.traffic)?);
        }
        let sweep = self.sweep.as_ref().context("there is no sweep")?;
        sweep.find_deferral(&self.traffic, figure, ratio)
    }

    /// Settings with a tail that breaks the guard.
    fn longer_tails(&mut self, case: SettingKind) -> Result<()> {
        let ratio = 1.0 + f64::from(self.options.percent) / 100.0;
        let found = self.find_deferral(OutsideFigure::Tail, ratio, self.options.worse_us)?;
        let (host, guard) = match case {
            SettingKind::Asking => ("a", BY_KERNEL),
            _ => ("b", BY_APPLICATION),
        };
        let slice_s = self.options.slice_s.map_or_else(|| slice_for_tail(&self.traffic), Ok)?;
        let slice = format!("{:.0}ms", 1e3 * slice_s);
        let factor = found.format_factor(self.options.worse);
        let runs = self.tuner.run_tune(host, &factor, &slice, Some(guard))?;
        self.table.add_row(&format!("{}, {slice}, {}", found.in_words(), guard), &runs);
        let late = runs.iter().filter(|run| !run.is_banned || run.slices > 2).count();
        let text = format!(
            "longer tails not banned within two slices: {late} of {} (goal: 0)",
            runs.len()
        );
        self.table.add_goal(text, late == 0);
        Ok(())
    }

    /// Settings that save CPU time, and are slower: no guard is on that.
    fn check_savings(&mut self) -> Result<()> {
        let ratio = 1.0 - f64::from(self.options.saved_percent) / 100.0;
        let found = self.find_deferral(OutsideFigure::PacketCpu, ratio, self.options.saving_us)?;
        let factor = found.format_factor(self.options.saving);
        let runs = self.tuner.run_tune("b", &factor, SAVING_SLICE, None)?;
        self.table.add_row(&format!("{}, {SAVING_SLICE}", found.in_words()), &runs);
        let proven = runs.iter().filter(|run| run.difference == Some(Ordering::Less)).count();
        let is_set = runs.iter().any(|run| run.is_set);
        // A run ends with its answer, and then others that save as much may not be proven yet.
        let text = format!(
            "savings proven: {proven} of {}, and {} recommended (goal: one)",
            runs.len(),
            if is_set { "one" } else { "none" }
        );
        self.table.add_goal(text, proven > 0 && is_set);
        Ok(())
    }

    fn likes_of_today(&mut self) -> Result<()> {
        let runs = tune_null_settings(&self.tuner, self.options)?;
        self.table.add_row(&format!("like today's, {}", self.options.same_slice), &runs);
        let is_wrong = |run: &&TunedSetting| run.difference.is_some() || run.is_banned;
        let wrong = runs.iter().filter(is_wrong).count();
        let text = format!(
            "like today's, and called different or banned: {wrong} of {} (goal: fewer than 5%)",
            runs.len()
        );
        self.table.add_goal(text, wrong * 20 < runs.len().max(1));
        Ok(())
    }
}

/// Settings like today's: lengths of a queue in which nothing ever waits.
fn tune_null_settings(tuner: &Tuner<'_>, options: &Options) -> Result<Vec<TunedSetting>> {
    let mut runs = Vec::new();
    while runs.len() < options.same as usize {
        let count = options.same_in_run.min(options.same - u32::try_from(runs.len())?);
        let levels: Vec<String> = (1000..=1000 + count).map(|length| length.to_string()).collect();
        let factor = format!("txqueuelen = [{}]", levels.join(", "));
        let found = tuner.run_tune("b", &factor, &options.same_slice, Some(BY_APPLICATION))?;
        ensure!(!found.is_empty(), "a run has compared nothing");
        runs.extend(found);
    }
    Ok(runs)
}

/// Findings of the bench.
#[derive(Debug, Default)]
struct FindingsTable {
    rows: Vec<String>,
    goals: Vec<(String, bool)>,
}

impl FindingsTable {
    fn add_row(&mut self, name: &str, runs: &[TunedSetting]) {
        let count = |is: fn(&TunedSetting) -> bool| runs.iter().filter(|run| is(run)).count();
        let slices: usize = runs.iter().map(|run| run.slices).sum();
        let broken: usize = runs.iter().map(|run| run.broken).sum();
        let most = runs.iter().map(|run| run.slices).max().unwrap_or_default();
        let back = runs.iter().flat_map(|run| &run.back_ms).copied().reduce(f64::max);
        let back = back.map_or("-".to_owned(), |back| format!("{back:.1} ms"));
        let [different, set, banned] = [
            count(|run| run.difference.is_some()),
            count(|run| run.is_set),
            count(|run| run.is_banned),
        ];
        let broken = format!("{broken} of {slices}");
        self.rows.push(format!(
            "{name:<72} {:>11} {different:>9} {set:>5} {banned:>6} {most:>12} {broken:>14} {back:>11}",
            runs.len()
        ));
    }

    fn add_goal(&mut self, text: String, is_met: bool) {
        self.goals.push((text, is_met));
    }

    fn print_table(self) -> Result<()> {
        println!(
            "\n{:<72} {:>11} {:>9} {:>5} {:>6} {:>12} {:>14} {:>11}",
            "setting",
            "comparisons",
            "different",
            "set",
            "banned",
            "slices, most",
            "guards broken",
            "back within"
        );
        self.rows.iter().for_each(|row| println!("{row}"));
        for (text, is_met) in &self.goals {
            println!("{} {text}", if *is_met { "met:   " } else { "missed:" });
        }
        let missed = self.goals.iter().filter(|(_, is_met)| !is_met).count();
        ensure!(missed == 0, "{missed} of {} goals are missed", self.goals.len());
        Ok(())
    }
}

/// How long the traffic runs before anything is measured.
const WARMUP: Duration = Duration::from_secs(2);
