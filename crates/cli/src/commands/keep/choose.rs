//! Which configuration system manages an interface, and how it is told of new files.

use std::fs;
use std::path::Path;

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::route::Route;

use super::{files, profile};
use crate::commands::export_settings::ExportFormat;
use crate::commands::netplan;
use crate::exit::CliError;

/// A format, and why it is the one.
pub(super) struct Choice {
    pub(super) format: ExportFormat,
    pub(super) why: String,
}

/// Where systemd looks for .link files, the first before the others.
pub(super) const LINK_FOLDERS: [&str; 4] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/lib/systemd/network",
    "/lib/systemd/network",
];
/// .link files that come with systemd and configure nothing of their own.
const DEFAULT_LINKS: [&str; 3] =
    ["99-default.link", "73-usb-net-by-mac.link", "98-default-mac-none.link"];

/// The format of the program that manages `interface` on the host below `root`.
pub(super) fn format(root: &RootFolder, interface: &str) -> Result<Choice, CliError> {
    let choice = |format, why: String| Ok(Choice { format, why });
    if is_network_managers(root, interface)
        && let Some(profile) = profile::of_interface(root, interface)?
        && profile.why_not_edited().is_none()
    {
        let why = format!("NetworkManager manages {interface} by {}", profile.path);
        return choice(ExportFormat::NetworkManager, why);
    }
    if let Some(found) = netplan::Definitions::read(root)?.entry_of(interface) {
        return choice(ExportFormat::Netplan, format!("{} configures {interface}", found.file));
    }
    let profile = root.look_at(files::ACTIVE_PROFILE, TEXT_BYTES_MOST).unwrap_or_default();
    if !profile.trim().is_empty() {
        let why = format!("TuneD is active with profile {}", profile.trim());
        return choice(ExportFormat::Tuned, why);
    }
    if root.path() == Path::new("/")
        && let Some(link) = link_file(interface)
    {
        let why = format!("{link} names {interface} already, and only one .link file counts");
        return choice(ExportFormat::Udev, why);
    }
    let why = "no other program manages the interface, and udev reads .link files everywhere";
    choice(ExportFormat::SystemdLink, why.to_owned())
}

/// Whether NetworkManager manages the interface. An image tells by its profile alone.
fn is_network_managers(root: &RootFolder, interface: &str) -> bool {
    if root.path() != Path::new("/") {
        return true;
    }
    let index = Route::open().and_then(|route| route.link(interface)).map(|link| link.index);
    let state = index.ok().map(|index| format!("/run/NetworkManager/devices/{index}"));
    let state = state.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    state.lines().any(|line| line == "managed=true")
}

/// The .link file of somebody that udev has applied to the interface.
fn link_file(interface: &str) -> Option<String> {
    let index = Route::open().and_then(|route| route.link(interface)).ok()?.index;
    let file = applied_link(index)?;
    let name = Path::new(&file).file_name()?.to_str()?;
    let is_other = !DEFAULT_LINKS.contains(&name) && !name.contains("latput");
    is_other.then_some(file)
}

/// The text of the .link file that a file of ours would take the place of; `None` if there is none.
pub(super) fn displaced_link(root: &RootFolder, interface: &str) -> Option<String> {
    if root.path() == Path::new("/") {
        let index = Route::open().and_then(|route| route.link(interface)).ok()?.index;
        return root.look_at(&applied_link(index)?, TEXT_BYTES_MOST);
    }
    // No udev tells of an image. What one file of this name masks, none of the others brings back.
    let files = LINK_FOLDERS.map(|folder| format!("{folder}/{}", DEFAULT_LINKS[0]));
    files.iter().find(|file| root.has(file)).and_then(|file| root.look_at(file, TEXT_BYTES_MOST))
}

/// The .link file that udev has applied: `ID_NET_LINK_FILE` of its database.
pub(super) fn applied_link(index: u32) -> Option<String> {
    let database = fs::read_to_string(format!("/run/udev/data/n{index}")).ok()?;
    let mut lines = database.lines();
    lines.find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE=")).map(str::to_owned)
}

/// The command that makes the files of a format take effect.
pub(super) fn reload(format: ExportFormat, interface: &str) -> String {
    match format {
        ExportFormat::NetworkManager => {
            format!("nmcli connection reload && nmcli device reapply {interface}")
        }
        ExportFormat::Netplan => "netplan apply".to_owned(),
        ExportFormat::Tuned => format!("tuned-adm profile latput-{interface}"),
        _ => format!(
            "udevadm control --reload && udevadm trigger --action=add /sys/class/net/{interface}"
        ),
    }
}
