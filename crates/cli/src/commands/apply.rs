//! `latput apply`: puts the recommendation of a results file in force on the hosts of its testbed.
//!
//! On each host `latput set` makes the change, through the command of the testbed. With several hosts each change
//! waits for a confirmation first, so that a host that cannot be reached any more goes back by itself: either
//! every host keeps its change, or none does.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use latput_experiment::ResultsDb;
use latput_experiment::testbed::{HostSpec, Testbed, TestbedKind};
use latput_knobs::Setting;
use latput_model::Summary;
use latput_report::shell_word;
use latput_trial::Results;
use latput_trial::observation::Role;
use latput_units::Nanos;

use crate::commands::change;
use crate::commands::export_settings::nothing_recommended;
use crate::commands::report::setting_of;
use crate::context::Context;
use crate::exit::{CliError, Code};
use crate::output;
use crate::targets::{self, HostArgs};

/// The time to reach every host again after all were changed, where the caller gives none.
const SETTLED_WITHIN: &str = "60s";
/// The same where latput may have to be taken to each.
const BROUGHT_WITHIN: &str = "10min";
/// Most time of one command on one host, once its latput has begun.
const ANSWER_WITHIN: Duration = Duration::from_secs(105);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Put the recommendation of a results file in force on the hosts that it was measured on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput apply latput-results.db --dry-run
  latput apply latput-results.db --confirm-within 60s
      goes back after a minute on every host unless this comes:
  latput apply latput-results.db --confirm
  latput apply latput-results.db --setting 50us --on testbed.toml

All hosts or none: where one refuses, the others go back. On each host the change is an entry of the
journal: `latput log` and `latput undo` there. A host whose interface has another driver or place on its bus
than the one measured is refused, except with --interface.")]
pub(crate) struct Args {
    /// The results file.
    #[arg(value_name = "RESULTS")]
    file: PathBuf,
    /// A setting other than the recommended one, by label or a unique part of it.
    #[arg(long, value_name = "SETTING")]
    setting: Option<String>,
    /// Run number in the results file; by default the newest run.
    #[arg(long, value_name = "N")]
    run: Option<i64>,
    /// The testbed file, or `HOST,HOST`; by default what the results name.
    #[arg(long, value_name = "TESTBED")]
    on: Option<String>,
    #[command(flatten)]
    hosts: HostArgs,
    /// The interface of the system under test, if it is not the measured one.
    #[arg(long, value_name = "IFACE")]
    interface: Option<String>,
    /// Put everything back after this time (1s to 24h) unless `latput apply RESULTS --confirm` comes first.
    #[arg(long, value_name = "TIME", value_parser = change::confirm_within)]
    confirm_within: Option<Nanos>,
    /// Keep what an earlier `apply --confirm-within` of this file has changed.
    #[arg(long, conflicts_with_all = ["confirm_within", "dry_run"])]
    confirm: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    /// Print the exact writes of each host without doing them.
    #[arg(long)]
    dry_run: bool,
}

/// One host with its part of the setting.
struct Part {
    host: HostSpec,
    interface: String,
    setting: Setting,
    /// The driver and the place on the bus that were measured, as `set --only-if` takes them.
    measured: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let results = ResultsDb::open(&self.file)?.load_chosen(self.run)?;
        let Some(chosen) = self.chosen(&results)? else { return Ok(ExitCode::SUCCESS) };
        let parts = self.parts(&results, chosen, context)?;
        if parts.is_empty() {
            let label = &results.settings[chosen].label;
            output::print(&format!("nothing to apply: setting `{label}` changes no knob\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.confirm {
            confirm_all(context, &parts)?;
            print_next(&parts)?;
            return Ok(ExitCode::SUCCESS);
        }
        let within = match self.confirm_within {
            Some(within) => Some(format!("{}ns", within.as_ns())),
            None if parts.iter().any(|part| part.host.may_be_brought) => {
                Some(BROUGHT_WITHIN.into())
            }
            None => (parts.len() > 1).then(|| SETTLED_WITHIN.to_owned()),
        };
        self.set_all(context, &parts, within.as_deref())?;
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        let file = shell_word(&self.file.display().to_string());
        match self.confirm_within {
            Some(within) => output::remark(&format!(
                "latput: everything goes back in {within} unless `latput apply {file} --confirm` comes"
            )),
            None if within.is_some() => confirm_all(context, &parts)?,
            None => {}
        }
        print_next(&parts)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The setting to apply; `None`, with the reason told, if the run recommends no change.
    fn chosen(&self, results: &Results) -> Result<Option<usize>, CliError> {
        if let Some(name) = &self.setting {
            return setting_of(results, name).map(Some);
        }
        let summary = Summary::of(results);
        let Some(advice) = summary.recommendation else {
            return Err(nothing_recommended(results, &summary));
        };
        if advice.is_proven() && advice.setting != 0 {
            return Ok(Some(advice.setting));
        }
        let label = &results.settings[advice.setting].label;
        let reason = advice.reason.join(" ");
        output::print(&format!(
            "nothing to apply: no setting is proven better, the run recommends `{label}`: {reason}\n"
        ))?;
        Ok(None)
    }

    /// The hosts that the setting changes.
    fn parts(
        &self,
        results: &Results,
        setting: usize,
        context: &Context,
    ) -> Result<Vec<Part>, CliError> {
        let testbed = self.testbed(results, context)?;
        let TestbedKind::Hosts(hosts) = testbed.kind else { return Ok(Vec::new()) };
        let by_role = &results.settings[setting].by_role;
        let mut parts = Vec::new();
        for host in hosts {
            let Some(setting) = by_role.get(&host.role).filter(|setting| !setting.is_empty())
            else {
                continue;
            };
            parts.push(self.part(results, host, setting)?);
        }
        Ok(parts)
    }

    /// The hosts of `--on`, or those that the results name, if they are still there.
    fn testbed(&self, results: &Results, context: &Context) -> Result<Testbed, CliError> {
        let name = self.on.as_deref().unwrap_or(&results.testbed);
        let gone = |what: &str| {
            let message = format!(
                "`{name}` {what}: give the testbed file of your hosts with --on, or `latput set` the values on \
                 one host"
            );
            CliError::usage(message)
        };
        if self.on.is_none() && results.is_imported() {
            return Err(gone("is what a report called its hosts, and anybody can have edited it"));
        }
        match name {
            "lab" => return Err(gone("was made for the run and is gone")),
            "loopback" => return Err(gone("has no interface to set")),
            name if name.starts_with(targets::SIMULATED) => return Err(gone("is a simulation")),
            name if name.starts_with("vm") && !Path::new(name).is_file() => {
                return Err(gone("was a guest and is gone"));
            }
            _ => {}
        }
        match self.hosts.hosts(name, context)? {
            Some(testbed) => Ok(testbed),
            None => Ok(Testbed::from_file(Path::new(name))?),
        }
    }

    fn part(&self, results: &Results, host: HostSpec, setting: &Setting) -> Result<Part, CliError> {
        let named = self.interface.as_ref().filter(|_| host.role == Role::Sut);
        let interface = named.unwrap_or(&host.interface).clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if !interface.chars().all(is_plain) {
            let message = format!("`{interface}` cannot be named to another host: rename it there");
            return Err(CliError::usage(message));
        }
        let of_host = |facts: &&latput_trial::results::HostFacts| {
            facts.role == host.role && facts.host == host.name
        };
        let facts = results.hosts.iter().find(of_host);
        let measured = match facts {
            _ if named.is_some() => None,
            None => {
                let message = format!(
                    "the results have no host `{}`: give the testbed that they were measured on, or name the \
                     interface with --interface",
                    host.name
                );
                return Err(CliError::usage(message));
            }
            Some(facts) if facts.interface != interface => {
                let message = format!(
                    "{}: the results are of {}, and the testbed names {interface}: --interface {interface} if \
                     that is meant",
                    host.name, facts.interface
                );
                return Err(CliError::usage(message));
            }
            Some(facts) => Some(change::fingerprint(&facts.facts)),
        };
        Ok(Part { host, interface, setting: setting.clone(), measured })
    }

    /// Sets the setting on every host; where one refuses, the others go back.
    fn set_all(
        &self,
        context: &Context,
        parts: &[Part],
        within: Option<&str>,
    ) -> Result<(), CliError> {
        let mut done: Vec<&Part> = Vec::new();
        for part in parts {
            let mut args = vec!["set", &part.interface, "--stdin", "--made-by", "apply"];
            args.extend(within.iter().flat_map(|within| ["--confirm-within", *within]));
            args.extend(part.measured.iter().flat_map(|seen| ["--only-if", seen.as_str()]));
            args.extend(self.allow_link_reset.then_some("--allow-link-reset"));
            args.extend(self.dry_run.then_some("--dry-run"));
            let values: Vec<String> =
                part.setting.iter().map(|(knob, value)| format!("{knob}={value}\n")).collect();
            let failure = match part.ask(context, &args, &values.concat()) {
                Ok(output) if output.status.success() => {
                    part.tell(&output)?;
                    done.push(part);
                    continue;
                }
                Ok(output) => part.failure(&output),
                // Whether the change was made is not known.
                Err(failure) => {
                    done.push(part);
                    failure
                }
            };
            if self.dry_run {
                return Err(failure);
            }
            return Err(put_back(context, &done, failure));
        }
        Ok(())
    }
}

/// Puts the hosts back that were changed before one failed.
fn put_back(context: &Context, done: &[&Part], failure: CliError) -> CliError {
    let mut code = if done.is_empty() { failure.code } else { Code::RolledBack };
    let mut words = format!("{:#}", failure.error);
    for part in done {
        let name = &part.host.name;
        let ended = part.ask(context, &["restore", &part.interface], "");
        if ended.is_ok_and(|output| output.status.success()) {
            let _ = write!(words, "; {name} is as it was");
        } else {
            code = Code::Stranded;
            let command = part.host.words(&["restore", &part.interface]).join(" ");
            let _ = write!(
                words,
                "; {name} goes back by itself if it still runs: run `{command}` to be sure"
            );
        }
    }
    if failure.code == Code::Stranded {
        code = Code::Stranded;
    }
    CliError::new(code, words)
}

/// Confirms the change on every host. Where one cannot, those that were confirmed are undone.
fn confirm_all(context: &Context, parts: &[Part]) -> Result<(), CliError> {
    let mut confirmed: Vec<(&Part, Option<u64>)> = Vec::new();
    for part in parts {
        let failure = match part.ask(context, &["confirm", &part.interface, "--json"], "") {
            Ok(output) if output.status.success() => {
                confirmed.push((part, entry_of(&output)));
                continue;
            }
            Ok(output) => part.failure(&output),
            Err(failure) => failure,
        };
        let mut words = format!("{:#}", failure.error);
        let mut code = Code::RolledBack;
        for (part, number) in confirmed {
            let number = number.map(|number| number.to_string());
            let args: Vec<&str> = std::iter::once("undo").chain(number.as_deref()).collect();
            if part.ask(context, &args, "").is_ok_and(|output| output.status.success()) {
                let _ = write!(words, "; {} was undone", part.host.name);
            } else {
                code = Code::Stranded;
                let _ =
                    write!(words, "; still changed: run `{}`", part.host.words(&args).join(" "));
            }
        }
        return Err(CliError::new(code, words));
    }
    for (part, _) in confirmed {
        output::print(&format!("confirmed: {} of {}\n", part.interface, part.host.name))?;
    }
    Ok(())
}

/// How to take the change back and how to keep it over a reboot, on each host.
fn print_next(parts: &[Part]) -> Result<(), CliError> {
    let next = |part: &Part| {
        let values = part.setting.iter().map(|(knob, value)| format!("{knob}={value}"));
        let keep: Vec<String> =
            ["keep".to_owned(), part.interface.clone()].into_iter().chain(values).collect();
        let undo = ["undo".to_owned()];
        format!("undo:  {}\nkeep:  {}\n", part.command_line(&undo), part.command_line(&keep))
    };
    output::print(&parts.iter().map(next).collect::<String>())?;
    Ok(())
}

/// The number in the journal, of the JSON of `latput confirm`.
fn entry_of(output: &Output) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    document["journal"].get(0)?.as_u64()
}

impl Part {
    /// Runs latput on the host with these arguments and this input.
    fn ask(&self, context: &Context, args: &[&str], input: &str) -> Result<Output, CliError> {
        let name = &self.host.name;
        let failed = |why: String| CliError::new(Code::Failed, format!("{name}: {why}"));
        let words = self.host.words(args);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child: Child =
            command.spawn().map_err(|error| failed(format!("cannot start its latput: {error}")))?;
        // A command that ends at once does not read it.
        let _unread = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        let within = self.host.first_answer_within() + ANSWER_WITHIN;
        let deadline = Instant::now() + within;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline || context.stop.is_raised_again() {
                let _ended = child.kill();
                let _status = child.wait();
                let seconds = within.as_secs();
                return Err(failed(format!("its latput has not ended within {seconds} s")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        child.wait_with_output().map_err(|error| failed(error.to_string()))
    }

    /// Passes on what latput said on the host.
    fn tell(&self, output: &Output) -> Result<(), CliError> {
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let is_next = line.starts_with("undo:") || line.starts_with("keep:");
            if !is_next {
                output::print(&format!("{}: {line}\n", self.host.name))?;
            }
        }
        Ok(())
    }

    /// What to type here to run latput with `args` on the host. This program is called by its name.
    fn command_line(&self, args: &[String]) -> String {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let words = self.host.words(&args);
        let own = std::env::current_exe().unwrap_or_default();
        let word = |word: &String| {
            if Path::new(word) == own { "latput".to_owned() } else { shell_word(word) }
        };
        words.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn failure(&self, output: &Output) -> CliError {
        let code = match output.status.code() {
            Some(2) => Code::Usage,
            Some(3) => Code::Permission,
            Some(4) => Code::RolledBack,
            Some(5) => Code::Stranded,
            _ => Code::Failed,
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("latput: error: ");
        CliError::new(code, format!("{}: {said}", self.host.name))
    }
}
