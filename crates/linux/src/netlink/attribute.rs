//! Netlink attributes: type, length, value, padded to four bytes, and possibly nested.
//!
//! Layout: `include/uapi/linux/netlink.h`, `struct nlattr`.

use std::borrow::Cow;

use super::{Malformed, malformed};

/// Length of an attribute's header.
const HEADER: usize = 4;
/// The bits of the type field that are the type; the two above say "nested" and "network order".
const KIND_MASK: u16 = 0x3fff;
/// Set on attributes that hold attributes; strict families insist on it.
const NESTED: u16 = 0x8000;

/// The next multiple of four.
pub(crate) const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// One attribute of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    /// Its type, flags removed.
    pub kind: u16,
    /// Its value, padding removed.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// A number of exactly one byte.
    pub(crate) fn as_u8(&self) -> Result<u8, Malformed> {
        self.fixed().map(u8::from_ne_bytes)
    }

    /// A number of exactly two bytes.
    pub(crate) fn as_u16(&self) -> Result<u16, Malformed> {
        self.fixed().map(u16::from_ne_bytes)
    }

    /// A number of exactly four bytes.
    pub(crate) fn as_u32(&self) -> Result<u32, Malformed> {
        self.fixed().map(u32::from_ne_bytes)
    }

    /// A number of exactly eight bytes.
    pub(crate) fn as_u64(&self) -> Result<u64, Malformed> {
        self.fixed().map(u64::from_ne_bytes)
    }

    /// The protocol's `uint`: four bytes, or eight when the value needs them
    /// (`Documentation/userspace-api/netlink/specs.rst`).
    pub(crate) fn as_uint(&self) -> Result<u64, Malformed> {
        match self.payload.len() {
            4 => self.fixed().map(|bytes| u64::from(u32::from_ne_bytes(bytes))),
            8 => self.fixed().map(u64::from_ne_bytes),
            _ => Err(malformed("a uint attribute has neither 4 nor 8 bytes")),
        }
    }

    /// A text up to its NUL, or to the end where there is none. Bytes that are not UTF-8 are replaced:
    /// one odd interface name must not hide the others.
    pub(crate) fn as_text(&self) -> Cow<'a, str> {
        let end = self.payload.iter().position(|&byte| byte == 0).unwrap_or(self.payload.len());
        String::from_utf8_lossy(&self.payload[..end])
    }

    /// The attributes inside.
    pub(crate) fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.payload)
    }

    fn fixed<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.payload.try_into().map_err(|_| malformed("a number attribute has the wrong length"))
    }
}

/// Iterator over attributes; ends after the first malformed one.
#[derive(Clone, Debug)]
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Over the attributes in `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The first attribute of type `kind`.
    pub(crate) fn find_kind(self, kind: u16) -> Result<Option<Attribute<'a>>, Malformed> {
        for attribute in self {
            let attribute = attribute?;
            if attribute.kind == kind {
                return Ok(Some(attribute));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let Some((&[length_0, length_1, kind_0, kind_1], _)) = rest.split_first_chunk() else {
            return Some(Err(malformed("an attribute header is cut short")));
        };
        let length = usize::from(u16::from_ne_bytes([length_0, length_1]));
        if length < HEADER {
            return Some(Err(malformed("an attribute is shorter than its header")));
        }
        let Some(payload) = rest.get(HEADER..length) else {
            return Some(Err(malformed("an attribute is longer than the message")));
        };
        // The last attribute may come without its padding.
        self.rest = rest.get(aligned(length)..).unwrap_or(&[]);
        let kind = u16::from_ne_bytes([kind_0, kind_1]) & KIND_MASK;
        Some(Ok(Attribute { kind, payload }))
    }
}

/// Appends an attribute to `bytes`.
///
/// A value that does not fit 65531 bytes is a bug of the caller: everything from outside that gets
/// here (interface names, feature names) is length-checked before.
pub(crate) fn put(bytes: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let length = u16::try_from(HEADER + payload.len()).expect("attribute values are short");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(aligned(bytes.len()), 0);
}

/// Appends an attribute that holds what `fill` appends.
pub(crate) fn put_nested(bytes: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEADER]);
    fill(bytes);
    let length = u16::try_from(bytes.len() - start).expect("nested attributes are short");
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    bytes[start + 2..start + HEADER].copy_from_slice(&(kind | NESTED).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use super::*;

    /// `mtu 1500` and `ifname "lo"` inside type 18, as the kernel lays them out on a little-endian
    /// machine.
    #[cfg(target_endian = "little")]
    const GOLDEN: &[u8] = &[
        20, 0, 18, 0x80, // nested, type 18
        8, 0, 4, 0, 0xdc, 5, 0, 0, // u32 1500, type 4
        7, 0, 3, 0, b'l', b'o', 0, 0, // "lo", type 3, one byte of padding
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn golden_bytes_are_written_and_read() {
        let mut bytes = Vec::new();
        put_nested(&mut bytes, 18, |bytes| {
            put(bytes, 4, &1500_u32.to_ne_bytes());
            put(bytes, 3, b"lo\0");
        });
        assert_eq!(bytes, GOLDEN);
        let outer = Attributes::new(GOLDEN).find_kind(18).unwrap().unwrap();
        let inner: Vec<_> = outer.nested().collect::<Result<_, _>>().unwrap();
        assert_eq!(inner[0].as_u32(), Ok(1500));
        assert_eq!(inner[1].as_text(), "lo");
    }

    #[test]
    fn uint_has_four_or_eight_bytes() {
        check_uint(&7_u32.to_ne_bytes(), Some(7));
        check_uint(&30_064_771_077_u64.to_ne_bytes(), Some(30_064_771_077));
        check_uint(&[1, 2], None);
        check_uint(&[], None);
    }

    #[test]
    fn damaged_attributes_are_errors_and_end_the_iteration() {
        check_damaged(&[1, 0]);
        check_damaged(&[0, 0, 0, 0, 0, 0, 0, 0]);
        check_damaged(&[3, 0, 1, 0]);
        check_damaged(&[255, 255, 1, 0, 9]);
    }

    #[test]
    fn truncated_and_random_bytes_never_panic() {
        let mut rng = SeededRng::from_seed(1);
        for length in 0..200_usize {
            for _ in 0..50 {
                let bytes: Vec<u8> =
                    (0..length).map(|_| u8::try_from(rng.next_below(256)).unwrap()).collect();
                exhaust(&bytes);
            }
        }
    }

    fn exhaust(bytes: &[u8]) {
        for attribute in Attributes::new(bytes).flatten() {
            let _ = (attribute.as_u8(), attribute.as_u16(), attribute.as_u32());
            let _ = (attribute.as_uint(), attribute.as_text().len());
            exhaust(attribute.payload);
        }
    }

    #[track_caller]
    fn check_uint(payload: &[u8], expected: Option<u64>) {
        assert_eq!(Attribute { kind: 1, payload }.as_uint().ok(), expected);
    }

    #[track_caller]
    fn check_damaged(bytes: &[u8]) {
        let items: Vec<_> = Attributes::new(bytes).collect();
        assert_eq!(items.len(), 1, "{items:?}");
        assert!(items[0].is_err(), "{items:?}");
    }
}
