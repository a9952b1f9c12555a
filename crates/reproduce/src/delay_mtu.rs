//! The slides on receive delay and MTU (`coalescing_mtu.csv`): simulates their loads over the whole
//! grid and checks each claim.
//!
//! The slides print orders, onsets and a cost model instead of a table of cells. So the loads are
//! simulated over delay and MTU, and each claim is checked on the results.

mod claims;
mod costs;
mod scenario;

use std::collections::BTreeMap;

use latput_sim::{InvalidValue, SystemProfile};
use latput_trial::observation::Observation;
use latput_units::{IntoMap, Nanos};
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use self::scenario::NFS_SERVER;
pub use self::scenario::PROFILE;
use crate::label::Label;
use crate::provenance::Provenance;

/// The name of the published file.
pub const FILE: &str = "coalescing_mtu";
/// The published file. Only its claimed figures are read, for comparison.
pub(crate) const TEXT: &str = include_str!("../../../data/published/coalescing_mtu.csv");

/// One unit of `RxAbsIntDelay` (T033).
const UNIT: Nanos = Nanos::from_ns(1_024);
/// MTUs of the slides, in bytes (T020 to T023).
const MTUS: [u64; 4] = [1_500, 3_000, 4_500, 6_000];
/// Receive delays in register units: those of the slides (T024 to T032), and larger ones for some
/// claims.
const DELAYS: [u64; 14] =
    [10, 20, 40, 80, 160, 240, 320, 480, 640, 960, 1_400, 2_000, 2_800, 4_000];

/// The traffic, to or from the measured host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepTraffic {
    /// Ten senders of datagrams on links of 100 Mbit/s.
    Udp10,
    /// Ten TCP senders on links of 100 Mbit/s.
    Tcp10,
    /// Three TCP senders on links of 1 Gbit/s.
    Tcp3,
    /// Three processes that each read files of their own server, all on 1 Gbit/s.
    Nfs,
    /// As [`Self::Nfs`], with disks of half the speed.
    NfsSlowDisk,
}

/// The interrupt moderation of the measured host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepModeration {
    /// `RxAbsIntDelay`, in units of 1.024 us.
    Delay(u64),
    /// The driver's own dynamic throttle.
    Dynamic,
}

/// One run of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepCell {
    /// The traffic.
    pub flow: SweepTraffic,
    /// The MTU in bytes.
    pub mtu: u64,
    /// The moderation of the measured host.
    pub moderation: SweepModeration,
}

/// Figures of the measured host in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepResult {
    /// Payload received by its processes, Mbit/s.
    pub goodput_mbps: f64,
    /// Packets carried by the link layer and not dropped, without frame headers, Mbit/s. A full
    /// line is 975 with MTU 1500 and 994 with 6000; those are the slides' largest rates (T064,
    /// T065).
    pub link_mbps: f64,
    /// Frames received per second.
    pub frames_per_s: f64,
    /// Share of the CPU's time, in per cent.
    pub busy_percent: f64,
    /// CPU time for a million bytes of payload, in microseconds.
    pub busy_us_per_mb: f64,
    /// Packets received for each interrupt.
    pub packets_per_interrupt: f64,
    /// Packets received for each one sent (for TCP: acknowledgement).
    pub packets_per_ack: f64,
    /// Packets lost anywhere.
    pub lost: u64,
    /// The observation, as on any testbed.
    observation: Observation,
}

/// The results of the whole grid.
#[derive(Clone, Debug, Default)]
pub struct Sweep(BTreeMap<SweepCell, SweepResult>);

/// A published claim with its check.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Claim")]
pub struct PublishedClaim {
    /// The published file.
    pub file: String,
    /// Its row, such as `T058`.
    pub id: String,
    /// `order`, `onset` or `cost`.
    pub kind: String,
    /// The claim in words.
    pub claim: String,
    /// The condition under which it holds.
    pub wanted: String,
    /// The simulated result.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether a constant was chosen to satisfy the claim.
    pub label: Label,
}

/// Whether the published file has a row of this id. Not each is a claim that is checked.
pub fn has_row(id: &str) -> bool {
    claims::has_row(id)
}

/// All runs that the claims need.
pub fn list_cells() -> Vec<SweepCell> {
    let grid = |flow: SweepTraffic, most: u64| {
        MTUS.into_iter().flat_map(move |mtu| {
            let delays = DELAYS.into_iter().filter(move |delay| *delay <= most);
            delays.map(move |delay| SweepCell {
                flow,
                mtu,
                moderation: SweepModeration::Delay(delay),
            })
        })
    };
    let dynamic = MTUS.map(|mtu| SweepCell {
        flow: SweepTraffic::Tcp10,
        mtu,
        moderation: SweepModeration::Dynamic,
    });
    // At 4000 units a full ring loses datagrams. No claim is about that.
    let slow = SweepCell {
        flow: SweepTraffic::NfsSlowDisk,
        mtu: 1_500,
        moderation: SweepModeration::Delay(40),
    };
    grid(SweepTraffic::Udp10, 2_800)
        .chain(grid(SweepTraffic::Tcp10, 4_000))
        .chain(grid(SweepTraffic::Tcp3, 2_000))
        .chain(grid(SweepTraffic::Nfs, 960))
        .chain(dynamic)
        .chain([slow])
        .collect()
}

impl SweepCell {
    /// Simulates the run.
    pub fn run(&self, profile: &SystemProfile, seed: u64) -> Result<SweepResult, InvalidValue> {
        scenario::run(self, profile, seed)
    }
}

impl Sweep {
    /// Combines results in the order of [`list_cells`].
    pub fn from_results(seen: impl IntoIterator<Item = SweepResult>) -> Self {
        Self(list_cells().into_iter().zip(seen).into_map())
    }

    /// Every claim with its verdict, in the order of the file.
    pub fn check_claims(
        &self,
        profile: &SystemProfile,
        provenance: &Provenance,
    ) -> Vec<PublishedClaim> {
        claims::check_claims(self, profile, provenance)
    }

    /// The result of one run.
    fn find_result(
        &self,
        flow: SweepTraffic,
        mtu: u64,
        moderation: SweepModeration,
    ) -> &SweepResult {
        self.0
            .get(&SweepCell { flow, mtu, moderation })
            .expect("`cells` has every run that claims ask for")
    }

    /// A figure by delay, in order of delays, up to `most` units.
    fn figure_by_delay(
        &self,
        flow: SweepTraffic,
        mtu: u64,
        most: u64,
        figure: fn(&SweepResult) -> f64,
    ) -> Vec<(u64, f64)> {
        let is_there = |cell: &&SweepCell| cell.flow == flow && cell.mtu == mtu;
        let point = |cell: &SweepCell| match cell.moderation {
            SweepModeration::Delay(delay) if delay <= most => Some((delay, figure(&self.0[cell]))),
            _ => None,
        };
        self.0.keys().filter(is_there).filter_map(point).collect()
    }
}
