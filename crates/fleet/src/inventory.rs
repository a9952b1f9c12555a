//! The hosts of a fleet: from a file of groups, or one word a line.

use std::collections::{BTreeMap, BTreeSet};

use latput_knobs::{Knob, Setting};
use latput_reach::broker::message::LaunchCommand;
use latput_units::file_words::{line_of, problem_of};
use latput_units::text::format_count;
use serde::Deserialize;
use toml::Value as Toml;

/// The version of the file's form.
const SCHEMA: u32 = 1;
/// Most hosts of a fleet.
pub const HOSTS_MOST: usize = 10_000;
/// The group of hosts that no file puts into one.
pub const UNGROUPED: &str = "hosts";

/// A list of hosts that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InventoryError {
    /// The thing, what is wrong with it, and the remedy.
    pub problem: String,
}

impl InventoryError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into() }
    }
}

/// A host as a list has it: its word is not understood yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedHost {
    /// Its name, where the list gives one.
    pub name: Option<String>,
    /// How to get there, in one word: `ssh://root@web1`.
    pub word: String,
    /// Its group.
    pub group: String,
    /// The interface, where the list says it.
    pub interface: Option<String>,
    /// The driver that the interface must have, where the list says it.
    pub driver: Option<String>,
    /// The wanted values.
    pub setting: Setting,
    /// Every group that it is in, those above its own included; only an Ansible inventory has some.
    pub groups: Vec<String>,
    /// Why it cannot be reached, where the list says of it what latput cannot follow. It is named and left out.
    pub left_out: Option<String>,
    /// Variables that say how to get there, and that latput does not follow.
    pub not_followed: Vec<&'static str>,
}

impl ListedHost {
    /// Whether an Ansible inventory lists it.
    pub fn is_from_ansible(&self) -> bool {
        !self.groups.is_empty() || self.left_out.is_some()
    }

    /// Whether it is in one of these groups; all are, where none is named.
    pub fn is_in(&self, groups: &[String]) -> bool {
        groups.is_empty() || groups.iter().any(|it| *it == self.group || self.groups.contains(it))
    }
}

/// Two hosts between which traffic flows, as a list has them: their words are not understood yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPair {
    /// Its group.
    pub group: String,
    /// The words of the system under test and of the host that makes the traffic.
    pub words: [String; 2],
}

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetHost {
    /// Name of the host, unique in the inventory.
    pub name: String,
    /// Its group: hosts of one kind.
    pub group: String,
    /// How to get there, in one word.
    pub reach: String,
    /// How its latput is started.
    pub way: LaunchCommand,
    /// The interface.
    pub interface: String,
    /// The driver that the interface must have, where somebody has said so.
    pub driver: Option<String>,
    /// The wanted values.
    pub setting: Setting,
}

impl FleetHost {
    /// The wanted values as text: `KNOB=VALUE`, a line each.
    pub fn setting_lines(&self) -> String {
        let lines = self.setting.iter().map(|(knob, value)| format!("{knob}={value}\n"));
        lines.collect::<Vec<_>>().concat()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InventoryFile {
    schema: u32,
    #[serde(default)]
    group: BTreeMap<String, GroupTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    #[serde(default)]
    hosts: Vec<HostEntry>,
    #[serde(default)]
    pairs: Vec<Vec<String>>,
    interface: Option<String>,
    driver: Option<String>,
    #[serde(default)]
    settings: BTreeMap<String, Toml>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HostEntry {
    Word(String),
    Table(HostTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Option<String>,
    target: String,
    interface: Option<String>,
}

/// Forms of the keys whose values are tables or lists.
const WANTED: [(&str, &str); 4] = [
    (
        "group",
        "a table of tables: `[group.NAME]`, and below each lines such as `hosts = [\"ssh://root@web1\"]`",
    ),
    (
        "hosts",
        "a list of hosts, each `\"ssh://root@web1\"` or `{ name = \"web1\", target = \"ssh://root@web1\" }`",
    ),
    (
        "pairs",
        "a list of pairs of hosts, such as `[[\"ssh://root@server\", \"ssh://root@client\"]]`",
    ),
    ("settings", "a table such as `{ rx-usecs = \"50us\" }`"),
];

/// Reads an inventory file: `schema = 1` and tables `[group.NAME]`.
pub fn parse(text: &str) -> Result<Vec<ListedHost>, InventoryError> {
    let mut hosts = Vec::new();
    for (group, table) in parse_groups(text)? {
        let values =
            table.settings.iter().map(|(knob, value)| Ok((knob.as_str(), scalar_text(value)?)));
        let setting = parse_knob_values(values)
            .map_err(|why| InventoryError::new(format!("group `{group}`: settings: {why}")))?;
        for entry in table.hosts {
            let HostTable { name, target, interface } = match entry {
                HostEntry::Word(target) => HostTable { name: None, target, interface: None },
                HostEntry::Table(table) => table,
            };
            hosts.push(ListedHost {
                name,
                word: target,
                group: group.clone(),
                interface: interface.or_else(|| table.interface.clone()),
                driver: table.driver.clone(),
                setting: setting.clone(),
                ..ListedHost::default()
            });
        }
    }
    check_host_count(hosts)
}

/// Reads the pairs of hosts of an inventory file: `pairs` of its groups.
pub fn parse_pairs(text: &str) -> Result<Vec<ListedPair>, InventoryError> {
    let mut pairs = Vec::new();
    for (group, table) in parse_groups(text)? {
        for words in table.pairs {
            let words = words.try_into().map_err(|words: Vec<String>| {
                let hosts = format_count(words.len(), "host");
                InventoryError::new(format!(
                    "group `{group}`: a pair of `pairs` has {hosts}: write two, [\"ssh://server\", \"ssh://client\"]"
                ))
            })?;
            pairs.push(ListedPair { group: group.clone(), words });
        }
    }
    Ok(pairs)
}

fn parse_groups(text: &str) -> Result<BTreeMap<String, GroupTable>, InventoryError> {
    let file: InventoryFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map(|span| span.start);
        let problem = problem_of(error.message(), text, at, &WANTED);
        InventoryError::new(format!("line {}: {problem}", line_of(text, at.unwrap_or(0))))
    })?;
    if file.schema != SCHEMA {
        let problem = format!("schema must be {SCHEMA}, not {}", file.schema);
        return Err(InventoryError::new(problem));
    }
    file.group.keys().try_for_each(|group| check_name(group))?;
    Ok(file.group)
}

/// Reads one word a line. Empty lines and those that begin with `#` are left out.
pub fn parse_lines(text: &str) -> Result<Vec<ListedHost>, InventoryError> {
    let words = text.lines().map(str::trim);
    let words = words.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let host = |word: &str| ListedHost {
        word: word.to_owned(),
        group: UNGROUPED.to_owned(),
        ..ListedHost::default()
    };
    check_host_count(words.map(host).collect())
}

/// The setting of values that were read, each as `latput set` takes it.
pub(crate) fn parse_knob_values<'a>(
    values: impl IntoIterator<Item = Result<(&'a str, String), String>>,
) -> Result<Setting, String> {
    let mut setting = Setting::new();
    for value in values {
        let (name, text) = value?;
        let knob: Knob =
            name.parse().map_err(|error: latput_knobs::UnknownKnob| error.to_string())?;
        let value = knob.parse_value(&text).map_err(|error| error.to_string())?;
        if setting.insert(knob, value).is_some() {
            return Err(format!("`{knob}` is given twice"));
        }
    }
    Ok(setting)
}

fn scalar_text(value: &Toml) -> Result<String, String> {
    match value {
        Toml::String(text) => Ok(text.clone()),
        Toml::Integer(number) => Ok(number.to_string()),
        Toml::Boolean(on) => Ok(on.to_string()),
        other => Err(format!("`{other}` is neither a text, a whole number nor a truth value")),
    }
}

pub(crate) fn check_host_count(hosts: Vec<ListedHost>) -> Result<Vec<ListedHost>, InventoryError> {
    match hosts.len() {
        0 => Err(InventoryError::new("it names no host")),
        count if count > HOSTS_MOST => {
            let problem = format!("it names {count} hosts, at most {HOSTS_MOST}: divide it");
            Err(InventoryError::new(problem))
        }
        _ => Ok(hosts),
    }
}

/// Refuses names that a table, a metric or a terminal could not show.
pub(crate) fn check_name(name: &str) -> Result<(), InventoryError> {
    let is_plain = !name.is_empty() && name.len() <= 253 && !name.chars().any(char::is_control);
    if is_plain {
        return Ok(());
    }
    let problem = format!(
        "`{}` is not a name: 1 to 253 bytes without control characters",
        name.escape_debug()
    );
    Err(InventoryError::new(problem))
}

/// The hosts, each once, with names that differ, in their order; and remarks of those that were named twice. Twice
/// with different wishes is an error.
pub fn once_each(hosts: Vec<FleetHost>) -> Result<(Vec<FleetHost>, Vec<String>), InventoryError> {
    let mut places: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut kept: Vec<FleetHost> = Vec::new();
    let mut remarks = Vec::new();
    for host in hosts {
        let key = (host.reach.clone(), host.interface.clone());
        let Some(earlier) = places.get(&key).map(|place| &kept[*place]) else {
            places.insert(key, kept.len());
            kept.push(host);
            continue;
        };
        let said = |host: &FleetHost| format!("`{}` of group `{}`", host.name, host.group);
        if (&earlier.setting, &earlier.driver) != (&host.setting, &host.driver) {
            return Err(InventoryError::new(format!(
                "{} and {} are the same host and interface ({} {}) with different settings: name it in one \
                 group",
                said(earlier),
                said(&host),
                host.reach,
                host.interface
            )));
        }
        remarks.push(if said(&host) == said(earlier) {
            format!("{} is listed twice: it is taken once", said(&host))
        } else {
            format!("{} is also {}: it is taken once", said(&host), said(earlier))
        });
    }
    rename_alike(&mut kept)?;
    Ok((kept, remarks))
}

/// Gives hosts that are called alike the whole of their word, and the interface if that is alike too.
fn rename_alike(hosts: &mut [FleetHost]) -> Result<(), InventoryError> {
    let longer: [fn(&FleetHost) -> String; 2] =
        [|host| host.reach.clone(), |host| format!("{}%{}", host.reach, host.interface)];
    for name in longer {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for host in hosts.iter() {
            *counts.entry(host.name.clone()).or_default() += 1;
        }
        for host in hosts.iter_mut().filter(|host| counts[&host.name] > 1) {
            host.name = name(host);
        }
    }
    let mut seen = BTreeSet::new();
    match hosts.iter().find(|host| !seen.insert(&host.name)) {
        None => Ok(()),
        Some(host) => {
            let problem = format!("two hosts are called `{}`: give one another name", host.name);
            Err(InventoryError::new(problem))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const GOOD: &str = r#"
        schema = 1
        [group.web]
        hosts = ["ssh://root@web1", { name = "w2", target = "ssh://root@web2", interface = "eth1" }]
        interface = "eth0"
        driver = "ixgbe"
        settings = { rx-usecs = "50us", gro = true, mtu = 9000 }
        [group.db]
        hosts = ["ssh://db1%ens1"]
    "#;

    #[test]
    fn host_groups_have_their_wishes() {
        let hosts = parse(GOOD).unwrap();
        let words: Vec<&str> = hosts.iter().map(|host| host.word.as_str()).collect();
        assert_eq!(words, ["ssh://db1%ens1", "ssh://root@web1", "ssh://root@web2"]);
        assert_eq!((hosts[0].interface.as_deref(), hosts[0].setting.len()), (None, 0));
        assert_eq!(hosts[1].interface.as_deref(), Some("eth0"));
        let (name, interface) = (hosts[2].name.as_deref(), hosts[2].interface.as_deref());
        assert_eq!((name, interface), (Some("w2"), Some("eth1")));
        let setting: Vec<String> =
            hosts[2].setting.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
        assert_eq!(setting, ["mtu=9000", "gro=on", "rx-usecs=50us"]);
    }

    #[test]
    fn file_that_cannot_be_meant_is_refused() {
        for (text, problem) in [
            ("", "missing field `schema`"),
            ("schema = 2", "schema must be 1"),
            ("schema = 1", "names no host"),
            ("schema = 1\n[group.a]\nhosts = []", "names no host"),
            ("schema = 1\n[group.a]\nhosts = [1]", "hosts"),
            ("schema = 1\n[group.a]\nhost = ['ssh://a']", "unknown field `host`"),
            ("schema = 1\n[group.\"\"]\nhosts = ['ssh://a']", "is not a name"),
            (&GOOD.replace("rx-usecs", "rx-usec"), "did you mean `rx-usecs`"),
            (&GOOD.replace("9000", "1"), "group `web`: settings: mtu: `1` is too small"),
            (&GOOD.replace("9000", "[1]"), "neither a text"),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(problem), "{text}: {said}");
        }
        let many = vec!["'ssh://a'"; HOSTS_MOST + 1].join(",");
        let said = parse(&format!("schema = 1\n[group.a]\nhosts = [{many}]")).unwrap_err();
        assert!(said.problem.contains("at most 10000"), "{said}");
    }

    #[test]
    fn pairs_are_read_beside_hosts() {
        let text = format!(
            "{GOOD}\n[group.x]\npairs = [['ssh://s1', 'ssh://c1'], ['ssh://s2', 'ssh://c2']]\n"
        );
        let pairs = parse_pairs(&text).unwrap();
        let words: Vec<String> = pairs.iter().map(|pair| pair.words.join(",")).collect();
        assert_eq!(words, ["ssh://s1,ssh://c1", "ssh://s2,ssh://c2"]);
        assert!(pairs.iter().all(|pair| pair.group == "x"));
        assert_eq!(parse(&text).unwrap().len(), parse(GOOD).unwrap().len());
        assert_eq!(parse_pairs(GOOD).unwrap(), []);
        for (pairs, problem) in [
            ("[['ssh://a']]", "has 1 host: write two"),
            ("[['ssh://a', 'ssh://b', 'ssh://c']]", "has 3 hosts"),
            ("['ssh://a']", "must be a list of pairs"),
        ] {
            let said = parse_pairs(&format!("schema = 1\n[group.a]\npairs = {pairs}")).unwrap_err();
            assert!(said.problem.contains(problem), "{pairs}: {said}");
        }
        assert!(parse_pairs("schema = 2").is_err());
    }

    #[test]
    fn one_word_a_line_is_a_list() {
        let hosts = parse_lines("# mine\n\n ssh://a%eth0 \nnetns://b\n").unwrap();
        let words: Vec<&str> = hosts.iter().map(|host| host.word.as_str()).collect();
        assert_eq!(words, ["ssh://a%eth0", "netns://b"]);
        assert!(hosts.iter().all(|host| host.group == UNGROUPED));
        assert!(parse_lines("\n#\n").is_err());
    }

    pub(crate) fn sample_host(name: &str, reach: &str, interface: &str) -> FleetHost {
        FleetHost {
            name: name.to_owned(),
            group: "web".to_owned(),
            reach: reach.to_owned(),
            way: LaunchCommand { via: Vec::new(), program: "latput".to_owned() },
            interface: interface.to_owned(),
            driver: None,
            setting: Setting::new(),
        }
    }

    #[test]
    fn repeated_host_is_taken_once() {
        let a = || sample_host("a", "ssh://a", "eth0");
        let (hosts, remarks) =
            once_each(vec![a(), sample_host("b", "ssh://b", "eth0"), a()]).unwrap();
        assert_eq!((hosts.len(), remarks.len()), (2, 1));
        assert!(remarks[0].contains("`a` of group `web` is listed twice"), "{remarks:?}");
        let other = FleetHost { driver: Some("ice".to_owned()), ..a() };
        let said = once_each(vec![a(), other]).unwrap_err().to_string();
        assert!(said.contains("different settings"), "{said}");
    }

    #[test]
    fn hosts_with_equal_names_get_longer_ones() {
        let hosts = vec![
            sample_host("a", "ssh://root@a", "eth0"),
            sample_host("a", "ssh://me@a", "eth0"),
            sample_host("b", "ssh://b", "eth0"),
            sample_host("b", "ssh://b", "eth1"),
        ];
        let (hosts, _) = once_each(hosts).unwrap();
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["ssh://root@a", "ssh://me@a", "ssh://b%eth0", "ssh://b%eth1"]);
    }

    #[test]
    fn wrong_values_are_told_in_file_words() {
        let whole = "schema = 1\n[group.web]\nhosts = ['a', { name = 'b', target = 'c', interface = 'd' }]\n\
                     pairs = [['a', 'b']]\ninterface = 'e'\ndriver = 'f'\nsettings = { mtu = 1500 }\n";
        let whole: toml::Table = whole.parse().unwrap();
        let refused = latput_testkit::check_wrong_values(&whole, |text| {
            parse(text).err().or_else(|| parse_pairs(text).err()).map(|error| error.problem)
        });
        assert!(refused > 80, "{refused}");
        for text in ["no-such-key = 1", "schema = 1\n[group.web]\nno-such-key = 1"] {
            let problem = parse(text).unwrap_err().problem;
            for key in problem.split('`').skip(3).step_by(2) {
                assert!(
                    toml::to_string(&whole).unwrap().contains(key),
                    "`{key}` is not in the whole file"
                );
            }
        }
    }
}
