//! The lines under a recommendation: how to apply it, take it back and keep it over a reboot.

use latput_trial::Results;

use crate::printable::printable;

/// Testbeds that exist only while they are measured, or that have no setting of their own.
pub(crate) const SIMULATED: &str = "sim:";
const GUEST: &str = "vm:";
const LAB: &str = "lab";
/// Behind what is done on each host: how to get there is `apply`'s to say.
const EACH: &str = ", on each host: `apply` prints the whole line";

/// One line: its name and its text.
pub(crate) type NextLine = (&'static str, String);

/// The lines under a recommendation of `results` that changes something. Empty for results that were not
/// loaded from a file.
pub(crate) fn lines(results: &Results) -> Vec<NextLine> {
    let testbed = if results.is_imported() { LAB } else { &results.testbed };
    results.source.as_ref().map_or_else(Vec::new, |file| lines_of(file, testbed))
}

fn lines_of(file: &str, testbed: &str) -> Vec<NextLine> {
    let file = shell_word(file);
    if testbed == LAB || testbed.starts_with(SIMULATED) || testbed.starts_with(GUEST) {
        let on = "these hosts are gone: measure yours with `--on TESTBED.toml`, and apply that";
        return vec![("apply", on.to_owned())];
    }
    vec![
        ("apply", format!("latput apply {file} --confirm-within 60s")),
        ("undo", format!("latput undo{EACH}")),
        ("keep", format!("latput keep{EACH}")),
    ]
}

/// A word quoted for a shell.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@=,/+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", printable(word).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{NextLine, lines_of};

    fn joined(lines: &[NextLine]) -> Vec<String> {
        lines.iter().map(|(name, line)| format!("{name}: {line}")).collect()
    }

    #[test]
    fn the_lines_name_the_file_and_hosts_that_are_gone_have_no_command() {
        let lines = joined(&lines_of("my results.db", "rack.toml"));
        assert_eq!(
            lines,
            [
                "apply: latput apply 'my results.db' --confirm-within 60s",
                "undo: latput undo, on each host: `apply` prints the whole line",
                "keep: latput keep, on each host: `apply` prints the whole line"
            ]
        );
        for gone in ["lab", "sim:server-10g", "vm:igb"] {
            let lines = joined(&lines_of("r.db", gone));
            assert!(lines.len() == 1 && lines[0].contains("measure yours"), "{gone}: {lines:?}");
        }
    }
}
