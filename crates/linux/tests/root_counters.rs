//! Counter sampling on a real lab: the parts add up, traffic is seen, and it costs next to nothing.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::time::{Duration, Instant};

use latput_knobs::State;
use latput_linux::{Lab, LabOptions, Sampler, lab};
use latput_testkit::needs_root;
use latput_trial::observation::{HostObservation, Role};
use latput_units::Nanos;

/// Transactions of the traffic in these tests.
const TRANSACTIONS: u64 = 2000;

#[test]
fn traffic_between_two_samples_is_seen_on_the_wire_and_in_the_polls() {
    if needs_root() {
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let seen = observe(&lab, || {
        common::ping_pong(&lab, TRANSACTIONS, Duration::from_secs(60));
    });
    for host in &seen {
        assert_eq!(host.interface.rx_packets, TRANSACTIONS, "{host:?}");
        assert_eq!(host.interface.tx_packets, TRANSACTIONS, "{host:?}");
        assert!(host.napi_threads_cpu.unwrap() > Nanos::ZERO, "{host:?}");
        if let Some(napi) = host.napi {
            assert!(napi.packets >= TRANSACTIONS, "{host:?}");
            assert!(napi.polls >= napi.empty_polls, "{host:?}");
        }
    }
}

#[test]
fn cpu_parts_of_the_two_hosts_add_up_to_the_machine() {
    if needs_root() {
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let seen = observe(&lab, || std::thread::sleep(Duration::from_secs(1)));
    if lab.shares_cpus() {
        return;
    }
    let parts: Nanos = seen.iter().map(|host| host.cpu().total()).sum();
    let whole = seen[0].machine.total();
    let cpus = u64::try_from(seen[0].cpus.len() + seen[1].cpus.len()).unwrap();
    // A tick for each CPU, part and end of the window, and the moments between the two samplers.
    let tolerance = Nanos::from_ms(10 * 7 * 2 * cpus + 50 * cpus);
    let miss = parts.saturating_sub(whole) + whole.saturating_sub(parts);
    assert!(miss <= tolerance, "parts {parts}, whole {whole}");
    assert!(whole >= Nanos::from_ms(500 * cpus), "{whole} passed in 1 s on {cpus} CPUs");
}

#[test]
fn sampling_ten_times_a_second_costs_under_half_a_percent() {
    if needs_root() {
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let ratio = lab
        .b
        .run_in(|| {
            let mut sampler = Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap();
            let first = sampler.sample().unwrap();
            let mut last = first.clone();
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(100));
                last = sampler.sample().unwrap();
            }
            let seen = first.until(&last, "b", Role::Sut, State::default()).unwrap();
            seen.sampling_cpu.as_secs_f64() / seen.window.as_secs_f64()
        })
        .unwrap();
    println!("sampling at 10 Hz takes {:.4} % of a CPU", ratio * 100.0);
    // Unoptimised code takes about twice as long; there only a blunder shall fail.
    let limit = if cfg!(debug_assertions) { 0.02 } else { 0.005 };
    assert!(ratio < limit, "{ratio}");
}

#[test]
fn polls_are_traced_or_the_obstacle_is_told() {
    if needs_root() {
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let start = Instant::now();
    lab.b
        .run_in(|| {
            let mut sampler = Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap();
            let napi = sampler.sample().unwrap().napi;
            match sampler.napi_obstacle() {
                None => assert!(napi.is_some()),
                Some(obstacle) => {
                    println!("polls are not traced: {obstacle}");
                    assert!(napi.is_none());
                }
            }
        })
        .unwrap();
    println!("opening a sampler and sampling once took {:?}", start.elapsed());
}

/// Samples both hosts around `action`.
fn observe(lab: &Lab, action: impl FnOnce()) -> [HostObservation; 2] {
    let mut samplers = lab
        .hosts()
        .map(|host| host.run_in(|| Sampler::open(lab::INTERFACE, &host.cpus).unwrap()).unwrap());
    let earlier = samplers.each_mut().map(|sampler| sampler.sample().unwrap());
    action();
    let later = samplers.each_mut().map(|sampler| sampler.sample().unwrap());
    std::array::from_fn(|idx| {
        earlier[idx].until(&later[idx], lab.hosts()[idx].name, Role::Sut, State::default()).unwrap()
    })
}
