//! Knobs that a format cannot hold: the file that can, and the line in it.

use std::fmt::Write as _;

use serde::Serialize;

use super::commands::{self, Command};
use super::{Format, Target};
use crate::catalogue::Knob;
use crate::value::Value;

/// A knob that the chosen format has no word for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    /// The knob.
    pub knob: Knob,
    /// Its value, as `latput set` takes it.
    pub value: String,
    /// Where it can be kept instead; `None` where nothing needs or is able to keep it.
    pub file: Option<String>,
    /// The line for that file, or why there is none.
    pub line: String,
}

/// Where the value of a knob can be kept.
pub(super) fn configure_elsewhere(
    knob: Knob,
    value: &Value,
    target: &Target,
    format: Format,
) -> Elsewhere {
    let name = target.interface();
    let rules = rules_file(name);
    let (file, line) = match commands::command(knob, value) {
        Command::Sysctl { name, value } => (Some(SYSCTLS.to_owned()), format!("{name} = {value}")),
        Command::LoadTime { name, number } => {
            let driver = match &target.matched {
                super::Match::Driver(driver) => driver.as_str(),
                _ => "DRIVER",
            };
            let line = format!("options {driver} {name}={number}");
            (Some("/etc/modprobe.d/latput.conf".to_owned()), line)
        }
        Command::Interrupts(cpus) => {
            let line = commands::write_affinity(name, cpus.as_ref());
            (Some(when_up(format).to_owned()), line)
        }
        Command::Files { pattern, content } if !pattern.contains('*') => {
            (Some(rules), format!("{}, ATTR{{{pattern}}}=\"{content}\"", rule(name)))
        }
        Command::Files { pattern, content } => {
            (Some(rules), run(name, &commands::write_files("IFACE", &pattern, &content)))
        }
        Command::Ethtool { option, words } => {
            (Some(rules), run(name, &format!("ethtool {option} IFACE {words}")))
        }
        Command::Shell(command) => (Some(rules), run(name, &command)),
        Command::Nothing(why) | Command::Unknown(why) => (None, why.to_owned()),
    };
    Elsewhere { knob, value: value.to_string(), file, line }
}

/// The file of the host's own knobs.
pub(super) const SYSCTLS: &str = "/etc/sysctl.d/90-latput.conf";

/// The file of the udev rules for an interface.
pub(super) fn rules_file(interface: &str) -> String {
    format!("/etc/udev/rules.d/90-latput-{interface}.rules")
}

/// The start of a udev rule for the interface, also when it gets its name.
fn rule(interface: &str) -> String {
    format!("ACTION==\"add|move\", SUBSYSTEM==\"net\", KERNEL==\"{interface}\"")
}

/// A udev rule that runs a command. udev takes `$` and `%` for its own, and a quote for the end.
fn run(interface: &str, command: &str) -> String {
    let command = command.replace('$', "$$").replace('%', "%%").replace('"', "");
    let command = command.replace("IFACE", "%k");
    format!("{}, RUN+=\"/bin/sh -c '{command}'\"", rule(interface))
}

/// Where commands go that need the interface up: drivers ask for their interrupts only then.
const fn when_up(format: Format) -> &'static str {
    match format {
        Format::NetworkManager | Format::Nmstate | Format::Ansible => {
            "/etc/NetworkManager/dispatcher.d/90-latput (irqbalance must not manage it)"
        }
        _ => "/etc/networkd-dispatcher/routable.d/90-latput (irqbalance must not manage it)",
    }
}

/// The comments at the end of a configuration.
pub(super) fn comments(format: Format, elsewhere: &[Elsewhere]) -> String {
    if elsewhere.is_empty() {
        return String::new();
    }
    let mut text = format!("\n# {format} cannot express these:\n");
    let mut files: Vec<Option<&str>> = Vec::new();
    for one in elsewhere {
        if !files.contains(&one.file.as_deref()) {
            files.push(one.file.as_deref());
        }
    }
    for file in files {
        if let Some(file) = file {
            let _ = writeln!(text, "#\n# {file}");
        } else {
            text.push_str("#\n# nowhere\n");
        }
        for one in elsewhere.iter().filter(|one| one.file.as_deref() == file) {
            if file.is_none() {
                let _ = write!(text, "#   {} {}:", one.knob, one.value);
            } else {
                text.push_str("#  ");
            }
            let _ = writeln!(text, " {}", one.line);
        }
    }
    text
}
