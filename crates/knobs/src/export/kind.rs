//! The type of an interface in the formats that name one, by its kind: one table for all of them.

use super::{Format, NetplanDeviceType};

/// Names of one kind of interface in the formats; `None` where a format has no type for it, or one that another file must
/// describe.
struct KindTypes {
    netplan: Option<NetplanDeviceType>,
    nmstate: Option<&'static str>,
    ansible: Option<&'static str>,
    /// The type of a profile, where the profile has the MTU in a section of its own.
    networkmanager: Option<&'static str>,
}

/// Returns the types of a kind, as `ip -d link` and the kernel's `DEVTYPE` name it; `ethernet` is hardware.
///
/// A veth has no type of netplan: containers have theirs below `ethernets`, and netplan its own below `virtual-ethernets`.
/// nmstate and the role `network` have no type for modems and tunnels. The role writes the MTU of a wifi where
/// NetworkManager does not read it, and nmstate does not manage wifi.
fn types_of(kind: &str) -> KindTypes {
    use NetplanDeviceType as Netplan;
    let (netplan, nmstate, ansible) = match kind {
        "ethernet" => (Some(Netplan::Ethernets), Some("ethernet"), Some("ethernet")),
        "veth" => (None, Some("veth"), Some("ethernet")),
        "loopback" => (Some(Netplan::Ethernets), Some("loopback"), None),
        "bond" => (Some(Netplan::Bonds), Some("bond"), Some("bond")),
        "bridge" => (Some(Netplan::Bridges), Some("linux-bridge"), Some("bridge")),
        "vlan" => (Some(Netplan::Vlans), Some("vlan"), Some("vlan")),
        "dummy" => (Some(Netplan::DummyDevices), Some("dummy"), Some("dummy")),
        "macvlan" => (None, Some("mac-vlan"), Some("macvlan")),
        "macvtap" => (None, Some("mac-vtap"), None),
        "team" => (None, None, Some("team")),
        "vrf" => (Some(Netplan::Vrfs), Some("vrf"), None),
        "vxlan" => (Some(Netplan::Vxlans), Some("vxlan"), None),
        "wlan" => (Some(Netplan::Wifis), None, None),
        "wwan" => (Some(Netplan::Modems), None, None),
        "gre" | "gretap" | "ip6gre" | "ip6gretap" | "ip6tnl" | "ipip" | "sit" | "vti" | "vti6"
        | "wireguard" => (Some(Netplan::Tunnels), None, None),
        _ => (None, None, None),
    };
    let networkmanager = match kind {
        "wlan" => Some("wifi"),
        "wwan" => Some("gsm"),
        "wireguard" => Some("wireguard"),
        _ if netplan == Some(Netplan::Tunnels) => Some("ip-tunnel"),
        _ => None,
    };
    KindTypes { netplan, nmstate, ansible, networkmanager }
}

impl NetplanDeviceType {
    /// Returns the device type of an interface by its kind.
    pub fn of_kind(kind: &str) -> Option<Self> {
        types_of(kind).netplan
    }
}

impl Format {
    /// Whether a text of this format names the type of an interface.
    ///
    /// Under another type than its own its reader loses the interface, or makes it anew.
    pub const fn names_types(self) -> bool {
        matches!(self, Self::Netplan | Self::Nmstate | Self::Ansible)
    }

    /// Returns the name that this format has for a kind of interface.
    pub fn type_of(self, kind: &str) -> Option<&'static str> {
        let KindTypes { netplan, nmstate, ansible, networkmanager } = types_of(kind);
        match self {
            Self::Netplan => netplan.map(NetplanDeviceType::key),
            Self::Nmstate => nmstate,
            Self::Ansible => ansible,
            Self::NetworkManager => networkmanager,
            _ => None,
        }
    }
}
