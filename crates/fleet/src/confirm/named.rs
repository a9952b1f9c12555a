//! The pairs of hosts in words, and the file of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use latput_controller::discover::discover_hosts;
use latput_experiment::Testbed;
use latput_linux::files;
use latput_reach::broker::message::LaunchCommand;
use latput_reach::target::{FORMS, ReachMethod, Target};
use latput_units::text::format_count;

use crate::context::{Error, FleetContext};
use crate::inventory;
use crate::pairs::PAIRS_MOST;

/// How many pairs: with fewer one alone could decide.
const PAIRS: RangeInclusive<usize> = 3..=PAIRS_MOST;
/// Most bytes of the name of a pair's file before its ending.
const NAME_BYTES_MOST: usize = 100;

/// A pair of which no host has said anything yet.
#[derive(Debug)]
pub struct NamedPair {
    /// Its hosts in a word.
    pub word: String,
    /// Its results file.
    pub file: PathBuf,
    place: PairPlace,
    /// The static latput to take along; by default this program.
    bring: Option<PathBuf>,
}

/// Where a pair is.
#[derive(Debug)]
enum PairPlace {
    /// The system under test and the generator.
    Hosts([Target; 2]),
    /// In a testbed file.
    File(Testbed),
}

impl NamedPair {
    /// How its hosts are reached.
    pub fn ways(&self) -> Vec<LaunchCommand> {
        match &self.place {
            PairPlace::Hosts(targets) => {
                targets.iter().map(|target| target.launch_command(self.bring.as_deref())).collect()
            }
            PairPlace::File(testbed) => testbed.launch_commands(),
        }
    }

    /// The testbed. What was found of hosts is told.
    pub(super) fn open(self, context: FleetContext<'_>) -> Result<Testbed, latput_runner::Error> {
        let [sut, generator] = match self.place {
            PairPlace::File(testbed) => return Ok(testbed),
            PairPlace::Hosts(targets) => targets,
        };
        let tell = |text: &str| context.progress.report_remark(text);
        tell(&format!("looking for the path between {sut} and {generator}"));
        let found = discover_hosts([&sut, &generator], self.bring.as_deref(), context.stop)?;
        found.said.iter().for_each(|said| tell(said));
        found.warnings.iter().for_each(|warning| tell(&format!("warning: {warning}")));
        Ok(Testbed::from_discovered(&found))
    }
}

/// The pairs of an inventory, a word each; all where no group is named.
pub fn read_pairs(path: &Path, groups: &[String]) -> Result<Vec<String>, Error> {
    let text = files::read_text(path, files::TEXT_BYTES_MOST)
        .map_err(|error| Error::Usage(error.to_string()))?;
    let wrong = |why: &dyn Display| Error::Usage(format!("{}: {why}", path.display()));
    let listed = inventory::parse_pairs(&text).map_err(|error| wrong(&error))?;
    let is_meant = |group: &String| groups.is_empty() || groups.contains(group);
    let words = listed.into_iter().filter(|pair| is_meant(&pair.group));
    let words: Vec<String> = words.map(|pair| pair.words.join(",")).collect();
    if words.is_empty() {
        let pairs = "`pairs = [[\"ssh://server\", \"ssh://client\"]]`";
        return Err(wrong(&format_args!("no such group has pairs: write {pairs}")));
    }
    Ok(words)
}

/// The pairs of these words, with files in `folder`. The same host in two of them is refused.
pub fn name_pairs(
    words: &[String],
    bring: Option<&Path>,
    folder: &Path,
) -> Result<Vec<NamedPair>, Error> {
    if !PAIRS.contains(&words.len()) {
        let (least, most) = PAIRS.into_inner();
        let given = format_count(words.len(), "pair");
        return Err(Error::Usage(format!(
            "{given} of hosts: give {least} to {most}, each as `HOST,HOST` or a testbed file, or \
             `pairs` in an inventory (-i FILE). `latput fleet pairs` compares results files"
        )));
    }
    let mut named = Vec::new();
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for given in words {
        let (place, word, keys) = parse_pair(given, bring)?;
        for key in keys {
            if let Some(other) = known.insert(key, given) {
                return Err(Error::Usage(duplicate_host_message(given, other)));
            }
        }
        let file = folder.join(file_name(&word, &mut names));
        named.push(NamedPair { word, file, place, bring: bring.map(Path::to_owned) });
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

/// A pair with its word, and the identity of each of its hosts.
fn parse_pair(word: &str, bring: Option<&Path>) -> Result<(PairPlace, String, Vec<String>), Error> {
    if Path::new(word).is_file() {
        if bring.is_some() {
            return Err(Error::Usage(format!(
                "--bring is for hosts such as ssh://root@server, not for `{word}`"
            )));
        }
        let testbed = Testbed::from_file(Path::new(word))?;
        let keys = testbed.launch_commands().iter().map(way_key).collect();
        let word = testbed.name.clone();
        return Ok((PairPlace::File(testbed), word, keys));
    }
    let split = Target::split_targets(word);
    let [sut, generator] = split[..] else {
        return Err(Error::Usage(format!(
            "`{word}` is not a pair of hosts: write `HOST,HOST` with the system under test first, or an \
             existing testbed file; a HOST is {FORMS}"
        )));
    };
    let targets = [Target::parse(sut)?, Target::parse(generator)?];
    let word = format!("{},{}", targets[0], targets[1]);
    let keys = targets.iter().map(host_key).collect();
    Ok((PairPlace::Hosts(targets), word, keys))
}

fn way_key(way: &LaunchCommand) -> String {
    way.to_command_line(&[] as &[&str]).join(" ")
}

/// Identity of a host, as far as its word goes: other users and other interfaces of it are the same host.
fn host_key(target: &Target) -> String {
    match &target.reach {
        ReachMethod::Ssh { port, .. } => {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("ssh {}{port}", target.name().to_ascii_lowercase())
        }
        _ => way_key(&target.launch_command(None)),
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
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let named = name_pairs(&words, None, Path::new("folder"));
        let named = named.map_err(|error| error.to_string())?;
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
