//! The hosts that a results file names: which of them are taken from there, without the user's own word.
//!
//! A results file may be a stranger's. A command that it names is not run, and a testbed file, which is commands, must be
//! the user's own.

use std::path::Path;

use latput_linux::files::{self, TEXT_BYTES_MOST};

use super::client::get_broker;
use super::message::LaunchCommand;
use crate::host_spec::HostSpec;
use crate::target::{ReachMethod, Target};
use crate::testbed_file;

/// Takes the hosts of a results file: `word` is what it calls its testbed. With a broker, that decides, and once.
///
/// # Errors
///
/// Why they are not taken, with the remedy.
pub fn admit_hosts(word: &str, bring: Option<&Path>) -> Result<(), String> {
    match get_broker() {
        Some(broker) => broker.admit_hosts(word),
        None => resolve_launch_commands(word, bring).map(drop),
    }
}

/// The ways to the hosts of `word`, with the latput to bring.
pub(super) fn resolve_launch_commands(
    word: &str,
    bring: Option<&Path>,
) -> Result<Vec<LaunchCommand>, String> {
    let path = Path::new(word);
    if Target::is_told_by(word) || !path.exists() {
        return Target::split_targets(word)
            .into_iter()
            .map(|word| parse_launch_command(word, bring))
            .collect();
    }
    let refuse = |why: String| {
        format!("the results name a testbed file, and {why}: if you trust it, name it with --on")
    };
    let text =
        files::read_own_text(path, TEXT_BYTES_MOST).map_err(|error| refuse(error.to_string()))?;
    let hosts =
        testbed_file::parse_hosts(word, &text).map_err(|error| refuse(error.to_string()))?;
    Ok(hosts.iter().map(HostSpec::launch_command).collect())
}

fn parse_launch_command(word: &str, bring: Option<&Path>) -> Result<LaunchCommand, String> {
    let target = Target::parse(word).map_err(|error| error.to_string())?;
    if matches!(target.reach, ReachMethod::Command(_)) {
        return Err(format!(
            "the results name the command `{target}`, and anybody can have written them: if you trust it, name \
             the hosts with --on"
        ));
    }
    Ok(target.launch_command(bring))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn hosts_are_taken_and_commands_are_not() {
        assert_eq!(resolve_launch_commands("ssh://root@a,netns://b", None).unwrap().len(), 2);
        assert_eq!(resolve_launch_commands("this host,ssh://b%eth0", None).unwrap().len(), 2);
        for (word, why) in [
            ("exec:sh -c id", "the command `exec:sh -c id`"),
            ("ssh://a,exec:id", "the command"),
            ("ssh://-oProxyCommand=id", "names no host"),
            ("", "neither a host nor an interface"),
            ("ssh://a\u{1b}[2J", "control character"),
        ] {
            let said = resolve_launch_commands(word, None).unwrap_err();
            assert!(said.contains(why), "{word}: {said}");
        }
    }

    #[test]
    fn testbed_writable_by_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("two.toml");
        let host = |name: &str, role: &str, address: u8| {
            format!(
                "[host.{name}]\nrole = \"{role}\"\nvia = [\"ssh\", \"{name}\"]\ninterface = \"e0\"\n\
                 address = \"10.0.0.{address}\"\n"
            )
        };
        let text = format!("schema = 1\n{}{}", host("a", "sut", 1), host("b", "generator", 2));
        fs::write(&path, text).unwrap();
        let word = path.display().to_string();
        assert_eq!(resolve_launch_commands(&word, None).unwrap()[0].via, ["ssh", "a"]);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let said = resolve_launch_commands(&word, None).unwrap_err();
        assert!(said.contains("others may write it") && said.contains("--on"), "{said}");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        if std::os::unix::fs::chown(&path, Some(1234), Some(1234)).is_ok() {
            let said = resolve_launch_commands(&word, None).unwrap_err();
            assert!(said.contains("it belongs to user 1234"), "{said}");
        }
        fs::write(&path, "[host").unwrap();
        assert!(resolve_launch_commands(&word, None).is_err());
    }
}
