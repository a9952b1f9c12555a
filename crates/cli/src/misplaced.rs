//! The commands that have an option which another command was given.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Most commands that are named.
const NAMED_MOST: usize = 3;

/// Adds to an error about an unknown option which commands have it. Without such a command the error stays as it is,
/// and so does one that already names a similar option.
pub(crate) fn with_commands(mut error: Error, root: &Command) -> Error {
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::SuggestedArg).is_some()
    {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    let Some(option) = word.strip_prefix("--").map(|word| word.split('=').next().unwrap_or(word))
    else {
        return error;
    };
    let mut commands = Vec::new();
    collect_commands(root, "latput", option, &mut commands);
    let Some(tip) = format_tip(option, &commands) else { return error };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn collect_commands(command: &Command, path: &str, option: &str, into: &mut Vec<String>) {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        let path = format!("{path} {}", one.get_name());
        let has = |arg: &clap::Arg| !arg.is_hide_set() && arg.get_long() == Some(option);
        if one.get_arguments().any(has) {
            into.push(path.clone());
        }
        collect_commands(one, &path, option, into);
    }
}

/// `latput run`, `latput tune` and 2 other commands have `--budget`
fn format_tip(option: &str, commands: &[String]) -> Option<String> {
    let named: Vec<String> =
        commands.iter().take(NAMED_MOST).map(|path| format!("`{path}`")).collect();
    let others = commands.len().saturating_sub(NAMED_MOST);
    Some(match (named.as_slice(), others) {
        ([], _) => return None,
        ([only], _) => format!("{only} has `--{option}`"),
        ([all @ .., last], 0) => format!("{} and {last} have `--{option}`", all.join(", ")),
        (all, 1) => format!("{} and one other command have `--{option}`", all.join(", ")),
        (all, _) => format!("{} and {others} other commands have `--{option}`", all.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misplaced_option_names_its_commands() {
        let said = |words: &[&str]| {
            let root = crate::help::build_command();
            let error = root.clone().try_get_matches_from(words).unwrap_err();
            with_commands(error, &root).render().to_string()
        };
        let text = said(&["latput", "measure", "lab", "--workload", "tcp_rr", "--budget", "1s"]);
        assert!(text.contains("`latput tune` and `latput diagnose` have `--budget`"), "{text}");
        assert!(!text.contains("as a value"), "{text}");
        // Nothing has it; or it is a slip of the pen.
        assert!(said(&["latput", "measure", "lab", "--no-such-thing"]).contains("unexpected"));
        assert!(said(&["latput", "measure", "lab", "--workloat", "x"]).contains("--workload"));
    }

    #[test]
    fn commands_beyond_three_are_counted() {
        let commands = ["latput a", "latput b", "latput c", "latput d", "latput e"];
        let commands = commands.map(str::to_owned);
        let of = |count: usize| format_tip("x", &commands[..count]);
        assert_eq!(of(0), None);
        assert_eq!(of(1).unwrap(), "`latput a` has `--x`");
        assert_eq!(of(3).unwrap(), "`latput a`, `latput b` and `latput c` have `--x`");
        assert_eq!(
            of(4).unwrap(),
            "`latput a`, `latput b`, `latput c` and one other command have `--x`"
        );
        assert_eq!(
            of(5).unwrap(),
            "`latput a`, `latput b`, `latput c` and 2 other commands have `--x`"
        );
    }
}
