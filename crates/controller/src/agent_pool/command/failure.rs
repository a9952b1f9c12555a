//! Messages about a program that failed.

use latput_protocol::program::{ExitCause, ProgramOutcome};
use latput_runner::Error;
use latput_trial::program::ProgramCommand;

/// The program, how it ended, and its last lines.
pub(in crate::agent_pool) fn describe_failure(
    command: &ProgramCommand,
    ended: &ProgramOutcome,
) -> String {
    format!("`{}`: {}{}", command.in_words(), ended.ending, last_words(ended))
}

/// The error of a trial. Another attempt may succeed, unless the program could not be started.
pub(in crate::agent_pool) fn build_program_error(
    host: &str,
    problem: String,
    ended: &ProgramOutcome,
) -> Error {
    let is_transient = !matches!(ended.ending, ExitCause::NotStarted { .. });
    Error::Program { host: host.to_owned(), problem, is_transient }
}

/// The last lines of a program's outputs, after a semicolon.
pub(super) fn last_words(ended: &ProgramOutcome) -> String {
    if matches!(ended.ending, ExitCause::NotStarted { .. }) {
        return String::new();
    }
    let outputs = [("stderr", &ended.stderr), ("stdout", &ended.stdout)];
    let said = outputs.map(|(name, output)| (name, output.last_lines()));
    let said: Vec<String> = said
        .into_iter()
        .filter(|(_, lines)| !lines.is_empty())
        .map(|(name, lines)| format!("its {name} ends in: {lines}"))
        .collect();
    if said.is_empty() { "; it said nothing".to_owned() } else { format!("; {}", said.join("; ")) }
}
