//! Both ends of TCP traffic in one process, on loopback, without root.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::{
    Error, ErrorKind, Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window,
    combine, now,
};
use latput_trial::{Direction, Traffic, Workload};
use latput_units::{Bytes, CpuId, CpuSet, Nanos};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[test]
fn lock_step_exchange_agrees_at_both_ends() {
    let (sent, received) = check_exchange(V4, rr(1, 1, 0, 1));
    assert_eq!(sent.sent_bytes, sent.transactions.unwrap());
    assert!(sent.cpu > Nanos::ZERO && received.cpu > Nanos::ZERO);
}

#[test]
fn it_works_on_ipv6_too() {
    check_exchange(V6, rr(1, 1, 0, 1));
}

#[test]
fn burst_keeps_so_many_in_flight() {
    // Little's law: transactions in flight = rate x mean round-trip time, but for a busy machine that
    // stops us at an end of the short window.
    let (sent, _) = check_exchange(V4, rr(1, 1, 16, 1));
    let rate = sent.transactions.unwrap() as f64 / sent.window.as_secs_f64();
    let in_flight = rate * sent.latency.unwrap().mean_ns().unwrap() / 1e9;
    assert!((13.0..21.0).contains(&in_flight), "{in_flight}");
}

#[test]
fn odd_sizes_work() {
    check_exchange(V4, rr(1, 65_536, 0, 1));
    check_exchange(V4, rr(65_536, 1, 3, 1));
    check_exchange(V4, rr(1000, 333, 16, 1));
}

#[test]
fn large_messages_both_ways_do_not_deadlock() {
    check_exchange(V4, rr(32_768, 32_768, 6, 1));
    check_exchange(V4, rr(1 << 20, 1 << 20, 20, 1));
}

#[test]
fn burst_far_beyond_the_buffers_does_not_deadlock() {
    check_exchange(V4, rr(1, 1, 5000, 1));
}

#[test]
fn hundred_connections_work() {
    let (sent, _) = check_exchange(V4, rr(1, 1, 0, 100));
    assert!(sent.transactions.unwrap() >= 100);
    check_exchange(V4, rr(2000, 100, 4, 100));
}

#[test]
fn nagle_may_stay_on() {
    let traffic = Traffic::TcpRr {
        request_bytes: Bytes::new(1),
        response_bytes: Bytes::new(1),
        burst: 16,
        connections: 1,
        nodelay: false,
        threads: 1,
        arrivals: None,
    };
    check_exchange(V4, traffic);
}

#[test]
fn bulk_arrives_as_it_was_sent() {
    for (connections, message_bytes, vectored) in
        [(1, 32_768, true), (4, 32_768, true), (4, 32_768, false), (3, 16 << 20, true)]
    {
        let traffic = Traffic::TcpBulk {
            direction: Direction::ToSut,
            message_bytes: Bytes::new(message_bytes),
            connections,
            threads: 1,
            rate: None,
            vectored,
        };
        let (sent, received) = run(V4, traffic);
        // The difference is in the socket buffers at the ends of the window.
        let difference = sent.sent_bytes.abs_diff(received.received_bytes);
        assert!(difference < 64 << 20, "{sent:?} {received:?}");
        assert!(received.received_bytes > 1 << 20, "{received:?}");
        assert_eq!(sent.retransmits.is_some(), received.retransmits.is_some());
        assert_eq!((sent.transactions, received.requests), (None, None));
    }
}

#[test]
fn traffic_thread_runs_where_it_is_told() {
    let cpus: CpuSet = [CpuId(0)].into_iter().collect();
    let (sent, received) = run_on(V4, rr(1, 1, 0, 1), &cpus);
    assert!(sent.transactions.unwrap() > 0 && received.requests.unwrap() > 0);
    let nowhere: CpuSet = [CpuId(8000)].into_iter().collect();
    let (reflector, generator) = connect(V4, rr(1, 1, 0, 1), &nowhere);
    let error = generator.run(window(0, 50), &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::Affinity { .. }), "{error}");
    drop(reflector);
}

#[test]
fn wrong_key_is_refused_and_counted() {
    let key = Key::generate().unwrap();
    let reflector = open(V4, &key, rr(1, 1, 0, 1), &CpuSet::new());
    let wrong = Key::generate().unwrap();
    let error =
        Generator::connect(V4, reflector.port(), &wrong, &plain(rr(1, 1, 0, 1)), CpuSet::new())
            .unwrap_err();
    assert!(matches!(error, Error::NotWelcome { .. }), "{error}");
    let error = reflector.wait_ready(now()).unwrap_err();
    assert!(matches!(error, Error::NotReady { shown: 0, wanted: 1, auth_failures: 1 }), "{error}");
    let generator =
        Generator::connect(V4, reflector.port(), &key, &plain(rr(1, 1, 0, 1)), CpuSet::new())
            .unwrap();
    let (sent, received) = finish(reflector, generator, window(20, 50));
    assert_eq!(received.auth_failures, 1);
    let (_, _, checks) = combine(&plain(rr(1, 1, 0, 1)), &sent, &received);
    assert!(checks.iter().any(|check| check.name == "wrong-keys" && !check.passed), "{checks:?}");
}

#[test]
fn silent_client_is_dropped_without_blocking() {
    let key = Key::generate().unwrap();
    let reflector = open(V4, &key, rr(1, 1, 0, 1), &CpuSet::new());
    let mut silent: Vec<TcpStream> = (0..100).map(|_| dial(&reflector)).collect();
    let generator =
        Generator::connect(V4, reflector.port(), &key, &plain(rr(1, 1, 0, 1)), CpuSet::new())
            .unwrap();
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(last.read(&mut [0]).unwrap(), 0, "the silent connection is closed");
    drop(generator);
}

#[test]
fn connection_beyond_the_tests_own_is_closed() {
    let (reflector, generator) = connect(V4, rr(1, 1, 0, 1), &CpuSet::new());
    let mut garbage = dial(&reflector);
    garbage.write_all(&[0xff; 4096]).unwrap();
    let mut rest = Vec::new();
    assert!(garbage.read_to_end(&mut rest).is_err() || rest.is_empty());
    let (_, received) = finish(reflector, generator, window(20, 50));
    assert_eq!(received.auth_failures, 1);
}

#[test]
fn closed_port_differs_from_other_service() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let stranger = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"220 mail.example ESMTP").unwrap();
        let _until_closed = socket.read_to_end(&mut Vec::new());
    });
    let attempt = || {
        let key = Key::generate().unwrap();
        Generator::connect(V4, port, &key, &plain(rr(1, 1, 0, 1)), CpuSet::new()).unwrap_err()
    };
    let error = attempt();
    assert!(matches!(error, Error::NotReflector { .. }), "{error}");
    stranger.join().unwrap();
    let error = attempt();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Peer);
}

#[test]
fn taken_port_and_a_foreign_address_are_named() {
    let taken = TcpListener::bind((V4, 0)).unwrap().local_addr().unwrap();
    let _holder = TcpListener::bind(taken).unwrap();
    let open = |address| {
        let key = Key::generate().unwrap();
        Reflector::open(address, key, &plain(rr(1, 1, 0, 1)), CpuSet::new()).unwrap_err()
    };
    let error = open(taken);
    assert!(matches!(error, Error::PortInUse { address } if address == taken), "{error}");
    let error = open(SocketAddr::from(([192, 0, 2, 1], 0)));
    assert!(matches!(error, Error::AddressNotHere { .. }), "{error}");
}

#[test]
fn generator_that_dies_ends_the_reflector_at_once() {
    for traffic in [rr(1, 1, 0, 1), rr(1, 1, 0, 10), bulk()] {
        let (reflector, generator) = connect(V4, traffic, &CpuSet::new());
        reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
        let dying = Stop::new();
        let (dies, begun) = (dying.clone(), Instant::now());
        let sender = thread::spawn(move || generator.run(window(0, 20_000), &dies));
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            dying.raise();
        });
        let error = reflector.run(window(0, 20_000), &Stop::new()).unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(matches!(sender.join().unwrap(), Err(Error::Stopped)));
        killer.join().unwrap();
    }
}

#[test]
fn reflector_that_dies_ends_the_generator_at_once() {
    for traffic in [rr(1, 1, 0, 1), rr(1, 1, 0, 10), bulk()] {
        let (reflector, generator) = connect(V4, traffic, &CpuSet::new());
        reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(reflector);
        });
        let begun = Instant::now();
        let error = generator.run(window(0, 20_000), &Stop::new()).unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        killer.join().unwrap();
    }
}

#[test]
fn stop_ends_traffic_despite_full_buffers() {
    for traffic in [rr(1, 1, 0, 1), rr(1, 1, 0, 10), bulk()] {
        // Nobody reads at the other end, so that calls block.
        let (reflector, generator) = connect(V4, traffic, &CpuSet::new());
        reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
        let stop = Stop::new();
        let flag = stop.clone();
        let raised = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            flag.raise();
            Instant::now()
        });
        let result = generator.run(window(0, 20_000), &stop);
        let ended = Instant::now();
        assert!(matches!(result, Err(Error::Stopped)), "{result:?}");
        let lag = ended.duration_since(raised.join().unwrap());
        assert!(lag < Duration::from_millis(200), "{lag:?}");
    }
}

#[test]
fn silent_peer_fails_at_window_end() {
    let (reflector, generator) = connect(V4, rr(1, 1, 0, 1), &CpuSet::new());
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let begun = Instant::now();
    let error = generator.run(window(0, 300), &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn outcomes_survive_json() {
    let (sent, received) = run(V4, rr(1, 1, 3, 1));
    let text = serde_json::to_string(&sent).unwrap();
    assert_eq!(serde_json::from_str::<SenderOutcome>(&text).unwrap(), sent);
    let text = serde_json::to_string(&received).unwrap();
    assert_eq!(serde_json::from_str::<ReceiverOutcome>(&text).unwrap(), received);
}

fn rr(request: u64, response: u64, burst: u32, connections: u32) -> Traffic {
    Traffic::TcpRr {
        request_bytes: Bytes::new(request),
        response_bytes: Bytes::new(response),
        burst,
        connections,
        nodelay: true,
        threads: 1,
        arrivals: None,
    }
}

fn plain(traffic: Traffic) -> Workload {
    Workload::plain("test", traffic)
}

fn bulk() -> Traffic {
    Traffic::tcp_stream(Bytes::new(32_768), 1)
}

fn window(warm_up_ms: u64, length_ms: u64) -> Window {
    Window::starting_in(Nanos::from_ms(warm_up_ms), Nanos::from_ms(length_ms)).unwrap()
}

fn open(address: IpAddr, key: &Key, traffic: Traffic, cpus: &CpuSet) -> Reflector {
    Reflector::open(SocketAddr::new(address, 0), key.clone(), &plain(traffic), cpus.clone())
        .unwrap()
}

fn dial(reflector: &Reflector) -> TcpStream {
    TcpStream::connect((V4, reflector.port())).unwrap()
}

fn connect(address: IpAddr, traffic: Traffic, cpus: &CpuSet) -> (Reflector, Generator) {
    let key = Key::generate().unwrap();
    let reflector = open(address, &key, traffic, cpus);
    let generator =
        Generator::connect(address, reflector.port(), &key, &plain(traffic), cpus.clone()).unwrap();
    (reflector, generator)
}

fn run(address: IpAddr, traffic: Traffic) -> (SenderOutcome, ReceiverOutcome) {
    run_on(address, traffic, &CpuSet::new())
}

fn run_on(address: IpAddr, traffic: Traffic, cpus: &CpuSet) -> (SenderOutcome, ReceiverOutcome) {
    let (reflector, generator) = connect(address, traffic, cpus);
    finish(reflector, generator, window(50, 200))
}

fn finish(
    reflector: Reflector,
    generator: Generator,
    window: Window,
) -> (SenderOutcome, ReceiverOutcome) {
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let sent = generator.run(window, &Stop::new()).unwrap();
    (only(sent), only(receiver.join().unwrap().unwrap()))
}

/// Runs a request/response load and holds the books of both ends against each other.
#[track_caller]
fn check_exchange(address: IpAddr, traffic: Traffic) -> (SenderOutcome, ReceiverOutcome) {
    let Traffic::TcpRr { request_bytes, burst, connections, .. } = traffic else {
        panic!("{traffic:?}");
    };
    let (sent, received) = run(address, traffic);
    let transactions = sent.transactions.unwrap();
    assert!(transactions > 0);
    assert_eq!(sent.latency.as_ref().unwrap().count(), transactions);
    // The windows are the same instants; what is in flight at their ends may fall on either side.
    let in_flight = u64::from((burst + 1) * connections);
    let requests = received.requests.unwrap();
    assert!(
        transactions.abs_diff(requests) <= 2 * in_flight + requests / 10,
        "{transactions} {requests}"
    );
    let whole = received.received_bytes / request_bytes.get();
    assert!(whole.abs_diff(requests) <= 1 + in_flight, "{whole} {requests}");
    let (traffic, probe, checks) = combine(&plain(traffic), &sent, &received);
    assert_eq!(traffic.transactions, Some(transactions));
    assert_eq!(probe, None);
    // Whether a machine saturates under an exchange is the machine's affair; that the check says what
    // the figures say is ours.
    let busy = sent.busiest_cpu.as_secs_f64() / sent.window.as_secs_f64();
    for check in &checks {
        let is_sound = check.name != "sender-saturated" || busy < 0.97;
        assert_eq!(check.passed, is_sound, "{check:?}");
    }
    (sent, received)
}

/// The outcome of a window without slices.
fn only<T>(slices: Vec<T>) -> T {
    let [one] = <[T; 1]>::try_from(slices).ok().unwrap();
    one
}
