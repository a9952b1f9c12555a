//! Which device an interface is, and where a device is now.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use latput_knobs::{Device, Whereabouts};

use super::LinuxKernel;
use super::device::base_name;
use super::failure::Failure;
use crate::error::Error;
use crate::netlink::Protocol;
use crate::netlink::notices::{LINK_GROUP, Notices};
use crate::route::{Departure, Link};

/// Most rounds of notices that are read at once; each is bounded too.
const ROUNDS_MAX: usize = 100;

/// Interfaces whose end is listened for: a deletion is told once, and never to who comes later.
#[derive(Debug)]
pub(super) struct Departures {
    notices: Notices,
    /// By number: `None` as long as the interface is there.
    known: RefCell<BTreeMap<u32, Option<Departure>>>,
}

impl Departures {
    pub(super) fn open() -> Result<Self, Error> {
        Ok(Self {
            notices: Notices::open(Protocol::Route, &[LINK_GROUP])?,
            known: RefCell::default(),
        })
    }

    /// From now on the end of this interface is noticed.
    fn listen_for(&self, index: u32) {
        self.known.borrow_mut().insert(index, None);
    }

    /// How the interface went away, if that was noticed.
    fn find(&self, index: u32) -> Option<Departure> {
        let mut known = self.known.borrow_mut();
        for _ in 0..ROUNDS_MAX {
            // Notices that are lost leave it unknown, which is the careful answer.
            let more = self.notices.drain(|message| {
                if let Some((index, departure)) = Departure::parse(message)
                    && let Some(known) = known.get_mut(&index)
                {
                    *known = Some(departure);
                }
                false
            });
            if !matches!(more, Ok(true)) {
                break;
            }
        }
        known.get(&index).copied().flatten()
    }
}

impl LinuxKernel {
    pub(super) fn device_of(&self, interface: &str) -> Result<Device, Failure> {
        let link = self.route.link(interface)?;
        self.departures.listen_for(link.index);
        Ok(self.identified(&link))
    }

    pub(super) fn whereabouts(&self, device: &Device) -> Result<Whereabouts, Failure> {
        match self.route.link_numbered(device.index) {
            Ok(link) if self.identified(&link).is(device) => {
                return Ok(Whereabouts::Here(link.name));
            }
            Ok(_) => {}
            Err(error) if error.errno() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error.into()),
        }
        if device.is_hardware() {
            let links = self.route.links()?;
            let is_it = |link: &Link| self.identified(link).is(device);
            if let Some(link) = links.into_iter().find(is_it) {
                return Ok(Whereabouts::Here(link.name));
            }
        }
        Ok(match self.departures.find(device.index) {
            Some(Departure::Deleted) => Whereabouts::Deleted,
            Some(Departure::Moved) | None => Whereabouts::Unknown,
        })
    }

    /// Inode number of the folder of an interface, if this sysfs shows the one with its number.
    fn sysfs_inode_of(&self, link: &Link) -> Option<u64> {
        let number = self.sysfs.read_number(&link.name, "ifindex").ok()?;
        let folder = std::fs::metadata(self.sysfs.path(&link.name, "")).ok()?;
        (number == u64::from(link.index)).then(|| folder.ino())
    }

    /// Identity of an interface. Its sysfs tells whether hardware is behind it.
    fn identified(&self, link: &Link) -> Device {
        Device {
            index: link.index,
            kind: link.kind.clone().or_else(|| self.driver_name(&link.name)),
            bus: base_name(&self.sysfs.path(&link.name, "device")),
            permanent_address: link.permanent_address.clone(),
            sysfs_inode: self.sysfs_inode_of(link),
        }
    }
}
