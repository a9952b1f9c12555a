//! `cargo xtask bench-diagnose`: faults that are planted on the lab, in a guest or in the simulator, and traffic without
//! one; what `latput diagnose` says of each, and how often it is right. With `--folders`, the same of snapshot folders. With
//! `--stages`, the waits by stage against what the program measured.

mod cases;
mod guest;
mod proofs;
mod simulated;
mod stages;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::cases::{CASES, Case};
use crate::goal::format_share;
use crate::peers::lab::{INTERFACE, Lab, RunningProcess, SERVER_ADDRESS};
use crate::workspace::{Workspace, capture_output, find_on_path, make_folder};

const TRAFFIC: &str = include_str!("diagnose/traffic.py");
/// Programs that the cases call.
const PROGRAMS: [&str; 6] = ["python3", "tc", "nft", "ethtool", "sysctl", "ss"];
/// Shows the control groups of the host, which the lab's own `/sys` lacks.
const SHOW_GROUPS: &str = "{ mount -t cgroup2 none /sys/fs/cgroup && grep -qw cpu /sys/fs/cgroup/cgroup.controllers || \
                           mount -t cgroup -o cpu none /sys/fs/cgroup; } 2>/dev/null";
/// Defines `in_group SETTING PROGRAM`: runs a program in a control group, which is removed when the shell is told to end. The
/// program starts outside, so that a quota does not slow its start.
const DEFINE_IN_GROUP: &str = "in_group() { cd /sys/fs/cgroup && mkdir latput-bench && cd latput-bench || exit 1; \
                               trap 'wait; cd ..; rmdir latput-bench' EXIT; trap exit TERM INT; eval \"$1\"; $2 & sleep 1; \
                               echo $! > cgroup.procs; wait; }";
/// Between the start of the traffic and the first look.
const SETTLES: Duration = Duration::from_millis(1500);
/// The preparation of a case and each of its diagnoses end by then.
const CASE_WITHIN: Duration = Duration::from_secs(60);
/// Ids of the documents that say that nothing is wrong.
const NO_FAULT: [&str; 2] = ["idle", "no-fault"];
/// The wanted parts of faults that are named first, and among the first two (30 and 33 of 35).
const FIRST: f64 = 30.0 / 35.0;
const FIRST_TWO: f64 = 33.0 / 35.0;
/// The most part of healthy runs with a finding (1 of 60).
const WRONG: f64 = 1.0 / 60.0;
/// The part of the CPU time that a hypervisor may take: with more no run is healthy.
const MOST_STOLEN: f64 = 0.02;
/// Diagnoses of one case, if the hypervisor takes more. Then it is skipped.
const ATTEMPTS: u32 = 5;
/// The table of expected findings in a folder of snapshots.
const EXPECTED: &str = "expected.tsv";

/// Which cases, and how long each.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Only cases whose name contains one of these.
    #[arg(value_name = "WORDS")]
    only: Vec<String>,
    /// Where the faults are planted. A guest boots for each case.
    #[arg(long, value_enum, default_value = "lab")]
    on: PlantPlace,
    /// Length of each diagnosis: on the lab 3s, in a guest 10s, in the simulator 1s.
    #[arg(long)]
    window: Option<String>,
    /// Rounds of all cases.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Judge snapshots instead: each `NAME/before` and `NAME/after` or a file `NAME`, and `expected.tsv` with `NAME`, the
    /// interface, and the id that must come first or `-`, separated by tabs.
    #[arg(long, value_name = "DIR")]
    folders: Option<PathBuf>,
    /// Record a snapshot of each run on the lab in this folder, and diagnose that. `--folders` judges them again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["folders", "stages"])]
    keep: Option<PathBuf>,
    /// Compare the sum of the waits by stage with the round trip that the program measured, in eight loads.
    #[arg(long, conflicts_with = "folders")]
    stages: bool,
    /// Try the remedies of faults on the lab by turns (`latput diagnose --prove`), and count the verdicts.
    #[arg(long, conflicts_with_all = ["folders", "stages", "keep", "on"])]
    prove: bool,
    /// Ask this latput, in the place of one built from this tree.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

impl Options {
    fn is_chosen(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| name.contains(word.as_str()))
    }

    fn window(&self) -> &str {
        self.window.as_deref().unwrap_or(match self.on {
            PlantPlace::Lab => "3s",
            PlantPlace::Guest => "10s",
            PlantPlace::Simulator => "1s",
        })
    }
}

/// Where faults are planted.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum PlantPlace {
    /// Two network namespaces.
    #[default]
    Lab,
    /// A guest with real drivers on emulated cards.
    Guest,
    /// Simulated hosts.
    Simulator,
}

/// The ids that a diagnosis said, the first first, beside the expected one.
struct Answer {
    name: String,
    expected: Option<String>,
    said: Vec<String>,
}

impl Answer {
    /// Makes one, and prints its line.
    fn print_new(name: &str, expected: Option<&str>, said: Vec<String>) -> Self {
        let answer = Self { name: name.to_owned(), expected: expected.map(str::to_owned), said };
        println!("{}", answer.describe());
        answer
    }

    fn place(&self) -> Option<usize> {
        let expected = self.expected.as_ref()?;
        self.said.iter().position(|id| id == expected)
    }

    /// Findings where none is expected.
    fn is_wrong(&self) -> bool {
        self.expected.is_none() && !self.said.is_empty()
    }

    fn describe(&self) -> String {
        let said = if self.said.is_empty() { "-".to_owned() } else { self.said.join(", ") };
        let verdict = match (&self.expected, self.place()) {
            (Some(_), Some(0)) => "first",
            (Some(_), Some(1)) => "second",
            (Some(_), Some(_)) => "late",
            (Some(_), None) => "MISSED",
            (None, _) if self.is_wrong() => "WRONG",
            (None, _) => "silent",
        };
        let expected = self.expected.as_deref().unwrap_or("-");
        format!("{:<40} {expected:<20} {verdict:<7} {said}", self.name)
    }
}

/// Runs the cases, and prints a line for each and the counts.
///
/// # Errors
///
/// A goal is missed, or the lab cannot be made.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let binary = workspace.given_latput(options.binary.as_deref())?;
    if options.stages {
        return stages::compare_loads(&binary, &make_scratch(workspace)?);
    }
    if options.prove {
        return with_tools(workspace, &binary, |tools| proofs::try_remedies(tools, options));
    }
    let answers = match &options.folders {
        Some(folders) => judge_folders(&binary, folders)?,
        None => with_tools(workspace, &binary, |tools| plant_cases(workspace, tools, options))?,
    };
    ensure!(!answers.is_empty(), "no case has such a name");
    conclude(&answers)
}

/// Judges the faults that are planted in the simulator, which need no quiet machine.
///
/// # Errors
///
/// A goal is missed.
pub fn check_simulated(workspace: &Workspace) -> Result<()> {
    let options = Options { on: PlantPlace::Simulator, ..Options::default() };
    let scratch = make_scratch(workspace)?;
    conclude(&simulated::plant_cases(&workspace.built_latput()?, &scratch, &options)?)
}

fn make_scratch(workspace: &Workspace) -> Result<PathBuf> {
    let scratch = workspace.target.join("bench-diagnose");
    make_folder(&scratch)?;
    Ok(scratch)
}

/// Calls `work` with the tools of the cases.
fn with_tools<T>(
    workspace: &Workspace,
    binary: &Path,
    work: impl FnOnce(&Tools<'_>) -> Result<T>,
) -> Result<T> {
    let scratch = make_scratch(workspace)?;
    let traffic = scratch.join("traffic.py");
    std::fs::write(&traffic, TRAFFIC).context("cannot write the traffic program")?;
    work(&Tools { binary, scratch: &scratch, traffic: &traffic })
}

fn plant_cases(workspace: &Workspace, tools: &Tools<'_>, options: &Options) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for _ in 0..options.rounds {
        answers.extend(match options.on {
            PlantPlace::Lab => plant_in_lab(tools, options)?,
            PlantPlace::Guest => guest::plant_cases(workspace, tools, options)?,
            PlantPlace::Simulator => simulated::plant_cases(tools.binary, tools.scratch, options)?,
        });
    }
    Ok(answers)
}

fn plant_in_lab(tools: &Tools<'_>, options: &Options) -> Result<Vec<Answer>> {
    if let Some(missing) = PROGRAMS.iter().find(|name| find_on_path(name).is_none()) {
        bail!("{missing} is not installed");
    }
    let mut answers = Vec::new();
    for case in CASES.iter().filter(|case| options.is_chosen(case.name)) {
        for load in case.loads {
            let name = case.name_at(load);
            let line = compose_diagnosis(&name, tools.binary, options)?;
            let question = Question { line, within: CASE_WITHIN, most_stolen: MOST_STOLEN };
            if let Some(said) = plant(case, load, tools, &question)? {
                let said = parse_ids(&said)?;
                if let Some(folder) = &options.keep {
                    note_snapshot(folder, &name, case.expected)?;
                }
                answers.push(Answer::print_new(&name, case.expected, said));
            }
        }
    }
    Ok(answers)
}

/// Tools that a case is planted with.
struct Tools<'a> {
    binary: &'a Path,
    scratch: &'a Path,
    traffic: &'a Path,
}

/// The shell line that diagnoses, by a snapshot that is kept where the options say so.
fn compose_diagnosis(name: &str, binary: &Path, options: &Options) -> Result<String> {
    let (binary, window) = (binary.display(), options.window());
    let Some(folder) = &options.keep else {
        return Ok(format!("exec '{binary}' diagnose {INTERFACE} --for {window} --json"));
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize().context("cannot find the folder of snapshots")?;
    let file = folder.join(to_file_name(name));
    let file = file.display();
    Ok(format!(
        "'{binary}' snapshot {INTERFACE} --for {window} -o '{file}' >&2 && exec '{binary}' diagnose '{file}' --json"
    ))
}

fn to_file_name(name: &str) -> String {
    format!("{}.json", name.replace([' ', ','], "-"))
}

/// Adds the row of a recorded snapshot for `--folders`.
fn note_snapshot(folder: &Path, name: &str, expected: Option<&str>) -> Result<()> {
    let path = folder.join(EXPECTED);
    let mut table = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
    writeln!(table, "{}\t{INTERFACE}\t{}", to_file_name(name), expected.unwrap_or("-"))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A shell line that asks latput in the diagnosed host.
struct Question {
    line: String,
    /// Longest time of an answer.
    within: Duration,
    /// The part of the CPU time that a hypervisor may take meanwhile.
    most_stolen: f64,
}

/// Plants one case in a lab of its own, and returns what the question's line prints within its time; `None` where it cannot be
/// planted here, with a line that says so.
fn plant(
    case: &Case,
    load: &str,
    tools: &Tools<'_>,
    question: &Question,
) -> Result<Option<String>> {
    let lab = Lab::up(tools.binary, tools.scratch)?;
    let names = format!(
        "{SHOW_GROUPS}; {DEFINE_IN_GROUP}; A=198.18.0.1 B={SERVER_ADDRESS} LOAD={load} TRAFFIC='python3 {}'",
        tools.traffic.display()
    );
    let start = |host: &str, line: &str| -> Result<RunningProcess> {
        lab.start_in(host, ["sh", "-c", &format!("{names}; {line}")])
    };
    let deadline = Instant::now() + CASE_WITHIN;
    for (host, line) in case.prepare {
        if let Err(error) = start(host, line)?.wait_for_output(&lab.stop, deadline) {
            ensure!(!lab.is_stopped(), "stopped");
            let error = error.to_string();
            // Behind the whole shell line.
            let problem = error.rsplit("` ").next().unwrap_or_default();
            println!("{:<40} skipped: it cannot be planted here: {problem}", case.name_at(load));
            return Ok(None);
        }
    }
    let mut running = Vec::new();
    for (host, line) in case.traffic {
        running.push(start(host, line)?);
        lab.sleep_interruptible(Duration::from_millis(300))?; // servers before clients
    }
    lab.sleep_interruptible(SETTLES)?;
    for _ in 0..ATTEMPTS {
        let before = StolenTime::read()?;
        let deadline = Instant::now() + question.within;
        let said = start(case.host, &question.line)?.wait_for_output(&lab.stop, deadline)?;
        let stolen = StolenTime::read()?.share_since(before);
        if stolen <= question.most_stolen {
            return Ok(Some(said));
        }
        println!("the hypervisor took {:.0}% of the CPUs: again", 100.0 * stolen);
    }
    println!("{:<40} skipped: the hypervisor takes CPU time", case.name_at(load));
    Ok(None)
}

/// CPU time of all CPUs in the kernel's ticks, as proc(5) describes `/proc/stat`.
#[derive(Clone, Copy)]
struct StolenTime {
    stolen: u64,
    all: u64,
}

impl StolenTime {
    fn read() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let stolen = *ticks.get(7).context("/proc/stat tells no stolen time")?;
        Ok(Self { stolen, all: ticks[..8].iter().sum() })
    }

    fn share_since(self, before: Self) -> f64 {
        (self.stolen - before.stolen) as f64 / (self.all - before.all).max(1) as f64
    }
}

/// The ids of the findings of a document, without those that say that nothing is wrong.
fn parse_ids(document: &str) -> Result<Vec<String>> {
    let document: Value = serde_json::from_str(document).context("the diagnosis is no JSON")?;
    let findings = document["findings"].as_array().context("there are no findings")?;
    let ids = findings.iter().filter_map(|found| found["id"].as_str());
    Ok(ids.filter(|id| !NO_FAULT.contains(id)).map(str::to_owned).collect())
}

/// Diagnoses each folder of `expected.tsv`.
fn judge_folders(binary: &Path, folders: &Path) -> Result<Vec<Answer>> {
    let table = folders.join(EXPECTED);
    let text = std::fs::read_to_string(&table)
        .with_context(|| format!("cannot read {}", table.display()))?;
    let mut answers = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let [name, _interface, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("{}: three columns are wanted: {line}", table.display());
        };
        let mut command = Command::new(binary);
        command.arg("diagnose").arg(folders.join(name)).arg("--json");
        let said = parse_ids(&capture_output(&mut command)?).with_context(|| name.to_owned())?;
        answers.push(Answer::print_new(name, (expected != "-").then_some(expected), said));
    }
    Ok(answers)
}

/// Prints the counts beside their goals.
fn conclude(answers: &[Answer]) -> Result<()> {
    let faults: Vec<&Answer> = answers.iter().filter(|one| one.expected.is_some()).collect();
    let healthy: Vec<&Answer> = answers.iter().filter(|one| one.expected.is_none()).collect();
    let within = |most: usize| {
        let named = faults.iter().filter(|one| one.place().is_some_and(|place| place < most));
        named.count() as u64
    };
    let wrong: Vec<&&Answer> = healthy.iter().filter(|one| one.is_wrong()).collect();
    let (faults, healthy) = (faults.len() as u64, healthy.len() as u64);
    let part = |count: u64, of: u64| if of == 0 { 0.0 } else { count as f64 / of as f64 };
    println!();
    println!(
        "named first             {:<22} wanted >= {:.0}%",
        format_share(within(1), faults),
        100.0 * FIRST
    );
    println!(
        "among the first two     {:<22} wanted >= {:.0}%",
        format_share(within(2), faults),
        100.0 * FIRST_TWO
    );
    println!(
        "finding where none is   {:<22} wanted <= {:.1}%",
        format_share(wrong.len() as u64, healthy),
        100.0 * WRONG
    );
    let mut by_id: BTreeMap<&str, u32> = BTreeMap::new();
    for id in wrong.iter().flat_map(|one| &one.said) {
        *by_id.entry(id).or_default() += 1;
    }
    for (id, count) in by_id {
        println!("  {id}: {count}");
    }
    let is_met =
        faults == 0 || part(within(1), faults) >= FIRST && part(within(2), faults) >= FIRST_TWO;
    ensure!(is_met && part(wrong.len() as u64, healthy) <= WRONG, "a goal is missed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expected: Option<&str>, said: &[&str]) -> Answer {
        let said = said.iter().map(|id| (*id).to_owned()).collect();
        Answer { name: "x".to_owned(), expected: expected.map(str::to_owned), said }
    }

    #[test]
    fn answers_are_judged_by_place() {
        assert_eq!(answer(Some("a"), &["b", "a"]).place(), Some(1));
        assert_eq!(answer(Some("a"), &["b"]).place(), None);
        assert!(answer(None, &["b"]).is_wrong());
        assert!(!answer(None, &[]).is_wrong());
    }

    #[test]
    fn goals_are_held_to_the_counts() {
        assert!(conclude(&[answer(Some("a"), &["a"]), answer(None, &[])]).is_ok());
        assert!(conclude(&[answer(Some("a"), &["b"])]).is_err());
        assert!(conclude(&[answer(Some("a"), &["a"]), answer(None, &["b"])]).is_err());
    }

    #[test]
    fn no_fault_is_no_finding() {
        let document = r#"{"findings":[{"id":"no-fault"},{"id":"steal"}]}"#;
        assert_eq!(parse_ids(document).unwrap(), ["steal"]);
        assert!(parse_ids("{}").is_err());
    }
}
