//! `cargo xtask bench-fleet`: `latput fleet` on many hosts of which some are dead, slow, or not what they seem.
//!
//! Each host is a namespace. What became of its interface is told by `ip`, `tc`, `ethtool` and sysfs, never by latput. The
//! goals: every host is named with what is wrong with it; a rollout changes all that can be changed and nothing else; a
//! guard that breaks, or a controller that is killed, leaves nothing different; the dead and the slow delay no other.

mod rack;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::rack::{HostKind, Rack, WANTED_LENGTH};
use crate::ci::Tally;
use crate::workspace::Workspace;

/// Stages of a rollout: three.
const STAGES: [&str; 6] = ["--canary", "1", "--then", "10%", "--then", "all"];
/// How much longer the well hosts may take beside dead and slow ones: a share of their time, and the time for which a
/// silent host keeps its place.
const LONGER_SHARE: f64 = 0.25;
const LONGER_S: f64 = 1.0;
/// Most time of one command.
const COMMAND_WITHIN: Duration = Duration::from_secs(600);

/// How many hosts, and how thoroughly.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// All hosts.
    #[arg(long, default_value_t = 200)]
    hosts: usize,
    /// How many of them are dead: every other one refuses at once, the others say nothing.
    #[arg(long, default_value_t = 20)]
    dead: usize,
    /// How many answer late.
    #[arg(long, default_value_t = 5)]
    slow: usize,
    /// How late, seconds.
    #[arg(long, default_value_t = 2)]
    slow_answer_s: u32,
    /// How many lie: the way leads to another host, the interface has another driver, the answer is of another interface.
    #[arg(long, default_value_t = 3)]
    lying: usize,
    /// How often the times with and without the dead and the slow are taken.
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// How often the controller is killed in the last stage.
    #[arg(long, default_value_t = 2)]
    kills: usize,
    /// This latput in the place of the released one, which is built.
    #[arg(long, value_name = "FILE")]
    latput: Option<PathBuf>,
    /// `--timeout` of the commands, seconds.
    #[arg(long, default_value_t = 15)]
    timeout_s: u64,
}

impl Options {
    /// The size that `cargo xtask ci --full` has time for; a test kills the controller.
    const fn sample() -> Self {
        Self {
            hosts: 24,
            dead: 3,
            slow: 2,
            slow_answer_s: 2,
            lying: 1,
            pairs: 1,
            kills: 0,
            latput: None,
            timeout_s: 6,
        }
    }
}

/// A step of `cargo xtask ci --full`: a small bench.
pub fn run_sample(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if tally.skips_without(&[]) {
        return Ok(());
    }
    let latput = Some(workspace.built_latput()?);
    run(workspace, &Options { latput, ..Options::sample() })
}

/// Runs the bench and prints the table.
///
/// # Errors
///
/// The rack cannot be made, or a goal is missed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let troubled = options.dead + options.slow + options.lying;
    ensure!(2 * troubled < options.hosts, "more than half of the hosts must be well");
    let latput = workspace.given_latput(options.latput.as_deref())?;
    let rack = Rack::up(&latput, &workspace.target.join("bench-fleet"), options)?;
    let before = rack.read_interfaces()?;
    let mut bench = FleetBench { rack: &rack, before, options, missed: 0 };
    println!(
        "{} hosts: {} dead, {} slow, {} lying",
        options.hosts, options.dead, options.slow, options.lying
    );
    println!("\n{:<44} {:<46} {:<30} verdict", "what", "found", "goal");
    bench.measure_delays()?;
    bench.check_host_states()?;
    bench.check_rollout()?;
    bench.check_broken_guard()?;
    for number in 0..options.kills {
        bench.check_killed_controller(number)?;
    }
    bench.nothing_is_left()?;
    ensure!(bench.missed == 0, "{} goals are missed", bench.missed);
    Ok(())
}

struct FleetBench<'a> {
    rack: &'a Rack,
    /// Every host at the beginning, as foreign tools show it.
    before: BTreeMap<String, String>,
    options: &'a Options,
    /// Goals that are missed.
    missed: u32,
}

impl FleetBench<'_> {
    fn print_row(&mut self, what: &str, found: &str, goal: &str, is_met: bool) {
        let verdict = if is_met { "met" } else { "MISSED" };
        println!("{what:<44} {found:<46} {goal:<30} {verdict}");
        self.missed += u32::from(!is_met);
    }

    /// `latput fleet` with these words; `program` are the words before `fleet`.
    fn fleet_command(&self, program: &[&str], words: &[impl AsRef<OsStr>]) -> Command {
        let timeout = format!("{}s", self.options.timeout_s);
        let mut command = self.rack.namespace_command(program[0]);
        command.args(&program[1..]).arg("fleet").args(words);
        command.args(["--timeout", &timeout, "--json"]);
        command
    }

    /// Runs `latput fleet` to its end; what it printed as JSON, its exit code, and how long it took.
    fn run_fleet(&self, words: &[impl AsRef<OsStr> + Debug]) -> Result<(Value, Option<i32>, f64)> {
        let begun = Instant::now();
        let within = COMMAND_WITHIN.as_secs().to_string();
        let ended = self.fleet_command(&["timeout", &within, "latput"], words).output()?;
        let seconds = begun.elapsed().as_secs_f64();
        let document = serde_json::from_slice(&ended.stdout).with_context(|| {
            let said = String::from_utf8_lossy(&ended.stderr);
            format!("latput fleet {words:?} ended with {}: {said}", ended.status)
        })?;
        Ok((document, ended.status.code(), seconds))
    }

    /// The time until the last well host had answered, with and without the dead and the slow, in turn.
    fn measure_delays(&mut self) -> Result<()> {
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..self.options.pairs.max(1) {
            for (inventory, times) in [("well.toml", &mut without), ("all.toml", &mut with)] {
                self.rack.forget_times()?;
                let begun = since_boot_s()?;
                self.run_fleet(&["show", "-i", &self.rack.file_path(inventory), "txqueuelen"])?;
                times.push(self.rack.last_done_s()? - begun);
            }
        }
        // Another's work makes a time longer, never shorter.
        let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
        let (with, without) = (least(&with), least(&without));
        let most = without * (1.0 + LONGER_SHARE) + LONGER_S;
        self.print_row(
            "show: the last well host had answered",
            &format!("{with:.2} s, without dead and slow {without:.2} s"),
            &format!("at most {most:.2} s"),
            with <= most,
        );
        Ok(())
    }

    /// `show`, `verify` and `drift`: every host is named with its state.
    fn check_host_states(&mut self) -> Result<()> {
        let all = self.rack.file_path("all.toml");
        for (action, seen) in [("show", "same"), ("verify", "drifted")] {
            let wanted = |kind: HostKind| match kind.expected_state() {
                "drifted" => seen,
                state => state,
            };
            let code = if action == "verify" || self.options.lying > 0 { 8 } else { 6 };
            let what = format!("{action}: hosts with another state than theirs");
            self.check_hosts(&what, &[action, "-i", &all], "state", code, wanted)?;
        }
        let odd = self.rack.last_well()?;
        self.rack.set_length(odd, "123")?;
        let words = ["drift", "-i", &all, "txqueuelen"];
        let (document, code, seconds) = self.run_fleet(&words)?;
        self.rack.set_length(odd, "1000")?;
        let values = document["values"][0]["values"].as_array().context("no values")?;
        let odd_ones = values.iter().filter(|value| value["value"] == "123");
        let found = odd_ones.flat_map(|value| value["hosts"].as_array().into_iter().flatten());
        let found: Vec<&str> = found.filter_map(Value::as_str).collect();
        self.print_row(
            "drift: the one that differs",
            &format!("{found:?}, {}, {seconds:.1} s", format_exit_code(code)),
            &format!("[\"{odd}\"], exit code 8"),
            found == [odd] && code == Some(8),
        );
        Ok(())
    }

    /// A rollout that goes well.
    fn check_rollout(&mut self) -> Result<()> {
        let wanted = |kind: HostKind| kind.expected_outcome("confirmed");
        let what = "apply: hosts with another outcome than theirs";
        self.check_hosts(what, &self.apply_arguments(&[]), "outcome", 6, wanted)?;
        let now = self.rack.read_interfaces()?;
        let is_set = |host: &String| {
            let said = now.get(host).map_or("", String::as_str);
            said.contains(&format!("qlen {WANTED_LENGTH}"))
                && said.contains("generic-receive-offload: on")
        };
        let meant = self.rack.host_names(HostKind::is_changed);
        let set = meant.iter().filter(|host| is_set(host)).count();
        self.print_row(
            "apply: hosts with the wanted values",
            &set.to_string(),
            &meant.len().to_string(),
            set == meant.len(),
        );
        let mut others = self.rack.find_changed_hosts(&self.before)?;
        others.retain(|host| !meant.contains(host));
        self.print_row(
            "apply: other hosts that were changed",
            &format!("{}{}", others.len(), first_few(&others)),
            "0",
            others.is_empty(),
        );
        self.rack.reset()?;
        self.left_different("apply: other values that were changed")
    }

    /// A rollout whose guard breaks when all hosts are changed.
    fn check_broken_guard(&mut self) -> Result<()> {
        let last = self.rack.last_well()?.to_owned();
        self.rack
            .write_script("guard", &format!("[ $1 != {last} ] || {{ echo no pages; exit 1; }}"))?;
        let guard = format!("{} {{host}}", self.rack.file_path("guard"));
        let wanted = |kind: HostKind| kind.expected_outcome("put-back");
        let what = "a broken guard at the end: wrong outcomes";
        let words = self.apply_arguments(&["--guard", &guard]);
        self.check_hosts(what, &words, "outcome", 4, wanted)?;
        self.left_different("a broken guard: hosts left different")
    }

    /// A rollout whose controller is killed in the last stage, with some or all of its hosts changed.
    fn check_killed_controller(&mut self, number: usize) -> Result<()> {
        let meant = self.rack.host_names(HostKind::is_changed).len();
        let share = meant * (number + 1) / self.options.kills.max(1);
        let mut command = self.fleet_command(&["latput"], &self.apply_arguments(&[]));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let deadline = Instant::now() + COMMAND_WITHIN;
        while self.rack.count_checkpoints() < share {
            if let Some(status) = child.try_wait()? {
                bail!("the rollout ended ({status}) before {share} hosts were changed");
            }
            ensure!(Instant::now() < deadline, "the rollout has not changed {share} hosts");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill()?;
        child.wait()?;
        let changed = self.rack.count_checkpoints();
        let begun = Instant::now();
        self.rack.settle(self.confirm_within() + COMMAND_WITHIN)?;
        let waited = begun.elapsed().as_secs_f64();
        self.left_different(&format!(
            "kill -9 of the controller, {changed} changed, {waited:.0} s later"
        ))
    }

    fn left_different(&mut self, what: &str) -> Result<()> {
        let different = self.rack.find_changed_hosts(&self.before)?;
        let found = format!("{}{}", different.len(), first_few(&different));
        self.print_row(what, &found, "0 left different", different.is_empty());
        Ok(())
    }

    fn nothing_is_left(&mut self) -> Result<()> {
        self.rack.settle(COMMAND_WITHIN)?;
        let left = self.rack.count_checkpoints();
        self.print_row("checkpoints left at the end", &left.to_string(), "0", left == 0);
        Ok(())
    }

    /// The least time that `apply` takes for three stages: each its soak and four times `--timeout`.
    fn confirm_within(&self) -> Duration {
        Duration::from_secs(3 * (1 + 4 * self.options.timeout_s))
    }

    fn apply_arguments(&self, more: &[&str]) -> Vec<String> {
        let inventory = self.rack.file_path("all.toml");
        let words = ["apply", "-i", &inventory, "--soak", "1s", "--confirm-within"];
        let within = format!("{}s", self.confirm_within().as_secs());
        let words = [&words[..], &[&within], &STAGES, more].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Runs `latput fleet`, and looks for hosts of which it tells in another way than their kind's.
    fn check_hosts(
        &mut self,
        what: &str,
        words: &[impl AsRef<OsStr> + Debug],
        field: &str,
        wanted_code: i32,
        wanted: impl Fn(HostKind) -> &'static str,
    ) -> Result<()> {
        let (document, code, seconds) = self.run_fleet(words)?;
        let said = by_host(&document, field)?;
        let said_of = |host: &String| said.get(host).map(String::as_str);
        let is_wrong = |(host, kind): &&(String, HostKind)| said_of(host) != Some(wanted(*kind));
        let wrong: Vec<_> = self.rack.hosts.iter().filter(is_wrong).collect();
        let first = wrong.first().map(|(host, kind)| {
            let said = said_of(host).unwrap_or("nothing");
            let why = by_host(&document, "why").unwrap_or_default().remove(host);
            format!(" ({host}, {kind:?}: {said}: {})", why.unwrap_or_default())
        });
        let count = wrong.len();
        self.print_row(
            what,
            &format!(
                "{count}{}, {}, {seconds:.1} s",
                first.unwrap_or_default(),
                format_exit_code(code)
            ),
            &format!("0, exit code {wanted_code}"),
            count == 0 && code == Some(wanted_code),
        );
        Ok(())
    }
}

/// `exit code 4`.
fn format_exit_code(code: Option<i32>) -> String {
    code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit code {code}"))
}

/// The first few names, for people.
fn first_few(names: &[String]) -> String {
    match names {
        [] => String::new(),
        few if few.len() <= 5 => format!(" ({})", few.join(" ")),
        more => format!(" ({} ...)", more[..5].join(" ")),
    }
}

/// A field of every host.
fn by_host(document: &Value, field: &str) -> Result<BTreeMap<String, String>> {
    let hosts = document["hosts"].as_array().context("the document has no hosts")?.iter();
    let text = |host: &Value, field: &str| host[field].as_str().unwrap_or_default().to_owned();
    Ok(hosts.map(|host| (text(host, "name"), text(host, field))).collect())
}

/// The clock of `/proc/uptime`, which the hosts' scripts read too.
fn since_boot_s() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let word = text.split_whitespace().next().context("no time")?;
    word.parse().context("no time")
}
