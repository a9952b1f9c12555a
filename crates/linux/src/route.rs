//! Links, addresses and neighbours over rtnetlink.
//!
//! Layouts and flags: `include/uapi/linux/{rtnetlink,if_link,if_addr,neighbour,veth}.h`.

pub mod qdisc;

mod address;
mod metrics;
mod toward;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use latput_trial::observation::InterfaceCounters;
use latput_units::Bytes;

use crate::error::{Error, check_interface_name};
use crate::netlink::message::{Message, put, put_nested};
use crate::netlink::{
    Attributes, Malformed, NetlinkError, Protocol, Request, Socket, malformed, uapi,
};

const IFA_F_NODAD: u32 = 2;
const NUD_PERMANENT: u16 = 0x80;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 1;
/// `include/uapi/linux/net_namespace.h`.
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

pub use address::InterfaceAddress;
pub use metrics::RouteMtu;
pub use toward::Toward;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The kind of virtual interface (`veth`); `None` for hardware.
    pub kind: Option<String>,
    /// The number of the interface of this namespace that it lies on.
    pub lower: Option<u32>,
    /// The number of the interface of another namespace that it lies on, and that namespace's number in this one.
    pub lower_elsewhere: Option<(u32, i32)>,
    /// The number of the bridge, bond or team that it is a port of.
    pub master: Option<u32>,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether it has carrier; `None` when the driver does not say.
    pub has_carrier: Option<bool>,
    /// Largest packet.
    pub mtu: Bytes,
    /// Smallest and largest MTU it takes; the larger is `None` where there is no limit.
    pub mtu_range: (Bytes, Option<Bytes>),
    /// Length of the transmit queue, in packets.
    pub txqueuelen: u32,
    /// Largest joined packets, in bytes, by the number of the attribute (`IFLA_GSO_MAX_SIZE` and its kin); without those that the
    /// kernel lacks.
    pub joined_sizes: BTreeMap<u16, u32>,
    /// Receive queues allocated.
    pub rx_queues: u32,
    /// Transmit queues allocated.
    pub tx_queues: u32,
    /// Ethernet address, where it has one.
    pub mac: Option<MacAddress>,
    /// The address that the device was made with, in hexadecimal; `None` for virtual ones (Linux 5.6).
    pub permanent_address: Option<String>,
}

/// How an interface left a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It is no more.
    Deleted,
    /// It is in another namespace.
    Moved,
}

impl Departure {
    /// The number of the interface that a notice says has gone, and how.
    pub(crate) fn parse(message: &Message<'_>) -> Option<(u32, Self)> {
        if message.kind != uapi::RTM_DELLINK {
            return None;
        }
        let (header, attributes) = message.payload.split_first_chunk::<16>()?;
        let [family, _, _, _, i0, i1, i2, i3, ..] = *header;
        // A port that leaves a bridge is told in the same way, with the bridge's family.
        if family != 0 {
            return None;
        }
        let mut departure = Self::Deleted;
        for attribute in Attributes::new(attributes) {
            // An attribute that cannot be read might say that it was moved.
            if matches!(attribute.ok()?.kind, uapi::IFLA_NEW_NETNSID | uapi::IFLA_NEW_IFINDEX) {
                departure = Self::Moved;
            }
        }
        Some((u32::from_ne_bytes([i0, i1, i2, i3]), departure))
    }
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Interface name.
    pub name: &'a str,
    /// Ethernet address.
    pub mac: MacAddress,
    /// MTU.
    pub mtu: Bytes,
}

/// A route netlink socket: acts in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Route(Socket);

impl Route {
    /// Opens the socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Socket::open(Protocol::Route)?))
    }

    /// Every interface of the namespace.
    pub fn links(&self) -> Result<Vec<Link>, Error> {
        let request = Request::new("list the interfaces", uapi::RTM_GETLINK)
            .dump()
            .header(&link_header(0, 0, 0));
        let answer = self.0.exchange(&request)?;
        answer.iter().map(|payload| parse(&request, payload)).collect()
    }

    /// The interface called `name`.
    pub fn link(&self, name: &str) -> Result<Link, Error> {
        check_interface_name(name)?;
        self.link_by_any_name(name).map_err(|error| match error.errno() {
            Some(libc::ENODEV) => Error::NoInterface { name: name.to_owned() },
            _ => error,
        })
    }

    /// The interface of this name or alternative name (`ip link property add dev eth0 altname lan`). Fails with `ENODEV`
    /// when there is none.
    pub fn link_by_any_name(&self, name: &str) -> Result<Link, Error> {
        // The kernel takes a name of up to 15 bytes here, or a longer one there, and finds both kinds by either.
        let kind = if name.len() <= 15 { uapi::IFLA_IFNAME } else { uapi::IFLA_ALT_IFNAME };
        let request = Request::new(format!("find the interface {name}"), uapi::RTM_GETLINK)
            .header(&link_header(0, 0, 0))
            .text(kind, name);
        parse(&request, &self.0.exchange_for_one(&request)?)
    }

    /// The interface with this number. Fails with `ENODEV` when there is none.
    pub fn link_numbered(&self, index: u32) -> Result<Link, Error> {
        let request = Request::new(format!("find interface {index}"), uapi::RTM_GETLINK)
            .header(&link_header(index, 0, 0));
        parse(&request, &self.0.exchange_for_one(&request)?)
    }

    /// The number that this namespace has for another; `None` while it has none.
    pub fn number_of(&self, namespace: BorrowedFd<'_>) -> Result<Option<i32>, Error> {
        let request = Request::new("find the number of a namespace", uapi::RTM_GETNSID)
            .header(&[0; 4])
            .u32(NETNSA_FD, namespace.as_raw_fd().cast_unsigned());
        let answer = self.0.exchange_for_one(&request)?;
        let attributes = answer.get(4..).unwrap_or_default();
        let number = Attributes::new(attributes)
            .find_kind(NETNSA_NSID)
            .and_then(|found| found.map(|it| it.as_u32()).transpose())
            .map_err(|source| at(&request, source))?;
        Ok(number.map(u32::cast_signed).filter(|number| *number >= 0))
    }

    /// Makes a veth pair: `here` in this namespace, `there` directly in another.
    pub fn create_veth(
        &self,
        here: VethEnd<'_>,
        there: VethEnd<'_>,
        other_namespace: BorrowedFd<'_>,
    ) -> Result<(), Error> {
        check_interface_name(here.name)?;
        check_interface_name(there.name)?;
        let what = format!("create the veth pair {} and {}", here.name, there.name);
        let other_fd = other_namespace.as_raw_fd().to_ne_bytes();
        let mut end = Vec::new();
        put_end(&mut end, &here);
        let mut request =
            Request::new(what, uapi::RTM_NEWLINK).create().header(&link_header(0, 0, 0));
        request = request.raw(&end).nested(uapi::IFLA_LINKINFO, |info| {
            put(info, uapi::IFLA_INFO_KIND, b"veth\0");
            put_nested(info, uapi::IFLA_INFO_DATA, |data| {
                put_nested(data, uapi::VETH_INFO_PEER, |peer| {
                    peer.extend_from_slice(&link_header(0, 0, 0));
                    put_end(peer, &there);
                    put(peer, uapi::IFLA_NET_NS_FD, &other_fd);
                });
            });
        });
        self.0.exchange(&request)?;
        Ok(())
    }

    /// Removes an interface; of a veth pair both ends go.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let index = self.link(name)?.index;
        let request = Request::new(format!("delete the interface {name}"), uapi::RTM_DELLINK)
            .header(&link_header(index, 0, 0));
        self.0.exchange(&request)?;
        Ok(())
    }

    /// Brings an interface up.
    pub fn set_up(&self, name: &str) -> Result<(), Error> {
        self.change(name, "bring up", IFF_UP, IFF_UP, |request| request)
    }

    /// Moves an interface to another network namespace, where it is down and has no address.
    pub fn move_to(&self, name: &str, namespace: BorrowedFd<'_>) -> Result<(), Error> {
        let fd = namespace.as_raw_fd().cast_unsigned();
        self.change(name, "move to another namespace:", 0, 0, |request| {
            request.u32(uapi::IFLA_NET_NS_FD, fd)
        })
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&self, name: &str, mtu: Bytes) -> Result<(), Error> {
        let value = u32::try_from(mtu.get())
            .map_err(|_| Error::Other(format!("{name}: an MTU of {mtu} does not fit 32 bits")))?;
        self.change(name, "set the mtu of", 0, 0, |request| request.u32(uapi::IFLA_MTU, value))
    }

    /// Sets the length of the transmit queue, in packets.
    pub(crate) fn set_txqueuelen(&self, name: &str, packets: u32) -> Result<(), Error> {
        self.change(name, "set the txqueuelen of", 0, 0, |request| {
            request.u32(uapi::IFLA_TXQLEN, packets)
        })
    }

    /// Sets the largest size of joined packets that has this attribute.
    pub(crate) fn set_joined_size(
        &self,
        name: &str,
        attribute: u16,
        bytes: u32,
    ) -> Result<(), Error> {
        self.change(name, "set the size of joined packets of", 0, 0, |request| {
            request.u32(attribute, bytes)
        })
    }

    /// Stops the kernel from making IPv6 addresses of its own on the interface, and with them
    /// duplicate address detection and router solicitations. Must be called before it comes up.
    pub fn stop_ipv6_autoconfiguration(&self, name: &str) -> Result<(), Error> {
        self.change(name, "stop IPv6 autoconfiguration of", 0, 0, |request| {
            request.nested(uapi::IFLA_AF_SPEC, |families| {
                put_nested(families, u16::from(AF_INET6), |inet6| {
                    put(inet6, uapi::IFLA_INET6_ADDR_GEN_MODE, &[uapi::IN6_ADDR_GEN_MODE_NONE]);
                });
            })
        })
    }

    /// Gives an interface an address; IPv6 without duplicate address detection.
    pub fn add_address(&self, name: &str, address: IpAddr, prefix_length: u8) -> Result<(), Error> {
        let index = self.link(name)?.index;
        let (family, bytes) = family_and_bytes(address);
        let header = [&[family, prefix_length, 0, 0][..], &index.to_ne_bytes()].concat();
        let mut request = Request::new(
            format!("give {name} the address {address}/{prefix_length}"),
            uapi::RTM_NEWADDR,
        )
        .create_or_replace()
        .header(&header)
        .bytes(uapi::IFA_LOCAL, &bytes)
        .bytes(uapi::IFA_ADDRESS, &bytes);
        if address.is_ipv6() {
            request = request.u32(uapi::IFA_FLAGS, IFA_F_NODAD);
        }
        self.0.exchange(&request)?;
        Ok(())
    }

    /// Adds a permanent neighbour, so that no ARP or neighbour discovery is needed to reach it.
    pub fn add_neighbour(&self, name: &str, address: IpAddr, mac: MacAddress) -> Result<(), Error> {
        let index = self.link(name)?.index;
        let (family, bytes) = family_and_bytes(address);
        let mut header = vec![family, 0, 0, 0];
        header.extend_from_slice(&index.to_ne_bytes());
        header.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
        header.extend_from_slice(&[0, 0]);
        let request =
            Request::new(format!("add the neighbour {address} of {name}"), uapi::RTM_NEWNEIGH)
                .create_or_replace()
                .header(&header)
                .bytes(uapi::NDA_DST, &bytes)
                .bytes(uapi::NDA_LLADDR, &mac);
        self.0.exchange(&request)?;
        Ok(())
    }

    /// The counters of the interface with this index.
    pub fn counters(&self, index: u32) -> Result<InterfaceCounters, Error> {
        self.statistics(index, parse_counters)
    }

    /// Errors and drops of both directions of the interface with this index, packets.
    pub fn faults(&self, index: u32) -> Result<u64, Error> {
        self.statistics(index, parse_faults)
    }

    fn statistics<T>(
        &self,
        index: u32,
        parse: fn(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let filter = 1_u32 << (uapi::IFLA_STATS_LINK_64 - 1);
        let header = [[0; 4], index.to_ne_bytes(), filter.to_ne_bytes()].concat();
        let request =
            Request::new(format!("read the counters of interface {index}"), uapi::RTM_GETSTATS)
                .header(&header);
        let payload = self.0.exchange_for_one(&request)?;
        Ok(parse(&payload).map_err(|source| at(&request, source))?)
    }

    fn change(
        &self,
        name: &str,
        verb: &str,
        flags: u32,
        change: u32,
        fill: impl FnOnce(Request) -> Request,
    ) -> Result<(), Error> {
        check_interface_name(name)?;
        let request = Request::new(format!("{verb} {name}"), uapi::RTM_SETLINK)
            .header(&link_header(0, flags, change))
            .text(uapi::IFLA_IFNAME, name);
        self.0.exchange(&fill(request))?;
        Ok(())
    }
}

/// `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn put_end(bytes: &mut Vec<u8>, end: &VethEnd<'_>) {
    let mtu = u32::try_from(end.mtu.get()).unwrap_or(u32::MAX); // the kernel refuses what is too large
    put(bytes, uapi::IFLA_IFNAME, &[end.name.as_bytes(), b"\0"].concat());
    put(bytes, uapi::IFLA_ADDRESS, &end.mac);
    put(bytes, uapi::IFLA_MTU, &mtu.to_ne_bytes());
}

fn family_and_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    }
}

fn at(request: &Request, source: Malformed) -> NetlinkError {
    NetlinkError::Malformed { request: request.what().to_owned(), source }
}

fn parse(request: &Request, payload: &[u8]) -> Result<Link, Error> {
    Ok(parse_link(payload).map_err(|source| at(request, source))?)
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(payload: &[u8]) {
    let _ = (parse_link(payload), parse_counters(payload));
}

fn parse_link(payload: &[u8]) -> Result<Link, Malformed> {
    let Some((header, attributes)) = payload.split_first_chunk::<16>() else {
        return Err(malformed("a link header is cut short"));
    };
    let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *header;
    let mut link = Link {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        is_up: u32::from_ne_bytes([f0, f1, f2, f3]) & IFF_UP != 0,
        ..Link::default()
    };
    let mut namespace_of_lower = None;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::IFLA_LINK => link.lower = Some(attribute.as_u32()?),
            uapi::IFLA_LINK_NETNSID => {
                namespace_of_lower = Some(attribute.as_u32()?.cast_signed());
            }
            uapi::IFLA_MASTER => link.master = Some(attribute.as_u32()?),
            uapi::IFLA_ADDRESS => link.mac = attribute.payload.try_into().ok(),
            uapi::IFLA_PERM_ADDRESS => link.permanent_address = hexadecimal(attribute.payload),
            uapi::IFLA_IFNAME => link.name = attribute.as_text().into_owned(),
            uapi::IFLA_MTU => link.mtu = Bytes::new(attribute.as_u32()?.into()),
            uapi::IFLA_MIN_MTU => link.mtu_range.0 = Bytes::new(attribute.as_u32()?.into()),
            uapi::IFLA_MAX_MTU => {
                let limit = attribute.as_u32()?;
                link.mtu_range.1 = (limit != 0).then(|| Bytes::new(limit.into()));
            }
            uapi::IFLA_TXQLEN => link.txqueuelen = attribute.as_u32()?,
            uapi::IFLA_GSO_MAX_SIZE
            | uapi::IFLA_GRO_MAX_SIZE
            | uapi::IFLA_TSO_MAX_SIZE
            | uapi::IFLA_GSO_IPV4_MAX_SIZE
            | uapi::IFLA_GRO_IPV4_MAX_SIZE => {
                link.joined_sizes.insert(attribute.kind, attribute.as_u32()?);
            }
            uapi::IFLA_NUM_RX_QUEUES => link.rx_queues = attribute.as_u32()?,
            uapi::IFLA_NUM_TX_QUEUES => link.tx_queues = attribute.as_u32()?,
            uapi::IFLA_CARRIER => link.has_carrier = Some(attribute.as_u8()? != 0),
            uapi::IFLA_LINKINFO => {
                let kind = attribute.nested().find_kind(uapi::IFLA_INFO_KIND)?;
                link.kind = kind.map(|kind| kind.as_text().into_owned());
            }
            _ => {}
        }
    }
    link.lower_elsewhere = link.lower.zip(namespace_of_lower);
    link.lower = link.lower.filter(|lower| namespace_of_lower.is_none() && *lower != link.index);
    if link.name.is_empty() {
        return Err(malformed("an interface without a name"));
    }
    Ok(link)
}

/// An address as text; `None` if it is all zero.
fn hexadecimal(address: &[u8]) -> Option<String> {
    let is_set = address.iter().any(|byte| *byte != 0);
    let digits = address.iter().map(|byte| format!("{byte:02x}"));
    is_set.then(|| digits.collect::<Vec<_>>().concat())
}

/// The first eight counters of `struct rtnl_link_stats64`; the kernel only ever appends to it.
fn first_counters(payload: &[u8]) -> Result<[u64; 8], Malformed> {
    let attributes = payload.get(12..).ok_or(malformed("a statistics header is cut short"))?;
    let stats = Attributes::new(attributes)
        .find_kind(uapi::IFLA_STATS_LINK_64)?
        .ok_or(malformed("an answer without the statistics"))?;
    let (counters, _) = stats.payload.as_chunks::<8>();
    let first = counters.first_chunk::<8>();
    let first = first.ok_or(malformed("interface statistics are cut short"))?;
    Ok(first.map(u64::from_ne_bytes))
}

fn parse_counters(payload: &[u8]) -> Result<InterfaceCounters, Malformed> {
    let [rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped] =
        first_counters(payload)?;
    Ok(InterfaceCounters { rx_packets, rx_bytes, tx_packets, tx_bytes, rx_dropped, tx_dropped })
}

fn parse_faults(payload: &[u8]) -> Result<u64, Malformed> {
    let [_, _, _, _, faults @ ..] = first_counters(payload)?;
    Ok(faults.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    #[test]
    fn link_is_read_from_its_attributes() {
        let mut payload = link_header(7, IFF_UP, 0).to_vec();
        put(&mut payload, uapi::IFLA_IFNAME, b"lat0\0");
        put(&mut payload, uapi::IFLA_MTU, &1500_u32.to_ne_bytes());
        put(&mut payload, uapi::IFLA_MAX_MTU, &65535_u32.to_ne_bytes());
        put(&mut payload, uapi::IFLA_CARRIER, &[1]);
        put(&mut payload, 9999, b"from a later kernel");
        put_nested(&mut payload, uapi::IFLA_LINKINFO, |info| {
            put(info, uapi::IFLA_INFO_KIND, b"veth\0");
        });
        let link = parse_link(&payload).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.is_up), (7, "lat0", true));
        assert_eq!((link.mtu.get(), link.has_carrier), (1500, Some(true)));
        assert_eq!(link.mtu_range.1, Some(Bytes::new(65535)));
        assert_eq!(link.kind.as_deref(), Some("veth"));
        assert_eq!(link.mac, None);
    }

    #[test]
    fn counters_are_taken_from_the_right_places() {
        let mut payload = vec![0; 12];
        let values: Vec<u8> = (1_u64..=24).flat_map(u64::to_ne_bytes).collect();
        put(&mut payload, uapi::IFLA_STATS_LINK_64, &values);
        let counters = parse_counters(&payload).unwrap();
        let InterfaceCounters {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            rx_dropped,
            tx_dropped,
        } = counters;
        assert_eq!([rx_packets, tx_packets, rx_bytes, tx_bytes], [1, 2, 3, 4]);
        assert_eq!([rx_dropped, tx_dropped], [7, 8]);
        assert_eq!(parse_faults(&payload).unwrap(), 5 + 6 + 7 + 8);
        assert!(parse_counters(&payload[..60]).is_err());
    }

    #[test]
    fn truncated_and_random_links_never_panic() {
        let mut rng = SeededRng::from_seed(3);
        for length in 0..120_usize {
            for _ in 0..50 {
                let bytes: Vec<u8> =
                    (0..length).map(|_| u8::try_from(rng.next_below(64)).unwrap()).collect();
                let _ = (parse_link(&bytes), parse_counters(&bytes));
            }
        }
    }
}
