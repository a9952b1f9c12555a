//! Counter sampling on a real lab: the parts add up, traffic is seen, and it costs next to nothing.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::time::{Duration, Instant, SystemTime};

use latput_knobs::State;
use latput_linux::{Lab, LabOptions, NapiTracer, Sampler, lab};
use latput_testkit::needs_root;
use latput_trial::observation::{CpuAccounting, CpuSource, HostObservation, Role};
use latput_units::{CpuSet, Nanos};

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
    for host in &seen {
        let whole = host.window.as_secs_f64() * host.cpus.len() as f64;
        let miss = host.cpu().total().as_secs_f64() / whole - 1.0;
        assert!(miss.abs() <= 0.03, "{:.1} % of the window missing: {host:?}", miss * 100.0);
    }
}

/// Short spells, which ticks do not see: two sources that share no code or counter in the kernel agree.
#[test]
fn traced_busy_time_is_what_exact_idle_time_leaves() {
    if needs_root() {
        return;
    }
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let seen = observe(&lab, || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            common::ping_pong(&lab, TRANSACTIONS, Duration::from_secs(60));
        }
    });
    for host in &seen {
        let CpuAccounting { source, busy_by_idle, .. } = &host.accounting;
        let whole = host.window.as_secs_f64() * host.cpus.len() as f64;
        let [busy, ticks] =
            [host.cpu(), host.cpu_by_ticks()].map(|t| t.busy().as_secs_f64() / whole);
        println!(
            "{source:?}: busy {busy:.4}, by idle {busy_by_idle:?}, by ticks {ticks:.4}; {:?}",
            host.cpu()
        );
        if *source != CpuSource::Trace {
            continue;
        }
        let by_idle = busy_by_idle.unwrap().as_secs_f64() / whole;
        assert!((busy - by_idle).abs() <= 0.03, "traced {busy}, by idle {by_idle}");
    }
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
            let before = SystemTime::now();
            let first = sampler.sample().unwrap();
            let after = SystemTime::now();
            let mut last = first.clone();
            for _ in 0..20 {
                std::thread::sleep(Duration::from_millis(100));
                last = sampler.sample().unwrap();
            }
            let seen = first.until(&last, "b", Role::Sut, State::default()).unwrap();
            let ns = Duration::from_nanos(seen.window_started_unix_ns.unwrap());
            assert!((before..=after).contains(&(SystemTime::UNIX_EPOCH + ns)), "{ns:?}");
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

/// A container may have a `/sys` of its own making, and the kernel copies by its own number of CPUs.
#[test]
fn a_list_of_cpus_that_is_not_the_kernels_is_refused() {
    if needs_root() || NapiTracer::attach(&CpuSet::new()).is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("possible");
    let own = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    for (cpus, is_refused) in [("0\n", own.trim() != "0"), ("0-4000\n", true), (&*own, false)] {
        std::fs::write(&list, cpus).unwrap();
        let script = "mount --bind \"$1\" /sys/devices/system/cpu/possible && \
                      exec \"$0\" --ignored --exact the_tracer_of_another_test";
        let status = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(&list)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), !is_refused, "{cpus}");
    }
}

#[test]
#[ignore = "another test starts it in a namespace of its own"]
fn the_tracer_of_another_test() {
    NapiTracer::attach(&CpuSet::new()).unwrap();
}
