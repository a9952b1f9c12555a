//! Netlink messages: building requests, and cutting received bytes into messages and their attributes.
//!
//! Layout: `include/uapi/linux/netlink.h`, `struct nlmsghdr`, `struct nlmsgerr` and `struct nlattr`. An attribute is a type,
//! a length and a value, padded to four bytes, and possibly nested.

use std::borrow::Cow;

use super::{Malformed, malformed};

/// Length of a message header.
pub(crate) const HEADER: usize = 16;
/// The message type of an error or acknowledgement.
pub(crate) const ERROR: u16 = 2;
/// The message type that ends a dump.
pub(crate) const DONE: u16 = 3;

/// Flag: this is a request.
const F_REQUEST: u16 = 0x01;
/// Flag: answer with an acknowledgement.
const F_ACK: u16 = 0x04;
/// Flags: answer with every object.
const F_DUMP: u16 = 0x300;
/// Flags of a creation: make it, and fail if it is there already.
const F_CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
/// Flags of a creation that may replace.
const F_CREATE_REPLACE: u16 = 0x400 | 0x100;
/// Answer flag: the objects changed while they were dumped.
const F_DUMP_INTERRUPTED: u16 = 0x10;
/// Answer flag of an error: the request is not repeated in full.
const F_CAPPED: u16 = 0x100;
/// Answer flag of an error: attributes of the extended acknowledgement follow.
const F_ACK_ATTRIBUTES: u16 = 0x200;

/// A request that is being built.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    what: String,
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// A request of message type `kind`; `what` completes "cannot ..." in errors.
    pub(crate) fn new(what: impl Into<String>, kind: u16) -> Self {
        Self { what: what.into(), kind, flags: F_REQUEST | F_ACK, body: Vec::new() }
    }

    /// Asks for every object.
    pub(crate) fn dump(mut self) -> Self {
        self.flags |= F_DUMP;
        self
    }

    /// Creates, and fails if the object exists.
    pub(crate) fn create(mut self) -> Self {
        self.flags |= F_CREATE_EXCLUSIVE;
        self
    }

    /// Creates, or replaces what exists.
    pub(crate) fn create_or_replace(mut self) -> Self {
        self.flags |= F_CREATE_REPLACE;
        self
    }

    /// Appends the family's fixed header, padded.
    pub(crate) fn header(mut self, bytes: &[u8]) -> Self {
        self.body.extend_from_slice(bytes);
        self.body.resize(aligned(self.body.len()), 0);
        self
    }

    /// Appends attributes that are encoded already.
    pub(crate) fn raw(mut self, attributes: &[u8]) -> Self {
        self.body.extend_from_slice(attributes);
        self
    }

    /// Appends an attribute of raw bytes.
    pub(crate) fn bytes(mut self, kind: u16, payload: &[u8]) -> Self {
        put(&mut self.body, kind, payload);
        self
    }

    /// Appends a four-byte number.
    pub(crate) fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Appends the protocol's `uint`, in the shorter of its two forms.
    pub(crate) fn uint(self, kind: u16, value: u64) -> Self {
        match u32::try_from(value) {
            Ok(short) => self.bytes(kind, &short.to_ne_bytes()),
            Err(_) => self.bytes(kind, &value.to_ne_bytes()),
        }
    }

    /// Appends a text with its NUL.
    pub(crate) fn text(self, kind: u16, text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Appends an attribute that holds what `fill` appends.
    pub(crate) fn nested(mut self, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) -> Self {
        put_nested(&mut self.body, kind, fill);
        self
    }

    /// The request, for errors.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// The bytes on the wire.
    pub(crate) fn to_bytes(&self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(HEADER + self.body.len()).expect("requests are short");
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&self.kind.to_ne_bytes());
        bytes.extend_from_slice(&self.flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0_u32.to_ne_bytes()); // our port: the kernel fills it in
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The sequence number of the request that it answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Whether the kernel says that the dump is inconsistent.
    pub(crate) fn is_dump_interrupted(&self) -> bool {
        self.flags & F_DUMP_INTERRUPTED != 0
    }

    /// The outcome in an `ERROR` or `DONE` message; number 0 is success.
    pub(crate) fn outcome(&self) -> Result<Acknowledgement, Malformed> {
        let Some((&code, rest)) = self.payload.split_first_chunk::<4>() else {
            // Some old families end dumps with an empty DONE.
            return if self.kind == DONE {
                Ok(Acknowledgement::default())
            } else {
                Err(malformed("an error message is cut short"))
            };
        };
        let code = i32::from_ne_bytes(code);
        let mut outcome = Acknowledgement {
            errno: code.checked_neg().unwrap_or(0),
            ..Acknowledgement::default()
        };
        if self.flags & F_ACK_ATTRIBUTES == 0 {
            return Ok(outcome);
        }
        let skipped = if self.kind == DONE { 0 } else { self.repeated_request_length(rest)? };
        let attributes = rest.get(skipped..).ok_or(malformed("an error message is cut short"))?;
        for attribute in Attributes::new(attributes) {
            let attribute = attribute?;
            match attribute.kind {
                1 => outcome.text = Some(attribute.as_text().into_owned()),
                2 => outcome.offset = Some(attribute.as_u32()?),
                _ => {}
            }
        }
        Ok(outcome)
    }

    /// How much of the request an error message repeats after its number.
    fn repeated_request_length(&self, rest: &[u8]) -> Result<usize, Malformed> {
        if self.flags & F_CAPPED != 0 {
            return Ok(HEADER);
        }
        let (&length, _) =
            rest.split_first_chunk::<4>().ok_or(malformed("an error message is cut short"))?;
        usize::try_from(u32::from_ne_bytes(length))
            .ok()
            .filter(|&length| length >= HEADER && length <= rest.len())
            .map(aligned)
            .ok_or(malformed("an error message repeats an impossible request"))
    }
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    /// The error number, positive; 0 for success.
    pub errno: i32,
    /// The kernel's own words.
    pub text: Option<String>,
    /// Offset in the request of the attribute it complains of.
    pub offset: Option<u32>,
}

/// Cuts received bytes into messages; ends after the first malformed one.
#[derive(Clone, Debug)]
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Over the messages in one received datagram.
    pub(crate) const fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let Some(header) = rest.first_chunk::<HEADER>() else {
            return Some(Err(malformed("a message header is cut short")));
        };
        let [l0, l1, l2, l3, k0, k1, f0, f1, s0, s1, s2, s3, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        if length < HEADER {
            return Some(Err(malformed("a message is shorter than its header")));
        }
        let Some(payload) = rest.get(HEADER..length) else {
            return Some(Err(malformed("a message is longer than what was received")));
        };
        self.rest = rest.get(aligned(length)..).unwrap_or(&[]);
        Some(Ok(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            sequence: u32::from_ne_bytes([s0, s1, s2, s3]),
            payload,
        }))
    }
}

/// Length of an attribute's header.
const ATTRIBUTE_HEADER: usize = 4;
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
        if length < ATTRIBUTE_HEADER {
            return Some(Err(malformed("an attribute is shorter than its header")));
        }
        let Some(payload) = rest.get(ATTRIBUTE_HEADER..length) else {
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
    let length =
        u16::try_from(ATTRIBUTE_HEADER + payload.len()).expect("attribute values are short");
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(payload);
    bytes.resize(aligned(bytes.len()), 0);
}

/// Appends an attribute that holds what `fill` appends.
pub(crate) fn put_nested(bytes: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; ATTRIBUTE_HEADER]);
    fill(bytes);
    let length = u16::try_from(bytes.len() - start).expect("nested attributes are short");
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    bytes[start + 2..start + ATTRIBUTE_HEADER].copy_from_slice(&(kind | NESTED).to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use latput_units::SeededRng;

    use proptest::prelude::*;

    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn request_has_the_golden_bytes() {
        let request = Request::new("try", 19).header(&[1, 2]).u32(4, 9000).text(3, "lo");
        #[rustfmt::skip]
        let golden = [
            36, 0, 0, 0, 19, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            1, 2, 0, 0,
            8, 0, 4, 0, 0x28, 0x23, 0, 0,
            7, 0, 3, 0, b'l', b'o', 0, 0,
        ];
        assert_eq!(request.to_bytes(7), golden);
        let message = Messages::new(&golden).next().unwrap().unwrap();
        assert_eq!((message.kind, message.flags, message.sequence), (19, 5, 7));
        assert_eq!(message.payload.len(), 20);
    }

    #[test]
    fn error_carries_number_text_and_offset() {
        let request = Request::new("try", 19).u32(4, 9000).to_bytes(7);
        let mut attributes = Vec::new();
        put(&mut attributes, 1, b"no such thing\0");
        put(&mut attributes, 2, &16_u32.to_ne_bytes());
        let expected =
            Acknowledgement { errno: 22, text: Some("no such thing".to_owned()), offset: Some(16) };
        check_outcome(ERROR, F_ACK_ATTRIBUTES, &[&request, &attributes], Some(&expected));
        let flags = F_ACK_ATTRIBUTES | F_CAPPED;
        check_outcome(ERROR, flags, &[&request[..HEADER], &attributes], Some(&expected));
        check_outcome(DONE, F_ACK_ATTRIBUTES, &[&attributes], Some(&expected));
        let bare = Acknowledgement { errno: 22, ..Acknowledgement::default() };
        check_outcome(ERROR, 0, &[&request], Some(&bare));
        check_outcome(DONE, 0, &[], Some(&bare));
        check_outcome(ERROR, F_ACK_ATTRIBUTES, &[&request[..8]], None);
        check_outcome(ERROR, F_ACK_ATTRIBUTES, &[&[255; 20]], None);
    }

    proptest! {
        #[test]
        fn request_round_trips(
            kind in 16..=u16::MAX,
            sequence in any::<u32>(),
            attributes in prop::collection::vec((1..=0x3fff_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..20),
        ) {
            let request = attributes.iter().fold(Request::new("try", kind), |request, (kind, payload)| {
                request.bytes(*kind, payload)
            });
            let bytes = request.to_bytes(sequence);
            let messages: Vec<_> = Messages::new(&bytes).collect();
            prop_assert_eq!(messages.len(), 1);
            let message = messages[0].as_ref().expect("it is whole");
            prop_assert_eq!((message.kind, message.sequence), (kind, sequence));
            let found: Result<Vec<_>, _> = Attributes::new(message.payload).collect();
            let found = found.expect("they are whole");
            let found: Vec<_> = found.iter().map(|it| (it.kind, it.payload.to_vec())).collect();
            prop_assert_eq!(found, attributes);
        }
    }

    #[test]
    fn truncated_and_random_datagrams_never_panic() {
        let mut rng = SeededRng::from_seed(2);
        for length in 0..200_usize {
            for _ in 0..50 {
                let mut bytes: Vec<u8> =
                    (0..length).map(|_| u8::try_from(rng.next_below(256)).unwrap()).collect();
                // Half of them with a plausible header, so that the inside is reached.
                if length >= HEADER && rng.next_below(2) == 0 {
                    let kind = if rng.next_below(2) == 0 { ERROR } else { DONE };
                    bytes[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
                    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                }
                for message in Messages::new(&bytes).flatten() {
                    let _ = message.outcome();
                }
            }
        }
    }

    #[track_caller]
    fn check_outcome(kind: u16, flags: u16, parts: &[&[u8]], expected: Option<&Acknowledgement>) {
        let payload = [&(-22_i32).to_ne_bytes()[..], &parts.concat()].concat();
        let message = Message { kind, flags, sequence: 0, payload: &payload };
        assert_eq!(message.outcome().ok().as_ref(), expected);
    }

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
