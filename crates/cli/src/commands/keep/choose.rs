//! Which configuration system manages an interface, and how it is told of new files.

use std::path::Path;

use latput_linux::RootFolder;
use latput_linux::route::Route;

use super::ifupdown::InterfaceStanzas;
use super::udev_files::{
    DEFAULT_LINKS, FileMatch, MADE_BY_NETPLAN, MatchedInterface, NetworkFile, applied_link,
};
use super::{profile, tuned};
use crate::commands::export_settings::ExportFormat;
use crate::commands::netplan;
use crate::exit::CliError;

/// A format, and why it is the one.
pub(super) struct FormatChoice {
    pub(super) format: ExportFormat,
    pub(super) why: String,
}

/// The format of the program that manages `interface` on the host below `root`. `renamed` is why a .link file by its name would
/// match nothing.
pub(super) fn choose_format(
    root: &RootFolder,
    interface: &str,
    renamed: Option<&str>,
) -> Result<FormatChoice, CliError> {
    let choice = |format, why: String| Ok(FormatChoice { format, why });
    if profile::is_network_managers(root, interface)
        && let Some(profile) = profile::of_interface(root, interface)?
        && profile.why_not_edited().is_none()
    {
        let by_hand = if profile.is_automatic { "" } else { ", which has `autoconnect=false`" };
        let why = format!("NetworkManager manages {interface} by {}{by_hand}", profile.path);
        return choice(ExportFormat::NetworkManager, why);
    }
    let found = netplan::NetplanDefinitions::read(root)?.entry_of(interface);
    if let Some(found) = &found
        && found.others.is_none()
        && found.earlier.is_none()
    {
        return match link_beside_netplan(root, interface, found) {
            Some(why) => choice(ExportFormat::Udev, why),
            None => choice(ExportFormat::Netplan, format!("{} configures {interface}", found.file)),
        };
    }
    let active = tuned::active_profiles(root);
    if !active.is_empty() {
        let why = format!("TuneD is active with profile {}", active.join(" "));
        return choice(ExportFormat::Tuned, why);
    }
    if let Some(why) = other_link(root, interface)? {
        return choice(ExportFormat::Udev, format!("{why}, and only one .link file counts"));
    }
    if let Some(why) = renamed {
        return choice(ExportFormat::Udev, why.to_owned());
    }
    let why = match InterfaceStanzas::read(root, interface) {
        Some(stanzas) => format!("ifupdown configures {interface} in {}", stanzas.file),
        None => "no other program manages the interface".to_owned(),
    };
    choice(ExportFormat::SystemdLink, format!("{why}, and udev reads .link files everywhere"))
}

/// Whether a .link file is somebody's, and not of latput, of netplan or of those that come with systemd.
fn is_somebodys(name: &str) -> bool {
    let is_made = name.contains("latput") || name.starts_with(MADE_BY_NETPLAN);
    !DEFAULT_LINKS.contains(&name) && !is_made
}

/// The .link file that udev has applied to an interface of the running system.
fn applied_here(root: &RootFolder, interface: &str) -> Option<String> {
    if !root.is_running_system() {
        return None;
    }
    applied_link(Route::open().and_then(|route| route.link(interface)).ok()?.index)
}

/// Finds the .link file that a file of ours would displace, or of which nobody can tell. Those that come with systemd do not
/// count; `None` if there is no other.
pub(super) fn other_link(root: &RootFolder, interface: &str) -> Result<Option<String>, CliError> {
    let names = |file: &str| format!("{file} names {interface} already");
    let applied = applied_here(root, interface);
    let applied_name = applied.as_deref().and_then(|file| Path::new(file).file_name()?.to_str());
    if let Some(file) = applied.as_deref().filter(|_| applied_name.is_some_and(is_somebodys)) {
        return Ok(Some(names(file)));
    }
    // netplan writes its own at boot, behind ours in the order of names.
    if let Some(found) = netplan::NetplanDefinitions::read(root)?.entry_of(interface)
        && found.has_link
    {
        return Ok(Some(format!("netplan makes a .link file of {}", found.file)));
    }
    let known = MatchedInterface::new(root, interface);
    let files = NetworkFile::read_all(root, "link");
    let mut files = files.iter().filter(|file| is_somebodys(&file.name));
    Ok(files.find_map(|file| match file.match_interface("OriginalName", &known) {
        FileMatch::Yes => Some(names(file.path())),
        // udev has answered where it has applied another.
        FileMatch::MayBe if applied.is_none() => {
            Some(format!("{} may be of {interface}", file.path()))
        }
        _ => None,
    }))
}

/// The .link file of somebody that would not count beside the one that netplan makes of an entry, or before which that would not.
pub(super) fn link_beside_netplan(
    root: &RootFolder,
    interface: &str,
    found: &netplan::FoundEntry,
) -> Option<String> {
    let known = MatchedInterface::new(root, interface);
    let mut files = NetworkFile::read_all(root, "link").into_iter();
    let made = format!("{MADE_BY_NETPLAN}{}.link", found.entry.id);
    let file = files.find(|file| {
        let is_rival = file.name < made || !found.has_link;
        is_rival
            && is_somebodys(&file.name)
            && file.match_interface("OriginalName", &known) != FileMatch::No
    })?;
    let order = if file.name < made {
        "that of netplan would not count beside it"
    } else {
        "it would not count beside that of netplan"
    };
    Some(format!("{} is, or may be, of {interface}, and {order}", file.path()))
}

/// The lines of `[Link]`, with those of its drop-ins, of the .link file that a file of ours would take the place of; `None` if
/// there is none.
pub(super) fn displaced_link(root: &RootFolder, interface: &str) -> Option<String> {
    // No udev tells of an image.
    let file = if root.is_running_system() {
        applied_here(root, interface)?
    } else {
        DEFAULT_LINKS[0].to_owned()
    };
    let name = Path::new(&file).file_name()?.to_str()?;
    let files = NetworkFile::read_all(root, "link");
    files.iter().find(|file| file.name == name).map(|file| file.section_text("Link"))
}

/// Why a .link file by the name of `interface` would match nothing: udev chooses it by the name that the kernel gives, and the
/// interface gets its own behind that. `None` where nothing is known to give it.
pub(super) fn why_renamed(root: &RootFolder, interface: &str) -> Option<String> {
    let files = NetworkFile::read_all(root, "link");
    let gives = |file: &NetworkFile| {
        let (name, path) = file.find_value("Link", "Name")?;
        (name == interface).then(|| format!("{path} gives the interface its name"))
    };
    let giver = files.iter().find_map(gives).or_else(|| {
        let is_image = !root.is_running_system();
        (is_image && is_predictable_name(interface))
            .then(|| format!("udev gives the interface the name {interface}"))
    });
    giver.map(|giver| format!("{giver}, and a .link file matches the one that it has before"))
}

/// Whether a name is one that udev makes, as `enp3s0` and `wlo1` (systemd.net-naming-scheme(7)).
fn is_predictable_name(name: &str) -> bool {
    let kinds = ["en", "ib", "sl", "wl", "ww"];
    let rest = kinds.into_iter().find_map(|kind| name.strip_prefix(kind));
    let mut letters = rest.unwrap_or_default().chars();
    letters.next().is_some_and(|c| "bcdosuvxPpa".contains(c))
        && letters.next().is_some_and(|c| c.is_ascii_hexdigit())
}

/// The command that makes the files of a format take effect.
pub(super) fn reload_command(root: &RootFolder, format: ExportFormat, interface: &str) -> String {
    match format {
        ExportFormat::NetworkManager => {
            format!("nmcli connection reload && nmcli device reapply {interface}")
        }
        ExportFormat::Netplan => "netplan apply".to_owned(),
        ExportFormat::Tuned => format!("tuned-adm profile {}", tuned::to_activate(root, interface)),
        _ => format!(
            "udevadm control --reload && udevadm trigger --action=add /sys/class/net/{interface}"
        ),
    }
}
