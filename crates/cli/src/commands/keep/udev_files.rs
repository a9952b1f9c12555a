//! Files of udev and networkd: their folders and drop-ins, and the interfaces that a `[Match]` takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use latput_linux::files::TEXT_BYTES_MOST;
use latput_linux::{Identity, RootFolder};

use super::glob::is_like;

/// Where systemd looks for its files of the network, the first before the others.
const LINK_FOLDERS: [&str; 5] = [
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
    "/lib/systemd/network",
];
/// The start of the names of the files that netplan makes for udev and networkd.
pub(super) const MADE_BY_NETPLAN: &str = "10-netplan-";
/// .link files that come with systemd and configure nothing of their own.
pub(super) const DEFAULT_LINKS: [&str; 3] =
    ["99-default.link", "73-usb-net-by-mac.link", "98-default-mac-none.link"];

/// The .link file that udev has applied: `ID_NET_LINK_FILE` of its database.
pub(super) fn applied_link(index: u32) -> Option<String> {
    let database = fs::read_to_string(format!("/run/udev/data/n{index}")).ok()?;
    let mut lines = database.lines();
    lines.find_map(|line| line.strip_prefix("E:ID_NET_LINK_FILE=")).map(str::to_owned)
}

/// The lines of a text that are neither empty nor comments, which begin with one of `marks`. Lines that end with `\` are joined
/// with the next one that is no comment, as systemd does.
pub(super) fn uncommented_lines(text: &str, marks: &[char]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut is_continued = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(marks)) {
        let (line, goes_on) = line.strip_suffix('\\').map_or((line, false), |line| (line, true));
        match lines.last_mut() {
            Some(last) if is_continued => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
        is_continued = goes_on;
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Whether a file has this extension: in small letters, as its readers want it. They pass over files whose name begins with a
/// dot.
pub(in crate::commands) fn has_extension(name: &str, wanted: &str) -> bool {
    let path = Path::new(name);
    let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && path.extension().is_some_and(|extension| extension == wanted)
}

/// The names in several folders, each with the path in the first folder that has it, in the order of names.
pub(super) fn first_of_each_name(
    root: &RootFolder,
    folders: &[String],
    extension: &str,
) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for folder in folders {
        for name in root.look_in(folder) {
            if has_extension(&name, extension) {
                files.entry(name.clone()).or_insert_with(|| format!("{folder}/{name}"));
            }
        }
    }
    files
}

/// A file of udev or networkd with its drop-ins.
#[derive(Debug)]
pub(super) struct NetworkFile {
    pub(super) name: String,
    /// The path and the text of the file itself, and of its drop-ins in the order in which they count.
    parts: Vec<(String, String)>,
}

impl NetworkFile {
    /// The files of one kind, in the order in which udev or networkd looks for the first that fits.
    pub(super) fn read_all(root: &RootFolder, extension: &str) -> Vec<Self> {
        let files = first_of_each_name(root, &LINK_FOLDERS.map(str::to_owned), extension);
        let files = files.into_iter().map(|(name, path)| {
            let mut file = Self::read_drop_ins(root, name);
            let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
            file.parts.insert(0, (path, text));
            file
        });
        // An empty file masks those of its name, with their drop-ins.
        files.filter(|file| !file.parts[0].1.trim().is_empty()).collect()
    }

    /// The drop-ins of the file of this name, which need not be there.
    pub(super) fn read_drop_ins(root: &RootFolder, name: String) -> Self {
        let folders = LINK_FOLDERS.map(|folder| format!("{folder}/{name}.d"));
        let paths = first_of_each_name(root, &folders, "conf").into_values();
        let read = |path: String| {
            let text = root.look_at(&path, TEXT_BYTES_MOST).unwrap_or_default();
            (path, text)
        };
        Self { name, parts: paths.map(read).collect() }
    }

    pub(super) fn path(&self) -> &str {
        &self.parts[0].0
    }

    /// All lines: the path of the part that has it, the section, the key and the value.
    fn lines(&self) -> Vec<(&str, String, String, String)> {
        let mut found = Vec::new();
        for (path, text) in &self.parts {
            let mut section = String::new();
            for line in uncommented_lines(text, &['#', ';']) {
                if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                    name.clone_into(&mut section);
                } else if let Some((key, value)) = line.split_once('=') {
                    let [key, value] = [key, value].map(|text| text.trim().to_owned());
                    found.push((path.as_str(), section.clone(), key, value));
                }
            }
        }
        found
    }

    /// The lines of a section, each with the path of the part that has it.
    pub(super) fn section_lines(&self, name: &str) -> Vec<(&str, String, String)> {
        let lines = self.lines().into_iter().filter(|(_, section, ..)| section == name);
        lines.map(|(path, _, key, value)| (path, key, value)).collect()
    }

    /// The section of a root queue discipline that networkd attaches, and the path of the part that has it.
    pub(super) fn root_qdisc(&self) -> Option<(String, &str)> {
        let mut lines = self.lines().into_iter();
        let is_root = |key: &str, value: &str| key == "Parent" && value == "root";
        lines.find_map(|(path, section, key, value)| {
            is_root(&key, &value).then_some((section, path))
        })
    }

    /// The lines of a section, those of the drop-ins behind those of the file.
    pub(super) fn section_text(&self, name: &str) -> String {
        let lines = self.section_lines(name).into_iter();
        let lines = lines.map(|(_, key, value)| format!("{key}={value}\n"));
        format!("[{name}]\n{}", lines.collect::<String>())
    }

    /// The value of a key that counts, and the path of the part that has it.
    pub(super) fn find_value(&self, section: &str, key: &str) -> Option<(String, &str)> {
        let lines = self.section_lines(section).into_iter().rev();
        let (path, _, value) = lines.into_iter().find(|(_, name, _)| name == key)?;
        (!value.is_empty()).then_some((value, path))
    }

    /// Whether its `[Match]` takes the interface, whose name stands in `key_of_name`.
    pub(super) fn match_interface(
        &self,
        key_of_name: &str,
        interface: &MatchedInterface,
    ) -> FileMatch {
        let mut lists: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, key, value) in self.section_lines("Match") {
            let list = lists.entry(key).or_default();
            let (is_inverted, words) =
                value.strip_prefix('!').map_or((false, value.as_str()), |rest| (true, rest));
            let mark = if is_inverted { "!" } else { "" };
            list.extend(words.split_whitespace().map(|word| format!("{mark}{word}")));
            if value.is_empty() {
                list.clear();
            }
        }
        lists.retain(|_, list| !list.is_empty());
        // One that gives another name is of another interface, if it does not go by this one.
        let other_name =
            self.find_value("Link", "Name").filter(|(name, _)| *name != interface.name);
        if other_name.is_some() && !lists.contains_key(key_of_name) {
            return FileMatch::No;
        }
        let answers = lists.iter().map(|(key, list)| match interface.value_of(key, key_of_name) {
            Some(value) if is_taken(key, list, &value) => FileMatch::Yes,
            Some(_) => FileMatch::No,
            None => FileMatch::MayBe,
        });
        // Both ignore a file that has nothing in its `[Match]`.
        answers.max().unwrap_or(FileMatch::No)
    }
}

/// Whether a list of `[Match]` takes a value: all that begin with `!` do not fit, and one of the others does.
fn is_taken(key: &str, list: &[String], value: &str) -> bool {
    if key.ends_with("MACAddress") {
        return list.iter().any(|it| plain_address(it) == plain_address(value));
    }
    let mut wanted = list.iter().filter(|it| !it.starts_with('!')).peekable();
    let is_refused = |it: &String| it.strip_prefix('!').is_some_and(|it| is_like(value, it));
    let is_wanted = wanted.peek().is_none() || wanted.any(|it| is_like(value, it));
    is_wanted && !list.iter().any(is_refused)
}

/// An address without the marks between its bytes.
fn plain_address(text: &str) -> String {
    let digits = text.chars().filter(|c| !"-:.".contains(*c));
    digits.map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether a file is of an interface; the last answer of those of its keys counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileMatch {
    Yes,
    /// It goes by something that nobody knows of the interface: of one of an image little is known but its name.
    MayBe,
    No,
}

/// The interface that a file may match, with what is known of it.
#[derive(Debug)]
pub(super) struct MatchedInterface {
    name: String,
    address: Option<String>,
    identity: Identity,
}

impl MatchedInterface {
    pub(super) fn new(root: &RootFolder, name: &str) -> Self {
        let is_running_system = root.is_running_system();
        let identity = Identity::read(name).filter(|_| is_running_system);
        let address = fs::read_to_string(format!("/sys/class/net/{name}/address")).ok();
        let address = address.filter(|_| identity.is_some()).map(|it| it.trim().to_owned());
        Self { name: name.to_owned(), address, identity: identity.unwrap_or_default() }
    }

    /// The value of the interface that a key of `[Match]` speaks of; `None` where nobody knows it.
    fn value_of(&self, key: &str, key_of_name: &str) -> Option<String> {
        let Identity { permanent_mac, driver, kind, path } = &self.identity;
        match key {
            _ if key == key_of_name => Some(self.name.clone()),
            "MACAddress" => self.address.clone(),
            "PermanentMACAddress" => permanent_mac.clone(),
            "Driver" => driver.clone(),
            "Path" => path.clone(),
            "Type" => match kind.as_deref()? {
                "ethernet" => Some("ether".to_owned()),
                known @ ("wlan" | "wwan" | "loopback") => Some(known.to_owned()),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_match(texts: &[&str], interface: &MatchedInterface, expected: FileMatch) {
        let parts = texts.iter().map(|text| ("f".to_owned(), format!("{text}\n"))).collect();
        let file = NetworkFile { name: "f".to_owned(), parts };
        assert_eq!(file.match_interface("OriginalName", interface), expected, "{texts:?}");
    }

    /// An interface of an image, and one of the running system.
    fn sample_interfaces() -> [MatchedInterface; 2] {
        let text = |text: &str| Some(text.to_owned());
        let identity = Identity {
            driver: text("ice"),
            kind: text("ethernet"),
            permanent_mac: text("52:54:00:aa:bb:cc"),
            path: None,
        };
        let known =
            |address, identity| MatchedInterface { name: "nic7".to_owned(), address, identity };
        [known(None, Identity::default()), known(text("52:54:00:aa:bb:cc"), identity)]
    }

    #[test]
    fn link_file_by_name_is_told() {
        let [image, _] = sample_interfaces();
        for (text, expected) in [
            ("[Match]\nOriginalName=nic*\n[Link]\nMTUBytes=1400", FileMatch::Yes),
            ("[Match]\nOriginalName=nic[0-9]", FileMatch::Yes),
            ("[Match]\nOriginalName=eth0 \\\n nic7", FileMatch::Yes),
            ("[Match]\nOriginalName=eth0\nOriginalName=nic7", FileMatch::Yes),
            ("[Match]\nOriginalName=!eth0 eth1", FileMatch::Yes),
            ("[Match]\nOriginalName=!nic*", FileMatch::No),
            ("[Match]\nOriginalName=nic7\nOriginalName=\nOriginalName=eth0", FileMatch::No),
            ("[Match]\nOriginalName=eth*\nDriver=ice", FileMatch::No),
            ("[Match]\n#OriginalName=nic7", FileMatch::No),
            ("[Link]\nOriginalName=nic7", FileMatch::No),
        ] {
            check_match(&[text], &image, expected);
        }
        check_match(
            &["[Match]\nOriginalName=eth0", "[Match]\nOriginalName=nic7"],
            &image,
            FileMatch::Yes,
        );
    }

    #[test]
    fn other_keys_may_be_of_image_interface() {
        let [image, own] = sample_interfaces();
        for (keys, expected) in [
            ("OriginalName=nic7\nType=ether", FileMatch::Yes),
            ("Type=wlan", FileMatch::No),
            ("MACAddress=52-54-00-AA-BB-CC", FileMatch::Yes),
            ("MACAddress=5254.00aa.bbcd", FileMatch::No),
            ("PermanentMACAddress=52:54:00:aa:bb:cc", FileMatch::Yes),
            ("Driver=!ice", FileMatch::No),
            ("Driver=i[a-d]e", FileMatch::Yes),
            ("Path=pci-*", FileMatch::MayBe),
        ] {
            check_match(&[&format!("[Match]\n{keys}")], &own, expected);
            check_match(&[&format!("[Match]\n{keys}")], &image, FileMatch::MayBe);
        }
    }

    #[test]
    fn comment_does_not_end_a_continued_line() {
        let [image, _] = sample_interfaces();
        let text = "[Match]\nOriginalName=eth1 \\\n# eth2\n  nic7\n";
        check_match(&[text], &image, FileMatch::Yes);
        assert_eq!(uncommented_lines("a \\\n;b\nc\n\nd", &[';']), ["a  c", "d"]);
    }

    #[test]
    fn hidden_file_has_no_extension() {
        for (name, expected) in [
            ("05.link", true),
            ("/etc/x.link", true),
            (".05.link", false),
            ("/etc/.x.link", false),
            ("x.links", false),
        ] {
            assert_eq!(has_extension(name, "link"), expected, "{name}");
        }
    }

    #[test]
    fn last_value_of_drop_in_counts() {
        let part = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let parts = vec![
            part("main", "[Link]\nMTUBytes=1300\n[Network]\nMTUBytes=1\n"),
            part("drop-in", "[Link]\nMTUBytes = 1400\n"),
        ];
        let file = NetworkFile { name: "f".to_owned(), parts };
        assert_eq!(file.find_value("Link", "MTUBytes"), Some(("1400".to_owned(), "drop-in")));
        assert_eq!(file.find_value("Link", "Name"), None);
    }
}
