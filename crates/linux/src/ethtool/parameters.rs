//! Rings, channels, coalescing, flow control and energy saving: ethtool messages that are a flat list
//! of numbers.
//!
//! Semantics: `Documentation/networking/ethtool-netlink.rst`. In an answer of these messages a missing
//! attribute is one that the driver does not have, except that a driver may report a value that it
//! cannot change; only a request shows that.

use std::collections::BTreeMap;

use latput_knobs::Profile;
use latput_knobs::profile::ModerationPoint;
use latput_units::Nanos;

use super::{Ethtool, HEADER, put_device};
use crate::error::{Error, check_interface_name};
use crate::netlink::message::{put, put_nested};
use crate::netlink::{Attribute, Attributes, Malformed, NetlinkError, malformed, uapi};

/// One of ethtool's messages with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Ring sizes.
    Rings,
    /// Numbers of queues.
    Channels,
    /// Interrupt coalescing.
    Coalesce,
    /// 802.3x flow control.
    Pause,
    /// 802.3az energy saving.
    Eee,
}

impl Table {
    /// The messages that read it and set it.
    const fn commands(self) -> (u8, u8) {
        match self {
            Self::Rings => (uapi::ETHTOOL_MSG_RINGS_GET, uapi::ETHTOOL_MSG_RINGS_SET),
            Self::Channels => (uapi::ETHTOOL_MSG_CHANNELS_GET, uapi::ETHTOOL_MSG_CHANNELS_SET),
            Self::Coalesce => (uapi::ETHTOOL_MSG_COALESCE_GET, uapi::ETHTOOL_MSG_COALESCE_SET),
            Self::Pause => (uapi::ETHTOOL_MSG_PAUSE_GET, uapi::ETHTOOL_MSG_PAUSE_SET),
            Self::Eee => (uapi::ETHTOOL_MSG_EEE_GET, uapi::ETHTOOL_MSG_EEE_SET),
        }
    }

    /// Its name in errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rings => "rings",
            Self::Channels => "channels",
            Self::Coalesce => "coalescing",
            Self::Pause => "pause",
            Self::Eee => "eee",
        }
    }
}

/// How many bytes an attribute has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A flag or a small number.
    U8,
    /// A number.
    U32,
}

/// A driver's values of one table. Attributes that it does not have are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    numbers: BTreeMap<u16, u64>,
    profiles: BTreeMap<u16, Profile>,
}

impl Parameters {
    /// The number of an attribute.
    pub fn number(&self, attribute: u16) -> Option<u64> {
        self.numbers.get(&attribute).copied()
    }

    /// The moderation profile of an attribute.
    pub fn profile(&self, attribute: u16) -> Option<&Profile> {
        self.profiles.get(&attribute)
    }
}

impl Ethtool {
    /// Reads a table of `interface`. A driver without it answers `EOPNOTSUPP`.
    pub fn parameters(&self, interface: &str, table: Table) -> Result<Parameters, Error> {
        check_interface_name(interface)?;
        let what = format!("read the {} of {interface}", table.name());
        let request = self
            .0
            .request(what.clone(), table.commands().0)
            .nested(HEADER, |header| put_device(header, interface));
        let answer = self.0.exchange(&request)?;
        let attributes = answer.first().map_or(&[][..], Vec::as_slice);
        let parameters = parse_parameters(attributes, table)
            .map_err(|source| NetlinkError::Malformed { request: what, source })?;
        Ok(parameters)
    }

    /// Sets numbers of a table by one request; the others stay.
    pub(crate) fn set_parameters(
        &self,
        interface: &str,
        table: Table,
        numbers: &[((u16, Width), u64)],
    ) -> Result<(), Error> {
        let fields = encode_numbers(numbers).map_err(|value| {
            Error::Other(format!("{interface}: {value} is too large for its {}", table.name()))
        })?;
        self.set(interface, table, |attributes| attributes.extend(fields))
    }

    /// Sets a moderation profile.
    pub(crate) fn set_profile(
        &self,
        interface: &str,
        attribute: u16,
        profile: &Profile,
    ) -> Result<(), Error> {
        self.set(interface, Table::Coalesce, |attributes| {
            put_profile(attributes, attribute, profile);
        })
    }

    fn set(
        &self,
        interface: &str,
        table: Table,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        check_interface_name(interface)?;
        let mut attributes = Vec::new();
        fill(&mut attributes);
        let request = self
            .0
            .request(format!("set the {} of {interface}", table.name()), table.commands().1)
            .nested(HEADER, |header| put_device(header, interface))
            .raw(&attributes);
        self.0.exchange(&request)?;
        Ok(())
    }
}

/// The attributes of a request; the error is the number that does not fit its own.
fn encode_numbers(numbers: &[((u16, Width), u64)]) -> Result<Vec<u8>, u64> {
    let mut attributes = Vec::new();
    for ((attribute, width), value) in numbers {
        put(&mut attributes, *attribute, &encode(*value, *width).ok_or(*value)?);
    }
    Ok(attributes)
}

fn encode(value: u64, width: Width) -> Option<Vec<u8>> {
    match width {
        Width::U8 => u8::try_from(value).ok().map(|value| vec![value]),
        Width::U32 => u32::try_from(value).ok().map(|value| value.to_ne_bytes().to_vec()),
    }
}

fn put_profile(attributes: &mut Vec<u8>, attribute: u16, profile: &Profile) {
    put_nested(attributes, attribute, |points| {
        for point in profile.points() {
            put_nested(points, uapi::ETHTOOL_A_PROFILE_IRQ_MODERATION, |nest| {
                let delay = point.delay.and_then(|delay| u32::try_from(delay.as_ns() / 1_000).ok());
                let fields = [
                    (uapi::ETHTOOL_A_IRQ_MODERATION_USEC, delay),
                    (uapi::ETHTOOL_A_IRQ_MODERATION_PKTS, point.packets),
                    (uapi::ETHTOOL_A_IRQ_MODERATION_COMPS, point.completions),
                ];
                for (kind, value) in fields {
                    if let Some(value) = value {
                        put(nest, kind, &value.to_ne_bytes());
                    }
                }
            });
        }
    });
}

/// For the fuzzer: whatever a kernel might answer.
pub(crate) fn parse_any(attributes: &[u8]) {
    for table in [Table::Rings, Table::Channels, Table::Coalesce, Table::Pause, Table::Eee] {
        let _ = parse_parameters(attributes, table);
    }
}

fn parse_parameters(attributes: &[u8], table: Table) -> Result<Parameters, Malformed> {
    let mut parameters = Parameters::default();
    let mut has_header = false;
    for attribute in Attributes::new(attributes) {
        let attribute = attribute?;
        match (attribute.kind, attribute.payload.len()) {
            (HEADER, _) => has_header = true,
            (kind, 1) => drop(parameters.numbers.insert(kind, attribute.as_u8()?.into())),
            (kind, 4) => drop(parameters.numbers.insert(kind, attribute.as_u32()?.into())),
            (kind, _) if table == Table::Coalesce => {
                if let Some(profile) = parse_profile(attribute)? {
                    parameters.profiles.insert(kind, profile);
                }
            }
            _ => {} // bitsets, statistics, and what later kernels add
        }
    }
    if has_header { Ok(parameters) } else { Err(malformed("an ethtool answer without a header")) }
}

/// `None` where a nest holds no points: it is something else, from a later kernel.
fn parse_profile(nest: Attribute<'_>) -> Result<Option<Profile>, Malformed> {
    let mut points = Vec::new();
    for attribute in nest.nested() {
        let attribute = attribute?;
        if attribute.kind != uapi::ETHTOOL_A_PROFILE_IRQ_MODERATION {
            continue;
        }
        let mut point = ModerationPoint::default();
        for field in attribute.nested() {
            let field = field?;
            match field.kind {
                uapi::ETHTOOL_A_IRQ_MODERATION_USEC => {
                    point.delay = Some(Nanos::from_us(field.as_u32()?.into()));
                }
                uapi::ETHTOOL_A_IRQ_MODERATION_PKTS => point.packets = Some(field.as_u32()?),
                uapi::ETHTOOL_A_IRQ_MODERATION_COMPS => point.completions = Some(field.as_u32()?),
                _ => {}
            }
        }
        points.push(point);
    }
    Ok(Profile::new(points))
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    /// A coalescing answer: header `lo`, rx-usecs 3, adaptive-rx off, rx-profile of two points.
    #[cfg(target_endian = "little")]
    const GOLDEN: &[u8] = &[
        12, 0, 1, 0x80, 7, 0, 2, 0, b'l', b'o', 0, 0, // header, device name
        8, 0, 2, 0, 3, 0, 0, 0, // rx-usecs
        5, 0, 11, 0, 0, 0, 0, 0, // adaptive-rx, three bytes of padding
        44, 0, 29, 0x80, // rx-profile
        20, 0, 1, 0x80, 8, 0, 1, 0, 1, 0, 0, 0, 8, 0, 2, 0, 0, 1, 0, 0, // 1 us, 256 packets
        20, 0, 1, 0x80, 8, 0, 1, 0, 8, 0, 0, 0, 8, 0, 3, 0, 9, 0, 0, 0, // 8 us, 9 completions
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_are_read_and_profiles_written() {
        let read = parse_parameters(GOLDEN, Table::Coalesce).unwrap();
        assert_eq!(
            (
                read.number(uapi::ETHTOOL_A_COALESCE_RX_USECS),
                read.number(uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX),
                read.number(uapi::ETHTOOL_A_COALESCE_RX_MAX_FRAMES)
            ),
            (Some(3), Some(0), None)
        );
        let profile = read.profile(uapi::ETHTOOL_A_COALESCE_RX_PROFILE).unwrap();
        assert_eq!(profile.to_string(), "1,256 8,n,9");
        let mut bytes = Vec::new();
        put_profile(&mut bytes, uapi::ETHTOOL_A_COALESCE_RX_PROFILE, profile);
        assert_eq!(bytes, GOLDEN[28..]);
        // Another table has no profiles, whatever the bytes look like.
        assert_eq!(
            parse_parameters(GOLDEN, Table::Rings)
                .unwrap()
                .profile(uapi::ETHTOOL_A_COALESCE_RX_PROFILE),
            None
        );
    }

    #[test]
    fn cut_answer_is_malformed() {
        assert!(parse_parameters(&[], Table::Rings).is_err());
        let mut bytes = Vec::new();
        put(&mut bytes, 2, &7_u32.to_ne_bytes());
        assert!(parse_parameters(&bytes, Table::Rings).is_err());
        put_nested(&mut bytes, HEADER, |header| put_device(header, "eth0"));
        assert!(parse_parameters(&bytes, Table::Rings).is_ok());
        for end in 1..bytes.len() {
            let _ = parse_parameters(&bytes[..end], Table::Rings);
        }
    }

    #[test]
    fn oversized_attribute_is_refused() {
        assert_eq!(encode(256, Width::U8), None);
        assert_eq!(encode(1 << 32, Width::U32), None);
        assert_eq!(encode(1, Width::U8), Some(vec![1]));
        let delay = (uapi::ETHTOOL_A_COALESCE_RX_USECS, Width::U32);
        let adaptive = (uapi::ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, Width::U8);
        assert_eq!(encode_numbers(&[(delay, 3), (adaptive, 256)]), Err(256));
        #[cfg(target_endian = "little")]
        assert_eq!(encode_numbers(&[(delay, 3), (adaptive, 0)]).unwrap(), GOLDEN[12..28]);
    }

    #[test]
    fn truncated_and_random_answers_never_panic() {
        let mut rng = SeededRng::from_seed(4);
        for length in 0..160_usize {
            for _ in 0..50 {
                let bytes: Vec<u8> =
                    (0..length).map(|_| u8::try_from(rng.next_below(48)).unwrap()).collect();
                parse_any(&bytes);
            }
        }
    }
}
