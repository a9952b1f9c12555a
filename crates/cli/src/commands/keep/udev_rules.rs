//! Rules of udev that undo what a file of ours does to the interface.

use std::path::Path;

use latput_knobs::export;
use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use super::glob::is_like;
use super::udev_files::{first_of_each_name, uncommented_lines};

/// Where udev looks for rules; of two files with one name that of the first folder counts.
const FOLDERS: [&str; 4] = [
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
];

/// The rules of systemd by which udev applies .link files.
const LINK_RULES: &str = "80-net-setup-link.rules";
const MTU: &str = "ATTR{mtu}";
const QUEUE_LENGTH: &str = "ATTR{tx_queue_len}";

/// A rule: keys with their operators and values.
struct UdevRule<'a>(Vec<(&'a str, &'a str, &'a str)>);

impl<'a> UdevRule<'a> {
    /// Reads `KEY=="value", ATTR{x}="y"`.
    fn parse(line: &'a str) -> Self {
        let mut parts = Vec::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once('"') {
            let Some((value, behind)) = after.split_once('"') else { break };
            let key = before.trim_matches(|c: char| c == ',' || c.is_whitespace());
            let name_end = key.find(|c: char| "=!+-:".contains(c)).unwrap_or(key.len());
            let (name, operator) = key.split_at(name_end);
            parts.push((name.trim(), operator.trim(), value));
            rest = behind;
        }
        Self(parts)
    }

    /// Whether it is known to be of the interface: it goes by nothing but the subsystem and the name.
    fn matches_interface(&self, interface: &str) -> bool {
        let mut conditions =
            self.0.iter().filter(|(_, operator, _)| ["==", "!="].contains(operator));
        conditions.all(|(name, operator, value)| {
            let mut wanted = value.split('|');
            let fits = match *name {
                "ACTION" => return true,
                "SUBSYSTEM" => wanted.any(|it| is_like("net", it)),
                "KERNEL" | "NAME" | "ENV{INTERFACE}" => wanted.any(|it| is_like(interface, it)),
                _ => return false,
            };
            fits == (*operator == "==")
        })
    }

    /// Whether it sets what is to be run: `RUN="..."` forgets what is there before, `RUN:="..."` refuses what comes after too.
    fn sets_run(&self, operators: &[&str]) -> bool {
        self.0.iter().any(|(name, operator, _)| is_run_key(name) && operators.contains(operator))
    }

    /// The attributes that it sets, and the actions of the programs that it runs.
    fn collect_changes(&self) -> UdevChanges {
        let mut actions = self.collect_program_changes();
        let set = self.0.iter().filter(|(name, operator, _)| {
            name.starts_with("ATTR{") && ["=", ":="].contains(operator)
        });
        actions.attributes.extend(set.map(|(name, _, value)| ((*name).into(), (*value).into())));
        actions
    }

    /// The actions of the programs that it runs. They run once all rules are read.
    fn collect_program_changes(&self) -> UdevChanges {
        let mut actions = UdevChanges::default();
        for (_, _, command) in self.0.iter().filter(|(name, ..)| is_run_key(name)) {
            actions.runs_programs = true;
            actions.add_command(command);
        }
        actions
    }
}

fn is_run_key(name: &str) -> bool {
    name == "RUN" || name.starts_with("RUN{")
}

/// Changes that configuration makes to an interface when it appears.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UdevChanges {
    /// Attributes below `/sys/class/net/IFACE` as rules write them, with their values.
    attributes: Vec<(String, String)>,
    /// Requests of ethtool, each with a parameter and its value: `-C`, `rx-usecs`, `3`.
    requests: Vec<(String, String, String)>,
    /// Whether rules run programs for it.
    runs_programs: bool,
}

/// Long names of ethtool's requests, and long names of its features, with those that ethtool takes too.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("--offload", "-K"),
    ("--features", "-K"),
    ("--coalesce", "-C"),
    ("--set-ring", "-G"),
    ("--set-channels", "-L"),
    ("--pause", "-A"),
    ("generic-receive-offload", "gro"),
    ("generic-segmentation-offload", "gso"),
    ("tcp-segmentation-offload", "tso"),
    ("large-receive-offload", "lro"),
    ("rx-checksumming", "rx"),
    ("tx-checksumming", "tx"),
    ("rx-vlan-offload", "rxvlan"),
    ("tx-vlan-offload", "txvlan"),
    ("ntuple-filters", "ntuple"),
];

fn short_name(name: &str) -> &str {
    SHORT_NAMES.iter().find(|(long, _)| *long == name).map_or(name, |(_, short)| *short)
}

/// A value as it is compared: one word for each state of a switch, and times without their unit.
pub(super) fn plain_value(value: &str) -> &str {
    let value = value.strip_suffix("us").unwrap_or(value);
    match value.to_ascii_lowercase().as_str() {
        "yes" | "on" | "1" | "y" | "t" | "true" => "on",
        "no" | "off" | "0" | "n" | "f" | "false" => "off",
        _ => value,
    }
}

impl UdevChanges {
    pub(super) fn from_rules(text: &str) -> Self {
        let mut all = Self::default();
        for line in split_rules(text) {
            let Self { attributes, requests, runs_programs } =
                UdevRule::parse(&line).collect_changes();
            all.attributes.extend(attributes);
            all.requests.extend(requests);
            all.runs_programs |= runs_programs;
        }
        all
    }

    /// Those of the lines of `[Link]`.
    pub(super) fn from_link_lines<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut all = Self::default();
        for (key, value) in lines {
            match key {
                "MTUBytes" => all.add_attribute(MTU, value),
                "TransmitQueueLength" => all.add_attribute(QUEUE_LENGTH, value),
                _ => {
                    if let Some((request, parameter)) = export::ethtool_parameter(key) {
                        all.add_request(request, &parameter, value);
                    }
                }
            }
        }
        all
    }

    /// The MTU that they set.
    pub(super) fn mtu(&self) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == MTU).map(|(_, value)| value.as_str())
    }

    /// Adds the MTU.
    pub(super) fn add_mtu(&mut self, mtu: &str) {
        self.add_attribute(MTU, mtu);
    }

    fn add_attribute(&mut self, name: &str, value: &str) {
        self.attributes.push((name.to_owned(), value.to_owned()));
    }

    /// Adds a parameter of ethtool with its value.
    pub(super) fn add_request(&mut self, request: &str, parameter: &str, value: &str) {
        let [request, parameter] = [request, parameter].map(|name| short_name(name).to_owned());
        self.requests.push((request, parameter, plain_value(value).to_owned()));
    }

    /// Adds what a command does: `ethtool -C eth0 ...`, `ip link set dev eth0 mtu 1500`.
    pub(super) fn add_command(&mut self, command: &str) {
        let words: Vec<&str> =
            command.split(|c: char| c.is_whitespace() || "'\";".contains(c)).collect();
        let after = |program: &str| {
            let is_it = |word: &&str| word.rsplit('/').next() == Some(program);
            words.iter().position(is_it).map(|at| &words[at + 1..])
        };
        // `ethtool -K IFACE gro off tso off`
        if let Some([request, _, parameters @ ..]) = after("ethtool") {
            for pair in parameters.chunks_exact(2) {
                self.add_request(request, pair[0], pair[1]);
            }
        }
        let pairs = after("ip").or_else(|| after("ifconfig")).unwrap_or_default().windows(2);
        for pair in pairs {
            match pair[0] {
                "mtu" => self.add_attribute(MTU, pair[1]),
                "txqueuelen" | "txqlen" | "qlen" => self.add_attribute(QUEUE_LENGTH, pair[1]),
                _ => {}
            }
        }
    }

    /// The change by which `other` undoes these: the same attribute or parameter of ethtool with another value.
    pub(super) fn find_conflict(&self, other: &Self) -> Option<String> {
        let is_rival = |(name, value): &&(String, String)| {
            self.attributes.iter().any(|(known, wanted)| known == name && wanted != value)
        };
        if let Some((name, value)) = other.attributes.iter().find(is_rival) {
            return Some(match name.as_str() {
                MTU => format!("sets `mtu {value}`"),
                QUEUE_LENGTH => format!("sets `txqueuelen {value}`"),
                name => format!("sets {name}"),
            });
        }
        let is_rival = |(request, parameter, value): &&(String, String, String)| {
            self.requests.iter().any(|(known, same, wanted)| {
                known == request && same == parameter && wanted != value
            })
        };
        let (request, parameter, value) = other.requests.iter().find(is_rival)?;
        Some(format!("sets `ethtool {request} {parameter} {value}`"))
    }
}

fn split_rules(text: &str) -> Vec<String> {
    uncommented_lines(text, &['#'])
}

/// The file of rules that undoes what ours does, with the reason.
pub(super) fn find_rival_rule(
    root: &RootFolder,
    interface: &str,
    file: &str,
    text: &str,
) -> Option<String> {
    let own_name = Path::new(file).file_name()?.to_str()?;
    let own = UdevChanges::from_rules(text);
    find_rules(root, interface, |name, path, rule| {
        let is_later = name > own_name;
        if let Some(what) = own.find_conflict(&rule.collect_changes()).filter(|_| is_later) {
            return Some(format!("{path} sorts later and {what} too"));
        }
        let operators: &[&str] = if is_later { &["=", ":="] } else { &[":="] };
        (name != own_name && own.runs_programs && rule.sets_run(operators))
            .then(|| format!("{path} lets no other `RUN` count"))
    })
}

/// The file of rules that undoes what a .link file does, with the reason.
pub(super) fn find_rule_against_link(
    root: &RootFolder,
    interface: &str,
    own: &UdevChanges,
) -> Option<String> {
    find_rules(root, interface, |name, path, rule| {
        let is_earlier = name < LINK_RULES;
        let other =
            if is_earlier { rule.collect_program_changes() } else { rule.collect_changes() };
        let what = own.find_conflict(&other).filter(|_| !name.contains("-latput-"))?;
        Some(format!("{path} {what} afterwards"))
    })
}

/// The file of rules that has NetworkManager leave the interface alone.
pub(super) fn find_unmanaging_rule(root: &RootFolder, interface: &str) -> Option<String> {
    find_rules(root, interface, |_, path, rule| {
        let sets = |(name, operator, value): &(&str, &str, &str)| {
            *name == "ENV{NM_UNMANAGED}" && *operator != "==" && plain_value(value) == "on"
        };
        rule.0.iter().any(sets).then(|| format!("{path} sets `NM_UNMANAGED`"))
    })
}

/// The first answer to a rule that is known to be of the interface, with the name and the path of its file.
fn find_rules(
    root: &RootFolder,
    interface: &str,
    mut judge: impl FnMut(&str, &str, &UdevRule<'_>) -> Option<String>,
) -> Option<String> {
    let files = first_of_each_name(root, &FOLDERS.map(str::to_owned), "rules");
    files.into_iter().find_map(|(name, path)| {
        let lines = split_rules(&root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default());
        let mut rules = lines.iter().map(|line| UdevRule::parse(line));
        rules.find_map(|rule| {
            rule.matches_interface(interface).then(|| judge(&name, &path, &rule)).flatten()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_matches_by_subsystem_and_name() {
        for (line, expected) in [
            (r#"SUBSYSTEM=="net", ACTION=="add", ATTR{gro_flush_timeout}="0""#, true),
            (r#"ACTION=="add|move", SUBSYSTEM=="net", KERNEL=="eth*|en*", RUN+="x""#, true),
            (r#"KERNEL=="eth8", ATTR{x}="0""#, false),
            (r#"SUBSYSTEM=="block", ATTR{x}="0""#, false),
            (r#"SUBSYSTEM!="net", ATTR{x}="0""#, false),
            (r#"SUBSYSTEM=="net", DRIVERS=="ice", ATTR{x}="0""#, false),
        ] {
            assert_eq!(UdevRule::parse(line).matches_interface("eth9"), expected, "{line}");
        }
    }

    #[test]
    fn assignments_and_requests_are_told_from_conditions() {
        let rule = UdevRule::parse(
            r#"ATTR{a}=="1", ATTR{b}="2", RUN+="/sbin/ethtool -C eth9 rx-usecs 3""#,
        );
        let expected = UdevChanges {
            attributes: vec![("ATTR{b}".to_owned(), "2".to_owned())],
            requests: vec![("-C".to_owned(), "rx-usecs".to_owned(), "3".to_owned())],
            runs_programs: true,
        };
        assert_eq!(rule.collect_changes(), expected);
        assert!(!rule.sets_run(&["=", ":="]));
    }

    #[test]
    fn action_is_undone_by_same_attribute_or_request() {
        let link = |lines: &[(&'static str, &'static str)]| {
            UdevChanges::from_link_lines(lines.iter().copied())
        };
        let mtu = link(&[("MTUBytes", "1400")]);
        let offload = link(&[("GenericReceiveOffload", "no")]);
        for (own, command, expected) in [
            (&mtu, "/bin/sh -c 'ip link set dev %k mtu 1500'", Some("sets `mtu 1500`")),
            (&mtu, "/sbin/ip link set eth9 mtu 1400", None),
            (&mtu, "/sbin/ip link set eth9 txqueuelen 9", None),
            (&offload, "/usr/sbin/ethtool -K eth9 tso off gso off", None),
            (
                &offload,
                "ethtool --offload eth9 generic-receive-offload on",
                Some("sets `ethtool -K gro on`"),
            ),
            (&offload, "/usr/sbin/ethtool -K $IFACE gro off", None),
            (
                &link(&[("RxCoalesceSec", "9us"), ("RxMaxCoalescedFrames", "3")]),
                "ethtool -C %k rx-usecs 9 rx-frames 4",
                Some("sets `ethtool -C rx-frames 4`"),
            ),
        ] {
            let mut other = UdevChanges::default();
            other.add_command(command);
            assert_eq!(own.find_conflict(&other).as_deref(), expected, "{command}");
        }
    }
}
