//! `latput tune`: runs a plan, recommends a setting and writes the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use latput_experiment::Testbed;
use latput_experiment::session::PlannedRuns;
use latput_experiment::simulator::Simulator;
use latput_linux::confine::UsedFiles;
use latput_linux::files;
use latput_model::ResultsSummary;
use latput_reach::target::FORMS;
use latput_report::shell_word;
use latput_trial::Plan;
use latput_trial::nic::{Nic, PlanSize};
use latput_trial::plan::{self, Design, Factor, MAX_SEARCHED};
use latput_units::Nanos;

use crate::command_args::CommandArgs;
use crate::commands::{check, report, run};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::factor_args::FactorArgs;
use crate::live_args::LiveArgs;
use crate::output;
use crate::precision::FirstArg;
use crate::quiet_args::QuietArgs;
use crate::targets::{self, HostArgs, NamedTestbed};

/// Fewest settings for a search. With fewer, confirming a winner would take longer than a grid.
const FEWEST_SEARCHED: u64 = 20;
/// Beginning of the names of plans that are made, in the working folder.
const MADE_PLANS: &str = "latput-plan-";
/// Most plans that are kept for one interface in a folder.
const MOST_PLANS: usize = 99;
/// The plan of a run that only observes, where none is given: there is nothing to vary.
const OBSERVED: &str = "schema = 1\nname = \"live traffic\"\n[[workload]]\nkind = \"live\"\n";
/// Most time of a grid for a plan without a budget.
const USUAL_BUDGET: Nanos = Nanos::from_s(3600);

/// Find the best setting for a workload, and prove it.
///
/// Measures the settings of a plan, recommends one, and writes the report. The built-in plan varies how long the
/// receive side of this machine's network stack waits before it polls.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput tune                                the built-in plan on the lab: about 4 minutes, needs root
  latput tune --goal cpu                     the same trials, judged for least CPU
  latput tune sim:server-10g                 the same in the simulator: needs no root, sets nothing
  latput tune ssh://root@server ssh://root@client
                                             between two hosts: finds the interfaces, brings latput along
  latput tune eth0 --peer ssh://root@client  this host and another
  latput tune --on rack.toml                 hosts of your own: the knobs that their NIC can have set
  latput tune plan.toml --on rack.toml       a plan of your own on hosts of your own
  latput tune plan.toml --budget 20min       searches if all settings would take longer
  latput tune ssh://root@server ssh://root@client --factor gro=on,off
                                             one knob of your own choice, without a plan file
  latput tune --first                        stops at the first proven answer, often within a minute
  latput tune --on rack.toml --check         would it start, how many trials, how long
  latput tune --server 'redis-server --bind {sut} --port 6379 --protected-mode no --save \"\"' --ready tcp:6379 \\
      --command 'redis-benchmark -h {sut} -p {port} -t get -n {count} --csv' --count 200000
                                             your own benchmark in the place of latput's traffic
  latput tune eth0 --live --observe          how much live traffic varies; sets nothing
  latput tune eth0 --live --guard 'tcp_rtt_ns_p99 <= 1.2 today'
                                             this host, under the load that it has
  latput tune eth0 --peer ssh://root@client --command './mine -d{duration_s} {sut}' \\
      --metric 'rps=/Requests: (\\S+)/'      the figures of a program that latput does not know

Without root and without --on the plan runs in the simulator: a prediction for its profile, not a measurement.

A plan with a goal and without a `design` is searched if all its settings would take longer than its budget
(by default an hour). A search tries the settings that promise most, and confirms the winner on fresh runs.

The lab is two network namespaces and a veth pair that latput makes and removes. Nothing else on the machine
is changed. The setting is recommended, not applied: the command that applies it is printed.")]
pub(crate) struct Args {
    /// The plan file. Without it latput makes and saves a plan for the interface of the system under test, or uses
    /// the built-in plan where no hosts are named. And the hosts: the system under test, then the host that makes the
    /// traffic. A HOST is `ssh://root@server`, `netns://NAME`, `exec:COMMAND` or an interface of this host. Add
    /// %INTERFACE or %ADDRESS if several paths lead to the other host. Add `?cpus=0-3` to use only those CPUs.
    /// Or a testbed: `lab`, `loopback`, `sim:SYSTEM`.
    #[arg(value_name = "PLAN|HOST", num_args = 0..=3)]
    words: Vec<String>,
    #[command(flatten)]
    hosts: HostArgs,
    /// Where trials run: `lab`, `sim:SYSTEM` (a system's name or the file of its profile), a testbed
    /// file that names hosts, or `HOST,HOST`.
    /// Without it the lab, or without root a simulated server.
    #[arg(long, value_name = "TESTBED")]
    on: Option<String>,
    /// Longest time for trials, such as `20min`; replaces the plan's `budget`.
    #[arg(long, value_name = "TIME", value_parser = Nanos::from_text_or_seconds)]
    budget: Option<Nanos>,
    #[command(flatten)]
    first: FirstArg,
    #[command(flatten)]
    factors: FactorArgs,
    #[command(flatten)]
    quiet: QuietArgs,
    #[command(flatten)]
    own: CommandArgs,
    /// The goal: `latency`, `throughput`, `cpu`, `balanced`, or in words
    /// (`minimize latency_ns_p99 where throughput_bps >= 0.95 today`).
    #[arg(long)]
    goal: Option<String>,
    /// The results file; runs are added to it.
    #[arg(short, long, default_value = "latput-results.db", value_name = "FILE")]
    output: PathBuf,
    /// The report: one HTML file that works offline.
    #[arg(long, default_value = "latput-report.html", value_name = "FILE")]
    report: PathBuf,
    /// Only check whether the run would start, also that the hosts are quiet and its files can be written, and print how
    /// many trials and about how long. Nothing is set or written.
    #[arg(long)]
    check: bool,
    // Last, since its heading is that of all that follow.
    #[command(flatten)]
    live: LiveArgs,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let (plan, on) = self.plan_and_testbed()?;
        let is_given = plan.is_some();
        let (file, text) = match &plan {
            Some(path) if self.factors.is_given() => {
                let message = format!(
                    "--factor makes a plan, and {} is one too: leave out one of them",
                    path.display()
                );
                return Err(CliError::usage(message));
            }
            Some(path) => (path.display().to_string(), read_plan(path)?),
            None if self.factors.is_given() => ("--factor".to_owned(), self.factors.render_plan()?),
            None if self.live.only_observes() => ("live traffic".to_owned(), OBSERVED.to_owned()),
            None => ("built-in plan".to_owned(), plan::BUILT_IN.to_owned()),
        };
        let is_made = !is_given && !self.factors.is_given() && !self.live.only_observes();
        let (mut plan, mut text) = self.prepare_plan(&file, text, !is_given)?;
        files::check(&self.report)?;
        let (on, prediction) = choose_testbed(on);
        if let Some(prediction) = &prediction {
            output::print_remark(prediction);
        }
        let place = self.hosts.resolve_testbed(&on, &plan)?;
        let made = is_made.then(|| Path::new(MADE_PLANS));
        let outputs = [self.output.as_path(), &self.report].into_iter().chain(made);
        place.give_up_rights(Some(&plan), &UsedFiles::new([], outputs), context)?;
        if self.check {
            return self.check_run(context, (&file, plan), place, is_made);
        }
        let (mut testbed, mut results_db) = run::open_both(|| place.open(context), &self.output)?;
        if is_made && let Some(nic) = testbed.survey_nic(&context.stop)? {
            let file = save_plan(&nic, &self.made_for(&nic)?)?;
            (plan, text) = self.prepare_plan(&file, run::read_text(Path::new(&file))?, true)?;
        }
        testbed.notes.extend(prediction.clone());
        let how = (None, self.quiet.for_plan(&plan));
        let ended = run::run_plan(context, &plan, &text, &testbed, &mut results_db, how)?;
        drop(testbed); // the lab is gone before anything is told
        let summary = ResultsSummary::from_results(&ended.results);
        report::print_report(context, &ended.results, &summary)?;
        if ended.results.is_observed() {
            output::print_remark(
                "Observed only: nothing was set, and nothing is recommended. To compare settings leave out --observe",
            );
        } else if summary.headline.is_none() {
            output::print_remark(&format!(
                "Nothing is recommended: the plan has no goal. `latput report {} --goal latency` judges the same trials (or \
                 throughput, cpu, balanced)",
                shell_word(&self.output.display().to_string())
            ));
        }
        report::write_html(&self.report, &ended.results, &summary)?;
        output::print_remark(&format!("report: {}", self.report.display()));
        if let Some(prediction) = &prediction {
            output::print_remark(prediction);
        }
        run::conclude_with(&ended, &summary, &self.output)
    }
}

impl Args {
    /// Checks the run; a plan that would be made for the hosts is made, and not kept.
    fn check_run(
        &self,
        context: &CliContext,
        (file, plan): (&str, Plan),
        place: NamedTestbed<'_>,
        is_made: bool,
    ) -> Result<ExitCode, CliError> {
        check::check_results(&self.output)?;
        let testbed = place.open(context)?;
        let (mut name, mut plan) = (file.to_owned(), plan);
        if is_made && let Some(nic) = testbed.survey_nic(&context.stop)? {
            name = format!("plan for {} ({})", nic.interface, nic.driver);
            (plan, _) = self.prepare_plan(&name, self.made_for(&nic)?, true)?;
        }
        let quiet = self.quiet.for_plan(&plan);
        check::check_run(context, &check::PlanToCheck { name: &name, plan: &plan, quiet }, &testbed)
    }

    /// A plan for an interface, of as much as the budget has time for, with the command of the flags.
    fn made_for(&self, nic: &Nic) -> Result<String, CliError> {
        let failed = |why| CliError::new(ExitReason::Failed, why);
        let is_live = self.live.is_given();
        let mut size = PlanSize::WHOLE;
        let mut all = None;
        loop {
            let made = if is_live { nic.live_plan_of(size) } else { nic.plan_of(size) };
            let made = self.own.replace_workloads_in_text(made.map_err(failed)?)?;
            let (plan, _) = self.prepare_plan(&nic.interface, made.clone(), true)?;
            let settings = plan.combinations();
            let all = *all.get_or_insert(settings);
            let runs = PlannedRuns::of_plan(&plan)?;
            let fits = runs.fits_budget(&plan);
            let levels = plan.factors.iter().map(|factor| factor.levels.len()).max().unwrap_or(0);
            if let Some(smaller) = PlanSize::smaller(plan.factors.len(), levels).filter(|_| !fits) {
                size = smaller;
                continue;
            }
            runs.check_budget(&plan)?; // before a plan is saved
            if fits && settings < all {
                let varied: Vec<String> = plan.factors.iter().map(Factor::name).collect();
                output::print_remark(&format!(
                    "the budget of {} is enough for {settings} of {all} settings: {} is varied (a longer \
                     --budget varies more)",
                    plan.method.budget.unwrap_or(USUAL_BUDGET),
                    varied.join(", ")
                ));
            }
            return Ok(made);
        }
    }

    /// The plan of this text with the goal and the budget of the flags, and its design; and the text to keep.
    fn prepare_plan(
        &self,
        file: &str,
        text: String,
        is_own_plan: bool,
    ) -> Result<(Plan, String), CliError> {
        if self.own.is_given() && self.live.is_given() {
            return Err(CliError::usage("--command and --live are two workloads: name one"));
        }
        let mut plan = if self.own.is_given() || self.live.is_given() {
            let mut plan = Plan::parse(file, &text).map_err(latput_runner::Error::from)?;
            self.own.replace_workloads(&mut plan, is_own_plan)?;
            self.live.replace_workloads(&mut plan, is_own_plan)?;
            plan.goal = self.goal.clone().or(plan.goal);
            if let Some(goal) = &plan.goal {
                report::check_goal("goal", goal, &plan.workloads)?;
            }
            plan
        } else {
            run::checked_plan(file, &text, self.goal.clone())?
        };
        plan.method.budget = self.budget.or(plan.method.budget);
        self.quiet.beside.apply_to_method(&mut plan.method);
        self.first.apply_to_plan(&mut plan)?;
        choose_design(&mut plan);
        let text = match self.budget {
            None => text,
            Some(budget) => text + &format!("# --budget {budget}\n"), // as `run` keeps its flags
        };
        let text = text + self.first.plan_line();
        run::check_guards(file, &plan)?;
        let text = text
            + self.quiet.beside.plan_line()
            + &self.own.format_plan_comments()
            + &self.live.plan_lines();
        Ok((plan, text))
    }

    /// Sorts the words: at most one plan, and hosts in the place of `--on`.
    fn plan_and_testbed(&self) -> Result<(Option<PathBuf>, Option<String>), CliError> {
        let (hosts, plans): (Vec<&String>, Vec<&String>) = self.words.iter().partition(|word| {
            targets::is_hosts(word) || targets::names_testbed(word) && !Path::new(word).exists()
        });
        let plan = match plans.as_slice() {
            [] => None,
            [plan] => Some(PathBuf::from(plan)),
            [_, other, ..] => {
                return Err(CliError::usage(format!("`{other}` is a second plan: name one")));
            }
        };
        let hosts: Vec<&str> = hosts.into_iter().map(String::as_str).collect();
        match (hosts.is_empty(), &self.on) {
            (true, on) => Ok((plan, on.clone())),
            (false, None) => Ok((plan, Some(hosts.join(",")))),
            (false, Some(on)) => Err(CliError::usage(format!(
                "`{}` and `--on {on}` both say where trials run: name one",
                hosts.join(" ")
            ))),
        }
    }
}

/// Reads a plan. The error of a word that is no file says what else it may name.
fn read_plan(path: &Path) -> Result<String, CliError> {
    if !path.exists() {
        return Err(CliError::usage(format!(
            "{}: there is no plan file, interface or testbed of this name: name a plan file, `lab`, `loopback`, \
             `sim:SYSTEM` (`latput sim list`), or hosts ({FORMS})",
            path.display()
        )));
    }
    run::read_text(path)
}

/// Saves a plan that was made for the system under test's interface. Returns its file.
fn save_plan(nic: &Nic, text: &str) -> Result<String, CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = nic.interface.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    // Somebody may have edited an earlier one.
    let names = (1..).map(|number: u32| match number {
        1 => format!("{MADE_PLANS}{name}.toml"),
        _ => format!("{MADE_PLANS}{name}-{number}.toml"),
    });
    let is_free = |file: &String| match std::fs::read_to_string(file) {
        Ok(kept) => kept == *text,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let file = names.take(MOST_PLANS).find(is_free).ok_or_else(|| {
        let message = format!(
            "there are already {MOST_PLANS} plans for {name} here: remove some, or name one"
        );
        CliError::usage(message)
    })?;
    files::replace(Path::new(&file), text.as_bytes())?;
    output::print_remark(&format!("plan: {file}, made for {} ({})", nic.interface, nic.driver));
    Ok(file)
}

/// The testbed, and a remark if it is simulated by default.
fn choose_testbed(on: Option<String>) -> (String, Option<String>) {
    match on {
        Some(on) => (on, None),
        None if Testbed::can_create_lab() => ("lab".to_owned(), None),
        None => {
            let profile = Simulator::EXAMPLE;
            let prediction = format!(
                "the lab needs root. This is a simulation of {profile}, not a measurement. To measure, run as \
                 root or name a testbed with `--on`"
            );
            (format!("{}{profile}", targets::SIMULATED), Some(prediction))
        }
    }
}

/// Chooses a search if the plan leaves the design open and a grid would exceed its budget.
fn choose_design(plan: &mut Plan) {
    let budget = plan.method.budget.unwrap_or(USUAL_BUDGET);
    let settings = plan.combinations();
    let is_open = plan.method.design.is_none() && plan.goal.is_some() && plan.live().is_none();
    let can_be_searched = (FEWEST_SEARCHED..=MAX_SEARCHED).contains(&settings);
    let grid = plan.shortest_grid();
    if is_open && can_be_searched && grid > budget {
        plan.method.design = Some(Design::Search);
        plan.method.budget = Some(budget);
        output::print_remark(&format!(
            "all {settings} settings would take {:.0} min, the budget is {:.0} min: latput searches among them \
             (`design = \"blocks\"` in the plan runs them all)",
            grid.as_secs_f64() / 60.0,
            budget.as_secs_f64() / 60.0
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        schema = 1
        goal = "latency"
        [factors]
        txqueuelen = [10, 20, 30, 40, 50]
        mtu = [1300, 1400, 1500, 1600, 1700]
        [[workload]]
        kind = "tcp_rr"
        [method]
        repetitions = { min = 5, max = 5 }
        warmup = "0s"
        duration = "2s"
        "#; // 250 s as a grid

    #[test]
    fn plan_is_searched_where_grid_is_long() {
        check_design(PLAN.to_owned(), None);
        check_design(format!("{PLAN}budget = \"250s\""), None);
        check_design(format!("{PLAN}budget = \"200s\""), Some(Design::Search));
        check_design(format!("{PLAN}budget = \"200s\"\ndesign = \"grid\""), Some(Design::Blocks));
        check_design(format!("{PLAN}budget = \"200s\"").replace("goal = \"latency\"", ""), None);
        check_design(format!("{PLAN}budget = \"200s\"").replace(", 1600, 1700]", "]"), None);
        // Nothing said: an hour.
        check_design(PLAN.replace("\"2s\"", "\"30s\""), Some(Design::Search));
    }

    #[track_caller]
    fn check_design(text: String, expected: Option<Design>) {
        let mut plan = Plan::parse("test", &text).unwrap();
        choose_design(&mut plan);
        assert_eq!(plan.method.design, expected);
    }
}
