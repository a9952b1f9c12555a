//! Two ends over a network that loses, delays and reorders.

use std::collections::BTreeMap;

use latput_units::SeededRng;

use super::*;
use crate::machine::CongestionControl;

const OPTIONS: TcpOptions = TcpOptions {
    mss: 1_448,
    chunk: 1_448,
    send_buffer: 262_144,
    receive_buffer: 65_536,
    peer_buffer: 65_536,
    nodelay: true,
    acks_when_read: false,
    congestion: CongestionControl::Cubic,
};

/// A path: share of packets lost, one-way delay, and random extra delay that reorders.
#[derive(Clone, Copy)]
struct LossyPath {
    loss: f64,
    delay: Time,
    extra: usize,
}

const CLEAN: LossyPath = LossyPath { loss: 0.0, delay: 50_000, extra: 1 };

#[test]
fn every_byte_arrives_once_in_order() {
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        for (seed, loss) in [(1, 0.0), (2, 0.001), (3, 0.02), (4, 0.1)] {
            for (chunk, extra) in [(1_448, 1), (1_448, 200_000), (44 * 1_448, 1)] {
                let options = TcpOptions { chunk, congestion, ..OPTIONS };
                let path = LossyPath { loss, extra, ..CLEAN };
                let (took, _) = run_transfer(options, path, 3_000_000, seed);
                assert!(took < NEVER, "{congestion:?} loss {loss} extra {extra} chunk {chunk}");
            }
        }
    }
}

#[test]
fn clean_path_needs_no_retransmission() {
    let (_, retransmits) = run_transfer(OPTIONS, CLEAN, 3_000_000, 5);
    assert_eq!(retransmits, 0);
}

#[test]
fn receive_window_limits_the_rate() {
    let bytes = 30_000_000;
    let (took, _) = run_transfer(OPTIONS, CLEAN, bytes, 6);
    // 45 segments fit; the odd one waits a round trip for its acknowledgement, so 44 pass per round.
    let windows = bytes as f64 / (44.0 * 1_448.0);
    let round_trips = took as f64 / 100_000.0;
    assert!((round_trips / windows - 1.0).abs() < 0.02, "{round_trips} for {windows}");
}

#[test]
fn lone_segment_is_acknowledged_after_40_ms() {
    let mut tcp = TcpEndpoint::new(OPTIONS);
    let data = |seq| Frame {
        seq,
        payload: 1_448,
        kind: FrameKind::Tcp,
        window: 65_536,
        ..Frame::default()
    };
    tcp.receive_segment(1_000, &data(0));
    assert!(tcp.next_frame(1_000).is_none());
    assert_eq!(tcp.next_tick(), 40_001_000);
    tcp.receive_segment(2_000, &data(1_448));
    assert_eq!(tcp.next_frame(2_000).unwrap().ack, 2_896);
    assert_eq!(tcp.next_tick(), NEVER);
}

#[test]
fn reader_paced_acknowledgement_covers_all_read() {
    let mut tcp = TcpEndpoint::new(TcpOptions { acks_when_read: true, ..OPTIONS });
    let data = |seq| Frame {
        seq,
        payload: 1_448,
        kind: FrameKind::Tcp,
        window: 65_536,
        ..Frame::default()
    };
    for number in 0..5 {
        tcp.receive_segment(1_000, &data(1_448 * number));
        assert!(tcp.next_frame(1_000).is_none(), "{number}");
    }
    tcp.read(1_448);
    assert!(tcp.next_frame(2_000).is_none(), "four segments are not read yet");
    tcp.read(4 * 1_448);
    assert_eq!(tcp.next_frame(2_000).unwrap().ack, 5 * 1_448);
    assert!(tcp.next_frame(2_000).is_none());
    // One more segment is not worth an acknowledgement of its own until its timer says so.
    tcp.receive_segment(3_000, &data(5 * 1_448));
    tcp.read(1_448);
    assert!(tcp.next_frame(3_000).is_none());
    assert_eq!(tcp.next_tick(), 40_003_000);
}

#[test]
fn nagle_holds_back_small_segments() {
    for (nodelay, expected) in [(true, true), (false, false)] {
        let mut tcp = TcpEndpoint::new(TcpOptions { nodelay, ..OPTIONS });
        tcp.write(1);
        assert!(tcp.next_frame(0).is_some());
        tcp.write(1);
        assert_eq!(tcp.next_frame(0).is_some(), expected, "nodelay {nodelay}");
    }
}

#[test]
fn closed_window_is_probed_and_opens_again() {
    let mut sender = TcpEndpoint::new(TcpOptions { peer_buffer: 1_448, ..OPTIONS });
    let mut receiver = TcpEndpoint::new(TcpOptions { receive_buffer: 1_448, ..OPTIONS });
    sender.write(10_000);
    let frame = sender.next_frame(0).unwrap();
    receiver.receive_segment(0, &frame);
    receiver.acknowledge_now = true;
    sender.receive_segment(0, &receiver.next_frame(0).unwrap());
    assert!(sender.next_frame(0).is_none(), "the window is closed");
    let mut probing = sender.clone();
    probing.handle_tick(probing.next_tick());
    let probe = probing.next_frame(0).unwrap();
    assert_eq!(probe.payload, 1, "in case the update gets lost");
    receiver.receive_segment(0, &probe);
    assert_eq!(receiver.readable_bytes(), 1_448, "there is no room for its byte");
    assert_eq!(receiver.next_frame(0).unwrap().window, 0, "and it is answered");
    receiver.read(1_448);
    let update = receiver.next_frame(0).expect("reading offers the window again");
    sender.receive_segment(0, &update);
    assert_eq!(sender.next_frame(0).unwrap().payload, 1_448);
}

/// Sends `bytes`, the receiver reading everything at once; gives the time and the retransmissions.
#[track_caller]
fn run_transfer(options: TcpOptions, path: LossyPath, bytes: u64, seed: u64) -> (Time, u64) {
    let mut rng = SeededRng::from_seed(seed);
    let mut ends = [TcpEndpoint::new(options), TcpEndpoint::new(options)];
    let mut wire: BTreeMap<(Time, u64), (usize, Frame)> = BTreeMap::new();
    let (mut now, mut number, mut written) = (0, 0, 0);
    while ends[1].total_received() < bytes {
        let room = ends[0].writable_bytes().min(bytes - written);
        ends[0].write(room);
        written += room;
        for end in [0, 1] {
            while let Some(frame) = ends[end].next_frame(now) {
                number += 1;
                if rng.next_uniform() >= path.loss {
                    let at = now + path.delay + rng.next_below(path.extra) as Time;
                    wire.insert((at, number), (1 - end, frame));
                }
            }
        }
        let arrival = wire.first_key_value().map_or(NEVER, |(key, _)| key.0);
        let timer = ends[0].next_tick().min(ends[1].next_tick());
        assert!(arrival.min(timer) < NEVER, "deadlock at {now}: {:?}", ends[0]);
        now = arrival.min(timer);
        if arrival <= timer {
            let (_, (end, frame)) = wire.pop_first().unwrap();
            let before = ends[end].total_received();
            ends[end].receive_segment(now, &frame);
            assert!(ends[end].total_received() >= before);
            let readable = ends[end].readable_bytes();
            ends[end].read(readable);
        } else {
            ends[0].handle_tick(now);
            ends[1].handle_tick(now);
        }
        assert!(ends[1].total_received() <= written, "bytes from nowhere");
        assert!(now < 1_000_000_000_000, "no progress");
    }
    assert_eq!(ends[1].total_received(), bytes);
    (now, u64::from(ends[0].retransmits))
}
