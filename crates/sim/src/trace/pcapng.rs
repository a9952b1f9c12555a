//! A capture file: one interface block for each host, one packet block for each frame that it sent or got.
//!
//! Addresses are made up (RFC 5737, RFC 7042); headers and their checksums are complete, as if every
//! payload byte were zero.
#![expect(clippy::cast_possible_truncation, reason = "fields of a format are as wide as they are")]

use super::log::{TraceLog, TracedPacket};
use crate::frame::{Frame, FrameKind};
use crate::scenario::{Scenario, TrafficKind};

const ETHERNET: u16 = 1;
/// Bytes kept of each frame: all headers that there are.
const SNAP: u32 = 66;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// The whole file.
pub(super) fn write(scenario: &Scenario, log: &TraceLog) -> Vec<u8> {
    let mut out = Vec::new();
    write_block(&mut out, SECTION, |body| {
        body.extend(BYTE_ORDER.to_le_bytes());
        body.extend(1_u16.to_le_bytes());
        body.extend(0_u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes()); // the length of the section is not said
    });
    for host in &scenario.hosts {
        write_block(&mut out, INTERFACE, |body| {
            body.extend(ETHERNET.to_le_bytes());
            body.extend(0_u16.to_le_bytes());
            body.extend(SNAP.to_le_bytes());
            write_option(body, IF_NAME, host.name.as_bytes());
            write_option(body, IF_TSRESOL, &[9]);
            write_option(body, 0, &[]);
        });
    }
    for seen in &log.packets {
        write_packet(&mut out, scenario, seen);
    }
    out
}

fn write_packet(out: &mut Vec<u8>, scenario: &Scenario, seen: &TracedPacket) {
    let bytes = frame_bytes(scenario, seen);
    let length = seen.frame.counted_bytes().max(60);
    write_block(out, PACKET, |body| {
        body.extend((seen.host as u32).to_le_bytes());
        body.extend(((seen.at >> 32) as u32).to_le_bytes());
        body.extend((seen.at as u32).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend(&bytes);
        pad_to_word(body);
        let direction = if seen.is_inbound { 1_u32 } else { 2 };
        write_option(body, EPB_FLAGS, &direction.to_le_bytes());
        write_option(body, 0, &[]);
    });
}

/// A block has its length at both ends.
fn write_block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    fill(out);
    let length = ((out.len() - start) as u32 + 4).to_le_bytes();
    out.extend(length);
    out[start + 4..start + 8].copy_from_slice(&length);
}

fn write_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad_to_word(body);
}

fn pad_to_word(body: &mut Vec<u8>) {
    while !body.len().is_multiple_of(4) {
        body.push(0);
    }
}

/// The headers of a frame. `end` is the socket that it goes to; sockets come in pairs, the first of each
/// on the host that the load starts from.
fn frame_bytes(scenario: &Scenario, seen: &TracedPacket) -> Vec<u8> {
    let frame = &seen.frame;
    if frame.kind == FrameKind::Pause {
        return build_pause_frame(frame);
    }
    let load = load_of(scenario, frame.end as usize / 2);
    let (from, to) =
        load.map_or((0, 1), |load| (scenario.loads[load].from, scenario.loads[load].to));
    let goes_back = frame.end.is_multiple_of(2);
    let (source, target) = if goes_back { (to, from) } else { (from, to) };
    let client_port = 32_768 + (frame.end / 2 % 28_000) as u16;
    let server_port = 5_001 + (load.unwrap_or(0) % 1_000) as u16;
    let ports = if goes_back { (server_port, client_port) } else { (client_port, server_port) };

    let mut bytes = Vec::with_capacity(SNAP as usize);
    bytes.extend(mac_address(target));
    bytes.extend(mac_address(source));
    bytes.extend(0x0800_u16.to_be_bytes());
    let packet_bytes = (frame.counted_bytes() - 14) as u16;
    let protocol = match frame.kind {
        FrameKind::Tcp | FrameKind::Control => 6,
        FrameKind::Udp => 17,
        FrameKind::EchoRequest | FrameKind::EchoReply | FrameKind::Pause => 1,
    };
    let mut ip = vec![0x45, 0];
    ip.extend(packet_bytes.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    ip.extend(ipv4_address(source));
    ip.extend(ipv4_address(target));
    let checksum = internet_checksum(&ip, 0);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(ip);
    let mut transport = match protocol {
        6 => build_tcp_header(frame, ports),
        17 => build_udp_header(frame, ports),
        _ => build_echo_header(frame),
    };
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    let pseudo = if protocol == 1 {
        0
    } else {
        let mut header = Vec::from(ipv4_address(source));
        header.extend(ipv4_address(target));
        header.extend([0, protocol]);
        header.extend((packet_bytes - 20).to_be_bytes());
        sum(&header)
    };
    let sum = self::internet_checksum(&transport, pseudo);
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(transport);
    bytes
}

/// The load that a pair of sockets belongs to: loads have as many as they have connections.
fn load_of(scenario: &Scenario, pair: usize) -> Option<usize> {
    let mut before = 0;
    scenario.loads.iter().position(|load| {
        before += match load.traffic {
            TrafficKind::RequestResponse { connections, .. }
            | TrafficKind::Stream { connections, .. } => connections as usize,
            TrafficKind::Datagrams { .. } | TrafficKind::Probe { .. } => 1,
            TrafficKind::Compute => 0,
        };
        pair < before
    })
}

/// RFC 9293, section 3.1.
const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;

fn build_tcp_header(frame: &Frame, (source, target): (u16, u16)) -> Vec<u8> {
    // Connections that last begin with sequence number 0; control segments carry their step instead.
    let (seq, ack, flags) = match frame.kind {
        FrameKind::Control => match frame.seq {
            0 => (0, 0, SYN),
            1 => (0, 1, SYN | ACK),
            3 | 4 => (1, 1, FIN | ACK),
            _ => (1, 1, ACK),
        },
        _ if frame.payload > 0 => (1 + frame.seq, 1 + frame.ack, PSH | ACK),
        _ => (1 + frame.seq, 1 + frame.ack, ACK),
    };
    let mut out = Vec::new();
    out.extend(source.to_be_bytes());
    out.extend(target.to_be_bytes());
    out.extend((seq as u32).to_be_bytes());
    out.extend((ack as u32).to_be_bytes());
    // 32 bytes of header: the timestamp option, in microseconds.
    out.extend([0x80, flags]);
    out.extend((frame.window.min(0xffff) as u16).to_be_bytes());
    out.extend([0, 0, 0, 0, 1, 1, 8, 10]);
    out.extend(((frame.sent_at / 1_000) as u32).to_be_bytes());
    out.extend(((frame.echo / 1_000) as u32).to_be_bytes());
    out
}

fn build_udp_header(frame: &Frame, (source, target): (u16, u16)) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(source.to_be_bytes());
    out.extend(target.to_be_bytes());
    out.extend((frame.payload as u16 + 8).to_be_bytes());
    out.extend([0, 0]);
    out
}

fn build_echo_header(frame: &Frame) -> Vec<u8> {
    let kind = if frame.kind == FrameKind::EchoRequest { 8 } else { 0 };
    let mut out = vec![kind, 0, 0, 0, 0, 1];
    out.extend((frame.sent_at as u16).to_be_bytes());
    out
}

/// IEEE 802.3, annex 31B.
fn build_pause_frame(frame: &Frame) -> Vec<u8> {
    let mut out = vec![0x01, 0x80, 0xc2, 0, 0, 1];
    out.extend(mac_address(frame.end as usize));
    out.extend([0x88, 0x08, 0, 1]);
    out.extend((frame.payload.min(0xffff) as u16).to_be_bytes());
    out.resize(60, 0);
    out
}

fn mac_address(host: usize) -> [u8; 6] {
    [0x00, 0x00, 0x5e, 0x00, 0x53, host as u8]
}

fn ipv4_address(host: usize) -> [u8; 4] {
    [192, 0, 2, host as u8 + 1]
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()));
    words.sum()
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8], before: u32) -> u16 {
    let mut total = before + sum(bytes);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}
