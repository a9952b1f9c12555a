//! The interfaces that NetworkManager leaves alone: `unmanaged-devices`, and `managed` of the sections of devices
//! (NetworkManager.conf(5)).

use std::collections::BTreeSet;

use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::{Identity, RootFolder};

use super::glob::is_like;
use super::ifupdown::InterfaceStanzas;
use super::ini::{ConfigSection, is_true, parse_sections};
use super::udev_files::has_extension;
use super::udev_rules::find_unmanaging_rule;
use crate::commands::netplan;

/// The owner's configuration; it is read behind the first two folders of snippets and before the last.
const MAIN: &str = "/etc/NetworkManager/NetworkManager.conf";
/// The folders of snippets, in the order in which they are read. A name in a later one hides those before.
const FOLDERS: [&str; 3] =
    ["/usr/lib/NetworkManager/conf.d", "/run/NetworkManager/conf.d", "/etc/NetworkManager/conf.d"];
const KEY: &str = "unmanaged-devices";
const COMMENTS: [char; 1] = ['#'];

/// An interface by which a list of devices is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedDevice<'a> {
    pub(super) name: &'a str,
    /// The type of its profile, by the name of the section that it has.
    pub(super) connection_type: &'a str,
    /// Properties of an interface of the running system.
    pub(super) identity: Option<&'a Identity>,
}

/// The file by which NetworkManager leaves the interface alone, with its line; `None` where none is known to say so.
pub(super) fn by_file(root: &RootFolder, device: ListedDevice<'_>) -> Option<String> {
    let texts = read_config(root);
    let files = parse_config(&texts);
    by_list(&files, device)
        .or_else(|| by_section(&files, device))
        .or_else(|| by_ifupdown(root, &files, device.name))
        .or_else(|| find_unmanaging_rule(root, device.name))
        .or_else(|| netplan::NetplanDefinitions::read(root).ok()?.networkd_file(device.name))
}

/// The MTU that NetworkManager gives, or may give, a device whose profile has none (`ethernet.mtu` of `[connection]`), and the
/// file that says so.
pub(super) fn default_mtu(root: &RootFolder, device: ListedDevice<'_>) -> Option<(String, String)> {
    let texts = read_config(root);
    let files = parse_config(&texts);
    let mut sections = files.iter().rev().flat_map(|(path, sections)| {
        sections.iter().filter(|it| it.name.starts_with("connection")).map(move |it| (path, it))
    });
    sections.find_map(|(path, section)| {
        let specs = section.last_value("match-device").map(split_specs);
        if specs.is_some_and(|specs| matches_list(&specs, device) == Some(false)) {
            return None;
        }
        let mtu = section.last_value("ethernet.mtu").filter(|mtu| !["", "0"].contains(mtu))?;
        Some((mtu.to_owned(), (*path).to_owned()))
    })
}

/// The files with their texts, in the order in which they are read.
fn read_config(root: &RootFolder) -> Vec<(String, String)> {
    let read = |path: String| {
        let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
        (path, text)
    };
    config_files(root).into_iter().map(read).collect()
}

fn parse_config(texts: &[(String, String)]) -> Vec<(&str, Vec<ConfigSection<'_>>)> {
    let files = texts.iter().map(|(path, text)| (path.as_str(), parse_sections(text, &COMMENTS)));
    files.filter(|(path, sections)| *path == MAIN || !is_switched_off(sections)).collect()
}

/// The file of interfaces(5) that has the interface, where NetworkManager's plugin `ifupdown` leaves those alone. Debian's
/// NetworkManager has that plugin unless told otherwise.
fn by_ifupdown(root: &RootFolder, files: &SectionsByFile<'_>, interface: &str) -> Option<String> {
    let value = |name: &str, key: &str| {
        let sections = files.iter().flat_map(|(_, sections)| sections);
        sections.filter(|it| it.name == name).filter_map(|it| it.last_value(key)).next_back()
    };
    let has_plugin =
        value("main", "plugins").is_none_or(|it| split_specs(it).iter().any(|it| it == "ifupdown"));
    let is_managed = value("ifupdown", "managed").is_some_and(|it| is_true(it) == Some(true));
    let stanzas = InterfaceStanzas::read(root, interface).filter(|_| has_plugin && !is_managed)?;
    Some(format!("{} has the interface, and `managed` of [ifupdown] is not true", stanzas.file))
}

/// The files with their sections, in the order in which they are read.
type SectionsByFile<'a> = [(&'a str, Vec<ConfigSection<'a>>)];

/// The last line that names `unmanaged-devices`, where all such lines together have the device.
fn by_list(files: &SectionsByFile<'_>, device: ListedDevice<'_>) -> Option<String> {
    let mut said: Option<String> = None;
    let mut specs: Vec<String> = Vec::new();
    for (path, sections) in files {
        let keyfile = sections.iter().filter(|section| section.name == "keyfile");
        for (key, value) in keyfile.flat_map(|section| &section.lines) {
            let words = split_specs(value);
            match key.strip_prefix(KEY) {
                Some("") => specs = words,
                Some("+") => specs.extend(words),
                Some("-") => specs.retain(|spec| !words.contains(spec)),
                _ => continue,
            }
            said = Some(format!("{path} has `{key}={value}`"));
        }
    }
    said.filter(|_| matches_list(&specs, device) == Some(true))
}

/// The line of the section that counts, where it says not to manage the device. A file that is read later counts first; in
/// a file the order is from top to bottom, and `[device]` itself comes last.
fn by_section(files: &SectionsByFile<'_>, device: ListedDevice<'_>) -> Option<String> {
    for (path, sections) in files.iter().rev() {
        let (last, named): (Vec<&ConfigSection<'_>>, Vec<_>) = sections
            .iter()
            .filter(|section| section.name.starts_with("device"))
            .partition(|section| section.name == "device");
        for section in named.into_iter().chain(last) {
            let managed = section.last_value("managed");
            let stops =
                section.last_value("stop-match").is_some_and(|word| is_true(word) != Some(false));
            if managed.is_none() && !stops {
                continue;
            }
            let specs = section.last_value("match-device").map(split_specs);
            match specs.map_or(Some(true), |specs| matches_list(&specs, device)) {
                Some(true) => {}
                Some(false) => continue,
                // Nobody knows whether it counts.
                None => return None,
            }
            return managed
                .filter(|word| is_true(word) == Some(false))
                .map(|word| format!("{path} has `managed={word}` in [{}]", section.name));
        }
    }
    None
}

/// The files in the order in which they are read.
fn config_files(root: &RootFolder) -> Vec<String> {
    let mut hidden: BTreeSet<String> = BTreeSet::new();
    let mut files: Vec<String> = Vec::new();
    for folder in FOLDERS.into_iter().rev() {
        let names = root.look_in(folder).into_iter().rev();
        for name in names.filter(|name| has_extension(name, "conf")) {
            if hidden.insert(name.clone()) {
                files.push(format!("{folder}/{name}"));
            }
        }
        if folder == FOLDERS[2] {
            files.push(MAIN.to_owned());
        }
    }
    files.reverse();
    files
}

/// Whether a file says of itself that it is not to be read.
fn is_switched_off(sections: &[ConfigSection<'_>]) -> bool {
    let of_file = sections.iter().filter(|section| section.name == ".config");
    let mut enabled = of_file.filter_map(|section| section.last_value("enable"));
    enabled.any(|word| is_true(word) == Some(false))
}

fn split_specs(value: &str) -> Vec<String> {
    let words = value.split([',', ';']).map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Whether a list has the device: none of its exceptions takes it, and one of the others does, or there are none. `None`
/// where nobody knows.
fn matches_list(specs: &[String], device: ListedDevice<'_>) -> Option<bool> {
    let (excepted, listed): (Vec<&str>, Vec<&str>) =
        specs.iter().map(String::as_str).partition(|spec| spec.starts_with("except:"));
    let is_excepted =
        any_known(excepted.iter().map(|spec| matches_spec(&spec["except:".len()..], device)));
    let is_listed = if listed.is_empty() {
        Some(!excepted.is_empty())
    } else {
        any_known(listed.iter().map(|spec| matches_spec(spec, device)))
    };
    match (is_excepted, is_listed) {
        (Some(true), _) | (_, Some(false)) => Some(false),
        (Some(false), Some(true)) => Some(true),
        _ => None,
    }
}

/// Whether one of them is true; `None` where that hangs on one that nobody knows.
fn any_known(answers: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut found = Some(false);
    for answer in answers {
        match answer {
            Some(true) => return Some(true),
            Some(false) => {}
            None => found = None,
        }
    }
    found
}

/// Whether one word of a list takes the device; `None` where nobody knows.
fn matches_spec(spec: &str, device: ListedDevice<'_>) -> Option<bool> {
    let Some((kind, wanted)) = spec.split_once(':') else {
        return Some(spec == "*" || spec == device.name);
    };
    match kind {
        "interface-name" => Some(match wanted.strip_prefix('=') {
            Some(name) => name == device.name,
            None => is_like(device.name, &plain_glob(wanted.trim_start_matches('~'))),
        }),
        "type" => Some(wanted == device.connection_type),
        "mac" => {
            let own = device.identity?.permanent_mac.as_deref()?;
            Some(own.eq_ignore_ascii_case(wanted))
        }
        "driver" if !wanted.contains('/') => Some(device.identity?.driver.as_deref()? == wanted),
        _ => None,
    }
}

/// A pattern of NetworkManager's lists, which has `*` and `?` only.
fn plain_glob(pattern: &str) -> String {
    pattern.replace('\\', r"\\").replace('[', r"\[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_list_takes_sure_devices_only() {
        let permanent_mac = Some("52:54:00:aa:bb:cc".to_owned());
        let identity =
            Identity { permanent_mac, driver: Some("ice".to_owned()), ..Identity::default() };
        let image = ListedDevice { name: "nic7", connection_type: "ethernet", identity: None };
        let own = ListedDevice { identity: Some(&identity), ..image };
        for (list, of_image, of_own) in [
            ("*", true, true),
            ("nic7", true, true),
            ("eth0;interface-name:nic*", true, true),
            ("interface-name:nic[0-9]", false, false),
            ("interface-name:=nic*", false, false),
            ("*,except:type:wifi,except:type:gsm", true, true),
            ("*,except:type:ethernet", false, false),
            ("except:interface-name:eth0", true, true),
            ("*,except:interface-name:nic7", false, false),
            ("mac:52:54:00:AA:BB:CC", false, true),
            ("*,except:mac:52:54:00:aa:bb:cd", false, true),
            ("driver:ice", false, true),
            ("driver:ice/1.*", false, false),
            ("", false, false),
        ] {
            let specs = split_specs(list);
            let is_sure = |device| matches_list(&specs, device) == Some(true);
            assert_eq!((is_sure(image), is_sure(own)), (of_image, of_own), "{list}");
        }
    }

    #[test]
    fn device_sections_count_by_file_and_order() {
        let device = ListedDevice { name: "nic7", connection_type: "ethernet", identity: None };
        let off = "[device]\nmanaged=0\n";
        let on = "[device-on]\nmatch-device=interface-name:nic7\nmanaged=1\n";
        let other = "[device-x]\nmatch-device=type:wifi\nmanaged=1\n";
        let unknown = "[device-x]\nmatch-device=mac:52:54:00:aa:bb:cc\nmanaged=1\n";
        let stops = "[device-x]\nmatch-device=nic7\nstop-match=yes\n";
        for (texts, is_left) in [
            (&[off][..], true),
            (&["[device-a]\nmatch-device=interface-name:nic*\nmanaged=no"], true),
            (&["[device]\nmanaged=maybe"], false),
            (&["[connection]\nmanaged=0"], false),
            // In one file `[device]` comes last, wherever it stands; a later file counts first.
            (&[&format!("{off}{on}")], false),
            (&[on, off], true),
            (&[off, on], false),
            (&[off, other], true),
            (&[off, unknown], false),
            (&[off, stops], false),
            (&[off, "[.config]\nenable=false\n[device]\nmanaged=1"], true),
        ] {
            let files: Vec<_> =
                texts.iter().map(|text| ("conf", parse_sections(text, &COMMENTS))).collect();
            let files: Vec<_> =
                files.into_iter().filter(|(_, sections)| !is_switched_off(sections)).collect();
            assert_eq!(by_section(&files, device).is_some(), is_left, "{texts:?}");
        }
    }
}
