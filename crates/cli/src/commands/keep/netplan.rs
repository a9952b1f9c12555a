//! The entry of netplan's files that an interface belongs to: its device type and its id, which need not be the
//! interface's name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use latput_knobs::export::NetplanEntry;
use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;
use yaml_rust2::{Yaml, YamlLoader};

use crate::exit::{CliError, Code};

/// The folders of netplan's files; of two files with one name that of the last folder counts (netplan(5)).
const FOLDERS: [&str; 3] = ["/usr/lib/netplan", "/etc/netplan", "/run/netplan"];
/// The device types under which netplan has MTU and offloads (netplan(5), "Device configuration IDs").
const DEVICE_TYPES: [&str; 10] = [
    "ethernets",
    "wifis",
    "bonds",
    "bridges",
    "vlans",
    "vrfs",
    "tunnels",
    "modems",
    "dummy-devices",
    "virtual-ethernets",
];

/// Definition of one id, of all files together.
#[derive(Debug, Default)]
struct Definition {
    device_type: String,
    file: String,
    set_name: Option<String>,
    has_match: bool,
    matched_name: Option<String>,
    matched_address: Option<String>,
}

impl Definition {
    /// Whether it is of `interface`, which has this address.
    fn is_of(&self, id: &str, interface: &str, address: Option<&str>) -> bool {
        if self.set_name.as_deref() == Some(interface) {
            return true;
        }
        if self.set_name.is_some() {
            return false;
        }
        if !self.has_match {
            return id == interface;
        }
        let has_name = self.matched_name.as_deref().is_some_and(|it| is_like(interface, it));
        let mine = self.matched_address.as_deref().zip(address);
        has_name || mine.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
    }
}

/// An entry, and the file that has it.
pub(super) struct FoundEntry {
    pub(super) entry: NetplanEntry,
    pub(super) file: String,
}

/// The entry of `interface` in the files of netplan below `root`; `None` where no file has one.
///
/// Fails where a file is no YAML, which netplan refuses as well.
pub(super) fn entry_of(root: &RootFolder, interface: &str) -> Result<Option<FoundEntry>, CliError> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        for name in root.entries(folder).unwrap_or_default() {
            let is_yaml = Path::new(&name).extension().is_some_and(|end| end == "yaml");
            // Those that `keep` writes say of each id what another file says first.
            if is_yaml && !name.contains("latput") {
                files.insert(name.clone(), format!("{folder}/{name}"));
            }
        }
    }
    let mut definitions: BTreeMap<String, Definition> = BTreeMap::new();
    for path in files.values() {
        let Some(text) = root.look_at(path, TEXT_BYTES_MOST) else { continue };
        let shown = root.below(path).display().to_string();
        read(&text, &shown, &mut definitions)
            .map_err(|problem| CliError::new(Code::Failed, format!("{shown}: {problem}")))?;
    }
    let address = (root.path() == Path::new("/"))
        .then(|| fs::read_to_string(format!("/sys/class/net/{interface}/address")).ok())
        .flatten();
    let address = address.as_deref().map(str::trim);
    let found = definitions.into_iter().find(|(id, it)| it.is_of(id, interface, address));
    Ok(found.map(|(id, definition)| FoundEntry {
        entry: NetplanEntry { device_type: definition.device_type, id },
        file: definition.file,
    }))
}

/// The key of `own_text` that a later file sets to another value, and that file.
///
/// Of two files that set one key of one entry, that whose name sorts last counts.
pub(super) fn later_file(
    root: &RootFolder,
    own_file: &str,
    own_text: &str,
) -> Option<(String, String)> {
    let own_name = Path::new(own_file).file_name()?.to_str()?;
    let own = YamlLoader::load_from_str(own_text).ok()?;
    for folder in FOLDERS {
        for name in root.entries(folder).unwrap_or_default() {
            let is_yaml = Path::new(&name).extension().is_some_and(|end| end == "yaml");
            if !is_yaml || name.as_str() <= own_name {
                continue;
            }
            let path = format!("{folder}/{name}");
            let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
            let others = YamlLoader::load_from_str(&text).unwrap_or_default();
            let mut pairs = own.iter().flat_map(|own| others.iter().map(move |it| (own, it)));
            if let Some(key) = pairs.find_map(|(own, other)| shared_key(own, other)) {
                return Some((path, key));
            }
        }
    }
    None
}

/// A key that both documents set for one entry, to different values.
fn shared_key(own: &Yaml, other: &Yaml) -> Option<String> {
    DEVICE_TYPES.into_iter().find_map(|device_type| {
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

/// Adds what a file says.
fn read(
    text: &str,
    file: &str,
    definitions: &mut BTreeMap<String, Definition>,
) -> Result<(), String> {
    let documents = YamlLoader::load_from_str(text)
        .map_err(|error| format!("it is not YAML, and netplan refuses it too: {error}"))?;
    for document in &documents {
        for device_type in DEVICE_TYPES {
            let Some(entries) = document["network"][device_type].as_hash() else { continue };
            for (id, said) in entries {
                let Some(id) = id.as_str() else { continue };
                let definition = definitions.entry(id.to_owned()).or_default();
                definition.add(said);
                device_type.clone_into(&mut definition.device_type);
                file.clone_into(&mut definition.file);
            }
        }
    }
    Ok(())
}

impl Definition {
    fn add(&mut self, said: &Yaml) {
        let text = |value: &Yaml| value.as_str().map(str::to_owned);
        self.set_name = text(&said["set-name"]).or(self.set_name.take());
        let matched = &said["match"];
        if matched.as_hash().is_some() {
            self.has_match = true;
            self.matched_name = text(&matched["name"]).or(self.matched_name.take());
            self.matched_address = text(&matched["macaddress"]).or(self.matched_address.take());
        }
    }
}

/// Whether a name is like a pattern with `*` and `?`.
pub(super) fn is_like(name: &str, pattern: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    let mut letters = name.chars();
    match (first, letters.next()) {
        ('*', None) => is_like("", rest),
        ('*', Some(_)) => is_like(name, rest) || is_like(letters.as_str(), pattern),
        ('?', Some(_)) => is_like(letters.as_str(), rest),
        (wanted, Some(letter)) if wanted == letter => is_like(letters.as_str(), rest),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str], interface: &str, address: Option<&str>) -> Option<(String, String)> {
        let mut definitions = BTreeMap::new();
        for text in texts {
            read(text, "file", &mut definitions).unwrap();
        }
        let mut all = definitions.into_iter();
        let (id, it) = all.find(|(id, it)| it.is_of(id, interface, address))?;
        Some((it.device_type, id))
    }

    #[track_caller]
    fn check(texts: &[&str], interface: &str, expected: Option<(&str, &str)>) {
        let address = Some("52:54:00:AA:bb:cc");
        let found = found(texts, interface, address);
        let found = found.as_ref().map(|(kind, id)| (kind.as_str(), id.as_str()));
        assert_eq!(found, expected);
    }

    #[test]
    fn interface_has_the_device_type_of_its_entry() {
        let text = "network:\n  version: 2\n  ethernets:\n    eno1: {}\n    \"eno2\": {dhcp4: true}\n  \
                    bonds:\n    bond0:\n      interfaces: [eno1, eno2]\n  vlans:\n    v.10: {id: 10, link: bond0}\n";
        check(&[text], "bond0", Some(("bonds", "bond0")));
        check(&[text], "v.10", Some(("vlans", "v.10")));
        check(&[text], "eno2", Some(("ethernets", "eno2")));
        check(&[text], "eno3", None);
    }

    #[test]
    fn interface_is_found_by_name_address_and_pattern() {
        let by_address =
            "network:\n  ethernets:\n    id0:\n      match: {macaddress: \"52:54:00:aa:bb:cc\"}\n";
        let named = "network:\n  ethernets:\n    id0:\n      set-name: eth7\n";
        check(&[by_address, named], "eth7", Some(("ethernets", "id0")));
        check(&[by_address], "eth7", Some(("ethernets", "id0")));
        check(&[by_address, named], "id0", None);
        let pattern = "network:\n  ethernets:\n    all:\n      match: {name: \"en?1*\"}\n";
        check(&[pattern], "eno1np0", Some(("ethernets", "all")));
        check(&[pattern], "eth1", None);
    }

    #[test]
    fn broken_file_is_refused() {
        let error = read("network: [", "file", &mut BTreeMap::new()).unwrap_err();
        assert!(error.contains("netplan refuses it too"), "{error}");
    }
}
