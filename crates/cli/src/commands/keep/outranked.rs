//! Whether the program that reads a kept file would apply it: another file may win, or it was not read yet.

use std::fs;
use std::path::Path;

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::route::Route;

use super::choose::link_beside_netplan;
use super::ifupdown::InterfaceStanzas;
use super::udev_files::{
    FileMatch, MADE_BY_NETPLAN, MatchedInterface, NetworkFile, applied_link, first_of_each_name,
    has_extension,
};
use super::udev_rules::{UdevChanges, find_rival_rule, find_rule_against_link, plain_value};
use super::{files, ifcfg, profile, tuned, unit};
use crate::commands::netplan;
use crate::document::keep::KeptFileState;

/// A state other than whole, with the reason.
pub(super) type FileProblem = (KeptFileState, String);

/// The folders of sysctl.d(5); of two files with one name that of the first folder counts.
const SYSCTL_FOLDERS: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// The file that counts before one of ours at every boot, with the reason; `None` if none is known.
pub(super) fn find_winner(
    root: &RootFolder,
    interface: &str,
    file: &str,
    text: &str,
) -> Option<String> {
    if file.starts_with("/etc/netplan/") {
        return netplan::why_outranked(root, file, text)
            .or_else(|| beside_netplan(root, interface, text));
    }
    if file.starts_with(SYSCTL_FOLDERS[0]) {
        return later_sysctl(root, file, text);
    }
    let is_link = has_extension(file, "link");
    let own =
        if is_link { parse_link_changes(&link_lines(text)) } else { UdevChanges::from_rules(text) };
    let rival = if is_link {
        earlier_link(root, interface, file)
            .or_else(|| {
                let drop_ins = NetworkFile::read_drop_ins(root, file_name(file)?.to_owned());
                other_value(&drop_ins, &link_lines(text))
            })
            .or_else(|| find_rule_against_link(root, interface, &own))
    } else if file.starts_with(files::RULES) {
        find_rival_rule(root, interface, file, text)
    } else {
        return None;
    };
    let rival = rival.or_else(|| {
        let has_root = text.contains(" qdisc replace ") && text.contains(" root ");
        networkd_qdisc(root, interface).filter(|_| has_root)
    });
    rival
        .or_else(|| other_mtu(root, interface, own.mtu()?))
        .or_else(|| changed_afterwards(root, interface, &own))
}

/// The root queue discipline that networkd attaches.
fn networkd_qdisc(root: &RootFolder, interface: &str) -> Option<String> {
    let known = MatchedInterface::new(root, interface);
    let mut files = NetworkFile::read_all(root, "network").into_iter();
    let file = files.find(|file| file.match_interface("Name", &known) == FileMatch::Yes)?;
    let (section, path) = file.root_qdisc()?;
    Some(format!("{path} attaches a root queue discipline by [{section}] afterwards"))
}

/// The keys and values of a .link file of ours.
fn link_lines(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The actions of udev for the lines of `[Link]`.
fn parse_link_changes(lines: &[(String, String)]) -> UdevChanges {
    UdevChanges::from_link_lines(lines.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

fn file_name(path: &str) -> Option<&str> {
    Path::new(path).file_name()?.to_str()
}

/// The program that undoes our actions once udev is done.
fn changed_afterwards(root: &RootFolder, interface: &str, own: &UdevChanges) -> Option<String> {
    if let Some(stanzas) = InterfaceStanzas::read(root, interface)
        && let Some(what) = own.find_conflict(&stanzas.actions())
    {
        return Some(format!("ifupdown {what} afterwards, as {} says", stanzas.file));
    }
    if let Some((file, actions)) = ifcfg::read_actions(root, interface)
        && let Some(what) = own.find_conflict(&actions)
    {
        return Some(format!("{file} {what} afterwards"));
    }
    profile::undone_by_profile(root, interface, own).or_else(|| tuned_after(root, interface, own))
}

/// The value that TuneD's active profiles give the interface in the place of ours.
fn tuned_after(root: &RootFolder, interface: &str, own: &UdevChanges) -> Option<String> {
    let active = tuned::active_profiles(root);
    let options = tuned::options_of_interface(root, &active, interface).ok()?;
    let what = own.find_conflict(&tuned::actions_of(&options))?;
    Some(format!("TuneD's profile {} {what} afterwards", active.join(" ")))
}

/// Why what netplan makes of the entry would not count: another file of udev or networkd counts before it or is merged into it, or
/// netplan makes nothing.
fn beside_netplan(root: &RootFolder, interface: &str, text: &str) -> Option<String> {
    let found = match netplan::NetplanDefinitions::read(root) {
        Ok(definitions) => definitions.entry_of(interface),
        Err(error) => return Some(format!("{:#}", error.error)),
    };
    let Some(found) = found else {
        return Some(format!(
            "no other netplan file has {interface}, which netplan would configure anew"
        ));
    };
    let made = format!("{MADE_BY_NETPLAN}{}", found.entry.id);
    let lines = netplan::to_link_lines(text);
    let own = parse_link_changes(&lines);
    if let Some(why) = link_beside_netplan(root, interface, &found) {
        return Some(why);
    }
    let drop_ins = NetworkFile::read_drop_ins(root, format!("{made}.link"));
    other_value(&drop_ins, &lines)
        .or_else(|| find_rule_against_link(root, interface, &own))
        .or_else(|| {
            let drop_ins = NetworkFile::read_drop_ins(root, format!("{made}.network"));
            other_value(&drop_ins, &lines).filter(|_| own.mtu().is_some())
        })
        .or_else(|| network_file(root, interface, own.mtu()?))
        .or_else(|| tuned_after(root, interface, &own))
}

/// The part of a file that gives one of `lines` another value.
fn other_value(file: &NetworkFile, lines: &[(String, String)]) -> Option<String> {
    let section = file.section_lines("Link");
    section.into_iter().find_map(|(path, key, value)| {
        let (_, wanted) = lines.iter().find(|(known, _)| known.eq_ignore_ascii_case(&key))?;
        (plain_value(&value) != plain_value(wanted)).then(|| format!("{path} sets `{key}={value}`"))
    })
}

fn is_made_by_netplan(file: &NetworkFile) -> bool {
    file.name.starts_with(MADE_BY_NETPLAN)
}

/// The program that gives the interface another MTU, after udev has given it ours.
fn other_mtu(root: &RootFolder, interface: &str, own: &str) -> Option<String> {
    let netplans = netplan::NetplanDefinitions::read(root).ok();
    if let Some(rival) = netplans.and_then(|it| it.other_mtu(interface, own)) {
        return Some(rival);
    }
    network_file(root, interface, own)
}

/// The .network file of networkd that sets another MTU, or may set it. The first that matches counts.
fn network_file(root: &RootFolder, interface: &str, own: &str) -> Option<String> {
    let known = MatchedInterface::new(root, interface);
    // Those of netplan are told by its own files.
    let files = NetworkFile::read_all(root, "network").into_iter();
    for file in files.filter(|file| !is_made_by_netplan(file)) {
        let fits = file.match_interface("Name", &known);
        let other = file.find_value("Link", "MTUBytes").filter(|(mtu, _)| mtu != own);
        let sets = other.map(|(mtu, path)| format!("{path} sets `MTUBytes={mtu}` afterwards"));
        match fits {
            FileMatch::Yes => return sets,
            FileMatch::MayBe if sets.is_some() => {
                return sets.map(|sets| format!("{sets}, if its `[Match]` is of {interface}"));
            }
            FileMatch::MayBe | FileMatch::No => {}
        }
    }
    None
}

/// The reason why a whole file of `interface` is not the one that counts; `None` if none is known.
pub(super) fn find_problem(
    root: &RootFolder,
    interface: &str,
    file: &str,
    text: &str,
) -> Option<FileProblem> {
    let index = root
        .is_running_system()
        .then(|| Route::open().and_then(|route| route.link(interface)).ok())
        .flatten()
        .map(|link| link.index);
    if file.starts_with(profile::PROFILES) {
        let unused = profile::why_not_used(root, interface, file, text);
        return unused.map(outranked_problem).or_else(|| other_profile(index?, text));
    }
    if file.starts_with("/etc/tuned/") {
        return unused_profile(root, interface);
    }
    if file.starts_with(files::RULES) {
        let rival = find_winner(root, interface, file, text).map(outranked_problem);
        return rival.or_else(|| find_unapplied_file(index?, file));
    }
    let affinity = unit::affinity_unit(interface);
    if file == unit::unit_file(&affinity) {
        let why =
            || format!("it runs only once enabled: {}", unit::enable_command(root, &affinity));
        return (!unit::is_enabled(root, &affinity)).then(|| (KeptFileState::NotUsed, why()));
    }
    match index {
        Some(index) if has_extension(file, "link") => other_link(index, file),
        _ => find_winner(root, interface, file, text).map(outranked_problem),
    }
}

fn outranked_problem(why: String) -> FileProblem {
    (KeptFileState::Outranked, why)
}

/// The .link file that udev has applied in the place of ours.
fn other_link(index: u32, file: &str) -> Option<FileProblem> {
    if let Some(problem) = find_unapplied_file(index, file) {
        return Some(problem);
    }
    match applied_link(index) {
        Some(applied) if applied == file => None,
        Some(applied) => Some(outranked_problem(format!("udev has applied {applied}"))),
        None => Some((
            KeptFileState::NotApplied,
            "udev's database names no .link file of the interface".to_owned(),
        )),
    }
}

/// Whether udev saw the interface before the file was there, or not at all.
fn find_unapplied_file(index: u32, file: &str) -> Option<FileProblem> {
    let changed = |name: &str| fs::metadata(name).and_then(|meta| meta.modified()).ok();
    let why = match changed(&format!("/run/udev/data/n{index}")) {
        None => "udev has no record of the interface",
        Some(seen) if changed(file).is_some_and(|written| written > seen) => {
            "udev has last handled the interface before the file was written"
        }
        Some(_) => return None,
    };
    Some((KeptFileState::NotApplied, why.to_owned()))
}

/// A .link file that udev would take first, in an image.
fn earlier_link(root: &RootFolder, interface: &str, file: &str) -> Option<String> {
    let own_name = Path::new(file).file_name()?.to_str()?;
    let known = MatchedInterface::new(root, interface);
    let mut files = NetworkFile::read_all(root, "link").into_iter();
    let found = files.find(|file| {
        file.name.as_str() < own_name
            && file.match_interface("OriginalName", &known) != FileMatch::No
    })?;
    Some(format!("{} sorts first and is, or may be, of {interface}", found.path()))
}

/// The profile that NetworkManager has activated in the place of ours.
fn other_profile(index: u32, text: &str) -> Option<FileProblem> {
    let state = fs::read_to_string(format!("/run/NetworkManager/devices/{index}")).ok()?;
    let active = state.lines().find_map(|line| line.strip_prefix("connection-uuid="))?.trim();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let own =
        pairs.filter(|(key, _)| key.trim() == "uuid").map(|(_, value)| value.trim()).next()?;
    if own == active {
        return None;
    }
    Some(outranked_problem(format!("NetworkManager has activated the profile with UUID {active}")))
}

/// Whether TuneD's active profiles are neither ours nor include it.
fn unused_profile(root: &RootFolder, interface: &str) -> Option<FileProblem> {
    let own = tuned::profile_name(interface);
    let active = tuned::active_profiles(root);
    if active.iter().any(|name| tuned::includes_profile(root, name, &own)) {
        return None;
    }
    let why = format!("TuneD's active profile is `{}`, not {own}", active.join(" "));
    Some((KeptFileState::NotUsed, why))
}

/// A later file of sysctl.d that sets one of our keys to another value.
fn later_sysctl(root: &RootFolder, file: &str, text: &str) -> Option<String> {
    let own_name = Path::new(file).file_name()?.to_str()?;
    let own = parse_sysctls(text);
    let files = first_of_each_name(root, &SYSCTL_FOLDERS.map(str::to_owned), "conf");
    let later = files.into_iter().filter(|(name, _)| name.as_str() > own_name);
    later.into_iter().find_map(|(_, path)| {
        let others = parse_sysctls(&root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default());
        let is_rival = |(key, value): &&(String, String)| {
            own.iter().any(|(known, wanted)| known == key && wanted != value)
        };
        let (key, _) = others.iter().find(is_rival)?;
        Some(format!("{path} sorts later and sets {key} too"))
    })
}

/// The keys and values of a file of sysctl.d.
fn parse_sysctls(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let pairs = lines.filter_map(|line| line.split_once('='));
    let name = |key: &str| key.trim().trim_start_matches('-').replace('/', ".");
    pairs.map(|(key, value)| (name(key), value.trim().to_owned())).collect()
}
