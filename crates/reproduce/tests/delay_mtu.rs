//! The claims on receive delay and MTU: each is looked at, and all but those that are known to miss are seen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use latput_reproduce::delay_mtu::{
    self, PublishedClaim, Sweep, SweepCell, SweepModeration, SweepTraffic,
};
use latput_reproduce::provenance::Label;
use latput_reproduce::{CsvTable, Provenance, SystemCatalog, target};
use latput_sim::bus::Bus;
use latput_sim::machine::CpuCosts;
use latput_units::{Bytes, Nanos};

/// Rows that are no claim: the testbed and the loads (T001 to T057 but for losses, frame rate and disks), the formula
/// itself, and conversions of its costs.
const NO_CLAIMS: [&str; 6] = ["T082", "T086", "T089", "T090", "T091", "T092"];
const CLAIMS_OF_SET_UP: [&str; 4] = ["T006", "T043", "T048", "T055"];
/// Both line rates are full in the simulator, so neither is below the other.
const MISSED: [&str; 2] = ["T062", "T108"];

#[test]
fn every_claim_has_verdict_all_but_two() {
    let claims = simulate_claims();
    let text = include_str!("../../../data/published/coalescing_mtu.csv");
    let table = CsvTable::parse(text).unwrap();
    let column = table.column_index("claim_id").unwrap();
    for id in table.rows.iter().map(|row| row[column].as_str()) {
        let is_claim = (id >= "T058" && !NO_CLAIMS.contains(&id)) || CLAIMS_OF_SET_UP.contains(&id);
        let verdicts = claims.iter().filter(|claim| claim.id == id).count();
        assert_eq!(verdicts, usize::from(is_claim), "{id}");
    }
    for claim in &claims {
        assert_eq!(claim.holds, !MISSED.contains(&claim.id.as_str()), "{claim:#?}");
    }
    // The predicted claims are judged by themselves too.
    let targets = target::build_claim_targets(&claims);
    for (kind, (target, predicted)) in
        ["order", "onset", "cost"].iter().zip(targets.iter().zip([18, 10, 1]))
    {
        assert_eq!(target.label, Label::InSample, "{kind}");
        assert_eq!(target.rows.predicted, predicted, "{kind}");
        let of_kind = claims.iter().filter(|claim| claim.kind == *kind);
        let alone = of_kind.filter(|claim| claim.label == Label::Predicted);
        let wanted = format!("{predicted} of {predicted} claims");
        assert_eq!(alone.count(), predicted, "{kind}");
        assert_eq!(target.predicted_alone.as_ref().unwrap().wanted, wanted);
    }
}

/// No fit makes this profile: its costs are the slides' coefficients, at both ends where both have them.
#[test]
fn profile_costs_equal_the_slides() {
    let table =
        CsvTable::parse(include_str!("../../../data/published/coalescing_mtu.csv")).unwrap();
    let [id, value] = ["claim_id", "value"].map(|name| table.column_index(name).unwrap());
    let printed = |claim: &str, ns: f64| {
        let row = table.rows.iter().find(|row| row[id] == claim).unwrap();
        row[value].parse::<f64>().unwrap() * ns
    };
    // A jiffy of 10 ms (T089) for a million bytes, a thousand packets and a thousand interrupts.
    let wanted = [printed("T083", 10.0 * 1_024.0), printed("T084", 1e4), printed("T085", 1e4)];
    let systems = SystemCatalog::load_shipped();
    let profile = systems.expect_profile(delay_mtu::PROFILE);
    let is_close =
        |cost: Nanos, ns: f64| assert!((cost.as_ns() as f64 - ns).abs() < 1.0, "{cost} {ns}");
    for host in [&profile.sut, profile.generator.as_ref().unwrap()] {
        let costs = &host.machine.costs;
        is_close(costs.copy_per_kib, wanted[0]);
        is_close(costs.tx_packet, wanted[1]);
        is_close(costs.interrupt, wanted[2]);
    }
    let sink = &profile.sut.machine.costs;
    is_close(sink.backlog_packet + sink.rx_merged, wanted[1]);
    let nothing = CpuCosts { jitter_ratio: sink.jitter_ratio, ..CpuCosts::default() };
    let others = CpuCosts {
        copy_per_kib: Nanos::ZERO,
        tx_packet: Nanos::ZERO,
        ack: Nanos::ZERO,
        interrupt: Nanos::ZERO,
        backlog_packet: Nanos::ZERO,
        rx_merged: Nanos::ZERO,
        ..*sink
    };
    assert_eq!(others, nothing, "nothing else costs anything");
}

/// Which it does not in the shipped profile: with a bus, NFS loses rate with the MTU (T105).
#[test]
fn slow_bus_hurts_tcp_at_short_delays() {
    let mut profile = SystemCatalog::load_shipped().expect_profile(delay_mtu::PROFILE).clone();
    let nic = &mut profile.sut.nic;
    (nic.bus, nic.fifo, nic.pause) = (Some(Bus::default()), Bytes::new(48 << 10), true);
    let seen = |flow, moderation| {
        let seen = SweepCell { flow, mtu: 1_500, moderation }.run(&profile, 0).unwrap();
        assert_eq!(seen.lost, 0, "{flow:?} {moderation:?}");
        seen.link_mbps
    };
    let line = 975.0;
    let full = 0.997 * line..1.003 * line;
    for delay in [10, 640] {
        let datagrams = seen(SweepTraffic::Udp10, SweepModeration::Delay(delay));
        assert!(full.contains(&datagrams), "datagrams at {delay}: {datagrams}");
    }
    let [short, middle, long] =
        [10, 320, 640].map(|it| seen(SweepTraffic::Tcp10, SweepModeration::Delay(it)));
    assert!(full.contains(&long), "TCP at 640: {long}");
    assert!(short < 0.98 * middle && middle < 0.99 * long, "TCP: {short} {middle} {long}");
    let dynamic = seen(SweepTraffic::Tcp10, SweepModeration::Dynamic);
    assert!(dynamic < 0.97 * long, "TCP in dynamic mode: {dynamic}");
}

/// On two threads: the grid is as much work as all other tests of this crate.
fn simulate_claims() -> Vec<PublishedClaim> {
    let systems = SystemCatalog::load_shipped();
    let profile = systems.expect_profile(delay_mtu::PROFILE);
    let cells = delay_mtu::list_cells();
    let run = |cells: &[delay_mtu::SweepCell]| -> Vec<_> {
        cells.iter().map(|cell| cell.run(profile, 0).unwrap()).collect()
    };
    let (first, second) = cells.split_at(cells.len() / 2);
    let seen: Vec<_> = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(first));
        let second = run(second);
        first.join().unwrap().into_iter().chain(second).collect()
    });
    Sweep::from_results(seen).check_claims(profile, &Provenance::load_shipped(&systems))
}
