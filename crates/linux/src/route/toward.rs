//! The interface that leads to an address.
//!
//! Layout: `include/uapi/linux/rtnetlink.h`, `struct rtmsg`.

use std::net::IpAddr;

use super::address::ip_address;
use super::{Route, at, family_and_bytes};
use crate::error::Error;
use crate::netlink::{Attributes, Malformed, Request, malformed, uapi};

/// The address is one of this host's.
const RTN_LOCAL: u8 = 2;
const HEADER: usize = 12;

/// The way to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toward {
    /// The interface that packets to it leave by; of an address of this host the loopback.
    pub interface: String,
    /// Whether it is an address of this host.
    pub is_local: bool,
    /// The address that packets to it leave with, where the kernel says so.
    pub source: Option<IpAddr>,
    /// Whether the address is on the interface's own network, with no router in between.
    pub is_direct: bool,
}

impl Route {
    /// The way to `address` as the kernel would take it now. Fails with `ENETUNREACH` where there is
    /// none.
    pub fn toward(&self, address: IpAddr) -> Result<Toward, Error> {
        let (family, bytes) = family_and_bytes(address);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&[family, bits]);
        let request = Request::new(format!("find the route to {address}"), uapi::RTM_GETROUTE)
            .header(&header)
            .bytes(uapi::RTA_DST, &bytes);
        let payload = self.0.exchange_for_one(&request)?;
        let (index, toward) = parse(&payload).map_err(|source| at(&request, source))?;
        let found = self.links()?.into_iter().find(|link| link.index == index);
        let interface = found.map(|link| link.name).ok_or_else(|| {
            Error::Other(format!("the route to {address} leaves by an interface that is not here"))
        })?;
        Ok(Toward { interface, ..toward })
    }
}

/// The interface's number, and the way without the interface's name.
fn parse(payload: &[u8]) -> Result<(u32, Toward), Malformed> {
    let Some((header, attributes)) = payload.split_first_chunk::<HEADER>() else {
        return Err(malformed("a route header is cut short"));
    };
    let mut index = None;
    let mut toward = Toward {
        interface: String::new(),
        is_local: header[7] == RTN_LOCAL,
        source: None,
        is_direct: true,
    };
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::RTA_OIF => index = Some(attribute.as_u32()?),
            uapi::RTA_PREFSRC => toward.source = ip_address(attribute.payload),
            uapi::RTA_GATEWAY | uapi::RTA_VIA => toward.is_direct = false,
            _ => {}
        }
    }
    Ok((index.ok_or(malformed("a route without an interface"))?, toward))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::put;

    #[test]
    fn own_address_is_reached_by_the_loopback() {
        let own = IpAddr::from([127, 0, 0, 1]);
        let toward = Route::open().unwrap().toward(own).unwrap();
        let expected = Toward {
            interface: "lo".to_owned(),
            is_local: true,
            source: Some(own),
            is_direct: true,
        };
        assert_eq!(toward, expected);
    }

    #[test]
    fn route_is_read_from_header_and_attributes() {
        let mut payload = vec![2, 32, 0, 0, 254, 2, 0, 1, 0, 0, 0, 0];
        put(&mut payload, uapi::RTA_OIF, &7_u32.to_ne_bytes());
        put(&mut payload, uapi::RTA_PREFSRC, &[192, 0, 2, 1]);
        let source = Some(IpAddr::from([192, 0, 2, 1]));
        let direct = Toward { interface: String::new(), is_local: false, source, is_direct: true };
        assert_eq!(parse(&payload), Ok((7, direct.clone())));
        put(&mut payload, uapi::RTA_GATEWAY, &[192, 0, 2, 254]);
        assert_eq!(parse(&payload), Ok((7, Toward { is_direct: false, ..direct })));
        assert!(parse(&payload[..12]).is_err(), "no interface");
        assert!(parse(&payload[..5]).is_err(), "cut short");
    }
}
