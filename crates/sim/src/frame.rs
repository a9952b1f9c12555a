//! What travels: one packet, small enough to be copied from queue to queue.

use crate::agenda::Time;

/// Preamble 8, header 14, check sequence 4 and gap 12 bytes around every Ethernet payload.
const ETHERNET_OVERHEAD: u32 = 38;
/// The shortest frame on the wire, with preamble and gap.
const SHORTEST_ON_WIRE: u32 = 84;
const IPV4_HEADER: u32 = 20;
/// With the timestamp option, as Linux and FreeBSD send it.
pub(crate) const TCP_HEADERS: u32 = IPV4_HEADER + 32;
/// UDP and ICMP have the same 8 bytes.
pub(crate) const DATAGRAM_HEADERS: u32 = IPV4_HEADER + 8;

/// What a packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Udp,
    Tcp,
    EchoRequest,
    EchoReply,
    /// 802.3x: the host `end` wants silence for `payload` quanta of 512 bit times.
    Pause,
}

/// One packet; with TSO on, between stack and port, a chunk of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    /// When it was sent or, for paced load, was to be sent.
    pub(crate) sent_at: Time,
    /// TCP: the `sent_at` that the receiver echoes.
    pub(crate) echo: Time,
    /// TCP: first payload byte; otherwise a number.
    pub(crate) seq: u64,
    /// TCP: next byte wanted.
    pub(crate) ack: u64,
    /// The socket that it is for.
    pub(crate) end: u32,
    /// Payload bytes.
    pub(crate) payload: u32,
    /// TCP: bytes that may follow `ack`.
    pub(crate) window: u32,
    pub(crate) kind: Kind,
}

impl Frame {
    const fn headers(&self) -> u32 {
        match self.kind {
            Kind::Tcp => TCP_HEADERS,
            Kind::Udp | Kind::EchoRequest | Kind::EchoReply | Kind::Pause => DATAGRAM_HEADERS,
        }
    }

    /// Bytes of link time.
    #[inline]
    pub(crate) fn wire_bytes(&self) -> u32 {
        (self.payload + self.headers() + ETHERNET_OVERHEAD).max(SHORTEST_ON_WIRE)
    }

    /// How many packets a chunk becomes on the wire.
    #[inline]
    pub(crate) fn packets(&self, mss: u32) -> u64 {
        if self.kind == Kind::Tcp && self.payload > mss {
            u64::from(self.payload.div_ceil(mss))
        } else {
            1
        }
    }

    /// Bytes as an interface counts them: Ethernet header, but no check sequence and no padding.
    #[inline]
    pub(crate) fn counted_bytes(&self) -> u32 {
        self.payload + self.headers() + 14
    }
}

/// The most payload that fits a packet of `mtu` bytes.
pub(crate) const fn most_payload(kind: Kind, mtu: u32) -> u32 {
    match kind {
        Kind::Tcp => mtu - TCP_HEADERS,
        Kind::Udp | Kind::EchoRequest | Kind::EchoReply | Kind::Pause => mtu - DATAGRAM_HEADERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_frames_have_their_known_size_on_the_wire() {
        for (kind, payload, wire) in [
            (Kind::Udp, 18, 84),
            (Kind::Udp, 1_472, 1_538),
            (Kind::Tcp, 1_448, 1_538),
            (Kind::Tcp, 0, 90),
            (Kind::EchoRequest, 56, 122),
        ] {
            let frame = Frame { payload, kind, ..Frame::default() };
            assert_eq!(frame.wire_bytes(), wire, "{kind:?} {payload}");
        }
    }

    #[test]
    fn a_frame_stays_small() {
        assert!(size_of::<Frame>() <= 48, "{}", size_of::<Frame>());
    }
}
