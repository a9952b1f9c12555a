//! The profile that NetworkManager activates for an interface at the next boot.
//!
//! nm-settings(5), `connection.autoconnect`: of the profiles that fit a device, "the one with the better
//! connection.autoconnect-priority is chosen. If the priorities are equal, then the most recently connected profile is
//! activated. If the profiles were not connected earlier or their connection.timestamp is identical, the choice is
//! undefined."

use std::fs;

use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::route::Route;
use latput_linux::{Identity, RootFolder};

use super::glob::is_like;
use super::keyfile::{self, find_value, section_name};
use super::udev_rules::UdevChanges;
use super::unmanaged::{self, ListedDevice};
use crate::exit::{CliError, ExitReason};

/// The folder of the owner's profiles.
pub(super) const PROFILES: &str = "/etc/NetworkManager/system-connections";
/// All folders of profiles, nm-settings-keyfile(5).
const FOLDERS: [&str; 3] = [
    PROFILES,
    "/run/NetworkManager/system-connections",
    "/usr/lib/NetworkManager/system-connections",
];
/// The type of profiles that fit any interface with Ethernet addresses.
const ETHERNET: &str = "ethernet";
/// Starts of the keys of `[ethtool]`, with the requests of ethtool that they are.
const ETHTOOL_KEYS: [(&str, &str); 5] = [
    ("feature-", "-K"),
    ("coalesce-", "-C"),
    ("ring-", "-G"),
    ("pause-", "-A"),
    ("channels-", "-L"),
];
/// When NetworkManager has last seen each profile active, by UUID.
const TIMESTAMPS: &str = "/var/lib/NetworkManager/timestamps";
/// The range of `connection.autoconnect-priority`; NetworkManager takes other values for the default.
const PRIORITIES: std::ops::RangeInclusive<i64> = -999..=999;

/// How a profile fits the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileFit {
    /// It names the interface or its address.
    Own,
    /// It fits others too.
    Shared,
}

/// A profile that fits the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkProfile {
    pub(super) path: String,
    fit: ProfileFit,
    /// Its `connection.type`, by the name of the section that it has.
    pub(super) connection_type: String,
    uuid: Option<String>,
    /// Whether NetworkManager activates it by itself.
    pub(super) is_automatic: bool,
    priority: i64,
    /// When it was last active, seconds.
    timestamp: u64,
    /// Whether it is active now.
    is_active: bool,
    /// The file by which NetworkManager leaves the interface alone.
    unmanaged: Option<String>,
}

/// Profiles of which nobody can tell which NetworkManager takes, and why.
#[derive(Debug, PartialEq, Eq)]
struct AmbiguousProfiles(String);

impl NetworkProfile {
    /// Why `keep` cannot write into it; `None` if it can.
    pub(super) fn why_not_edited(&self) -> Option<String> {
        if let Some(why) = &self.unmanaged {
            return Some(format!("{} is not used: {why}", self.path));
        }
        if self.fit == ProfileFit::Shared {
            let set = "set its `connection.interface-name`";
            return Some(format!("{} is of other interfaces too: {set}", self.path));
        }
        let is_owners = self.path.starts_with(PROFILES);
        (!is_owners).then(|| format!("another program writes {}", self.path))
    }
}

/// The profile of `interface` that counts; `None` where none fits. Fails where nobody can tell which it is.
pub(super) fn of_interface(
    root: &RootFolder,
    interface: &str,
) -> Result<Option<NetworkProfile>, CliError> {
    let identity = known_identity(root, interface);
    let active = if root.is_running_system() { active_uuid(interface) } else { None };
    let timestamps = root.look_at(TIMESTAMPS, TEXT_BYTES_MOST).unwrap_or_default();
    let mut profiles = Vec::new();
    for (path, text) in read_profiles(root) {
        let Some(fit) = fit_of(&text, interface, identity.as_ref()) else { continue };
        let profile = parse_profile(path, fit, &text, &timestamps, active.as_deref());
        let unmanaged = why_unmanaged(root, interface, &profile.connection_type);
        profiles.push(NetworkProfile { unmanaged, ..profile });
    }
    if profiles.iter().any(|it| it.fit == ProfileFit::Own && it.connection_type != ETHERNET) {
        // A bond or VLAN, to which no profile fits that does not name it.
        profiles.retain(|it| it.fit == ProfileFit::Own);
    }
    // It gives none to an interface that it leaves alone.
    if profiles.iter().all(|it| it.unmanaged.is_some()) {
        return Ok(profiles.into_iter().next());
    }
    choose_profile(profiles, active.as_deref()).map_err(|AmbiguousProfiles(why)| {
        let message = format!(
            "nobody can tell which profile NetworkManager gives {interface} at the next boot: {why}. Set \
             `connection.autoconnect-priority` in one of them, or use --format systemd-link"
        );
        CliError::new(ExitReason::Failed, message)
    })
}

/// The identity of an interface of the running system.
fn known_identity(root: &RootFolder, interface: &str) -> Option<Identity> {
    if root.is_running_system() { Identity::read(interface) } else { None }
}

/// Whether NetworkManager manages the interface. An image tells by its profile alone.
pub(super) fn is_network_managers(root: &RootFolder, interface: &str) -> bool {
    if !root.is_running_system() {
        return true;
    }
    let index = Route::open().and_then(|route| route.link(interface)).map(|link| link.index);
    let state = index.ok().map(|index| format!("/run/NetworkManager/devices/{index}"));
    let state = state.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    state.lines().any(|line| line == "managed=true")
}

/// The value in the place of ours that NetworkManager gives `interface`, or may give it, by a profile that it activates itself or
/// by its defaults.
pub(super) fn undone_by_profile(
    root: &RootFolder,
    interface: &str,
    own: &UdevChanges,
) -> Option<String> {
    if !is_network_managers(root, interface) {
        return None;
    }
    let identity = known_identity(root, interface);
    let mut best = None;
    let mut rivals: Vec<(i64, String)> = Vec::new();
    for (path, text) in read_profiles(root) {
        let is_sure = fit_of(&text, interface, identity.as_ref()).is_some();
        let is_by_address = find_value(&text, "ethernet", "mac-address").is_some()
            && find_value(&text, "connection", "interface-name").is_none();
        let profile = parse_profile(path, ProfileFit::Shared, &text, "", None);
        let may_fit = is_sure || is_by_address && !root.is_running_system();
        let is_left = why_unmanaged(root, interface, &profile.connection_type).is_some();
        if !may_fit || !profile.is_automatic || is_left {
            continue;
        }
        let what = own.find_conflict(&profile_actions(&text));
        let NetworkProfile { path, priority, .. } = profile;
        if is_sure {
            best = best.max(Some(priority));
        }
        if let Some(what) = what {
            let whether = if is_sure { "" } else { ", if its address is the interface's" };
            rivals.push((
                priority,
                format!("NetworkManager {what} afterwards, as {path} says{whether}"),
            ));
        }
    }
    // One of a lower priority is not activated beside another.
    let mut rivals = rivals.into_iter();
    let rival = rivals.find(|(priority, _)| best.is_none_or(|best| *priority >= best));
    rival.map(|(_, rival)| rival).or_else(|| {
        let device = ListedDevice {
            name: interface,
            connection_type: ETHERNET,
            identity: identity.as_ref(),
        };
        let (mtu, path) = unmanaged::default_mtu(root, device)?;
        let mut actions = UdevChanges::default();
        actions.add_mtu(&mtu);
        let is_left = why_unmanaged(root, interface, ETHERNET).is_some();
        let what = own.find_conflict(&actions).filter(|_| !is_left)?;
        Some(format!("NetworkManager {what} afterwards, as {path} says"))
    })
}

/// The changes that NetworkManager makes by a profile.
fn profile_actions(keyfile: &str) -> UdevChanges {
    let mut actions = UdevChanges::default();
    let mtu = find_value(keyfile, "ethernet", "mtu");
    if let Some(mtu) = mtu.filter(|mtu| !["", "0"].contains(mtu)) {
        actions.add_mtu(mtu);
    }
    for (key, value) in keyfile::section_values(keyfile, "ethtool") {
        for (start, request) in ETHTOOL_KEYS {
            if let Some(parameter) = key.strip_prefix(start) {
                actions.add_request(request, parameter, value);
            }
        }
    }
    actions
}

/// The profiles that NetworkManager reads, each path with its text.
fn read_profiles(root: &RootFolder) -> Vec<(String, String)> {
    let mut profiles = Vec::new();
    for folder in FOLDERS {
        for name in root.look_in(folder).into_iter().filter(|name| is_profile_name(folder, name)) {
            let path = format!("{folder}/{name}");
            let Some(text) = root.look_at(&path, TEXT_BYTES_MOST) else { continue };
            if !is_open_to_others(root, &path) {
                profiles.push((path, text));
            }
        }
    }
    profiles
}

/// The file by which NetworkManager leaves the interface of a profile alone.
fn why_unmanaged(root: &RootFolder, interface: &str, connection_type: &str) -> Option<String> {
    let identity = known_identity(root, interface);
    let identity = identity.as_ref();
    unmanaged::by_file(root, ListedDevice { name: interface, connection_type, identity })
}

/// Why NetworkManager would not take a profile for the interface at the next boot.
pub(super) fn why_not_used(
    root: &RootFolder,
    interface: &str,
    path: &str,
    keyfile: &str,
) -> Option<String> {
    why_unmanaged(root, interface, connection_type(keyfile)).or_else(|| {
        match of_interface(root, interface) {
            Ok(Some(taken)) => {
                (taken.path != path).then(|| format!("{} goes before it", taken.path))
            }
            Ok(None) => Some(format!("it is not of {interface} any more")),
            Err(error) => Some(format!("{:#}", error.error)),
        }
    })
}

/// Whether NetworkManager takes a file for a profile: not those that are hidden or of an editor, nor certificates. It
/// wants the extension in folders other than that of the owner.
pub(super) fn is_profile_name(folder: &str, name: &str) -> bool {
    let ends_with = |end: &str| name.to_ascii_lowercase().ends_with(end);
    let is_temporary = name.rsplit_once('.').is_some_and(|(_, end)| {
        end.len() == 6 && end.chars().all(|letter| letter.is_ascii_alphanumeric())
    });
    let is_ignored = name.is_empty()
        || name.starts_with('.')
        || is_temporary
        || ["~", ".pem", ".der"].into_iter().any(ends_with);
    !is_ignored && (folder == PROFILES || name.ends_with(".nmconnection"))
}

/// Whether others than its owner may read or write a profile: NetworkManager ignores it then, nm-settings-keyfile(5).
fn is_open_to_others(root: &RootFolder, path: &str) -> bool {
    let read = root.read(path, TEXT_BYTES_MOST).ok().flatten();
    read.is_some_and(|(_, owner)| owner.mode & 0o077 != 0)
}

/// The UUID of the active profile, by NetworkManager's state of the device.
fn active_uuid(interface: &str) -> Option<String> {
    let index = Route::open().and_then(|route| route.link(interface)).ok()?.index;
    let state = fs::read_to_string(format!("/run/NetworkManager/devices/{index}")).ok()?;
    let uuid = state.lines().find_map(|line| line.strip_prefix("connection-uuid="))?;
    Some(uuid.trim().to_owned())
}

fn parse_profile(
    path: String,
    fit: ProfileFit,
    text: &str,
    timestamps: &str,
    active: Option<&str>,
) -> NetworkProfile {
    let of_connection = |key: &str| find_value(text, "connection", key);
    let uuid = of_connection("uuid").map(str::to_owned);
    let seen = uuid.as_deref().and_then(|uuid| find_value(timestamps, "timestamps", uuid));
    let seen = seen.or_else(|| of_connection("timestamp")).and_then(|text| text.parse().ok());
    NetworkProfile {
        path,
        fit,
        connection_type: connection_type(text).to_owned(),
        // As `nmcli --offline` reads them: other words are taken for the default.
        is_automatic: !matches!(of_connection("autoconnect"), Some("false" | "0")),
        priority: of_connection("autoconnect-priority").map_or(0, parse_priority),
        timestamp: seen.unwrap_or(0),
        is_active: active.is_some() && uuid.as_deref() == active,
        unmanaged: None,
        uuid,
    }
}

fn parse_priority(text: &str) -> i64 {
    let hexadecimal = text.strip_prefix("0x").map(|digits| i64::from_str_radix(digits, 16));
    let number = hexadecimal.unwrap_or_else(|| text.parse());
    number.ok().filter(|number| PRIORITIES.contains(number)).unwrap_or(0)
}

/// How a profile fits the interface, whose identity is known of a running system only; `None` if it does not.
fn fit_of(keyfile: &str, interface: &str, identity: Option<&Identity>) -> Option<ProfileFit> {
    let set =
        |section: &str, key: &str| find_value(keyfile, section, key).filter(|it| !it.is_empty());
    let of_type = connection_type(keyfile);
    // Old profiles of virtual interfaces have it in the section of their type.
    let name = set("connection", "interface-name").or_else(|| set(of_type, "interface-name"));
    if let Some(name) = name {
        return (name == interface).then_some(ProfileFit::Own);
    }
    let address = identity.and_then(|it| it.permanent_mac.as_deref());
    if let Some(own) = set("ethernet", "mac-address").or_else(|| set("wifi", "mac-address")) {
        return address.is_some_and(|it| it.eq_ignore_ascii_case(own)).then_some(ProfileFit::Own);
    }
    let kind = identity.map_or(Some("ethernet"), |it| it.kind.as_deref());
    if connection_type(keyfile) != ETHERNET || !matches!(kind, Some("ethernet" | "veth")) {
        return None;
    }
    let names = set("match", "interface-name").unwrap_or("*");
    let mut patterns = names.split(';').map(str::trim).filter(|it| !it.is_empty());
    // A pattern with a prefix is taken to fit: then nobody writes what might not count.
    patterns
        .any(|it| it.starts_with(['!', '&', '|']) || is_like(interface, it))
        .then_some(ProfileFit::Shared)
}

fn connection_type(keyfile: &str) -> &str {
    find_value(keyfile, "connection", "type").map_or("", section_name)
}

/// The profile that counts among those that fit.
fn choose_profile(
    mut profiles: Vec<NetworkProfile>,
    active: Option<&str>,
) -> Result<Option<NetworkProfile>, AmbiguousProfiles> {
    let list = |profiles: &[&NetworkProfile]| {
        profiles.iter().map(|it| it.path.as_str()).collect::<Vec<_>>().join(" and ")
    };
    if profiles.iter().any(|it| it.is_automatic) {
        // The others are activated by hand only.
        profiles.retain(|it| it.is_automatic || it.is_active);
    }
    let automatic = profiles.iter().filter(|it| it.is_automatic);
    let best = automatic.clone().map(|it| it.priority).max();
    let mut tied: Vec<&NetworkProfile> = profiles
        .iter()
        .filter(|it| best.is_none_or(|best| it.is_automatic && it.priority == best))
        .collect();
    if tied.iter().any(|it| it.is_active) {
        tied.retain(|it| it.is_active);
    } else if best.is_some() {
        let latest = tied.iter().map(|it| it.timestamp).max();
        tied.retain(|it| Some(it.timestamp) == latest);
    }
    let chosen = match tied.as_slice() {
        [] => return Ok(None),
        [one] => (*one).clone(),
        several if best.is_none() => {
            return Err(AmbiguousProfiles(format!("{} have `autoconnect=false`", list(several))));
        }
        several => {
            let why = "have one `autoconnect-priority`, and none was active later than the others";
            return Err(AmbiguousProfiles(format!("{} {why}", list(several))));
        }
    };
    let rival = profiles.iter().find(|it| it.is_active);
    match (active, rival) {
        (Some(_), Some(rival)) if *rival != chosen => Err(AmbiguousProfiles(format!(
            "{} is active, and {} goes before it by `autoconnect` or its priority",
            rival.path, chosen.path
        ))),
        (Some(uuid), None) if chosen.uuid.is_some() => Err(AmbiguousProfiles(format!(
            "the profile with UUID {uuid} is active, and no file has it; {} fits too",
            chosen.path
        ))),
        _ => Ok(Some(chosen)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_found_by_name_or_address() {
        let address = Some("52:54:00:aa:bb:cc".to_owned());
        let identity = Identity { permanent_mac: address, ..Identity::default() };
        for (keyfile, expected) in [
            ("[connection]\ninterface-name = nic7\n", true),
            ("[connection]\n#interface-name=nic7\n", false),
            ("[vlan]\ninterface-name=nic7\n", false),
            ("[ethernet]\nmac-address=52:54:00:AA:BB:CC\n", true),
            ("[802-3-ethernet]\nmac-address = 52:54:00:AA:BB:CC\n", true),
            (
                "[connection]\ninterface-name=nic8\n[ethernet]\nmac-address=52:54:00:AA:BB:CC\n",
                false,
            ),
            ("[ethernet]\nmac-address=52:54:00:AA:BB:CD\n", false),
        ] {
            let found = fit_of(keyfile, "nic7", Some(&identity));
            assert_eq!(found, expected.then_some(ProfileFit::Own), "{keyfile}");
        }
        assert_eq!(fit_of("[ethernet]\nmac-address=52:54:00:AA:BB:CC\n", "nic7", None), None);
    }

    #[test]
    fn profile_names_are_those_of_networkmanager() {
        for (name, of_owner, of_others) in [
            ("wired.nmconnection", true, true),
            ("wired", true, false),
            ("Wired 1.bak", true, false),
            (".wired.nmconnection", false, false),
            (".wired.swp", false, false),
            ("wired~", false, false),
            ("wired.Xy12Ab", false, false),
            ("wired.backup", false, false),
            ("ca.PEM", false, false),
            ("ca.der", false, false),
            ("..", false, false),
            ("", false, false),
        ] {
            let found = [FOLDERS[0], FOLDERS[1]].map(|folder| is_profile_name(folder, name));
            assert_eq!(found, [of_owner, of_others], "{name}");
        }
    }

    #[test]
    fn profile_of_several_interfaces_is_shared() {
        let fit = |more: &str, kind: &str| {
            let identity = Identity { kind: Some(kind.to_owned()), ..Identity::default() };
            fit_of(&format!("[connection]\ntype=ethernet\n{more}"), "nic7", Some(&identity))
        };
        assert_eq!(fit("", "ethernet"), Some(ProfileFit::Shared));
        assert_eq!(fit("", "bond"), None);
        assert_eq!(fit("[match]\ninterface-name=nic*;\n", "ethernet"), Some(ProfileFit::Shared));
        assert_eq!(fit("[match]\ninterface-name=eth*;\n", "ethernet"), None);
        assert_eq!(fit_of("[connection]\ntype=wifi\n", "nic7", None), None);
    }

    /// The profiles `a`, `b`, ... of these `[connection]` keys, and the one that counts, or what is said.
    #[track_caller]
    fn check_choice(keys: &[&str], timestamps: &str, active: Option<&str>, expected: &str) {
        let letters = ["a", "b", "c"].into_iter();
        let profiles = letters.zip(keys).map(|(letter, keys)| {
            let text = format!("[connection]\nuuid={letter}\n{keys}");
            parse_profile(letter.to_owned(), ProfileFit::Own, &text, timestamps, active)
        });
        let said = match choose_profile(profiles.collect(), active) {
            Ok(chosen) => chosen.map_or("none".to_owned(), |it| it.path),
            Err(AmbiguousProfiles(why)) => why,
        };
        assert!(
            if expected.len() == 1 { said == expected } else { said.contains(expected) },
            "{said}"
        );
    }

    #[test]
    fn better_priority_wins() {
        check_choice(&["", "autoconnect-priority=5"], "", None, "b");
        check_choice(&["autoconnect-priority=-5", ""], "", None, "b");
        check_choice(&["autoconnect-priority=5\nautoconnect=false", ""], "", None, "b");
        check_choice(&["autoconnect=false"], "", None, "a");
        check_choice(&[], "", None, "none");
        check_choice(&["", "autoconnect-priority=5"], "", Some("b"), "b");
    }

    #[test]
    fn equal_priorities_go_by_last_use() {
        let seen = "[timestamps]\na=100\nb=200\n";
        check_choice(&["", ""], seen, None, "b");
        check_choice(&["", ""], seen, Some("a"), "a");
        check_choice(&["", "", "autoconnect-priority=1"], seen, None, "c");
        check_choice(&["", ""], "", None, "a and b have one `autoconnect-priority`");
        check_choice(&["", ""], "[timestamps]\na=7\nb=7\n", None, "a and b have one");
    }

    #[test]
    fn active_profile_that_loses_is_ambiguous() {
        let seen = "[timestamps]\na=100\n";
        check_choice(
            &["", "autoconnect-priority=5"],
            seen,
            Some("a"),
            "a is active, and b goes before it",
        );
        check_choice(
            &["autoconnect=false", ""],
            seen,
            Some("a"),
            "a is active, and b goes before it",
        );
        check_choice(&[""], seen, Some("z"), "UUID z is active, and no file has it; a fits too");
        let by_hand = ["autoconnect=false"; 2];
        check_choice(&by_hand, "", None, "a and b have `autoconnect=false`");
        check_choice(&by_hand, "", Some("b"), "b");
    }
}
