//! Packets: one or a burst of equal ones, small enough to be copied between queues.

use crate::agenda::Time;
use crate::casts::narrow_count;

/// Preamble 8, header 14, check sequence 4 and gap 12 bytes around every Ethernet payload.
const ETHERNET_OVERHEAD: u32 = 38;
const ETHERNET_HEADER: u32 = 14;
/// The shortest frame on the wire, with preamble and gap.
const SHORTEST_ON_WIRE: u32 = 84;
const IPV4_HEADER: u32 = 20;
/// IPv4 and TCP headers with the timestamp option, as Linux and FreeBSD send it.
pub(crate) const TCP_HEADERS: u32 = IPV4_HEADER + 32;
/// UDP and ICMP have the same 8 bytes.
pub(crate) const DATAGRAM_HEADERS: u32 = IPV4_HEADER + 8;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FrameKind {
    #[default]
    Udp,
    Tcp,
    /// A TCP segment that opens or closes a connection; `seq` has the step.
    Control,
    EchoRequest,
    EchoReply,
    /// 802.3x pause: the host `end` asks for a pause of `payload` quanta of 512 bit times.
    Pause,
}

/// One packet or a burst of equal packets. With TSO, between stack and port, a chunk of several
/// packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    /// Send time; for paced load, the due time.
    pub(crate) sent_at: Time,
    /// TCP: the `sent_at` that the receiver echoes.
    pub(crate) echo: Time,
    /// TCP: number of the first payload byte. Otherwise the packet's number.
    pub(crate) seq: u64,
    /// TCP: number of the next expected byte.
    pub(crate) ack: u64,
    /// The destination socket.
    pub(crate) end: u32,
    /// Payload bytes.
    pub(crate) payload: u32,
    /// TCP: bytes that may follow `ack`. Datagrams: see [`Self::gap`].
    pub(crate) window: u32,
    /// Further packets of the burst. Each follows the one before at once, or a gap later.
    pub(crate) more: u16,
    pub(crate) kind: FrameKind,
}

impl Frame {
    const fn header_bytes(&self) -> u32 {
        match self.kind {
            FrameKind::Tcp | FrameKind::Control => TCP_HEADERS,
            FrameKind::Udp | FrameKind::EchoRequest | FrameKind::EchoReply | FrameKind::Pause => {
                DATAGRAM_HEADERS
            }
        }
    }

    /// Link time of each packet, in bytes.
    #[inline]
    pub(crate) fn wire_bytes(&self) -> u32 {
        on_wire(self.counted_bytes())
    }

    /// Number of packets on the wire.
    #[inline]
    pub(crate) fn wire_packets(&self, mss: u32) -> u64 {
        if self.is_chunk(mss) {
            u64::from(self.payload.div_ceil(mss))
        } else {
            u64::from(self.count())
        }
    }

    /// Whether the NIC cuts this into packets.
    #[inline]
    pub(crate) const fn is_chunk(&self, mss: u32) -> bool {
        matches!(self.kind, FrameKind::Tcp) && self.payload > mss
    }

    /// Nanoseconds between two packets of an evenly paced burst of datagrams; 0 if they were sent
    /// together.
    #[inline]
    pub(crate) const fn gap(&self) -> u32 {
        match self.kind {
            FrameKind::Udp => self.window,
            _ => 0,
        }
    }

    /// Packets of the burst.
    #[inline]
    pub(crate) const fn count(&self) -> u32 {
        self.more as u32 + 1
    }

    /// The first `count` packets, as a burst of their own.
    #[inline]
    pub(crate) const fn first_packets(&self, count: u32) -> Self {
        debug_assert!(0 < count && count <= self.count());
        Self { more: narrow_count(count - 1), ..*self }
    }

    /// The packets after the first `count`. There must be some.
    #[inline]
    pub(crate) const fn packets_after(&self, count: u32) -> Self {
        debug_assert!(count < self.count());
        let mut rest = Self { more: self.more - narrow_count(count), ..*self };
        match self.kind {
            FrameKind::Tcp => rest.seq += count as u64 * self.payload as u64,
            FrameKind::Udp => {
                let later = count as u64 * self.window as u64;
                (rest.sent_at, rest.echo) = (self.sent_at + later, self.echo + later);
            }
            _ => {}
        }
        rest
    }

    /// Its packets, one by one.
    #[inline]
    pub(crate) fn iter_packets(self) -> impl Iterator<Item = Self> {
        (0..self.count()).map(move |idx| self.packets_after(idx).first_packets(1))
    }

    /// Whether `next` can extend this burst.
    #[inline]
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        let is_alike = self.kind == next.kind
            && self.end == next.end
            && self.payload == next.payload
            && self.sent_at == next.sent_at
            && self.echo == next.echo;
        is_alike
            && match self.kind {
                FrameKind::Udp => self.gap() == 0 && next.gap() == 0,
                FrameKind::Tcp => {
                    let follows = u64::from(self.count()) * u64::from(self.payload);
                    self.payload > 0
                        && self.seq + follows == next.seq
                        && self.ack == next.ack
                        && self.window == next.window
                }
                FrameKind::Control
                | FrameKind::EchoRequest
                | FrameKind::EchoReply
                | FrameKind::Pause => false,
            }
    }

    /// Whether `next` continues evenly paced datagrams.
    #[inline]
    pub(crate) fn keeps_pace_with(&self, next: &Self) -> bool {
        let later = u64::from(self.count()) * u64::from(next.gap());
        next.gap() > 0
            && self.kind == FrameKind::Udp
            && self.window == next.window
            && self.end == next.end
            && self.payload == next.payload
            && self.sent_at + later == next.sent_at
            && self.echo + later == next.echo
            && self.count() + next.count() <= 1 << 15
    }

    /// Bytes of each packet in interface counters: with the Ethernet header, without check sequence
    /// and padding.
    #[inline]
    pub(crate) fn counted_bytes(&self) -> u32 {
        self.payload + self.header_bytes() + ETHERNET_HEADER
    }
}

/// Link time, in bytes, of a packet with this many counted bytes.
#[inline]
pub(crate) const fn on_wire(counted_bytes: u32) -> u32 {
    let bytes = counted_bytes - ETHERNET_HEADER + ETHERNET_OVERHEAD;
    if bytes > SHORTEST_ON_WIRE { bytes } else { SHORTEST_ON_WIRE }
}

/// The most payload that fits a packet of `mtu` bytes.
pub(crate) const fn most_payload(kind: FrameKind, mtu: u32) -> u32 {
    match kind {
        FrameKind::Tcp | FrameKind::Control => mtu - TCP_HEADERS,
        FrameKind::Udp | FrameKind::EchoRequest | FrameKind::EchoReply | FrameKind::Pause => {
            mtu - DATAGRAM_HEADERS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_frames_have_wire_size() {
        for (kind, payload, wire) in [
            (FrameKind::Udp, 18, 84),
            (FrameKind::Udp, 1_472, 1_538),
            (FrameKind::Tcp, 1_448, 1_538),
            (FrameKind::Tcp, 0, 90),
            (FrameKind::EchoRequest, 56, 122),
        ] {
            let frame = Frame { payload, kind, ..Frame::default() };
            assert_eq!(frame.wire_bytes(), wire, "{kind:?} {payload}");
        }
    }

    #[test]
    fn frame_stays_small() {
        assert!(size_of::<Frame>() <= 48, "{}", size_of::<Frame>());
    }
}
