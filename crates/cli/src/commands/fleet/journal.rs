//! `latput fleet log`, `undo` and `keep`: what hosts have changed, back again, and over a reboot.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use latput_reach::broker::command::{HostKeep, HostUndo, HostVerb};
use latput_fleet::journal::{EntryValue, HostEntry, newest_rollout};
use latput_fleet::judge::{HostState, JudgedHost};
use latput_fleet::judge_hosts;
use latput_linux::confine::UsedFiles;
use latput_linux::process::local_time;

use super::crew;
use super::done::HostOutcomes;
use super::finish;
use super::hosts::{Fleet, FleetArgs, FleetMember, FleetRights, InPlace, StopCondition};
use super::look;
use super::tell::{CommandReply, run_host_command};
use super::wanted::{FleetWish, WantedArgs};
use crate::context::CliContext;
use crate::document::fleet::{FleetLogDocument, FleetLogHost};
use crate::exit::{CliError, ExitReason};
use crate::output;

/// Most places that a line of the log names.
const PLACES_MOST: usize = 8;

/// List the changes that were made on the hosts, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet log -i inventory.toml
  latput fleet log -i inventory.toml --group web --newest 1

Each line is an entry of the host's own journal, as in `latput log`. Changes by `latput fleet apply` have the
name of their rollout, for `latput fleet undo`.")]
pub(super) struct Log {
    /// Entries of each host.
    #[arg(long, value_name = "N", default_value_t = 5)]
    newest: usize,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Take a rollout back on every host: by default the newest that is in force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet undo -i inventory.toml --dry-run              which hosts have it
  latput fleet undo -i inventory.toml                        the newest rollout
  latput fleet undo fleet-1a21f0015cc-7fbf -i inventory.toml    as `latput fleet apply` has called it

Each host undoes the entry of its own journal, completely or not at all. Values that another program has set
since stay. Exit code 6: a host did not answer or refused. The same command then undoes the rest.")]
pub(super) struct Undo {
    /// The name of the rollout.
    #[arg(value_name = "ROLLOUT")]
    rollout: Option<String>,
    /// Show which hosts have it.
    #[arg(long)]
    dry_run: bool,
    /// Allow changes that take the link down and up, unless it carries the connection to the host.
    #[arg(long)]
    allow_link_reset: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Keep the wanted values over a reboot on every host that has them, in its own configuration system.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput fleet keep -i inventory.toml --dry-run
  latput fleet keep -i inventory.toml
  latput fleet keep -i inventory.toml --from latput-results.db
  latput fleet keep -i inventory.toml --remove       the files are again as they were

Each host runs `latput keep`. A host without the wanted values is left out (exit code 6): run `latput fleet
apply` first.")]
pub(super) struct Keep {
    #[command(flatten)]
    wanted: WantedArgs,
    /// Show what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Remove what was installed.
    #[arg(long, conflicts_with_all = ["wanted", "from"])]
    remove: bool,
    #[command(flatten)]
    fleet: FleetArgs,
}

impl Log {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let wish = || Ok(FleetWish::default());
        let fleet = self.fleet.open(&FleetRights::default(), wish, context)?;
        finish::tell_open(&self.fleet, &fleet, context);
        let journals = read_journals(&fleet, context);
        let is_whole = journals.iter().all(Result::is_ok);
        if context.json {
            let hosts = fleet.members.iter().zip(&journals);
            let hosts = hosts
                .map(|(member, journal)| FleetLogHost::new(&member.host, journal, self.newest));
            output::print_json(&FleetLogDocument { schema: 1, hosts: hosts.collect() })?;
        } else {
            let mut text = String::new();
            for (member, journal) in fleet.members.iter().zip(&journals) {
                let _ = writeln!(text, "{} {}", member.host.name, member.host.interface);
                text += &journal_text(journal, self.newest);
            }
            output::print_text(&text)?;
        }
        Ok(if is_whole { ExitReason::Done } else { ExitReason::Partial }.into())
    }
}

fn journal_text(journal: &Result<Vec<HostEntry>, String>, newest: usize) -> String {
    match journal {
        Err(why) => format!("  unknown: {why}\n"),
        Ok(entries) if entries.is_empty() => "  no change was made\n".to_owned(),
        Ok(entries) => entries.iter().take(newest).map(entry_text).collect(),
    }
}

fn entry_text(entry: &HostEntry) -> String {
    let HostEntry { number, command, user, state, .. } = entry;
    let when = local_time(entry.at_unix_ms / 1000);
    let mut text = format!("  {number}  {when}  {command} by {user}: {state}\n");
    // The same change at several places is one line, with all of them.
    let mut lines: Vec<(&EntryValue, Vec<&str>)> = Vec::new();
    for value in &entry.values {
        let is_alike = |(known, _): &(&EntryValue, _)| {
            (&known.knob, &known.before, &known.written)
                == (&value.knob, &value.before, &value.written)
        };
        match lines.iter().position(is_alike) {
            Some(known) => lines[known].1.push(&value.place),
            None => lines.push((value, vec![&value.place])),
        }
    }
    for (value, places) in lines {
        let EntryValue { knob, before, written, .. } = value;
        let _ = writeln!(text, "     {knob} ({}): {before} -> {written}", places_text(&places));
    }
    text
}

/// The first places by name, and how many more there are.
fn places_text(places: &[&str]) -> String {
    let shown = places.iter().take(PLACES_MOST).copied().collect::<Vec<_>>().join(", ");
    match places.len().saturating_sub(PLACES_MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Undo {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let rights = FleetRights { changes: !self.dry_run, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || Ok(FleetWish::default()), context)?;
        finish::tell_open(&self.fleet, &fleet, context);
        let journals = read_journals(&fleet, context);
        let name = match &self.rollout {
            Some(name) => name.clone(),
            None => newest_rollout(journals.iter().flatten().flatten()).ok_or_else(|| {
                let problem =
                    "no rollout is in force on these hosts: `latput fleet log` lists their changes";
                CliError::new(ExitReason::Failed, problem)
            })?,
        };
        let mut done = HostOutcomes::new("undo", &fleet);
        let mut planned = BTreeMap::new();
        for (at, journal) in journals.iter().enumerate() {
            let of_rollout = |entry: &&HostEntry| entry.is_of_rollout(Some(&name));
            match journal {
                Err(why) => done.set_outcome(at, "left-out", why.clone()),
                Ok(entries) => match entries.iter().find(of_rollout) {
                    Some(entry) if entry.is_in_force() => drop(planned.insert(at, entry.number)),
                    Some(entry) => done.set_outcome(
                        at,
                        "unchanged",
                        format!("entry {} is {}", entry.number, entry.state),
                    ),
                    None => {
                        done.set_outcome(
                            at,
                            "unchanged",
                            "it has no change of this rollout".to_owned(),
                        );
                    }
                },
            }
        }
        let is_known =
            journals.iter().flatten().flatten().any(|entry| entry.is_of_rollout(Some(&name)));
        if !is_known && journals.iter().all(Result::is_ok) {
            let problem =
                format!("no host has a change of {name}: `latput fleet log` lists their changes");
            return Err(CliError::usage(problem));
        }
        if self.dry_run {
            for (at, entry) in &planned {
                done.set_outcome(*at, "would-undo", format!("entry {entry}"));
            }
        } else {
            let verb = |at: &usize| {
                HostVerb::Undo(HostUndo {
                    entry: Some(planned[at]),
                    made_by: Some(name.clone()),
                    allow_link_reset: self.allow_link_reset,
                    json: true,
                })
            };
            let which: Vec<usize> = planned.keys().copied().collect();
            done.run_on_hosts(&which, context, ("hosts put back", "undone"), verb, |_| {
                String::new()
            });
        }
        Ok(done.print_outcomes(context, Some(name)))
    }
}

impl Keep {
    pub(super) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        self.wanted.check_values()?;
        let files = UsedFiles::new(self.wanted.results_file(), []);
        let rights = FleetRights { changes: !self.dry_run, files, ..FleetRights::default() };
        let fleet = self.fleet.open(&rights, || self.wanted.read(), context)?;
        let mut done = HostOutcomes::new("keep", &fleet);
        let mut which: Vec<usize> = (0..fleet.members.len()).collect();
        if !self.remove {
            fleet.must_want()?;
            let answers = look::inspect_all(&fleet, None, context);
            let hosts = fleet.hosts();
            let judged = judge_hosts(&hosts, answers);
            finish::warn_open_rollouts(&self.fleet, &judged);
            for (at, JudgedHost { state, look, .. }) in judged.into_iter().enumerate() {
                let waits = look.is_some_and(|look| look.waiting.is_some());
                let why = match state {
                    HostState::Same if waits => "its change waits to be confirmed".to_owned(),
                    HostState::Same => continue,
                    state => format!("{}: {}", state.name(), state.explanation()),
                };
                done.set_outcome(at, "left-out", why);
                which.retain(|other| *other != at);
            }
        }
        let (remove, dry_run) = (self.remove, self.dry_run);
        let verb = |_: &usize| HostVerb::Keep(HostKeep { remove, dry_run });
        let outcome = match (dry_run, remove) {
            (true, _) => "would-write",
            (false, false) => "kept",
            (false, true) => "removed",
        };
        done.run_on_hosts(&which, context, ("hosts", outcome), verb, |document| {
            let files = document["files"].as_array().into_iter().flatten();
            let files = files.filter_map(|file| file.as_str()).map(latput_report::make_printable);
            files.collect::<Vec<_>>().join(" ")
        });
        Ok(done.print_outcomes(context, None))
    }
}

/// The journal of each host, or why it is not known.
fn read_journals(fleet: &Fleet, context: &CliContext) -> Vec<Result<Vec<HostEntry>, String>> {
    let is_over = || context.stop.is_raised();
    let one = |member: &FleetMember, place: &mut crew::HostSlot<'_>| {
        let mut waiting = InPlace { place, until: StopCondition::Stop(&context.stop) };
        match run_host_command(fleet, member, &HostVerb::Log, "", &mut waiting) {
            CommandReply::Done(out) => HostEntry::read(&out, &member.host.interface),
            CommandReply::Refused(error) => Err(error.message),
            CommandReply::Lost(why) => Err(why),
        }
    };
    let answers = crew::side_by_side(&fleet.members, fleet.parallel, is_over, "hosts", one);
    let asked = |answer: Option<_>| answer.unwrap_or_else(|| Err("it was not reached".to_owned()));
    answers.into_iter().map(asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_names_places_of_values() {
        let value = |place: &str, before: &str| EntryValue {
            knob: "rps-cpus".to_owned(),
            place: place.to_owned(),
            before: before.to_owned(),
            written: "0-1".to_owned(),
        };
        let queues: Vec<String> = (1..=9).map(|queue| format!("rx-{queue}")).collect();
        let mut values = vec![value("rx-0", "3")];
        values.extend(queues.iter().map(|queue| value(queue, "none")));
        let entry = HostEntry {
            number: 7,
            at_unix_ms: 0,
            interface: "eth0".to_owned(),
            command: "set".to_owned(),
            user: "ann".to_owned(),
            state: "in-force".to_owned(),
            values,
        };
        let text = entry_text(&entry);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "     rps-cpus (rx-0): 3 -> 0-1",
                "     rps-cpus (rx-1, rx-2, rx-3, rx-4, rx-5, rx-6, rx-7, rx-8 and 1 more): none -> 0-1"
            ]
        );
    }
}
