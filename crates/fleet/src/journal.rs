//! A host's journal: the changes of an interface, the newest first.

use std::fmt::Write as _;

use latput_linux::process::local_time;
use serde::Deserialize;

use crate::context::join_names;
use crate::judge::HostState;

/// How the names of rollouts begin: the journal's name of what `latput fleet apply` has made.
pub const ROLLOUT: &str = "fleet-";
/// Most entries of an answer: a journal holds as many.
const ENTRIES_MOST: usize = 1000;
/// Most bytes of a text in it.
const TEXT_BYTES_MOST: usize = 16 << 10;

/// A change of a host's journal, as `latput log --json` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct HostEntry {
    /// Its number there.
    pub number: u64,
    /// When it began, in milliseconds since 1970, on the host's clock.
    pub at_unix_ms: u64,
    /// The interface.
    pub interface: String,
    /// The command that made it; of a rollout its name.
    pub command: String,
    /// Its maker.
    pub user: String,
    /// Its state: `in-force`, `undone` ...
    pub state: String,
    /// The values that it changed.
    pub values: Vec<EntryValue>,
}

/// A value that a change replaced.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EntryValue {
    /// The knob.
    pub knob: String,
    /// Where: `device`, `rx-0`.
    pub place: String,
    /// The value before.
    pub before: String,
    /// The value after.
    pub written: String,
}

impl EntryValue {
    const fn text_fields(&self) -> [&String; 4] {
        let Self { knob, place, before, written } = self;
        [knob, place, before, written]
    }
}

#[derive(Deserialize)]
struct JournalAnswer {
    schema: u32,
    entries: Vec<HostEntry>,
}

impl HostEntry {
    /// Reads the answer to a question about the journal of `interface`. The error says what is wrong with it.
    ///
    /// # Errors
    ///
    /// An answer that no latput gives.
    pub fn read(bytes: &[u8], interface: &str) -> Result<Vec<Self>, String> {
        let answer: JournalAnswer = serde_json::from_slice(bytes)
            .map_err(|error| format!("its answer is not from latput: {error}"))?;
        let JournalAnswer { schema, mut entries } = answer;
        if schema != 1 || entries.len() > ENTRIES_MOST {
            return Err("its journal is not from latput".to_owned());
        }
        let is_strange =
            |text: &String| text.len() > TEXT_BYTES_MOST || text.contains(char::is_control);
        if entries.iter().any(|entry| entry.texts().any(is_strange)) {
            return Err("its journal has a text that latput never sends".to_owned());
        }
        if entries.iter().any(|entry| entry.interface != interface) {
            return Err(format!("it was asked for {interface} and answered for another"));
        }
        // Of another namespace of the host, where an interface may have the same name.
        entries.retain(|entry| entry.state != "elsewhere");
        Ok(entries)
    }

    /// Whether some of its values are in force.
    pub fn is_in_force(&self) -> bool {
        matches!(self.state.as_str(), "in-force" | "in-part")
    }

    /// Whether it is of a rollout; with a name, of that one.
    pub fn is_of_rollout(&self, name: Option<&str>) -> bool {
        self.command.starts_with(ROLLOUT) && name.is_none_or(|name| self.command == name)
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let own = [&self.interface, &self.command, &self.user, &self.state];
        let of_values = self.values.iter().flat_map(EntryValue::text_fields);
        own.into_iter().chain(of_values)
    }
}

/// The name of the newest rollout that is in force on any of these hosts.
pub fn newest_rollout<'a>(entries: impl IntoIterator<Item = &'a HostEntry>) -> Option<String> {
    let of_rollouts =
        entries.into_iter().filter(|entry| entry.is_in_force() && entry.is_of_rollout(None));
    of_rollouts.max_by_key(|entry| entry.at_unix_ms).map(|entry| entry.command.clone())
}

/// The newest entries of a host's journal, for people.
pub fn render_journal(journal: &Result<Vec<HostEntry>, HostState>, newest: usize) -> String {
    match journal {
        Err(state) => format!("  {}\n", state.in_words()),
        Ok(entries) if entries.is_empty() => "  no change was made\n".to_owned(),
        Ok(entries) => entries.iter().take(newest).map(render_entry).collect(),
    }
}

fn render_entry(entry: &HostEntry) -> String {
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
        let _ =
            writeln!(text, "     {knob} ({}): {before} -> {written}", join_names(&places, ", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_json(command: &str, state: &str, at: u64) -> String {
        format!(
            r#"{{"number":{at},"at_unix_ms":{at},"interface":"eth0","command":"{command}","user":"ann","state":"{state}",
                "more":1,"values":[{{"knob":"mtu","place":"device","before":"1500","written":"1400"}}]}}"#
        )
    }

    fn read(entries: &[String]) -> Result<Vec<HostEntry>, String> {
        let answer = format!(r#"{{"schema":1,"entries":[{}],"damaged":[]}}"#, entries.join(","));
        HostEntry::read(answer.as_bytes(), "eth0")
    }

    #[test]
    fn newest_rollout_in_force_is_undone() {
        let entries = read(&[
            entry_json("set", "in-force", 9),
            entry_json("fleet-3", "undone", 8),
            entry_json("fleet-2", "in-part", 7),
            entry_json("fleet-1", "in-force", 6),
        ]);
        let entries = entries.unwrap();
        assert_eq!(newest_rollout(&entries).as_deref(), Some("fleet-2"));
        assert_eq!(newest_rollout(&entries[..2]), None);
        assert!(
            entries[3].is_of_rollout(Some("fleet-1")) && !entries[3].is_of_rollout(Some("fleet-2"))
        );
    }

    #[test]
    fn journal_that_no_latput_sends_is_refused() {
        assert!(
            read(&[entry_json("se\\u001bt", "in-force", 1)])
                .unwrap_err()
                .contains("latput never sends")
        );
        assert!(read(&vec![entry_json("set", "undone", 1); 1001]).is_err());
        let other = entry_json("set", "undone", 1).replace("eth0", "eth1");
        assert!(read(&[other]).unwrap_err().contains("answered for another"));
        for text in ["", "[]", "{}", "null"] {
            assert!(HostEntry::read(text.as_bytes(), "eth0").is_err(), "{text}");
        }
    }

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
        let text = render_entry(&entry);
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
