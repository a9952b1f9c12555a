//! Variables of Ansible's role `network` (linux-system-roles, `fedora.linux_system_roles.network`), as of its version 1.18.

use std::fmt::Write as _;

use super::{Format, Match, Target, Words, commands, nested, networkmanager, number};
use crate::catalogue::Knob;
use crate::value::Value;

/// The lines of one knob; `None` if the role has no variable for it, or the kind of the interface is not known.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    target.type_in(Format::Ansible)?;
    lines(knob, value)
}

/// The lines of one knob of any interface.
pub(super) fn lines(knob: Knob, value: &Value) -> Option<Words> {
    let (table, name) = match knob {
        Knob::Mtu => ("", "mtu"),
        // The role knows a list of offloads, without these.
        Knob::RxGroList | Knob::RxUdpGroForwarding => return None,
        _ => match commands::feature(knob) {
            Some(name) => ("features", name),
            None => networkmanager::table(knob)?,
        },
    };
    let value = match value {
        Value::Switch(on) => on.to_string(),
        _ => number(knob, value)?.to_string(),
    };
    let is_known = matches!(table, "" | "features" | "coalesce" | "ring");
    is_known.then(|| vec![(table, format!("{}: {value}", name.replace('-', "_")))])
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("host_vars/HOST/latput-{name}.yml");
    let type_name = target.type_in(Format::Ansible).unwrap_or_default();
    let is_ethernet = type_name == "ethernet";
    let lost = if is_ethernet {
        "its addresses are those of this entry, by DHCP"
    } else {
        "the role makes it anew without its addresses, ports and other options"
    };
    let mut body = format!(
        "# Variables of the role `network` of linux-system-roles: keep them as {file} or in\n\
         # group_vars. The role writes a whole profile: put the lines into the entry that the interface has\n\
         # already, else {lost}. `name` is that of the profile\n\
         # (`nmcli -g GENERAL.CONNECTION device show {name}`).\n\
         network_connections:\n  - name: \"{name}\"\n"
    );
    let _ = match &target.matched {
        // The role takes the address of hardware only.
        Match::Mac(mac) if is_ethernet => writeln!(body, "    mac: \"{mac}\""),
        _ => writeln!(body, "    interface_name: \"{name}\""),
    };
    let _ = write!(body, "    type: {type_name}\n    state: up\n{}", nested(words, 4));
    (file, body)
}
