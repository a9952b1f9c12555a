//! Variables of Ansible's role `network` (linux-system-roles, `fedora.linux_system_roles.network`), as of its version 1.18.

use std::fmt::Write as _;

use super::{Match, Target, Words, commands, nested, networkmanager, number};
use crate::catalogue::Knob;
use crate::value::Value;

/// The lines of one knob; `None` if the role has no variable for it.
pub(super) fn words(knob: Knob, value: &Value) -> Option<Words> {
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
    let mut body = format!(
        "# Variables of the role `network` of linux-system-roles: keep them as {file} or in\n\
         # group_vars. The role writes a whole profile: put the lines into the entry that the interface has\n\
         # already, else its addresses are those of this entry, by DHCP. `name` is that of the profile\n\
         # (`nmcli -g GENERAL.CONNECTION device show {name}`).\n\
         network_connections:\n  - name: \"{name}\"\n"
    );
    match &target.matched {
        Match::Mac(mac) => {
            let _ = writeln!(body, "    mac: \"{mac}\"");
        }
        _ => {
            let _ = writeln!(body, "    interface_name: \"{name}\"");
        }
    }
    let _ = write!(body, "    type: ethernet\n    state: up\n{}", nested(words, 4));
    (file, body)
}
