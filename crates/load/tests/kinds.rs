//! Every kind of TCP traffic between both ends in one process, on loopback, without root.
#![allow(clippy::unwrap_used, reason = "a step that fails here fails the test")]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use latput_load::{
    Error, Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, Stop, Window, combine, now,
};
use latput_trial::{Binding, SocketOptions, Workload};
use latput_units::{Bytes, CpuSet, Nanos};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// One workload of each kind and shape, all on TCP.
const ALL: &[&str] = &[
    "kind=tcp_rr",
    "kind=tcp_rr connections=7 threads=3 burst=4",
    "kind=tcp_crr",
    "kind=tcp_crr connections=9 threads=2 request_bytes=3000 response_bytes=300000",
    "kind=tcp_stream connections=5 threads=2",
    "kind=tcp_stream rate=200Mbps",
    "kind=tcp_maerts",
    "kind=tcp_maerts connections=4 threads=2 rate=100Mbps",
    "kind=tcp_bidir",
    "kind=tcp_bidir connections=3 threads=2",
    "kind=tcp_bidir rate=80Mbps",
    "kind=fetch",
    "kind=fetch connections=20 threads=2 object_bytes=5000",
    "kind=rpc_read",
    "kind=rpc_read clients=2 outstanding=16 read_bytes=1 think=200us",
];

#[test]
fn every_kind_moves_its_traffic() {
    for text in ALL {
        let workload = parsed(text);
        let (sent, received) = run(&workload);
        let (observed, _, checks) = combine(&workload, &sent, &received);
        let traffic = workload.traffic;
        if traffic.is_transactional() {
            let transactions = observed.transactions.unwrap();
            assert!(transactions > 0, "{text}");
            assert_eq!(observed.latency.unwrap().count(), transactions, "{text}");
            let requests = received.requests.unwrap();
            let apart = transactions.abs_diff(requests);
            assert!(apart <= 200 + requests / 5, "{text}: {transactions} {requests}");
        } else {
            assert!(observed.goodput_bps(&traffic).unwrap() > 1e6, "{text}: {observed:?}");
        }
        assert!(sent.cpu >= sent.busiest_cpu && sent.cpu > Nanos::ZERO, "{text}: {sent:?}");
        for check in checks {
            let is_ours = !matches!(check.name.as_str(), "sender-saturated" | "offered-rate-kept");
            assert!(check.passed || !is_ours, "{text}: {check:?}");
        }
    }
}

#[test]
fn rate_is_kept_and_not_exceeded() {
    for text in ["kind=tcp_stream rate=80Mbps", "kind=tcp_maerts rate=80Mbps connections=4"] {
        let workload = parsed(text);
        let (sent, received) = run(&workload);
        let (observed, _, _) = combine(&workload, &sent, &received);
        let goodput = observed.goodput_bps(&workload.traffic).unwrap();
        // Two messages of 32 KB at each end of a window of 0.2 s are 5 Mbit/s; a busy machine keeps less.
        assert!(goodput < 88e6, "{text}: {goodput}");
        assert!(goodput > 20e6, "{text}: {goodput}");
    }
}

#[test]
fn both_ways_are_counted_by_themselves() {
    let workload = parsed("kind=tcp_bidir connections=2 threads=2");
    let (sent, received) = run(&workload);
    for bytes in
        [sent.sent_bytes, sent.received_bytes, received.sent_bytes, received.received_bytes]
    {
        assert!(bytes > 1 << 20, "{sent:?} {received:?}");
    }
}

#[test]
fn thinking_server_holds_up_no_other_call() {
    // 16 calls of 20 ms each: one after the other they would take 320 ms, side by side 20 ms.
    let workload =
        parsed("kind=rpc_read clients=1 outstanding=16 think=20ms think_distribution=fixed");
    let (sent, _) = run(&workload);
    let latency = sent.latency.unwrap();
    let median = latency.quantile(0.5).unwrap();
    assert!(latency.min().unwrap() >= Nanos::from_ms(20), "{latency:?}");
    assert!(median < Nanos::from_ms(100), "{median}");
}

#[test]
fn count_ends_the_window_early_at_both_ends() {
    for text in ALL.iter().filter(|text| !text.contains("rate=")) {
        let workload = Workload { count: Some(20), ..parsed(text) };
        let begun = Instant::now();
        let (reflector, generator) = connect(&workload);
        let progress = generator.progress();
        let (sent, received) = finish(reflector, generator, window(100, 20_000));
        assert!(begun.elapsed() < Duration::from_secs(10), "{text}");
        assert!(progress.units() >= 20, "{text}: {progress:?}");
        assert!(sent.window < Nanos::from_s(10), "{text}: {sent:?}");
        let apart = sent.window.as_ns().abs_diff(received.window.as_ns());
        assert!(apart < 1_000_000_000, "{text}: {} {}", sent.window, received.window);
        if let Some(transactions) = sent.transactions {
            assert!(transactions >= 20, "{text}: {transactions}");
        }
    }
}

#[test]
fn dead_end_ends_the_other_at_once() {
    for text in ALL {
        check_death(text, true);
        check_death(text, false);
    }
}

#[track_caller]
fn check_death(text: &str, of_generator: bool) {
    let (reflector, generator) = connect(&parsed(text));
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = window(0, 30_000);
    let (dies, lives) = (Stop::new(), Stop::new());
    let (of_sender, of_receiver) =
        if of_generator { (dies.clone(), lives) } else { (lives, dies.clone()) };
    let receiver = thread::spawn(move || reflector.run(window, &of_receiver).map(drop));
    let sender = thread::spawn(move || generator.run(window, &of_sender).map(drop));
    thread::sleep(Duration::from_millis(60));
    dies.raise();
    let begun = Instant::now();
    let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
    let (dead, alive) = if of_generator { (sent, received) } else { (received, sent) };
    assert!(matches!(dead, Err(Error::Stopped)), "{text}: {dead:?}");
    assert!(matches!(alive, Err(Error::PeerGone { .. })), "{text}: {alive:?}");
}

#[test]
fn connection_without_key_is_counted() {
    let workload = parsed("kind=tcp_crr connections=2");
    let (reflector, generator) = connect(&workload);
    let port = reflector.port();
    let strangers = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        let mut sockets: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect((LOCALHOST, port)).unwrap()).collect();
        sockets[0].write_all(&[0xff; 4096]).unwrap();
        thread::sleep(Duration::from_millis(1500)); // the others say nothing
    });
    let (sent, received) = finish(reflector, generator, window(50, 1800));
    strangers.join().unwrap();
    assert!(sent.transactions.unwrap() > 10);
    assert_eq!(received.auth_failures, 3);
}

#[test]
fn socket_options_reach_both_ends() {
    let small = Workload {
        sockets: SocketOptions {
            send_buffer: Some(Bytes::new(65_536)),
            receive_buffer: Some(Bytes::new(32_768)),
            congestion: Some("reno".to_owned()),
            ..SocketOptions::default()
        },
        ..parsed("kind=tcp_stream connections=2")
    };
    let (sent, _) = run(&small);
    assert!(sent.sent_bytes > 0);
    let unknown = Workload {
        sockets: SocketOptions {
            congestion: Some("nosuch".to_owned()),
            ..SocketOptions::default()
        },
        ..parsed("kind=tcp_rr")
    };
    let error = open(&unknown, &Key::generate().unwrap()).unwrap_err();
    assert!(matches!(error, Error::NoCongestionControl { .. }), "{error}");
}

#[test]
fn end_bound_outside_its_host_is_refused() {
    let cpus = |text: &str| Some(text.parse::<CpuSet>().unwrap());
    let binding = Binding { sut: cpus("5"), generator: None };
    let workload = Workload { binding, ..parsed("kind=tcp_rr") };
    let bind = SocketAddr::new(LOCALHOST, 0);
    let key = Key::generate().unwrap();
    let error = Reflector::open(bind, key, &workload, cpus("0-1").unwrap()).unwrap_err();
    assert!(matches!(error, Error::NotItsCpus { .. }), "{error}");
}

#[test]
fn thousand_connections_are_there_soon() {
    let workload = parsed("kind=tcp_rr connections=1000 threads=2");
    let begun = Instant::now();
    let (reflector, generator) = connect(&workload);
    reflector.wait_ready(now() + Nanos::from_s(10)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let (sent, _) = finish(reflector, generator, window(100, 300));
    assert!(sent.transactions.unwrap() >= 1000);
}

fn parsed(text: &str) -> Workload {
    let fields = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    latput_trial::workload::from_fields(&fields).unwrap()
}

fn window(warm_up_ms: u64, length_ms: u64) -> Window {
    Window::starting_in(Nanos::from_ms(warm_up_ms), Nanos::from_ms(length_ms)).unwrap()
}

fn open(workload: &Workload, key: &Key) -> Result<Reflector, Error> {
    Reflector::open(SocketAddr::new(LOCALHOST, 0), key.clone(), workload, CpuSet::new())
}

fn connect(workload: &Workload) -> (Reflector, Generator) {
    let key = Key::generate().unwrap();
    let reflector = open(workload, &key).unwrap();
    let port = reflector.port();
    let generator = Generator::connect(LOCALHOST, port, &key, workload, CpuSet::new()).unwrap();
    (reflector, generator)
}

fn run(workload: &Workload) -> (SenderOutcome, ReceiverOutcome) {
    let (reflector, generator) = connect(workload);
    finish(reflector, generator, window(50, 200))
}

fn finish(
    reflector: Reflector,
    generator: Generator,
    window: Window,
) -> (SenderOutcome, ReceiverOutcome) {
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let sent = generator.run(window, &Stop::new());
    let received = receiver.join().unwrap();
    (only(sent.unwrap()), only(received.unwrap()))
}

/// The outcome of a window without slices.
fn only<T>(slices: Vec<T>) -> T {
    let [one] = <[T; 1]>::try_from(slices).ok().unwrap();
    one
}
