//! Readings of made-up connections, and of those that end between them.

use std::net::IpAddr;

use super::*;

fn make_connection(cookie: u64, local: &str, acked: u64, rtt_us: u64) -> TcpConnection {
    TcpConnection {
        cookie,
        local: (local.parse::<IpAddr>().unwrap(), 443),
        remote: ("10.0.0.2".parse().unwrap(), 50_000),
        rtt: Nanos::from_us(rtt_us),
        rtt_deviation: Nanos::from_us(10),
        min_rtt: Some(Nanos::from_us(rtt_us / 2)),
        retransmitted: u32::try_from(acked / 100).unwrap(),
        acked_bytes: Some(acked),
        received_bytes: Some(0),
        delivery_bytes_per_s: Some(1000),
        idle: Nanos::ZERO,
    }
}

fn connection_with(cookie: u64, acked: u64) -> TcpConnection {
    make_connection(cookie, "10.0.0.1", acked, 200)
}

fn open(live: &Live) -> ConnectionReader<'_> {
    ConnectionReader::open(live, KnownConnections::default(), &mut Vec::new()).unwrap()
}

/// The readings of a second of which each has these connections, and these that have ended.
fn feed_reading(
    connections: &mut ConnectionReader<'_>,
    at_s: u64,
    found: &[TcpConnection],
    ended: &[TcpConnection],
) -> TcpObservation {
    let ended = ConnectionEnds { connections: ended.to_vec(), were_lost: false };
    let (at, found) = (Nanos::from_s(at_s), found.to_vec());
    connections.since_last(TcpReading { at, found, ended, samples: Vec::new() })
}

#[test]
fn bytes_between_readings_count_without_resets() {
    let live = Live::default();
    let mut connections = open(&live);
    let samples = [(1, 230), (2, 5), (9, 7)].map(|(cookie, us)| (cookie, Nanos::from_us(us)));
    let mut read = |found| {
        connections.since_last(TcpReading {
            found,
            samples: samples.to_vec(),
            ..TcpReading::default()
        })
    };
    let one = |acked| vec![connection_with(1, acked), make_connection(2, "127.0.0.1", acked, 1)];
    assert_eq!(read(one(1_000)), TcpObservation::default());
    let seen = read(one(1_500));
    assert_eq!((seen.connections, seen.acked_bytes, seen.retransmitted), (1, 500, 5));
    assert_eq!((seen.rtt.count(), seen.min_rtt), (1, Some(Nanos::from_us(100))));
    // A sample of the loopback, and one of a connection that is not there, do not count.
    assert_eq!(
        (seen.rtt_samples.count(), seen.rtt_samples.max().map(|most| most.as_us_f64().round())),
        (1, Some(230.0))
    );
    let idle = read(one(1_500));
    assert_eq!((idle.rtt.count(), idle.readings), (0, 1));
    let backwards = read(one(10));
    assert_eq!((backwards.acked_bytes, backwards.retransmitted), (0, 0));
    let new = read(vec![connection_with(3, 70)]);
    assert_eq!(new.acked_bytes, 70, "it began since");
}

#[test]
fn connections_between_two_readings_count_whole() {
    let live = Live::default();
    let mut connections = open(&live);
    feed_reading(&mut connections, 1, &[], &[]);
    let short: Vec<TcpConnection> = (10..110).map(|cookie| connection_with(cookie, 300)).collect();
    let seen = feed_reading(&mut connections, 2, &[], &short);
    assert_eq!((seen.acked_bytes, seen.ended, seen.seen), (30_000, Some(100), 100));
    assert_eq!((seen.connections, seen.rtt.count()), (0, 100));
    let idle = feed_reading(&mut connections, 3, &[], &[]);
    assert_eq!((idle.acked_bytes, idle.ended, idle.seen), (0, Some(0), 0));
}

#[test]
fn end_of_a_connection_counts_once() {
    let live = Live::default();
    let mut connections = open(&live);
    feed_reading(
        &mut connections,
        1,
        &[connection_with(1, 1_000), connection_with(2, 5_000), connection_with(3, 9_000)],
        &[connection_with(3, 9_000)],
    );
    // The first is found before it ends; the second is closed, and its end is told a reading later.
    let seen = feed_reading(
        &mut connections,
        2,
        &[connection_with(1, 1_100)],
        &[connection_with(1, 1_150)],
    );
    assert_eq!((seen.acked_bytes, seen.ended, seen.seen), (150, Some(1), 0));
    let late = feed_reading(&mut connections, 3, &[], &[connection_with(2, 5_700)]);
    assert_eq!((late.acked_bytes, late.ended, late.seen), (700, Some(1), 0));
    assert!(connections.last.unwrap().known.is_empty());
}

#[test]
fn earlier_bytes_do_not_count() {
    let live = Live::default();
    let mut connections = open(&live);
    feed_reading(&mut connections, 10, &[], &[]);
    let idle = |s| TcpConnection { idle: Nanos::from_s(s), ..connection_with(s, 1 << 30) };
    // Reset by the other end long ago, and closed by the program only now.
    let seen = feed_reading(&mut connections, 12, &[], &[idle(9)]);
    assert_eq!((seen.acked_bytes, seen.ended, seen.seen), (0, Some(0), 0));
    let seen = feed_reading(&mut connections, 12, &[], &[idle(1)]);
    assert_eq!(seen.acked_bytes, 1 << 30);
}

#[test]
fn ends_that_were_lost_leave_nothing_behind() {
    let live = Live::default();
    let mut connections = open(&live);
    feed_reading(&mut connections, 1, &[connection_with(1, 10), connection_with(2, 10)], &[]);
    let ended = ConnectionEnds { connections: Vec::new(), were_lost: true };
    let reading =
        TcpReading { found: vec![connection_with(1, 10)], ended, ..TcpReading::default() };
    connections.since_last(reading);
    assert_eq!(connections.last.unwrap().known.into_keys().collect::<Vec<_>>(), [1]);
}

#[test]
fn groups_have_their_connections_that_ended() {
    let live = Live { by: Some(GroupBy::Peer), ports: vec![443], ..Live::default() };
    let mut connections = open(&live);
    feed_reading(&mut connections, 1, &[connection_with(1, 50)], &[]);
    let other_port =
        TcpConnection { local: ("10.0.0.1".parse().unwrap(), 80), ..connection_with(8, 1 << 30) };
    let seen = feed_reading(
        &mut connections,
        2,
        &[connection_with(1, 60)],
        &[connection_with(2, 300), connection_with(3, 400), other_port],
    );
    assert_eq!((seen.acked_bytes, seen.connections, seen.ended, seen.seen), (710, 1, Some(2), 3));
    let groups = connections.take_groups();
    let group = &groups[&TcpGroup::Peer("10.0.0.2".parse().unwrap())];
    assert_eq!((group.acked_bytes, group.connections, group.ended), (710, 1, Some(2)));
}
