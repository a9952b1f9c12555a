//! NetworkManager's profiles in the forms of nm-settings-keyfile(5): the value of a key, and an edit.

/// Old names of sections that NetworkManager still reads, and those in their place.
const OLD_NAMES: [(&str, &str); 2] = [("802-3-ethernet", "ethernet"), ("802-11-wireless", "wifi")];

/// A line of a keyfile.
#[derive(Debug, PartialEq, Eq)]
enum KeyfileLine<'a> {
    Section {
        name: &'a str,
        is_old: bool,
    },
    Pair(&'a str, &'a str),
    /// A comment, an empty line, or one that NetworkManager does not read.
    Other,
}

impl<'a> KeyfileLine<'a> {
    fn new(line: &'a str) -> Self {
        let line = line.trim();
        if line.starts_with('#') {
            return Self::Other;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let new_name = section_name(name);
            return Self::Section { name: new_name, is_old: new_name != name };
        }
        let pair = line.split_once('=');
        pair.map_or(Self::Other, |(key, value)| Self::Pair(key.trim(), value.trim()))
    }
}

/// The name of a section or a type of profile, where it may have its old name.
pub(super) fn section_name(name: &str) -> &str {
    let known = OLD_NAMES.into_iter().find(|(old, _)| *old == name);
    known.map_or(name, |(_, new)| new)
}

/// The reason why NetworkManager refuses the whole profile, of those that an edit can bring; `None` if there is none.
pub(super) fn why_refused(keyfile: &str) -> Option<String> {
    let pause = |key: &str| find_value(keyfile, "ethtool", key);
    let is_negotiated = pause("pause-autoneg").is_some_and(|it| !matches!(it, "false" | "0"));
    let direction = ["pause-rx", "pause-tx"].into_iter().find(|key| pause(key).is_some());
    let direction = direction.filter(|_| is_negotiated)?;
    Some(format!("`pause-autoneg` cannot be enabled beside `{direction}`"))
}

/// The value that counts of a key: the last.
pub(super) fn find_value<'a>(keyfile: &'a str, section: &str, key: &str) -> Option<&'a str> {
    let lines: Vec<KeyfileLine<'a>> = keyfile.lines().map(KeyfileLine::new).collect();
    match lines.get(place_of(&lines, section, key)?) {
        Some(KeyfileLine::Pair(_, value)) => Some(*value),
        _ => None,
    }
}

/// The keys of a section with their values, in order.
pub(super) fn section_values<'a>(keyfile: &'a str, section: &str) -> Vec<(&'a str, &'a str)> {
    let lines: Vec<KeyfileLine<'a>> = keyfile.lines().map(KeyfileLine::new).collect();
    let mut is_inside = false;
    let mut found = Vec::new();
    for (line, is_start) in lines.iter().zip(section_starts(&lines, section)) {
        match line {
            KeyfileLine::Section { .. } => is_inside = is_start,
            KeyfileLine::Pair(key, value) if is_inside => found.push((*key, *value)),
            _ => {}
        }
    }
    found
}

/// Whether a keyfile still has each value that `after` has and `before` had not: others may edit the rest.
pub(super) fn has_edit(before: &str, after: &str, now: &str) -> bool {
    let mut section = "";
    after.lines().map(KeyfileLine::new).all(|line| match line {
        KeyfileLine::Section { name, .. } => {
            section = name;
            true
        }
        KeyfileLine::Pair(key, _) => {
            let wanted = find_value(after, section, key);
            find_value(before, section, key) == wanted || find_value(now, section, key) == wanted
        }
        KeyfileLine::Other => true,
    })
}

/// Whether each line begins a section of this name that counts. Where one has the old name, NetworkManager reads no
/// section of the new name.
fn section_starts(lines: &[KeyfileLine<'_>], section: &str) -> Vec<bool> {
    let is = |line: &KeyfileLine<'_>, old: bool| {
        let of = |name: &str, is_old: bool| name == section && is_old == old;
        matches!(line, KeyfileLine::Section { name, is_old } if of(name, *is_old))
    };
    let has_old = lines.iter().any(|line| is(line, true));
    lines.iter().map(|line| is(line, has_old)).collect()
}

/// The line of a key that counts: the last in the sections that count.
fn place_of(lines: &[KeyfileLine<'_>], section: &str, key: &str) -> Option<usize> {
    let mut is_inside = false;
    let mut found = None;
    for (at, (line, is_start)) in lines.iter().zip(section_starts(lines, section)).enumerate() {
        match line {
            KeyfileLine::Section { .. } => is_inside = is_start,
            KeyfileLine::Pair(name, _) if is_inside && *name == key => found = Some(at),
            _ => {}
        }
    }
    found
}

/// A keyfile with the keys of another put into its sections: in the place of their values, else at the section's end.
/// All other lines stay as they are. Where a line ends with CR LF, all do.
pub(super) fn merge_keyfiles(keyfile: &str, addition: &str) -> String {
    let mut texts: Vec<String> = keyfile.lines().map(str::to_owned).collect();
    let mut section = "";
    for text in addition.lines() {
        match KeyfileLine::new(text) {
            KeyfileLine::Section { name, .. } => section = name,
            KeyfileLine::Pair(key, _) => set_key(&mut texts, section, key, text.trim()),
            KeyfileLine::Other => {}
        }
    }
    let line_end = if keyfile.contains("\r\n") { "\r\n" } else { "\n" };
    texts.join(line_end) + line_end
}

/// Puts one line into a section.
fn set_key(texts: &mut Vec<String>, section: &str, key: &str, text: &str) {
    let lines: Vec<KeyfileLine<'_>> = texts.iter().map(|line| KeyfileLine::new(line)).collect();
    if let Some(at) = place_of(&lines, section, key) {
        text.clone_into(&mut texts[at]);
        return;
    }
    let Some(start) = section_starts(&lines, section).into_iter().position(|is_start| is_start)
    else {
        if texts.last().is_some_and(|last| !last.is_empty()) {
            texts.push(String::new());
        }
        texts.extend([format!("[{section}]"), text.to_owned()]);
        return;
    };
    let length =
        lines[start + 1..].iter().position(|line| matches!(line, KeyfileLine::Section { .. }));
    let end = length.map_or(lines.len(), |length| start + 1 + length);
    let blank = texts[start + 1..end].iter().rev().take_while(|line| line.trim().is_empty());
    let at = end - blank.count();
    texts.insert(at, text.to_owned());
}

#[cfg(test)]
mod tests {
    use super::{find_value, has_edit, merge_keyfiles};

    #[test]
    fn keys_are_put_into_keyfile_sections() {
        let keyfile =
            "[connection]\nid=wired\n\n[ethernet]\nmtu=1500\nmac=aa\n\n[ipv4]\nmethod=auto\n";
        let addition = "# latput\n[ethernet]\nmtu=9000\n\n[ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n\n[ipv4]\nx=1\n";
        let expected = "[connection]\nid=wired\n\n[ethernet]\nmtu=9000\nmac=aa\n\n[ipv4]\nmethod=auto\nx=1\n\n\
                        [ethtool]\nring-rx=512\ncoalesce-rx-usecs=50\n";
        assert_eq!(merge_keyfiles(keyfile, addition), expected);
        assert_eq!(merge_keyfiles(expected, addition), expected, "once is enough");
    }

    #[test]
    fn old_section_keeps_its_name_and_comments() {
        let keyfile = "# mine\n[802-3-ethernet]\n# why\n mtu = 1500\n#mtu=1\n";
        let expected = "# mine\n[802-3-ethernet]\n# why\nmtu=9000\n#mtu=1\n";
        assert_eq!(merge_keyfiles(keyfile, "[ethernet]\nmtu=9000\n"), expected);
    }

    /// As `nmcli --offline connection modify` reads them.
    #[test]
    fn line_ends_of_a_keyfile_stay() {
        let keyfile = "[connection]\r\nid=lan\r\n\r\n[ethernet]\r\nmtu=1500\r\n";
        let edited = merge_keyfiles(keyfile, "[ethernet]\nmtu=9000\n[ethtool]\nring-rx=512\n");
        let expected = keyfile.replace("1500", "9000") + "\r\n[ethtool]\r\nring-rx=512\r\n";
        assert_eq!(edited, expected);
    }

    #[test]
    fn repeated_key_is_set_where_it_counts() {
        for keyfile in [
            "[ethernet]\nmtu=1\n[ipv4]\nmtu=5\n[802-3-ethernet]\nmtu=2\n",
            "[802-3-ethernet]\nmtu=2\n[ethernet]\nmtu=1\n",
            "[ethernet]\nmtu=1\n[ipv4]\nmtu=5\n[ethernet]\nmtu=2\n",
            "[ethernet]\nmtu=1\nmtu=2\n",
        ] {
            let edited = merge_keyfiles(keyfile, "[ethernet]\nmtu=9000\n");
            assert_eq!(edited, keyfile.replace("mtu=2", "mtu=9000"));
            assert_eq!(find_value(&edited, "ethernet", "mtu"), Some("9000"));
        }
        let unread = "[ethernet]\nmtu=1\n[802-3-ethernet]\nport=tp\n";
        assert_eq!(merge_keyfiles(unread, "[ethernet]\nmtu=9000\n"), format!("{unread}mtu=9000\n"));
    }

    #[test]
    fn edit_outlives_changes_of_others() {
        let before = "[ethernet]\nmtu=1500\n[ipv4]\nmethod=auto\n";
        let after = merge_keyfiles(before, "[ethernet]\nmtu=9000\n[ethtool]\nring-rx=512\n");
        let others =
            "[ipv4]\nmethod=manual\n[ethtool]\nring-rx = 512\n[802-3-ethernet]\nmtu=9000\n";
        assert!(has_edit(before, &after, &after) && has_edit(before, &after, others));
        for now in
            [before, "", &after.replace("9000", "1400"), &after.replace("ring-rx", "ring-tx")]
        {
            assert!(!has_edit(before, &after, now), "{now}");
        }
    }
}
