//! nmstate's YAML, as of nmstate 2.2.

use std::fmt::Write as _;

use super::{Format, Match, Target, Words, nested, networkmanager, number};
use crate::catalogue::Knob;
use crate::setting::Setting;
use crate::value::Value;

/// Coalescing parameters that nmstate 2.2 reads and does not give to NetworkManager.
const NOT_PASSED_ON: [&str; 5] =
    ["stats-block-usecs", "sample-interval", "tx-usecs-irq", "tx-usecs-low", "tx-usecs-high"];

/// Whether nmstate loses a knob beside the others: the direction of pause frames counts where their negotiation is off only.
pub(super) fn is_lost(knob: Knob, setting: &Setting) -> bool {
    let is_direction = matches!(knob, Knob::PauseRx | Knob::PauseTx);
    is_direction && setting.get(&Knob::PauseAutoneg) != Some(&Value::Switch(false))
}

/// The lines of one knob; `None` if there is no property for it, or the kind of the interface is not known.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    target.type_in(Format::Nmstate)?;
    lines(knob, value)
}

/// The lines of one knob of any interface.
pub(super) fn lines(knob: Knob, value: &Value) -> Option<Words> {
    let one = |section, line| Some(vec![(section, line)]);
    match (knob, value) {
        (Knob::Mtu, Value::Count(bytes)) => one("", format!("mtu: {bytes}")),
        (Knob::PauseAutoneg | Knob::PauseRx | Knob::PauseTx, Value::Switch(on)) => {
            one("pause", format!("{}: {on}", knob.name().strip_prefix("pause-")?))
        }
        _ if !features(knob).is_empty() => {
            let Value::Switch(on) = value else { return None };
            let lines = features(knob).iter().map(|name| ("feature", format!("{name}: {on}")));
            Some(lines.collect())
        }
        _ => {
            let (table, name) = networkmanager::table(knob)?;
            let value = match value {
                Value::Switch(on) => on.to_string(),
                _ => number(knob, value)?.to_string(),
            };
            let is_known = matches!(table, "coalesce" | "ring") && !NOT_PASSED_ON.contains(&name);
            if is_known { one(table, format!("{name}: {value}")) } else { None }
        }
    }
}

/// The kernel's names of an offload, which nmstate has. `tx` is another for each driver, so it has none.
const fn features(knob: Knob) -> &'static [&'static str] {
    match knob {
        Knob::RxChecksum => &["rx-checksum"],
        Knob::Sg => &["tx-scatter-gather"],
        Knob::Gro => &["rx-gro"],
        Knob::Gso => &["tx-generic-segmentation"],
        Knob::Tso => &["tx-tcp-segmentation", "tx-tcp6-segmentation"],
        Knob::TxUdpSegmentation => &["tx-udp-segmentation"],
        Knob::Lro => &["rx-lro"],
        Knob::RxGroHw => &["rx-gro-hw"],
        Knob::RxGroList => &["rx-gro-list"],
        Knob::RxUdpGroForwarding => &["rx-udp-gro-forwarding"],
        Knob::RxHashing => &["rx-hashing"],
        Knob::RxNtuple => &["rx-ntuple-filter"],
        Knob::RxVlan => &["rx-vlan-hw-parse"],
        Knob::TxVlan => &["tx-vlan-hw-insert"],
        Knob::TxNocacheCopy => &["tx-nocache-copy"],
        _ => &[],
    }
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("/etc/nmstate/90-latput-{name}.yml");
    let mut body = format!(
        "# `nmstatectl apply` this file. Or keep it as {file}: nmstate.service applies it at\n\
         # the next boot, and NetworkManager's profile keeps it. What is not named stays as it is.\n\
         interfaces:\n  - name: \"{name}\"\n"
    );
    let type_name = target.type_in(Format::Nmstate).unwrap_or_default();
    match &target.matched {
        // Of others the address is not the device's own.
        Match::Mac(mac) if type_name == "ethernet" => {
            let _ = write!(body, "    identifier: mac-address\n    mac-address: \"{mac}\"\n");
        }
        _ => {}
    }
    let _ = write!(body, "    type: {type_name}\n    state: up\n{}", nested(words, 4));
    (file, body)
}
