//! Operations that ethtool has only as an ioctl: coalescing per queue, the RSS indirection table, the number of flow rules, and who
//! the driver is.
//!
//! Layouts: `include/uapi/linux/ethtool.h`, `struct ethtool_per_queue_op`, `struct ethtool_coalesce`,
//! `struct ethtool_rxfh_indir`, `struct ethtool_rxnfc`, `struct ethtool_drvinfo`; `include/uapi/linux/if.h`, `struct ifreq`.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use latput_units::IntoMap;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::{Error, check_interface_name};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_SRXFHINDIR: u32 = 0x39;
const ETHTOOL_GRXRINGS: u32 = 0x2d;
const ETHTOOL_PERQUEUE: u32 = 0x4b;
/// The most queues that the per-queue request can name, and the words of its mask.
const QUEUES_MAX: u32 = 4096;
const MASK_WORDS: usize = 128;
/// Words of `struct ethtool_coalesce`, the command first.
const COALESCE_WORDS: usize = 23;
/// Words of `struct ethtool_rxnfc`, and the place of `rule_cnt` among them.
const RXNFC_WORDS: usize = 48;
const RULE_COUNT: usize = 46;
/// More entries than any NIC's table has.
const TABLE_MAX: u32 = 65_536;

/// A field of `struct ethtool_coalesce`, by its place in the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueField {
    /// `rx_coalesce_usecs`.
    RxUsecs = 1,
    /// `rx_max_coalesced_frames`.
    RxFrames = 2,
    /// `tx_coalesce_usecs`.
    TxUsecs = 5,
    /// `tx_max_coalesced_frames`.
    TxFrames = 6,
}

/// A socket for ethtool ioctls: acts in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct EthtoolIoctl(OwnedFd);

/// `struct ifreq`: 16 bytes of name, and a union of 24 bytes whose member here is a pointer.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    data: *mut u32,
    rest: [u8; 16],
}

/// A driver's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// Its name.
    pub driver: String,
    /// Its version: the kernel's, for most.
    pub version: String,
    /// The firmware's version; may be empty.
    pub firmware: String,
    /// Where the device is: a PCI address.
    pub bus: String,
}

impl EthtoolIoctl {
    /// Opens the socket.
    pub fn open() -> Result<Self, Error> {
        let socket = rustix::net::socket_with(
            // Of any family (`dev_ioctl`): the service is not allowed those of the internet.
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| Error::system("open a socket for ethtool", errno))?;
        Ok(Self(socket))
    }

    /// One field of each of the queues 0 to `queues - 1`, where the driver has coalescing per queue.
    /// It refuses queues that are not there with `EINVAL`.
    pub fn queue_coalescing(
        &self,
        interface: &str,
        field: QueueField,
        queues: u32,
    ) -> Result<Vec<u32>, Error> {
        let rows = self.read_queues(interface, &(0..queues.min(QUEUES_MAX)).collect::<Vec<_>>())?;
        Ok(rows.values().map(|row| row[field as usize]).collect())
    }

    /// Sets one field of one queue; its others stay.
    pub(crate) fn set_queue_coalescing(
        &self,
        interface: &str,
        field: QueueField,
        queue: u32,
        value: u32,
    ) -> Result<(), Error> {
        let mut rows = self.read_queues(interface, &[queue])?;
        for row in rows.values_mut() {
            row[0] = ETHTOOL_SCOALESCE;
            row[field as usize] = value;
        }
        let mut words = encode_per_queue(ETHTOOL_SCOALESCE, &rows);
        self.call(interface, "set the coalescing of a queue of", &mut words)
    }

    /// Writes the coalescing of the device as it is, which netlink would not pass on to the driver.
    pub(crate) fn rewrite_coalescing(&self, interface: &str) -> Result<(), Error> {
        let mut words = vec![0; COALESCE_WORDS];
        words[0] = ETHTOOL_GCOALESCE;
        self.call(interface, "read the coalescing of", &mut words)?;
        words[0] = ETHTOOL_SCOALESCE;
        self.call(interface, "write the present coalescing of", &mut words)
    }

    fn read_queues(
        &self,
        interface: &str,
        queues: &[u32],
    ) -> Result<BTreeMap<u32, [u32; COALESCE_WORDS]>, Error> {
        let mut empty = [0; COALESCE_WORDS];
        empty[0] = ETHTOOL_GCOALESCE;
        let rows = queues.iter().filter(|queue| **queue < QUEUES_MAX).map(|queue| (*queue, empty));
        let rows: BTreeMap<_, _> = rows.into_map();
        if rows.is_empty() {
            return Err(Error::Other(format!("{interface}: no such queue")));
        }
        let mut words = encode_per_queue(ETHTOOL_GCOALESCE, &rows);
        self.call(interface, "read the coalescing of the queues of", &mut words)?;
        Ok(decode_per_queue(&words, &rows))
    }

    /// The RSS indirection table; empty where the NIC has none.
    pub fn rss_table(&self, interface: &str) -> Result<Vec<u32>, Error> {
        // Asked with size 0, the kernel answers with the size.
        let mut words = vec![ETHTOOL_GRXFHINDIR, 0];
        self.call(interface, "read the size of the RSS table of", &mut words)?;
        let size = words[1].min(TABLE_MAX);
        words = vec![0; 2 + size as usize];
        (words[0], words[1]) = (ETHTOOL_GRXFHINDIR, size);
        if size > 0 {
            self.call(interface, "read the RSS table of", &mut words)?;
        }
        Ok(words.split_off(2))
    }

    /// Sets the RSS indirection table, which must be as long as the one that is there.
    ///
    /// A table that is the kernel's own spread is set as the default. The kernel does not tell whether a table was set by hand
    /// (`IFF_RXFH_CONFIGURED`), and refuses fewer channels while one is.
    pub(crate) fn set_rss_table(&self, interface: &str, table: &[u32]) -> Result<(), Error> {
        // A driver that does not tell has no default.
        let rings = self.receive_rings(interface).unwrap_or(0);
        let mut words = encode_table(table, rings);
        self.call(interface, "set the RSS table of", &mut words)
    }

    /// The number of rings that the kernel spreads packets over.
    fn receive_rings(&self, interface: &str) -> Result<u32, Error> {
        let mut words = vec![0; RXNFC_WORDS];
        words[0] = ETHTOOL_GRXRINGS;
        self.call(interface, "count the receive rings of", &mut words)?;
        // A number of 64 bits that is small.
        Ok(if cfg!(target_endian = "big") { words[3] } else { words[2] })
    }

    /// The number of rules by which the NIC steers chosen flows; none where it cannot have any.
    pub fn flow_rules(&self, interface: &str) -> Result<u32, Error> {
        let mut words = vec![0; RXNFC_WORDS];
        words[0] = ETHTOOL_GRXCLSRLCNT;
        match self.call(interface, "count the flow rules of", &mut words) {
            Ok(()) => Ok(words[RULE_COUNT]),
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Asks for the driver's name and version.
    pub fn driver(&self, interface: &str) -> Result<DriverInfo, Error> {
        // struct ethtool_drvinfo: 196 bytes.
        let mut words = vec![0; 49];
        words[0] = ETHTOOL_GDRVINFO;
        self.call(interface, "ask for the driver of", &mut words)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |from: usize| {
            let field = &bytes[from..from + 32];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            String::from_utf8_lossy(&field[..end]).trim().to_owned()
        };
        Ok(DriverInfo { driver: text(4), version: text(36), firmware: text(68), bus: text(100) })
    }

    /// One ethtool ioctl on a buffer of words that opens with the command, and that the kernel may
    /// write to.
    fn call(&self, interface: &str, operation: &str, words: &mut [u32]) -> Result<(), Error> {
        check_interface_name(interface)?;
        let mut request =
            InterfaceRequest { name: [0; 16], data: words.as_mut_ptr(), rest: [0; 16] };
        request.name[..interface.len()].copy_from_slice(interface.as_bytes());
        // SAFETY: the descriptor is open; the request has the layout of struct ifreq and outlives the
        // call; its pointer is to `words`, which is writable and as long as the size or the mask that
        // stands in it tells the kernel.
        let result = unsafe {
            libc::ioctl(self.0.as_raw_fd(), SIOCETHTOOL as _, (&raw mut request).cast::<u8>())
        };
        if result >= 0 {
            return Ok(());
        }
        Err(Error::system(format!("{operation} {interface}"), io::Error::last_os_error()))
    }
}

/// `struct ethtool_rxfh_indir`. Without entries it resets to the default (`ethtool_set_rxfh_indir`): each ring in turn
/// (`ethtool_rxfh_indir_default`).
fn encode_table(table: &[u32], rings: u32) -> Vec<u32> {
    let is_default = rings > 0
        && !table.is_empty()
        && table.iter().zip((0..rings).cycle()).all(|(it, ring)| *it == ring);
    let entries = if is_default { &[][..] } else { table };
    let size = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    [&[ETHTOOL_SRXFHINDIR, size], entries].concat()
}

/// `struct ethtool_per_queue_op` and a `struct ethtool_coalesce` for each queue in it.
fn encode_per_queue(command: u32, rows: &BTreeMap<u32, [u32; COALESCE_WORDS]>) -> Vec<u32> {
    let mut words = vec![0; 2 + MASK_WORDS];
    (words[0], words[1]) = (ETHTOOL_PERQUEUE, command);
    for (queue, row) in rows {
        words[2 + (queue / 32) as usize] |= 1 << (queue % 32);
        words.extend_from_slice(row);
    }
    words
}

fn decode_per_queue(
    words: &[u32],
    asked: &BTreeMap<u32, [u32; COALESCE_WORDS]>,
) -> BTreeMap<u32, [u32; COALESCE_WORDS]> {
    let (rows, _) = words[2 + MASK_WORDS..].as_chunks::<COALESCE_WORDS>();
    asked.keys().copied().zip(rows.iter().copied()).into_map()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_mask_is_followed_by_values() {
        let row = |usecs| {
            let mut row = [0; COALESCE_WORDS];
            row[QueueField::RxUsecs as usize] = usecs;
            row
        };
        let rows = BTreeMap::from([(33, row(50)), (0, row(20))]);
        let words = encode_per_queue(ETHTOOL_SCOALESCE, &rows);
        assert_eq!(words[..5], [0x4b, 0x0f, 1, 2, 0]);
        assert_eq!(words.len(), 2 + 128 + 2 * 23);
        assert_eq!((words[131], words[154]), (20, 50));
        assert_eq!(decode_per_queue(&words, &rows), rows);
    }

    #[test]
    fn default_spread_resets_the_table() {
        let of = |table: &[u32], rings| encode_table(table, rings);
        assert_eq!(of(&[0, 1, 2, 0], 3), [ETHTOOL_SRXFHINDIR, 0]);
        assert_eq!(of(&[0, 1, 2, 0], 4), [ETHTOOL_SRXFHINDIR, 4, 0, 1, 2, 0]);
        assert_eq!(of(&[0, 1, 0, 1], 4), [ETHTOOL_SRXFHINDIR, 4, 0, 1, 0, 1]);
        assert_eq!(of(&[0, 0], 0), [ETHTOOL_SRXFHINDIR, 2, 0, 0]);
    }

    #[test]
    fn loopback_has_no_ethtool_values() {
        let ioctl = EthtoolIoctl::open().unwrap();
        let error = ioctl.queue_coalescing("lo", QueueField::RxUsecs, 1).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
        let error = ioctl.rss_table("lo").unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
        assert_eq!(ioctl.flow_rules("lo").unwrap(), 0);
        let error = ioctl.flow_rules("nobody-has-this").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
        assert!(ioctl.rss_table("../../etc").is_err());
        let error = ioctl.rss_table("nobody-has-this").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
    }
}
