//! `latput log`: lists the journal of committed changes.

use std::fmt::Write as _;
use std::process::ExitCode;

use latput_knobs::{Knob, Place, Value};

use crate::commands::journal::{Journal, JournalEntry};
use crate::context::Context;
use crate::document::{LogDocument, LoggedChange, LoggedValue};
use crate::exit::CliError;
use crate::output;

/// List the changes that were made on this host, the newest first, and what became of each.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  latput log
  latput log eth0 --json
  latput undo 7             takes back what it lists as 7

The journal lies in the state folder (/run/latput), which a reboot empties as it ends the settings. It holds
the newest 1000 changes.")]
pub(crate) struct Args {
    /// The interface, by its present name; by default all.
    #[arg(value_name = "IFACE")]
    interface: Option<String>,
}

impl Args {
    pub(crate) fn run(self, context: &Context) -> Result<ExitCode, CliError> {
        let Journal { mut entries, damaged } = Journal::read()?;
        if let Some(interface) = &self.interface {
            entries.retain(|entry| entry.change.interface == *interface);
        }
        if context.json {
            let entries = entries.iter().map(logged).collect();
            output::print_json(&LogDocument { schema: 1, entries, damaged })?;
            return Ok(ExitCode::SUCCESS);
        }
        for problem in &damaged {
            output::remark(&format!("latput: left out: {problem}"));
        }
        let text: String = entries.iter().map(text).collect();
        output::print(if text.is_empty() { "no change was made\n" } else { &text })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The values of a change: those of now where they are known, else those of its checkpoint.
fn values(entry: &JournalEntry) -> Vec<LoggedValue> {
    let change = &entry.change;
    let value = |((knob, place), written): (&(Knob, Place), &Value)| {
        let before = change.undo.0.get(&(*knob, *place))?;
        let now = entry.values.iter().find(|value| (value.knob, value.place) == (*knob, *place));
        (!knob.spec().same(before, written)).then(|| LoggedValue {
            knob: knob.name().to_owned(),
            place: place.to_string(),
            before: before.to_string(),
            written: written.to_string(),
            now: now.and_then(|value| value.found.as_ref()).map(ToString::to_string),
        })
    };
    change.written.0.iter().filter_map(value).collect()
}

fn logged(entry: &JournalEntry) -> LoggedChange {
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
        values: values(entry),
    }
}

fn text(entry: &JournalEntry) -> String {
    let JournalEntry { number, change, state, .. } = entry;
    let when = utc(change.created_unix_ms / 1000);
    let undoes = change.undoes.map_or(String::new(), |undone| format!(" (of {undone})"));
    let mut text =
        format!("{number}  {when}  {}  {}{undoes}: {state}\n", change.interface, entry.by());
    for LoggedValue { knob, place, before, written, .. } in values(entry) {
        let _ = writeln!(text, "     {knob} ({place}): {before} -> {written}");
    }
    text
}

/// A time in seconds since 1970 as `2026-11-24 02:30:00 UTC`.
///
/// The civil date is that of the proleptic Gregorian calendar, by the days of its 400-year cycle.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01: a year that begins in March has its leap day last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    /// As `date -u -d @SECONDS '+%F %T UTC'` writes them.
    #[test]
    fn a_time_is_written_as_date_writes_it() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_795_487_400, "2026-11-24 02:30:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
