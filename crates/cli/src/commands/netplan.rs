//! The entry of netplan's files that an interface belongs to, for `keep` and `export-settings`: its device type and its id,
//! which need not be the interface's name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use latput_knobs::Setting;
use latput_knobs::export::{Format, NetplanDeviceType, NetplanEntry, Target, lines_by_hand};
use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::{Identity, RootFolder};
use yaml_rust2::parser::{MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};
use yaml_rust2::{Event, ScanError, Yaml, YamlLoader};

use crate::commands::interface_type::{MeantInterface, unknown_type};
use crate::commands::keep::{glob::is_like, udev_files::has_extension};
use crate::exit::{CliError, ExitReason};

/// The folders of netplan's files; of two files with one name that of the last folder counts (netplan(5)).
const FOLDERS: [&str; 3] = ["/usr/lib/netplan", "/etc/netplan", "/run/netplan"];

/// Definition of one id, of all files together.
#[derive(Debug)]
struct NetplanDefinition {
    device_type: NetplanDeviceType,
    file: String,
    set_name: Option<String>,
    has_match: bool,
    /// The patterns of which the driver's name has to be like one.
    drivers: Vec<String>,
    /// Whether it has keys that netplan writes into a .link file.
    has_link_keys: bool,
    matched_name: Option<String>,
    matched_address: Option<String>,
    /// With the file that says it.
    mtu: Option<(String, String)>,
    renderer: Option<String>,
}

/// The definitions of all files, by their id.
#[derive(Debug)]
pub(super) struct NetplanDefinitions {
    by_id: BTreeMap<String, NetplanDefinition>,
    /// The `renderer` of those that name none.
    renderer: Option<String>,
    /// Whether they are of the running system, whose interfaces have addresses.
    is_running_system: bool,
}

/// Properties of an interface by which `match` finds it, beside its name.
#[derive(Clone, Debug)]
enum MatchProperties {
    OfThisHost {
        address: Option<String>,
        driver: Option<String>,
    },
    /// Those of an interface of an image, which nobody knows.
    Unknown,
}

/// An entry, and the file that has it.
pub(super) struct FoundEntry {
    pub(super) entry: NetplanEntry,
    pub(super) file: String,
    /// The `match` by which it is of other interfaces too.
    pub(super) others: Option<String>,
    /// Whether netplan makes a .link file of it, which names the interface.
    pub(super) has_link: bool,
    /// Another entry that takes the interface too and comes first, with its file: of the files that netplan makes, the first
    /// that matches counts.
    pub(super) earlier: Option<String>,
}

impl NetplanDefinitions {
    /// Those below `root`.
    ///
    /// Fails where a file is no YAML, which netplan refuses as well.
    pub(super) fn read(root: &RootFolder) -> Result<Self, CliError> {
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for folder in FOLDERS {
            for name in root.look_in(folder) {
                // Those that `keep` writes say of each id what another file says first.
                if has_extension(&name, "yaml") && !name.contains("latput") {
                    files.insert(name.clone(), format!("{folder}/{name}"));
                }
            }
        }
        let (mut by_id, mut renderer) = (BTreeMap::new(), None);
        for path in files.values() {
            let shown = root.below(path).display().to_string();
            let text = root
                .look_at(path, TEXT_BYTES_MOST)
                .ok_or_else(|| "it cannot be read as a text of UTF-8".to_owned());
            let read = text.and_then(|text| read(&text, &shown, &mut by_id));
            let said = read.map_err(|problem| {
                CliError::new(ExitReason::Failed, format!("{shown}: {problem}"))
            })?;
            renderer = said.or(renderer);
        }
        Ok(Self { by_id, renderer, is_running_system: root.is_running_system() })
    }

    /// The file by which netplan gives `interface` to networkd, so that NetworkManager leaves it alone, in words.
    pub(super) fn networkd_file(&self, interface: &str) -> Option<String> {
        let properties = self.match_properties(interface);
        let (_, found) = find_definition(&self.by_id, interface, &properties)?;
        let renderer = found.renderer.as_ref().or(self.renderer.as_ref());
        let is_networkd = renderer.is_none_or(|it| it == "networkd");
        let is_sure = found.shared_match(&properties).is_none();
        (is_networkd && is_sure).then(|| format!("{} gives it to networkd", found.file))
    }

    /// The entry of `interface`; `None` where no file has one.
    pub(super) fn entry_of(&self, interface: &str) -> Option<FoundEntry> {
        let properties = self.match_properties(interface);
        let (id, found) = find_definition(&self.by_id, interface, &properties)?;
        let entry = NetplanEntry { device_type: found.device_type, id: id.clone(), is_found: true };
        let others = found.shared_match(&properties);
        let earlier = self.first_of(interface, &properties).filter(|(first, _)| *first < id);
        let has_link = found.has_link_keys || earlier.is_some_and(|(_, it)| it.has_link_keys);
        let earlier = earlier.map(|(id, it)| format!("`{id}` in {}", it.file));
        Some(FoundEntry { entry, file: found.file.clone(), others, has_link, earlier })
    }

    /// Another MTU than `own` that netplan gives `interface`, or may give it by a `match` of which nobody can tell, in words.
    pub(super) fn other_mtu(&self, interface: &str, own: &str) -> Option<String> {
        let properties = self.match_properties(interface);
        let known = self.first_of(interface, &properties).map(|(id, _)| id);
        let its = self.by_id.iter().filter(|(id, it)| it.is_of(id, interface, &properties));
        let mut counting = its.filter(|(id, _)| known.is_none_or(|known| *id <= known));
        counting.find_map(|(id, it)| {
            let (mtu, file) = it.mtu.as_ref().filter(|(mtu, _)| mtu != own)?;
            let sets = format!("netplan sets `mtu: {mtu}` afterwards, as {file} says");
            Some(if known == Some(id) {
                sets
            } else {
                format!("{sets}, if the `match` of `{id}` is of {interface}")
            })
        })
    }

    /// The first definition that is known to be of `interface`. netplan makes files of them that are named after the ids, and of
    /// those that match the first by name counts.
    fn first_of(
        &self,
        interface: &str,
        properties: &MatchProperties,
    ) -> Option<(&String, &NetplanDefinition)> {
        let is_known = |it: &NetplanDefinition| {
            let is_by_name = it.matched_address.is_none() && it.drivers.is_empty();
            is_by_name || matches!(properties, MatchProperties::OfThisHost { .. })
        };
        self.by_id.iter().find(|(id, it)| is_known(it) && it.is_of(id, interface, properties))
    }

    fn match_properties(&self, interface: &str) -> MatchProperties {
        if self.is_running_system {
            MatchProperties::read(interface)
        } else {
            MatchProperties::Unknown
        }
    }
}

/// The target with the entry that netplan has for the interface, or would have by its kind. The files are those of this
/// host, if it has the interface that is meant.
pub(super) fn in_entry(
    target: Target,
    files: Result<NetplanDefinitions, CliError>,
    setting: &Setting,
    meant: MeantInterface<'_>,
) -> Result<Target, CliError> {
    let lines = lines_by_hand(Format::Netplan, setting);
    if lines.is_empty() {
        return Ok(target); // nothing is written for netplan
    }
    let interface = target.interface();
    let found = if meant.is_here(interface) { files?.entry_of(interface) } else { None };
    let entry = if let Some(found) = found {
        found.entry
    } else {
        let kind = meant.kind_of(interface);
        let device_type = kind.as_deref().and_then(NetplanDeviceType::of_kind);
        let device_type = device_type
            .ok_or_else(|| unknown_type(Format::Netplan, interface, kind.as_deref(), &lines))?;
        NetplanEntry { device_type, id: interface.to_owned(), is_found: false }
    };
    target.in_netplan_entry(entry).map_err(|error| CliError::usage(error.to_string()))
}

/// The definition of an interface. One that is or may be of others comes last, and of these one without a .link file.
fn find_definition<'a>(
    by_id: &'a BTreeMap<String, NetplanDefinition>,
    interface: &str,
    properties: &MatchProperties,
) -> Option<(&'a String, &'a NetplanDefinition)> {
    let its = |(id, it): &(&String, &NetplanDefinition)| it.is_of(id, interface, properties);
    by_id
        .iter()
        .filter(its)
        .min_by_key(|(_, it)| (it.shared_match(properties).is_some(), !it.has_link_keys))
}

impl MatchProperties {
    fn read(interface: &str) -> Self {
        let address = fs::read_to_string(format!("/sys/class/net/{interface}/address")).ok();
        let driver = Identity::read(interface).and_then(|it| it.driver);
        Self::OfThisHost { address: address.map(|it| it.trim().to_owned()), driver }
    }

    /// An address that nobody knows may be any, as with drivers.
    fn may_have_address(&self, wanted: &str) -> bool {
        match self {
            Self::OfThisHost { address, .. } => {
                address.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(wanted))
            }
            Self::Unknown => true,
        }
    }

    /// A driver that nobody knows may be any: the entry may be of the interface.
    fn may_have_driver(&self, pattern: &str) -> bool {
        match self {
            Self::OfThisHost { driver, .. } => {
                driver.as_deref().is_some_and(|own| is_like(own, pattern))
            }
            Self::Unknown => true,
        }
    }
}

impl NetplanDefinition {
    const fn new(device_type: NetplanDeviceType) -> Self {
        Self {
            device_type,
            file: String::new(),
            set_name: None,
            has_match: false,
            drivers: Vec::new(),
            has_link_keys: false,
            matched_name: None,
            matched_address: None,
            mtu: None,
            renderer: None,
        }
    }

    /// Whether it is of `interface`.
    fn is_of(&self, id: &str, interface: &str, properties: &MatchProperties) -> bool {
        if self.set_name.as_deref() == Some(interface) {
            return true;
        }
        if self.set_name.is_some() {
            return false;
        }
        if !self.has_match {
            return id == interface;
        }
        // All that `match` has must fit; an empty one fits every interface.
        let has_name = self.matched_name.as_deref().is_none_or(|it| is_like(interface, it));
        let has_address =
            self.matched_address.as_deref().is_none_or(|it| properties.may_have_address(it));
        let has_driver = self.drivers.is_empty()
            || self.drivers.iter().any(|pattern| properties.may_have_driver(pattern));
        has_name && has_address && has_driver
    }

    /// The `match` by which it is of other interfaces too, or may be.
    fn shared_match(&self, properties: &MatchProperties) -> Option<String> {
        if self.set_name.is_some() || !self.has_match {
            return None;
        }
        match (&self.matched_address, properties) {
            (Some(_), MatchProperties::OfThisHost { .. }) => return None,
            (Some(address), MatchProperties::Unknown) if self.matched_name.is_none() => {
                return Some(format!("macaddress {address}, which may be another's"));
            }
            _ => {}
        }
        match &self.matched_name {
            Some(name) => name.contains(['*', '?', '[']).then(|| name.clone()),
            None if self.drivers.is_empty() => Some("`match` is empty".to_owned()),
            None => Some(format!("driver {}", self.drivers.join(" "))),
        }
    }
}

/// The file that netplan takes in the place of `own_file`, or whose values count before those of `own_text`.
pub(super) fn why_outranked(root: &RootFolder, own_file: &str, own_text: &str) -> Option<String> {
    let own_name = Path::new(own_file).file_name()?.to_str()?;
    let shadow = format!("{}/{own_name}", FOLDERS[2]);
    if root.has(&shadow) {
        return Some(format!("{shadow} takes its place"));
    }
    let (other, key) = later_file(root, own_name, own_text)?;
    Some(format!("{other} sorts later and sets `{key}` too"))
}

/// The key of `own_text` that a later file sets to another value, and that file.
///
/// Of two files that set one key of one entry, that whose name sorts last counts.
fn later_file(root: &RootFolder, own_name: &str, own_text: &str) -> Option<(String, String)> {
    let own = parse_documents(own_text).ok()?;
    for folder in FOLDERS {
        for name in root.look_in(folder) {
            if !has_extension(&name, "yaml") || name.as_str() <= own_name {
                continue;
            }
            let path = format!("{folder}/{name}");
            let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
            let others = parse_documents(&text).unwrap_or_default();
            let mut pairs = own.iter().flat_map(|own| others.iter().map(move |it| (own, it)));
            if let Some(key) = pairs.find_map(|(own, other)| shared_key(own, other)) {
                return Some((path, key));
            }
        }
    }
    None
}

/// The keys and values of the only entry of a text, as lines of `[Link]`: `MTUBytes=1400`, `GenericReceiveOffload=false`. netplan
/// makes them of its keys.
pub(super) fn to_link_lines(own_text: &str) -> Vec<(String, String)> {
    let documents = parse_documents(own_text).unwrap_or_default();
    let types = NetplanDeviceType::ALL.map(NetplanDeviceType::key);
    let entries = documents.iter().flat_map(|document| {
        types.iter().filter_map(|device_type| document["network"][*device_type].as_hash())
    });
    let pairs = entries.flat_map(|it| it.values()).filter_map(Yaml::as_hash).flatten();
    let lines = pairs.filter_map(|(key, value)| {
        let words = scalar_text(key)?;
        let key = match words.as_str() {
            "mtu" => "MTUBytes".to_owned(),
            words => words.split('-').map(capitalize).collect(),
        };
        Some((key, scalar_text(value)?))
    });
    lines.collect()
}

fn capitalize(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// A key that both documents set for one entry, to different values.
fn shared_key(own: &Yaml, other: &Yaml) -> Option<String> {
    NetplanDeviceType::ALL.into_iter().map(NetplanDeviceType::key).find_map(|device_type| {
        let entries = own["network"][device_type].as_hash()?;
        entries.iter().find_map(|(id, said)| {
            let rival = other["network"][device_type].as_hash()?.get(id)?.as_hash()?;
            let keys = said.as_hash()?.iter();
            let mut keys = keys.filter(|(key, value)| {
                rival.get(key).is_some_and(|theirs| theirs != *value && theirs.as_hash().is_none())
            });
            keys.next()?.0.as_str().map(str::to_owned)
        })
    })
}

/// Adds what a file says. Returns the `renderer` that it names for all.
fn read(
    text: &str,
    file: &str,
    definitions: &mut BTreeMap<String, NetplanDefinition>,
) -> Result<Option<String>, String> {
    let documents = parse_documents(text)
        .map_err(|error| format!("it is not YAML, and netplan refuses it too: {error}"))?;
    for document in &documents {
        for device_type in NetplanDeviceType::ALL {
            let Some(entries) = document["network"][device_type.key()].as_hash() else { continue };
            for (id, said) in entries {
                let Some(id) = scalar_text(id) else { continue };
                let new = || NetplanDefinition::new(device_type);
                let definition = definitions.entry(id).or_insert_with(new);
                definition.add(said, file)?;
                file.clone_into(&mut definition.file);
            }
        }
    }
    let mut renderers =
        documents.iter().map(|document| scalar_text(&document["network"]["renderer"]));
    Ok(renderers.next_back().flatten())
}

/// The documents of a text, in which each scalar is a string. netplan takes it as it stands: `007` is a name, and so is `null`.
fn parse_documents(text: &str) -> Result<Vec<Yaml>, ScanError> {
    YamlLoader::load_from_str(text)?; // tells of a key that is there twice
    let mut loader = TextLoader::default();
    Parser::new_from_str(text).load(&mut loader, true)?;
    Ok(loader.0.documents().to_vec())
}

/// Loads all scalars as strings.
#[derive(Default)]
struct TextLoader(YamlLoader);

impl MarkedEventReceiver for TextLoader {
    fn on_event(&mut self, event: Event, mark: Marker) {
        let event = match event {
            Event::Scalar(text, _, anchor, _) => {
                Event::Scalar(text, TScalarStyle::DoubleQuoted, anchor, None)
            }
            other => other,
        };
        self.0.on_event(event, mark);
    }
}

fn scalar_text(value: &Yaml) -> Option<String> {
    value.as_str().map(str::to_owned)
}

impl NetplanDefinition {
    /// Adds what one file says of the id. Fails where netplan refuses it, and all files with it.
    fn add(&mut self, said: &Yaml, file: &str) -> Result<(), String> {
        if said["mode"].as_str() == Some("vxlan") && self.device_type == NetplanDeviceType::Tunnels
        {
            self.device_type = NetplanDeviceType::Vxlans;
        }
        let keys = said.as_hash().into_iter().flat_map(|it| it.keys()).filter_map(Yaml::as_str);
        let is_of_link = |key: &str| {
            ["mtu", "wakeonlan", "set-name"].contains(&key) || key.ends_with("-offload")
        };
        self.has_link_keys |= keys.into_iter().any(is_of_link);
        self.set_name = scalar_text(&said["set-name"]).or(self.set_name.take());
        self.renderer = scalar_text(&said["renderer"]).or(self.renderer.take());
        let mtu = scalar_text(&said["mtu"]);
        if let Some(mtu) = mtu.as_ref().filter(|mtu| mtu.parse::<u32>().is_err()) {
            return Err(format!("`mtu: {mtu}` is no number, and netplan refuses it too"));
        }
        self.mtu = mtu.map(|mtu| (mtu, file.to_owned())).or(self.mtu.take());
        let matched = &said["match"];
        if matched.as_hash().is_some() {
            self.has_match = true;
            let driver = &matched["driver"];
            let listed = driver.as_vec().map_or(std::slice::from_ref(driver), Vec::as_slice);
            let drivers: Vec<String> = listed.iter().filter_map(scalar_text).collect();
            if !drivers.is_empty() {
                self.drivers = drivers;
            }
            self.matched_name = scalar_text(&matched["name"]).or(self.matched_name.take());
            self.matched_address =
                scalar_text(&matched["macaddress"]).or(self.matched_address.take());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use latput_knobs::export::{Format, Match, export};
    use latput_knobs::parse_assignment;

    use super::*;

    fn parse_definitions(texts: &[&str]) -> BTreeMap<String, NetplanDefinition> {
        let mut definitions = BTreeMap::new();
        for text in texts {
            read(text, "file", &mut definitions).unwrap();
        }
        definitions
    }

    #[track_caller]
    fn check_definition(texts: &[&str], interface: &str, expected: Option<(&str, &str)>) {
        let address = Some("52:54:00:AA:bb:cc".to_owned());
        let properties = MatchProperties::OfThisHost { address, driver: Some("ixgbe".to_owned()) };
        let definitions = parse_definitions(texts);
        let found = find_definition(&definitions, interface, &properties);
        assert_eq!(found.map(|(id, it)| (it.device_type.key(), id.as_str())), expected);
    }

    #[test]
    fn interface_has_the_device_type_of_its_entry() {
        let text = "network:\n  version: 2\n  ethernets:\n    eno1: {}\n    \"eno2\": {dhcp4: true}\n  \
                    bonds:\n    bond0:\n      interfaces: [eno1, eno2]\n  vlans:\n    v.10: {id: 10, link: bond0}\n";
        check_definition(&[text], "bond0", Some(("bonds", "bond0")));
        check_definition(&[text], "v.10", Some(("vlans", "v.10")));
        check_definition(&[text], "eno2", Some(("ethernets", "eno2")));
        check_definition(&[text], "eno3", None);
    }

    #[test]
    fn interface_matches_by_name_address_and_pattern() {
        let by_address =
            "network:\n  ethernets:\n    id0:\n      match: {macaddress: \"52:54:00:aa:bb:cc\"}\n";
        let named = "network:\n  ethernets:\n    id0:\n      set-name: eth7\n";
        check_definition(&[by_address, named], "eth7", Some(("ethernets", "id0")));
        check_definition(&[by_address], "eth7", Some(("ethernets", "id0")));
        check_definition(&[by_address, named], "id0", None);
        let pattern = "network:\n  ethernets:\n    all:\n      match: {name: \"en?1*\"}\n";
        check_definition(&[pattern], "eno1np0", Some(("ethernets", "all")));
        check_definition(&[pattern], "eth1", None);
        let class = "network:\n  ethernets:\n    all:\n      match: {name: \"eth[!0-6]\"}\n";
        check_definition(&[class], "eth7", Some(("ethernets", "all")));
        check_definition(&[class], "eth3", None);
    }

    #[test]
    fn driver_pattern_and_address_may_be_of_others() {
        let entry = |matched: &str| {
            format!(
                "network:\n  ethernets:\n    all:\n      match: {{{matched}}}\n      mtu: 9000\n"
            )
        };
        for (matched, others) in [
            ("driver: ixgbe", Some("driver ixgbe")),
            ("driver: [\"bnx*\", \"ix?be\"]", Some("driver bnx* ix?be")),
            ("", Some("`match` is empty")),
            ("name: eth7, driver: ixgbe", None),
            ("name: \"eth[0-9]\"", Some("eth[0-9]")),
            (
                "macaddress: \"52:54:00:aa:bb:cc\"",
                Some("macaddress 52:54:00:aa:bb:cc, which may be another's"),
            ),
            ("name: eth7, macaddress: \"52:54:00:aa:bb:cc\"", None),
        ] {
            let text = entry(matched);
            check_definition(&[&text], "eth7", Some(("ethernets", "all")));
            // An image does not tell: the entry may be of the interface.
            let definitions = parse_definitions(&[&text]);
            let (_, found) =
                find_definition(&definitions, "eth7", &MatchProperties::Unknown).unwrap();
            assert_eq!(found.shared_match(&MatchProperties::Unknown).as_deref(), others);
        }
        let own = "network:\n  ethernets:\n    eth7: {}\n";
        check_definition(&[&entry("driver: ixgbe"), own], "eth7", Some(("ethernets", "eth7")));
        check_definition(&[&entry("driver: \"e1000*\"")], "eth7", None);
        let virtual_one = MatchProperties::OfThisHost { address: None, driver: None };
        assert!(
            find_definition(&parse_definitions(&[&entry("driver: \"*\"")]), "eth7", &virtual_one)
                .is_none()
        );
    }

    /// The lines for an interface of this kind that was measured on another host.
    fn export_lines(kind: Option<&str>) -> Result<String, CliError> {
        let setting = [parse_assignment("mtu=1400").unwrap(), parse_assignment("gro=off").unwrap()];
        let setting = setting.into_iter().collect();
        let fingerprint = Some("other/0000:02:00.0");
        let meant = MeantInterface { fingerprint, measured_kind: kind, given_kind: None };
        let target = Target::new("nic7", Match::Name).unwrap();
        let unread = Err(CliError::usage("the files of this host say nothing of another"));
        let target = in_entry(target, unread, &setting, meant)?;
        let text = export(Format::Netplan, &target, &setting, "").text;
        Ok(text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ")
            .trim()
            .to_owned())
    }

    #[test]
    fn recorded_kind_gives_the_device_type() {
        let exported = |kind: &str| export_lines(Some(kind)).unwrap();
        assert_eq!(exported("bond"), "network: version: 2 bonds: nic7: mtu: 1400");
        assert_eq!(exported("vlan"), "network: version: 2 vlans: nic7: mtu: 1400");
        let wifi = exported("wlan");
        assert!(wifi.contains("wifis: nic7: mtu: 1400 generic-receive-offload: false"), "{wifi}");
        assert_eq!(exported("vrf"), "", "netplan has no key for it");
        assert_eq!(exported("vxlan"), "");
    }

    #[test]
    fn unknown_kind_is_refused_with_lines() {
        for (kind, why) in [
            (None, "neither this host nor the results"),
            (Some("macvlan"), "none for the kind `macvlan`"),
            (Some("veth"), "below `ethernets` in a container"),
        ] {
            let error = export_lines(kind).unwrap_err().error.to_string();
            let lines = "mtu: 1400; generic-receive-offload: false";
            assert!(error.contains(why) && error.contains(lines), "{error}");
        }
    }

    #[test]
    fn id_is_taken_as_it_stands() {
        for id in ["007", "0123", "0x1F", "True", "null", "1e3", "~"] {
            let text = format!("network:\n  ethernets:\n    {id}:\n      match: {{name: eth7}}\n");
            check_definition(&[&text], "eth7", Some(("ethernets", id)));
        }
    }

    #[test]
    fn entry_becomes_lines_of_a_link_file() {
        let text = "network:\n  ethernets:\n    eth7:\n      mtu: 1400\n      tcp6-segmentation-offload: false\n";
        let pairs = [("MTUBytes", "1400"), ("Tcp6SegmentationOffload", "false")];
        assert_eq!(to_link_lines(text), pairs.map(|(key, value)| (key.into(), value.into())));
    }

    #[test]
    fn broken_file_is_refused() {
        let text = "network: {ethernets: {eth7: {mtu: abc}}}";
        let error = read(text, "file", &mut BTreeMap::new()).unwrap_err();
        assert!(error.contains("`mtu: abc` is no number"), "{error}");
        let error = read("network: [", "file", &mut BTreeMap::new()).unwrap_err();
        assert!(error.contains("netplan refuses it too"), "{error}");
    }
}
