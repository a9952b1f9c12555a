//! How much memory a run with many flows takes: the peak of this process, so it is the only test here.

#[path = "common/scenarios.rs"]
mod scenarios;

use latput_sim::scenario::{Load, TrafficKind};
use latput_units::{BitsPerSecond, Bytes, Nanos};
use scenarios::{free, goodput_bps, hold_off, modern, run};

#[test]
fn thousand_streams_stay_below_memory_estimate() {
    let traffic = TrafficKind::Stream { message: Bytes::new(32_768), connections: 1_000 };
    let mut scenario = free(vec![Load::new(0, 1, traffic)]);
    scenario.network.rate = BitsPerSecond::new(10_000_000_000);
    scenario.duration = Nanos::from_ms(300);
    for host in &mut scenario.hosts {
        host.machine = modern();
        host.nic.coalescing = hold_off(20);
    }
    let Some(before) = peak_bytes() else {
        println!("skipped: no /proc/self/status");
        return;
    };
    assert!(goodput_bps(&run(&scenario), 0) > 1e9);
    let peak = peak_bytes().expect("it was there before");
    assert!(peak < 100e6, "{peak} bytes");
    let demand = scenario.estimate_demand().memory_bytes;
    assert!(peak - before < demand, "{} bytes, {demand} were estimated", peak - before);
}

/// The most memory that this process has had.
fn peak_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0)
}
