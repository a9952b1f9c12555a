//! ICMP and `ICMPv6` echo messages (RFC 792, RFC 4443). Pure.

/// The version of ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// The identity of one echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Echo {
    /// The tag of this run.
    pub(super) tag: u64,
    /// The number of the request, from 0.
    pub(super) sequence: u64,
}

/// Size of a message's header.
pub(super) const HEADER: usize = 8;
/// Size of the smallest message. The payload identifies the echo.
pub(super) const SMALLEST: usize = HEADER + 16;
/// Largest IPv4 header, which a raw socket includes.
pub(super) const LARGEST_IP_HEADER: usize = 60;

impl Version {
    const fn request(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    const fn reply(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }
}

/// Encodes an echo request. The kernel computes the checksum of `ICMPv6` itself.
pub(super) fn request(version: Version, echo: Echo, bytes: usize) -> Vec<u8> {
    let mut message = vec![0; bytes.max(SMALLEST)];
    message[0] = version.request();
    message[4..6].copy_from_slice(&echo.tag.to_be_bytes()[6..]);
    message[6..8].copy_from_slice(&echo.sequence.to_be_bytes()[6..]);
    message[8..16].copy_from_slice(&echo.tag.to_be_bytes());
    message[16..24].copy_from_slice(&echo.sequence.to_be_bytes());
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The echo that a received packet answers; `None` for other packets. `with_ip_header` is true for
/// a raw IPv4 socket.
pub(super) fn parse_reply(version: Version, packet: &[u8], with_ip_header: bool) -> Option<Echo> {
    let header = match (with_ip_header, packet.first()?) {
        (true, first) if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
        (true, _) => return None,
        (false, _) => 0,
    };
    let message = packet.get(header..)?;
    let kind_matches = *message.first()? == version.reply() && *message.get(1)? == 0;
    let (tag, rest) = message.get(8..)?.split_first_chunk()?;
    let (sequence, _) = rest.split_first_chunk()?;
    kind_matches
        .then(|| Echo { tag: u64::from_be_bytes(*tag), sequence: u64::from_be_bytes(*sequence) })
}

/// The Internet checksum (RFC 1071) of a message that fits a packet. An odd last byte is padded
/// with a zero.
fn checksum(message: &[u8]) -> u16 {
    let word = |pair: &[u8]| [pair[0], pair.get(1).copied().unwrap_or(0)];
    let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes(word(pair)))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("folded twice, a sum of up to 65535 words has 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = Echo { tag: 0x0123_4567_89ab_cdef, sequence: 70_000 };

    #[test]
    fn checksum_is_that_of_rfc_1071() {
        // The example of RFC 1071, section 3: the sum is ddf2.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&request(Version::V4, ECHO, 64)), 0, "a right message sums to zero");
        assert_eq!(checksum(&request(Version::V4, ECHO, 65_515)), 0);
    }

    #[test]
    fn reply_names_its_echo() {
        for version in [Version::V4, Version::V6] {
            let reply = reply(version);
            assert_eq!(parse_reply(version, &reply, false), Some(ECHO));
            let mut packet = vec![0; 24];
            packet[0] = 0x46;
            packet.extend(reply);
            assert_eq!(parse_reply(version, &packet, true), Some(ECHO));
        }
    }

    #[test]
    fn what_is_no_reply_is_ignored() {
        check_ignored(&request(Version::V4, ECHO, 64), false);
        check_ignored(&reply(Version::V6), false);
        check_ignored(&reply(Version::V4)[..20], false);
        check_ignored(&reply(Version::V4), true);
        check_ignored(&[0x4f; 40], true);
        check_ignored(&[0x4f], true);
        check_ignored(&[], true);
        check_ignored(&[], false);
    }

    fn reply(version: Version) -> Vec<u8> {
        let mut reply = request(version, ECHO, SMALLEST);
        reply[0] = version.reply();
        reply
    }

    #[track_caller]
    fn check_ignored(packet: &[u8], with_ip_header: bool) {
        assert_eq!(parse_reply(Version::V4, packet, with_ip_header), None);
    }
}
