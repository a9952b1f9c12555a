//! The interfaces that NetworkManager leaves alone: `unmanaged-devices` of NetworkManager.conf(5).

use std::collections::BTreeSet;

use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::{Identity, RootFolder};

use super::glob::is_like;
use super::udev_files::has_extension;

/// The owner's configuration; it is read behind the first two folders of snippets and before the last.
const MAIN: &str = "/etc/NetworkManager/NetworkManager.conf";
/// The folders of snippets, in the order in which they are read. A name in a later one hides those before.
const FOLDERS: [&str; 3] =
    ["/usr/lib/NetworkManager/conf.d", "/run/NetworkManager/conf.d", "/etc/NetworkManager/conf.d"];
const KEY: &str = "unmanaged-devices";

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
    let mut said: Option<String> = None;
    let mut specs: Vec<String> = Vec::new();
    for path in files(root) {
        let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
        for (key, value) in lines(&text) {
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
    said.filter(|_| has(&specs, device))
}

/// The files in the order in which they are read.
fn files(root: &RootFolder) -> Vec<String> {
    let mut hidden: BTreeSet<String> = BTreeSet::new();
    let mut files: Vec<String> = Vec::new();
    for folder in FOLDERS.into_iter().rev() {
        let names = root.entries(folder).unwrap_or_default().into_iter().rev();
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

/// The lines of the section `[keyfile]`; the key of one that adds or takes away ends with that mark.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut is_inside = false;
    text.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with('[') {
            is_inside = line == "[keyfile]";
        }
        let pair = line.split_once('=').filter(|_| is_inside && !line.starts_with('#'));
        pair.map(|(key, value)| (key.trim(), value.trim()))
    })
}

fn split_specs(value: &str) -> Vec<String> {
    let words = value.split([',', ';']).map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Whether a list has the device for sure: nothing that may except it, and all or one of the others.
fn has(specs: &[String], device: ListedDevice<'_>) -> bool {
    let (excepted, listed): (Vec<&str>, Vec<&str>) =
        specs.iter().map(String::as_str).partition(|spec| spec.starts_with("except:"));
    let except = |spec: &str| takes(spec.trim_start_matches("except:"), device);
    let is_excepted = excepted.iter().any(|spec| except(spec) != Some(false));
    let is_listed = if listed.is_empty() {
        !excepted.is_empty()
    } else {
        listed.iter().any(|spec| takes(spec, device) == Some(true))
    };
    is_listed && !is_excepted
}

/// Whether one word of a list takes the device; `None` where nobody knows.
fn takes(spec: &str, device: ListedDevice<'_>) -> Option<bool> {
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
            assert_eq!((has(&specs, image), has(&specs, own)), (of_image, of_own), "{list}");
        }
    }
}
