//! The stanzas of interfaces(5), by which ifupdown configures an interface.

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

const FILE: &str = "/etc/network/interfaces";
/// The folder that Debian's file names with `source`.
const FOLDER: &str = "/etc/network/interfaces.d";
/// Words that begin a stanza, and end the one before.
const BEGINNINGS: [&str; 8] = [
    "iface",
    "auto",
    "mapping",
    "source",
    "source-directory",
    "no-auto-down",
    "no-scripts",
    "rename",
];

/// The stanzas of one interface.
pub(super) struct InterfaceStanzas {
    /// The file of the last one.
    pub(super) file: String,
    /// Options with their values, in order.
    options: Vec<(String, String)>,
}

impl InterfaceStanzas {
    /// Those of `interface`; `None` if there are none.
    pub(super) fn read(root: &RootFolder, interface: &str) -> Option<Self> {
        let more = root.look_in(FOLDER);
        let more = more.into_iter().map(|name| format!("{FOLDER}/{name}"));
        let mut found: Option<Self> = None;
        for file in std::iter::once(FILE.to_owned()).chain(more) {
            let text = root.look_at(&file, TEXT_BYTES_MOST).unwrap_or_default();
            let Some(options) = options_of(&text, interface) else { continue };
            let stanzas = found.get_or_insert(Self { file: String::new(), options: Vec::new() });
            stanzas.file = file;
            stanzas.options.extend(options);
        }
        found
    }

    /// The value of an option that counts.
    pub(super) fn option_value(&self, option: &str) -> Option<&str> {
        let mut values = self.options.iter().rev();
        values.find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

/// The options of all stanzas of an interface; `None` if it has none.
fn options_of(text: &str, interface: &str) -> Option<Vec<(String, String)>> {
    let mut options = None;
    let mut is_inside = false;
    for line in text.replace("\\\n", " ").lines().map(str::trim) {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        if BEGINNINGS.contains(&word) || word.starts_with("allow-") {
            is_inside = word == "iface" && rest.split_whitespace().next() == Some(interface);
            if is_inside {
                options.get_or_insert_with(Vec::new);
            }
        } else if let Some(options) = options.as_mut().filter(|_| is_inside) {
            options.push((word.to_owned(), rest.trim().to_owned()));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_all_stanzas_are_read() {
        let text = "auto lo eth9\niface lo inet loopback\n  mtu 1\niface eth9 inet dhcp\n  # mtu 2\n  mtu \\\n 9000\n\
                    allow-hotplug eth8\niface eth8 inet dhcp\nmtu 3\niface eth9 inet6 auto\n up ip link show\n";
        let options = options_of(text, "eth9").unwrap();
        assert_eq!(
            options,
            [("mtu", "9000"), ("up", "ip link show")].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(options_of(text, "eth7"), None);
    }
}
