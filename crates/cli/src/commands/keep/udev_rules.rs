//! Rules of udev behind ours that set the same attribute of the interface.

use std::path::Path;

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
    fn is_of(&self, interface: &str) -> bool {
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

    /// The attributes that it sets.
    fn assigned_attributes(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let set = self.0.iter().filter(|(name, operator, _)| {
            name.starts_with("ATTR{") && ["=", ":="].contains(operator)
        });
        set.map(|(name, _, value)| (*name, *value))
    }

    /// The requests of ethtool that it makes: `-C`.
    fn ethtool_requests(&self) -> impl Iterator<Item = &'a str> {
        let run = self.0.iter().filter(|(name, _, _)| *name == "RUN" || name.starts_with("RUN{"));
        run.filter_map(|(_, _, value)| {
            let mut words = value.split_whitespace();
            words.find(|word| word.ends_with("ethtool"))?;
            words.next().filter(|word| word.starts_with('-'))
        })
    }
}

fn split_rules(text: &str) -> Vec<String> {
    uncommented_lines(text, &['#'])
}

/// The later file that sets an attribute of ours to another value, or makes the same request of ethtool, with what it does.
pub(super) fn later_rule(
    root: &RootFolder,
    interface: &str,
    file: &str,
    text: &str,
) -> Option<String> {
    let own_name = Path::new(file).file_name()?.to_str()?;
    let own = split_rules(text);
    let own: Vec<UdevRule<'_>> = own.iter().map(|line| UdevRule::parse(line)).collect();
    let files = first_of_each_name(root, &FOLDERS.map(str::to_owned), "rules");
    let later = files.into_iter().filter(|(name, _)| name.as_str() > own_name);
    later.into_iter().find_map(|(_, path)| {
        let others = split_rules(&root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default());
        let mut others =
            others.iter().map(|line| UdevRule::parse(line)).filter(|it| it.is_of(interface));
        let what = others.find_map(|other| {
            let is_rival = |(name, value): &(&str, &str)| {
                own.iter()
                    .flat_map(UdevRule::assigned_attributes)
                    .any(|(known, wanted)| known == *name && wanted != *value)
            };
            if let Some((name, _)) = other.assigned_attributes().find(is_rival) {
                return Some(format!("sets {name}"));
            }
            let is_ours = |request: &&str| {
                own.iter().flat_map(UdevRule::ethtool_requests).any(|it| it == *request)
            };
            other
                .ethtool_requests()
                .find(is_ours)
                .map(|request| format!("runs `ethtool {request}`"))
        })?;
        Some(format!("{path} sorts later and {what} too"))
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
            assert_eq!(UdevRule::parse(line).is_of("eth9"), expected, "{line}");
        }
    }

    #[test]
    fn assignments_and_requests_are_told_from_conditions() {
        let rule = UdevRule::parse(
            r#"ATTR{a}=="1", ATTR{b}="2", RUN+="/sbin/ethtool -C eth9 rx-usecs 3""#,
        );
        assert_eq!(rule.assigned_attributes().collect::<Vec<_>>(), [("ATTR{b}", "2")]);
        assert_eq!(rule.ethtool_requests().collect::<Vec<_>>(), ["-C"]);
    }
}
