//! `latput apply`: puts the recommendation of a results file in force on the hosts of its testbed.
//!
//! On each host `latput set` makes the change, through the command of the testbed. With several hosts each change
//! waits for a confirmation first, so that a host that cannot be reached any more goes back by itself: either
//! every host keeps its change, or none does.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use latput_experiment::testbed::{Testbed, TestbedKind};
use latput_fleet::subprocess::{SubprocessEnding, Until, run_with_timeout};
use latput_knobs::Setting;
use latput_linux::confine::UsedFiles;
use latput_model::ResultsSummary;
use latput_reach::broker;
use latput_reach::broker::command::{
    HostCommand, HostVerb, SetOptions, UndoOptions, check_interface,
};
use latput_reach::broker::message::{HostInterface, HostsOfResults, RunPermissions};
use latput_reach::broker::process::HostProcess;
use latput_reach::host_spec::HostSpec;
use latput_report::{NO_KEEP, shell_word};
use latput_results::ResultsDb;
use latput_trial::Results;
use latput_trial::observation::Role;
use latput_units::Nanos;

use crate::commands::proven::{no_answer, nothing_recommended, tell_condition};
use crate::commands::report::setting_of;
use crate::commands::set::NOTHING_TO_CHANGE;
use crate::commands::{change, next};
use crate::context::CliContext;
use crate::exit::{CliError, ExitReason};
use crate::output;
use crate::targets::{self, HostArgs};

/// The time to reach every host again after all were changed, where the caller gives none.
const SETTLED_WITHIN: Nanos = Nanos::from_s(60);
/// The same where latput may have to be taken to each.
const BROUGHT_WITHIN: Nanos = Nanos::from_s(600);
/// Most time of one command on one host, once its latput has begun.
const ANSWER_WITHIN: Duration = Duration::from_secs(105);

/// Put the recommendation of a results file in force.
///
/// It is set on the hosts that it was measured on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput apply latput-results.db --dry-run
  latput apply latput-results.db --confirm-within 60s
      goes back after a minute on every host unless this comes:
  latput apply latput-results.db --confirm
  latput apply latput-results.db --setting 50us --on testbed.toml --confirm-within 60s
      prints the line that confirms this one

Without --on, hosts that the results name by a command (exec:), or by a testbed file that others may write,
are refused: anybody can have written the results.

The change is made on all hosts or on none. On each host it is an entry of the journal, for `latput log` and
`latput undo`. A host whose interface has another driver or bus address than the measured one is refused,
except with --interface.")]
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
    /// The testbed file, or `HOST,HOST` (for results of live traffic `HOST`); by default what the results name.
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
    /// Keep the change of an earlier `apply --confirm-within` of this file.
    #[arg(long, conflicts_with_all = ["confirm_within", "dry_run"])]
    confirm: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    /// Print the exact writes of each host without doing them.
    #[arg(long)]
    dry_run: bool,
}

/// How a latput on a host ended.
struct HostAnswer {
    /// Its exit code; `None` after a signal.
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl HostAnswer {
    /// Whether every value was as wanted.
    fn has_nothing_to_change(&self) -> bool {
        self.out.starts_with(NOTHING_TO_CHANGE.as_bytes())
    }

    /// The number in the journal, where the change has one.
    fn undo_number(&self) -> Option<u64> {
        String::from_utf8_lossy(&self.out).lines().find_map(next::parse_undo_line)
    }
}

/// One host with its part of the setting.
struct HostSetting {
    host: HostSpec,
    interface: String,
    setting: Setting,
    /// The driver and the place on the bus that were measured, as `set --only-if` takes them.
    measured: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.leave_rights(context)?;
        let results = ResultsDb::open(&self.file)?.load_chosen(self.run)?;
        let chosen = match self.choose_setting(&results)? {
            Ok(chosen) => chosen,
            Err(reason) => return self.report_nothing(&reason),
        };
        let parts = self.collect_host_settings(&results, chosen, context)?;
        if parts.is_empty() {
            let label = &results.settings[chosen].label;
            return self.report_nothing(&format!("setting `{label}` changes no knob"));
        }
        let made_by = format_change_name(&results, chosen);
        if self.confirm {
            let confirmed =
                self.confirm_all(context, &parts.iter().collect::<Vec<_>>(), &made_by)?;
            if confirmed.is_empty() {
                return self.report_nothing("every host is as wanted, and no change of it waits");
            }
            print_next_commands(&confirmed);
            return Ok(ExitCode::SUCCESS);
        }
        let within = match self.confirm_within {
            None if parts.iter().any(|part| part.host.may_be_brought) => Some(BROUGHT_WITHIN),
            None => (parts.len() > 1).then_some(SETTLED_WITHIN),
            given => given,
        };
        let changed = self.set_all(context, &parts, (&made_by, within))?;
        if self.dry_run || changed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let changed = match self.confirm_within {
            Some(within) => {
                output::print_remark(&format!(
                    "latput: everything goes back in {within} unless `{}` comes",
                    self.confirm_command()
                ));
                changed
            }
            None if within.is_some() => {
                let parts: Vec<&HostSetting> = changed.iter().map(|(part, _)| *part).collect();
                self.confirm_all(context, &parts, &made_by)?
            }
            None => changed,
        };
        print_next_commands(&changed);
        Ok(ExitCode::SUCCESS)
    }

    /// Gives up the rights of this process before the results file is read. The broker acts on the hosts of `--on`, or on
    /// those that the results name, as far as it takes them from there.
    fn leave_rights(&self, context: &CliContext) -> Result<(), CliError> {
        let mut permitted = RunPermissions { changes: !self.dry_run, ..RunPermissions::default() };
        if let Some(name) = &self.on {
            reject_gone_testbed(name)?;
            let also = self.interface.as_deref();
            (permitted.ways, permitted.interfaces) = self.hosts.allowed_for(name, also)?;
        } else {
            let bring = self.hosts.bring().map(Path::to_owned);
            permitted.hosts_of_results = Some(HostsOfResults { bring });
            if let Some(way) = self.hosts.peer_way()? {
                permitted.interfaces.insert(HostInterface { way: way.clone(), name: None });
                permitted.ways.push(way);
            }
        }
        let files = UsedFiles::new([self.file.as_path()], self.hosts.save());
        context.leave_rights_to_broker(&permitted, &files)
    }

    /// The command that confirms what this one has changed: the same setting of the same run on the same hosts.
    fn confirm_command(&self) -> String {
        let flag = |name: &str, value: Option<String>| {
            value.into_iter().flat_map(|value| [name.to_owned(), value]).collect::<Vec<_>>()
        };
        let words = [
            vec!["latput".to_owned(), "apply".to_owned(), self.file.display().to_string()],
            flag("--setting", self.setting.clone()),
            flag("--run", self.run.map(|run| run.to_string())),
            flag("--on", self.on.clone()),
            self.hosts.to_args(),
            flag("--interface", self.interface.clone()),
            vec!["--confirm".to_owned()],
        ]
        .concat();
        words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
    }

    /// The end where there is nothing to apply. Nothing to confirm is an error: somebody waits for that.
    fn report_nothing(&self, reason: &str) -> Result<ExitCode, CliError> {
        if self.confirm {
            let message = format!(
                "nothing was confirmed: {}. Name the setting of `latput apply` with --setting, or run \
                 `latput confirm` on each host",
                reason.trim_end_matches('.')
            );
            return Err(CliError::new(ExitReason::Failed, message));
        }
        output::print_text(&format!("nothing to apply: {reason}\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The setting to apply, or the reason why the run recommends no change.
    fn choose_setting(&self, results: &Results) -> Result<Result<usize, String>, CliError> {
        if let Some(name) = &self.setting {
            return setting_of(results, name).map(Ok);
        }
        let summary = ResultsSummary::from_results(results);
        let Some(advice) = &summary.recommendation else {
            return Err(nothing_recommended(results, &summary));
        };
        if advice.is_proven() && advice.setting != 0 {
            tell_condition(&summary);
            return Ok(Ok(advice.setting));
        }
        if !advice.headline.is_answer() && !self.confirm {
            return Err(no_answer(results, &advice.headline));
        }
        let label = &results.settings[advice.setting].label;
        let reason = advice.reason.join(" ");
        Ok(Err(format!("no setting is proven better; the run recommends `{label}`: {reason}")))
    }

    /// The hosts that the setting changes.
    fn collect_host_settings(
        &self,
        results: &Results,
        setting: usize,
        context: &CliContext,
    ) -> Result<Vec<HostSetting>, CliError> {
        let testbed = self.open_testbed(results, context)?;
        let TestbedKind::Hosts(hosts) = testbed.kind else { return Ok(Vec::new()) };
        let by_role = &results.settings[setting].by_role;
        let mut parts = Vec::new();
        for host in hosts {
            let Some(setting) = by_role.get(&host.role).filter(|setting| !setting.is_empty())
            else {
                continue;
            };
            parts.push(self.host_setting(results, host, setting)?);
        }
        Ok(parts)
    }

    /// The hosts of `--on`, or those that the results name, if they are still there.
    fn open_testbed(&self, results: &Results, context: &CliContext) -> Result<Testbed, CliError> {
        let name = self.on.as_deref().unwrap_or(&results.testbed);
        if self.on.is_none() && results.is_imported() {
            let what = "is from a report, and anybody can have edited it";
            return Err(gone_testbed_error(name, what));
        }
        reject_gone_testbed(name)?;
        if self.on.is_none() {
            broker::admit_hosts(name, self.hosts.bring()).map_err(CliError::usage)?;
        }
        self.hosts.hosts_of(name, results)?.open(context)
    }

    fn host_setting(
        &self,
        results: &Results,
        host: HostSpec,
        setting: &Setting,
    ) -> Result<HostSetting, CliError> {
        let named = self.interface.as_ref().filter(|_| host.role == Role::Sut);
        let interface = named.unwrap_or(&host.interface).clone();
        check_interface(&interface).map_err(CliError::usage)?;
        let of_host = |facts: &&latput_trial::results::HostFacts| {
            facts.role == host.role && facts.host == host.name
        };
        let facts = results.hosts.iter().find(of_host);
        let measured = match facts {
            _ if named.is_some() => None,
            None => {
                let message = format!(
                    "the results have no host `{}`. Give their testbed with --on, or name the interface with \
                     --interface",
                    host.name
                );
                return Err(CliError::usage(message));
            }
            Some(facts) if facts.interface != interface => {
                let message = format!(
                    "{}: the results are for {}, but the testbed names {interface}. If you mean it: \
                     --interface {interface}",
                    host.name, facts.interface
                );
                return Err(CliError::usage(message));
            }
            Some(facts) => Some(change::device_fingerprint(&facts.facts)),
        };
        Ok(HostSetting { host, interface, setting: setting.clone(), measured })
    }

    /// Sets the setting on every host; where one refuses, the others go back. Returns the hosts that were not as wanted,
    /// each with the entry of its journal, if there is one yet.
    fn set_all<'p>(
        &self,
        context: &CliContext,
        parts: &'p [HostSetting],
        (made_by, within): (&str, Option<Nanos>),
    ) -> Result<Vec<ChangedHost<'p>>, CliError> {
        let mut done: Vec<&HostSetting> = Vec::new();
        let mut changed = Vec::new();
        for part in parts {
            let failure = match self.set_part(context, part, (made_by, within, self.dry_run)) {
                Ok(answer) if answer.code == Some(0) => {
                    part.print_output(&answer);
                    if !answer.has_nothing_to_change() {
                        changed.push((part, answer.undo_number()));
                    }
                    done.push(part);
                    continue;
                }
                Ok(answer) => part.answer_error(&answer),
                // Whether the change was made is not known.
                Err(failure) => {
                    done.push(part);
                    failure
                }
            };
            if self.dry_run {
                return Err(failure);
            }
            return Err(put_back(context, &done, made_by, failure));
        }
        Ok(changed)
    }

    /// Has the host's latput set the setting.
    fn set_part(
        &self,
        context: &CliContext,
        part: &HostSetting,
        (made_by, within, dry_run): (&str, Option<Nanos>, bool),
    ) -> Result<HostAnswer, CliError> {
        let verb = HostVerb::Set(SetOptions {
            made_by: made_by.to_owned(),
            within_ns: within.map(Nanos::as_ns),
            only_if: part.measured.clone(),
            allow_link_reset: self.allow_link_reset,
            dry_run,
            json: false,
        });
        let values: Vec<String> =
            part.setting.iter().map(|(knob, value)| format!("{knob}={value}\n")).collect();
        part.run_latput(context, verb, &values.concat())
    }

    /// Whether the host has the setting already.
    fn is_as_wanted(&self, context: &CliContext, part: &HostSetting, made_by: &str) -> bool {
        let answer = self.set_part(context, part, (made_by, None, true));
        answer.is_ok_and(|it| it.code == Some(0) && it.has_nothing_to_change())
    }

    /// Confirms the change on every host, and returns those that had one. Where one cannot, those that were confirmed are
    /// undone. A host that is as wanted, and of which no change waits, had nothing to change.
    fn confirm_all<'p>(
        &self,
        context: &CliContext,
        parts: &[&'p HostSetting],
        made_by: &str,
    ) -> Result<Vec<ChangedHost<'p>>, CliError> {
        let mut confirmed: Vec<ChangedHost<'p>> = Vec::new();
        for part in parts {
            let verb = HostVerb::Confirm { made_by: Some(made_by.to_owned()) };
            let failure = match part.run_latput(context, verb, "") {
                Ok(answer) if answer.code == Some(0) => {
                    confirmed.push((part, parse_journal_number(&answer)));
                    continue;
                }
                Ok(answer)
                    if answer.code == Some(ExitReason::Failed as i32)
                        && self.is_as_wanted(context, part, made_by) =>
                {
                    continue;
                }
                Ok(answer) => part.answer_error(&answer),
                Err(failure) => failure,
            };
            return Err(undo_confirmed(context, confirmed, made_by, failure));
        }
        for (part, _) in &confirmed {
            output::print_change(&format!("confirmed: {} of {}\n", part.interface, part.host.name));
        }
        Ok(confirmed)
    }
}

/// A host that was changed, with the change's number in its journal.
type ChangedHost<'p> = (&'p HostSetting, Option<u64>);

/// Refuses a testbed that has no hosts after its run.
fn reject_gone_testbed(name: &str) -> Result<(), CliError> {
    let what = match name {
        "lab" => "was made for the run and is gone",
        "loopback" => "has no interface to set",
        name if name.starts_with(targets::SIMULATED) => "is a simulation",
        name if name.starts_with("vm") && !Path::new(name).is_file() => "was a guest and is gone",
        _ => return Ok(()),
    };
    Err(gone_testbed_error(name, what))
}

fn gone_testbed_error(name: &str, what: &str) -> CliError {
    CliError::usage(format!(
        "`{name}` {what}: give the testbed file of your hosts with --on, or `latput set` the values on one host"
    ))
}

/// Name of this change on the hosts: a later `--confirm` of the same results and setting has it, and no other.
fn format_change_name(results: &Results, setting: usize) -> String {
    let setting = &results.settings[setting];
    let text = format!("{} {} {} {setting:?}", results.name, results.seed, results.rows.len());
    // FNV-1a
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("apply/{hash:016x}")
}

/// Puts the hosts back that were changed before one failed.
fn put_back(
    context: &CliContext,
    done: &[&HostSetting],
    made_by: &str,
    failure: CliError,
) -> CliError {
    let mut code = if done.is_empty() { failure.code } else { ExitReason::RolledBack };
    let mut words = format!("{:#}", failure.error);
    for part in done {
        let name = &part.host.name;
        let ended =
            part.run_latput(context, HostVerb::Restore { made_by: Some(made_by.to_owned()) }, "");
        if ended.is_ok_and(|answer| answer.code == Some(0)) {
            let _ = write!(words, "; {name} is as it was");
        } else {
            code = ExitReason::Stranded;
            let command = part.host.to_shell_line(&["restore".to_owned(), part.interface.clone()]);
            let _ = write!(
                words,
                "; {name} goes back by itself if it is still running: run `{command}` to be sure"
            );
        }
    }
    if failure.code == ExitReason::Stranded {
        code = ExitReason::Stranded;
    }
    CliError::new(code, words)
}

/// Undoes the hosts that were confirmed before one could not be.
fn undo_confirmed(
    context: &CliContext,
    confirmed: Vec<ChangedHost<'_>>,
    made_by: &str,
    failure: CliError,
) -> CliError {
    let mut words = format!("{:#}", failure.error);
    let mut code = ExitReason::RolledBack;
    for (part, entry) in confirmed {
        let undo = HostCommand {
            interface: part.interface.clone(),
            verb: HostVerb::Undo(UndoOptions {
                entry,
                made_by: Some(made_by.to_owned()),
                ..UndoOptions::default()
            }),
        };
        let args = undo.to_args();
        let ended = part.run_latput(context, undo.verb, "");
        if ended.is_ok_and(|answer| answer.code == Some(0)) {
            let _ = write!(words, "; {} was undone", part.host.name);
        } else {
            code = ExitReason::Stranded;
            let command = part.host.to_shell_line(&args);
            let _ = write!(words, "; still changed: run `{command}`");
        }
    }
    CliError::new(code, words)
}

/// How to take the change back and how to keep it over a reboot, on each host.
fn print_next_commands(changed: &[ChangedHost<'_>]) {
    let next = |(part, entry): &ChangedHost<'_>| {
        let values = part.setting.iter().map(|(knob, value)| format!("{knob}={value}"));
        let keep: Vec<String> =
            ["keep".to_owned(), part.interface.clone()].into_iter().chain(values).collect();
        let number = entry.map(|entry| entry.to_string());
        let undo: Vec<String> = ["undo".to_owned()].into_iter().chain(number).collect();
        let undo = part.host.to_shell_line(&undo);
        let keep = if part.host.is_namespace() {
            NO_KEEP.to_owned()
        } else {
            part.host.to_shell_line(&keep)
        };
        format!("undo:  {undo}\nkeep:  {keep}\n")
    };
    output::print_change(&changed.iter().map(next).collect::<String>());
}

/// The number in the journal, of the JSON of `latput confirm`.
fn parse_journal_number(answer: &HostAnswer) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_slice(&answer.out).ok()?;
    document["journal"].get(0)?.as_u64()
}

/// The error of a latput that was asked for JSON: the last line of its stderr.
fn parse_error_message(said: &str) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(said.lines().last()?).ok()?;
    document["error"]["message"].as_str().map(str::to_owned)
}

impl HostSetting {
    /// Has latput do this with the interface on the host, with this input.
    fn run_latput(
        &self,
        context: &CliContext,
        verb: HostVerb,
        input: &str,
    ) -> Result<HostAnswer, CliError> {
        let name = &self.host.name;
        let failed = |why: String| CliError::new(ExitReason::Failed, format!("{name}: {why}"));
        let command = HostCommand { interface: self.interface.clone(), verb };
        let within = self.host.first_answer_within() + ANSWER_WITHIN;
        let start = || HostProcess::start_command(&self.host.launch_command(), command);
        let ending = run_with_timeout(
            start,
            input.as_bytes(),
            within,
            &mut Until::SecondStop(&context.stop),
        );
        match ending.map_err(|error| failed(format!("cannot start its latput: {error}")))? {
            SubprocessEnding::Ended { code, out, err } => Ok(HostAnswer { code, out, err }),
            SubprocessEnding::TooLong => Err(failed("its answer is too long".to_owned())),
            SubprocessEnding::TimedOut | SubprocessEnding::Stopped => {
                let seconds = within.as_secs();
                Err(failed(format!("its latput has not ended within {seconds} s")))
            }
        }
    }

    /// Passes on what latput said on the host.
    fn print_output(&self, answer: &HostAnswer) {
        for line in String::from_utf8_lossy(&answer.out).lines() {
            let is_next = line.starts_with("undo:") || line.starts_with("keep:");
            if !is_next {
                output::print_change(&format!("{}: {line}\n", self.host.name));
            }
        }
    }

    fn answer_error(&self, answer: &HostAnswer) -> CliError {
        let code = match answer.code.and_then(ExitReason::from_code) {
            Some(
                reason @ (ExitReason::Usage
                | ExitReason::Permission
                | ExitReason::RolledBack
                | ExitReason::Stranded),
            ) => reason,
            Some(
                ExitReason::Done
                | ExitReason::Failed
                | ExitReason::Partial
                | ExitReason::Worse
                | ExitReason::Drifted,
            )
            | None => ExitReason::Failed,
        };
        let said = answer.err.trim();
        let said = parse_error_message(said)
            .unwrap_or_else(|| said.trim_start_matches("latput: error: ").to_owned());
        CliError::new(code, format!("{}: {said}", self.host.name))
    }
}
