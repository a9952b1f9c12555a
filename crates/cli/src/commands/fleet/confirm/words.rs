//! The pairs of hosts in words, and the file of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use latput_reach::target::{ReachMethod, Target, FORMS};

use crate::exit::CliError;
use crate::targets::{HostArgs, NamedTestbed};

/// How many pairs: with fewer one alone could decide, and every one's runs are in memory.
const PAIRS: RangeInclusive<usize> = 3..=64;
/// Most bytes of the name of a pair's file before its ending.
const NAME_BYTES_MOST: usize = 100;

/// A pair of which no host has said anything yet.
#[derive(Debug)]
pub(super) struct NamedPair<'a> {
    /// Where its trials run.
    pub(super) place: NamedTestbed<'a>,
    /// Its results file.
    pub(super) file: PathBuf,
}

/// The pairs of these words, with files in `folder`. The same host in two of them is refused.
pub(super) fn named_pairs<'a>(
    words: &[String],
    hosts: &'a HostArgs,
    folder: &Path,
) -> Result<Vec<NamedPair<'a>>, CliError> {
    if !PAIRS.contains(&words.len()) {
        let (least, most) = PAIRS.into_inner();
        let given =
            if words.len() == 1 { "1 pair".to_owned() } else { format!("{} pairs", words.len()) };
        return Err(CliError::usage(format!(
            "{given} of hosts: give {least} to {most}, each as `HOST,HOST` or a testbed file, or \
             `pairs` in an inventory (-i FILE). `latput fleet pairs` compares results files"
        )));
    }
    let mut named = Vec::new();
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for word in words {
        let (place, keys) = parse_pair(word, hosts)?;
        for key in keys {
            if let Some(other) = known.insert(key, word) {
                return Err(CliError::usage(duplicate_host_message(word, other)));
            }
        }
        let file = folder.join(file_name(place.word(), &mut names));
        named.push(NamedPair { place, file });
    }
    Ok(named)
}

/// Why two pairs are refused.
pub(super) fn duplicate_host_message(word: &str, other: &str) -> String {
    if word == other {
        return format!(
            "`{word}` has the same host twice, or is given twice: a pair is two hosts, and each pair counts \
             once"
        );
    }
    format!(
        "`{word}` and `{other}` have a host in common, which would count twice: name other hosts"
    )
}

/// A pair, and what tells each of its hosts.
fn parse_pair<'a>(
    word: &str,
    hosts: &'a HostArgs,
) -> Result<(NamedTestbed<'a>, Vec<String>), CliError> {
    if Path::new(word).is_file() {
        let place = hosts.hosts_or_file(word)?;
        let keys =
            place.ways().iter().map(|way| way.to_command_line(&[] as &[&str]).join(" ")).collect();
        return Ok((place, keys));
    }
    let split = Target::split_targets(word);
    let [sut, generator] = split[..] else {
        return Err(CliError::usage(format!(
            "`{word}` is not a pair of hosts: write `HOST,HOST` with the system under test first, or an \
             existing testbed file; a HOST is {FORMS}"
        )));
    };
    let targets = [Target::parse(sut)?, Target::parse(generator)?];
    let word = format!("{},{}", targets[0], targets[1]);
    let place = hosts.hosts_or_file(&word)?;
    Ok((place, targets.iter().map(host_key).collect()))
}

/// Identity of a host, as far as its word goes: other users and other interfaces of it are the same host.
fn host_key(target: &Target) -> String {
    match &target.reach {
        ReachMethod::Ssh { port, .. } => {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("ssh {}{port}", target.name().to_ascii_lowercase())
        }
        _ => target.launch_command(None).to_command_line(&[] as &[&str]).join(" "),
    }
}

/// The name of a pair's file: its word without what a file's name should not have. No two are alike.
fn file_name(word: &str, names: &mut BTreeSet<String>) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "@.%-,".contains(*c);
    let mut plain = String::new();
    for c in word.chars() {
        if is_plain(&c) {
            plain.push(c);
        } else if !plain.ends_with('_') {
            plain.push('_');
        }
    }
    plain.truncate(NAME_BYTES_MOST);
    let plain = plain.trim_start_matches(['.', '-']);
    let numbered = (1..).map(|number: u32| match number {
        1 => format!("{plain}.db"),
        _ => format!("{plain}-{number}.db"),
    });
    let mut free = numbered.filter(|name| !names.contains(name));
    let name = free.next().expect("there are more numbers than pairs");
    names.insert(name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_pair_files(words: &[&str]) -> Result<Vec<String>, String> {
        let hosts = HostArgs::default();
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let named = named_pairs(&words, &hosts, Path::new("folder"));
        let named = named.map_err(|error| error.message())?;
        Ok(named.iter().map(|pair| pair.file.display().to_string()).collect())
    }

    #[test]
    fn each_pair_has_a_named_file() {
        let words =
            ["ssh://root@s1%eth1,ssh://root@c1", "netns://a,netns://b", "exec:a b,exec:a/b"];
        let files =
            ["ssh_root@s1%eth1,ssh_root@c1.db", "netns_a,netns_b.db", "exec_a_b,exec_a_b.db"];
        assert_eq!(name_pair_files(&words).unwrap(), files.map(|file| format!("folder/{file}")));
        let alike = ["exec:a b,exec:a/b", "exec:a c,exec:a/c", "exec:a//b,exec:a///b"];
        assert_eq!(name_pair_files(&alike).unwrap()[2], "folder/exec_a_b,exec_a_b-2.db");
    }

    #[test]
    fn fewer_than_three_pairs_are_refused() {
        let two = ["netns://a,netns://b", "netns://c,netns://d"];
        let third = |word: &str| name_pair_files(&[two[0], two[1], word]).unwrap_err();
        for words in [&two[..0], &two[..1], &two] {
            let said = name_pair_files(words).unwrap_err();
            assert!(said.contains("give 3 to 64"), "{said}");
        }
        let many: Vec<String> = (0..65).map(|n| format!("netns://a{n},netns://b{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(name_pair_files(&many).unwrap_err().contains("65 pairs"));
        assert_eq!(name_pair_files(&many[..64]).unwrap().len(), 64);
        for (word, problem) in [
            ("netns://e", "is not a pair of hosts"),
            ("lab", "is not a pair of hosts"),
            ("sim:server-10g", "is not a pair of hosts"),
            ("none.toml", "is not a pair of hosts"),
            ("netns://e,", "neither a host nor an interface"),
            ("ssh://,netns://e", "names no host"),
            ("netns://e,netns://e%eth1", "has the same host twice"),
            ("netns://a,netns://b", "is given twice"),
            ("netns://e,netns://d%eth1", "have a host in common"),
            ("netns://e,ssh://a b", "names no host"),
        ] {
            let said = third(word);
            assert!(said.contains(problem), "{word}: {said}");
        }
        let said =
            name_pair_files(&["ssh://root@a,ssh://b", "ssh://c,ssh://d", "ssh://e,ssh://me@A"]);
        assert!(said.unwrap_err().contains("have a host in common"));
        assert!(
            name_pair_files(&["ssh://a:1,ssh://b", "ssh://a:2,ssh://d", "ssh://e,ssh://f"]).is_ok()
        );
    }
}
