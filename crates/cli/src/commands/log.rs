//! `latput log`: lists the journal of committed changes.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::{Knob, Place, State, Value};
use latput_linux::process::local_time;

use crate::commands::change;
use crate::commands::journal::{Journal, JournalEntry};
use crate::context::CliContext;
use crate::document::{LogDocument, LoggedChange, LoggedValue};
use crate::exit::CliError;
use crate::output;

/// List the changes that were made on this host.
///
/// The newest first, each with its state now.
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
        let Journal { mut entries, damaged } = Journal::read()?;
        let damaged: Vec<String> = damaged.iter().map(ToString::to_string).collect();
        if let Some(interface) = &self.interface {
            entries.retain(|entry| entry.change.interface == *interface);
        }
        if context.json {
            let entries = entries.iter().map(to_logged_change).collect();
            output::print_json(&LogDocument { schema: 1, entries, damaged })?;
            return Ok(ExitCode::SUCCESS);
        }
        for problem in &damaged {
            output::print_remark(&format!("latput: left out: {problem}"));
        }
        let text: String = entries.iter().map(render_entry).collect();
        output::print_text(if text.is_empty() { "no change was made\n" } else { &text })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The values of a change: those of now where they are known, else those of its checkpoint.
fn values(entry: &JournalEntry) -> Vec<LoggedValue> {
    let change = &entry.change;
    let value = |(along, before, ((knob, place), written)): Listed<'_>| {
        let before = before.0.get(&(*knob, *place))?;
        let now = entry.values.iter().find(|value| (value.knob, value.place) == (*knob, *place));
        (!knob.spec().same(before, written)).then(|| LoggedValue {
            knob: knob.name().to_owned(),
            place: change::place_words(*knob, *place),
            before: place.value_words(before),
            written: place.value_words(written),
            now: now.and_then(|value| value.found.as_ref()).map(ToString::to_string),
            along,
        })
    };
    let own = change.written.0.iter().map(|at| (false, &change.undo, at));
    let along = change.along.after.0.iter().map(|at| (true, &change.along.before, at));
    own.chain(along).filter_map(value).collect()
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
        values: values(entry),
    }
}

fn render_entry(entry: &JournalEntry) -> String {
    let JournalEntry { number, change, state, .. } = entry;
    let when = local_time(change.created_unix_ms / 1000);
    let why = change.went_back.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let undoes = change.undoes.map_or(String::new(), |undone| format!(" (of {undone})"));
    let mut text = format!(
        "{number}  {when}  {}  {}{undoes}: {state}{why}\n",
        change.interface,
        entry.describe_maker()
    );
    for LoggedValue { knob, place, before, written, along, .. } in values(entry) {
        let along = if along { ", along with it" } else { "" };
        let _ = writeln!(text, "     {knob} ({place}): {before} -> {written}{along}");
    }
    text
}
