//! The claims on receive delay and MTU: each is looked at, and all but those that are known to miss are seen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use latput_reproduce::delay_mtu::{self, Claim, Sweep};
use latput_reproduce::{Systems, Table};

/// What is no claim: the testbed and the loads (T001 to T057 but for losses, frame rate and disks), the
/// formula itself, and conversions of its costs.
const NO_CLAIMS: [&str; 6] = ["T082", "T086", "T089", "T090", "T091", "T092"];
const CLAIMS_OF_SET_UP: [&str; 4] = ["T006", "T043", "T048", "T055"];
/// Both line rates are full in the simulator, so neither is below the other.
const MISSED: [&str; 2] = ["T062", "T108"];

#[test]
fn every_claim_has_a_verdict_and_all_but_two_are_seen() {
    let claims = claims();
    let text = include_str!("../../../data/published/coalescing_mtu.csv");
    let table = Table::parse(text).unwrap();
    let column = table.column("claim_id").unwrap();
    for id in table.rows.iter().map(|row| row[column].as_str()) {
        let is_claim = (id >= "T058" && !NO_CLAIMS.contains(&id)) || CLAIMS_OF_SET_UP.contains(&id);
        let verdicts = claims.iter().filter(|claim| claim.id == id).count();
        assert_eq!(verdicts, usize::from(is_claim), "{id}");
    }
    for claim in &claims {
        assert_eq!(claim.holds, !MISSED.contains(&claim.id.as_str()), "{claim:#?}");
    }
}

/// On two threads: the grid is as much work as all other tests of this crate.
fn claims() -> Vec<Claim> {
    let systems = Systems::shipped();
    let profile = systems.named(delay_mtu::PROFILE);
    let cells = delay_mtu::cells();
    let run = |cells: &[delay_mtu::Cell]| -> Vec<_> {
        cells.iter().map(|cell| cell.run(profile, 0).unwrap()).collect()
    };
    let (first, second) = cells.split_at(cells.len() / 2);
    let seen: Vec<_> = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(first));
        let second = run(second);
        first.join().unwrap().into_iter().chain(second).collect()
    });
    Sweep::of(seen).claims(profile)
}
