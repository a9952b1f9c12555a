//! The addresses of a namespace's interfaces.
//!
//! Layout: `include/uapi/linux/if_addr.h`, `struct ifaddrmsg`.

use std::net::IpAddr;

use super::{Route, at};
use crate::error::Error;
use crate::netlink::{Attributes, Malformed, Request, malformed, uapi};

const HEADER: usize = 8;
/// `RT_SCOPE_LINK` and beyond: addresses that mean nothing on another link.
const SCOPE_LINK: u8 = 253;
/// `IFA_F_DADFAILED | IFA_F_TENTATIVE`: nobody may use it, or not yet.
const UNUSABLE: u8 = 0x08 | 0x40;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface's number.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// Whether another host can use it: it is neither of the loopback nor of one link only, and it has
    /// passed the detection of duplicates.
    pub is_reachable: bool,
}

impl Route {
    /// Every address of the namespace, in the kernel's order.
    pub fn addresses(&self) -> Result<Vec<InterfaceAddress>, Error> {
        let request =
            Request::new("list the addresses", uapi::RTM_GETADDR).dump().header(&[0; HEADER]);
        let answer = self.0.exchange(&request)?;
        let parsed = answer.iter().map(|payload| parse(payload));
        parsed.map(|address| Ok(address.map_err(|source| at(&request, source))?)).collect()
    }
}

fn parse(payload: &[u8]) -> Result<InterfaceAddress, Malformed> {
    let Some((header, attributes)) = payload.split_first_chunk::<HEADER>() else {
        return Err(malformed("an address header is cut short"));
    };
    let [_, _, flags, scope, i0, i1, i2, i3] = *header;
    let attributes = Attributes::new(attributes);
    // IFA_ADDRESS is the far end's on a point-to-point link.
    let local = attributes.clone().find_kind(uapi::IFA_LOCAL)?;
    let found = match local {
        Some(local) => Some(local),
        None => attributes.find_kind(uapi::IFA_ADDRESS)?,
    };
    let address = found
        .and_then(|attribute| ip_address(attribute.payload))
        .ok_or(malformed("an address of neither 4 nor 16 bytes"))?;
    Ok(InterfaceAddress {
        interface: u32::from_ne_bytes([i0, i1, i2, i3]),
        address,
        is_reachable: scope < SCOPE_LINK && flags & UNUSABLE == 0 && !address.is_loopback(),
    })
}

/// The address of 4 or 16 bytes in network order.
pub(super) fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::message::put;

    #[test]
    fn own_address_differs_from_far_and_link() {
        let point_to_point =
            [(uapi::IFA_ADDRESS, &[192, 0, 2, 2][..]), (uapi::IFA_LOCAL, &[192, 0, 2, 1])];
        check(0, 0, &point_to_point, Some(("192.0.2.1", true)));
        let mut v6 = [0; 16];
        (v6[0], v6[1], v6[15]) = (0x20, 0x01, 9);
        check(0, 0, &[(uapi::IFA_ADDRESS, &v6)], Some(("2001::9", true)));
        check(0x40, 0, &[(uapi::IFA_ADDRESS, &v6)], Some(("2001::9", false)));
        check(0, 253, &[(uapi::IFA_ADDRESS, &v6)], Some(("2001::9", false)));
        check(0, 0, &[(uapi::IFA_LOCAL, &[127, 0, 0, 1])], Some(("127.0.0.1", false)));
        check(0, 0, &[(uapi::IFA_LOCAL, &[127, 0])], None);
        check(0, 0, &[], None);
    }

    #[test]
    fn loopback_has_its_address() {
        let found = Route::open().unwrap().addresses().unwrap();
        assert!(found.iter().all(|a| a.is_reachable != a.address.is_loopback() || !a.is_reachable));
    }

    #[track_caller]
    fn check(flags: u8, scope: u8, attributes: &[(u16, &[u8])], expected: Option<(&str, bool)>) {
        let mut payload = vec![2, 24, flags, scope, 7, 0, 0, 0];
        for (kind, value) in attributes {
            put(&mut payload, *kind, value);
        }
        let found =
            parse(&payload).ok().map(|found| (found.address.to_string(), found.is_reachable));
        assert_eq!(found, expected.map(|(address, is)| (address.to_owned(), is)));
        assert!(parse(&payload[..7]).is_err());
    }
}
