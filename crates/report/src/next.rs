//! The lines under a recommendation: how to apply it, take it back and keep it over a reboot.

use latput_trial::Results;
pub use latput_units::printable::shell_word;

/// Testbeds that exist only while they are measured, or that have no setting of their own.
pub(crate) const SIMULATED: &str = "sim:";
const GUEST: &str = "vm:";
const LAB: &str = "lab";
/// Behind what is done on each host: how to get there is `apply`'s to say.
const EACH: &str = "on each host (`apply` prints the whole line)";
const ON_IT: &str = "on that host (`apply` prints the whole line)";
/// In the place of the command that keeps a setting, for a network namespace.
pub const NO_KEEP: &str =
    "a network namespace has no files of its own: set the values where it is made";
/// Beginning of a host that is a network namespace.
const NAMESPACE: &str = "netns://";
const GONE: &str = "Nothing to apply to. Measure your hosts: `latput tune HOST HOST`.";

/// One line: its name, and a command or what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct NextLine {
    pub(crate) name: &'static str,
    /// For a shell; `None` where there is none to be given.
    pub(crate) command: Option<String>,
    pub(crate) note: Option<&'static str>,
}

impl NextLine {
    /// The command and the note as text.
    pub(crate) fn to_text(&self) -> String {
        self.command.as_deref().into_iter().chain(self.note).collect::<Vec<_>>().join(", ")
    }
}

/// The lines under a recommendation of `results` that changes something. Empty for results that were not
/// loaded from a file.
pub(crate) fn build_next_lines(results: &Results) -> Vec<NextLine> {
    let testbed = if results.is_imported() { LAB } else { &results.testbed };
    let place = if results.hosts.len() == 1 { ON_IT } else { EACH };
    results.source.as_ref().map_or_else(Vec::new, |file| build_apply_lines(file, testbed, place))
}

fn build_apply_lines(file: &str, testbed: &str, place: &'static str) -> Vec<NextLine> {
    let line = |name, command: Option<&str>, note| NextLine {
        name,
        command: command.map(str::to_owned),
        note,
    };
    if testbed == LAB || testbed.starts_with(SIMULATED) || testbed.starts_with(GUEST) {
        return vec![line("apply", None, Some(GONE))];
    }
    // The first host of several is the system under test.
    let is_namespace = testbed.starts_with(NAMESPACE);
    let keep = if is_namespace { (None, NO_KEEP) } else { (Some("latput keep"), place) };
    let apply = format!("latput apply {} --confirm-within 60s", shell_word(file));
    vec![
        line("apply", Some(&apply), None),
        line("undo", Some("latput undo"), Some(place)),
        line("keep", keep.0, Some(keep.1)),
    ]
}

/// The name of an interface as the last words of a command: one that looks like an option comes behind `--`.
pub fn interface_words(name: &str) -> String {
    let word = shell_word(name);
    if name.starts_with('-') { format!("-- {word}") } else { word }
}

#[cfg(test)]
mod tests {
    use super::{EACH, NO_KEEP, NextLine, ON_IT, build_apply_lines};

    fn format_lines(lines: &[NextLine]) -> Vec<String> {
        lines.iter().map(|line| format!("{}: {}", line.name, line.to_text())).collect()
    }

    #[test]
    fn next_lines_name_file_and_hosts() {
        let lines = format_lines(&build_apply_lines("my results.db", "rack.toml", EACH));
        assert_eq!(
            lines,
            [
                "apply: latput apply 'my results.db' --confirm-within 60s",
                "undo: latput undo, on each host (`apply` prints the whole line)",
                "keep: latput keep, on each host (`apply` prints the whole line)"
            ]
        );
        let of_one_host = format_lines(&build_apply_lines("r.db", "ssh://b%eth0", ON_IT));
        assert!(of_one_host[1].contains("latput undo, on that host"), "{of_one_host:?}");
        for hosts in ["netns://a,netns://b", "netns://a?cpus=0,2,netns://b", "netns://a"] {
            let lines = format_lines(&build_apply_lines("r.db", hosts, EACH));
            assert_eq!(lines[2], format!("keep: {NO_KEEP}"), "{hosts}");
        }
        // The system under test has files of its own.
        let of_server = format_lines(&build_apply_lines("r.db", "ssh://s,netns://b", EACH));
        assert!(of_server[2].starts_with("keep: latput keep"));
        for gone in ["lab", "sim:server-10g", "vm:igb"] {
            let lines = format_lines(&build_apply_lines("r.db", gone, ON_IT));
            assert!(
                lines.len() == 1 && lines[0].contains("Measure your hosts"),
                "{gone}: {lines:?}"
            );
        }
    }
}
