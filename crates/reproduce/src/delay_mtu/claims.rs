//! Checks of the slides' claims on the simulated grid.
//!
//! Orders must be exact, an onset within a factor of two, a cost within 15%. Rates on a plateau
//! have a tolerance of 0.3%, since their order is noise. A lost relation sign (`unreadable`) is
//! read as "about".

mod curve;
mod model;
mod nfs;
mod summary;
mod tcp;
mod udp;

use latput_sim::SystemProfile;

use self::curve::Curve;
use super::{FILE, PublishedClaim, Sweep, SweepModeration, SweepResult, SweepTraffic, TEXT};
use crate::provenance::Provenance;
use crate::row::CsvRow;
use crate::table::CsvTable;

/// Largest delay of the slides' own sweep.
const SWEEP: u64 = 640;
/// The large MTUs.
const LARGE: [u64; 3] = [3_000, 4_500, 6_000];

/// The result of a check without its texts.
struct ClaimVerdict {
    id: &'static str,
    wanted: String,
    seen: String,
    holds: bool,
}

fn make_verdict(
    id: &'static str,
    wanted: impl Into<String>,
    seen: impl Into<String>,
    holds: bool,
) -> ClaimVerdict {
    ClaimVerdict { id, wanted: wanted.into(), seen: seen.into(), holds }
}

/// Whether the published file has a row of this id.
pub(super) fn has_row(id: &str) -> bool {
    let ClaimTable(table) = ClaimTable::read();
    (0..table.rows.len()).any(|idx| CsvRow::new(&table, idx).text("claim_id") == id)
}

/// The published file by claims.
struct ClaimTable(CsvTable);

impl ClaimTable {
    fn read() -> Self {
        Self(CsvTable::parse(TEXT).expect("the file is shipped and tested"))
    }

    fn find_row(&self, id: &str) -> CsvRow<'_> {
        let rows = (0..self.0.rows.len()).map(|idx| CsvRow::new(&self.0, idx));
        rows.into_iter().find(|row| row.text("claim_id") == id).expect("the claim is in the file")
    }

    fn claimed_value(&self, id: &str) -> f64 {
        self.find_row(id).text("value").parse().expect("the claim has a number")
    }

    fn describe_claim(&self, id: &str) -> String {
        let row = self.find_row(id);
        let parts = ["quantity", "relation", "value", "unit"].map(|column| row.text(column));
        let parts = parts.map(|part| if part == "unreadable" { "about (sign lost)" } else { part });
        let claim = format!("{}: {}", row.text("workload"), parts.join(" ").trim_end());
        match row.text("conditions") {
            "" => claim,
            conditions => format!("{claim}, {conditions}"),
        }
    }
}

pub(super) fn check_claims(
    sweep: &Sweep,
    profile: &SystemProfile,
    provenance: &Provenance,
) -> Vec<PublishedClaim> {
    let published = ClaimTable::read();
    let ends = ClaimChecker { sweep, published: &published };
    let mut verdicts = Vec::new();
    for part in [
        ends.check_arrivals_and_losses(),
        ends.check_udp(),
        ends.check_ten_sender_rates(),
        ends.check_ten_sender_delays(),
        ends.check_dynamic_mode(),
        ends.check_three_senders(),
        ends.check_nfs_rates(),
        ends.check_nfs_cpu(),
        ends.check_costs(profile),
        ends.check_summary(),
    ] {
        verdicts.extend(part);
    }
    verdicts.sort_by_key(|verdict| verdict.id);
    let claim = |ClaimVerdict { id, wanted, seen, holds }| PublishedClaim {
        file: String::from(FILE),
        id: String::from(id),
        kind: String::from(claim_kind(id)),
        claim: published.describe_claim(id),
        wanted,
        seen,
        holds,
        label: provenance.label_claim(id),
    };
    verdicts.into_iter().map(claim).collect()
}

fn claim_kind(id: &str) -> &'static str {
    const ONSETS: [&str; 14] = [
        "T058", "T059", "T063", "T066", "T067", "T068", "T070", "T071", "T072", "T074", "T077",
        "T078", "T079", "T080",
    ];
    if ONSETS.contains(&id) {
        "onset"
    } else if ("T083".."T105").contains(&id) {
        "cost"
    } else {
        "order"
    }
}

/// A sweep with the published values.
struct ClaimChecker<'a> {
    sweep: &'a Sweep,
    published: &'a ClaimTable,
}

const RATE: fn(&SweepResult) -> f64 = |seen| seen.link_mbps;
const BUSY: fn(&SweepResult) -> f64 = |seen| seen.busy_percent;
const CPU: fn(&SweepResult) -> f64 = |seen| seen.busy_us_per_mb;
const BATCH: fn(&SweepResult) -> f64 = |seen| seen.packets_per_interrupt;

fn format_delay(delay: Option<u64>) -> String {
    delay.map_or_else(|| String::from("none"), |delay| delay.to_string())
}

/// A figure of each MTU as text.
fn format_by_mtu(mtus: &[u64], told: impl Fn(u64) -> String) -> String {
    let parts: Vec<String> = mtus.iter().map(|mtu| format!("{mtu}: {}", told(*mtu))).collect();
    parts.join("; ")
}

impl ClaimChecker<'_> {
    fn figure_by_delay(
        &self,
        flow: SweepTraffic,
        mtu: u64,
        end: u64,
        figure: fn(&SweepResult) -> f64,
    ) -> Curve {
        self.sweep.figure_by_delay(flow, mtu, end, figure)
    }

    fn result_at_delay(&self, flow: SweepTraffic, mtu: u64, delay: u64) -> &SweepResult {
        self.sweep.find_result(flow, mtu, SweepModeration::Delay(delay))
    }
}
