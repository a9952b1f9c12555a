//! Sections of configuration files with a key and a value on each line, and their words for a switch.

/// A section of a file. A key may have a mark behind it, as `unmanaged-devices+` of NetworkManager.
pub(super) struct ConfigSection<'a> {
    pub(super) name: &'a str,
    pub(super) lines: Vec<(&'a str, &'a str)>,
}

impl<'a> ConfigSection<'a> {
    /// The last value of a key counts.
    pub(super) fn last_value(&self, key: &str) -> Option<&'a str> {
        self.lines.iter().rev().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// The sections of a text, whose comments begin with one of `marks`.
pub(super) fn parse_sections<'a>(text: &'a str, marks: &[char]) -> Vec<ConfigSection<'a>> {
    let mut sections: Vec<ConfigSection<'_>> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(marks)) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(ConfigSection { name, lines: Vec::new() });
        } else if let (Some(section), Some((key, value))) =
            (sections.last_mut(), line.split_once('='))
        {
            section.lines.push((key.trim(), value.trim()));
        }
    }
    sections
}

/// A word for a truth value; `None` for any other.
pub(super) fn is_true(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "1" | "yes" | "true" | "on" => Some(true),
        "0" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}
