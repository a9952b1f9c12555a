//! Which configuration system manages an interface, and how it is told of new files.

use std::fs;
use std::path::Path;

use latput_linux::route::Route;

use super::{below, files};
use crate::commands::export_settings::ExportFormat;
use crate::exit::CliError;

/// A format, and why it is the one.
pub(super) struct Choice {
    pub(super) format: ExportFormat,
    pub(super) why: String,
}

/// .link files that come with systemd and configure nothing of their own.
const DEFAULT_LINKS: [&str; 3] =
    ["99-default.link", "73-usb-net-by-mac.link", "98-default-mac-none.link"];

/// The format of the program that manages `interface` on the host below `root`.
pub(super) fn format(root: &Path, interface: &str) -> Result<Choice, CliError> {
    let choice = |format, why: String| Ok(Choice { format, why });
    if is_network_managers(root, interface)
        && let [profile] = files::profiles(root, interface)?.as_slice()
    {
        let why = format!("NetworkManager manages {interface} by {}", profile.display());
        return choice(ExportFormat::NetworkManager, why);
    }
    if let Some(file) = netplan_file(root, interface) {
        return choice(ExportFormat::Netplan, format!("{file} configures {interface}"));
    }
    let profile = fs::read_to_string(below(root, "/etc/tuned/active_profile")).unwrap_or_default();
    if !profile.trim().is_empty() {
        let why = format!("TuneD is active with profile {}", profile.trim());
        return choice(ExportFormat::Tuned, why);
    }
    if root == Path::new("/")
        && let Some(link) = link_file(interface)
    {
        let why = format!("{link} names {interface} already, and only one .link file counts");
        return choice(ExportFormat::Udev, why);
    }
    let why = "no other program manages the interface, and udev reads .link files everywhere";
    choice(ExportFormat::SystemdLink, why.to_owned())
}

/// Whether NetworkManager manages the interface. An image tells by its profile alone.
fn is_network_managers(root: &Path, interface: &str) -> bool {
    if root != Path::new("/") {
        return true;
    }
    let index = Route::open().and_then(|route| route.link(interface)).map(|link| link.index);
    let state = index.ok().map(|index| format!("/run/NetworkManager/devices/{index}"));
    let state = state.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    state.lines().any(|line| line == "managed=true")
}

/// The file of netplan that names the interface.
fn netplan_file(root: &Path, interface: &str) -> Option<String> {
    let entry = format!("{interface}:");
    let mut files: Vec<_> = fs::read_dir(below(root, "/etc/netplan")).ok()?.flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    files.into_iter().map(|file| file.path()).find_map(|path| {
        let is_yaml = path.extension().is_some_and(|end| end == "yaml");
        let is_ours = path.file_name()?.to_str()?.contains("latput");
        let text = fs::read_to_string(&path).ok().filter(|_| is_yaml && !is_ours)?;
        text.lines().any(|line| line.trim() == entry).then(|| path.display().to_string())
    })
}

/// The .link file of somebody that udev has applied to the interface: `ID_NET_LINK_FILE` of its database.
fn link_file(interface: &str) -> Option<String> {
    let index = Route::open().and_then(|route| route.link(interface)).ok()?.index;
    let database = fs::read_to_string(format!("/run/udev/data/n{index}")).ok()?;
    let file = database.lines().find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE="))?;
    let name = Path::new(file).file_name()?.to_str()?;
    let is_other = !DEFAULT_LINKS.contains(&name) && !name.contains("latput");
    is_other.then(|| file.to_owned())
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
