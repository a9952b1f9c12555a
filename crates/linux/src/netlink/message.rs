//! Netlink messages: building requests, and cutting received bytes into messages.
//!
//! Layout: `include/uapi/linux/netlink.h`, `struct nlmsghdr` and `struct nlmsgerr`.

use super::attribute::{Attributes, aligned, put, put_nested};
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
}
