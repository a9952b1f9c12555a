//! Counter sampling on a real lab: the parts add up, traffic is seen, and it costs next to nothing.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a failure in a helper is a failed test")]

mod common;

use std::time::{Duration, Instant, SystemTime};

use latput_knobs::State;
use latput_linux::{Lab, LabOptions, NapiTracer, Sampler, Traced, lab};
use latput_testkit::needs;
use latput_trial::observation::{CpuAccounting, CpuSource, HostObservation, Role};
use latput_units::{CpuSet, Nanos};

/// Transactions of the traffic in these tests.
const TRANSACTIONS: u64 = 2000;

#[needs("root")]
#[test]
fn traffic_is_seen_in_counters_and_polls() {
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

#[needs("root")]
#[test]
fn cpu_parts_add_up_to_machine() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let seen = observe(&lab, || std::thread::sleep(Duration::from_secs(1)));
    // With only one CPU the hosts share it, and their CPU time cannot be told apart.
    if lab.a.cpus == lab.b.cpus {
        return;
    }
    for host in &seen {
        let whole = host.window.as_secs_f64() * host.cpus.len() as f64;
        let miss = host.cpu().total().as_secs_f64() / whole - 1.0;
        assert!(miss.abs() <= 0.03, "{:.1}% of the window missing: {host:?}", miss * 100.0);
    }
}

/// Short spells, which ticks do not see: two sources that share no code or counter in the kernel agree.
#[needs("root")]
#[test]
fn traced_time_complements_idle_time() {
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
        assert!(host.accounting.traced.is_none(), "the window itself is traced");
        if *source != CpuSource::Trace {
            continue;
        }
        let by_idle = busy_by_idle.unwrap().as_secs_f64() / whole;
        assert!((busy - by_idle).abs() <= 0.03, "traced {busy}, by idle {by_idle}");
    }
}

#[needs("root")]
#[test]
fn sampling_costs_under_half_a_percent() {
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
    println!("sampling at 10 Hz takes {:.4}% of a CPU", ratio * 100.0);
    // Unoptimised code takes about twice as long; there only a blunder shall fail.
    let limit = if cfg!(debug_assertions) { 0.02 } else { 0.005 };
    assert!(ratio < limit, "{ratio}");
}

#[needs("root")]
#[test]
fn polls_are_traced_or_the_obstacle_is_told() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let start = Instant::now();
    lab.b
        .run_in(|| {
            let mut sampler = Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap();
            sampler.start_tracing();
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

#[needs("root")]
#[test]
fn tracing_cost_is_counted() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let mut sampler = lab.b.run_in(|| Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap()).unwrap();
    sampler.stop_tracing();
    assert!(sampler.count_run_time().is_none(), "nothing is attached");
    sampler.start_tracing();
    if !sampler.is_tracing() {
        return println!("skipped: nothing can be traced here");
    }
    let Some(count) = sampler.count_run_time() else {
        return println!("skipped: this kernel does not count run times");
    };
    common::ping_pong(&lab, TRANSACTIONS, Duration::from_secs(60));
    let share = count.end().unwrap();
    println!("tracing takes {:.2}% of a CPU", share * 100.0);
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    assert!(share > 0.0 && share < cpus, "{share}");
}

/// The same window, by the kernel's record and by the tracer: they count the way into sleep differently, by less than
/// what makes a difference.
#[needs("root")]
#[test]
fn record_of_idle_time_agrees_with_the_tracer() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let mut sampler = lab.b.run_in(|| Sampler::open(lab::INTERFACE, &lab.b.cpus).unwrap()).unwrap();
    if let Some(obstacle) = sampler.trace_obstacle().or(sampler.record_obstacle()) {
        println!("skipped: {obstacle}");
        return;
    }
    let mut span = |is_traced: bool| {
        if is_traced {
            sampler.start_tracing();
        }
        let first = sampler.sample().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            common::ping_pong(&lab, TRANSACTIONS, Duration::from_secs(60));
        }
        let last = sampler.sample().unwrap();
        sampler.stop_tracing();
        let seen = first.until(&last, "b", Role::Sut, State::default()).unwrap();
        (seen, Traced::between(&first, &last).unwrap())
    };
    let (traced, shares) = span(true);
    let shares = shares.unwrap();
    assert_eq!(traced.accounting.source, CpuSource::Trace);
    assert!(traced.napi.is_some() || lab.b.cpus.is_empty());
    let (apart, whole) = (shares.busy_apart(), traced.window.as_secs_f64());
    assert!(apart.as_secs_f64() <= 0.05 * whole, "{apart:?} of {whole} s");
    let (mut window, nothing) = span(false);
    assert_eq!((window.accounting.source, window.napi), (CpuSource::Record, None));
    assert_eq!(nothing, None, "nothing was traced");
    let total = window.cpu().total();
    shares.divide(&mut window);
    assert!(window.napi.is_some() && window.accounting.traced.is_some(), "{window:?}");
    assert!(window.cpu().softirq > Nanos::ZERO, "{window:?}");
    assert_eq!(window.cpu().total(), total);
}

/// Counts BPF links of this process by its open files: what is attached ends with them.
#[needs("root")]
#[test]
fn nothing_is_attached_outside_of_traced_spans() {
    let lab = Lab::build(&LabOptions::default()).unwrap();
    let script = "exec \"$0\" --ignored --exact --nocapture sampler_of_another_test";
    let output = lab
        .b
        .run_in(|| {
            std::process::Command::new("sh")
                .args(["-c", script])
                .arg(std::env::current_exe().unwrap())
                .output()
                .unwrap()
        })
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
}

#[test]
#[ignore = "another test starts it in a process of its own"]
fn sampler_of_another_test() {
    let cpus = [latput_units::CpuId(0)].into_iter().collect();
    let mut sampler = Sampler::open(lab::INTERFACE, &cpus).unwrap();
    if sampler.trace_obstacle().is_some() || sampler.record_obstacle().is_some() {
        return;
    }
    assert_eq!(common::attached(), 0, "after it is opened");
    sampler.start_tracing();
    assert!(common::attached() > 4, "while it traces: {}", common::attached());
    sampler.stop_tracing();
    sampler.sample().unwrap();
    assert_eq!(common::attached(), 0, "after it has traced");
}

/// Samples both hosts around `action`.
fn observe(lab: &Lab, action: impl FnOnce()) -> [HostObservation; 2] {
    let mut samplers = lab
        .hosts()
        .map(|host| host.run_in(|| Sampler::open(lab::INTERFACE, &host.cpus).unwrap()).unwrap());
    let earlier = samplers.each_mut().map(|sampler| {
        sampler.start_tracing();
        sampler.sample().unwrap()
    });
    action();
    let later = samplers.each_mut().map(|sampler| sampler.sample().unwrap());
    std::array::from_fn(|idx| {
        earlier[idx].until(&later[idx], lab.hosts()[idx].name, Role::Sut, State::default()).unwrap()
    })
}

/// A container may have a `/sys` of its own making, and the kernel copies by its own number of CPUs.
#[needs("root", "unshare")]
#[test]
fn invalid_cpu_list_is_refused() {
    if NapiTracer::attach(&CpuSet::new()).is_err() {
        return println!("skipped: nothing can be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("possible");
    let own = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    for (cpus, is_refused) in [("0\n", own.trim() != "0"), ("0-4000\n", true), (&*own, false)] {
        std::fs::write(&list, cpus).unwrap();
        let script = "mount --bind \"$1\" /sys/devices/system/cpu/possible && \
                      exec \"$0\" --ignored --exact tracer_of_another_test";
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
fn tracer_of_another_test() {
    NapiTracer::attach(&CpuSet::new()).unwrap();
}
