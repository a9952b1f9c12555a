//! Which device an interface is: names change, and so does what a name means.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Identity of a device: it stays while the device is renamed, and tells it from the next one of its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The kernel's number of it (`ifindex`), from 1. A namespace gives a number again only where somebody
    /// asks for it, or after a wrap.
    pub index: u32,
    /// The kind of virtual interface (`veth`), or the driver of hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its place on its bus (`0000:02:00.0`). Virtual interfaces have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// The address that it was made with, in hexadecimal. Virtual interfaces have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_address: Option<String>,
    /// Inode number of its folder in sysfs, which the kernel gives to one device of a boot: it tells a virtual interface
    /// from a later one of its number and kind. `None` where sysfs does not show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysfs_inode: Option<u64>,
}

impl Device {
    /// Whether both are one and the same. Hardware is, also where its driver was loaded again, or where it
    /// was moved, and has another number since.
    pub fn is(&self, other: &Self) -> bool {
        let same_make = self.kind == other.kind
            && self.bus == other.bus
            && self.permanent_address == other.permanent_address;
        let inodes = (self.sysfs_inode, other.sysfs_inode);
        let is_made_anew = matches!(inodes, (Some(own), Some(its)) if own != its);
        same_make && (self.is_hardware() || self.index == other.index && !is_made_anew)
    }

    /// Whether it is known by its place and its address, wherever it is.
    pub const fn is_hardware(&self) -> bool {
        self.bus.is_some() && self.permanent_address.is_some()
    }
}

impl fmt::Display for Device {
    /// `number 7, veth` or `number 2, ixgbe, at 0000:02:00.0, address 52:54:00:12:34:56`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "number {}", self.index)?;
        if let Some(kind) = &self.kind {
            write!(f, ", {kind}")?;
        }
        if let Some(bus) = &self.bus {
            write!(f, ", at {bus}")?;
        }
        if let Some(address) = &self.permanent_address {
            write!(f, ", address {address}")?;
        }
        Ok(())
    }
}

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In this network namespace, under this name.
    Here(String),
    /// Nowhere: the kernel has told of its end.
    Deleted,
    /// Not in this network namespace: it was moved to another, or deleted while nobody listened.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ifindex_identifies_virtual_path_identifies_hardware() {
        let veth = |index| Device { index, kind: Some("veth".into()), ..Device::default() };
        let nic = |index, bus: &str, address: &str| Device {
            index,
            kind: Some("ixgbe".into()),
            bus: Some(bus.into()),
            permanent_address: Some(address.into()),
            sysfs_inode: None,
        };
        assert!(veth(7).is(&veth(7)));
        assert!(!veth(7).is(&veth(8)), "made anew");
        assert!(!veth(7).is(&Device { kind: Some("dummy".into()), ..veth(7) }), "a number again");
        let at_inode = |inode| Device { sysfs_inode: Some(inode), ..veth(7) };
        assert!(!at_inode(100).is(&at_inode(101)), "number and kind again");
        assert!(at_inode(100).is(&veth(7)), "an older checkpoint, or no sysfs");
        assert!(nic(2, "0000:02:00.0", "aa").is(&nic(9, "0000:02:00.0", "aa")), "loaded again");
        assert!(!nic(2, "0000:02:00.0", "aa").is(&nic(2, "0000:02:00.0", "bb")), "another card");
        assert!(!nic(2, "0000:02:00.0", "aa").is(&nic(2, "0000:03:00.0", "aa")));
        assert!(!nic(2, "0000:02:00.0", "aa").is(&veth(2)));
    }
}
