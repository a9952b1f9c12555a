//! Windows that are cut into slices, of every kind of traffic, on the loopback.
#![allow(clippy::unwrap_used, reason = "a test stops at an error")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::thread;

use latput_load::{
    Error, ErrorKind, Generator, Key, ReceiverOutcome, Reflector, SenderOutcome, SliceLayout, Stop,
    Window, combine, now,
};
use latput_trial::Workload;
use latput_units::{CpuSet, Nanos};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LENGTH: Nanos = Nanos::from_ms(250);
const CUT: Nanos = Nanos::from_ms(30);
const COUNT: u32 = 4;

/// One test at a time: each needs its share of the CPUs in most slices.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn requests_and_responses() {
    check_exchange("kind=tcp_rr");
    check_exchange("kind=tcp_rr connections=6 threads=2 burst=3");
    check_exchange("kind=tcp_rr connections=2 rate_per_s=2000");
    check_exchange("kind=tcp_crr");
    check_exchange("kind=fetch object_bytes=65536 connections=2");
    check_exchange("kind=rpc_read clients=2 outstanding=4");
}

#[test]
fn thousand_connections() {
    check_exchange("kind=tcp_rr connections=1000 threads=2");
}

#[test]
fn bulk_in_every_direction() {
    for kind in ["tcp_stream", "tcp_maerts", "tcp_bidir"] {
        for rest in ["connections=2", "connections=2 rate=100Mbps"] {
            let both = run(&format!("kind={kind} {rest}")).unwrap();
            let sum = |bytes: fn(&(SenderOutcome, ReceiverOutcome)) -> u64| -> u64 {
                both.iter().map(bytes).sum()
            };
            let to_sut = [sum(|it| it.0.sent_bytes), sum(|it| it.1.received_bytes)];
            let from_sut = [sum(|it| it.1.sent_bytes), sum(|it| it.0.received_bytes)];
            for (bytes, flows) in [(to_sut, kind != "tcp_maerts"), (from_sut, kind != "tcp_stream")]
            {
                assert!(bytes.iter().all(|it| (*it > 0) == flows), "{kind} {bytes:?}");
            }
        }
    }
}

#[test]
fn lost_datagrams_count_in_sending_slice() {
    for (sent, received) in
        run("kind=udp_stream rate=20Mbps datagram_bytes=1000 connections=2").unwrap()
    {
        let (ours, theirs) = (sent.datagrams.unwrap(), received.datagrams.unwrap());
        // 220 ms at 2500 a second are 550, of two threads a catch-up of 10 ms more; a busy machine sends fewer.
        assert!(ours.sent <= 610, "{ours:?}");
        assert_eq!(ours.sent, theirs.received, "the loopback loses nothing");
        assert_eq!(sent.sent_bytes, ours.sent * 1000);
        assert_eq!((theirs.jitter_ns > 0.0, theirs.dropped_by_kernel), (ours.sent > 2, Some(0)));
    }
}

#[test]
fn datagrams_that_are_answered() {
    for fields in ["kind=udp_rr burst=2", "kind=udp_rr connections=2 rate_per_s=2000"] {
        let mut all = 0;
        for (sent, received) in run(fields).unwrap() {
            let exchange = sent.exchange.unwrap();
            assert_eq!(exchange.sent, exchange.answered + exchange.lost, "{exchange:?}");
            all += received.requests.unwrap();
            check_times(&sent);
        }
        assert!(all > 10, "{fields}: {all}");
    }
}

/// Without the right to send echo there is nothing to see.
#[test]
fn echo_requests_and_the_probe_beside_traffic() {
    for fields in ["kind=ping rate_hz=500", "kind=tcp_rr probe_hz=500"] {
        let both = match run(fields) {
            Err(error) if error.kind() == ErrorKind::Permission => return,
            both => both.unwrap(),
        };
        for (sent, _) in both {
            let probe = sent.probe.unwrap();
            // 110 are due in 220 ms; a busy machine sends fewer.
            assert!(probe.sent <= 120 && probe.sent + probe.skipped > 0, "{probe:?}");
            assert!(probe.received <= probe.sent && probe.rtt.count() == probe.received);
        }
    }
}

#[test]
fn count_and_slices_exclude_each_other() {
    let workload = Workload { count: Some(10), ..parsed("kind=tcp_rr") };
    let (reflector, generator) = connect(&workload).unwrap();
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let error = generator.run(window(), &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::CountInSlices), "{error}");
    let error = reflector.run(window(), &Stop::new()).unwrap_err();
    assert!(matches!(error, Error::CountInSlices), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Holds the books of both ends of each slice against each other.
#[track_caller]
fn check_exchange(fields: &str) {
    let workload = parsed(fields);
    let mut all = (0, 0);
    for (sent, received) in run(fields).unwrap() {
        let (answers, requests) = (sent.transactions.unwrap(), received.requests.unwrap());
        all = (all.0 + answers, all.1 + requests);
        assert_eq!((sent.window, received.window), (LENGTH - CUT, LENGTH - CUT));
        assert!(sent.cpu <= sent.window.saturating_mul(3), "{fields}");
        check_times(&sent);
        let (observed, _, checks) = combine(&workload, &sent, &received);
        assert_eq!((observed.transactions, observed.sender_window), (Some(answers), LENGTH - CUT));
        assert!(checks.iter().any(|check| check.name == "wrong-keys" && check.passed));
    }
    assert!(all.0 > 0 && all.1 > 0, "{fields}: {all:?}");
}

/// Round trips that began before their slice are left out, no others: at most one of each request under way.
#[track_caller]
fn check_times(sent: &SenderOutcome) {
    let (answers, times) = (sent.transactions.unwrap(), sent.latency.as_ref().unwrap().count());
    assert!(times <= answers, "{times} of {answers}");
}

fn run(fields: &str) -> Result<Vec<(SenderOutcome, ReceiverOutcome)>, Error> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (reflector, generator) = connect(&parsed(fields))?;
    reflector.wait_ready(now() + Nanos::from_s(5))?;
    let window = window();
    let receiver = thread::spawn(move || reflector.run(window, &Stop::new()));
    let progress = generator.progress();
    let sent = generator.run(window, &Stop::new())?;
    let received = receiver.join().unwrap()?;
    assert_eq!((sent.len(), received.len()), (COUNT as usize, COUNT as usize), "{fields}");
    // Progress goes on in the cuts.
    let measured: u64 = sent.iter().filter_map(|slice| slice.transactions).sum();
    assert!(progress.units() >= measured || fields.contains("ping"), "{fields}");
    Ok(sent.into_iter().zip(received).collect())
}

fn window() -> Window {
    let slices = SliceLayout::new(LENGTH, CUT, COUNT);
    Window::starting_in(Nanos::from_ms(150), LENGTH).unwrap().in_slices(slices).unwrap()
}

fn connect(workload: &Workload) -> Result<(Reflector, Generator), Error> {
    let key = Key::generate()?;
    let bind = SocketAddr::new(HERE, 0);
    let reflector = Reflector::open(bind, key.clone(), workload, CpuSet::new())?;
    let port = reflector.port();
    let generator = Generator::connect(HERE, port, &key, workload, CpuSet::new())?;
    Ok((reflector, generator))
}

fn parsed(text: &str) -> Workload {
    let fields = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    latput_trial::workload::from_fields(&fields).unwrap()
}
