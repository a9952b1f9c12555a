//! Files of udev and networkd: their folders, and the interface that a `[Match]` takes.

use std::fs;
use std::path::Path;

use crate::commands::netplan;

/// Where systemd looks for .link files, the first before the others.
pub(super) const LINK_FOLDERS: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/lib/systemd/network",
    "/lib/systemd/network",
];
/// .link files that come with systemd and configure nothing of their own.
pub(super) const DEFAULT_LINKS: [&str; 3] =
    ["99-default.link", "73-usb-net-by-mac.link", "98-default-mac-none.link"];

/// The .link file that udev has applied: `ID_NET_LINK_FILE` of its database.
pub(super) fn applied_link(index: u32) -> Option<String> {
    let database = fs::read_to_string(format!("/run/udev/data/n{index}")).ok()?;
    let mut lines = database.lines();
    lines.find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE=")).map(str::to_owned)
}

/// Whether a file has this extension: in small letters, as its readers want it.
pub(super) fn has_extension(name: &str, wanted: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == wanted)
}

/// Whether the `[Match]` of a file of udev or networkd takes an interface by its name, in `key`, and by nothing else.
pub(super) fn matches_name(text: &str, key_of_name: &str, interface: &str) -> bool {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "[Match]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    let keys = section.filter(|line| !line.starts_with(['#', ';']));
    let mut has_name = false;
    for (key, value) in keys.filter_map(|line| line.split_once('=')) {
        if key.trim() != key_of_name {
            return false;
        }
        has_name = value.split_whitespace().any(|pattern| netplan::is_like(interface, pattern));
    }
    has_name
}

#[cfg(test)]
mod tests {
    use super::matches_name;

    #[test]
    fn link_file_matches_by_name_alone() {
        for (text, expected) in [
            ("[Match]\nOriginalName=nic*\n[Link]\nMTUBytes=1400\n", true),
            ("[Match]\nOriginalName=eth0 nic7\n", true),
            ("[Match]\nOriginalName=eth*\n", false),
            ("[Match]\nOriginalName=nic7\nDriver=ice\n", false),
            ("[Match]\nMACAddress=52:54:00:aa:bb:cc\n", false),
            ("[Link]\nOriginalName=nic7\n", false),
        ] {
            assert_eq!(matches_name(text, "OriginalName", "nic7"), expected, "{text}");
        }
    }
}
