//! How the host's own configuration systems know an interface before anybody has named it.

use std::fs;
use std::path::Path;

use crate::route::Route;

/// The fixed facts about the device behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The address that the device was made with; `None` if it has another one now, or a random one.
    pub permanent_mac: Option<String>,
    /// Its place as udev names it (`ID_PATH`), where that is a PCI slot: `pci-0000:02:00.0`.
    pub path: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// Its kind: that of a virtual interface as `ip -d link` names it (`bond`, `vlan`), `wlan` and `wwan` of the kernel's
    /// `DEVTYPE`, `ethernet` for other hardware with Ethernet addresses, `loopback`; `None` for others.
    pub kind: Option<String>,
}

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK`, as sysfs prints them.
const ETHERNET: &str = "1";
const LOOPBACK: &str = "772";

/// `addr_assign_type` of an address that the device came with (`NET_ADDR_PERM`).
const PERMANENT: &str = "0";

impl Identity {
    /// Of an interface in the sysfs of the calling thread; `None` if there is no such interface.
    pub fn read(interface: &str) -> Option<Self> {
        let found = Self::below(Path::new("/sys"), interface)?;
        let link = Route::open().and_then(|route| route.link(interface)).ok();
        let virtual_kind = link.and_then(|link| link.kind);
        Some(Self { kind: virtual_kind.or(found.kind), ..found })
    }

    fn below(sysfs: &Path, interface: &str) -> Option<Self> {
        // A name with a slash would be another file.
        let is_name =
            !interface.is_empty() && !interface.contains('/') && !interface.starts_with('.');
        let folder = sysfs.join("class/net").join(interface);
        if !is_name || !folder.join("address").exists() {
            return None;
        }
        let line = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let is_permanent = line("addr_assign_type").as_deref() == Some(PERMANENT);
        let is_ethernet = |mac: &String| mac.len() == 17 && mac != "00:00:00:00:00:00";
        let device = fs::canonicalize(folder.join("device")).unwrap_or_default();
        let mut slots = device.iter().filter_map(|part| part.to_str());
        let driver = fs::read_link(folder.join("device/driver")).ok();
        Some(Self {
            permanent_mac: line("address").filter(|mac| is_permanent && is_ethernet(mac)),
            path: slots.rfind(|part| is_pci_slot(part)).map(|slot| format!("pci-{slot}")),
            driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
            kind: line("type").and_then(|hardware| kind_of(&hardware, &line("uevent")?)),
        })
    }
}

/// The kind by the type of its addresses and the lines of its uevent.
fn kind_of(hardware: &str, uevent: &str) -> Option<String> {
    let device_type = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    let by_address = match hardware {
        ETHERNET => Some("ethernet"),
        LOOPBACK => Some("loopback"),
        _ => None,
    };
    device_type.or(by_address).map(str::to_owned)
}

/// Whether a folder is that of a PCI device: `0000:02:00.0`.
fn is_pci_slot(name: &str) -> bool {
    let shape = |c: char| if c.is_ascii_hexdigit() { 'x' } else { c };
    name.chars().map(shape).eq("xxxx:xx:xx.x".chars())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn pci_card_has_address_slot_and_driver() {
        let root = tempfile::tempdir().unwrap();
        let slot = root.path().join("devices/pci0000:00/0000:00:02.0/0000:02:00.1/virtio0");
        let net = root.path().join("class/net/eth0");
        let driver = root.path().join("bus/pci/drivers/e1000e");
        for folder in [&slot, &net, &driver] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(&slot, net.join("device")).unwrap();
        symlink(&driver, slot.join("driver")).unwrap();
        let write = |name: &str, text: &str| fs::write(net.join(name), text).unwrap();
        write("address", "52:54:00:00:00:01\n");
        write("addr_assign_type", "0\n");
        let found = Identity::below(root.path(), "eth0").unwrap();
        assert_eq!(found.permanent_mac.as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(found.path.as_deref(), Some("pci-0000:02:00.1"));
        assert_eq!(found.driver.as_deref(), Some("e1000e"));
        write("addr_assign_type", "3\n"); // somebody has set it
        assert_eq!(Identity::below(root.path(), "eth0").unwrap().permanent_mac, None);
    }

    #[test]
    fn kind_is_that_of_kernel() {
        let kind = |hardware, uevent| kind_of(hardware, uevent);
        let wifi = "DEVTYPE=wlan\nINTERFACE=wlp3s0\nIFINDEX=3";
        assert_eq!(kind("1", wifi).as_deref(), Some("wlan"));
        assert_eq!(kind("1", "INTERFACE=eth0\nIFINDEX=2").as_deref(), Some("ethernet"));
        assert_eq!(kind("772", "INTERFACE=lo").as_deref(), Some("loopback"));
        assert_eq!(kind("32", "INTERFACE=ib0"), None);
        assert_eq!(Identity::read("lo").unwrap().kind.as_deref(), Some("loopback"));
    }

    #[test]
    fn device_less_interface_has_only_its_name() {
        let root = tempfile::tempdir().unwrap();
        let net = root.path().join("class/net/veth0");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("address"), "12:34:56:78:9a:bc\n").unwrap();
        fs::write(net.join("addr_assign_type"), "1\n").unwrap();
        assert_eq!(Identity::below(root.path(), "veth0"), Some(Identity::default()));
        for name in ["eth0", "", ".", "..", "../net/veth0", "a/b"] {
            assert_eq!(Identity::below(root.path(), name), None, "{name}");
        }
    }
}
