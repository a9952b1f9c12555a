//! The MTU of IPv6 routes.
//!
//! Layout: `include/uapi/linux/rtnetlink.h`, `struct rtmsg` and `struct rtnexthop`.

use std::net::{IpAddr, Ipv6Addr};

use latput_units::Bytes;

use super::address::ip_address;
use super::{AF_INET6, Route, at};
use crate::error::Error;
use crate::netlink::{Attributes, Malformed, Request, malformed, uapi};

const HEADER: usize = 12;
/// `RTAX_LOCK` and `RTAX_MTU`.
const LOCK: u16 = 1;
const MTU: u16 = 2;
/// Length of `struct rtnexthop`.
const NEXT_HOP: usize = 8;

/// An IPv6 route with an MTU of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMtu {
    /// Its destination: `2001:db8::/64`.
    pub destination: String,
    /// The numbers of the interfaces that it leads through.
    pub interfaces: Vec<u32>,
    /// Largest packet.
    pub mtu: Bytes,
    /// Whether the kernel leaves the MTU as it is (`mtu lock`).
    pub is_locked: bool,
}

impl Route {
    /// The IPv6 routes with an MTU of their own. Empty without IPv6.
    pub fn ipv6_route_mtus(&self) -> Result<Vec<RouteMtu>, Error> {
        let mut header = [0; HEADER];
        header[0] = AF_INET6;
        let request =
            Request::new("list the IPv6 routes", uapi::RTM_GETROUTE).dump().header(&header);
        let answer = match self.0.exchange(&request) {
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
            answer => answer?,
        };
        let routes = answer.iter().filter_map(|payload| parse(payload).transpose());
        routes.collect::<Result<_, _>>().map_err(|source| at(&request, source).into())
    }
}

/// `None` where the route has no MTU of its own, or is of another family.
fn parse(payload: &[u8]) -> Result<Option<RouteMtu>, Malformed> {
    let Some((header, attributes)) = payload.split_first_chunk::<HEADER>() else {
        return Err(malformed("a route header is cut short"));
    };
    let (mut to, mut mtu, mut is_locked) = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), None, false);
    let mut interfaces = Vec::new();
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::RTA_DST => to = ip_address(attribute.payload).unwrap_or(to),
            uapi::RTA_OIF => interfaces.push(attribute.as_u32()?),
            uapi::RTA_MULTIPATH => interfaces.extend(next_hops(attribute.payload)),
            uapi::RTA_METRICS => {
                for metric in attribute.nested() {
                    let metric = metric?;
                    match metric.kind {
                        MTU => mtu = Some(metric.as_u32()?),
                        LOCK => is_locked = metric.as_u32()? & (1 << MTU) != 0,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let mtu = mtu.filter(|mtu| *mtu != 0 && header[0] == AF_INET6);
    Ok(mtu.map(|mtu| RouteMtu {
        destination: format!("{to}/{}", header[1]),
        interfaces,
        mtu: Bytes::new(u64::from(mtu)),
        is_locked,
    }))
}

/// The numbers of the interfaces of several next hops.
fn next_hops(mut payload: &[u8]) -> Vec<u32> {
    let mut interfaces = Vec::new();
    while let Some(([l0, l1, _, _, i0, i1, i2, i3], _)) = payload.split_first_chunk::<NEXT_HOP>() {
        interfaces.push(u32::from_ne_bytes([*i0, *i1, *i2, *i3]));
        let length = usize::from(u16::from_ne_bytes([*l0, *l1])).max(NEXT_HOP);
        payload = payload.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::{put, put_nested};

    fn route(interfaces: impl FnOnce(&mut Vec<u8>), metrics: &[(u16, u32)]) -> Vec<u8> {
        let mut payload = vec![AF_INET6, 32, 0, 0, 254, 2, 0, 1, 0, 0, 0, 0];
        put(&mut payload, uapi::RTA_DST, &"2001:db8::".parse::<Ipv6Addr>().unwrap().octets());
        interfaces(&mut payload);
        put_nested(&mut payload, uapi::RTA_METRICS, |nested| {
            for (kind, value) in metrics {
                put(nested, *kind, &value.to_ne_bytes());
            }
        });
        payload
    }

    #[test]
    fn route_tells_mtu_lock_and_all_interfaces() {
        let one = |payload: &mut Vec<u8>| put(payload, uapi::RTA_OIF, &7_u32.to_ne_bytes());
        let two = |payload: &mut Vec<u8>| {
            let hop = |index: u8| [8, 0, 0, 0, index, 0, 0, 0];
            put(payload, uapi::RTA_MULTIPATH, &[hop(7), hop(9)].concat());
        };
        let found = parse(&route(one, &[(MTU, 8000)])).unwrap().unwrap();
        let expected = RouteMtu {
            destination: "2001:db8::/32".to_owned(),
            interfaces: vec![7],
            mtu: Bytes::new(8000),
            is_locked: false,
        };
        assert_eq!(found, expected);
        assert_eq!(parse(&route(two, &[(MTU, 8000)])).unwrap().unwrap().interfaces, [7, 9]);
        assert!(parse(&route(one, &[(LOCK, 4), (MTU, 8000)])).unwrap().unwrap().is_locked);
        assert_eq!(parse(&route(one, &[(MTU + 1, 8000)])), Ok(None));
        assert!(parse(&[0; 5]).is_err(), "cut short");
        assert_eq!(next_hops(&[0; 16]), [0, 0], "a length of zero ends");
    }
}
