//! The stanzas of interfaces(5), by which ifupdown configures an interface.

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use super::glob::is_like;
use super::udev_rules::UdevChanges;

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

/// Options of Debian's package `ethtool`, by how they begin, with the request that it makes of them
/// (`/etc/network/if-up.d/ethtool`).
const REQUESTS: [(&str, &str); 4] = [
    ("offload-", "-K"),
    ("hardware-irq-coalesce-", "-C"),
    ("hardware-dma-ring-", "-G"),
    ("ethernet-pause-", "-A"),
];

/// Options whose values are commands that ifup runs.
const COMMANDS: [&str; 3] = ["pre-up", "up", "post-up"];

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
        let mut file = InterfacesFile::default();
        for path in std::iter::once(FILE.to_owned()).chain(more) {
            let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
            file.add(&path, &text);
        }
        file.stanzas_of(interface)
    }

    /// The changes that they make once udev is done: the MTU, the options of Debian's package `ethtool`, and commands.
    pub(super) fn actions(&self) -> UdevChanges {
        let mut actions = UdevChanges::default();
        let mtu = self.options.iter().rfind(|(option, _)| option == "mtu");
        for (option, value) in &self.options {
            if COMMANDS.contains(&option.as_str()) {
                actions.add_command(value);
            }
            for (start, request) in REQUESTS {
                if let Some(parameter) = option.strip_prefix(start) {
                    actions.add_request(request, parameter, value);
                }
            }
        }
        if let Some((_, mtu)) = mtu {
            actions.add_mtu(mtu);
        }
        actions
    }
}

/// A stanza `iface NAME FAMILY METHOD`.
#[derive(Debug, Default)]
struct Stanza {
    file: String,
    name: String,
    /// The stanza whose options it has too (`inherits NAME`).
    inherits: Option<String>,
    options: Vec<(String, String)>,
}

/// All files of interfaces(5) together.
#[derive(Debug, Default)]
struct InterfacesFile {
    stanzas: Vec<Stanza>,
    /// Interfaces with the names of the stanzas that ifup takes for them: `auto IFACE=NAME`.
    mapped: Vec<(String, String)>,
}

impl InterfacesFile {
    fn add(&mut self, file: &str, text: &str) {
        let mut is_inside = false;
        for line in text.replace("\\\n", " ").lines().map(str::trim) {
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if word.is_empty() || word.starts_with('#') {
                continue;
            }
            let mut words = rest.split_whitespace();
            if word == "iface" {
                let name = words.next().unwrap_or_default().to_owned();
                let inherits = words.skip_while(|word| *word != "inherits").nth(1);
                let (inherits, file) = (inherits.map(str::to_owned), file.to_owned());
                self.stanzas.push(Stanza { file, name, inherits, options: Vec::new() });
            } else if word == "auto" || word.starts_with("allow-") {
                let pairs = words.filter_map(|it| it.split_once('='));
                self.mapped.extend(pairs.map(|(name, stanza)| (name.into(), stanza.into())));
            } else if is_inside
                && !BEGINNINGS.contains(&word)
                && let Some(stanza) = self.stanzas.last_mut()
            {
                stanza.options.push((word.to_owned(), rest.trim().to_owned()));
                continue;
            }
            is_inside = word == "iface";
        }
    }

    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Stanza> {
        self.stanzas.iter().filter(move |stanza| stanza.name == name)
    }

    fn stanzas_of(&self, interface: &str) -> Option<InterfaceStanzas> {
        // A pattern begins with `/`.
        let is_its = |name: &str| match name.strip_prefix('/') {
            Some(pattern) => is_like(interface, pattern),
            None => name == interface,
        };
        let mapped = self.mapped.iter().filter(|(name, _)| is_its(name));
        let mapped = mapped.map(|(_, stanza)| stanza.as_str());
        let mut names: Vec<&str> = std::iter::once(interface).chain(mapped).collect();
        let mut at = 0;
        while let Some(name) = names.get(at).copied() {
            for inherited in self.named(name).filter_map(|stanza| stanza.inherits.as_deref()) {
                if !names.contains(&inherited) {
                    names.push(inherited);
                }
            }
            at += 1;
        }
        let file = names.iter().flat_map(|name| self.named(name)).last()?.file.clone();
        // An option of its own stanza counts before an inherited one, and so comes last.
        let found = names.iter().rev().flat_map(|name| self.named(name));
        let own = found.flat_map(|stanza| stanza.options.clone());
        // Commands of other stanzas may name it.
        let is_of_it = |(option, command): &&(String, String)| {
            COMMANDS.contains(&option.as_str())
                && command.split_whitespace().any(|word| word == interface)
        };
        let others = self.stanzas.iter().filter(|stanza| !names.contains(&stanza.name.as_str()));
        let others = others.flat_map(|stanza| stanza.options.iter().filter(is_of_it)).cloned();
        Some(InterfaceStanzas { file, options: others.chain(own).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_options(texts: &[&str], interface: &str) -> Option<Vec<(String, String)>> {
        let mut file = InterfacesFile::default();
        for text in texts {
            file.add("file", text);
        }
        Some(file.stanzas_of(interface)?.options)
    }

    #[test]
    fn options_of_all_stanzas_are_read() {
        let text = "auto lo eth9\niface lo inet loopback\n  mtu 1\niface eth9 inet dhcp\n  # mtu 2\n  mtu \\\n 9000\n\
                    allow-hotplug eth8\niface eth8 inet dhcp\nmtu 3\niface eth9 inet6 auto\n up ip link show\n";
        let options = read_options(&[text], "eth9").unwrap();
        assert_eq!(
            options,
            [("mtu", "9000"), ("up", "ip link show")].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(read_options(&[text], "eth7"), None);
    }

    #[test]
    fn logical_and_inherited_stanzas_are_of_the_interface() {
        let texts = [
            "auto /eth[89]*=home\niface home inet dhcp inherits base\n mtu 1500\n",
            "iface base inet dhcp\n mtu 9000\n offload-gro on\n post-up /sbin/ip link set $IFACE mtu 1500\n",
        ];
        let options = read_options(&texts, "eth9").unwrap();
        let stanzas = InterfaceStanzas { file: String::new(), options };
        let own = |key, value| UdevChanges::from_link_lines([(key, value)].into_iter());
        let undone = |key, value| own(key, value).find_conflict(&stanzas.actions());
        assert_eq!(undone("MTUBytes", "1400").as_deref(), Some("sets `mtu 1500`"));
        assert_eq!(
            undone("GenericReceiveOffload", "no").as_deref(),
            Some("sets `ethtool -K gro on`")
        );
        assert_eq!(undone("RxCoalesceSec", "9us"), None);
        assert_eq!(read_options(&texts, "eth7"), None);
    }
}
