//! `cargo bench -p latput-load --bench recording`: what recording every transaction costs of a transaction.
//!
//! In every round, over the loopback: transactions with 1, 17 and 129 in flight, each with its CPU time at the
//! end that records, then the work of recording as often, which is a look at the clock, the queue of times
//! of sending and a histogram that has the spread of those round trips. At depth 129 many transactions
//! share a look at the clock, so what is printed is the most that it can be.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints and stops at an error"
)]

use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use latput_load::{Generator, Key, Reflector, Stop, Window, now};
use latput_stats::{Histogram, paired};
use latput_trial::Workload;
use latput_units::{CpuId, CpuSet, Nanos};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 12;
const BURSTS: [u32; 3] = [0, 16, 128];
const RECORDS: u64 = 2_000_000;

fn main() {
    let mut pairs: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for burst in BURSTS {
            let (cpu_ns, spread) = transaction(burst);
            let record_ns = recording(burst, &spread);
            pairs.entry(burst).or_default().push((cpu_ns, record_ns));
        }
    }
    println!("in flight  CPU of a transaction  recording one  share [95%]");
    for (burst, pairs) in pairs {
        let share = paired::ratio(&pairs, 0.95).unwrap();
        let mean =
            |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).sum::<f64>() / pairs.len() as f64;
        let (whole, part) = (mean(|it| it.0), mean(|it| it.1));
        let (low, high) = (share.low * 100.0, share.high * 100.0);
        println!(
            "{:>9}  {whole:>17.0} ns  {part:>10.1} ns  {:.2}% [{low:.2}, {high:.2}]",
            burst + 1,
            share.value * 100.0
        );
    }
}

/// CPU time of one transaction at the recording end, and the round trips.
fn transaction(burst: u32) -> (f64, Histogram) {
    let fields = [("kind", "tcp_rr".to_owned()), ("burst", burst.to_string())];
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).into();
    let workload: Workload = latput_trial::workload::from_fields(&fields).unwrap();
    let key = Key::generate().unwrap();
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let cpu = |number| CpuSet::from_iter([CpuId(number)]);
    let reflector =
        Reflector::open(SocketAddr::new(here, 0), key.clone(), &workload, cpu(1)).unwrap();
    let port = reflector.port();
    let generator = Generator::connect(here, port, &key, &workload, cpu(0)).unwrap();
    reflector.wait_ready(now() + Nanos::from_s(5)).unwrap();
    let window = Window::starting_in(Nanos::from_ms(100), Nanos::from_ms(400)).unwrap();
    let stop = Stop::new();
    let outcome = std::thread::scope(|scope| {
        let there = scope.spawn(|| reflector.run(window, &stop).unwrap());
        let outcome = generator.run(window, &stop).unwrap().remove(0);
        there.join().unwrap();
        outcome
    });
    let latency = outcome.latency.unwrap();
    (outcome.cpu.as_ns() as f64 / latency.count() as f64, latency)
}

/// Time of one record where round trips are spread as `spread` has them.
fn recording(burst: u32, spread: &Histogram) -> f64 {
    let values: Vec<Nanos> = (0..1024_u32)
        .map(|idx| spread.quantile((f64::from(idx * 389 % 1024) + 0.5) / 1024.0).unwrap())
        .collect();
    let mut in_flight: VecDeque<(Nanos, u32)> = (0..=burst).map(|_| (now(), 1)).collect();
    let mut latency = Histogram::new();
    let started = clock_gettime(ClockId::ThreadCPUTime);
    for (_, value) in (0..RECORDS).zip(values.iter().cycle()) {
        let at = black_box(now());
        let (sent, messages) = in_flight.pop_front().unwrap();
        // The difference is used and thrown away: the spread is that of real round trips.
        black_box(at.saturating_sub(sent));
        latency.record_n(black_box(*value), u64::from(messages));
        in_flight.push_back((at, 1));
    }
    let ended = clock_gettime(ClockId::ThreadCPUTime);
    black_box(latency.count());
    let taken_ns =
        (ended.tv_sec - started.tv_sec) * 1_000_000_000 + ended.tv_nsec - started.tv_nsec;
    taken_ns as f64 / RECORDS as f64
}
