//! The commands of latput about one interface of a host that a broker starts there: the whole list.

use serde::{Deserialize, Serialize};

/// Most bytes of a word that a command takes along.
const WORD_BYTES_MOST: usize = 256;

/// A command of latput about one interface. It ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCommand {
    /// The interface.
    pub interface: String,
    /// Action on the interface.
    pub verb: HostVerb,
}

/// Action of latput on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HostVerb {
    /// Look at the knobs that its stdin names.
    Look,
    /// Set the values that its stdin names.
    Set(SetOptions),
    /// Keep the change that waits.
    Confirm {
        /// Only if it was made by this.
        made_by: Option<String>,
    },
    /// Give the change that waits more time.
    Extend {
        /// Only if it was made by this.
        made_by: String,
        /// The time from now.
        within_ns: u64,
    },
    /// Record that the rollout of its newest change has ended; its stdin names the hosts that were not reached.
    EndRollout {
        /// The name of the rollout.
        rollout: String,
    },
    /// Put it back as it was before the change that waits.
    Restore {
        /// Only if it was made by this.
        made_by: Option<String>,
    },
    /// Undo an entry of the host's journal.
    Undo(UndoOptions),
    /// List the host's journal.
    Log,
    /// Keep the values that its stdin names over a reboot.
    Keep(KeepOptions),
    /// Compare the values that it keeps with those in force.
    CheckKept,
}

/// How an entry of the journal is undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndoOptions {
    /// Its number; `None`: the newest.
    pub entry: Option<u64>,
    /// The command that made it; of another, nothing is undone.
    pub made_by: Option<String>,
    /// Whether the link may go down and up.
    pub allow_link_reset: bool,
    /// Whether the answer is JSON.
    pub json: bool,
}

/// How values are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepOptions {
    /// Whether what was installed is taken out.
    pub remove: bool,
    /// Whether the files are only told.
    pub dry_run: bool,
}

/// How values are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOptions {
    /// Name of the maker in the journal.
    pub made_by: String,
    /// The change goes back after this time unless it is confirmed.
    pub within_ns: Option<u64>,
    /// The driver and the place on the bus that the interface must have.
    pub only_if: Option<String>,
    /// Whether the link may go down and up.
    pub allow_link_reset: bool,
    /// Whether the writes are only told.
    pub dry_run: bool,
    /// Whether the answer is JSON.
    pub json: bool,
}

impl HostCommand {
    /// The arguments of latput.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut say = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
        let interface = self.interface.as_str();
        match &self.verb {
            HostVerb::Look => say(&["fleet", "look", interface, "--json"]),
            HostVerb::Set(set) => set.append_args(interface, &mut say),
            HostVerb::Confirm { .. } => say(&["confirm", interface, "--json"]),
            HostVerb::Extend { made_by, within_ns } => {
                let (made_by, time) =
                    (format!("--made-by={made_by}"), format!("--extend={within_ns}ns"));
                say(&["confirm", interface, "--json", &made_by, &time]);
            }
            HostVerb::EndRollout { rollout } => {
                say(&["fleet", "end", interface, "--json", &format!("--rollout={rollout}")]);
            }
            HostVerb::Restore { .. } => say(&["restore", interface, "--json"]),
            HostVerb::Undo(_) => say(&["undo", "--of-fleet"]),
            HostVerb::Log => say(&["log", interface, "--json"]),
            HostVerb::Keep(KeepOptions { remove: true, .. }) => {
                say(&["keep", "--remove", interface, "--yes", "--json"]);
            }
            HostVerb::Keep(_) => say(&["keep", interface, "--stdin", "--yes", "--json"]),
            HostVerb::CheckKept => say(&["keep", interface, "--check", "--json"]),
        }
        match &self.verb {
            HostVerb::Confirm { made_by: Some(by) } | HostVerb::Restore { made_by: Some(by) } => {
                say(&[&format!("--made-by={by}")]);
            }
            HostVerb::Undo(UndoOptions { entry, made_by, allow_link_reset, json }) => {
                let number = entry.map(|number| number.to_string());
                if let Some(number) = &number {
                    say(&[number]);
                }
                if let Some(by) = made_by {
                    say(&[&format!("--made-by={by}")]);
                }
                let flags = [("--allow-link-reset", allow_link_reset), ("--json", json)];
                flags.iter().filter(|(_, is_given)| **is_given).for_each(|(flag, _)| say(&[flag]));
            }
            HostVerb::Keep(KeepOptions { dry_run: true, .. }) => say(&["--dry-run"]),
            _ => {}
        }
        args
    }

    /// Whether it may change the host.
    pub(super) const fn is_change(&self) -> bool {
        !matches!(
            self.verb,
            HostVerb::Look
                | HostVerb::Log
                | HostVerb::CheckKept
                | HostVerb::Set(SetOptions { dry_run: true, .. })
                | HostVerb::Keep(KeepOptions { dry_run: true, .. })
        )
    }

    /// Refuses a command that a shell on the way, or latput there, could take for another one.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check_words(&self) -> Result<(), String> {
        check_interface(&self.interface)?;
        let words: Vec<&String> = match &self.verb {
            HostVerb::Look | HostVerb::Log | HostVerb::Keep(_) | HostVerb::CheckKept => Vec::new(),
            HostVerb::Confirm { made_by } | HostVerb::Restore { made_by } => {
                made_by.iter().collect()
            }
            HostVerb::Undo(undo) => undo.made_by.iter().collect(),
            HostVerb::Extend { made_by, .. } => vec![made_by],
            HostVerb::EndRollout { rollout } => vec![rollout],
            HostVerb::Set(set) => std::iter::once(&set.made_by).chain(&set.only_if).collect(),
        };
        match words.into_iter().find(|word| !is_shell_safe_word(word, "-_.:/@+,")) {
            None => Ok(()),
            Some(word) => Err(format!("`{}` cannot be named to another host", word.escape_debug())),
        }
    }
}

impl SetOptions {
    fn append_args(&self, interface: &str, say: &mut impl FnMut(&[&str])) {
        say(&["set", interface, "--stdin", &format!("--made-by={}", self.made_by)]);
        if let Some(within_ns) = self.within_ns {
            say(&["--confirm-within", &format!("{within_ns}ns")]);
        }
        if let Some(seen) = &self.only_if {
            say(&["--only-if", seen]);
        }
        let flags = [
            ("--allow-link-reset", self.allow_link_reset),
            ("--dry-run", self.dry_run),
            ("--json", self.json),
        ];
        for (flag, is_given) in flags {
            if is_given {
                say(&[flag]);
            }
        }
    }
}

/// Refuses an interface's name that is not one word for every shell on the way, or an option.
///
/// # Errors
///
/// Its name, and the remedy.
pub fn check_interface(name: &str) -> Result<(), String> {
    if is_shell_safe_word(name, "-_.@") {
        return Ok(());
    }
    Err(format!("`{}` cannot be named to another host: rename it there", name.escape_debug()))
}

fn is_shell_safe_word(word: &str, more: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    (1..=WORD_BYTES_MOST).contains(&word.len())
        && !word.starts_with('-')
        && word.chars().all(is_good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_set_command(change: impl Fn(&mut SetOptions)) -> HostCommand {
        let mut set = SetOptions { made_by: "apply".to_owned(), ..SetOptions::default() };
        change(&mut set);
        HostCommand { interface: "eth0".to_owned(), verb: HostVerb::Set(set) }
    }

    #[test]
    fn every_command_is_words_of_latput() {
        let command = |verb| HostCommand { interface: "eth0".to_owned(), verb };
        let by = || Some("fleet-1".to_owned());
        let undo = |entry, more| {
            HostVerb::Undo(UndoOptions { entry, made_by: by(), allow_link_reset: more, json: more })
        };
        let keep = |remove, dry_run| HostVerb::Keep(KeepOptions { remove, dry_run });
        for (command, words) in [
            (command(HostVerb::Look), "fleet look eth0 --json"),
            (command(HostVerb::Confirm { made_by: None }), "confirm eth0 --json"),
            (
                command(HostVerb::Extend { made_by: "fleet-1".to_owned(), within_ns: 60 }),
                "confirm eth0 --json --made-by=fleet-1 --extend=60ns",
            ),
            (
                command(HostVerb::EndRollout { rollout: "fleet-1".to_owned() }),
                "fleet end eth0 --json --rollout=fleet-1",
            ),
            (command(HostVerb::Restore { made_by: by() }), "restore eth0 --json --made-by=fleet-1"),
            (command(undo(Some(7), false)), "undo --of-fleet 7 --made-by=fleet-1"),
            (
                command(undo(None, true)),
                "undo --of-fleet --made-by=fleet-1 --allow-link-reset --json",
            ),
            (command(HostVerb::Log), "log eth0 --json"),
            (command(HostVerb::CheckKept), "keep eth0 --check --json"),
            (command(keep(false, false)), "keep eth0 --stdin --yes --json"),
            (command(keep(true, true)), "keep --remove eth0 --yes --json --dry-run"),
            (
                make_set_command(|set| {
                    (set.within_ns, set.json) = (Some(5), true);
                    set.only_if = Some("ice/0000:3b:00.0".to_owned());
                }),
                "set eth0 --stdin --made-by=apply --confirm-within 5ns --only-if ice/0000:3b:00.0 --json",
            ),
        ] {
            assert_eq!(command.to_args().join(" "), words);
            assert_eq!(command.check_words(), Ok(()));
        }
    }

    #[test]
    fn shell_words_are_refused() {
        for interface in ["", "--stdin", "eth0;reboot", "a b", "e\u{1b}[2J", "../x"] {
            let command =
                HostCommand { interface: interface.to_owned(), ..make_set_command(|_| ()) };
            assert!(command.check_words().is_err(), "{interface}");
        }
        for word in ["", "x;reboot", "$(id)", "a b", "a'b", "--help", &"x".repeat(257)] {
            assert!(
                make_set_command(|set| set.made_by = word.to_owned()).check_words().is_err(),
                "{word}"
            );
            assert!(
                make_set_command(|set| set.only_if = Some(word.to_owned())).check_words().is_err(),
                "{word}"
            );
            let made_by = Some(word.to_owned());
            let restore =
                HostCommand { verb: HostVerb::Restore { made_by }, ..make_set_command(|_| ()) };
            assert!(restore.check_words().is_err(), "{word}");
        }
    }
}
