//! What of a cell a twin is fitted to: what gets done, how long it takes, what it costs each end and how
//! often each end polls.

use latput_trial::observation::{HostObservation, Role};
use latput_trial::{Metric, Observation, Traffic, Workload};
use latput_units::Nanos;

/// One figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FittedFigure {
    /// Transactions or bits of payload per second.
    Rate,
    /// The median round trip.
    Latency,
    /// CPU time of a host per unit of work.
    Cpu(Role),
    /// The same of the traffic's own threads and those that poll for them, in place of it where threads poll:
    /// the scheduler times threads exactly, while the time of a CPU is sampled by a tick and everybody's.
    OwnCpu(Role),
    /// Polls per second of a host.
    Polls(Role),
}

/// Every figure, and what it weighs. Polls are there for what a poll and its timer cost, and bulk traffic
/// says little of that: who polls how often then hangs on who gets the core.
const FIGURES: [(FittedFigure, f64); 8] = [
    (FittedFigure::Rate, 1.0),
    (FittedFigure::Latency, 0.5),
    (FittedFigure::Cpu(Role::Sut), 0.5),
    (FittedFigure::Cpu(Role::Generator), 0.5),
    (FittedFigure::OwnCpu(Role::Sut), 0.5),
    (FittedFigure::OwnCpu(Role::Generator), 0.5),
    (FittedFigure::Polls(Role::Sut), 0.3),
    (FittedFigure::Polls(Role::Generator), 0.3),
];

impl FittedFigure {
    /// The figures of a workload, each with its weight.
    pub(super) fn of(traffic: &Traffic) -> impl Iterator<Item = (Self, f64)> {
        let is_transactional = traffic.is_transactional();
        let is_fit = move |(figure, _): &(Self, f64)| {
            is_transactional || !matches!(figure, Self::Latency | Self::Polls(_))
        };
        FIGURES.into_iter().filter(is_fit)
    }

    /// As it was measured; `None` where it was not, or cannot be told from other work.
    pub(super) fn measured(self, load: &Workload, observation: &Observation) -> Option<f64> {
        let is_other = |check: &latput_trial::Check| check.name == "other-work" && !check.passed;
        let is_told = match self {
            Self::Cpu(role) => {
                own_cpu_us(role, load, observation).is_none()
                    && !observation.checks.iter().any(is_other)
            }
            _ => true,
        };
        self.predicted(load, observation).filter(|value| is_told && *value > 0.0)
    }

    /// As it is in a simulated trial.
    pub(super) fn predicted(self, load: &Workload, observation: &Observation) -> Option<f64> {
        let value = |metric: Metric| metric.value(&load.traffic, observation);
        match self {
            Self::Rate => value(Metric::TransactionsPerS).or_else(|| value(Metric::ThroughputBps)),
            Self::Latency => value(Metric::LatencyNsP50),
            Self::Cpu(Role::Sut) => value(Metric::SutServiceDemandUs),
            Self::Cpu(_) => value(Metric::GeneratorServiceDemandUs),
            Self::OwnCpu(role) => own_cpu_us(role, load, observation),
            Self::Polls(role) => {
                let host = host(role, observation)?;
                per_second(host.napi?.polls as f64, host.window)
            }
        }
    }
}

/// Per transaction or per KB. `None` where soft interrupts poll, whose time is everybody's.
fn own_cpu_us(role: Role, load: &Workload, observation: &Observation) -> Option<f64> {
    let host = host(role, observation)?;
    let flow = &observation.traffic;
    let generator_sends = load.traffic.kind() != "tcp_maerts";
    let is_sender = generator_sends == (role == Role::Generator);
    let traffic = if is_sender { flow.sender_cpu } else { flow.receiver_cpu };
    let busy = traffic.saturating_add(host.napi_threads_cpu?);
    let metric = |metric: Metric| metric.value(&load.traffic, observation);
    let units_per_s = metric(Metric::TransactionsPerS)
        .or_else(|| Some(metric(Metric::ThroughputBps)? / (8.0 * 1024.0)))?;
    let units = units_per_s * host.window.as_secs_f64();
    (units > 0.0).then(|| busy.as_us_f64() / units)
}

fn host(role: Role, observation: &Observation) -> Option<&HostObservation> {
    observation.hosts.iter().find(|host| host.role == role)
}

fn per_second(count: f64, window: Nanos) -> Option<f64> {
    (window > Nanos::ZERO).then(|| count / window.as_secs_f64())
}
