//! The cost model of the slides, recovered from simulated runs with the fit that `latput model fit` uses.

use std::collections::BTreeMap;

use latput_knobs::{Knob, Value};
use latput_model::CostTerm;
use latput_model::fit::CostModel;
use latput_sim::SystemProfile;
use latput_trial::observation::Role;
use latput_trial::results::{LabelledSetting, Row};
use latput_trial::workload::Direction;
use latput_trial::{Results, Workload};
use latput_units::{Bytes, Nanos};

use super::{Sweep, SweepCell, SweepModeration, SweepResult, SweepTraffic, UNIT};

/// Costs in nanoseconds: of a byte, a packet and an interrupt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CostCoefficients {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) g: f64,
}

/// Largest relative error of a recovered cost.
pub(super) const WITHIN: f64 = 0.15;

impl CostCoefficients {
    /// The costs of a profile. Before NAPI a received packet passes the backlog and then the
    /// protocols. The fit counts acknowledgements as packets, so the mean cost of a packet includes
    /// theirs.
    pub(super) fn new(profile: &SystemProfile, sweep: &Sweep) -> Self {
        let costs = &profile.sut.machine.costs;
        let ns = |cost: Nanos| cost.as_ns() as f64;
        let rx = ns(costs.backlog_packet) + ns(costs.rx_merged);
        let (packets, acks) = count_packets_and_acks(sweep);
        Self {
            a: ns(costs.copy_per_kib) / 1_024.0,
            b: (rx * packets + ns(costs.ack) * acks) / (packets + acks),
            g: ns(costs.interrupt),
        }
    }

    /// The costs fitted to the TCP runs of a sweep, as on the slides; `None` if a cost is not
    /// identified. The slides count acknowledgements as packets, so the mean cost of a packet includes theirs.
    pub(super) fn from_sweep(sweep: &Sweep) -> Option<Self> {
        let models = latput_model::fit_cost_models(&build_results(sweep), |_| true, 0.95).ok()?;
        let is_of_sut = |model: &&CostModel| model.hosts.iter().any(|host| host.role == Role::Sut);
        let model = models.iter().find(is_of_sut)?;
        let ns = |term| model.cost(term).map(|cost| cost.ns);
        let (packets, acks) = count_packets_and_acks(sweep);
        let received = ns(CostTerm::PacketReceived)? * packets;
        let sent = ns(CostTerm::PacketSent).unwrap_or(0.0) * acks;
        Some(Self {
            a: ns(CostTerm::ByteReceived)?,
            b: (received + sent) / (packets + acks),
            g: ns(CostTerm::Interrupt)?,
        })
    }

    /// CPU microseconds of a million bytes in packets of `mtu`, with `per_interrupt` packets per
    /// interrupt (T086).
    pub(super) fn us_per_mb(&self, mtu: f64, per_interrupt: f64) -> f64 {
        let packets = 1e6 / mtu;
        1e-3 * (self.a * 1e6 + self.b * packets + self.g * packets / per_interrupt)
    }
}

/// The TCP runs with a delay.
fn select_tcp_runs(sweep: &Sweep) -> impl Iterator<Item = (&SweepCell, &SweepResult)> {
    sweep.0.iter().filter(|(cell, _)| {
        let is_tcp = matches!(cell.flow, SweepTraffic::Tcp10 | SweepTraffic::Tcp3);
        is_tcp && cell.moderation != SweepModeration::Dynamic
    })
}

/// Packets and acknowledgements per second, summed over the TCP runs.
fn count_packets_and_acks(sweep: &Sweep) -> (f64, f64) {
    select_tcp_runs(sweep).fold((0.0, 0.0), |(packets, acks), (_, seen)| {
        (packets + seen.frames_per_s, acks + seen.frames_per_s / seen.packets_per_ack)
    })
}

/// The runs as a results file.
fn build_results(sweep: &Sweep) -> Results {
    let cells: Vec<(&SweepCell, &SweepResult)> = select_tcp_runs(sweep).collect();
    let setting = |(cell, _): &(&SweepCell, &SweepResult)| {
        let SweepModeration::Delay(units) = cell.moderation else { unreachable!("filtered out") };
        let delay = Nanos::from_ns(units * UNIT.as_ns());
        let knobs = [(Knob::Mtu, Value::Count(cell.mtu)), (Knob::RxUsecs, Value::Time(delay))];
        LabelledSetting {
            label: format!("mtu={} rx-usecs={delay}", cell.mtu),
            by_role: BTreeMap::from([(Role::Sut, knobs.into())]),
        }
    };
    let row = |(setting, (cell, seen)): (usize, &(&SweepCell, &SweepResult))| Row {
        block: 0,
        setting,
        workload: usize::from(cell.flow == SweepTraffic::Tcp3),
        started_unix_ms: 0,
        observation: seen.observation.clone(),
    };
    let workload = |connections: u32| {
        let traffic = latput_trial::workload::Traffic::TcpBulk {
            direction: Direction::ToSut,
            message_bytes: Bytes::new(16_000),
            connections,
            threads: connections,
            rate: None,
            vectored: true,
        };
        Workload::plain(format!("tcp{connections}"), traffic)
    };
    Results {
        name: String::from(super::FILE),
        confidence: 0.95,
        half_width: 0.05,
        testbed: String::from("simulated"),
        settings: cells.iter().map(setting).collect(),
        workloads: vec![workload(10), workload(3)],
        rows: cells.iter().enumerate().map(row).collect(),
        planned_trials: cells.len() as u64,
        ..Results::default()
    }
}
