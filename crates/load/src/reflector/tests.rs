//! A generator that has the key and does what no generator does.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::thread;
use std::time::{Duration, Instant};

use latput_trial::{Direction, Traffic};
use latput_units::{BitsPerSecond, Bytes};

use super::*;

/// Longer than a window of these tests and its grace, on a busy machine.
const WITHIN: Duration = Duration::from_secs(20);
const LENGTH: Nanos = Nanos::from_ms(200);

/// Claims of a generator about itself: its UDP port, its tag and the numbers of its connections.
struct Claims {
    udp_port: u16,
    tag: u32,
    numbers: &'static [u32],
}

const HONEST: Claims = Claims { udp_port: 0, tag: 7, numbers: &[0] };
const TWO: Claims = Claims { numbers: &[0, 1], ..HONEST };

/// Lets `misuse` have the connections once they are admitted; returns what the reflector makes of it.
fn end_of(
    traffic: Traffic,
    claims: &Claims,
    misuse: impl FnOnce(Vec<TcpStream>) + Send + 'static,
) -> Result<Vec<ReceiverOutcome>, Error> {
    let key = Key::generate().unwrap();
    let workload = Workload::plain("hostile", traffic);
    let bind = (Ipv4Addr::LOCALHOST, 0).into();
    let reflector = Reflector::open(bind, key.clone(), &workload, CpuSet::new()).unwrap();
    let sockets: Vec<TcpStream> = claims
        .numbers
        .iter()
        .map(|number| {
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, reflector.port())).unwrap();
            socket.set_nodelay(true).unwrap();
            let hello = Hello::new(&key, claims.udp_port, claims.tag, *number);
            socket.write_all(&hello.encode()).unwrap();
            socket
        })
        .collect();
    reflector.wait_ready(crate::now() + Nanos::from_s(10)).unwrap();
    let begun = Instant::now();
    let misusing = thread::spawn(move || misuse(sockets));
    let window = Window::starting_in(Nanos::from_ms(20), LENGTH).unwrap();
    let ended = reflector.run(window, &Stop::new());
    assert!(begun.elapsed() < WITHIN, "{:?}", begun.elapsed());
    misusing.join().unwrap();
    ended
}

fn rr(request: u64, response: u64, connections: u32) -> Traffic {
    Traffic::TcpRr {
        request_bytes: Bytes::new(request),
        response_bytes: Bytes::new(response),
        burst: 0,
        connections,
        threads: 1,
        nodelay: true,
        arrivals: None,
    }
}

/// Closes nothing until the reflector does.
fn outlast(sockets: Vec<TcpStream>) {
    for mut socket in sockets {
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        let mut scrap = [0; 8192];
        while matches!(socket.read(&mut scrap), Ok(1..)) {}
    }
}

#[test]
fn absurd_connection_numbers_are_refused() {
    for numbers in [&[1][..], &[u32::MAX], &[0, 0], &[0, 2], &[u32::MAX, u32::MAX - 1]] {
        let connections = u32::try_from(numbers.len()).unwrap();
        let ended = end_of(rr(1, 1, connections), &Claims { numbers, ..HONEST }, outlast);
        assert!(matches!(ended, Err(Error::MixedConnections { .. })), "{numbers:?}: {ended:?}");
    }
}

#[test]
fn close_in_a_message_is_an_end() {
    for sent in [0, 1, 999, 1000, 1001, 100_000] {
        for is_reset in [false, true] {
            let ended = end_of(rr(1000, 1000, 1), &HONEST, move |sockets| {
                let [mut socket] = <[TcpStream; 1]>::try_from(sockets).unwrap();
                let _cut = socket.write_all(&vec![0; sent]);
                if is_reset {
                    let _gone = socket::reset_on_close(&socket);
                } else {
                    let _gone = socket.shutdown(Shutdown::Write);
                }
            });
            assert!(ended.is_err(), "{sent}: {ended:?}");
        }
    }
}

/// It sends without end, and takes no answer: what the reflector cannot send it does not keep.
#[test]
fn endless_requests_are_neither_kept_nor_awaited() {
    let before = resident_kb();
    let ended = end_of(rr(1, 1 << 20, 1), &HONEST, |sockets| {
        let [mut socket] = <[TcpStream; 1]>::try_from(sockets).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let flood = vec![0; 1 << 20];
        let until = Instant::now() + WITHIN;
        while Instant::now() < until {
            match socket.write(&flood) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    });
    let kept = resident_kb().saturating_sub(before);
    assert!(kept < 200_000, "{kept} kB; {ended:?}");
}

#[test]
fn slowly_read_answer_blocks_nobody() {
    // The session may end while the bytes are still being taken, so no more is asserted.
    let _ended = end_of(rr(1, 1 << 20, 1), &HONEST, |sockets| {
        let [mut socket] = <[TcpStream; 1]>::try_from(sockets).unwrap();
        let _gone = socket.write_all(&[0; 100]);
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && matches!(socket.read(&mut [0]), Ok(1)) {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A port that is no port, and one where somebody else listens: no datagram reaches them but those of the traffic.
#[test]
fn datagrams_go_only_to_proven_peers() {
    let bystander = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    bystander.set_nonblocking(true).unwrap();
    let datagrams = Traffic::udp_stream(Bytes::new(100), BitsPerSecond::new(1_000_000));
    for udp_port in [0, 1, bystander.local_addr().unwrap().port()] {
        let claims = Claims { udp_port, tag: u32::MAX, ..HONEST };
        let _ended = end_of(datagrams, &claims, |sockets| {
            thread::sleep(Duration::from_millis(400));
            drop(sockets);
        });
    }
    let heard = bystander.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(heard.kind(), ErrorKind::WouldBlock);
}

#[test]
fn missing_bulk_ends_with_the_window() {
    for direction in [Direction::ToSut, Direction::FromSut, Direction::Both] {
        let mut bulk = Traffic::tcp_stream(Bytes::new(32_768), 1);
        if let Traffic::TcpBulk { direction: wanted, .. } = &mut bulk {
            *wanted = direction;
        }
        let claims = if direction == Direction::Both { &TWO } else { &HONEST };
        let ended = end_of(bulk, claims, |sockets| {
            thread::sleep(Duration::from_millis(1500));
            drop(sockets);
        });
        assert!(ended.is_err(), "{direction:?}: {ended:?}");
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
