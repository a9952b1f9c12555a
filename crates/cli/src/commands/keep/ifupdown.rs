//! The stanzas of interfaces(5), by which ifupdown configures an interface.

use latput_linux::RootFolder;
use latput_linux::files::TEXT_BYTES_MOST;

use super::udev_rules::UdevActions;

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
        let files: Vec<String> = std::iter::once(FILE.to_owned()).chain(more).collect();
        let text_of = |file: &String| root.look_at(file, TEXT_BYTES_MOST).unwrap_or_default();
        let texts: Vec<String> = files.iter().map(text_of).collect();
        let options = options_of(&texts, interface)?;
        let names = stanza_names(&texts, interface);
        let has_one =
            |text: &String| names.iter().any(|name| options_of_stanza(text, name).is_some());
        let mut with_text = files.into_iter().zip(&texts).rev();
        let file =
            with_text.find(|(_, text)| has_one(text)).map_or(FILE.to_owned(), |(file, _)| file);
        Some(Self { file, options })
    }

    /// The changes that they make once udev is done: the MTU, the options of Debian's package `ethtool`, and commands.
    pub(super) fn actions(&self) -> UdevActions {
        let mut actions = UdevActions::default();
        let mtu = self.options.iter().rfind(|(option, _)| option == "mtu");
        for (option, value) in &self.options {
            let request = REQUESTS.iter().find(|(start, _)| option.starts_with(start));
            match (option.as_str(), request) {
                ("pre-up" | "up" | "post-up", _) => actions.add_command(value),
                (_, Some((_, request))) => actions.add_command(&format!("ethtool {request}")),
                _ => {}
            }
        }
        if let Some((_, mtu)) = mtu {
            actions.add_command(&format!("ip mtu {mtu}"));
        }
        actions
    }
}

/// The names of the stanzas that ifup takes for an interface: its own, and `LOGICAL` of `auto IFACE=LOGICAL`.
fn stanza_names(texts: &[String], interface: &str) -> Vec<String> {
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    let words = lines.filter_map(|line| {
        let (word, rest) = line.split_once(char::is_whitespace)?;
        (word == "auto" || word.starts_with("allow-")).then_some(rest)
    });
    let mapped = words.flat_map(str::split_whitespace).filter_map(|it| it.split_once('='));
    let logical = mapped.filter(|(name, _)| *name == interface).map(|(_, logical)| logical);
    std::iter::once(interface).chain(logical).map(str::to_owned).collect()
}

/// The stanza from which one of `iface NAME FAMILY METHOD inherits OTHER` has its options.
fn inherited_stanza(words: &str) -> Option<&str> {
    let mut words = words.split_whitespace().skip_while(|word| *word != "inherits");
    words.nth(1)
}

/// The options of all stanzas of an interface; `None` if it has none.
fn options_of(texts: &[String], interface: &str) -> Option<Vec<(String, String)>> {
    let mut names = stanza_names(texts, interface);
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let stanzas = texts.iter().flat_map(|text| text.lines()).map(str::trim);
        let its = stanzas.filter_map(|line| line.strip_prefix("iface")).filter(|rest| {
            rest.starts_with(char::is_whitespace)
                && rest.split_whitespace().next() == Some(name.as_str())
        });
        for other in its.filter_map(inherited_stanza) {
            if !names.iter().any(|known| known == other) {
                names.push(other.to_owned());
            }
        }
        at += 1;
    }
    // An option of its own stanza counts before an inherited one, and so comes last.
    let found = names.iter().rev().filter_map(|name| {
        let options: Vec<_> =
            texts.iter().filter_map(|text| options_of_stanza(text, name)).flatten().collect();
        let is_there = texts.iter().any(|text| options_of_stanza(text, name).is_some());
        is_there.then_some(options)
    });
    let found: Vec<_> = found.collect();
    (!found.is_empty()).then(|| found.concat())
}

/// The options of the stanzas of one name in a text; `None` if it has none.
fn options_of_stanza(text: &str, interface: &str) -> Option<Vec<(String, String)>> {
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
        let texts = [text.to_owned()];
        let options = options_of(&texts, "eth9").unwrap();
        assert_eq!(
            options,
            [("mtu", "9000"), ("up", "ip link show")].map(|(a, b)| (a.into(), b.into()))
        );
        assert_eq!(options_of(&texts, "eth7"), None);
    }

    #[test]
    fn logical_and_inherited_stanzas_are_of_the_interface() {
        let texts = [
            "auto eth9=home\niface home inet dhcp inherits base\n mtu 1500\n",
            "iface base inet dhcp\n mtu 9000\n offload-gro on\n post-up /sbin/ip link set $IFACE mtu 1500\n",
        ];
        let texts = texts.map(str::to_owned);
        let options = options_of(&texts, "eth9").unwrap();
        let stanzas = InterfaceStanzas { file: String::new(), options };
        let own = |key, value| UdevActions::of_link([(key, value)].into_iter());
        let undone = |key, value| own(key, value).undone_by(&stanzas.actions());
        assert_eq!(undone("MTUBytes", "1400").as_deref(), Some("sets `mtu 1500`"));
        assert_eq!(undone("GenericReceiveOffload", "no").as_deref(), Some("runs `ethtool -K`"));
        assert_eq!(undone("RxCoalesceSec", "9us"), None);
        assert_eq!(options_of(&texts, "eth8"), None);
    }
}
