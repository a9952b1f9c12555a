//! The slides on receive delay and MTU (`coalescing_mtu.csv`): their loads over the whole grid, and each
//! claim as a named check.
//!
//! The slides print no table of cells but orders, onsets and a cost model, so nothing can be predicted row
//! by row: the loads are simulated over delay and MTU, and every claim is looked at in what came out.

mod claims;
mod costs;
mod scenario;

use std::collections::BTreeMap;

use latput_sim::{Invalid, Profile};
use latput_trial::observation::Observation;
use latput_units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use self::scenario::NFS_SERVER;
pub use self::scenario::PROFILE;
use crate::label::Label;
use crate::provenance::Provenance;

/// The name of the published file.
pub const FILE: &str = "coalescing_mtu";
/// What is published; only its figures of claims are read, and only to be compared with.
pub(crate) const TEXT: &str = include_str!("../../../data/published/coalescing_mtu.csv");

/// One unit of `RxAbsIntDelay` (T033).
const UNIT: Nanos = Nanos::from_ns(1_024);
/// MTUs of the slides, in bytes (T020 to T023).
const MTUS: [u64; 4] = [1_500, 3_000, 4_500, 6_000];
/// Receive delays in register units: those of the slides (T024 to T032), and beyond for claims that go there.
const DELAYS: [u64; 14] =
    [10, 20, 40, 80, 160, 240, 320, 480, 640, 960, 1_400, 2_000, 2_800, 4_000];

/// What flows, each to or from the one measured host.
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
    /// The same with disks of half the speed.
    NfsSlowDisk,
}

/// How the measured host's interrupts are moderated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moderation {
    /// `RxAbsIntDelay`, in units of 1.024 us.
    Delay(u64),
    /// The driver's own dynamic throttle.
    Dynamic,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SweepCell {
    /// What flows.
    pub flow: SweepTraffic,
    /// In bytes.
    pub mtu: u64,
    /// Of the measured host.
    pub moderation: Moderation,
}

/// What the measured host showed in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepResult {
    /// Payload that its processes got, Mbit/s.
    pub goodput_mbps: f64,
    /// What the link layer carried and nobody dropped: whole packets without their frames, Mbit/s. A full line is 975
    /// with MTU 1500 and 994 with 6000, which is what the slides' largest rates (T064, T065) are.
    pub link_mbps: f64,
    /// Frames received per second.
    pub frames_per_s: f64,
    /// Share of the CPU's time, in per cent.
    pub busy_percent: f64,
    /// CPU time for a million bytes of payload, in microseconds.
    pub busy_us_per_mb: f64,
    /// Packets received for each interrupt.
    pub packets_per_interrupt: f64,
    /// Packets received for each one sent (of TCP: acknowledgements).
    pub packets_per_ack: f64,
    /// Packets lost anywhere.
    pub lost: u64,
    /// As any testbed reports it.
    observation: Observation,
}

/// The runs of the whole grid.
#[derive(Clone, Debug, Default)]
pub struct Sweep(BTreeMap<SweepCell, SweepResult>);

/// A published claim and what was seen of it.
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
    /// What is claimed, in words.
    pub claim: String,
    /// What must be seen for it to hold.
    pub wanted: String,
    /// What was seen.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
    /// Whether a constant was chosen to meet it.
    pub label: Label,
}

/// Every run that the claims need.
pub fn cells() -> Vec<SweepCell> {
    let grid = |flow: SweepTraffic, most: u64| {
        MTUS.into_iter().flat_map(move |mtu| {
            let delays = DELAYS.into_iter().filter(move |delay| *delay <= most);
            delays.map(move |delay| SweepCell { flow, mtu, moderation: Moderation::Delay(delay) })
        })
    };
    let dynamic = MTUS.map(|mtu| SweepCell {
        flow: SweepTraffic::Tcp10,
        mtu,
        moderation: Moderation::Dynamic,
    });
    // At 4000 units a full ring of descriptors loses datagrams, which no claim is about.
    let slow = SweepCell {
        flow: SweepTraffic::NfsSlowDisk,
        mtu: 1_500,
        moderation: Moderation::Delay(40),
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
    /// Simulates it.
    pub fn run(&self, profile: &Profile, seed: u64) -> Result<SweepResult, Invalid> {
        scenario::run(self, profile, seed)
    }
}

impl Sweep {
    /// Of runs in the order of [`cells`].
    pub fn of(seen: impl IntoIterator<Item = SweepResult>) -> Self {
        Self(cells().into_iter().zip(seen).collect())
    }

    /// Every claim with its verdict, in the order of the file.
    pub fn claims(&self, profile: &Profile, provenance: &Provenance) -> Vec<PublishedClaim> {
        claims::all(self, profile, provenance)
    }

    /// One run.
    fn at(&self, flow: SweepTraffic, mtu: u64, moderation: Moderation) -> &SweepResult {
        self.0
            .get(&SweepCell { flow, mtu, moderation })
            .expect("`cells` has every run that claims ask for")
    }

    /// A figure by delay, in the order of delays up to `most` units.
    fn curve(
        &self,
        flow: SweepTraffic,
        mtu: u64,
        most: u64,
        figure: fn(&SweepResult) -> f64,
    ) -> Vec<(u64, f64)> {
        let is_there = |cell: &&SweepCell| cell.flow == flow && cell.mtu == mtu;
        let point = |cell: &SweepCell| match cell.moderation {
            Moderation::Delay(delay) if delay <= most => Some((delay, figure(&self.0[cell]))),
            _ => None,
        };
        self.0.keys().filter(is_there).filter_map(point).collect()
    }
}
