//! A guard of the user's: a command that must end with exit code 0 on every host's behalf.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use latput_fleet::FleetHost;
use latput_trial::program::split;
use latput_units::spelling;

use crate::exit::CliError;

/// The names that stand for a part of the host, in braces.
const PLACEHOLDERS: [&str; 3] = ["host", "interface", "target"];

/// The words of `--guard`. Refuses one that could never hold, before any host is changed: a program that is not there, and
/// a placeholder that was misspelt.
pub(super) fn words_of(line: &str) -> Result<Vec<String>, CliError> {
    let wrong = |why: String| CliError::usage(format!("--guard `{line}`: {why}"));
    let words = split(line).map_err(|error| wrong(error.to_string()))?;
    if let Some((name, near)) = words.iter().find_map(|word| find_misspelt_placeholder(word)) {
        return Err(wrong(format!("there is no `{{{name}}}`: did you mean `{{{near}}}`?")));
    }
    match words.first() {
        Some(program) if !program.contains('{') && !is_there(program) => Err(wrong(format!(
            "there is no program `{program}` on this host, which runs the guards"
        ))),
        _ => Ok(words),
    }
}

/// The words of a guard for a host.
pub(super) fn of_host(words: &[String], host: &FleetHost) -> Vec<String> {
    let values = [&host.name, &host.interface, &host.reach];
    let filled = |word: &String| {
        let parts = PLACEHOLDERS.iter().zip(values);
        parts.fold(word.clone(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
    };
    words.iter().map(filled).collect()
}

/// A name in braces that is near to a placeholder. Others belong to the program.
fn find_misspelt_placeholder(word: &str) -> Option<(&str, &'static str)> {
    let in_braces = word.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    in_braces.filter(|name| !PLACEHOLDERS.contains(name)).find_map(|name| {
        let near = spelling::nearest_name(name, PLACEHOLDERS)?;
        Some((name, near))
    })
}

fn is_there(program: &str) -> bool {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_that_could_never_hold_is_refused() {
        let refused = |line: &str| words_of(line).unwrap_err().error.to_string();
        assert!(refused("nosuchcmd {host}").contains("no program `nosuchcmd`"));
        assert!(refused("./nowhere/check").contains("no program `./nowhere/check`"));
        assert!(
            refused("sh -c 'ping {hst}'").contains("there is no `{hst}`: did you mean `{host}`?")
        );
        assert!(refused("'").contains("--guard"));
        for line in
            ["sh -c 'ping {host}'", "sh -c 'a | awk \"{print}\"'", "{target}/check", "/bin/sh"]
        {
            assert!(words_of(line).is_ok(), "{line}");
        }
    }
}
