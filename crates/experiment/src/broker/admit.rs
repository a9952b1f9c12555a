//! The hosts that a results file names: which of them are taken from there, without the user's own word.
//!
//! A results file may be a stranger's. A command that it names is not run, and a testbed file, which is commands, must be
//! the user's own.

use std::path::Path;

use latput_linux::files::{self, TEXT_BYTES_MOST};

use super::client::client;
use super::message::Way;
use crate::target::{Reach, Target};
use crate::testbed::Testbed;

/// Takes the hosts of a results file: `word` is what it calls its testbed. With a broker, that decides, and once.
///
/// # Errors
///
/// Why they are not taken, with the remedy.
pub fn admit(word: &str, bring: Option<&Path>) -> Result<(), String> {
    match client() {
        Some(broker) => broker.admit(word),
        None => ways(word, bring).map(drop),
    }
}

/// The ways to the hosts of `word`, with the latput to bring.
pub(super) fn ways(word: &str, bring: Option<&Path>) -> Result<Vec<Way>, String> {
    let path = Path::new(word);
    if Target::is_told_by(word) || !path.exists() {
        return Target::split(word).into_iter().map(|word| way(word, bring)).collect();
    }
    let refuse = |why: String| {
        format!("the results name a testbed file, and {why}: if you trust it, name it with --on")
    };
    let text =
        files::read_own_text(path, TEXT_BYTES_MOST).map_err(|error| refuse(error.to_string()))?;
    let testbed = Testbed::parse(word, &text).map_err(|error| refuse(error.to_string()))?;
    Ok(testbed.ways())
}

fn way(word: &str, bring: Option<&Path>) -> Result<Way, String> {
    let target = Target::parse(word).map_err(|error| error.to_string())?;
    if matches!(target.reach, Reach::Command(_)) {
        return Err(format!(
            "the results name the command `{target}`, and anybody can have written them: if you trust it, name \
             the hosts with --on"
        ));
    }
    Ok(target.way(bring))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn hosts_are_taken_and_commands_are_not() {
        assert_eq!(ways("ssh://root@a,netns://b", None).unwrap().len(), 2);
        assert_eq!(ways("this host,ssh://b%eth0", None).unwrap().len(), 2);
        for (word, why) in [
            ("exec:sh -c id", "the command `exec:sh -c id`"),
            ("ssh://a,exec:id", "the command"),
            ("ssh://-oProxyCommand=id", "names no host"),
            ("", "neither a host nor an interface"),
            ("ssh://a\u{1b}[2J", "control character"),
        ] {
            let said = ways(word, None).unwrap_err();
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
        assert_eq!(ways(&word, None).unwrap()[0].via, ["ssh", "a"]);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let said = ways(&word, None).unwrap_err();
        assert!(said.contains("others may write it") && said.contains("--on"), "{said}");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        if std::os::unix::fs::chown(&path, Some(1234), Some(1234)).is_ok() {
            let said = ways(&word, None).unwrap_err();
            assert!(said.contains("it belongs to user 1234"), "{said}");
        }
        fs::write(&path, "[host").unwrap();
        assert!(ways(&word, None).is_err());
    }
}
