//! Figures of TCP connections, held against those of `ss`. Needs root for a namespace of its own, and iproute2.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use latput_linux::{EndedConnections, RttTracer, TcpConnection, TcpMeter};
use latput_testkit::{isolate, needs};

#[needs("root", "ss")]
#[test]
fn connections_have_the_figures_that_ss_prints() {
    isolate();
    let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).unwrap());
    let mut kept: Vec<TcpStream> = Vec::new();
    for (at, listener) in listeners.iter().cycle().take(20).enumerate() {
        let mut pair = connected(listener);
        for _ in 0..=at {
            round_trip(&mut pair, &[1; 1000], &[1; 10]);
        }
        kept.extend(pair);
    }
    // Once delayed acknowledgements are through, nothing changes any more.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let found = TcpMeter::open().unwrap().connections().unwrap();
    let printed = printed();
    assert_eq!(found.len(), kept.len());
    for one in &found {
        let name = |(address, port): (std::net::IpAddr, u16)| match address {
            std::net::IpAddr::V6(address) => format!("[{address}]:{port}"),
            std::net::IpAddr::V4(address) => format!("{address}:{port}"),
        };
        let line = &printed[&(name(one.local), name(one.remote))];
        check(one, line);
    }
}

const ROUNDS: u64 = 2_000;
/// Connections of one question and one answer.
const SHORT: usize = 50;

#[needs("root")]
#[test]
fn each_round_trip_sample_is_seen() {
    isolate();
    let mut tracer = match RttTracer::attach() {
        Ok(tracer) => tracer,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut pair = without_delay();
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        round_trip(&mut pair, b"ask", b"answer");
        longest = longest.max(began.elapsed());
        all += began.elapsed();
    }
    let found = TcpMeter::open().unwrap().connections().unwrap();
    let port = pair[0].local_addr().unwrap().port();
    let asking = found.iter().find(|one| one.local.1 == port).unwrap();
    let taken = tracer.take();
    assert!(!taken.are_cut);
    let own = taken.samples.iter().filter(|(cookie, _)| *cookie == asking.cookie);
    let samples: Vec<u64> = own.map(|(_, sample)| sample.as_ns() / 1000).collect();
    // Not the one before the first segment, and not the last one, which no segment has followed.
    let count = samples.len() as u64;
    assert!((ROUNDS - 3..=ROUNDS).contains(&count), "{count}");
    let (most, sum) = (samples.iter().max().unwrap(), samples.iter().sum::<u64>());
    assert!(u128::from(*most) <= longest.as_micros() + 1, "{most} us within {longest:?}");
    assert!(u128::from(sum) <= all.as_micros() + u128::from(count), "{sum} us within {all:?}");
    assert!(taken.samples.len() as u64 > ROUNDS, "the other end has samples too");
    let again = tracer.take().samples.into_iter().filter(|(cookie, _)| *cookie == asking.cookie);
    assert_eq!(again.count(), 0, "each is told once");
    smoothed_like_the_kernels(&samples, asking);
}

/// RFC 6298's estimate over the samples ends where the kernel's does: it forgets what was before the first.
fn smoothed_like_the_kernels(samples: &[u64], connection: &TcpConnection) {
    let eighths =
        samples.iter().fold(8 * samples[0], |smoothed, sample| smoothed - (smoothed >> 3) + sample);
    let (own, kernels) = (eighths >> 3, connection.rtt.as_ns() / 1000);
    // The last sample is in the kernel's alone; an eighth of it, of at most the longest.
    let last = samples.iter().max().unwrap() / 8 + 2;
    assert!(own.abs_diff(kernels) <= last, "{own} us, and {kernels} us");
}

#[needs("root")]
#[test]
fn dropped_samples_are_reported_as_cut() {
    isolate();
    let Ok(mut tracer) = RttTracer::attach() else { return eprintln!("skipped: no BPF here") };
    let mut pair = without_delay();
    let mut rounds = |count| (0..count).for_each(|_| round_trip(&mut pair, &[1], &[1]));
    rounds(100_000);
    let taken = tracer.take();
    assert!(taken.are_cut && taken.samples.len() > 100_000, "{}", taken.samples.len());
    rounds(100);
    let next = tracer.take();
    assert!(!next.are_cut && next.samples.len() > 150, "{}", next.samples.len());
}

#[needs("root")]
#[test]
fn run_time_of_a_tracer_is_counted() {
    isolate();
    let Ok(mut tracer) = RttTracer::attach() else { return eprintln!("skipped: no BPF here") };
    let mut pair = without_delay();
    if !tracer.count_run_time(true) {
        return eprintln!("skipped: this kernel does not count run times");
    }
    let (began, before) = (Instant::now(), tracer.run_time().unwrap());
    (0..ROUNDS).for_each(|_| round_trip(&mut pair, b"ask", b"answer"));
    let (elapsed, after) = (began.elapsed(), tracer.run_time().unwrap());
    let time = after.saturating_sub(before);
    println!("{ROUNDS} round trips: {} us of programs in {elapsed:?}", time.as_us_f64());
    // Others' connections of this machine are seen too, on each CPU.
    let most = elapsed.as_secs_f64() * std::thread::available_parallelism().unwrap().get() as f64;
    assert!(time.as_secs_f64() > 0.0 && time.as_secs_f64() < most, "{time:?} within {elapsed:?}");
    // A round trip is at least two segments, and no program runs in less than 10 ns.
    assert!(time.as_ns() > 2 * ROUNDS * 10, "{time:?}");
    assert!(!tracer.count_run_time(false));
}

#[needs("root")]
#[test]
fn each_end_is_told_with_its_bytes() {
    isolate();
    let heard = EndedConnections::open().unwrap();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let mut cookies = BTreeSet::new();
        for length in 1..=SHORT {
            let mut pair = connected(&listener);
            round_trip(&mut pair, &[1; 10], &vec![1; length]);
            let open = TcpMeter::open().unwrap().connections().unwrap();
            let port = pair[0].local_addr().unwrap().port();
            let own = |one: &&TcpConnection| [one.local.1, one.remote.1].contains(&port);
            cookies.extend(open.iter().filter(own).map(|one| one.cookie));
        }
        let port = listener.local_addr().unwrap().port();
        let mut ended: Vec<TcpConnection> = Vec::new();
        let begun = Instant::now();
        while ended.len() < 2 * SHORT && begun.elapsed() < Duration::from_secs(30) {
            let taken = heard.take().unwrap();
            assert!(!taken.were_lost);
            ended.extend(taken.connections);
        }
        let numbers: BTreeSet<u64> = ended.iter().map(|one| one.cookie).collect();
        assert_eq!((numbers, ended.len()), (cookies, 2 * SHORT), "each end, once");
        let sum = |own: &dyn Fn(&TcpConnection) -> bool, of: fn(&TcpConnection) -> Option<u64>| {
            ended.iter().filter(|one| own(one)).filter_map(of).sum::<u64>()
        };
        let answers = (1..=SHORT as u64).sum::<u64>();
        // The kernel counts SYN and FIN as a byte each.
        let most = answers + 2 * SHORT as u64;
        for bytes in [
            sum(&|one| one.local.1 == port, |one| one.acked_bytes),
            sum(&|one| one.remote.1 == port, |one| one.received_bytes),
        ] {
            assert!((answers..=most).contains(&bytes), "{bytes} of {answers}");
        }
    }
}

/// A connection: the end that asked for it, and the other.
fn connected(listener: &TcpListener) -> [TcpStream; 2] {
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

/// A connection whose ends send at once.
fn without_delay() -> [TcpStream; 2] {
    let pair = connected(&TcpListener::bind("127.0.0.1:0").unwrap());
    for end in &pair {
        end.set_nodelay(true).unwrap();
    }
    pair
}

/// The first end asks, and the other answers.
fn round_trip([near, far]: &mut [TcpStream; 2], question: &[u8], answer: &[u8]) {
    let pass = |from: &mut TcpStream, to: &mut TcpStream, message: &[u8]| {
        from.write_all(message).unwrap();
        to.read_exact(&mut [0; 1000][..message.len()]).unwrap();
    };
    pass(near, far, question);
    pass(far, near, answer);
}

/// The words of each established connection, by its ends.
fn printed() -> BTreeMap<(String, String), String> {
    let output = Command::new("ss").args(["-tinHO", "state", "established"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        ((words[2].to_owned(), words[3].to_owned()), line.to_owned())
    };
    text.lines().map(line).collect()
}

#[track_caller]
fn check(one: &TcpConnection, line: &str) {
    let field = |name: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}:")));
        word.map(str::to_owned)
    };
    let ms = |time: latput_units::Nanos| {
        let text = format!("{:.3}", time.as_ms_f64());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let rtt = format!("{}/{}", ms(one.rtt), ms(one.rtt_deviation));
    assert_eq!(field("rtt"), Some(rtt), "{line}");
    assert_eq!(field("minrtt"), one.min_rtt.map(ms), "{line}");
    let acked = field("bytes_acked").map(|bytes| bytes.parse().unwrap());
    assert_eq!(acked, one.acked_bytes.filter(|bytes| *bytes > 0), "{line}");
    let received = field("bytes_received").map(|bytes| bytes.parse().unwrap());
    assert_eq!(received, one.received_bytes.filter(|bytes| *bytes > 0), "{line}");
    assert_eq!(one.retransmitted, 0, "{line}");
}
