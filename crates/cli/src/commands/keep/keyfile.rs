//! NetworkManager's profiles: which one is of an interface, and how keys are put into it (nm-settings-keyfile(5)).
//!
//! A keyfile is read as `GLib` reads it: blanks around a name and before a value are not part of them, and a name that is there twice
//! has its last value. Sections have an old name too. An edit changes the lines of its keys, and no other.

use std::fs;
use std::path::Path;

use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::route::Route;
use latput_linux::{Identity, RootFolder};

use crate::exit::{CliError, Code};

/// The folder of the owner's profiles.
pub(super) const PROFILES: &str = "/etc/NetworkManager/system-connections";
/// The end of a profile's name.
const ENDING: &str = ".nmconnection";
/// Sections with their old names.
const OLD_NAMES: [(&str, &str); 2] = [("802-3-ethernet", "ethernet"), ("802-11-wireless", "wifi")];

/// The profile of an interface: the one that is active, else the one that names it, else the one that has its address.
///
/// # Errors
///
/// Several are left, or none.
pub(super) fn profile_of(root: &RootFolder, interface: &str) -> Result<String, CliError> {
    match profiles_of(root, interface)?.as_slice() {
        [profile] => Ok(profile.clone()),
        found => {
            let message = format!(
                "{} profiles in {PROFILES} are of {interface}. Set `connection.interface-name` in exactly one, or use \
                 --format systemd-link",
                found.len()
            );
            Err(CliError::new(Code::Failed, message))
        }
    }
}

/// The profiles that may be the interface's, by the first of the ways of [`profile_of`] that finds any.
pub(super) fn profiles_of(root: &RootFolder, interface: &str) -> Result<Vec<String>, CliError> {
    let names = root.entries(PROFILES)?.into_iter().filter(|name| name.ends_with(ENDING));
    let read = |name: String| {
        let path = format!("{PROFILES}/{name}");
        let text = root.look_at(&path, TEXT_BYTES_MOST)?;
        Some((path, text))
    };
    let profiles: Vec<(String, String)> = names.filter_map(read).collect();
    let is_live = root.path() == Path::new("/");
    let active = is_live.then(|| active_uuid(interface)).flatten();
    let address = is_live.then(|| address_of(interface)).flatten();
    let name = Some(interface.to_owned());
    let ways = [
        ("connection", "uuid", active),
        ("connection", "interface-name", name),
        ("ethernet", "mac-address", address),
    ];
    for (section, key, wanted) in ways {
        let Some(wanted) = wanted else { continue };
        let is_it = |(_, text): &&(String, String)| {
            let is_of_other = value(text, "connection", "interface-name")
                .is_some_and(|name| !name.is_empty() && name != interface);
            !is_of_other
                && value(text, section, key)
                    .is_some_and(|value| value.eq_ignore_ascii_case(&wanted))
        };
        let found: Vec<String> =
            profiles.iter().filter(is_it).map(|(path, _)| path.clone()).collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The profile that NetworkManager has activated on an interface, from its state file.
fn active_uuid(interface: &str) -> Option<String> {
    let index = Route::open().and_then(|route| route.link(interface)).ok()?.index;
    let state = fs::read_to_string(format!("/run/NetworkManager/devices/{index}")).ok()?;
    value(&state, "device", "connection-uuid").map(str::to_owned)
}

fn address_of(interface: &str) -> Option<String> {
    Identity::of(interface)?.permanent_mac
}

/// The last value of a key.
fn value<'t>(keyfile: &'t str, section: &str, key: &str) -> Option<&'t str> {
    let mut now = "";
    let mut found = None;
    for line in keyfile.lines() {
        if let Some(name) = section_of(line) {
            now = name;
        } else if let Some((name, value)) = key_of(line)
            && (now, name) == (section, key)
        {
            found = Some(value);
        }
    }
    found
}

/// The name of the section that begins here, the new one.
fn section_of(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    Some(OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new))
}

/// A key and its value.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (name, value) = line.split_once('=').filter(|_| !line.starts_with('#'))?;
    Some((name.trim_end(), value.trim_start()))
}

/// A keyfile with the keys of another put into its sections: in the place of their old values, else at the section's end.
pub(super) fn merged(keyfile: &str, addition: &str) -> String {
    let mut lines: Vec<String> = keyfile.lines().map(str::to_owned).collect();
    let mut section = "";
    for line in addition.lines().map(str::trim) {
        if let Some(name) = section_of(line) {
            section = name;
        } else if let Some((key, _)) = key_of(line) {
            put(&mut lines, section, key, line);
        }
    }
    lines.join("\n") + "\n"
}

/// Puts one line in the place of all of its key. A section may be there in several parts.
fn put(lines: &mut Vec<String>, section: &str, key: &str, line: &str) {
    let mut now = "";
    let mut of_key = Vec::new();
    let mut end = None;
    for (at, known) in lines.iter().enumerate() {
        if let Some(name) = section_of(known) {
            now = if name == section { section } else { "" };
        }
        if now == section {
            if key_of(known).is_some_and(|(name, _)| name == key) {
                of_key.push(at);
            }
            if !known.trim().is_empty() {
                end = Some(at + 1);
            }
        }
    }
    if let Some((first, others)) = of_key.split_first() {
        line.clone_into(&mut lines[*first]);
        for other in others.iter().rev() {
            lines.remove(*other);
        }
    } else if let Some(end) = end {
        lines.insert(end, line.to_owned());
    } else {
        if lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(String::new());
        }
        lines.extend([format!("[{section}]"), line.to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_put_into_sections() {
        let keyfile =
            "[connection]\nid=wired\n\n[ethernet]\nmtu=1500\nmac=aa\n\n[ipv4]\nmethod=auto\n";
        let addition = "# latput\n[ethernet]\nmtu=9000\n\n[ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n\n[ipv4]\nx=1\n";
        let expected = "[connection]\nid=wired\n\n[ethernet]\nmtu=9000\nmac=aa\n\n[ipv4]\nmethod=auto\nx=1\n\n\
                        [ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n";
        assert_eq!(merged(keyfile, addition), expected);
        assert_eq!(merged(expected, addition), expected, "once is enough");
    }

    #[test]
    fn old_names_blanks_and_repeated_keys_are_one_key() {
        let keyfile = "# mine\n [802-3-ethernet] \n mtu = 1500\n# mtu=1\nmtu=1400\n\n[ipv4]\nmethod=auto\n\
                       [ethernet]\nmtu=1300\n";
        let expected =
            "# mine\n [802-3-ethernet] \nmtu=9000\n# mtu=1\n\n[ipv4]\nmethod=auto\n[ethernet]\n";
        assert_eq!(merged(keyfile, "[ethernet]\nmtu=9000\n"), expected);
        assert_eq!(value(keyfile, "ethernet", "mtu"), Some("1300"), "the last counts");
    }
}
