//! The options that the active profiles of TuneD give an interface already.
//!
//! TuneD gives a device to the first section of a plugin that takes it, by priority (`tuned/units/manager.py`). The section that
//! `keep` writes takes the interface from the others, and so has to say what they said.

use std::collections::{BTreeMap, BTreeSet};

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;
use latput_units::IntoMap;

use super::{FOLDERS, format_profile_path, split_includes};
use crate::commands::keep::glob::is_like;
use crate::commands::keep::ini::{self, is_true};
use crate::commands::keep::udev_rules::UdevChanges;

/// Where TuneD's own profiles are: since 2.23 the second.
const OWN_FOLDERS: [&str; 2] = ["/usr/lib/tuned", "/usr/lib/tuned/profiles"];
const PLUGIN: &str = "net";
/// The priority of the section that `keep` writes. The lowest number counts first.
const OWN_PRIORITY: i64 = -1;
/// Options of a section that say which devices it takes and when.
const OF_SECTION: [&str; 7] =
    ["type", "devices", "devices_udev_regex", "priority", "enabled", "replace", "summary"];
/// Options whose value is a list of names with their values, with the requests of ethtool that TuneD makes of them.
const LISTS: [(&str, &str); 5] =
    [("features", "-K"), ("coalesce", "-C"), ("pause", "-A"), ("ring", "-G"), ("channels", "-L")];

/// Options of a section by their names.
pub(in crate::commands::keep) type ProfileOptions = BTreeMap<String, String>;

/// Sections in their order, with their options.
type ProfileSections = Vec<(String, ProfileOptions)>;

/// The options that these profiles give an interface. Fails where latput's section could not take it, or nobody can tell.
pub(in crate::commands::keep) fn options_of_interface(
    root: &RootFolder,
    profiles: &[String],
    interface: &str,
) -> Result<ProfileOptions, String> {
    let mut sections = ProfileSections::new();
    for profile in profiles {
        load_profile(root, profile, &mut BTreeSet::new(), &mut sections);
    }
    let is_net = |(name, options): &&(String, ProfileOptions)| {
        let plugin = options.get("type").unwrap_or(name);
        let is_enabled = options.get("enabled").is_none_or(|it| is_true(it) != Some(false));
        plugin == PLUGIN && is_enabled && !name.starts_with("latput-")
    };
    let mut found: Option<(i64, &ProfileOptions)> = None;
    for (name, options) in sections.iter().filter(is_net) {
        if options.contains_key("devices_udev_regex") {
            return Err(format!(
                "TuneD's section [{name}] takes interfaces by `devices_udev_regex`, and may have {interface}"
            ));
        }
        let devices = options.get("devices").map_or("*", String::as_str);
        let priority = options.get("priority").and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        if !takes_device(devices, interface) || found.is_some_and(|(known, _)| known <= priority) {
            continue;
        }
        if priority <= OWN_PRIORITY {
            return Err(format!(
                "TuneD's section [{name}] has {interface} by `priority={priority}`"
            ));
        }
        found = Some((priority, options));
    }
    let mut options = found.map(|(_, options)| options.clone()).unwrap_or_default();
    options.retain(|name, _| !OF_SECTION.contains(&name.as_str()));
    let is_plain = |text: &str| text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    match options.iter().find(|(name, value)| !is_plain(name) || !is_plain(value)) {
        Some((name, _)) => Err(format!(
            "what TuneD gives {interface} as `{}` is no plain text",
            name.escape_debug()
        )),
        None => Ok(options),
    }
}

/// Adds the sections of a profile, those of the profiles that it includes first. A section of a known name is merged.
fn load_profile(
    root: &RootFolder,
    profile: &str,
    seen: &mut BTreeSet<String>,
    sections: &mut ProfileSections,
) {
    if !seen.insert(profile.to_owned()) {
        return;
    }
    let folders = FOLDERS.into_iter().rev().chain(OWN_FOLDERS.into_iter().rev());
    let mut files = folders.map(|folder| format_profile_path(folder, profile));
    let Some(text) = files.find_map(|file| root.look_at(&file, TEXT_BYTES_MOST)) else { return };
    let own = parse_profile(&text);
    let includes =
        own.iter().filter(|(name, _)| name == "main").filter_map(|(_, it)| it.get("include"));
    for included in includes.flat_map(|names| split_includes(names)) {
        load_profile(root, included, seen, sections);
    }
    for (name, options) in own {
        let replaces = options.get("replace").is_some_and(|it| is_true(it) != Some(false));
        match sections.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) if replaces => *known = options,
            Some((_, known)) => known.extend(options),
            None => sections.push((name, options)),
        }
    }
}

/// The sections of a profile. Of a key that is there twice the last value counts.
fn parse_profile(text: &str) -> ProfileSections {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let sections = ini::parse_sections(text, &['#', ';']).into_iter();
    sections.map(|it| (it.name.to_owned(), it.lines.into_iter().map(owned).into_map())).collect()
}

/// Whether `devices` takes a device: patterns, of which those with `!` take it out (`tuned/utils/plugin_loader.py`,
/// `tuned/hardware/device_matcher.py`).
fn takes_device(devices: &str, device: &str) -> bool {
    let rules = devices.split([',', ' ', '\t']).filter(|rule| !rule.is_empty());
    let (refused, wanted): (Vec<&str>, Vec<&str>) = rules.partition(|rule| rule.starts_with('!'));
    let is_refused = refused.iter().any(|rule| is_like(device, &rule[1..]));
    (wanted.is_empty() || wanted.iter().any(|rule| is_like(device, rule))) && !is_refused
}

fn split_list(value: &str) -> Vec<&str> {
    value.split([' ', '\t', ',', ';']).filter(|it| !it.is_empty()).collect()
}

/// The changes that TuneD makes by options of a section.
pub(in crate::commands::keep) fn actions_of(options: &ProfileOptions) -> UdevChanges {
    let mut actions = UdevChanges::default();
    for (option, value) in options {
        if option == "mtu" {
            actions.add_mtu(value);
        } else if let Some((_, request)) = LISTS.iter().find(|(name, _)| name == option) {
            for pair in split_list(value).chunks_exact(2) {
                actions.add_request(request, pair[0], pair[1]);
            }
        }
    }
    actions
}

/// A line of latput's section with what the same option had `before`, which is taken from there. Of two values of one name in a
/// list that of latput counts.
pub(super) fn merge_option(line: &str, before: &mut ProfileOptions) -> String {
    let Some((option, value)) = line.split_once('=') else { return line.to_owned() };
    let Some(earlier) =
        before.remove(option).filter(|_| LISTS.iter().any(|(list, _)| *list == option))
    else {
        return line.to_owned();
    };
    let own: Vec<&str> = value.split_whitespace().collect();
    let earlier: Vec<&str> =
        earlier.split([' ', '\t', ',', ';']).filter(|it| !it.is_empty()).collect();
    let is_kept = |pair: &&[&str]| !own.chunks(2).any(|it| it[0] == pair[0]);
    let kept = earlier.chunks(2).filter(is_kept).flatten().copied();
    let words: Vec<&str> = kept.chain(own.iter().copied()).collect();
    format!("{option}={}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_taken_as_tuned_does() {
        for (devices, expected) in [
            ("*", true),
            ("eth*", true),
            ("en*, eth9", true),
            ("!eth9", false),
            ("eth*,!eth9", false),
            ("!eth8", true),
            ("en*", false),
        ] {
            assert_eq!(takes_device(devices, "eth9"), expected, "{devices}");
        }
    }

    #[test]
    fn options_of_before_stay_beside_ours() {
        let mut before: ProfileOptions =
            [("features", "gro on tso off"), ("txqueuelen", "5000"), ("mtu", "9000")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        let lines = ["type=net", "mtu=1400", "features=gro off"]
            .map(|line| merge_option(line, &mut before));
        assert_eq!(lines, ["type=net", "mtu=1400", "features=tso off gro off"]);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["txqueuelen"]);
    }
}
