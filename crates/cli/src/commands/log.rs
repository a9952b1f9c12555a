//! `latput log`: lists the journal of committed changes.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::transaction::Standing;
use latput_knobs::{Checkpoint, Knob, Place, State, Value};
use latput_linux::process::local_time;
use latput_units::Nanos;

use crate::commands::change;
use crate::commands::journal::{
    Journal, JournalEntry, PendingState, UnconfirmedChange, describe_maker,
};
use crate::context::CliContext;
use crate::document::{LogDocument, LoggedChange, LoggedValue, PendingChange};
use crate::exit::CliError;
use crate::output;

/// List the changes that were made on this host.
///
/// The newest first, each with its state now. Changes that wait to be confirmed, or are unfinished, stand before them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput log
  latput log eth0 --json
  latput undo 7             takes back what it lists as 7

The journal is in the state folder (/run/latput). A reboot empties it, as it ends the settings. It holds the
newest 1000 changes, with those that went back because they were not confirmed.")]
pub(crate) struct Args {
    /// The interface, by its present name; by default all.
    #[arg(value_name = "IFACE", value_parser = change::present_name)]
    interface: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &CliContext) -> Result<ExitCode, CliError> {
        let journal = Journal::read()?;
        let damaged = journal.describe_unread();
        let Journal { mut pending, mut entries, .. } = journal;
        if let Some(interface) = &self.interface {
            entries.retain(|entry| entry.change.interface == *interface);
            pending.retain(|pending| pending.change.interface == *interface);
        }
        if context.json {
            let entries = entries.iter().map(to_logged_change).collect();
            let pending = pending.iter().map(to_pending_change).collect();
            output::print_json(&LogDocument { schema: 1, pending, entries, damaged })?;
            return Ok(ExitCode::SUCCESS);
        }
        for problem in &damaged {
            output::print_remark(&format!("latput: left out: {problem}"));
        }
        let pending = pending.iter().map(render_pending);
        let text: String = pending.chain(entries.iter().map(render_entry)).collect();
        let nothing =
            if damaged.is_empty() { "no change was made\n" } else { "no change can be read\n" };
        output::print_text(if text.is_empty() { nothing } else { &text })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The values of a change, each with that of now where `now` knows it.
fn values(change: &Checkpoint, now: &[Standing]) -> Vec<LoggedValue> {
    let value = |(along, before, ((knob, place), written)): Listed<'_>| {
        let before = before.0.get(&(*knob, *place))?;
        let now = now.iter().find(|value| (value.knob, value.place) == (*knob, *place));
        (!knob.spec().same(before, written)).then(|| LoggedValue {
            knob: knob.name().to_owned(),
            place: change::place_words(*knob, *place),
            before: place.format_value(before),
            written: Some(place.format_value(written)),
            now: now.and_then(|value| value.found.as_ref()).map(ToString::to_string),
            along,
        })
    };
    let own = change.written.0.iter().map(|at| (false, &change.undo, at));
    let along = change.along.after.0.iter().map(|at| (true, &change.along.before, at));
    let lost = change.along.lost().into_iter().map(|(knob, place, before)| LoggedValue {
        knob: knob.name().to_owned(),
        place: change::place_words(knob, place),
        before: place.format_value(&before),
        written: None,
        now: None,
        along: true,
    });
    own.chain(along).filter_map(value).chain(lost).collect()
}

/// A value that a change wrote, after whether it was only taken along, and the values before.
type Listed<'a> = (bool, &'a State, (&'a (Knob, Place), &'a Value));

fn to_logged_change(entry: &JournalEntry) -> LoggedChange {
    let change = &entry.change;
    let by = change.by.clone().unwrap_or_default();
    LoggedChange {
        number: entry.number,
        at_unix_ms: change.created_unix_ms,
        interface: change.interface.clone(),
        network_namespace: change.namespace,
        command: by.command,
        user: by.user,
        undoes: change.undoes,
        state: entry.state.name().to_owned(),
        ended_by: entry.state.ended_by(),
        went_back: change.went_back.clone(),
        values: values(change, &entry.values),
    }
}

fn to_pending_change(pending: &UnconfirmedChange) -> PendingChange {
    let UnconfirmedChange { change, state, .. } = pending;
    let by = change.by.clone().unwrap_or_default();
    let left_ns = match state {
        PendingState::Waiting(left) | PendingState::Unwatched(left) => Some(left.as_ns()),
        PendingState::InUse(_) | PendingState::Unfinished => None,
    };
    PendingChange {
        at_unix_ms: change.created_unix_ms,
        interface: change.interface.clone(),
        network_namespace: change.namespace,
        command: by.command,
        user: by.user,
        pid: change.pid,
        undoes: change.undoes,
        state: state.name().to_owned(),
        left_ns,
        values: values(change, &[]),
    }
}

fn render_pending(pending: &UnconfirmedChange) -> String {
    let target = pending.command_target();
    let state = match pending.state {
        PendingState::Waiting(_) | PendingState::Unwatched(_) if !pending.is_here => {
            "waits, but its interface was deleted, or is of another network namespace".to_owned()
        }
        PendingState::Waiting(left) => {
            let left = Nanos::from_s(left.as_ns() / 1_000_000_000);
            format!("waits: goes back in {left} unless `latput confirm {target}` comes")
        }
        PendingState::Unwatched(_) => format!(
            "waits, but the processes that would put it back are gone: run `latput restore {target}` or \
             `latput confirm {target}`"
        ),
        PendingState::InUse(pid) => format!("in use by process {pid}"),
        PendingState::Unfinished => format!("unfinished: run `latput restore {target}`"),
    };
    render_change("-", &pending.change, &state, &[])
}

fn render_entry(entry: &JournalEntry) -> String {
    let JournalEntry { number, change, state, values, .. } = entry;
    let why = change.went_back.as_ref().map_or(String::new(), |why| format!(": {why}"));
    render_change(&number.to_string(), change, &format!("{state}{why}"), values)
}

/// A change under its number or mark, with its values.
fn render_change(mark: &str, change: &Checkpoint, state: &str, now: &[Standing]) -> String {
    let when = local_time(change.created_unix_ms / 1000);
    let undoes = change.undoes.map_or(String::new(), |undone| format!(" (of {undone})"));
    let mut text = format!(
        "{mark}  {when}  {}  {}{undoes}: {state}\n",
        change.interface,
        describe_maker(change)
    );
    for LoggedValue { knob, place, before, written, along, .. } in values(change, now) {
        let _ = match written {
            None => writeln!(text, "     {knob} ({place}): was {before}, its place is gone"),
            Some(written) => {
                let along = if along { ", along with it" } else { "" };
                writeln!(text, "     {knob} ({place}): {before} -> {written}{along}")
            }
        };
    }
    text
}
