//! The profiles of TuneD that `keep` writes, one for each interface: their folder, and what they include.

mod sections;

use std::collections::BTreeSet;

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use self::sections::merge_option;
pub(super) use self::sections::{ProfileOptions, actions_of, options_of_interface};
use super::unit;

/// TuneD's own word for what is active.
const ACTIVE_PROFILE: &str = "/etc/tuned/active_profile";
/// The folders in which TuneD looks for the owner's profiles: since 2.23 the second, before the first.
const FOLDERS: [&str; 2] = ["/etc/tuned", "/etc/tuned/profiles"];
const CONFIG: &str = "/etc/tuned/tuned-main.conf";
/// The daemon, and its service.
const PROGRAMS: [&str; 2] = ["/usr/sbin/tuned", "/usr/bin/tuned"];
const SERVICE: &str = "tuned.service";

/// The profile of an interface.
pub(super) fn profile_name(interface: &str) -> String {
    format!("latput-{interface}")
}

/// The profiles that are active; none where TuneD is not there or is masked.
pub(super) fn active_profiles(root: &RootFolder) -> Vec<String> {
    if !PROGRAMS.iter().any(|program| root.has(program)) || unit::is_masked(root, SERVICE) {
        return Vec::new();
    }
    let text = root.look_at(ACTIVE_PROFILE, TEXT_BYTES_MOST).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The folders of `profile_dirs`, where TuneD's configuration has it.
fn listed_folders(root: &RootFolder) -> Option<Vec<String>> {
    let config = root.look_at(CONFIG, TEXT_BYTES_MOST)?;
    let mut values = config.lines().rev().filter_map(|line| line.split_once('='));
    let (_, value) = values.find(|(key, _)| key.trim() == "profile_dirs")?;
    let folders = value.split([',', ';']).map(|folder| folder.trim().trim_end_matches('/'));
    Some(folders.filter(|folder| !folder.is_empty()).map(str::to_owned).collect())
}

/// The folder for an interface's profile: the last of `profile_dirs` that is one of `FOLDERS`, else the one that is there.
/// `None`: TuneD looks into none of them.
fn profile_folder(root: &RootFolder) -> Option<&'static str> {
    let [old, new] = FOLDERS;
    let Some(listed) = listed_folders(root) else {
        return Some(if root.has(new) { new } else { old });
    };
    listed.iter().rev().find_map(|it| FOLDERS.into_iter().find(|known| it == known))
}

/// The file of an interface's profile, in the folder where the TuneD of this host looks for it.
pub(super) fn profile_file(root: &RootFolder, interface: &str) -> String {
    format_profile_path(profile_folder(root).unwrap_or(FOLDERS[0]), &profile_name(interface))
}

/// Why TuneD would not read the file of an interface's profile, with the `text` for whoever writes it by hand.
///
/// A record of `keep` is believed for fixed names only. Folders that a configuration names are not among them.
pub(super) fn why_not_read(root: &RootFolder, interface: &str, text: &str) -> Option<String> {
    if profile_folder(root).is_some() {
        return None;
    }
    let folders = listed_folders(root).unwrap_or_default();
    let by_hand = folders.last().map_or(String::new(), |folder| {
        format!(
            ". Or put these lines into {}:\n{text}",
            format_profile_path(folder, &profile_name(interface))
        )
    });
    Some(format!(
        "TuneD would not read what is written to {}: `profile_dirs` in {CONFIG} names {}. Add {} there, or use --format \
         systemd-link{by_hand}",
        FOLDERS[0],
        if folders.is_empty() { "none".to_owned() } else { folders.join(" and ") },
        FOLDERS[0],
    ))
}

/// The files that an interface's profile may be in.
pub(super) fn profile_files(interface: &str) -> [String; 2] {
    FOLDERS.map(|folder| format_profile_path(folder, &profile_name(interface)))
}

fn format_profile_path(folder: &str, profile: &str) -> String {
    format!("{folder}/{profile}/tuned.conf")
}

/// The profiles that a profile of the owner includes.
fn read_includes(root: &RootFolder, profile: &str) -> Vec<String> {
    let files = FOLDERS.map(|folder| format_profile_path(folder, profile));
    let texts = files.iter().filter_map(|file| root.look_at(file, TEXT_BYTES_MOST));
    let texts: Vec<String> = texts.collect();
    let pairs = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once('='));
    let names = pairs.filter(|(key, _)| key.trim() == "include");
    names.flat_map(|(_, names)| split_includes(names)).map(str::to_owned).collect()
}

fn split_includes(names: &str) -> impl Iterator<Item = &str> {
    names.split([',', ';']).map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a profile is `wanted` or includes it, by itself or by others.
pub(super) fn includes_profile(root: &RootFolder, profile: &str, wanted: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut next = vec![profile.to_owned()];
    while let Some(name) = next.pop() {
        if name == wanted {
            return true;
        }
        if seen.insert(name.clone()) {
            next.extend(read_includes(root, &name));
        }
    }
    false
}

/// The profiles that the profile of `interface` is to include: the active ones, so that they stay in force. In the place of
/// one that includes it stands what it includes now: a circle would leave nothing but the two.
pub(super) fn profiles_to_include(root: &RootFolder, interface: &str) -> Vec<String> {
    let own = profile_name(interface);
    let mut names: Vec<String> = Vec::new();
    for active in active_profiles(root) {
        let stays = if includes_profile(root, &active, &own) {
            read_includes(root, &own)
        } else {
            vec![active]
        };
        for name in stays {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The words behind `tuned-adm profile` that put the profile of `interface` into force, and those of other interfaces that
/// are kept and not yet active.
pub(super) fn to_activate(root: &RootFolder, interface: &str) -> String {
    if is_active(root, interface) {
        return active_profiles(root).join(" ");
    }
    let mut names = vec![profile_name(interface)];
    for other in kept_profiles(root) {
        if !names.iter().any(|name| includes_profile(root, name, &other)) {
            names.retain(|name| !includes_profile(root, &other, name));
            names.push(other);
        }
    }
    names.join(" ")
}

/// Whether the profile of `interface` is in force after a boot.
pub(super) fn is_active(root: &RootFolder, interface: &str) -> bool {
    active_profiles(root).iter().any(|name| includes_profile(root, name, &profile_name(interface)))
}

/// The profiles that latput has written, by name.
fn kept_profiles(root: &RootFolder) -> BTreeSet<String> {
    list_profiles(root).filter(|name| name.starts_with(&profile_name(""))).collect()
}

/// The names in the folders of the owner's profiles.
fn list_profiles(root: &RootFolder) -> impl Iterator<Item = String> {
    FOLDERS.into_iter().flat_map(|folder| root.look_in(folder))
}

/// The text of a profile that includes `included`, without the words for those who keep it by hand. `before` are the options
/// that the interface has from them: TuneD gives an interface to one section only, which therefore has them too.
pub(super) fn render_profile(
    exported: &str,
    included: &[String],
    before: &ProfileOptions,
) -> String {
    let include = (!included.is_empty()).then(|| format!("include={}", included.join(",")));
    let mut before = before.clone();
    let lines = exported.lines().enumerate().filter_map(|(idx, line)| match line {
        "#include=PROFILE" => include.clone(),
        line if idx > 0 && line.starts_with('#') => None,
        line => Some(merge_option(line, &mut before)),
    });
    let mut text: String = lines.map(|line| line + "\n").collect();
    text.extend(before.into_iter().map(|(option, value)| format!("{option}={value}\n")));
    text
}

/// A profile of another interface than `removed` that includes that of `interface`: TuneD could not load it without.
pub(super) fn find_includer(
    root: &RootFolder,
    interface: &str,
    removed: &[String],
) -> Option<String> {
    let own = profile_name(interface);
    let is_removed =
        |name: &String| removed.iter().any(|interface| *name == profile_name(interface));
    list_profiles(root)
        .filter(|name| !is_removed(name))
        .find(|name| read_includes(root, name).contains(&own))
}

/// The words behind `tuned-adm profile` that bring back what is active without the profile of `interface`; `None` where
/// that is not active.
pub(super) fn remaining_profiles(root: &RootFolder, interface: &str) -> Option<String> {
    let own = profile_name(interface);
    let mut active = active_profiles(root);
    let place = active.iter().position(|name| *name == own)?;
    active.splice(place..=place, read_includes(root, &own));
    Some(active.join(" "))
}
