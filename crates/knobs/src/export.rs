//! A setting in the host's own configuration system, so that latput is not needed to keep it.
//!
//! What a format has no word for is never dropped: it is listed with the file it belongs in and the
//! line to write there, in comments of the text and in [`Exported::elsewhere`].

mod ansible;
mod cloud_init;
mod commands;
mod elsewhere;
mod kind;
mod netplan;
mod networkmanager;
mod nmstate;
mod systemd;
mod tuned;
mod udev;

use std::fmt;

use serde::Serialize;

use crate::catalogue::Knob;
use crate::setting::Setting;
use crate::value::Value;

pub use elsewhere::Elsewhere;
pub use netplan::NetplanDeviceType;

/// The configuration system that a setting is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// systemd.link(5), which udev applies when the interface appears.
    SystemdLink,
    /// Sections of a NetworkManager keyfile, nm-settings-keyfile(5).
    NetworkManager,
    /// A shell script of ethtool(8), ip(8), tc(8) and writes to sysfs.
    Ethtool,
    /// netplan(5) YAML.
    Netplan,
    /// A TuneD profile, tuned-profiles(7).
    Tuned,
    /// udev rules, udev(7).
    Udev,
    /// nmstate's YAML, nmstatectl(8).
    Nmstate,
    /// Variables of Ansible's role `network` (linux-system-roles).
    Ansible,
    /// A cloud-config of cloud-init.
    CloudInit,
}

/// Interface names are at most so long (`IFNAMSIZ` - 1).
const NAME_BYTES_MAX: usize = 15;

/// The interface of the configuration, and how the configuration knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    interface: String,
    matched: Match,
    /// The lines of the .link file in force; `None`: those of systemd's own that name an interface.
    link_lines: Option<Vec<String>>,
    /// The entry of netplan's files that it belongs to, where that is known.
    netplan_entry: Option<NetplanEntry>,
    /// Its kind, where that is known.
    kind: Option<String>,
    /// The type of the profile that NetworkManager has for it, where that is known.
    profile_type: Option<String>,
}

/// Where netplan's files have an interface, or would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetplanEntry {
    /// The device type.
    pub device_type: NetplanDeviceType,
    /// The id below it, which need not be the interface's name.
    pub id: String,
    /// Whether a file has it; otherwise it is what the kind of the interface calls for.
    pub is_found: bool,
}

/// How a configuration knows an interface before anybody has named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// By its name, of which systemd knows only the kernel's own.
    Name,
    /// By the address that it was made with.
    Mac(String),
    /// By where it is plugged in, as udev names that (`ID_PATH`).
    Path(String),
    /// By its driver: every interface of that driver.
    Driver(String),
}

/// A target that cannot be written down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{text}` cannot be written to a configuration file: {mend}")]
pub struct TargetError {
    what: &'static str,
    text: String,
    mend: &'static str,
}

/// A setting as a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The whole text, with comments on where it goes and what is missing from it.
    pub text: String,
    /// Where to keep it.
    pub file: String,
    /// The knobs that the format cannot hold.
    pub elsewhere: Vec<Elsewhere>,
    /// Whether that is all of them, so that the text has comments only.
    #[serde(skip)]
    pub is_empty: bool,
}

impl Target {
    /// Only names and matches that need no quoting in a shell script, a udev rule or YAML are taken:
    /// the kernel allows more, and a results file may come from anywhere.
    pub fn new(interface: &str, matched: Match) -> Result<Self, TargetError> {
        let fits = (1..=NAME_BYTES_MAX).contains(&interface.len());
        if !fits || !is_plain(interface, "._-") {
            let mend = "give a name of letters, digits, dots, hyphens and underscores";
            return Err(TargetError::new("the interface name", interface, mend));
        }
        let (what, text, allowed) = match &matched {
            Match::Name => {
                return Ok(Self::matching(interface, matched));
            }
            Match::Mac(mac) => ("the address", mac, ":"),
            Match::Path(path) => ("the path", path, ":._-"),
            Match::Driver(driver) => ("the driver", driver, "_-"),
        };
        if !is_plain(text, allowed) {
            return Err(TargetError::new(what, text, "match the interface by its name"));
        }
        Ok(Self::matching(interface, matched))
    }

    fn matching(interface: &str, matched: Match) -> Self {
        Self {
            interface: interface.to_owned(),
            matched,
            link_lines: None,
            netplan_entry: None,
            kind: None,
            profile_type: None,
        }
    }

    /// The same where the interface's kind is known, as `ip -d link` and the kernel's `DEVTYPE` name it. Without it nothing is
    /// written for nmstate and Ansible, which need the type of an interface.
    pub fn of_kind(self, kind: &str) -> Self {
        Self { kind: Some(kind.to_owned()), ..self }
    }

    /// The same for a profile of this `connection.type` that exists: any version of NetworkManager may read it, so that it
    /// gets no property of newer ones.
    pub fn in_profile(self, connection_type: &str) -> Self {
        Self { profile_type: Some(connection_type.to_owned()), ..self }
    }

    /// Whether a file is to know the interface by its name alone.
    pub const fn is_by_name(&self) -> bool {
        matches!(self.matched, Match::Name)
    }

    /// The interface's type in a format that names it; `None` if its kind is not known, or has none there.
    fn type_in(&self, format: Format) -> Option<&'static str> {
        format.type_of(self.kind.as_deref()?)
    }

    /// The same where the .link file that is in force now is known: its text, or `None` where there is none. A file
    /// of ours takes its place, and must say what that says.
    pub fn in_place_of(self, link_file: Option<&str>) -> Self {
        let lines = systemd::link_lines(link_file.unwrap_or_default());
        Self { link_lines: Some(lines), ..self }
    }

    /// The same where its entry in netplan's files is known: netplan refuses an id under two device types. Without it nothing
    /// is written for netplan. Fails where the id needs quotes.
    pub fn in_netplan_entry(self, entry: NetplanEntry) -> Result<Self, TargetError> {
        if !is_plain(&entry.id, "._-") {
            let mend = "give the entry a plain id, or use another format";
            return Err(TargetError::new("the id in netplan's files", &entry.id, mend));
        }
        Ok(Self { netplan_entry: Some(entry), ..self })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

fn is_plain(text: &str, others: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

impl TargetError {
    fn new(what: &'static str, text: &str, mend: &'static str) -> Self {
        Self { what, text: text.chars().take(80).flat_map(char::escape_default).collect(), mend }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SystemdLink => "systemd.link",
            Self::NetworkManager => "a NetworkManager keyfile",
            Self::Ethtool => "a script",
            Self::Netplan => "netplan(5)",
            Self::Tuned => "TuneD",
            Self::Udev => "udev(7)",
            Self::Nmstate => "nmstate",
            Self::Ansible => "Ansible's role `network`",
            Self::CloudInit => "cloud-init",
        })
    }
}

/// Writes `setting` of `target` in a format; `origin` says in a comment where it comes from.
pub fn export(format: Format, target: &Target, setting: &Setting, origin: &str) -> Exported {
    let mut words = Vec::new();
    let mut left = Vec::new();
    for (knob, value) in setting {
        let written = match format {
            Format::SystemdLink => systemd::words(*knob, value),
            Format::NetworkManager if networkmanager::is_refused(*knob, setting) => None,
            Format::Nmstate if nmstate::is_lost(*knob, setting) => None,
            Format::NetworkManager => networkmanager::words(*knob, value, target),
            Format::Netplan => netplan::words(*knob, value, target),
            Format::Tuned => tuned::words(*knob, value),
            Format::Udev => udev::words(*knob, value, target),
            Format::Ethtool => commands::words(*knob, value, target),
            Format::Nmstate => nmstate::words(*knob, value, target),
            Format::Ansible => ansible::words(*knob, value, target),
            Format::CloudInit => cloud_init::words(*knob, value, target),
        };
        match written {
            Some(found) => words.extend(found),
            None => left.push((*knob, value)),
        }
    }
    let elsewhere: Vec<Elsewhere> = left
        .into_iter()
        .map(|(knob, value)| elsewhere::configure_elsewhere(knob, value, target, format))
        .collect();
    let (file, body) = match format {
        Format::SystemdLink => systemd::document(target, &words),
        Format::NetworkManager => networkmanager::document(target, &words),
        Format::Netplan => netplan::document(target, &words),
        Format::Tuned => tuned::document(target, &words),
        Format::Udev => udev::document(target, &words),
        Format::Ethtool => commands::document(target, &words),
        Format::Nmstate => nmstate::document(target, &words),
        Format::Ansible => ansible::document(target, &words),
        Format::CloudInit => cloud_init::document(target, &words),
    };
    let is_of_udev =
        |one: &Elsewhere| one.file.as_ref().is_some_and(|it| it.starts_with("/etc/udev/"));
    let place = if elsewhere.iter().all(is_of_udev) { "the udev rule below" } else { "below" };
    let nothing = format!("# {format} can express none of these settings; see {place}.\n");
    let body = if words.is_empty() { nothing } else { body };
    let head = match format {
        Format::Ethtool => "#!/bin/sh\n",
        Format::CloudInit => "#cloud-config\n",
        _ => "",
    };
    // Some readers end a line, and a comment with it, at more characters than the control characters (YAML 1.1: U+2028).
    let is_printable = |c: &char| matches!(c, ' '..='~');
    let origin: String = origin.chars().map(|c| if is_printable(&c) { c } else { ' ' }).collect();
    let text = format!("{head}# {origin}\n{body}{}", elsewhere::comments(format, &elsewhere));
    Exported { text, file, elsewhere, is_empty: words.is_empty() }
}

/// The request of ethtool and the parameter for a key of `[Link]`: `-K` and `gro` for `GenericReceiveOffload`; `None` where it is
/// no matter of ethtool.
pub fn ethtool_parameter(link_key: &str) -> Option<(&'static str, String)> {
    Knob::ALL.iter().find_map(|knob| {
        let value = knob.parse_value(knob.spec().example).ok()?;
        let lines = systemd::words(*knob, &value)?;
        let is_it = |line: &str| systemd::key_of(line).eq_ignore_ascii_case(link_key);
        lines.iter().find(|(_, line)| is_it(line))?;
        match commands::command(*knob, &value) {
            commands::Command::Ethtool { option, words } => {
                Some((option, words.split(' ').next()?.to_owned()))
            }
            _ => None,
        }
    })
}

/// The lines of a setting in a format that names types, for an entry that a person must find: those that some type has, each
/// with the keys that it is below.
pub fn lines_by_hand(format: Format, setting: &Setting) -> Vec<String> {
    let of_knob = |(knob, value): (&Knob, &Value)| -> Words {
        match format {
            Format::Netplan => {
                netplan::lines(*knob, value).into_iter().map(|it| ("", it)).collect()
            }
            Format::Nmstate if nmstate::is_lost(*knob, setting) => Words::new(),
            Format::Nmstate => nmstate::lines(*knob, value).unwrap_or_default(),
            Format::Ansible => ansible::lines(*knob, value).unwrap_or_default(),
            _ => Words::new(),
        }
    };
    let words = setting.iter().flat_map(of_knob);
    let below = |(section, line): (&str, String)| {
        if section.is_empty() { line } else { format!("ethtool.{section}.{line}") }
    };
    words.map(below).collect()
}

/// One line of a configuration: in which section it goes, and what it says.
type Words = Vec<(&'static str, String)>;

/// The number of a count, or of a time in microseconds, as most formats want it.
fn number(knob: Knob, value: &Value) -> Option<u64> {
    match value {
        Value::Count(count) => Some(*count),
        Value::Time(time) => Some(time.as_ns() / knob.spec().time_unit().as_ns()),
        _ => None,
    }
}

/// `head` and below it the lines of each section, sections in the order of their first line.
fn sections<'w>(words: &'w [(&'static str, String)]) -> Vec<(&'static str, Vec<&'w str>)> {
    let mut sections: Vec<(&'static str, Vec<&'w str>)> = Vec::new();
    for (section, line) in words {
        match sections.iter_mut().find(|(known, _)| known == section) {
            Some((_, lines)) => lines.push(line),
            None => sections.push((section, vec![line])),
        }
    }
    sections
}

/// Lines of YAML at an indent: those of no section, and below `ethtool` those of each section.
fn nested(words: &[(&'static str, String)], indent: usize) -> String {
    let mut text = String::new();
    let mut line = |depth: usize, line: &str| {
        text.push_str(&" ".repeat(indent + 2 * depth));
        text.push_str(line);
        text.push('\n');
    };
    let (own, of_ethtool): (Vec<_>, Vec<_>) =
        sections(words).into_iter().partition(|(section, _)| section.is_empty());
    own.iter().flat_map(|(_, lines)| lines).for_each(|own| line(0, own));
    if !of_ethtool.is_empty() {
        line(0, "ethtool:");
    }
    for (section, lines) in of_ethtool {
        line(1, &format!("{section}:"));
        for one in lines {
            line(2, one);
        }
    }
    text
}

#[cfg(test)]
mod tests;
