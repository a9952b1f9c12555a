//! netplan(5), as of netplan 0.106: MTU and seven offloads.

use std::fmt::Write as _;

use super::{Match, Target, Words};
use crate::catalogue::Knob;
use crate::value::Value;

/// The lines of one knob; `None` if there is no property for it.
pub(super) fn words(knob: Knob, value: &Value) -> Option<Words> {
    let lines = match (knob, value) {
        (Knob::Mtu, Value::Count(bytes)) => vec![format!("mtu: {bytes}")],
        (_, Value::Switch(on)) => {
            properties(knob).iter().map(|name| format!("{name}: {on}")).collect()
        }
        _ => vec![],
    };
    (!lines.is_empty()).then(|| lines.into_iter().map(|line| ("", line)).collect())
}

const fn properties(knob: Knob) -> &'static [&'static str] {
    match knob {
        Knob::RxChecksum => &["receive-checksum-offload"],
        Knob::TxChecksum => &["transmit-checksum-offload"],
        Knob::Tso => &["tcp-segmentation-offload", "tcp6-segmentation-offload"],
        Knob::Gso => &["generic-segmentation-offload"],
        Knob::Gro => &["generic-receive-offload"],
        Knob::Lro => &["large-receive-offload"],
        _ => &[],
    }
}

pub(super) fn document(target: &Target, words: &[(&'static str, String)]) -> (String, String) {
    let name = target.interface();
    let file = format!("/etc/netplan/90-latput-{name}.yaml");
    let mut body = format!(
        "# Keep as {file} (mode 600), then `netplan apply`. It adds to what other\n\
         # files say of `{name}`: use the device type and the id that they have.\n\
         # Offloads need the networkd renderer and a match by address.\n"
    );
    let matched = match &target.matched {
        // The entry says already which interface it is of.
        _ if target.netplan_entry.is_some() => None,
        Match::Mac(mac) => Some(format!("macaddress: \"{mac}\"")),
        Match::Driver(driver) => Some(format!("driver: {driver}")),
        Match::Path(_) | Match::Name => None,
    };
    let (device_type, id) = match &target.netplan_entry {
        Some(entry) => (entry.device_type.as_str(), entry.id.as_str()),
        None => ("ethernets", name),
    };
    let _ = write!(body, "network:\n  version: 2\n  {device_type}:\n    {id}:\n");
    if let Some(matched) = matched {
        let _ = write!(body, "      match:\n        {matched}\n");
    }
    for (_, line) in words {
        let _ = writeln!(body, "      {line}");
    }
    (file, body)
}
