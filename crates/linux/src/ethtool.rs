//! Offload features by name, and tables of numbers, over ethtool's generic netlink family.
//!
//! Semantics: `Documentation/networking/ethtool-netlink.rst`, `FEATURES_GET` and `FEATURES_SET`.

pub mod ioctl;
pub mod parameters;
pub(crate) mod rss;

use std::collections::BTreeMap;

use crate::error::{Error, check_interface_name};
use crate::netlink::message::{put, put_nested};
use crate::netlink::{Attribute, Generic, Malformed, NetlinkError, malformed, uapi};

/// Every message of the family opens with this nest, which names the interface.
pub(crate) const HEADER: u16 = uapi::ETHTOOL_A_FEATURES_HEADER;

/// One offload feature of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// In force now.
    pub is_active: bool,
    /// Asked for; the kernel holds it back while something it depends on is off.
    pub is_wanted: bool,
    /// Whether it can be changed.
    pub is_changeable: bool,
}

/// Features by the kernel's name (`rx-gro`).
pub type Features = BTreeMap<String, Feature>;

/// A socket to the ethtool family: acts in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ethtool(Generic);

impl Ethtool {
    /// Opens the socket. Kernels before 5.6 do not have the family.
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Generic::open("ethtool")?))
    }

    /// Every feature that the kernel knows, with its state on `interface`.
    pub fn features(&self, interface: &str) -> Result<Features, Error> {
        check_interface_name(interface)?;
        let what = format!("read the features of {interface}");
        let request = self
            .0
            .request(what.clone(), uapi::ETHTOOL_MSG_FEATURES_GET)
            .nested(HEADER, |header| put_device(header, interface));
        let answer = self.0.exchange(&request)?;
        let attributes = answer.first().map_or(&[][..], Vec::as_slice);
        let features = parse_features(attributes)
            .map_err(|source| NetlinkError::Malformed { request: what, source })?;
        Ok(features)
    }

    /// Asks for features to be on or off, whether or not they can come into force now.
    pub(crate) fn want_features(
        &self,
        interface: &str,
        wanted: &[(&str, bool)],
    ) -> Result<(), Error> {
        check_interface_name(interface)?;
        let names: Vec<String> = wanted.iter().map(|(name, on)| describe(name, *on)).collect();
        let what = format!("set {} on {interface}", names.join(", "));
        let request = self
            .0
            .request(what, uapi::ETHTOOL_MSG_FEATURES_SET)
            .nested(HEADER, |header| put_device(header, interface))
            .nested(uapi::ETHTOOL_A_FEATURES_WANTED, |bitset| {
                put_nested(bitset, uapi::ETHTOOL_A_BITSET_BITS, |bits| {
                    for (name, on) in wanted {
                        put_nested(bits, uapi::ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                            put_bit(bit, name, *on);
                        });
                    }
                });
            });
        self.0.exchange(&request)?;
        Ok(())
    }

    /// Asks for features to be on or off, all in one request, and reads back what came of it: the
    /// kernel accepts a request of which it fulfils only a part. Fails naming those that it ignored.
    pub(crate) fn set_features(
        &self,
        interface: &str,
        wanted: &[(&str, bool)],
    ) -> Result<(), Error> {
        self.want_features(interface, wanted)?;
        let names: Vec<String> = wanted.iter().map(|(name, on)| describe(name, *on)).collect();
        let what = format!("set {} on {interface}", names.join(", "));
        let features = self.features(interface)?;
        let ignored: Vec<String> = wanted
            .iter()
            .filter(|(name, on)| features.get(*name).is_none_or(|feature| feature.is_active != *on))
            .map(|(name, on)| describe(name, *on))
            .collect();
        if ignored.is_empty() {
            return Ok(());
        }
        Err(Error::Netlink(NetlinkError::Refused {
            request: what,
            errno: libc::EINVAL,
            text: Some(format!(
                "the kernel accepted the request but did not do {} (a feature it depends on may be off)",
                ignored.join(", ")
            )),
            offset: None,
        }))
    }
}

fn describe(name: &str, on: bool) -> String {
    format!("{name} {}", if on { "on" } else { "off" })
}

fn put_device(header: &mut Vec<u8>, interface: &str) {
    put(header, uapi::ETHTOOL_A_HEADER_DEV_NAME, &[interface.as_bytes(), b"\0"].concat());
}

fn put_bit(bit: &mut Vec<u8>, name: &str, on: bool) {
    put(bit, uapi::ETHTOOL_A_BITSET_BIT_NAME, &[name.as_bytes(), b"\0"].concat());
    if on {
        put(bit, uapi::ETHTOOL_A_BITSET_BIT_VALUE, &[]);
    }
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(attributes: &[u8]) {
    let _ = parse_features(attributes);
}

fn parse_features(attributes: &[u8]) -> Result<Features, Malformed> {
    let mut features = Features::new();
    let mut fixed = Vec::new();
    for attribute in crate::netlink::Attributes::new(attributes) {
        let attribute = attribute?;
        match attribute.kind {
            uapi::ETHTOOL_A_FEATURES_HW => {
                for (name, changeable) in bits(attribute)? {
                    features.entry(name).or_default().is_changeable = changeable;
                }
            }
            uapi::ETHTOOL_A_FEATURES_WANTED => {
                for (name, _) in bits(attribute)? {
                    features.entry(name).or_default().is_wanted = true;
                }
            }
            uapi::ETHTOOL_A_FEATURES_ACTIVE => {
                for (name, _) in bits(attribute)? {
                    features.entry(name).or_default().is_active = true;
                }
            }
            uapi::ETHTOOL_A_FEATURES_NOCHANGE => fixed = bits(attribute)?,
            _ => {}
        }
    }
    for (name, _) in fixed {
        features.entry(name).or_default().is_changeable = false;
    }
    if features.is_empty() {
        return Err(malformed("an answer without features"));
    }
    Ok(features)
}

/// The named bits of a verbose bitset, with their values. Bitsets without a mask list only the bits
/// that are set; for those the value says nothing.
fn bits(bitset: Attribute<'_>) -> Result<Vec<(String, bool)>, Malformed> {
    let mut named = Vec::new();
    let Some(bits) = bitset.nested().find_kind(uapi::ETHTOOL_A_BITSET_BITS)? else {
        return Ok(named);
    };
    for bit in bits.nested() {
        let mut name = None;
        let mut value = false;
        for attribute in bit?.nested() {
            let attribute = attribute?;
            match attribute.kind {
                uapi::ETHTOOL_A_BITSET_BIT_NAME => name = Some(attribute.as_text().into_owned()),
                uapi::ETHTOOL_A_BITSET_BIT_VALUE => value = true,
                _ => {}
            }
        }
        named.push((name.ok_or(malformed("a feature without a name"))?, value));
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_active_wanted_and_changeable() {
        let mut bytes = Vec::new();
        put_bitset(
            &mut bytes,
            uapi::ETHTOOL_A_FEATURES_HW,
            &[("rx-gro", true), ("loopback", false)],
        );
        put_bitset(&mut bytes, uapi::ETHTOOL_A_FEATURES_WANTED, &[("rx-gro", false)]);
        put_bitset(&mut bytes, uapi::ETHTOOL_A_FEATURES_ACTIVE, &[("loopback", false)]);
        put_bitset(&mut bytes, uapi::ETHTOOL_A_FEATURES_NOCHANGE, &[("loopback", false)]);
        let features = parse_features(&bytes).unwrap();
        let gro = Feature { is_active: false, is_wanted: true, is_changeable: true };
        let loopback = Feature { is_active: true, is_wanted: false, is_changeable: false };
        assert_eq!(features["rx-gro"], gro);
        assert_eq!(features["loopback"], loopback);
    }

    #[test]
    fn answer_without_features_or_names_is_malformed() {
        assert!(parse_features(&[]).is_err());
        let mut bytes = Vec::new();
        put_nested(&mut bytes, uapi::ETHTOOL_A_FEATURES_HW, |bitset| {
            put_nested(bitset, uapi::ETHTOOL_A_BITSET_BITS, |bits| {
                put_nested(bits, uapi::ETHTOOL_A_BITSET_BITS_BIT, |_| {});
            });
        });
        assert!(parse_features(&bytes).is_err());
    }

    fn put_bitset(bytes: &mut Vec<u8>, kind: u16, entries: &[(&str, bool)]) {
        put_nested(bytes, kind, |bitset| {
            put_nested(bitset, uapi::ETHTOOL_A_BITSET_BITS, |bits| {
                for (name, value) in entries {
                    put_nested(bits, uapi::ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                        put_bit(bit, name, *value);
                    });
                }
            });
        });
    }
}
