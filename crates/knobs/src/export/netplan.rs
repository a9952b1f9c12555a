//! netplan(5), as of netplan 0.106: MTU and seven offloads, below the device type of the interface.

use std::fmt::Write as _;

use super::{Match, Target, Words};
use crate::catalogue::Knob;
use crate::value::Value;

/// A device type of netplan(5): the key below `network` that has the entry of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetplanDeviceType {
    /// `ethernets`
    Ethernets,
    /// `wifis`
    Wifis,
    /// `modems`
    Modems,
    /// `bonds`
    Bonds,
    /// `bridges`
    Bridges,
    /// `vlans`
    Vlans,
    /// `vrfs`
    Vrfs,
    /// `tunnels`
    Tunnels,
    /// `tunnels` with the mode `vxlan`: netplan 0.106 refuses a file that adds to one without its `id`.
    Vxlans,
    /// `dummy-devices`, since netplan 1.0
    DummyDevices,
    /// `virtual-ethernets`, since netplan 1.1
    VirtualEthernets,
}

impl NetplanDeviceType {
    /// One of each key.
    pub const ALL: [Self; 10] = [
        Self::Ethernets,
        Self::Wifis,
        Self::Modems,
        Self::Bonds,
        Self::Bridges,
        Self::Vlans,
        Self::Vrfs,
        Self::Tunnels,
        Self::DummyDevices,
        Self::VirtualEthernets,
    ];

    /// The key of netplan's files.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Ethernets => "ethernets",
            Self::Wifis => "wifis",
            Self::Modems => "modems",
            Self::Bonds => "bonds",
            Self::Bridges => "bridges",
            Self::Vlans => "vlans",
            Self::Vrfs => "vrfs",
            Self::Tunnels | Self::Vxlans => "tunnels",
            Self::DummyDevices => "dummy-devices",
            Self::VirtualEthernets => "virtual-ethernets",
        }
    }

    /// netplan refuses all files for a key that the type does not have. It takes offloads of modems, and writes none.
    const fn has_offloads(self) -> bool {
        matches!(self, Self::Ethernets | Self::Wifis)
    }

    const fn has_mtu(self) -> bool {
        !matches!(self, Self::Vrfs | Self::Vxlans)
    }
}

/// The lines of one knob below the interface's entry; `None` if there is no property for it, or no entry is known.
pub(super) fn words(knob: Knob, value: &Value, target: &Target) -> Option<Words> {
    let device_type = target.netplan_entry.as_ref()?.device_type;
    let has_key =
        if knob == Knob::Mtu { device_type.has_mtu() } else { device_type.has_offloads() };
    let lines = lines(knob, value);
    (has_key && !lines.is_empty()).then(|| lines.into_iter().map(|line| ("", line)).collect())
}

/// The lines of a knob that some device type has.
pub(super) fn lines(knob: Knob, value: &Value) -> Vec<String> {
    match (knob, value) {
        (Knob::Mtu, Value::Count(bytes)) => vec![format!("mtu: {bytes}")],
        (_, Value::Switch(on)) => {
            properties(knob).iter().map(|name| format!("{name}: {on}")).collect()
        }
        _ => vec![],
    }
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
    let Some(entry) = &target.netplan_entry else { return (file, String::new()) };
    let (device_type, id) = (entry.device_type, &entry.id);
    let mut body = format!("# Keep as {file} (mode 600), then `netplan apply`.\n");
    if device_type == NetplanDeviceType::Ethernets {
        let _ = writeln!(
            body,
            "# It adds to what other files say of `{id}`: use the id that they have."
        );
    } else {
        let key = device_type.key();
        let _ = write!(
            body,
            "# It adds to the entry `{id}` below `{key}` of another file. Where none has it, put these lines\n\
             # into the file that makes the interface: netplan would refuse this file, or make it anew.\n"
        );
    }
    // netplan has `match` for hardware only, and networkd none for wifi.
    let matched = match &target.matched {
        // The entry says already which interface it is of.
        _ if entry.is_found || device_type != NetplanDeviceType::Ethernets => None,
        Match::Mac(mac) => Some(format!("macaddress: \"{mac}\"")),
        Match::Driver(driver) => Some(format!("driver: {driver}")),
        Match::Path(_) | Match::Name => None,
    };
    let _ = write!(body, "network:\n  version: 2\n  {}:\n    {id}:\n", device_type.key());
    if let Some(matched) = matched {
        let _ = write!(body, "      match:\n        {matched}\n");
    }
    for (_, line) in words {
        let _ = writeln!(body, "      {line}");
    }
    (file, body)
}
